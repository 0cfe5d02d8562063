#include "trust/forge.h"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <functional>

#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "driver/decide/candidates.h"
#include "driver/evidence/certificate_file.h"
#include "driver/proof/folding.h"
#include "driver/pieces/partition.h"
#include "driver/pieces/reduced.h"
#include "driver/evidence/reuse.h"
#include "mirage/spec/text.h"
#include "mirage/support/file.h"
#include "mirage/support/hash.h"
#include "mutants/mutate.h"
#include "trust/random/pairs.h"

namespace mirage::test {

namespace {

using Json = nlohmann::ordered_json;

const std::vector<std::pair<std::string, std::string>>& specs() {
  static const std::vector<std::pair<std::string, std::string>> all = {
      {"norm",
       R"({"version": "1.0", "name": "norm", "inputs": {"x": {"shape": [8, 1024], "dtype": "float16"}, "w": {"shape": [1024, 32], "dtype": "float16"}}, "outputs": {"y": {"dtype": "float16"}},
        "nodes": [{"op": "rms_norm", "inputs": ["x"], "output": "n"}, {"op": "matmul", "inputs": ["n", "w"], "output": "y"}]})"},
      {"mask_add",
       R"({"version": "1.0", "name": "mask_add", "inputs": {"x": {"shape": [4, 1024], "dtype": "float16"}, "w": {"shape": [1024, 32], "dtype": "float16"}, "m": {"shape": [4, 1024], "dtype": "bool"}},
        "outputs": {"y": {"dtype": "float16"}}, "nodes": [{"op": "where", "inputs": ["m", "x", "-inf"], "output": "t"}, {"op": "exp", "inputs": ["t"], "output": "e"},
        {"op": "sum", "inputs": ["e"], "output": "s", "attrs": {"axis": 1, "keepdim": true}}, {"op": "matmul", "inputs": ["e", "w"], "output": "h"}, {"op": "add", "inputs": ["h", "s"], "output": "y"}]})"},
      {"gated",
       R"({"version": "1.0", "name": "gated", "inputs": {"x": {"shape": [8, 96], "dtype": "bfloat16"}, "w": {"shape": [96, 80], "dtype": "bfloat16"}, "v": {"shape": [96, 80], "dtype": "bfloat16"}},
        "outputs": {"y": {"dtype": "bfloat16"}}, "nodes": [{"op": "matmul", "inputs": ["x", "w"], "output": "a"}, {"op": "matmul", "inputs": ["x", "v"], "output": "b"}, {"op": "silu", "inputs": ["a"], "output": "c"},
        {"op": "mul", "inputs": ["c", "b"], "output": "y"}]})"},
      {"low",
       R"({"version": "1.0", "name": "low", "inputs": {"x": {"shape": [8, 256], "dtype": "float16"}, "w": {"shape": [256, 64], "dtype": "float16"}, "a": {"shape": [256, 16], "dtype": "float16"},
        "b": {"shape": [16, 64], "dtype": "float16"}}, "outputs": {"y": {"dtype": "float16"}}, "nodes": [{"op": "matmul", "inputs": ["x", "w"], "output": "h"}, {"op": "matmul", "inputs": ["x", "a"], "output": "u"},
        {"op": "matmul", "inputs": ["u", "b"], "output": "v"}, {"op": "add", "inputs": ["h", "v"], "output": "y"}]})"},
  };
  return all;
}

/// The forger's hand: a structure, its numbers, and certificates about them.
class Forger {
 public:
  Forger(const Honest& h, uint64_t seed)
      : json_(Json::parse(h.certificate)), folding_(fold_verified(h.program)), rng_(mix64(seed)), seed_(seed) {
    const auto read = read_certificate({"honest", h.certificate});
    if (read && read->is_searched) {
      structure_ = read->structure;
      structure_.worlds = make_worlds(folding_.program);
      numbers_ = read->numbers;
      std::string ignored;
      const auto claims = claims_of(structure_, numbers_, ignored);
      ok_ = claims.has_value();
      if (ok_) claims_ = *claims;
    }
  }
  std::optional<Forgery> forge() {
    if (!ok_) return std::nullopt;
    switch (rng_.below(10)) {
      case 0: case 1: case 2: case 3: return dead_at_witness(rng_.below(4) == 0);
      case 4: return mutant();
      case 5: return other_numbers();
      case 6: return less_evidence();
      case 7: return other_program();
      case 8: return as_pieces();
      default: return as_straightforward();
    }
  }

 private:
  const Program& program() const { return folding_.program; }

  /// What the library says of s at witness sizes; where it says that the graphs are not equal, the honest result's evidence.
  std::optional<std::vector<Claim>> claims_of(const Structure& s, const std::vector<CallNumbers>& numbers, std::string& what) {
    const std::vector<Type> params = param_types(program());
    if (split_extents(s, params).size() != numbers.size()) return std::nullopt;
    const Witnesses w = make_witnesses(program());
    std::vector<Claim> claims;
    for (int variant : {0, 1}) {
      const Witness& witness = w.variants[static_cast<size_t>(variant)];
      const std::vector<CallNumbers> small = shrink_numbers(split_extents(s, params), numbers, split_extents(s, witness.params));
      const auto candidate = instantiate(s, witness.params, small);
      if (!candidate) return std::nullopt;
      claims.push_back(claim_of(variant, small, witness.graph, *candidate, what));
    }
    return claims;
  }
  Claim claim_of(int variant, const std::vector<CallNumbers>& numbers, const Graph& reference, const Graph& candidate, std::string& what) {
    Claim c{variant, numbers, reference, candidate, equal(reference, candidate, seed_), {}};
    if (c.verdict.kind != Verdict::Kind::kEqual && claims_.size() > static_cast<size_t>(variant)) {
      what += ", evidence of the honest result";
      c.verdict = claims_[static_cast<size_t>(variant)].verdict;
    }
    c.numerics = check_numerics(c.reference, c.candidate, program(), rounding_seed(c.verdict.evidence));
    return c;
  }
  /// A claim about the program's own size: a proof, in the words of one that there is, or the trials of a small size.
  Verdict support(const std::vector<Claim>& claims, std::string& what) {
    Verdict v = claims[0].verdict;
    v.kind = Verdict::Kind::kEqual;
    v.evidence.open.clear();
    if (rng_.below(2)) {
      v.evidence.proof = prove(program().graph, program().graph);
      what += ", proof claimed";
    }
    return v;
  }
  /// A certificate about s with these numbers.
  std::optional<std::string> certificate_of(const Structure& s, const std::vector<CallNumbers>& numbers, std::string& what) {
    const auto graph = instantiate(s, param_types(program()), numbers);
    if (!graph || check_laws(*graph)) return std::nullopt;
    const auto claims = claims_of(s, numbers, what);
    if (!claims) return std::nullopt;
    const Graph whole = folding_.unfold(*graph);
    const Verdict v = support(*claims, what);
    return finish(
        write_certificate(folding_.whole, options_, {&s, numbers, nullptr, whole, *claims, v, {}, {"emulated in field and floats"}}));
  }
  /// Fields that this forger does not know are taken over from the honest one.
  std::string finish(const std::string& text) {
    Json j = Json::parse(text);
    for (const auto& [key, value] : json_.items())
      if (!j.contains(key) && key != "proof" && key != "trials" && key != "open" && key != "structure" && key != "numbers" &&
          key != "pieces")
        j[key] = value;
    return j.dump();
  }

  /// The structure's body with `result` put through `change`, which gets a builder, the value that an output writes and the values of the
  /// loop.
  using Change = std::function<std::optional<ValueId>(Builder&, ValueId out, const std::vector<ValueId>& loop_values)>;
  std::optional<Structure> with_body(const Change& change) {
    Builder kernel(Level::kKernel);
    std::vector<ValueId> to;
    bool done = false;
    const Graph& g = structure_.graph;
    for (NodeId n = 0; n < g.num_nodes(); n++) {
      const Node& node = g.node(n);
      std::vector<ValueId> in;
      for (ValueId v : node.operands) in.push_back(to[static_cast<size_t>(v)]);
      if (const auto* i = g.form<Input>(n)) { to.push_back(kernel.add_input(i->param, g.type(node.first_value))); continue; }
      Op op = node.op;
      if (const auto* c = g.form<Call>(n); c && !done) {
        const auto body = changed(*c->body, change);
        if (!body) return std::nullopt;
        op = Call{std::make_shared<const Graph>(*body)};
        done = true;
      }
      const auto v = kernel.try_add(op, in);
      if (!v) return std::nullopt;
      for (int i = 0; i < node.num_values; i++) to.push_back(*v + i);
    }
    if (!done || check_laws(kernel.graph())) return std::nullopt;
    Structure s = structure_;
    s.graph = kernel.graph();
    return s;
  }
  static std::optional<Graph> changed(const Graph& body, const Change& change) {
    Builder b(Level::kBlock, body.launch());
    const std::vector<Phase> phase = phases(body);
    std::vector<ValueId> to, loop_values;
    for (NodeId n = 0; n < body.num_nodes(); n++) {
      const Node& node = body.node(n);
      std::vector<ValueId> in;
      for (ValueId v : node.operands) in.push_back(to[static_cast<size_t>(v)]);
      if (const auto* o = body.form<Output>(n)) {
        const auto v = o->result == 0 ? change(b, in[0], loop_values) : std::optional(in[0]);
        if (!v) return std::nullopt;
        b.add_output(o->result, *v, o->dtype, o->part);
        continue;
      }
      const auto v = body.form<Input>(n)
                         ? std::optional(b.add_input(body.form<Input>(n)->param, body.type(node.first_value), body.form<Input>(n)->part))
                         : b.try_add(node.op, in);
      if (!v) return std::nullopt;
      for (int i = 0; i < node.num_values; i++) {
        to.push_back(*v + i);
        if (phase[static_cast<size_t>(node.first_value + i)] == Phase::kLoop && body.dims(node.first_value + i).rank() == 2)
          loop_values.push_back(*v + i);
      }
    }
    if (check_laws(b.graph())) return std::nullopt;
    return b.graph();
  }

  /// Another result where a count of iterations, of elements or of true bits is larger than any witness has, or a value than any draw.
  /// far_values: the latter.
  std::optional<Forgery> dead_at_witness(bool far_values) {
    std::string what;
    const auto s = with_body([&](Builder& b, ValueId out, const std::vector<ValueId>& loop) -> std::optional<ValueId> {
      const auto map = [&](MapFn f, std::vector<ValueId> in) { return b.try_add(Map{f}, std::move(in)); };
      std::optional<ValueId> condition;
      if (far_values) {
        const double t = std::array{300.0, 3e4, 1e6, -1e5}[rng_.below(4)];
        condition = t > 0 ? map(MapFn::kLess, {b.constant(t), out}) : map(MapFn::kLess, {out, b.constant(t)});
        what = fmt::format("another result beyond {}", t);
      } else {
        if (loop.empty()) return std::nullopt;
        ValueId x = loop[rng_.below(loop.size())];
        const int dim = static_cast<int>(rng_.below(2));
        const bool is_bits = b.graph().type(x).dtype == DType::kBool;
        const auto one = is_bits ? map(MapFn::kWhere, {x, b.constant(1), b.constant(0)})
                                 : map(MapFn::kAdd, {b.constant(1), *map(MapFn::kMul, {b.constant(0), x})});
        if (!one) return std::nullopt;
        const bool by_iteration = !is_bits && rng_.below(2);
        auto row = b.try_add(Reduce{by_iteration ? ReduceFn::kMax : ReduceFn::kSum, 1 - dim, 0}, {*one});
        if (row && rng_.below(2)) row = b.try_add(Reduce{ReduceFn::kMax, dim, 0}, {*row});
        const auto count = row ? b.try_add(Accum{ReduceFn::kSum}, {*row}) : std::nullopt;
        if (!count) return std::nullopt;
        const double t = std::array{11.5, 12.0, 13.0, 16.0, 20.0, 40.0, 1.0, 2.0}[rng_.below(by_iteration ? 8 : 6)];
        condition = rng_.below(4) == 0
                        ? map(MapFn::kEqual, {*count, b.constant(std::array{64.0, 80.0, 96.0, 1024.0, 200.0}[rng_.below(5)])})
                        : map(MapFn::kLess, {b.constant(t), *count});
        what = fmt::format("another result where a count of {} is large ({})",
                           is_bits        ? "bits"
                           : by_iteration ? "iterations"
                                          : "elements",
                           t);
      }
      if (!condition) return std::nullopt;
      const ValueId other = rng_.below(2) ? b.constant(0) : b.map(MapFn::kNeg, {out});
      const auto v = map(MapFn::kWhere, {*condition, other, out});
      return v && b.graph().dims(*v) == b.graph().dims(out) ? v : std::nullopt;
    });
    if (!s) return std::nullopt;
    const auto text = certificate_of(*s, any_numbers(*s), what);
    return text ? std::optional(Forgery{what, *text}) : std::nullopt;
  }

  /// One operator, operand or constant of the kernel changed.
  std::optional<Forgery> mutant() {
    const Graph& g = structure_.graph;
    std::vector<Structure> all;
    for (NodeId n = 0; n < g.num_nodes(); n++) {
      const auto* c = g.form<Call>(n);
      if (!c) continue;
      const NodeId at = static_cast<NodeId>(rng_.below(static_cast<uint64_t>(c->body->num_nodes())));
      mutate_operators(*c->body, at, [&](const Graph& body, const std::string&) {
        if (auto m = with_node(g, n, Call{std::make_shared<const Graph>(body)}, g.node(n).operands, {})) {
          all.push_back(structure_);
          all.back().graph = *m;
        }
      });
      break;
    }
    if (all.empty()) return std::nullopt;
    std::string what = "an operator changed";
    const auto text = certificate_of(all[rng_.below(all.size())], numbers_, what);
    return text ? std::optional(Forgery{what, *text}) : std::nullopt;
  }

  std::vector<CallNumbers> any_numbers(const Structure& s) {
    if (rng_.below(4) == 0) return numbers_;
    std::vector<CallNumbers> n = split_extents(s, param_types(program()));
    const auto some = [&](int64_t extent) {
      return extent <= 1 ? extent : std::array<int64_t, 5>{extent, (extent + 1) / 2, (extent + 3) / 4, 16, 8}[rng_.below(5)];
    };
    for (CallNumbers& c : n) {
      for (int64_t& t : c.grid_tile) t = std::min(t, some(t));
      c.loop_tile = std::min<int64_t>(c.loop_tile, rng_.below(3) ? std::array<int64_t, 6>{2, 8, 16, 32, 64, 64}[rng_.below(6)]
                                                                 : some(c.loop_tile));  // many iterations: what no witness has
    }
    return n;
  }
  std::optional<Forgery> other_numbers() {
    std::string what = "other numbers";
    const auto text = certificate_of(structure_, any_numbers(structure_), what);
    return text ? std::optional(Forgery{what, *text}) : std::nullopt;
  }

  /// The honest certificate with some of its support gone, swapped or from elsewhere.
  std::optional<Forgery> less_evidence() {
    Json j = json_;
    std::string what;
    const auto without_support = [&] { for (const char* key : {"proof", "trials", "open"}) j.erase(key); };
    switch (rng_.below(7)) {
      case 0: without_support(), what = "no proof"; break;
      case 1: j["claims"] = Json::array(), what = "no claims"; break;
      case 2: std::swap(j["claims"][0], j["claims"][1]), what = "claims in the other order"; break;
      case 3: std::swap(j["claims"][0]["evidence"], j["claims"][1]["evidence"]), what = "evidence swapped"; break;
      case 4: j["claims"][0] = j["claims"][1], j["claims"][0]["variant"] = 0, what = "one claim twice"; break;
      case 5: without_support(), j["trials"] = j["claims"][0]["evidence"], what = "the trials of a small size"; break;
      default: without_support(), j["claims"].erase(1), what = "half of it"; break;
    }
    return Forgery{what, j.dump()};
  }

  /// Another program's decision under this program's name and hash: everything of a program in which one constant or operator is another.
  std::optional<Forgery> other_program() {
    const Graph& g = program().graph;
    std::vector<Graph> all;
    for (NodeId n = 0; n < g.num_nodes(); n++)
      if (!g.form<Input>(n) && !g.form<Output>(n))
        mutate_operators(g, n, [&](const Graph& m, const std::string&) {
          if (m.num_params() == g.num_params()) all.push_back(m);
        });
    if (all.empty()) return std::nullopt;
    Program other = program();
    other.graph = all[rng_.below(all.size())];
    if (check_laws(other.graph)) return std::nullopt;
    const Witnesses w = make_witnesses(other);
    if (!w.refusal.empty()) return std::nullopt;
    Json j = json_;
    for (int variant : {0, 1}) {   // claims that the other program is itself
      const Graph& small = w.variants[static_cast<size_t>(variant)].graph;
      j["claims"][static_cast<size_t>(variant)]["reference"] = print(small, "reference");
      j["claims"][static_cast<size_t>(variant)]["candidate"] = print(small, "candidate");
      j["claims"][static_cast<size_t>(variant)]["numbers"] = Json::array();
    }
    j["structure"] = print(w.variants[0].graph, "structure");
    j["numbers"] = Json::array();
    j["graph"] = print(folding_.unfold(other.graph), "kernel_graph");
    return Forgery{"another program's graphs", j.dump()};
  }

  /// The forged structure as one piece of a partitioned program, with claims of the whole.
  std::optional<Forgery> as_pieces() {
    std::string what;
    const auto s = with_body([&](Builder& b, ValueId out, const std::vector<ValueId>& loop) -> std::optional<ValueId> {
      if (loop.empty()) return std::nullopt;
      const ValueId x = loop[rng_.below(loop.size())];
      if (b.graph().type(x).dtype == DType::kBool) return std::nullopt;
      const auto count = b.try_add(
          Accum{ReduceFn::kSum},
          {b.add(Reduce{ReduceFn::kMax, 0, 0},
                 {b.add(Reduce{ReduceFn::kMax, 1, 0}, {b.map(MapFn::kAdd, {b.constant(1), b.map(MapFn::kMul, {b.constant(0), x})})})})});
      if (!count) return std::nullopt;
      return b.try_add(
          Map{MapFn::kWhere},
          {b.map(MapFn::kLess, {b.constant(std::array{1.0, 2.0, 11.5, 12.0, 14.0, 20.0}[rng_.below(6)]), *count}), b.constant(0), out});
    });
    if (!s) return std::nullopt;
    const Graph& g = program().graph;
    Replaced r;
    std::vector<ValueId> by_param(static_cast<size_t>(g.num_params()));
    for (NodeId n : g.inputs()) by_param[static_cast<size_t>(g.form<Input>(n)->param)] = g.node(n).first_value;
    r.piece.leaves = by_param;
    for (NodeId n : g.outputs()) r.piece.results.push_back(g.node(n).operands[0]);
    auto piece = piece_between(g, r.piece.leaves, r.piece.results, extent_classes(g));
    if (!piece) return std::nullopt;
    r.piece = std::move(*piece);
    r.structure = *s;
    r.numbers = any_numbers(*s);
    Stitched whole;
    whole.pieces = {r};
    auto stitched = stitch(g, whole.pieces, {r.numbers});
    if (!stitched || check_laws(*stitched)) return std::nullopt;
    whole.graph = folding_.unfold(*stitched);
    for (int variant : {0, 1}) {
      std::string refusal;
      const auto pair = small_pair(program(), whole.pieces, variant, refusal);
      if (!pair) return std::nullopt;
      whole.claims.push_back(claim_of(variant, pair->numbers, pair->reference, pair->candidate, what));
    }
    const Verdict v = support(whole.claims, what);
    return Forgery{"a forged piece",
                   finish(write_certificate(folding_.whole, options_, {nullptr, {}, &whole.pieces, whole.graph, whole.claims, v, {}, {}}))};
  }

  /// "straightforward": either what it says (and then right), or with a graph that is not.
  std::optional<Forgery> as_straightforward() {
    Json j = json_;
    j["kind"] = "straightforward";
    j["claims"] = Json::array();
    for (const char* key : {"structure", "numbers", "pieces", "proof", "trials", "open"}) j.erase(key);
    j["graph"] = rng_.below(2) ? print(folding_.unfold(program().graph), "kernel_graph") : json_["graph"].get<std::string>();
    return Forgery{"straightforward", j.dump()};
  }

  Json json_;
  Options options_ = forging_options();
  Folding folding_;
  Rng rng_;
  uint64_t seed_;
  Structure structure_;
  std::vector<CallNumbers> numbers_;
  std::vector<Claim> claims_;
  bool ok_ = false;
};

}  // namespace

Options forging_options() {
  Options o;
  o.emit = {"cu", "certificate"};
  o.gate = "none";
  o.states = 100'000;
  o.jobs = 1;
  return o;
}

const std::vector<Honest>& honest_results() {
  static const std::vector<Honest> all = [] {
    std::vector<Honest> out;
    for (const auto& [name, text] : specs()) {
      Honest h;
      h.name = name;
      h.spec = {name + ".json", text};
      h.program = *parse_spec(h.spec);
      Options o = forging_options();
      o.lock = (std::filesystem::temp_directory_path() / fmt::format("mirage_honest.{}.{}.json", getpid(), name)).string();
      Trace trace;
      const CompileResult r = compile(o, h.spec, trace);
      h.lock = *read_file(o.lock);
      std::filesystem::remove(o.lock);
      const Json j = Json::parse(h.lock);
      h.key = j["decisions"].begin().key();
      h.certificate = j["decisions"].begin().value()["certificate"].dump();
      h.cuda = r.files.at(name + ".cu");
      out.push_back(std::move(h));
    }
    return out;
  }();
  return all;
}

std::optional<Forgery> forge(const Honest& h, uint64_t seed) { return Forger(h, seed).forge(); }

std::string lock_with(const Honest& h, const std::string& certificate) {
  Json j = Json::parse(h.lock);
  j["decisions"][h.key]["certificate"] = Json::parse(certificate);
  return j.dump(1);
}

std::string wrong_graph(const Honest& h, const std::string& graph_text) {
  const auto g = parse_graph(graph_text);
  if (!g) return "the graph does not read";
  const auto where = difference(h.program.graph, *g, 1, 27);
  return where ? *where : "";
}

}  // namespace mirage::test

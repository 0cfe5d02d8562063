// Random well-typed specs through the whole pipeline: search with a small budget, verify, plan, emit, emulate, compare. MIRAGE_RANDOM=N programs (default 24), MIRAGE_SEED=S. A failure prints the spec after the
// reducer has taken away every node and shortened every extent that it does not need.
#include <fmt/format.h>

#include <functional>

#include "emulate/helpers.h"
#include "mirage/support/hash.h"

using namespace mirage;
using namespace mirage::test;

namespace {

/// A spec in pieces, so that the reducer can take some away.
struct RandomSpec {
  struct Input { std::string name; std::vector<int> axes; std::string dtype, strides; };
  struct Node { std::string op, attrs, output; std::vector<std::string> operands; std::vector<int> axes; };
  std::string name;
  std::vector<int64_t> extent;          ///< per axis; axis -1 is an extent of 1
  std::vector<Input> inputs;
  std::vector<Node> nodes;
  std::vector<std::string> outputs;
  std::string dtype, out_dtype;

  std::string text() const {
    const auto shape = [&](const std::vector<int>& axes) {
      std::string s;
      for (int a : axes) s += (s.empty() ? "" : ", ") + (a < 0 ? std::string("1") : fmt::format("\"A{}\"", a));
      return s;
    };
    std::string axes, in, out, body;
    for (size_t i = 0; i < extent.size(); i++) axes += fmt::format("{}\"A{}\": {{\"type\": \"const\", \"value\": {}}}", i ? ", " : "", i, extent[i]);
    for (const Input& x : inputs) in += fmt::format("{}\"{}\": {{\"shape\": [{}], \"dtype\": \"{}\"{}}}", in.empty() ? "" : ", ", x.name, shape(x.axes), x.dtype, x.strides);
    for (const std::string& o : outputs) out += fmt::format("{}\"{}\": {{\"dtype\": \"{}\"}}", out.empty() ? "" : ", ", o, out_dtype);
    for (const Node& n : nodes) {
      std::string operands;
      for (const std::string& o : n.operands) operands += (operands.empty() ? "" : ", ") + (std::isalpha(static_cast<unsigned char>(o[0])) ? "\"" + o + "\"" : o);
      body += fmt::format("{}{{\"op\": \"{}\", \"inputs\": [{}], \"output\": \"{}\"{}}}", body.empty() ? "" : ",\n ", n.op, operands, n.output, n.attrs.empty() ? "" : ", \"attrs\": {" + n.attrs + "}");
    }
    return fmt::format("{{\"version\": \"1.0\", \"name\": \"{}\", \"axes\": {{{}}},\n \"inputs\": {{{}}}, \"outputs\": {{{}}},\n \"nodes\": [{}]}}", name, axes, in, out, body);
  }
};

/// Grows a program value by value; every value is bounded, so that float16 holds it.
RandomSpec random_spec(uint64_t seed) {
  Rng rng(seed);
  RandomSpec s;
  s.name = fmt::format("r{}", seed);
  s.dtype = std::array{"float16", "bfloat16", "float32"}[rng.below(3)];
  s.out_dtype = rng.below(4) == 0 ? "float32" : s.dtype;
  const int64_t choices[] = {16, 32, 64, 8, 24, 7, 13, 33, 40, 96, 1, 128};
  for (int i = 0; i < 4; i++) s.extent.push_back(choices[rng.below(std::size(choices))]);
  struct Value { std::string name; std::vector<int> axes; };
  std::vector<Value> values;
  const auto add_input = [&](std::vector<int> axes) {
    std::string name = fmt::format("x{}", s.inputs.size()), strides;
    if (axes.size() == 2 && axes[0] >= 0 && axes[1] >= 0 && rng.below(6) == 0) strides = fmt::format(", \"strides\": [1, \"A{}\"]", axes[0]);
    else if (axes.size() == 2 && axes[0] >= 0 && axes[1] >= 0 && rng.below(8) == 0) strides = fmt::format(", \"strides\": [\"A{}+{}\", 1]", axes[1], 1 + rng.below(8));
    s.inputs.push_back({name, axes, s.dtype, strides});
    values.push_back({name, axes});
    return values.back();
  };
  add_input({0, 1});
  const auto add_node = [&](const std::string& op, std::vector<std::string> operands, std::vector<int> axes, const std::string& attrs = "") {
    s.nodes.push_back({op, attrs, fmt::format("v{}", s.nodes.size()), std::move(operands), axes});
    values.push_back({s.nodes.back().output, axes});
    return values.back();
  };
  const size_t wanted = 2 + rng.below(6);
  while (s.nodes.size() < wanted) {
    const Value x = values[rng.below(3) ? values.size() - 1 : rng.below(values.size())];
    const int rank = static_cast<int>(x.axes.size());
    switch (rng.below(12)) {
      case 0: case 1: case 2: {   // a product with a new weight, or of x with itself
        if (rank != 2 || x.axes[1] < 0) break;
        const int n = static_cast<int>(rng.below(s.extent.size()));
        const bool t = rng.below(4) == 0;
        const Value w = add_input(t ? std::vector<int>{n, x.axes[1]} : std::vector<int>{x.axes[1], n});
        add_node("matmul", {x.name, w.name}, {x.axes[0], n}, t ? "\"transpose_b\": true" : "");
        add_node("mul", {values.back().name, "0.125"}, {x.axes[0], n});
        break;
      }
      case 3: add_node(std::array{"silu", "sigmoid", "tanh", "gelu", "relu", "abs", "neg"}[rng.below(7)], {x.name}, x.axes); break;
      case 4: {
        if (rank != 2) break;
        const int kind = static_cast<int>(rng.below(3));   // whole, a row, a column
        const Value y = add_input(kind == 0 ? x.axes : kind == 1 ? std::vector<int>{x.axes[1]} : std::vector<int>{x.axes[0], -1});
        add_node(std::array{"add", "sub", "maximum", "minimum"}[rng.below(4)], {x.name, y.name}, x.axes);
        break;
      }
      case 5: add_node(std::array{"rms_norm", "layer_norm", "softmax", "l2_norm"}[rng.below(4)], {x.name}, x.axes); break;
      case 6: {
        if (rank != 2) break;
        const int axis = static_cast<int>(rng.below(2));
        std::vector<int> axes = x.axes;
        axes[static_cast<size_t>(axis)] = -1;
        const std::string op = std::array{"mean", "max"}[rng.below(2)];
        const Value r = add_node(op, {x.name}, axes, fmt::format("\"axis\": {}, \"keepdim\": true", axis));
        if (rng.below(2)) add_node("sub", {x.name, r.name}, x.axes);
        break;
      }
      case 7: if (rank == 2) add_node("transpose", {x.name}, {x.axes[1], x.axes[0]}); break;
      case 8: {   // a denominator that is at least one
        const Value d = add_node("square", {x.name}, x.axes);
        const Value e = add_node("add", {d.name, "1"}, x.axes);
        add_node("div", {x.name, e.name}, x.axes);
        break;
      }
      case 9: add_node("exp", {add_node("tanh", {x.name}, x.axes).name}, x.axes); break;
      case 10: {
        const Value& y = values[rng.below(values.size())];
        if (y.axes == x.axes) add_node(std::array{"add", "mul"}[rng.below(2)], {x.name, y.name}, x.axes);
        break;
      }
      case 11: if (rank == 2 && rng.below(2)) add_node("concat", {x.name, x.name}, {x.axes[0], x.axes[1]}, "\"axis\": 0"), values.pop_back(), s.outputs.push_back(s.nodes.back().output); break;
    }
  }
  for (auto& n : s.nodes) {   // what nobody reads is a result
    bool used = false;
    for (const auto& m : s.nodes)
      for (const auto& o : m.operands) used = used || o == n.output;
    if (!used && std::find(s.outputs.begin(), s.outputs.end(), n.output) == s.outputs.end()) s.outputs.push_back(n.output);
  }
  return s;
}

struct Prepared { std::string name; EmulationCase with; };

std::vector<Prepared> prepare(const RandomSpec& s, const std::string& prefix) {
  const Target target = *find_target(hash_text(s.name) % 3 ? "sm_90a" : "sm_80");
  auto program = parse_spec({s.name, s.text()});
  if (!program) return {};
  std::vector<Prepared> out;
  for (const NamedPlan& n : plans_of(*program, target, 20'000)) out.push_back({s.name + " " + target.name + " " + n.name, case_of(*program, n.plan, target, fmt::format("{}{}_", prefix, out.size()))});
  return out;
}

/// What is wrong with a prepared program; "": nothing.
std::string judge(const Prepared& p, const std::string& library) {
  const EmulationOutcome field = run_emulation(p.with, library, EmulationMode::kField, 1);
  if (!field.ok) return "field: " + field.reason;
  const EmulationOutcome floats = run_emulation(p.with, library, EmulationMode::kFloat, 2);
  return floats.ok ? "" : "float: " + floats.reason;
}

/// Whether the spec (still) fails, on its own.
std::string failure(const RandomSpec& s, const std::string& compiler) {
  const std::vector<Prepared> all = prepare(s, "p");
  for (const Prepared& p : all) {
    const EmulationLibrary lib = build_emulation({&p.with}, compiler, emulation_folder());
    if (!lib.error.empty()) return "compiler: " + lib.error.substr(0, 2000);
    if (const std::string why = judge(p, lib.path); !why.empty()) return p.name + ": " + why;
  }
  return "";
}

/// Greedy: later nodes become results, inputs of no use go, extents shrink, as long as it fails.
RandomSpec reduce_spec(RandomSpec s, const std::string& compiler) {
  for (bool progress = true; progress;) {
    progress = false;
    const auto attempt = [&](RandomSpec t) {
      std::erase_if(t.inputs, [&](const auto& x) {
        for (const auto& n : t.nodes) if (std::find(n.operands.begin(), n.operands.end(), x.name) != n.operands.end()) return false;
        return true;
      });
      if (t.nodes.empty() || t.outputs.empty() || failure(t, compiler).empty()) return false;
      s = std::move(t);
      return progress = true;
    };
    if (s.outputs.size() > 1)
      for (size_t i = 0; i < s.outputs.size() && !progress; i++) { RandomSpec t = s; t.outputs = {s.outputs[i]}; attempt(t); }
    if (!progress && s.nodes.size() > 1) {
      RandomSpec t = s;
      t.nodes.pop_back();
      t.outputs = {t.nodes.back().output};
      attempt(t);
    }
    for (size_t a = 0; a < s.extent.size() && !progress; a++)
      for (int64_t e : {1, 2, 8, 16}) {
        if (progress || e >= s.extent[a]) continue;
        RandomSpec t = s;
        t.extent[a] = e;
        attempt(t);
      }
  }
  return s;
}

}  // namespace

TEST_CASE("random programs are right on the CPU") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const auto number = [](const char* name, uint64_t fallback) { const char* v = std::getenv(name); return v ? static_cast<uint64_t>(atoll(v)) : fallback; };
  const uint64_t count = number("MIRAGE_RANDOM", 24), first = number("MIRAGE_SEED", 1);
  constexpr uint64_t kBatch = 24;   // programs per host compile
  int wrong = 0;
  int64_t judged = 0;
  for (uint64_t at = 0; at < count; at += kBatch) {
    std::vector<RandomSpec> specs;
    std::vector<Prepared> all;
    std::vector<size_t> of;
    for (uint64_t i = at; i < std::min(count, at + kBatch); i++) {
      specs.push_back(random_spec(first * 1'000'000 + i));
      for (Prepared& p : prepare(specs.back(), fmt::format("s{}_", i))) { all.push_back(std::move(p)); of.push_back(specs.size() - 1); }
    }
    std::vector<const EmulationCase*> cases;
    for (const Prepared& p : all) cases.push_back(&p.with);
    const EmulationLibrary lib = build_emulation(cases, compiler, emulation_folder());
    INFO(lib.error);
    REQUIRE(lib.error.empty());
    for (size_t i = 0; i < all.size(); i++) {
      judged++;
      const std::string why = judge(all[i], lib.path);
      if (why.empty()) continue;
      wrong++;
      const RandomSpec small = reduce_spec(specs[of[i]], compiler);
      FAIL_CHECK(all[i].name << ": " << why << "\nreduced: " << failure(small, compiler) << "\n" << small.text());
    }
  }
  if (std::getenv("MIRAGE_TABLE")) fmt::print("{} programs from seed {}, {} plans, {} wrong\n", count, first, judged, wrong);
  CHECK(judged >= static_cast<int64_t>(count) / 2);
}

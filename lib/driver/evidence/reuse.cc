// Cache and lock. A cache is a folder of KEY.json, each a certificate; a lock is one file with many of them, sorted by key, to be kept with
// the sources.
#include "driver/evidence/reuse.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/evidence/certificate_file.h"
#include "driver/decide/decide.h"
#include "driver/evidence/cache_folder.h"
#include "driver/proof/folding.h"
#include "driver/pieces/piece_program.h"
#include "driver/pieces/reduced.h"
#include "driver/evidence/remembered.h"
#include "mirage/plan/alternatives.h"
#include "mirage/spec/json_text.h"
#include "mirage/support/file.h"
#include "mirage/support/hash.h"

namespace mirage {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kLockVersion = 1;


/// The lock's object; an empty one if there is no file yet.
Result<Json> read_lock(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    return Json{{"schema_version", kLockVersion}, {"tool", "mirage-opt"}, {"decisions", Json::object()}};
  JsonLimits limits;
  limits.cut_deep = true;   // the entries of other programs are not looked at
  auto read = read_json_file(path, DiagCode::kCertificate, limits);
  if (!read) return read.errors();
  Json& j = *read;
  if (!j.is_object() || !j.contains("schema_version") || j["schema_version"] != kLockVersion || !j.contains("decisions") ||
      !j["decisions"].is_object())
    return Diagnostic{Severity::kError,
                      DiagCode::kCertificate,
                      {path, 0, 0, 1},
                      "the file is no lock of this version of mirage-opt",
                      {{{}, "give --lock another file (one that is not there is made), or move this one away"}}};
  return std::move(j);
}

std::string cache_path(const Options& o, const std::string& key) { return (std::filesystem::path(o.cache) / (key + ".json")).string(); }

/// The certificate with what is told of it, as a cache keeps it.
std::string cache_entry(const std::string& certificate, const Json& told) {
  if (told.is_null()) return certificate;
  Json out = own_json(certificate);
  out["told"] = told;
  return out.dump(1) + "\n";
}

/// Whether the numbers are the tiles of g's calls, in node order: instantiate() is lenient about those that have no effect.
bool are_tiles_of(const Graph& g, const std::vector<CallNumbers>& numbers) {
  size_t call = 0;
  for (const Node& node : g.nodes()) {
    const auto* c = std::get_if<Call>(&node.op);
    if (!c || call >= numbers.size()) continue;
    const CallNumbers& n = numbers[call++];
    const Graph& body = *c->body;
    std::array<std::set<int64_t>, 4> tiles;   // of the three axes and the loop
    for (const Node& inner : body.nodes()) {
      const auto* in = std::get_if<Input>(&inner.op);
      const auto* out = std::get_if<Output>(&inner.op);
      if (!in && !out) continue;
      const Partition& p = in ? in->part : out->part;
      const Dims& d = body.dims(in ? inner.first_value : inner.operands[0]);
      for (size_t a = 0; a < 3; a++)
        if (p.grid[a] >= 0) tiles[a].insert({d[p.grid[a]], d[p.grid[a]] * (p.loop == p.grid[a] ? body.launch().loop : 1)});
      if (p.loop >= 0) tiles[3].insert(d[p.loop]);
    }
    for (size_t a = 0; a < 4; a++) {
      const int64_t tile = a < 3 ? n.grid_tile[a] : n.loop_tile;
      if (tiles[a].empty() ? tile != 0 : !tiles[a].contains(tile)) return false;
    }
  }
  return true;
}

/// Whether the inputs and outputs are those of the program up to extents: what instantiate() requires.
bool fits_program(const Graph& g, const Graph& reference) {
  if (g.level() != Level::kKernel || g.num_results() != reference.num_results()) return false;
  std::vector<const Node*> by_param(static_cast<size_t>(reference.num_params()), nullptr);
  for (NodeId n : reference.inputs()) by_param[static_cast<size_t>(reference.form<Input>(n)->param)] = &reference.node(n);
  for (NodeId n : g.inputs()) {
    const auto param = static_cast<size_t>(g.form<Input>(n)->param);
    if (param >= by_param.size() || !by_param[param]) return false;
    const Type &a = g.type(g.node(n).first_value), &b = reference.type(by_param[param]->first_value);
    if (a.dtype != b.dtype || a.dims.rank() != b.dims.rank()) return false;
  }
  return true;
}

/// Whether a piece takes and gives values of the program, as its structure does by number.
bool fits_piece(const Replaced& r, const Graph& g) {
  auto valid = [&](const std::vector<ValueId>& values) {
    return std::all_of(values.begin(), values.end(), [&](ValueId v) { return v >= 0 && v < g.num_values(); });
  };
  const Graph& s = r.structure.graph;
  if (s.level() != Level::kKernel || !valid(r.piece.leaves) || !valid(r.piece.results) ||
      s.num_results() != static_cast<int>(r.piece.results.size()))
    return false;
  for (NodeId n : s.inputs()) {
    const auto param = static_cast<size_t>(s.form<Input>(n)->param);
    if (param >= r.piece.leaves.size() || s.dims(s.node(n).first_value).rank() != g.dims(r.piece.leaves[param]).rank()) return false;
  }
  for (NodeId n : s.outputs())   // what is stitched in has the shape of what it replaces
    if (s.dims(s.node(n).operands[0]).rank() != g.dims(r.piece.results[static_cast<size_t>(s.form<Output>(n)->result)]).rank())
      return false;
  return true;
}

/// The graph that a structure and its numbers make of the folded program; a text: why there is none.
std::optional<Graph> graph_of(const CertificateFile& c, const Program& program, std::string& refusal) {
  if (!fits_program(c.structure.graph, program.graph)) {
    refusal = "the structure has other inputs or outputs than the program";
    return std::nullopt;
  }
  Structure structure = c.structure;
  structure.worlds = make_worlds(program);
  const std::vector<Type> params = param_types(program);
  if (split_extents(structure, params).size() != c.numbers.size()) {
    refusal = "the numbers do not fit the structure";
    return std::nullopt;
  }
  std::optional<Graph> graph = instantiate(structure, params, c.numbers);
  if (!graph || check_laws(*graph) || !are_tiles_of(*graph, c.numbers)) {
    refusal = "the graph is not the structure with these numbers";
    return std::nullopt;
  }
  return graph;
}

/// What the certificate leaves out of its pieces: their operators, which are those of the program between leaves and results, and what
/// structures look extents up in.
bool complete_pieces(std::vector<Replaced>& pieces, const Program& program) {
  const auto classes = extent_classes(program.graph);
  const PiecePrograms programs(program);
  for (Replaced& r : pieces) {
    std::optional<Piece> piece = piece_between(program.graph, r.piece.leaves, r.piece.results, classes);
    if (!piece) return false;
    r.piece = std::move(*piece);
    r.structure.worlds = make_worlds(programs.of(r.piece, true));
  }
  return true;
}

/// The same of pieces.
std::optional<Graph> stitched_of(CertificateFile& c, const Program& program, std::vector<ValueId>& origin, std::string& refusal) {
  std::set<ValueId> results;
  std::vector<std::vector<CallNumbers>> numbers;
  for (const Replaced& r : c.pieces) {
    if (!fits_piece(r, program.graph)) refusal = "a piece has other inputs or results than the program's values";
    for (ValueId v : r.piece.results)
      if (!results.insert(v).second) refusal = "two pieces make one value";
    numbers.push_back(r.numbers);
  }
  if (refusal.empty() && !complete_pieces(c.pieces, program)) refusal = "a piece needs other values than its inputs";
  if (!refusal.empty()) return std::nullopt;
  std::optional<Graph> graph = stitch(program.graph, c.pieces, numbers, &origin);
  if (!graph) refusal = "the graph is not the program with these pieces";
  return graph;
}

/// The plan with its kernels divided as a certificate says.
std::optional<Plan> divided(Plan plan, const std::vector<std::string>& divisions, const Target& target, const ContractRule& rule) {
  constexpr size_t kMost = 4096;
  if (divisions.empty()) return plan;
  if (divisions.size() != plan.kernels.size()) return std::nullopt;
  for (size_t k = 0; k < divisions.size(); k++) {
    if (division_text(plan.kernels[k]) == divisions[k]) continue;
    const std::vector<KernelPlan> others = kernel_alternatives(plan.kernels[k], target, rule, kMost);
    const auto at = std::find_if(others.begin(), others.end(), [&](const KernelPlan& o) { return division_text(o) == divisions[k]; });
    if (at == others.end()) return std::nullopt;
    plan = with_kernel(plan, k, *at);
  }
  return plan;
}

}  // namespace

Result<Recalled> decide_again(const Source& certificate, const Folding& folding, const Target& target, const Options& o) {
  const auto broken = [&](const std::string& why) { return broken_certificate(certificate.name, why); };
  auto c = read_certificate(certificate);
  if (!c) return c.errors();
  const Program& program = folding.program;
  if (c->program_hash != hash_text(folding.whole.canonical))
    return broken("the decision is of another program than '" + folding.whole.name + "'");
  if (c->options.target != target.name || result_options(c->options) != result_options(o))
    return broken("the decision was made with other options");
  Recalled out;
  std::string refusal;
  std::vector<ValueId> origin;
  const std::optional<Graph> graph = c->is_searched      ? graph_of(*c, program, refusal)
                                     : c->is_partitioned ? stitched_of(*c, program, origin, refusal)
                                                         : std::optional(program.graph);
  if (!graph) return broken(refusal);
  if (!(folding.unfold(*graph) == c->graph)) return broken("the graph is not what the decision makes of the program");
  Planned planned = make_plan(program, *graph, target, origin);
  if (!planned.plan) return broken("the decision does not fit " + target.name + ": " + planned.reason);
  std::optional<Plan> plan = divided(std::move(*planned.plan), c->divisions, target, contract_rule(program));
  if (!plan) return broken("a kernel cannot be divided as the decision says");
  const bool is_given = !c->divisions.empty();
  if (!c->is_searched && !c->is_partitioned) {
    if (is_given) out.straightforward = std::move(*plan);
    return out;
  }
  Verdict support = c->is_partitioned ? support_of_pieces(folding, c->pieces, *graph, verification_seed(program, o))
                                      : support_of(folding, *graph, verification_seed(program, o));
  if (support.kind == Verdict::Kind::kDifferent) return broken("the decision computes something else: " + to_string(support));
  if (support.kind == Verdict::Kind::kUnknown) out.open = support.reason;
  if (c->is_searched) {
    int kernels = 0;
    for (const Node& n : c->structure.graph.nodes()) kernels += std::holds_alternative<Call>(n.op);
    c->structure.kernels = kernels;
    c->structure.worlds = make_worlds(program);
    out.candidates.push_back({c->structure, {}});
    out.choices.alternatives.push_back({0, kernels, plan->predicted_us, c->numbers, 1, ""});
    out.choices.best.push_back({0, c->numbers, *graph, std::move(*plan), is_given});
    return out;
  }
  Instance instance = verify_stitched(program, c->pieces, verification_seed(program, o));
  if (!instance.refusal.empty()) return broken("the decision does not hold: " + instance.refusal);
  out.stitched = Stitched{c->pieces, *graph, std::move(*plan), std::move(support), std::move(instance.claims), is_given};
  return out;
}

std::string decision_key(const Program& program, const Options& o, const std::string& version) {
  return fmt::format("{:016x}", hash_text(program.canonical + "\n" + o.target + "\n" + result_options_line(o) + "\n" + version));
}

/// The lock's entry: nullopt where there is none that can be used.
static Result<std::optional<Recalled>> recall_from_lock(const Folding& folding, const Target& target, const Options& o,
                                                        const std::string& key, std::vector<std::string>& notes) {
  auto lock = read_lock(o.lock);
  if (!lock) return lock.errors();
  const auto at = (*lock)["decisions"].find(key);
  if (at == (*lock)["decisions"].end()) return std::optional<Recalled>();
  if (!at->is_object() || !at->contains("certificate"))
    return broken_certificate(o.lock, "the lock's entry " + key + " has no certificate");
  const Json& certificate = (*at)["certificate"];
  const auto version = certificate.is_object() ? certificate.find("schema_version") : certificate.end();
  if (version != certificate.end() && version->is_number_unsigned() && *version < kCertificateVersion) {
    notes.push_back("the lock's decision was made by an earlier mirage-opt, and is made anew");
    return std::optional<Recalled>();
  }
  auto r = decide_again({o.lock, certificate.dump()}, folding, target, o);
  if (!r) return r.errors();
  r->from = "the lock";
  if (at->contains("told") && is_told((*at)["told"])) r->told = (*at)["told"];
  if (r->open.empty()) return std::optional(std::move(*r));
  notes.push_back("the lock's decision was not used, for nothing settles that it is the program: " + r->open);
  return std::optional<Recalled>();
}

Result<std::optional<Recalled>> recall(const Folding& folding, const Target& target, const Options& o, const std::string& key,
                                       std::vector<std::string>& notes) {
  if (!o.lock.empty())
    if (auto r = recall_from_lock(folding, target, o, key, notes); !r || *r) return r;
  std::error_code ignored;
  const std::string path = cache_path(o, key);
  if (!uses_cache(o) || !std::filesystem::is_regular_file(path, ignored)) return std::optional<Recalled>();
  const auto text = read_file(path, JsonLimits().bytes);
  if (!text) return std::optional<Recalled>();
  auto r = decide_again({path, *text}, folding, target, o);
  if (!r || !r->open.empty()) return std::optional<Recalled>();
  r->from = "the cache";
  touch_in_cache(path);
  if (auto entry = read_json_text(*text, path, DiagCode::kCertificate); entry && entry->contains("told") && is_told((*entry)["told"]))
    r->told = std::move((*entry)["told"]);
  return std::optional(std::move(*r));
}

std::vector<std::string> options_in_lock(const Program& program, const Options& o) {
  std::set<std::string> out;
  if (o.lock.empty()) return {};
  const auto lock = read_lock(o.lock);
  if (!lock) return {};
  const auto text = [](const Json& entry, const char* key) {
    return entry.is_object() && entry.contains(key) && entry[key].is_string() ? entry[key].get<std::string>() : std::string();
  };
  for (const Json& entry : (*lock)["decisions"])
    if (text(entry, "name") == program.name && text(entry, "target") == o.target && text(entry, "options") != result_options_line(o))
      out.insert(text(entry, "options"));
  return {out.begin(), out.end()};
}

static Diagnostics keep_in_cache(const Options& o, const std::string& key, const std::string& text) {
  const std::string path = cache_path(o, key);
  std::error_code error;
  std::filesystem::create_directories(o.cache, error);
  if (const auto there = read_file(path, JsonLimits().bytes); there && *there == text) return {};
  Diagnostics unwritten = write_file(path, text);
  for (Diagnostic& d : unwritten) {   // the result is there all the same, and the next run only takes longer
    d.severity = Severity::kWarning;
    d.text = "the decision was not kept in the cache: " + d.text;
  }
  if (unwritten.empty()) trim_cache(o.cache, o.cache_size << 20, path);
  return unwritten;
}

/// Reads the lock again, with what other processes have added, under the lock of its folder.
static Diagnostics keep_in_lock(const Program& program, const Options& o, const std::string& key, const std::string& certificate,
                                const Json& told) {
  const FolderLock held(std::filesystem::path(o.lock).parent_path().string());
  if (held.is_refused())
    return {{Severity::kError,
             DiagCode::kFileUnwritable,
             {o.lock, 0, 0, 1},
             "cannot write the lock: another process has held its folder for half a minute",
             {}}};
  auto lock = read_lock(o.lock);
  if (!lock) return lock.errors();
  Json& decisions = (*lock)["decisions"];
  Json entry = {{"name", program.name}, {"target", o.target}, {"options", result_options_line(o)}, {"certificate", own_json(certificate)}};
  if (!told.is_null()) entry["told"] = told;
  if (decisions.contains(key) && decisions[key] == entry) return {};
  decisions[key] = std::move(entry);
  using Members = Json::object_t::Container;
  std::map<std::string, Json> sorted;   // by key, so that a lock does not depend on the order of runs
  for (auto& [k, v] : decisions.items()) sorted.emplace(k, std::move(v));
  Json::object_t all;
  // operator[] would look through all of them for each
  for (auto& [k, v] : sorted) static_cast<Members&>(all).emplace_back(k, std::move(v));
  const Json out = {{"schema_version", kLockVersion}, {"tool", "mirage-opt"}, {"decisions", std::move(all)}};
  return write_file(o.lock, out.dump(1) + "\n");
}

Diagnostics keep(const Program& program, const Options& o, const std::string& key, const std::string& certificate, const Json& told) {
  Diagnostics errors;
  if (uses_cache(o)) errors = keep_in_cache(o, key, cache_entry(certificate, told));
  if (o.lock.empty()) return errors;
  const Diagnostics more = keep_in_lock(program, o, key, certificate, told);
  errors.insert(errors.end(), more.begin(), more.end());
  return errors;
}

}  // namespace mirage

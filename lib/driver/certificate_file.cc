// Certificates as JSON and their test. Nothing of the search is used: the witness is made again from the spec, instances from the structure, trials by verify::recheck.
#include "driver/certificate_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/folding.h"
#include "driver/numbers_json.h"
#include "mirage/spec/json_text.h"
#include "mirage/spec/text.h"
#include "mirage/support/file.h"
#include "mirage/support/hash.h"

namespace mirage {

Diagnostic broken_certificate(const std::string& file, const std::string& text) { return {Severity::kError, DiagCode::kCertificate, {file, 0, 0, 1}, text, {}}; }

namespace {

using Json = nlohmann::ordered_json;

/// What could not be read; nlohmann/json's messages begin with the exception's name in brackets.
Diagnostic unreadable(const std::string& file, const std::string& what) {
  const size_t end = what.starts_with("[json.exception") ? what.find("] ") : std::string::npos;
  return broken_certificate(file, "the certificate cannot be read: " + (end == std::string::npos ? what : what.substr(end + 2)));
}

/// 64-bit numbers as hex text: JSON readers round large integers.
std::string hex(uint64_t x) { return fmt::format("{:#018x}", x); }

uint64_t from_hex(const Json& j) {
  const std::string s = j.get<std::string>();
  uint64_t x = 0;
  auto [end, error] = std::from_chars(s.data() + std::min<size_t>(2, s.size()), s.data() + s.size(), x, 16);
  if (!s.starts_with("0x") || error != std::errc() || end != s.data() + s.size()) throw std::runtime_error("'" + s + "' is no hexadecimal number");
  return x;
}

/// An integer as a T. Throws where j is something else or larger: nlohmann/json casts floats and wraps integers.
template <class T> T integer(const Json& j) {
  const bool fits = j.is_number_unsigned() ? std::in_range<T>(j.get<uint64_t>()) : j.is_number_integer() && std::in_range<T>(j.get<int64_t>());
  if (!fits) throw std::runtime_error("an integer was expected, not " + j.dump());
  return j.is_number_unsigned() ? static_cast<T>(j.get<uint64_t>()) : static_cast<T>(j.get<int64_t>());
}
template <class T> std::vector<T> integers(const Json& j) {
  std::vector<T> out;
  for (const Json& x : j) out.push_back(integer<T>(x));
  return out;
}

std::vector<CallNumbers> read_numbers(const Json& j) {
  std::vector<CallNumbers> out;
  for (const Json& n : j) {
    const std::vector<int64_t> grid = integers<int64_t>(n.at("grid_tile"));
    if (grid.size() != 3) throw std::runtime_error("a grid has three axes");
    out.push_back({{grid[0], grid[1], grid[2]}, integer<int64_t>(n.at("loop_tile"))});
  }
  return out;
}

Json proof_json(const Proof& p) { return {{"method", p.method}, {"conditions", p.conditions}, {"terms", p.size}}; }

Proof read_proof(const Json& j) {
  Proof p;
  p.proved = true;
  p.method = j.at("method").get<std::string>();
  p.conditions = j.at("conditions").get<std::vector<std::string>>();
  p.size = integer<int64_t>(j.at("terms"));
  return p;
}

Json evidence_json(const Evidence& e) {
  Json out = {{"p", hex(e.p)}, {"q", hex(e.q)}, {"trials", e.trials}, {"seed", hex(e.seed)}, {"degree", e.degree}, {"log2_bound", e.log2_bound}, {"bound_reason", e.bound_reason},
          {"uninterpreted", e.uninterpreted}, {"is_lax", e.is_lax}};
  if (e.proof.proved) out["proof"] = proof_json(e.proof);
  return out;
}

Evidence read_evidence(const Json& j) {
  Evidence e;
  e.p = from_hex(j.at("p"));
  e.q = from_hex(j.at("q"));
  e.trials = integer<int>(j.at("trials"));
  e.seed = from_hex(j.at("seed"));
  e.degree = integer<int64_t>(j.at("degree"));
  e.log2_bound = j.at("log2_bound").get<double>();
  e.bound_reason = j.at("bound_reason").get<std::string>();
  e.uninterpreted = j.at("uninterpreted").get<std::vector<std::string>>();
  e.is_lax = j.at("is_lax").get<bool>();
  if (j.contains("proof")) e.proof = read_proof(j.at("proof"));
  return e;
}

Json numerics_json(const NumericReport& n) {
  Json cases = Json::array();
  for (const NumericCase& c : n.cases)
    cases.push_back({{"distribution", c.distribution}, {"relative_error", fmt::format("{:.3e}", c.error)}, {"node_by_node", fmt::format("{:.3e}", c.baseline_error)}, {"nan_agree", c.nan_agree}, {"ok", c.ok}});
  return cases;
}

/// As text that does not depend on the order of keys.
std::string sorted_text(const Json& j) { return nlohmann::json(j).dump(); }

Graph read_graph(const Json& j, const std::string& what) {
  auto g = parse_graph(j.get<std::string>(), what);
  if (!g) throw std::runtime_error(what + ": " + g.errors().front().text);
  if (auto law = check_laws(*g)) throw std::runtime_error(what + ": " + *law);
  if (auto wrong = check_extents(*g)) throw std::runtime_error(what + ": " + *wrong);
  return *g;
}

bool same_numbers(const std::vector<CallNumbers>& a, const std::vector<CallNumbers>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const CallNumbers& x, const CallNumbers& y) { return x.grid_tile == y.grid_tile && x.loop_tile == y.loop_tile; });
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

}  // namespace

static Json claims_json(const Program& program, const std::vector<Claim>& claims) {
  Json list = Json::array();
  for (const Claim& c : claims) {
    const Certificate kept = make_certificate(program, c.reference, c.candidate, c.verdict, c.numerics);
    list.push_back({{"variant", c.variant}, {"numbers", numbers_json(c.numbers)}, {"reference", kept.reference}, {"candidate", kept.candidate}, {"evidence", evidence_json(kept.evidence)},
                    {"numerics", numerics_json(kept.numerics)}});
  }
  return list;
}

std::string write_certificate(const Program& program, const Stitched& stitched, const std::vector<std::string>& gates) {
  Json out = {{"schema_version", kCertificateVersion}, {"tool", "mirage-opt"}, {"name", program.name}, {"program_hash", hex(hash_text(program.canonical))}, {"kind", "partitioned"}};
  Json pieces = Json::array();
  for (const Replaced& r : stitched.pieces)
    pieces.push_back({{"leaves", r.piece.leaves}, {"results", r.piece.results}, {"structure", print(r.structure.graph, "structure")}, {"numbers", numbers_json(r.numbers)}});
  out["pieces"] = pieces;
  out["graph"] = print(stitched.graph, "kernel_graph");
  if (stitched.proof.proved) out["proof"] = proof_json(stitched.proof);
  out["claims"] = claims_json(program, stitched.claims);
  out["gates"] = gates;
  return out.dump(1) + "\n";
}

std::string write_certificate(const Program& program, const Structure* structure, const std::vector<CallNumbers>& numbers, const Graph& graph, const std::vector<Claim>& claims, const Proof& proof,
                              const std::vector<std::string>& gates) {
  Json out = {{"schema_version", kCertificateVersion}, {"tool", "mirage-opt"}, {"name", program.name}, {"program_hash", hex(hash_text(program.canonical))}, {"kind", structure ? "searched" : "straightforward"}};
  if (structure) {
    out["structure"] = print(structure->graph, "structure");
    out["numbers"] = numbers_json(numbers);
  } else {
    out["reason"] = "the emitted graph is the spec's own reference graph: there is nothing to compare";
  }
  out["graph"] = print(graph, "kernel_graph");
  if (proof.proved) out["proof"] = proof_json(proof);   // of this graph, at its own size
  out["claims"] = claims_json(program, claims);
  out["gates"] = gates;
  return out.dump(1) + "\n";
}

std::string with_source(const std::string& certificate, const std::string& file, const std::string& text) {
  Json out = own_json(certificate);
  out["source"] = {{"file", file}, {"hash", hex(hash_text(text))}};
  return out.dump(1) + "\n";
}

SourceCheck check_source(const Source& certificate) {
  try {
    const auto read = read_json_text(certificate.text, certificate.name, DiagCode::kCertificate);
    if (!read) return {read.errors(), ""};
    const Json& j = *read;
    if (!j.contains("source")) return {{broken_certificate(certificate.name, "the certificate names no source file")}, ""};
    const std::string file = j["source"].at("file").get<std::string>();
    const uint64_t hash = from_hex(j["source"].at("hash"));
    if (file.empty() || file.find('/') != std::string::npos || file == "." || file == "..") return {{broken_certificate(certificate.name, "the certificate's source is no file beside it")}, ""};
    const std::string path = (std::filesystem::path(certificate.name).parent_path() / file).string();
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return {{}, file + " is not there: the verdict is of the graph, not of a source\n"};
    const auto text = read_file(path);
    if (!text) return {text.errors(), ""};
    if (hash_text(*text) != hash) return {{broken_certificate(path, "the source is not the one that the certificate was written with")}, ""};
    return {{}, file + " is the source that the certificate was written with\n"};
  } catch (const std::exception& e) {
    return {{unreadable(certificate.name, e.what())}, ""};
  }
}

Result<CertificateFile> read_certificate(const Source& source) {
  try {
    const auto read = read_json_text(source.text, source.name, DiagCode::kCertificate);
    if (!read) return read.errors();
    const Json& j = *read;
    if (integer<int>(j.at("schema_version")) != kCertificateVersion) return broken_certificate(source.name, "the certificate's schema version cannot be read by this mirage-opt");
    CertificateFile c;
    c.program_hash = from_hex(j.at("program_hash"));
    c.is_searched = j.at("kind").get<std::string>() == "searched";
    c.is_partitioned = j.at("kind").get<std::string>() == "partitioned";
    if (!c.is_searched && !c.is_partitioned && j.at("kind").get<std::string>() != "straightforward") return broken_certificate(source.name, "the certificate is of no known kind");
    if (!j.at("claims").is_array() || (!c.is_searched && !c.is_partitioned && !j.at("claims").empty())) return broken_certificate(source.name, "the claims are not a list, or there is nothing that they could be about");
    c.graph = read_graph(j.at("graph"), "graph");
    if (c.is_partitioned)
      for (const Json& p : j.at("pieces")) {
        Replaced r;
        r.piece.leaves = integers<ValueId>(p.at("leaves"));
        r.piece.results = integers<ValueId>(p.at("results"));
        r.structure.graph = read_graph(p.at("structure"), "structure");
        r.numbers = read_numbers(p.at("numbers"));
        c.pieces.push_back(std::move(r));
      }
    if (c.is_searched) {
      c.structure.graph = read_graph(j.at("structure"), "structure");
      c.numbers = read_numbers(j.at("numbers"));
    }
    if (j.contains("proof")) c.proof = read_proof(j.at("proof"));
    for (const Json& k : j.at("claims")) {
      Claim claim;
      claim.variant = integer<int>(k.at("variant"));
      if (claim.variant < 0 || claim.variant > 1) return broken_certificate(source.name, "a claim's variant is neither 0 nor 1");
      claim.numbers = read_numbers(k.at("numbers"));
      claim.reference = read_graph(k.at("reference"), "reference");
      claim.candidate = read_graph(k.at("candidate"), "candidate");
      claim.verdict.kind = Verdict::Kind::kEqual;
      claim.verdict.evidence = read_evidence(k.at("evidence"));
      c.claims.push_back(std::move(claim));
      c.rounding.push_back(sorted_text(k.at("numerics")));
    }
    return c;
  } catch (const std::exception& e) {
    return unreadable(source.name, e.what());
  }
}

/// Trials and rounding check of a claim once more; "": they come out as recorded.
static std::string repeat_claim(const Claim& claim, const std::string& rounding, const Program& program) {
  const Verdict v = recheck(claim.reference, claim.candidate, claim.verdict.evidence);
  if (v.kind != Verdict::Kind::kEqual) return to_string(v);
  const NumericReport now = check_numerics(claim.reference, claim.candidate, program, rounding_seed(claim.verdict.evidence));
  if (!now.ok) return "rounding: " + now.reason;
  if (const std::string text = sorted_text(numerics_json(now)); text != rounding) return "rounding errors are others than the certificate claims: " + text;
  return "";
}

/// Whether a piece takes and gives values of the program, as its structure does by number.
static bool fits_piece(const Replaced& r, const Graph& g) {
  auto valid = [&](const std::vector<ValueId>& values) { return std::all_of(values.begin(), values.end(), [&](ValueId v) { return v >= 0 && v < g.num_values(); }); };
  const Graph& s = r.structure.graph;
  if (s.level() != Level::kKernel || !valid(r.piece.leaves) || !valid(r.piece.results) || s.num_results() != static_cast<int>(r.piece.results.size())) return false;
  for (NodeId n : s.inputs()) {
    const auto param = static_cast<size_t>(s.form<Input>(n)->param);
    if (param >= r.piece.leaves.size() || s.dims(s.node(n).first_value).rank() != g.dims(r.piece.leaves[param]).rank()) return false;
  }
  for (NodeId n : s.outputs())   // what is stitched in has the shape of what it replaces
    if (s.dims(s.node(n).operands[0]).rank() != g.dims(r.piece.results[static_cast<size_t>(s.form<Output>(n)->result)]).rank()) return false;
  return true;
}

static Diagnostics check_partitioned(const CertificateFile& c, const Folding& folding, const std::string& file) {
  const Program& program = folding.program;
  std::set<ValueId> results;
  std::vector<std::vector<CallNumbers>> numbers;
  for (const Replaced& r : c.pieces) {
    if (!fits_piece(r, program.graph)) return {broken_certificate(file, "a piece has other inputs or results than the program's values")};
    for (ValueId v : r.piece.results)
      if (!results.insert(v).second) return {broken_certificate(file, "two pieces make one value")};
    numbers.push_back(r.numbers);
  }
  auto graph = stitch(program.graph, c.pieces, numbers);
  if (!graph || !(folding.unfold(*graph) == c.graph)) return {broken_certificate(file, "the graph is not the program with these pieces")};
  if (c.proof.proved)
    if (const Proof now = prove_found(folding, *graph); !(now == c.proof)) return {broken_certificate(file, "the proof is another one than the certificate claims: " + to_string(now))};
  std::array<bool, 2> seen{};
  for (const Claim& claim : c.claims) {
    const std::string which = fmt::format("claim {}", claim.variant);
    std::string refusal;
    if (std::exchange(seen[static_cast<size_t>(claim.variant)], true)) return {broken_certificate(file, which + " is there twice")};
    auto pair = small_pair(program, c.pieces, claim.variant, refusal);
    if (!pair) return {broken_certificate(file, which + ": " + refusal)};
    if (!(claim.reference == pair->reference)) return {broken_certificate(file, which + ": the reference is not the program at small size")};
    if (!same_numbers(claim.numbers, pair->numbers)) return {broken_certificate(file, which + ": its tails are not those of the result")};
    if (!(claim.candidate == pair->candidate)) return {broken_certificate(file, which + ": the candidate is not the program with these pieces at small size")};
    if (const std::string wrong = repeat_claim(claim, c.rounding[static_cast<size_t>(&claim - c.claims.data())], program); !wrong.empty()) return {broken_certificate(file, which + ": " + wrong)};
  }
  if (!seen[0] || !seen[1]) return {broken_certificate(file, "a claim is missing: both small sizes are needed")};
  return {};
}

Diagnostics check_certificate(const CertificateFile& c, const Program& whole, const std::string& file) {
  if (c.program_hash != hash_text(whole.canonical)) return {broken_certificate(file, "the certificate is of another program than '" + whole.name + "'")};
  const Folding folding = fold_verified(whole);
  const Program& program = folding.program;
  if (c.is_partitioned) return check_partitioned(c, folding, file);
  if (!c.is_searched) {
    if (c.graph == folding.unfold(program.graph)) return {};
    return {broken_certificate(file, "the graph is not the spec's reference graph")};
  }
  const std::vector<Type> params = param_types(program);
  if (!fits_program(c.structure.graph, program.graph)) return {broken_certificate(file, "the structure has other inputs or outputs than the program")};
  Structure structure = c.structure;
  structure.worlds = make_worlds(program);
  const std::vector<CallNumbers> extents = split_extents(structure, params);
  if (extents.size() != c.numbers.size()) return {broken_certificate(file, "the numbers do not fit the structure")};
  std::optional<Graph> graph = instantiate(structure, params, c.numbers);
  if (!graph || !(folding.unfold(*graph) == c.graph) || !are_tiles_of(*graph, c.numbers)) return {broken_certificate(file, "the graph is not the structure with these numbers")};
  const Witnesses w = make_witnesses(program);
  if (!w.refusal.empty()) return {broken_certificate(file, "the program has no witness: " + w.refusal)};
  std::array<bool, 2> seen{};
  for (const Claim& claim : c.claims) {
    const std::string which = fmt::format("claim {}", claim.variant);
    if (std::exchange(seen[static_cast<size_t>(claim.variant)], true)) return {broken_certificate(file, which + " is there twice")};
    const Witness& witness = w.variants[static_cast<size_t>(claim.variant)];
    if (!(claim.reference == witness.graph)) return {broken_certificate(file, which + ": the reference is not the program at witness size")};
    if (!same_numbers(claim.numbers, shrink_numbers(extents, c.numbers, split_extents(structure, witness.params)))) return {broken_certificate(file, which + ": its tails are not those of the result")};
    std::optional<Graph> small = instantiate(structure, witness.params, claim.numbers);
    if (!small || !(*small == claim.candidate)) return {broken_certificate(file, which + ": the candidate is not the structure at witness size")};
    if (const std::string wrong = repeat_claim(claim, c.rounding[static_cast<size_t>(&claim - c.claims.data())], program); !wrong.empty()) return {broken_certificate(file, which + ": " + wrong)};
  }
  if (c.proof.proved)
    if (const Proof now = prove_found(folding, *graph); !(now == c.proof)) return {broken_certificate(file, "the proof is another one than the certificate claims: " + to_string(now))};
  if (!seen[0] || !seen[1]) return {broken_certificate(file, "a claim is missing: both witness sizes are needed")};
  return {};
}

}  // namespace mirage

// Certificates as JSON.
#include "driver/evidence/certificate_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/evidence/numbers_json.h"
#include "mirage/spec/json_text.h"
#include "mirage/spec/text.h"
#include "mirage/support/file.h"
#include "mirage/support/hash.h"

#ifndef MIRAGE_VERSION
#define MIRAGE_VERSION "0.1.0"
#endif

namespace mirage {

Diagnostic broken_certificate(const std::string& file, const std::string& text) {
  return {Severity::kError, DiagCode::kCertificate, {file, 0, 0, 1}, text, {}};
}

namespace {

using Json = nlohmann::ordered_json;

/// What could not be read; nlohmann/json's messages begin with the exception's name in brackets.
Diagnostic unreadable(const std::string& file, const std::string& what) {
  const size_t end = what.starts_with("[json.exception") ? what.find("] ") : std::string::npos;
  Diagnostic d = broken_certificate(file, "the certificate cannot be read: " + (end == std::string::npos ? what : what.substr(end + 2)));
  d.notes.push_back({{}, "it is the certificate.json that mirage-opt writes beside a result"});
  return d;
}

/// 64-bit numbers as hex text: JSON readers round large integers.
std::string hex(uint64_t x) { return fmt::format("{:#018x}", x); }

uint64_t from_hex(const Json& j) {
  const std::string s = j.get<std::string>();
  uint64_t x = 0;
  auto [end, error] = std::from_chars(s.data() + std::min<size_t>(2, s.size()), s.data() + s.size(), x, 16);
  if (!s.starts_with("0x") || error != std::errc() || end != s.data() + s.size())
    throw std::runtime_error("'" + s + "' is no hexadecimal number");
  return x;
}

/// An integer as a T. Throws where j is something else or larger: nlohmann/json casts floats and wraps integers.
template <class T> T integer(const Json& j) {
  const bool fits =
      j.is_number_unsigned() ? std::in_range<T>(j.get<uint64_t>()) : j.is_number_integer() && std::in_range<T>(j.get<int64_t>());
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

Json evidence_json(const Evidence& e) {
  Json out = {{"p", hex(e.p)}, {"q", hex(e.q)}, {"trials", e.trials}, {"seed", hex(e.seed)}, {"degree", e.degree},
              {"log2_bound", e.log2_bound}, {"bound_reason", e.bound_reason},
              {"uninterpreted", e.uninterpreted}, {"is_lax", e.is_lax}};
  if (e.proof.proved) out["proof"] = proof_json(e.proof);
  return out;
}

Json numerics_json(const NumericReport& n) {
  Json cases = Json::array();
  for (const NumericCase& c : n.cases)
    cases.push_back({{"distribution", c.distribution}, {"relative_error", fmt::format("{:.3e}", c.error)},
                     {"node_by_node", fmt::format("{:.3e}", c.baseline_error)}, {"nan_agree", c.nan_agree}, {"ok", c.ok}});
  return cases;
}

Graph read_graph(const Json& j, const std::string& what) {
  auto g = parse_graph(j.get<std::string>(), what);
  if (!g) throw std::runtime_error(what + ": " + g.errors().front().text);
  if (auto law = check_laws(*g)) throw std::runtime_error(what + ": " + *law);
  if (auto wrong = check_extents(*g)) throw std::runtime_error(what + ": " + *wrong);
  return *g;
}

}  // namespace

static Json claims_json(const std::vector<Claim>& claims) {
  Json list = Json::array();
  for (const Claim& c : claims)
    list.push_back({{"variant", c.variant}, {"numbers", numbers_json(c.numbers)}, {"reference", print(c.reference, "reference")},
                    {"candidate", print(c.candidate, "candidate")},
                    {"evidence", evidence_json(c.verdict.evidence)}, {"numerics", numerics_json(c.numerics)}});
  return list;
}

std::string write_certificate(const Program& program, const Options& o, const Certified& c) {
  Json options = Json::object();
  for (const auto& [field, value] : result_options(o))
    if (field != "target") options[field] = value;
  Json out = {{"schema_version", kCertificateVersion}, {"tool", "mirage-opt"}, {"version", MIRAGE_VERSION}, {"name", program.name},
              {"program_hash", hex(hash_text(program.canonical))}, {"target", o.target},
              {"options", options}, {"kind", c.structure ? "searched"
                       : c.pieces  ? "partitioned"
                                   : "straightforward"}};
  if (c.structure) {
    out["structure"] = print(c.structure->graph, "structure");
    out["numbers"] = numbers_json(c.numbers);
  } else if (c.pieces) {
    Json pieces = Json::array();
    for (const Replaced& r : *c.pieces)
      pieces.push_back({{"leaves", r.piece.leaves}, {"results", r.piece.results}, {"structure", print(r.structure.graph, "structure")},
                        {"numbers", numbers_json(r.numbers)}});
    out["pieces"] = pieces;
  }
  if (!c.divisions.empty()) out["divisions"] = c.divisions;
  out["graph"] = print(c.graph, "kernel_graph");
  if (c.structure || c.pieces) {   // the program's own graph needs no support
    if (c.support.kind != Verdict::Kind::kEqual) out["open"] = c.support.reason;
    else if (c.support.evidence.proof.proved) out["proof"] = proof_json(c.support.evidence.proof);
    else out["trials"] = evidence_json(c.support.evidence);
  }
  out["claims"] = claims_json(c.claims);
  out["gates"] = c.gates;
  return out.dump(1) + "\n";
}

std::string with_compiler(const std::string& certificate, const std::string& compiler) {
  Json out = own_json(certificate);
  out["built_with"] = compiler;
  return out.dump(1) + "\n";
}

namespace {

Options read_options(const Json& j) {
  std::vector<std::pair<std::string, std::string>> values = {{"target", j.at("target").get<std::string>()}};
  for (const auto& [field, value] : j.at("options").items()) values.emplace_back(field, value.get<std::string>());
  const std::optional<Options> o = options_of(values);
  if (!o) throw std::runtime_error("an option is not known, or has a value that it cannot have");
  return *o;
}

}  // namespace

Result<Options> certificate_options(const Json& j, const std::string& file) {
  try {
    return read_options(j);
  } catch (const std::exception& e) {
    return unreadable(file, e.what());
  }
}

Result<CertificateFile> read_certificate(const Source& source) {
  try {
    const auto read = read_json_text(source.text, source.name, DiagCode::kCertificate);
    if (!read) return read.errors();
    const Json& j = *read;
    if (integer<int>(j.at("schema_version")) != kCertificateVersion)
      return broken_certificate(source.name, "the certificate's schema version cannot be read by this mirage-opt");
    CertificateFile c;
    c.program_hash = from_hex(j.at("program_hash"));
    c.options = read_options(j);
    const std::string kind = j.at("kind").get<std::string>();
    c.is_searched = kind == "searched";
    c.is_partitioned = kind == "partitioned";
    if (!c.is_searched && !c.is_partitioned && kind != "straightforward")
      return broken_certificate(source.name, "the certificate is of no known kind");
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
    if (j.contains("divisions")) c.divisions = j.at("divisions").get<std::vector<std::string>>();
    c.gates = j.at("gates").get<std::vector<std::string>>();
    if (j.contains("built_with")) c.built_with = j.at("built_with").get<std::string>();
    return c;
  } catch (const std::exception& e) {
    return unreadable(source.name, e.what());
  }
}

std::string first_difference(const std::string& recorded, const std::string& fresh, const std::string& file) {
  const auto j = read_json_text(recorded, file, DiagCode::kCertificate);
  if (!j) return j.errors().front().text;
  nlohmann::json a = *j, b = own_json(fresh);   // without the order of keys
  const auto without_told = [](nlohmann::json& x) {
    for (const char* told : {"gates", "built_with"}) x.erase(told);
  };
  for (nlohmann::json* x : {&a, &b}) {
    without_told(*x);
    if (x->contains("points") && (*x)["points"].is_array())   // of a family
      for (nlohmann::json& p : (*x)["points"])
        if (p.is_object() && p.contains("certificate") && p["certificate"].is_object()) without_told(p["certificate"]);
  }
  const nlohmann::json patch = nlohmann::json::diff(a, b);
  return patch.empty() ? "" : patch[0].at("path").get<std::string>();
}

}  // namespace mirage

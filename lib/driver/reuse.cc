// Cache and lock. A cache is a folder of KEY.json, each a certificate; a lock is one file with many of them, sorted by key, to be kept with the sources.
#include "driver/reuse.h"

#include <filesystem>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/certificate_file.h"
#include "driver/folding.h"
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
  if (!std::filesystem::exists(path, ignored)) return Json{{"schema_version", kLockVersion}, {"tool", "mirage-opt"}, {"decisions", Json::object()}};
  JsonLimits limits;
  limits.cut_deep = true;   // the entries of other programs are not looked at
  auto read = read_json_file(path, DiagCode::kCertificate, limits);
  if (!read) return read.errors();
  Json& j = *read;
  if (!j.is_object() || !j.contains("schema_version") || j["schema_version"] != kLockVersion || !j.contains("decisions") || !j["decisions"].is_object())
    return broken_certificate(path, "the file is no lock of this version of mirage-opt");
  return std::move(j);
}

std::string cache_path(const Options& o, const std::string& key) { return (std::filesystem::path(o.cache) / (key + ".json")).string(); }

bool uses_cache(const Options& o) { return !o.cache.empty() && !o.no_cache; }

/// What a certificate says, verified anew. Graphs and plans are the folded program's.
Result<Recalled> decide_again(const Source& certificate, const Program& whole, const Target& target, uint64_t seed) {
  auto c = read_certificate(certificate);
  if (!c) return c.errors();
  if (c->program_hash != hash_text(whole.canonical)) return broken_certificate(certificate.name, "the decision is of another program");
  if (Diagnostics errors = check_certificate(*c, whole, certificate.name); !errors.empty()) return errors;
  Recalled out;
  if (!c->is_searched && !c->is_partitioned) return out;
  const Folding folding = fold_verified(whole);
  const Program& program = folding.program;
  const std::optional<Graph> graph = folding.refold(c->graph);
  if (!graph) return broken_certificate(certificate.name, "the graph is not over the spec's inputs and outputs");
  Planned planned = make_plan(program, *graph, target);
  if (!planned.plan) return broken_certificate(certificate.name, "the decision does not fit " + target.name + ": " + planned.reason);
  if (c->is_searched) {
    int kernels = 0;
    for (const Node& n : c->structure.graph.nodes()) kernels += std::holds_alternative<Call>(n.op);
    c->structure.kernels = kernels;
    out.candidates.push_back({c->structure, {}});
    out.choices.alternatives.push_back({0, kernels, planned.plan->predicted_us, c->numbers, 1, ""});
    out.choices.best.push_back({0, c->numbers, *graph, std::move(*planned.plan)});
    return out;
  }
  Instance instance = verify_stitched(program, c->pieces, seed);
  if (!instance.refusal.empty()) return broken_certificate(certificate.name, "the decision does not hold: " + instance.refusal);
  out.stitched = Stitched{c->pieces, *graph, std::move(*planned.plan), prove_found(folding, *graph), std::move(instance.claims)};
  return out;
}

}  // namespace

std::string decision_key(const Program& program, const Options& o, const std::string& version) {
  return fmt::format("{:016x}", hash_text(program.canonical + "\n" + o.target + "\n" + result_options_line(o) + "\n" + version));
}

Result<std::optional<Recalled>> recall(const Program& program, const Target& target, const Options& o, const std::string& key, uint64_t seed) {
  if (!o.lock.empty()) {
    auto lock = read_lock(o.lock);
    if (!lock) return lock.errors();
    if (auto at = (*lock)["decisions"].find(key); at != (*lock)["decisions"].end()) {
      if (!at->is_object() || !at->contains("certificate")) return broken_certificate(o.lock, "the lock's entry " + key + " has no certificate");
      auto r = decide_again({o.lock, (*at)["certificate"].dump()}, program, target, seed);
      if (!r) return r.errors();
      r->from = "the lock";
      return std::optional(std::move(*r));
    }
  }
  if (uses_cache(o)) {
    std::error_code ignored;
    const std::string path = cache_path(o, key);
    if (!std::filesystem::is_regular_file(path, ignored)) return std::optional<Recalled>();
    const auto text = read_file(path, JsonLimits().bytes);
    if (!text) return std::optional<Recalled>();
    if (auto r = decide_again({path, *text}, program, target, seed)) {
      r->from = "the cache";
      return std::optional(std::move(*r));
    }
  }
  return std::optional<Recalled>();
}

std::vector<std::string> options_in_lock(const Program& program, const Options& o) {
  std::set<std::string> out;
  if (o.lock.empty()) return {};
  const auto lock = read_lock(o.lock);
  if (!lock) return {};
  const auto text = [](const Json& entry, const char* key) { return entry.is_object() && entry.contains(key) && entry[key].is_string() ? entry[key].get<std::string>() : std::string(); };
  for (const Json& entry : (*lock)["decisions"])
    if (text(entry, "name") == program.name && text(entry, "target") == o.target && text(entry, "options") != result_options_line(o)) out.insert(text(entry, "options"));
  return {out.begin(), out.end()};
}

Diagnostics keep(const Program& program, const Options& o, const std::string& key, const std::string& certificate) {
  Diagnostics errors;
  auto add = [&](const Diagnostics& more) { errors.insert(errors.end(), more.begin(), more.end()); };
  if (uses_cache(o)) {
    std::error_code error;
    std::filesystem::create_directories(o.cache, error);
    Diagnostics unwritten = write_file(cache_path(o, key), certificate);
    for (Diagnostic& d : unwritten) {   // the result is there all the same, and the next run only takes longer
      d.severity = Severity::kWarning;
      d.text = "the decision was not kept in the cache: " + d.text;
    }
    add(unwritten);
  }
  if (!o.lock.empty()) {
    auto lock = read_lock(o.lock);
    if (!lock) {
      add(lock.errors());
      return errors;
    }
    Json& decisions = (*lock)["decisions"];
    decisions[key] = {{"name", program.name}, {"target", o.target}, {"options", result_options_line(o)}, {"certificate", own_json(certificate)}};
    using Members = Json::object_t::Container;
    std::map<std::string, Json> sorted;   // by key, so that a lock does not depend on the order of runs
    for (auto& [k, v] : decisions.items()) sorted.emplace(k, std::move(v));
    Json::object_t all;
    for (auto& [k, v] : sorted) static_cast<Members&>(all).emplace_back(k, std::move(v));   // operator[] would look through all of them for each
    const Json out = {{"schema_version", kLockVersion}, {"tool", "mirage-opt"}, {"decisions", std::move(all)}};
    add(write_file(o.lock, out.dump(1) + "\n"));
  }
  return errors;
}

}  // namespace mirage

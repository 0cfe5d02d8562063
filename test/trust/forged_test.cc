// Forged evidence: whatever a lock or a cache entry says, the kernels that come out compute the program. 1 000 forgeries with
// MIRAGE_FULL=1, a slice of them usually.
#include <catch2/catch.hpp>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/evidence/reuse.h"
#include "fuzz/mutated_text.h"
#include "mirage/driver/modes.h"
#include "mirage/support/file.h"
#include "trust/forge.h"

#ifndef MIRAGE_VERSION
#define MIRAGE_VERSION "0.1.0"
#endif

using namespace mirage;
using namespace mirage::test;

namespace {

/// What became of forgeries, by kind.
struct Fates {
  std::map<std::string, std::map<std::string, int>> by_kind;
  std::map<std::string, std::string> judged;   ///< graph -> what is wrong with it
  std::string wrong;
  int tried = 0;

  const std::string& judge(const Honest& h, const std::string& graph) {
    const auto [it, is_new] = judged.try_emplace(h.name + graph);
    if (is_new) it->second = wrong_graph(h, graph);
    return it->second;
  }
  void note(const Honest& h, const Forgery& f, uint64_t seed, const char* way, const CompileResult& r) {
    tried++;
    std::string fate = fmt::format("exit {}", static_cast<int>(r.exit));
    if (r.exit == ExitCode::kOk) {
      const std::string& why = judge(h, nlohmann::json::parse(r.files.at("certificate.json")).at("graph").get<std::string>());
      fate = why.empty() ? "the right kernel" : "A WRONG KERNEL";
      if (!why.empty()) wrong += fmt::format("{} seed {}, {}, {}: {}\n", h.name, seed, way, f.what, why);
    } else if (r.exit != ExitCode::kNotEqual && r.exit != ExitCode::kFrozenMiss) {
      wrong += fmt::format("{} seed {}, {}, {}: exit {}\n", h.name, seed, way, f.what, static_cast<int>(r.exit));
    }
    by_kind[f.what.substr(0, f.what.find_first_of(",("))][fate]++;
  }
  std::string table() const {
    std::string out;
    for (const auto& [kind, fates] : by_kind)
      for (const auto& [fate, n] : fates) out += fmt::format("{:60} {:20} {:5}\n", kind, fate, n);
    return out;
  }
};

CompileResult compile_with(const Honest& h, const Options& o) {
  Trace trace;
  return compile(o, h.spec, trace);
}

}  // namespace

TEST_CASE("whatever a lock or cache entry says, the kernels that come out are right", "[forged]") {
  const char* part = std::getenv("MIRAGE_FORGERIES");   // of a full run, from MIRAGE_SEED on
  const uint64_t count = part ? std::strtoull(part, nullptr, 10) : std::getenv("MIRAGE_FULL") ? 1000 : 10,
                 first = std::getenv("MIRAGE_SEED") ? std::strtoull(std::getenv("MIRAGE_SEED"), nullptr, 10) : 1;
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / fmt::format("mirage_forged.{}", getpid());
  fs::create_directories(folder);
  Fates fates;
  int made = 0;
  for (uint64_t seed = first; made < static_cast<int>(count) && seed < first + 10 * count; seed++) {
    const Honest& h = honest_results()[seed % honest_results().size()];
    const auto f = forge(h, seed);
    if (!f) continue;
    made++;
    Options o = forging_options();
    if (seed % 3) {
      o.lock = (folder / "lock.json").string();
      REQUIRE(write_file(o.lock, lock_with(h, f->certificate)).empty());
    } else {
      o.cache = folder.string();
      o.frozen = true;   // a refused entry would only be searched for anew
      REQUIRE(write_file((folder / (h.key + ".json")).string(), f->certificate).empty());
    }
    if (std::getenv("MIRAGE_FULL") && seed % 25 == 0) o.gate = "emulate";
    fates.note(h, *f, seed, o.lock.empty() ? "cache" : "lock", compile_with(h, o));
    const ModeResult checked = check_certificate({(folder / "c.json").string(), f->certificate}, {h.spec}, {});
    if (checked.exit == ExitCode::kOk && !fates.judge(h, nlohmann::json::parse(f->certificate).at("graph").get<std::string>()).empty())
      fates.wrong += fmt::format("{} seed {}: --check-certificate says that it holds: {}\n", h.name, seed, f->what);
  }
  fs::remove_all(folder);
  if (!fates.wrong.empty() || std::getenv("MIRAGE_FULL")) std::fputs((fates.wrong + fates.table()).c_str(), stderr);
  CHECK(fates.wrong.empty());
  CHECK(made == static_cast<int>(count));
}

TEST_CASE("two forgeries that were believed once: a graph that is wrong only at the program's own size", "[forged]") {
  const auto read = [](const std::string& name) { return *read_file(std::string(MIRAGE_SOURCE_DIR) + "/test/trust/files/" + name); };
  const Source spec{"mask_add.json", read("mask_add.json")};
  const auto of_today = [](nlohmann::ordered_json j) {  // the fields that certificates have now
    j["schema_version"] = 2, j["version"] = MIRAGE_VERSION, j["target"] = "sm_90a", j["options"] = nlohmann::ordered_json::object(),
    j["trials"] = j["claims"][0]["evidence"];
    j.erase("source");
    return j;
  };
  const nlohmann::ordered_json certificate = nlohmann::ordered_json::parse(read("forged_mask_add_certificate.json"));
  for (const auto& j : {certificate, of_today(certificate)})
    CHECK(check_certificate({"certificate.json", j.dump()}, {spec}, {}).exit == ExitCode::kNotEqual);
  Options o;
  o.emit = {"cu", "certificate"};
  o.frozen = true;
  const std::string path = (std::filesystem::temp_directory_path() / fmt::format("mirage_forged_lock.{}.json", getpid())).string();
  o.lock = path;
  nlohmann::ordered_json lock = nlohmann::ordered_json::parse(read("forged_mask_add_lock.json"));
  nlohmann::ordered_json entry = lock["decisions"].begin().value();
  entry["certificate"] = of_today(entry["certificate"]);
  lock["decisions"] = {{decision_key(*parse_spec(spec), o, MIRAGE_VERSION), entry}};   // under the key that this version looks for
  REQUIRE(write_file(path, lock.dump(1)).empty());
  Trace trace;
  const CompileResult r = compile(o, spec, trace);
  std::filesystem::remove(path);
  CHECK(r.exit == ExitCode::kNotEqual);
}

TEST_CASE("a forged checkpoint may cost a result, never its correctness", "[forged]") {
  const Honest& h = honest_results().front();
  const std::string path = (std::filesystem::temp_directory_path() / fmt::format("mirage_forged_checkpoint.{}", getpid())).string();
  Options o = forging_options();
  o.checkpoint = path;
  o.states = 50'000;
  REQUIRE(compile_with(h, o).exit == ExitCode::kOk);
  const std::string honest = *read_file(path);
  const auto read = nlohmann::ordered_json::parse(honest);
  REQUIRE(read.at("steps").size() > 10);
  for (uint64_t seed = 1; seed <= 3; seed++) {
    Rng rng(seed);
    auto steps = read.at("steps");
    for (auto& [key, outcome] : steps.items())   // numbers of the outcomes, and whose outcomes they are
      if (rng.below(3)) outcome = mutated_words(outcome.get<std::string>(), rng.next());
    // as lib/driver/evidence/checkpoint.cc writes it
    std::string text = fmt::format("{{\"schema\": {},\n\"about\": {},\n\"steps\": {{", read.at("schema").dump(), read.at("about").dump());
    const char* before = "\n";
    for (const auto& [key, outcome] : steps.items()) text += before + nlohmann::json(key).dump() + ": " + outcome.dump(), before = ",\n";
    text += "},\n";
    REQUIRE(write_file(path, text + fmt::format("\"sum\": \"{:016x}\"}}\n", hash_text(text))).empty());
    INFO("seed " << seed);
    const CompileResult r = compile_with(h, o);
    const bool is_refused = r.exit != ExitCode::kOk && !r.diagnostics.empty();
    CHECK((is_refused || wrong_graph(h, nlohmann::json::parse(r.files.at("certificate.json")).at("graph").get<std::string>()).empty()));
  }
  std::filesystem::remove(path);
}

TEST_CASE("honest locks are used, and their kernels are right", "[forged]") {
  for (const Honest& h : honest_results()) {
    INFO(h.name);
    const std::string path = (std::filesystem::temp_directory_path() / fmt::format("mirage_honest_again.{}.json", getpid())).string();
    REQUIRE(write_file(path, h.lock).empty());
    Options o = forging_options();
    o.lock = path;
    o.frozen = true;
    const CompileResult r = compile_with(h, o);
    std::filesystem::remove(path);
    REQUIRE(r.exit == ExitCode::kOk);
    CHECK(r.files.at(h.name + ".cu") == h.cuda);
    CHECK(nlohmann::json::parse(h.certificate).at("kind") != "straightforward");   // else there is little to forge
    CHECK(wrong_graph(h, nlohmann::json::parse(h.certificate).at("graph").get<std::string>()).empty());
  }
}

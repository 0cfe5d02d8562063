// Programs that nobody draws by chance, a line each in test/data/adversarial.jsonl with what it is about: their straightforward kernels, as
// the driver plans them (folded), in the field and in floats. Searched ones: `random_programs --files`.
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "emulate/helpers.h"
#include "random/judge.h"

using namespace mirage;
using namespace mirage::test;

TEST_CASE("adversarial programs: kernels are right on the CPU", "[adversarial]") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  std::ifstream file(MIRAGE_SOURCE_DIR "/test/data/adversarial.jsonl");
  REQUIRE(file);
  std::vector<Prepared> plans;
  int programs = 0;
  for (std::string line; std::getline(file, line);) {
    const auto spec = nlohmann::json::parse(line);
    PreparedSpec p = prepare_text(spec["name"].get<std::string>() + " (" + spec["description"].get<std::string>() + ")", line,
                                  fmt::format("a{}_", programs++), 0, true);
    INFO(line << "\n" << p.refusal);
    REQUIRE_FALSE(p.plans.empty());
    for (Prepared& x : p.plans) plans.push_back(std::move(x));
  }
  REQUIRE(programs >= 40);
  std::vector<const EmulationCase*> all;
  for (const Prepared& p : plans) all.push_back(&p.with);
  const EmulationLibrary library = build_emulation(all, compiler, emulation_folder());
  INFO(library.error);
  REQUIRE(library.error.empty());
  for (const Prepared& p : plans) {
    const Judged j = judge(p, library.path);
    INFO(p.name);
    CHECK(j.wrong == "");
    CHECK_FALSE(j.slow);
  }
}

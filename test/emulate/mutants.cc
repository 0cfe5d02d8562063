// Kernel mutants: emitted kernels with one mistake each must not pass the gate. MIRAGE_MUTANTS=N sets how many per plan (default 2; up to
// 5, which .ci/run asks for, of four specs, more than that of all), MIRAGE_SEED which; survivors are printed.
#include <fmt/format.h>

#include "driver/gate/self_test.h"
#include "emulate/helpers.h"

using namespace mirage;
using namespace mirage::test;

constexpr size_t kQuick = 2, kSlice = 5;

TEST_CASE("kernels with a mistake do not pass the gate") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  setenv("MIRAGE_CACHE", emulation_folder().c_str(), 1);
  const size_t each = std::getenv("MIRAGE_MUTANTS") ? static_cast<size_t>(atoi(std::getenv("MIRAGE_MUTANTS"))) : kQuick;
  int mutants = 0, caught = 0, changed = 0, survive = 0, harmless = 0, same_code = 0;
  const char* only = std::getenv("MIRAGE_SPEC");
  const bool is_slice = !only && each <= kSlice;
  for (const std::string& file : spec_files()) {
    const std::string spec = std::filesystem::path(file).stem();
    if (is_slice && spec != "rms_norm_linear" && spec != "lora" && spec != "odd" && spec != "n_trans") continue;
    const Target target = *find_target("sm_90a");
    const Program p = program_of(*read_file(file), spec);
    for (const NamedPlan& n : plans_of(p, target, 300'000, 0, true)) {
      if (const char* plan = std::getenv("MIRAGE_PLAN"); plan && n.name != plan) continue;
      const SelfTest t = run_self_test(p, n.plan, target, compiler, each,
                                       std::getenv("MIRAGE_SEED") ? static_cast<uint64_t>(atoll(std::getenv("MIRAGE_SEED"))) : 1);
      INFO(spec << " " << n.name << ": " << to_string(t));
      if (std::getenv("MIRAGE_TABLE")) fmt::print("{} {}: {}", spec, n.name, to_string(t));
      CHECK(t.error.empty());
      CHECK(t.survivors.empty());
      if (t.mutants > 0) CHECK(t.caught + t.refused > 0);
      caught += t.caught;
      changed += t.mutants - t.refused - t.same_code;
      mutants += t.mutants;
      same_code += t.same_code;
      survive += static_cast<int>(t.survivors.size());
      for (const auto& [reason, which] : t.harmless) harmless += static_cast<int>(which.size());
    }
  }
  if (std::getenv("MIRAGE_TABLE"))
    fmt::print("{} mutants: {} the same code, {} harmless with a reason, {} survive\n", mutants, same_code, harmless, survive);
  CHECK(survive == 0);
  CHECK(caught * 2 > changed);   // the others are harmless, each with its reason
}

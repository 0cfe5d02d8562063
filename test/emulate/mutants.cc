// Kernel mutants: emitted kernels with one mistake each must not pass the gate. MIRAGE_MUTANTS=N sets how many per plan (default 6); survivors are printed.
#include <fmt/format.h>

#include "driver/self_test.h"
#include "emulate/helpers.h"

using namespace mirage;
using namespace mirage::test;

TEST_CASE("kernels with a mistake do not pass the gate") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  setenv("MIRAGE_CACHE", emulation_folder().c_str(), 1);
  const size_t each = std::getenv("MIRAGE_MUTANTS") ? static_cast<size_t>(atoi(std::getenv("MIRAGE_MUTANTS"))) : 6;
  int mutants = 0, survive = 0, harmless = 0;
  const char* only = std::getenv("MIRAGE_SPEC");
  for (const std::string spec : {"rms_norm_linear", "lora", "gated_mlp", "odd", "n_trans", "layer_norm_linear", "softmax_attention", "mlp_gelu", "gqa_b8", "qk_norm", "mqa", "layer_norm", "moe"}) {
    if ((only && spec != only) || (!only && each <= 6 && spec != "rms_norm_linear" && spec != "lora" && spec != "odd" && spec != "n_trans")) continue;
    const Target target = *find_target("sm_90a");
    const Program p = program_of(*read_file(std::string(MIRAGE_SOURCE_DIR) + "/specs/" + spec + ".json"), spec);
    for (const NamedPlan& n : plans_of(p, target, 300'000, 0, true)) {
      const SelfTest t = run_self_test(p, n.plan, target, compiler, each, 1);
      INFO(spec << " " << n.name << ": " << to_string(t));
      if (std::getenv("MIRAGE_TABLE")) fmt::print("{} {}: {}", spec, n.name, to_string(t));
      CHECK(t.error.empty());
      CHECK(t.caught + t.refused > 0);
      mutants += t.mutants;
      survive += static_cast<int>(t.survivors.size());
      for (const auto& [reason, which] : t.harmless) harmless += static_cast<int>(which.size());
    }
  }
  INFO(survive << " of " << mutants << " survive");
  if (std::getenv("MIRAGE_TABLE")) fmt::print("{} mutants, {} harmless with a reason, {} survive\n", mutants, harmless, survive);
  CHECK((survive + harmless) * 2 < mutants);
}

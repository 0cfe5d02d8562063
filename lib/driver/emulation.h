// Emitted kernels against the muGraph on the CPU (lib/emulate): builds the emulation with the host's compiler, draws inputs, runs the kernels and compares with ir's evaluator, in a finite field
// (bit for bit) or in floats (against fp64 within a bound).
#pragma once
#include <string>
#include <vector>
#include "driver/toolchain.h"
#include "mirage/codegen/module.h"
#include "mirage/emulate/emulate.h"
#include "mirage/ir/program.h"
#include "mirage/plan/plan.h"

namespace mirage {

/// g++ or clang++: $CXX, then the usual names on PATH. "": there is none.
std::string find_host_compiler();

/// A plan with the texts of its kernels, ready to run.
struct EmulationCase {
  Program program;
  Plan plan;
  std::vector<EmulatedKernel> kernels;
};
/// Names of kernels begin with `prefix`, so that several cases can share one library.
EmulationCase make_emulation_case(const Program&, const Plan&, const std::vector<KernelText>&, const std::string& prefix = "");

/// Compiles the cases into one library `folder`/`name`.so. A library of the same text that is there already is taken as it is.
struct EmulationLibrary { std::string path, error; double compile_seconds = 0; };
EmulationLibrary build_emulation(const std::vector<const EmulationCase*>& cases, const std::string& compiler, const std::string& folder, const ProcessLimits& = {});

enum class EmulationMode : uint8_t {
  kField,      ///< finite-field elements, results equal bit for bit
  kFloat,      ///< random floats, within the bound of the types
  kLarge,      ///< floats of large magnitude
  kInteger,    ///< small integers, whose sums are exact
};
const char* mode_name(EmulationMode);

struct EmulationOutcome {
  bool ok = false;
  bool carried = true;                      ///< kField: false if the program nests exponentials, which no field carries; no verdict on values then
  std::string reason;                       ///< not ok: the first finding or disagreement
  std::vector<Finding> findings;
  int64_t elements = 0, compared = 0;       ///< of results; kField skips those with a zero denominator
  int64_t threads = 0, accesses = 0;
  double seconds = 0, worst = 0;            ///< worst error in units of the bound
};
EmulationOutcome run_emulation(const EmulationCase&, const std::string& library, EmulationMode, uint64_t seed, const EmulateOptions& = {});

}  // namespace mirage

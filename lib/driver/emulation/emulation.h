// Emitted kernels against the muGraph on the CPU (lib/emulate): builds the emulation with the host's compiler, draws inputs, runs the
// kernels and compares with ir's evaluator, in a finite field (bit for bit) or in floats (against fp64 within a bound).
#pragma once
#include <functional>
#include <string>
#include <vector>
#include "driver/toolchain/toolchain.h"
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
  std::string runtime;   ///< the device library that they call; empty: codegen's
};
/// Names of kernels begin with `prefix`, so that several cases can share one library.
EmulationCase make_emulation_case(const Program&, const Plan&, const std::vector<KernelText>&, const std::string& prefix = "");

/// Compiles the cases, which share a device library, into one library `folder`/`name`.so. A library of the same text that is there already
/// is taken if it is ours, no one else may write it, and it is whole; else it is made anew.
struct EmulationLibrary { std::string path, error; double compile_seconds = 0; bool was_there = false; };
EmulationLibrary build_emulation(const std::vector<const EmulationCase*>& cases, const std::string& compiler, const std::string& folder,
                                 const ProcessLimits& = {}, UnsetFill = UnsetFill::kPattern);
/// Builds one within two minutes of the compiler's processor time and has `run(path)` use it, which says whether it could be loaded: built
/// once more where it was there and cannot be. Returns why there is none, or "".
std::string with_emulation(const std::vector<const EmulationCase*>& cases, const std::string& compiler, const std::string& folder,
                           UnsetFill, const std::function<bool(const std::string& path)>& run);

enum class EmulationMode : uint8_t {
  kField,      ///< finite-field elements, results equal bit for bit
  kFloat,      ///< random floats, within the bound of the types
  kLarge,      ///< floats of large magnitude
  kInteger,    ///< small integers, whose sums are exact
};
const char* mode_name(EmulationMode);

struct EmulationOutcome {
  bool ok = false;
  /// kField: false if the program nests exponentials, which no field carries; no verdict on values then
  bool carried = true;
  /// kField: no inputs were found at which no denominator is zero; undefined elements were left out
  bool undefined = false;
  std::string reason;                       ///< not ok: the first finding or disagreement
  std::vector<Finding> findings;
  bool loaded = true;                       ///< false: the library cannot be used
  bool ran = true;                          ///< false: it could not run, which says nothing of the kernels (`reason`: why)
  int64_t elements = 0, compared = 0;       ///< of results
  int64_t wrong = 0;                        ///< in floats: elements, and results as a whole, that are out of bounds
  bool by_range = false;                    ///< in floats: right, but not without what the range of types explains
  int64_t left_out = 0;                     ///< in floats: at all inputs that were drawn these left the range of their types
  int64_t threads = 0, accesses = 0;
  EmulationTrace trace;
  double seconds = 0, worst = 0;            ///< worst error in units of the bound
  /// of floats from fp64, in what the bounds are made of (emulation_floats.cc)
  struct Distance { double units = 0, norm_units = 0, spreads = 0, norm_spreads = 0, flips = 0; };
  Distance distance;
};
/// What a run in floats began with and left, for who compares it with hardware.
struct EmulationRecord {
  std::function<double(size_t input, int64_t element)> draw;    ///< elements of inputs, values of their type, instead of random ones
  std::vector<EmulatedBuffer> buffers;
  std::vector<std::vector<unsigned char>> after;
};
/// In floats: what the range of types excuses is made once more where variables without a value hold zeros, in a library of the case alone
/// that is built beside the first one; other bits are a finding.
EmulationOutcome run_emulation(const EmulationCase&, const std::string& library, EmulationMode, uint64_t seed, const EmulateOptions& = {},
                               EmulationRecord* record = nullptr);

}  // namespace mirage

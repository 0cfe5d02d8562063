// Measured choice (--measure): the best plans by the model are built, checked and timed on this machine's GPU, each in a process of its
// own, and the fastest one that is right wins. Stands between the choice of numbers and the decision; without a GPU the model decides
// alone.
#pragma once
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>
#include "driver/decide/numbers.h"
#include "driver/toolchain/toolchain.h"
#include "mirage/codegen/module.h"

namespace mirage {

constexpr int kStraightforward = -1, kPieces = -2;   ///< a case's graph where no structure of the search is

/// One library that may win.
struct MeasureCase {
  std::string what;                 ///< which structure, numbers and divisions
  int choice = -1;                  ///< index into Choices::best; kStraightforward, kPieces
  Plan plan;
};

/// What became of one case. `cold`, `warm`: every sample, microseconds per call, first look and rounds in one list.
struct MeasureRow {
  std::string what;
  double predicted_us = 0;
  bool ok = false;
  std::string reason;               ///< not ok: why; ok and not timed to the end: why it was left behind
  std::vector<double> cold, warm;
  double first_us = 0;              ///< median of the first look
  double final_us = 0;              ///< median over the rounds; 0: no finalist
};

struct Measurement {
  std::vector<MeasureRow> rows;     ///< one per case, in the order of the cases
  std::vector<size_t> order;        ///< finalists that stayed right, the fastest first
  std::string stopped;              ///< why cases were left out; "" if none was
  double seconds = 0;
};

struct MeasureLimits {
  size_t patience = 8;              ///< so many cases in a row that are slower than the best end the first look, after at least 8
  double slower = 1.02;             ///< than the best: what counts as slower there
  double finalist = 1.05;           ///< within this of the best: timed again
  size_t finalists = 4;
  int rounds = 3;
  double seconds = 60;              ///< of the whole measurement; what runs then still has half as much
  double build_seconds = 60, run_seconds = 30;   ///< of one compiler, one case
};

/// The cases of a compilation, in the order of predicted time: the structures of `choices` (the best few) with the divisions of each of
/// their kernels, and the straightforward plan, which is never left out.
/// pieces: the plan of a program that was cut, or nullptr.
std::vector<MeasureCase> measure_cases(const Choices& choices, const Plan& straightforward, const Plan* pieces, const Program&,
                                       const Target&, size_t most);

struct MeasureJob {
  const Program& program;
  const Target& target;
  ModuleOptions module;
  int threads = 1;                  ///< compilers at a time
  bool warm = false;                ///< judge by inputs that are in the L2 cache
  const std::atomic<bool>* interrupted = nullptr;
};
/// Builds and times. A case that does not build, fails its check, crashes or hangs is reported in its row and cannot win.
Measurement measure_cases_on_device(const std::vector<MeasureCase>&, const MeasureJob&, const Toolchain&, const MeasureLimits&);

/// The part of that which decides, apart from processes: `look(case, round)` runs one case (round 0: the first, quick look; 1...: a new
/// seed each) and returns its samples or why it failed.
struct Samples { bool ok = false; std::string reason; std::vector<double> cold, warm; };
Measurement run_measurement(const std::vector<MeasureCase>&, bool warm, const MeasureLimits&,
                            const std::function<Samples(size_t, int)>& look, const std::function<double()>& seconds);

}  // namespace mirage

// The choice of numbers (docs/planning.md, "Strategies"): tile sizes for verified structures by the cost model.
// Bounded by counts, never by time, so that the result does not depend on the machine it runs on.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include "driver/decide/candidates.h"
#include "mirage/ir/target.h"
#include "mirage/plan/call_plans.h"
#include "mirage/plan/plan.h"
#include "mirage/support/trace.h"

namespace mirage {

/// The cheapest plan that was found for a structure.
struct Choice {
  size_t candidate = 0;                     ///< index into the candidates
  std::vector<CallNumbers> numbers;
  Graph graph;                              ///< the structure over the real extents
  Plan plan;
  bool is_given = false;                    ///< recalled, and measured once: taken whatever the model predicts
};

/// What became of one candidate, for the report.
struct Alternative {
  int64_t rank = 0;
  int kernels = 0;
  std::optional<double> predicted_us;
  std::vector<CallNumbers> numbers;
  int64_t plans = 0;
  std::string reason;
  /// where nothing fits: (strategy, its reason) and how many of the plans met it, the most frequent first
  std::vector<std::pair<std::pair<std::string, std::string>, int64_t>> refusals = {};
};

struct Choices {
  std::vector<Choice> best;                 ///< at most one per candidate, cheapest first; ties: fewer kernels, then lower rank
  std::vector<Alternative> alternatives;    ///< one per candidate, in candidate order
};

struct NumberLimits { int64_t plans_per_candidate = 96; int64_t plans = 480; };

/// So many plans of a graph as are worth their time, at most `most`: a plan takes time with the square of the nodes.
int64_t most_plans(const Graph&, int64_t most);

/// known (may be null): what is known of calls, for programs of this one's contract_rule.
Choices choose_numbers(const std::vector<Candidate>&, const Program&, const Target&, const NumberLimits&, int threads, Trace&,
                       CallPlans* known = nullptr);

/// Tiles worth trying for an extent, ascending: powers of two, the extent itself, and divisors that fill the device evenly.
std::vector<int64_t> tile_choices(int64_t extent, int num_sms);

}  // namespace mirage

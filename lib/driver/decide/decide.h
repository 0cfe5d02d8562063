// What is emitted, and why: the cheapest verified structure that holds and passes the gate, pieces, or the straightforward library; then
// what measuring says. Between the choice of numbers and the emitter; used by compile(), which owns what the decision points into.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "driver/decide/candidates.h"
#include "driver/evidence/checkpoint.h"
#include "driver/proof/folding.h"
#include "driver/gate/gate.h"
#include "driver/measure/measure.h"
#include "driver/decide/numbers.h"
#include "driver/pieces/partition.h"
#include "mirage/codegen/module.h"
#include "mirage/driver/compile.h"
#include "mirage/plan/hints.h"

namespace mirage {

/// What the search of the whole program, or a lock or cache in its place, came to.
struct Found {
  SearchReport report;
  Witnesses witnesses;
  std::vector<Candidate> candidates;         ///< verified, in the order of the search
  std::string judge;                         ///< what --prune=z3 asked
  std::vector<std::string> dropped;          ///< why candidates were rejected or have no verdict, the first few
};

/// What is emitted: a chosen structure with its numbers, or the reference itself.
struct Decision {
  const Choice* choice = nullptr;            ///< nullptr: the straightforward library, or pieces
  std::vector<Claim> claims;
  /// what it rests on that the chosen graph is the program, at the sizes of the program; nothing for the program's own graph
  Verdict support;
  std::string why;
  std::vector<std::string> gates;            ///< what the kernels passed, or why they were not asked
  GateResult::Kind gated = GateResult::Kind::kNotRun;
  bool gated_earlier = false;   ///< GateResult::earlier
  std::optional<Partitioned> partition;        ///< where the search of the whole led to nothing, or to several kernels
  std::map<size_t, std::string> refused;     ///< per candidate: why it was not used although it is predicted to be faster
  bool is_divided = false;                   ///< its kernels are divided as measuring found fastest, now or before
  std::optional<Plan> tuned;                 ///< the plan with its kernels divided as measurement found fastest
  const Stitched* stitched() const { return partition && partition->result ? &*partition->result : nullptr; }
  const Graph& graph(const Program& p) const { return choice ? choice->graph : stitched() ? stitched()->graph : p.graph; }
  const Plan& plan(const Plan& straightforward) const {
    return tuned ? *tuned : choice ? choice->plan : stitched() ? stitched()->plan : straightforward;
  }
};

using PlanGate = std::function<GateResult(const Plan&, Decision&)>;
/// Whether the kernels of a plan may win; what they passed is noted in the decision.
/// `gated`: what was run before, since what measuring finds fastest is often the model's own plan.
GateResult run_gate(const Program& program, const Plan& plan, const Target& target, const Options& o, Decision& d,
                    std::vector<std::string>& not_done, std::map<std::string, GateResult>& gated);

/// The cheapest choice that beats the straightforward plan and holds when it is verified once more with its own tails.
Decision decide(const Choices& choices, Found& found, const Folding& folding, const Plan& straightforward, const PlanGate& gate,
                const Options& o, std::vector<std::string>& not_done);

/// Takes a stitched program if it is surely faster than what is decided so far and passes the gate.
void use_pieces(Decision& d, Stitched stitched, const Plan& straightforward, const PlanGate& gate, std::vector<std::string>& not_done);

/// SearchReport::stop_reason begins with it where the whole has no small form, so that only its pieces are searched; the reason follows.
inline const std::string kInPieces = "in pieces only: ";

/// Cuts the program into pieces where the search of the whole led to nothing or to several kernels. whole: that search, which has had its
/// seconds of --budget.
void try_pieces(Decision& d, const Folding& folding, const Target& target, const Plan& straightforward, const PlanGate& gate,
                const Options& o, Checkpoint* checkpoint, std::vector<std::string>& not_done, Trace& trace, const Listener& listener,
                const SearchReport& whole, SearchMemory* memory = nullptr);

RunHints run_hints(const Options& o);
ModuleOptions module_options(const Options& o);

/// What may be timed, and what came of it.
struct Measured {
  std::vector<MeasureCase> cases;
  std::optional<Measurement> result;
};
/// The cases, and, with --measure and a GPU, their times.
Measured measure(const Decision& d, const Choices& choices, const Plan& straightforward, const Program& program, const Target& target,
                 const Options& o, Trace& trace, const Listener& listener);

/// The fastest measured library that also passes what any library must pass replaces the model's decision.
void decide_by_measurement(Decision& d, const Measured& m, const Choices& choices, Found& found, const Folding& folding,
                           const PlanGate& gate, const Options& o, std::vector<std::string>& not_done);

/// Of results and their checks. Never the seed that the search's own fingerprints came from.
uint64_t verification_seed(const Program& p, const Options& o);

inline void tell(const std::function<void(const std::string&)>& f, const std::string& s) {
  if (f) f(s);
}
inline bool is_interrupted(const Listener& l) { return l.interrupted && l.interrupted->load(); }

}  // namespace mirage

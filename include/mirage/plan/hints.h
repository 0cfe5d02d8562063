// What the user says about how a library is called (--cold, --warm, --pdl), written into a finished plan. Stands behind make_plan and
// before emission.
#pragma once
#include <vector>
#include "mirage/plan/plan.h"

namespace mirage {

struct RunHints {
  bool cold = false;   ///< weights are not in the L2 cache when a call begins and need not stay: evict them first
  bool warm = false;   ///< they are, and the next call wants them there: no eviction hint
  bool pdl = false;    ///< programmatic dependent launch (sm_90 and later)
  bool any() const { return cold || warm || pdl; }
};

/// The plan with these hints. Results do not change.
Plan with_hints(Plan, const RunHints&);

/// Buffers of the plan (inputs) that a kernel with pdl reads before what is ahead of it on the stream has finished: the weights of stream
/// kernels. Ascending; empty without pdl.
std::vector<int> read_early(const Plan&);
/// Whether this kernel may do so: it is a stream kernel with pdl, and every weight is an input of the program.
bool reads_early(const KernelPlan&, const Plan&);
/// Whether this kernel, which is started early behind another one of its library (KernelPlan::early), may ask for its weights before it
/// waits: all are inputs of the program, which that one does not write.
bool weights_early(const KernelPlan&, const Plan&);
/// Whether the kernel behind this one is started early, so that this one lets it.
bool releases(const KernelPlan&, const Plan&);

}  // namespace mirage

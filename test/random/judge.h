// Random specs through the whole pipeline (search with a small budget, verify, choose numbers, plan for two targets, emit) and onto the
// CPU: kernels in the field and in floats against the spec's own graph in fp64. And the reducer of what fails.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "driver/emulation/emulation.h"
#include "random/spec.h"

namespace mirage::test {

/// A plan of a spec, ready to be emulated. Several with different `prefix`es share a library.
struct Prepared { std::string name; EmulationCase with; };

/// What came of preparing a spec: its distinct plans, or why there is none (the reader's words). An assertion ends the process, as
/// everywhere.
struct PreparedSpec { std::vector<Prepared> plans; std::string refusal; };
PreparedSpec prepare(const RandomSpec&, const std::string& prefix, int64_t states = 20'000);
/// The same of a spec as text. folds: dimensions that go together are one first, as the driver does.
PreparedSpec prepare_text(const std::string& name, const std::string& spec, const std::string& prefix, int64_t states, bool folds);

/// kinds of kernels of a plan: block, region, stream, attend.
std::array<int, 4> kernel_kinds(const Plan&);

/// What is wrong with a prepared plan; "": nothing. carried: whether the field could say something about it. slow: a run did not end in
/// time, which says nothing.
/// by_range: not without what the range of types explains
struct Judged { std::string wrong; bool carried = true, slow = false, by_range = false;
  EmulationOutcome::Distance distance; };
Judged judge(const Prepared&, const std::string& library, double seconds = 20);

/// Whether the spec fails on its own, and how; "": it does not (or is no spec).
std::string failure(const RandomSpec&, const std::string& compiler, const std::string& folder);

/// The smallest spec that the reducer finds with a failure of the same kind (the words before the first colon): later nodes become results,
/// nodes and inputs of no use go, extents shrink, strides go. At most `attempts` tries.
RandomSpec reduce_spec(RandomSpec, const std::string& compiler, const std::string& folder, int attempts = 200);

}  // namespace mirage::test

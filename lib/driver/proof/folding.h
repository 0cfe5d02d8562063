// The folded program (mirage/ir/fold.h) as compile() uses it: joined only where that is verified. Search, plans and emulation work on the
// folded program; what the caller sees (ABI, graph, certificate, --verify) speaks of the caller's.
#pragma once
#include <string>

#include "mirage/ir/fold.h"
#include "mirage/verify/verify.h"

namespace mirage {

struct Folding : Folded {
  /// that the folded program is the caller's, at the sizes of the spec; not proved: it was tested at small sizes only. Empty where nothing
  /// is joined
  Proof proof;
};
/// Folds, and compares the result with the program: by proof, or else in the fields at two small sizes. What neither supports is left as it
/// is.
Folding fold_verified(const Program&);

/// That a graph over the folded program's inputs and outputs, unfolded, is the caller's program: the proof for the folded one together with
/// that of the folding.
Proof prove_found(const Folding&, const Graph& found);

/// A proof for the folded program together with that of the folding; not proved if the folding is not.
Proof with_folding(const Folding&, Proof);

/// settle() with the work that a compilation spends on it, a second or two.
Verdict settle_at_own_size(const Graph& a, const Graph& b, uint64_t seed);

/// What the equality of a found graph with the caller's program rests on, at the program's own size: that proof, or trials there whose
/// draws cover its conditions. Unknown, with what was seen: neither.
Verdict support_of(const Folding&, const Graph& found, uint64_t seed);

/// --explain: which tensors have joined dimensions, "" if none has.
std::string explain_folding(const Folding&);

}  // namespace mirage

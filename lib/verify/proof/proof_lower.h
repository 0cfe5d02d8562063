// Graphs as closed expressions over named indices: what each output element is, in terms of elements of the inputs (docs/verification.md).
#pragma once
#include <vector>

#include "mirage/ir/graph.h"
#include "verify/proof/proof_terms.h"

namespace mirage::verify {

/// A value as a function of its position: `element` is over Terms::formal(dimension, extent). A dimension with a clip exists only where
/// base + position < extent.
struct Clip {
  bool on = false;
  IdxId base = 0;
  int64_t extent = 0;
  friend bool operator==(const Clip&, const Clip&) = default;
};
struct Lowered {
  PolyId element = kPoison;
  Dims dims;
  std::vector<Clip> clips;   ///< one per dimension
};

/// What lower() should not look through, and what it met, by value of the kernel-level graph.
struct Cuts {
  std::vector<bool> at;             ///< values that become atoms of their own where they are used
  std::vector<PolyId> elements;     ///< out: every value, before it was cut
};

/// The results of a kernel-level graph by number. An element is kPoison where Terms::reason() says why. exact: whether every tiling met
/// divides its dimension.
std::vector<Lowered> lower(const Graph& g, Terms& terms, bool* exact, Cuts* cuts = nullptr);

}  // namespace mirage::verify

// Rank: the order in which a graph's operators may be added, so that every graph is generated once (OSDI'25 section 4.1, corrected in
// docs/search.md): input indices sorted descending, then the ordered inputs, then the operator. Strictly increasing ranks leave exactly one
// order of every DAG, because the descending list puts an operator behind all that could have been added before its newest input was there.
// Commutative operators take their inputs in ascending order only.
#pragma once
#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <span>

namespace mirage::search {

struct Rank {
  std::array<int16_t, 4> descending{-1, -1, -1, -1};   ///< -1 behind the last: a list is below its extensions
  std::array<int16_t, 4> ordered{-1, -1, -1, -1};
  int op = -1;                                     ///< operator and attributes, numbered by the caller
  friend auto operator<=>(const Rank&, const Rank&) = default;
};

inline Rank make_rank(std::span<const int> inputs, int op) {
  Rank r;
  for (size_t i = 0; i < inputs.size() && i < 4; i++) r.ordered[i] = r.descending[i] = static_cast<int16_t>(inputs[i]);
  std::sort(r.descending.begin(), r.descending.end(), std::greater<>());
  r.op = op;
  return r;
}

}  // namespace mirage::search

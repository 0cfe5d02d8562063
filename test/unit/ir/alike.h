// Whether two graphs compute the same, for the tests of rewritings.
#pragma once
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include <catch2/catch.hpp>

#include "mirage/ir/eval.h"
#include "mirage/support/hash.h"

namespace mirage::test {

/// Evaluates both in doubles on the same random inputs in [-2, 2) and requires results of the same dimensions and numbers, to 1e-9 of the
/// larger of one and the value. may_be_undefined: infinities and NaN may stand where the first graph has them, too.
inline void require_alike(const Graph& g, const Graph& other, uint64_t seed, bool may_be_undefined = false) {
  std::vector<Tensor<double>> params(static_cast<size_t>(g.num_params()));
  Rng rng(seed);
  for (NodeId n : g.inputs()) {
    auto& t = params[static_cast<size_t>(g.form<Input>(n)->param)];
    t.dims = g.dims(g.node(n).first_value);
    for (int64_t i = 0; i < t.dims.elements(); i++) t.data.push_back(4 * rng.uniform() - 2);
  }
  DoubleAlgebra a;
  const std::span<const Tensor<double>> given(params);
  const auto want = evaluate(g, given, a), got = evaluate(other, given, a);
  REQUIRE(want.size() == got.size());
  for (size_t r = 0; r < want.size(); r++) {
    REQUIRE(want[r].dims == got[r].dims);
    for (size_t i = 0; i < want[r].data.size(); i++) {
      const double x = want[r].data[i], y = got[r].data[i];
      const bool same = std::fabs(x - y) <= 1e-9 * std::max(1.0, std::fabs(x)) ||
                        (may_be_undefined && ((std::isnan(x) && std::isnan(y)) || x == y));
      if (!same) FAIL("result " << r << " element " << i << ": " << x << ", " << y);
    }
  }
}

}  // namespace mirage::test

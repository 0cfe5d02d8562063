// Which values are positions, behind repeats, transposes and reshapes: against the elements themselves.
#include <catch2/catch.hpp>
#include <numeric>

#include "mirage/ir/eval.h"
#include "mirage/support/hash.h"
#include "plan/passes/positions.h"

using namespace mirage;

namespace {

/// A value and its elements.
struct Numbers { ValueId v; Dims dims; std::vector<int64_t> of; };

/// Index of element e.
std::vector<int64_t> index_of(const Dims& dims, int64_t e) {
  std::vector<int64_t> out(static_cast<size_t>(dims.rank()));
  for (int d = dims.rank() - 1; d >= 0; d--) out[static_cast<size_t>(d)] = e % dims[d], e /= dims[d];
  return out;
}
int64_t place(const Dims& dims, const std::vector<int64_t>& index) {
  int64_t e = 0;
  for (int d = 0; d < dims.rank(); d++) e = e * dims[d] + index[static_cast<size_t>(d)];
  return e;
}

Numbers iota(Builder& b, int dim, const Dims& dims) {
  Numbers x{b.add(Iota{dim, dims}, {}), dims, {}};
  for (int64_t e = 0; e < dims.elements(); e++) x.of.push_back(index_of(dims, e)[static_cast<size_t>(dim)]);
  return x;
}
Numbers repeated(Builder& b, const Numbers& x, int dim, int64_t count) {
  Numbers y{b.add(Repeat{dim, count}, {x.v}), x.dims, {}};
  y.dims[dim] *= count;
  for (int64_t e = 0; e < y.dims.elements(); e++) {
    std::vector<int64_t> i = index_of(y.dims, e);
    i[static_cast<size_t>(dim)] %= x.dims[dim];
    y.of.push_back(x.of[static_cast<size_t>(place(x.dims, i))]);
  }
  return y;
}
Numbers transposed(Builder& b, const Numbers& x, Rng& rng) {
  std::vector<int8_t> perm(static_cast<size_t>(x.dims.rank()));
  std::iota(perm.begin(), perm.end(), int8_t{0});
  for (size_t i = perm.size(); i > 1; i--) std::swap(perm[i - 1], perm[rng.below(i)]);
  Transpose t;
  Numbers y{-1, x.dims, {}};
  for (size_t d = 0; d < perm.size(); d++) t.perm[d] = perm[d], y.dims[static_cast<int>(d)] = x.dims[perm[d]];
  y.v = b.add(t, {x.v});
  for (int64_t e = 0; e < y.dims.elements(); e++) {
    const std::vector<int64_t> i = index_of(y.dims, e);
    std::vector<int64_t> from(i.size());
    for (size_t d = 0; d < perm.size(); d++) from[static_cast<size_t>(perm[d])] = i[d];
    y.of.push_back(x.of[static_cast<size_t>(place(x.dims, from))]);
  }
  return y;
}
Numbers reshaped(Builder& b, const Numbers& x, Rng& rng) {
  Dims to;
  for (int64_t left = x.dims.elements(); left > 1 || to.rank() == 0;) {
    std::vector<int64_t> factors;
    for (int64_t f = 1; f <= left; f++) if (left % f == 0 && (f > 1 || rng.below(4) == 0)) factors.push_back(f);
    if (factors.empty()) factors.push_back(left);
    const int64_t f = to.rank() == 5 ? left : factors[rng.below(factors.size())];
    to.push_back(f);
    left /= f;
  }
  return {b.add(Reshape{to}, {x.v}), to, x.of};
}

}  // namespace

TEST_CASE("positions behind repeats, transposes and reshapes") {
  Builder b(Level::kKernel);
  const Numbers x = iota(b, 1, {1, 5}), y = repeated(b, x, 0, 4);
  const ValueId merged = b.add(Reshape{{20, 1}}, {y.v}), wide = repeated(b, x, 1, 3).v,
                split = b.add(Reshape{{4, 5}}, {iota(b, 0, {20}).v});
  b.add_output(0, merged, DType::kF32);
  b.add_output(1, wide, DType::kF32);
  b.add_output(2, split, DType::kF32);
  const Graph g = std::move(b).finish();
  const auto is = [&](ValueId v, int dim, int64_t div, int64_t period) {
    const std::optional<Position> p = position_of(g, v);
    return p && p->dim == dim && p->div == div && p->period == period;
  };
  CHECK(is(x.v, 1, 1, 0));
  CHECK(is(y.v, 1, 1, 0));
  CHECK(is(merged, 0, 1, 5));
  CHECK(is(wide, 1, 1, 5));
  CHECK_FALSE(position_of(g, split));   // 5 i + j
}

TEST_CASE("what is called a position is one") {
  Rng rng(7);
  int found = 0;
  for (int trial = 0; trial < 2000; trial++) {
    Builder b(Level::kKernel);
    Dims dims;
    for (int d = 0; d < 1 + static_cast<int>(rng.below(3)); d++) dims.push_back(1 + static_cast<int64_t>(rng.below(6)));
    Numbers x = iota(b, static_cast<int>(rng.below(static_cast<uint64_t>(dims.rank()))), dims);
    for (int n = 0; n < 4; n++) {
      const uint64_t kind = rng.below(3);
      const int dim = static_cast<int>(rng.below(static_cast<uint64_t>(x.dims.rank())));
      x = kind == 0   ? repeated(b, x, dim, 1 + static_cast<int64_t>(rng.below(3)))
          : kind == 1 ? transposed(b, x, rng)
                      : reshaped(b, x, rng);
    }
    b.add_output(0, x.v, DType::kF32);
    const Graph g = std::move(b).finish();
    const std::optional<Position> p = position_of(g, x.v);
    if (!p) continue;
    found++;
    INFO(print(g));
    bool all = true;
    for (int64_t e = 0; e < x.dims.elements(); e++) {
      const int64_t i = index_of(x.dims, e)[static_cast<size_t>(p->dim)] / p->div;
      all = all && x.of[static_cast<size_t>(e)] == (p->period ? i % p->period : i);
    }
    CHECK(all);
  }
  CHECK(found > 600);
}

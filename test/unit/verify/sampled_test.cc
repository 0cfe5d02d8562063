// Sampled elements are those of the whole evaluation, bit for bit; what is too much is said before it is computed; what differs at the
// program's own size is found there.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

#include "mirage/spec/text.h"
#include "mirage/support/hash.h"
#include "mirage/verify/sampled.h"
#include "unit/verify/graphs.h"
#include "verify/bounded.h"
#include "verify/field.h"
#include "verify/reals.h"
#include "verify/sampled.h"

using namespace mirage;
using namespace mirage::test;
using namespace mirage::verify;

namespace {

Graph read(const std::string& text) {
  auto g = parse_graph(text, "test");
  REQUIRE(g);
  REQUIRE_FALSE(check_laws(*g));
  return *g;
}

template <class A, class F> std::vector<Tensor<typename A::Value>> whole(const Graph& g, F& input, A& a) {
  std::vector<Tensor<typename A::Value>> params;
  const std::vector<Type> types = input_types(g, g);
  for (size_t i = 0; i < types.size(); i++) {
    Tensor<typename A::Value> x(types[i].dims, {});
    for (size_t e = 0; e < x.data.size(); e++) x.data[e] = input(static_cast<int>(i), static_cast<int64_t>(e));
    params.push_back(std::move(x));
  }
  return evaluate<A>(g, params, a);
}

bool same(const FieldValue& x, const FieldValue& y) { return x.p == y.p && x.q == y.q; }
bool same(double x, double y) { return std::memcmp(&x, &y, sizeof x) == 0 || (std::isnan(x) && std::isnan(y)); }

/// Every element by itself, all at once, and a few of them.
template <class A, class Make, class F> void check_samples(const Graph& g, Make&& make, F& input, uint64_t seed) {
  A a = make();
  auto in = [&](int p, int64_t e) { return input(a, p, e); };
  const auto want = whole(g, in, a);
  std::vector<Sample> all;
  for (size_t r = 0; r < want.size(); r++)
    for (size_t e = 0; e < want[r].data.size(); e++) all.push_back({static_cast<int>(r), static_cast<int64_t>(e)});
  Rng rng(seed);
  std::vector<std::vector<Sample>> lists{all};
  for (int i = 0; i < 6; i++) {
    std::vector<Sample> few;
    for (int k = 0; k <= i; k++) few.push_back(all[rng.below(all.size())]);
    lists.push_back(few);
  }
  for (const auto& list : lists) {
    A b = make();
    const auto got = evaluate_sampled(g, list, [&](int p, int64_t e) { return input(b, p, e); }, b);
    REQUIRE(got.refusal.empty());
    REQUIRE(got.values.size() == list.size());
    for (size_t i = 0; i < list.size(); i++)
      if (!same(got.values[i], want[static_cast<size_t>(list[i].result)].data[static_cast<size_t>(list[i].element)])) {
        INFO(print(g) << "result " << list[i].result << " element " << list[i].element);
        FAIL("another value");
      }
  }
}

void check_samples(const Graph& g, uint64_t seed) {
  const std::vector<Type> types = input_types(g, g);
  const Primes primes = draw_primes(seed);
  auto field_input = [&](FieldAlgebra& a, int p, int64_t e) {
    return a.input(types[static_cast<size_t>(p)].dtype, static_cast<uint64_t>(p) << 44 | static_cast<uint64_t>(e));
  };
  check_samples<FieldAlgebra>(g, [&] { return FieldAlgebra(primes, seed, {}); }, field_input, seed);
  auto real_input = [&](DoubleAlgebra&, int p, int64_t e) {
    return types[static_cast<size_t>(p)].dtype == DType::kBool ? static_cast<double>((e * 7 + p) % 3 != 0)
                                                               : std::sin(static_cast<double>(e + 100 * p));
  };
  check_samples<DoubleAlgebra>(g, [] { return DoubleAlgebra{}; }, real_input, seed);
}

const char* const kBlocks[] = {
    // two grid axes, a loop with a tail, an epilogue, tails along both axes
    R"(kernel { %x = input 0 : f16[5,7] %w = input 1 : f16[7,6] %g = input 2 : f16[6]
  %h = exp (mul %x 0.5)
  %o, %s = call grid(2,3,1) loop(3) (%h, %w, %g) {
    %x = input 0 grid(0,-,-) loop(1) : real[3,3] %w = input 1 grid(-,1,-) loop(0) : f16[3,2] %g = input 2 grid(-,0,-) loop(-) : f16[2]
    %a = accum.sum (matmul %x %w)
    %q = accum.sum (reduce.sum 1 (square %x))
    output 0 (mul (div %a (sqrt %q)) %g) grid(0,1,-)
    output 1 (mul %a (exp %g)) grid(0,1,-)
  }
  %r = reduce.sum 0 (tanh (add %o (mul 2 %s)))
  output 0 %r : f16 output 1 (transpose(1,0) %o) : f16
})",
    // batches, a grid over batches and rows, a maximum over the loop, two calls in a row
    R"(kernel { %x = input 0 : f16[4,3,8] %y = input 1 : f16[1,8,5]
  %m = call grid(4,1,1) loop(4) (%x) {
    %x = input 0 grid(0,-,-) loop(2) : f16[1,3,2]
    output 0 (accum.max (reduce.max 2 %x)) grid(0,-,-)
  }
  %d = sub %x %m
  %o = call grid(2,2,1) loop(2) (%d, %y) {
    %d = input 0 grid(0,1,-) loop(2) : real[2,2,4] %y = input 1 grid(-,-,-) loop(1) : f16[1,4,5]
    output 0 (accum.sum (matmul %d %y)) grid(0,1,-)
  }
  output 0 (reshape [12,5] %o) : f16 output 1 (slice 1 1:3 %m) : f16
})",
};

}  // namespace

TEST_CASE("sampled elements of block graphs are those of the whole evaluation") {
  uint64_t seed = 3;
  for (const char* text : kBlocks) check_samples(read(text), seed++);
}

TEST_CASE("sampled elements of kernel operators are those of the whole evaluation") {
  for (uint64_t seed = 1; seed <= 60; seed++) {
    Rng rng(seed);
    Net k;
    std::vector<ValueId> v{
        k.in(0, {4, 6}),   k.in(1, {6, 4}), k.in(2, {2, 3, 6}, DType::kF32), k.in(3, {1, 6}), k.in(4, {4, 6}, DType::kBool),
        k.iota(1, {4, 6}), k.c(1.5)};
    const auto any = [&] { return v[rng.below(v.size())]; };
    for (int i = 0; i < 14; i++) {
      const ValueId x = any(), y = any(), z = any();
      const Dims d = k.b.graph().dims(x);
      const int dim = d.rank() ? static_cast<int>(rng.below(static_cast<uint64_t>(d.rank()))) : 0;
      std::vector<std::pair<Op, std::vector<ValueId>>> ops{{Map{MapFn::kAdd}, {x, y}}, {Map{MapFn::kMul}, {x, y}}, {Map{MapFn::kTanh}, {x}},
                                                           {Map{MapFn::kMax}, {x, y}}, {Map{MapFn::kLess}, {x, y}},
                                                           {Map{MapFn::kWhere}, {x, y, z}},
                                                           {MatMul{}, {x, y}}, {MatMul{}, {x, y}}, {Reduce{ReduceFn::kSum, dim, 0}, {x}},
                                                           {Reduce{ReduceFn::kMax, dim, d.rank() && d[dim] % 2 == 0 ? 2 : 1}, {x}},
                                                           {Repeat{dim, 2}, {x}}, {Concat{dim}, {x, y}}, {Map{MapFn::kCastBF16}, {x}}};
      if (d.rank()) {
        ops.push_back({Slice{dim, d[dim] / 2, d[dim], 1 + static_cast<int64_t>(rng.below(2))}, {x}});
        ops.push_back({Reshape{{d.elements()}}, {x}});
        if (d.elements() % 6 == 0) ops.push_back({Reshape{{d.elements() / 6, 6}}, {x}});
        Transpose t;
        for (int a = 0; a < d.rank(); a++) t.perm[static_cast<size_t>(a)] = static_cast<int8_t>((a + 1) % d.rank());
        ops.push_back({t, {x}});
        ops.push_back({t, {x}});
      }
      auto& [op, operands] = ops[rng.below(ops.size())];
      if (d.elements() > 200) continue;
      if (auto w = k.b.try_add(op, operands)) v.push_back(*w);
    }
    for (size_t i = v.size() - std::min<size_t>(3, v.size()); i < v.size(); i++)
      k.out(v[i], k.b.graph().type(v[i]).dtype == DType::kBool ? DType::kBool : DType::kReal);
    check_samples(remove_dead(k.b.graph()), seed);
  }
}

TEST_CASE("views of views are followed, and copied where they are many") {
  Net k;
  ValueId v = k.exp(k.in(0, {6, 10}));
  for (int i = 0; i < 30; i++) v = i % 3 == 0 ? k.swap(v) : i % 3 == 1 ? k.repeat(v, 0, 2) : k.slice(v, 0, 1, k.b.graph().dims(v)[0], 2);
  check_samples(k.out(v, DType::kReal).done(), 5);
}

TEST_CASE("a stable flash loop gives its value whatever its running maximum is, sample by sample") {
  const Graph g = read(R"(kernel { %q = input 0 : f16[6,4] %k = input 1 : f16[4,7] %v = input 2 : f16[7,5]
  %o = call grid(2,1,1) loop(3) (%q, %k, %v) {
    %q = input 0 grid(0,-,-) loop(-) : f16[3,4] %k = input 1 grid(-,-,-) loop(1) : f16[4,3] %v = input 2 grid(-,-,-) loop(0) : f16[3,5]
    %s = matmul %q %k
    %m = running (reduce.max 1 %s)
    %e = exp (sub %s %m)
    output 0 (div (accum.sum rescaled 1 (matmul %e %v) %m) (accum.sum rescaled 1 (reduce.sum 1 %e) %m)) grid(0,-,-)
  }
  output 0 %o : f16
})");
  const Primes primes = draw_primes(9);
  FieldAlgebra a(primes, 9, {}), b(primes, 9, {});
  const auto input_of = [](FieldAlgebra& f) {
    return [&f](int p, int64_t e) { return f.input(DType::kF16, static_cast<uint64_t>(p) << 44 | static_cast<uint64_t>(e)); };
  };
  auto input = input_of(a);
  const auto want = whole(g, input, a);
  const std::vector<Sample> samples{{0, 29}, {0, 17}};
  const auto got = evaluate_sampled(g, samples, input_of(b), b);
  REQUIRE(got.values.size() == 2);
  for (size_t i = 0; i < 2; i++) CHECK(b.same(got.values[i], want[0].data[static_cast<size_t>(samples[i].element)]));
}

TEST_CASE("what would be too much is refused before it is computed") {
  Net k;
  const ValueId x = k.in(0, {1 << 12, 1 << 12}), y = k.in(1, {1 << 12, 1 << 12});
  const Graph g = k.out(k.mm(k.exp(k.mm(x, y)), k.exp(y))).done();
  const std::vector<Sample> one{{0, 77}}, none;
  const auto in = [](int, int64_t) { return 1.0; };
  DoubleAlgebra a;
  CHECK(plan_samples(g, one, {2e9, 1e9}).refusal.empty());
  CHECK(evaluate_sampled(g, one, in, a, {1e6, 1e9}).refusal.find("1.0e+06 operations") != std::string::npos);
  CHECK(evaluate_sampled(g, one, in, a, {1e9, 1e4}).refusal.find("MB") != std::string::npos);
  CHECK(evaluate_sampled(g, none, in, a).values.empty());
}

TEST_CASE("a difference at the program's own size is found there") {
  const auto big = [](int64_t limit, double factor) {   // columns from `limit` on are lost, at a size that nobody evaluates whole
    Net k;
    const ValueId x = k.in(0, {1 << 14, 1 << 14}, DType::kF32), y = k.in(1, {1 << 14, 1 << 14}, DType::kF32);
    const ValueId z = k.mm(x, y), i = k.iota(1, {1 << 14, 1 << 14});
    return k.out(k.where(k.less(i, k.c(static_cast<double>(limit))), k.mul(z, k.c(factor)), k.c(0)), DType::kF32).done();
  };
  const SampledComparison c = sampled_difference(big(1 << 14, 1), big(10000, 1), 7);
  REQUIRE(c.difference);
  CHECK(c.elements == 32);
  CHECK(c.difference->where == "output 0 [16383,16383]");
  CHECK_FALSE(sampled_difference(big(10000, 1), big(10000, 1), 7).difference);
  CHECK(sampled_difference(big(10000, 1), big(10000, 1 + 1e-9), 7).difference);
}

TEST_CASE("doubles that know their rounding: noise is no difference, a difference is one") {
  BoundedAlgebra a;
  const Bounded x{0.1, 0}, y{0.3, 0}, huge{1e17, 0};
  CHECK_FALSE(clearly_differ(a.sub(a.add(x, huge), huge), x));                    // all of x is lost
  CHECK_FALSE(clearly_differ(a.mul(a.add(x, y), y), a.add(a.mul(x, y), a.mul(y, y))));
  CHECK(clearly_differ(a.mul(x, y), a.mul(x, Bounded{0.3 * (1 + 1e-9), 0})));
  CHECK_FALSE(clearly_differ(a.exp(a.add(Bounded{800, 0}, x)), x));              // overflow: an infinity that is none
  CHECK_FALSE(clearly_differ(x, a.exp(a.add(Bounded{800, 0}, x))));
  CHECK_FALSE(clearly_differ(x, a.sqrt(Bounded{-1, 0})));                        // only one is defined: no difference between numbers
  CHECK_FALSE(clearly_differ(x, a.sqrt(a.sub(a.add(x, y), Bounded{0.4, 0}))));    // the sign of a rounding error
  const Bounded half{0.5, 0}, lost = a.mul(a.exp(Bounded{-800, 0}), half);   // 0, and the bound of it must not be rounded to 0 as well
  CHECK_FALSE(clearly_differ(a.div(lost, a.exp(Bounded{-600, 0})), Bounded{0.5 * std::exp(-200), 0}));
  CHECK_FALSE(clearly_differ(a.div(half, a.exp(Bounded{800, 0})), Bounded{1e-12, 0}));   // one over what has left the range is no 0
  const Bounded undecided = a.less(a.add(x, y), Bounded{0.4, 0});
  CHECK_FALSE(clearly_differ(a.select(undecided, Bounded{1, 0}, Bounded{2, 0}), Bounded{2, 0}));
  CHECK(clearly_differ(a.div(x, Bounded{0, 0}), a.constant(0)) == false);          // where the program is not finite nothing counts
  CHECK_FALSE(clearly_differ(a.constant(0), a.div(x, Bounded{0, 0})));
}

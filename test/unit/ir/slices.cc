// Slices of packed projections and packed inputs: the same numbers, and what becomes of programs people write.
#include <catch2/catch.hpp>

#include "ir/fold/slices.h"
#include "mirage/ir/fold.h"
#include "mirage/spec/text.h"
#include "mirage/support/hash.h"
#include "unit/ir/alike.h"
#include "unit/ir/fold_programs.h"

using namespace mirage;
using namespace mirage::test;

namespace {

/// Something packed, sliced in places that often are borders of what it is reshaped to, and something of the parts.
Graph random_program(uint64_t seed) {
  Rng rng(seed);
  Builder b(Level::kKernel);
  auto pick = [&](std::vector<int64_t> of) { return of[rng.below(of.size())]; };
  auto at = [&](ValueId v) { return b.graph().dims(v); };
  int params = 0;
  const int64_t rows = pick({1, 3, 70}), inner = pick({1, 2, 4, 8}), packed = 8 * pick({2, 3, 4});
  ValueId y;
  if (rng.below(3)) {
    const ValueId x = b.add_input(params++, {DType::kF16, {rows, 5}}),
                  w = b.add_input(params++, {DType::kF16, rng.below(2) ? Dims{5, packed} : Dims{packed, 5}});
    y = b.add(MatMul{}, {x, at(w)[0] == 5 ? w : b.add([] { Transpose t; t.perm[0] = 1; return t; }(), {w})});
    if (rng.below(2)) y = b.map(MapFn::kAdd, {y, b.add_input(params++, {DType::kF32, rng.below(2) ? Dims{packed} : Dims{rows, 1}})});
    if (rng.below(3) == 0) y = b.map(MapFn::kSquare, {y});
  } else {
    y = b.add_input(params++, {DType::kF16, rng.below(3) ? Dims{rows, packed} : Dims{rows, packed / 8, 8}});
  }
  int results = 0;
  std::vector<ValueId> parts;
  int64_t from = 0;
  const int dim = 1;
  if (rng.below(4) == 0) {   // rows of weights, for each of a batch
    const bool batch = rng.below(2);
    const ValueId x = b.add_input(params++, {DType::kF16, batch ? Dims{2, 5, 72} : Dims{1, 5, 72}}),
                  w = b.add_input(params++, {DType::kF16, rng.below(2) ? Dims{packed, 5} : Dims{5, packed}});
    const ValueId turned = at(w)[1] == 5 ? w : b.add([] { Transpose t; t.perm[0] = 1; return t; }(), {w});
    y = b.add(MatMul{}, {b.add(Reshape{Dims{1, packed, 5}}, {turned}), x});
    if (rng.below(2)) y = b.map(MapFn::kAdd, {y, b.add_input(params++, {DType::kF32, {packed, 1}})});
  }
  const int64_t extent = at(y)[dim];
  while (from < extent) {
    const int64_t step = extent == packed ? pick({8, 8, 16, inner, 3}) : 1, to = std::min(extent, from + step);
    parts.push_back(b.add(Slice{dim, from, to, 1}, {y}));
    from = rng.below(9) ? to : to + 1;
  }
  if (rng.below(6) == 0) b.add_output(results++, y, DType::kF32);
  for (ValueId p : parts) {
    const Dims d = at(p);
    ValueId v = p;
    if (rng.below(2) && d[1] % inner == 0 && !(d.rank() == 3 && extent == packed))
      v = b.add(Reshape{d.rank() == 2 ? Dims{d[0], d[1] / inner, inner} : Dims{d[0], d[1] * d[2]}}, {v});
    if (rng.below(3) == 0) v = b.add(Reshape{Dims{1, at(v).elements() / at(v).back(), at(v).back()}}, {v});
    if (rng.below(3) == 0 && d == at(parts[0])) v = b.map(MapFn::kMul, {p, b.map(MapFn::kNeg, {parts[0]})});
    b.add_output(results++, rng.below(2) ? v : b.add(Reduce{ReduceFn::kSum, at(v).rank() - 1, 0}, {v}), DType::kF32);
  }
  return remove_dead(b.graph());   // shapes of parts that something else is made of
}

std::string text(const char* body) {
  const auto g = parse_graph(std::string("kernel k { ") + body + " }");
  INFO((g ? "" : g.errors().front().text));
  REQUIRE(g.ok());
  const auto out = settled_slices(*g);
  return out ? print(*out, "k") : "";
}
std::string printed(const char* body) {
  const auto g = parse_graph(std::string("kernel k { ") + body + " }");
  INFO((g ? "" : g.errors().front().text));
  REQUIRE(g.ok());
  return print(*g, "k");
}

}  // namespace

TEST_CASE("programs compute the same with their slices moved, folded or not") {
  int changed = 0, products = 0;
  for (uint64_t seed = 0; seed < 4000; seed++) {
    const Graph g = random_program(seed);
    const auto out = settled_slices(g);
    if (!out) continue;
    INFO("seed " << seed << "\n" << print(g) << print(*out));
    REQUIRE_FALSE(check_laws(*out));
    changed++;
    auto count = [](const Graph& x) {
      return std::count_if(x.nodes().begin(), x.nodes().end(), [](const Node& n) { return std::holds_alternative<MatMul>(n.op); });
    };
    products += count(*out) > count(g);
    const Folded f = fold(program_around(g, nullptr));
    REQUIRE(f.folds);
    require_alike(g, *out, seed);
    require_alike(g, f.unfold(f.program.graph), seed);
  }
  INFO(changed << " changed, " << products << " with products of their own");
  REQUIRE(changed > 600);
  REQUIRE(products > 200);
}

TEST_CASE("packed projections of a batch, and of channels ahead of places") {
  const char* glu = "output 0 (mul (silu (slice 2 0:48 %y)) (slice 2 48:96 %y)) : f16";
  CHECK(text((std::string("%x = input 0 : f16[2,65,64] %w = input 1 : f16[64,96] %y = matmul %x (reshape [1,64,96] %w) ") + glu).c_str()) ==
        printed("%x = input 0 : f16[2,65,64] %w = input 1 : f16[64,96] %a = reshape [1,64,48] (slice 1 0:48 %w) %p = matmul %x %a "
                "%q = silu %p %b = reshape [1,64,48] (slice 1 48:96 %w) %r = matmul %x %b output 0 (mul %q %r) : f16"));
  // Weights stored [out, in].
  CHECK_FALSE(text((std::string("%x = input 0 : f16[2,65,64] %w = input 1 : f16[96,64] %y = matmul %x (transpose (0,2,1) (reshape "
                                "[1,96,64] %w)) ") + glu).c_str()).empty());
  const char* rows = "output 0 (mul (silu (slice 1 0:48 %y)) (slice 1 48:96 %y)) : f16";
  CHECK(text((std::string("%x = input 0 : f16[2,64,320] %w = input 1 : f16[96,64] %y = matmul (reshape [1,96,64] %w) %x ") + rows)
                 .c_str()) ==
        printed("%x = input 0 : f16[2,64,320] %w = input 1 : f16[96,64] %a = reshape [1,48,64] (slice 0 0:48 %w) %p = matmul %a %x "
                "%q = silu %p %b = reshape [1,48,64] (slice 0 48:96 %w) %r = matmul %b %x output 0 (mul %q %r) : f16"));
  // Rows of the larger operand stay one product.
  CHECK(text("%x = input 0 : f16[4096,64] %w = input 1 : f16[64,96] %y = matmul %x %w output 0 (mul (silu (slice 0 0:2048 %y)) (slice 0 "
             "2048:4096 %y)) : f16")
            .empty());
}

TEST_CASE("packed projections are products of their own, packed inputs are cut along one dimension") {
  CHECK(text("%x = input 0 : f16[8,64] %w = input 1 : f16[64,96] %y = matmul %x %w output 0 (slice 1 0:64 %y) : f16 output 1 (slice 1 "
             "64:96 %y) : f16") == printed("%x = input 0 : f16[8,64] %w = input 1 : f16[64,96] %a = slice 1 0:64 %w %p = matmul %x %a "
                                           "output 0 %p : f16 %b = slice 1 64:96 %w %q = matmul %x %b output 1 %q : f16"));
  // Somebody reads all of it; parts that overlap; many rows; lines that vectors do not begin at.
  CHECK(text("%x = input 0 : f16[8,64] %w = input 1 : f16[64,96] %y = matmul %x %w output 0 (slice 1 0:64 %y) : f16 output 1 (slice 1 "
             "64:96 %y) : f16 output 2 %y : f16")
            .empty());
  CHECK(text("%x = input 0 : f16[8,64] %w = input 1 : f16[64,96] %y = matmul %x %w output 0 (slice 1 0:64 %y) : f16 output 1 (slice 1 "
             "32:96 %y) : f16")
            .empty());
  CHECK(text("%x = input 0 : f16[65,64] %w = input 1 : f16[64,96] %y = matmul %x %w output 0 (slice 1 0:64 %y) : f16 output 1 (slice 1 "
             "64:96 %y) : f16")
            .empty());
  CHECK(text("%x = input 0 : f16[8,64] %w = input 1 : f16[64,96] %y = matmul %x %w output 0 (slice 1 0:60 %y) : f16 output 1 (slice 1 "
             "60:96 %y) : f16")
            .empty());
  // Equal parts that are put together elementwise, whatever the rows.
  CHECK_FALSE(text("%x = input 0 : f16[65,64] %w = input 1 : f16[64,96] %y = matmul %x %w output 0 (mul (silu (slice 1 0:48 %y)) (slice 1 "
                   "48:96 %y)) : f16")
                  .empty());
  CHECK(text("%y = input 0 : f16[7,96] %a = reshape [7,4,8] (slice 1 32:64 %y) output 0 (transpose (1,0,2) %a) : f16") ==
        printed("%y = input 0 : f16[7,96] %b = reshape [7,12,8] %y %a = slice 1 4:8 %b output 0 (transpose (1,0,2) %a) : f16"));
  CHECK(text("%y = input 0 : f16[7,3,4,8] %a = reshape [7,4,8] (slice 1 1:2 %y) output 0 (exp %a) : f16") ==
        printed("%y = input 0 : f16[7,3,4,8] %b = reshape [7,12,8] %y %a = slice 1 4:8 %b output 0 (exp %a) : f16"));
}

// Repetitions that only serve the batch of a product are left out: the same numbers at the same addresses, and what becomes of repeat_kv as
// people write it.
#include <catch2/catch.hpp>

#include "ir/fold/unrepeat.h"
#include "mirage/ir/fold.h"
#include "mirage/spec/text.h"
#include "mirage/support/hash.h"
#include "unit/ir/alike.h"
#include "unit/ir/fold_programs.h"

using namespace mirage;
using namespace mirage::test;

namespace {

int repeats(const Graph& g) {
  int n = 0;
  for (const Node& x : g.nodes()) n += std::holds_alternative<Repeat>(x.op) || std::holds_alternative<Concat>(x.op);
  return n;
}

/// Keys on their way to a product: repeated, reshaped, transposed, computed from; then something of the product.
Graph random_program(uint64_t seed) {
  Rng rng(seed);
  Builder b(Level::kKernel);
  auto pick = [&](std::vector<int64_t> of) { return of[rng.below(of.size())]; };
  Dims dims{pick({1, 2}), pick({1, 2, 3}), pick({2, 3}), pick({2, 3})};
  ValueId k = b.add_input(0, {DType::kF16, dims});
  auto at = [&](ValueId v) { return b.graph().dims(v); };
  auto step = [&](ValueId& v) {
    const Dims d = at(v);
    const int rank = d.rank(), dim = static_cast<int>(rng.below(static_cast<uint64_t>(rank)));
    switch (rng.below(7)) {
      case 0:
        if (rank < 6) {
          Dims r;
          for (int i = 0; i < rank; i++) {
            if (i == dim) r.push_back(1);
            r.push_back(d[i]);
          }
          v = b.add(Reshape{r}, {v});
        }
        break;
      case 1:
        if (dim + 1 < rank && rank > 3) {
          Dims r;
          for (int i = 0; i < rank; i++)
            if (i == dim) {
              r.push_back(d[i] * d[i + 1]);
              i++;
            } else r.push_back(d[i]);
          v = b.add(Reshape{r}, {v});
        }
        break;
      case 2: if (d.elements() < 2000) v = rng.below(3) ? b.add(Repeat{dim, pick({2, 3})}, {v}) : b.add(Concat{dim}, {v, v}); break;
      case 3: {
        Transpose t;
        for (int i = 0; i < rank; i++) t.perm[static_cast<size_t>(i)] = static_cast<int8_t>(i);
        if (dim + 1 < rank) std::swap(t.perm[static_cast<size_t>(dim)], t.perm[static_cast<size_t>(dim) + 1]);
        v = b.add(t, {v});
        break;
      }
      case 4: v = rng.below(2) ? b.map(MapFn::kSquare, {v}) : b.map(MapFn::kMul, {v, b.constant(0.5)}); break;
      case 5: if (d[dim] > 1) v = b.add(Reduce{rng.below(2) ? ReduceFn::kSum : ReduceFn::kMax, dim, 0}, {v}); break;
      default: if (d[dim] > 2) v = b.add(Slice{dim, 1, d[dim], 1}, {v});
    }
  };
  for (uint64_t i = 1 + rng.below(5); i > 0; i--) step(k);
  const Dims of_k = at(k);
  if (of_k.rank() < 2) return std::move(b).finish();
  Dims of_q = of_k;
  of_q[of_k.rank() - 1] = of_k[of_k.rank() - 2];
  of_q[of_k.rank() - 2] = pick({1, 2, 4});
  if (rng.below(6) == 0) of_q[0] = 1;
  ValueId s = b.add(MatMul{}, {b.add_input(1, {DType::kF16, of_q}), k});
  for (uint64_t i = rng.below(4); i > 0; i--)
    if (rng.below(3)) step(s);
    else s = b.map(MapFn::kAdd, {s, b.add_input(2 + static_cast<int>(i), {DType::kF32, at(s)})});
  b.add_output(0, s, DType::kF32);
  if (rng.below(4) == 0) b.add_output(1, k, DType::kF32);
  return std::move(b).finish();
}

std::string text(const char* body) {
  const auto g = parse_graph(std::string("kernel k { ") + body + " }");
  REQUIRE(g.ok());
  const auto out = without_repeats(*g);
  return out ? print(*out, "k") : "";
}
std::string printed(const char* body) {
  const auto g = parse_graph(std::string("kernel k { ") + body + " }");
  REQUIRE(g.ok());
  return print(*g, "k");
}

}  // namespace

TEST_CASE("programs compute the same without repetitions, folded or not") {
  int changed = 0, fewer = 0, kept = 0;
  for (uint64_t seed = 0; seed < 4000; seed++) {
    const Graph g = random_program(seed);
    if (g.num_results() == 0) continue;
    const auto out = without_repeats(g);
    if (!out) { kept += repeats(g) > 0; continue; }
    INFO("seed " << seed << "\n" << print(g) << print(*out));
    REQUIRE_FALSE(check_laws(*out));
    changed++;
    fewer += repeats(*out) < repeats(g);
    Program p = program_around(g, nullptr);
    p.inputs.resize(static_cast<size_t>(g.num_params()));
    const Folded f = fold(p);
    REQUIRE(f.folds);
    require_alike(g, *out, seed);
    require_alike(g, f.unfold(f.program.graph), seed);
  }
  INFO(changed << " changed, " << fewer << " with fewer repetitions, " << kept << " kept theirs");
  REQUIRE(fewer > 300);
  REQUIRE(kept > 100);
}

TEST_CASE("keys repeated for the heads of a group are read where they lie") {
  CHECK(text(R"(%q = input 0 : f16[1,6,1,4]    %k = input 1 : f16[1,2,8,4]
    %r = reshape [1,6,8,4] (repeat 2 3 (reshape [1,2,1,8,4] %k))
    output 0 (exp (matmul %q (transpose (0,1,3,2) %r))) : f16)") == printed(R"(%q = input 0 : f16[1,6,1,4]    %k = input 1 : f16[1,2,8,4]
    %a = reshape [1,2,1,8,4] %k    %b = transpose (0,1,2,4,3) %a    %c = reshape [1,2,3,1,4] %q
    output 0 (reshape [1,6,1,8] (exp (matmul %c %b))) : f16)"));
  // Heads in turns: the repeated dimension is the outer one.
  CHECK(text("%q = input 0 : f16[6,1,4] %k = input 1 : f16[2,4,8] output 0 (matmul %q (repeat 0 3 %k)) : f16") ==
        printed("%q = input 0 : f16[6,1,4] %k = input 1 : f16[2,4,8] %b = reshape [1,2,4,8] %k %a = reshape [3,2,1,4] %q output 0 (reshape "
                "[6,1,8] (matmul %a %b)) : f16"));
  // Nothing that a product would read less of.
  CHECK(text("%q = input 0 : f16[6,4] %k = input 1 : f16[2,8] output 0 (matmul %q (repeat 0 2 %k)) : f16").empty());
  CHECK(text("%q = input 0 : f16[6,4] %k = input 1 : f16[1,4] output 0 (add %q (repeat 0 6 %k)) : f16").empty());
}

TEST_CASE("repeat_kv with one query folds to groups of queries") {
  const auto g = parse_graph(R"(kernel k { %q = input 0 : f16[1,6,1,4]    %k = input 1 : f16[1,2,8,4]    %v = input 2 : f16[1,2,8,4]
    %a = reshape [1,6,8,4] (repeat 2 3 (reshape [1,2,1,8,4] %k))    %b = reshape [1,6,8,4] (repeat 2 3 (reshape [1,2,1,8,4] %v))
    %e = exp (matmul %q (transpose (0,1,3,2) %a))
    output 0 (matmul (div %e (reduce.sum 3 %e)) %b) : f16 })");
  REQUIRE(g.ok());
  const Folded f = fold(program_around(*g, nullptr));
  REQUIRE(f.folds);
  int contractions = 0;
  for (const Node& n : f.program.graph.nodes()) {
    if (!std::holds_alternative<MatMul>(n.op)) continue;
    const Dims &d = f.program.graph.dims(n.first_value), &of = f.program.graph.dims(n.operands[1]);
    CHECK(d.rank() == 3);
    CHECK(d[1] == 3);
    CHECK(of[0] == 2);
    contractions++;
  }
  CHECK(contractions == 2);
}

TEST_CASE("weights that are scaled by group are summed group by group") {
  const char* const inputs = "%x = input 0 : f16[4,6] %w = input 1 : f16[2,3,8] %s = input 2 : f16[2,1,8] ";
  const std::string by_groups = std::string(inputs) +
                                "%a = mul %w %s %b = reshape [4,2,3] %x %c = transpose (1,0,2) %b %d = matmul %c %a "
                                "output 0 (reshape [4,8] (reduce.sum 0 %d)) : f16";
  CHECK(text((std::string(inputs) + "output 0 (matmul %x (reshape [6,8] (mul %w %s))) : f16").c_str()) == printed(by_groups.c_str()));
  // Scales repeated along the rows of the weights.
  CHECK(
      text("%x = input 0 : f16[4,6] %w = input 1 : f16[6,8] %s = input 2 : f16[2,8] output 0 (matmul %x (mul %w (reshape [6,8] (repeat 1 "
           "3 (reshape [2,1,8] %s))))) : f16") ==
      printed("%x = input 0 : f16[4,6] %w = input 1 : f16[6,8] %s = input 2 : f16[2,8] %r = reshape [2,1,8] %s %v = reshape [2,3,8] %w %a "
              "= mul %v %r %b = reshape [4,2,3] %x %c = transpose (1,0,2) %b %d = matmul %c %a output 0 (reshape [4,8] (reduce.sum 0 %d)) "
              ": f16"));
  // Nothing tells the groups apart; many rows.
  CHECK(text("%x = input 0 : f16[4,6] %w = input 1 : f16[2,3,8] output 0 (matmul %x (reshape [6,8] (square %w))) : f16").empty());
  CHECK(text("%x = input 0 : f16[65,6] %w = input 1 : f16[2,3,8] %s = input 2 : f16[2,1,8] output 0 (matmul %x (reshape [6,8] (mul %w "
             "%s))) : f16")
            .empty());
  // A row that was normed by groups, before weights of fewer columns than the 64 rows that weights may have beside them.
  CHECK(text("%x = input 0 : f16[2,3] %s = input 1 : f16[2,1] %w = input 2 : f16[6,8] output 0 (matmul (reshape [1,6] (div %x %s)) %w) : "
             "f16")
            .empty());
}

namespace {

/// Weights [groups, size, columns] or [columns, groups, size] with scales and zero points of several shapes, joined and multiplied.
Graph random_groups(uint64_t seed) {
  Rng rng(seed);
  Builder b(Level::kKernel);
  auto pick = [&](std::vector<int64_t> of) { return of[rng.below(of.size())]; };
  const int64_t groups = pick({2, 3}), size = pick({2, 4}), columns = pick({3, 9, 16}), rows = pick({1, 2, 7}), batch = pick({1, 2});
  const bool lines = rng.below(2), whole = rng.below(3) == 0;
  int param = 0;
  const auto dims = [&](int64_t g, int64_t k, int64_t n) { return lines ? Dims{n, g, k} : Dims{g, k, n}; };
  const auto joined = [&](ValueId v, int64_t n) { return b.add(Reshape{lines ? Dims{n, groups * size} : Dims{groups * size, n}}, {v}); };
  ValueId w = b.add_input(param++, {DType::kF16, dims(groups, size, columns)});
  if (whole) w = joined(w, columns);
  for (uint64_t i = 1 + rng.below(2); i > 0; i--) {
    const int64_t n = rng.below(2) ? columns : 1;
    const bool by_group = rng.below(4) != 0;
    ValueId s = b.add_input(param++, {DType::kF16, by_group ? dims(groups, 1, n) : dims(1, size, n)});
    if (whole) s = joined(b.add(Repeat{lines ? by_group ? 2 : 1 : by_group ? 1 : 0, by_group ? size : groups}, {s}), n);
    w = b.map(rng.below(2) ? MapFn::kMul : MapFn::kSub, {w, s});
  }
  if (!whole) w = joined(w, columns);
  if (rng.below(3) == 0) w = b.map(MapFn::kSquare, {w});
  if (lines) w = b.add(Transpose{{1, 0}}, {w});
  const Dims of_x = batch > 1 ? Dims{batch, rows, groups * size} : Dims{rows, groups * size};
  if (batch > 1) w = b.add(Reshape{{1, groups * size, columns}}, {w});
  ValueId y = b.add(MatMul{}, {b.add_input(param++, {DType::kF16, of_x}), w});
  if (rng.below(2)) y = b.map(MapFn::kExp, {y});
  b.add_output(0, y, DType::kF32);
  return std::move(b).finish();
}

}  // namespace

TEST_CASE("products by groups are the products") {
  int changed = 0;
  for (uint64_t seed = 0; seed < 600; seed++) {
    const Graph g = random_groups(seed);
    const auto out = without_repeats(g);
    INFO("seed " << seed << "\n" << print(g) << (out ? print(*out) : ""));
    if (!out) continue;
    changed++;
    REQUIRE_FALSE(check_laws(*out));
    Program p = program_around(g, nullptr);
    const Folded f = fold(p);
    for (const Graph& other : {*out, f.unfold(f.program.graph)}) require_alike(g, other, seed);
  }
  CHECK(changed > 300);
}

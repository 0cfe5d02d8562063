// Transposes of computed weights: the same numbers, and what becomes of programs people write.
#include <catch2/catch.hpp>

#include "ir/fold/transposes.h"
#include "mirage/ir/fold.h"
#include "mirage/spec/text.h"
#include "mirage/support/hash.h"
#include "unit/ir/alike.h"
#include "unit/ir/fold_programs.h"

using namespace mirage;
using namespace mirage::test;

namespace {

/// A weight that some functions of inputs make, transposed, perhaps read elsewhere as well, times x.
Graph scaled_program(uint64_t seed) {
  Rng rng(seed);
  Builder b(Level::kKernel);
  const auto pick = [&](std::vector<int64_t> of) { return of[rng.below(of.size())]; };
  const int64_t rows = pick({1, 3, 8}), depth = 5, cols = 6, batch = pick({1, 1, 4});
  int params = 0, results = 0;
  const bool is_batched = batch > 1;
  const auto shaped = [&](int64_t n, int64_t k) { return is_batched ? Dims{batch, n, k} : Dims{n, k}; };
  const ValueId x = b.add_input(params++, {DType::kF16, shaped(rows, depth)});
  ValueId w = b.add_input(params++, {DType::kF16, shaped(cols, depth)});
  std::vector<ValueId> all{w};
  for (uint64_t i = rng.below(4); i > 0; i--) {
    const uint64_t kind = rng.below(6);
    const Dims beside = kind == 0 ? shaped(cols, 1) : kind == 1 ? Dims{depth} : kind == 2 ? Dims{1, depth} : shaped(cols, depth);
    if (kind < 4) w = b.map(rng.below(2) ? MapFn::kMul : MapFn::kSub, {w, b.add_input(params++, {DType::kF32, beside})});
    else if (kind == 4) w = b.map(MapFn::kAdd, {w, b.add(Const{0.5, {}}, {})});
    else w = b.map(MapFn::kMul, {w, all[rng.below(all.size())]});
    all.push_back(w);
  }
  Transpose t;
  t.perm[static_cast<size_t>(is_batched) + 0] = static_cast<int8_t>(is_batched + 1);
  t.perm[static_cast<size_t>(is_batched) + 1] = static_cast<int8_t>(is_batched);
  if (is_batched) t.perm[0] = 0;
  const ValueId turned = b.add(t, {w});
  if (rng.below(5) == 0) b.add_output(results++, all[rng.below(all.size())], DType::kF32);
  if (rng.below(5) == 0) b.add_output(results++, turned, DType::kF32);
  b.add_output(results++, b.add(MatMul{}, {x, turned}), DType::kF32);
  return remove_dead(b.graph());
}

std::optional<Graph> moved(const char* body) {
  const auto g = parse_graph(std::string("kernel k { ") + body + " }");
  INFO((g ? "" : g.errors().front().text));
  REQUIRE(g.ok());
  return settled_transposes(*g);
}
std::string turned(const char* body) {
  const auto out = moved(body);
  return out ? print(*out, "k") : "";
}
std::string shown(const char* body) {
  const auto g = parse_graph(std::string("kernel k { ") + body + " }");
  INFO((g ? "" : g.errors().front().text));
  REQUIRE(g.ok());
  return print(*g, "k");
}

}  // namespace

TEST_CASE("programs compute the same with their transposes moved, folded or not") {
  int changed = 0;
  for (uint64_t seed = 0; seed < 2000; seed++) {
    const Graph g = scaled_program(seed);
    std::vector<ValueId> to;
    const auto out = settled_transposes(g, nullptr, &to);
    if (!out) continue;
    INFO("seed " << seed << "\n" << print(g) << print(*out));
    REQUIRE_FALSE(check_laws(*out));
    REQUIRE(to.size() == static_cast<size_t>(g.num_values()));
    for (ValueId v = 0; v < g.num_values(); v++)
      if (to[static_cast<size_t>(v)] >= 0) REQUIRE(out->dims(to[static_cast<size_t>(v)]) == g.dims(v));
    changed++;
    const Folded f = fold(program_around(g, nullptr));
    REQUIRE(f.folds);
    require_alike(g, *out, seed);
    require_alike(g, f.unfold(f.program.graph), seed);
  }
  INFO(changed << " changed");
  REQUIRE(changed > 600);
}

TEST_CASE("scaled weights stored [out, in] are scaled as they are read") {
  CHECK(turned("%x = input 0 : f16[8,64] %w = input 1 : f16[96,64] %s = input 2 : f16[96,1] %y = matmul %x (transpose (1,0) (mul %w %s)) "
               "output 0 %y : f16") ==
        shown("%x = input 0 : f16[8,64] %w = input 1 : f16[96,64] %s = input 2 : f16[96,1] %a = transpose (1,0) %w %b = transpose (1,0) "
              "%s %p = mul %a %b %y = matmul %x %p output 0 %y : f16"));
  // What has fewer dimensions gets those that it broadcasts along.
  CHECK(turned("%x = input 0 : f16[8,64] %w = input 1 : f16[96,64] %s = input 2 : f16[64] %y = matmul %x (transpose (1,0) (mul %w %s)) "
               "output 0 %y : f16") ==
        shown("%x = input 0 : f16[8,64] %w = input 1 : f16[96,64] %s = input 2 : f16[64] %a = transpose (1,0) %w %c = reshape [1,64] %s "
              "%b = transpose (1,0) %c %p = mul %a %b %y = matmul %x %p output 0 %y : f16"));
  // A stored weight, a computed value, a weight that somebody else reads, a transpose that no product reads.
  CHECK(turned("%x = input 0 : f16[8,64] %w = input 1 : f16[96,64] %y = matmul %x (transpose (1,0) %w) output 0 %y : f16").empty());
  CHECK(
      turned("%x = input 0 : f16[8,64] %w = input 1 : f16[96,64] %n = reduce.sum 1 %w %y = matmul %x (transpose (1,0) (mul %w %n)) output "
             "0 %y : f16")
          .empty());
  CHECK(
      turned("%x = input 0 : f16[8,64] %w = input 1 : f16[96,64] %m = exp %w %y = matmul %x (transpose (1,0) %m) output 0 %y : f16 output "
             "1 %m : f16")
          .empty());
  CHECK(turned("%w = input 0 : f16[96,64] output 0 (transpose (1,0) (exp %w)) : f16").empty());
}

TEST_CASE("what may be kept in 16 bits keeps its dtype behind a moved transpose") {
  const auto g = parse_graph(
      "kernel k { %x = input 0 : f16[8,64] %w = input 1 : f16[96,64] %s = input 2 : f16[96,1] %m = mul %w %s %t = transpose (1,0) %m "
      "%y = matmul %x %t output 0 %y : f16 }");
  REQUIRE(g.ok());
  std::vector<DType> kept(static_cast<size_t>(g->num_values()), DType::kReal);
  for (NodeId n = 0; n < g->num_nodes(); n++)
    if (g->form<Map>(n)) kept[static_cast<size_t>(g->node(n).first_value)] = DType::kF16;
  const auto out = settled_transposes(*g, &kept);
  REQUIRE(out);
  REQUIRE(kept.size() == static_cast<size_t>(out->num_values()));
  int maps = 0;
  for (NodeId n = 0; n < out->num_nodes(); n++)
    if (out->node(n).first_value >= 0) {
      CHECK(kept[static_cast<size_t>(out->node(n).first_value)] == (out->form<Map>(n) ? DType::kF16 : DType::kReal));
      maps += out->form<Map>(n) != nullptr;
    }
  CHECK(maps == 1);
}

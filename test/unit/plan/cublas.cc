// Which calls cuBLASLt may be given, and when it is (plan/cublas.h).
#include <catch2/catch.hpp>

#include "mirage/plan/cublas.h"
#include "mirage/plan/strategy.h"
#include "plan/cublas/cublas_internal.h"
#include "unit/plan/programs.h"

using namespace mirage;
using namespace mirage::test;

namespace {

Target allowing(double us) {
  Target t = *find_target("sm_90a");
  t.allow_cublas = true;
  t.cublas_us = us;
  return t;
}

std::string chosen(const Plan& p) { return strategy_of(p.kernels[0]).name; }

std::string said(const Plan& p) {
  for (const Refusal& r : p.kernels[0].others) if (r.strategy == "cublas") return r.us > 0 ? "dearer" : r.reason;
  return chosen(p) == "cublas" ? "taken" : "not asked";
}

/// A product of two inputs of these types and strides, `after` behind it.
Program product(DType x, DType y, DType out, Dims y_strides = {}, std::optional<MapFn> after = {}) {
  Sketch s;
  const ValueId a = s.input(x, {200, 512}), b = s.input(y, {512, 1024}, y_strides);
  ValueId z = s.b.add(MatMul{}, {a, b});
  if (after) z = s.b.add(Map{*after}, {z});
  s.output(z, out);
  return s.finish();
}

Plan planned(const Program& p, const Target& t) {
  Planned out = make_plan(p, p.graph, t);
  INFO(out.reason);
  REQUIRE(out.plan);
  return *std::move(out.plan);
}

}  // namespace

TEST_CASE("without --allow-cublas nobody is asked for cuBLASLt, with it what is cheaper is taken by a margin") {
  const Program p = product(DType::kF16, DType::kF16, DType::kF16);
  const Plan today = planned(p, *find_target("sm_90a")), dear = planned(p, allowing(1e3)), cheap = planned(p, allowing(-1e3));
  CHECK(said(today) == "not asked");
  CHECK(said(dear) == "dearer");
  CHECK(chosen(dear) == chosen(today));
  CHECK(dear.workspace_bytes == today.workspace_bytes);
  CHECK(said(cheap) == "taken");
  CHECK(cheap.workspace_bytes == 0);
  // At the same price the kernel of ours stays.
  Target equal = allowing(0);
  const double best = today.kernels[0].predicted_us;
  equal.cublas_us = best - cheap.kernels[0].predicted_us - 1e3;
  CHECK(said(planned(p, equal)) == "dearer");
  equal.cublas_us -= 0.1 * best;
  CHECK(said(planned(p, equal)) == "taken");
}

TEST_CASE("what is no product of dense matrices of one type is not cuBLASLt's") {
  const Target t = allowing(-1e3);
  CHECK(said(planned(product(DType::kF32, DType::kF32, DType::kF32), t)) == "taken");
  CHECK(said(planned(product(DType::kBF16, DType::kBF16, DType::kF32), t)) == "taken");
  CHECK(said(planned(product(DType::kF16, DType::kF32, DType::kF32), t)) == "operands of two types");
  CHECK(said(planned(product(DType::kF16, DType::kF16, DType::kBF16), t)) == "a result of another 16-bit type");
  CHECK(said(planned(product(DType::kF16, DType::kF16, DType::kF16, {2048, 2}), t)) == "lines that are not dense");
  CHECK(said(planned(product(DType::kF16, DType::kF16, DType::kF16, {1, 512}), t)) == "taken");
}

TEST_CASE("what is given to cuBLASLt was measured to be faster there") {
  // test/gpu/products.cu, one H200, 2026-11-24, cold us: theirs, ours
  struct Row { int64_t batch, m, n, k; DType type; bool transposed; double theirs, ours; };
  const Row rows[] = {{1, 16, 4096, 4096, DType::kBF16, true, 11.48, 11.65},  {1, 200, 4096, 4096, DType::kBF16, true, 16.69, 15.09},
                      {1, 1024, 4096, 4096, DType::kBF16, true, 44.01, 44.94}, {1, 512, 4096, 14336, DType::kBF16, true, 78.08, 84.72},
                      {1, 384, 2000, 4096, DType::kF16, false, 15.21, 13.66},  {1, 512, 512, 512, DType::kF16, false, 4.20, 3.48},
                      {16, 512, 512, 128, DType::kF16, true, 6.71, 10.48},     {1, 16, 4096, 4096, DType::kF32, false, 78.1, 24.8},
                      {1, 256, 512, 512, DType::kF32, false, 9.31, 7.19},      {1, 2048, 2048, 2048, DType::kF32, false, 339.63, 468.18}};
  int taken = 0;
  for (const Row& r : rows) {
    Sketch s;
    const ValueId x = s.input(r.type, {r.batch, r.m, r.k});
    ValueId w = s.input(r.type, r.transposed ? Dims{r.batch, r.n, r.k} : Dims{r.batch, r.k, r.n});
    if (r.transposed) w = s.b.add(Transpose{{0, 2, 1}}, {w});
    s.output(s.b.add(MatMul{}, {x, w}), r.type);
    Target t = *find_target("sm_90a");
    t.allow_cublas = true;
    const Plan p = planned(s.finish(), t);
    INFO(r.batch << " x " << r.m << " x " << r.n << " x " << r.k);
    if (chosen(p) != "cublas") continue;
    taken++;
    CHECK(r.theirs < r.ours);
    CHECK(p.kernels[0].predicted_us < 1.2 * r.theirs);
    CHECK(p.kernels[0].predicted_us > 0.8 * r.theirs);
  }
  CHECK(taken >= 3);
}

TEST_CASE("what was not measured is dear") {
  const Target t = allowing(0);
  const auto price = [&](int64_t batch, int64_t rows, int64_t columns) {
    Sketch s;
    const ValueId x = s.input(DType::kBF16, {batch, rows, 512}), w = s.input(DType::kBF16, {batch, 512, columns});
    s.output(s.b.add(MatMul{}, {x, w}), DType::kBF16);
    const Plan p = planned(s.finish(), t);
    for (const Refusal& r : p.kernels[0].others) if (r.strategy == "cublas") return r.us;
    return p.kernels[0].predicted_us;
  };
  CHECK(price(1, 512, 1001) > 1.8 * price(1, 512, 1008));   // lines of 2002 bytes
  CHECK(price(64, 32, 1024) > 1.4 * price(64, 64, 1024));   // narrow matrices
}

TEST_CASE("a product's places say what alignment they have") {
  Sketch s;
  const ValueId x = s.input(DType::kF16, {4, 30, 40}), w = s.input(DType::kF16, {1, 40, 60});
  s.output(s.b.add(MatMul{}, {x, w}), DType::kF16);
  const Plan p = planned(s.finish(), allowing(-1e3));
  const auto* body = std::get_if<std::shared_ptr<const CublasPlan>>(&p.kernels[0].body);
  REQUIRE(body);
  CHECK((*body)->alignment == 16);
  Sketch odd;
  const ValueId a = odd.input(DType::kF16, {4, 3, 5}), b = odd.input(DType::kF16, {4, 5, 6});
  odd.output(odd.b.add(MatMul{}, {a, b}), DType::kF16);
  const Plan q = planned(odd.finish(), allowing(-1e3));
  const auto* small = std::get_if<std::shared_ptr<const CublasPlan>>(&q.kernels[0].body);
  REQUIRE(small);
  CHECK((*small)->alignment == 2);   // 15 elements between matrices
}

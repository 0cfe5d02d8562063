// Region kernels as loops and statements agree with the reference, on programs by hand and on random ones; and they are as few and as wide
// as they should be.
#include <catch2/catch.hpp>

#include "mirage/plan/region.h"
#include "unit/plan/interpret.h"
#include "unit/plan/programs.h"

using namespace mirage;
using namespace mirage::test;

namespace {

const Target& target() {
  static const Target t = *find_target("sm_90a");
  return t;
}

Plan plan_of(const Program& p) {
  Planned planned = make_plan(p, p.graph, target());
  REQUIRE(planned.plan.has_value());
  return *planned.plan;
}

const RegionPlan& region(const Plan& p, size_t k) { return *std::get<std::shared_ptr<const RegionPlan>>(p.kernels[k].body); }

/// Where a plan and the reference disagree; "" if nowhere.
std::string disagreement(const Program& p, const Plan& plan, uint64_t seed) {
  const auto inputs = random_inputs(p, seed);
  std::vector<Tensor<double>> got;
  try {
    got = Interpreter(plan).run(inputs);
  } catch (const std::string& error) {
    return error;
  }
  DoubleAlgebra a;
  const auto want = evaluate(p.graph, std::span<const Tensor<double>>(inputs), a, true);
  for (size_t i = 0; i < want.size(); i++) {
    double scale = 1;
    for (double x : want[i].data) if (std::isfinite(x)) scale = std::max(scale, std::fabs(x));
    const double eps = p.outputs[i].type.dtype == DType::kF16 ? 1.1e-3 : 1e-5;
    for (size_t e = 0; e < want[i].data.size(); e++) {
      const double x = want[i].data[e], y = got[i].data[e];
      if (!(std::isnan(x) ? std::isnan(y) : x == y || std::fabs(x - y) <= eps * scale))
        return "output " + std::to_string(i) + " element " + std::to_string(e) + ": " + std::to_string(y) + ", want " + std::to_string(x);
    }
  }
  return "";
}

ValueId softmax(Builder& b, ValueId x, int dim) {
  const ValueId e = b.map(MapFn::kExp, {b.map(MapFn::kSub, {x, b.add(Reduce{ReduceFn::kMax, dim, 0}, {x})})});
  return b.map(MapFn::kDiv, {e, b.add(Reduce{ReduceFn::kSum, dim, 0}, {e})});
}

}  // namespace

TEST_CASE("random programs: the plan computes what the graph says") {
  int kernels = 0, branches = 0;
  for (uint64_t seed = 0; seed < 400; seed++) {
    const Program p = random_program(seed, 3 + static_cast<int>(seed % 14));
    const Plan plan = plan_of(p);
    kernels += static_cast<int>(plan.kernels.size());
    for (size_t k = 0; k < plan.kernels.size(); k++) branches += print(region(plan, k), "k").find("if ") != std::string::npos;
    const std::string error = disagreement(p, plan, seed);
    INFO("seed " << seed << "\n" << print(p.graph) << print(plan));
    REQUIRE(error == "");
  }
  CHECK(kernels > 400);
  CHECK(branches > 20);
}

TEST_CASE("softmax is one kernel of three passes, rows and columns alike") {
  for (int dim : {0, 1}) {
    Sketch s;
    s.output(softmax(s.b, s.input(DType::kF16, dim ? Dims{4096, 1024} : Dims{512, 16384}), dim), DType::kF16);
    const Program p = s.finish();
    const Plan plan = plan_of(p);
    REQUIRE(plan.kernels.size() == 1);
    CHECK(plan.workspace_bytes == 0);
    CHECK(region(plan, 0).passes.size() == 3);
    CHECK(region(plan, 0).width >= 4);
    CHECK((region(plan, 0).shape == RegionPlan::Shape::kRow) == (dim == 1));
  }
}

TEST_CASE("few threads share a row where all rows are resident at once, more where rows follow each other") {
  const auto rows_of = [](int64_t rows, int64_t columns) {   // measured on an H200 (docs/measurements/rows.md)
    Sketch s;
    s.output(softmax(s.b, s.input(DType::kF16, Dims{rows, columns}), 1), DType::kF16);
    const Program p = s.finish();
    return region(plan_of(p), 0);
  };
  const RegionPlan many = rows_of(2048, 1000), resident = rows_of(512, 8192), streaming = rows_of(4096, 4096), few = rows_of(8, 4096);
  CHECK(many.team == 32);
  CHECK(resident.team == 256);
  CHECK(resident.blocks_per_sm == 4);
  CHECK(streaming.team == 128);
  CHECK(few.blocks_per_sm == 1);
  for (const RegionPlan& r : {many, resident}) CHECK(r.blocks <= int64_t{r.blocks_per_sm} * target().num_sms);
}

TEST_CASE("what stands for several operands in later passes is kept instead of them") {
  Sketch s;
  const ValueId x = s.input(DType::kBF16, Dims{16384, 512}), mask = s.input(DType::kBF16, Dims{1, 512});
  const ValueId scaled = s.b.map(MapFn::kMul, {x, s.b.add(Const{0.125, {}}, {})});
  s.output(softmax(s.b, s.b.map(MapFn::kAdd, {scaled, s.b.add(Repeat{0, 16384}, {mask})}), 1), DType::kBF16);
  const Program p = s.finish();
  const Plan plan = plan_of(p);
  REQUIRE(plan.kernels.size() == 1);
  const RegionPlan& r = region(plan, 0);
  REQUIRE(r.held > 0);
  REQUIRE(r.kept == 1);
  CHECK(r.again[0].places.size() == 3);   // of all passes
  CHECK(r.live[0].numbers == 2);          // x and m
  CHECK(r.live[1].numbers == 1);          // their sum
  CHECK(r.live[1].bytes == 0);
}

TEST_CASE("short rows are read by whole lines of 128 bytes") {
  const auto row_of = [](DType dtype, int64_t rows, int64_t columns) {   // measured on an H200 (region_threads.cc, threads_of_line)
    Sketch s;
    s.output(softmax(s.b, s.input(dtype, Dims{rows, columns}), 1), dtype);
    const Program p = s.finish();
    return region(plan_of(p), 0);
  };
  CHECK(row_of(DType::kBF16, 1048576, 64).team == 8);
  CHECK(row_of(DType::kBF16, 524288, 128).team >= 8);
  CHECK(row_of(DType::kBF16, 524288, 32).team == 4);   // shorter than a line
  CHECK(row_of(DType::kF32, 524288, 64).team >= 8);
}

TEST_CASE("functions of elements leave a multiprocessor its threads") {
  const auto map_of = [](MapFn fn, int64_t n) {
    Sketch s;
    s.output(s.b.map(fn, {s.input(DType::kF16, Dims{n})}), DType::kF16);
    const Program p = s.finish();
    return region(plan_of(p), 0);
  };
  CHECK(map_of(MapFn::kGelu, 1 << 26).blocks_per_sm * map_of(MapFn::kGelu, 1 << 26).threads == 2048);
  CHECK(map_of(MapFn::kRelu, 1 << 26).blocks_per_sm == 1);   // its registers are no question
  CHECK(map_of(MapFn::kGelu, 1 << 16).blocks_per_sm == 1);   // nor here: one block each
}

TEST_CASE("reductions of columns that would leave memory idle are cut in two kernels, ahead of what they are part of") {
  // a batch norm's statistics over the rows of 16384 x 4096: 1024 iterations a thread, in one kernel with what follows
  Sketch s;
  const ValueId x = s.input(DType::kBF16, {16384, 4096});
  const ValueId mean = s.b.map(MapFn::kMul, {s.b.add(Reduce{ReduceFn::kSum, 0, 0}, {x}), s.b.constant(1.0 / 16384)});
  s.output(s.b.map(MapFn::kSub, {x, mean}), DType::kBF16);
  const Program p = s.finish();
  const Plan plan = plan_of(p);
  REQUIRE(plan.kernels.size() == 3);
  CHECK(region(plan, 0).chunk >= 0);
  CHECK(region(plan, 0).blocks >= target().num_sms);
  CHECK(region(plan, 0).width == 8);
  // few columns of much: channels of images
  Sketch t;
  const ValueId y = t.input(DType::kBF16, {64, 64, 65536});
  const ValueId sum = t.b.add(Reduce{ReduceFn::kSum, 0, 0}, {t.b.add(Reduce{ReduceFn::kSum, 2, 0}, {y})});
  t.output(t.b.map(MapFn::kSub, {y, sum}), DType::kBF16);
  const Program q = t.finish();
  CHECK(plan_of(q).kernels.size() == 3);
}

TEST_CASE("contiguous elementwise work becomes one loop of 16-byte vectors, odd sizes too") {
  Sketch s;
  const ValueId x = s.input(DType::kF16, {17, 333, 5}), y = s.input(DType::kF16, {17, 333, 5});
  s.output(s.b.map(MapFn::kAdd, {x, y}), DType::kF16);
  const Program p = s.finish();
  const Plan plan = plan_of(p);
  REQUIRE(plan.kernels.size() == 1);
  const RegionPlan& r = region(plan, 0);
  CHECK(r.outer.size() == 1);
  CHECK(r.width == 8);
  CHECK(r.lane_extent == 17 * 333 * 5);
  CHECK(disagreement(p, plan, 1) == "");
}

TEST_CASE("a slice or a strided input is not vectorised where it is not aligned") {
  Sketch s;
  const ValueId x = s.input(DType::kF16, {64, 65});
  s.output(s.b.add(Slice{1, 1, 65, 1}, {x}), DType::kF16);
  const Program p = s.finish();
  const Plan plan = plan_of(p);
  for (const RegionPass& pass : region(plan, 0).passes)
    for (const RegionInstr& i : pass.body) CHECK(!i.vector);
  CHECK(disagreement(p, plan, 1) == "");
}

TEST_CASE("an outer dimension reduces with neighbours on neighbouring columns") {
  Sketch s;
  s.output(s.b.add(Reduce{ReduceFn::kSum, 0, 0}, {s.input(DType::kF32, {300, 512})}), DType::kF32);
  const Program p = s.finish();
  const Plan plan = plan_of(p);
  REQUIRE(!plan.kernels.empty());
  CHECK(region(plan, 0).shape == RegionPlan::Shape::kColumn);
  CHECK(disagreement(p, plan, 3) == "");
}

TEST_CASE("a long reduction into little is cut in two kernels, prime lengths too") {
  for (int64_t n : {131072, 100003, 131071 * 2}) {
    Sketch s;
    const ValueId x = s.input(DType::kF32, {n, 2});
    const ValueId sum = s.b.add(Reduce{ReduceFn::kSum, 0, 0}, {s.b.add(Reduce{ReduceFn::kSum, 1, 0}, {s.b.map(MapFn::kSquare, {x})})});
    s.output(s.b.map(MapFn::kSqrt, {sum}), DType::kF32);
    s.output(s.b.add(Reduce{ReduceFn::kMax, 0, 0}, {x}), DType::kF32);
    const Program p = s.finish();
    const Plan plan = plan_of(p);
    INFO(n);
    // where sums of two are surely faster as slices, one kernel has the second halves of both reductions
    CHECK(plan.kernels.size() == (n == 131072 ? 3 : 4));
    int chunked = 0;
    for (size_t k = 0; k < plan.kernels.size(); k++) chunked += region(plan, k).chunk >= 0 && region(plan, k).blocks > 20;
    CHECK(chunked == 2);
    CHECK(disagreement(p, plan, static_cast<uint64_t>(n)) == "");
  }
}

TEST_CASE("reductions over several axes are one reduction") {
  Sketch s;
  const ValueId x = s.input(DType::kF16, {32, 8, 64});
  const ValueId sum = s.b.add(Reduce{ReduceFn::kSum, 1, 0}, {s.b.add(Reduce{ReduceFn::kSum, 2, 0}, {x})});
  s.output(s.b.map(MapFn::kMul, {x, s.b.map(MapFn::kRsqrt, {s.b.map(MapFn::kSquare, {sum})})}), DType::kF16);
  const Program p = s.finish();
  const Plan plan = plan_of(p);
  REQUIRE(plan.kernels.size() == 1);
  CHECK(region(plan, 0).inner.size() == 1);
  CHECK(region(plan, 0).rows == 32);
}

TEST_CASE("neighbours that a thread's elements have in common are loaded once") {
  // windows of eight along lines of 256, padded by four elements in front and by four behind; then taps that lie far apart
  for (int64_t apart : {1, 128}) {
    Sketch s;
    const ValueId x = s.input(DType::kBF16, {600, 256}), one = s.b.add(Reshape{{1, 1}}, {s.b.constant(0)}),
                  zeros = s.b.add(Repeat{0, 600}, {s.b.add(Repeat{1, apart * 4}, {one})});
    const ValueId padded = s.b.add(Concat{1}, {zeros, x, zeros});
    const int64_t places = 256 + apart;
    ValueId sum = -1;
    for (int64_t tap = 0; tap < 8; tap++) {
      const ValueId next = s.b.add(Slice{1, tap * apart, tap * apart + places, 1}, {padded});
      sum = sum < 0 ? next : s.b.map(MapFn::kAdd, {sum, next});
    }
    s.output(sum, DType::kBF16);
    const Program p = s.finish();
    const Plan plan = plan_of(p);
    INFO(print(plan));
    REQUIRE(plan.kernels.size() == 1);
    const RegionPlan& r = region(plan, 0);
    CHECK(r.windows.size() == (apart == 1 ? 1 : 0));
    if (apart == 1) CHECK(r.windows[0].vectors * r.width <= 16);
    CHECK(disagreement(p, plan, 6) == "");
  }
}

TEST_CASE("rows that lie beside each other are walked by a thread each") {
  // windows of 5 x 5 that do not overlap, of lines that end behind the last one; and rows of as many elements that lie apart
  for (bool windows : {true, false}) {
    Sketch s;
    ValueId x = s.input(DType::kBF16, windows ? Dims{200, 187, 188} : Dims{200 * 37 * 37, 27});
    if (windows) {
      x = s.b.add(Slice{1, 0, 185, 1}, {s.b.add(Slice{2, 0, 185, 1}, {x})});
      x = s.b.add(Reduce{ReduceFn::kSum, 4, 0}, {s.b.add(Reshape{{200, 37, 5, 37, 5}}, {x})});
      x = s.b.add(Reduce{ReduceFn::kSum, 2, 0}, {x});
    } else {
      x = s.b.add(Reduce{ReduceFn::kSum, 1, 0}, {s.b.add(Slice{1, 0, 25, 1}, {x})});
    }
    s.output(x, DType::kBF16);
    const Program p = s.finish();
    const Plan plan = plan_of(p);
    INFO(print(plan));
    REQUIRE(plan.kernels.size() == 1);
    CHECK((region(plan, 0).team == 1 && region(plan, 0).held == 0) == windows);
    CHECK(disagreement(p, plan, 9) == "");
  }
}

TEST_CASE("what follows a norm in other dimensions of the same elements is in its kernel") {
  // A group norm: statistics over some channels and all places, gains by channel, then channels joined again and an activation. x comes
  // grouped, joined, or with places and channels as one dimension.
  for (const Dims& grouped : {Dims{2, 4, 10, 64}, Dims{2, 4, 640}}) {
    Sketch s;
    const ValueId x = s.b.add(Reshape{grouped}, {s.input(DType::kF16, {2, 40, 64})});
    ValueId sum = s.b.map(MapFn::kSquare, {x});
    for (int d = 2; d < grouped.rank(); d++) sum = s.b.add(Reduce{ReduceFn::kSum, d, 0}, {sum});
    const ValueId y = s.b.add(Reshape{{2, 40, 64}}, {s.b.map(MapFn::kMul, {x, s.b.map(MapFn::kRsqrt, {sum})})});
    s.output(s.b.map(MapFn::kSilu, {s.b.map(MapFn::kMul, {y, s.input(DType::kF16, {40, 1})})}), DType::kF16);
    const Program p = s.finish();
    const Plan plan = plan_of(p);
    REQUIRE(plan.kernels.size() == 1);
    CHECK(region(plan, 0).rows == 8);
    CHECK(disagreement(p, plan, 5) == "");
  }
}

TEST_CASE("a value with two kinds of readers is computed once") {
  Sketch s;
  const ValueId x = s.input(DType::kF16, {256, 512}), e = s.b.map(MapFn::kExp, {x});
  s.output(s.b.add(Reduce{ReduceFn::kSum, 0, 0}, {e}), DType::kF32);
  s.output(s.b.map(MapFn::kMul, {s.b.add(Transpose{{1, 0}}, {e}), s.input(DType::kF16, {512, 256})}), DType::kF16);
  const Program p = s.finish();
  const Plan plan = plan_of(p);
  int exps = 0;
  for (size_t k = 0; k < plan.kernels.size(); k++) {
    const std::string text = print(region(plan, k), "k");
    for (size_t at = 0; (at = text.find("= exp ", at)) != std::string::npos; at++) exps++;
  }
  CHECK(exps <= 2);   // at most once more than needed, and only where the cost model finds that cheaper than a kernel of its own
  CHECK(disagreement(p, plan, 5) == "");
}

namespace {

/// The place of the largest of f(x) along a dimension, of which there are several; otherwise: of elements that are not the largest.
Program place_of_largest(Dims d, int dim, double otherwise, bool stores_largest) {
  Sketch s;
  const ValueId x = s.b.map(MapFn::kFloor, {s.input(DType::kBF16, d)}), largest = s.b.add(Reduce{ReduceFn::kMax, dim, 0}, {x});
  Dims line;
  for (int i = 0; i < d.rank(); i++) line.push_back(i == dim ? d[i] : 1);
  const ValueId before = s.b.map(MapFn::kNeg, {s.b.add(Iota{dim, line}, {})});
  const ValueId found = s.b.map(MapFn::kWhere, {s.b.map(MapFn::kEqual, {largest, x}), before, s.b.constant(otherwise)});
  s.output(s.b.add(Reduce{ReduceFn::kMax, dim, 0}, {found}), DType::kF32);
  if (stores_largest) s.output(largest, DType::kBF16);
  return s.finish();
}

}  // namespace

TEST_CASE("the largest and its place are found in one walk") {
  for (const Dims& d : {Dims{300, 128, 96}, Dims{64, 777}, Dims{7, 5000, 3}, Dims{200000, 40}})
    for (int dim = 0; dim < d.rank(); dim++)
      for (bool stores_largest : {false, true}) {
        if (d[0] > 10000 && dim == 0) continue;   // long, below
        const Program p = place_of_largest(d, dim, -static_cast<double>(d[dim]), stores_largest);
        const Plan plan = plan_of(p);
        INFO(print(plan));
        if (d.elements() > 1 << 20) {   // there are rows enough for every multiprocessor
          REQUIRE(plan.kernels.size() == 1);
          CHECK(region(plan, 0).passes.size() == 1);
        }
        CHECK(disagreement(p, plan, 3) == "");
      }
}

TEST_CASE("the largest and what other elements would say instead of its place are two walks") {
  for (double otherwise : {-99.0, 5.0}) {   // of 777 places
    const Program p = place_of_largest({6000, 777}, 1, otherwise, false);
    const Plan plan = plan_of(p);
    for (size_t k = 0; k < plan.kernels.size(); k++)
      for (const RegionPass& pass : region(plan, k).passes)
        for (const RegionReduce& r : pass.reduces) CHECK(r.leader < 0);
    if (otherwise > 0) CHECK(disagreement(p, plan, 4) == "");
  }
}

TEST_CASE("the place of the largest of a few long rows is found by many blocks") {
  const Program p = place_of_largest({2, 1 << 20}, 1, -static_cast<double>(1 << 20), false);
  const Plan plan = plan_of(p);
  INFO(print(plan));
  bool in_parts = false;
  for (size_t k = 0; k < plan.kernels.size(); k++) in_parts = in_parts || region(plan, k).blocks * region(plan, k).cluster >= 16;
  CHECK(in_parts);
  CHECK(plan.predicted_us < 20);
}

TEST_CASE("a transposition walks in squares") {
  Sketch s;
  s.output(s.b.add(Transpose{{2, 0, 1}}, {s.input(DType::kF16, {32, 3, 64})}), DType::kF16);
  const Program p = s.finish();
  const Plan plan = plan_of(p);
  REQUIRE(plan.kernels.size() == 1);
  const RegionPlan& r = region(plan, 0);
  INFO(print(plan));
  REQUIRE(r.outer.size() >= 4);
  CHECK(r.vars[static_cast<size_t>(r.outer[r.outer.size() - 2])].extent == 16);
  CHECK(disagreement(p, plan, 2) == "");
}

TEST_CASE("sizes over 2^31 elements use 64-bit indices") {
  Sketch s;
  const ValueId x = s.input(DType::kF16, {70000, 40000});
  s.output(s.b.map(MapFn::kNeg, {x}), DType::kF16);
  const Plan big = plan_of(s.finish());
  CHECK(region(big, 0).wide);
  Sketch t;
  t.output(t.b.map(MapFn::kNeg, {t.input(DType::kF16, {700, 400})}), DType::kF16);
  CHECK(!region(plan_of(t.finish()), 0).wide);
}

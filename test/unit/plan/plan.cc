// make_plan: which values are stored where, in what order kernels run, what calls read.
#include <catch2/catch.hpp>

#include <optional>
#include <set>

#include "mirage/plan/bound.h"
#include "plan/attend/attend_plan.h"
#include "plan/block/block_plan.h"
#include "mirage/plan/cublas.h"
#include "mirage/plan/region.h"
#include "plan/stream/stream_plan.h"
#include "plan/tile/tile_plan.h"
#include "unit/plan/programs.h"

using namespace mirage;
using namespace mirage::test;

namespace {

Plan plan_of(const Program& p) {
  Planned planned = make_plan(p, p.graph, *find_target("sm_90a"));
  INFO(planned.reason);
  REQUIRE(planned.plan.has_value());
  return *planned.plan;
}

/// What a call reads and writes, by whatever strategy it is planned; null: a region.
const KernelCall* call(const KernelPlan& k) { return bound_calls(k).empty() ? nullptr : bound_calls(k).data(); }

/// Buffers that a kernel reads and writes.
std::pair<std::set<int>, std::set<int>> touched(const KernelPlan& k) {
  std::set<int> reads, writes;
  const std::span<const KernelCall> calls = bound_calls(k);
  for (const KernelCall& c : calls) {
    for (const Access& a : c.operands) reads.insert(a.buffer);
    for (const Access& a : c.results) writes.insert(a.buffer);
  }
  if (calls.empty()) {
    const auto add = [&](const RegionPlan& p) { for (const RegionAccess& a : p.accesses) (a.written ? writes : reads).insert(a.buffer); };
    const RegionPlan& p = *std::get<std::shared_ptr<const RegionPlan>>(k.body);
    add(p);
    for (const auto& other : p.beside) add(*other);
  }
  return {reads, writes};
}

/// The laws of every plan: nothing is read before it is written, nothing still needed is overwritten, every output is written.
void check_laws(const Plan& plan) {
  std::vector<int> owner(plan.buffers.size(), -1);   // whether a buffer's contents are whole
  for (size_t b = 0; b < plan.buffers.size(); b++) owner[b] = plan.buffers[b].kind == Buffer::Kind::kInput;
  for (const KernelPlan& k : plan.kernels) {
    const auto [reads, writes] = touched(k);
    for (int r : reads) CHECK(owner[static_cast<size_t>(r)] == 1);
    for (int w : writes) {
      CHECK(reads.count(w) == 0);
      const Buffer& x = plan.buffers[static_cast<size_t>(w)];
      CHECK(x.kind != Buffer::Kind::kInput);
      for (size_t b = 0; b < plan.buffers.size() && x.kind == Buffer::Kind::kWorkspace; b++) {
        const Buffer& y = plan.buffers[b];
        if (y.kind == Buffer::Kind::kWorkspace && x.offset_bytes < y.offset_bytes + y.bytes() &&
            y.offset_bytes < x.offset_bytes + x.bytes()) {
          CHECK(reads.count(static_cast<int>(b)) == 0);
          owner[b] = 0;
        }
      }
      if (x.kind == Buffer::Kind::kWorkspace) CHECK(x.offset_bytes + x.bytes() <= plan.workspace_bytes);
    }
    for (int w : writes) owner[static_cast<size_t>(w)] = 1;
  }
  for (size_t b = 0; b < plan.buffers.size(); b++)
    if (plan.buffers[b].kind == Buffer::Kind::kOutput) CHECK(owner[b] == 1);
  std::set<std::string> names;
  for (const KernelPlan& k : plan.kernels) CHECK(names.insert(k.name).second);
}

}  // namespace

TEST_CASE("the laws of plans hold on random programs") {
  for (uint64_t seed = 1000; seed < 1200; seed++) check_laws(plan_of(random_program(seed, 20)));
}

TEST_CASE("a matmul reads transposed and sliced inputs in place and writes the output itself") {
  Sketch s;
  const ValueId x = s.input(DType::kF16, {64, 256}), w = s.input(DType::kF16, {128, 512});
  const ValueId wt = s.b.add(Transpose{{1, 0}}, {w}), part = s.b.add(Slice{0, 256, 512, 1}, {wt});
  s.output(s.b.add(MatMul{}, {x, part}), DType::kF16);
  const Plan plan = plan_of(s.finish());
  REQUIRE(plan.kernels.size() == 1);
  REQUIRE(call(plan.kernels[0]));
  CHECK(call(plan.kernels[0])->operands[1].strides == Dims{1, 512});
  CHECK(call(plan.kernels[0])->operands[1].offset == 256);
  CHECK(call(plan.kernels[0])->results[0].buffer == 2);
  CHECK(plan.workspace_bytes == 0);
}

TEST_CASE("what a matmul reads is made first: maps, constants, index values, concatenations") {
  Sketch s;
  const ValueId x = s.input(DType::kF16, {64, 64});
  const ValueId i = s.b.map(MapFn::kMul, {s.b.add(Iota{1, {64, 64}}, {}), s.b.constant(0.01)});
  const ValueId c = s.b.add(Concat{1}, {x, x});
  const ValueId y = s.b.add(MatMul{}, {s.b.map(MapFn::kExp, {x}), i});
  s.output(s.b.add(MatMul{}, {y, c}), DType::kF32);
  const Program p = s.finish();
  const Plan plan = plan_of(p);
  check_laws(plan);
  int blocks = 0;
  for (const KernelPlan& k : plan.kernels) blocks += call(k) != nullptr;
  CHECK(blocks == 2);
}

TEST_CASE("a matmul's result that is rounded for an output stays exact for others") {
  Sketch s;
  const ValueId y = s.b.add(MatMul{}, {s.input(DType::kF16, {64, 64}), s.input(DType::kF16, {64, 64})});
  s.output(y, DType::kF16);
  s.output(s.b.map(MapFn::kExp, {y}), DType::kF32);
  const Plan plan = plan_of(s.finish());
  check_laws(plan);
  bool exact = false;
  for (const KernelPlan& k : plan.kernels)
    if (const auto b = call(k)) exact = plan.buffers[static_cast<size_t>(b->results[0].buffer)].dtype == DType::kF32;
  CHECK(exact);
}

TEST_CASE("one value may be two outputs, an input may be an output") {
  Sketch s;
  const ValueId x = s.input(DType::kF32, {32, 16}), e = s.b.map(MapFn::kExp, {x});
  s.output(e, DType::kF32);
  s.output(s.b.add(Transpose{{1, 0}}, {e}), DType::kF16);
  s.output(x, DType::kF16);
  s.output(s.b.add(Reshape{{512}}, {x}), DType::kF32);
  const Plan plan = plan_of(s.finish());
  check_laws(plan);
  CHECK(plan.workspace_bytes == 0);
}

TEST_CASE("planning is deterministic and takes long programs") {
  Sketch s;
  ValueId x = s.input(DType::kF32, {64, 64});
  const ValueId y = s.input(DType::kF32, {64, 64});
  for (int i = 0; i < 1500; i++) {
    x = s.b.map(i % 3 == 0 ? MapFn::kAdd : MapFn::kMul, {x, y});
    if (i % 100 == 99) x = s.b.map(MapFn::kSub, {x, s.b.add(Reduce{ReduceFn::kSum, 1, 0}, {x})});
  }
  s.output(x, DType::kF32);
  const Program p = s.finish();
  const Plan plan = plan_of(p);
  check_laws(plan);
  CHECK(print(plan) == print(plan_of(p)));
  CHECK(print(plan).find("workspace") != std::string::npos);
}

// Wrong kernels that a reading of the block planner and emitter found before any user did. Each graph once planned or emitted what its test now forbids.
#include <catch2/catch.hpp>

#include "mirage/codegen/module.h"
#include "mirage/plan/block_plan.h"
#include "mirage/spec/text.h"
#include "plan/block_internal.h"

using namespace mirage;

namespace {

struct Planned1 { std::shared_ptr<BlockPlan> plan; std::string reason, text; };

/// The one call of a kernel graph, planned with these numbers on row-major operands, and its text.
Planned1 plan_call(const std::string& source, BlockChoice choice) {
  auto graph = parse_graph(source, "bug.mg");
  REQUIRE(graph.ok());
  const Graph& g = *graph;
  Planned1 out;
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const auto* call = g.form<Call>(n);
    if (!call) continue;
    auto access = [&](const Type& t) { return Access{0, 0, t.dims, row_major_strides(t.dims), t.dtype == DType::kReal ? DType::kF32 : t.dtype}; };
    std::vector<Access> operands, results;
    for (ValueId v : g.node(n).operands) operands.push_back(access(g.type(v)));
    for (int i = 0; i < g.node(n).num_values; i++) results.push_back(access(g.type(g.node(n).first_value + i)));
    const Target target = *find_target("sm_90a");
    out.plan = plan_block_as(*call->body, operands, results, target, choice, out.reason);
    if (!out.plan) continue;
    KernelPlan k;
    k.name = "k";
    k.body = std::shared_ptr<const BlockPlan>(out.plan);
    out.text = emit_block_kernel(k, Plan(), target).source;
  }
  return out;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("warps that divide a loop wait for operands that the whole block loaded", "[bugs]") {
  // (x - m) w: m is loaded once by all threads and read in the loop, where only warps synchronise.
  Planned1 p = plan_call(R"(kernel k {
  %0 = input 0 : f16[8,4096]
  %1 = input 1 : f32[8,1]
  %2 = input 2 : f16[4096,128]
  %3 = call grid(2,1,1) loop(64) (%0, %1, %2) {
    %0 = input 0 grid(-,-,-) loop(1) : f16[8,64]
    %1 = input 1 grid(-,-,-) loop(-) : f32[8,1]
    %2 = input 2 grid(1,-,-) loop(0) : f16[64,64]
    %3 = sub %0 %1
    %4 = matmul %3 %2
    %5 = accum.sum %4
    output 0 %5 grid(1,-,-) : f16
  }
  output 0 %3 : f16
}
)", {128, 3, 1, true});
  REQUIRE(p.plan);
  const size_t loop = p.text.find("for (int iteration"), barrier = p.text.find("  barrier();");
  REQUIRE(loop != std::string::npos);
  CHECK(barrier < loop);
}

TEST_CASE("no packs through a transpose", "[bugs]") {
  Planned1 stored = plan_call(R"(kernel k {
  %0 = input 0 : f16[64,64]
  %1 = input 1 : f16[64,64]
  %2 = call grid(1,1,1) loop(1) (%0, %1) {
    %0 = input 0 grid(-,-,-) loop(-) : f16[64,64]
    %1 = input 1 grid(-,-,-) loop(-) : f16[64,64]
    %2 = transpose (1,0) %0
    %3 = add %2 %1
    output 0 %3 grid(-,-,-) : f16
  }
  output 0 %2 : f16
}
)", {128, 1, 1, false});
  REQUIRE(stored.plan);
  CHECK(has(stored.text, "store_tile<kThreads, 1,"));
  Planned1 reduced = plan_call(R"(kernel k {
  %0 = input 0 : f16[64,1]
  %1 = input 1 : f16[8,64]
  %2 = call grid(1,1,1) loop(1) (%0, %1) {
    %0 = input 0 grid(-,-,-) loop(-) : f16[64,1]
    %1 = input 1 grid(-,-,-) loop(-) : f16[8,64]
    %2 = transpose (1,0) %0
    %3 = mul %2 %1
    %4 = reduce.sum 1 %3
    output 0 %4 grid(-,-,-) : f32
  }
  output 0 %2 : f32
}
)", {128, 1, 1, false});
  REQUIRE(reduced.plan);
  CHECK(has(reduced.text, ".add<1>("));
}

TEST_CASE("accumulators in shared memory are not divided over blocks or warps", "[bugs]") {
  const std::string source = R"(kernel k {
  %0 = input 0 : f16[16,65536]
  %1 = call grid(1,1,1) loop(512) (%0) {
    %0 = input 0 grid(-,-,-) loop(1) : f16[16,128]
    %1 = reduce.max 1 %0
    %2 = accum.sum %1
    output 0 %2 grid(-,-,-) : f32
  }
  output 0 %1 : f32
}
)";
  CHECK(has(plan_call(source, {128, 3, 2, false}).reason, "elementwise accumulator"));
  CHECK(has(plan_call(source, {128, 3, 1, true}).reason, "elementwise accumulator"));
  CHECK(plan_call(source, {128, 3, 1, false}).plan);
}

TEST_CASE("rows that the last iteration lacks are not accumulated", "[bugs]") {
  Planned1 p = plan_call(R"(kernel k {
  %0 = input 0 : f16[5,64]
  %1 = call grid(1,1,1) loop(2) (%0) {
    %0 = input 0 grid(-,-,-) loop(0) : f16[3,64]
    %1 = reduce.max 1 %0
    %2 = accum.max %1
    output 0 %2 grid(-,-,-) : f32
  }
  output 0 %1 : f32
}
)", {128, 2, 1, false});
  REQUIRE(p.plan);
  CHECK(has(p.text, "accumulate_tile<kThreads, Max>"));
  CHECK(has(p.text, "left0_0, 1, "));   // masked by what exists
}

TEST_CASE("a float32 contraction of an operand that tensor cores padded has room for the padding", "[bugs]") {
  Planned1 p = plan_call(R"(kernel k {
  %0 = input 0 : f16[2,4,64]
  %1 = input 1 : f16[2,64,32]
  %2 = input 2 : f32[2,64,32]
  %3 = call grid(1,1,1) loop(1) (%0, %1, %2) {
    %0 = input 0 grid(-,-,-) loop(-) : f16[2,4,64]
    %1 = input 1 grid(-,-,-) loop(-) : f16[2,64,32]
    %2 = input 2 grid(-,-,-) loop(-) : f32[2,64,32]
    %3 = matmul %0 %1
    %4 = matmul %0 %2
    %5 = add %3 %4
    output 0 %5 grid(-,-,-) : f32
  }
  output 0 %3 : f32
}
)", {128, 1, 1, false});
  REQUIRE(p.plan);
  int contractions = 0;
  for (const Step& s : p.plan->steps) {
    if (s.kind != Step::Kind::kContract) continue;
    contractions++;
    CHECK(p.plan->tiles[static_cast<size_t>(s.tile)].extent[1] == p.plan->tiles[static_cast<size_t>(s.x)].extent[1]);
  }
  CHECK(contractions == 2);
}

TEST_CASE("one dimension split by grid and loop, ragged", "[bugs]") {
  Planned1 single = plan_call(R"(kernel k {
  %0 = input 0 : f16[5]
  %1 = call grid(2,1,1) loop(3) (%0) {
    %0 = input 0 grid(0,-,-) loop(0) : f16[1]
    %1 = exp %0
    %2 = accum.sum %1
    output 0 %2 grid(0,-,-) : f32
  }
  output 0 %1 : f32
}
)", {128, 2, 1, false});
  CHECK((!single.plan || has(single.text, "left0_0")));   // an empty iteration adds nothing, exp(0) least of all
  Planned1 late = plan_call(R"(kernel k {
  %0 = input 0 : f16[5]
  %1 = call grid(2,1,1) loop(2) (%0) {
    %0 = input 0 grid(0,-,-) loop(0) : f16[2]
    %1 = accum.sum %0
    %2 = exp %1
    %3 = reduce.sum 0 %2
    output 0 %3 grid(0,-,-) : f32
  }
  output 0 %1 : f32
}
)", {128, 2, 1, false});
  CHECK_FALSE(late.plan);
  Planned1 unseen = plan_call(R"(kernel k {
  %0 = input 0 : f16[1,5,8,8]
  %1 = call grid(2,1,1) loop(3) (%0) {
    %0 = input 0 grid(1,-,-) loop(1) : f16[1,1,8,8]
    %1 = accum.sum %0
    output 0 %1 grid(1,-,-) : f32
  }
  output 0 %1 : f32
}
)", {128, 2, 1, false});
  CHECK_FALSE(unseen.plan);
}

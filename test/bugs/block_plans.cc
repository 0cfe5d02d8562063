// Wrong kernels that a reading of the block planner and emitter found before any user did. Each graph once planned or emitted what its test
// now forbids.
#include <catch2/catch.hpp>

#include "mirage/codegen/module.h"
#include "plan/block/block_plan.h"
#include "mirage/plan/strategy.h"
#include "mirage/spec/text.h"
#include "plan/block/block_internal.h"
#include "plan/block/chain.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

namespace {

struct Planned1 { std::shared_ptr<BlockPlan> plan; std::string reason, text; };

/// The one call of a kernel graph, planned with these numbers on row-major operands, and its text. exact: what real numbers lie in.
Planned1 plan_call(const std::string& source, BlockChoice choice, DType exact = DType::kF32) {
  auto graph = parse_graph(source, "bug.mg");
  REQUIRE(graph.ok());
  const Graph& g = *graph;
  Planned1 out;
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const auto* call = g.form<Call>(n);
    if (!call) continue;
    auto access = [&](const Type& t) {
      return Access{0, 0, t.dims, row_major_strides(t.dims), t.dtype == DType::kReal ? exact : t.dtype};
    };
    std::vector<Access> operands, results;
    for (ValueId v : g.node(n).operands) operands.push_back(access(g.type(v)));
    for (int i = 0; i < g.node(n).num_values; i++) results.push_back(access(g.type(g.node(n).first_value + i)));
    const Target target = *find_target("sm_90a");
    out.plan = plan_block_as(*call->body, operands, results, target, choice, out.reason);
    if (!out.plan) continue;
    KernelPlan k;
    k.name = "k";
    k.body = told(out.plan);
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

TEST_CASE("packs through a transpose are read one by one", "[bugs]") {
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
  CHECK(has(stored.text, "t0.down(w, 0, c, r)"));   // neighbours along c are lines apart there
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
  CHECK(has(reduced.text, "t0.down(w, 0, k, 0)"));
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
  CHECK(has(p.text, "left_k, 1, "));   // masked by what exists
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
  CHECK((!single.plan || has(single.text, "left_k")));   // an empty iteration adds nothing, exp(0) least of all
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

TEST_CASE("blocks that store parts of a sum have no law, but a program that is emitted", "[bugs]") {
  const Planned1 p = plan_call(R"(kernel k {
  %0 = input 0 : f16[16,500]
  %1 = input 1 : f16[500,64]
  %2 = call grid(2,4,1) loop(4) (%0, %1) {
    %0 = input 0 grid(1,-,-) loop(1) : f16[16,64]
    %1 = input 1 grid(0,1,-) loop(0) : f16[64,16]
    %2 = matmul %0 %1
    %3 = accum.sum %2
    output 0 %3 grid(0,1,-) : f32
  }
  output 0 %2 : f32
}
)", {128, 2, 2, true});
  REQUIRE(p.plan);
  CHECK(has(p.text, "const int left_k = clip(500 - (block_x * int64_t(256) + it * int64_t(64)), 64);"));
  CHECK(has(p.text, "((f32*)out0 + 0 + (block_x * int64_t(16)) * 64 + (block_y * int64_t(16)) * 1, "));
}

TEST_CASE("real numbers that lie in 16 bits are read as such", "[bugs]") {
  // zeros and ones that another kernel stored: copies to tiles of bfloat16 were asked of float32, which does not compile
  const Planned1 p = plan_call(R"(kernel k {
  %0 = input 0 : bf16[64,128]
  %1 = input 1 : bf16[128,64]
  %2 = relu %1
  %3 = call grid(2,1,1) loop(4) (%0, %2) {
    %0 = input 0 grid(0,-,-) loop(1) : bf16[32,32]
    %1 = input 1 grid(-,-,-) loop(0) : real[32,64]
    %2 = matmul %0 %1
    %3 = accum.sum %2
    output 0 %3 grid(0,-,-) : f32
  }
  output 0 %3 : f32
}
)", {128, 2, 1, true}, DType::kBF16);
  REQUIRE(p.plan);
  CHECK(has(p.text, "(const bf16*)in1"));
  CHECK(!has(p.text, "(const f32*)in1"));
}

TEST_CASE("a body whose meaning depends on its tiles is no block kernel", "[bugs]") {
  // An operand that is the same for every tile of an index that another has in full: programs have no word for it.
  const Planned1 p = plan_call(R"(kernel k {
  %0 = input 0 : f16[32,64]
  %1 = input 1 : f16[8,64]
  %2 = call grid(4,1,1) loop(1) (%0, %1) {
    %0 = input 0 grid(0,-,-) loop(-) : f16[8,64]
    %1 = input 1 grid(-,-,-) loop(-) : f16[8,64]
    %2 = add %0 %1
    output 0 %2 grid(0,-,-) : f16
  }
  output 0 %2 : f16
}
)", {128, 1, 1, false});
  CHECK_FALSE(p.plan);
  CHECK(has(p.reason, "depends on its tiles"));
}

TEST_CASE("a running softmax that is no chain in registers has its layouts solved, too", "[bugs]") {
  // The plan was made again as if it had a chain, which does not fit: its tiles kept the layouts that they began with.
  const auto graph = parse_graph(R"(kernel k {
  %q = input 0 : f16[16,64]
  %c = input 1 : f16[4096,64]
  %t = transpose (1,0) %c
  %o = call loop(128) (%q, %t, %c) {
    %a = input 0 : f16[16,64]
    %b = input 1 loop(1) : f16[64,32]
    %w = input 2 loop(0) : f16[32,64]
    %s = mul (matmul %a %b) 0.07
    %m = running (reduce.max 1 %s)
    %p = exp (sub %s %m)
    %l = accum.sum rescaled 1 (reduce.sum 1 %p) %m
    %r = accum.sum rescaled 1 (matmul %p %w) %m
    output 0 (div %r %l) : f32
  }
  output 0 %o : f32
}
)", "bug.mg");
  REQUIRE(graph.ok());
  const Node* call = nullptr;
  for (const Node& n : graph->nodes()) if (std::holds_alternative<Call>(n.op)) call = &n;
  REQUIRE(call);
  const Graph& body = *std::get<Call>(call->op).body;
  REQUIRE(find_chain(body));
  const Access q{0, 0, {16, 64}, {64, 1}, DType::kF16}, t{1, 0, {64, 4096}, {1, 64}, DType::kF16},
      c{1, 0, {4096, 64}, {64, 1}, DType::kF16}, o{2, 0, {16, 64}, {64, 1}, DType::kF32};
  const BlockPlanned planned = plan_block(body, {q, t, c}, {o}, *find_target("sm_90a"));
  REQUIRE(planned.plan);
  REQUIRE_FALSE(choice_of(*planned.plan).chain);   // 32 keys are too few for four warps
  CHECK(planned.plan->layout_note.starts_with("layouts: "));
}

TEST_CASE("what is emulated has the layouts of what ships", "[bugs]") {
  // A plan at a reduced shape kept the padding that tiles begin with where the plan that ships had solved layouts: the emulation gate ran
  // other addresses.
  const auto source = [](int k) {
    const std::string s = std::to_string(k);
    return "kernel k {\n  %x = input 0 : f16[64," + s + "]\n  %w = input 1 : f16[" + s + ",128]\n  %y = call grid(2,1,1) loop(" +
           std::to_string(k / 64) + ") (%x, %w) {\n    %a = input 0 grid(-,-,-) loop(1) : f16[64,64]\n" +
           "    %b = input 1 grid(1,-,-) loop(0) : f16[64,64]\n    output 0 (accum.sum (matmul %a %b)) grid(1,-,-)\n  }\n  output 0 %y : "
           "f32\n}\n";
  };
  const auto body_of = [](const std::string& text) {
    const auto graph = parse_graph(text, "bug.mg");
    REQUIRE(graph.ok());
    for (const Node& n : graph->nodes()) if (const auto* c = std::get_if<Call>(&n.op)) return *c->body;
    return Graph();
  };
  const auto operands = [](int64_t k) {
    return std::vector<Access>{{0, 0, {64, k}, {k, 1}, DType::kF16}, {1, 0, {k, 128}, {128, 1}, DType::kF16}};
  };
  const std::vector<Access> results{{2, 0, {64, 128}, {128, 1}, DType::kF32}};
  const Target target = *find_target("sm_80");
  std::string reason;
  const Graph full = body_of(source(4096)), small = body_of(source(512));
  const BlockChoice choice{128, 3, 1, false, false};
  const auto padded = plan_block_as(full, operands(4096), results, target, choice, reason);
  REQUIRE(padded);
  for (const LayoutKind kind : {LayoutKind::kSwizzled, LayoutKind::kPlain}) {
    std::vector<LayoutOption> layouts;
    for (const auto& options : layout_options(*padded)) {
      layouts.push_back(options.front());
      for (const LayoutOption& o : options) if (o.kind == kind) layouts.back() = o;
    }
    const auto shipped = plan_block_as(full, operands(4096), results, target, choice, layouts, {});
    REQUIRE(shipped);
    shipped->layout_note = "layouts: solved";
    KernelPlan model;
    model.body = told(shipped);
    const auto at = operands(512);
    const Attempt like = plan_like(model, {small, at, results, target, {}});
    REQUIRE(like.body);
    const BlockPlan emulated = **plan_in<BlockPlan>(*like.body, target);
    REQUIRE(emulated.tiles.size() == shipped->tiles.size());
    int swizzled = 0;
    for (size_t t = 0; t < emulated.tiles.size(); t++) {
      swizzled += emulated.tiles[t].swizzle;
      CHECK(emulated.tiles[t].swizzle == shipped->tiles[t].swizzle);
      CHECK(emulated.tiles[t].ld == shipped->tiles[t].ld);
    }
    CHECK(swizzled == (kind == LayoutKind::kSwizzled ? 2 : 0));
  }
}

// Types of intermediates in the workspace: short where every reader rounds to that anyway, float32 otherwise.
#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <string>

#include "plan/storage.h"
#include "programs.h"
#include "mirage/plan/plan.h"
#include "mirage/spec/spec.h"

using namespace mirage;
using test::Sketch;

namespace {

/// The workspace buffers of silu(x w) v, or of that with another reader of silu(x w).
std::vector<Buffer> buffers(DType t, bool another_reader) {
  Sketch s;
  const ValueId x = s.input(t, {32, 64}), w = s.input(t, {64, 64}), v = s.input(t, {64, 64});
  const ValueId h = s.b.map(MapFn::kSilu, {s.b.add(MatMul{}, {x, w})});
  s.output(s.b.add(MatMul{}, {h, v}), t);
  if (another_reader) s.output(s.b.add(Reduce{ReduceFn::kSum, 1, 0}, {h}), t);
  const Program p = s.finish();
  const Planned planned = make_plan(p, p.graph, *find_target("sm_90a"));
  REQUIRE(planned.plan);
  std::vector<Buffer> out;
  for (const Buffer& b : planned.plan->buffers) if (b.kind == Buffer::Kind::kWorkspace) out.push_back(b);
  return out;
}
std::vector<DType> workspace(DType t, bool another_reader) {
  std::vector<DType> out;
  for (const Buffer& b : buffers(t, another_reader)) out.push_back(b.dtype);
  return out;
}

}  // namespace

TEST_CASE("an operand that bfloat16 contractions alone read is stored in bfloat16") {
  const std::vector<DType> types = workspace(DType::kBF16, false);   // x w, and its silu
  CHECK(std::count(types.begin(), types.end(), DType::kBF16) == 1);
}

TEST_CASE("what float16 contractions read keeps the range of float32: in float32, or in float16 with a factor per line") {
  const std::vector<Buffer> all = buffers(DType::kF16, false);
  const auto factors = std::count_if(all.begin(), all.end(), [](const Buffer& b) {
    return b.dtype == DType::kF32 && b.dims == Dims{32, 1};
  });
  CHECK(std::count_if(all.begin(), all.end(), [](const Buffer& b) { return b.dtype == DType::kF16; }) == factors);
  for (DType t : workspace(DType::kF16, true)) CHECK(t == DType::kF32);
}

TEST_CASE("a second reader that does not round keeps an intermediate in float32") {
  for (DType t : workspace(DType::kBF16, true)) CHECK(t == DType::kF32);
}

TEST_CASE("copies of what lies in 16 bits, with constants that the type has, lie in it") {
  struct Row { DType input; double behind; bool contracts; DType want; };
  const double kInfinity = std::numeric_limits<double>::infinity();
  for (const Row& r : {Row{DType::kBF16, 0, true, DType::kBF16}, Row{DType::kBF16, -kInfinity, false, DType::kBF16},
                       Row{DType::kF16, 0.5, false, DType::kF16}, Row{DType::kF16, 0, true, DType::kF16},
                       Row{DType::kBF16, 1.0 / 3, false, DType::kF32}, Row{DType::kF16, 1e6, false, DType::kF32}}) {
    CAPTURE(dtype_name(r.input), r.behind, r.contracts);
    Sketch s;   // rows with something behind them, read by a product and by a maximum
    ValueId behind = s.b.add(Reshape{{1, 1}}, {s.b.constant(r.behind)});
    behind = s.b.add(Repeat{1, 24}, {s.b.add(Repeat{0, 512}, {behind})});
    const ValueId all = s.b.add(Concat{1}, {s.input(r.input, {512, 1000}), behind});
    if (r.contracts) s.output(s.b.add(MatMul{}, {all, s.input(r.input, {1024, 512})}), DType::kF32);
    s.output(s.b.add(Reduce{ReduceFn::kMax, 1, 0}, {all}), DType::kF32);
    const Program p = s.finish();
    const Planned planned = make_plan(p, p.graph, *find_target("sm_90a"));
    REQUIRE(planned.plan);
    const Graph& g = planned.plan->graph;   // the product is a call
    for (ValueId v = 0; v < g.num_values(); v++)
      if (g.def_form<Concat>(v)) CHECK(stored_type(g, g.users(), v, contract_rule(p)).dtype == r.want);
  }
}

TEST_CASE("what node-by-node evaluation keeps in 16 bits lies so in the workspace, and products take it so") {
  for (const std::string t : {"f16", "bf16"}) {
    const auto plan_of = [&](const std::string& header) {
      const auto p = parse_spec(
          {"s.mg", "kernel s " + header + "{ %x = input 0 : " + t + "[256,64]  %w = input 1 : " + t + "[64,512]  %v = input 2 : " + t +
                       "[512,64]  %h = matmul %x %w  %a = silu %h  %n = add %a %h  %y = matmul %n %v  output 0 %y : " + t + " }"});
      REQUIRE(p);
      const Planned planned = make_plan(*p, p->graph, *find_target("sm_90a"));
      REQUIRE(planned.plan);
      return *planned.plan;
    };
    const auto wide = [](const Plan& p) {
      return std::count_if(p.buffers.begin(), p.buffers.end(),
                           [](const Buffer& b) { return b.kind == Buffer::Kind::kWorkspace && !is16(b.dtype); });
    };
    const Plan stored = plan_of(""), exact = plan_of("intermediates(exact) ");
    INFO(print(stored));
    CHECK(wide(stored) == 0);
    CHECK(wide(exact) > 0);
    CHECK(stored.predicted_us < exact.predicted_us);
  }
}

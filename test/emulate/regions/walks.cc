// Elementwise kernels whose threads walk several places of a loop, on the CPU: neighbours that places share, values that are the same along
// the loop; reductions down columns beside something that lies along them; products over four elements, and sums of as many, as slices.
#include <algorithm>
#include <deque>

#include <fmt/format.h>

#include "emulate/regions/rows.h"
#include "mirage/plan/passes.h"
#include "mirage/spec/text.h"

using namespace mirage;
using namespace mirage::test;

namespace {

struct Built : Divisions {
  /// As planned for its own extents, at reduced ones.
  const Plan& add_reduced(const std::string& what, const std::string& inputs, const std::string& nodes, const std::string& outputs) {
    const std::string text = fmt::format(R"({{"version": "1.0", "name": "walks", "inputs": {{{}}}, "nodes": [{}], "outputs": {{{}}}}})",
                                         inputs, nodes, outputs);
    const Program p = program_of(text, "walks");
    const Planned full = make_plan(p, p.graph, target);
    INFO(what << ": " << full.reason);
    REQUIRE(full.plan);
    for (bool tails : {false, true}) {
      const Reduced small = reduce_plan(p, *full.plan, target, tails);
      INFO(small.refusal << small.differs);
      REQUIRE(small.plan);
      REQUIRE(small.plan->kernels.size() == full.plan->kernels.size());
      add(*small.program, *small.plan, what);
    }
    kept.push_back(*full.plan);
    return kept.back();
  }
  std::deque<Plan> kept;
};

std::string input(const std::string& name, const std::string& shape, const std::string& dtype = "bfloat16") {
  return fmt::format(R"("{}": {{"shape": [{}], "dtype": "{}"}})", name, shape, dtype);
}
std::string node(const std::string& op, const std::string& inputs, const std::string& output, const std::string& attrs = "") {
  return fmt::format(R"({{"op": "{}", "inputs": [{}], "output": "{}"{}}})", op, inputs, output,
                     attrs.empty() ? "" : ", \"attrs\": {" + attrs + "}");
}
const std::string kResult = R"("y": {"dtype": "bfloat16"})";

/// How many places a thread of the plan's only kernel has.
int64_t places(const Plan& plan) {
  REQUIRE(plan.kernels.size() == 1);
  const RegionPlan& p = region(plan.kernels[0]);
  return p.unrolled >= 0 ? p.length : 1;
}

}  // namespace

TEST_CASE("threads walk along a loop that shares what they read") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) {
    WARN("skipped: there is no host compiler");
    return;
  }
  Built cases;
  const auto taps = [](const std::string& shape, int count, int64_t length, const std::string& dtype) {
    std::string nodes;
    for (int t = 0; t < count; t++) {
      nodes += node("slice", "\"x\"", fmt::format("x{}", t), fmt::format(R"("axis": 1, "start": {}, "stop": {})", t, t + length)) + ", ";
      nodes += node("slice", "\"w\"", fmt::format("w{}", t), fmt::format(R"("axis": 0, "start": {}, "stop": {})", t, t + 1)) + ", ";
      nodes += node("mul", fmt::format(R"("x{0}", "w{0}")", t), t == 0 ? "s0" : fmt::format("p{}", t)) + ", ";
      if (t > 0) nodes += node("add", fmt::format(R"("s{}", "p{}")", t - 1, t), fmt::format("s{}", t)) + ", ";
    }
    return std::pair{input("x", shape, dtype) + ", " + input("w", fmt::format("{}, 1536", count), dtype),
                     nodes + node("silu", fmt::format("\"s{}\"", count - 1), "y")};
  };
  const auto [inputs, nodes] = taps("4, 2051, 1536", 4, 2048, "bfloat16");
  CHECK(places(cases.add_reduced("causal convolution", inputs, nodes, kResult)) == 4);
  const auto [odd, odd_nodes] = taps("4, 2005, 1536", 4, 2002, "bfloat16");
  CHECK(places(cases.add_reduced("of 2002", odd, odd_nodes, kResult)) == 2);
  const auto [prime, prime_nodes] = taps("3, 2006, 1536", 4, 2003, "bfloat16");
  CHECK(places(cases.add_reduced("of prime numbers", prime, prime_nodes, kResult)) == 1);
  const auto [wide, wide_nodes] = taps("2, 4099, 1536", 4, 4096, "float32");
  CHECK(places(cases.add_reduced("float32", wide, wide_nodes, R"("y": {"dtype": "float32"})")) == 4);
  CHECK(places(cases.add_reduced("scale and shift", input("x", "16, 1024, 1152") + ", " + input("s", "16, 1, 1152") + ", " +
                                                        input("t", "16, 1, 1152"),
                                 node("add", R"("s", 1.0)", "u") + ", " + node("mul", R"("x", "u")", "m") + ", " +
                                     node("add", R"("m", "t")", "y"),
                                 kResult)) == 4);
  CHECK(places(cases.add_reduced("one operand along each loop", input("q", "16, 64, 1, 256") + ", " + input("k", "16, 1, 128, 256"),
                                 node("add", R"("q", "k")", "a") + ", " + node("tanh", "\"a\"", "y"), kResult)) == 4);
  // nothing is shared
  CHECK(places(cases.add_reduced("alone", input("x", "4096, 4096"), node("silu", "\"x\"", "y"), kResult)) == 1);
  check_emulations(cases.all, cases.names, compiler, 1.0, true);
}

TEST_CASE("stores fill sectors at once") {
  Built cases;
  const Plan& plan = cases.add_reduced("sums of two", input("a", "64, 512, 1", "float32") + ", " + input("b", "64, 1, 512", "float32"),
                                       node("add", R"("a", "b")", "s") + ", " + node("exp", "\"s\"", "y"), R"("y": {"dtype": "float32"})");
  REQUIRE(plan.kernels.size() == 1);
  CHECK(region(plan.kernels[0]).width == 4);
}

TEST_CASE("a reduction down columns of what lies along them") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) {
    WARN("skipped: there is no host compiler");
    return;
  }
  Built cases;
  // a step of a conditional random field
  const Plan& plan = cases.add_reduced("crf", input("a", "256, 128, 1", "float32") + ", " + input("t", "128, 128", "float32"),
                                       node("add", R"("a", "t")", "s") + ", " + node("logsumexp", "\"s\"", "y", R"("axis": 1)"),
                                       R"("y": {"dtype": "float32"})");
  REQUIRE(plan.kernels.size() == 1);
  CHECK(region(plan.kernels[0]).shape == RegionPlan::Shape::kColumn);
  check_emulations(cases.all, cases.names, compiler, 1.0, true);
}

TEST_CASE("a value that rows store besides is computed again by its reader") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) {
    WARN("skipped: there is no host compiler");
    return;
  }
  Built cases;
  // the backward pass of a norm: the gain's gradient reads what the rows normalise
  const Plan& plan = cases.add_reduced(
      "norm", input("x", "4096, 4096") + ", " + input("d", "4096, 4096") + ", " + input("w", "4096"),
      node("square", "\"x\"", "q") + ", " + node("mean", "\"q\"", "m", R"("axis": 1, "keepdim": true)") + ", " +
          node("add", R"("m", 1e-6)", "e") + ", " + node("rsqrt", "\"e\"", "r") + ", " + node("mul", R"("x", "r")", "n") + ", " +
          node("mul", R"("d", "n")", "g") + ", " + node("sum", "\"g\"", "dg", R"("axis": 0)") + ", " +
          node("mul", R"("d", "w")", "dw") + ", " + node("mul", R"("dw", "n")", "h") + ", " +
          node("mean", "\"h\"", "c", R"("axis": 1, "keepdim": true)") + ", " + node("mul", R"("n", "c")", "nc") + ", " +
          node("sub", R"("dw", "nc")", "s") + ", " + node("mul", R"("s", "r")", "y"),
      kResult + R"(, "dg": {"dtype": "float32"})");
  int64_t whole = 0;   // matrices in the workspace
  for (const Buffer& b : plan.buffers) whole += b.kind == Buffer::Kind::kWorkspace && b.dims.elements() == int64_t{4096} * 4096;
  CHECK(whole == 0);
  check_emulations(cases.all, cases.names, compiler, 1.0, true);
}

TEST_CASE("products over four elements, and sums of four, are slices") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) {
    WARN("skipped: there is no host compiler");
    return;
  }
  Built cases;
  // streams of a residual, mixed by a matrix each
  const Plan& plan = cases.add_reduced("mix", input("h", "2048, 4, 1024") + ", " + input("r", "2048, 4, 4") + ", " +
                                                  input("f", "2048, 1, 1024"),
                                       node("matmul", R"("r", "h")", "m") + ", " + node("add", R"("m", "f")", "y"), kResult);
  CHECK(plan.kernels.size() == 1);
  CHECK(plan.passes == std::vector{Pass::kShort});
  const Plan& sum = cases.add_reduced("sum", input("h", "2048, 4, 1024") + ", " + input("g", "2048, 4, 1"),
                                      node("mul", R"("h", "g")", "m") + ", " + node("sum", "\"m\"", "y", R"("axis": 1)"), kResult);
  CHECK(sum.kernels.size() == 1);
  CHECK(sum.passes == std::vector{Pass::kShort});
  const Plan& most = cases.add_reduced("maximum", input("h", "512, 8, 64, 128"), node("max", "\"h\"", "y", R"("axis": 1)"), kResult);
  CHECK(most.kernels.size() == 1);
  check_emulations(cases.all, cases.names, compiler, 1.0, true);
}

TEST_CASE("a norm's gain is multiplied by the weights where these are fewer") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) {
    WARN("skipped: there is no host compiler");
    return;
  }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> all;
  std::vector<std::string> names;
  for (const std::string dtype : {"bf16", "f16"}) {
    const std::string type = dtype == "f16" ? "float16" : "bfloat16";
    const Program p = program_of(
        fmt::format(R"({{"version": "1.0", "name": "router", "inputs": {{{}, {}, {}}}, "nodes": [{}, {}, {}, {}, {}, {}, {}], )"
                    R"("outputs": {{"y": {{"dtype": "{}"}}}}}})",
                    input("x", "2048, 4096", type), input("g", "4096", type), input("w", "4096, 64", type), node("square", "\"x\"", "q"),
                    node("mean", "\"q\"", "m", R"("axis": 1, "keepdim": true)"), node("add", R"("m", 1e-6)", "e"),
                    node("rsqrt", "\"e\"", "r"), node("mul", R"("x", "r")", "n"), node("mul", R"("n", "g")", "h"),
                    node("matmul", R"("h", "w")", "y"), type),
        "router");
    const auto graph = parse_graph(fmt::format(
        "kernel router {{ %0 = input 0 : {0}[2048,4096] %1 = input 1 : {0}[4096] %2 = input 2 : {0}[4096,64] "
        "%3 = call grid(4,64,1) loop(64) (%0, %1, %2) {{ %0 = input 0 grid(-,0,-) loop(1) : {0}[32,64] %1 = input 1 grid(-,-,-) loop(0) : "
        "{0}[64] %2 = input 2 grid(1,-,-) loop(0) : {0}[64,16] %3 = const 4096 extent 0.1 %4 = const 1e-06 %5 = mul %0 %0 %6 = mul %0 %1 "
        "%7 = reduce.sum 1 %5 %8 = matmul %6 %2 %9 = accum.sum %7 %10 = accum.sum %8 %11 = div %9 %3 %12 = add %4 %11 %13 = rsqrt %12 "
        "%14 = mul %10 %13 output 0 %14 grid(1,0,-) : {0} }} output 0 %3 : {0} }}",
        dtype));
    REQUIRE(graph);
    const Planned full = make_plan(p, *graph, target), without_it = make_plan(p, *graph, without(target, Pass::kGains));
    INFO(full.reason);
    REQUIRE((full.plan && without_it.plan));
    REQUIRE(!full.plan->passes.empty());
    CHECK(full.plan->passes.front() == Pass::kGains);
    CHECK(full.plan->predicted_us < 0.8 * without_it.plan->predicted_us);
    for (const PassStep& s : pass_steps(p, *graph, target, *full.plan)) CHECK(!check_laws(s.graph));
    for (bool tails : {false, true}) {
      const Reduced small = reduce_plan(p, *full.plan, target, tails);
      INFO(small.refusal << small.differs);
      REQUIRE(small.plan);
      all.push_back(case_of(*small.program, *small.plan, target, fmt::format("c{}_", all.size())));
      names.push_back(dtype);
    }
  }
  check_emulations(all, names, compiler, 1.0, true);
}

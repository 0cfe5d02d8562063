// Attention whose operands have gains per feature (rms_norm with a weight, of Q and of K) or per column, on the CPU: Q is multiplied in the
// kernel, by K's gains, too. Warps with rings of their own, one and more warpgroups along queries and keys, rows that are padded, logits
// that are more than scaled scores, float16 rows that only fit scaled.
#include <variant>

#include <fmt/format.h>

#include "emulate/run_all.h"
#include "plan/attend/attend_plan.h"
#include "plan/block/block_plan.h"
#include "mirage/spec/text.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

namespace {

struct Division { bool warp_rings; int query_groups, key_groups, chunk, cluster; };

/// A causal or capped attention of 2 batches; `norm`: Q's and K's rows are normed, else they only have gains.
std::string graph_text(int queries, int keys, int features, const char* dtype, bool norm, const std::string& logit) {
  const auto normed = [&](const char* x) {
    return norm ? fmt::format("(div {} (sqrt (add (div (reduce.sum 2 (square {})) {}) 1e-06)))", x, x, features) : std::string(x);
  };
  const bool masks = logit.find("%x") != std::string::npos;
  return fmt::format(
      "kernel gains {{\n  %q = input 0 : {1}[2,{2},{4}]\n  %k = input 1 : {1}[2,{3},{4}]\n  %v = input 2 : {1}[2,{3},64]\n  %g = input 3 : "
      "{1}[{4}]\n  %h = input 4 : {1}[{4}]\n  %u = input 5 : {1}[64]\n"
      "{8}  %o = call grid(2,1,1) loop({0}) (%q, %k, %v, %g, %h, %u{9}) {{\n    %a = input 0 grid(0,-,-) : {1}[1,{2},{4}]\n    %b = input "
      "1 grid(0,-,-) loop(1) : {1}[1,32,{4}]\n"
      "    %w = input 2 grid(0,-,-) loop(1) : {1}[1,32,64]\n    %c = input 3 grid(-,-,-) : {1}[{4}]\n    %d = input 4 grid(-,-,-) : "
      "{1}[{4}]\n    %e = input 5 grid(-,-,-) : {1}[64]\n"
      "{10}    %s = mul (matmul (mul %c {5}) (transpose (0,2,1) (mul {6} %d))) 0.125\n    %z = {7}\n"
      "    %m = running (reduce.max 2 %z)\n    %p = exp (sub %z %m)\n    %l = accum.sum rescaled 1 (reduce.sum 2 %p) %m\n    %r = "
      "accum.sum rescaled 1 (matmul %p (mul %e %w)) %m\n    output 0 (div %r %l) grid(0,-,-) : {1}\n  }}\n"
      "  output 0 %o : {1}\n}}\n",
      (keys + 31) / 32, dtype, queries, keys, features, normed("%a"), normed("%b"), logit,
      masks ? fmt::format("  %i = iota 1 [1,{}]\n  %j = iota 0 [{},1]\n", keys, queries) : "", masks ? ", %i, %j" : "",
      masks ? fmt::format(
                  "    %x = input 6 grid(-,-,-) loop(1) : real[1,32]\n    %y = input 7 grid(-,-,-) : real[{},1]\n    %n = const -inf\n",
                  queries)
            : "");
}

/// The same as a spec, which is what the kernels are compared with.
std::string spec_text(int queries, int keys, int features, const std::string& type, bool norm, const std::string& logit) {
  const auto gained = [&](const char* x, const char* gain, const char* to) {
    return norm ? fmt::format(R"({{"op": "rms_norm", "inputs": ["{}", "{}"], "output": "{}", "attrs": {{"axis": -1, "eps": 1e-06}}}})", x,
                              gain, to)
                : fmt::format(R"({{"op": "mul", "inputs": ["{}", "{}"], "output": "{}"}})", x, gain, to);
  };
  const std::string between =
      logit.rfind("where") == 0 ? R"({"op": "causal_mask", "inputs": ["t"], "output": "z"})"
      : logit.find("tanh") != std::string::npos
          ? R"({"op": "mul", "inputs": ["t", 0.1], "output": "t1"}, {"op": "tanh", "inputs": ["t1"], "output": "t2"}, )"
            R"({"op": "mul", "inputs": ["t2", 10], "output": "z"})"
          : R"({"op": "mul", "inputs": ["t", 1], "output": "z"})";
  return fmt::format(
      R"({{"version": "1.0", "name": "gains", "axes": {{"Q": {{"type": "const", "value": {0}}}, "S": {{"type": "const", "value": {1}}}, "D": {{"type": "const", "value": {2}}}}},
      "inputs": {{"q": {{"shape": [2, "Q", "D"], "dtype": "{3}"}}, "k": {{"shape": [2, "S", "D"], "dtype": "{3}"}}, "v": {{"shape": [2, "S", 64], "dtype": "{3}"}}, "g": {{"shape": ["D"], "dtype": "{3}"}}, "h": {{"shape": ["D"], "dtype": "{3}"}},
      "u": {{"shape": [64], "dtype": "{3}"}}}}, "outputs": {{"o": {{"shape": [2, "Q", 64], "dtype": "{3}"}}}},
      "nodes": [{4}, {5}, {{"op": "mul", "inputs": ["v", "u"], "output": "c"}}, {{"op": "matmul", "inputs": ["a", "b"], "output": "s", "attrs": {{"transpose_b": true}}}}, {{"op": "mul", "inputs": ["s", 0.125], "output": "t"}}, {6},
      {{"op": "softmax", "inputs": ["z"], "output": "p", "attrs": {{"axis": -1}}}}, {{"op": "matmul", "inputs": ["p", "c"], "output": "o"}}]}})",
      queries, keys, features, type, gained("q", "g", "a"), gained("k", "h", "b"), between);
}

}  // namespace

TEST_CASE("attention with gains is right on the CPU") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  const auto add = [&](int queries, int keys, int features, const char* dtype, bool norm, const std::string& logit, Division d) {
    const std::string text = graph_text(queries, keys, features, dtype, norm, logit),
                      type = std::string(dtype) == "f16" ? "float16" : "bfloat16";
    const auto g = parse_graph(text);
    INFO(text << (g ? "" : g.errors()[0].text));
    REQUIRE(g);
    const Program p = program_of(spec_text(queries, keys, features, type, norm, logit), "gains");
    const Planned planned = make_plan(p, *g, target);
    REQUIRE(planned.plan);
    REQUIRE(planned.plan->kernels.size() == 1);
    const auto chosen = plan_in<AttendPlan>(planned.plan->kernels[0].body);
    REQUIRE(chosen);
    CHECK((*chosen)->query_gains());
    CHECK((*chosen)->shape.k.gains.size() == 1);
    CHECK((*chosen)->shape.v.gains.size() == 1);
    for (const AttendPlan& a : attend_candidates((*chosen)->body, (*chosen)->operands, (*chosen)->results, target).plans)
      if (a.warp_rings == d.warp_rings && a.query_groups == d.query_groups && a.key_groups == d.key_groups && a.chunk == d.chunk &&
          a.cluster == d.cluster && a.blocks_per_sm == 1 && a.meets == 1) {
        Plan plan = *planned.plan;
        plan.kernels[0].body = body_with<AttendPlan>(a);
        cases.push_back(case_of(p, plan, target, fmt::format("c{}_", cases.size())));
        names.push_back(fmt::format("{} queries, {} keys, {} features, {}, {}, {} x {}, chunk {}, cluster {}", queries, keys, features,
                                    dtype, logit, d.query_groups, d.key_groups, d.chunk, d.cluster));
        return;
      }
    FAIL("no such division: " << queries << " queries, " << keys << " keys");
  };
  add(5, 300, 80, "f16", true, "mul %s 1", {true, 1, 4, 32, 1});
  add(16, 512, 64, "bf16", true, "mul %s 1", {true, 1, 4, 64, 1});
  add(9, 256, 64, "f16", false, "mul (tanh (mul %s 0.1)) 10", {true, 1, 4, 32, 2});
  add(40, 256, 80, "f16", true, "mul %s 1", {false, 1, 2, 64, 1});
  add(130, 200, 64, "bf16", true, "mul (tanh (mul %s 0.1)) 10", {false, 2, 1, 64, 1});
  add(130, 130, 64, "f16", false, "where (greater %x %y) %n %s", {false, 1, 1, 64, 2});
  check_emulations(cases, names, compiler, 0.5, false);
  // wgmma reads rows of Q that threads have multiplied
  CHECK(found_without(cases[3], "MO_FN void attend_loop", "fence_async_proxy();", compiler) == "missing proxy fence");
}

// Attention with many features (runtime/67_attend_wide.cuh) on the CPU, in every division of the keys: over chunks, blocks of a cluster,
// clusters that meet; values that are columns of the keys, and values of their own. And what the other attention kernels have of it:
// clusters that meet, 256 columns.
#include <variant>

#include <fmt/format.h>

#include "mirage/plan/bound.h"
#include "emulate/run_all.h"
#include "plan/attend/attend_plan.h"
#include "plan/block/block_plan.h"
#include "mirage/spec/text.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

namespace {

enum class Kind { kWide, kGroups, kRings };

/// `p`'s graph as one attention kernel of the given numbers.
EmulationCase with_plan(const Program& p, Plan plan, const AttendPlan& a, const Target& target, const std::string& prefix) {
  REQUIRE(plan.kernels.size() == 1);
  plan.kernels[0].body = body_with<AttendPlan>(a);
  std::erase_if(plan.buffers, [](const Buffer& b) { return b.slots; });
  plan.kernels[0].slots = -1;
  if (a.slot_bytes > 0) {
    Buffer b;
    b.dims = {a.slot_bytes / 4};
    b.strides = {1};
    b.slots = true;
    plan.kernels[0].slots = static_cast<int>(plan.buffers.size());
    plan.workspace_bytes = a.slot_bytes;
    plan.buffers.push_back(b);
  }
  return case_of(p, plan, target, prefix);
}

/// Every division of a kernel that is attention, whatever it was planned as.
AttendCandidates divisions(const KernelPlan& k, const Target& target) {
  const KernelCall& call = bound_calls(k)[0];
  return attend_candidates(call.body, call.operands, call.results, target);
}

/// Attention as a running softmax over tiles of 32 keys; k holds the values as well, or v is an input of its own.
std::string kernel(int heads, int keys, int features, int from, int columns, const std::string& dtype, bool shared, int batch) {
  const std::string t = dtype == "float16" ? "f16" : "bf16", lead = batch > 1 ? fmt::format("{},", batch) : "", one = batch > 1 ? "1," : "";
  const int d = batch > 1 ? 1 : 0;   // the first dimension behind the batch
  const std::string grid = batch > 1 ? "0" : "-";
  return fmt::format(
      "kernel wide {{\n  %q = input 0 : {0}[{1}{2},{3}]\n  %c = input 1 : {0}[{1}{4},{3}]\n{5}  %t = transpose ({6}) %c\n  %o = call "
      "grid({7},1,1) loop({8}) (%q, %t, %v) {{\n"
      "    %a = input 0 grid({9},-,-) : {0}[{10}{2},{3}]\n    %b = input 1 grid({9},-,-) loop({11}) : {0}[{10}{3},32]\n    %w = input 2 "
      "grid({9},-,-) loop({12}) : {0}[{10}32,{13}]\n"
      "    %s = mul (matmul %a %b) 0.07\n    %m = running (reduce.max {11} %s)\n    %p = exp (sub %s %m)\n    %l = accum.sum rescaled 1 "
      "(reduce.sum {11} %p) %m\n"
      "    %r = accum.sum rescaled 1 (matmul %p %w) %m\n    output 0 (div %r %l) grid({9},-,-) : {0}\n  }}\n  output 0 %o : {0}\n}}\n",
      t, lead, heads, features, keys,
      shared ? fmt::format("  %v = slice {} {}:{}:1 %c\n", d + 1, from, from + columns)
             : fmt::format("  %v = input 2 : {}[{}{},{}]\n", t, lead, keys, columns),
      batch > 1 ? "0,2,1" : "1,0", batch, (keys + 31) / 32, grid, one, d + 1, d, columns);
}

std::string spec(int heads, int keys, int features, int from, int columns, const std::string& dtype, bool shared, int batch) {
  const std::string lead = batch > 1 ? "\"B\", " : "";
  return fmt::format(
      R"({{"version": "1.0", "name": "wide", "axes": {{"B": {{"type": "const", "value": {}}}, "H": {{"type": "const", "value": {}}}, "S": {{"type": "const", "value": {}}}, "D": {{"type": "const", "value": {}}}, "V": {{"type": "const", "value": {}}}}},
    "inputs": {{"q": {{"shape": [{}"H", "D"], "dtype": "{}"}}, "c": {{"shape": [{}"S", "D"], "dtype": "{}"}}{}}}, "outputs": {{"o": {{"shape": [{}"H", "V"], "dtype": "{}"}}}},
    "nodes": [{{"op": "matmul", "inputs": ["q", "c"], "output": "s", "attrs": {{"transpose_b": true}}}}, {{"op": "mul", "inputs": ["s", 0.07], "output": "t"}}, {{"op": "softmax", "inputs": ["t"], "output": "p", "attrs": {{"axis": -1}}}},
      {} {{"op": "matmul", "inputs": ["p", "v"], "output": "o"}}]}})",
      batch, heads, keys, features, columns, lead, dtype, lead, dtype,
      shared ? "" : fmt::format(R"(, "v": {{"shape": [{}"S", "V"], "dtype": "{}"}})", lead, dtype), lead, dtype,
      shared ? fmt::format(R"({{"op": "slice", "inputs": ["c"], "output": "v", "attrs": {{"axis": {}, "start": {}, "stop": {}}}}},)",
                           batch > 1 ? 2 : 1, from, from + columns)
             : "");
}

}  // namespace

TEST_CASE("attention with many features is right on the CPU") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  const auto add = [&](int heads, int keys, int features, int from, int columns, const std::string& dtype, bool shared, int batch,
                       int chunk, int cluster, int meets, int stages, const char* what, Kind kind = Kind::kWide) {
    const Program p = program_of(spec(heads, keys, features, from, columns, dtype, shared, batch), what);
    const auto g = parse_graph(kernel(heads, keys, features, from, columns, dtype, shared, batch));
    INFO(what << (g ? "" : g.errors()[0].text));
    REQUIRE(g);
    const Planned planned = make_plan(p, *g, target);
    REQUIRE(planned.plan);
    const AttendCandidates all = divisions(planned.plan->kernels[0], target);
    INFO(all.reason);
    CHECK(!all.plans.empty());
    for (const AttendPlan& a : all.plans)
      if (kind == (a.wide         ? Kind::kWide
                   : a.warp_rings ? Kind::kRings
                                  : Kind::kGroups) &&
          a.chunk == chunk && a.cluster == cluster && a.meets == meets && a.stages == stages) {
        if (a.wide) CHECK((a.value_boxes == 0) == shared);
        cases.push_back(with_plan(p, *planned.plan, a, target, fmt::format("c{}_", cases.size())));
        names.push_back(what);
        break;
      }
  };
  add(16, 256, 192, 0, 128, "float16", true, 1, 32, 4, 2, 1, "values are the first columns of the keys, two clusters meet");
  add(16, 500, 192, 64, 128, "bfloat16", true, 2, 64, 2, 2, 2, "a slice behind the first box, ragged keys, batches");
  add(5, 256, 320, 0, 256, "float16", true, 1, 32, 2, 1, 3, "few queries, refilled stages, one cluster");
  add(20, 160, 136, 0, 136, "bfloat16", false, 1, 32, 1, 1, 2, "values of their own, two tiles of queries, no cluster");
  add(40, 500, 64, 0, 64, "float16", false, 1, 64, 2, 2, 2, "warpgroups, two clusters meet, ragged keys", Kind::kGroups);
  add(4, 1000, 128, 0, 128, "bfloat16", false, 1, 32, 2, 2, 1, "warps with rings, two clusters meet", Kind::kRings);
  add(5, 1000, 64, 0, 64, "float16", false, 2, 32, 1, 4, 1, "warps with rings, four blocks meet without a cluster", Kind::kRings);
  add(16, 500, 64, 0, 128, "bfloat16", false, 1, 32, 1, 2, 2, "two blocks meet, each row in more slots than it has warps", Kind::kRings);
  add(40, 300, 200, 0, 256, "bfloat16", false, 1, 64, 1, 1, 2, "warpgroups with 256 columns, refilled stages", Kind::kGroups);
  CHECK(cases.size() == 9);
  // Parts that are not bounded travel in float32: two slots for four columns.
  const Program p = program_of(spec(5, 1000, 64, 0, 64, "float16", false, 2), "float32 parts");
  const auto g = parse_graph(kernel(5, 1000, 64, 0, 64, "float16", false, 2));
  REQUIRE(g);
  const Planned planned = make_plan(p, *g, target);
  REQUIRE(planned.plan);
  for (AttendPlan a : divisions(planned.plan->kernels[0], target).plans)
    if (a.warp_rings && a.cluster == 1 && a.meets == 4 && a.chunk == 32 && a.stages == 1 && cases.size() == 9) {
      REQUIRE(a.narrow_parts);
      a.narrow_parts = false;
      a.slot_bytes *= 2;
      cases.push_back(with_plan(p, *planned.plan, a, target, "parts_"));
      names.push_back("float32 parts");
    }
  CHECK(cases.size() == 10);
  check_emulations(cases, names, compiler, 0.5, true);
}

TEST_CASE("a partial result of wide attention is rounded to 16 bits at most once", "[bugs]") {
  // Within the cluster and again where clusters meet, mla had 1.27 times the error of node by node, and decoding with 256 features in
  // bfloat16 1.29 times.
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  const Program p = program_of(spec(16, 512, 192, 0, 256, "bfloat16", false, 1), "wide");
  const auto g = parse_graph(kernel(16, 512, 192, 0, 256, "bfloat16", false, 1));
  REQUIRE(g);
  const Planned planned = make_plan(p, *g, target);
  REQUIRE(planned.plan);
  std::vector<EmulationCase> cases;   // as planned, and with parts in float32
  for (AttendPlan a : divisions(planned.plan->kernels[0], target).plans)
    if (a.wide && a.chunk == 32 && a.cluster == 4 && a.meets == 4 && a.stages == 1 && cases.empty()) {
      CHECK(a.narrow_parts);
      cases.push_back(with_plan(p, *planned.plan, a, target, "narrow_"));
      AttendPlan exact = a;
      exact.narrow_parts = false;
      const int64_t more = int64_t{16} * a.columns * 2;
      exact.barriers_at += more, exact.smem_bytes += more;
      exact.slot_bytes *= 2;
      cases.push_back(with_plan(p, *planned.plan, exact, target, "exact_"));
    }
  REQUIRE(cases.size() == 2);
  const EmulationLibrary lib = build_emulation({&cases[0], &cases[1]}, compiler, emulation_folder());
  INFO(lib.error);
  REQUIRE(lib.error.empty());
  double error[2] = {0, 0};
  for (size_t i = 0; i < 2; i++)
    for (uint64_t seed = 1; seed <= 4; seed++) {
      const EmulationOutcome o = run_emulation(cases[i], lib.path, EmulationMode::kFloat, seed);
      INFO(o.reason);
      REQUIRE(o.ok);
      error[i] += o.distance.norm_units / 4;
    }
  INFO("errors in unit roundoffs: " << error[0] << ", with parts in float32 " << error[1]);
  CHECK(error[0] > 1.02 * error[1]);   // in the cluster; both times made 1.8
  CHECK(error[0] < 1.6 * error[1]);
}

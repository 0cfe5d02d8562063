// Attention over a cache and the keys that are appended to it, neither of them copied (plan/passes/parts.cc), on the CPU: ends of either
// part inside a chunk, masks by position over all keys, a bias per query and key, norms of keys, keys that lie transposed, both 16-bit
// types, each way that a kernel divides the work; and mistakes at the seam, which must be found.
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

enum class Kind { kWarps, kGroups, kWide };

struct Shape {
  Kind kind = Kind::kGroups;
  int queries = 64, cached = 40, added = 6, key_groups = 1, chunk = 64, cluster = 1;
  const char* type = "f16";
  std::string mask = "";                        ///< of positions %x (keys) and %y (queries), of logits %f; none: no mask
  bool bias = false, normed = false, turned = false;
  int features = 64, columns = 64;
  bool shared = false, made = false;            ///< values are columns of the keys; new keys are made by a kernel ahead
  int keys() const { return cached + added; }
  std::string key_dims(int count) const { return turned ? fmt::format("{},{}", features, count) : fmt::format("{},{}", count, features); }
};

/// Inputs and outputs; what it computes is the graph's business.
std::string spec_of(const Shape& a) {
  const char* type = a.type[0] == 'f' ? "float16" : "bfloat16";
  return fmt::format(
      R"({{"version": "1.0", "name": "parts", "inputs": {{"q": {{"shape": [2, {0}, {1}], "dtype": "{2}"}}, "c": {{"shape": [2, {3}], "dtype": "{2}"}}, "d": {{"shape": [2, {4}, {5}], "dtype": "{2}"}},
    "n": {{"shape": [2, {8}], "dtype": "{2}"}}, "w": {{"shape": [2, {6}, {5}], "dtype": "{2}"}}, "b": {{"shape": [{0}, {7}], "dtype": "{2}"}}}}, "outputs": {{"o": {{"dtype": "{2}"}}}},
    "nodes": [{{"op": "concat", "inputs": ["d", "w"], "output": "v", "attrs": {{"axis": 1}}}}, {{"op": "sum", "inputs": ["n"], "output": "s"}}, {{"op": "sum", "inputs": ["q"], "output": "r"}}, {{"op": "add", "inputs": ["r", "s"], "output": "t"}},
    {{"op": "sum", "inputs": ["c"], "output": "u"}}, {{"op": "sum", "inputs": ["v"], "output": "x"}}, {{"op": "sum", "inputs": ["b"], "output": "y"}}, {{"op": "add", "inputs": ["u", "x"], "output": "z"}}, {{"op": "add", "inputs": ["z", "y"], "output": "g"}},
    {{"op": "add", "inputs": ["t", "g"], "output": "h"}}, {{"op": "expand", "inputs": ["h"], "output": "o", "attrs": {{"shape": [2, {0}, {5}]}}}}]}})",
      a.queries, a.features, type, a.key_dims(a.cached), a.cached, a.columns, a.added, a.keys(), a.key_dims(a.added));
}

std::string graph_of(const Shape& a) {
  std::string text = fmt::format(
      "kernel parts {{\n  %q = input 0 : {0}[2,{1},{2}]\n  %c = input 1 : {0}[2,{3}]\n  %d = input 2 : {0}[2,{4},{5}]\n  %n = input 3 : "
      "{0}[2,{7}]\n  %w = input 4 : {0}[2,{6},{5}]\n",
      a.type, a.queries, a.features, a.key_dims(a.cached), a.cached, a.columns, a.added, a.key_dims(a.added));
  if (a.made) text += fmt::format("  %nn = cast_{} (mul %n 0.5)\n", a.type);
  const char* added = a.made ? "%nn" : "%n";
  text += a.turned ? fmt::format("  %k = concat 2 %c {}\n", added)
                   : fmt::format("  %kn = concat 1 %c {}\n  %k = transpose (0,2,1) %kn\n", added);
  text += a.shared ? fmt::format("  %v = slice 2 0:{} %kn\n", a.columns) : "  %v = concat 1 %d %w\n";
  std::string operands = "%q, %k, %v", more;
  if (!a.mask.empty()) {
    text += fmt::format("  %i = iota 1 [1,{0}]\n  %j = iota 0 [{1},1]\n", a.keys(), a.queries);
    operands += ", %i, %j";
    more += fmt::format(
        "    %x = input 3 grid(-,-,-) loop(1) : real[1,32]\n    %y = input 4 grid(-,-,-) : real[{},1]\n    %e = const -inf\n", a.queries);
  }
  if (a.bias) {
    text += fmt::format("  %g = input 5 : {}[{},{}]\n", a.type, a.queries, a.keys());
    more += fmt::format("    %h = input {} grid(-,-,-) loop(1) : {}[{},32]\n", a.mask.empty() ? 3 : 5, a.type, a.queries);
    operands += ", %g";
  }
  text += fmt::format(
      "  %o = call grid(2,1,1) loop({0}) ({1}) {{\n    %a = input 0 grid(0,-,-) : {2}[1,{3},{4}]\n    %b = input 1 grid(0,-,-) loop(2) : "
      "{2}[1,{4},32]\n    %u = input 2 grid(0,-,-) loop(1) : {2}[1,32,{5}]\n{6}",
      (a.keys() + 31) / 32, operands, a.type, a.queries, a.features, a.columns, more);
  text += a.normed ? "    %rn = sqrt (add (reduce.sum 1 (square %b)) 0.5)\n    %s = mul (matmul %a (div %b %rn)) 0.125\n"
                   : "    %s = mul (matmul %a %b) 0.125\n";
  text += fmt::format("    %f = {}\n    %z = {}\n", a.bias ? "add %s %h" : "mul %s 0.5", a.mask.empty() ? "mul %f 2" : a.mask);
  return text +
         fmt::format(
             "    %m = running (reduce.max 2 %z)\n    %p = exp (sub %z %m)\n    %l = accum.sum rescaled 1 (reduce.sum 2 %p) %m\n    %r = "
             "accum.sum rescaled 1 (matmul %p %u) %m\n    output 0 (div %r %l) grid(0,-,-) : {0}\n  }}\n  output 0 %o : {0}\n}}\n",
             a.type);
}

bool is_kind(const AttendPlan& p, Kind kind) { return kind == Kind::kWide ? p.wide : !p.wide && p.warp_rings == (kind == Kind::kWarps); }

/// The plan with its last kernel, which is attention, divided as asked.
EmulationCase divided(const Program& p, Plan plan, Kind kind, int key_groups, int chunk, int cluster, const std::string& prefix) {
  const Target target = *find_target("sm_90a");
  KernelPlan& last = plan.kernels.back();
  const AttendPlan own = **plan_in<AttendPlan>(last.body);
  for (const AttendPlan& c : attend_candidates(own.body, own.operands, own.results, target).plans)
    if (is_kind(c, kind) && (kind == Kind::kWide || c.key_groups == key_groups) && c.chunk == chunk && c.cluster == cluster &&
        c.meets == 1 && c.blocks_per_sm == 1 && c.query_groups == 1) {
      std::erase_if(plan.buffers, [](const Buffer& b) { return b.slots; });
      last.slots = -1;
      last.body = body_with<AttendPlan>(c);
      return case_of(p, plan, target, prefix);
    }
  FAIL("no such division");
  return {};
}

/// The plan that reads both parts where they lie, divided as asked.
EmulationCase case_of_shape(const Shape& a, const std::string& prefix) {
  const Target target = *find_target("sm_90a");
  Program p = program_of(spec_of(a), "parts");
  const auto g = parse_graph(graph_of(a));
  INFO(graph_of(a) << (g ? "" : g.errors()[0].text));
  REQUIRE(g);
  p.graph = *g;
  const Planned planned = make_plan(p, *g, target);
  REQUIRE(planned.plan);
  INFO(print(*planned.plan));
  REQUIRE(planned.plan->kernels.size() == (a.made ? 2 : 1));   // nobody copies the cache
  const size_t last = planned.plan->kernels.size() - 1;
  const auto chosen = plan_in<AttendPlan>(planned.plan->kernels[last].body);
  REQUIRE(chosen);
  CHECK((*chosen)->shape.first_keys == a.cached);
  return divided(p, *planned.plan, a.kind, a.key_groups, a.chunk, a.cluster, prefix);
}

/// The first way in which a case with one more mistake is found; "": it is not.
std::string found_with(EmulationCase c, const std::string& right, const std::string& wrong, const std::string& compiler) {
  c.runtime = runtime_text();
  std::string& text = c.kernels[0].source.find(right) != std::string::npos ? c.kernels[0].source : c.runtime;
  const size_t at = text.find(right);
  REQUIRE(at != std::string::npos);
  text.replace(at, right.size(), wrong);
  const EmulationLibrary lib = build_emulation({&c}, compiler, emulation_folder());
  INFO(lib.error);
  REQUIRE(lib.error.empty());
  for (EmulationMode m : {EmulationMode::kField, EmulationMode::kFloat})
    if (const EmulationOutcome o = run_emulation(c, lib.path, m, 1); !o.ok) return "found";
  return "";
}

}  // namespace

TEST_CASE("attention over a cache and new keys reads both where they lie") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const auto causal = [](int offset) { return fmt::format("where (greater %x (add %y {})) %e %f", offset); };
  const std::vector<Shape> shapes = {
      {Kind::kWarps, 1, 2047, 1, 8, 64},
      {Kind::kWarps, 4, 300, 6, 4, 32, 2, "bf16", causal(302)},
      {Kind::kWarps, 8, 256, 130, 4, 64, 1, "f16", "", true},
      {Kind::kWarps, 5, 301, 5, 4, 32, 1, "f16", "", false, true},
      {Kind::kGroups, 64, 40, 130, 1, 64, 1, "f16", causal(106)},
      {Kind::kGroups, 100, 128, 100, 2, 64, 1, "f16", "where (less %x (sub (add %y 128) 40)) %e (where (greater %x (add %y 128)) %e %f)"},
      {Kind::kGroups, 64, 200, 6, 2, 64, 2, "bf16", "", true},
      {Kind::kGroups, 64, 204, 70, 1, 128, 1, "f16", "", false, true},
      {Kind::kGroups, 64, 200, 8, 1, 64, 1, "f16", "", false, false, true},
      {Kind::kWide, 4, 70, 3, 1, 32, 1, "bf16", "", true, false, false, 192, 256},
      {Kind::kWide, 1, 70, 5, 1, 32, 1, "bf16", "", true, false, false, 192, 256},   // what each key adds is read where it is needed
      {Kind::kWide, 4, 70, 6, 1, 32, 2, "f16", "", false, false, false, 320, 256, true},
      {Kind::kWarps, 4, 100, 4, 4, 32, 1, "f16", "", false, false, false, 64, 64, false, true},
  };
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  for (const Shape& s : shapes) {
    names.push_back(
        fmt::format("{} queries, {} and {} keys, chunk {}, kind {}", s.queries, s.cached, s.added, s.chunk, static_cast<int>(s.kind)));
    INFO(names.back());
    cases.push_back(case_of_shape(s, fmt::format("c{}_", cases.size())));
  }
  check_emulations(cases, names, compiler, 0.5, false);
}

TEST_CASE("mistakes at the seam between a cache and new keys are found") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  for (const Shape& s : {Shape{Kind::kWarps, 4, 140, 6, 4, 32}, Shape{Kind::kGroups, 64, 140, 6}}) {
    const EmulationCase c = case_of_shape(s, "m_");
    // the second part's offset
    CHECK(found_with(c, "key -= kFirstKeys;", "key -= kFirstKeys - 1;", compiler) == "found");
    // the first part's end
    CHECK(found_with(c, "return key0 < P::kFirstKeys ? P::kFirstKeys : P::kKeys;", "return P::kKeys;", compiler) == "found");
    // numbers of the second part's keys
    CHECK(found_with(c, "P::kFirstKeys + (at - kFirstChunks) * P::kChunk", "at * P::kChunk", compiler) == "found");
  }
}

namespace {

/// Scores that are two products added, each over features of its own.
struct Sum {
  Kind kind = Kind::kGroups;
  int queries = 64, keys = 100, first = 64, second = 64, key_groups = 1, chunk = 64;
  bool one_for_all = false;   ///< the second product's keys are the same for both batches
  bool spelled = false;       ///< the spec joins the operands itself
  int columns = 64;
  bool shared = false;        ///< values are columns of the first product's keys
  int batches() const { return one_for_all ? 1 : 2; }
};

std::string sum_spec(const Sum& a) {
  return fmt::format(
      R"({{"version": "1.0", "name": "sum", "inputs": {{"q": {{"shape": [2, {0}, {1}], "dtype": "float16"}}, "k": {{"shape": [2, {2}, {1}], "dtype": "float16"}}, "p": {{"shape": [2, {0}, {3}], "dtype": "float16"}}, "r": {{"shape": [{4}, {2}, {3}], "dtype": "float16"}}, "w": {{"shape": [2, {2}, {5}], "dtype": "float16"}}}},
    "outputs": {{"o": {{"dtype": "float16"}}}},
    "nodes": [{{"op": "sum", "inputs": ["q"], "output": "a"}}, {{"op": "sum", "inputs": ["k"], "output": "b"}}, {{"op": "sum", "inputs": ["p"], "output": "c"}}, {{"op": "sum", "inputs": ["r"], "output": "d"}}, {{"op": "sum", "inputs": ["w"], "output": "e"}},
    {{"op": "add", "inputs": ["a", "b"], "output": "f"}}, {{"op": "add", "inputs": ["c", "d"], "output": "g"}}, {{"op": "add", "inputs": ["f", "g"], "output": "h"}}, {{"op": "add", "inputs": ["h", "e"], "output": "x"}},
    {{"op": "expand", "inputs": ["x"], "output": "o", "attrs": {{"shape": [2, {0}, {5}]}}}}]}})",
      a.queries, a.first, a.keys, a.second, a.batches(), a.columns);
}

std::string sum_graph(const Sum& a) {
  std::string text = fmt::format(
      "kernel sum {{\n  %q = input 0 : f16[2,{0},{1}]\n  %kn = input 1 : f16[2,{2},{1}]\n  %p = input 2 : f16[2,{0},{3}]\n  %rn = "
      "input 3 : f16[{4},{2},{3}]\n  %w = input 4 : f16[2,{2},{5}]\n",
      a.queries, a.first, a.keys, a.second, a.batches(), a.columns);
  if (a.spelled) text += "  %qp = concat 2 %q %p\n  %kj = concat 2 %kn %rn\n  %k = transpose (0,2,1) %kj\n";
  else text += "  %k = transpose (0,2,1) %kn\n  %r = transpose (0,2,1) %rn\n";
  if (a.shared) text += fmt::format("  %v = slice 2 0:{} %kn\n", a.columns);
  text += fmt::format("  %o = call grid(2,1,1) loop({}) ({}, {}) {{\n", (a.keys + 31) / 32, a.spelled ? "%qp, %k" : "%q, %k, %p, %r",
                      a.shared ? "%v" : "%w");
  const int features = a.spelled ? a.first + a.second : a.first;
  text += fmt::format("    %a = input 0 grid(0,-,-) : f16[1,{0},{1}]\n    %b = input 1 grid(0,-,-) loop(2) : f16[1,{1},32]\n", a.queries,
                      features);
  if (!a.spelled)
    text += fmt::format("    %c = input 2 grid(0,-,-) : f16[1,{},{}]\n    %d = input 3 grid({},-,-) loop(2) : f16[1,{},32]\n", a.queries,
                        a.second, a.one_for_all ? "-" : "0", a.second);
  text += fmt::format("    %u = input {} grid(0,-,-) loop(1) : f16[1,32,{}]\n", a.spelled ? 2 : 4, a.columns);
  text += a.spelled ? "    %x = matmul %a %b\n" : "    %x = add (matmul %c %d) (matmul %a %b)\n";
  return text +
         "    %z = mul %x 0.125\n    %m = running (reduce.max 2 %z)\n    %e = exp (sub %z %m)\n    %l = accum.sum rescaled 1 (reduce.sum 2 "
         "%e) %m\n    %s = accum.sum rescaled 1 (matmul %e %u) %m\n    output 0 (div %s %l) grid(0,-,-) : f16\n  }\n"
         "  output 0 %o : f16\n}\n";
}

EmulationCase case_of_sum(const Sum& a, const std::string& prefix) {
  const Target target = *find_target("sm_90a");
  Program p = program_of(sum_spec(a), "sum");
  const auto g = parse_graph(sum_graph(a));
  INFO(sum_graph(a) << (g ? "" : g.errors()[0].text));
  REQUIRE(g);
  p.graph = *g;
  const Planned planned = make_plan(p, *g, target);
  REQUIRE(planned.plan);
  INFO(print(*planned.plan));
  REQUIRE(planned.plan->kernels.size() == 1);   // nothing is copied
  const auto chosen = plan_in<AttendPlan>(planned.plan->kernels[0].body);
  REQUIRE(chosen);
  CHECK((*chosen)->shape.first_features == (a.spelled ? a.first : a.second));   // in the order in which they are added
  return divided(p, *planned.plan, a.kind, a.key_groups, a.chunk, 1, prefix);
}

}  // namespace

TEST_CASE("scores that are two products added are one product of features in two parts") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const std::vector<Sum> shapes = {
      {Kind::kWarps, 4, 300, 64, 64, 4, 32},
      {Kind::kWarps, 16, 129, 40, 24, 4, 32, true},
      {Kind::kWarps, 9, 256, 32, 96, 4, 64, false, true},
      {Kind::kGroups, 100, 200, 64, 32, 2, 64, true},
      {Kind::kGroups, 64, 130, 128, 64, 1, 64},
      {Kind::kGroups, 64, 130, 24, 104, 1, 64, false, true},
      {Kind::kWide, 16, 100, 256, 64, 1, 32, false, false, 256, true},
      {Kind::kWide, 5, 100, 200, 64, 1, 32, true, false, 256},
      {Kind::kWide, 16, 100, 192, 72, 1, 32, false, true, 128, true},
  };
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  for (const Sum& s : shapes) {
    names.push_back(fmt::format("{} queries, {} keys, {} and {} features, kind {}{}", s.queries, s.keys, s.first, s.second,
                                static_cast<int>(s.kind), s.spelled ? ", joined in the spec" : ""));
    INFO(names.back());
    cases.push_back(case_of_sum(s, fmt::format("s{}_", cases.size())));
  }
  check_emulations(cases, names, compiler, 0.5, false);
}

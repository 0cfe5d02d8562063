// Wrong attention kernels that a reading of the matcher and the emitter found. Each spec once had its fused kernel refused by the emulation
// gate (and emitted, wrong, where there was no compiler to emulate with).
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

#include "driver/emulation/emulation.h"
#include "mirage/driver/compile.h"
#include "mirage/plan/alternatives.h"
#include "plan/attend/attend_plan.h"
#include "mirage/spec/text.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

namespace {

/// Four heads of 128 queries and 128 keys; `mid` makes m of the scores s, `after` makes o of the result r.
std::string attention(const std::string& mid, const std::string& after) {
  return R"({"version": "1.0", "name": "attention",
 "inputs": {"q": {"shape": [4, 128, 64], "dtype": "float16"}, "k": {"shape": [4, 128, 64], "dtype": "float16"}, "v": {"shape": [4, 128, 64], "dtype": "float16"}},
 "outputs": {"o": {"shape": [4, 128, 64], "dtype": "float16"}},
 "nodes": [{"op": "matmul", "inputs": ["q", "k"], "output": "s", "attrs": {"transpose_b": true}}, )" +
         mid + R"(,
           {"op": "softmax", "inputs": ["m"], "output": "p", "attrs": {"axis": -1}}, {"op": "matmul", "inputs": ["p", "v"], "output": "r"}, )" +
         after + "]}";
}

/// The first choice of the cost model holds when it is emulated: one kernel for all, or as few as said.
void is_one_right_kernel(const std::string& text, const std::string& kernels = "1 kernel") {
  if (find_host_compiler().empty()) { WARN("skipped: there is no host compiler"); return; }
  Options o;
  o.states = 20'000'000;
  o.gate = "emulate";
  Trace trace;
  const CompileResult r = compile(o, {"attention.json", text}, trace);
  for (const Diagnostic& d : r.diagnostics) UNSCOPED_INFO(render(d, text));
  for (const std::string& n : r.notes) UNSCOPED_INFO(n);
  CHECK(r.exit == ExitCode::kOk);
  CHECK(std::none_of(r.notes.begin(), r.notes.end(), [](const std::string& n) { return n.find("was not used") != std::string::npos; }));
  INFO(r.summary);
  CHECK(r.summary.find(kernels + " instead of") != std::string::npos);
}

}  // namespace

TEST_CASE("a position along heads is the head's number", "[bugs]") {
  // The emitter took a position in a batch dimension for one of the last two: the head's number was 0 everywhere.
  is_one_right_kernel(attention(
      R"({"op": "iota", "inputs": [], "output": "h", "attrs": {"axis": 0, "shape": [4, 1, 1]}}, )"
      R"({"op": "add", "inputs": ["h", 1.0], "output": "h1"}, {"op": "mul", "inputs": ["s", "h1"], "output": "m"})",
      R"({"op": "mul", "inputs": ["r", 1.0], "output": "o"})"));
  is_one_right_kernel(attention(
      R"({"op": "iota", "inputs": [], "output": "h", "attrs": {"axis": 0, "shape": [4, 1, 1]}}, {"op": "iota", "inputs": [], "output": "j", "attrs": {"axis": 2, "shape": [1, 1, 128]}},
           {"op": "mul", "inputs": ["h", "j"], "output": "hj"}, {"op": "mul", "inputs": ["hj", 0.01], "output": "b"}, {"op": "add", "inputs": ["s", "b"], "output": "m"})",
      R"({"op": "mul", "inputs": ["r", 1.0], "output": "o"})"));
}

TEST_CASE("a position along columns of the result is the column's number", "[bugs]") {
  is_one_right_kernel(attention(
      R"({"op": "mul", "inputs": ["s", 0.125], "output": "m"})",
      R"({"op": "iota", "inputs": [], "output": "c", "attrs": {"axis": 2, "shape": [1, 1, 64]}}, )"
      R"({"op": "mul", "inputs": ["r", "c"], "output": "o"})"));
}

TEST_CASE("attention whose batch a small operand tells apart", "[bugs]") {
  // Neither dimension of the batch went without the other: the search had an index more, blocks two dimensions of batch, keys were not
  // divided; what was left were straightforward kernels. Now the small operand is repeated by a kernel ahead.
  const auto decode = [](const std::string& input, const std::string& mid) {
    return R"({"version": "1.0", "name": "decode",
 "inputs": {"q": {"shape": [3, 4, 5, 64], "dtype": "bfloat16"},
            "k": {"shape": [3, 4, 333, 64], "dtype": "bfloat16"}, "v": {"shape": [3, 4, 333, 64], "dtype": "bfloat16"}, )" +
           input + R"(},
 "outputs": {"o": {"dtype": "bfloat16"}},
 "nodes": [{"op": "matmul", "inputs": ["q", "k"], "output": "t", "attrs": {"transpose_b": true}},
           {"op": "mul", "inputs": ["t", 0.125], "output": "s"},
           {"op": "iota", "inputs": [], "output": "j", "attrs": {"axis": 3, "shape": [1, 1, 1, 333]}}, )" +
           mid + R"(, {"op": "softmax", "inputs": ["m"], "output": "p", "attrs": {"axis": -1}},
           {"op": "matmul", "inputs": ["p", "v"], "output": "o"}]})";
  };
  const std::string length = decode(R"("length": {"shape": [3, 1, 1, 1], "dtype": "float32", "range": [1, 333]})",
                                    R"({"op": "less", "inputs": ["j", "length"], "output": "b"},
                                        {"op": "where", "inputs": ["b", "s", "-inf"], "output": "m"})"),
                    slope = decode(R"("slope": {"shape": [4, 5, 1], "dtype": "float32"})",
                                   R"({"op": "mul", "inputs": ["j", "slope"], "output": "b"},
                                       {"op": "add", "inputs": ["s", "b"], "output": "m"})");
  is_one_right_kernel(length, "2 kernels");
  is_one_right_kernel(slope, "2 kernels");
}

TEST_CASE("attention with a sink is one kernel", "[bugs]") {
  // Shifts stopped at the loop: the sink's exponential overflowed, every fused candidate was rejected, three kernels were left.
  for (const char* order : {R"("x", "sink")", R"("sink", "x")"})
    is_one_right_kernel(std::string(R"({"version": "1.0", "name": "sink",
 "inputs": {"q": {"shape": [4, 5, 64], "dtype": "bfloat16"}, "k": {"shape": [4, 333, 64], "dtype": "bfloat16"}, "v": {"shape": [4, 333, 64], "dtype": "bfloat16"},
            "sink": {"shape": [4, 5, 1], "dtype": "float32"}},
 "outputs": {"o": {"dtype": "bfloat16"}},
 "nodes": [{"op": "matmul", "inputs": ["q", "k"], "output": "s", "attrs": {"transpose_b": true}}, {"op": "mul", "inputs": ["s", 0.125], "output": "m"},
           {"op": "max", "inputs": ["m"], "output": "x", "attrs": {"axis": -1, "keepdim": true}}, {"op": "maximum", "inputs": [)") + order +
                        R"(], "output": "t"},
           {"op": "sub", "inputs": ["m", "t"], "output": "d"}, {"op": "exp", "inputs": ["d"], "output": "e"},
           {"op": "sum", "inputs": ["e"], "output": "l", "attrs": {"axis": -1, "keepdim": true}},
           {"op": "sub", "inputs": ["sink", "t"], "output": "c"}, {"op": "exp", "inputs": ["c"], "output": "f"},
           {"op": "add", "inputs": ["l", "f"], "output": "n"}, {"op": "matmul", "inputs": ["e", "v"], "output": "r"},
           {"op": "div", "inputs": ["r", "n"], "output": "o"}]})");
}

namespace {

/// A kernel graph in text as a program's plan, and the plans with its one kernel divided otherwise, as --measure and --alternatives take
/// them.
std::vector<Plan> divided(const std::string& text) {
  const Target target = *find_target("sm_90a");
  const auto g = parse_graph(text, "bug.mg");
  REQUIRE(g.ok());
  Program program;
  program.name = "attention";
  program.graph = *g;
  for (NodeId n : g->inputs())
    program.inputs.push_back(
        {"in" + std::to_string(n), g->type(g->node(n).first_value), row_major_strides(g->dims(g->node(n).first_value)), {}});
  for (NodeId n : g->outputs())
    program.outputs.push_back({"out" + std::to_string(n),
                               {g->form<Output>(n)->dtype, g->dims(g->node(n).operands[0])},
                               row_major_strides(g->dims(g->node(n).operands[0])),
                               {}});
  const Planned planned = make_plan(program, *g, target);
  REQUIRE(planned.plan);
  REQUIRE(planned.plan->kernels.size() == 1);
  std::vector<Plan> out;
  for (const KernelPlan& k : kernel_alternatives(planned.plan->kernels[0], target, contract_rule(program), 1000))
    out.push_back(with_kernel(*planned.plan, 0, k));
  return out;
}

std::shared_ptr<const AttendPlan> attend_of(const Plan& p) { return plan_in<AttendPlan>(p.kernels[0].body).value_or(nullptr); }

}  // namespace

TEST_CASE("a kernel that is divided otherwise has slots of its own size", "[bugs]") {
  // Other divisions kept the slots of the cost model's choice: with more clusters that meet they wrote beyond the workspace, and without
  // any there was no buffer.
  const std::vector<Plan> plans = divided(R"(kernel attention {
  %q = input 0 : f16[16,576]
  %c = input 1 : f16[4096,576]
  %v = slice 1 0:512:1 %c
  %t = transpose (1,0) %c
  %o = call loop(64) (%q, %t, %v) {
    %a = input 0 : f16[16,576]
    %b = input 1 loop(1) : f16[576,64]
    %w = input 2 loop(0) : f16[64,512]
    %s = mul (matmul %a %b) 0.07
    %m = running (reduce.max 1 %s)
    %p = exp (sub %s %m)
    %l = accum.sum rescaled 1 (reduce.sum 1 %p) %m
    %r = accum.sum rescaled 1 (matmul %p %w) %m
    output 0 (div %r %l) : f16
  }
  output 0 %o : f16
}
)");
  std::set<int64_t> sizes;
  std::set<std::string> texts;
  for (const Plan& p : plans) {
    const std::shared_ptr<const AttendPlan> a = attend_of(p);
    const int64_t bytes = a ? a->slot_bytes : 0;
    if (a) sizes.insert(bytes);
    CHECK(texts.insert(division_text(p.kernels[0])).second);   // told apart, clusters that meet as well
    int64_t held = 0;
    for (const Buffer& b : p.buffers) if (b.slots) held += b.bytes();
    CHECK(held == bytes);
    CHECK((p.kernels[0].slots >= 0) == (bytes > 0));
    if (bytes > 0) CHECK(p.buffers[static_cast<size_t>(p.kernels[0].slots)].offset_bytes + bytes <= p.workspace_bytes);
  }
  CHECK(sizes.size() >= 4);
}

TEST_CASE("positions that nobody stored are read by no other strategy", "[bugs]") {
  // With --alternatives or --measure a masked attention was also divided as a block kernel, which loaded the mask's positions from a buffer
  // that is not there.
  const std::vector<Plan> plans = divided(R"(kernel attention {
  %q = input 0 : f16[2,200,64]
  %k = input 1 : f16[2,200,64]
  %v = input 2 : f16[2,200,64]
  %i = iota 1 [1,200]
  %j = iota 0 [200,1]
  %t = transpose (0,2,1) %k
  %o = call grid(2,1,1) loop(7) (%q, %t, %v, %i, %j) {
    %a = input 0 grid(0,-,-) : f16[1,200,64]
    %b = input 1 grid(0,-,-) loop(2) : f16[1,64,32]
    %w = input 2 grid(0,-,-) loop(1) : f16[1,32,64]
    %x = input 3 grid(-,-,-) loop(1) : real[1,32]
    %y = input 4 grid(-,-,-) : real[200,1]
    %n = const -inf
    %z = where (greater %x %y) %n (mul (matmul %a %b) 0.125)
    %m = running (reduce.max 2 %z)
    %p = exp (sub %z %m)
    %l = accum.sum rescaled 1 (reduce.sum 2 %p) %m
    %r = accum.sum rescaled 1 (matmul %p %w) %m
    output 0 (div %r %l) grid(0,-,-) : f16
  }
  output 0 %o : f16
}
)");
  CHECK(plans.size() > 4);
  for (const Plan& p : plans) CHECK(attend_of(p) != nullptr);
}

TEST_CASE("as many batches as groups of heads, and heads in a group", "[bugs]") {
  // The repetition of keys at reduced extents could be that of the batch, of the groups or of a group's heads: all have two.
  is_one_right_kernel(
      R"({"version": "1.0", "name": "groups", "inputs": {"q": {"shape": [2, 4, 1, 64], "dtype": "float16"}, "k": {"shape": [2, 2, 256, 64], "dtype": "float16"}, "v": {"shape": [2, 2, 256, 64], "dtype": "float16"}},
 "outputs": {"y": {"shape": [2, 4, 1, 64], "dtype": "float16"}}, "nodes": [{"op": "attention", "inputs": ["q", "k", "v"], "output": "y"}]})");
}

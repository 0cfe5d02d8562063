// Which concatenations attention reads as two tensors (plan/passes/parts.cc), and which are still copied.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "mirage/codegen/module.h"
#include "plan/attend/attend_plan.h"
#include "mirage/plan/passes.h"
#include "mirage/spec/spec.h"
#include "mirage/spec/text.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

namespace {

/// A step of decoding: %n (computed from input 3 as `added` says) is appended to the cache %c along dimension 1; `keys` is what attention
/// has of %kn. more: further outputs.
Planned plan(const std::string& added, const std::string& keys = "transpose (0,2,1) %kn", const std::string& more = "", int count = 4,
             const Target& target = *find_target("sm_90a")) {
  const auto p = parse_spec(
      {"parts",
       fmt::format(
           R"({{"version": "1.0", "name": "parts", "inputs": {{"q": {{"shape": [4, 4, 64], "dtype": "float16"}}, "c": {{"shape": [4, 1020, 64], "dtype": "float16"}}, "v": {{"shape": [4, {0}, 64], "dtype": "float16"}},
    "n": {{"shape": [4, 4, 64], "dtype": "float16"}}}}, "outputs": {{"o": {{"dtype": "float16"}}{1}}}, "nodes": [{{"op": "concat", "inputs": ["c", "n"], "output": "k", "attrs": {{"axis": 1}}}}, {{"op": "sum", "inputs": ["v"], "output": "s"}},
    {{"op": "add", "inputs": ["q", "s"], "output": "o"}}]}})",
           1020 + count, more.empty() ? "" : R"(, "k": {"dtype": "float16"})")});
  REQUIRE(p);
  const auto g = parse_graph(fmt::format(R"(kernel parts {{
  %q = input 0 : f16[4,4,64]  %c = input 1 : f16[4,1020,64]  %v = input 2 : f16[4,{3},64]  %x = input 3 : f16[4,4,64]
  %n = {0}
  %kn = concat 1 %c %n
  %k = {1}
  %o = call grid(4,1,1) loop({4}) (%q, %k, %v) {{
    %a = input 0 grid(0,-,-) : f16[1,4,64]  %b = input 1 grid(0,-,-) loop(2) : f16[1,64,32]  %u = input 2 grid(0,-,-) loop(1) : f16[1,32,64]
    %s = mul (matmul %a %b) 0.125
    %m = running (reduce.max 2 %s)
    %p = exp (sub %s %m)
    %l = accum.sum rescaled 1 (reduce.sum 2 %p) %m
    %r = accum.sum rescaled 1 (matmul %p %u) %m
    output 0 (div %r %l) grid(0,-,-) : f16
  }}
  output 0 %o : f16
  {2}
}})", added, keys, more, 1020 + count, (1020 + count + 31) / 32));
  INFO((g ? "" : g.errors()[0].text));
  REQUIRE(g);
  Program with = *p;
  with.graph = *g;
  Planned out = make_plan(with, *g, target);
  INFO(out.reason);
  REQUIRE(out.plan);
  return out;
}

std::shared_ptr<const AttendPlan> attention(const Plan& p) {
  for (const KernelPlan& k : p.kernels)
    if (const auto a = plan_in<AttendPlan>(k.body)) return *a;
  return nullptr;
}
int64_t first_keys(const Planned& p) {
  const std::shared_ptr<const AttendPlan> a = attention(*p.plan);
  return a ? a->shape.first_keys : -1;
}

}  // namespace

TEST_CASE("attention reads a cache and what is appended to it, instead of a copy of both") {
  const Planned made = plan("cast_f16 (mul %x 2)");
  CHECK(first_keys(made) == 1020);                                     // computed beside the concatenation: it gets a place of its own
  REQUIRE(made.plan->kernels.size() == 2);
  // and comes from the kernel ahead
  CHECK(emit_kernel(made.plan->kernels[1], *made.plan, *find_target("sm_90a")).source.find("kEarly = false") != std::string::npos);
  const Planned given = plan("transpose (0,1,2) %x");
  CHECK(first_keys(given) == 1020);
  CHECK(given.plan->kernels.size() == 1);
  CHECK(given.plan->workspace_bytes <= 64 << 10);                      // slots at most
  for (const View& v : given.plan->views) CHECK(v.second.buffer < 0);  // the concatenation is not stored
}

TEST_CASE("a concatenation that something else needs, or that tensor copies cannot bring, is copied") {
  CHECK(first_keys(plan("transpose (0,1,2) %x", "transpose (0,2,1) %kn", "output 1 %kn : f16")) == 0);
  Target without_parts = without(*find_target("sm_90a"), Pass::kParts);
  CHECK(first_keys(plan("transpose (0,1,2) %x", "transpose (0,2,1) %kn", "", 4, without_parts)) == 0);
  CHECK(first_keys(plan("slice 1 1:4 %x", "transpose (0,2,1) %kn", "", 3)) == 1020);   // a view of what is given
}

// --cold, --warm, --pdl in emitted text: who waits for what is ahead of it, what may be read before, and what the header says of it.
#include <catch2/catch.hpp>

#include "mirage/codegen/module.h"
#include "mirage/plan/hints.h"
#include "plan/stream/stream_plan.h"
#include "plan/tile/tile_plan.h"
#include "mirage/spec/spec.h"
#include "mirage/spec/text.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

namespace {

struct Emitted { Plan plan; CudaModule module; };

/// A graph-defined kernel with a loop over the weights, so that it streams; a region behind it.
constexpr const char* kTwo = R"(
kernel two {
  %x = input 0 : f16[8,4096]   %w = input 1 : f16[4096,4096]
  %y = call grid(64,1,1) loop(64) (%x, %w) {
    %a = input 0 grid(-,-,-) loop(1) : f16[8,64]   %b = input 1 grid(1,-,-) loop(0) : f16[64,64]
    output 0 (accum.sum (matmul %a %b)) grid(1,-,-)
  }
  output 0 (relu %y) : f16
})";

Emitted emitted(const RunHints& hints) {
  const Graph g = *parse_graph(kTwo, "two");
  const auto spec =
      read_spec({"two", "kernel two { %x = input 0 : f16[8,4096] %w = input 1 : f16[4096,4096] output 0 (relu (matmul %x %w)) : f16 }"});
  const Target target = *find_target("sm_90a");
  Planned planned = make_plan(spec->program, g, target);
  REQUIRE(planned.plan);
  Plan plan = with_hints(std::move(*planned.plan), hints);
  return {plan, emit_module(spec->program, plan, target, {})};
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) n++;
  return n;
}

}  // namespace

TEST_CASE("without hints the first kernel is launched as any, and nothing is asked of the caller") {
  const Emitted e = emitted({});
  REQUIRE(e.module.kernels.size() == 2);
  CHECK(e.module.kernels[0].source.find("await_previous") == std::string::npos);
  CHECK(!e.module.kernels[0].dependent);
  CHECK(e.module.kernels[0].source.find("release_next();") != std::string::npos);
  CHECK(e.module.kernels[1].source.find("await_previous();") != std::string::npos);
  CHECK(e.module.kernels[1].source.find("release_next") == std::string::npos);
  CHECK(e.module.kernels[1].dependent);
  CHECK(e.module.files.at("two.h").find("Dependent launch") == std::string::npos);
}

TEST_CASE("with pdl every kernel waits once, and only weights are asked for before") {
  const Emitted e = emitted({false, false, true});
  CHECK(e.module.files.at("two.cu").find("ProgrammaticStreamSerialization") != std::string::npos);
  bool streamed = false;
  for (const KernelText& k : e.module.kernels) {
    INFO(k.source);
    CHECK(count(k.source, "await_previous();") == 1);
    CHECK(count(k.source, "release_next();") == 1);
    const size_t wait = k.source.find("await_previous();"), body = k.source.find("release_next();");
    CHECK(body < wait);
    const std::string before = k.source.substr(body, wait - body);
    CHECK(before.find("load(") == std::string::npos);
    CHECK(before.find("out0") == std::string::npos);
    CHECK(before.find("in0") == std::string::npos);
    streamed |= before.find("fetch(s)") != std::string::npos;
    CHECK(k.dependent);
  }
  CHECK(streamed);
  const std::string header = e.module.files.at("two.h");
  CHECK(header.find("read before that wait: w.") != std::string::npos);
  const std::vector<int> early = read_early(e.plan);
  REQUIRE(early.size() == 1);
  CHECK(e.plan.buffers[static_cast<size_t>(early[0])].index == 1);
}

TEST_CASE("with pdl rows that are reduced before the loop wait for what is ahead, too") {
  const auto spec = read_spec({"norm", R"(kernel norm {
    %x = input 0 : f16[8,4096] %w = input 1 : f16[4096,4096]
    %m = div (reduce.sum 1 %x) (const 4096)
    output 0 (matmul (sub %x %m) %w) : f16 })"});
  if (!spec) INFO(spec.errors()[0].text);
  REQUIRE(spec);
  const Graph g = *parse_graph(R"(
kernel norm {
  %x = input 0 : f16[8,4096]   %w = input 1 : f16[4096,4096]
  %y = call grid(64,1,1) loop(64) (%x, %w) {
    %r = input 0 grid(-,-,-) loop(-) : f16[8,4096]   %a = input 0 grid(-,-,-) loop(1) : f16[8,64]   %b = input 1 grid(1,-,-) loop(0) : f16[64,64]
    %m = div (reduce.sum 1 %r) (const 4096)
    output 0 (accum.sum (matmul (sub %a %m) %b)) grid(1,-,-) : f16
  }
  output 0 %y : f16
})",
                               "norm");
  const Target target = *find_target("sm_90a");
  Planned planned = make_plan(spec->program, g, target);
  REQUIRE(planned.plan);
  const auto body = plan_in<StreamPlan>(planned.plan->kernels[0].body);
  REQUIRE(body);
  REQUIRE((*body)->hold_early);
  const std::string ordinary = emit_kernel(planned.plan->kernels[0], *planned.plan, target).source;
  CHECK(ordinary.find("load_eight_now") < ordinary.find("fetch(s);"));   // rows first: behind the weights they wait for device memory
  const Plan plan = with_hints(*planned.plan, {false, false, true});
  const std::string text = emit_kernel(plan.kernels[0], plan, target).source;
  INFO(text);
  const size_t wait = text.find("await_previous();");
  REQUIRE(wait != std::string::npos);
  CHECK(text.find("fetch(0);") < wait);
  CHECK(wait < text.find("fetch(s);"));
  CHECK(wait < text.find("load_eight"));
  CHECK(wait < text.find("in0", text.find("using namespace mo")));
}

TEST_CASE("weights that another kernel of the library makes are not read early") {
  Emitted e = emitted({false, false, true});
  Plan plan = e.plan;
  plan.buffers[1].kind = Buffer::Kind::kWorkspace;
  CHECK(read_early(plan).empty());
  for (const KernelPlan& k : plan.kernels) {
    const std::string text = emit_kernel(k, plan, *find_target("sm_90a")).source;
    if (text.find("fetch(s)") != std::string::npos) CHECK(text.find("await_previous();") < text.find("fetch(s)"));
  }
}

TEST_CASE("warm weights are not evicted first, cold ones are") {
  for (const bool warm : {false, true}) {
    const Emitted e = emitted({!warm, warm, false});
    bool hinted = false;
    for (const KernelText& k : e.module.kernels) hinted |= k.source.find("evict_first_policy()") != std::string::npos;
    CHECK(hinted == !warm);
  }
}

namespace {

/// The straightforward plan of a program, as text of a spec.
Emitted straightforward(const std::string& text, const RunHints& hints = {}) {
  const auto spec = read_spec({"early", text});
  REQUIRE(spec);
  const Target target = *find_target("sm_90a");
  Planned planned = make_plan(spec->program, spec->program.graph, target);
  REQUIRE(planned.plan);
  Plan plan = with_hints(std::move(*planned.plan), hints);
  return {plan, emit_module(spec->program, plan, target, {})};
}

}  // namespace

TEST_CASE("a product behind rows is started early, with its weights under way before it waits") {
  const Emitted e = straightforward(
      "kernel early { %x = input 0 : f16[96,2048] %s = input 1 : f16[2048] %w = input 2 : f16[2048,1024] output 0 (matmul (mul %x %s) %w) "
      ": f16 }");
  REQUIRE(e.plan.kernels.size() == 2);
  REQUIRE(holds<TilePlan>(e.plan.kernels[1].body));
  CHECK(!e.plan.kernels[0].early);
  CHECK(e.plan.kernels[1].early);
  CHECK(e.plan.predicted_us < e.plan.kernels[0].predicted_us + e.plan.kernels[1].predicted_us);
  const std::string &rows = e.module.kernels[0].source, &product = e.module.kernels[1].source, &all = e.module.files.at("early.cu");
  CHECK(!e.module.kernels[0].dependent);
  CHECK(count(rows, "release_next();") == 1);
  CHECK(count(rows, "await_previous();") == 0);
  CHECK(e.module.kernels[1].dependent);
  CHECK(count(product, "release_next();") == 0);
  CHECK(count(product, "if (warp != kWarps) await_previous();") == 1);
  CHECK(product.find("await_previous();") < product.find("brings the weights"));
  CHECK(product.find("__restrict__") == std::string::npos);
  CHECK(count(all, "error = start_alone(") == 1);
  CHECK(count(all, "error = start(") == 1);
  CHECK(all.find("#define MO_ORDERED_LOADS") != std::string::npos);
  CHECK(e.module.files.at("early.h").find("Dependent launch") == std::string::npos);   // nothing is asked of the caller
}

TEST_CASE("weights that the kernel ahead computes are waited for, and --pdl starts all kernels its own way") {
  const std::string computed =
      "kernel early { %x = input 0 : bf16[96,2048] %w = input 1 : bf16[2048,1024] %m = reduce.max 0 (abs %w) output 0 (matmul %x (div %w "
      "%m)) : bf16 }";
  const Emitted e = straightforward(computed);
  for (size_t i = 1; i < e.plan.kernels.size(); i++) {
    if (!e.plan.kernels[i].early || weights_early(e.plan.kernels[i], e.plan)) continue;
    CHECK(count(e.module.kernels[i].source, "await_previous();") == 1);
    CHECK(count(e.module.kernels[i].source, "!= kWarps) await_previous();") == 0);
  }
  const Emitted pdl = straightforward(computed, {false, false, true});
  for (const KernelPlan& k : pdl.plan.kernels) CHECK(!k.early);
  for (const KernelText& k : pdl.module.kernels) CHECK(count(k.source, "await_previous();") == 1);
}

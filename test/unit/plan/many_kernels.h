// Plans of kernels of all strategies that run on tensor cores: the first divisions of every kernel of the shipped specs, and every row of
// the tables that were measured. What is said of all kernels is tried on these.
#pragma once
#include <filesystem>
#include <functional>
#include <string>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "mirage/plan/bound.h"
#include "mirage/plan/alternatives.h"
#include "plan/block/block_plan.h"
#include "mirage/plan/cublas.h"
#include "mirage/plan/region.h"
#include "mirage/plan/strategy.h"
#include "mirage/spec/spec.h"
#include "mirage/spec/text.h"
#include "mirage/support/file.h"
#include "unit/plan/attention.h"
#include "unit/plan/attention_kinds.h"
#include "unit/plan/linear.h"
#include "unit/plan/plan_in.h"

namespace mirage::test {

constexpr size_t kAll = 1 << 20;   // divisions

/// Called with a name, a kernel and the plan that it is of.
using EachKernel = std::function<void(const std::string&, const KernelPlan&, const Plan&)>;

inline void each_spec_kernel(const Target& target, size_t divisions, const EachKernel& f) {
  const std::filesystem::path root(MIRAGE_SOURCE_DIR);
  for (const auto& e : std::filesystem::directory_iterator(root / "specs")) {
    if (e.path().extension() != ".json") continue;
    const std::string name = e.path().stem().string();
    INFO(name);
    const auto program = parse_spec({name, *read_file(e.path().string())});
    REQUIRE(program);
    const auto graph = parse_graph(*read_file((root / "test/golden" / (name + ".graph")).string()));
    REQUIRE(graph);
    const Planned planned = make_plan(*program, *graph, target);
    if (!planned.plan && !program->kept.empty()) continue;   // stitched of pieces: only they know what lies in 16 bits
    REQUIRE(planned.plan);
    for (size_t i = 0; i < planned.plan->kernels.size(); i++)
      for (const KernelPlan& k : kernel_alternatives(planned.plan->kernels[i], target, contract_rule(*program), divisions))
        f(fmt::format("{} {}: {}", name, i, division_text(k)), k, *planned.plan);
  }
}

/// Kernels whose operands lie in two parts, and calls beside each other: the first divisions of each.
inline void each_joined_kernel(const Target& target, size_t divisions, const EachKernel& f) {
  Plan plan;
  plan.buffers.resize(16);
  KernelPlan k;
  k.name = "k";
  std::string reason;
  for (const Linear& of : {Linear{.rows = 16, .depth = 4096, .cols = 2048}, Linear{.rows = 8, .depth = 1024, .cols = 992, .rms = true}}) {
    const auto shape_of = [&](int64_t cols) {
      Linear l = of;
      l.cols = cols;
      const LinearCase c = linear_case(l);
      return *match_stream(c.body, c.operands, c.results, {of.t, false}, kMaxStreamRows, reason);
    };
    StreamPlan p = stream_plan(shape_of(of.cols));
    p.beside = {shape_of(512), shape_of(96)};
    REQUIRE(stands_beside(p, p.beside[0]));
    std::vector<StreamPlan> plans = stream_divisions(p, target).plans;
    REQUIRE(!plans.empty());
    for (size_t i = 0; i < std::min(divisions, plans.size()); i++) {
      k.body = body_with<StreamPlan>(plans[i]);
      f(fmt::format("beside {}: {}", of.cols, i), k, plan);
    }
  }
  for (const AttentionCase& of :
       {AttentionCase{.batches = 4, .queries = 4, .keys = 1024, .first_keys = 1020}, AttentionCase{.first_keys = 4032},
        AttentionCase{.batches = 4, .queries = 16, .keys = 4100, .features = 576, .columns = 512, .v = "%c", .first_keys = 4096},
        AttentionCase{.features = 128, .first_features = 64}, AttentionCase{.queries = 4, .features = 96, .first_features = 40},
        AttentionCase{.batches = 4, .queries = 16, .features = 576, .columns = 512, .first_features = 512}}) {
    const std::vector<AttendPlan> plans = attention_plans(of).plans;
    REQUIRE(!plans.empty());
    for (size_t i = 0; i < std::min(divisions, plans.size()); i++) {
      k.body = body_with<AttendPlan>(plans[i]);
      f(fmt::format("parts {} of {} keys, {} of {} features: {}", of.first_keys, of.keys, of.first_features, of.features, i), k, plan);
    }
  }
}

/// Streams that add up over groups of the reduction, with weights or products scaled by group and column, and over reductions of two
/// parts: `most` divisions of each, spread over all of them.
inline void each_joined_sum(const Target& target, size_t most, const EachKernel& f) {
  Plan plan;
  plan.buffers.resize(16);
  const auto give = [&](const std::string& name, const std::string& body, const std::vector<Access>& operands, const Access& result) {
    const auto g = parse_graph(body);
    INFO(body << (g ? "" : g.errors()[0].text));
    REQUIRE(g);
    const StreamCandidates all = stream_candidates(*g, operands, {result}, target, {operands[0].dtype, false});
    INFO(name << ": " << all.reason);
    REQUIRE(!all.plans.empty());
    KernelPlan k;
    k.name = "k";
    for (size_t i = 0; i < all.plans.size(); i += std::max<size_t>(1, all.plans.size() / most)) {
      k.body = body_with<StreamPlan>(all.plans[i]);
      f(fmt::format("{}: {}", name, i), k, plan);
    }
  };
  const auto access = [](int buffer, DType t, const Dims& dims, const Dims& strides) { return Access{buffer, 0, dims, strides, t}; };
  const auto rows = [&](int buffer, DType t, const Dims& dims) { return access(buffer, t, dims, row_major_strides(dims)); };
  struct Grouped { const char* name; const char* type; int rows, groups, size, columns; bool lines; const char* body; };
  for (const Grouped& u : {Grouped{"products scaled by group", "f16", 4, 8, 128, 1024, false,
                                   "%o = accum.sum (reduce.sum 0 (mul (matmul %a %b) %s))"},
                           Grouped{"added up behind the loop", "bf16", 3, 16, 32, 512, false,
                                   "%o = reduce.sum 0 (accum.sum (mul (matmul %a %b) %s))"},
                           Grouped{"weights scaled by group", "bf16", 17, 8, 64, 512, true,
                                   "%o = accum.sum (reduce.sum 0 (matmul %a (mul (sub %b %s) %s)))"},
                           Grouped{"beside a statistic", "f16", 7, 8, 64, 512, false,
                                   "%e = accum.sum (reduce.sum 0 (reduce.sum 2 (square %a)))\n"
                                   "%o = div (accum.sum (reduce.sum 0 (mul (matmul %a %b) %s))) (add %e 1.0)"}}) {
    const DType t = *parse_dtype(u.type);
    const Dims w{u.groups, u.size, u.columns};
    give(u.name,
         fmt::format("block grid({},1,1) loop({}) {{\n%a = input 0 loop(0) : {}[1,{},{}]  %b = input 1 grid(2,-,-) loop(0) : {}[1,{},8]\n"
                     "%s = input 2 grid(2,-,-) loop(0) : {}[1,1,8]\n{}\noutput 0 %o grid(2,-,-) : {}\n}}\n",
                     u.columns / 8, u.groups, u.type, u.rows, u.size, u.type, u.size, u.type, u.body, u.type),
         {access(0, t, {u.groups, u.rows, u.size}, {u.size, u.groups * u.size, 1}),
          u.lines ? access(1, t, w, {u.size, 1, u.groups * u.size}) : rows(1, t, w), rows(2, t, {u.groups, 1, u.columns})},
         rows(3, t, {1, u.rows, u.columns}));
  }
  for (const bool gated : {false, true}) {
    const int m = gated ? 32 : 9, k = gated ? 512 : 1024, l = gated ? 1024 : 512, n = 512;
    const DType t = gated ? DType::kF16 : DType::kBF16;
    const auto lines = [&](int buffer, int depth) { return access(buffer, t, {depth, n}, {1, depth}); };
    const auto both = [](const char* x, const char* w, const char* h, const char* u) {
      return fmt::format("(add (accum.sum (matmul {} {})) (matmul {} {}))", x, w, h, u);
    };
    std::string body = fmt::format(
        "block grid({0},1,1) loop({1}) {{\n%x = input 0 loop(1) : {2}[{3},16]  %h = input 1 : {2}[{3},{4}]\n"
        "%w = input 2 grid(1,-,-) loop(0) : {2}[16,8]  %u = input 3 grid(1,-,-) : {2}[{4},8]\n",
        n / 8, k / 16, dtype_name(t), m, l);
    if (gated)
      body += fmt::format("%v = input 4 grid(1,-,-) loop(0) : {0}[16,8]  %z = input 5 grid(1,-,-) : {0}[{1},8]\n", dtype_name(t), l);
    const std::string sum = both("%x", "%w", "%h", "%u");
    body += "%o = " + (gated ? fmt::format("mul (relu {}) {}", sum, both("%x", "%v", "%h", "%z")) : "relu " + sum);
    std::vector<Access> operands = {rows(0, t, {m, k}), rows(1, t, {m, l}), lines(2, k), lines(3, l)};
    if (gated) operands.push_back(lines(4, k)), operands.push_back(lines(5, l));
    give(gated ? "two sums of two parts" : "a sum of two parts", body + fmt::format("\noutput 0 %o grid(1,-,-) : {}\n}}\n", dtype_name(t)),
         operands, rows(6, t, {m, n}));
  }
}

/// Streams whose rows are converted for their products, are prepared as they are stored, or are read by a statistic, too; and whose totals
/// are parts of each other: `most` divisions of each, spread over all of them.
inline void each_converted_stream(const Target& target, size_t most, const EachKernel& f) {
  Plan plan;
  plan.buffers.resize(16);
  KernelPlan k;
  k.name = "k";
  struct Converted { const char *name, *rows, *weights, *body; };
  for (const Converted& c :
       {Converted{"float32 rows", "f32", "f16", "%o = accum.sum (matmul %x %w)  %p = accum.sum (matmul %x %v)"},
        Converted{"float32 rows, bfloat16 weights", "f32", "bf16", "%o = accum.sum (matmul %x %w)  %p = accum.max (reduce.max 1 %x)"},
        Converted{"computed rows that are reduced, too", "bf16", "bf16",
                  "%e = exp %x\n%o = div (accum.sum (matmul %e %w)) (accum.sum (reduce.sum 1 %e))  %p = accum.sum (matmul %e %v)"},
        Converted{"rows prepared as they are stored", "f32", "f16", "%p = reduce.sum 1 (abs %h)  %o = div (accum.sum (matmul %x %w)) %p"},
        Converted{"a total of totals", "f16", "f16", "%p = accum.sum (matmul %x %w)  %q = accum.sum (matmul %x %v)\n%o = add %p %q"},
        Converted{"a low rank that is read alone, too", "f16", "f16",
                  "%p = matmul (accum.sum (matmul %x %a)) %b  %o = add (accum.sum (matmul %x %w)) %p"}}) {
    struct Tensor { const char *name, *part, *type; Dims tile, dims; int buffer; };
    std::string inputs;
    std::vector<Access> operands;
    for (const Tensor& t : {Tensor{"%x", "loop(1)", c.rows, {8, 16}, {8, 1024}, 0},
                            Tensor{"%h", "", c.rows, {8, 1024}, {8, 1024}, 0},   // the same rows, whole
                            Tensor{"%w", "grid(1,-,-) loop(0)", c.weights, {16, 8}, {1024, 512}, 1},
                            Tensor{"%v", "grid(1,-,-) loop(0)", c.weights, {16, 8}, {1024, 512}, 2},
                            Tensor{"%a", "loop(0)", c.weights, {16, 16}, {1024, 16}, 3},
                            Tensor{"%b", "grid(1,-,-)", c.weights, {16, 8}, {16, 512}, 4}}) {
      if (std::string(c.body).find(t.name) == std::string::npos) continue;
      inputs += fmt::format("{} = input {} {} : {}[{},{}]  ", t.name, operands.size(), t.part, t.type, t.tile[0], t.tile[1]);
      operands.push_back({t.buffer, 0, t.dims, row_major_strides(t.dims), *parse_dtype(t.type)});
    }
    const auto result = [](int buffer, const char* t) { return Access{buffer, 0, {8, 512}, {512, 1}, *parse_dtype(t)}; };
    const auto g = parse_graph(
        fmt::format("block grid(64,1,1) loop(64) {{\n{}\n{}\noutput 0 %o grid(1,-,-) : {}  output 1 (mul %o %p) grid(1,-,-) : f32\n}}\n",
                    inputs, c.body, c.weights));
    INFO(c.name << ": " << (g ? "" : g.errors()[0].text));
    REQUIRE(g);
    const StreamCandidates all =
        stream_candidates(*g, operands, {result(6, c.weights), result(7, "f32")}, target, {*parse_dtype(c.weights), true});
    INFO(all.reason);
    REQUIRE(!all.plans.empty());
    for (size_t i = 0; i < all.plans.size(); i += std::max<size_t>(1, all.plans.size() / most)) {
      k.body = body_with<StreamPlan>(all.plans[i]);
      f(fmt::format("{}: {}", c.name, i), k, plan);
    }
  }
}

/// Generic block kernels whose last tiles are short, along columns and along the reduction, and whose sums are of computed operands.
inline void each_ragged_block(const Target& target, size_t most, const EachKernel& f) {
  Plan plan;
  plan.buffers.resize(16);
  for (const char* t : {"f16", "f32"}) {
    const auto g =
        parse_graph(fmt::format("block grid(19,1,1) loop(10) {{\n  %x = input 0 loop(1) : {0}[40,64]  %w = input 1 grid(1,-,-) loop(0) : "
                                "{0}[64,16]  %g = input 2 loop(0) : {0}[64]\n"
                                "  %s = accum.sum (matmul (mul %x %g) %w)  %q = accum.sum (reduce.sum 1 (square %x))  %e = accum.max %x\n"
                                "  output 0 (add (div %s (sqrt %q)) (reduce.max 1 %e)) grid(1,-,-) : {0}\n}}\n",
                                t));
    INFO((g ? "" : g.errors()[0].text));
    REQUIRE(g);
    const auto access = [&](int buffer, const Dims& dims) { return Access{buffer, 0, dims, row_major_strides(dims), *parse_dtype(t)}; };
    const std::vector<Access> operands = {access(0, {40, 600}), access(1, {600, 300}), access(2, {600})}, results = {access(3, {40, 300})};
    const Work work{*g, operands, results, target, {DType::kF16, false}};
    KernelPlan k;
    k.name = "k";
    const Attempt one = strategies()[0].match(work);
    INFO(one.reason);
    REQUIRE(one.body);
    k.body = *one.body;
    const std::vector<KernelPlan> all = strategies()[0].divisions(k, work, kAll);
    for (size_t i = 0; i < all.size(); i += std::max<size_t>(1, all.size() / most)) f(fmt::format("ragged {} {}", t, i), all[i], plan);
  }
}

/// The same block graphs by the generic strategy: `most` of its divisions of each, spread over all of them.
inline EachKernel as_blocks(const Target& target, size_t most, const EachKernel& f) {
  return [&target, most, f](const std::string& name, const KernelPlan& k, const Plan& plan) {
    const std::span<const KernelCall> calls = bound_calls(k);
    if (calls.empty()) return;
    const Work work{calls[0].body, calls[0].operands, calls[0].results, target, {DType::kF16, false}};
    const std::vector<KernelPlan> all = strategies()[0].divisions(k, work, kAll);
    for (size_t i = 0; i < all.size(); i += std::max<size_t>(1, all.size() / most)) f(fmt::format("{} as block {}", name, i), all[i], plan);
  };
}

/// Attentions of many kinds, each in `most` divisions, spread over all of them. refused: called with the names of those that have none.
inline void each_attention(const Target& target, size_t most, const EachKernel& f,
                           const std::function<void(const std::string&, const std::string&)>& refused) {
  Plan plan;
  plan.buffers.resize(16);
  KernelPlan k;
  k.name = "k";
  for (const AttentionKind& of : attention_kinds()) {
    const AttendCandidates all = AttentionText(of).plans(target);
    if (all.plans.empty()) refused(of.name, all.reason);
    for (size_t i = 0; i < all.plans.size(); i += std::max<size_t>(1, all.plans.size() / most)) {
      k.body = body_with<AttendPlan>(all.plans[i]);
      f(fmt::format("{} of {} queries: {}", of.name, of.queries, i), k, plan);
    }
  }
}

inline void each_table_kernel(const Target& target, const EachKernel& f) {
  Plan plan;
  plan.buffers.resize(16);   // operands' and results'
  const auto give = [&]<class P>(const std::string& name, const P& body) {
    KernelPlan k;
    k.name = "k";
    k.body = body_with<P>(body);
    f(name, k, plan);
  };
  std::string reason;
  const auto name = [](const Linear& l, size_t row) {
    return fmt::format("table {} x {} x {}, {} weights{}{}, rank {}: {}", l.rows, l.depth, l.cols, l.weights, l.rms ? ", norm" : "",
                       l.gain ? ", gain" : "", l.rank, row);
  };
  for (const auto& [of, rows] : measured_streams()) {
    const LinearCase c = linear_case(of);
    for (size_t i = 0; i < rows.size(); i++) {
      StreamPlan p = stream_plan(*match_stream(c.body, c.operands, c.results, {of.t, false}, kMaxStreamRows, reason));
      REQUIRE(divide_stream(p, rows[i].first, target, reason));
      give("stream " + name(of, i), p);
    }
  }
  for (const auto& [of, rows] : measured_tiles()) {
    const LinearCase c = linear_case(of);
    for (size_t i = 0; i < rows.size(); i++) {
      TilePlan p = *tile_plan(*match_stream(c.body, c.operands, c.results, {of.t, false}, kAnyRows, reason), target, reason);
      const bool divided = divide_tile(p, rows[i].first, target, reason);
      INFO("tile " << name(of, i) << ": " << reason);
      REQUIRE(divided);
      give("tile " + name(of, i), p);
    }
  }
  size_t table = 0;
  for (const auto& [of, rows] : measured_attentions()) {
    const AttendCandidates all = attention_plans(of);
    for (const AttendPlan& p : all.plans)
      for (size_t i = 0; i < rows.size(); i++)
        if (is_division(p, rows[i])) give(fmt::format("attend table {}: {}", table, i), p);
    table++;
  }
}

}  // namespace mirage::test

// Tiles for the tensor cores' rate (runtime/67_wgmma_wide.cuh, 68_tile.cuh) on the CPU: products that run on over the next chunk, blocks
// that copy rows for each other, batches, rows in TF32 that come by tensor copies; blocks that stay for several tiles, whose copies run on
// over the ends of tiles and whose results leave by tensor copies while the next products run; rows whose lines lie across the reduction.
// Extents that nothing divides.
#include <fmt/format.h>

#include "mirage/plan/bound.h"
#include "emulate/helpers.h"
#include "mirage/plan/passes.h"
#include "plan/tile/tile_plan.h"
#include "plan/stream/stream_internal.h"
#include "plan/tile/tile_internal.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

namespace {

std::string tensor(const char* name, const std::string& shape, const char* dtype) {
  return fmt::format(R"("{}": {{"shape": [{}], "dtype": "{}"}})", name, shape, dtype);
}

/// silu(x w1) x w2 (or x w1) plus a residual; x times a gain first if `gain`.
std::string spec(int batch, int m, int k, int n, bool gated, bool gain, const char* dtype) {
  const std::string lead = batch > 1 ? fmt::format("{}, ", batch) : "", out = fmt::format("{}{}, {}", lead, m, n);
  std::string inputs = tensor("x", fmt::format("{}{}, {}", lead, m, k), dtype) + ", " +
                       tensor("w", fmt::format("{}{}, {}", lead, k, n), dtype) + ", " + tensor("r", out, dtype),
              nodes;
  if (gain) inputs += ", " + tensor("g", std::to_string(k), dtype), nodes += R"({"op": "mul", "inputs": ["x", "g"], "output": "u"}, )";
  const char* x = gain ? "u" : "x";
  nodes += fmt::format(R"({{"op": "matmul", "inputs": ["{}", "w"], "output": "a"}}, )", x);
  if (gated) {
    inputs += ", " + tensor("v", fmt::format("{}{}, {}", lead, k, n), dtype);
    nodes += fmt::format(
        R"({{"op": "matmul", "inputs": ["{}", "v"], "output": "b"}}, {{"op": "silu", "inputs": ["a"], "output": "s"}}, )"
        R"({{"op": "mul", "inputs": ["s", "b"], "output": "c"}}, )",
        x);
  }
  nodes += fmt::format(R"({{"op": "add", "inputs": ["{}", "r"], "output": "y"}})", gated ? "c" : "a");
  return fmt::format(R"({{"version": "1.0", "name": "tile", "inputs": {{{}}}, "outputs": {{{}}}, "nodes": [{}]}})", inputs,
                     tensor("y", out, dtype), nodes);
}

struct Wanted { bool large; int column_groups, group_rows, chunk, stages, sharing; };

/// x as [k, m] if `across`; relu(x w + b) + r if `tail`, in one call.
struct Product { int batch, m, k, n; bool across, tail; const char* dtype; };

std::string product_spec(const Product& p) {
  const std::string lead = p.batch > 1 ? fmt::format("{}, ", p.batch) : "";
  const auto tensor = [&](const char* name, int rows, int columns) {
    return fmt::format(R"("{}": {{"shape": [{}{}, {}], "dtype": "{}"}})", name, lead, rows, columns, p.dtype);
  };
  const std::string inputs = (p.across ? tensor("x", p.k, p.m) : tensor("x", p.m, p.k)) + ", " + tensor("w", p.k, p.n);
  if (p.tail)
    return fmt::format(R"({{"version": "1.0", "name": "tile", "inputs": {{{}, "b": {{"shape": [{}], "dtype": "{}"}}, {}}}, )"
                       R"("outputs": {{{}}}, "nodes": [{{"op": "matmul", "inputs": ["x", "w"], "output": "s"}}, )"
                       R"({{"op": "add", "inputs": ["s", "b"], "output": "t"}}, {{"op": "relu", "inputs": ["t"], "output": "u"}}, )"
                       R"({{"op": "add", "inputs": ["u", "r"], "output": "y"}}]}})",
                       inputs, p.n, p.dtype, tensor("r", p.m, p.n), tensor("y", p.m, p.n));
  return fmt::format(R"({{"version": "1.0", "name": "tile", "inputs": {{{}}}, "outputs": {{{}}}, )"
                     R"("nodes": [{{"op": "matmul", "inputs": ["x", "w"], "output": "y"{}}}]}})",
                     inputs, tensor("y", p.m, p.n), p.across ? R"(, "attrs": {"transpose_a": true})" : "");
}

/// The product with its tail as one call.
Graph fused(const Product& p, const Program& program) {
  const DType t = program.inputs[0].type.dtype;
  const auto tiles = [](int extent) { return (extent + 15) / 16; };
  Builder b(Level::kBlock, {{tiles(p.n), tiles(p.m), 1}, tiles(p.k)}), top(Level::kKernel);
  const ValueId x = b.add_input(0, {t, {16, 16}}, {{-1, 0, -1}, 1}), w = b.add_input(1, {t, {16, 16}}, {{1, -1, -1}, 0}),
                bias = b.add_input(2, {t, {16}}, {{0, -1, -1}, -1}), r = b.add_input(3, {t, {16, 16}}, {{1, 0, -1}, -1});
  const ValueId sum = b.add(Accum{}, {b.add(MatMul{}, {x, w})});
  const ValueId y = b.map(MapFn::kAdd, {b.map(MapFn::kRelu, {b.map(MapFn::kAdd, {sum, bias})}), r});
  b.add_output(0, y, t, {{1, 0, -1}, -1});
  std::vector<ValueId> operands;
  for (size_t i = 0; i < program.inputs.size(); i++) operands.push_back(top.add_input(static_cast<int>(i), program.inputs[i].type));
  top.add_output(0, top.add(Call{std::make_shared<const Graph>(std::move(b).finish())}, operands), t);
  return std::move(top).finish();
}

/// A kernel's work as that tile, if it has any.
bool divide(KernelPlan& k, const TileChoice& want, const Target& target, const ContractRule& rule, bool across) {
  const std::span<const KernelCall> calls = bound_calls(k);
  if (calls.empty()) return false;
  std::string reason;
  const auto shape = match_stream(calls[0].body, calls[0].operands, calls[0].results, rule, kAnyRows, reason);
  std::optional<TilePlan> t = shape ? tile_plan(*shape, target, reason) : std::nullopt;
  const bool fits = t && divide_tile(*t, want, target, reason);
  INFO(reason);
  CHECK(fits);
  if (!fits) return false;
  CHECK(std::any_of(t->small.begin(), t->small.end(), [](const TileRows& r) { return r.across; }) == across);
  t->cost = estimate(*t, target);
  k.body = body_with<TilePlan>(*std::move(t));
  return true;
}

struct Staying { Product product; TileChoice choice; const char* what; };

std::vector<Staying> staying_cases() {
  std::vector<Staying> out;
  TileChoice c;
  c.large = true, c.cluster = 1;
  c.row_groups = 1, c.column_groups = 2, c.group_rows = 128, c.stages = 3, c.held_tiles = 16;
  out.push_back({{1, 300, 392, 328, false, false, "bfloat16"}, c, "128 x 128, nine tiles"});
  c.held_tiles = 8, c.sharing = 2;   // the last column block does not exist: the places' turns go on
  out.push_back({{1, 300, 392, 328, false, false, "float16"}, c, "two blocks share rows, results leave in halves"});
  c.sharing = 1, c.row_groups = 2, c.column_groups = 1, c.group_rows = 64, c.stages = 3, c.blocks_per_sm = 2;
  out.push_back({{3, 150, 32, 200, false, false, "float16"}, c, "a batch, half a chunk, more stages than a tile has chunks"});
  c.row_groups = 1, c.group_rows = 96, c.stages = 4, c.held_tiles = 4, c.blocks_per_sm = 1;
  out.push_back({{1, 200, 136, 136, false, false, "bfloat16"}, c, "96 rows in three times, 64 columns"});
  c.group_rows = 64, c.column_groups = 2, c.held_tiles = 8;
  out.push_back({{1, 150, 200, 328, false, true, "bfloat16"}, c, "a bias, relu and a residual"});
  c.row_groups = 2, c.sharing = 2;
  out.push_back({{1, 300, 72, 456, false, true, "float16"}, c, "the same, rows shared, two chunks"});
  c.column_groups = 1, c.sharing = 1;
  out.push_back({{1, 264, 200, 200, true, false, "bfloat16"}, c, "rows across the reduction"});
  c.held_tiles = 0, c.sharing = 2, c.group_rows = 128, c.stages = 3;
  out.push_back({{1, 264, 200, 200, true, false, "float16"}, c, "rows across the reduction, shared, a block per tile"});
  c.sharing = 1, c.row_groups = 1, c.column_groups = 2, c.chunk = 128, c.stages = 2;
  out.push_back({{2, 136, 264, 72, true, false, "float16"}, c, "rows across the reduction, a batch, chunks of 128"});
  return out;
}

/// Both modes of every case are right.
void check_all(const std::vector<EmulationCase>& cases, const std::vector<std::string>& names, const std::string& compiler) {
  std::vector<const EmulationCase*> all;
  for (const EmulationCase& c : cases) all.push_back(&c);
  const EmulationLibrary lib = build_emulation(all, compiler, emulation_folder());
  INFO(lib.error);
  REQUIRE(lib.error.empty());
  for (size_t i = 0; i < cases.size(); i++)
    for (EmulationMode m : {EmulationMode::kField, EmulationMode::kFloat}) {
      const EmulationOutcome o = run_emulation(cases[i], lib.path, m, 1);
      INFO(names[i] << ", " << mode_name(m) << ": " << o.reason);
      CHECK(o.ok);
      CHECK(o.compared * 2 >= o.elements);
    }
}

}  // namespace

TEST_CASE("tiles for the tensor cores' rate are right on the CPU") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  // The straightforward plan; its one product (or all of them, if there are two) divided as wanted.
  const auto add = [&](const std::string& text, const Wanted& want, const char* what) {
    const Program p = program_of(text, what);
    Planned planned = make_plan(p, p.graph, target);
    REQUIRE(planned.plan);
    int divided = 0;
    for (KernelPlan& k : planned.plan->kernels) {
      const auto tile = plan_in<TilePlan>(k.body);
      if (!tile) continue;
      const TileCandidates all = tile_candidates((*tile)->body, (*tile)->operands, (*tile)->results, target, contract_rule(p));
      for (const TilePlan& t : all.plans)
        if (t.large == want.large && t.row_groups == 1 && t.column_groups == want.column_groups && t.group_rows == want.group_rows &&
            t.chunk == want.chunk && t.stages == want.stages && t.sharing == want.sharing && t.cluster == 1 && t.blocks_per_sm == 1) {
          k.body = body_with<TilePlan>(t);
          divided++;
          break;
        }
    }
    INFO(what);
    CHECK(divided > 0);
    cases.push_back(case_of(p, *planned.plan, target, fmt::format("t{}_", cases.size())));
    names.push_back(what);
  };
  add(spec(1, 300, 392, 328, false, false, "bfloat16"), {true, 2, 256, 64, 4, 2}, "two blocks share 256 rows, a ragged third column block");
  add(spec(1, 150, 456, 200, true, false, "float16"), {true, 2, 80, 64, 3, 2}, "two weights, 80 rows of which each block brings 40");
  add(spec(3, 70, 328, 136, false, false, "bfloat16"), {true, 1, 80, 64, 3, 1}, "a batch");
  add(spec(1, 100, 328, 136, false, true, "float16"), {false, 1, 112, 64, 3, 1}, "rows in TF32, made by a kernel of their own");
  check_all(cases, names, compiler);
}

TEST_CASE("blocks that stay for several tiles, and rows across the reduction, are right on the CPU") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = without(*find_target("sm_90a"), Pass::kOrder);   // rows as they lie
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  for (const Staying& s : staying_cases()) {
    INFO(s.what);
    const Program p = program_of(product_spec(s.product), s.what);
    Planned planned = make_plan(p, s.product.tail ? fused(s.product, p) : p.graph, target);
    REQUIRE(planned.plan);
    int divided = 0;
    for (KernelPlan& k : planned.plan->kernels) divided += divide(k, s.choice, target, contract_rule(p), s.product.across);
    CHECK(divided > 0);
    cases.push_back(case_of(p, *planned.plan, target, fmt::format("s{}_", cases.size())));
    names.push_back(s.what);
  }
  check_all(cases, names, compiler);
}

namespace {

/// y = (x w + b) g and z = relu(x w) transposed, with b of columns and g of rows, as one call.
struct TwoWays { int batch, m, k, n; const char* dtype; };

std::string two_ways_spec(const TwoWays& p) {
  const std::string lead = p.batch > 1 ? fmt::format("{}, ", p.batch) : "", last = p.batch > 1 ? "0, 2, 1" : "1, 0";
  return fmt::format(
      R"({{"version": "1.0", "name": "tile", "inputs": {{{}, {}, {}, {}}}, "outputs": {{"y": {{"dtype": "{}"}}, "z": {{"dtype": "{}"}}}}, )"
      R"("nodes": [{{"op": "matmul", "inputs": ["x", "w"], "output": "s"}}, {{"op": "add", "inputs": ["s", "b"], "output": "t"}}, )"
      R"({{"op": "mul", "inputs": ["t", "g"], "output": "y"}}, {{"op": "relu", "inputs": ["s"], "output": "u"}}, )"
      R"({{"op": "transpose", "inputs": ["u"], "output": "z", "attrs": {{"perm": [{}]}}}}]}})",
      tensor("x", fmt::format("{}{}, {}", lead, p.m, p.k), p.dtype), tensor("w", fmt::format("{}{}, {}", lead, p.k, p.n), p.dtype),
      tensor("b", std::to_string(p.n), p.dtype), tensor("g", fmt::format("{}, 1", p.m), p.dtype), p.dtype, p.dtype, last);
}

Graph two_ways(const TwoWays& p, const Program& program) {
  const DType t = program.inputs[0].type.dtype;
  const bool batch = p.batch > 1;
  const auto tiles = [](int extent) { return (extent + 15) / 16; };
  const auto type = [&](int rows, int columns) { return Type{t, batch ? Dims{1, rows, columns} : Dims{rows, columns}}; };
  const int8_t r = batch ? 1 : 0, c = batch ? 2 : 1, z = batch ? 0 : -1;
  Builder b(Level::kBlock, {{tiles(p.n), tiles(p.m), p.batch}, tiles(p.k)}), top(Level::kKernel);
  const ValueId x = b.add_input(0, type(16, 16), {{-1, r, z}, c}), w = b.add_input(1, type(16, 16), {{c, -1, z}, r}),
                bias = b.add_input(2, {t, {16}}, {{0, -1, -1}, -1}), gain = b.add_input(3, {t, {16, 1}}, {{-1, 0, -1}, -1});
  const ValueId sum = b.add(Accum{}, {b.add(MatMul{}, {x, w})});
  b.add_output(0, b.map(MapFn::kMul, {b.map(MapFn::kAdd, {sum, bias}), gain}), t, {{c, r, z}, -1});
  b.add_output(1, b.map(MapFn::kRelu, {sum}), t, {{c, r, z}, -1});
  std::vector<ValueId> operands;
  for (size_t i = 0; i < program.inputs.size(); i++) operands.push_back(top.add_input(static_cast<int>(i), program.inputs[i].type));
  const ValueId y = top.add(Call{std::make_shared<const Graph>(std::move(b).finish())}, operands);
  top.add_output(0, y, t);
  top.add_output(1, top.add(batch ? Transpose{{0, 2, 1}} : Transpose{{1, 0}}, {y + 1}), t);
  return std::move(top).finish();
}

struct WaysCase { TwoWays product; TileChoice choice; const char* what; };

std::vector<WaysCase> by_columns_cases() {
  std::vector<WaysCase> out;
  TileChoice c;
  c.large = true, c.cluster = 1, c.row_groups = 1, c.group_rows = 96, c.stages = 3;
  out.push_back({{1, 152, 200, 200, "bfloat16"}, c, "96 rows of 152, a column block of 8"});
  c.row_groups = 2, c.group_rows = 80;
  out.push_back({{3, 152, 200, 168, "float16"}, c, "ten row tiles of a warpgroup, a batch"});
  c.row_groups = 1, c.cluster = 4, c.stages = 2;
  out.push_back({{1, 248, 456, 264, "float16"}, c, "ten row tiles that four blocks finish"});
  c.cluster = 1, c.row_groups = 2, c.stages = 3;
  out.push_back({{3, 149, 200, 168, "float16"}, c, "lines that begin anywhere, a batch"});
  c.group_rows = 64, c.held_tiles = 8;
  out.push_back({{1, 456, 72, 520, "bfloat16"}, c, "blocks that stay, 64 rows leave at once"});
  c.row_groups = 1, c.column_groups = 2, c.group_rows = 128, c.held_tiles = 16;
  out.push_back({{2, 264, 136, 392, "float16"}, c, "blocks that stay, 128 rows leave as two boxes, a batch"});
  return out;
}

}  // namespace

TEST_CASE("results that lie along rows, beside others along columns, are right on the CPU") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Target target = *find_target("sm_90a");
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  for (const WaysCase& s : by_columns_cases()) {
    INFO(s.what);
    const Program p = program_of(two_ways_spec(s.product), s.what);
    Planned planned = make_plan(p, two_ways(s.product, p), target);
    REQUIRE(planned.plan);
    REQUIRE(planned.plan->kernels.size() == 1);
    KernelPlan& k = planned.plan->kernels[0];
    REQUIRE(divide(k, s.choice, target, contract_rule(p), false));
    const TilePlan t = **plan_in<TilePlan>(k.body);
    CHECK(staged_by_columns(t, t.body.outputs()[0]) == ByColumns::kNo);
    CHECK(staged_by_columns(t, t.body.outputs()[1]) == (s.product.m % 8 ? ByColumns::kUneven : ByColumns::kWhole));
    cases.push_back(case_of(p, *planned.plan, target, fmt::format("c{}_", cases.size())));
    names.push_back(s.what);
  }
  check_all(cases, names, compiler);
}

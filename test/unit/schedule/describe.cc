// Plans of many kernels as programs: what each says in text is read back, obeys the laws, erases to a muGraph equal to the body that was
// planned, and derives the bytes, barriers, threads and blocks that its emitter uses today.
#include <algorithm>
#include <map>
#include <set>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "mirage/plan/bound.h"
#include "mirage/codegen/module.h"
#include "plan/block/block_plan.h"
#include "mirage/plan/cublas.h"
#include "mirage/plan/region.h"
#include "mirage/plan/strategy.h"
#include "mirage/plan/describe.h"
#include "mirage/support/round.h"
#include "mirage/verify/proof.h"
#include "mirage/verify/sampled.h"
#include "mirage/verify/verify.h"
#include "unit/plan/many_kernels.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;

namespace {

const Target& target() { static const Target t = *find_target("sm_90a"); return t; }

/// A program that calls the body on tensors as its parameters say.
Graph calling(const Graph& body, const std::vector<schedule::Param>& params) {
  Builder b(Level::kKernel);
  std::vector<ValueId> operands;
  int inputs = 0;
  for (const schedule::Param& p : params)
    operands.push_back(p.position >= 0 ? b.add(Iota{p.position, p.dims}, {}) : b.add_input(inputs++, {p.dtype, p.dims}));
  const ValueId first = b.add(Call{std::make_shared<const Graph>(body)}, operands);
  const std::vector<NodeId> outputs = body.outputs();
  for (size_t i = 0; i < outputs.size(); i++)
    b.add_output(static_cast<int>(i), first + static_cast<ValueId>(i), body.form<Output>(outputs[i])->dtype);
  return std::move(b).finish();
}

/// The planned body of a kernel; null: a strategy without one.
const Graph* body_of(const KernelPlan& k) {
  const std::span<const KernelCall> calls = bound_calls(k);
  return calls.empty() ? nullptr : &calls[0].body;
}

/// Calls f with what its strategy decided.
template <class F> void with_plan(const KernelPlan& k, F&& f) {
  if (const auto p = plan_in<StreamPlan>(k.body)) f(**p);
  if (const auto p = plan_in<TilePlan>(k.body)) f(**p);
  if (const auto p = plan_in<AttendPlan>(k.body)) f(**p);
  if (const auto p = plan_in<BlockPlan>(k.body)) f(**p);
}

using Offsets = std::map<std::string, int64_t>;

/// Where the emitters find what they put into shared memory, by section, and the offsets of weights in a slot of the ring, by place.
Offsets offsets_of(const StreamPlan& p) {
  Offsets out;
  if (p.registers) return out;
  out = {{"ring", 0}, {"received", p.received_at}, {"statistics", p.statistics_at}, {"early", p.early_at}, {"barriers", p.barriers_at}};
  if (p.prepared) out["prepared"] = p.prepared_at;
  for (size_t i = 0; i < p.weights.size(); i++) out[fmt::format("w{}", i)] = p.weights[i].offset;
  return out;
}
Offsets offsets_of(const TilePlan& p) {
  Offsets out = {{"ring", 0}, {"barriers", p.barriers_at}};
  for (NodeId n : p.body.outputs())
    if (p.held_tiles) out[fmt::format("held_result{}", p.body.form<Output>(n)->result)] = staged_at(p, n);
  int next = 0;
  for (NodeId n : p.body.inputs())
    if (staged_at(p, n) >= 0)
      out[p.held_tiles ? fmt::format("tail{}", next++) : fmt::format("x{}", p.body.form<Input>(n)->param)] = staged_at(p, n);
  for (NodeId n : p.body.outputs())
    if (!p.held_tiles && staged_at(p, n) >= 0) out[fmt::format("out{}", p.body.form<Output>(n)->result)] = staged_at(p, n);
  if (p.turned) out["factors"] = p.ranks_at;
  else
    out.insert({{"computed", p.computed_at},
                {"ranks", p.ranks_at},
                {"statistics", p.statistics_at},
                {"received", p.received_at},
                {"received0", p.received_at}});
  for (size_t i = 0; i < p.weights.size(); i++) out[fmt::format("w{}", i)] = p.weights[i].offset;
  for (size_t i = 0; i < p.small.size(); i++)
    out[fmt::format("rows{}", i)] = p.small[i].offset + (p.small[i].input >= 0 ? 0 : p.computed_at);
  return out;
}
Offsets offsets_of(const AttendPlan& p) {
  if (p.wide)
    return {{"queries", 0},
            {"ring", p.ring_at},
            {"scores", p.scores_at},
            {"weights", p.weights_at},
            {"statistics", p.statistics_at},
            {"received", p.receive_at}, {"barriers", p.barriers_at}};
  return {
      {"queries", 0},        {"ring", p.ring_at},        {"k", p.ring_at},           {"v", p.ring_at + int64_t{2} * p.chunk * p.features},
      {"known", p.known_at}, {"received", p.receive_at}, {"barriers", p.barriers_at}};
}
Offsets offsets_of(const BlockPlan& p) {
  Offsets out;
  for (size_t i = 0; i < p.tiles.size(); i++) if (p.tiles[i].bytes > 0) out[fmt::format("t{}", i)] = p.tiles[i].offset;
  return out;
}

/// All numbers behind `word` in the emitted text, up to `end`.
std::vector<int64_t> numbers_behind(const std::string& text, const std::string& word, const std::string& end) {
  std::vector<int64_t> out;
  for (size_t i = text.find(word); i != std::string::npos; i = text.find(word, i + 1)) {
    const size_t from = i + word.size(), to = text.find(end, from);
    const std::string number = text.substr(from, to - from);
    if (!number.empty() && number.find_first_not_of("0123456789") == std::string::npos) out.push_back(std::stoll(number));
  }
  return out;
}

const schedule::Barriers* barriers_of(const schedule::Derived& d, const std::string& name) {
  for (const schedule::Barriers& b : d.barriers) if (b.name == name) return &b;
  return nullptr;
}

/// What the emitted text sets up: which barriers, for how many arrivals and bytes, and the registers that roles give and take.
void check_barriers(const StreamPlan& p, const schedule::Derived& d, const schedule::KernelProgram&, const std::string& source) {
  const std::vector<int64_t> bytes = numbers_behind(source, "mbarrier_expect(bar, ", ")"),
                             met = numbers_behind(source, "mbarrier_expect(met, ", ")");
  const schedule::Barriers* full = barriers_of(d, "ring.full");
  CHECK((full != nullptr) == !bytes.empty());
  if (full) {
    CHECK(full->count == p.warps * p.stages);
    CHECK(full->arrivals == 1);
    CHECK(full->bytes == *std::max_element(bytes.begin(), bytes.end()));
  }
  const schedule::Barriers* meeting = barriers_of(d, "met");
  CHECK((meeting != nullptr) == !met.empty());
  if (meeting) CHECK(std::vector<int64_t>{meeting->bytes} == met);
}
void check_barriers(const TilePlan& p, const schedule::Derived& d, const schedule::KernelProgram& k, const std::string& source) {
  const std::vector<int64_t> bytes = numbers_behind(source, "mbarrier_expect(bar, ", ")");
  int64_t all = 0;
  for (int64_t x : bytes) all += x;
  const schedule::Barriers* full = barriers_of(d, "ring.full");
  REQUIRE(full);
  CHECK(full->count == p.stages);
  CHECK(full->bytes == all);
  for (const auto& [section, name] : {std::pair{"plain.full", "ranks"}, {"factors.full", "factors"}})
    if (const schedule::Barriers* b = barriers_of(d, section))
      CHECK(std::vector<int64_t>{b->bytes} == numbers_behind(source, fmt::format("mbarrier_expect({}, ", name), ")"));
  if (p.turned) return;
  CHECK(std::vector<int64_t>{full->arrivals} == numbers_behind(source, "mbarrier_init(full + 8 * s, ", ")"));
  const schedule::Barriers* empty = barriers_of(d, "ring.empty");
  const int64_t rounds = ceil_div(p.blocks() * p.batch, p.launched());
  CHECK((empty != nullptr) == (p.chunks_per_block * rounds > p.stages));   // all are set up, and waited for where a slot is filled again
  const std::vector<int64_t> arrived = numbers_behind(source, "mbarrier_expect(arrived + 8 * g, ", " * (kTiles * 1024)");
  const schedule::Barriers* brought = barriers_of(d, "tail0.full");
  CHECK((brought != nullptr) == !arrived.empty());
  if (brought) {
    CHECK(brought->count == p.groups());
    CHECK(brought->bytes == arrived[0] * p.tiles() * 1024);
    const schedule::Barriers* left = barriers_of(d, "tail0.empty");
    CHECK((left != nullptr) == (rounds > 1));
    if (left) CHECK(left->arrivals == 1);
  }
  if (empty) CHECK(empty->arrivals == 4 * p.groups() * p.sharing);
  CHECK((source.find(fmt::format("mbarrier_init(empty + 8 * s, kWarps{})", p.sharing > 1 ? " * kSharing" : "")) != std::string::npos));
  const schedule::Barriers* meeting = barriers_of(d, "met");
  CHECK((meeting != nullptr) == (p.cluster > 1));
  if (const std::vector<int64_t> met = numbers_behind(source, "mbarrier_expect(met, ", ")"); meeting && !met.empty())
    CHECK(std::vector<int64_t>{meeting->bytes} == met);
  const std::vector<int64_t> grow = numbers_behind(source, "registers_grow<", ">"),
                             shrink = numbers_behind(source, "registers_shrink<", ">");
  CHECK(grow == (k.roles.back().registers ? std::vector<int64_t>{k.roles.back().registers} : std::vector<int64_t>{}));
  CHECK(shrink == (k.roles.front().registers ? std::vector<int64_t>{k.roles.front().registers} : std::vector<int64_t>{}));
}
/// As runtime/63_attend_groups.cuh, 64_attend_warps.cuh and 67_attend_wide.cuh set them up.
void check_barriers(const AttendPlan& p, const schedule::Derived& d, const schedule::KernelProgram& k, const std::string&) {
  const int groups = p.query_groups * p.key_groups, readers = 4 * p.query_groups;
  const auto same = [&](const char* name, bool wanted, int count, int arrivals, int64_t bytes) {
    const schedule::Barriers* b = barriers_of(d, name);
    INFO(name);
    CHECK((b != nullptr) == wanted);
    if (!b) return;
    CHECK(b->count == count);
    CHECK(b->arrivals == arrivals);
    CHECK(b->bytes == bytes);
  };
  const int64_t key_bytes = int64_t{2} * p.chunk * p.features, value_bytes = int64_t{2} * p.chunk * p.columns;
  if (p.wide) {
    same("k.full", true, p.stages * p.features / 64, 1, int64_t{128} * p.chunk);
    same("v.full", p.value_boxes > 0, p.stages * p.value_boxes, 1, int64_t{128} * p.chunk);
    return;
  }
  const int slots = p.stages * (p.warp_rings ? groups : 1);
  same("k.full", true, slots, 1, key_bytes);
  same("v.full", true, slots, 1, value_bytes);
  same("queries.full", true, 1, 1, int64_t{2} * p.query_groups * p.group_rows() * p.features);
  const auto helpers_of = [&](const char* operand) {   // they arrive, too, where what they know of a key does not come from it
    const auto is_operand = [&](schedule::PlaceId x) { return k.places[static_cast<size_t>(x)].name == operand; };
    const auto reads = [&](const schedule::Stage& s) {
      return s.unit == schedule::UnitId::kNone && std::any_of(s.reads.begin(), s.reads.end(), is_operand);
    };
    return std::any_of(k.stages.begin(), k.stages.end(), reads) ? p.helpers : 0;
  };
  same("k.empty", p.producer, slots, readers + helpers_of("k"), 0);
  same("v.empty", p.producer, slots, readers + helpers_of("v"), 0);
  same("by_key.full", p.helpers > 0 && !p.key_known.empty(), slots, p.helpers + (p.producer ? 1 : 0), 0);
  same("by_value.full", p.helpers > 0 && !p.value_known.empty(), slots, p.helpers + (p.producer ? 1 : 0), 0);
  same("met", p.cluster > 1, 1, 1, int64_t{p.cluster} * p.rows * p.record_bytes);
  CHECK(k.roles.back().registers == p.grow);
  CHECK(d.slots_bytes == p.slot_bytes);
  const bool kept = k.roles.front().registers == p.shrink || (k.roles.front().warps == 0 && k.roles[1].registers == p.shrink);
  CHECK((p.grow == 0 || kept));
}
void check_barriers(const BlockPlan&, const schedule::Derived&, const schedule::KernelProgram&, const std::string&) {}

void check_derived(const KernelPlan& k, const schedule::KernelProgram& p, const schedule::Derived& d, const std::string& source) {
  Offsets today;
  with_plan(k, [&](const auto& plan) { today = offsets_of(plan); });
  const auto compare = [&](const std::string& name, int64_t at) {
    const auto it = today.find(name);
    INFO(name);
    if (it != today.end()) CHECK(at == it->second);
  };
  for (size_t i = 0; i < p.sections.size(); i++) compare(p.sections[i].name, d.section_at[i]);
  for (size_t i = 0; i < p.places.size(); i++) compare(p.places[i].name, d.place_at[i]);
  int checked = 0;
  with_plan(k, [&](const auto& plan) { check_barriers(plan, d, p, source), checked++; });
  CHECK(checked == 1);
  CHECK((source.find(fmt::format("__launch_bounds__({}, {})", d.threads, p.per_sm)) != std::string::npos));
  CHECK((source.find(fmt::format("__cluster_dims__({}, 1, 1)", d.cluster)) != std::string::npos) == (d.cluster > 1));
}

/// The plan of the program is the one that it was made of: the same text is emitted. So is that of the program as it is read from its text.
void check_plan_of(const KernelPlan& k, const Plan& plan, const schedule::KernelProgram& p, const schedule::KernelProgram& read,
                   std::map<std::string, int>& back) {
  const std::string strategy = strategy_of(k).name;
  schedule::PlanOf own = plan_of(p, target());
  const schedule::PlanOf again = plan_of(read, target());
  INFO("read: " << again.reason << " " << again.line << " / " << again.has);
  if (own.plan && !again.plan && strategy == "block") back["block: read, steps that need nothing of each other in another order"]++;
  else CHECK(own.plan.has_value() == again.plan.has_value());
  if (!own.plan) { back[strategy + ": " + own.reason + (own.line.empty() ? "" : ": " + own.line + ", not " + own.has)]++; return; }
  own.plan->why = k.why;   // and what it is in its library
  own.plan->early = k.early;
  own.plan->slots = k.slots;
  own.plan->nodes = k.nodes;
  Plan with = plan;
  if (with.buffers.size() < 32) with.buffers.resize(32);
  const std::string was = emit_kernel(k, plan, target()).source, is = emit_kernel(*own.plan, with, target()).source;
  back[strategy + (was == is ? ": the same text" : ": another text")]++;
}

struct Counts {
  std::map<std::string, int> described, refused, back;   // back: plans of programs
  std::set<std::pair<uint64_t, uint64_t>> proved;
  int compared = 0;
};

void check(const std::string& name, const KernelPlan& k, const Plan& plan, Counts& counts) {
  const schedule::Described d = schedule::describe(k, target());
  if (!d.program) { counts.refused[std::string(strategy_of(k).name) + ": " + d.reason]++; return; }
  counts.described[strategy_of(k).name]++;
  const std::string text = print(*d.program);
  INFO(name << "\n" << text);
  const auto read = schedule::parse_schedule(text);
  if (!read) UNSCOPED_INFO(render(read.errors()[0], text));
  REQUIRE(read);
  REQUIRE(print(*read) == text);
  const auto broken = check_laws(*read, target());
  CHECK(broken.value_or("obeys the laws") == "obeys the laws");
  const schedule::Erased e = schedule::erase(*read);
  CHECK(e.reason == "");
  if (!e.graph) return;
  std::vector<Type> types;
  for (const schedule::Param& x : read->params) types.push_back({x.dtype, x.dims});
  const bool is_exact =
      !mirage::check_laws(*body_of(k), types);  // some rows of the tables are of bodies whose tiles leave a tail that no graph has
  const Graph a = calling(is_exact ? *body_of(k) : d.program->body, read->params), b = calling(*e.graph, read->params);
  if (counts.proved.insert({a.hash(), b.hash()}).second) {
    const Proof proof = prove(a, b);
    if (!proof.proved) UNSCOPED_INFO(print(a) << print(b));
    if (!proof.proved) CHECK(to_string(proof) == "");
    CHECK(proof.proved);
    if (std::any_of(read->assumes.begin(), read->assumes.end(),
                    [](const schedule::Assumption& x) { return !x.answer; })) {  // the proof is of tilings that divide
      const SampledComparison seen = sampled_difference(a, b, 1, 4, {3e7, 1e8});
      CHECK(!seen.difference);
      counts.compared += seen.refusal.empty();
    }
  }
  for (size_t i = 0; i + 1 < bound_calls(k).size(); i++) {
    const schedule::KernelProgram other = alone(*read, read->beside[i]);
    const schedule::Erased own = schedule::erase(other);
    REQUIRE(own.graph);
    CHECK(prove(calling(bound_calls(k)[i + 1].body, other.params), calling(*own.graph, other.params)).proved);
  }
  check_plan_of(k, plan, *d.program, *read, counts.back);
  const KernelText t = emit_kernel(k, plan, target());
  const schedule::Derived x = derive(*read);
  CHECK(x.smem_bytes == t.smem_bytes);
  CHECK(x.threads == t.threads);
  CHECK(x.blocks == t.grid[0] * t.grid[1] * t.grid[2]);
  check_derived(k, *read, x, t.source);
}

}  // namespace

TEST_CASE("plans of many kernels are programs", "[schedule]") {
  Counts counts;
  const auto each = [&](const std::string& name, const KernelPlan& k, const Plan& plan) { check(name, k, plan, counts); };
  each_table_kernel(target(), each);
  each_joined_kernel(target(), 4, each);
  each_joined_sum(target(), 12, each);
  each_converted_stream(target(), 12, each);
  each_spec_kernel(target(), 1, as_blocks(target(), 5, each));
  each_table_kernel(target(), as_blocks(target(), 2, each));
  each_ragged_block(target(), 12, each);
  each_spec_kernel(target(), 12, each);
  each_attention(target(), 12, each, [](const std::string& name, const std::string& why) { FAIL_CHECK(name << ": " << why); });
  const std::set<std::string> without = {   // these have no programs yet (docs/schedule.md); nothing else goes without one
      "region: kernels of the strategy 'region' have none"};
  for (const auto& [what, n] : counts.refused) {
    INFO(what << ": " << n);
    CHECK(without.count(what) == 1);
  }
  for (const auto& [what, n] : counts.refused) UNSCOPED_INFO(what << ": " << n);
  for (const auto& [what, n] : counts.described) UNSCOPED_INFO(what << ": " << n);
  for (const auto& [what, n] : counts.back) {
    INFO(what << ": " << n);
    const bool is_known = what.ends_with("the same text") || what.find("calls beside each other") != std::string::npos ||
                          (what.starts_with("block: ") && what.ends_with(" rotated")) ||      // over a grid whose first axis has one block
                          what.starts_with("block: read");
    CHECK(is_known);
  }
  CHECK(counts.back["stream: the same text"] + counts.back["tile: the same text"] >= 270);
  CHECK(counts.back["attend: the same text"] >= 240);
  CHECK(counts.back["block: the same text"] >= 390);
  CHECK(counts.back["block: read, steps that need nothing of each other in another order"] <= 28);
  CHECK(counts.described["stream"] >= 200);
  CHECK(counts.described["tile"] >= 50);
  CHECK(counts.described["block"] >= 300);
  CHECK(counts.described["attend"] >= 250);
  CHECK(counts.proved.size() >= 140);
  CHECK(counts.compared >= 1);
}

TEST_CASE("rows that are multiplied in two types have a place for each", "[schedule]") {
  Plan plan;
  plan.buffers.resize(16);
  const auto stored = [](int buffer, DType t, const Dims& dims) { return Access{buffer, 0, dims, row_major_strides(dims), t}; };
  for (const std::string small : {"%x", "(silu %x)"}) {
    const auto g = parse_graph(fmt::format(
        "block grid(8,1,1) loop(16) {{\n%x = input 0 loop(1) : bf16[64,32]  %w = input 1 grid(1,-,-) loop(0) : bf16[32,32]\n"
        "%u = input 2 grid(1,-,-) loop(0) : f16[32,32]\n"
        "%o = add (accum.sum (matmul {0} %w)) (accum.sum (matmul {0} %u))\noutput 0 %o grid(1,-,-) : bf16\n}}\n",
        small));
    REQUIRE(g);
    const std::vector<Access> operands = {stored(0, DType::kBF16, {64, 512}), stored(1, DType::kBF16, {512, 256}),
                                          stored(2, DType::kF16, {512, 256})};
    const TileCandidates all = tile_candidates(*g, operands, {stored(3, DType::kBF16, {64, 256})}, target(), {DType::kBF16, false});
    INFO(small << ": " << all.reason);
    REQUIRE(!all.plans.empty());
    KernelPlan k;
    k.name = "k";
    k.body = body_with<TilePlan>(all.plans.front());
    const schedule::Described d = schedule::describe(k, target());
    INFO(d.reason);
    REQUIRE(d.program);
    std::map<std::string, DType> read;   // what the units take beside each weight
    for (const schedule::Stage& s : d.program->stages)
      if (s.unit == schedule::UnitId::kWgmma || s.unit == schedule::UnitId::kWgmmaTf32)
        for (schedule::PlaceId x : s.reads)
          if (const schedule::Place& y = d.program->places[static_cast<size_t>(x)]; y.name.starts_with("rows"))
            read[unit_info(s.unit).name] = y.dtype;
    CHECK(read == std::map<std::string, DType>{{"wgmma", DType::kBF16}, {"wgmma_tf32", DType::kF32}});
    for (const schedule::Item& i : d.program->roles[1].items)   // that brings rows, and converts none
      for (schedule::StageId s : i.body) CHECK(d.program->stages[static_cast<size_t>(s)].kind == schedule::Stage::Kind::kCopy);
    const auto again = schedule::parse_schedule(print(*d.program));
    REQUIRE(again);
    CHECK(print(*again) == print(*d.program));
    CHECK((emit_kernel(k, plan, target()).source.find("put_piece_tf32") != std::string::npos));
  }
}

// The row of weight streams in the table of strategies.
#include <algorithm>

#include <fmt/format.h>

#include "mirage/plan/describe.h"
#include "mirage/schedule/words.h"
#include "plan/program/params.h"
#include "plan/strategy_internal.h"
#include "plan/stream/stream_internal.h"

namespace mirage {

namespace {

Attempt match_streams(const Work& w) { return attempt(plan_stream(w.body, w.operands, w.results, w.target, w.rule)); }

std::string text_of(const StreamChoice& c) {
  if (c.registers)
    return fmt::format("stream: {} warps x {} straight to registers, {} columns, {} per SM", c.warps, c.chunk, c.columns, c.blocks_per_sm);
  return fmt::format("stream: {} warps x {} stages x {}, cluster {}, {} per SM{}", c.warps, c.stages, c.chunk, c.cluster, c.blocks_per_sm,
                     c.evict_first ? "" : ", weights kept");
}

std::vector<KernelPlan> divided_streams(const KernelPlan& of, const StreamPlan& matched, const Target& target, size_t most) {
  std::vector<KernelPlan> out;
  std::string reason;
  std::set<std::string> texts;
  for (const StreamDivision& d : stream_division_list(matched, target, reason))
    if (out.size() < most && texts.insert(text_of(d.choice)).second)
      out.push_back(with_body(of, divided_stream(matched, d.choice, target)));
  if (!out.empty() && !unsaid(out.front().body).empty()) out.clear();   // which is so whatever the choice
  return out;
}

std::vector<KernelPlan> all_streams(const KernelPlan& of, const Work& w, size_t most) {
  std::string reason;
  const std::optional<StreamPlan> matched = matched_stream(w, reason);
  return matched ? divided_streams(of, *matched, w.target, most) : std::vector<KernelPlan>();
}

/// Calls beside each other are one kernel here only.
std::vector<KernelPlan> streams_beside(const KernelPlan& of, const Target& target, size_t most) {
  const auto& plan = *std::get<std::shared_ptr<const ProgramPlan>>(of.body);
  std::string reason;
  if (plan.calls.size() == 1) return {};
  const std::optional<StreamPlan> matched = matched_calls(plan.calls, plan.rule, reason);
  return matched ? divided_streams(of, *matched, target, most) : std::vector<KernelPlan>();
}

Attempt like_stream(const schedule::KernelProgram& model, const Work& w) {
  std::string reason;
  const KernelCall call{w.body, w.operands, w.results};
  const std::optional<StreamPlan> plan = stream_like(model, std::span(&call, 1), w.rule, w.target, reason);
  return plan ? attempt_of(*plan) : refusal(reason);
}

std::string stream_text(const KernelPlan& k) { return text_of(stream_choice(*program_in(k))); }

Tiling stream_use(const KernelPlan& k, int thrift) {
  const schedule::KernelProgram& p = *program_in(k);
  const StreamChoice c = stream_choice(p);
  Tiling out{c.columns, c.chunk, int64_t{c.cluster} * c.warps * turns(thrift, c.stages, 2)};
  if (const schedule::Split& s = *p.reduced(); s.outer >= 0) {  // the loop is over groups
    const int64_t group = p.indices[schedule::at(s.index)].extent;
    out.loop_tile = std::max<int64_t>(1, c.chunk / group);
    out.iterations = std::max<int64_t>(2, out.iterations * c.chunk / (group * out.loop_tile));
  }
  out.side_by_side = true;
  out.by_matrices = std::any_of(p.splits.begin(), p.splits.end(), [](const schedule::Split& s) { return !s.reduced && s.tile == 1; });
  return out;
}

std::vector<int> stream_weights(const schedule::KernelProgram& p) { return schedule::streamed_params(p); }

}  // namespace

StreamChoice stream_choice(const schedule::KernelProgram& p) {
  using namespace schedule;
  const Split& k = *p.reduced();
  StreamChoice c;
  c.warps = p.parts(k, AxisKind::kWarp);
  c.cluster = p.parts(k, AxisKind::kCluster);
  c.chunk = static_cast<int>(std::min<int64_t>(k.tile, 1 << 20));
  c.stages = p.slots();
  c.blocks_per_sm = p.per_sm;
  c.registers = std::none_of(k.over.begin(), k.over.end(), [&](AxisId a) { return p.axes[at(a)].kind == AxisKind::kLoop; });
  bool first = false, copied = false;   // whether copies of weights let go of their lines; whether there are such copies
  for (const Stage& s : p.stages) {
    if (s.kind == Stage::Kind::kCopy && s.path == PathId::kTma) copied = true, first |= s.evict_first;
    if (s.kind == Stage::Kind::kCompute && s.swap && p.places[at(s.to)].box.size() == 2)
      c.columns = static_cast<int>(std::min<int64_t>(p.places[at(s.to)].box[1], 1 << 20));
  }
  c.evict_first = !c.registers && (first || !copied);
  return c;
}

std::optional<StreamPlan> matched_calls(std::span<const KernelCall> calls, const ContractRule& rule, std::string& reason) {
  std::optional<StreamPlan> out;
  for (const KernelCall& c : calls) {
    std::optional<StreamShape> shape = match_stream(c.body, c.operands, c.results, rule, kMaxStreamRows, reason);
    if (!shape) return std::nullopt;
    if (out) out->beside.push_back(*std::move(shape));
    else out = stream_plan(*std::move(shape));
  }
  return out;
}

std::optional<StreamPlan> stream_like(const schedule::KernelProgram& model, std::span<const KernelCall> calls, const ContractRule& rule,
                                      const Target& target, std::string& reason) {
  if (!model.reduced()) reason = "nothing is added up in a loop";
  std::optional<StreamPlan> plan = model.reduced() ? matched_calls(calls, rule, reason) : std::nullopt;
  if (!plan || !divide_stream(*plan, stream_choice(model), target, reason)) return std::nullopt;
  plan->cost = estimate(*plan, target);
  return plan;
}

KernelBody told(std::shared_ptr<const StreamPlan> p) {
  std::vector<KernelCall> calls{{p->body, p->operands, p->results}};
  for (const StreamShape& s : p->beside) calls.push_back({s.body, s.operands, s.results});
  return program_body(StrategyId::kStream, p, std::move(calls), p->rule, schedule::stream_program);
}

Strategy stream_strategy() {
  return {.match = match_streams,
          .divisions = all_streams,
          .own_divisions = streams_beside,
          .like = like_stream,
          .weights = stream_weights,
          .keep = schedule::keep_streamed,
          .text = stream_text,
          .print = print_program,
          .use = stream_use,
          .timeline = program_timeline};
}

}  // namespace mirage

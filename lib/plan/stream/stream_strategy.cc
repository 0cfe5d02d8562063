// The row of weight streams in the table of strategies.
#include <algorithm>

#include <fmt/format.h>

#include "mirage/schedule/words.h"
#include "plan/strategy_internal.h"
#include "plan/stream/stream_internal.h"

namespace mirage {

namespace {

Attempt match_streams(const Work& w) { return attempt(plan_stream(w.body, w.operands, w.results, w.target, w.rule)); }

std::vector<KernelPlan> all_streams(const KernelPlan& of, const Work& w) {
  std::vector<KernelPlan> out;
  for (StreamPlan& p : stream_candidates(w.body, w.operands, w.results, w.target, w.rule).plans) out.push_back(with_body(of, std::move(p)));
  return out;
}

/// Calls beside each other are one kernel here only.
std::vector<KernelPlan> streams_beside(const KernelPlan& of, const Target& target) {
  std::vector<KernelPlan> out;
  if (body_of<StreamPlan>(of).beside.empty()) return out;
  for (StreamPlan& p : stream_divisions(body_of<StreamPlan>(of), target).plans) out.push_back(with_body(of, std::move(p)));
  return out;
}

Attempt like_stream(const schedule::KernelProgram& model, const Work& w) {
  if (!model.reduced()) return refusal("nothing is added up in a loop");
  std::string reason;
  std::optional<StreamShape> shape = match_stream(w.body, w.operands, w.results, w.rule, kMaxStreamRows, reason);
  if (!shape) return refusal(reason);
  StreamPlan plan = stream_plan(std::move(*shape));
  if (!divide_stream(plan, stream_choice(model), w.target, reason)) return refusal(reason);
  plan.cost = estimate(plan, w.target);
  return attempt_of(std::move(plan));
}

std::string stream_text(const KernelPlan& k) {
  const StreamPlan& p = body_of<StreamPlan>(k);
  if (p.registers)
    return fmt::format("stream: {} warps x {} straight to registers, {} columns, {} per SM", p.warps, p.chunk, p.columns, p.blocks_per_sm);
  return fmt::format("stream: {} warps x {} stages x {}, cluster {}, {} per SM{}", p.warps, p.stages, p.chunk, p.cluster, p.blocks_per_sm,
                     p.evict_first ? "" : ", weights kept");
}

Tiling stream_use(const KernelPlan& k, int thrift) {
  const StreamPlan& p = body_of<StreamPlan>(k);
  Tiling out{p.columns, p.chunk, int64_t{p.cluster} * p.warps * turns(thrift, p.stages, 2)};
  if (p.group) {  // the loop is over groups
    out.loop_tile = groups_of_chunk(p);
    out.iterations = std::max<int64_t>(2, out.iterations * p.chunk / (p.group * out.loop_tile));
  }
  out.side_by_side = true;
  out.by_matrices = p.batch > 1;
  return out;
}

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

Strategy stream_strategy() {
  return {.match = match_streams,
          .divisions = all_streams,
          .own_divisions = streams_beside,
          .like = like_stream,
          .text = stream_text,
          .print = [](const KernelPlan& k) { return fmt::format("stream {}\n", k.name) + print(body_of<StreamPlan>(k)); },
          .use = stream_use,
          .program = schedule::stream_program,
          .timeline = stream_timeline};
}

}  // namespace mirage

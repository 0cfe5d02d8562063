// BlockPlan as tables: what --print-after=plan shows of a graph-defined kernel.
#include <fmt/format.h>

#include "mirage/plan/block_plan.h"

namespace mirage {
namespace {

std::string existing_text(const Existing& e) { return e.input < 0 ? "all" : fmt::format("%{}.{}", e.input, e.dim); }

std::string step_text(const BlockPlan& p, const Step& s) {
  switch (s.kind) {
    case Step::Kind::kContract:
      return s.tensor ? fmt::format("t{}{} x t{}{} on tensor cores{}{}, warps {}x{}x{}", s.x, s.x_transposed ? "'" : "", s.y,
                                    s.y_transposed ? "'" : "", s.type == ContractType::kTF32 ? " in tf32" : "",
                                    s.swap ? ", transposed" : "", s.wi, s.wj, s.wk)
                      : fmt::format("t{}{} x t{}{} on float32 units, {} threads along columns{}", s.x, s.x_transposed ? "'" : "", s.y,
                                    s.y_transposed ? "'" : "", s.tj, s.wk > 1 ? fmt::format(", {} teams", s.wk) : "");
    case Step::Kind::kReduce:
      return fmt::format("reduce.{} over {}, {} threads per result", reduce_name(p.body.form<Reduce>(s.node)->fn), "brc"[s.dim3], s.group);
    case Step::Kind::kFill: return "evaluate";
    case Step::Kind::kAccumulate: return "accumulate elementwise";
    case Step::Kind::kChain:
      return fmt::format("softmax(t{}{} x t{}{}) x t{}{} in registers, warps {} along rows, {} along keys; maxima -> t{}{}", s.x,
                         s.x_transposed ? "'" : "", s.y, s.y_transposed ? "'" : "", s.z, s.z_transposed ? "'" : "", s.wi, s.wk, s.factor,
                         s.sum >= 0 ? fmt::format(", sums -> t{}", s.sum) : "");
    case Step::Kind::kRunning: return fmt::format("running maximum, its factor -> t{}", s.factor);
    case Step::Kind::kStore: return fmt::format("store result {}", p.body.form<Output>(s.node)->result);
  }
  return "";
}

}  // namespace

std::string print(const BlockPlan& p) {
  std::string out =
      fmt::format("  {} threads, {} stages, cluster {}, loop divided over {} warps, {} bytes of shared memory, {} blocks per SM\n",
                  p.threads, p.stages, p.cluster, p.loop_warps, p.smem_bytes, p.blocks_per_sm);
  if (!p.layout_note.empty()) out += "  " + p.layout_note + "\n";
  out += "  tile  value  kind    dtype  b x r x c        line    layout    offset   bytes    steps\n";
  for (size_t i = 0; i < p.tiles.size(); i++) {
    const SmemTile& t = p.tiles[i];
    const char* kind = t.kind == SmemTile::Kind::kInput ? "input" : t.kind == SmemTile::Kind::kFilled ? "filled" : "parts";
    out +=
        fmt::format("  t{:<4} %{:<5} {:<7} {:<6} {:<16} {:<7} {:<9} {:<8} {:<8} {}..{}{}\n", i, t.value, kind,
                    t.tf32 ? "tf32" : dtype_name(t.dtype), fmt::format("{}x{}x{}", t.extent[0], t.extent[1], t.extent[2]),
                    fmt::format("{} {}", t.ld, t.col ? "col" : "row"), t.swizzle ? "swizzled" : "lines", t.offset, t.bytes, t.first, t.last,
                    t.stages > 1  ? fmt::format(", {} stages", t.stages)
                    : t.parts > 1 ? fmt::format(", {} parts", t.parts)
                                  : "");
  }
  for (const Load& l : p.loads) {
    const auto& e = p.existing[static_cast<size_t>(p.body.node(l.input).first_value)];
    out += fmt::format("  load  t{} from operand {}, {}{}; exist: {} {} {}\n", l.tile, p.body.form<Input>(l.input)->param,
                       l.unit == 0 ? "strided" : fmt::format("{} bytes at a time", l.unit), l.in_loop ? ", every iteration" : "",
                       existing_text(e[0]), existing_text(e[1]), existing_text(e[2]));
  }
  static constexpr const char* kPhase[] = {"before", "loop", "after"};
  for (const Step& s : p.steps)
    out += fmt::format("  {:<6} {}{}%{} = {}{}{}\n", kPhase[static_cast<size_t>(s.phase)], s.barrier_before ? "barrier; " : "",
                       s.accumulates ? "accumulate " : "", s.value, step_text(p, s), s.tile >= 0 ? fmt::format(" -> t{}", s.tile) : "",
                       s.degree ? fmt::format(", rescaled by t{}^{}", s.factor, s.degree) : "");
  return out;
}

}  // namespace mirage

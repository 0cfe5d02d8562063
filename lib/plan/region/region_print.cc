// Plans as text for people: what --print-after=plan shows.
#include <fmt/format.h>

#include "mirage/plan/region.h"
#include "mirage/plan/strategy.h"
#include "plan/region/region.h"

namespace mirage {
namespace {

std::string text(const Affine& a) {
  std::string out;
  for (const auto& [v, c] : a.terms) out += fmt::format("{}{}i{}", out.empty() ? "" : " + ", c == 1 ? "" : fmt::format("{}*", c), v);
  if (a.constant || out.empty()) out += fmt::format("{}{}", out.empty() ? "" : " + ", a.constant);
  return out;
}

void statements(std::string& out, const RegionPlan& p, const std::vector<RegionInstr>& code, int indent) {
  for (const RegionInstr& i : code) {
    out += fmt::format("{:{}}v{} = ", "", indent, i.result);
    switch (i.kind) {
      case RegionInstr::Kind::kConst: out += fmt::format("const {}\n", i.constant); break;
      case RegionInstr::Kind::kIndex: out += fmt::format("index {}\n", text(i.index)); break;
      case RegionInstr::Kind::kLoad:
        out +=
            fmt::format("{} b{}[{}]\n", i.vector ? "load_vector" : i.window >= 0 ? fmt::format("of window {}:", i.window) : "load",
                        p.accesses[static_cast<size_t>(i.access)].buffer, text(i.index));
        break;
      case RegionInstr::Kind::kMap:
        out += map_info(i.fn).name;
        for (int a : i.args) out += fmt::format(" v{}", a);
        out += "\n";
        break;
      case RegionInstr::Kind::kBranch:
        out += fmt::format("if {} < {}{}\n", text(i.index), i.bound, i.uniform ? "" : " (per lane)");
        statements(out, p, i.then_body, indent + 2);
        out += fmt::format("{:{}}v{}, else\n", "", indent + 2, i.args[0]);
        statements(out, p, i.else_body, indent + 2);
        out += fmt::format("{:{}}v{}\n", "", indent + 2, i.args[1]);
        break;
    }
  }
}

void stores(std::string& out, const RegionPlan& p, const std::vector<RegionStore>& list, int indent) {
  for (const RegionStore& s : list)
    out += fmt::format("{:{}}{} b{}[{}] = v{}\n", "", indent, s.vector ? "store_vector" : "store",
                       p.accesses[static_cast<size_t>(s.access)].buffer, text(s.offset), s.value);
}

const char* kind_name(Buffer::Kind k) { return k == Buffer::Kind::kInput ? "input" : k == Buffer::Kind::kOutput ? "output" : "workspace"; }

}  // namespace

std::string print(const RegionPlan& p, const std::string& name) {
  static constexpr const char* kShapes[] = {"pointwise", "row", "column"};
  std::string out = fmt::format("region {}: {}, {} rows of {}, width {}, {} blocks of {} threads", name,
                                kShapes[static_cast<size_t>(p.shape)], p.rows, p.length, p.width, p.blocks, p.threads);
  if (p.shape == RegionPlan::Shape::kRow)
    out += fmt::format(", teams of {}{}{}", p.team, p.cluster > 1 ? fmt::format(" in clusters of {}", p.cluster) : "",
                       p.held ? fmt::format(", {} held in {}", p.held, p.staged ? "shared memory" : "registers") : "");
  if (p.unrolled >= 0) out += fmt::format(", i{} unrolled", p.unrolled);
  if (p.uneven) out += fmt::format(", {} elements before the first vector", text(p.head));
  if (p.shape == RegionPlan::Shape::kColumn) out += fmt::format(", {} columns", p.columns);
  if (p.chunk >= 0) out += fmt::format(", chunks of {} of {}", p.chunk_length, p.chunk_total);
  out += p.wide ? ", 64-bit indices\n" : "\n";
  for (size_t v = 0; v < p.vars.size(); v++) {
    const IndexVar& var = p.vars[v];
    static constexpr const char* kKinds[] = {"loop", "lane", "div", "mod", "loaded"};
    out += fmt::format("  i{} {} < {}", v, kKinds[static_cast<size_t>(var.kind)], var.extent);
    if (var.kind == IndexVar::Kind::kDiv || var.kind == IndexVar::Kind::kMod)
      out += fmt::format(" = ({}) {} {}", text(var.arg), var.kind == IndexVar::Kind::kDiv ? '/' : '%', var.divisor);
    if (var.kind == IndexVar::Kind::kLoaded) out += fmt::format(" = index at {} of access {}", text(var.arg), var.access);
    out += "\n";
  }
  for (size_t w = 0; w < p.windows.size(); w++)
    out += fmt::format("  window {}: {} vectors from b{}[{}]\n", w, p.windows[w].vectors,
                       p.accesses[static_cast<size_t>(p.windows[w].access)].buffer, text(p.windows[w].first));
  for (int k = 0; k < p.kept; k++) {
    out += "  kept";
    for (const auto& [pass, value] : p.again[static_cast<size_t>(k)].places) out += fmt::format(" v{} of pass {}", value, pass);
    out += "\n";
  }
  for (size_t k = 0; k < p.passes.size(); k++) {
    out += fmt::format("  pass {}\n", k);
    statements(out, p, p.passes[k].body, 4);
    stores(out, p, p.passes[k].stores, 4);
    for (const RegionReduce& r : p.passes[k].reduces)
      out += fmt::format("    v{} = reduce.{} v{}{}\n", r.result, reduce_name(r.fn), r.value,
                         r.leader < 0 ? "" : fmt::format(" where v{} is found, else {}", r.leader, r.otherwise));
    statements(out, p, p.passes[k].after, 4);
    stores(out, p, p.passes[k].after_stores, 4);
  }
  return out;
}

std::string print(const Plan& plan) {
  std::string out =
      fmt::format("{} kernels, {:.2f} us predicted, {} bytes of workspace\n", plan.kernels.size(), plan.predicted_us, plan.workspace_bytes);
  out += "buffer  kind       dtype  offset      bytes       shape, strides\n";
  for (size_t i = 0; i < plan.buffers.size(); i++) {
    const Buffer& b = plan.buffers[i];
    const std::string kind = b.kind == Buffer::Kind::kWorkspace ? kind_name(b.kind) : fmt::format("{} {}", kind_name(b.kind), b.index);
    out += fmt::format("b{:<6} {:<10} {:<6} {:<11} {:<11} {} {}\n", i, kind, dtype_name(b.dtype),
                       b.kind == Buffer::Kind::kWorkspace ? fmt::format("{}", b.offset_bytes) : "-", b.bytes(), to_string(b.dims),
                       to_string(b.strides));
  }
  for (const KernelPlan& k : plan.kernels) {
    out += fmt::format("kernel {}: {:.2f} us, {}; {} bytes, {:.3g} flops, nodes", k.name, k.predicted_us, k.why, k.bytes, k.flops);
    for (NodeId n : k.nodes) out += fmt::format(" {}", n);
    out += k.early ? ", started early\n" : "\n";
    out += strategy_of(k).print(k);
  }
  return out;
}

}  // namespace mirage

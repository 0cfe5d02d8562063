// The muGraph as a picture; see the header.
#include "driver/report/figures.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "driver/report/drawing.h"
#include "mirage/plan/strategy.h"

namespace mirage {

namespace {

constexpr int kMostBoxes = 160;       // of a block graph or of the kernel level: more cannot be read as a picture
constexpr size_t kMostRegion = 14;    // operators of a region that are drawn one by one

const char* box_class(const Op& op) {
  if (std::holds_alternative<Input>(op)) return "in";
  if (std::holds_alternative<Output>(op)) return "out";
  if (std::holds_alternative<MatMul>(op)) return "mm";
  if (std::holds_alternative<Reduce>(op) || std::holds_alternative<Accum>(op) || std::holds_alternative<Running>(op)) return "rd";
  return std::holds_alternative<Map>(op) ? "ew" : "mv";
}

bool is_drawn(const Node& n) { return !std::holds_alternative<Const>(n.op); }

std::string number_text(double v) { return fmt::format("{:.6g}", v); }

/// "div, by 4096": the operator, and operands that are constants.
std::string op_text(const Graph& g, const Node& n) {
  std::string out = form_name(n.op);
  if (const auto* m = std::get_if<Map>(&n.op)) out = map_info(m->fn).name;
  else if (const auto* r = std::get_if<Reduce>(&n.op))
    out = fmt::format("{} over {}", reduce_name(r->fn), r->dim) + (r->group ? fmt::format(", {} each", r->group) : "");
  else if (const auto* a = std::get_if<Accum>(&n.op))
    out = fmt::format("accumulate {}", reduce_name(a->fn)) + (a->degree ? ", rescaled" : "");
  else if (std::holds_alternative<Running>(n.op)) out = "running maximum";
  std::string constants;
  for (ValueId v : n.operands)
    if (const auto* c = g.def_form<Const>(v)) constants += (constants.empty() ? " " : ", ") + number_text(c->value);
  return out + constants;
}

std::string type_text(const Type& t) { return to_string(t); }

std::string split_text(const Partition& p) {
  std::string out;
  for (size_t a = 0; a < 3; a++) if (p.grid[a] >= 0) out += fmt::format("{}{} over {}", out.empty() ? "" : ", ", p.grid[a], "xyz"[a]);
  if (p.loop >= 0) out += fmt::format("{}{} over loop", out.empty() ? "" : ", ", p.loop);
  return out;
}

/// The block graph of a call; names: of its operands and results.
Drawn draw_block(const Graph& g, const std::vector<std::string>& operands, const std::vector<std::string>& results) {
  Drawing d;
  const bool has_loop = g.launch().loop > 1;
  const std::vector<Phase> phase = phases(g);
  std::vector<int> box(static_cast<size_t>(g.num_nodes()), -1);
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    if (!is_drawn(node)) continue;
    DrawnBox b;
    b.cls = box_class(node.op);
    if (const auto* in = std::get_if<Input>(&node.op)) {
      const auto p = static_cast<size_t>(in->param);
      b.lines = {p < operands.size() ? operands[p] : fmt::format("operand {}", p), "tile " + type_text(g.type(node.first_value))};
      if (const std::string s = split_text(in->part); !s.empty()) b.lines.push_back(s);
    } else if (const auto* o = std::get_if<Output>(&node.op)) {
      const auto r = static_cast<size_t>(o->result);
      b.lines = {r < results.size() ? results[r] : fmt::format("result {}", r)};
      if (const std::string s = split_text(o->part); !s.empty()) b.lines.push_back(s);
    } else {
      b.lines = {fmt::format("%{} {}", node.first_value, op_text(g, node)), type_text(g.type(node.first_value))};
    }
    if (has_loop) {
      b.band = node.first_value >= 0 ? static_cast<int>(phase[static_cast<size_t>(node.first_value)]) : 2;
      for (ValueId v : node.operands)
        if (const int from = box[static_cast<size_t>(g.value(v).node)]; from >= 0)
          b.band = std::max(b.band, d.boxes[static_cast<size_t>(from)].band);
      if (!std::holds_alternative<Output>(node.op) || b.band != 2) b.band = std::min(b.band, 2);
    }
    box[static_cast<size_t>(n)] = static_cast<int>(d.boxes.size());
    for (ValueId v : node.operands)
      if (const int from = box[static_cast<size_t>(g.value(v).node)]; from >= 0) d.edges.emplace_back(from, box[static_cast<size_t>(n)]);
    d.boxes.push_back(std::move(b));
  }
  if (has_loop)
    d.bands = {{0, "bd", "before the loop"}, {1, "lp", fmt::format("loop: {} iterations", g.launch().loop)}, {2, "bd", "after the loop"}};
  return draw(d);
}

/// What a region computes: its operators, or how many of which kind.
Drawn draw_region(const Graph& g, const std::vector<NodeId>& nodes) {
  Drawing d;
  std::map<NodeId, int> box;
  std::map<std::string, int> counts;
  for (NodeId n : nodes)
    if (is_drawn(g.node(n))) counts[op_text(g, g.node(n))]++;
  size_t all = 0;
  for (const auto& [text, n] : counts) all += static_cast<size_t>(n);
  if (all > kMostRegion) {
    DrawnBox b{"ew", {fmt::format("{} operators", all)}, "", 0, 0, 0};
    std::vector<std::pair<int, std::string>> most;
    for (const auto& [text, n] : counts) most.emplace_back(-n, text);
    std::sort(most.begin(), most.end());
    for (size_t i = 0; i < most.size() && i < 6; i++) b.lines.push_back(fmt::format("{} x {}", -most[i].first, most[i].second));
    if (most.size() > 6) b.lines.push_back(fmt::format("{} other kinds", most.size() - 6));
    d.boxes.push_back(std::move(b));
    return draw(d);
  }
  for (NodeId n : nodes) {
    const Node& node = g.node(n);
    if (!is_drawn(node) || std::holds_alternative<Input>(node.op) || std::holds_alternative<Output>(node.op)) continue;
    box[n] = static_cast<int>(d.boxes.size());
    for (ValueId v : node.operands)
      if (const auto from = box.find(g.value(v).node); from != box.end()) d.edges.emplace_back(from->second, box[n]);
    d.boxes.push_back({box_class(node.op), {op_text(g, node), type_text(g.type(node.first_value))}, "", 0, 0, 0});
  }
  return draw(d);
}

/// The kernel level: every node of the plan's graph belongs to an item: an input, an output, a kernel, a view between kernels.
class KernelLevel {
 public:
  KernelLevel(const Plan& plan, const Program& program) : plan_(plan), g_(plan.graph), program_(program) {}

  std::string run() {
    find_items();
    if (d_.boxes.size() > static_cast<size_t>(kMostBoxes))
      return fmt::format("<p>{} kernels and values: too many for a picture; the text is below.</p>\n", d_.boxes.size());
    add_edges();
    return svg_figure(draw(d_), "the muGraph of " + program_.name);
  }

 private:
  std::string value_name(ValueId v) const {
    const Node& def = g_.def(v);
    if (const auto* in = std::get_if<Input>(&def.op)) return program_.inputs[static_cast<size_t>(in->param)].name;
    if (is_view(def.op) && std::holds_alternative<Input>(g_.def(def.operands[0]).op)) return value_name(def.operands[0]);
    return fmt::format("%{}", v);
  }
  std::string result_name(ValueId v) const {
    for (NodeId n : g_.outputs())
      if (g_.node(n).operands[0] == v) return program_.outputs[static_cast<size_t>(g_.form<Output>(n)->result)].name;
    return fmt::format("%{}", v);
  }
  void own(NodeId n, int item) {
    if (owner_[static_cast<size_t>(n)] < 0) owner_[static_cast<size_t>(n)] = item;
  }
  int add(DrawnBox b) {
    d_.boxes.push_back(std::move(b));
    members_.emplace_back();
    return static_cast<int>(d_.boxes.size()) - 1;
  }

  void add_kernel(size_t k) {
    const KernelPlan& kernel = plan_.kernels[k];
    DrawnBox b;
    b.cls = "kb";
    b.lines = {fmt::format("kernel {}: {}, {:.2f} us", k, strategy_of(kernel).name, kernel.predicted_us)};
    std::vector<NodeId> calls, others;
    for (NodeId n : kernel.nodes) (std::holds_alternative<Call>(g_.node(n).op) ? calls : others).push_back(n);
    Drawn inner;
    const Graph* body = calls.size() == 1 ? g_.form<Call>(calls[0])->body.get() : nullptr;
    if (strategy_of(kernel).is_on) {   // its tiles are not those of the block graph
      b.cls = "mm";
      b.lines.push_back("pre-defined, a product by cuBLASLt");
    } else if (body) {
      const Launch& l = body->launch();
      b.lines.push_back(fmt::format("block graph: grid {} x {} x {}", l.grid[0], l.grid[1], l.grid[2]));
      std::vector<std::string> operands, results;
      for (ValueId v : g_.node(calls[0]).operands) operands.push_back(value_name(v));
      for (int i = 0; i < g_.node(calls[0]).num_values; i++) results.push_back(result_name(g_.node(calls[0]).first_value + i));
      if (body->num_nodes() <= kMostBoxes) inner = draw_block(*body, operands, results);
      else b.lines.push_back(fmt::format("{} operators: too many for a picture", body->num_nodes()));
    } else if (!calls.empty()) {
      b.lines.push_back(fmt::format("{} block graphs beside each other", calls.size()));
    } else if (!others.empty()) {
      inner = draw_region(g_, others);
    }
    b.inner = std::move(inner.svg), b.inner_width = inner.width, b.inner_height = inner.height;
    const int item = add(std::move(b));
    for (NodeId n : kernel.nodes) own(n, item), members_[static_cast<size_t>(item)].insert(n);
  }

  void find_items() {
    owner_.assign(static_cast<size_t>(g_.num_nodes()), -1);
    for (NodeId n : g_.inputs()) {
      const auto& in = program_.inputs[static_cast<size_t>(g_.form<Input>(n)->param)];
      own(n, add({"in", {in.name, type_text(in.type)}, "", 0, 0, 0}));
    }
    for (size_t k = 0; k < plan_.kernels.size(); k++) add_kernel(k);
    for (NodeId n : g_.outputs()) {
      const auto& out = program_.outputs[static_cast<size_t>(g_.form<Output>(n)->result)];
      owner_[static_cast<size_t>(n)] = add({"out", {out.name, type_text(out.type)}, "", 0, 0, 0});
    }
  }

  /// Where a value comes from; through views and values that no kernel makes.
  void sources(ValueId v, std::set<int>& out, int depth = 0) const {
    const NodeId n = g_.value(v).node;
    if (owner_[static_cast<size_t>(n)] >= 0) {
      out.insert(owner_[static_cast<size_t>(n)]);
      return;
    }
    if (depth < 64) for (ValueId o : g_.node(n).operands) sources(o, out, depth + 1);
  }

  void add_edges() {
    std::set<std::pair<int, int>> edges;
    const auto reads = [&](NodeId n, int item) {
      for (ValueId v : g_.node(n).operands) {
        if (members_[static_cast<size_t>(item)].contains(g_.value(v).node)) continue;
        std::set<int> from;
        sources(v, from);
        for (int f : from) if (f != item) edges.emplace(f, item);
      }
    };
    for (size_t i = 0; i < members_.size(); i++) for (NodeId n : members_[i]) reads(n, static_cast<int>(i));
    for (NodeId n : g_.outputs()) reads(n, owner_[static_cast<size_t>(n)]);
    d_.edges.assign(edges.begin(), edges.end());
  }

  const Plan& plan_;
  const Graph& g_;
  const Program& program_;
  Drawing d_;
  std::vector<std::set<NodeId>> members_;   // of kernels
  std::vector<int> owner_;
};

}  // namespace

std::string mugraph_figure(const Plan& plan, const Program& program) { return KernelLevel(plan, program).run(); }

}  // namespace mirage

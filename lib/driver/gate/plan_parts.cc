// Parts of plans: see the header.
#include "driver/gate/plan_parts.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "mirage/ir/rewrite.h"
#include "mirage/ir/whole.h"

namespace mirage {

namespace {

/// 16-bit types of the program's tensors, that of the first input that has one first.
std::vector<DType> narrow_types(const Program& p) {
  std::vector<DType> out;
  for (const auto* list : {&p.inputs, &p.outputs})
    for (const TensorInfo& t : *list)
      if (is16(t.type.dtype) && std::find(out.begin(), out.end(), t.type.dtype) == out.end()) out.push_back(t.type.dtype);
  return out;
}

/// What a text reads and writes: buffers of the plan.
std::set<int> buffers_of(const KernelText& k, bool written) {
  std::set<int> out;
  for (size_t i = 0; i < k.args.size(); i++)
    if (k.written[i] == written) out.insert(k.args[i]);
  for (const TensorMapText& m : k.maps)
    if (m.is_stored == written) out.insert(m.buffer);
  return out;
}

/// Constants that stand for extents of the whole program's inputs are numbers in a part, which has others: they have the value of the
/// graph's own size.
Op without_extents(const Op& op) {
  Op out = op;
  if (auto* c = std::get_if<Const>(&out)) c->extent_of.clear();
  if (auto* call = std::get_if<Call>(&out)) {
    const Graph& body = *call->body;
    Builder b(body.level(), body.launch());
    for (const Node& n : body.nodes()) {   // the same nodes in the same order: ids stay
      if (const auto* in = std::get_if<Input>(&n.op)) b.add_input(in->param, body.type(n.first_value), in->part);
      else b.add(without_extents(n.op), n.operands);
    }
    call->body = std::make_shared<const Graph>(std::move(b).finish());
  }
  return out;
}

class PartMaker {
 public:
  PartMaker(const Program& program, const Plan& plan, const std::vector<KernelText>& texts)
      : program_(program), plan_(plan), g_(plan.graph), texts_(texts) {}

  PlanPart run(std::vector<size_t> kernels) {
    PlanPart out;
    out.kernels = std::move(kernels);
    out.first = narrow_types(program_);
    for (size_t k : out.kernels) own_.insert(plan_.kernels[k].nodes.begin(), plan_.kernels[k].nodes.end());
    find_results(out);
    for (ValueId v : out.results)
      if (out.refusal.empty()) collect(out, v);
    out.inside.assign(inside_.begin(), inside_.end());
    if (out.refusal.empty() && out.results.empty()) out.refusal = "it stores nothing";
    return out;
  }

 private:
  const View& view(ValueId v) const { return plan_.views[static_cast<size_t>(v)]; }
  bool is_plain(ValueId v) const { return view(v).buffer >= 0 && view(v).run == 0 && view(v).offset == 0; }

  void find_results(PlanPart& out) {
    std::set<int> written;
    for (size_t k : out.kernels) written.merge(buffers_of(texts_[k], true));
    for (int b : written) {
      const Buffer& buffer = plan_.buffers[static_cast<size_t>(b)];
      if (buffer.slots) continue;
      std::optional<ValueId> value;
      if (buffer.kind == Buffer::Kind::kOutput) {
        for (NodeId n : g_.outputs())
          if (g_.form<Output>(n)->result == buffer.index) value = g_.node(n).operands[0];
      } else {
        for (bool exactly : {true, false})   // the value that it was made for, rather than a view of that
          for (ValueId v = 0; v < g_.num_values() && !value; v++)
            if (view(v).buffer == b && is_plain(v) &&
                (!exactly || (g_.dims(v) == buffer.dims && view(v).strides == buffer.strides && own_.count(g_.value(v).node) > 0)))
              value = v;
      }
      if (!value && out.kernels.size() > 1) continue;   // what one of its kernels hands to another
      if (!value) { out.refusal = "what it stores has no strides"; return; }
      out.results.push_back(*value);
      out.result_buffers.push_back(b);
    }
  }

  void collect(PlanPart& out, ValueId v) {
    if (std::find(out.leaves.begin(), out.leaves.end(), v) != out.leaves.end()) return;
    const NodeId n = g_.value(v).node;
    const Node& node = g_.node(n);
    const bool is_own = own_.count(n) > 0, is_input = std::holds_alternative<Input>(node.op), is_moved = is_view(node.op);
    if (!is_own && (is_input || (view(v).buffer >= 0 && (!is_moved || lies_in_runs(v) || is_made(v))))) {
      if (!is_plain(v)) { out.refusal = "what it reads has no strides"; return; }
      out.leaves.push_back(v);
      out.leaf_buffers.push_back(view(v).buffer);
      return;
    }
    if (!inside_.insert(n).second) return;
    for (ValueId o : node.operands) collect(out, o);
  }
  /// Whether a kernel stores the elements of v, a view: what reads them reads them there.
  bool is_made(ValueId v) const {
    const Buffer& buffer = plan_.buffers[static_cast<size_t>(view(v).buffer)];
    if (!is_plain(v) || buffer.dims != g_.dims(v) || buffer.strides != view(v).strides) return false;
    for (size_t k = 0; k < plan_.kernels.size(); k++)
      if (std::count(plan_.kernels[k].nodes.begin(), plan_.kernels[k].nodes.end(), g_.value(v).node) > 0 &&
          buffers_of(texts_[k], true).count(view(v).buffer) > 0)
        return true;
    return false;
  }
  /// Whether v is a view of what lies in runs, and has strides itself.
  bool lies_in_runs(ValueId v) const {
    if (!is_plain(v)) return false;
    ValueId of = v;
    while (is_view(g_.def(of).op) && own_.count(g_.value(of).node) == 0) of = g_.def(of).operands[0];
    return view(of).run > 0;
  }

  const Program& program_;
  const Plan& plan_;
  const Graph& g_;
  const std::vector<KernelText>& texts_;
  std::set<NodeId> own_, inside_;
};

}  // namespace

PlanPart part_of(const Program& program, const Plan& plan, const std::vector<KernelText>& texts, std::vector<size_t> which) {
  return PartMaker(program, plan, texts).run(std::move(which));
}

std::vector<PlanPart> parts_of(const Program& program, const Plan& plan, const std::vector<KernelText>& texts) {
  std::vector<PlanPart> out;
  for (size_t k = 0; k < plan.kernels.size(); k++) {
    std::vector<size_t> together{k};
    while (k + 1 < plan.kernels.size() && plan.kernels[k + 1].nodes == plan.kernels[k].nodes) together.push_back(++k);
    out.push_back(PartMaker(program, plan, texts).run(std::move(together)));
  }
  return out;
}

Graph part_graph(const Graph& g, const Plan& plan, const PlanPart& part, std::vector<NodeId>* nodes) {
  Builder b(Level::kKernel);
  std::map<ValueId, ValueId> to;
  if (nodes) nodes->assign(static_cast<size_t>(g.num_nodes()), -1);
  for (size_t i = 0; i < part.leaves.size(); i++)
    to[part.leaves[i]] = b.add_input(static_cast<int>(part.first.size() + i), g.type(part.leaves[i]));
  for (NodeId n : part.inside) {
    const Node& node = g.node(n);
    std::vector<ValueId> operands;
    for (ValueId o : node.operands) operands.push_back(to.at(o));
    const ValueId first = b.add(without_extents(node.op), operands);
    if (nodes) (*nodes)[static_cast<size_t>(n)] = b.graph().value(first).node;
    for (int i = 0; i < node.num_values; i++) to[node.first_value + i] = first + i;
  }
  for (size_t r = 0; r < part.results.size(); r++)
    b.add_output(static_cast<int>(r), to.at(part.results[r]), plan.buffers[static_cast<size_t>(part.result_buffers[r])].dtype);
  return std::move(b).finish();
}

namespace {

/// Appends what a call computes to b; its results, in order. none: it depends on its tiles.
std::optional<std::vector<ValueId>> add_body(Builder& b, const Graph& body, const std::vector<ValueId>& operands) {
  std::vector<Dims> dims;
  for (ValueId v : operands) dims.push_back(b.graph().dims(v));
  const Whole all = whole(body, dims);
  if (!all.reason.empty()) return std::nullopt;
  std::vector<ValueId> to(static_cast<size_t>(all.body.num_values()), -1), results(all.body.outputs().size(), -1);
  for (NodeId n = 0; n < all.body.num_nodes(); n++) {
    const Node& node = all.body.node(n);
    const auto of = [&](size_t i) { return to[static_cast<size_t>(node.operands[i])]; };
    if (const auto* out = all.body.form<Output>(n)) { results[static_cast<size_t>(out->result)] = of(0); continue; }
    std::vector<ValueId> from;
    for (size_t i = 0; i < node.operands.size(); i++) from.push_back(of(i));
    std::optional<ValueId> made;
    if (const auto* in = all.body.form<Input>(n)) made = operands[static_cast<size_t>(in->param)];
    else if (all.body.form<Accum>(n) || all.body.form<Running>(n)) made = from[0];   // one iteration has all
    else made = b.try_add(node.op, std::move(from));
    if (!made || !(b.graph().dims(*made) == all.body.dims(node.first_value))) return std::nullopt;
    to[static_cast<size_t>(node.first_value)] = *made;
  }
  return results;
}

}  // namespace

std::optional<Graph> without_calls(const Graph& g) {
  Builder b(Level::kKernel);
  std::vector<ValueId> to;
  const bool is_made = try_rewrite(g, b, to, [&](NodeId n, std::vector<ValueId>& operands) {
    const auto* call = g.form<Call>(n);
    if (!call) return kCopy;
    const auto results = add_body(b, *call->body, operands);
    for (int i = 0; results && i < g.node(n).num_values; i++) {
      const ValueId v = g.node(n).first_value + i, now = (*results)[static_cast<size_t>(i)];
      if (!(b.graph().dims(now) == g.dims(v))) return kGiveUp;
      to[static_cast<size_t>(v)] = now;
    }
    return results ? kNoValue : kGiveUp;
  });
  if (!is_made) return std::nullopt;
  return remove_dead(b.graph());
}

std::pair<Program, Plan> part_program(const Program& whole, const Plan& plan, const PlanPart& part) {
  std::pair<Program, Plan> out;
  Program& p = out.first;
  Plan& model = out.second;
  p.name = "part";
  p.numerics = whole.numerics;
  std::vector<NodeId> to;
  p.graph = part_graph(plan.graph, plan, part, &to);
  const auto tensor = [&](const std::string& name, ValueId v, int buffer, bool is_input) {
    const Buffer& b = plan.buffers[static_cast<size_t>(buffer)];
    const View& at = plan.views[static_cast<size_t>(v)];
    TensorInfo t{name, {b.dtype, plan.graph.dims(v)}, at.buffer == buffer ? at.strides : b.strides, {}};
    if (is_input && b.kind == Buffer::Kind::kInput) t.range = whole.inputs[static_cast<size_t>(b.index)].range;
    model.buffers.push_back({is_input ? Buffer::Kind::kInput : Buffer::Kind::kOutput,
                             static_cast<int>(is_input ? p.inputs.size() : p.outputs.size()), b.dtype, t.type.dims, t.strides, 0});
    model.buffers.back().tf32 = b.tf32;
    model.buffers.back().by_value = t.by_value = b.by_value;
    return t;
  };
  for (DType t : part.first) {
    p.inputs.push_back({fmt::format("type{}", p.inputs.size()), {t, Dims{1}}, Dims{1}, {}});
    model.buffers.push_back({Buffer::Kind::kInput, static_cast<int>(p.inputs.size() - 1), t, Dims{1}, Dims{1}, 0});
  }
  for (size_t i = 0; i < part.leaves.size(); i++)
    p.inputs.push_back(tensor(fmt::format("in{}", i), part.leaves[i], part.leaf_buffers[i], true));
  for (size_t i = 0; i < part.results.size(); i++)
    p.outputs.push_back(tensor(fmt::format("out{}", i), part.results[i], part.result_buffers[i], false));
  p.canonical = print(p.graph, p.name);
  model.graph = p.graph;
  model.views.resize(static_cast<size_t>(p.graph.num_values()));
  for (NodeId n = 0; n < plan.graph.num_nodes(); n++)
    for (int i = 0; to[static_cast<size_t>(n)] >= 0 && i < plan.graph.node(n).num_values; i++)
      model.views[static_cast<size_t>(p.graph.node(to[static_cast<size_t>(n)]).first_value + i)] =
          plan.views[static_cast<size_t>(plan.graph.node(n).first_value + i)];
  for (size_t k : part.kernels) {
    model.kernels.push_back(plan.kernels[k]);
    std::vector<NodeId> nodes;
    for (NodeId n : plan.kernels[k].nodes)
      if (to[static_cast<size_t>(n)] >= 0) nodes.push_back(to[static_cast<size_t>(n)]);
    model.kernels.back().nodes = std::move(nodes);
  }
  return out;
}

namespace {

/// The definition without its name, and without what depends on its place in the library: whether kernels around it start early.
std::string text_alone(const KernelText& k) {
  std::string out, line;
  const auto flush = [&] {
    if (line.find("release_next();") == std::string::npos && line.find("await_previous();") == std::string::npos) out += line + "\n";
    line.clear();
  };
  std::string source = k.source;
  for (size_t at = source.find(k.name); at != std::string::npos; at = source.find(k.name, at + 1)) source.replace(at, k.name.size(), "K");
  for (char c : source)
    if (c == '\n') flush();
    else line += c;
  flush();
  return out;
}

/// Where two texts part, for people.
std::string first_difference(const std::string& a, const std::string& b) {
  size_t at = 0, line = 0;
  for (; at < std::min(a.size(), b.size()) && a[at] == b[at]; at++)
    if (a[at] == '\n') line = at + 1;
  const auto rest = [&](const std::string& text) { return text.substr(line, std::min<size_t>(100, text.find('\n', at) - line)); };
  return fmt::format(" ({} instead of {})", rest(a), rest(b));
}

}  // namespace

std::string part_key(const Program& program, const Plan& plan, const PlanPart& part, const std::vector<KernelText>& texts) {
  const auto [p, model] = part_program(program, plan, part);
  std::string out = p.canonical;
  for (const auto* list : {&p.inputs, &p.outputs})
    for (const TensorInfo& t : *list)
      out += to_string(t.type) + to_string(t.strides) + (t.range ? fmt::format("{} {}", t.range->first, t.range->second) : "");
  for (const Buffer& b : model.buffers) out += b.tf32 ? 't' : b.by_value ? 'v' : '-';
  for (size_t k : part.kernels) out += text_alone(texts[k]);
  return out;
}

std::string part_differs(const Plan& plan, const PlanPart& part, const std::vector<KernelText>& texts, const Plan& own,
                         const Target& target) {
  if (own.kernels.size() != part.kernels.size()) return fmt::format("alone it is {} kernels", own.kernels.size());
  const auto same_buffer = [&](int mine, int shipped) {   // of the part, of the plan
    const Buffer& b = own.buffers[static_cast<size_t>(mine)];
    if (b.kind == Buffer::Kind::kWorkspace) return plan.buffers[static_cast<size_t>(shipped)].kind == Buffer::Kind::kWorkspace;
    if (b.kind == Buffer::Kind::kOutput) return part.result_buffers[static_cast<size_t>(b.index)] == shipped;
    return b.index >= static_cast<int>(part.first.size()) && part.leaf_buffers[static_cast<size_t>(b.index) - part.first.size()] == shipped;
  };
  for (size_t i = 0; i < part.kernels.size(); i++) {
    const KernelText mine = emit_kernel(own.kernels[i], own, target);
    const KernelText& shipped = texts[part.kernels[i]];
    if (const std::string own_text = text_alone(mine), text = text_alone(shipped); own_text != text)
      return "alone it has another text" + first_difference(own_text, text);
    if (mine.args.size() != shipped.args.size() || mine.maps.size() != shipped.maps.size() || mine.written != shipped.written)
      return "alone it has other arguments";
    for (size_t a = 0; a < mine.args.size(); a++)
      if (!same_buffer(mine.args[a], shipped.args[a])) return "alone it has other arguments";
    for (size_t m = 0; m < mine.maps.size(); m++)
      if (!same_buffer(mine.maps[m].buffer, shipped.maps[m].buffer)) return "alone it has other arguments";
  }
  return "";
}

std::string misplaced(const Plan& plan, const std::vector<KernelText>& texts) {
  std::set<int> there;   // workspace buffers that hold what was stored for them
  const auto overlaps = [&](int a, int b) {
    const Buffer &x = plan.buffers[static_cast<size_t>(a)], &y = plan.buffers[static_cast<size_t>(b)];
    return x.offset_bytes < y.offset_bytes + y.bytes() && y.offset_bytes < x.offset_bytes + x.bytes();
  };
  for (size_t k = 0; k < texts.size(); k++) {
    const auto is_own = [&](int b) {
      return plan.buffers[static_cast<size_t>(b)].kind == Buffer::Kind::kWorkspace && !plan.buffers[static_cast<size_t>(b)].slots;
    };
    for (int b : buffers_of(texts[k], false))
      if (is_own(b) && there.count(b) == 0) return fmt::format("{} reads of the workspace what nobody stored for it", texts[k].name);
    for (int b : buffers_of(texts[k], true)) {
      if (plan.buffers[static_cast<size_t>(b)].kind != Buffer::Kind::kWorkspace) continue;
      std::erase_if(there, [&](int other) { return other != b && overlaps(b, other); });
      if (is_own(b)) there.insert(b);
    }
  }
  return "";
}

}  // namespace mirage

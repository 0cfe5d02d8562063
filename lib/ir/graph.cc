// Graphs and their builder.
#include "mirage/ir/graph.h"

#include <algorithm>

#include "mirage/support/hash.h"

namespace mirage {

const char* level_name(Level l) { return l == Level::kKernel ? "kernel" : l == Level::kBlock ? "block" : "thread"; }

std::vector<NodeId> Graph::inputs() const {
  std::vector<NodeId> out;
  for (NodeId n = 0; n < num_nodes(); n++) if (form<Input>(n)) out.push_back(n);
  return out;
}

std::vector<NodeId> Graph::outputs() const {
  std::vector<NodeId> out;
  for (NodeId n = 0; n < num_nodes(); n++) if (form<Output>(n)) out.push_back(n);
  std::stable_sort(out.begin(), out.end(), [&](NodeId a, NodeId b) { return form<Output>(a)->result < form<Output>(b)->result; });
  return out;
}

int Graph::num_params() const {
  int n = 0;
  for (NodeId i : inputs()) n = std::max(n, form<Input>(i)->param + 1);
  return n;
}

int Graph::num_results() const {
  int n = 0;
  for (NodeId i : outputs()) n = std::max(n, form<Output>(i)->result + 1);
  return n;
}

std::vector<std::vector<NodeId>> Graph::users() const {
  std::vector<std::vector<NodeId>> out(static_cast<size_t>(num_values()));
  for (NodeId n = 0; n < num_nodes(); n++)
    for (ValueId v : node(n).operands)
      if (auto& u = out[static_cast<size_t>(v)]; u.empty() || u.back() != n) u.push_back(n);
  return out;
}

uint64_t Graph::hash() const { return hash_text(print(*this, "")); }

bool operator==(const Graph& a, const Graph& b) {
  if (a.level_ != b.level_ || a.launch_ != b.launch_ || a.nodes_.size() != b.nodes_.size() || a.values_.size() != b.values_.size())
    return false;
  for (size_t i = 0; i < a.nodes_.size(); i++)
    if (a.nodes_[i].operands != b.nodes_[i].operands || !(a.nodes_[i].op == b.nodes_[i].op)) return false;
  for (size_t i = 0; i < a.values_.size(); i++)
    if (!(a.values_[i].type == b.values_[i].type)) return false;
  return true;
}

Builder::Builder(Level level, Launch launch) { graph_.level_ = level; graph_.launch_ = launch; }

ValueId Builder::add_input(int param, Type type, Partition part) {
  const ValueId v = graph_.num_values();
  graph_.nodes_.push_back({Input{param, part}, {}, v, 1});
  graph_.values_.push_back({graph_.num_nodes() - 1, 0, type});
  return v;
}

std::optional<ValueId> Builder::try_add(Op op, std::vector<ValueId> operands) {
  std::vector<Type> types;
  types.reserve(operands.size());
  for (ValueId v : operands) {
    MIRAGE_ASSERT(v >= 0 && v < graph_.num_values()) << "operand " << v << " of " << form_name(op) << " does not exist";
    types.push_back(graph_.type(v));
  }
  Inferred r = infer(op, types, graph_.level_);
  if (!r.ok()) { error_ = r.error; return std::nullopt; }
  const ValueId first = r.types.empty() ? -1 : graph_.num_values();
  graph_.nodes_.push_back({std::move(op), std::move(operands), first, static_cast<int>(r.types.size())});
  for (size_t i = 0; i < r.types.size(); i++) graph_.values_.push_back({graph_.num_nodes() - 1, static_cast<int>(i), r.types[i]});
  return first;
}

ValueId Builder::add(Op op, std::vector<ValueId> operands) {
  auto v = try_add(std::move(op), std::move(operands));
  MIRAGE_ASSERT(v) << error_;
  return *v;
}

void Builder::rollback(Mark m) {
  graph_.nodes_.resize(static_cast<size_t>(m.nodes));
  graph_.values_.resize(static_cast<size_t>(m.values));
}

Graph Builder::finish() && {
#ifdef MIRAGE_CHECKED
  const auto broken = check_laws(graph_);
  MIRAGE_ASSERT(!broken) << *broken << "\n" << print(graph_);
#endif
  return std::move(graph_);
}

Graph remove_dead(const Graph& g, std::vector<ValueId>* to) {
  std::vector<bool> live(static_cast<size_t>(g.num_nodes()));
  for (NodeId n = g.num_nodes() - 1; n >= 0; n--) {
    if (g.form<Output>(n) || g.form<Input>(n)) live[static_cast<size_t>(n)] = true;
    if (live[static_cast<size_t>(n)])
      for (ValueId v : g.node(n).operands) live[static_cast<size_t>(g.value(v).node)] = true;
  }
  Builder b(g.level(), g.launch());
  std::vector<ValueId> at(static_cast<size_t>(g.num_values()), -1);
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    if (!live[static_cast<size_t>(n)]) continue;
    const Node& node = g.node(n);
    if (const auto* in = g.form<Input>(n)) {
      at[static_cast<size_t>(node.first_value)] = b.add_input(in->param, g.type(node.first_value), in->part);
      continue;
    }
    std::vector<ValueId> operands;
    for (ValueId v : node.operands) operands.push_back(at[static_cast<size_t>(v)]);
    const ValueId first = b.add(node.op, operands);
    for (int i = 0; i < node.num_values; i++) at[static_cast<size_t>(node.first_value + i)] = first + i;
  }
  if (to) *to = std::move(at);
  return std::move(b).finish();
}

}  // namespace mirage

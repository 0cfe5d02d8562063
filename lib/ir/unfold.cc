// Folded::unfold and Folded::refold: graphs over the folded inputs and outputs as graphs over the caller's, and back. See mirage/ir/fold.h.
#include <algorithm>
#include <memory>
#include <utility>

#include "mirage/ir/fold.h"

namespace mirage {
namespace {

/// g with other extents named by its constants, in bodies too; false if one cannot.
template <class Rename> std::optional<Graph> with_constants(const Graph& g, Rename rename) {
  Builder b(g.level(), g.launch());
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    if (const auto* in = g.form<Input>(n)) {
      b.add_input(in->param, g.type(node.first_value), in->part);
      continue;
    }
    Op op = node.op;
    if (auto* c = std::get_if<Const>(&op); c && !c->extent_of.empty()) {
      auto of = rename(c->extent_of);
      if (!of) return std::nullopt;
      c->extent_of = std::move(*of);
    }
    if (auto* call = std::get_if<Call>(&op)) {
      auto body = with_constants(*call->body, rename);
      if (!body) return std::nullopt;
      call->body = std::make_shared<const Graph>(std::move(*body));
    }
    b.add(std::move(op), node.operands);
  }
  return std::move(b).finish();
}

}  // namespace

Graph Folded::unfold(const Graph& given) const {
  if (!folds) return given;
  auto renamed = with_constants(given, [&](const std::vector<std::pair<int, int>>& of) {
    std::optional<std::vector<std::pair<int, int>>> names(std::in_place);
    for (auto [param, dim] : of) for (int d : factors[static_cast<size_t>(param)][static_cast<size_t>(dim)]) names->push_back({param, d});
    return names;
  });
  const Graph& g = *renamed;
  std::vector<ValueId> at(static_cast<size_t>(g.num_values()), -1);
  Builder b(Level::kKernel);
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    if (const auto* in = g.form<Input>(n)) {
      const ValueId x = b.add_input(in->param, {g.type(node.first_value).dtype, whole.inputs[static_cast<size_t>(in->param)].type.dims});
      at[static_cast<size_t>(node.first_value)] =
          b.graph().dims(x) == g.dims(node.first_value) ? x : b.add(Reshape{g.dims(node.first_value)}, {x});
      continue;
    }
    std::vector<ValueId> operands;
    for (ValueId v : node.operands) operands.push_back(at[static_cast<size_t>(v)]);
    if (const auto* out = g.form<Output>(n)) {
      const Dims& dims = whole.outputs[static_cast<size_t>(out->result)].type.dims;
      b.add_output(out->result, b.graph().dims(operands[0]) == dims ? operands[0] : b.add(Reshape{dims}, {operands[0]}), out->dtype);
      continue;
    }
    const ValueId value = b.add(node.op, operands);
    for (int i = 0; i < node.num_values; i++) at[static_cast<size_t>(node.first_value + i)] = value + i;
  }
  return remove_dead(b.graph());   // reshapes of inputs that nothing reads
}

std::optional<Graph> Folded::refold(const Graph& given) const {
  if (!folds) return given;
  auto renamed = with_constants(given, [&](std::vector<std::pair<int, int>> of) {
    std::optional<std::vector<std::pair<int, int>>> names(std::in_place);
    for (size_t p = 0; p < factors.size(); p++)
      for (size_t d = 0; d < factors[p].size(); d++) {
        const auto& f = factors[p][d];
        auto take = [&](int dim) {
          auto at = std::find(of.begin(), of.end(), std::pair{static_cast<int>(p), dim});
          if (at == of.end()) return false;
          of.erase(at);
          return true;
        };
        while (!f.empty() && std::all_of(f.begin(), f.end(), [&](int dim) {
          return std::find(of.begin(), of.end(), std::pair{static_cast<int>(p), dim}) != of.end();
        })) {
          for (int dim : f) take(dim);
          names->push_back({static_cast<int>(p), static_cast<int>(d)});
        }
      }
    if (!of.empty()) names.reset();
    return names;
  });
  if (!renamed) return std::nullopt;
  const Graph& g = *renamed;
  std::vector<ValueId> at(static_cast<size_t>(g.num_values()), -1);
  Builder b(Level::kKernel);
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    if (const auto* in = g.form<Input>(n)) {
      const auto param = static_cast<size_t>(in->param);
      if (param >= whole.inputs.size() || !(g.dims(node.first_value) == whole.inputs[param].type.dims)) return std::nullopt;
      at[static_cast<size_t>(node.first_value)] = b.add_input(in->param, {g.type(node.first_value).dtype, program.inputs[param].type.dims});
      continue;
    }
    std::vector<ValueId> operands;
    for (ValueId v : node.operands) operands.push_back(at[static_cast<size_t>(v)]);
    if (const auto* r = g.form<Reshape>(n); r && b.graph().dims(operands[0]) == r->dims && b.graph().def_form<Input>(operands[0])) {
      at[static_cast<size_t>(node.first_value)] = operands[0];
      continue;
    }
    if (const auto* out = g.form<Output>(n)) {
      const auto result = static_cast<size_t>(out->result);
      if (result >= program.outputs.size()) return std::nullopt;
      if (!(b.graph().dims(operands[0]) == program.outputs[result].type.dims)) {
        if (!b.graph().def_form<Reshape>(operands[0])) return std::nullopt;
        operands[0] = b.graph().def(operands[0]).operands[0];
        if (!(b.graph().dims(operands[0]) == program.outputs[result].type.dims)) return std::nullopt;
      }
      b.add_output(out->result, operands[0], out->dtype);
      continue;
    }
    const auto value = b.try_add(node.op, operands);
    if (!value && node.num_values > 0) return std::nullopt;
    for (int i = 0; i < node.num_values; i++) {
      if (!(b.graph().dims(*value + i) == g.dims(node.first_value + i))) return std::nullopt;
      at[static_cast<size_t>(node.first_value + i)] = *value + i;
    }
  }
  return remove_dead(b.graph());
}

}  // namespace mirage

// Folded::unfold and Folded::refold: graphs over the folded inputs and outputs as graphs over the caller's, and back. See mirage/ir/fold.h.
#include <algorithm>
#include <memory>
#include <utility>

#include "mirage/ir/fold.h"
#include "mirage/ir/rewrite.h"

namespace mirage {
namespace {

/// g with other extents named by its constants, in bodies too; false if one cannot.
template <class Rename> std::optional<Graph> with_constants(const Graph& g, Rename rename) {
  Builder b(g.level(), g.launch());
  std::vector<ValueId> to;
  const bool is_made = try_rewrite(g, b, to, [&](NodeId n, const std::vector<ValueId>& operands) {
    Op op = g.node(n).op;
    if (auto* c = std::get_if<Const>(&op); c && !c->extent_of.empty()) {
      auto of = rename(c->extent_of);
      if (!of) return kGiveUp;
      c->extent_of = std::move(*of);
      return b.add(std::move(op), operands);
    }
    if (auto* call = std::get_if<Call>(&op)) {
      auto body = with_constants(*call->body, rename);
      if (!body) return kGiveUp;
      call->body = std::make_shared<const Graph>(std::move(*body));
      return b.add(std::move(op), operands);
    }
    return kCopy;
  });
  if (!is_made) return std::nullopt;
  return std::move(b).finish();
}

/// An output of a graph over the caller's shapes as one over the folded program's, which it reaches by a reshape, if at all.
ValueId folded_output(Builder& b, const Output& out, ValueId v, const Program& folded) {
  const auto result = static_cast<size_t>(out.result);
  if (result >= folded.outputs.size()) return kGiveUp;
  const Dims& dims = folded.outputs[result].type.dims;
  if (!(b.graph().dims(v) == dims)) {
    if (!b.graph().def_form<Reshape>(v)) return kGiveUp;
    v = b.graph().def(v).operands[0];
    if (!(b.graph().dims(v) == dims)) return kGiveUp;
  }
  b.add_output(out.result, v, out.dtype);
  return kNoValue;
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
  std::vector<ValueId> to;
  Builder b(Level::kKernel);
  const auto reshaped = [&](ValueId v, const Dims& dims) { return b.graph().dims(v) == dims ? v : b.add(Reshape{dims}, {v}); };
  rewrite(g, b, to, [&](NodeId n, const std::vector<ValueId>& operands) {
    const ValueId v = g.node(n).first_value;
    if (const auto* in = g.form<Input>(n))
      return reshaped(b.add_input(in->param, {g.type(v).dtype, whole.inputs[static_cast<size_t>(in->param)].type.dims}), g.dims(v));
    const auto* out = g.form<Output>(n);
    if (!out) return kCopy;
    b.add_output(out->result, reshaped(operands[0], whole.outputs[static_cast<size_t>(out->result)].type.dims), out->dtype);
    return kNoValue;
  });
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
  Builder b(Level::kKernel);
  std::vector<ValueId> to;
  const bool is_made = try_rewrite(g, b, to, [&](NodeId n, const std::vector<ValueId>& operands) {
    const Node& node = g.node(n);
    if (const auto* in = g.form<Input>(n)) {
      const auto param = static_cast<size_t>(in->param);
      if (param >= whole.inputs.size() || !(g.dims(node.first_value) == whole.inputs[param].type.dims)) return kGiveUp;
      return b.add_input(in->param, {g.type(node.first_value).dtype, program.inputs[param].type.dims});
    }
    if (const auto* r = g.form<Reshape>(n); r && b.graph().dims(operands[0]) == r->dims && b.graph().def_form<Input>(operands[0]))
      return operands[0];
    if (const auto* out = g.form<Output>(n)) return folded_output(b, *out, operands[0], program);
    const auto value = b.try_add(node.op, operands);
    if (!value) return kGiveUp;
    for (int i = 0; i < node.num_values; i++)
      if (!(b.graph().dims(*value + i) == g.dims(node.first_value + i))) return kGiveUp;
    return *value;
  });
  if (!is_made) return std::nullopt;
  return remove_dead(b.graph());
}

}  // namespace mirage

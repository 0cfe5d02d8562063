// joined, results_from: see the header.
#include "driver/pieces/joined.h"

#include <map>

namespace mirage {

namespace {

/// Appends the nodes of g to b. Inputs that are there (by param) are shared; results are numbered on from `first_result`.
void append(Builder& b, const Graph& g, std::map<int, ValueId>& inputs, int first_result) {
  std::vector<ValueId> to(static_cast<size_t>(g.num_values()), -1);
  for (const Node& n : g.nodes()) {
    std::vector<ValueId> operands;
    for (ValueId v : n.operands) operands.push_back(to[static_cast<size_t>(v)]);
    if (const auto* in = std::get_if<Input>(&n.op)) {
      auto [at, is_new] = inputs.try_emplace(in->param, -1);
      if (is_new) at->second = b.add_input(in->param, g.type(n.first_value));
      to[static_cast<size_t>(n.first_value)] = at->second;
    } else if (const auto* out = std::get_if<Output>(&n.op)) {
      b.add_output(first_result + out->result, operands[0], out->dtype);
    } else {
      const ValueId first = b.add(n.op, operands);
      for (int i = 0; i < n.num_values; i++) to[static_cast<size_t>(n.first_value + i)] = first + i;
    }
  }
}

}  // namespace

Graph joined(const Graph& x, const Graph& y) {
  Builder b(Level::kKernel);
  std::map<int, ValueId> inputs;
  append(b, x, inputs, 0);
  append(b, y, inputs, x.num_results());
  return std::move(b).finish();
}

Graph results_from(const Graph& g, int first, int count) {
  Builder b(Level::kKernel);
  std::vector<ValueId> to(static_cast<size_t>(g.num_values()), -1);
  for (const Node& n : g.nodes()) {
    std::vector<ValueId> operands;
    for (ValueId v : n.operands) operands.push_back(to[static_cast<size_t>(v)]);
    if (const auto* in = std::get_if<Input>(&n.op)) {
      to[static_cast<size_t>(n.first_value)] = b.add_input(in->param, g.type(n.first_value));
    } else if (const auto* out = std::get_if<Output>(&n.op)) {
      if (out->result >= first && out->result < first + count) b.add_output(out->result - first, operands[0], out->dtype);
    } else {
      const ValueId value = b.add(n.op, operands);
      for (int i = 0; i < n.num_values; i++) to[static_cast<size_t>(n.first_value + i)] = value + i;
    }
  }
  return remove_dead(b.graph());
}

}  // namespace mirage

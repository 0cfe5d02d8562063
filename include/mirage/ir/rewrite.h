// A graph made anew, node by node: the loop of everything that replaces some nodes and keeps the rest.
#pragma once
#include <utility>
#include <vector>

#include "mirage/ir/graph.h"
#include "mirage/support/assert.h"

namespace mirage {

/// What a function of try_rewrite() says of a node, where it is not the first of the values that it made in its place.
constexpr ValueId kNoValue = -1;   ///< nothing stands in its place, or the function has entered its values into `to` itself
constexpr ValueId kCopy = -2;      ///< it is copied, with the operands as the function left them
constexpr ValueId kGiveUp = -3;    ///< there is no such graph

/// Appends g's nodes to b in their order. `fn(n, operands)` says what becomes of node n (above); operands are values of b and may be
/// changed. to: per value of g, its value in b, -1: it has none; of g's size, or empty. False where fn gave up or a copied node does not
/// take its new operands; b and to are of no use then.
template <class F> [[nodiscard]] bool try_rewrite(const Graph& g, Builder& b, std::vector<ValueId>& to, F&& fn) {
  to.resize(static_cast<size_t>(g.num_values()), kNoValue);
  std::vector<ValueId> operands;
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    operands.clear();
    for (ValueId v : node.operands) operands.push_back(to[static_cast<size_t>(v)]);
    ValueId made = fn(n, operands);
    if (made == kGiveUp) return false;
    if (made == kCopy) {
      if (const auto* in = g.form<Input>(n)) {
        made = b.add_input(in->param, g.type(node.first_value), in->part);
      } else {
        const auto first = b.try_add(node.op, operands);
        if (!first) return false;
        made = *first;
      }
    }
    for (int i = 0; made >= 0 && i < node.num_values; i++) to[static_cast<size_t>(node.first_value + i)] = made + i;
  }
  return true;
}

/// The same for callers that know that every node can be made: aborts where one cannot.
template <class F> void rewrite(const Graph& g, Builder& b, std::vector<ValueId>& to, F&& fn) {
  const bool is_made = try_rewrite(g, b, to, std::forward<F>(fn));
  MIRAGE_ASSERT(is_made) << b.last_error();
}

}  // namespace mirage

// Walks from a value down to what it is made of. A graph is no tree: a value that is read twice doubles the paths below it, and thirty
// residuals in sequence have 2^30 of them. So every walk sees a value once, and none recurses, for a chain may be as long as a program.
#pragma once
#include <set>
#include <utility>
#include <vector>

#include "mirage/ir/graph.h"

namespace mirage {

/// What to do behind a value: go on to its operands, pass it by, or end the walk because it was found.
enum class Look : uint8_t { kInto, kPast, kFound };

/// Whether `look(v)` found something among `root` and what it is made of. Every value is looked at once, in the order of a recursive
/// descent: operands from the first, each with all behind it.
template <class F> bool find_below(const Graph& g, ValueId root, F&& look) {
  std::vector<bool> seen(static_cast<size_t>(root) + 1);   // operands have smaller ids
  std::vector<ValueId> stack{root};
  while (!stack.empty()) {
    const ValueId v = stack.back();
    stack.pop_back();
    if (seen[static_cast<size_t>(v)]) continue;
    seen[static_cast<size_t>(v)] = true;
    const Look l = look(v);
    if (l == Look::kFound) return true;
    if (l == Look::kPast) continue;
    const auto& operands = g.def(v).operands;
    stack.insert(stack.end(), operands.rbegin(), operands.rend());
  }
  return false;
}

/// Whether v is `on` or is made of it.
inline bool depends_on(const Graph& g, ValueId v, ValueId on) {
  return find_below(g, v, [&](ValueId x) { return x == on ? Look::kFound : x < on ? Look::kPast : Look::kInto; });
}

/// The same for walks whose question changes on the way: `look(v, context)` says, and `next(v, context, push)` calls push(operand, context)
/// for what comes behind a value that is looked into.
template <class Context, class L, class N> bool find_below(ValueId root, Context context, L&& look, N&& next) {
  std::set<std::pair<ValueId, Context>> seen;
  std::vector<std::pair<ValueId, Context>> stack{{root, context}}, behind;
  while (!stack.empty()) {
    const auto at = stack.back();
    stack.pop_back();
    if (!seen.insert(at).second) continue;
    const Look l = look(at.first, at.second);
    if (l == Look::kFound) return true;
    if (l == Look::kPast) continue;
    behind.clear();
    next(at.first, at.second, [&](ValueId v, Context c) { behind.emplace_back(v, c); });
    stack.insert(stack.end(), behind.rbegin(), behind.rend());
  }
  return false;
}

}  // namespace mirage

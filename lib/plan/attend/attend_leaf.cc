// Where the values of an attention kernel come from: what plan_attend's checks ask. The emitter finds the same in the kernel's program
// (codegen/program/attend_elements.cc).
#include <algorithm>

#include "mirage/ir/walk.h"
#include "plan/attend/attend_internal.h"

namespace mirage {
namespace {

using Axis = AttendAxis;
using Where = AttendWhere;
using Leaf = AttendLeaf;

bool has(const std::array<Axis, 2>& a, Axis x) { return a[0] == x || a[1] == x; }
bool only(const std::array<Axis, 2>& a, Axis x) { return (a[0] == x || a[0] == Axis::kOne) && (a[1] == x || a[1] == Axis::kOne); }

/// Per query or for all queries, known before the loop.
bool is_row(const AttendPlan& p, ValueId v, const std::vector<Phase>& phase) {
  return only(p.shape.axes[static_cast<size_t>(v)], Axis::kQuery) && phase[static_cast<size_t>(v)] == Phase::kInvariant;
}

Leaf tile_leaf(const AttendPlan& p, ValueId v) {
  const Graph& g = p.body;
  const auto& a = p.shape.axes[static_cast<size_t>(v)];
  if (!g.def_form<Input>(v)) return Leaf::kRefused;
  const NodeId n = g.value(v).node;
  const bool is_tensor =
      has(a, Axis::kFeature) ? (has(a, Axis::kQuery) ? n == p.shape.q.input : n == p.shape.k.input) : n == p.shape.v.input;
  return is_tensor ? Leaf::kTile : Leaf::kRefused;
}
/// A row sum or maximum of Q, K or V's own elements, where that tensor's rows are at hand.
Leaf statistic_leaf(const AttendPlan& p, ValueId v, Where where) {
  const auto& a = p.shape.axes[static_cast<size_t>(p.body.def(v).operands[0])];
  const bool fits = where == Where::kQueryRow ? has(a, Axis::kFeature) && has(a, Axis::kQuery)
                    : where == Where::kKeyRow
                        ? has(a, Axis::kFeature) && has(a, Axis::kKey) && !p.shape.k.lines_along_rows
                        : where == Where::kValueRow && has(a, Axis::kColumn) && has(a, Axis::kKey) && !p.shape.v.lines_along_rows;
  return fits ? Leaf::kStatistic : Leaf::kRefused;
}

}  // namespace

AttendLeaf attend_leaf(const AttendPlan& p, ValueId v, AttendWhere where) {
  const Graph& g = p.body;
  const AttendShape& s = p.shape;
  const auto& a = s.axes[static_cast<size_t>(v)];
  const std::vector<Phase> phase = phases(g);
  const bool computes = g.def_form<Map>(v) || g.def_form<Transpose>(v);
  if (g.def_form<Const>(v)) return Leaf::kConst;
  if (where == Where::kGain)
    return computes                                                                      ? Leaf::kCompute
           : g.def_form<Input>(v) && (only(a, Axis::kFeature) || only(a, Axis::kColumn)) ? Leaf::kElement
                                                                                         : Leaf::kRefused;
  if (where == Where::kTile) return computes ? Leaf::kCompute : tile_leaf(p, v);
  if (where == Where::kQueryRow || where == Where::kKeyRow || where == Where::kValueRow) {
    const Axis own = where == Where::kQueryRow ? Axis::kQuery : Axis::kKey;
    if (g.def_form<Reduce>(v)) return statistic_leaf(p, v, where);
    if (!only(a, own)) return Leaf::kRefused;
    return computes ? Leaf::kCompute : g.def_form<Input>(v) ? Leaf::kElement : Leaf::kRefused;
  }
  if (is_row(p, v, phase)) return Leaf::kRow;
  if (where == Where::kLogit || where == Where::kShare) {
    const std::vector<ValueId>& known = where == Where::kLogit ? p.key_known : p.value_known;
    if (where == Where::kLogit && v == s.scores) return Leaf::kScores;
    if (where == Where::kShare && v == s.weights) return Leaf::kWeights;
    if (v == s.weights || v == s.running) return Leaf::kRefused;
    if (std::find(known.begin(), known.end(), v) != known.end()) return Leaf::kKnown;
    if (where == Where::kLogit) for (const auto& [from, to] : s.peeled) if (from == v) return Leaf::kThrough;
    if (g.def_form<Input>(v))
      return (has(a, Axis::kQuery) || has(a, Axis::kKey)) && !has(a, Axis::kFeature) && !has(a, Axis::kColumn) ? Leaf::kElement
                                                                                                               : Leaf::kRefused;
    return computes ? Leaf::kCompute : Leaf::kRefused;
  }
  if (v == s.result) return where == Where::kAfter ? Leaf::kResult : Leaf::kRefused;
  if (v == s.last_maximum) return Leaf::kMaximum;
  if (std::find(s.sums.begin(), s.sums.end(), v) != s.sums.end()) return Leaf::kSum;
  if (where == Where::kAfter && only(a, Axis::kQuery) && computes) return Leaf::kAfterRow;
  if (g.def_form<Input>(v))
    return !has(a, Axis::kKey) && !has(a, Axis::kFeature) && where == Where::kAfter ? Leaf::kElement : Leaf::kRefused;
  return computes ? Leaf::kCompute : Leaf::kRefused;
}

}  // namespace mirage

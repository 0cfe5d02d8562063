// Finds the pattern of FlashAttention in a block graph: S = X Y, a region of maps, a running maximum over the columns, exp, times V
// accumulating with one rescaling, and the row sums.
#include "plan/block/chain.h"

#include <algorithm>

namespace mirage {
namespace {

class Finder {
 public:
  explicit Finder(const Graph& g) : g_(g), users_(g.users()), phase_(phases(g)) {}

  std::optional<Chain> find() {
    c_.inside.assign(static_cast<size_t>(g_.num_nodes()), false);
    on_scores_ = c_.inside;
    for (NodeId n = 0; n < g_.num_nodes(); n++)
      if (g_.form<Running>(n)) {
        if (c_.running >= 0) return std::nullopt;
        c_.running = g_.node(n).first_value;
      }
    if (c_.running < 0 || !find_logit() || !find_weights() || !find_results()) return std::nullopt;
    return c_;
  }

 private:
  const std::vector<NodeId>& users(ValueId v) const { return users_[static_cast<size_t>(v)]; }
  void take(ValueId v) { c_.inside[static_cast<size_t>(g_.value(v).node)] = true; }
  bool is_last(ValueId v, int dim) const { return dim == g_.dims(v).rank() - 1; }

  bool find_logit() {
    const ValueId top = g_.def(c_.running).operands[0];
    const auto* r = g_.def_form<Reduce>(top);
    if (!r || r->fn != ReduceFn::kMax || r->group || users(top).size() != 1) return false;
    c_.logit = g_.def(top).operands[0];
    if (!is_last(c_.logit, r->dim) || users(c_.logit).size() != 2) return false;
    take(c_.running);
    take(top);
    return find_scores(c_.logit, true) && c_.scores >= 0;
  }

  /// The maps from the logit down to one contraction; each has one user, so that nobody else wants them.
  bool find_scores(ValueId v, bool is_top) {
    if (phase_[static_cast<size_t>(v)] != Phase::kLoop) return true;
    if (g_.def_form<Input>(v)) return true;
    if (!is_top && users(v).size() != 1) return false;
    const auto here = static_cast<size_t>(g_.value(v).node);
    if (c_.inside[here]) return !on_scores_[here];   // read twice by its one reader: no second way to the contraction
    if (g_.def_form<MatMul>(v)) {
      if (c_.scores >= 0 || !(g_.dims(v) == g_.dims(c_.logit))) return false;
      c_.scores = g_.value(v).node;
      on_scores_[here] = true;
      take(v);
      return true;
    }
    if (!g_.def_form<Map>(v)) return false;
    take(v);
    const bool before = c_.scores >= 0;
    for (ValueId o : g_.def(v).operands) if (!find_scores(o, false)) return false;
    on_scores_[here] = !before && c_.scores >= 0;
    return true;
  }

  bool find_weights() {
    for (NodeId n : users(c_.logit)) {
      const auto* m = g_.form<Map>(n);
      if (!m || m->fn != MapFn::kSub || g_.node(n).operands[1] != c_.running) continue;
      const ValueId d = g_.node(n).first_value;
      const auto* e = users(d).size() == 1 ? g_.form<Map>(users(d)[0]) : nullptr;
      if (!e || e->fn != MapFn::kExp) return false;
      c_.weights = g_.node(users(d)[0]).first_value;
      take(d);
      take(c_.weights);
    }
    return c_.weights >= 0;
  }

  /// The accumulator of v, rescaled once, if that is v's one use.
  ValueId accumulator(ValueId v) const {
    if (users(v).size() != 1) return -1;
    const auto* a = g_.form<Accum>(users(v)[0]);
    return a && a->degree == 1 && g_.node(users(v)[0]).operands[1] == c_.running ? g_.node(users(v)[0]).first_value : -1;
  }

  bool find_results() {
    for (NodeId n : users(c_.weights)) {
      const ValueId v = g_.node(n).first_value;
      const auto* r = g_.form<Reduce>(n);
      if (g_.form<MatMul>(n) && c_.contract < 0 && g_.node(n).operands[0] == c_.weights && g_.node(n).operands[1] != c_.weights) {
        c_.contract = n;
        c_.result = accumulator(v);
      } else if (r && r->fn == ReduceFn::kSum && !r->group && is_last(c_.weights, r->dim) && c_.sum < 0 && accumulator(v) >= 0)
        c_.sum = accumulator(v);
      else return false;
      c_.inside[static_cast<size_t>(n)] = true;
    }
    if (c_.result < 0) return false;
    for (NodeId n : users(c_.running)) {
      const auto* a = g_.form<Accum>(n);
      if (a && a->fn == ReduceFn::kMax && !a->degree) { c_.last = g_.node(n).first_value; take(c_.last); }
    }
    take(c_.result);
    if (c_.sum >= 0) take(c_.sum);
    for (NodeId n = 0; n < g_.num_nodes(); n++)   // the loop does nothing else
      if (!g_.form<Input>(n) && g_.node(n).first_value >= 0 && !c_.inside[static_cast<size_t>(n)] &&
          (phase_[static_cast<size_t>(g_.node(n).first_value)] == Phase::kLoop || g_.form<Accum>(n)) && !g_.form<Transpose>(n))
        return false;
    return true;
  }

  const Graph& g_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<Phase> phase_;
  std::vector<bool> on_scores_;   // nodes between the logit and the contraction
  Chain c_;
};

}  // namespace

std::optional<Chain> find_chain(const Graph& body) { return Finder(body).find(); }

}  // namespace mirage

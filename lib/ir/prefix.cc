// keeps_prefix(): the two graphs are walked side by side; see the header.
#include "mirage/ir/prefix.h"

#include <algorithm>
#include <variant>

namespace mirage {
namespace {

/// Elements of the dimensions ahead of `d`.
int64_t ahead_of(const Dims& dims, int d) {
  int64_t n = 1;
  for (int i = 0; i < d; i++) n *= dims[i];
  return n;
}

class Walk {
 public:
  Walk(const Graph& few, int64_t few_steps, const Graph& many, int64_t many_steps)
      : few_(few), many_(many), few_steps_(few_steps), many_steps_(many_steps) {}

  bool holds() {
    if (few_.num_nodes() != many_.num_nodes() || few_.num_values() != many_.num_values() || few_steps_ >= many_steps_) return false;
    along_.assign(static_cast<size_t>(many_.num_values()), -1);
    for (NodeId n = 0; n < many_.num_nodes(); n++)
      if (!node_holds(few_.node(n), many_.node(n))) return false;
    return true;
  }

 private:
  static constexpr int kBroken = -2;

  /// The dimension of v that follows the axis; -1: none; kBroken: several, or not in proportion.
  int differing(ValueId v) const {
    const Dims &a = few_.dims(v), &b = many_.dims(v);
    if (a.rank() != b.rank()) return kBroken;
    int out = -1;
    for (int d = 0; d < b.rank(); d++) {
      if (a[d] == b[d]) continue;
      if (out != -1 || a[d] % few_steps_ != 0 || a[d] / few_steps_ * many_steps_ != b[d]) return kBroken;
      out = d;
    }
    return out;
  }
  int along(ValueId v) const { return along_[static_cast<size_t>(v)]; }

  bool node_holds(const Node& a, const Node& b) {
    if (a.op.index() != b.op.index() || a.operands != b.operands || a.num_values > 1) return false;
    if (std::holds_alternative<Output>(b.op)) return std::get<Output>(a.op) == std::get<Output>(b.op);
    const int found = differing(b.first_value);
    if (found == kBroken) return false;
    along_[static_cast<size_t>(b.first_value)] = found;
    const bool reads = std::any_of(b.operands.begin(), b.operands.end(), [&](ValueId v) { return along(v) >= 0; });
    if (reads && found < 0) return false;   // what follows the axis has become something of all of it
    return std::visit([&](const auto& op) { return rule(std::get<std::decay_t<decltype(op)>>(a.op), op, b, found); }, b.op);
  }

  /// An operand's dimension is the result's, counted from the last.
  bool is_aligned(ValueId operand, ValueId result, int found) const {
    return along(operand) < 0 || many_.dims(operand).rank() - along(operand) == many_.dims(result).rank() - found;
  }
  bool all_aligned(const Node& n, int found) const {
    return std::all_of(n.operands.begin(), n.operands.end(), [&](ValueId v) { return is_aligned(v, n.first_value, found); });
  }

  bool rule(const Input& a, const Input& b, const Node&, int) const { return a.param == b.param; }
  bool rule(const Const& a, const Const& b, const Node&, int) const {
    for (auto [param, dim] : b.extent_of)
      for (NodeId n : many_.inputs())
        if (many_.form<Input>(n)->param == param && along(many_.node(n).first_value) == dim) return false;
    return a == b;
  }
  bool rule(const Iota& a, const Iota& b, const Node&, int) const { return a.dim == b.dim; }   // element i is i, however many there are
  bool rule(const Map& a, const Map& b, const Node& n, int found) const { return a == b && all_aligned(n, found); }
  bool rule(const MatMul& a, const MatMul& b, const Node& n, int found) const {
    const int rank = many_.dims(n.first_value).rank();
    const bool sums =
        along(n.operands[0]) == many_.dims(n.operands[0]).rank() - 1 || along(n.operands[1]) == many_.dims(n.operands[1]).rank() - 2;
    const bool same_rank = many_.dims(n.operands[0]).rank() == rank && many_.dims(n.operands[1]).rank() == rank;
    return a == b && !sums && same_rank && all_aligned(n, found);
  }
  bool rule(const Reduce& a, const Reduce& b, const Node& n, int found) const {
    return a == b && (found < 0 || (along(n.operands[0]) == found && b.dim != found));
  }
  bool rule(const Repeat& a, const Repeat& b, const Node& n,
            int found) const {  // copies of what does not follow the axis: element i is one of them, however many there are
    if (along(n.operands[0]) < 0) return a.dim == b.dim && (found == -1 ? a.count == b.count : found == b.dim);
    return a == b && along(n.operands[0]) == found && b.dim != found;
  }
  bool rule(const Reshape&, const Reshape&, const Node& n,
            int found) const {  // row-major: a prefix stays one where as much stands ahead of it
    const ValueId from = n.operands[0];
    return found < 0 || (along(from) >= 0 && ahead_of(many_.dims(from), along(from)) == ahead_of(many_.dims(n.first_value), found));
  }
  bool rule(const Transpose& a, const Transpose& b, const Node& n, int found) const {
    return a == b && (found < 0 || b.perm[static_cast<size_t>(found)] == along(n.operands[0]));
  }
  bool rule(const Concat& a, const Concat& b, const Node& n, int found) const {
    return a == b && b.dim != found && std::all_of(n.operands.begin(), n.operands.end(), [&](ValueId v) { return along(v) == found; });
  }
  bool rule(const Slice& a, const Slice& b, const Node& n, int found) const {
    return a == b && b.dim != found && along(n.operands[0]) == found;
  }
  template <class Other> bool rule(const Other&, const Other&, const Node&, int) const { return false; }

  const Graph &few_, &many_;
  const int64_t few_steps_, many_steps_;
  std::vector<int> along_;   ///< per value
};

}  // namespace

bool keeps_prefix(const Graph& few, int64_t few_steps, const Graph& many, int64_t many_steps) {
  return Walk(few, few_steps, many, many_steps).holds();
}

}  // namespace mirage

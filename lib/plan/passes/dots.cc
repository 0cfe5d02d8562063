// A product of one row or one column as products of elements and their sum. Its time is that of reading the matrix once, which a kernel of
// rows or of columns does as well, and such a kernel also computes the matrix and stores it: a recurrent cell updates its state and reads
// it (a linear attention, a delta rule, an mLSTM) in one walk.
#include <optional>

#include "plan/passes/rewrites.h"

namespace mirage {
namespace {

class Dots {
 public:
  explicit Dots(const Graph& g) : g_(g), mapped_(static_cast<size_t>(g.num_values())) {
    for (const Node& n : g.nodes())
      if (std::holds_alternative<Map>(n.op))
        for (ValueId o : n.operands) mapped_[static_cast<size_t>(source(o))] = true;
  }

  std::optional<Graph> run() {
    Builder b(Level::kKernel);
    std::vector<ValueId> to(static_cast<size_t>(g_.num_values()), -1);
    bool changed = false;
    for (const Node& n : g_.nodes()) {
      std::vector<ValueId> operands;
      for (ValueId o : n.operands) operands.push_back(to[static_cast<size_t>(o)]);
      const bool dot = is_dot(n);
      const auto* in = std::get_if<Input>(&n.op);
      const ValueId first = in    ? b.add_input(in->param, g_.type(n.first_value), in->part)
                            : dot ? add_dot(b, operands[0], operands[1])
                                  : b.add(n.op, operands);
      changed = changed || dot;
      for (int i = 0; i < n.num_values; i++) to[static_cast<size_t>(n.first_value + i)] = first + i;
    }
    return changed ? std::optional(std::move(b).finish()) : std::nullopt;
  }

 private:
  /// What v is a view of.
  ValueId source(ValueId v) const {
    while (is_view(g_.def(v).op)) v = g_.def(v).operands[0];
    return v;
  }
  /// One row or one column, of a matrix that elementwise kernels make or read.
  bool is_dot(const Node& n) const {
    if (!std::holds_alternative<MatMul>(n.op)) return false;
    const Dims &x = g_.dims(n.operands[0]), &y = g_.dims(n.operands[1]);
    const int r = x.rank();
    const bool row = x[r - 2] == 1, column = y[r - 1] == 1;
    if (row == column) return false;
    const ValueId matrix = source(n.operands[row ? 1 : 0]);
    return std::holds_alternative<Map>(g_.def(matrix).op) || mapped_[static_cast<size_t>(matrix)];
  }
  static ValueId add_dot(Builder& b, ValueId x, ValueId y) {
    const int r = b.graph().dims(x).rank();
    const bool row = b.graph().dims(x)[r - 2] == 1;
    Transpose turn;
    for (int d = 0; d < r; d++) turn.perm[static_cast<size_t>(d)] = static_cast<int8_t>(d < r - 2 ? d : 2 * r - 3 - d);
    (row ? x : y) = b.add(turn, {row ? x : y});
    return b.add(Reduce{ReduceFn::kSum, row ? r - 2 : r - 1, 0}, {b.map(MapFn::kMul, {x, y})});
  }

  const Graph& g_;
  std::vector<bool> mapped_;   // a map reads it, or a view of it
};

}  // namespace

std::optional<Graph> dot_products(const Graph& g) { return Dots(g).run(); }

}  // namespace mirage

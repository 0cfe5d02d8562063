// A product of one row or one column as products of elements and their sum. Its time is that of reading the matrix once, which a kernel of
// rows or of columns does as well, and such a kernel also computes the matrix and stores it: a recurrent cell updates its state and reads
// it (a linear attention, a delta rule, an mLSTM) in one walk.
//
// And products over, or reductions of, no more than eight as operations on slices: streams of a residual that a small matrix mixes, parts
// that gates add up. A tile of tensor cores would be empty, and a column of four elements is a poor loop; elementwise kernels read the
// slices where they lie, and do what stands around them at the same time.
#include <algorithm>
#include <optional>

#include "plan/passes/rewrites.h"

namespace mirage {
namespace {

constexpr int64_t kShort = 8;          // of a product or reduction that becomes slices
constexpr int kMostNodes = 512;        // that these make
constexpr int64_t kLeast = 1 << 18;    // elements of its larger operand: smaller ones are a matter of how many kernels there are

class Dots {
 public:
  Dots(const Graph& g, bool slices) : g_(g), slices_(slices), mapped_(static_cast<size_t>(g.num_values())) {
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
      const bool dot = is_dot(n), product = !dot && is_short_product(n), reduction = is_short_reduction(n);
      const auto* in = std::get_if<Input>(&n.op);
      const ValueId first = in          ? b.add_input(in->param, g_.type(n.first_value), in->part)
                            : dot       ? add_dot(b, operands[0], operands[1])
                            : product   ? add_product(b, operands[0], operands[1])
                            : reduction ? add_reduction(b, *std::get_if<Reduce>(&n.op), operands[0])
                                        : b.add(n.op, operands);
      changed = changed || (slices_ ? product || reduction : dot);
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

  bool is_short(const Node& n, int64_t extent) const {
    int64_t largest = 0;
    for (ValueId o : n.operands) largest = std::max(largest, g_.dims(o).elements());
    return slices_ && largest >= kLeast && extent > 1 && extent <= kShort && g_.num_nodes() * extent <= kMostNodes;
  }
  /// Whether v compares: a row of a table by its index is a sum over a comparison with all, which is read where it lies.
  bool compares(ValueId v) const {
    v = source(v);
    if (const Map* m = g_.def_form<Map>(v); m && m->fn == MapFn::kEqual) return true;
    if (!g_.def_form<Map>(v)) return false;
    const auto& operands = g_.def(v).operands;
    return std::any_of(operands.begin(), operands.end(), [&](ValueId o) {
      const Map* m = g_.def_form<Map>(source(o));
      return m && m->fn == MapFn::kEqual;
    });
  }
  bool is_short_product(const Node& n) const {
    return std::holds_alternative<MatMul>(n.op) && !compares(n.operands[0]) && !compares(n.operands[1]) &&
           is_short(n, g_.dims(n.operands[0])[g_.dims(n.operands[0]).rank() - 1]);
  }
  bool is_short_reduction(const Node& n) const {
    const auto* r = std::get_if<Reduce>(&n.op);
    return r && r->group == 0 && !compares(n.operands[0]) && is_short(n, g_.dims(n.operands[0])[r->dim]);
  }
  static ValueId slice(Builder& b, ValueId v, int dim, int64_t at) { return b.add(Slice{dim, at, at + 1, 1}, {v}); }
  static ValueId add_product(Builder& b, ValueId x, ValueId y) {
    const int r = b.graph().dims(x).rank();
    const int64_t terms = b.graph().dims(x)[r - 1];
    ValueId sum = -1;
    for (int64_t k = 0; k < terms; k++) {
      const ValueId term = b.map(MapFn::kMul, {slice(b, x, r - 1, k), slice(b, y, r - 2, k)});
      sum = sum < 0 ? term : b.map(MapFn::kAdd, {sum, term});
    }
    return sum;
  }
  static ValueId add_reduction(Builder& b, const Reduce& reduce, ValueId x) {
    const int64_t terms = b.graph().dims(x)[reduce.dim];
    ValueId all = slice(b, x, reduce.dim, 0);
    for (int64_t k = 1; k < terms; k++)
      all = b.map(reduce.fn == ReduceFn::kSum ? MapFn::kAdd : MapFn::kMax, {all, slice(b, x, reduce.dim, k)});
    return all;
  }

  const Graph& g_;
  const bool slices_;
  std::vector<bool> mapped_;   // a map reads it, or a view of it
};

}  // namespace

std::optional<Graph> dot_products(const Graph& g) { return Dots(g, false).run(); }
std::optional<Graph> short_products(const Graph& g) { return Dots(g, true).run(); }

}  // namespace mirage

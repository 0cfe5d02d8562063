// Chosen elements of a graph's results, at the program's own size: what they need is found first, from the results back to the inputs, and
// counted; only then is anything computed, in any algebra (ir/eval.h), and only that. Inputs are asked for element by element and never
// stored. The values are those that evaluate() gives, bit for bit, but for a running maximum in an algebra without an order: there each is
// arbitrary, and must not matter.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "mirage/ir/eval.h"
#include "mirage/ir/graph.h"
#include "mirage/verify/sampled.h"

namespace mirage::verify {

/// Ranges of positions of one tensor, row-major. Add first, then sort(), then ask.
class Positions {
 public:
  struct Run { int64_t first, count, before; };   ///< before: positions in the runs before this one
  void add(int64_t first, int64_t count = 1) {
    if (!runs_.empty()) {
      Run& last = runs_.back();
      if (first >= last.first && first <= last.first + last.count) {
        last.count = std::max(last.count, first + count - last.first);
        return;
      }
    }
    runs_.push_back({first, count, 0});
  }
  void sort();
  bool empty() const { return runs_.empty(); }
  int64_t size() const { return runs_.empty() ? 0 : runs_.back().before + runs_.back().count; }
  const std::vector<Run>& runs() const { return runs_; }
  /// The place of a position among all, -1: it is not there. hint: the run where the last one was found.
  int64_t place(int64_t position, size_t& hint) const;
  template <class F> void each(F&& f) const { for (const Run& r : runs_) for (int64_t i = 0; i < r.count; i++) f(r.first + i); }

 private:
  std::vector<Run> runs_;
};

/// A position of one value.
struct At { ValueId value; int64_t position; };

/// What must be computed for some elements of a graph's results, and what that costs.
struct SamplePlan {
  std::string refusal;                                      ///< "": it is within the limits
  double work = 0;                                          ///< scalar operations
  double bytes = 0;                                         ///< of values of 16 bytes and of positions, if all were kept
  std::vector<Positions> needed;                            ///< per value; empty for what is read where it is used
  /// per value: inputs, constants, positions, and views that are followed, not stored
  std::vector<char> direct;
  std::vector<std::vector<std::array<int64_t, 3>>> blocks;  ///< per node: of a call, those to be run
  std::vector<std::vector<ValueId>> frees;                  ///< per node: values that nothing behind it reads
};
SamplePlan plan_samples(const Graph& g, std::span<const Sample> samples, const SampleLimits& limits);

/// v: a view, a concatenation or a repetition; where its element at `position` comes from
At follow_view(const Graph& g, ValueId v, int64_t position);
/// which element of a tensor of `from` stands at a position of one of `to`
int64_t broadcast_position(const Dims& from, const Dims& to, int64_t position);
/// which matrix of an operand goes into matrix number `batch` of a product
int64_t batch_of(const Dims& operand, const Dims& product, int64_t batch);

/// The rows and columns of a product that are needed together, of one batch.
struct ProductBlock { int64_t batch; std::vector<int64_t> rows, columns; };
std::vector<ProductBlock> product_blocks(const Dims& out, const Positions& needed);

/// One evaluation by a plan. input(param, position) gives an input's element.
template <class A, class F> class SampledRun {
 public:
  using V = typename A::Value;
  SampledRun(const Graph& g, const SamplePlan& plan, F& input, A& a)
      : g_(g), plan_(plan), input_(input), a_(a), values_(static_cast<size_t>(g.num_values())), hints_(values_.size(), 0) {}

  std::vector<V> run(std::span<const Sample> samples) {
    const std::vector<NodeId> outputs = g_.outputs();
    for (NodeId n = 0; n < g_.num_nodes(); n++) {
      node(n);
      for (ValueId v : plan_.frees[static_cast<size_t>(n)]) std::vector<V>().swap(values_[static_cast<size_t>(v)]);
    }
    std::vector<V> out;
    for (const Sample& s : samples) out.push_back(at(g_.node(outputs[static_cast<size_t>(s.result)]).operands[0], s.element));
    return out;
  }

 private:
  V at(ValueId v, int64_t position) {
    while (plan_.direct[static_cast<size_t>(v)]) {
      const Op& op = g_.def(v).op;
      if (const auto* in = std::get_if<Input>(&op)) return input_(in->param, position);
      if (const auto* c = std::get_if<Const>(&op)) return a_.constant(c->value);
      if (const auto* i = std::get_if<Iota>(&op)) {
        int64_t inner = 1;
        for (int d = i->dims.rank() - 1; d > i->dim; d--) inner *= i->dims[d];
        return a_.constant(static_cast<double>(position / inner % i->dims[i->dim]));
      }
      const At from = follow_view(g_, v, position);
      v = from.value;
      position = from.position;
    }
    const int64_t place = plan_.needed[static_cast<size_t>(v)].place(position, hints_[static_cast<size_t>(v)]);
    MIRAGE_ASSERT(place >= 0) << "element " << position << " of value " << v << " was not asked for";
    return values_[static_cast<size_t>(v)][static_cast<size_t>(place)];
  }

  void node(NodeId n) {
    const Node& node = g_.node(n);
    if (node.first_value < 0) return;
    if (g_.form<Call>(n)) return call(n);
    const ValueId v = node.first_value;
    const Positions& needed = plan_.needed[static_cast<size_t>(v)];
    if (plan_.direct[static_cast<size_t>(v)] || needed.empty()) return;
    std::vector<V>& out = values_[static_cast<size_t>(v)];
    if (const auto* m = g_.form<Map>(n)) map(m->fn, node, out);
    else if (const auto* r = g_.form<Reduce>(n)) reduce(*r, node, out);
    else if (g_.form<MatMul>(n)) matmul(node, out);
    else needed.each([&](int64_t i) { const At from = follow_view(g_, v, i); out.push_back(at(from.value, from.position)); });
  }

  void map(MapFn fn, const Node& node, std::vector<V>& out) {
    static const V none{};
    const Dims& dims = g_.dims(node.first_value);
    std::array<V, 3> x{none, none, none};
    std::array<bool, 3> same{};
    for (size_t i = 0; i < node.operands.size(); i++) same[i] = g_.dims(node.operands[i]) == dims;
    plan_.needed[static_cast<size_t>(node.first_value)].each([&](int64_t e) {
      for (size_t i = 0; i < node.operands.size(); i++)
        x[i] = at(node.operands[i], same[i] ? e : broadcast_position(g_.dims(node.operands[i]), dims, e));
      out.push_back(apply_map(fn, a_, x[0], x[1], x[2]));
    });
  }

  void reduce(const Reduce& r, const Node& node, std::vector<V>& out) {
    const Dims& dims = g_.dims(node.operands[0]);
    const int64_t group = r.group ? r.group : dims[r.dim], groups = dims[r.dim] / group;
    int64_t inner = 1;
    for (int d = r.dim + 1; d < dims.rank(); d++) inner *= dims[d];
    plan_.needed[static_cast<size_t>(node.first_value)].each([&](int64_t e) {
      const int64_t first = (e / inner / groups * dims[r.dim] + e / inner % groups * group) * inner + e % inner;
      V acc = at(node.operands[0], first);
      for (int64_t k = 1; k < group; k++) acc = eval_detail::combine(r.fn, a_, acc, at(node.operands[0], first + k * inner));
      out.push_back(acc);
    });
  }

  void matmul(const Node& node, std::vector<V>& out) {
    const Positions& needed = plan_.needed[static_cast<size_t>(node.first_value)];
    const Dims &dims = g_.dims(node.first_value), &x = g_.dims(node.operands[0]), &y = g_.dims(node.operands[1]);
    const int r = dims.rank();
    const int64_t rows = dims[r - 2], columns = dims[r - 1], k = x[r - 1];
    out.assign(static_cast<size_t>(needed.size()), V{});
    size_t hint = 0;
    const auto read = [&](ValueId v, int64_t first, int64_t high, int64_t wide, auto&& position) {
      Tensor<V> t({high, wide}, V{});
      for (int64_t i = 0; i < high; i++)
        for (int64_t j = 0; j < wide; j++) t.data[static_cast<size_t>(i * wide + j)] = at(v, first + position(i, j));
      return t;
    };
    constexpr int64_t kPanel = 128;
    for (const ProductBlock& b : product_blocks(dims, needed)) {
      const int64_t first_x = batch_of(x, dims, b.batch) * rows * k, first_y = batch_of(y, dims, b.batch) * k * columns;
      for (int64_t j = 0; j < std::ssize(b.columns); j += kPanel) {
        const int64_t* column = b.columns.data() + j;
        const int64_t wide = std::min(kPanel, std::ssize(b.columns) - j);
        const Tensor<V> right = read(node.operands[1], first_y, k, wide, [&](int64_t l, int64_t c) { return l * columns + column[c]; });
        for (int64_t i = 0; i < std::ssize(b.rows); i += kPanel) {
          const int64_t* row = b.rows.data() + i;
          const int64_t high = std::min(kPanel, std::ssize(b.rows) - i);
          const Tensor<V> left = read(node.operands[0], first_x, high, k, [&](int64_t c, int64_t l) { return row[c] * k + l; });
          const Tensor<V> product = eval_detail::eval_matmul(left, right, a_);
          for (int64_t c = 0; c < high; c++)
            for (int64_t d = 0; d < wide; d++)
              out[static_cast<size_t>(needed.place((b.batch * rows + row[c]) * columns + column[d], hint))] =
                  product.data[static_cast<size_t>(c * wide + d)];
        }
      }
    }
  }

  void call(NodeId n) {
    using namespace eval_detail;
    const Node& node = g_.node(n);
    const std::vector<std::array<int64_t, 3>>& blocks = plan_.blocks[static_cast<size_t>(n)];
    if (blocks.empty()) return;
    const Graph& body = *g_.form<Call>(n)->body;
    for (int i = 0; i < node.num_values; i++)
      values_[static_cast<size_t>(node.first_value + i)].assign(
          static_cast<size_t>(plan_.needed[static_cast<size_t>(node.first_value + i)].size()), a_.constant(0));
    const auto load = [&](const Input& in, const Dims& tile, const std::array<int64_t, 3>& block, int64_t iteration) {
      const ValueId from = node.operands[static_cast<size_t>(in.param)];
      const TileBox box = tile_box(g_.dims(from), tile, in.part, block, iteration, body.launch().loop);
      const Dims s = row_major_strides(g_.dims(from));
      int64_t first = 0;
      for (int d = 0; d < tile.rank(); d++) first += box.first[d] * s[d];
      Tensor<V> t;
      t.dims = box.extent;
      walk<1>(box.extent, {s}, [&](const std::array<int64_t, 1>& i) { t.data.push_back(at(from, first + i[0])); });
      return t;
    };
    BlockRun<A> run(body, a_);
    for (const std::array<int64_t, 3>& block : blocks) {
      run.run(block, load);
      for (NodeId o : body.outputs())
        store(*body.form<Output>(o), body.dims(body.node(o).operands[0]), run.value(body.node(o).operands[0]),
              node.first_value + body.form<Output>(o)->result, block);
    }
  }

  /// What of a block's tile is needed goes to its place.
  void store(const Output& o, const Dims& tile, const Tensor<V>& t, ValueId to, const std::array<int64_t, 3>& block) {
    const Positions& needed = plan_.needed[static_cast<size_t>(to)];
    if (needed.empty()) return;
    const Dims& whole = g_.dims(to);
    const Dims s = row_major_strides(whole);
    Dims extent = t.dims;
    int64_t first = 0;
    for (int d = 0; d < tile.rank(); d++) {
      int64_t start = 0;
      for (size_t axis = 0; axis < 3; axis++) if (o.part.grid[axis] == d) start += block[axis] * tile[d];
      extent[d] = std::min(extent[d], std::max<int64_t>(whole[d] - start, 0));
      first += start * s[d];
    }
    eval_detail::walk<2>(extent, {s, row_major_strides(t.dims)}, [&](const std::array<int64_t, 2>& i) {
      const int64_t place = needed.place(first + i[0], hints_[static_cast<size_t>(to)]);
      if (place >= 0) values_[static_cast<size_t>(to)][static_cast<size_t>(place)] = t.data[static_cast<size_t>(i[1])];
    });
  }

  const Graph& g_;
  const SamplePlan& plan_;
  F& input_;
  A& a_;
  std::vector<std::vector<V>> values_;
  std::vector<size_t> hints_;
};

/// The elements `samples` of g's results, in their order; or why not ("over the limit of ...").
template <class V> struct Sampled { std::vector<V> values; std::string refusal; double work = 0; };

/// g: kernel level, calls allowed, obeys the laws. input(param, position): the element of a program input at a row-major position; it is
/// asked for as often as it is used and must always give the same.
template <class A, class F>
Sampled<typename A::Value> evaluate_sampled(const Graph& g, std::span<const Sample> samples, F&& input, A& a,
                                            const SampleLimits& limits = {}) {
  const SamplePlan plan = plan_samples(g, samples, limits);
  if (!plan.refusal.empty()) return {{}, plan.refusal, plan.work};
  return {SampledRun<A, std::remove_reference_t<F>>(g, plan, input, a).run(samples), "", plan.work};
}

}  // namespace mirage::verify

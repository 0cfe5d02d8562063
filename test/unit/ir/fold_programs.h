// Random programs for the tests of folding: operators that treat dimensions alike or differently, inputs and outputs with strides.
#pragma once
#include <algorithm>
#include <vector>

#include "mirage/ir/program.h"
#include "mirage/support/hash.h"

namespace mirage::test {

/// A program around a graph. rng: some tensors get strides, with gaps or in another order of dimensions.
inline Program program_around(const Graph& g, Rng* rng) {
  Program p;
  p.name = "folded";
  p.graph = g;
  p.canonical = print(g);
  auto tensor = [&](Type t) {
    TensorInfo info{"t", t, row_major_strides(t.dims), {}};
    if (!rng || rng->below(3)) return info;
    std::vector<int> order;
    for (int d = 0; d < t.dims.rank(); d++)
      order.insert(order.begin() + static_cast<long>(rng->below(2) ? order.size() : rng->below(order.size() + 1)), d);
    int64_t stride = 1;
    for (size_t i = order.size(); i-- > 0;) {
      info.strides[order[i]] = stride;
      stride = stride * t.dims[order[i]] + (rng->below(4) ? 0 : 3);
    }
    return info;
  };
  p.inputs.resize(static_cast<size_t>(g.num_params()));
  for (NodeId n : g.inputs()) p.inputs[static_cast<size_t>(g.form<Input>(n)->param)] = tensor(g.type(g.node(n).first_value));
  for (NodeId n : g.outputs()) p.outputs.push_back(tensor({g.form<Output>(n)->dtype, g.dims(g.node(n).operands[0])}));
  return p;
}

/// Programs over a few extents, with operators that treat dimensions alike or differently.
class FoldPrograms {
 public:
  explicit FoldPrograms(uint64_t seed) : rng_(seed), b_(Level::kKernel) {
    for (uint64_t r = 2 + rng_.below(4); r > 0; r--) shape_.push_back(std::vector<int64_t>{1, 2, 3, 4, 6}[rng_.below(5)]);
  }
  Graph make() {
    const int inputs = static_cast<int>(rng_.below(3)) + 1;
    for (int i = 0; i < inputs; i++) b_.add_input(i, {rng_.below(2) ? DType::kF32 : DType::kF16, shape()});
    for (uint64_t i = 3 + rng_.below(10); i > 0; i--) step();
    const auto users = b_.graph().users();
    int result = 0;
    const int values = b_.graph().num_values();
    for (ValueId v = 0; v < values; v++)
      if (users[static_cast<size_t>(v)].empty() && (!b_.graph().def_form<Input>(v) || v == values - 1))
        b_.add_output(result++, v, b_.graph().type(v).dtype == DType::kBool ? DType::kBool : DType::kF32);
    return std::move(b_).finish();
  }

 private:
  /// The program's shape, or one that broadcasts with it, or something else.
  Dims shape() {
    Dims d;
    const uint64_t kind = rng_.below(4);
    for (int64_t e : shape_) d.push_back(kind == 1 && rng_.below(3) == 0 ? 1 : kind == 2 ? shape_[rng_.below(shape_.size())] : e);
    return d;
  }
  ValueId any() { return static_cast<ValueId>(rng_.below(static_cast<uint64_t>(b_.graph().num_values()))); }
  int dim_of(ValueId v) { return static_cast<int>(rng_.below(static_cast<uint64_t>(std::max(1, b_.graph().dims(v).rank())))); }
  void step() {
    const ValueId x = any(), y = any(), z = any();
    const Dims d = b_.graph().dims(x);
    switch (rng_.below(14)) {
      case 0: case 1: case 2: case 3: {
        const auto fn = std::vector<MapFn>{
            MapFn::kAdd, MapFn::kMul, MapFn::kSub, MapFn::kNeg, MapFn::kSquare, MapFn::kWhere, MapFn::kMax}[rng_.below(7)];
        std::vector<ValueId> operands{x, y, z};
        operands.resize(static_cast<size_t>(map_info(fn).arity));
        b_.try_add(Map{fn}, operands);
        break;
      }
      case 4: case 5: {   // along one dimension, or several in a row
        const ReduceFn fn = rng_.below(3) ? ReduceFn::kSum : ReduceFn::kMax;
        auto s = b_.try_add(Reduce{fn, dim_of(x), rng_.below(5) == 0 ? 2 : 0}, {x});
        for (uint64_t more = rng_.below(3); s && more > 0; more--) s = b_.try_add(Reduce{fn, dim_of(x), 0}, {*s});
        break;
      }
      case 6: b_.try_add(Reshape{reshaped(d)}, {x}); break;
      case 7: {
        Transpose t;
        std::vector<int8_t> perm;
        for (int i = 0; i < d.rank(); ++i)
          perm.insert(perm.begin() + static_cast<long>(rng_.below(2) ? perm.size() : rng_.below(perm.size() + 1)), static_cast<int8_t>(i));
        std::copy(perm.begin(), perm.end(), t.perm.begin());
        b_.try_add(t, {x});
        break;
      }
      case 8:
        b_.try_add(Slice{dim_of(x), static_cast<int64_t>(rng_.below(2)), static_cast<int64_t>(rng_.below(4)) + 1,
                         static_cast<int64_t>(rng_.below(3)) + 1},
                   {x});
        break;
      case 9: b_.try_add(Concat{dim_of(x)}, rng_.below(2) ? std::vector<ValueId>{x, x} : std::vector<ValueId>{x, y}); break;
      case 10: b_.try_add(MatMul{}, {x, y}); break;
      case 11: {   // a product that fits: x by something of x's batch dimensions, or of some of them
        Dims w;
        if (d.rank() < 2) break;
        for (int i = 0; i + 2 < d.rank(); i++) w.push_back(rng_.below(2) ? d[i] : 1);
        w.push_back(d.back());
        w.push_back(shape_[rng_.below(shape_.size())]);
        const ValueId weights = b_.add(Reshape{w}, {extended(w)});
        b_.try_add(MatMul{}, {x, weights});
        break;
      }
      case 12:
        if (rng_.below(2)) b_.try_add(Repeat{dim_of(x), static_cast<int64_t>(rng_.below(2)) + 1}, {x});
        else if (d.rank() > 0) b_.try_add(Iota{dim_of(x), d}, {});
        break;
      default: {
        std::vector<std::pair<int, int>> of;
        double value = 1;
        const Dims in = b_.graph().dims(0);
        const bool few = rng_.below(2);
        for (int i = 0; i < in.rank(); i++) if (!few || rng_.below(2)) of.push_back({0, i}), value *= static_cast<double>(in[i]);
        const ValueId c = b_.add(of.empty() ? Const{0.5, {}} : Const{value, of}, {});
        b_.map(MapFn::kMul, {x, c});
      }
    }
  }
  /// Something with as many elements as `dims`.
  ValueId extended(const Dims& dims) { return b_.add(Iota{0, {dims.elements()}}, {}); }

  /// The extents in another grouping: ones added or dropped, neighbours merged, an even extent split.
  Dims reshaped(const Dims& d) {
    std::vector<int64_t> out(d.begin(), d.end());
    for (int k = 0; k < 2; ++k) {
      const size_t at = rng_.below(out.size() + 1);
      switch (rng_.below(4)) {
        case 0: if (out.size() < 6) out.insert(out.begin() + static_cast<long>(at), 1); break;
        case 1: if (at < out.size() && out[at] == 1) out.erase(out.begin() + static_cast<long>(at)); break;
        case 2: if (at + 1 < out.size()) { out[at] *= out[at + 1]; out.erase(out.begin() + static_cast<long>(at) + 1); } break;
        default:
          if (at < out.size() && out[at] % 2 == 0 && out.size() < 6) {
            out[at] /= 2;
            out.insert(out.begin() + static_cast<long>(at), 2);
          }
      }
    }
    Dims r;
    for (int64_t x : out) r.push_back(x);
    return r;
  }

  Rng rng_;
  Builder b_;
  std::vector<int64_t> shape_;
};

}  // namespace mirage::test

// Programs for plan tests: written by hand with Sketch, or random.
#pragma once
#include <string>
#include <vector>

#include "mirage/ir/eval.h"
#include "mirage/ir/program.h"
#include "mirage/support/hash.h"

namespace mirage::test {

class Sketch {
 public:
  Sketch() : b(Level::kKernel) { program.name = "p"; }
  ValueId input(DType t, Dims dims, Dims strides = {}) {
    program.inputs.push_back(
        {"x" + std::to_string(program.inputs.size()), {t, dims}, strides.empty() ? row_major_strides(dims) : strides, {}});
    return b.add_input(static_cast<int>(program.inputs.size()) - 1, {t, dims});
  }
  void output(ValueId v, DType t, Dims strides = {}) {
    const Dims dims = b.graph().dims(v);
    program.outputs.push_back(
        {"y" + std::to_string(program.outputs.size()), {t, dims}, strides.empty() ? row_major_strides(dims) : strides, {}});
    b.add_output(static_cast<int>(program.outputs.size()) - 1, v, t);
  }
  Program finish() {
    program.graph = remove_dead(b.graph());
    return program;
  }
  Builder b;
  Program program;
};

/// A random well-typed program without MatMul: a few inputs (some strided), `steps` operators of every other form, one to three outputs.
inline Program random_program(uint64_t seed, int steps) {
  Rng rng(seed);
  Sketch s;
  std::vector<ValueId> values;
  const auto pick = [&] { return values[rng.below(values.size())]; };
  const auto extent = [&] { static constexpr int64_t kExtents[] = {1, 2, 3, 4, 5, 6, 8, 16}; return kExtents[rng.below(8)]; };
  const auto dims_of = [&](ValueId v) { return s.b.graph().dims(v); };
  const auto small = [&](const Dims& d) { return d.elements() <= 4096; };
  for (int i = 0, n = 1 + static_cast<int>(rng.below(3)); i < n; i++) {
    Dims d;
    for (int k = 0, rank = static_cast<int>(rng.below(5)); k < rank; k++) d.push_back(extent());
    Dims strides = row_major_strides(d);
    if (rng.below(3) == 0) for (int64_t& x : strides) x *= 2;
    static constexpr DType kTypes[] = {DType::kF16, DType::kBF16, DType::kF32};
    values.push_back(s.input(kTypes[rng.below(3)], d, strides));
  }
  for (int i = 0; i < steps; i++) {
    const ValueId x = pick();
    const Dims d = dims_of(x);
    const int rank = d.rank(), dim = rank ? static_cast<int>(rng.below(static_cast<uint64_t>(rank))) : 0;
    std::optional<ValueId> v;
    switch (rng.below(rank ? 11 : 3)) {
      case 0: {
        static constexpr MapFn kUnary[] = {MapFn::kNeg, MapFn::kAbs, MapFn::kTanh, MapFn::kSigmoid, MapFn::kCastF16, MapFn::kRelu};
        v = s.b.try_add(Map{kUnary[rng.below(6)]}, {x});
        break;
      }
      case 1: case 2: {
        static constexpr MapFn kBinary[] = {MapFn::kAdd, MapFn::kSub, MapFn::kMul, MapFn::kMax, MapFn::kMin};
        const ValueId y = rng.below(4) == 0 ? s.b.constant(0.5) : pick();
        if (auto shape = broadcast(d, dims_of(y)); shape && small(*shape)) v = s.b.try_add(Map{kBinary[rng.below(5)]}, {x, y});
        break;
      }
      case 3:
      case 4:
        v = s.b.try_add(Reduce{rng.below(2) ? ReduceFn::kSum : ReduceFn::kMax, dim, d[dim] % 2 == 0 && rng.below(3) == 0 ? d[dim] / 2 : 0},
                        {x});
        break;
      case 5: if (small(d)) v = s.b.try_add(Repeat{dim, 2 + static_cast<int64_t>(rng.below(2))}, {x}); break;
      case 6: {
        Dims to;
        int64_t left = d.elements();
        for (int64_t f : {2, 3, 4}) if (left % f == 0 && rng.below(2)) to.push_back(f), left /= f;
        if (rng.below(3) == 0) to.push_back(1);
        to.push_back(left);
        v = s.b.try_add(Reshape{to}, {x});
        break;
      }
      case 7: {
        const ValueId y = pick();
        if (rng.below(2) && small(d)) v = s.b.try_add(Concat{dim}, {x, y, x});
        if (!v && small(d)) v = s.b.try_add(Concat{dim}, {x, s.b.map(MapFn::kNeg, {x})});
        break;
      }
      case 8: {
        const int64_t start = static_cast<int64_t>(rng.below(static_cast<uint64_t>(d[dim]))),
                      stop = start + 1 + static_cast<int64_t>(rng.below(static_cast<uint64_t>(d[dim] - start)));
        v = s.b.try_add(Slice{dim, start, stop, 1 + static_cast<int64_t>(rng.below(3))}, {x});
        break;
      }
      case 9: {
        Transpose t;
        for (int k = 0; k < rank; k++) t.perm[static_cast<size_t>(k)] = static_cast<int8_t>(k);
        for (int k = rank; k > 1; k--) std::swap(t.perm[static_cast<size_t>(k - 1)], t.perm[rng.below(static_cast<uint64_t>(k))]);
        v = s.b.try_add(t, {x});
        break;
      }
      case 10: {
        const ValueId iota = s.b.add(Iota{dim, d}, {});
        v = s.b.try_add(Map{MapFn::kWhere}, {s.b.map(MapFn::kLess, {iota, s.b.constant(2)}), x, s.b.constant(0.25)});
        break;
      }
    }
    if (v) values.push_back(*v);
  }
  for (int i = 0, n = 1 + static_cast<int>(rng.below(3)); i < n; i++) {
    const ValueId v = i == 0 ? values.back() : pick();
    const DType t = s.b.graph().type(v).dtype == DType::kBool ? DType::kBool : rng.below(2) ? DType::kF32 : DType::kF16;
    s.output(v, t);
  }
  return s.finish();
}

inline std::vector<Tensor<double>> random_inputs(const Program& p, uint64_t seed) {
  Rng rng(seed);
  std::vector<Tensor<double>> out;
  for (const TensorInfo& t : p.inputs) {
    Tensor<double> x(t.type.dims, 0.0);
    for (double& v : x.data)
      v = t.type.dtype == DType::kBool ? static_cast<double>(rng.below(2)) : round_to(rng.uniform() * 2 - 1, t.type.dtype);
    out.push_back(std::move(x));
  }
  return out;
}

}  // namespace mirage::test

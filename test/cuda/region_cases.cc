// Programs for the region tests: every operator on every kind of shape, and the chains that people write.
#include <cmath>

#include "cuda/region_harness.h"

namespace mirage::test {
namespace {

struct Shapes { Dims full; int64_t m, n; };

std::string tag(DType t, bool aligned) { return std::string(dtype_name(t)) + (aligned ? "_aligned" : "_odd"); }

class Programs {
 public:
  Programs(DType t, bool aligned) : t_(t), tag_(tag(t, aligned)) {}
  void add(const std::string& name, const std::function<void(Maker&)>& f) {
    Maker m(name + "_" + tag_);
    f(m);
    out.push_back(m.finish());
  }
  std::vector<Program> out;

 private:
  DType t_;
  std::string tag_;
};

ValueId mean(Builder& b, ValueId x, int dim) {
  return b.map(MapFn::kDiv, {b.add(Reduce{ReduceFn::kSum, dim, 0}, {x}), b.constant(static_cast<double>(b.graph().dims(x)[dim]))});
}
ValueId softmax(Builder& b, ValueId x, int dim) {
  const ValueId e = b.map(MapFn::kExp, {b.map(MapFn::kSub, {x, b.add(Reduce{ReduceFn::kMax, dim, 0}, {x})})});
  return b.map(MapFn::kDiv, {e, b.add(Reduce{ReduceFn::kSum, dim, 0}, {e})});
}
/// The first place of the largest element, of which there are several: elements are whole.
ValueId place_of_largest(Builder& b, ValueId x, int dim) {
  Dims line;
  for (int i = 0; i < b.graph().dims(x).rank(); i++) line.push_back(i == dim ? b.graph().dims(x)[i] : 1);
  const ValueId whole = b.map(MapFn::kFloor, {x}), before = b.map(MapFn::kNeg, {b.add(Iota{dim, line}, {})});
  const ValueId largest = b.map(MapFn::kEqual, {whole, b.add(Reduce{ReduceFn::kMax, dim, 0}, {whole})});
  const ValueId behind = b.constant(-static_cast<double>(line[dim]));
  return b.map(MapFn::kNeg, {b.add(Reduce{ReduceFn::kMax, dim, 0}, {b.map(MapFn::kWhere, {largest, before, behind})})});
}
ValueId layer_norm(Builder& b, ValueId x, int dim) {
  const ValueId c = b.map(MapFn::kSub, {x, mean(b, x, dim)});
  const ValueId v = mean(b, b.map(MapFn::kSquare, {c}), dim);
  return b.map(MapFn::kMul, {c, b.map(MapFn::kRsqrt, {b.map(MapFn::kAdd, {v, b.constant(1e-5)})})});
}

}  // namespace

std::vector<Program> operator_programs(DType t, bool aligned) {
  Programs p(t, aligned);
  const int64_t m = aligned ? 16 : 7, n = aligned ? 64 : 33, k = aligned ? 8 : 5;
  for (int i = 0; i < num_map_fns(); i++) {
    const auto fn = static_cast<MapFn>(i);
    const MapInfo& info = map_info(fn);
    p.add(std::string("map_") + info.name, [&](Maker& q) {
      std::vector<ValueId> x;
      for (int a = 0; a < info.arity; a++) {
        const bool is_bool = fn == MapFn::kWhere && a == 0;
        x.push_back(q.input(is_bool ? DType::kBool : t, a == 1 ? Dims{n} : Dims{m, n}));
        if (fn == MapFn::kLog || fn == MapFn::kSqrt || fn == MapFn::kRsqrt || fn == MapFn::kPow || (fn == MapFn::kDiv && a == 1))
          q.program.inputs.back().range = {0.25, 2.0};
      }
      q.output(q.b.map(fn, x), returns_bool(fn) ? DType::kBool : t);
    });
  }
  for (ReduceFn fn : {ReduceFn::kSum, ReduceFn::kMax})
    for (int dim = 0; dim < 3; dim++) {
      p.add(std::string("reduce_") + reduce_name(fn) + std::to_string(dim), [&](Maker& q) {
        q.output(q.b.add(Reduce{fn, dim, 0}, {q.input(t, {m, k, n})}), t);
      });
      p.add(std::string("group_") + reduce_name(fn) + std::to_string(dim), [&](Maker& q) {
        q.output(q.b.add(Reduce{fn, dim, 3}, {q.input(t, {6 * k, 3 * m, 3 * n})}), t);
      });
    }
  for (int dim = 0; dim < 2; dim++) {
    const std::string d = std::to_string(dim);
    p.add("concat" + d, [&](Maker& q) {
      const ValueId x = q.input(t, {m, n}), y = q.input(t, dim ? Dims{m, 2 * n} : Dims{3 * m, n}), z = q.input(t, {m, n});
      q.output(q.b.add(Concat{dim}, {x, q.b.map(MapFn::kNeg, {y}), z}), t);
    });
    p.add("slice" + d, [&](Maker& q) { q.output(q.b.add(Slice{dim, 1, m - 1, 2}, {q.input(t, {m, n})}), t); });
    p.add("slice_whole" + d, [&](Maker& q) { q.output(q.b.add(Slice{dim, 0, dim ? n / 2 : m / 2, 1}, {q.input(t, {m, n})}), t); });
    p.add("repeat" + d, [&](Maker& q) { q.output(q.b.add(Repeat{dim, 3}, {q.input(t, {m, n})}), t); });
    p.add("iota" + d, [&](Maker& q) {
      q.output(q.b.map(MapFn::kAdd, {q.b.map(MapFn::kMul, {q.b.add(Iota{dim, {m, n}}, {}), q.b.constant(0.125)}), q.input(t, {m, n})}), t);
    });
  }
  p.add("transpose2", [&](Maker& q) { q.output(q.b.add(Transpose{{1, 0}}, {q.input(t, {m, n})}), t); });
  p.add("transpose3", [&](Maker& q) { q.output(q.b.map(MapFn::kExp, {q.b.add(Transpose{{2, 0, 1}}, {q.input(t, {m, k, n})})}), t); });
  p.add("transpose_inner", [&](Maker& q) {
    q.output(q.b.map(MapFn::kAdd, {q.b.add(Transpose{{1, 0, 2}}, {q.input(t, {m, k, n})}), q.input(t, {k, m, n})}), t);
  });
  p.add("reshape_split", [&](Maker& q) { q.output(q.b.add(Reshape{{2, m, n}}, {q.input(t, {2 * m, n})}), t); });
  p.add("reshape_merge", [&](Maker& q) {
    q.output(q.b.map(MapFn::kAdd, {q.b.add(Reshape{{m * k, n}}, {q.input(t, {m, k, n})}), q.input(t, {m * k, 1})}), t);
  });
  p.add("reshape_odd", [&](Maker& q) {
    q.output(q.b.map(MapFn::kAdd, {q.b.add(Reshape{{6, 35}}, {q.b.add(Transpose{{1, 0}}, {q.input(t, {14, 15})})}), q.input(t, {35})}), t);
  });
  p.add("causal", [&](Maker& q) {
    const ValueId i = q.b.add(Iota{0, {n, n}}, {}), j = q.b.add(Iota{1, {n, n}}, {});
    q.output(q.b.map(MapFn::kWhere, {q.b.map(MapFn::kGreater, {j, i}), q.b.constant(-INFINITY), q.input(t, {n, n})}), t);
  });
  p.add("copy", [&](Maker& q) { q.output(q.input(t, {m, n}), t); });
  p.add("copy_twice", [&](Maker& q) {
    const ValueId x = q.input(t, {m, n});
    q.output(x, DType::kF32);
    q.output(q.b.add(Transpose{{1, 0}}, {x}), t);
  });
  p.add("constant", [&](Maker& q) { q.input(t, {1}); q.output(q.b.constant(0.75), t); });
  p.add("nan", [&](Maker& q) {
    const ValueId x = q.input(t, {m, n}), y = q.b.map(MapFn::kLog, {x});   // negative: NaN
    q.output(q.b.map(MapFn::kMax, {y, q.b.constant(0.0)}), t);
    q.output(q.b.add(Reduce{ReduceFn::kMax, 1, 0}, {y}), t);
  });
  p.add("strided", [&](Maker& q) {
    const ValueId x = q.input(t, {m, n}, {1, m}), y = q.input(t, {m, n}, {2 * n + 1, 2});
    q.output(q.b.map(MapFn::kAdd, {x, y}), t);
    q.output(q.b.map(MapFn::kMul, {x, y}), t, {n + 8, 1});
    q.output(q.b.add(Reduce{ReduceFn::kSum, 0, 0}, {x}), t);
  });
  p.add("scalar", [&](Maker& q) { q.output(q.b.map(MapFn::kAdd, {q.input(t, {}), q.input(t, {})}), t); });
  p.add("rank8", [&](Maker& q) {
    const ValueId x = q.input(t, {2, 1, 3, 2, 1, 2, k, 4});
    q.output(q.b.map(MapFn::kAdd, {q.b.add(Transpose{{7, 6, 5, 4, 3, 2, 1, 0}}, {x}), q.b.constant(1)}), t);
    q.output(q.b.add(Reduce{ReduceFn::kSum, 3, 0}, {x}), t);
  });
  return std::move(p.out);
}

static void add_reductions(Programs& p, DType t, const Dims& e, int dim) {
  const auto add = [&](const std::string& name, const Dims& d, int along) {
    p.add(name + std::to_string(dim), [&](Maker& q) { q.output(place_of_largest(q.b, q.input(t, d), along), DType::kF32); });
  };
  add("place", {e[0], e[1]}, dim);
  add("place_mid", {e[2], e[0], e[dim ? 1 : 2]}, 1);
  const Dims many = dim ? Dims{3, 40009} : Dims{40000 + e[2], 8};
  add("place_long", many, dim);
  p.add("long" + std::to_string(dim), [&](Maker& q) { q.output(mean(q.b, q.b.map(MapFn::kSquare, {q.input(t, many)}), dim), t); });
}

std::vector<Program> chain_programs(DType t, bool aligned) {
  Programs p(t, aligned);
  const int64_t m = aligned ? 16 : 13, n = aligned ? 256 : 333, k = aligned ? 8 : 3;
  for (int dim = 0; dim < 2; dim++) {
    const std::string d = std::to_string(dim);
    p.add("softmax" + d, [&](Maker& q) { q.output(softmax(q.b, q.input(t, {m, n}), dim), t); });
    p.add("layer_norm" + d, [&](Maker& q) {
      q.output(q.b.map(MapFn::kMul, {layer_norm(q.b, q.input(t, {m, n}), dim), q.input(t, {n})}), t);
    });
    add_reductions(p, t, {m, n, k}, dim);
  }
  p.add("softmax_mid", [&](Maker& q) { q.output(softmax(q.b, q.input(t, {4, m, n}), 1), t); });
  p.add("whole_mean", [&](Maker& q) {
    const ValueId x = q.input(t, {m, k, n}),
                  s = q.b.add(Reduce{ReduceFn::kSum, 0, 0},
                              {q.b.add(Reduce{ReduceFn::kSum, 1, 0}, {q.b.add(Reduce{ReduceFn::kSum, 2, 0}, {x})})});
    q.output(q.b.map(MapFn::kSub, {x, q.b.map(MapFn::kDiv, {s, q.b.constant(static_cast<double>(m * k * n))})}), t);
    q.output(s, DType::kF32);
  });
  p.add("whole_large", [&](Maker& q) {
    const ValueId s = q.b.add(Reduce{ReduceFn::kSum, 0, 0},
                              {q.b.add(Reduce{ReduceFn::kSum, 1, 0}, {q.b.map(MapFn::kAbs, {q.input(t, {300 + k, 1000 + k})})})});
    q.output(q.b.map(MapFn::kSqrt, {s}), t);
  });
  p.add("channel_norm", [&](Maker& q) {  // statistics over dimensions 0 and 2
    const ValueId x = q.input(t, {m, k, n}),
                  r = q.b.add(Reduce{ReduceFn::kSum, 0, 0}, {q.b.add(Reduce{ReduceFn::kSum, 2, 0}, {q.b.map(MapFn::kSquare, {x})})});
    q.output(q.b.map(MapFn::kMul, {x, q.b.map(MapFn::kRsqrt, {r})}), t);
  });
  p.add("group_norm", [&](Maker& q) {
    const ValueId x = q.input(t, {4, 6, n}), y = layer_norm(q.b, q.b.add(Reshape{{4, 2, 3 * n}}, {x}), 2);
    q.output(q.b.map(MapFn::kMul, {q.b.add(Reshape{{4, 6, n}}, {y}), q.input(t, {6, 1})}), t);
  });
  p.add("keepdim_false", [&](Maker& q) {
    const ValueId x = q.input(t, {m, n}), s = q.b.add(Reshape{{m}}, {mean(q.b, x, 1)});
    q.output(q.b.map(MapFn::kSub, {x, q.b.add(Reshape{{m, 1}}, {s})}), t);
    q.output(s, DType::kF32);
  });
  p.add("rotary", [&](Maker& q) {
    const ValueId x = q.input(t, {m, k, 64}), c = q.input(t, {m, 1, 64}), s = q.input(t, {m, 1, 64});
    const ValueId e = q.b.map(MapFn::kTanh, {x});
    const ValueId r = q.b.add(Concat{2}, {q.b.map(MapFn::kNeg, {q.b.add(Slice{2, 32, 64, 1}, {e})}), q.b.add(Slice{2, 0, 32, 1}, {e})});
    q.output(q.b.map(MapFn::kAdd, {q.b.map(MapFn::kMul, {e, c}), q.b.map(MapFn::kMul, {r, s})}), t);
  });
  p.add("causal_softmax", [&](Maker& q) {
    const ValueId i = q.b.add(Iota{1, {k, m, m}}, {}), j = q.b.add(Iota{2, {k, m, m}}, {});
    q.output(softmax(q.b, q.b.map(MapFn::kWhere, {q.b.map(MapFn::kGreater, {j, i}), q.b.constant(-INFINITY), q.input(t, {k, m, m})}), 2),
             t);
  });
  p.add("shared", [&](Maker& q) {   // one value for two outputs, a reduction and a transposed reader
    const ValueId x = q.input(t, {m, n}), e = q.b.map(MapFn::kExp, {x});
    q.output(e, t);
    q.output(q.b.add(Transpose{{1, 0}}, {e}), DType::kF32);
    q.output(q.b.add(Reduce{ReduceFn::kSum, 1, 0}, {e}), DType::kF32);
    q.output(q.b.map(MapFn::kMul, {q.b.add(Transpose{{1, 0}}, {e}), q.input(t, {n, m})}), t);
  });
  p.add("two_axes", [&](Maker& q) {   // normalised along rows, then along columns: two kernels at least
    q.output(softmax(q.b, softmax(q.b, q.input(t, {m, n}), 1), 0), t);
  });
  p.add("moments", [&](Maker& q) {
    const ValueId x = q.input(t, {m, n});
    q.output(q.b.add(Reduce{ReduceFn::kSum, 1, 0}, {x}), DType::kF32);
    q.output(q.b.add(Reduce{ReduceFn::kSum, 1, 0}, {q.b.map(MapFn::kSquare, {x})}), DType::kF32);
    q.output(q.b.add(Reduce{ReduceFn::kMax, 1, 0}, {x}), t);
  });
  p.add("square_rows", [&](Maker& q) {   // extents agree by chance: the row statistics must not be taken for column statistics
    const ValueId x = q.input(t, {n, n}), s = q.b.add(Reduce{ReduceFn::kSum, 1, 0}, {x});
    q.output(q.b.map(MapFn::kAdd, {x, q.b.add(Reshape{{1, n}}, {s})}), t);
  });
  p.add("casts", [&](Maker& q) {
    const ValueId x = q.b.map(MapFn::kCastBF16, {q.input(t, {m, n})}), y = q.b.map(MapFn::kCastF16, {q.b.map(MapFn::kMul, {x, x})});
    q.output(y, DType::kF32);
    q.output(q.b.add(Concat{0}, {x, y}), DType::kF32);
  });
  p.add("bools", [&](Maker& q) {
    const ValueId x = q.input(t, {m, n}), y = q.input(t, {n}), c = q.b.map(MapFn::kLess, {x, y});
    q.output(c, DType::kBool);
    q.output(q.b.add(Reduce{ReduceFn::kSum, 0, 0}, {q.b.map(MapFn::kCastF32, {c})}), DType::kF32);
    q.output(q.b.map(MapFn::kWhere, {q.b.add(Slice{1, 0, n / 2, 1}, {c}), q.b.constant(1), q.b.constant(2)}), t);
  });
  p.add("chain", [&](Maker& q) {   // longer than one expression may be
    ValueId x = q.input(t, {m, n});
    for (int i = 0; i < 180; i++) x = q.b.map(i % 2 ? MapFn::kAdd : MapFn::kMul, {x, q.b.constant(i % 2 ? 0.01 : 0.99)});
    q.output(x, t);
  });
  p.add("doubling", [&](Maker& q) {   // every step reads the one before at two places: inlining all would take 2^12 statements
    ValueId x = q.input(t, {m, 96});
    for (int i = 0; i < 12; i++)
      x = q.b.map(MapFn::kMul,
                  {q.b.constant(0.5),
                   q.b.map(MapFn::kAdd, {x, q.b.add(Concat{1}, {q.b.add(Slice{1, 40, 96, 1}, {x}), q.b.add(Slice{1, 0, 40, 1}, {x})})})});
    q.output(x, t);
  });
  return std::move(p.out);
}

}  // namespace mirage::test

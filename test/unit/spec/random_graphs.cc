// Random graphs through the text form and the emitter: whatever the emitter shares, drops or joins, the program computes the same numbers,
// and its normal form is a fixed point.
#include "helpers.h"

using namespace mirage;
using namespace mirage::spec_test;

namespace {

/// A random kernel graph over small tensors; every value that nothing reads becomes an output.
class Generator {
 public:
  explicit Generator(uint64_t seed) : rng_(seed), b_(Level::kKernel) {}
  Graph make() {
    int inputs = static_cast<int>(rng_.below(3)) + 1;
    for (int i = 0; i < inputs; ++i)
      b_.add_input(i, {rng_.below(6) == 0 ? DType::kBool : rng_.below(2) ? DType::kF32 : DType::kF16, shape()});
    for (int i = 0; i < 14; ++i) step();
    auto users = b_.graph().users();
    int result = 0, values = b_.graph().num_values();
    for (ValueId v = 0; v < values; ++v) {
      bool is_input = b_.graph().def_form<Input>(v) != nullptr;
      if (users[static_cast<size_t>(v)].empty() && (!is_input || (v == 0 && values == inputs)))
        b_.add_output(result++, v, b_.graph().type(v).dtype == DType::kBool ? DType::kBool : DType::kF32);
    }
    return std::move(b_).finish();
  }

 private:
  Dims shape() {
    Dims d;
    for (uint64_t r = rng_.below(4); r > 0; --r) d.push_back(std::vector<int64_t>{1, 2, 3, 4}[rng_.below(4)]);
    return d;
  }
  ValueId any() { return static_cast<ValueId>(rng_.below(static_cast<uint64_t>(b_.graph().num_values()))); }
  int dim_of(ValueId v) { return static_cast<int>(rng_.below(static_cast<uint64_t>(std::max(1, b_.graph().dims(v).rank())))); }

  void step() {
    ValueId x = any(), y = any(), z = any();
    const Dims d = b_.graph().dims(x);
    switch (rng_.below(12)) {
      case 0: case 1: case 2: case 3: {
        auto fn = static_cast<MapFn>(rng_.below(static_cast<uint64_t>(num_map_fns())));
        std::vector<ValueId> operands{x, y, z};
        operands.resize(static_cast<size_t>(map_info(fn).arity));
        b_.try_add(Map{fn}, operands);
        break;
      }
      case 4: b_.try_add(Reduce{rng_.below(2) ? ReduceFn::kSum : ReduceFn::kMax, dim_of(x), rng_.below(3) == 0 ? 2 : 0}, {x}); break;
      case 5: case 6: b_.try_add(Reshape{reshaped(d)}, {x}); break;
      case 7: {
        Transpose t;
        std::vector<int8_t> perm;
        for (int i = 0; i < d.rank(); ++i)
          perm.insert(perm.begin() + static_cast<long>(rng_.below(perm.size() + 1)), static_cast<int8_t>(i));
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
      default:
        if (rng_.below(2)) b_.try_add(Repeat{dim_of(x), static_cast<int64_t>(rng_.below(2)) + 1}, {x});
        else b_.constant(std::vector<double>{0, 1, 2, -0.5, 0.1}[rng_.below(5)]);
    }
  }

  /// The extents in another grouping: ones added or dropped, neighbours merged, an even extent split.
  Dims reshaped(const Dims& d) {
    std::vector<int64_t> out(d.begin(), d.end());
    for (int k = 0; k < 2; ++k) {
      size_t at = rng_.below(out.size() + 1);
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
};

bool same(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= 1e-9 * std::max({1.0, std::fabs(a), std::fabs(b)});
}

}  // namespace

TEST_CASE("random graphs keep their meaning through text, emitter and normal form") {
  int compared = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Graph g = Generator(seed).make();
    std::string text = print(g, "g");
    INFO("seed " << seed << "\n" << text);
    auto back = parse_graph(text);
    REQUIRE(back.ok());
    REQUIRE(*back == g);
    Program p = must_parse(text, "g.mg");
    Program again = must_parse(p.canonical);
    REQUIRE(again.graph == p.graph);
    REQUIRE(again.canonical == p.canonical);
    std::vector<Tensor<double>> params;
    Rng rng(seed);
    for (const TensorInfo& in : p.inputs) {
      Tensor<double> t(in.type.dims, 0);
      // Values of the input's own dtype: casts to it may vanish only because of that.
      for (double& v : t.data)
        v = in.type.dtype == DType::kBool ? static_cast<double>(rng.below(2)) : round_to(4 * rng.uniform() - 2, in.type.dtype);
      params.push_back(std::move(t));
    }
    DoubleAlgebra a;
    auto want = evaluate<DoubleAlgebra>(g, params, a), got = evaluate<DoubleAlgebra>(p.graph, params, a);
    REQUIRE(want.size() == got.size());
    for (size_t r = 0; r < want.size(); ++r) {
      REQUIRE(want[r].dims == got[r].dims);
      for (size_t i = 0; i < want[r].data.size(); ++i) {
        INFO("result " << r << " element " << i << ": " << want[r].data[i] << " became " << got[r].data[i]);
        bool equal = same(want[r].data[i], got[r].data[i]);
        REQUIRE(equal);
        ++compared;
      }
    }
  }
  CHECK(compared > 10000);
}

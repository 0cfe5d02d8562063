// Monte Carlo arithmetic over the spec's graph: see the header.
#include "driver/emulation/rounding.h"

#include <algorithm>
#include <cmath>

#include "mirage/ir/whole.h"
#include "mirage/support/hash.h"

namespace mirage {

namespace {

constexpr double kHalfTiny = 0x1p-25;   ///< half of the distance of float16's smallest numbers

// The same numbers on every machine: vectors change the order of nothing, and no product and sum become one operation.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define MIRAGE_WIDER __attribute__((target_clones("avx2", "default")))
#else
#define MIRAGE_WIDER
#endif

/// sums[j] += w * row[j], off by up to `unit` * 2^15 of the term and of the sum (`moves_sum` 0: only of the term). A Xorshift number per
/// column: 16 bits of it move the term, 16 the sum.
MIRAGE_WIDER void add_rounded(double w, const double* row, double* sums, uint32_t* states, int64_t n, double unit, double moves_sum) {
  for (int64_t j = 0; j < n; j++) {
    uint32_t s = states[j];
    s ^= s << 13, s ^= s >> 17, s ^= s << 5;
    states[j] = s;
    const double term = w * row[j] * (1 + unit * static_cast<double>(static_cast<int32_t>(s << 16) >> 16));
    sums[j] = (sums[j] + term) * (1 + moves_sum * unit * static_cast<double>(static_cast<int32_t>(s) >> 16));
  }
}

/// Doubles whose operations are off by float32's rounding, functions by what approximate instructions are off by (at most 3.5 units in the
/// last place, docs/emulation.md).
struct RoundedAlgebra : DoubleAlgebra {
  explicit RoundedAlgebra(uint64_t seed) : rng(seed) {}
  Rng rng;
  static constexpr double kOperation = 0x1p-24, kFunction = 0x1p-22;
  double moved(double x, double by) { return x * (1 + by * (2 * rng.uniform() - 1)); }
  double add(double x, double y) { return moved(x + y, kOperation); }
  double sub(double x, double y) { return moved(x - y, kOperation); }
  double mul(double x, double y) { return moved(x * y, kOperation); }
  double div(double x, double y) { return moved(x / y, kFunction); }
  double exp(double x) { return moved(DoubleAlgebra::exp(x), kFunction); }
  double log(double x) { return moved(DoubleAlgebra::log(x), kFunction); }
  double sqrt(double x) { return moved(DoubleAlgebra::sqrt(x), kFunction); }
  double tanh(double x) { return moved(DoubleAlgebra::tanh(x), kFunction); }
  double erf(double x) { return moved(DoubleAlgebra::erf(x), kFunction); }
  double sin(double x) { return moved(DoubleAlgebra::sin(x), kFunction); }
  double cos(double x) { return moved(DoubleAlgebra::cos(x), kFunction); }
  double pow(double x, double y) { return moved(DoubleAlgebra::pow(x, y), kFunction); }
  /// Products (eval_impl.h), so that the compiler makes vectors of them: most of a verdict's time was here.
  void gemm(int64_t m, int64_t n, int64_t k, const double* x, const double* y, double* out) {
    std::vector<uint32_t> states(static_cast<size_t>(n));
    for (uint32_t& s : states) s = static_cast<uint32_t>(rng.next()) | 1;
    for (int64_t i = 0; i < m; i++)
      for (int64_t l = 0; l < k; l++)
        add_rounded(x[i * k + l], y + l * n, out + i * n, states.data(), n, kOperation * 0x1p-15, l == 0 ? 0 : 1);
  }
};

/// A call's body as sums are rounded most: kernels keep one accumulator over all iterations, where the graph adds up sums of tiles, which
/// rounds less. As it is where what it computes depends on its tiles, or where iterations scale what came before.
Graph added_up_at_once(const Graph& body, const std::vector<const Tensor<double>*>& args) {
  if (std::any_of(body.nodes().begin(), body.nodes().end(), [](const Node& n) { return std::holds_alternative<Running>(n.op); }))
    return body;
  std::vector<Dims> dims;
  for (const Tensor<double>* x : args) dims.push_back(x->dims);
  Whole w = whole(body, dims);
  return w.reason.empty() ? std::move(w.body) : body;
}

/// The values of node n, which is no leaf: of a call (a part of a plan has them) as many as it has results.
template <class A> std::vector<Tensor<double>> evaluate_node(const Graph& g, NodeId n, const std::vector<Tensor<double>>& values, A& a) {
  std::vector<const Tensor<double>*> args;
  for (ValueId v : g.node(n).operands) args.push_back(&values[static_cast<size_t>(v)]);
  if (const auto* call = g.form<Call>(n))
    return evaluate_call(added_up_at_once(*call->body, args), std::span<const Tensor<double>* const>(args), a);
  std::vector<Tensor<double>> out;
  out.push_back(evaluate_op(g.node(n).op, std::span<const Tensor<double>* const>(args), a));
  return out;
}

/// The program's results when every value that a kernel may store is off by `u`.
std::vector<Tensor<double>> rounded_results(const Program& p, const std::vector<Tensor<double>>& inputs, uint64_t seed, size_t results) {
  const Graph& g = p.graph;
  const double u = coarsest_roundoff(p);
  RoundedAlgebra a(seed);
  std::vector<Tensor<double>> values(static_cast<size_t>(g.num_values())), out(results);
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    if (const auto* in = g.form<Input>(n)) {
      values[static_cast<size_t>(node.first_value)] = inputs[static_cast<size_t>(in->param)];
      continue;
    }
    if (const auto* o = g.form<Output>(n)) {
      Tensor<double> t = values[static_cast<size_t>(node.operands[0])];
      if (rounds(o->dtype)) for (double& x : t.data) x = a.moved(x, unit_roundoff(o->dtype));
      out[static_cast<size_t>(o->result)] = std::move(t);
      continue;
    }
    const bool exact = is_view(node.op) || g.type(node.first_value).dtype == DType::kBool || std::holds_alternative<Const>(node.op) ||
                       std::holds_alternative<Iota>(node.op);
    std::vector<Tensor<double>> now = evaluate_node(g, n, values, a);
    for (size_t r = 0; r < now.size(); r++) {
      const size_t v = static_cast<size_t>(node.first_value) + r;
      if (!exact) for (double& x : now[r].data) x = a.moved(x, u);
      if (!p.kept.empty() && p.kept[v] == DType::kF16)   // whose smallest numbers are this far apart
        for (double& x : now[r].data) x += x == 0 ? 0 : kHalfTiny * (2 * a.rng.uniform() - 1);
      values[v] = std::move(now[r]);
    }
  }
  return out;
}

}  // namespace

double largest_value(const Graph& g, const std::vector<Tensor<double>>& inputs) {
  DoubleAlgebra a;
  double out = 0;
  std::vector<Tensor<double>> values(static_cast<size_t>(g.num_values()));
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    if (g.form<Output>(n)) continue;
    Tensor<double>& t = values[static_cast<size_t>(node.first_value)];
    if (const auto* in = g.form<Input>(n)) { t = inputs[static_cast<size_t>(in->param)]; continue; }
    std::vector<Tensor<double>> results = evaluate_node(g, n, values, a);
    for (size_t r = 0; r < results.size(); r++) values[static_cast<size_t>(node.first_value) + r] = std::move(results[r]);
    for (size_t r = 0; r < results.size() && !is_view(node.op); r++)
      for (double x : values[static_cast<size_t>(node.first_value) + r].data)
        out = std::isnan(x) ? INFINITY : x == -INFINITY ? out : std::max(out, std::fabs(x));
    if (out == INFINITY) break;
  }
  return out;
}

double coarsest_roundoff(const Program& p) {
  double u = unit_roundoff(DType::kF32);
  for (const std::vector<TensorInfo>* list : {&p.inputs, &p.outputs})
    for (const TensorInfo& t : *list) u = std::max(u, unit_roundoff(t.type.dtype));
  const bool contracts =
      std::any_of(p.graph.nodes().begin(), p.graph.nodes().end(), [](const Node& n) { return std::holds_alternative<MatMul>(n.op); });
  return p.numerics.tf32 && contracts ? std::max(u, 0x1p-11) : u;   // TF32 has float16's mantissa
}

std::vector<RoundingSpread> rounding_spread(const Program& p, const std::vector<Tensor<double>>& inputs,
                                            const std::vector<Tensor<double>>& want, uint64_t seed, int draws) {
  std::vector<RoundingSpread> out(want.size());
  for (size_t r = 0; r < want.size(); r++) out[r].each.assign(want[r].data.size(), 0);
  for (int draw = 0; draw < draws; draw++) {
    const auto got = rounded_results(p, inputs, hash_combine(seed, static_cast<uint64_t>(draw)), want.size());
    for (size_t r = 0; r < want.size(); r++)
      for (size_t i = 0; i < want[r].data.size(); i++)
        if (const double off = got[r].data[i] - want[r].data[i]; std::isfinite(off)) out[r].each[i] += off * off / draws;
        // rounding alone makes it infinite, or nothing: what it may become is not known
        else if (std::isfinite(want[r].data[i])) out[r].each[i] = INFINITY;
  }
  for (size_t r = 0; r < want.size(); r++) {
    double sum = 0;
    for (double& x : out[r].each) {
      if (std::isfinite(x)) sum += x;
      x = std::sqrt(x);
    }
    // what is masked has no error, and is not among those that errors are compared with
    const auto finite = std::count_if(want[r].data.begin(), want[r].data.end(), [](double x) { return std::isfinite(x); });
    out[r].mean = finite == 0 ? 0 : std::sqrt(sum / static_cast<double>(finite));
  }
  return out;
}

}  // namespace mirage

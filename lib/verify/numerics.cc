// The numeric check: does a candidate that is algebraically right also compute well in the types that kernels use? (docs/verification.md;
// traps 11 and 14 of finite-field verification are outside what fields can see.) The model of a kernel: float32 everywhere inside, operands
// of contractions rounded as ir/contraction.h says, stored values rounded to their type.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "mirage/ir/contraction.h"
#include "mirage/ir/kept.h"
#include "mirage/support/hash.h"
#include "mirage/verify/verify.h"
#include "verify/reals.h"

namespace mirage {
namespace {

/// A float with the type it is stored in; kReal: an intermediate.
struct Stored {
  float value = 0;
  DType type = DType::kReal;
};

struct Float32Algebra {
  using Value = Stored;
  ContractRule rule;             ///< which operand of a contraction is rounded to what
  /// false: node-by-node evaluation, whose operands are stored already, rounds to TF32 where the program allows it only
  bool round_operands = true;

  static Stored real(float x) { return {x, DType::kReal}; }
  static Stored real(double x) { return {static_cast<float>(x), DType::kReal}; }
  Stored constant(double c) { return real(c); }
  Stored add(Stored x, Stored y) { return real(x.value + y.value); }
  Stored sub(Stored x, Stored y) { return real(x.value - y.value); }
  Stored mul(Stored x, Stored y) { return real(x.value * y.value); }
  Stored div(Stored x, Stored y) { return real(x.value / y.value); }
  Stored neg(Stored x) { return real(-x.value); }
  Stored exp(Stored x) { return real(std::exp(static_cast<double>(x.value))); }
  Stored log(Stored x) { return real(std::log(static_cast<double>(x.value))); }
  Stored sqrt(Stored x) { return real(std::sqrt(x.value)); }
  Stored abs(Stored x) { return real(std::fabs(x.value)); }
  Stored tanh(Stored x) { return real(std::tanh(static_cast<double>(x.value))); }
  Stored erf(Stored x) { return real(std::erf(static_cast<double>(x.value))); }
  Stored sin(Stored x) { return real(std::sin(static_cast<double>(x.value))); }
  Stored cos(Stored x) { return real(std::cos(static_cast<double>(x.value))); }
  Stored floor(Stored x) { return real(std::floor(x.value)); }
  Stored nearest(Stored x) { return real(std::nearbyint(x.value)); }
  Stored max(Stored x, Stored y) { return real(DoubleAlgebra{}.max(x.value, y.value)); }
  Stored min(Stored x, Stored y) { return real(DoubleAlgebra{}.min(x.value, y.value)); }
  Stored pow(Stored x, Stored y) { return real(std::pow(static_cast<double>(x.value), static_cast<double>(y.value))); }
  Stored equal(Stored x, Stored y) { return real(x.value == y.value ? 1.f : 0.f); }
  Stored less(Stored x, Stored y) { return real(x.value < y.value ? 1.f : 0.f); }
  Stored select(Stored c, Stored x, Stored y) { return c.value != 0 ? x : y; }
  Stored round(Stored x, DType t) { return {static_cast<float>(round_to(x.value, t)), t}; }

  void gemm(int64_t m, int64_t n, int64_t k, const Stored* x, const Stored* y, Stored* dst) {
    const ContractType t = contract_type(type_of(x, m * k), type_of(y, k * n), rule);
    const std::vector<float> a = operand(x, m * k, t), b = operand(y, k * n, t);
    std::vector<float> row(static_cast<size_t>(n));
    for (int64_t i = 0; i < m; i++) {
      std::fill(row.begin(), row.end(), 0.f);
      for (int64_t l = 0; l < k; l++) {
        const float w = a[static_cast<size_t>(i * k + l)];
        const float* other = &b[static_cast<size_t>(l * n)];
        for (size_t j = 0; j < row.size(); j++) row[j] += w * other[j];
      }
      for (int64_t j = 0; j < n; j++) dst[i * n + j] = real(row[static_cast<size_t>(j)]);
    }
  }

 private:
  static DType type_of(const Stored* x, int64_t n) {
    for (int64_t i = 1; i < n; i++) if (x[i].type != x[0].type) return DType::kReal;
    return x[0].type;
  }
  std::vector<float> operand(const Stored* x, int64_t n, ContractType t) const {
    const bool rounds = round_operands || (t == ContractType::kTF32 && rule.tf32);
    std::vector<float> out;
    out.reserve(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; i++) out.push_back(rounds ? contract_operand(x[i].value, t) : x[i].value);
    return out;
  }
};

/// The fp64 reference, which notes when a finite operation overflowed: what is not a number after that need not be one for the candidate.
struct WatchfulDouble : DoubleAlgebra {
  bool overflow = false;
  double watch(double r, double x, double y = 0) { overflow |= std::isinf(r) && std::isfinite(x) && std::isfinite(y); return r; }
  double add(double x, double y) { return watch(x + y, x, y); }
  double sub(double x, double y) { return watch(x - y, x, y); }
  double mul(double x, double y) { return watch(x * y, x, y); }
  double exp(double x) { return watch(DoubleAlgebra::exp(x), x); }
  double pow(double x, double y) { return watch(DoubleAlgebra::pow(x, y), x, y); }
};

using Tensors = std::vector<Tensor<Stored>>;

/// Evaluates a kernel-level graph; each value is stored as `store(its type)` says (kReal: in float32).
template <class F> Tensors evaluate_stored(const Graph& g, const Tensors& params, Float32Algebra& a, F&& store) {
  Tensors values(static_cast<size_t>(g.num_values())), out(static_cast<size_t>(g.num_results()));
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    std::vector<const Tensor<Stored>*> args;
    for (ValueId v : node.operands) args.push_back(&values[static_cast<size_t>(v)]);
    const std::span<const Tensor<Stored>* const> view(args);
    if (const auto* in = g.form<Input>(n)) {
      values[static_cast<size_t>(node.first_value)] = params[static_cast<size_t>(in->param)];
      continue;
    }
    if (const auto* o = g.form<Output>(n)) {
      Tensor<Stored> t = *args[0];
      if (o->dtype != DType::kReal && o->dtype != DType::kBool) for (Stored& x : t.data) x = a.round(x, o->dtype);
      out[static_cast<size_t>(o->result)] = std::move(t);
      continue;
    }
    Tensors r;
    if (const auto* c = g.form<Call>(n)) r = evaluate_call(*c->body, view, a);
    else r.push_back(evaluate_op(node.op, view, a));
    for (size_t i = 0; i < r.size(); i++) {
      const ValueId v = node.first_value + static_cast<ValueId>(i);
      const DType t = store(n, g.type(v).dtype);
      if (t != DType::kReal && t != DType::kBool) for (Stored& x : r[i].data) x = a.round(x, t);
      values[static_cast<size_t>(v)] = std::move(r[i]);
    }
  }
  return out;
}

struct Distribution { const char* name; double (*draw)(Rng&); };
double normal(Rng& r) { return std::sqrt(-2 * std::log(1 - r.uniform())) * std::cos(6.283185307179586 * r.uniform()); }
constexpr Distribution kDistributions[] = {
    {"normal", normal},
    {"uniform", [](Rng& r) { return 2 * r.uniform() - 1; }},
    {"positive", [](Rng& r) { return 0.05 + 2 * r.uniform(); }},         // roots and logarithms are defined
    {"small", [](Rng& r) { return 0.01 * normal(r); }},
    {"large", [](Rng& r) { return 600 * r.uniform() - 300; }},           // squares overflow half precision
    {"integers", [](Rng& r) { return static_cast<double>(r.below(9)) - 4; }},
    // only for programs with exponentials: without a shift they overflow
    {"logits", [](Rng& r) { return r.below(4) ? normal(r) : 2e4 * r.uniform() - 1e4; }},
};

double draw(const Distribution& d, const Program& program, size_t param, Rng& rng) {
  double x = d.draw(rng);
  if (param < program.inputs.size() && is_whole(program.inputs[param].type.dtype)) x = std::nearbyint(x);
  if (param >= program.inputs.size() || !program.inputs[param].range) return x;
  const auto [lo, hi] = *program.inputs[param].range;   // only what the user promises
  if (x >= lo && x <= hi) return x;
  const double u = rng.uniform();
  if (is_whole(program.inputs[param].type.dtype)) return std::floor(lo + (hi - lo + 1) * u);
  return std::isfinite(hi - lo) ? lo + (hi - lo) * u : std::clamp(x, lo, hi);
}

/// What a candidate may be off by, of node-by-node evaluation's error.
constexpr double kMostError = 1.25;

/// Half an ulp at 1, relative: what storing the output alone may cost. For float32 the order of summation alone costs several.
double output_rounding(DType t) { return is16(t) ? unit_roundoff(t) : 0x1p-21; }

/// Relative Frobenius errors of one output against the reference, over the elements that all have.
/// overflows: the baseline is not finite where the reference and its type are
struct Errors { double candidate = 0, baseline = 0; bool nan_agree = true, overflows = false; };
Errors compare(const Tensor<double>& reference, const Tensor<Stored>& candidate, const Tensor<Stored>& baseline, DType type,
               bool overflow) {
  double norm = 0, c2 = 0, b2 = 0;
  bool baseline_lost = false;
  Errors out;
  for (size_t i = 0; i < reference.data.size(); i++) {
    const double r = reference.data[i], c = candidate.data[i].value, b = baseline.data[i].value;
    if (std::isnan(r)) { out.nan_agree &= overflow || !std::isfinite(c) || !std::isnan(b); continue; }
    if (std::isinf(r)) { out.nan_agree &= overflow || c == r || b != r; continue; }
    if (type != DType::kBool && std::isinf(round_to(r, type))) continue;   // does not fit the output: any saturation will do
    if (!std::isfinite(b)) { baseline_lost = out.overflows = true; continue; }            // the program as written fails here too
    if (!std::isfinite(c)) { out.nan_agree = false; continue; }
    norm += r * r;
    c2 += (c - r) * (c - r);
    b2 += (b - r) * (b - r);
  }
  const double scale = norm > 0 ? norm : 1;
  out.candidate = std::sqrt(c2 / scale);
  out.baseline = baseline_lost && norm == 0 ? INFINITY : std::sqrt(b2 / scale);
  return out;
}

/// One draw of inputs from one distribution.
struct Check {
  const Graph &reference, &candidate;
  const Program& program;
  std::vector<Type> inputs;
  ContractRule rule;
  std::vector<DType> kept;   ///< per value of the reference; empty: each primitive's result is rounded
  const std::optional<Graph>& fewer;   ///< the reference with fewer values kept so, or none
  NumericCase run(const Distribution& dist, uint64_t seed, bool& better, std::vector<Errors>* squares = nullptr) const;

 private:
  /// What an output is rounded to in memory: a piece's result may be exact in its graph, and kept in 16 bits between kernels.
  DType stored_as(NodeId output) const {
    const Output& o = *reference.form<Output>(output);
    const auto r = static_cast<size_t>(o.result);
    return o.dtype == DType::kReal && r < program.outputs.size() && is16(program.outputs[r].type.dtype) ? program.outputs[r].type.dtype
                                                                                                        : o.dtype;
  }
};

/// better: node-by-node evaluation is off by more than the candidate may be, were it the candidate. squares: per output, what the squares
/// of both errors are added to.
NumericCase Check::run(const Distribution& dist, uint64_t seed, bool& better, std::vector<Errors>* squares) const {
  Rng rng(hash_combine(seed, hash_text(dist.name)));
  Tensors params;
  std::vector<Tensor<double>> exact;
  for (size_t p = 0; p < inputs.size(); p++) {
    Tensor<Stored> x(inputs[p].dims, {});
    Tensor<double> d(inputs[p].dims, 0.0);
    for (size_t i = 0; i < x.data.size(); i++) {
      d.data[i] =
          inputs[p].dtype == DType::kBool ? static_cast<double>(rng.below(4) != 0) : round_to(draw(dist, program, p, rng), inputs[p].dtype);
      x.data[i] = {static_cast<float>(d.data[i]), inputs[p].dtype};
    }
    params.push_back(std::move(x));
    exact.push_back(std::move(d));
  }
  WatchfulDouble reals;
  const auto want = evaluate<WatchfulDouble>(reference, exact, reals);
  Float32Algebra kernel{rule, true}, plain{rule, false};
  const Tensors got = evaluate_stored(candidate, params, kernel, [](NodeId, DType t) { return t; });
  const Tensors base = evaluate_stored(reference, params, plain, [&](NodeId n, DType t) {
    if (!kept.empty()) return t == DType::kReal ? kept[static_cast<size_t>(reference.node(n).first_value)] : t;
    const bool computes = reference.form<Map>(n) || reference.form<MatMul>(n) || reference.form<Reduce>(n);
    return t == DType::kReal && computes ? rule.narrow : t;
  });
  NumericCase result{dist.name, 0, 0, true, true, false};
  better = false;
  // a value may be kept in 16 bits, or not: where a softmax is all but a choice, rounded scores tie, and half of either key is nearer the
  // truth than the wrong one
  Tensors other;
  const std::vector<NodeId> outputs = reference.outputs();
  for (size_t r = 0; r < want.size(); r++) {
    const DType type = stored_as(outputs[r]);
    Errors e = compare(want[r], got[r], base[r], type, reals.overflow);
    if (fewer && e.nan_agree && e.candidate > kMostError * e.baseline + output_rounding(type)) {
      if (other.empty()) other = evaluate_stored(*fewer, params, plain, [](NodeId, DType t) { return t; });
      e.baseline = std::max(e.baseline, compare(want[r], got[r], other[r], type, reals.overflow).baseline);
    }
    if (squares)
      squares->resize(want.size()), (*squares)[r].candidate += e.candidate * e.candidate, (*squares)[r].baseline += e.baseline * e.baseline;
    result.error = std::max(result.error, e.candidate);
    result.baseline_error = std::max(result.baseline_error, e.baseline);
    result.nan_agree &= e.nan_agree;
    result.overflows |= e.overflows && !reals.overflow;
    result.ok &= e.nan_agree && e.candidate <= kMostError * e.baseline + output_rounding(type);
    better |= e.baseline > kMostError * e.candidate + output_rounding(type);
  }
  return result;
}

/// Whether a candidate that one draw speaks against is off as chance has it: a few results of a few terms are a small sample, and where a
/// softmax is all but a choice, rounding decides between two keys, and which evaluation chooses wrongly is luck. Over further draws
/// it may be the worse one at most twice as often as node-by-node evaluation is, and once more: such draws may be rare, and who asks has
/// just met one. What is worse by its making is so nearly always. Or its errors, over the draw that speaks against it and all others, are
/// together within what one draw's may be, at each output.
bool by_chance(const Check& check, const Distribution& dist, uint64_t seed) {
  constexpr int kDraws = 16;
  int worse = 0, better = 0;
  std::vector<Errors> squares;
  for (int i = 0; i <= kDraws; i++) {
    bool b = false;
    const NumericCase c = check.run(dist, i == 0 ? seed : hash_combine(seed, static_cast<uint64_t>(i)), b, &squares);
    if (!c.nan_agree) return false;
    if (i == 0) continue;
    worse += !c.ok;
    better += b;
  }
  return worse <= 2 * better + 1 || std::all_of(squares.begin(), squares.end(), [](const Errors& e) {
           return std::sqrt(e.candidate) <= kMostError * std::sqrt(e.baseline);
         });
}

}  // namespace

NumericReport check_numerics(const Graph& reference, const Graph& exact, const Program& program, uint64_t seed,
                             std::span<const ValueId> origin) {
  NumericReport report;
  const std::vector<DType> kept = program.kept.size() == static_cast<size_t>(reference.num_values()) ? program.kept : std::vector<DType>{};
  const KeptValues values(reference, kept);
  const std::optional<Graph> rounded = values.rounded(exact, KeptValues::Where::kMemoryAndBodies, origin),
                             fewer = values.rounded(reference, KeptValues::Where::kOperands);
  const Graph& candidate = rounded ? *rounded : exact;
  // the rule: as contract_rule says, for the inputs at hand
  Check check{reference, candidate, program, verify::input_types(reference, candidate), {DType::kReal, program.numerics.tf32}, kept, fewer};
  for (const Type& t : check.inputs) if (is16(t.dtype)) { check.rule.narrow = t.dtype; break; }
  const bool has_exp = std::any_of(reference.nodes().begin(), reference.nodes().end(), [](const Node& n) {
    const auto* m = std::get_if<Map>(&n.op);
    return m && m->fn == MapFn::kExp;
  });
  for (const Distribution& dist : kDistributions) {
    if (&dist == &kDistributions[std::size(kDistributions) - 1] && !has_exp) continue;
    bool better = false;
    NumericCase result = check.run(dist, seed, better);
    if (!result.ok && result.nan_agree && report.ok) result.ok = by_chance(check, dist, seed);
    if (!result.ok && report.ok) {
      report.ok = false;
      char text[160];
      std::snprintf(text, sizeof text, "%s inputs: relative error %.3g, node by node %.3g", dist.name, result.error, result.baseline_error);
      report.reason =
          result.nan_agree ? text : std::string(dist.name) + " inputs: not finite where the program is, or finite where it is not";
    }
    report.cases.push_back(std::move(result));
  }
  return report;
}

}  // namespace mirage

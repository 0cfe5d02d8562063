// A walk over both levels that keeps, per value, a bound on degrees and numbers of terms. It is an algebra over Map formulas, and a rule
// per form for sums.
#include "verify/degree.h"

#include <algorithm>
#include <cmath>

namespace mirage::verify {
namespace {

Degree larger(const Degree& a, const Degree& b) {
  return {std::max(a.num, b.num), std::max(a.den, b.den), std::max(a.exponent, b.exponent), std::max(a.top, b.top),
          std::max(a.bottom, b.bottom)};
}
bool is_polynomial(const Degree& a) { return a.den == 0 && a.bottom == 1; }
Degree tidy(Degree d) { if (d.exponent == 0) d.top = d.bottom = 1; return d; }   // without exponentials there is one term

/// The algebra that maps.def's formulas are read with. nested: an exponential of an exponential was seen.
struct DegreeAlgebra {
  using Value = Degree;
  double calls = 0;
  Degree argument;
  bool keyed_beside_sqrt = false, nested = false;
  double elements = 1;   ///< of the value at hand, times how often its node runs

  Value keyed(const Value& x, bool is_sqrt = false) {
    calls += elements;
    argument = larger(argument, x);
    keyed_beside_sqrt |= !is_sqrt;
    return {1, 0, 0, 1, 1};
  }
  Value constant(double) { return {}; }
  Value add(const Value& x, const Value& y) {
    if (is_polynomial(x) && is_polynomial(y)) return tidy({std::max(x.num, y.num), 0, std::max(x.exponent, y.exponent), x.top + y.top, 1});
    return tidy({std::max(x.num + y.den, y.num + x.den), x.den + y.den, x.exponent + y.exponent, x.top * y.bottom + y.top * x.bottom,
                 x.bottom * y.bottom});
  }
  Value sub(const Value& x, const Value& y) { return add(x, y); }
  Value mul(const Value& x, const Value& y) {
    return {x.num + y.num, x.den + y.den, x.exponent + y.exponent, x.top * y.top, x.bottom * y.bottom};
  }
  Value div(const Value& x, const Value& y) {
    return {x.num + y.den, x.den + y.num, x.exponent + y.exponent, x.top * y.bottom, x.bottom * y.top};
  }
  Value neg(const Value& x) { return x; }
  Value exp(const Value& x) {
    if (x.exponent > 0) { nested = true; return keyed(x, true); }
    return {0, 0, std::max(x.num + x.den, 1.0), 1, 1};
  }
  Value sqrt(const Value& x) { return keyed(x, true); }
  Value log(const Value& x) { return keyed(x); }
  Value abs(const Value& x) { return keyed(x); }
  Value tanh(const Value& x) { return keyed(x); }
  Value erf(const Value& x) { return keyed(x); }
  Value sin(const Value& x) { return keyed(x); }
  Value cos(const Value& x) { return keyed(x); }
  Value floor(const Value& x) { return keyed(x); }
  Value nearest(const Value& x) { return keyed(x); }
  Value max(const Value& x, const Value& y) { return keyed(larger(x, y)); }
  Value min(const Value& x, const Value& y) { return keyed(larger(x, y)); }
  /// Integer exponents up to 64 are products, the others keyed; the bound covers both.
  Value pow(const Value& x, const Value& y) {
    const Value k = keyed(larger(x, y));
    const double e = 64;
    return larger(k, {e * std::max(x.num, x.den), e * std::max(x.num, x.den), e * x.exponent, std::pow(std::max(x.top, x.bottom), e),
                      std::pow(std::max(x.top, x.bottom), e)});
  }
  Value equal(const Value& x, const Value& y) { return keyed(larger(x, y)); }
  Value less(const Value& x, const Value& y) { return keyed(larger(x, y)); }
  Value select(const Value& c, const Value& x, const Value& y) { return larger(larger(x, y), add(y, mul(c, sub(x, y)))); }
  Value round(const Value& x, DType) { return keyed(x); }

  Value sum(const Value& x, double n) {
    if (n <= 1) return x;
    if (is_polynomial(x)) return tidy({x.num, 0, x.exponent, x.top * n, 1});
    return tidy({x.num + (n - 1) * x.den, n * x.den, n * x.exponent, n * x.top * std::pow(x.bottom, n - 1), std::pow(x.bottom, n)});
  }
  Value reduce(ReduceFn fn, const Value& x, double n) { return fn == ReduceFn::kSum ? sum(x, n) : n > 1 ? keyed(x) : x; }
};

/// Degrees of the results of g, whose inputs have the given degrees; runs: how often the whole graph is evaluated.
std::vector<Degree> walk_degrees(const Graph& g, const std::vector<Degree>& params, double runs, DegreeAlgebra& a) {
  std::vector<Degree> values(static_cast<size_t>(g.num_values())), out(static_cast<size_t>(g.num_results()));
  const double loop = g.level() == Level::kBlock ? static_cast<double>(g.launch().loop) : 1;
  const std::vector<Phase> phase =
      g.level() == Level::kBlock ? phases(g) : std::vector<Phase>(static_cast<size_t>(g.num_values()), Phase::kInvariant);
  if (g.level() == Level::kBlock) runs *= static_cast<double>(g.launch().blocks());
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    auto in = [&](size_t i) -> const Degree& { return values[static_cast<size_t>(node.operands[i])]; };
    if (const auto* o = g.form<Output>(n)) { out[static_cast<size_t>(o->result)] = in(0); continue; }
    const bool looped = phase[static_cast<size_t>(node.first_value)] == Phase::kLoop || g.form<Accum>(n);
    a.elements = runs * (looped ? loop : 1) * static_cast<double>(g.dims(node.first_value).elements());
    Degree& dst = values[static_cast<size_t>(node.first_value)];
    if (const auto* i = g.form<Input>(n)) {
      dst = params[static_cast<size_t>(i->param)];
    } else if (const auto* c = g.form<Call>(n)) {
      std::vector<Degree> args;
      for (size_t i = 0; i < node.operands.size(); i++) args.push_back(in(i));
      const std::vector<Degree> r = walk_degrees(*c->body, args, runs * (looped ? loop : 1), a);
      for (size_t i = 0; i < r.size(); i++) values[static_cast<size_t>(node.first_value) + i] = r[i];
    } else if (const auto* m = g.form<Map>(n)) {
      const Degree none;
      dst = apply_map(m->fn, a, in(0), node.operands.size() > 1 ? in(1) : none, node.operands.size() > 2 ? in(2) : none);
    } else if (g.form<MatMul>(n)) {
      dst = a.sum(a.mul(in(0), in(1)), static_cast<double>(g.dims(node.operands[0]).back()));
    } else if (const auto* r = g.form<Reduce>(n)) {
      const double extent = static_cast<double>(r->group ? r->group : g.dims(node.operands[0])[r->dim]);
      a.elements *= extent;
      dst = a.reduce(r->fn, in(0), extent);
    } else if (g.form<Running>(n)) {
      dst = {1, 0, 0, 1, 1};   // arbitrary values: variables of their own
    } else if (const auto* acc = g.form<Accum>(n)) {
      const bool last = acc->fn == ReduceFn::kMax && g.def_form<Running>(node.operands[0]);
      Degree x = in(0);
      // the rescaling factors of all later iterations together are one exponential of a linear form
      if (acc->degree) x = a.mul(x, {0, 0, 1, 1, 1});
      dst = last ? x : a.reduce(acc->fn, x, loop);
    } else if (!node.operands.empty()) {   // views, repeat, concat
      dst = in(0);
      for (size_t i = 1; i < node.operands.size(); i++) dst = larger(dst, in(i));
    }
  }
  return out;
}

}  // namespace

GraphDegree degree_of(const Graph& g) {
  DegreeAlgebra a;
  const std::vector<Degree> params(static_cast<size_t>(g.num_params()), Degree{1, 0, 0, 1, 1});
  GraphDegree out;
  out.worst = {0, 0, 0, 1, 1};
  for (const Degree& d : walk_degrees(g, params, 1, a)) out.worst = larger(out.worst, d);
  out.keyed_calls = a.calls;
  out.keyed_argument = a.argument;
  out.is_lax = !a.keyed_beside_sqrt && !a.nested;
  return out;
}

Bound bound_of_trial(const GraphDegree& a, const GraphDegree& b, Primes primes, bool sqrt_power, bool bits) {
  Bound out;
  const double p = static_cast<double>(primes.p), q = static_cast<double>(primes.q);
  // of x - y cleared of denominators
  auto degree = [](const Degree& x, const Degree& y) { return std::max({x.num + y.den, y.num + x.den, x.exponent + y.exponent}); };
  const double d = degree(a.worst, b.worst);
  if (d < 0x1p62) out.degree = d;
  if (sqrt_power) { out.reason = "no bound from theory: square roots were modelled as a random power"; return out; }
  if (bits) { out.reason = "no bound from theory: conditions were random bits"; return out; }
  const double exponent = a.worst.exponent + b.worst.exponent, calls = a.keyed_calls + b.keyed_calls;
  const Degree argument = larger(a.keyed_argument, b.keyed_argument);
  if (calls > 0 && argument.exponent > 0) {
    out.reason = "no bound from theory: an uninterpreted function has an argument with exponentials";
    return out;
  }
  double epsilon = d / p;
  out.reason = "Schwartz-Zippel, d/p per trial";
  if (exponent > 0) {
    const double k = a.worst.top * b.worst.bottom + b.worst.top * a.worst.bottom;
    epsilon = 8 * d * std::pow(k, 4) / q + std::exp2(-std::log2(q) / (k * k));
    out.reason = "OSDI'25 theorem 2, 8dk^4/q + q^(-1/k^2) per trial with k = " +
                 (k < 1e9 ? std::to_string(static_cast<long long>(k)) : std::string("over 1e9")) + " exponential terms";
  }
  if (calls > 0) {   // unequal arguments that collide: pairs times the degree of their difference over p, and as much for results
    epsilon += calls * calls / 2 * (2 * (argument.num + argument.den) + 1) / p;
    out.reason += ", plus collisions of arguments of uninterpreted functions (ideal random functions)";
  }
  if (!(epsilon < 0.75)) { out.reason = "no bound from theory: " + out.reason + " is not below 1"; return out; }
  out.log2 = std::min(std::log2(std::max(epsilon, 0x1p-200)), 0.0);
  out.reason += "; for primes that do not divide every coefficient of the difference";
  return out;
}

}  // namespace mirage::verify

// Sampled elements of two graphs, compared at their own size: in doubles that know how far rounding may have taken them, and in a finite
// field.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "mirage/support/hash.h"
#include "mirage/verify/sampled.h"
#include "verify/bounded.h"
#include "verify/draws.h"
#include "verify/field.h"
#include "verify/reals.h"
#include "verify/sampled.h"
#include "verify/signature.h"

namespace mirage {
namespace {
using namespace verify;

constexpr int kSampleKinds = 7;

/// Of mean 0 and variance 1, near enough to normal and quick: inputs are drawn as often as they are used.
double sample_normal(Rng& rng) { return 2 * (rng.uniform() + rng.uniform() + rng.uniform() - 1.5); }

/// The input element at `position` of a draw: the same whenever it is asked for. Where signs, ties and small numbers decide, some kind has
/// them; a mask is drawn bit by bit, all true, or true up to a place.
double sample_draw(int kind, const Type& t, const std::vector<double>& sizes, uint64_t seed, int param, int64_t position) {
  Rng rng(hash_combine(hash_combine(seed, static_cast<uint64_t>(param)), static_cast<uint64_t>(position)));
  if (t.dtype == DType::kBool) {
    const int64_t row = t.dims.rank() ? t.dims.back() : 1;
    const auto stop = static_cast<int64_t>(mix64(hash_combine(seed, static_cast<uint64_t>(param))) % static_cast<uint64_t>(row + 1));
    return kind == 1 ? 1.0 : kind == 2 ? static_cast<double>(position % row < stop) : static_cast<double>(rng.below(4) != 0);
  }
  double x = 0;
  switch (kind) {
    case 0: x = sample_normal(rng); break;
    case 1: x = 0.5 + rng.uniform(); break;
    case 2: x = sample_normal(rng) * 0.0625; break;
    case 3: x = static_cast<double>(rng.below(5)) - 2; break;
    case 4: x = (rng.below(2) ? 1 : -1) * std::exp2(60 * rng.uniform() - 30); break;   // every magnitude
    // about what conditions may ask for
    case 5:
      x = (rng.below(2) ? 1 : -1) * (sizes.empty() ? 8 : sizes[rng.below(sizes.size())]) * (rng.below(4) ? 2 * rng.uniform() : 1);
      break;
    default: x = -0.5 - rng.uniform(); break;
  }
  return round_to(x, t.dtype);
}

std::string sample_text(double x) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", x);
  return text;
}

/// Where to look, the most telling first: ends, where tails and masks by position show, and random places.
std::vector<Sample> choose_samples(const Graph& g, uint64_t seed, int count) {
  std::vector<Sample> out;
  const std::vector<NodeId> outputs = g.outputs();
  Rng rng(hash_combine(seed, 0x73616D70));
  for (int i = 0; std::ssize(out) < count && i < count; i++)
    for (size_t r = 0; r < outputs.size(); r++) {
      const Dims& d = g.dims(g.node(outputs[r]).operands[0]);
      const int64_t n = d.elements();
      int64_t e = static_cast<int64_t>(rng.below(static_cast<uint64_t>(n)));
      if (i == 0) e = n - 1;
      if (i == 2) e = 0;
      if (i == 4 && d.rank()) e = d.back() - 1;                            // the end of the first row
      if (i == 6 && d.rank()) e = n - d.back();                            // the start of the last
      if (i == 8 && d.rank()) e = e / d.back() * d.back() + d.back() - 1;   // the end of some row
      const Sample s{static_cast<int>(r), e};
      if (std::none_of(out.begin(), out.end(), [&](const Sample& t) { return t.result == s.result && t.element == s.element; }))
        out.push_back(s);
    }
  return out;
}

struct Sides {
  const Graph &a, &b;
  const std::vector<Type>& types;
  const std::vector<Sample>& samples;
  const std::vector<double> sizes;   ///< threshold_sizes
  SampleLimits limits;
};

Counterexample difference_at(const Sides& s, size_t i, std::string left, std::string right, uint64_t seed) {
  const Sample& e = s.samples[i];
  return {place(e.result, s.a.dims(s.a.node(s.a.outputs()[static_cast<size_t>(e.result)]).operands[0]), e.element), std::move(left),
          std::move(right), seed};
}

std::optional<Counterexample> real_samples(const Sides& s, int kind, uint64_t seed) {
  BoundedAlgebra algebra;
  const auto input = [&](int param, int64_t at) {
    return Bounded{sample_draw(kind, s.types[static_cast<size_t>(param)], s.sizes, seed, param, at), 0};
  };
  const auto x = evaluate_sampled(s.a, s.samples, input, algebra, s.limits), y = evaluate_sampled(s.b, s.samples, input, algebra, s.limits);
  for (size_t i = 0; i < std::min(x.values.size(), y.values.size()); i++)
    if (clearly_differ(x.values[i], y.values[i])) return difference_at(s, i, sample_text(x.values[i].v), sample_text(y.values[i].v), seed);
  return std::nullopt;
}

std::optional<Counterexample> field_samples(const Sides& s, uint64_t seed) {
  FieldAlgebra algebra(draw_primes(seed), seed, {});
  const auto input = [&](int param, int64_t at) {
    return algebra.input(s.types[static_cast<size_t>(param)].dtype, static_cast<uint64_t>(param) << 44 | static_cast<uint64_t>(at));
  };
  const auto x = evaluate_sampled(s.a, s.samples, input, algebra, s.limits), y = evaluate_sampled(s.b, s.samples, input, algebra, s.limits);
  for (size_t i = 0; i < std::min(x.values.size(), y.values.size()); i++) {
    const FieldValue &u = x.values[i], &v = y.values[i];
    if (kind(u) == kUndefined || kind(v) == kUndefined || is_keyed(u) || is_keyed(v) || algebra.same(u, v)) continue;
    return difference_at(s, i, algebra.show(u), algebra.show(v), seed);
  }
  return std::nullopt;
}

}  // namespace

SampledComparison sampled_difference(const Graph& a, const Graph& b, uint64_t seed, int elements, const SampleLimits& limits) {
  SampledComparison out;
  const uint64_t s = hash_combine(hash_combine(a.hash(), b.hash()), seed);
  const Graph x = say_roundings(a), y = say_roundings(b);
  const std::vector<Type> types = input_types(x, y);
  std::vector<Sample> samples;
  SampleLimits each = limits;
  int draws = 0;
  for (int n : {kSampleKinds + 1, 2, 1}) {   // as many elements as the limits allow; fewer draws where not even one would be
    each.work = limits.work / (2 * n);
    for (samples = choose_samples(x, s, elements); !samples.empty(); samples.resize(samples.size() / 2)) {
      const SamplePlan p = plan_samples(x, samples, each);
      const SamplePlan q = p.refusal.empty() ? plan_samples(y, samples, each) : p;
      out.refusal = q.refusal;
      out.work = p.work + q.work;
      if (out.refusal.empty()) break;
    }
    draws = n;
    if (!samples.empty()) break;
  }
  out.elements = static_cast<int>(samples.size());
  if (samples.empty()) return out;
  const Sides sides{x, y, types, samples, threshold_sizes(x, y), each};
  if ((out.difference = real_samples(sides, 0, s))) return out;
  if (draws > 1 && (out.difference = field_samples(sides, hash_combine(s, kSampleKinds)))) return out;
  for (int kind = 1; kind < kSampleKinds && draws > 2; kind++)
    if ((out.difference = real_samples(sides, kind, hash_combine(s, static_cast<uint64_t>(kind))))) return out;
  return out;
}

}  // namespace mirage

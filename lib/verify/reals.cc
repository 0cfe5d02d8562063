// fp64 evaluation of two graphs on random inputs of several kinds, and what counts as a clear difference.
#include "verify/reals.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "mirage/support/hash.h"
#include "verify/bounded.h"
#include "verify/draws.h"

namespace mirage::verify {
namespace {

constexpr int64_t kLarge = 1 << 20;      // input elements from which one kind of input must do: true-size spot checks
constexpr int kThoroughDraws = 3 * kAllKinds;
constexpr double kRealWork = 1e8;        // of all thorough draws together
constexpr double kMostRealWork = 1e9;    // where that is not one of each kind
constexpr double kClear = 1e-12;         // relative: what is closer may be two roundings of one literal
constexpr double kNoiseMargin = 16;      // error bounds are of first order
constexpr double kUseful = 1e-3;         // an element whose error bound is a larger part of it was not compared

std::string number(double x) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", x);
  return text;
}

int num_draws(const Graph& a, const Graph& b, const std::vector<Type>& inputs, Draws draws) {
  int64_t size = 0;
  for (const Type& t : inputs) size += t.dims.elements();
  if (draws != Draws::kThorough) return size > kLarge ? 1 : kQuickKinds;
  const double work = 1 + evaluation_work(a) + evaluation_work(b), each_kind = std::min<double>(kAllKinds, kMostRealWork / work);
  return std::clamp(static_cast<int>(std::max(kRealWork / work, each_kind)), 1, kThoroughDraws);
}

/// Inputs of draw number i. Beyond one round of the kinds every tensor has a kind of its own.
std::vector<Tensor<Bounded>> draw_inputs(const std::vector<Type>& inputs, int i, const std::vector<double>& sizes, Rng& rng) {
  static constexpr int kFirstMasks[] = {1, 18, 8, 0, 12, 9};
  std::vector<Tensor<Bounded>> params;
  std::vector<double> values;
  for (const Type& t : inputs) {
    Tensor<Bounded> x(t.dims, {});
    if (t.dtype == DType::kBool) {
      const int pattern = i < kQuickKinds ? kFirstMasks[i]
                          : i < kAllKinds ? (i - kQuickKinds + 2) % kMaskPatterns
                                          : static_cast<int>(rng.below(kMaskPatterns));
      const std::vector<uint8_t> bits = draw_mask(t.dims, pattern, rng);
      for (size_t e = 0; e < bits.size(); e++) x.data[e].v = bits[e];
    } else {
      const int kind = i < kAllKinds ? i : rng.below(2) ? static_cast<int>(rng.below(kAllKinds)) : 0;
      values.assign(x.data.size(), 0);
      draw_reals(values, t, kind, sizes, rng);
      for (size_t e = 0; e < values.size(); e++) {
        const double v = round_to(values[e], t.dtype);
        x.data[e].v = std::isfinite(v) ? v : std::copysign(1.0, values[e]);
      }
    }
    params.push_back(std::move(x));
  }
  return params;
}

/// What one draw says of one element.
enum class Said { kNothing, kSame, kNoise, kDiffers, kUndefined };

/// What all draws say of one element.
struct Tally {
  uint8_t seen = 0;        ///< 0: never finite in both, 1: lost to rounding, 2: compared
  uint8_t one_alone = 0;   ///< draws in which only one was defined
  bool nonzero = false;    ///< compared, and not as 0
};
Said compare(const Bounded& x, const Bounded& y) {
  const bool fx = std::isfinite(x.v), fy = std::isfinite(y.v);
  if (!fx && !fy) return Said::kNothing;
  if (!std::isfinite(x.e) || !std::isfinite(y.e)) return fx && fy ? Said::kNoise : Said::kNothing;
  if (fx != fy) return Said::kUndefined;
  if (clearly_differ(x, y)) return Said::kDiffers;
  return kNoiseMargin * (x.e + y.e) > kUseful * std::max(std::fabs(x.v), std::fabs(y.v)) ? Said::kNoise : Said::kSame;
}

}  // namespace

bool clearly_differ(const Bounded& x, const Bounded& y) {
  const double noise = kNoiseMargin * (x.e + y.e) + kClear * std::max(std::fabs(x.v), std::fabs(y.v));
  return std::isfinite(x.v) && std::isfinite(y.v) && std::fabs(x.v - y.v) > noise;   // an infinite bound: never
}

std::string place(int result, const Dims& dims, int64_t element) {
  std::string at;
  for (int d = dims.rank() - 1; d >= 0; d--) {
    at = std::to_string(element % dims[d]) + (at.empty() ? "" : ",") + at;
    element /= dims[d];
  }
  return "output " + std::to_string(result) + " [" + at + "]";
}

std::vector<Type> input_types(const Graph& a, const Graph& b) {
  std::vector<Type> out(static_cast<size_t>(std::max(a.num_params(), b.num_params())));
  for (const Graph* g : {&b, &a})
    for (NodeId n : g->inputs()) out[static_cast<size_t>(g->form<Input>(n)->param)] = g->type(g->node(n).first_value);
  return out;
}

double evaluation_work(const Graph& g) {
  double work = 0;
  for (const Node& n : g.nodes()) {
    for (int i = 0; i < n.num_values; i++) work += static_cast<double>(g.dims(n.first_value + i).elements());
    if (std::holds_alternative<MatMul>(n.op))
      work += 2.0 * static_cast<double>(g.dims(n.first_value).elements()) * static_cast<double>(g.dims(n.operands[0]).back());
    if (const auto* call = std::get_if<Call>(&n.op))
      work += evaluation_work(*call->body) * static_cast<double>(call->body->launch().blocks()) *
              static_cast<double>(call->body->launch().loop);
  }
  return work;
}

RealReport compare_reals(const Graph& a, const Graph& b, const std::vector<Type>& inputs, uint64_t seed, Draws draws) {
  RealReport report;
  const int wanted = num_draws(a, b, inputs, draws);
  const std::vector<double> sizes = draws == Draws::kThorough ? threshold_sizes(a, b) : std::vector<double>{};
  std::vector<std::vector<Tally>> tallies;
  std::vector<Dims> dims;
  for (int i = 0; i < wanted; i++) {
    const uint64_t draw_seed = hash_combine(seed, static_cast<uint64_t>(i));
    Rng rng(draw_seed);
    const std::vector<Tensor<Bounded>> params = draw_inputs(inputs, i, sizes, rng);
    BoundedAlgebra wa, wb;
    const auto ra = evaluate<BoundedAlgebra>(a, params, wa), rb = evaluate<BoundedAlgebra>(b, params, wb);
    if (tallies.empty())
      for (const auto& t : ra) tallies.emplace_back(t.data.size()), dims.push_back(t.dims);
    for (size_t r = 0; r < ra.size(); r++)
      for (size_t e = 0; e < ra[r].data.size(); e++) {
        const Bounded &x = ra[r].data[e], &y = rb[r].data[e];
        const Said said = compare(x, y);
        if (said == Said::kNothing) continue;
        Tally& tally = tallies[r][e];
        if (said == Said::kSame || said == Said::kNoise) {
          tally.seen = std::max<uint8_t>(tally.seen, said == Said::kSame ? 2 : 1);
          tally.nonzero |= said == Said::kSame && x.v != 0;
          continue;
        }
        Counterexample c{place(static_cast<int>(r), ra[r].dims, static_cast<int64_t>(e)), number(x.v), number(y.v), draw_seed};
        if (said == Said::kUndefined) {
          tally.one_alone = static_cast<uint8_t>(std::min(tally.one_alone + 1, 255));
          if (!report.undefined) report.undefined = std::move(c);
          continue;
        }
        report.difference = std::move(c);
        return report;
      }
  }
  const int often = draws == Draws::kThorough ? kThoroughDraws / 4 : kQuickKinds / 2;
  for (size_t r = 0; r < tallies.size(); r++) {
    report.disjoint |= std::none_of(tallies[r].begin(), tallies[r].end(), [](const Tally& t) { return t.nonzero; }) &&
                       std::any_of(tallies[r].begin(), tallies[r].end(), [&](const Tally& t) { return t.one_alone >= often; });
    for (size_t e = 0; e < tallies[r].size(); e++) {
      const Tally& t = tallies[r][e];
      if (t.seen == 2 || !report.uncompared.empty()) continue;
      report.uncompared = place(static_cast<int>(r), dims[r], static_cast<int64_t>(e));
      report.noisy = t.seen == 1;
    }
  }
  return report;
}

}  // namespace mirage::verify

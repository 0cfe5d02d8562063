// Three bounds: see the header. Most programs' results are within the first one, which costs nothing; those that magnify rounding (sums of
// terms that cancel, sharp softmaxes, long chains) need the second, for which the spec is evaluated eight more times (64 more where few of
// their elements are out of bounds); those that leave the range of their types (quotients of probabilities that underflow) the third.
#include "driver/emulation/emulation_floats.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "driver/emulation/elements.h"
#include "driver/emulation/float_range.h"
#include "driver/emulation/rounding.h"

namespace mirage {

namespace {

/// In unit roundoffs of the coarsest type times (value + root mean square), and of the root mean square for the whole.
constexpr double kUnits = 4, kNormUnits = 1;
/// In standard deviations of Monte Carlo arithmetic. Measured over 3881 random programs (seeds 6000000 on and 7000000 on, 8326 plans, all
/// right; MIRAGE_ROUNDING=1): an element is off by 6.0 at most (4.9 the next), a whole result by 1.9.
constexpr double kSpreads = 8, kNormSpreads = 2.5;
/// Where no more than one element of so many is out of bounds, their own deviations may be ill-estimated: of eight draws all may miss what
/// moves an element now and then, and among a million elements there is one such. So many draws tell.
constexpr int64_t kFewWrong = 10'000;
constexpr int kMoreRoundings = 64;
/// Bools that may be others, as a multiple of those that are under Monte Carlo arithmetic. None was, over the same programs.
constexpr double kFlips = 2;
/// Of value plus root mean square: an element that the range of its types moves by more says nothing.
constexpr double kMostRange = 0.125;

using RangeErrors = std::vector<std::vector<double>>;

double scale_of(const Tensor<double>& w) {
  double squares = 0;
  int64_t finite = 0;
  for (double x : w.data) if (std::isfinite(x)) squares += x * x, finite++;
  return finite ? std::sqrt(squares / static_cast<double>(finite)) : 0;
}
bool says_nothing(double x, double scale, double range, DType t) {
  return t == DType::kBool || is_whole(t) || !std::isfinite(x) ? range > 0 : !(range <= kMostRange * (std::fabs(x) + scale));
}

/// Results and what they are compared by; spread: none in the first round.
struct Comparison {
  const EmulationCase& c;
  const Emulation& run;
  const std::vector<Tensor<double>>& want;
  const std::vector<RoundingSpread>* spread;
  const RangeErrors* range;   ///< none in the first two rounds
  double coarsest;
  int64_t wrong = 0;
  EmulationOutcome out;

  void fail(const std::string& reason) { if (wrong++ == 0) out.reason = reason; }
  void result(size_t buffer);
};

void Comparison::result(size_t buffer) {
  const Buffer& b = c.plan.buffers[buffer];
  const size_t r = static_cast<size_t>(b.index);
  const Tensor<double>& w = want[r];
  const std::string name = c.program.outputs[r].name;
  double off2 = 0, flipped = 0, flips = 0;
  const auto finite = std::count_if(w.data.begin(), w.data.end(), [](double x) { return std::isfinite(x); });
  const double scale = scale_of(w), tiny = b.dtype == DType::kF16 ? 0x1p-25 : 0x1p-126;
  for (int64_t e = 0; e < b.dims.elements(); e++) {
    const size_t i = static_cast<size_t>(e);
    const double x = w.data[i],
                 got = value_of(get_bits(run.buffers[buffer].data() + place_of(b.dims, b.strides, e) * dtype_bytes(b.dtype), b.dtype),
                                b.dtype);
    out.elements++;
    if (b.dtype == DType::kF16 && std::fabs(x) > kLargestHalf) continue;
    const double beyond = range ? (*range)[r][i] : 0;
    const bool is_noise = spread && std::isinf((*spread)[r].each[i]);
    if (is_noise || (range && says_nothing(x, scale, beyond, b.dtype))) { out.left_out++; continue; }
    out.compared++;
    // decisions that rounding may turn
    if (b.dtype == DType::kBool || is_whole(b.dtype)) {
      flipped += got != x;
      flips += spread ? std::min(1.0, (*spread)[r].each[i] * (*spread)[r].each[i]) : 0;
      continue;
    }
    bool same = std::isnan(x) ? std::isnan(got) : got == x;
    if (std::isfinite(x) && std::isfinite(got)) {
      const double off = std::max(0.0, std::fabs(got - x) - tiny - beyond), units = off / (coarsest * (std::fabs(x) + scale) + 1e-300),
                   spreads = spread ? off / (std::hypot((*spread)[r].each[i], (*spread)[r].mean) + 1e-300) : 0;
      off2 += off * off;
      same = same || units <= kUnits || (spread && spreads <= kSpreads);
      out.worst = std::max(out.worst, spread ? std::min(units / kUnits, spreads / kSpreads) : units / kUnits);
      out.distance.units = std::max(out.distance.units, units), out.distance.spreads = std::max(out.distance.spreads, spreads);
    }
    if (!same) fail(fmt::format("output {} at {}: the kernel makes {:.9g}, fp64 {:.9g}", name, place_text(b.dims, e), got, x));
  }
  if (b.dtype == DType::kBool || is_whole(b.dtype)) {
    out.distance.flips = std::max(out.distance.flips, flipped / (1 + flips));
    if (flipped > kFlips * (1 + flips))
      fail(fmt::format("output {}: {} of {} {} differ", name, flipped, b.dims.elements(), is_whole(b.dtype) ? "whole numbers" : "bools"));
    return;
  }
  const double norm = std::sqrt(off2 / static_cast<double>(std::max<int64_t>(1, finite))), units = norm / (coarsest * scale + tiny),
               spreads = spread ? norm / ((*spread)[r].mean + tiny) : 0;
  out.distance.norm_units = std::max(out.distance.norm_units, units),
  out.distance.norm_spreads = std::max(out.distance.norm_spreads, spreads);
  if (units > kNormUnits && !(spread && spreads <= kNormSpreads))
    fail(fmt::format("output {}: off by {:.3g} of its root mean square{}", name, norm / (scale + tiny),
                     spread ? fmt::format(", {:.1f} times what rounding explains", spreads) : ""));
}

EmulationOutcome compare(const EmulationCase& c, const Emulation& run, const std::vector<Tensor<double>>& want,
                         const std::vector<RoundingSpread>* spread, const RangeErrors* range, EmulationOutcome out) {
  Comparison all{c, run, want, spread, range, coarsest_roundoff(c.program), 0, std::move(out)};
  for (size_t i = 0; i < c.plan.buffers.size(); i++)
    if (c.plan.buffers[i].kind == Buffer::Kind::kOutput) all.result(i);
  if (all.wrong > 1) all.out.reason += fmt::format(" ({} of {} elements differ)", all.wrong, all.out.compared);
  all.out.ok = all.wrong == 0;
  all.out.wrong = all.wrong;
  return std::move(all.out);
}

/// Deviations of numbers by more draws, where these say more. Whole results and decisions are judged as before: of eight draws they are
/// well known, and one element that moves far would excuse all others.
void estimate_elements(std::vector<RoundingSpread>& spread, const Program& p, const std::vector<RoundingSpread>& more) {
  for (size_t r = 0; r < spread.size(); r++) {
    const DType t = p.outputs[r].type.dtype;
    if (t == DType::kBool || is_whole(t)) continue;
    for (size_t i = 0; i < spread[r].each.size(); i++)
      if (std::isfinite(more[r].each[i])) spread[r].each[i] = std::max(spread[r].each[i], more[r].each[i]);
  }
}

}  // namespace

EmulationOutcome compare_floats(const EmulationCase& c, const Emulation& run, const std::vector<Tensor<double>>& inputs,
                                const std::vector<Tensor<double>>& want, uint64_t seed, EmulationOutcome out) {
  EmulationOutcome first = compare(c, run, want, nullptr, nullptr, out);
  // the variable: distances of every program, for who measures them
  if (first.ok && std::getenv("MIRAGE_ROUNDING") == nullptr) return first;
  std::vector<RoundingSpread> spread = rounding_spread(c.program, inputs, want, seed, kRoundings);
  EmulationOutcome second = compare(c, run, want, &spread, nullptr, out);
  if (!second.ok && second.wrong * kFewWrong <= second.compared) {
    estimate_elements(spread, c.program, rounding_spread(c.program, inputs, want, seed, kMoreRoundings));
    second = compare(c, run, want, &spread, nullptr, out);
  }
  second.by_range = second.ok && second.left_out > 0;
  if (second.ok) return second;
  const RangeErrors range = range_error(c.program, inputs);
  const bool leaves = std::any_of(range.begin(), range.end(),
                                  [](const auto& r) { return std::any_of(r.begin(), r.end(), [](double e) { return e > 0; }); });
  if (!leaves) return second;
  EmulationOutcome third = compare(c, run, want, &spread, &range, std::move(out));
  third.by_range = third.ok;
  return third;
}

int64_t beyond_range(const Program& p, const std::vector<Tensor<double>>& inputs) {
  DoubleAlgebra a;
  const auto want = evaluate(p.graph, std::span<const Tensor<double>>(inputs), a, true);
  const RangeErrors range = range_error(p, inputs);
  int64_t out = 0;
  for (size_t r = 0; r < want.size(); r++) {
    const double scale = scale_of(want[r]);
    for (size_t i = 0; i < want[r].data.size(); i++) out += says_nothing(want[r].data[i], scale, range[r][i], p.outputs[r].type.dtype);
  }
  if (out > 0) return out;
  for (const RoundingSpread& s : rounding_spread(p, inputs, want, 1))
    out += std::count_if(s.each.begin(), s.each.end(), [](double x) { return std::isinf(x); });
  return out;
}

}  // namespace mirage

#include "plan/block/float_contract.h"

#include <algorithm>

#include "mirage/support/round.h"

namespace mirage {
namespace {

constexpr double kSchedulers = 4, kWordsPerClock = 32;   // of shared memory
constexpr int64_t kLeastTerms = 8;                       // of a team

/// Neighbours that a thread reads together from lines across the contraction.
int64_t group(int64_t extent, int64_t each) { return extent % 4 == 0 && each >= 4 ? 4 : extent % 2 == 0 && each >= 2 ? 2 : 1; }

struct Side { int64_t each = 1, together = 1; };   // results per thread; neighbours

Side side(int64_t extent, int64_t threads, bool along) {
  const int64_t together = along ? 1 : group(extent, ceil_div(extent, threads));
  return {ceil_div(extent, threads * together) * together, together};
}

// Fitted on an H200 (products of 4096 cubed and 2048 x 8192 x 4096, both directions of both operands, 8 x 8 and 8 x 16 results a thread,
// within 6 %).
constexpr double kProductIssue = 1.0;    // slots that a multiply-add takes, at the rate of target.f32_flops_per_us
constexpr double kReadClocks = 0.75;     // of one warp's read of shared memory
constexpr double kAlongClocks = 0.42;    // moving words apart that were read along the contraction

/// Reads of one warp for one operand, per term; `terms` at a time where its lines run along the contraction.
double reads(const Side& s, bool along, double terms) {
  return static_cast<double>(s.each) / (along ? terms : static_cast<double>(s.together));
}

}  // namespace

FloatDivision float_division(const FloatWork& w, int team, int tj) {
  const int ti = team / tj;
  const Side i = side(w.rows, ti, w.x_along), j = side(w.columns, tj, w.y_along);
  const double terms = w.x_along && w.y_along ? 2 : 4, products = static_cast<double>(i.each * j.each);
  const double converted = static_cast<double>((w.x_wide ? 0 : i.each) + (w.y_wide ? 0 : j.each));
  const double moved = static_cast<double>(w.x_along ? i.each : w.y_along ? j.each : 0);
  FloatDivision d;
  d.tj = tj;
  d.each = w.batches * i.each * j.each;
  const double clocks = (kProductIssue * products + converted) / kSchedulers +
                        kReadClocks * (reads(i, w.x_along, terms) + reads(j, w.y_along, terms)) + kAlongClocks * moved;
  d.clocks = static_cast<double>(w.batches * (team / 32)) * clocks;
  return d;
}

FloatDivision divide_float_contract(const FloatWork& w, int team, int64_t registers) {
  FloatDivision best;
  for (int tj = 1; tj <= team; tj *= 2) {
    const int ti = team / tj;
    if (ti < 4 && 32 / ti > tj) continue;   // a warp is a rectangle
    const FloatDivision d = float_division(w, team, tj);
    if (d.each <= registers && (best.each == 0 || d.clocks < best.clocks)) best = d;
  }
  return best;
}

FloatTeams divide_float_terms(const FloatWork& w, int64_t inner, int threads, int64_t registers) {
  FloatTeams best;
  double least = 0;
  for (int teams = 1; teams == 1 || (threads % (32 * teams) == 0 && inner >= kLeastTerms * teams); teams *= 2) {
    const FloatDivision d = divide_float_contract(w, threads / teams, registers);
    const auto sums = static_cast<double>(w.batches * w.rows * w.columns * teams);
    const double clocks = static_cast<double>(inner) * d.clocks + (teams > 1 ? 2 * sums / kWordsPerClock : 0);   // written and read
    if (d.each > 0 && (best.division.each == 0 || clocks < least)) best = {d, teams}, least = clocks;
  }
  return best;
}

}  // namespace mirage

// Random testing in Z_p x Z_q (OSDI'25 section 5): draws primes and inputs, evaluates both graphs, and says what agreement or disagreement
// proves. docs/verification.md has the decision table.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>

#include "mirage/verify/verify.h"
#include "verify/degree.h"
#include "verify/draws.h"
#include "verify/field.h"
#include "verify/reals.h"
#include "verify/signature.h"
#include "verify/total.h"

namespace mirage {
namespace {
using namespace verify;

constexpr int kRedraws = 8;          // further trials for elements that a zero denominator left undefined
constexpr double kWantedBound = -40; // log2 of the chance of error that is worth further trials
constexpr int kMostTrials = 48;
constexpr int64_t kFewElements = 1 << 14;   // of all inputs: a trial then takes a millisecond or so
constexpr int kBitTrials = 32;       // trials per requested trial where conditions are bits: one bit says little
constexpr double kBitWork = 8e9;     // scalar operations of all these trials together, beyond one of each pattern

Verdict unknown(std::string reason) {
  Verdict v;
  v.kind = Verdict::Kind::kUnknown;
  v.reason = std::move(reason);
  return v;
}

Verdict different(Counterexample c) {
  Verdict v;
  v.kind = Verdict::Kind::kDifferent;
  v.counterexample = std::move(c);
  return v;
}

/// What the trials of one mode showed.
struct Outcome {
  enum class Kind { kPass, kMismatch, kUncovered } kind = Kind::kPass;
  Counterexample mismatch;
  bool is_witness = false;           ///< no uninterpreted function took part
  std::string uncovered;             ///< the first element that was never defined in both
  uint32_t used = 0;
  bool zero_denominator = false, unknown_sign = false, needs_bits = false;
};

struct Job {
  const Graph& a;
  const Graph& b;
  const std::vector<Type>& inputs;
  Primes primes;
  uint64_t seed;
  int trials;
  Draws draws = Draws::kQuick;
};

/// The inputs of one trial. Where conditions are bits, masks have structure: which one goes round, by trial and by tensor.
std::vector<Tensor<FieldValue>> draw_inputs(const Job& job, FieldAlgebra& f, FieldMode mode, int trial, uint64_t seed) {
  std::vector<Tensor<FieldValue>> params;
  Rng rng(hash_combine(seed, 0x6D61736B));
  for (size_t i = 0; i < job.inputs.size(); i++) {
    Tensor<FieldValue> x(job.inputs[i].dims, FieldValue{});
    if (mode.bits && job.inputs[i].dtype == DType::kBool) {
      const int pattern = trial < kMaskPatterns ? trial : static_cast<int>(rng.below(kMaskPatterns));
      const std::vector<uint8_t> bits = draw_mask(x.dims, pattern, rng);
      for (size_t e = 0; e < x.data.size(); e++) x.data[e] = f.bit_input(bits[e]);
    } else {
      for (size_t e = 0; e < x.data.size(); e++) x.data[e] = f.input(job.inputs[i].dtype, static_cast<uint64_t>(i) << 44 | e);
    }
    params.push_back(std::move(x));
  }
  return params;
}

/// Compares all results of one trial; counts per element how often both sides were defined and agreed.
void compare(const FieldAlgebra& f, const std::vector<Tensor<FieldValue>>& x, const std::vector<Tensor<FieldValue>>& y, uint64_t seed,
             std::vector<std::vector<uint8_t>>& covered, Outcome& out) {
  for (size_t r = 0; r < x.size(); r++)
    for (size_t i = 0; i < x[r].data.size(); i++) {
      const FieldValue &u = x[r].data[i], &v = y[r].data[i];
      if (kind(u) == kUndefined || kind(v) == kUndefined) continue;
      if (f.same(u, v)) { covered[r][i] = static_cast<uint8_t>(std::min(covered[r][i] + 1, 255)); continue; }
      const bool witness = !is_keyed(u) && !is_keyed(v);
      if (out.kind == Outcome::Kind::kMismatch && (out.is_witness || !witness)) continue;
      out.kind = Outcome::Kind::kMismatch;
      out.is_witness = witness;
      out.mismatch = {place(static_cast<int>(r), x[r].dims, static_cast<int64_t>(i)), f.show(u), f.show(v), seed};
    }
}

Outcome run(const Job& job, FieldMode mode) {
  Outcome out;
  std::vector<std::vector<uint8_t>> covered;
  const double work = evaluation_work(job.a) + evaluation_work(job.b);
  const int wanted = mode.bits ? std::clamp(static_cast<int>(kBitWork / (1 + work)), std::min(job.trials * kBitTrials, kMaskPatterns),
                                            job.trials * kBitTrials)
                               : job.trials;
  // with bits, rows may be masked out in many trials
  const int enough = std::min(mode.bits ? std::max(job.trials, wanted / 8) : wanted, 255);
  auto missing = [&]() -> std::optional<std::pair<size_t, size_t>> {
    for (size_t r = 0; r < covered.size(); r++)
      for (size_t i = 0; i < covered[r].size(); i++)
        if (covered[r][i] < enough) return std::pair{r, i};
    return std::nullopt;
  };
  for (int t = 0; t < wanted || (t < wanted + kRedraws && missing()); t++) {
    mode.even_power = t & 1;
    const uint64_t seed =
        hash_combine(hash_combine(job.seed, static_cast<uint64_t>(mode.sqrt_power) * 2 + mode.bits), static_cast<uint64_t>(t));
    FieldAlgebra f(job.primes, seed, mode);
    const std::vector<Tensor<FieldValue>> params = draw_inputs(job, f, mode, t, seed);
    const auto ra = evaluate<FieldAlgebra>(job.a, params, f), rb = evaluate<FieldAlgebra>(job.b, params, f);
    if (covered.empty())
      for (const auto& x : ra) covered.emplace_back(x.data.size(), 0);
    compare(f, ra, rb, seed, covered, out);
    out.used |= f.used();
    out.zero_denominator |= f.zero_denominator();
    out.unknown_sign |= f.unknown_sign();
    out.needs_bits |= f.needs_bits();
    if (out.kind == Outcome::Kind::kMismatch) return out;
    if (out.needs_bits && !mode.bits) break;   // the other mode decides
  }
  if (auto m = missing()) {
    out.kind = Outcome::Kind::kUncovered;
    const Dims dims = job.a.dims(job.a.node(job.a.outputs()[m->first]).operands[0]);
    out.uncovered = place(static_cast<int>(m->first), dims, static_cast<int64_t>(m->second));
  }
  return out;
}

std::vector<std::string> names_of(uint32_t used) {
  std::vector<std::string> out;
  for (int i = 0; i < static_cast<int>(Uninterpreted::kNum); i++)
    if (used >> i & 1) out.push_back(uninterpreted_name(static_cast<Uninterpreted>(i)));
  return out;
}

std::string join(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& w : words) out += (out.empty() ? "" : ", ") + w;
  return out;
}

/// Functions that are never defined together are two; else only where one is defined and the other is not can be said.
Verdict only_one_defined(const RealReport& reals) {
  if (reals.disjoint) return different(*reals.undefined);
  const Counterexample& c = *reals.undefined;
  return unknown("nothing differs where both are defined, as far as was seen, but " + c.where + " is " + c.left + " in one and " + c.right +
                 " in the other, seed " + std::to_string(c.seed));
}

std::string why_uncovered(const Outcome& o) {
  if (o.unknown_sign) return o.uncovered + " depends on the sign of an infinity that fields cannot tell";
  if (o.zero_denominator) return o.uncovered + " has a zero denominator, or another undefined operation, in every draw";
  return o.uncovered + " is undefined in every draw";
}

/// The fields agree: unless what they cannot tell is against it, the graphs are equal.
Verdict passed(const Job& job, const Outcome& last, const FieldMode& mode, int trials, uint64_t real_seed, int64_t steps) {
  constexpr uint32_t kPartial = 1u << static_cast<int>(Uninterpreted::kSqrt) | 1u << static_cast<int>(Uninterpreted::kLog) |
                                1u << static_cast<int>(Uninterpreted::kPow);
  // An invented law is what could be wrong here (roots of negative numbers, say), so real numbers must agree too.
  const RealReport reals =
      last.used && job.draws != Draws::kNone ? compare_reals(job.a, job.b, job.inputs, real_seed, job.draws) : RealReport{};
  if (reals.difference) return different(*reals.difference);
  if (reals.undefined) return only_one_defined(reals);
  // A field has no sign: a shift by the root of a maximum cancels there, and real numbers show a negative one only by luck. Algebra sees
  // that something is lost (that both graphs have is the program's own affair), where signs do not show that nothing can be.
  if (job.draws != Draws::kNone && last.used & kPartial && !is_total(job.b) && !prove(job.a, job.a, steps).may_be_undefined &&
      prove(job.a, job.b, steps).may_be_undefined)
    return unknown(
        "a root, logarithm or power of what may be negative cancels: the candidate might be undefined where the program is not");
  if (last.used & kPartial && job.draws == Draws::kThorough && !reals.uncompared.empty())
    return unknown("the fields agree, but " + join(names_of(last.used)) + " are modelled there, and " + reals.uncompared +
                   (reals.noisy ? " is too noisy in fp64 to tell" : " was not finite in both in any draw in fp64"));
  for (const Graph* g : {&job.a, &job.b})
    if (std::string s = loose_running(*g); !s.empty()) return unknown(s);
  const GraphDegree da = degree_of(job.a), db = degree_of(job.b);
  Verdict v;
  v.kind = Verdict::Kind::kEqual;
  const Bound bound = bound_of_trial(da, db, job.primes, mode.sqrt_power, mode.bits);
  v.evidence = {job.primes.p,
                job.primes.q,
                trials,
                job.seed,
                bound.degree < 0 ? -1 : static_cast<int64_t>(bound.degree),
                bound.log2 * trials,
                bound.reason,
                names_of(last.used),
                da.is_lax && db.is_lax,
                {}, {}};
  if (mode.bits) v.evidence.open = "conditions that choose an infinity were drawn as bits, which reaches some of their cases only";
  return v;
}

Verdict decide(const Job& job) {
  const int64_t steps = job.draws == Draws::kThorough ? kProofSteps : kQuickProofSteps;
  FieldMode mode;
  auto attempt = [&](const Job& j) {
    mode.bits = false;
    Outcome out = run(j, mode);
    if (out.kind != Outcome::Kind::kUncovered || !out.needs_bits) return out;
    mode.bits = true;
    return run(j, mode);
  };
  Outcome last = attempt(job);
  int trials = job.trials;
  if (last.kind == Outcome::Kind::kMismatch && !last.is_witness && last.used >> static_cast<int>(Uninterpreted::kSqrt) & 1) {
    // sqrt(x)*sqrt(y) = sqrt(x*y) may be what was missing. Both parities of the power are needed: each alone has a law about sqrt(-x) that
    // is none.
    Job multiplicative = job;
    multiplicative.trials = trials = std::max(trials, 2);
    mode.sqrt_power = true;
    last = attempt(multiplicative);
  }
  const uint64_t real_seed = hash_combine(job.seed, 0x7265616C);
  if (last.kind == Outcome::Kind::kPass) return passed(job, last, mode, trials, real_seed, steps);
  const RealReport reals = compare_reals(job.a, job.b, job.inputs, real_seed, job.draws);
  if (reals.difference) return different(*reals.difference);
  if (last.kind == Outcome::Kind::kMismatch && last.is_witness) return different(last.mismatch);
  if (reals.undefined) return only_one_defined(reals);
  if (last.kind == Outcome::Kind::kUncovered) return unknown(why_uncovered(last));
  const std::string open = last.mismatch.where + " differs in the fields, but " + join(names_of(last.used)) +
                           (names_of(last.used).size() == 1 ? " is" : " are") + " uninterpreted there, and " +
                           (reals.uncompared.empty() ? "real numbers agree"
                            : reals.noisy            ? "fp64 is too noisy to tell at " + reals.uncompared
                                                     : "real numbers agree, where both are finite");
  Proof proof = prove(job.a, job.b, steps);
  if (!proof.proved) return unknown(open);
  Verdict v;   // the fields cannot tell these functions apart from others, algebra can
  v.kind = Verdict::Kind::kEqual;
  v.evidence = {
      job.primes.p,        job.primes.q, trials,           job.seed, -1, 0, "no bound from theory: " + open + "; but it is proved",
      names_of(last.used), false,        std::move(proof), {}};
  return v;
}

Verdict decide(const Graph& a, const Graph& b, Primes primes, uint64_t seed, int trials, Draws draws = Draws::kQuick) {
  if (std::string s = signature_mismatch(a, b); !s.empty()) return different({s, "", "", seed});
  const std::vector<Type> inputs = input_types(a, b);
  const Graph x = say_roundings(a), y = say_roundings(b);
  return decide(Job{x, y, inputs, primes, seed, std::max(trials, 1), draws});
}

/// Trials are independent, so where a theorem says something of one, few of them say enough (a gated MLP: 3.6 bits each). 0 where it says
/// nothing, so little that it would take too long, or the graph is large.
int trials_for_bound(const Graph& a, const Evidence& e) {
  if (e.log2_bound >= 0 || e.log2_bound <= kWantedBound) return 0;
  int64_t elements = 0;
  for (NodeId n : a.inputs()) elements += a.dims(a.node(n).first_value).elements();
  const double wanted = std::ceil(kWantedBound * e.trials / e.log2_bound);
  return elements <= kFewElements && wanted <= kMostTrials ? static_cast<int>(wanted) : 0;
}

}  // namespace

Verdict equal(const Graph& a, const Graph& b, uint64_t seed, int trials, Draws draws) {
  const uint64_t s = hash_combine(hash_combine(a.hash(), b.hash()), seed);
  const Primes primes = draw_primes(s);
  const Verdict v = decide(a, b, primes, s, trials, draws);
  const int more = v.kind == Verdict::Kind::kEqual && draws != Draws::kNone ? trials_for_bound(a, v.evidence) : 0;
  return more > v.evidence.trials ? decide(a, b, primes, s, more, draws) : v;
}

std::string to_string(const Verdict& v) {
  switch (v.kind) {
    case Verdict::Kind::kEqual: {
      const Evidence& e = v.evidence;
      if (e.trials == 0) return "equal: " + to_string(e.proof);
      std::string out = "equal: " + std::to_string(e.trials) + (e.trials == 1 ? " trial" : " trials") + " modulo p=" + std::to_string(e.p) +
                        " q=" + std::to_string(e.q) + ", seed " + std::to_string(e.seed);
      char bound[48] = "";
      if (e.log2_bound < 0) std::snprintf(bound, sizeof bound, ", chance of error at most 2^%.1f", e.log2_bound);
      out += bound;
      out += " (" + e.bound_reason + ")";
      if (!e.uninterpreted.empty()) out += ", uninterpreted: " + join(e.uninterpreted);
      out += e.proof.proved ? "; " + to_string(e.proof) : ", wherever both are defined";
      return out;
    }
    case Verdict::Kind::kDifferent: {
      const Counterexample& c = v.counterexample;
      if (c.left.empty() && c.right.empty()) return "different: " + c.where;
      return "different: " + c.where + " is " + c.left + " and " + c.right + ", seed " + std::to_string(c.seed);
    }
    case Verdict::Kind::kUnknown: return "unknown: " + v.reason;
  }
  return "";
}

}  // namespace mirage

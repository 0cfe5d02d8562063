// The verdict that exit codes and reuse rest on; see verify.h.
#include "mirage/verify/verify.h"

#include "mirage/verify/sampled.h"
#include "verify/reals.h"
#include "verify/signature.h"

namespace mirage {
Verdict settle(const Graph& a, const Graph& b, uint64_t seed, double max_work) {
  Verdict v;
  if (std::string s = verify::signature_mismatch(a, b); !s.empty()) {
    v.kind = Verdict::Kind::kDifferent;
    v.counterexample = {std::move(s), "", "", seed};
    return v;
  }
  Proof proof = prove(a, b);
  if (proof.proved) {
    v.kind = Verdict::Kind::kEqual;
    v.evidence.proof = std::move(proof);
    return v;
  }
  const double work = verify::evaluation_work(a) + verify::evaluation_work(b);
  if (work <= max_work) {
    v = equal(a, b, seed, 2, Draws::kThorough);
    if (v.kind == Verdict::Kind::kEqual && !v.evidence.proof.proved && !v.evidence.open.empty()) {
      v.kind = Verdict::Kind::kUnknown;
      v.reason = "the trials agree, but " + v.evidence.open + "; " + to_string(proof);
    }
    return v;
  }
  const SampledComparison sampled = sampled_difference(a, b, seed, 32, {max_work, 1e9});
  if (sampled.difference) {
    v.kind = Verdict::Kind::kDifferent;
    v.counterexample = *sampled.difference;
    return v;
  }
  v.reason = "the graphs are too large to evaluate whole; " +
             (sampled.refusal.empty() ? std::to_string(sampled.elements) + " elements of their results agree"
                                      : "and not at single elements: " + sampled.refusal) +
             "; " + to_string(proof);
  return v;
}

}  // namespace mirage

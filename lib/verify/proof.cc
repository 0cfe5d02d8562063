// prove(): both graphs as closed expressions over named indices, in one table of hash-consed normal forms. Equal ids are a proof (docs/verification.md).
#include "mirage/verify/proof.h"

#include "verify/proof_lower.h"
#include "verify/proof_z3.h"
#include "verify/signature.h"

namespace mirage {
namespace {
using namespace verify;

/// The terms of x that y does not have, and the other way round: what a reader wants to see.
std::string difference(Terms& t, PolyId x, PolyId y) {
  auto only = [&](PolyId a, PolyId b) -> std::string {
    for (const Term& u : std::vector<Term>(t.terms(a))) {
      bool there = false;
      for (const Term& v : t.terms(b)) there |= u.mono == v.mono && u.coef == v.coef;
      if (there) continue;
      const Rational c = u.coef;
      return t.print(t.scale(t.of_factors(Factors(t.factors(u.mono))), c));
    }
    return "nothing else";
  };
  return only(x, y) + "  against  " + only(y, x);
}

/// The two elements are equal: by their ids, or when denominators are cleared and index conditions resolved.
bool is_equal(Terms& t, PolyId x, PolyId y) {
  if (x < 0 || y < 0) return false;
  if (x == y) return true;
  PolyId d = t.sub(x, y);
  for (int round = 0; round < 2 && d >= 0; round++) {
    if (t.terms(d).empty()) return true;
    d = t.resolve_indicators(t.clear_denominators(d));
  }
  return d >= 0 && t.terms(d).empty();
}

Proof attempt(const Graph& a, const Graph& b, ProofLimits limits, bool ask_z3) {
  Proof out;
  Terms t(limits);
  bool exact = true;
  const std::vector<Lowered> x = lower(a, t, &exact), y = lower(b, t, &exact);
  std::vector<PolyId> roots;
  for (size_t r = 0; r < x.size(); r++) {
    const PolyId u = x[r].element, v = y[r].element;
    roots.push_back(u);
    roots.push_back(v);
    if (is_equal(t, u, v)) continue;
    if (ask_z3 && z3_equal(t, u, v)) { out.method = "normal forms and Z3"; continue; }
    if (u < 0 || v < 0 || !t.reason().empty()) { out.reason = t.reason(); out.gave_up = true; }
    else out.reason = "output " + std::to_string(r) + " has in one graph " + difference(t, u, v);
    return out;
  }
  if (t.lost_root()) { out.reason = "a root of a value of unknown sign cancels: one graph is undefined where the other need not be"; return out; }
  out.proved = true;
  if (out.method.empty()) out.method = "normal forms";
  out.size = t.size_of(roots);
  if (t.used_division()) out.conditions.push_back("denominators are not 0");
  if (t.used_root()) out.conditions.push_back("radicands are not negative");
  if (t.used_mask()) out.conditions.push_back("no row is masked as a whole");
  out.conditions.push_back(exact ? "every tiling divides its dimension" : "clipped tiles hold only elements of the tensor");
  return out;
}

}  // namespace

Proof prove(const Graph& a, const Graph& b) {
  Proof out;
  if (std::string s = signature_mismatch(a, b); !s.empty()) { out.reason = s; return out; }
  for (const Graph* g : {&a, &b})
    if (std::string s = loose_running(*g); !s.empty()) { out.reason = s; return out; }
  for (const Graph* g : {&a, &b})
    if (auto broken = check_laws(*g)) { out.reason = *broken; return out; }
  // First with little multiplied out, which is enough for programs of many layers; then with more.
  static constexpr ProofLimits kAttempts[] = {{300'000, 16, 4, 4}, {2'000'000, 256, 32, 24}, {6'000'000, 1024, 32, 24}};
  for (const ProofLimits& limits : kAttempts) {
    Proof p = attempt(a, b, limits, limits.terms == 256);
    if (p.proved) return p;
    if (out.reason.empty() || !p.gave_up) out = std::move(p);
  }
  return out;
}

std::string to_string(const Proof& p) {
  if (!p.proved) return "no proof: " + p.reason;
  std::string out = "proved by " + p.method + " (" + std::to_string(p.size) + " terms) where";
  for (size_t i = 0; i < p.conditions.size(); i++) out += (i ? ", " : " ") + p.conditions[i];
  return out;
}

}  // namespace mirage

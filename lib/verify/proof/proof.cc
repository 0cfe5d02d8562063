// prove(): both graphs as closed expressions over named indices, in one table of hash-consed normal forms. Equal ids are a proof
// (docs/verification.md).
#include "mirage/verify/proof.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "verify/proof/proof_lower.h"
#include "verify/proof/proof_z3.h"
#include "verify/signature.h"

namespace mirage {
namespace {
using namespace verify;

/// Runs f when it goes out of scope.
template <class F> struct AtEnd {
  F f;
  explicit AtEnd(F given) : f(std::move(given)) {}
  AtEnd(const AtEnd&) = delete;
  ~AtEnd() { f(); }
};

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
  if (!t.same_divisors(x, y) || !t.same_failures(x, y)) return false;
  PolyId d = t.sub(x, y);
  for (int round = 0; round < 2 && d >= 0; round++) {
    if (t.terms(d).empty()) return true;
    d = t.resolve_indicators(t.clear_denominators(d));
  }
  if (d >= 0) d = t.cancel_logs(d);
  return d >= 0 && t.terms(d).empty();
}

/// Where slices, and the parts of concatenations, begin and end, by the extent that they cut.
void collect_cuts(const Graph& g, std::map<int64_t, std::set<int64_t>>& at) {
  for (const Node& node : g.nodes()) {
    if (const auto* c = std::get_if<Call>(&node.op)) collect_cuts(*c->body, at);
    if (const auto* c = std::get_if<Concat>(&node.op)) {
      const int64_t extent = g.dims(node.first_value)[c->dim];
      int64_t end = 0;
      for (ValueId v : node.operands)
        if ((end += g.dims(v)[c->dim]) < extent) at[extent].insert(end);
    }
    const auto* s = std::get_if<Slice>(&node.op);
    if (!s || s->step != 1) continue;
    const int64_t extent = g.dims(node.operands[0])[s->dim];
    for (int64_t x : {s->start, s->stop}) if (x > 0 && x < extent) at[extent].insert(x);
  }
}

/// What a proof has left of its steps, over all tries; a try takes at most what its own limits say.
class Effort {
 public:
  explicit Effort(int64_t steps) : left_(steps) {}
  ProofLimits limited(ProofLimits l) const { l.steps = std::min(l.steps, left_); return l; }
  void take(int64_t steps) { left_ = std::max<int64_t>(0, left_ - steps); }
  bool is_spent() const { return left_ == 0; }

 private:
  int64_t left_;
};

/// One try. With cuts, values are atoms where the cuts say so, which proves less and scales to many layers.
/// full: set if the bytes of a proof were used up, so that nothing that multiplies out more has a chance.
Proof attempt(const Graph& a, const Graph& b, const ProofLimits& limits, Effort& effort, bool ask_z3, bool* full, Cuts* cut_a = nullptr,
              Cuts* cut_b = nullptr, const std::map<int64_t, std::set<int64_t>>& split_at = {}) {
  Proof out;
  if (effort.is_spent()) {
    out.gave_up = true;
    out.reason = "the proof's steps ran out";
    return out;
  }
  Terms t(effort.limited(limits));
  const AtEnd counted([&] { effort.take(t.steps()); });
  t.split_sums(split_at);
  bool exact = true;
  t.watch(true);
  const std::vector<Lowered> x = lower(a, t, &exact, cut_a), y = lower(b, t, &exact, cut_b);
  t.watch(false);
  *full = t.is_full();
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
  out.may_be_undefined = t.lost_root() || t.lost_domain();
  if (t.lost_root()) {
    out.reason = "a root of a value of unknown sign cancels: one graph is undefined where the other need not be";
    return out;
  }
  if (t.lost_domain()) {
    out.reason = "a logarithm, root or quotient that is undefined for many inputs cancels, or stands in a branch that is not always taken";
    return out;
  }
  if (t.misread()) {
    out.reason = t.reason().empty() ? "the proof's limits ran out" : t.reason();
    out.gave_up = true;
    return out;
  }
  out.proved = true;
  if (out.method.empty()) out.method = "normal forms";
  out.size = t.size_of(roots);
  if (t.used_division()) out.conditions.push_back("denominators are not 0");
  if (t.used_root()) out.conditions.push_back("radicands are not negative");
  if (t.used_mask()) out.conditions.push_back("no row is masked as a whole");
  out.conditions.push_back(exact ? "every tiling divides its dimension" : "clipped tiles hold only elements of the tensor");
  return out;
}

/// Where a program has its seams: values with several users, and what calls return.
std::vector<bool> seams(const Graph& g) {
  std::vector<bool> out(static_cast<size_t>(g.num_values()));
  const auto users = g.users();
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    if (g.form<Input>(n) || g.form<Const>(n) || g.form<Iota>(n)) continue;
    for (int i = 0; i < node.num_values; i++) {
      const auto v = static_cast<size_t>(node.first_value + i);
      out[v] = users[v].size() > 1 || g.form<Call>(n) != nullptr;
    }
  }
  return out;
}

/// Layer by layer: values that both graphs have, at a seam of one of them, are proved equal and then no longer looked into. What both have
/// is found in rounds: a cut that only one graph has hides what comes behind it, and is dropped for the next round.
Proof attempt_in_layers(const Graph& a, const Graph& b, const ProofLimits& limits, Effort& effort, bool* full) {
  constexpr int kRounds = 16;
  const std::vector<bool> seam_a = seams(a), seam_b = seams(b);
  Cuts x{seam_a, {}}, y{seam_b, {}};
  for (int round = 0; round < kRounds; round++) {
    Proof p = attempt(a, b, limits, effort, false, full, &x, &y);
    if (p.proved || *full || round + 1 == kRounds) return p;
    std::set<PolyId> in_a(x.elements.begin(), x.elements.end()), seam, common;
    for (size_t v = 0; v < y.elements.size(); v++) if (y.elements[v] >= 0 && in_a.contains(y.elements[v])) common.insert(y.elements[v]);
    for (size_t v = 0; v < x.elements.size(); v++) if (seam_a[v]) seam.insert(x.elements[v]);
    for (size_t v = 0; v < y.elements.size(); v++) if (seam_b[v]) seam.insert(y.elements[v]);
    auto chosen = [&](const std::vector<PolyId>& elements) {
      std::vector<bool> at(elements.size());
      for (size_t v = 0; v < elements.size(); v++) at[v] = common.contains(elements[v]) && seam.contains(elements[v]);
      return at;
    };
    std::vector<bool> next_a = chosen(x.elements), next_b = chosen(y.elements);
    if (next_a == x.at && next_b == y.at) return p;
    x.at = std::move(next_a);
    y.at = std::move(next_b);
  }
  return {};
}

/// Whether a graph has what the prover can write in other ways, at the price of larger forms: tanh, and a running maximum that leaves its
/// loop or goes through another.
bool is_rewritable(const Graph& g) {
  for (const Node& node : g.nodes()) {
    if (const auto* c = std::get_if<Call>(&node.op); c && is_rewritable(*c->body)) return true;
    if (const auto* m = std::get_if<Map>(&node.op); m && (m->fn == MapFn::kTanh || m->fn == MapFn::kGeluTanh)) return true;
    const auto* a = std::get_if<Accum>(&node.op);
    const bool takes_maximum = (a && a->fn == ReduceFn::kMax) || std::holds_alternative<Running>(node.op);
    if (takes_maximum && g.def_form<Running>(node.operands[0])) return true;
  }
  return false;
}

/// Whether a loop with a running maximum has exponentials, which it may shift.
bool shifts_in_loop(const Graph& g) {
  bool is_running = false, is_shifting = false;
  for (const Node& node : g.nodes()) {
    if (const auto* c = std::get_if<Call>(&node.op); c && shifts_in_loop(*c->body)) return true;
    const auto* a = std::get_if<Accum>(&node.op);
    const auto* m = std::get_if<Map>(&node.op);
    is_running = is_running || std::holds_alternative<Running>(node.op);
    is_shifting = is_shifting || (a && a->degree > 0) || (m && (m->fn == MapFn::kExp || m->fn == MapFn::kSigmoid || m->fn == MapFn::kSilu));
  }
  return is_running && is_shifting;
}

}  // namespace

Proof prove(const Graph& given_a, const Graph& given_b, int64_t steps) {
  Proof out;
  Effort effort(steps);
  const Graph a = say_roundings(given_a), b = say_roundings(given_b);
  if (std::string s = signature_mismatch(a, b); !s.empty()) { out.reason = s; return out; }
  std::string loose;
  for (const Graph* g : {&a, &b})
    if (loose.empty()) loose = loose_running(*g);
  for (const Graph* g : {&a, &b})
    if (auto broken = check_laws(*g)) { out.reason = *broken; return out; }
  // First with little multiplied out, then step by step (the same functions of the same, which grow where they are multiplied out), then
  // layer by layer, then with more.
  auto keep = [&](Proof p) {
    const bool may = out.may_be_undefined || p.may_be_undefined;
    if (p.proved || out.reason.empty() || (out.gave_up && !p.gave_up)) out = std::move(p);
    out.may_be_undefined = may && !out.proved;
    return out.proved;
  };
  bool full = false;
  static constexpr ProofLimits kShallow{200'000, 16, 4, 4}, kMiddle{1'000'000, 256, 32, 24}, kDeep{4'000'000, 1024, 32, 24},
      kRewriting{.steps = 1'000'000, .rewrite = true},
      kNaming{.steps = 1'000'000, .terms = 16, .expand = 4, .indices = 4, .name = true};
  // a shift that may be anything might be undefined, and one by something else than the maximum overflows, whatever real numbers say: but a
  // maximum may be asked for itself
  if (!loose.empty()) {
    if (!shifts_in_loop(a) && !shifts_in_loop(b)) keep(attempt(a, b, kRewriting, effort, false, &full));
    if (!out.proved) out.reason = loose;
    return out;
  }
  if (keep(attempt(a, b, kShallow, effort, false, &full))) return out;
  bool spent = false;   // of this try: the others need less for some
  if (Proof p = attempt(a, b, kNaming, effort, false, &spent); p.proved) return p;
  if (keep(attempt_in_layers(a, b, kMiddle, effort, &full))) return out;
  if (keep(attempt(a, b, kMiddle, effort, true, &full)) || full) return out;
  if (out.gave_up && keep(attempt(a, b, kDeep, effort, false, &full))) return out;
  if ((is_rewritable(a) || is_rewritable(b)) && keep(attempt(a, b, kRewriting, effort, false, &full))) return out;
  std::map<int64_t, std::set<int64_t>> cuts;   // a sum that one graph cuts in two is cut in the other
  for (const Graph* g : {&a, &b}) collect_cuts(*g, cuts);
  if (!cuts.empty()) keep(attempt(a, b, kMiddle, effort, false, &full, nullptr, nullptr, cuts));
  return out;
}

std::string to_string(const Proof& p) {
  if (!p.proved) return "no proof: " + p.reason;
  std::string out = "proved by " + p.method + " (" + std::to_string(p.size) + " terms) where";
  for (size_t i = 0; i < p.conditions.size(); i++) out += (i ? ", " : " ") + p.conditions[i];
  return out;
}

}  // namespace mirage

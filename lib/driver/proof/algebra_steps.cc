// Named steps; see the header. Rules are applied to the program as long as one brings it nearer to the muGraph: fewer of its values are
// none of the muGraph's (by their terms).
#include "driver/proof/algebra_steps.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "driver/proof/algebra_rules.h"

namespace mirage {

namespace {

constexpr int kMostRewritten = 120;     // of a program that is rewritten: each step tries every rule everywhere, with one more behind it
constexpr int kMostDeep = 40;       // of one where two rules are tried together
constexpr size_t kMostSteps = 24;

bool computes(const Node& n) {
  return !std::holds_alternative<Input>(n.op) && !std::holds_alternative<Output>(n.op) && !std::holds_alternative<Const>(n.op) &&
         !std::holds_alternative<Iota>(n.op) && !is_view(n.op) && !std::holds_alternative<Repeat>(n.op);
}

int64_t stored_bytes(const Graph& g, ValueId v) {
  const DType t = g.type(v).dtype;
  return g.dims(v).elements() * (t == DType::kReal ? 4 : dtype_bytes(t));
}

/// Behind views: what is stored.
ValueId stored(const Graph& g, ValueId v) {
  while (is_view(g.def(v).op) || g.def_form<Repeat>(v)) v = g.def(v).operands[0];
  return v;
}

/// Operator by operator: each reads its operands and writes its results.
AlgebraStep one_by_one(const Graph& g, std::string what) {
  AlgebraStep s{std::move(what), 0, 0, 0};
  for (const Node& n : g.nodes()) {
    if (!computes(n)) continue;
    s.kernels++;
    std::set<ValueId> read;
    for (ValueId v : n.operands) if (!g.def_form<Const>(v) && !g.def_form<Iota>(v)) read.insert(stored(g, v));
    for (ValueId v : read) s.bytes += stored_bytes(g, v);
    for (int i = 0; i < n.num_values; i++) s.bytes += stored_bytes(g, n.first_value + i);
    const double out = static_cast<double>(g.dims(n.first_value).elements());
    if (std::holds_alternative<MatMul>(n.op))
      s.flops += 2 * out * static_cast<double>(g.dims(n.operands[0])[g.dims(n.operands[0]).rank() - 1]);
    else if (std::holds_alternative<Reduce>(n.op)) s.flops += static_cast<double>(g.dims(n.operands[0]).elements());
    else if (std::holds_alternative<Map>(n.op)) s.flops += out;
  }
  return s;
}

AlgebraStep plan_step(const Plan& p, std::string what) {
  AlgebraStep s{std::move(what), static_cast<int64_t>(p.kernels.size()), 0, 0};
  for (const KernelPlan& k : p.kernels) s.bytes += k.bytes, s.flops += k.flops;
  return s;
}

/// How far a graph is from the muGraph: its values that are none of its.
class Nearness {
 public:
  explicit Nearness(const Graph& found) {
    std::vector<int> inside;
    const std::vector<int> outer = terms_.of(found, &inside);
    wanted_.insert(outer.begin(), outer.end());
    wanted_.insert(inside.begin(), inside.end());
  }
  size_t foreign(const Graph& g) {
    std::set<int> out;
    const std::vector<int> terms = terms_.of(g);
    for (size_t v = 0; v < terms.size(); v++)
      if (!wanted_.contains(terms[v])) out.insert(terms[v]);
    return out.size();
  }

 private:
  Terms terms_;
  std::set<int> wanted_;
};

struct Best { std::optional<Rewriting> first, second; size_t foreign; };

/// The rewriting, or pair of them, that leaves the fewest foreign values; none if none leaves fewer than now.
Best nearest_step(const Graph& g, Nearness& near, size_t now) {
  Best best{std::nullopt, std::nullopt, now};
  std::vector<Rewriting> all = rewritings(g);
  for (Rewriting& r : all)
    if (const size_t n = near.foreign(r.graph); n < best.foreign) best = {r, std::nullopt, n};
  if (best.first || g.num_nodes() > kMostDeep) return best;
  for (const Rewriting& r : all)
    for (Rewriting& then : rewritings(r.graph))
      if (const size_t n = near.foreign(then.graph); n < best.foreign) best = {r, std::move(then), n};
  return best;
}

/// What the muGraph does beyond algebra, in the field's words.
std::string fused_text(const Graph& found) {
  bool online = false, loops = false;
  int sums = 0;
  for (const Node& n : found.nodes())
    if (const auto* call = std::get_if<Call>(&n.op)) {
      int here = 0;
      for (const Node& inner : call->body->nodes()) {
        if (std::holds_alternative<Running>(inner.op)) online = true;
        if (std::holds_alternative<Accum>(inner.op)) here++;
      }
      loops = loops || call->body->launch().loop > 1;
      sums = std::max(sums, here);
    }
  std::string out = fmt::format(
      "operators share kernels: {} graph-defined",
      std::count_if(found.nodes().begin(), found.nodes().end(), [](const Node& n) { return std::holds_alternative<Call>(n.op); }));
  if (loops && sums > 1) out += fmt::format(", up to {} sums in one pass of the loop", sums);
  if (online) out += ", with a running maximum (online softmax): scores are not stored";
  return out;
}

}  // namespace

std::vector<AlgebraStep> algebra_steps(const Program& program, const Graph& found, const Plan& result, const Target& target) {
  std::vector<AlgebraStep> out = {one_by_one(program.graph, "the program, operator by operator")};
  Nearness near(found);
  Graph g = program.graph;
  size_t foreign = near.foreign(g);
  std::vector<std::pair<const char*, int>> names;
  for (size_t step = 0; step < kMostSteps && foreign > 0 && g.num_nodes() <= kMostRewritten; step++) {
    Best best = nearest_step(g, near, foreign);
    if (!best.first) break;
    for (std::optional<Rewriting>* r : {&best.first, &best.second}) {
      if (!*r) continue;
      g = std::move((*r)->graph);
      if (!names.empty() && names.back().first == (*r)->name) {
        names.back().second++;
        out.back() = one_by_one(g, fmt::format("{} ({} times)", (*r)->name, names.back().second));
      } else {
        names.emplace_back((*r)->name, 1);
        out.push_back(one_by_one(g, (*r)->name));
      }
    }
    foreign = best.foreign;
  }
  const bool is_own = found == program.graph;
  if (g.num_nodes() <= kMostRewritten)
    if (const Planned p = make_plan(program, g, target); p.plan && !is_own)
      out.push_back(plan_step(*p.plan, "elementwise neighbours share kernels; each product is one"));
  std::string last = is_own ? "neighbours share kernels" : fused_text(found);
  if (foreign > 0 && !is_own)
    last += fmt::format("; {} value{} by steps that have no name here (the evidence covers them)", foreign, foreign == 1 ? "" : "s");
  out.push_back(plan_step(result, last));
  return out;
}

std::string saved_by(const AlgebraStep& a, const AlgebraStep& b) {
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  if (const int64_t k = a.kernels - b.kernels; k > 0) add(fmt::format("{} kernel{}", k, k == 1 ? "" : "s"));
  if (const double mb = static_cast<double>(a.bytes - b.bytes) / 1e6; mb >= 0.0005) add(fmt::format("{:.4g} MB", mb));
  if (const double mflop = (a.flops - b.flops) / 1e6; mflop >= 0.0005) add(fmt::format("{:.4g} Mflop", mflop));
  return out;
}

std::string to_string(const std::vector<AlgebraStep>& steps) {
  std::string out = "from the program to the result:\n   kernels          MB       Mflop  step\n";
  for (size_t i = 0; i < steps.size(); i++) {
    const AlgebraStep& s = steps[i];
    out += fmt::format("{:>10} {:>11.4g} {:>11.4g}  {}\n", s.kernels, static_cast<double>(s.bytes) / 1e6, s.flops / 1e6, s.what);
    if (const std::string saved = i ? saved_by(steps[i - 1], s) : ""; !saved.empty()) out += fmt::format("{:>36}saves {}\n", "", saved);
  }
  return out;
}

}  // namespace mirage

// Named steps; see the header. Rules are applied to the program as long as one brings it nearer to the muGraph: fewer of its values are
// none of the muGraph's (by their terms).
#include "driver/proof/algebra_steps.h"

#include <algorithm>
#include <array>
#include <cmath>
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

double operations(const Graph& g);

/// Of one node, once: 2 per multiply-add, 1 per element of what is mapped, reduced or rescaled.
double operations(const Graph& g, const Node& n) {
  if (const auto* call = std::get_if<Call>(&n.op)) return operations(*call->body);
  if (n.first_value < 0) return 0;
  const double out = static_cast<double>(g.dims(n.first_value).elements());
  if (std::holds_alternative<MatMul>(n.op)) return 2 * out * static_cast<double>(g.dims(n.operands[0]).back());
  if (std::holds_alternative<Reduce>(n.op)) return static_cast<double>(g.dims(n.operands[0]).elements());
  const auto* sum = std::get_if<Accum>(&n.op);   // a plain one continues the sum that its operand is a part of
  return std::holds_alternative<Map>(n.op) || std::holds_alternative<Running>(n.op) || (sum && sum->degree > 0) ? out : 0;
}

/// Of a graph; of a block graph those of all its blocks and iterations. What several blocks compute alike counts once, as it does in the
/// program: fusing is no algebra.
double operations(const Graph& g) {
  const Launch& launch = g.launch();
  const std::vector<Phase> phase = phases(g);
  std::vector<std::array<bool, 3>> differs(static_cast<size_t>(g.num_values()), {false, false, false});   // by block, along each axis
  double sum = 0;
  for (const Node& n : g.nodes()) {
    std::array<bool, 3> mine{};
    for (size_t a = 0; a < 3; a++) {
      if (const auto* in = std::get_if<Input>(&n.op)) mine[a] = in->part.grid[a] >= 0;
      for (ValueId v : n.operands) mine[a] = mine[a] || differs[static_cast<size_t>(v)][a];
    }
    for (int i = 0; i < n.num_values; i++) differs[static_cast<size_t>(n.first_value + i)] = mine;
    const bool in_loop = n.first_value >= 0 && phase[static_cast<size_t>(n.first_value)] == Phase::kLoop;
    double times = in_loop || std::holds_alternative<Accum>(n.op) ? static_cast<double>(launch.loop) : 1;
    for (size_t a = 0; a < 3; a++) times *= mine[a] ? static_cast<double>(launch.grid[a]) : 1;
    sum += operations(g, n) * times;
  }
  return sum;
}

/// Operator by operator: each reads its operands and writes its results.
AlgebraStep one_by_one(const Graph& g, std::string what) {
  AlgebraStep s{std::move(what), 0, 0, operations(g)};
  for (const Node& n : g.nodes()) {
    if (!computes(n)) continue;
    s.kernels++;
    std::set<ValueId> read;
    for (ValueId v : n.operands) if (!g.def_form<Const>(v) && !g.def_form<Iota>(v)) read.insert(stored(g, v));
    for (ValueId v : read) s.bytes += stored_bytes(g, v);
    for (int i = 0; i < n.num_values; i++) s.bytes += stored_bytes(g, n.first_value + i);
  }
  return s;
}

/// Kernels and bytes are the plan's, operations those of its graph: a plan counts the ones that bound its time.
AlgebraStep plan_step(const Plan& p, std::string what) {
  AlgebraStep s{std::move(what), static_cast<int64_t>(p.kernels.size()), 0, operations(p.graph)};
  for (const KernelPlan& k : p.kernels) s.bytes += k.bytes;
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
  std::string saves, adds;
  const auto say = [&](double less, const std::string& text) {
    std::string& out = less > 0 ? saves : adds;
    out += (out.empty() ? "" : ", ") + text;
  };
  if (const int64_t k = a.kernels - b.kernels; k != 0)
    say(static_cast<double>(k), fmt::format("{} kernel{}", std::abs(k), std::abs(k) == 1 ? "" : "s"));
  const double mb = static_cast<double>(a.bytes - b.bytes) / 1e6, mflop = (a.flops - b.flops) / 1e6;
  if (std::abs(mb) >= 0.0005) say(mb, fmt::format("{:.4g} MB", std::abs(mb)));
  if (std::abs(mflop) >= 0.0005) say(mflop, fmt::format("{:.4g} Mflop", std::abs(mflop)));
  return saves + (adds.empty() ? "" : (saves.empty() ? "adds " : "; adds ") + adds);
}

std::string to_string(const std::vector<AlgebraStep>& steps) {
  std::string out = "from the program to the result:\n   kernels          MB       Mflop  step\n";
  for (size_t i = 0; i < steps.size(); i++) {
    const AlgebraStep& s = steps[i];
    out += fmt::format("{:>10} {:>11.4g} {:>11.4g}  {}\n", s.kernels, static_cast<double>(s.bytes) / 1e6, s.flops / 1e6, s.what);
    if (const std::string saved = i ? saved_by(steps[i - 1], s) : ""; !saved.empty())
      out += fmt::format("{:>36}{}{}\n", "", saved.starts_with("adds") ? "" : "saves ", saved);
  }
  return out;
}

}  // namespace mirage

// A normaliser on plain trees that writes down every axiom it uses (derive.h).
#include "unit/expr/derive.h"
#include <algorithm>
#include <bit>

namespace mirage::expr_test {
namespace {

using Links = std::vector<Link>;

/// A term on its way, and how it got there.
struct Work {
  TermPtr t;
  Links links;
  void axiom(int number, bool forward, TermPtr to) {
    links.push_back({Link::Kind::kAxiom, number, forward, to, {}});
    t = std::move(to);
  }
  void reorder(int number, TermPtr to) {
    if (equal(t, to)) return;
    links.push_back({Link::Kind::kReorder, number, true, to, {}});
    t = std::move(to);
  }
  /// Runs f on operand i.
  template <class F> void below(int i, F&& f) {
    Work w{t->args[static_cast<size_t>(i)], {}};
    f(w);
    if (w.links.empty()) return;
    links.push_back({Link::Kind::kBelow, i, true, nullptr, std::move(w.links)});
    std::vector<TermPtr> args = t->args;
    args[static_cast<size_t>(i)] = w.t;
    t = node(t->op, std::move(args), t->extents);
  }
  const TermPtr& arg(size_t i) const { return t->args[i]; }
};

TermPtr two(const char* op, TermPtr x, TermPtr y) { return node(op, {std::move(x), std::move(y)}); }
bool is(const TermPtr& t, const char* op) { return t->op == op; }

void flatten(const char* op, const TermPtr& t, std::vector<TermPtr>& out) {
  if (!is(t, op)) { out.push_back(t); return; }
  for (const TermPtr& a : t->args) flatten(op, a, out);
}

TermPtr nested(const char* op, const std::vector<TermPtr>& parts) {
  TermPtr out = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) out = two(op, out, parts[i]);
  return out;
}

void sort_operands(Work& w, const char* op, int number) {
  std::vector<TermPtr> parts;
  flatten(op, w.t, parts);
  std::sort(parts.begin(), parts.end(), [](const TermPtr& x, const TermPtr& y) { return compare(x, y) < 0; });
  w.reorder(number, nested(op, parts));
}

void add(Work& w) { sort_operands(w, "add", 3); }

void reduce(Work& w) {   // sum of a normal form
  const TermPtr x = w.arg(0);
  const std::vector<int> k = w.t->extents;
  if (k.empty()) {
    w.axiom(9, false, x);
  } else if (is(x, "add")) {
    w.axiom(11, true, two("add", node("sum", {x->args[0]}, k), node("sum", {x->args[1]}, k)));
    w.below(0, reduce);
    w.below(1, reduce);
    add(w);
  } else if (is(x, "sum")) {
    std::vector<int> all = k;
    all.insert(all.end(), x->extents.begin(), x->extents.end());
    w.axiom(10, true, node("sum", {x->args[0]}, all));
  }
}

void divide(Work& w);

void multiply(Work& w) {
  const TermPtr a = w.arg(0), b = w.arg(1);
  const auto swap = [&] { w.axiom(2, true, two("mul", b, a)); multiply(w); };
  if (is(a, "add")) {
    w.axiom(5, false, two("add", two("mul", a->args[0], b), two("mul", a->args[1], b)));
    w.below(0, multiply);
    w.below(1, multiply);
    return add(w);
  }
  if (is(b, "add")) return swap();
  if (is(a, "sum")) {
    w.axiom(12, false, node("sum", {two("mul", a->args[0], b)}, a->extents));
    w.below(0, multiply);
    return reduce(w);
  }
  if (is(b, "sum")) return swap();
  if (is(b, "div")) {
    w.axiom(7, true, two("div", two("mul", a, b->args[0]), b->args[1]));
    w.below(0, multiply);
    return divide(w);
  }
  if (is(a, "div")) return swap();
  if (is(a, "one")) return w.axiom(16, false, b);
  if (is(b, "one")) return swap();
  // Products of factors. Two exponentials, then two roots, become one.
  for (const char* op : {"exp", "sqrt"}) {
    std::vector<TermPtr> parts, rest, pair;
    flatten("mul", w.t, parts);
    for (const TermPtr& p : parts) (is(p, op) ? pair : rest).push_back(p);
    if (pair.size() < 2) continue;
    const bool alone = rest.empty();
    const TermPtr both = nested("mul", pair);
    w.reorder(4, alone ? both : two("mul", nested("mul", rest), both));
    const auto join = [&](Work& v) {
      const bool is_exp = is(pair[0], "exp");
      v.axiom(is_exp ? 14 : 15, true, node(op, {two(is_exp ? "add" : "mul", pair[0]->args[0], pair[1]->args[0])}));
      v.below(0, is_exp ? add : multiply);
    };
    if (alone) join(w);
    else w.below(1, join);
  }
  sort_operands(w, "mul", 4);
}

void divide(Work& w) {
  const TermPtr a = w.arg(0), b = w.arg(1);
  if (is(a, "add")) {
    w.axiom(6, false, two("add", two("div", a->args[0], b), two("div", a->args[1], b)));
    w.below(0, divide);
    w.below(1, divide);
    return add(w);
  }
  if (is(a, "sum")) {
    w.axiom(13, false, node("sum", {two("div", a->args[0], b)}, a->extents));
    w.below(0, divide);
    return reduce(w);
  }
  if (is(b, "one")) return w.axiom(17, false, a);
  if (is(a, "div")) {
    w.axiom(8, true, two("div", a->args[0], two("mul", a->args[1], b)));
    w.below(1, multiply);
  }
}

void root(Work& w) {
  if (is(w.arg(0), "one")) w.axiom(18, false, w.arg(0));
}

void normalise(Work& w) {
  for (int i = 0; i < static_cast<int>(w.t->args.size()); ++i) w.below(i, normalise);
  const std::string op = w.t->op;
  if (op == "add") return add(w);
  if (op == "mul") return multiply(w);
  if (op == "div") return divide(w);
  if (op == "sum") return reduce(w);
  if (op == "sqrt") return root(w);
  const auto negate = [](Work& v) { v.axiom(19, true, two("mul", leaf("minus_one"), v.arg(0))); multiply(v); };
  if (op == "neg") return negate(w);
  if (op == "sub") {
    w.axiom(20, true, two("add", w.arg(0), node("neg", {w.arg(1)})));
    w.below(1, negate);
    return add(w);
  }
  if (op == "square") {
    w.axiom(21, true, two("mul", w.arg(0), w.arg(0)));
    return multiply(w);
  }
  if (op == "rsqrt") {
    w.axiom(22, true, two("div", leaf("one"), node("sqrt", {w.arg(0)})));
    w.below(1, root);
    return divide(w);
  }
  if (op == "max") {
    const TermPtr x = w.arg(0);
    if (w.t->extents.empty()) return w.axiom(23, false, x);
    if (!is(x, "max")) return;
    std::vector<int> all = w.t->extents;
    all.insert(all.end(), x->extents.begin(), x->extents.end());
    return w.axiom(24, true, node("max", {x->args[0]}, all));
  }
  if ((op == "maximum" || op == "minimum") && compare(w.arg(1), w.arg(0)) < 0)
    w.axiom(op == "maximum" ? 25 : 26, true, node(op, {w.arg(1), w.arg(0)}));
}

}  // namespace

std::vector<Link> to_normal_form(const TermPtr& t) {
  Work w{t, {}};
  normalise(w);
  return std::move(w.links);
}

TermPtr from_pool(const ExprTerm& t) {
  if (t.args.empty()) return leaf(t.op, t.op == "lit" ? static_cast<int>(std::bit_cast<double>(t.id) - 0.25) : static_cast<int>(t.id));
  std::vector<TermPtr> args;
  for (const ExprTerm& a : t.args) args.push_back(from_pool(a));
  return node(t.op, std::move(args), t.extents);
}

TermPtr with_counts(const TermPtr& t, ExprPool& pool) {
  if (t->args.empty()) return t;
  std::vector<TermPtr> args;
  for (const TermPtr& a : t->args) args.push_back(with_counts(a, pool));
  if (t->op == "sum" && !t->extents.empty() && to_pool(args[0], pool) == pool.constant(1)) {
    std::vector<TermPtr> counts;
    for (int k : t->extents) counts.push_back(leaf("ext", k));
    return nested("mul", counts);
  }
  return node(t->op, std::move(args), t->extents);
}

bool yes_replays(const TermPtr& e, const TermPtr& t, ExprPool& pool, int64_t* steps) {
  const auto context = pool.context(to_pool(e, pool), to_pool(t, pool));
  const TermPtr whole = context ? filled(from_pool(*context), e) : nullptr;
  if (!whole) return false;
  const TermPtr a = replay(whole, to_normal_form(whole), steps), b = replay(t, to_normal_form(t), steps);
  return a && b && equal(a, b);
}

}  // namespace mirage::expr_test

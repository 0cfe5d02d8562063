// Trees and axiom rewriting for the tests of lib/expr (terms.h).
#include "unit/expr/terms.h"
#include <algorithm>

namespace mirage::expr_test {

TermPtr leaf(const std::string& op, int id) {
  auto t = std::make_shared<Term>();
  t->op = op;
  t->id = id;
  return t;
}

TermPtr node(const std::string& op, std::vector<TermPtr> args, std::vector<int> extents) {
  auto t = std::make_shared<Term>();
  t->op = op;
  for (const TermPtr& a : args) t->size += a->size;
  t->args = std::move(args);
  std::sort(extents.begin(), extents.end());
  t->extents = std::move(extents);
  return t;
}

bool equal(const TermPtr& a, const TermPtr& b) {
  if (a == b) return true;
  if (a->op != b->op || a->id != b->id || a->extents != b->extents || a->size != b->size || a->args.size() != b->args.size()) return false;
  for (size_t i = 0; i < a->args.size(); ++i)
    if (!equal(a->args[i], b->args[i])) return false;
  return true;
}

int compare(const TermPtr& a, const TermPtr& b) {
  if (a == b) return 0;
  if (a->size != b->size) return a->size < b->size ? -1 : 1;
  if (const int c = a->op.compare(b->op)) return c;
  if (a->id != b->id) return a->id < b->id ? -1 : 1;
  if (a->extents != b->extents) return a->extents < b->extents ? -1 : 1;
  if (a->args.size() != b->args.size()) return a->args.size() < b->args.size() ? -1 : 1;
  for (size_t i = 0; i < a->args.size(); ++i)
    if (const int c = compare(a->args[i], b->args[i])) return c;
  return 0;
}

std::string text(const TermPtr& t) {
  if (t->op == "in" || t->op == "lit" || t->op == "ext") return t->op + std::to_string(t->id);
  std::string s = t->op;
  if (t->op == "sum" || t->op == "max") {
    s += "{";
    for (int k : t->extents) s += std::to_string(k) + ",";
    s += "}";
  }
  if (t->args.empty()) return s;
  s += "(";
  for (const TermPtr& a : t->args) s += (s.back() == '(' ? "" : ", ") + text(a);
  return s + ")";
}

ExprId to_pool(const TermPtr& t, ExprPool& pool) {
  if (t->op == "in") return pool.input(t->id);
  if (t->op == "lit") return pool.constant(0.25 + t->id);
  if (t->op == "ext") return pool.extent(std::vector<int>{t->id});
  if (t->op == "one") return pool.constant(1);
  if (t->op == "minus_one") return pool.constant(-1);
  std::vector<ExprId> args;
  for (const TermPtr& a : t->args) args.push_back(to_pool(a, pool));
  if (t->op == "sum") return pool.sum(args[0], t->extents);
  if (t->op == "max") return pool.max(args[0], t->extents);
  if (t->op == "concat") return pool.concat(args);
  return pool.map(parse_map_fn(t->op).value(), args);
}

bool reduces_one(const TermPtr& t, ExprPool& pool) {
  if (t->op == "sum" && !t->extents.empty() && to_pool(t->args[0], pool) == pool.constant(1)) return true;
  return std::any_of(t->args.begin(), t->args.end(), [&](const TermPtr& a) { return reduces_one(a, pool); });
}

namespace {

Pattern parse_pattern(const std::string& s, size_t& at) {
  Pattern p;
  while (at < s.size() && (std::isalnum(static_cast<unsigned char>(s[at])) || s[at] == '_')) p.op += s[at++];
  if (at >= s.size() || s[at] != '(') return p;
  ++at;
  if (p.op == "sum" || p.op == "max") {
    while (s[at] != ',') p.extents += s[at++];
    ++at;
  }
  for (;;) {
    p.args.push_back(parse_pattern(s, at));
    if (s[at++] == ')') return p;
  }
}

Pattern pattern(const std::string& s) {
  size_t at = 0;
  return parse_pattern(s, at);
}

bool is_variable(const Pattern& p) { return p.op == "x" || p.op == "y" || p.op == "z"; }

struct Bindings {
  std::map<std::string, TermPtr> terms;
  std::map<char, std::vector<int>> extents;
};

bool bind_extents(char name, const std::vector<int>& v, Bindings& b) {
  const auto [it, fresh] = b.extents.emplace(name, v);
  return fresh || it->second == v;
}

bool match_extents(const std::string& p, const std::vector<int>& v, Bindings& b, Rng& rng) {
  if (p.empty()) return true;
  if (p == "1") return v.empty();
  if (p.size() == 1) return bind_extents(p[0], v, b);
  std::vector<int> part[2];
  for (int s : v) part[rng.below(2)].push_back(s);
  return bind_extents(p[0], part[0], b) && bind_extents(p[1], part[1], b);
}

bool match(const Pattern& p, const TermPtr& t, Bindings& b, Rng& rng) {
  if (is_variable(p)) {
    const auto [it, fresh] = b.terms.emplace(p.op, t);
    return fresh || equal(it->second, t);
  }
  if (p.op != t->op || p.args.size() != t->args.size() || !match_extents(p.extents, t->extents, b, rng)) return false;
  for (size_t i = 0; i < p.args.size(); ++i)
    if (!match(p.args[i], t->args[i], b, rng)) return false;
  return true;
}

TermPtr build(const Pattern& p, const Bindings& b) {
  if (is_variable(p)) return b.terms.at(p.op);
  if (p.args.empty()) return leaf(p.op);
  std::vector<int> extents;
  for (char c : p.extents)
    if (c != '1') extents.insert(extents.end(), b.extents.at(c).begin(), b.extents.at(c).end());
  std::vector<TermPtr> args;
  for (const Pattern& a : p.args) args.push_back(build(a, b));
  return node(p.op, std::move(args), std::move(extents));
}

/// Rewrites at the `place`-th match in preorder; `place` counts down.
TermPtr rewrite_at(const TermPtr& t, const Pattern& from, const Pattern& to, int& place, Rng& rng) {
  if (const TermPtr r = rewrite_root(t, from, to, rng))
    if (place-- == 0) return r;
  for (size_t i = 0; i < t->args.size() && place >= 0; ++i)
    if (const TermPtr r = rewrite_at(t->args[i], from, to, place, rng)) {
      std::vector<TermPtr> args = t->args;
      args[i] = r;
      return node(t->op, std::move(args), t->extents);
    }
  return nullptr;
}

int count_matches(const TermPtr& t, const Pattern& from, Rng& rng) {
  Bindings b;
  int n = match(from, t, b, rng);
  for (const TermPtr& a : t->args) n += count_matches(a, from, rng);
  return n;
}

}  // namespace

const std::vector<Axiom>& axioms() {
  static const std::vector<Axiom> all = {
#define AXIOM(number, lhs, rhs) {number, pattern(lhs), pattern(rhs)},
#include "mirage/expr/axioms.def"
#undef AXIOM
  };
  return all;
}

TermPtr rewrite_root(const TermPtr& t, const Pattern& from, const Pattern& to, Rng& rng) {
  Bindings b;
  return match(from, t, b, rng) ? build(to, b) : nullptr;
}

TermPtr rewrite_somewhere(const TermPtr& t, Rng& rng) {
  const Axiom& a = axioms()[rng.below(axioms().size())];
  const bool forward = rng.below(2) == 0;
  const Pattern &from = forward ? a.lhs : a.rhs, &to = forward ? a.rhs : a.lhs;
  const int n = count_matches(t, from, rng);
  if (n == 0) return t;
  int place = static_cast<int>(rng.below(static_cast<uint64_t>(n)));
  const TermPtr r = rewrite_at(t, from, to, place, rng);
  return r ? r : t;
}

namespace {

constexpr const char* kBinary[] = {"add", "mul", "div", "add", "mul", "div", "sub", "maximum", "pow"};
constexpr const char* kUnary[] = {"exp", "sqrt", "exp", "sqrt", "silu", "square", "rsqrt", "neg", "log"};

std::vector<int> random_extents(Rng& rng) {
  std::vector<int> v;
  for (uint64_t n = rng.below(3); n > 0; --n) v.push_back(static_cast<int>(rng.below(3)));
  return v;
}

TermPtr random_leaf(Rng& rng) {
  switch (rng.below(12)) {
    case 0: return leaf("one");
    case 1: return leaf("lit", static_cast<int>(rng.below(2)));
    case 2: return leaf("ext", static_cast<int>(rng.below(3)));
    default: return leaf("in", static_cast<int>(rng.below(4)));
  }
}

}  // namespace

TermPtr random_term(int depth, Rng& rng) {
  if (depth == 0 || rng.below(5) == 0) return random_leaf(rng);
  const TermPtr first = random_term(depth - 1, rng);
  const uint64_t kind = rng.below(20);
  if (kind < 10) return node(kBinary[rng.below(std::size(kBinary))], {first, random_term(depth - 1, rng)});
  if (kind < 15) return node(kUnary[rng.below(std::size(kUnary))], {first});
  if (kind == 15) return node("max", {first}, random_extents(rng));
  if (kind == 16 && depth > 1) return node("where", {first, random_term(1, rng), random_leaf(rng)});
  return node("sum", {first}, random_extents(rng));
}

TermPtr random_context(const TermPtr& inner, Rng& rng) {
  const uint64_t kind = rng.below(20);
  if (kind < 12) {
    std::vector<TermPtr> args{inner, random_term(1 + static_cast<int>(rng.below(2)), rng)};
    if (rng.below(2)) std::swap(args[0], args[1]);
    return node(kBinary[rng.below(std::size(kBinary))], std::move(args));
  }
  if (kind < 16) return node(kUnary[rng.below(std::size(kUnary))], {inner});
  if (kind == 16) return node("max", {inner}, random_extents(rng));
  if (kind == 17) return node("concat", {random_leaf(rng), inner});
  return node("sum", {inner}, random_extents(rng));
}

}  // namespace mirage::expr_test

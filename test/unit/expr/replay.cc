// Replays rewriting chains (replay.h).
#include "unit/expr/replay.h"
#include <algorithm>

namespace mirage::expr_test {
namespace {

struct Bindings {
  std::map<std::string, TermPtr> terms;
  std::map<char, std::vector<int>> extents;
};

/// Extents as a pattern names them. "ij" needs i and j bound: the side of an equation that has them apart is matched first.
bool match_extents(const std::string& p, const std::vector<int>& v, Bindings& b) {
  if (p == "1" || p.empty()) return v.empty();
  if (p.size() == 1) {
    const auto [it, fresh] = b.extents.emplace(p[0], v);
    return fresh || it->second == v;
  }
  std::vector<int> all;
  for (char c : p) {
    if (!b.extents.contains(c)) return false;
    all.insert(all.end(), b.extents[c].begin(), b.extents[c].end());
  }
  std::sort(all.begin(), all.end());
  return all == v;
}

bool match(const Pattern& p, const TermPtr& t, Bindings& b) {
  if (p.op == "x" || p.op == "y" || p.op == "z") {
    const auto [it, fresh] = b.terms.emplace(p.op, t);
    return fresh || equal(it->second, t);
  }
  if (p.op != t->op || p.args.size() != t->args.size() || !match_extents(p.extents, t->extents, b)) return false;
  for (size_t i = 0; i < p.args.size(); ++i)
    if (!match(p.args[i], t->args[i], b)) return false;
  return true;
}

bool is_instance(int number, const TermPtr& lhs, const TermPtr& rhs) {
  for (const Axiom& a : axioms()) {
    if (a.number != number) continue;
    Bindings b;
    return match(a.lhs, lhs, b) && match(a.rhs, rhs, b);   // no axiom has "ij" on its left side
  }
  return false;
}

void flatten(const std::string& op, const TermPtr& t, std::vector<TermPtr>& out) {
  if (t->op != op) { out.push_back(t); return; }
  for (const TermPtr& a : t->args) flatten(op, a, out);
}

bool is_reordering(const std::string& op, const TermPtr& from, const TermPtr& to) {
  std::vector<TermPtr> a, b;
  flatten(op, from, a);
  flatten(op, to, b);
  if (a.size() != b.size()) return false;
  const auto less = [](const TermPtr& x, const TermPtr& y) { return compare(x, y) < 0; };
  std::sort(a.begin(), a.end(), less);
  std::sort(b.begin(), b.end(), less);
  return std::equal(a.begin(), a.end(), b.begin(), [](const TermPtr& x, const TermPtr& y) { return equal(x, y); });
}

int holes(const TermPtr& t) {
  int n = t->op == "hole";
  for (const TermPtr& a : t->args) n += holes(a);
  return n;
}

TermPtr fill(const TermPtr& t, const TermPtr& e) {
  if (t->op == "hole") return e;
  std::vector<TermPtr> args;
  for (const TermPtr& a : t->args) args.push_back(fill(a, e));
  return args.empty() ? t : node(t->op, std::move(args), t->extents);
}

}  // namespace

TermPtr replay(const TermPtr& start, const std::vector<Link>& chain, int64_t* steps) {
  TermPtr t = start;
  for (const Link& s : chain) {
    if (s.kind == Link::Kind::kBelow) {
      const auto i = static_cast<size_t>(s.number);
      if (i >= t->args.size()) return nullptr;
      std::vector<TermPtr> args = t->args;
      if (!(args[i] = replay(args[i], s.below, steps))) return nullptr;
      t = node(t->op, std::move(args), t->extents);
      continue;
    }
    ++*steps;
    const bool ok = s.kind == Link::Kind::kReorder
                        ? (s.number == 3 || s.number == 4) && is_reordering(s.number == 3 ? "add" : "mul", t, s.to)
                    : s.forward ? is_instance(s.number, t, s.to)
                                : is_instance(s.number, s.to, t);
    if (!ok) return nullptr;
    t = s.to;
  }
  return t;
}

TermPtr filled(const TermPtr& context, const TermPtr& e) { return holes(context) == 1 ? fill(context, e) : nullptr; }

}  // namespace mirage::expr_test

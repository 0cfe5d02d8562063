// The theory of axioms.def as quantified formulas over one sort of expressions and one of extent multisets, as the paper hands it to Z3.
#include "driver/decide/z3_judge.h"

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <z3++.h>

namespace mirage {
namespace {

constexpr unsigned kResources = 400'000;   // per question, in Z3's own unit

/// One side of an axiom as text: "mul(add(x,y),z)".
struct Pattern { std::string op, extents; std::vector<Pattern> args; };

Pattern parse(const std::string& s, size_t& at) {
  Pattern p;
  while (at < s.size() && (std::isalnum(static_cast<unsigned char>(s[at])) || s[at] == '_')) p.op += s[at++];
  if (at >= s.size() || s[at] != '(') return p;
  at++;
  if (p.op == "sum" || p.op == "max") {
    while (s[at] != ',') p.extents += s[at++];
    at++;
  }
  for (;;) {
    p.args.push_back(parse(s, at));
    if (s[at++] == ')') return p;
  }
}

class Theory {
 public:
  Theory() : expr_(ctx_.uninterpreted_sort("E")), extent_(ctx_.uninterpreted_sort("N")), solver_(ctx_) {
    z3::params p(ctx_);
    p.set("rlimit", kResources);
    solver_.set(p);
    const z3::expr i = ctx_.constant("i", extent_), j = ctx_.constant("j", extent_), k = ctx_.constant("k", extent_);
    solver_.add(z3::forall(i, j, times(i, j) == times(j, i)));
    solver_.add(z3::forall(i, j, k, times(i, times(j, k)) == times(times(i, j), k)));
    solver_.add(z3::forall(i, times(i, none()) == i));
#define AXIOM(number, lhs, rhs) add_equation(lhs, rhs);
#include "mirage/expr/axioms.def"
#undef AXIOM
    const z3::expr x = ctx_.constant("x", expr_), y = ctx_.constant("y", expr_), z = ctx_.constant("z", expr_);
    solver_.add(z3::forall(x, inside(x, x)));
    solver_.add(z3::forall(x, y, z, z3::implies(inside(x, y) && inside(y, z), inside(x, z))));
    for (const char* op : {"add", "mul", "div", "maximum", "minimum"})
      solver_.add(z3::forall(x, y, inside(x, call(op, {x, y})) && inside(y, call(op, {x, y}))));
    for (const char* op : {"exp", "sqrt"}) solver_.add(z3::forall(x, inside(x, call(op, {x}))));
    for (const char* op : {"sum", "max"}) solver_.add(z3::forall(i, x, inside(x, call(op, {i, x}))));
  }

  z3::check_result ask(const ExprTerm& e, const ExprTerm& t) {
    solver_.push();
    const z3::expr a = of(e), b = of(t);
    solver_.add(!inside(a, b));
    const z3::check_result r = solver_.check();
    solver_.pop();
    return r;
  }

 private:
  z3::expr none() { return ctx_.constant("none", extent_); }
  z3::expr times(const z3::expr& x, const z3::expr& y) { return ctx_.function("times", extent_, extent_, extent_)(x, y); }
  z3::expr inside(const z3::expr& x, const z3::expr& y) { return ctx_.function("inside", expr_, expr_, ctx_.bool_sort())(x, y); }
  z3::expr call(const std::string& op, const std::vector<z3::expr>& args) {
    z3::expr_vector v(ctx_);
    z3::sort_vector sorts(ctx_);
    for (const z3::expr& a : args) { v.push_back(a); sorts.push_back(a.get_sort()); }
    return ctx_.function((op + std::to_string(args.size())).c_str(), sorts, expr_)(v);
  }
  z3::expr of(const ExprTerm& t) {
    if (t.op == "one" || t.op == "minus_one") return ctx_.constant(t.op.c_str(), expr_);
    if (t.op == "in" || t.op == "lit" || t.op == "ext") return ctx_.constant((t.op + std::to_string(t.id)).c_str(), expr_);
    std::vector<z3::expr> args;
    if (t.op == "sum" || t.op == "max") {
      z3::expr n = none();
      for (int s : t.extents) n = times(n, ctx_.constant(("n" + std::to_string(s)).c_str(), extent_));
      args.push_back(n);
    }
    for (const ExprTerm& a : t.args) args.push_back(of(a));
    const size_t first = args.size() - t.args.size();
    const z3::expr out = call(t.op, args);
    for (size_t i = first; i < args.size(); i++) solver_.add(inside(args[i], out));   // of functions that the theory does not name, too
    return out;
  }
  z3::expr of_pattern(const Pattern& p) {
    if (p.args.empty()) return ctx_.constant(p.op.c_str(), expr_);
    std::vector<z3::expr> args;
    if (p.op == "sum" || p.op == "max") {
      z3::expr n = none();
      for (char c : p.extents)
        if (c != '1')
          n = p.extents.size() == 1 ? ctx_.constant(p.extents.c_str(), extent_)
                                    : times(n, ctx_.constant(std::string(1, c).c_str(), extent_));
      args.push_back(n);
    }
    for (const Pattern& a : p.args) args.push_back(of_pattern(a));
    return call(p.op, args);
  }
  void add_equation(const std::string& lhs, const std::string& rhs) {
    size_t a = 0, b = 0;
    const z3::expr equation = of_pattern(parse(lhs, a)) == of_pattern(parse(rhs, b));
    z3::expr_vector v(ctx_);
    for (const char* n : {"x", "y", "z"}) v.push_back(ctx_.constant(n, expr_));
    for (const char* n : {"i", "j"}) v.push_back(ctx_.constant(n, extent_));
    solver_.add(z3::forall(v, equation));
  }

  z3::context ctx_;
  z3::sort expr_, extent_;
  z3::solver solver_;
};

struct JudgeState {
  std::mutex mutex;
  Theory theory;
  Z3JudgeCounts counts;
};

}  // namespace

Z3Judge make_z3_judge() {
  auto state = std::make_shared<JudgeState>();
  auto judge = [state](const ExprTerm& e, const ExprTerm& t) {
    std::lock_guard lock(state->mutex);
    state->counts.asked++;
    z3::check_result r = z3::unknown;
    try {
      r = state->theory.ask(e, t);
    } catch (const z3::exception&) {
    }
    (r == z3::unsat ? state->counts.proved : r == z3::sat ? state->counts.refuted : state->counts.open)++;
    return r != z3::sat;
  };
  return {judge, std::shared_ptr<const Z3JudgeCounts>(state, &state->counts)};
}

}  // namespace mirage

// Laws of real numbers, each at one node.
#include "trust/random/rewrite.h"

#include <cmath>

namespace mirage::test {

namespace {


struct At {
  const P& x;
  Rng& rng;
  std::vector<Rewriting>& out;
  const P& a() const { return x->in[0]; }
  const P& b() const { return x->in[1]; }
  void add(const char* law, P now, bool narrows = false) const {
    if (now->dims == x->dims) out.push_back({law, std::move(now), narrows});
  }
};

bool positive(const P& x) { return sign_of(x) > 0; }
/// Whether x is undefined for some inputs.
bool is_partial(const P& x) {
  for (const P& y : nodes_of(x)) {
    if ((is(y, "div") && !positive(y->in[1])) || ((is(y, "log") || is(y, "rsqrt")) && !positive(y->in[0])) ||
        (is(y, "sqrt") && sign_of(y->in[0]) < 0))
      return true;
    if (is(y, "pow") && sign_of(y->in[0]) < 0 && !(is(y->in[1], "const") && y->in[1]->value >= 1)) return true;
    if (is(y, "call")) return true;
  }
  return false;
}
P one() { return constant(1); }
P neg(P x) { return map("neg", {std::move(x)}); }
P any_constant(Rng& rng) { return constant(std::vector<double>{0.5, 2, 3, 1.5, 10, 0.25}[rng.below(6)]); }

void sums(const At& at) {
  const P& x = at.x;
  if (is(x, "add")) {
    at.add("x + y = y + x", at.b() + at.a());
    at.add("x + y = x - (-y)", at.a() - neg(at.b()));
    if (is(at.a(), "add")) at.add("(x + y) + z = x + (y + z)", at.a()->in[0] + (at.a()->in[1] + at.b()));
    if (is(at.b(), "add")) at.add("x + (y + z) = (x + y) + z", (at.a() + at.b()->in[0]) + at.b()->in[1]);
    if (is(at.b(), "sub")) at.add("x + (y - z) = (x + y) - z", (at.a() + at.b()->in[0]) - at.b()->in[1]);
    if (is(at.a(), "mul") && is(at.b(), "mul") && same(at.a()->in[1], at.b()->in[1]))
      at.add("x z + y z = (x + y) z", (at.a()->in[0] + at.b()->in[0]) * at.a()->in[1]);
    if (is(at.a(), "div") && is(at.b(), "div") && same(at.a()->in[1], at.b()->in[1]))
      at.add("x/z + y/z = (x + y)/z", (at.a()->in[0] + at.b()->in[0]) / at.a()->in[1]);
  }
  if (is(x, "sub")) {
    at.add("x - y = x + (-y)", at.a() + neg(at.b()));
    at.add("x - y = -(y - x)", neg(at.b() - at.a()));
    if (is(at.a(), "add")) at.add("(x + y) - z = x + (y - z)", at.a()->in[0] + (at.a()->in[1] - at.b()));
    if (is(at.b(), "sub")) at.add("x - (y - z) = (x - y) + z", (at.a() - at.b()->in[0]) + at.b()->in[1]);
  }
  if (is(x, "neg")) {
    at.add("-x = 0 - x", constant(0) - at.a());
    at.add("-x = -1 x", constant(-1) * at.a());
    if (is(at.a(), "sub")) at.add("-(x - y) = y - x", at.a()->in[1] - at.a()->in[0]);
  }
}

void products(const At& at) {
  const P& x = at.x;
  if (is(x, "mul")) {
    at.add("x y = y x", at.b() * at.a());
    if (is(at.a(), "mul")) at.add("(x y) z = x (y z)", at.a()->in[0] * (at.a()->in[1] * at.b()));
    if (is(at.b(), "mul")) at.add("x (y z) = (x y) z", (at.a() * at.b()->in[0]) * at.b()->in[1]);
    for (size_t i : {0U, 1U}) {
      const P &s = x->in[i], &o = x->in[1 - i];
      if (is(s, "add")) at.add("(x + y) z = x z + y z", s->in[0] * o + s->in[1] * o);
      if (is(s, "sub")) at.add("(x - y) z = x z - y z", s->in[0] * o - s->in[1] * o);
      if (is(s, "div")) at.add("(x/y) z = (x z)/y", (s->in[0] * o) / s->in[1]);
      if (is(s, "neg")) at.add("(-x) y = -(x y)", neg(s->in[0] * o));
      if (is(s, "where")) at.add("where(c, x, y) z = where(c, x z, y z)", where(s->in[0], s->in[1] * o, s->in[2] * o));
      if ((is(s, "maximum") || is(s, "minimum")) && positive(o))
        at.add("max(x, y) p = max(x p, y p)", map(s->op, {s->in[0] * o, s->in[1] * o}));
      if (is(s, "relu") && positive(o)) at.add("relu(x) p = relu(x p)", map("relu", {s->in[0] * o}));
      if (is(s, "exp") && is(o, "exp")) at.add("e^x e^y = e^(x+y)", map("exp", {s->in[0] + o->in[0]}));
      if (is(s, "sqrt") && is(o, "sqrt") && sign_of(s->in[0]) >= 0 && sign_of(o->in[0]) >= 0)
        at.add("sqrt x sqrt y = sqrt(x y)", map("sqrt", {s->in[0] * o->in[0]}));
    }
    if (same(at.a(), at.b())) at.add("x x = x^2", map("square", {at.a()}));
  }
  if (is(x, "div")) {
    at.add("x/y = x (1/y)", at.a() * (one() / at.b()));
    at.add("x/y = (2x)/(2y)", (at.a() * constant(2)) / (at.b() * constant(2)));
    at.add("x/y = -(x/(-y))", neg(at.a() / neg(at.b())));
    if (is(at.a(), "add")) at.add("(x + y)/z = x/z + y/z", at.a()->in[0] / at.b() + at.a()->in[1] / at.b());
    if (is(at.a(), "mul")) at.add("(x y)/z = x (y/z)", at.a()->in[0] * (at.a()->in[1] / at.b()));
    if (is(at.b(), "mul")) at.add("x/(y z) = (x/y)/z", (at.a() / at.b()->in[0]) / at.b()->in[1]);
    if (is(at.b(), "sqrt")) at.add("x/sqrt y = x rsqrt y", at.a() * map("rsqrt", {at.b()->in[0]}));
    if (is(at.a(), "mul") && same(at.a()->in[1], at.b())) at.add("(x y)/y = x", at.a()->in[0], !positive(at.b()));
    if (at.b()->op == "const" && std::fabs(std::log2(std::fabs(at.b()->value)) - std::round(std::log2(std::fabs(at.b()->value)))) == 0 &&
        at.b()->value != 0)
      at.add("x/2^k = x 2^-k", at.a() * constant(1 / at.b()->value));
  }
  if (is(x, "square")) {
    at.add("x^2 = x x", at.a() * at.a());
    at.add("x^2 = pow(x, 2)", map("pow", {at.a(), constant(2)}));
    at.add("x^2 = |x|^2", map("square", {map("abs", {at.a()})}));
    if (is(at.a(), "sqrt") && sign_of(at.a()->in[0]) >= 0) at.add("sqrt(x)^2 = x", at.a()->in[0]);
    if (is(at.a(), "sub"))
      at.add("(x - y)^2 = x^2 - 2xy + y^2",
             (map("square", {at.a()->in[0]}) - (constant(2) * at.a()->in[0]) * at.a()->in[1]) + map("square", {at.a()->in[1]}));
    if (is(at.a(), "mul")) at.add("(x y)^2 = x^2 y^2", map("square", {at.a()->in[0]}) * map("square", {at.a()->in[1]}));
  }
}

void functions(const At& at) {
  const P& x = at.x;
  if (is(x, "exp")) {
    if (is(at.a(), "add")) at.add("e^(x+y) = e^x e^y", map("exp", {at.a()->in[0]}) * map("exp", {at.a()->in[1]}));
    if (is(at.a(), "sub")) at.add("e^(x-y) = e^x / e^y", map("exp", {at.a()->in[0]}) / map("exp", {at.a()->in[1]}));
    at.add("e^x = 1/e^-x", one() / map("exp", {neg(at.a())}));
    at.add("e^x = (e^(x/2))^2", map("square", {map("exp", {at.a() * constant(0.5)})}));
  }
  if (is(x, "log")) {
    if (is(at.a(), "exp")) at.add("log e^x = x", at.a()->in[0]);
    if (is(at.a(), "mul") && positive(at.a()->in[0]) && positive(at.a()->in[1]))
      at.add("log(x y) = log x + log y", map("log", {at.a()->in[0]}) + map("log", {at.a()->in[1]}));
    if (is(at.a(), "div") && positive(at.a()->in[0]) && positive(at.a()->in[1]))
      at.add("log(x/y) = log x - log y", map("log", {at.a()->in[0]}) - map("log", {at.a()->in[1]}));
    if (is(at.a(), "sqrt")) at.add("log sqrt x = (log x)/2", constant(0.5) * map("log", {at.a()->in[0]}), !positive(at.a()->in[0]));
    if (is(at.a(), "square") && positive(at.a()->in[0])) at.add("log x^2 = 2 log x", constant(2) * map("log", {at.a()->in[0]}));
  }
  if (is(x, "sqrt")) {
    at.add("sqrt x = pow(x, 1/2)", map("pow", {at.a(), constant(0.5)}));
    if (is(at.a(), "square")) at.add("sqrt x^2 = |x|", map("abs", {at.a()->in[0]}));
    if (is(at.a(), "mul") && sign_of(at.a()->in[0]) >= 0 && sign_of(at.a()->in[1]) >= 0)
      at.add("sqrt(x y) = sqrt x sqrt y", map("sqrt", {at.a()->in[0]}) * map("sqrt", {at.a()->in[1]}));
    if (is(at.a(), "exp")) at.add("sqrt e^x = e^(x/2)", map("exp", {at.a()->in[0] * constant(0.5)}));
  }
  if (is(x, "rsqrt")) at.add("rsqrt x = 1/sqrt x", one() / map("sqrt", {at.a()}));
  if (is(x, "sigmoid")) {
    at.add("s(x) = 1/(1 + e^-x)", one() / (one() + map("exp", {neg(at.a())})));
    at.add("s(x) = 1 - s(-x)", one() - map("sigmoid", {neg(at.a())}));
    at.add("s(x) = e^x/(1 + e^x)", map("exp", {at.a()}) / (one() + map("exp", {at.a()})));
    at.add("s(x) = (1 + tanh(x/2))/2", (one() + map("tanh", {at.a() * constant(0.5)})) * constant(0.5));
  }
  if (is(x, "silu")) {
    at.add("silu x = x s(x)", at.a() * map("sigmoid", {at.a()}));
    at.add("silu x = x/(1 + e^-x)", at.a() / (one() + map("exp", {neg(at.a())})));
  }
  if (is(x, "tanh")) {
    at.add("tanh x = 2 s(2x) - 1", constant(2) * map("sigmoid", {constant(2) * at.a()}) - one());
    at.add("tanh x = -tanh -x", neg(map("tanh", {neg(at.a())})));
  }
  if (is(x, "gelu")) at.add("gelu x = x + gelu -x", at.a() + map("gelu", {neg(at.a())}));
  if (is(x, "pow") && at.b()->op == "const") {
    const double e = at.b()->value;
    if (e == 2) at.add("pow(x, 2) = x^2", map("square", {at.a()}));
    if (e == 3) at.add("pow(x, 3) = x x^2", at.a() * map("square", {at.a()}));
    if (e == 4) at.add("pow(x, 4) = (x^2)^2", map("square", {map("square", {at.a()})}));
    if (e == 0.5) at.add("pow(x, 1/2) = sqrt x", map("sqrt", {at.a()}));
  }
}

void orders(const At& at) {
  const P& x = at.x;
  if (is(x, "maximum")) {
    at.add("max(x, y) = max(y, x)", map("maximum", {at.b(), at.a()}));
    at.add("max(x, y) = -min(-x, -y)", neg(map("minimum", {neg(at.a()), neg(at.b())})));
    at.add("max(x, y) = where(x < y, y, x)", where(map("less", {at.a(), at.b()}), at.b(), at.a()));
    at.add("max(x, y) = y + relu(x - y)", at.b() + map("relu", {at.a() - at.b()}));
    if (is(at.a(), "maximum"))
      at.add("max(max(x, y), z) = max(x, max(y, z))", map("maximum", {at.a()->in[0], map("maximum", {at.a()->in[1], at.b()})}));
  }
  if (is(x, "minimum")) {
    at.add("min(x, y) = min(y, x)", map("minimum", {at.b(), at.a()}));
    at.add("min(x, y) = x + y - max(x, y)", (at.a() + at.b()) - map("maximum", {at.a(), at.b()}));
  }
  if (is(x, "relu")) {
    at.add("relu x = max(x, 0)", map("maximum", {at.a(), constant(0)}));
    at.add("relu x = where(x > 0, x, 0)", where(map("greater", {at.a(), constant(0)}), at.a(), constant(0)));
    at.add("relu x = (x + |x|)/2", (at.a() + map("abs", {at.a()})) * constant(0.5));
  }
  if (is(x, "abs")) {
    at.add("|x| = max(x, -x)", map("maximum", {at.a(), neg(at.a())}));
    at.add("|x| = |-x|", map("abs", {neg(at.a())}));
    at.add("|x| = where(x < 0, -x, x)", where(map("less", {at.a(), constant(0)}), neg(at.a()), at.a()));
    if (is(at.a(), "mul")) at.add("|x y| = |x| |y|", map("abs", {at.a()->in[0]}) * map("abs", {at.a()->in[1]}));
  }
  if (is(x, "clamp")) at.add("clamp(x, l, h) = min(max(x, l), h)", map("minimum", {map("maximum", {at.a(), at.b()}), x->in[2]}));
  if (is(x, "add"))
    for (size_t i : {0U, 1U})
      if (const P& m = x->in[i], &o = x->in[1 - i]; is(m, "maximum") || is(m, "minimum"))
        at.add("max(x, y) + z = max(x + z, y + z)", map(m->op, {m->in[0] + o, m->in[1] + o}));
}

void conditions(const At& at) {
  const P& x = at.x;
  if (is(x, "less")) {
    at.add("x < y = y > x", map("greater", {at.b(), at.a()}));
    if (!x->in[0]->is_infinite && !x->in[1]->is_infinite) {
      at.add("x < y = -y < -x", map("less", {neg(at.b()), neg(at.a())}));
      const auto integer = [](const P& y) { return is(y, "iota") || (is(y, "const") && std::nearbyint(y->value) == y->value); };
      const bool integers = integer(at.a()) && integer(at.b());
      if (integers) at.add("i < k = i + 1/2 < k, of integers", map("less", {at.a() + constant(0.5), at.b()}), false);
      if (integers) at.add("i < j = i - j < 0, of integers", map("less", {at.a() - at.b(), constant(0)}));
    }
  }
  if (is(x, "greater")) at.add("x > y = y < x", map("less", {at.b(), at.a()}));
  if (is(x, "equal")) at.add("x == y = y == x", map("equal", {at.b(), at.a()}));
  if (!is(x, "where")) return;
  const P &c = x->in[0], &a = x->in[1], &b = x->in[2];
  at.add("where(c, x, y) = where(c == 0, y, x)", where(map("equal", {where(c, one(), constant(0)), constant(0)}), b, a));
  if (!a->is_infinite && !b->is_infinite) {
    at.add("where(c, x, y) = y + where(c, x - y, 0)", b + where(c, a - b, constant(0)), is_partial(a) || is_partial(b));
    if (!a->in.empty() && is(a, "add") && is(b, "add") && same(a->in[1], b->in[1]))
      at.add("where(c, x + z, y + z) = where(c, x, y) + z", where(c, a->in[0], b->in[0]) + a->in[1]);
    at.add("where(c, x, y) = x [c] + y [not c]", a * where(c, one(), constant(0)) + b * where(c, constant(0), one()),
           is_partial(a) || is_partial(b));
  }
  if (is(c, "less") && same(a, c->in[1]) && same(b, c->in[0])) at.add("where(x < y, y, x) = max(x, y)", map("maximum", {a, b}));
}

void casts(const At& at) {
  const P& x = at.x;
  if (!x->op.starts_with("cast_")) return;
  const P& a = at.a();
  if (is(a, "neg")) at.add("cast(-x) = -cast(x)", neg(map(x->op, {a->in[0]})));
  if (is(a, "abs")) at.add("cast |x| = |cast x|", map("abs", {map(x->op, {a->in[0]})}));
  if (is(a, "maximum") || is(a, "minimum"))
    at.add("cast max(x, y) = max(cast x, cast y)", map(a->op, {map(x->op, {a->in[0]}), map(x->op, {a->in[1]})}));
  if (is(a, "where"))
    at.add("cast where(c, x, y) = where(c, cast x, cast y)", where(a->in[0], map(x->op, {a->in[1]}), map(x->op, {a->in[2]})));
  if (is(a, "reduce.max")) at.add("cast max_i x = max_i cast x", reduce(false, static_cast<int>(a->n[0]), map(x->op, {a->in[0]}), a->n[1]));
  at.add("cast(cast x) = cast x", map(x->op, {map(x->op, {a})}));
  if (x->op != "cast_f32") at.add("cast_f32(cast x) = cast x", map("cast_f32", {x}));
  if (is(a, "input") && ((x->op == "cast_f16" && a->dtype == "f16") || (x->op == "cast_bf16" && a->dtype == "bf16") ||
                         (x->op == "cast_f32" && a->dtype != "bool")))
    at.add("what is stored so is its own cast", a);
}

void insertions(const At& at) {
  const P& x = at.x;
  if (x->is_bool || x->is_infinite) return;
  if (at.rng.below(4)) return;
  const P c = any_constant(at.rng);
  at.add("x = x + 0", x + constant(0));
  at.add("x = (x c)/c", (x * c) / c);
  at.add("x = (x + c) - c", (x + c) - c);
  at.add("x = max(x, x)", map("maximum", {x, x}));
  at.add("x = max(x, x - 1)", map("maximum", {x, x - one()}));
  at.add("x = x/2 + x/2", x * constant(0.5) + x * constant(0.5));
  at.add("x = relu x - relu -x", map("relu", {x}) - map("relu", {neg(x)}));
  at.add("x = where(x < 1, x, x)", where(map("less", {x, one()}), x, x));
  if (positive(x)) at.add("p = e^(log p)", map("exp", {map("log", {x})}));
  if (sign_of(x) >= 0) at.add("p = |p|", map("abs", {x}));
  if (sign_of(x) >= 0) at.add("p = sqrt(p)^2", map("square", {map("sqrt", {x})}));
  at.add("x = log(e^x)", map("log", {map("exp", {x})}));
  at.add("x = (x y)/y", (x * c) / c);
  if (is_map(x) && x->in.size() == 2 && !x->in[1]->is_bool && !x->in[1]->is_infinite && !at.rng.below(4))
    at.add("x = (x y)/y", (x * x->in[1]) / x->in[1], true);
}

}  // namespace

std::vector<Rewriting> algebra_of(const P& x, Rng& rng) {
  std::vector<Rewriting> out;
  const At at{x, rng, out};
  if (!is_map(x)) { insertions(at); return out; }
  bool finite = true;
  for (const P& y : x->in) finite = finite && !y->is_infinite;
  if (finite && !x->in.empty()) {
    sums(at);
    products(at);
    functions(at);
    orders(at);
    casts(at);
  }
  conditions(at);
  insertions(at);
  return out;
}

}  // namespace mirage::test

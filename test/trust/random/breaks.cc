// Changes that break a function: in a term, and in the body of a block graph.
#include "trust/random/rewrite.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace mirage::test {

namespace {

using Broken = std::optional<P>;

P count_of_true(const P& mask) { return sum(static_cast<int>(mask->dims.size()) - 1, where(mask, constant(1), constant(0))); }

Broken other_constant(const P& x, Rng& rng) {
  if (!is(x, "const") || std::isinf(x->value)) return std::nullopt;
  const double v = x->value;
  const std::vector<double> all{v * (1 + 0x1p-20), v * (1 + 1e-7), v * 1.001,         v * 2, -v, v + 1, v - 1,
                                v + 1e-6,          v + 0x1p-24,    v * (1 + 0x1p-34), 0};
  return constant(all[rng.below(all.size())]);
}

Broken other_order(const P& x, Rng& rng) {
  if (x->in.size() < 2) return std::nullopt;
  std::vector<P> in = x->in;
  const size_t at = x->op == "where" ? 1 : rng.below(in.size() - 1);
  if (x->op == "where" && in.size() != 3) return std::nullopt;
  if (!x->text.empty() && (in[at]->dims != in[at + 1]->dims || in[at]->dtype != in[at + 1]->dtype)) return std::nullopt;
  std::swap(in[at], in[at + 1]);
  if (x->op == "matmul" && in[0]->dims[1] != in[1]->dims[0]) return std::nullopt;
  return again(*x, in);
}

Broken other_function(const P& x, Rng& rng) {
  static const std::vector<std::vector<std::string>> kinds = {
      {"add", "sub", "mul", "div", "maximum", "minimum"},
      {"neg", "square", "abs", "relu", "silu", "gelu", "gelu_tanh", "tanh", "sigmoid", "exp"},
      {"sqrt", "rsqrt", "log", "abs"},
      {"less", "greater", "equal"},
      {"cast_f16", "cast_bf16", "cast_f32"}};
  for (const auto& k : kinds) {
    if (std::find(k.begin(), k.end(), x->op) == k.end()) continue;
    const std::string& f = k[rng.below(k.size())];
    if (f != x->op) return map(f, x->in);
  }
  if (is(x, "reduce.sum") || is(x, "reduce.max")) return reduce(is(x, "reduce.max"), static_cast<int>(x->n[0]), x->in[0], x->n[1]);
  return std::nullopt;
}

/// x < y as x <= y and the other way round.
Broken other_strictness(const P& x) {
  if (!is(x, "less") && !is(x, "greater")) return std::nullopt;
  const P turned = map(x->op, {x->in[1], x->in[0]});
  return map("equal", {where(turned, constant(1), constant(0)), constant(0)});
}

Broken off_by_one(const P& x, Rng& rng) {
  const double d = rng.below(2) ? 1 : -1;
  if (is(x, "iota")) return x + constant(d);
  if (is(x, "slice") && x->n[3] == 1) {
    const int64_t e = x->in[0]->dims[static_cast<size_t>(x->n[0])], by = static_cast<int64_t>(d);
    if (x->n[1] + by >= 0 && x->n[2] + by <= e) return slice(static_cast<int>(x->n[0]), x->n[1] + by, x->n[2] + by, x->in[0]);
  }
  return std::nullopt;
}

Broken left_out(const P& x, Rng& rng) {
  if ((is(x, "reduce.sum") || is(x, "reduce.max")) && !x->n[1]) {
    const auto d = static_cast<int>(x->n[0]);
    const int64_t e = x->in[0]->dims[static_cast<size_t>(d)];
    if (e > 1)
      return rng.below(2) ? reduce(is(x, "reduce.sum"), d, slice(d, 0, e - 1, x->in[0]))
                          : reduce(is(x, "reduce.sum"), d, slice(d, 1, e, x->in[0]));
  }
  if (is(x, "matmul") && x->dims.size() == 2 && x->in[0]->dims[1] > 1) {
    const int64_t k = x->in[0]->dims[1];
    return matmul(slice(1, 0, k - 1, x->in[0]), slice(0, 0, k - 1, x->in[1]));
  }
  if (is(x, "where")) return x->in[1 + rng.below(2)];
  if (x->in.size() == 1 && x->in[0]->dims == x->dims && x->in[0]->is_bool == x->is_bool) return x->in[0];   // a function forgotten
  if ((is(x, "add") || is(x, "mul") || is(x, "sub")) && x->in[0]->dims == x->dims) return x->in[0];
  return std::nullopt;
}

Broken other_index(const P& x, Rng& rng) {
  if (is(x, "transpose") && x->dims.size() == 2 && x->dims[0] == x->dims[1]) return x->in[0];
  if (is(x, "concat")) { std::vector<P> in = x->in; std::reverse(in.begin(), in.end()); return concat(static_cast<int>(x->n[0]), in); }
  if (x->dims.size() != 2 || is(x, "const") || x->is_bool) return std::nullopt;
  const int64_t r = x->dims[0], c = x->dims[1];
  if (r == c && r > 1 && rng.below(2)) return transpose({1, 0}, x);
  if (r > 1 && c > 1 && rng.below(2)) return reshape({r, c}, transpose({1, 0}, reshape({c, r}, x)));
  if (c > 1) return concat(1, {slice(1, 1, c, x), slice(1, 0, 1, x)});   // turned by one
  return std::nullopt;
}

Broken beside(const P& x, Rng& rng) {
  if (x->is_bool || x->is_infinite) return std::nullopt;
  switch (rng.below(8)) {
    case 0: return x + constant(1e-6);
    case 1: return x + constant(0x1p-20);
    case 2: return x * constant(1 + 0x1p-20);
    case 3: return map("neg", {x});
    case 4: return map("cast_f16", {x});
    case 5: return map("cast_bf16", {x});
    case 6: return x + constant(0.5);
    default: return map("abs", {x});
  }
}

/// Another value behind a threshold: near, or where no draw of ordinary size comes.
Broken beyond(const P& x, Rng& rng) {
  if (x->is_bool || x->is_infinite || is(x, "const")) return std::nullopt;
  const std::vector<double> all{0, 1, 3, 10, 50, 100, 1000, 1e4, 6e4, 1e6, 1e9};
  const P t = constant(all[rng.below(all.size())] * (rng.below(2) ? 1 : -1));
  switch (rng.below(5)) {
    case 0: return where(map("greater", {x, t}), x + constant(1), x);
    case 1: return where(map("less", {x, t}), constant(0), x);
    case 2: return map("minimum", {x, t});
    case 3: return map("maximum", {x, t});
    default: return where(map("equal", {x, t}), x + constant(1), x);
  }
}

/// Another value where an index is large: the last rows or columns.
Broken far_index(const P& x, Rng& rng) {
  if (x->is_bool || x->dims.size() != 2) return std::nullopt;
  const auto dim = rng.below(2);
  const int64_t e = x->dims[dim];
  if (e < 2) return std::nullopt;
  const int64_t k = rng.below(2) ? e - 1 : e - 1 - static_cast<int64_t>(rng.below(static_cast<uint64_t>(std::max<int64_t>(1, e / 4))));
  Extents d{1, 1};
  d[dim] = e;
  const P i = iota(static_cast<int>(dim), d);
  const P c = rng.below(2) ? map("less", {i, constant(static_cast<double>(k))}) : map("equal", {i, constant(static_cast<double>(k))});
  const P other = rng.below(2) ? constant(0) : x->is_infinite ? constant(1) : x + constant(1);
  return is(c, "less") ? where(c, x, other) : where(c, other, x);
}

/// Another value for masks of one kind: nothing, all, the second half, few.
Broken far_mask(const P& x, const std::vector<P>& inputs, Rng& rng) {
  if (x->is_bool || x->is_infinite || x->dims.size() != 2) return std::nullopt;
  for (const P& m : inputs) {
    if (!m->is_bool || m->dims.size() != 2 || (m->dims[0] != x->dims[0] && m->dims[0] != 1)) continue;
    const double n = static_cast<double>(m->dims[1]);
    const P count = count_of_true(m), half = count_of_true(slice(1, m->dims[1] / 2, m->dims[1], m));
    P c;
    switch (rng.below(6)) {
      case 0: c = map("equal", {count, constant(0)}); break;
      case 1: c = map("equal", {count, constant(n)}); break;
      case 2: c = map("less", {count, constant(std::max(1.0, n / 8))}); break;
      case 3: c = map("equal", {count, constant(1)}); break;
      case 4: c = map("equal", {half, constant(0)}); break;
      default: c = map("greater", {count, constant(n - 2)});
    }
    const P now = where(c, constant(rng.below(2) ? 0 : 7), x);
    if (now->dims == x->dims) return now;
  }
  return std::nullopt;
}

Broken other_input(const P& x, const std::vector<P>& inputs, Rng& rng) {
  if (!is(x, "input")) return std::nullopt;
  std::vector<P> fit;
  for (const P& y : inputs) if (y != x && y->dims == x->dims && y->dtype == x->dtype) fit.push_back(y);
  return fit.empty() ? Broken() : fit[rng.below(fit.size())];
}

/// A mistake in the body of a block graph: words replaced once.
Broken other_body(const P& x, Rng& rng, std::string& kind) {
  if (!is(x, "call")) return std::nullopt;
  static const std::vector<std::pair<std::string, std::string>> edits = {{"accum.sum rescaled 1", "accum.sum"},
                                                                         {"accum.sum rescaled 1", "accum.sum rescaled 2"},
                                                                         {"accum.sum", "accum.max"},
                                                                         {"accum.max", "accum.sum"},
                                                                         {"reduce.sum", "reduce.max"},
                                                                         {"reduce.max", "reduce.sum"},
                                                                         {"exp (sub", "exp (add"},
                                                                         {"= div", "= mul"},
                                                                         {"= mul", "= add"},
                                                                         {"= add", "= sub"},
                                                                         {"= sub", "= add"},
                                                                         {"running ", ""}};
  for (int attempt = 0; attempt < 8; attempt++) {
    const auto& [from, to] = edits[rng.below(edits.size())];
    std::vector<size_t> places;
    for (size_t at = x->text.find(from); at != std::string::npos; at = x->text.find(from, at + 1)) places.push_back(at);
    if (places.empty()) continue;
    Term t = *x;
    const size_t at = places[rng.below(places.size())];
    t.text.replace(at, from.size(), to);
    if (to == "accum.sum" && from.ends_with("rescaled 1")) {   // without its shift
      const size_t line = t.text.find('\n', at), last = t.text.rfind(' ', line);
      t.text.erase(last, line - last);
    }
    kind = "in a block: " + from + " -> " + (to.empty() ? "nothing" : to);
    return std::make_shared<const Term>(t);
  }
  return std::nullopt;
}

}  // namespace

bool break_somewhere(P& root, const std::vector<P>& inputs, Rng& rng, std::string& kind) {
  for (int attempt = 0; attempt < 40; attempt++) {
    const std::vector<P> nodes = nodes_of(root);
    const P& x = nodes[rng.below(nodes.size())];
    Broken b;
    switch (rng.below(15)) {
      case 13: b = far_mask(x, inputs, rng), kind = "for some masks"; break;
      case 14: b = far_index(x, rng), kind = "at large indices"; break;
      case 0: b = other_constant(x, rng), kind = "constant"; break;
      case 1: b = other_order(x, rng), kind = "operands swapped"; break;
      case 2: b = other_function(x, rng), kind = "function"; break;
      case 3: b = other_strictness(x), kind = "strictness"; break;
      case 4: b = off_by_one(x, rng), kind = "off by one"; break;
      case 5: b = left_out(x, rng), kind = "left out"; break;
      case 6: b = other_index(x, rng), kind = "index"; break;
      case 7: b = beside(x, rng), kind = "epsilon, sign or cast"; break;
      case 8: b = beyond(x, rng), kind = "beyond a threshold"; break;
      case 9: b = far_index(x, rng), kind = "at large indices"; break;
      case 10: b = far_mask(x, inputs, rng), kind = "for some masks"; break;
      case 11: b = other_input(x, inputs, rng), kind = "input"; break;
      default: b = other_body(x, rng, kind); break;
    }
    if (!b || (*b)->dims != x->dims || (*b)->is_bool != x->is_bool || *b == x) continue;
    root = with(root, x, *b);
    return true;
  }
  return false;
}

}  // namespace mirage::test

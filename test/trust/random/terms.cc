#include "trust/random/terms.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include <fmt/format.h>

namespace mirage::test {

namespace {

P finish(Term t) {
  for (const P& x : t.in) t.is_infinite = t.is_infinite || x->is_infinite;
  if (t.op == "exp" || t.is_bool) t.is_infinite = false;   // exp(-inf) is 0
  return std::make_shared<const Term>(std::move(t));
}

std::string list(const Extents& d) { return fmt::format("[{}]", fmt::join(d, ",")); }

std::string number(double v) {
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char s[40];
  std::snprintf(s, sizeof s, "%.17g", v);
  return s;
}

}  // namespace

P input(int param, Extents dims, const std::string& dtype) {
  Term t{"input", {}, std::move(dims), dtype == "bool", {param}, 0, "", dtype, false};
  return finish(t);
}
P constant(double v) {
  Term t{"const", {}, {}, false, {}, v, "", "", std::isinf(v)};
  return finish(t);
}
P iota(int dim, Extents dims) { return finish({"iota", {}, std::move(dims), false, {dim}, 0, "", "", false}); }

P map(const std::string& fn, std::vector<P> in) {
  Extents out;
  for (const P& x : in) {
    if (x->dims.size() > out.size()) out.insert(out.begin(), x->dims.size() - out.size(), 1);
    for (size_t d = 0; d < x->dims.size(); d++) {
      int64_t& o = out[out.size() - x->dims.size() + d];
      if (o == 1) o = x->dims[d];
    }
  }
  return finish({fn, std::move(in), out, fn == "less" || fn == "greater" || fn == "equal", {}, 0, "", "", false});
}
P matmul(P a, P b) {
  Extents d = a->dims;
  d.back() = b->dims.back();
  return finish({"matmul", {std::move(a), std::move(b)}, d, false, {}, 0, "", "", false});
}
P reduce(bool is_sum, int dim, P x, int64_t group) {
  Extents d = x->dims;
  int64_t& e = d[static_cast<size_t>(dim)];
  e = group ? e / group : 1;
  return finish({is_sum ? "reduce.sum" : "reduce.max", {std::move(x)}, d, false, {dim, group}, 0, "", "", false});
}
P reshape(Extents dims, P x) {
  const bool b = x->is_bool;
  return finish({"reshape", {std::move(x)}, std::move(dims), b, {}, 0, "", "", false});
}
P transpose(std::vector<int64_t> perm, P x) {
  Extents d;
  for (int64_t p : perm) d.push_back(x->dims[static_cast<size_t>(p)]);
  const bool b = x->is_bool;
  return finish({"transpose", {std::move(x)}, d, b, std::move(perm), 0, "", "", false});
}
P slice(int dim, int64_t start, int64_t stop, P x, int64_t step) {
  Extents d = x->dims;
  d[static_cast<size_t>(dim)] = (stop - start + step - 1) / step;
  const bool b = x->is_bool;
  return finish({"slice", {std::move(x)}, d, b, {dim, start, stop, step}, 0, "", "", false});
}
P concat(int dim, std::vector<P> in) {
  Extents d = in[0]->dims;
  for (size_t i = 1; i < in.size(); i++) d[static_cast<size_t>(dim)] += in[i]->dims[static_cast<size_t>(dim)];
  const bool b = in[0]->is_bool;
  return finish({"concat", std::move(in), d, b, {dim}, 0, "", "", false});
}
P repeat(int dim, int64_t count, P x) {
  Extents d = x->dims;
  d[static_cast<size_t>(dim)] *= count;
  const bool b = x->is_bool;
  return finish({"repeat", {std::move(x)}, d, b, {dim, count}, 0, "", "", false});
}
P call(const std::string& launch, std::vector<P> in, const std::string& body, Extents dims) {
  return finish({"call", std::move(in), std::move(dims), false, {}, 0, launch + "\n" + body, "", false});
}

bool is_map(const P& x) { return parse_map_fn(x->op).has_value(); }
bool is(const P& x, const char* op) { return x->op == op; }
bool is_constant(const P& x, double v) { return x->op == "const" && x->value == v; }

int sign_of(const P& x) {
  const auto of = [&](size_t i) { return sign_of(x->in[i]); };
  if (x->is_infinite) return -1;
  const std::string& f = x->op;
  if (f == "const") return x->value > 0 ? 1 : x->value == 0 ? 0 : -1;
  if (f == "exp") return x->in[0]->is_infinite ? 0 : 1;
  if (f == "sigmoid" || f == "rsqrt") return 1;
  if (f == "sqrt") return std::max(0, of(0));
  if (f == "square" || f == "abs") return std::max(0, of(0));
  if (f == "relu") return std::max(0, of(0));
  if (f == "iota") return 0;
  if (f == "add") return of(0) < 0 || of(1) < 0 ? -1 : std::max(of(0), of(1));
  if (f == "mul" || f == "div") return of(0) < 0 || of(1) < 0 ? -1 : std::min(of(0), of(1));
  if (f == "maximum") return std::max(of(0), of(1));
  if (f == "minimum") return std::min(of(0), of(1));
  if (f == "where") return std::min(of(1), of(2));
  if (f == "reduce.sum" || f == "reduce.max" || f == "transpose" || f == "reshape" || f == "slice" || f == "repeat" || f == "cast_f32")
    return f == "cast_f32" ? std::min(0, of(0)) : of(0);
  if (f == "matmul" ) return of(0) < 0 || of(1) < 0 ? -1 : std::min(of(0), of(1));
  return -1;
}

bool same(const P& a, const P& b) {
  if (a == b) return true;
  if (a->op != b->op || a->dims != b->dims || a->n != b->n || a->text != b->text || a->in.size() != b->in.size() || !(a->value == b->value))
    return false;
  for (size_t i = 0; i < a->in.size(); i++) if (!same(a->in[i], b->in[i])) return false;
  return true;
}

std::vector<P> nodes_of(const P& root) {
  std::vector<P> out;
  std::set<const Term*> seen;
  const std::function<void(const P&)> visit = [&](const P& x) {
    if (!seen.insert(x.get()).second) return;
    for (const P& y : x->in) visit(y);
    out.push_back(x);
  };
  visit(root);
  return out;
}

P again(const Term& t, std::vector<P> in) {
  const auto dim = [&] { return static_cast<int>(t.n[0]); };
  if (t.in.empty()) return finish(t);
  if (t.op == "matmul") return matmul(in[0], in[1]);
  if (t.op == "reduce.sum" || t.op == "reduce.max") return reduce(t.op == "reduce.sum", dim(), in[0], t.n[1]);
  if (t.op == "reshape") return reshape(t.dims, in[0]);
  if (t.op == "transpose") return transpose(t.n, in[0]);
  if (t.op == "slice") return slice(dim(), t.n[1], t.n[2], in[0], t.n[3]);
  if (t.op == "concat") return concat(dim(), std::move(in));
  if (t.op == "repeat") return repeat(dim(), t.n[1], in[0]);
  if (t.op == "call") {
    Term c = t;
    c.in = std::move(in);
    return finish(c);
  }
  return map(t.op, std::move(in));
}

P with(const P& root, const P& old, const P& now) {
  std::unordered_map<const Term*, P> to;
  for (const P& x : nodes_of(root)) {
    if (x == old) { to[x.get()] = now; continue; }
    std::vector<P> in;
    bool changed = false;
    for (const P& y : x->in) {
      in.push_back(to[y.get()]);
      changed = changed || in.back() != y;
    }
    to[x.get()] = changed ? again(*x, std::move(in)) : x;
  }
  return to[root.get()];
}

std::string text_of(const RandomProgram& p) {
  std::string out = "kernel g {\n";
  std::unordered_map<const Term*, std::string> name;
  for (const P& x : p.inputs) {
    name[x.get()] = fmt::format("%i{}", x->n[0]);
    out += fmt::format("%i{} = input {} : {}{}\n", x->n[0], x->n[0], x->dtype, list(x->dims));
  }
  int count = 0;
  for (const P& x : nodes_of(p.result)) {
    if (name.contains(x.get())) continue;
    if (x->op == "const") { name[x.get()] = number(x->value); continue; }
    std::string args;
    for (const P& y : x->in) args += (x->op == "call" && !args.empty() ? ", " : " ") + name[y.get()];
    const std::string to = fmt::format("%v{}", count++);
    name[x.get()] = to;
    std::string head = x->op;
    if (x->op == "iota") head += fmt::format(" {} {}", x->n[0], list(x->dims));
    if (x->op == "reduce.sum" || x->op == "reduce.max")
      head += fmt::format(" {}{}", x->n[0], x->n[1] ? fmt::format(" group {}", x->n[1]) : "");
    if (x->op == "reshape") head += " " + list(x->dims);
    if (x->op == "transpose") head += fmt::format(" ({})", fmt::join(x->n, ","));
    if (x->op == "slice") head += fmt::format(" {} {}:{}{}", x->n[0], x->n[1], x->n[2], x->n[3] == 1 ? "" : fmt::format(":{}", x->n[3]));
    if (x->op == "concat") head += fmt::format(" {}", x->n[0]);
    if (x->op == "repeat") head += fmt::format(" {} {}", x->n[0], x->n[1]);
    if (x->op == "call") {
      const size_t line = x->text.find('\n');
      out += fmt::format("{} = call {} ({}) {{\n{} }}\n", to, x->text.substr(0, line), args.substr(1), x->text.substr(line + 1));
    } else {
      out += fmt::format("{} = {}{}\n", to, head, args);
    }
  }
  return out + fmt::format("output 0 {} : f32\n}}\n", name[p.result.get()]);
}

}  // namespace mirage::test

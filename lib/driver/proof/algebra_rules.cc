// Terms and rules; see the header. A rule names no program: it looks at one node and its operands.
#include "driver/proof/algebra_rules.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>

namespace mirage {

int Terms::make(const std::string& head, std::vector<int> args) {
  const auto [at, is_new] = known_.try_emplace({head, args}, static_cast<int>(parts_.size()));
  if (is_new) parts_.emplace_back(head, std::move(args));
  return at->second;
}

int Terms::map_term(MapFn fn, std::vector<int> args) {
  const std::string name = map_info(fn).name;
  if (name.starts_with("cast")) return args[0];
  if (name == "square") return map_term(MapFn::kMul, {args[0], args[0]});
  if (name == "rsqrt") return make("div", {make("1", {}), make("sqrt", {args[0]})});
  const int one = make("1", {});
  for (size_t i = 0; i < 2 && name == "mul"; i++)
    if (const auto& p = parts_[static_cast<size_t>(args[i])]; p.first == "div" && p.second[0] == one) {
      const int by = p.second[1];   // make() may move the parts
      return make("div", {args[1 - i], by});
    }
  if (is_commutative(fn)) std::sort(args.begin(), args.end());
  return make(name, std::move(args));
}

int Terms::of_node(const Node& n, const std::vector<int>& term, const std::vector<int>& operands) {
  std::vector<int> args;
  for (ValueId v : n.operands) args.push_back(term[static_cast<size_t>(v)]);
  // over a tile, then over the loop: one
  const auto over = [&](const char* fn, int x) { return parts_[static_cast<size_t>(x)].first == fn ? x : make(fn, {x}); };
  if (const auto* in = std::get_if<Input>(&n.op))
    return static_cast<size_t>(in->param) < operands.size() ? operands[static_cast<size_t>(in->param)]
                                                            : make(fmt::format("in{}", in->param), {});
  if (const auto* c = std::get_if<Const>(&n.op)) return make(fmt::format("{:.9g}", c->value), {});
  if (const auto* i = std::get_if<Iota>(&n.op)) return make(fmt::format("iota{}", i->dim), {});
  if (const auto* m = std::get_if<Map>(&n.op)) return map_term(m->fn, args);
  if (std::holds_alternative<MatMul>(n.op)) return make("sum", {map_term(MapFn::kMul, args)});
  if (const auto* r = std::get_if<Reduce>(&n.op)) return over(reduce_name(r->fn), args[0]);
  if (const auto* a = std::get_if<Accum>(&n.op)) return over(reduce_name(a->fn), args[0]);
  if (std::holds_alternative<Running>(n.op)) return over("max", args[0]);
  if (const auto* s = std::get_if<Slice>(&n.op)) return make(fmt::format("slice{}:{}", s->start, s->stop), args);
  if (std::holds_alternative<Concat>(n.op)) return make("concat", args);
  return args.empty() ? make("?", {}) : args[0];   // Repeat, Reshape, Transpose
}

std::vector<int> Terms::of_body(const Graph& g, const std::vector<int>& operands, std::vector<int>& results, std::vector<int>* inside) {
  std::vector<int> term(static_cast<size_t>(g.num_values()), -1);
  results.assign(static_cast<size_t>(g.num_results()), -1);
  for (const Node& n : g.nodes()) {
    if (const auto* call = std::get_if<Call>(&n.op)) {
      std::vector<int> args, made;
      for (ValueId v : n.operands) args.push_back(term[static_cast<size_t>(v)]);
      const std::vector<int> body = of_body(*call->body, args, made, inside);
      if (inside) inside->insert(inside->end(), body.begin(), body.end());
      for (int i = 0; i < n.num_values; i++) term[static_cast<size_t>(n.first_value + i)] = made[static_cast<size_t>(i)];
    } else if (const auto* out = std::get_if<Output>(&n.op)) {
      results[static_cast<size_t>(out->result)] = term[static_cast<size_t>(n.operands[0])];
    } else if (n.num_values > 0) {
      term[static_cast<size_t>(n.first_value)] = of_node(n, term, operands);
    }
  }
  return term;
}

std::vector<int> Terms::of(const Graph& g, std::vector<int>* inside) {
  std::vector<int> results;
  return of_body(g, {}, results, inside);
}

namespace {

/// The value of a node made otherwise; nullopt where the rule does not apply. The operands of `n` are values of `g`; `at` says where they
/// are in the builder.
using At = std::function<ValueId(ValueId)>;
using Rule = std::optional<ValueId> (*)(const Graph& g, const Node& n, Builder& b, const At& at);

bool is_map(const Graph& g, ValueId v, MapFn fn) {
  const auto* m = g.def_form<Map>(v);
  return m && m->fn == fn;
}

/// A factor of a product or quotient: v = rest * factor, or rest / factor.
struct Factor { ValueId rest, factor; MapFn fn; };
std::vector<Factor> factors(const Graph& g, ValueId v) {
  const Node& d = g.def(v);
  if (is_map(g, v, MapFn::kDiv)) return {{d.operands[0], d.operands[1], MapFn::kDiv}};
  if (is_map(g, v, MapFn::kMul)) return {{d.operands[0], d.operands[1], MapFn::kMul}, {d.operands[1], d.operands[0], MapFn::kMul}};
  return {};
}

/// Whether s is the same all along the dimension that is `back` from the last.
bool is_same_along(const Graph& g, ValueId s, int back) {
  const Dims& d = g.dims(s);
  return d.rank() <= back || d[d.rank() - 1 - back] == 1;
}

std::optional<ValueId> out_of_product(const Graph& g, const Node& n, Builder& b, const At& at) {
  if (!std::holds_alternative<MatMul>(n.op)) return std::nullopt;
  for (size_t side = 0; side < 2; side++)
    for (const Factor& f : factors(g, n.operands[side])) {
      if (!is_same_along(g, f.factor, side == 0 ? 0 : 1) || g.dims(f.rest).rank() != g.dims(n.operands[side]).rank()) continue;
      const ValueId x = side == 0 ? at(f.rest) : at(n.operands[0]), y = side == 0 ? at(n.operands[1]) : at(f.rest);
      const auto product = b.try_add(MatMul{}, {x, y});
      if (const auto out = product ? b.try_add(Map{f.fn}, {*product, at(f.factor)}) : std::nullopt) return out;
    }
  return std::nullopt;
}

std::optional<ValueId> out_of_sum(const Graph& g, const Node& n, Builder& b, const At& at) {
  const auto* r = std::get_if<Reduce>(&n.op);
  if (!r || r->fn != ReduceFn::kSum) return std::nullopt;
  for (const Factor& f : factors(g, n.operands[0])) {
    const int rank = g.dims(n.operands[0]).rank();
    if (!is_same_along(g, f.factor, rank - 1 - r->dim) || !(g.dims(f.rest) == g.dims(n.operands[0]))) continue;
    const auto sum = b.try_add(*r, {at(f.rest)});
    if (const auto out = sum ? b.try_add(Map{f.fn}, {*sum, at(f.factor)}) : std::nullopt) return out;
  }
  return std::nullopt;
}

std::optional<ValueId> sum_of_terms(const Graph& g, const Node& n, Builder& b, const At& at) {
  const auto* r = std::get_if<Reduce>(&n.op);
  if (!r || r->fn != ReduceFn::kSum) return std::nullopt;
  for (MapFn fn : {MapFn::kAdd, MapFn::kSub}) {
    const Node& d = g.def(n.operands[0]);
    if (!is_map(g, n.operands[0], fn) || !(g.dims(d.operands[0]) == g.dims(d.operands[1]))) continue;
    const auto x = b.try_add(*r, {at(d.operands[0])}), y = b.try_add(*r, {at(d.operands[1])});
    if (x && y) return b.try_add(Map{fn}, {*x, *y});
  }
  return std::nullopt;
}

std::optional<ValueId> product_of_terms(const Graph& g, const Node& n, Builder& b, const At& at) {
  if (!std::holds_alternative<MatMul>(n.op)) return std::nullopt;
  for (size_t side = 0; side < 2; side++)
    for (MapFn fn : {MapFn::kAdd, MapFn::kSub}) {
      const ValueId v = n.operands[side];
      const Node& d = g.def(v);
      if (!is_map(g, v, fn) || !(g.dims(d.operands[0]) == g.dims(v)) || !(g.dims(d.operands[1]) == g.dims(v))) continue;
      const ValueId other = at(n.operands[1 - side]);
      const auto times = [&](ValueId x) { return side == 0 ? b.try_add(MatMul{}, {at(x), other}) : b.try_add(MatMul{}, {other, at(x)}); };
      const auto x = times(d.operands[0]), y = times(d.operands[1]);
      if (x && y) return b.try_add(Map{fn}, {*x, *y});
    }
  return std::nullopt;
}

std::optional<ValueId> terms_of_product(const Graph& g, const Node& n, Builder& b, const At& at) {
  const auto* m = std::get_if<Map>(&n.op);
  if (!m || (m->fn != MapFn::kAdd && m->fn != MapFn::kSub)) return std::nullopt;
  if (!g.def_form<MatMul>(n.operands[0]) || !g.def_form<MatMul>(n.operands[1])) return std::nullopt;
  const Node &x = g.def(n.operands[0]), &y = g.def(n.operands[1]);
  for (size_t side = 0; side < 2; side++) {
    if (x.operands[side] != y.operands[side] || !(g.dims(x.operands[1 - side]) == g.dims(y.operands[1 - side]))) continue;
    const auto both = b.try_add(*m, {at(x.operands[1 - side]), at(y.operands[1 - side])});
    if (!both) continue;
    return side == 0 ? b.try_add(MatMul{}, {at(x.operands[0]), *both}) : b.try_add(MatMul{}, {*both, at(x.operands[1])});
  }
  return std::nullopt;
}

std::optional<ValueId> other_order(const Graph& g, const Node& n, Builder& b, const At& at) {
  if (!std::holds_alternative<MatMul>(n.op)) return std::nullopt;
  const auto inner = [&](size_t side) { return g.def_form<MatMul>(n.operands[side]) ? &g.def(n.operands[side]) : nullptr; };
  if (const Node* x = inner(0)) {
    const auto right = b.try_add(MatMul{}, {at(x->operands[1]), at(n.operands[1])});
    if (const auto out = right ? b.try_add(MatMul{}, {at(x->operands[0]), *right}) : std::nullopt) return out;
  }
  if (const Node* y = inner(1)) {
    const auto left = b.try_add(MatMul{}, {at(n.operands[0]), at(y->operands[0])});
    if (const auto out = left ? b.try_add(MatMul{}, {*left, at(y->operands[1])}) : std::nullopt) return out;
  }
  return std::nullopt;
}

std::optional<ValueId> joined_product(const Graph& g, const Node& n, Builder& b, const At& at) {
  if (!std::holds_alternative<MatMul>(n.op)) return std::nullopt;
  const auto *x = g.def_form<Concat>(n.operands[0]), *y = g.def_form<Concat>(n.operands[1]);
  const int rank = g.dims(n.operands[0]).rank();
  if (!x || !y || x->dim != rank - 1 || y->dim != rank - 2) return std::nullopt;
  const Node &p = g.def(n.operands[0]), &q = g.def(n.operands[1]);
  if (p.operands.size() != q.operands.size()) return std::nullopt;
  std::optional<ValueId> sum;
  for (size_t i = 0; i < p.operands.size(); i++) {
    const auto one = b.try_add(MatMul{}, {at(p.operands[i]), at(q.operands[i])});
    sum = !one ? std::nullopt : i == 0 ? one : sum ? b.try_add(Map{MapFn::kAdd}, {*sum, *one}) : std::nullopt;
    if (!sum) return std::nullopt;
  }
  return sum;
}

/// a * x / s and the like: the outer factor first.
std::optional<ValueId> factors_turned(const Graph& g, const Node& n, Builder& b, const At& at) {
  if (n.num_values != 1) return std::nullopt;
  for (const Factor& outer : factors(g, n.first_value))
    for (const Factor& inner : factors(g, outer.rest)) {
      if (!(g.dims(inner.rest) == g.dims(n.first_value))) continue;
      const auto first = b.try_add(Map{outer.fn}, {at(inner.rest), at(outer.factor)});
      if (const auto out = first ? b.try_add(Map{inner.fn}, {*first, at(inner.factor)}) : std::nullopt) return out;
    }
  return std::nullopt;
}

/// exp(x - m) / sum(exp(x - m)) and sums beside it: the exponentials without their shift, which cancels.
std::optional<ValueId> square_of_difference(const Graph& g, const Node& n, Builder& b, const At& at) {
  const auto* m = std::get_if<Map>(&n.op);
  if (!m || !(m->fn == MapFn::kSquare || (m->fn == MapFn::kMul && n.operands[0] == n.operands[1])) ||
      !is_map(g, n.operands[0], MapFn::kSub))
    return std::nullopt;
  const Node& d = g.def(n.operands[0]);
  const ValueId x = at(d.operands[0]), y = at(d.operands[1]);
  const auto xx = b.try_add(Map{MapFn::kSquare}, {x}), yy = b.try_add(Map{MapFn::kSquare}, {y}), xy = b.try_add(Map{MapFn::kMul}, {x, y});
  if (!xx || !yy || !xy) return std::nullopt;
  const auto twice = b.try_add(Map{MapFn::kMul}, {*xy, b.constant(2)});
  const auto less = twice ? b.try_add(Map{MapFn::kSub}, {*xx, *twice}) : std::nullopt;
  return less ? b.try_add(Map{MapFn::kAdd}, {*less, *yy}) : std::nullopt;
}

struct NamedRule { const char* name; Rule rule; };
constexpr NamedRule kRules[] = {
    {"a factor that is the same along a product's reduction moves behind the product", out_of_product},
    {"a factor that is the same along a sum moves behind the sum", out_of_sum},
    {"the sum of terms becomes terms of sums", sum_of_terms},
    {"a product of a sum of operands becomes a sum of products", product_of_terms},
    {"products with a common operand become one product", terms_of_product},
    {"products of three factors are made in another order", other_order},
    {"a product of joined operands becomes a sum of products", joined_product},
    {"factors are applied in another order", factors_turned},
    {"the square of a difference is multiplied out", square_of_difference},
};

/// g with one node made by the rule, without what is then unused.
std::optional<Graph> applied(const Graph& g, NodeId target, Rule rule) {
  Builder b(Level::kKernel);
  std::vector<ValueId> to(static_cast<size_t>(g.num_values()), -1);
  const At at = [&](ValueId v) { return to[static_cast<size_t>(v)]; };
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    std::vector<ValueId> operands;
    for (ValueId v : node.operands) operands.push_back(at(v));
    if (n == target) {
      const std::optional<ValueId> made = rule(g, node, b, at);
      if (!made || !(b.graph().dims(*made) == g.dims(node.first_value))) return std::nullopt;
      to[static_cast<size_t>(node.first_value)] = *made;
    } else if (const auto* in = std::get_if<Input>(&node.op)) {
      to[static_cast<size_t>(node.first_value)] = b.add_input(in->param, g.type(node.first_value), in->part);
    } else {
      const auto first = b.try_add(node.op, std::move(operands));
      if (!first) return std::nullopt;
      for (int i = 0; i < node.num_values; i++) to[static_cast<size_t>(node.first_value + i)] = *first + i;
    }
  }
  return remove_dead(b.graph());   // finish() would find the dead ones
}

}  // namespace

std::vector<Rewriting> rewritings(const Graph& g) {
  std::vector<Rewriting> out;
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    if (node.num_values != 1 || std::holds_alternative<Input>(node.op) || std::holds_alternative<Call>(node.op)) continue;
    for (const NamedRule& r : kRules)
      if (auto made = applied(g, n, r.rule)) out.push_back({r.name, std::move(*made)});
  }
  return out;
}

}  // namespace mirage

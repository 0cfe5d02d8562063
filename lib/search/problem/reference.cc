// Field values and expressions of the reference; see reference.h.
#include "search/problem/reference.h"
#include <algorithm>

namespace mirage::search {
namespace {

constexpr double kMostElements = 5e7;   ///< of the values of a witness together, 16 bytes each, all of which are kept

std::vector<FieldTensor> random_params(const std::vector<Type>& types, FieldAlgebra& a, Rng& rng) {
  std::vector<FieldTensor> out;
  for (const Type& t : types) {
    FieldTensor x(t.dims, {});
    for (auto& v : x.data) v = t.dtype == DType::kBool ? a.constant(rng.next() & 1 ? 1.0 : 0.0) : a.random(rng);
    out.push_back(std::move(x));
  }
  return out;
}

/// Elements of all values of a witness.
double elements_of(const Graph& g) {
  double n = 0;
  for (ValueId v = 0; v < g.num_values(); v++) n += static_cast<double>(g.dims(v).elements());
  return n;
}

/// Takes the inputs from params.
std::vector<FieldTensor> evaluate_values(const Graph& g, std::vector<FieldTensor> params, FieldAlgebra& a) {
  std::vector<FieldTensor> values(static_cast<size_t>(g.num_values()));
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    if (node.first_value < 0) continue;
    if (const auto* in = g.form<Input>(n)) {
      values[static_cast<size_t>(node.first_value)] = std::move(params[static_cast<size_t>(in->param)]);
      continue;
    }
    std::vector<const FieldTensor*> args;
    for (ValueId v : node.operands) args.push_back(&values[static_cast<size_t>(v)]);
    values[static_cast<size_t>(node.first_value)] = evaluate_op(node.op, std::span<const FieldTensor* const>(args), a);
  }
  return values;
}

}  // namespace

std::vector<int> extent_symbols(int cls) {
  if (cls < 0) return {};
  return {extent_symbol(cls, Part::kGrid), extent_symbol(cls, Part::kLoop), extent_symbol(cls, Part::kTile)};
}

int exponentials_of(MapFn fn) { return fn == MapFn::kExp || fn == MapFn::kSigmoid || fn == MapFn::kSilu ? 1 : 0; }

int64_t Reference::class_extent(int cls) const {
  for (ValueId v = 0; v < graph().num_values(); v++)
    for (int d = 0; d < graph().dims(v).rank(); d++)
      if (classes.of[static_cast<size_t>(v)][static_cast<size_t>(d)] == cls) return graph().dims(v)[d];
  MIRAGE_ASSERT(false) << "no dimension of class " << cls;
  return 0;
}

Reference make_reference(const Program& program, uint64_t seed, int parts) {
  Reference r;
  r.program = &program;
  r.classes = dim_classes(program.graph, parts);
  r.even = make_witness(program, 0, parts);
  r.ragged = make_witness(program, 1, parts);
  r.refusal = !r.even.refusal.empty() ? r.even.refusal : r.ragged.refusal;
  if (r.refusal.empty() && std::max(elements_of(r.even.graph), elements_of(r.ragged.graph)) > kMostElements)
    r.refusal = "its values take too much memory even at small sizes";
  if (!r.refusal.empty()) return r;
  const uint64_t start = hash_combine(hash_text(print(program.graph)), seed);
  for (uint64_t round = 0;; round++) {
    if (round == 8) { r.refusal = "a denominator is zero for every input"; return r; }
    Rng rng(hash_combine(start, round));
    r.algebra = FieldAlgebra(rng.next());
    r.values = evaluate_values(r.even.graph, random_params(r.even.params, r.algebra, rng), r.algebra);
    r.params_ragged = random_params(r.ragged.params, r.algebra, rng);
    r.results_ragged = evaluate(r.ragged.graph, std::span<const FieldTensor>(r.params_ragged), r.algebra);
    if (!r.algebra.zero_division()) break;
  }
  const Graph& g = program.graph;
  r.exponentials.resize(static_cast<size_t>(g.num_values()));
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    int e = 0;
    for (ValueId v : node.operands) e = std::max(e, r.exponentials[static_cast<size_t>(v)]);
    if (const auto* m = g.form<Map>(n)) e += exponentials_of(m->fn);
    for (int i = 0; i < node.num_values; i++) r.exponentials[static_cast<size_t>(node.first_value + i)] = e;
  }
  return r;
}

ExprId constant_expression(const Reference& ref, const Const& c, ExprPool& pool) {
  if (c.extent_of.empty()) return pool.constant(c.value);
  std::vector<int> symbols;
  for (NodeId n : ref.graph().inputs())
    for (auto [param, dim] : c.extent_of)
      if (ref.graph().form<Input>(n)->param == param)
        for (int s : extent_symbols(ref.classes.of[static_cast<size_t>(ref.graph().node(n).first_value)][static_cast<size_t>(dim)]))
          symbols.push_back(s);
  return pool.extent(symbols);
}

std::vector<ExprId> reference_expressions(const Reference& ref, const Problem& problem, ExprPool& pool) {
  const Graph& g = ref.graph();
  std::vector<ExprId> out(static_cast<size_t>(g.num_values()), -1);
  for (ValueId leaf : problem.leaves) {
    ValueId v = leaf;
    while (is_view(g.def(v).op)) v = g.def(v).operands[0];
    const auto* in = g.def_form<Input>(v);
    out[static_cast<size_t>(leaf)] = pool.input(in ? in->param : static_cast<int>(ref.program->inputs.size()) + leaf);
  }
  for (NodeId n : problem.inside) {
    const Node& node = g.node(n);
    std::vector<ExprId> x;
    for (ValueId v : node.operands) x.push_back(out[static_cast<size_t>(v)]);
    ExprId& e = out[static_cast<size_t>(node.first_value)];
    auto extents_of = [&](ValueId v, int d) { return extent_symbols(ref.classes.of[static_cast<size_t>(v)][static_cast<size_t>(d)]); };
    if (const auto* c = g.form<Const>(n)) e = constant_expression(ref, *c, pool);
    else if (const auto* m = g.form<Map>(n)) e = pool.map(m->fn, x);
    else if (g.form<MatMul>(n)) e = pool.matmul(x[0], x[1], extents_of(node.operands[0], g.dims(node.operands[0]).rank() - 1));
    else if (const auto* r = g.form<Reduce>(n); r && r->fn == ReduceFn::kSum) e = pool.sum(x[0], extents_of(node.operands[0], r->dim));
    else if (r) e = pool.max(x[0], extents_of(node.operands[0], r->dim));
    else if (g.form<Concat>(n)) e = pool.concat(x);
    else e = x[0];   // views
  }
  return out;
}

}  // namespace mirage::search

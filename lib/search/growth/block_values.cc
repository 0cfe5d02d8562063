// Values of block graphs at the witness; see block_values.h.
#include "search/growth/block_values.h"
#include <algorithm>
#include <bit>

namespace mirage::search {
namespace {

constexpr int64_t kValueBytes = 512, kExpressionBytes = 512;   // beside the elements of its tensor: tags, tables, texts; about, measured

uint64_t hash_tensor(const Dims& dims, const std::vector<FieldAlgebra::Value>& data) {
  uint64_t h = 7;
  bool leading = true;   // leading ones do not matter for broadcasting
  for (int64_t d : dims) { leading &= d == 1; if (!leading) h = hash_combine(h, static_cast<uint64_t>(d)); }
  return hash_bytes(data.data(), data.size() * sizeof(data[0]), h);
}

bool has(const std::vector<BlockOp>& ops, const Op& op) {
  return std::any_of(ops.begin(), ops.end(), [&](const BlockOp& o) { return o.op == op; });
}

}  // namespace

std::vector<BlockOp> block_operators(const Reference& ref, const Problem& problem, bool loop, bool partial) {
  const Graph& g = ref.graph();
  std::vector<BlockOp> out;
  std::vector<MapFn> fns;
  bool matmul = false, sum = false, max = false;
  int rank = 0;
  std::vector<BlockOp> views;
  for (NodeId n : problem.inside) {
    const Node& node = g.node(n);
    rank = std::max(rank, g.dims(node.first_value).rank());
    for (ValueId v : node.operands) rank = std::max(rank, g.dims(v).rank());
    if (const auto* m = g.form<Map>(n)) fns.push_back(m->fn);
    if (g.form<MatMul>(n)) matmul = true;
    if (const auto* r = g.form<Reduce>(n)) (r->fn == ReduceFn::kSum ? sum : max) = true;
    if (is_view(node.op) && !has(views, node.op)) views.push_back({node.op, 1, false});
  }
  auto occurs = [&](MapFn f) { return std::count(fns.begin(), fns.end(), f) > 0; };
  if (occurs(MapFn::kDiv) && !occurs(MapFn::kMul)) fns.push_back(MapFn::kMul);
  else if (occurs(MapFn::kMul) && occurs(MapFn::kRsqrt) && !occurs(MapFn::kDiv)) fns.push_back(MapFn::kDiv);
  for (int f = 0; f < num_map_fns(); f++)
    if (occurs(static_cast<MapFn>(f)))
      out.push_back({Map{static_cast<MapFn>(f)}, map_info(static_cast<MapFn>(f)).arity, is_commutative(static_cast<MapFn>(f))});
  if (matmul) out.push_back({MatMul{}, 2, false});
  if (matmul && occurs(MapFn::kAdd)) out.push_back({MatMul{}, 4, false, true});
  for (int d = 0; d < rank; d++) {
    if (sum) out.push_back({Reduce{ReduceFn::kSum, d, 0}, 1, false});
    if (max) out.push_back({Reduce{ReduceFn::kMax, d, 0}, 1, false});
  }
  if (loop && (sum || matmul)) out.push_back({Accum{ReduceFn::kSum}, 1, false});
  if (loop && max) out.push_back({Accum{ReduceFn::kMax}, 1, false});
  if (partial && (sum || matmul)) out.push_back({Accum{ReduceFn::kSum}, 1, false, false, true});
  if (partial && max) out.push_back({Accum{ReduceFn::kMax}, 1, false, false, true});
  out.insert(out.end(), views.begin(), views.end());
  return out;
}

BlockValues::BlockValues(const Reference& ref, const Problem& problem, const Split& split, ExprPool& pool,
                         const std::vector<ExprId>& expressions, bool expression_gate, Meter& meter)
    : ref_(ref),
      algebra_(ref.algebra),
      problem_(problem),
      split_(split),
      pool_(pool),
      expressions_(expressions),
      expression_gate_(expression_gate),
      meter_(meter),
      ops_(block_operators(ref, problem, split.loop_class >= 0, split.partial_axis >= 0)),
      stack_(split.axes + 1) {
  const Graph& g = ref.graph();
  for (NodeId n : problem.inside) {
    const ValueId v = g.node(n).first_value;
    rank_ = std::max(rank_, g.dims(v).rank());
    reference_by_content_[hash_tensor(ref.values[static_cast<size_t>(v)].dims, ref.values[static_cast<size_t>(v)].data)].push_back(v);
  }
  for (const Load& l : split.loads) rank_ = std::max(rank_, g.dims(l.leaf).rank());
  for (ValueId t : problem.targets) max_exponentials_ = std::max(max_exponentials_, ref.exponentials[static_cast<size_t>(t)]);
  for (const BlockOp& op : ops_) if (const auto* r = std::get_if<Reduce>(&op.op)) has_max_ |= r->fn == ReduceFn::kMax;
  fits_ = stack_ + rank_ <= kMaxRank;
  if (!fits_) return;
  for (const Load& l : split.loads) if (fits_) add_load(l);
  for (NodeId n : problem.inside) {
    const auto* c = g.form<Const>(n);
    if (!c) continue;
    BlockValue v;
    v.is_constant = true;
    v.data.dims = Dims{};
    for (int i = 0; i < stack_ + rank_; i++) v.data.dims.push_back(1);
    v.data.data = ref.values[static_cast<size_t>(g.node(n).first_value)].data;
    if (expression_gate) v.expr = constant_expression(ref, *c, pool);
    const int id = intern(std::move(v));
    if (!std::count(constants_.begin(), constants_.end(), id)) { constants_.push_back(id); constant_nodes_[id] = n; }
  }
}

void BlockValues::add_load(const Load& load) {
  const FieldTensor& whole = ref_.values[static_cast<size_t>(load.leaf)];
  const auto& classes = ref_.classes.of[static_cast<size_t>(load.leaf)];
  BlockValue v;
  v.is_load = true;
  v.is_bool = ref_.graph().type(load.leaf).dtype == DType::kBool;
  v.phase = load.part.loop >= 0 ? Phase::kLoop : Phase::kInvariant;
  if (split_.partial_axis >= 0 && load.part.grid[static_cast<size_t>(split_.partial_axis)] >= 0) v.blocks = BlocksPhase::kPart;
  v.expr = expressions_[static_cast<size_t>(load.leaf)];
  Dims tile = whole.dims, strides = row_major_strides(whole.dims), dims, step;
  for (int d = 0; d < tile.rank(); d++) v.tags.push_back({static_cast<int8_t>(classes[static_cast<size_t>(d)]), 0});
  auto stack = [&](int d, uint8_t bit) {   // a split halves a dimension: outermost the block, then the iteration
    if (d < 0) { dims.push_back(1); step.push_back(0); return; }
    if (tile[d] % 2) fits_ = false;
    tile[d] /= 2;
    dims.push_back(2);
    step.push_back(tile[d] * strides[d]);
    v.tags[static_cast<size_t>(d)].split |= bit;
  };
  for (int a = 0; a < split_.axes; a++) stack(load.part.grid[static_cast<size_t>(a)], static_cast<uint8_t>(1u << a));
  stack(load.part.loop, kLoopBit);
  for (int i = tile.rank(); i < rank_; i++) { dims.push_back(1); step.push_back(0); }
  for (int d = 0; d < tile.rank(); d++) { dims.push_back(tile[d]); step.push_back(strides[d]); }
  v.data = eval_detail::gather(whole, dims, step, 0);
  loads_.push_back(intern(std::move(v)));
}

int BlockValues::close(Gate gate, int op, std::span<const int> operands) {
  meter_.count(gate, [&] { return describe(op, operands); });
  return -1;
}

std::string BlockValues::describe(int op, std::span<const int> operands) const {
  const Op& o = ops_[static_cast<size_t>(op)].op;
  std::string s = ops_[static_cast<size_t>(op)].is_concat ? "concat matmul" : form_name(o);
  if (const auto* m = std::get_if<Map>(&o)) s = map_info(m->fn).name;
  if (const auto* r = std::get_if<Reduce>(&o)) s = std::string("reduce.") + reduce_name(r->fn) + " " + std::to_string(r->dim);
  if (const auto* a = std::get_if<Accum>(&o))
    s = std::string(ops_[static_cast<size_t>(op)].over_blocks ? "blocks." : "accum.") + reduce_name(a->fn);
  for (int id : operands) {
    const BlockValue& v = value(id);
    s += (id == operands[0] ? " " : ", ") + (v.expr >= 0 ? pool_.print(v.expr) : "?");
    s += "[";
    for (size_t d = 0; d < v.tags.size(); d++)
      s += (d ? "," : "") + std::to_string(v.data.dims[stack_ + rank_ - static_cast<int>(v.tags.size() - d)]);
    s += v.phase == Phase::kLoop           ? "] in the loop"
         : v.blocks == BlocksPhase::kTotal ? "] after the blocks"
         : v.phase == Phase::kAfter        ? "] after the loop"
                                           : "]";
  }
  return s.size() <= 200 ? s : s.substr(0, 197) + "...";
}

std::optional<Gate> BlockValues::map_tags(const Map& m, std::span<const int> operands, BlockValue& out) const {
  size_t rank = 0;
  for (size_t i = 0; i < operands.size(); i++) {
    const BlockValue& v = value(operands[i]);
    const bool cast = m.fn == MapFn::kCastF16 || m.fn == MapFn::kCastBF16 || m.fn == MapFn::kCastF32;
    if (v.is_bool != (m.fn == MapFn::kWhere && i == 0) && !cast) return Gate::kType;
    rank = std::max(rank, v.tags.size());
  }
  out.tags.resize(rank);
  for (int id : operands) {
    const auto& t = value(id).tags;
    for (size_t d = 0; d < t.size(); d++) {
      DimTag& o = out.tags[d + rank - t.size()];
      if (t[d].cls < 0) continue;
      if (o.cls < 0) o = t[d];
      else if (o.cls != t[d].cls) return Gate::kType;
      else if (o.split != t[d].split) return Gate::kIndex;
    }
  }
  out.is_bool = returns_bool(m.fn);
  return std::nullopt;
}

std::optional<Gate> BlockValues::matmul_tags(std::span<const int> operands, BlockValue& out) const {
  const BlockValue &a = value(operands[0]), &b = value(operands[1]);
  const size_t r = a.tags.size();
  if (a.is_bool || b.is_bool || r < 2 || b.tags.size() != r) return Gate::kType;
  const DimTag k = a.tags[r - 1];
  if (k.cls != b.tags[r - 2].cls) return Gate::kType;
  if (k.split != b.tags[r - 2].split) return Gate::kIndex;
  if (k.split & kGridBits & ~partial_bit()) return Gate::kIndex;   // a sum over blocks
  out.tags.resize(r);
  for (size_t d = 0; d + 2 < r; d++) {
    if (a.tags[d].cls >= 0 && b.tags[d].cls >= 0 && !(a.tags[d] == b.tags[d]))
      return a.tags[d].cls == b.tags[d].cls ? Gate::kIndex : Gate::kType;
    out.tags[d] = a.tags[d].cls < 0 ? b.tags[d] : a.tags[d];
  }
  out.tags[r - 2] = a.tags[r - 2];
  out.tags[r - 1] = b.tags[r - 1];
  return std::nullopt;
}

std::optional<Gate> BlockValues::unary_tags(const BlockOp& op, const BlockValue& x, BlockValue& out) const {
  out.tags = x.tags;
  out.is_folded = x.is_folded;
  const int rank = static_cast<int>(x.tags.size());
  if (const auto* r = std::get_if<Reduce>(&op.op)) {
    if (x.is_bool || r->dim >= rank || x.tags[static_cast<size_t>(r->dim)].cls < 0) return Gate::kType;
    DimTag& t = out.tags[static_cast<size_t>(r->dim)];
    if (t.split & kGridBits & ~partial_bit()) return Gate::kIndex;
    t = {};
    out.is_folded = std::any_of(out.tags.begin(), out.tags.end(), [](DimTag d) { return d.split & kFoldedBit; });
  } else if (std::holds_alternative<Accum>(op.op) && op.over_blocks) {
    if (x.is_bool) return Gate::kType;
    if (x.blocks != BlocksPhase::kPart || x.phase == Phase::kLoop) return Gate::kLaw;
    for (DimTag t : out.tags) if (t.split & partial_bit()) return Gate::kIndex;
    out.blocks = BlocksPhase::kTotal;
  } else if (std::holds_alternative<Accum>(op.op)) {
    if (x.is_bool) return Gate::kType;
    if (x.phase != Phase::kLoop) return Gate::kLaw;
    out.phase = Phase::kAfter;
    for (DimTag& t : out.tags)
      if (t.split & kLoopBit) {
        t.split = static_cast<uint8_t>((t.split & ~kLoopBit) | kFoldedBit);
        out.is_folded = true;
      }
  } else if (const auto* t = std::get_if<Transpose>(&op.op)) {
    for (int d = 0; d < kMaxRank; d++) if (d >= rank && t->perm[static_cast<size_t>(d)] != 0) return Gate::kType;
    unsigned seen = 0;
    for (int d = 0; d < rank; d++) {
      const int from = t->perm[static_cast<size_t>(d)];
      if (from >= rank || (seen >> from & 1)) return Gate::kType;
      seen |= 1u << from;
      out.tags[static_cast<size_t>(d)] = x.tags[static_cast<size_t>(from)];
    }
    out.is_bool = x.is_bool;
  } else if (const auto* s = std::get_if<Reshape>(&op.op)) {   // only ones come or go (witness.cc)
    out.tags.clear();
    size_t i = 0;
    for (int64_t e : s->dims) {
      if (e == 1) { out.tags.push_back({}); continue; }
      while (i < x.tags.size() && x.tags[i].cls < 0) i++;
      if (i == x.tags.size()) return Gate::kType;
      out.tags.push_back(x.tags[i++]);
    }
    for (; i < x.tags.size(); i++) if (x.tags[i].cls >= 0) return Gate::kType;
    Dims tile;   // an index of which a tile has one element is a dimension of the program and none of the tile
    for (int d = 0; d < rank; d++) tile.push_back(x.data.dims[stack_ + rank_ - rank + d]);
    if (static_cast<int>(out.tags.size()) > rank_ || !unit_reshape(tile, s->dims)) return Gate::kType;
    if (out.tags == x.tags) return Gate::kDuplicate;
    out.is_bool = x.is_bool;
  } else {
    return Gate::kType;
  }
  return std::nullopt;
}

std::optional<Gate> BlockValues::infer_tags(const BlockOp& op, std::span<const int> operands, BlockValue& out) const {
  bool loop = false, after = false, folded = false, constant = true, part = false, total = false, behind = false;
  for (int id : operands) {
    const BlockValue& v = value(id);
    loop |= v.phase == Phase::kLoop;
    after |= v.phase == Phase::kAfter;
    folded |= v.is_folded;
    part |= v.blocks == BlocksPhase::kPart;
    total |= v.blocks == BlocksPhase::kTotal;
    behind |= v.blocks == BlocksPhase::kAlike && v.phase == Phase::kAfter;
    constant &= v.is_constant;
    out.exponentials = std::max(out.exponentials, v.exponentials);
  }
  if (loop && after) return Gate::kLaw;
  if (total && (part || loop || behind)) return Gate::kLaw;   // the other kernel sees totals, and what it loads itself
  out.blocks = total ? BlocksPhase::kTotal : part ? BlocksPhase::kPart : BlocksPhase::kAlike;
  if (folded && !std::holds_alternative<Reduce>(op.op)) return Gate::kIndex;   // only a reduction puts a folded index right
  out.phase = loop ? Phase::kLoop : after ? Phase::kAfter : Phase::kInvariant;
  out.is_constant = constant;
  if (const auto* m = std::get_if<Map>(&op.op)) {
    out.exponentials += exponentials_of(m->fn);
    if (auto g = map_tags(*m, operands, out)) return g;
  } else if (std::holds_alternative<MatMul>(op.op)) {
    if (auto g = matmul_tags(operands, out)) return g;
  } else if (auto g = unary_tags(op, value(operands[0]), out)) {
    return g;
  }
  if (out.exponentials > max_exponentials_) return Gate::kExponent;
  return std::nullopt;
}

ExprId BlockValues::expression(const BlockOp& op, std::span<const int> operands) {
  std::vector<ExprId> x;
  for (int id : operands) x.push_back(value(id).expr);
  auto sum_over = [&](DimTag t) {
    std::vector<int> s;
    if (t.cls < 0) return s;
    if (!(t.split & partial_bit())) s.push_back(extent_symbol(t.cls, Part::kGrid));
    if (!(t.split & (kLoopBit | kFoldedBit))) s.push_back(extent_symbol(t.cls, Part::kLoop));
    s.push_back(extent_symbol(t.cls, Part::kTile));
    return s;
  };
  if (const auto* m = std::get_if<Map>(&op.op)) return pool_.map(m->fn, x);
  const BlockValue& v = value(operands[0]);
  if (std::holds_alternative<MatMul>(op.op)) return pool_.matmul(x[0], x[1], sum_over(v.tags.back()));
  if (const auto* r = std::get_if<Reduce>(&op.op)) {
    const auto s = sum_over(v.tags[static_cast<size_t>(r->dim)]);
    return r->fn == ReduceFn::kSum ? pool_.sum(x[0], s) : pool_.max(x[0], s);
  }
  if (const auto* a = std::get_if<Accum>(&op.op)) {
    const int s[] = {op.over_blocks ? extent_symbol(split_.axis_class[static_cast<size_t>(split_.partial_axis)], Part::kGrid)
                                    : extent_symbol(split_.loop_class, Part::kLoop)};
    return a->fn == ReduceFn::kSum ? pool_.sum(x[0], s) : pool_.max(x[0], s);
  }
  return x[0];
}

FieldTensor BlockValues::evaluate(const BlockOp& op, std::span<const int> operands) {
  std::vector<const FieldTensor*> args;
  for (int id : operands) args.push_back(&value(id).data);
  Op stacked = op.op;
  const int rank = static_cast<int>(value(operands[0]).tags.size()), pad = stack_ + rank_ - rank;
  if (auto* r = std::get_if<Reduce>(&stacked)) r->dim += pad;
  if (const auto* a = std::get_if<Accum>(&op.op)) stacked = Reduce{a->fn, op.over_blocks ? split_.partial_axis : stack_ - 1, 0};
  if (const auto* t = std::get_if<Transpose>(&op.op)) {
    Transpose s;
    for (int d = 0; d < pad; d++) s.perm[static_cast<size_t>(d)] = static_cast<int8_t>(d);
    for (int d = 0; d < rank; d++) s.perm[static_cast<size_t>(pad + d)] = static_cast<int8_t>(pad + t->perm[static_cast<size_t>(d)]);
    stacked = s;
  }
  if (const auto* s = std::get_if<Reshape>(&op.op)) {
    Dims tile, to;
    for (int d = 0; d < rank; d++) tile.push_back(args[0]->dims[pad + d]);
    const Dims result = *unit_reshape(tile, s->dims);
    for (int d = 0; d < stack_; d++) to.push_back(args[0]->dims[d]);
    for (int d = result.rank(); d < rank_; d++) to.push_back(1);
    for (int64_t e : result) to.push_back(e);
    stacked = Reshape{to};
  }
  return evaluate_op(stacked, std::span<const FieldTensor* const>(args), algebra_);
}

/// The values of the reference that v is all tiles of; `parts` puts partial sums together that differ by iteration or by block without a
/// dimension to show for it.
std::vector<ValueId> BlockValues::matches(const BlockValue& v, ReduceFn parts) {
  const int pad = stack_ + rank_ - static_cast<int>(v.tags.size());
  // Where element [axes, loop, tile] of v lies in the whole tensor: an axis counts tiles of the dimension that it splits.
  Dims whole, steps;
  for (int d = 0; d < v.data.dims.rank(); d++) steps.push_back(0);
  for (size_t d = 0; d < v.tags.size(); d++) whole.push_back(v.data.dims[pad + static_cast<int>(d)] << std::popcount(v.tags[d].split));
  const Dims strides = row_major_strides(whole);
  unsigned axes = 0;
  for (size_t d = 0; d < v.tags.size(); d++) {
    const int i = static_cast<int>(d);
    int64_t step = steps[pad + i] = strides[i];
    step *= v.data.dims[pad + i];
    if (v.tags[d].split & kLoopBit) { steps[stack_ - 1] = step; step *= 2; }
    for (int a = 0; a < split_.axes; a++) if (v.tags[d].split >> a & 1) { steps[a] = step; axes |= 1u << a; }
  }
  // differs by block without a dimension to show for it
  for (int a = 0; a < split_.axes; a++) if (v.data.dims[a] > 1 && !(axes >> a & 1) && a != split_.partial_axis) return {};
  std::vector<FieldAlgebra::Value> data(static_cast<size_t>(whole.elements()));
  std::vector<bool> written(data.size());
  const std::array<Dims, 2> walk_strides{row_major_strides(v.data.dims), steps};
  eval_detail::walk<2>(v.data.dims, walk_strides, [&](const std::array<int64_t, 2>& i) {
    auto& to = data[static_cast<size_t>(i[1])];
    const auto& from = v.data.data[static_cast<size_t>(i[0])];
    to = written[static_cast<size_t>(i[1])] ? eval_detail::combine(parts, algebra_, to, from) : from;
    written[static_cast<size_t>(i[1])] = true;
  });
  const auto it = reference_by_content_.find(hash_tensor(whole, data));
  return it == reference_by_content_.end() ? std::vector<ValueId>{} : it->second;
}

void BlockValues::recognise(BlockValue& v) {
  if (v.is_folded) return;
  auto shows = [&](uint8_t bit) { return std::any_of(v.tags.begin(), v.tags.end(), [&](DimTag t) { return t.split & bit; }); };
  v.is_partial = (v.phase == Phase::kLoop && !shows(kLoopBit)) || (v.blocks == BlocksPhase::kPart && !shows(partial_bit()));
  v.same_as = matches(v, ReduceFn::kSum);
  if (v.is_partial && v.same_as.empty() && has_max_) v.same_as = matches(v, ReduceFn::kMax);
}

int BlockValues::target_of(int id) const {
  const BlockValue& v = value(id);
  if (v.is_folded || v.phase == Phase::kLoop || (split_.loop_class >= 0 && v.phase != Phase::kAfter) ||
      (split_.partial_axis >= 0 && v.blocks != BlocksPhase::kTotal))
    return -1;
  for (size_t t = 0; t < problem_.targets.size(); t++) {
    if (!std::count(v.same_as.begin(), v.same_as.end(), problem_.targets[t])) continue;
    // a bool and its number have one fingerprint
    if (v.is_bool != (ref_.graph().type(problem_.targets[t]).dtype == DType::kBool)) continue;
    if (static_cast<int>(v.tags.size()) != ref_.graph().dims(problem_.targets[t]).rank()) continue;
    bool stored_so = true;
    for (size_t d = 0; d < v.tags.size(); d++) {
      uint8_t expected = 0;
      for (int a = 0; a < split_.axes; a++)
        if (split_.stores[t].grid[static_cast<size_t>(a)] == static_cast<int>(d)) expected |= static_cast<uint8_t>(1u << a);
      stored_so &= v.tags[d].split == expected;
    }
    if (stored_so) return static_cast<int>(t);
  }
  return -1;
}

/// Field multiplications, about.
int64_t BlockValues::effort_of(const Op& op, const FieldTensor& result, const FieldTensor& first, const FieldTensor& last) {
  const auto n = static_cast<int64_t>(result.data.size());
  constexpr int64_t kPower = 300;   // modulo p, and modulo q
  if (std::holds_alternative<MatMul>(op)) return 2 * n * first.dims.back();
  const auto* m = std::get_if<Map>(&op);
  if (!m) return static_cast<int64_t>(first.data.size());
  switch (m->fn) {
    case MapFn::kAdd: case MapFn::kSub: case MapFn::kMul: case MapFn::kNeg: case MapFn::kSquare: case MapFn::kWhere: return 4 * n;
    case MapFn::kDiv: return 4 * n + kPower * static_cast<int64_t>(last.data.size());   // an inverse for every divisor
    case MapFn::kExp: return 16 * n;
    default: return kPower * n;
  }
}

int BlockValues::apply(int op, std::span<const int> operands) {
  const BlockOp& o = ops_[static_cast<size_t>(op)];
  meter_.report.states++;
  meter_.report.effort++;
  BlockValue v;
  if (auto gate = infer_tags(o, operands, v)) return close(*gate, op, operands);
  if (expression_gate_) {
    const int before = pool_.size();
    const int64_t elements = pool_.elements();
    v.expr = expression(o, operands);
    meter_.report.effort += pool_.elements() - elements;   // of normal forms: each is interned
    if (!meter_.charge((pool_.size() - before) * kExpressionBytes)) return -1;
    const bool inside = std::any_of(problem_.targets.begin(), problem_.targets.end(),
                                    [&](ValueId t) { return pool_.subexpr(v.expr, expressions_[static_cast<size_t>(t)]); });
    if (!inside) return close(Gate::kExpression, op, operands);
  }
  v.data = evaluate(o, operands);
  meter_.report.effort += effort_of(o.op, v.data, value(operands[0]).data, value(operands.back()).data) / 64;
  if (algebra_.zero_division()) {
    algebra_.clear_zero_division();
    return close(Gate::kType, op, operands);
  }
  return intern(std::move(v));
}

int64_t BlockValues::work(int op, std::span<const int> operands, int result) const {
  const Op& o = ops_[static_cast<size_t>(op)].op;
  int64_t n = tile_elements(result);
  if (std::holds_alternative<MatMul>(o))
    n *= value(operands[0]).data.dims.back() + (operands.size() == 4 ? value(operands[1]).data.dims.back() : 0);
  if (std::holds_alternative<Reduce>(o)) n = tile_elements(operands[0]);
  if (is_view(o)) n = 0;
  return value(operands[0]).phase == Phase::kLoop || value(operands.back()).phase == Phase::kLoop ? 2 * n : n;
}

int64_t BlockValues::tile_elements(int id) const {
  int64_t n = 1;
  for (int d = stack_; d < stack_ + rank_; d++) n *= value(id).data.dims[d];
  return n;
}

int BlockValues::intern(BlockValue v) {
  uint64_t h = hash_tensor(v.data.dims, v.data.data);
  h = hash_combine(h, (static_cast<uint64_t>(v.blocks) * 4 + static_cast<uint64_t>(v.phase)) * 2 + v.is_bool);
  for (DimTag t : v.tags) h = hash_combine(h, static_cast<uint64_t>(t.cls + 1) * 256 + t.split);
  if (const auto it = by_content_.find(h); it != by_content_.end()) return it->second;
  if (!meter_.charge(static_cast<int64_t>(v.data.data.size() * sizeof(v.data.data[0])) + kValueBytes)) return -1;
  by_content_.emplace(h, size());
  recognise(v);
  values_.push_back(std::move(v));
  return size() - 1;
}

}  // namespace mirage::search

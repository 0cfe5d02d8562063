// BlockPlanner, second part: which values lie in shared memory (inputs, operands and results of contractions, reductions, accumulators),
// the loads and steps that fill them, paddings and layouts.
#include <algorithm>
#include <numeric>

#include "mirage/support/round.h"
#include "plan/block/block_planner.h"

namespace mirage {
namespace {


}  // namespace

bool BlockPlanner::place() {
  for (NodeId n = 0; n < g().num_nodes(); n++) {
    const Node& node = g().node(n);
    if (chain_ && chain_->inside[static_cast<size_t>(n)]) {
      if (n == g().value(chain_->result).node && !place_chain()) return false;
      continue;
    }
    if (const auto* in = g().form<Input>(n)) place_input(n, *in);
    else if (g().form<MatMul>(n)) { if (!place_contract(n)) return false; }
    else if (g().form<Reduce>(n)) place_reduce(n);
    else if (g().form<Running>(n)) place_running(n);
    else if (g().form<Accum>(n)) place_accum(n);
    else if (g().form<Output>(n)) p_.steps.push_back(step(Step::Kind::kStore, Phase::kAfter, n, node.operands[0], -1));
  }
  return true;
}

Step BlockPlanner::step(Step::Kind kind, Phase phase, NodeId node, ValueId value, int tile) {
  Step s;
  s.kind = kind;
  s.phase = phase;
  s.node = node;
  s.value = value;
  s.tile = tile;
  return s;
}

void BlockPlanner::place_input(NodeId n, const Input& in) {
  const ValueId v = g().node(n).first_value;
  const Access& a = p_.operands[static_cast<size_t>(in.param)];
  SmemTile t;
  t.value = v;
  t.dtype = a.dtype;
  t.extent = p_.extent_of[at(v)];
  const Dims& dims = g().dims(v);
  const int dc = dim_of(dims, 2), dr = dim_of(dims, 1);
  const bool c_contiguous = dc < 0 || a.strides[dc] == 1, r_contiguous = dr >= 0 && a.strides[dr] == 1;
  t.col = !c_contiguous && r_contiguous && t.extent[1] > 1;
  const bool in_loop = in.part.loop >= 0;
  t.stages = in_loop ? p_.stages : 1;
  const int id = add_tile(t);
  p_.tile_of[at(v)] = id;
  p_.loads.push_back({id, n, unit_of(n, in, a, t), in_loop});
}

int BlockPlanner::unit_of(NodeId n, const Input& in, const Access& a, const SmemTile& t) const {
  if (a.by_value) return 0;   // asynchronous copies read device memory only
  const Dims& dims = g().dims(g().node(n).first_value);
  const int line_dim = dim_of(dims, t.col ? 1 : 2);
  const int64_t size = dtype_bytes(a.dtype);
  if (line_dim < 0 || (a.strides[line_dim] != 1 && dims[line_dim] > 1)) return 0;
  int64_t common = std::gcd<int64_t>(16, a.offset * size);
  for (int d = 0; d < dims.rank(); d++) {
    bool split = in.part.loop == d;
    for (int8_t axis : in.part.grid) split |= axis == d;
    if (d != line_dim) { if (dims[d] > 1 || split) common = std::gcd(common, a.strides[d] * size); }
    else if (split) common = std::gcd(common, dims[d] * size);   // starts of tiles; the tail is clipped by bytes
  }
  for (int64_t unit : {16, 8, 4}) if (common % unit == 0 && unit >= size) return static_cast<int>(unit);
  return static_cast<int>(size);
}

std::pair<ValueId, bool> BlockPlanner::behind_transposes(ValueId v) const {
  bool swapped = false;
  while (const auto* t = g().def_form<Transpose>(v)) {
    const int r = g().dims(v).rank();
    if (r >= 2 && t->perm[static_cast<size_t>(r - 1)] != r - 1) swapped = !swapped;
    v = g().def(v).operands[0];
  }
  return {v, swapped};
}

bool BlockPlanner::place_contract(NodeId n) {
  const Node& node = g().node(n);
  const ValueId v = node.first_value;
  std::array<std::pair<ValueId, bool>, 2> source{behind_transposes(node.operands[0]), behind_transposes(node.operands[1])};
  Step s = step(Step::Kind::kContract, phase_[at(v)], n, v, -1);
  s.type = contract_type(g().type(source[0].first).dtype, g().type(source[1].first).dtype, p_.rule);
  s.tensor = s.type != ContractType::kF32;
  for (size_t i = 0; i < 2; i++) {
    int tile = operand_tile(source[i].first, s.type);
    (i ? s.y : s.x) = tile;
    (i ? s.y_transposed : s.x_transposed) = source[i].second;
  }
  s.accumulates = only_accumulated(v, ReduceFn::kSum);
  if (s.accumulates) rescale(s, users_[at(v)][0]);
  SmemTile t;
  t.kind = SmemTile::Kind::kParts;
  t.value = s.accumulates ? g().node(users_[at(v)][0]).first_value : v;
  t.extent = p_.extent_of[at(v)];
  s.tile = add_tile(t);
  p_.tile_of[at(t.value)] = s.tile;
  p_.steps.push_back(s);
  return true;
}

int BlockPlanner::operand_tile(ValueId v, ContractType type) {
  const bool tf32 = type == ContractType::kTF32;
  const DType element = type == ContractType::kF16 ? DType::kF16 : type == ContractType::kBF16 ? DType::kBF16 : DType::kF32;
  if (g().def_form<Input>(v)) {
    const DType stored = p_.tiles[static_cast<size_t>(p_.tile_of[at(v)])].dtype;
    if (stored == element || type == ContractType::kF32 || (tf32 && is16(stored))) return p_.tile_of[at(v)];
  }
  for (size_t i = 0; i < p_.tiles.size(); i++)
    if (p_.tiles[i].kind == SmemTile::Kind::kFilled && p_.tiles[i].value == v && p_.tiles[i].dtype == element && p_.tiles[i].tf32 == tf32)
      return static_cast<int>(i);
  SmemTile t;
  t.kind = SmemTile::Kind::kFilled;
  t.value = v;
  t.dtype = element;
  t.tf32 = tf32;
  t.extent = p_.extent_of[at(v)];
  t.col = is_turned(v);   // lines lie as those that they are made of do
  const int id = add_tile(t);
  p_.steps.push_back(step(Step::Kind::kFill, phase_[at(v)], -1, v, id));
  return id;
}

bool BlockPlanner::only_accumulated(ValueId v, ReduceFn fn) const {
  const auto& u = users_[at(v)];
  if (u.size() != 1) return false;
  const auto* a = g().form<Accum>(u[0]);
  if (!a || a->fn != fn || g().def_form<Running>(v)) return false;
  for (const Existing& e : p_.existing[at(v)])   // registers do not know which results an iteration lacks
    if (e.input >= 0 && g().form<Input>(e.input)->part.loop == e.dim) return false;
  return true;
}

void BlockPlanner::place_reduce(NodeId n) {
  const Node& node = g().node(n);
  const Reduce& r = *g().form<Reduce>(n);
  const ValueId v = node.first_value;
  Step s = step(Step::Kind::kReduce, phase_[at(v)], n, v, -1);
  s.dim3 = index3(g().dims(node.operands[0]), r.dim);
  s.accumulates = only_accumulated(v, r.fn);
  if (s.accumulates) rescale(s, users_[at(v)][0]);
  SmemTile t;
  t.kind = SmemTile::Kind::kParts;
  t.fn = r.fn;
  t.value = s.accumulates ? g().node(users_[at(v)][0]).first_value : v;
  t.extent = p_.extent_of[at(v)];
  s.tile = add_tile(t);
  p_.tile_of[at(t.value)] = s.tile;
  p_.steps.push_back(s);
}

bool BlockPlanner::place_chain() {
  const Chain& c = *chain_;
  const Node &first = g().node(c.scores), &second = g().node(c.contract);
  Step s = step(Step::Kind::kChain, Phase::kLoop, c.contract, c.result, -1);
  std::array<int*, 3> tile{&s.x, &s.y, &s.z};
  std::array<bool*, 3> turned{&s.x_transposed, &s.y_transposed, &s.z_transposed};
  const std::array<ValueId, 3> operand{first.operands[0], first.operands[1], second.operands[1]};
  for (size_t i = 0; i < 3; i++) {
    const auto [v, t] = behind_transposes(operand[i]);
    if (!g().def_form<Input>(v)) return refuse("a softmax between contractions of computed operands");
    *tile[i] = p_.tile_of[at(v)];
    *turned[i] = t;
    const DType type = p_.tiles[static_cast<size_t>(*tile[i])].dtype;
    if (!is16(type) || type != p_.tiles[static_cast<size_t>(s.x)].dtype || p_.extent_of[at(v)][0] != 1)
      return refuse("a softmax between contractions of other operands than of one 16-bit type");
  }
  s.type = p_.tiles[static_cast<size_t>(s.x)].dtype == DType::kF16 ? ContractType::kF16 : ContractType::kBF16;
  s.tensor = true;
  s.accumulates = true;
  s.scores = c.scores;
  s.logit = c.logit;
  auto parts = [&](ValueId v, ReduceFn fn) {
    SmemTile t;
    t.kind = SmemTile::Kind::kParts;
    t.fn = fn;
    t.value = v;
    t.extent = p_.extent_of[at(v)];
    const int id = add_tile(t);
    p_.tile_of[at(v)] = id;
    return id;
  };
  s.tile = parts(c.result, ReduceFn::kSum);
  s.factor = parts(c.last >= 0 ? c.last : c.running, ReduceFn::kMax);
  if (c.sum >= 0) s.sum = parts(c.sum, ReduceFn::kSum);
  p_.steps.push_back(s);
  return true;
}

void BlockPlanner::rescale(Step& s, NodeId n) {
  s.degree = g().form<Accum>(n)->degree;
  if (s.degree) s.factor = factor_of_[at(g().node(n).operands[1])];
}

void BlockPlanner::place_running(NodeId n) {
  const ValueId v = g().node(n).first_value;
  SmemTile t;
  t.kind = SmemTile::Kind::kFilled;
  t.value = v;
  t.extent = p_.extent_of[at(v)];
  t.col = t.extent[2] == 1;
  Step s = step(Step::Kind::kRunning, Phase::kLoop, n, g().node(n).operands[0], add_tile(t));
  s.factor = add_tile(t);
  p_.tile_of[at(v)] = s.tile;
  factor_of_[at(v)] = s.factor;
  p_.steps.push_back(s);
}

void BlockPlanner::place_accum(NodeId n) {
  const ValueId v = g().node(n).first_value;
  if (p_.tile_of[at(v)] >= 0) return;   // its contraction or reduction accumulates in registers
  // its last value
  if (g().def_form<Running>(g().node(n).operands[0]) && g().form<Accum>(n)->fn == ReduceFn::kMax) {
    p_.tile_of[at(v)] = p_.tile_of[at(g().node(n).operands[0])];
    return;
  }
  SmemTile t;
  t.kind = SmemTile::Kind::kFilled;
  t.value = v;
  t.extent = p_.extent_of[at(v)];
  const int id = add_tile(t);
  p_.tile_of[at(v)] = id;
  Step s = step(Step::Kind::kAccumulate, Phase::kLoop, n, g().node(n).operands[0], id);
  rescale(s, n);
  p_.steps.push_back(s);
}

void BlockPlanner::pad(int tile, int k3, int64_t to) {
  auto& x = p_.tiles[static_cast<size_t>(tile)].extent[static_cast<size_t>(k3)];
  x = round_up(x, to);
}

bool BlockPlanner::pads_and_layouts() {
  for (const Step& s : p_.steps) {
    if (s.kind != Step::Kind::kChain) continue;
    for (int k : {1, 2}) for (int tile : {s.x, s.y, s.z}) pad(tile, k, 16);
  }
  for (Step& s : p_.steps) {
    if (s.kind != Step::Kind::kContract || !s.tensor) continue;
    const Extent3& e = p_.extent_of[at(s.value)];
    const auto padded = [](int64_t i, int64_t j) { return round_up(i, 16) * round_up(j, 8); };
    s.swap = padded(e[2], e[1]) < padded(e[1], e[2]) || (padded(e[2], e[1]) == padded(e[1], e[2]) && e[2] > e[1]);
    const int xr = s.x_transposed ? 2 : 1, yc = s.y_transposed ? 1 : 2;
    pad(s.x, xr, s.swap ? 8 : 16);
    pad(s.x, 3 - xr, 16);
    pad(s.y, yc, s.swap ? 16 : 8);
    pad(s.y, 3 - yc, 16);
  }
  std::vector<bool> tensor(p_.tiles.size());
  for (const Step& s : p_.steps)
    if (s.kind == Step::Kind::kContract && s.tensor) tensor[static_cast<size_t>(s.x)] = tensor[static_cast<size_t>(s.y)] = true;
  for (const Step& s : p_.steps)
    if (s.kind == Step::Kind::kChain) for (int tile : {s.x, s.y, s.z}) tensor[static_cast<size_t>(tile)] = true;
  std::vector<bool> along(p_.tiles.size());   // read by lines along the contraction, the same words of neighbouring lines at once
  for (const Step& s : p_.steps) {
    if (s.kind != Step::Kind::kContract || s.tensor) continue;
    const FloatWork w = float_work(p_, s);
    if (w.x_along) along[static_cast<size_t>(s.x)] = true;
    if (w.y_along) along[static_cast<size_t>(s.y)] = true;
  }
  for (size_t i = 0; i < p_.tiles.size(); i++) {
    SmemTile& t = p_.tiles[i];
    const int64_t per = 16 / dtype_bytes(t.dtype);
    const int64_t length = round_up(t.col ? t.extent[1] : t.extent[2], per);
    t.ld = length;
    if (t.kind == SmemTile::Kind::kParts) t.ld = length + 4;
    else if (i < layouts_.size()) { t.ld = layouts_[i].ld; t.swizzle = layouts_[i].kind == LayoutKind::kSwizzled; }
    else if (tensor[i]) t.ld = padded_line(p_, static_cast<int>(i));
    else if (along[i] && length / per % 2 == 0 && length > per) t.ld = length + per;   // lines begin in different banks
  }
  return true;
}

Extent3 BlockPlanner::view(int tile, bool transposed) const {
  Extent3 e = p_.tiles[static_cast<size_t>(tile)].extent;
  if (transposed) std::swap(e[1], e[2]);
  return e;
}

}  // namespace mirage

// Plans a block graph: which values lie in shared memory, which warps contract what, in which order with the fewest barriers, and what it will cost. OSDI'25 section 6, docs/architecture.md.
#include "mirage/plan/block.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "mirage/plan/block_plan.h"
#include "plan/block_internal.h"
#include "plan/chain.h"
#include "plan/layout.h"

namespace mirage {
namespace {

int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }
bool is16(DType t) { return t == DType::kF16 || t == DType::kBF16; }

/// One attempt with fixed threads and stages. Any refusal sets `reason` and ends it.
class BlockPlanner {
 public:
  BlockPlanner(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results, const Target& target, BlockChoice choice, const ContractRule& rule) : target_(target) {
    p_.body = body;
    p_.rule = rule;
    p_.operands = operands;
    p_.results = results;
    p_.threads = choice.threads;
    p_.stages = choice.stages;
    p_.cluster = choice.cluster;
    p_.loop_warps = choice.divide_warps ? choice.threads / 32 : 1;
    if (choice.chain) chain_ = find_chain(body);
  }
  bool run() {
    return shapes() && place() && divides_loop() && pads_and_layouts() && divide_work() && order_steps() && share_memory();
  }
  /// Takes these layouts (one per tile, as layout_options lists the tiles) instead of padding.
  void set_layouts(std::vector<LayoutOption> layouts) { layouts_ = std::move(layouts); }
  BlockPlan take() { return std::move(p_); }
  std::string reason;

 private:
  const Graph& g() const { return p_.body; }
  bool refuse(std::string why) { reason = std::move(why); return false; }
  size_t at(ValueId v) const { return static_cast<size_t>(v); }

  /// Only sums and maxima in registers are added up over blocks and warps, and only those that have no maximum of their own.
  bool divides_loop() {
    if (p_.cluster > 1 || p_.loop_warps > 1)
      for (const Step& s : p_.steps) {
        if (s.kind == Step::Kind::kAccumulate) return refuse("an elementwise accumulator of a divided loop");
        if (s.kind == Step::Kind::kRunning || s.kind == Step::Kind::kChain) return refuse("a running maximum in a divided loop");
      }
    return true;
  }

  // ---- shapes: every value as (b, r, c), and which of its elements exist
  bool shapes() {
    phase_ = phases(g());
    p_.extent_of.resize(at(g().num_values()));
    p_.existing.resize(at(g().num_values()));
    p_.tile_of.assign(at(g().num_values()), -1);
    users_ = g().users();
    for (ValueId v = 0; v < g().num_values(); v++) {
      const Dims& d = g().dims(v);
      int batches = 0;
      for (int i = 0; i + 2 < d.rank(); i++) batches += d[i] > 1;
      if (batches > 1) return refuse("a tile has two batch dimensions above 1: " + to_string(d));
      for (int k = 0; k < 3; k++) {
        const int i = dim_of(d, k);
        p_.extent_of[at(v)][static_cast<size_t>(k)] = i < 0 ? 1 : d[i];
      }
    }
    for (NodeId n = 0; n < g().num_nodes(); n++)
      if (!node_existing(n)) return false;
    return true;
  }

  bool node_existing(NodeId n) {
    const Node& node = g().node(n);
    if (node.first_value < 0) return true;
    auto& e = p_.existing[at(node.first_value)];
    const Dims& dims = g().dims(node.first_value);
    if (const auto* in = g().form<Input>(n)) {
      const Dims& whole = p_.operands[static_cast<size_t>(in->param)].dims;
      for (int d = 0; d < dims.rank(); d++) {
        int64_t grid = 1;
        for (size_t a = 0; a < 3; a++) if (in->part.grid[a] == d) grid = g().launch().grid[a];
        const int64_t loop = in->part.loop == d ? g().launch().loop : 1;
        if (dims[d] * grid * loop == whole[d]) continue;
        bool seen = false;
        for (int k = 0; k < 3; k++) if (dim_of(dims, k) == d) { e[static_cast<size_t>(k)] = {n, d}; seen = true; }
        if (!seen) return refuse("a ragged batch dimension");
      }
      return true;
    }
    auto of = [&](size_t i) -> const std::array<Existing, 3>& { return p_.existing[at(node.operands[i])]; };
    if (g().form<Const>(n)) return true;
    if (g().form<Map>(n)) {
      for (size_t i = 0; i < node.operands.size(); i++)
        for (size_t k = 0; k < 3; k++)
          if (p_.extent_of[at(node.operands[i])][k] == p_.extent_of[at(node.first_value)][k] && of(i)[k].input >= 0) e[k] = of(i)[k];   // not what is broadcast; tiles of extent 1 can be empty, too
      return true;
    }
    if (g().form<MatMul>(n)) {
      e = {Existing{}, of(0)[1], of(1)[2]};
      for (size_t i : {size_t{1}, size_t{0}})
        if (p_.extent_of[at(node.operands[i])][0] == p_.extent_of[at(node.first_value)][0] && of(i)[0].input >= 0) e[0] = of(i)[0];
      return true;
    }
    if (const auto* r = g().form<Reduce>(n)) {
      const int k = index3(g().dims(node.operands[0]), r->dim);
      if (k < 0) return refuse("a reduction over a batch dimension of extent 1");
      const int64_t extent = g().dims(node.operands[0])[r->dim];
      if (r->group > 0 && r->group != extent) return refuse("a grouped reduction inside a block");
      e = of(0);
      e[static_cast<size_t>(k)] = {};
      return true;
    }
    if (g().form<Running>(n)) { e = of(0); return true; }
    if (g().form<Accum>(n)) {
      e = of(0);
      if (node.operands.size() > 1)
        for (const Existing& x : of(1)) if (x.input >= 0 && g().form<Input>(x.input)->part.loop == x.dim) return refuse("a running maximum along a dimension that the loop splits");
      for (Existing& x : e) {   // the first iteration is whole, so the accumulated tile is
        if (x.input < 0 || g().form<Input>(x.input)->part.loop != x.dim) continue;
        const auto& grid = g().form<Input>(x.input)->part.grid;
        if (std::find(grid.begin(), grid.end(), x.dim) != grid.end()) return refuse("an accumulator over a ragged dimension that the grid splits too");   // a block's first iteration may be short
        x = {};
      }
      return true;
    }
    if (const auto* t = g().form<Transpose>(n)) {
      const int r = dims.rank();
      for (int i = 0; i + 2 < r; i++) if (t->perm[static_cast<size_t>(i)] != i) return refuse("a transpose of batch dimensions inside a block");
      e = of(0);
      if (r >= 2 && t->perm[static_cast<size_t>(r - 1)] != r - 1) std::swap(e[1], e[2]);
      return true;
    }
    return refuse(std::string("no code for ") + form_name(node.op) + " inside a block");
  }

  static int index3(const Dims& d, int dim) {
    for (int k = 0; k < 3; k++) if (dim_of(d, k) == dim) return k;
    return -1;
  }

  // ---- places: tiles for inputs, contraction operands, results of contractions, reductions and accumulators
  int add_tile(SmemTile t) { p_.tiles.push_back(t); return static_cast<int>(p_.tiles.size()) - 1; }

  bool place() {
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

  Step step(Step::Kind kind, Phase phase, NodeId node, ValueId value, int tile) {
    Step s;
    s.kind = kind;
    s.phase = phase;
    s.node = node;
    s.value = value;
    s.tile = tile;
    return s;
  }

  void place_input(NodeId n, const Input& in) {
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

  /// The largest copy unit that every address and length of the load allows; 0 where lines are not contiguous.
  int unit_of(NodeId n, const Input& in, const Access& a, const SmemTile& t) const {
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

  /// The value behind transposes, and whether an odd number of them swaps r and c.
  std::pair<ValueId, bool> behind_transposes(ValueId v) const {
    bool swapped = false;
    while (const auto* t = g().def_form<Transpose>(v)) {
      const int r = g().dims(v).rank();
      if (r >= 2 && t->perm[static_cast<size_t>(r - 1)] != r - 1) swapped = !swapped;
      v = g().def(v).operands[0];
    }
    return {v, swapped};
  }

  bool place_contract(NodeId n) {
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

  /// A tile that holds v for a contraction of this type: the input's own, or one that a fill step makes. TF32 takes stored numbers as they are: it holds 16-bit ones, and rounds float32 as it reads them.
  int operand_tile(ValueId v, ContractType type) {
    const bool tf32 = type == ContractType::kTF32;
    const DType element = type == ContractType::kF16 ? DType::kF16 : type == ContractType::kBF16 ? DType::kBF16 : DType::kF32;
    if (g().def_form<Input>(v)) {
      const DType stored = p_.tiles[static_cast<size_t>(p_.tile_of[at(v)])].dtype;
      if (stored == element || type == ContractType::kF32 || (tf32 && is16(stored))) return p_.tile_of[at(v)];
    }
    for (size_t i = 0; i < p_.tiles.size(); i++)
      if (p_.tiles[i].kind == SmemTile::Kind::kFilled && p_.tiles[i].value == v && p_.tiles[i].dtype == element && p_.tiles[i].tf32 == tf32) return static_cast<int>(i);
    SmemTile t;
    t.kind = SmemTile::Kind::kFilled;
    t.value = v;
    t.dtype = element;
    t.tf32 = tf32;
    t.extent = p_.extent_of[at(v)];
    const int id = add_tile(t);
    p_.steps.push_back(step(Step::Kind::kFill, phase_[at(v)], -1, v, id));
    return id;
  }

  /// Whether v's one use is an accumulator of the same function, so that it can stay in registers over the loop.
  bool only_accumulated(ValueId v, ReduceFn fn) const {
    const auto& u = users_[at(v)];
    if (u.size() != 1) return false;
    const auto* a = g().form<Accum>(u[0]);
    if (!a || a->fn != fn || g().def_form<Running>(v)) return false;
    for (const Existing& e : p_.existing[at(v)])   // registers do not know which results an iteration lacks
      if (e.input >= 0 && g().form<Input>(e.input)->part.loop == e.dim) return false;
    return true;
  }

  void place_reduce(NodeId n) {
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

  /// Contractions of stored tiles of one 16-bit type, one batch: what mma.sync takes from registers.
  bool place_chain() {
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
      if (!is16(type) || type != p_.tiles[static_cast<size_t>(s.x)].dtype || p_.extent_of[at(v)][0] != 1) return refuse("a softmax between contractions of other operands than of one 16-bit type");
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

  /// Warps along rows and keys, as many as there are.
  bool divide_chain(Step& s, int warps) {
    const Extent3 x = view(s.x, s.x_transposed), y = view(s.y, s.y_transposed), z = view(s.z, s.z_transposed);
    if (x[2] != y[1] || y[2] != z[1]) return refuse("paddings of a contraction's inner extents differ");
    s.wi = static_cast<int>(x[1] / 16);
    if (warps % s.wi) return refuse("warps that do not divide over the rows of a softmax");
    s.wk = warps / s.wi;
    if (y[2] % (16 * s.wk)) return refuse("warps that do not divide over the keys of a softmax");
    const int64_t most = p_.threads <= 128 ? 160 : p_.threads <= 256 ? 128 : 64;
    if (y[2] / s.wk / 2 + z[2] / 2 > most) return refuse("a softmax's scores and results exceed the registers");
    auto shape = [&](int tile, int64_t columns) {
      SmemTile& t = p_.tiles[static_cast<size_t>(tile)];
      t.extent = {1, x[1], columns};
      t.ld = round_up(columns, 4) + 4;
      t.parts = s.wk;
    };
    shape(s.tile, z[2]);
    shape(s.factor, 1);
    if (s.sum >= 0) shape(s.sum, 1);
    return true;
  }

  /// The step accumulates into what node n, an Accum, is.
  void rescale(Step& s, NodeId n) {
    s.degree = g().form<Accum>(n)->degree;
    if (s.degree) s.factor = factor_of_[at(g().node(n).operands[1])];
  }

  void place_running(NodeId n) {
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

  void place_accum(NodeId n) {
    const ValueId v = g().node(n).first_value;
    if (p_.tile_of[at(v)] >= 0) return;   // its contraction or reduction accumulates in registers
    if (g().def_form<Running>(g().node(n).operands[0]) && g().form<Accum>(n)->fn == ReduceFn::kMax) { p_.tile_of[at(v)] = p_.tile_of[at(g().node(n).operands[0])]; return; }   // its last value
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

  // ---- padding: tensor-core extents; line lengths so that ldmatrix rows fall into different banks
  void pad(int tile, int k3, int64_t to) { auto& x = p_.tiles[static_cast<size_t>(tile)].extent[static_cast<size_t>(k3)]; x = round_up(x, to); }

  bool pads_and_layouts() {
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
    for (size_t i = 0; i < p_.tiles.size(); i++) {
      SmemTile& t = p_.tiles[i];
      const int64_t per = 16 / dtype_bytes(t.dtype);
      const int64_t length = round_up(t.col ? t.extent[1] : t.extent[2], per);
      t.ld = length;
      if (t.kind == SmemTile::Kind::kParts) t.ld = length + 4;
      else if (i < layouts_.size()) { t.ld = layouts_[i].ld; t.swizzle = layouts_[i].kind == LayoutKind::kSwizzled; }
      else if (tensor[i]) t.ld = padded_line(p_, static_cast<int>(i));
    }
    return true;
  }

  Extent3 view(int tile, bool transposed) const {
    Extent3 e = p_.tiles[static_cast<size_t>(tile)].extent;
    if (transposed) std::swap(e[1], e[2]);
    return e;
  }

  /// Whether every warp runs the step alone, on tiles of its own.
  bool own_warp(const Step& s) const { return p_.loop_warps > 1 && s.phase == Phase::kLoop; }

  // ---- division of work: warps over contractions, threads over reductions
  bool divide_work() {
    const int warps = p_.threads / 32;
    int accumulating = 0;
    for (const Step& s : p_.steps) accumulating += s.kind == Step::Kind::kContract && s.accumulates;
    const int64_t registers = accumulating > 1 ? 48 : 80;   // accumulators per thread that still leave room for fragments
    for (Step& s : p_.steps) {
      SmemTile* out = s.tile >= 0 ? &p_.tiles[static_cast<size_t>(s.tile)] : nullptr;
      if (s.kind == Step::Kind::kChain && !divide_chain(s, warps)) return false;
      if (s.kind == Step::Kind::kContract) {
        const Extent3 x = view(s.x, s.x_transposed), y = view(s.y, s.y_transposed);
        if (x[2] != y[1]) return refuse("paddings of a contraction's inner extents differ");
        const int64_t batches = std::max(x[0], y[0]);
        if (s.tensor) {
          out->extent = {batches, x[1], y[2]};
          const int64_t i = (s.swap ? y[2] : x[1]) / 16, j = (s.swap ? x[1] : y[2]) / 8, k = x[2] / 16;
          const bool own = own_warp(s);
          if (!choose_warps(s, own ? 1 : warps, batches, i, j, k, registers)) return refuse("a contraction's accumulators exceed the registers");
          out->parts = own ? p_.loop_warps : s.wk;
        } else {
          out->extent = {batches, x[1], y[2]};   // operands may be padded for another contraction, on tensor cores
          const int64_t columns = y[2], team = own_warp(s) ? 32 : p_.threads;
          if (own_warp(s)) out->parts = p_.loop_warps;
          s.tj = columns >= 32 ? 32 : columns > 8 ? 16 : columns > 4 ? 8 : 4;
          const int64_t each = batches * ((x[1] + team / s.tj - 1) / (team / s.tj)) * ((columns + s.tj - 1) / s.tj);
          if (each > registers) return refuse("a contraction's accumulators exceed the registers");
        }
        const int64_t per = 4;
        out->ld = round_up(out->extent[2], per) + 4;
      } else if (s.kind == Step::Kind::kReduce) {
        const Extent3 in = p_.extent_of[at(g().node(s.node).operands[0])];
        const int64_t extent = in[static_cast<size_t>(s.dim3)], outs = in[0] * in[1] * in[2] / extent;
        s.width = s.dim3 == 2 && extent % 8 == 0 ? 8 : 1;
        const int team = own_warp(s) ? 32 : p_.threads;
        int group = team;
        while (group > 1 && (group / 2 * s.width >= extent || group * std::min<int64_t>(outs, team) > team)) group /= 2;
        s.group = group;
        out->parts = own_warp(s) ? p_.loop_warps : std::max(1, group / 32);
        if (outs / std::max(1, team / group) > 64) return refuse("a reduction's partial results exceed the registers");
      }
    }
    for (Step& s : p_.steps) {
      if (s.kind != Step::Kind::kFill) continue;
      const SmemTile& t = p_.tiles[static_cast<size_t>(s.tile)];
      if (!t.col && t.extent[2] % 8 == 0 && p_.extent_of[at(s.value)][2] > 1) s.width = 8;
    }
    if (p_.loop_warps > 1) {
      for (const Load& l : p_.loads) if (l.in_loop) p_.tiles[static_cast<size_t>(l.tile)].copies = p_.loop_warps;
      for (const Step& s : p_.steps) {
        if (s.phase != Phase::kLoop || s.tile < 0 || s.accumulates) continue;
        if (s.kind != Step::Kind::kFill) return refuse("a stored result inside a loop that is divided over warps");
        p_.tiles[static_cast<size_t>(s.tile)].copies = p_.loop_warps;
      }
    }
    if (p_.cluster > 1)
      for (Step& s : p_.steps) {
        if (!s.accumulates) continue;
        SmemTile x = p_.tiles[static_cast<size_t>(s.tile)];
        x.parts = p_.cluster;
        s.exchange = add_tile(x);
      }
    for (SmemTile& t : p_.tiles) {
      const int64_t lines = t.extent[0] * (t.col ? t.extent[2] : t.extent[1]);
      t.bytes = round_up(lines * t.ld * dtype_bytes(t.dtype), 128) * (t.kind == SmemTile::Kind::kInput ? t.stages : 1) * t.copies;
      if (t.kind == SmemTile::Kind::kParts) t.bytes = round_up(lines * t.ld * 4 * t.parts, 128);
    }
    return true;
  }

  /// The split of warps over i, j, k tiles with the fewest shared-memory reads whose accumulators fit; splitting k costs nothing in the loop.
  static bool choose_warps(Step& s, int warps, int64_t batches, int64_t i, int64_t j, int64_t k, int64_t registers) {
    double best = 1e30;
    for (int wi = 1; wi <= warps; wi++)
      for (int wj = 1; wi * wj <= warps; wj++) {
        if (i % wi || j % wj) continue;
        if (batches * (i / wi) * (j / wj) * 4 > registers) continue;
        const int wk = static_cast<int>(std::min<int64_t>(warps / (wi * wj), k));
        const double rounds = static_cast<double>((k + wk - 1) / wk);
        const double reads = static_cast<double>(wi * wj) * (static_cast<double>(i / wi) + static_cast<double>(j / wj) / 2);
        const double cost = rounds * static_cast<double>((i / wi) * (j / wj)) + 0.25 * rounds * reads / (wi * wj) + 0.05 * wk;
        if (cost < best) { best = cost; s.wi = wi; s.wj = wj; s.wk = wk; }
      }
    return best < 1e30;
  }

  // ---- order and barriers
  /// Tiles that evaluating v per element reads.
  void leaves(ValueId v, std::vector<int>& out) const {
    if (p_.tile_of[at(v)] >= 0) { if (std::find(out.begin(), out.end(), p_.tile_of[at(v)]) == out.end()) out.push_back(p_.tile_of[at(v)]); return; }
    for (ValueId o : g().def(v).operands) leaves(o, out);
  }
  std::vector<int> reads(const Step& s) const {
    std::vector<int> out;
    switch (s.kind) {
      case Step::Kind::kContract: out = {s.x, s.y}; break;
      case Step::Kind::kChain: out = {s.x, s.y, s.z}; leaves(s.logit, out); break;
      case Step::Kind::kReduce: leaves(g().node(s.node).operands[0], out); break;
      default: leaves(s.value, out); break;   // kFill of a value that lies in a tile already reads that tile
    }
    if (s.degree) out.push_back(s.factor);
    return out;
  }

  std::vector<int> writes(const Step& s) const {
    std::vector<int> out;
    if (s.tile >= 0) out.push_back(s.tile);
    if (s.kind == Step::Kind::kRunning || s.kind == Step::Kind::kChain) out.push_back(s.factor);
    if (s.sum >= 0) out.push_back(s.sum);
    return out;
  }

  bool order_steps() {
    // Depth = longest path over tiles; a barrier is needed between depths only (OSDI'25 section 6).
    std::vector<int> depth(p_.steps.size(), 0), made_at(p_.tiles.size(), 0);
    for (size_t round = 0; round < p_.steps.size() + 1; round++)
      for (size_t i = 0; i < p_.steps.size(); i++) {
        for (int t : reads(p_.steps[i])) depth[i] = std::max(depth[i], made_at[static_cast<size_t>(t)]);
        for (int t : writes(p_.steps[i])) made_at[static_cast<size_t>(t)] = depth[i] + 1;
      }
    std::vector<size_t> order(p_.steps.size());
    std::iota(order.begin(), order.end(), 0);
    auto key = [&](size_t i) { return std::make_pair(static_cast<int>(p_.steps[i].phase), depth[i]); };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
    std::vector<Step> sorted;
    for (size_t i : order) sorted.push_back(p_.steps[i]);
    p_.steps = std::move(sorted);
    return true;
  }

  // ---- memory: lifetimes in steps, first fit. Time 0 is the prologue; the loop is one moment; accumulators appear behind it.
  bool share_memory() {
    const int loop_begin = count(Phase::kInvariant) + 1, loop_time = loop_begin, finish_time = loop_begin + 1;
    int after = finish_time;
    for (SmemTile& t : p_.tiles) { t.first = 1 << 20; t.last = -1; }
    auto touch = [&](int tile, int time) { SmemTile& t = p_.tiles[static_cast<size_t>(tile)]; t.first = std::min(t.first, time); t.last = std::max(t.last, time); };
    for (const Load& l : p_.loads) { touch(l.tile, 0); if (l.in_loop) touch(l.tile, loop_time); }
    int invariant = 0;
    std::map<int, int> exchange;
    for (const Step& s : p_.steps) {
      const int time = s.phase == Phase::kInvariant ? ++invariant : s.phase == Phase::kLoop ? loop_time : ++after;
      for (int t : reads(s)) touch(t, time);
      for (int t : writes(s)) touch(t, s.accumulates ? finish_time : time);
      if (s.kind == Step::Kind::kAccumulate || s.kind == Step::Kind::kRunning) touch(s.tile, finish_time);
      if (s.exchange >= 0) { touch(s.exchange, 0); exchange[s.tile] = s.exchange; }   // others write there while this block may still be in its loop
    }
    for (auto [tile, copy] : exchange) touch(copy, p_.tiles[static_cast<size_t>(tile)].last);
    std::vector<size_t> order(p_.tiles.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p_.tiles[a].bytes > p_.tiles[b].bytes; });
    std::vector<size_t> placed;
    for (size_t i : order) {
      SmemTile& t = p_.tiles[i];
      if (t.last < 0) { t.bytes = 0; continue; }
      std::vector<int64_t> starts{0};
      auto alive = [&](size_t j) { return !(p_.tiles[j].last < t.first || t.last < p_.tiles[j].first); };
      for (size_t j : placed) if (alive(j)) starts.push_back(p_.tiles[j].offset + p_.tiles[j].bytes);
      std::sort(starts.begin(), starts.end());
      for (int64_t s : starts) {
        const bool free = std::none_of(placed.begin(), placed.end(), [&](size_t j) { return alive(j) && s < p_.tiles[j].offset + p_.tiles[j].bytes && p_.tiles[j].offset < s + t.bytes; });
        if (free) { t.offset = s; break; }
      }
      placed.push_back(i);
      p_.smem_bytes = std::max(p_.smem_bytes, t.offset + t.bytes);
    }
    if (p_.smem_bytes > target_.smem_per_block) return refuse("shared memory: " + std::to_string(p_.smem_bytes) + " bytes of " + std::to_string(target_.smem_per_block));
    barriers();
    return true;
  }

  int count(Phase ph) const { return static_cast<int>(std::count_if(p_.steps.begin(), p_.steps.end(), [&](const Step& s) { return s.phase == ph; })); }

  bool overlap(int a, int b) const {
    const SmemTile &x = p_.tiles[static_cast<size_t>(a)], &y = p_.tiles[static_cast<size_t>(b)];
    return x.bytes > 0 && y.bytes > 0 && x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes;
  }

  /// A barrier stands before a step that reads what was written, or overwrites what was read or written, since the last one. Phases begin behind a barrier (codegen/block.cc).
  void barriers() {
    std::vector<int> read, written;
    Phase phase = Phase::kInvariant;
    bool first = true;
    for (Step& s : p_.steps) {
      if (first || s.phase != phase) { read.clear(); written.clear(); phase = s.phase; first = false; }
      bool need = false;
      const std::vector<int> in = reads(s), out = s.accumulates ? std::vector<int>{} : writes(s);
      for (int r : in) for (int w : written) need |= overlap(r, w);
      for (int t : out) {
        for (int w : written) need |= overlap(t, w);
        for (int r : read) need |= overlap(t, r);
      }
      s.barrier_before = need;
      if (need) { read.clear(); written.clear(); }
      read.insert(read.end(), in.begin(), in.end());
      written.insert(written.end(), out.begin(), out.end());
    }
  }

  const Target& target_;
  BlockPlan p_;
  std::vector<Phase> phase_;
  std::vector<std::vector<NodeId>> users_;
  std::optional<Chain> chain_;
  std::map<size_t, int> factor_of_;   // per running maximum, its factor's tile
  std::vector<LayoutOption> layouts_;
};

/// The plan again with the layouts of the integer program, where that is possible and not slower.
void improve_layouts(BlockPlanned& best, const Target& target) {
  const BlockPlan& p = *best.plan;
  const std::vector<std::vector<LayoutOption>> options = layout_options(p);
  int64_t bytes = 0;
  for (const SmemTile& t : p.tiles) bytes += t.bytes;
  const int64_t capacity = target.smem_per_sm / std::max(1, p.blocks_per_sm) - 1024 - p.smem_bytes + bytes;   // tiles that share memory count once
  LayoutAssignment a = assign_layouts(options, capacity);
  if (!a.optimal) return;
  std::vector<LayoutOption> chosen;
  for (size_t t = 0; t < options.size(); t++) chosen.push_back(options[t][a.option[t]]);
  const std::shared_ptr<BlockPlan> plan = plan_block_as(p.body, p.operands, p.results, target, choice_of(p), chosen, p.rule);
  if (!plan) return;
  plan->layout_note = fmt::format("layouts: {} cycles of conflicts and swizzling per block, optimal", a.cost);
  if (plan->cost.us <= best.cost.us) { best.cost = plan->cost; best.plan = plan; }
}

}  // namespace

int dim_of(const Dims& d, int index3) {
  const int r = d.rank();
  if (index3 == 2) return r >= 1 ? r - 1 : -1;
  if (index3 == 1) return r >= 2 ? r - 2 : -1;
  for (int i = 0; i + 2 < r; i++) if (d[i] > 1) return i;
  return r >= 3 ? 0 : -1;
}

std::shared_ptr<BlockPlan> plan_block_as(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results, const Target& target, BlockChoice choice, std::string& reason, const ContractRule& rule) {
  BlockPlanner planner(body, operands, results, target, choice, rule);
  if (!planner.run()) { reason = planner.reason; return nullptr; }
  auto plan = std::make_shared<BlockPlan>(planner.take());
  plan->cost = estimate(*plan, target);
  return plan;
}

BlockChoice choice_of(const BlockPlan& p) {
  const bool chain = std::any_of(p.steps.begin(), p.steps.end(), [](const Step& s) { return s.kind == Step::Kind::kChain; });
  return {p.threads, p.stages, p.cluster, p.loop_warps > 1, chain};
}

std::shared_ptr<BlockPlan> plan_block_as(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results, const Target& target, BlockChoice choice, const std::vector<LayoutOption>& layouts, const ContractRule& rule) {
  BlockPlanner planner(body, operands, results, target, choice, rule);
  planner.set_layouts(layouts);
  if (!planner.run()) return nullptr;
  auto plan = std::make_shared<BlockPlan>(planner.take());
  if (plan->tiles.size() != layouts.size()) return nullptr;
  plan->cost = estimate(*plan, target);
  return plan;
}

std::vector<BlockChoice> block_choices(const Graph& body, const Target& target, bool chain) {
  std::vector<BlockChoice> out;
  const int loop = static_cast<int>(std::min<int64_t>(body.launch().loop, 1 << 20));
  for (int threads : {128, 256, 512})
    for (int cluster : {1, 2})
      for (bool divide : {false, true})
        for (int stages : {2, 3, 4, 6}) {
          const int each = loop / (cluster * (divide ? threads / 32 : 1));   // iterations that one block or warp runs
          if (cluster > 1 && (!target.has_cluster || each < 2)) continue;
          if (divide && each < 2) continue;
          if (loop == 1 && stages > 2) break;
          out.push_back({threads, loop > 1 ? std::min(stages, each + 1) : 1, cluster, divide, chain});
        }
  return out;
}

BlockPlanned plan_block(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results, const Target& target, const ContractRule& rule) {
  BlockPlanned best;
  const bool has_chain = find_chain(body).has_value();
  for (bool chain : {true, false}) {
    if (best.plan || (chain && !has_chain)) continue;
    for (const BlockChoice& choice : block_choices(body, target, chain)) {
      auto plan = plan_block_as(body, operands, results, target, choice, best.reason, rule);
      if (plan && (!best.plan || plan->cost.us < best.cost.us)) { best.plan = plan; best.cost = plan->cost; }
    }
  }
  if (best.plan) { best.reason.clear(); improve_layouts(best, target); }
  return best;
}

}  // namespace mirage

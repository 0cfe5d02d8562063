// Block plans as programs: tiles in shared memory that all warps of a block fill, multiply and reduce together, step by step; the loop
// divided over the blocks of a cluster, or over warps with rings of their own. Steps follow each other as in the plan.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "mirage/ir/walk.h"
#include "mirage/ir/whole.h"
#include "plan/block/block_plan.h"
#include "mirage/schedule/words.h"
#include "mirage/support/round.h"
#include "plan/block/block_internal.h"
#include "plan/program/params.h"

namespace mirage::schedule {
namespace {

constexpr int64_t kLongText = 64;   // words of an expression that is written out as a tree
constexpr int kDeepText = 24;

class BlockDescriber {
 public:
  explicit BlockDescriber(const BlockPlan& plan)
      : b_(plan), w_(writer_of(plan.body, plan.operands, plan.results)), section_(plan.tiles.size(), -1) {}

  KernelProgram run() {
    if (b_.loop_warps > 1) warps_ = b_.loop_warps;
    axes();
    sections();
    for (const Load& l : b_.loads) if (!l.in_loop) load(l);
    steps(Phase::kInvariant, before_);
    for (const Load& l : b_.loads) if (l.in_loop) load(l);
    steps(Phase::kLoop, inside_);
    for (const Step& s : b_.steps) if (s.accumulates) meet(s);
    steps(Phase::kAfter, after_);
    KernelProgram& p = w_.p;
    p.per_sm = b_.blocks_per_sm;
    w_.role("all", b_.threads / 32);
    for (StageId s : before_) p.roles[0].items.push_back({s, 0, {}});
    if (!inside_.empty()) p.roles[0].items.push_back({-1, loop_, inside_});
    for (StageId s : after_) p.roles[0].items.push_back({s, 0, {}});
    w_.drop_joined_indices();
    return std::move(p);
  }

 private:
  const Graph& g() const { return b_.body; }
  const SmemTile& tile(int t) const { return b_.tiles[at(t)]; }
  bool has_loop() const { return std::any_of(b_.loads.begin(), b_.loads.end(), [](const Load& l) { return l.in_loop; }); }
  /// Whether each warp does a step alone, on tiles of its own.
  bool is_own(const Step& s) const { return warps_ > 1 && s.phase == Phase::kLoop; }

  // ---- axes
  void axes() {
    const IndexCuts all = cuts(g(), w_.p.index_of);
    if (!all.reason.empty()) throw Undescribed{all.reason};
    std::vector<AxisId> loop;
    for (int a = -1; a < 3; a++) {   // in the order of the grid: what is erased has it so
      for (size_t i = 0; i < all.of.size(); i++) if (all.of[i].grid == a) split(static_cast<IndexId>(i), all.of[i], loop);
      if (a >= 0 && g().launch().grid[at(a)] > 1) grid_axis(a);
    }
    if (has_loop() && loop.empty()) add_loop(loop);   // over an index of one element
  }
  AxisId grid_axis(int a) {
    if (grid_[at(a)] < 0) grid_[at(a)] = w_.axis({std::string(1, "xyz"[a]), AxisKind::kGrid, g().launch().grid[at(a)]});
    return grid_[at(a)];
  }
  void split(IndexId i, const IndexCut& cut, std::vector<AxisId>& loop) {
    if (cut.grid < 0 && !cut.loop) return;
    Split s{i, cut.tile, {}, cut.loop, cut.loop && g().launch().grid[0] > 1, false};
    if (cut.grid >= 0) {
      s.over.push_back(grid_axis(cut.grid));
      if (cut.loop) w_.p.axes[at(s.over[0])].each = g().launch().loop;
    }
    if (cut.loop && loop.empty()) add_loop(loop);
    if (cut.loop) s.over.insert(s.over.end(), loop.begin(), loop.end());
    w_.p.splits.push_back(std::move(s));
    w_.name_alone(i, cut.loop ? "k" : std::string(1, "nmb"[cut.grid]));
  }
  void add_loop(std::vector<AxisId>& loop) {
    const int64_t each = ceil_div(g().launch().loop, int64_t{b_.cluster});
    if (b_.cluster > 1) loop.push_back(cluster_ = w_.axis({"c", AxisKind::kCluster, b_.cluster, each}));
    loop.push_back(loop_ = w_.axis({"i", AxisKind::kLoop, ceil_div(each, int64_t{warps_})}));
    if (warps_ > 1) loop.push_back(warp_ = w_.axis({"v", AxisKind::kWarp, warps_}));
  }

  // ---- places
  void sections() {
    for (size_t t = 0; t < b_.tiles.size(); t++) {
      const SmemTile& x = b_.tiles[t];
      if (x.bytes == 0) continue;
      Section s{fmt::format("t{}", t), x.copies, x.kind == SmemTile::Kind::kInput ? x.stages : 1, 128, 0, false, true};
      section_[t] = w_.section(s);
    }
  }
  Place tile_place(int t, const std::string& name) {
    const SmemTile& x = tile(t);
    Place to;
    to.name = w_.unique(name);
    to.value = x.value;
    to.dtype = x.dtype;
    to.section = section_[at(t)];
    if (to.section < 0) throw Undescribed{"a tile without memory"};
    const int64_t length = x.extent[x.col ? 1 : 2], lines = x.extent[0] * x.extent[x.col ? 2 : 1];
    if (x.kind == SmemTile::Kind::kParts && x.parts > 1) to.box.push_back(x.parts);
    to.box.push_back(lines);
    to.box.push_back(length);
    to.columns = x.col;
    if (x.ld != length) to.pitch = x.ld * dtype_bytes(x.dtype);
    if (x.swizzle) to.swizzle = 128;
    return to;
  }
  PlaceId add(Place place) {
    w_.p.places.push_back(std::move(place));
    return static_cast<PlaceId>(w_.p.places.size()) - 1;
  }
  void push(Stage s, std::vector<StageId>& to) {
    to.push_back(static_cast<StageId>(w_.p.stages.size()));
    w_.p.stages.push_back(std::move(s));
  }

  void load(const Load& l) {
    Stage s;
    s.kind = Stage::Kind::kCopy;
    s.path = l.unit >= 4 ? PathId::kCpAsync : PathId::kLd;
    if (l.in_loop) s.ahead = tile(l.tile).stages - 1;
    const Input& in = *g().form<Input>(l.input);
    Place to = tile_place(l.tile, fmt::format("x{}", in.param));
    to.value = g().node(l.input).first_value;
    s.to = read_[to.value] = of_tile_[l.tile] = add(std::move(to));
    push(s, l.in_loop ? inside_ : before_);
  }

  // ---- expressions: places of what a value is made of
  void leaves(ValueId v, std::vector<PlaceId>& out) const {
    find_below(g(), v, [&](ValueId x) {
      const auto known = read_.find(x);
      if (known == read_.end()) return Look::kInto;
      if (std::find(out.begin(), out.end(), known->second) == out.end()) out.push_back(known->second);
      return Look::kPast;
    });
  }
  std::vector<PlaceId> operands_of(ValueId v) const {
    std::vector<PlaceId> out;
    for (ValueId o : g().def(v).operands) leaves(o, out);
    return out;
  }

  /// Of a long expression, what is read more than once, and every so deep, becomes a stage in front of the one that reads it: written out
  /// as a tree, twenty-five residuals are 2^25 words. What is returned is given to `forget` once that stage is there: each step computes
  /// it.
  std::vector<ValueId> name_parts(const std::vector<ValueId>& of, std::vector<StageId>& to) {
    std::map<ValueId, int> uses;
    const auto is_read = [&](ValueId x) { return read_.count(x) > 0 || std::holds_alternative<Const>(g().def(x).op); };
    for (ValueId v : of)
      find_below(g(), v, [&](ValueId x) {
        if (is_read(x)) return Look::kPast;
        if (uses.try_emplace(x, 0).second)
          for (ValueId o : g().def(x).operands) if (!is_read(o)) uses.try_emplace(o, 0);
        return Look::kInto;
      });
    for (const auto& [x, n] : uses) for (ValueId o : g().def(x).operands) if (const auto it = uses.find(o); it != uses.end()) it->second++;
    struct Size { int64_t words = 1; int depth = 0; };
    std::map<ValueId, Size> sizes;   // in the order of values: operands first
    const auto measure = [&](ValueId x) {
      Size s;
      for (ValueId o : g().def(x).operands)
        if (const auto it = sizes.find(o); it != sizes.end()) {
          s.words = std::min(s.words + it->second.words, kLongText + 1);
          s.depth = std::max(s.depth, it->second.depth + 1);
        }
      return s;
    };
    bool is_long = false;
    for (const auto& [x, n] : uses) {
      const Size s = sizes[x] = measure(x);
      is_long |= s.words > kLongText || s.depth > kDeepText;
    }
    std::vector<ValueId> parts;
    if (!is_long) return parts;
    for (const auto& [x, n] : uses) {
      sizes[x] = measure(x);
      const bool is_wanted = (n > 1 && !g().def_form<Transpose>(x)) || sizes[x].depth >= kDeepText;
      if (!is_wanted || std::find(of.begin(), of.end(), x) != of.end()) continue;
      Stage s;
      for (ValueId o : g().def(x).operands) leaves(o, s.reads);
      put(std::move(s), x, fmt::format("v{}", x).c_str(), LayoutId::kItems, {}, to);
      if (g().type(x).dtype == DType::kBool) w_.p.places.back().dtype = DType::kBool;
      parts.push_back(x);
      sizes.erase(x);
    }
    return parts;
  }
  void forget(const std::vector<ValueId>& parts) { for (ValueId x : parts) read_.erase(x); }

  // ---- steps
  void steps(Phase phase, std::vector<StageId>& to) {
    for (const Step& s : b_.steps) {
      if (s.phase != phase) continue;
      switch (s.kind) {
        case Step::Kind::kContract:
        case Step::Kind::kReduce: sum(s, to); break;
        case Step::Kind::kFill: fill(s, to); break;
        case Step::Kind::kAccumulate:
        case Step::Kind::kRunning: accumulate(s, to); break;
        case Step::Kind::kChain: chain(s, to); break;
        case Step::Kind::kStore: store(s, to); break;
      }
    }
  }
  void fill(const Step& s, std::vector<StageId>& to) {
    Stage x;
    Place place = tile_place(s.tile, fmt::format("v{}", s.value));
    place.value = s.value;
    const std::vector<ValueId> parts = name_parts({s.value}, to);
    leaves(s.value, x.reads);
    x.to = of_tile_[s.tile] = add(std::move(place));
    push(std::move(x), to);
    forget(parts);
    if (b_.tile_of[at(s.value)] == s.tile) read_[s.value] = of_tile_[s.tile];
  }
  /// Elementwise over the iterations, in shared memory.
  void accumulate(const Step& s, std::vector<StageId>& to) {
    Stage x;
    const ValueId v = g().node(s.node).first_value;
    const std::vector<ValueId> parts = name_parts(g().def(v).operands, to);
    x.reads = operands_of(v);
    Place place = tile_place(s.tile, fmt::format("v{}", v));
    place.value = v;
    x.to = read_[v] = of_tile_[s.tile] = add(std::move(place));
    if (s.kind == Step::Kind::kRunning) {
      Place grown = tile_place(s.factor, fmt::format("v{}_grown", v));
      grown.value = v;
      x.through = {add(std::move(grown))};
    }
    push(std::move(x), to);
    forget(parts);
    last_maxima(v, to);
  }
  /// The last of a running maximum is where the maximum is, once the loop is over.
  void last_maxima(ValueId running, std::vector<StageId>& to) {
    for (NodeId n = 0; n < g().num_nodes(); n++) {
      const Accum* a = g().form<Accum>(n);
      if (!a || a->fn != ReduceFn::kMax || g().node(n).operands[0] != running || !g().def_form<Running>(running)) continue;
      Stage x;
      x.reads = {read_.at(running)};
      Place place = w_.p.places[at(read_.at(running))];
      place.value = g().node(n).first_value;
      place.name = w_.unique(fmt::format("v{}", place.value));
      x.to = read_[place.value] = add(std::move(place));
      push(std::move(x), to);
    }
  }

  /// Sums of a product or a reduction are in registers first. Where several lanes or warps have parts, or the loop goes on adding, they
  /// come to shared memory afterwards.
  void sum(const Step& s, std::vector<StageId>& to) {
    const ValueId made = g().node(s.node).first_value;
    const ValueId v = s.accumulates ? tile(s.tile).value : made;
    Stage x;
    std::vector<ValueId> parts;
    if (s.kind == Step::Kind::kContract) {
      x.reads = {of_tile_.at(s.x)};
      if (s.y != s.x) x.reads.push_back(of_tile_.at(s.y));
      x.unit = !s.tensor ? UnitId::kFma : s.type == ContractType::kTF32 ? UnitId::kSyncTf32 : UnitId::kSync16;
      x.swap = s.tensor && s.swap;
      if (s.tensor) x.warps = {s.wi, s.wj, s.wk};
      else x.warps[2] = s.wk, x.team = s.tj;
    } else {
      parts = name_parts({g().node(s.node).operands[0]}, to);
      leaves(g().node(s.node).operands[0], x.reads);
      x.warps[2] = warps_of(s);
      x.team = s.group;
    }
    if (s.degree) leaves(g().def(v).operands[1], x.reads);
    const bool meets = x.warps[2] > 1 || (s.kind == Step::Kind::kReduce && s.group > 1);
    Place place;
    if (!s.accumulates && !meets) place = tile_place(s.tile, fmt::format("v{}", v));
    else place = registers(s, v);
    place.value = v;
    x.to = read_[v] = add(std::move(place));
    if (!s.accumulates && !meets) of_tile_[s.tile] = x.to;
    push(std::move(x), to);
    forget(parts);
    if (!s.accumulates && meets) fold({v}, own_axes(s), WayId::kShared, {s.tile}, to);
  }
  Place registers(const Step& s, ValueId v) {
    Place place;
    place.name = w_.unique(fmt::format("v{}", v));
    if (s.kind == Step::Kind::kReduce) {
      if (s.group == 1) place.layout = LayoutId::kLine;
    } else if (s.tensor) {
      const Extent3& e = tile(s.tile).extent;
      place.layout = LayoutId::kSyncAcc;
      place.box = {e[0] * (s.swap ? e[2] : e[1]) / s.wi, (s.swap ? e[1] : e[2]) / s.wj};
    }
    return place;
  }
  /// Warps that have parts of a reduction's results.
  int warps_of(const Step& s) const { return is_own(s) ? 1 : tile(s.tile).parts; }
  std::vector<AxisId> own_axes(const Step& s) const {
    std::vector<AxisId> over;
    if (s.kind == Step::Kind::kReduce && s.group > 1) over.push_back(kLanes);
    if (s.kind == Step::Kind::kReduce ? warps_of(s) > 1 : s.wk > 1) over.push_back(kWarps);
    return over;
  }
  void fold(const std::vector<ValueId>& values, const std::vector<AxisId>& over, WayId way, const std::vector<int>& tiles,
            std::vector<StageId>& to) {
    Stage x;
    x.kind = Stage::Kind::kFold;
    for (ValueId v : values) x.reads.push_back(read_.at(v));
    x.over = over;
    x.way = way;
    for (int t : tiles) {
      Place parts = tile_place(t, fmt::format("t{}_parts", t));
      parts.value = values.back();
      x.through.push_back(add(std::move(parts)));
    }
    push(std::move(x), to);
  }

  /// Behind the loop: warps, and the blocks of a cluster, have parts of what it accumulated.
  void meet(const Step& s) {
    if (s.kind == Step::Kind::kChain) return meet_chain(s);
    const ValueId v = tile(s.tile).value;
    std::vector<AxisId> over = own_axes(s);
    if (is_own(s)) over.push_back(warp_);
    if (!over.empty()) fold({v}, over, WayId::kShared, {s.tile}, after_);
    else if (s.exchange < 0) to_tile(s.tile, v);
    if (s.exchange < 0) return;
    if (over.empty()) fold({v}, {cluster_}, WayId::kExchange, {s.tile, s.exchange}, after_);
    else fold({v}, {cluster_}, WayId::kExchange, {s.exchange}, after_);
  }

  // ---- a running softmax between two products in registers
  void chain(const Step& s, std::vector<StageId>& to) {
    const ValueId z = g().node(s.scores).first_value, r = tile(s.tile).value;
    const Extent3 &e = tile(s.x).extent, &f = tile(s.z).extent;
    const int64_t rows = e[s.x_transposed ? 2 : 1] / s.wi, keys = f[s.z_transposed ? 2 : 1] / s.wk;
    Stage x;
    x.reads = {of_tile_.at(s.x), of_tile_.at(s.y)};
    x.unit = UnitId::kSync16;
    x.warps = {s.wi, s.wk, 1};
    put(x, z, "z", LayoutId::kSyncAcc, {rows, keys}, to);
    const ValueId running = g().def(r).operands[1], most = g().def(running).operands[0];
    x = {};
    leaves(g().def(most).operands[0], x.reads);
    put(x, most, "most", LayoutId::kItems, {}, to);
    Stage over_lanes;
    over_lanes.kind = Stage::Kind::kFold;
    over_lanes.reads = {read_.at(most)};
    over_lanes.over = {kLanes};
    over_lanes.way = WayId::kLanes;
    push(over_lanes, to);
    x = {};
    x.reads = {read_.at(most)};
    put(x, running, "m", LayoutId::kItems, {}, to);
    last_maxima(running, to);
    x = {};
    const ValueId weights = g().def(g().def(r).operands[0]).operands[0];
    leaves(weights, x.reads);
    put(x, weights, "p", LayoutId::kSyncAcc, {}, to);
    w_.p.places.back().dtype = s.type == ContractType::kF16 ? DType::kF16 : DType::kBF16;
    const PlaceId rounded = read_.at(weights);
    if (s.sum >= 0) {
      const ValueId l = tile(s.sum).value;
      read_.erase(weights);   // sums are of the weights as they were before they were rounded
      x = {};
      x.reads = operands_of(l);
      x.warps = {1, 1, s.wk};
      put(x, l, "l", LayoutId::kItems, {}, to);
    }
    x = {};
    x.reads = {rounded, of_tile_.at(s.z), read_.at(running)};
    x.unit = UnitId::kSync16;
    x.warps = {s.wi, 1, s.wk};
    put(x, r, "a", LayoutId::kSyncAcc, {rows, f[s.z_transposed ? 1 : 2]}, to);
  }
  void put(Stage x, ValueId v, const char* name, LayoutId layout, std::vector<int64_t> box, std::vector<StageId>& to) {
    Place place;
    place.name = w_.unique(name);
    place.value = v;
    place.layout = layout;
    place.box = std::move(box);
    x.to = read_[v] = add(std::move(place));
    push(std::move(x), to);
  }
  void meet_chain(const Step& s) {
    const ValueId r = tile(s.tile).value, running = g().def(r).operands[1];
    std::vector<ValueId> all{running};
    for (NodeId n = 0; n < g().num_nodes(); n++)
      if (g().form<Accum>(n) && g().node(n).operands[0] == running) all.push_back(g().node(n).first_value);
    std::vector<int> tiles{s.factor};   // maxima, sums, results: in the order of what is folded
    if (s.sum >= 0) {
      all.push_back(tile(s.sum).value);
      tiles.push_back(s.sum);
      Stage x;
      x.kind = Stage::Kind::kFold;
      x.reads = {read_.at(tile(s.sum).value)};
      x.over = {kLanes};
      x.way = WayId::kLanes;
      push(std::move(x), after_);
    }
    all.push_back(r);
    tiles.push_back(s.tile);
    if (s.wk > 1) return fold(all, {kWarps}, WayId::kShared, tiles, after_);
    for (int t : tiles) to_tile(t, tile(t).value);
  }
  void to_tile(int t, ValueId v) {
    Stage x;
    x.reads = {read_.at(v)};
    Place place = tile_place(t, fmt::format("v{}_all", v));
    place.value = v;
    x.to = read_[v] = add(std::move(place));
    push(std::move(x), after_);
  }

  void store(const Step& s, std::vector<StageId>& to) {
    const Output& out = *g().form<Output>(s.node);
    const bool is_made = read_.count(s.value) == 0;   // for this store alone: other steps compute it again
    if (is_made) {
      Stage x;
      const std::vector<ValueId> parts = name_parts({s.value}, to);
      leaves(s.value, x.reads);
      Place place;
      place.name = w_.unique(fmt::format("v{}", s.value));
      place.value = s.value;
      place.dtype = g().type(s.value).dtype == DType::kBool ? DType::kBool : DType::kF32;
      x.to = read_[s.value] = add(std::move(place));
      push(std::move(x), to);
      forget(parts);
    }
    Stage x;
    x.kind = Stage::Kind::kStore;
    x.result = out.result;
    x.reads = {read_.at(s.value)};
    x.way = WayId::kDirect;
    for (int a = 0; a < 3; a++) {   // blocks whose results stand beside each other, though none of their indices is cut by the grid
      const int d = out.part.grid[at(a)];
      if (d < 0 || g().launch().grid[at(a)] == 1) continue;
      const IndexId i = w_.index_at(s.value, d);
      const Split* cut = i < 0 ? nullptr : w_.p.split_of(i);
      if (!cut || cut->reduced || cut->over[0] != grid_[at(a)]) x.apart.emplace_back(grid_[at(a)], d);
    }
    push(std::move(x), to);
    if (is_made) forget({s.value});
  }

  const BlockPlan& b_;
  Writer w_;
  std::vector<int> section_;                  // per tile; -1: it needs no memory
  std::map<ValueId, PlaceId> read_;           // where a value is read
  std::map<int, PlaceId> of_tile_;            // what lies in a tile
  std::vector<StageId> before_, inside_, after_;
  std::array<AxisId, 3> grid_{-1, -1, -1};
  AxisId loop_ = -1, cluster_ = -1, warp_ = -1;
  int warps_ = 1;                             // that divide the loop
};

}  // namespace

KernelProgram block_program(const BlockPlan& p) {
  return BlockDescriber(p).run();
}

}  // namespace mirage::schedule

// BlockPlanner, third part: warps over contractions and threads over reductions, steps in order with the fewest barriers, shared memory by
// lifetimes.
#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "mirage/ir/walk.h"
#include "mirage/support/round.h"
#include "plan/block/block_planner.h"
#include "plan/block/float_contract.h"

namespace mirage {

FloatWork float_work(const BlockPlan& p, const Step& s) {
  const SmemTile &x = p.tiles[static_cast<size_t>(s.x)], &y = p.tiles[static_cast<size_t>(s.y)];
  FloatWork w;
  w.batches = std::max(x.extent[0], y.extent[0]);
  w.rows = x.extent[s.x_transposed ? 2 : 1];
  w.columns = y.extent[s.y_transposed ? 1 : 2];
  w.x_along = x.col == s.x_transposed;
  w.y_along = y.col != s.y_transposed;
  w.x_wide = dtype_bytes(x.dtype) == 4;
  w.y_wide = dtype_bytes(y.dtype) == 4;
  return w;
}

int float_team(const BlockPlan& p, const Step& s) { return (p.loop_warps > 1 && s.phase == Phase::kLoop ? 32 : p.threads) / s.wk; }

bool BlockPlanner::divides_loop() {
  if (p_.cluster > 1 || p_.loop_warps > 1)
    for (const Step& s : p_.steps) {
      if (s.kind == Step::Kind::kAccumulate) return refuse("an elementwise accumulator of a divided loop");
      if (s.kind == Step::Kind::kRunning || s.kind == Step::Kind::kChain) return refuse("a running maximum in a divided loop");
    }
  return true;
}

bool BlockPlanner::divide_chain(Step& s, int warps) {
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

bool BlockPlanner::divide_float(Step& s, int64_t terms, int64_t most) {
  const FloatWork w = float_work(p_, s);
  const FloatTeams d = s.accumulates ? FloatTeams{divide_float_contract(w, own_warp(s) ? 32 : p_.threads, most)}
                                     : divide_float_terms(w, terms, p_.threads, most);
  if (d.division.each == 0) return refuse("a contraction's accumulators exceed the registers");
  s.tj = d.division.tj;
  s.wk = d.teams;
  p_.tiles[static_cast<size_t>(s.tile)].parts = own_warp(s) ? p_.loop_warps : s.wk;
  return true;
}

bool BlockPlanner::is_turned(ValueId v) const {
  bool along = false, down = false;   // lines along c, and along r
  std::set<std::pair<ValueId, bool>> seen;
  const std::function<void(ValueId, bool)> look = [&](ValueId x, bool swapped) {
    if (!seen.emplace(x, swapped).second) return;
    if (const int tile = p_.tile_of[at(x)]; tile >= 0) {
      const Extent3& e = p_.extent_of[at(x)];
      if (e[1] > 1 && e[2] > 1) (p_.tiles[static_cast<size_t>(tile)].col != swapped ? down : along) = true;
      return;
    }
    const bool turns = g().def_form<Transpose>(x) && behind_transposes(x).second != behind_transposes(g().def(x).operands[0]).second;
    for (ValueId o : g().def(x).operands) look(o, swapped != turns);
  };
  look(v, false);
  return down && !along;
}

bool BlockPlanner::divide_reduction(Step& s, const Extent3& in) {
  constexpr int kPack = 8;          // neighbours of a line that a thread evaluates together
  constexpr int64_t kResults = 16;  // of a thread at most, where lanes read a line together
  SmemTile& out = p_.tiles[static_cast<size_t>(s.tile)];
  const ValueId v = g().node(s.node).operands[0];
  const int64_t extent = in[static_cast<size_t>(s.dim3)], outs = in[0] * in[1] * in[2] / extent;
  const int team = own_warp(s) ? 32 : p_.threads, line = is_turned(v) ? 1 : 2;
  const int64_t length = in[static_cast<size_t>(line)], inner = length / kPack;
  const bool packs = length % kPack == 0;
  if (s.dim3 == 3 - line && packs && in[0] == 1 && team % inner == 0 && (32 % inner == 0 || inner % 32 == 0)) {
    s.group = static_cast<int>(team / inner);
    out.parts = own_warp(s) ? p_.loop_warps : static_cast<int>(inner < 32 ? team / 32 : s.group);
    return true;
  }
  const int width = s.dim3 == line && packs ? kPack : 1;
  if (width > 1 && is_walked(s, v) && inner <= 32 && (inner & (inner - 1)) == 0 && outs * inner <= kResults * team) {
    s.group = static_cast<int>(inner);
  } else {
    s.group = team;
    while (s.group > 1 && (s.group / 2 * width >= extent || s.group * std::min<int64_t>(outs, team) > team)) s.group /= 2;
  }
  out.parts = own_warp(s) ? p_.loop_warps : std::max(1, s.group / 32);
  if (outs / std::max(1, team / s.group) > 64) return refuse("a reduction's partial results exceed the registers");
  return true;
}

bool BlockPlanner::is_walked(const Step& s, ValueId v) const {
  return std::any_of(p_.steps.begin(), p_.steps.end(), [&](const Step& fill) {
    if (fill.kind != Step::Kind::kFill || fill.phase != s.phase) return false;
    Extent3 e = p_.extent_of[at(fill.value)];
    if (p_.tiles[static_cast<size_t>(fill.tile)].col != is_turned(v)) std::swap(e[1], e[2]);
    if (e != p_.extent_of[at(v)]) return false;
    const std::vector<int> of = reads(fill), by = reads(s);
    return std::find(of.begin(), of.end(), s.tile) == of.end() && std::find(by.begin(), by.end(), fill.tile) == by.end();
  });
}

bool BlockPlanner::divide_work() {
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
        if (!choose_warps(s, own ? 1 : warps, batches, i, j, k, registers))
          return refuse("a contraction's accumulators exceed the registers");
        out->parts = own ? p_.loop_warps : s.wk;
      } else {
        out->extent = {batches, x[1], y[2]};   // operands may be padded for another contraction, on tensor cores
        if (!divide_float(s, x[2], p_.threads > 256 ? registers : accumulating > 1 ? kWideResults / 2 : kWideResults)) return false;
      }
      const int64_t per = 4;
      out->ld = round_up(out->extent[2], per) + 4;
    } else if (s.kind == Step::Kind::kReduce) {
      if (!divide_reduction(s, p_.extent_of[at(g().node(s.node).operands[0])])) return false;
    }
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

bool BlockPlanner::choose_warps(Step& s, int warps, int64_t batches, int64_t i, int64_t j, int64_t k, int64_t registers) {
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

void BlockPlanner::leaves(ValueId v, std::vector<int>& out) const {
  find_below(g(), v, [&](ValueId x) {
    const int tile = p_.tile_of[at(x)];
    if (tile >= 0 && std::find(out.begin(), out.end(), tile) == out.end()) out.push_back(tile);
    return tile >= 0 ? Look::kPast : Look::kInto;
  });
}

std::vector<int> BlockPlanner::reads(const Step& s) const {
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

std::vector<int> BlockPlanner::writes(const Step& s) const {
  std::vector<int> out;
  if (s.tile >= 0) out.push_back(s.tile);
  if (s.kind == Step::Kind::kRunning || s.kind == Step::Kind::kChain) out.push_back(s.factor);
  if (s.sum >= 0) out.push_back(s.sum);
  return out;
}

bool BlockPlanner::order_steps() {
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

bool BlockPlanner::share_memory() {
  const int loop_begin = count(Phase::kInvariant) + 1, loop_time = loop_begin, finish_time = loop_begin + 1;
  int after = finish_time;
  for (SmemTile& t : p_.tiles) { t.first = 1 << 20; t.last = -1; }
  auto touch = [&](int tile, int time) {
    SmemTile& t = p_.tiles[static_cast<size_t>(tile)];
    t.first = std::min(t.first, time);
    t.last = std::max(t.last, time);
  };
  for (const Load& l : p_.loads) { touch(l.tile, 0); if (l.in_loop) touch(l.tile, loop_time); }
  int invariant = 0;
  std::map<int, int> exchange;
  for (const Step& s : p_.steps) {
    const int time = s.phase == Phase::kInvariant ? ++invariant : s.phase == Phase::kLoop ? loop_time : ++after;
    for (int t : reads(s)) touch(t, time);
    for (int t : writes(s)) touch(t, s.accumulates ? finish_time : time);
    if (s.kind == Step::Kind::kAccumulate || s.kind == Step::Kind::kRunning) touch(s.tile, finish_time);
    // others write there while this block may still be in its loop
    if (s.exchange >= 0) { touch(s.exchange, 0); exchange[s.tile] = s.exchange; }
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
      const bool free = std::none_of(placed.begin(), placed.end(), [&](size_t j) {
        return alive(j) && s < p_.tiles[j].offset + p_.tiles[j].bytes && p_.tiles[j].offset < s + t.bytes;
      });
      if (free) { t.offset = s; break; }
    }
    placed.push_back(i);
    p_.smem_bytes = std::max(p_.smem_bytes, t.offset + t.bytes);
  }
  if (p_.smem_bytes > target_.smem_per_block)
    return refuse("shared memory: " + std::to_string(p_.smem_bytes) + " bytes of " + std::to_string(target_.smem_per_block));
  barriers();
  return true;
}

bool BlockPlanner::overlap(int a, int b) const {
  const SmemTile &x = p_.tiles[static_cast<size_t>(a)], &y = p_.tiles[static_cast<size_t>(b)];
  return x.bytes > 0 && y.bytes > 0 && x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes;
}

void BlockPlanner::barriers() {
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

}  // namespace mirage

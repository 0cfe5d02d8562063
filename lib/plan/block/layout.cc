// The layout problem: options with their costs, and its solution by Z3.
#include "plan/block/layout.h"

#include <z3++.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "mirage/support/round.h"

namespace mirage {
namespace {

constexpr int64_t kSwizzleCycles = 2;   // address arithmetic of one swizzled access by a warp

/// Extra passes that an access of eight lines of `ld` elements (16 bytes each, same column) takes for bank conflicts; `swizzled` lines
/// never conflict.
int64_t conflicts(int64_t ld, int bytes, bool swizzled) {
  if (swizzled) return 0;
  int64_t most = 0, count[8] = {};
  for (int64_t line = 0; line < 8; line++) most = std::max(most, ++count[line * ld * bytes / 16 % 8]);
  return most - 1;
}

/// Extra passes of one 8 x 8 access to a tile of 4-byte operands (TensorContract's read_pair): lines along the contraction give each thread
/// two neighbours, half a warp at a time; else every thread reads twice, from lines 2q and 2q + 1.
int64_t wide_conflicts(int64_t ld, bool along) {
  int64_t most = 0, count[32] = {};
  for (int64_t g = 0; g < (along ? 4 : 8); g++)
    for (int64_t q = 0; q < 4; q++)
      for (int64_t e = 0; e < (along ? 2 : 1); e++) most = std::max(most, ++count[(along ? g * ld + 2 * q + e : 2 * q * ld + g) % 32]);
  return 2 * (most - 1);
}

/// Whether a contraction reads tile t in lines along the contracted dimension, and in lines across it.
std::pair<bool, bool> directions(const BlockPlan& p, int t) {
  std::pair<bool, bool> out{false, false};
  const bool col = p.tiles[static_cast<size_t>(t)].col;
  for (const Step& s : p.steps) {
    if (s.kind != Step::Kind::kContract || !s.tensor) continue;
    if (s.x == t) (s.x_transposed == col ? out.first : out.second) = true;
    if (s.y == t) (s.y_transposed != col ? out.first : out.second) = true;
  }
  return out;
}

/// The same for any operand tile of tensor cores.
int64_t tile_conflicts(const BlockPlan& p, int t, int64_t ld, bool swizzled) {
  const int bytes = dtype_bytes(p.tiles[static_cast<size_t>(t)].dtype);
  if (bytes < 4) return conflicts(ld, bytes, swizzled);
  const auto [along, across] = directions(p, t);
  return std::max(along ? wide_conflicts(ld, true) : 0, across ? wide_conflicts(ld, false) : 0);
}

/// How many eight-line accesses (a quarter of an ldmatrix.x4) the contractions of a plan make to tile t, over the whole loop of one block.
int64_t matrix_accesses(const BlockPlan& p, int t) {
  int64_t n = 0;
  for (const Step& s : p.steps) {
    if (s.kind != Step::Kind::kContract || !s.tensor || (s.x != t && s.y != t)) continue;
    const SmemTile& tile = p.tiles[static_cast<size_t>(t)];
    const int64_t chunks = tile.extent[0] * tile.extent[1] * tile.extent[2] / 64;   // 8 x 8 matrices
    const int64_t again = s.x == t ? (s.swap ? s.wi : s.wj) : (s.swap ? s.wj : s.wi);   // warps that read the same part
    n += chunks * again * (s.phase == Phase::kLoop ? p.body.launch().loop / p.cluster : 1);
  }
  return n;
}

std::string key_of(const std::vector<std::vector<LayoutOption>>& options, int64_t capacity) {
  std::string key = std::to_string(capacity);
  for (const auto& tile : options) {
    key += '|';
    for (const LayoutOption& o : tile) key += std::to_string(o.bytes) + ',' + std::to_string(o.cost) + ';';
  }
  return key;
}

/// One boolean per tile and option, exactly one each; bytes within capacity; least cost, with bytes as the tie-break.
LayoutAssignment solve(const std::vector<std::vector<LayoutOption>>& options, int64_t capacity) {
  LayoutAssignment best;
  // Where every tile can have its own best option, nothing is to be weighed (and no solver to be started: a plan is made in a tenth of the
  // time).
  int64_t total = 0;
  for (const auto& tile : options) {
    size_t least = 0;
    for (size_t k = 1; k < tile.size(); k++)
      if (std::pair(tile[k].cost, tile[k].bytes) < std::pair(tile[least].cost, tile[least].bytes)) least = k;
    best.option.push_back(least);
    best.cost += tile[least].cost;
    total += tile[least].bytes;
  }
  best.optimal = total <= capacity;
  if (best.optimal) return best;
  best = {};
  z3::context c;
  z3::optimize o(c);
  z3::params params(c);
  params.set("rlimit", 2000000u);   // deterministic, unlike a time limit
  o.set(params);
  z3::expr cost = c.int_val(0), bytes = c.int_val(0);
  std::vector<std::vector<z3::expr>> chosen;
  for (size_t t = 0; t < options.size(); t++) {
    z3::expr one = c.int_val(0);
    chosen.emplace_back();
    for (size_t k = 0; k < options[t].size(); k++) {
      z3::expr b = c.bool_const(("t" + std::to_string(t) + "_" + std::to_string(k)).c_str());
      const z3::expr n = z3::ite(b, c.int_val(1), c.int_val(0));
      one = one + n;
      cost = cost + n * c.int_val(static_cast<int64_t>(options[t][k].cost * 1024 + options[t][k].bytes / 128));
      bytes = bytes + n * c.int_val(static_cast<int64_t>(options[t][k].bytes));
      chosen.back().push_back(b);
    }
    o.add(one == 1);
  }
  o.add(bytes <= c.int_val(static_cast<int64_t>(capacity)));
  o.minimize(cost);
  if (o.check() != z3::sat) return best;
  const z3::model m = o.get_model();
  best.optimal = true;
  for (size_t t = 0; t < options.size(); t++)
    for (size_t k = 0; k < options[t].size(); k++)
      if (m.eval(chosen[t][k], true).is_true()) { best.option.push_back(k); best.cost += options[t][k].cost; }
  return best;
}

}  // namespace

std::vector<std::vector<LayoutOption>> layout_options(const BlockPlan& p) {
  std::vector<std::vector<LayoutOption>> out;
  for (size_t i = 0; i < p.tiles.size(); i++) {
    const SmemTile& t = p.tiles[i];
    const int size = dtype_bytes(t.dtype);
    const int64_t per = 16 / size, lines = t.extent[0] * (t.col ? t.extent[2] : t.extent[1]),
                  plain = round_up(t.col ? t.extent[1] : t.extent[2], per);
    const int64_t accesses = matrix_accesses(p, static_cast<int>(i)), times = (t.kind == SmemTile::Kind::kInput ? t.stages : 1) * t.copies;
    auto option = [&](LayoutKind kind, int64_t ld) {
      LayoutOption o{kind, ld, round_up(lines * ld * size, 128) * times, 0};
      o.cost = accesses * tile_conflicts(p, static_cast<int>(i), ld, kind == LayoutKind::kSwizzled) +
               (kind == LayoutKind::kSwizzled ? accesses / 4 * kSwizzleCycles : 0);
      return o;
    };
    std::vector<LayoutOption> options;
    if (t.kind == SmemTile::Kind::kParts || accesses == 0) {
      options.push_back({t.swizzle ? LayoutKind::kSwizzled : LayoutKind::kPlain, t.ld, t.bytes, 0});
    } else {
      options.push_back(option(LayoutKind::kPlain, plain));
      if (const int64_t padded = padded_line(p, static_cast<int>(i)); padded != plain)
        options.push_back(option(LayoutKind::kPadded, padded));
      if (size < 4 && plain % (8 * per) == 0) options.push_back(option(LayoutKind::kSwizzled, plain));
    }
    out.push_back(options);
  }
  return out;
}

int64_t padded_line(const BlockPlan& p, int tile) {
  const SmemTile& t = p.tiles[static_cast<size_t>(tile)];
  const int64_t per = 16 / dtype_bytes(t.dtype), length = round_up(t.col ? t.extent[1] : t.extent[2], per);
  int64_t best = length;
  for (int64_t ld = length; ld <= length + 3 * per; ld += per)
    if (tile_conflicts(p, tile, ld, false) < tile_conflicts(p, tile, best, false)) best = ld;
  return best;
}

LayoutAssignment assign_layouts(const std::vector<std::vector<LayoutOption>>& options, int64_t capacity) {
  static std::mutex mutex;
  static std::map<std::string, LayoutAssignment> known;   // a cache of a pure function: order of use does not show
  const std::string key = key_of(options, capacity);
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (auto it = known.find(key); it != known.end()) return it->second;
  }
  LayoutAssignment a = solve(options, capacity);
  std::lock_guard<std::mutex> lock(mutex);
  return known.emplace(key, a).first->second;
}

}  // namespace mirage

// Decides the numbers of an attention kernel: warpgroups along queries and keys, keys per chunk, stages, blocks of a cluster that split the
// keys. All that fit are tried; the cost model keeps one.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "mirage/ir/walk.h"
#include "plan/attend/attend_internal.h"
#include "plan/buffers.h"

namespace mirage {
namespace {

int64_t up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

/// Whether v is made of positions and constants: cheaper to compute than to fetch.
bool only_positions(const AttendPlan& p, ValueId v) {
  const Graph& g = p.body;
  return !find_below(g, v, [&](ValueId x) {
    if (const Input* in = g.def_form<Input>(x))
      return p.operands[static_cast<size_t>(in->param)].position >= 0 ? Look::kPast : Look::kFound;
    return g.def_form<Const>(x) || g.def_form<Map>(x) || g.def_form<Transpose>(x) ? Look::kInto : Look::kFound;
  });
}

/// Per-key values that the logits need: everything along keys alone that core reads, and K's own factors.
void find_known(const Graph& g, AttendPlan& p) {
  AttendShape& s = p.shape;
  const std::vector<Phase> phase = phases(g);
  const auto is_key = [&](ValueId v) {
    const auto& a = s.axes[static_cast<size_t>(v)];
    return (a[0] == AttendAxis::kKey || a[1] == AttendAxis::kKey) && a[0] != AttendAxis::kQuery && a[1] != AttendAxis::kQuery &&
           a[0] != AttendAxis::kFeature && a[1] != AttendAxis::kFeature && a[0] != AttendAxis::kColumn && a[1] != AttendAxis::kColumn;
  };
  const auto collect = [&](ValueId root, ValueId stop, std::vector<ValueId>& out) {
    find_below(g, root, [&](ValueId v) {
      if (v == stop || v == s.scores) return Look::kPast;
      if (!is_key(v) || g.def_form<Const>(v) || only_positions(p, v)) return g.def_form<Map>(v) ? Look::kInto : Look::kPast;
      if (std::find(out.begin(), out.end(), v) == out.end()) out.push_back(v);
      return Look::kPast;
    });
  };
  if (!s.v.factors.empty()) p.value_known.push_back(-1);
  if (!s.k.factors.empty()) p.key_known.push_back(-1);
  if (!s.plain) collect(s.logit, -1, p.key_known);
  collect(s.share, s.weights, p.value_known);
}

/// Inputs with an element for every score (a mask or a bias per query and key), which threads fetch.
int score_inputs(const AttendPlan& p) {
  const Graph& g = p.body;
  int n = 0;
  for (NodeId i : g.inputs()) {
    const auto& axes = p.shape.axes[static_cast<size_t>(g.node(i).first_value)];
    n += std::count(axes.begin(), axes.end(), AttendAxis::kQuery) && std::count(axes.begin(), axes.end(), AttendAxis::kKey) &&
         p.operands[static_cast<size_t>(g.form<Input>(i)->param)].position < 0;
  }
  return n;
}

/// Registers that a consumer thread needs beside addresses: scores, results, weights, what a graph adds. The compiler fetches a whole
/// chunk's elements of a mask before it uses the first.
int registers(const AttendPlan& p) {
  const int extra = score_inputs(p) * p.chunk / 2 + (p.shape.plain ? 0 : 10) + (p.key_known.empty() ? 0 : 14) +
                    (p.shape.share != p.shape.weights || !p.value_known.empty() ? p.pair_factors() && p.producer ? 12 : 14 : 0);
  return p.chunk / 2 + p.used_columns() / 2 + p.chunk / 4 + 28 + extra +
         (p.warp_rings ? (p.query_gains() ? p.features : p.used_features()) / 4 + 8 : 0);
}

/// Threads and registers: at most 168 registers for up to 384 threads, fewer for more; beyond that the producer's warpgroup hands its own
/// to the consumers.
bool place_threads(AttendPlan& p) {
  const int groups = p.query_groups * p.key_groups, others = p.producers() + p.helpers;
  p.threads = p.group_threads() * groups + 32 * others;
  const auto limit = [&p](int threads) {
    return std::min<int>(65536 / (static_cast<int>(up(threads, 128)) * p.blocks_per_sm) / 8 * 8, 248);
  };
  if (registers(p) <= limit(p.threads)) return true;
  if (p.warp_rings || others == 0 || others > 4) return false;
  p.threads = 128 * (groups + 1);
  p.shrink = p.helpers ? 72 : 24;
  p.grow = std::min((limit(p.threads) * (groups + 1) - p.shrink) / groups / 8 * 8, 240);
  // the last needs more addresses than its 112 registers leave: it spilled
  return registers(p) + (groups == 4 && p.query_groups == 2 ? 8 : 0) <= p.grow;
}

bool place_memory(AttendPlan& p, const Target& t) {
  const int64_t stage = int64_t{p.chunk} * (p.features + p.columns) * 2, groups = p.query_groups * p.key_groups;
  const int64_t rings = p.warp_rings ? groups : 1;
  p.ring_at = int64_t{p.query_groups} * p.group_rows() * p.features * 2;
  const int64_t merge = p.key_groups > 1 ? groups * (p.columns / 8 + 1) * 16 * p.group_threads() : 0;
  p.known_at = p.ring_at + up(std::max(rings * p.stages * stage, merge), 128);
  p.receive_at = p.known_at + up(rings * p.stages * p.chunk * static_cast<int64_t>(p.key_known.size() + p.value_known.size()) * 4, 128);
  const int64_t live = std::min<int64_t>(p.group_rows() * p.query_groups, up(p.shape.queries, p.cluster));
  p.rows = static_cast<int>(up(live, p.cluster) / p.cluster);
  p.record_bytes = p.columns * (p.narrow_parts ? 2 : 4) + 8;
  p.record_pitch = static_cast<int>(up(p.record_bytes, 16));
  p.barriers_at = p.receive_at + (p.cluster > 1 ? up(int64_t{p.cluster} * p.rows * p.record_pitch, 8) : 0);
  // attend_meet, attend_share
  const int64_t item_rows = p.cluster > 1 ? int64_t{p.cluster} * p.rows : int64_t{p.group_rows()} * p.query_groups,
                items = p.cluster > 1 || !p.narrow_parts ? p.columns / 2 : p.columns / 4;
  p.slot_bytes = p.shape.batch.elements() * p.tiles() * (p.meets - 1) * item_rows * items * 16;
  p.smem_bytes = p.barriers_at + 8 * ((p.warp_rings ? 2 * groups : 6) * p.stages + 2);
  return p.blocks_per_sm == 1 ? p.smem_bytes <= t.smem_per_block : p.blocks_per_sm * (p.smem_bytes + 1024) <= t.smem_per_sm;
}

/// Blocks of a cluster that divide the keys, and clusters that meet. The latter for few queries of few batches over many keys.
constexpr std::pair<int, int> kParts[] = {{1, 1}, {2, 1}, {4, 1}, {8, 1}, {1, 2}, {1, 4}, {1, 8},
                                          {2, 2}, {4, 2}, {8, 2}, {4, 4}, {8, 4}, {8, 8}};

/// Divides the chunks among the blocks of the clusters: every group of every block has work. Clusters that meet must all be resident, and
/// start where chunks are.
bool divide_keys(AttendPlan& p, int64_t chunks, int meets, const Target& target) {
  const int64_t parts = int64_t{p.cluster} * meets;
  p.meets = meets;
  p.chunks_per_block = up(chunks, parts) / parts;
  if (p.chunks_per_block < p.key_groups || p.chunks_per_block * (parts - 1) >= chunks) return false;
  if (meets == 1) return true;
  if (p.cluster == 1 && !p.warp_rings) return false;   // a warpgroup's 64 rows are too much to post
  // clusters alone make blocks enough
  if (p.cluster > 1 && p.shape.batch.elements() * up(p.shape.queries, p.group_rows()) / p.group_rows() * 8 >= 64) return false;
  return !p.shape.last && !p.shape.first && p.blocks_per_sm == 1 && p.blocks() / p.cluster <= clusters_that_fit(p.cluster, target);
}

/// Whether the emitter has a place for everything that `v` is made of.
bool fits(const AttendPlan& p, ValueId root, AttendWhere there) {
  const auto peeled = [&](ValueId v) {
    return std::find_if(p.shape.peeled.begin(), p.shape.peeled.end(), [&](const auto& x) { return x.first == v; });
  };
  const auto look = [&](ValueId v, AttendWhere where) {
    const AttendLeaf leaf = attend_leaf(p, v, where);
    return leaf == AttendLeaf::kRefused || (leaf == AttendLeaf::kThrough && peeled(v) == p.shape.peeled.end()) ? Look::kFound : Look::kInto;
  };
  return !find_below(root, there, look, [&](ValueId v, AttendWhere where, const auto& push) {
    switch (attend_leaf(p, v, where)) {
      case AttendLeaf::kCompute: for (ValueId o : p.body.def(v).operands) push(o, where); break;
      case AttendLeaf::kThrough: push(peeled(v)->second, where); break;
      case AttendLeaf::kStatistic: push(p.body.def(v).operands[0], AttendWhere::kTile); break;
      case AttendLeaf::kRow: push(v, AttendWhere::kQueryRow); break;
      case AttendLeaf::kAfterRow: push(v, AttendWhere::kAfterRow); break;
      case AttendLeaf::kKnown: push(v, where == AttendWhere::kLogit ? AttendWhere::kKeyRow : AttendWhere::kValueRow); break;
      default: break;
    }
  });
}
}  // namespace

std::string check_regions(const AttendPlan& p) {
  const AttendShape& s = p.shape;
  for (const AttendFactor& f : s.scale) if (!fits(p, f.value, AttendWhere::kLogit)) return "a scale that is not per query";
  for (const AttendFactor& f : s.q.factors) if (!fits(p, f.value, AttendWhere::kLogit)) return "a factor of queries that is not per query";
  for (const AttendFactor& f : s.k.factors) if (!fits(p, f.value, AttendWhere::kKeyRow)) return "a factor of keys that is not per key";
  for (const AttendFactor& f : s.v.factors) if (!fits(p, f.value, AttendWhere::kValueRow)) return "a factor of values that is not per key";
  for (const AttendTensor* t : {&s.q, &s.k})
    for (const AttendFactor& f : t->gains)
      if (!fits(p, f.value, AttendWhere::kGain)) return "a gain that is not an operand's";
  for (const AttendFactor& f : s.v.gains) if (!fits(p, f.value, AttendWhere::kAfter)) return "a gain of values that is not an operand's";
  if (!s.plain && !fits(p, s.logit, AttendWhere::kLogit)) return "scores of another kind";
  if (!fits(p, s.share, AttendWhere::kShare)) return "weights of another kind";
  for (NodeId n : p.body.outputs())
    if (!fits(p, p.body.node(n).operands[0], AttendWhere::kAfter)) return "an output of another kind";
  return "";
}

/// Whether a row's padding would count in one of its statistics. Columns that pad a row are zeros: they add nothing to a sum of what is 0
/// at 0.
static bool has_padded_statistics(const AttendPlan& p) {
  const Graph& g = p.body;
  const AttendShape& s = p.shape;
  const auto zero = [&](auto&& self, ValueId v) -> bool {
    if (g.def_form<Input>(v)) return true;
    if (g.def_form<Transpose>(v)) return self(self, g.def(v).operands[0]);
    const Map* m = g.def_form<Map>(v);
    if (!m) return false;
    const std::vector<ValueId>& o = g.def(v).operands;
    switch (m->fn) {
      case MapFn::kSquare: case MapFn::kAbs: case MapFn::kNeg: case MapFn::kRelu: return self(self, o[0]);
      case MapFn::kMul: {
        const auto constant = [&](ValueId x) { const Const* c = g.def_form<Const>(x); return c && std::isfinite(c->value); };
        return constant(o[0]) ? self(self, o[1]) : constant(o[1]) ? self(self, o[0]) : o[0] == o[1] && self(self, o[0]);
      }
      default: return false;
    }
  };
  if (p.features == s.features && p.columns == s.columns) return false;
  return std::any_of(g.nodes().begin(), g.nodes().end(), [&](const Node& n) {
    const auto* r = std::get_if<Reduce>(&n.op);
    if (!r || (r->fn == ReduceFn::kSum && zero(zero, n.operands[0]))) return false;
    const auto& a = s.axes[static_cast<size_t>(n.operands[0])];
    return a[0] == AttendAxis::kFeature || a[1] == AttendAxis::kFeature || a[0] == AttendAxis::kColumn || a[1] == AttendAxis::kColumn;
  });
}

/// What every division shares; or why there is none.
static std::string prepare_attend(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results,
                                  const Target& target, AttendPlan& base) {
  if (target.name != "sm_90a") return "warpgroup attention is written for sm_90a";
  if (in_runs(operands, results)) return "a tensor in runs";
  base.body = body;
  base.operands = operands;
  base.results = results;
  join_products(base.body, base.operands);
  if (std::string why = match_attend(base.body, base.operands, results, base.shape); !why.empty()) return why;
  if (std::string why = find_second_parts(base); !why.empty()) return why;
  const AttendShape& s = base.shape;
  // batches may be one dimension with rows
  if (!has_int_places(operands, results) || s.batch.elements() > kMostPlaces / std::max(s.queries, s.keys))
    return "dimensions beyond 32-bit places";
  base.features = static_cast<int>(up(s.first_features, 64) + up(s.features - s.first_features, 64));
  base.columns = static_cast<int>(up(s.columns, 64));
  find_known(base.body, base);
  if (std::string why = check_regions(base); !why.empty()) return why;
  if (has_padded_statistics(base)) return "a norm over other than 64 or 128 elements";
  bool exact = true;
  for (const Access& r : results) exact &= r.dtype != DType::kF32;
  base.narrow_parts = s.parts_bounded && exact;
  return "";
}

AttendCandidates attend_candidates(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results,
                                   const Target& target) {
  const auto no = [](std::string why) { return AttendCandidates{{}, std::move(why)}; };
  AttendPlan base;
  if (std::string why = prepare_attend(body, operands, results, target, base); !why.empty()) return no(why);
  const AttendShape& s = base.shape;
  const bool wide = s.features > 128 || s.columns > 128;
  // a warpgroup's results are columns / 2 registers of each of its threads
  const bool few_groups = s.features > 256 || s.columns > 256 || (wide && s.queries <= 16);
  const bool known = !base.key_known.empty() || !base.value_known.empty();
  AttendCandidates all;
  if (wide) add_wide_plans(base, target, all.plans);
  for (int query_groups : {1, 2})
    for (int key_groups : {1, 2, 4})
      for (int chunk : {64, 128})
        for (const auto& [cluster, meets] : kParts)
          for (int stages : {8, 6, 4, 3, 2}) for (int per_sm : {1, 2}) {
              if (few_groups || (wide && chunk > 64) || (per_sm == 2 && query_groups * key_groups > 2) || query_groups * key_groups > 4 ||
                  (query_groups == 2 && s.queries <= 64))
                continue;
              AttendPlan p = base;
              p.query_groups = query_groups;
              p.key_groups = key_groups;
              p.chunk = chunk;
              p.cluster = cluster;
              p.blocks_per_sm = per_sm;
              const int64_t chunks = s.chunks(chunk);
              if (!divide_keys(p, chunks, meets, target)) continue;
              if (stages < std::min<int64_t>(p.chunks_per_block, key_groups + 1) || (stages > p.chunks_per_block && stages > 2)) continue;
              p.stages = static_cast<int>(std::min<int64_t>(stages, p.chunks_per_block));
              p.producer = p.chunks_per_block > p.stages;
              // A stage that is refilled must stay with one warpgroup: who has not seen a barrier's last phase cannot tell the one it waits
              // for from the one before the last.
              if (p.producer && p.stages % key_groups != 0) continue;
              p.helpers = known ? (p.producer ? 3 : 4) : 0;
              p.turns = query_groups * key_groups == 2 && !s.last && !s.first && chunks % (int64_t{cluster} * meets * key_groups) == 0 &&
                        p.chunks_per_block >= 16;
              // a second wave of clusters costs more than it brings
              if (cluster > 1 && p.blocks() / cluster > per_sm * clusters_that_fit(cluster, target)) continue;
              if (per_sm > 1 && p.blocks() <= target.num_sms && cluster <= 2) continue;
              if (!place_threads(p) || !place_memory(p, target)) continue;
              p.cost = estimate_attend(p, target);
              all.plans.push_back(std::move(p));
          }
  // Up to 16 queries: warps with rings of their own.
  if (!wide && s.queries <= 16 && !s.k.lines_along_rows && !s.v.lines_along_rows)
    for (int warps : {4, 8})
      for (int chunk : {32, 64})
        for (const auto& [cluster, meets] : kParts)
          for (int stages : {1, 2, 3}) for (int per_sm : {1, 2}) {
            AttendPlan p = base;
            p.warp_rings = true;
            p.key_groups = warps;
            p.chunk = chunk;
            p.cluster = cluster;
            p.blocks_per_sm = per_sm;
            p.stages = stages;
            p.producer = false;
            const int64_t chunks = s.chunks(chunk);
            if (!divide_keys(p, chunks, meets, target)) continue;
            if ((stages > 1 && p.chunks_per_block < warps * stages)) continue;
            if (per_sm > 1 && p.blocks() <= target.num_sms && cluster <= 2) continue;
            if (cluster > 1 && p.blocks() / cluster > per_sm * clusters_that_fit(cluster, target)) continue;
            if (!place_threads(p) || !place_memory(p, target)) continue;
            p.cost = estimate_attend(p, target);
            all.plans.push_back(std::move(p));
          }
  if (all.plans.empty())
    return no(wide ? "more than 128 features or columns, and no division that fits" : "no division of the attention fits");
  std::stable_sort(all.plans.begin(), all.plans.end(), [](const AttendPlan& a, const AttendPlan& b) { return a.cost.us < b.cost.us; });
  return all;
}

AttendPlanned plan_attend(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results,
                          const Target& target) {
  AttendCandidates all = attend_candidates(body, operands, results, target);
  if (all.plans.empty()) return {nullptr, {}, all.reason};
  auto best = std::make_shared<const AttendPlan>(std::move(all.plans.front()));
  return {best, best->cost, ""};
}

AttendPlanned plan_attend_as(const AttendChoice& choice, const Graph& body, const std::vector<Access>& operands,
                             const std::vector<Access>& results, const Target& target) {
  AttendPlan p;
  if (std::string why = prepare_attend(body, operands, results, target, p); !why.empty()) return {nullptr, {}, why};
  if (choice.wide) {
    std::vector<AttendPlan> all;
    add_wide_plans(p, target, all);
    for (AttendPlan& w : all)
      if (w.chunk == choice.chunk && w.stages == choice.stages && w.cluster == choice.cluster && w.meets == choice.meets) {
        const Cost cost = w.cost;
        return {std::make_shared<const AttendPlan>(std::move(w)), cost, ""};
      }
    return {nullptr, {}, "fewer chunks than blocks, or shared memory"};
  }
  p.warp_rings = choice.warp_rings;
  p.query_groups = choice.query_groups;
  p.key_groups = choice.key_groups;
  p.chunk = choice.chunk;
  p.stages = choice.stages;
  p.cluster = choice.cluster;
  p.blocks_per_sm = choice.blocks_per_sm;
  p.helpers = choice.helpers;
  p.producer = choice.producer;
  p.turns = choice.turns;
  const int64_t chunks = p.shape.chunks(p.chunk);
  if (!divide_keys(p, chunks, choice.meets, target)) return {nullptr, {}, "fewer chunks than warps"};
  if (!p.warp_rings && (p.producer ? p.chunks_per_block <= p.stages : p.chunks_per_block > p.stages))
    return {nullptr, {}, "the ring turns at one shape only"};
  if (!place_threads(p) || !place_memory(p, target)) return {nullptr, {}, "registers or shared memory"};
  p.cost = estimate_attend(p, target);
  const Cost cost = p.cost;
  return {std::make_shared<const AttendPlan>(std::move(p)), cost, ""};
}

}  // namespace mirage

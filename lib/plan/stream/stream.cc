// Plans block graphs whose weights stream (plan/stream.h): the matched structure (stream_match.cc) with the cheapest of a few dozen
// divisions by the cost model (stream_cost.cc).
#include "plan/stream/stream_plan.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "mirage/ir/walk.h"
#include "mirage/support/round.h"
#include "plan/stream/stream_internal.h"

namespace mirage {
namespace {

/// Registers of a thread: sums, the small operand of this chunk and the next, fragments and addresses.
int registers(const StreamPlan& p) {
  int n = 56;
  if (p.registers)
    for (const StreamWeight& w : p.weights) n += w.free == StreamAxis::kCol ? p.chunk / 32 * p.columns / 2 : p.chunk / 32 * w.padded / 2;
  for (const StreamContraction& c : p.contractions) {
    const StreamWeight& w = p.weights[static_cast<size_t>(c.weight)];
    n += w.free == StreamAxis::kCol ? p.columns / 4 * p.row_tiles : (p.row_tiles + 1) / 2 * w.padded / 2;
    // sums of one group and a tile of columns, its factors, the rows of all units
    if (c.factored >= 0) n += 4 * p.row_tiles + p.columns / 8 + p.chunk / 32 * 4 * p.row_tiles;
    if (c.type == ContractType::kTF32) n += 8 * p.row_tiles;
    // a loop carries the next chunk's rows beside them
    if (c.scaled && !p.prepared)
      n += 8 * p.row_tiles * p.chunk / 32 + ((p.depth + p.chunk - 1) / p.chunk > 4 * p.warps * p.cluster ? 16 : 0);
  }
  if (p.uneven()) n += p.row_tiles > 4 ? 12 + p.chunk / 2 : 24;   // where lines begin; of many rows, fewer fragments at a time
  for (const StreamProduct& q : p.products) {
    const int padded = p.weights[static_cast<size_t>(p.contractions[static_cast<size_t>(q.contraction)].weight)].padded;
    n += padded + (q.gained() ? padded / 4 : 0);
  }
  for (NodeId i : stream_factors(p)) n += p.columns / 8 * (differs_by_group(p, i) ? 2 * groups_of_chunk(p) : 1);
  for (NodeId i : p.body.inputs()) {
    const auto& axes = p.axes[static_cast<size_t>(p.body.node(i).first_value)];
    const bool weight = std::any_of(p.weights.begin(), p.weights.end(), [&](const StreamWeight& w) { return w.input == i; });
    if (weight || std::count(axes.begin(), axes.end(), StreamAxis::kDepth) == 0) continue;
    const int words = dtype_bytes(p.operands[static_cast<size_t>(p.body.form<Input>(i)->param)].dtype) * 2;
    if (i == p.second_input) continue;   // in the place of the first part's
    // of a ring a next chunk is under way, if there is one
    const int times = !p.registers && p.depth <= int64_t{p.chunk} * p.warps * p.cluster ? 1 : 2;
    n += times * p.chunk / 32 * words * (std::count(axes.begin(), axes.end(), StreamAxis::kRow) ? p.row_tiles : 1);
  }
  return n;
}

}  // namespace

int64_t stream_row_unit(const StreamShape& p, NodeId n) {
  const auto& axes = p.axes[static_cast<size_t>(p.body.node(n).first_value)];
  const Access& a = p.operands[static_cast<size_t>(p.body.form<Input>(n)->param)];
  const bool weight = std::any_of(p.weights.begin(), p.weights.end(), [&](const StreamWeight& w) { return w.input == n; });
  if (weight || std::count(axes.begin(), axes.end(), StreamAxis::kDepth) == 0) return 8;
  int64_t unit = std::gcd(int64_t{8}, std::gcd(p.depth, a.offset));
  for (size_t d = 0; d < axes.size(); d++)
    if (axes[d] == StreamAxis::kRow || axes[d] == StreamAxis::kBatch) unit = std::gcd(unit, a.strides[static_cast<int>(d)]);
  return unit;
}

std::vector<NodeId> stream_factors(const StreamShape& p) {
  std::vector<NodeId> out;
  const auto add = [&](ValueId below) {
    find_below(p.body, below, [&](ValueId x) {
      const NodeId n = p.body.value(x).node;
      const auto& axes = p.axes[static_cast<size_t>(x)];
      if (p.body.form<MatMul>(n)) return Look::kPast;
      if (p.body.form<Input>(n) && std::count(axes.begin(), axes.end(), StreamAxis::kDepth) == 0 &&
          std::find(out.begin(), out.end(), n) == out.end())
        out.push_back(n);
      return Look::kInto;
    });
  };
  for (const StreamContraction& c : p.contractions) {
    if (c.made >= 0) add(c.made);
    if (c.factored >= 0) add(c.factored);
  }
  return out;
}

bool computes_weights(const StreamShape& p) {
  return p.group || std::any_of(p.contractions.begin(), p.contractions.end(),
                                [](const StreamContraction& c) { return c.made >= 0 || c.factored >= 0; });
}

bool differs_by_group(const StreamShape& p, NodeId input) {
  const auto& axes = p.axes[static_cast<size_t>(p.body.node(input).first_value)];
  return std::count(axes.begin(), axes.end(), StreamAxis::kGroup) > 0;
}

int groups_of_chunk(const StreamPlan& p) { return p.group ? static_cast<int>(std::max<int64_t>(1, p.chunk / p.group)) : 1; }

StreamPlan stream_plan(StreamShape shape) {
  StreamPlan p;
  static_cast<StreamShape&>(p) = std::move(shape);
  p.row_tiles = static_cast<int>((p.rows + 7) / 8);
  for (StreamContraction& c : p.contractions) {
    const Access& weight = p.operands[static_cast<size_t>(p.body.form<Input>(p.weights[static_cast<size_t>(c.weight)].input)->param)];
    c.scaled = c.type == ContractType::kTF32 && weight.dtype == DType::kF16;
    if (c.scaled) c.type = ContractType::kF16;
  }
  return p;
}

namespace {

/// Inputs that v is a function of.
void leaves(const StreamPlan& p, ValueId v, std::set<NodeId>& out) {
  find_below(p.body, v, [&](ValueId x) {
    if (p.body.def_form<Input>(x)) out.insert(p.body.value(x).node);
    return std::any_of(p.early.begin(), p.early.end(), [&](const StreamStatistic& s) { return s.result == x; }) ? Look::kPast : Look::kInto;
  });
}

/// How far an input that is reduced before the loop reaches along that reduction; 0: it does not.
int64_t whole_extent(const StreamShape& p, NodeId input) {
  const auto& axes = p.axes[static_cast<size_t>(p.body.node(input).first_value)];
  for (size_t d = 0; d < axes.size(); d++)
    if (axes[d] == StreamAxis::kWhole) return p.operands[static_cast<size_t>(p.body.form<Input>(input)->param)].dims[static_cast<int>(d)];
  return 0;
}

}  // namespace

NodeId held_input(const StreamShape& p, NodeId deep, const std::set<NodeId>& whole) {
  const auto strides = [&](NodeId n, StreamAxis along) {   // of rows, along the reduction
    const auto& axes = p.axes[static_cast<size_t>(p.body.node(n).first_value)];
    const Access& a = p.operands[static_cast<size_t>(p.body.form<Input>(n)->param)];
    std::pair<int64_t, int64_t> out{0, 0};
    for (size_t d = 0; d < axes.size(); d++) {
      if (axes[d] == StreamAxis::kRow) out.first = a.strides[static_cast<int>(d)];
      if (axes[d] == along) out.second = a.strides[static_cast<int>(d)];
    }
    return out;
  };
  const Access& a = p.operands[static_cast<size_t>(p.body.form<Input>(deep)->param)];
  for (NodeId n : whole) {
    const Access& b = p.operands[static_cast<size_t>(p.body.form<Input>(n)->param)];
    if (a.buffer == b.buffer && a.offset == b.offset && a.dtype == b.dtype && a.position == b.position && whole_extent(p, n) == p.depth &&
        strides(deep, StreamAxis::kDepth) == strides(n, StreamAxis::kWhole))
      return n;
  }
  return -1;
}

namespace {

/// Whether what a warp reduces before the loop fits its registers: rows of whole inputs, eight elements of a lane at a time.
bool holds_early(const StreamPlan& p) {
  std::set<NodeId> inputs;
  for (const StreamStatistic& s : p.early) leaves(p, s.of, inputs);
  int64_t words = 0;
  for (NodeId n : inputs) {
    const Access& a = p.operands[static_cast<size_t>(p.body.form<Input>(n)->param)];
    const auto& axes = p.axes[static_cast<size_t>(p.body.node(n).first_value)];
    const bool rows = std::count(axes.begin(), axes.end(), StreamAxis::kRow) > 0;
    for (size_t d = 0; d < axes.size(); d++)
      if (axes[d] == StreamAxis::kWhole)
        words +=
            (rows ? (8 * p.row_tiles + p.warps - 1) / p.warps : 1) * ((a.dims[static_cast<int>(d)] + 255) / 256) * dtype_bytes(a.dtype) * 2;
  }
  return words > 0 && words <= (65536 / (p.warps * 32 * p.blocks_per_sm) >= 200 ? 96 : 48);
}

/// Whether the loop's operand is a function of held rows, of what they are reduced to and of vectors along the reduction that fit registers
/// beside them; whole units of 256 elements belong to one block each.
bool prepares(const StreamPlan& p) {
  if (!p.hold_early || !p.statistics.empty() || p.contractions.empty() || p.batch > 1) return false;
  for (const StreamContraction& c : p.contractions)
    if (c.small != p.contractions[0].small || c.type != p.contractions[0].type ||
        p.weights[static_cast<size_t>(c.weight)].depth_major != p.weights[0].depth_major)
      return false;
  const int64_t share = static_cast<int64_t>(p.warps) * p.chunk;   // of one block in a round
  if (share % 256 || p.depth % (share * p.cluster)) return false;
  std::set<NodeId> early, loop;
  for (const StreamStatistic& s : p.early) leaves(p, s.of, early);
  leaves(p, p.contractions[0].small, loop);
  // held in the order of the loop's chunks
  for (NodeId n : early) if (const int64_t e = whole_extent(p, n); e != 0 && e != p.depth) return false;
  const auto has = [&](NodeId n, StreamAxis a) {
    const auto& axes = p.axes[static_cast<size_t>(p.body.node(n).first_value)];
    return std::count(axes.begin(), axes.end(), a) > 0;
  };
  bool rows = false;
  int64_t words = 0;   // of vectors, held from before the weights until the rows are known
  for (NodeId n : loop) {
    if (!has(n, StreamAxis::kDepth)) continue;
    if (has(n, StreamAxis::kRow)) {
      if (held_input(p, n, early) < 0) return false;
      rows = true;
    } else {
      words += p.depth / p.cluster / 256 * dtype_bytes(p.operands[static_cast<size_t>(p.body.form<Input>(n)->param)].dtype) * 2;
    }
  }
  const int64_t units = p.depth / 256, held = (8 * p.row_tiles + p.warps - 1) / p.warps * units * 4;
  return rows && words <= 64 && words + held <= 128 && 65536 / (p.warps * 32 * p.blocks_per_sm) >= 255;
}

/// Whether weights can go straight to registers: one part of the reduction per warp, vectors of a block's columns that exist or do not.
bool registers_fit(const StreamPlan& p, int64_t chunks, std::string& reason) {
  if (p.second) {
    reason = "a reduction of two parts";
    return false;
  }
  if (computes_weights(p)) {
    reason = "weights that are computed in the loop";
    return false;
  }
  if (chunks != p.warps || p.cluster != 1 || p.stages != 1) { reason = "more of the weights than registers hold"; return false; }
  if (!p.early.empty()) { reason = "rows that are reduced before the loop"; return false; }
  if (p.batch > 1) { reason = "a batch"; return false; }
  if (!p.beside.empty()) { reason = "columns of several calls"; return false; }
  int words = 0;
  for (const StreamWeight& w : p.weights) {
    if (w.free == StreamAxis::kCol) {
      words += p.chunk / 32 * p.columns / 2;
      if (w.depth_major != p.weights[0].depth_major || p.weights[0].free != StreamAxis::kCol) {
        reason = "weights with different lines";
        return false;
      }
      if (w.uneven || p.depth % 8) { reason = "lines that begin anywhere"; return false; }
      if (!w.depth_major && w.extent % (p.columns / 8)) { reason = "columns that are no whole vectors"; return false; }
    } else if (!w.depth_major && w.extent % 2) { reason = "an odd rank"; return false; }
  }
  if (words > 64) { reason = "more of the weights than registers hold"; return false; }
  return true;
}

/// Whether chunks are whole where parts of the reduction differ: its two parts; groups.
bool chunks_fit(const StreamPlan& p, std::string& reason) {
  const auto no = [&](const char* why) {
    reason = why;
    return false;
  };
  if (p.second && (p.second % p.chunk || p.depth % p.chunk)) return no("chunks of both parts of the reduction");
  if (p.group && p.group % p.chunk && p.chunk % p.group) return no("chunks that begin or end within a group");
  // what is computed of nothing is not zero
  if (p.depth % p.chunk && computes_weights(p)) return no("chunks beyond the last group");
  return true;
}

/// Steps of a chunk: one weight with columns each; low ranks, of which there are `ranks`, ride along.
bool place_weights(StreamPlan& p, int& ranks, std::string& reason) {
  p.steps = 0;
  for (StreamWeight& w : p.weights)
    if (w.free == StreamAxis::kCol && w.instead_of < 0) w.step = p.steps++;
  for (StreamWeight& w : p.weights)
    if (w.free == StreamAxis::kRank) w.step = ranks++ % p.steps;
  std::vector<int64_t> used(static_cast<size_t>(p.steps), 0);
  for (StreamAxis kind : {StreamAxis::kCol, StreamAxis::kRank})
    for (StreamWeight& w : p.weights) {
      if (w.free != kind || w.instead_of >= 0) continue;
      if (w.depth_major && p.chunk % 64) { reason = "chunks of weights along the reduction are multiples of 64"; return false; }
      int64_t& at = used[static_cast<size_t>(w.step)];
      w.offset = static_cast<int>(at);
      at += round_up(w.uneven ? int64_t{p.chunk} * kUnevenLine : static_cast<int64_t>(w.padded) * p.chunk * 2, kBoxAlign);
    }
  for (StreamWeight& w : p.weights) {
    if (w.instead_of < 0) continue;
    w.step = p.weights[static_cast<size_t>(w.instead_of)].step;
    w.offset = p.weights[static_cast<size_t>(w.instead_of)].offset;
  }
  p.stage_bytes = *std::max_element(used.begin(), used.end());
  return true;
}

}  // namespace

bool divide_stream(StreamPlan& p, const StreamChoice& choice, const Target& target, std::string& reason) {
  p.registers = choice.registers;
  p.columns = choice.columns;
  p.warps = choice.warps;
  p.stages = choice.stages;
  p.chunk = choice.chunk;
  p.cluster = choice.cluster;
  p.blocks_per_sm = choice.blocks_per_sm;
  p.evict_first = choice.evict_first;
  if (p.columns != 64 && !p.registers && (p.uneven() || !p.products.empty() || !p.beside.empty())) {
    reason = "fewer columns than lines or second factors have";
    return false;
  }
  for (StreamWeight& w : p.weights)
    if (w.free == StreamAxis::kCol) w.padded = p.registers ? 64 : p.columns;
  int ranks = 0;
  if (!place_weights(p, ranks, reason)) return false;
  const int64_t sums = static_cast<int64_t>(p.sums.size()), item_bytes = p.row_tiles * int64_t{p.columns} * 32;
  p.ring_bytes = p.registers ? sums * item_bytes : round_up(std::max(p.stages * p.stage_bytes, sums * item_bytes), kBoxAlign);
  p.received_at = p.warps * p.ring_bytes;
  p.statistics_at = p.received_at + (p.cluster > 1 ? sums * item_bytes : 0);
  p.early_at = p.statistics_at + static_cast<int64_t>(p.statistics.size()) * p.warps * p.cluster * p.row_tiles * 8 * 4;
  p.barriers_at = round_up(p.early_at + static_cast<int64_t>(p.early.size()) * p.row_tiles * 8 * 4, 8);
  p.smem_bytes = p.barriers_at + (p.registers ? 0 : 8 * (p.warps * p.stages + 1));
  if (p.smem_bytes > target.smem_per_block || p.blocks_per_sm * (p.smem_bytes + 1024) > target.smem_per_sm) {
    reason = "shared memory";
    return false;
  }
  p.hold_early = holds_early(p);
  p.prepared = prepares(p);
  if (p.prepared) {   // eight lanes read 16 bytes of two rows' neighbours at a time, from different banks
    const int64_t bytes = p.depth / p.cluster * (p.contractions[0].type == ContractType::kTF32 ? 4 : 2), at = round_up(p.smem_bytes, 128);
    p.prepared_pitch = round_up(bytes, 128) + (p.contractions[0].type == ContractType::kTF32 ? 16 : 64);
    p.prepared_at = at;
    const int64_t all = at + 8 * p.row_tiles * (p.prepared_pitch + 4);   // what brings each row back behind them
    p.prepared = all <= target.smem_per_block && p.blocks_per_sm * (all + 1024) <= target.smem_per_sm;
    if (p.prepared) p.smem_bytes = all;
  }
  if (!p.prepared) p.prepared_at = p.prepared_pitch = 0;
  if (!chunks_fit(p, reason)) return false;
  const int64_t chunks = (p.depth + p.chunk - 1) / p.chunk;
  if (p.registers && !registers_fit(p, chunks, reason)) return false;
  if (chunks < p.warps * p.cluster) { reason = "fewer chunks than warps"; return false; }
  const int64_t shortest = std::any_of(p.weights.begin(), p.weights.end(), [](const StreamWeight& w) { return w.depth_major; }) ? 64 : 32;
  // copies fill the rest with zeros: 512 times 27 x 64 by 27 took 4.56, with chunks of 64 3.71
  if (p.chunk > shortest && p.chunk / 2 >= p.depth) { reason = "chunks of twice the reduction"; return false; }
  p.staggered = chunks % (p.warps * p.cluster) == 0 && chunks > p.warps * p.cluster && ranks > 0;
  if (p.stages > (chunks + p.warps * p.cluster - 1) / (p.warps * p.cluster) * p.steps) { reason = "more stages than steps"; return false; }
  const int most = std::min<int>(255, 65536 / (p.warps * 32 * p.blocks_per_sm) / 8 * 8);
  if (registers(p) > most) { reason = "registers"; return false; }
  return true;
}

std::optional<StreamPlan> matched_stream(const Work& w, std::string& reason) {
  if (!w.target.has_tma || !w.target.has_cluster || w.target.sm != 90) {
    reason = "no tensor copies with clusters on " + w.target.name;
    return std::nullopt;
  }
  std::optional<StreamShape> shape = match_stream(w.body, w.operands, w.results, w.rule, kMaxStreamRows, reason);
  return shape ? std::optional(stream_plan(*std::move(shape))) : std::nullopt;
}

StreamCandidates stream_candidates(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results,
                                   const Target& target, const ContractRule& rule) {
  StreamCandidates all;
  const std::optional<StreamPlan> matched = matched_stream({body, operands, results, target, rule}, all.reason);
  return matched ? stream_divisions(*matched, target) : all;
}

namespace {

/// Whether blocks of so many columns have a multiprocessor each, and a fourth of them work (8 x 2048 x 512 in 32 blocks 3.1, in 64 of
/// clusters of eight 2.9), or there are no more columns, and copies bring no less than 64 bytes of a line (16 x 4096 x 1024 in blocks of 16
/// columns, lines along the columns: 5.9, along the reduction 5.2).
bool narrow_fits(const StreamPlan& p, int columns, int cluster, const Target& target) {
  const bool along_columns = std::any_of(p.weights.begin(), p.weights.end(), [](const StreamWeight& w) { return !w.depth_major; });
  if (columns < 32 && along_columns) return false;
  const int64_t tiles = ceil_div(p.cols, int64_t{columns}) * p.batch;
  if (p.cols <= columns) return tiles * cluster <= target.num_sms;
  return cluster <= 2 && 2 * tiles <= target.num_sms && 4 * tiles * cluster >= target.num_sms;
}

}  // namespace

std::vector<StreamDivision> stream_division_list(const StreamPlan& matched, const Target& target, std::string& why) {
  std::vector<StreamDivision> all;
  StreamPlan p = matched;
  // Half as many columns where registers do not hold the sums of 64: many rows, several sums.
  const auto fits = [&](int columns) {
    return divide_stream(p, {1, 1, 32, 1, 1, true, false, columns}, target, why) ||
           divide_stream(p, {1, 1, 64, 1, 1, true, false, columns}, target, why);
  };
  const int most_columns = fits(64) ? 64 : 32;
  if (most_columns == 32) {
    std::string other;
    std::swap(why, other);
    if (!fits(32)) {
      why = other;
      return all;
    }
  }
  std::string reason;
  const auto consider = [&](const StreamChoice& choice) {
    if (divide_stream(p, choice, target, reason)) all.push_back({choice, estimate(p, target, false).us});
  };
  for (int warps : {1, 2, 4, 8, 16})
    for (int cluster : {1, 2, 4, 8})
      for (int chunk : {32, 64, 128})
        for (int stages : {1, 2, 3, 4, 6})
          for (int blocks : {1, 2, 3, 4}) consider({warps, stages, chunk, cluster, blocks, true, false, most_columns});
  // Fewer columns instead of larger clusters and of multiprocessors without work; each warp has as many chunks.
  for (int columns : {32, 16})
    for (int cluster : {1, 2, 4, 8})
      if (columns < most_columns && narrow_fits(p, columns, cluster, target))
        for (int warps : {4, 6, 8, 12})
          for (int chunk : {32, 64, 128})
            for (int stages : {1, 2, 3, 4, 6, 8})
              if (ceil_div(p.depth, int64_t{chunk}) % (warps * cluster) == 0)
                consider({warps, stages, chunk, cluster, 1, true, false, columns});
  for (int columns : {32, 64})
    for (int chunk : {32, 64, 128})
      for (int blocks : {1, 2, 3, 4})
        if (const int64_t warps = (p.depth + chunk - 1) / chunk; warps <= 16)
          consider({static_cast<int>(warps), 1, chunk, 1, blocks, false, true, columns});
  why.clear();
  std::stable_sort(all.begin(), all.end(), [](const StreamDivision& a, const StreamDivision& b) { return a.us < b.us; });
  return all;
}

StreamPlan divided_stream(const StreamPlan& matched, const StreamChoice& choice, const Target& target) {
  StreamPlan p = matched;
  std::string reason;
  MIRAGE_ASSERT(divide_stream(p, choice, target, reason)) << reason;
  p.cost = estimate(p, target);
  return p;
}

StreamCandidates stream_divisions(const StreamPlan& matched, const Target& target) {
  StreamCandidates all;
  for (const StreamDivision& d : stream_division_list(matched, target, all.reason))
    all.plans.push_back(divided_stream(matched, d.choice, target));
  return all;
}

StreamPlanned best_stream_division(const StreamPlan& matched, const Target& target) {
  StreamPlanned best;
  const std::vector<StreamDivision> all = stream_division_list(matched, target, best.reason);
  if (all.empty()) return best;
  best.plan = std::make_shared<const StreamPlan>(divided_stream(matched, all.front().choice, target));
  best.cost = best.plan->cost;
  return best;
}

StreamPlanned plan_stream(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results, const Target& target,
                          const ContractRule& rule) {
  StreamPlanned none;
  const std::optional<StreamPlan> matched = matched_stream({body, operands, results, target, rule}, none.reason);
  return matched ? best_stream_division(*matched, target) : none;
}

bool StreamPlan::even_first(size_t i) const {
  const int first = weights[i].instead_of >= 0 ? weights[i].instead_of : static_cast<int>(i);
  const auto fits = [&](const StreamShape& call) {
    for (size_t j = 0; j < call.weights.size(); j++) {
      const StreamWeight& w = call.weights[j];
      if ((static_cast<int>(j) == first || w.instead_of == first) && (!w.depth_major || w.uneven || w.extent % 8 != 0)) return false;
    }
    return true;
  };
  return !registers && fits(*this) && std::all_of(beside.begin(), beside.end(), fits);
}

}  // namespace mirage

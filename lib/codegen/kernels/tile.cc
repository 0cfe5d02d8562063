// Emits a tile kernel from its TilePlan (plan/tile.h): copies, wgmma and the exchange are calls of the device library
// (runtime/68_tile.cuh), everything elementwise is text from the block graph.
#include <algorithm>
#include <set>

#include "codegen/kernels/stream_text.h"
#include "codegen/kernels/tile_turned.h"
#include "mirage/codegen/module.h"
#include "mirage/plan/hints.h"
#include "mirage/plan/tile.h"
#include "mirage/support/round.h"

namespace mirage {
namespace {

class TileEmitter : public StreamText {
 public:
  /// waits: it is started while the kernel ahead of it still runs; early: weights may be read before that one has finished.
  TileEmitter(const TilePlan& p, bool waits, bool early) : StreamText(p), p_(p), waits_(waits), early_(early) {
    for (const StreamStatistic& s : s_.statistics) (reads_ring(s.of) ? ring_statistics_ : held_statistics_) = true;
    if (stays()) batch_ = p_.batch > 1 ? "batch" : "0";
    if (p_.cluster == 1) made_ = row_values();   // of a cluster every block has a part of each statistic
  }

  std::string body() {
    constants();
    prologue();
    if (waits_)
      line(
          "{}",
          early_
              ? "if (warp != kWarps) await_previous();   // weights come before the kernel ahead has finished; everything else waits for it"
              : "await_previous();");
    if (p_.large) open("if (warp >= kWarps) {{   // warps that copy, and leave their registers to the others");
    if (p_.grown > 0) line("registers_shrink<{}>();", kCopyingRegisters);
    weights_warp();
    rows_warp();
    if (p_.large) {
      if (p_.grown > 0) leave_cluster();
      line("return;");
      close();
      if (p_.grown > 0) line("registers_grow<{}>();", p_.grown);
    }
    if (stays()) open_tiles();
    early_loads();
    loop();
    sums();
    statistics();
    if (stays()) leaving_tail();
    else tail();
    return std::move(out_);
  }

  bool mapped(NodeId n) const override {
    if (is_weight(n) || (stays() && staged_at(p_, n) >= 0)) return true;
    // Copied by the ring, and never read otherwise.
    return in_ring(n) && !held_leaves().count(n) && !tail_leaves().count(n);
  }
  std::vector<NodeId> copied() const {
    std::vector<NodeId> out;
    for (const TileRows& r : p_.small) if (r.input >= 0) out.push_back(r.input);
    return out;
  }
  /// Operands of rows and columns that the tail reads from shared memory.
  std::vector<NodeId> fetched() const {
    std::vector<NodeId> out;
    for (NodeId n : tail_leaves()) if (staged_at(p_, n) >= 0) out.push_back(n);
    return out;
  }

 private:
  bool in_ring(NodeId n) const { return std::any_of(p_.small.begin(), p_.small.end(), [&](const TileRows& r) { return r.input == n; }); }
  const TileRows& rows_of(NodeId n) const {
    return *std::find_if(p_.small.begin(), p_.small.end(), [&](const TileRows& r) { return r.input == n; });
  }
  /// Whether a statistic finds all that it needs along the reduction in the ring.
  bool reads_ring(ValueId v) const {
    std::set<NodeId> all;
    leaves(v, all);
    return std::all_of(all.begin(), all.end(), [&](NodeId n) { return in_ring(n) || !has(value(n), Axis::kDepth); });
  }
  /// Inputs that come through registers: of computed rows, and of statistics that the ring does not serve.
  std::set<NodeId> held_leaves() const {
    std::set<NodeId> out;
    for (const TileRows& r : p_.small) if (r.input < 0) leaves(r.value, out);
    for (const StreamStatistic& s : s_.statistics) if (!reads_ring(s.of)) leaves(s.of, out);
    return out;
  }
  std::set<NodeId> deep_held() const {
    std::set<NodeId> out;
    for (NodeId n : held_leaves()) if (has(value(n), Axis::kDepth)) out.insert(n);
    return out;
  }
  bool overlaps() const { return p_.large && !prepares(); }
  bool stays() const { return p_.held_tiles > 0; }
  bool prepares() const { return p_.computes() || held_statistics_; }
  bool reads_rows() const { return prepares() || ring_statistics_; }
  bool uneven() const { return p_.tail_tiles() * p_.cluster != p_.tiles(); }
  bool even() const { return p_.chunks_per_block * p_.cluster == p_.chunks; }
  bool ragged_depth() const { return p_.depth % p_.chunk != 0; }
  static int64_t ranks(const StreamWeight& w) { return (w.extent + 15) / 16 * 16; }

  void constants() {
    line(
        "constexpr int kColumnGroups = {}, kWarps = {}, kTiles = {}, kTail = {}, kGroupRows = {}, kBlockRows = {}, kRowBlocks = {}, "
        "kCluster = {}, kStages = {}, kChunk = {};   // kTiles: 8 rows each; kTail: of them finished here",
        p_.column_groups, 4 * p_.groups(), p_.tiles(), p_.tail_tiles(), p_.group_rows, p_.block_rows(), p_.row_blocks, p_.cluster,
        p_.stages, p_.chunk);
    line("constexpr int kM = {}, kN = {}, kDepth = {}, kStage = {}, kComputed = {}, kReceived = {}, kStatistics = {}, kBarriers = {};",
         p_.rows, p_.cols, p_.depth, p_.stage_bytes, p_.computed_at, p_.received_at, p_.statistics_at, p_.barriers_at);
    line("extern __shared__ __align__(1024) unsigned char tile_smem[];");
    line("unsigned char* const smem = tile_smem;");
    if (p_.large) place_of_block();
    else
      line(
          "const int lane = lane_id(), warp = warp_uniform(warp_id()), rank = {}, block = block_id() / kCluster, column0 = block / "
          "kRowBlocks * {}, first_row = block % kRowBlocks * kBlockRows;",
          p_.cluster > 1 ? "cluster_rank()" : "0", p_.block_columns());
    if (stays())
      line("constexpr int chunks = {}, kHeld = {}, kPlaces = {}, kClusters = {};   // kPlaces: of kSharing tiles each", p_.chunks,
           p_.held_tiles, p_.blocks() * p_.batch / p_.sharing, p_.resident / p_.sharing);
    else
      line("const int first = rank * {0}, chunks = {1};", p_.chunks_per_block,
           even() ? std::to_string(p_.chunks_per_block)
                : fmt::format("rank + 1 < kCluster ? {} : {} - first", p_.chunks_per_block, p_.chunks));
    line("const uint32_t ring = shared_address(smem), full = ring + kBarriers, empty = full + 8 * kStages, met = empty + 8 * kStages;");
    if (stays() && !fetched().empty()) line("const uint32_t arrived = met + 8, left = arrived + {};", 8 * p_.groups());
  }

  /// Blocks in panels of neighbouring rows, columns slower, so that those at work at the same time find in L2 what others asked for.
  void place_of_block() {
    const int64_t columns = (p_.column_blocks() + p_.sharing - 1) / p_.sharing;
    line("constexpr int kSharing = {}, kPanel = {}, kColumns = {};   // kColumns: clusters beside each other", p_.sharing, p_.panel,
         columns);
    line("const int lane = lane_id(), warp = warp_uniform(warp_id()), rank = {}, share = {}{};", p_.cluster > 1 ? "cluster_rank()" : "0",
         p_.sharing > 1 ? "cluster_rank()" : "0",
         stays() ? "" : fmt::format(", block = block_id() / {}", p_.cluster > 1 ? "kCluster" : "kSharing"));
    if (!stays()) place_of_tile();
  }
  void place_of_tile() {
    line(
        "const int panel = block / (kPanel * kColumns), in_panel = block - panel * (kPanel * kColumns), height = kRowBlocks - panel * "
        "kPanel < kPanel ? kRowBlocks - panel * kPanel : kPanel;");
    line("const int column0 = (in_panel / height * kSharing + share) * {}, first_row = (panel * kPanel + in_panel % height) * kBlockRows;",
         p_.block_columns());
  }

  /// Tile after tile of a block that stays; done: chunks of those behind it.
  void open_tiles() {
    open("for (int tile = block_id() / kSharing, done = 0; tile < kPlaces; tile += kClusters, done += chunks) {{");
    if (p_.batch == 1) line("const int block = tile;");
    else line("const int batch = tile / {0}, block = tile - batch * {0};", p_.blocks() / p_.sharing);
    place_of_tile();
  }

  void prologue() {
    open("if (warp == kWarps && lane == 0) {{");
    line("for (int s = 0; s < kStages; s++) {{ mbarrier_init(full + 8 * s, {}); mbarrier_init(empty + 8 * s, kWarps{}); }}",
         copied().empty() ? 1 : 2, p_.sharing > 1 ? " * kSharing" : "");
    if (p_.cluster > 1) {
      line("mbarrier_init(met, 1);");
      if (uneven())
        line("mbarrier_expect(met, {} + {} * (rank + 1 < kCluster ? kTail : kTiles - rank * kTail));",
             (p_.cluster - 1) * p_.statistics_bytes(), (p_.cluster - 1) * p_.share_bytes() / p_.tail_tiles());
      else line("mbarrier_expect(met, {});", (p_.cluster - 1) * (p_.statistics_bytes() + p_.share_bytes()));
    }
    if (stays() && !fetched().empty())
      line("for (int g = 0; g < {}; g++) {{ mbarrier_init(arrived + 8 * g, 1); mbarrier_init(left + 8 * g, 1); }}", p_.groups());
    line("mbarrier_publish();");
    close();
    line("warp_barrier();");
    if (p_.cluster > 1) line("cluster_arrive_relaxed();");
    if (p_.sharing > 1) {   // nobody copies to a block whose barriers are not set up
      line("cluster_arrive();");
      line("cluster_wait();");
    } else {
      line("barrier();");
    }
  }
  void ring_loop() {
    if (stays()) {
      line("const int n = done + i, place = n % kStages, k = i * kChunk;");
      line("if (n >= kStages) mbarrier_wait(empty + 8 * place, (n / kStages - 1) & 1);");
      line("const uint32_t to = ring + place * kStage, bar = full + 8 * place;");
      return;
    }
    line("const int place = i % kStages, k = (first + i) * kChunk;");
    line("if (i >= kStages) mbarrier_wait(empty + 8 * place, (i / kStages - 1) & 1);");
    line("const uint32_t to = ring + place * kStage, bar = full + 8 * place;");
  }
  /// What a warp that copies has to do with the cluster's barriers.
  void leave_cluster() {
    if (p_.cluster > 1) line("cluster_wait();");
    if (!p_.overlaid) return;
    line("cluster_arrive_relaxed();");
    line("cluster_wait();");
  }
  void end_of_warp() {
    close();
    if (stays()) close();
    line("warp_barrier();");
    leave_cluster();
    line("return;");
    close();
  }
  void weights_warp() {
    open("if (warp == kWarps) {{   // brings the weights");
    if (p_.evict_first) line("const uint64_t policy = evict_first_policy();");
    if (stays()) open_tiles();
    open("for (int i = 0; lane == 0 && i < chunks; i++) {{");
    ring_loop();
    line("mbarrier_expect(bar, {});", p_.weight_bytes);
    for (size_t w = 0; w < p_.weights.size(); w++) {
      const StreamWeight& x = p_.weights[w];
      const bool wide = x.free == Axis::kCol;
      const std::string slice = x.slice ? ", " + batch_ : "";
      const char* policy = wide && p_.evict_first ? ", policy" : "";
      for (int g = 0; g < (wide ? p_.column_groups : 1); g++) {
        const std::string column = wide ? fmt::format("column0 + {}", 64 * g) : "0";
        const int64_t to = x.offset + int64_t{g} * 128 * p_.chunk;
        if (x.packed) line("copy_box(to + {}, map{}, 0, k / 64 * {}{}, bar{});", to, w, x.extent, slice, policy);
        else if (!x.depth_major) line("copy_box(to + {}, map{}, {}, k{}, bar{});", to, w, column, slice, policy);
        else
          for (int j = 0; j < p_.chunk / 64; j++)
            line("copy_box(to + {}, map{}, k + {}, {}{}, bar{});", to + j * 128 * x.padded, w, j * 64, column, slice, policy);
      }
    }
    end_of_warp();
  }
  /// Boxes of 64 rows of a chunk whose lines lie across the reduction.
  void rows_across(const TileRows& r, size_t map) {
    const std::string slice = stride(r.input, Axis::kBatch) ? ", " + batch_ : "";
    const int part = p_.block_rows() / p_.sharing;
    for (int j = 0; j < part / 64; j++) {
      const int64_t to = r.offset + int64_t{j} * 128 * p_.chunk;
      if (p_.sharing == 1) line("copy_box(to + {}, map{}, first_row + {}, k{}, bar);", to, map, 64 * j, slice);
      else
        line("copy_box_to(to + {} + share * {}, map{}, first_row + {} + share * {}, k{}, bar, {});", to, part / 64 * 128 * p_.chunk, map,
             64 * j, part, slice, (1 << p_.sharing) - 1);
    }
  }
  void rows_warp() {
    open("if (warp == kWarps + 1) {{   // and the rows");
    if (copied().empty()) {
      open("{{");
      if (stays()) open("{{");
      end_of_warp();
      return;
    }
    if (stays()) open_tiles();
    open("for (int i = 0; lane == 0 && i < chunks; i++) {{");
    ring_loop();
    int64_t bytes = 0;
    for (const TileRows& r : p_.small) if (r.input >= 0) bytes += r.bytes;
    line("mbarrier_expect(bar, {});", bytes);
    size_t map = p_.weights.size();
    for (const TileRows& r : p_.small) {
      if (r.input < 0) continue;
      if (r.across) { rows_across(r, map++); continue; }
      const int along = r.type == ContractType::kTF32 ? 32 : 64;   // elements of a line
      for (int j = 0; j < p_.chunk / along; j++) {
        const std::string slice = stride(r.input, Axis::kBatch) ? ", " + batch_ : "";
        const int64_t to = r.offset + j * p_.block_rows() * 128, part = p_.block_rows() / p_.sharing;
        if (p_.sharing == 1) line("copy_box(to + {}, map{}, k + {}, first_row{}, bar);", to, map, j * along, slice);
        else
          line("copy_box_to(to + {} + share * {}, map{}, k + {}, first_row + share * {}{}, bar, {});", to, part * 128, map, j * along, part,
               slice, (1 << p_.sharing) - 1);
      }
      map++;
    }
    if (stays()) operands_warp();
    end_of_warp();
  }
  /// What the tail reads of a tile, behind its first chunks, once the results of the one before have left that place.
  void operands_warp() {
    if (fetched().empty()) return;
    open("if (i == {}) {{", std::min<int64_t>(2, p_.chunks - 1));
    line("const int round = done / chunks;");
    open("for (int g = 0; g < {}; g++) {{", p_.groups());
    line("if (round > 0) mbarrier_wait(left + 8 * g, (round - 1) & 1);");
    line("mbarrier_expect(arrived + 8 * g, {} * (kTiles * 1024));", fetched().size());
    size_t map = p_.weights.size() + copied().size() + g_.outputs().size();
    for (NodeId n : fetched())
      line(
          "copy_box(ring + {} + g * (kTiles * 1024), map{}, column0 + g % kColumnGroups * 64, first_row + g / kColumnGroups * "
          "kGroupRows{}, arrived + 8 * g);",
          staged_at(p_, n), map++, stride(n, Axis::kBatch) ? ", " + batch_ : "");
    close();
    close();
  }

  // ---- warpgroups: their place, and what does not change in the loop
  void early_loads() {
    line(
        "const int group = warp / 4, team = group / kColumnGroups, column = column0 + group % kColumnGroups * 64;   // a team shares rows");
    if (reads_rows())
      line(
          "const int member = thread_id() - team * {1}, row = team * kGroupRows + member / {0}, part = member % {0};   // a row that this "
          "thread reads, together with others",
          p_.lanes, p_.team());
    if (reads_rows() && some_idle()) line("const bool reads = member / {} < kGroupRows;", p_.lanes);
    for (size_t i = 0; i < p_.products.size(); i++) {
      const StreamProduct& q = p_.products[i];
      const StreamWeight& w = p_.weights[at(p_.contractions[at(q.contraction)].weight)];
      line("TileFactor<{}, {}> factor{};", cuda_type(access(q.input).dtype), ranks(w), i);
      line("factor{}.fetch({} + column * int64_t({}), {}, {}, {}, kN - column);", i, pointer(q.input), q.col_stride, q.rank_stride,
           q.col_stride, w.extent);
      declare_gain(i, fmt::format("RankGain<{}, 1, 4>", ranks(w)), w.extent);
    }
    for (NodeId n : loop_leaves()) {
      if (has(value(n), Axis::kDepth)) continue;
      if (!has(value(n), Axis::kRow)) line("const float l{} = load(*({}));", n, pointer(n));
      else
        line("const float l{} = {}first_row + row < kM ? load(({})[(first_row + row) * int64_t({})]) : 0.0f;", n, reads_guard(" && "),
             pointer(n), stride(n, Axis::kRow));
    }
    if (loads_late()) ahead_of_tail();
  }
  bool some_idle() const { return p_.lanes * p_.group_rows != p_.team(); }
  std::string reads_guard(const char* more) const { return some_idle() ? fmt::format("reads{}", more) : ""; }

  // ---- the loop
  int pieces() const { return p_.chunk / 8 / p_.lanes; }   // of a chunk, per thread
  std::string loop_leaf(ValueId v) const override {
    const NodeId n = g_.value(v).node;
    if (!has(v, Axis::kDepth)) return fmt::format("l{}", n);
    if (from_ring_)
      return fmt::format("to_pack(tile_piece<{}>(stage + {} + u / {} * (kBlockRows * 128), row, at))", cuda_type(access(n).dtype),
                         rows_of(n).offset, 8 / p_.lanes);
    return fmt::format("to_pack(x{}[u])", n);
  }
  void for_pieces() {   // piece `at` of the 64 elements that box u / (8 / lanes) holds
    line("#pragma unroll");
    open("for (int u = 0; u < {}; u++) {{", pieces());
    const int each = 8 / p_.lanes;
    line("const int at = part * {0} + u % {0}, box = u / {0}, k = (first + i) * kChunk + box * 64 + at * 8;", each);
    line("(void)k, (void)box;");
  }
  void statistic(size_t i) {
    std::string statements;
    const std::string e = loop_element(s_.statistics[i].of, statements);
    const char* type = reduce_type(s_.statistics[i].fn);
    line("{{ {}{}statistic{} = {}::combine(statistic{}, reduce_pack<{}>({})); }}", statements, ragged_depth() ? "if (k < kDepth) " : "", i,
         type, i, type, e);
  }
  void read_ring() {   // row statistics of the stage that wgmma reads
    from_ring_ = true;
    if (some_idle()) open("if (reads) {{");
    for_pieces();
    for (size_t i = 0; i < s_.statistics.size(); i++) if (reads_ring(s_.statistics[i].of)) statistic(i);
    close();
    if (some_idle()) close();
    from_ring_ = false;
  }
  void declare_held() {
    for (NodeId n : deep_held()) line("Vector<{}, 8> x{}[{}];", cuda_type(access(n).dtype), n, pieces());
    open("const auto hold = [&](int i) {{   // asks for what comes through registers");
    for_pieces();
    for (NodeId n : deep_held()) {
      if (!has(value(n), Axis::kRow)) line("x{}[u] = load_eight({} + k, {}k < kDepth);", n, pointer(n), reads_guard(" && "));
      else
        line("x{0}[u] = load_eight({1} + (first_row + row) * int64_t({2}) + k, {3}first_row + row < kM && k < kDepth);", n, pointer(n),
             stride(n, Axis::kRow), reads_guard(" && "));
    }
    close();
    close("};");
    open("const auto prepare = [&](int i) {{   // rows and statistics from what has come");
    line("unsigned char* const computed = smem + kComputed + i % 2 * {};", p_.computed_bytes);
    if (some_idle()) line("if (!reads) return;");
    for_pieces();
    for (size_t i = 0; i < s_.statistics.size(); i++) if (!reads_ring(s_.statistics[i].of)) statistic(i);
    for (const TileRows& r : p_.small) {
      if (r.input >= 0) continue;
      std::string statements;
      const std::string e = loop_element(r.value, statements);
      const std::string masked = fmt::format("k < kDepth && first_row + row < kM ? {} : Pack<8>{{}}", e);
      const bool tf32 = r.type == ContractType::kTF32;
      if (tf32)
        line("{{ {}put_piece_tf32(computed + {} + box * (2 * kBlockRows * 128), kBlockRows * 128, row, at, {}); }}", statements, r.offset,
             masked);
      else
        line("{{ {}put_piece<{}>(computed + {} + box * (kBlockRows * 128), row, at, {}); }}", statements,
             r.type == ContractType::kF16 ? "f16" : "bf16", r.offset, masked);
    }
    close();
    close("};");
  }
  void publish() {
    if (!p_.computes()) return;
    line("fence_async_proxy();");
    line("named_barrier(1 + team, {});", p_.team());
  }

  void loop() {
    for (size_t i = 0; i < p_.contractions.size(); i++) {
      if (tile_rank(p_, i))
        line("TileRankSum<kGroupRows, {}, 4 * kColumnGroups> sum{};", p_.weights[at(p_.contractions[i].weight)].padded, i);
      else line("TileSum<kTiles> sum{};", i);
      line("sum{}.clear();", i);
    }
    for (size_t i = 0; i < s_.statistics.size(); i++) line("float statistic{} = {}::identity();", i, reduce_type(s_.statistics[i].fn));
    if (prepares()) {
      declare_held();
      line("hold(0);");
      line("prepare(0);");
      line("if (1 < chunks) hold(1);");
      publish();
    }
    if (p_.large) {
      open(
          "const auto let_go = [&](int i) {{   // of the stage of chunk i, unless nobody waits for it: other blocks may have ended by "
          "then");
      const char* last = stays() ? "((kPlaces - 1 - block_id() / kSharing) / kClusters + 1) * chunks" : "chunks";
      if (p_.sharing == 1) line("if (lane == 0 && i + kStages < {}) mbarrier_arrive(empty + 8 * (i % kStages));", last);
      else
        line("if (lane < kSharing && i + kStages < {}) mbarrier_arrive_cluster(remote_address(empty + 8 * (i % kStages), lane));", last);
      close("};");
    }
    open("for (int i = 0; i < chunks; i++) {{");
    if (stays()) line("const int n = done + i, place = n % kStages;");
    else line("const int place = i % kStages;");
    line("const unsigned char* const stage = smem + place * kStage;");
    line("mbarrier_wait(full + 8 * place, {} / kStages & 1);", stays() ? "n" : "i");
    products();
    if (stays() && !fetched().empty())
      line("if (i == 0 && done > 0 && thread_id() % 128 == 0) {{ store_wait_read<0>(); mbarrier_arrive(left + 8 * group); }}");
    if (stays()) {}
    else if (p_.large) fetch_ahead();
    else prefetch_tail();
    if (ring_statistics_) read_ring();
    if (overlaps()) {
      line("wgmma_wait<1>();   // of the chunk before, whose stage is free now");
      line("if (i > 0) {{ warp_barrier(); let_go({} - 1); }}", stays() ? "n" : "i");
      close();
      line("wgmma_wait<0>();");
      pin_sums();
      if (stays()) line("warp_barrier();\n    let_go(done + chunks - 1);");
      return;
    }
    if (prepares()) {
      open("if (i + 1 < chunks) {{");
      line("prepare(i + 1);");
      line("if (i + 2 < chunks) hold(i + 2);");
      close();
    }
    line("wgmma_wait<0>();");
    pin_sums();
    line("warp_barrier();");
    if (p_.large) line("let_go(i);");
    else line("if (lane == 0) mbarrier_arrive(empty + 8 * place);");
    publish();
    close();
  }
  void pin_sums() {
    for (size_t c = 0; c < p_.contractions.size(); c++) if (!tile_rank(p_, c)) line("wgmma_pin(sum{}.d);", c);
  }
  /// Whether a weight is a low rank that no wgmma reads.
  bool narrow(size_t weight) const {
    for (size_t c = 0; c < p_.contractions.size(); c++)
      if (static_cast<size_t>(p_.contractions[c].weight) == weight && tile_rank(p_, c)) return true;
    return false;
  }
  /// Low ranks of this chunk, while wgmma multiplies.
  void rank_products() {
    for (size_t c = 0; c < p_.contractions.size(); c++) {
      if (!tile_rank(p_, c)) continue;
      const TileRows& r = p_.small[at(p_.small_of[c])];
      const std::string rows = r.input >= 0 ? fmt::format("stage + {}", r.offset)
                                            : fmt::format("smem + kComputed + i % 2 * {} + {}", p_.computed_bytes, r.offset);
      line("sum{}.add<{}>(w{}, {} + team * (kGroupRows * 128), kBlockRows * 128);", c, p_.chunk / 16, p_.contractions[c].weight, rows);
    }
  }
  void products() {
    for (size_t w = 0; w < p_.weights.size(); w++) {
      const StreamWeight& x = p_.weights[w];
      if (narrow(w))
        line("const TileRank<{}, {}, {}, {}> w{}{{stage + {}}};", weight_type(x), x.padded, x.depth_major, x.packed, w, x.offset);
    }
    for (size_t w = 0; w < p_.weights.size(); w++)
      if (!narrow(w))
        line("const TileWeight<{}, {}> w{}{{stage + {}{}}};", weight_type(p_.weights[w]), p_.weights[w].depth_major, w,
             p_.weights[w].offset,
             p_.column_groups > 1 && p_.weights[w].free == Axis::kCol ? fmt::format(" + group % kColumnGroups * {}", 128 * p_.chunk) : "");
    std::set<int> widened;
    std::set<int> in_order;   // beside rows that a copy brought
    for (size_t c = 0; c < p_.contractions.size(); c++) {
      if (p_.contractions[c].type != ContractType::kTF32) continue;
      widened.insert(p_.contractions[c].weight);
      if (p_.small[at(p_.small_of[c])].input >= 0) in_order.insert(p_.contractions[c].weight);
    }
    for (int w : widened) {
      line("uint32_t low{0}[{1}][4], high{0}[{1}][4];", w, p_.chunk / 16);
      line("#pragma unroll");
      line("for (int k = 0; k < {1}; k++) tile_widen{2}(low{0}[k], high{0}[k], w{0}, k);", w, p_.chunk / 16,
           in_order.count(w) ? "_in_order" : "");
    }
    for (size_t s = 0; s < p_.small.size(); s++) {
      const TileRows& r = p_.small[s];
      if (r.across)
        line("const uint32_t rows{} = shared_address(stage) + {} + team * (kGroupRows / 64 * {});", s, r.offset, 128 * p_.chunk);
      else if (r.input >= 0) line("const uint32_t rows{} = shared_address(stage) + {} + team * (kGroupRows * 128);", s, r.offset);
      else line("const uint32_t rows{} = ring + kComputed + i % 2 * {} + {} + team * (kGroupRows * 128);", s, p_.computed_bytes, r.offset);
    }
    pin_sums();
    line("wgmma_fence();");
    line("#pragma unroll");
    open("for (int k = 0; k < {}; k++) {{", p_.chunk / 16);
    for (size_t c = 0; c < p_.contractions.size(); c++) {
      const StreamContraction& x = p_.contractions[c];
      if (tile_rank(p_, c)) continue;
      if (x.type == ContractType::kTF32)
        line("tile_add_tf32(sum{}, low{}[k], high{}[k], rows{}, kBlockRows * 128, k);", c, x.weight, x.weight, p_.small_of[c]);
      else if (p_.small[at(p_.small_of[c])].across)
        line("tile_add_across(sum{}, w{}, rows{}, {}, k);", c, x.weight, p_.small_of[c], 128 * p_.chunk);
      else line("tile_add(sum{}, w{}, rows{}, kBlockRows * 128, k);", c, x.weight, p_.small_of[c]);
    }
    close();
    line("wgmma_commit();");
    rank_products();
  }

  // ---- behind the loop
  void sums() {
    std::vector<int64_t> at_rank(p_.contractions.size(), -1);
    int64_t next = p_.ranks_at;
    for (size_t c = 0; c < p_.contractions.size(); c++) {
      const StreamWeight& w = p_.weights[at(p_.contractions[c].weight)];
      if (w.free != Axis::kRank) continue;
      at_rank[c] = next;
      next += ranks(w) * p_.rank_pitch() * p_.row_groups * 4;
      line("float* const ranks{} = (float*)(smem + {}) + team * {};", c, at_rank[c], ranks(w) * p_.rank_pitch());
      line("{}put_ranks<{}>(ranks{}, sum{}, {});", p_.column_groups > 1 && !tile_rank(p_, c) ? "if (group % kColumnGroups == 0) " : "",
           p_.rank_pitch(), c, c, ranks(w));
    }
    if (!p_.products.empty()) line("named_barrier(1 + team, {});", p_.team());
    for (size_t i = 0; i < p_.sums.size(); i++) {
      const StreamSum& s = p_.sums[i];
      const bool alias = s.contractions.size() == 1 && s.contractions[0].second == 1.0 && uses(s.contractions[0].first) == 1;
      if (alias) line("TileSum<kTiles>& total{} = sum{};", i, s.contractions[0].first);
      else {
        line("TileSum<kTiles> total{0};\n  total{0}.clear();", i);
        for (auto [c, f] : s.contractions) line("total{}.add_scaled(sum{}, {});", i, c, CudaText().constant(f));
      }
      for (auto [q, f] : s.products)
        line("factor{}.template multiply<{}>(total{}, ranks{}, {}, {});", q, p_.rank_pitch(), i, p_.products[at(q)].contraction,
             CudaText().constant(f), gain(at(q)));
    }
    declare_tail_loads();
    if (const std::string text = loads_late() ? "" : tail_loads(); !text.empty())
      line("for (int t = 0; t < kTail; t++) {{ {} (void)m, (void)c; {}}}", item_place(), text);
    if (p_.cluster > 1) line("cluster_wait();   // the other blocks run, and their barriers are set up");
    if (p_.overlaid) {
      line("cluster_arrive();   // this block's ring is finished");
      line("cluster_wait();     // and the others'");
    }
    const int64_t tile_bytes = 128 * 16, share = p_.tail_tiles();
    for (size_t i = 0; i < p_.sums.size(); i++) {
      if (p_.cluster == 1) continue;
      line(
          "const int received{} = kReceived + {} + (group * {} * 128 + thread_id() % 128) * 16;   // [sum][group][other "
          "block][tile][thread]",
          i, static_cast<int64_t>(i) * p_.groups() * (p_.cluster - 1) * share * tile_bytes, (p_.cluster - 1) * share);
      line("Pack<4> own{}[kTail];", i);
      line("{2}<kCluster>(own{0}, total{0}, rank, ring + received{0}, {1}, met);", i, tile_bytes, p_.large ? "tile_deal" : "tile_exchange");
    }
    if (!stays()) declare_staged();
  }
  void statistics() {
    if (!s_.statistics.empty()) line("float* const statistics = (float*)(smem + kStatistics);   // [statistic][block of the cluster][row]");
    for (size_t i = 0; i < s_.statistics.size(); i++) {
      line("statistic{0} = lanes_reduce<{1}, {2}>(statistic{0});", i, reduce_type(s_.statistics[i].fn), p_.lanes);
      if (!made_.empty()) continue;
      open("if ({}part == 0) {{", reads_guard(" && "));
      line("float* const to = statistics + ({} * kCluster + rank) * kBlockRows + row;", i);
      line("*to = statistic{};", i);
      if (p_.cluster > 1)
        line(
            "for (int b = 1; b < kCluster; b++) store_async(remote_address(shared_address(to), (rank + b) % kCluster), statistic{}, "
            "remote_address(met, (rank + b) % kCluster));",
            i);
      close();
    }
    if (!made_.empty()) made_rows();
    if (!s_.statistics.empty()) line("named_barrier(1 + team, {});", p_.team());
    if (p_.cluster > 1) line("mbarrier_wait_cluster(met, 0);");
  }
  /// What the tail reads of a row, once.
  void made_rows() {
    open("if ({}part == 0) {{", reads_guard(" && "));
    for (size_t i = 0; i < made_.size(); i++) {
      std::string statements;
      const std::string text = row_value(made_[i], statements);
      line("{{ {}statistics[{} * kBlockRows + row] = {}; }}", statements, i, text);
    }
    close();
  }

  // ---- the tail
  std::string item_place(const char* t = "t") const {
    return fmt::format(
        "const int m = first_row + team * kGroupRows + (rank * kTail + {}) * 8 + lane % 4 * 2, c = column + (warp & 3) * 16 + lane / 4;",
        t);
  }
  std::string sum_item(size_t i) const override {
    if (p_.cluster == 1) return fmt::format("total{}.item(t)", i);
    return fmt::format("tile_total<kCluster>(own{0}[t], smem + received{0} + t * {1}, kTail * {1})", i, 128 * 16);
  }
  std::string statistic_parts() const override { return "kCluster"; }
  std::string statistic_row() const override { return "m - first_row"; }
  std::string padded_rows() const override { return "kBlockRows"; }
  void store_result(NodeId output, const std::string& text) override {
    if (staged_by_columns(p_, output) != ByColumns::kNo) {
      line("stage_item_{}<{}>(staged{}, {}, {});", stays() ? "in_boxes" : "by_columns", cuda_type(result(output)), output,
           stays() ? "t - t0" : "t", text);
      return;
    }
    if (staged_at(p_, output) >= 0) {
      line("stage_item<{}>(staged{}, {} * 8, {});", cuda_type(result(output)), output, stays() ? "(t - t0)" : "t", text);
      return;
    }
    if (!stores_lines(p_, output)) { StreamText::store_result(output, text); return; }
    const ValueId v = g_.node(output).operands[0];
    const Access& a = s_.results[at(g_.form<Output>(output)->result)];
    const int64_t rs = stride_of(a, s_.axes[at(v)], Axis::kRow);
    line("store_item_lines({} + (m - lane % 4 * 2) * int64_t({}) + {}, {}, kM - m + lane % 4 * 2, kN - c + lane / 4, {});",
         result_pointer(output), rs, column_place(a, 1, "(c - lane / 4)"), rs, text);
  }
  bool loads_late() const override { return p_.large; }
  /// What item (m, c) of the tail reads of n from device memory.
  std::string tail_load(NodeId n) const {
    const int64_t rs = stride(n, Axis::kRow), cs = stride(n, Axis::kCol);
    if (shape(value(n)) == Shape::kRows) return fmt::format("load_two({} + m * int64_t({}), {}, 1, kM - m)", pointer(n), rs, rs);
    if (reads_lines(p_, n))
      return fmt::format(
          "load_item_lines({} + (m - lane % 4 * 2) * int64_t({}) + (c - lane / 4), {}, kM - m + lane % 4 * 2, kN - c + lane / 4)",
          pointer(n), rs, rs);
    return fmt::format("load_item({} + m * int64_t({}) + c * int64_t({}), {}, {}, kM - m, kN - c)", pointer(n), rs, cs, rs, cs);
  }
  /// Inputs that each item of the tail reads from device memory.
  std::vector<NodeId> read_late() const {
    std::vector<NodeId> out;
    for (NodeId n : tail_leaves())
      if (staged_at(p_, n) < 0 && (shape(value(n)) == Shape::kBoth || shape(value(n)) == Shape::kRows)) out.push_back(n);
    return out;
  }
  /// Items whose operands are asked for at once, ahead of the first one's result: none waits behind another's store. As many as registers
  /// beside the sums hold.
  int asked_at_once() const {
    constexpr int kOthers = 48, kMost = 8;
    int words = 0;
    for (NodeId n : read_late()) words += shape(value(n)) == Shape::kBoth ? 4 : 2;
    if (!words) return 1;
    const int launched = std::min(248, 65536 / static_cast<int>(round_up(p_.threads() * p_.blocks_per_sm, 128)) / 8 * 8);
    int room = (p_.grown > 0 ? p_.grown : launched) - kOthers;
    for (size_t c = 0; c < p_.contractions.size(); c++) if (!tile_rank(p_, c)) room -= p_.group_rows / 2;
    return std::clamp(room / words, 1, std::min(kMost, stays() ? p_.held_tiles : p_.tail_tiles()));
  }
  void late_loads() {
    const int ahead = asked_at_once();
    const std::string t = stays() ? "(t - t0)" : "t";
    if (ahead > 1) {
      open("if ({} % {} == 0) {{   // ahead of stores, which they would wait for", t, ahead);
      line("#pragma unroll");
      open("for (int a = 0; a < {}; a++) {{", ahead);
      line("{}", item_place("(t + a)"));
      for (NodeId n : read_late()) line("ahead{}[a] = {};", n, tail_load(n));
      line("(void)c;");
      close();
      close();
    }
    for (NodeId n : tail_leaves()) {
      if (staged_at(p_, n) >= 0)
        line("const Pack<4> e{} = staged_item<{}>(staged{}, {} * 8);", n, cuda_type(access(n).dtype), n, t);
    }
    for (NodeId n : read_late()) {
      const int words = shape(value(n)) == Shape::kBoth ? 4 : 2;
      if (ahead > 1) line("const Pack<{}> e{} = ahead{}[{} % {}];", words, n, n, t, ahead);
      else line("const Pack<{}> e{} = {};", words, n, tail_load(n));
    }
  }
  void declare_ahead() {
    if (const int ahead = asked_at_once(); ahead > 1)
      for (NodeId n : read_late()) line("Pack<{}> ahead{}[{}];", shape(value(n)) == Shape::kBoth ? 4 : 2, n, ahead);
  }
  const Access& result(NodeId output) const { return s_.results[at(g_.form<Output>(output)->result)]; }
  std::vector<NodeId> staged() const {
    std::vector<NodeId> out;
    for (NodeId n : g_.outputs()) if (staged_at(p_, n) >= 0) out.push_back(n);
    return out;
  }
  /// Places where results and operands are gathered: over the ring, which all warpgroups must have finished (and other blocks, where they
  /// have met already).
  void declare_staged() {
    std::vector<NodeId> all = staged();
    for (NodeId n : fetched()) all.push_back(n);
    if (all.empty()) return;
    if (!p_.overlaid) line("named_barrier({}, 32 * kWarps);", 1 + p_.row_groups + p_.groups());
    tail_rows();
    for (NodeId n : all) line("unsigned char* const staged{} = smem + {} + group * (kTail * 1024);", n, staged_at(p_, n));
    for (NodeId n : fetched())
      line("fetch_staged<kTail * 8>(staged{}, {} + tail_row * int64_t({}) + column, {}, tail_rows, kN - column);", n, pointer(n),
           stride(n, Axis::kRow), stride(n, Axis::kRow));
  }
  void tail_rows() {
    line("const int tail_row = first_row + team * kGroupRows + rank * kTail * 8, tail_rows = kM - tail_row < {0} ? kM - tail_row : {0};",
         uneven() ? "(rank + 1 < kCluster ? kTail : kTiles - rank * kTail) * 8" : "kTail * 8");
  }
  void store_staged() {
    if (staged().empty()) return;
    line("named_barrier({} + group, 128);", 1 + p_.row_groups);
    for (NodeId n : staged()) {
      if (const ByColumns by = staged_by_columns(p_, n); by != ByColumns::kNo) {
        const int64_t cs = stride_of(result(n), s_.axes[at(g_.node(n).operands[0])], Axis::kCol);
        line("store_staged_{}<kTail>(staged{}, {} + tail_row + column * int64_t({}), {}, tail_rows, kN - column);",
             by == ByColumns::kWhole ? "by_columns" : "uneven", n, result_pointer(n), cs, cs);
        continue;
      }
      const int64_t rs = stride_of(result(n), s_.axes[at(g_.node(n).operands[0])], Axis::kRow);
      line("store_staged<kTail * 8>(staged{}, {} + tail_row * int64_t({}) + column, {}, tail_rows, kN - column);", n, result_pointer(n), rs,
           rs);
    }
  }
  /// A number per column that the tail reads is asked for before the loop, and kept.
  void ahead_of_tail() {
    for (NodeId n : tail_leaves())
      if (shape(value(n)) == Shape::kCols)
        line(
            "const Pack<2> e{} = load_two({} + (column + (warp & 3) * 16 + lane / 4) * int64_t({}), {}, 8, kN - column - (warp & 3) * 16 - "
            "lane / 4);",
            n, pointer(n), stride(n, Axis::kCol), stride(n, Axis::kCol));
  }
  /// What the tail reads is asked for to L2 behind the first chunks, which would otherwise wait for it.
  void fetch_ahead() {
    std::vector<NodeId> rows, lines = fetched();
    for (NodeId n : read_late()) {
      if (shape(value(n)) == Shape::kRows) rows.push_back(n);
      else if (stride(n, Axis::kCol) == 1) lines.push_back(n);
    }
    if (rows.empty() && lines.empty()) return;
    open("if (i == {}) {{", std::min<int64_t>(2, p_.chunks_per_block / 2));
    tail_rows();
    for (NodeId n : rows)
      line("prefetch_rows<kTail * 8>({} + tail_row * int64_t({}), {}, tail_rows);", pointer(n), stride(n, Axis::kRow),
           stride(n, Axis::kRow));
    for (NodeId n : lines)
      line("if (column < kN) prefetch_rows<kTail * 8>({} + tail_row * int64_t({}) + column, {}, tail_rows);", pointer(n),
           stride(n, Axis::kRow), stride(n, Axis::kRow));
    close();
  }
  /// What the tail of a plan that is not large reads, a line per row, to L2: the loads stand behind the loop, and would wait for device
  /// memory there (0.5 us for each 8 rows of a gate).
  void prefetch_tail() {
    std::vector<NodeId> read;
    for (NodeId n : tail_leaves()) if (shape(value(n)) == Shape::kBoth && stride(n, Axis::kCol) == 1) read.push_back(n);
    if (read.empty()) return;
    open("if (i == {} && column < kN) {{", std::min<int64_t>(2, p_.chunks_per_block / 2));
    line("const int row = first_row + team * kGroupRows + rank * kTail * 8, rows = kM - row < kTail * 8 ? kM - row : kTail * 8;");
    for (NodeId n : read)
      line("prefetch_rows<kTail * 8>({} + row * int64_t({}) + column, {}, rows);", pointer(n), stride(n, Axis::kRow),
           stride(n, Axis::kRow));
    close();
  }
  void tail() {
    if (!fetched().empty()) line("named_barrier({} + group, 128);", 1 + p_.row_groups);
    if (loads_late()) declare_ahead();
    line("#pragma unroll");
    open("for (int t = 0; t < kTail; t++) {{");
    if (uneven()) line("if (rank * kTail + t >= kTiles) break;   // the last block of the cluster finishes what is left");
    line("{}", item_place());
    if (loads_late()) late_loads();
    tail_results();
    close();
    store_staged();
  }

  /// The tail of blocks that stay: kHeld row tiles of a warpgroup at a time leave by tensor copies, once the ones before have left; or the
  /// whole tile, over what the tail reads of it.
  void leaving_tail() {
    std::vector<NodeId> all = staged();
    for (NodeId n : fetched()) all.push_back(n);
    const int times = p_.tiles() / p_.held_tiles;
    line("#pragma unroll");
    open("for (int t0 = 0; t0 < kTiles; t0 += kHeld) {{");
    if (fetched().empty()) {   // two places in turn
      line("const int turn = {}t0 / kHeld;", times % 2 ? fmt::format("done / chunks * {} + ", times) : "");
      for (NodeId n : all)
        line("unsigned char* const staged{} = smem + {} + (turn % 2 * {} + group) * (kHeld * 1024);", n, staged_at(p_, n), p_.groups());
      line("if (thread_id() % 128 == 0) store_wait_read<1>();");
      line("named_barrier({} + group, 128);", 1 + p_.row_groups);
    } else {
      for (NodeId n : all) line("unsigned char* const staged{} = smem + {} + group * (kHeld * 1024);", n, staged_at(p_, n));
      line("mbarrier_wait(arrived + 8 * group, done / chunks & 1);");
    }
    declare_ahead();
    line("#pragma unroll");
    open("for (int t = t0; t < t0 + kHeld; t++) {{");
    line("{}", item_place());
    late_loads();
    if (!fetched().empty()) line("warp_barrier();   // results take these places");
    tail_results();
    close();
    line("fence_async_proxy();");
    line("named_barrier({} + group, 128);", 1 + p_.row_groups);
    open("if (thread_id() % 128 == 0) {{   // a group each time, that the places' turns are counted");
    size_t map = p_.weights.size() + copied().size();
    for (NodeId n : g_.outputs()) {
      const std::string slice = stride_of(result(n), s_.axes[at(g_.node(n).operands[0])], Axis::kBatch) ? ", " + batch_ : "",
                        policy = p_.passing ? ", evict_first_policy()" : "";
      if (staged_by_columns(p_, n) != ByColumns::kNo)
        line(
            "for (int t = 0; t < kHeld; t += 8) if (column < kN) store_box(map{}, first_row + team * kGroupRows + (t0 + t) * 8, column{}, "
            "shared_address(staged{} + t * 1024){});",
            map++, slice, n, policy);
      else
        line("if (column < kN) store_box(map{}, column, first_row + team * kGroupRows + t0 * 8{}, shared_address(staged{}){});", map++,
             slice, n, policy);
    }
    line("store_commit();");
    close();
    close();
    close();   // of tiles
    line("if (thread_id() % 128 == 0) store_wait_read<0>();");
  }

  const TilePlan& p_;
  bool waits_, early_;
  bool ring_statistics_ = false, held_statistics_ = false, from_ring_ = false;
};

}  // namespace

namespace {

/// What blocks that stay store a result by, or bring an operand of the tail: 64 columns of the row tiles that leave at once.
TensorMapText tile_held_map(const TilePlan& p, NodeId n) {
  const auto* out = p.body.form<Output>(n);
  const Access& a = out ? p.results[static_cast<size_t>(out->result)] : p.operands[static_cast<size_t>(p.body.form<Input>(n)->param)];
  const auto& axes = p.axes[static_cast<size_t>(out ? p.body.node(n).operands[0] : p.body.node(n).first_value)];
  const auto stride = [&](StreamAxis of) {
    for (size_t d = 0; d < axes.size(); d++) if (axes[d] == of) return a.strides[static_cast<int>(d)] * dtype_bytes(a.dtype);
    return int64_t{0};
  };
  TensorMapText m;
  m.buffer = a.buffer;
  m.offset_bytes = a.offset * dtype_bytes(a.dtype);
  m.dtype = a.dtype;
  m.dims = {p.cols, p.rows};
  m.strides = {stride(StreamAxis::kRow)};
  m.box = {64, 8 * p.held_tiles};
  if (out && staged_by_columns(p, n) != ByColumns::kNo) {
    m.dims = {p.rows, p.cols};
    m.strides = {stride(StreamAxis::kCol)};
    m.box = {64, 64};
  }
  m.swizzle = 128;
  m.is_stored = out != nullptr;
  if (!stride(StreamAxis::kBatch)) return m;
  m.dims.push_back(p.batch);
  m.strides.push_back(stride(StreamAxis::kBatch));
  m.box.push_back(1);
  return m;
}

}  // namespace

TensorMapText tile_rows_map(const TilePlan& p, const TileRows& r) {
  const Access& a = p.operands[static_cast<size_t>(p.body.form<Input>(r.input)->param)];
  const auto& axes = p.axes[static_cast<size_t>(p.body.node(r.input).first_value)];
  TensorMapText m;
  m.buffer = a.buffer;
  const int size = dtype_bytes(a.dtype);
  m.offset_bytes = a.offset * size;
  m.dtype = a.dtype;
  m.dims = {p.depth, p.rows};
  m.box = {128 / size, p.block_rows() / p.sharing};
  if (r.across) {
    m.dims = {p.rows, p.depth};
    m.box = {64, p.chunk};
  }
  for (size_t d = 0; d < axes.size(); d++)
    if (axes[d] == (r.across ? StreamAxis::kDepth : StreamAxis::kRow)) m.strides = {a.strides[static_cast<int>(d)] * size};
  m.swizzle = 128;
  for (size_t d = 0; d < axes.size(); d++) {
    if (axes[d] != StreamAxis::kBatch) continue;
    m.dims.push_back(p.batch);
    m.strides.push_back(a.strides[static_cast<int>(d)] * size);
    m.box.push_back(1);
  }
  return m;
}

void assemble_tile_kernel(KernelText& k, const KernelPlan& kernel, const TilePlan& p, const std::set<int>& pointers,
                          const std::string& body) {
  std::string params;
  const auto add = [&](const std::string& text) { params += (params.empty() ? "" : ", ") + text; };
  for (size_t i = 0; i < k.maps.size(); i++) add(fmt::format("const __grid_constant__ mo::TensorMap map{}", i));
  for (int i : pointers) {
    k.args.push_back(p.operands[static_cast<size_t>(i)].buffer);
    k.written.push_back(false);
    add(fmt::format("const void* __restrict__ in{}", i));
  }
  for (size_t i = 0; i < p.results.size(); i++) {
    k.args.push_back(p.results[i].buffer);
    k.written.push_back(true);
    add(fmt::format("void* __restrict__ out{}", i));
  }
  k.grid = {p.blocks(), p.batch, 1};
  if (p.held_tiles) k.grid = {p.launched(), 1, 1};
  k.threads = p.threads();
  k.smem_bytes = p.smem_bytes;
  k.source = fmt::format("// {}\n__global__ void {}__launch_bounds__({}, {}) {}({}) {{\n  using namespace mo;\n{}}}\n", kernel.why,
                         p.blocks_together() > 1 ? fmt::format("__cluster_dims__({}, 1, 1) ", p.blocks_together()) : "", k.threads,
                         p.blocks_per_sm, kernel.name, params, body);
}

KernelText emit_tile_kernel(const KernelPlan& kernel, const Plan& plan, const Target&) {
  const TilePlan& p = *std::get<std::shared_ptr<const TilePlan>>(kernel.body);
  if (p.turned) return emit_turned_kernel(kernel, p);
  TileEmitter emitter(p, kernel.early, weights_early(kernel, plan));
  KernelText k;
  k.name = kernel.name;
  for (const StreamWeight& w : p.weights) k.maps.push_back(stream_weight_map(p, w, w.padded, p.chunk));
  for (const TileRows& r : p.small) if (r.input >= 0) k.maps.push_back(tile_rows_map(p, r));
  if (p.held_tiles) {
    for (NodeId n : p.body.outputs()) k.maps.push_back(tile_held_map(p, n));
    for (NodeId n : emitter.fetched()) k.maps.push_back(tile_held_map(p, n));
  }
  assemble_tile_kernel(k, kernel, p, emitter.pointer_params(), emitter.body());
  return k;
}

}  // namespace mirage

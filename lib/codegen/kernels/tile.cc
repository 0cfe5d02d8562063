// Emits a tile kernel from its program (docs/schedule.md): roles that copy fill a ring, warpgroups multiply from it, blocks of a cluster
// exchange sums. Copies, wgmma and the exchange are calls of the device library (runtime/68_tile.cuh), everything elementwise is text from
// the block graph.
#include <algorithm>
#include <set>

#include "codegen/program/bound_program.h"
#include "codegen/kernels/tile_turned.h"
#include "codegen/program/warpgroup_text.h"
#include "mirage/plan/hints.h"
#include "mirage/support/assert.h"

namespace mirage::schedule {
namespace {

class TileEmitter : public WarpgroupText {
 public:
  /// waits: it is started while the kernel ahead of it still runs; early: weights may be read before that one has finished.
  TileEmitter(const KernelProgram& p, const Derived& d, bool waits, bool early) : WarpgroupText(p, d), waits_(waits), early_(early) {
    for (const Stage* s : m_.statistics()) (reads_ring(*s) ? ring_statistics_ : held_statistics_) = true;
    if (stays()) batch_ = m_.batch() >= 0 ? "batch" : "0";
    if (dividing() == 1) made_ = row_values();   // of a cluster every block has a part of each statistic
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
    copying_roles();
    if (stays()) open_tiles();
    early_loads();
    loop();
    sums();
    statistics();
    if (stays()) leaving_tail();
    else tail();
    return std::move(out_);
  }

 private:
  bool stays() const { return p_.stay > 0; }
  bool mapped(NodeId n) const override {
    if (is_weight(n) || (stays() && is_gathered(n))) return true;
    // Copied by the ring, and never read otherwise.
    return in_ring(n) && !held_leaves().count(n) && !m_.tail_leaves().count(n);
  }
  bool in_ring(NodeId n) const {
    return std::any_of(operands().begin(), operands().end(), [&](PlaceId x) { return is_copied(x) && input(maker(x)) == n; });
  }
  PlaceId ring_place(NodeId n) const { return m_.copy_of(n)->to; }
  /// Whether a statistic finds all that it needs along the reduction in the ring.
  bool reads_ring(const Stage& statistic) const {
    std::set<NodeId> all;
    m_.leaves(m_.reduced_by(statistic), all);
    return std::all_of(all.begin(), all.end(), [&](NodeId n) { return in_ring(n) || !is_deep(value(n)); });
  }
  bool computes() const { return std::any_of(operands().begin(), operands().end(), [&](PlaceId x) { return !is_copied(x); }); }
  /// Inputs that come through registers: of computed rows, and of statistics that the ring does not serve.
  std::set<NodeId> held_leaves() const {
    std::set<NodeId> out;
    for (PlaceId x : operands()) if (!is_copied(x)) m_.leaves(place(x).value, out);
    for (const Stage* s : m_.statistics()) if (!reads_ring(*s)) m_.leaves(m_.reduced_by(*s), out);
    return out;
  }
  std::set<NodeId> deep_held() const {
    std::set<NodeId> out;
    for (NodeId n : held_leaves()) if (is_deep(value(n))) out.insert(n);
    return out;
  }
  bool prepares() const { return computes() || held_statistics_; }
  /// Whether products run on while the next are issued.
  bool overlaps() const { return p_.throughput && !prepares(); }
  bool reads_rows() const { return prepares() || ring_statistics_; }

  // ---- how many rows a warpgroup has, in eights, and how many of them a block of the cluster finishes
  int tiles() const { return static_cast<int>(group_rows() / 8); }
  int tail_tiles() const { return ceil_div(tiles(), dividing()); }
  bool uneven() const { return tail_tiles() * dividing() != tiles(); }
  bool even() const { return iterations() * dividing() == chunks(); }
  int64_t chunks() const { return p_.chunks(*p_.split_of(m_.reduced())); }
  bool ragged_depth() const { return m_.depth() % chunk() != 0; }
  int team() const { return 128 * column_groups(); }   // threads that share rows
  /// Threads that share a row where rows are read element by element.
  int lanes() const {
    int n = 8;
    while (n > 1 && n * group_rows() > team()) n /= 2;
    return n;
  }
  const Stage* product_of(const Stage& weight, bool by_wgmma) const {
    for (size_t c = 0; c < m_.products().size(); c++) if (&weight_of(c) == &weight && is_wgmma(c) == by_wgmma) return &product(c);
    return nullptr;
  }
  bool is_wgmma(size_t c) const { return product(c).unit != UnitId::kSync16; }   // others are of low rank, and warps add them up
  int64_t padded_rank(const Stage& weight) const { return round_up(ranks(weight), 16); }

  // ---- places behind the ring
  /// Where operands begin that the loop computes; sums of other blocks; statistics: where each would if there are none.
  int64_t computed_at() const {
    for (PlaceId x : operands()) if (!is_copied(x)) return d_.section_at[at(place(x).section)];
    return d_.section_at[at(ring())] + slots() * slot_bytes();
  }
  int64_t received_at() const {
    if (dividing() > 1) return d_.place_at[at(m_.fold_of(*m_.totals()[0])->through[0])];
    int64_t end = d_.section_at[at(ring())] + d_.section_bytes[at(ring())];
    for (PlaceId x : operands()) end = std::max(end, end_of_section(x));
    for (const auto& all : {g_.inputs(), g_.outputs()})
      for (NodeId n : all) if (stays() && is_gathered(n)) end = std::max(end, end_of_section(gathered(n)));
    return end;
  }
  int64_t statistics_at() const {
    if (!m_.statistics().empty()) return d_.place_at[at(m_.fold_of(*m_.statistics()[0])->through[0])];
    int64_t end = 0;
    for (size_t x = 0; x < p_.places.size(); x++)
      if (p_.places[x].section >= 0) end = std::max(end, end_of_section(static_cast<PlaceId>(x)));
    return end;
  }
  int64_t end_of_section(PlaceId x) const {
    const size_t s = at(place(x).section);
    return d_.section_at[s] + d_.section_bytes[s];
  }
  int64_t computed_bytes() const {
    for (PlaceId x : operands()) if (!is_copied(x)) return d_.slot_bytes[at(place(x).section)];
    return 0;
  }
  /// The place in shared memory where a result, or an operand of rows and columns, is gathered so that whole lines are stored or read; -1:
  /// threads store it and read it themselves.
  PlaceId gathered(NodeId n) const {
    if (g_.form<Output>(n)) {
      const Stage& s = store_of(n);
      return s.through.empty() ? -1 : s.through[0];
    }
    const Stage* copy = m_.copy_of(n);
    return copy && place(*copy).section >= 0 && shape(value(n)) == Shape::kBoth ? copy->to : -1;
  }
  bool is_gathered(NodeId n) const { return gathered(n) >= 0; }
  bool has_columns(NodeId n) const { return place(gathered(n)).columns; }   // as its lines
  int64_t gathered_at(NodeId n) const { return d_.place_at[at(gathered(n))]; }
  std::vector<NodeId> gathered_results() const {
    std::vector<NodeId> out;
    for (NodeId n : g_.outputs()) if (is_gathered(n)) out.push_back(n);
    return out;
  }
  /// Operands of rows and columns that the tail reads from shared memory.
  std::vector<NodeId> fetched() const {
    std::vector<NodeId> out;
    for (NodeId n : m_.tail_leaves()) if (is_gathered(n)) out.push_back(n);
    return out;
  }
  /// Row tiles of a warpgroup whose results leave at once.
  int held_tiles() const { return static_cast<int>(place(gathered(g_.outputs()[0])).box[1] / 8); }

  // ---- names of sizes and places, barriers
  void constants() {
    line(
        "constexpr int kColumnGroups = {}, kWarps = {}, kTiles = {}, kTail = {}, kGroupRows = {}, kBlockRows = {}, kRowBlocks = {}, "
        "kCluster = {}, kStages = {}, kChunk = {};   // kTiles: 8 rows each; kTail: of them finished here",
        column_groups(), 4 * groups(), tiles(), tail_tiles(), group_rows(), block_rows(), parts(m_.rows(), AxisKind::kGrid), dividing(),
        slots(), chunk());
    line("constexpr int kM = {}, kN = {}, kDepth = {}, kStage = {}, kComputed = {}, kReceived = {}, kStatistics = {}, kBarriers = {};",
         m_.extent(m_.rows()), m_.extent(m_.columns()), m_.depth(), slot_bytes(), computed_at(), received_at(), statistics_at(),
         barriers_at());
    line("extern __shared__ __align__(1024) unsigned char tile_smem[];");
    line("unsigned char* const smem = tile_smem;");
    if (p_.throughput) place_of_block();
    else
      line(
          "const int lane = lane_id(), warp = warp_uniform(warp_id()), rank = {}, block = block_id() / kCluster, column0 = block / "
          "kRowBlocks * {}, first_row = block % kRowBlocks * kBlockRows;",
          dividing() > 1 ? "cluster_rank()" : "0", block_columns());
    if (stays())
      line("constexpr int chunks = {}, kHeld = {}, kPlaces = {}, kClusters = {};   // kPlaces: of kSharing tiles each", chunks(),
           held_tiles(), p_.blocks() / sharing(), p_.stay / sharing());
    else
      line("const int first = rank * {0}, chunks = {1};", iterations(),
           even() ? std::to_string(iterations()) : fmt::format("rank + 1 < kCluster ? {} : {} - first", iterations(), chunks()));
    line("const uint32_t ring = shared_address(smem), full = ring + kBarriers, empty = full + 8 * kStages, met = empty + 8 * kStages;");
    if (stays() && !fetched().empty()) line("const uint32_t arrived = met + 8, left = arrived + {};", 8 * groups());
  }

  /// Blocks in panels of neighbouring rows, columns slower, so that those at work at the same time find in L2 what others asked for.
  void place_of_block() {
    line("constexpr int kSharing = {}, kPanel = {}, kColumns = {};   // kColumns: clusters beside each other", sharing(), p_.panel,
         parts(m_.columns(), AxisKind::kGrid));
    line("const int lane = lane_id(), warp = warp_uniform(warp_id()), rank = {}, share = {}{};", dividing() > 1 ? "cluster_rank()" : "0",
         sharing() > 1 ? "cluster_rank()" : "0",
         stays() ? "" : fmt::format(", block = block_id() / {}", dividing() > 1 ? "kCluster" : "kSharing"));
    if (!stays()) place_of_tile();
  }
  void place_of_tile() {
    line(
        "const int panel = block / (kPanel * kColumns), in_panel = block - panel * (kPanel * kColumns), height = kRowBlocks - panel * "
        "kPanel < kPanel ? kRowBlocks - panel * kPanel : kPanel;");
    line("const int column0 = (in_panel / height * kSharing + share) * {}, first_row = (panel * kPanel + in_panel % height) * kBlockRows;",
         block_columns());
  }

  /// Tile after tile of a block that stays; done: chunks of those behind it.
  void open_tiles() {
    open("for (int tile = block_id() / kSharing, done = 0; tile < kPlaces; tile += kClusters, done += chunks) {{");
    if (m_.batch() < 0) line("const int block = tile;");
    else line("const int batch = tile / {0}, block = tile - batch * {0};", p_.blocks() / m_.extent(m_.batch()) / sharing());
    place_of_tile();
  }

  void prologue() {
    const auto bringing =
        std::count_if(p_.roles.begin(), p_.roles.end() - 1, [&](const Role& r) { return !loop_copies(r).empty(); });
    open("if (warp == kWarps && lane == 0) {{");
    line("for (int s = 0; s < kStages; s++) {{ mbarrier_init(full + 8 * s, {}); mbarrier_init(empty + 8 * s, kWarps{}); }}", bringing,
         sharing() > 1 ? " * kSharing" : "");
    if (dividing() > 1) {
      line("mbarrier_init(met, 1);");
      expect_others();
    }
    if (stays() && !fetched().empty())
      line("for (int g = 0; g < {}; g++) {{ mbarrier_init(arrived + 8 * g, 1); mbarrier_init(left + 8 * g, 1); }}", groups());
    line("mbarrier_publish();");
    close();
    line("warp_barrier();");
    if (dividing() > 1) line("cluster_arrive_relaxed();");
    if (sharing() > 1) {   // nobody copies to a block whose barriers are not set up
      line("cluster_arrive();");
      line("cluster_wait();");
    } else {
      line("barrier();");
    }
  }
  /// What the other blocks of the cluster send: rows of statistics, and of sums a share each, the last block what is left.
  void expect_others() {
    const int64_t others = dividing() - 1, statistics = others * static_cast<int64_t>(m_.statistics().size()) * block_rows() * 4;
    int64_t sums = 0;
    for (const Stage* s : m_.totals()) sums += place(m_.fold_of(*s)->through[0]).bytes();
    if (uneven())
      line("mbarrier_expect(met, {} + {} * (rank + 1 < kCluster ? kTail : kTiles - rank * kTail));", statistics, sums / tail_tiles());
    else line("mbarrier_expect(met, {});", statistics + sums);
  }

  // ---- roles that copy
  /// Copies of a role, in its loop and ahead of it.
  std::vector<const Stage*> loop_copies(const Role& role) const {
    std::vector<const Stage*> out;
    for (const Item& i : role.items) for (StageId s : i.body) out.push_back(&p_.stages[at(s)]);
    return out;
  }
  std::vector<const Stage*> first_copies(const Role& role) const {
    std::vector<const Stage*> out;
    for (const Item& i : role.items) if (i.stage >= 0) out.push_back(&p_.stages[at(i.stage)]);
    return out;
  }
  void copying_roles() {
    const int grown = p_.roles.back().registers;
    if (p_.throughput) open("if (warp >= kWarps) {{   // warps that copy, and leave their registers to the others");
    if (grown > 0) line("registers_shrink<{}>();", p_.roles[0].registers);
    for (size_t r = 0; r + 1 < p_.roles.size(); r++) copying_role(r);
    if (!p_.throughput) return;
    if (grown > 0) leave_cluster();
    line("return;");
    close();
    if (grown > 0) line("registers_grow<{}>();", grown);
  }
  /// The first warp of a role copies; others only give their registers.
  void copying_role(size_t role) {
    const std::vector<const Stage*> copies = loop_copies(p_.roles[role]);
    open("if (warp == kWarps{}) {{   // {}", role > 0 ? fmt::format(" + {}", role) : "", role > 0 ? "and the rows" : "brings the weights");
    if (copies.empty()) {
      open("{{");
      if (stays()) open("{{");
      end_of_warp();
      return;
    }
    if (std::any_of(copies.begin(), copies.end(), [](const Stage* s) { return s->evict_first; }))
      line("const uint64_t policy = evict_first_policy();");
    if (stays()) open_tiles();
    open("for (int i = 0; lane == 0 && i < chunks; i++) {{");
    ring_loop();
    int64_t bytes = 0;
    for (const Stage* s : copies) bytes += place(*s).bytes();
    line("mbarrier_expect(bar, {});", bytes);
    for (const Stage* s : copies) {
      if (is_weight(input(*s))) copy_weight(*s);
      else if (is_across(s->to)) copy_across(*s);
      else copy_rows(*s);
    }
    copy_operands(p_.roles[role]);
    end_of_warp();
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
    if (dividing() > 1) line("cluster_wait();");
    if (!receives_over_ring()) return;
    line("cluster_arrive_relaxed();");
    line("cluster_wait();");
  }
  bool receives_over_ring() const { return dividing() > 1 && place(m_.fold_of(*m_.totals()[0])->through[0]).over; }
  void end_of_warp() {
    close();
    if (stays()) close();
    line("warp_barrier();");
    leave_cluster();
    line("return;");
    close();
  }
  std::string slice(const Stage& copy) const { return stride(input(copy), m_.batch()) ? ", " + batch_ : ""; }
  /// 64 columns of each warpgroup, or a low rank, in boxes of 64 along the lines.
  void copy_weight(const Stage& s) {
    const size_t map = map_number(s);
    const bool wide = has(value(s), m_.columns());
    const char* policy = s.evict_first ? ", policy" : "";
    for (int g = 0; g < (wide ? column_groups() : 1); g++) {
      const std::string column = wide ? fmt::format("column0 + {}", 64 * g) : "0";
      const int64_t to = at_section(s.to) + g * 128 * chunk();
      if (is_packed(s)) line("copy_box(to + {}, map{}, 0, k / 64 * {}{}, bar{});", to, map, ranks(s), slice(s), policy);
      else if (!is_depth_major(s)) line("copy_box(to + {}, map{}, {}, k{}, bar{});", to, map, column, slice(s), policy);
      else
        for (int64_t j = 0; j < chunk() / 64; j++) {
          const std::vector<int64_t>& box = place(s).box;
          line("copy_box(to + {}, map{}, k + {}, {}{}, bar{});", to + j * 128 * box[box.size() - 2], map, j * 64, column, slice(s), policy);
        }
    }
  }
  /// Boxes of 64 rows of a chunk whose lines lie across the reduction.
  void copy_across(const Stage& s) {
    const size_t map = map_number(s);
    const int64_t part = block_rows() / sharing();
    for (int64_t j = 0; j < part / 64; j++) {
      const int64_t to = at_section(s.to) + j * 128 * chunk();
      if (!s.multicast) line("copy_box(to + {}, map{}, first_row + {}, k{}, bar);", to, map, 64 * j, slice(s));
      else
        line("copy_box_to(to + {} + share * {}, map{}, first_row + {} + share * {}, k{}, bar, {});", to, part / 64 * 128 * chunk(), map,
             64 * j, part, slice(s), (1 << sharing()) - 1);
    }
  }
  void copy_rows(const Stage& s) {
    const size_t map = map_number(s);
    const int64_t along = place(s).box.back(), part = block_rows() / sharing();   // elements of a line; rows that this block brings
    for (int64_t j = 0; j < chunk() / along; j++) {
      const int64_t to = at_section(s.to) + j * block_rows() * 128;
      if (!s.multicast) line("copy_box(to + {}, map{}, k + {}, first_row{}, bar);", to, map, j * along, slice(s));
      else
        line("copy_box_to(to + {} + share * {}, map{}, k + {}, first_row + share * {}{}, bar, {});", to, part * 128, map, j * along, part,
             slice(s), (1 << sharing()) - 1);
    }
  }
  /// What the tail reads of a tile, behind its first chunks, once the results of the one before have left that place.
  void copy_operands(const Role& role) {
    const std::vector<const Stage*> copies = first_copies(role);
    if (copies.empty()) return;
    open("if (i == {}) {{", std::min<int64_t>(2, chunks() - 1));
    line("const int round = done / chunks;");
    open("for (int g = 0; g < {}; g++) {{", groups());
    line("if (round > 0) mbarrier_wait(left + 8 * g, (round - 1) & 1);");
    line("mbarrier_expect(arrived + 8 * g, {} * (kTiles * 1024));", copies.size());
    for (const Stage* s : copies)
      line(
          "copy_box(ring + {} + g * (kTiles * 1024), map{}, column0 + g % kColumnGroups * 64, first_row + g / kColumnGroups * "
          "kGroupRows{}, arrived + 8 * g);",
          d_.place_at[at(s->to)], map_number(*s), slice(*s));
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
          lanes(), team());
    if (reads_rows() && some_idle()) line("const bool reads = member / {} < kGroupRows;", lanes());
    for (size_t i = 0; i < m_.second_factors().size(); i++) second_factor(i);
    for (NodeId n : m_.loop_leaves()) {
      if (is_deep(value(n))) continue;
      if (!has(value(n), m_.rows())) line("const float l{} = load(*({}));", n, pointer(n));
      else
        line("const float l{} = {}first_row + row < kM ? load(({})[(first_row + row) * int64_t({})]) : 0.0f;", n, reads_guard(" && "),
             pointer(n), stride(n, m_.rows()));
    }
    if (loads_late()) ahead_of_tail();
  }
  void second_factor(size_t i) {
    const MatrixStages::Gained q = gained(i);
    const Stage& w = m_.weight(*q.sum);
    const int64_t columns = stride(q.factor, m_.columns());
    line("TileFactor<{}, {}> factor{};", cuda_type(tensor(q.factor).dtype), padded_rank(w), i);
    line("factor{}.fetch({} + column * int64_t({}), {}, {}, {}, kN - column);", i, pointer(q.factor), columns,
         stride(q.factor, m_.free(w)), columns, ranks(w));
    declare_gain(i, fmt::format("RankGain<{}, 1, 4>", padded_rank(w)), ranks(w));
  }
  bool some_idle() const { return lanes() * group_rows() != team(); }
  std::string reads_guard(const char* more) const { return some_idle() ? fmt::format("reads{}", more) : ""; }

  // ---- the loop
  int64_t pieces() const { return chunk() / 8 / lanes(); }   // of a chunk, per thread
  std::string loop_leaf(ValueId v) const override {
    const NodeId n = g_.value(v).node;
    if (!is_deep(v)) return fmt::format("l{}", n);
    if (from_ring_)
      return fmt::format("to_pack(tile_piece<{}>(stage + {} + u / {} * (kBlockRows * 128), row, at))", cuda_type(tensor(n).dtype),
                         at_section(ring_place(n)), 8 / lanes());
    return fmt::format("to_pack(x{}[u])", n);
  }
  void for_pieces() {   // piece `at` of the 64 elements that box u / (8 / lanes) holds
    line("#pragma unroll");
    open("for (int u = 0; u < {}; u++) {{", pieces());
    const int each = 8 / lanes();
    line("const int at = part * {0} + u % {0}, box = u / {0}, k = (first + i) * kChunk + box * 64 + at * 8;", each);
    line("(void)k, (void)box;");
  }
  void add_statistic(size_t i) {
    const Stage& s = *m_.statistics()[i];
    std::string statements;
    const std::string e = loop_element(m_.reduced_by(s), statements);
    line("{{ {}{}statistic{} = {}::combine(statistic{}, reduce_pack<{}>({})); }}", statements, ragged_depth() ? "if (k < kDepth) " : "", i,
         reduce_type(s), i, reduce_type(s), e);
  }
  void read_ring() {   // row statistics of the stage that wgmma reads
    from_ring_ = true;
    if (some_idle()) open("if (reads) {{");
    for_pieces();
    for (size_t i = 0; i < m_.statistics().size(); i++) if (reads_ring(*m_.statistics()[i])) add_statistic(i);
    close();
    if (some_idle()) close();
    from_ring_ = false;
  }
  void declare_held() {
    for (NodeId n : deep_held()) line("Vector<{}, 8> x{}[{}];", cuda_type(tensor(n).dtype), n, pieces());
    open("const auto hold = [&](int i) {{   // asks for what comes through registers");
    for_pieces();
    for (NodeId n : deep_held()) {
      if (!has(value(n), m_.rows())) line("x{}[u] = load_eight({} + k, {}k < kDepth);", n, pointer(n), reads_guard(" && "));
      else
        line("x{0}[u] = load_eight({1} + (first_row + row) * int64_t({2}) + k, {3}first_row + row < kM && k < kDepth);", n, pointer(n),
             stride(n, m_.rows()), reads_guard(" && "));
    }
    close();
    close("};");
    open("const auto prepare = [&](int i) {{   // rows and statistics from what has come");
    line("unsigned char* const computed = smem + kComputed + i % 2 * {};", computed_bytes());
    if (some_idle()) line("if (!reads) return;");
    for_pieces();
    for (size_t i = 0; i < m_.statistics().size(); i++) if (!reads_ring(*m_.statistics()[i])) add_statistic(i);
    for (PlaceId x : operands()) if (!is_copied(x)) compute_operand(x);
    close();
    close("};");
  }
  /// A piece of rows where products take it, in their type.
  void compute_operand(PlaceId x) {
    std::string statements;
    const std::string e = loop_element(place(x).value, statements);
    const std::string masked = fmt::format("k < kDepth && first_row + row < kM ? {} : Pack<8>{{}}", e);
    if (place(x).dtype == DType::kF32)
      line("{{ {}put_piece_tf32(computed + {} + box * (2 * kBlockRows * 128), kBlockRows * 128, row, at, {}); }}", statements,
           at_section(x), masked);
    else
      line("{{ {}put_piece<{}>(computed + {} + box * (kBlockRows * 128), row, at, {}); }}", statements, cuda_type(place(x).dtype),
           at_section(x), masked);
  }
  void publish() {
    if (!computes()) return;
    line("fence_async_proxy();");
    line("named_barrier(1 + team, {});", team());
  }

  void loop() {
    for (size_t i = 0; i < m_.products().size(); i++) {
      if (is_wgmma(i)) line("TileSum<kTiles> sum{};", i);
      else line("TileRankSum<kGroupRows, {}, 4 * kColumnGroups> sum{};", place(product(i)).box[1], i);
      line("sum{}.clear();", i);
    }
    for (size_t i = 0; i < m_.statistics().size(); i++) line("float statistic{} = {}::identity();", i, reduce_type(*m_.statistics()[i]));
    if (prepares()) {
      declare_held();
      line("hold(0);");
      line("prepare(0);");
      line("if (1 < chunks) hold(1);");
      publish();
    }
    if (p_.throughput) declare_let_go();
    open("for (int i = 0; i < chunks; i++) {{");
    if (stays()) line("const int n = done + i, place = n % kStages;");
    else line("const int place = i % kStages;");
    line("const unsigned char* const stage = smem + place * kStage;");
    line("mbarrier_wait(full + 8 * place, {} / kStages & 1);", stays() ? "n" : "i");
    products();
    if (stays() && !fetched().empty())
      line("if (i == 0 && done > 0 && thread_id() % 128 == 0) {{ store_wait_read<0>(); mbarrier_arrive(left + 8 * group); }}");
    if (stays()) {}
    else if (p_.throughput) fetch_ahead();
    else prefetch_tail();
    if (ring_statistics_) read_ring();
    if (overlaps()) end_of_overlapped();
    else end_of_iteration();
  }
  void declare_let_go() {
    open(
        "const auto let_go = [&](int i) {{   // of the stage of chunk i, unless nobody waits for it: other blocks may have ended by "
        "then");
    const char* last = stays() ? "((kPlaces - 1 - block_id() / kSharing) / kClusters + 1) * chunks" : "chunks";
    if (sharing() == 1) line("if (lane == 0 && i + kStages < {}) mbarrier_arrive(empty + 8 * (i % kStages));", last);
    else line("if (lane < kSharing && i + kStages < {}) mbarrier_arrive_cluster(remote_address(empty + 8 * (i % kStages), lane));", last);
    close("};");
  }
  void end_of_overlapped() {
    line("wgmma_wait<1>();   // of the chunk before, whose stage is free now");
    line("if (i > 0) {{ warp_barrier(); let_go({} - 1); }}", stays() ? "n" : "i");
    close();
    line("wgmma_wait<0>();");
    pin_sums();
    if (!stays()) return;
    line("warp_barrier();");
    line("let_go(done + chunks - 1);");
  }
  void end_of_iteration() {
    if (prepares()) {
      open("if (i + 1 < chunks) {{");
      line("prepare(i + 1);");
      line("if (i + 2 < chunks) hold(i + 2);");
      close();
    }
    line("wgmma_wait<0>();");
    pin_sums();
    line("warp_barrier();");
    if (p_.throughput) line("let_go(i);");
    else line("if (lane == 0) mbarrier_arrive(empty + 8 * place);");
    publish();
    close();
  }
  void pin_sums() {
    for (size_t c = 0; c < m_.products().size(); c++) if (is_wgmma(c)) line("wgmma_pin(sum{}.d);", c);
  }
  void products() {
    for (size_t w = 0; w < m_.weights().size(); w++) if (product_of(*m_.weights()[w], false)) declare_rank(w);
    for (size_t w = 0; w < m_.weights().size(); w++) if (!product_of(*m_.weights()[w], false)) declare_weight(w);
    widen_weights();
    for (size_t i = 0; i < operands().size(); i++) declare_operand(i);
    pin_sums();
    line("wgmma_fence();");
    line("#pragma unroll");
    open("for (int k = 0; k < {}; k++) {{", chunk() / 16);
    for (size_t c = 0; c < m_.products().size(); c++) if (is_wgmma(c)) add_product(c);
    close();
    line("wgmma_commit();");
    for (size_t c = 0; c < m_.products().size(); c++) if (!is_wgmma(c)) add_rank_product(c);
  }
  void declare_rank(size_t w) {
    const Stage& x = *m_.weights()[w];
    line("const TileRank<{}, {}, {}, {}> w{}{{stage + {}}};", weight_type(x), place(*product_of(x, false)).box[1], is_depth_major(x),
         is_packed(x), w, at_section(x.to));
  }
  void declare_weight(size_t w) {
    const Stage& x = *m_.weights()[w];
    const bool is_shared = column_groups() > 1 && has(value(x), m_.columns());
    line("const TileWeight<{}, {}> w{}{{stage + {}{}}};", weight_type(x), is_depth_major(x), w, at_section(x.to),
         is_shared ? fmt::format(" + group % kColumnGroups * {}", 128 * chunk()) : "");
  }
  /// Weights of products in TF32 come to registers as such; beside rows that a copy brought in the reduction's own order.
  void widen_weights() {
    std::set<int> widened, in_order;
    for (size_t c = 0; c < m_.products().size(); c++) {
      if (!is_tf32(c)) continue;
      widened.insert(weight_number(c));
      if (is_copied(operand_of(c))) in_order.insert(weight_number(c));
    }
    for (int w : widened) {
      line("uint32_t low{0}[{1}][4], high{0}[{1}][4];", w, chunk() / 16);
      line("#pragma unroll");
      line("for (int k = 0; k < {1}; k++) tile_widen{2}(low{0}[k], high{0}[k], w{0}, k);", w, chunk() / 16,
           in_order.count(w) ? "_in_order" : "");
    }
  }
  void declare_operand(size_t i) {
    const PlaceId x = operands()[i];
    if (is_across(x))
      line("const uint32_t rows{} = shared_address(stage) + {} + team * (kGroupRows / 64 * {});", i, at_section(x), 128 * chunk());
    else if (is_copied(x)) line("const uint32_t rows{} = shared_address(stage) + {} + team * (kGroupRows * 128);", i, at_section(x));
    else
      line("const uint32_t rows{} = ring + kComputed + i % 2 * {} + {} + team * (kGroupRows * 128);", i, computed_bytes(), at_section(x));
  }
  void add_product(size_t c) {
    const int w = weight_number(c);
    const size_t rows = operand_number(c);
    if (is_tf32(c)) line("tile_add_tf32(sum{}, low{}[k], high{}[k], rows{}, kBlockRows * 128, k);", c, w, w, rows);
    else if (is_across(operand_of(c))) line("tile_add_across(sum{}, w{}, rows{}, {}, k);", c, w, rows, 128 * chunk());
    else line("tile_add(sum{}, w{}, rows{}, kBlockRows * 128, k);", c, w, rows);
  }
  /// Low ranks of this chunk, while wgmma multiplies.
  void add_rank_product(size_t c) {
    const PlaceId x = operand_of(c);
    const std::string rows = is_copied(x) ? fmt::format("stage + {}", at_section(x))
                                          : fmt::format("smem + kComputed + i % 2 * {} + {}", computed_bytes(), at_section(x));
    line("sum{}.add<{}>(w{}, {} + team * (kGroupRows * 128), kBlockRows * 128);", c, chunk() / 16, weight_number(c), rows);
  }

  // ---- behind the loop
  /// Where low ranks go that second factors take from shared memory.
  PlaceId ranks_place(size_t c) const {
    const auto s = std::find_if(p_.stages.begin(), p_.stages.end(), [&](const Stage& x) {
      return x.kind == Stage::Kind::kCompute && x.reads == std::vector<PlaceId>{product(c).to} && place(x).section >= 0 &&
             value(x) == value(product(c));
    });
    MIRAGE_ASSERT(s != p_.stages.end()) << "a low rank that goes nowhere";
    return s->to;
  }
  int64_t rank_pitch(PlaceId x) const { return place(x).pitch / dtype_bytes(place(x).dtype); }   // elements from one rank to the next
  void put_ranks(size_t c) {
    const PlaceId to = ranks_place(c);
    const int64_t pitch = rank_pitch(to), n = place(to).box[1];
    line("float* const ranks{} = (float*)(smem + {}) + team * {};", c, d_.place_at[at(to)], n * pitch);
    line("{}put_ranks<{}>(ranks{}, sum{}, {});", column_groups() > 1 && is_wgmma(c) ? "if (group % kColumnGroups == 0) " : "", pitch, c, c,
         n);
  }
  void sums() {
    for (size_t c = 0; c < m_.products().size(); c++) if (!m_.is_wide(product(c))) put_ranks(c);
    if (!m_.second_factors().empty()) line("named_barrier(1 + team, {});", team());
    for (size_t i = 0; i < m_.totals().size(); i++) {
      declare_total(i, "TileSum<kTiles>");
      for (const MatrixStages::Term& t : m_.terms(value(*m_.totals()[i]))) {
        if (!t.is_behind) continue;
        const int c = number(gained(at(t.number)).sum);
        line("factor{}.template multiply<{}>(total{}, ranks{}, {}, {});", t.number, rank_pitch(ranks_place(at(c))), i, c,
             CudaText().constant(t.factor), gain(at(t.number)));
      }
    }
    declare_tail_loads();
    if (const std::string text = loads_late() ? "" : tail_loads(); !text.empty())
      line("for (int t = 0; t < kTail; t++) {{ {} (void)m, (void)c; {}}}", item_place(), text);
    if (dividing() > 1) line("cluster_wait();   // the other blocks run, and their barriers are set up");
    if (receives_over_ring()) {
      line("cluster_arrive();   // this block's ring is finished");
      line("cluster_wait();     // and the others'");
    }
    for (size_t i = 0; i < m_.totals().size(); i++) if (dividing() > 1) exchange(i);
    if (!stays()) declare_gathered();
  }
  static constexpr int kTileBytes = 128 * 16;   // of 8 rows of a warpgroup's sums
  /// Blocks of the cluster give each other shares of their parts of a sum.
  void exchange(size_t i) {
    const PlaceId from = m_.fold_of(*m_.totals()[i])->through[0];
    const int64_t share = int64_t{dividing() - 1} * tail_tiles();
    line(
        "const int received{} = kReceived + {} + (group * {} * 128 + thread_id() % 128) * 16;   // [sum][group][other "
        "block][tile][thread]",
        i, d_.place_at[at(from)] - received_at(), share);
    line("Pack<4> own{}[kTail];", i);
    line("{2}<kCluster>(own{0}, total{0}, rank, ring + received{0}, {1}, met);", i, kTileBytes,
         p_.throughput ? "tile_deal" : "tile_exchange");
  }
  void statistics() {
    const auto& all = m_.statistics();
    if (!all.empty()) line("float* const statistics = (float*)(smem + kStatistics);   // [statistic][block of the cluster][row]");
    for (size_t i = 0; i < all.size(); i++) {
      line("statistic{0} = lanes_reduce<{1}, {2}>(statistic{0});", i, reduce_type(*all[i]), lanes());
      if (!made_.empty()) continue;
      open("if ({}part == 0) {{", reads_guard(" && "));
      line("float* const to = statistics + ({} * kCluster + rank) * kBlockRows + row;", i);
      line("*to = statistic{};", i);
      if (dividing() > 1)
        line(
            "for (int b = 1; b < kCluster; b++) store_async(remote_address(shared_address(to), (rank + b) % kCluster), statistic{}, "
            "remote_address(met, (rank + b) % kCluster));",
            i);
      close();
    }
    if (!made_.empty()) made_rows();
    if (!all.empty()) line("named_barrier(1 + team, {});", team());
    if (dividing() > 1) line("mbarrier_wait_cluster(met, 0);");
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
    if (dividing() == 1) return fmt::format("total{}.item(t)", i);
    return fmt::format("tile_total<kCluster>(own{0}[t], smem + received{0} + t * {1}, kTail * {1})", i, kTileBytes);
  }
  std::string statistic_parts() const override { return "kCluster"; }
  std::string statistic_row() const override { return "m - first_row"; }
  std::string padded_rows() const override { return "kBlockRows"; }
  int64_t result_stride(NodeId output, IndexId i) const { return stride_of(result(output), stored_by(output), i); }
  const char* result_type(NodeId output) const { return result(output).tf32 ? "tf32" : cuda_type(result(output).dtype); }
  void store_result(NodeId output, const std::string& text) override {
    if (is_gathered(output) && has_columns(output)) {
      line("stage_item_{}<{}>(staged{}, {}, {});", stays() ? "in_boxes" : "by_columns", result_type(output), output,
           stays() ? "t - t0" : "t", text);
      return;
    }
    if (is_gathered(output)) {
      line("stage_item<{}>(staged{}, {} * 8, {});", result_type(output), output, stays() ? "(t - t0)" : "t", text);
      return;
    }
    if (!has_pairs(result(output), stored_by(output))) { MatrixText::store_result(output, text); return; }
    const int64_t rs = result_stride(output, m_.rows());
    line("store_item_lines({} + (m - lane % 4 * 2) * int64_t({}) + {}, {}, kM - m + lane % 4 * 2, kN - c + lane / 4, {});",
         result_pointer(output), rs, column_place(result(output), 1, "(c - lane / 4)"), rs, text);
  }
  bool loads_late() const override { return p_.throughput; }
  /// What item (m, c) of the tail reads of n from device memory.
  std::string tail_load(NodeId n) const {
    const int64_t rs = stride(n, m_.rows()), cs = stride(n, m_.columns());
    if (shape(value(n)) == Shape::kRows) return fmt::format("load_two({} + m * int64_t({}), {}, 1, kM - m)", pointer(n), rs, rs);
    if (has_pairs(tensor(n), value(n)))
      return fmt::format(
          "load_item_lines({} + (m - lane % 4 * 2) * int64_t({}) + (c - lane / 4), {}, kM - m + lane % 4 * 2, kN - c + lane / 4)",
          pointer(n), rs, rs);
    return fmt::format("load_item({} + m * int64_t({}) + c * int64_t({}), {}, {}, kM - m, kN - c)", pointer(n), rs, cs, rs, cs);
  }
  /// Inputs that each item of the tail reads from device memory.
  std::vector<NodeId> read_late() const {
    std::vector<NodeId> out;
    for (NodeId n : m_.tail_leaves()) if (!is_gathered(n) && has(value(n), m_.rows())) out.push_back(n);
    return out;
  }
  int words(NodeId n) const { return shape(value(n)) == Shape::kBoth ? 4 : 2; }   // of an item
  /// Items whose operands are asked for at once, ahead of the first one's result: none waits behind another's store. As many as registers
  /// beside the sums hold.
  int asked_at_once() const {
    constexpr int kOthers = 48, kMost = 8, kMostRegisters = 248;
    int all = 0;
    for (NodeId n : read_late()) all += words(n);
    if (!all) return 1;
    const int grown = p_.roles.back().registers;
    int room = (grown > 0 ? grown : std::min(kMostRegisters, d_.launch_registers)) - kOthers;
    for (size_t c = 0; c < m_.products().size(); c++) if (is_wgmma(c)) room -= static_cast<int>(group_rows() / 2);
    return std::clamp(room / all, 1, std::min(kMost, stays() ? held_tiles() : tail_tiles()));
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
    for (NodeId n : fetched()) line("const Pack<4> e{} = staged_item<{}>(staged{}, {} * 8);", n, cuda_type(tensor(n).dtype), n, t);
    for (NodeId n : read_late()) {
      if (ahead > 1) line("const Pack<{}> e{} = ahead{}[{} % {}];", words(n), n, n, t, ahead);
      else line("const Pack<{}> e{} = {};", words(n), n, tail_load(n));
    }
  }
  void declare_ahead() {
    if (const int ahead = asked_at_once(); ahead > 1) for (NodeId n : read_late()) line("Pack<{}> ahead{}[{}];", words(n), n, ahead);
  }
  /// Places where results and operands are gathered: over the ring, which all warpgroups must have finished (and other blocks, where they
  /// have met already).
  void declare_gathered() {
    std::vector<NodeId> all = gathered_results();
    for (NodeId n : fetched()) all.push_back(n);
    if (all.empty()) return;
    if (!receives_over_ring()) line("named_barrier({}, 32 * kWarps);", 1 + row_groups() + groups());
    tail_rows();
    for (NodeId n : all) line("unsigned char* const staged{} = smem + {} + group * (kTail * 1024);", n, gathered_at(n));
    for (NodeId n : fetched())
      line("fetch_staged<kTail * 8>(staged{}, {} + tail_row * int64_t({}) + column, {}, tail_rows, kN - column);", n, pointer(n),
           stride(n, m_.rows()), stride(n, m_.rows()));
  }
  void tail_rows() {
    line("const int tail_row = first_row + team * kGroupRows + rank * kTail * 8, tail_rows = kM - tail_row < {0} ? kM - tail_row : {0};",
         uneven() ? "(rank + 1 < kCluster ? kTail : kTiles - rank * kTail) * 8" : "kTail * 8");
  }
  /// Whether columns of a result, whose lines are along rows, begin at whole 16 bytes.
  bool has_whole_columns(NodeId output) const {
    const Param& a = result(output);
    for (IndexId i : m_.indices(stored_by(output)))
      if (i >= 0 && i != m_.rows() && result_stride(output, i) % 8 != 0) return false;
    return a.offset % 8 == 0;
  }
  void store_gathered() {
    if (gathered_results().empty()) return;
    line("named_barrier({} + group, 128);", 1 + row_groups());
    for (NodeId n : gathered_results()) {
      const int64_t rs = result_stride(n, m_.rows()), cs = result_stride(n, m_.columns());
      if (has_columns(n))
        line("store_staged_{}<kTail>(staged{}, {} + tail_row + column * int64_t({}), {}, tail_rows, kN - column);",
             has_whole_columns(n) ? "by_columns" : "uneven", n, result_pointer(n), cs, cs);
      else
        line("store_staged<kTail * 8>(staged{}, {} + tail_row * int64_t({}) + column, {}, tail_rows, kN - column);", n, result_pointer(n),
             rs, rs);
    }
  }
  /// A number per column that the tail reads is asked for before the loop, and kept.
  void ahead_of_tail() {
    for (NodeId n : m_.tail_leaves())
      if (shape(value(n)) == Shape::kCols)
        line(
            "const Pack<2> e{} = load_two({} + (column + (warp & 3) * 16 + lane / 4) * int64_t({}), {}, 8, kN - column - (warp & 3) * 16 - "
            "lane / 4);",
            n, pointer(n), stride(n, m_.columns()), stride(n, m_.columns()));
  }
  /// What the tail reads is asked for to L2 behind the first chunks, which would otherwise wait for it.
  void fetch_ahead() {
    std::vector<NodeId> rows, lines = fetched();
    for (NodeId n : read_late()) {
      if (shape(value(n)) == Shape::kRows) rows.push_back(n);
      else if (stride(n, m_.columns()) == 1) lines.push_back(n);
    }
    if (rows.empty() && lines.empty()) return;
    open("if (i == {}) {{", std::min<int64_t>(2, iterations() / 2));
    tail_rows();
    for (NodeId n : rows)
      line("prefetch_rows<kTail * 8>({} + tail_row * int64_t({}), {}, tail_rows);", pointer(n), stride(n, m_.rows()),
           stride(n, m_.rows()));
    for (NodeId n : lines)
      line("if (column < kN) prefetch_rows<kTail * 8>({} + tail_row * int64_t({}) + column, {}, tail_rows);", pointer(n),
           stride(n, m_.rows()), stride(n, m_.rows()));
    close();
  }
  /// What a tail reads that is not made for throughput, a line per row, to L2: the loads stand behind the loop, and would wait for device
  /// memory there (0.5 us for each 8 rows of a gate).
  void prefetch_tail() {
    std::vector<NodeId> read;
    for (NodeId n : m_.tail_leaves()) if (shape(value(n)) == Shape::kBoth && stride(n, m_.columns()) == 1) read.push_back(n);
    if (read.empty()) return;
    open("if (i == {} && column < kN) {{", std::min<int64_t>(2, iterations() / 2));
    line("const int row = first_row + team * kGroupRows + rank * kTail * 8, rows = kM - row < kTail * 8 ? kM - row : kTail * 8;");
    for (NodeId n : read)
      line("prefetch_rows<kTail * 8>({} + row * int64_t({}) + column, {}, rows);", pointer(n), stride(n, m_.rows()), stride(n, m_.rows()));
    close();
  }
  void tail() {
    if (!fetched().empty()) line("named_barrier({} + group, 128);", 1 + row_groups());
    if (loads_late()) declare_ahead();
    line("#pragma unroll");
    open("for (int t = 0; t < kTail; t++) {{");
    if (uneven()) line("if (rank * kTail + t >= kTiles) break;   // the last block of the cluster finishes what is left");
    line("{}", item_place());
    if (loads_late()) late_loads();
    tail_results();
    close();
    store_gathered();
  }

  /// The tail of blocks that stay: kHeld row tiles of a warpgroup at a time leave by tensor copies, once the ones before have left; or the
  /// whole tile, over what the tail reads of it.
  void leaving_tail() {
    line("#pragma unroll");
    open("for (int t0 = 0; t0 < kTiles; t0 += kHeld) {{");
    declare_held_places();
    declare_ahead();
    line("#pragma unroll");
    open("for (int t = t0; t < t0 + kHeld; t++) {{");
    line("{}", item_place());
    late_loads();
    if (!fetched().empty()) line("warp_barrier();   // results take these places");
    tail_results();
    close();
    line("fence_async_proxy();");
    line("named_barrier({} + group, 128);", 1 + row_groups());
    open("if (thread_id() % 128 == 0) {{   // a group each time, that the places' turns are counted");
    for (NodeId n : g_.outputs()) store_held(n);
    line("store_commit();");
    close();
    close();
    close();   // of tiles
    line("if (thread_id() % 128 == 0) store_wait_read<0>();");
  }
  void declare_held_places() {
    std::vector<NodeId> all = gathered_results();
    for (NodeId n : fetched()) all.push_back(n);
    const int times = tiles() / held_tiles();
    if (fetched().empty()) {   // two places in turn
      line("const int turn = {}t0 / kHeld;", times % 2 ? fmt::format("done / chunks * {} + ", times) : "");
      for (NodeId n : all)
        line("unsigned char* const staged{} = smem + {} + (turn % 2 * {} + group) * (kHeld * 1024);", n, gathered_at(n), groups());
      line("if (thread_id() % 128 == 0) store_wait_read<1>();");
      line("named_barrier({} + group, 128);", 1 + row_groups());
      return;
    }
    for (NodeId n : all) line("unsigned char* const staged{} = smem + {} + group * (kHeld * 1024);", n, gathered_at(n));
    line("mbarrier_wait(arrived + 8 * group, done / chunks & 1);");
  }
  void store_held(NodeId n) {
    const Stage& s = store_of(n);
    const std::string slice = result_stride(n, m_.batch()) ? ", " + batch_ : "", policy = s.evict_first ? ", evict_first_policy()" : "";
    if (has_columns(n))
      line(
          "for (int t = 0; t < kHeld; t += 8) if (column < kN) store_box(map{}, first_row + team * kGroupRows + (t0 + t) * 8, column{}, "
          "shared_address(staged{} + t * 1024){});",
          map_number(s), slice, n, policy);
    else
      line("if (column < kN) store_box(map{}, column, first_row + team * kGroupRows + t0 * 8{}, shared_address(staged{}){});",
           map_number(s), slice, n, policy);
  }
  /// Whether lines of 16-bit pairs lie along columns.
  bool has_pairs(const Param& a, ValueId v) const {
    const int64_t slice = stride_of(a, v, m_.batch());
    return dtype_bytes(a.dtype) == 2 && stride_of(a, v, m_.columns()) == 1 && stride_of(a, v, m_.rows()) % 2 == 0 && slice % 2 == 0 &&
           a.offset % 2 == 0 && m_.extent(m_.columns()) % 2 == 0 && has(v, m_.rows());
  }

  bool waits_, early_;
  bool ring_statistics_ = false, held_statistics_ = false, from_ring_ = false;
};

}  // namespace
}  // namespace mirage::schedule

namespace mirage {

KernelText emit_tile_kernel(const KernelPlan& kernel, const Plan& plan, const Target&) {
  const schedule::KernelProgram p = schedule::stored_program(kernel);
  const schedule::Derived d = derive(p);
  const KernelCall& call = bound_calls(kernel).front();
  if (p.roles.size() == 1) return emit_turned_kernel(kernel, p, d, call);
  schedule::TileEmitter emitter(p, d, kernel.early, weights_early(kernel, plan));
  const std::string body = emitter.body();
  return emitter.text(kernel, call, body);
}

}  // namespace mirage

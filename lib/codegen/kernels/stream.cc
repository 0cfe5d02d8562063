// Emits a stream kernel from its program (docs/schedule.md): weights through a ring of each warp, or straight to registers, into tensor
// cores; rows, and what they are reduced to, ride along in registers. Copies and fragments are calls of the device library
// (runtime/41_stream.cuh), everything elementwise is text from the body.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>


#include "codegen/program/bound_program.h"
#include "codegen/program/matrix_text.h"
#include "mirage/codegen/module.h"
#include "mirage/ir/walk.h"
#include "mirage/plan/hints.h"
#include "mirage/support/round.h"

namespace mirage::schedule {
namespace {

/// When a kernel starts and lets the next one start. releases: as it begins; waits: it is started so itself; early: weights may be read
/// before what is ahead on the stream has finished.
struct StreamNeighbours { bool releases = false, waits = false, early = false; };

class StreamEmitter : public MatrixText {
 public:
  StreamEmitter(const KernelProgram& p, const Derived& d, const StreamNeighbours& beside)
      : MatrixText(p, d), ring_(m_.place(m_.weights()[0]->to).section), next_to_(beside) {}

  std::string body() {
    constants();
    if (is_ring()) prologue();
    else register_prologue();
    early_loads();
    if (!m_.early().empty()) early_statistics();
    loop();
    sums();
    if (d_.cluster > 1) exchange();
    tail();
    return std::move(out_);
  }

  // ---- calls beside each other: what differs is data
  size_t calls() const { return 1 + p_.beside.size(); }
  int64_t columns_of(size_t call) const { return call == 0 ? m_.extent(m_.columns()) : p_.beside[call - 1].extent; }
  const Param& tensor_of(size_t call, int param) const {
    if (call > 0) for (const auto& [i, x] : p_.beside[call - 1].params) if (i == param) return x;
    return p_.params[at(param)];
  }
  const Param& result_of(size_t call, int result) const {
    if (call > 0) for (const auto& [i, x] : p_.beside[call - 1].results) if (i == result) return x;
    return p_.results[at(result)];
  }
  /// Whether input n, read through a pointer, lies elsewhere for each call.
  bool differs(NodeId n) const { return !p_.beside.empty() && !mapped(n) && has(value(n), m_.columns()); }
  NodeId input_of(int param) const {
    for (NodeId n : g_.inputs()) if (this->param(n) == param) return n;
    return -1;
  }
  /// What tensor copies bring, in the order of the kernel's maps.
  std::vector<size_t> copied() const {
    std::vector<size_t> out;
    for (size_t i = 0; i < m_.weights().size(); i++) if (weight(i).path == PathId::kTma) out.push_back(i);
    return out;
  }
  size_t param_of(size_t weight) const { return at(param(this->weight(weight))); }
  int64_t batch() const { return m_.extent(m_.batch()); }
  TensorMapText map_of(size_t i, size_t call) const {
    const Stage& w = weight(i);
    return weight_map(m_, w, tensor_of(call, param(w)), is_wide(i) ? columns_of(call) : m_.extent(m_.free(w)), padded(w),
                      static_cast<int>(chunk()));
  }

 private:
  // ---- how the program divides the work
  bool is_ring() const { return ring_ >= 0; }
  const Split& reduction() const { return *p_.split_of(m_.reduced()); }
  int64_t chunk() const { return reduction().tile; }
  int64_t chunks() const { return p_.chunks(reduction()); }
  int64_t warps() const { return p_.parts(AxisKind::kWarp); }
  int64_t workers() const { return warps() * d_.cluster; }
  int64_t rounds() const { return p_.parts(AxisKind::kLoop); }
  bool is_rotated() const { return reduction().rotated; }
  bool has_short_chunk() const { return m_.depth() % chunk() != 0; }
  int64_t columns() const { return p_.tile_of(m_.columns()); }   // of a block
  int64_t tiles() const { return columns() / 16; }               // of the 16-row operand
  int64_t rows() const { return m_.extent(m_.rows()); }
  int64_t row_tiles() const { return ceil_div(rows(), int64_t{8}); }
  bool are_columns_whole() const { return m_.extent(m_.columns()) % columns() == 0; }
  int64_t items() const { return row_tiles() * columns() * 2; }
  int64_t share() const { return items() / d_.cluster; }
  int64_t slots() const { return is_ring() ? p_.sections[at(ring_)].slots : 1; }

  // ---- weights
  const Stage& weight(size_t i) const { return *m_.weights()[i]; }
  bool is_wide(size_t weight) const { return m_.is_wide(this->weight(weight)); }
  bool is_uneven(const Stage& w) const { return w.path == PathId::kCpAsync; }   // its lines begin anywhere
  bool is_instead(const Stage& w) const { return m_.place(w.to).instead >= 0; }
  bool is_deep_major(const Stage& w) const { return is_depth_major(m_, w, tensor(w)); }
  bool any_uneven() const { return std::any_of(m_.weights().begin(), m_.weights().end(), [&](const Stage* w) { return is_uneven(*w); }); }
  bool is_evicted_first() const {
    return std::any_of(m_.weights().begin(), m_.weights().end(), [](const Stage* w) { return w->evict_first; });
  }
  /// Columns, or ranks, that a chunk of it has room for.
  int padded(const Stage& w) const {
    const std::vector<int64_t>& box = m_.place(w.to).box;
    return static_cast<int>(is_ring() && box.size() == 3 ? box[1] : box.back());
  }
  /// Elements from one of its lines to the next.
  int64_t line_of(const Stage& w) const {
    const IndexId across = is_deep_major(w) ? m_.free(w) : has(value(w), m_.second()) ? m_.second() : m_.reduced();
    return stride(input(w), across);
  }
  int64_t slice_of(const Stage& w) const { return stride(input(w), m_.batch()); }
  int64_t offset_in_slot(const Stage& w) const { return d_.place_at[at(w.to)] - d_.section_at[at(ring_)]; }
  /// Which step of a chunk brings and multiplies it. In registers each weight with columns has its own, low ranks ride along.
  int step_of(const Stage& w) const {
    if (is_ring()) return m_.place(w.to).step;
    int wide = 0, low = 0, own = 0;
    for (const Stage* x : m_.weights()) {
      int& next = m_.is_wide(*x) ? wide : low;
      if (x == &w) own = next;
      next++;
    }
    return m_.is_wide(w) ? own : own % wide;
  }
  int steps() const {
    int n = 1;
    for (const Stage* w : m_.weights()) n = std::max(n, step_of(*w) + 1);
    return n;
  }
  bool mapped(NodeId n) const override {
    return std::any_of(m_.weights().begin(), m_.weights().end(), [&](const Stage* w) { return input(*w) == n && w->path == PathId::kTma; });
  }
  int column_step() const override { return is_ring() || is_deep_major(weight(0)) ? 8 : 1; }

  // ---- products
  /// Where a product finds its rows: as they are stored, or as they were computed or converted for it.
  const Place& rows_of(const Stage& product) const {
    const ValueId v = m_.small(product);
    const Place* at_value = m_.operand(product, v);
    return at_value ? *at_value : *m_.operand(product, value(m_.stored(v)));
  }
  bool is_scaled(const Stage& product) const { return rows_of(product).scaled; }
  bool is_scaled(size_t i) const { return is_scaled(product(i)); }
  /// The operand of rows in shared memory, where it is made once, before the loop; null: the loop makes it.
  const Place* prepared() const {
    const Place& x = rows_of(product(0));
    return x.section >= 0 ? &x : nullptr;
  }

  // ---- sections
  int section_through(const Stage& made) const { return m_.place(m_.fold_of(made)->through[0]).section; }
  int64_t begin(int section) const { return d_.section_at[at(section)]; }
  int64_t end(int section) const { return begin(section) + d_.section_bytes[at(section)]; }
  int items_section() const { return section_through(*m_.totals()[0]); }
  int64_t warp_bytes() const { return d_.section_bytes[at(items_section())] / warps(); }   // of a warp's ring, and of its items
  int64_t received_at() const {
    const Stage& fold = *m_.fold_of(*m_.totals()[0]);
    return fold.through.size() > 1 ? begin(m_.place(fold.through[1]).section) : end(items_section());
  }
  int64_t statistics_at() const {   // what is not there begins where the next begins
    if (!m_.statistics().empty()) return begin(section_through(*m_.statistics()[0]));
    const Stage& fold = *m_.fold_of(*m_.totals()[0]);
    return fold.through.size() > 1 ? end(m_.place(fold.through[1]).section) : end(items_section());
  }
  int64_t barriers_at() const {
    for (size_t s = 0; s < p_.sections.size(); s++) if (p_.sections[s].barriers) return d_.section_at[s];
    return -1;
  }

  // ---- constants
  void constants() {
    line(
        "constexpr int kThreads = {}, kWarps = {}, kStages = {}, kChunk = {}, kCluster = {}, kWorkers = {}, kSteps = {}, kChunks = {}, "
        "kRounds = {};",
        d_.threads, warps(), slots(), chunk(), d_.cluster, workers(), steps(), chunks(), rounds());
    if (calls() > 1) choose_call();
    line("constexpr int kM = {}, {}kDepth = {}, kRows = {}, kUnits = {}, kItems = {}, kShare = {}, kTail = {};   // kRows: groups of 8",
         rows(), calls() > 1 ? "" : fmt::format("kN = {}, ", columns_of(0)), m_.depth(), row_tiles(), chunk() / 32, items(), share(),
         ceil_div(share(), int64_t{d_.threads}));
    if (m_.second() >= 0)
      line("constexpr int kFirst = {};   // chunks of the reduction's first part", m_.extent(m_.reduced()) / chunk());
    if (is_ring())
      line("constexpr int kStage = {}, kRing = {}, kReceived = {}, kStatistics = {}, kBarriers = {};", d_.slot_bytes[at(ring_)],
           warp_bytes(), received_at(), statistics_at(), barriers_at());
    else line("constexpr int kRing = {}, kStatistics = {};", warp_bytes(), statistics_at());
    // a name of its own: block kernels of one library ask for another alignment
    line("extern __shared__ __align__(1024) unsigned char stream_smem[];");
    line("unsigned char* const smem = stream_smem;");
    line("const int lane = lane_id(), warp = warp_id(), row = lane / 4, rank = {}, column = {} * {}, worker = rank * kWarps + warp;",
         d_.cluster > 1 ? "cluster_rank()" : "0", calls() > 1 ? "(block_id() / kCluster - first)" : "block_id() / kCluster", columns());
    if (is_ring())
      line(
          "const uint32_t ring = shared_address(smem) + warp * kRing, ready = shared_address(smem) + kBarriers + warp * kStages * 8, met = "
          "shared_address(smem) + kBarriers + kWarps * kStages * 8;");
  }

  /// `of(0)` for blocks of the first call, of(1) for those of the next, ...
  template <class F> std::string chosen(F of) const {
    std::string text;
    for (size_t i = calls() - 1; i > 0; i--) text += fmt::format("part == {} ? {} : ", i, of(i));
    return text + of(0);
  }
  const Param& lies(size_t call, NodeId n) const {   // an input, or an output's result
    const auto* out = g_.form<Output>(n);
    return out ? result_of(call, out->result) : tensor_of(call, param(n));
  }
  /// From one element to the next along an index, of an input or of an output's result.
  int64_t stride_in(size_t call, NodeId n, IndexId i) const {
    return stride_of(lies(call, n), g_.form<Output>(n) ? stored_by(n) : value(n), i);
  }
  bool is_same_stride(NodeId n, IndexId i) const {
    for (size_t c = 1; c < calls(); c++) if (stride_in(c, n, i) != stride_in(0, n, i)) return false;
    return true;
  }
  std::string row_stride(NodeId n, int64_t stride) const override {
    return is_same_stride(n, m_.rows()) ? std::to_string(stride) : fmt::format("rows{}", n);
  }
  // chosen with the pointer
  int64_t offset(NodeId n, int64_t elements) const override { return calls() > 1 && (g_.form<Output>(n) || differs(n)) ? 0 : elements; }
  void choose_call() {
    std::vector<int64_t> first{0};
    for (size_t i = 0; i + 1 < calls(); i++) first.push_back(first.back() + ceil_div(columns_of(i), columns()));
    std::string part;
    for (size_t i = calls() - 1; i > 0; i--) part += fmt::format("block_id() >= {} ? {} : ", first[i] * d_.cluster, i);
    line("const int part = {}0, first = {}, kN = {};   // calls beside each other: which one this block is of", part,
         chosen([&](size_t i) { return std::to_string(first[i]); }), chosen([&](size_t i) { return std::to_string(columns_of(i)); }));
    for (size_t w : copied()) line("const TensorMap& map{} = {};", w, chosen([&](size_t i) { return fmt::format("map{}_{}", w, i); }));
    for (NodeId n : g_.inputs())
      if (differs(n)) {
        line("const void* const in{} = {};", param(n), chosen([&](size_t i) {
               return fmt::format("(const {}*)in{}_{} + {}", cuda_type(lies(i, n).dtype), param(n), i, lies(i, n).offset);
             }));
        choose_stride(n, m_.rows(), "rows");
        choose_stride(n, m_.group(), "groups");
      }
    for (NodeId n : g_.outputs()) {
      const int r = g_.form<Output>(n)->result;
      line("void* const out{} = {};", r, chosen([&](size_t i) {
             return fmt::format("({}*)out{}_{} + {}", cuda_type(lies(i, n)), r, i, lies(i, n).offset);
           }));
      choose_stride(n, m_.rows(), "rows");
    }
  }
  void choose_stride(NodeId n, IndexId i, const char* name) {
    if (!is_same_stride(n, i))
      line("const int64_t {}{} = {};", name, n, chosen([&](size_t c) { return std::to_string(stride_in(c, n, i)); }));
  }
  std::string item_row() const { return columns() == 64 ? "item_row" : fmt::format("item_row<{}>", tiles()); }
  std::string item_column() const {
    return columns() == 64 && column_step() == 8 ? "item_column" : fmt::format("item_column<{}, {}>", tiles(), column_step());
  }

  // ---- the ring: each warp fills and empties its own
  void prologue() {
    if (next_to_.releases) line("release_next();");
    if (next_to_.waits && !next_to_.early) line("await_previous();");
    open("if (lane == 0) {{");
    line("for (int s = 0; s < kStages; s++) mbarrier_init(ready + 8 * s, 1);");
    if (d_.cluster > 1) line("if (warp == 0) mbarrier_init(met, 1);");
    line("mbarrier_publish();");
    close();
    line("warp_barrier();");
    if (is_evicted_first()) line("const uint64_t policy = evict_first_policy();");
    if (is_rotated())
      line(
          "const auto chunk_of = [&](int round) {{ return (round + block_id() / kCluster) % kRounds * kWorkers + worker; }};   // blocks "
          "start at different places");
    else line("const auto chunk_of = [&](int round) {{ return round * kWorkers + worker; }};");
    declare_fetch();
    const bool between = weights_first() && small_first();
    if (small_first() && !weights_first()) hold_rows(), small_operands();
    if (between) line("fetch(0);   // the rest behind the rows, which would wait for it in device memory");
    else line("for (int s = 0; s < kStages; s++) fetch(s);");
    if (weights_first()) line("await_previous();   // weights are under way; everything else may come from the kernel ahead");
    if (between) {
      hold_rows();
      small_operands();
      line("for (int s = 1; s < kStages; s++) fetch(s);");
    }
    line("warp_barrier();");
    if (d_.cluster > 1) line("cluster_arrive_relaxed();");
  }
  void declare_fetch() {
    open("const auto fetch = [&](int step) {{   // one step of this warp's ring");
    line("const int chunk = chunk_of(step / kSteps), place = step % kStages;");
    if (m_.second() >= 0) line("const bool second = chunk >= kFirst;\n  const int from = (second ? chunk - kFirst : chunk) * kChunk;");
    const std::string none = is_rotated() ? "step >= kRounds * kSteps" : "chunk >= kChunks";
    if (any_uneven()) open("if (!({})) {{", none);
    else line("if (lane != 0 || {}) return;", none);
    if (!copied().empty()) line("const uint32_t to = ring + place * kStage, bar = ready + 8 * place;");
    for (int s = 0; s < steps(); s++) {
      if (steps() > 1) open("{}if (step % kSteps == {}) {{", s ? "else " : "", s);
      copy_boxes(s);
      for (const Stage* w : m_.weights()) if (step_of(*w) == s && is_uneven(*w)) copy_lines(*w);
      if (steps() > 1) close();
    }
    if (any_uneven()) {
      close();
      line("copy_commit();   // a group for every step, for those beyond the last as well");
    }
    close("};");
  }
  /// Whether weights are asked for while the kernel ahead still runs.
  bool weights_first() const { return next_to_.waits && next_to_.early; }
  /// Whether rows are asked for before the weights, behind which they would wait for device memory: those that are reduced before the loop,
  /// those that operands are computed from (0.3 us; as they are stored: -0.1), and more than 16 of them, as long as nothing has to wait
  /// for the kernel ahead (docs/kernels.md, "What is asked for first").
  bool small_first() const {
    if (row_tiles() > 2 && is_ring() && !weights_first()) return true;
    if (holds_rows()) return true;
    for (size_t i = 0; i < m_.products().size(); i++)
      if (is_scaled(i) || is_tf32(i) || m_.stored(m_.small(product(i))) < 0) return true;
    return false;
  }

  // ---- copies to the ring, by path
  /// Bytes that tensor copies bring in step s.
  int64_t boxes_of(int s) const {
    int64_t bytes = 0;
    for (size_t i : copied()) if (step_of(weight(i)) == s && !is_instead(weight(i))) bytes += m_.place(weight(i).to).bytes();
    return bytes;
  }
  void copy_boxes(int s) {
    const int64_t bytes = boxes_of(s);
    if (bytes == 0) return;
    if (any_uneven()) open("if (lane == 0) {{");
    line("mbarrier_expect(bar, {});", bytes);
    for (size_t i : copied()) if (step_of(weight(i)) == s && !is_instead(weight(i))) copy_box(i);
    if (any_uneven()) close();
  }
  void copy_box(size_t i) {
    const Stage& w = weight(i);
    const char *policy = w.evict_first ? ", policy" : "", *column = is_wide(i) ? "column" : "0", *slice = slice_of(w) ? ", batch_id()" : "";
    std::string map = fmt::format("map{}", i);
    for (size_t j : copied()) if (m_.place(weight(j).to).instead == w.to) map = fmt::format("second ? map{} : {}", j, map);
    const char* from = m_.second() >= 0 ? "from" : "chunk * kChunk";
    const int64_t to = offset_in_slot(w);
    if (!is_deep_major(w)) {
      line("copy_box(to + {}, {}, {}, {}{}, bar{});", to, map, column, from, slice, policy);
      return;
    }
    const std::string place = !m_.place(w.to).even_first ? column : is_wide(i) ? "0, 0, column / 8" : "0, 0, 0";
    for (int j = 0; j < chunk() / 64; j++)
      line("copy_box(to + {}, {}, {} + {}, {}{}, bar{});", to + int64_t{j} * padded(w) * 128, map, from, j * 64, place, slice, policy);
  }
  /// Lines that begin anywhere (runtime/45_stream_uneven.cuh): brought by all lanes, a group of copies a step.
  void copy_lines(const Stage& w) {
    const std::string tensor = fmt::format("(const {}*)in{}", weight_type(w), param(w)), to = "smem + warp * kRing + place * kStage";
    const int64_t offset = offset_in_slot(w), stride = line_of(w);
    if (!is_deep_major(w)) {
      line("fetch_uneven<kChunk>({} + {}, {}, {} + chunk * (kChunk * int64_t({})) + column, {}, kDepth - chunk * kChunk, kN - column);", to,
           offset, tensor, first_element(w), stride, stride);
      return;
    }
    const int64_t pitch = m_.place(w.to).pitch;
    for (int j = 0; j < chunk() / 64; j++)
      line(
          "fetch_uneven<64>({} + {}, {}, {} + column * int64_t({}) + chunk * kChunk + {}, {}, kN - column, kDepth - chunk * kChunk - "
          "{});",
          to, offset + j * 64 * pitch, tensor, first_element(w), stride, j * 64, stride, j * 64);
  }
  /// The element of its tensor at which this block's product of a batch begins.
  std::string first_element(const Stage& w) const {
    return fmt::format("{}{}", tensor(w).offset, slice_of(w) ? fmt::format(" + batch_id() * int64_t({})", slice_of(w)) : "");
  }

  // ---- weights straight to registers (runtime/42_stream_registers.cuh): everything is asked for at once
  void register_prologue() {
    if (next_to_.releases) line("release_next();");
    if (next_to_.waits && !next_to_.early) line("await_previous();");
    line("const int chunk = worker;");
    for (size_t i = 0; i < m_.weights().size(); i++) copy_to_registers(i);
    if (weights_first()) line("await_previous();   // weights are under way; everything else may come from the kernel ahead");
    small_operands();
  }
  void copy_to_registers(size_t i) {
    const Stage& w = weight(i);
    const bool deep = is_deep_major(w), is_whole = is_wide(i) ? are_columns_whole() : m_.extent(m_.free(w)) == padded(w);
    line("{}<{}, {}, kUnits, {}> w{};", is_wide(i) ? "RegisterTile" : "RegisterRank", weight_type(w), padded(w), deep, i);
    line("w{}.fetch<{}>({}{} + chunk * kChunk{}, {}, kDepth - chunk * kChunk, {});", i, !has_short_chunk() && is_whole, pointer(input(w)),
         !is_wide(i) ? ""
         : deep      ? fmt::format(" + column * int64_t({})", line_of(w))
                     : " + column",
         deep ? "" : fmt::format(" * int64_t({})", line_of(w)), line_of(w),
         is_wide(i) ? "kN - column" : std::to_string(m_.extent(m_.free(w))));
  }

  // ---- what weights, or their products by group, are scaled by in the loop (runtime/43_stream_lines.cuh)
  /// Inputs that weights or products are scaled by, each once.
  std::vector<NodeId> factors(bool by_group) const {
    std::vector<NodeId> out;
    const auto add = [&](ValueId below) {
      find_below(g_, below, [&](ValueId x) {
        if (g_.def_form<MatMul>(x)) return Look::kPast;
        const NodeId n = g_.value(x).node;
        if (g_.def_form<Input>(x) && !is_deep(x) && has(x, m_.group()) == by_group && std::find(out.begin(), out.end(), n) == out.end())
          out.push_back(n);
        return Look::kInto;
      });
    };
    for (const Stage* s : m_.products())
      for (ValueId v : {m_.made_weight(*s), m_.scaled_groups(*s)}) if (v >= 0) add(v);
    return out;
  }
  bool scales_groups(const Stage& product) const { return m_.scaled_groups(product) >= 0; }
  std::string factor_type(NodeId n) const { return fmt::format("ColumnFactors<{}, {}>", cuda_type(tensor(n).dtype), tiles()); }
  std::string fetched_factor(NodeId n, const std::string& to, const std::string& group, const std::string& exists) const {
    const int64_t along = stride(n, m_.columns()), groups = stride(n, m_.group());
    std::string from = pointer(n);
    if (along) from += fmt::format(" + column * int64_t({})", along);
    if (has(value(n), m_.group())) {
      const std::string apart = is_same_stride(n, m_.group()) ? std::to_string(groups) : fmt::format("groups{}", n);
      from += fmt::format(" + {} * int64_t({})", group, apart);
    }
    const std::string left = along ? "kN - column" : fmt::format("{}", columns());
    return fmt::format("{}.fetch({}, {}, {}{}{});", to, from, along, exists, left, exists.empty() ? "" : " : 0");
  }
  /// Groups of the reduction: in one chunk, or one that chunks are parts of.
  int64_t groups_of_chunk() const { return std::max<int64_t>(1, chunk() / m_.extent(m_.reduced())); }
  /// Those that are the same for all groups, and the first chunk's.
  void first_factors() {
    for (NodeId n : factors(false)) {
      line("{} f{};", factor_type(n), n);
      line("{}", fetched_factor(n, fmt::format("f{}", n), "", ""));
    }
    const std::vector<NodeId> by_group = factors(true);
    if (!by_group.empty() || std::any_of(m_.products().begin(), m_.products().end(), [&](const Stage* s) { return scales_groups(*s); }))
      line("constexpr int kGroup = {};   // elements of the reduction in a group", m_.extent(m_.reduced()));
    if (by_group.empty()) return;
    line("constexpr int kGroups = {};   // in a chunk, or of which it is a part", groups_of_chunk());
    for (NodeId n : by_group) line("{0} f{1}[kGroups], next_f{1}[kGroups];", factor_type(n), n);
    open("const auto fetch_factors = [&](int chunk) {{");
    line("#pragma unroll");
    open("for (int i = 0; i < kGroups; i++) {{");
    line("const int group = chunk * kChunk / kGroup + i;");
    for (NodeId n : by_group)
      line("{}", fetched_factor(n, fmt::format("next_f{}[i]", n), "group", fmt::format("group < {} ? ", m_.extent(m_.group()))));
    close();
    close("};");
    line("fetch_factors(chunk_of(0));");
  }
  void take_factors() {
    const std::vector<NodeId> by_group = factors(true);
    if (by_group.empty()) return;
    for (NodeId n : by_group) line("for (int i = 0; i < kGroups; i++) f{0}[i] = next_f{0}[i];", n);
    line("if (round + 1 < kRounds) fetch_factors(chunk_of(round + 1));");
  }
  /// The expression v of the loop over factors, with `leaf` for the stored weight, or for the product.
  std::string factor_element(ValueId v, const std::string& leaf, const char* place, std::string& statements,
                             std::map<ValueId, std::string>& known) const {
    if (auto it = known.find(v); it != known.end()) return it->second;
    if (g_.def_form<Transpose>(v)) return factor_element(g_.def(v).operands[0], leaf, place, statements, known);
    if (const auto* c = g_.def_form<Const>(v)) return CudaText().constant(c->value);
    if (g_.def_form<MatMul>(v)) return leaf;
    std::string text;
    if (g_.def_form<Input>(v)) {
      if (is_deep(v)) return leaf;
      text = fmt::format("f{}{}.{}", g_.value(v).node, has(v, m_.group()) ? "[group]" : "", place);
    } else {
      text = map(v, [&](ValueId o) { return factor_element(o, leaf, place, statements, known); });
    }
    statements += fmt::format("const auto v{} = {}; ", v, text);
    return known[v] = fmt::format("v{}", v);
  }
  /// The weight's fragments as product i takes them: as they are stored, or as the loop computes them. column: the name of a tile of
  /// columns.
  std::string made_tile(size_t i, const char* column) {
    const ValueId made = m_.made_weight(product(i));
    const std::string tile = fmt::format("w{}", weight_number(i));
    if (made < 0) return tile;
    std::string statements;
    std::map<ValueId, std::string> known;
    const std::string e = factor_element(made, "x", fmt::format("one({}, h)", column).c_str(), statements, known);
    line("const auto made{0} = made_tile({1}, [&](const Pack<2>& x, int {2}, int h) {{ (void){2}, (void)h; {3}return {4}; }});", i, tile,
         column, statements, e);
    return fmt::format("made{}", i);
  }

  // ---- what is needed behind the loop, and what does not change in it
  void early_loads() {
    for (size_t i = 0; i < m_.second_factors().size(); i++) second_factor(i);
    for (NodeId n : m_.loop_leaves()) {
      if (is_deep(value(n))) continue;
      if (!has(value(n), m_.rows())) { line("const float l{} = load(*({}));", n, pointer(n)); continue; }
      if (prepared()) continue;   // read by the warp that prepares the row
      line("float l{}[kRows];", n);
      line("for (int r = 0; r < kRows; r++) l{} [r] = r * 8 + row < kM ? load(({})[(r * 8 + row) * int64_t({})]) : 0.0f;", n, pointer(n),
           stride(n, m_.rows()));
    }
    declare_tail_loads();
    if (const std::string text = tail_loads(); !text.empty())
      line(
          "for (int t = 0; t < kTail; t++) {{ const int item = rank * kShare + thread_id() + t * kThreads, m = {}(item), c = column + "
          "{}(item); (void)m, (void)c; {}}}",
          item_row(), item_column(), text);
  }
  /// What a low-rank sum is multiplied by behind the loop.
  void second_factor(size_t i) {
    const MatrixStages::Gained q = gained(i);
    const Stage& w = m_.weight(*q.sum);
    const IndexId rank = m_.free(w);
    const int64_t ranks = m_.extent(rank), rank_stride = stride(q.factor, rank), column_stride = stride(q.factor, m_.columns());
    const char* type = cuda_type(tensor(q.factor).dtype);
    if (is_ring()) line("RankFactor<{}, {}> factor{};", type, padded(w), i);
    else line("RegisterFactor<{}, {}, {}, {}> factor{};", type, padded(w), tiles(), column_step(), i);
    if (in_lines(q))
      line("factor{}.fetch_lines{}({} + column, {}, {}, kN - column);", i,
           is_ring()                                  ? ""
           : ranks == padded(w) && are_columns_whole() ? "<true>"
                                                      : "<false>",
           pointer(q.factor), rank_stride, ranks);
    else
      line("factor{}.fetch({} + column * int64_t({}), {}, {}, {}, kN - column);", i, pointer(q.factor), column_stride, rank_stride,
           column_stride, ranks);
    declare_gain(i, fmt::format("RankGain<{}, 2, 1>", padded(w)), ranks);
  }
  /// Whether a second factor comes in pieces of lines along the columns.
  bool in_lines(const MatrixStages::Gained& q) const {
    const int64_t unit = is_ring() ? 2 : 2 * tiles(), rank_stride = stride(q.factor, m_.free(m_.weight(*q.sum)));
    if (stride(q.factor, m_.columns()) != 1 || rank_stride % unit || tensor(q.factor).offset % unit || columns_of(0) % unit) return false;
    return is_ring() ? stride(q.factor, m_.batch()) % 2 == 0 : column_step() == 1;
  }

  // ---- reductions of whole rows, a warp per row, while the first weights are under way
  /// Inputs that they read which differ along what they reduce.
  std::set<NodeId> whole_leaves() const {
    std::set<NodeId> all, out;
    for (const Stage* s : m_.early()) m_.leaves(m_.reduced_by(*s), all);
    for (NodeId n : all) if (m_.whole(value(n)) >= 0) out.insert(n);
    return out;
  }
  /// Whether a warp holds its rows until all of them are reduced; otherwise each reduction walks along them.
  bool holds_rows() const {
    for (NodeId n : whole_leaves()) if (!m_.place(m_.copy_of(n)->to).box.empty()) return true;
    return false;
  }
  int64_t whole_extent(NodeId n) const { return m_.extent(m_.whole(value(n))); }
  int64_t whole_extent(const Stage& s) const {
    std::set<NodeId> inputs;
    m_.leaves(m_.reduced_by(s), inputs);
    int64_t extent = 1;
    for (NodeId n : inputs) extent = std::max(extent, whole_extent(n));
    return extent;
  }
  static int64_t units_of(int64_t extent) { return ceil_div(extent, int64_t{256}); }   // of 32 lanes, eight elements each
  int64_t warp_rows() const { return ceil_div(8 * row_tiles(), warps()); }

  void hold_rows() {
    if (!holds_rows()) return;
    if (prepared()) prepared_places();
    for (NodeId n : whole_leaves()) {
      const bool rows = has(value(n), m_.rows());
      const int64_t extent = whole_extent(n), units = units_of(extent);
      line("Vector<{}, 8> whole{}[{}][{}];   // blocks begin at different places: all ask for the same lines of L2",
           cuda_type(tensor(n).dtype), n, rows ? warp_rows() : 1, units);
      line("#pragma unroll");
      open("for (int i = 0; i < {}; i++) {{", rows ? warp_rows() : 1);
      line("#pragma unroll");
      open("for (int j = 0; j < {}; j++) {{", units);
      line("const int m = warp + i * kWarps, k = {};", held_place(units));
      line("whole{}[i][j] = load_eight_now({}{} + {}, {}k < {});", n, pointer(n),
           rows ? fmt::format(" + m * int64_t({})", stride(n, m_.rows())) : "", column_place(tensor(n), 1, "k"), rows ? "m < kM && " : "",
           extent);
      close();
      close();
    }
  }
  /// Where a lane's unit j of a held row begins.
  std::string held_place(int64_t units) const {
    return prepared() ? "held_place(j)" : fmt::format("((j + block_id() / kCluster) % {} * 32 + lane) * 8", units);
  }

  // ---- rows that become the products' operand once, in shared memory. A unit is 256 elements; this block's come first
  void prepared_places() {
    line("constexpr int kOwn = {}, kRun = {};   // units of 256 elements of this block; of one round", m_.depth() / 256 / d_.cluster,
         warps() * chunk() / 256);
    line("const auto own_unit = [&](int j) {{ return (j + block_id() / kCluster) % kOwn; }};");
    line(
        "const auto held_place = [&](int j) {{ const int t = own_unit(j % kOwn); return (((t / kRun * kCluster + (rank + j / kOwn) % "
        "kCluster) * kRun + t % kRun) * 32 + lane) * 8; }};");
  }
  int64_t prepared_at() const { return d_.place_at[at(static_cast<int>(prepared() - p_.places.data()))]; }
  /// Which of the inputs that are reduced before the loop has the elements that input `deep` of the loop has; -1: none.
  NodeId held_input(NodeId deep) const {
    const auto memory = [&](NodeId n) { return tensor(n).in >= 0 ? tensor(n).in : param(n); };
    const Param& a = tensor(deep);
    for (NodeId n : whole_leaves()) {
      const Param& b = tensor(n);
      if (memory(deep) == memory(n) && a.offset == b.offset && a.dtype == b.dtype && a.position == b.position &&
          whole_extent(n) == m_.depth() && stride(deep, m_.rows()) == stride(n, m_.rows()) &&
          stride(deep, m_.reduced()) == stride(n, m_.whole(value(n))))
        return n;
    }
    return -1;
  }
  /// Vectors along the reduction that the operand is computed from.
  void hold_vectors() {
    std::vector<NodeId> vectors;
    for (NodeId n : deep_leaves()) if (!has(value(n), m_.rows())) vectors.push_back(n);
    for (NodeId n : vectors) line("Vector<{}, 8> x{}[kOwn];", cuda_type(tensor(n).dtype), n);
    if (vectors.empty()) return;
    line("#pragma unroll");
    open("for (int j = 0; j < kOwn; j++) {{");
    for (NodeId n : vectors) line("x{0}[j] = load_eight_now({1} + held_place(j), true);", n, pointer(n));
    close();
  }
  std::string prepared_type() const {
    return is_tf32(0) ? "PreparedTf32" : fmt::format("Prepared<{}>", cuda_type(prepared()->dtype));
  }
  /// The operand's row m, as soon as what it is reduced to is known.
  void prepare_row() {
    line("unsigned char* const line = smem + {} + m * {};", prepared_at(), prepared()->pitch);
    std::string statements;
    preparing_ = true;
    const std::string e = loop_element(m_.small(product(0)), statements);
    preparing_ = false;
    const bool scaled = prepared()->scaled;
    if (scaled) {
      line("float most = 0.0f;");
      line("#pragma unroll");
      line("for (int j = 0; j < kOwn; j++) {{ {}most = Max::combine(most, largest({})); }}", statements, e);
      line("const float scale = line_scale(mo::min(lanes_reduce<Max, 32>(most), kLargestFloat));");
      line("if (lane == 0) backs[m] = 1.0f / scale;");
    }
    line("#pragma unroll");
    open("for (int j = 0; j < kOwn; j++) {{");
    line("{}{}::put(line, own_unit(j) * 256 + lane * 8, {});", statements, prepared_type(),
         scaled ? fmt::format("scaled({}, scale)", e) : e);
    close();
  }

  void early_statistics() {
    line("float* const early = (float*)(smem + {});   // [statistic][row]", begin(section_through(*m_.early()[0])));
    const bool scaled = prepared() && prepared()->scaled;
    if (scaled)
      line("float* const backs = (float*)(smem + {});   // what brings sums of a row back", prepared_at() + prepared()->bytes());
    if (holds_rows()) {
      line("#pragma unroll");
      open("for (int i = 0; i < {}; i++) {{", warp_rows());
      line("const int m = warp + i * kWarps;");
      if (8 * row_tiles() % warps()) line("if (m >= 8 * kRows) break;");
    } else {
      open("for (int m = warp; m < 8 * kRows; m += kWarps) {{");
    }
    open("if (m >= kM) {{");
    line("if (lane < {}) early[lane * 8 * kRows + m] = 0.0f;", m_.early().size());
    if (scaled) line("if (lane == 0) backs[m] = 0.0f;");
    if (prepared())
      line("for (int j = 0; j < kOwn; j++) {}::put(smem + {} + m * {}, j * 256 + lane * 8, Pack<8>{{}});", prepared_type(), prepared_at(),
           prepared()->pitch);
    line("continue;");
    close();
    std::map<ValueId, std::string> known;
    for (size_t i = 0; i < m_.early().size(); i++) early_statistic(i, known);
    if (prepared()) prepare_row();
    close();
    line("barrier();");
    if (prepared()) return;
    for (size_t i = 0; i < m_.early().size(); i++) {
      line("float row{}[kRows];", value(*m_.early()[i]));
      line("for (int r = 0; r < kRows; r++) row{}[r] = early[{} * kRows + r * 8 + row];", value(*m_.early()[i]), 8 * i);
    }
  }
  void early_statistic(size_t i, std::map<ValueId, std::string>& known) {
    const Stage& s = *m_.early()[i];
    const int64_t extent = whole_extent(s);
    line("float early{} = {}::identity();", i, reduce_type(s));
    if (holds_rows()) {
      line("#pragma unroll");
      open("for (int j = 0; j < {}; j++) {{", units_of(extent));
      if (extent % 256) line("if ({} >= {}) continue;", held_place(units_of(extent)), extent);
    } else {
      line("#pragma unroll {}", std::min<int64_t>(16, units_of(extent)));   // what the next walk reads again stays in registers
      open("for (int k = lane * 8; k < {}; k += 256) {{", extent);
    }
    std::string statements;
    std::map<ValueId, std::string> inner = known;
    const std::string e = early_element(m_.reduced_by(s), statements, inner);
    line("{}early{} = {}::combine(early{}, reduce_pack<{}>({}));", statements, i, reduce_type(s), i, reduce_type(s), e);
    close();
    line("early{0} = lanes_reduce<{1}, 32>(early{0});", i, reduce_type(s));
    line("if (lane == 0) early[{} * kRows + m] = early{};", 8 * i, i);
    known[value(s)] = fmt::format("early{}", i);
  }
  std::string early_element(ValueId v, std::string& statements, std::map<ValueId, std::string>& known) const {
    if (auto it = known.find(v); it != known.end()) return it->second;
    if (g_.def_form<Transpose>(v)) return early_element(g_.def(v).operands[0], statements, known);
    if (const auto* c = g_.def_form<Const>(v)) return CudaText().constant(c->value);
    const std::string text =
        g_.def_form<Input>(v) ? early_leaf(v) : map(v, [&](ValueId o) { return early_element(o, statements, known); });
    statements += fmt::format("const auto v{} = {}; ", v, text);
    return known[v] = fmt::format("v{}", v);
  }
  std::string early_leaf(ValueId v) const {
    const NodeId n = g_.value(v).node;
    const bool is_row = has(v, m_.rows()), is_whole = m_.whole(v) >= 0;
    const std::string rows = is_row ? fmt::format(" + m * int64_t({})", stride(n, m_.rows())) : "";
    if (is_whole && holds_rows()) return fmt::format("to_pack(whole{}[{}][j])", n, is_row ? "i" : "0");
    if (is_whole)
      return fmt::format("to_pack(load_eight({}{} + {}, m < {}))", pointer(n), rows, column_place(tensor(n), 1, "k"),
                         is_row ? "kM" : "8 * kRows");
    return is_row ? fmt::format("m < kM ? load(*({}{})) : 0.0f", pointer(n), rows) : fmt::format("load(*({}))", pointer(n));
  }

  // ---- rows, an iteration ahead of their use
  /// Inputs of the loop that differ along the reduction.
  std::vector<NodeId> deep_leaves() const {
    std::vector<NodeId> deep;
    for (NodeId n : m_.loop_leaves()) if (is_deep(value(n))) deep.push_back(n);
    return deep;
  }
  /// Elements at a time in which an input that differs along the reduction can be read: its lines begin and end at multiples of them.
  int64_t row_unit(NodeId n) const {
    int64_t unit = std::gcd(int64_t{8}, std::gcd(m_.depth(), tensor(n).offset));
    for (IndexId i : {m_.rows(), m_.batch()}) unit = has(value(n), i) ? std::gcd(unit, stride(n, i)) : unit;
    return unit;
  }
  /// The input whose rows are those of the reduction's second part.
  NodeId second_rows() const {
    for (NodeId n : g_.inputs()) if (has(value(n), m_.second()) && !is_weight(n)) return n;
    return -1;
  }
  void fetch_either(NodeId n) {
    const NodeId other = second_rows();
    line("const bool second = chunk >= kFirst;");
    line("const int k = (second ? chunk - kFirst : chunk) * kChunk + u * 32 + lane % 4 * 8;");
    line("const auto* const from = second ? {} : {};", pointer(other), pointer(n));
    if (!has(value(n), m_.rows())) line("next{}[u] = load_eight(from + k, chunk < kChunks);", n);
    else
      line(
          "for (int r = 0; r < kRows; r++) next{}[u][r] = load_eight(from + (r * 8 + row) * (second ? int64_t({}) : int64_t({})) + k, r * "
          "8 + row < kM && chunk < kChunks);",
          n, stride(other, m_.rows()), stride(n, m_.rows()));
  }
  void fetch_row(NodeId n) {
    const bool rows = has(value(n), m_.rows());
    if (const int64_t unit = row_unit(n); unit < 8) {
      line("{}next{}[u]{} = load_eight<{}>({}{} + k, {}kDepth - k{});", rows ? "for (int r = 0; r < kRows; r++) " : "", n,
           rows ? "[r]" : "", unit, pointer(n), rows ? fmt::format(" + (r * 8 + row) * int64_t({})", stride(n, m_.rows())) : "",
           rows ? "r * 8 + row < kM ? " : "", rows ? " : 0" : "");
      return;
    }
    // in rings the condition stays: without it rms_norm_linear took 15.45 instead of 14.55 us, and others 0.2 more
    const bool whole = !is_ring() && !has_short_chunk();
    const char* load = is_ring() ? "load_eight" : "load_eight_now";
    if (rows)
      line("for (int r = 0; r < kRows; r++) next{}[u][r] = {}({} + (r * 8 + row) * int64_t({}) + {}, r * 8 + row < kM{});", n, load,
           pointer(n), stride(n, m_.rows()), column_place(tensor(n), 1, "k"), whole ? "" : " && k < kDepth");
    else line("next{}[u] = {}({} + k, {});", n, load, pointer(n), whole ? "true" : "k < kDepth");
  }
  void small_operands() {
    if (prepared()) { hold_vectors(); return; }
    const std::vector<NodeId> deep = deep_leaves();
    for (NodeId n : deep)
      line("Vector<{0}, 8> x{1}[kUnits]{2}, next{1}[kUnits]{2};", cuda_type(tensor(n).dtype), n,
           has(value(n), m_.rows()) ? "[kRows]" : "");
    open("const auto fetch_small = [&](int chunk) {{");
    line("#pragma unroll");
    open("for (int u = 0; u < kUnits; u++) {{");
    if (m_.second() >= 0) {   // both parts have one tensor of rows
      fetch_either(deep[0]);
    } else {
      line("const int k = chunk * kChunk + u * 32 + lane % 4 * 8;");
      for (NodeId n : deep) fetch_row(n);
    }
    close();
    close("};");
    line("fetch_small({});", is_ring() ? "chunk_of(0)" : "chunk");
  }
  void take_small() {
    for (NodeId n : deep_leaves())
      line("for (int u = 0; u < kUnits; u++) {}x{}[u]{} = next{}[u]{};",
           has(value(n), m_.rows()) ? "for (int r = 0; r < kRows; r++) " : "", n, has(value(n), m_.rows()) ? "[r]" : "", n,
           has(value(n), m_.rows()) ? "[r]" : "");
  }

  // ---- the loop
  std::string sum_type() const { return columns() == 64 ? "StreamSum<kRows>" : fmt::format("StreamSum<kRows, {}>", tiles()); }
  void declare_sums() {
    for (size_t i = 0; i < m_.products().size(); i++) {
      if (m_.is_wide(product(i))) line("{} sum{};", sum_type(), i);
      else line("RankSum<kRows, {}> sum{};", padded(weight_of(i)), i);
      line("sum{}.clear();", i);
    }
    for (size_t i = 0; i < m_.statistics().size(); i++)
      line("float statistic{0}[kRows];\n  for (int r = 0; r < kRows; r++) statistic{0}[r] = {1}::identity();", i,
           reduce_type(*m_.statistics()[i]));
    for (size_t c = 0; c < lines().size(); c++) {
      line("LineScale<kRows> lines{};", c);
      line("lines{}.start();", c);
    }
  }
  void loop() {
    declare_sums();
    if (!is_ring()) {
      take_small();
      scaled_operands();
      for (int s = 0; s < steps(); s++) units(s);
      return;
    }
    if (!small_first()) small_operands();
    first_factors();
    line("#pragma unroll {}", unroll());
    open("for (int round = 0; round < kRounds; round++) {{");
    if (!prepared()) {
      line("const int chunk = chunk_of(round);");
      if (chunks() % workers()) line("if (chunk >= kChunks) break;");
      take_small();
      line("if (round + 1 < kRounds) fetch_small(chunk_of(round + 1));");
    }
    take_factors();
    scaled_operands();
    for (int s = 0; s < steps(); s++) step(s);
    close();
  }
  int unroll() const {
    if (rounds() <= 4) return static_cast<int>(rounds());
    int n = 2;   // places of the ring become constants; more would be fetched cold from device memory, once per launch
    while (n * steps() % slots() != 0 && n < 6) n++;
    return n;
  }
  void step(int s) {
    open("{{");
    line("const int step = round * kSteps + {}, place = step % kStages;", s);
    if (boxes_of(s) > 0) line("mbarrier_wait(ready + 8 * place, step / kStages & 1);");
    if (any_uneven()) line("copy_wait<kStages - 1>();\n  warp_barrier();");
    for (size_t i = 0; i < m_.weights().size(); i++) {
      const Stage& w = weight(i);
      if (is_instead(w) || step_of(w) != s) continue;
      if (is_uneven(w))
        line("const UnevenTile<{}, kChunk, {}> w{}{{smem + warp * kRing + place * kStage + {}, int(({}) & 7), {}}};", weight_type(w),
             is_deep_major(w), i, offset_in_slot(w), first_element(w), line_of(w) % 8);
      else
        line("const StreamTile<{}, {}, kChunk, {}{}> w{}{{smem + warp * kRing + place * kStage + {}}};", weight_type(w), padded(w),
             is_deep_major(w), m_.place(w.to).even_first ? ", true" : "", i, offset_in_slot(w));
    }
    units(s);
    line("warp_barrier();");
    line("fetch(step + kStages);");
    close();
  }

  // ---- operands in float16, each row times a power of two (Place::scaled): made for a whole chunk, once for all products that read them
  /// The values, each once. Prepared rows have their power from the start.
  std::vector<ValueId> lines() const {
    std::vector<ValueId> out;
    for (size_t i = 0; i < m_.products().size(); i++)
      if (const ValueId v = m_.small(product(i)); is_scaled(i) && !prepared() && std::find(out.begin(), out.end(), v) == out.end())
        out.push_back(v);
    return out;
  }
  size_t line_of_product(size_t i) const {
    const std::vector<ValueId> all = lines();
    return static_cast<size_t>(std::find(all.begin(), all.end(), m_.small(product(i))) - all.begin());
  }
  /// Whether the lane's eight elements of unit u exist, or how many of them do.
  void unit_exists() {
    if (m_.depth() % 8) line("const int left = kDepth - (chunk * kChunk + u * 32 + lane % 4 * 8);\n  (void)left;");
    else if (has_short_chunk()) line("const bool exists = chunk * kChunk + u * 32 + lane % 4 * 8 < kDepth;");
  }
  /// A Pack<8> of the loop with zeros where there is nothing.
  std::string existing(const std::string& pack) const {
    return m_.depth() % 8      ? fmt::format("first_of({}, left, 0.0f)", pack)
           : has_short_chunk() ? fmt::format("exists ? {} : Pack<8>{{}}", pack)
                               : pack;
  }
  void scaled_operands() {
    const std::vector<ValueId> all = lines();
    for (size_t c = 0; c < all.size(); c++) line("Small<f16> scaled{}[kUnits][kRows];", c);
    for (size_t c = 0; c < all.size(); c++) {
      open("{{");
      line("Pack<8> value[kUnits][kRows];");
      line("float most[kRows];");
      line("for (int r = 0; r < kRows; r++) most[r] = 0.0f;");
      line("#pragma unroll");
      open("for (int u = 0; u < kUnits; u++) {{");
      unit_exists();
      if (c == 0) statistics();
      std::string statements;
      const std::string e = loop_element(all[c], statements);
      line("for (int r = 0; r < kRows; r++) {{ {}value[u][r] = {}; most[r] = Max::combine(most[r], largest(value[u][r])); }}", statements,
           existing(e));
      close();
      open("if (lines{}.outgrown(most)) {{", c);
      line("float change[kRows];");
      line("lines{}.follow(most, change);", c);
      for (size_t i = 0; i < m_.products().size(); i++)
        if (is_scaled(i) && line_of_product(i) == c) line("scale_rows(sum{}, change);", i);
      close();
      line("#pragma unroll");
      line(
          "for (int u = 0; u < kUnits; u++) for (int r = 0; r < kRows; r++) scaled{0}[u][r] = small_operand<f16>(scaled(value[u][r], "
          "lines{0}.scale[r]));",
          c);
      close();
    }
  }
  void scale_back() {
    for (size_t c = 0; c < lines().size(); c++) line("float back{0}[kRows];\n  lines{0}.inverse(back{0});", c);
    if (prepared() && prepared()->scaled)
      line("float back0[kRows];\n  for (int r = 0; r < kRows; r++) back0[r] = backs[r * 8 + row];");
    for (size_t i = 0; i < m_.products().size(); i++)
      if (is_scaled(i)) line("scale_rows(sum{}, back{});", i, prepared() ? 0 : line_of_product(i));
  }
  void statistics() {
    for (size_t i = 0; i < m_.statistics().size(); i++) {
      const Stage& x = *m_.statistics()[i];
      std::string statements;
      const std::string e = loop_element(m_.reduced_by(x), statements), fn = reduce_type(x);
      line("for (int r = 0; r < kRows; r++) {{ {}{}statistic{}[r] = {}::combine(statistic{}[r], reduce_pack<{}>({})); }}", statements,
           has_short_chunk() && m_.depth() % 8 == 0 ? "if (exists) " : "", i, fn, i, fn,
           m_.depth() % 8 ? fmt::format("first_of({}, left, {}::identity())", e, fn) : e);
    }
  }

  // ---- products
  /// Products and statistics of step s of a chunk.
  void units(int s) {
    std::vector<size_t> all;
    for (size_t i = 0; i < m_.products().size(); i++) if (step_of(weight_of(i)) == s) all.push_back(i);
    for (size_t i : all) if (scales_groups(product(i))) line("{} small{}[kUnits][kRows];", small_type(i), i);
    line("#pragma unroll");
    open("for (int u = 0; u < kUnits; u++) {{");
    unit_exists();
    if (s == 0 && lines().empty()) statistics();
    for (size_t i : all) {
      small_operand(i);
      if (!scales_groups(product(i))) add_unit(i);   // otherwise behind the units
    }
    close();
    for (size_t i : all) if (scales_groups(product(i))) group_sums(i);
  }
  std::string small_type(size_t i) const { return is_tf32(i) ? "SmallTf32" : fmt::format("Small<{}>", weight_type(weight_of(i))); }
  /// The rows of unit u as product i takes them.
  void small_operand(size_t i) {
    const Stage& w = weight_of(i);
    if (!scales_groups(product(i))) line("{} small{}[kRows];", small_type(i), i);
    const std::string small = fmt::format("small{}{}", i, scales_groups(product(i)) ? "[u]" : "");
    const char* turn = is_deep_major(w) || !is_ring() ? "" : "rotated";
    const ValueId v = m_.small(product(i));
    const NodeId n = m_.stored(v);
    if (prepared()) {
      line(
          "for (int r = 0; r < kRows; r++) {}[r] = {}({}::take(smem + {} + (r * 8 + row) * {}, ({} * kWarps + warp) * kChunk + u * "
          "32 + lane % 4 * 8));",
          small, turn, prepared_type(), prepared_at(), prepared()->pitch, is_rotated() ? "chunk_of(round) / kWorkers" : "round");
    } else if (is_scaled(i)) {
      line("for (int r = 0; r < kRows; r++) {}[r] = {}(scaled{}[u][r]);", small, turn, line_of_product(i));
    } else if (!is_tf32(i) && n >= 0 && tensor(n).dtype == tensor(w).dtype) {
      line("for (int r = 0; r < kRows; r++) {}[r] = {}(small_operand<{}>(x{}[u]{}));", small, turn, weight_type(w), n,
           has(value(n), m_.rows()) ? "[r]" : "");
    } else {
      std::string statements;
      const std::string e = loop_element(v, statements);
      line("for (int r = 0; r < kRows; r++) {{ {}{}[r] = {}({}({})); }}", statements, small, turn,
           is_tf32(i) ? "small_operand" : fmt::format("small_operand<{}>", weight_type(w)), existing(e));
    }
  }
  /// Unit u of product i.
  void add_unit(size_t i) {
    const bool made = m_.made_weight(product(i)) >= 0;
    if (made) {
      open("{{");
      if (!factors(true).empty()) line("const int group = u * 32 / kGroup;   // of the chunk\n  (void)group;");
    }
    const std::string tile = made_tile(i, "i");
    line("sum{}.{}({}, u, small{});", i, is_uneven(weight_of(i)) && row_tiles() > 4 && !is_tf32(i) ? "add_by_steps" : "add", tile, i);
    if (made) close();
  }
  /// All units of a chunk of a product whose groups are scaled: a tile of columns at a time, so that few registers hold sums of a group.
  void group_sums(size_t i) {
    line("#pragma unroll");
    open("for (int i = 0; i < {}; i++) {{", tiles());
    line("GroupSum<kRows> part;");
    line("#pragma unroll");
    open("for (int u = 0; u < kUnits; u++) {{");
    line("const int group = u * 32 / kGroup;   // of the chunk\n  (void)group;");
    const std::string tile = made_tile(i, "j");
    line("if (u * 32 % kGroup == 0) part.clear();");
    line("part.add({}, i, u, small{}[u]);", tile, i);
    std::string statements;
    std::map<ValueId, std::string> known;
    const std::string e = factor_element(m_.scaled_groups(product(i)), "1.0f", "pair(i)", statements, known);
    line("if ((u + 1) * 32 % kGroup == 0 || u + 1 == kUnits) {{ {}part.add_to(sum{}, i, {}); }}", statements, i, e);
    close();
    close();
  }

  // ---- behind the loop: warps and blocks meet
  void sums() {
    scale_back();
    for (size_t i = 0; i < m_.second_factors().size(); i++) if (in_lines(gained(i)) && is_ring()) line("factor{}.turn();", i);
    for (size_t i = 0; i < m_.totals().size(); i++) {
      declare_total(i, sum_type());
      for (const MatrixStages::Term& t : m_.terms(value(*m_.totals()[i])))
        if (t.is_behind)
          line("factor{}.multiply(total{}, sum{}, {}, {});", t.number, i, number(gained(at(t.number)).sum), CudaText().constant(t.factor),
               gain(at(t.number)));
    }
    line("Pack<4>* const items = (Pack<4>*)smem;   // each warp's in its own ring, which is finished");
    for (size_t i = 0; i < m_.totals().size(); i++) line("put_items(items + warp * (kRing / 16) + {} * kItems, total{});", i, i);
    if (!m_.statistics().empty())
      line("float* const statistics = (float*)(smem + kStatistics);   // [statistic][block of the cluster, warp][row]");
    if (d_.cluster > 1) line("cluster_wait();   // the other blocks run, and their barriers are set up");
    for (size_t i = 0; i < m_.statistics().size(); i++) fold_statistic(i);
    line("barrier();");
  }
  void fold_statistic(size_t i) {
    open("for (int r = 0; r < kRows; r++) {{");
    line("const float x = lanes_reduce<{}, 4>(statistic{}[r]);", reduce_type(*m_.statistics()[i]), i);
    line("float* const to = statistics + (({} * kCluster + rank) * kWarps + warp) * (8 * kRows) + r * 8 + row;", i);
    if (m_.fold_of(*m_.statistics()[i])->way == WayId::kStAsync)
      line("for (int b = lane % 4; b < kCluster; b += 4) store_async(remote_address(shared_address(to), b), x, remote_address(met, b));");
    else line("if (lane % 4 == 0) *to = x;");
    close();
  }
  /// Blocks of a cluster send each other their warps' sums.
  void exchange() {
    const auto met = std::find_if(d_.barriers.begin(), d_.barriers.end(), [](const Barriers& b) { return b.name == "met"; });
    line("if (thread_id() == 0) mbarrier_expect(met, {});", met->bytes);
    line("const uint32_t received = shared_address(smem) + kReceived;   // [sum][from][share]");
    open("for (int i = thread_id(); i < {} * kItems; i += kThreads) {{", m_.totals().size());
    line("const int sum = i / kItems, item = i % kItems, owner = item / kShare;");
    line("const Pack<4> x = add_items<kWarps>(items + sum * kItems + item, kRing / 16);");
    line(
        "store_async(remote_address(received + ((sum * kCluster + rank) * kShare + item % kShare) * 16, owner), x, remote_address(met, "
        "owner));");
    close();
    line("mbarrier_wait_cluster(met, 0);");
  }

  // ---- leaves of expressions
  std::string loop_leaf(ValueId v) const override {
    if (preparing_) return prepared_leaf(v);
    if (!g_.def_form<Input>(v)) return fmt::format("row{}[r]", v);   // reduced before the loop
    const NodeId n = g_.value(v).node;
    const char* r = has(v, m_.rows()) ? "[r]" : "";
    return is_deep(v) ? fmt::format("to_pack(x{}[u]{})", n, r) : fmt::format("l{}{}", n, r);
  }
  std::string prepared_leaf(ValueId v) const {
    if (const int i = maker(m_, m_.early(), v); i >= 0) return fmt::format("early{}", i);
    const NodeId n = g_.value(v).node;
    const bool rows = has(v, m_.rows());
    if (is_deep(v)) return rows ? fmt::format("to_pack(whole{}[i][j])", held_input(n)) : fmt::format("to_pack(x{}[j])", n);
    return rows ? fmt::format("load(*({} + m * int64_t({})))", pointer(n), stride(n, m_.rows())) : fmt::format("l{}", n);
  }

  // ---- the tail: everything elementwise, once per item
  std::string sum_item(size_t i) const override {
    if (d_.cluster > 1)
      return fmt::format("add_items<kCluster>((const Pack<4>*)(smem + kReceived) + {} * kCluster * kShare + share, kShare)", i);
    return fmt::format("add_items<kWarps>(items + {} * kItems + item, kRing / 16)", i);
  }
  std::string statistic_parts() const override { return "kCluster * kWarps"; }
  void tail() {
    line("#pragma unroll");
    open("for (int t = 0; t < kTail; t++) {{");
    line("const int share = thread_id() + t * kThreads, item = rank * kShare + share, m = {}(item), c = column + {}(item);", item_row(),
         item_column());
    if (share() % d_.threads) line("if (share >= kShare) break;");
    tail_results();
    close();
  }

  const int ring_;                    // the section where copies bring weights; -1: they come straight to registers
  const StreamNeighbours next_to_;
  bool preparing_ = false;
};

}  // namespace
}  // namespace mirage::schedule

namespace mirage {

KernelText emit_stream_kernel(const KernelPlan& kernel, const Plan& plan, const Target&) {
  const schedule::KernelProgram program = schedule::stored_program(kernel);
  const schedule::Derived d = derive(program);
  schedule::StreamEmitter emitter(program, d,
                                  {plan.pdl, plan.pdl || kernel.early, plan.pdl ? reads_early(kernel, plan) : weights_early(kernel, plan)});
  const std::span<const KernelCall> calls = bound_calls(kernel);
  KernelText k;
  k.name = kernel.name;
  std::string params;
  const auto add = [&](const std::string& text) { params += (params.empty() ? "" : ", ") + text; };
  const auto of_call = [&](size_t c, bool differs) { return differs ? fmt::format("_{}", c) : ""; };
  const bool several = calls.size() > 1;
  for (size_t i : emitter.copied())
    for (size_t c = 0; c < calls.size(); c++) {
      k.maps.push_back(emitter.map_of(i, c));
      k.maps.back().buffer = calls[c].operands[emitter.param_of(i)].buffer;
      add(fmt::format("const __grid_constant__ mo::TensorMap map{}{}", i, of_call(c, several)));
    }
  for (int i : emitter.pointer_params()) {
    const bool differs = emitter.differs(emitter.input_of(i));
    for (size_t c = 0; c < (differs ? calls.size() : 1); c++) {
      k.args.push_back(calls[c].operands[static_cast<size_t>(i)].buffer);
      k.written.push_back(false);
      add(fmt::format("const void* __restrict__ in{}{}", i, of_call(c, differs)));
    }
  }
  for (size_t i = 0; i < program.results.size(); i++)
    for (size_t c = 0; c < calls.size(); c++) {
      k.args.push_back(calls[c].results[i].buffer);
      k.written.push_back(true);
      add(fmt::format("void* __restrict__ out{}{}", i, of_call(c, several)));
    }
  const int64_t batch = emitter.batch();
  k.grid = {d.blocks / batch, batch, 1};
  k.threads = d.threads;
  k.smem_bytes = d.smem_bytes;
  k.source = fmt::format("// {}\n__global__ void {}__launch_bounds__({}, {}) {}({}) {{\n  using namespace mo;\n{}}}\n", kernel.why,
                         d.cluster > 1 ? fmt::format("__cluster_dims__({}, 1, 1) ", d.cluster) : "", k.threads, program.per_sm,
                         kernel.name, params, emitter.body());
  return k;
}

}  // namespace mirage

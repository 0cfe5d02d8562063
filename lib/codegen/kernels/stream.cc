// Emits a stream kernel from its StreamPlan (plan/stream.h): copies and fragments are calls of the device library (runtime/41_stream.cuh),
// everything elementwise is text from the block graph.
#include <algorithm>
#include <map>
#include <set>

#include "codegen/kernels/stream_text.h"
#include "mirage/codegen/module.h"
#include "mirage/plan/hints.h"
#include "mirage/plan/stream.h"
#include "mirage/support/round.h"

namespace mirage {
namespace {

class StreamEmitter : public StreamText {
 public:
  /// releases: lets the next kernel start as it begins; waits: it is started so itself; early: weights may be read before what is ahead on
  /// the stream has finished.
  StreamEmitter(const StreamPlan& p, bool releases, bool waits, bool early)
      : StreamText(p), p_(p), releases_(releases), waits_(waits), early_(early) {}

  std::string body() {
    constants();
    if (p_.registers) register_prologue();
    else prologue();
    early_loads();
    if (!p_.early.empty()) early_statistics();
    loop();
    sums();
    if (p_.cluster > 1) exchange();
    tail();
    return std::move(out_);
  }

 private:
  bool ragged_depth() const { return p_.depth % p_.chunk != 0; }

  // ---- constants and prologue
  void constants() {
    const int64_t chunks = (p_.depth + p_.chunk - 1) / p_.chunk, workers = p_.warps * p_.cluster;
    line(
        "constexpr int kThreads = {}, kWarps = {}, kStages = {}, kChunk = {}, kCluster = {}, kWorkers = {}, kSteps = {}, kChunks = {}, "
        "kRounds = {};",
        p_.warps * 32, p_.warps, p_.stages, p_.chunk, p_.cluster, workers, p_.steps, chunks, (chunks + workers - 1) / workers);
    if (!p_.beside.empty()) choose_call();
    line("constexpr int kM = {}, {}kDepth = {}, kRows = {}, kUnits = {}, kItems = {}, kShare = {}, kTail = {};   // kRows: groups of 8",
         p_.rows, p_.beside.empty() ? fmt::format("kN = {}, ", p_.cols) : "", p_.depth, p_.row_tiles, p_.chunk / 32, items(), share(),
         tail_rounds());
    if (p_.second) line("constexpr int kFirst = {};   // chunks of the reduction's first part", (p_.depth - p_.second) / p_.chunk);
    line("constexpr int kStage = {}, kRing = {}, kReceived = {}, kStatistics = {}, kBarriers = {};", p_.stage_bytes, p_.ring_bytes,
         p_.received_at, p_.statistics_at, p_.barriers_at);
    // a name of its own: block kernels of one library ask for another alignment
    line("extern __shared__ __align__(1024) unsigned char stream_smem[];");
    line("unsigned char* const smem = stream_smem;");
    line("const int lane = lane_id(), warp = warp_id(), row = lane / 4, rank = {}, column = {} * {}, worker = rank * kWarps + warp;",
         p_.cluster > 1 ? "cluster_rank()" : "0", p_.beside.empty() ? "block_id() / kCluster" : "(block_id() / kCluster - first)",
         p_.columns);
    if (!p_.registers)
      line(
          "const uint32_t ring = shared_address(smem) + warp * kRing, ready = shared_address(smem) + kBarriers + warp * kStages * 8, met = "
          "shared_address(smem) + kBarriers + kWarps * kStages * 8;");
  }
  // ---- calls beside each other: what differs is data
  /// `of(0)` for blocks of the first call, of(1) for those of the next, ...
  template <class F> std::string chosen(F of) const {
    std::string text;
    for (size_t i = p_.beside.size(); i > 0; i--) text += fmt::format("part == {} ? {} : ", i, of(i));
    return text + of(0);
  }
  const StreamShape& call(size_t i) const { return i == 0 ? static_cast<const StreamShape&>(p_) : p_.beside[i - 1]; }
  static int64_t row_stride_of(const StreamShape& s, NodeId n) {
    const auto* out = s.body.form<Output>(n);
    const Access& a = out ? s.results[at(out->result)] : s.operands[at(s.body.form<Input>(n)->param)];
    return stride_of(a, s.axes[at(out ? s.body.node(n).operands[0] : s.body.node(n).first_value)], Axis::kRow);
  }
  bool same_row_stride(NodeId n) const {
    return std::all_of(p_.beside.begin(), p_.beside.end(),
                       [&](const StreamShape& s) { return row_stride_of(s, n) == row_stride_of(p_, n); });
  }
  static int64_t group_stride_of(const StreamShape& s, NodeId n) {
    return stride_of(s.operands[at(s.body.form<Input>(n)->param)], s.axes[at(s.body.node(n).first_value)], Axis::kGroup);
  }
  bool same_group_stride(NodeId n) const {
    return std::all_of(p_.beside.begin(), p_.beside.end(),
                       [&](const StreamShape& s) { return group_stride_of(s, n) == group_stride_of(p_, n); });
  }
  std::string row_stride(NodeId n, int64_t stride) const override {
    return same_row_stride(n) ? std::to_string(stride) : fmt::format("rows{}", n);
  }
  // chosen with the pointer
  int64_t offset(NodeId n, int64_t elements) const override {
    return !p_.beside.empty() && (g_.form<Output>(n) || differs(n)) ? 0 : elements;
  }
  void choose_call() {
    std::vector<int64_t> first{0};
    for (size_t i = 0; i < p_.beside.size(); i++) first.push_back(first.back() + (call(i).cols + p_.columns - 1) / p_.columns);
    std::string part;
    for (size_t i = p_.beside.size(); i > 0; i--) part += fmt::format("block_id() >= {} ? {} : ", first[i] * p_.cluster, i);
    line("const int part = {}0, first = {}, kN = {};   // calls beside each other: which one this block is of", part,
         chosen([&](size_t i) { return std::to_string(first[i]); }), chosen([&](size_t i) { return std::to_string(call(i).cols); }));
    for (size_t w = 0; w < p_.weights.size(); w++)
      line("const TensorMap& map{} = {};", w, chosen([&](size_t i) { return fmt::format("map{}_{}", w, i); }));
    for (NodeId n : g_.inputs())
      if (differs(n)) {
        line("const void* const in{} = {};", param(n), chosen([&](size_t i) {
               const Access& a = call(i).operands[at(param(n))];
               return fmt::format("(const {}*)in{}_{} + {}", cuda_type(a.dtype), param(n), i, a.offset);
             }));
        if (has(value(n), Axis::kRow) && !same_row_stride(n))
          line("const int64_t rows{} = {};", n, chosen([&](size_t i) { return std::to_string(row_stride_of(call(i), n)); }));
        if (has(value(n), Axis::kGroup) && !same_group_stride(n))
          line("const int64_t groups{} = {};", n, chosen([&](size_t i) { return std::to_string(group_stride_of(call(i), n)); }));
      }
    for (NodeId n : g_.outputs()) {
      const int r = g_.form<Output>(n)->result;
      line("void* const out{} = {};", r, chosen([&](size_t i) {
             const Access& a = call(i).results[at(r)];
             return fmt::format("({}*)out{}_{} + {}", cuda_type(a), r, i, a.offset);
           }));
      if (!same_row_stride(n))
        line("const int64_t rows{} = {};", n, chosen([&](size_t i) { return std::to_string(row_stride_of(call(i), n)); }));
    }
  }

 public:
  /// Whether input n, read through a pointer, lies elsewhere for each call.
  bool differs(NodeId n) const { return !p_.beside.empty() && !mapped(n) && has(value(n), Axis::kCol); }
  NodeId input_of(int param) const {
    for (NodeId n : g_.inputs()) if (this->param(n) == param) return n;
    return -1;
  }

 private:
  int64_t items() const { return p_.row_tiles * p_.columns * 2; }
  std::string item_row() const { return p_.columns == 64 ? "item_row" : fmt::format("item_row<{}>", tiles()); }
  std::string item_column() const {
    return p_.columns == 64 && column_step() == 8 ? "item_column" : fmt::format("item_column<{}, {}>", tiles(), column_step());
  }
  int64_t share() const { return items() / p_.cluster; }
  int64_t tail_rounds() const { return (share() + p_.warps * 32 - 1) / (p_.warps * 32); }

  void prologue() {
    if (releases_) line("release_next();");
    if (waits_ && !early_) line("await_previous();");
    open("if (lane == 0) {{");
    line("for (int s = 0; s < kStages; s++) mbarrier_init(ready + 8 * s, 1);");
    if (p_.cluster > 1) line("if (warp == 0) mbarrier_init(met, 1);");
    line("mbarrier_publish();");
    close();
    line("warp_barrier();");
    if (p_.evict_first && !uneven()) line("const uint64_t policy = evict_first_policy();");
    if (p_.staggered)
      line(
          "const auto chunk_of = [&](int round) {{ return (round + block_id() / kCluster) % kRounds * kWorkers + worker; }};   // blocks "
          "start at different places");
    else line("const auto chunk_of = [&](int round) {{ return round * kWorkers + worker; }};");
    open("const auto fetch = [&](int step) {{   // one step of this warp's ring");
    line("const int chunk = chunk_of(step / kSteps), place = step % kStages;");
    if (p_.second) line("const bool second = chunk >= kFirst;\n  const int from = (second ? chunk - kFirst : chunk) * kChunk;");
    const std::string none = p_.staggered ? "step >= kRounds * kSteps" : "chunk >= kChunks";
    if (uneven()) open("if (!({})) {{", none);
    else line("if (lane != 0 || {}) return;", none);
    if (std::any_of(p_.weights.begin(), p_.weights.end(), [](const StreamWeight& w) { return !w.uneven; }))
      line("const uint32_t to = ring + place * kStage, bar = ready + 8 * place;");
    for (int s = 0; s < p_.steps; s++) {
      if (p_.steps > 1) open("{}if (step % kSteps == {}) {{", s ? "else " : "", s);
      if (const int64_t bytes = boxes_of(s); bytes > 0) {
        if (uneven()) open("if (lane == 0) {{");
        line("mbarrier_expect(bar, {});", bytes);
        for (size_t i = 0; i < p_.weights.size(); i++)
          if (p_.weights[i].step == s && !p_.weights[i].uneven && p_.weights[i].instead_of < 0) copy(p_.weights[i], i);
        if (uneven()) close();
      }
      for (const StreamWeight& w : p_.weights) if (w.step == s && w.uneven) copy_lines(w);
      if (p_.steps > 1) close();
    }
    if (uneven()) {
      close();
      line("copy_commit();   // a group for every step, for those beyond the last as well");
    }
    close("};");
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
    if (p_.cluster > 1) line("cluster_arrive_relaxed();");
  }
  /// Whether weights are asked for while the kernel ahead still runs.
  bool weights_first() const { return waits_ && early_; }
  /// Whether rows are asked for before the weights, behind which they would wait for device memory: those that are reduced before the loop,
  /// those that operands are computed from (0.3 us; as they are stored: -0.1), and more than 16 of them, as long as nothing has to wait
  /// for the kernel ahead (docs/planning.md, "What is asked for first").
  bool small_first() const {
    if (p_.row_tiles > 2 && !p_.registers && !weights_first()) return true;
    return p_.hold_early || std::any_of(p_.contractions.begin(), p_.contractions.end(), [&](const StreamContraction& c) {
             return c.scaled || c.type == ContractType::kTF32 || stored_input(c.small) < 0;
           });
  }
  void copy(const StreamWeight& w, size_t i) {
    const bool wide = w.free == Axis::kCol;
    const char* policy = wide && p_.evict_first ? ", policy" : "";
    std::string map = fmt::format("map{}", i);
    for (size_t j = 0; j < p_.weights.size(); j++)
      if (p_.weights[j].instead_of == static_cast<int>(i)) map = fmt::format("second ? map{} : {}", j, map);
    const char* from = p_.second ? "from" : "chunk * kChunk";
    if (!w.depth_major)
      line("copy_box(to + {}, {}, {}, {}{}, bar{});", w.offset, map, wide ? "column" : "0", from, w.slice ? ", batch_id()" : "", policy);
    else
      for (int j = 0; j < p_.chunk / 64; j++)
        line("copy_box(to + {}, {}, {} + {}, {}{}, bar{});", w.offset + j * w.padded * 128, map, from, j * 64,
             !p_.even_first(i) ? (wide ? "column" : "0")
             : wide            ? "0, 0, column / 8"
                               : "0, 0, 0",
             w.slice ? ", batch_id()" : "", policy);
  }

  // ---- weights whose lines begin anywhere (runtime/45_stream_uneven.cuh): brought by all lanes, a group of copies a step
  bool uneven() const { return p_.uneven(); }
  /// Bytes that tensor copies bring in step s.
  int64_t boxes_of(int s) const {
    int64_t bytes = 0;
    for (const StreamWeight& w : p_.weights)
      if (w.step == s && !w.uneven && w.instead_of < 0) bytes += static_cast<int64_t>(w.padded) * p_.chunk * 2;
    return bytes;
  }
  /// The element of its tensor at which this block's product of a batch begins.
  std::string first_element(const StreamWeight& w) const {
    return fmt::format("{}{}", access(w.input).offset, w.slice ? fmt::format(" + batch_id() * int64_t({})", w.slice) : "");
  }
  void copy_lines(const StreamWeight& w) {
    const std::string tensor = fmt::format("(const {}*)in{}", weight_type(w), param(w.input)), to = "smem + warp * kRing + place * kStage";
    if (!w.depth_major)
      line("fetch_uneven<kChunk>({} + {}, {}, {} + chunk * (kChunk * int64_t({})) + column, {}, kDepth - chunk * kChunk, kN - column);", to,
           w.offset, tensor, first_element(w), w.line, w.line);
    else
      for (int j = 0; j < p_.chunk / 64; j++)
        line(
            "fetch_uneven<64>({} + {}, {}, {} + column * int64_t({}) + chunk * kChunk + {}, {}, kN - column, kDepth - chunk * kChunk - "
            "{});",
            to, w.offset + j * 64 * kUnevenLine, tensor, first_element(w), w.line, j * 64, w.line, j * 64);
  }

  // ---- what weights, or their products by group, are scaled by in the loop (runtime/43_stream_lines.cuh)
  std::vector<NodeId> factors(bool by_group) const {
    std::vector<NodeId> out;
    for (NodeId n : stream_factors(p_))
      if (differs_by_group(p_, n) == by_group) out.push_back(n);
    return out;
  }
  bool scales_groups() const {
    return !factors(true).empty() ||
           std::any_of(p_.contractions.begin(), p_.contractions.end(), [](const StreamContraction& c) { return c.factored >= 0; });
  }
  std::string factor_type(NodeId n) const { return fmt::format("ColumnFactors<{}, {}>", cuda_type(access(n).dtype), tiles()); }
  std::string fetched_factor(NodeId n, const std::string& to, const std::string& group, const std::string& exists) const {
    const int64_t columns = stride(n, Axis::kCol), groups = stride(n, Axis::kGroup);
    std::string from = pointer(n);
    if (columns) from += fmt::format(" + column * int64_t({})", columns);
    if (differs_by_group(p_, n))
      from += fmt::format(" + {} * int64_t({})", group, same_group_stride(n) ? std::to_string(groups) : fmt::format("groups{}", n));
    const std::string left = columns ? "kN - column" : fmt::format("{}", p_.columns);
    return fmt::format("{}.fetch({}, {}, {}{}{});", to, from, columns, exists, left, exists.empty() ? "" : " : 0");
  }
  /// Those that are the same for all groups, and the first chunk's.
  void first_factors() {
    for (NodeId n : factors(false)) {
      line("{} f{};", factor_type(n), n);
      line("{}", fetched_factor(n, fmt::format("f{}", n), "", ""));
    }
    if (scales_groups()) line("constexpr int kGroup = {};   // elements of the reduction in a group", p_.group);
    if (factors(true).empty()) return;
    line("constexpr int kGroups = {};   // in a chunk, or of which it is a part", groups_of_chunk(p_));
    for (NodeId n : factors(true)) line("{0} f{1}[kGroups], next_f{1}[kGroups];", factor_type(n), n);
    open("const auto fetch_factors = [&](int chunk) {{");
    line("#pragma unroll");
    open("for (int i = 0; i < kGroups; i++) {{");
    line("const int group = chunk * kChunk / kGroup + i;");
    for (NodeId n : factors(true))
      line("{}", fetched_factor(n, fmt::format("next_f{}[i]", n), "group", fmt::format("group < {} ? ", p_.depth / p_.group)));
    close();
    close("};");
    line("fetch_factors(chunk_of(0));");
  }
  void take_factors() {
    if (factors(true).empty()) return;
    for (NodeId n : factors(true)) line("for (int i = 0; i < kGroups; i++) f{0}[i] = next_f{0}[i];", n);
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
      const NodeId n = g_.value(v).node;
      if (has(v, Axis::kDepth)) return leaf;
      text = fmt::format("f{}{}.{}", n, differs_by_group(p_, n) ? "[group]" : "", place);
    } else {
      text = map(v, [&](ValueId o) { return factor_element(o, leaf, place, statements, known); });
    }
    statements += fmt::format("const auto v{} = {}; ", v, text);
    return known[v] = fmt::format("v{}", v);
  }
  /// The weight's fragments as the products of contraction i take them: as they are stored, or as the loop computes them. column: the name
  /// of a tile of columns.
  std::string made_tile(size_t i, const char* column) {
    const StreamContraction& c = p_.contractions[i];
    const std::string tile = fmt::format("w{}", c.weight);
    if (c.made < 0) return tile;
    std::string statements;
    std::map<ValueId, std::string> known;
    const std::string e = factor_element(c.made, "x", fmt::format("one({}, h)", column).c_str(), statements, known);
    line("const auto made{0} = made_tile({1}, [&](const Pack<2>& x, int {2}, int h) {{ (void){2}, (void)h; {3}return {4}; }});", i, tile,
         column, statements, e);
    return fmt::format("made{}", i);
  }
  /// Unit u of a product whose weight is computed.
  void made_unit(size_t i) {
    const StreamContraction& c = p_.contractions[i];
    const StreamWeight& w = p_.weights[at(c.weight)];
    if (!factors(true).empty()) line("const int group = u * 32 / kGroup;   // of the chunk\n  (void)group;");
    const std::string tile = made_tile(i, "i");
    const char* add = w.uneven && p_.row_tiles > 4 && c.type != ContractType::kTF32 ? "add_by_steps" : "add";
    line("sum{}.{}({}, u, small{});", i, add, tile, i);
  }
  /// All units of a chunk of a product whose groups are scaled: a tile of columns at a time, so that few registers hold sums of a group.
  void group_sums(size_t i) {
    const StreamContraction& c = p_.contractions[i];
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
    const std::string e = factor_element(c.factored, "1.0f", "pair(i)", statements, known);
    line("if ((u + 1) * 32 % kGroup == 0 || u + 1 == kUnits) {{ {}part.add_to(sum{}, i, {}); }}", statements, i, e);
    close();
    close();
  }

  // ---- weights straight to registers (runtime/42_stream_registers.cuh): everything is asked for at once
  int tiles() const { return p_.columns / 16; }
  int column_step() const override { return p_.registers && !p_.weights[0].depth_major ? 1 : 8; }
  bool mapped(NodeId n) const override {
    return !p_.registers &&
           std::any_of(p_.weights.begin(), p_.weights.end(), [&](const StreamWeight& w) { return w.input == n && !w.uneven; });
  }
  std::string sum_type() const { return p_.columns == 64 ? "StreamSum<kRows>" : fmt::format("StreamSum<kRows, {}>", tiles()); }
  void register_prologue() {
    if (releases_) line("release_next();");
    if (waits_ && !early_) line("await_previous();");
    line("const int chunk = worker;");
    for (size_t i = 0; i < p_.weights.size(); i++) {
      const StreamWeight& w = p_.weights[i];
      const bool wide = w.free == Axis::kCol;
      line("{}<{}, {}, kUnits, {}> w{};", wide ? "RegisterTile" : "RegisterRank", weight_type(w), wide ? p_.columns : w.padded,
           w.depth_major, i);
      line("w{}.fetch<{}>({}{} + chunk * kChunk{}, {}, kDepth - chunk * kChunk, {});", i,
           !ragged_depth() && (wide ? p_.cols % p_.columns == 0 : w.extent == w.padded), pointer(w.input),
           !wide           ? ""
           : w.depth_major ? fmt::format(" + column * int64_t({})", w.line)
                           : " + column",
           w.depth_major ? "" : fmt::format(" * int64_t({})", w.line), w.line, wide ? "kN - column" : std::to_string(w.extent));
    }
    if (waits_ && early_) line("await_previous();   // weights are under way; everything else may come from the kernel ahead");
    small_operands();
  }

  // ---- what is needed behind the loop, and what does not change in it
  void early_loads() {
    for (size_t i = 0; i < p_.products.size(); i++) {
      const StreamProduct& q = p_.products[i];
      const StreamWeight& w = p_.weights[at(p_.contractions[at(q.contraction)].weight)];
      const Access& a = access(q.input);
      if (p_.registers) line("RegisterFactor<{}, {}, {}, {}> factor{};", cuda_type(a.dtype), w.padded, tiles(), column_step(), i);
      else line("RankFactor<{}, {}> factor{};", cuda_type(a.dtype), w.padded, i);
      if (in_lines(q))
        line("factor{}.fetch_lines{}({} + column, {}, {}, kN - column);", i,
             !p_.registers                                       ? ""
             : w.extent == w.padded && p_.cols % p_.columns == 0 ? "<true>"
                                                                 : "<false>",
             pointer(q.input), q.rank_stride, w.extent);
      else
        line("factor{}.fetch({} + column * int64_t({}), {}, {}, {}, kN - column);", i, pointer(q.input), q.col_stride, q.rank_stride,
             q.col_stride, w.extent);
      declare_gain(i, fmt::format("RankGain<{}, 2, 1>", w.padded), w.extent);
    }
    for (NodeId n : loop_leaves()) {
      if (has(value(n), Axis::kDepth)) continue;
      if (!has(value(n), Axis::kRow)) { line("const float l{} = load(*({}));", n, pointer(n)); continue; }
      if (p_.prepared) continue;   // read by the warp that prepares the row
      line("float l{}[kRows];", n);
      line("for (int r = 0; r < kRows; r++) l{} [r] = r * 8 + row < kM ? load(({})[(r * 8 + row) * int64_t({})]) : 0.0f;", n, pointer(n),
           stride(n, Axis::kRow));
    }
    declare_tail_loads();
    if (const std::string text = tail_loads(); !text.empty())
      line(
          "for (int t = 0; t < kTail; t++) {{ const int item = rank * kShare + thread_id() + t * kThreads, m = {}(item), c = column + "
          "{}(item); (void)m, (void)c; {}}}",
          item_row(), item_column(), text);
  }
  bool in_lines(const StreamProduct& q) const {
    if (p_.registers)
      return column_step() == 1 && q.col_stride == 1 && q.rank_stride % (2 * tiles()) == 0 && access(q.input).offset % (2 * tiles()) == 0 &&
             p_.cols % (2 * tiles()) == 0;
    return q.col_stride == 1 && q.rank_stride % 2 == 0 && stride(q.input, Axis::kBatch) % 2 == 0 && access(q.input).offset % 2 == 0 &&
           p_.cols % 2 == 0;
  }

  // ---- reductions of whole rows, a warp per row, while the first weights are under way
  std::set<NodeId> whole_leaves() const {
    std::set<NodeId> all, out;
    for (const StreamStatistic& s : p_.early) leaves(s.of, all);
    for (NodeId n : all) if (has(value(n), Axis::kWhole)) out.insert(n);
    return out;
  }
  int64_t whole_extent(NodeId n) const {
    int64_t extent = 1;
    for (size_t d = 0; d < p_.axes[at(value(n))].size(); d++)
      if (p_.axes[at(value(n))][d] == Axis::kWhole) extent = access(n).dims[static_cast<int>(d)];
    return extent;
  }
  int64_t whole_extent(const StreamStatistic& s) const {
    std::set<NodeId> inputs;
    leaves(s.of, inputs);
    int64_t extent = 1;
    for (NodeId n : inputs) extent = std::max(extent, whole_extent(n));
    return extent;
  }
  static int64_t units_of(int64_t extent) { return (extent + 255) / 256; }   // of 32 lanes, eight elements each
  int64_t warp_rows() const { return (8 * p_.row_tiles + p_.warps - 1) / p_.warps; }

  void hold_rows() {
    if (!p_.hold_early) return;
    if (p_.prepared) prepared_places();
    for (NodeId n : whole_leaves()) {
      const bool rows = has(value(n), Axis::kRow);
      const int64_t extent = whole_extent(n), units = units_of(extent);
      line("Vector<{}, 8> whole{}[{}][{}];   // blocks begin at different places: all ask for the same lines of L2",
           cuda_type(access(n).dtype), n, rows ? warp_rows() : 1, units);
      line("#pragma unroll");
      open("for (int i = 0; i < {}; i++) {{", rows ? warp_rows() : 1);
      line("#pragma unroll");
      open("for (int j = 0; j < {}; j++) {{", units);
      line("const int m = warp + i * kWarps, k = {};", held_place(units));
      line("whole{}[i][j] = load_eight_now({}{} + {}, {}k < {});", n, pointer(n),
           rows ? fmt::format(" + m * int64_t({})", stride(n, Axis::kRow)) : "", column_place(access(n), 1, "k"), rows ? "m < kM && " : "",
           extent);
      close();
      close();
    }
  }
  /// Where a lane's unit j of a held row begins.
  std::string held_place(int64_t units) const {
    return p_.prepared ? "held_place(j)" : fmt::format("((j + block_id() / kCluster) % {} * 32 + lane) * 8", units);
  }

  // ---- rows that become the products' operand once (StreamPlan::prepared). A unit is 256 elements; this block's come first
  int64_t own_units() const { return p_.depth / 256 / p_.cluster; }
  void prepared_places() {
    line("constexpr int kOwn = {}, kRun = {};   // units of 256 elements of this block; of one round", own_units(),
         p_.warps * p_.chunk / 256);
    line("const auto own_unit = [&](int j) {{ return (j + block_id() / kCluster) % kOwn; }};");
    line(
        "const auto held_place = [&](int j) {{ const int t = own_unit(j % kOwn); return (((t / kRun * kCluster + (rank + j / kOwn) % "
        "kCluster) * kRun + t % kRun) * 32 + lane) * 8; }};");
  }
  /// Vectors along the reduction that the operand is computed from.
  std::vector<NodeId> prepared_vectors() const {
    std::vector<NodeId> out;
    for (NodeId n : deep_leaves()) if (!has(value(n), Axis::kRow)) out.push_back(n);
    return out;
  }
  void hold_vectors() {
    for (NodeId n : prepared_vectors()) line("Vector<{}, 8> x{}[kOwn];", cuda_type(access(n).dtype), n);
    if (prepared_vectors().empty()) return;
    line("#pragma unroll");
    open("for (int j = 0; j < kOwn; j++) {{");
    for (NodeId n : prepared_vectors()) line("x{0}[j] = load_eight_now({1} + held_place(j), true);", n, pointer(n));
    close();
  }
  bool prepared_tf32() const { return p_.contractions[0].type == ContractType::kTF32; }
  std::string prepared_type() const {
    return prepared_tf32() ? "PreparedTf32" : fmt::format("Prepared<{}>", weight_type(p_.weights[at(p_.contractions[0].weight)]));
  }
  /// The operand's row m, as soon as what it is reduced to is known.
  void prepare_row() {
    line("unsigned char* const line = smem + {} + m * {};", p_.prepared_at, p_.prepared_pitch);
    std::string statements;
    preparing_ = true;
    const std::string e = loop_element(p_.contractions[0].small, statements);
    preparing_ = false;
    const bool scaled = p_.contractions[0].scaled;
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
    const bool held = p_.hold_early;
    line("float* const early = (float*)(smem + {});   // [statistic][row]", p_.early_at);
    if (p_.prepared && p_.contractions[0].scaled)
      line("float* const backs = (float*)(smem + {});   // what brings sums of a row back",
           p_.prepared_at + 8 * p_.row_tiles * p_.prepared_pitch);
    if (held) {
      line("#pragma unroll");
      open("for (int i = 0; i < {}; i++) {{", warp_rows());
      line("const int m = warp + i * kWarps;");
      if (8 * p_.row_tiles % p_.warps) line("if (m >= 8 * kRows) break;");
    } else {
      open("for (int m = warp; m < 8 * kRows; m += kWarps) {{");
    }
    open("if (m >= kM) {{");
    line("if (lane < {}) early[lane * 8 * kRows + m] = 0.0f;", p_.early.size());
    if (p_.prepared && p_.contractions[0].scaled) line("if (lane == 0) backs[m] = 0.0f;");
    if (p_.prepared)
      line("for (int j = 0; j < kOwn; j++) {}::put(smem + {} + m * {}, j * 256 + lane * 8, Pack<8>{{}});", prepared_type(), p_.prepared_at,
           p_.prepared_pitch);
    line("continue;");
    close();
    std::map<ValueId, std::string> known;
    for (size_t i = 0; i < p_.early.size(); i++) {
      const StreamStatistic& s = p_.early[i];
      const int64_t extent = whole_extent(s);
      line("float early{} = {}::identity();", i, reduce_type(s.fn));
      if (held) {
        line("#pragma unroll");
        open("for (int j = 0; j < {}; j++) {{", units_of(extent));
        if (extent % 256) line("if ({} >= {}) continue;", held_place(units_of(extent)), extent);
      } else {
        line("#pragma unroll {}", std::min<int64_t>(16, units_of(extent)));   // what the next walk reads again stays in registers
        open("for (int k = lane * 8; k < {}; k += 256) {{", extent);
      }
      std::string statements;
      std::map<ValueId, std::string> inner = known;
      const std::string e = early_element(s.of, statements, inner, held);
      line("{}early{} = {}::combine(early{}, reduce_pack<{}>({}));", statements, i, reduce_type(s.fn), i, reduce_type(s.fn), e);
      close();
      line("early{0} = lanes_reduce<{1}, 32>(early{0});", i, reduce_type(s.fn));
      line("if (lane == 0) early[{} * kRows + m] = early{};", 8 * i, i);
      known[s.result] = fmt::format("early{}", i);
    }
    if (p_.prepared) prepare_row();
    close();
    line("barrier();");
    if (p_.prepared) return;
    for (size_t i = 0; i < p_.early.size(); i++) {
      line("float row{}[kRows];", p_.early[i].result);
      line("for (int r = 0; r < kRows; r++) row{}[r] = early[{} * kRows + r * 8 + row];", p_.early[i].result, 8 * i);
    }
  }
  std::string early_element(ValueId v, std::string& statements, std::map<ValueId, std::string>& known, bool held) const {
    if (auto it = known.find(v); it != known.end()) return it->second;
    if (g_.def_form<Transpose>(v)) return early_element(g_.def(v).operands[0], statements, known, held);
    if (const auto* c = g_.def_form<Const>(v)) return CudaText().constant(c->value);
    std::string text;
    if (g_.def_form<Input>(v)) {
      const NodeId n = g_.value(v).node;
      const std::string rows = has(v, Axis::kRow) ? fmt::format(" + m * int64_t({})", stride(n, Axis::kRow)) : "";
      if (has(v, Axis::kWhole) && held) text = fmt::format("to_pack(whole{}[{}][j])", n, has(v, Axis::kRow) ? "i" : "0");
      else if (has(v, Axis::kWhole))
        text = fmt::format("to_pack(load_eight({}{} + {}, m < {}))", pointer(n), rows, column_place(access(n), 1, "k"),
                           has(v, Axis::kRow) ? "kM" : "8 * kRows");
      else
        text = has(v, Axis::kRow) ? fmt::format("m < kM ? load(*({}{})) : 0.0f", pointer(n), rows) : fmt::format("load(*({}))", pointer(n));
    } else {
      text = map(v, [&](ValueId o) { return early_element(o, statements, known, held); });
    }
    statements += fmt::format("const auto v{} = {}; ", v, text);
    return known[v] = fmt::format("v{}", v);
  }

  // ---- the loop
  /// Inputs of the loop that differ along the reduction.
  std::vector<NodeId> deep_leaves() const {
    std::vector<NodeId> deep;
    for (NodeId n : loop_leaves()) if (has(value(n), Axis::kDepth)) deep.push_back(n);
    return deep;
  }
  void fetch_either(NodeId n) {
    const NodeId other = p_.second_input;
    line("const bool second = chunk >= kFirst;");
    line("const int k = (second ? chunk - kFirst : chunk) * kChunk + u * 32 + lane % 4 * 8;");
    line("const auto* const from = second ? {} : {};", pointer(other), pointer(n));
    const bool rows = has(value(n), Axis::kRow);
    if (!rows) line("next{}[u] = load_eight(from + k, chunk < kChunks);", n);
    else
      line(
          "for (int r = 0; r < kRows; r++) next{}[u][r] = load_eight(from + (r * 8 + row) * (second ? int64_t({}) : int64_t({})) + k, r * "
          "8 + row < kM && chunk < kChunks);",
          n, stride(other, Axis::kRow), stride(n, Axis::kRow));
  }
  void small_operands() {
    if (p_.prepared) { hold_vectors(); return; }
    const std::vector<NodeId> deep = deep_leaves();
    for (NodeId n : deep)
      line("Vector<{0}, 8> x{1}[kUnits]{2}, next{1}[kUnits]{2};", cuda_type(access(n).dtype), n,
           has(value(n), Axis::kRow) ? "[kRows]" : "");
    // in rings the condition stays: without it rms_norm_linear took 15.45 instead of 14.55 us, and others 0.2 more
    const bool whole = p_.registers && !ragged_depth();
    const char* load = p_.registers ? "load_eight_now" : "load_eight";
    open("const auto fetch_small = [&](int chunk) {{");
    line("#pragma unroll");
    open("for (int u = 0; u < kUnits; u++) {{");
    if (p_.second) {  // both parts have one tensor of rows
      fetch_either(deep[0]);
      close();
      close("};");
      line("fetch_small(chunk_of(0));");
      return;
    }
    line("const int k = chunk * kChunk + u * 32 + lane % 4 * 8;");
    for (NodeId n : deep) {
      if (const int64_t unit = stream_row_unit(p_, n); unit < 8) {
        const bool rows = has(value(n), Axis::kRow);
        line("{}next{}[u]{} = load_eight<{}>({}{} + k, {}kDepth - k{});", rows ? "for (int r = 0; r < kRows; r++) " : "", n,
             rows ? "[r]" : "", unit, pointer(n), rows ? fmt::format(" + (r * 8 + row) * int64_t({})", stride(n, Axis::kRow)) : "",
             rows ? "r * 8 + row < kM ? " : "", rows ? " : 0" : "");
        continue;
      }
      if (has(value(n), Axis::kRow))
        line("for (int r = 0; r < kRows; r++) next{}[u][r] = {}({} + (r * 8 + row) * int64_t({}) + {}, r * 8 + row < kM{});", n, load,
             pointer(n), stride(n, Axis::kRow), column_place(access(n), 1, "k"), whole ? "" : " && k < kDepth");
      else line("next{}[u] = {}({} + k, {});", n, load, pointer(n), whole ? "true" : "k < kDepth");
    }
    close();
    close("};");
    line("fetch_small({});", p_.registers ? "chunk" : "chunk_of(0)");
  }

  void loop() {
    for (size_t i = 0; i < p_.contractions.size(); i++) {
      const StreamWeight& w = p_.weights[at(p_.contractions[i].weight)];
      if (w.free == Axis::kCol) line("{} sum{};", sum_type(), i);
      else line("RankSum<kRows, {}> sum{};", w.padded, i);
      line("sum{}.clear();", i);
    }
    for (size_t i = 0; i < p_.statistics.size(); i++)
      line("float statistic{0}[kRows];\n  for (int r = 0; r < kRows; r++) statistic{0}[r] = {1}::identity();", i,
           reduce_type(p_.statistics[i].fn));
    for (size_t c = 0; c < lines().size(); c++) {
      line("LineScale<kRows> lines{};", c);
      line("lines{}.start();", c);
    }
    const std::vector<NodeId> deep = deep_leaves();
    const auto take_small = [&] {
      for (NodeId n : deep)
        line("for (int u = 0; u < kUnits; u++) {}x{}[u]{} = next{}[u]{};",
             has(value(n), Axis::kRow) ? "for (int r = 0; r < kRows; r++) " : "", n, has(value(n), Axis::kRow) ? "[r]" : "", n,
             has(value(n), Axis::kRow) ? "[r]" : "");
    };
    if (p_.registers) {
      take_small();
      scaled_operands();
      for (int s = 0; s < p_.steps; s++) units(s);
      return;
    }
    if (!small_first()) small_operands();
    first_factors();
    line("#pragma unroll {}", unroll());
    open("for (int round = 0; round < kRounds; round++) {{");
    if (!p_.prepared) line("const int chunk = chunk_of(round);");
    if (!p_.prepared && (p_.depth + p_.chunk - 1) / p_.chunk % (p_.warps * p_.cluster)) line("if (chunk >= kChunks) break;");
    if (!p_.prepared) take_small();
    if (!p_.prepared) line("if (round + 1 < kRounds) fetch_small(chunk_of(round + 1));");
    take_factors();
    scaled_operands();
    for (int s = 0; s < p_.steps; s++) step(s);
    close();
  }
  int64_t rounds() const { return ceil_div(ceil_div(p_.depth, p_.chunk), p_.warps * p_.cluster); }
  int unroll() const {
    if (rounds() <= 4) return static_cast<int>(rounds());
    int n = 2;   // places of the ring become constants; more would be fetched cold from device memory, once per launch
    while (n * p_.steps % p_.stages != 0 && n < 6) n++;
    return n;
  }
  void step(int s) {
    open("{{");
    line("const int step = round * kSteps + {}, place = step % kStages;", s);
    if (boxes_of(s) > 0) line("mbarrier_wait(ready + 8 * place, step / kStages & 1);");
    if (uneven()) line("copy_wait<kStages - 1>();\n  warp_barrier();");
    for (size_t i = 0; i < p_.weights.size(); i++) {
      const StreamWeight& w = p_.weights[i];
      if (w.instead_of >= 0) continue;
      if (w.step == s && w.uneven)
        line("const UnevenTile<{}, kChunk, {}> w{}{{smem + warp * kRing + place * kStage + {}, int(({}) & 7), {}}};", weight_type(w),
             w.depth_major, i, w.offset, first_element(w), w.line % 8);
      else if (w.step == s)
        line("const StreamTile<{}, {}, kChunk, {}{}> w{}{{smem + warp * kRing + place * kStage + {}}};", weight_type(w), w.padded,
             w.depth_major, p_.even_first(i) ? ", true" : "", i, w.offset);
    }
    units(s);
    line("warp_barrier();");
    line("fetch(step + kStages);");
    close();
  }
  // ---- computed operands in float16, each row times a power of two (StreamContraction::scaled): made for a whole chunk, once for all
  // products that read them
  /// The values, each once. Prepared rows have their power from the start.
  std::vector<ValueId> lines() const {
    std::vector<ValueId> out;
    for (const StreamContraction& c : p_.contractions)
      if (c.scaled && !p_.prepared && std::find(out.begin(), out.end(), c.small) == out.end()) out.push_back(c.small);
    return out;
  }
  size_t line_of(const StreamContraction& c) const {
    const std::vector<ValueId> all = lines();
    return static_cast<size_t>(std::find(all.begin(), all.end(), c.small) - all.begin());
  }
  /// Whether the lane's eight elements of unit u exist, or how many of them do.
  void unit_exists() {
    if (p_.depth % 8) line("const int left = kDepth - (chunk * kChunk + u * 32 + lane % 4 * 8);\n  (void)left;");
    else if (ragged_depth()) line("const bool exists = chunk * kChunk + u * 32 + lane % 4 * 8 < kDepth;");
  }
  /// A Pack<8> of the loop with zeros where there is nothing.
  std::string existing(const std::string& pack) const {
    return p_.depth % 8     ? fmt::format("first_of({}, left, 0.0f)", pack)
           : ragged_depth() ? fmt::format("exists ? {} : Pack<8>{{}}", pack)
                            : pack;
  }
  void scaled_operands() {
    const std::vector<ValueId> all = lines();
    if (all.empty()) return;
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
      for (size_t i = 0; i < p_.contractions.size(); i++)
        if (p_.contractions[i].scaled && line_of(p_.contractions[i]) == c) line("scale_rows(sum{}, change);", i);
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
    if (p_.prepared && p_.contractions[0].scaled)
      line("float back0[kRows];\n  for (int r = 0; r < kRows; r++) back0[r] = backs[r * 8 + row];");
    for (size_t i = 0; i < p_.contractions.size(); i++)
      if (p_.contractions[i].scaled) line("scale_rows(sum{}, back{});", i, p_.prepared ? 0 : line_of(p_.contractions[i]));
  }
  void statistics() {
    for (size_t i = 0; i < p_.statistics.size(); i++) {
      const StreamStatistic& x = p_.statistics[i];
      std::string statements;
      const std::string e = loop_element(x.of, statements);
      const std::string fn = reduce_type(x.fn);
      line("for (int r = 0; r < kRows; r++) {{ {}{}statistic{}[r] = {}::combine(statistic{}[r], reduce_pack<{}>({})); }}", statements,
           ragged_depth() && p_.depth % 8 == 0 ? "if (exists) " : "", i, fn, i, fn,
           p_.depth % 8 ? fmt::format("first_of({}, left, {}::identity())", e, fn) : e);
    }
  }
  /// Products and statistics of step s of a chunk.
  void units(int s) {
    for (size_t i = 0; i < p_.contractions.size(); i++)
      if (is_factored(i, s)) line("{} small{}[kUnits][kRows];", small_type(p_.contractions[i]), i);
    line("#pragma unroll");
    open("for (int u = 0; u < kUnits; u++) {{");
    unit_exists();
    if (s == 0 && lines().empty()) statistics();
    for (size_t i = 0; i < p_.contractions.size(); i++) {
      const StreamContraction& c = p_.contractions[i];
      const StreamWeight& w = p_.weights[at(c.weight)];
      if (w.step != s) continue;
      const NodeId stored = stored_input(c.small);
      const bool as_stored = !c.scaled && c.type != ContractType::kTF32 && stored >= 0 && access(stored).dtype == access(w.input).dtype;
      if (c.factored < 0) line("{} small{}[kRows];", small_type(c), i);
      const std::string small = fmt::format("small{}{}", i, c.factored < 0 ? "" : "[u]");
      const char* turn = w.depth_major || p_.registers ? "" : "rotated";
      if (p_.prepared) {
        line(
            "for (int r = 0; r < kRows; r++) {}[r] = {}({}::take(smem + {} + (r * 8 + row) * {}, ({} * kWarps + warp) * kChunk + u * "
            "32 + lane % 4 * 8));",
            small, turn, prepared_type(), p_.prepared_at, p_.prepared_pitch, p_.staggered ? "chunk_of(round) / kWorkers" : "round");
      } else if (c.scaled) {
        line("for (int r = 0; r < kRows; r++) {}[r] = {}(scaled{}[u][r]);", small, turn, line_of(c));
      } else if (!as_stored) {
        std::string statements;
        const std::string e = loop_element(c.small, statements);
        line("for (int r = 0; r < kRows; r++) {{ {}{}[r] = {}({}({})); }}", statements, small, turn,
             c.type == ContractType::kTF32 ? "small_operand" : fmt::format("small_operand<{}>", weight_type(w)), existing(e));
      } else {
        const NodeId n = stored_input(c.small);
        line("for (int r = 0; r < kRows; r++) {}[r] = {}(small_operand<{}>(x{}[u]{}));", small, turn, weight_type(w), n,
             has(value(n), Axis::kRow) ? "[r]" : "");
      }
      if (c.factored >= 0) continue;  // behind the units
      if (c.made >= 0) {
        open("{{");
        made_unit(i);
        close();
        continue;
      }
      line("sum{}.{}(w{}, u, small{});", i, w.uneven && p_.row_tiles > 4 && c.type != ContractType::kTF32 ? "add_by_steps" : "add",
           c.weight, i);
    }
    close();
    for (size_t i = 0; i < p_.contractions.size(); i++)
      if (is_factored(i, s)) group_sums(i);
  }

  bool is_factored(size_t i, int s) const {
    const StreamContraction& c = p_.contractions[i];
    return c.factored >= 0 && p_.weights[at(c.weight)].step == s;
  }
  std::string small_type(const StreamContraction& c) const {
    return c.type == ContractType::kTF32 ? "SmallTf32" : fmt::format("Small<{}>", weight_type(p_.weights[at(c.weight)]));
  }

  // ---- behind the loop: warps and blocks meet
  void sums() {
    scale_back();
    for (size_t i = 0; i < p_.products.size(); i++) if (in_lines(p_.products[i]) && !p_.registers) line("factor{}.turn();", i);
    for (size_t i = 0; i < p_.sums.size(); i++) {
      const StreamSum& s = p_.sums[i];
      const bool alias = s.contractions.size() == 1 && s.contractions[0].second == 1.0 && uses(s.contractions[0].first) == 1;
      if (alias) line("{}& total{} = sum{};", sum_type(), i, s.contractions[0].first);
      else {
        line("{} total{};", sum_type(), i);
        line("total{}.clear();", i);
        for (auto [c, f] : s.contractions) line("total{}.add_scaled(sum{}, {});", i, c, CudaText().constant(f));
      }
      for (auto [q, f] : s.products)
        line("factor{}.multiply(total{}, sum{}, {}, {});", q, i, p_.products[at(q)].contraction, CudaText().constant(f), gain(at(q)));
    }
    line("Pack<4>* const items = (Pack<4>*)smem;   // each warp's in its own ring, which is finished");
    for (size_t i = 0; i < p_.sums.size(); i++) line("put_items(items + warp * (kRing / 16) + {} * kItems, total{});", i, i);
    if (!p_.statistics.empty())
      line("float* const statistics = (float*)(smem + kStatistics);   // [statistic][block of the cluster, warp][row]");
    if (p_.cluster > 1) line("cluster_wait();   // the other blocks run, and their barriers are set up");
    for (size_t i = 0; i < p_.statistics.size(); i++) {
      open("for (int r = 0; r < kRows; r++) {{");
      line("const float x = lanes_reduce<{}, 4>(statistic{}[r]);", reduce_type(p_.statistics[i].fn), i);
      line("float* const to = statistics + (({} * kCluster + rank) * kWarps + warp) * (8 * kRows) + r * 8 + row;", i);
      if (p_.cluster > 1)
        line("for (int b = lane % 4; b < kCluster; b += 4) store_async(remote_address(shared_address(to), b), x, remote_address(met, b));");
      else line("if (lane % 4 == 0) *to = x;");
      close();
    }
    line("barrier();");
  }
  void exchange() {
    const int64_t rows = 8 * p_.row_tiles, n = static_cast<int64_t>(p_.statistics.size()), sums = static_cast<int64_t>(p_.sums.size());
    line("if (thread_id() == 0) mbarrier_expect(met, {});", sums * items() * 16 + n * p_.cluster * p_.warps * rows * 4);
    line("const uint32_t received = shared_address(smem) + kReceived;   // [sum][from][share]");
    open("for (int i = thread_id(); i < {} * kItems; i += kThreads) {{", sums);
    line("const int sum = i / kItems, item = i % kItems, owner = item / kShare;");
    line("const Pack<4> x = add_items<kWarps>(items + sum * kItems + item, kRing / 16);");
    line(
        "store_async(remote_address(received + ((sum * kCluster + rank) * kShare + item % kShare) * 16, owner), x, remote_address(met, "
        "owner));");
    close();
    line("mbarrier_wait_cluster(met, 0);");
  }

  // ---- the tail: everything elementwise, once per item

  // ---- the tail
  std::string loop_leaf(ValueId v) const override {
    if (preparing_) return prepared_leaf(v);
    if (!g_.def_form<Input>(v)) return fmt::format("row{}[r]", v);   // reduced before the loop
    const NodeId n = g_.value(v).node;
    const char* r = has(v, Axis::kRow) ? "[r]" : "";
    return has(v, Axis::kDepth) ? fmt::format("to_pack(x{}[u]{})", n, r) : fmt::format("l{}{}", n, r);
  }
  std::string prepared_leaf(ValueId v) const {
    for (size_t i = 0; i < p_.early.size(); i++) if (p_.early[i].result == v) return fmt::format("early{}", i);
    const NodeId n = g_.value(v).node;
    if (has(v, Axis::kDepth))
      return has(v, Axis::kRow) ? fmt::format("to_pack(whole{}[i][j])", held_input(p_, n, whole_leaves()))
                                : fmt::format("to_pack(x{}[j])", n);
    return has(v, Axis::kRow) ? fmt::format("load(*({} + m * int64_t({})))", pointer(n), stride(n, Axis::kRow)) : fmt::format("l{}", n);
  }
  std::string sum_item(size_t i) const override {
    if (p_.cluster > 1)
      return fmt::format("add_items<kCluster>((const Pack<4>*)(smem + kReceived) + {} * kCluster * kShare + share, kShare)", i);
    return fmt::format("add_items<kWarps>(items + {} * kItems + item, kRing / 16)", i);
  }
  std::string statistic_parts() const override { return "kCluster * kWarps"; }
  void tail() {
    line("#pragma unroll");
    open("for (int t = 0; t < kTail; t++) {{");
    line("const int share = thread_id() + t * kThreads, item = rank * kShare + share, m = {}(item), c = column + {}(item);", item_row(),
         item_column());
    if (share() % (p_.warps * 32)) line("if (share >= kShare) break;");
    tail_results();
    close();
  }

  const StreamPlan& p_;
  bool releases_, waits_, early_, preparing_ = false;
};

}  // namespace

KernelText emit_stream_kernel(const KernelPlan& kernel, const Plan& plan, const Target&) {
  const StreamPlan& p = *std::get<std::shared_ptr<const StreamPlan>>(kernel.body);
  StreamEmitter emitter(p, plan.pdl, plan.pdl || kernel.early, plan.pdl ? reads_early(kernel, plan) : weights_early(kernel, plan));
  const size_t calls = 1 + p.beside.size();
  const auto call = [&](size_t i) -> const StreamShape& { return i == 0 ? p : p.beside[i - 1]; };
  KernelText k;
  k.name = kernel.name;
  std::string params;
  const auto add = [&](const std::string& text) { params += (params.empty() ? "" : ", ") + text; };
  for (size_t i = 0; i < p.weights.size() && !p.registers; i++) {
    if (p.weights[i].uneven) continue;
    for (size_t c = 0; c < calls; c++) {
      k.maps.push_back(stream_weight_map(call(c), call(c).weights[i], p.weights[i].padded, p.chunk, p.even_first(i)));
      add(fmt::format("const __grid_constant__ mo::TensorMap map{}{}", i, calls > 1 ? fmt::format("_{}", c) : ""));
    }
  }
  for (int i : emitter.pointer_params())
    for (size_t c = 0; c < (emitter.differs(emitter.input_of(i)) ? calls : 1); c++) {
      k.args.push_back(call(c).operands[static_cast<size_t>(i)].buffer);
      k.written.push_back(false);
      add(fmt::format("const void* __restrict__ in{}{}", i, emitter.differs(emitter.input_of(i)) ? fmt::format("_{}", c) : ""));
    }
  for (size_t i = 0; i < p.results.size(); i++)
    for (size_t c = 0; c < calls; c++) {
      k.args.push_back(call(c).results[i].buffer);
      k.written.push_back(true);
      add(fmt::format("void* __restrict__ out{}{}", i, calls > 1 ? fmt::format("_{}", c) : ""));
    }
  k.grid = {p.column_blocks() * p.cluster, p.batch, 1};
  k.threads = p.warps * 32;
  k.smem_bytes = p.smem_bytes;
  k.source = fmt::format("// {}\n__global__ void {}__launch_bounds__({}, {}) {}({}) {{\n  using namespace mo;\n{}}}\n", kernel.why,
                         p.cluster > 1 ? fmt::format("__cluster_dims__({}, 1, 1) ", p.cluster) : "", k.threads, p.blocks_per_sm,
                         kernel.name, params, emitter.body());
  return k;
}

}  // namespace mirage

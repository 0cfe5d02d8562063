// Emits a stream kernel from its StreamPlan (plan/stream.h): copies and fragments are calls of the device library (runtime/41_stream.cuh), everything elementwise is text from the block graph.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "codegen/cuda_text.h"
#include "mirage/codegen/module.h"
#include "mirage/plan/stream.h"

namespace mirage {
namespace {

size_t at(int i) { return static_cast<size_t>(i); }

class StreamEmitter {
 public:
  explicit StreamEmitter(const StreamPlan& p) : p_(p), g_(p.body) {}

  std::string body() {
    constants();
    prologue();
    early_loads();
    if (!p_.early.empty()) early_statistics();
    loop();
    sums();
    if (p_.cluster > 1) exchange();
    tail();
    return std::move(out_);
  }

  /// Inputs that are read through pointers, not through a tensor map.
  std::set<int> pointer_params() const {
    std::set<int> out;
    for (NodeId n : g_.inputs()) if (!is_weight(n)) out.insert(param(n));
    return out;
  }

 private:
  using Axis = StreamAxis;
  template <class... T> void line(fmt::format_string<T...> f, T&&... args) { out_ += indent_ + fmt::format(f, std::forward<T>(args)...) + "\n"; }
  template <class... T> void open(fmt::format_string<T...> f, T&&... args) { line(f, std::forward<T>(args)...); indent_ += "  "; }
  void close(const char* text = "}") { indent_.resize(indent_.size() - 2); line("{}", text); }

  bool is_weight(NodeId n) const { return std::any_of(p_.weights.begin(), p_.weights.end(), [&](const StreamWeight& w) { return w.input == n; }); }
  int param(NodeId n) const { return g_.form<Input>(n)->param; }
  const Access& access(NodeId n) const { return p_.operands[at(param(n))]; }
  bool has(ValueId v, Axis a) const { const auto& x = p_.axes[at(v)]; return std::count(x.begin(), x.end(), a) > 0; }
  ValueId value(NodeId n) const { return g_.node(n).first_value; }
  static int64_t stride_of(const Access& a, const std::vector<Axis>& axes, Axis which) {
    for (size_t d = 0; d < axes.size(); d++) if (axes[d] == which) return a.strides[static_cast<int>(d)];
    return 0;
  }
  int64_t stride(NodeId n, Axis a) const { return stride_of(access(n), p_.axes[at(value(n))], a); }
  std::string pointer(NodeId n) const { return fmt::format("(const {}*)in{} + {}", cuda_type(access(n).dtype), param(n), access(n).offset); }
  const char* weight_type(const StreamWeight& w) const { return cuda_type(access(w.input).dtype); }
  NodeId stored_input(ValueId v) const {
    while (g_.def_form<Transpose>(v)) v = g_.def(v).operands[0];
    return g_.def_form<Input>(v) ? g_.value(v).node : -1;
  }
  bool ragged_depth() const { return p_.depth % p_.chunk != 0; }

  /// Inputs that the expression v reads, in order.
  void leaves(ValueId v, std::set<NodeId>& out) const {
    if (g_.def_form<Input>(v)) { out.insert(g_.value(v).node); return; }
    if (is_known(v)) return;
    for (ValueId o : g_.def(v).operands) leaves(o, out);
  }
  bool is_known(ValueId v) const {   // what the loop leaves behind
    for (const StreamSum& s : p_.sums) if (s.value == v) return true;
    for (const StreamStatistic& s : p_.statistics) if (s.result == v) return true;
    for (const StreamStatistic& s : p_.early) if (s.result == v) return true;
    return false;
  }
  std::set<NodeId> loop_leaves() const {
    std::set<NodeId> out;
    for (const StreamContraction& c : p_.contractions) leaves(c.small, out);
    for (const StreamStatistic& s : p_.statistics) leaves(s.of, out);
    return out;
  }
  std::set<NodeId> tail_leaves() const {
    std::set<NodeId> out;
    for (NodeId n : g_.outputs()) leaves(g_.node(n).operands[0], out);
    return out;
  }

  // ---- constants and prologue
  void constants() {
    const int64_t chunks = (p_.depth + p_.chunk - 1) / p_.chunk, workers = p_.warps * p_.cluster;
    line("constexpr int kThreads = {}, kWarps = {}, kStages = {}, kChunk = {}, kCluster = {}, kWorkers = {}, kSteps = {}, kChunks = {}, kRounds = {};", p_.warps * 32, p_.warps, p_.stages, p_.chunk, p_.cluster, workers,
         p_.steps, chunks, (chunks + workers - 1) / workers);
    line("constexpr int kM = {}, kN = {}, kDepth = {}, kRows = {}, kUnits = {}, kItems = {}, kShare = {}, kTail = {};   // kRows: groups of 8", p_.rows, p_.cols, p_.depth, p_.row_tiles, p_.chunk / 32, items(), share(),
         tail_rounds());
    line("constexpr int kStage = {}, kRing = {}, kReceived = {}, kStatistics = {}, kBarriers = {};", p_.stage_bytes, p_.ring_bytes, p_.received_at, p_.statistics_at, p_.barriers_at);
    line("extern __shared__ __align__(1024) unsigned char stream_smem[];");   // a name of its own: block kernels of one library ask for another alignment
    line("unsigned char* const smem = stream_smem;");
    line("const int lane = lane_id(), warp = warp_id(), row = lane / 4, rank = {}, column = block_id() / kCluster * 64, worker = rank * kWarps + warp;", p_.cluster > 1 ? "cluster_rank()" : "0");
    line("const uint32_t ring = shared_address(smem) + warp * kRing, ready = shared_address(smem) + kBarriers + warp * kStages * 8, met = shared_address(smem) + kBarriers + kWarps * kStages * 8;");
  }
  int64_t items() const { return p_.row_tiles * 128; }
  int64_t share() const { return items() / p_.cluster; }
  int64_t tail_rounds() const { return (share() + p_.warps * 32 - 1) / (p_.warps * 32); }

  void prologue() {
    open("if (lane == 0) {{");
    line("for (int s = 0; s < kStages; s++) mbarrier_init(ready + 8 * s, 1);");
    if (p_.cluster > 1) line("if (warp == 0) mbarrier_init(met, 1);");
    line("mbarrier_publish();");
    close();
    line("warp_barrier();");
    if (p_.evict_first) line("const uint64_t policy = evict_first_policy();");
    if (p_.staggered) line("const auto chunk_of = [&](int round) {{ return (round + block_id() / kCluster) % kRounds * kWorkers + worker; }};   // blocks start at different places");
    else line("const auto chunk_of = [&](int round) {{ return round * kWorkers + worker; }};");
    open("const auto fetch = [&](int step) {{   // one step of this warp's ring");
    line("const int chunk = chunk_of(step / kSteps), place = step % kStages;");
    line("if (lane != 0 || {}) return;", p_.staggered ? "step >= kRounds * kSteps" : "chunk >= kChunks");
    line("const uint32_t to = ring + place * kStage, bar = ready + 8 * place;");
    for (int s = 0; s < p_.steps; s++) {
      if (p_.steps > 1) open("{}if (step % kSteps == {}) {{", s ? "else " : "", s);
      int64_t bytes = 0;
      for (const StreamWeight& w : p_.weights) if (w.step == s) bytes += static_cast<int64_t>(w.padded) * p_.chunk * 2;
      line("mbarrier_expect(bar, {});", bytes);
      for (size_t i = 0; i < p_.weights.size(); i++) if (p_.weights[i].step == s) copy(p_.weights[i], i);
      if (p_.steps > 1) close();
    }
    close("};");
    line("for (int s = 0; s < kStages; s++) fetch(s);");
    line("warp_barrier();");
    if (p_.cluster > 1) line("cluster_arrive_relaxed();");
  }
  void copy(const StreamWeight& w, size_t i) {
    const bool wide = w.free == Axis::kCol;
    const char* policy = wide && p_.evict_first ? ", policy" : "";
    if (!w.depth_major) line("copy_box(to + {}, map{}, {}, chunk * kChunk, bar{});", w.offset, i, wide ? "column" : "0", policy);
    else for (int j = 0; j < p_.chunk / 64; j++) line("copy_box(to + {}, map{}, chunk * kChunk + {}, {}, bar{});", w.offset + j * w.padded * 128, i, j * 64, wide ? "column" : "0", policy);
  }

  // ---- what is needed behind the loop, and what does not change in it
  void early_loads() {
    for (size_t i = 0; i < p_.products.size(); i++) {
      const StreamProduct& q = p_.products[i];
      const StreamWeight& w = p_.weights[at(p_.contractions[at(q.contraction)].weight)];
      const Access& a = access(q.input);
      line("RankFactor<{}, {}> factor{};", cuda_type(a.dtype), w.padded, i);
      if (in_lines(q)) line("factor{}.fetch_lines({} + column, {}, {}, kN - column);", i, pointer(q.input), q.rank_stride, w.extent);
      else line("factor{}.fetch({} + column * int64_t({}), {}, {}, {}, kN - column);", i, pointer(q.input), q.col_stride, q.rank_stride, q.col_stride, w.extent);
    }
    for (NodeId n : loop_leaves()) {
      if (has(value(n), Axis::kDepth)) continue;
      if (!has(value(n), Axis::kRow)) { line("const float l{} = load(*({}));", n, pointer(n)); continue; }
      line("float l{}[kRows];", n);
      line("for (int r = 0; r < kRows; r++) l{} [r] = r * 8 + row < kM ? load(({})[(r * 8 + row) * {}]) : 0.0f;", n, pointer(n), stride(n, Axis::kRow));
    }
    std::string text;
    for (NodeId n : tail_leaves()) {
      const ValueId v = value(n);
      const bool rows = has(v, Axis::kRow), cols = has(v, Axis::kCol);
      const int64_t rs = stride(n, Axis::kRow), cs = stride(n, Axis::kCol);
      if (!rows && !cols) { line("const float e{} = load(*({}));", n, pointer(n)); continue; }
      line("Pack<{}> e{}[kTail];", rows && cols ? 4 : 2, n);
      if (rows && cols) text += fmt::format("e{}[t] = load_item({} + m * int64_t({}) + c * int64_t({}), {}, {}, kM - m, kN - c); ", n, pointer(n), rs, cs, rs, cs);
      else if (rows) text += fmt::format("e{}[t] = load_two({} + m * int64_t({}), {}, 1, kM - m); ", n, pointer(n), rs, rs);
      else text += fmt::format("e{}[t] = load_two({} + c * int64_t({}), {}, 8, kN - c); ", n, pointer(n), cs, cs);
    }
    if (text.empty()) return;
    line("for (int t = 0; t < kTail; t++) {{ const int item = rank * kShare + thread_id() + t * kThreads, m = item_row(item), c = column + item_column(item); (void)m, (void)c; {}}}", text);
  }
  bool in_lines(const StreamProduct& q) const { return q.col_stride == 1 && q.rank_stride % 2 == 0 && access(q.input).offset % 2 == 0; }

  /// A map's text. A quotient by a power of two is exactly a product, without the subroutine of a division.
  std::string map(ValueId v, std::vector<std::string> operands) const {
    MapFn fn = g_.def_form<Map>(v)->fn;
    const auto* c = fn == MapFn::kDiv ? g_.def_form<Const>(g_.def(v).operands[1]) : nullptr;
    if (int e; c && std::frexp(c->value, &e) == 0.5 && std::abs(e) < 100) {
      fn = MapFn::kMul;
      operands[1] = CudaText().constant(1 / c->value);
    }
    return map_text(fn, operands);
  }

  // ---- reductions of whole rows, a warp per row, while the first weights are under way
  void early_statistics() {
    line("float* const early = (float*)(smem + {});   // [statistic][row]", p_.early_at);
    open("for (int m = warp; m < 8 * kRows; m += kWarps) {{");
    open("if (m >= kM) {{");
    line("if (lane < {}) early[lane * 8 * kRows + m] = 0.0f;", p_.early.size());
    line("continue;");
    close();
    std::map<ValueId, std::string> known;
    for (size_t i = 0; i < p_.early.size(); i++) {
      const StreamStatistic& s = p_.early[i];
      int64_t extent = 1;
      std::set<NodeId> inputs;
      leaves(s.of, inputs);
      for (NodeId n : inputs)
        for (size_t d = 0; d < p_.axes[at(value(n))].size(); d++) if (p_.axes[at(value(n))][d] == Axis::kWhole) extent = access(n).dims[static_cast<int>(d)];
      line("float early{} = {}::identity();", i, reduce_type(s.fn));
      line("#pragma unroll {}", std::min<int64_t>(16, (extent + 255) / 256));   // what the next walk reads again stays in registers
      open("for (int k = lane * 8; k < {}; k += 256) {{", extent);
      std::string statements;
      std::map<ValueId, std::string> inner = known;
      const std::string e = early_element(s.of, statements, inner);
      line("{}early{} = {}::combine(early{}, reduce_pack<{}>({}));", statements, i, reduce_type(s.fn), i, reduce_type(s.fn), e);
      close();
      line("early{0} = lanes_reduce<{1}, 32>(early{0});", i, reduce_type(s.fn));
      line("if (lane == 0) early[{} * kRows + m] = early{};", 8 * i, i);
      known[s.result] = fmt::format("early{}", i);
    }
    close();
    line("barrier();");
    for (size_t i = 0; i < p_.early.size(); i++) {
      line("float row{}[kRows];", p_.early[i].result);
      line("for (int r = 0; r < kRows; r++) row{}[r] = early[{} * kRows + r * 8 + row];", p_.early[i].result, 8 * i);
    }
  }
  std::string early_element(ValueId v, std::string& statements, std::map<ValueId, std::string>& known) const {
    if (auto it = known.find(v); it != known.end()) return it->second;
    if (g_.def_form<Transpose>(v)) return early_element(g_.def(v).operands[0], statements, known);
    if (const auto* c = g_.def_form<Const>(v)) return CudaText().constant(c->value);
    std::string text;
    if (g_.def_form<Input>(v)) {
      const NodeId n = g_.value(v).node;
      const std::string rows = has(v, Axis::kRow) ? fmt::format(" + m * int64_t({})", stride(n, Axis::kRow)) : "";
      if (has(v, Axis::kWhole)) text = fmt::format("to_pack(load_eight({}{} + k, m < {}))", pointer(n), rows, has(v, Axis::kRow) ? "kM" : "8 * kRows");
      else text = has(v, Axis::kRow) ? fmt::format("m < kM ? load(*({}{})) : 0.0f", pointer(n), rows) : fmt::format("load(*({}))", pointer(n));
    } else {
      std::vector<std::string> operands;
      for (ValueId o : g_.def(v).operands) operands.push_back(early_element(o, statements, known));
      text = map(v, operands);
    }
    statements += fmt::format("const auto v{} = {}; ", v, text);
    return known[v] = fmt::format("v{}", v);
  }

  // ---- the loop
  void loop() {
    for (size_t i = 0; i < p_.contractions.size(); i++) {
      const StreamWeight& w = p_.weights[at(p_.contractions[i].weight)];
      if (w.free == Axis::kCol) line("StreamSum<kRows> sum{};", i);
      else line("RankSum<kRows, {}> sum{};", w.padded, i);
      line("sum{}.clear();", i);
    }
    for (size_t i = 0; i < p_.statistics.size(); i++)
      line("float statistic{0}[kRows];\n  for (int r = 0; r < kRows; r++) statistic{0}[r] = {1}::identity();", i, reduce_type(p_.statistics[i].fn));
    std::vector<NodeId> deep;
    for (NodeId n : loop_leaves()) if (has(value(n), Axis::kDepth)) deep.push_back(n);
    for (NodeId n : deep) line("Vector<{0}, 8> x{1}[kUnits]{2}, next{1}[kUnits]{2};", cuda_type(access(n).dtype), n, has(value(n), Axis::kRow) ? "[kRows]" : "");
    open("const auto fetch_small = [&](int chunk) {{");
    line("#pragma unroll");
    open("for (int u = 0; u < kUnits; u++) {{");
    line("const int k = chunk * kChunk + u * 32 + lane % 4 * 8;");
    for (NodeId n : deep) {
      if (has(value(n), Axis::kRow)) line("for (int r = 0; r < kRows; r++) next{}[u][r] = load_eight({} + (r * 8 + row) * int64_t({}) + k, r * 8 + row < kM && k < kDepth);", n, pointer(n), stride(n, Axis::kRow));
      else line("next{}[u] = load_eight({} + k, k < kDepth);", n, pointer(n));
    }
    close();
    close("};");
    line("fetch_small(chunk_of(0));");
    line("#pragma unroll {}", unroll());
    open("for (int round = 0; round < kRounds; round++) {{");
    line("const int chunk = chunk_of(round);");
    if ((p_.depth + p_.chunk - 1) / p_.chunk % (p_.warps * p_.cluster)) line("if (chunk >= kChunks) break;");
    for (NodeId n : deep) line("for (int u = 0; u < kUnits; u++) {}x{}[u]{} = next{}[u]{};", has(value(n), Axis::kRow) ? "for (int r = 0; r < kRows; r++) " : "", n, has(value(n), Axis::kRow) ? "[r]" : "", n, has(value(n), Axis::kRow) ? "[r]" : "");
    line("if (round + 1 < kRounds) fetch_small(chunk_of(round + 1));");
    for (int s = 0; s < p_.steps; s++) step(s);
    close();
  }
  int unroll() const {
    const int64_t workers = p_.warps * p_.cluster, rounds = ((p_.depth + p_.chunk - 1) / p_.chunk + workers - 1) / workers;
    if (rounds <= 4) return static_cast<int>(rounds);
    int n = 2;   // places of the ring become constants; more would be fetched cold from device memory, once per launch
    while (n * p_.steps % p_.stages != 0 && n < 6) n++;
    return n;
  }
  static const char* reduce_type(ReduceFn fn) { return fn == ReduceFn::kSum ? "Sum" : "Max"; }

  void step(int s) {
    open("{{");
    line("const int step = round * kSteps + {}, place = step % kStages;", s);
    line("mbarrier_wait(ready + 8 * place, step / kStages & 1);");
    for (size_t i = 0; i < p_.weights.size(); i++) {
      const StreamWeight& w = p_.weights[i];
      if (w.step == s) line("const StreamTile<{}, {}, kChunk, {}> w{}{{smem + warp * kRing + place * kStage + {}}};", weight_type(w), w.padded, w.depth_major, i, w.offset);
    }
    line("#pragma unroll");
    open("for (int u = 0; u < kUnits; u++) {{");
    if (ragged_depth()) line("const bool exists = chunk * kChunk + u * 32 + lane % 4 * 8 < kDepth;");
    if (s == 0) {
      for (size_t i = 0; i < p_.statistics.size(); i++) {
        const StreamStatistic& x = p_.statistics[i];
        std::string statements;
        const std::string e = loop_element(x.of, statements);
        line("for (int r = 0; r < kRows; r++) {{ {}{}statistic{}[r] = {}::combine(statistic{}[r], reduce_pack<{}>({})); }}", statements, ragged_depth() ? "if (exists) " : "", i, reduce_type(x.fn), i, reduce_type(x.fn), e);
      }
    }
    for (size_t i = 0; i < p_.contractions.size(); i++) {
      const StreamContraction& c = p_.contractions[i];
      const StreamWeight& w = p_.weights[at(c.weight)];
      if (w.step != s) continue;
      const NodeId stored = stored_input(c.small);
      const bool as_stored = c.type != ContractType::kTF32 && stored >= 0 && access(stored).dtype == access(w.input).dtype;
      line("{} small{}[kRows];", c.type == ContractType::kTF32 ? "SmallTf32" : fmt::format("Small<{}>", weight_type(w)), i);
      const char* turn = w.depth_major ? "" : "rotated";
      if (!as_stored) {
        std::string statements;
        const std::string e = loop_element(c.small, statements);
        line("for (int r = 0; r < kRows; r++) {{ {}small{}[r] = {}({}({})); }}", statements, i, turn, c.type == ContractType::kTF32 ? "small_operand" : fmt::format("small_operand<{}>", weight_type(w)), ragged_depth() ? fmt::format("exists ? {} : Pack<8>{{}}", e) : e);
      } else {
        const NodeId n = stored_input(c.small);
        line("for (int r = 0; r < kRows; r++) small{}[r] = {}(small_operand<{}>(x{}[u]{}));", i, turn, weight_type(w), n, has(value(n), Axis::kRow) ? "[r]" : "");
      }
      line("sum{}.add(w{}, u, small{});", i, c.weight, i);
    }
    close();
    line("warp_barrier();");
    line("fetch(step + kStages);");
    close();
  }

  /// The expression v of the loop for unit u and row tile r, eight neighbours at a time.
  std::string loop_element(ValueId v, std::string& statements) const {
    std::map<ValueId, std::string> known;
    return loop_element(v, statements, known);
  }
  std::string loop_element(ValueId v, std::string& statements, std::map<ValueId, std::string>& known) const {
    if (auto it = known.find(v); it != known.end()) return it->second;
    if (g_.def_form<Transpose>(v)) return loop_element(g_.def(v).operands[0], statements, known);
    if (const auto* c = g_.def_form<Const>(v)) return CudaText().constant(c->value);
    for (const StreamStatistic& s : p_.early) if (s.result == v) return fmt::format("row{}[r]", v);
    std::string text;
    if (g_.def_form<Input>(v)) {
      const NodeId n = g_.value(v).node;
      const char* r = has(v, Axis::kRow) ? "[r]" : "";
      text = has(v, Axis::kDepth) ? fmt::format("to_pack(x{}[u]{})", n, r) : fmt::format("l{}{}", n, r);
    } else {
      std::vector<std::string> operands;
      for (ValueId o : g_.def(v).operands) operands.push_back(loop_element(o, statements, known));
      text = map(v, operands);
    }
    statements += fmt::format("const auto v{} = {}; ", v, text);
    return known[v] = fmt::format("v{}", v);
  }

  // ---- behind the loop: warps and blocks meet
  void sums() {
    for (size_t i = 0; i < p_.products.size(); i++) if (in_lines(p_.products[i])) line("factor{}.turn();", i);
    for (size_t i = 0; i < p_.sums.size(); i++) {
      const StreamSum& s = p_.sums[i];
      const bool alias = s.contractions.size() == 1 && s.contractions[0].second == 1.0 && uses(s.contractions[0].first) == 1;
      if (alias) line("StreamSum<kRows>& total{} = sum{};", i, s.contractions[0].first);
      else {
        line("StreamSum<kRows> total{};", i);
        line("total{}.clear();", i);
        for (auto [c, f] : s.contractions) line("total{}.add_scaled(sum{}, {});", i, c, CudaText().constant(f));
      }
      for (auto [q, f] : s.products) line("factor{}.multiply(total{}, sum{}, {});", q, i, p_.products[at(q)].contraction, CudaText().constant(f));
    }
    line("Pack<4>* const items = (Pack<4>*)smem;   // each warp's in its own ring, which is finished");
    for (size_t i = 0; i < p_.sums.size(); i++) line("put_items(items + warp * (kRing / 16) + {} * kItems, total{});", i, i);
    if (!p_.statistics.empty()) line("float* const statistics = (float*)(smem + kStatistics);   // [statistic][block of the cluster, warp][row]");
    if (p_.cluster > 1) line("cluster_wait();   // the other blocks run, and their barriers are set up");
    for (size_t i = 0; i < p_.statistics.size(); i++) {
      open("for (int r = 0; r < kRows; r++) {{");
      line("const float x = lanes_reduce<{}, 4>(statistic{}[r]);", reduce_type(p_.statistics[i].fn), i);
      line("float* const to = statistics + (({} * kCluster + rank) * kWarps + warp) * (8 * kRows) + r * 8 + row;", i);
      if (p_.cluster > 1) line("for (int b = lane % 4; b < kCluster; b += 4) store_async(remote_address(shared_address(to), b), x, remote_address(met, b));");
      else line("if (lane % 4 == 0) *to = x;");
      close();
    }
    line("barrier();");
  }
  int uses(int contraction) const {
    int n = 0;
    for (const StreamSum& s : p_.sums) for (auto [c, f] : s.contractions) n += c == contraction;
    return n;
  }
  void exchange() {
    const int64_t rows = 8 * p_.row_tiles, n = static_cast<int64_t>(p_.statistics.size()), sums = static_cast<int64_t>(p_.sums.size());
    line("if (thread_id() == 0) mbarrier_expect(met, {});", sums * items() * 16 + n * p_.cluster * p_.warps * rows * 4);
    line("const uint32_t received = shared_address(smem) + kReceived;   // [sum][from][share]");
    open("for (int i = thread_id(); i < {} * kItems; i += kThreads) {{", sums);
    line("const int sum = i / kItems, item = i % kItems, owner = item / kShare;");
    line("const Pack<4> x = add_items<kWarps>(items + sum * kItems + item, kRing / 16);");
    line("store_async(remote_address(received + ((sum * kCluster + rank) * kShare + item % kShare) * 16, owner), x, remote_address(met, owner));");
    close();
    line("mbarrier_wait_cluster(met, 0);");
  }

  // ---- the tail: everything elementwise, once per item
  enum class Shape : uint8_t { kScalar, kRows, kCols, kBoth };
  Shape shape(ValueId v) const { return has(v, Axis::kRow) ? has(v, Axis::kCol) ? Shape::kBoth : Shape::kRows : has(v, Axis::kCol) ? Shape::kCols : Shape::kScalar; }
  static std::string widened(const std::string& text, Shape from, Shape to) {
    if (from == to || from == Shape::kScalar) return text;
    return fmt::format("{}({})", from == Shape::kRows ? "along_rows" : "along_columns", text);
  }

  void tail() {
    line("#pragma unroll");
    open("for (int t = 0; t < kTail; t++) {{");
    line("const int share = thread_id() + t * kThreads, item = rank * kShare + share, m = item_row(item), c = column + item_column(item);");
    if (share() % (p_.warps * 32)) line("if (share >= kShare) break;");
    std::map<ValueId, std::string> known;
    for (NodeId n : g_.outputs()) {
      const ValueId v = g_.node(n).operands[0];
      const std::string text = widened(tail_element(v, known), shape(v), Shape::kBoth);
      const Access& a = p_.results[at(g_.form<Output>(n)->result)];
      const int64_t rs = stride_of(a, p_.axes[at(v)], Axis::kRow), cs = stride_of(a, p_.axes[at(v)], Axis::kCol);
      line("store_item(({}*)out{} + {} + m * int64_t({}) + c * int64_t({}), {}, {}, {} - m, {} - c, {});", cuda_type(a.dtype), g_.form<Output>(n)->result, a.offset, rs, cs, rs, cs, has(v, Axis::kRow) ? "kM" : "1",
           has(v, Axis::kCol) ? "kN" : "1", text);
    }
    close();
  }
  std::string tail_element(ValueId v, std::map<ValueId, std::string>& known) {
    if (auto it = known.find(v); it != known.end()) return it->second;
    if (const auto* c = g_.def_form<Const>(v)) return CudaText().constant(c->value);
    for (size_t i = 0; i < p_.sums.size(); i++) {
      if (p_.sums[i].value != v) continue;
      if (p_.cluster > 1) line("const Pack<4> v{} = add_items<kCluster>((const Pack<4>*)(smem + kReceived) + {} * kCluster * kShare + share, kShare);", v, i);
      else line("const Pack<4> v{} = add_items<kWarps>(items + {} * kItems + item, kRing / 16);", v, i);
      if (shape(v) == Shape::kBoth) return known[v] = fmt::format("v{}", v);
      line("const Pack<2> c{0} = {{{{v{0}.v[0], v{0}.v[2]}}}};", v);   // the same in every row
      return known[v] = shape(v) == Shape::kCols ? fmt::format("c{}", v) : fmt::format("v{}", v);
    }
    for (size_t i = 0; i < p_.statistics.size(); i++) {
      if (p_.statistics[i].result != v) continue;
      line("Pack<2> s{0} = {{{{{1}::identity(), {1}::identity()}}}};", v, reduce_type(p_.statistics[i].fn));
      line("for (int i = 0; i < kCluster * kWarps; i++) for (int e = 0; e < 2; e++) s{0}.v[e] = {1}::combine(s{0}.v[e], statistics[({2} * kCluster * kWarps + i) * (8 * kRows) + m + e]);", v, reduce_type(p_.statistics[i].fn), i);
      return known[v] = shape(v) == Shape::kRows ? fmt::format("s{}", v) : fmt::format("s{}.v[0]", v);
    }
    if (g_.def_form<Transpose>(v)) return tail_element(g_.def(v).operands[0], known);
    for (size_t i = 0; i < p_.early.size(); i++) {
      if (p_.early[i].result != v) continue;
      line("const Pack<2> w{0} = {{{{early[{1} * kRows + m], early[{1} * kRows + m + 1]}}}};", v, 8 * i);
      return known[v] = shape(v) == Shape::kRows ? fmt::format("w{}", v) : fmt::format("w{}.v[0]", v);
    }
    if (g_.def_form<Input>(v)) {
      const NodeId n = g_.value(v).node;
      return known[v] = shape(v) == Shape::kScalar ? fmt::format("e{}", n) : fmt::format("e{}[t]", n);
    }
    const Shape to = shape(v);
    std::vector<std::string> operands;
    for (ValueId o : g_.def(v).operands) operands.push_back(widened(tail_element(o, known), g_.def_form<Const>(o) ? Shape::kScalar : shape(o), to));
    for (size_t i = 0; i < operands.size(); i++)   // formulas may name an operand several times
      if (operands[i].starts_with("along_")) {
        line("const auto v{}_{} = {};", v, i, operands[i]);
        operands[i] = fmt::format("v{}_{}", v, i);
      }
    line("const auto v{} = {};", v, map(v, operands));
    return known[v] = fmt::format("v{}", v);
  }

  const StreamPlan& p_;
  const Graph& g_;
  std::string out_, indent_ = "  ";
};

TensorMapText tensor_map(const StreamPlan& p, const StreamWeight& w) {
  const Access& a = p.operands[at(p.body.form<Input>(w.input)->param)];
  TensorMapText m;
  m.buffer = a.buffer;
  m.offset_bytes = a.offset * dtype_bytes(a.dtype);
  m.dtype = a.dtype;
  m.dims = w.depth_major ? std::vector<int64_t>{p.depth, w.extent} : std::vector<int64_t>{w.extent, p.depth};
  m.strides = {w.line * dtype_bytes(a.dtype)};
  m.box = w.depth_major ? std::vector<int>{64, w.padded} : std::vector<int>{w.padded, p.chunk};
  m.swizzle = w.depth_major ? 128 : w.padded * 2;
  return m;
}

}  // namespace

KernelText emit_stream_kernel(const KernelPlan& kernel, const Plan&, const Target&) {
  const StreamPlan& p = *std::get<std::shared_ptr<const StreamPlan>>(kernel.body);
  StreamEmitter emitter(p);
  KernelText k;
  k.name = kernel.name;
  std::string params;
  const auto add = [&](const std::string& text) { params += (params.empty() ? "" : ", ") + text; };
  for (size_t i = 0; i < p.weights.size(); i++) {
    k.maps.push_back(tensor_map(p, p.weights[i]));
    add(fmt::format("const __grid_constant__ mo::TensorMap map{}", i));
  }
  for (int i : emitter.pointer_params()) {
    k.args.push_back(p.operands[at(i)].buffer);
    k.written.push_back(false);
    add(fmt::format("const void* __restrict__ in{}", i));
  }
  for (size_t i = 0; i < p.results.size(); i++) {
    k.args.push_back(p.results[i].buffer);
    k.written.push_back(true);
    add(fmt::format("void* __restrict__ out{}", i));
  }
  k.grid = {(p.cols + 63) / 64 * p.cluster, 1, 1};
  k.threads = p.warps * 32;
  k.smem_bytes = p.smem_bytes;
  k.source = fmt::format("// {}\n__global__ void {}__launch_bounds__({}, {}) {}({}) {{\n  using namespace mo;\n{}}}\n", kernel.why, p.cluster > 1 ? fmt::format("__cluster_dims__({}, 1, 1) ", p.cluster) : "", k.threads,
                         p.blocks_per_sm, kernel.name, params, emitter.body());
  return k;
}

}  // namespace mirage

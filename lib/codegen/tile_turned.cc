// Emits a tile kernel whose rows are the 64-row operand of wgmma (plan/tile_turned.cc): all threads ask for all operands at once by cp.async, warpgroups multiply chunk by chunk as these arrive, a low rank rides along as
// columns of its own, and what follows the sums stays in registers. Device library: runtime/69_turned.cuh; the text of the tail is stream_text.cc's, with rows and columns of an item the other way round.
#include <algorithm>

#include "codegen/stream_text.h"
#include "codegen/tile_turned.h"

namespace mirage {
namespace {

class TurnedEmitter : public StreamText {
 public:
  explicit TurnedEmitter(const TilePlan& p) : StreamText(p), p_(p) {}

  std::string body() {
    constants();
    copies();
    factors();
    loop();
    sums();
    tail();
    return std::move(out_);
  }
  bool mapped(NodeId) const override { return false; }

 private:
  bool turned() const override { return true; }
  bool whole_depth() const { return p_.depth % p_.chunk == 0; }
  bool whole_columns() const { return p_.cols % p_.block_columns() == 0; }
  bool whole_rows() const { return p_.rows % p_.block_rows() == 0; }
  const StreamWeight& weight_of(size_t c) const { return p_.weights[at(p_.contractions[c].weight)]; }
  /// A low rank whose lines are copied as they lie; warps add it up by mma.sync.
  bool plain(size_t c) const { return weight_of(c).packed; }
  int tiles(size_t c) const { return (weight_of(c).free == Axis::kCol ? p_.turned : weight_of(c).padded) / 8; }

  void constants() {
    line("constexpr int kThreads = {}, kTail = {}, kColumnGroups = {}, kRowBlocks = {}, kChunks = {}, kStage = {};   // kTail: items of 8 columns each", p_.threads(), p_.turned / 8, p_.column_groups, p_.row_blocks, p_.chunks, p_.stage_bytes);
    line("constexpr int kM = {}, kN = {}, kDepth = {};", p_.rows, p_.cols, p_.depth);
    line("extern __shared__ __align__(1024) unsigned char tile_smem[];");
    line("unsigned char* const smem = tile_smem;");
    line("const int lane = lane_id(), warp = warp_uniform(warp_id()), group = warp / 4, column0 = block_id() / kRowBlocks * {}, first_row = block_id() % kRowBlocks * {};", p_.block_columns(), p_.block_rows());
    line("const int column = column0 + group % kColumnGroups * {}, row = first_row + group / kColumnGroups * 64;   // of this warpgroup", p_.turned);
    line("const uint32_t ring = shared_address(smem);");
  }

  void copies() {
    line("#pragma unroll");
    open("for (int s = 0; s < kChunks; s++) {{   // asks for everything");
    line("unsigned char* const stage = smem + s * kStage;");
    line("const int k = s * {};", p_.chunk);
    for (const StreamWeight& w : p_.weights) copy_weight(w);
    for (const TileRows& r : p_.small) {
      const int64_t line_stride = stride(r.input, Axis::kRow);
      line("copy_lines<kThreads, {}, 8, {}>(stage + {}, {} + first_row * int64_t({}) + k, {}, kM - first_row, kDepth - k);", p_.block_rows(), whole_rows() && whole_depth(), r.offset, pointer(r.input), line_stride, line_stride);
    }
    line("copy_commit();");
    close();
  }
  void copy_weight(const StreamWeight& w) {
    const std::string from = pointer(w.input);
    const bool wide = w.free == Axis::kCol;
    if (w.packed) {
      line("copy_bytes<kThreads, {}>(stage + {}, {} + k * {}, (kDepth - k) * {});", p_.chunk * w.extent * 2, w.offset, from, w.extent, w.extent * 2);
      return;
    }
    const char* first = wide ? "column0" : "0";
    const std::string left = wide ? "kN - column0" : std::to_string(w.extent);
    const bool whole = whole_depth() && (wide ? whole_columns() : w.extent == w.padded);
    const int columns = wide ? p_.block_columns() : w.padded;
    if (w.depth_major) {
      line("copy_lines<kThreads, {}, 8, {}>(stage + {}, {} + {} * int64_t({}) + k, {}, {}, kDepth - k);", columns, whole, w.offset, from, first, w.line, w.line, left);
      return;
    }
    for (int c = 0; c < columns; c += 64)
      line("copy_lines<kThreads, {}, {}, {}>(stage + {}, {} + k * int64_t({}) + {} + {}, {}, kDepth - k, {} - {});", p_.chunk, std::min(64, columns - c) / 8, whole, w.offset + c / 64 * p_.chunk * 128, from, w.line, first, c, w.line, left, c);
  }

  void factors() {
    for (size_t i = 0; i < p_.products.size(); i++) {
      const StreamProduct& q = p_.products[i];
      const StreamWeight& w = weight_of(at(q.contraction));
      line("RankFactor<{}, {}, {}> factor{};", cuda_type(access(q.input).dtype), w.padded, p_.turned / 16, i);
      if (in_lines(q)) line("factor{}.fetch_lines({} + column, {}, {}, kN - column);", i, pointer(q.input), q.rank_stride, w.extent);
      else line("factor{}.fetch({} + column * int64_t({}), {}, {}, {}, kN - column);", i, pointer(q.input), q.col_stride, q.rank_stride, q.col_stride, w.extent);
      declare_gain(i, fmt::format("RankGain<{}, 2, 1>", w.padded), w.extent);
    }
    declare_tail_loads();
    if (const std::string text = tail_loads(); !text.empty()) {
      line("#pragma unroll");
      line("for (int t = 0; t < kTail; t++) {{ {} (void)m, (void)c; {}}}", item_place(), text);
    }
  }
  bool in_lines(const StreamProduct& q) const { return q.col_stride == 1 && q.rank_stride % 2 == 0 && stride(q.input, Axis::kBatch) % 2 == 0 && access(q.input).offset % 2 == 0 && p_.cols % 2 == 0; }

  void loop() {
    for (size_t c = 0; c < p_.contractions.size(); c++) {
      if (plain(c)) line("TileRankSum<64, {}> part{};\n  part{}.clear();", weight_of(c).padded, c, c);
      line("TileSum<{}> sum{};\n  sum{}.clear();", tiles(c), c, c);
    }
    line("#pragma unroll");
    open("for (int s = 0; s < kChunks; s++) {{");
    line("copy_wait_left<kChunks - 1>(kChunks - 1 - s);");
    line("fence_async_proxy();");
    line("barrier();");
    for (size_t i = 0; i < p_.small.size(); i++) line("const uint32_t rows{} = ring + s * kStage + {} + group / kColumnGroups * {};", i, p_.small[i].offset, 64 * 128);
    for (size_t i = 0; i < p_.weights.size(); i++) {
      const StreamWeight& w = p_.weights[i];
      if (w.packed) line("const TileRank<{}, {}, false, true> w{}{{smem + s * kStage + {}}};", weight_type(w), w.padded, i, w.offset);
      else line("const uint32_t w{} = ring + s * kStage + {}{};", i, w.offset, w.free != Axis::kCol || p_.column_groups == 1 ? "" : group_offset(w));
    }
    pin();
    line("wgmma_fence();");
    line("#pragma unroll");
    open("for (int k = 0; k < {}; k++) {{", p_.chunk / 16);
    for (size_t c = 0; c < p_.contractions.size(); c++) {
      if (plain(c)) continue;
      const StreamWeight& w = weight_of(c);
      line("wgmma_rows<{}, {}>(sum{}.d, wgmma_tile(rows{}, 16) + 2 * k, wgmma_tile(w{}, {}) + {} * k);", weight_type(w), w.depth_major ? 0 : 1, c, p_.small_of[c], p_.contractions[c].weight, w.depth_major ? 16 : p_.chunk * 128,
           w.depth_major ? 2 : 128);
    }
    close();
    line("wgmma_commit();");
    for (size_t c = 0; c < p_.contractions.size(); c++)
      if (plain(c)) line("part{}.add<{}>(w{}, smem + s * kStage + {} + group / kColumnGroups * {}, 0);", c, p_.chunk / 16, p_.contractions[c].weight, p_.small[at(p_.small_of[c])].offset, 64 * 128);
    close();
    for (size_t i = 0; i < p_.products.size(); i++) if (in_lines(p_.products[i])) line("factor{}.turn();", i);
    line("wgmma_wait<0>();");
    pin();
  }
  /// From one warpgroup's columns of a stage to the next one's.
  std::string group_offset(const StreamWeight& w) const {
    if (w.depth_major) return fmt::format(" + group % kColumnGroups * {}", p_.turned * 128);
    if (p_.turned % 64 == 0) return fmt::format(" + group % kColumnGroups * {}", p_.turned / 64 * p_.chunk * 128);
    return fmt::format(" + group % kColumnGroups * {0} / 64 * {1} + group % kColumnGroups * {0} % 64 * 2", p_.turned, p_.chunk * 128);
  }
  void pin() {
    for (size_t c = 0; c < p_.contractions.size(); c++) if (!plain(c)) line("wgmma_pin(sum{}.d);", c);
  }

  void sums() {
    for (size_t c = 0; c < p_.contractions.size(); c++) if (plain(c)) line("part{}.total(sum{});", c, c);
    for (size_t i = 0; i < p_.sums.size(); i++) {
      const StreamSum& s = p_.sums[i];
      const bool alias = s.contractions.size() == 1 && s.contractions[0].second == 1.0 && uses(s.contractions[0].first) == 1;
      if (alias) line("TileSum<kTail>& total{} = sum{};", i, s.contractions[0].first);
      else {
        line("TileSum<kTail> total{0};\n  total{0}.clear();", i);
        for (auto [c, f] : s.contractions) line("total{}.add_scaled(sum{}, {});", i, c, CudaText().constant(f));
      }
      for (auto [q, f] : s.products) line("add_rows_product(total{}, factor{}, sum{}, {}, {});", i, q, p_.products[at(q)].contraction, CudaText().constant(f), gain(at(q)));
    }
  }

  // ---- the tail
  std::string item_place() const { return "const int m = row + (warp & 3) * 16 + lane / 4, c = column + t * 8 + lane % 4 * 2;"; }
  std::string sum_item(size_t i) const override { return fmt::format("total{}.item(t)", i); }
  std::string statistic_parts() const override { return "1"; }
  std::string loop_leaf(ValueId) const override { return ""; }   // nothing is computed in the loop
  /// Whether an output's lines are whole pieces of eight columns.
  bool whole_lines(NodeId n) const {
    const ValueId v = g_.node(n).operands[0];
    const Access& a = s_.results[at(g_.form<Output>(n)->result)];
    const auto& axes = s_.axes[at(v)];
    return stores_lines(p_, n) && has(v, Axis::kCol) && p_.cols % 8 == 0 && stride_of(a, axes, Axis::kRow) % 8 == 0 && stride_of(a, axes, Axis::kBatch) % 8 == 0 && a.offset % 8 == 0;
  }
  void store_result(NodeId output, const std::string& text) override {
    if (!whole_lines(output)) { StreamText::store_result(output, text); return; }
    const Access& a = s_.results[at(g_.form<Output>(output)->result)];
    const int64_t rs = stride_of(a, s_.axes[at(g_.node(output).operands[0])], Axis::kRow);
    line("lines{}.put(t % 4, {}, {}());", output, text, cuda_type(a));
    line("if (t % 4 == 3) lines{}.store_all({} + m * int64_t({}) + column + (t - 3) * 8, {}, kM - m, kN - column - (t - 3) * 8);", output, result_pointer(output), rs, rs);
  }
  void tail() {
    for (NodeId n : g_.outputs()) if (whole_lines(n)) line("LineItems lines{};", n);
    line("#pragma unroll");
    open("for (int t = 0; t < kTail; t++) {{");
    line("{}", item_place());
    tail_results();
    close();
  }

  const TilePlan& p_;
};

}  // namespace

KernelText emit_turned_kernel(const KernelPlan& kernel, const TilePlan& p) {
  TurnedEmitter emitter(p);
  KernelText k;
  k.name = kernel.name;
  std::string params;
  const auto add = [&](const std::string& text) { params += (params.empty() ? "" : ", ") + text; };
  for (int i : emitter.pointer_params()) {
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
  k.threads = p.threads();
  k.smem_bytes = p.smem_bytes;
  k.source = fmt::format("// {}\n__global__ void __launch_bounds__({}, {}) {}({}) {{\n  using namespace mo;\n{}}}\n", kernel.why, k.threads, p.blocks_per_sm, kernel.name, params, emitter.body());
  return k;
}

}  // namespace mirage

// Emits a tile kernel whose rows are the 64-row operand of wgmma (plan/tile/tile_turned.cc): one thread asks for everything at once by
// tensor copies, warpgroups multiply chunk by chunk as it arrives, a low rank rides along as columns of its own, and what follows the sums
// stays in registers. Device library: runtime/69_turned.cuh; the text of the tail is stream_text.cc's, with rows and columns of an item the
// other way round.
#include <algorithm>

#include "codegen/kernels/stream_text.h"
#include "codegen/kernels/tile_turned.h"

namespace mirage {
namespace {

class TurnedEmitter : public StreamText {
 public:
  /// waits: it is started while the kernel ahead of it still runs.
  TurnedEmitter(const TilePlan& p, bool waits) : StreamText(p), p_(p), waits_(waits) {}

  std::string body() {
    constants();
    if (waits_) line("await_previous();");
    copies();
    factors();
    loop();
    sums();
    tail();
    return std::move(out_);
  }
  bool mapped(NodeId n) const override {
    if (is_weight(n)) return true;
    const bool row = std::any_of(p_.small.begin(), p_.small.end(), [&](const TileRows& r) { return r.input == n; });
    const bool factor =
        std::any_of(p_.products.begin(), p_.products.end(), [&](const StreamProduct& q) { return q.input == n; }) &&
        std::all_of(p_.products.begin(), p_.products.end(), [&](const StreamProduct& q) { return q.input != n || copied_factor(p_, q); });
    return (row || factor) && !tail_leaves().count(n);
  }

 private:
  bool turned() const override { return true; }
  const StreamWeight& weight_of(size_t c) const { return p_.weights[at(p_.contractions[c].weight)]; }
  /// A low rank whose lines are copied as they lie; warps add it up by mma.sync.
  bool plain(size_t c) const { return weight_of(c).packed; }
  int tiles(size_t c) const { return (weight_of(c).free == Axis::kCol ? p_.turned : weight_of(c).padded) / 8; }

  void constants() {
    line("constexpr int kTail = {}, kColumnGroups = {}, kRowBlocks = {}, kChunks = {}, kStage = {};   // kTail: items of 8 columns each",
         p_.turned / 8, p_.column_groups, p_.row_blocks, p_.chunks, p_.stage_bytes);
    line("constexpr int kM = {}, kN = {};", p_.rows, p_.cols);
    line("extern __shared__ __align__(1024) unsigned char tile_smem[];");
    line("unsigned char* const smem = tile_smem;");
    line(
        "const int lane = lane_id(), warp = warp_uniform(warp_id()), group = warp / 4, column0 = block_id() / kRowBlocks * {}, first_row = "
        "block_id() % kRowBlocks * {};",
        p_.block_columns(), p_.block_rows());
    line("const int column = column0 + group % kColumnGroups * {}, row = first_row + group / kColumnGroups * 64;   // of this warpgroup",
         p_.turned);
    line("const uint32_t ring = shared_address(smem), full = ring + {}, ranks = full + 8 * kChunks, factors = ranks + 8;", p_.barriers_at);
  }

  static const char* slice_argument(bool sliced) { return sliced ? ", batch_id()" : ""; }
  void copies() {
    open("if (thread_id() == 0) {{   // asks for everything; first for what all blocks read alike");
    line("for (int s = 0; s < kChunks + 2; s++) mbarrier_init(full + 8 * s, 1);");
    line("mbarrier_publish();");
    int64_t plain_bytes = 0, factor_bytes = 0, stage = 0;
    for (const StreamWeight& w : p_.weights) (w.packed ? plain_bytes : stage) += turned_weight_bytes(p_, w);
    for (const TileRows& r : p_.small) stage += r.bytes;
    for (const StreamProduct& q : p_.products) if (copied_factor(p_, q)) factor_bytes += turned_factor_bytes(p_, q);
    if (plain_bytes) line("mbarrier_expect(ranks, {});", plain_bytes);
    for (size_t i = 0; i < p_.weights.size(); i++)
      if (const StreamWeight& w = p_.weights[i]; w.packed)
        line("copy_box(ring + {}, map{}, 0, 0{}, ranks);", w.offset, i, slice_argument(w.slice));
    line("#pragma unroll");
    open("for (int s = 0; s < kChunks; s++) {{");
    line("const uint32_t to = ring + s * kStage, bar = full + 8 * s;");
    line("mbarrier_expect(bar, {});", stage);
    for (size_t i = 0; i < p_.weights.size(); i++) {
      const StreamWeight& w = p_.weights[i];
      if (w.packed) continue;
      const bool wide = w.free == Axis::kCol;
      for (int c = 0; c < (wide ? p_.block_columns() : 64); c += 64) {
        const std::string column = wide ? fmt::format("column0 + {}", c) : "0", depth = fmt::format("s * {}", p_.chunk);
        line("copy_box(to + {}, map{}, {}, {}{}, bar);", w.offset + c * 128, i, w.depth_major ? depth : column,
             w.depth_major ? column : depth, slice_argument(w.slice));
      }
    }
    for (size_t i = 0; i < p_.small.size(); i++)
      line("copy_box(to + {}, map{}, s * {}, first_row{}, bar);", p_.small[i].offset, p_.weights.size() + i, p_.chunk,
           slice_argument(stride(p_.small[i].input, Axis::kBatch)));
    close();
    size_t map = p_.weights.size() + p_.small.size();
    if (factor_bytes) line("mbarrier_expect(factors, {});", factor_bytes);
    int64_t place = p_.ranks_at;
    for (const StreamProduct& q : p_.products) {
      if (!copied_factor(p_, q)) continue;
      for (int c = 0; c < p_.block_columns(); c += 64)
        line("copy_box(ring + {}, map{}, column0 + {}, 0{}, factors);", place + c / 64 * turned_factor_box(p_, q), map, c,
             slice_argument(stride(q.input, Axis::kBatch)));
      place += turned_factor_bytes(p_, q);
      map++;
    }
    close();
    line("barrier();");
  }

  void factors() {
    for (size_t i = 0; i < p_.products.size(); i++) {
      const StreamProduct& q = p_.products[i];
      const StreamWeight& w = weight_of(at(q.contraction));
      line("RankFactor<{}, {}, {}> factor{};", cuda_type(access(q.input).dtype), w.padded, p_.turned / 16, i);
      if (!copied_factor(p_, q))
        line("factor{}.fetch({} + column * int64_t({}), {}, {}, {}, kN - column);", i, pointer(q.input), q.col_stride, q.rank_stride,
             q.col_stride, w.extent);
      declare_gain(i, fmt::format("RankGain<{}, 2, 1>", w.padded), w.extent);
    }
    declare_tail_loads();
    if (const std::string text = tail_loads(); !text.empty()) {
      line("#pragma unroll");
      line("for (int t = 0; t < kTail; t++) {{ {} (void)m, (void)c; {}}}", item_place(), text);
    }
  }
  void read_factors() {
    int64_t place = p_.ranks_at;
    if (std::any_of(p_.products.begin(), p_.products.end(), [&](const StreamProduct& q) { return copied_factor(p_, q); }))
      line("mbarrier_wait(factors, 0);");
    for (size_t i = 0; i < p_.products.size(); i++) {
      const StreamProduct& q = p_.products[i];
      if (!copied_factor(p_, q)) continue;
      line("read_factor<{}>(factor{}, smem + {}, group % kColumnGroups * {});", turned_factor_box(p_, q), i, place, p_.turned / 8);
      place += turned_factor_bytes(p_, q);
    }
  }

  void loop() {
    for (size_t c = 0; c < p_.contractions.size(); c++) {
      if (plain(c)) line("TileRankSum<64, {}> part{};\n  part{}.clear();", weight_of(c).padded, c, c);
      line("TileSum<{}> sum{};\n  sum{}.clear();", tiles(c), c, c);
    }
    line("#pragma unroll");
    open("for (int s = 0; s < kChunks; s++) {{");
    line("mbarrier_wait(full + 8 * s, 0);");
    for (size_t i = 0; i < p_.small.size(); i++)
      line("const uint32_t rows{} = ring + s * kStage + {} + group / kColumnGroups * {};", i, p_.small[i].offset, 64 * 128);
    for (size_t i = 0; i < p_.weights.size(); i++) {
      const StreamWeight& w = p_.weights[i];
      if (w.packed)
        line("const TileRank<{}, {}, false, true> w{}{{smem + {} + s * {}}};", weight_type(w), w.padded, i, w.offset,
             p_.chunk * w.extent * 2);
      else
        line("const uint32_t w{} = ring + s * kStage + {}{};", i, w.offset,
             w.free != Axis::kCol || p_.column_groups == 1 ? "" : group_offset(w));
    }
    pin();
    line("wgmma_fence();");
    line("#pragma unroll");
    open("for (int k = 0; k < {}; k++) {{", p_.chunk / 16);
    for (size_t c = 0; c < p_.contractions.size(); c++) {
      if (plain(c)) continue;
      const StreamWeight& w = weight_of(c);
      line("wgmma_rows<{}, {}>(sum{}.d, wgmma_tile(rows{}, 16) + 2 * k, wgmma_tile(w{}, {}) + {} * k);", weight_type(w),
           w.depth_major ? 0 : 1, c, p_.small_of[c], p_.contractions[c].weight, w.depth_major ? 16 : p_.chunk * 128,
           w.depth_major ? 2 : 128);
    }
    close();
    line("wgmma_commit();");
    if (std::any_of(p_.weights.begin(), p_.weights.end(), [](const StreamWeight& w) { return w.packed; }))
      line("if (s == 0) mbarrier_wait(ranks, 0);");
    for (size_t c = 0; c < p_.contractions.size(); c++)
      if (plain(c))
        line("part{}.add<{}>(w{}, smem + s * kStage + {} + group / kColumnGroups * {}, 0);", c, p_.chunk / 16, p_.contractions[c].weight,
             p_.small[at(p_.small_of[c])].offset, 64 * 128);
    close();
    read_factors();
    line("wgmma_wait<0>();");
    pin();
  }
  /// From one warpgroup's columns of a stage to the next one's.
  std::string group_offset(const StreamWeight& w) const {
    if (w.depth_major) return fmt::format(" + group % kColumnGroups * {}", p_.turned * 128);
    return fmt::format(" + group % kColumnGroups * {}", p_.turned / 64 * p_.chunk * 128);
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
      for (auto [q, f] : s.products)
        line("add_rows_product(total{}, factor{}, sum{}, {}, {});", i, q, p_.products[at(q)].contraction, CudaText().constant(f),
             gain(at(q)));
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
    return stores_lines(p_, n) && has(v, Axis::kCol) && p_.cols % 8 == 0 && stride_of(a, axes, Axis::kRow) % 8 == 0 &&
           stride_of(a, axes, Axis::kBatch) % 8 == 0 && a.jump % 8 == 0 && a.offset % 8 == 0;
  }
  void store_result(NodeId output, const std::string& text) override {
    if (!whole_lines(output)) { StreamText::store_result(output, text); return; }
    const Access& a = s_.results[at(g_.form<Output>(output)->result)];
    const int64_t rs = stride_of(a, s_.axes[at(g_.node(output).operands[0])], Axis::kRow);
    line("lines{}.put(t % 4, {}, {}());", output, text, cuda_type(a));
    line("if (t % 4 == 3) lines{}.store_all({} + m * int64_t({}) + {}, {}, kM - m, kN - column - (t - 3) * 8);", output,
         result_pointer(output), rs, a.run > 0 ? column_place(a, 1, "(column + (t - 3) * 8)") : "column + (t - 3) * 8", rs);
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
  bool waits_;
};

TensorMapText weight_map(const TilePlan& p, const StreamWeight& w) {
  return stream_weight_map(p, w, w.depth_major ? (w.free == StreamAxis::kCol ? 64 : w.padded) : 64,
                           static_cast<int>(w.packed ? p.chunks * p.chunk : p.chunk));
}

TensorMapText factor_map(const TilePlan& p, const StreamProduct& q) {
  const Access& a = p.operands[static_cast<size_t>(p.body.form<Input>(q.input)->param)];
  const StreamWeight& w = p.weights[static_cast<size_t>(p.contractions[static_cast<size_t>(q.contraction)].weight)];
  const auto& axes = p.axes[static_cast<size_t>(p.body.node(q.input).first_value)];
  const int size = dtype_bytes(a.dtype);
  TensorMapText m;
  m.buffer = a.buffer;
  m.offset_bytes = a.offset * size;
  m.dtype = a.dtype;
  m.dims = {p.cols, w.extent};
  m.strides = {q.rank_stride * size};
  m.box = {64, w.padded};
  m.swizzle = 128;
  for (size_t d = 0; d < axes.size(); d++) {
    if (axes[d] != StreamAxis::kBatch || a.strides[static_cast<int>(d)] == 0) continue;
    m.dims.push_back(p.batch);
    m.strides.push_back(a.strides[static_cast<int>(d)] * size);
    m.box.push_back(1);
  }
  return m;
}

}  // namespace

KernelText emit_turned_kernel(const KernelPlan& kernel, const TilePlan& p) {
  TurnedEmitter emitter(p, kernel.early);
  KernelText k;
  k.name = kernel.name;
  for (const StreamWeight& w : p.weights) k.maps.push_back(weight_map(p, w));
  for (const TileRows& r : p.small) k.maps.push_back(tile_rows_map(p, r));
  for (const StreamProduct& q : p.products) if (copied_factor(p, q)) k.maps.push_back(factor_map(p, q));
  assemble_tile_kernel(k, kernel, p, emitter.pointer_params(), emitter.body());
  return k;
}

}  // namespace mirage

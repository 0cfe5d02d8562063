// Emits a tile kernel whose rows are the 64-row operand of wgmma (plan/tile/tile_turned.cc), from its program: one thread asks for
// everything at once by tensor copies, warpgroups multiply chunk by chunk as it arrives, a low rank rides along as columns of its own, and
// what follows the sums stays in registers. Device library: runtime/69_turned.cuh; the text of the tail is matrix_text.cc's, with rows and
// columns of an item the other way round.
#include "codegen/kernels/tile_turned.h"

#include <algorithm>

#include "codegen/program/warpgroup_text.h"

namespace mirage::schedule {
namespace {

constexpr int64_t kLine = 128;   // bytes of a swizzled line

class TurnedEmitter : public WarpgroupText {
 public:
  /// waits: it is started while the kernel ahead of it still runs.
  TurnedEmitter(const KernelProgram& p, const Derived& d, bool waits) : WarpgroupText(p, d), waits_(waits) {}

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

 private:
  bool turned() const override { return true; }
  bool mapped(NodeId n) const override { return WarpgroupText::mapped(n) && !m_.tail_leaves().count(n); }
  /// A low rank whose lines are copied as they lie; warps add it up by mma.sync.
  bool is_plain(size_t c) const { return product(c).unit == UnitId::kSync16; }
  int64_t columns() const { return tile(m_.columns()); }                         // of a warpgroup
  int64_t sum_columns(size_t c) const { return place(product(c)).box[1]; }       // of it, or a low rank's
  /// Copies of weights and of rows, chunk by chunk, and those of what comes whole.
  std::vector<const Stage*> copies_to(bool ring) const {
    std::vector<const Stage*> out;
    for (const Stage* s : mapped_stages()) if ((place(*s).section == this->ring()) == ring) out.push_back(s);
    return out;
  }
  int64_t bytes_of(const std::vector<const Stage*>& copies) const {
    int64_t n = 0;
    for (const Stage* s : copies) n += place(*s).bytes();
    return n;
  }
  std::vector<const Stage*> plain_copies() const {
    std::vector<const Stage*> out;
    for (const Stage* s : copies_to(false)) if (is_weight(input(*s))) out.push_back(s);
    return out;
  }
  std::vector<const Stage*> factor_copies() const {
    std::vector<const Stage*> out;
    for (const Stage* s : copies_to(false)) if (!is_weight(input(*s))) out.push_back(s);
    return out;
  }
  int64_t factor_box(const Stage& s) const { return place(s).box[1] * kLine; }   // bytes of 64 columns

  void constants() {
    line("constexpr int kTail = {}, kColumnGroups = {}, kRowBlocks = {}, kChunks = {}, kStage = {};   // kTail: items of 8 columns each",
         columns() / 8, column_groups(), parts(m_.rows(), AxisKind::kGrid), iterations(), slot_bytes());
    line("constexpr int kM = {}, kN = {};", m_.extent(m_.rows()), m_.extent(m_.columns()));
    line("extern __shared__ __align__(1024) unsigned char tile_smem[];");
    line("unsigned char* const smem = tile_smem;");
    line(
        "const int lane = lane_id(), warp = warp_uniform(warp_id()), group = warp / 4, column0 = block_id() / kRowBlocks * {}, first_row = "
        "block_id() % kRowBlocks * {};",
        block_columns(), block_rows());
    line("const int column = column0 + group % kColumnGroups * {}, row = first_row + group / kColumnGroups * 64;   // of this warpgroup",
         columns());
    line("const uint32_t ring = shared_address(smem), full = ring + {}, ranks = full + 8 * kChunks, factors = ranks + 8;", barriers_at());
  }

  // ---- copies
  std::string slice(const Stage& copy) const { return stride(input(copy), m_.batch()) ? ", batch_id()" : ""; }
  void copies() {
    open("if (thread_id() == 0) {{   // asks for everything; first for what all blocks read alike");
    line("for (int s = 0; s < kChunks + 2; s++) mbarrier_init(full + 8 * s, 1);");
    line("mbarrier_publish();");
    if (const auto all = plain_copies(); !all.empty()) {
      line("mbarrier_expect(ranks, {});", bytes_of(all));
      for (const Stage* s : all)
        line("copy_box(ring + {}, map{}, 0, 0{}, ranks);", d_.place_at[at(s->to)], map_number(*s), slice(*s));
    }
    line("#pragma unroll");
    open("for (int s = 0; s < kChunks; s++) {{");
    line("const uint32_t to = ring + s * kStage, bar = full + 8 * s;");
    const std::vector<const Stage*> chunks = copies_to(true);
    line("mbarrier_expect(bar, {});", bytes_of(chunks));
    for (const Stage* s : chunks) {
      if (is_weight(input(*s))) copy_weight(*s);
      else line("copy_box(to + {}, map{}, s * {}, first_row{}, bar);", at_section(s->to), map_number(*s), chunk(), slice(*s));
    }
    close();
    if (const auto all = factor_copies(); !all.empty()) {
      line("mbarrier_expect(factors, {});", bytes_of(all));
      for (const Stage* s : all)
        for (int64_t c = 0; c < block_columns(); c += 64)
          line("copy_box(ring + {}, map{}, column0 + {}, 0{}, factors);", d_.place_at[at(s->to)] + c / 64 * factor_box(*s), map_number(*s),
               c, slice(*s));
    }
    close();
    line("barrier();");
  }
  void copy_weight(const Stage& s) {
    const bool wide = has(value(s), m_.columns()), deep = is_depth_major(s);
    for (int64_t c = 0; c < (wide ? block_columns() : 64); c += 64) {
      const std::string column = wide ? fmt::format("column0 + {}", c) : "0", depth = fmt::format("s * {}", chunk());
      line("copy_box(to + {}, map{}, {}, {}{}, bar);", at_section(s.to) + c * kLine, map_number(s), deep ? depth : column,
           deep ? column : depth, slice(s));
    }
  }

  // ---- second factors of low ranks
  const Stage& factor_copy(size_t i) const { return *m_.copy_of(gained(i).factor); }
  bool is_copied_factor(size_t i) const { return factor_copy(i).path == PathId::kTma; }
  int64_t padded_rank(size_t i) const { return sum_columns(at(number(gained(i).sum))); }
  void factors() {
    for (size_t i = 0; i < m_.second_factors().size(); i++) {
      const MatrixStages::Gained q = gained(i);
      const Stage& w = m_.weight(*q.sum);
      const int64_t pitch = stride(q.factor, m_.columns());
      line("RankFactor<{}, {}, {}> factor{};", cuda_type(tensor(q.factor).dtype), padded_rank(i), columns() / 16, i);
      if (!is_copied_factor(i))
        line("factor{}.fetch({} + column * int64_t({}), {}, {}, {}, kN - column);", i, pointer(q.factor), pitch,
             stride(q.factor, m_.free(w)), pitch, ranks(w));
      declare_gain(i, fmt::format("RankGain<{}, 2, 1>", padded_rank(i)), ranks(w));
    }
    declare_tail_loads();
    if (const std::string text = tail_loads(); !text.empty()) {
      line("#pragma unroll");
      line("for (int t = 0; t < kTail; t++) {{ {} (void)m, (void)c; {}}}", item_place(), text);
    }
  }
  void read_factors() {
    if (!factor_copies().empty()) line("mbarrier_wait(factors, 0);");
    for (size_t i = 0; i < m_.second_factors().size(); i++)
      if (is_copied_factor(i))
        line("read_factor<{}>(factor{}, smem + {}, group % kColumnGroups * {});", factor_box(factor_copy(i)), i,
             d_.place_at[at(factor_copy(i).to)], columns() / 8);
  }

  // ---- the loop
  void loop() {
    for (size_t c = 0; c < m_.products().size(); c++) {
      if (is_plain(c)) {
        line("TileRankSum<64, {}> part{};", sum_columns(c), c);
        line("part{}.clear();", c);
      }
      line("TileSum<{}> sum{};", sum_columns(c) / 8, c);
      line("sum{}.clear();", c);
    }
    line("#pragma unroll");
    open("for (int s = 0; s < kChunks; s++) {{");
    line("mbarrier_wait(full + 8 * s, 0);");
    for (size_t i = 0; i < operands().size(); i++)
      line("const uint32_t rows{} = ring + s * kStage + {} + group / kColumnGroups * {};", i, at_section(operands()[i]), 64 * kLine);
    for (size_t w = 0; w < m_.weights().size(); w++) declare_weight(w);
    pin();
    line("wgmma_fence();");
    line("#pragma unroll");
    open("for (int k = 0; k < {}; k++) {{", chunk() / 16);
    for (size_t c = 0; c < m_.products().size(); c++) if (!is_plain(c)) add_product(c);
    close();
    line("wgmma_commit();");
    if (!plain_copies().empty()) line("if (s == 0) mbarrier_wait(ranks, 0);");
    for (size_t c = 0; c < m_.products().size(); c++)
      if (is_plain(c))
        line("part{}.add<{}>(w{}, smem + s * kStage + {} + group / kColumnGroups * {}, 0);", c, chunk() / 16, weight_number(c),
             at_section(operand_of(c)), 64 * kLine);
    close();
    read_factors();
    line("wgmma_wait<0>();");
    pin();
  }
  void declare_weight(size_t w) {
    const Stage& x = *m_.weights()[w];
    if (is_packed(x)) {
      const auto rank = std::find_if(m_.products().begin(), m_.products().end(), [&](const Stage* s) { return &m_.weight(*s) == &x; });
      line("const TileRank<{}, {}, false, true> w{}{{smem + {} + s * {}}};", weight_type(x), place(**rank).box[1], w, d_.place_at[at(x.to)],
           chunk() * ranks(x) * 2);
      return;
    }
    line("const uint32_t w{} = ring + s * kStage + {}{};", w, at_section(x.to),
         !has(value(x), m_.columns()) || column_groups() == 1 ? "" : group_offset(x));
  }
  /// From one warpgroup's columns of a stage to the next one's.
  std::string group_offset(const Stage& w) const {
    return fmt::format(" + group % kColumnGroups * {}", is_depth_major(w) ? columns() * kLine : columns() / 64 * chunk() * kLine);
  }
  void add_product(size_t c) {
    const Stage& w = weight_of(c);
    const bool deep = is_depth_major(w);
    line("wgmma_rows<{}, {}>(sum{}.d, wgmma_tile(rows{}, 16) + 2 * k, wgmma_tile(w{}, {}) + {} * k);", weight_type(w), deep ? 0 : 1, c,
         operand_number(c), weight_number(c), deep ? 16 : chunk() * kLine, deep ? 2 : 128);
  }
  void pin() {
    for (size_t c = 0; c < m_.products().size(); c++) if (!is_plain(c)) line("wgmma_pin(sum{}.d);", c);
  }

  void sums() {
    for (size_t c = 0; c < m_.products().size(); c++) if (is_plain(c)) line("part{}.total(sum{});", c, c);
    for (size_t i = 0; i < m_.totals().size(); i++) {
      declare_total(i, "TileSum<kTail>");
      for (const MatrixStages::Term& t : m_.terms(value(*m_.totals()[i])))
        if (t.is_behind)
          line("add_rows_product(total{}, factor{}, sum{}, {}, {});", i, t.number, number(gained(at(t.number)).sum),
               CudaText().constant(t.factor), gain(at(t.number)));
    }
  }

  // ---- the tail
  std::string item_place() const { return "const int m = row + (warp & 3) * 16 + lane / 4, c = column + t * 8 + lane % 4 * 2;"; }
  std::string sum_item(size_t i) const override { return fmt::format("total{}.item(t)", i); }
  std::string statistic_parts() const override { return "1"; }
  std::string loop_leaf(ValueId) const override { return ""; }   // nothing is computed in the loop
  int64_t result_stride(NodeId output, IndexId i) const { return stride_of(result(output), stored_by(output), i); }
  /// Whether an output's lines are whole pieces of eight columns.
  bool whole_lines(NodeId n) const {
    const Param& a = result(n);
    const ValueId v = stored_by(n);
    return dtype_bytes(a.dtype) == 2 && result_stride(n, m_.columns()) == 1 && has(v, m_.rows()) && m_.extent(m_.columns()) % 8 == 0 &&
           result_stride(n, m_.rows()) % 8 == 0 && result_stride(n, m_.batch()) % 8 == 0 && a.jump % 8 == 0 && a.offset % 8 == 0;
  }
  void store_result(NodeId output, const std::string& text) override {
    if (!whole_lines(output)) { MatrixText::store_result(output, text); return; }
    const Param& a = result(output);
    const int64_t rs = result_stride(output, m_.rows());
    line("lines{}.put(t % 4, {}, {}());", output, text, a.tf32 ? "tf32" : cuda_type(a.dtype));
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

  bool waits_;
};

}  // namespace
}  // namespace mirage::schedule

namespace mirage {

KernelText emit_turned_kernel(const KernelPlan& kernel, const schedule::KernelProgram& p, const schedule::Derived& d,
                              const KernelCall& call) {
  schedule::TurnedEmitter emitter(p, d, kernel.early);
  const std::string body = emitter.body();
  return emitter.text(kernel, call, body);
}

}  // namespace mirage

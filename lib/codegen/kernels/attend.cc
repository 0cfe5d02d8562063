// Emits an attention kernel from its program (docs/schedule.md): a struct with its numbers, the copies, and one function per elementwise
// part; the kernel itself is a call of the device library (runtime/61_attend.cuh), which instantiates its loop over that struct.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "codegen/program/attend_elements.h"
#include "codegen/program/attention_view.h"
#include "codegen/program/bound_program.h"
#include "codegen/kernels/cuda_text.h"
#include "mirage/codegen/module.h"
#include "mirage/plan/hints.h"
#include "mirage/plan/describe.h"
#include "mirage/support/assert.h"
#include "mirage/support/round.h"

namespace mirage::schedule {
namespace {

class AttendEmitter {
 public:
  using Region = AttendElements::Region;

  /// early: it is started while the kernel ahead of it still runs, and asks for keys and values before that one has finished.
  AttendEmitter(const KernelProgram& p, const Derived& d, const KernelCall& bound, const KernelPlan& kernel, bool early)
      : p_(p), d_(d), a_(p, d), e_(a_), bound_(bound), name_(kernel.name), slots_(kernel.slots), early_(early) {}

  KernelText run(const std::string& why) {
    KernelText k;
    k.name = name_;
    // these say which operands are read through pointers
    const std::string functions = (a_.is_wide() ? wide_copies(k) : copies(k)) + row() + gain() + logit() + known() + weight() + after();
    pass_arguments(k);
    k.grid = {d_.blocks, 1, 1};
    k.threads = d_.threads;
    k.smem_bytes = d_.smem_bytes;
    k.source =
        fmt::format("// {}\nstruct {}_parts {{\n{}  struct Args {{ {}}};\n{}{}}};\n", why, name_, numbers(), fields_, place(), functions);
    k.source += fmt::format(
        "__global__ void {}__launch_bounds__({}, {}) {}({}) {{\n  extern __shared__ __align__(1024) unsigned char attend_smem[];\n  "
        "mo::{}<{}_parts>({{{}}}, attend_smem);\n}}\n",
        d_.cluster > 1 ? fmt::format("__cluster_dims__({}, 1, 1) ", d_.cluster) : "", d_.threads, p_.per_sm, name_, params_,
        a_.is_wide() ? "attend_wide" : "attend", name_, list_);
    return k;
  }

 private:
  // ---- arguments: tensor maps, pointers, slots
  bool has_key_parts() const { return a_.first_keys() > 0; }           ///< keys and values lie in two parts along the keys
  bool has_feature_parts() const { return a_.first_features() > 0; }   ///< queries and keys, along the features
  void pass(const std::string& type, const std::string& declared, const std::string& field, const std::string& value) {
    fields_ += fmt::format("{} {}; ", type, field);
    params_ += (params_.empty() ? "" : ", ") + declared;
    list_ += (list_.empty() ? "" : ", ") + value;
  }
  void pass_arguments(KernelText& k) {
    for (const auto& [field, is_there] : {std::pair{"q", true},
                                          {"q_second", has_feature_parts()},
                                          {"k", true},
                                          {"v", has_values()},
                                          {"k_second", has_key_parts() || has_feature_parts()},
                                          {"v_second", has_values() && has_key_parts()}})
      if (const std::string map = fmt::format("map_{}", field); is_there)
        pass("const mo::TensorMap*", "const __grid_constant__ mo::TensorMap " + map, field, "&" + map);
    const auto pointer = [&](const std::string& type, const std::string& name, int buffer, bool is_written) {
      k.args.push_back(buffer);
      k.written.push_back(is_written);
      pass(type, fmt::format("{} __restrict__ {}", type, name), name, name);
    };
    for (int param : e_.pointers()) pointer("const void*", fmt::format("in{}", param), bound_.operands[at(param)].buffer, false);
    for (int r = 0; r < results(); r++) pointer("void*", fmt::format("out{}", r), bound_.results[at(r)].buffer, true);
    if (a_.meets() == 1) return;
    pointer("void*", "slots", slots_, true);
    k.cooperative = true;
  }
  /// Whether V is copied; otherwise its columns are K's.
  bool has_values() const { return a_.copy_of(a_.v.input)->path != PathId::kSame; }

  // ---- numbers
  template <class T> static std::string constants(const char* type, std::initializer_list<std::pair<const char*, T>> list) {
    std::string out;
    for (const auto& [key, value] : list) out += fmt::format("{}{} = {}", out.empty() ? "" : ", ", key, value);
    return fmt::format("  static constexpr {} {};\n", type, out);
  }
  static std::string ints(std::initializer_list<std::pair<const char*, int64_t>> list) { return constants("int", list); }
  static std::string flags(std::initializer_list<std::pair<const char*, bool>> list) { return constants("bool", list); }
  DType dtype() const { return a_.place_of(a_.q).dtype; }
  /// Behind these a row of Q and K, or of V, is padding that matrix instructions need not multiply.
  int64_t used_features() const {
    return a_.is_wide() || has_feature_parts() ? a_.padded_features() : round_up(a_.extent(a_.feature), 16);
  }
  int64_t used_columns() const { return a_.is_wide() ? a_.padded_columns() : round_up(a_.extent(a_.column), 16); }
  bool has_gains() const { return !a_.chain(a_.gained).empty(); }
  std::string numbers() const {
    const int64_t groups = a_.query_groups() * a_.key_groups();
    std::string out = fmt::format("  using T = {};\n", storage_type(dtype()));
    out += ints({{"kQueries", a_.extent(a_.query)}, {"kKeys", a_.extent(a_.key)}, {"kFeatures", a_.padded_features()},
                 {"kColumns", a_.padded_columns()}, {"kLiveColumns", a_.extent(a_.column)}, {"kFeatureSteps", used_features() / 16},
                 {"kUsedColumns", used_columns()}, {"kSums", 1}});
    out += ints({{"kQueryGroups", a_.query_groups()}, {"kKeyGroups", a_.key_groups()}, {"kGroups", groups}, {"kGroupRows", a_.group_rows()},
                 {"kGroupThreads", 32 * a_.work().warps / groups}, {"kChunk", a_.chunk()}, {"kStages", a_.stages()},
                 {"kCluster", d_.cluster}, {"kRows", rows_owned()}, {"kEvenChunks", even_chunks()}});
    out += ints({{"kHelpers", a_.helpers()}, {"kProducers", a_.producers()}, {"kKeyKnown", int64_t(a_.key_known().size())},
                 {"kValueKnown", int64_t(a_.value_known().size())}, {"kGrow", a_.work().registers}, {"kShrink", a_.lent_registers()}});
    out += places() + choices() + ints({{"kMeets", a_.meets()}, {"kTiles", a_.tiles()}});
    if (has_key_parts()) out += ints({{"kFirstKeys", a_.first_keys()}});
    return a_.is_wide() ? out + wide_numbers() : out;
  }
  /// Rows of a tile that a block of its cluster has at the end.
  int64_t rows_owned() const {
    if (a_.is_wide()) return 0;   // it has columns
    return ceil_div(std::min(a_.group_rows() * a_.query_groups(), round_up(a_.extent(a_.query), d_.cluster)), int64_t{d_.cluster});
  }
  /// Chunks of every warpgroup of every block, if they all have as many; else 0.
  int64_t even_chunks() const {
    const int64_t parts = d_.cluster * a_.meets() * a_.key_groups();
    return !a_.has_live_tiles() && a_.chunks() % parts == 0 ? a_.chunks() / parts : 0;
  }
  /// What a fold's parts are while they travel. Where nothing meets, nothing does.
  DType parts_type() const {
    const Stage* fold = a_.fold_over(AxisKind::kCluster);
    if (!fold) fold = a_.fold_over(AxisKind::kGrid);
    return fold ? a_.place(fold->through[0]).dtype : DType::kF32;
  }
  int received() const {
    const Stage* fold = a_.fold_over(AxisKind::kCluster);
    return fold ? a_.place(fold->through.back()).section : -1;
  }
  int section_of_barriers() const {
    for (size_t s = 0; s < p_.sections.size(); s++) if (p_.sections[s].barriers) return static_cast<int>(s);
    return -1;
  }
  std::string places() const {
    const int ring = a_.place_of(a_.k).section;
    const int64_t bars = d_.section_at[at(section_of_barriers())], record = a_.padded_columns() * dtype_bytes(parts_type()) + 8;
    const bool is_wide = a_.is_wide();
    return ints({{"kKeyBytes", a_.chunk() * a_.padded_features() * 2}, {"kValueBytes", a_.chunk() * a_.padded_columns() * 2},
                 {"kRingAt", d_.section_at[at(ring)]}, {"kKnownAt", is_wide ? 0 : a_.section_at(a_.known_section(), ring)},
                 {"kReceiveAt", received() >= 0 ? d_.section_at[at(received())] : bars}, {"kBarsAt", bars},
                 {"kRecordBytes", is_wide ? 0 : record}, {"kRecordPitch", is_wide ? 0 : round_up(record, 16)}});
  }
  /// Sums of squares on tensor cores: where warpgroups divide the keys, these have no time for them (32 normed heads: 29.96 us with, 27.95
  /// without; with one group of keys 28.58 and 30.13).
  bool squares_pay() const { return a_.is_refilled_by_others() && a_.key_groups() == 1; }
  /// Float16 factors of weights that have nothing else: two at a time.
  bool has_paired_factors() const { return a_.value_factor() >= 0 && is16(a_.place(a_.value_factor()).dtype); }
  std::string choices() const {
    return flags({{"kWarpRings", a_.has_warp_rings()}, {"kProducer", a_.is_refilled_by_others()}, {"kTurns", a_.work().turns},
                  {"kEarly", early_}, {"kPlainLogit", a_.is_plain()}, {"kHugeLogits", a_.may_be_huge()},
                  {"kPlainWeight", a_.share == a_.weights && a_.value_factor() < 0}, {"kNarrowParts", is16(parts_type())},
                  {"kPairFactors", has_paired_factors()}, {"kKeyLinesAlongKeys", a_.k.lines_along_rows},
                  {"kValueLinesAlongKeys", a_.v.lines_along_rows}, {"kVectorStores", stores_vectors()}, {"kQueryGains", has_gains()},
                  {"kFloat16", dtype() == DType::kF16}, {"kKeySquares", e_.squares_keys() && squares_pay()},
                  {"kValueSquares", e_.squares_values() && squares_pay()}});
  }
  std::string wide_numbers() const {
    const Stage* parts = a_.fold_over(AxisKind::kWarp);
    const auto section_at = [&](PlaceId x) { return d_.section_at[at(a_.place(x).section)]; };
    const int64_t value_box = has_values() ? 0 : (a_.param(a_.v.input).offset - a_.param(a_.k.input).offset) / 64;
    const int64_t bars = d_.section_at[at(section_of_barriers())];
    return ints({{"kBoxes", a_.padded_features() / 64}, {"kValueBoxes", a_.value_boxes()}, {"kValueBox", value_box},
                 {"kScoresAt", section_at(parts->through[0])}, {"kWeightsAt", section_at(a_.rounded)},
                 {"kStatisticsAt", section_at(a_.state)}, {"kReceivedAt", received() >= 0 ? d_.section_at[at(received())] : bars}}) +
           flags({{"kRefills", a_.tiles_of_block(a_.key) > a_.stages()}});
  }

  // ---- which block is where
  int64_t batches() const {
    int64_t n = 1;
    for (int64_t e : a_.batch()) n *= e;
    return n;
  }
  int64_t tile_rows() const { return a_.group_rows() * a_.query_groups(); }
  std::string place() const {
    if (a_.has_live_tiles()) return place_limited();
    return place_all() + (a_.is_wide() || a_.is_plain() ? "" : clear());
  }
  std::string place_all() const {
    std::string text = "  static MO_FN mo::AttendPlace place() {\n    const int id = mo::block_id();\n    mo::AttendPlace at;\n";
    const int64_t parts = d_.cluster * a_.meets(), own = a_.tiles_of_block(a_.key);
    if (a_.meets() == 1)
      text += fmt::format(
          "    at.rank = id % {0};\n    at.group = 0;\n    at.tile = id / {0} % {1};\n    at.batch = id / {2};\n    at.first = at.rank * "
          "{3};\n",
          d_.cluster, a_.tiles(), d_.cluster * a_.tiles(), own);
    else
      text += fmt::format(
          "    at.rank = id % {0};\n    at.group = id / {0} % {4};\n    at.tile = id / {5} % {1};\n    at.batch = id / {2};\n    at.first "
          "= (at.group * {0} + at.rank) * {3};\n",
          d_.cluster, a_.tiles(), parts * a_.tiles(), own, a_.meets(), parts);
    if (own * parts == a_.chunks()) text += fmt::format("    at.chunks = {};\n", own);
    else text += fmt::format("    at.chunks = at.first + {0} < {1} ? {0} : {1} - at.first;\n", own, a_.chunks());
    return text + "    return at;\n  }\n";
  }
  /// How many batches' keys and values may be in L2 together: a good third of it, of sm_90's 50 MB.
  int64_t together() const {
    const int64_t bytes = a_.extent(a_.key) * (a_.extent(a_.feature) + a_.extent(a_.column)) * 2;
    return std::clamp<int64_t>((int64_t{20} << 20) / bytes, 1, batches());
  }
  /// The chunk that has a key.
  std::string chunk_of(const std::string& key) const {
    if (!has_key_parts()) return fmt::format("{} / {}", key, a_.chunk());
    return fmt::format("({0} < kFirstKeys ? {0} / {1} : {2} + ({0} - kFirstKeys) / {1})", key, a_.chunk(),
                       ceil_div(a_.first_keys(), a_.chunk()));
  }
  /// The tiles with the most chunks of all batches start first, so that the last to end are short; but only as many batches side by side as
  /// L2 holds the keys and values of.
  std::string place_in_sections(const Band& band) const {
    const int64_t side = together(), whole = batches() / side * side, last = batches() - whole;
    const std::string reversed = band.last ? fmt::format("{} - ", a_.tiles() - 1) : "";
    if (last == 0)
      return fmt::format(
          ", in_section = item % {0};\n    at.tile = {1}in_section / {2};\n    at.batch = item / {0} * {2} + in_section % {2};\n",
          side * a_.tiles(), reversed, side);
    return fmt::format(
        ", in_section = item % {0}, first = item / {0} * {2}, side = first < {3} ? {2} : {4};\n    at.tile = {1}in_section / side;\n    "
        "at.batch = first + in_section % side;\n",
        side * a_.tiles(), reversed, side, whole, last);
  }
  std::string place_limited() const {
    const Band band = a_.band();
    const int64_t queries = a_.extent(a_.query);
    std::string text = "  static MO_FN mo::AttendPlace place() {\n    const int id = mo::block_id();\n    mo::AttendPlace at;\n";
    text += fmt::format("    at.rank = id % {0};\n    at.group = 0;\n    const int item = id / {0}", d_.cluster) + place_in_sections(band);
    text += fmt::format(
        "    const int first_query = at.tile * {}, last_query = first_query + {} < {} ? first_query + {} : {};\n    int begin = 0, end = "
        "{};\n",
        tile_rows(), tile_rows() - 1, queries, tile_rows() - 1, queries - 1, a_.chunks());
    text += "    if (mo::masks_skip()) {\n";
    if (band.first)
      text += fmt::format("      begin = first_query + ({0}) > 0 ? {1} : 0;\n", *band.first,
                          chunk_of(fmt::format("(first_query + ({}))", *band.first)));
    if (band.last)
      text += fmt::format("      const int last_key = last_query + ({0});\n      if ({1} + 1 < end) end = last_key < 0 ? 0 : {1} + 1;\n",
                          *band.last, chunk_of("last_key"));
    text += fmt::format(
        "      if (begin > end) begin = end;\n    }}\n    const int part = (end - begin + {0}) / {1};\n    at.first = begin + at.rank * "
        "part;\n    at.chunks = at.first + part < end ? part : end - at.first;\n    if (at.chunks < 0) at.chunks = 0;\n    return at;\n  "
        "}}\n",
        d_.cluster - 1, d_.cluster);
    return text + clear();
  }
  /// Whether no key of a chunk is removed for these queries, and the logit is the bare score then.
  std::string clear() const {
    std::string test = "false";
    if (const Band band = a_.band(); band.only && a_.has_live_tiles()) {
      test = "mo::masks_skip()";
      if (band.last) test += fmt::format(" && key0 + {} <= first_query + ({})", a_.chunk() - 1, *band.last);
      if (band.first) test += fmt::format(" && key0 >= last_query + ({})", *band.first);
    }
    return "  static MO_FN bool clear(int key0, int first_query, int last_query) { return " + test + "; }\n";
  }

  // ---- tensor copies
  static int64_t batch_stride(const Param& a) {
    for (int d = a.dims.rank() - 3; d >= 0; d--) if (a.dims[d] > 1) return a.strides[d];
    return a.strides[a.dims.rank() - 2];
  }
  /// What lies in one part of a tensor, and in which buffer: all of it; where its keys or features lie in two, those before their end or
  /// those behind it. In one piece, these follow.
  struct Part { Param of; int buffer = -1; };
  Part part_of(const MatrixOperand& t, bool is_second) const {
    const int number = a_.body().def_form<Input>(t.input)->param;
    Part out{p_.params[at(number)], bound_.operands[at(number)].buffer};
    Param& a = out.of;
    if (has_feature_parts() ? &t == &a_.v : !has_key_parts() || &t == &a_.q) return out;
    const int dim = has_feature_parts() ? t.col_dim : t.row_dim;
    const int64_t first = has_feature_parts() ? a_.first_features() : a_.first_keys();
    if (!is_second) { a.dims[dim] = first; return out; }
    a.dims[dim] -= first;
    if (a.second.dim < 0) { a.offset += first * a.strides[dim]; return out; }
    out.buffer = bound_.operands[at(number)].second.buffer;
    a.offset = a.second.offset;
    a.strides = a.second.strides;
    return out;
  }
  /// Whether batches follow each other like lines, and no box reaches beyond its batch: then lines of all batches are counted through, and
  /// the map has two dimensions.
  bool counts_through(const MatrixOperand& t, const Param& a, int64_t lines) const {
    const std::vector<int64_t> batch = a_.batch();
    const int rank = static_cast<int>(batch.size());
    if (t.lines_along_rows || a.dims[t.row_dim] % lines != 0 || rank + 2 != a.dims.rank()) return false;
    int64_t next = a.dims[t.row_dim] * a.strides[t.row_dim];
    for (int d = rank - 1; d >= 0; d--) {
      if (a.dims[d] != batch[at(d)] || (a.dims[d] > 1 && a.strides[d] != next)) return false;
      next *= a.dims[d];
    }
    return next / a.strides[t.row_dim] < (int64_t{1} << 31);
  }
  /// Where a map's boxes lie: text that comes before the number of a line, and the coordinates of the batch.
  struct MapText { std::string first, batch; };
  /// Adds the map of a tensor (of its second part) cut into boxes of 64 elements along its lines and `lines` of them.
  MapText add_map(KernelText& k, const MatrixOperand& t, int64_t lines, bool is_second) const {
    const Part part = part_of(t, is_second);
    const Param& a = part.of;
    const int along = t.lines_along_rows ? t.row_dim : t.col_dim, across = t.lines_along_rows ? t.col_dim : t.row_dim;
    const int rank = static_cast<int>(a_.batch().size());
    TensorMapText m;
    m.buffer = part.buffer;
    m.offset_bytes = a.offset * 2;
    m.dtype = a.dtype;
    m.swizzle = a_.place_of(a_.k).swizzle;
    m.dims = {a.dims[along], a.dims[across]};
    m.strides = {a.dims[across] > 1 ? a.strides[across] * 2 : round_up(a.dims[along] * 2, 16)};
    m.box = {64, static_cast<int>(lines)};
    MapText out;
    const bool is_through = counts_through(t, a, lines);
    if (is_through) {
      if (batches() > 1) out.first = fmt::format("at.batch * {} + ", a.dims[across]);
      if (a.dims[across] == 1 && batches() > 1) m.strides[0] = batch_stride(a) * 2;
      m.dims[1] *= batches();
    }
    for (int d = is_through ? -1 : rank - 1; d >= 0; d--) {
      const int own = d - (rank + 2 - a.dims.rank());
      if (own < 0 || a.dims[own] == 1 || a.strides[own] == 0) continue;
      m.dims.push_back(a.dims[own]);
      m.strides.push_back(a.strides[own] * 2);
      m.box.push_back(1);
      out.batch += ", " + e_.batch_index(d);
    }
    k.maps.push_back(m);
    return out;
  }
  const char* policy(const MatrixOperand& t) const { return a_.copy_of(t.input)->evict_first ? ", mo::evict_first_policy()" : ""; }
  /// Coordinates of a box, text: along its lines ({} for how many boxes it is behind the first), of its first line, of its batch.
  struct Coordinates { std::string along, across, batch; };
  /// The copies of one chunk of keys: `of` writes those from the map that it is told, each at some coordinates.
  template <class F>
  std::string chunk_copies(const std::string& name, const std::string& more, const std::array<Coordinates, 2>& where, F of) const {
    std::string out = fmt::format(
        "  static MO_FN void copy_{}(const Args& a, const mo::AttendPlace& at, uint32_t to, {}int key, uint32_t bar) {{\n", name, more);
    if (!has_key_parts()) return out + of(name, where[0], "    ") + "  }\n";
    out += "    if (key < kFirstKeys) {\n" + of(name, where[0], "      ");
    return out + "    } else {\n      key -= kFirstKeys;\n" + of(name + "_second", where[1], "      ") + "    }\n  }\n";
  }
  /// Whether a box of 64 features is one of their second part.
  bool is_second(int64_t box) const { return has_feature_parts() && box >= a_.first_boxes(); }
  std::string copy(const char* name, const MatrixOperand& t, int64_t boxes, int64_t lines, const std::array<Coordinates, 2>& where) const {
    return chunk_copies(name, "", where, [&](const std::string& map, const Coordinates& of, const char* indent) {
      std::string out;
      for (int64_t b = 0; b < boxes; b++) {
        const bool second = name[0] == 'k' && is_second(b);
        const Coordinates& c = second ? where[1] : of;
        out += fmt::format("{}mo::copy_box(to + {}, *a.{}, {}, {}{}, bar{});\n", indent, b * lines * 128, second ? "k_second" : map,
                           fmt::format(fmt::runtime(c.along), 64 * (second ? b - a_.first_boxes() : b)), c.across, c.batch, policy(t));
      }
      return out;
    });
  }
  std::string query_copies(KernelText& k) const {
    std::string out = "  static MO_FN void copy_q(const Args& a, const mo::AttendPlace& at, uint32_t to, uint32_t bar) {\n";
    std::array<Coordinates, 2> of_q;
    for (size_t second = 0; second < (has_feature_parts() ? 2 : 1); second++) {
      const MapText q = add_map(k, a_.q, a_.extent(a_.query) % tile_rows() == 0 ? tile_rows() : 64, second == 1);
      k.maps.back().box[1] = static_cast<int>(a_.group_rows());
      of_q[second] = {"{}", fmt::format("{}at.tile * {}", q.first, tile_rows()), q.batch};
    }
    const int64_t boxes = a_.padded_features() / 64;
    for (int64_t i = 0; i < a_.query_groups(); i++)
      for (int64_t b = 0; b < boxes; b++) {
        const bool second = is_second(b);
        const Coordinates& c = of_q[second];
        out += fmt::format("    mo::copy_box(to + {}, *a.{}, {}, {} + {}{}, bar);\n", (i * boxes + b) * a_.group_rows() * 128,
                           second ? "q_second" : "q", 64 * (second ? b - a_.first_boxes() : b), c.across, a_.group_rows() * i, c.batch);
      }
    return out + "  }\n";
  }
  std::string copies(KernelText& k) const {
    std::string out = query_copies(k);
    const int64_t chunk = a_.chunk(), features = a_.padded_features(), columns = a_.padded_columns();
    std::array<Coordinates, 2> of_k, of_v;
    const auto coordinates = [](const MatrixOperand& t, const MapText& m) {
      return t.lines_along_rows ? Coordinates{"key + {}", "0", m.batch} : Coordinates{"{}", m.first + "key", m.batch};
    };
    for (size_t second = 0; second < (has_key_parts() || has_feature_parts() ? 2 : 1); second++) {
      of_k[second] = coordinates(a_.k, add_map(k, a_.k, a_.k.lines_along_rows ? features : chunk, second == 1));
      if (second == 1 && has_feature_parts()) continue;
      of_v[second] = coordinates(a_.v, add_map(k, a_.v, a_.v.lines_along_rows ? columns : chunk, second == 1));
    }
    const auto [k_lines, k_elements] = a_.k.lines_along_rows ? std::pair{features, chunk} : std::pair{chunk, features};
    const auto [v_lines, v_elements] = a_.v.lines_along_rows ? std::pair{columns, chunk} : std::pair{chunk, columns};
    return out + copy("k", a_.k, k_elements / 64, k_lines, of_k) + copy("v", a_.v, v_elements / 64, v_lines, of_v);
  }
  /// One box of 64 columns each, of any number.
  std::string wide_copies(KernelText& k) const {
    std::array<Coordinates, 2> of_q, of_k, of_v;
    const auto coordinates = [](const MapText& m, const char* line) { return Coordinates{"64 * box", m.first + line, m.batch}; };
    const size_t query_parts = has_feature_parts() ? 2 : 1, key_parts = has_key_parts() ? 2 : query_parts;
    for (size_t s = 0; s < query_parts; s++) of_q[s] = coordinates(add_map(k, a_.q, 16, s == 1), "at.tile * 16");
    for (size_t s = 0; s < key_parts; s++) {
      of_k[s] = coordinates(add_map(k, a_.k, a_.chunk(), s == 1), "key");
      if (has_values() && (s == 0 || has_key_parts())) of_v[s] = coordinates(add_map(k, a_.v, a_.chunk(), s == 1), "key");
    }
    const auto box = [&](const std::string& map, const Coordinates& c, const char* indent) {
      const MatrixOperand& t = map[0] == 'q' ? a_.q : map[0] == 'k' ? a_.k : a_.v;
      return fmt::format("{}mo::copy_box(to, *a.{}, {}, {}{}, bar{});\n", indent, map, c.along, c.across, c.batch, policy(t));
    };
    /// Of either part of the features.
    const auto boxes = [&](const std::string& map, const std::array<Coordinates, 2>& of) {
      if (!has_feature_parts()) return box(map, of[0], "    ");
      return fmt::format("    if (box < {0}) {{\n{1}    }} else {{\n      box -= {0};\n{2}    }}\n", a_.first_boxes(),
                         box(map, of[0], "      "), box(map + "_second", of[1], "      "));
    };
    std::string out = "  static MO_FN void copy_q(const Args& a, const mo::AttendPlace& at, uint32_t to, int box, uint32_t bar) {\n" +
                      boxes("q", of_q) + "  }\n";
    if (has_feature_parts())
      out += "  static MO_FN void copy_k(const Args& a, const mo::AttendPlace& at, uint32_t to, int box, int key, uint32_t bar) {\n" +
             boxes("k", of_k) + "  }\n";
    else out += chunk_copies("k", "int box, ", of_k, box);
    if (has_values()) return out + chunk_copies("v", "int box, ", of_v, box);
    return out + "  static MO_FN void copy_v(const Args&, const mo::AttendPlace&, uint32_t, int, int, uint32_t) {}\n";
  }

  // ---- what is computed once per query, feature or key
  ValueId operand(ValueId v) const { return a_.body().def(v).operands[0]; }
  std::string row() {
    std::string fields, body;
    Region r;
    for (ValueId v : e_.rows()) {
      fields += fmt::format("float v{}; ", v);
      const std::string text = e_.value(v, Asked::kQueryRow, r);
      body += fmt::format("    row.v{} = {};\n", v, text);
      if (e_.is_root(v)) {   // who divides by a root multiplies by its reciprocal
        fields += fmt::format("float r{}; ", v);
        body += fmt::format("    row.r{} = mo::rsqrt({});\n", v, e_.value(operand(v), Asked::kQueryRow, r));
      }
    }
    std::string out = fmt::format(
        "  struct Row {{ {}}};\n  template <class Tile> static MO_FN Row row(const Args& a, const mo::AttendPlace& at, const Tile& tile, "
        "int query) {{\n    Row row{{}};\n",
        fields);
    if (!e_.rows().empty()) out += fmt::format("    query = query < kQueries ? query : kQueries - 1;\n    {}\n{}", r.statements, body);
    out += "    return row;\n  }\n  static MO_FN float scale(const Row& row) {\n";
    Region none;
    const std::string x = e_.multiplied("1.0f", a_.scale(), Asked::kLogit, none);
    return out + fmt::format("    {}return {};\n  }}\n", none.statements, x);
  }
  /// What the gains of queries and of keys make of one feature.
  std::string gain() {
    if (!has_gains()) return "";
    Region r;
    const std::string x = e_.multiplied("mo::constant(1.0f)", a_.chain(a_.gained), Asked::kGain, r);
    return fmt::format(
        "  static MO_FN float gain(const Args& a, const mo::AttendPlace& at, int column) {{\n    if (column >= {}) return "
        "mo::constant(0.0f);\n    {}return {};\n  }}\n",
        a_.extent(a_.feature), r.statements, x);
  }
  /// A value of a key: the product of an operand's factors, which may not reach beyond the last key, or one of the graph.
  std::string known_value(PlaceId x, Asked where, Region& r) {
    const ValueId v = a_.place(x).value;
    if (x != a_.key_factor() && x != a_.value_factor()) return e_.value(v, where, r);
    std::string text = e_.multiplied("mo::constant(1.0f)", a_.chain(a_.untransposed(v)), where, r);
    if (x == a_.value_factor() && dtype() == DType::kF16) {
      const Range range = a_.range(v);
      if (!(range.low >= 0 && range.high <= 2048)) text = fmt::format("mo::attend_bound_factor(tile, {})", text);
    }
    return fmt::format("(inside ? {} : 0.0f)", text);   // rows beyond the last key are zeros, and their norm's reciprocal may be infinite
  }
  std::string known() {
    std::string out;
    for (const auto& [name, list, where] :
         {std::tuple{"key", &a_.key_known(), Asked::kKeyRow}, {"value", &a_.value_known(), Asked::kValueRow}}) {
      if (list->empty()) continue;
      out += fmt::format(
          "  template <class Tile> static MO_FN void {}_values(const Args& a, const mo::AttendPlace& at, const Tile& tile, int key, float* "
          "out, int r) {{\n    const bool inside = key < {};\n    key = inside ? key : kKeys - 1;\n",
          name, has_key_parts() ? "(key - r < kFirstKeys ? kFirstKeys : kKeys)" : "kKeys");
      Region r;
      std::string stores;
      for (size_t i = 0; i < list->size(); i++) {
        const std::string x = known_value((*list)[i], where, r);
        stores += is16(a_.place((*list)[i]).dtype) ? fmt::format("    reinterpret_cast<T*>(out)[r] = mo::store<T>({});\n", x)
                                                   : fmt::format("    out[{} * kChunk + r] = {};\n", i, x);
      }
      out += fmt::format("    {}\n{}  }}\n", r.statements, stores);
    }
    return out;
  }

  // ---- scores and weights
  static constexpr const char* kInside = "    query = query < kQueries ? query : kQueries - 1;\n    key = key < kKeys ? key : kKeys - 1;\n";
  std::string fetch() const {
    std::string fields, body;
    for (ValueId v : e_.fetched()) {
      const Param& a = a_.param(v);
      fields += fmt::format("mo::ElementVector<2, {}> of{}; ", storage_type(a.dtype), v);
      const std::string from = "&" + e_.element_of(v);
      // An ordinary load would move behind the waits, to where it is used.
      body += dtype_bytes(a.dtype) == 2
                  ? fmt::format("    to.of{}.words[0] = mo::read_now(reinterpret_cast<const unsigned*>({}));\n", v, from)
                  : fmt::format("    mo::hold(to.of{}, {});\n", v, from);
    }
    std::string out = fmt::format("  static constexpr bool kFetches = {};\n  struct Fetched {{ {}}};\n", !fields.empty(), fields);
    if (!fields.empty())
      out += fmt::format(
          "  static MO_FN void fetch(const Args& a, const mo::AttendPlace& at, Fetched& to, int query, int key) {{\n    query = query < "
          "kQueries ? query : kQueries - 1;\n    key = key < kKeys ? key : kKeys - 2;\n{}  }}\n",
          body);
    return out;
  }
  std::string logit() {
    Region r;
    const std::string x = a_.is_plain() ? "s" : e_.value(a_.logit, Asked::kLogit, r);
    return fetch() + fmt::format(
                         "  static MO_FN float logit(const Args& a, const mo::AttendPlace& at, float s, const Row& row, const float* "
                         "known, const Fetched& fetched, int c, int query, int key) {{\n{}    {}return {};\n  }}\n",
                         kInside, r.statements, x);
  }
  std::string weight() {
    Region r;
    std::string x = e_.value(a_.share, Asked::kWeight, r);
    if (a_.value_factor() >= 0) x = fmt::format("mo::mul({}, known[0])", x);
    return fmt::format(
        "  static MO_FN float weight(const Args& a, const mo::AttendPlace& at, float e, const Row& row, const float* known, int query, int "
        "key) {{\n{}    {}return {};\n  }}\n",
        kInside, r.statements, x);
  }

  // ---- behind the loop: results
  int results() const { return static_cast<int>(p_.results.size()); }
  ValueId stored(int r) const { return a_.place(a_.store(r).reads[0]).value; }
  /// Whether a result has columns; the others have an element per query.
  bool is_matrix(int r) const { return a_.indices(stored(r)).back() == a_.column; }
  /// Whether rows of a result can be written `n` elements at a time.
  bool stores_together(int r, int n) const {
    const Param& a = p_.results[at(r)];
    if (a.strides[a.dims.rank() - 1] != 1 || a.offset % n != 0 || a_.extent(a_.column) % n != 0) return false;
    for (int d = 0; d + 1 < a.dims.rank(); d++) if (a.dims[d] > 1 && a.strides[d] % n != 0) return false;
    return true;
  }
  /// Whether every matrix result is one of 16-bit elements whose rows can be written in pieces of 16 bytes.
  bool stores_vectors() const {
    int matrices = 0;
    for (int r = 0; r < results(); r++) {
      if (!is_matrix(r)) continue;
      matrices++;
      if (!is16(p_.results[at(r)].dtype) || !stores_together(r, 8)) return false;
    }
    return matrices == 1;
  }
  std::string type_of(int r) const { return result_type(p_.results[at(r)].dtype, p_.results[at(r)].tf32); }
  std::string target(int r) const {
    return e_.element_of(p_.results[at(r)], a_.indices(stored(r)), fmt::format("static_cast<{}*>(a.out{})", type_of(r), r));
  }
  struct Stores { std::string columns, rows, pairs; };
  void store_row(int r, Stores& to) {
    Region region;
    const std::string x = e_.value(stored(r), Asked::kAfter, region);
    to.rows += fmt::format("      {{ {}{} = mo::store<{}>({}); }}\n", region.statements, target(r), type_of(r), x);
  }
  void store_columns(int r, Stores& to) {
    Region region;
    const std::string x = e_.value(stored(r), Asked::kAfter, region);
    to.columns += fmt::format(
        "    MO_FN float column{}(const Args& a, const mo::AttendPlace& at, float x, int query, int column) const {{\n      query = "
        "query < kQueries ? query : kQueries - 1;\n      column = column < kLiveColumns ? column : kLiveColumns - 1;\n      {}return "
        "{};\n    }}\n",
        r, region.statements, x);
    if (stores_together(r, 2)) {
      to.pairs += fmt::format(
          "      if (column < kLiveColumns) mo::store_pack<2>(&{}, mo::Pack<2>{{{{column{}(a, at, x0, query, column), column{}(a, at, "
          "x1, query, column + 1)}}}});\n",
          target(r), r, r);
      return;
    }
    to.pairs += fmt::format("      if (column < kLiveColumns) {} = mo::store<{}>(column{}(a, at, x0, query, column));\n", target(r),
                            type_of(r), r);
    to.pairs += fmt::format(
        "      column++;\n      if (column < kLiveColumns) {} = mo::store<{}>(column{}(a, at, x1, query, column));\n      column--;\n",
        target(r), type_of(r), r);
  }
  /// What is had of a query behind the loop, once for all its columns.
  std::string after_head() {
    std::string fields, body;
    Region rows;
    for (ValueId v : e_.after_rows()) {
      fields += fmt::format("float v{}; ", v);
      const std::string x = e_.value(v, Asked::kAfterRow, rows);
      body += fmt::format("      this->v{} = {};\n", v, x);
    }
    std::string out = fmt::format(
        "  struct After {{\n    Row row;\n    float sum, inverse, maximum; {}\n    template <int N> MO_FN After(const Args& a, const "
        "mo::AttendPlace& at, const Row& row, float m, const float (&sums)[kSums][N], int r, int query) : row(row), sum(sums[0][r]), "
        "inverse(1.0f / sums[0][r]), maximum(mo::attend_natural(m)) {{\n",
        fields);
    if (!body.empty())
      out += fmt::format("      query = query < kQueries ? query : kQueries - 1;\n      {}\n{}", rows.statements, body);
    return out + "    }\n";
  }
  std::string after() {
    int main = 0;
    for (int r = 0; r < results(); r++) if (is_matrix(r)) main = r;
    std::string out = fmt::format("  using Out = {};\n", type_of(main)) + after_head();
    Stores stores;
    for (int r = 0; r < results(); r++) is_matrix(r) ? store_columns(r, stores) : store_row(r, stores);
    out += stores.columns;
    out += fmt::format(
        "    MO_FN float column(const Args& a, const mo::AttendPlace& at, float x, int query, int c) const {{ return column{}(a, at, x, "
        "query, c); }}\n",
        main);
    out += fmt::format("    MO_FN void store_row(const Args& a, const mo::AttendPlace& at, int query) const {{\n{}    }}\n", stores.rows);
    out += fmt::format(
        "    MO_FN void store_pair(const Args& a, const mo::AttendPlace& at, float x0, float x1, int query, int column) const {{\n{}    "
        "}}\n  }};\n",
        stores.pairs);
    out += "  static MO_FN void store_vector(const Args& a, const mo::AttendPlace& at, int query, int column, uint4 x) {\n";
    if (stores_vectors()) out += fmt::format("    if (column < kLiveColumns) *reinterpret_cast<uint4*>(&{}) = x;\n", target(main));
    return out + "  }\n";
  }

  static size_t at(int i) { return static_cast<size_t>(i); }

  const KernelProgram& p_;
  const Derived& d_;
  const AttentionView a_;
  AttendElements e_;
  const KernelCall& bound_;   // to which buffers
  std::string name_;
  int slots_;
  bool early_;
  std::string fields_, params_, list_;   // of the arguments
};

}  // namespace
}  // namespace mirage::schedule

namespace mirage {

KernelText emit_attend_kernel(const KernelPlan& kernel, const Plan& plan, const Target&) {
  const schedule::KernelProgram program = schedule::stored_program(kernel);
  const KernelCall& bound = bound_calls(kernel)[0];
  const schedule::Derived d = derive(program);
  return schedule::AttendEmitter(program, d, bound, kernel, kernel.early && weights_early(kernel, plan)).run(kernel.why);
}

}  // namespace mirage

// Emits an attention kernel from its AttendPlan: a struct with the plan's numbers, the copies, and one function per elementwise part of the
// block graph; the kernel itself is a call of the device library (runtime/61_attend.cuh), which instantiates its loop over that struct.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "codegen/kernels/cuda_text.h"
#include "mirage/codegen/module.h"
#include "mirage/plan/attend.h"
#include "mirage/plan/hints.h"

namespace mirage {
namespace {

using Axis = AttendAxis;
using Where = AttendWhere;
using Leaf = AttendLeaf;

class AttendEmitter {
 public:
  /// early: it is started while the kernel ahead of it still runs, and asks for keys and values before that one has finished.
  AttendEmitter(const AttendPlan& p, const KernelPlan& kernel, bool early)
      : p_(p), g_(p.body), s_(p.shape), name_(kernel.name), slots_(kernel.slots), early_(early) {}

  KernelText run(const std::string& why) {
    for (ValueId v : attend_rows(p_, Leaf::kRow)) rows_.push_back(v);
    for (ValueId v : attend_rows(p_, Leaf::kAfterRow)) after_rows_.push_back(v);
    KernelText k;
    k.name = name_;
    // these say which operands are read through pointers
    const std::string functions = (p_.wide ? wide_copies(k) : copies(k)) + row() + gain() + logit() + known() + share() + after();
    std::string args, params, list;
    for (const auto& [field, map] :
         {std::pair{"q", "map_q"}, {"q_second", "map_q_second"}, {"k", "map_k"}, {"v", "map_v"}, {"k_second", "map_k_second"},
          {"v_second", "map_v_second"}}) {
      if (p_.wide && p_.value_boxes == 0 && field[0] == 'v') continue;   // its columns are K's
      const bool is_divided = field[0] == 'k' ? in_parts() || features_in_parts() : field[0] == 'q' ? features_in_parts() : in_parts();
      if (!is_divided && field[1] != '\0') continue;
      args += fmt::format("const mo::TensorMap* {}; ", field);
      params += fmt::format("{}const __grid_constant__ mo::TensorMap {}", params.empty() ? "" : ", ", map);
      list += fmt::format("{}&{}", list.empty() ? "" : ", ", map);
    }
    for (int param : pointers_) {
      k.args.push_back(p_.operands[static_cast<size_t>(param)].buffer);
      k.written.push_back(false);
      args += fmt::format("const void* in{}; ", param);
      params += fmt::format(", const void* __restrict__ in{}", param);
      list += fmt::format(", in{}", param);
    }
    for (size_t r = 0; r < p_.results.size(); r++) {
      k.args.push_back(p_.results[r].buffer);
      k.written.push_back(true);
      args += fmt::format("void* out{}; ", r);
      params += fmt::format(", void* __restrict__ out{}", r);
      list += fmt::format(", out{}", r);
    }
    if (p_.meets > 1) {
      k.args.push_back(slots_);
      k.written.push_back(true);
      k.cooperative = true;
      args += "void* slots; ";
      params += ", void* __restrict__ slots";
      list += ", slots";
    }
    k.grid = {p_.blocks(), 1, 1};
    k.threads = p_.threads;
    k.smem_bytes = p_.smem_bytes;
    k.source =
        fmt::format("// {}\nstruct {}_parts {{\n{}  struct Args {{ {}}};\n{}{}}};\n", why, name_, numbers(), args, place(), functions);
    k.source += fmt::format(
        "__global__ void {}__launch_bounds__({}, {}) {}({}) {{\n  extern __shared__ __align__(1024) unsigned char attend_smem[];\n  "
        "mo::{}<{}_parts>({{{}}}, attend_smem);\n}}\n",
        p_.cluster > 1 ? fmt::format("__cluster_dims__({}, 1, 1) ", p_.cluster) : "", p_.threads, p_.blocks_per_sm, name_, params,
        p_.wide ? "attend_wide" : "attend", name_, list);
    return k;
  }

 private:
  // ---- numbers
  std::string numbers() const {
    std::string out = fmt::format("  using T = {};\n", storage_type(s_.dtype));
    auto ints = [&](std::initializer_list<std::pair<const char*, int64_t>> list) {
      out += "  static constexpr int ";
      bool first = true;
      for (const auto& [key, value] : list) { out += fmt::format("{}{} = {}", first ? "" : ", ", key, value); first = false; }
      out += ";\n";
    };
    auto flags = [&](std::initializer_list<std::pair<const char*, bool>> list) {
      out += "  static constexpr bool ";
      bool first = true;
      for (const auto& [key, value] : list) { out += fmt::format("{}{} = {}", first ? "" : ", ", key, value); first = false; }
      out += ";\n";
    };
    ints({{"kQueries", s_.queries}, {"kKeys", s_.keys}, {"kFeatures", p_.features}, {"kColumns", p_.columns}, {"kLiveColumns", s_.columns},
          {"kFeatureSteps", p_.used_features() / 16}, {"kUsedColumns", p_.used_columns()}, {"kSums", 1}});
    ints({{"kQueryGroups", p_.query_groups}, {"kKeyGroups", p_.key_groups}, {"kGroups", p_.query_groups * p_.key_groups},
          {"kGroupRows", p_.group_rows()}, {"kGroupThreads", p_.group_threads()}, {"kChunk", p_.chunk}, {"kStages", p_.stages},
          {"kCluster", p_.cluster}, {"kRows", p_.rows}, {"kEvenChunks", even_chunks()}});
    ints({{"kHelpers", p_.helpers}, {"kProducers", p_.producers()}, {"kKeyKnown", static_cast<int64_t>(p_.key_known.size())},
          {"kValueKnown", static_cast<int64_t>(p_.value_known.size())}, {"kGrow", p_.grow}, {"kShrink", p_.shrink}});
    ints({{"kKeyBytes", int64_t{p_.chunk} * p_.features * 2}, {"kValueBytes", int64_t{p_.chunk} * p_.columns * 2}, {"kRingAt", p_.ring_at},
          {"kKnownAt", p_.known_at}, {"kReceiveAt", p_.receive_at}, {"kBarsAt", p_.barriers_at},
          {"kRecordBytes", p_.record_bytes}, {"kRecordPitch", p_.record_pitch}});
    flags({{"kWarpRings", p_.warp_rings}, {"kProducer", p_.producer}, {"kTurns", p_.turns}, {"kEarly", early_}, {"kPlainLogit", s_.plain},
           {"kHugeLogits", s_.huge}, {"kPlainWeight", s_.share == s_.weights && s_.v.factors.empty()}, {"kNarrowParts", p_.narrow_parts},
           {"kPairFactors", p_.pair_factors()},
           {"kKeyLinesAlongKeys", s_.k.lines_along_rows}, {"kValueLinesAlongKeys", s_.v.lines_along_rows},
           {"kVectorStores", vector_stores()}, {"kQueryGains", p_.query_gains()}, {"kFloat16", s_.dtype == DType::kF16},
           {"kKeySquares", key_squares_ && squares_pay()}, {"kValueSquares", value_squares_ && squares_pay()}});
    ints({{"kMeets", p_.meets}, {"kTiles", p_.tiles()}});
    if (in_parts()) ints({{"kFirstKeys", s_.first_keys}});
    if (p_.wide) {
      ints({{"kBoxes", p_.features / 64}, {"kValueBoxes", p_.value_boxes}, {"kValueBox", p_.value_box}, {"kScoresAt", p_.scores_at},
            {"kWeightsAt", p_.weights_at},
            {"kStatisticsAt", p_.statistics_at}, {"kReceivedAt", p_.receive_at}});
      flags({{"kRefills", p_.chunks_per_block > p_.stages}});
    }
    return out;
  }
  bool in_parts() const { return s_.first_keys > 0; }   ///< keys and values along the keys
  bool features_in_parts() const { return s_.first_features > 0; }
  int64_t chunks() const { return s_.chunks(p_.chunk); }
  /// The chunk that has a key.
  std::string chunk_of(const std::string& key) const {
    if (!in_parts()) return fmt::format("{} / {}", key, p_.chunk);
    return fmt::format("({0} < kFirstKeys ? {0} / {1} : {2} + ({0} - kFirstKeys) / {1})", key, p_.chunk,
                       (s_.first_keys + p_.chunk - 1) / p_.chunk);
  }
  /// Chunks of every warpgroup of every block, if they all have as many; else 0.
  int64_t even_chunks() const {
    if (limited()) return 0;
    const int64_t parts = int64_t{p_.cluster} * p_.meets * p_.key_groups;
    return chunks() % parts == 0 ? chunks() / parts : 0;
  }
  /// Whether masks remove chunks, which are not looked at then.
  bool limited() const { return !p_.wide && (s_.last || s_.first); }
  /// How many batches' keys and values may be in L2 together: a good third of it, of sm_90's 50 MB.
  int64_t together() const {
    const int64_t bytes = s_.keys * (s_.features + s_.columns) * 2;
    return std::clamp<int64_t>((int64_t{20} << 20) / bytes, 1, s_.batch.elements());
  }
  std::string place_limited() const {
    const int64_t chunks = this->chunks(), rows = p_.group_rows() * p_.query_groups;
    std::string text = "  static MO_FN mo::AttendPlace place() {\n    const int id = mo::block_id();\n    mo::AttendPlace at;\n";
    // The tiles with the most chunks of all batches start first, so that the last to end are short; but only as many batches side by side
    // as L2 holds the keys and values of.
    const int64_t batches = s_.batch.elements(), side = together(), whole = batches / side * side, last = batches - whole;
    const std::string reversed = s_.last ? fmt::format("{} - ", p_.tiles() - 1) : "";
    text += fmt::format("    at.rank = id % {0};\n    at.group = 0;\n    const int item = id / {0}", p_.cluster);
    if (last == 0)
      text += fmt::format(
          ", in_section = item % {0};\n    at.tile = {1}in_section / {2};\n    at.batch = item / {0} * {2} + in_section % {2};\n",
          side * p_.tiles(), reversed, side);
    else
      text += fmt::format(
          ", in_section = item % {0}, first = item / {0} * {2}, side = first < {3} ? {2} : {4};\n    at.tile = {1}in_section / side;\n    "
          "at.batch = first + in_section % side;\n",
          side * p_.tiles(), reversed, side, whole, last);
    text += fmt::format(
        "    const int first_query = at.tile * {}, last_query = first_query + {} < {} ? first_query + {} : {};\n    int begin = 0, end = "
        "{};\n",
        rows, rows - 1, s_.queries, rows - 1, s_.queries - 1, chunks);
    text += "    if (mo::masks_skip()) {\n";
    if (s_.first)
      text += fmt::format("      begin = first_query + ({0}) > 0 ? {1} : 0;\n", *s_.first,
                          chunk_of(fmt::format("(first_query + ({}))", *s_.first)));
    if (s_.last)
      text += fmt::format("      const int last_key = last_query + ({0});\n      if ({1} + 1 < end) end = last_key < 0 ? 0 : {1} + 1;\n",
                          *s_.last, chunk_of("last_key"));
    text += fmt::format(
        "      if (begin > end) begin = end;\n    }}\n    const int part = (end - begin + {0}) / {1};\n    at.first = begin + at.rank * "
        "part;\n    at.chunks = at.first + part < end ? part : end - at.first;\n    if (at.chunks < 0) at.chunks = 0;\n    return at;\n  "
        "}}\n",
        p_.cluster - 1, p_.cluster);
    return text + clear();
  }
  /// Whether no key of a chunk is removed for these queries, and the logit is the bare score then.
  std::string clear() const {
    std::string test = s_.only_masks && limited() ? "mo::masks_skip()" : "false";
    if (s_.only_masks && limited() && s_.last) test += fmt::format(" && key0 + {} <= first_query + ({})", p_.chunk - 1, *s_.last);
    if (s_.only_masks && limited() && s_.first) test += fmt::format(" && key0 >= last_query + ({})", *s_.first);
    return "  static MO_FN bool clear(int key0, int first_query, int last_query) { return " + test + "; }\n";
  }
  std::string place() const {
    if (limited()) return place_limited();
    return place_all() + (p_.wide || s_.plain ? "" : clear());
  }
  std::string place_all() const {
    const int64_t chunks = this->chunks();
    std::string text = "  static MO_FN mo::AttendPlace place() {\n    const int id = mo::block_id();\n    mo::AttendPlace at;\n";
    const int64_t parts = int64_t{p_.cluster} * p_.meets;
    if (p_.meets == 1)
      text += fmt::format(
          "    at.rank = id % {0};\n    at.group = 0;\n    at.tile = id / {0} % {1};\n    at.batch = id / {2};\n    at.first = at.rank * "
          "{3};\n",
          p_.cluster, p_.tiles(), p_.cluster * p_.tiles(), p_.chunks_per_block);
    else
      text += fmt::format(
          "    at.rank = id % {0};\n    at.group = id / {0} % {4};\n    at.tile = id / {5} % {1};\n    at.batch = id / {2};\n    at.first "
          "= (at.group * {0} + at.rank) * {3};\n",
          p_.cluster, p_.tiles(), parts * p_.tiles(), p_.chunks_per_block, p_.meets, parts);
    if (p_.chunks_per_block * parts == chunks) text += fmt::format("    at.chunks = {};\n", p_.chunks_per_block);
    else text += fmt::format("    at.chunks = at.first + {0} < {1} ? {0} : {1} - at.first;\n", p_.chunks_per_block, chunks);
    return text + "    return at;\n  }\n";
  }

  // ---- tensor copies
  std::string batch_index(int d) const {   // of batch dimension d, from the right end of the batch dimensions
    int64_t inner = 1;
    for (int i = d + 1; i < s_.batch.rank(); i++) inner *= s_.batch[i];
    return inner == 1 && d == 0 ? "at.batch" : fmt::format("at.batch / {} % {}", inner, s_.batch[d]);
  }
  const Access& access(const AttendTensor& t) const { return p_.operands[static_cast<size_t>(g_.form<Input>(t.input)->param)]; }
  static int64_t batch_stride(const Access& a) {
    for (int d = a.dims.rank() - 3; d >= 0; d--) if (a.dims[d] > 1) return a.strides[d];
    return a.strides[a.dims.rank() - 2];
  }
  /// What lies in one part of a tensor: all of it; where its keys or features lie in two, those before their end or those behind it.
  Access part_of(const AttendTensor& t, bool second) const {
    Access a = access(t);
    if (features_in_parts() ? &t == &s_.v : !in_parts() || &t == &s_.q) return a;
    if (features_in_parts()) a.dims[t.col_dim] = second ? s_.features - s_.first_features : s_.first_features;
    else a.dims[t.row_dim] = second ? s_.keys - s_.first_keys : s_.first_keys;
    if (second) a.buffer = t.second.buffer, a.offset = t.second.offset, a.strides = t.second.strides;
    return a;
  }
  /// Whether batches follow each other like lines, and no box reaches beyond its batch: then lines of all batches are counted through, and
  /// the map has two dimensions.
  bool counts_through(const AttendTensor& t, const Access& a, int lines) const {
    if (t.lines_along_rows || a.dims[t.row_dim] % lines != 0 || s_.batch.rank() + 2 != a.dims.rank()) return false;
    int64_t next = a.dims[t.row_dim] * a.strides[t.row_dim];
    for (int d = a.dims.rank() - 3; d >= 0; d--) {
      if (a.dims[d] != s_.batch[d] || (a.dims[d] > 1 && a.strides[d] != next)) return false;
      next *= a.dims[d];
    }
    return next / a.strides[t.row_dim] < (int64_t{1} << 31);
  }
  /// Adds the map of a tensor (of its second part) cut into boxes of 64 elements along its lines and `lines` of them; gives the batch
  /// coordinates. first: text that comes before the number of a line.
  std::string add_map(KernelText& k, const AttendTensor& t, int lines, std::string& first, bool second = false) const {
    const Access a = part_of(t, second);
    const int along = t.lines_along_rows ? t.row_dim : t.col_dim, across = t.lines_along_rows ? t.col_dim : t.row_dim;
    TensorMapText m;
    m.buffer = a.buffer;
    m.offset_bytes = a.offset * 2;
    m.dtype = a.dtype;
    m.swizzle = 128;
    m.dims = {a.dims[along], a.dims[across]};
    m.strides = {a.dims[across] > 1 ? a.strides[across] * 2 : (a.dims[along] * 2 + 15) / 16 * 16};
    m.box = {64, lines};
    std::string coordinates;
    const bool through = counts_through(t, a, lines);
    first = through && s_.batch.elements() > 1 ? fmt::format("at.batch * {} + ", a.dims[across]) : "";
    if (through) m.dims[1] *= s_.batch.elements();
    if (through && a.dims[across] == 1 && s_.batch.elements() > 1) m.strides[0] = batch_stride(a) * 2;
    for (int d = through ? -1 : s_.batch.rank() - 1; d >= 0; d--) {
      const int at = d - (s_.batch.rank() + 2 - a.dims.rank());
      if (at < 0 || a.dims[at] == 1 || a.strides[at] == 0) continue;
      m.dims.push_back(a.dims[at]);
      m.strides.push_back(a.strides[at] * 2);
      m.box.push_back(1);
      coordinates += ", " + batch_index(d);
    }
    k.maps.push_back(m);
    return coordinates;
  }
  /// Whether every key is read by one block, so that it need not stay in L2.
  bool once() const { return p_.tiles() == 1 && s_.v.input != s_.k.input; }
  /// Coordinates of a box, text: along its lines ({} for how many boxes it is behind the first), of its first line, of its batch.
  struct Coordinates { std::string along, across, batch; };
  /// The copies of one chunk of keys: `of` writes those from the map that it is told, each at some coordinates.
  template <class F>
  std::string chunk_copies(const std::string& name, const std::string& more, const std::array<Coordinates, 2>& at, F of) const {
    std::string out = fmt::format(
        "  static MO_FN void copy_{}(const Args& a, const mo::AttendPlace& at, uint32_t to, {}int key, uint32_t bar) {{\n", name, more);
    if (!in_parts()) return out + of(name, at[0], "    ") + "  }\n";
    out += "    if (key < kFirstKeys) {\n" + of(name, at[0], "      ");
    return out + "    } else {\n      key -= kFirstKeys;\n" + of(name + "_second", at[1], "      ") + "    }\n  }\n";
  }
  const char* policy() const { return once() ? ", mo::evict_first_policy()" : ""; }
  std::string copy(const char* name, int boxes, int bytes, const std::array<Coordinates, 2>& at) const {
    return chunk_copies(name, "", at, [&](const std::string& map, const Coordinates& of, const char* indent) {
      std::string out;
      for (int b = 0; b < boxes; b++) {
        const bool second = name[0] == 'k' && in_second(b);
        const Coordinates& c = second ? at[1] : of;
        out += fmt::format("{}mo::copy_box(to + {}, *a.{}, {}, {}{}, bar{});\n", indent, b * bytes, second ? "k_second" : map,
                           fmt::format(fmt::runtime(c.along), 64 * (second ? b - p_.first_boxes() : b)), c.across, c.batch, policy());
      }
      return out;
    });
  }
  /// Whether a box of 64 features is one of their second part.
  bool in_second(int box) const { return features_in_parts() && box >= p_.first_boxes(); }
  std::string copies(KernelText& k) const {
    std::string out, first;
    std::array<Coordinates, 2> of_q;
    for (size_t second = 0; second < (features_in_parts() ? 2 : 1); second++) {
      const int rows = p_.group_rows() * p_.query_groups;
      const std::string q = add_map(k, s_.q, s_.queries % rows == 0 ? rows : 64, first, second == 1);
      k.maps.back().box[1] = p_.group_rows();
      of_q[second] = {"{}", fmt::format("{}at.tile * {}", first, rows), q};
    }
    out += "  static MO_FN void copy_q(const Args& a, const mo::AttendPlace& at, uint32_t to, uint32_t bar) {\n";
    for (int i = 0; i < p_.query_groups; i++)
      for (int b = 0; b < p_.features / 64; b++) {
        const bool second = in_second(b);
        const Coordinates& c = of_q[second];
        out += fmt::format("    mo::copy_box(to + {}, *a.{}, {}, {} + {}{}, bar);\n", (i * (p_.features / 64) + b) * p_.group_rows() * 128,
                           second ? "q_second" : "q", 64 * (second ? b - p_.first_boxes() : b), c.across, p_.group_rows() * i, c.batch);
      }
    out += "  }\n";
    const bool k_along = s_.k.lines_along_rows, v_along = s_.v.lines_along_rows;
    std::array<Coordinates, 2> of_k, of_v;
    for (size_t second = 0; second < (in_parts() || features_in_parts() ? 2 : 1); second++) {
      const std::string kb = add_map(k, s_.k, k_along ? p_.features : p_.chunk, first, second == 1);
      of_k[second] = k_along ? Coordinates{"key + {}", "0", kb} : Coordinates{"{}", first + "key", kb};
      if (second == 1 && features_in_parts()) continue;
      const std::string vb = add_map(k, s_.v, v_along ? p_.columns : p_.chunk, first, second == 1);
      of_v[second] = v_along ? Coordinates{"key + {}", "0", vb} : Coordinates{"{}", first + "key", vb};
    }
    out += copy("k", (k_along ? p_.chunk : p_.features) / 64, (k_along ? p_.features : p_.chunk) * 128, of_k);
    out += copy("v", (v_along ? p_.chunk : p_.columns) / 64, (v_along ? p_.columns : p_.chunk) * 128, of_v);
    return out;
  }
  /// One box of 64 columns each, of any number.
  std::string wide_copies(KernelText& k) const {
    std::string first;
    std::array<Coordinates, 2> of_q, of_k, of_v;
    for (size_t second = 0; second < (features_in_parts() ? 2 : 1); second++) {
      const std::string q = add_map(k, s_.q, 16, first, second == 1);
      of_q[second] = {"64 * box", first + "at.tile * 16", q};
    }
    const auto box = [&](const std::string& map, const Coordinates& c, const char* indent) {
      return fmt::format("{}mo::copy_box(to, *a.{}, {}, {}{}, bar{});\n", indent, map, c.along, c.across, c.batch,
                         map[0] == 'q' ? "" : policy());
    };
    /// Of either part of the features.
    const auto boxes = [&](const std::string& map, const std::array<Coordinates, 2>& of) {
      if (!features_in_parts()) return box(map, of[0], "    ");
      return fmt::format("    if (box < {0}) {{\n{1}    }} else {{\n      box -= {0};\n{2}    }}\n", p_.first_boxes(),
                         box(map, of[0], "      "), box(map + "_second", of[1], "      "));
    };
    std::string out = "  static MO_FN void copy_q(const Args& a, const mo::AttendPlace& at, uint32_t to, int box, uint32_t bar) {\n" +
                      boxes("q", of_q) + "  }\n";
    for (size_t second = 0; second < (in_parts() || features_in_parts() ? 2 : 1); second++) {
      const std::string kb = add_map(k, s_.k, p_.chunk, first, second == 1);
      of_k[second] = {"64 * box", first + "key", kb};
      if (p_.value_boxes == 0 || (second == 1 && features_in_parts())) continue;
      const std::string vb = add_map(k, s_.v, p_.chunk, first, second == 1);
      of_v[second] = {"64 * box", first + "key", vb};
    }
    if (features_in_parts())
      out += "  static MO_FN void copy_k(const Args& a, const mo::AttendPlace& at, uint32_t to, int box, int key, uint32_t bar) {\n" +
             boxes("k", of_k) + "  }\n";
    else out += chunk_copies("k", "int box, ", of_k, box);
    if (p_.value_boxes > 0) out += chunk_copies("v", "int box, ", of_v, box);
    else out += "  static MO_FN void copy_v(const Args&, const mo::AttendPlace&, uint32_t, int, int, uint32_t) {}\n";
    return out;
  }

  // ---- text of values
  using Names = std::map<ValueId, std::string>;
  struct Region { std::string statements; Names known; };

  std::string element_of(const Access& a, const std::array<Axis, 2>& axes, const std::string& pointer) const {
    std::string index = std::to_string(a.offset);
    const int rank = a.dims.rank();
    for (int d = 0; d < rank - 2; d++)
      if (a.dims[d] > 1 && a.strides[d] != 0)
        index += fmt::format(" + int64_t({}) * {}", batch_index(d + s_.batch.rank() + 2 - rank), a.strides[d]);
    for (int i = 0; i < 2; i++) {
      const int d = rank - 2 + i;
      if (d < 0 || a.dims[d] == 1) continue;
      const Axis x = axes[static_cast<size_t>(i)];
      const char* name = x == Axis::kQuery ? "query" : x == Axis::kKey ? "key" : "column";
      index += fmt::format(" + int64_t({}) * {}", name, a.strides[d]);
    }
    return fmt::format("{}[{}]", pointer, index);
  }
  /// The number that an operand of positions has at an element.
  std::string position_of(const Access& a, const std::array<Axis, 2>& axes) const {
    const int rank = a.dims.rank(), of_matrix = a.position - (rank - 2);
    if (a.dims[a.position] == 1) return "0";
    const auto part = [&](std::string index) {
      if (a.position_div != 1) index += fmt::format(" / {}", a.position_div);
      if (a.position_period != 0) index += fmt::format(" % {}", a.position_period);
      return index;
    };
    if (of_matrix < 0) return part(fmt::format("({})", batch_index(a.position + s_.batch.rank() + 2 - rank)));
    const Axis x = axes[static_cast<size_t>(of_matrix)];
    return part(x == Axis::kQuery ? "query" : x == Axis::kKey ? "key" : "column");
  }
  std::string element_text(ValueId v, Where where) {
    const int param = g_.def_form<Input>(v)->param;
    const Access& a = p_.operands[static_cast<size_t>(param)];
    if (a.position >= 0) return fmt::format("float({})", position_of(a, s_.axes[static_cast<size_t>(v)]));
    pointers_.insert(param);
    if (where == Where::kLogit && fetches(v)) {
      fetched_.insert(v);
      return fmt::format("mo::load(fetched.of{}.elements[c])", v);
    }
    const std::string base = fmt::format("static_cast<const {}*>(a.in{})", storage_type(a.dtype), param);
    return fmt::format("mo::load({})", element_of(a, s_.axes[static_cast<size_t>(v)], base));
  }
  std::string statistic_text(ValueId v, Where where) {
    const Reduce& red = *g_.def_form<Reduce>(v);
    if (is_squares(red, v)) {
      if (where == Where::kKeyRow) key_squares_ = true;
      if (where == Where::kValueRow) value_squares_ = true;
      return "tile.squares()";
    }
    Region inner;
    const std::string of = value(g_.def(v).operands[0], Where::kTile, inner);
    return fmt::format("tile.template reduce<mo::{}>([&](float x) {{ {}return {}; }})", red.fn == ReduceFn::kSum ? "Sum" : "Max",
                       inner.statements, of);
  }
  std::string computed_text(ValueId v, Where where, Region& r) {
    const Map& m = *g_.def_form<Map>(v);
    const std::vector<ValueId>& o = g_.def(v).operands;
    // the sum of weights is near 1 or above it (or 0, with nothing to divide): its reciprocal is taken once per row
    if (m.fn == MapFn::kDiv && where == Where::kAfter && o[1] == s_.sums[0])
      return fmt::format("mo::mul({}, inverse)", value(o[0], where, r));
    std::vector<std::string> operands;
    for (ValueId x : o) operands.push_back(value(x, where, r));
    return m.fn == MapFn::kDiv ? quotient(o, operands, where, r) : map_text(m.fn, operands);
  }
  std::string value(ValueId v, Where where, Region& r) {
    if (auto it = r.known.find(v); it != r.known.end()) return it->second;
    std::string text;
    switch (attend_leaf(p_, v, where)) {
      case Leaf::kConst: return CudaText().constant(g_.def_form<Const>(v)->value);
      case Leaf::kScores:
        text = factors("s", s_.q.factors, where, r);
        // a product, once per key: a division per score would cost more than all the rest
        if (!s_.k.factors.empty()) text = fmt::format("mo::mul({}, known[0])", text);
        break;
      case Leaf::kWeights: return "e";
      case Leaf::kResult:
        if (s_.v.gains.empty()) return "x";
        text = factors("x", s_.v.gains, where, r);
        break;
      case Leaf::kSum: return "sum";
      case Leaf::kMaximum: return "maximum";
      case Leaf::kRow: return fmt::format("row.v{}", v);
      case Leaf::kAfterRow: return fmt::format("v{}", v);
      case Leaf::kKnown: return fmt::format("known[{}]", known_index(v, where));
      case Leaf::kTile: return "x";
      case Leaf::kThrough:
        for (const auto& [from, to] : s_.peeled) if (from == v) return value(to, where, r);
        break;
      case Leaf::kElement: text = element_text(v, where); break;
      case Leaf::kStatistic: text = statistic_text(v, where); break;
      case Leaf::kCompute:
        if (g_.def_form<Transpose>(v)) return value(g_.def(v).operands[0], where, r);
        text = computed_text(v, where, r);
        break;
      case Leaf::kRefused: MIRAGE_ASSERT(false) << "no place for value " << v << " in an attention kernel: " << print(g_);
    }
    const std::string name = fmt::format("v{}", v);
    r.statements += fmt::format("const float {} = {}; ", name, text);
    r.known[v] = name;
    return name;
  }
  /// Whether a statistic sums the squares of elements as they are stored: tensor cores and the library know how.
  /// Sums of squares on tensor cores: where warpgroups divide the keys, these have no time for them (32 normed heads: 29.96 us with, 27.95
  /// without; with one group of keys 28.58 and 30.13).
  bool squares_pay() const { return p_.producer && p_.key_groups == 1; }
  bool is_squares(const Reduce& red, ValueId v) const {
    const ValueId of = g_.def(v).operands[0];
    const Map* m = g_.def_form<Map>(of);
    if (red.fn != ReduceFn::kSum || !m) return false;
    const std::vector<ValueId>& o = g_.def(of).operands;
    return (m->fn == MapFn::kSquare || (m->fn == MapFn::kMul && o[0] == o[1])) && attend_leaf(p_, o[0], Where::kTile) == Leaf::kTile;
  }
  std::string quotient(const std::vector<ValueId>& o, const std::vector<std::string>& operands, Where where, Region& r) {
    DivisorText y{operands[1], std::nullopt, "", false};
    if (const Const* c = g_.def_form<Const>(o[1])) y.constant = c->value;
    if (narrow() && root(o[1]) && attend_leaf(p_, o[1], where) == Leaf::kCompute) y.root_of = value(g_.def(o[1]).operands[0], where, r);
    return quotient_text(operands[0], y, narrow());
  }
  bool root(ValueId v) const { return g_.def_form<Map>(v) && g_.def_form<Map>(v)->fn == MapFn::kSqrt; }
  /// Whether all results are stored in 16 bits.
  bool narrow() const {
    return std::all_of(p_.results.begin(), p_.results.end(), [](const Access& a) { return dtype_bytes(a.dtype) == 2; });
  }
  std::string factors(std::string x, const std::vector<AttendFactor>& list, Where where, Region& r) {
    for (const AttendFactor& f : list) {
      if (f.divides && root(f.value) && attend_leaf(p_, f.value, where) == Leaf::kRow) x = fmt::format("mo::mul({}, row.r{})", x, f.value);
      else if (f.divides && root(f.value) && attend_leaf(p_, f.value, where) == Leaf::kCompute)
        x = fmt::format("mo::mul({}, mo::rsqrt({}))", x, value(g_.def(f.value).operands[0], where, r));
      else x = fmt::format("mo::{}({}, {})", f.divides ? "div" : "mul", x, value(f.value, where, r));
    }
    return x;
  }
  size_t known_index(ValueId v, Where where) const {
    const std::vector<ValueId>& list = where == Where::kLogit ? p_.key_known : p_.value_known;
    return static_cast<size_t>(std::find(list.begin(), list.end(), v) - list.begin());
  }

  // ---- functions of the struct
  std::string row() {
    std::string fields, body;
    Region r;
    for (ValueId v : rows_) {
      fields += fmt::format("float v{}; ", v);
      const std::string text = value(v, Where::kQueryRow, r);
      body += fmt::format("    row.v{} = {};\n", v, text);
      if (root(v)) {   // who divides by a root multiplies by its reciprocal
        fields += fmt::format("float r{}; ", v);
        body += fmt::format("    row.r{} = mo::rsqrt({});\n", v, value(g_.def(v).operands[0], Where::kQueryRow, r));
      }
    }
    std::string out = fmt::format(
        "  struct Row {{ {}}};\n  template <class Tile> static MO_FN Row row(const Args& a, const mo::AttendPlace& at, const Tile& tile, "
        "int query) {{\n    Row row{{}};\n",
        fields);
    if (!rows_.empty()) out += fmt::format("    query = query < kQueries ? query : kQueries - 1;\n    {}\n{}", r.statements, body);
    out += "    return row;\n  }\n  static MO_FN float scale(const Row& row) {\n";
    Region none;
    std::string x = "1.0f";
    x = factors(x, s_.scale, Where::kLogit, none);
    return out + fmt::format("    {}return {};\n  }}\n", none.statements, x);
  }
  /// What the gains of queries and of keys make of one feature.
  std::string gain() {
    if (!p_.query_gains()) return "";
    Region r;
    const std::string x = factors(factors("mo::constant(1.0f)", s_.q.gains, Where::kGain, r), s_.k.gains, Where::kGain, r);
    return fmt::format(
        "  static MO_FN float gain(const Args& a, const mo::AttendPlace& at, int column) {{\n    if (column >= {}) return "
        "mo::constant(0.0f);\n    {}return {};\n  }}\n",
        s_.features, r.statements, x);
  }
  static constexpr const char* kInside = "    query = query < kQueries ? query : kQueries - 1;\n    key = key < kKeys ? key : kKeys - 1;\n";
  /// Whether two neighbouring keys' elements of an input per query and key can be asked for together, long before their scores are there.
  bool fetches(ValueId v) const {
    const Access& a = p_.operands[static_cast<size_t>(g_.def_form<Input>(v)->param)];
    const auto& x = s_.axes[static_cast<size_t>(v)];
    const int rank = a.dims.rank(), key_dim = x[0] == Axis::kKey ? rank - 2 : rank - 1;
    if (p_.wide || !((x[0] == Axis::kQuery && x[1] == Axis::kKey) || (x[0] == Axis::kKey && x[1] == Axis::kQuery))) return false;
    if (s_.keys % 2 != 0 || s_.first_keys % 2 != 0 || a.strides[key_dim] != 1 || a.offset % 2 != 0) return false;
    for (int d = 0; d < rank; d++) if (d != key_dim && a.dims[d] > 1 && a.strides[d] % 2 != 0) return false;
    return true;
  }
  std::string fetch() const {
    std::string fields, body;
    for (ValueId v : fetched_) {
      const int param = g_.def_form<Input>(v)->param;
      const Access& a = p_.operands[static_cast<size_t>(param)];
      fields += fmt::format("mo::ElementVector<2, {}> of{}; ", storage_type(a.dtype), v);
      const std::string from =
          "&" + element_of(a, s_.axes[static_cast<size_t>(v)], fmt::format("static_cast<const {}*>(a.in{})", storage_type(a.dtype), param));
      // An ordinary load would move behind the waits, to where it is used.
      body += dtype_bytes(a.dtype) == 2
                  ? fmt::format("    to.of{}.words[0] = mo::read_now(reinterpret_cast<const unsigned*>({}));\n", v, from)
                  : fmt::format("    mo::hold(to.of{}, {});\n", v, from);
    }
    std::string out = fmt::format("  static constexpr bool kFetches = {};\n  struct Fetched {{ {}}};\n", !fetched_.empty(), fields);
    if (!fetched_.empty())
      out += fmt::format(
          "  static MO_FN void fetch(const Args& a, const mo::AttendPlace& at, Fetched& to, int query, int key) {{\n    query = query < "
          "kQueries ? query : kQueries - 1;\n    key = key < kKeys ? key : kKeys - 2;\n{}  }}\n",
          body);
    return out;
  }
  std::string logit() {
    Region r;
    const std::string x = s_.plain ? "s" : value(s_.logit, Where::kLogit, r);
    return fetch() + fmt::format(
                         "  static MO_FN float logit(const Args& a, const mo::AttendPlace& at, float s, const Row& row, const float* "
                         "known, const Fetched& fetched, int c, int query, int key) {{\n{}    {}return {};\n  }}\n",
                         kInside, r.statements, x);
  }
  std::string known() {
    std::string out;
    for (const auto& [name, list, where] :
         {std::tuple{"key", &p_.key_known, Where::kKeyRow}, {"value", &p_.value_known, Where::kValueRow}}) {
      if (list->empty()) continue;
      out += fmt::format(
          "  template <class Tile> static MO_FN void {}_values(const Args& a, const mo::AttendPlace& at, const Tile& tile, int key, float* "
          "out, int r) {{\n    const bool inside = key < {};\n    key = inside ? key : kKeys - 1;\n",
          name, in_parts() ? "(key - r < kFirstKeys ? kFirstKeys : kKeys)" : "kKeys");
      Region r;
      std::string stores;
      for (size_t i = 0; i < list->size(); i++) {
        const ValueId v = (*list)[i];
        std::string x =
            v >= 0 ? value(v, where, r) : factors("mo::constant(1.0f)", where == Where::kKeyRow ? s_.k.factors : s_.v.factors, where, r);
        if (v < 0 && where == Where::kValueRow && s_.dtype == DType::kF16 && !(s_.value_factor_bound <= 2048))
          x = fmt::format("mo::attend_bound_factor(tile, {})", x);
        // rows beyond the last key are zeros, and their norm's reciprocal may be infinite
        if (v < 0) x = fmt::format("(inside ? {} : 0.0f)", x);
        stores += v < 0 && where == Where::kValueRow && p_.pair_factors()
                      ? fmt::format("    reinterpret_cast<T*>(out)[r] = mo::store<T>({});\n", x)
                      : fmt::format("    out[{} * kChunk + r] = {};\n", i, x);
      }
      out += fmt::format("    {}\n{}  }}\n", r.statements, stores);
    }
    return out;
  }
  std::string share() {
    Region r;
    std::string x = value(s_.share, Where::kShare, r);
    if (!s_.v.factors.empty()) x = fmt::format("mo::mul({}, known[0])", x);
    return fmt::format(
        "  static MO_FN float weight(const Args& a, const mo::AttendPlace& at, float e, const Row& row, const float* known, int query, int "
        "key) {{\n{}    {}return {};\n  }}\n",
        kInside, r.statements, x);
  }

  // ---- behind the loop
  const Output& output(size_t r) const { return *g_.form<Output>(g_.outputs()[r]); }
  ValueId output_value(size_t r) const { return g_.node(g_.outputs()[r]).operands[0]; }
  bool is_matrix(size_t r) const { return s_.axes[static_cast<size_t>(output_value(r))][1] == Axis::kColumn; }
  /// Whether every matrix result is one of 16-bit elements whose rows can be written in pieces of 16 bytes.
  bool vector_stores() const {
    int matrices = 0;
    for (size_t r = 0; r < p_.results.size(); r++) {
      if (!is_matrix(r)) continue;
      matrices++;
      const Access& a = p_.results[r];
      if (!is16(a.dtype)) return false;
      if (a.strides[a.dims.rank() - 1] != 1 || a.offset % 8 != 0 || s_.columns % 8 != 0) return false;
      for (int d = 0; d + 1 < a.dims.rank(); d++) if (a.dims[d] > 1 && a.strides[d] % 8 != 0) return false;
    }
    return matrices == 1;
  }
  bool pair_stores(size_t r) const {
    const Access& a = p_.results[r];
    if (a.strides[a.dims.rank() - 1] != 1 || a.offset % 2 != 0 || s_.columns % 2 != 0) return false;
    for (int d = 0; d + 1 < a.dims.rank(); d++) if (a.dims[d] > 1 && a.strides[d] % 2 != 0) return false;
    return true;
  }
  std::string target(size_t r) const {
    return element_of(p_.results[r], {Axis::kQuery, is_matrix(r) ? Axis::kColumn : Axis::kOne},
                      fmt::format("static_cast<{}*>(a.out{})", result_type(p_.results[r]), r));
  }
  std::string after() {
    size_t main = 0;
    for (size_t r = 0; r < p_.results.size(); r++) if (is_matrix(r)) main = r;
    std::string out = fmt::format("  using Out = {};\n", result_type(p_.results[main]));
    Region rows;
    std::string fields, body, row_stores, pair_text;
    for (ValueId v : after_rows_) {
      fields += fmt::format("float v{}; ", v);
      const std::string x = value(v, Where::kAfterRow, rows);
      body += fmt::format("      this->v{} = {};\n", v, x);
    }
    std::string columns;
    for (size_t r = 0; r < p_.results.size(); r++) {
      Region region;
      const std::string x = value(output_value(r), Where::kAfter, region);
      if (!is_matrix(r)) {
        row_stores += fmt::format("      {{ {}{} = mo::store<{}>({}); }}\n", region.statements, target(r), result_type(p_.results[r]), x);
        continue;
      }
      columns += fmt::format(
          "    MO_FN float column{}(const Args& a, const mo::AttendPlace& at, float x, int query, int column) const {{\n      query = "
          "query < kQueries ? query : kQueries - 1;\n      column = column < kLiveColumns ? column : kLiveColumns - 1;\n      {}return "
          "{};\n    }}\n",
          r, region.statements, x);
      if (pair_stores(r))
        pair_text += fmt::format(
            "      if (column < kLiveColumns) mo::store_pack<2>(&{}, mo::Pack<2>{{{{column{}(a, at, x0, query, column), column{}(a, at, "
            "x1, query, column + 1)}}}});\n",
            target(r), r, r);
      else {
        pair_text += fmt::format("      if (column < kLiveColumns) {} = mo::store<{}>(column{}(a, at, x0, query, column));\n", target(r),
                                 result_type(p_.results[r]), r);
        pair_text += fmt::format(
            "      column++;\n      if (column < kLiveColumns) {} = mo::store<{}>(column{}(a, at, x1, query, column));\n      column--;\n",
            target(r), result_type(p_.results[r]), r);
      }
    }
    out += fmt::format(
        "  struct After {{\n    Row row;\n    float sum, inverse, maximum; {}\n    template <int N> MO_FN After(const Args& a, const "
        "mo::AttendPlace& at, const Row& row, float m, const float (&sums)[kSums][N], int r, int query) : row(row), sum(sums[0][r]), "
        "inverse(1.0f / sums[0][r]), maximum(mo::attend_natural(m)) {{\n",
        fields);
    if (!after_rows_.empty())
      out += fmt::format("      query = query < kQueries ? query : kQueries - 1;\n      {}\n{}", rows.statements, body);
    out += "    }\n" + columns;
    out += fmt::format(
        "    MO_FN float column(const Args& a, const mo::AttendPlace& at, float x, int query, int c) const {{ return column{}(a, at, x, "
        "query, c); }}\n",
        main);
    out += fmt::format("    MO_FN void store_row(const Args& a, const mo::AttendPlace& at, int query) const {{\n{}    }}\n", row_stores);
    out += fmt::format(
        "    MO_FN void store_pair(const Args& a, const mo::AttendPlace& at, float x0, float x1, int query, int column) const {{\n{}    "
        "}}\n  }};\n",
        pair_text);
    out += "  static MO_FN void store_vector(const Args& a, const mo::AttendPlace& at, int query, int column, uint4 x) {\n";
    if (vector_stores()) out += fmt::format("    if (column < kLiveColumns) *reinterpret_cast<uint4*>(&{}) = x;\n", target(main));
    return out + "  }\n";
  }

  const AttendPlan& p_;
  const Graph& g_;
  const AttendShape& s_;
  std::string name_;
  int slots_;
  bool early_;
  bool key_squares_ = false, value_squares_ = false;   ///< whether per-key values need sums of squares; known once their text is
  std::vector<ValueId> rows_, after_rows_;
  std::set<int> pointers_;
  std::set<ValueId> fetched_;   // inputs whose elements logits find in registers
};

}  // namespace

KernelText emit_attend_kernel(const KernelPlan& kernel, const Plan& plan, const Target&) {
  return AttendEmitter(*std::get<std::shared_ptr<const AttendPlan>>(kernel.body), kernel, kernel.early && weights_early(kernel, plan))
      .run(kernel.why);
}

}  // namespace mirage

// Emits a block kernel from its program (docs/schedule.md): tiles in shared memory that all warps of a block, or one of them, fill,
// multiply and reduce. A function for each kind of stage; where tiles lie and where a block meets is derived. Every elementwise expression
// becomes one lambda.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "codegen/program/bound_program.h"
#include "codegen/kernels/cuda_text.h"
#include "codegen/kernels/text_lines.h"
#include "codegen/program/tile_elements.h"
#include "mirage/codegen/module.h"
#include "mirage/ir/walk.h"
#include "mirage/plan/block.h"
#include "mirage/support/assert.h"
#include "mirage/support/round.h"

namespace mirage::schedule {
namespace {

size_t at(int i) { return static_cast<size_t>(i); }

class BlockEmitter : TextLines {
 public:
  BlockEmitter(const KernelProgram& p, const Derived& d)
      : p_(p), d_(d), g_(p.body), phase_(phases(p.body)), elements_(p, d), tiles_(p.sections.size()) {
    divide_stages();
    for (const Stage& s : p.stages) name_tiles(s);
  }

  std::string body() {
    declare_tiles();
    if (d_.cluster > 1) line("cluster_arrive();");
    declare_block();
    before_loop();
    if (loop_) loop();
    run(after_);
    return std::move(out_);
  }

 private:
  // ---- stages
  const Place& place(PlaceId x) const { return p_.places[at(x)]; }
  /// In front of the loop, in it, and behind it; without one, what is stored comes behind it.
  void divide_stages() {
    for (const Item& i : p_.roles[0].items) {
      if (i.stage < 0) {
        loop_ = &i;
        for (int s : i.body) inside_.push_back(&p_.stages[at(s)]);
        continue;
      }
      const Stage& s = p_.stages[at(i.stage)];
      (loop_ || !after_.empty() || s.kind == Stage::Kind::kStore ? after_ : before_).push_back(&s);
    }
    for (const Axis& a : p_.axes) if (a.kind == AxisKind::kWarp) warps_ = a.extent;
    for (const Stage* s : inside_) if (makes<Running>(*s) && place(s->to).section < 0) running_ = s;
    for (const Split& s : p_.splits) if (s.reduced) chunks_ = chunks(s), rotated_ = s.rotated;
  }
  const Node& def(const Stage& s) const { return g_.def(place(s.to).value); }
  /// Whether it makes its value, and does not only convert it to another place.
  bool makes(const Stage& s) const {
    return s.kind == Stage::Kind::kCompute &&
           std::none_of(s.reads.begin(), s.reads.end(), [&](PlaceId x) { return place(x).value == place(s.to).value; });
  }
  template <class Form> bool makes(const Stage& s) const { return makes(s) && std::holds_alternative<Form>(def(s).op); }
  bool is_inside(const Stage& s) const { return std::find(inside_.begin(), inside_.end(), &s) != inside_.end(); }
  bool is_softmax(const Stage& s) const { return running_ && is_inside(s); }
  /// Whether the loop adds up in registers what the stage makes. Sums of a softmax's weights come with its results.
  bool accumulates(const Stage& s) const {
    return makes<Accum>(s) && place(s.to).section < 0 && is_inside(s) && (!running_ || s.unit != UnitId::kNone);
  }
  /// Whether anything is emitted for it alone: not what its readers evaluate themselves.
  bool is_step(const Stage& s) const {
    if (s.kind == Stage::Kind::kStore) return true;
    if (s.kind != Stage::Kind::kCompute || d_.home[at(s.to)] < 0 || is_move(p_, d_, s)) return false;
    return !is_softmax(s) || accumulates(s);
  }
  /// The product or reduction that a stage computes; -1: it has none.
  ValueId sum_of(const Stage& s) const {
    if (!makes(s)) return -1;
    ValueId v = place(s.to).value;
    if (std::holds_alternative<Accum>(g_.def(v).op) && place(s.to).section < 0) v = g_.def(v).operands[0];
    return s.unit != UnitId::kNone || g_.def_form<Reduce>(v) ? v : -1;
  }
  int degree(const Stage& s) const {
    const Accum* a = std::get_if<Accum>(&def(s).op);
    return a ? a->degree : 0;
  }
  ReduceFn fn_of(ValueId v) const {
    if (const auto* r = g_.def_form<Reduce>(v)) return r->fn;
    if (const auto* a = g_.def_form<Accum>(v)) return a->fn;
    return g_.def_form<Running>(v) ? ReduceFn::kMax : ReduceFn::kSum;
  }

  // ---- tiles: what lies in a section, as the device library sees it
  struct Tile {
    const Place* place = nullptr;
    ValueId value = -1;
    bool is_sum = false;        // partial results
    bool in_loop = false;       // copied there
    bool is_exchange = false;   // where the blocks of a cluster send theirs
    bool is_part = false;       // every block of a cluster has a part of it
    bool tf32 = false;
  };
  void holds(int section, const Place& x, ValueId v) {
    if (section < 0 || tiles_[at(section)].place) return;
    tiles_[at(section)].place = &x;
    tiles_[at(section)].value = v;
  }
  void name_tiles(const Stage& s) {
    if (s.to >= 0) holds(place(s.to).section, place(s.to), place(s.to).value);
    for (PlaceId x : s.through) holds(place(x).section, place(x), place(x).value);
    if (s.kind == Stage::Kind::kCopy) tiles_[at(place(s.to).section)].in_loop = is_inside(s);
    if (sum_of(s) >= 0 && d_.home[at(s.to)] >= 0) tiles_[at(d_.home[at(s.to)])].is_sum = true;
    if (accumulates(s) && d_.cluster > 1) tiles_[at(d_.home[at(s.to)])].is_part = true;
    if (s.way == WayId::kExchange) tiles_[at(place(s.through.back()).section)].is_exchange = true;
    for (PlaceId x : s.reads) {
      const int home = d_.home[at(x)];
      if (home < 0) continue;
      if (s.kind == Stage::Kind::kFold || is_move(p_, d_, s)) {
        if (place(x).section < 0) tiles_[at(home)].is_sum = true, tiles_[at(home)].value = place(x).value;
      } else if (s.unit == UnitId::kSyncTf32 && place(x).section >= 0 && place(x).dtype == DType::kF32) {   // made for the unit
        const Stage& made = *elements_.maker(x);
        if (made.kind == Stage::Kind::kCompute && !makes<Running>(made)) tiles_[at(home)].tf32 = true;
      }
    }
  }
  const Tile& tile(int section) const { return tiles_[at(section)]; }
  int section_of(const Stage& s) const { return d_.home[at(s.to)]; }
  std::string name(int section) const { return elements_.name(section); }
  std::string name(const Stage& s) const { return name(section_of(s)); }
  int64_t copies(int section) const { return p_.sections[at(section)].owners; }
  /// With its padding.
  Extent3 padded(int section) const {
    const Place& x = *tile(section).place;
    const int64_t batches = elements_.extent(tile(section).value)[0], length = x.box.back(), lines = x.box[x.box.size() - 2] / batches;
    return x.columns ? Extent3{batches, length, lines} : Extent3{batches, lines, length};
  }
  static int64_t pitch(const Place& x) { return x.pitch ? x.pitch / dtype_bytes(x.dtype) : x.box.back(); }
  static const char* fn_name(ReduceFn fn) { return fn == ReduceFn::kSum ? "Sum" : "Max"; }
  const char* element_type(int section) const { return tile(section).tf32 ? "tf32" : cuda_type(tile(section).place->dtype); }
  std::string parts_type(int section, int64_t parts) const {
    const Extent3 e = padded(section);
    return fmt::format("Parts<{}, {}, {}, {}, {}, {}>", fn_name(fn_of(tile(section).value)), parts, e[0], e[1], e[2],
                       pitch(*tile(section).place));
  }
  void declare_tiles() {
    for (int s = 0; s < static_cast<int>(tiles_.size()); s++) {
      const Tile& t = tile(s);
      if (!t.place || t.is_exchange) continue;
      if (t.is_sum) {
        line("using T{} = {};", name(s), parts_type(s, t.place->box.size() > 2 ? t.place->box[0] : 1));
        line("const T{0} {1}{0}{{(float*)(smem + {2})}};", name(s), t.is_part ? "p" : "t", d_.section_at[at(s)]);
        continue;
      }
      const Extent3 e = padded(s);
      line("using T{} = Tile<{}, {}, {}, {}, {}, {}, {}>;", name(s), element_type(s), e[0], e[1], e[2], t.place->columns, pitch(*t.place),
           t.place->swizzle > 0);
      if (!t.in_loop) line("const T{0} t{0}{{({1}*)(smem + {2}{3})}};", name(s), element_type(s), d_.section_at[at(s)], of_warp(s));
    }
  }
  /// Behind the address of a section, which of its owners' it is.
  std::string of_warp(int section) const {
    return copies(section) > 1 ? fmt::format(" + warp_id() * {}", d_.section_bytes[at(section)] / copies(section)) : "";
  }
  std::string in_slot(int section, const std::string& slot) const {
    return fmt::format(" + {} * {}", slot, d_.section_bytes[at(section)] / copies(section) / p_.sections[at(section)].slots);
  }

  // ---- values as matrices: what of a tile there is, and where it begins
  /// Whether a tile of it may have fewer elements than the others, or none.
  bool is_ragged(const Split& s) const {
    const int64_t parts = s.reduced && p_.axes[at(s.over[0])].kind == AxisKind::kGrid ? chunks(s) * p_.axes[at(s.over[0])].extent : 1;
    return p_.indices[at(s.index)].extent % (s.tile * parts) != 0;
  }
  std::string left(const Split& s) const { return "left_" + p_.indices[at(s.index)].name; }
  void declare_left(const Split& s) {
    line("const int {} = clip({} - ({}), {});", left(s), p_.indices[at(s.index)].extent, start(s.index), s.tile);
  }
  /// First element of an index that this block, and where the loop takes tiles of it, this iteration has; "0" if it has all.
  std::string start(IndexId i) const {
    const Split* s = i < 0 ? nullptr : p_.split_of(i);
    if (!s || s->over.empty()) return "0";
    std::string out;
    if (const Axis& a = p_.axes[at(s->over[0])]; a.kind == AxisKind::kGrid)
      out = fmt::format("block_{} * int64_t({})", a.name, s->tile * (s->reduced ? chunks(*s) : 1));
    return s->reduced ? fmt::format("{}{}it * int64_t({})", out, out.empty() ? "" : " + ", s->tile) : out;
  }
  std::vector<std::string> starts(const std::vector<IndexId>& of) const {
    std::vector<std::string> out;
    for (IndexId i : of) out.push_back(start(i));
    return out;
  }
  /// Tiles of a reduced index that a block, or the blocks of a cluster, take.
  int64_t chunks(const Split& s) const {
    const Axis& a = p_.axes[at(s.over[0])];
    return a.kind == AxisKind::kGrid ? a.each : ceil_div(p_.indices[at(s.index)].extent, s.tile);
  }
  /// How many elements of value v there are along b, r or c.
  std::string existing(ValueId v, int k) const {
    const int d = dim_of(elements_.tile_dims(v), k);
    const IndexId i = d < 0 ? -1 : p_.index_of[at(v)][at(d)];
    const Split* s = i < 0 ? nullptr : p_.split_of(i);
    const bool is_whole = s && s->reduced && (phase_[at(v)] != Phase::kLoop || g_.def_form<Accum>(v));   // its first tile was
    return s && is_ragged(*s) && !is_whole ? left(*s) : std::to_string(elements_.tile_of(i));
  }
  void declare_block() {
    std::vector<const Axis*> grid;
    for (const Axis& a : p_.axes) if (a.kind == AxisKind::kGrid) grid.push_back(&a);
    int64_t before = 1;
    for (const Axis* a : grid) {
      const std::string id = d_.cluster > 1 ? fmt::format("block_id() / {}", d_.cluster) : "block_id()";   // a cluster works on one tile
      line("const int block_{0} = {1}{2} % {3};", a->name, id, before > 1 ? fmt::format(" / {}", before) : "", a->extent);
      line("(void)block_{};", a->name);
      before *= a->extent;
    }
    for (const Split& s : p_.splits) if (!s.reduced && is_ragged(s)) declare_left(s);
  }

  // ---- copies
  struct Lines { std::string from; std::array<int64_t, 3> stride{0, 0, 0}; };
  /// Where this block's tile of a tensor begins and the steps along b, r and c.
  static Lines lines_of(const Param& a, const std::string& pointer, const std::vector<std::string>& start, const Dims& dims) {
    Lines out;
    out.from = fmt::format("{} + {}", pointer, a.offset);
    for (int d = 0; d < dims.rank(); d++) if (start[at(d)] != "0") out.from += fmt::format(" + ({}) * {}", start[at(d)], a.strides[d]);
    for (int k = 0; k < 3; k++) if (const int d = dim_of(dims, k); d >= 0 && dims[d] != 1) out.stride[at(k)] = a.strides[d];
    return out;
  }
  /// Bytes by which all lines of a block's tile are aligned, at most 16.
  static int64_t alignment(const Param& a, const std::vector<std::string>& start, const Dims& dims, int line_dim) {
    const int64_t size = dtype_bytes(a.dtype);
    int64_t common = std::gcd<int64_t>(16, a.offset * size);
    for (int d = 0; d < dims.rank(); d++) {
      const bool is_cut = start[at(d)] != "0";
      if (d != line_dim && (dims[d] > 1 || is_cut)) common = std::gcd(common, a.strides[d] * size);
      if (d == line_dim && is_cut) common = std::gcd(common, dims[d] * size);
    }
    return common;
  }
  /// Bytes that are copied at a time; 0: elements that are no neighbours.
  int64_t copied_together(const Stage& s, const Param& a, const Dims& dims) const {
    const Place& to = place(s.to);
    const int line_dim = dim_of(dims, to.columns ? 1 : 2);
    const int64_t size = dtype_bytes(a.dtype), common = alignment(a, starts(p_.index_of[at(to.value)]), dims, line_dim);
    if (line_dim < 0 || (a.strides[line_dim] != 1 && dims[line_dim] > 1)) return 0;
    if (s.path == PathId::kCpAsync) for (int64_t unit : {16, 8, 4}) if (common % unit == 0 && unit >= size) return unit;
    return size < 4 ? size : 0;
  }
  void copy(const Stage& s, const std::string& dst) {
    const ValueId v = place(s.to).value;
    const int param = g_.def_form<Input>(v)->param;
    const Param& a = p_.params[at(param)];
    const Dims dims = elements_.tile_dims(v);
    const Lines l = lines_of(a, fmt::format("(const {}*)in{}", cuda_type(a.dtype), param), starts(p_.index_of[at(v)]), dims);
    const char* team = warps_ > 1 && is_inside(s) ? "32" : "kThreads";
    const int64_t unit = copied_together(s, a, dims);
    const int along = place(s.to).columns ? 1 : 2, across = 3 - along;
    if (unit == 0)
      line("load_tile_strided<{}>({}, {}, {}, {}, {}, {}, {}, {});", team, dst, l.from, l.stride[0], l.stride[1], l.stride[2],
           existing(v, 0), existing(v, 1), existing(v, 2));
    else
      line("load_tile<{}, {}>({}, {}, {}, {}, {}, {}, {});", team, unit, dst, l.from, l.stride[0], l.stride[at(across)], existing(v, 0),
           existing(v, across), existing(v, along));
  }

  // ---- sums: a product or a reduction in registers, then in a tile
  /// Whether every warp runs the stage on tiles of its own: the loop is divided over warps.
  bool is_own(const Stage& s) const { return warps_ > 1 && is_inside(s); }
  const char* threads(const Stage& s) const { return is_own(s) ? "32" : "kThreads"; }
  const char* part(const Stage& s) const { return is_own(s) ? "warp_id()" : "part"; }
  std::string target(const Stage& s) const { return (tile(section_of(s)).is_part ? "p" : "t") + name(s); }
  struct Operand { std::string name; bool is_turned = false; int section = -1; };
  /// Operand `side` of a product, behind its transposes.
  Operand operand(const Stage& s, ValueId product, size_t side) const {
    Operand out;
    ValueId v = g_.def(product).operands[side];
    for (const Transpose* t; (t = g_.def_form<Transpose>(v)) != nullptr; v = g_.def(v).operands[0]) out.is_turned ^= elements_.swaps(*t, v);
    for (PlaceId x : s.reads) if (place(x).value == v && d_.home[at(x)] >= 0) out.section = d_.home[at(x)];
    MIRAGE_ASSERT(out.section >= 0) << "a product of what no place has";
    out.name = name(out.section);
    return out;
  }
  static std::string type_of(const Operand& o, bool other = false) { return "T" + o.name + (o.is_turned != other ? "::Transposed" : ""); }
  static std::string read(const Operand& o, bool other = false) { return "t" + o.name + (o.is_turned != other ? ".transposed()" : ""); }
  std::string contract_type(const Stage& s) const {
    const Operand x = operand(s, sum_of(s), s.swap), y = operand(s, sum_of(s), !s.swap);
    if (s.unit == UnitId::kFma)
      return fmt::format("FloatContract<{}, {}, {}, {}{}>", type_of(x), type_of(y), threads(s), s.team,
                         s.warps[2] > 1 ? fmt::format(", {}", s.warps[2]) : "");
    return fmt::format("TensorContract<{}, {}, {}, {}, {}{}>", type_of(x, s.swap), type_of(y, s.swap), s.warps[0], s.warps[1], s.warps[2],
                       is_own(s) ? ", true" : "");
  }
  void declare_sum(const Stage& s) {
    line("{} acc{};", is_softmax(s) ? softmax_type(s) : s.unit != UnitId::kNone ? contract_type(s) : reduce_type(s), name(s));
    line("acc{}.clear();", name(s));
  }
  void contract_add(const Stage& s) {
    line("acc{}.add({}, {});", name(s), read(operand(s, sum_of(s), s.swap), s.swap), read(operand(s, sum_of(s), !s.swap), s.swap));
  }
  // products on the float32 units that read one operand, term by term together
  static constexpr int64_t kTogether = 48;   // results of a thread that they have at most
  static constexpr int64_t kHeld = 64;       // words of operands that a thread holds at most
  bool is_float_product(const Stage& s) const {
    return s.unit == UnitId::kFma && sum_of(s) >= 0 && !is_softmax(s) && degree(s) == 0 && (accumulates(s) || !is_own(s));
  }
  int64_t team_of(const Stage& s) const { return (is_own(s) ? 32 : d_.threads) / s.warps[2]; }
  int64_t results_of(const Stage& s) const {
    const Extent3 e = padded(section_of(s));
    return ceil_div(e[0] * e[1] * e[2], team_of(s));
  }
  /// How many of `steps` from the first one on are computed together.
  size_t together(const std::vector<const Stage*>& steps, size_t first) const {
    const Stage& a = *steps[first];
    if (!is_float_product(a)) return 1;
    const Operand x = operand(a, sum_of(a), 0);
    int64_t results = results_of(a);
    std::set<int> made{section_of(a)};
    size_t n = 1;
    for (; first + n < steps.size(); n++) {
      const Stage& b = *steps[first + n];
      if (!is_float_product(b) || accumulates(b) != accumulates(a) || b.warps != a.warps) break;
      const Operand other = operand(b, sum_of(b), 0);
      results += results_of(b);
      if (other.section != x.section || other.is_turned != x.is_turned || results > kTogether) break;
      if (made.contains(operand(b, sum_of(b), 1).section)) break;
      made.insert(section_of(b));
    }
    return n;
  }
  /// Terms of these products that are read at a time (float_contract.cc): of lines along the contraction as many as registers hold.
  int terms_together(const std::vector<const Stage*>& steps, size_t first, size_t n) const {
    const auto is_along = [&](size_t i, size_t side) {
      const Operand o = operand(*steps[i], sum_of(*steps[i]), side);
      return tile(o.section).place->columns == (o.is_turned != (side == 1));
    };
    int64_t held = 0;
    bool both = false;
    for (size_t i = first; i < first + n; i++) {
      const Stage& s = *steps[i];
      const Extent3 e = padded(section_of(s));
      if (i == first) held += ceil_div(e[1], team_of(s) / s.team);
      held += ceil_div(e[2], int64_t{s.team});
      both = both || (is_along(i, 0) && is_along(i, 1));
    }
    return both && held * 4 > kHeld ? 2 : 4;
  }
  void add_together(const std::vector<const Stage*>& steps, size_t first, size_t n) {
    const Stage& a = *steps[first];
    const Operand x = operand(a, sum_of(a), 0);
    std::string terms;
    for (size_t i = first; i < first + n; i++)
      terms += fmt::format(" acc{}.term(w, {}, {}, k);", name(*steps[i]), read(x), read(operand(*steps[i], sum_of(*steps[i]), 1)));
    line("each_term<{}::kC, {}, {}>(acc{}.team(), [&](auto w, int k) {{{} }});", type_of(x), terms_together(steps, first, n), a.warps[2],
         name(a), terms);
  }
  /// Products term by term together. What any of them reads is there before the first; where results lie in what another has read, all have
  /// read before.
  void products(const std::vector<const Stage*>& steps, size_t first, size_t n) {
    const auto meets = [&](size_t from) {
      return std::any_of(steps.begin() + static_cast<long>(from), steps.begin() + static_cast<long>(first + n),
                         [&](const Stage* s) { return meets_before(*s); });
    };
    if (meets(first)) line("{}", is_own(*steps[first]) ? "warp_barrier();" : "barrier();");
    if (accumulates(*steps[first])) return add_together(steps, first, n);
    open("{{");
    for (size_t i = first; i < first + n; i++) declare_sum(*steps[i]);
    add_together(steps, first, n);
    if (meets(first + 1)) line("barrier();");
    for (size_t i = first; i < first + n; i++) finish(*steps[i]);
    close();
  }
  void finish(const Stage& s) {
    if (is_softmax(s)) return softmax_finish(s);
    if (s.unit != UnitId::kNone)
      line("acc{}.finish([&](int part, int b, int i, int j, float v) {{ {}.put({}, b, {}, v); }});", name(s), target(s), part(s),
           s.swap ? "j, i" : "i, j");
    else {
      const Index3 i = result_index(s, "0");
      line("acc{}.finish([&](int part, int out, float v) {{ {}.put({}, {}, {}, {}, v); }});", name(s), target(s), part(s), i[0], i[1],
           i[2]);
    }
  }
  // reductions
  ValueId summed(const Stage& s) const { return g_.def(sum_of(s)).operands[0]; }
  /// The reduced one of b, r and c.
  int along(const Stage& s) const {
    const Dims dims = elements_.tile_dims(summed(s));
    for (int k = 0; k < 3; k++) if (dim_of(dims, k) == g_.def_form<Reduce>(sum_of(s))->dim) return k;
    return 2;
  }
  /// The result number `out` as (b, r, c) of what remains, with the reduced index given.
  Index3 result_index(const Stage& s, const std::string& reduced) const {
    const Extent3 e = elements_.extent(summed(s));
    const size_t k = at(along(s)), inner = k == 2 ? 1 : 2, outer = k == 0 ? 1 : 0;
    Index3 i;
    i[k] = reduced;
    i[inner] = e[inner] == 1 ? "0" : fmt::format("out % {}", e[inner]);
    i[outer] = e[outer] == 1 ? "0" : e[inner] == 1 ? "out" : fmt::format("out / {}", e[inner]);
    return i;
  }
  int64_t results(const Stage& s) const {
    const Extent3 e = elements_.extent(summed(s));
    return e[0] * e[1] * e[2] / e[at(along(s))];
  }
  static constexpr int kPack = 8;   // neighbours of a line that a thread evaluates together
  /// That of r and c along which the lines of what v is made of lie.
  size_t line_of(const Stage& s, ValueId v) const { return elements_.is_turned(s, v) ? 1 : 2; }
  /// Whether threads have parts of all lines: lines are reduced to one, and packs of a line divide the threads.
  bool across_lines(const Stage& s) const {
    const Extent3 e = elements_.extent(summed(s));
    const size_t line = line_of(s, summed(s));
    const int64_t inner = e[line] / kPack;
    return at(along(s)) == 3 - line && e[0] == 1 && e[line] % kPack == 0 && s.team * inner == team_size(s) &&
           (32 % inner == 0 || inner % 32 == 0);
  }
  std::string reduce_type(const Stage& s) const {
    if (across_lines(s)) return fmt::format("LineReducer<{}, {}, {}, {}>", fn_name(fn_of(sum_of(s))), threads(s), results(s), kPack);
    return fmt::format("Reducer<{}, {}, {}, {}>", fn_name(fn_of(sum_of(s))), threads(s), results(s), s.team);
  }
  void reduce_add(const Stage& s) {
    const ValueId v = summed(s);
    const size_t line_index = line_of(s, v);
    const Index3 i = result_index(s, "k");
    const bool across = across_lines(s);
    const TileElements::Text r = elements_.text(s, v, i, across ? i[line_index] : "k");
    const std::string left = existing(v, along(s)), f = fmt::format("(void)w, (void)out, (void)k; {}return {};", r.statements, r.result);
    if (across) line("acc{}.add({}, [&](auto w, int out, int k) {{ {} }});", name(s), left, f);
    else
      line("acc{}.add<{}>({}, {}, [&](auto w, int out, int k) {{ {} }});", name(s),
           at(along(s)) == line_index && elements_.extent(v)[line_index] % kPack == 0 ? kPack : 1, results(s), left, f);
  }

  // ---- reductions of what a tile is filled with, or of what is computed of the same: in one walk over its lines
  int64_t team_size(const Stage& s) const { return is_own(s) ? 32 : d_.threads; }
  static constexpr int64_t kMostPacks = 32;   // of a thread
  /// Whether a stage fills a tile of lines that are whole packs and exist as far as they go.
  bool fills_lines(const Stage& s) const {
    if (!is_step(s) || s.kind != Stage::Kind::kCompute || sum_of(s) >= 0 || makes<Running>(s) || makes<Accum>(s)) return false;
    const ValueId v = place(s.to).value;
    const Extent3 e = elements_.extent(v), of = padded(section_of(s));
    const size_t line = place(s.to).columns ? 1 : 2;
    return e[0] == 1 && of[0] == 1 && of[line] == e[line] && e[line] % kPack == 0 && is_whole_line(v, line) &&
           ceil_div(of[1] * of[2] / kPack, team_size(s)) <= kMostPacks;
  }
  bool is_whole_line(ValueId v, size_t line) const {
    return existing(v, static_cast<int>(line)) == std::to_string(elements_.extent(v)[line]);
  }
  /// Whether a reduction has its elements where a walk over the lines of `fill` comes by.
  bool walks_with(const Stage& s, const Stage& fill) const {
    if (s.unit != UnitId::kNone || is_softmax(s) || sum_of(s) < 0 || is_own(s) != is_own(fill)) return false;
    const ValueId v = summed(s), of = place(fill.to).value;
    const Extent3 e = elements_.extent(v), all = elements_.extent(of);
    const size_t line = line_of(s, v), other = 3 - line, filled_line = place(fill.to).columns ? 1 : 2;
    if (e[0] != 1 || e[line] != all[filled_line] || e[other] != all[3 - filled_line] || !is_whole_line(v, line) ||
        existing(v, static_cast<int>(other)) != existing(of, static_cast<int>(3 - filled_line)))
      return false;
    return across_lines(s) || (at(along(s)) == line && s.team * kPack == e[line]);
  }
  /// Stages from the first one on that one walk computes: a fill and reductions, none of which waits for another; 1: it goes alone.
  size_t walked(const std::vector<const Stage*>& steps, size_t first) const {
    const Stage* fill = nullptr;
    size_t best = 1;
    for (size_t n = 1; first + n <= steps.size(); n++) {
      const Stage& s = *steps[first + n - 1];
      if (n > 1 && meets_before(s)) break;
      if (fills_lines(s)) {
        if (fill) break;
        fill = &s;
      }
      const auto fits = [&](const Stage* x) {
        return x == fill || (fill ? walks_with(*x, *fill) : x->unit == UnitId::kNone && sum_of(*x) >= 0);
      };
      if (!std::all_of(steps.begin() + static_cast<long>(first), steps.begin() + static_cast<long>(first + n), fits)) break;
      if (fill && n > 1) best = n;
    }
    return best;
  }
  void walk(const std::vector<const Stage*>& steps, size_t first, size_t n) {
    const std::vector<const Stage*> all(steps.begin() + static_cast<long>(first), steps.begin() + static_cast<long>(first + n));
    const Stage& fill = **std::find_if(all.begin(), all.end(), [&](const Stage* s) { return fills_lines(*s); });
    const bool turned = place(fill.to).columns,
               alone = std::any_of(all.begin(), all.end(), [&](const Stage* s) { return s != &fill && !accumulates(*s); });
    if (meets_before(*all[0])) line("{}", is_own(fill) ? "warp_barrier();" : "barrier();");
    if (alone) open("{{");
    const ValueId v = place(fill.to).value;
    const auto where = [](bool by_columns) { return by_columns ? Index3{"0", "c", "r"} : Index3{"0", "r", "c"}; };   // r: the line
    TileElements::Text text = elements_.text(fill, v, where(turned));   // what both need is computed once
    std::string sums;
    for (const Stage* s : all) {
      if (s == &fill) continue;
      if (!accumulates(*s)) declare_sum(*s);
      else if (degree(*s)) rescale(*s);
      const bool alike = elements_.is_narrow(*s) == elements_.is_narrow(fill);
      const ValueId of = summed(*s);
      TileElements::Text r =
          elements_.text(*s, of, where(line_of(*s, of) == 1), "c", alike ? text.known : TileElements::Known{});
      const std::string take = fmt::format("acc{}.take(u, {}); ", name(*s), r.result);
      sums += alike ? r.statements + take : fmt::format("{{ {}{}}} ", r.statements, take);
      if (alike) text.known = std::move(r.known);
    }
    line("fill_lines<{}, {}>({}, {}, [&](auto w, int u, int r, int c) {{ (void)w, (void)u, (void)r, (void)c; {}{}return {}; }});",
         threads(fill), kPack, filled(fill), existing(v, turned ? 2 : 1), text.statements, sums, text.result);
    for (const Stage* s : all) if (s != &fill && !accumulates(*s)) finish(*s);
    if (alone) close();
  }
  /// The tile that a stage fills, as its lines are rows.
  std::string filled(const Stage& s) const { return fmt::format("t{}{}", name(s), place(s.to).columns ? ".transposed()" : ""); }
  // what a running maximum rescales
  /// Where it is kept by how much the maximum grew that rescales what a stage accumulates.
  int factor(const Stage& s) const {
    const ValueId running = def(s).operands[1];
    const auto made =
        std::find_if(inside_.begin(), inside_.end(), [&](const Stage* m) { return m->to >= 0 && place(m->to).value == running; });
    return place((*made)->through[0]).section;
  }
  /// The factor of an accumulated element at `i`: e^(previous m - m) to the stage's degree.
  std::string power(const Stage& s, Index3 i) const {
    const int from = factor(s);
    for (size_t k = 0; k < 3; k++) {
      const int64_t has = padded(from)[k];
      if (has == 1) i[k] = "0";
      // rows of the accumulator's padding
      else if (padded(section_of(s))[k] > has && i[k].size() == 1) i[k] = fmt::format("{0} < {1} ? {0} : 0", i[k], has);
    }
    return fmt::format("power<{}>(t{}({}, {}, {}))", degree(s), name(from), i[0], i[1], i[2]);
  }
  void rescale(const Stage& s) {
    if (s.unit == UnitId::kNone)
      line("acc{}.rescale([&](int out) {{ (void)out; return {}; }});", name(s), power(s, result_index(s, "0")));
    else
      line("acc{}.rescale([&](int b, int i, int j) {{ (void)b, (void)i, (void)j; return {}; }});", name(s),
           power(s, {"b", s.swap ? "j" : "i", s.swap ? "i" : "j"}));
  }

  // ---- a running softmax between two products in registers; s multiplies its weights
  /// The stage of the loop whose value has this form.
  template <class Form> const Stage& inside() const {
    for (const Stage* s : inside_) if (makes<Form>(*s)) return *s;
    MIRAGE_ASSERT(false) << "half a softmax";
    return *inside_[0];
  }
  std::array<Operand, 3> softmax_operands(const Stage& s) const {
    const Stage& scores = inside<MatMul>();
    return {operand(scores, place(scores.to).value, 0), operand(scores, place(scores.to).value, 1), operand(s, sum_of(s), 1)};
  }
  std::string softmax_type(const Stage& s) const {
    const auto [x, y, z] = softmax_operands(s);
    const std::array<int, 3>& warps = inside<MatMul>().warps;
    return fmt::format("SoftmaxContract<{}, {}, {}, {}, {}>", type_of(x), type_of(y), type_of(z), warps[0], warps[1]);
  }
  void softmax_add(const Stage& s) {
    const Stage& maximum = inside<Reduce>();
    const ValueId scores = place(inside<MatMul>().to).value;
    const Extent3 e = elements_.extent(scores);
    const std::string where = fmt::format("0, {}, {}", e[1] == 1 ? "0" : "r", e[2] == 1 ? "0" : "c");
    const TileElements::Text r =
        elements_.text(maximum, g_.def(place(maximum.to).value).operands[0], {"0", "r", "c"}, "c", {{{scores, where}, "s"}});
    std::string index = "(void)r, (void)c; ";
    // Rows of the padding evaluate like the last one: what a region reads has no more rows.
    if (padded(section_of(s))[1] > e[1] && e[1] > 1) index += fmt::format("r = r < {0} ? r : {0} - 1; ", e[1]);
    const auto [x, y, z] = softmax_operands(s);
    line("acc{}.add({}, {}, {}, {}, [&](int r, int c, float s) {{ const Width<1> w; (void)w; {}{}return {}; }});", name(s), read(x),
         read(y), read(z), existing(scores, 2), index, r.statements, r.result);
  }
  void softmax_finish(const Stage& s) {
    const std::string maxima = name(*running_);
    std::string sums = "(void)part, (void)i, (void)v;";
    for (const Stage* x : inside_)
      if (x != &s && makes<Accum>(*x) && degree(*x)) sums = fmt::format("t{}.put(part, 0, i, 0, v);", name(*x));
    line("acc{}.put_maxima([&](int part, int i, float v) {{ t{}.put(part, 0, i, 0, v); }});", name(s), maxima);
    line("barrier();");
    line(
        "acc{0}.finish([&](int i) {{ return t{1}(0, i, 0); }}, [&](int part, int i, int j, float v) {{ t{0}.put(part, 0, i, j, v); }}, "
        "[&](int part, int i, float v) {{ {2} }});",
        name(s), maxima, sums);
  }

  // ---- stages in order
  bool meets_before(const Stage& s) const { return d_.meets[at(static_cast<int>(&s - p_.stages.data()))]; }
  void run(const std::vector<const Stage*>& stages) {
    std::vector<const Stage*> steps;
    for (const Stage* s : stages) if (is_step(*s)) steps.push_back(s);
    for (size_t i = 0, n = 0; i < steps.size(); i += n) {
      const Stage& s = *steps[i];
      if (n = walked(steps, i); n > 1) {
        walk(steps, i, n);
        continue;
      }
      n = together(steps, i);
      if (n == 1 && (s.warps[2] == 1 || s.unit != UnitId::kFma)) run(s);
      else products(steps, i, n);
    }
  }
  void run(const Stage& s) {
    if (meets_before(s) && !is_softmax(s)) line("{}", is_own(s) ? "warp_barrier();" : "barrier();");
    if (s.kind == Stage::Kind::kStore) return store(s);
    if (is_softmax(s)) return softmax_add(s);
    if (sum_of(s) >= 0) return add(s);
    elementwise(s, makes<Running>(s) || (makes<Accum>(s) && is_inside(s)) ? def(s).operands[0] : place(s.to).value);
  }
  void add(const Stage& s) {
    const bool is_alone = !accumulates(s);
    if (is_alone) {
      open("{{");
      declare_sum(s);
    } else if (degree(s)) {
      rescale(s);
    }
    if (s.unit != UnitId::kNone) contract_add(s);
    else reduce_add(s);
    if (!is_alone) return;
    finish(s);
    close();
  }
  /// Every thread computes elements of v, and puts them or what they grow to into a tile.
  void elementwise(const Stage& s, ValueId v) {
    const std::string left = fmt::format("{}, {}, {}", existing(v, 0), existing(v, 1), existing(v, 2)), text = elements_.lambda(s, v);
    if (makes<Running>(s))
      line("running_tile<kThreads>(t{}, t{}, iteration == 0, {}, {});", name(s), name(place(s.through[0]).section), left, text);
    else if (makes<Accum>(s) && is_inside(s))
      line("accumulate_tile<kThreads, {}>(t{}, iteration == 0, {}, {}{}{});", fn_name(fn_of(place(s.to).value)), name(s), left, text,
           degree(s) ? ", [&](int b, int r, int c) { (void)b, (void)r, (void)c; return " + power(s, {"b", "r", "c"}) : "",
           degree(s) ? "; }" : "");
    else {
      const bool turned = place(s.to).columns;
      const size_t along = turned ? 1 : 2;
      const bool is_wide = padded(section_of(s))[along] % kPack == 0 && elements_.extent(v)[along] > 1;
      line("fill_tile<{}, {}>({}, {}, {}, {}, {});", threads(s), is_wide ? kPack : 1, filled(s), existing(v, 0),
           existing(v, turned ? 2 : 1), existing(v, turned ? 1 : 2), elements_.lambda(s, v, turned));
    }
  }
  void store(const Stage& s) {
    const ValueId v = place(s.reads[0]).value;
    const Param& a = p_.results[at(s.result)];
    const Dims dims = elements_.tile_dims(v);
    const Extent3 e = elements_.extent(v);
    std::vector<std::string> start = starts(p_.index_of[at(v)]);
    for (const auto& [axis, d] : s.apart) start[at(d)] = fmt::format("block_{} * int64_t({})", p_.axes[at(axis)].name, dims[d]);
    const Lines l = lines_of(a, fmt::format("({}*)out{}", a.tf32 ? "tf32" : cuda_type(a.dtype), s.result), start, dims);
    const int dc = dim_of(dims, 2), dr = dim_of(dims, 1);
    const bool is_row = dc < 0 || a.strides[dc] == 1 || dims[dc] == 1, is_column = !is_row && dr >= 0 && a.strides[dr] == 1;
    const std::string share = d_.cluster > 1 ? fmt::format("cluster_rank(), {}", d_.cluster) : "0, 1",
                      text = elements_.lambda(s, v, is_column);
    if (!is_row && !is_column) {
      line("store_tile_strided<kThreads, {}, {}, {}>({}, {}, {}, {}, {}, {}, {}, {}, {});", e[0], e[1], e[2], l.from, l.stride[0],
           l.stride[1], l.stride[2], existing(v, 0), existing(v, 1), existing(v, 2), share, text);
      return;
    }
    const size_t along = is_column ? 1 : 2, across = 3 - along;
    const int64_t size = dtype_bytes(a.dtype), length = e[along];
    int64_t together = std::max<int64_t>(1, alignment(a, start, dims, is_row ? dc : dr) / size);
    while (together > 1 && (together > length || e[0] * e[1] * e[2] / together < d_.threads)) together /= 2;   // rather all threads
    line("store_tile<kThreads, {}, {}, {}, {}>({}, {}, {}, {}, {}, {}, {}, {});", together, e[0], e[across], e[along], l.from, l.stride[0],
         l.stride[across], existing(v, 0), existing(v, static_cast<int>(across)), existing(v, static_cast<int>(along)), share, text);
  }

  // ---- in front of the loop
  void wait_for_copies() { line("copy_commit();"); line("copy_wait<0>();"); line("barrier();"); }
  void before_loop() {
    for (const Stage* s : before_) if (s->kind == Stage::Kind::kCopy) copy(*s, "t" + name(*s));
    if (!loop_) wait_for_copies();
    if (loop_shares_copies()) line("copy_commit();");
    if (!runs_before_loop()) return;
    const bool rings = loop_ && slots() > 1;   // fill while those stages run
    if (rings) {
      line("copy_commit();");
      loop_range();
      loop_prologue(slots());
      line("copy_wait<{}>();", slots() - 1);
      line("barrier();");
    } else if (loop_) {
      wait_for_copies();
    }
    run(before_);
    line("barrier();");
  }
  bool runs_before_loop() const {
    return std::any_of(before_.begin(), before_.end(), [&](const Stage* s) { return is_step(*s); });
  }
  /// Whether warps that divide the loop read tiles that the whole block has loaded. Their own barriers do not order that, and no barrier of
  /// a stage ahead of the loop stands between.
  bool loop_shares_copies() const {
    if (warps_ == 1 || runs_before_loop()) return false;
    return std::any_of(inside_.begin(), inside_.end(), [&](const Stage* s) {
      const std::map<ValueId, int> leaves = elements_.leaves_of(*s);
      return std::any_of(before_.begin(), before_.end(), [&](const Stage* c) {
        return std::any_of(leaves.begin(), leaves.end(), [&](const auto& leaf) { return leaf.second == section_of(*c); });
      });
    });
  }

  // ---- the loop
  bool is_copy(const Stage& s) const { return s.kind == Stage::Kind::kCopy; }
  /// An iteration's operands on their way to a slot.
  void copy_iteration(const std::string& iteration, const std::string& slot) {
    for (const Stage* s : inside_) {
      if (!is_copy(*s)) continue;
      const int section = section_of(*s);
      open("{{ const int it = {}; (void)it;", iteration);
      for (const Split& x : p_.splits) if (x.reduced && is_ragged(x) && has_index(*s, x.index)) declare_left(x);
      copy(*s, fmt::format("T{}{{({}*)(smem + {}{}{})}}", name(section), element_type(section), d_.section_at[at(section)],
                           of_warp(section), in_slot(section, slot)));
      close();
    }
  }
  bool has_index(const Stage& s, IndexId i) const {
    const std::vector<IndexId>& of = p_.index_of[at(place(s.to).value)];
    return std::find(of.begin(), of.end(), i) != of.end();
  }
  /// Iterations are dealt in turn to the warps of a block, in runs to the blocks of a cluster.
  void loop_range() {
    const int64_t each = ceil_div(chunks_, int64_t{d_.cluster});
    line("const int begin = {}, end = {};", d_.cluster > 1 ? fmt::format("cluster_rank() * {}", each) : "0",
         d_.cluster > 1 ? fmt::format("begin + {0} < {1} ? begin + {0} : {1}", each, chunks_) : std::to_string(chunks_));
    line("const int first = {0}, iterations = (end - begin - first + {1}) / {2};", warps_ > 1 ? "warp_id()" : "0", warps_ - 1, warps_);
    // Blocks start at different places, so that they do not all ask the same lines of a shared operand from L2 at once (0.8 us of 19 on
    // rms_norm_linear, docs/measurements/blocks.md).
    const auto x = std::find_if(p_.axes.begin(), p_.axes.end(), [](const Axis& a) { return a.kind == AxisKind::kGrid; });
    line("const int turn = {};",
         rotated_ ? fmt::format("int(int64_t(block_{}) * (end - begin) / {})", x->name, x->extent) : "0");
    line(
        "const auto rotate = [&](int i) {{ const int at = first + i * {} + turn; return begin + (at < end - begin ? at : at - (end - "
        "begin)); }};",
        warps_);
  }
  int slots() const {
    int slots = 1;
    for (const Stage* s : inside_) if (is_copy(*s)) slots = std::max(slots, p_.sections[at(section_of(*s))].slots);
    return slots;
  }
  /// The copies of the first iterations.
  void loop_prologue(int slots) {
    line("#pragma unroll");
    open("for (int s = 0; s < {}; s++) {{", slots - 1);
    open("if (s < iterations) {{");
    copy_iteration("rotate(s)", "s");
    close();
    line("copy_commit();");
    close();
  }
  /// Where an iteration's operands lie, and how many of their elements there are.
  void iteration_tiles() {
    for (const Stage* s : inside_) {
      if (!is_copy(*s)) continue;
      const int section = section_of(*s);
      line("const T{0} t{0}{{({1}*)(smem + {2}{3}{4})}};", name(section), element_type(section), d_.section_at[at(section)],
           of_warp(section), in_slot(section, "slot"));
    }
    for (const Split& x : p_.splits) if (x.reduced && is_ragged(x)) { declare_left(x); line("(void){};", left(x)); }
  }
  /// This iteration's operands are there, those of a later one are on their way.
  void iteration_copies(int slots, const char* meet) {
    if (slots == 1) {
      copy_iteration("rotate(iteration)", "0");
      line("copy_commit();");
      line("copy_wait<0>();");
      line("{}", meet);
      return;
    }
    line("copy_wait<{}>();", slots - 2);
    line("{}", meet);
    open("if (iteration + {} < iterations) {{", slots - 1);
    line("const int next = slot + {0} < {1} ? slot + {0} : slot + {0} - {1};", slots - 1, slots);
    copy_iteration(fmt::format("rotate(iteration + {})", slots - 1), "next");
    close();
    line("copy_commit();");
  }
  void loop() {
    const int slots = this->slots();
    for (const Stage* s : inside_) if (accumulates(*s)) declare_sum(*s);
    const char* meet = warps_ > 1 ? "warp_barrier();" : "barrier();";
    if (slots == 1 || !runs_before_loop()) {
      loop_range();
      if (slots > 1) loop_prologue(slots);
    }
    if (loop_shares_copies()) { line("copy_wait<{}>();", slots - 1); line("barrier();"); }   // all but the prologue's groups
    open("for (int iteration = 0, slot = 0; iteration < iterations; iteration++, slot = slot + 1 < {0} ? slot + 1 : 0) {{", slots);
    iteration_copies(slots, meet);
    line("const int it = rotate(iteration);");
    line("(void)it;");
    iteration_tiles();
    run(inside_);
    if (slots == 1 && chunks_ > 1) line("{}", meet);
    close();
    line("copy_wait<0>();");
    line("barrier();");
    finish_sums();
  }
  /// What warps, and the blocks of a cluster, have accumulated becomes one.
  void finish_sums() {
    bool any = false;
    for (const Stage* s : inside_) if (accumulates(*s)) { finish(*s); any = true; }
    if (any) line("barrier();");
    if (d_.cluster == 1) return;
    line("cluster_wait();   // every block of the cluster has started");
    for (const Stage* s : after_)
      if (s->way == WayId::kExchange && s->kind == Stage::Kind::kFold) {
        const int from = d_.home[at(s->reads[0])], to = place(s->through.back()).section;
        line("const {} t{}{{(float*)(smem + {})}};", parts_type(from, d_.cluster), name(from), d_.section_at[at(to)]);
        line("p{0}.exchange<kThreads>(t{0}, cluster_rank());", name(from));
      }
    line("cluster_arrive();");
    line("cluster_wait();");
  }

  const KernelProgram& p_;
  const Derived& d_;
  const Graph& g_;
  const std::vector<Phase> phase_;
  const TileElements elements_;
  std::vector<Tile> tiles_;                        // per section
  std::vector<const Stage*> before_, inside_, after_;
  const Item* loop_ = nullptr;
  int64_t chunks_ = 1;                             // that all iterations take together
  bool rotated_ = false;
  const Stage* running_ = nullptr;                 // the maximum of a softmax between two products in registers
  int64_t warps_ = 1;                              // that divide the loop
};

}  // namespace
}  // namespace mirage::schedule

namespace mirage {

KernelText emit_block_kernel(const KernelPlan& kernel, const Plan&, const Target& target) {
  const schedule::KernelProgram program = schedule::stored_program(kernel);
  const schedule::Derived d = derive(program);
  const KernelCall& bound = bound_calls(kernel)[0];
  KernelText k;
  k.name = kernel.name;
  std::string params;
  const auto pass = [&](const std::vector<Access>& all, bool is_result) {
    for (size_t i = 0; i < all.size(); i++) {
      k.args.push_back(all[i].buffer);
      k.written.push_back(is_result);
      params += fmt::format("{}{}{}", params.empty() ? "" : ", ", is_result ? "void* __restrict__ out" : "const void* __restrict__ in", i);
    }
  };
  pass(bound.operands, false);
  pass(bound.results, true);
  k.grid = {d.blocks, 1, 1};
  k.threads = d.threads;
  k.smem_bytes = d.smem_bytes;
  const std::string text = schedule::BlockEmitter(program, d).body();
  // Blocks per multiprocessor are asked for where that was measured. Elsewhere the compiler takes the registers that it needs: a promise of
  // four blocks of 128 threads spilled on sm_80 and sm_100a.
  const int promised = target.sm == 90 ? program.per_sm : 1;
  k.source = fmt::format(
      "// {}\n__global__ void {}__launch_bounds__({}, {}) {}({}) {{\n  using namespace mo;\n  constexpr int kThreads = {};\n  extern "
      "__shared__ __align__(128) unsigned char smem[];\n{}}}\n",
      kernel.why, d.cluster > 1 ? fmt::format("__cluster_dims__({}, 1, 1) ", d.cluster) : "", d.threads, promised, kernel.name, params,
      d.threads, text);
  return k;
}

}  // namespace mirage

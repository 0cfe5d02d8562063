// Emits a graph-defined kernel from its BlockPlan: thin text that names tiles, loads and steps and calls the device library. Every
// element-wise region becomes one lambda.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "codegen/kernels/cuda_text.h"
#include "mirage/codegen/module.h"
#include "mirage/ir/walk.h"
#include "mirage/plan/block_plan.h"

namespace mirage {
namespace {

constexpr const char* kIndexNames[3] = {"b", "r", "c"};

class BlockEmitter {
 public:
  explicit BlockEmitter(const BlockPlan& p)
      : p_(p),
        g_(p.body),
        narrow_(std::all_of(p.results.begin(), p.results.end(), [](const Access& a) { return dtype_bytes(a.dtype) == 2; })) {}

  std::string body() {
    declare_tiles();
    if (p_.cluster > 1) line("cluster_arrive();");
    declare_places();
    invariant_phase();
    loop_phase();
    after_phase();
    return std::move(out_);
  }

 private:
  template <class... T>
  void line(fmt::format_string<T...> f, T&&... args) {
    out_ += indent_ + fmt::format(f, std::forward<T>(args)...) + "\n";
  }
  const SmemTile& tile(int t) const { return p_.tiles[static_cast<size_t>(t)]; }
  size_t at(ValueId v) const { return static_cast<size_t>(v); }
  std::string pointer(int param, bool result) const { return fmt::format("{}{}", result ? "out" : "in", param); }

  // ---- tiles
  static std::string parts_fn(ReduceFn fn) { return fn == ReduceFn::kSum ? "Sum" : "Max"; }
  void declare_tiles() {
    for (size_t i = 0; i < p_.tiles.size(); i++) {
      const SmemTile& t = p_.tiles[i];
      if (t.bytes == 0 || is_exchange(static_cast<int>(i))) continue;
      if (t.kind == SmemTile::Kind::kParts) {
        line("using T{} = Parts<{}, {}, {}, {}, {}, {}>;", i, parts_fn(t.fn), t.parts, t.extent[0], t.extent[1], t.extent[2], t.ld);
        line("const T{0} {1}{0}{{(float*)(smem + {2})}};", i, shared_result(static_cast<int>(i)) ? "p" : "t", t.offset);
      } else {
        line("using T{} = Tile<{}, {}, {}, {}, {}, {}, {}>;", i, element_type(t), t.extent[0], t.extent[1], t.extent[2], t.col, t.ld,
             t.swizzle);
        if (t.stages == 1 && !in_loop(static_cast<int>(i)))
          line("const T{0} t{0}{{({1}*)(smem + {2}{3})}};", i, element_type(t), t.offset, warp_offset(t));
      }
    }
  }

  static const char* element_type(const SmemTile& t) { return t.tf32 ? "tf32" : cuda_type(t.dtype); }
  bool in_loop(int t) const {
    for (const Load& l : p_.loads) if (l.tile == t && l.in_loop) return true;
    return false;
  }
  bool is_exchange(int t) const {
    for (const Step& s : p_.steps) if (s.exchange == t) return true;
    return false;
  }
  std::string warp_offset(const SmemTile& t) const { return t.copies > 1 ? fmt::format(" + warp_id() * {}", t.bytes / t.copies) : ""; }
  /// Whether tile t is accumulated by every block of the cluster for its share of the loop.
  bool shared_result(int t) const {
    if (p_.cluster > 1) for (const Step& s : p_.steps) if (s.tile == t && s.accumulates) return true;
    return false;
  }

  // ---- where this block's tiles start and how much of them exists
  void declare_places() {
    const Launch& l = g_.launch();
    // a cluster works on one block of the graph
    const std::string id = p_.cluster > 1 ? fmt::format("block_id() / {}", p_.cluster) : "block_id()";
    line("const int block_x = {3} % {0}, block_y = {3} / {0} % {1}, block_z = {3} / {2};", l.grid[0], l.grid[1], l.grid[0] * l.grid[1], id);
    line("(void)block_x, (void)block_y, (void)block_z;");
    for (NodeId n : g_.inputs()) {
      const Input& in = *g_.form<Input>(n);
      for (int d = 0; d < g_.dims(g_.node(n).first_value).rank(); d++)
        if (ragged(n, d) && in.part.loop != d) line("const int {} = {};", existing_name(n, d), existing_text(n, d));
    }
  }
  bool ragged(NodeId n, int d) const {
    for (const Existing& e : p_.existing[at(g_.node(n).first_value)]) if (e.input == n && e.dim == d) return true;
    return false;
  }
  static std::string existing_name(NodeId n, int d) { return fmt::format("left{}_{}", n, d); }
  std::string existing_text(NodeId n, int d) const {
    const Input& in = *g_.form<Input>(n);
    return fmt::format("clip({} - ({}), {})", p_.operands[static_cast<size_t>(in.param)].dims[d],
                       start_text(in.part, d, g_.dims(g_.node(n).first_value)[d], in.part.loop == d), g_.dims(g_.node(n).first_value)[d]);
  }
  /// First element along dimension d of this block's (and, if `looped`, iteration's) tile.
  std::string start_text(const Partition& part, int d, int64_t tile_extent, bool looped) const {
    std::string s;
    for (size_t a = 0; a < 3; a++)
      if (part.grid[a] == d)
        s += fmt::format("{}block_{} * int64_t({})", s.empty() ? "" : " + ", "xyz"[a], tile_extent * (looped ? g_.launch().loop : 1));
    if (looped) s += fmt::format("{}it * int64_t({})", s.empty() ? "" : " + ", tile_extent);
    return s.empty() ? "0" : s;
  }
  /// Text for how many elements of value v exist along index k (0 b, 1 r, 2 c).
  std::string existing(ValueId v, size_t k) const {
    const Existing& e = p_.existing[at(v)][k];
    return e.input >= 0 ? existing_name(e.input, e.dim) : std::to_string(p_.extent_of[at(v)][k]);
  }

  // ---- loads
  void load(const Load& l, const std::string& dst) {
    const Input& in = *g_.form<Input>(l.input);
    const Access& a = p_.operands[static_cast<size_t>(in.param)];
    const SmemTile& t = tile(l.tile);
    const ValueId v = g_.node(l.input).first_value;
    const Dims& dims = g_.dims(v);
    std::string from = fmt::format("(const {}*){} + {}", cuda_type(a.dtype), pointer(in.param, false), a.offset);
    for (int d = 0; d < dims.rank(); d++) {
      const std::string s = start_text(in.part, d, dims[d], in.part.loop == d);
      if (s != "0") from += fmt::format(" + ({}) * {}", s, a.strides[d]);
    }
    auto stride = [&](int k) { const int d = dim_of(dims, k); return d < 0 || dims[d] == 1 ? int64_t{0} : a.strides[d]; };
    if (l.unit == 0)
      line("load_tile_strided<{}>({}, {}, {}, {}, {}, {}, {}, {});", l.in_loop && p_.loop_warps > 1 ? "32" : "kThreads", dst, from,
           stride(0), stride(1), stride(2), existing(v, 0), existing(v, 1), existing(v, 2));
    else
      line("load_tile<{}, {}>({}, {}, {}, {}, {}, {}, {});", l.in_loop && p_.loop_warps > 1 ? "32" : "kThreads", l.unit, dst, from,
           stride(0), stride(t.col ? 2 : 1), existing(v, 0), existing(v, t.col ? 2 : 1), existing(v, t.col ? 1 : 2));
  }

  // ---- regions: the maps above v, evaluated at (b, r, c); leaves are tiles and constants
  struct Region { std::string statements, result; };
  Region region(ValueId v, const std::array<std::string, 3>& index, std::map<std::pair<ValueId, std::string>, std::string> known = {}) {
    Region r;
    r.result = element(v, index, r.statements, known);
    return r;
  }
  std::string element(ValueId v, const std::array<std::string, 3>& index, std::string& statements,
                      std::map<std::pair<ValueId, std::string>, std::string>& known) {
    std::array<std::string, 3> i = index;
    for (size_t k = 0; k < 3; k++) if (p_.extent_of[at(v)][k] == 1) i[k] = "0";
    const std::string place = i[0] + ", " + i[1] + ", " + i[2];
    if (auto it = known.find({v, place}); it != known.end()) return it->second;
    std::string text;
    if (p_.tile_of[at(v)] >= 0) text = fmt::format("t{}.read({}, {})", p_.tile_of[at(v)], i[2] == "0" ? "Width<1>()" : "w", place);
    else if (const auto* c = g_.def_form<Const>(v)) return CudaText().constant(c->value);
    else if (const auto* t = g_.def_form<Transpose>(v)) {
      const int rank = g_.dims(v).rank();
      if (rank >= 2 && t->perm[static_cast<size_t>(rank - 1)] != rank - 1) std::swap(i[1], i[2]);
      return element(g_.def(v).operands[0], i, statements, known);
    } else {
      const auto* m = g_.def_form<Map>(v);
      MIRAGE_ASSERT(m) << "no element text for " << form_name(g_.def(v).op);
      std::vector<std::string> operands;
      for (ValueId o : g_.def(v).operands) operands.push_back(element(o, i, statements, known));
      text = map_text(m->fn, operands);
      if (m->fn == MapFn::kDiv) {
        const ValueId by = g_.def(v).operands[1];
        DivisorText y{operands[1], std::nullopt, "", p_.extent_of[at(by)] != p_.extent_of[at(v)]};
        if (const auto* c = g_.def_form<Const>(by)) y.constant = c->value;
        const auto* root = p_.tile_of[at(by)] >= 0 ? nullptr : g_.def_form<Map>(by);
        if (narrow_ && root && root->fn == MapFn::kSqrt) y.root_of = element(g_.def(by).operands[0], i, statements, known);
        text = quotient_text(operands[0], y, narrow_);
      }
    }
    const std::string name = fmt::format("v{}{}", v, known.empty() ? "" : "_" + std::to_string(known.size()));
    statements += fmt::format("const auto {} = {}; ", name, text);
    known[{v, place}] = name;
    return name;
  }
  std::string lambda(ValueId v) {
    Region r = region(v, {"b", "r", "c"});
    return fmt::format("[&](auto w, int b, int r, int c) {{ (void)w, (void)b, (void)r, (void)c; {}return {}; }}", r.statements, r.result);
  }

  /// Whether evaluating v reads a tile through a transpose, where neighbours along c are no neighbours in the tile: no packs then.
  bool is_turned(ValueId v) const {
    return find_below(g_, v, [&](ValueId x) {
      if (p_.tile_of[at(x)] >= 0) return Look::kPast;
      const auto* t = g_.def_form<Transpose>(x);
      const int rank = g_.dims(x).rank();
      return t && rank >= 2 && t->perm[static_cast<size_t>(rank - 1)] != rank - 1 ? Look::kFound : Look::kInto;
    });
  }
  int width(const Step& s, ValueId v) const { return is_turned(v) ? 1 : s.width; }

  // ---- steps
  /// Whether every warp runs the step on tiles of its own: the loop is divided over warps.
  bool own_warp(const Step& s) const { return p_.loop_warps > 1 && s.phase == Phase::kLoop; }
  const char* threads(const Step& s) const { return own_warp(s) ? "32" : "kThreads"; }
  std::string part(const Step& s) const { return own_warp(s) ? "warp_id()" : "part"; }
  std::string contract_type(const Step& s) const {
    const std::string x = fmt::format("T{}{}", s.x, s.x_transposed != s.swap ? "::Transposed" : ""),
                      y = fmt::format("T{}{}", s.y, s.y_transposed != s.swap ? "::Transposed" : "");
    if (s.tensor)
      return fmt::format("TensorContract<{}, {}, {}, {}, {}{}>", s.swap ? y : x, s.swap ? x : y, s.wi, s.wj, s.wk,
                         own_warp(s) ? ", true" : "");
    return fmt::format("FloatContract<{}, {}, {}, {}>", x, y, threads(s), s.tj);
  }
  std::string operand(int t, bool transposed) const { return fmt::format("t{}{}", t, transposed ? ".transposed()" : ""); }
  void contract_add(const Step& s) {
    const std::string x = operand(s.x, s.x_transposed != s.swap), y = operand(s.y, s.y_transposed != s.swap);
    line("{}.add({}, {});", acc(s), s.swap ? y : x, s.swap ? x : y);
  }
  static std::string acc(const Step& s) { return fmt::format("acc{}", s.tile); }
  void finish(const Step& s) {
    if (s.kind == Step::Kind::kChain) { chain_finish(s); return; }
    if (s.kind == Step::Kind::kContract)
      line("{}.finish([&](int part, int b, int i, int j, float v) {{ {}{}.put({}, b, {}, v); }});", acc(s),
           shared_result(s.tile) ? "p" : "t", s.tile, part(s), s.swap ? "j, i" : "i, j");
    else
      line("{}.finish([&](int part, int out, float v) {{ {} }});", acc(s), reduce_put(s));
  }
  Extent3 reduced_from(const Step& s) const { return p_.extent_of[at(g_.node(s.node).operands[0])]; }
  /// The result number `out` as (b, r, c) of what remains, with the reduced index given.
  std::array<std::string, 3> split_out(const Step& s, const std::string& reduced) const {
    const Extent3 e = reduced_from(s);
    const size_t k = static_cast<size_t>(s.dim3), inner = k == 2 ? 1 : 2, outer = k == 0 ? 1 : 0;
    std::array<std::string, 3> i;
    i[k] = reduced;
    i[inner] = e[inner] == 1 ? "0" : fmt::format("out % {}", e[inner]);
    i[outer] = e[outer] == 1 ? "0" : e[inner] == 1 ? "out" : fmt::format("out / {}", e[inner]);
    return i;
  }
  std::string reduce_put(const Step& s) const {
    const auto i = split_out(s, "0");
    return fmt::format("{}{}.put({}, {}, {}, {}, v);", shared_result(s.tile) ? "p" : "t", s.tile, part(s), i[0], i[1], i[2]);
  }
  std::string reduce_type(const Step& s) const {
    const Extent3 e = reduced_from(s);
    const int64_t outs = e[0] * e[1] * e[2] / e[static_cast<size_t>(s.dim3)];
    return fmt::format("Reducer<{}, {}, {}, {}>", parts_fn(g_.form<Reduce>(s.node)->fn), threads(s), outs, s.group);
  }
  void reduce_add(const Step& s) {
    const ValueId v = g_.node(s.node).operands[0];
    const Extent3 e = reduced_from(s);
    const int64_t outs = e[0] * e[1] * e[2] / e[static_cast<size_t>(s.dim3)];
    const Region r = region(v, split_out(s, "k"));
    line("{}.add<{}>({}, {}, [&](auto w, int out, int k) {{ (void)w, (void)out, (void)k; {}return {}; }});", acc(s), width(s, v), outs,
         existing(v, static_cast<size_t>(s.dim3)), r.statements, r.result);
  }
  /// The factor of an accumulated element at `i`: e^(previous m - m) to the step's degree.
  std::string power(const Step& s, std::array<std::string, 3> i) const {
    for (size_t k = 0; k < 3; k++) {
      const int64_t extent = tile(s.factor).extent[k];
      if (extent == 1) i[k] = "0";
      // rows of the accumulator's padding
      else if (tile(s.tile).extent[k] > extent && i[k].size() == 1) i[k] = fmt::format("{0} < {1} ? {0} : 0", i[k], extent);
    }
    return fmt::format("power<{}>(t{}({}, {}, {}))", s.degree, s.factor, i[0], i[1], i[2]);
  }
  void rescale(const Step& s) {
    if (s.kind == Step::Kind::kReduce) {
      line("{}.rescale([&](int out) {{ (void)out; return {}; }});", acc(s), power(s, split_out(s, "0")));
      return;
    }
    line("{}.rescale([&](int b, int i, int j) {{ (void)b, (void)i, (void)j; return {}; }});", acc(s),
         power(s, {"b", s.swap ? "j" : "i", s.swap ? "i" : "j"}));
  }
  // ---- a running softmax between two contractions in registers
  std::string chain_type(const Step& s) const {
    const auto type = [](int tile, bool transposed) { return fmt::format("T{}{}", tile, transposed ? "::Transposed" : ""); };
    return fmt::format("SoftmaxContract<{}, {}, {}, {}, {}>", type(s.x, s.x_transposed), type(s.y, s.y_transposed),
                       type(s.z, s.z_transposed), s.wi, s.wk);
  }
  void chain_add(const Step& s) {
    const ValueId scores = g_.node(s.scores).first_value;
    const auto dim = [&](size_t k, const char* name) { return std::string(p_.extent_of[at(scores)][k] == 1 ? "0" : name); };
    std::map<std::pair<ValueId, std::string>, std::string> known;
    known[{scores, "0, " + dim(1, "r") + ", " + dim(2, "c")}] = "s";
    const Region r = region(s.logit, {"0", "r", "c"}, known);
    std::string index = "(void)r, (void)c; ";
    // Rows of the padding evaluate like the last one: what a region reads has no more rows.
    if (tile(s.tile).extent[1] > p_.extent_of[at(scores)][1] && p_.extent_of[at(scores)][1] > 1)
      index += fmt::format("r = r < {0} ? r : {0} - 1; ", p_.extent_of[at(scores)][1]);
    line("{}.add({}, {}, {}, {}, [&](int r, int c, float s) {{ const Width<1> w; (void)w; {}{}return {}; }});", acc(s),
         operand(s.x, s.x_transposed), operand(s.y, s.y_transposed), operand(s.z, s.z_transposed), existing(scores, 2), index, r.statements,
         r.result);
  }
  void chain_finish(const Step& s) {
    line("{}.put_maxima([&](int part, int i, float v) {{ t{}.put(part, 0, i, 0, v); }});", acc(s), s.factor);
    line("barrier();");
    line(
        "{0}.finish([&](int i) {{ return t{1}(0, i, 0); }}, [&](int part, int i, int j, float v) {{ t{2}.put(part, 0, i, j, v); }}, "
        "[&](int part, int i, float v) {{ {3} }});",
        acc(s), s.factor, s.tile, s.sum >= 0 ? fmt::format("t{}.put(part, 0, i, 0, v);", s.sum) : "(void)part, (void)i, (void)v;");
  }
  void declare_accumulator(const Step& s) {
    line("{} {};",
         s.kind == Step::Kind::kChain      ? chain_type(s)
         : s.kind == Step::Kind::kContract ? contract_type(s)
                                           : reduce_type(s),
         acc(s));
    line("{}.clear();", acc(s));
  }

  void run(const Step& s) {
    if (s.barrier_before) line("{}", own_warp(s) ? "warp_barrier();" : "barrier();");
    switch (s.kind) {
      case Step::Kind::kContract:
      case Step::Kind::kReduce:
        if (!s.accumulates) { line("{{"); indent_ += "  "; declare_accumulator(s); }
        if (s.degree) rescale(s);
        if (s.kind == Step::Kind::kContract) contract_add(s); else reduce_add(s);
        if (!s.accumulates) { finish(s); indent_.resize(indent_.size() - 2); line("}}"); }
        break;
      case Step::Kind::kFill:
        line("fill_tile<{}, {}>(t{}, {}, {}, {}, {});", threads(s), width(s, s.value), s.tile, existing(s.value, 0), existing(s.value, 1),
             existing(s.value, 2), lambda(s.value));
        break;
      case Step::Kind::kAccumulate: {
        const std::string fn = parts_fn(g_.form<Accum>(s.node)->fn);
        const std::string factor =
            s.degree ? fmt::format(", [&](int b, int r, int c) {{ (void)b, (void)r, (void)c; return {}; }}", power(s, {"b", "r", "c"}))
                     : "";
        line("accumulate_tile<kThreads, {}>(t{}, iteration == 0, {}, {}, {}, {}{});", fn, s.tile, existing(s.value, 0),
             existing(s.value, 1), existing(s.value, 2), lambda(s.value), factor);
        break;
      }
      case Step::Kind::kChain: chain_add(s); break;
      case Step::Kind::kRunning:
        line("running_tile<kThreads>(t{}, t{}, iteration == 0, {}, {}, {}, {});", s.tile, s.factor, existing(s.value, 0),
             existing(s.value, 1), existing(s.value, 2), lambda(s.value));
        break;
      case Step::Kind::kStore: store(s); break;
    }
  }

  std::string share() const { return p_.cluster > 1 ? fmt::format("cluster_rank(), {}", p_.cluster) : "0, 1"; }
  void store(const Step& s) {
    const Output& o = *g_.form<Output>(s.node);
    const Access& a = p_.results[static_cast<size_t>(o.result)];
    const Dims& dims = g_.dims(s.value);
    const Extent3 e = p_.extent_of[at(s.value)];
    std::string to = fmt::format("({}*){} + {}", cuda_type(a), pointer(o.result, true), a.offset);
    int64_t common = std::gcd<int64_t>(16, a.offset * dtype_bytes(a.dtype));
    const int dc = dim_of(dims, 2), dr = dim_of(dims, 1);
    const bool row = dc < 0 || a.strides[dc] == 1 || dims[dc] == 1, col = !row && dr >= 0 && a.strides[dr] == 1;
    const int line_dim = row ? dc : dr;
    const int64_t size = dtype_bytes(a.dtype);
    std::array<std::string, 3> left{existing(s.value, 0), existing(s.value, 1), existing(s.value, 2)};
    for (int d = 0; d < dims.rank(); d++) {
      const std::string start = start_text(o.part, d, dims[d], false);
      const bool split = start != "0";
      if (split) to += fmt::format(" + ({}) * {}", start, a.strides[d]);
      if (d != line_dim) { if (dims[d] > 1 || split) common = std::gcd(common, a.strides[d] * size); }
      else if (split) common = std::gcd(common, dims[d] * size);
      if (split && dims[d] * grid_of(o.part, d) != a.dims[d])   // the result's own tail
        for (int k = 0; k < 3; k++)
          if (dim_of(dims, k) == d) left[static_cast<size_t>(k)] = fmt::format("clip({} - ({}), {})", a.dims[d], start, dims[d]);
    }
    auto stride = [&](int k) { const int d = dim_of(dims, k); return d < 0 || dims[d] == 1 ? int64_t{0} : a.strides[d]; };
    if (!row && !col)
      line("store_tile_strided<kThreads, {}, {}, {}>({}, {}, {}, {}, {}, {}, {}, {}, {});", e[0], e[1], e[2], to, stride(0), stride(1),
           stride(2), left[0], left[1], left[2], share(), lambda(s.value));
    else {
      int64_t v = is_turned(s.value) ? 1 : std::max<int64_t>(1, common / size);
      const int64_t length = e[col ? 1 : 2];
      while (v > 1 && (v > length || e[0] * e[1] * e[2] / v < p_.threads)) v /= 2;   // rather all threads than wide stores
      line("store_tile<kThreads, {}, {}, {}, {}, {}>({}, {}, {}, {}, {}, {}, {}, {});", v, e[0], e[1], e[2], col, to, stride(0),
           stride(col ? 2 : 1), left[0], left[1], left[2], share(), lambda(s.value));
    }
  }
  int64_t grid_of(const Partition& part, int d) const {
    int64_t n = 1;
    for (size_t a = 0; a < 3; a++) if (part.grid[a] == d) n *= g_.launch().grid[a];
    return n;
  }

  // ---- phases
  bool any(Phase ph) const { for (const Step& s : p_.steps) if (s.phase == ph) return true; return false; }
  bool has_loop() const { for (const Load& l : p_.loads) if (l.in_loop) return true; return false; }

  bool is_leaf(ValueId v, int tile) const {
    return find_below(g_, v, [&](ValueId x) {
      return p_.tile_of[at(x)] < 0 ? Look::kInto : p_.tile_of[at(x)] == tile ? Look::kFound : Look::kPast;
    });
  }
  /// Whether warps that divide the loop read tiles that the whole block has loaded. Their own barriers do not order that, and no invariant
  /// step's barrier stands between.
  bool loop_shares_loads() const {
    if (p_.loop_warps == 1 || any(Phase::kInvariant)) return false;
    for (const Load& l : p_.loads)
      for (const Step& s : p_.steps) {
        if (l.in_loop || s.phase != Phase::kLoop) continue;
        if (s.kind == Step::Kind::kContract ? s.x == l.tile || s.y == l.tile
                                            : is_leaf(s.kind == Step::Kind::kReduce ? g_.node(s.node).operands[0] : s.value, l.tile))
          return true;
      }
    return false;
  }

  void invariant_phase() {
    for (const Load& l : p_.loads) if (!l.in_loop) load(l, fmt::format("t{}", l.tile));
    if (!has_loop()) { line("copy_commit();"); line("copy_wait<0>();"); line("barrier();"); }
    if (loop_shares_loads()) line("copy_commit();");
    if (!any(Phase::kInvariant)) return;
    if (has_loop()) { line("copy_commit();"); line("copy_wait<0>();"); line("barrier();"); }
    for (const Step& s : p_.steps) if (s.phase == Phase::kInvariant) run(s);
    line("barrier();");
  }

  void stage(const Load& l, const std::string& it, const std::string& slot) {
    const SmemTile& t = tile(l.tile);
    line("{{ const int it = {}; (void)it;", it);
    indent_ += "  ";
    const Input& in = *g_.form<Input>(l.input);
    for (int d = 0; d < g_.dims(g_.node(l.input).first_value).rank(); d++)
      if (ragged(l.input, d) && in.part.loop == d) line("const int {} = {};", existing_name(l.input, d), existing_text(l.input, d));
    load(l, fmt::format("T{0}{{({1}*)(smem + {2}{5} + {3} * {4})}}", l.tile, cuda_type(t.dtype), t.offset, slot,
                        t.bytes / t.copies / t.stages, warp_offset(t)));
    indent_.resize(indent_.size() - 2);
    line("}}");
  }

  void loop_phase() {
    if (!has_loop()) return;
    const int64_t iterations = g_.launch().loop;
    const int stages = p_.stages;
    for (const Step& s : p_.steps) if (s.accumulates) declare_accumulator(s);
    // Iterations are dealt in turn to the warps of a block, in runs to the blocks of a cluster.
    const int64_t each = (iterations + p_.cluster - 1) / p_.cluster, warps = p_.loop_warps;
    line("const int begin = {}, end = {};", p_.cluster > 1 ? fmt::format("cluster_rank() * {}", each) : "0",
         p_.cluster > 1 ? fmt::format("begin + {0} < {1} ? begin + {0} : {1}", each, iterations) : std::to_string(iterations));
    line("const int first = {0}, iterations = (end - begin - first + {1}) / {2};", warps > 1 ? "warp_id()" : "0", warps - 1, warps);
    // Blocks start at different places, so that they do not all ask the same lines of a shared operand from L2 at once (0.8 us of 19 on
    // rms_norm_linear, docs/planning.md).
    line("const int turn = int(int64_t(block_x) * (end - begin) / {});", g_.launch().grid[0]);
    line(
        "const auto rotate = [&](int i) {{ const int at = first + i * {} + turn; return begin + (at < end - begin ? at : at - (end - "
        "begin)); }};",
        warps);
    const char* sync = warps > 1 ? "warp_barrier();" : "barrier();";
    auto issue = [&](const std::string& it, const std::string& slot) { for (const Load& l : p_.loads) if (l.in_loop) stage(l, it, slot); };
    if (stages > 1) {
      line("#pragma unroll");
      line("for (int s = 0; s < {}; s++) {{", stages - 1);
      indent_ += "  ";
      line("if (s < iterations) {{");
      indent_ += "  ";
      issue("rotate(s)", "s");
      indent_.resize(indent_.size() - 2);
      line("}}");
      line("copy_commit();");
      indent_.resize(indent_.size() - 2);
      line("}}");
    }
    if (loop_shares_loads()) { line("copy_wait<{}>();", stages - 1); line("barrier();"); }   // all but the prologue's groups
    line("for (int iteration = 0, slot = 0; iteration < iterations; iteration++, slot = slot + 1 < {0} ? slot + 1 : 0) {{", stages);
    indent_ += "  ";
    if (stages > 1) {
      line("copy_wait<{}>();", stages - 2);
      line("{}", sync);
      line("if (iteration + {} < iterations) {{", stages - 1);
      indent_ += "  ";
      line("const int next = slot + {0} < {1} ? slot + {0} : slot + {0} - {1};", stages - 1, stages);
      issue(fmt::format("rotate(iteration + {})", stages - 1), "next");
      indent_.resize(indent_.size() - 2);
      line("}}");
      line("copy_commit();");
    } else {
      issue("rotate(iteration)", "0");
      line("copy_commit();");
      line("copy_wait<0>();");
      line("{}", sync);
    }
    line("const int it = rotate(iteration);");
    line("(void)it;");
    for (const Load& l : p_.loads) {
      if (!l.in_loop) continue;
      const SmemTile& t = tile(l.tile);
      line("const T{0} t{0}{{({1}*)(smem + {2}{4} + slot * {3})}};", l.tile, cuda_type(t.dtype), t.offset, t.bytes / t.copies / t.stages,
           warp_offset(t));
      const Input& in = *g_.form<Input>(l.input);
      for (int d = 0; d < g_.dims(g_.node(l.input).first_value).rank(); d++)
        if (ragged(l.input, d) && in.part.loop == d) {
          line("const int {} = {};", existing_name(l.input, d), existing_text(l.input, d));
          line("(void){};", existing_name(l.input, d));
        }
    }
    for (const Step& s : p_.steps) if (s.phase == Phase::kLoop) run(s);
    if (stages == 1 && iterations > 1) line("{}", sync);
    indent_.resize(indent_.size() - 2);
    line("}}");
    line("copy_wait<0>();");
    line("barrier();");
    bool finished = false;
    for (const Step& s : p_.steps) if (s.accumulates) { finish(s); finished = true; }
    if (finished) line("barrier();");
    if (p_.cluster == 1) return;
    line("cluster_wait();   // every block of the cluster has started");
    for (const Step& s : p_.steps) {
      if (!s.accumulates) continue;
      const SmemTile &t = tile(s.tile), &x = tile(s.exchange);
      line("const Parts<{}, {}, {}, {}, {}, {}> t{}{{(float*)(smem + {})}};", parts_fn(t.fn), p_.cluster, t.extent[0], t.extent[1],
           t.extent[2], t.ld, s.tile, x.offset);
      line("p{0}.exchange<kThreads>(t{0}, cluster_rank());", s.tile);
    }
    line("cluster_arrive();");
    line("cluster_wait();");
  }

  void after_phase() {
    for (const Step& s : p_.steps) if (s.phase == Phase::kAfter) run(s);
  }

  const BlockPlan& p_;
  const Graph& g_;
  const bool narrow_;   // every result is stored in 16 bits
  std::string out_, indent_ = "  ";
};

}  // namespace

KernelText emit_block_kernel(const KernelPlan& kernel, const Plan&, const Target& target) {
  const BlockPlan& p = *std::get<std::shared_ptr<const BlockPlan>>(kernel.body);
  KernelText k;
  k.name = kernel.name;
  std::string params;
  for (size_t i = 0; i < p.operands.size(); i++) {
    k.args.push_back(p.operands[i].buffer);
    k.written.push_back(false);
    params += fmt::format("{}const void* __restrict__ in{}", params.empty() ? "" : ", ", i);
  }
  for (size_t i = 0; i < p.results.size(); i++) {
    k.args.push_back(p.results[i].buffer);
    k.written.push_back(true);
    params += fmt::format("{}void* __restrict__ out{}", params.empty() ? "" : ", ", i);
  }
  k.grid = {p.body.launch().blocks() * p.cluster, 1, 1};
  k.threads = p.threads;
  k.smem_bytes = p.smem_bytes;
  const std::string text = BlockEmitter(p).body();
  // Blocks per multiprocessor are asked for where that was measured. Elsewhere the compiler takes the registers that it needs: a promise of
  // four blocks of 128 threads spilled on sm_80 and sm_100a.
  const int promised = target.sm == 90 ? p.blocks_per_sm : 1;
  k.source = fmt::format(
      "// {}\n__global__ void {}__launch_bounds__({}, {}) {}({}) {{\n  using namespace mo;\n  constexpr int kThreads = {};\n  extern "
      "__shared__ __align__(128) unsigned char smem[];\n{}}}\n",
      kernel.why, p.cluster > 1 ? fmt::format("__cluster_dims__({}, 1, 1) ", p.cluster) : "", p.threads, promised, kernel.name, params,
      p.threads, text);
  return k;
}

}  // namespace mirage

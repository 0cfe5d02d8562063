// Prints a RegionPlan as one __global__ function. The text has the plan's loops and statements; what a statement does is a function of the
// device library (runtime/20_region.cuh).
#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>

#include "codegen/kernels/cuda_text.h"
#include "mirage/codegen/module.h"
#include "mirage/plan/region.h"
#include "mirage/support/round.h"

namespace mirage {
namespace {

using Kind = RegionInstr::Kind;

/// Elements of a thread from which on a reciprocal that they share is worth its own instructions. Not in columns (slot_attention_iter: 2.72
/// us divided, 3.20 with reciprocals).
constexpr int64_t kSharedReciprocal = 4;
constexpr int kLittle = 32;   // elements that a thread holds
enum class VarLevel : uint8_t { kRow, kInner, kLane };
const char* storage_type(const RegionAccess& a) { return a.tf32 ? "mo::tf32" : mirage::storage_type(a.dtype); }

class RegionEmitter {
 public:
  /// first_block: of the launch, where several regions stand beside each other; -1: it is the only one.
  RegionEmitter(const KernelPlan& kernel, const RegionPlan& plan, int64_t first_block = -1)
      : kernel_(kernel),
        p_(plan),
        first_block_(first_block),
        type_(plan.wide ? "mo::index64" : "mo::index32"),
        suffix_(plan.wide ? "ull" : "u") {
    level_vars();
    define_all();
    keep_values();
  }

  KernelText run() {
    KernelText out;
    out.name = kernel_.name;
    out.grid = {p_.blocks, 1, 1};
    out.threads = p_.threads;
    std::string params, parts;
    int per_sm = p_.blocks_per_sm;
    if (p_.beside.empty()) parts = part(out, params);
    else {
      parts = fmt::format("  if (blockIdx.x < {}u) {{\n{}  }}", p_.blocks, RegionEmitter(kernel_, p_, 0).part(out, params));
      for (const auto& other : p_.beside) {
        const int64_t first = out.grid[0];
        out.grid[0] += other->blocks;
        const std::string body = RegionEmitter(kernel_, *other, first).part(out, params);
        parts += other == p_.beside.back() ? fmt::format(" else {{\n{}  }}\n", body)
                                           : fmt::format(" else if (blockIdx.x < {}u) {{\n{}  }}", out.grid[0], body);
        per_sm = std::min(per_sm, other->blocks_per_sm);
      }
    }
    out.smem_bytes = p_.smem_bytes;
    out.source = fmt::format("__global__ void {}__launch_bounds__({}, {}) {}({}) {{\n{}}}\n",
                             p_.cluster > 1 ? fmt::format("__cluster_dims__({}, 1, 1) ", p_.cluster) : "", p_.threads, per_sm, kernel_.name,
                             params, parts);
    return out;
  }

 private:
  /// The text of this region's blocks; adds its arguments.
  std::string part(KernelText& out, std::string& params) {
    if (first_block_ >= 0) indent_ += 2;
    for (size_t i = 0; i < p_.accesses.size(); i++) {
      const RegionAccess& a = p_.accesses[i];
      const size_t n = out.args.size();
      out.args.push_back(a.buffer);
      out.written.push_back(a.written);
      params += fmt::format("{}{}void* __restrict__ a{}", n ? ", " : "", a.written ? "" : "const ", n);
      const std::string type = fmt::format("{}{}*", a.written ? "" : "const ", storage_type(a));
      line("{} __restrict__ p{} = static_cast<{}>(a{});", type, i, type, n);
    }
    if (first_block_ >= 0) line("const {0} block = static_cast<{0}>(blockIdx.x) - {1};", type_, number(first_block_));
    switch (p_.shape) {
      case RegionPlan::Shape::kPointwise: pointwise(); break;
      case RegionPlan::Shape::kRow: row(); break;
      case RegionPlan::Shape::kColumn: column(); break;
    }
    return text_;
  }
  std::string block() const { return first_block_ >= 0 ? "block" : fmt::format("static_cast<{}>(blockIdx.x)", type_); }
  std::string blocks() const { return first_block_ >= 0 ? number(p_.blocks) : fmt::format("static_cast<{}>(gridDim.x)", type_); }
  std::string first_row() const { return first_block_ >= 0 ? "Team::first(block)" : fmt::format("Team::first<{}>()", type_); }
  std::string row_stride() const {
    return first_block_ >= 0 ? fmt::format("{} * {}", blocks(), number(p_.threads / p_.team)) : fmt::format("Team::stride<{}>()", type_);
  }
  template <class... A>
  void line(fmt::format_string<A...> f, A&&... a) {
    text_ += std::string(static_cast<size_t>(indent_), ' ') + fmt::format(f, std::forward<A>(a)...) + "\n";
  }
  void open(const std::string& head) {
    line("{}{{", head.empty() ? "" : head + " ");
    indent_ += 2;
  }
  void close() {
    indent_ -= 2;
    line("}}");
  }

  // ---- index variables

  void level_vars() {
    levels_.resize(p_.vars.size(), VarLevel::kRow);
    for (int v : p_.inner) levels_[static_cast<size_t>(v)] = VarLevel::kInner;
    if (p_.lane >= 0) levels_[static_cast<size_t>(p_.lane)] = VarLevel::kLane;
    for (size_t v = 0; v < p_.vars.size(); v++)
      for (const auto& [w, c] : p_.vars[v].arg.terms) levels_[v] = std::max(levels_[v], levels_[static_cast<size_t>(w)]);
  }

  std::string number(int64_t x) const { return fmt::format("{}{}", x, suffix_); }
  std::string text(const Affine& a) const {
    std::string out;
    int64_t constant = a.constant;
    for (const auto& [v, c] : a.terms) {
      if (fixed_ && v == p_.unrolled) {
        constant += c * *fixed_;
        continue;
      }
      const std::string term = std::abs(c) == 1 ? fmt::format("i{}", v) : fmt::format("i{} * {}", v, number(std::abs(c)));
      out += out.empty() ? (c < 0 ? "0" + std::string(suffix_) + " - " + term : term) : (c < 0 ? " - " : " + ") + term;
    }
    if (constant || out.empty()) out += out.empty() ? number(constant) : (constant < 0 ? " - " : " + ") + number(std::abs(constant));
    return out;
  }
  /// The smallest and the largest value of a form with its lane at 0.
  std::pair<int64_t, int64_t> range_of_vector(const Affine& a) const {
    int64_t low = a.constant, high = low;
    for (const auto& [v, c] : a.terms) {
      if (v == p_.lane) continue;
      const bool is_fixed = fixed_ && v == p_.unrolled;
      const int64_t most = c * (is_fixed ? *fixed_ : p_.vars[static_cast<size_t>(v)].extent - 1);
      low += is_fixed ? most : std::min<int64_t>(0, most), high += is_fixed ? most : std::max<int64_t>(0, most);
    }
    return {low, high};
  }
  /// The side of a branch that is taken, where that is known: with the value of an unrolled loop.
  const std::vector<RegionInstr>* decided(const RegionInstr& i) const {
    if (!fixed_ || i.index.coefficient(p_.unrolled) == 0 || (p_.lane >= 0 && i.index.coefficient(p_.lane) != 0)) return nullptr;
    const auto [low, high] = range_of_vector(i.index);
    return high < i.bound ? &i.then_body : low >= i.bound ? &i.else_body : nullptr;
  }

  void use(const Affine& a, std::set<int>& used) const {
    for (const auto& [v, c] : a.terms)
      if (used.insert(v).second) use(p_.vars[static_cast<size_t>(v)].arg, used);
  }
  void use(const std::vector<RegionInstr>& code, std::set<int>& used) const {
    for (const RegionInstr& i : code) {
      if (const auto* side = i.kind == Kind::kBranch ? decided(i) : nullptr) {
        use(*side, used);
        continue;
      }
      use(i.index, used);
      use(i.then_body, used);
      use(i.else_body, used);
    }
  }
  std::set<int> used_vars(const std::vector<RegionInstr>& code, const std::vector<RegionStore>& stores) const {
    std::set<int> used;
    use(code, used);
    for (const RegionStore& s : stores) use(s.offset, used);
    return used;
  }
  std::set<int> all_used() const {
    std::set<int> used;
    for (const RegionPass& pass : passes_)
      for (const auto& u : {used_vars(pass.body, pass.stores), used_vars(pass.after, pass.after_stores)}) used.insert(u.begin(), u.end());
    return used;
  }

  /// Loop variables from a linear number, slowest first, then the divisions that need nothing deeper.
  void decompose(const std::vector<int>& loops, const std::string& linear, const std::set<int>& used) {
    std::vector<std::string> lines;
    int64_t below = 1;
    for (size_t i = loops.size(); i-- > 0;) {
      const int v = loops[i];
      const int64_t extent = p_.vars[static_cast<size_t>(v)].extent;
      std::string x = below == 1 ? linear : fmt::format("{} / {}", linear, number(below));
      if (i > 0) x = fmt::format("{} % {}", x, number(extent));
      below *= extent;
      if (used.count(v)) lines.push_back(fmt::format("const {} i{} = {};", type_, v, x));
    }
    std::reverse(lines.begin(), lines.end());
    for (const std::string& l : lines) line("{}", l);
  }
  void divisions(VarLevel level, const std::set<int>& used) {
    for (int v : used) {
      const IndexVar& var = p_.vars[static_cast<size_t>(v)];
      if (levels_[static_cast<size_t>(v)] == level && var.kind == IndexVar::Kind::kLoaded)
        line("const {} i{} = mo::place_within(p{}[{}], {});", type_, v, var.access, text(var.arg), number(var.extent - 1));
      if (levels_[static_cast<size_t>(v)] != level || (var.kind != IndexVar::Kind::kDiv && var.kind != IndexVar::Kind::kMod)) continue;
      line("const {} i{} = ({}) {} {};", type_, v, text(var.arg), var.kind == IndexVar::Kind::kDiv ? "/" : "%", number(var.divisor));
    }
  }

  // ---- statements

  /// Where the vector of an access begins: its first lane.
  std::string pointer(int access, Affine at) const {
    std::erase_if(at.terms, [&](const auto& t) { return t.first == p_.lane; });
    return fmt::format("p{} + ({})", access, text(at));
  }
  std::string valid_argument() const { return ragged_ ? ", valid" : ""; }

  /// Vector loads stand before the lanes' code, under the conditions of the branches around them.
  void vector_loads(const std::vector<RegionInstr>& code, const std::string& condition) {
    for (const RegionInstr& i : code) {
      if (i.kind == Kind::kLoad && i.vector && condition.empty() && held_.count({i.access, i.index})) {
        const int h = held_.at({i.access, i.index});
        if (p_.staged)
          line("mo::real x{}[{}];", i.result, p_.width),
              line("mo::unstage<{}, {}>(x{}, row_smem + {}, k);", p_.threads, storage_type(p_.accesses[static_cast<size_t>(i.access)]),
                   i.result, staged_at_[static_cast<size_t>(h)]);
        else if (unpacks_[static_cast<size_t>(h)]) line("const mo::real (&x{})[{}] = h{}[k];", i.result, p_.width, h);
        else line("mo::real x{}[{}];", i.result, p_.width), line("mo::unpack(x{}, q{}[k]);", i.result, h);
      } else if (i.kind == Kind::kLoad && i.vector) {
        line("mo::real x{}[{}];", i.result, p_.width);
        line("{}mo::load_vector(x{}, {}{});", condition.empty() ? "" : "if (" + condition + ") ", i.result, pointer(i.access, i.index),
             valid_argument());
      }
      if (i.kind != Kind::kBranch || !i.uniform) continue;
      if (const auto* side = decided(i)) {
        vector_loads(*side, condition);
        continue;
      }
      const std::string test = fmt::format("{} < {}", text(i.index), number(i.bound)), both = condition.empty() ? "" : condition + " && ";
      vector_loads(i.then_body, both + test);
      vector_loads(i.else_body, both + "!(" + test + ")");
    }
  }

  /// Where each value comes from, and whether it is the same for all elements of a row that a thread works on.
  void define(const std::vector<RegionInstr>& code) {
    for (const RegionInstr& i : code) {
      definition_[i.result] = &i;
      define(i.then_body);
      define(i.else_body);
      const bool here = !(i.kind == Kind::kLoad || i.kind == Kind::kIndex) ||
                        std::all_of(i.index.terms.begin(), i.index.terms.end(),
                                    [&](const auto& t) { return levels_[static_cast<size_t>(t.first)] == VarLevel::kRow; });
      if (here && i.kind != Kind::kBranch && std::all_of(i.args.begin(), i.args.end(), [&](int a) { return of_row_.count(a) > 0; }))
        of_row_.insert(i.result);
    }
  }
  void define_all() {
    for (const RegionPass& pass : p_.passes) {
      define(pass.body);
      for (const RegionReduce& r : pass.reduces) of_row_.insert(r.result);
      define(pass.after);
      for (const auto* stores : {&pass.stores, &pass.after_stores})
        for (const RegionStore& s : *stores) narrow_ = narrow_ && dtype_bytes(p_.accesses[static_cast<size_t>(s.access)].dtype) == 2;
    }
  }
  /// Whether a thread divides so many elements of a row by one number that a reciprocal is worth its own instructions.
  bool shares_reciprocal() const {
    return p_.shape == RegionPlan::Shape::kRow && ceil_div(p_.length, p_.team) * p_.width >= kSharedReciprocal;
  }
  std::string quotient(const RegionInstr& i) const {
    const bool shared = of_row_.count(i.args[1]) > 0 && (narrow_ || shares_reciprocal());
    DivisorText y{fmt::format("v{}", i.args[1]), std::nullopt, "", shared};
    if (auto d = definition_.find(i.args[1]); d != definition_.end()) {
      if (d->second->kind == Kind::kConst) y.constant = d->second->constant;
      const bool is_root = d->second->kind == Kind::kMap && d->second->fn == MapFn::kSqrt;
      if (is_root && is_kept_.count(i.args[1]) == 0) y.root_of = fmt::format("v{}", d->second->args[0]);
    }
    return quotient_text(fmt::format("v{}", i.args[0]), y, narrow_);
  }

  // ---- values that wait for later passes

  /// The statements of each pass that are left where kept values need not be computed again.
  void keep_values() {
    passes_ = p_.passes;
    for (int n = 0; n < p_.kept; n++) {
      const auto& places = p_.again[static_cast<size_t>(n)].places;
      keeps_[places[0].second] = n;
      for (size_t i = 1; i < places.size(); i++) is_kept_[places[i].second] = n;
    }
    if (p_.kept > 0)
      for (RegionPass& pass : passes_) drop_unneeded(pass);
  }
  static void operands(const std::vector<RegionInstr>& code, std::set<int>& out) {
    for (const RegionInstr& i : code) {
      out.insert(i.args.begin(), i.args.end());
      operands(i.then_body, out);
      operands(i.else_body, out);
    }
  }
  void drop_unneeded(RegionPass& pass) const {
    std::set<int> needed;
    for (const RegionReduce& r : pass.reduces) needed.insert(r.value);
    for (const RegionStore& s : pass.stores) needed.insert(s.value);
    for (size_t at = pass.body.size(); at-- > 0;) {   // readers stand behind what they read
      const RegionInstr& i = pass.body[at];
      if (needed.count(i.result) == 0 || is_kept_.count(i.result) > 0) continue;
      operands({i}, needed);
    }
    std::erase_if(pass.body, [&](const RegionInstr& i) { return needed.count(i.result) == 0; });
  }
  void declare_kept() {
    for (int n = 0; n < p_.kept; n++) {
      line("mo::real w{}[{}][{}];", n, p_.held, p_.lane < 0 ? 1 : p_.width);
      if (p_.uneven) line("mo::real w{}e[{}][1];", n, edges_each(p_));
    }
  }
  std::string kept(int n) const { return fmt::format("w{}{}[k][{}]", n, at_edges_ ? "e" : "", lane_subscript()); }
  /// What is the same for all elements of a row stands before the walk over them, so that no element computes it.
  void once_per_row(RegionPass& pass) {
    if (p_.kept == 0) return;
    const auto hoisted = [&](const RegionInstr& i) { return i.kind != Kind::kBranch && of_row_.count(i.result) > 0; };
    std::vector<RegionInstr> before;
    std::copy_if(pass.body.begin(), pass.body.end(), std::back_inserter(before), hoisted);
    statements(before);
    std::erase_if(pass.body, hoisted);
  }

  /// The test of a branch. Lanes that stand on one side wherever their vector lies say so: their number is known to the compiler, the range
  /// of the vector's is not.
  std::string condition(const RegionInstr& i) const {
    std::string test = fmt::format("{} < {}", text(i.index), number(i.bound));
    const int64_t step = p_.lane < 0 || at_edges_ ? 0 : i.index.coefficient(p_.lane);
    if (step <= 0) return test;
    const auto [low, high] = range_of_vector(i.index);
    const int64_t then = std::clamp<int64_t>(ceil_div(i.bound - high, step), 0, p_.width),   // lanes below take the then side,
                  other = std::clamp<int64_t>(ceil_div(i.bound - low, step), 0, p_.width);    // from here on the else side
    if (other < p_.width) test = fmt::format("i{} < {} && {}", p_.lane, number(other), test);
    if (then > 0) test = fmt::format("i{} < {} || {}", p_.lane, number(then), other < p_.width ? "(" + test + ")" : test);
    return test;
  }

  void statements(const std::vector<RegionInstr>& code) {
    for (const RegionInstr& i : code) {
      if (auto k = is_kept_.find(i.result); k != is_kept_.end()) {
        line("const mo::real v{} = {};", i.result, kept(k->second));
        continue;
      }
      switch (i.kind) {
        case Kind::kConst: line("const mo::real v{} = {};", i.result, CudaText().constant(i.constant)); break;
        case Kind::kIndex: line("const mo::real v{} = mo::from_index({});", i.result, text(i.index)); break;
        case Kind::kLoad:
          if (auto e = edges_.find({i.access, i.index}); at_edges_ && e != edges_.end() && &code == held_code_)
            line("const mo::real v{} = mo::load(e{}[k]);", i.result, e->second);
          else if (i.window >= 0 && !at_edges_) line("const mo::real v{} = {};", i.result, in_window(i));
          else if (i.vector && !at_edges_) line("const mo::real v{} = x{}[i{}];", i.result, i.result, p_.lane);
          else if (auto h = held_.find({i.access, i.index}); h != held_.end() && &code == held_code_ && !at_edges_)
            line("const mo::real v{} = {};", i.result,
                 fmt::format(fmt::runtime(unpacks_[static_cast<size_t>(h->second)] ? "h{}[k][0]" : "mo::load(q{}[k])"), h->second));
          else line("const mo::real v{} = mo::load(p{}[{}]);", i.result, i.access, text(i.index));
          break;
        case Kind::kMap: {
          std::vector<std::string> operands;
          for (int a : i.args) operands.push_back(fmt::format("v{}", a));
          line("const mo::real v{} = {};", i.result, i.fn == MapFn::kDiv ? quotient(i) : map_text(i.fn, operands, narrow_));
          break;
        }
        case Kind::kBranch:
          if (const auto* side = decided(i)) {
            statements(*side);
            line("const mo::real v{} = v{};", i.result, i.args[side == &i.then_body ? 0 : 1]);
            break;
          }
          line("mo::real v{};", i.result);
          open(fmt::format("if ({})", condition(i)));
          statements(i.then_body);
          line("v{} = v{};", i.result, i.args[0]);
          indent_ -= 2;
          line("}} else {{");
          indent_ += 2;
          statements(i.else_body);
          line("v{} = v{};", i.result, i.args[1]);
          close();
          break;
      }
      if (auto k = keeps_.find(i.result); k != keeps_.end()) line("{} = v{};", kept(k->second), i.result);
    }
  }

  /// Opens the loop over a thread's lanes (a block of its own if there is one lane) and defines what differs between lanes.
  void open_lanes(const std::set<int>& used) {
    if (p_.lane < 0) return open("");
    line("#pragma unroll");
    open(fmt::format("for ({} i{} = 0; i{} < {}; i{}++)", type_, p_.lane, p_.lane, p_.width, p_.lane));
    if (ragged_) line("if (static_cast<int>(i{}) >= valid) continue;", p_.lane);
    divisions(VarLevel::kLane, used);
  }
  std::string lane_subscript() const { return p_.lane < 0 || at_edges_ ? "0" : fmt::format("i{}", p_.lane); }

  /// One element, or a vector of them: loads, statements, reductions, stores.
  void body(const std::vector<RegionInstr>& code, const std::vector<RegionStore>& stores, const std::vector<RegionReduce>& reduces,
            bool row_values_are_arrays) {
    const std::set<int> used = used_vars(code, stores);
    held_code_ = p_.held > 0 || p_.uneven ? &code : nullptr;
    if (at_edges_) open_edges(used);
    else {
      vector_loads(code, "");
      for (size_t s = 0; s < stores.size(); s++)
        if (stores[s].vector) line("mo::real y{}[{}];", s, p_.width);
      open_lanes(used);
    }
    if (row_values_are_arrays)
      for (int r : row_values_used(code, stores)) line("const mo::real v{} = r{}[{}];", r, r, lane_subscript());
    statements(code);
    for (const RegionReduce& r : reduces)
      if (r.leader >= 0)
        line("mo::follow<mo::{}>(r{}[{}], r{}[{}], v{}, v{}, {});", reducer(r.fn), r.result, lane_subscript(), r.leader, lane_subscript(),
             value_of(reduces, r.leader), r.value, CudaText().constant(r.otherwise));
    for (const RegionReduce& r : reduces)
      if (r.leader < 0)
        line("r{}[{}] = mo::{}::combine(r{}[{}], v{});", r.result, lane_subscript(), reducer(r.fn), r.result, lane_subscript(), r.value);
    for (size_t s = 0; s < stores.size(); s++) {
      const RegionStore& store = stores[s];
      if (store.vector && !at_edges_) line("y{}[i{}] = v{};", s, p_.lane, store.value);
      else if (stores_along(store)) line("t{}[k][{}] = v{};", s, lane_subscript(), store.value);
      else
        line("p{}[{}] = mo::store<{}>(v{});", store.access, text(store.offset),
             storage_type(p_.accesses[static_cast<size_t>(store.access)]), store.value);
    }
    close();
    for (size_t s = 0; s < stores.size(); s++)
      if (stores[s].vector && !at_edges_)
        line("mo::store_vector({}, y{}{});", pointer(stores[s].access, stores[s].offset), s, valid_argument());
  }

  /// What the reduction with that result combines.
  static int value_of(const std::vector<RegionReduce>& reduces, int result) {
    return std::find_if(reduces.begin(), reduces.end(), [&](const RegionReduce& r) { return r.result == result; })->value;
  }
  static const char* reducer(ReduceFn fn) { return fn == ReduceFn::kSum ? "Sum" : "Max"; }

  /// Results of earlier reductions that some code reads, ascending.
  std::set<int> row_values_used(const std::vector<RegionInstr>& code, const std::vector<RegionStore>& stores) const {
    std::set<int> results, out;
    for (const RegionPass& pass : p_.passes)
      for (const RegionReduce& r : pass.reduces) results.insert(r.result);
    const std::function<void(const std::vector<RegionInstr>&)> visit = [&](const std::vector<RegionInstr>& list) {
      for (const RegionInstr& i : list) {
        for (int a : i.args)
          if (results.count(a)) out.insert(a);
        visit(i.then_body);
        visit(i.else_body);
      }
    };
    visit(code);
    for (const RegionStore& s : stores)
      if (results.count(s.value)) out.insert(s.value);
    return out;
  }

  /// The number of elements of a vector that exist, where the last one is partial.
  void define_valid(const std::string& unit, const std::string& bound) {
    if (ragged_)
      line("[[maybe_unused]] const int valid = static_cast<int>({} - {} * {} < {} ? {} - {} * {} : {});", bound, unit, number(p_.width),
           number(p_.width), bound, unit, number(p_.width), p_.width);
  }

  // ---- the three shapes

  void pointwise() {
    ragged_ = p_.lane_extent % p_.width != 0;
    const std::set<int> used = all_used();
    open(fmt::format("for ({} row = {} * blockDim.x + threadIdx.x; row < {}; row += {} * blockDim.x)", type_, block(), number(p_.rows),
                     blocks()));
    outer_vars(used);
    if (p_.unrolled < 0) {
      load_windows(passes_[0]);
      body(passes_[0].body, passes_[0].stores, {}, false);
    }
    constexpr int64_t kResults = 64;   // in registers, all read before the first is written: behind a write everything is read again
    for (int64_t x = 0, group = std::max<int64_t>(1, kResults / p_.width); p_.unrolled >= 0 && x < p_.length; x += group)
      unrolled(x, std::min(p_.length, x + group));
    close();
  }
  /// The elements of some values of the unrolled loop.
  void unrolled(int64_t begin, int64_t end) {
    const RegionPass& pass = passes_[0];
    const auto each = [&](const std::function<void(const std::set<int>&)>& print) {
      for (int64_t x = begin; x < end; x++) {
        fixed_ = x;
        const std::set<int> used = used_vars(pass.body, pass.stores);
        open("");
        divisions(VarLevel::kInner, used);
        print(used);
        close();
      }
      fixed_ = std::nullopt;
    };
    open("");
    for (int64_t x = begin; x < end; x++)
      for (size_t s = 0; s < pass.stores.size(); s++) line("mo::real y{}_{}[{}];", s, x, p_.width);
    each([&](const std::set<int>& used) {
      load_windows(pass);   // which may lie elsewhere for each value; those that do not are read once all the same
      vector_loads(pass.body, "");
      open_lanes(used);
      statements(pass.body);
      for (size_t s = 0; s < pass.stores.size(); s++) line("y{}_{}[{}] = v{};", s, *fixed_, lane_subscript(), pass.stores[s].value);
      close();
    });
    each([&](const std::set<int>& used) {
      for (size_t s = 0; s < pass.stores.size(); s++) {
        const RegionStore& store = pass.stores[s];
        const std::string result = fmt::format("y{}_{}", s, *fixed_);
        if (store.vector) {
          line("mo::store_vector({}, {}{});", pointer(store.access, store.offset), result, valid_argument());
          continue;
        }
        open_lanes(used);
        line("p{}[{}] = mo::store<{}>({}[{}]);", store.access, text(store.offset),
             storage_type(p_.accesses[static_cast<size_t>(store.access)]), result, lane_subscript());
        close();
      }
    });
    close();
  }

  std::string in_window(const RegionInstr& i) const {
    const int64_t step = i.index.coefficient(p_.lane);
    const std::string at = fmt::format("i{}{} + {}", p_.lane, step == 1 ? "" : " * " + number(step), number(i.place));
    return fmt::format("s{0}[({1}) / {2}][({1}) % {2}]", i.window, at, p_.width);
  }
  /// The windows that code reads.
  void windows_of(const std::vector<RegionInstr>& code, std::set<int>& out) const {
    for (const RegionInstr& i : code) {
      if (i.window >= 0) out.insert(i.window);
      if (const auto* side = i.kind == Kind::kBranch ? decided(i) : nullptr) windows_of(*side, out);
      else windows_of(i.then_body, out), windows_of(i.else_body, out);
    }
  }
  void load_windows(const RegionPass& pass) {
    std::set<int> windows;
    windows_of(pass.body, windows);
    for (int w : windows) {
      const RegionWindow& window = p_.windows[static_cast<size_t>(w)];
      line("mo::real s{}[{}][{}];", w, window.vectors, p_.width);
      for (int v = 0; v < window.vectors; v++) {
        Affine at = window.first;
        at.constant += int64_t{v} * p_.width;
        const int64_t span = p_.accesses[static_cast<size_t>(window.access)].span;
        line("mo::load_{}(s{}[{}], p{}, {}, {});", span % p_.width ? "within" : "near", w, v, window.access, text(at), number(span));
      }
    }
  }

  void outer_vars(std::set<int> used) {
    if (ragged_ && p_.shape != RegionPlan::Shape::kRow) used.insert(p_.outer.back());
    decompose(p_.outer, "row", used);
    divisions(VarLevel::kRow, used);
    if (p_.shape != RegionPlan::Shape::kRow && ragged_) define_valid(fmt::format("i{}", p_.outer.back()), number(p_.lane_extent));
  }

  /// Bound of the inner loop in elements, as text.
  std::string inner_bound() const {
    return p_.chunk >= 0 ? "bound" : number(p_.shape == RegionPlan::Shape::kRow ? p_.lane_extent : p_.length);
  }
  void define_bound() {
    if (p_.chunk < 0) return;
    const std::string rest = fmt::format("{} - i{} * {}", number(p_.chunk_total), p_.chunk, number(p_.chunk_length));
    line("const {} bound = {} < {} ? {} : {};", type_, rest, number(p_.chunk_length), rest, number(p_.chunk_length));
  }

  bool every_row_its_own(const Affine& index) const {
    return std::all_of(p_.outer.begin(), p_.outer.end(), [&](int v) {
      return std::any_of(index.terms.begin(), index.terms.end(), [&](const auto& t) { return t.first == v && t.second != 0; });
    });
  }

  /// The loads of all passes that a held row asks for before anything else, each place once.
  void hold() {
    const std::vector<RegionInstr> loads = held_loads(p_);
    for (size_t h = 0; h < loads.size(); h++) held_[{loads[h].access, loads[h].index}] = static_cast<int>(h);
    if (loads.empty()) return;
    if (p_.staged) {
      int64_t at = p_.staged_at;
      for (const RegionInstr& i : loads) {
        staged_at_.push_back(at);
        at += p_.held * staged_unit(p_, i) * p_.threads;
      }
      open_held(used_vars(loads, {}));
      for (size_t h = 0; h < loads.size(); h++)
        line("mo::stage<{}, {}>(row_smem + {}, k, {}{});", p_.threads, p_.width, staged_at_[h], pointer(loads[h].access, loads[h].index),
             ragged_ ? ", valid" : "");
      close();
      return line("mo::staged();");
    }
    for (size_t h = 0; h < loads.size(); h++) {
      const char* type = storage_type(p_.accesses[static_cast<size_t>(loads[h].access)]);
      if (loads[h].vector) line("mo::ElementVector<{}, {}> q{}[{}];", p_.width, type, h, p_.held);
      else line("{} q{}[{}];", type, h, p_.held);
    }
    open_held(used_vars(loads, {}));
    for (size_t h = 0; h < loads.size(); h++) {
      const bool once = valid_argument().empty() && every_row_its_own(loads[h].index);
      if (loads[h].vector)
        line("mo::{}(q{}[k], {}{});", once ? "hold_once" : "hold", h, pointer(loads[h].access, loads[h].index), valid_argument());
      else line("q{}[k] = p{}[{}];", h, loads[h].access, text(loads[h].index));
    }
    close();
    unpack(loads);
  }
  /// What several passes read becomes float32 once, before the first; what one reads, too, if there is little of it: the first reduction
  /// waits in any case (qwen3_06b_qkv 5.58 us, unpacked behind it 5.71).
  void unpack(const std::vector<RegionInstr>& loads) {
    const auto reads = [this](const RegionInstr& load) {   // passes
      return std::count_if(passes_.begin(), passes_.end(), [&](const RegionPass& pass) {
        return std::any_of(pass.body.begin(), pass.body.end(), [&](const RegionInstr& i) {
          return i.kind == Kind::kLoad && i.access == load.access && i.index == load.index;
        });
      });
    };
    const bool little = p_.held * p_.width * static_cast<int>(loads.size()) <= kLittle;
    for (const RegionInstr& load : loads) unpacks_.push_back(p_.unpacked && (little || reads(load) > 1));
    if (std::none_of(unpacks_.begin(), unpacks_.end(), [](bool x) { return x; })) return;
    for (size_t h = 0; h < loads.size(); h++)
      if (unpacks_[h]) line("mo::real h{}[{}][{}];", h, p_.held, p_.width);
    open_held({});
    for (size_t h = 0; h < loads.size(); h++) {
      if (!unpacks_[h]) continue;
      if (loads[h].vector) line("mo::unpack(h{}[k], q{}[k]);", h, h);
      else line("h{}[k][0] = mo::load(q{}[k]);", h, h);
    }
    close();
  }
  /// The loop over a thread's units of a held row.
  void open_held(std::set<int> used) {
    line("#pragma unroll{}", p_.staged ? " 4" : "");
    open(fmt::format("for (int k = 0; k < {}; k++)", p_.held));
    const int step = p_.shape == RegionPlan::Shape::kRow ? p_.team : p_.threads / p_.columns;
    if (units_beside()) line("const {} u = Team::depth() * {} + k;", type_, p_.held);
    else line("const {} u = Team::{}() + k * {};", type_, p_.shape == RegionPlan::Shape::kRow ? "lane" : "depth", step);
    line("(void)u;");
    // a row has as many vectors as the longest, or one less
    if (const int64_t sure = (p_.length - 1) / step; p_.uneven)
      line("if ({}u >= whole) continue;", sure ? fmt::format("k >= {} && ", sure) : "");
    else if (p_.held * step > p_.length) line("if (k == {} && u >= {}) continue;", p_.held - 1, number(p_.length));
    const bool ragged_here = ragged_ && p_.shape == RegionPlan::Shape::kRow && !p_.inner.empty();
    if (ragged_here) used.insert(p_.inner.back());
    decompose(p_.inner, "u", used);
    divisions(VarLevel::kInner, used);
    if (ragged_here) define_valid(fmt::format("i{}", p_.inner.back()), inner_bound());
  }

  // ---- edges: what stands before a row's first whole vector and behind its last

  void define_edges() {
    line("const {} head = {}, whole = ({} - head) / {}, edges = {} - whole * {};", type_, text(p_.head), number(p_.lane_extent),
         number(p_.width), number(p_.lane_extent), number(p_.width));
    const std::vector<RegionInstr> loads = held_loads(p_);
    for (size_t e = 0; e < loads.size(); e++) {
      edges_[{loads[e].access, loads[e].index}] = static_cast<int>(e);
      line("{} e{}[{}];", storage_type(p_.accesses[static_cast<size_t>(loads[e].access)]), e, edges_each(p_));
    }
    open_edges(used_vars(loads, {}));
    for (size_t e = 0; e < loads.size(); e++) line("e{}[k] = p{}[{}];", e, loads[e].access, text(loads[e].index));
    close();
  }
  /// The loop over a thread's edges: vector 0, with a lane that leads to the element.
  void open_edges(const std::set<int>& used) {
    line("#pragma unroll");
    open(fmt::format("for (int k = 0; k < {}; k++)", edges_each(p_)));
    line("const {} u = Team::lane() + k * {};", type_, p_.team);
    line("if (u >= edges) continue;");
    line("[[maybe_unused]] const {} i{} = 0, i{} = u - head + (u < head ? 0 : whole * {});", type_, p_.inner.back(), p_.lane,
         number(p_.width));
    divisions(VarLevel::kInner, used);
    divisions(VarLevel::kLane, used);
  }

  /// The loops as they are: of a thread that walks a row of single elements alone.
  void open_nested(const std::set<int>& used) {
    constexpr int64_t kWhole = 32;   // elements along the last loop, all of which are asked for at once
    for (int v : p_.inner) {
      const int64_t extent = p_.vars[static_cast<size_t>(v)].extent;
      const bool last = v == p_.inner.back();
      line("#pragma unroll{}", !last ? " 1" : extent <= kWhole ? "" : " 8");
      const std::string head = fmt::format("for ({0} i{1} = 0; i{1} < {2}; i{1}++)", type_, v, number(extent));
      if (last) open(head);
      else line("{}", head);
    }
    divisions(VarLevel::kInner, used);
  }

  void open_inner(const RegionPass& pass, const std::string& first, int step) {
    if (p_.held > 0) {
      std::vector<RegionInstr> rest = pass.body;   // what a held load needed has been used
      std::erase_if(rest, [&](const RegionInstr& i) { return i.kind == Kind::kLoad && held_.count({i.access, i.index}) > 0; });
      return open_held(used_vars(rest, pass.stores));
    }
    if (p_.team == 1 && p_.inner.size() > 1 && p_.chunk < 0 && p_.shape == RegionPlan::Shape::kRow && p_.width == 1)
      return open_nested(used_vars(pass.body, pass.stores));
    std::string units = p_.uneven ? "whole" : number(p_.length);
    if (p_.chunk >= 0)
      units = p_.shape == RegionPlan::Shape::kRow && p_.width > 1 ? fmt::format("(bound + {}) / {}", number(p_.width - 1), number(p_.width))
                                                                  : "bound";
    line("#pragma unroll 4");   // so many loads are under way
    open(fmt::format("for ({} u = {}; u < {}; u += {})", type_, first, units, step));
    std::set<int> used = used_vars(pass.body, pass.stores);
    const bool ragged_here = ragged_ && p_.shape == RegionPlan::Shape::kRow;
    if (ragged_here && !p_.inner.empty()) used.insert(p_.inner.back());
    decompose(p_.inner, "u", used);
    divisions(VarLevel::kInner, used);
    if (ragged_here) define_valid(fmt::format("i{}", p_.inner.back()), inner_bound());
  }

  std::set<int> row_vars() const {
    std::set<int> used = all_used();
    if (p_.chunk >= 0) used.insert(p_.chunk);
    use(p_.head, used);
    return used;
  }

  void row() {
    ragged_ = p_.width > 1 && !p_.uneven && (p_.chunk >= 0 ? p_.chunk_total : p_.lane_extent) % p_.width != 0;
    const bool shared = p_.cluster > 1;
    if (p_.smem_bytes > 0) line("extern __shared__ __align__(16) unsigned char row_smem[];");
    if (shared) {
      line("using Team = mo::ClusterTeam<{}, {}, {}>;", p_.threads, p_.cluster, reductions(p_));
      line("Team::begin(row_smem);");
    } else line("using Team = mo::RowTeam<{}>;", p_.team);
    const int64_t teams = shared ? p_.blocks / p_.cluster : p_.blocks * (p_.threads / p_.team);
    if (teams >= p_.rows) {   // a row each, at most
      open(teams > p_.rows ? fmt::format("if (const {} row = {}; row < {})", type_, first_row(), number(p_.rows)) : "");
      if (teams == p_.rows) line("const {} row = {};", type_, first_row());
      line("(void)row;");
    } else open(fmt::format("for ({} row = {}; row < {}; row += {})", type_, first_row(), number(p_.rows), row_stride()));
    outer_vars(row_vars());
    define_bound();
    if (p_.uneven) define_edges();
    if (p_.held > 0) hold();
    if (shared) line("Team::ready();");
    declare_kept();
    int slot = 0;   // of shared memory, in turn, so that one barrier per reduction is enough
    for (RegionPass& pass : passes_) {
      once_per_row(pass);
      for (const RegionReduce& r : pass.reduces) {
        line("mo::real r{}[{}];", r.result, p_.width);
        line("mo::clear<mo::{}>(r{});", reducer(r.fn), r.result);
      }
      if (!pass.body.empty() || !pass.stores.empty() || !pass.reduces.empty()) {
        open_inner(pass, "Team::lane()", p_.team);
        load_windows(pass);
        body(pass.body, pass.stores, pass.reduces, false);
        close();
        at_edges_ = p_.uneven;
        if (at_edges_) body(pass.body, pass.stores, pass.reduces, false);
        at_edges_ = false;
      }
      for (const RegionReduce& r : pass.reduces) {
        if (r.leader >= 0) line("mo::keep_where(r{}, r{}, v{}, {});", r.result, r.leader, r.leader, CudaText().constant(r.otherwise));
        line("const mo::real v{} = Team::reduce<mo::{}, {}>({}mo::fold<mo::{}>(r{}));", r.result, reducer(r.fn),
             shared ? slot++ : slot++ % 2, shared ? "row_smem, " : "", reducer(r.fn), r.result);
      }
      if (pass.after_stores.empty()) continue;
      open("if (Team::lane() == 0)");
      statements(pass.after);
      for (const RegionStore& s : pass.after_stores)
        line("p{}[{}] = mo::store<{}>(v{});", s.access, text(s.offset), storage_type(p_.accesses[static_cast<size_t>(s.access)]), s.value);
      close();
    }
    if (!shared && slot % 2 && p_.team > 32 && p_.blocks < p_.rows)
      line("mo::barrier();   // the next row begins with the slot that this one ended with");
    close();
  }

  // ---- columns that are held, and stored along what a thread holds of one (a norm over channels that lie apart, with channels last): its
  // units lie beside each other, in vectors of as many as divide them
  int piece() const { return std::min(8, p_.held & -p_.held); }
  bool stores_along(const RegionStore& s) const {
    if (p_.shape != RegionPlan::Shape::kColumn || p_.lane < 0 || p_.inner.size() != 1 || s.vector || piece() < 2 ||
        p_.held * (p_.threads / p_.columns) != p_.length || dtype_bytes(p_.accesses[static_cast<size_t>(s.access)].dtype) != 2)
      return false;
    for (const auto& [v, c] : s.offset.terms) {
      const bool is_inner = v == p_.inner[0];
      if (is_inner ? c != 1 : c % piece() != 0 || (v != p_.lane && levels_[static_cast<size_t>(v)] != VarLevel::kRow)) return false;
    }
    return s.offset.coefficient(p_.inner[0]) == 1 && s.offset.constant % piece() == 0;
  }
  bool units_beside() const {
    return std::any_of(p_.passes.begin(), p_.passes.end(), [&](const RegionPass& pass) {
      return std::any_of(pass.stores.begin(), pass.stores.end(), [&](const RegionStore& s) { return stores_along(s); });
    });
  }
  void declare_along(const RegionPass& pass) {
    for (size_t s = 0; s < pass.stores.size(); s++)
      if (stores_along(pass.stores[s])) line("mo::real t{}[{}][{}];", s, p_.held, p_.width);
  }
  void store_along(const RegionPass& pass) {
    for (size_t s = 0; s < pass.stores.size(); s++) {
      const RegionStore& store = pass.stores[s];
      if (!stores_along(store)) continue;
      open("");
      line("const {} i{} = Team::depth() * {};", type_, p_.inner[0], p_.held);
      open_lanes({p_.lane});
      line("mo::store_along<{}>(p{} + ({}), t{}, i{});", piece(), store.access, text(store.offset), s, p_.lane);
      close();
      close();
    }
  }

  void reduce_columns(const std::vector<RegionReduce>& reduces) {
    for (const RegionReduce& r : reduces)
      if (r.leader >= 0) {   // each thread's own, before they become those of all
        line("mo::real o{}[{}];", r.result, p_.width);
        line("mo::copy_lanes(o{}, r{});", r.result, r.leader);
      }
    for (const RegionReduce& r : reduces) {
      if (r.leader >= 0) line("mo::keep_where(r{}, o{}, r{}, {});", r.result, r.result, r.leader, CudaText().constant(r.otherwise));
      line("Team::reduce<mo::{}>(r{});", reducer(r.fn), r.result);
    }
  }

  void column() {
    ragged_ = p_.lane_extent % p_.width != 0;
    line("using Team = mo::ColumnTeam<{}, {}>;", p_.columns, p_.threads);
    open(fmt::format("for ({} base = {} * {}; base < {}; base += {} * {})", type_, block(), number(p_.columns), number(p_.rows), blocks(),
                     number(p_.columns)));
    line("const bool live = base + Team::column() < {};", number(p_.rows));   // every thread meets the barriers
    line("const {} row = live ? base + Team::column() : 0;", type_);
    line("(void)row;");
    outer_vars(row_vars());
    define_bound();
    if (p_.held > 0) hold();   // of column 0 where there is none
    declare_kept();
    for (const RegionPass& pass : passes_) {
      for (const RegionReduce& r : pass.reduces) {
        line("mo::real r{}[{}];", r.result, p_.width);
        line("mo::clear<mo::{}>(r{});", reducer(r.fn), r.result);
      }
      if (!pass.body.empty() || !pass.stores.empty() || !pass.reduces.empty()) {
        open("if (live)");
        declare_along(pass);
        open_inner(pass, "Team::depth()", p_.threads / p_.columns);
        body(pass.body, pass.stores, pass.reduces, true);
        close();
        store_along(pass);
        close();
      }
      reduce_columns(pass.reduces);
      if (pass.after_stores.empty()) continue;
      open("if (live && Team::depth() == 0)");
      body(pass.after, pass.after_stores, {}, true);
      close();
    }
    close();
  }

  const KernelPlan& kernel_;
  const RegionPlan& p_;
  int64_t first_block_;
  const char* type_;
  const char* suffix_;
  std::vector<VarLevel> levels_;
  std::vector<RegionPass> passes_;               // of the plan, without what is kept
  std::map<int, int> keeps_, is_kept_;           // values that are kept, and those that were kept by an earlier pass -> array
  std::map<std::pair<int, Affine>, int> held_;   // access and place -> number of the array
  std::map<std::pair<int, Affine>, int> edges_;  // the same for what each thread has of a row's edges
  std::optional<int64_t> fixed_;                 // the value of an unrolled loop that is printed
  bool at_edges_ = false;                        // what is printed are an edge's statements
  std::vector<bool> unpacks_;                    // per array, if it becomes float32 before the first pass
  std::vector<int64_t> staged_at_;               // per array, if what is held lies in shared memory
  std::map<int, const RegionInstr*> definition_;
  std::set<int> of_row_;
  bool narrow_ = true;                           // every result is stored in 16 bits
  const std::vector<RegionInstr>* held_code_ = nullptr;   // the statements whose own loads may be held: those under a branch are not
  std::string text_;
  int indent_ = 2;
  bool ragged_ = false;
};

}  // namespace

KernelText emit_region_kernel(const KernelPlan& kernel, const Plan&, const Target&) {
  return RegionEmitter(kernel, *std::get<std::shared_ptr<const RegionPlan>>(kernel.body)).run();
}

}  // namespace mirage

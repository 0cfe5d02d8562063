// From a group of graph nodes to loops over index variables and straight-line statements: every element is computed by walking its
// expression backwards, and each form is a change of index.
#include <algorithm>
#include <functional>
#include <set>

#include "plan/region/region.h"
#include "plan/passes/selection.h"

namespace mirage {
namespace {

using Kind = RegionInstr::Kind;

Dims squeezed(const Dims& d) {
  Dims out;
  for (int64_t x : d)
    if (x > 1) out.push_back(x);
  return out;
}

class Lowering {
 public:
  Lowering(const RegionContext& c, const RegionGroup& group, int max_statements)
      : c_(c), g_(c.graph), group_(group), left_(max_statements) {
    for (const RegionRoot& r : group.roots) mine_.insert(r.value);
  }

  std::optional<Lowered> run() {
    if (!make_loops()) return std::nullopt;
    const int stages = number_stages();
    if (stages < 0) return std::nullopt;
    plan_.passes.resize(static_cast<size_t>(std::max(stages, 1)));
    for (int p = 0; p < static_cast<int>(plan_.passes.size()) && !failed_; p++) emit_pass(p);
    if (failed_) return std::nullopt;
    for_each_affine(plan_, [&](Affine& a) { a = table_.recombine(a); });
    plan_.vars = table_.vars;
    plan_.num_values = next_;
    Lowered out{std::move(plan_), {nodes_.begin(), nodes_.end()}, flops_};
    return out;
  }

 private:
  bool is_mine(ValueId v) const { return mine_.count(v) > 0; }
  bool is_leaf(ValueId v) const {
    if (g_.def_form<Input>(v) || g_.def_form<Call>(v)) return true;
    if (g_.def_form<Const>(v) || g_.def_form<Iota>(v)) return false;   // cheaper made than read, even where a copy is stored
    return !is_mine(v) && c_.views[static_cast<size_t>(v)].buffer >= 0;
  }
  const ReduceInfo* reduce(ValueId v) const {
    auto it = c_.reduces.find(v);
    return it == c_.reduces.end() ? nullptr : &it->second;
  }

  // ---- loops

  /// Loops from the group's first reduce (or its first root); every other root must fit them.
  bool make_loops() {
    const ReduceInfo* anchor = nullptr;
    for (const RegionRoot& r : group_.roots)
      if (const ReduceInfo* info = reduce(r.value); info && !anchor) anchor = info, anchor_ = r.value;
    if (!anchor) {
      for (int64_t e : squeezed(g_.dims(group_.roots[0].value))) plan_.outer.push_back(table_.add_loop(e)), row_dims_.push_back(e);
      return true;
    }
    const Dims& d = g_.dims(anchor->base);
    full_dims_ = squeezed(d);
    for (int i = 0; i < d.rank(); i++) {   // outer loops first, so that a variable's number says nothing of the layout
      if (d[i] == 1) continue;
      const bool reduced = anchor->reduced[static_cast<size_t>(i)];
      if (!reduced) add_outer(d[i]);
      else if (anchor->group && d[i] > anchor->group) add_outer(d[i] / anchor->group);
    }
    if (group_.split.half != RegionSplit::Half::kNone) return make_split_loops();
    size_t next_outer = 0;
    for (int i = 0; i < d.rank(); i++) {
      if (d[i] == 1) continue;
      const bool reduced = anchor->reduced[static_cast<size_t>(i)];
      Affine at;
      if (!reduced || (anchor->group && d[i] > anchor->group)) at = affine_var(plan_.outer[next_outer++]);
      if (reduced) {
        const int64_t extent = anchor->group ? anchor->group : d[i];
        at = at * extent;
        if (extent > 1) {
          plan_.inner.push_back(table_.add_loop(extent));
          at = at + affine_var(plan_.inner.back());
        }
      }
      full_index_.push_back(at);
      full_reduced_.push_back(reduced);
    }
    has_full_ = true;
    return true;
  }

  void add_outer(int64_t extent) { plan_.outer.push_back(table_.add_loop(extent)), row_dims_.push_back(extent); }

  /// First half: the reduced dimensions, flattened, are cut in chunks. Second half: the inner loop runs over chunks.
  bool make_split_loops() {
    const ReduceInfo& info = *reduce(anchor_);
    const Dims& d = g_.dims(info.base);
    if (info.group) return false;
    if (group_.split.half == RegionSplit::Half::kSecond) {
      plan_.inner.push_back(table_.add_loop(group_.split.chunks));
      return true;
    }
    int64_t total = 1;
    for (int i = 0; i < d.rank(); i++)
      if (info.reduced[static_cast<size_t>(i)]) total *= d[i];
    plan_.chunk_total = total;
    plan_.chunk_length = group_.split.chunk_length;
    plan_.chunk = table_.add_loop(group_.split.chunks);
    const int inner = table_.add_loop(plan_.chunk_length);
    plan_.inner.push_back(inner);
    Affine linear = affine_var(plan_.chunk) * plan_.chunk_length + affine_var(inner);
    std::vector<Affine> digits(static_cast<size_t>(d.rank()));
    int64_t left = total;
    for (int i = d.rank() - 1; i >= 0; i--) {
      if (!info.reduced[static_cast<size_t>(i)]) continue;
      digits[static_cast<size_t>(i)] = table_.mod(linear, d[i], left);
      linear = table_.div(linear, d[i], left);
      left /= d[i];
    }
    size_t next_outer = 0;
    for (int i = 0; i < d.rank(); i++) {
      if (d[i] == 1) continue;
      const bool reduced = info.reduced[static_cast<size_t>(i)];
      full_index_.push_back(reduced ? digits[static_cast<size_t>(i)] : affine_var(plan_.outer[next_outer++]));
      full_reduced_.push_back(reduced);
    }
    plan_.outer.push_back(plan_.chunk);
    has_full_ = true;
    return true;
  }

  /// The index of a value at the current row and inner position, or at the current row: by position among extents above 1, or, where the
  /// value has as many elements in other dimensions (a group norm's channels, joined again), by its place in row-major order. nullopt if
  /// its shape does not fit.
  std::optional<Index> full_index(const Dims& d) { return has_full_ ? index_of(d, full_dims_, full_index_, true) : std::nullopt; }
  std::optional<Index> row_index(const Dims& d) {
    Index rows;
    for (size_t i = 0; i < static_cast<size_t>(row_dims_.rank()); i++) rows.push_back(affine_var(plan_.outer[i]));
    return index_of(d, row_dims_, rows, anchor_ >= 0);
  }
  /// divides: even if that takes divisions that the loops' own index does without.
  std::optional<Index> index_of(const Dims& d, const Dims& own, const Index& at, bool divides) {
    if (squeezed(d) == own) {
      Index out;
      size_t next = 0;
      for (int64_t e : d) out.push_back(e == 1 ? Affine{} : at[next++]);
      return out;
    }
    if (d.elements() != own.elements()) return std::nullopt;
    const size_t before = table_.vars.size();
    Index out = table_.reshape(at, d, own);
    if (divides || table_.vars.size() == before) return out;
    table_.vars.resize(before);
    return std::nullopt;
  }

  // ---- stages

  /// The stage of a value: in how many passes before it reductions must have ended. -1: does not fit.
  int stage_of(ValueId v) {
    if (is_leaf(v)) return 0;
    if (auto it = stages_.find(v); it != stages_.end()) return it->second;
    int s = 0;
    if (const auto chosen = g_.def_form<Reduce>(v) && !reduce(v) ? find_selection(g_, v) : std::nullopt)
      return stages_[v] = stage_of(chosen->x);
    if (const ReduceInfo* info = reduce(v)) {
      if (!is_mine(v)) return failed_ = true, 0;
      if (const auto* beside = at_largest(v)) return stages_[v] = stage_of(beside->largest);
      s = group_.split.half == RegionSplit::Half::kSecond ? 1 : stage_of(info->base) + 1;
    } else {
      for (ValueId x : g_.def(v).operands) s = std::max(s, stage_of(x));
    }
    return stages_[v] = s;
  }

  /// What a reduction selects at the result of another of this region, which one walk finds with it.
  const AtLargest* at_largest(ValueId v) {
    if (group_.split.half != RegionSplit::Half::kNone) return nullptr;
    auto it = at_largest_.find(v);
    if (it == at_largest_.end()) {
      it = at_largest_.emplace(v, find_at_largest(g_, c_.reduces, v)).first;
      if (it->second && !is_mine(it->second->largest)) it->second.reset();
    }
    return it->second ? &*it->second : nullptr;
  }

  /// Numbers stages and checks that every root fits the loops; the number of passes, -1 if it does not work.
  int number_stages() {
    int passes = 0;
    for (const RegionRoot& r : group_.roots) {
      const int s = stage_of(r.value);
      if (const ReduceInfo* info = reduce(r.value)) {
        if (!same_loops(*info) || !row_index(g_.dims(r.value))) return -1;
        passes = std::max(passes, s);
      } else if (!r.stores.empty()) {
        const bool row = row_index(g_.dims(r.value)).has_value(), full = full_index(g_.dims(r.value)).has_value();
        if (!row && !full) return -1;
        if (group_.split.half == RegionSplit::Half::kFirst) return -1;
        passes = std::max(passes, full ? s + 1 : std::max(s, 1));
      }
      if (failed_) return -1;
    }
    if (group_.split.half != RegionSplit::Half::kNone && passes > 1) return -1;
    return passes;
  }

  bool same_loops(const ReduceInfo& info) const {
    const ReduceInfo& a = *reduce(anchor_);
    if (info.group != a.group || !(squeezed(g_.dims(info.base)) == full_dims_)) return false;
    std::vector<bool> x, y;
    const Dims &dx = g_.dims(info.base), &dy = g_.dims(a.base);
    for (int i = 0; i < dx.rank(); i++) if (dx[i] > 1) x.push_back(info.reduced[static_cast<size_t>(i)]);
    for (int i = 0; i < dy.rank(); i++) if (dy[i] > 1) y.push_back(a.reduced[static_cast<size_t>(i)]);
    return x == y;
  }

  // ---- passes

  void emit_pass(int p) {
    RegionPass& pass = plan_.passes[static_cast<size_t>(p)];
    begin(&pass.body);
    std::vector<std::pair<ValueId, RegionReduce>> reduces;
    for (const RegionRoot& r : group_.roots) {
      const ReduceInfo* info = reduce(r.value);
      const int s = stage_of(r.value);
      if (info && s == p + 1) {
        nodes_.insert(g_.value(r.value).node);
        const AtLargest* beside = at_largest(r.value);
        const int value = beside ? eval(beside->value, operand_index(g_, beside->value, *full_index(g_.dims(info->base))))
                                 : operand_of(r.value, *info);
        reduces.push_back({r.value, {info->fn, value, -1, -1, beside ? beside->otherwise : 0}});
        flops_ += beside ? kAtLargest : 1;
      } else if (!info && !r.stores.empty() && s == p && is_element(r.value)) {
        const Index at = element_index(r.value);
        store(r, at, eval(r.value, at), pass.stores);
      }
      if (failed_) return;
    }
    std::stable_partition(reduces.begin(), reduces.end(), [&](const auto& r) { return !at_largest(r.first); });
    for (auto& [v, red] : reduces) {
      red.result = next_++;
      row_values_[v] = red.result;
      if (const AtLargest* beside = at_largest(v)) red.leader = row_values_.at(beside->largest);
      pass.reduces.push_back(red);
    }
    begin(&pass.after);
    for (const RegionRoot& r : group_.roots) {
      if (r.stores.empty() || is_element(r.value)) continue;
      const int s = stage_of(r.value);
      if (std::max(s, 1) != p + 1) continue;
      const Index at = *row_index(g_.dims(r.value));
      store(r, at, reduce(r.value) ? row_values_.at(r.value) : eval(r.value, at), pass.after_stores);
      if (failed_) return;
    }
  }

  /// Whether a root is stored per element of the inner loop (pointwise kernels: per thread) rather than once per row.
  bool is_element(ValueId v) {
    if (anchor_ < 0) return true;
    return !reduce(v) && full_index(g_.dims(v)).has_value();
  }
  Index element_index(ValueId v) { return anchor_ < 0 ? *row_index(g_.dims(v)) : *full_index(g_.dims(v)); }

  int operand_of(ValueId v, const ReduceInfo& info) {
    if (group_.split.half == RegionSplit::Half::kSecond) {
      RegionInstr load;
      load.kind = Kind::kLoad;
      load.access = access(group_.split.partial.at(v), false);
      load.index = partial_offset(affine_var(plan_.inner[0]));
      return add(std::move(load));
    }
    return eval(info.base, *full_index(g_.dims(info.base)));
  }

  Affine partial_offset(const Affine& chunk) const {
    Affine at = chunk;
    int64_t stride = group_.split.chunks;
    for (int i = row_dims_.rank() - 1; i >= 0; i--) {
      at = at + affine_var(plan_.outer[static_cast<size_t>(i)]) * stride;
      stride *= row_dims_[i];
    }
    return at;
  }

  void store(const RegionRoot& r, const Index& at, int value, std::vector<RegionStore>& stores) {
    for (const Access& a : r.stores) {
      Affine offset = affine(a.offset);
      if (group_.split.half == RegionSplit::Half::kFirst) offset = partial_offset(affine_var(plan_.chunk));
      else
        for (int i = 0; i < a.dims.rank(); i++) offset = offset + at[static_cast<size_t>(i)] * a.strides[i];
      stores.push_back({access(a.buffer, true), offset, value, false});
    }
  }

  int access(int buffer, bool written) {
    for (size_t i = 0; i < plan_.accesses.size(); i++)
      if (plan_.accesses[i].buffer == buffer) {
        if (plan_.accesses[i].written != written) failed_ = true;   // a kernel never reads what it writes
        return static_cast<int>(i);
      }
    const Buffer& b = c_.buffers[static_cast<size_t>(buffer)];
    const bool dense = b.bytes() == b.dims.elements() * dtype_bytes(b.dtype);
    plan_.accesses.push_back({buffer, b.dtype, written, b.tf32, dense ? b.dims.elements() : 0});
    return static_cast<int>(plan_.accesses.size()) - 1;
  }

  // ---- statements

  void begin(std::vector<RegionInstr>* code) {
    code_ = code;
    memo_.assign(1, {});
  }

  int add(RegionInstr i) {
    if (left_-- <= 0) failed_ = true;
    i.result = next_++;
    code_->push_back(std::move(i));
    return code_->back().result;
  }

  int eval(ValueId v, const Index& at) {
    if (failed_) return -1;
    for (auto scope = memo_.rbegin(); scope != memo_.rend(); ++scope)
      if (auto it = scope->find({v, at}); it != scope->end()) return it->second;
    const int result = compute(v, at);
    memo_.back()[{v, at}] = result;
    return result;
  }

  int compute(ValueId v, const Index& at) {
    if (is_leaf(v)) return load(v, at);
    nodes_.insert(g_.value(v).node);
    if (reduce(v)) {
      auto it = row_values_.find(v);
      auto row = row_index(g_.dims(v));
      if (it == row_values_.end() || !row || *row != at) return failed_ = true, -1;
      return it->second;
    }
    if (const auto s = g_.def_form<Reduce>(v) ? find_selection(g_, v) : std::nullopt) return selected(*s, at);
    const Node& n = g_.def(v);
    const auto x = [&](size_t i) { return n.operands[i]; };
    if (auto* op = std::get_if<Const>(&n.op)) return constant(*op);
    if (auto* op = std::get_if<Iota>(&n.op)) {
      RegionInstr i;
      i.kind = Kind::kIndex;
      i.index = at[static_cast<size_t>(op->dim)];
      return add(std::move(i));
    }
    if (auto* op = std::get_if<Map>(&n.op)) return map(*op, n, at);
    if (auto* op = std::get_if<Transpose>(&n.op)) {
      Index to(at.size());
      for (size_t i = 0; i < at.size(); i++) to[static_cast<size_t>(op->perm[i])] = at[i];
      return eval(x(0), to);
    }
    if (auto* op = std::get_if<Slice>(&n.op)) {
      Index to = at;
      to[static_cast<size_t>(op->dim)] = at[static_cast<size_t>(op->dim)] * op->step + affine(op->start);
      return eval(x(0), to);
    }
    if (std::get_if<Reshape>(&n.op)) return eval(x(0), table_.reshape(at, g_.dims(x(0)), g_.dims(v)));
    if (auto* op = std::get_if<Repeat>(&n.op)) {
      Index to = at;
      Affine& d = to[static_cast<size_t>(op->dim)];
      d = table_.mod(d, g_.dims(x(0))[op->dim], g_.dims(v)[op->dim]);
      return eval(x(0), to);
    }
    if (auto* op = std::get_if<Concat>(&n.op)) {
      std::vector<int64_t> starts{0};
      for (ValueId o : n.operands) starts.push_back(starts.back() + g_.dims(o)[op->dim]);
      return concat(n.operands, starts, op->dim, 0, n.operands.size(), at);
    }
    MIRAGE_ASSERT(false) << "a region meets " << form_name(n.op);
    return -1;
  }

  // ---- reads by index

  int selected(const Selection& s, const Index& at) {
    Index own = index_place(g_, table_, s, at);
    Affine place;
    if (index_input(g_, s.index) >= 0) {
      ValueId v = s.index;
      for (; !is_leaf(v); v = g_.def(v).operands[0]) own = source_index(g_, table_, v, own);
      const View& view = c_.views[static_cast<size_t>(v)];
      Affine offset = affine(view.offset);
      for (size_t d = 0; d < own.size(); d++) offset = offset + own[d] * view.strides[static_cast<int>(d)];
      place = table_.loaded(access(view.buffer, false), offset, s.extent);
    } else {
      place = position(g_, table_, s.index, own);
    }
    Index of_x = at;
    of_x[static_cast<size_t>(s.dim)] = place;
    const Index x = operand_index(g_, s.x, of_x);
    const auto zero = [&] { return constant(Const{0.0, {}}); };
    const auto read = [&] { return eval(s.x, x); };
    const int64_t low = table_.min_of(place), high = table_.max_of(place);
    if (high < 0 || low >= s.extent) return zero();
    const auto below = [&] { return high < s.extent ? read() : branch(place, s.extent, read, zero); };
    // numbers of kernels have no sign
    return low >= 0 ? below() : branch(place + affine(-low), -low, zero, below);
  }

  /// One of two values: the first where index < bound.
  template <class Then, class Else> int branch(const Affine& index, int64_t bound, Then&& then_value, Else&& else_value) {
    RegionInstr i;
    i.kind = Kind::kBranch;
    i.index = index;
    i.bound = bound;
    const auto side = [&](std::vector<RegionInstr>& body, const auto& value) {
      std::vector<RegionInstr>* outside = code_;
      code_ = &body;
      memo_.emplace_back();
      i.args.push_back(value());
      memo_.pop_back();
      code_ = outside;
    };
    side(i.then_body, then_value);
    side(i.else_body, else_value);
    left_ -= kBranchStatements;
    return add(std::move(i));
  }

  int constant(const Const& op) {
    RegionInstr i;
    i.constant = op.value;
    if (!op.extent_of.empty()) {
      i.constant = 1;
      for (auto [param, dim] : op.extent_of)
        i.constant *= static_cast<double>(c_.program.inputs[static_cast<size_t>(param)].type.dims[dim]);
    }
    return add(std::move(i));
  }

  int load(ValueId v, const Index& at) {
    const View& view = c_.views[static_cast<size_t>(v)];
    RegionInstr i;
    i.kind = Kind::kLoad;
    i.access = access(view.buffer, false);
    i.index = affine(view.offset);
    for (size_t d = 0; d < at.size(); d++) i.index = i.index + at[d] * view.strides[static_cast<int>(d)];
    return add(std::move(i));
  }

  int map(const Map& op, const Node& n, const Index& at) {
    RegionInstr i;
    i.kind = Kind::kMap;
    i.fn = op.fn;
    for (ValueId o : n.operands) {
      const Dims& d = g_.dims(o);
      Index to;
      for (int k = 0; k < d.rank(); k++)
        to.push_back(d[k] == 1 ? Affine{} : at[at.size() - static_cast<size_t>(d.rank()) + static_cast<size_t>(k)]);
      i.args.push_back(eval(o, to));
    }
    flops_ += operations_of(op.fn);
    return add(std::move(i));
  }

  /// Operands [from, to) of a concat by bisection.
  static constexpr int kBranchStatements = 8;   // of `max_statements`: compilers take more than their share of time for nested branches
  int concat(const std::vector<ValueId>& operands, const std::vector<int64_t>& starts, int dim, size_t from, size_t to, const Index& at) {
    const auto d = static_cast<size_t>(dim);
    if (to - from == 1) {
      Index in = at;
      in[d] = at[d] + affine(-starts[from]);
      if (starts[from + 1] - starts[from] == 1) in[d] = {};
      return eval(operands[from], in);
    }
    const size_t mid = (from + to) / 2;
    const int64_t low = table_.min_of(at[d]), high = table_.max_of(at[d]);
    if (high < starts[mid]) return concat(operands, starts, dim, from, mid, at);
    if (low >= starts[mid]) return concat(operands, starts, dim, mid, to, at);
    return branch(
        at[d], starts[mid], [&] { return concat(operands, starts, dim, from, mid, at); },
        [&] { return concat(operands, starts, dim, mid, to, at); });
  }

  static constexpr double kAtLargest = 5;   // operations an element

  const RegionContext& c_;
  const Graph& g_;
  const RegionGroup& group_;
  int left_;
  RegionPlan plan_;
  VarTable table_;
  std::set<ValueId> mine_;
  std::set<NodeId> nodes_;
  ValueId anchor_ = -1;           // the reduce that gives the loops; -1: pointwise
  Dims row_dims_, full_dims_;     // extents above 1 of a row's index and of the reduced tensors
  bool has_full_ = false;
  Index full_index_;              // per dimension of full_dims_
  std::vector<bool> full_reduced_;
  std::map<ValueId, int> stages_;
  std::map<ValueId, std::optional<AtLargest>> at_largest_;
  std::map<ValueId, int> row_values_;
  std::vector<RegionInstr>* code_ = nullptr;
  std::vector<std::map<std::pair<ValueId, Index>, int>> memo_;
  int next_ = 0;
  double flops_ = 0;
  bool failed_ = false;
};

void visit(std::vector<RegionInstr>& code, const std::function<void(Affine&)>& f) {
  for (RegionInstr& i : code) {
    f(i.index);
    visit(i.then_body, f);
    visit(i.else_body, f);
  }
}

}  // namespace

double operations_of(MapFn fn) {
  switch (fn) {
    case MapFn::kExp: case MapFn::kLog: case MapFn::kSqrt: case MapFn::kRsqrt: case MapFn::kDiv: return 8;
    case MapFn::kSigmoid:
    case MapFn::kSilu:
    case MapFn::kTanh:
    case MapFn::kLog1p:
    case MapFn::kExpm1:
    case MapFn::kErf:
    case MapFn::kSin:
    case MapFn::kCos: return 12;
    case MapFn::kGelu: case MapFn::kGeluTanh: return 24;
    case MapFn::kPow: return 32;
    default: return 1;
  }
}

double instructions_of(MapFn fn, bool narrow) {
  switch (fn) {
    case MapFn::kExp: return narrow ? 5 : 8;
    case MapFn::kSigmoid: case MapFn::kSilu: return narrow ? 5 : 13;
    case MapFn::kTanh: return narrow ? 14 : 15;
    case MapFn::kGelu: return narrow ? 16 : 26;
    case MapFn::kGeluTanh: return narrow ? 8 : 20;
    case MapFn::kDiv: return narrow ? 8 : 28;
    case MapFn::kRsqrt: return 4;
    case MapFn::kSqrt: return 17;
    case MapFn::kErf: return 22;
    case MapFn::kLog: return 25;
    case MapFn::kLog1p: return narrow ? 13 : 29;
    case MapFn::kExpm1: return narrow ? 9 : 29;
    case MapFn::kSin: case MapFn::kCos: case MapFn::kPow: return 88;
    default: return 1;
  }
}

std::optional<Lowered> lower_region(const RegionContext& c, const RegionGroup& group, int max_statements) {
  return Lowering(c, group, max_statements).run();
}

void for_each_affine(RegionPlan& p, const std::function<void(Affine&)>& f) {
  for (RegionPass& pass : p.passes) {
    visit(pass.body, f);
    visit(pass.after, f);
    for (RegionStore& s : pass.stores) f(s.offset);
    for (RegionStore& s : pass.after_stores) f(s.offset);
  }
}

}  // namespace mirage

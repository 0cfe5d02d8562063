// Reads a block graph as attention: which contraction is which, what every dimension means, which factors can leave the loop. The
// recurrence (Running, rescaled Accum) is Milakov and Gimelshein's online softmax (arXiv 1805.02867) as the block graph spells it; nothing
// here depends on where a factor or a mask came from.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "mirage/ir/band.h"
#include "mirage/ir/range.h"
#include "mirage/ir/walk.h"
#include "plan/attend/attend_internal.h"

namespace mirage {
namespace {

using Axis = AttendAxis;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Matcher {
 public:
  Matcher(const Graph& g, const std::vector<Access>& operands, const std::vector<Access>& results, AttendShape& s)
      : g_(g), operands_(operands), results_(results), s_(s), phase_(phases(g)), ranges_(g, largest_numbers(operands)) {}

  std::string run() {
    s_.axes.assign(static_cast<size_t>(g_.num_values()), {Axis::kOne, Axis::kOne});
    labelled_.assign(s_.axes.size(), false);
    if (!find_parts() || !find_extents() || !label_all() || !find_tensors() || !find_scale())
      return reason_.empty() ? "not attention" : reason_;
    return find_bounds() ? "" : reason_;
  }

 private:
  static std::vector<double> largest_numbers(const std::vector<Access>& operands) {
    std::vector<double> out;
    for (const Access& a : operands) out.push_back(largest(a.dtype));
    return out;
  }
  bool no(std::string why) { if (reason_.empty()) reason_ = std::move(why); return false; }
  template <class F> const F* form(ValueId v) const { return g_.def_form<F>(v); }
  ValueId operand(ValueId v, size_t i = 0) const { return g_.def(v).operands[i]; }
  const Map* map(ValueId v, MapFn fn) const { const Map* m = form<Map>(v); return m && m->fn == fn ? m : nullptr; }
  bool depends(ValueId v, ValueId on) const { return depends_on(g_, v, on); }
  const std::array<Axis, 2>& axes(ValueId v) const { return s_.axes[static_cast<size_t>(v)]; }

  // ---- the two contractions, the maximum, the sums

  bool find_parts() {
    if (g_.launch().loop < 2) return no("no loop");
    std::vector<ValueId> products, accums;
    for (ValueId v = 0; v < g_.num_values(); v++) {
      if (form<MatMul>(v)) products.push_back(v);
      if (form<Accum>(v)) accums.push_back(v);
      if (form<Running>(v)) { if (s_.running >= 0) return no("two running maxima"); s_.running = v; }
      if (!form<MatMul>(v) && !form<Accum>(v) && !form<Running>(v) && !form<Map>(v) && !form<Reduce>(v) && !form<Const>(v) &&
          !form<Input>(v) && !form<Transpose>(v))
        return no(std::string("a ") + form_name(g_.def(v).op));
    }
    if (products.size() != 2 || s_.running < 0) return no("not two contractions with a running maximum between them");
    s_.scores = products[0];
    const ValueId second = products[1];
    s_.share = operand(second, 0);
    if (!depends(s_.share, s_.scores)) return no("the second contraction's left operand does not come from the first");
    const Reduce* max = form<Reduce>(operand(s_.running));
    const ValueId reduced = operand(s_.running);
    if (!max || max->fn != ReduceFn::kMax || !over_last(reduced, *max)) return no("the running maximum is not of a row maximum");
    s_.logit = operand(reduced);
    for (ValueId v = 0; v < g_.num_values(); v++)
      if (map(v, MapFn::kExp) && map(operand(v), MapFn::kSub) && operand(operand(v), 0) == s_.logit && operand(operand(v), 1) == s_.running)
        s_.weights = v;
    if (s_.weights < 0) return no("no exponential of scores minus their running maximum");
    for (ValueId a : accums) {
      const Accum& acc = *form<Accum>(a);
      const ValueId x = operand(a);
      if (acc.fn == ReduceFn::kMax && x == s_.running) { s_.last_maximum = a; continue; }
      if (acc.degree != 1) return no("an accumulator that is not rescaled once");
      if (x == second && s_.result < 0) { s_.result = a; continue; }
      const Reduce* r = form<Reduce>(x);
      if (!r || r->fn != ReduceFn::kSum || !over_last(x, *r) || operand(x) != s_.weights || !s_.sums.empty())
        return no("an accumulator of something else than the weights' sum");
      s_.sums.push_back(a);
    }
    if (s_.result < 0 || s_.sums.empty()) return no("no accumulator of the second contraction, or of the weights");
    for (NodeId n = 0; n < g_.num_nodes(); n++)   // nobody else looks at the maximum inside the loop
      for (ValueId o : g_.node(n).operands)
        if (o == s_.running && !g_.form<Accum>(n) && g_.node(n).first_value != operand(s_.weights))
          return no("the running maximum has another use");
    return true;
  }
  bool over_last(ValueId v, const Reduce& r) const {
    const Dims& d = g_.dims(operand(v));
    return r.dim == d.rank() - 1 && (r.group == 0 || r.group == d[r.dim]);
  }

  // ---- what every dimension means

  bool find_extents() {
    const Dims &s = g_.dims(s_.scores), &q = g_.dims(operand(s_.scores, 0)), &o = g_.dims(s_.result);
    rank_ = s.rank();
    tile_ = {1, s[rank_ - 2], s[rank_ - 1], q[rank_ - 1], o[rank_ - 1]};
    if (tile_[2] < 2 || tile_[3] < 8 || tile_[4] < 8) return no("tiles of few keys, features or columns");
    extent_ = {1, 0, 0, 0, 0};
    grid_.fill(-2);
    for (int i = 0; i < rank_ - 2; i++) { s_.batch.push_back(1); batch_grid_.push_back(-2); }
    return true;
  }

  bool label_all() {
    for (NodeId n : g_.outputs()) {
      const ValueId v = g_.node(n).operands[0];
      if (g_.dims(v).rank() != rank_) return no("an output of another rank");
      if (!label(v, Axis::kQuery, Axis::kColumn)) return false;
    }
    for (NodeId n : g_.outputs()) {
      const Output& out = *g_.form<Output>(n);
      if (!place(g_.node(n).operands[0], results_[static_cast<size_t>(out.result)], out.part, false)) return false;
      if (axes(g_.node(n).operands[0])[0] != Axis::kQuery) return no("an output that is the same for all queries");
    }
    s_.queries = extent_[1];
    s_.keys = extent_[2];
    s_.features = extent_[3];
    s_.columns = extent_[4];
    if (s_.queries < 1 || s_.keys < 1 || s_.features < 1 || s_.columns < 1) return no("an axis without a tensor");
    // an operand that is stored once for all of an axis was taken for a part of it while the extent was unknown
    for (ValueId v = 0; v < g_.num_values(); v++)
      if (form<Input>(v) && labelled_[static_cast<size_t>(v)] &&
          !place(v, operands_[static_cast<size_t>(form<Input>(v)->param)], form<Input>(v)->part, true))
        return false;
    return true;
  }

  /// Says that v's last two dimensions are `row` and `col` (extent 1 where the axis has more: the same for all), and so for all that v is
  /// made of.
  bool label(ValueId v, Axis row, Axis col) {
    const Dims& d = g_.dims(v);
    const int rank = d.rank();
    auto axis = [&](int i, Axis a) -> std::optional<Axis> {
      if (i < 0) return Axis::kOne;
      const int64_t t = tile_[static_cast<size_t>(a)];
      if (d[i] == t && a != Axis::kOne) return a;
      return d[i] == 1 ? std::optional(Axis::kOne) : std::nullopt;
    };
    const auto r = axis(rank - 2, row), c = axis(rank - 1, col);
    if (!r || !c) return no("a dimension that is none of queries, keys, features and columns");
    auto& mine = s_.axes[static_cast<size_t>(v)];
    if (labelled_[static_cast<size_t>(v)]) return (mine[0] == *r && mine[1] == *c) || no("a value that is read along two axes");
    labelled_[static_cast<size_t>(v)] = true;
    mine = {*r, *c};
    if (form<Const>(v)) return true;
    if (const Input* in = form<Input>(v)) return place(v, operands_[static_cast<size_t>(in->param)], in->part, true);
    if (form<Map>(v)) {
      for (ValueId o : g_.def(v).operands) if (!label(o, *r, *c)) return false;
      return true;
    }
    if (v == s_.scores) return label(operand(v, 0), Axis::kQuery, Axis::kFeature) && label(operand(v, 1), Axis::kFeature, Axis::kKey);
    if (form<MatMul>(v)) return label(operand(v, 0), Axis::kQuery, Axis::kKey) && label(operand(v, 1), Axis::kKey, Axis::kColumn);
    if (const Transpose* t = form<Transpose>(v)) {
      for (int i = 0; i < rank - 2; i++) if (t->perm[static_cast<size_t>(i)] != i) return no("batch dimensions change places");
      const bool swaps = rank >= 2 && t->perm[static_cast<size_t>(rank - 1)] != rank - 1;
      return swaps ? label(operand(v), *c, *r) : label(operand(v), *r, *c);
    }
    if (const Reduce* red = form<Reduce>(v)) {
      const Dims& x = g_.dims(operand(v));
      if (red->dim < rank - 2 || (red->group && red->group != x[red->dim])) return no("a reduction over batches or in groups");
      const std::optional<Axis> a = reduced_axis(operand(v));
      if (!a) return no("a reduction over an axis that is not clear");
      return red->dim == rank - 1 ? label(operand(v), *r, *a) : label(operand(v), *a, *c);
    }
    if (form<Running>(v)) return label(operand(v), Axis::kQuery, Axis::kOne);
    if (form<Accum>(v))
      return v == s_.result ? label(operand(v), Axis::kQuery, Axis::kColumn) : label(operand(v), Axis::kQuery, Axis::kOne);
    return no(std::string("a ") + form_name(g_.def(v).op));
  }
  /// The axis that a reduction of v sums: keys for scores, else what q, k or v have.
  std::optional<Axis> reduced_axis(ValueId v) const {
    if (depends(v, s_.scores)) return Axis::kKey;
    const bool features = depends_on_input_of(v, operand(s_.scores, 0)) || depends_on_input_of(v, operand(s_.scores, 1));
    const bool columns = depends_on_input_of(v, operand(operand(s_.result), 1));
    if (features == columns) return std::nullopt;
    return features ? Axis::kFeature : Axis::kColumn;
  }
  bool depends_on_input_of(ValueId v, ValueId operand) const {
    const ValueId base = base_input(operand);
    return base >= 0 && depends(v, base);
  }
  /// The 16-bit input that an operand of a contraction is a multiple of, if it is.
  ValueId base_input(ValueId v) const {
    while (true) {
      if (form<Input>(v)) return v;
      if (form<Transpose>(v)) { v = operand(v); continue; }
      const Map* m = form<Map>(v);
      if (!m || (m->fn != MapFn::kMul && m->fn != MapFn::kDiv)) return -1;
      const bool second = m->fn == MapFn::kMul && g_.dims(operand(v, 0)).elements() < g_.dims(operand(v, 1)).elements();
      v = operand(v, second ? 1 : 0);
    }
  }

  /// Compares where a tensor's dimensions lie (full extents, partition) with what other tensors said of the same axes.
  bool place(ValueId v, const Access& a, const Partition& part, bool input) {
    const Dims& d = g_.dims(v);
    const int rank = d.rank();
    if (a.dims.rank() != rank) return no("a tensor of another rank");
    for (int i = 0; i < rank; i++) {
      int grid = -1;
      for (int x = 0; x < 3; x++) if (part.grid[static_cast<size_t>(x)] == i && g_.launch().grid[static_cast<size_t>(x)] > 1) grid = x;
      const bool loop = part.loop == i && g_.launch().loop > 1;
      const int batch = i + (rank_ - rank);
      if (i < rank - 2) {
        if (loop) return no("the loop splits batches");
        if (a.dims[i] == 1) continue;
        int64_t& e = s_.batch[batch];
        int& at = batch_grid_[static_cast<size_t>(batch)];
        if ((e != 1 && e != a.dims[i]) || (at != -2 && at != grid)) return no("batches that do not match");
        e = a.dims[i];
        at = grid;
        continue;
      }
      Axis& axis = s_.axes[static_cast<size_t>(v)][i == rank - 2 ? 0 : 1];
      if (axis == Axis::kOne) {
        if (a.dims[i] != 1) return no("a dimension that is split but not used as one axis");
        continue;
      }
      const auto k = static_cast<size_t>(axis);
      if (input && a.dims[i] == 1 && extent_[k] > 1) { axis = Axis::kOne; continue; }
      // one, or the same for all: known when the others have spoken
      if (input && a.dims[i] == 1 && extent_[k] == 0 && tile_[k] == 1) continue;
      if ((extent_[k] != 0 && extent_[k] != a.dims[i]) || (grid_[k] != -2 && grid_[k] != grid))
        return no("extents of an axis that do not match");
      extent_[k] = a.dims[i];
      grid_[k] = grid;
      if (loop != (axis == Axis::kKey)) return no("the loop does not split keys, or something else");
      if (grid >= 0 && (axis == Axis::kKey || axis == Axis::kFeature)) return no("the grid splits keys or features");
    }
    return true;
  }

  // ---- Q, K and V

  bool find_tensors() {
    const ValueId second = operand(s_.result);
    if (!find_tensor(operand(s_.scores, 0), Axis::kQuery, s_.q) || !find_tensor(operand(s_.scores, 1), Axis::kKey, s_.k) ||
        !find_tensor(operand(second, 1), Axis::kKey, s_.v))
      return false;
    const auto dtype = [&](const AttendTensor& t) { return access(t).dtype; };
    s_.dtype = dtype(s_.q);
    if (!is16(s_.dtype)) return no("operands that are not 16-bit");
    if (dtype(s_.k) != s_.dtype || dtype(s_.v) != s_.dtype) return no("operands of different types");
    if (s_.q.lines_along_rows) return no("queries are stored transposed");
    if (s_.k.lines_along_rows && reads_tensor(s_.k)) return no("keys are stored transposed and their norm is needed");
    if (s_.v.lines_along_rows && reads_tensor(s_.v)) return no("values are stored transposed and their norm is needed");
    for (const AttendTensor* t : {&s_.q, &s_.k, &s_.v}) {
      const Access& a = access(*t);
      if (a.offset * 2 % 16 != 0) return no("an operand that does not start at a multiple of 16 bytes");
      const int contiguous = t->lines_along_rows ? t->row_dim : t->col_dim;
      for (int i = 0; i < a.dims.rank(); i++)
        if (i != contiguous && a.dims[i] > 1 && a.strides[i] != 0 && a.strides[i] * 2 % 16 != 0)
          return no("lines that do not start at multiples of 16 bytes");
      if (a.strides[t->lines_along_rows ? t->col_dim : t->row_dim] == 0 && a.dims[t->lines_along_rows ? t->col_dim : t->row_dim] > 1)
        return no("an operand that is repeated along a matrix dimension");
    }
    return true;
  }
  const Access& access(const AttendTensor& t) const { return operands_[static_cast<size_t>(g_.form<Input>(t.input)->param)]; }
  bool reads_tensor(const AttendTensor& t) const {
    for (const AttendFactor& f : t.factors) if (depends(f.value, g_.node(t.input).first_value)) return true;
    return false;
  }

  bool find_tensor(ValueId v, Axis row, AttendTensor& t) {
    bool swapped = false;
    while (!form<Input>(v)) {
      if (form<Transpose>(v)) { v = operand(v); swapped = !swapped; continue; }
      const Map* m = form<Map>(v);
      if (!m || (m->fn != MapFn::kMul && m->fn != MapFn::kDiv)) return no("an operand of a contraction that is not an input times factors");
      const Axis along = row == Axis::kKey && &t == &s_.v ? Axis::kColumn : Axis::kFeature;
      auto is_gain = [&](ValueId o) {
        const auto& x = axes(o);
        return (x[0] == along) != (x[1] == along) && (x[0] == along || x[0] == Axis::kOne) && (x[1] == along || x[1] == Axis::kOne) &&
               phase_[static_cast<size_t>(o)] == Phase::kInvariant;
      };
      auto is_factor = [&](ValueId o) {
        const auto& x = axes(o);
        return (x[0] == Axis::kOne || x[0] == row) && (x[1] == Axis::kOne || x[1] == row);
      };
      if (is_factor(operand(v, 1))) { t.factors.push_back({operand(v, 1), m->fn == MapFn::kDiv}); v = operand(v, 0); }
      else if (m->fn == MapFn::kMul && is_factor(operand(v, 0))) { t.factors.push_back({operand(v, 0), false}); v = operand(v, 1); }
      else if (is_gain(operand(v, 1))) { t.gains.push_back({operand(v, 1), m->fn == MapFn::kDiv}); v = operand(v, 0); }
      else if (m->fn == MapFn::kMul && is_gain(operand(v, 0))) { t.gains.push_back({operand(v, 0), false}); v = operand(v, 1); }
      else return no("an operand of a contraction that is not an input times factors");
    }
    t.input = g_.value(v).node;
    const int rank = g_.dims(v).rank();
    t.row_dim = axes(v)[0] == row ? rank - 2 : rank - 1;
    t.col_dim = t.row_dim == rank - 2 ? rank - 1 : rank - 2;
    const Access& a = access(t);
    if (a.strides[t.col_dim] != 1 && a.strides[t.row_dim] != 1) return no("an operand without a contiguous dimension");
    t.lines_along_rows = a.strides[t.col_dim] != 1;
    return true;
  }

  // ---- the scale of the scores: logit = scale * core, scale above zero, so that the maximum can be taken before it

  bool per_query(ValueId v) const {
    return axes(v)[1] == Axis::kOne && (axes(v)[0] == Axis::kOne || axes(v)[0] == Axis::kQuery) &&
           phase_[static_cast<size_t>(v)] == Phase::kInvariant;
  }
  bool takes(ValueId v, bool divides) const { const Range b = bound(v); return per_query(v) && (divides ? b.low >= 0 : b.positive); }
  bool find_scale() {
    ValueId v = s_.logit;
    bool clean = true, through_mask = false;   // clean: so far the logit is linear in the scores
    while (v != s_.scores && clean) {
      const Map* m = form<Map>(v);
      const auto leaves = [&](size_t factor, bool divides) {   // below a mask only constants: a factor of 0 would turn -inf into NaN
        const ValueId f = operand(v, factor);
        if (!takes(f, divides) || (through_mask && !form<Const>(f))) return false;
        s_.scale.push_back({f, divides});
        s_.peeled.push_back({v, operand(v, 1 - factor)});
        v = operand(v, 1 - factor);
        return true;
      };
      if (m && m->fn == MapFn::kMul && (leaves(1, false) || leaves(0, false))) continue;
      if (m && m->fn == MapFn::kDiv && leaves(1, true)) continue;
      const Const* c = m && m->fn == MapFn::kWhere ? form<Const>(operand(v, 1)) : nullptr;
      if (c && c->value == -kInfinity && !through_mask) { through_mask = true; v = operand(v, 2); }
      else clean = false;
    }
    s_.plain = clean && !through_mask;
    find_masks();
    if (s_.plain)   // factors of Q and K that are the same for all keys are factors of the scores
      for (AttendTensor* t : {&s_.q, &s_.k}) {
        std::vector<AttendFactor> rest;
        for (const AttendFactor& f : t->factors) (takes(f.value, f.divides) ? s_.scale : rest).push_back(f);
        t->factors = rest;
        s_.plain = s_.plain && rest.empty();
      }
    return true;
  }

  // ---- masks by positions
  void find_masks() {
    const BandQuestion q{s_.logit, s_.scores, s_.queries, s_.keys,
                         [&](ValueId v) {
                           for (const auto& [from, to] : s_.peeled) if (from == v) return to;
                           return ValueId{-1};
                         },
                         [&](ValueId v) {
                           const Access& a = operands_[static_cast<size_t>(form<Input>(v)->param)];
                           if (a.position < a.dims.rank() - 2 || a.position < 0 || a.position_div != 1 || a.position_period != 0)
                             return Counts::kNeither;
                           const Axis x = axes(v)[a.position == a.dims.rank() - 2 ? 0 : 1];
                           return x == Axis::kKey ? Counts::kColumns : x == Axis::kQuery ? Counts::kRows : Counts::kNeither;
                         }};
    const Band band = read_band(g_, q);
    s_.last = band.last;
    s_.first = band.first;
    s_.only_masks = band.only && !s_.plain && s_.q.factors.empty() && s_.k.factors.empty();
  }

  // ---- ranges

  Range bound(ValueId v) const { return ranges_.of(v); }
  static double finite(double x, double otherwise) { return x == x ? x : otherwise; }

  /// Whether v is sqrt(mean or sum of the squares of `of` [+ something not negative]): dividing by it leaves at most sqrt(n).
  bool is_norm(ValueId v, ValueId of) const {
    if (!map(v, MapFn::kSqrt)) return false;
    v = operand(v);
    if (map(v, MapFn::kAdd)) {
      if (bound(operand(v, 1)).low >= 0 && depends(operand(v, 0), of)) v = operand(v, 0);
      else if (bound(operand(v, 0)).low >= 0) v = operand(v, 1);
      else return false;
    }
    if (map(v, MapFn::kDiv) && form<Const>(operand(v, 1)) && bound(operand(v, 1)).positive && bound(operand(v, 1)).high <= 1 << 20)
      v = operand(v);
    const Reduce* r = form<Reduce>(v);
    if (!r || r->fn != ReduceFn::kSum) return false;
    v = operand(v);
    const bool square = map(v, MapFn::kSquare) || (map(v, MapFn::kMul) && operand(v, 0) == operand(v, 1));
    return square && operand(v) == of;
  }
  bool find_bounds() {
    double factor = 1;
    for (const AttendFactor& f : s_.v.factors) {
      const Range b = bound(f.value);
      const double most = f.divides ? (b.low > 0 ? 1 / b.low : kInfinity) : b.low >= 0 ? b.high : kInfinity;
      factor = finite(factor * most, kInfinity);
    }
    const ValueId v = g_.node(s_.v.input).first_value;
    const bool normed = s_.v.factors.size() == 1 && s_.v.factors[0].divides && is_norm(s_.v.factors[0].value, v);
    s_.parts_bounded = s_.dtype == DType::kBF16 || (s_.share == s_.weights && (s_.v.factors.empty() || factor <= 1 || normed));
    // Weights reach the tensor cores in the operands' type. Float16 has too little range for what could be anything: weights are at most 1,
    // a norm's reciprocal is brought into range with its row.
    if (s_.dtype == DType::kBF16) return true;
    if (s_.share != s_.weights && !(bound(s_.share).high <= 1)) return no("weights that could exceed the range of float16");
    if (!(factor <= 32768) && !normed) return no("factors of values that could exceed the range of float16");
    return true;
  }

  const Graph& g_;
  const std::vector<Access>&operands_, &results_;
  AttendShape& s_;
  std::vector<Phase> phase_;
  std::vector<bool> labelled_;
  int rank_ = 0;
  std::array<int64_t, 5> tile_{}, extent_{};
  std::array<int, 5> grid_{};
  std::vector<int> batch_grid_;
  Ranges ranges_;
  std::string reason_;
};

}  // namespace

std::string match_attend(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results, AttendShape& shape) {
  return Matcher(body, operands, results, shape).run();
}

}  // namespace mirage

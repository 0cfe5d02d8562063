// See the header.
#include "codegen/program/attention_view.h"

#include <algorithm>
#include <limits>

#include "mirage/ir/walk.h"
#include "mirage/support/assert.h"

namespace mirage::schedule {
namespace {

std::vector<double> largest_numbers(const KernelProgram& p) {
  std::vector<double> out;
  for (const Param& x : p.params) out.push_back(largest(x.dtype));
  return out;
}

}  // namespace

AttentionView::AttentionView(const KernelProgram& p, const Derived& d) : ProgramView(p, d), ranges_(p.body, largest_numbers(p)) {
  find_values();
  find_tensors();
  find_known();
  find_scale();
}

// ---- values

void AttentionView::find_values() {
  MIRAGE_ASSERT(products().size() == 2) << "an attention of " << products().size() << " products";
  const Graph& g = body();
  product = place(products()[0]->to).value;
  result = place(products()[1]->to).value;
  for (const Stage& s : program().stages) {
    if (s.kind != Stage::Kind::kCompute || s.unit != UnitId::kNone) continue;
    const ValueId x = place(s.to).value;
    const auto* a = g.def_form<Accum>(x);
    if (g.def_form<Running>(x)) running = x, state = s.to;
    if (a && a->fn == ReduceFn::kSum) sum = x;
    if (a && a->fn == ReduceFn::kMax) maximum = x;
  }
  logit = operand(operand(running));
  weights = operand(operand(sum));
  const ValueId left = operand(operand(result)), last = indices(product).size() > 1 ? 2 : 1;
  query = *(indices(product).end() - last);
  key = indices(product).back();
  feature = indices(operand(product)).back();
  column = indices(result).back();
  // what multiplies V is rounded; on the way there, its factors multiply it
  for (PlaceId x : products()[1]->reads) if (place(x).value == left) rounded = x;
  const auto& from = maker(rounded)->reads;
  const bool is_moved = std::any_of(from.begin(), from.end(), [&](PlaceId x) { return place(x).value == left; });
  share = is_moved ? left : operand(left);
  if (!is_moved) for (PlaceId x : from) if (place(x).value == operand(left, 1)) value_factor_ = x;
}

MatrixOperand AttentionView::tensor(ValueId below, bool rows_first) const {
  MatrixOperand out;
  for (out.input = below; !body().def_form<Input>(out.input); out.input = operand(out.input))
    if (body().def_form<Transpose>(out.input)) rows_first = !rows_first;
  const Param& a = param(out.input);
  out.row_dim = a.dims.rank() - (rows_first ? 2 : 1);
  out.col_dim = a.dims.rank() - (rows_first ? 1 : 2);
  out.lines_along_rows = a.strides[out.col_dim] != 1;
  return out;
}

void AttentionView::find_tensors() {
  gained = operand(product);
  q = tensor(gained, true);
  k = tensor(operand(product, 1), false);
  v = tensor(operand(operand(result), 1), true);
}

bool AttentionView::is_along(ValueId x, IndexId i) const {
  const auto& of = indices(x);
  const size_t from = of.size() < 2 ? 0 : of.size() - 2;
  return i >= 0 && std::find(of.begin() + static_cast<std::ptrdiff_t>(from), of.end(), i) != of.end();
}

bool AttentionView::is_only(ValueId x, IndexId i) const {
  const auto& of = indices(x);
  const size_t from = of.size() < 2 ? 0 : of.size() - 2;
  return std::all_of(of.begin() + static_cast<std::ptrdiff_t>(from), of.end(), [&](IndexId j) { return j < 0 || j == i; });
}

void AttentionView::find_known() {
  std::vector<PlaceId> all;
  for (const Stage& s : program().stages)
    if (s.to >= 0 && place(s.to).section >= 0 && in_loop(s) && is_along(place(s.to).value, key) && is_only(place(s.to).value, key) &&
        !depends_on(body(), place(s.to).value, product))
      all.push_back(s.to);
  std::sort(all.begin(), all.end(), [&](PlaceId a, PlaceId b) { return derived().place_at[at(a)] < derived().place_at[at(b)]; });
  for (PlaceId x : all) {
    const bool of_key = std::any_of(program().stages.begin(), program().stages.end(), [&](const Stage& s) {
      return s.to >= 0 && std::find(s.reads.begin(), s.reads.end(), x) != s.reads.end() &&
             std::find(all.begin(), all.end(), s.to) == all.end() && !depends_on(body(), place(s.to).value, weights);
    });
    (of_key ? key_known_ : value_known_).push_back(x);
  }
}

bool AttentionView::is_deferred(ValueId x) const {
  return std::any_of(program().places.begin(), program().places.end(), [&](const Place& y) { return y.value == x && y.deferred; });
}

ValueId AttentionView::core(ValueId x) const { return operand(x, depends_on(body(), operand(x), product) ? 0 : 1); }

ValueId AttentionView::untransposed(ValueId x) const {
  while (body().def_form<Transpose>(x)) x = operand(x);
  return x;
}

std::vector<Factor> AttentionView::chain(ValueId x) const {
  std::vector<Factor> out;
  for (; !is_deferred(x); x = operand(x)) {
    const auto* m = body().def_form<Map>(x);
    if (!m || (m->fn != MapFn::kMul && m->fn != MapFn::kDiv)) break;
    out.push_back({operand(x, 1), m->fn == MapFn::kDiv});
  }
  std::reverse(out.begin(), out.end());
  return out;
}

/// The factors of Q's and K's rows are what a place of its own adds to the product; those that follow the maximum say so.
void AttentionView::find_scale() {
  const auto is_product = [&](ValueId x) {
    const auto* m = body().def_form<Map>(x);
    return m && (m->fn == MapFn::kMul || m->fn == MapFn::kDiv);
  };
  const auto is_factor = [&](ValueId x) {   // of a row, or 1 times those of a key
    if (is_only(x, query)) return true;
    x = untransposed(x);
    while (is_product(x)) x = operand(x);
    return body().def_form<Const>(x) != nullptr;
  };
  const auto base = [&](ValueId x) {
    for (; x != product && !is_deferred(x); x = operand(x)) if (!is_product(x) || !is_factor(operand(x, 1))) return ValueId{-1};
    return x;
  };
  scores = product;
  for (const Stage& s : program().stages) {
    if (s.kind != Stage::Kind::kCompute || s.unit != UnitId::kNone || place(s.to).deferred || place(s.to).value == product) continue;
    if (const ValueId x = place(s.to).value; depends_on(body(), x, product) && base(x) >= 0) scores = x;
  }
  for (ValueId x = logit; x != product;) {
    const auto* m = body().def_form<Map>(x);
    if (is_deferred(x)) {
      scale_.push_back({core(x) == operand(x) ? operand(x, 1) : operand(x), m->fn == MapFn::kDiv});
      x = core(x);
    } else if (x == scores) {
      x = base(x);
    } else if (m && m->fn == MapFn::kWhere) {
      x = operand(x, 2);
    } else {
      break;
    }
  }
  if (scores == product) return;
  for (const Factor& f : chain(scores))
    for (PlaceId x : key_known_) if (place(x).value == f.value) key_factor_ = x;
}

bool AttentionView::is_plain() const {
  ValueId x = logit;
  while (is_deferred(x)) x = core(x);
  return x == product;
}

bool AttentionView::may_be_huge() const {
  constexpr double kLeast = -2.0e38;
  const Graph& g = body();
  const auto is_below = [&](ValueId x) { return depends_on(g, x, product); };
  const auto look = [&](ValueId x, int) {
    if (x == product) return Look::kPast;
    if (is_below(x)) return Look::kInto;
    const auto* c = g.def_form<Const>(x);
    return !(c && c->value == -std::numeric_limits<double>::infinity()) && !(range(x).low >= kLeast) ? Look::kFound : Look::kPast;
  };
  return find_below(logit, 0, look, [&](ValueId x, int, const auto& push) {
    const auto* m = g.def_form<Map>(x);
    const bool scales = m && (m->fn == MapFn::kMul || m->fn == MapFn::kDiv);
    for (size_t i = m && m->fn == MapFn::kWhere ? 1 : 0; i < g.def(x).operands.size(); i++)
      if (!scales || is_below(operand(x, i))) push(operand(x, i), 0);
  });
}

Band AttentionView::band() const {
  BandQuestion ask{logit, product, extent(query), extent(key), [&](ValueId x) { return is_deferred(x) ? core(x) : -1; }, nullptr};
  ask.counts = [&](ValueId x) {
    const Param& a = param(x);
    if (a.position < a.dims.rank() - 2 || a.position < 0 || a.position_div != 1 || a.position_period != 0) return Counts::kNeither;
    const IndexId i = indices(x)[at(a.position)];   // the only row is row 0
    return i == query ? Counts::kRows : i == key ? Counts::kColumns : Counts::kNeither;
  };
  Band out = read_band(body(), ask);
  out.only = out.only && !is_plain() && scores == product;
  return out;
}

// ---- how they are divided

int64_t AttentionView::first_boxes() const { return (first_features() + 63) / 64; }

std::vector<int64_t> AttentionView::batch() const {
  const int rank = body().dims(product).rank();
  std::vector<int64_t> out(at(std::max(rank - 2, 0)), 1);
  for (ValueId x = 0; x < body().num_values(); x++)
    for (int d = 0; d < rank - 2; d++)
      if (const int own = d + body().dims(x).rank() - rank; own >= 0) out[at(d)] = std::max(out[at(d)], body().dims(x)[own]);
  return out;
}

bool AttentionView::is_wide() const { return parts(feature, AxisKind::kWarp) > 1; }

int64_t AttentionView::padded_columns() const {
  const int64_t each = place(products()[1]->to).box[1];
  return is_wide() ? each * work().warps : each;
}

bool AttentionView::is_refilled_by_others() const {
  const Role& copies = role_of(*copy_of(k.input));
  return &copies != &work() && copies.warps > 0;
}

int AttentionView::known_section() const {
  return !key_known_.empty() ? place(key_known_[0]).section : !value_known_.empty() ? place(value_known_[0]).section : -1;
}

int64_t AttentionView::helpers() const {
  if (known_section() < 0) return 0;
  const Role& of = role_of(*maker(key_known_.empty() ? value_known_[0] : key_known_[0]));
  if (&of == &work()) return 0;
  return of.warps - (&of == &role_of(*copy_of(k.input)) ? 1 : 0);   // one of them copies
}

int64_t AttentionView::producers() const { return is_refilled_by_others() ? role_of(*copy_of(k.input)).warps - helpers() : 0; }

int64_t AttentionView::lent_registers() const {
  int64_t out = 0;
  for (const Role& r : program().roles) if (&r != &work()) out = std::max<int64_t>(out, r.registers);
  return out;
}

}  // namespace mirage::schedule

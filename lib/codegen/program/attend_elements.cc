// See the header.
#include "codegen/program/attend_elements.h"

#include <algorithm>

#include <fmt/format.h>

#include "codegen/kernels/cuda_text.h"
#include "mirage/support/assert.h"

namespace mirage::schedule {

AttendElements::AttendElements(const AttentionView& a) : a_(a), g_(a.body()), phase_(phases(a.body())), batch_(a.batch()) {
  const auto& results = a.program().results;
  narrow_ = std::all_of(results.begin(), results.end(), [](const Param& x) { return dtype_bytes(x.dtype) == 2; });
  rows_ = once_per_query(Had::kRow);
  after_rows_ = once_per_query(Had::kAfterRow);
}

// ---- where values are

size_t AttendElements::known_index(ValueId v, Asked where) const {
  const auto& all = where == Asked::kLogit ? a_.key_known() : a_.value_known();
  return static_cast<size_t>(std::find_if(all.begin(), all.end(), [&](PlaceId x) { return a_.place(x).value == v; }) - all.begin());
}

AttendElements::Had AttendElements::had(ValueId v, Asked where) const {
  const Had otherwise = g_.def_form<Input>(v) ? Had::kElement : g_.def_form<Reduce>(v) ? Had::kStatistic : Had::kCompute;
  if (g_.def_form<Const>(v)) return Had::kConst;
  switch (where) {
    case Asked::kTile: return otherwise == Had::kElement ? Had::kTile : otherwise;
    case Asked::kGain: case Asked::kQueryRow: case Asked::kKeyRow: case Asked::kValueRow: return otherwise;
    default: break;
  }
  if (is_row(v)) return Had::kRow;
  const Had own = where == Asked::kLogit || where == Asked::kWeight ? had_in_loop(v, where) : had_behind(v, where);
  return own == Had::kCompute ? otherwise : own;
}

AttendElements::Had AttendElements::had_in_loop(ValueId v, Asked where) const {
  if (where == Asked::kWeight && v == a_.weights) return Had::kWeights;
  if (where == Asked::kLogit && (v == a_.scores || v == a_.product)) return Had::kScores;
  if (known_index(v, where) < (where == Asked::kLogit ? a_.key_known() : a_.value_known()).size()) return Had::kKnown;
  return where == Asked::kLogit && a_.is_deferred(v) ? Had::kDeferred : Had::kCompute;
}

AttendElements::Had AttendElements::had_behind(ValueId v, Asked where) const {
  if (v == a_.result) return Had::kResult;
  if (v == a_.maximum) return Had::kMaximum;
  if (v == a_.sum) return Had::kSum;
  return where == Asked::kAfter && a_.is_only(v, a_.query) && !g_.def_form<Input>(v) ? Had::kAfterRow : Had::kCompute;
}

/// A factor of rows as it was made, in whichever dimension.
ValueId AttendElements::row_factor(ValueId v) const { return is_row(v) ? a_.untransposed(v) : v; }

std::vector<ValueId> AttendElements::once_per_query(Had kind) const {
  std::set<ValueId> out;
  const auto look = [&](ValueId v, Asked where) {
    if (had(v, where) == kind) out.insert(v);
    return Look::kInto;
  };
  const auto next = [&](ValueId v, Asked where, const auto& push) {
    const Had h = had(v, where);
    if (h == Had::kAfterRow) push(v, Asked::kAfterRow);
    if (h == Had::kCompute) for (ValueId o : g_.def(v).operands) push(o, where);
    if (h == Had::kDeferred) push(a_.core(v), where);
  };
  const auto walk = [&](ValueId v, Asked where) { find_below(v, where, look, next); };
  for (const Factor& f : a_.scale()) walk(row_factor(f.value), Asked::kLogit);
  if (a_.scores != a_.product) for (const Factor& f : a_.chain(a_.scores)) walk(row_factor(f.value), Asked::kLogit);
  if (!a_.is_plain()) walk(a_.logit, Asked::kLogit);
  walk(a_.share, Asked::kWeight);
  for (NodeId n : g_.outputs()) walk(g_.node(n).operands[0], Asked::kAfter);
  return {out.begin(), out.end()};
}

// ---- elements of tensors

std::string AttendElements::batch_index(int d) const {   // numbered from the right end of the leading dimensions
  int64_t inner = 1;
  for (size_t i = static_cast<size_t>(d) + 1; i < batch_.size(); i++) inner *= batch_[i];
  return inner == 1 && d == 0 ? "at.batch" : fmt::format("at.batch / {} % {}", inner, batch_[static_cast<size_t>(d)]);
}

std::string AttendElements::element_of(const Param& a, const std::vector<IndexId>& of, const std::string& pointer) const {
  std::string index = std::to_string(a.offset);
  const int rank = a.dims.rank();
  for (int d = 0; d < rank; d++) {
    if (a.dims[d] == 1 || (d < rank - 2 && a.strides[d] == 0)) continue;
    const std::string number =
        d < rank - 2 ? batch_index(d + static_cast<int>(batch_.size()) + 2 - rank) : name_of(of[static_cast<size_t>(d)]);
    index += fmt::format(" + int64_t({}) * {}", number, a.strides[d]);
  }
  return fmt::format("{}[{}]", pointer, index);
}

std::string AttendElements::element_of(ValueId input) const {
  const Param& a = a_.param(input);
  const std::string pointer = fmt::format("static_cast<const {}*>(a.in{})", storage_type(a.dtype), g_.def_form<Input>(input)->param);
  return element_of(a, a_.indices(input), pointer);
}

/// The number that an operand of positions has at an element.
std::string AttendElements::position_text(ValueId v) const {
  const Param& a = a_.param(v);
  const int rank = a.dims.rank();
  if (a.dims[a.position] == 1) return "0";
  std::string index = a.position < rank - 2
                          ? fmt::format("({})", batch_index(a.position + static_cast<int>(batch_.size()) + 2 - rank))
                          : std::string(name_of(a_.indices(v)[static_cast<size_t>(a.position)]));
  if (a.position_div != 1) index += fmt::format(" / {}", a.position_div);
  if (a.position_period != 0) index += fmt::format(" % {}", a.position_period);
  return index;
}

/// Whether two neighbouring keys' elements of an input per query and key can be asked for together, long before their scores are there.
bool AttendElements::is_fetched(ValueId v) const {
  const Param& a = a_.param(v);
  const int rank = a.dims.rank();
  const bool has_row = a_.is_along(v, a_.query) || (a_.extent(a_.query) == 1 && rank > 1);
  if (a_.is_wide() || !has_row || !a_.is_along(v, a_.key)) return false;
  const int key_dim = a_.indices(v).back() == a_.key ? rank - 1 : rank - 2;
  if (a_.extent(a_.key) % 2 != 0 || a_.first_keys() % 2 != 0 || a.strides[key_dim] != 1 || a.offset % 2 != 0) return false;
  for (int d = 0; d < rank; d++) if (d != key_dim && a.dims[d] > 1 && a.strides[d] % 2 != 0) return false;
  return true;
}

std::string AttendElements::element_text(ValueId v, Asked where) {
  if (a_.param(v).position >= 0) return fmt::format("float({})", position_text(v));
  pointers_.insert(g_.def_form<Input>(v)->param);
  if (where == Asked::kLogit && is_fetched(v)) {
    fetched_.insert(v);
    return fmt::format("mo::load(fetched.of{}.elements[c])", v);
  }
  return fmt::format("mo::load({})", element_of(v));
}

// ---- what is computed

/// Whether a statistic sums the squares of elements as they are stored: tensor cores and the library know how.
bool AttendElements::is_squares(ValueId v) const {
  const ValueId of = operand(v);
  const Map* m = g_.def_form<Map>(of);
  if (g_.def_form<Reduce>(v)->fn != ReduceFn::kSum || !m) return false;
  return (m->fn == MapFn::kSquare || (m->fn == MapFn::kMul && operand(of) == operand(of, 1))) && g_.def_form<Input>(operand(of));
}

std::string AttendElements::statistic_text(ValueId v, Asked where) {
  if (is_squares(v)) {
    if (where == Asked::kKeyRow) key_squares_ = true;
    if (where == Asked::kValueRow) value_squares_ = true;
    return "tile.squares()";
  }
  Region inner;
  const std::string of = value(operand(v), Asked::kTile, inner);
  return fmt::format("tile.template reduce<mo::{}>([&](float x) {{ {}return {}; }})",
                     g_.def_form<Reduce>(v)->fn == ReduceFn::kSum ? "Sum" : "Max", inner.statements, of);
}

bool AttendElements::is_root(ValueId v) const { return g_.def_form<Map>(v) && g_.def_form<Map>(v)->fn == MapFn::kSqrt; }

std::string AttendElements::computed_text(ValueId v, Asked where, Region& r) {
  const Map* m = g_.def_form<Map>(v);
  MIRAGE_ASSERT(m) << "no place for value " << v << " in an attention kernel: " << print(g_);
  const std::vector<ValueId>& o = g_.def(v).operands;
  // the sum of weights is near 1 or above it (or 0, with nothing to divide): its reciprocal is taken once per row
  if (m->fn == MapFn::kDiv && where == Asked::kAfter && o[1] == a_.sum) return fmt::format("mo::mul({}, inverse)", value(o[0], where, r));
  std::vector<std::string> operands;
  for (ValueId x : o) operands.push_back(value(x, where, r));
  if (m->fn != MapFn::kDiv) return map_text(m->fn, operands);
  DivisorText y{operands[1], std::nullopt, "", false};
  if (const Const* c = g_.def_form<Const>(o[1])) y.constant = c->value;
  if (narrow_ && is_root(o[1]) && had(o[1], where) == Had::kCompute) y.root_of = value(operand(o[1]), where, r);
  return quotient_text(operands[0], y, narrow_);
}

/// What is known of keys is a product: a division per score would cost more than all the rest.
std::string AttendElements::multiplied(std::string x, const std::vector<Factor>& all, Asked where, Region& r) {
  for (const Factor& f : all) {
    const ValueId v = row_factor(f.value);
    const Had h = had(v, where);
    if (f.divides && is_root(v) && h == Had::kRow) x = fmt::format("mo::mul({}, row.r{})", x, v);
    else if (f.divides && is_root(v) && h == Had::kCompute) x = fmt::format("mo::mul({}, mo::rsqrt({}))", x, value(operand(v), where, r));
    else x = fmt::format("mo::{}({}, {})", f.divides ? "div" : "mul", x, value(v, where, r));
  }
  return x;
}

std::string AttendElements::scores_text(Asked where, Region& r) {
  return a_.scores == a_.product ? "s" : multiplied("s", a_.chain(a_.scores), where, r);
}

std::string AttendElements::value(ValueId v, Asked where, Region& r) {
  if (auto it = r.known.find(v); it != r.known.end()) return it->second;
  std::string text;
  switch (had(v, where)) {
    case Had::kConst: return CudaText().constant(g_.def_form<Const>(v)->value);
    case Had::kWeights: return "e";
    case Had::kSum: return "sum";
    case Had::kMaximum: return "maximum";
    case Had::kRow: return fmt::format("row.v{}", v);
    case Had::kAfterRow: return fmt::format("v{}", v);
    case Had::kKnown: return fmt::format("known[{}]", known_index(v, where));
    case Had::kTile: case Had::kResult: return "x";
    case Had::kDeferred: return value(a_.core(v), where, r);
    case Had::kScores: text = scores_text(where, r); break;
    case Had::kElement: text = element_text(v, where); break;
    case Had::kStatistic: text = statistic_text(v, where); break;
    case Had::kCompute:
      if (g_.def_form<Transpose>(v)) return value(operand(v), where, r);
      text = computed_text(v, where, r);
      break;
  }
  const std::string name = fmt::format("v{}", v);
  r.statements += fmt::format("const float {} = {}; ", name, text);
  r.known[v] = name;
  return name;
}

}  // namespace mirage::schedule

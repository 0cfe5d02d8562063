// KeptValues: see the header. Values are numbered by meaning: an operator on numbered operands has a number, and equal ones share it. A
// block graph's values are numbered as the whole tensors that its tiles make up.
#include "mirage/ir/kept.h"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <utility>

#include "mirage/ir/eval.h"
#include "mirage/ir/rewrite.h"
#include "mirage/support/hash.h"

namespace mirage {
namespace kept {

/// What an operator is among equal operands: extents that constants stand for do not matter at one size.
struct Meaning {
  Op op;
  std::vector<int> operands;
};

}  // namespace kept

namespace {

using kept::Meaning;
constexpr int kNoMeaning = -1;

bool same_meaning(const Meaning& a, const Meaning& b) {
  if (a.operands != b.operands) return false;
  const auto *x = std::get_if<Const>(&a.op), *y = std::get_if<Const>(&b.op);
  return x && y ? x->value == y->value : a.op == b.op;
}

uint64_t hash_of_meaning(const Meaning& m) {
  uint64_t h = hash_combine(17, m.op.index());
  for (int o : m.operands) h = hash_combine(h, static_cast<uint64_t>(o));
  if (const auto* map = std::get_if<Map>(&m.op)) h = hash_combine(h, static_cast<uint64_t>(map->fn));
  return h;   // other fields are left to ==
}

}  // namespace

struct KeptValues::Table {
  std::vector<Meaning> meanings;
  std::unordered_map<uint64_t, std::vector<int>> numbers;   // by hash; never iterated
  std::vector<DType> kept;                                  // by number
  std::vector<int> of_reference;                            // per value of the reference
  bool any = false;

  int find(const Meaning& m) const {
    const auto at = numbers.find(hash_of_meaning(m));
    if (at == numbers.end()) return kNoMeaning;
    for (int i : at->second) if (same_meaning(meanings[static_cast<size_t>(i)], m)) return i;
    return kNoMeaning;
  }
  int add(Meaning m) {
    if (const int known = find(m); known >= 0) return known;
    const int i = static_cast<int>(meanings.size());
    numbers[hash_of_meaning(m)].push_back(i);
    meanings.push_back(std::move(m));
    kept.push_back(DType::kReal);
    return i;
  }
  DType type(int number) const { return number < 0 ? DType::kReal : kept[static_cast<size_t>(number)]; }
};

namespace {

Meaning meaning_of(const Op& op, std::vector<int> operands) {
  if (const auto* m = std::get_if<Map>(&op); m && is_commutative(m->fn)) std::sort(operands.begin(), operands.end());
  return {op, std::move(operands)};
}

/// How a tile's dimension walks over its tensor's.
enum WalkedBy : uint8_t { kByNothing = 0, kByGrid = 1, kByLoop = 2 };

/// A block graph's value as a whole tensor: its number, how its dimensions are cut, and whether one iteration has a part of a sum (or
/// maximum) only.
struct Tiled {
  int number = kNoMeaning;
  std::array<uint8_t, kMaxRank> cut{};
  bool partial = false;
};

/// The numbers of a body's values, given those of the call's operands.
template <class Find> class Untiled {
 public:
  Untiled(const Graph& body, std::span<const int> operands, Find find)
      : b_(body), operands_(operands), find_(find), values_(static_cast<size_t>(body.num_values())) {
    for (NodeId n = 0; n < b_.num_nodes(); n++)
      if (b_.node(n).num_values == 1) values_[static_cast<size_t>(b_.node(n).first_value)] = make(n);
  }
  const Tiled& at(ValueId v) const { return values_[static_cast<size_t>(v)]; }
  /// The number of a whole value; kNoMeaning for parts of sums.
  int number(ValueId v) const { return at(v).partial ? kNoMeaning : at(v).number; }

 private:
  Tiled make(NodeId n) const {
    const Node& node = b_.node(n);
    if (const auto* in = b_.form<Input>(n)) return input(*in);
    if (b_.form<Const>(n)) return {find_(Meaning{node.op, {}}), {}, false};
    if (b_.form<Map>(n)) return map(node);
    if (b_.form<MatMul>(n)) return matmul(node);
    if (const auto* r = b_.form<Reduce>(n)) return reduce(node, *r);
    if (const auto* a = b_.form<Accum>(n)) return accum(node, *a);
    if (const auto* t = b_.form<Transpose>(n)) return transpose(node, *t);
    return {};
  }
  Tiled input(const Input& in) const {
    Tiled out;
    out.number = static_cast<size_t>(in.param) < operands_.size() ? operands_[static_cast<size_t>(in.param)] : kNoMeaning;
    for (int8_t d : in.part.grid) if (d >= 0) out.cut[static_cast<size_t>(d)] |= kByGrid;
    if (in.part.loop >= 0) out.cut[static_cast<size_t>(in.part.loop)] |= kByLoop;
    return out;
  }
  bool known(const Node& node) const {
    return std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId v) { return number(v) >= 0; });
  }
  std::vector<int> numbers(const Node& node) const {
    std::vector<int> out;
    for (ValueId v : node.operands) out.push_back(number(v));
    return out;
  }
  Tiled map(const Node& node) const {
    if (!known(node)) return {};
    Tiled out;
    const int rank = b_.dims(node.first_value).rank();
    for (ValueId v : node.operands)   // where both have an extent, the laws have them cut alike
      for (int d = 0, r = b_.dims(v).rank(); d < r; d++) out.cut[static_cast<size_t>(d + rank - r)] |= at(v).cut[static_cast<size_t>(d)];
    out.number = find_(meaning_of(node.op, numbers(node)));
    return out;
  }
  Tiled matmul(const Node& node) const {
    if (!known(node)) return {};
    const Tiled &x = at(node.operands[0]), &y = at(node.operands[1]);
    const auto rank = static_cast<size_t>(b_.dims(node.first_value).rank());
    const uint8_t k = x.cut[rank - 1];
    if (k != y.cut[rank - 2] || (k & kByGrid)) return {};
    Tiled out;
    for (size_t d = 0; d + 2 < rank; d++) out.cut[d] = x.cut[d] | y.cut[d];
    out.cut[rank - 2] = x.cut[rank - 2], out.cut[rank - 1] = y.cut[rank - 1];
    out.partial = k == kByLoop;
    out.number = find_(meaning_of(node.op, numbers(node)));
    return out;
  }
  Tiled reduce(const Node& node, const Reduce& r) const {
    if (!known(node)) return {};
    Tiled out = at(node.operands[0]);
    const auto d = static_cast<size_t>(r.dim);
    if (out.cut[d] & kByGrid || (out.cut[d] != kByNothing && r.group != 0 && r.group != b_.dims(node.operands[0])[r.dim])) return {};
    out.partial = out.cut[d] == kByLoop;
    out.cut[d] = kByNothing;
    const bool whole = r.group == 0 || r.group == b_.dims(node.operands[0])[r.dim];
    out.number = find_(meaning_of(whole ? Op{Reduce{r.fn, r.dim, 0}} : node.op, numbers(node)));
    return out;
  }
  Tiled accum(const Node& node, const Accum& a) const {
    Tiled out = at(node.operands[0]);
    const Op& op = b_.def(node.operands[0]).op;
    const auto* r = std::get_if<Reduce>(&op);
    const bool adds = std::holds_alternative<MatMul>(op) ? a.fn == ReduceFn::kSum : r && r->fn == a.fn;
    if (!out.partial || a.degree != 0 || !adds) return {};
    out.partial = false;
    return out;
  }
  Tiled transpose(const Node& node, const Transpose& t) const {
    if (!known(node)) return {};
    Tiled out;
    for (int d = 0; d < b_.dims(node.first_value).rank(); d++)
      out.cut[static_cast<size_t>(d)] = at(node.operands[0]).cut[static_cast<size_t>(t.perm[static_cast<size_t>(d)])];
    out.number = find_(meaning_of(node.op, numbers(node)));
    return out;
  }

  const Graph& b_;
  std::span<const int> operands_;
  Find find_;
  std::vector<Tiled> values_;
};

MapFn cast_to(DType t) { return t == DType::kF16 ? MapFn::kCastF16 : MapFn::kCastBF16; }

/// Numbers of a kernel-level graph's values.
template <class Find>
std::vector<int> numbers_of(const Graph& g, std::span<const ValueId> origin, std::span<const int> of_reference, Find&& find) {
  std::vector<int> out(static_cast<size_t>(g.num_values()), kNoMeaning);
  for (const Node& node : g.nodes()) {
    std::vector<int> operands;
    for (ValueId v : node.operands) operands.push_back(out[static_cast<size_t>(v)]);
    const bool known = std::all_of(operands.begin(), operands.end(), [](int i) { return i >= 0; });
    if (const auto* call = std::get_if<Call>(&node.op)) {
      const Untiled untiled(*call->body, std::span<const int>(operands), find);
      for (NodeId o : call->body->outputs())
        out[static_cast<size_t>(node.first_value + call->body->form<Output>(o)->result)] = untiled.number(call->body->node(o).operands[0]);
    } else if (const auto* in = std::get_if<Input>(&node.op)) {
      out[static_cast<size_t>(node.first_value)] = find(Meaning{Input{in->param, {}}, {}});
    } else if (node.first_value >= 0 && known) {
      out[static_cast<size_t>(node.first_value)] = find(meaning_of(node.op, std::move(operands)));
    }
    for (int i = 0; i < node.num_values; i++)
      if (const auto v = static_cast<size_t>(node.first_value + i); v < origin.size() && origin[v] >= 0)
        out[v] = of_reference[static_cast<size_t>(origin[v])];
  }
  return out;
}

}  // namespace

namespace {

/// Whether what elements of v are, as far as they are constants, is a number of type t.
bool is_constant_of(const Graph& g, ValueId v, DType t) {
  while (is_view(g.def(v).op) || g.def_form<Repeat>(v)) v = g.def(v).operands[0];
  const auto* c = g.def_form<Const>(v);
  return c && c->extent_of.empty() && round_to(c->value, t) == c->value;
}

/// Per value, the 16-bit type that all its elements have in which it may be kept (`kept`), or has as an input; kReal: none. What only moves
/// elements is as exact as they are: views, repetitions, concatenations also with constants (padding, the windows of a convolution).
std::vector<DType> exact_types(const Graph& g, std::span<const DType> kept) {
  std::vector<DType> out(static_cast<size_t>(g.num_values()), DType::kReal);
  for (ValueId v = 0; v < g.num_values(); v++) {
    const Node& node = g.def(v);
    DType& t = out[static_cast<size_t>(v)];
    if (g.def_form<Input>(v) && is16(g.type(v).dtype)) t = g.type(v).dtype;
    else if (!kept.empty()) t = kept[static_cast<size_t>(v)];
    if (is_view(node.op)) t = out[static_cast<size_t>(node.operands[0])];
    if (is16(t) || !(g.def_form<Concat>(v) || g.def_form<Repeat>(v))) continue;
    for (ValueId o : node.operands) if (is16(out[static_cast<size_t>(o)])) t = out[static_cast<size_t>(o)];
    const bool same = std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId o) {
      return out[static_cast<size_t>(o)] == t || (is16(t) && is_constant_of(g, o, t));
    });
    if (!same) t = DType::kReal;
  }
  return out;
}

}  // namespace

KeptValues::KeptValues(const Graph& reference, std::span<const DType> kept) : table_(std::make_unique<Table>()) {
  const std::vector<DType> types = exact_types(reference, kept);
  for (ValueId v = 0; v < reference.num_values(); v++)
    table_->any = table_->any || (is16(types[static_cast<size_t>(v)]) && reference.type(v).dtype == DType::kReal);
  if (!table_->any) return;
  table_->of_reference = numbers_of(reference, {}, {}, [&](Meaning m) { return table_->add(std::move(m)); });
  for (ValueId v = 0; v < reference.num_values(); v++) {
    const DType t = types[static_cast<size_t>(v)];
    if (const int i = table_->of_reference[static_cast<size_t>(v)]; i >= 0 && is16(t)) table_->kept[static_cast<size_t>(i)] = t;
  }
}
KeptValues::KeptValues(KeptValues&&) noexcept = default;
KeptValues::~KeptValues() = default;
bool KeptValues::empty() const { return !table_->any; }

std::vector<DType> KeptValues::of(const Graph& g, std::span<const ValueId> origin) const {
  if (empty()) return std::vector<DType>(static_cast<size_t>(g.num_values()), DType::kReal);
  return types_of(g, numbers_of(g, origin, table_->of_reference, [&](const Meaning& m) { return table_->find(m); }));
}

std::vector<DType> KeptValues::types_of(const Graph& g, std::span<const int> numbers) const {
  std::vector<DType> out(static_cast<size_t>(g.num_values()), DType::kReal);
  for (size_t v = 0; v < out.size(); v++)
    if (g.type(static_cast<ValueId>(v)).dtype == DType::kReal) out[v] = table_->type(numbers[v]);
  for (NodeId n = g.num_nodes() - 1; n >= 0; n--) {   // all elements of what a view shows are elements of the view
    const Node& node = g.node(n);
    if (!g.form<Transpose>(n) && !g.form<Reshape>(n)) continue;
    DType& of = out[static_cast<size_t>(node.operands[0])];
    if (g.type(node.operands[0]).dtype == DType::kReal && of == DType::kReal) of = out[static_cast<size_t>(node.first_value)];
  }
  return out;
}

namespace {

/// Whether node n needs its operands in memory, or makes its result there.
bool multiplies(const Node& n) { return std::holds_alternative<MatMul>(n.op) || std::holds_alternative<Call>(n.op); }

/// Per value, whether a product or a call reads it, through views.
std::vector<bool> multiplied(const Graph& g) {
  std::vector<bool> out(static_cast<size_t>(g.num_values()));
  for (NodeId n = g.num_nodes() - 1; n >= 0; n--) {
    const Node& node = g.node(n);
    const bool reads = multiplies(node) || (is_view(node.op) && out[static_cast<size_t>(node.first_value)]);
    for (ValueId v : node.operands) out[static_cast<size_t>(v)] = out[static_cast<size_t>(v)] || reads;
  }
  return out;
}

/// Per value, whether a node reads it that stands behind more products and calls than what makes it: it waits in memory meanwhile.
std::vector<bool> waits(const Graph& g) {
  std::vector<bool> out(static_cast<size_t>(g.num_values()));
  std::vector<int> behind(static_cast<size_t>(g.num_nodes()));   // most of them on one path
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    int& here = behind[static_cast<size_t>(n)];
    for (ValueId v : g.node(n).operands) here = std::max(here, behind[static_cast<size_t>(g.value(v).node)]);
    for (ValueId v : g.node(n).operands)
      out[static_cast<size_t>(v)] = out[static_cast<size_t>(v)] || behind[static_cast<size_t>(g.value(v).node)] < here;
    here += multiplies(g.node(n));
  }
  return out;
}

/// The computed value that v pads with constants, if it has elements of the same type, so that they may be rounded before they are padded;
/// v itself where it does not.
ValueId padded(const Graph& g, ValueId v, const std::vector<DType>& types) {
  const DType t = types[static_cast<size_t>(v)];
  if (!g.def_form<Concat>(v)) return v;
  ValueId x = v;
  for (ValueId o : g.def(v).operands) {
    if (is_constant_of(g, o, t)) continue;
    if (x != v || types[static_cast<size_t>(o)] != t || is_view(g.def(o).op) || g.def_form<Input>(o)) return v;
    x = o;
  }
  return x;
}

/// A body whose inputs have these types, with casts in front of its products' operands that `round` names. Outputs stay exact.
Graph typed_body(const Graph& body, const std::vector<DType>& inputs, const std::vector<DType>& round) {
  Builder b(Level::kBlock, body.launch());
  std::vector<ValueId> to, cast(static_cast<size_t>(body.num_values()), -1);
  rewrite(body, b, to, [&](NodeId n, std::vector<ValueId>& operands) {
    const Node& node = body.node(n);
    if (const auto* in = body.form<Input>(n))
      return b.add_input(in->param, {inputs[static_cast<size_t>(in->param)], body.dims(node.first_value)}, in->part);
    for (size_t k = 0; k < operands.size() && body.form<MatMul>(n); k++) {
      const auto i = static_cast<size_t>(node.operands[k]);
      if (!is16(round[i])) continue;
      if (cast[i] < 0) cast[i] = b.map(cast_to(round[i]), {operands[k]});
      operands[k] = cast[i];
    }
    return kCopy;
  });
  return std::move(b).finish();
}

}  // namespace

std::set<int> KeptValues::meanings_of(const Graph& g, const std::vector<bool>& chosen) const {
  std::set<int> out;
  if (empty()) return out;
  const std::vector<int> numbers = numbers_of(g, {}, {}, [&](const Meaning& m) {
    const int known = table_->find(m);
    const auto* map = std::get_if<Map>(&m.op);
    return known < 0 && map && m.operands.size() == 1 && is16(table_->type(m.operands[0])) &&
                   map->fn == cast_to(table_->type(m.operands[0]))
               ? m.operands[0]
               : known;
  });
  const auto users = g.users();
  for (ValueId v = 0; v < g.num_values(); v++) {
    ValueId at = chosen[static_cast<size_t>(v)] ? v : -1;
    while (at >= 0 && !is16(table_->type(numbers[static_cast<size_t>(at)]))) {   // what a product's epilogue may make of it
      const auto& readers = users[static_cast<size_t>(at)];
      const bool goes_on = readers.size() == 1 && g.form<Map>(readers[0]) && g.dims(g.node(readers[0]).first_value) == g.dims(at);
      at = goes_on ? g.node(readers[0]).first_value : -1;
    }
    if (at >= 0) out.insert(numbers[static_cast<size_t>(at)]);
  }
  return out;
}

std::optional<Graph> KeptValues::rounded(const Graph& g, Where where, std::span<const ValueId> origin, const std::set<int>& also) const {
  if (empty()) return std::nullopt;
  const auto find = [&](const Meaning& m) { return table_->find(m); };
  const std::vector<int> numbers = numbers_of(g, origin, table_->of_reference, find);
  const std::vector<DType> types = types_of(g, numbers);
  const std::vector<bool> read = multiplied(g), waiting = waits(g);
  const auto users = g.users();
  std::vector<bool> keeps(types.size());
  for (ValueId v = g.num_values() - 1; v >= 0; v--) {
    const auto i = static_cast<size_t>(v);
    const Node& node = g.def(v);
    const bool stays = std::any_of(users[i].begin(), users[i].end(), [&](NodeId u) { return !g.form<Output>(u); });
    keeps[i] = keeps[i] || (is16(types[i]) && stays && !is_view(node.op) && !g.def_form<Input>(v) &&
                            (read[i] || (where != Where::kOperands && (multiplies(node) || waiting[i])) ||
                             (where == Where::kShared && users[i].size() > 1) || also.count(numbers[i])));
    const ValueId x = keeps[i] ? padded(g, v, types) : v;
    if (x != v) keeps[i] = false, keeps[static_cast<size_t>(x)] = true;
  }
  Builder b(Level::kKernel);
  bool any = false;
  std::vector<ValueId> to;
  rewrite(g, b, to, [&](NodeId n, const std::vector<ValueId>& operands) {
    const Node& node = g.node(n);
    if (g.form<Input>(n)) return kCopy;
    Op op = node.op;
    if (const auto* call = std::get_if<Call>(&node.op)) {
      std::vector<int> given;
      std::vector<DType> read_as;
      for (size_t i = 0; i < operands.size(); i++)
        given.push_back(numbers[static_cast<size_t>(node.operands[i])]), read_as.push_back(b.graph().type(operands[i]).dtype);
      const Graph& body = *call->body;
      std::vector<DType> round(static_cast<size_t>(body.num_values()), DType::kReal);
      const Untiled untiled(body, std::span<const int>(given), find);
      for (ValueId v = 0; v < body.num_values() && where == Where::kMemoryAndBodies; v++)
        if (!body.def_form<Input>(v) && body.type(v).dtype == DType::kReal && table_->type(untiled.number(v)) == DType::kF16)
          round[static_cast<size_t>(v)] = DType::kF16;
      Graph typed = typed_body(body, read_as, round);
      any = any || typed.num_nodes() != body.num_nodes();
      op = Call{std::make_shared<const Graph>(std::move(typed))};
    }
    const ValueId first = b.add(op, operands);
    for (int i = 0; i < node.num_values; i++) {
      const auto v = static_cast<size_t>(node.first_value + i);
      to[v] = keeps[v] ? b.map(cast_to(types[v]), {first + i}) : first + i;
      any = any || keeps[v];
    }
    return kNoValue;   // entered above
  });
  return any ? std::optional(std::move(b).finish()) : std::nullopt;
}

}  // namespace mirage

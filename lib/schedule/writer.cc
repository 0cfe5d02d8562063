// See the header.
#include "mirage/schedule/writer.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "mirage/ir/walk.h"
#include "mirage/ir/whole.h"
#include "mirage/schedule/words.h"

namespace mirage::schedule {

namespace {

constexpr int kDeepestText = 24;   // of an expression, in text that people read

}  // namespace

Writer::Writer(const std::string& name, const Graph& body, std::vector<Param> params, std::vector<Param> results) {
  p.name = name;
  p.params = std::move(params);
  p.results = std::move(results);
  std::vector<Dims> dims;
  for (const Param& x : p.params) dims.push_back(x.dims);
  Whole all = whole(body, dims);
  if (!all.reason.empty()) throw Undescribed{all.reason};
  p.body = std::move(all.body);
  p.index_of = std::move(all.index_of);
  for (int64_t extent : all.extents) p.indices.push_back({"", extent});
  for (NodeId n : p.body.inputs())   // what is not rounded where it lies is a real number to the graph
    if (const Type& t = p.body.type(p.body.node(n).first_value); t.dtype == DType::kReal)
      p.params[at(p.body.form<Input>(n)->param)].dtype = DType::kReal;
  phase_ = phases(p.body);
  users_ = p.body.users();
}

void Writer::set_body(Graph body, std::vector<std::vector<IndexId>> index_of) {
  p.body = std::move(body);
  p.index_of = std::move(index_of);
  phase_ = phases(p.body);
  users_ = p.body.users();
}

IndexId Writer::find(const std::string& name) const {
  for (size_t i = 0; i < p.indices.size(); i++) if (p.indices[i].name == name) return static_cast<IndexId>(i);
  return -1;
}

IndexId Writer::name(IndexId i, const std::string& name) {
  if (i < 0 || !p.indices[at(i)].name.empty()) return i;
  std::string own = name;
  for (int number = 2; find(own) >= 0; number++) {
    const IndexId j = find(own);
    if (p.indices[at(j)].extent == p.indices[at(i)].extent) {   // cut alike
      for (auto& of : p.index_of) std::replace(of.begin(), of.end(), i, j);
      return j;
    }
    own = fmt::format("{}{}", name, number);
  }
  p.indices[at(i)].name = own;
  return i;
}

void Writer::name_alone(IndexId i, const std::string& name) {
  std::string own = name;
  for (int number = 2; find(own) >= 0; number++) own = fmt::format("{}{}", name, number);
  p.indices[at(i)].name = own;
}

AxisId Writer::axis(const Axis& a) {
  p.axes.push_back(a);
  return static_cast<AxisId>(p.axes.size()) - 1;
}

AxisId Writer::split(IndexId i, int64_t tile, const std::vector<Axis>& over, bool reduced) {
  Split s{i, tile, {}, reduced, false, false};
  const auto begin = static_cast<AxisId>(p.axes.size());
  for (const Axis& a : over) {
    s.over.push_back(static_cast<AxisId>(p.axes.size()));
    p.axes.push_back(a);
  }
  p.splits.push_back(std::move(s));
  return begin;
}

int Writer::section(const Section& s) {
  p.sections.push_back(s);
  return static_cast<int>(p.sections.size()) - 1;
}

int Writer::role(const std::string& name, int warps, int registers) {
  p.roles.push_back({name, warps, registers, {}, false});
  return static_cast<int>(p.roles.size()) - 1;
}

void Writer::assume(const Assumption& a) {
  const auto same = [&](const Assumption& x) { return x.test == a.test && x.index == a.index && x.number == a.number; };
  if (a.index >= 0 && std::none_of(p.assumes.begin(), p.assumes.end(), same)) p.assumes.push_back(a);
}

void Writer::assume_divides(IndexId i, int64_t number) {
  assume({Assumption::Test::kDivides, i, number, i >= 0 && p.indices[at(i)].extent % number == 0});
}

void Writer::assume_at_most(IndexId i, int64_t number) {
  assume({Assumption::Test::kAtMost, i, number, i >= 0 && p.indices[at(i)].extent <= number});
}

std::string Writer::unique(const std::string& name) {
  std::string own = name;
  for (int number = 2; !names_.insert(own).second; number++) own = fmt::format("{}_{}", name, number);
  return own;
}

void Writer::copy(NodeId input, Place place, PathId path, int ahead, int role, bool evict_first, bool multicast, bool before) {
  const ValueId v = p.body.node(input).first_value;
  if (has(v)) return;
  place.value = v;
  place.name = unique(place.name.empty() ? fmt::format("x{}", p.body.form<Input>(input)->param) : place.name);
  Stage s;
  s.kind = Stage::Kind::kCopy;
  s.path = path;
  s.ahead = ahead;
  s.evict_first = evict_first;
  s.multicast = multicast;
  wishes_[v] = {std::move(place), std::move(s), role, before};
  order_.push_back(v);
}

void Writer::compute(ValueId v, Place place, UnitId unit, bool swap, bool before) {
  if (has(v)) return;
  place.value = v;
  place.name = unique(place.name.empty() ? fmt::format("v{}", v) : place.name);
  Stage s;
  s.unit = unit;
  s.swap = swap;
  wishes_[v] = {std::move(place), std::move(s), -1, before};
}

void Writer::convert(ValueId v, Place place) {
  place.value = v;
  place.name = unique(place.name);
  converted_[v].push_back({std::move(place), {}, 0, false});
}

PlaceId Writer::spare_place(Place place) {
  place.name = unique(place.name);
  p.places.push_back(std::move(place));
  return static_cast<PlaceId>(p.places.size()) - 1;
}

void Writer::fold(std::vector<ValueId> values, std::vector<AxisId> over, WayId way, std::vector<PlaceId> through, ValueId behind) {
  Stage s;
  s.kind = Stage::Kind::kFold;
  s.over = std::move(over);
  s.way = way;
  s.through = std::move(through);
  for (PlaceId x : s.through) p.places[at(x)].value = values.back();
  behind = std::max(behind, *std::max_element(values.begin(), values.end()));
  folds_.push_back({std::move(values), std::move(s), behind});
}

void Writer::store_by(int result, WayId way, std::optional<Place> through, bool evict_first) {
  Stage& s = stores_[result];
  s.way = way;
  s.evict_first = evict_first;
  if (through) s.through = {spare_place(std::move(*through))};
}

int Writer::uses(ValueId v) const {
  int n = 0;
  for (NodeId u : users_[at(v)])
    n += p.body.form<Transpose>(u) ? uses(p.body.node(u).first_value)
                                   : static_cast<int>(std::count(p.body.node(u).operands.begin(), p.body.node(u).operands.end(), v));
  return n;
}

void Writer::add_places(int work) {
  std::vector<int> depth(at(p.body.num_values()), 0);
  for (NodeId n = 0; n < p.body.num_nodes(); n++) {
    const Node& node = p.body.node(n);
    const ValueId v = node.first_value;
    if (v < 0 || p.body.form<Const>(n)) continue;
    if (const Input* in = p.body.form<Input>(n)) {
      Place x;
      x.dtype = p.body.type(v).dtype;
      copy(n, x, p.params[at(in->param)].position >= 0 ? PathId::kIndex : PathId::kLd, 0, work);
      continue;
    }
    for (ValueId o : node.operands) depth[at(v)] = std::max(depth[at(v)], 1 + depth[at(o)]);
    const bool is_stored =
        std::any_of(users_[at(v)].begin(), users_[at(v)].end(), [&](NodeId u) { return p.body.form<Output>(u) != nullptr; });
    const bool wanted = is_stored || p.body.form<Accum>(n) || (!p.body.form<Transpose>(n) && uses(v) > 1) || depth[at(v)] >= kDeepestText;
    if (wanted && !has(v)) {
      Place x;
      x.dtype = p.body.type(v).dtype == DType::kBool ? DType::kBool : DType::kF32;
      if (phase_[at(v)] == Phase::kLoop) x.layout = loop_layout;
      compute(v, std::move(x));
    }
    if (has(v)) depth[at(v)] = 0;
  }
}

PlaceId Writer::place_of(ValueId v) const {
  const PlaceId id = wishes_.at(v).stage.to;
  if (id < 0) throw Undescribed{fmt::format("'{}' is read before it is made", wishes_.at(v).place.name)};
  return id;
}

/// Where the product's unit finds x.
PlaceId Writer::operand_of(ValueId product, UnitId unit, ValueId x) const {
  const auto it = converted_.find(x);
  if (unit == UnitId::kNone || it == converted_.end()) return place_of(x);
  DType type = DType::kF32;   // of a TF32 unit; others take that of what is stored
  if (unit != UnitId::kSyncTf32 && unit != UnitId::kWgmmaTf32)
    find_below(p.body, product, [&](ValueId y) {
      if (p.body.def_form<Input>(y) && y != x && is16(wishes_.at(y).place.dtype)) type = wishes_.at(y).place.dtype;
      return y == x || (has(y) && y != product) ? Look::kPast : Look::kInto;
    });
  for (const Wish& w : it->second) if (w.place.dtype == type) return w.stage.to;
  const Place& own = wishes_.at(x).place;
  const bool by_group = unit == UnitId::kWgmma || unit == UnitId::kWgmmaTf32,   // what converts for it lies in shared memory
             is_there = own.dtype == type && (own.section >= 0 || !by_group);
  return is_there ? place_of(x) : it->second.front().stage.to;
}

std::vector<PlaceId> Writer::leaves(ValueId v, UnitId unit) const {
  std::vector<PlaceId> out;
  for (ValueId o : p.body.def(v).operands)
    find_below(p.body, o, [&](ValueId x) {
      if (!has(x)) return Look::kInto;
      const PlaceId id = operand_of(v, unit, x);
      if (std::find(out.begin(), out.end(), id) == out.end()) out.push_back(id);
      return Look::kPast;
    });
  return out;
}

/// Indices that no value has any more, because they are another one's equals; the rest gets names.
void Writer::drop_joined_indices() {
  std::vector<bool> used(p.indices.size(), false);
  for (const auto& of : p.index_of) for (IndexId i : of) if (i >= 0) used[at(i)] = true;
  std::vector<IndexId> to(p.indices.size(), -1);
  std::vector<Index> kept;
  for (size_t i = 0; i < p.indices.size(); i++) {
    if (!used[i]) continue;
    to[i] = static_cast<IndexId>(kept.size());
    kept.push_back(p.indices[i]);
  }
  p.indices = std::move(kept);
  for (auto& of : p.index_of) for (IndexId& i : of) if (i >= 0) i = to[at(i)];
  for (Split& s : p.splits)
    for (IndexId* i : {&s.index, &s.outer, &s.behind}) if (*i >= 0) *i = to[at(*i)];
  for (Beside& x : p.beside) x.index = to[at(x.index)];
  for (Assumption& a : p.assumes) a.index = to[at(a.index)];
  for (size_t i = 0; i < p.indices.size(); i++)
    for (int number = 0; p.indices[i].name.empty(); number++)
      if (const std::string own = fmt::format("d{}", number); find(own) < 0) p.indices[i].name = own;
}

StageId Writer::stage_of(ValueId v) {
  Wish& w = wishes_.at(v);
  if (w.stage.kind == Stage::Kind::kCompute) w.stage.reads = leaves(v, w.stage.unit);
  if (w.instead >= 0) w.place.instead = place_of(w.instead);
  w.stage.to = static_cast<PlaceId>(p.places.size());
  p.places.push_back(w.place);
  p.stages.push_back(w.stage);
  return static_cast<StageId>(p.stages.size()) - 1;
}

void Writer::add_folds(ValueId last, std::vector<StageId>& to) {
  for (Fold& f : folds_) {
    if (f.behind != last) continue;
    for (ValueId v : f.values) f.stage.reads.push_back(place_of(v));
    to.push_back(static_cast<StageId>(p.stages.size()));
    p.stages.push_back(f.stage);
  }
}

void Writer::add_conversion(ValueId v, std::vector<StageId>& to) {
  const auto it = converted_.find(v);
  if (it == converted_.end()) return;
  const Place& own = wishes_.at(v).place;   // rounded, it is made once more instead
  const bool is_rounded = is16(own.dtype) && !p.body.def_form<Input>(v);
  for (Wish& w : it->second) {
    w.stage.reads = is_rounded ? leaves(v, UnitId::kNone) : std::vector<PlaceId>{place_of(v)};
    w.stage.to = static_cast<PlaceId>(p.places.size());
    p.places.push_back(w.place);
    to.push_back(static_cast<StageId>(p.stages.size()));
    p.stages.push_back(w.stage);
  }
}

/// Copies that this is the first to read.
void Writer::add_late_copies(ValueId reader, std::vector<StageId>& to) {
  find_below(p.body, reader, [&](ValueId x) {
    if (x == reader && !p.body.def_form<Input>(x)) return Look::kInto;
    if (!has(x)) return Look::kInto;
    const Wish& w = wishes_.at(x);
    if (w.late && w.stage.to < 0) to.push_back(stage_of(x));
    return Look::kPast;
  });
}

void Writer::add_copy(ValueId v, Order& to, int work) {
  const Wish w = wishes_.at(v);
  if (w.stage.to >= 0 || w.late) return;
  auto& of = phase_[at(v)] == Phase::kLoop && !w.before ? to.inside : to.before;
  of[at(w.role)].push_back(stage_of(v));
  add_conversion(v, of[at(work)]);
}

void Writer::add_computed(ValueId v, Order& to, int work) {
  if (wishes_.at(v).stage.to >= 0) return;
  for (ValueId x : late) if (x != v && depends_on(p.body, v, x)) add_computed(x, to, work);
  const bool is_sum = p.body.def_form<Accum>(v), is_loop = phase_[at(v)] == Phase::kLoop || is_sum,
             is_after = !is_loop && is_behind_loop(v);
  auto& of = is_after ? to.after : is_loop && !wishes_.at(v).before ? to.inside : to.before;
  const auto role = at(wishes_.at(v).role < 0 ? work : wishes_.at(v).role);
  if (is_after) add_late_copies(v, of[role]);
  of[role].push_back(stage_of(v));
  add_folds(v, (is_loop && !in_loop_.count(v) ? to.after : of)[at(work)]);
  add_conversion(v, is_sum ? to.after[at(work)] : of[role]);
}

std::set<ValueId> Writer::places_below(ValueId v) const {
  std::set<ValueId> out;
  find_below(p.body, v, [&](ValueId x) {
    if (has(x)) out.insert(x);
    return Look::kInto;
  });
  return out;
}

/// Because of what it is a function of, or because that is copied as late.
bool Writer::is_behind_loop(ValueId v) const {
  if (phase_[at(v)] != Phase::kInvariant) return phase_[at(v)] == Phase::kAfter;
  const std::set<ValueId> below = places_below(v);
  return std::any_of(below.begin(), below.end(), [&](ValueId x) { return wishes_.at(x).late; });
}

void Writer::add_first(Order& to, int work) {
  for (ValueId v : first)
    for (ValueId x : places_below(v))
      if (p.body.def_form<Input>(x)) add_copy(x, to, work);
      else add_computed(x, to, work);
}

KernelProgram Writer::finish(const std::vector<AxisId>& loops, int work) {
  drop_joined_indices();
  for (const auto& [v, wish] : wishes_) asked_.insert(v);
  add_places(work);
  const std::vector<std::vector<StageId>> none(p.roles.size());
  Order to{none, none, none};
  for (ValueId v : first)   // what nobody has asked for is made by those who read it
    for (ValueId x : places_below(v)) if (asked_.count(x) == 0) wishes_.at(x).role = wishes_.at(v).role;
  for (ValueId v : order_) if (std::find(first.begin(), first.end(), v) == first.end()) add_copy(v, to, work);
  add_first(to, work);
  for (const bool is_behind : {false, true})   // what is behind the loop comes behind all that is in it
    for (NodeId n = 0; n < p.body.num_nodes(); n++) {
      const ValueId v = p.body.node(n).first_value;
      if (v < 0 || p.body.form<Input>(n) || !has(v) || std::find(late.begin(), late.end(), v) != late.end()) continue;
      if ((is_behind_loop(v) && !p.body.form<Accum>(n)) == is_behind) add_computed(v, to, work);
    }
  for (NodeId n : p.body.outputs()) {
    const int result = p.body.form<Output>(n)->result;
    Stage s;
    s.way = WayId::kDirect;
    if (const auto by = stores_.find(result); by != stores_.end()) s = by->second;
    s.kind = Stage::Kind::kStore;
    s.result = result;
    add_late_copies(p.body.node(n).operands[0], to.after[at(work)]);
    s.reads = {place_of(p.body.node(n).operands[0])};
    for (PlaceId x : s.through) p.places[at(x)].value = p.body.node(n).operands[0];
    to.after[at(work)].push_back(static_cast<StageId>(p.stages.size()));
    p.stages.push_back(s);
  }
  for (size_t r = 0; r < p.roles.size(); r++) {
    for (StageId s : to.before[r]) p.roles[r].items.push_back({s, 0, {}});
    if (loops[r] >= 0 && !to.inside[r].empty()) p.roles[r].items.push_back({-1, loops[r], to.inside[r]});
    else for (StageId s : to.inside[r]) p.roles[r].items.push_back({s, 0, {}});
    for (StageId s : to.after[r]) p.roles[r].items.push_back({s, 0, {}});
  }
  return std::move(p);
}

}  // namespace mirage::schedule

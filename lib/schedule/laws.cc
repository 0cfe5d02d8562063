// The laws of programs (docs/schedule.md), numbered; messages and tests cite the numbers.
//   P1  it erases to a muGraph that obeys the laws of graphs   P2  axes cut an index without gap or empty part
//   P3  partial results meet exactly once, before anything that is not linear reads them
//   P4  matrix units get operands that they take               P5  a slot is refilled when its readers are through
//   P6  what lies over something comes after it                P7  memory, threads and registers fit
//   P8  what does not exist adds nothing to a product          P9  blocks that wait for blocks are resident
//   P10 what was rounded for a unit is read by units           P11 the assumptions hold
//   P12 warps that meet in a loop run it equally often         P13 what is deferred follows a running maximum
#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>

#include "mirage/ir/range.h"
#include "mirage/ir/walk.h"
#include "mirage/schedule/program.h"
#include "mirage/support/round.h"
#include "mirage/schedule/words.h"

namespace mirage::schedule {
namespace {

struct Broken { std::string text; };   // thrown within this file

class Laws {
 public:
  Laws(const KernelProgram& p, const Target& t) : p_(p), target_(t), open_(p.places.size()) {}

  void check() {
    sizes();
    staying();
    alternatives();
    partial_results();
    each_stage([&](int role, StageId s, AxisId loop) {
      if (const int team = p_.stages[at(s)].team; team > 32 * p_.roles[at(role)].warps)
        throw Broken{fmt::format("P7: a team of {} threads in a role of {}", team, 32 * p_.roles[at(role)].warps)};
      stage(s, loop);
    });
    overlays();
    resources();
    if (const Erased e = erase(p_); !e.graph) throw Broken{"P1: " + e.reason};
    for (size_t i = 0; i < p_.beside.size(); i++) {
      const KernelProgram other = alone(p_, p_.beside[i]);
      Laws(other, target_).sizes();
      if (const Erased e = erase(other); !e.graph) throw Broken{fmt::format("P1: beside, {}: {}", i + 1, e.reason)};
    }
  }

 private:
  using Axes = std::set<AxisId>;
  static constexpr AxisId kNoLoop = -3, kParts = -4;   // kParts: chunks that are parts of one element of an outer index

  const Place& place(PlaceId x) const { return p_.places[at(x)]; }
  template <class F> void each_stage(F&& f) const {   // f(role, stage, loop axis or kNoLoop), in the order of execution
    for (size_t r = 0; r < p_.roles.size(); r++)
      for (const Item& i : p_.roles[r].items) {
        if (i.stage >= 0) f(static_cast<int>(r), i.stage, kNoLoop);
        for (StageId s : i.body) f(static_cast<int>(r), s, i.loop);
      }
  }
  std::string name(AxisId a) const { return a == kParts ? "chunks of one element" : axis_name(p_, a); }

  // ---- P2, P11
  bool is_joined(const Split& s) const {
    return s.outer >= 0 ||
           std::any_of(p_.splits.begin(), p_.splits.end(), [&](const Split& x) { return x.behind >= 0 && x.behind == s.index; });
  }
  /// Tiles that go through two indices, one inside the other or one behind the other.
  void joined(const Split& s) const {
    const auto extent = [&](IndexId i) { return p_.indices[at(i)].extent; };
    const auto name = [&](IndexId i) { return p_.indices[at(i)].name; };
    if (s.outer >= 0) {
      if (!s.reduced || s.behind >= 0 || p_.indices[at(s.index)].first || p_.indices[at(s.outer)].first)
        throw Broken{fmt::format("P2: tiles through {} and {} are of a whole reduction", name(s.outer), name(s.index))};
      if (s.tile % extent(s.index) && extent(s.index) % s.tile)
        throw Broken{fmt::format("P2: tiles of {} end within an element of {}", s.tile, name(s.outer))};
    }
    if (s.behind < 0) return;
    const Split* to = p_.split_of(s.behind);
    if (!to || to == &s || !s.reduced || !to->reduced || to->outer >= 0 || to->behind >= 0 || !s.over.empty() || s.tile != to->tile)
      throw Broken{fmt::format("P2: tiles of {} follow those of a reduction that is cut into the same", name(s.index))};
    for (IndexId i : {s.index, s.behind})
      if (extent(i) % s.tile || p_.indices[at(i)].first)
        throw Broken{fmt::format("P2: a tile that begins in {} ends in {}", name(s.behind), name(s.index))};
  }
  void sizes() const {
    for (const Split& s : p_.splits) joined(s);
    for (const Split& s : p_.splits) {
      const Index& index = p_.indices[at(s.index)];
      if (s.behind >= 0) continue;   // on the other's axes
      // A part's last tile may be short, not missing. Warps alone share what copies of all of the index have brought.
      const bool is_copied = std::all_of(s.over.begin(), s.over.end(), [&](AxisId a) { return p_.axes[at(a)].kind == AxisKind::kWarp; });
      const int64_t extent = (index.first && !is_copied) || is_joined(s) ? p_.chunks(s) * s.tile : index.extent;
      const std::string& of = p_.indices[at(s.index)].name;
      double all = static_cast<double>(s.tile), unit = all;   // what the axes so far cover; what one part of the last of them has
      for (size_t i = s.over.size(); i-- > 0;) {
        const Axis& a = p_.axes[at(s.over[i])];
        unit = a.each ? static_cast<double>(a.each * s.tile) : all;
        if (unit > all) throw Broken{fmt::format("P2: parts of {} along {} have a gap between them", of, a.name)};
        all = unit * static_cast<double>(a.extent);
      }
      if (all > 0x1p40) throw Broken{fmt::format("P2: axes for {:.0f} elements of {}", all, of)};
      if (all < static_cast<double>(extent)) throw Broken{fmt::format("P2: the tiles of {} cover {:.0f} of {} elements", of, all, extent)};
      if (!s.over.empty() && all - unit >= static_cast<double>(extent))
        throw Broken{fmt::format("P2: the last part of {} along {} is empty", of, name(s.over[0]))};
      if (!s.reduced && std::any_of(s.over.begin(), s.over.end(), [&](AxisId a) { return p_.axes[at(a)].kind == AxisKind::kLoop; }))
        throw Broken{fmt::format("P2: a loop over {}, which is not reduced", of)};
    }
    for (const Role& r : p_.roles)
      for (const Item& i : r.items)
        if (i.stage < 0 && (p_.axes[at(i.loop)].kind != AxisKind::kLoop || !p_.split_of_axis(i.loop)))
          throw Broken{fmt::format("P2: a loop over {}, which is no axis of iterations", name(i.loop))};
    for (const Assumption& a : p_.assumes) {
      const int64_t extent = p_.indices[at(a.index)].extent;
      const bool holds = a.test == Assumption::Test::kDivides ? extent % a.number == 0 : extent <= a.number;
      if (holds != a.answer) throw Broken{fmt::format("P11: {} is {}", p_.indices[at(a.index)].name, extent)};
    }
  }

  // ---- P3, P6: iterations that have a tile of one index or of the one behind it
  /// Indices behind others that v is made of, and others that are reduced.
  std::set<IndexId> reduced_by(ValueId v) const {
    std::set<IndexId> out;
    find_below(p_.body, v, [&](ValueId x) {
      if (std::holds_alternative<Input>(p_.body.def(x).op))
        for (IndexId i : p_.index_of[at(x)])
          if (const Split* s = i < 0 ? nullptr : p_.split_of(i); s && s->reduced) out.insert(s->index);
      return Look::kInto;
    });
    return out;
  }
  /// What is accumulated of both is a sum of what is made of one: the other does not exist in that iteration, and adds nothing.
  void terms_apart(ValueId v, const std::string& of) const {
    const bool mixes = find_below(p_.body, v, [&](ValueId x) {
      const auto* m = std::get_if<Map>(&p_.body.def(x).op);
      if (m && m->fn == MapFn::kAdd) return Look::kInto;
      return reduced_by(x).size() > 1 ? Look::kFound : Look::kPast;
    });
    if (mixes) throw Broken{fmt::format("P3: {} adds up what is made of two reductions in one iteration, which has one of them", of)};
  }
  void alternatives() const {
    const bool any = std::any_of(p_.splits.begin(), p_.splits.end(), [](const Split& s) { return s.behind >= 0; });
    for (const Place& x : p_.places) {
      if (x.instead < 0) continue;
      const Place& y = place(x.instead);
      const std::set<IndexId> a = reduced_by(x.value), b = reduced_by(y.value);
      const auto follows = [&](const std::set<IndexId>& s, const std::set<IndexId>& t) {
        return s.size() == 1 && t.size() == 1 && p_.split_of(*s.begin())->behind == *t.begin();
      };
      if (y.instead >= 0 || (!follows(a, b) && !follows(b, a)))
        throw Broken{fmt::format("P6: {} lies where {} is, and an iteration has both", x.name, y.name)};
      if (x.section != y.section || x.step != y.step || x.bytes() > y.bytes() || x.layout != y.layout)
        throw Broken{fmt::format("P6: {} does not lie where {} is", x.name, y.name)};
    }
    if (!any) return;
    for (const Stage& s : p_.stages) {
      if (s.kind != Stage::Kind::kCompute) continue;
      const Node& n = p_.body.def(place(s.to).value);
      if (std::holds_alternative<Accum>(n.op)) terms_apart(n.operands[0], place(s.to).name);
    }
  }

  /// P2, P5, P9: blocks that stay do tile after tile, and what is in shared memory is that of one tile until all have read it. Copies wait
  /// for that where others read them, and results until they have left.
  void staying() const {
    if (p_.stay == 0) return;
    if (p_.stay > p_.blocks()) throw Broken{fmt::format("P2: {} blocks stay, and the grid has {}", p_.stay, p_.blocks())};
    if (const int64_t n = p_.parts(AxisKind::kCluster); p_.stay % n)
      throw Broken{fmt::format("P2: {} blocks that stay are no clusters of {}", p_.stay, n)};
    if (p_.cooperative) throw Broken{"P9: blocks that stay and wait for each other"};
    if (!p_.beside.empty()) throw Broken{"P2: blocks that stay have one grid"};
    std::set<int> rings;   // sections that copies fill chunk by chunk, ahead of the tile that is worked on
    each_stage([&](int, StageId id, AxisId loop) {
      const Stage& s = p_.stages[at(id)];
      if (loop != kNoLoop && s.kind == Stage::Kind::kCopy) rings.insert(place(s.to).section);
    });
    each_stage([&](int role, StageId id, AxisId loop) {
      const Stage& s = p_.stages[at(id)];
      for (PlaceId x : s.through)
        if (place(x).section >= 0 && rings.count(place(x).section))
          throw Broken{fmt::format("P6: {} lies in {}, which copies of the next tile fill", place(x).name,
                                   p_.sections[at(place(x).section)].name)};
      const auto again = [&](PlaceId x, const char* why) {
        throw Broken{fmt::format("P5: {} is made again in the next tile of a block that stays, and {}", place(x).name, why)};
      };
      if (s.kind == Stage::Kind::kFold && !s.through.empty()) again(s.through[0], "nobody waits for those that read it");
      if (s.to < 0 || place(s.to).section < 0) return;
      const bool is_tracked = s.kind == Stage::Kind::kCopy && path_info(s.path).tracked;
      if (!is_tracked) again(s.to, "nobody waits for those that read it");
      each_stage([&](int other, StageId reader, AxisId) {
        const auto& reads = p_.stages[at(reader)].reads;
        if (loop == kNoLoop && other == role && std::find(reads.begin(), reads.end(), s.to) != reads.end())
          again(s.to, "those that read it bring it themselves");
      });
    });
  }

  // ---- P3: which axes a value is open in, those whose parts each have a part of the sum
  /// Axes that parts of every reduced index are spread over.
  Axes spread() const {
    Axes out;
    for (const Split& s : p_.splits) if (s.reduced) for (AxisId a : s.over) if (p_.axes[at(a)].kind != AxisKind::kLoop) out.insert(a);
    return out;
  }
  [[noreturn]] void not_linear(ValueId v, const Axes& open) const {
    throw Broken{fmt::format("P3: {} of a partial result, which is open in {}", form_name(p_.body.def(v).op), name(*open.begin()))};
  }
  /// The index over which a product or a reduction sums; -1: none.
  IndexId summed(const Node& n) const {
    if (std::holds_alternative<MatMul>(n.op)) return p_.index_of[at(n.operands[0])].back();
    const auto* r = std::get_if<Reduce>(&n.op);
    return r ? p_.index_of[at(n.operands[0])][at(r->dim)] : -1;
  }
  PlaceId leaf(ValueId v, const Stage& s) const {
    for (PlaceId r : s.reads) if (place(r).value == v) return r;
    return -1;
  }
  /// Whether what reads a place finds it in shared memory, where warps put their parts, too.
  bool is_shared(PlaceId x) const {
    return place(x).section >= 0 || std::any_of(p_.stages.begin(), p_.stages.end(), [&](const Stage& s) {
      return s.kind == Stage::Kind::kFold && std::find(s.reads.begin(), s.reads.end(), x) != s.reads.end() &&
             std::any_of(s.through.begin(), s.through.end(), [&](PlaceId t) {
               return place(t).section >= 0 && p_.sections[at(place(t).section)].reused;
             });
    });
  }
  /// Whether lanes have different parts of index i in a place that v is made of.
  bool in_lanes(ValueId v, IndexId i, const Stage& s) const {
    return find_below(p_.body, v, [&](ValueId x) {
      const PlaceId l = leaf(x, s);
      const auto& of = p_.index_of[at(x)];
      // A unit's lanes have what they multiply along i between them only where i is a side of the product.
      if (l < 0 && std::holds_alternative<MatMul>(p_.body.def(x).op))
        return std::find(of.end() - 2, of.end(), i) != of.end() ? Look::kInto : Look::kPast;
      if (l < 0) return Look::kInto;
      const bool alone = place(s.to).section >= 0 || place(s.to).layout == LayoutId::kLine;   // lanes that have a result each
      const bool apart = is_shared(l) ? !alone : layout_info(place(l).layout).open;
      return apart && std::find(of.begin(), of.end(), i) != of.end() ? Look::kFound : Look::kPast;
    });
  }
  Axes open_in(ValueId v, const Stage& s, std::map<ValueId, Axes>& known) const {
    if (const PlaceId l = leaf(v, s); l >= 0 && l != s.to) return open_[at(l)];
    if (const auto it = known.find(v); it != known.end()) return it->second;
    const Node& n = p_.body.def(v);
    std::vector<Axes> of;
    for (ValueId o : n.operands) of.push_back(open_in(o, s, known));
    return known[v] = combine(v, n, of, s);
  }
  Axes combine(ValueId v, const Node& n, const std::vector<Axes>& of, const Stage& s) const {
    Axes all;
    int open = 0;
    for (const Axes& a : of) all.insert(a.begin(), a.end()), open += !a.empty();
    if (std::holds_alternative<Accum>(n.op)) {
      all = of[0];
      all.erase(kParts);
      const Axes more = spread();
      all.insert(more.begin(), more.end());
      return all;
    }
    const IndexId i = summed(n);
    if (const Split* x = i < 0 ? nullptr : p_.split_of(i)) {
      if (!x->reduced) {
        for (AxisId a : x->over) all.insert(a);
      } else if (x->outer >= 0 && x->index == i && x->tile < p_.indices[at(i)].extent) {
        all.insert(kParts);
      }
    }
    if (const auto* r = std::get_if<Reduce>(&n.op); r && in_lanes(n.operands[0], p_.index_of[at(n.operands[0])][at(r->dim)], s))
      all.insert(kLanes);
    if (open == 0 || std::holds_alternative<Reduce>(n.op) || std::holds_alternative<Transpose>(n.op)) return all;
    if (std::holds_alternative<MatMul>(n.op) && open == 1) return all;
    const auto* m = std::get_if<Map>(&n.op);
    if (!m) not_linear(v, all);
    const bool same = std::all_of(of.begin(), of.end(), [&](const Axes& a) { return a == of[0]; });
    switch (m->fn) {
      case MapFn::kNeg: return all;
      case MapFn::kAdd: case MapFn::kSub: if (same) return all; break;
      case MapFn::kMul: if (open == 1) return all; break;
      case MapFn::kDiv: if (of[1].empty()) return all; break;
      default: break;
    }
    not_linear(v, all);
  }
  void partial_results() {
    std::map<PlaceId, AxisId> accumulates;   // in which loop
    each_stage([&](int, StageId id, AxisId loop) {
      const Stage& s = p_.stages[at(id)];
      for (PlaceId r : s.reads)
        if (const auto it = accumulates.find(r); loop != kNoLoop && it != accumulates.end() && it->second == loop)
          throw Broken{fmt::format("P3: {} is read in the loop that adds it up", place(r).name)};
      if (s.kind == Stage::Kind::kCompute && loop != kNoLoop && std::holds_alternative<Accum>(p_.body.def(place(s.to).value).op))
        accumulates[s.to] = loop;
      std::map<ValueId, Axes> known;
      if (s.kind == Stage::Kind::kCompute) {
        open_[at(s.to)] = open_in(place(s.to).value, s, known);
        if (s.warps[2] > 1) open_[at(s.to)].insert(kWarps);
      }
      if (s.kind == Stage::Kind::kFold) fold(s);
      if (s.kind == Stage::Kind::kStore && !open_[at(s.reads[0])].empty())
        throw Broken{fmt::format("P3: {} is stored while it is open in {}", place(s.reads[0]).name, name(*open_[at(s.reads[0])].begin()))};
    });
  }
  void fold(const Stage& s) {
    const WayInfo& way = way_info(s.way);
    for (AxisId a : s.over) {
      const AxisKind kind = a == kLanes ? AxisKind::kLoop : a == kWarps ? AxisKind::kWarp : p_.axes[at(a)].kind;
      const bool can = a == kLanes                  ? way.lanes
                       : kind == AxisKind::kGrid    ? way.grid
                       : kind == AxisKind::kCluster ? way.cluster
                                                    : kind != AxisKind::kLoop && way.block;
      if (!can) throw Broken{fmt::format("P3: {} do not meet by {}", name(a), way.name)};
      for (PlaceId r : s.reads)
        if (!open_[at(r)].erase(a) && !is_state(r))
          throw Broken{fmt::format("P3: {} is folded over {}, in which it is not open", place(r).name, name(a))};
    }
    for (PlaceId r : s.reads) {
      const Accum* a = std::get_if<Accum>(&p_.body.def(place(r).value).op);
      if (!a || a->degree == 0 || std::all_of(s.over.begin(), s.over.end(), [](AxisId x) { return x < 0; })) continue;
      const ValueId state = p_.body.def(place(r).value).operands[1];
      if (std::none_of(s.reads.begin(), s.reads.end(), [&](PlaceId x) { return place(x).value == state; }))
        throw Broken{fmt::format("P3: {} meets without the maximum that it is relative to", place(r).name)};
    }
  }
  /// A running maximum: every part has its own, to which its sums are relative.
  bool is_state(PlaceId x) const { return std::holds_alternative<Running>(p_.body.def(place(x).value).op); }

  // ---- P4, P5, P8, P10, P12
  void stage(StageId id, AxisId loop) const {
    const Stage& s = p_.stages[at(id)];
    if (s.kind == Stage::Kind::kCompute) compute(s);
    if (s.kind == Stage::Kind::kCopy) copy(s, loop);
    if (s.kind == Stage::Kind::kStore) store(s);
    if (s.kind != Stage::Kind::kFold || loop == kNoLoop || !(way_info(s.way).block)) return;
    for (const Split& x : p_.splits)
      if (x.reduced && is_shared_in_block(x) && p_.chunks(x) % workers(x))
        throw Broken{fmt::format("P12: {} meet in a loop that not all run equally often", name(s.over[0]))};
  }
  bool is_shared_in_block(const Split& s) const {
    return std::any_of(s.over.begin(), s.over.end(), [&](AxisId a) {
      return p_.axes[at(a)].extent > 1 && (p_.axes[at(a)].kind == AxisKind::kWarp || p_.axes[at(a)].kind == AxisKind::kGroup);
    });
  }
  int64_t workers(const Split& s) const {
    int64_t n = 1;
    for (AxisId a : s.over) if (p_.axes[at(a)].kind != AxisKind::kLoop) n *= p_.axes[at(a)].extent;
    return n;
  }
  void compute(const Stage& s) const {
    std::vector<ValueId> products;
    const ValueId root = place(s.to).value;
    find_below(p_.body, root, [&](ValueId v) {
      if (const PlaceId l = leaf(v, s); l >= 0 && l != s.to) return Look::kPast;
      if (std::holds_alternative<MatMul>(p_.body.def(v).op)) products.push_back(v);
      return Look::kInto;
    });
    if (products.empty() != (s.unit == UnitId::kNone))
      throw Broken{
          fmt::format("P4: {} {}", place(s.to).name, products.empty() ? "has a unit and no product" : "is a product without a unit")};
    for (ValueId v : products) product(v, s);
    if (place(s.to).deferred) deferred(s);
    for (PlaceId r : s.reads)
      if (s.unit == UnitId::kNone && is16(place(r).dtype) && !is16(p_.body.type(place(r).value).dtype) &&
          place(s.to).value != place(r).value && !is16(place(s.to).dtype))
        throw Broken{fmt::format("P10: {} was rounded for a unit, and {} is computed from it", place(r).name, place(s.to).name)};
  }
  // ---- P13
  using Users = std::vector<std::vector<NodeId>>;
  bool is_running(ValueId v) const { return std::holds_alternative<Running>(p_.body.def(v).op); }
  /// Whether a stage that reads v is linear in it, as masks are that leave it or -inf.
  bool is_linear_in(const Node& n, ValueId v) const {
    const auto* m = std::get_if<Map>(&n.op);
    if (!m || (m->fn != MapFn::kMul && m->fn != MapFn::kDiv && m->fn != MapFn::kWhere)) return false;
    const size_t own = m->fn == MapFn::kWhere ? 2 : m->fn == MapFn::kMul && n.operands[1] == v ? 1 : 0;
    for (size_t i = 0; i < n.operands.size(); i++)
      if ((n.operands[i] == v) != (i == own) || (i != own && depends_on(p_.body, n.operands[i], v))) return false;
    const auto* c = std::get_if<Const>(&p_.body.def(n.operands[1]).op);
    return m->fn != MapFn::kWhere || (c && c->value == -std::numeric_limits<double>::infinity());
  }
  /// Nothing but that and a running maximum reads what lacks a factor, until differences from that maximum are taken.
  bool is_only_compared(ValueId v, const Users& users, std::set<ValueId>& seen) const {
    if (!seen.insert(v).second) return true;
    for (NodeId n : users[at(v)]) {
      const Node& user = p_.body.node(n);
      const auto* m = std::get_if<Map>(&user.op);
      const auto* r = std::get_if<Reduce>(&user.op);
      if (m && m->fn == MapFn::kSub && user.operands[0] == v && is_running(user.operands[1])) continue;
      const auto& after = users[at(std::max(user.first_value, 0))];
      if (r && r->fn == ReduceFn::kMax &&
          std::all_of(after.begin(), after.end(), [&](NodeId u) { return is_running(p_.body.node(u).first_value); })) continue;
      if (!is_linear_in(user, v) || !is_only_compared(user.first_value, users, seen)) return false;
    }
    return true;
  }
  /// The factor: above zero, or the maximum would be another one, and the same for all that the maximum is taken of.
  bool follows_a_maximum(const Node& n, size_t factor, const Ranges& ranges) const {
    const Range range = ranges.of(n.operands[factor]);
    const auto& of = p_.index_of[at(n.operands[factor])];
    return (std::get<Map>(n.op).fn == MapFn::kDiv ? range.low >= 0 : range.positive) &&
           std::none_of(of.begin(), of.end(), [&](IndexId i) { return i >= 0 && p_.split_of(i) && p_.split_of(i)->reduced; });
  }
  void deferred(const Stage& s) const {
    const ValueId v = place(s.to).value;
    const Node& n = p_.body.def(v);
    const auto* m = std::get_if<Map>(&n.op);
    std::vector<double> most;
    for (const Param& x : p_.params) most.push_back(largest(x.dtype));
    const Ranges ranges(p_.body, std::move(most));
    const bool follows = m && ((m->fn == MapFn::kMul && (follows_a_maximum(n, 1, ranges) || follows_a_maximum(n, 0, ranges))) ||
                               (m->fn == MapFn::kDiv && follows_a_maximum(n, 1, ranges)));
    if (!follows) throw Broken{fmt::format("P13: {} has no factor that can follow a maximum", place(s.to).name)};
    std::set<ValueId> seen;
    if (!is_only_compared(v, p_.body.users(), seen))
      throw Broken{fmt::format("P13: {} lacks its factor where more than a maximum is taken of it", place(s.to).name)};
  }
  void product(ValueId v, const Stage& s) const {
    const UnitInfo& unit = unit_info(s.unit);
    bool copied = false;
    const std::string types = std::string(" ") + unit.dtypes + " ";
    for (ValueId o : p_.body.def(v).operands) {
      while (leaf(o, s) < 0 && std::holds_alternative<Transpose>(p_.body.def(o).op)) o = p_.body.def(o).operands[0];
      const PlaceId l = leaf(o, s);
      if (l < 0) continue;
      copied |= std::holds_alternative<Input>(p_.body.def(o).op);
      if (*unit.dtypes && types.find(std::string(" ") + dtype_name(place(l).dtype) + " ") == std::string::npos)
        throw Broken{fmt::format("P4: {} takes no {} ({})", unit.name, dtype_name(place(l).dtype), place(l).name)};
    }
    const ValueId a = p_.body.def(v).operands[0];
    const Split* split = p_.split_of(p_.index_of[at(a)].back());
    if (!split) return;
    const int64_t tile = p_.tile_of(split->index);
    if (tile % unit.reduced && !is_padded(v, s))
      throw Broken{fmt::format("P4: {} takes {} elements of {} at a time, a tile has {}", unit.name, unit.reduced,
                               p_.indices[at(split->index)].name, tile)};
    if (p_.indices[at(split->index)].has_short_tile(tile) && !copied)
      throw Broken{fmt::format("P8: both operands of {} are computed where the last tile of {} has no elements", place(s.to).name,
                               p_.indices[at(split->index)].name)};
  }
  /// Whether both operands of a product lie in shared memory with more elements than their tiles have.
  bool is_padded(ValueId v, const Stage& s) const {
    return std::all_of(p_.body.def(v).operands.begin(), p_.body.def(v).operands.end(), [&](ValueId o) {
      while (leaf(o, s) < 0 && std::holds_alternative<Transpose>(p_.body.def(o).op)) o = p_.body.def(o).operands[0];
      const PlaceId l = leaf(o, s);
      if (l < 0 || place(l).section < 0) return false;
      int64_t elements = 1;
      for (IndexId i : p_.index_of[at(o)])
        if (i >= 0) elements *= p_.tile_of(i);
      return place(l).elements() > elements;
    });
  }
  void store(const Stage& s) const {
    const std::string& of = place(s.reads[0]).name;
    if (s.way == WayId::kTma && s.through.size() != 1) throw Broken{fmt::format("P4: {} leaves by tma from no place", of)};
    for (PlaceId x : s.through) {
      const Place& y = place(x);
      if (y.section < 0 || y.box.empty()) throw Broken{fmt::format("P4: {} is gathered in {}, not in shared memory", of, y.name)};
      if (s.way == WayId::kTma && y.dtype != p_.results[at(s.result)].dtype)
        throw Broken{fmt::format("P4: tma stores {} as it lies in {}, which is {}", of, y.name, dtype_name(y.dtype))};
    }
  }
  void copy(const Stage& s, AxisId loop) const {
    const Place& to = place(s.to);
    if (to.box.empty() && to.section >= 0 && s.path != PathId::kSame) throw Broken{fmt::format("P7: {} has no size", to.name)};
    if (s.path == PathId::kSame || s.path == PathId::kIndex) return;
    if (path_info(s.path).tracked && to.section < 0)
      throw Broken{fmt::format("P4: {} come to shared memory, not to registers ({})", path_info(s.path).name, to.name)};
    if (to.section < 0 || loop == kNoLoop) return;
    const Section& x = p_.sections[at(to.section)];
    int steps = 1;
    for (const Place& y : p_.places) if (y.section == to.section) steps = std::max(steps, y.step + 1);
    if (s.ahead > x.slots)
      throw Broken{fmt::format("P5: {} is asked for {} uses ahead, and there are {} slots", to.name, s.ahead, x.slots)};
    const Split* split = p_.split_of_axis(loop);
    int64_t uses = p_.rounds() * p_.axes[at(loop)].extent * steps;
    for (AxisId a : split->over)
      if (x.owners == 1 && (p_.axes[at(a)].kind == AxisKind::kGroup || p_.axes[at(a)].kind == AxisKind::kWarp))
        uses *= p_.axes[at(a)].extent;
    if (uses <= x.slots) return;
    if (s.ahead == 0 && path_info(s.path).tracked) throw Broken{fmt::format("P5: nobody refills {}", to.name)};
    if (p_.throughput && x.slots < 2)
      throw Broken{fmt::format("P5: products of {} run on while those of the next iteration need its slot", to.name)};
    const auto at_loop = std::find(split->over.begin(), split->over.end(), loop);
    for (auto a = at_loop + 1; a != split->over.end(); a++)   // chunks that workers take in turn from slots that all share
      if (x.owners == 1 && (p_.axes[at(*a)].kind == AxisKind::kGroup || p_.axes[at(*a)].kind == AxisKind::kWarp) &&
          x.slots % p_.axes[at(*a)].extent)
        throw Broken{fmt::format("P5: a slot of {} changes between workers, who have not seen all phases of its barrier", x.name)};
  }

  // ---- P6, P7, P9
  void overlays() const {
    std::map<int, int> last;   // per section, when a stage last reads what its slots hold; stages are counted as they run
    int now = 0;
    each_stage([&](int, StageId id, AxisId) {
      now++;
      for (PlaceId r : p_.stages[at(id)].reads)
        if (place(r).section >= 0 && !place(r).over) last[place(r).section] = now;
    });
    now = 0;
    each_stage([&](int, StageId id, AxisId) {
      now++;
      const Stage& s = p_.stages[at(id)];
      std::vector<PlaceId> makes = s.through;
      if (s.to >= 0) makes.push_back(s.to);
      for (PlaceId x : makes) {
        const auto read = place(x).over ? last.find(place(x).section) : last.end();
        if (read == last.end() || now >= read->second) continue;
        throw Broken{fmt::format("P6: {} lies over {}, which is still read", place(x).name, p_.sections[at(place(x).section)].name)};
      }
    });
  }
  void resources() const {
    const Derived d = derive(p_);
    if (d.smem_bytes > target_.smem_per_block || p_.per_sm * (d.smem_bytes + (p_.per_sm > 1 ? 1024 : 0)) > target_.smem_per_sm)
      throw Broken{fmt::format("P7: {} bytes of shared memory", d.smem_bytes)};
    if (d.threads > 1024 || d.threads == 0) throw Broken{fmt::format("P7: {} threads", d.threads)};
    int64_t registers = 0;
    for (size_t r = 0; r < p_.roles.size(); r++) {
      const int own = p_.roles[r].registers ? p_.roles[r].registers : d.launch_registers;
      registers += int64_t{32} * p_.roles[r].warps * own;
      if (d.live[r] > own)
        throw Broken{fmt::format("P7: values of {} registers are alive in role {}, which has {}", d.live[r], p_.roles[r].name, own)};
    }
    if (registers * p_.per_sm > 65536) throw Broken{fmt::format("P7: {} registers", registers)};
    if (!d.barriers.empty() && std::none_of(p_.sections.begin(), p_.sections.end(), [](const Section& s) { return s.barriers; }))
      throw Broken{"P7: no place for barriers"};
    bool waits = d.slots_bytes > 0;
    for (const Stage& s : p_.stages) for (AxisId a : s.over) waits |= a >= 0 && p_.axes[at(a)].kind == AxisKind::kGrid;
    if (waits && (!p_.cooperative || d.blocks > int64_t{target_.num_sms} * p_.per_sm))
      throw Broken{fmt::format("P9: {} blocks that wait for each other", d.blocks)};
  }

  const KernelProgram& p_;
  const Target& target_;
  std::vector<Axes> open_;
};

}  // namespace

std::optional<std::string> check_laws(const KernelProgram& p, const Target& target) {
  try {
    Laws(p, target).check();
    return std::nullopt;
  } catch (const Broken& b) {
    return b.text;
  }
}

}  // namespace mirage::schedule

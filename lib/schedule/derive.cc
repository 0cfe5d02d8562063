// What follows from a program: where things lie in shared memory, which mbarriers there are, who arrives at them and what they bring, what
// a thread holds.
#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "mirage/schedule/program.h"
#include "mirage/support/round.h"
#include "mirage/schedule/words.h"

namespace mirage::schedule {
namespace {

struct Deriver {
  const KernelProgram& p;
  Derived d;

  template <class F> void each_stage(F&& f) const {   // f(role, stage, in a loop)
    for (size_t r = 0; r < p.roles.size(); r++)
      for (const Item& i : p.roles[r].items) {
        if (i.stage >= 0) f(static_cast<int>(r), i.stage, false);
        for (StageId s : i.body) f(static_cast<int>(r), s, true);
      }
  }

  /// Places of a step of a section whose arrival one barrier tells of: all that share it, or one that has its own.
  struct Group { int section, step; PlaceId alone = -1; };
  bool is_in(const Group& g, PlaceId x) const {
    const Place& y = p.places[at(x)];
    return y.section == g.section && y.step == g.step && !y.over && (g.alone < 0 ? y.apart == 0 : x == g.alone);
  }
  /// Places that copies bring which ride on that of `x`: those behind it of the same role with as many barriers of their own.
  int64_t riding_bytes(PlaceId x) const {
    int64_t bytes = 0;
    bool behind = false;
    for (const Role& r : p.roles) {
      for (const Item& i : r.items) {
        if (i.stage < 0 || p.stages[at(i.stage)].kind != Stage::Kind::kCopy) continue;
        const Stage& s = p.stages[at(i.stage)];
        if (s.to == x) behind = true;
        else if (!s.rides || p.places[at(s.to)].apart != p.places[at(x)].apart) behind = false;
        else if (behind) bytes += p.places[at(s.to)].bytes();
      }
      behind = false;
    }
    return bytes;
  }
  /// Whether results leave from where the places of a section were: then one thread says that these have.
  bool left_from(int section) const {
    return std::any_of(p.stages.begin(), p.stages.end(), [&](const Stage& s) {
      return s.kind == Stage::Kind::kStore && s.way == WayId::kTma && !s.through.empty() && p.places[at(s.through[0])].section == section;
    });
  }
  /// Roles whose stages read the group's places, or fill them: by copies that are counted, or, where another role reads what they compute,
  /// by that.
  std::vector<int> roles_of(const Group& g, bool writers) const {
    std::vector<int> out;
    each_stage([&](int role, StageId id, bool) {
      const Stage& s = p.stages[at(id)];
      const bool is_counted = s.kind == Stage::Kind::kCopy && path_info(s.path).tracked;
      const bool writes = s.to >= 0 && is_in(g, s.to) && !s.rides && (is_counted || p.places[at(s.to)].apart > 0);
      const bool is_reader = std::any_of(s.reads.begin(), s.reads.end(), [&](PlaceId x) { return is_in(g, x); });
      if ((writers ? writes : is_reader) && std::find(out.begin(), out.end(), role) == out.end()) out.push_back(role);
    });
    return out;
  }

  int64_t tracked_bytes(const Group& g) const {
    int64_t bytes = 0;
    each_stage([&](int, StageId id, bool) {
      const Stage& s = p.stages[at(id)];
      if (s.kind == Stage::Kind::kCopy && path_info(s.path).tracked && is_in(g, s.to) && p.places[at(s.to)].instead < 0)
        bytes += p.places[at(s.to)].bytes();
    });
    return bytes;
  }

  bool is_multicast(int section) const {
    return std::any_of(p.stages.begin(), p.stages.end(), [&](const Stage& s) {
      return s.kind == Stage::Kind::kCopy && s.multicast && p.places[at(s.to)].section == section;
    });
  }

  /// Parts that take the chunks of a loop in turn: each sees some slots only.
  int64_t takers() const {
    std::set<AxisId> parts;
    for (const Split& s : p.splits)
      if (s.reduced)
        for (AxisId a : s.over)
          if (p.axes[at(a)].kind == AxisKind::kGroup || p.axes[at(a)].kind == AxisKind::kWarp) parts.insert(a);
    int64_t n = 1;
    for (AxisId a : parts) n *= p.axes[at(a)].extent;
    return n;
  }
  bool is_copy_to(const Stage& s, int section) const {
    return s.kind == Stage::Kind::kCopy && p.places[at(s.to)].section == section;
  }
  /// Whether a copy fills a slot of this section again.
  bool refilled(int section) const {
    bool out = false;
    for (const Role& r : p.roles)
      for (const Item& i : r.items) {
        if (i.stage >= 0) {
          out |= is_copy_to(p.stages[at(i.stage)], section) && p.rounds() > p.sections[at(section)].slots;
          continue;
        }
        for (StageId s : i.body) {
          const Stage& x = p.stages[at(s)];
          out |= is_copy_to(x, section) &&
                 p.rounds() * p.axes[at(i.loop)].extent * steps(section) * (p.sections[at(section)].owners == 1 ? takers() : 1) >
                     p.sections[at(section)].slots;
        }
      }
    return out;
  }
  int steps(int section) const {
    int n = 1;
    for (const Place& x : p.places) if (x.section == section) n = std::max(n, x.step + 1);
    return n;
  }

  /// A barrier for every slot that copies fill, or that a role fills for another; one more where those that fill it again are not those
  /// that read it.
  void slot_barriers(const Group& g, const std::string& name, int64_t bytes) {
    const Section& x = p.sections[at(g.section)];
    const std::vector<int> from = roles_of(g, true), readers = roles_of(g, false);
    if (from.empty()) return;
    const int count = x.owners * x.slots * (g.alone >= 0 ? p.places[at(g.alone)].apart : 1);
    int arrivals = static_cast<int>(from.size());
    if (bytes == 0) arrivals = p.roles[at(from[0])].warps;   // warps that compute it
    d.barriers.push_back({name + ".full", count, arrivals, bytes});
    if (from == readers || !refilled(g.section) || bytes == 0) return;
    arrivals = 0;
    for (int r : readers)
      arrivals +=
          r == from[0]
              ? p.roles[at(r)].warps - 1
              : static_cast<int>(p.roles[at(r)].warps / (x.owners == 1 ? takers() : 1));  // the warp that refills need not tell itself
    if (left_from(g.section)) arrivals = 1;
    d.barriers.push_back(
        {name + ".empty", count, arrivals * (is_multicast(g.section) ? static_cast<int>(p.parts(AxisKind::kCluster)) : 1), 0});
  }
  void barriers() {
    for (size_t s = 0; s < p.sections.size(); s++) {
      Group all{static_cast<int>(s), 0, -1};
      int64_t most = 0;
      for (int t = 0; t < steps(all.section); t++) {
        all.step = t;
        most = std::max(most, tracked_bytes(all));
      }
      all.step = 0;
      slot_barriers(all, p.sections[s].name, most);
      for (size_t i = 0; i < p.places.size(); i++) {
        const Group one{all.section, p.places[i].step, static_cast<PlaceId>(i)};
        if (p.places[i].section == all.section && p.places[i].apart > 0)
          slot_barriers(one, p.places[i].name, (tracked_bytes(one) + riding_bytes(one.alone)) / p.places[i].apart);
      }
    }
    int64_t bytes = 0;
    bool meets = false;
    for (const Stage& s : p.stages) {
      if (s.kind != Stage::Kind::kFold || s.way == WayId::kExchange ||
          std::none_of(s.over.begin(), s.over.end(), [&](AxisId a) { return a >= 0 && p.axes[at(a)].kind == AxisKind::kCluster; }))
        continue;
      meets = true;
      for (PlaceId x : s.through)   // all blocks send to the section where the last one is
        if (const Place& y = p.places[at(x)]; y.section == p.places[at(s.through.back())].section)
          bytes += y.elements() * dtype_bytes(y.dtype);
    }
    if (meets) d.barriers.push_back({"met", 1, 1, bytes});
  }

  int64_t section_bytes(size_t s) { return d.section_bytes[s] = bytes_of(s); }
  int64_t bytes_of(size_t s) {
    const Section& x = p.sections[s];
    if (x.barriers) {
      int64_t n = 0;
      for (const Barriers& b : d.barriers) n += 8 * b.count;
      return n + x.spare;
    }
    int64_t slot = 0, over = 0;
    for (int t = 0; t < steps(static_cast<int>(s)); t++) {
      int64_t used = 0, gap = 0;
      for (size_t i = 0; i < p.places.size(); i++) {
        const Place& y = p.places[i];
        if (y.section != static_cast<int>(s) || y.over || y.step != t || y.box.empty()) continue;
        if (y.instead >= 0) { d.place_at[i] = d.place_at[at(y.instead)]; continue; }
        d.place_at[i] = y.gap ? gap : used;
        if (y.gap) continue;
        gap = used + y.box.back() * dtype_bytes(y.dtype);
        used += round_up(y.bytes(), x.align);
      }
      slot = std::max(slot, used);
    }
    for (size_t i = 0; i < p.places.size(); i++) {
      const Place& y = p.places[i];
      if (y.section != static_cast<int>(s) || !y.over) continue;
      d.place_at[i] = over;
      over += y.bytes();
    }
    d.slot_bytes[s] = slot;
    if (x.owners > 1) over = x.owners * round_up(ceil_div(over, int64_t{x.owners}), x.align);   // each begins where the section may
    return std::max(x.owners * x.slots * slot, over) + x.spare;
  }

  // ---- sections that are given memory while their places are in use
  struct Life { int64_t bytes = 0; int first = 1 << 30, last = -1; };

  /// Steps that order the use of places: copies in front of the loop are one, then each stage is, then all of the loop, then all that the
  /// loop accumulated becomes whole, then each stage again.
  std::vector<int> steps_of_stages() const {
    std::vector<int> out(p.stages.size(), 0);
    int now = 0;
    std::set<PlaceId> accumulated;
    for (const Role& r : p.roles)
      for (const Item& i : r.items) {
        if (i.stage < 0) {
          now++;
          for (StageId s : i.body) out[at(s)] = now, accumulated.insert(p.stages[at(s)].to);
          now++;
          continue;
        }
        const Stage& s = p.stages[at(i.stage)];
        const bool moves = s.kind == Stage::Kind::kFold ||
                           (s.kind == Stage::Kind::kCompute && s.reads.size() == 1 &&
                            p.places[at(s.reads[0])].value == p.places[at(s.to)].value);
        if (s.kind == Stage::Kind::kCopy) continue;
        if (moves && accumulated.count(s.reads.back())) out[at(i.stage)] = end_of_loop(out, s);
        else if (s.kind == Stage::Kind::kFold) out[at(i.stage)] = now;
        else out[at(i.stage)] = ++now;
      }
    return out;
  }
  /// When what a loop accumulated is whole: behind the stage that accumulated it.
  int end_of_loop(const std::vector<int>& step, const Stage& s) const {
    for (size_t i = 0; i < p.stages.size(); i++) if (p.stages[i].to == s.reads.back()) return step[i] + 1;
    return 0;
  }
  /// Stages that make an elementwise value in registers, by it: those that read it make it again.
  std::map<PlaceId, const Stage*> made_again() const {
    std::map<PlaceId, const Stage*> out;
    for (const Stage& s : p.stages)
      if (s.kind == Stage::Kind::kCompute && s.unit == UnitId::kNone && p.places[at(s.to)].section < 0 &&
          std::holds_alternative<Map>(p.body.def(p.places[at(s.to)].value).op))
        out.try_emplace(s.to, &s);
    return out;
  }
  std::vector<Life> lives() {
    std::vector<Life> out(p.sections.size());
    const std::vector<int> step = steps_of_stages();
    const auto touch = [&](PlaceId x, int when) {
      if (p.places[at(x)].section < 0) return;
      Life& l = out[at(p.places[at(x)].section)];
      l.first = std::min(l.first, when);
      l.last = std::max(l.last, when);
    };
    std::map<PlaceId, std::vector<std::pair<PlaceId, int>>> through;   // where what was folded is read, and from when on
    each_stage([&](int, StageId id, bool) {
      const Stage& s = p.stages[at(id)];
      if (s.kind == Stage::Kind::kFold)
        for (PlaceId r : s.reads)
          for (PlaceId x : s.through) through[r].emplace_back(x, step[at(id)]);
    });
    const std::map<PlaceId, const Stage*> again = made_again();
    const auto read = [&](PlaceId first, int when) {   // each place once: values are read twice and more
      std::set<PlaceId> seen{first};
      for (std::vector<PlaceId> left{first}; !left.empty();) {
        const PlaceId r = left.back();
        left.pop_back();
        touch(r, when);
        for (const auto& [x, since] : through[r]) if (since <= when) touch(x, when);
        if (const auto made = again.find(r); made != again.end())
          for (PlaceId x : made->second->reads) if (seen.insert(x).second) left.push_back(x);
      }
    };
    each_stage([&](int, StageId id, bool in_loop) {
      const Stage& s = p.stages[at(id)];
      for (PlaceId r : s.reads) {
        if (s.kind == Stage::Kind::kFold) touch(r, step[at(id)]);
        else read(r, step[at(id)]);
      }
      for (PlaceId x : s.through) touch(x, step[at(id)]);
      if (s.to < 0) return;
      touch(s.to, step[at(id)]);
      if (s.kind == Stage::Kind::kCopy) touch(s.to, 0);   // the first ones are asked for at once
      const Op& op = p.body.def(p.places[at(s.to)].value).op;
      if (in_loop && (std::holds_alternative<Accum>(op) || std::holds_alternative<Running>(op))) touch(s.to, step[at(id)] + 1);
    });
    for (const Stage& s : p.stages)
      if (s.kind == Stage::Kind::kFold && s.way == WayId::kExchange) touch(s.through.back(), 0);   // other blocks may be there already
    return out;
  }
  /// The largest first, each as low as nothing is that is in use at the same time. The end of all.
  int64_t reuse(int64_t base) {
    std::vector<Life> life = lives();
    std::vector<size_t> order, placed;
    for (size_t s = 0; s < p.sections.size(); s++) {
      if (!p.sections[s].reused) continue;
      life[s].bytes = section_bytes(s);
      if (life[s].last >= 0) order.push_back(s);
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return life[a].bytes > life[b].bytes; });
    int64_t end = base;
    for (size_t s : order) {
      std::vector<size_t> others;
      for (size_t o : placed) if (life[o].first <= life[s].last && life[s].first <= life[o].last) others.push_back(o);
      std::vector<int64_t> starts{base};
      for (size_t o : others) starts.push_back(d.section_at[o] + life[o].bytes);
      std::sort(starts.begin(), starts.end());
      for (int64_t from : starts) {
        d.section_at[s] = from;
        if (std::none_of(others.begin(), others.end(), [&](size_t o) {
              return from < d.section_at[o] + life[o].bytes && d.section_at[o] < from + life[s].bytes;
            })) break;
      }
      placed.push_back(s);
      end = std::max(end, d.section_at[s] + life[s].bytes);
    }
    return end;
  }

  void memory() {
    d.section_at.assign(p.sections.size(), 0);
    d.slot_bytes.assign(p.sections.size(), 0);
    d.section_bytes.assign(p.sections.size(), 0);
    d.place_at.assign(p.places.size(), -1);
    int64_t end = 0;
    for (size_t s = 0; s < p.sections.size(); s++) {
      if (p.sections[s].reused) continue;
      d.section_at[s] = round_up(end, p.sections[s].align);
      end = d.section_at[s] + section_bytes(s);
    }
    end = reuse(end);
    for (size_t i = 0; i < p.places.size(); i++) if (p.places[i].section >= 0) d.place_at[i] += d.section_at[at(p.places[i].section)];
    d.smem_bytes = end;
    for (const Place& x : p.places) if (x.in_slots) d.slots_bytes += x.bytes();
  }

  // ---- where readers find a place, and what orders stages of a phase
  void homes() {
    for (const Place& x : p.places) d.home.push_back(x.section);
    const auto give = [&](PlaceId x, PlaceId at_place) {
      if (d.home[at(x)] < 0) d.home[at(x)] = p.places[at(at_place)].section;
    };
    for (const Stage& s : p.stages) {
      if (s.kind != Stage::Kind::kFold || s.through.empty()) continue;
      size_t next = 0;   // maxima go through the first place together, what is relative to them through the others
      for (PlaceId x : s.reads) {
        if (s.through.size() > 1 && s.reads.size() > 1 && next == 0 && !is_maximum(x)) next = 1;
        give(x, s.through[std::min(next, s.through.size() - 1)]);
        next += next > 0;
      }
    }
    for (const Stage& s : p.stages)
      if (s.kind == Stage::Kind::kCompute && s.reads.size() == 1 && p.places[at(s.reads[0])].value == p.places[at(s.to)].value)
        give(s.reads[0], s.to);
    for (const Stage& s : p.stages)   // the last of a running maximum is the maximum
      if (s.kind == Stage::Kind::kCompute && s.reads.size() == 1 && is_maximum(s.reads[0]) && is_maximum(s.to))
        d.home[at(s.reads[0])] = d.home[at(s.to)] = std::max(d.home[at(s.reads[0])], d.home[at(s.to)]);
  }
  bool is_maximum(PlaceId x) const {
    const Op& op = p.body.def(p.places[at(x)].value).op;
    const auto* a = std::get_if<Accum>(&op);
    return std::holds_alternative<Running>(op) || (a && a->fn == ReduceFn::kMax);
  }

  /// Sections that a stage's operands are in; what is in registers only is made of those that its own stage reads.
  void sections_read(const Stage& s, std::set<int>& out, std::set<PlaceId>& seen) const {
    for (PlaceId x : s.reads) {
      if (d.home[at(x)] >= 0) out.insert(d.home[at(x)]);
      else if (seen.insert(x).second)
        for (const Stage& made : p.stages) if (made.to == x) sections_read(made, out, seen);
    }
  }
  /// Sections that a stage fills for the others of its phase; what a loop accumulates in registers comes to shared memory behind it.
  std::set<int> sections_made(const Stage& s, bool in_loop) const {
    std::set<int> out;
    const bool later = in_loop && p.places[at(s.to)].section < 0 && std::holds_alternative<Accum>(p.body.def(p.places[at(s.to)].value).op);
    if (!later) out.insert(d.home[at(s.to)]);
    for (PlaceId x : s.through) out.insert(d.home[at(x)]);
    return out;
  }
  bool share_memory(const std::set<int>& a, const std::set<int>& b) const {
    for (int x : a)
      for (int y : b)
        if (d.section_at[at(x)] < d.section_at[at(y)] + d.section_bytes[at(y)] &&
            d.section_at[at(y)] < d.section_at[at(x)] + d.section_bytes[at(x)]) return true;
    return false;
  }
  void meetings() {
    d.meets.assign(p.stages.size(), false);
    std::set<int> read, made;   // since all met
    const auto next_phase = [&] { read.clear(), made.clear(); };
    const auto pass = [&](StageId id, bool in_loop) {
      const Stage& s = p.stages[at(id)];
      if (s.kind == Stage::Kind::kCopy || s.kind == Stage::Kind::kFold || is_move(p, d, s)) return;
      std::set<int> in, out;
      std::set<PlaceId> seen;
      sections_read(s, in, seen);
      if (s.kind == Stage::Kind::kCompute) {
        out = sections_made(s, in_loop);
        if (out.erase(-1) && out.empty()) return;   // in registers: those that read it are asked instead
      }
      if (share_memory(in, made) || share_memory(out, made) || share_memory(out, read)) d.meets[at(id)] = true, next_phase();
      read.merge(in);
      made.merge(out);
    };
    for (const Role& r : p.roles) {
      next_phase();
      bool stores = std::any_of(r.items.begin(), r.items.end(), [](const Item& i) { return i.stage < 0; });
      for (const Item& i : r.items) {
        if (i.stage >= 0) {
          if (!stores && p.stages[at(i.stage)].kind == Stage::Kind::kStore) stores = true, next_phase();
          pass(i.stage, false);
          continue;
        }
        next_phase();
        for (StageId s : i.body) pass(s, true);
        next_phase();
      }
    }
  }

  // ---- registers
  static constexpr int64_t kMany = int64_t{1} << 40;   // of whatever is too much anyway: sums of it do not overflow
  /// Elements of a value that a block works on in one iteration.
  int64_t block_elements(ValueId v) const {
    int64_t n = 1;
    for (IndexId i : p.index_of[at(v)]) {
      if (i < 0) continue;
      const Split* s = p.split_of(i);
      int64_t inside = p.tile_of(i);
      for (AxisId a : s && !s->reduced ? s->over : std::vector<AxisId>{})
        if (p.axes[at(a)].kind != AxisKind::kGrid && p.axes[at(a)].kind != AxisKind::kCluster)
          inside = std::min(inside, p.indices[at(i)].extent) * p.axes[at(a)].extent;
      inside = std::min(inside, p.indices[at(i)].extent);
      if (inside > kMany / n) return kMany;
      n *= inside;
    }
    return n;
  }
  /// Whether the blocks of a cluster have parts of sums, and then a share of the results each.
  bool meets_in_cluster() const {
    return std::any_of(p.stages.begin(), p.stages.end(), [&](const Stage& s) {
      return s.kind == Stage::Kind::kFold && std::any_of(s.over.begin(), s.over.end(), [&](AxisId a) {
               return a >= 0 && p.axes[at(a)].kind == AxisKind::kCluster;
             });
    });
  }
  int64_t registers_of(const Place& x, int warps) const {
    if (x.section >= 0 || x.in_slots || x.instead >= 0) return 0;
    if (!x.box.empty()) return ceil_div(x.bytes(), x.layout == LayoutId::kWgmmaAcc ? 512 : 128);
    if (x.layout == LayoutId::kVec) return 2 * dtype_bytes(x.dtype);   // eight neighbours, whatever the row has
    const int64_t blocks = x.layout == LayoutId::kItems && meets_in_cluster() ? p.parts(AxisKind::kCluster) : 1;   // a share each
    return ceil_div(block_elements(x.value) * dtype_bytes(x.dtype), 128 * std::max<int64_t>(warps, 1) * blocks);
  }
  /// Of what mma.sync takes from shared memory: the compiler reads one operand of a whole tile before it multiplies.
  int fragments(const Stage& s, int warps) const {
    if (s.unit != UnitId::kSync16 && s.unit != UnitId::kSyncTf32) return 0;
    int most = 0;
    for (PlaceId x : s.reads) {
      const Place& y = p.places[at(x)];
      if (y.section < 0) continue;
      const int64_t share = p.sections[at(y.section)].owners > 1 ? 1 : std::max(warps, 1);
      most = static_cast<int>(std::max<int64_t>(most, std::min<int64_t>(ceil_div(y.bytes(), 128 * share), 1 << 16)));
    }
    return most;
  }
  /// What a role holds is alive from the stage that makes it to the last that reads it; over the whole loop if it comes from before it, is
  /// read behind it, accumulates, or was asked for iterations ahead.
  std::pair<int, int> live_registers(const Role& r) const {   // of places; and what units read
    std::vector<std::pair<StageId, int>> order;   // stage, the loop that it is in; -1: none
    std::vector<std::pair<int, int>> loops;       // first and last position
    std::vector<int64_t> iterations;
    for (const Item& i : r.items) {
      if (i.stage >= 0) { order.emplace_back(i.stage, -1); continue; }
      loops.emplace_back(order.size(), order.size() + i.body.size() - 1);
      iterations.push_back(p.rounds() * p.axes[at(i.loop)].extent);
      for (StageId s : i.body) order.emplace_back(s, static_cast<int>(loops.size()) - 1);
    }
    std::vector<int> load(order.size() + 1, 0), read(order.size() + 1, 0);
    for (size_t k = 0; k < order.size(); k++) {
      const Stage& s = p.stages[at(order[k].first)];
      if (s.to < 0) continue;
      auto first = static_cast<int>(k), last = first;
      for (size_t j = 0; j < order.size(); j++) {
        const Stage& reader = p.stages[at(order[j].first)];
        if (std::find(reader.reads.begin(), reader.reads.end(), s.to) == reader.reads.end()) continue;
        last = std::max(last, static_cast<int>(j));
        if (reader.kind == Stage::Kind::kFold && d.home[at(s.to)] >= 0) break;   // from there on it is read from shared memory
      }
      const int loop = order[k].second, reader = order[at(last)].second;
      if (reader >= 0 && reader != loop) last = loops[at(reader)].second;
      const bool carried = std::holds_alternative<Accum>(p.body.def(p.places[at(s.to)].value).op) ||
                           std::holds_alternative<Running>(p.body.def(p.places[at(s.to)].value).op);
      if (loop >= 0 && (carried || reader != loop || s.ahead > 0)) {
        first = loops[at(loop)].first;
        last = std::max(last, loops[at(loop)].second);
      }
      int64_t copies = s.kind == Stage::Kind::kCopy ? std::min(1 + s.ahead, 1 << 12) : 1;
      if (loop >= 0) copies = std::min(copies, iterations[at(loop)]);   // nothing is asked for behind the last one
      const int64_t each = std::min<int64_t>(registers_of(p.places[at(s.to)], r.warps), 1 << 12) * copies;
      for (int j = first; j <= last; j++) load[at(j)] += static_cast<int>(std::min<int64_t>(each, 1 << 16));
      read[k] = fragments(s, r.warps);
    }
    const int live = *std::max_element(load.begin(), load.end());
    for (size_t k = 0; k < load.size(); k++) load[k] += read[k];
    return {live, *std::max_element(load.begin(), load.end())};
  }

  void launch() {
    for (const Role& r : p.roles) d.threads += 32 * r.warps;
    const int64_t first = p.blocks();
    d.blocks = p.stay ? p.stay : first;
    for (const Beside& x : p.beside)
      if (const Split* s = p.split_of(x.index); s && !s->over.empty())
        d.blocks += first / p.axes[at(s->over[0])].extent * alone(p, x).axes[at(s->over[0])].extent;
    d.cluster = static_cast<int>(p.parts(AxisKind::kCluster));
    // Each of the four schedulers has a quarter of the registers.
    const int64_t resident = round_up(int64_t{d.threads} * p.per_sm, 128);
    if (d.threads > 0) d.launch_registers = static_cast<int>(std::min<int64_t>(255, 65536 / resident / 8 * 8));
    for (const Role& r : p.roles) {
      const auto [live, all] = live_registers(r);
      d.live.push_back(live);
      d.registers.push_back(all);
    }
  }
};

}  // namespace

bool is_move(const KernelProgram& p, const Derived& d, const Stage& s) {
  return s.kind == Stage::Kind::kCompute && s.reads.size() == 1 && p.places[at(s.to)].section >= 0 &&
         d.home[at(s.reads[0])] == p.places[at(s.to)].section;
}

Derived derive(const KernelProgram& p) {
  Deriver x{p, {}};
  x.barriers();
  x.memory();
  x.homes();
  x.meetings();
  x.launch();
  return std::move(x.d);
}

}  // namespace mirage::schedule

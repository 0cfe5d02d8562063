// Programs whose names do not matter.
#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "mirage/schedule/program.h"
#include "mirage/schedule/words.h"

namespace mirage::schedule {
namespace {

/// The program with names by the order in which its text has them, and with its indices in that order.
class Canonical {
 public:
  static KernelProgram of(KernelProgram p) {
    Canonical c;
    p.name = "k";
    for (size_t i = 0; i < p.roles.size(); i++) p.roles[i].name = fmt::format("role{}", i);
    for (size_t i = 0; i < p.axes.size(); i++) p.axes[i].name.clear();
    for (const Split& s : p.splits) for (AxisId a : s.over) c.name_axis(p, a);
    for (const Role& r : p.roles)
      for (const Item& i : r.items) {
        if (i.stage >= 0) c.name_places(p, i.stage);
        for (StageId s : i.body) c.name_places(p, s);
      }
    c.order_indices(p);
    c.order_sections(p);
    return p;
  }

 private:
  void name_axis(KernelProgram& p, AxisId a) { if (p.axes[at(a)].name.empty()) p.axes[at(a)].name = fmt::format("a{}", axes_++); }
  void name_places(KernelProgram& p, StageId id) {
    const Stage& s = p.stages[at(id)];
    std::vector<PlaceId> all = s.through;
    if (s.to >= 0) all.insert(all.begin(), s.to);
    for (PlaceId x : all)
      if (named_.insert(x).second) {
        p.places[at(x)].name = fmt::format("p{}", named_.size());
        by_name_.push_back(x);
      }
    if (s.to >= 0) for (IndexId i : p.index_of[at(p.places[at(s.to)].value)]) if (i >= 0 && !seen_.count(i)) seen_.emplace(i, seen_.size());
  }
  void order_indices(KernelProgram& p) {
    for (size_t i = 0; i < p.indices.size(); i++) seen_.emplace(static_cast<IndexId>(i), seen_.size());
    std::vector<Index> ordered(p.indices.size());
    for (const auto& [i, to] : seen_) {
      ordered[to] = p.indices[at(i)];
      ordered[to].name = fmt::format("i{}", to);
    }
    const auto moved = [&](IndexId& i) { if (i >= 0) i = static_cast<IndexId>(seen_.at(i)); };
    for (auto& of : p.index_of) for (IndexId& i : of) moved(i);
    for (Split& s : p.splits) moved(s.index), moved(s.outer), moved(s.behind);
    for (Assumption& a : p.assumes) moved(a.index);
    for (Beside& b : p.beside) moved(b.index);
    p.indices = std::move(ordered);
  }
  /// Sections that are reused stand in no order: in that of their places.
  void order_sections(KernelProgram& p) const {
    std::vector<int> order;
    for (size_t s = 0; s < p.sections.size(); s++) if (!p.sections[s].reused) order.push_back(static_cast<int>(s));
    for (PlaceId x : by_name_) {
      const int s = p.places[at(x)].section;
      if (s >= 0 && std::find(order.begin(), order.end(), s) == order.end()) order.push_back(s);
    }
    std::vector<Section> sections;
    std::vector<int> to(p.sections.size(), -1);
    for (int s : order) {
      to[at(s)] = static_cast<int>(sections.size());
      sections.push_back(p.sections[at(s)]);
      sections.back().name = fmt::format("part{}", sections.size());
    }
    for (Place& x : p.places) if (x.section >= 0) x.section = to[at(x.section)];
    p.sections = std::move(sections);
  }
  size_t axes_ = 0;
  std::vector<PlaceId> by_name_;
  std::set<PlaceId> named_;
  std::map<IndexId, size_t> seen_;
};

}  // namespace

std::string canonical_text(const KernelProgram& p) { return print(Canonical::of(p)); }

}  // namespace mirage::schedule

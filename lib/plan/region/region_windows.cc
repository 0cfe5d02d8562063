// Windows of elementwise kernels: where a thread's elements read neighbours of each other (pools, convolutions of one channel,
// differences), the vectors that hold all of them are loaded once, instead of one element at a time for each tap and lane. The vectors are
// read whatever the branches say, as far as the tensor goes: so only what stands against constants (padding) is taken, not what stands
// against other reads.
#include "plan/region/region_windows.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "mirage/support/round.h"

namespace mirage {
namespace {

using Kind = RegionInstr::Kind;
using Terms = std::vector<std::pair<int, int64_t>>;

/// Loads whose lanes are neighbours, by the tensor and by where they are but for a constant.
class Groups {
 public:
  Groups(const RegionPlan& p, const VarTable& table) : p_(p), table_(table) {}
  void collect(std::vector<RegionInstr>& code) {
    for (RegionInstr& i : code) {
      if (i.kind == Kind::kLoad && along_lanes(i)) found[{i.access, i.index.terms}].push_back(&i);
      if (i.kind != Kind::kBranch) continue;
      if (!reads(i.else_body)) collect(i.then_body);
      if (!reads(i.then_body)) collect(i.else_body);
    }
  }
  std::map<std::pair<int, Terms>, std::vector<RegionInstr*>> found;

 private:
  bool along_lanes(const RegionInstr& i) const {
    const RegionAccess& a = p_.accesses[static_cast<size_t>(i.access)];
    if (a.written || a.span == 0 || i.index.coefficient(p_.lane) != 1) return false;
    return std::all_of(i.index.terms.begin(), i.index.terms.end(), [&](const auto& t) {
      return t.first == p_.lane || (t.second % p_.width == 0 && !table_.vars[static_cast<size_t>(t.first)].on_lane);
    });
  }
  const RegionPlan& p_;
  const VarTable& table_;
};

int64_t floor_to(int64_t x, int64_t unit) { return x - ((x % unit) + unit) % unit; }

}  // namespace

bool reads(const std::vector<RegionInstr>& code) {
  return std::any_of(code.begin(), code.end(),
                     [](const RegionInstr& i) { return i.kind == Kind::kLoad || reads(i.then_body) || reads(i.else_body); });
}

/// The vectors from `first` on as a window, which these loads read whose constants are in `taps` (the first and the last of them).
static void add_window(RegionPlan& p, const std::pair<int, Terms>& key, const std::vector<RegionInstr*>& loads,
                       std::pair<int64_t, int64_t> taps, int64_t first, int64_t vectors) {
  for (RegionInstr* i : loads) {
    if (i->index.constant < taps.first || i->index.constant > taps.second) continue;
    i->window = static_cast<int>(p.windows.size());
    i->place = static_cast<int>(i->index.constant - first);
    i->vector = false;
  }
  Affine at{first, key.second};
  std::erase_if(at.terms, [&](const auto& t) { return t.first == p.lane; });
  p.windows.push_back({key.first, std::move(at), static_cast<int>(vectors)});
}

void find_windows(RegionPlan& p, const VarTable& table) {
  constexpr int64_t kMostElements = 64;   // in registers
  p.windows.clear();
  if (p.shape != RegionPlan::Shape::kPointwise || p.lane < 0 || p.width == 1) return;
  Groups groups(p, table);
  groups.collect(p.passes[0].body);
  int64_t elements = 0;
  for (auto& [key, loads] : groups.found) {
    std::set<int64_t> taps;
    for (const RegionInstr* i : loads) taps.insert(i->index.constant);
    const auto lies_across = [&](int64_t t) { return t % p.width != 0; };
    if (std::count_if(taps.begin(), taps.end(), lies_across) < 2) continue;
    for (auto at = taps.begin(); at != taps.end();) {
      std::set<int64_t> beside;   // a row of a two-dimensional window: others lie further away
      for (; at != taps.end() && (beside.empty() || *at - *beside.rbegin() <= p.width); at++) beside.insert(*at);
      const int64_t first = floor_to(*beside.begin(), p.width), last = floor_to(*beside.rbegin() + p.width - 1, p.width),
                    vectors = (last - first) / p.width + 1;
      if (std::none_of(beside.begin(), beside.end(), lies_across) || vectors > static_cast<int64_t>(beside.size()) ||
          elements + vectors * p.width > kMostElements)
        continue;
      elements += vectors * p.width;
      add_window(p, key, loads, {*beside.begin(), *beside.rbegin()}, first, vectors);
    }
  }
}

}  // namespace mirage

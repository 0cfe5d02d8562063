// Windows of a thread's vector: where its elements read neighbours of each other (pools, convolutions of one channel, differences), or each
// some of its own that lie beside the next one's (a channel's taps, channels last), the vectors that hold all of them are loaded once,
// instead of one element at a time for each tap and lane. The vectors are read whatever the branches say, as far as the tensor goes: so
// only what stands against constants (padding) is taken, not what stands against other reads.
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

constexpr int64_t kMostStep = 32;   // between what neighbouring lanes read

/// Loads whose lanes are neighbours or a few elements apart, by the tensor and by where they are but for a constant.
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
    const int64_t step = i.index.coefficient(p_.lane);
    if (a.written || a.span == 0 || step < 1 || step > kMostStep) return false;
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

namespace {

/// The windows of one pass.
struct Windows {
  RegionPlan& p;
  int64_t elements = 0;   // in registers

  /// The vectors from `first` on as a window, which these loads read whose constants are in `taps` (the first and the last of them).
  void add(const std::pair<int, Terms>& key, const std::vector<RegionInstr*>& loads, std::pair<int64_t, int64_t> taps, int64_t first,
           int64_t vectors) {
    for (RegionInstr* i : loads) {
      if (i->index.constant < taps.first || i->index.constant > taps.second) continue;
      i->window = static_cast<int>(p.windows.size());
      i->place = static_cast<int>(i->index.constant - first);
      i->vector = false;
    }
    Affine at{first, key.second};
    std::erase_if(at.terms, [&](const auto& t) { return t.first == p.lane; });
    p.windows.push_back({key.first, std::move(at), static_cast<int>(vectors)});
    elements += vectors * p.width;
  }
  void of(const std::pair<int, Terms>& key, const std::vector<RegionInstr*>& loads) {
    constexpr int64_t kMostElements = 96;   // in registers
    const int64_t step = Affine{0, key.second}.coefficient(p.lane);
    std::set<int64_t> taps;
    for (const RegionInstr* i : loads) taps.insert(i->index.constant);
    const auto lies_across = [&](int64_t t) { return step > 1 || t % p.width != 0; };
    if (std::count_if(taps.begin(), taps.end(), lies_across) < 2) return;
    for (auto at = taps.begin(); at != taps.end();) {
      std::set<int64_t> beside;   // a row of a two-dimensional window: others lie further away
      for (; at != taps.end() && (beside.empty() || *at - *beside.rbegin() <= p.width); at++) beside.insert(*at);
      const int64_t first = floor_to(*beside.begin(), p.width), last = floor_to(*beside.rbegin() + (p.width - 1) * step, p.width),
                    vectors = (last - first) / p.width + 1, reads = static_cast<int64_t>(beside.size()) * (step > 1 ? p.width : 1);
      if (std::none_of(beside.begin(), beside.end(), lies_across) || vectors * (step > 1 ? 2 : 1) > reads ||
          elements + vectors * p.width > kMostElements)
        continue;
      add(key, loads, {*beside.begin(), *beside.rbegin()}, first, vectors);
    }
  }
};

}  // namespace

void find_windows(RegionPlan& p, const VarTable& table) {
  p.windows.clear();
  if (p.shape == RegionPlan::Shape::kColumn || p.lane < 0 || p.width == 1) return;
  for (RegionPass& pass : p.passes) {
    Groups groups(p, table);
    groups.collect(pass.body);
    Windows windows{p};
    for (const auto& [key, loads] : groups.found) windows.of(key, loads);
  }
}

}  // namespace mirage

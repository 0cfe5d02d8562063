// shifted_classes; see the header.
#include "search/problem/shifted.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace mirage::search {
namespace {

/// Whether some of the parts of a class are windows: every so many elements, overlapping ones of one class, or one that is a product.
bool has_windows(const std::vector<PartOf>& parts, const std::vector<std::vector<int>>& factors, int whole) {
  for (const PartOf& a : parts) {
    if (a.whole != whole || a.joined >= 0 || a.part < 0) continue;
    if (a.step > 1 || !factors[static_cast<size_t>(a.part)].empty()) return true;
    for (const PartOf& b : parts)
      if (b.whole == whole && b.joined < 0 && b.part == a.part && b.at > a.at && b.at < a.at + a.extent) return true;
  }
  return false;
}

/// One group: what is reached from a class with windows.
class WindowGroup {
 public:
  WindowGroup(const std::vector<int64_t>& extents, const std::vector<std::vector<int>>& factors, const std::vector<PartOf>& parts)
      : extents_(extents), factors_(factors), parts_(parts), times_(extents.size(), {0, 1}) {}

  bool grow_from(int first) {
    add(first, {1, 1});
    for (size_t i = 0; i < members_.size() && works_; i++) {
      const int c = members_[i];
      split(c);
      for (const PartOf& p : parts_) {
        if (p.part < 0) continue;
        if (p.whole == c) follow(p, true);
        else if (p.part == c) follow(p, false);
      }
    }
    for (int k : keep_) works_ = works_ && times_[static_cast<size_t>(k)].first == 0;
    return works_;
  }
  /// The members' terms: multiples of the largest extent that all of them have.
  bool put(int group, std::vector<Shifted>& out, std::vector<int>& keep) const {
    int64_t denominators = 1, common = 0, shared = 0;
    for (int c : members_) denominators = std::lcm(denominators, of(c).second);
    for (int c : members_) common = std::gcd(common, of(c).first * denominators / of(c).second);
    const auto times = [&](int c) { return of(c).first * denominators / of(c).second / common; };
    for (int c : members_) {
      const int64_t fits = extents_[static_cast<size_t>(c)] / times(c);
      shared = shared == 0 ? fits : std::min(shared, fits);
    }
    if (shared < 2) return false;
    for (int c : members_) out[static_cast<size_t>(c)] = {group, times(c), extents_[static_cast<size_t>(c)] - times(c) * shared};
    keep.insert(keep.end(), keep_.begin(), keep_.end());
    return true;
  }

 private:
  using Ratio = std::pair<int64_t, int64_t>;
  const Ratio& of(int c) const { return times_[static_cast<size_t>(c)]; }
  void add(int c, Ratio r) {
    const int64_t d = std::gcd(r.first, r.second);
    r = {r.first / d, r.second / d};
    Ratio& known = times_[static_cast<size_t>(c)];
    if (known.first != 0) { works_ = works_ && known == r; return; }
    if (r.first > 64 || r.second > 64) { works_ = false; return; }
    known = r;
    members_.push_back(c);
  }
  /// A product: its largest factor varies.
  void split(int c) {
    const std::vector<int>& of_it = factors_[static_cast<size_t>(c)];
    if (of_it.empty()) return;
    const auto extent = [&](int f) { return f < 0 ? 1 : extents_[static_cast<size_t>(f)]; };
    const int largest = *std::max_element(of_it.begin(), of_it.end(), [&](int a, int b) { return extent(a) < extent(b); });
    const Ratio r = of(c);
    add(largest, {r.first, r.second * (extent(c) / extent(largest))});
    for (int f : of_it)
      if (f >= 0 && f != largest) keep_.push_back(f);
  }
  /// The other end of a part; from_whole: its whole is a member.
  void follow(const PartOf& p, bool from_whole) {
    if (p.joined >= 0 && !is_largest(p)) {
      if (from_whole) keep_.push_back(p.part);
      else works_ = false;   // padding of another dimension
      return;
    }
    const Ratio r = of(from_whole ? p.whole : p.part);
    if (from_whole) add(p.part, {r.first, r.second * p.step});
    else add(p.whole, {r.first * p.step, r.second});
  }
  /// Of its concatenation; the first one of several.
  bool is_largest(const PartOf& p) const {
    for (const PartOf& q : parts_)
      if (q.joined == p.joined && (q.extent > p.extent || (q.extent == p.extent && q.at < p.at))) return false;
    return true;
  }

  const std::vector<int64_t>& extents_;
  const std::vector<std::vector<int>>& factors_;
  const std::vector<PartOf>& parts_;
  std::vector<Ratio> times_;   // numerator 0: no member
  std::vector<int> members_, keep_;
  bool works_ = true;
};

}  // namespace

std::vector<Shifted> shifted_classes(const std::vector<int64_t>& extents, const std::vector<std::vector<int>>& factors,
                                     const std::vector<PartOf>& parts, std::vector<int>& keep) {
  std::vector<Shifted> out(extents.size());
  int groups = 0;
  for (size_t c = 0; c < extents.size(); c++) {
    if (out[c].group >= 0 || !has_windows(parts, factors, static_cast<int>(c))) continue;
    WindowGroup group(extents, factors, parts);
    if (group.grow_from(static_cast<int>(c)) && group.put(groups, out, keep)) groups++;
  }
  return out;
}

}  // namespace mirage::search

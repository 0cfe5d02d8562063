// What later passes of a region would compute again: values are numbered over all passes by how they are computed, then taken one after
// another, the one first that saves most. How many of them a kernel keeps in registers is decided with its threads (region_threads.cc).
#include "plan/region/region_kept.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace mirage {

namespace {

using Kind = RegionInstr::Kind;

constexpr double kBranch = 4;
constexpr double kLeastSaved = 12;      // operations per element that a register must save
constexpr size_t kMostKept = 16, kMostCandidates = 32;

/// A value of any pass, by how it is computed.
struct Number {
  RegionWork work;                   ///< of its own
  std::vector<int> operands;         ///< numbers
  std::map<int, int> values;         ///< pass -> its value there
  bool of_row = false;               ///< the same for all elements of a row
};

class Numbering {
 public:
  Numbering(const RegionPlan& p, const RegionLoad& load) : load_(load) {
    for (size_t i = 0; i < p.passes.size(); i++) {
      number(p.passes[i].body, static_cast<int>(i), true);
      std::vector<int>& roots = roots_.emplace_back();
      for (const RegionReduce& r : p.passes[i].reduces) roots.push_back(of(r.value));
      for (const RegionStore& s : p.passes[i].stores) roots.push_back(of(s.value));
      for (const RegionReduce& r : p.passes[i].reduces) of_[r.result] = add(Number{{}, {}, {}, true});
    }
  }

  /// Per element, of all passes where these values (by number: whether it is one) wait for those that need them again.
  RegionWork work(const std::vector<bool>& kept) const {
    RegionWork sum;
    std::vector<bool> read(numbers_.size());   // compilers read once what no store can have changed
    std::vector<int> seen(numbers_.size(), -1), left;   // seen: the last pass
    for (int pass = 0; pass < static_cast<int>(roots_.size()); pass++) {
      left = roots_[static_cast<size_t>(pass)];
      while (!left.empty()) {
        const auto n = static_cast<size_t>(left.back());
        left.pop_back();
        const Number& x = numbers_[n];
        if (x.of_row || seen[n] == pass) continue;
        seen[n] = pass;
        if (kept[n] && x.values.begin()->first < pass) continue;
        sum.operations += x.work.operations;
        if (x.work.scattered > 0 && !read[n]) read[n] = true, sum.scattered += x.work.scattered;
        left.insert(left.end(), x.operands.begin(), x.operands.end());
      }
    }
    return sum;
  }
  std::vector<bool> none() const { return std::vector<bool>(numbers_.size()); }

  /// Those of several passes that stand under no branch, what takes most with all that it is made of first.
  std::vector<int> candidates() const {
    std::vector<std::pair<double, int>> found;
    for (int n = 0; n < static_cast<int>(numbers_.size()); n++) {
      const Number& x = numbers_[static_cast<size_t>(n)];
      if (x.of_row || x.values.size() < 2) continue;
      if (const double cone = work_below(n); cone > 0) found.push_back({-cone * static_cast<double>(x.values.size() - 1), n});
    }
    std::sort(found.begin(), found.end());
    std::vector<int> out;
    for (size_t i = 0; i < std::min(found.size(), kMostCandidates); i++) out.push_back(found[i].second);
    return out;
  }
  const Number& operator[](int n) const { return numbers_[static_cast<size_t>(n)]; }

 private:
  int add(Number n) {
    numbers_.push_back(std::move(n));
    return static_cast<int>(numbers_.size()) - 1;
  }
  int of(int value) const { return of_.at(value); }

  double work_below(int n) const {
    double sum = 0;
    std::vector<bool> seen(numbers_.size());
    std::vector<int> left{n};
    while (!left.empty()) {
      const int at = left.back();
      left.pop_back();
      const Number& x = numbers_[static_cast<size_t>(at)];
      if (x.of_row || seen[static_cast<size_t>(at)]) continue;
      seen[static_cast<size_t>(at)] = true;
      sum += x.work.sum();
      left.insert(left.end(), x.operands.begin(), x.operands.end());
    }
    return sum;
  }

  /// is_top: under no branch, where a value may be kept.
  void number(const std::vector<RegionInstr>& code, int pass, bool is_top) {
    for (const RegionInstr& i : code) {
      number(i.then_body, pass, false);
      number(i.else_body, pass, false);
      std::vector<int> operands;
      for (int a : i.args) operands.push_back(of(a));
      const auto key = std::tuple(i.kind, i.constant, i.index, i.access, i.bound, i.fn, operands);
      const auto [at, is_new] = known_.try_emplace(key, static_cast<int>(numbers_.size()));
      if (is_new) add(make(i, operands));
      of_[i.result] = at->second;
      if (is_top) numbers_[static_cast<size_t>(at->second)].values.try_emplace(pass, i.result);
    }
  }
  Number make(const RegionInstr& i, std::vector<int> operands) const {
    Number n;
    const bool has_index = i.kind == Kind::kLoad || i.kind == Kind::kIndex || i.kind == Kind::kBranch;
    const RegionLoadKind load = has_index ? load_(i) : RegionLoadKind::kOfRow;
    n.of_row = load == RegionLoadKind::kOfRow &&
               std::all_of(operands.begin(), operands.end(), [&](int o) { return numbers_[static_cast<size_t>(o)].of_row; });
    n.work.operations = i.kind == Kind::kMap ? operations_of(i.fn) : i.kind == Kind::kBranch ? kBranch : 0.0;
    n.work.scattered = i.kind == Kind::kLoad && load == RegionLoadKind::kScattered ? 1 : 0;
    n.operands = std::move(operands);
    return n;
  }

  const RegionLoad& load_;
  std::vector<Number> numbers_;
  std::map<std::tuple<Kind, double, Affine, int, int64_t, MapFn, std::vector<int>>, int> known_;
  std::map<int, int> of_;                    // value -> number
  std::vector<std::vector<int>> roots_;      // per pass: what it reduces and stores
};

}  // namespace

void find_kept(RegionPlan& p, const RegionLoad& load) {
  const Numbering numbers(p, load);
  std::vector<bool> kept = numbers.none();
  RegionWork now = p.work = numbers.work(kept);
  if (p.passes.size() < 2) return;
  std::vector<int> candidates = numbers.candidates();
  while (p.again.size() < kMostKept && !candidates.empty()) {
    double least = now.sum() - kLeastSaved;
    size_t best = candidates.size();
    for (size_t c = 0; c < candidates.size(); c++) {
      kept[static_cast<size_t>(candidates[c])] = true;
      if (const double with = numbers.work(kept).sum(); with < least) least = with, best = c;
      kept[static_cast<size_t>(candidates[c])] = false;
    }
    if (best == candidates.size()) break;
    kept[static_cast<size_t>(candidates[best])] = true;
    const Number& n = numbers[candidates[best]];
    const RegionWork then = numbers.work(kept);
    p.again.push_back({now - then, {n.values.begin(), n.values.end()}});
    now = then;
    candidates.erase(candidates.begin() + static_cast<std::ptrdiff_t>(best));
  }
}

}  // namespace mirage

// What later passes of a region would compute again: values are numbered over all passes by how they are computed, then taken one after
// another, the one first that saves most. How many of them a kernel keeps in registers is decided with its threads (region_threads.cc).
#include "plan/region/region_kept.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace mirage {

namespace {

using Kind = RegionInstr::Kind;

constexpr double kBranch = 4, kShared = 4;   // instructions: of a branch, of a division by a number that elements share
constexpr double kLeastSaved = 12;      // operations per element that a register must save
// operations that one register less of each element is worth: what a mask and a scale make of two operands is one number for all passes
// (ptxas 13.0: softmax of 16384 x 512 with a mask, 64 elements each, 152 registers if each pass adds it again, 88 if its sum is kept)
constexpr double kRegister = 12;
constexpr size_t kMostKept = 16, kMostCandidates = 32;

/// A value of any pass, by how it is computed.
struct Number {
  RegionWork work;                   ///< of its own
  std::vector<int> operands;         ///< numbers
  std::map<int, int> values;         ///< pass -> its value there
  bool of_row = false;               ///< the same for all elements of a row
  int bytes = 0;                     ///< of an operand that a held row asks for before all passes; else 0
};

class Numbering {
 public:
  Numbering(const RegionPlan& p, const RegionLoad& load) : plan_(p), load_(load) {
    for (const RegionAccess& a : p.accesses) narrow_ = narrow_ && (!a.written || dtype_bytes(a.dtype) == 2);
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
        sum.operations += x.work.operations, sum.instructions += x.work.instructions;
        if (x.work.scattered > 0 && !read[n]) read[n] = true, sum.scattered += x.work.scattered;
        left.insert(left.end(), x.operands.begin(), x.operands.end());
      }
    }
    return sum;
  }
  /// Of each element, where most are live.
  RegionLive live(const std::vector<bool>& kept) const {
    const int passes = static_cast<int>(roots_.size());
    std::map<int, std::pair<int, int>> uses;   // number -> first and last pass that has it
    for (int pass = 0; pass < passes; pass++) {
      std::vector<int> left = roots_[static_cast<size_t>(pass)];
      std::set<int> seen;
      while (!left.empty()) {
        const int n = left.back();
        left.pop_back();
        const Number& x = numbers_[static_cast<size_t>(n)];
        if (x.of_row || !seen.insert(n).second) continue;
        const bool is_kept = kept[static_cast<size_t>(n)];
        if (is_kept || x.bytes > 0) uses.try_emplace(n, pass, pass).first->second.second = pass;
        if (!is_kept || x.values.begin()->first == pass) left.insert(left.end(), x.operands.begin(), x.operands.end());
      }
    }
    RegionLive most;
    for (int pass = 0; pass < passes; pass++) {   // before it
      RegionLive now;
      for (const auto& [n, use] : uses) {
        if (use.first < pass && use.second >= pass) now.numbers++;
        else if (use.first >= pass && !kept[static_cast<size_t>(n)]) now.bytes += numbers_[static_cast<size_t>(n)].bytes;
      }
      if (now.registers() >= most.registers()) most = now;
    }
    return most;
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
      if (is_new) add(make(i, operands, is_top));
      of_[i.result] = at->second;
      if (is_top) numbers_[static_cast<size_t>(at->second)].values.try_emplace(pass, i.result);
    }
  }
  Number make(const RegionInstr& i, std::vector<int> operands, bool is_top) const {
    Number n;
    const bool has_index = i.kind == Kind::kLoad || i.kind == Kind::kIndex || i.kind == Kind::kBranch;
    const RegionLoadKind load = has_index ? load_(i) : RegionLoadKind::kOfRow;
    n.of_row = load == RegionLoadKind::kOfRow &&
               std::all_of(operands.begin(), operands.end(), [&](int o) { return numbers_[static_cast<size_t>(o)].of_row; });
    n.work.operations = i.kind == Kind::kMap ? operations_of(i.fn) : i.kind == Kind::kBranch ? kBranch : 0.0;
    n.work.instructions = i.kind == Kind::kMap ? instructions(i, operands) : n.work.operations;
    if (i.kind == Kind::kLoad && is_top && !n.of_row) n.bytes = dtype_bytes(plan_.accesses[static_cast<size_t>(i.access)].dtype);
    n.work.scattered = i.kind == Kind::kLoad && load == RegionLoadKind::kScattered ? 1 : 0;
    n.operands = std::move(operands);
    return n;
  }

  /// Of an element; the elements of a row share a reciprocal.
  double instructions(const RegionInstr& i, const std::vector<int>& operands) const {
    const bool shared = i.fn == MapFn::kDiv && numbers_[static_cast<size_t>(operands[1])].of_row;
    return shared ? (narrow_ ? 1 : kShared) : instructions_of(i.fn, narrow_);
  }

  const RegionPlan& plan_;
  const RegionLoad& load_;
  bool narrow_ = true;                       // every result is stored in 16 bits
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
  p.live = {numbers.live(kept)};
  if (p.passes.size() < 2) return;
  std::vector<int> candidates = numbers.candidates();
  while (p.again.size() < kMostKept && !candidates.empty()) {
    double most = kLeastSaved;
    size_t best = candidates.size();
    for (size_t c = 0; c < candidates.size(); c++) {
      kept[static_cast<size_t>(candidates[c])] = true;
      const double worth = now.sum() - numbers.work(kept).sum() +
                           kRegister * std::max(0.0, p.live.back().registers() - numbers.live(kept).registers());
      if (worth > most) most = worth, best = c;
      kept[static_cast<size_t>(candidates[c])] = false;
    }
    if (best == candidates.size()) break;
    kept[static_cast<size_t>(candidates[best])] = true;
    const Number& n = numbers[candidates[best]];
    const RegionWork then = numbers.work(kept);
    p.again.push_back({now - then, {n.values.begin(), n.values.end()}});
    p.live.push_back(numbers.live(kept));
    now = then;
    candidates.erase(candidates.begin() + static_cast<std::ptrdiff_t>(best));
  }
}

}  // namespace mirage

// A block of consecutive vectors reads the lines of a tensor that is the same for all rows (a norm's divisors, a gate per channel) once for
// itself, and the next block reads them again; so it is with neighbours that several rows share (the taps of a convolution). Both come from
// L2, which has less than twice the rate of device memory. The block in the middle is walked thread by thread.
#include "plan/region/region_traffic.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "plan/region/region.h"
#include "plan/region/region_threads.h"

namespace mirage {
namespace {

using Kind = RegionInstr::Kind;

constexpr int64_t kSector = 32;
constexpr int64_t kResident = 16 << 10;   // bytes of a tensor that L1 keeps: biases, gains, weights of few channels
constexpr int64_t kWord = 16;             // bytes that a thread stores at once
constexpr double kOften = 1.2;            // reads of what the tensors have, from which on it is worth counting
constexpr int64_t kMostReads = 1 << 14;   // that are looked at: of some of a block's threads, where all have more

int64_t eval(const Affine& a, const std::vector<int64_t>& at) {
  int64_t s = a.constant;
  for (const auto& [v, c] : a.terms) s += c * at[static_cast<size_t>(v)];
  return s;
}

class Block {
 public:
  explicit Block(const RegionPlan& p) : p_(p), at_(p.vars.size()) {}

  /// Sectors that so many of its threads read.
  int64_t sectors(int64_t threads) {
    const int64_t first = std::max<int64_t>(0, std::min(p_.blocks / 2 * p_.threads, p_.rows - threads));
    for (int64_t row = first; row < std::min(p_.rows, first + threads); row++)
      for (int64_t x = 0; x < (p_.unrolled >= 0 ? p_.length : 1); x++) {
        set_vars(row, x);
        visit(p_.passes[0].body);
      }
    std::sort(found_.begin(), found_.end());
    return std::unique(found_.begin(), found_.end()) - found_.begin();
  }

 private:
  void set_vars(int64_t row, int64_t x) {
    for (size_t i = p_.outer.size(); i-- > 0;) {
      const auto v = static_cast<size_t>(p_.outer[i]);
      at_[v] = row % p_.vars[v].extent;
      row /= p_.vars[v].extent;
    }
    if (p_.unrolled >= 0) at_[static_cast<size_t>(p_.unrolled)] = x;
    for (size_t v = 0; v < p_.vars.size(); v++) {
      const IndexVar& var = p_.vars[v];
      if (var.kind == IndexVar::Kind::kDiv) at_[v] = eval(var.arg, at_) / var.divisor;
      if (var.kind == IndexVar::Kind::kMod) at_[v] = eval(var.arg, at_) % var.divisor;
      if (var.kind == IndexVar::Kind::kLoaded) at_[v] = eval(var.arg, at_) % var.extent;   // as if indices were in order
    }
  }
  void add(int access, int64_t element, int64_t elements) {
    const RegionAccess& a = p_.accesses[static_cast<size_t>(access)];
    const int64_t bytes = dtype_bytes(a.dtype);
    if (a.span > 0 && a.span * bytes <= kResident) return;
    for (int64_t s = element * bytes / kSector; s <= ((element + elements) * bytes - 1) / kSector; s++)
      found_.push_back((static_cast<int64_t>(access) << 48) + s);
  }
  void visit(const std::vector<RegionInstr>& code) {
    for (const RegionInstr& i : code) {
      if (i.kind == Kind::kBranch) visit(eval(i.index, at_) < i.bound ? i.then_body : i.else_body);
      if (i.kind != Kind::kLoad) continue;
      const int64_t step = p_.lane < 0 ? 0 : i.index.coefficient(p_.lane), element = eval(i.index, at_);
      if (step == 1) add(i.access, element, p_.width);
      else for (int64_t lane = 0; lane < (step == 0 ? 1 : p_.width); lane++) add(i.access, element + lane * step, 1);
    }
  }

  const RegionPlan& p_;
  std::vector<int64_t> at_, found_;
};

/// Loads of a thread at one place, and their bytes.
struct Reads { int64_t loads = 0, bytes = 0; };
void count(const RegionPlan& p, const std::vector<RegionInstr>& code, Reads& out) {
  for (const RegionInstr& i : code) {
    if (i.kind == Kind::kLoad)
      out.loads++, out.bytes += dtype_bytes(p.accesses[static_cast<size_t>(i.access)].dtype) *
                                (p.lane >= 0 && i.index.coefficient(p.lane) == 0 ? 1 : p.width);
    count(p, i.then_body, out);
    count(p, i.else_body, out);
  }
}

/// Of an element: what is the same for all of a vector, or for all places of a thread, is computed once.
class Instructions {
 public:
  explicit Instructions(const RegionPlan& p) : p_(p), places_(p.unrolled >= 0 ? static_cast<double>(p.length) : 1.0) {
    for (const RegionAccess& a : p.accesses) narrow_ = narrow_ && (!a.written || dtype_bytes(a.dtype) == 2);
  }
  double each() {
    visit(p_.passes[0].body, 1);
    return sum_ + static_cast<double>(p_.passes[0].stores.size()) + kVector / (p_.width * places_);
  }

 private:
  static constexpr double kVector = 20, kBranch = 4;   // of a thread, its places in the tensors; of a branch
  struct Depends { bool lane = false, place = false; };
  Depends of(const Affine& a) const {
    std::set<int> loops;
    loops_of(p_, a, loops);
    return {p_.lane >= 0 && loops.count(p_.lane) > 0, p_.unrolled >= 0 && loops.count(p_.unrolled) > 0};
  }
  void add(const Depends& d, double instructions) { sum_ += instructions / ((d.lane ? 1 : p_.width) * (d.place ? 1 : places_)); }
  void visit(const std::vector<RegionInstr>& code, double share) {
    for (const RegionInstr& i : code) {
      Depends d = of(i.index);
      for (int a : i.args) d.lane = d.lane || known_[a].lane, d.place = d.place || known_[a].place;
      visit(i.then_body, share / 2);
      visit(i.else_body, share / 2);
      known_[i.result] = d;
      if (i.kind == Kind::kLoad) add(d, share * (i.vector || !d.lane ? 1 : 3));
      if (i.kind == Kind::kMap) add(d, share * instructions_of(i.fn, narrow_));
      if (i.kind == Kind::kBranch) add(d, share * kBranch);
    }
  }
  const RegionPlan& p_;
  const double places_;
  bool narrow_ = true;
  double sum_ = 0;
  std::map<int, Depends> known_;
};

}  // namespace

RegionTraffic traffic_of(const RegionPlan& p, int64_t bytes) {
  RegionTraffic out;
  if (p.shape != RegionPlan::Shape::kPointwise || p.passes.size() != 1) return out;
  const int64_t places = p.unrolled >= 0 ? p.length : 1;
  const double vectors = static_cast<double>(places) * static_cast<double>(p.rows);
  double stored = 0;
  for (const RegionStore& s : p.passes[0].stores) {
    const int64_t written = dtype_bytes(p.accesses[static_cast<size_t>(s.access)].dtype) * p.width;
    stored += static_cast<double>(written) * vectors;
    if (s.vector && written > kWord) out.half_written += static_cast<double>(written) * vectors;
  }
  out.instructions = Instructions(p).each() * vectors * p.width;
  Reads reads;
  count(p, p.passes[0].body, reads);
  if (p.rows < p.threads || static_cast<double>(reads.bytes) * vectors + stored < kOften * static_cast<double>(bytes)) return out;
  const int64_t threads = std::clamp<int64_t>(kMostReads / std::max<int64_t>(1, reads.loads * places), 32, p.threads);
  const double blocks = static_cast<double>(p.rows) / static_cast<double>(threads);
  out.l2_bytes = static_cast<double>(Block(p).sectors(threads) * kSector) * blocks + stored;
  return out;
}

}  // namespace mirage

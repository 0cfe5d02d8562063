// Programs back to plans. A strategy is asked for the plan of the program's own numbers (Strategy::like); what it decides is said again,
// and is the program's plan only if it says the same. So nothing of a program is ignored: what the strategy would do otherwise is refused,
// by the line in which it differs.
#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "mirage/plan/describe.h"
#include "mirage/plan/strategy.h"
#include "mirage/schedule/words.h"

namespace mirage::schedule {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

Access access_of(const Param& x, int buffer) {
  Access a;
  a.buffer = x.position >= 0 ? -1 : buffer;
  a.offset = x.offset;
  a.dims = x.dims;
  a.strides = x.strides;
  a.dtype = x.dtype == DType::kReal ? DType::kF32 : x.dtype;
  a.tf32 = x.tf32;
  a.position = x.position;
  a.position_div = x.position_div;
  a.position_period = x.position_period;
  a.run = x.run;
  a.jump = x.jump;
  return a;
}

class Search {
 public:
  Search(const KernelProgram& p, const Target& target) : p_(p), target_(target), wanted_(lines_of(canonical_text(p))) {}

  PlanOf run() {
    const Erased erased = erase(p_);
    if (!erased.graph) return refused("P1: " + erased.reason);
    if (!p_.beside.empty()) return refused("calls beside each other are planned in a program of several calls only");
    int buffer = 0;
    for (const Param& x : p_.params) {
      operands_.push_back(access_of(x, buffer++));
      if (x.in >= 0) operands_.back().buffer = operands_[at(x.in)].buffer;
    }
    for (size_t i = 0; i < p_.params.size(); i++) {
      const SecondPart& s = p_.params[i].second;
      if (s.dim < 0) continue;
      int64_t first = 0;
      for (const Index& x : p_.indices) first = std::max(first, x.first);
      operands_[i].second = {buffer++, s.offset, s.strides, s.dim, first};
    }
    for (const Param& x : p_.results) results_.push_back(access_of(x, buffer++));
    for (const ContractRule& rule : rules())
      for (const Strategy& strategy : strategies())
        if (strategy.like)
          if (std::optional<KernelPlan> k = attempt(strategy, *erased.graph, rule)) return {std::move(k), "", "", "", rule};
    return explain();
  }

 private:
  static PlanOf refused(std::string why) { return {std::nullopt, "", "", std::move(why), {}}; }

  /// What a program may have said of its contractions: its kernels' units tell, where the plan agrees.
  std::vector<ContractRule> rules() const {
    std::vector<ContractRule> out;
    std::vector<DType> narrow;
    for (const Param& x : p_.params) if (is16(x.dtype)) narrow.push_back(x.dtype);
    narrow.push_back(DType::kReal);
    for (const bool tf32 : {false, true})
      for (const DType t : narrow)
        if (std::none_of(out.begin(), out.end(), [&](const ContractRule& r) { return r.narrow == t && r.tf32 == tf32; }))
          out.push_back({t, tf32});
    return out;
  }

  std::optional<KernelPlan> attempt(const Strategy& strategy, const Graph& erased, const ContractRule& rule) {
    const Graph body = strategy.matched ? strategy.matched(p_, erased) : erased;
    const Work work{body, operands_, results_, target_, rule, false};
    if (work.has_parts() && !strategy.reads_parts) return std::nullopt;
    Attempt a = strategy.like(p_, work);
    if (!a.body) {
      if (reasons_.emplace(strategy.name, a.reason).second) order_.push_back(strategy.name);
      return std::nullopt;
    }
    planned_.insert(strategy.name);
    KernelPlan k;
    k.name = p_.name;
    k.body = std::move(*a.body);
    k.predicted_us = a.cost.us;
    k.why = a.cost.why;
    k.bytes = a.cost.bytes;
    k.flops = a.cost.flops;
    const Described d = describe(k, target_);
    if (!d.program) return std::nullopt;
    const std::vector<std::string> is = lines_of(canonical_text(*d.program));
    size_t same = 0;
    while (same < std::min(is.size(), wanted_.size()) && is[same] == wanted_[same]) same++;
    if (same == is.size() && same == wanted_.size()) return k;
    size_t common = 0;   // of all lines, so that the nearest plan is compared even where its head differs
    for (size_t i = 0; i < std::min(is.size(), wanted_.size()); i++) common += is[i] == wanted_[i];
    if (!nearest_ || common > common_) {
      nearest_ = Near{strategy.name, same, same < is.size() ? lines_of(print(*d.program))[same] : ""};
      common_ = common;
    }
    return std::nullopt;
  }

  PlanOf explain() const {
    const auto trimmed = [](const std::string& s) { return s.substr(std::min(s.find_first_not_of(' '), s.size())); };
    if (nearest_) {
      const std::vector<std::string> own = lines_of(print(p_));
      return {std::nullopt, trimmed(nearest_->line < own.size() ? own[nearest_->line] : own.back()), trimmed(nearest_->text),
              fmt::format("the strategy '{}' does this otherwise{}", nearest_->strategy, others()), {}};
    }
    return refused("no strategy has a plan of these numbers" + others());
  }
  /// What those say that have none.
  std::string others() const {
    std::string out;
    for (const std::string& s : order_) if (planned_.count(s) == 0) out += fmt::format("; {}: {}", s, reasons_.at(s));
    return out;
  }

  const KernelProgram& p_;
  const Target& target_;
  const std::vector<std::string> wanted_;
  std::vector<Access> operands_, results_;
  struct Near { std::string strategy; size_t line = 0; std::string text; };
  std::optional<Near> nearest_;
  size_t common_ = 0;
  std::map<std::string, std::string> reasons_;   // of strategies that have no plan of these numbers
  std::vector<std::string> order_;
  std::set<std::string> planned_;
};

}  // namespace

PlanOf plan_of(const KernelProgram& p, const Target& target) {
  if (auto broken = check_laws(p, target)) return {std::nullopt, "", "", *broken, {}};
  return Search(p, target).run();
}

}  // namespace mirage::schedule

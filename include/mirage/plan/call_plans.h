// What strategies said of calls, kept: plans of one program that differ in a few kernels, and layers that repeat, ask the same many times.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mirage/plan/block.h"
#include "mirage/plan/plan.h"

namespace mirage {

class RegionPlans;   // lib/plan/region

/// The cheapest plan of a call and what the other strategies said; or, body empty, the reason why none takes it.
struct CallPlan {
  std::optional<KernelBody> body;
  Cost cost;
  std::string reason;
  std::vector<Refusal> others;
};

/// For one target and one set of rules for contractions; any number of threads. What strategies say does not depend on which buffers
/// operands and results lie in, only on which of them are the same: entries are kept without their numbers.
class CallPlans {
 public:
  CallPlans();
  std::optional<CallPlan> find(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results) const;
  void keep(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results, const CallPlan&);
  /// The block graph of a product of operands of these types and strides: made by `make` if it was not asked for before.
  std::shared_ptr<const Graph> product(const Type& x, const Type& y, std::span<const Dims> strides, const std::function<Graph()>& make);
  RegionPlans& regions() { return *regions_; }   ///< of the same plans

 private:
  struct Entry { Graph body; std::vector<Access> accesses; CallPlan plan; };
  mutable std::mutex mutex_;
  std::map<uint64_t, std::vector<Entry>> entries_;   // by hash
  size_t size_ = 0;
  std::map<std::string, std::shared_ptr<const Graph>> products_;
  std::shared_ptr<RegionPlans> regions_;
};

/// make_plan that asks what is known first, and adds to it. For the same target, and programs of the same contract_rule, every time.
Planned make_plan(const Program&, const Graph&, const Target&, std::span<const ValueId> origin, CallPlans& known);

}  // namespace mirage

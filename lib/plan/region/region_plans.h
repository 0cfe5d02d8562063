// Regions that were planned before, by what they compute: plans of one program that differ in a few kernels, layers that repeat, and a
// chain that grows by a kernel at a time ask for the same regions many times. Private to lib/plan.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "plan/region/region.h"

namespace mirage {

/// All that planning a group asks for: its values down to what is stored, numbered as they are met, where these lie, and the buffers' types
/// and extents. Equal keys have equal plans, apart from the numbers of buffers and nodes.
struct RegionKey {
  std::vector<int64_t> words;
  std::vector<int> buffers;      ///< by number
  std::vector<NodeId> nodes;     ///< by number; -1: nothing is computed
};
/// nullopt: it holds reads by index or places of largest elements, which look behind what is stored, or it is long.
std::optional<RegionKey> region_key(const RegionContext&, const RegionGroup&, int max_statements);

/// For one target; any number of threads.
class RegionPlans {
 public:
  struct Found { std::optional<RegionPlanned> planned; };   ///< empty: the group is not one region
  std::optional<Found> find(const RegionKey&) const;
  void keep(const RegionKey&, const std::optional<RegionPlanned>&);
  size_t size() const;   ///< regions

 private:
  /// buffers and nodes by their numbers in the key
  struct Entry { std::vector<int64_t> words; std::optional<RegionPlanned> planned; };
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, std::vector<std::shared_ptr<const Entry>>> entries_;
  size_t size_ = 0, bytes_ = 0;
};

}  // namespace mirage

// Regions: groups of graph nodes that become one pre-defined kernel. From a group to loops and statements (region_lower.cc), then to
// threads and vectors (region.cc). Private to lib/plan.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <vector>
#include "mirage/plan/block.h"
#include "mirage/plan/region.h"
#include "plan/region/region_index.h"
#include "plan/tape.h"

namespace mirage {

class RegionPlans;

/// A Reduce as a region sees it: a chain of whole-dimension Reduces of the same function is one reduction over several dimensions.
struct ReduceInfo {
  ReduceFn fn = ReduceFn::kSum;
  ValueId base = -1;              ///< what is reduced
  std::vector<bool> reduced;      ///< per dimension of base
  int64_t group = 0;              ///< 0: whole dimensions; else runs of `group` of the one reduced dimension
};

/// What regions need to know of the graph around them. Values that are stored have a view into a buffer; all others are computed where they
/// are needed.
struct RegionContext {
  const Graph& graph;
  const Program& program;
  const Target& target;
  const std::vector<Buffer>& buffers;
  const std::vector<View>& views;                ///< per value; buffer -1: not stored
  const std::map<ValueId, ReduceInfo>& reduces;  ///< by the chain's last value
  Tape* tape = nullptr;                          ///< may be empty: nobody wants to know or knows better
  RegionPlans* known = nullptr;                  ///< may be empty; not asked where there is a tape
};

/// A value that a region computes and where it goes (nowhere: only other values of the region read it).
struct RegionRoot { ValueId value = -1; std::vector<Access> stores; };

/// A long reduction is cut in two kernels: the first reduces chunks into `partial` buffers (one per root), the second reduces the chunks'
/// results.
struct RegionSplit {
  enum class Half : uint8_t { kNone, kFirst, kSecond } half = Half::kNone;
  int64_t chunk_length = 0, chunks = 1;
  std::map<ValueId, int> partial;   ///< reduce value -> buffer, row-major [row, chunk]
};

struct RegionGroup { std::vector<RegionRoot> roots; RegionSplit split; };

struct RegionPlanned { RegionPlan plan; Cost cost; std::vector<NodeId> nodes; };
/// nullopt if the group is not one region: its values have no common loops, a reduction would be repeated, or it is longer than
/// `max_statements`. A group of one root always is a region if max_statements allows.
std::optional<RegionPlanned> plan_region(const RegionContext&, const RegionGroup&, int max_statements);

/// region_lower.cc: loops and statements, one element at a time, loops in the order of the dimensions.
struct Lowered { RegionPlan plan; std::vector<NodeId> nodes; double flops_per_element = 0; };
std::optional<Lowered> lower_region(const RegionContext&, const RegionGroup&, int max_statements);

/// Whether threads beside each other read elements of that buffer that lie apart.
bool reads_scattered(const RegionPlan&, int buffer);

/// Rough cost of an elementwise function in simple operations.
double operations_of(MapFn);
/// Instructions of one element of a kernel all of whose results are stored in 16 bits (narrow), or not (sm_90, CUDA 13.0: kernels with and
/// without it, disassembled).
double instructions_of(MapFn, bool narrow);

/// Applies f to every affine form of a plan (statements and stores, not variables).
void for_each_affine(RegionPlan&, const std::function<void(Affine&)>& f);

}  // namespace mirage

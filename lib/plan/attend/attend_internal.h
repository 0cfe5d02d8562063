// What the parts of plan_attend say to each other: attend_match.cc reads the graph, attend.cc decides numbers.
#pragma once
#include <string>
#include "plan/attend/attend_plan.h"
#include "mirage/schedule/program.h"
#include "plan/stream/clusters.h"

namespace mirage {

/// The numbers of a plan: groups along queries and keys, keys of a chunk, stages, blocks of a cluster and clusters that divide the keys,
/// and what warps beside those that multiply do.
struct AttendChoice {
  bool wide = false, warp_rings = false, producer = false, turns = false;
  int query_groups = 1, key_groups = 1, chunk = 64, stages = 2, cluster = 1, meets = 1, blocks_per_sm = 1, helpers = 0;
};
/// That which a program of this kind was made with.
AttendChoice attend_choice(const schedule::KernelProgram&);
/// Plans a graph with that division. A reason where it does not fit.
AttendPlanned plan_attend_as(const AttendChoice&, const Graph& body, const std::vector<Access>& operands,
                             const std::vector<Access>& results, const Target& target);

/// Reads `body` as attention. Empty and a filled shape, or one sentence why it is not.
std::string match_attend(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results, AttendShape& shape);

/// Where two products of inputs are added, writes the body and its operands with one product over both their features (attend_sums.cc).
void join_products(Graph& body, std::vector<Access>& operands);

/// Reads what operands of a matched graph lie in two parts (Access::second): first_keys or first_features of the shape, and where the
/// second parts are. Empty, or one sentence why they cannot be read so.
std::string find_second_parts(AttendPlan& p);

/// Whether the emitter has a place for everything that the plan computes; empty, or one sentence why not.
std::string check_regions(const AttendPlan& p);

/// Plans for up to 16 queries and many features or columns (device library, 67_attend_wide): adds those that fit to `plans`.
void add_wide_plans(const AttendPlan& base, const Target&, std::vector<AttendPlan>& plans);

/// The time of a plan whose numbers and places are set. Constants were fitted on an H200 (docs/measurements/attention.md).
Cost estimate_attend(const AttendPlan&, const Target&);

/// Its kernel.
KernelBody told(std::shared_ptr<const AttendPlan>);

}  // namespace mirage

namespace mirage::schedule {

/// Throws Undescribed.
KernelProgram attend_program(const AttendPlan&);

}  // namespace mirage::schedule

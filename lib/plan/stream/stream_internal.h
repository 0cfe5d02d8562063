// What the files of the stream planner share.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/stream/stream_plan.h"
#include "mirage/plan/strategy.h"

namespace mirage {

/// Of a kernel, those of calls beside it included: a map has 128 of the 32764 bytes that parameters may have, beside pointers.
constexpr size_t kMostWeights = 200;

constexpr int64_t kMaxStreamRows = 64;   ///< of the small operand of a stream plan
constexpr int64_t kAnyRows = int64_t{1} << 20;
constexpr int64_t kBoxAlign = 1024;      ///< bytes: the 128-byte swizzle of tensor-map boxes repeats after eight lines

/// The structure of a graph of this kind, with at most `max_rows` rows, or nullopt with one sentence why it is not.
std::optional<StreamShape> match_stream(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results,
                                        const ContractRule& rule, int64_t max_rows, std::string& reason);
/// The same with either operand as the weight where both are possible and neither is plainly better: the preferred one first.
std::vector<StreamShape> stream_shapes(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results,
                                       const ContractRule& rule, int64_t max_rows, std::string& reason);
/// A stream plan of that structure, not yet divided; the same of work, where it is of this kind.
StreamPlan stream_plan(StreamShape shape);
std::optional<StreamPlan> matched_stream(const Work& work, std::string& reason);

/// registers: weights straight to registers, `columns` of them per block; warps x chunk cover the reduction.
/// warps and blocks of a cluster divide the reduction; stages: ring depth; chunk: elements of the reduction per copy; blocks_per_sm:
/// promised to the compiler.
struct StreamChoice {
  int warps = 8, stages = 2, chunk = 64, cluster = 2, blocks_per_sm = 1;
  bool evict_first = true;
  bool registers = false;
  int columns = 64;
};

/// A division that fits, and its time; all of a matched plan, the cheapest first, or none with the reason. Plans are made of those that are
/// wanted: a copy of a graph for each of some hundred divisions took half of a compilation's time.
struct StreamDivision { StreamChoice choice; double us = 0; };
std::vector<StreamDivision> stream_division_list(const StreamPlan& matched, const Target& target, std::string& reason);
StreamPlan divided_stream(const StreamPlan& matched, const StreamChoice& choice, const Target& target);
/// All of them as plans.
StreamCandidates stream_divisions(const StreamPlan& matched, const Target& target);
/// The cheapest of them.
StreamPlanned best_stream_division(const StreamPlan& matched, const Target& target);
/// Whether calls of these shapes can be one kernel, each with columns of its own: the same graph over the same rows
/// (plan/passes/beside.cc).
bool stands_beside(const StreamShape& a, const StreamShape& b);

/// The choice that a program of this kind was made with.
StreamChoice stream_choice(const schedule::KernelProgram&);
/// One plan of calls beside each other, not yet divided; with the numbers of a program, over other extents.
std::optional<StreamPlan> matched_calls(std::span<const KernelCall> calls, const ContractRule& rule, std::string& reason);
std::optional<StreamPlan> stream_like(const schedule::KernelProgram& model, std::span<const KernelCall> calls, const ContractRule& rule,
                                      const Target& target, std::string& reason);
/// Gives a matched plan its division and places in shared memory; false with a reason if it does not fit.
bool divide_stream(StreamPlan& plan, const StreamChoice& choice, const Target& target, std::string& reason);

/// The cost model (plan/stream/stream_cost.cc): predicted microseconds of one launch, and, where asked to explain, why.
Cost estimate(const StreamPlan& plan, const Target& target, bool explain = true);

/// Its kernel.
KernelBody told(std::shared_ptr<const StreamPlan>);

}  // namespace mirage

namespace mirage::schedule {

/// Throws Undescribed.
KernelProgram stream_program(const StreamPlan&);

}  // namespace mirage::schedule

// What the files of the stream planner share.
#pragma once
#include "mirage/plan/stream.h"
#include "mirage/schedule/program.h"

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
/// A stream plan of that structure, not yet divided.
StreamPlan stream_plan(StreamShape shape);

/// All divisions of a matched plan that fit, the cheapest first; empty with the reason.
StreamCandidates stream_divisions(const StreamPlan& matched, const Target& target);
/// The cheapest of them.
StreamPlanned best_stream_division(const StreamPlan& matched, const Target& target);
/// Whether calls of these shapes can be one kernel, each with columns of its own: the same graph over the same rows
/// (plan/passes/beside.cc).
bool stands_beside(const StreamShape& a, const StreamShape& b);

/// One line of a plan's text.
std::string print_product(const StreamShape&, const StreamProduct&);

/// registers: weights straight to registers, `columns` of them per block; warps x chunk cover the reduction.
/// warps and blocks of a cluster divide the reduction; stages: ring depth; chunk: elements of the reduction per copy; blocks_per_sm:
/// promised to the compiler.
struct StreamChoice {
  int warps = 8, stages = 2, chunk = 64, cluster = 2, blocks_per_sm = 1;
  bool evict_first = true;
  bool registers = false;
  int columns = 64;
};
/// The choice that a program of this kind was made with.
StreamChoice stream_choice(const schedule::KernelProgram&);
/// Gives a matched plan its division and places in shared memory; false with a reason if it does not fit.
bool divide_stream(StreamPlan& plan, const StreamChoice& choice, const Target& target, std::string& reason);

/// The cost model (plan/stream/stream_cost.cc): predicted microseconds of one launch, and, where asked to explain, why.
Cost estimate(const StreamPlan& plan, const Target& target, bool explain = true);

}  // namespace mirage

namespace mirage::schedule {

/// The program of a kernel of this kind; throws Undescribed.
KernelProgram stream_program(const KernelPlan&);

}  // namespace mirage::schedule

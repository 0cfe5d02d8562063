// The search (OSDI'25 section 4, docs/search.md): enumerates muGraph structures that may equal the reference, over small witness extents;
// numbers are put in later by instantiate(). Knows nothing of verification: candidates leave through the sink, whose answer is counted.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include "mirage/expr/expr.h"
#include "mirage/ir/graph.h"
#include "mirage/ir/program.h"
#include "mirage/ir/target.h"
#include "mirage/search/extents.h"

namespace mirage {

/// gates.def: GATE(id, name, help): every reason why a step or a graph is not followed, cheapest first.
enum class Gate : uint8_t {
#define GATE(id, name, help) id,
#include "mirage/search/gates.def"
#undef GATE
  kNumGates
};
const char* gate_name(Gate);
const char* gate_help(Gate);

struct SearchOptions {
  int max_kernel_ops = 5;          ///< operators of the kernel graph, inputs not counted
  /// inputs, contractions, reductions, accumulators, outputs and elementwise regions of one block graph; raised to what the program itself
  /// needs, and said so
  int max_block_ops = 11;
  /// values of one block graph that the program itself does not have (a product before its division, say); graphs with fewer are searched
  /// first
  int max_ideas = 3;
  int64_t max_states = 20'000'000;  ///< deterministic budget, compared with SearchReport::effort
  /// counted memory of the search, 0: no limit. A part that is refused memory is given up, and the run says so
  int64_t max_bytes = 0;
  int64_t max_candidates = 1'000;  ///< handed to the sink at most: verifying more would take longer than finding them
  int64_t max_values = 4'000;      ///< of one split: with more it is not closed further, and the run is not `complete`
  double max_seconds = 0;          ///< outer stop, 0: none. A run that it cut short says so
  uint64_t seed = 0;
  int threads = 1;                 ///< nothing but the seconds depends on it
  const std::atomic<bool>* stop = nullptr;   ///< set from outside (an interrupt): end soon with stop_reason "interrupted"
  /// what an earlier run told `remember` under this key, if anything; may be empty. From any thread
  std::function<std::optional<std::string>(const std::string& key)> remembered;
  /// told each step that led to nothing, one line of text: a checkpoint
  std::function<void(const std::string& key, const std::string& outcome)> remember;
  bool expression_gate = true;     ///< prune by abstract expressions
  SubexprJudge judge;              ///< if there is one, it is asked instead of lib/expr's decision
  bool merge = true;               ///< states whose unconsumed values have equal fingerprints are merged
  bool dominance = true;           ///< of equal complete graphs only those that no other beats are kept
};

/// The program over several sets of extents (both witnesses, and its own), node by node the same graph: where a kernel-level view or iota
/// of a structure names extents, they are looked up here.
struct Worlds { std::vector<std::pair<std::vector<Type>, Graph>> all; };   ///< types of the inputs; the first is that of structures

/// A muGraph over witness extents: its shape, partitions and operators are meant, its numbers are not.
struct Structure {
  Graph graph;           ///< kernel level; calls have grid extents 1 or 2 and loop extents 1 or 2 by witness size
  int64_t rank = 0;      ///< running number in canonical order
  int kernels = 0;       ///< graph-defined and pre-defined kernels that it launches
  /// at plausible tiles it fits shared memory, repeats little work and has enough blocks; others are kept for want of better ones
  bool is_good = true;
  std::shared_ptr<const Worlds> worlds = nullptr;   ///< may be empty for a program without slices, iotas and reshapes that join or split
  int64_t states = 0, effort = 0;                   ///< SearchReport's when it was handed out: with a smaller budget it would not have been
};

/// What the caller made of a candidate.
enum class SinkVerdict : uint8_t { kVerified, kRejected, kUnknown };
using CandidateSink = std::function<SinkVerdict(const Structure&)>;

struct GateCount { int64_t closed = 0; std::string first_example; };

struct SearchReport {
  int64_t states = 0;              ///< operators tried on values, and prefixes of graphs visited
  /// states, with prefixes and large evaluations counted several times, so that it follows the time they take: about a million a second
  int64_t effort = 0;
  std::array<GateCount, static_cast<size_t>(Gate::kNumGates)> gates;
  int64_t candidates = 0;          ///< complete graphs handed to the sink
  int64_t verified = 0, rejected = 0, unknown = 0;
  bool complete = true;            ///< false: a budget ended it
  /// "exhausted" (within the bounds), "states", "memory", "candidates", "time", "interrupted", "not searched: ..."
  std::string stop_reason;
  int64_t peak_bytes = 0;          ///< the most that was held at once, as counted (tensors, derivations, expressions, visited states)
  double seconds = 0;              ///< not part of deterministic output
  int max_block_ops_used = 0;
};

/// The reference over witness extents, or why the search cannot take it (an operator without a witness form).
struct Witness {
  Graph graph;                                        ///< reference with small extents
  std::vector<Type> params;                           ///< witness types of the inputs
  std::string refusal;                                ///< not empty: not searched, and why
};
/// variant 0: even splits; variant 1: other extents with a ragged tail per split. Distinct dimensions that need not be equal get distinct
/// extents, none equal to a literal of the program.
/// parts, tied, alike: as dim_classes has them
Witness make_witness(const Program&, int variant, int parts = 0, search::Tied tied = search::Tied::kRefused,
                     const search::Alike& alike = {});
/// For structures that come from elsewhere than the search (a certificate); empty where there is no witness.
std::shared_ptr<const Worlds> make_worlds(const Program&, int parts = 0);

SearchReport enumerate(const Program&, const Target&, const SearchOptions&, const CandidateSink&);

/// Where a muGraph of the program stands in the space: kernel by kernel the split that it is under, the gate that closes it and at which
/// operator; or that no gate does, and what merging and dominance make of it (they are asked if the options have them on). Answered by the
/// search's own engine, restricted to the graph's operators. `given`: kernel level, at the program's sizes or at a witness's; running
/// maxima are taken out first. in_space: the enumeration without merging and dominance comes to it; is_found: every kernel of it is among
/// those that no other beats.
struct WhyNot { bool in_space = false; std::string text; bool is_found = false; };
WhyNot why_not(const Program&, const Target&, const SearchOptions&, const Graph& given);

/// Sizes for one call of a structure. Tile extents along what the grid axes and the loop split, in elements of the split dimension; 0 where
/// nothing is split.
struct CallNumbers {
  std::array<int64_t, 3> grid_tile{0, 0, 0};
  int64_t loop_tile = 0;
  /// said by split_extents: the axis that splits the looped dimension too. Its tiles are a whole number of the loop's
  int chunk_axis = -1;
};
/// The structure over the real extents of `params` with these numbers (one entry per Call in node order); nullopt if they do not fit (an
/// empty block, a law).
std::optional<Graph> instantiate(const Structure&, const std::vector<Type>& params, const std::vector<CallNumbers>& numbers);
/// Two pieces per axis and loop of these extents (split_extents), the second one shorter where an extent is odd.
std::vector<CallNumbers> halve(std::vector<CallNumbers> extents);
/// The extents that each grid axis and the loop of each call split, in node order: what numbers can be chosen for. 0 where nothing is
/// split. (Operands that an earlier call leaves in parts, one for each of its blocks along an axis, count as one part here.)
std::vector<CallNumbers> split_extents(const Structure&, const std::vector<Type>& params);

}  // namespace mirage

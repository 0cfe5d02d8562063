// What is settled about a problem before its block graphs are searched: which splits are open, how many operators a graph may have, how
// results are rounded. Read by the enumerator and by the explanation of single graphs (why_not.h), so that both mean the same space.
#pragma once
#include <string>
#include <vector>
#include "mirage/ir/target.h"
#include "mirage/search/search.h"
#include "search/problem/reference.h"
#include "search/problem/splits.h"

namespace mirage::search {

/// a block may keep rows in registers beside shared memory: what it loads is bounded by both
inline constexpr int64_t kRegisterBytes = 256 * 1024;

/// Graph-defined operators of one program, those that put parts of sums together not counted. With dominance two, and one behind sums over
/// blocks: what needs more is partitioned (driver/pieces/partition.h), by cost. Without: the bound of the options.
int most_kernels(const SearchOptions& options, bool is_tail);

/// What splits of a problem are enumerated: how many graph-defined operators there are, and the classes of dimensions that parts of sums
/// lie along.
SplitOptions split_options(const SearchOptions& options, const Target& target, bool is_tail, int kernels, const std::vector<int>& whole);

bool is_free(const Graph& g, ValueId v);                          ///< an input, positions, or views of these: an address calculation
/// by result: the value that it stores, before transposes and reshapes that only say where each element goes
std::vector<ValueId> stored_values(const Graph& g);
/// a lower bound on what a block holds at any size: what no axis splits, of all loads at once
int64_t least_bytes(const Graph& g, const Split& split);
bool fits_memory(const Graph& g, const Split& split, const Target& target);
/// what the program's own operators make of the obvious fusion: the bound is raised to it
int block_ops_needed(const Graph& g, const Problem& problem, const Split& split);
/// Results of the program are rounded as they are stored; what other kernels read has the type that it has in the program, where only casts
/// and comparisons give another one than kReal. `outputs`: stored_values.
std::vector<DType> stored_dtypes(const Graph& g, const std::vector<ValueId>& outputs, const Problem& problem);

}  // namespace mirage::search

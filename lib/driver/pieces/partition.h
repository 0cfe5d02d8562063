// Partitioning (docs/partition.md; OSDI'25 section 3 leaves it open): a program that one search cannot take is cut into pieces by a dynamic
// programme over predicted times; each piece is searched, verified and planned once per form, the pieces are stitched into one kernel
// graph, and the whole is verified at small extents. Called by compile() where the search of the whole program led to nothing or to several
// kernels.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>
#include "driver/decide/candidates.h"
#include "driver/pieces/cuts.h"
#include "driver/proof/folding.h"
#include "driver/decide/numbers.h"
#include "driver/decide/search_memory.h"
#include "mirage/ir/target.h"
#include "mirage/plan/plan.h"
#include "mirage/support/trace.h"

namespace mirage {

/// A piece of the program and the structure that takes its place.
struct Replaced {
  Piece piece;
  Structure structure;
  std::vector<CallNumbers> numbers;
};

/// The program with its pieces replaced: the graph that is emitted and what supports it.
struct Stitched {
  std::vector<Replaced> pieces;
  Graph graph;
  Plan plan;
  Verdict support;                   ///< that the graph is the program, at the program's own sizes; or why that is not known
  std::vector<Claim> claims;         ///< of the whole, at both small sizes; numbers are those of all calls, piece by piece
  bool is_given = false;             ///< recalled, and measured once: taken whatever the model predicts
};

/// What became of one distinct piece, for the report.
struct PieceOutcome {
  std::string text;                  ///< its operators: "matmul, add"
  int times = 0;                     ///< how often it stands in the cut that was chosen
  int kernels = 0;
  double straightforward_us = 0, predicted_us = 0;
  bool searched = false;             ///< predicted_us is that of a structure that the search found
  int64_t states = 0, verified = 0;
  int64_t found_after = 0;           ///< so many of the states; 0: not searched, or nothing found pays
};

struct Partitioned {
  std::string refusal;               ///< why there was nothing to cut
  int units = 0, cuts = 0, distinct = 0, states = 0;
  std::vector<PieceOutcome> chosen;  ///< in the order of the program
  std::optional<Stitched> result;    ///< predicted to be faster than the plan to beat, and verified
  std::vector<std::string> not_done;
  std::vector<std::string> notes;    ///< operators that the rest was searched around, pieces that were planned only
  SearchReport search;               ///< of all distinct pieces together
};

/// What the search of the whole gets of the states, where pieces are the likelier way: a quarter for many operators, an eighth for more
/// contractions than a piece may have, a sixteenth where it would have to find a way around an operator that no block graph has (a
/// concatenation, a repetition, a slice of what is computed).
int64_t states_of_whole(const Graph&, int64_t states);

/// Searches with these options; max_states is for all pieces together. `straightforward`: the plan to beat. is_searched: the whole was
/// searched before, and is no piece. Deterministic for any number of threads unless time or an interrupt ends it. memory (may be null):
/// what is known there is not searched.
Partitioned partition_program(const Program&, const Target&, const Plan& straightforward, const SearchOptions&, uint64_t seed, Trace&,
                              const std::function<void(const std::string&)>& tell, bool is_searched = true, SearchMemory* memory = nullptr);

/// `graph` (the program at some size, node by node) with pieces replaced by their structures with these numbers, one list per piece;
/// nullopt if numbers do not fit.
/// origin: per value of the result, the value of `graph` that it is; -1: a structure's own.
std::optional<Graph> stitch(const Graph& graph, const std::vector<Replaced>& pieces, const std::vector<std::vector<CallNumbers>>& numbers,
                            std::vector<ValueId>* origin = nullptr);

/// The claims of a stitched program: each distinct piece at both small sizes of its own, with tails as at the real size, and the whole
/// where it has small sizes (these claims first). Pieces have their graphs (make_piece, piece_between). Equal pieces in equal places make
/// equal programs, so what has no small size as a whole is verified all the same. `refusal` says what does not hold.
Instance verify_stitched(const Program&, const std::vector<Replaced>& pieces, uint64_t seed);

/// What it rests on that `found`, stitched of these pieces, is the program at its own sizes: proofs of the distinct pieces, in linear time;
/// where a piece has none, trials of it; else as support_of has it.
Verdict support_of_pieces(const Folding&, const std::vector<Replaced>& pieces, const Graph& found, uint64_t seed);

/// The program and the stitched graph at small extents, for verify_stitched and for certificates; nullopt with the reason.
/// origin: of the candidate's values, see stitch
struct SmallPair { Graph reference, candidate; std::vector<CallNumbers> numbers; std::vector<ValueId> origin; };
std::optional<SmallPair> small_pair(const Program&, const std::vector<Replaced>& pieces, int variant, std::string& refusal);

}  // namespace mirage

// Which neighbouring dimensions of a program's values are joined: the first half of folding (mirage/ir/fold.h), between reading a spec and
// the folded graph (fold.cc). Private to lib/ir.
#pragma once
#include <map>
#include <set>
#include <vector>

#include "mirage/ir/program.h"

namespace mirage::folding {

/// Per value: runs of its dimensions of extent above 1, outermost first; each run is one dimension of the folded value.
using Groups = std::vector<std::vector<std::vector<int>>>;

/// Reductions of one function in a row, each of which only the next one reads, are one over several dimensions. Per node: the node that
/// stands for the row, and of those the value and dimensions that are reduced.
struct Chains {
  struct Chain { ValueId base = -1; std::vector<int> dims; };
  std::vector<bool> is_inner;               ///< a further reduction follows
  std::map<NodeId, Chain> last;
  explicit Chains(const Graph& g);
};

/// What is joined in a program of primitives: pairs of neighbours that an operator ties together are joined together or not at all, and one
/// operator that tells them apart keeps all of them apart. A repetition of one element along one of two does not, where a product's batch
/// is joined by it and what is repeated is small beside the product's operands.
Groups find_groups(const Program& p, const Chains& chains);

/// How pairs of neighbours hang together; pair i of a value is between its dimensions i and i+1 of those with extent above 1.
struct Ties {
  /// a pair of a value that `reader` reads, and the pair of its result that is joined only together with it, or one of the reader's own,
  /// which is apart
  struct Tie {
    int from = 0, to = 0;
    NodeId reader = -1;
    ValueId value = -1;
    int dim = -1;            ///< the pair's outer dimension
    bool inside = false;     ///< the value is made of one product and read by another through what one kernel may do between them
  };
  std::vector<Tie> ties;
  std::vector<int> of_class;   ///< per pair, a number that all pairs have that are tied to it
  std::vector<int> apart;      ///< pairs that an operator tells apart itself, and those of products that would gain nothing
  /// rows of products (with the batch that the second operand lacks) which leave at least a fifth of their tiles empty while they are
  /// apart, and dimensions that were one in a product's result, of which functions are computed
  std::vector<int> wanted;
};
Ties find_ties(const Program& p, const Chains& chains);

/// Elementwise operators that keep dimensions apart only because small operands, made of inputs and positions, have one and not the other
/// (a length for each batch, a slope for each head), and dimensions of their results: repeated along those that they lack (widened.h), they
/// do not, and a product's batch is joined.
std::map<NodeId, std::set<int>> find_partial(const Program& p, const Chains& chains);

}  // namespace mirage::folding

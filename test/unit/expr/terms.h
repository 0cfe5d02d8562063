// Abstract expressions as plain trees, rewritten by the equations of axioms.def in both directions: the tests' own reading of the theory,
// which knows nothing of normal forms.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include "mirage/expr/expr.h"
#include "mirage/support/hash.h"

namespace mirage::expr_test {

struct Term;
using TermPtr = std::shared_ptr<const Term>;

/// `op` is a name of axioms.def or maps.def, or a leaf: "in", "lit", "ext" (with `id`), "one", "minus_one". `extents` (sorted) belongs to
/// the reductions "sum" and "max".
struct Term {
  std::string op;
  int id = 0;
  std::vector<int> extents;
  std::vector<TermPtr> args;
  int size = 1;   ///< nodes
};

TermPtr leaf(const std::string& op, int id = 0);
TermPtr node(const std::string& op, std::vector<TermPtr> args, std::vector<int> extents = {});
bool equal(const TermPtr&, const TermPtr&);
int compare(const TermPtr&, const TermPtr&);   ///< a total order; 0 if equal
std::string text(const TermPtr&);
ExprId to_pool(const TermPtr&, ExprPool&);
/// Whether the literal 1 by itself is reduced somewhere in the term: then axioms 10 to 13 do not apply there.
bool reduces_one(const TermPtr&, ExprPool&);

/// One side of an axiom. Variables are x, y, z; extents "", "1", "i", "j", "ij".
struct Pattern { std::string op, extents; std::vector<Pattern> args; };
struct Axiom { int number; Pattern lhs, rhs; };
const std::vector<Axiom>& axioms();

/// The term with `from` replaced by `to` at its root; nullptr if `from` does not match. A union of extents is split at random.
TermPtr rewrite_root(const TermPtr&, const Pattern& from, const Pattern& to, Rng&);
/// The term after one random axiom in a random direction at a random place where it matches; the same term if the drawn one matches
/// nowhere.
TermPtr rewrite_somewhere(const TermPtr&, Rng&);

/// Random terms over inputs 0..3, literals and extents, at most `depth` operators deep.
TermPtr random_term(int depth, Rng&);
/// A random operator around `inner`, other operands random.
TermPtr random_context(const TermPtr& inner, Rng&);

}  // namespace mirage::expr_test

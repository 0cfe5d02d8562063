// Finds rewriting chains between equal terms, for the checker (replay.h): both are brought to one form by axioms, and the second chain is
// followed backwards. Untrusted: what it finds is replayed.
#pragma once
#include "unit/expr/replay.h"

namespace mirage::expr_test {

/// The chain from t to its normal form: sums of sums over extents of quotients of ordered products, with one exponential and one root each.
std::vector<Link> to_normal_form(const TermPtr& t);
/// A term of the pool as a tree. Literals are those of the tests, 0.25 + id.
TermPtr from_pool(const ExprTerm& t);
/// t with reductions of the literal 1 written as the extents that they are (axioms.def, at 10 to 13).
TermPtr with_counts(const TermPtr& t, ExprPool& pool);
/// Whether the pool's context for e in t, with e put in, is t by a chain that replays. Terms as with_counts makes them.
bool yes_replays(const TermPtr& e, const TermPtr& t, ExprPool& pool, int64_t* steps);

}  // namespace mirage::expr_test

// Rewritings of terms that keep the function over the reals, and changes that are meant to break it.
#pragma once
#include <string>
#include <vector>

#include "trust/random/terms.h"

namespace mirage::test {

/// One way to write a node differently. narrows: equal only where both are defined (x y / y = x).
struct Rewriting {
  std::string law;
  P now;
  bool narrows = false;
};
std::vector<Rewriting> algebra_of(const P& x, Rng& rng);        ///< sums, products, functions, conditions
std::vector<Rewriting> movements_of(const P& x, Rng& rng);      ///< views, reductions, contractions
std::vector<Rewriting> tilings_of(const P& x, Rng& rng);        ///< block graphs

/// One rewriting at a random node; false if none fits in a few attempts. tiles: one that makes a block graph. These come last, since the
/// types of a call's operands stand in its body.
struct Step { std::string law; bool narrows = false; };
bool rewrite(P& root, Rng& rng, Step& step, bool tiles, size_t max_nodes = 60);

/// One change that is meant to break the function; false if none fits. What was changed is in `kind`. Whether it did is for an evaluator to
/// say.
bool break_somewhere(P& root, const std::vector<P>& inputs, Rng& rng, std::string& kind);

}  // namespace mirage::test

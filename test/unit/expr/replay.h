// The checker of rewriting chains: replays them on plain trees with nothing but the equations of axioms.def, which it reads as text. It
// knows no normal forms, no pool and no way to find a chain (derive.h does), so that a "yes" of lib/expr rests on this file and on the
// table (docs/pruning.md, "The checker").
#pragma once
#include <optional>
#include <string>
#include <vector>
#include "unit/expr/terms.h"

namespace mirage::expr_test {

/// One step of a chain. `to` is what stands there afterwards.
struct Link {
  enum class Kind : uint8_t {
    kAxiom,      ///< the whole term by axiom `number`, left to right if `forward`
    /// operands of nested additions (number 3) or multiplications (number 4) in another order and nesting: axioms 1 and 3, or 2 and 4, as
    /// often as needed
    kReorder,
    kBelow,      ///< the chain `below` in operand `number`
  } kind;
  int number = 0;
  bool forward = true;
  TermPtr to;
  std::vector<Link> below;
};

/// The term at the end of the chain, or nullptr if a step is none; *steps counts the equations used (a reordering counts as one).
TermPtr replay(const TermPtr& start, const std::vector<Link>& chain, int64_t* steps);

/// `context` with its only hole filled; nullptr if it has none, or more than one.
TermPtr filled(const TermPtr& context, const TermPtr& e);

}  // namespace mirage::expr_test

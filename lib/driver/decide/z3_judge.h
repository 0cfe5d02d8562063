// Pruning the paper's way (OSDI'25 section 4.3), for comparison: Z3 is asked whether the axioms entail that one abstract expression is a
// sub-expression of another.
#pragma once
#include <cstdint>
#include <memory>

#include "mirage/expr/expr.h"

namespace mirage {

/// What a judge was asked. It may be called from several threads; questions are answered one after another.
struct Z3JudgeCounts { int64_t asked = 0, proved = 0, refuted = 0, open = 0; };
struct Z3Judge {
  /// false only if Z3 refutes; what it cannot answer within its resource limit (a count, about a second) is kept
  SubexprJudge judge;
  std::shared_ptr<const Z3JudgeCounts> counts;
};
Z3Judge make_z3_judge();

}  // namespace mirage

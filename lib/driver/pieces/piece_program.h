// A piece of a program as a program of its own: what is known of its leaves and results in the whole. For partition.cc.
#pragma once
#include <vector>

#include "driver/pieces/cuts.h"
#include "mirage/ir/contraction.h"
#include "mirage/ir/kept.h"

namespace mirage {

/// In which types the whole's plan stores intermediates.
class PiecePrograms {
 public:
  explicit PiecePrograms(const Program& whole);

  /// Intermediates of the whole come in and go out as its plan stores them: in 16 bits where node-by-node evaluation keeps them so
  /// (Program::kept). What is exact comes in as plan/storage.h has it and goes out in float32; the search and the rounding check (`narrow`)
  /// see it in 16 bits as well, so that bodies are those of 16-bit operands.
  Program of(const Piece& piece, bool narrow) const;

 private:
  DType stored_as(ValueId v) const;
  DType leaf_type(ValueId v, bool narrow) const;

  const Program& whole_;
  KeptValues values_;
  std::vector<DType> kept_;                    // per value of the whole, views included
  std::vector<std::vector<NodeId>> users_;
  ContractRule rule_;
};

}  // namespace mirage

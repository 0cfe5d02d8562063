// Every value that a block graph with few new ideas can reach, with every way to derive it. An idea is a value that the program itself does
// not have (a product before its division, say): graphs are searched by growing numbers of ideas. What no target needs is left out before
// graphs are grown (block_search.h).
#pragma once
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>
#include "search/growth/block_values.h"

namespace mirage::search {

struct Derivation {
  int op = 0;
  std::vector<int> operands;   ///< value ids; ascending for commutative operators
  int result = -1;
};

class Universe {
 public:
  Universe(BlockValues& values, size_t num_targets, int64_t max_values, Meter& meter);
  /// Closes under all operators up to `ideas` ideas. True if every target can be derived. Numbers may not decrease from call to call; a
  /// closure that the meter ended is not continued.
  bool close_to(int ideas);
  bool is_capped() const { return capped_; }              ///< max_values ended it
  int target(size_t t) const { return targets_[t]; }      ///< value id, -1: not reached
  /// Derivations that lie on a way to a target, within the last close_to's bound.
  std::vector<Derivation> useful() const;

 private:
  struct Pair { int a, b; };
  void visit(int id);
  void derive(int op, std::initializer_list<int> operands, int base) {
    derive(op, std::span<const int>(operands.begin(), operands.size()), base);
  }
  void combine(int a, int b);
  void triples(int id);
  void concat(int sum, std::span<const int> products);
  void derive(int op, std::span<const int> operands, int base);
  int base_level(int a, int b) const;
  void note(int id, int level);
  BlockValues& values_;
  int64_t max_values_;
  bool capped_ = false;
  Meter& meter_;
  int ideas_ = -1;
  std::vector<int> level_, targets_, processed_;   ///< level: a lower bound on the ideas in any graph with the value; -1: not met
  std::vector<std::vector<int>> fresh_;            ///< by level: values to visit
  std::vector<std::vector<Pair>> late_;            ///< by level: pairs to combine
  std::vector<Derivation> derivations_;
  std::vector<std::vector<std::pair<int, int>>> products_;   ///< by value: the operands of matmuls that give it
};

}  // namespace mirage::search

// Elementwise parts of an attention as CUDA text: numbers of the places where the device library calls for them (61_attend.cuh).
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "codegen/program/attention_view.h"
#include "mirage/ir/walk.h"

namespace mirage::schedule {

/// Where a value is asked for.
enum class Asked : uint8_t { kGain, kQueryRow, kKeyRow, kValueRow, kTile, kLogit, kWeight, kAfterRow, kAfter };

class AttendElements {
 public:
  explicit AttendElements(const AttentionView& a);

  /// Statements that come first, and the variables that have values.
  struct Region { std::string statements; std::map<ValueId, std::string> known; };
  std::string value(ValueId v, Asked where, Region& r);
  /// x times and divided by these. Who divides by a root multiplies by its reciprocal.
  std::string multiplied(std::string x, const std::vector<Factor>& all, Asked where, Region& r);
  /// Address of a tensor's element at the query, key and column that the function has.
  std::string element_of(const Param& a, const std::vector<IndexId>& of, const std::string& pointer) const;
  std::string element_of(ValueId input) const;
  std::string batch_index(int d) const;   ///< of leading dimension d of the scores
  bool is_root(ValueId v) const;

  /// Values that are computed once per query: ahead of the loop, and behind it.
  const std::vector<ValueId>& rows() const { return rows_; }
  const std::vector<ValueId>& after_rows() const { return after_rows_; }
  // ---- what the texts so far need
  const std::set<int>& pointers() const { return pointers_; }      ///< parameters that are read by loads
  const std::set<ValueId>& fetched() const { return fetched_; }    ///< inputs whose elements logits find in registers
  bool squares_keys() const { return key_squares_; }               ///< sums of the squares of K's rows, or V's
  bool squares_values() const { return value_squares_; }

 private:
  /// How a value is had there: by name, or from its operands (kCompute, kDeferred: from what its factor multiplies).
  enum class Had : uint8_t {
    kCompute, kConst, kRow, kScores, kWeights, kKnown, kDeferred, kResult, kMaximum, kSum, kAfterRow, kElement, kStatistic, kTile
  };
  Had had(ValueId v, Asked where) const;
  Had had_in_loop(ValueId v, Asked where) const;
  Had had_behind(ValueId v, Asked where) const;
  std::vector<ValueId> once_per_query(Had kind) const;
  ValueId row_factor(ValueId v) const;
  size_t known_index(ValueId v, Asked where) const;
  bool is_row(ValueId v) const { return a_.is_only(v, a_.query) && phase_[static_cast<size_t>(v)] == Phase::kInvariant; }
  std::string scores_text(Asked where, Region& r);
  std::string element_text(ValueId v, Asked where);
  std::string position_text(ValueId v) const;
  std::string statistic_text(ValueId v, Asked where);
  std::string computed_text(ValueId v, Asked where, Region& r);
  bool is_squares(ValueId v) const;
  bool is_fetched(ValueId v) const;
  const char* name_of(IndexId i) const { return i == a_.query ? "query" : i == a_.key ? "key" : "column"; }
  ValueId operand(ValueId v, size_t i = 0) const { return g_.def(v).operands[i]; }

  const AttentionView& a_;
  const Graph& g_;
  std::vector<Phase> phase_;
  std::vector<int64_t> batch_;
  std::vector<ValueId> rows_, after_rows_;
  bool narrow_ = false;   // all results are stored in 16 bits
  bool key_squares_ = false, value_squares_ = false;
  std::set<int> pointers_;
  std::set<ValueId> fetched_;
};

}  // namespace mirage::schedule

// A program as attention: which of its values are queries, keys, scores, weights, results, and what is asked of how they are divided.
#pragma once
#include <optional>
#include <vector>

#include "codegen/program/program_view.h"
#include "mirage/ir/band.h"
#include "mirage/ir/range.h"

namespace mirage::schedule {

/// What multiplies or divides.
struct Factor { ValueId value = -1; bool divides = false; };

/// Queries, keys or values as they lie in memory. rows: queries or keys; columns: features, or what is left of values.
struct MatrixOperand { ValueId input = -1; int row_dim = -1, col_dim = -1; bool lines_along_rows = false; };

class AttentionView : public ProgramView {
 public:
  AttentionView(const KernelProgram& p, const Derived& d);

  // ---- values
  MatrixOperand q, k, v;
  ValueId gained = -1;                    ///< the first operand of the first product, above Q's gains
  ValueId product = -1, scores = -1;      ///< of Q and K; and that with the factors of their rows
  ValueId logit = -1, running = -1;       ///< what the maximum is taken of, and the maximum
  ValueId weights = -1, share = -1;       ///< exp(logit - running); and what V is multiplied by, without its own factors
  PlaceId state = -1, rounded = -1;       ///< where the maximum is; and what the second product takes
  ValueId sum = -1, result = -1, maximum = -1;   ///< accumulated: weights, the second product; the last maximum, -1: nobody asks for it

  bool is_along(ValueId v, IndexId i) const;   ///< rows or columns of v are i's elements
  bool is_only(ValueId v, IndexId i) const;    ///< and nothing else
  const std::vector<Factor>& scale() const { return scale_; }   ///< that follow the maximum: the outermost first
  /// Whether a value is a product whose factor follows the maximum; what it is there.
  bool is_deferred(ValueId x) const;
  ValueId core(ValueId x) const;
  /// Factors of a chain of products and quotients, the innermost first, down to a value of another kind or a deferred one.
  std::vector<Factor> chain(ValueId x) const;
  ValueId untransposed(ValueId x) const;
  /// What is known of a key ahead of its scores, or of its weight: places in shared memory, in their order.
  const std::vector<PlaceId>& key_known() const { return key_known_; }
  const std::vector<PlaceId>& value_known() const { return value_known_; }
  /// Which of them is the product of K's factors or V's; -1: they have none.
  PlaceId key_factor() const { return key_factor_; }
  PlaceId value_factor() const { return value_factor_; }
  Range range(ValueId v) const { return ranges_.of(v); }
  bool is_plain() const;                  ///< the logit is the product times factors that follow the maximum
  bool may_be_huge() const;               ///< logits may be so low that float32 does not hold their product with log2 e
  Band band() const;                      ///< what masks by positions leave

  // ---- how they are divided
  IndexId query = -1, key = -1, feature = -1, column = -1;
  int64_t first_keys() const { return key < 0 ? 0 : program().indices[at(key)].first; }
  int64_t first_features() const { return feature < 0 ? 0 : program().indices[at(feature)].first; }
  int64_t first_boxes() const;            ///< of 64 features, of their first part
  std::vector<int64_t> batch() const;     ///< leading dimensions
  const Place& place_of(const MatrixOperand& x) const { return place(copy_of(x.input)->to); }
  bool is_wide() const;                   ///< warps divide the features of one group's rows
  bool has_warp_rings() const { return program().sections[at(place_of(k).section)].owners > 1; }
  bool has_live_tiles() const { return split(key)->live; }
  int64_t chunk() const { return split(key)->tile; }
  int64_t chunks() const { return program().chunks(*split(key)); }
  int64_t stages() const { return program().sections[at(place_of(k).section)].slots; }
  int64_t query_groups() const { return place_of(q).box[0]; }
  int64_t group_rows() const { return place_of(q).box[2]; }
  int64_t key_groups() const { return parts(key, AxisKind::kGroup) * parts(key, AxisKind::kWarp); }
  int64_t tiles() const { return parts(query, AxisKind::kGrid); }
  int64_t meets() const { return parts(key, AxisKind::kGrid); }
  int64_t padded_features() const { return 64 * (place_of(k).box[0]); }
  int64_t padded_columns() const;
  int64_t value_boxes() const { return copy_of(v.input)->path == PathId::kSame ? 0 : place_of(v).box[0]; }
  const Role& work() const { return role_of(*products()[0]); }
  bool is_refilled_by_others() const;     ///< warps of their own ask for keys and values
  int64_t helpers() const;                ///< warps that make what is known of keys
  int64_t producers() const;
  int64_t lent_registers() const;         ///< of a thread of the roles that gave some; 0: none did
  int known_section() const;              ///< -1: there is none

 private:
  void find_values();
  void find_tensors();
  void find_known();
  void find_scale();
  MatrixOperand tensor(ValueId below, bool rows_first) const;
  ValueId operand(ValueId x, size_t i = 0) const { return body().def(x).operands[i]; }

  Ranges ranges_;
  std::vector<Factor> scale_;
  std::vector<PlaceId> key_known_, value_known_;
  PlaceId key_factor_ = -1, value_factor_ = -1;
};

}  // namespace mirage::schedule

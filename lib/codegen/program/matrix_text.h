// What the emitters of kernels write whose loop multiplies rows by weights (stream and tile): names and places of values, elementwise text
// of the loop, and the whole of the tail, from the kernel's program (docs/schedule.md).
#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "codegen/kernels/cuda_text.h"
#include "codegen/program/matrix_stages.h"
#include "codegen/kernels/text_lines.h"
#include "mirage/codegen/module.h"

namespace mirage::schedule {

/// Writes text; an emitter says where its sums and statistics are to be found. Its numbers of products, statistics, totals and weights are
/// those of MatrixStages.
class MatrixText : public TextLines {
 public:
  MatrixText(const KernelProgram& p, const Derived& d) : p_(p), d_(d), g_(p.body), m_(p) {}
  virtual ~MatrixText() = default;
  /// Inputs that are read through pointers, not through a tensor map.
  std::set<int> pointer_params() const;

 protected:
  static size_t at(int i) { return static_cast<size_t>(i); }
  bool is_weight(NodeId n) const { return MatrixStages::number(m_.weights(), m_.copy_of(n)) >= 0; }
  /// Whether the kernel gets input n as a tensor map.
  virtual bool mapped(NodeId n) const { return is_weight(n); }
  int param(NodeId n) const { return g_.form<Input>(n)->param; }
  int param(const Stage& copy) const { return g_.def_form<Input>(value(copy))->param; }
  const Param& tensor(NodeId n) const { return p_.params[at(param(n))]; }
  const Param& tensor(const Stage& copy) const { return p_.params[at(param(copy))]; }
  const Param& result(NodeId output) const { return p_.results[at(g_.form<Output>(output)->result)]; }
  ValueId stored_by(NodeId output) const { return g_.node(output).operands[0]; }
  ValueId value(NodeId n) const { return g_.node(n).first_value; }
  ValueId value(const Stage& s) const { return m_.made(s); }
  NodeId input(const Stage& copy) const { return g_.value(value(copy)).node; }
  bool has(ValueId v, IndexId i) const { return m_.has(v, i); }
  bool is_deep(ValueId v) const { return has(v, m_.reduced()); }
  /// Elements of a tensor from one element of v along an index to the next; 0: v does not differ along it.
  int64_t stride_of(const Param& a, ValueId v, IndexId i) const;
  int64_t stride(NodeId n, IndexId i) const { return stride_of(tensor(n), value(n), i); }
  std::string pointer(NodeId n) const {
    return fmt::format("(const {}*)in{} + {}{}", cuda_type(tensor(n).dtype), param(n), offset(n, tensor(n).offset),
                       slice_text(stride(n, m_.batch())));
  }
  /// from where in{param} or out{result} points, of an input or of an output's result
  virtual int64_t offset(NodeId n, int64_t elements) const { (void)n; return elements; }
  /// from one row to the next of an input, or of an output's result, that has columns
  virtual std::string row_stride(NodeId n, int64_t stride) const { (void)n; return std::to_string(stride); }
  /// How far a column of a result, or an element of a row that is reduced, is from the first: a stride, or runs (Param::run).
  static std::string column_place(const Param& a, int64_t stride, const std::string& column);
  std::string result_pointer(NodeId output) const;   ///< of this block's product of a batch
  std::string slice_text(int64_t stride) const { return stride ? fmt::format(" + {} * int64_t({})", batch_, stride) : ""; }
  const char* weight_type(const Stage& weight) const { return cuda_type(tensor(weight).dtype); }

  // ---- products by number
  const Stage& product(size_t i) const { return *m_.products()[i]; }
  const Stage& weight_of(size_t product) const { return m_.weight(this->product(product)); }
  int weight_number(size_t product) const { return MatrixStages::number(m_.weights(), &weight_of(product)); }
  int number(const Stage* product) const { return MatrixStages::number(m_.products(), product); }
  bool is_tf32(size_t product) const {
    const UnitId u = this->product(product).unit;
    return u == UnitId::kSyncTf32 || u == UnitId::kWgmmaTf32;
  }
  MatrixStages::Gained gained(size_t i) const { return m_.gained(m_.second_factors()[i]); }

  /// What multiplies the ranks of product i behind the loop, fetched: `type` with one number per rank, of which `ranks` exist. Nothing
  /// where there is no such factor.
  void declare_gain(size_t i, const std::string& type, int64_t ranks);
  std::string gain(size_t i) const;
  /// A total as the text names it: the product's own sum, where it is nothing else, or linear in several.
  void declare_total(size_t i, const std::string& type);

  /// A map's text, from its operands' by `element`; quotients as quotient_text says.
  std::string map(ValueId v, const std::function<std::string(ValueId)>& element) const;
  bool narrow_results() const;                           ///< all results are stored in 16 bits
  bool only_multiplied(ValueId v) const;                 ///< v goes nowhere but into products' operands, which have 11 bits at most
  static const char* reduce_type(ReduceFn fn) { return fn == ReduceFn::kSum ? "Sum" : "Max"; }
  const char* reduce_type(const Stage& s) const { return reduce_type(m_.function(s)); }

  /// The expression v of the loop, eight neighbours along the reduction at a time; what comes before it is added to `statements`.
  std::string loop_element(ValueId v, std::string& statements) const;
  /// Text of a value that the loop finds (an input, a reduction of whole rows), as a pack of eight or a single value.
  virtual std::string loop_leaf(ValueId v) const = 0;

  // ---- the tail: everything elementwise, once per item (runtime/41_stream.cuh) of row m and column c, number t of its thread's
  enum class Shape : uint8_t { kScalar, kRows, kCols, kBoth };
  Shape shape(ValueId v) const {
    return has(v, m_.rows()) ? has(v, m_.columns()) ? Shape::kBoth : Shape::kRows : has(v, m_.columns()) ? Shape::kCols : Shape::kScalar;
  }
  void declare_tail_loads();   ///< e{node}: what the tail reads from device memory, a place per item
  std::string tail_loads();    ///< statements that fill them for item t
  void tail_results();         ///< stores of all results
  virtual void store_result(NodeId output, const std::string& text);   ///< of the item
  virtual std::string sum_item(size_t total) const = 0;   ///< a finished total, Pack<4>
  virtual std::string statistic_parts() const = 0;      ///< how many partial results each row's statistic has in `statistics`
  virtual std::string statistic_row() const { return "m"; }   ///< the item's first row in `statistics`, of padded_rows()
  virtual std::string padded_rows() const { return "(8 * kRows)"; }
  virtual bool loads_late() const { return false; }           ///< e{node} are read item by item in the tail, and are no arrays
  virtual int column_step() const { return 8; }         ///< from an item's first column to its second
  /// items have rows and columns the other way round: two neighbouring columns of two rows, 8 apart. Without statistics
  virtual bool turned() const { return false; }
  /// A value of rows that is made of their statistics alone. inverted: all that read it divide by it, and multiply by what is kept instead.
  struct RowValue { ValueId value = -1; bool inverted = false; };
  /// Those that the tail reads, where they have room in the place of the statistics and are not only these.
  std::vector<RowValue> row_values() const;
  /// The row's, from its statistics by name; what comes before it is added to `statements`.
  std::string row_value(const RowValue& x, std::string& statements) const;
  std::string stepped(const char* function) const { return column_step() == 8 ? function : fmt::format("{}<{}>", function, column_step()); }

  const KernelProgram& p_;
  const Derived& d_;
  const Graph& g_;
  const MatrixStages m_;
  std::string batch_ = "batch_id()";   ///< which product of a batch is at work
  std::vector<RowValue> made_;         ///< row_values(), where the kernel keeps them instead of statistics

 private:
  std::string loop_element(ValueId v, std::string& statements, std::map<ValueId, std::string>& known) const;
  std::string tail_element(ValueId v, std::map<ValueId, std::string>& known);
  int made_at(ValueId v) const;        ///< in made_; -1: it is not there
  bool has_inverse(ValueId v) const;   ///< whether 1 / v is a float32 number wherever results in 16 bits need it
  std::string row_text(ValueId v, std::string& statements, std::set<ValueId>& known) const;
};

/// Which of these stages makes v; -1: none.
int maker(const MatrixStages&, const std::vector<const Stage*>&, ValueId v);

/// The map of a weight, which lies as `a` says and has `extent` columns, or that rank, but for its buffer: boxes of 64 along its lines;
/// `columns` of its columns and `depth` of the reduction at once. packed: the same bytes in lines of 128.
TensorMapText weight_map(const MatrixStages&, const Stage& weight, const Param& a, int64_t extent, int columns, int64_t depth,
                         bool packed = false);
/// Whether lines of a weight lie along the reduction.
bool is_depth_major(const MatrixStages&, const Stage& weight, const Param& a);

}  // namespace mirage::schedule

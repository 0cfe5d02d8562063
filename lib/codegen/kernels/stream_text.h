// What the emitters of stream and tile kernels share (strategies on one structure, plan/stream.h): names and places of values, elementwise
// text of the loop, and the whole of the tail.
#pragma once
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "codegen/kernels/cuda_text.h"
#include "mirage/plan/stream.h"

namespace mirage {

/// Writes text; a strategy says where its sums and statistics are to be found.
class StreamText {
 public:
  explicit StreamText(const StreamShape& shape) : s_(shape), g_(shape.body) {}
  virtual ~StreamText() = default;
  /// Inputs that are read through pointers, not through a tensor map.
  std::set<int> pointer_params() const;

 protected:
  using Axis = StreamAxis;
  template <class... T>
  void line(fmt::format_string<T...> f, T&&... args) {
    out_ += indent_ + fmt::format(f, std::forward<T>(args)...) + "\n";
  }
  template <class... T> void open(fmt::format_string<T...> f, T&&... args) { line(f, std::forward<T>(args)...); indent_ += "  "; }
  void close(const char* text = "}") { indent_.resize(indent_.size() - 2); line("{}", text); }

  static size_t at(int i) { return static_cast<size_t>(i); }
  bool is_weight(NodeId n) const;
  /// Whether the kernel gets input n as a tensor map.
  virtual bool mapped(NodeId n) const { return is_weight(n); }
  int param(NodeId n) const { return g_.form<Input>(n)->param; }
  const Access& access(NodeId n) const { return s_.operands[at(param(n))]; }
  bool has(ValueId v, Axis a) const;
  ValueId value(NodeId n) const { return g_.node(n).first_value; }
  static int64_t stride_of(const Access& a, const std::vector<Axis>& axes, Axis which);
  int64_t stride(NodeId n, Axis a) const { return stride_of(access(n), s_.axes[at(value(n))], a); }
  std::string pointer(NodeId n) const {
    return fmt::format("(const {}*)in{} + {}{}", cuda_type(access(n).dtype), param(n), offset(n, access(n).offset),
                       slice_text(stride(n, Axis::kBatch)));
  }
  /// from where in{param} or out{result} points, of an input or of an output's result
  virtual int64_t offset(NodeId n, int64_t elements) const { (void)n; return elements; }
  /// from one row to the next of an input, or of an output's result, that has columns
  virtual std::string row_stride(NodeId n, int64_t stride) const { (void)n; return std::to_string(stride); }
  /// How far a column of a result, or an element of a row that is reduced, is from the first: a stride, or runs (Access::run).
  static std::string column_place(const Access& a, int64_t stride, const std::string& column);
  std::string result_pointer(NodeId output) const;   ///< of this block's product of a batch
  std::string slice_text(int64_t stride) const { return stride ? fmt::format(" + {} * int64_t({})", batch_, stride) : ""; }
  const char* weight_type(const StreamWeight& w) const { return cuda_type(access(w.input).dtype); }
  NodeId stored_input(ValueId v) const;   ///< behind v's transposes; -1: v is computed

  void leaves(ValueId v, std::set<NodeId>& out) const;   ///< inputs that the expression v reads, in order
  bool is_known(ValueId v) const;                        ///< what the loop, or the time before it, leaves behind
  std::set<NodeId> loop_leaves() const;
  std::set<NodeId> tail_leaves() const;
  int uses(int contraction) const;                       ///< sums that it is part of

  /// What multiplies the ranks of product i, fetched: `type` with one number per rank, of which `ranks` exist. Nothing where there is no
  /// such factor.
  void declare_gain(size_t i, const std::string& type, int64_t ranks);
  std::string gain(size_t i) const { return s_.products[i].gained() ? fmt::format("gain{}", i) : "NoGain()"; }

  /// A map's text, from its operands' by `element`; quotients as quotient_text says.
  std::string map(ValueId v, const std::function<std::string(ValueId)>& element) const;
  bool narrow_results() const;                           ///< all results are stored in 16 bits
  bool only_multiplied(ValueId v) const;                 ///< v goes nowhere but into products' operands, which have 11 bits at most
  static const char* reduce_type(ReduceFn fn) { return fn == ReduceFn::kSum ? "Sum" : "Max"; }

  /// The expression v of the loop, eight neighbours along the reduction at a time; what comes before it is added to `statements`.
  std::string loop_element(ValueId v, std::string& statements) const;
  /// Text of a value that the loop finds (an input, a reduction of whole rows), as a pack of eight or a single value.
  virtual std::string loop_leaf(ValueId v) const = 0;

  // ---- the tail: everything elementwise, once per item (runtime/41_stream.cuh) of row m and column c, number t of its thread's
  enum class Shape : uint8_t { kScalar, kRows, kCols, kBoth };
  Shape shape(ValueId v) const {
    return has(v, Axis::kRow) ? has(v, Axis::kCol) ? Shape::kBoth : Shape::kRows : has(v, Axis::kCol) ? Shape::kCols : Shape::kScalar;
  }
  void declare_tail_loads();   ///< e{node}: what the tail reads from device memory, a place per item
  std::string tail_loads();    ///< statements that fill them for item t
  void tail_results();         ///< stores of all results
  virtual void store_result(NodeId output, const std::string& text);   ///< of the item
  virtual std::string sum_item(size_t sum) const = 0;   ///< a finished sum, Pack<4>
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

  const StreamShape& s_;
  const Graph& g_;
  std::string out_, indent_ = "  ";
  std::string batch_ = "batch_id()";   ///< which product of a batch is at work
  std::vector<RowValue> made_;         ///< row_values(), where the kernel keeps them instead of statistics

 private:
  std::string loop_element(ValueId v, std::string& statements, std::map<ValueId, std::string>& known) const;
  std::string tail_element(ValueId v, std::map<ValueId, std::string>& known);
  int statistic_of(ValueId v) const;   ///< -1: it is none
  int made_at(ValueId v) const;        ///< in made_; -1: it is not there
  bool has_inverse(ValueId v) const;   ///< whether 1 / v is a float32 number wherever results in 16 bits need it
  std::string row_text(ValueId v, std::string& statements, std::set<ValueId>& known) const;
};

/// The map of a weight: boxes of 64 along its lines; `columns` of its columns and `depth` of the reduction at once.
struct TensorMapText;
TensorMapText stream_weight_map(const StreamShape&, const StreamWeight&, int columns, int depth, bool even_first = false);

}  // namespace mirage

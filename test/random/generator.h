// The generator of random specs: generator.cc draws values, inputs and whole specs, operators.cc has a function per operator of
// lib/spec/operators/operators.def, programs.cc the programs that people write.
#pragma once
#include <cctype>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mirage/ir/eval.h"
#include "mirage/support/hash.h"
#include "random/spec.h"

namespace mirage::test {

using Extents = std::vector<int64_t>;

/// Whether an operand is a value, not a number.
inline bool is_name(const std::string& operand) { return std::isalpha(static_cast<unsigned char>(operand[0])) != 0; }

/// A value that can be an operand, and what it is on the drawn inputs: exactly, and with every value so far rounded as coarsely as kernels
/// may.
struct Value {
  std::string name;
  Dims dims;
  /// exact: no kernel rounds it, so that comparisons have one answer
  bool is_bool = false, exact = false, masked = false, positive = false;
  Tensor<double> sample, rough;
  int rank() const { return dims.rank(); }
  int64_t elements() const { return dims.elements(); }
};


class Generator {
 public:
  explicit Generator(uint64_t seed);
  RandomSpec take();
  static const std::map<std::string, void (Generator::*)()>& table();
  using ModelStep = std::function<void(Generator&, const std::string&)>;
  /// operators that are made of others: every fourth seed draws them, so that the other seeds stay what they were
  static const std::vector<std::pair<std::string, ModelStep>>& models();

 private:
  // choices
  uint64_t below(uint64_t n) { return rng_.below(n); }
  bool one_in(uint64_t n) { return rng_.below(n) == 0; }
  template <class T> const T& pick(const std::vector<T>& v) { return v[below(v.size())]; }
  std::string pick(std::initializer_list<const char*> v) { return *(v.begin() + below(v.size())); }
  int64_t any_extent() { return pick(extents_); }
  Value any(int min_rank = 0, bool allow_masked = false);
  std::string constant() { return pick({"0.5", "-1.25", "2", "0.125", "1", "-0.75", "3"}); }
  std::string axes_attr(int rank, bool keepdim_too);

  // the program
  Value input(const Extents& dims, const std::string& kind = "");
  std::optional<Value> node(const std::string& op, std::vector<std::string> operands, const std::string& attrs = "");
  const Value* find(const std::string& name) const;
  Extents dims_of(const Value& v) const { return Extents(v.dims.begin(), v.dims.end()); }
  Value partner(const Value& x);      ///< something that broadcasts with x
  Value positive(const Value& x);     ///< from x, at least about a quarter
  std::optional<Value> exact_value(); ///< for comparisons
  std::optional<Value> condition(const Value& like);

  // operators
  void unary(const std::string& op) { node(op, {any().name}); }
  void binary(const std::string& op);
  void reduction(const std::string& op) { const Value x = any(1, op == "max"); node(op, {x.name}, axes_attr(x.rank(), true)); }
  void comparison(const std::string& op);
  void norm(const std::string& op, const std::string& eps);
  void matmul();
  void einsum();
  void add() { binary("add"); }
  void sub() { binary("sub"); }
  void mul() { binary("mul"); }
  void maximum() { binary("maximum"); }
  void minimum() { binary("minimum"); }
  void div();
  void pow();
  void neg() { unary("neg"); }
  void exp() {
    const Value x = any(0, true);
    if (x.masked || one_in(2)) node("exp", {x.name});
    else if (auto t = node("tanh", {x.name})) node("exp", {t->name});
  }
  void log() { node("log", {positive(any()).name}); }
  void sqrt() { node("sqrt", {positive(any()).name}); }
  void rsqrt() { node("rsqrt", {positive(any()).name}); }
  void square() { unary("square"); }
  void abs() { unary("abs"); }
  void sigmoid() { node("sigmoid", {any(0, true).name}); }
  void silu() { unary("silu"); }
  void gelu() { node("gelu", {any().name}, one_in(2) ? "\"approximate\": \"tanh\"" : ""); }
  void relu() { node("relu", {any(0, true).name}); }
  void tanh() { unary("tanh"); }
  void clamp();
  void equal() { comparison("equal"); }
  void less() { comparison("less"); }
  void greater() { comparison("greater"); }
  void where();
  void sum() { reduction("sum"); }
  void mean() { reduction("mean"); }
  void max() { reduction("max"); }
  void softmax() { const Value x = any(1, true); node("softmax", {x.name}, axes_attr(x.rank(), false)); }
  void rms_norm() { norm("rms_norm", "1e-3"); }
  void layer_norm() { norm("layer_norm", "1e-3"); }
  void group_norm();
  void batch_norm();
  void l2_norm() { const Value x = any(1); node("l2_norm", {x.name}, axes_attr(x.rank(), false)); }
  void transpose();
  void reshape();
  void repeat() {
    const Value x = any(1, true);
    node("repeat", {x.name}, fmt::format("\"axis\": {}, \"count\": {}", below(static_cast<uint64_t>(x.rank())), 1 + below(3)));
  }
  void concat();
  void slice();
  void cast();
  void causal_mask();
  void iota();
  void extent();

  // operators of models (models.cc)
  void model_step();
  void gated_pair(const std::string& op);
  void linear();
  void rope();
  void heads();
  void image(const std::string& op);
  void by_index(const std::string& op);
  void moved(const std::string& op);
  void of_positive(const std::string& op) { node(op, {positive(any()).name}); }
  void of_exact(const std::string& op) { node(op, {exact_value()->name}); }
  void along(const std::string& op) {
    const Value x = op.starts_with("arg") ? *exact_value() : any(1);
    if (x.rank() > 0) node(op, {x.name}, fmt::format("\"axis\": {}", below(static_cast<uint64_t>(x.rank()))));
  }

  // programs people write
  void attention(bool large = false);
  void small_attention() { attention(); }
  void gated();
  void adapters();
  void few_rows();

  Rng rng_;
  RandomSpec spec_;
  Extents extents_;
  std::vector<Value> values_;
  std::string dtype_;
  double unit_ = 0;
  bool draws_models_ = false;
  size_t next_model_ = 0;
};

}  // namespace mirage::test

// The meaning of a graph, once, for any algebra: doubles give the reference, finite fields the fingerprint. Blocks and loop iterations are
// executed one after another, with tiles clipped to the tensor, as Partition says.
//
// An algebra A has: using Value; Value constant(double); add sub mul div (V,V); neg exp log sqrt abs tanh erf sin cos floor nearest (V);
// max min pow equal less (V,V); select(V,V,V); round(V, DType).
// Optional: gemm (a faster product), arbitrary(): a fresh finite value, unlike any before. An algebra that has it (fields, where no order
// exists) takes it for every value of every running maximum: what then agrees with a graph without maxima agrees whatever the maxima are.
// equal and less return constant(1) or constant(0) in number algebras. Methods need not be const (fields note a zero denominator in
// themselves).
#pragma once
#include <limits>
#include <span>
#include <vector>
#include "mirage/ir/graph.h"

namespace mirage {

template <class V> struct Tensor {
  Dims dims;
  std::vector<V> data;   ///< row-major
  Tensor() = default;
  Tensor(Dims d, V fill) : dims(d), data(static_cast<size_t>(d.elements()), fill) {}
};

/// Values of one node from its operands' values, for every form but Input, Output, Call, Running, Accum. Shapes come from the operands
/// (tiles may be clipped), so op's own static type is not used; but a Reshape's operand is whole (evaluate_call knows what is clipped).
template <class A> Tensor<typename A::Value> evaluate_op(const Op& op, std::span<const Tensor<typename A::Value>* const> operands, A& a);

/// All results of a kernel-level graph, by result number, as exact values of the algebra (Output's rounding is applied through a.round if
/// round_outputs).
template <class A>
std::vector<Tensor<typename A::Value>> evaluate(const Graph& g, std::span<const Tensor<typename A::Value>> params, A& a,
                                                bool round_outputs = false);

/// Results of one block graph over the whole launch. operand values by param; whole-tensor result types as result_types gives them.
template <class A>
std::vector<Tensor<typename A::Value>> evaluate_call(const Graph& body, std::span<const Tensor<typename A::Value>* const> operands, A& a);

/// Real numbers as doubles: the oracle.
struct DoubleAlgebra {
  using Value = double;
  double constant(double c) { return c; }
  double add(double x, double y) { return x + y; }
  double sub(double x, double y) { return x - y; }
  double mul(double x, double y) { return x * y; }
  double div(double x, double y) { return x / y; }
  double neg(double x) { return -x; }
  double exp(double);
  double log(double);
  double sqrt(double);
  double abs(double x) { return x < 0 ? -x : x; }
  double tanh(double);
  double erf(double);
  double sin(double);
  double cos(double);
  double floor(double);
  double nearest(double);               ///< whole number, ties to even
  double max(double x, double y) { return x != x || y != y ? x + y : (x < y ? y : x); }
  double min(double x, double y) { return x != x || y != y ? x + y : (y < x ? y : x); }
  double pow(double, double);
  double equal(double x, double y) { return x == y; }
  double less(double x, double y) { return x < y; }
  double select(double c, double x, double y) { return c != 0 ? x : y; }
  double round(double, DType);          ///< to the nearest value of the dtype, ties to even, overflow to infinity
};

double round_to(double x, DType);       ///< nearest value of the dtype

}  // namespace mirage

#include "mirage/ir/eval_impl.h"

// The CUDA-text algebra: maps.def's formulas become expressions over the device library's functions (namespace mo). Nothing here knows what an operator means.
#pragma once
#include <string>
#include <vector>
#include "mirage/ir/op.h"

namespace mirage {

struct CudaText {
  using Value = std::string;
  Value constant(double c);   ///< "constant(0.5f)": hexadecimal float, so that nothing is lost beyond float32
  Value add(const Value& x, const Value& y) { return "add(" + x + ", " + y + ")"; }
  Value sub(const Value& x, const Value& y) { return "sub(" + x + ", " + y + ")"; }
  Value mul(const Value& x, const Value& y) { return "mul(" + x + ", " + y + ")"; }
  Value div(const Value& x, const Value& y) { return "div(" + x + ", " + y + ")"; }
  Value neg(const Value& x) { return "neg(" + x + ")"; }
  Value exp(const Value& x) { return "exp(" + x + ")"; }
  Value log(const Value& x) { return "log(" + x + ")"; }
  Value sqrt(const Value& x) { return "sqrt(" + x + ")"; }
  Value abs(const Value& x) { return "abs(" + x + ")"; }
  Value tanh(const Value& x) { return "tanh(" + x + ")"; }
  Value erf(const Value& x) { return "erf(" + x + ")"; }
  Value max(const Value& x, const Value& y) { return "max(" + x + ", " + y + ")"; }
  Value min(const Value& x, const Value& y) { return "min(" + x + ", " + y + ")"; }
  Value pow(const Value& x, const Value& y) { return "pow(" + x + ", " + y + ")"; }
  Value equal(const Value& x, const Value& y) { return "equal(" + x + ", " + y + ")"; }
  Value less(const Value& x, const Value& y) { return "less(" + x + ", " + y + ")"; }
  Value select(const Value& c, const Value& x, const Value& y) { return "select(" + c + ", " + x + ", " + y + ")"; }
  Value round(const Value& x, DType t) { return std::string("round_to<") + dtype_name(t) + ">(" + x + ")"; }
};

/// `fn` applied to operand texts (names of variables: operands may be repeated), as an expression in namespace mo; the table's faster spelling where it has one.
std::string map_text(MapFn fn, const std::vector<std::string>& operands);

/// The C++ spelling of a storage type in namespace mo.
inline const char* cuda_type(DType t) { return t == DType::kF16 ? "f16" : t == DType::kBF16 ? "bf16" : t == DType::kBool ? "b8" : "f32"; }

}  // namespace mirage

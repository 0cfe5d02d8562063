// CUDA text as an algebra: maps.def's formulas evaluated over expressions of the device library (namespace mo). Used by every emitter, so
// that no emitter has an opinion of its own of what an elementwise function means.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "mirage/ir/op.h"
#include "mirage/plan/plan.h"
#include "mirage/schedule/program.h"

namespace mirage {

/// The device library's name of a storage type.
inline const char* storage_type(DType t) {
  switch (t) {
    case DType::kF16: return "mo::f16";
    case DType::kBF16: return "mo::bf16";
    case DType::kBool: return "mo::b8";
    case DType::kI32: return "mo::i32";
    case DType::kI64: return "mo::i64";
    case DType::kF32: case DType::kReal: return "mo::f32";
  }
  return "";
}

struct CudaText {
  using Value = std::string;
  static Value call(const char* f, const Value& x) { return fmt::format("mo::{}({})", f, x); }
  static Value call(const char* f, const Value& x, const Value& y) { return fmt::format("mo::{}({}, {})", f, x, y); }
  Value constant(double c);   ///< rounded to float32, which nine digits name exactly
  Value add(const Value& x, const Value& y) { return call("add", x, y); }
  Value sub(const Value& x, const Value& y) { return call("sub", x, y); }
  Value mul(const Value& x, const Value& y) { return call("mul", x, y); }
  Value div(const Value& x, const Value& y) { return call("div", x, y); }
  Value neg(const Value& x) { return call("neg", x); }
  Value exp(const Value& x) { return call("exp", x); }
  Value log(const Value& x) { return call("log", x); }
  Value sqrt(const Value& x) { return call("sqrt", x); }
  Value abs(const Value& x) { return call("abs", x); }
  Value tanh(const Value& x) { return call("tanh", x); }
  Value erf(const Value& x) { return call("erf", x); }
  Value sin(const Value& x) { return call("sin", x); }
  Value cos(const Value& x) { return call("cos", x); }
  Value floor(const Value& x) { return call("floor", x); }
  Value nearest(const Value& x) { return call("nearest", x); }
  Value max(const Value& x, const Value& y) { return call("max", x, y); }
  Value min(const Value& x, const Value& y) { return call("min", x, y); }
  Value pow(const Value& x, const Value& y) { return call("pow", x, y); }
  Value equal(const Value& x, const Value& y) { return call("equal", x, y); }
  Value less(const Value& x, const Value& y) { return call("less", x, y); }
  Value select(const Value& c, const Value& x, const Value& y) { return fmt::format("mo::select({}, {}, {})", c, x, y); }
  Value round(const Value& x, DType t) { return fmt::format("mo::round_to<{}>({})", storage_type(t), x); }
};

/// `fn` applied to operand texts (names of variables: operands may be repeated), as an expression in namespace mo; the table's faster
/// spelling where it has one. `narrow`: the result only goes where 16-bit numbers are stored, so that 2^-16 of it is free: functions of a
/// third of the instructions.
std::string map_text(MapFn fn, const std::vector<std::string>& operands, bool narrow = false);

/// What an emitter knows of a quotient's divisor.
struct DivisorText {
  std::string text;
  std::optional<double> constant;   ///< it is this number
  std::string root_of;              ///< it is the square root of this; empty: it is not
  bool many = false;                ///< one number divides many
};
/// x divided by y. By a power of two: the product, which is the same number. `narrow`: the result only goes where 16-bit numbers are
/// stored, so two units in the last place of float32 are free: a division by a root is a product with its reciprocal, and many divisions by
/// one number are products with theirs. Elsewhere many divisions by one number share a reciprocal, too, and what their product leaves is
/// divided again (a division in float32 takes a dozen instructions and a subroutine, fetched cold).
std::string quotient_text(const std::string& x, const DivisorText& y, bool narrow);

/// What is written to a result: a buffer whose readers want TF32 is rounded on the way.
inline const char* result_type(DType t, bool tf32) { return tf32 ? "mo::tf32" : storage_type(t); }
inline const char* result_type(const Access& a) { return result_type(a.dtype, a.tf32); }

/// The C++ spelling of a storage type inside namespace mo.
inline const char* cuda_type(DType t) { return storage_type(t) + 4; }
/// The same of what is written to a result: a buffer whose readers want TF32 is rounded on the way.
inline const char* cuda_type(const Access& a) { return a.tf32 ? "tf32" : cuda_type(a.dtype); }
inline const char* cuda_type(const schedule::Param& a) { return a.tf32 ? "tf32" : cuda_type(a.dtype); }

}  // namespace mirage

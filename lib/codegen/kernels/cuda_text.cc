// Constants and map functions as CUDA text.
#include "codegen/kernels/cuda_text.h"

#include <cmath>
#include <cstdio>

namespace mirage {

std::string CudaText::constant(double c) {
  if (std::isnan(c)) return "mo::constant(mo::sub(mo::infinity(), mo::infinity()))";
  if (std::isinf(c) || std::fabs(c) > 3.4028235677973366e38)
    return c < 0 ? "mo::constant(mo::neg(mo::infinity()))" : "mo::constant(mo::infinity())";
  char buf[64];
  std::snprintf(buf, sizeof buf, "mo::constant(%.9gf)", static_cast<double>(static_cast<float>(c)));   // 9 digits name every float32
  std::string s = buf;
  if (s.find('.') == std::string::npos && s.find('e') == std::string::npos) s.insert(s.size() - 2, ".0");
  return s;
}

namespace {

/// The device library's function for results that are stored in 16 bits (00_base.cuh); "": it has none.
const char* narrow_function(MapFn fn) {
  switch (fn) {
    case MapFn::kExp: return "exp_narrow";
    case MapFn::kExpm1: return "expm1_narrow";
    case MapFn::kLog1p: return "log1p_narrow";
    case MapFn::kSigmoid: return "sigmoid_narrow";
    case MapFn::kSilu: return "silu_narrow";
    case MapFn::kTanh: return "tanh_narrow";
    case MapFn::kGelu: return "gelu_narrow";
    case MapFn::kGeluTanh: return "gelu_tanh_narrow";
    default: return "";
  }
}

}  // namespace

std::string map_text(MapFn fn, const std::vector<std::string>& operands, bool narrow) {
  const char* function = narrow && *narrow_function(fn) ? narrow_function(fn) : map_info(fn).cuda;
  if (*function) {
    std::string s = std::string("mo::") + function + "(";
    for (size_t i = 0; i < operands.size(); i++) s += (i ? ", " : "") + operands[i];
    return s + ")";
  }
  CudaText a;
  const std::string none;
  return apply_map(fn, a, operands[0], operands.size() > 1 ? operands[1] : none, operands.size() > 2 ? operands[2] : none);
}

std::string quotient_text(const std::string& x, const DivisorText& y, bool narrow) {
  int exponent;
  if (y.constant && std::fabs(std::frexp(*y.constant, &exponent)) == 0.5 && std::abs(exponent) < 100)
    return map_text(MapFn::kMul, {x, CudaText().constant(1 / *y.constant)});
  if (narrow && !y.root_of.empty()) return map_text(MapFn::kMul, {x, map_text(MapFn::kRsqrt, {y.root_of})});
  if (y.many && !y.constant) return fmt::format("mo::divide({}, mo::{}({}))", x, narrow ? "divisor" : "near_divisor", y.text);
  return map_text(MapFn::kDiv, {x, y.text});
}

}  // namespace mirage

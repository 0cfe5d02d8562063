// Real arithmetic of the oracle and rounding to storage types.
#include "mirage/ir/eval.h"

#include <bit>
#include <cmath>
#include <cstdint>

namespace mirage {

double DoubleAlgebra::exp(double x) { return std::exp(x); }
double DoubleAlgebra::log(double x) { return std::log(x); }
double DoubleAlgebra::sqrt(double x) { return std::sqrt(x); }
double DoubleAlgebra::tanh(double x) { return std::tanh(x); }
double DoubleAlgebra::erf(double x) { return std::erf(x); }
double DoubleAlgebra::sin(double x) { return std::sin(x); }
double DoubleAlgebra::cos(double x) { return std::cos(x); }
double DoubleAlgebra::floor(double x) { return std::floor(x); }
double DoubleAlgebra::nearest(double x) { return std::nearbyint(x); }   // the default rounding mode: ties to even
double DoubleAlgebra::pow(double x, double y) { return std::pow(x, y); }
double DoubleAlgebra::round(double x, DType t) { return round_to(x, t); }

/// Rounds to `digits` significant bits, ties to even; below the smallest normal number, 2^(min_exp-1), with its ulp (denormals), above
/// `largest` infinity.
static double round_binary(double x, int digits, int min_exp, double largest) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int e = static_cast<int>(std::bit_cast<uint64_t>(x) >> 52 & 0x7ff) - 1022;   // |x| in [2^(e-1), 2^e)
  const int ulp = std::max(e, min_exp) - digits;
  // 1.5 * 2^52 ulps: a sum with it has no digits below an ulp
  const double big = std::bit_cast<double>(static_cast<uint64_t>(ulp + 52 + 1023) << 52 | uint64_t{1} << 51);
  const double r = std::fabs((x + big) - big);
  return std::copysign(r > largest ? INFINITY : r, x);
}

double round_to(double x, DType t) {
  switch (t) {
    case DType::kF16: case DType::kBF16: return round_binary(x, type_info(t).digits, type_info(t).least_exponent, type_info(t).largest);
    case DType::kF32: return static_cast<double>(static_cast<float>(x));
    case DType::kBool: return x != 0;
    case DType::kI32: case DType::kI64: return std::nearbyint(x);   // whole numbers already
    case DType::kReal: return x;
  }
  return x;
}

}  // namespace mirage

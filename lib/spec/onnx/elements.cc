// The elements of a model's small tensors, as the numbers that were meant.
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include "spec/onnx/importer.h"

namespace mirage::onnx {

namespace {

/// IEEE half precision.
double half_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, digits = bits & 1023;
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == 31) return digits ? std::nan("") : sign * HUGE_VAL;
  return sign * (exponent ? std::ldexp(1024 + digits, exponent - 25) : std::ldexp(digits, -24));
}

constexpr double kSqrt2OverPi = 0.79788456080286535588;  // as maps.def writes it

/// To the nearest number of so many significant bits (the type's normal range; its subnormal numbers have a fixed step).
double rounded(double x, int bits, int least_exponent) {
  int exponent = 0;
  std::frexp(x, &exponent);
  const int step = std::max(exponent, least_exponent) - bits;
  return std::ldexp(std::nearbyint(std::ldexp(x, -step)), step);
}

}  // namespace

double meant(double x, DType type) {
  const TypeInfo& t = type_info(type);
  if (!std::isfinite(x) || x == 0 || t.digits == 0 || std::fabs(x) == t.largest) return x;
  const auto rounds_to_it = [&](double y) { return rounded(y, t.digits, t.least_exponent) == x; };
  constexpr int kFew = 3, kMost = 16;
  for (int digits = 0; digits <= kMost; ++digits) {
    const double y = std::strtod(fmt::format("{:.{}e}", x, digits).c_str(), nullptr);
    if (digits >= kFew)
      for (double known : {kSqrt2, kSqrtHalf, kSqrt2OverPi})
        if (rounds_to_it(std::copysign(known, x))) return std::copysign(known, x);
    if (rounds_to_it(y)) return y;
  }
  return x;
}

namespace {

size_t bytes_of(int type) {
  switch (type) {
    case kFloat:
    case kInt32: return 4;
    case kInt64:
    case kDouble: return 8;
    case kFloat16:
    case kBFloat16: return 2;
    case kBoolean:
    case kUInt8:
    case kInt8: return 1;
    default: return 0;
  }
}

double element(int type, const char* at) {
  uint64_t bits = 0;
  std::memcpy(&bits, at, bytes_of(type));
  switch (type) {
    case kFloat: {
      float x;
      std::memcpy(&x, at, 4);
      return meant(x, DType::kF32);
    }
    case kDouble: {
      double x;
      std::memcpy(&x, at, 8);
      return x;
    }
    case kInt32: return static_cast<int32_t>(static_cast<uint32_t>(bits));
    case kInt64: return static_cast<double>(static_cast<int64_t>(bits));
    case kFloat16: return meant(half_value(static_cast<uint16_t>(bits)), DType::kF16);
    case kBFloat16: {
      const auto wide = static_cast<uint32_t>(bits) << 16;
      float x;
      std::memcpy(&x, &wide, 4);
      return meant(x, DType::kBF16);
    }
    case kInt8: return static_cast<int8_t>(static_cast<uint8_t>(bits));
    default: return static_cast<double>(bits);
  }
}

}  // namespace

std::optional<Constant> read_elements(const TensorData& t, std::string_view raw) {
  const int64_t n = t.elements();
  if (n < 0 || n > kMostKnown || bytes_of(t.type) == 0) return std::nullopt;
  Constant c{t.dims, {}};
  const size_t bytes = bytes_of(t.type), count = static_cast<size_t>(n);
  if (!raw.empty() || count == 0) {
    if (raw.size() < count * bytes) return std::nullopt;
    for (size_t i = 0; i < count; ++i) c.data.push_back(element(t.type, raw.data() + i * bytes));
  } else if (t.reals.size() == count) {
    for (double x : t.reals) c.data.push_back(t.type == kFloat ? meant(x, DType::kF32) : x);
  } else if (t.ints.size() == count) {
    for (int64_t x : t.ints) {
      const auto bits = static_cast<uint16_t>(x);
      char two[2];
      std::memcpy(two, &bits, 2);
      c.data.push_back(t.type == kFloat16 || t.type == kBFloat16 ? element(t.type, two) : static_cast<double>(x));
    }
  } else {
    return std::nullopt;
  }
  return c;
}

}  // namespace mirage::onnx

// Names and arithmetic of tensor types.
#include "mirage/ir/types.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace mirage {
namespace {
constexpr TypeInfo kTypes[] = {
#define MIRAGE_TYPE(id, name, long_name, bytes, kind, digits, least, largest) \
  {#name, #long_name, bytes, TypeClass::kind, digits, least, largest},
#include "mirage/ir/types.def"
};
}  // namespace

const TypeInfo& type_info(DType t) { return kTypes[static_cast<size_t>(t)]; }
const char* dtype_name(DType t) { return type_info(t).name; }
const char* dtype_long_name(DType t) { return type_info(t).long_name; }
int dtype_bytes(DType t) { return type_info(t).bytes; }
double unit_roundoff(DType t) { return type_info(t).digits > 0 ? std::ldexp(1.0, -type_info(t).digits) : 0; }

std::optional<DType> parse_dtype(std::string_view s) {
  for (size_t i = 0; i < std::size(kTypes); i++)
    if (s == kTypes[i].name || s == kTypes[i].long_name) return static_cast<DType>(i);
  return std::nullopt;
}

std::string to_string(const Dims& d) {
  std::string s = "[";
  for (int i = 0; i < d.rank(); i++) s += (i ? "," : "") + std::to_string(d[i]);
  return s + "]";
}

std::string to_string(const Type& t) { return dtype_name(t.dtype) + to_string(t.dims); }

Dims row_major_strides(const Dims& d) {
  Dims s = d;
  int64_t step = 1;
  for (int i = d.rank() - 1; i >= 0; i--) { s[i] = step; step *= d[i]; }
  return s;
}

std::optional<Dims> broadcast(const Dims& a, const Dims& b) {
  const Dims& longer = a.rank() >= b.rank() ? a : b;
  const Dims& shorter = a.rank() >= b.rank() ? b : a;
  Dims out = longer;
  const int shift = longer.rank() - shorter.rank();
  for (int i = 0; i < shorter.rank(); i++) {
    const int64_t x = longer[i + shift], y = shorter[i];
    if (x != y && x != 1 && y != 1) return std::nullopt;
    out[i + shift] = x == 1 ? y : x;
  }
  return out;
}

}  // namespace mirage

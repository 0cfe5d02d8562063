// Tensor types: element type and dimensions. Values, cheap to copy, compared structurally.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include "mirage/support/assert.h"

namespace mirage {

inline constexpr int kMaxRank = 8;

/// kReal is an exact real number: what intermediates of a program are. Only stored tensors (inputs, outputs, casts) have a machine type;
/// comparisons give kBool.
enum class DType : uint8_t {
#define MIRAGE_TYPE(id, name, long_name, bytes, kind, digits, least, largest) id,
#include "mirage/ir/types.def"
};

enum class TypeClass : uint8_t { kHalf, kSingle, kTruth, kWhole, kExact };

/// A row of types.def.
struct TypeInfo {
  const char *name, *long_name;
  int bytes;
  TypeClass kind;
  int digits, least_exponent;
  double largest;
};
const TypeInfo& type_info(DType);
const char* dtype_name(DType);                       ///< short: "f16", "bf16", "f32", "bool", "real", "i32", "i64"
const char* dtype_long_name(DType);                  ///< "float16", "bfloat16", "float32", "bool", "real"
std::optional<DType> parse_dtype(std::string_view);  ///< accepts both; never kReal from user text unless spelled "real"
inline bool is16(DType t) { return type_info(t).kind == TypeClass::kHalf; }
inline bool is_whole(DType t) { return type_info(t).kind == TypeClass::kWhole; }
/// storing a real number in it may change it
inline bool rounds(DType t) { return type_info(t).kind == TypeClass::kHalf || type_info(t).kind == TypeClass::kSingle; }
int dtype_bytes(DType);                              ///< kReal: 4 (it is stored as f32 when it must be stored)
double unit_roundoff(DType);                         ///< half an ulp at 1: what rounding to the type may cost, relatively; 0 for kBool

/// Up to kMaxRank extents. An extent is at least 1 in a graph; clipped tiles during evaluation may have 0.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> d) { for (int64_t x : d) push_back(x); }
  int rank() const { return rank_; }
  int size() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  int64_t& operator[](int i) { MIRAGE_DCHECK(i >= 0 && i < rank_); return d_[i]; }
  int64_t operator[](int i) const { MIRAGE_DCHECK(i >= 0 && i < rank_); return d_[i]; }
  int64_t back() const { return (*this)[rank_ - 1]; }
  void push_back(int64_t x) { MIRAGE_ASSERT(rank_ < kMaxRank) << "rank over 8"; d_[rank_++] = x; }
  const int64_t* begin() const { return d_.data(); }
  const int64_t* end() const { return d_.data() + rank_; }
  int64_t* begin() { return d_.data(); }
  int64_t* end() { return d_.data() + rank_; }
  int64_t elements() const { int64_t n = 1; for (int64_t x : *this) n *= x; return n; }   ///< product; 1 for rank 0
  friend bool operator==(const Dims& a, const Dims& b) { return a.rank_ == b.rank_ && std::equal(a.begin(), a.end(), b.begin()); }
 private:
  std::array<int64_t, kMaxRank> d_{};
  int rank_ = 0;
};
std::string to_string(const Dims&);                  ///< "[16,4096]"
Dims row_major_strides(const Dims&);                 ///< in elements

struct Type {
  DType dtype = DType::kReal;
  Dims dims;
  friend bool operator==(const Type&, const Type&) = default;
};
std::string to_string(const Type&);                  ///< "f16[16,4096]"

/// NumPy broadcasting of two shapes; nullopt if they do not fit.
std::optional<Dims> broadcast(const Dims&, const Dims&);

}  // namespace mirage

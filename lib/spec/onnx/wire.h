// The wire format of protocol buffers, read from bytes that come from anywhere: fields one after another, each a number, a kind and a
// value. Every length is checked; nothing is copied.
#pragma once
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

namespace mirage::onnx {

/// One field. kind 0: a varint; 1 and 5: 8 and 4 bytes, in `number`; 2: bytes, in `bytes`.
struct Field {
  uint32_t id = 0;
  uint32_t kind = 0;
  uint64_t number = 0;
  std::string_view bytes;
  int64_t integer() const { return static_cast<int64_t>(number); }
};

/// Goes through the fields of a message. After the last next(), ok() says whether the bytes were a message to their end.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}
  std::optional<Field> next();
  bool ok() const { return ok_; }

 private:
  bool varint(uint64_t& out);
  bool fixed(size_t bytes, uint64_t& out);
  std::string_view rest_;
  bool ok_ = true;
};

/// Appends the numbers of a repeated field, which stand packed in bytes or one by one. False: they do not end with the bytes.
bool add_varints(const Field&, std::vector<int64_t>& out);
bool add_floats(const Field&, std::vector<double>& out);   ///< float: 4 bytes each
bool add_doubles(const Field&, std::vector<double>& out);  ///< double: 8 bytes each

inline float as_float(uint64_t bits) {
  const auto low = static_cast<uint32_t>(bits);
  float x;
  std::memcpy(&x, &low, sizeof x);
  return x;
}

}  // namespace mirage::onnx

#include "spec/onnx/wire.h"

namespace mirage::onnx {

bool WireReader::varint(uint64_t& out) {
  out = 0;
  for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    out |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool WireReader::fixed(size_t bytes, uint64_t& out) {
  if (rest_.size() < bytes) return false;
  out = 0;
  for (size_t i = 0; i < bytes; ++i) out |= static_cast<uint64_t>(static_cast<unsigned char>(rest_[i])) << (8 * i);
  rest_.remove_prefix(bytes);
  return true;
}

std::optional<Field> WireReader::next() {
  if (!ok_ || rest_.empty()) return std::nullopt;
  Field f;
  uint64_t tag = 0;
  ok_ = varint(tag) && tag >> 3 != 0 && tag >> 3 < (uint64_t{1} << 29);
  if (!ok_) return std::nullopt;
  f.id = static_cast<uint32_t>(tag >> 3);
  f.kind = static_cast<uint32_t>(tag & 7);
  switch (f.kind) {
    case 0: ok_ = varint(f.number); break;
    case 1: ok_ = fixed(8, f.number); break;
    case 5: ok_ = fixed(4, f.number); break;
    case 2: {
      uint64_t length = 0;
      ok_ = varint(length) && length <= rest_.size();
      if (!ok_) break;
      f.bytes = rest_.substr(0, length);
      rest_.remove_prefix(length);
      break;
    }
    default: ok_ = false;  // groups have been gone since before ONNX
  }
  if (!ok_) return std::nullopt;
  return f;
}

bool add_varints(const Field& f, std::vector<int64_t>& out) {
  if (f.kind == 0) {
    out.push_back(f.integer());
    return true;
  }
  if (f.kind != 2) return false;
  std::string_view rest = f.bytes;
  while (!rest.empty()) {
    uint64_t value = 0;
    bool is_whole = false;
    for (unsigned shift = 0; shift < 64 && !rest.empty() && !is_whole; shift += 7) {
      const auto byte = static_cast<unsigned char>(rest.front());
      rest.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      is_whole = byte < 0x80;
    }
    if (!is_whole) return false;
    out.push_back(static_cast<int64_t>(value));
  }
  return true;
}

bool add_floats(const Field& f, std::vector<double>& out) {
  if (f.kind == 5) {
    out.push_back(as_float(f.number));
    return true;
  }
  if (f.kind != 2 || f.bytes.size() % 4 != 0) return false;
  for (size_t at = 0; at < f.bytes.size(); at += 4) {
    float x;
    std::memcpy(&x, f.bytes.data() + at, sizeof x);
    out.push_back(x);
  }
  return true;
}

bool add_doubles(const Field& f, std::vector<double>& out) {
  double x;
  if (f.kind == 1) {
    std::memcpy(&x, &f.number, sizeof x);
    out.push_back(x);
    return true;
  }
  if (f.kind != 2 || f.bytes.size() % 8 != 0) return false;
  for (size_t at = 0; at < f.bytes.size(); at += 8) {
    std::memcpy(&x, f.bytes.data() + at, sizeof x);
    out.push_back(x);
  }
  return true;
}

}  // namespace mirage::onnx

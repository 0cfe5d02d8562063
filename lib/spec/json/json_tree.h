// JSON text as a tree in which every key and value knows its place. nlohmann/json 3.11 reads (its SAX side), but its own tree keeps no
// places, keeps the last of two equal keys and lets large integers decay to floats; this one refuses those.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
#include "spec/report.h"

namespace mirage::spec {

inline constexpr size_t kMaxBytes = size_t{16} << 20;
inline constexpr int kMaxDepth = 64;
inline constexpr size_t kMaxValues = 1'000'000;   ///< bounds the tree's memory, which is many times the text's

enum class JsonKind : uint8_t { kNull, kBool, kInt, kFloat, kString, kArray, kObject };
const char* kind_name(JsonKind);   ///< "a number", "an object", ... as diagnostics say it

struct JsonMember;

struct JsonValue {
  JsonKind kind = JsonKind::kNull;
  bool flag = false;                  ///< kBool
  /// kString: written without escapes, so that byte i of `text` is byte span.offset + 1 + i of the source
  bool plain = false;
  Span span;                          ///< the token; for arrays and objects the opening bracket
  int64_t integer = 0;                ///< kInt
  double number = 0;                  ///< kInt and kFloat
  std::string text;                   ///< kString: the content
  std::vector<JsonValue> items;       ///< kArray
  std::vector<JsonMember> members;    ///< kObject, in the order of the text, keys distinct
  const JsonMember* find(std::string_view key) const;
};

struct JsonMember { std::string key; Span key_span; JsonValue value; };

/// nullopt if the text is not JSON at all; other mistakes (duplicate keys, numbers out of range) are reported too and leave a usable tree.
std::optional<JsonValue> read_json(std::string_view text, Report&);

/// The first byte that is not UTF-8 (or is NUL), if any.
std::optional<size_t> find_bad_utf8(std::string_view text);

}  // namespace mirage::spec

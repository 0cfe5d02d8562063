// The one reader of JSON that is not a spec: certificates, caches, locks, baselines, what tools print. Bounded, because such files come
// from anywhere: nlohmann/json copies and prints values recursively, and its ordered objects look for a key from the front, so depth and
// size are looked at while the text is read.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "mirage/support/result.h"

namespace mirage {

struct JsonLimits {
  int64_t bytes = int64_t{128} << 20;   ///< locks of large projects have many MB
  int64_t values = 4'000'000;           ///< arrays, objects and what is in them; bounds memory
  int depth = 64;
  /// values that are nested deeper become null instead of an error: a lock's other entries are nobody's concern
  bool cut_deep = false;
};

/// The text as a value, keys in their order. `file`: for places; `code`: of the diagnostic where the text is no JSON, is over a limit or
/// has a key twice in an object (with line and column).
Result<nlohmann::ordered_json> read_json_text(std::string_view text, const std::string& file, DiagCode code, const JsonLimits& = {});

/// A file's. Errors: kFileMissing (it cannot be read, or is none that ends: a pipe), else as read_json_text.
Result<nlohmann::ordered_json> read_json_file(const std::string& path, DiagCode code, const JsonLimits& = {});

/// A text of our own, which is JSON or else our bug.
nlohmann::ordered_json own_json(const std::string& text);

/// What another process of this command wrote, a report or an outcome; nullopt: it is no object, or over the limits.
std::optional<nlohmann::ordered_json> read_own_json(const std::string& text, const std::string& file);

}  // namespace mirage

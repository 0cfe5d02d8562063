// The folder of --cache beside decisions (driver/evidence/reuse.h): libraries and what compilers said, by the content of what they were
// made from. Everything here may be gone the next moment: a miss costs time only.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "mirage/support/options.h"

namespace mirage {

inline bool uses_cache(const Options& o) { return !o.cache.empty() && !o.no_cache; }

/// 32 hex digits of everything that a product depends on.
std::string content_key(std::string_view text);

/// Where a product lies.
std::string product_path(const Options&, const std::string& kind, const std::string& key);
/// A product kept under its key; nullopt if it is not there, or is not what was put there (its own hash stands before it). kind: "lib",
/// "facts", "gate".
std::optional<std::string> from_cache(const Options&, const std::string& kind, const std::string& key);
/// Keeps it; what cannot be written is left.
void put_into_cache(const Options&, const std::string& kind, const std::string& key, const std::string& bytes);

/// The entry was used just now.
void touch_in_cache(const std::string& path);
/// Removes entries, those not used for longest first, until all together have at most so many bytes; `kept` stays.
void trim_cache(const std::string& folder, int64_t bytes, const std::string& kept);

}  // namespace mirage

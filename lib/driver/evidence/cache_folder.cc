// See the header.
#include "driver/evidence/cache_folder.h"

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "mirage/support/file.h"
#include "mirage/support/hash.h"

namespace mirage {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kMostProduct = int64_t{1} << 30;   // of one product

/// Files that a cache has: 16 hex digits and .json, or KIND-32 hex digits. Others in its folder are not ours.
bool is_entry(const std::string& name) {
  const auto is_hex = [](std::string_view s, size_t digits) {
    return s.size() == digits && s.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  };
  if (name.ends_with(".json")) return is_hex(std::string_view(name).substr(0, name.size() - 5), 16);
  const size_t dash = name.find('-');
  return dash != std::string::npos && is_hex(std::string_view(name).substr(dash + 1), 32);
}

}  // namespace

std::string product_path(const Options& o, const std::string& kind, const std::string& key) {
  return (fs::path(o.cache) / (kind + "-" + key)).string();
}

std::string content_key(std::string_view text) {
  return fmt::format("{:016x}{:016x}", hash_text(text, 0x6d697261), hash_text(text, 0x67656f70));
}

std::optional<std::string> from_cache(const Options& o, const std::string& kind, const std::string& key) {
  if (!uses_cache(o)) return std::nullopt;
  const std::string path = product_path(o, kind, key);
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return std::nullopt;
  const auto read = read_file(path, kMostProduct);
  constexpr size_t kHead = 33;   // the hash and a line's end
  if (!read || read->size() < kHead || read->substr(0, kHead - 1) != content_key(std::string_view(*read).substr(kHead)))
    return std::nullopt;
  touch_in_cache(path);
  return read->substr(kHead);
}

void put_into_cache(const Options& o, const std::string& kind, const std::string& key, const std::string& bytes) {
  if (!uses_cache(o)) return;
  std::error_code error;
  fs::create_directories(o.cache, error);
  const std::string path = product_path(o, kind, key);
  if (write_file(path, content_key(bytes) + "\n" + bytes).empty()) trim_cache(o.cache, o.cache_size << 20, path);
}

void touch_in_cache(const std::string& path) {
  std::error_code ignored;   // of a cache that cannot be written
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
}

void trim_cache(const std::string& folder, int64_t bytes, const std::string& kept) {
  struct Entry { fs::file_time_type used; std::string path; int64_t bytes; };
  const FolderLock held(folder, 200);
  if (held.is_refused()) return;   // whoever has it trims, or is stuck; the next compilation tries again
  std::error_code error;
  std::vector<Entry> entries;
  int64_t all = 0;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;   // by another process
    if (!is_entry(at->path().filename().string()) || !at->is_regular_file(gone)) continue;
    const auto size = at->file_size(gone);
    const auto used = gone ? fs::file_time_type() : at->last_write_time(gone);
    if (gone) continue;
    entries.push_back({used, at->path().string(), static_cast<int64_t>(size)});
    all += entries.back().bytes;
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return std::tie(a.used, a.path) < std::tie(b.used, b.path); });
  for (const Entry& e : entries) {
    if (all <= bytes) break;
    if (fs::path(e.path).filename() == fs::path(kept).filename()) continue;
    fs::remove(e.path, error);
    all -= e.bytes;
  }
}

}  // namespace mirage

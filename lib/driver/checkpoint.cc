// Files of --checkpoint; see the header.
#include "driver/checkpoint.h"

#include <filesystem>

#include <fmt/format.h>

#include "mirage/support/file.h"
#include "mirage/support/hash.h"

namespace mirage {

namespace {

constexpr const char* kMagic = "mirage-opt checkpoint 1";
constexpr int64_t kMostBytes = int64_t{1} << 30;
constexpr auto kEvery = std::chrono::seconds(1);

Diagnostic bad(const std::string& path, const std::string& text) { return {Severity::kError, DiagCode::kCheckpoint, {path, 0, 0, 1}, text, {{{}, "remove the file to begin anew"}}}; }

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& path, const std::string& about) {
  Checkpoint c;
  c.state_->path = path;
  c.state_->about = about;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    c.state_->changed = true;   // there will be a file that says whose it is, even if no step was worth keeping
    return c;
  }
  auto text = read_file(path, kMostBytes);
  if (!text) return text.errors();
  if (!text->starts_with(kMagic)) return bad(path, "this is no checkpoint of mirage-opt");
  const size_t last = text->size() > 1 ? text->rfind('\n', text->size() - 2) : std::string::npos;
  if (last == std::string::npos || text->back() != '\n' || text->substr(last + 1) != fmt::format("end {:016x}\n", hash_text(std::string_view(*text).substr(0, last + 1)))) return bad(path, "the checkpoint is damaged");
  size_t at = text->find('\n') + 1;
  const size_t about_end = text->find('\n', at);
  if (text->substr(at, about_end - at) != about) return bad(path, fmt::format("the checkpoint is of another run: {} there, {} here", text->substr(at, about_end - at), about));
  for (at = about_end + 1; at <= last;) {
    const size_t end = text->find('\n', at), tab = text->find('\t', at);
    if (tab == std::string::npos || tab > end) return bad(path, "the checkpoint is damaged");
    c.state_->known.emplace(text->substr(at, tab - at), text->substr(tab + 1, end - tab - 1));
    at = end + 1;
  }
  return c;
}

void Checkpoint::connect(SearchOptions& o) {
  o.remembered = [state = state_](const std::string& key) -> std::optional<std::string> {
    std::lock_guard lock(state->mutex);
    const auto it = state->known.find(key);
    return it == state->known.end() ? std::nullopt : std::optional(it->second);
  };
  o.remember = [state = state_](const std::string& key, const std::string& outcome) {
    std::lock_guard lock(state->mutex);
    state->known[key] = outcome;
    state->changed = true;
    if (std::chrono::steady_clock::now() - state->written > kEvery) (void)state->write();   // a disk that is full now may not be at the end, where it is said
  };
}

Diagnostics Checkpoint::write() {
  std::lock_guard lock(state_->mutex);
  return state_->write();
}

Diagnostics Checkpoint::State::write() {
  if (!changed) return {};
  std::string text = fmt::format("{}\n{}\n", kMagic, about);
  for (const auto& [key, outcome] : known) text += key + "\t" + outcome + "\n";
  text += fmt::format("end {:016x}\n", hash_text(text));
  Diagnostics errors = write_file(path, text);
  changed = !errors.empty();
  written = std::chrono::steady_clock::now();
  return errors;
}

}  // namespace mirage

// Files of --checkpoint; see the header.
#include "driver/evidence/checkpoint.h"

#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "mirage/spec/json_text.h"
#include "mirage/support/file.h"
#include "mirage/support/hash.h"

namespace mirage {

namespace {

constexpr const char* kSchema = "mirage-opt checkpoint 2";
constexpr size_t kMostKept = 20'000, kMostOutcome = 4'000;   // together less than the reader takes; what is not kept is made again
constexpr auto kEvery = std::chrono::seconds(1);

Diagnostic bad(const std::string& path, const std::string& text) {
  return {Severity::kError, DiagCode::kCheckpoint, {path, 0, 0, 1}, text, {{{}, "remove the file to begin anew"}}};
}

std::string quoted(const std::string& s) {
  return nlohmann::json(s).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

/// The file: a line of JSON for every step, and a sum over all before it.
std::string text_of(const std::string& about, const std::map<std::string, std::string>& known) {
  std::string text = fmt::format("{{\"schema\": \"{}\",\n\"about\": {},\n\"steps\": {{", kSchema, quoted(about));
  const char* before = "\n";
  for (const auto& [key, outcome] : known) {
    text += before + quoted(key) + ": " + quoted(outcome);
    before = ",\n";
  }
  text += "},\n";
  return text + fmt::format("\"sum\": \"{:016x}\"}}\n", hash_text(text));
}

const std::string* string_at(const nlohmann::ordered_json& j, const char* key) {
  const auto it = j.is_object() ? j.find(key) : j.end();
  return it != j.end() && it->is_string() ? it->get_ptr<const std::string*>() : nullptr;
}

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
  const auto text = read_file(path, JsonLimits{}.bytes);
  if (!text) return text.errors();
  const auto j = read_json_text(*text, path, DiagCode::kCheckpoint);
  const std::string* schema = j ? string_at(*j, "schema") : nullptr;
  if (!schema || *schema != kSchema)
    return bad(path, "this is no checkpoint of this mirage-opt" + (j ? std::string() : ": " + j.errors().front().text));
  const std::string* its_about = string_at(*j, "about");
  const auto steps = j->find("steps");
  if (!its_about || steps == j->end() || !steps->is_object()) return bad(path, "the checkpoint is damaged");
  for (const auto& [key, outcome] : steps->items()) {
    if (!outcome.is_string()) return bad(path, "the checkpoint is damaged");
    c.state_->known.emplace(key, outcome.get<std::string>());
  }
  if (text_of(*its_about, c.state_->known) != *text) return bad(path, "the checkpoint is damaged");
  if (*its_about != about) return bad(path, fmt::format("the checkpoint is of another run: {} there, {} here", *its_about, about));
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
    if (state->known.size() >= kMostKept || key.size() + outcome.size() > kMostOutcome) return;
    state->known[key] = outcome;
    state->changed = true;
    // a disk that is full now may not be at the end, where it is said
    if (std::chrono::steady_clock::now() - state->written > kEvery) (void)state->write();
  };
}

Diagnostics Checkpoint::write() {
  std::lock_guard lock(state_->mutex);
  return state_->write();
}

Diagnostics Checkpoint::State::write() {
  if (!changed) return {};
  Diagnostics errors = write_file(path, text_of(about, known));
  changed = !errors.empty();
  written = std::chrono::steady_clock::now();
  return errors;
}

}  // namespace mirage

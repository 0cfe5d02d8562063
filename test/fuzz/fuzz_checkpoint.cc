// libFuzzer target: any text as a checkpoint, and its lines as the steps of one whose sum is right.
#include <algorithm>
#include <filesystem>
#include <map>
#include <string>

#include <unistd.h>

#include "driver/evidence/checkpoint.h"
#include "mirage/support/assert.h"
#include "mirage/support/file.h"
#include "search/remembered.h"

using namespace mirage;

namespace {

/// What a checkpoint gives for the keys of a text's lines: outcomes that are read or refused one by one.
void read_outcomes(Checkpoint& c, const std::map<std::string, std::string>& lines) {
  SearchOptions o;
  c.connect(o);
  for (const auto& [key, unused] : lines) {
    const auto outcome = o.remembered(key);
    if (!outcome) continue;
    if (const auto read = search::read_outcome(*outcome)) {
      const auto again = search::write_outcome(read->outcome, read->had);
      MIRAGE_ASSERT(again && search::read_outcome(*again)) << "an outcome does not read back: " << *outcome;
    }
  }
}

std::map<std::string, std::string> lines_of(const std::string& text) {
  std::map<std::string, std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size()), tab = text.find('\t', at);
    if (tab < end) out.insert_or_assign(text.substr(at, tab - at), text.substr(tab + 1, end - tab - 1));
    at = end + 1;
  }
  return out;
}

/// The text as the whole file, of the run that it names.
void read_whole(const std::string& path, const std::string& text) {
  MIRAGE_ASSERT(write_file(path, text).empty()) << "no place for the file";
  const std::string label = "\"about\": \"";
  const size_t at = text.find(label) == std::string::npos ? text.size() : text.find(label) + label.size();
  auto c = Checkpoint::open(path, text.substr(at, text.find('"', at) - at));
  if (c.ok()) return read_outcomes(*c, {{"", ""}});
  for (const Diagnostic& d : c.errors()) MIRAGE_ASSERT(!render(d, text).empty()) << "an empty diagnostic";
}

/// Its lines as steps, written by the checkpoint itself: the sum is right.
void read_steps(const std::string& path, const std::string& text) {
  const auto lines = lines_of(text);
  std::filesystem::remove(path);
  auto first = Checkpoint::open(path, "about");
  MIRAGE_ASSERT(first.ok()) << "no file is no error";
  SearchOptions o;
  first->connect(o);
  for (const auto& [key, outcome] : lines) o.remember(key, outcome);
  MIRAGE_ASSERT(first->write().empty()) << "no place for the file";
  if (auto again = Checkpoint::open(path, "about"); again.ok()) read_outcomes(*again, lines);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string path = (std::filesystem::temp_directory_path() / ("fuzz_checkpoint." + std::to_string(getpid()))).string();
  const std::string text(reinterpret_cast<const char*>(data), size);
  read_whole(path, text);
  read_steps(path, text);
  return 0;
}

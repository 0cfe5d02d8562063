// libFuzzer target: any text as a checkpoint, and as the body of one whose sum is right. What is read must give outcomes that are read or refused one by one.
#include <filesystem>
#include <unistd.h>

#include <fmt/format.h>

#include "driver/checkpoint.h"
#include "mirage/support/assert.h"
#include "mirage/support/file.h"
#include "mirage/support/hash.h"
#include "search/remembered.h"

using namespace mirage;

namespace {

void read_back(const std::string& path, const std::string& text) {
  MIRAGE_ASSERT(write_file(path, text).empty()) << "no place for the file";
  auto c = Checkpoint::open(path, "about");
  if (!c.ok()) {
    for (const Diagnostic& d : c.errors()) MIRAGE_ASSERT(!render(d, text).empty()) << "an empty diagnostic";
    return;
  }
  SearchOptions o;
  c->connect(o);
  for (size_t at = 0; at < text.size(); at = std::min(text.find('\n', at), text.size() - 1) + 1) {   // every key that a line may have
    const size_t tab = text.find('\t', at);
    if (tab == std::string::npos) break;
    const auto outcome = o.remembered(text.substr(at, tab - at));
    if (!outcome) continue;
    if (const auto read = search::read_outcome(*outcome)) {
      const auto again = search::write_outcome(read->outcome, read->had);
      MIRAGE_ASSERT(again && search::read_outcome(*again)) << "an outcome does not read back: " << *outcome;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string path = (std::filesystem::temp_directory_path() / ("fuzz_checkpoint." + std::to_string(getpid()))).string();
  const std::string text(reinterpret_cast<const char*>(data), size);
  read_back(path, text);
  const std::string whole = "mirage-opt checkpoint 1\nabout\n" + text + (text.ends_with('\n') ? "" : "\n");
  read_back(path, whole + fmt::format("end {:016x}\n", hash_text(whole)));
  return 0;
}

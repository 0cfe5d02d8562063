// libFuzzer target: any text as a lock, or as a cache's entry (first byte odd). What is recalled was verified again; anything else is
// refused or as if it were not there.
#include <filesystem>
#include <unistd.h>

#include "driver/evidence/reuse.h"
#include "fuzz/fuzzed.h"
#include "mirage/ir/target.h"
#include "mirage/support/assert.h"
#include "mirage/support/file.h"

using namespace mirage;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const std::string folder = (std::filesystem::temp_directory_path() / ("fuzz_reuse." + std::to_string(getpid()))).string(),
                           key = "0123456789abcdef";
  const bool is_cache = data[0] & 1;
  std::filesystem::create_directories(folder);
  Options o;
  (is_cache ? o.cache : o.lock) = is_cache ? folder : folder + "/lock.json";
  MIRAGE_ASSERT(
      write_file(is_cache ? folder + "/" + key + ".json" : o.lock, std::string(reinterpret_cast<const char*>(data + 1), size - 1)).empty())
      << "no place for the file";
  static const Folding folding = fold_verified(test::fuzzed_program());
  std::vector<std::string> notes;
  auto r = recall(folding, *find_target("sm_90a"), o, key, notes);
  if (!r.ok()) {
    MIRAGE_ASSERT(!is_cache) << "a cache's entry is an error";
    for (const Diagnostic& d : r.errors()) MIRAGE_ASSERT(!render(d, "").empty()) << "an empty diagnostic";
  } else if (*r) {
    for (const Choice& c : (*r)->choices.best) MIRAGE_ASSERT(!check_laws(c.graph)) << "a graph that breaks the laws was recalled";
  }
  return 0;
}

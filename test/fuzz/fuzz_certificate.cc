// libFuzzer target: any text as a certificate. What is read is checked against the program of the corpus (fuzzed.h): it must be refused or
// hold, and never end the process. --check-certificate gets it with other files beside it.
#include <filesystem>
#include <unistd.h>

#include "driver/evidence/certificate_file.h"
#include "driver/output/family_files.h"
#include "fuzz/fuzzed.h"
#include "mirage/driver/modes.h"
#include "mirage/support/assert.h"
#include "mirage/support/file.h"

using namespace mirage;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Source source{"/nowhere/fuzz.json", std::string(reinterpret_cast<const char*>(data), size)};
  static const std::filesystem::path folder = [] {
    const auto f = std::filesystem::temp_directory_path() / ("fuzz_certificate." + std::to_string(getpid()));
    std::filesystem::create_directories(f);
    for (const char* name : {"fuzzed.cu", "fuzzed.h", "fuzzed.graph", "report.json"})
      MIRAGE_ASSERT(write_file((f / name).string(), "beside it\n").empty()) << "no place for files";
    return f;
  }();
  const ModeResult whole = check_certificate(Source{(folder / "certificate.json").string(), source.text}, {test::fuzzed_spec()}, Options{});
  MIRAGE_ASSERT(whole.exit == ExitCode::kOk || !whole.diagnostics.empty()) << "refused without a word";
  if (auto family = read_family_certificate(source); !family.ok()) {
    MIRAGE_ASSERT(!family.errors().empty()) << "refused without a word";
  }
  auto c = read_certificate(source);
  if (!c.ok()) {
    MIRAGE_ASSERT(!c.errors().empty()) << "refused without a word";
    for (const Diagnostic& d : c.errors()) MIRAGE_ASSERT(!render(d, source.text).empty()) << "an empty diagnostic";
    return 0;
  }
  MIRAGE_ASSERT(!check_laws(c->graph)) << "a graph that breaks the laws was read";
  for (const Diagnostic& d : check_certificate(source, {test::fuzzed_spec()}, Options{}).diagnostics)
    MIRAGE_ASSERT(!render(d, source.text).empty()) << "an empty diagnostic";
  return 0;
}

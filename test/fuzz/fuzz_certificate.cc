// libFuzzer target: any text as a certificate. What is read is checked against the program of the corpus (fuzzed.h): it must be refused or hold, and never end the process.
#include "driver/certificate_file.h"
#include "fuzz/fuzzed.h"
#include "mirage/driver/modes.h"
#include "mirage/support/assert.h"

using namespace mirage;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Source source{"/nowhere/fuzz.json", std::string(reinterpret_cast<const char*>(data), size)};
  auto c = read_certificate(source);
  if (!c.ok()) {
    MIRAGE_ASSERT(!c.errors().empty()) << "refused without a word";
    for (const Diagnostic& d : c.errors()) MIRAGE_ASSERT(!render(d, source.text).empty()) << "an empty diagnostic";
    return 0;
  }
  MIRAGE_ASSERT(!check_laws(c->graph)) << "a graph that breaks the laws was read";
  for (const Diagnostic& d : check_certificate(source, {test::fuzzed_spec()}, Options{}).diagnostics) MIRAGE_ASSERT(!render(d, source.text).empty()) << "an empty diagnostic";
  return 0;
}

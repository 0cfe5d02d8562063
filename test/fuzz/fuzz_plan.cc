// libFuzzer target: any text as a µGraph or spec for --run=plan. It has a plan or a diagnostic; it never ends the process. Mutations by
// words keep most texts readable.
#include <cstring>

#include "fuzz/mutated_text.h"
#include "mirage/driver/modes.h"
#include "mirage/support/assert.h"

using namespace mirage;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Source source{"fuzz.mg", std::string(reinterpret_cast<const char*>(data), size)};
  const ModeResult r = run_stage("plan", source, Options{}, {});
  MIRAGE_ASSERT(r.exit == ExitCode::kOk ? !r.text.empty() : !r.diagnostics.empty()) << "neither a plan nor a word";
  for (const Diagnostic& d : r.diagnostics) MIRAGE_ASSERT(!render(d, source.text).empty()) << "an empty diagnostic";
  return 0;
}

#ifdef MIRAGE_LIBFUZZER
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  if (seed % 16 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::string text = test::mutated_words({reinterpret_cast<const char*>(data), size}, seed);
  const size_t n = std::min(text.size(), max_size);
  std::memcpy(data, text.data(), n);
  return n;
}
#endif

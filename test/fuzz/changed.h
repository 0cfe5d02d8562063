// The fuzz targets as they are linked without libFuzzer (LLVMFuzzerTestOneInput renamed by CMake), and the changes that the suite and
// fuzz_run make of a corpus.
#pragma once
#include <map>
#include <string>

#include "fuzz/mutated_text.h"

#define FUZZ_TARGETS(X) X(json) X(text) X(certificate) X(reuse) X(checkpoint) X(baseline) X(plan) X(verify) X(schedule) X(onnx)
#define FUZZ_DECLARE(name) extern "C" int fuzz_one_##name(const uint8_t* data, size_t size);
FUZZ_TARGETS(FUZZ_DECLARE)
#undef FUZZ_DECLARE

namespace mirage::test {

using FuzzTarget = int (*)(const uint8_t* data, size_t size);

/// A byte changed, a piece left out or doubled, the end cut off, or words exchanged.
inline std::string changed(const std::string& text, uint64_t seed) {
  Rng rng(seed);
  if (rng.below(3) == 0 || text.size() < 2) return mutated_words(text, seed);
  std::string s = text;
  const size_t at = rng.below(s.size()), n = 1 + rng.below(std::min<size_t>(40, s.size() - at));
  switch (rng.below(4)) {
    case 0: s[at] = static_cast<char>(rng.below(256)); break;
    case 1: s.erase(at, n); break;
    case 2: s.insert(at, s.substr(rng.below(s.size()), n)); break;
    default: s.resize(at); break;
  }
  return s;
}

}  // namespace mirage::test

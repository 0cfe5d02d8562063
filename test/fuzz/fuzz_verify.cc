// libFuzzer target: a seed (8 bytes) as a pair of graphs with known truth (test/trust/random), both ways round through --verify. What
// differs is never Equal, what is equal never Different.
#include <cstring>

#include "mirage/support/assert.h"
#include "trust/random/judge.h"

using namespace mirage;
using namespace mirage::test;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint64_t seed = 0;
  std::memcpy(&seed, data, std::min(size, sizeof seed));
  const auto p = random_pair(seed);
  if (!p || p->change == "unreadable" || p->size != Size::kSmall) return 0;
  for (size_t first : {0U, 1U}) {
    const Answer a = ask(p->graphs[first], p->graphs[1 - first], static_cast<int64_t>(seed >> 12));
    MIRAGE_ASSERT(a.exit == ExitCode::kOk || a.exit == ExitCode::kNotEqual || a.exit == ExitCode::kNothingFound)
        << "no verdict: " << a.text;
    MIRAGE_ASSERT(a.exit != (p->truth == Truth::kDifferent ? ExitCode::kOk : ExitCode::kNotEqual))
        << "seed " << seed << (first ? " B A: " : " A B: ") << a.text << describe(*p);
  }
  return 0;
}

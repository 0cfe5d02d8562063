// random_pairs: --verify on random pairs with known truth, by the thousand (docs/verification.md).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include <fmt/format.h>

#include "trust/random/judge.h"

using namespace mirage;
using namespace mirage::test;

namespace {
constexpr const char* kUsage =
    "random_pairs [--count N] [--seed S]   judges N pairs with seeds S, S+1, ...; wrong verdicts with their graphs, then a table. A pair "
    "may take 60 s of CPU time\nrandom_pairs --print S               the pair of a seed\n";
}

int main(int argc, char** argv) {
  uint64_t count = 100, seed = 1;
  for (int i = 1; i < argc; i++) {
    const char* next = i + 1 < argc ? argv[i + 1] : "";
    if (!std::strcmp(argv[i], "--count")) count = std::strtoull(next, nullptr, 10), i++;
    else if (!std::strcmp(argv[i], "--seed")) seed = std::strtoull(next, nullptr, 10), i++;
    else if (!std::strcmp(argv[i], "--print")) {
      const auto p = random_pair(std::strtoull(next, nullptr, 10));
      fmt::print("{}", p ? describe(*p) : "no pair comes of this seed\n");
      return p ? 0 : 1;
    } else {
      fmt::print("{}", kUsage);
      return 2;
    }
  }
  PairTally tally;
  int told = 0;
  for (uint64_t s = seed; tally.pairs < static_cast<int>(count) && s < seed + 20 * count; s++) {
    judge_apart(s, 60, tally, [](const std::string& text) {
      fmt::print("{}\n", text);
      std::fflush(stdout);
    });
    if (tally.pairs / 200 == told) continue;
    told = tally.pairs / 200;
    fmt::print(stderr, "{} pairs, next seed {}: {} wrong verdicts, {} stuck or crashed\n", tally.pairs, s + 1, tally.wrong, tally.stuck);
  }
  fmt::print("{}", tally.table());
  return tally.wrong || tally.stuck ? 1 : 0;
}

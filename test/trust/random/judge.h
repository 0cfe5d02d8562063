// What --verify says of random pairs, counted.
#pragma once
#include <functional>
#include <map>
#include <string>

#include "trust/random/pairs.h"

namespace mirage::test {

struct PairTally {
  int pairs = 0, wrong = 0, none = 0, unreadable = 0;
  std::map<std::string, std::map<std::string, int>> by_kind;   ///< truth (and what was broken) -> verdict -> how many
  std::map<std::string, int> open;                             ///< laws of equal pairs that ended Unknown
  double slowest = 0;
  uint64_t slowest_seed = 0;
  std::string table() const;
};
std::string describe(const RandomPair&);
/// Both ways round. Wrong verdicts are told.
void judge(uint64_t seed, PairTally&, const std::function<void(const std::string&)>& tell);

}  // namespace mirage::test

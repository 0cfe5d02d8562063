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
  int stuck = 0;                                               ///< seeds that took longer than a child may
  std::string table() const;
  std::string written() const;                                 ///< to add it to another one, in another process
  void add(const std::string& written);
};
std::string describe(const RandomPair&);
/// judge() in a process of its own that may take so many seconds of CPU time: what does not end, or crashes, is told.
void judge_apart(uint64_t seed, int seconds, PairTally&, const std::function<void(const std::string&)>& tell);
/// Both ways round. Wrong verdicts are told.
void judge(uint64_t seed, PairTally&, const std::function<void(const std::string&)>& tell);

}  // namespace mirage::test

// What searches found, for programs that differ in extents only (the values of var axes): structures are over witness extents, so where two
// programs have the same witnesses, what was found and verified for one is a structure of the other. It gets numbers, a plan, a proof and a
// gate of its own. Used by search_and_verify (decide_program.cc) and by pieces (partition.cc).
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>
#include "driver/decide/candidates.h"

namespace mirage {

/// Filled program by program: what one finds is known from the next on, so that nothing depends on the order in which threads search the
/// pieces of one. Calls may come from any thread.
class SearchMemory {
 public:
  /// parent: what knows and keeps; this one counts, for a program that is worked on beside others.
  explicit SearchMemory(SearchMemory* parent = nullptr) : parent_(parent) {}

  struct Found { std::vector<Candidate> candidates; SearchReport report; };

  /// What a search depends on besides the program's own extents. `round`: pieces are searched with more states in a second one.
  static std::string problem_of(const Program&, const Witnesses&, int round);

  /// What an earlier program found for the problem; of several the one that shares most extents. The structures look extents up in
  /// `unshifted` (what is searched); the report counts nothing.
  std::optional<Found> find(const std::string& problem, const Program& program, const Program& unshifted);
  /// A search that ended by itself; others (time, memory, an interrupt) are not kept.
  void keep(const std::string& problem, const Program& program, const std::vector<Candidate>&, const SearchReport&);
  /// What was kept since the last call is known from now on.
  void next_program();
  /// A search that is made although the memory has an answer.
  void count_search();
  /// Nothing is kept any more: programs may be worked on at once.
  void close();

  int64_t shared() const { return shared_; }     ///< problems answered so far
  int64_t searched() const { return searched_; } ///< problems searched so far

 private:
  struct Entry { std::vector<int64_t> extents; Found found; };
  SearchMemory* const parent_;
  std::mutex mutex_;
  std::map<std::string, std::vector<Entry>> known_, fresh_;
  bool closed_ = false;
  int64_t shared_ = 0, searched_ = 0;
};

}  // namespace mirage

// Steps of the search that run ahead of their turn on other threads. Their outcomes are taken in the order in which one thread would make
// them, and one that would not have been the same within the limits that are left when its turn comes is made again: results do not depend
// on the number of threads.
#pragma once
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>
#include "search/growth/split_search.h"

namespace mirage::search {

class Ahead {
 public:
  /// `bytes`: what steps that run ahead may hold together; a step for which there is no room waits for its turn.
  Ahead(int threads, int64_t bytes);
  ~Ahead();
  /// These searches will be asked for their steps with 0 to `ideas` ideas, unless they are dropped. In the order of their turns
  /// (split_search.h).
  void expect(const std::vector<std::shared_ptr<SplitSearch>>& searches, int ideas, int64_t effort_left);
  /// The outcome of a step within these limits: made already, waited for, or made now.
  Outcome take(const std::shared_ptr<SplitSearch>& search, int ideas, StepKind kind, const Limits& limits);
  /// No more steps of this search will be asked for.
  void drop(const std::shared_ptr<SplitSearch>& search);

 private:
  struct Made { Outcome outcome; Limits limits; };
  struct Entry {
    std::shared_ptr<SplitSearch> search;
    int batch = 0, next = 0, last = -1;     ///< steps next to last are still to be made
    int64_t spent = 0;                      ///< effort of those that were made
    bool wanted = false;                    ///< the caller is about to make a step of it
    bool running = false, given_up = false; ///< given up: something stopped it; its turn will come
    int64_t held = 0;                       ///< bytes of what was made ahead and is not taken
    std::map<int, Made> made;               ///< by ideas
  };
  std::shared_ptr<Entry> find(const SplitSearch& s);
  std::shared_ptr<Entry> next_entry();
  void run_ahead(std::unique_lock<std::mutex>& lock, Entry& e);
  void await(std::unique_lock<std::mutex>& lock, Entry& e, int ideas);
  void stop_step(std::unique_lock<std::mutex>& lock, Entry& e);
  void hold(Entry& e, int64_t bytes) { held_ += bytes - e.held; e.held = bytes; }
  void work();
  const int64_t bytes_;
  int64_t held_ = 0, effort_left_ = kNoLimit;
  int batches_ = 0;
  const Entry* awaited_ = nullptr;          ///< the caller waits for it to be made elsewhere,
  SplitSearch* meanwhile_ = nullptr;        ///< and makes a step of this search until then
  bool ending_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Entry>> entries_;
  std::vector<std::jthread> threads_;
};

}  // namespace mirage::search

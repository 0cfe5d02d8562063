// Threads that take numbered pieces of work from one counter. Used by the search's sink and by the choice of numbers in driver/.
#include "mirage/support/worker_pool.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "mirage/support/jobserver.h"

namespace mirage {

int num_threads(int64_t jobs) {
  if (jobs > 0) return static_cast<int>(std::min<int64_t>(jobs, 1024));
  if (jobserver_is_out_of_reach()) return 1;
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

void parallel_for(int threads, int64_t n, const std::function<void(int64_t)>& work) {
  std::atomic<int64_t> next{0};
  std::mutex failure_mutex;
  std::exception_ptr failure;
  int64_t failed_at = n;
  auto one = [&] {
    const int64_t i = next.fetch_add(1);
    if (i >= n) return false;
    try {
      work(i);
    } catch (...) {
      std::lock_guard lock(failure_mutex);
      if (i < failed_at) failed_at = i, failure = std::current_exception();
    }
    return true;
  };
  // A token per piece, not per pool: another recipe of the same make gets its turn when a piece ends.
  auto help = [&] {
    Jobserver* const make = process_jobserver();
    for (bool more = true; more;) {
      if (make && !make->acquire([&] { return next.load() >= n; })) return;
      more = one();
      if (make) make->release();
    }
  };
  std::vector<std::jthread> others;
  try {
    for (int64_t t = 1; t < std::min<int64_t>(threads, n); t++) others.emplace_back(help);
  } catch (const std::system_error&) {   // the system's limit of threads: as many as there are do the work
  }
  while (one()) {}
  others.clear();   // joins
  if (failure) std::rethrow_exception(failure);
}

}  // namespace mirage

// Threads that take numbered pieces of work from one counter. Used by the search's sink and by the choice of numbers in driver/.
#include "mirage/support/worker_pool.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace mirage {

int num_threads(int64_t jobs) {
  if (jobs > 0) return static_cast<int>(std::min<int64_t>(jobs, 1024));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

void parallel_for(int threads, int64_t n, const std::function<void(int64_t)>& work) {
  std::atomic<int64_t> next{0};
  std::mutex failure_mutex;
  std::exception_ptr failure;
  int64_t failed_at = n;
  auto run = [&] {
    for (int64_t i; (i = next.fetch_add(1)) < n;) {
      try {
        work(i);
      } catch (...) {
        std::lock_guard lock(failure_mutex);
        if (i < failed_at) failed_at = i, failure = std::current_exception();
      }
    }
  };
  std::vector<std::jthread> others;
  try {
    for (int64_t t = 1; t < std::min<int64_t>(threads, n); t++) others.emplace_back(run);
  } catch (const std::system_error&) {   // the system's limit of threads: as many as there are do the work
  }
  run();
  others.clear();   // joins
  if (failure) std::rethrow_exception(failure);
}

}  // namespace mirage

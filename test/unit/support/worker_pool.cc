// The worker pool: every piece once, the same failure for any number of threads.
#include <catch2/catch.hpp>
#include <atomic>
#include <stdexcept>
#include <vector>
#include "mirage/support/worker_pool.h"

using namespace mirage;

TEST_CASE("every piece of work is done once") {
  for (int threads : {1, 2, 7})
    for (int64_t n : {0, 1, 5, 1000}) {
      std::vector<std::atomic<int>> done(static_cast<size_t>(n));
      parallel_for(threads, n, [&](int64_t i) { done[static_cast<size_t>(i)]++; });
      for (auto& d : done) CHECK(d == 1);
    }
}

TEST_CASE("the first failure by number is the one that is thrown") {
  for (int threads : {1, 4}) {
    std::string what;
    try {
      parallel_for(threads, 100, [](int64_t i) { if (i % 10 == 7) throw std::runtime_error(std::to_string(i)); });
    } catch (const std::runtime_error& e) { what = e.what(); }
    CHECK(what == "7");
  }
}

TEST_CASE("a wish for threads") {
  CHECK(num_threads(3) == 3);
  CHECK(num_threads(0) >= 1);
}

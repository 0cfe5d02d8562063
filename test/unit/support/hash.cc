// Hashes and random numbers are fixed by their definitions: known answers.
#include <catch2/catch.hpp>
#include <set>
#include "mirage/support/hash.h"

using namespace mirage;

TEST_CASE("XXH64's published values") {
  CHECK(hash_text("") == 0xEF46DB3751D8E999ull);
  CHECK(hash_text("abc") == 0x44BC2CF5AD770999ull);
  CHECK(hash_text("abc", 1) != hash_text("abc"));
}

TEST_CASE("mixing and drawing") {
  CHECK(mix64(0) == 0xE220A8397B1DCDAFull);   // the first output of splitmix64 with seed 0
  CHECK(hash_combine(1, 2) != hash_combine(2, 1));
  Rng a(5), b(5), c(6);
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; i++) {
    const uint64_t x = a.next();
    CHECK(x == b.next());
    seen.insert(x);
    CHECK(c.below(10) < 10);
    const double u = c.uniform();
    CHECK((u >= 0 && u < 1));
  }
  CHECK(seen.size() == 1000);
}

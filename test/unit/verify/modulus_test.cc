// Montgomery arithmetic against plain 128-bit arithmetic, Miller-Rabin against known primes and pseudoprimes.
#include "verify/modulus.h"

#include <catch2/catch.hpp>
#include <set>

using namespace mirage;
using namespace mirage::verify;

TEST_CASE("Montgomery arithmetic agrees with 128-bit division") {
  Rng rng(5);
  for (uint64_t m : std::initializer_list<uint64_t>{3, 167, (1ull << 61) - 1, draw_primes(1).p, draw_primes(2).q}) {
    Modulus mod(m);
    for (int i = 0; i < 200; i++) {
      const uint64_t x = i == 0 ? m - 1 : i == 1 ? 0 : rng.below(m), y = i < 2 ? m - 1 : rng.below(m);
      CHECK(mod.to(mod.from(x)) == x);
      CHECK(mod.to(mod.mul(mod.from(x), mod.from(y))) == static_cast<uint64_t>(static_cast<u128>(x) * y % m));
      CHECK(mod.to(mod.add(mod.from(x), mod.from(y))) == (x + y) % m);
      CHECK(mod.add(mod.sub(mod.from(x), mod.from(y)), mod.from(y)) == mod.from(x));
      CHECK(mod.add(mod.neg(mod.from(x)), mod.from(x)) == 0);
      if (x % m) CHECK(mod.mul(mod.from(x), mod.inverse(mod.from(x))) == mod.one());
    }
  }
}

TEST_CASE("primality") {
  for (uint64_t n : {2ull, 3ull, 37ull, 41ull, 113ull, 13861ull / 83, (1ull << 61) - 1, 1000000007ull}) CHECK(is_prime(n));
  for (uint64_t n :
       {0ull, 1ull, 4ull, 561ull, 13861ull, 3215031751ull, 3825123056546413051ull >> 1 | 1, (1ull << 59) - 1, 1000000007ull * 998244353ull})
    CHECK_FALSE(is_prime(n));
  CHECK_FALSE(is_prime(341550071728321ull));   // strong pseudoprime to the bases 2 to 17
}

TEST_CASE("drawn primes are valid, large and differ by seed") {
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 20; seed++) {
    Primes s = draw_primes(seed);
    CHECK(are_valid(s));
    CHECK(s.q >= 1ull << 57);
    seen.insert(s.p);
  }
  CHECK(seen.size() == 20);
  CHECK_FALSE(are_valid({167, 83}));
  CHECK_FALSE(are_valid({draw_primes(1).p, draw_primes(2).q}));
}

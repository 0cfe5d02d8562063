// Twenty seeded variants of each of the five programs: one kernel each, verified, right in doubles at ragged sizes, lawful at true sizes.
#include "variants.h"
#include "helpers.h"
#include "mirage/verify/verify.h"

using namespace mirage;
using namespace helpers;

TEST_CASE("a hundred variants become one kernel") {
  const std::string program = GENERATE(from_range(variants::programs()));
  for (uint64_t seed = 0; seed < 20; seed++) {
    const variants::Spec v = variants::make(program, seed);
    std::string changes;
    for (const std::string& c : v.changes) changes += c + ", ";
    INFO(program << " " << seed << ": " << changes << "\n" << v.json());
    const Program p = parse(v.json());
    const Witness even = make_witness(p, 0), ragged = make_witness(p, 1);
    REQUIRE(even.refusal.empty());
    std::vector<Structure> verified;
    const SearchReport report = enumerate(p, target(), {}, [&](const Structure& s) {
      if (equal(even.graph, s.graph, seed).kind != Verdict::Kind::kEqual) return SinkVerdict::kRejected;
      verified.push_back(s);
      return SinkVerdict::kVerified;
    });
    CHECK(report.effort < 10'000'000);   // about five seconds
    CHECK(report.rejected == 0);
    REQUIRE_FALSE(verified.empty());
    bool loop = false, one = false;
    for (const Structure& s : verified) {
      CHECK(is_one_kernel(s.graph) == (s.kernels == 1));
      one |= s.kernels == 1;
      loop |= body(s.graph).launch().loop > 1;
      CHECK(instantiate(s, param_types(p), tiles(s, param_types(p), 64, 32)));
      for (auto [grid, step] : {std::pair{3, 2}, std::pair{4, 5}}) {
        const auto g = instantiate(s, ragged.params, tiles(s, ragged.params, grid, step));
        REQUIRE(g);
        CHECK(difference(ragged.graph, *g, ragged.params, seed) < 1e-9);
      }
    }
    CHECK(loop);
    CHECK(one);
  }
}

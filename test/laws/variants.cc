// The whole compiler on variants of the five fused programs: each ends in one kernel. All hundred in 'cmd/dev all', four of each program
// otherwise.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "mirage/driver/compile.h"
#include "unit/search/variants.h"

using namespace mirage;

TEST_CASE("variants of the fused programs end in one kernel", "[variants]") {
  const std::string program = GENERATE(from_range(variants::programs()));
  const uint64_t count = std::getenv("MIRAGE_FULL") ? 20 : 4;
  for (uint64_t seed = 0; seed < count; seed++) {
    const variants::Spec v = variants::make(program, seed);
    INFO(program << " " << seed << "\n" << v.json());
    Options o;
    o.emit = {"cu", "report"};
    Trace trace;
    const CompileResult r = compile(o, {"variant.json", v.json()}, trace);
    REQUIRE(r.exit == ExitCode::kOk);
    INFO(r.summary);
    // rows of elementwise work and reductions are one region as they stand
    const bool one = r.summary.find(": 1 kernel instead of ") != std::string::npos ||
                     r.summary.find(": the straightforward 1 kernel,") != std::string::npos;
    CHECK(one);
  }
}

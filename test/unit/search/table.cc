// The table of docs/search.md: states and seconds with and without each gate at growing bounds. Not run by default: test_unit_search "[.table]", MIRAGE_TABLE_SECONDS per cell (60).
#include <cstdio>
#include <cstdlib>
#include "helpers.h"

using namespace mirage;
using namespace helpers;

TEST_CASE("RMSNorm + linear at growing bounds, with and without each gate", "[.table]") {
  const char* limit = std::getenv("MIRAGE_TABLE_SECONDS");
  const Program p = spec("rms_norm_linear");
  struct Row { const char* name; bool expression, merge, dominance; };
  for (const Row& r : {Row{"all gates", true, true, true}, Row{"no expressions", false, true, true}, Row{"no merging", true, false, true}, Row{"no dominance", true, true, false},
                       Row{"no merging, no dominance", true, false, false}, Row{"none of the three", false, false, false}})
    for (int ideas = 0; ideas <= 3; ideas++)
      for (int ops : {7, 9, 11}) {
        SearchOptions o;
        o.expression_gate = r.expression;
        o.merge = r.merge;
        o.dominance = r.dominance;
        o.max_ideas = ideas;
        o.max_block_ops = ops;
        o.max_states = int64_t{1} << 50;
        o.max_seconds = limit ? std::atof(limit) : 60;
        const Found f = find(p, o);
        std::printf("| %s | %d | %d | %lld | %.3f | %zu | %s |\n", r.name, ideas, f.report.max_block_ops_used, static_cast<long long>(f.report.states), f.report.seconds, f.structures.size(), f.report.stop_reason.c_str());
        std::fflush(stdout);
      }
}

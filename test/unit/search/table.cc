// The table of docs/measurements/search.md: states and seconds with and without each gate at growing bounds, on one thread and two. Not run
// by default: test_unit_search "[.table]"; MIRAGE_TABLE_SECONDS per cell (600), MIRAGE_TABLE_THREADS (1,2), MIRAGE_TABLE_ROWS (all; names
// of rows, separated by semicolons), MIRAGE_TABLE_SPEC (rms_norm_linear).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include "helpers.h"

using namespace mirage;
using namespace helpers;

TEST_CASE("RMSNorm + linear at growing bounds, with and without each gate", "[.table]") {
  auto setting = [](const char* name, const char* otherwise) { const char* v = std::getenv(name); return std::string(v ? v : otherwise); };
  const Program p = spec(setting("MIRAGE_TABLE_SPEC", "rms_norm_linear"));
  std::stringstream threads(setting("MIRAGE_TABLE_THREADS", "1,2"));
  std::vector<int> counts;
  for (std::string t; std::getline(threads, t, ',');) counts.push_back(std::stoi(t));
  std::vector<std::string> only;   // rows, separated by semicolons; none: all
  std::stringstream rows(setting("MIRAGE_TABLE_ROWS", ""));
  for (std::string t; std::getline(rows, t, ';');) only.push_back(t);
  struct Row { const char* name; bool expression, merge, dominance; };
  std::printf(
      "| gates | ideas | threads | states | seconds | states per second and thread | first structure after | structures | ended "
      "|\n|---|---|---|---|---|---|---|---|---|\n");
  for (const Row& r : {Row{"all gates", true, true, true}, Row{"no expressions", false, true, true}, Row{"no merging", true, false, true},
                       Row{"no dominance", true, true, false}, Row{"no merging, no dominance", true, false, false},
                       Row{"none of the three", false, false, false}})
    for (int t : counts)
      for (int ideas : {0, 1, 2, 3, 4, 6, 8}) {
        if (only.size() && !std::count(only.begin(), only.end(), std::string(r.name))) continue;
        SearchOptions o;
        o.expression_gate = r.expression;
        o.merge = r.merge;
        o.dominance = r.dominance;
        o.max_ideas = ideas;
        // without dominance every pair of kernels is a structure: 129 569 with two kernels and no idea
        o.max_kernel_ops = std::stoi(setting("MIRAGE_TABLE_KERNELS", r.dominance ? "2" : "1"));
        o.max_states = int64_t{1} << 50;
        o.max_candidates = 1'000'000;
        o.max_values = 1'000'000;
        o.max_bytes = int64_t{4} << 30;
        o.max_seconds = std::stod(setting("MIRAGE_TABLE_SECONDS", "600"));
        o.threads = t;
        const auto start = std::chrono::steady_clock::now();
        double first = -1;
        int64_t found = 0;
        const SearchReport report = enumerate(p, target(), o, [&](const Structure&) {
          if (found++ == 0) first = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
          return SinkVerdict::kVerified;
        });
        std::printf("| %s | %d | %d | %lld | %.3f | %.0f | %.3f | %lld | %s |\n", r.name, ideas, t, static_cast<long long>(report.states),
                    report.seconds, static_cast<double>(report.states) / std::max(report.seconds, 1e-6) / t, first,
                    static_cast<long long>(found),
                    (report.stop_reason + (report.complete || report.stop_reason != "exhausted" ? "" : ", capped")).c_str());
        std::fflush(stdout);
        if (report.stop_reason == "time") break;   // with more ideas the same steps come first
      }
}

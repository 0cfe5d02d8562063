// Attention as block graphs and the divisions of it that were measured on an H200 (cold, microseconds; docs/measurements/attention.md):
// what the test of the cost model ranks, and whose emitted text test/golden/texts.cc keeps.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "plan/attend/attend_plan.h"
#include "mirage/spec/text.h"

namespace mirage::test {

/// One attention; %x are the scores, %r and %l the accumulators.
struct AttentionCase {
  int64_t batches = 2, queries = 256, keys = 4096;
  int features = 64, columns = 64;
  std::string dtype = "f16";
  std::string q = "%a", k = "%b", v = "%c", scores = "%x", after = "div %r %l", sum = "%p";
  std::string degree = "1";
  int64_t first_keys = 0;       // above 0: the keys from there on lie in other tensors
  int64_t first_features = 0;   // the same of features, of queries and keys
};

/// The plans of an attention graph with operands q (b, m, d), k (b, d, n) stored as (b, n, d), v (b, n, e).
inline AttendCandidates attention_plans(const AttentionCase& c, const std::string& target = "sm_90a") {
  const int64_t tile = std::min<int64_t>(c.queries, 64);
  const std::string text = fmt::format(
      "block grid({},{},1) loop({}) {{\n"
      "  %a = input 0 grid(0,1,-) : {}[1,{},{}]  %b = input 1 grid(0,-,-) loop(2) : {}[1,{},64]  %c = input 2 grid(0,-,-) loop(1) : "
      "{}[1,64,{}]\n"
      "  %x = matmul {} {}\n  %s = {}\n  %m = running (reduce.max 2 %s)\n  %p = exp (sub %s %m)\n"
      "  %l = accum.sum rescaled {} (reduce.sum 2 {}) %m\n  %r = accum.sum rescaled {} (matmul %p {}) %m\n  output 0 ({}) grid(0,1,-) : "
      "{}\n}}\n",
      c.batches, (c.queries + tile - 1) / tile, (c.keys + 63) / 64, c.dtype, tile, c.features, c.dtype, c.features, c.dtype, c.columns, c.q,
      c.k, c.scores == "%x" ? "mul %x 1" : c.scores, c.degree, c.sum, c.degree, c.v, c.after, c.dtype);
  auto g = parse_graph(text);
  if (!g) UNSCOPED_INFO(text << g.errors()[0].text);
  REQUIRE(g);
  const DType t = *parse_dtype(c.dtype);
  std::vector<Access> operands = {{0, 0, {c.batches, c.queries, c.features}, {c.queries * c.features, c.features, 1}, t},
                                        {1, 0, {c.batches, c.features, c.keys}, {c.keys * c.features, 1, c.features}, t},
                                        {2, 0, {c.batches, c.keys, c.columns}, {c.keys * c.columns, c.columns, 1}, t}};
  if (c.first_keys)
    for (const int i : {1, 2}) {
      Access& a = operands[static_cast<size_t>(i)];
      a.second = {3 + i, 64, a.strides, i == 1 ? 2 : 1, c.first_keys};
    }
  if (c.first_features)
    for (const int i : {0, 1}) {
      Access& a = operands[static_cast<size_t>(i)];
      a.second = {4 + i, 64, a.strides, i == 1 ? 1 : 2, c.first_features};
    }
  const std::vector<Access> results = {{3, 0, {c.batches, c.queries, c.columns}, {c.queries * c.columns, c.columns, 1}, t}};
  return attend_candidates(*g, operands, results, *find_target(target));
}

/// Rings per warp, groups along queries and keys, keys per chunk, cluster, stages, blocks per multiprocessor; clusters that meet.
struct MeasuredAttention {
  bool warp_rings;
  int query_groups, key_groups, chunk, cluster, stages, blocks_per_sm;
  double us;
  int meets = 1;
};

inline bool is_division(const AttendPlan& p, const MeasuredAttention& m) {
  return p.warp_rings == m.warp_rings && p.query_groups == m.query_groups && p.key_groups == m.key_groups && p.chunk == m.chunk &&
         p.cluster == m.cluster && p.stages == m.stages && p.blocks_per_sm == m.blocks_per_sm && p.meets == m.meets;
}

struct AttentionTable { AttentionCase of; std::vector<MeasuredAttention> rows; };

inline std::vector<AttentionTable> measured_attentions() {
  const std::string rms_q = "(div %a (sqrt (div (reduce.sum 2 (square %a)) 64)))",
                    rms_v = "(div %c (sqrt (div (reduce.sum 2 (square %c)) 64)))";
  return {
      {{.batches = 2}, {{false, 1, 2, 128, 8, 4, 1, 6.16}, {false, 1, 2, 64, 8, 8, 1, 6.19}, {false, 1, 4, 64, 8, 8, 1, 6.44},
        {false, 1, 1, 128, 8, 4, 1, 6.50}}},
      {{.batches = 16}, {{false, 1, 4, 64, 2, 8, 1, 13.75}, {false, 1, 2, 128, 2, 4, 1, 14.39}, {false, 1, 2, 128, 2, 6, 1, 15.00},
        {false, 1, 2, 64, 2, 8, 1, 15.68}, {false, 1, 1, 128, 2, 4, 1, 17.60}}},
      {{.batches = 32}, {{false, 1, 4, 64, 1, 8, 1, 22.65}, {false, 1, 2, 128, 1, 4, 1, 23.22}, {false, 1, 2, 128, 1, 6, 1, 23.08},
        {false, 1, 1, 128, 2, 2, 2, 23.67}, {false, 2, 1, 128, 2, 4, 1, 26.29}}},
      {{.batches = 2, .q = rms_q, .v = rms_v},
       {{false, 1, 2, 128, 8, 4, 1, 6.97}, {false, 1, 2, 64, 8, 8, 1, 7.72}, {false, 1, 1, 128, 8, 4, 1, 7.52}}},
      {{.batches = 16, .q = rms_q, .v = rms_v}, {{false, 1, 2, 128, 2, 4, 1, 17.29}, {false, 1, 2, 128, 2, 6, 1, 17.53},
        {false, 1, 2, 64, 2, 8, 1, 19.28}, {false, 1, 1, 128, 2, 3, 1, 20.71}}},
      {{.batches = 32, .q = rms_q, .v = rms_v}, {{false, 1, 2, 128, 1, 4, 1, 27.88}, {false, 2, 1, 128, 2, 3, 1, 28.52},
        {false, 2, 1, 128, 2, 4, 1, 28.81}, {false, 2, 1, 128, 2, 2, 1, 32.06}, {false, 2, 1, 64, 2, 3, 1, 33.58}}},
      {{.batches = 1, .queries = 1024}, {{false, 1, 1, 128, 8, 2, 2, 8.55}, {false, 1, 1, 64, 8, 4, 2, 8.97},
        {false, 1, 1, 64, 8, 3, 2, 8.88}, {false, 1, 4, 64, 4, 8, 1, 8.96}, {false, 1, 2, 128, 4, 4, 1, 9.31},
        {false, 2, 2, 64, 8, 8, 1, 9.57}}},
      {{.batches = 64, .queries = 1, .features = 128, .columns = 128}, {{true, 1, 4, 64, 2, 1, 1, 31.69}, {true, 1, 8, 32, 2, 1, 1, 32.07},
        {true, 1, 4, 32, 2, 1, 1, 32.08}, {true, 1, 4, 32, 2, 2, 1, 31.91}, {false, 1, 1, 64, 2, 4, 1, 32.85},
        {false, 1, 1, 128, 2, 3, 1, 32.74}}},
      {{.batches = 32, .queries = 16}, {{true, 1, 4, 64, 4, 1, 2, 10.77}, {true, 1, 4, 32, 4, 2, 2, 11.12},
        {true, 1, 8, 32, 4, 1, 2, 11.33}, {true, 1, 8, 64, 2, 1, 1, 10.86}, {true, 1, 4, 64, 2, 2, 1, 10.82},
        {true, 1, 4, 32, 4, 3, 2, 13.15}, {true, 1, 4, 64, 2, 3, 1, 12.06}, {false, 1, 1, 128, 4, 3, 2, 13.85},
        {false, 1, 2, 128, 2, 4, 1, 14.92}, {true, 1, 8, 32, 1, 1, 1, 10.39, 4}, {true, 1, 8, 64, 1, 1, 1, 10.60, 4},
        {true, 1, 4, 64, 1, 1, 1, 11.09, 4}, {true, 1, 4, 32, 1, 2, 1, 10.98, 4}}},
      {{.batches = 32, .queries = 1024, .keys = 1024, .scores = "mul %x 0.125"}, {{false, 1, 1, 128, 1, 2, 2, 23.39},
        {false, 1, 1, 128, 1, 3, 2, 23.85}, {false, 2, 1, 64, 1, 6, 2, 25.66}, {false, 2, 1, 128, 1, 4, 1, 27.31},
        {false, 1, 2, 64, 1, 6, 2, 26.97}, {false, 1, 2, 128, 1, 4, 1, 30.47}, {false, 1, 4, 64, 1, 8, 1, 34.92}}},
      {{.batches = 32, .queries = 1024, .keys = 1024, .features = 128, .columns = 128}, {{false, 2, 1, 128, 1, 2, 1, 38.66},
        {false, 2, 1, 128, 1, 3, 1, 39.44}, {false, 2, 1, 64, 1, 4, 1, 41.04}, {false, 1, 1, 64, 1, 2, 2, 39.79},
        {false, 1, 2, 64, 1, 4, 1, 47.71}}},
  };  // blocks that meet: another run, by what 4 x 64 in clusters of four took in both
}

}  // namespace mirage::test

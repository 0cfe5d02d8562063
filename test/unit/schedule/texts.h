// Schedules as texts, for tests that change a word of one.
#pragma once
#include <catch2/catch.hpp>
#include <string>

namespace mirage::test {

/// `text` with `to` in the place of `from`, which must stand in it once.
inline std::string changed(std::string text, const std::string& from, const std::string& to) {
  const size_t i = text.find(from);
  INFO(from);
  REQUIRE(i != std::string::npos);
  REQUIRE(text.find(from, i + 1) == std::string::npos);
  return text.replace(i, from.size(), to);
}

/// A linear layer of rows divided by their norm: two blocks of a cluster and their four warps divide the reduction. `shape`: parameters,
/// result, indices and what is assumed of them; `steps`: of an iteration, behind its loads; `end`: what follows the loop.
inline std::string norm_schedule(const std::string& shape, const std::string& steps, const std::string& end) {
  return "kernel norm {\n" + shape + R"(  reduce k by 64 over i 8 loop, c 2 cluster, v 4 warp
  shared ring owners 4 slots 2 align 1024
  shared received align 16
  shared statistics align 4
  shared barriers mbarriers align 8
  per_sm 2
  role all 4 warps {
    for i {
      w = param 1 [k,n] : f16 ring 64x64 swizzle 128 tma ahead 2 evict_first
      x = param 0 [m,k] : f16 oct 16x64 ld ahead 1
)" + steps + "    }\n" + end + "    store 0 = z by direct\n  }\n}\n";
}

}  // namespace mirage::test

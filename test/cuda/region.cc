// Region kernels: every operator, dtype and kind of shape, emitted, run on the host against the reference evaluator, and compiled by nvcc
// where there is one.
#include <catch2/catch.hpp>

#include <cstdlib>

#include "cuda/region_harness.h"

using namespace mirage;
using namespace mirage::test;

static std::vector<Case> cases_of(const std::vector<Program>& programs) {
  std::vector<Case> out;
  for (const Program& p : programs) out.push_back(make_case(p));
  return out;
}

/// Here and by nvcc for sm_90a; by nvcc without MIRAGE_FULL only one of aligned and odd extents of each dtype (what differs between them
/// are widths of vectors, which the host has seen).
static void check(const std::vector<Program>& programs, const std::string& name, DType t, bool aligned) {
  const std::vector<Case> cases = cases_of(programs);
  for (const std::string& error : run_on_host(cases, name)) FAIL_CHECK(error);
  if (std::getenv("MIRAGE_FULL") == nullptr && aligned != (t == DType::kBF16)) return;
  const std::string nvcc = compile_with_nvcc(cases, name);
  if (nvcc == "absent") WARN("skipped: there is no nvcc to compile " << cases.size() << " programs");
  else CHECK(nvcc == "");
}

TEST_CASE("region kernels of every operator agree with the reference") {
  for (DType t : {DType::kF16, DType::kBF16, DType::kF32})
    for (bool aligned : {true, false})
      check(operator_programs(t, aligned), std::string("operators_") + dtype_name(t) + (aligned ? "_aligned" : "_odd"), t, aligned);
}

TEST_CASE("region kernels of chains agree with the reference") {
  for (DType t : {DType::kF16, DType::kBF16, DType::kF32})
    for (bool aligned : {true, false})
      check(chain_programs(t, aligned), std::string("chains_") + dtype_name(t) + (aligned ? "_aligned" : "_odd"), t, aligned);
}

TEST_CASE("many divisions by one number that share a reciprocal are as near as divisions") {
  const char* text = R"(
#include <cstdio>
#include <cstring>
#include <random>
static bool far(float x, float y, char* said) {
  const float want = x / y, got = mo::divide(x, mo::near_divisor(y));
  if (want == got || (want != want && got != got)) return false;
  int w, g;
  memcpy(&w, &want, 4), memcpy(&g, &got, 4);
  if (want == want && got == got && (w > g ? w - g : g - w) <= 1) return false;
  return snprintf(said, 200, "%a / %a: %a, not %a", x, y, got, want), true;
}
extern "C" const char* quotients() {
  static char said[200] = "";
  const float special[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1.0f, 3e38f, 1e-38f, 1e-45f, -1.0f, 5.4e-20f, 5.5e-20f, 1.8e19f, 1.9e19f};
  for (float x : special)
    for (float y : special)
      if (far(x, y, said)) return said;
  std::mt19937 random(7);
  for (int i = 0; i < 400000; i++) {
    const unsigned a = random(), b = random();
    float x = 1 + static_cast<float>(a >> 9) * 0x1p-23f, y = 1 + static_cast<float>(b >> 9) * 0x1p-23f;
    if (i % 2) memcpy(&x, &a, 4), memcpy(&y, &b, 4);
    if (far(x, y, said)) return said;
  }
  return said;
}
)";
  CHECK(call_on_host("quotients", text, "quotients") == "");
}

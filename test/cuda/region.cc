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

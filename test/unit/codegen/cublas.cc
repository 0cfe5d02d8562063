// What a library that calls cuBLASLt says and links, and that no other one does (codegen/host/cublas.cc).
#include <catch2/catch.hpp>

#include "mirage/codegen/module.h"
#include "mirage/plan/cublas.h"
#include "mirage/spec/spec.h"

using namespace mirage;

namespace {

constexpr const char* kSpec =
    "kernel two { %x = input 0 : f16[256,512] %w = input 1 : f16[512,1024] output 0 (relu (matmul %x %w)) : f16 }";

Target willing(bool allow) {
  Target t = *find_target("sm_90a");
  t.allow_cublas = allow;
  t.cublas_us = -1e6;
  return t;
}

CudaModule module_of(bool allow) {
  const auto spec = read_spec({"two", kSpec});
  REQUIRE(spec);
  const Planned planned = make_plan(spec->program, spec->program.graph, willing(allow));
  REQUIRE(planned.plan);
  return emit_module(spec->program, *planned.plan, willing(allow), {});
}

bool has(const CudaModule& m, const std::string& file, const std::string& what) { return m.files.at(file).find(what) != std::string::npos; }

}  // namespace

TEST_CASE("a library with a product by cuBLASLt says so, links it and launches no kernel for it") {
  const CudaModule m = module_of(true);
  REQUIRE(m.kernels.size() == 2);
  REQUIRE(m.kernels[0].cublas);
  CHECK(m.links_cublas);
  CHECK(has(m, "two.cu", "#include <cublasLt.h>"));
  CHECK(!has(m, "two.cu", "__global__ void __launch_bounds__(256) two_k0_cublas"));
  CHECK(has(m, "two.cu", "multiply(0, t[1], t[0], static_cast<void*>(w + "));
  CHECK(has(m, "two.cu", "{CUDA_R_16F, CUDA_R_32F, 1, 16u, 0u, {false, 1024u, 512u, 1024, 0}, {false, 512u, 256u, 512, 0}, {false, "
                         "1024u, 256u, 1024, 0}},   // two_k0_cublas"));
  CHECK(has(m, "two.cu", "if (product_device() == nullptr) return kNoCublas;"));
  CHECK(has(m, "two.h", " * cuBLASLt: two_k0_cublas is its product (--allow-cublas)"));
  CHECK(has(m, "two.h", "two_NO_CUBLAS = -8"));
  CHECK(has(m, "two.cu", R"({\"name\":\"two_k0_cublas\",\"library\":\"cuBLASLt\"})"));
  CHECK(has(m, "Makefile", "two.cu -lcublasLt\n"));
  CHECK(has(m, "CMakeLists.txt", "target_link_libraries(two PRIVATE cublasLt)"));
  CHECK(has(m, "CMakeLists.txt", "APPEND PROPERTY INSTALL_RPATH \"${two_CUBLAS}\""));
  CHECK(has(m, "CMakeLists.txt", "install(EXPORT twoTargets"));
  CHECK(has(m, "CMakeLists.txt", "find_package(CUDAToolkit QUIET)"));
  CHECK(has(m, "two.pc", "Libs.private: -lcublasLt"));
  CHECK(has(m, "two.solution.json", R"("dependencies": ["cublas"])"));
  CHECK(has(m, "two_kernelbench.py", "\"-lcublasLt\""));
  CHECK(mentions_cublas(m.files.at("two.cu")));
  CHECK(mentions_cublas(m.files.at("two.h")));
  CHECK(nvcc_library_arguments("two", willing(true), true).back() == "-lcublasLt");
}

TEST_CASE("no other library mentions cuBLASLt") {
  const CudaModule m = module_of(false);
  CHECK(!m.links_cublas);
  for (const auto& [name, text] : m.files) {
    INFO(name);
    CHECK(text.find("ublas") == std::string::npos);
    CHECK(text.find("uBLAS") == std::string::npos);
  }
}

// A library that calls cuBLASLt, built with warnings as errors, where cuBLAS is beside nvcc.
#include <catch2/catch.hpp>

#include <filesystem>

#include "driver/toolchain/toolchain.h"
#include "mirage/codegen/module.h"
#include "mirage/spec/spec.h"
#include "mirage/support/file.h"
#include "mirage/support/warden.h"

using namespace mirage;

TEST_CASE("a library that calls cuBLASLt compiles without warnings and needs libcublasLt") {
  const Toolchain tools = find_toolchain();
  if (!tools.has_nvcc()) { WARN("skipped: there is no nvcc"); return; }
  const auto spec =
      read_spec({"two", "kernel two { %x = input 0 : f32[256,512] %w = input 1 : f32[512,1024] output 0 (relu (matmul %x %w)) : f16 }"});
  REQUIRE(spec);
  Target target = *find_target("sm_90a");
  target.allow_cublas = true;
  target.cublas_us = -1e6;
  const Planned planned = make_plan(spec->program, spec->program.graph, target);
  REQUIRE(planned.plan);
  const CudaModule module = emit_module(spec->program, *planned.plan, target, {});
  REQUIRE(module.links_cublas);
  const TemporaryFolder folder;
  for (const std::string suffix : {".cu", ".map", ".h"})
    REQUIRE(write_file(folder.path() + "/two" + suffix, module.files.at("two" + suffix)).empty());
  std::vector<std::string> argv = nvcc_library_arguments("two", target, true);
  argv.insert(argv.begin(), {tools.nvcc, "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror"});
  const ProcessResult r = run_process(argv, folder.path(), {});
  if (!r.ok() && r.output.find("cublasLt.h") != std::string::npos) { WARN("skipped: cuBLAS is not beside nvcc"); return; }
  INFO(r.output);
  REQUIRE(r.ok());
  CHECK(read_file(folder.path() + "/libtwo.so").value().find("libcublasLt.so") != std::string::npos);
}

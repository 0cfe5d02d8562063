// Child processes, the reading of ptxas' messages, and the tools of this machine where there are any.
#include "driver/toolchain/toolchain.h"
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

using namespace mirage;

namespace {

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

constexpr const char* kTiny =
    "__global__ void tiny(const void* __restrict__ x, void* __restrict__ y) { static_cast<float*>(y)[threadIdx.x] = 2 * static_cast<const "
    "float*>(x)[threadIdx.x]; }\n";

/// Sets an environment variable for a scope.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) { old_ = old; had_ = true; }
    setenv(name, value.c_str(), 1);
  }
  ~Environment() { if (had_) setenv(name_, old_.c_str(), 1); else unsetenv(name_); }
 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

}  // namespace

TEST_CASE("processes: exit codes, both outputs, folder, arguments without a shell") {
  const ProcessResult r = run_process({"sh", "-c", "echo out; echo err >&2; pwd; exit 3"}, "/");
  CHECK(r.started);
  CHECK(r.exit_code == 3);
  CHECK_FALSE(r.ok());
  CHECK(r.output == "out\nerr\n/\n");
  CHECK(run_process({"printf", "%s|", "a b", "$HOME", "*"}).output == "a b|$HOME|*|");
  CHECK(run_process({"cat"}).ok());   // standard input is empty
  CHECK(run_process({"sh", "-c", "echo $LC_ALL"}).output == "C\n");
}

TEST_CASE("processes: what cannot start says why") {
  const ProcessResult r = run_process({"/nonexistent/tool"});
  CHECK_FALSE(r.started);
  CHECK(r.output.find("cannot start /nonexistent/tool") == 0);
  CHECK_FALSE(run_process({"true"}, "/nonexistent").started);
  CHECK_FALSE(run_process({}).started);
}

TEST_CASE("processes: a timeout ends the whole group, and so does the end of its leader") {
  ProcessLimits limits;
  limits.timeout_s = 0.3;
  ProcessResult r;
  CHECK(seconds_of([&] { r = run_process({"sh", "-c", "sleep 60 & sleep 60"}, "", limits); }) < 10);
  CHECK(r.timed_out);
  CHECK(r.exit_code == -1);
  CHECK(r.signal == SIGKILL);
  CHECK(seconds_of([&] { r = run_process({"sh", "-c", "sleep 60 & echo done"}); }) < 10);   // the sleeper holds the pipe
  CHECK(r.ok());
  CHECK(r.output == "done\n");
}

TEST_CASE("processes: a limit on processor time is one on work, and says which it was") {
  ProcessLimits limits;
  limits.processor_s = 1;
  const ProcessResult r = run_process({"sh", "-c", "while :; do :; done"}, "", limits);
  CHECK_FALSE(r.timed_out);
  CHECK(r.signal == SIGXCPU);
  limits.timeout_s = 30;
  CHECK(run_process({"sleep", "2"}, "", limits).ok());   // time that passes is none
}

TEST_CASE("processes: interruption and the limit on output") {
  std::atomic<bool> stop{false};
  ProcessLimits limits;
  limits.interrupted = &stop;
  std::thread later([&] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); stop = true; });
  const ProcessResult r = run_process({"sleep", "60"}, "", limits);
  later.join();
  CHECK(r.interrupted);
  CHECK_FALSE(r.ok());
  ProcessLimits small;
  small.max_output = 1000;
  const ProcessResult much = run_process({"sh", "-c", "head -c 3000000 /dev/zero"}, "", small);
  CHECK(much.ok());
  CHECK(much.truncated);
  CHECK(much.output.size() == 1000);
}

TEST_CASE("processes: a child killed by a signal has no exit code") {
  const ProcessResult r = run_process({"sh", "-c", "kill -SEGV $$"});
  CHECK(r.exit_code == -1);
  CHECK(r.signal == SIGSEGV);
}

TEST_CASE("ptxas: registers, spills, shared memory and advisories, by kernel") {
  const PtxasReport r = parse_ptxas(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register "
      "resources in function 'k'\n"
      "ptxas info    : Compiling entry function '_ZN11mirage_demo5map_0EPKvS1_PvS2_' for 'sm_90a'\n"
      "ptxas info    : Function properties for _ZN11mirage_demo5map_0EPKvS1_PvS2_\n"
      "    144 bytes stack frame, 136 bytes spill stores, 152 bytes spill loads\n"
      "ptxas info    : Used 255 registers, used 1 barriers, 144 bytes cumulative stack size, 4096 bytes smem\n"
      "ptxas info    : Compiling entry function 'plain' for 'sm_90a'\n"
      "ptxas info    : Function properties for plain\n"
      "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 18 registers, used 0 barriers\n");
  REQUIRE(r.kernels.size() == 2);
  const KernelResources* map = r.find("map_0");
  REQUIRE(map != nullptr);
  CHECK(map->registers == 255);
  CHECK(map->stack_bytes == 144);
  CHECK(map->spill_store_bytes == 136);
  CHECK(map->spill_load_bytes == 152);
  CHECK(map->static_smem_bytes == 4096);
  CHECK(map->spills());
  CHECK(r.spills());
  REQUIRE(r.find("plain") != nullptr);
  CHECK(r.find("plain")->registers == 18);
  CHECK_FALSE(r.find("plain")->spills());
  CHECK(r.advisories.size() == 1);
  CHECK(r.find("nobody") == nullptr);
  CHECK(parse_ptxas("").kernels.empty());
  CHECK(parse_ptxas("Compiling entry function '_Z4loopIfLi4EEvPT_'\n").kernels[0].name.substr(0, 4) == "loop");
}

TEST_CASE("tools that are not there are reported, not guessed") {
  const Toolchain none;
  const Target target = *find_target("sm_90a");
  const auto expect_missing = [](const Result<Compiled>& r) {
    REQUIRE_FALSE(r.ok());
    CHECK(r.errors()[0].code == DiagCode::kToolMissing);
    CHECK(exit_code_of(r.errors()[0].code) == ExitCode::kToolchain);
  };
  expect_missing(build_library(none, "x", target, "/tmp"));
  expect_missing(build_check(none, "x", target, "/tmp"));
  expect_missing(compile_with_nvcc(none, kTiny, target, DeviceCode::kCubin));
  expect_missing(compile_with_nvrtc(none, kTiny, target));
}

TEST_CASE("nvcc is found on PATH first and in CUDA_HOME next") {
  const std::filesystem::path root = std::filesystem::path(MIRAGE_BINARY_DIR) / "toolchain_test";
  for (const char* place : {"on_path/bin", "home/bin"}) {
    std::filesystem::create_directories(root / place);
    std::ofstream(root / place / "nvcc") << "#!/bin/sh\n";
    std::filesystem::permissions(root / place / "nvcc", std::filesystem::perms::owner_all);
  }
  const Environment home("CUDA_HOME", (root / "home").string());
  {
    const Environment path("PATH", "/nonexistent:" + (root / "on_path/bin").string());
    CHECK(find_toolchain().nvcc == (root / "on_path/bin/nvcc").string());
  }
  const Environment path("PATH", "/nonexistent");
  CHECK(find_toolchain().nvcc == (root / "home/bin/nvcc").string());
}

TEST_CASE("NVRTC and nvcc compile for every target, and errors come back as notes") {
  const Toolchain tools = find_toolchain();
  if (!tools.has_nvrtc() || !tools.has_nvcc()) { WARN("no CUDA Toolkit here: not compiled"); return; }
  for (const Target& target : all_targets()) {
    INFO(target.name);
    const Result<Compiled> r = compile_with_nvrtc(tools, kTiny, target);
    REQUIRE(r.ok());
    CHECK(r->bytes.substr(1, 3) == "ELF");
    REQUIRE(r->ptxas.find("tiny") != nullptr);
    CHECK(r->ptxas.find("tiny")->registers > 0);
  }
  const Target target = *find_target("sm_90a");
  const Result<Compiled> ptx = compile_with_nvrtc(tools, kTiny, target, DeviceCode::kPtx);
  REQUIRE(ptx.ok());
  CHECK(ptx->bytes.find(".target sm_90a") != std::string::npos);
  const Result<Compiled> cubin = compile_with_nvcc(tools, kTiny, target, DeviceCode::kCubin);
  REQUIRE(cubin.ok());
  CHECK(cubin->bytes.substr(1, 3) == "ELF");
  CHECK(cubin->ptxas.find("tiny") != nullptr);
  for (const Result<Compiled>& bad : {compile_with_nvrtc(tools, "__global__ void f() { undeclared(); }", target),
                                      compile_with_nvcc(tools, "__global__ void f() { undeclared(); }", target, DeviceCode::kPtx)}) {
    REQUIRE_FALSE(bad.ok());
    CHECK(bad.errors()[0].code == DiagCode::kToolFailed);
    std::string notes;
    for (const Note& n : bad.errors()[0].notes) notes += n.text;
    CHECK(notes.find("undeclared") != std::string::npos);
  }
}

TEST_CASE("NVRTC gives the same from several threads") {
  const Toolchain tools = find_toolchain();
  if (!tools.has_nvrtc()) { WARN("no NVRTC here: not compiled"); return; }
  std::vector<std::string> out(4);
  std::vector<std::thread> threads;
  for (std::string& o : out)
    threads.emplace_back([&] {
      if (auto r = compile_with_nvrtc(tools, kTiny, *find_target("sm_80")); r.ok()) o = r->bytes;
    });
  for (std::thread& t : threads) t.join();
  CHECK_FALSE(out[0].empty());
  for (const std::string& o : out) CHECK(o == out[0]);
}

TEST_CASE("devices choose targets that run on them") {
  CHECK(target_for_device(9, 0)->name == "sm_90a");
  CHECK(target_for_device(8, 0)->name == "sm_80");
  CHECK(target_for_device(8, 7)->name == "sm_86");
  CHECK(target_for_device(10, 3)->name == "sm_89");   // no sm_100a code runs there; PTX does
  CHECK_FALSE(target_for_device(7, 5).has_value());
  CHECK(target_for_device({"NVIDIA H100 80GB HBM3", 9, 0})->machine == "h100");
  CHECK(target_for_device({"NVIDIA GH200 480GB", 9, 0})->machine == "h200");
  CHECK(target_for_device({"NVIDIA L40S", 8, 9})->machine == "l40s");
  CHECK(target_for_device({"NVIDIA L4", 8, 9})->machine == "rtx4090");   // of no name that is known: what the target stands for
  const DetectedDevice d = detect_device();
  CHECK(d.device.has_value() == d.error.empty());
}

// Every library of specs/ compiles for sm_80, sm_90a and sm_100a without warnings and without register spills, and its header is C99.
// Without MIRAGE_FULL=1 ('cmd/dev all') a quick subset: sm_90a for one spec of each family with NVRTC, the real build by nvcc for two.
// Skipped, and said so, without CUDA.
#include <catch2/catch.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unistd.h>
#include "driver/toolchain/toolchain.h"
#include "mirage/driver/compile.h"
#include "mirage/support/file.h"

using namespace mirage;
namespace fs = std::filesystem;

namespace {

struct TempFolder {
  std::string path;
  TempFolder() {
    std::string pattern = (fs::temp_directory_path() / "mirage-test.XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()));
    path = pattern;
  }
  ~TempFolder() { fs::remove_all(path); }
};

std::vector<fs::path> specs() {
  std::vector<fs::path> out;
  for (const auto& e : fs::directory_iterator(fs::path(MIRAGE_SOURCE_DIR) / "specs"))
    if (e.path().extension() == ".json") out.push_back(e.path());
  std::sort(out.begin(), out.end());
  return out;
}

CompileResult result_of(const fs::path& spec, const std::string& target, bool search = true) {
  Options o;
  o.target = target;
  o.emit = {"cu", "h", "harness", "makefile"};
  if (!search) o.states = 0;
  Trace trace;
  CompileResult r = compile(o, {spec.filename().string(), read_file(spec.string()).value()}, trace);
  REQUIRE(r.exit == ExitCode::kOk);
  return r;
}

bool is_full() { return std::getenv("MIRAGE_FULL") != nullptr; }

/// The same program with other extents: larger batches, the second decoder layer.
bool is_sibling(const fs::path& spec) {
  const std::string name = spec.stem().string();
  return name.find("_b8") != std::string::npos || name.find("_b16") != std::string::npos || name == "llama_layer_8";
}

/// No warning of the compiler, no spill, no serialised wgmma.
void check_clean(const Result<Compiled>& c, const std::string& what) {
  INFO(what);
  if (!c) {
    std::string text;
    for (const Diagnostic& d : c.errors()) text += render(d, "");
    FAIL_CHECK(text);
    return;
  }
  INFO(c->log);
  CHECK(c->log.find("warning") == std::string::npos);
  CHECK(c->ptxas.advisories.empty());
  for (const KernelResources& k : c->ptxas.kernels) {
    INFO(k.name << ": " << k.spill_store_bytes << " bytes spilled, " << k.registers << " registers");
    CHECK_FALSE(k.spills());
  }
}

}  // namespace

// nvcc -arch=sm_90a makes PTX for compute_90 beside the machine code: kernels stood there without the device library that they use
TEST_CASE("emitted kernels compile without warnings and without spills, and where the features of sm_90a are not there") {
  const Toolchain tools = find_toolchain();
  if (!tools.has_nvrtc() && !tools.has_nvcc()) {
    WARN("skipped: there is neither NVRTC nor nvcc on this machine");
    return;
  }
  const std::vector<std::string> targets =
      is_full() ? std::vector<std::string>{"sm_80", "sm_90a", "sm_100a"} : std::vector<std::string>{"sm_90a"};
  Target plain = *find_target("sm_90a");
  plain.nvrtc_arch = "sm_90";
  int guarded = 0;
  for (const fs::path& spec : specs())
    for (const std::string& target : targets)
      for (bool search : {true, false}) {
        if (!is_full() && (!search || is_sibling(spec))) continue;
        const CompileResult r = result_of(spec, target, search);
        const std::string& cu = r.files.at(r.name + ".cu");
        check_clean(tools.has_nvrtc() ? compile_with_nvrtc(tools, cu, *find_target(target))
                                      : compile_with_nvcc(tools, cu, *find_target(target), DeviceCode::kCubin),
                    spec.filename().string() + " for " + target + (search ? "" : ", straightforward"));
        if (cu.find("SM90_ALL)\n#pragma nv_diag_suppress") == std::string::npos || !tools.has_nvrtc()) continue;
        guarded++;
        check_clean(compile_with_nvrtc(tools, cu, plain), spec.filename().string() + " without features");
      }
  if (tools.has_nvrtc()) CHECK(guarded > 5);
}

/// NAME.cu of a spec of that name.
static std::string emitted(const std::string& target, const std::string& name, const std::string& spec) {
  Options o;
  o.target = target;
  o.gate = "none";
  o.emit = {"cu"};
  Trace trace;
  const CompileResult r = compile(o, {name + ".json", spec}, trace);
  REQUIRE(r.exit == ExitCode::kOk);
  return r.files.at(name + ".cu");
}

// 340 bytes with chunks of 128 keys: a chunk's elements of the mask were not counted
TEST_CASE("attention with a mask among its inputs compiles without spills") {
  const Toolchain tools = find_toolchain();
  if (!tools.has_nvrtc()) { WARN("skipped: there is no NVRTC on this machine"); return; }
  const std::string spec = R"({"version": "1.0", "name": "masked", "outputs": {"o": {"dtype": "float16"}},
    "inputs": {"q": {"shape": [32, 256, 64], "dtype": "float16"}, "k": {"shape": [32, 1024, 64], "dtype": "float16"}, "v": {"shape": [32, 1024, 64], "dtype": "float16"}, "mask": {"shape": [256, 1024], "dtype": "float16"}},
    "nodes": [{"op": "matmul", "inputs": ["q", "k"], "output": "s", "attrs": {"transpose_b": true}}, {"op": "mul", "inputs": ["s", 0.125], "output": "t"}, {"op": "add", "inputs": ["t", "mask"], "output": "u"},
              {"op": "softmax", "inputs": ["u"], "output": "p"}, {"op": "matmul", "inputs": ["p", "v"], "output": "o"}]})";
  const std::string cu = emitted("sm_90a", "masked", spec);
  CHECK(cu.find("_k0_attend") != std::string::npos);
  check_clean(compile_with_nvrtc(tools, cu, *find_target("sm_90a")), "masked attention");
}

// both had a dynamic array of the same name and other alignments
TEST_CASE("rows of a cluster and a block kernel in one library compile without warnings") {
  const Toolchain tools = find_toolchain();
  if (!tools.has_nvcc()) { WARN("skipped: there is no nvcc on this machine, and NVRTC does not warn of it"); return; }
  const std::string spec =
      R"({"version": "1.0", "name": "long_rows", "inputs": {"x": {"shape": [4, 16384], "dtype": "float16"}, "w": {"shape": [16384, 256], "dtype": "float16"}}, "outputs": {"y": {"dtype": "float16"}, "h": {"dtype": "float16"}},
    "nodes": [{"op": "softmax", "inputs": ["x"], "output": "h", "attrs": {"axis": -1}}, {"op": "matmul", "inputs": ["h", "w"], "output": "y"}]})";
  const std::string cu = emitted("sm_100a", "long_rows", spec);
  CHECK(cu.find("mo::ClusterTeam<") != std::string::npos);
  CHECK(cu.find("_block(") != std::string::npos);
  check_clean(compile_with_nvcc(tools, cu, *find_target("sm_100a"), DeviceCode::kCubin), "rows of a cluster and a block kernel");
}

TEST_CASE("nvcc builds the library and its check as the Makefile does") {
  const Toolchain tools = find_toolchain();
  if (!tools.has_nvcc()) {
    WARN("skipped: there is no nvcc on this machine");
    return;
  }
  for (const fs::path& spec : specs()) {
    const std::string stem = spec.stem().string();
    if (!is_full() && stem != "rms_norm_linear" && stem != "causal_attention") continue;
    for (const std::string& target :
         is_full() ? std::vector<std::string>{"sm_80", "sm_90a", "sm_100a"} : std::vector<std::string>{"sm_90a"}) {
      TempFolder temp;
      const CompileResult r = result_of(spec, target);
      for (const auto& [name, text] : r.files) REQUIRE(write_file(temp.path + "/" + name, text).empty());
      check_clean(build_library(tools, r.name, *find_target(target), temp.path), stem + " for " + target);
      if (target == "sm_90a") check_clean(build_check(tools, r.name, *find_target(target), temp.path), stem + "_check");
    }
  }
}

TEST_CASE("headers are C99 and C++") {
  for (const fs::path& spec : specs()) {
    TempFolder temp;
    const CompileResult r = result_of(spec, "sm_90a", false);
    REQUIRE(write_file(temp.path + "/" + r.name + ".h", r.files.at(r.name + ".h")).empty());
    // What the header needs of CUDA is a stream type; where the toolkit is missing a one-line stand-in is enough for the language check.
    if (find_toolchain().include_dir.empty())
      REQUIRE(write_file(temp.path + "/cuda_runtime_api.h", "typedef struct CUstream_st* cudaStream_t;\n").empty());
    const std::string include = find_toolchain().include_dir.empty() ? "." : find_toolchain().include_dir;
    REQUIRE(write_file(temp.path + "/use.c",
                       "#include \"" + r.name + ".h\"\nint main(void) { return (int)" + r.name + "_abi_version() == 0; }\n")
                .empty());
    for (const std::vector<std::string>& compiler : {std::vector<std::string>{"gcc", "-std=c99"}, {"g++", "-std=c++11", "-x", "c++"}}) {
      std::vector<std::string> argv = compiler;
      argv.insert(argv.end(), {"-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-isystem", include, "-I.", "use.c"});
      const ProcessResult p = run_process(argv, temp.path);
      INFO(spec.filename() << "\n" << p.output);
      CHECK(p.ok());
    }
  }
}

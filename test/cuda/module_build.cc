// A module from a hand-made plan, built as a user would: no warnings, only NAME_* exported, the same bytes in every folder, and a C ABI
// whose checks work without a GPU.
#include <catch2/catch.hpp>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include "driver/toolchain/toolchain.h"
#include "mirage/support/file.h"
#include "unit/codegen/module_fixture.h"

using namespace mirage;
namespace fs = std::filesystem;

namespace {

fs::path write_module(const CudaModule& m, const std::string& folder) {
  const fs::path path = fs::path(MIRAGE_BINARY_DIR) / "module_build_test" / folder;
  fs::remove_all(path);
  fs::create_directories(path);
  for (const auto& [name, text] : m.files) std::ofstream(path / name) << text;
  return path;
}

const Toolchain& tools() {
  static const Toolchain t = find_toolchain();
  return t;
}

bool no_nvcc() {
  if (tools().has_nvcc()) return false;
  WARN("no nvcc here: nothing was compiled");
  return true;
}

std::string bytes_of(const fs::path& p) {
  Result<std::string> r = read_file(p.string());
  return r ? *r : "";
}

std::string run(const std::vector<std::string>& argv, const fs::path& folder = {}) {
  const ProcessResult r = run_process(argv, folder.string());
  INFO(r.output);
  CHECK(r.ok());
  return r.output;
}

/// A built library, open; with names of functions as dlsym finds them.
struct Library {
  explicit Library(const fs::path& path) : handle(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) { REQUIRE(handle != nullptr); }
  ~Library() { dlclose(handle); }
  template <class F> F* function(const char* name) const { return reinterpret_cast<F*>(dlsym(handle, name)); }
  void* handle;
};

struct DlTensor {
  void* data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};

}  // namespace

TEST_CASE("the module compiles for every generation with warnings as errors") {
  if (no_nvcc()) return;
  for (const char* target : {"sm_80", "sm_90a", "sm_100a"}) {
    INFO(target);
    const fs::path folder = write_module(fixture::assemble(fixture::two_kernels(target)), target);
    std::vector<std::string> argv = nvcc_library_arguments("demo", *find_target(target));
    argv.insert(argv.begin(), {tools().nvcc, "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror"});
    CHECK(run(argv, folder).empty());
    const Result<Compiled> r = compile_with_nvrtc(tools(), bytes_of(folder / "demo.cu"), *find_target(target));
    REQUIRE(r.ok());
    CHECK(r->ptxas.find("map_0") != nullptr);
    CHECK_FALSE(r->ptxas.spills());
  }
}

TEST_CASE("a module of many launches compiles with warnings as errors") {
  if (no_nvcc()) return;
  fixture::Made m = fixture::two_kernels();
  for (int i = 0; i < 80; i++) m.kernels.push_back(m.kernels[1]);
  const fs::path folder = write_module(fixture::assemble(m), "many");
  std::vector<std::string> argv = nvcc_library_arguments("demo", m.target);
  argv.insert(argv.begin(), {tools().nvcc, "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror"});
  CHECK(run(argv, folder).empty());
}

TEST_CASE("modules without inputs, without a workspace and without much shared memory compile without warnings too") {
  if (no_nvcc()) return;
  fixture::Made m = fixture::two_kernels();
  m.program.inputs.clear();
  m.program.outputs = {fixture::tensor("class", DType::kF32, {})};
  Builder b(Level::kKernel);
  b.add_output(0, b.constant(3), DType::kF32);
  m.program.graph = m.plan.graph = std::move(b).finish();
  m.plan.buffers = {Buffer{Buffer::Kind::kOutput, 0, DType::kF32, {}, {}, 0}};
  m.plan.workspace_bytes = 0;
  KernelText k;
  k.name = "three";
  k.source = "__global__ void three(void* __restrict__ y) { *static_cast<float*>(y) = 3.0f; }";
  k.args = {0};
  k.written = {true};
  k.threads = 1;
  m.kernels = {k};
  const Target target = *find_target("sm_80");
  m.target = target;
  const fs::path folder = write_module(fixture::assemble(m), "small");
  for (std::vector<std::string> argv : {nvcc_library_arguments("demo", target), nvcc_check_arguments("demo", target)}) {
    argv.insert(argv.begin(), {tools().nvcc, "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror"});
    CHECK(run(argv, folder).empty());
  }
  run({"gcc", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-x", "c", "demo.h"}, folder);
  run({"python3", "-c", "compile(open('demo.py').read(), 'demo.py', 'exec')"}, folder);
}

TEST_CASE("the check compiles with warnings as errors, the header as C99, the Python file as Python") {
  if (no_nvcc()) return;
  const Target target = *find_target("sm_90a");
  const fs::path folder = write_module(fixture::assemble(fixture::two_kernels()), "check");
  REQUIRE(build_library(tools(), "demo", target, folder.string()).ok());
  std::vector<std::string> argv = nvcc_check_arguments("demo", target);
  argv.insert(argv.begin(), {tools().nvcc, "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror"});
  CHECK(run(argv, folder).empty());
  const ProcessResult without_gpu = run_process({"env", "CUDA_VISIBLE_DEVICES=", "./demo_check"}, folder.string());
  CHECK(without_gpu.exit_code == 7);
  CHECK(without_gpu.output.rfind("demo: not tried: there is no NVIDIA GPU here, or no driver that fits: ", 0) == 0);
  std::ofstream(folder / "use.c") << "#include \"demo.h\"\n#include \"demo.h\"\nint main(void) { demo_dims d = {sizeof(demo_dims), 0}; "
                                     "return demo_supported(0, &d) == demo_SUCCESS; }\n";
  std::ofstream(folder / "use_cuda.c")
      << "#include <cuda_runtime_api.h>\n#include \"demo.h\"\nint f(cudaStream_t s) { return demo_workspace_init(NULL, 0, s); }\n";
  run({"python3", "-c",
       "compile(open('demo_kernelbench.py').read(), 'demo_kernelbench.py', 'exec'); import json; json.load(open('demo.solution.json'))"},
      folder);
  for (const char* standard : {"-std=c99", "-std=c11"})
    run({"gcc", standard, "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "use.c"}, folder);
  run({"gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-isystem", tools().include_dir, "use_cuda.c"}, folder);
  run({"g++", "-std=c++11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-x", "c++", "-fsyntax-only", "use.c"}, folder);
  run({"python3", "-c", "compile(open('demo.py').read(), 'demo.py', 'exec')"}, folder);
}

TEST_CASE(
    "make builds without warnings what the driver builds, byte for byte in every folder, and exports NAME_* and __tvm_ffi_NAME only") {
  if (no_nvcc()) return;
  const CudaModule m = fixture::assemble(fixture::two_kernels());
  const fs::path one = write_module(m, "one"), two = write_module(m, "a folder/with spaces");
  REQUIRE(build_library(tools(), "demo", *find_target("sm_90a"), one.string()).ok());
  const std::string said = run({"make", "-s"}, two);
  CHECK(said.empty());
  const std::string bytes = bytes_of(one / "libdemo.so");
  CHECK(bytes.size() > 1000);
  CHECK(bytes == bytes_of(two / "libdemo.so"));
  CHECK(bytes.find("module_build_test") == std::string::npos);
  const std::string symbols = run({"nm", "-D", "--defined-only", "libdemo.so"}, one);
  size_t count = 0;
  std::istringstream lines(symbols);
  for (std::string line; std::getline(lines, line); count++) {
    INFO(line);
    CHECK((line.find(" T demo_") != std::string::npos || line.ends_with(" T __tvm_ffi_demo")));
  }
  CHECK(count == 9);
  // What TVM-FFI's runtime has is taken where it is there, and not missed elsewhere.
  std::istringstream wanted(run({"nm", "-D", "--undefined-only", "libdemo.so"}, one));
  for (std::string line; std::getline(wanted, line);)
    if (line.find("TVMFFI") != std::string::npos) CHECK(line.find(" w ") != std::string::npos);
}

TEST_CASE("the C ABI refuses what it must before it needs a device") {
  if (no_nvcc()) return;
  const fs::path folder = write_module(fixture::assemble(fixture::two_kernels()), "abi");
  REQUIRE(build_library(tools(), "demo", *find_target("sm_90a"), folder.string()).ok());
  const Library library(folder / "libdemo.so");
  struct Dims8 { uint32_t size, reserved; };
  auto* launch = library.function<int(const void*, const void*, const void*, void*, void*, void*, size_t, void*)>("demo_launch");
  auto* workspace_size = library.function<int(const void*, size_t*)>("demo_workspace_size");
  auto* workspace_init = library.function<int(void*, size_t, void*)>("demo_workspace_init");
  auto* supported = library.function<int(int, const void*)>("demo_supported");
  auto* text = library.function<const char*(int)>("demo_status_string");
  auto* info = library.function<const char*()>("demo_info_json");
  auto* version = library.function<unsigned()>("demo_abi_version");
  REQUIRE((launch && workspace_size && workspace_init && supported && text && info && version));
  alignas(256) static char memory[4096];
  char *x = memory, *w = memory + 256, *y = memory + 512, *m = memory + 768, *ws = memory + 1024;
  const auto status = [&](void* a, void* b, void* c, void* d, void* e, size_t bytes) {
    return launch(nullptr, a, b, c, d, e, bytes, nullptr);
  };

  size_t bytes = 0;
  CHECK(workspace_size(nullptr, &bytes) == 0);
  CHECK(bytes == 512);
  CHECK(workspace_size(nullptr, nullptr) == -2);
  const Dims8 good{8, 0}, bad_size{4, 0}, bad_reserved{8, 1};
  CHECK(workspace_size(&good, &bytes) == 0);
  CHECK(workspace_size(&bad_size, &bytes) == -1);
  CHECK(launch(&bad_reserved, x, w, y, m, ws, 512, nullptr) == -1);
  CHECK(supported(0, &bad_size) == -1);
  CHECK(status(nullptr, w, y, m, ws, 512) == -2);
  CHECK(status(x, w, y, nullptr, ws, 512) == -2);
  CHECK(status(x, w, y, m, nullptr, 0) == -2);
  CHECK(status(x + 8, w, y, m, ws, 512) == -3);
  CHECK(status(x, w, y, m, ws + 16, 512) == -3);
  CHECK(status(x, w, y, m, ws, 511) == -4);
  CHECK(workspace_init(ws, 511, nullptr) == -4);
  CHECK(workspace_init(ws + 128, 512, nullptr) == -3);
  CHECK(workspace_init(ws, 512, nullptr) == 0);
  CHECK(status(x, w, x, m, ws, 512) == -7);           // y on x
  CHECK(status(x, w, x + 48, m, ws, 512) == -7);      // y begins in the last row of x, which has 60 bytes
  CHECK(status(x, w, y, y + 32, ws, 512) == -7);      // m inside y
  CHECK(status(ws + 256, w, y, m, ws, 512) == -7);    // x inside the workspace
  // inputs may overlap, and y begins right after x: only the device is missing, or fits
  const int beside = status(x, x, x + 64, m, ws, 512);
  CHECK(beside != -7);
  CHECK(beside >= -5);
  CHECK(supported(1000000, nullptr) != 0);
  CHECK(version() == 1);
  CHECK(std::string(text(-7)) == "an output or the workspace overlaps another tensor");
  CHECK(std::string(text(-99)) == "unknown status");
  CHECK(std::string(text(1)).find("invalid") != std::string::npos);
  CHECK(std::string(info()).find("\"c_name\":\"stream_\",\"dtype\":\"float16\",\"shape\":[4,6],\"strides\":[8,1]") != std::string::npos);
}

TEST_CASE("DLPack tensors are checked for shape, strides, dtype and count") {
  if (no_nvcc()) return;
  const fs::path folder = write_module(fixture::assemble(fixture::two_kernels()), "dlpack");
  REQUIRE(build_library(tools(), "demo", *find_target("sm_90a"), folder.string()).ok());
  const Library library(folder / "libdemo.so");
  auto* launch = library.function<int(const DlTensor* const*, int, void*, size_t, void*)>("demo_launch_dlpack");
  REQUIRE(launch);
  alignas(256) static char memory[4096];
  int64_t matrix[] = {4, 6}, vector[] = {6}, column[] = {4, 1};
  int64_t x_strides[] = {8, 1}, m_strides[] = {2, 77};   // the stride of an extent of 1 means nothing
  const auto status = [&](const std::function<void(std::vector<DlTensor>&)>& spoil, int count = 4) {
    std::vector<DlTensor> t = {{memory, 2, 0, 2, 2, 16, 1, matrix, x_strides, 0}, {memory + 256, 2, 0, 1, 2, 32, 1, vector, nullptr, 0},
                               {memory + 512, 2, 0, 2, 2, 16, 1, matrix, nullptr, 0},
                               {memory + 768, 2, 0, 2, 2, 32, 1, column, m_strides, 0}};
    spoil(t);
    const DlTensor* pointers[] = {&t[0], &t[1], &t[2], &t[3]};
    return launch(pointers, count, memory + 1024, 512, nullptr);
  };
  const int fine = status([](auto&) {});
  CHECK((fine >= 0 || fine == -5));   // without this GPU: a CUDA error or the wrong device
  CHECK(launch(nullptr, 4, nullptr, 0, nullptr) == -2);
  CHECK(status([](auto&) {}, 3) == -6);
  CHECK(status([](auto& t) { t[1].data = nullptr; }) == -2);
  CHECK(status([](auto& t) { t[0].strides = nullptr; }) == -6);   // row-major is not what this input has
  CHECK(status([&](auto& t) { t[0].ndim = 1; }) == -6);
  CHECK(status([&](auto& t) { t[1].shape = column; }) == -6);
  CHECK(status([&](auto& t) { t[1].shape = nullptr; }) == -6);
  CHECK(status([](auto& t) { t[0].code = 4; }) == -6);   // bfloat16
  CHECK(status([](auto& t) { t[0].bits = 32; }) == -6);
  CHECK(status([](auto& t) { t[0].lanes = 2; }) == -6);
}

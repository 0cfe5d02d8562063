// Runs region kernels on the host (region_harness.h).
#include "cuda/region_harness.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "mirage/support/assert.h"
#include "mirage/support/hash.h"

namespace mirage::test {
namespace {

std::string read(const std::string& path) {
  std::ifstream in(path);
  std::stringstream s;
  s << in.rdbuf();
  MIRAGE_ASSERT(in.good()) << "cannot read " << path;
  return s.str();
}

std::string work_folder() {
  const std::string folder = std::string(MIRAGE_BINARY_DIR) + "/region_test";
  MIRAGE_ASSERT(system(("mkdir -p " + folder).c_str()) == 0) << folder;
  return folder;
}

/// Memory that ends at a page nobody may touch; its start is 16-byte aligned.
class Guarded {
 public:
  explicit Guarded(int64_t bytes) {
    const int64_t page = sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page;
    size_ = static_cast<size_t>((pages + 1) * page);
    base_ = static_cast<char*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    MIRAGE_ASSERT(base_ != MAP_FAILED) << "mmap";
    MIRAGE_ASSERT(mprotect(base_ + pages * page, static_cast<size_t>(page), PROT_NONE) == 0) << "mprotect";
    data_ = base_ + (pages * page - bytes) / 16 * 16;
    memset(base_, 0x7b, static_cast<size_t>(pages * page));
  }
  ~Guarded() { munmap(base_, size_); }
  Guarded(const Guarded&) = delete;
  char* data() const { return data_; }
 private:
  char* base_;
  char* data_;
  size_t size_;
};

double load(const char* p, int64_t i, DType t) {
  if (t == DType::kBool) return p[i] != 0;
  if (t == DType::kF32 || t == DType::kReal) { float x; memcpy(&x, p + i * 4, 4); return x; }
  uint16_t u;
  memcpy(&u, p + i * 2, 2);
  if (t == DType::kBF16) { const uint32_t w = static_cast<uint32_t>(u) << 16; float x; memcpy(&x, &w, 4); return x; }
  const int e = u >> 10 & 31, m = u & 1023;
  const double x = e == 31 ? (m ? NAN : INFINITY) : e ? std::ldexp(1024 + m, e - 25) : std::ldexp(m, -24);
  return u >> 15 ? -x : x;
}

void store(char* p, int64_t i, DType t, double x) {   // x is a value of t
  if (t == DType::kBool) { p[i] = x != 0; return; }
  const float f = static_cast<float>(x);
  if (t == DType::kF32 || t == DType::kReal) { memcpy(p + i * 4, &f, 4); return; }
  uint32_t w;
  memcpy(&w, &f, 4);
  uint16_t u = static_cast<uint16_t>(w >> 16);
  if (t == DType::kF16 && x != 0) {
    int e = 0;
    std::frexp(std::fabs(x), &e);
    const int q = std::max(e - 11, -24), n = static_cast<int>(std::ldexp(std::fabs(x), -q));
    u = static_cast<uint16_t>((x < 0 ? 0x8000 : 0) | (q == -24 ? n : ((q + 25) << 10) + n - 1024));
  }
  memcpy(p + i * 2, &u, 2);
}

int64_t offset_of(const Dims& dims, const Dims& strides, int64_t linear) {
  int64_t at = 0;
  for (int d = dims.rank() - 1; d >= 0; d--) at += linear % dims[d] * strides[d], linear /= dims[d];
  return at;
}

std::string host_source(const std::vector<Case>& cases) {
  const std::string root = MIRAGE_SOURCE_DIR;
  std::string base = read(root + "/lib/codegen/runtime/00_base.cuh");
  for (const char* include : {"#include <cuda_bf16.h>", "#include <cuda_fp16.h>"})
    if (size_t at = base.find(include); at != std::string::npos) base.erase(at, strlen(include));
  for (const std::string name : {"read_now", "read_once_now"}) {   // the primitives of rows that are PTX
    const size_t ptx = base.find("MO_FN uint4 " + name + "(");
    MIRAGE_ASSERT(ptx != std::string::npos) << "00_base.cuh has no " << name << " any more";
    base.replace(ptx, base.find('\n', ptx) - ptx, "MO_FN uint4 " + name + "(const uint4* p) { return *p; }");
  }
  std::string text = read(root + "/test/cuda/region_host_cuda.inc") + base;
  for (const char* part : {"elements/02_narrow.cuh", "20_region.cuh"}) text += read(root + "/lib/codegen/runtime/" + part);
  for (const Case& c : cases)
    for (const KernelText& k : c.kernels) {
      text += k.source + "static void call_" + k.name + "(void* const* a) { " + k.name + "(";
      for (size_t i = 0; i < k.args.size(); i++) text += (i ? ", a[" : "a[") + std::to_string(i) + "]";
      text += "); }\nextern \"C\" void launch_" + k.name + "(void* const* a, long blocks, int threads) { host_launch(call_" + k.name +
              ", a, blocks, threads); }\n";
    }
  return text;
}

/// Random values of the dtype; every input of a case gets other ones.
Tensor<double> random_tensor(const TensorInfo& t, Rng& rng) {
  Tensor<double> x(t.type.dims, 0.0);
  for (double& v : x.data)
    v = t.type.dtype == DType::kBool
            ? static_cast<double>(rng.below(2))
            : round_to(t.range ? t.range->first + (t.range->second - t.range->first) * rng.uniform() : rng.uniform() * 4 - 2, t.type.dtype);
  return x;
}

double tolerance(DType t) { return t == DType::kF16 ? 1.5e-3 : t == DType::kBF16 ? 1.2e-2 : 2e-5; }

std::string run_case(const Case& c, void* library) {
  Rng rng(hash_text(c.program.name));
  std::vector<Tensor<double>> params;
  std::vector<std::unique_ptr<Guarded>> memory;
  Guarded workspace((c.plan.workspace_bytes + 255) / 256 * 256 + 256);
  for (const TensorInfo& t : c.program.inputs) params.push_back(random_tensor(t, rng));
  std::vector<char*> base;
  for (const Buffer& b : c.plan.buffers) {
    if (b.kind == Buffer::Kind::kWorkspace) { base.push_back(workspace.data() + b.offset_bytes); continue; }
    memory.push_back(std::make_unique<Guarded>(b.bytes()));
    base.push_back(memory.back()->data());
    if (b.kind != Buffer::Kind::kInput) continue;
    const Tensor<double>& x = params[static_cast<size_t>(b.index)];
    for (int64_t i = 0; i < b.dims.elements(); i++)
      store(base.back(), offset_of(b.dims, b.strides, i), b.dtype, x.data[static_cast<size_t>(i)]);
  }
  for (const KernelText& k : c.kernels) {
    auto launch = reinterpret_cast<void (*)(void* const*, long, int)>(dlsym(library, ("launch_" + k.name).c_str()));
    MIRAGE_ASSERT(launch) << k.name;
    std::vector<void*> args;
    for (int a : k.args) args.push_back(base[static_cast<size_t>(a)]);
    launch(args.data(), k.grid[0], k.threads);
  }
  DoubleAlgebra algebra;
  const auto expected = evaluate(c.program.graph, std::span<const Tensor<double>>(params), algebra, true);
  for (const Buffer& b : c.plan.buffers) {
    if (b.kind != Buffer::Kind::kOutput) continue;
    const Tensor<double>& want = expected[static_cast<size_t>(b.index)];
    double scale = 0;
    for (double x : want.data) if (std::isfinite(x)) scale = std::max(scale, std::fabs(x));
    for (int64_t i = 0; i < b.dims.elements(); i++) {
      const double got = load(base[static_cast<size_t>(&b - c.plan.buffers.data())], offset_of(b.dims, b.strides, i), b.dtype),
                   x = want.data[static_cast<size_t>(i)];
      const bool same = std::isnan(x)   ? std::isnan(got)
                        : std::isinf(x) ? got == x
                                        : std::fabs(got - x) <= tolerance(b.dtype) * (std::fabs(x) + 0.1 * std::min(scale, 10.0)) + 1e-6;
      if (!same) {
        std::ostringstream s;
        s << c.program.name << ": output " << b.index << " element " << i << " of " << to_string(b.dims) << ": got " << got << ", want "
          << x << "\n"
          << print(c.program.graph, c.program.name);
        for (const KernelText& k : c.kernels) s << k.source;
        return s.str();
      }
    }
  }
  return "";
}

}  // namespace

Case make_case(Program program) {
  Case c;
  c.program = std::move(program);
  Target target = *find_target("sm_90a");
  target.has_cluster = false;   // the harness runs block after block; rows of a cluster: test/emulate/regions/cluster_rows.cc
  Planned planned = make_plan(c.program, c.program.graph, target);
  MIRAGE_ASSERT(planned.plan.has_value()) << c.program.name << ": " << planned.reason;
  c.plan = std::move(*planned.plan);
  for (const KernelPlan& k : c.plan.kernels)
    if (std::holds_alternative<std::shared_ptr<const RegionPlan>>(k.body)) c.kernels.push_back(emit_region_kernel(k, c.plan, target));
  MIRAGE_ASSERT(c.kernels.size() == c.plan.kernels.size()) << "calls do not run on the host";
  return c;
}

/// Compiles and loads; nullptr: `error` says why not.
static void* load_on_host(const std::string& text, const std::string& name, std::string& error) {
  const std::string stem = work_folder() + "/" + name;
  std::ofstream(stem + ".cc") << text;
  const std::string command =
      "c++ -std=c++17 -O0 -fno-strict-aliasing -fsanitize=alignment -fno-sanitize-recover=alignment -w -shared -fPIC -o " + stem + ".so " +
      stem + ".cc -lubsan";
  if (system(command.c_str()) != 0) return error = "the host compiler refuses " + stem + ".cc", nullptr;
  void* library = dlopen((stem + ".so").c_str(), RTLD_NOW);
  if (!library) error = dlerror();
  return library;
}

std::vector<std::string> run_on_host(const std::vector<Case>& cases, const std::string& name) {
  std::string refusal;
  void* library = load_on_host(host_source(cases), name, refusal);
  if (!library) return {refusal};
  std::vector<std::string> out;
  for (const Case& c : cases)
    if (std::string error = run_case(c, library); !error.empty()) out.push_back(error);
  dlclose(library);
  return out;
}

std::string call_on_host(const std::string& function, const std::string& text, const std::string& name) {
  std::string refusal;
  void* library = load_on_host(host_source({}) + text, name, refusal);
  if (!library) return refusal;
  const auto call = reinterpret_cast<const char* (*)()>(dlsym(library, function.c_str()));
  MIRAGE_ASSERT(call) << function;
  std::string said = call();
  dlclose(library);
  return said;
}

std::string compile_with_nvcc(const std::vector<Case>& cases, const std::string& name) {
  std::string nvcc = "nvcc";
  if (system("command -v nvcc > /dev/null 2>&1") != 0) nvcc = "/usr/local/cuda/bin/nvcc";
  if (system((nvcc + " --version > /dev/null 2>&1").c_str()) != 0) return "absent";
  const std::string stem = work_folder() + "/" + name;
  std::ofstream out(stem + ".cu");
  out << runtime_text();
  for (const Case& c : cases)
    for (const KernelText& k : c.kernels) out << k.source;
  out.close();
  const int rc = system((nvcc + " -std=c++17 -arch=sm_90a -cubin -o " + stem + ".cubin " + stem + ".cu > " + stem + ".log 2>&1").c_str());
  const std::string log = read(stem + ".log");
  return rc == 0 ? log : "nvcc failed\n" + log;
}

}  // namespace mirage::test

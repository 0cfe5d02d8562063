// Runs packed kernels on this machine's GPU and compares what they leave with what the pack says: device_runner FOLDER. Needs the NVIDIA
// driver and nothing else, so that a pack made elsewhere (device_pack.h: the emulator's results) can be checked where a GPU is. A line per
// group of cases and a sum at the end; exit code 8 if a result is outside of its bound.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "inputs.h"

namespace {

/// kind: i input (bytes at `at` of the data), g input made from a seed, o output (expected bytes at `at`), w workspace.
struct Buffer {
  char kind = 'i';
  int64_t bytes = 0, at = 0, exists = -1;
  std::string check;   ///< kind g: the type
  double bound = 0;
  uint32_t seed = 0;
  float low = 0, high = 0;
  std::vector<int64_t> dims, strides;
  uint64_t device = 0;
};
struct Map {
  int buffer = 0, element = 2, rank = 1, swizzle = 0;
  int64_t offset = 0;
  std::vector<int64_t> dims, strides;
  std::vector<int> box;
};
struct Launch {
  std::string library, symbol;
  std::array<int64_t, 3> grid{};
  int threads = 0;
  int64_t smem = 0;
  std::vector<Map> maps;
  std::vector<int> args;
};
struct Case { std::string module, group, name; std::vector<Buffer> buffers; std::vector<Launch> launches; };

// ---- the driver, by hand: a pack is run where no toolkit need be
using Handle = void*;
struct Driver {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  template <class F> F of(const char* name) const {
    void* p = library ? dlsym(library, name) : nullptr;
    if (!p) { std::fprintf(stderr, "device_runner: no %s\n", library ? name : "NVIDIA driver"); std::exit(3); }
    return reinterpret_cast<F>(p);
  }
};
const Driver& driver() { static const Driver d; return d; }
template <class... A> void call(const char* name, A... a) {
  const int r = driver().of<int (*)(A...)>(name)(a...);
  if (r != 0) { std::fprintf(stderr, "device_runner: %s: error %d\n", name, r); std::exit(4); }
}

/// The function of a module whose mangled name holds the namespace and the symbol.
Handle find_function(Handle module, const Launch& l) {
  static std::map<Handle, std::vector<std::pair<std::string, Handle>>> known;
  auto& list = known[module];
  if (list.empty()) {
    unsigned count = 0;
    call("cuModuleGetFunctionCount", &count, module);
    std::vector<Handle> all(count);
    call("cuModuleEnumerateFunctions", all.data(), count, module);
    for (Handle f : all) {
      const char* name = nullptr;
      call("cuFuncGetName", &name, f);
      list.emplace_back(name, f);
    }
  }
  const auto part = [](const std::string& s) { return std::to_string(s.size()) + s; };
  const std::string wanted = part(l.library) + part(l.symbol);
  for (const auto& [name, f] : list) if (name.find(wanted) != std::string::npos) return f;
  std::fprintf(stderr, "device_runner: no kernel %s\n", wanted.c_str());
  std::exit(4);
}

struct alignas(64) TensorMap { uint64_t words[16]; };
void encode(TensorMap& to, const Map& m, uint64_t address) {
  std::vector<uint64_t> dims(m.dims.begin(), m.dims.end()), strides(m.strides.begin(), m.strides.end());
  std::vector<uint32_t> box(m.box.begin(), m.box.end()), ones(m.box.size(), 1);
  const int type = m.element == 2 ? 6 : 7;   // FLOAT16, FLOAT32
  const int swizzle = m.swizzle == 128 ? 3 : m.swizzle == 64 ? 2 : m.swizzle == 32 ? 1 : 0;
  call<void*, int, uint32_t, void*, const uint64_t*, const uint64_t*, const uint32_t*, const uint32_t*, int, int, int, int>(
      "cuTensorMapEncodeTiled", &to, type, static_cast<uint32_t>(m.rank),
      reinterpret_cast<void*>(address + static_cast<uint64_t>(m.offset)), dims.data(), strides.data(), box.data(), ones.data(), 0, swizzle,
      2, 0);
}

double half_value(uint16_t u) {
  const int e = u >> 10 & 31, m = u & 1023;
  const double x = e == 31 ? (m ? NAN : INFINITY) : e ? std::ldexp(1024 + m, e - 25) : std::ldexp(m, -24);
  return u >> 15 ? -x : x;
}
/// Element i as bits, as a number, and as an integer in which neighbours of the type are neighbours.
struct Element { uint32_t bits; double value; int64_t order; };
Element element(const unsigned char* p, int64_t i, const std::string& type) {
  Element e{};
  if (type == "f32") {
    memcpy(&e.bits, p + i * 4, 4);
    float f;
    memcpy(&f, &e.bits, 4);
    e.value = f;
    e.order = e.bits >> 31 ? -static_cast<int64_t>(e.bits & 0x7fffffff) : e.bits;
  } else if (type == "u32") {   // a word is a word
    memcpy(&e.bits, p + i * 4, 4);
    e.value = e.bits, e.order = e.bits;
  } else if (type == "b8") {
    e.bits = p[i], e.value = p[i], e.order = p[i];
  } else {
    uint16_t u;
    memcpy(&u, p + i * 2, 2);
    e.bits = u;
    const uint32_t w = static_cast<uint32_t>(u) << 16;
    float f;
    memcpy(&f, &w, 4);
    e.value = type == "f16" ? half_value(u) : f;
    e.order = u >> 15 ? -static_cast<int64_t>(u & 0x7fff) : u;
  }
  return e;
}
int size_of(const std::string& type) { return type == "f32" || type == "u32" ? 4 : type == "b8" ? 1 : 2; }

struct Score { int64_t cases = 0, elements = 0, unequal = 0, outside = 0; double ulp = 0, relative = 0; char first[256] = {0}; };

/// check: TYPE/bits (equal, any NaN equals any NaN), TYPE/ulp (at most `bound` neighbours apart), TYPE/rel (at most `bound` of the value
/// plus the root mean square).
void compare(const Case& c, const Buffer& b, const unsigned char* want, const unsigned char* got, const unsigned char* exists, Score& s) {
  const std::string type = b.check.substr(0, b.check.find('/')), mode = b.check.substr(b.check.find('/') + 1);
  const int64_t size = size_of(type), n = b.bytes / size;
  double squares = 0;
  for (int64_t i = 0; i < n; i++)
    if (!exists || exists[i * size]) {
      const double v = element(want, i, type).value;
      if (std::isfinite(v)) squares += v * v;
    }
  const double rms = std::sqrt(squares / static_cast<double>(std::max<int64_t>(1, n)));
  for (int64_t i = 0; i < n; i++) {
    if (exists && !exists[i * size]) continue;
    const Element x = element(want, i, type), y = element(got, i, type);
    s.elements++;
    const bool nan = std::isnan(x.value) && std::isnan(y.value);
    if (x.bits == y.bits || nan) continue;
    s.unequal++;
    const double ulp = std::isnan(x.value) != std::isnan(y.value) ? 1e9 : static_cast<double>(std::llabs(x.order - y.order)),
                 relative = std::fabs(x.value - y.value) / (std::fabs(x.value) + rms + 1e-30);
    s.ulp = std::max(s.ulp, ulp);
    s.relative = std::max(s.relative, std::isfinite(relative) ? relative : 1e9);
    const bool good = mode == "ulp" ? ulp <= b.bound : mode == "rel" && relative <= b.bound;
    if (good || s.outside++ > 0) continue;
    std::snprintf(s.first, sizeof s.first, "%s: element %lld: emulator %.9g (%08x), device %.9g (%08x)", c.name.c_str(),
                  static_cast<long long>(i), x.value, x.bits, y.value, y.bits);
  }
}

std::vector<Case> read_cases(const std::string& path) {
  std::ifstream in(path);
  std::vector<Case> out;
  std::string line, word;
  while (std::getline(in, line)) {
    std::istringstream w(line);
    w >> word;
    if (word == "case") { out.emplace_back(); w >> out.back().module >> out.back().group >> out.back().name; }
    if (word == "buffer") { Buffer b; w >> b.kind >> b.bytes >> b.at >> b.exists >> b.check >> b.bound;
      size_t rank = 0;
      if (b.kind == 'g') w >> b.seed >> b.low >> b.high >> rank;
      b.dims.resize(rank), b.strides.resize(rank);
      for (auto& x : b.dims) w >> x;
      for (auto& x : b.strides) w >> x;
      out.back().buffers.push_back(b); }
    if (word == "launch") {
      Launch l;
      int args = 0;
      w >> l.library >> l.symbol >> l.grid[0] >> l.grid[1] >> l.grid[2] >> l.threads >> l.smem >> args;
      l.args.resize(static_cast<size_t>(args));
      for (int& a : l.args) w >> a;
      out.back().launches.push_back(l);
    }
    if (word == "map") {
      Map m;
      w >> m.buffer >> m.offset >> m.element >> m.rank >> m.swizzle;
      m.dims.resize(static_cast<size_t>(m.rank)), m.strides.resize(static_cast<size_t>(m.rank - 1)),
          m.box.resize(static_cast<size_t>(m.rank));
      for (auto& x : m.dims) w >> x;
      for (auto& x : m.strides) w >> x;
      for (auto& x : m.box) w >> x;
      out.back().launches.back().maps.push_back(m);
    }
  }
  return out;
}

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::string make_input(const Buffer& b) {
  std::string out(static_cast<size_t>(b.bytes), static_cast<char>(0xff));
  int64_t n = 1;
  for (int64_t d : b.dims) n *= d;
  for (int64_t e = 0; e < n; e++) {
    int64_t at = 0, rest = e;
    for (size_t d = b.dims.size(); d-- > 0;) at += rest % b.dims[d] * b.strides[d], rest /= b.dims[d];
    const uint32_t bits = device_inputs::bits(b.check, b.seed, e, b.low, b.high);
    memcpy(out.data() + at * size_of(b.check), &bits, static_cast<size_t>(size_of(b.check)));
  }
  return out;
}

void run_case(Case& c, Handle module, const std::string& data, Score& score) {
  for (Buffer& b : c.buffers) {
    call("cuMemAlloc_v2", &b.device, static_cast<size_t>(std::max<int64_t>(b.bytes, 16)));
    if (b.kind == 'g') {
      const std::string made = make_input(b);
      call("cuMemcpyHtoD_v2", b.device, static_cast<const void*>(made.data()), made.size());
    } else if (b.kind == 'i') call("cuMemcpyHtoD_v2", b.device, static_cast<const void*>(data.data() + b.at), static_cast<size_t>(b.bytes));
    else call("cuMemsetD8_v2", b.device, static_cast<unsigned char>(0xff), static_cast<size_t>(b.bytes));
  }
  for (const Launch& l : c.launches) {
    Handle f = find_function(module, l);
    if (l.smem > 40 * 1024) call("cuFuncSetAttribute", f, 8, static_cast<int>(l.smem));
    std::vector<TensorMap> maps(l.maps.size());
    std::vector<void*> arguments;
    for (size_t i = 0; i < maps.size(); i++) {
      encode(maps[i], l.maps[i], c.buffers[static_cast<size_t>(l.maps[i].buffer)].device);
      arguments.push_back(&maps[i]);
    }
    for (int a : l.args) arguments.push_back(&c.buffers[static_cast<size_t>(a)].device);
    call("cuLaunchKernel", f, static_cast<unsigned>(l.grid[0]), static_cast<unsigned>(l.grid[1]), static_cast<unsigned>(l.grid[2]),
         static_cast<unsigned>(l.threads), 1u, 1u, static_cast<unsigned>(l.smem), Handle{}, arguments.data(), static_cast<void**>(nullptr));
  }
  call("cuCtxSynchronize");
  score.cases++;
  std::vector<unsigned char> got;
  for (Buffer& b : c.buffers) {
    if (b.kind == 'o') {
      got.resize(static_cast<size_t>(b.bytes));
      call("cuMemcpyDtoH_v2", static_cast<void*>(got.data()), b.device, got.size());
      const auto* all = reinterpret_cast<const unsigned char*>(data.data());
      compare(c, b, all + b.at, got.data(), b.exists < 0 ? nullptr : all + b.exists, score);
    }
    call("cuMemFree_v2", b.device);
  }
}

/// From group *next on, in this process.
void run_groups(const std::string& folder, const std::string& data, std::vector<Case>& cases, const std::vector<std::string>& groups,
                Score* scores, volatile size_t* next) {
  int device = 0;
  Handle context = nullptr, module = nullptr;
  call("cuInit", 0u);
  call("cuDeviceGet", &device, 0);
  call("cuDevicePrimaryCtxRetain", &context, device);
  call("cuCtxSetCurrent", context);
  std::string loaded;
  for (size_t g = *next; g < groups.size(); g++) {
    for (Case& c : cases) {
      if (c.group != groups[g]) continue;
      if (c.module != loaded) {
        call("cuModuleLoad", &module, (folder + "/" + c.module).c_str());
        loaded = c.module;
      }
      run_case(c, module, data, scores[g]);
    }
    *next = g + 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) { std::fprintf(stderr, "usage: device_runner FOLDER [GROUP]\n"); return 2; }
  const std::string folder = argv[1], data = read_all(folder + "/data.bin");
  std::vector<Case> cases = read_cases(folder + "/cases.txt");
  std::vector<std::string> groups;
  for (const Case& c : cases)
    if ((argc <= 2 || c.group.find(argv[2]) != std::string::npos) && std::find(groups.begin(), groups.end(), c.group) == groups.end())
      groups.push_back(c.group);
  auto* scores =
      static_cast<Score*>(mmap(nullptr, sizeof(Score) * (groups.size() + 1), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  auto* next = static_cast<volatile size_t*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<bool> broken(groups.size());
  while (*next < groups.size()) {   // a kernel that faults takes its process with it, and the groups behind it go on in another one
    const pid_t pid = fork();
    if (pid == 0) { run_groups(folder, data, cases, groups, scores, next); _exit(0); }
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 3) return 3;
    if (*next < groups.size()) { const size_t at = *next; broken[at] = true; *next = at + 1; }
  }
  std::printf("%-44s %6s %10s %10s %10s %10s %8s\n", "group", "cases", "elements", "unequal", "worst ulp", "worst rel", "outside");
  int64_t outside = 0, all = 0, faults = 0;
  for (size_t i = 0; i < groups.size(); i++) {
    const Score& s = scores[i];
    std::printf("%-44s %6lld %10lld %10lld %10.3g %10.3g %8lld%s%s%s\n", groups[i].c_str(), static_cast<long long>(s.cases),
                static_cast<long long>(s.elements), static_cast<long long>(s.unequal), s.ulp, s.relative, static_cast<long long>(s.outside),
                broken[i] ? "  FAULT" : "", s.first[0] ? "  " : "", s.first);
    outside += s.outside, all += s.elements, faults += broken[i];
  }
  std::printf("%zu groups, %lld elements, %lld outside of their bounds, %lld faults\n", groups.size(), static_cast<long long>(all),
              static_cast<long long>(outside), static_cast<long long>(faults));
  return outside || faults || groups.empty() ? 8 : 0;
}

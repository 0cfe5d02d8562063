// The fixed half of NAME_check.cu: random inputs, the runs, the comparison with the fp64 reference, and the timing method of
// docs/results.md. It is plain text in the result, so that a user can read how a library was judged.
#include "codegen/module_parts.h"

namespace mirage {
namespace {

constexpr const char* kDevicePart = R"~(
// ---- numbers: the same meaning as the reference evaluator's
__device__ __forceinline__ double f_nan() { return __longlong_as_double(0x7ff8000000000000LL); }
__device__ __forceinline__ double f_inf() { return __longlong_as_double(0x7ff0000000000000LL); }
__device__ __forceinline__ double f_max(double x, double y) { return x != x || y != y ? x + y : (x < y ? y : x); }
__device__ __forceinline__ double f_min(double x, double y) { return x != x || y != y ? x + y : (y < x ? y : x); }
__device__ __forceinline__ double round_f16(double x) { return static_cast<double>(__half2float(__double2half(x))); }
__device__ __forceinline__ double round_bf16(double x) { return static_cast<double>(__bfloat162float(__double2bfloat16(x))); }
__device__ __forceinline__ double round_f32(double x) { return static_cast<double>(static_cast<float>(x)); }
__device__ __forceinline__ double load_f16(const void* p, long long at) { return static_cast<double>(__half2float(static_cast<const __half*>(p)[at])); }
__device__ __forceinline__ double load_bf16(const void* p, long long at) { return static_cast<double>(__bfloat162float(static_cast<const __nv_bfloat16*>(p)[at])); }
__device__ __forceinline__ double load_f32(const void* p, long long at) { return static_cast<double>(static_cast<const float*>(p)[at]); }
__device__ __forceinline__ double load_bool(const void* p, long long at) { return static_cast<const unsigned char*>(p)[at] != 0 ? 1.0 : 0.0; }
__device__ __forceinline__ double load_i32(const void* p, long long at) { return static_cast<double>(static_cast<const int*>(p)[at]); }
__device__ __forceinline__ double load_i64(const void* p, long long at) { return static_cast<double>(static_cast<const long long*>(p)[at]); }

enum Dtype { kF16 = 0, kBF16 = 1, kF32 = 2, kBool = 3, kI32 = 4, kI64 = 5 };
enum Draw { kNormal = 0, kUniform = 1, kPositive = 2 };
struct Layout { int rank; long long shape[8]; long long strides[8]; };
struct Tensor {
  const char* name;
  int dtype;
  int bytes;             // of an element
  long long elements;
  long long span_bytes;  // from the first to the last element
  Layout layout;
  int draw;              // inputs: kNormal: scale * N(0, 1); kUniform: between lo and hi; kPositive: 0.5 + scale * |N(0, 1)|
  double scale, lo, hi;
};

__device__ inline long long place(const Layout& l, long long i) {
  long long at = 0;
  for (int d = l.rank - 1; d >= 0; d--) {
    at += i % l.shape[d] * l.strides[d];
    i /= l.shape[d];
  }
  return at;
}
__device__ inline double load(const void* p, int dtype, long long at) {
  return dtype == kF16 ? load_f16(p, at) : dtype == kBF16 ? load_bf16(p, at) : dtype == kF32 ? load_f32(p, at) : dtype == kI32 ? load_i32(p, at) : dtype == kI64 ? load_i64(p, at) : load_bool(p, at);
}
__device__ inline void store(void* p, int dtype, long long at, double v) {
  if (dtype == kF16) static_cast<__half*>(p)[at] = __double2half(v);
  else if (dtype == kBF16) static_cast<__nv_bfloat16*>(p)[at] = __double2bfloat16(v);
  else if (dtype == kF32) static_cast<float*>(p)[at] = static_cast<float>(v);
  else if (dtype == kI32) static_cast<int*>(p)[at] = static_cast<int>(v);
  else if (dtype == kI64) static_cast<long long*>(p)[at] = static_cast<long long>(v);
  else static_cast<unsigned char*>(p)[at] = v != 0.0 ? 1 : 0;
}
__device__ inline unsigned long long mix(unsigned long long z) {
  z += 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}
#define FOR_EACH(i, n) for (long long i = blockIdx.x * 1LL * blockDim.x + threadIdx.x; i < (n); i += 1LL * gridDim.x * blockDim.x)

static __global__ void fill_input(void* p, Tensor t, unsigned long long seed, double scale) {
  FOR_EACH(i, t.elements) {
    const unsigned long long r = mix(seed ^ mix(static_cast<unsigned long long>(i)));
    const double u = (static_cast<double>(r >> 32) + 0.5) * 0x1p-32, w = (static_cast<double>(r & 0xffffffffull) + 0.5) * 0x1p-32;
    const double normal = sqrt(-2.0 * log(u)) * cospi(2.0 * w);
    double v = t.scale * normal;
    if (t.draw == kUniform) v = t.lo + (t.hi - t.lo) * (0.005 + 0.99 * u);
    else if (t.draw == kPositive) v = 0.5 + t.scale * fabs(normal);
    if (t.draw != kUniform) v *= scale;
    if (t.dtype == kI32 || t.dtype == kI64) v = floor(t.lo + (t.hi - t.lo + 1.0) * u);
    if (t.dtype == kBool) v = normal > 0.0 ? 1.0 : 0.0;
    store(p, t.dtype, place(t.layout, i), v);
  }
}
static __global__ void fill_random(unsigned char* p, long long n, unsigned long long seed) { FOR_EACH(i, n) p[i] = static_cast<unsigned char>(mix(seed ^ mix(i))); }
static __global__ void erase_elements(unsigned char* p, Tensor t, int pattern) {
  FOR_EACH(i, t.elements) {
    const long long at = place(t.layout, i) * t.bytes;
    for (int b = 0; b < t.bytes; b++) p[at + b] = static_cast<unsigned char>(pattern);
  }
}
static __global__ void count_other_bytes(const unsigned char* p, long long n, int pattern, unsigned long long* count) {
  FOR_EACH(i, n) if (p[i] != pattern) atomicAdd(count, 1ull);
}
static __global__ void count_bit_differences(const unsigned char* p, const unsigned char* q, Tensor t, unsigned long long* count) {
  FOR_EACH(i, t.elements) {
    const long long at = place(t.layout, i) * t.bytes;
    for (int b = 0; b < t.bytes; b++)
      if (p[at + b] != q[at + b]) { atomicAdd(count, 1ull); break; }
  }
}
static __global__ void hash_bytes(const unsigned char* p, long long n, unsigned long long* hash) {
  unsigned long long h = 0;
  FOR_EACH(i, n) h += mix(mix(static_cast<unsigned long long>(i)) ^ p[i]);
  atomicAdd(hash, h);
}

// Per thread: [0] sum of squared errors, [1] sum of squared references, [2] elements that are wrong beyond arithmetic (NaN or infinity on one side only, a bool that is neither 0
// nor 1), [3] largest error relative to max(|reference|, floor), [4] largest absolute error. Equal infinities and two NaNs agree.
static __global__ void compare(const void* got, const double* want, Tensor t, double floor, double* out) {
  double sums[5] = {0.0, 0.0, 0.0, 0.0, 0.0};
  FOR_EACH(i, t.elements) {
    const long long at = place(t.layout, i);
    const double g = load(got, t.dtype, at), r = want[i];
    if (t.dtype == kBool && static_cast<const unsigned char*>(got)[at] > 1) sums[2] += 1.0;
    if ((isnan(g) && isnan(r)) || g == r) { if (isfinite(r)) sums[1] += r * r; continue; }
    if (!isfinite(g) || !isfinite(r)) { sums[2] += 1.0; continue; }
    const double e = fabs(g - r);
    sums[0] += e * e;
    sums[1] += r * r;
    sums[3] = fmax(sums[3], e / fmax(fabs(r), floor));
    sums[4] = fmax(sums[4], e);
  }
  const long long me = blockIdx.x * 1LL * blockDim.x + threadIdx.x;
  for (int k = 0; k < 5; k++) out[me * 5 + k] = sums[k];
}

// ---- reference: values that are stored, by number, and the program's inputs
static __device__ const void* g_input[kNumInputs > 0 ? kNumInputs : 1];
static __device__ double* g_value[kNumValues];

template <class F> __global__ void each_kernel(double* out, long long n) { FOR_EACH(i, n) out[i] = F::compute(i); }
template <class F> __global__ void fold_kernel(double* out, long long n, long long length) {
  FOR_EACH(i, n) {
    double sum = F::kIsMax ? -f_inf() : 0.0;
    for (long long k = 0; k < length; k++) sum = F::kIsMax ? f_max(sum, F::term(i, k)) : sum + F::term(i, k);
    out[i] = sum;
  }
}
template <class F> __global__ void fold_by_block_kernel(double* out, long long n, long long length) {
  __shared__ double part[256];
  for (long long i = blockIdx.x; i < n; i += gridDim.x) {
    double sum = F::kIsMax ? -f_inf() : 0.0;
    for (long long k = threadIdx.x; k < length; k += 256) sum = F::kIsMax ? f_max(sum, F::term(i, k)) : sum + F::term(i, k);
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
      if (static_cast<int>(threadIdx.x) < half) part[threadIdx.x] = F::kIsMax ? f_max(part[threadIdx.x], part[threadIdx.x + half]) : part[threadIdx.x] + part[threadIdx.x + half];
      __syncthreads();
    }
    if (threadIdx.x == 0) out[i] = part[0];
    __syncthreads();
  }
}
)~";

constexpr const char* kHostPart = R"~(
// ---- host
struct Options {
  bool json = false, time = true, quick = false, warm = false;
  unsigned long long seed = 1;
  double scale = 1.0;
  const char* against = nullptr;   // another library of this program, timed in turn with this one
  int rounds = 15;
};
static Options g_options;

static void print_json_error(const char* what) {
  std::printf("{\"name\": \"%s\", \"ok\": false, \"error\": \"", kName);
  for (const char* c = what; *c != 0; c++) std::printf(*c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
  std::printf("\", \"rel_err\": null, \"max_err\": null, \"cold_us\": null, \"warm_us\": null, \"bits_equal\": false, \"canaries_ok\": false}\n");
}
// 8: the library is wrong; 7: it cannot be tried here.
static void fail(const char* what, int code = 8) {
  if (g_options.json) print_json_error(what);
  else std::printf(code == 7 ? "%s: not tried: %s\n" : "%s: FAILED: %s\n", kName, what);
  std::fflush(stdout);
  std::exit(code);
}
static void cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  char text[512];
  std::snprintf(text, sizeof text, "%s: %s", what, cudaGetErrorString(error));
  const bool is_environment = error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver || error == cudaErrorMemoryAllocation || error == cudaErrorDevicesUnavailable ||
                              error == cudaErrorInitializationError || error == cudaErrorNoKernelImageForDevice || error == cudaErrorSystemDriverMismatch || error == cudaErrorSystemNotReady;
  fail(text, is_environment ? 7 : 8);
}
static void done(const char* what) { cuda(cudaGetLastError(), what); cuda(cudaDeviceSynchronize(), what); }
static void status(int code, const char* what, int exit_code = 8) {
  if (code == 0) return;
  char text[512];
  std::snprintf(text, sizeof text, "%s: status %d: %s", what, code, status_string(code));
  fail(text, exit_code);
}
static void* allocate(long long bytes, const char* what) {
  void* p = nullptr;
  cuda(cudaMalloc(&p, static_cast<size_t>(bytes > 0 ? bytes : 1)), what);
  return p;
}
static unsigned blocks(long long n) { return static_cast<unsigned>(n < 256 ? 1 : n > 256LL * 65536 ? 65536 : (n + 255) / 256); }

static double* g_owned[kNumValues];
static double* g_reference[kNumTensors];

// Storage of a value of the reference; its readers find it in g_value.
static double* define(int value, long long elements) {
  double* p = static_cast<double*>(allocate(elements * 8, "memory for the fp64 reference"));
  g_owned[value] = p;
  cuda(cudaMemcpyToSymbol(g_value, &p, sizeof p, sizeof p * static_cast<size_t>(value)), "reference");
  return p;
}
static void release(int value) {
  cuda(cudaFree(g_owned[value]), "reference");
  g_owned[value] = nullptr;
}
static double* result(int index, long long elements) { return g_reference[index] = static_cast<double*>(allocate(elements * 8, "memory for the fp64 reference")); }
template <class F> static void each(double* out, long long n) {
  each_kernel<F><<<blocks(n), 256>>>(out, n);
  done("reference");
}
template <class F> static void fold(double* out, long long n, long long length) {
  if (n < 65536 && length >= 256) fold_by_block_kernel<F><<<static_cast<unsigned>(n), 256>>>(out, n, length);
  else fold_kernel<F><<<blocks(n), 256>>>(out, n, length);
  done("reference");
}
template <class... T> static void unused(T&&...) {}

static void run_reference();

static unsigned long long counter(void (*start)(unsigned long long*, void*), void* what) {
  unsigned long long* p = static_cast<unsigned long long*>(allocate(8, "counter"));
  cuda(cudaMemset(p, 0, 8), "counter");
  start(p, what);
  done("counting");
  unsigned long long n = 0;
  cuda(cudaMemcpy(&n, p, 8, cudaMemcpyDeviceToHost), "counter");
  cuda(cudaFree(p), "counter");
  return n;
}

// Device memory of one tensor with room to notice writes outside of it.
constexpr long long kCanary = 4096;
struct Guarded { unsigned char* base = nullptr; long long bytes = 0; unsigned char* data() const { return base + kCanary; } };
static Guarded guarded(long long bytes) {
  Guarded g;
  g.bytes = (bytes + 255) / 256 * 256 + 2 * kCanary;
  g.base = static_cast<unsigned char*>(allocate(g.bytes, "memory for tensors"));
  return g;
}
struct CountJob { const unsigned char* p; const unsigned char* q; long long n; int pattern; const Tensor* t; };
static unsigned long long count_other(const unsigned char* p, long long n, int pattern) {
  CountJob job = {p, nullptr, n, pattern, nullptr};
  return counter([](unsigned long long* out, void* w) { const CountJob& j = *static_cast<CountJob*>(w); count_other_bytes<<<blocks(j.n), 256>>>(j.p, j.n, j.pattern, out); }, &job);
}
static unsigned long long count_differences(const unsigned char* p, const unsigned char* q, const Tensor& t) {
  CountJob job = {p, q, 0, 0, &t};
  return counter([](unsigned long long* out, void* w) { const CountJob& j = *static_cast<CountJob*>(w); count_bit_differences<<<blocks(j.t->elements), 256>>>(j.p, j.q, *j.t, out); }, &job);
}
static unsigned long long hash_of(const unsigned char* p, long long n) {
  CountJob job = {p, nullptr, n, 0, nullptr};
  return counter([](unsigned long long* out, void* w) { const CountJob& j = *static_cast<CountJob*>(w); hash_bytes<<<64, 256>>>(j.p, j.n, out); }, &job);
}

struct Errors { double rel, max, abs; double wrong; };
static Errors compare_with_reference(const void* got, const double* want, const Tensor& t) {
  constexpr int kBlocks = 128, kThreads = 256;
  std::vector<double> part(static_cast<size_t>(kBlocks) * kThreads * 5);
  double* device = static_cast<double*>(allocate(static_cast<long long>(part.size()) * 8, "comparison"));
  double floor = 1e-300;
  Errors e = {0.0, 0.0, 0.0, 0.0};
  for (int pass = 0; pass < 2; pass++) {   // the second knows the root mean square: elements near zero are measured against it
    compare<<<kBlocks, kThreads>>>(got, want, t, floor, device);
    done("comparison");
    cuda(cudaMemcpy(part.data(), device, part.size() * 8, cudaMemcpyDeviceToHost), "comparison");
    double error = 0.0, reference = 0.0;
    e = {0.0, 0.0, 0.0, 0.0};
    for (size_t i = 0; i < part.size(); i += 5) {
      error += part[i];
      reference += part[i + 1];
      e.wrong += part[i + 2];
      e.max = std::fmax(e.max, part[i + 3]);
      e.abs = std::fmax(e.abs, part[i + 4]);
    }
    e.rel = reference > 0.0 ? std::sqrt(error / reference) : std::sqrt(error);
    floor = std::fmax(1e-300, std::sqrt(reference / static_cast<double>(t.elements)));
  }
  if (e.wrong > 0.0) e.rel = e.max = e.abs = HUGE_VAL;
  cuda(cudaFree(device), "comparison");
  return e;
}

// A CUDA graph of `launches` launches of the library that go through `sets` sets of tensors, one after another.
struct Replay { cudaGraphExec_t exec; cudaEvent_t start, stop; int launches, turns; };
static Replay prepare(const std::vector<std::vector<void*>>& sets, int launches, void* workspace, size_t workspace_bytes,
                      cudaStream_t stream) {
  Replay r = {};
  r.launches = launches;
  cudaGraph_t graph;
  cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < launches; i++)
    status(launch(sets[static_cast<size_t>(i) % sets.size()].data(), workspace, workspace_bytes, stream), "launch during capture");
  cuda(cudaStreamEndCapture(stream, &graph), "capture");
  cuda(cudaGraphInstantiateWithFlags(&r.exec, graph, 0), "graph");
  cuda(cudaGraphDestroy(graph), "graph");
  cuda(cudaEventCreate(&r.start), "event");
  cuda(cudaEventCreate(&r.stop), "event");
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto begin = now();
  int graphs = 0;
  do {   // an idle GPU's clocks rise with work
    cuda(cudaGraphLaunch(r.exec, stream), "graph launch");
    cuda(cudaStreamSynchronize(stream), "graph launch");
    graphs++;
  } while (graphs < 2 || now() - begin < std::chrono::milliseconds(g_options.quick ? 5 : 20));
  // The host's latency is shared by half a millisecond of work. A kernel that keeps the GPU busy meanwhile makes every launch behind it 0.3 us
  // slower.
  const double each = 1e6 * std::chrono::duration<double>(now() - begin).count() / graphs;
  r.turns = std::max(1, std::min(50, static_cast<int>(500 / each)));
  return r;
}
static void drop(const Replay& r) {
  cuda(cudaEventDestroy(r.start), "event");
  cuda(cudaEventDestroy(r.stop), "event");
  cuda(cudaGraphExecDestroy(r.exec), "graph");
}
// Microseconds per launch, one number per replay, in order.
static std::vector<double> replay(const Replay& r, cudaStream_t stream) {
  std::vector<double> us;
  const int replays = g_options.quick ? 5 : 15;
  for (int i = 0; i < replays; i++) {
    cuda(cudaEventRecord(r.start, stream), "event");
    for (int k = 0; k < r.turns; k++) cuda(cudaGraphLaunch(r.exec, stream), "graph launch");
    cuda(cudaEventRecord(r.stop, stream), "event");
    cuda(cudaStreamSynchronize(stream), "graph launch");
    float t = 0.0f;
    cuda(cudaEventElapsedTime(&t, r.start, r.stop), "event");
    us.push_back(1000.0 * t / r.launches / r.turns);
  }
  return us;
}
static std::vector<double> time_graph(const std::vector<std::vector<void*>>& sets, int launches, void* workspace, size_t workspace_bytes,
                                      cudaStream_t stream) {
  const Replay r = prepare(sets, launches, workspace, workspace_bytes, stream);
  const std::vector<double> us = replay(r, stream);
  drop(r);
  return us;
}

static double median(std::vector<double> v) {
  if (v.empty()) return NAN;
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

struct Times { std::vector<double> cold, warm, earlier, now; };   // the last two: medians of rounds, of --against and of this library

// Both libraries over the same tensors, who comes first alternating: what the clock, the temperature and the addresses do, they do to both.
static void time_in_turn(const std::vector<std::vector<void*>>& sets, int launches, void* workspace, size_t workspace_bytes,
                         cudaStream_t stream, Times& t) {
  Library earlier;
  if (!open_library(g_options.against, earlier)) {
    const char* why = dlerror();
    fail(why ? why : "--against: not a library of this program", 7);
  }
  const Library own = g_library;
  const Replay is = prepare(sets, launches, workspace, workspace_bytes, stream);
  g_library = earlier;
  size_t bytes = 0;
  status(workspace_size(&bytes), "workspace_size of --against", 7);
  void* const w = bytes > 0 ? allocate(static_cast<long long>(bytes), "workspace of --against") : nullptr;
  status(workspace_init(w, bytes, stream), "workspace_init of --against", 7);
  const Replay was = prepare(sets, launches, w, bytes, stream);
  g_library = own;
  replay(is, stream), replay(was, stream);
  for (int i = 0; i < g_options.rounds; i++) {
    if (i % 2 == 0) t.earlier.push_back(median(replay(was, stream)));
    t.now.push_back(median(replay(is, stream)));
    if (i % 2 != 0) t.earlier.push_back(median(replay(was, stream)));
  }
  drop(is), drop(was);
  if (w) cuda(cudaFree(w), "workspace of --against");
}

static Times measure(const std::vector<void*>& first, void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  long long set_bytes = 0, input_bytes = 0;
  for (int i = 0; i < kNumTensors; i++) {
    const long long bytes = (kTensors[i].span_bytes + 255) / 256 * 256;
    set_bytes += bytes;
    if (i < kNumInputs) input_bytes += bytes;
  }
  size_t free_bytes = 0, all_bytes = 0;
  cuda(cudaMemGetInfo(&free_bytes, &all_bytes), "memory");
  long long count = input_bytes > 0 ? 200000000LL / input_bytes + 1 : 2;   // more than 200 MB of inputs, so that none is in the L2 cache when its turn comes
  count = std::max(2LL, std::min({count, 4096LL, static_cast<long long>(free_bytes * 0.8) / set_bytes}));
  unsigned char* slab = static_cast<unsigned char*>(allocate(count * set_bytes, "memory for timing"));
  std::vector<std::vector<void*>> sets;
  for (long long s = 0; s < count; s++) {
    std::vector<void*> set;
    unsigned char* p = slab + s * set_bytes;
    for (int i = 0; i < kNumTensors; i++) {
      if (i < kNumInputs) cuda(cudaMemcpyAsync(p, first[static_cast<size_t>(i)], static_cast<size_t>(kTensors[i].span_bytes), cudaMemcpyDeviceToDevice, stream), "copy");
      set.push_back(p);
      p += (kTensors[i].span_bytes + 255) / 256 * 256;
    }
    sets.push_back(set);
  }
  cuda(cudaStreamSynchronize(stream), "copy");
  const int launches = static_cast<int>(count >= 20 ? count : (20 + count - 1) / count * count);
  Times t;
  if (g_options.against) {
    time_in_turn(g_options.warm ? std::vector<std::vector<void*>>{sets[0]} : sets, launches, workspace, workspace_bytes, stream, t);
  } else {
    t.cold = time_graph(sets, launches, workspace, workspace_bytes, stream);
    t.warm = time_graph({sets[0]}, launches, workspace, workspace_bytes, stream);
  }
  cuda(cudaFree(slab), "memory for timing");
  return t;
}

static void print_samples(const char* key, const std::vector<double>& samples) {
  std::printf(", \"%s\": [", key);
  for (size_t i = 0; i < samples.size(); i++) std::printf("%s%.4f", i ? ", " : "", samples[i]);
  std::printf("]");
}

static void print_number(const char* key, double x, const char* format) {
  std::printf(", \"%s\": ", key);
  if (std::isfinite(x)) std::printf(format, x);
  else std::printf("null");
}
)~";

constexpr const char* kMainPart = R"~(
int main(int argc, char** argv) {
  for (int i = 1; i < argc; i++) {
    const std::string a = argv[i];
    if (a == "--json") g_options.json = true;
    else if (a == "--no-time") g_options.time = false;
    else if (a == "--quick") g_options.quick = true;
    else if (a == "--warm") g_options.warm = true;
    else if (a == "--against" && i + 1 < argc) g_options.against = argv[++i];
    else if (a == "--rounds" && i + 1 < argc) g_options.rounds = std::max(1, std::atoi(argv[++i]));
    else if (a == "--seed" && i + 1 < argc) g_options.seed = std::strtoull(argv[++i], nullptr, 10);
    else if (a == "--scale" && i + 1 < argc) g_options.scale = std::strtod(argv[++i], nullptr);
    else {
      std::printf("usage: %s_check [--json] [--no-time] [--quick] [--seed N] [--scale X] [--against LIB [--rounds N] [--warm]]\n"
                  "Compares lib%s.so with an fp64 reference on the current GPU and times it. --scale: inputs X times as large, but where the "
                  "spec gives a range. --against: times LIB, another library of this program, and this one in turn, N rounds (15). Exit code "
                  "0: agrees, 8: does not, 7: no GPU that it runs on, or no memory.\n", kName, kName);
      return a == "--help" || a == "-h" ? 0 : 2;
    }
  }
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess)
    fail((std::string("there is no NVIDIA GPU here, or no driver that fits: ") + cudaGetErrorString(error)).c_str(), 7);
  status(supported(device), "this device", 7);
  cudaStream_t stream;
  cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");

)~";

constexpr const char* kRunPart = R"~(  Guarded tensors[kNumTensors];
  std::vector<void*> pointers;
  unsigned long long input_hash[kNumTensors] = {};
  for (int i = 0; i < kNumTensors; i++) {
    tensors[i] = guarded(kTensors[i].span_bytes);
    cuda(cudaMemset(tensors[i].base, 0xff, static_cast<size_t>(tensors[i].bytes)), "memory for tensors");   // NaN everywhere, between strided elements too
    if (i < kNumInputs) {
      fill_input<<<blocks(kTensors[i].elements), 256>>>(tensors[i].data(), kTensors[i], g_options.seed * 1000003ull + static_cast<unsigned long long>(i), g_options.scale);
      done("inputs");
      input_hash[i] = hash_of(tensors[i].base, tensors[i].bytes);
      const void* p = tensors[i].data();
      cuda(cudaMemcpyToSymbol(g_input, &p, sizeof p, sizeof p * static_cast<size_t>(i)), "inputs");
    }
    pointers.push_back(tensors[i].data());
  }
  run_reference();

  size_t workspace_bytes = 0;
  status(workspace_size(&workspace_bytes), "workspace_size");
  const Guarded workspace = guarded(static_cast<long long>(workspace_bytes));
  fill_random<<<256, 256>>>(workspace.base, workspace.bytes, 77);
  cuda(cudaMemset(workspace.base, 0xa5, kCanary), "workspace");
  cuda(cudaMemset(workspace.data() + workspace_bytes, 0xa5, static_cast<size_t>(workspace.bytes - kCanary) - workspace_bytes), "workspace");
  done("workspace");
  void* const w = workspace_bytes > 0 ? workspace.data() : nullptr;
  status(workspace_init(w, workspace_bytes, stream), "workspace_init");

  // Two launches onto different garbage: what a kernel leaves unwritten, or writes outside, differs or shows in the pattern.
  bool bits_equal = true, canaries_ok = true;
  Guarded saved[kNumTensors];
  for (int run = 0; run < 2; run++) {
    const int pattern = run == 0 ? 0xff : 0x55;
    for (int i = kNumInputs; i < kNumTensors; i++) cuda(cudaMemset(tensors[i].base, pattern, static_cast<size_t>(tensors[i].bytes)), "outputs");
    done("outputs");
    status(launch(pointers.data(), w, workspace_bytes, stream), "launch");
    cuda(cudaStreamSynchronize(stream), "launch");
    for (int i = kNumInputs; i < kNumTensors; i++) {
      const Guarded copy = guarded(kTensors[i].span_bytes);
      cuda(cudaMemcpy(copy.base, tensors[i].base, static_cast<size_t>(copy.bytes), cudaMemcpyDeviceToDevice), "outputs");
      erase_elements<<<blocks(kTensors[i].elements), 256>>>(copy.data(), kTensors[i], pattern);
      done("outputs");
      canaries_ok = count_other(copy.base, copy.bytes, pattern) == 0 && canaries_ok;
      if (run == 0) {
        cuda(cudaMemcpy(copy.base, tensors[i].base, static_cast<size_t>(copy.bytes), cudaMemcpyDeviceToDevice), "outputs");
        saved[i] = copy;
      } else {
        bits_equal = count_differences(saved[i].data(), tensors[i].data(), kTensors[i]) == 0 && bits_equal;
        cuda(cudaFree(copy.base), "outputs");
        cuda(cudaFree(saved[i].base), "outputs");
      }
    }
  }
  canaries_ok = count_other(workspace.base, kCanary, 0xa5) == 0 && canaries_ok;
  canaries_ok = count_other(workspace.data() + workspace_bytes, workspace.bytes - kCanary - static_cast<long long>(workspace_bytes), 0xa5) == 0 && canaries_ok;
  for (int i = 0; i < kNumInputs; i++) canaries_ok = hash_of(tensors[i].base, tensors[i].bytes) == input_hash[i] && canaries_ok;

  double rel = 0.0, max = 0.0;
  bool accurate = true;
  std::vector<Errors> errors;
  for (int i = kNumInputs; i < kNumTensors; i++) {
    const Errors e = compare_with_reference(tensors[i].data(), g_reference[i - kNumInputs], kTensors[i]);
    rel = std::fmax(rel, e.rel);
    max = std::fmax(max, e.max);
    errors.push_back(e);
    const bool fits = e.rel <= kRelativeTolerance || e.abs <= kAbsoluteTolerance;
    if (!fits && !g_options.json) std::printf("%s: output %s: relative error %.3g, largest element %.3g\n", kName, kTensors[i].name, e.rel, e.max);
    accurate = fits && accurate;
    cuda(cudaFree(g_reference[i - kNumInputs]), "reference");
  }
  Times t;
  if (g_options.time) t = measure(pointers, w, workspace_bytes, stream);

)~";

constexpr const char* kVerdictPart = R"~(  const bool ok = accurate && bits_equal && canaries_ok;
  if (g_options.json) {
    std::printf("{\"name\": \"%s\", \"ok\": %s", kName, ok ? "true" : "false");
    print_number("rel_err", rel, "%.6g");
    print_number("max_err", max, "%.6g");
    print_number("cold_us", median(t.cold), "%.4f");
    print_number("warm_us", median(t.warm), "%.4f");
    print_samples("cold_samples_us", t.cold);
    print_samples("warm_samples_us", t.warm);
    if (g_options.against) print_samples("earlier_rounds_us", t.earlier), print_samples("rounds_us", t.now);
    std::printf(", \"bits_equal\": %s, \"canaries_ok\": %s, \"tolerance\": %g, \"outputs\": [", bits_equal ? "true" : "false", canaries_ok ? "true" : "false", kRelativeTolerance);
    for (int i = kNumInputs; i < kNumTensors; i++) {
      std::printf("%s{\"name\": \"%s\"", i == kNumInputs ? "" : ", ", kTensors[i].name);
      print_number("rel_err", errors[static_cast<size_t>(i - kNumInputs)].rel, "%.6g");
      print_number("max_err", errors[static_cast<size_t>(i - kNumInputs)].max, "%.6g");
      std::printf("}");
    }
    std::printf("]}\n");
  } else {
    std::printf("%s: %s  relative error %.3g (limit %g)  largest element %.3g  ", kName, ok ? "ok" : "FAILED", rel, kRelativeTolerance, max);
    if (!t.now.empty()) std::printf("%.2f us, %.2f us of %s  ", median(t.now), median(t.earlier), g_options.against);
    else if (g_options.time) std::printf("cold %.2f us  warm %.2f us  ", median(t.cold), median(t.warm));
    std::printf("%s  %s\n", bits_equal ? "same bits twice" : "BITS DIFFER between two launches", canaries_ok ? "nothing else written" : "WROTE OUTSIDE its outputs");
  }
  return ok ? 0 : 8;
}
)~";

}  // namespace

std::string check_harness(HarnessPart part) {
  static const char* const kParts[] = {kDevicePart, kHostPart, kMainPart, kRunPart, kVerdictPart};
  return kParts[static_cast<size_t>(part)];
}

}  // namespace mirage

// What a GPU does, under the names of include/mirage/ir/machine.def: prints a column in about a minute.
//   nvcc -O3 -std=c++17 -arch sm_90a test/gpu/machine.cu -o machine && ./machine
// Every quantity is the best of several repetitions in one graph or launch, after the clocks have risen. Values that the cost models fitted to kernels (rates into one multiprocessor by way, times of cluster meetings) stand
// under names of their own, with the raw rate by that way: a new machine's cell is that of the H200 times the ratio of raw rates.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

namespace {

void check(cudaError_t e, int line) {
  if (e == cudaSuccess) return;
  std::fprintf(stderr, "machine.cu:%d: %s\n", line, cudaGetErrorString(e));
  std::exit(1);
}
#define CHECK(x) check((x), __LINE__)

cudaStream_t stream;
cudaDeviceProp device;
uint64_t* clocks;   // of one kernel: cycles, nanoseconds
float* sink;
int sms;

void print(const char* name, double value, const char* unit, const char* what = "") { std::printf("%-28s %12.4g %-9s %s\n", name, value, unit, what); }

/// Microseconds of one of `count` launches in a graph, the best of `repeats`.
double graph_us(const std::function<void()>& launch, int count, int repeats = 9) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaEvent_t from, to;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < count; i++) launch();
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaEventCreate(&from));
  CHECK(cudaEventCreate(&to));
  double best = 1e30;
  for (int r = 0; r < repeats; r++) {
    CHECK(cudaEventRecord(from, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaEventRecord(to, stream));
    CHECK(cudaEventSynchronize(to));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, from, to));
    if (r > 0) best = std::min(best, ms * 1e3 / count);
  }
  CHECK(cudaGetLastError());
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaEventDestroy(from));
  CHECK(cudaEventDestroy(to));
  return best;
}

/// What a launch of one block wrote: cycles, the fewest of `repeats`.
double cycles(const std::function<void()>& launch, int repeats = 9) {
  double best = 1e30;
  for (int r = 0; r < repeats; r++) {
    launch();
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream));
    best = std::min(best, static_cast<double>(clocks[0]));
  }
  return best;
}

// ---- time and launches
__global__ void nothing() {}

__device__ uint64_t nanoseconds() { uint64_t t; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)); return t; }

__global__ void spin(uint64_t* out, uint64_t ns) {
  const uint64_t from = nanoseconds();
  const long long c = clock64();
  while (nanoseconds() - from < ns) {}
  if (threadIdx.x == 0 && blockIdx.x == 0) out[0] = static_cast<uint64_t>(clock64() - c), out[1] = nanoseconds() - from;
}

// ---- device memory and L2
__global__ void __launch_bounds__(512) read_all(const uint4* p, uint64_t words, float* to) {
  uint32_t acc = 0;
  for (uint64_t i = blockIdx.x * 4096ull + threadIdx.x; i < words; i += gridDim.x * 4096ull) {
    uint4 v[8];
#pragma unroll
    for (int u = 0; u < 8; u++) v[u] = i + u * 512 < words ? p[i + u * 512] : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int u = 0; u < 8; u++) acc ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
  }
  if (acc == 0x12345678u) to[0] = 1;
}

/// A chain of loads, each of an address that the one before brought.
__global__ void chase(const uint32_t* p, int steps, uint64_t* out, float* to) {
  uint32_t at = 0;
  const long long c = clock64();
  for (int i = 0; i < steps; i++) asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(at) : "l"(p + at));
  out[0] = static_cast<uint64_t>(clock64() - c) / steps;
  if (at == 1) to[0] = 1;
}

// ---- into one multiprocessor, what L2 holds
__global__ void __launch_bounds__(1024) take_ld(const uint4* p, int words, int rounds, uint64_t* out, float* to) {
  uint32_t acc = 0;
  __syncthreads();
  const long long c = clock64();
  for (int r = 0; r < rounds; r++)
    for (int i = threadIdx.x; i < words; i += 4096) {
      uint4 v[4];
#pragma unroll
      for (int u = 0; u < 4; u++) asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v[u].x), "=r"(v[u].y), "=r"(v[u].z), "=r"(v[u].w) : "l"(p + (i + u * 1024) % words));
#pragma unroll
      for (int u = 0; u < 4; u++) acc ^= v[u].x ^ v[u].w;
    }
  __syncthreads();
  if (threadIdx.x == 0) out[0] = static_cast<uint64_t>(clock64() - c);
  if (acc == 0x12345678u) to[0] = 1;
}

__global__ void __launch_bounds__(512) take_cp_async(const uint4* p, int words, int rounds, uint64_t* out) {
  extern __shared__ uint4 ring[];
  const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(ring));
  __syncthreads();
  const long long c = clock64();
  int slot = 0;
  for (int r = 0; r < rounds; r++)
    for (int i = threadIdx.x; i < words; i += 2048) {
#pragma unroll
      for (int u = 0; u < 4; u++)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(base + ((slot * 2048 + u * 512 + threadIdx.x) * 16)), "l"(p + (i + u * 512) % words) : "memory");
      asm volatile("cp.async.commit_group;\ncp.async.wait_group 1;" ::: "memory");
      slot ^= 1;
    }
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) out[0] = static_cast<uint64_t>(clock64() - c);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
/// Bulk copies of `bytes` each from one thread, `slots` in flight.
__global__ void take_bulk(const char* p, int64_t span, int bytes, int slots, int count, uint64_t* out) {
  extern __shared__ __align__(128) char places[];
  __shared__ __align__(8) uint64_t bars[16];
  const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(places)), bar = static_cast<uint32_t>(__cvta_generic_to_shared(bars));
  if (threadIdx.x != 0) return;
  for (int s = 0; s < slots; s++) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar + 8 * s));
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  const long long c = clock64();
  for (int i = 0; i < count + slots; i++) {
    const int s = i % slots;
    if (i >= slots) {
      uint32_t done = 0;
      while (!done)
        asm volatile("{.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(bar + 8 * s), "r"((i / slots + 1) & 1) : "memory");
    }
    if (i >= count) continue;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar + 8 * s), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(base + s * bytes), "l"(p + static_cast<int64_t>(i) * bytes % span), "r"(bytes), "r"(bar + 8 * s) : "memory");
  }
  out[0] = static_cast<uint64_t>(clock64() - c);
}

// ---- clusters
template <int SIZE> __global__ void __cluster_dims__(SIZE, 1, 1) meet(int rounds) {
  for (int i = 0; i < rounds; i++) asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

/// Block 0 writes `words` words of 16 bytes to the shared memory of block 1, `rounds` times.
__global__ void __cluster_dims__(2, 1, 1) exchange(int words, int rounds, uint64_t* out) {
  extern __shared__ __align__(128) char places[];
  uint32_t rank, to;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(places))), "r"(rank ^ 1));
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  const long long c = clock64();
  for (int r = 0; r < rounds; r++)
    for (int i = threadIdx.x; i < words; i += blockDim.x) asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %1, %1, %1};" ::"r"(to + i * 16), "f"(1.0f) : "memory");
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  if (threadIdx.x == 0 && blockIdx.x == 0) out[0] = static_cast<uint64_t>(clock64() - c);
}
#else
__global__ void take_bulk(const char*, int64_t, int, int, int, uint64_t*) {}
template <int SIZE> __global__ void meet(int) {}
__global__ void exchange(int, int, uint64_t*) {}
#endif

// ---- one multiprocessor: shared memory, barriers, arithmetic
__global__ void __launch_bounds__(1024) read_shared(int rounds, uint64_t* out, float* to) {
  __shared__ float4 place[2048];
  for (int i = threadIdx.x; i < 2048; i += 1024) place[i] = make_float4(0, 0, 0, 0);
  __syncthreads();
  float acc = 0;
  const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(place)) + threadIdx.x * 16;
  const long long c = clock64();
#pragma unroll 8
  for (int i = 0; i < rounds; i++) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(base + (i & 1) * 16384));
    acc += v.x;
  }
  __syncthreads();
  if (threadIdx.x == 0) out[0] = static_cast<uint64_t>(clock64() - c);
  if (acc == 1) to[0] = 1;
}

__global__ void barriers(int rounds, uint64_t* out) {
  __syncthreads();
  const long long c = clock64();
  for (int i = 0; i < rounds; i++) __syncthreads();
  if (threadIdx.x == 0) out[0] = static_cast<uint64_t>(clock64() - c);
}

enum class Unit { kFma, kSpecial, kConvert };
template <Unit U> __global__ void __launch_bounds__(1024) arithmetic(int rounds, float x, float* to) {
  float v[8];
#pragma unroll
  for (int i = 0; i < 8; i++) v[i] = x + i;
  for (int r = 0; r < rounds; r++)
#pragma unroll
    for (int i = 0; i < 8; i++) {
      if (U == Unit::kFma) v[i] = __fmaf_rn(v[i], x, 1.0f);
      if (U == Unit::kSpecial) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(v[i]));
      if (U == Unit::kConvert) v[i] = __half2float(__float2half_rn(v[i]));
    }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) sum += v[i];
  if (sum == 12345.0f) to[0] = sum;
}

/// m16n8k16, float16 with float32 sums, eight chains a warp.
__global__ void __launch_bounds__(256) products(int rounds, float* to) {
  float d[8][4] = {};
  const uint32_t a = threadIdx.x, b = threadIdx.x * 3;
  for (int r = 0; r < rounds; r++)
#pragma unroll
    for (int i = 0; i < 8; i++)
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, {%5, %5}, {%0, %1, %2, %3};" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3]) : "r"(a & 0), "r"(b & 0));
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) sum += d[i][0] + d[i][3];
  if (sum == 12345.0f) to[0] = sum;
}

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
/// wgmma m64n128k16 from shared memory that holds zeros, two warpgroups a block.
__global__ void __launch_bounds__(256) group_products(int rounds, float* to) {
  extern __shared__ __align__(1024) char zeros[];
  for (int i = threadIdx.x; i < (64 << 10) / 4; i += 256) reinterpret_cast<float*>(zeros)[i] = 0;
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  float d[64] = {};
  const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(zeros)) + threadIdx.x / 128 * (8 << 10);
  const uint64_t tile = (uint64_t)64 << 32 | (uint64_t)1 << 62, a = tile | (at & 0x3ffff) >> 4, b = tile | ((at + (16 << 10)) & 0x3ffff) >> 4;
#define D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
  for (int r = 0; r < rounds; r++) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < 4; k++)
      asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, 1, 1, 1, 0, 0;"
                   : D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56) : "l"(a + k * 2), "l"(b + k * 2));
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
#undef D8
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 64; i++) sum += d[i];
  if (sum == 12345.0f) to[0] = sum;
}
#else
__global__ void group_products(int, float*) {}
#endif

double clock_per_us = 0;

void measure_time() {
  CHECK(cudaFuncSetAttribute(spin, cudaFuncAttributePreferredSharedMemoryCarveout, 0));
  for (int i = 0; i < 20; i++) spin<<<sms, 256, 0, stream>>>(clocks, 20'000'000);   // clocks rise
  spin<<<sms, 256, 0, stream>>>(clocks, 50'000'000);
  CHECK(cudaStreamSynchronize(stream));
  clock_per_us = 1e3 * static_cast<double>(clocks[0]) / static_cast<double>(clocks[1]);
  print("clock_per_us", clock_per_us, "clk/us", "all multiprocessors spinning");
  print("launch_us", graph_us([] { nothing<<<1, 32, 0, stream>>>(); }, 60), "us", "an empty kernel, 60 in a graph");
}

void measure_memory() {
  const uint64_t bytes = 2ull << 30;
  char* p;
  CHECK(cudaMalloc(&p, bytes));
  CHECK(cudaMemset(p, 0, bytes));
  const auto read = [&](uint64_t n) { return [=] { read_all<<<sms * 4, 512, 0, stream>>>(reinterpret_cast<const uint4*>(p), n / 16, sink); }; };
  print("dram_bytes_per_us", static_cast<double>(bytes) / graph_us(read(bytes), 1), "B/us", "2 GB read once");
  const uint64_t kept = std::min<uint64_t>(20 << 20, static_cast<uint64_t>(device.l2CacheSize) * 2 / 5);
  print("l2_bytes_per_us", static_cast<double>(kept) / (graph_us(read(kept), 50) - graph_us([] { nothing<<<1, 32, 0, stream>>>(); }, 50)), "B/us", "two fifths of it, at most 20 MB, again and again, without the launch");
  // A chain through `span` bytes in strides that no prefetch follows.
  const auto chain = [&](uint64_t span) {
    const uint32_t lines = static_cast<uint32_t>(span / 256);
    std::vector<uint32_t> next(span / 4);
    uint32_t at = 0;
    for (uint32_t i = 0; i < lines; i++) { const uint32_t to = static_cast<uint32_t>((at + 61ull * 64) % (static_cast<uint64_t>(lines) * 64)); next[at] = to; at = to; }
    CHECK(cudaMemcpy(p, next.data(), span, cudaMemcpyHostToDevice));
    return cycles([&] { chase<<<1, 1, 0, stream>>>(reinterpret_cast<const uint32_t*>(p), 20000, clocks, sink); }, 4) / clock_per_us;
  };
  print("l2_latency_us", chain(4 << 20), "us", "a load of what L2 holds");
  print("dram_latency_us", chain(256 << 20), "us", "a load of device memory, nobody else there; latency_us is under load");
  CHECK(cudaFree(p));
}

void measure_ways() {
  char* p;
  const int bytes = 1 << 20, rounds = 40;
  CHECK(cudaMalloc(&p, bytes));
  CHECK(cudaMemset(p, 0, bytes));
  const auto* words = reinterpret_cast<const uint4*>(p);
  const double all = static_cast<double>(bytes) * rounds;
  print("raw_into_sm_ld", all / cycles([&] { take_ld<<<1, 1024, 0, stream>>>(words, bytes / 16, rounds, clocks, sink); }), "B/clk", "register_sm, region_sm: by ordinary loads");
  CHECK(cudaFuncSetAttribute(take_cp_async, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
  print("raw_into_sm_cp_async", all / cycles([&] { take_cp_async<<<1, 512, 65536, stream>>>(words, bytes / 16, rounds, clocks); }), "B/clk", "block_sm");
  if (device.major >= 9) {
    CHECK(cudaFuncSetAttribute(take_bulk, cudaFuncAttributeMaxDynamicSharedMemorySize, 8 * 8192));
    for (int size : {1024, 4096, 8192}) {
      const int count = static_cast<int>(all / size);
      char name[64];
      std::snprintf(name, sizeof name, "raw_into_sm_bulk_%d", size);
      print(name, all / cycles([&] { take_bulk<<<1, 32, 8 * 8192, stream>>>(p, bytes, size, 8, count, clocks); }, 4), "B/clk", size == 8192 ? "stream_sm, tile_sm, large_sm, attend_sm, turned_sm, sm_bytes_per_clock" : "smaller copies: what issuing costs");
    }
    print("raw_copy_latency_us", cycles([&] { take_bulk<<<1, 32, 8192, stream>>>(p, bytes, 1024, 1, 200, clocks); }) / 200 / clock_per_us, "us", "one bulk copy of 1 KB from L2, after the other");
  }
  CHECK(cudaFree(p));
}

void measure_multiprocessor() {
  const int rounds = 4096;
  print("shared_bytes_per_us", 1024.0 * 16 * rounds / cycles([&] { read_shared<<<1, 1024, 0, stream>>>(rounds, clocks, sink); }) * clock_per_us, "B/us", "reads of 16 bytes a thread");
  print("barrier_us", cycles([&] { barriers<<<1, 256, 0, stream>>>(2000, clocks); }) / 2000 / clock_per_us, "us", "of 256 threads, without skew");
  const auto rate = [&](auto kernel, double each) {   // operations a microsecond, the whole device
    const int n = 4000;
    return each * 8 * n * 1024.0 * 2 * sms / graph_us([&] { kernel<<<sms * 2, 1024, 0, stream>>>(n, 1.0001f, sink); }, 1, 5);
  };
  print("f32_flops_per_us", rate(arithmetic<Unit::kFma>, 2), "flop/us", "multiply and add");
  print("raw_special_per_us", rate(arithmetic<Unit::kSpecial>, 1), "1/us", "ex2, the whole device");
  print("raw_convert_per_us", rate(arithmetic<Unit::kConvert>, 2), "1/us", "float32 to float16 and back");
  const auto flops = [&](const std::function<void(int)>& launch, double each, int n) { return each * n / graph_us([&] { launch(n); }, 1, 5); };
  const double mma = 2.0 * 16 * 8 * 16 * 8 * 8 * sms * 4;
  const auto sync = [&](int n) { products<<<sms * 4, 256, 0, stream>>>(n, sink); };
  const double short_rate = flops(sync, mma, 200), long_rate = flops(sync, mma, 200000);
  print("raw_mma_sync_flops_per_us", long_rate, "flop/us", "m16n8k16 float16, some tens of milliseconds");
  double best = long_rate;
  if (device.major == 9) {
    CHECK(cudaFuncSetAttribute(group_products, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10));
    const auto group = [&](int n) { group_products<<<sms * 2, 256, 64 << 10, stream>>>(n, sink); };
    const double each = 2.0 * 64 * 128 * 16 * 4 * 2 * sms * 2, briefly = flops(group, each, 100), longer = flops(group, each, 100000);
    print("raw_wgmma_flops_per_us", longer, "flop/us", "m64n128k16 float16 from shared memory (zeros: power does not limit them)");
    print("raw_wgmma_short_flops_per_us", briefly, "flop/us", "the same for some tens of microseconds, with the launch");
    best = std::max(best, longer);
  }
  print("tensor_flops_per_us", best, "flop/us", "the better of them");
  print("raw_mma_sync_short", short_rate, "flop/us", "mma.sync for some tens of microseconds, with the launch");
}

template <int SIZE> double meeting_us() {
  const double with = graph_us([] { meet<SIZE><<<(sms / SIZE) * SIZE, 256, 0, stream>>>(400); }, 5), without = graph_us([] { meet<SIZE><<<(sms / SIZE) * SIZE, 256, 0, stream>>>(0); }, 5);
  return (with - without) / 400;
}

void measure_clusters() {
  if (device.major < 9) return;
  print("raw_cluster_start_us", graph_us([] { meet<2><<<sms / 2 * 2, 256, 0, stream>>>(0); }, 60) - graph_us([] { nothing<<<sms / 2 * 2, 256, 0, stream>>>(); }, 60), "us", "clusters of two, over a launch without");
  print("raw_cluster_meet_2_us", meeting_us<2>(), "us", "arrive and wait");
  print("raw_cluster_meet_8_us", meeting_us<8>(), "us", "arrive and wait");
  const int words = 1024, rounds = 200;
  print("raw_exchange_bytes_per_clk", 16.0 * words * rounds / cycles([&] { exchange<<<2, 256, words * 16, stream>>>(words, rounds, clocks); }), "B/clk", "one block to its neighbour's shared memory");
}

}  // namespace

int main() {
  CHECK(cudaGetDeviceProperties(&device, 0));
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaMallocManaged(&clocks, 64));
  CHECK(cudaMalloc(&sink, 64));
  sms = device.multiProcessorCount;
  std::printf("# %s, compute capability %d.%d\n", device.name, device.major, device.minor);
  print("num_sms", sms, "");
  print("l2_bytes", device.l2CacheSize, "B");
  measure_time();
  measure_memory();
  measure_ways();
  measure_multiprocessor();
  measure_clusters();
  return 0;
}

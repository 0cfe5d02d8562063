// What a product by cuBLASLt takes, asked as emitted libraries ask it (lib/codegen/host/products.cc), beside our own kernel of the same
// product: the numbers behind plan/product/product_cost.cc. Not a test: it prints a row per product.
//
//   nvcc -O2 -std=c++17 -arch=sm_90a -o products products.cu -lcublasLt -ldl
//   ./products LIST      lines "name batch rows columns depth f16|bf16|f32 nk|kn [folder of libNAME.so of that product]"
//
// cold: operands are different ones at each call of a graph, more than L2 holds in all; warm: the same ones.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#define CHECK(x)                                                                                             \
  do {                                                                                                       \
    const int e = static_cast<int>(x);                                                                       \
    if (e != 0) { std::fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #x, e); std::exit(1); }        \
  } while (0)

struct Case {
  char name[64], type[8], order[8], folder[200];
  long long batch, m, n, k;
  int bytes() const { return std::strcmp(type, "f32") == 0 ? 4 : 2; }
  cudaDataType_t data() const { return bytes() == 4 ? CUDA_R_32F : std::strcmp(type, "f16") == 0 ? CUDA_R_16F : CUDA_R_16BF; }
};

static cublasLtMatrixLayout_t layout(cudaDataType_t t, long long rows, long long columns, long long batch) {
  cublasLtMatrixLayout_t out;
  CHECK(cublasLtMatrixLayoutCreate(&out, t, rows, columns, rows));
  const int32_t count = static_cast<int32_t>(batch);
  const int64_t stride = rows * columns;
  CHECK(cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)));
  CHECK(cublasLtMatrixLayoutSetAttribute(out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)));
  return out;
}

/// Numbers of magnitude 0.5 to 2 in all three types: equal ones would draw less power, and clocks would be higher than they are.
__global__ void fill(uint16_t* to, size_t n) {
  for (size_t i = blockIdx.x * size_t{256} + threadIdx.x; i < n; i += gridDim.x * size_t{256}) {
    uint32_t h = static_cast<uint32_t>(i) * 2654435761u;
    h = (h ^ h >> 15) * 2246822519u;
    to[i] = static_cast<uint16_t>(((h ^ h >> 13) & 0x807f) | 0x3f00);
  }
}

/// Microseconds of one call: graphs of `calls` of them, the median of several replays.
static double timed(const std::function<void(int, cudaStream_t)>& call, int calls, cudaStream_t s) {
  call(0, s);
  CHECK(cudaStreamSynchronize(s));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < calls; i++) call(i, s);
  CHECK(cudaStreamEndCapture(s, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t a, b;
  CHECK(cudaEventCreate(&a));
  CHECK(cudaEventCreate(&b));
  std::vector<double> us;
  for (int r = 0; r < 9; r++) {
    CHECK(cudaEventRecord(a, s));
    CHECK(cudaGraphLaunch(exec, s));
    CHECK(cudaEventRecord(b, s));
    CHECK(cudaEventSynchronize(b));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, a, b));
    if (r > 1) us.push_back(ms * 1e3 / calls);
  }
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  std::sort(us.begin(), us.end());
  return us[us.size() / 2];
}

using Launch = int (*)(const void*, const void*, const void*, void*, void*, size_t, cudaStream_t);

int main(int argc, char** argv) {
  FILE* f = argc > 1 ? std::fopen(argv[1], "r") : nullptr;
  if (!f) return 2;
  constexpr size_t kMost = size_t{3} << 30, kScratch = size_t{32} << 20, kL2 = size_t{160} << 20;
  char *memory, *scratch, *own;
  CHECK(cudaMalloc(&memory, kMost));
  CHECK(cudaMalloc(&scratch, kScratch));
  CHECK(cudaMalloc(&own, size_t{256} << 20));
  fill<<<4096, 256>>>(reinterpret_cast<uint16_t*>(memory), kMost / 2);
  CHECK(cudaMemset(own, 0xff, size_t{256} << 20));
  cublasLtHandle_t handle;
  CHECK(cublasLtCreate(&handle));
  cudaStream_t s;
  CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
  cudaDeviceProp p;
  CHECK(cudaGetDeviceProperties(&p, 0));
  std::printf("# %s, cuBLASLt %zu; us: name batch rows columns depth type order | cold, cold without scratch, warm | ours cold, warm\n", p.name, cublasLtGetVersion());
  Case c;
  char line[512];
  while (std::fgets(line, sizeof(line), f)) {
    c.folder[0] = 0;
    if (std::sscanf(line, "%63s %lld %lld %lld %lld %7s %7s %199s", c.name, &c.batch, &c.m, &c.n, &c.k, c.type, c.order, c.folder) < 7) continue;
    const bool nk = std::strcmp(c.order, "nk") == 0;
    const size_t x = c.batch * c.m * c.k * c.bytes(), y = c.batch * c.k * c.n * c.bytes(), z = c.batch * c.m * c.n * c.bytes();
    const auto up = [](size_t n) { return (n + 255) / 256 * 256; };
    const size_t each = up(x) + up(y) + up(z);
    const int sets = static_cast<int>(std::max<size_t>(1, std::min(kMost / each, (2 * kL2 + each - 1) / each)));
    const double flops = 2.0 * c.batch * c.m * c.n * c.k;
    const int calls = std::max(3, std::min(std::max(sets, 40), static_cast<int>(3e11 / flops)));
    const auto at = [&](int i) { return memory + static_cast<size_t>(i % sets) * each; };
    const auto time_lt = [&](size_t bytes, bool cold) -> double {
      cublasLtMatmulDesc_t desc;
      CHECK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
      const cublasOperation_t first = nk ? CUBLAS_OP_T : CUBLAS_OP_N;
      CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first)));
      cublasLtMatrixLayout_t a = nk ? layout(c.data(), c.k, c.n, c.batch) : layout(c.data(), c.n, c.k, c.batch), b = layout(c.data(), c.k, c.m, c.batch),
                             d = layout(c.data(), c.n, c.m, c.batch);
      cublasLtMatmulPreference_t preference;
      CHECK(cublasLtMatmulPreferenceCreate(&preference));
      const uint32_t align = 16, reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
      const uint64_t most = bytes;
      CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof(most)));
      CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof(reductions)));
      for (auto which : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                         CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
        CHECK(cublasLtMatmulPreferenceSetAttribute(preference, which, &align, sizeof(align)));
      cublasLtMatmulHeuristicResult_t found = {};
      int count = 0;
      if (cublasLtMatmulAlgoGetHeuristic(handle, desc, a, b, d, d, preference, 1, &found, &count) != CUBLAS_STATUS_SUCCESS || count == 0) return -1;
      const float one = 1, zero = 0;
      return timed([&](int i, cudaStream_t on) {
        char* const q = at(cold ? i : 0);
        CHECK(cublasLtMatmul(handle, desc, &one, q + up(x), a, q, b, &zero, q + up(x) + up(y), d, q + up(x) + up(y), d, &found.algo, scratch, bytes, on));
      }, calls, s);
    };
    std::printf("%s %lld %lld %lld %lld %s %s | %.2f %.2f %.2f |", c.name, c.batch, c.m, c.n, c.k, c.type, c.order, time_lt(kScratch, true), time_lt(0, true),
                time_lt(kScratch, false));
    if (c.folder[0]) {
      const std::string file = std::string(c.folder) + "/lib" + c.name + ".so", symbol = std::string(c.name) + "_launch";
      void* const library = dlopen(file.c_str(), RTLD_NOW);
      const Launch launch = library ? reinterpret_cast<Launch>(dlsym(library, symbol.c_str())) : nullptr;
      for (bool cold : {true, false})
        if (launch)
          std::printf(" %.2f", timed([&](int i, cudaStream_t on) {
                        char* const q = at(cold ? i : 0);
                        CHECK(launch(nullptr, q, q + up(x), q + up(x) + up(y), own, size_t{256} << 20, on));
                      }, calls, s));
      if (!launch) std::printf(" (no %s)", file.c_str());
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}

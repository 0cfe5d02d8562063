// What NAME.cu has for products that cuBLASLt computes (plan/cublas.h): a table of them, what is made of it once per device, and the call.
//
// cublasLtMatmul takes its stream and its workspace at each call and keeps nothing, so that launches allocate nothing and can be captured.
// What allocates is the handle, and what takes time is the choice of an algorithm: both are made at the first call on a device, outside of
// launches where the caller does what NAME.h says.
#include <algorithm>

#include "codegen/host/abi_parts.h"
#include "mirage/plan/cublas.h"
#include "mirage/support/assert.h"

namespace mirage {
namespace {

/// Sums are added up in float32 wherever a reduction is divided: partial sums in the results' type would be rounded more than once.
/// Tensors are multiples of 16 bytes, which is less than cuBLASLt takes for granted.
constexpr const char* kCublas = R"~(
// ---- products by cuBLASLt. What needs more than a launch may do, a handle and the algorithm of each product, is made once per device: by @NAME@_workspace_init, or else by the first launch there.
struct ProductMatrix { bool transposed; uint64_t rows, columns; int64_t line, batch_stride; };   // column by column
struct Product { cudaDataType_t type, result_type; int32_t batch; uint32_t alignment; uint64_t scratch; ProductMatrix first, second, result; };
constexpr int kNumProducts = @COUNT@;
constexpr Product kProducts[kNumProducts] = {
@TABLE@};

struct ReadyProduct { cublasLtMatmulDescOpaque_t call; cublasLtMatrixLayoutOpaque_t first, second, result; cublasLtMatmulAlgo_t algorithm; };
struct ProductDevice { cublasLtHandle_t handle; ReadyProduct products[kNumProducts]; };

inline bool lay_out(cublasLtMatrixLayoutOpaque_t& out, cudaDataType_t type, const ProductMatrix& m, int32_t batch) {
  return cublasLtMatrixLayoutInit(&out, type, m.rows, m.columns, m.line) == CUBLAS_STATUS_SUCCESS &&
         cublasLtMatrixLayoutSetAttribute(&out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch)) == CUBLAS_STATUS_SUCCESS &&
         cublasLtMatrixLayoutSetAttribute(&out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m.batch_stride, sizeof(m.batch_stride)) == CUBLAS_STATUS_SUCCESS;
}

template <class T> bool prefer(cublasLtMatmulPreferenceOpaque_t& p, cublasLtMatmulPreferenceAttributes_t what, T value) {
  return cublasLtMatmulPreferenceSetAttribute(&p, what, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS;
}

// float32 sums, rounded once: where a reduction is divided, its parts are added up in float32, too.
inline bool choose(cublasLtHandle_t handle, const Product& p, ReadyProduct& out) {
  const cublasOperation_t first = p.first.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, second = p.second.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasLtMatmulPreferenceOpaque_t preference;
  cublasLtMatmulHeuristicResult_t found = {};
  int count = 0;
  const uint32_t in_float32 = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const bool asked = cublasLtMatmulDescInit(&out.call, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
                     cublasLtMatmulDescSetAttribute(&out.call, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first)) == CUBLAS_STATUS_SUCCESS &&
                     cublasLtMatmulDescSetAttribute(&out.call, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof(second)) == CUBLAS_STATUS_SUCCESS &&
                     lay_out(out.first, p.type, p.first, p.batch) && lay_out(out.second, p.type, p.second, p.batch) &&
                     lay_out(out.result, p.result_type, p.result, p.batch) && cublasLtMatmulPreferenceInit(&preference) == CUBLAS_STATUS_SUCCESS &&
                     prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, p.scratch) &&
                     prefer(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, in_float32) &&
                     prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.alignment) &&
                     prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.alignment) &&
                     prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.alignment) &&
                     prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.alignment) &&
                     cublasLtMatmulAlgoGetHeuristic(handle, &out.call, &out.first, &out.second, &out.result, &out.result, &preference, 1, &found, &count) ==
                         CUBLAS_STATUS_SUCCESS;
  out.algorithm = found.algo;
  return asked && count == 1 && found.state == CUBLAS_STATUS_SUCCESS && found.workspaceSize <= p.scratch;
}

// Of the current device; nullptr: cuBLASLt does not start there, or has no algorithm for a product. Two threads may both make one, and the first is kept. Never freed: the driver may be gone
// before this library is. Without the C++ runtime, which programs in C that link this library statically have not.
inline const ProductDevice* product_device() {
  constexpr int kMostDevices = 64;
  static std::atomic<ProductDevice*> made[kMostDevices];
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device < 0 || device >= kMostDevices) return nullptr;
  if (const ProductDevice* const known = made[device].load(std::memory_order_acquire)) return known;
  ProductDevice* const own = static_cast<ProductDevice*>(std::malloc(sizeof(ProductDevice)));
  if (own == nullptr) return nullptr;
  const bool has_handle = cublasLtCreate(&own->handle) == CUBLAS_STATUS_SUCCESS;
  bool ready = has_handle;
  for (int i = 0; ready && i < kNumProducts; i++) ready = choose(own->handle, kProducts[i], own->products[i]);
  ProductDevice* first = nullptr;
  if (ready && made[device].compare_exchange_strong(first, own, std::memory_order_acq_rel)) return own;
  if (has_handle) cublasLtDestroy(own->handle);
  std::free(own);
  return ready ? first : nullptr;
}

inline cudaError_t multiply(int number, const void* first, const void* second, void* result, void* scratch, cudaStream_t stream) {
  const ProductDevice* const device = product_device();
  if (device == nullptr) return cudaErrorInitializationError;
  const ReadyProduct& p = device->products[number];
  const float one = 1, zero = 0;
  const cublasStatus_t status = cublasLtMatmul(device->handle, const_cast<cublasLtMatmulDescOpaque_t*>(&p.call), &one, first, const_cast<cublasLtMatrixLayoutOpaque_t*>(&p.first), second,
                                               const_cast<cublasLtMatrixLayoutOpaque_t*>(&p.second), &zero, result, const_cast<cublasLtMatrixLayoutOpaque_t*>(&p.result), result,
                                               const_cast<cublasLtMatrixLayoutOpaque_t*>(&p.result), &p.algorithm, scratch, kProducts[number].scratch, stream);
  if (status == CUBLAS_STATUS_SUCCESS) return cudaSuccess;
  const cudaError_t error = cudaPeekAtLastError();
  return error != cudaSuccess ? error : cudaErrorLaunchFailure;
}
)~";

const char* data_type(DType t) { return t == DType::kF16 ? "CUDA_R_16F" : t == DType::kBF16 ? "CUDA_R_16BF" : "CUDA_R_32F"; }

std::string matrix_row(const CublasMatrix& m) {
  return std::string("{") + (m.transposed ? "true" : "false") + ", " + std::to_string(m.rows) + "u, " + std::to_string(m.columns) + "u, " +
         std::to_string(m.line) + ", " + std::to_string(m.batch_stride) + "}";
}

std::vector<const KernelText*> products_of(const std::vector<KernelText>& kernels) {
  std::vector<const KernelText*> out;
  for (const KernelText& k : kernels) if (k.cublas) out.push_back(&k);
  return out;
}

}  // namespace

bool mentions_cublas(std::string_view text) {
  return text.find("#include <cublasLt.h>") != std::string_view::npos || text.find(kCublasHeaderLine) != std::string_view::npos;
}

std::string cublas_includes(const std::vector<KernelText>& kernels) {
  return any_cublas(kernels) ? "#include <cstdlib>\n#include <cublasLt.h>\n" : "";
}

std::string cublas_text(const std::string& name, const std::vector<KernelText>& kernels) {
  const std::vector<const KernelText*> products = products_of(kernels);
  if (products.empty()) return "";
  std::string table;
  for (const KernelText* k : products) {
    const CublasPlan& p = *k->cublas;
    table += std::string("    {") + data_type(p.type) + ", " + data_type(p.result_type) + ", " + std::to_string(p.batch) + ", " +
             std::to_string(p.alignment) + "u, " + std::to_string(p.scratch_bytes) + "u, " + matrix_row(p.first) + ", " +
             matrix_row(p.second) + ", " + matrix_row(p.result) + "},   // " + k->name + "\n";
  }
  return expand(kCublas, {{"NAME", name}, {"COUNT", std::to_string(products.size())}, {"TABLE", table}});
}

int product_number(const std::string& kernel, const std::vector<KernelText>& kernels) {
  const std::vector<const KernelText*> products = products_of(kernels);
  const auto at = std::find_if(products.begin(), products.end(), [&](const KernelText* k) { return k->name == kernel; });
  MIRAGE_ASSERT(at != products.end()) << kernel << " is no product of the library";
  return static_cast<int>(at - products.begin());
}

}  // namespace mirage

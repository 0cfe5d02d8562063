// y = rms_norm(x) w on the GPU, beside a sum on the CPU. Without a GPU it says so, and that is no failure.
#include <cmath>
#include <cstdio>
#include <vector>

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include "gated.h"
#include "norm_linear.h"

int main() {
  std::printf("gated: %s\n", gated_status_string(gated_supported(0, nullptr)));
  const int status = norm_linear_supported(0, nullptr);
  std::printf("norm_linear: %s\n", norm_linear_status_string(status));
  if (status != 0) return 0;

  constexpr int M = 16, K = 512, N = 768;
  std::vector<__half> x(M * K), w(K * N), y(M * N);
  for (int i = 0; i < M * K; i++) x[i] = __float2half(static_cast<float>(i % 7 - 3));
  for (int i = 0; i < K * N; i++) w[i] = __float2half(static_cast<float>(i % 5 - 2) / 16);
  void *dx, *dw, *dy, *workspace = nullptr;
  size_t bytes = 0;
  norm_linear_workspace_size(nullptr, &bytes);
  cudaMalloc(&dx, x.size() * 2), cudaMalloc(&dw, w.size() * 2), cudaMalloc(&dy, y.size() * 2);
  if (bytes) cudaMalloc(&workspace, bytes);
  cudaMemcpy(dx, x.data(), x.size() * 2, cudaMemcpyHostToDevice);
  cudaMemcpy(dw, w.data(), w.size() * 2, cudaMemcpyHostToDevice);
  norm_linear_workspace_init(workspace, bytes, nullptr);
  const int launched = norm_linear_launch(nullptr, dx, dw, dy, workspace, bytes, nullptr);
  std::printf("launch: %s\n", norm_linear_status_string(launched));
  cudaMemcpy(y.data(), dy, y.size() * 2, cudaMemcpyDeviceToHost);

  double squares = 0, sum = 0;
  for (int k = 0; k < K; k++) squares += std::pow(__half2float(x[k]), 2), sum += __half2float(x[k]) * __half2float(w[k * N]);
  const double expected = sum / std::sqrt(squares / K + 1e-6);
  std::printf("y[0][0] = %g, on the CPU %g\n", __half2float(y[0]), expected);
  return launched != 0 || std::abs(__half2float(y[0]) - expected) > 1e-2 * (1 + std::abs(expected));
}

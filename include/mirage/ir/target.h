// GPU facts that planning and searching need. One row per target in target.cc; numbers are per SM unless said.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mirage {

struct Target {
  std::string name;             ///< "sm_90a"
  int sm = 0;                   ///< 90
  std::string gencode;          ///< "arch=compute_90a,code=sm_90a"
  std::string nvrtc_arch;       ///< "sm_90a"
  int num_sms = 0;
  int64_t smem_per_block = 0;   ///< bytes one block may have (opt-in maximum)
  int64_t smem_per_sm = 0;
  int64_t l2_bytes = 0;
  double dram_bytes_per_us = 0; ///< measured or datasheet, whole device
  double l2_bytes_per_us = 0;
  double tensor_flops_per_us = 0;  ///< f16 with f32 accumulation, dense, whole device
  double f32_flops_per_us = 0;
  double launch_us = 0;         ///< an empty kernel in a graph
  bool has_tma = false;
  bool has_cluster = false;     ///< thread block clusters with distributed shared memory
  bool tested = false;          ///< whether the project has run it on such a device
};
std::optional<Target> find_target(std::string_view name);   ///< "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"
const std::vector<Target>& all_targets();

}  // namespace mirage

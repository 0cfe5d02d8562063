// The table of GPUs. sm_90a's rates are what streaming and matrix kernels reach on an H200; the others are rounded datasheet figures, scaled alike, and untested.
#include "mirage/ir/target.h"

namespace mirage {

const std::vector<Target>& all_targets() {
  // name, sm, gencode, nvrtc, SMs, smem/block, smem/SM, L2, DRAM B/us, L2 B/us, tensor flop/us, f32 flop/us, launch us, TMA, clusters, tested
  static const std::vector<Target> kTargets = {
      {"sm_80", 80, "arch=compute_80,code=[sm_80,compute_80]", "sm_80", 108, 163 << 10, 164 << 10, 40 << 20, 1.75e6, 4.0e6, 260e6, 17e6, 0.9, false, false, false},
      {"sm_86", 86, "arch=compute_86,code=[sm_86,compute_86]", "sm_86", 84, 99 << 10, 100 << 10, 6 << 20, 0.82e6, 2.5e6, 120e6, 25e6, 0.9, false, false, false},
      {"sm_89", 89, "arch=compute_89,code=[sm_89,compute_89]", "sm_89", 128, 99 << 10, 100 << 10, 72 << 20, 0.90e6, 4.0e6, 280e6, 60e6, 0.9, false, false, false},
      {"sm_90a", 90, "arch=compute_90a,code=sm_90a", "sm_90a", 132, 227 << 10, 228 << 10, 50 << 20, 4.30e6, 7.0e6, 790e6, 50e6, 0.6, true, true, true},
      {"sm_100a", 100, "arch=compute_100a,code=sm_100a", "sm_100a", 148, 227 << 10, 228 << 10, 126 << 20, 7.2e6, 12.0e6, 1900e6, 65e6, 0.6, true, true, false},
      {"sm_120a", 120, "arch=compute_120a,code=sm_120a", "sm_120a", 170, 99 << 10, 100 << 10, 96 << 20, 1.6e6, 6.0e6, 400e6, 90e6, 0.8, true, true, false},
  };
  return kTargets;
}

std::optional<Target> find_target(std::string_view name) {
  for (const Target& t : all_targets()) if (t.name == name) return t;
  return std::nullopt;
}

}  // namespace mirage

// GPU facts that planning and searching need: instruction sets in target.cc, machines in machine.def.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mirage {

/// What a device does (machine.def has the table, with where each value is from).
struct Machine {
  std::string machine;          ///< "h200"
  std::string device;           ///< part of the name that the driver gives it: "H200"
#define MIRAGE_QUANTITY(type, field, unit, help, ...) type field = 0;
#include "mirage/ir/machine.def"
};

/// What is compiled for: an instruction set, on one machine.
struct Target : Machine {
  std::string name;             ///< "sm_90a"
  int sm = 0;                   ///< 90
  std::string gencode;          ///< "arch=compute_90a,code=sm_90a"
  std::string nvrtc_arch;       ///< "sm_90a"
  int64_t smem_per_block = 0;   ///< bytes one block may have (opt-in maximum)
  int64_t smem_per_sm = 0;
  bool has_tma = false;
  bool has_cluster = false;     ///< thread block clusters with distributed shared memory
  bool tested = false;          ///< whether the project has run it on such a device
  bool allow_cublas = false;    ///< products may be cuBLASLt's (--allow-cublas)
  uint32_t without_strategies = 0;   ///< ways to run a kernel that its plans go without, one bit each (plan/strategy.h; --disable-strategy)
  uint32_t without_passes = 0;  ///< rewrites that its plans go without, one bit each (plan/passes.h; --disable-pass)
};
/// "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a": on the machine that stands for it
std::optional<Target> find_target(std::string_view name);
const std::vector<Target>& all_targets();
/// "h200", or what people and drivers call it ("H200", "4090", "NVIDIA A100-SXM4-80GB"): that machine with its target
std::optional<Target> find_machine(std::string_view name);
const std::vector<Target>& all_machines();                    ///< in the order of machine.def

/// Where a machine's values are from: how many were measured there, how many scaled from other machines, how many are the datasheet's.
struct MachineSources { int measured = 0, scaled = 0, datasheet = 0; };
MachineSources machine_sources(std::string_view machine);

}  // namespace mirage

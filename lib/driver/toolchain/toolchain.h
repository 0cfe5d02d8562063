// The CUDA tools of this machine, found at run time and always optional: nvcc as a child process, NVRTC and the NVIDIA driver through
// dlopen. Without them everything but the build works.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>
#include "mirage/ir/target.h"
#include "mirage/support/result.h"

namespace mirage {

// ---- child processes
struct ProcessLimits {
  double timeout_s = 600;                             ///< then the whole process group is killed
  /// of each process: the same on a machine that does much else, unlike the time that passes. 0: a minute more than timeout_s
  double processor_s = 0;
  /// bytes of address space of each process, 0: no limit (CUDA programs reserve far more than they use)
  int64_t max_memory = 0;
  size_t max_output = size_t{4} << 20;                ///< bytes of stdout and stderr that are kept; the rest is read and dropped
  const std::atomic<bool>* interrupted = nullptr;     ///< when it becomes true the group is killed
};
struct ProcessResult {
  bool started = false;                               ///< false: `output` says why
  int exit_code = -1;                                 ///< -1: it did not exit by itself
  int signal = 0;                                     ///< that ended it; 0: none
  bool timed_out = false, interrupted = false, truncated = false;
  std::string output;                                 ///< stdout and stderr as they came
  bool ok() const { return started && exit_code == 0; }
};
/// Runs argv[0] (a path, or a name on PATH) without a shell in folder `dir` ("": this one), in a process group of its own, stdin empty,
/// LC_ALL=C. It does not outlive the calling thread.
ProcessResult run_process(const std::vector<std::string>& argv, const std::string& dir = "", const ProcessLimits& limits = {});
/// Runs `work` in a copy of this process and returns what it returns as `output`: for libraries that may hang, crash or take all memory. No
/// other thread may be needed by it.
ProcessResult run_apart(const std::function<std::string()>& work, const ProcessLimits& limits);

// ---- tools
struct Toolchain {
  std::string nvcc;           ///< path; "" if there is none
  std::string nvrtc;          ///< what dlopen opened; "" if there is none
  std::string include_dir;    ///< the toolkit's headers, which NVRTC needs for cuda_fp16.h; "" if not found
  bool has_nvcc() const { return !nvcc.empty(); }
  bool has_nvrtc() const { return !nvrtc.empty() && !include_dir.empty(); }
};
/// Looks on PATH, then in CUDA_HOME, CUDA_PATH and /usr/local/cuda; libnvrtc.so.13 or .12 in the linker's places and beside those.
Toolchain find_toolchain();

/// What ptxas says about one kernel.
struct KernelResources {
  std::string name;           ///< without namespaces and parameters
  int registers = 0;          ///< per thread
  int64_t stack_bytes = 0, spill_store_bytes = 0, spill_load_bytes = 0, static_smem_bytes = 0;
  bool spills() const { return spill_store_bytes != 0 || spill_load_bytes != 0; }
};
struct PtxasReport {
  std::vector<KernelResources> kernels;      ///< in the log's order
  std::vector<std::string> advisories;       ///< lines with C75xx: ptxas serialised wgmma, the kernel is slow
  bool spills() const { for (const KernelResources& k : kernels) if (k.spills()) return true; return false; }
  const KernelResources* find(const std::string& name) const {
    for (const KernelResources& k : kernels)
      if (k.name == name) return &k;
    return nullptr;
  }
};
/// Reads the output of ptxas -v.
PtxasReport parse_ptxas(const std::string& log);

/// bytes: cubin or PTX; empty for build_library and build_check, which leave a file
struct Compiled { std::string bytes; std::string log; PtxasReport ptxas; };

/// Builds lib<name>.so from <name>.cu and <name>.map, which lie in `folder`, with the Makefile's flags: the same bytes as
/// `make`. So without -Xptxas -v, which goes into the file: ptxas.kernels is empty, advisories are there. Errors: kToolMissing, kToolFailed
/// (the log in its notes).
Result<Compiled> build_library(const Toolchain&, const std::string& name, const Target&, const std::string& folder,
                               const ProcessLimits& = {});
/// Builds <name>_check from <name>_check.cu, <name>.h and lib<name>.so in `folder`. Errors: as above.
Result<Compiled> build_check(const Toolchain&, const std::string& name, const Target&, const std::string& folder,
                             const ProcessLimits& = {});

enum class DeviceCode { kCubin, kPtx };
/// Compiles the text of a .cu with nvcc in a folder of its own. Errors: as above.
Result<Compiled> compile_with_nvcc(const Toolchain&, const std::string& text, const Target&, DeviceCode, const ProcessLimits& = {});
/// The same with NVRTC in this process, without host compilation: fast enough for every candidate. Any thread may call it. Errors: as
/// above.
Result<Compiled> compile_with_nvrtc(const Toolchain&, const std::string& text, const Target&, DeviceCode = DeviceCode::kCubin);
/// compile_with_nvrtc in a process of its own, within limits: what build_outputs() uses.
Result<Compiled> compile_with_nvrtc_apart(const Toolchain&, const std::string& text, const Target&, DeviceCode, const ProcessLimits&);

// ---- the GPU of this machine
struct NativeDevice { std::string name; int major = 0, minor = 0; };
/// The first CUDA device, through libcuda.so.1. `error`: one sentence why there is none.
struct DetectedDevice { std::optional<NativeDevice> device; std::string error; };
DetectedDevice detect_device();
/// The target whose code runs best on a device of this compute capability; nullopt if none runs.
std::optional<Target> target_for_device(int major, int minor);
/// The same on the machine of the device's name, or on the one that its target stands for where no machine is called so.
std::optional<Target> target_for_device(const NativeDevice&);

}  // namespace mirage

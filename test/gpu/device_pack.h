// A folder of kernels, inputs and the emulator's results, which gpu/runner compares with a GPU's (device_runner FOLDER). Shared by the
// tests that hold emulation against hardware.
#pragma once
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "driver/emulation/emulation.h"
#include "driver/toolchain/toolchain.h"
#include "mirage/support/file.h"

namespace mirage::test {

/// How an output is compared: element type ("f16", "bf16", "f32", "b8") and "bits", "ulp" or "rel" with a bound.
struct Expect { std::string check; double bound = 0; };

/// An input that both sides make from a seed (runner/inputs.h).
struct MadeInput { uint32_t seed = 0; std::string type; float low = -2, high = 2; Dims dims, strides; };

class DevicePack {
 public:
  explicit DevicePack(std::string folder) : folder_(std::move(folder)) { std::filesystem::create_directories(folder_); }

  /// Kernels as they are emulated: each in a namespace of its own name behind the device library. False (with a message) if nvcc refuses.
  /// contracts: products and sums may become one fused operation, as in emitted libraries (nvcc's default); else every operation rounds by
  /// itself, as on the emulator.
  bool add_module(const std::string& name, const std::vector<EmulatedKernel>& kernels, const Target& target, const Toolchain& tools,
                  bool contracts = true) {
    std::string text = runtime_text();
    for (const EmulatedKernel& k : kernels) text += "namespace emu_in_" + k.name + " {\n" + k.source + "\n}\n";
    const bool ptx = target.sm < 90;   // older targets run from PTX on newer devices
    if (!contracts) setenv("NVCC_APPEND_FLAGS", "-fmad=false", 1);
    auto compiled = compile_with_nvcc(tools, text, target, ptx ? DeviceCode::kPtx : DeviceCode::kCubin);
    if (!contracts) unsetenv("NVCC_APPEND_FLAGS");
    if (!compiled) {
      for (const Diagnostic& d : compiled.errors()) UNSCOPED_INFO(render(d, ""));
      return false;
    }
    module_ = name + (ptx ? ".ptx" : ".cubin");
    return write_file(folder_ + "/" + module_, compiled->bytes).empty();
  }

  /// A case of the module that was added last. `after`: what the emulator left; expect: per buffer, read for outputs.
  void add_case(const std::string& group, const std::string& name, const std::vector<EmulatedKernel>& launches,
                const std::vector<EmulatedBuffer>& buffers, const std::vector<std::vector<unsigned char>>& after,
                const std::vector<Expect>& expect, const std::vector<MadeInput>& made = {}) {
    cases_ += fmt::format("case {} {} {}\n", module_, group, name);
    for (size_t i = 0; i < buffers.size(); i++) {
      const EmulatedBuffer& b = buffers[i];
      if (i < made.size()) {   // inputs come first
        const MadeInput& m = made[i];
        cases_ += fmt::format("buffer g {} -1 -1 {} 0 {} {} {} {}", b.bytes.size(), m.type, m.seed, m.low, m.high, m.dims.rank());
        for (int64_t x : m.dims) cases_ += fmt::format(" {}", x);
        for (int64_t x : m.strides) cases_ += fmt::format(" {}", x);
        cases_ += "\n";
        continue;
      }
      const bool in = b.kind == EmulatedBuffer::Kind::kInput, out = b.kind == EmulatedBuffer::Kind::kOutput;
      const int64_t at = in ? put(b.bytes) : out ? put(after[i]) : -1, exists = out && !b.exists.empty() ? put(b.exists) : -1;
      cases_ += fmt::format("buffer {} {} {} {} {} {}\n",
                            in    ? 'i'
                            : out ? 'o'
                                  : 'w',
                            b.bytes.size(), at, exists, out ? expect[i].check : "-", out ? expect[i].bound : 0);
    }
    for (const EmulatedKernel& k : launches) {
      cases_ += fmt::format("launch emu_in_{} {} {} {} {} {} {} {}", k.name, k.symbol, k.grid[0], k.grid[1], k.grid[2], k.threads,
                            k.smem_bytes, k.args.size());
      for (int a : k.args) cases_ += fmt::format(" {}", a);
      cases_ += "\n";
      for (const EmulatedMap& m : k.maps) {
        cases_ += fmt::format("map {} {} {} {} {}", m.buffer, m.offset_bytes, m.element_bytes, m.dims.size(), m.swizzle);
        for (int64_t x : m.dims) cases_ += fmt::format(" {}", x);
        for (int64_t x : m.strides) cases_ += fmt::format(" {}", x);
        for (int x : m.box) cases_ += fmt::format(" {}", x);
        cases_ += "\n";
      }
    }
  }

  bool write() const { return write_file(folder_ + "/cases.txt", cases_).empty() && write_file(folder_ + "/data.bin", data_).empty(); }
  const std::string& folder() const { return folder_; }

 private:
  int64_t put(const std::vector<unsigned char>& bytes) {
    data_.resize((data_.size() + 15) / 16 * 16);
    const int64_t at = static_cast<int64_t>(data_.size());
    data_.append(bytes.begin(), bytes.end());
    return at;
  }
  std::string folder_, module_, cases_, data_;
};

/// Where a pack goes: MIRAGE_PACK/NAME, which is kept, or a folder of the build.
inline std::string pack_folder(const std::string& name) {
  const char* kept = std::getenv("MIRAGE_PACK");
  return (kept ? std::string(kept) : std::string(MIRAGE_BINARY_DIR) + "/device_pack") + "/" + name;
}

/// Runs a pack here if there is a GPU of compute capability 9.0; says so if there is none.
inline void run_pack(const std::string& folder) {
  const DetectedDevice d = detect_device();
  if (!d.device || d.device->major != 9) { WARN("not compared with hardware: " << (d.device ? "the GPU is no Hopper" : d.error)); return; }
  const ProcessResult r = run_process({std::string(MIRAGE_BINARY_DIR) + "/device_runner", folder});
  std::printf("%s", r.output.c_str());
  INFO(r.output);
  CHECK(r.exit_code == 0);
}

}  // namespace mirage::test

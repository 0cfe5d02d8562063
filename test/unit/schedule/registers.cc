// What derive() says of registers, against what ptxas gave the kernels of specs/ (nvcc 13.0.88, sm_90a, 2026-11-23: "registers" of
// report.json). The schedules are those that stand in front of the kernels in test/golden.
#include <cstdlib>
#include <filesystem>
#include <map>

#include <catch2/catch.hpp>

#include "mirage/schedule/program.h"
#include "mirage/support/file.h"

using namespace mirage;

namespace {

const std::map<std::string, int> kByPtxas = {
    {"batch_norm_linear_k0_stream", 239}, {"causal_attention_k0_attend", 128}, {"causal_attention_2k_k0_attend", 128},
    {"gated_mlp_k0_stream", 194}, {"gqa_k0_attend", 154}, {"gqa_b16_k0_attend", 96}, {"gqa_b8_k0_attend", 96},
    {"gqa_bf16_k0_attend", 154}, {"layer_norm_linear_k0_stream", 255}, {"llama_layer_k1_attend", 190}, {"llama_layer_k2_stream", 146},
    {"llama_layer_k4_stream", 140}, {"llama_layer_k5_stream", 131}, {"llama_layer_8_k2_attend", 186}, {"llama_layer_8_k4_stream", 165},
    {"llama_layer_8_k5_stream", 198}, {"llama_layer_8_k6_stream", 128}, {"lora_k0_stream", 96}, {"lora_4k_k0_stream", 200},
    {"lora_r1_k0_stream", 201}, {"lora_r64_k0_tile", 85}, {"mha_k0_attend", 110}, {"mha_b16_k0_attend", 136}, {"mha_b8_k0_attend", 136},
    {"mla_k0_attend", 87}, {"mlp_gelu_k0_stream", 115}, {"mlp_gelu_k1_stream", 124}, {"moe_k0_stream", 116}, {"moe_k1_stream", 116},
    {"moe_silu_k0_stream", 116}, {"moe_silu_k1_stream", 116}, {"mqa_k0_attend", 128}, {"mqa_b16_k0_attend", 128},
    {"mqa_b8_k0_attend", 96}, {"qk_norm_k0_attend", 168}, {"qk_norm_published_k0_attend", 168}, {"rms_norm_linear_k0_stream", 156},
    {"rms_norm_linear_gain_k0_stream", 201}, {"seed_attention_k0_attend", 190}, {"softmax_attention_k0_attend", 154},
    {"up_gate_down_k0_stream", 142}, {"up_gate_down_k1_stream", 139},
};

/// Programs in the comments of a file: by the kernels' names. Those that are cut off behind their 56th line are left out.
std::map<std::string, schedule::KernelProgram> programs_of(const std::string& source) {
  std::map<std::string, schedule::KernelProgram> out;
  const std::string begin = "\n//   kernel ", end = "\n//   }\n";
  for (size_t at = source.find(begin, source.find("\nnamespace mirage_")); at != std::string::npos; at = source.find(begin, at + 1)) {
    const size_t stop = source.find(end, at);
    if (stop == std::string::npos || source.find("\n__global__", at) < stop) continue;
    std::string text;
    for (size_t line = at + 1; line < stop + end.size() - 1; line = source.find('\n', line) + 1)
      text += source.substr(line + 5, source.find('\n', line) - line - 5) + "\n";
    const auto p = schedule::parse_schedule(text);
    if (!p) UNSCOPED_INFO(render(p.errors()[0], text));
    REQUIRE(p);
    CHECK(print(*p) == text);
    out.emplace(p->name, *p);
  }
  return out;
}

}  // namespace

TEST_CASE("registers that follow from schedules bound what the compiler gives", "[schedule]") {
  const std::filesystem::path golden = std::filesystem::path(MIRAGE_SOURCE_DIR) / "test/golden";
  int seen = 0, near = 0, far = 0;
  for (const auto& e : std::filesystem::directory_iterator(golden)) {
    if (!e.path().string().ends_with(".kernels.cu")) continue;
    for (const auto& [name, p] : programs_of(*read_file(e.path().string()))) {
      const auto known = kByPtxas.find(name);
      if (known == kByPtxas.end()) continue;
      const schedule::Derived d = derive(p);
      seen++;
      const int given = p.roles.back().registers ? p.roles.back().registers : known->second;
      INFO(name << ": alive " << d.live.back() << ", taken " << d.registers.back() << ", by ptxas " << given);
      CHECK(d.live.back() <= given);
      if (p.roles.back().registers) continue;   // it has what roles give it, not what it needs
      (std::abs(given - d.registers.back()) <= 64 ? near : far)++;
      if (far) UNSCOPED_INFO("far: " << name);
    }
  }
  CHECK(seen >= 42);
  CHECK(near >= 30);
  CHECK(far <= 2);   // operands computed of five vectors at a time, or of whole rows: the compiler has several of them in float32
}

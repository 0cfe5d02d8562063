// The fragments of mma.sync on the CPU: matrices of small integers laid out in registers as the tables of PTX ISA 9.7.14.5 (m16n8k8 in
// TF32, m16n8k16) say, written here a second time, against the product by its definition.
#include <algorithm>
#include <cstring>

#include "emulate/helpers.h"
#include "mirage/codegen/module.h"
#include "mirage/emulate/emulate.h"
#include "mirage/emulate/field.h"
#include "mirage/support/hash.h"

using namespace mirage;
using namespace mirage::test;

namespace {

/// Where a lane has its elements, as the tables say. A: (row, k) of element i; B: (k, column); C: (row, column).
struct At { int row, column; };
At a_tf32(int lane, int i) { return {lane / 4 + (i % 2) * 8, lane % 4 + (i / 2) * 4}; }
At b_tf32(int lane, int i) { return {lane % 4 + i * 4, lane / 4}; }
At a_16(int lane, int i) { return {lane / 4 + (i / 2 % 2) * 8, lane % 4 * 2 + i % 2 + (i / 4) * 8}; }
At b_16(int lane, int i) { return {lane % 4 * 2 + i % 2 + (i / 2) * 8, lane / 4}; }
At c_of(int lane, int i) { return {lane / 4 + (i / 2) * 8, lane % 4 * 2 + i % 2}; }

uint32_t half_of(int x, bool bf16) {   // of -15 .. 15: exact in both
  const float f = static_cast<float>(x);
  uint32_t u;
  memcpy(&u, &f, 4);
  if (bf16 || x == 0) return bf16 ? u >> 16 : 0;
  return (u >> 16 & 0x8000u) | (((u >> 23 & 255u) - 112) << 10) | (u >> 13 & 0x3ffu);
}
uint32_t word(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }

struct Case { const char* name; const char* source; int k; bool bf16; };
const char* kHead =
    "__global__ void probe(const void* __restrict__ in0, void* __restrict__ out0) {\n  using namespace mo;\n  const uint32_t* in = (const "
    "uint32_t*)in0 + lane_id() * 10;\n  float d[4];\n"
    "  for (int i = 0; i < 4; i++) d[i] = __uint_as_float(in[6 + i]);\n  const uint32_t a[4] = {in[0], in[1], in[2], in[3]};\n  ";
const char* kTail = "\n  for (int i = 0; i < 4; i++) ((float*)out0)[lane_id() * 4 + i] = d[i];\n}\n";

}  // namespace

TEST_CASE("fragments of mma.sync hold what PTX's tables say") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Case cases[] = {{"tf32", "mma_16x8x8(d, a, in[4], in[5]);", 8, false},
                        {"f16", "mma_16x8x16(d, a, in[4], in[5], f16());", 16, false},
                        {"bf16", "mma_16x8x16(d, a, in[4], in[5], bf16());", 16, true}};
  EmulationCase all;
  std::vector<std::vector<EmulatedBuffer>> buffers;
  std::vector<std::vector<float>> expected;
  Rng rng(8);
  for (const Case& c : cases) {
    EmulatedKernel kernel;
    kernel.name = std::string("fragments_") + c.name;
    kernel.symbol = "probe";
    kernel.source = std::string(kHead) + c.source + kTail;
    kernel.args = {0, 1};
    kernel.written = {false, true};
    kernel.threads = 32;
    all.kernels.push_back(kernel);
    int a[16][16], b[16][8], d[16][8];
    for (auto& row : a) for (int& x : row) x = static_cast<int>(rng.below(31)) - 15;
    for (auto& row : b) for (int& x : row) x = static_cast<int>(rng.below(31)) - 15;
    for (auto& row : d) for (int& x : row) x = static_cast<int>(rng.below(31)) - 15;
    std::vector<uint32_t> in;
    std::vector<float> out;
    for (int lane = 0; lane < 32; lane++) {
      const auto element_a = [&](int i) { const At at = c.k == 8 ? a_tf32(lane, i) : a_16(lane, i); return a[at.row][at.column]; };
      const auto element_b = [&](int i) { const At at = c.k == 8 ? b_tf32(lane, i) : b_16(lane, i); return b[at.row][at.column]; };
      for (int r = 0; r < 4; r++)
        in.push_back(c.k == 8 ? word(static_cast<float>(element_a(r)))
                              : half_of(element_a(2 * r), c.bf16) | half_of(element_a(2 * r + 1), c.bf16) << 16);
      for (int r = 0; r < 2; r++)
        in.push_back(c.k == 8 ? word(static_cast<float>(element_b(r)))
                              : half_of(element_b(2 * r), c.bf16) | half_of(element_b(2 * r + 1), c.bf16) << 16);
      for (int i = 0; i < 4; i++) {
        const At at = c_of(lane, i);
        in.push_back(word(static_cast<float>(d[at.row][at.column])));
        int sum = d[at.row][at.column];
        for (int k = 0; k < c.k; k++) sum += a[at.row][k] * b[k][at.column];
        out.push_back(static_cast<float>(sum));
      }
    }
    std::vector<EmulatedBuffer> both(2);
    both[0].kind = EmulatedBuffer::Kind::kInput, both[0].name = "in", both[0].bytes.resize(in.size() * 4);
    memcpy(both[0].bytes.data(), in.data(), in.size() * 4);
    both[1].kind = EmulatedBuffer::Kind::kOutput, both[1].name = "out", both[1].bytes.resize(out.size() * 4);
    buffers.push_back(both);
    expected.push_back(out);
  }
  const EmulationLibrary lib = build_emulation({&all}, compiler, emulation_folder());
  INFO(lib.error);
  REQUIRE(lib.error.empty());
  for (size_t i = 0; i < std::size(cases); i++) {
    const Emulation run = emulate(lib.path, {all.kernels[i]}, buffers[i]);
    INFO(cases[i].name << ": " << run.refusal << (run.findings.empty() ? "" : run.findings.front().text));
    REQUIRE(run.ran);
    CHECK(run.findings.empty());
    std::vector<float> got(expected[i].size());
    REQUIRE(run.buffers[1].size() == got.size() * 4);
    memcpy(got.data(), run.buffers[1].data(), got.size() * 4);
    CHECK(got == expected[i]);
  }
}

TEST_CASE("sums of tensor cores have the same bits with the CPU's wide instructions and without") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const std::vector<std::string> flags = emulation_flags();
  if (std::find(flags.begin(), flags.end(), "-mavx2") == flags.end()) { WARN("skipped: this CPU has no AVX2"); return; }
  const char* products[] = {"mma_16x8x8(d, a, in[4], in[5]);", "mma_16x8x16(d, a, in[4], in[5], f16());",
                            "mma_16x8x16(d, a, in[4], in[5], bf16());"};
  Rng rng(21);
  for (const char* product : products) {
    EmulationCase cases[2];
    EmulatedKernel kernel;
    kernel.name = "wide", kernel.symbol = "probe", kernel.args = {0, 1}, kernel.written = {false, true}, kernel.threads = 32;
    kernel.source = std::string(kHead) + product + kTail;
    std::string paths[2];
    for (int scalar = 0; scalar < 2; scalar++) {
      cases[scalar].kernels.push_back(kernel);
      cases[scalar].runtime = runtime_text() + (scalar ? "\n#define MIRAGE_SCALAR 1\n" : "\n");
      const EmulationLibrary lib = build_emulation({&cases[scalar]}, compiler, emulation_folder());
      INFO(lib.error);
      REQUIRE(lib.error.empty());
      paths[scalar] = lib.path;
    }
    REQUIRE(paths[0] != paths[1]);
    for (int trial = 0; trial < 60; trial++) {
      std::vector<EmulatedBuffer> both(2);
      both[0].kind = EmulatedBuffer::Kind::kInput, both[0].name = "in";
      // any bits: infinities, NaN, subnormal numbers; close ones that cancel; elements of the field, some with an unknown part
      const bool field = trial % 3 == 2, close = trial % 3 == 1;
      for (int i = 0; i < 320; i++) {
        uint32_t x = static_cast<uint32_t>(rng.next());
        if (close) x = (x & 0x83ff83ffu) | 0x3c003c00u;
        if (field) x = mirage_field::make(x % mirage_field::kP, (x >> 16) % (mirage_field::kQ + (trial % 2)));
        for (int b = 0; b < 4; b++) both[0].bytes.push_back(static_cast<unsigned char>(x >> 8 * b));
      }
      both[1].kind = EmulatedBuffer::Kind::kOutput, both[1].name = "out", both[1].bytes.resize(32 * 16);
      EmulateOptions options;
      options.field = field;
      const Emulation wide = emulate(paths[0], {kernel}, both, options), plain = emulate(paths[1], {kernel}, both, options);
      INFO(product << " " << trial << (wide.findings.empty() ? "" : wide.findings.front().text));
      REQUIRE(wide.ran);
      REQUIRE(plain.ran);
      CHECK(wide.buffers[1] == plain.buffers[1]);
    }
  }
}

// The clocks of the emulator's shadow memory have 19 bits beside the thread's number: a kernel that needs more says so, instead of blaming
// others for its accesses.
#include "emulate/helpers.h"
#include "mirage/emulate/emulate.h"

using namespace mirage;
using namespace mirage::test;

TEST_CASE("a kernel with more barriers than clocks count is too slow to emulate, not wrong") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  EmulationCase all;
  for (int barriers : {500'000, 600'000}) {
    EmulatedKernel kernel;
    kernel.name = "barriers_" + std::to_string(barriers);
    kernel.symbol = "probe";
    kernel.source =
        "__global__ void probe(const void* __restrict__ in0, void* __restrict__ out0) {\n  using namespace mo;\n  for (int i = 0; i < " +
        std::to_string(barriers) + "; i++) barrier();\n  *(float*)out0 = *(const float*)in0;\n}\n";
    kernel.args = {0, 1};
    kernel.written = {false, true};
    kernel.threads = 1;
    all.kernels.push_back(kernel);
  }
  const EmulationLibrary lib = build_emulation({&all}, compiler, emulation_folder());
  INFO(lib.error);
  REQUIRE(lib.error.empty());
  std::vector<EmulatedBuffer> buffers(2);
  buffers[0].name = "in", buffers[1].name = "out";
  buffers[1].kind = EmulatedBuffer::Kind::kOutput;
  for (EmulatedBuffer& b : buffers) b.bytes.assign(4, 1);
  const Emulation few = emulate(lib.path, {all.kernels[0]}, buffers), many = emulate(lib.path, {all.kernels[1]}, buffers);
  CHECK(few.findings.empty());
  REQUIRE(many.findings.size() == 1);
  CHECK(many.findings[0].kind == "too slow");
}

// Races that the emulator did not see, and verdicts on floats that were none.
#include "driver/emulation/elements.h"
#include "driver/emulation/emulation_floats.h"
#include "driver/emulation/rounding.h"
#include "emulate/helpers.h"
#include "mirage/emulate/emulate.h"

using namespace mirage;
using namespace mirage::test;

TEST_CASE("waiting for one copy's barrier does not order another copy's bytes, whichever came first", "[bugs]") {
  // All copies had one clock: who waited for the later of two knew of the earlier, too, and a dropped wait for a low rank's second factor
  // survived where its bytes did not happen to come last.
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  EmulationCase all;
  for (bool waits : {true, false}) {
    EmulatedKernel kernel;
    kernel.name = waits ? "waits" : "does_not_wait";
    kernel.symbol = "probe";
    kernel.source = std::string(
                        "__global__ void probe(const void* __restrict__ in0, void* __restrict__ out0) {\n  using namespace mo;\n  "
                        "__shared__ __align__(16) float values[2];\n  __shared__ __align__(8) unsigned long long bars[2];\n") +
                    "  const uint32_t to = shared_address(values), bar = shared_address(bars);\n" +
                    "  if (thread_id() == 0) {\n    for (int i = 0; i < 2; i++) mbarrier_init(bar + 8 * i, 1);\n    mbarrier_publish();\n  "
                    "  for (int i = 0; i < 2; i++) mbarrier_expect(bar + 8 * i, 4);\n" +
                    "    for (int i = 0; i < 2; i++) store_async(remote_address(to + 4 * i, 0), ((const float*)in0)[i], remote_address(bar "
                    "+ 8 * i, 0));\n  }\n  barrier();\n  mbarrier_wait(bar, 0);\n" +
                    (waits ? "  mbarrier_wait(bar + 8, 0);\n" : "") + "  ((float*)out0)[thread_id()] = values[0] + values[1];\n" +
                    (waits ? "" : "  mbarrier_wait(bar + 8, 0);\n") + "}\n";
    kernel.args = {0, 1};
    kernel.written = {false, true};
    kernel.threads = 32;
    all.kernels.push_back(kernel);
  }
  const EmulationLibrary lib = build_emulation({&all}, compiler, emulation_folder());
  INFO(lib.error);
  REQUIRE(lib.error.empty());
  std::vector<EmulatedBuffer> buffers(2);
  buffers[0].name = "in", buffers[1].name = "out";
  buffers[1].kind = EmulatedBuffer::Kind::kOutput;
  buffers[0].bytes.assign(8, 0), buffers[1].bytes.assign(128, 0);
  for (uint64_t seed = 0; seed < 12; seed++) {
    EmulateOptions options;
    options.seed = seed;
    INFO(seed);
    const Emulation right = emulate(lib.path, {all.kernels[0]}, buffers, options),
                    wrong = emulate(lib.path, {all.kernels[1]}, buffers, options);
    INFO((right.findings.empty() ? "" : right.findings[0].text));
    CHECK(right.findings.empty());
    REQUIRE(!wrong.findings.empty());
    CHECK((wrong.findings[0].kind == "race" || wrong.findings[0].kind == "missing wait"));
  }
}

TEST_CASE("a result that is masked but for three numbers is compared with their rounding, not with that of all", "[bugs]") {
  // What rounding explains was averaged over masked elements, too, which have no error: straightforward kernels of such a program were
  // refused in every fourth draw.
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const Program p = program_of(
      R"({"version": "1.0", "name": "three", "inputs": {"x": {"shape": [2, 6], "dtype": "float32"}, "w": {"shape": [33, 6], "dtype": "float32"}}, "outputs": {"y": {"dtype": "float32"}},
    "nodes": [{"op": "abs", "inputs": ["x"], "output": "a"}, {"op": "matmul", "inputs": ["a", "w"], "output": "s", "attrs": {"transpose_b": true}}, {"op": "mul", "inputs": ["s", 0.125], "output": "t"},
              {"op": "causal_mask", "inputs": ["t"], "output": "y"}]})",
      "three.json");
  const Target target = *find_target("sm_90a");
  const Planned planned = make_plan(p, p.graph, target);
  REQUIRE(planned.plan);
  const EmulationCase c = case_of(p, *planned.plan, target, "three_");
  const EmulationLibrary lib = build_emulation({&c}, compiler, emulation_folder());
  INFO(lib.error);
  REQUIRE(lib.error.empty());
  for (uint64_t seed = 1; seed <= 100; seed++) {
    const EmulationOutcome o = run_emulation(c, lib.path, EmulationMode::kFloat, seed);
    INFO(seed << ": " << o.reason);
    CHECK(o.ok);
  }
}

TEST_CASE("a parameter is read by plain loads only", "[bugs]") {
  // On the device the address of a parameter is none of global memory: what reads that and nothing else must not be given it.
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const char* const reads[] = {"*static_cast<const float*>(in0)", "__ldg(static_cast<const float*>(in0))",
                               "__int_as_float((int)read_now(static_cast<const unsigned*>(in0)))"};
  EmulationCase all;
  for (const char* read : reads) {
    EmulatedKernel kernel;
    kernel.name = "kernel" + std::to_string(all.kernels.size());
    kernel.symbol = "probe";
    kernel.source = std::string(
                        "__global__ void probe(const __grid_constant__ mo::f32 in0_value, void* __restrict__ out0) {\n  const void* const "
                        "in0 = &in0_value;\n  using namespace mo;\n  ((float*)out0)[thread_id()] = ") +
                    read + ";\n}\n";
    kernel.args = {0, 1};
    kernel.written = {false, true};
    kernel.values = {"mo::f32", ""};
    kernel.threads = 32;
    all.kernels.push_back(kernel);
  }
  const EmulationLibrary lib = build_emulation({&all}, compiler, emulation_folder());
  INFO(lib.error);
  REQUIRE(lib.error.empty());
  std::vector<EmulatedBuffer> buffers(2);
  buffers[0].name = "in", buffers[1].name = "out";
  buffers[1].kind = EmulatedBuffer::Kind::kOutput;
  buffers[0].bytes = {0, 0, 0xc0, 0x3f}, buffers[1].bytes.assign(128, 0);   // 1.5
  for (size_t i = 0; i < 3; i++) {
    const Emulation e = emulate(lib.path, {all.kernels[i]}, buffers, {});
    INFO(reads[i] << (e.findings.empty() ? "" : ": " + e.findings[0].text));
    REQUIRE(e.findings.empty() == (i == 0));
    if (i == 0) CHECK(std::vector<unsigned char>(e.buffers[1].begin() + 124, e.buffers[1].end()) == buffers[0].bytes);
    else CHECK(e.findings[0].text.find("a load of device memory from what is none") != std::string::npos);
  }
}

namespace {

/// y = a * b - c, of whose elements one may cancel: as large as the others, but moved much farther by rounding.
struct Cancelling {
  static constexpr size_t kSide = 128, kPlace = 5000;
  Program p = program_of(R"({"name": "cancels", "inputs": {"a": {"shape": [128, 128], "dtype": "float32"}, "b": {"shape": [128, 128], "dtype": "float32"},
    "c": {"shape": [128, 128], "dtype": "float32"}}, "outputs": {"y": {"dtype": "float32"}},
    "nodes": [{"op": "mul", "inputs": ["a", "b"], "output": "t"}, {"op": "sub", "inputs": ["t", "c"], "output": "y"}]})", "cancels.json");
  std::vector<Tensor<double>> inputs{{{kSide, kSide}, 1.0}, {{kSide, kSide}, 1.0}, {{kSide, kSide}, 0.0}}, want{{{kSide, kSide}, 1.0}};
  EmulationCase with;
  explicit Cancelling(bool does) {
    if (does) inputs[0].data[kPlace] = 40, inputs[2].data[kPlace] = 39;
    const Planned planned = make_plan(p, p.graph, *find_target("sm_90a"));
    REQUIRE(planned.plan);
    with = {p, *planned.plan, {}, ""};
  }
  double deviation(uint64_t seed, int draws) const { return rounding_spread(p, inputs, want, seed, draws)[0].each[kPlace]; }
  /// The verdict over kernels all of whose elements are right but these, which are off by so much.
  EmulationOutcome judged(uint64_t seed, const std::vector<std::pair<size_t, double>>& off) const {
    Tensor<double> got = want[0];
    for (auto [i, by] : off) got.data[i] += by;
    Emulation run;
    for (const Buffer& b : with.plan.buffers) {
      run.buffers.emplace_back(b.kind == Buffer::Kind::kOutput ? static_cast<size_t>(b.bytes()) : 0);
      for (size_t i = 0; b.kind == Buffer::Kind::kOutput && i < got.data.size(); i++)
        put_bits(run.buffers.back().data() + 4 * i, b.dtype, bits_of(got.data[i], b.dtype));
    }
    return compare_floats(with, run, inputs, want, seed, {});
  }
};

}  // namespace

TEST_CASE("an element of many whose rounding eight draws make too little of is judged by more", "[bugs]") {
  // KernelBench's level2_94 was refused for one of 1.2 million elements of a group norm, -0.436498 instead of -0.436514: so many elements
  // have one that eight draws happen to leave nearly in place.
  const Cancelling does(true), does_not(false);
  uint64_t seed = 1;
  while (seed < 200 && does.deviation(seed, 8) > 0.7 * does.deviation(seed, 64)) seed++;
  const double deviation = does.deviation(seed, 64), off = 7 * deviation;
  REQUIRE(does.deviation(seed, 8) <= 0.7 * deviation);
  CHECK(does.judged(seed, {}).ok);
  const EmulationOutcome right = does.judged(seed, {{Cancelling::kPlace, off}});
  INFO(right.reason);
  CHECK(right.ok);
  CHECK(right.compared == static_cast<int64_t>(Cancelling::kSide * Cancelling::kSide));
  CHECK_FALSE(right.by_range);
  // the same amount at the same place where rounding does not explain it
  CHECK_FALSE(does_not.judged(seed, {{Cancelling::kPlace, off}}).ok);
  CHECK_FALSE(does_not.judged(seed, {{Cancelling::kPlace, -off}}).ok);
  // more than it explains, and another element beside the one that it explains
  CHECK_FALSE(does.judged(seed, {{Cancelling::kPlace, 1.5 * off}}).ok);
  CHECK_FALSE(does.judged(seed, {{Cancelling::kPlace + 1, off}}).ok);
  CHECK_FALSE(does.judged(seed, {{Cancelling::kPlace, off}, {Cancelling::kPlace + 1, off}}).ok);
}

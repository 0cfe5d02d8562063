// Float results of the emulator and of a GPU, for every spec's kernels of sm_90a and of sm_80 (from PTX) at reduced shapes: the same bits
// where no approximate instruction is involved and nvcc fuses no products and sums, within the stated bounds elsewhere (docs/emulation.md).
// MIRAGE_PACK=FOLDER keeps the pack for device_runner on another machine; MIRAGE_SPEC=NAME takes one spec. Without a GPU or MIRAGE_PACK
// there is nothing to do.
#include <algorithm>
#include <bit>
#include <filesystem>

#include "emulate/helpers.h"
#include "gpu/device_pack.h"
#include "gpu/runner/inputs.h"

using namespace mirage;
using namespace mirage::test;

namespace {

/// What is not exact beside the order of additions, which both sides share: exponentials and their like are approximations of a few ulp.
bool is_approximate(const Graph& g) {
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    if (const auto* call = g.form<Call>(n); call && is_approximate(*call->body)) return true;
    const auto* m = g.form<Map>(n);
    if (!m) continue;
    switch (m->fn) {
      case MapFn::kExp:
      case MapFn::kLog:
      case MapFn::kLog1p:
      case MapFn::kExpm1:
      case MapFn::kErf:
      case MapFn::kSin:
      case MapFn::kCos:
      case MapFn::kRsqrt:
      case MapFn::kTanh:
      case MapFn::kSigmoid:
      case MapFn::kSilu:
      case MapFn::kGelu:
      case MapFn::kGeluTanh:
      case MapFn::kPow: return true;
      default: break;
    }
  }
  return false;
}

/// The device library's quotients by a divisor that many share are products with an approximate reciprocal, those by a square root with an
/// approximate one of that.
bool is_approximate(const EmulationCase& c) {
  return is_approximate(c.plan.graph) || std::any_of(c.kernels.begin(), c.kernels.end(), [](const EmulatedKernel& k) {
           return k.source.find("divisor(") != std::string::npos || k.source.find("rsqrt(") != std::string::npos;
         });
}

std::string type_name(DType t) { return t == DType::kF16 ? "f16" : t == DType::kBF16 ? "bf16" : t == DType::kBool ? "b8" : "f32"; }

constexpr double kSeconds = 60;   ///< per emulation

/// Per type: what roundings that fall the other way may do to a result, relative to its size and the root mean square of all: one unit in
/// the last place where products and sums are fused, one and a half where approximations of a few float32 ulp are involved besides
/// (measured on an H200: 0.47 and 1.0 for float16, 0.42 for bfloat16).
double bound(DType t, bool approximate) {
  return (t == DType::kF16 ? 0x1p-10 : t == DType::kBF16 ? 0x1p-7 : 0x1p-20) * (approximate ? 1.5 : 1);
}

double value_of(uint32_t bits, DType t) {
  if (t == DType::kBool) return bits;
  if (t == DType::kF32) return std::bit_cast<float>(bits);
  if (t == DType::kBF16) return std::bit_cast<float>(bits << 16);
  const int e = bits >> 10 & 31, m = bits & 1023;
  const double x = e ? std::ldexp(1024 + m, e - 25) : std::ldexp(m, -24);
  return bits >> 15 ? -x : x;
}

std::vector<MadeInput> made_inputs(const Program& p) {
  std::vector<MadeInput> out;
  for (size_t i = 0; i < p.inputs.size(); i++) {
    const TensorInfo& t = p.inputs[i];
    MadeInput m{static_cast<uint32_t>(i + 1), type_name(t.type.dtype), -2, 2, t.type.dims, t.strides};
    for (NodeId n = 0; n < p.graph.num_nodes(); n++) {   // weights: sums as large as their terms
      if (!p.graph.form<MatMul>(n)) continue;
      ValueId v = p.graph.node(n).operands[1];
      const double depth = static_cast<double>(p.graph.dims(v)[p.graph.dims(v).rank() - 2]);
      while (is_view(p.graph.def(v).op)) v = p.graph.def(v).operands[0];
      if (const auto* in = p.graph.def_form<Input>(v); in && in->param == static_cast<int>(i))
        m.high = static_cast<float>(2 / std::sqrt(depth)), m.low = -m.high;
    }
    if (t.range) m.low = static_cast<float>(t.range->first), m.high = static_cast<float>(t.range->second);
    out.push_back(m);
  }
  return out;
}

void pack_spec(const std::string& file, const std::string& target_name, const std::string& compiler, const Toolchain& tools,
               DevicePack& pack) {
  const Target target = *find_target(target_name);
  const std::string text = *read_file(file);
  const Program p = program_of(text, file);
  std::vector<EmulationCase> cases;
  std::vector<std::string> names;
  const bool has_witness = make_witnesses(p).refusal.empty();
  for (bool tails : {false, true}) {
    if (has_witness) break;
    const Program small = program_of(small_axes(text, tails ? 13 : 64), file);
    for (const NamedPlan& n : plans_of(small, target, 0)) {
      cases.push_back(case_of(small, n.plan, target, fmt::format("c{}_", cases.size())));
      names.push_back(n.name + (tails ? "_tails" : ""));
    }
  }
  for (const NamedPlan& n : has_witness ? plans_of(p, target, 300'000, 0, true) : std::vector<NamedPlan>{})
    for (bool tails : {false, true}) {
      const Reduced r = reduce_plan(p, n.plan, target, tails);
      INFO(p.name << " " << n.name << ": " << r.refusal);
      REQUIRE(r.plan);
      cases.push_back(case_of(*r.program, *r.plan, target, fmt::format("c{}_", cases.size())));
      names.push_back(n.name + (tails ? "_tails" : ""));
    }
  std::vector<const EmulationCase*> all;
  std::vector<EmulatedKernel> kernels;
  for (const EmulationCase& c : cases) {
    all.push_back(&c);
    kernels.insert(kernels.end(), c.kernels.begin(), c.kernels.end());
  }
  const EmulationLibrary lib = build_emulation(all, compiler, emulation_folder());
  INFO(p.name << ": " << lib.error);
  REQUIRE(lib.error.empty());
  struct Done { size_t i; EmulationRecord record; };
  std::vector<Done> done;
  for (size_t i = 0; i < cases.size(); i++) {
    const EmulationCase& c = cases[i];
    const std::vector<MadeInput> made = made_inputs(c.program);
    EmulationRecord record;
    record.draw = [&](size_t input, int64_t e) {
      const DType t = c.program.inputs[input].type.dtype;
      return value_of(device_inputs::bits(made[input].type, made[input].seed, e, made[input].low, made[input].high), t);
    };
    EmulateOptions options;
    options.seconds = kSeconds;
    const EmulationOutcome o = run_emulation(c, lib.path, EmulationMode::kFloat, 1, options, &record);
    if (!o.findings.empty() && o.findings.front().kind == "too slow") {
      WARN(p.name << " " << names[i] << ": not compared, its emulation takes over " << kSeconds << " s");
      continue;
    }
    INFO(p.name << " " << names[i] << ": " << o.reason);
    CHECK(o.ok);
    if (!o.ok) continue;
    done.push_back({i, std::move(record)});
  }
  for (bool contracts : {true, false}) {
    if (!contracts && std::all_of(done.begin(), done.end(), [&](const Done& d) { return is_approximate(cases[d.i]); })) continue;
    REQUIRE(pack.add_module(p.name + "_" + target_name + (contracts ? "" : "_strict"), kernels, target, tools, contracts));
    for (const Done& d : done) {
      const EmulationCase& c = cases[d.i];
      const bool approximate = is_approximate(c);
      if (!contracts && approximate) continue;
      std::vector<Expect> expect;
      for (const Buffer& b : c.plan.buffers)
        expect.push_back(contracts || approximate ? Expect{type_name(b.dtype) + "/rel", bound(b.dtype, approximate)}
                                                  : Expect{type_name(b.dtype) + "/bits", 0});
      pack.add_case(p.name + "_" + target_name +
                        (approximate ? "_approximate"
                         : contracts ? "_fused"
                                     : "_exact"),
                    names[d.i], c.kernels, d.record.buffers, d.record.after, expect, made_inputs(c.program));
    }
  }
}

}  // namespace

TEST_CASE("emulator and GPU agree on every spec's kernels") {
  const std::string compiler = find_host_compiler();
  const Toolchain tools = find_toolchain();
  if (compiler.empty() || !tools.has_nvcc() || !(std::getenv("MIRAGE_PACK") || detect_device().device)) {
    WARN("skipped: it needs a host compiler, nvcc, and a GPU or MIRAGE_PACK");
    return;
  }
  DevicePack pack(pack_folder("agree"));
  for (const std::string& file : spec_files())
    for (const std::string target : {"sm_90a", "sm_80"}) pack_spec(file, target, compiler, tools, pack);
  REQUIRE(pack.write());
  run_pack(pack.folder());
}

// Emulations for the driver: see the header. Runs in the field are in emulation_field.cc, results in floats are judged in
// emulation_floats.cc.
#include "driver/emulation/emulation.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <unistd.h>

#include <fmt/format.h>

#include "driver/emulation/elements.h"
#include "driver/emulation/emulation_field.h"
#include "driver/emulation/emulation_floats.h"
#include "driver/emulation/emulation_run.h"
#include "driver/emulation/rounding.h"
#include "mirage/ir/eval.h"
#include "mirage/plan/strategy.h"
#include "mirage/support/hash.h"
#include "mirage/support/warden.h"

namespace mirage {

namespace {

namespace fs = std::filesystem;

/// Per input: 1, or for the second operand of a contraction (weights) what keeps sums as large as their terms.
std::vector<double> weight_scales(const Graph& g, size_t inputs) {
  std::vector<double> out(inputs, 1);
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    if (!g.form<MatMul>(n)) continue;
    ValueId v = g.node(n).operands[1];
    const int64_t depth = g.dims(v)[g.dims(v).rank() - 2];
    while (is_view(g.def(v).op)) v = g.def(v).operands[0];
    if (const auto* in = g.def_form<Input>(v)) out[static_cast<size_t>(in->param)] = 1 / std::sqrt(static_cast<double>(depth));
  }
  return out;
}

double draw(const TensorInfo& t, EmulationMode mode, Rng& rng, double scale = 1) {
  if (t.type.dtype == DType::kBool) return static_cast<double>(rng.below(2));
  if (is_whole(t.type.dtype)) return draw_whole(t, rng);
  if (mode == EmulationMode::kInteger) return static_cast<double>(static_cast<int>(rng.below(5))) - 2;
  double low = -2, high = 2;
  if (t.range) low = t.range->first, high = t.range->second;
  const double x = low + (high - low) * rng.uniform();
  return round_to(t.range ? x : (mode == EmulationMode::kLarge ? x * 4 : x) * scale, t.type.dtype);
}

/// An element of input i. What lies rounded to TF32 (the workspace of a plan that a part was taken out of) is, and bfloat16 has no more
/// digits.
double draw(const EmulationCase& c, size_t i, const TensorInfo& t, EmulationMode mode, Rng& rng, double scale = 1) {
  const double x = draw(t, mode, rng, scale);
  return c.plan.buffers[i].tf32 ? round_to(x, DType::kBF16) : x;
}

std::string on_path(const std::string& program) {
  if (program.find('/') != std::string::npos) return access(program.c_str(), X_OK) == 0 ? program : "";
  const char* path = std::getenv("PATH");
  std::string rest = path ? path : "";
  for (size_t at = 0; at <= rest.size();) {
    size_t end = rest.find(':', at);
    if (end == std::string::npos) end = rest.size();
    const fs::path p = fs::path(end == at ? "." : rest.substr(at, end - at)) / program;
    std::error_code error;
    if (fs::is_regular_file(p, error) && access(p.c_str(), X_OK) == 0) return p.string();
    at = end + 1;
  }
  return "";
}

}  // namespace

std::string find_host_compiler() {
  if (const char* cxx = std::getenv("CXX"); cxx && *cxx)
    if (const std::string p = on_path(cxx); !p.empty()) return p;
  for (const char* name : {"g++", "g++-14", "g++-13", "g++-12", "clang++"})
    if (const std::string p = on_path(name); !p.empty()) return p;
  return "";
}

const char* mode_name(EmulationMode m) {
  switch (m) {
    case EmulationMode::kField: return "field";
    case EmulationMode::kFloat: return "float";
    case EmulationMode::kLarge: return "large";
    case EmulationMode::kInteger: return "integer";
  }
  return "";
}

EmulationCase make_emulation_case(const Program& program, const Plan& plan, const std::vector<KernelText>& kernels,
                                  const std::string& prefix) {
  EmulationCase c{program, plan, {}, ""};
  MIRAGE_ASSERT(kernels.size() == plan.kernels.size()) << "one text per kernel";
  for (size_t i = 0; i < kernels.size(); i++) {
    const KernelText& k = kernels[i];
    EmulatedKernel e;
    e.name = prefix + k.name;
    e.symbol = k.name;
    e.source = k.source;
    for (const TensorMapText& m : k.maps)
      e.maps.push_back({m.buffer, m.offset_bytes, dtype_bytes(m.dtype), m.dims, m.strides, m.box, m.swizzle});
    e.args = k.args;
    e.written = k.written;
    e.values = k.values;
    e.grid = k.grid;
    e.threads = k.threads;
    e.smem_bytes = k.smem_bytes;
    e.cooperative = k.cooperative;
    if (const auto shared = strategy_of(plan.kernels[i]).shared)
      for (const SharedPlace& p : shared(plan.kernels[i])) e.shared.push_back({p.offset, p.bytes, p.what, p.line, p.used});
    c.kernels.push_back(std::move(e));
  }
  return c;
}

namespace {

/// Whether a good part of the results is near float16's end.
bool is_huge(const std::vector<Tensor<double>>& results) {
  int64_t large = 0, all = 0;
  for (const auto& r : results)
    for (double x : r.data) all++, large += !(std::fabs(x) < 5e3);
  return large * 20 > all;
}

/// Inputs for a run in floats. Random ones whose results would leave float16 (layers upon layers) are drawn again with weights that keep
/// sums as large as their terms; large ones too, and where not even that does (exponentials of sums) at the ordinary size: what a kernel
/// makes of values beyond its types is nobody's concern.
std::vector<Tensor<double>> float_inputs(const EmulationCase& c, EmulationMode mode, Rng& rng, const EmulationRecord* record) {
  const Program& p = c.program;
  const std::vector<double> ones(p.inputs.size(), 1);
  const auto drawn = [&](EmulationMode m, const std::vector<double>& scales) {
    std::vector<Tensor<double>> out;
    for (size_t i = 0; i < p.inputs.size(); i++) {
      out.emplace_back(p.inputs[i].type.dims, 0.0);
      for (size_t e = 0; e < out.back().data.size(); e++)
        out.back().data[e] = record && record->draw ? record->draw(i, static_cast<int64_t>(e)) : draw(c, i, p.inputs[i], m, rng, scales[i]);
    }
    return out;
  };
  auto out = drawn(mode, ones);
  if (record && record->draw) return out;
  if (mode == EmulationMode::kFloat) {
    DoubleAlgebra a;
    if (is_huge(evaluate(p.graph, std::span<const Tensor<double>>(out), a, true)))
      out = drawn(mode, weight_scales(p.graph, p.inputs.size()));
  }
  if (mode != EmulationMode::kLarge || coarsest_roundoff(p) != unit_roundoff(DType::kF16)) return out;
  for (EmulationMode m : {EmulationMode::kLarge, EmulationMode::kFloat}) {
    if (largest_value(p.graph, out) < kLargestHalf) break;
    out = drawn(m, weight_scales(p.graph, p.inputs.size()));
  }
  return out;
}

/// t with only the part of its range (or of the ordinary one) that is nearest to 0.
TensorInfo narrowed(TensorInfo t, double share) {
  const auto [low, high] = t.range.value_or(std::pair{-2.0, 2.0});
  if (low > 0) t.range = {low, low + (high - low) * share};
  else if (high < 0) t.range = {high - (high - low) * share, high};
  else t.range = {low * share, high * share};
  return t;
}

/// Where a value of the program itself leaves float32 on the way from these inputs (e^100 over e^100), kernels cannot agree with fp64:
/// smaller ones, from within the ranges, at which none does. nullopt: none leaves it here, so that a disagreement is the kernels', or some
/// does at the smallest, too (a logarithm of what is not positive).
std::optional<std::vector<Tensor<double>>> inputs_within_float(const EmulationCase& c, const std::vector<Tensor<double>>& inputs,
                                                               Rng& rng) {
  constexpr double kLargestFloat = 3.4028234663852886e38, kLeastShare = 1.0 / 1024;
  if (largest_value(c.program.graph, inputs) <= kLargestFloat) return std::nullopt;
  for (double share = 0.5; share >= kLeastShare; share /= 2) {
    std::vector<Tensor<double>> out;
    for (size_t i = 0; i < c.program.inputs.size(); i++) {
      const TensorInfo smaller = narrowed(c.program.inputs[i], share);
      out.emplace_back(smaller.type.dims, 0.0);
      for (double& x : out.back().data) x = draw(c, i, smaller, EmulationMode::kFloat, rng);
    }
    if (largest_value(c.program.graph, out) <= kLargestFloat) return out;
  }
  return std::nullopt;
}

}  // namespace

namespace {

/// Inputs at which as many elements as possible stay within the range of their types: weights that keep sums as large as their terms, then
/// ever smaller parts of the ranges. nullopt: none is better than `left_out`.
std::optional<std::vector<Tensor<double>>> inputs_within_range(const EmulationCase& c, Rng& rng, int64_t left_out) {
  constexpr double kLeastShare = 1.0 / 1024;
  std::optional<std::vector<Tensor<double>>> best;
  const std::vector<double> ones(c.program.inputs.size(), 1), scales = weight_scales(c.program.graph, c.program.inputs.size());
  for (double share = 1; share >= kLeastShare && left_out > 0; share /= 2) {
    std::vector<Tensor<double>> out;
    for (size_t i = 0; i < c.program.inputs.size(); i++) {
      const TensorInfo t = share < 1 ? narrowed(c.program.inputs[i], share) : c.program.inputs[i];
      out.emplace_back(t.type.dims, 0.0);
      for (double& x : out.back().data) x = draw(c, i, t, EmulationMode::kFloat, rng, share < 1 ? 1 : scales[i]);
    }
    if (share == 1 && scales == ones) continue;
    const int64_t n = beyond_range(c.program, out);
    if (n < left_out) best = std::move(out), left_out = n;
  }
  return best;
}

}  // namespace

EmulationOutcome first_look(const EmulationCase& c, const Emulation& run) {
  EmulationOutcome out;
  out.findings = run.findings;
  out.threads = run.threads;
  out.accesses = run.accesses;
  out.seconds = run.seconds;
  out.trace = run.trace;
  out.ran = run.ran;
  out.loaded = run.loaded;
  if (!run.ran) out.reason = "the emulation cannot run: " + run.refusal;
  else if (!run.findings.empty()) out.reason = run.findings.front().kind + ": " + run.findings.front().text;
  for (size_t i = 0; out.reason.empty() && i < c.plan.buffers.size(); i++)
    if (c.plan.buffers[i].slots && std::any_of(run.buffers[i].begin(), run.buffers[i].end(), [](unsigned char x) { return x != 0xff; }))
      out.reason = "slots are left full";
  return out;
}

namespace {

/// Whether the range of types excuses something of a verdict, or of one that other inputs may mend.
bool is_excused(const EmulationOutcome& o) { return o.ok ? o.by_range || o.compared < o.elements : o.left_out > 0; }

/// The run of this case alone where variables without a value hold zeros. nullopt: there is no library for it.
std::optional<Emulation> run_with_zeros(const EmulationCase& c, const std::string& folder, const std::vector<EmulatedBuffer>& buffers,
                                        const EmulateOptions& options) {
  std::optional<Emulation> out;
  (void)with_emulation({&c}, find_host_compiler(), folder, UnsetFill::kZeros, [&](const std::string& path) {
    Emulation run = emulate(path, c.kernels, buffers, options);
    const bool is_loaded = run.loaded;
    if (run.ran) out = std::move(run);
    return is_loaded;
  });
  return out;
}

/// Variables without a value hold a number near the end of float32's range: what sums of it make of results looks like an overflow of the
/// program. Results that do not depend on them are the same bits whatever they hold.
std::optional<Finding> reads_unset(const EmulationCase& c, const Emulation& run, const std::optional<Emulation>& zeros) {
  if (!zeros || (!zeros->findings.empty() && zeros->findings.front().kind == "too slow")) return std::nullopt;
  const std::string kind = "uninitialised read", where = "where variables without a value hold zeros";
  if (!zeros->findings.empty())
    return Finding{kind, fmt::format("{}, {}: {}", where, zeros->findings.front().kind, zeros->findings.front().text)};
  for (size_t i = 0; i < c.plan.buffers.size(); i++) {
    const Buffer& b = c.plan.buffers[i];
    for (int64_t e = 0; b.kind == Buffer::Kind::kOutput && e < b.dims.elements(); e++) {
      const int64_t size = dtype_bytes(b.dtype), at = place_of(b.dims, b.strides, e) * size;
      const unsigned char *one = run.buffers[i].data() + at, *other = zeros->buffers[i].data() + at;
      const double x = value_of(get_bits(one, b.dtype), b.dtype), y = value_of(get_bits(other, b.dtype), b.dtype);
      if (memcmp(one, other, static_cast<size_t>(size)) == 0 || (std::isnan(x) && std::isnan(y))) continue;
      return Finding{kind, fmt::format("output {} at {} is {:.9g}, and {:.9g} {}", c.program.outputs[static_cast<size_t>(b.index)].name,
                                       place_text(b.dims, e), x, y, where)};
    }
  }
  return std::nullopt;
}

}  // namespace

EmulationOutcome run_emulation(const EmulationCase& c, const std::string& library, EmulationMode mode, uint64_t seed,
                               const EmulateOptions& base, EmulationRecord* record) {
  EmulateOptions options = base;
  options.seed = seed;
  options.field = mode == EmulationMode::kField;
  Rng rng(hash_combine(hash_text(c.program.name, seed), static_cast<uint64_t>(mode)));
  if (mode == EmulationMode::kField) return run_field(c, library, rng, options);
  const auto attempt = [&](const std::vector<Tensor<double>>& inputs) {
    DoubleAlgebra a;
    // the spec's own graph: what the search made of it is judged too
    const auto want = evaluate(c.program.graph, std::span<const Tensor<double>>(inputs), a, true);
    std::vector<EmulatedBuffer> buffers = fill_buffers(c, inputs, bits_of);
    const Emulation run = emulate(library, c.kernels, buffers, options);
    EmulationOutcome out = first_look(c, run);
    if (out.reason.empty()) {
      out = compare_floats(c, run, inputs, want, seed, std::move(out));
      const auto unset = is_excused(out) ? reads_unset(c, run, run_with_zeros(c, fs::path(library).parent_path(), buffers, options))
                                         : std::nullopt;
      if (unset) out.ok = false, out.reason = unset->kind + ": " + unset->text, out.findings.push_back(*unset);
    }
    if (record) record->buffers = std::move(buffers), record->after = run.buffers;
    return out;
  };
  const auto inputs = float_inputs(c, mode, rng, record);
  EmulationOutcome out = attempt(inputs);
  if (record && record->draw) return out;
  if (out.ok && out.left_out > 0) {   // what could be compared was right; the rest is, too, where it can be
    const auto better = inputs_within_range(c, rng, out.left_out);
    if (!better) return out;
    out = attempt(*better);
    out.by_range = out.ok;
    return out;
  }
  // every element was compared, within all that rounding and range may do: the kernels are wrong
  if (out.ok || !out.ran || !out.findings.empty() || out.left_out == 0) return out;
  const auto smaller = inputs_within_float(c, inputs, rng);
  if (!smaller) return out;
  out = attempt(*smaller);
  out.by_range = out.ok;
  return out;
}

}  // namespace mirage

// emit_module: the figure of code generation. Every kernel of the plan becomes text through the emitter of its kind, then the module is
// assembled around them.
#include <algorithm>

#include "mirage/codegen/module.h"
#include "codegen/kernels/cuda_text.h"
#include "codegen/module_parts.h"
#include "mirage/plan/hints.h"
#include "mirage/plan/describe.h"
#include "mirage/plan/strategy.h"
#include "mirage/support/assert.h"

namespace mirage {

namespace {

bool is(StrategyId id, const KernelPlan& k) { return strategy_id(k) == id; }


/// The kernel begins with one or both instructions: what is behind it may be started early; it may be started early itself, and touches
/// nothing before what is ahead of it has finished.
KernelText begins_with(KernelText k, bool release, bool wait) {
  const size_t global = k.source.find("__global__ "), open = k.source.find(") {\n", global);
  MIRAGE_ASSERT(global != std::string::npos && open != std::string::npos) << "no kernel in\n" << k.source;
  k.source.insert(open + 4, std::string(release ? "  mo::release_next();\n" : "") + (wait ? "  mo::await_previous();\n" : ""));
  return k;
}

using Emitter = KernelText (*)(const KernelPlan&, const Plan&, const Target&);

/// That of the kernel's strategy.
Emitter emitter_of(const KernelPlan& k) {
  static constexpr Emitter kEmitters[] = {
#define MIRAGE_STRATEGY(Name, name, help) emit_##name##_kernel,
#include "mirage/plan/strategies.def"
  };
  return kEmitters[static_cast<size_t>(strategy_id(k))];
}

}  // namespace

/// With --pdl attention kernels take no part: their blocks fill the device for most of its time, and blocks of the next kernel that already
/// sit there cost more than a launch does (chains of mha: 11.9 us per call, 7.8 without; gqa 6.05, 5.85).
bool takes_part(const KernelPlan& k) { return !is(StrategyId::kAttend, k); }

/// Pointers that may be read early by nobody: what is const and __restrict__ the compiler takes for constant over the whole kernel, and
/// moves its loads in front of the wait.
KernelText reads_in_order(KernelText k) {
  for (size_t at; (at = k.source.find("__restrict__ ")) != std::string::npos;) k.source.erase(at, 13);
  return k;
}

namespace {

/// The kernel with the inputs that are passed by value among its parameters. Emitters write pointers; here these become the addresses of
/// parameters, which plain loads reach (and only they: Access::by_value).
KernelText with_values(KernelText k, const Plan& plan) {
  const auto buffer = [&](int b) -> const Buffer& { return plan.buffers[static_cast<size_t>(b)]; };
  // a kernel that is in no library has no buffer of slots
  const auto by_value = [&](int b) { return b >= 0 && static_cast<size_t>(b) < plan.buffers.size() && buffer(b).by_value; };
  if (std::none_of(k.args.begin(), k.args.end(), by_value)) return k;
  for (int b : k.args) k.values.push_back(by_value(b) ? storage_type(buffer(b).dtype) : "");
  for (const TensorMapText& m : k.maps) MIRAGE_ASSERT(!by_value(m.buffer)) << k.name << " has a tensor map of a value";
  const size_t global = k.source.find("__global__ "), name = k.source.find(" " + k.name + "(", global), open = name + k.name.size() + 2,
               close = k.source.find(") {\n", open);
  MIRAGE_ASSERT(global != std::string::npos && name != std::string::npos && close != std::string::npos) << "no kernel in\n" << k.source;
  std::string parameters, pointers;
  size_t at = open;
  for (size_t i = 0; i < k.maps.size() + k.args.size(); i++) {
    const size_t end = std::min(k.source.find(", ", at), close);
    std::string text = k.source.substr(at, end - at);
    if (i >= k.maps.size() && !k.values[i - k.maps.size()].empty()) {
      const std::string own = text.substr(text.rfind(' ') + 1);
      text = "const __grid_constant__ " + k.values[i - k.maps.size()] + " " + own + "_value";
      pointers += "  const void* const " + own + " = &" + own + "_value;\n";
    }
    parameters += (i ? ", " : "") + text;
    at = end + 2;
  }
  k.source.replace(open, close - open, parameters);
  k.source.insert(k.source.find(") {\n", open) + 4, pointers);
  return k;
}

/// What a kernel's text depends on of the plan around it, where nothing begins early. Plans are large, and each kernel asks.
Plan without_early(const Plan& plan) {
  Plan out;
  out.buffers = plan.buffers;
  return out;
}

KernelText emit_with_pointers(const KernelPlan& k, const Plan& plan, const Target& target) {
  if (plan.pdl) {
    Plan ordinary = plan;
    ordinary.pdl = false;
    if (!takes_part(k)) return emit_with_pointers(k, ordinary, target);
    KernelText text = reads_in_order(is(StrategyId::kStream, k) ? emit_stream_kernel(k, plan, target)
                                                       : begins_with(emit_with_pointers(k, ordinary, target), true, true));
    text.dependent = true;
    return text;
  }
  if (k.early || releases(k, plan)) {
    // Stream, tile and attention kernels say themselves what comes before the wait.
    const Plan ordinary = without_early(plan);
    KernelPlan alone = k;
    alone.early = false;
    const bool waits = is(StrategyId::kStream, k) || is(StrategyId::kTile, k) || (is(StrategyId::kAttend, k) && weights_early(k, plan));
    const bool own = k.early && waits;
    KernelText text = own ? emitter_of(k)(k, plan, target) : emit_with_pointers(alone, ordinary, target);
    text = begins_with(std::move(text), releases(k, plan), k.early && !own);
    if (k.early) text = reads_in_order(std::move(text));
    text.dependent = k.early;
    return text;
  }
  return emitter_of(k)(k, plan, target);
}

}  // namespace

KernelText emit_kernel(const KernelPlan& k, const Plan& plan, const Target& target) {
  return with_values(emit_with_pointers(k, plan, target), plan);
}

KernelText emit_with_schedule(const KernelPlan& k, const Plan& plan, const Target& target) {
  constexpr int kMostLines = 56;   // people read kernels, too
  KernelText text = emit_kernel(k, plan, target);
  const schedule::Described d = schedule::describe(k, target);
  if (!d.program) return text;
  std::string lines = schedule::print(*d.program);
  size_t end = 0;
  for (int n = 0; n < kMostLines && end != std::string::npos; n++) end = lines.find('\n', end + (n > 0));
  if (end != std::string::npos && end + 1 < lines.size())
    lines = lines.substr(0, end + 1) + "  ... (--print-after=schedule has all of it)\n";
  text.schedule = as_comment(lines);
  return text;
}

CudaModule emit_module(const Program& program, const Plan& plan, const Target& target, const ModuleOptions& options) {
  std::vector<KernelText> kernels;
  for (const KernelPlan& k : plan.kernels) kernels.push_back(emit_with_schedule(k, plan, target));
  return assemble_module(program, plan, target, options, std::move(kernels));
}

}  // namespace mirage

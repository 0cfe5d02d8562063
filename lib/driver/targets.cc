// Targets by name, and the target of this machine's GPU through the driver. Used by compile() and --list-targets.
#include <fmt/format.h>

#include "driver/toolchain.h"
#include "mirage/driver/compile.h"
#include "mirage/driver/modes.h"

namespace mirage {

namespace {

Diagnostic no_native(const std::string& why) { return {Severity::kError, DiagCode::kUnknownTarget, {}, "--target native: " + why, {{{}, "name the target, for example --target sm_90a; see --list-targets"}}}; }

}  // namespace

Result<Target> resolve_target(const std::string& name) {
  if (auto t = find_target(name)) return *t;
  std::vector<std::string> names = {"native"};
  for (const Target& t : all_targets()) names.push_back(t.name);
  if (name != "native") {
    Diagnostic d{Severity::kError, DiagCode::kUnknownTarget, {}, fmt::format("there is no target '{}'", name), {}};
    if (const std::string near = nearest(name, names); !near.empty()) d.notes.push_back({{}, "did you mean '" + near + "'?"});
    return d;
  }
  const DetectedDevice found = detect_device();
  if (!found.device) return no_native(found.error);
  if (auto t = target_for_device(found.device->major, found.device->minor)) return *t;
  return no_native(fmt::format("{} has compute capability {}.{}, for which there is no target", found.device->name, found.device->major, found.device->minor));
}

ModeResult print_targets() {
  ModeResult out;
  out.text = fmt::format("{:<9} {:>5} {:>14} {:>10} {:>12}  {}\n", "target", "SMs", "shared/block", "L2", "memory GB/s", "run by us on such a device");
  for (const Target& t : all_targets())
    out.text += fmt::format("{:<9} {:>5} {:>12}KB {:>8}MB {:>12.0f}  {}\n", t.name, t.num_sms, t.smem_per_block / 1024, t.l2_bytes / (1 << 20), t.dram_bytes_per_us / 1000, t.tested ? "yes" : "no: compiled only");
  out.text += "native    this machine's GPU\n";
  return out;
}

}  // namespace mirage

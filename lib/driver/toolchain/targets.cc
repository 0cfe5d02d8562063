// Targets by name, and the target of this machine's GPU through the driver. Used by compile() and --list-targets.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/toolchain/toolchain.h"
#include "mirage/driver/compile.h"
#include "mirage/driver/modes.h"
#include "mirage/plan/passes.h"
#include "mirage/plan/strategy.h"

namespace mirage {

namespace {

Diagnostic no_native(const std::string& why) {
  return {Severity::kError,
          DiagCode::kUnknownTarget,
          {},
          "--target native: " + why,
          {{{}, "name the target, for example --target sm_90a; see --list-targets"}}};
}

}  // namespace

Result<Target> resolve_target(const std::string& name) {
  if (auto t = find_target(name)) return *t;
  std::vector<std::string> names = {"native"};
  for (const Target& t : all_targets()) names.push_back(t.name);
  if (name != "native") {
    Diagnostic d{Severity::kError, DiagCode::kUnknownTarget, {}, fmt::format("there is no target '{}'", name), {}};
    if (const auto m = find_machine(name))
      d.notes.push_back({{}, fmt::format("that is a machine, of target {}: --machine {}", m->name, m->machine)});
    else if (const std::string near = nearest(name, names); !near.empty())
      d.notes.push_back({{}, fmt::format("did you mean '{}'? there are {}", near, fmt::join(names, ", "))});
    else d.notes.push_back({{}, fmt::format("there are {} (--list-targets)", fmt::join(names, ", "))});
    return d;
  }
  const DetectedDevice found = detect_device();
  if (!found.device) return no_native(found.error);
  if (auto t = target_for_device(*found.device)) return *t;
  return no_native(fmt::format("{} has compute capability {}.{}, for which there is no target", found.device->name, found.device->major,
                               found.device->minor));
}

namespace {

Result<Target> named_machine(const std::string& name, const std::string& target) {
  std::vector<std::string> names;
  for (const Target& t : all_machines()) names.push_back(t.machine);
  const auto m = find_machine(name);
  if (!m) {
    Diagnostic d{Severity::kError,
                 DiagCode::kUnknownTarget,
                 {},
                 fmt::format("there is no machine '{}'; machines: {}", name, fmt::join(names, ", ")),
                 {}};
    if (const std::string near = nearest(name, names); !near.empty()) d.notes.push_back({{}, "did you mean '" + near + "'?"});
    return d;
  }
  if (target == m->name || target == Options().target) return *m;   // the default stands for nothing that was asked for
  return Diagnostic{Severity::kError,
                    DiagCode::kUnknownTarget,
                    {},
                    fmt::format("--machine {} is compiled for as {}, not as {}", name, m->name, target),
                    {{{}, "leave --target out: --machine implies it"}}};
}

Diagnostic unknown_name(std::string what, const std::string& name, const std::vector<std::string>& names) {
  Diagnostic d{Severity::kError, DiagCode::kUsage, {}, std::move(what), {}};
  if (const std::string near = nearest(name, names); !near.empty()) d.notes.push_back({{}, "did you mean '" + near + "'?"});
  return d;
}

}  // namespace

Options with_implied_target(Options o) {
  if (const auto m = find_machine(o.machine); m && o.target == Options().target) o.target = m->name;
  return o;
}

Result<Target> resolve_target(const Options& o) {
  Result<Target> found = o.machine.empty() ? resolve_target(o.target) : named_machine(o.machine, o.target);
  if (!found) return found;
  Target t = *found;
  t.allow_cublas = o.allow_cublas;
  for (const std::string& name : o.disable_pass) {
    const auto pass = find_pass(name);
    if (!pass) {
      std::vector<std::string> names;
      for (const PassInfo& p : pass_table()) names.push_back(p.name);
      return unknown_name(fmt::format("--disable-pass: there is no pass '{}'; passes: {}", name, fmt::join(names, ", ")), name, names);
    }
    t = without(std::move(t), *pass);
  }
  for (const std::string& name : o.disable_strategy) {
    const std::optional<Target> other = without_strategy(t, name);
    if (!other) {
      const std::vector<std::string> names = strategies_to_leave_out();
      return unknown_name(fmt::format("--disable-strategy: '{}' is none that can be left out; those are {}", name, fmt::join(names, ", ")),
                          name, names);
    }
    t = *other;
  }
  return t;
}

ModeResult print_targets() {
  ModeResult out;
  out.text = fmt::format("{:<9} {:>5} {:>14} {:>10} {:>12}  {}\n", "target", "SMs", "shared/block", "L2", "memory GB/s",
                         "run by us on such a device");
  for (const Target& t : all_targets())
    out.text += fmt::format("{:<9} {:>5} {:>12}KB {:>8}MB {:>12.0f}  {}\n", t.name, t.num_sms, t.smem_per_block / 1024,
                            t.l2_bytes / (1 << 20), t.dram_bytes_per_us / 1000, t.tested ? "yes" : "no: compiled only");
  out.text += "native    this machine's GPU\n";
  out.text += fmt::format("\n{:<10} {:<9} {:>5} {:>12} {:>14}  {}\n", "machine", "target", "SMs", "memory GB/s", "half TFLOP/s",
                          "values of its cost model: measured there, scaled, of the datasheet");
  for (const Target& t : all_machines()) {
    const MachineSources s = machine_sources(t.machine);
    out.text += fmt::format("{:<10} {:<9} {:>5} {:>12.0f} {:>14.0f}  {}, {}, {}\n", t.machine, t.name, t.num_sms,
                            t.dram_bytes_per_us / 1000, t.tensor_flops_per_us / 1e6, s.measured, s.scaled, s.datasheet);
  }
  return out;
}

}  // namespace mirage

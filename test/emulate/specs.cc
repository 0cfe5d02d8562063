// Every spec's kernels, as emitted for sm_80 and sm_90a, on the CPU at reduced shapes of their plans: races, waits, bounds; results exact
// in the field and within bounds in floats.
#include <cstdio>

#include <fmt/format.h>

#include "emulate/helpers.h"

using namespace mirage;
using namespace mirage::test;

namespace {

bool is_full() { return std::getenv("MIRAGE_FULL") != nullptr; }

/// gqa_b16 beside gqa: the same program over more matrices, most of a minute for nothing new in the quick subset.
bool is_batch_sibling(const std::string& file) {
  const std::string stem = std::filesystem::path(file).stem(), digits = "0123456789";
  const size_t at = stem.find_last_not_of(digits);
  if (at == std::string::npos || at + 1 == stem.size() || at < 1 || stem.compare(at - 1, 2, "_b") != 0) return false;
  return std::filesystem::exists(std::filesystem::path(file).replace_filename(stem.substr(0, at - 1) + ".json"));
}

}  // namespace

// MIRAGE_FULL=1: both targets, both tails, also large inputs. Neither it nor MIRAGE_TARGET: sm_90a without decoder layers and batch
// siblings; straightforward plans with ragged tails only, the field and ordinary floats. MIRAGE_TARGET=sm_90a: what that leaves out;
// MIRAGE_TARGET=sm_80: every spec (.ci/run does both). MIRAGE_SPEC=NAME runs one spec, MIRAGE_PART=I/N every Nth, MIRAGE_TABLE=1 prints a
// line per run.
TEST_CASE("kernels of every spec are right on the CPU", "[specs]") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const char* only = std::getenv("MIRAGE_SPEC");
  const char* one_target = std::getenv("MIRAGE_TARGET");
  const bool every = is_full() || one_target || only;
  int part = 0, parts = 1, index = 0;
  if (const char* p = std::getenv("MIRAGE_PART")) REQUIRE((std::sscanf(p, "%d/%d", &part, &parts) == 2 && part >= 0 && part < parts));
  for (const std::string target_name : {"sm_90a", "sm_80"})
    for (const std::string& file : spec_files()) {
      if (!is_full() && target_name != (one_target ? one_target : "sm_90a")) continue;
      const bool is_left_out = file.find("llama_layer") != std::string::npos || is_batch_sibling(file);
      if (!is_full() && !only && one_target && target_name == "sm_90a" && !is_left_out) continue;
      if (!every && is_left_out) continue;
      if (index++ % parts != part) continue;
      const Target target = *find_target(target_name);
      const std::string text = *read_file(file);
      const Program p = program_of(text, file);
      std::vector<EmulationCase> cases;
      std::vector<std::string> names, shapes;
      const auto add = [&](const Program& program, const Plan& plan, const std::string& name) {
        cases.push_back(case_of(program, plan, target, fmt::format("c{}_", cases.size())));
        shapes.emplace_back();
        for (const TensorInfo& t : program.inputs) shapes.back() += (shapes.back().empty() ? "" : " ") + to_string(t.type.dims);
        names.push_back(p.name + " " + target_name + " " + name);
      };
      const bool has_witness = make_witnesses(p).refusal.empty();
      const std::vector<NamedPlan> plans = has_witness ? plans_of(p, target, 300'000, 0, true) : std::vector<NamedPlan>{};
      for (bool tails : {false, true}) {
        if (!has_witness) {
          const Program small = program_of(small_axes(text, tails ? 13 : 64), file);
          if (tails || is_full())
            for (const NamedPlan& n : plans_of(small, target, 0)) add(small, n.plan, n.name + (tails ? " with tails" : ""));
          continue;
        }
        for (const NamedPlan& n : plans) {
          if (!is_full() && !tails && n.name == "straightforward") continue;
          const Reduced r = reduce_plan(p, n.plan, target, tails);
          INFO(p.name << " " << n.name << ": " << r.refusal << r.differs);
          REQUIRE(r.plan);
          CHECK(r.differs.empty());
          add(*r.program, *r.plan, n.name + (tails ? " with tails" : ""));
        }
      }
      std::vector<const EmulationCase*> all;
      for (const EmulationCase& c : cases) all.push_back(&c);
      const EmulationLibrary lib = build_emulation(all, compiler, emulation_folder());
      INFO(lib.error);
      REQUIRE(lib.error.empty());
      for (size_t i = 0; i < cases.size(); i++) {
        // in one mode at least: batch norm's root is undefined for most field elements, sums of moe's inputs leave float16
        bool is_covered = false;
        for (EmulationMode m : {EmulationMode::kField, EmulationMode::kFloat, EmulationMode::kLarge}) {
          if (!is_full() && m == EmulationMode::kLarge) continue;
          const EmulationOutcome o = run_emulation(cases[i], lib.path, m, 1);
          if (std::getenv("MIRAGE_TABLE"))
            fmt::print(
                "{} {} at {}: compile {:.2f} s, run {:.2f} s, {} kernels, {} threads, {:.1f} M accesses, {} of {} compared, worst {:.2f} "
                "units {:.2f} {:.2f} spreads {:.2f} {:.2f} flips {:.2f}: {}\n",
                names[i], mode_name(m), shapes[i], lib.compile_seconds, o.seconds, cases[i].kernels.size(), o.threads,
                static_cast<double>(o.accesses) * 1e-6, o.compared, o.elements, o.worst, o.distance.units, o.distance.norm_units,
                o.distance.spreads, o.distance.norm_spreads, o.distance.flips,
                o.ok ? o.carried ? o.undefined ? "ok, undefined elements left out" : "ok" : "not carried" : o.reason);
          INFO(names[i] << " " << mode_name(m) << ": " << o.reason);
          CHECK(o.ok);
          if (m == EmulationMode::kField && o.carried) CHECK(o.compared == o.elements);   // nothing undefined is left out
          if (m != EmulationMode::kLarge) is_covered = is_covered || o.compared * 2 >= o.elements;
        }
        INFO(names[i]);
        CHECK(is_covered);
      }
    }
}

// MIRAGE_TRUE=1: every spec at its true size in the field, where that takes less than a minute (and a machine for itself); lines say which.
TEST_CASE("kernels are right at their true size", "[true]") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty() || std::getenv("MIRAGE_TRUE") == nullptr) return;
  constexpr double kMostWork = 2e10, kMinute = 60;   // multiplications and bytes; seconds
  const Target target = *find_target("sm_90a");
  for (const std::string& file : spec_files()) {
    const Program p = program_of(*read_file(file), file);
    for (const NamedPlan& n : plans_of(p, target, make_witnesses(p).refusal.empty() ? 300'000 : 0, 0, true)) {
      double work = 0;
      for (const KernelPlan& k : n.plan.kernels) work += k.flops + static_cast<double>(k.bytes);
      if (work > kMostWork) { fmt::print("{} {}: {:.1e} operations and bytes, left out\n", p.name, n.name, work); continue; }
      const EmulationCase c = case_of(p, n.plan, target, "t_");
      const EmulationLibrary lib = build_emulation({&c}, compiler, emulation_folder());
      INFO(p.name << " " << n.name << " " << lib.error);
      REQUIRE(lib.error.empty());
      EmulateOptions options;
      options.seconds = kMinute;
      const EmulationOutcome o = run_emulation(c, lib.path, EmulationMode::kField, 1, options);
      const bool is_slow = !o.findings.empty() && o.findings.front().kind == "too slow";
      fmt::print("{} {}: {:.1f} s, {} kernels, {} threads, {:.1f} M accesses, {} of {} compared: {}\n", p.name, n.name, o.seconds,
                 c.kernels.size(), o.threads, static_cast<double>(o.accesses) * 1e-6, o.compared, o.elements,
                 o.ok ? o.carried ? "equal" : "not carried" : o.reason);
      CHECK((o.ok || is_slow));
    }
  }
}

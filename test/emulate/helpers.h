// What the emulation tests share: programs to plans, plans to emulations.
#pragma once
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "driver/decide/candidates.h"
#include "driver/emulation/emulation.h"
#include "driver/decide/numbers.h"
#include "driver/gate/reduce.h"
#include "mirage/codegen/module.h"
#include "mirage/ir/stabilize.h"
#include "mirage/spec/spec.h"
#include "mirage/support/file.h"

namespace mirage::test {

inline Program program_of(const std::string& text, const std::string& name) {
  auto p = parse_spec({name, text});
  if (!p) {
    std::string all;
    for (const Diagnostic& d : p.errors()) all += render(d, text);
    FAIL(all);
  }
  return *p;
}

struct NamedPlan { std::string name; Program program; Plan plan; };

/// The straightforward plan and that of the best searched graph, if one was found within `states`.
inline std::vector<NamedPlan> plans_of(const Program& p, const Target& target, int64_t states, uint64_t seed = 0, bool stable = false) {
  std::vector<NamedPlan> out;
  Planned straight = make_plan(p, p.graph, target);
  REQUIRE(straight.plan);
  out.push_back({"straightforward", p, std::move(*straight.plan)});
  const Witnesses w = make_witnesses(p);
  if (states == 0 || !w.refusal.empty()) return out;
  std::vector<Candidate> candidates;
  SearchOptions so;
  so.max_states = states;
  so.seed = seed;
  Program unshifted = p;
  if (stable) unshifted.graph = unshift(p.graph);   // as the driver does
  enumerate(unshifted, target, so, [&](const Structure& s) {
    Examined e = stable ? examine_stable(s, p, w, seed + 77) : examine(s, p, w, seed + 77);
    if (e.verdict == SinkVerdict::kVerified) candidates.push_back(std::move(e.candidate));
    return e.verdict;
  });
  Trace trace;
  NumberLimits limits;
  limits.plans_per_candidate = 24;
  limits.plans = 120;
  Choices choices = choose_numbers(candidates, p, target, limits, 2, trace);
  for (Choice& c : choices.best) {
    if (!verify_instance(candidates[c.candidate].structure, c.numbers, p, w, seed + 5).refusal.empty()) continue;
    out.push_back({"searched", p, std::move(c.plan)});
    break;
  }
  return out;
}

inline EmulationCase case_of(const Program& p, const Plan& plan, const Target& target, const std::string& prefix) {
  std::vector<KernelText> kernels;
  for (const KernelPlan& k : plan.kernels) kernels.push_back(emit_kernel(k, plan, target));
  return make_emulation_case(p, plan, kernels, prefix);
}

/// The specs of specs/, or the one that MIRAGE_SPEC names.
inline std::vector<std::string> spec_files() {
  const char* only = std::getenv("MIRAGE_SPEC");
  std::vector<std::string> out;
  for (const auto& e : std::filesystem::directory_iterator(std::string(MIRAGE_SOURCE_DIR) + "/specs"))
    if (e.path().extension() == ".json" && (!only || e.path().stem() == only)) out.push_back(e.path().string());
  std::sort(out.begin(), out.end());
  return out;
}

/// The spec over small axes, for programs that have no witness to reduce by: extents over 64 become 64 and a rest.
inline std::string small_axes(const std::string& text, int64_t rest) {
  auto spec = nlohmann::ordered_json::parse(text);
  for (auto& [name, axis] : spec["axes"].items())
    if (axis["value"].get<int64_t>() > 64) axis["value"] = 64 + rest;
  return spec.dump();
}

inline std::string emulation_folder();

/// The kind of what the field finds when the first `statement` behind `where` is dropped, in the kernel's text or else in the device
/// library's. "": nothing.
inline std::string found_without(EmulationCase c, const std::string& where, const std::string& statement, const std::string& compiler) {
  const bool in_kernel = c.kernels[0].source.find(where) != std::string::npos;
  c.runtime = runtime_text();
  std::string& text = in_kernel ? c.kernels[0].source : c.runtime;
  const size_t from = text.find(where), at = from == std::string::npos ? from : text.find(statement, from);
  INFO(statement << " behind " << where);
  REQUIRE(at != std::string::npos);
  text.erase(at, statement.size());
  const EmulationLibrary lib = build_emulation({&c}, compiler, emulation_folder());
  INFO(lib.error);
  REQUIRE(lib.error.empty());
  const EmulationOutcome o = run_emulation(c, lib.path, EmulationMode::kField, 1);
  return o.findings.empty() ? o.ok ? "" : "wrong" : o.findings.front().kind;
}

inline std::string emulation_folder() { return std::string(MIRAGE_BINARY_DIR) + "/emulation_test"; }

}  // namespace mirage::test

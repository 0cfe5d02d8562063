// prepare(), judge(), reduce_spec(): see the header.
#include "random/judge.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include <fmt/format.h>

#include "driver/decide/candidates.h"
#include "driver/proof/folding.h"
#include "driver/decide/numbers.h"
#include "driver/pieces/partition.h"
#include "driver/gate/reduce.h"
#include "mirage/ir/stabilize.h"
#include "mirage/plan/strategy.h"
#include "mirage/spec/spec.h"
#include "mirage/support/hash.h"

namespace mirage::test {

namespace {

EmulationCase case_of(const Program& p, const Plan& plan, const Target& target, const std::string& prefix) {
  std::vector<KernelText> kernels;
  for (const KernelPlan& k : plan.kernels) kernels.push_back(emit_kernel(k, plan, target));
  return make_emulation_case(p, plan, kernels, prefix);
}

/// Verified candidates of the search, as the driver gets them.
std::vector<Candidate> search(const Program& p, const Witnesses& w, const Target& target, int64_t states, uint64_t seed) {
  std::vector<Candidate> out;
  SearchOptions options;
  options.max_states = states;
  options.seed = seed;
  Program unshifted = p;
  unshifted.graph = unshift(p.graph);
  enumerate(unshifted, target, options, [&](const Structure& s) {
    Examined e = examine_stable(s, p, w, seed + 77);
    if (e.verdict == SinkVerdict::kVerified) out.push_back(std::move(e.candidate));
    return e.verdict;
  });
  return out;
}

}  // namespace

std::array<int, 4> kernel_kinds(const Plan& plan) {
  std::array<int, 4> n{};
  for (const KernelPlan& k : plan.kernels) n[std::min<size_t>(static_cast<size_t>(strategy_id(k)), 3)]++;
  return n;
}

PreparedSpec prepare(const RandomSpec& s, const std::string& prefix, int64_t states) {
  return prepare_text(s.name, s.text(), prefix, states, false);
}

PreparedSpec prepare_text(const std::string& name, const std::string& spec, const std::string& prefix, int64_t states, bool folds) {
  PreparedSpec out;
  auto parsed = parse_spec({name, spec});
  if (!parsed) { out.refusal = parsed.errors().front().text; return out; }
  const Program p = folds ? fold_verified(*parsed).program : *parsed;
  const uint64_t seed = hash_text(name);
  std::set<std::string> seen;   // texts of kernels: plans for the two targets are often the same
  const auto add = [&](const Program& of, const Plan& plan, const Target& target, const std::string& what) {
    EmulationCase c = case_of(of, plan, target, fmt::format("{}{}_", prefix, out.plans.size()));
    std::string text = fmt::format("{}", of.inputs.empty() ? "" : to_string(of.inputs[0].type));
    for (const EmulatedKernel& k : c.kernels) text += k.source;
    if (seen.insert(text).second) out.plans.push_back({name + " " + target.name + " " + what, std::move(c)});
  };
  const Target targets[] = {*find_target("sm_90a"), *find_target("sm_80")};
  for (const Target& t : targets) {
    const Planned straight = make_plan(p, p.graph, t);
    MIRAGE_ASSERT(straight.plan) << "no straightforward plan: " << straight.reason;
    add(p, *straight.plan, t, "straightforward");
  }
  const Witnesses w = make_witnesses(p);
  if (states == 0 || !w.refusal.empty()) return out;
  if (spec.find("\"softmax\"") != std::string::npos) states *= 5;   // one kernel for an attention is not among the first
  const std::vector<Candidate> candidates = search(p, w, targets[seed % 2], states, seed % 5);
  Trace trace;
  for (const Target& t : targets) {
    if (candidates.empty() && seed % 4 == 0) {   // cut into pieces, as the driver does
      SearchOptions options;
      options.max_states = states;
      const Planned straight = make_plan(p, p.graph, t);
      const Partitioned cut = partition_program(p, t, *straight.plan, options, seed + 9, trace, {});
      if (cut.result) add(p, cut.result->plan, t, "pieces");
    }
    const Choices choices = choose_numbers(candidates, p, t, {24, 120}, 1, trace);
    std::vector<size_t> order;   // the cheapest that holds, and another one: what is never the cheapest must be right too
    for (size_t i = 0; i < choices.best.size(); i++) order.push_back(i);
    if (order.size() > 2) std::swap(order[1], order[1 + seed / 7 % (order.size() - 1)]);
    int taken = 0;
    for (size_t i : order) {
      const Choice& c = choices.best[i];
      if (taken == 2 || !verify_instance(candidates[c.candidate].structure, c.numbers, p, w, seed + 5).refusal.empty()) continue;
      MIRAGE_ASSERT(!check_laws(c.graph)) << *check_laws(c.graph);
      add(p, c.plan, t, fmt::format("searched {}", candidates[c.candidate].structure.rank));
      if (taken++ == 0 && seed % 6 == 0)   // as the gate would run it
        if (const Reduced r = reduce_plan(p, c.plan, t, seed % 12 == 0); r.plan) add(*r.program, *r.plan, t, "reduced");
    }
  }
  return out;
}

Judged judge(const Prepared& p, const std::string& library, double seconds) {
  EmulateOptions options;
  options.seconds = seconds;
  Judged out;
  const EmulationOutcome field = run_emulation(p.with, library, EmulationMode::kField, 1, options);
  out.carried = field.carried && field.compared * 2 >= field.elements;
  const auto slow = [](const EmulationOutcome& o) { return !o.findings.empty() && o.findings.front().kind == "too slow"; };
  out.slow = slow(field);
  if (!field.ok && !out.slow) out.wrong = "field: " + field.reason;
  if (!out.wrong.empty() || out.slow) return out;
  const EmulationOutcome floats = run_emulation(p.with, library, EmulationMode::kFloat, 2, options);
  out.slow = slow(floats);
  out.distance = floats.distance;
  out.by_range = floats.by_range;
  if (!floats.ok && !out.slow) out.wrong = "float: " + floats.reason;
  if (!out.wrong.empty() || out.slow || std::getenv("MIRAGE_LARGE") == nullptr) return out;
  const EmulationOutcome large = run_emulation(p.with, library, EmulationMode::kLarge, 3, options);
  out.slow = slow(large);
  if (!large.ok && !out.slow) out.wrong = "large: " + large.reason;
  return out;
}

std::string failure(const RandomSpec& s, const std::string& compiler, const std::string& folder) {
  for (const Prepared& p : prepare(s, "p").plans) {
    const EmulationLibrary lib = build_emulation({&p.with}, compiler, folder);
    if (!lib.error.empty()) return "compiler: " + lib.error.substr(0, 2000);
    if (const Judged j = judge(p, lib.path); !j.wrong.empty()) return j.wrong + " (" + p.name + ")";
  }
  return "";
}

RandomSpec reduce_spec(RandomSpec s, const std::string& compiler, const std::string& folder, int attempts) {
  const auto kind = [](const std::string& f) { return f.substr(0, f.find(':')); };
  const std::string wanted = kind(failure(s, compiler, folder));
  if (wanted.empty()) return s;
  const auto attempt = [&](RandomSpec t) {
    for (bool again = true; again;) {   // nodes and inputs that nobody reads
      const auto read = [&](const std::string& name) {
        for (const auto& n : t.nodes) if (std::find(n.operands.begin(), n.operands.end(), name) != n.operands.end()) return true;
        return std::any_of(t.outputs.begin(), t.outputs.end(), [&](const auto& o) { return o.name == name; });
      };
      again = std::erase_if(t.nodes, [&](const auto& n) { return !read(n.output); }) > 0;
      const bool by_place = std::any_of(t.nodes.begin(), t.nodes.end(), [](const auto& n) { return n.op == "extent"; });
      if (!by_place) std::erase_if(t.inputs, [&](const auto& x) { return !read(x.name); });
    }
    if (attempts-- <= 0 || t.nodes.empty() || t.outputs.empty() || kind(failure(t, compiler, folder)) != wanted) return false;
    s = std::move(t);
    return true;
  };
  for (bool progress = true; progress && attempts > 0;) {
    progress = false;
    for (size_t i = 0; s.outputs.size() > 1 && i < s.outputs.size(); i++) {
      RandomSpec t = s;
      t.outputs.erase(t.outputs.begin() + static_cast<int>(i));
      if (attempt(t)) progress = true, i--;
    }
    for (size_t i = s.nodes.size(); i-- > 0 && s.nodes.size() > 1;) {   // an earlier node as the only result
      if (i + 1 >= s.nodes.size()) continue;
      RandomSpec t = s;
      t.outputs = {{s.nodes[i].output, s.outputs[0].dtype, {}, {}}};
      if (attempt(t)) { progress = true; break; }
    }
    for (size_t i = 0; i < s.nodes.size() && s.nodes.size() > 1; i++)   // a node's operand, or a new input, in its place
      for (const std::string& by : s.nodes[i].operands) {
        if (!std::isalpha(static_cast<unsigned char>(by[0]))) continue;
        RandomSpec t = s;
        const std::string gone = s.nodes[i].output;
        t.nodes.erase(t.nodes.begin() + static_cast<int>(i));
        for (auto& n : t.nodes) std::replace(n.operands.begin(), n.operands.end(), gone, by);
        if (std::any_of(t.outputs.begin(), t.outputs.end(), [&](const auto& o) { return o.name == gone; })) continue;
        if (attempt(t)) { progress = true; i--; break; }
      }
    for (auto* list : {&s.inputs})
      for (size_t i = 0; i < list->size(); i++)
        if (s.inputs[i].more.find("strides") != std::string::npos) {
          RandomSpec t = s;
          t.inputs[i].more = t.inputs[i].more.substr(0, t.inputs[i].more.find(", \"strides\""));
          if (attempt(t)) progress = true;
        }
    for (size_t i = 0; i < s.outputs.size(); i++)
      if (!s.outputs[i].strides.empty()) { RandomSpec t = s; t.outputs[i].strides.clear(); if (attempt(t)) progress = true; }
    std::set<int64_t> extents;
    for (const auto& x : s.inputs) extents.insert(x.dims.begin(), x.dims.end());
    for (int64_t e : extents)
      for (int64_t smaller : {1, 2, 4, 8, 16, 32}) {
        if (smaller >= e) break;
        RandomSpec t = s;
        for (auto& x : t.inputs) std::replace(x.dims.begin(), x.dims.end(), e, smaller);
        for (auto& o : t.outputs) o.strides.clear();
        for (auto& x : t.inputs)
          if (x.more.find("strides") != std::string::npos && std::find(x.dims.begin(), x.dims.end(), smaller) == x.dims.end()) continue;
        if (attempt(t)) { progress = true; break; }
      }
  }
  return s;
}

}  // namespace mirage::test

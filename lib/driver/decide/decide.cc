// What wins; see the header.
#include "driver/decide/decide.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "driver/emulation/emulation.h"
#include "driver/decide/fit_limits.h"
#include "driver/gate/gate_memory.h"
#include "driver/memory_end.h"
#include "driver/report/report.h"
#include "driver/decide/search_options.h"
#include "driver/toolchain/toolchain.h"
#include "mirage/plan/passes.h"
#include "mirage/plan/strategy.h"
#include "mirage/support/hash.h"
#include "mirage/support/worker_pool.h"

#ifndef MIRAGE_VERSION
#define MIRAGE_VERSION "0.1.0"
#endif

namespace mirage {

namespace {

constexpr double kSettledMayCost = 1.03;   // what is settled at its own size is preferred up to this price

/// Whether kernels are run on the CPU before they may win.
bool wants_emulation(const Options& o) { return o.gate == "emulate" || (o.gate == "auto" && !o.output.empty()); }

/// Predicted time of the plan's generic block kernels.
double generic_us(const Plan& p) {
  double us = 0;
  for (const KernelPlan& k : p.kernels) if (strategy_of(k).is_general) us += k.predicted_us;
  return us;
}
/// Whether a plan is predicted to be faster by more than the model is off by for generic block kernels (measured against predicted over the
/// programs of test/generality: 0.85 to 1.12; kernels of the other strategies are fitted closer). Where the straightforward plan has such
/// kernels, too, the model is off alike for both. If it is not faster by that alone, `what` was not used, which is said.
bool surely_faster(const Plan& p, const Plan& straightforward, const std::string& what, std::vector<std::string>& not_done) {
  if (p.predicted_us >= straightforward.predicted_us) return false;
  if (generic_us(straightforward) > 0 || p.predicted_us + 0.15 * generic_us(p) < straightforward.predicted_us) return true;
  not_done.push_back(fmt::format(
      "{} was not used: {:.2f} us predicted instead of {:.2f}, which is within what the model is off by for generic block kernels", what,
      p.predicted_us, straightforward.predicted_us));
  return false;
}

}  // namespace

uint64_t verification_seed(const Program& p, const Options& o) {
  return hash_combine(hash_text(p.canonical, 0x56657269), static_cast<uint64_t>(o.seed));
}

GateResult run_gate(const Program& program, const Plan& plan, const Target& target, const Options& o, Decision& d,
                    std::vector<std::string>& not_done, std::map<std::string, GateResult>& gated) {
  if (!wants_emulation(o)) return {};
  const auto [it, fresh] = gated.try_emplace(gate_key(program, plan, target));
  GateResult& r = it->second;
  if (fresh)
    r = unless_memory_ends(
        [&] {
          const std::string compiler = find_host_compiler();
          const uint64_t seed = verification_seed(program, o);
          const std::string key = gate_memory_key(program, plan, target, compiler, seed, o);
          if (auto known = passed_before(o, key)) return *known;
          GateResult now = emulation_gate(program, plan, target, compiler, seed, num_threads(o.jobs));
          keep_passed(o, key, now);
          return now;
        },
        GateResult{GateResult::Kind::kNotRun, std::string("not emulated: ") + kMemoryEnded});
  if (r.kind != GateResult::Kind::kFailed) {   // what an earlier plan passed says nothing of this one
    d.gates.clear();
    d.gated = r.kind;
    d.gated_earlier = r.earlier;
    if (!r.text.empty()) d.gates.push_back(r.text);
  }
  if (fresh && r.kind == GateResult::Kind::kNotRun && !r.text.empty()) not_done.push_back(r.text);
  return r;
}

namespace {

/// Why the straightforward kernels are emitted. refused: why the best of what is predicted to be faster is not; empty: nothing is.
std::string why_straightforward(const Choices& choices, const Found& found, const Plan& straightforward, const std::string& refused,
                                const std::string& target) {
  std::string rewritten;   // graph passes, which made another graph of the program's
  for (Pass p : straightforward.passes)
    rewritten += (rewritten.empty() ? " of the program rewritten by " : ", ") + pass_table()[static_cast<size_t>(p)].name;
  const std::string kernels = fmt::format("the straightforward {} kernel{}{}, {:.2f} us predicted", straightforward.kernels.size(),
                                          straightforward.kernels.size() == 1 ? "" : "s", rewritten, straightforward.predicted_us);
  if (found.report.stop_reason.starts_with("not searched") || found.report.stop_reason.starts_with(kInPieces))
    return kernels + ": " + found.report.stop_reason;
  if (found.candidates.empty()) return kernels + fmt::format(": the search verified no other graph ({})", found.report.stop_reason);
  if (choices.best.empty())
    return kernels + fmt::format(": none of the {} verified graphs fits {}: {}", found.candidates.size(), target, why_none_fits(choices));
  if (!refused.empty())
    return kernels + fmt::format(": no verified graph that is predicted to be faster was used (the best, {})", refused);
  return kernels + fmt::format(": no verified graph that holds is predicted to be faster (the best: {:.2f} us)",
                               choices.best.front().plan.predicted_us);
}

}  // namespace

Decision decide(const Choices& choices, Found& found, const Folding& folding, const Plan& straightforward, const PlanGate& gate,
                const Options& o, std::vector<std::string>& not_done) {
  Decision d;
  std::string refused;   // of what is predicted to be faster: the best, and why it was not used
  std::map<size_t, std::string> all_refused;
  const auto refuse = [&](const Choice& c, const std::string& why) {
    all_refused[c.candidate] = why;
    not_done.push_back(
        fmt::format("structure {} with {} was not used: {}", found.candidates[c.candidate].structure.rank, numbers_text(c.numbers), why));
    if (refused.empty()) refused = fmt::format("{:.2f} us: {}", c.plan.predicted_us, why);
  };
  const Program& program = folding.program;
  const uint64_t seed = verification_seed(program, o);
  std::optional<Decision> open;   // the cheapest of which nothing settles at its own size that it is the program
  for (const Choice& c : choices.best) {
    if (c.plan.predicted_us >= straightforward.predicted_us && !c.is_given) break;
    if (open && c.plan.predicted_us > kSettledMayCost * open->choice->plan.predicted_us) break;
    const Structure& s = found.candidates[c.candidate].structure;
    if (!c.is_given &&
        !surely_faster(c.plan, straightforward, fmt::format("structure {} with {}", s.rank, numbers_text(c.numbers)), not_done)) {
      all_refused[c.candidate] = "within what the model is off by for generic block kernels";
      if (refused.empty()) refused = fmt::format("{:.2f} us: within what the model is off by", c.plan.predicted_us);
      continue;
    }
    MIRAGE_ASSERT(!check_laws(c.graph)) << *check_laws(c.graph) << "\n" << print(c.graph);
    Instance instance =
        unless_memory_ends([&] { return verify_instance(s, c.numbers, program, found.witnesses, seed); }, Instance{{}, kMemoryEnded});
    if (!instance.refusal.empty()) { refuse(c, instance.refusal); continue; }
    Verdict support = support_of(folding, c.graph, seed);
    if (support.kind == Verdict::Kind::kDifferent) { refuse(c, to_string(support)); continue; }
    if (support.kind != Verdict::Kind::kEqual && open) {
      all_refused[c.candidate] = to_string(support);
      continue;
    }
    if (const GateResult g = gate(c.plan, d); g.kind == GateResult::Kind::kFailed) { refuse(c, g.text); continue; }
    d.choice = &c;
    d.claims = std::move(instance.claims);
    d.support = std::move(support);
    d.is_divided = c.is_given;
    d.why = fmt::format("{} kernel{} instead of {}: {:.2f} us predicted, {:.2f} us straightforward ({})", c.plan.kernels.size(),
                        c.plan.kernels.size() == 1 ? "" : "s", straightforward.kernels.size(), c.plan.predicted_us,
                        straightforward.predicted_us, numbers_text(c.numbers));
    if (d.support.kind == Verdict::Kind::kEqual) {
      if (open) all_refused[open->choice->candidate] = to_string(open->support) + "; what is as fast within 3 % is settled";
      d.refused = std::move(all_refused);
      return d;
    }
    open = std::exchange(d, Decision{});
  }
  if (open) {
    open->refused = std::move(all_refused);
    return std::move(*open);
  }
  d.refused = std::move(all_refused);
  d.why = why_straightforward(choices, found, straightforward, refused, o.target);
  return d;
}

RunHints run_hints(const Options& o) { return {o.cold, o.warm, o.pdl}; }
ModuleOptions module_options(const Options& o) { return {result_options_line(o), MIRAGE_VERSION}; }

Measured measure(const Decision& d, const Choices& choices, const Plan& straightforward, const Program& program, const Target& target,
                 const Options& o, Trace& trace, const Listener& listener) {
  Measured m;
  // cut by measure_cases, which never leaves out the straightforward plan
  const int64_t most = o.measure ? o.measure_cases : o.alternatives;
  if (most == 0 || is_interrupted(listener)) return m;
  m.cases =
      measure_cases(choices, straightforward, d.stitched() ? &d.stitched()->plan : nullptr, program, target, static_cast<size_t>(most));
  for (MeasureCase& c : m.cases) c.plan = with_hints(std::move(c.plan), run_hints(o));
  const Toolchain tools = o.measure ? find_toolchain() : Toolchain{};
  if (!o.measure || !tools.has_nvcc() || !detect_device().device) return m;   // the build stage says what is missing
  MeasureLimits limits;
  const MeasureJob job{program, target, module_options(o), num_threads(o.jobs), o.warm, listener.interrupted};
  m.result = trace.stage("measure", [&] { return measure_cases_on_device(m.cases, job, tools, limits); });
  tell(listener.progress,
       fmt::format("measure: {} of {} plans in {:.0f} s{}",
                   std::count_if(m.result->rows.begin(), m.result->rows.end(), [](const MeasureRow& r) { return r.ok; }), m.cases.size(),
                   m.result->seconds,
                   m.result->order.empty() ? "" : fmt::format(", the best: {:.2f} us", m.result->rows[m.result->order[0]].final_us)));
  return m;
}

void decide_by_measurement(Decision& d, const Measured& m, const Choices& choices, Found& found, const Folding& folding,
                           const PlanGate& gate, const Options& o, std::vector<std::string>& not_done) {
  if (!m.result) return;
  const Program& program = folding.program;
  for (size_t i = 0; i < m.cases.size(); i++)
    if (const MeasureRow& row = m.result->rows[i]; !row.ok && row.reason != "not timed")
      not_done.push_back(fmt::format("not used, as measured: {}: {}", row.what, row.reason));
  for (size_t i : m.result->order) {
    const MeasureCase& c = m.cases[i];
    const Choice* choice = c.choice >= 0 ? &choices.best[static_cast<size_t>(c.choice)] : nullptr;
    Instance instance;
    Verdict support;
    if (choice && choice != d.choice) {
      instance = verify_instance(found.candidates[choice->candidate].structure, choice->numbers, program, found.witnesses,
                                 verification_seed(program, o));
      if (!instance.refusal.empty()) {
        not_done.push_back(fmt::format("measured fastest and not used: {}: {}", c.what, instance.refusal));
        continue;
      }
      support = support_of(folding, choice->graph, verification_seed(program, o));
      const bool near_ones = std::any_of(m.result->order.begin(), m.result->order.end(), [&](size_t k) {
        return k != i && m.result->rows[k].final_us >= m.result->rows[i].final_us &&
               m.result->rows[k].final_us <= kSettledMayCost * m.result->rows[i].final_us;
      });
      if (support.kind == Verdict::Kind::kDifferent || (support.kind != Verdict::Kind::kEqual && near_ones)) {
        not_done.push_back(fmt::format("measured fastest and not used: {}: {}", c.what, to_string(support)));
        continue;
      }
    }
    if (const GateResult g = gate(c.plan, d); g.kind == GateResult::Kind::kFailed) {
      not_done.push_back(fmt::format("measured fastest and not used: {}: {}", c.what, g.text));
      continue;
    }
    if (choice && choice != d.choice) {
      d.claims = std::move(instance.claims);
      d.support = std::move(support);
    } else if (c.choice == kStraightforward) {
      d.claims.clear();
      d.support = {};
    }
    d.choice = choice;
    if (c.choice != kPieces && d.partition) d.partition->result.reset();
    d.tuned = c.plan;
    d.is_divided = true;
    d.why = fmt::format("{} kernel{}, {:.2f} us measured, the best of {} plans ({})", c.plan.kernels.size(),
                        c.plan.kernels.size() == 1 ? "" : "s", m.result->rows[i].final_us,
                        std::count_if(m.result->rows.begin(), m.result->rows.end(), [](const MeasureRow& r) { return r.ok; }), c.what);
    return;
  }
}

void use_pieces(Decision& d, Stitched stitched, const Plan& straightforward, const PlanGate& gate, std::vector<std::string>& not_done) {
  if (d.partition) d.partition->result.reset();
  if (!stitched.is_given && !surely_faster(stitched.plan, d.plan(straightforward), "a cut into pieces", not_done)) return;
  // of one kernel's time: several generic block kernels are off one by one (a GRU cell in float32: 19.1 us predicted, 25.6 measured; one
  // kernel 25.1 and 20.8)
  constexpr double kSeveralGeneric = 0.7;
  if (!stitched.is_given && d.choice && d.choice->plan.kernels.size() == 1 && 2 * generic_us(stitched.plan) > stitched.plan.predicted_us &&
      stitched.plan.predicted_us > kSeveralGeneric * d.choice->plan.predicted_us) {
    not_done.push_back(
        fmt::format("a cut into pieces was not used: {:.2f} us predicted instead of {:.2f} in one kernel, which is within what the model "
                    "is off by for several generic block kernels",
                    stitched.plan.predicted_us, d.choice->plan.predicted_us));
    return;
  }
  if (stitched.support.kind == Verdict::Kind::kDifferent) {
    not_done.push_back("the pieces were not used: " + to_string(stitched.support));
    return;
  }
  const bool own_is_settled = !d.choice || d.support.kind == Verdict::Kind::kEqual;
  if (stitched.support.kind != Verdict::Kind::kEqual && own_is_settled &&
      d.plan(straightforward).predicted_us <= kSettledMayCost * stitched.plan.predicted_us) {
    not_done.push_back("the pieces were not used: " + to_string(stitched.support) + "; what is as fast within 3 % is settled");
    return;
  }
  if (const GateResult g = gate(stitched.plan, d); g.kind == GateResult::Kind::kFailed) {
    not_done.push_back("the pieces were not used: " + g.text);
    return;
  }
  if (!d.partition) d.partition.emplace();
  d.choice = nullptr;
  d.claims = stitched.claims;
  d.support = stitched.support;
  d.is_divided = stitched.is_given;
  d.why = fmt::format("{} kernel{} instead of {}: {:.2f} us predicted, {:.2f} us straightforward (cut into pieces, {} of them searched)",
                      stitched.plan.kernels.size(), stitched.plan.kernels.size() == 1 ? "" : "s", straightforward.kernels.size(),
                      stitched.plan.predicted_us, straightforward.predicted_us, stitched.pieces.size());
  d.partition->result = std::move(stitched);
}

/// What the kernel's bytes and products take, launch included.
static double floor_of(const KernelPlan& k, const Target& target) {
  return target.launch_us + std::max(static_cast<double>(k.bytes) / target.dram_bytes_per_us, k.flops / target.tensor_flops_per_us);
}
constexpr double kFarFromFloor = 2, kFarFromFloorUs = 4;   // one kernel that takes longer may be slower than several

void try_pieces(Decision& d, const Folding& folding, const Target& target, const Plan& straightforward, const PlanGate& gate,
                const Options& o, Checkpoint* checkpoint, std::vector<std::string>& not_done, Trace& trace, const Listener& listener,
                const SearchReport& whole, SearchMemory* memory) {
  // rows that a product prepares again for each of its columns may be better made once
  const bool is_one = d.choice && d.choice->plan.kernels.size() == 1 &&
                      !(strategy_of(d.choice->plan.kernels[0]).repeats_rows && straightforward.kernels.size() > 1);
  const double floor = is_one ? floor_of(d.choice->plan.kernels[0], target) : 0;
  if ((is_one && d.choice->plan.predicted_us <= std::max(kFarFromFloor * floor, floor + kFarFromFloorUs)) || o.states == 0 ||
      is_interrupted(listener))
    return;
  const Program& program = folding.program;
  SearchOptions search = search_options(o, listener);
  if (o.budget > 0) {
    search.max_seconds = o.budget - whole.seconds;
    if (search.max_seconds <= 0.05 * o.budget) {
      not_done.push_back("not cut into pieces: the search of the whole had the time that --budget gives");
      return;
    }
  }
  if (checkpoint) checkpoint->connect(search);
  Partitioned given_up;
  given_up.refusal = kMemoryEnded;
  given_up.not_done.push_back(std::string("the program was not cut into pieces: ") + kMemoryEnded);
  d.partition = unless_memory_ends(
      [&] {
        return partition_program(
            program, target, d.plan(straightforward), search, verification_seed(program, o), trace,
            [&](const std::string& s) { tell(listener.live, s); }, !whole.stop_reason.starts_with(kInPieces), memory);
      },
      std::move(given_up));
  const Partitioned& p = *d.partition;
  not_done.insert(not_done.end(), p.not_done.begin(), p.not_done.end());
  if (!d.choice && whole.stop_reason.starts_with(kInPieces))
    d.why += p.refusal.empty() ? fmt::format("; {} distinct pieces around it: {} verified graphs", p.distinct, p.search.verified)
                               : "; " + p.refusal;
  if (!p.refusal.empty()) return;
  tell(listener.progress, fmt::format("partition: {} cut points, {} possible pieces, {} distinct: {} states, {} verified", p.units, p.cuts,
                                      p.distinct, p.search.states, p.search.verified));
  if (!p.result) return;
  Stitched stitched = *p.result;
  stitched.support = support_of_pieces(folding, stitched.pieces, stitched.graph, verification_seed(program, o));
  use_pieces(d, std::move(stitched), straightforward, gate, not_done);
}

}  // namespace mirage

// Reports as JSON, and the search funnel as a table. Stands at the end of the flow; keys are only ever added within a schema version.
#include "driver/report/report.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/evidence/numbers_json.h"
#include "mirage/plan/strategy.h"
#include "mirage/plan/describe.h"
#include "mirage/spec/json_text.h"
#include "mirage/support/hash.h"

#ifndef MIRAGE_VERSION
#define MIRAGE_VERSION "0.1.0"
#endif

namespace mirage {

namespace {

using Json = nlohmann::ordered_json;

/// Three decimals: what a cost model can mean, and short in the file.
double rounded(double x) { return std::round(x * 1000) / 1000; }

Json search_json(const SearchReport& s) {
  Json gates = Json::array();
  for (size_t g = 0; g < s.gates.size(); g++) {
    Json row = {{"gate", gate_name(static_cast<Gate>(g))}, {"meaning", gate_help(static_cast<Gate>(g))}, {"closed", s.gates[g].closed}};
    if (!s.gates[g].first_example.empty()) row["first_example"] = s.gates[g].first_example;
    gates.push_back(row);
  }
  return {{"states", s.states}, {"gates", gates}, {"candidates", s.candidates}, {"verified", s.verified}, {"rejected", s.rejected},
          {"unknown", s.unknown},
          {"complete", s.complete}, {"stop_reason", s.stop_reason}, {"max_block_ops_used", s.max_block_ops_used},
          {"peak_bytes", s.peak_bytes}};
}

Json claim_json(const Claim& c) {
  const Evidence& e = c.verdict.evidence;
  Json out = {{"variant", c.variant == 0 ? "even" : "ragged"}, {"numbers", numbers_json(c.numbers)}, {"p", fmt::format("{:#x}", e.p)},
              {"q", fmt::format("{:#x}", e.q)}, {"trials", e.trials},
              {"degree", e.degree}, {"is_lax", e.is_lax}};
  if (e.log2_bound != 0) out["log2_bound"] = rounded(e.log2_bound);
  out["bound_reason"] = e.bound_reason;
  out["uninterpreted"] = e.uninterpreted;
  Json cases = Json::array();
  for (const NumericCase& n : c.numerics.cases)
    cases.push_back({{"distribution", n.distribution}, {"relative_error", fmt::format("{:.3e}", n.error)},
                     {"node_by_node", fmt::format("{:.3e}", n.baseline_error)}, {"nan_agree", n.nan_agree},
                     {"node_by_node_overflows", n.overflows}});
  out["numerics"] = cases;
  return out;
}

/// What device memory, or the units that compute, take at least: bytes and operations of the kernel at the machine's full rates.
double roofline_us(const KernelPlan& k, const Target& t) {
  const double rate = on_float_units(k) ? t.f32_flops_per_us : t.tensor_flops_per_us;
  return std::max(static_cast<double>(k.bytes) / t.dram_bytes_per_us, k.flops / rate);
}

/// The same of the whole program: its inputs read once, its outputs written once, what the result computes.
double roofline_us(const ReportData& d) {
  double bytes = 0, us = 0;
  for (const auto* side : {&d.program.inputs, &d.program.outputs})
    for (const TensorInfo& t : *side) bytes += static_cast<double>(t.type.dims.elements() * dtype_bytes(t.type.dtype));
  for (const KernelPlan& k : d.plan.kernels)
    us += k.flops / (on_float_units(k) ? d.target.f32_flops_per_us : d.target.tensor_flops_per_us);
  return std::max(bytes / d.target.dram_bytes_per_us, us);
}

Json timeline_json(const KernelPlan& k) {
  const Timeline t = strategy_of(k).timeline(k);
  Json steps = Json::array(), shared = Json::array();
  for (const TimelineStep& s : t.steps) steps.push_back({{"phase", s.phase}, {"text", s.text}});
  for (const SharedLife& s : t.shared)
    shared.push_back({{"what", s.what}, {"offset", s.offset}, {"bytes", s.bytes}, {"first", s.first}, {"last", s.last}});
  return {{"steps", steps}, {"shared", shared}};
}

const char* kind_of(const KernelPlan& k) {
  const Strategy& s = strategy_of(k);
  return s.is_on ? "pre-defined" : s.match ? "graph-defined" : "region";
}

Json kernels_json(const ReportData& d) {
  Json out = Json::array();
  for (size_t i = 0; i < d.plan.kernels.size(); i++) {
    const KernelPlan& k = d.plan.kernels[i];
    Json row = {{"name", k.name}, {"kind", kind_of(k)}, {"strategy", strategy_of(k).name},
                {"predicted_us", rounded(k.predicted_us)},
                {"bytes", k.bytes}, {"flops", k.flops}, {"units", on_float_units(k) ? "float32" : "tensor"},
                {"roofline_us", rounded(roofline_us(k, d.target))}, {"why", k.why}};
    if (i < d.module.kernels.size() && d.module.kernels[i].cublas) {
      row["library"] = "cuBLASLt";
    } else if (i < d.module.kernels.size()) {
      const KernelText& t = d.module.kernels[i];
      row["grid"] = t.grid;
      row["threads"] = t.threads;
      row["shared_bytes"] = t.smem_bytes;
    }
    const std::string& function = i < d.module.kernels.size() ? d.module.kernels[i].name : k.name;
    if (function != k.name) row["function"] = function;   // equal kernels are one
    if (auto fact = d.facts.find(function); fact != d.facts.end()) {
      row["registers"] = fact->second.registers;
      row["spill_bytes"] = fact->second.spill_bytes;
    }
    row["schedule"] = schedule::schedule_text(k, d.target);
    for (const Refusal& r : k.others) {
      Json other = {{"strategy", r.strategy}};
      if (r.us > 0) other["predicted_us"] = rounded(r.us);
      else other["reason"] = r.reason;
      row["other_strategies"].push_back(other);
    }
    row["timeline"] = timeline_json(k);
    out.push_back(row);
  }
  return out;
}

/// Why a plan of that predicted time was not what is emitted.
std::string lost_by(const ReportData& d, double us) {
  const double best = d.plan.predicted_us;
  if (us > best) return fmt::format("slower: {:.2f} us predicted, {:.3g} times the result's {:.2f}", us, us / best, best);
  if (d.measurement) return fmt::format("{:.2f} us predicted; measured slower than what was chosen, or not right", us);
  return fmt::format("{:.2f} us predicted, within what the result's better support may cost (3 %), or within what the model is off by", us);
}

Json steps_json(const std::vector<AlgebraStep>& steps) {
  Json out = Json::array();
  for (size_t i = 0; i < steps.size(); i++) {
    out.push_back({{"what", steps[i].what}, {"kernels", steps[i].kernels}, {"bytes", steps[i].bytes}, {"flops", steps[i].flops}});
    if (const std::string saved = i ? saved_by(steps[i - 1], steps[i]) : ""; !saved.empty()) out.back()["saves"] = saved;
  }
  return out;
}

Json alternatives_json(const ReportData& d) {
  Json out = Json::array();
  const bool is_own = !d.chosen && !(d.partition && d.partition->result);
  out.push_back({{"what", "straightforward"}, {"kernels", d.straightforward_kernels}, {"predicted_us", rounded(d.straightforward_us)}});
  if (!is_own) out.back()["lost"] = lost_by(d, d.straightforward_us);
  out.back()["chosen"] = is_own;
  for (size_t i = 0; i < d.choices.alternatives.size(); i++) {
    const Alternative& a = d.choices.alternatives[i];
    Json row = {{"what", "searched"}, {"rank", a.rank}, {"kernels", a.kernels}};
    if (a.predicted_us) row["predicted_us"] = rounded(*a.predicted_us);
    if (!a.numbers.empty()) row["numbers"] = numbers_json(a.numbers);
    row["plans"] = a.plans;
    if (!a.reason.empty()) row["reason"] = a.reason;
    for (const auto& [refusal, plans] : a.refusals)
      row["refusals"].push_back({{"strategy", refusal.first}, {"reason", refusal.second}, {"plans", plans}});
    const bool is_chosen = d.chosen && d.chosen->candidate == i;
    if (const auto at = d.refused.find(i); at != d.refused.end()) row["lost"] = at->second;
    else if (!is_chosen && !a.predicted_us) row["lost"] = a.reason;
    else if (!is_chosen) row["lost"] = lost_by(d, *a.predicted_us);
    row["chosen"] = is_chosen;
    out.push_back(row);
  }
  return out;
}

Json diagnostics_json(const Diagnostics& all) {
  Json out = Json::array();
  for (const Diagnostic& d : all)
    out.push_back({{"code", code_name(d.code)}, {"line", d.where.line}, {"column", d.where.col}, {"text", d.text}});
  return out;
}

Json measurement_json(const Measurement& m) {
  Json rows = Json::array();
  for (const MeasureRow& r : m.rows) {
    Json row = {{"what", r.what}, {"predicted_us", rounded(r.predicted_us)}, {"ok", r.ok}};
    if (!r.reason.empty()) row["reason"] = r.reason;
    if (r.first_us > 0) row["first_us"] = rounded(r.first_us);
    if (r.final_us > 0) row["final_us"] = rounded(r.final_us);
    row["cold_samples_us"] = r.cold;
    row["warm_samples_us"] = r.warm;
    rows.push_back(row);
  }
  return {{"cases", rows}, {"order", m.order}, {"stopped", m.stopped}, {"seconds", rounded(m.seconds)}};
}

Json partition_json(const Partitioned& p) {
  Json out = {{"used", p.result.has_value()}};
  if (!p.refusal.empty()) out["refusal"] = p.refusal;
  out["cut_points"] = p.units;
  out["possible_pieces"] = p.cuts;
  out["distinct_pieces"] = p.distinct;
  Json pieces = Json::array();
  for (const PieceOutcome& o : p.chosen)
    pieces.push_back({{"operators", o.text}, {"kernels", o.kernels}, {"straightforward_us", rounded(o.straightforward_us)},
                      {"predicted_us", rounded(o.predicted_us)}, {"searched", o.searched},
                      {"states", o.states}, {"found_after", o.found_after}, {"verified", o.verified}});
  out["pieces"] = pieces;
  out["notes"] = p.notes;
  out["search"] = search_json(p.search);
  return out;
}

/// What supports the result, as sentences: the proof, the bounds of random testing, what the kernels passed.
Json support_json(const ReportData& d) {
  Json out = Json::array();
  const bool own = !d.chosen && !(d.partition && d.partition->result);
  if (own) out.push_back("the graph is the program's own: nothing to prove");
  else if (const Proof& p = d.support.evidence.proof; p.proved)
    out.push_back(fmt::format("proved equal to the program at the sizes of the spec: {}, {} terms{}", p.method, p.size,
                              p.conditions.empty() ? "" : fmt::format(", where {}", fmt::join(p.conditions, ", "))));
  else if (d.support.kind == Verdict::Kind::kEqual) out.push_back("not proved; at the sizes of the spec " + to_string(d.support));
  else out.push_back("nothing settles it at the sizes of the spec: " + d.support.reason);
  double worst = -1e9;
  for (const Claim& c : d.claims) worst = std::max(worst, c.verdict.evidence.log2_bound);
  if (!d.claims.empty() && worst < 0)
    out.push_back(
        fmt::format("equal at random points of finite fields in {} variants of its sizes: each would miss a difference with probability at "
                    "most 2^{:.0f}",
                    d.claims.size(), std::ceil(worst)));
  else if (!d.claims.empty())
    out.push_back(fmt::format("equal at random points of finite fields in {} variants of its sizes, without a bound: {}", d.claims.size(),
                              d.claims.front().verdict.evidence.bound_reason));
  for (const std::string& g : d.gates) out.push_back("kernels " + g);
  if (d.gates.empty()) out.push_back("kernels were not run");
  return out;
}

/// What the search found and was chosen; nullptr if that is the straightforward library or pieces, or was found before.
const Candidate* winner(const ReportData& d) { return d.chosen && d.search.states > 0 ? &d.candidates[d.chosen->candidate] : nullptr; }

}  // namespace

std::string spec_id(const Program& p) { return fmt::format("{:016x}", hash_text(p.canonical)); }

std::string numbers_text(const std::vector<CallNumbers>& numbers) {
  std::string out;
  for (const CallNumbers& n : numbers) {
    std::string tiles;
    for (int64_t t : n.grid_tile)
      if (t > 0) tiles += (tiles.empty() ? "" : "x") + std::to_string(t);
    out += (out.empty() ? "" : "; ") + fmt::format("grid tiles {}", tiles.empty() ? "none" : tiles) +
           (n.loop_tile > 0 ? fmt::format(", loop tile {}", n.loop_tile) : "");
  }
  return out;
}

std::string report_json(const ReportData& d, const Trace* trace, const std::string& measured) {
  Json out = {{"schema_version", kReportVersion}, {"tool", "mirage-opt"}, {"version", MIRAGE_VERSION}, {"name", d.program.name},
              {"spec_id", spec_id(d.program)},
              {"target", d.target.name}, {"machine", d.target.machine}, {"options", result_options_line(d.options)}, {"exit_code", 0}};
  out["result"] = {{"kind", d.chosen                             ? "searched"
                            : d.partition && d.partition->result ? "partitioned"
                                                                 : "straightforward"},
                   {"why", d.why}, {"predicted_us", rounded(d.plan.predicted_us)}, {"straightforward_us", rounded(d.straightforward_us)},
                   {"roofline_us", rounded(roofline_us(d))},
                   {"numbers", d.chosen ? numbers_json(d.chosen->numbers) : Json::array()}, {"workspace_bytes", d.plan.workspace_bytes},
                   {"kernels", kernels_json(d)}};
  if (const Plan* apart = d.without_passes)
    out["result"]["without_passes"] = {{"kernels", apart->kernels.size()}, {"predicted_us", rounded(apart->predicted_us)}};
  out["roofline"] = {{"dram_bytes_per_us", d.target.dram_bytes_per_us}, {"tensor_flops_per_us", d.target.tensor_flops_per_us},
                     {"f32_flops_per_us", d.target.f32_flops_per_us}};
  out["search"] = search_json(d.search);
  if (const Candidate* w = winner(d)) {
    out["search"]["effort"] = d.search.effort;
    out["search"]["winner"] = {{"rank", w->structure.rank}, {"states", w->structure.states}, {"effort", w->structure.effort}};
    if (trace) out["search"]["winner"]["seconds"] = rounded(w->seconds), out["search"]["seconds"] = rounded(d.search.seconds);
  }
  Json claims = Json::array();
  for (const Claim& c : d.claims) claims.push_back(claim_json(c));
  out["evidence"] = claims;
  out["supported_by"] = support_json(d);
  if (!d.chosen && !(d.partition && d.partition->result)) out["proof"] = {{"proved", true}, {"method", "the graph is the program's own"}};
  else if (const Proof& p = d.support.evidence.proof; p.proved)
    out["proof"] = {{"proved", true}, {"method", p.method}, {"conditions", p.conditions}, {"terms", p.size}};
  else if (d.support.kind == Verdict::Kind::kEqual) out["proof"] = {{"proved", false}, {"trials_at_this_size", d.support.evidence.trials}};
  else out["proof"] = {{"proved", false}, {"reason", d.support.reason}};
  if (!d.steps.empty()) out["steps"] = steps_json(d.steps);
  out["alternatives"] = alternatives_json(d);
  if (d.partition) out["partition"] = partition_json(*d.partition);
  if (d.remembered) put_remembered(out, *d.remembered);
  if (d.measurement) out["measurement"] = measurement_json(*d.measurement);
  out["not_done"] = d.not_done;
  out["warnings"] = diagnostics_json(d.warnings);
  if (trace) {
    Json times = Json::object();
    for (const std::string& s : stage_names()) times[s] = rounded(trace->seconds(s));
    out["seconds"] = times;
  }
  if (!measured.empty()) {
    JsonLimits limits;
    limits.depth /= 2;   // a report that holds it is within the limits, too
    auto m = read_json_text(measured, "", DiagCode::kDeviceCheck, limits);
    out["measured"] = m ? std::move(*m) : Json(measured);
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string explain_search(const SearchReport& s) {
  std::string out = fmt::format("{} states, {} candidates: {} verified, {} rejected, {} unknown; ended: {}\n", s.states, s.candidates,
                                s.verified, s.rejected, s.unknown, s.stop_reason);
  for (size_t g = 0; g < s.gates.size(); g++) {
    if (s.gates[g].closed == 0) continue;
    out += fmt::format("{:>12}  {:<12} {}\n", s.gates[g].closed, gate_name(static_cast<Gate>(g)), gate_help(static_cast<Gate>(g)));
    std::string example = s.gates[g].first_example;
    while (!example.empty() && example.back() == '\n') example.pop_back();
    for (size_t at = 0; (at = example.find('\n', at)) != std::string::npos; at += 28) example.replace(at, 1, "\n" + std::string(27, ' '));
    if (!example.empty()) out += fmt::format("{:>12}  {:<12} first: {}\n", "", "", example);
  }
  return out;
}

std::string explain_winner(const ReportData& d) {
  const Candidate* w = winner(d);
  return w ? fmt::format("the winner's structure after {} of {} states ({} of {} units of effort)\n", w->structure.states, d.search.states,
                         w->structure.effort, d.search.effort)
           : "";
}

std::string explain_support(const ReportData& d) {
  std::string out;
  for (const Json& line : support_json(d)) out += "supported by: " + line.get<std::string>() + "\n";
  return out;
}

std::string explain_partition(const Partitioned& p) {
  if (!p.refusal.empty()) return "not cut into pieces: " + p.refusal + "\n";
  std::string out =
      fmt::format("pieces: {} cut points, {} possible pieces, {} distinct, {} states, {} verified{}\n", p.units, p.cuts, p.distinct,
                  p.search.states, p.search.verified, p.result ? "" : "; not used: no cut is predicted to be faster and holds");
  for (const PieceOutcome& o : p.chosen)
    out += fmt::format("{:>10.2f} us instead of {:.2f} us, {} kernel{}{}: {}\n", o.predicted_us, o.straightforward_us, o.kernels,
                       o.kernels == 1 ? "" : "s", o.searched ? fmt::format(", found after {} of {} states", o.found_after, o.states) : "",
                       o.text);
  for (const std::string& note : p.notes) out += "  " + note + "\n";
  return out;
}

std::string alternatives_list(const std::string& name, const std::vector<std::pair<std::string, double>>& rows) {
  Json out = Json::array();
  for (const auto& [what, us] : rows)
    out.push_back({{"file", fmt::format("{}.alternative-{:02}.cu", name, out.size())}, {"what", what}, {"predicted_us", rounded(us)}});
  return Json{{"tool", "mirage-opt"}, {"name", name}, {"alternatives", out}}.dump(1) + "\n";
}

std::string failure_report(const std::string& name, ExitCode exit, const Diagnostics& all) {
  Json out = {{"schema_version", kReportVersion},    {"tool", "mirage-opt"},           {"version", MIRAGE_VERSION}, {"name", name},
              {"exit_code", static_cast<int>(exit)}, {"errors", diagnostics_json(all)}};
  for (size_t i = 0; i < all.size(); i++)   // a spec that cannot be read has no name: only its file says which one of many it is
    if (!all[i].where.file.empty()) out["errors"][i]["file"] = all[i].where.file;
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace mirage

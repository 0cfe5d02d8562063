// Builds and times the best plans on the device, and keeps the fastest that is right (driver/measure/measure.h). Every case runs in a
// process of its own: one that hangs or corrupts the context of the GPU costs its time and nothing else.
#include "driver/measure/measure.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/measure/device_turn.h"
#include "driver/report/report.h"
#include "mirage/plan/alternatives.h"
#include "mirage/spec/json_text.h"
#include "mirage/support/file.h"
#include "mirage/support/warden.h"
#include "mirage/support/worker_pool.h"

namespace mirage {

namespace {

namespace fs = std::filesystem;

constexpr size_t kStructures = 4;        // of the search, whose plans are divided anew
constexpr double kHopeless = 1.6;        // predicted above this times the best: not timed, unless fewer than kLeast cases are left
constexpr size_t kLeast = 8;

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

std::string plan_text(const Plan& plan) {
  std::string out;
  for (const KernelPlan& k : plan.kernels) out += (out.empty() ? "" : " | ") + division_text(k);
  return out;
}

/// The plans of one graph: as it is, and with each kernel divided in its other ways.
void add_plans(std::vector<MeasureCase>& cases, const std::string& what, int choice, const Plan& plan, const Target& target,
               const ContractRule& rule, size_t most) {
  cases.push_back({what + plan_text(plan), choice, plan});
  const size_t each = std::max<size_t>(2, most / std::max<size_t>(1, plan.kernels.size()));
  for (size_t k = 0; k < plan.kernels.size(); k++) {
    const std::string own = division_text(plan.kernels[k]);
    for (const KernelPlan& other : kernel_alternatives(plan.kernels[k], target, rule, each + 1)) {
      if (division_text(other) == own) continue;
      Plan p = with_kernel(plan, k, other);
      std::string text = what + plan_text(p);
      cases.push_back({std::move(text), choice, std::move(p)});
    }
  }
}

/// A folder per case.
class Folder : public TemporaryFolder {
 public:
  std::string of(size_t i) const { return path() + "/" + std::to_string(i); }
};

std::string first_note(const Diagnostics& errors) {
  if (errors.empty()) return "";
  return errors[0].notes.empty() ? errors[0].text : errors[0].text + ": " + errors[0].notes[0].text;
}

/// Times as the check program printed them; none if one of them is no positive number.
std::vector<double> samples(const nlohmann::ordered_json& j, const char* key) {
  std::vector<double> out;
  const auto at = j.find(key);
  if (at == j.end() || !at->is_array()) return out;
  for (const nlohmann::ordered_json& x : *at) {
    if (!x.is_number() || !(x.get<double>() > 0)) return {};
    out.push_back(x.get<double>());
  }
  return out;
}

/// The straightforward plan, which is always timed: nothing slower than it may win.
size_t straightforward_case(const std::vector<MeasureCase>& cases) {
  for (size_t i = 0; i < cases.size(); i++) if (cases[i].choice == kStraightforward) return i;
  return cases.size();
}

Samples look_of(const ProcessResult& r) {
  if (!r.started) return {false, r.output, {}, {}};
  if (r.timed_out) return {false, "it did not end in time", {}, {}};
  if (r.signal) return {false, fmt::format("it ended by signal {}", r.signal), {}, {}};
  const size_t at = r.output.find('{');
  const auto read = at == std::string::npos ? Result<nlohmann::ordered_json>(nlohmann::ordered_json())
                                            : read_json_text(std::string_view(r.output).substr(at), "", DiagCode::kDeviceCheck);
  const nlohmann::ordered_json j = read ? *read : nlohmann::ordered_json();
  if (!r.ok() || !j.is_object() || !(j.contains("ok") && j["ok"] == true))
    return {false,
            j.is_object() && j.contains("rel_err")
                ? fmt::format("its result is wrong: relative error {}, same bits twice: {}, nothing else written: {}", j["rel_err"].dump(),
                              j.contains("bits_equal") && j["bits_equal"] == true, j.contains("canaries_ok") && j["canaries_ok"] == true)
                : fmt::format("exit code {}: {}", r.exit_code, r.output.substr(0, 200)),
            {}, {}};
  Samples look{true, "", samples(j, "cold_samples_us"), samples(j, "warm_samples_us")};
  // no time is not a short one
  if (look.cold.empty() || look.warm.empty()) return {false, "it was not timed: " + r.output.substr(0, 200), {}, {}};
  return look;
}

}  // namespace

std::vector<MeasureCase> measure_cases(const Choices& choices, const Plan& straightforward, const Plan* pieces, const Program& program,
                                       const Target& target, size_t most) {
  const ContractRule rule = contract_rule(program);
  std::vector<MeasureCase> cases;
  const double best =
      choices.best.empty() ? straightforward.predicted_us : std::min(straightforward.predicted_us, choices.best[0].plan.predicted_us);
  size_t taken = 0;
  for (size_t i = 0; i < choices.best.size() && taken < kStructures; i++) {
    const Choice& c = choices.best[i];
    if (c.plan.predicted_us > kHopeless * best) break;
    add_plans(cases, fmt::format("structure {}, {}: ", choices.alternatives[c.candidate].rank, numbers_text(c.numbers)),
              static_cast<int>(i), c.plan, target, rule, taken == 0 ? most : most / 3);
    taken++;
  }
  if (pieces) add_plans(cases, "pieces: ", kPieces, *pieces, target, rule, most);
  // Where nothing that was found beats the straightforward plan, its divisions are what there is to try.
  const bool alone = straightforward.predicted_us <= best && !pieces;
  add_plans(cases, "straightforward: ", kStraightforward, straightforward, target, rule, alone ? most : most / 4);
  std::stable_sort(cases.begin(), cases.end(),
                   [](const MeasureCase& a, const MeasureCase& b) { return a.plan.predicted_us < b.plan.predicted_us; });
  // Equal plans under two structures' names are one: stream and attention ignore the tiles.
  std::vector<MeasureCase> kept;
  std::vector<std::string> texts;
  bool has_straightforward = false;
  for (MeasureCase& c : cases) {
    const bool own = c.choice == kStraightforward && !has_straightforward;
    const std::string text = fmt::format("{} {:.4f}", plan_text(c.plan), c.plan.predicted_us);
    const bool seen = std::find(texts.begin(), texts.end(), text) != texts.end();
    const size_t places = kept.size() + (has_straightforward ? 0 : 1);   // one is the straightforward plan's
    if (!own && (seen || places >= most || (places >= kLeast && c.plan.predicted_us > kHopeless * best))) continue;
    has_straightforward |= own;
    texts.push_back(text);
    kept.push_back(std::move(c));
  }
  return kept;
}

Measurement run_measurement(const std::vector<MeasureCase>& cases, bool warm, const MeasureLimits& limits,
                            const std::function<Samples(size_t, int)>& look, const std::function<double()>& seconds) {
  Measurement m;
  for (const MeasureCase& c : cases) m.rows.push_back({c.what, c.plan.predicted_us, false, "not timed", {}, {}, 0, 0});
  const auto take = [&](size_t i, int round) {
    MeasureRow& row = m.rows[i];
    const Samples l = look(i, round);
    row.ok = l.ok;
    row.reason = l.reason;
    row.cold.insert(row.cold.end(), l.cold.begin(), l.cold.end());
    row.warm.insert(row.warm.end(), l.warm.begin(), l.warm.end());
    return median(warm ? l.warm : l.cold);
  };
  double best = 0;
  size_t slower = 0, done = 0;
  const size_t always = straightforward_case(cases);
  for (size_t i = 0; i < cases.size(); i++) {
    if (i != always && slower >= limits.patience && done >= 8) {
      if (m.stopped.empty()) m.stopped = fmt::format("{} cases in a row were slower than the best", slower);
      continue;
    }
    if (i != always && seconds() > 0.6 * limits.seconds) {
      m.stopped = "time";
      continue;
    }
    const double us = take(i, 0);
    done++;
    if (!m.rows[i].ok) continue;
    m.rows[i].first_us = us;
    slower = best > 0 && us > limits.slower * best ? slower + 1 : 0;
    if (best == 0 || us < best) best = us;
  }
  // The fastest at the first look are timed again; where all of them turn out wrong, those behind them.
  while (m.order.empty()) {
    std::vector<size_t> finalists;
    for (size_t i = 0; i < cases.size(); i++)
      if (m.rows[i].ok && m.rows[i].first_us > 0) finalists.push_back(i);
    if (finalists.empty()) break;
    std::stable_sort(finalists.begin(), finalists.end(), [&](size_t a, size_t b) { return m.rows[a].first_us < m.rows[b].first_us; });
    const double near = limits.finalist * m.rows[finalists[0]].first_us;
    while (finalists.size() > limits.finalists || m.rows[finalists.back()].first_us > near) finalists.pop_back();
    std::vector<std::vector<double>> rounds(cases.size());
    for (int round = 1; round <= limits.rounds; round++)   // in turn: clocks and temperature touch all alike
      for (size_t i : finalists)
        if (m.rows[i].ok && (round == 1 || seconds() < limits.seconds)) rounds[i].push_back(take(i, round));
    for (size_t i : finalists)
      if (m.rows[i].ok) {
        m.rows[i].final_us = median(rounds[i]);
        m.order.push_back(i);
      }
    std::stable_sort(m.order.begin(), m.order.end(), [&](size_t a, size_t b) { return m.rows[a].final_us < m.rows[b].final_us; });
  }
  m.seconds = seconds();
  return m;
}

Measurement measure_cases_on_device(const std::vector<MeasureCase>& cases, const MeasureJob& job, const Toolchain& tools,
                                    const MeasureLimits& limits) {
  const auto begin = std::chrono::steady_clock::now();
  double waited = 0;   // for other runs' turns at the GPU: not this one's time
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() - waited; };
  const Folder folder;
  std::vector<std::string> built(cases.size(), "not built: time");
  ProcessLimits process;
  process.interrupted = job.interrupted;
  process.timeout_s = limits.build_seconds;
  const auto build = [&](size_t i) {
    if (seconds() > 0.5 * limits.seconds && i != straightforward_case(cases)) return;
    const CudaModule module = emit_module(job.program, cases[i].plan, job.target, job.module);
    std::error_code error;
    fs::create_directory(folder.of(i), error);
    for (const char* suffix : {".cu", ".map", ".h", "_check.cu"})
      if (auto bad = write_file(folder.of(i) + "/" + module.name + suffix, module.files.at(module.name + suffix)); !bad.empty()) {
        built[i] = bad[0].text;
        return;
      }
    const Result<Compiled> c = build_library(tools, module.name, job.target, folder.of(i), process);
    built[i] = c ? "" : first_note(c.errors());
  };
  if (folder.path().empty() || cases.empty()) {
    Measurement none;
    none.stopped = cases.empty() ? "there is nothing to time" : "there is no folder for temporary files";
    return none;
  }
  const std::string name = emit_module(job.program, cases[0].plan, job.target, job.module).name;
  // The check program knows the program and not the plan: one for all, each beside its library.
  std::string no_check;
  parallel_for(job.threads, static_cast<int64_t>(cases.size()), [&](int64_t i) { build(static_cast<size_t>(i)); });
  for (size_t i = 0; i < cases.size(); i++)
    if (built[i].empty()) {
      const Result<Compiled> c = build_check(tools, name, job.target, folder.of(i), process);
      if (!c) no_check = first_note(c.errors());
      for (size_t k = 0; k < cases.size(); k++)
        if (std::error_code error; k != i && built[k].empty() && c)
          fs::copy_file(folder.of(i) + "/" + name + "_check", folder.of(k) + "/" + name + "_check", error);
      break;
    }
  const auto look = [&](size_t i, int round) -> Samples {
    if (!built[i].empty()) return {false, "it was not built: " + built[i], {}, {}};
    if (!no_check.empty()) return {false, no_check, {}, {}};
    std::vector<std::string> argv = {"./" + name + "_check", "--json", "--seed", std::to_string(1 + round)};
    if (round == 0) argv.push_back("--quick");
    const DeviceTurn turn(4 * limits.run_seconds, job.interrupted);
    waited += turn.waited_s();
    // the whole stays within a known time, whatever hangs
    process.timeout_s = std::min(limits.run_seconds, std::max(0.05 * limits.seconds, 1.5 * limits.seconds - seconds()));
    return look_of(run_process(argv, folder.of(i), process));
  };
  return run_measurement(cases, job.warm, limits, look, seconds);
}

}  // namespace mirage

// See the header.
#include "driver/schedule_mode.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "driver/decide/decide.h"
#include "driver/emulation/emulation.h"
#include "driver/gate/gate.h"
#include "driver/report/report.h"
#include "mirage/codegen/module.h"
#include "mirage/ir/rewrite.h"
#include "mirage/plan/alternatives.h"
#include "mirage/plan/bound.h"
#include "mirage/plan/strategy.h"
#include "mirage/plan/describe.h"
#include "mirage/support/worker_pool.h"
#include "mirage/verify/verify.h"

#ifndef MIRAGE_VERSION
#define MIRAGE_VERSION "0.1.0"
#endif

namespace mirage {
namespace {

struct Stopped { Diagnostic d; };   // thrown within this file

constexpr const char* kOwnTensors = "a schedule alone has tensors of its own";

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// Where a schedule says something: its line `text`, or where a name that stands in a sentence is defined; else the file as a whole.
SourceLocation place_of(const Source& s, const std::string& line, const std::string& sentence) {
  const auto at = [&](size_t from, size_t length) {
    SourceLocation where{s.name, 1, 1, static_cast<int>(std::max<size_t>(1, length))};
    for (size_t i = 0; i < from; i++) s.text[i] == '\n' ? (where.line++, where.col = 1) : where.col++;
    return where;
  };
  if (const size_t from = line.empty() ? std::string::npos : s.text.find(line); from != std::string::npos) return at(from, line.size());
  for (size_t i = 0; i < sentence.size(); i++) {
    if (!is_name(sentence[i])) continue;
    size_t end = i;
    while (end < sentence.size() && is_name(sentence[end])) end++;
    const std::string name = sentence.substr(i, end - i);
    for (const char* begins : {" = ", " += ", " max= "})
      if (const size_t from = s.text.find(" " + name + begins); from != std::string::npos) return at(from + 1, name.size());
    for (const char* before : {"split ", "reduce ", "shared ", "role "})
      if (const size_t from = s.text.find(before + name + " "); from != std::string::npos)
        return at(from, std::string(before).size() + name.size());
    i = end;
  }
  return {s.name, 0, 0, 1};
}

class ScheduleRun {
 public:
  ScheduleRun(const Source& s, const Options& o, const Target& target) : s_(s), o_(o), target_(target) {}

  /// Where it stands among all divisions of its kernel.
  ModeResult why_not() {
    ModeResult r;
    read();
    const schedule::PlanOf own = plan_of(p_, target_);
    if (!own.plan) {
      try {
        refuse(own.reason, own.line, own.has);
      } catch (const Stopped& x) {   // an answer, and no mistake of the user's
        r.text = "closed: " + x.d.text + "\n";
        const SourceLocation& w = x.d.where;
        if (w.line > 0) r.text += fmt::format("at {}:{}:{}{}\n", w.file, w.line, w.col, own.line.empty() ? "" : ": " + own.line);
        for (const Note& n : x.d.notes) r.text += n.text + "\n";
        r.exit = ExitCode::kNothingFound;
        return r;
      }
    }
    const std::vector<KernelPlan> all = kernel_alternatives(*own.plan, target_, own.rule, size_t{1} << 20);
    const std::string text = division_text(*own.plan);
    const auto at = std::find_if(all.begin(), all.end(), [&](const KernelPlan& k) { return division_text(k) == text; });
    r.text = fmt::format("open: {}, {:.2f} us predicted, {}\n", text, own.plan->predicted_us, own.plan->why);
    if (at == all.begin()) r.text += fmt::format("the first of {} divisions of this kernel by predicted time\n", all.size());
    else if (!all.empty())
      r.text += fmt::format("{} of {} divisions of this kernel by predicted time; the first: {}, {:.2f} us predicted, {}\n",
                            at == all.end() ? "none" : fmt::format("number {}", at - all.begin() + 1), all.size(),
                            division_text(all.front()), all.front().predicted_us, all.front().why);
    return r;
  }

  ModeResult run(const std::string& stage) {
    ModeResult r;
    read();
    if (stage == "schedule") {
      if (const auto broken = check_laws(p_, target_)) refuse(*broken);
      r.text = print(p_);
      return r;
    }
    const schedule::PlanOf own = plan_of(p_, target_);
    if (!own.plan) refuse(own.reason, own.line, own.has);
    program();
    prove();
    const Plan plan = planned(own);
    if (stage == "plan") {
      r.text = print(plan);
      return r;
    }
    gate(plan, r);
    const CudaModule module = emit_module(program_, plan, target_, {result_options_line(o_), MIRAGE_VERSION});
    r.text = module.files.at(module.name + ".cu");
    return r;
  }

 private:
  void read() {
    auto p = schedule::parse_schedule(s_.text, s_.name);
    if (!p) throw Stopped{p.errors()[0]};
    p_ = std::move(*p);
  }
  [[noreturn]] void refuse(const std::string& why, const std::string& line = "", const std::string& has = "") const {
    Diagnostic d{Severity::kError, DiagCode::kSchedule, place_of(s_, line, why), why, {}};
    if (!has.empty()) d.notes.push_back({{}, fmt::format("with these numbers it has here: {}", has)});
    throw Stopped{std::move(d)};
  }

  /// Parameter i, whose elements are (index / div) % period along a dimension: that dimension as three, of which the middle one counts.
  ValueId positions(Builder& b, const schedule::Param& x, size_t i) const {
    const int64_t extent = x.dims[x.position], div = x.position_div, period = x.position_period ? x.position_period : extent / div;
    if (div == 1 && period >= extent) return b.add(Iota{x.position, x.dims}, {});
    if (extent % (div * period) != 0 || x.dims.rank() + 2 > kMaxRank)
      refuse(fmt::format("positions of parameter {} whose periods do not end with its dimension", i), fmt::format("param {}", i));
    Dims dims;
    for (int d = 0; d < x.dims.rank(); d++) {
      if (d == x.position) { dims.push_back(extent / (div * period)); dims.push_back(period); dims.push_back(div); }
      else dims.push_back(x.dims[d]);
    }
    return b.add(Reshape{x.dims}, {b.add(Iota{x.position + 1, dims}, {})});
  }

  // ---- what the schedule computes, as a program of its own
  void program() {
    program_.name = p_.name;
    std::vector<ValueId> at_param;
    Builder b(Level::kKernel);
    for (size_t i = 0; i < p_.params.size(); i++) {
      const schedule::Param& x = p_.params[i];
      if (x.position >= 0) { at_param.push_back(positions(b, x, i)); continue; }
      if (x.offset != 0 || x.run != 0 || x.second.dim >= 0 || x.in >= 0 || x.dtype == DType::kReal || x.tf32)
        refuse(fmt::format("parameter {} is a part of another tensor, or what another kernel left: {}", i, kOwnTensors),
               fmt::format("param {}", i));
      at_param.push_back(b.add_input(static_cast<int>(program_.inputs.size()), {x.dtype, x.dims}));
      program_.inputs.push_back({fmt::format("in{}", i), {x.dtype, x.dims}, x.strides, {}});
    }
    for (size_t i = 0; i < p_.results.size(); i++) {
      const schedule::Param& x = p_.results[i];
      if (x.offset != 0 || x.run != 0 || x.tf32)
        refuse(fmt::format("result {} is a part of another tensor: {}", i, kOwnTensors), fmt::format("result {}", i));
      program_.outputs.push_back({fmt::format("out{}", i), {x.dtype, x.dims}, x.strides, {}});
    }
    reference(b, at_param);
    program_.graph = std::move(b).finish();
    program_.canonical = print(p_);
    called();
  }
  /// Its expressions over whole tensors: a loop of one iteration adds up nothing.
  void reference(Builder& b, const std::vector<ValueId>& at_param) const {
    std::vector<ValueId> to;
    rewrite(p_.body, b, to, [&](NodeId n, const std::vector<ValueId>& operands) {
      if (const Output* out = p_.body.form<Output>(n)) { b.add_output(out->result, operands[0], out->dtype); return kNoValue; }
      if (const Input* in = p_.body.form<Input>(n)) return at_param[static_cast<size_t>(in->param)];
      return p_.body.form<Accum>(n) || p_.body.form<Running>(n) ? operands[0] : kCopy;
    });
  }
  void called() {
    Builder b(Level::kKernel);
    std::vector<ValueId> operands;
    int inputs = 0;
    for (const schedule::Param& x : p_.params)
      operands.push_back(x.position >= 0 ? positions(b, x, operands.size()) : b.add_input(inputs++, {x.dtype, x.dims}));
    const schedule::Erased e = erase(p_);
    const ValueId first = b.add(Call{std::make_shared<const Graph>(*e.graph)}, operands);
    const std::vector<NodeId> outputs = e.graph->outputs();
    for (size_t i = 0; i < outputs.size(); i++)
      b.add_output(static_cast<int>(i), first + static_cast<ValueId>(i), p_.results[i].dtype);
    graph_ = std::move(b).finish();
  }

  void prove() const {
    const Verdict v = settle(program_.graph, graph_, verification_seed(program_, o_));
    if (v.kind == Verdict::Kind::kEqual) return;
    const DiagCode code = v.kind == Verdict::Kind::kDifferent ? DiagCode::kNotEqual : DiagCode::kUnknownEquality;
    throw Stopped{{Severity::kError, code, {s_.name, 0, 0, 1},
                   "what runs in these tiles is not shown to be what the expressions say: " + to_string(v), {}}};
  }

  // ---- its plan
  /// The plan of a library of this kernel: the planner's, with the schedule's numbers.
  Plan planned(const schedule::PlanOf& own) {
    program_.numerics.tf32 = own.rule.tf32;
    const Planned all = make_plan(program_, graph_, target_);
    if (!all.plan) refuse("the kernel has no plan as a library: " + all.reason);
    if (all.plan->kernels.size() != 1) refuse(fmt::format("as a library it is planned as {} kernels", all.plan->kernels.size()));
    KernelPlan k = all.plan->kernels[0];
    std::optional<KernelPlan> other;
    if (const std::span<const KernelCall> calls = bound_calls(k); !calls.empty()) {
      const Work work{calls[0].body, calls[0].operands, calls[0].results, target_, contract_rule(program_), false};
      const Attempt a = plan_like(*own.plan, work);
      if (!a.body) refuse("as a library it has no plan of these numbers: " + a.reason);
      other = k;
      other->body = *a.body;
      other->predicted_us = a.cost.us;
      other->why = a.cost.why;
      other->bytes = a.cost.bytes;
      other->flops = a.cost.flops;
      other->others.clear();
    }
    if (!other) refuse("as a library it is planned as no call");
    other->name = p_.name;
    const schedule::Described d = schedule::describe(*other, target_);
    if (!d.program || schedule::canonical_text(*d.program) != schedule::canonical_text(p_))
      refuse("as a library it is planned otherwise" + (d.program ? ":\n" + print(*d.program) : ": " + d.reason));
    return with_kernel(*all.plan, 0, *other);
  }

  void gate(const Plan& plan, ModeResult& r) const {
    if (o_.gate != "auto" && o_.gate != "emulate") return;
    const std::string compiler = find_host_compiler();
    GateResult g{GateResult::Kind::kNotRun, "not emulated: there is no C++ compiler"};
    if (!compiler.empty()) g = emulation_gate(program_, plan, target_, compiler, verification_seed(program_, o_), num_threads(o_.jobs));
    if (g.kind == GateResult::Kind::kFailed) throw Stopped{{Severity::kError, DiagCode::kEmulation, {s_.name, 0, 0, 1}, g.text, {}}};
    if (g.kind == GateResult::Kind::kPassed) return;
    if (o_.gate == "emulate") throw Stopped{{Severity::kError, DiagCode::kGateNotRun, {s_.name, 0, 0, 1}, "--gate emulate: " + g.text, {}}};
    r.diagnostics.push_back({Severity::kNote, DiagCode::kGateNotRun, {s_.name, 0, 0, 1}, g.text, {}});
  }

  const Source& s_;
  const Options& o_;
  const Target& target_;
  schedule::KernelProgram p_;
  Program program_;
  Graph graph_;
};

}  // namespace

bool is_schedule(const std::string& text) {
  size_t at = 0;
  const auto word = [&] {
    for (;;) {
      while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at]))) at++;
      if (at >= text.size() || text[at] != '#') break;
      while (at < text.size() && text[at] != '\n') at++;
    }
    const size_t from = at;
    while (at < text.size() && is_name(text[at])) at++;
    return text.substr(from, at - from);
  };
  if (word() != "kernel") return false;
  word();
  if (at = text.find_first_not_of(" \t\r\n", at); at == std::string::npos || text[at] != '{') return false;
  at++;
  const std::string first = word();
  static const std::vector<std::string> known = {"param",  "result", "index", "assume", "split",
                                                 "reduce", "shared", "per_sm", "panel", "role"};
  return std::find(known.begin(), known.end(), first) != known.end();
}

namespace {

ModeResult schedule_failed(const Diagnostic& d) {
  ModeResult r;
  r.diagnostics.push_back(d);
  r.exit = exit_code_of(d.code);
  return r;
}

}  // namespace

ModeResult why_not_schedule(const Source& s, const Options& o) {
  auto target = resolve_target(o);
  if (!target) return schedule_failed(target.errors()[0]);
  try {
    return ScheduleRun(s, o, *target).why_not();
  } catch (const Stopped& x) {
    return schedule_failed(x.d);
  }
}

ModeResult run_schedule(const std::string& stage, const Source& s, const Options& o) {
  if (stage != "schedule" && stage != "plan" && stage != "emit")
    return schedule_failed(
        {Severity::kError, DiagCode::kUsage, {}, fmt::format("--run={}: a schedule has the stages schedule, plan, emit", stage), {}});
  auto target = resolve_target(o);
  if (!target) return schedule_failed(target.errors()[0]);
  try {
    return ScheduleRun(s, o, *target).run(stage);
  } catch (const Stopped& x) {
    return schedule_failed(x.d);
  }
}

}  // namespace mirage

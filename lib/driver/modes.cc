// The modes that compile nothing: check, canonicalize, verify, check-certificate, one stage. Each is a few calls of other directories; cmd/
// prints what they return.
#include "mirage/driver/models.h"
#include "mirage/driver/modes.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "driver/proof/folding.h"
#include "driver/pieces/joined.h"
#include "driver/report/report.h"
#include "driver/schedule_mode.h"
#include "mirage/codegen/module.h"
#include "mirage/plan/plan.h"
#include "mirage/spec/onnx.h"
#include "mirage/spec/text.h"
#include "mirage/support/file.h"
#include "mirage/support/hash.h"

#ifndef MIRAGE_VERSION
#define MIRAGE_VERSION "0.1.0"
#endif

namespace mirage {

namespace {

ModeResult mode_failed(const Diagnostics& errors) {
  ModeResult r;
  r.diagnostics = errors;
  for (const Diagnostic& d : errors)
    if (d.severity == Severity::kError) r.exit = more_severe(r.exit, exit_code_of(d.code));
  return r;
}

bool is_json(const std::string& text) {
  const size_t at = text.find_first_not_of(" \t\r\n");
  return at != std::string::npos && (text[at] == '{' || text[at] == '[');
}

Diagnostic at_file(DiagCode code, const std::string& file, const std::string& text) {
  return {Severity::kError, code, {file, 0, 0, 1}, text, {}};
}

/// The spec's one program, with what the options say of its axes.
Result<Parsed> read_one(const Source& s, const Options& o) {
  const auto choice = read_axis_choice(o.bind, o.values);
  if (!choice) return choice.errors();
  if (auto one = parse_spec(s, *choice); !one) return one.errors();   // an axis with several values
  return read_spec(s, *choice);
}

/// A kernel graph with calls is no spec (read_spec takes primitives), but it can be compared, planned and printed.
Result<Graph> read_any_graph(const Source& s, const Options& o) {
  if (is_json(s.text)) {
    auto read = read_one(s, o);
    if (!read) return read.errors();
    return read->program.graph;
  }
  auto g = parse_graph(s.text, s.name);
  if (!g) return g.errors();
  if (g->level() != Level::kKernel) return at_file(DiagCode::kUnsupported, s.name, "a graph of kernel level is needed here");
  if (auto law = check_laws(*g)) return at_file(DiagCode::kShape, s.name, *law);
  if (auto wrong = check_extents(*g)) return at_file(DiagCode::kShape, s.name, *wrong);
  return *g;
}

/// Inputs by param and results by number: what must agree for two graphs to be comparable.
std::string signature(const Graph& g) {
  std::vector<std::string> inputs(static_cast<size_t>(g.num_params()), "?");
  for (NodeId n : g.inputs()) inputs[static_cast<size_t>(g.form<Input>(n)->param)] = to_string(g.type(g.node(n).first_value));
  std::string out = fmt::format("({}) -> (", fmt::join(inputs, ", "));
  bool is_first = true;
  for (NodeId n : g.outputs()) {
    const Type t{g.form<Output>(n)->dtype, g.dims(g.node(n).operands[0])};
    out += (is_first ? "" : ", ") + to_string(t);
    is_first = false;
  }
  return out + ")";
}

/// A graph as a program, for planning and numerics: names by number.
Program program_of(const Graph& g, const std::string& name) {
  Program p;
  p.name = name;
  p.inputs.resize(static_cast<size_t>(g.num_params()));
  for (size_t i = 0; i < p.inputs.size(); i++) p.inputs[i].name = fmt::format("in{}", i);
  for (NodeId n : g.inputs()) p.inputs[static_cast<size_t>(g.form<Input>(n)->param)].type = g.type(g.node(n).first_value);
  for (NodeId n : g.outputs()) {
    const Output& out = *g.form<Output>(n);
    p.outputs.push_back({fmt::format("out{}", out.result), {out.dtype, g.dims(g.node(n).operands[0])}, {}, {}});
  }
  for (auto* list : {&p.inputs, &p.outputs})
    for (TensorInfo& t : *list) t.strides = row_major_strides(t.type.dims);
  p.graph = g;
  p.canonical = print(g, name);
  return p;
}

ModeResult of_verdict(const Verdict& v) {
  ModeResult r;
  r.text = to_string(v) + "\n";
  r.exit = v.kind == Verdict::Kind::kEqual       ? ExitCode::kOk
           : v.kind == Verdict::Kind::kDifferent ? ExitCode::kNotEqual
                                                 : ExitCode::kNothingFound;
  return r;
}

/// What the same small sizes of both say, which a program that computes both has: a hint, and no verdict about these sizes. "" where there
/// is none to be had.
std::string at_reduced_sizes(const Graph& x, const Graph& y, uint64_t seed) {
  const int results = x.num_results();
  const Program both = program_of(joined(x, y), "both");
  std::string out;
  for (int variant : {0, 1}) {
    const Witness w = make_witness(both, variant);
    if (!w.refusal.empty()) return fmt::format("there are no reduced sizes: {}\n", w.refusal);
    if (results_from(w.graph, 0, results) == x) return "";
    out += fmt::format("at reduced sizes ({}) they are {}\n", variant == 0 ? "even" : "ragged",
                       to_string(equal(results_from(w.graph, 0, results), results_from(w.graph, results, results), seed)));
  }
  return out;
}

}  // namespace

std::string program_name(const Source& s, const Options& o) {
  const auto choice = read_axis_choice(o.bind, o.values);
  if (!choice) return "";
  const auto p = read_spec(s, *choice);
  return p ? p->program.name : "";
}

bool is_model(const std::string& path) { return path.ends_with(".onnx"); }

Result<Source> spec_of_model(const Source& bytes, const Options& o) {
  const auto choice = read_axis_choice(o.bind, o.values);
  if (!choice) return choice.errors();
  return onnx_spec(bytes.text, bytes.name, {choice->bind, choice->values});
}

ModeResult write_parts(const Source& bytes, const Options& o) {
  const auto choice = read_axis_choice(o.bind, o.values);
  if (!choice) return mode_failed(choice.errors());
  if (!choice->values.empty())
    return mode_failed({Diagnostic{
        Severity::kError, DiagCode::kUsage, {}, "--parts takes one extent per dimension", {{{}, "give --bind M=16 instead of --values"}}}});
  const auto parts = onnx_parts(bytes.text, bytes.name, {choice->bind, {}});
  if (!parts) return mode_failed(parts.errors());
  auto folder = OutputFolder::open(o.output);
  if (!folder) return mode_failed(folder.errors());
  Diagnostics errors;
  const auto write = [&](const std::string& name, const std::string& text) {
    const Diagnostics now = folder->write(name, text);
    errors.insert(errors.end(), now.begin(), now.end());
  };
  for (const Source& s : parts->specs) write(s.name + ".json", s.text);
  write(std::filesystem::path(bytes.name).stem().string() + ".coverage.txt", parts->report);
  if (errors.empty()) errors = folder->commit();
  if (!errors.empty()) return mode_failed(errors);
  ModeResult r;
  r.text = parts->report;
  if (parts->specs.empty()) r.exit = ExitCode::kUnsupported;
  return r;
}

std::string spec_operators(bool as_json) { return as_json ? list_ops_json() : list_ops(); }
std::string spec_schema() { return schema(); }

ModeResult check_spec(const Source& s, const Options& o) {
  const auto choice = read_axis_choice(o.bind, o.values);
  if (!choice) return mode_failed(choice.errors());
  auto family = read_family(s, *choice);
  if (!family) return mode_failed(family.errors());
  ModeResult r;
  r.diagnostics = family->warnings;
  return r;
}

ModeResult print_result_name(const Source& s, const Options& o) {
  const auto choice = read_axis_choice(o.bind, o.values);
  if (!choice) return mode_failed(choice.errors());
  const auto parsed = read_spec(s, *choice);
  if (!parsed) return mode_failed(parsed.errors());
  ModeResult r;
  r.text = module_name(parsed->program.name) + "\n";
  return r;
}

ModeResult canonicalize_spec(const Source& s, const Options& o) {
  auto parsed = read_one(s, o);
  if (!parsed) return mode_failed(parsed.errors());
  ModeResult r;
  r.diagnostics = parsed->warnings;
  r.text = parsed->program.canonical;
  if (r.text.empty() || r.text.back() != '\n') r.text += '\n';
  return r;
}

namespace {

/// Two specs with the same var axes, compared at every combination of their values: the worst verdict. nullopt: they are no such pair.
std::optional<ModeResult> verify_families(const Source& a, const Source& b, const Options& o) {
  const auto choice = read_axis_choice(o.bind, o.values);
  if (!choice || !is_json(a.text) || !is_json(b.text)) return std::nullopt;
  const auto x = read_family(a, *choice), y = read_family(b, *choice);
  if (!x || !y || x->axes.empty() || x->points.size() != y->points.size()) return std::nullopt;
  ModeResult all;
  for (size_t p = 0; p < x->points.size(); p++) {
    const std::string at = point_text(x->axes, x->points[p].values);
    if (at != point_text(y->axes, y->points[p].values)) return std::nullopt;
    Options bound = o;
    bound.values.clear();
    for (size_t i = 0; i < x->axes.size(); i++) bound.bind.push_back(fmt::format("{}={}", x->axes[i].name, x->points[p].values[i]));
    ModeResult one = verify_two(a, b, bound);
    all.text += at + ": " + one.text;
    all.exit = more_severe(all.exit, one.exit);
    all.diagnostics.insert(all.diagnostics.end(), one.diagnostics.begin(), one.diagnostics.end());
  }
  return all;
}

}  // namespace

ModeResult verify_two(const Source& a, const Source& b, const Options& o) {
  if (auto all = verify_families(a, b, o)) return *all;
  auto x = read_any_graph(a, o), y = read_any_graph(b, o);
  Diagnostics errors = x ? Diagnostics{} : x.errors();
  if (!y) errors.insert(errors.end(), y.errors().begin(), y.errors().end());
  if (!errors.empty()) return mode_failed(errors);
  if (signature(*x) != signature(*y)) {
    ModeResult r;
    r.exit = ExitCode::kNotEqual;
    r.text = fmt::format("different: inputs or outputs: {} and {}\n", signature(*x), signature(*y));
    return r;
  }
  if (*x == *y) {
    ModeResult r;
    r.text = "equal: the same graph\n";
    return r;
  }
  const Verdict v = settle(*x, *y, static_cast<uint64_t>(o.seed));
  ModeResult r = of_verdict(v);
  if (v.kind == Verdict::Kind::kUnknown) r.text += at_reduced_sizes(*x, *y, static_cast<uint64_t>(o.seed));
  return r;
}

ModeResult run_stage(const std::string& stage, const Source& s, const Options& o, const Listener& listener) {
  if (stage == "schedule" && is_schedule(s.text)) return run_schedule(stage, s, o);
  static const std::vector<std::string> stages = {"parse", "search", "verify", "choose", "partition", "plan", "emit"};
  if (std::find(stages.begin(), stages.end(), stage) == stages.end()) {
    Diagnostic d = at_file(DiagCode::kUsage, "",
                           fmt::format("--run: there is no stage '{}' that runs alone; stages: {}", stage, fmt::join(stages, ", ")));
    if (const std::string near = nearest(stage, stages); !near.empty()) d.notes.push_back({{}, "did you mean '" + near + "'?"});
    return mode_failed({d});
  }
  if (is_schedule(s.text)) return run_schedule(stage, s, o);
  auto target = resolve_target(o);
  if (!target) return mode_failed(target.errors());
  if (auto one = read_one(s, o); !one && is_json(s.text)) return mode_failed(one.errors());
  ModeResult r;
  if (stage == "search" || stage == "verify" || stage == "choose" || stage == "partition") {
    Trace trace({{stage}, false, true, [&](const std::string& text) { r.text += text; }});
    Options quiet = o;
    quiet.output.clear();
    CompileResult c = compile(quiet, s, trace, listener);
    r.exit = c.exit;
    r.diagnostics = c.diagnostics;
    if (r.text.empty() && r.exit == ExitCode::kOk)
      r.text = stage == "partition" ? "not cut into pieces: the search of the whole program led to a result\n" : "nothing was verified\n";
    return r;
  }
  // A spec, or a kernel graph from the middle of the pipeline.
  std::optional<Program> program;
  auto parsed = read_one(s, o);
  if (parsed) {
    program = parsed->program;
    r.diagnostics = parsed->warnings;
  } else {
    auto graph = is_json(s.text) ? Result<Graph>(parsed.errors()) : read_any_graph(s, o);
    if (!graph) return mode_failed(graph.errors());
    program = program_of(*graph, "graph");
  }
  if (stage == "parse") {
    r.text = print(program->graph, program->name);
    return r;
  }
  const Folding folded = fold_verified(*program);
  Planned planned = make_plan(folded.program, folded.program.graph, *target);
  if (!planned.plan)
    return mode_failed({at_file(DiagCode::kUnsupported, s.name, "the graph does not fit " + target->name + ": " + planned.reason)});
  if (stage == "plan") r.text = print(*planned.plan);
  else if (std::any_of(program->graph.nodes().begin(), program->graph.nodes().end(),
                       [](const Node& n) { return std::holds_alternative<Call>(n.op); })) {
    for (const KernelPlan& k : planned.plan->kernels)   // no reference to check a module against: the kernels alone
      r.text += emit_kernel(k, *planned.plan, *target).source;
  } else {
    const CudaModule module = emit_module(*program, *planned.plan, *target, {result_options_line(o), MIRAGE_VERSION});
    r.text = module.files.at(module.name + ".cu");
  }
  return r;
}

std::vector<std::string> machine_names() {
  std::vector<std::string> out;
  for (const Target& t : all_machines()) out.push_back(t.machine);
  return out;
}

std::vector<std::string> target_names() {
  std::vector<std::string> out;
  for (const Target& t : all_targets()) out.push_back(t.name);
  return out;
}

Result<Source> einsum_source(const std::string& line) {
  auto parsed = read_einsum(line);
  if (!parsed) return parsed.errors();
  return Source{"--einsum", parsed->program.canonical};
}

ModeResult explain_error(const std::string& code) {
  static const std::vector<std::pair<DiagCode, std::string>> rows = {
#define DIAGNOSTIC(id, code, exit, help) {DiagCode::id, code},
#include "mirage/support/diagnostics.def"
#undef DIAGNOSTIC
  };
  ModeResult r;
  std::vector<std::string> names;
  for (const auto& [id, name] : rows) {
    names.push_back(name);
    if (name == code) {
      r.text = fmt::format("{}: {}\nexit code {}\n", name, code_help(id), static_cast<int>(exit_code_of(id)));
      return r;
    }
  }
  Diagnostic d = at_file(DiagCode::kUsage, "", "there is no diagnostic '" + code + "'");
  if (const std::string near = nearest(code, names); !near.empty()) d.notes.push_back({{}, "did you mean '" + near + "'?"});
  return mode_failed({d});
}

}  // namespace mirage

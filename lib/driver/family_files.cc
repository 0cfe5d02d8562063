// What a family's compilation leaves; see the header.
#include "driver/family_files.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/build.h"
#include "driver/certificate_file.h"
#include "driver/outputs.h"
#include "driver/report.h"
#include "driver/toolchain.h"
#include "mirage/spec/json_text.h"
#include "mirage/support/hash.h"

#ifndef MIRAGE_VERSION
#define MIRAGE_VERSION "0.1.0"
#endif

namespace mirage {

namespace {

using Json = nlohmann::ordered_json;

Json dims_json(const FamilyResult& f, const std::vector<int64_t>& values) {
  Json out = Json::object();
  for (size_t a = 0; a < f.axes.size(); a++) out[f.axes[a].name] = values[a];
  return out;
}

Json axes_json(const FamilyResult& f) {
  Json out = Json::array();
  for (size_t a = 0; a < f.axes.size(); a++)
    out.push_back({{"name", f.axes[a].name},
                   {"values", f.axes[a].values},
                   {"hint", f.axes[a].hint},
                   {"is_padded", static_cast<bool>(f.is_padded[a])}});
  return out;
}

/// Of the whole: axes, values and every program.
std::string family_id(const FamilyResult& f) {
  std::string text;
  for (const VarAxis& a : f.axes) text += a.name + fmt::format(" {}\n", fmt::join(a.values, " "));
  for (const ResultOfPoint& p : f.points) text += p.folding.whole.canonical + "\n";
  return fmt::format("{:016x}", hash_text(text));
}

FamilyModule module_of(const FamilyResult& f, const std::string& id, const Options& o) {
  std::vector<FamilyAxis> axes;
  std::vector<FamilyMember> members;
  for (size_t a = 0; a < f.axes.size(); a++) axes.push_back({f.axes[a].name, f.axes[a].values, f.axes[a].hint, f.is_padded[a]});
  for (const ResultOfPoint& p : f.points) members.push_back({p.values, p.folding.whole, p.decision.plan(p.straightforward)});
  return emit_family(axes, members, f.hint, id, f.target, module_options(o));
}

double family_rounded(double x) { return std::round(x * 1000) / 1000; }

/// "7 values of M by 5 kernels: M = 1: 1 kernel, 9.10 us; ...".
std::string why_text(const FamilyResult& f, size_t kernels) {
  std::string out = fmt::format("{} {} by {} distinct kernels:", f.points.size(),
                                f.axes.size() == 1 ? "values of " + f.axes[0].name : "combinations of values", kernels);
  for (const ResultOfPoint& p : f.points) {
    const Plan& plan = p.decision.plan(p.straightforward);
    out += fmt::format("{} {}: {} kernel{}, {:.2f} us", &p == &f.points.front() ? "" : ";", point_text(f.axes, p.values),
                       plan.kernels.size(), plan.kernels.size() == 1 ? "" : "s", plan.predicted_us);
  }
  return out;
}

/// Options as a point has them: those of a spec whose axes are constants.
Options without_axes(Options o) {
  o.bind.clear(), o.values.clear();
  return o;
}

/// What is said of the points, in their order, and of all of them.
struct ToldFamily {
  std::vector<Told> points;
  std::string report, timed_report, certificate, explanation, graphs, dots, html;
  std::vector<std::string> not_done;
};

class Tells {
 public:
  Tells(const FamilyResult& f, const Options& o, const FamilyModule& module, const std::string& id, const Built& built)
      : f_(f), o_(o), module_(module), id_(id), built_(built) {}

  ToldFamily run(const Diagnostics& warnings, Trace& trace) {
    Json reports = Json::array(), timed = Json::array(), certificates = Json::array();
    for (size_t i = 0; i < f_.points.size(); i++) {
      const ResultOfPoint& p = f_.points[i];
      const std::string at = point_text(f_.axes, p.values);
      const CudaModule own{module_.module.name, {}, module_.points[i]};
      for (const std::string& n : p.not_done) out_.not_done.push_back(at + ": " + n);
      const ResultFacts facts{f_.target, p.folding, p.found, p.choices, p.decision, p.straightforward, p.measured, own};
      Told told = tell_of(without_axes(o_), facts, built_of(i), p.not_done, {}, trace, "");
      reports.push_back(named(told.report, p));
      timed.push_back(named(told.timed_report, p));
      certificates.push_back({{"dims", dims_json(f_, p.values)}, {"certificate", own_json(told.certificate)}});
      out_.explanation += at + ":\n" + told.explanation;
      const Graph graph = p.folding.unfold(p.decision.graph(p.folding.program));
      const std::string name = module_.module.name + "_" + point_label(f_.axes, p.values);
      out_.graphs += "# " + at + "\n" + print(graph, name);
      out_.dots += dot(graph, name);
      out_.points.push_back(std::move(told));
    }
    out_.not_done.insert(out_.not_done.end(), built_.not_done.begin(), built_.not_done.end());
    out_.report = report(std::move(reports), warnings).dump(2) + "\n";
    Json with_times = report(std::move(timed), warnings);
    if (!built_.measured.empty()) with_times["measured"] = measured();
    out_.timed_report = with_times.dump(2) + "\n";
    out_.certificate = certificate(std::move(certificates));
    for (size_t i = 0; i < f_.points.size(); i++) out_.html += html_of(i);
    return std::move(out_);
  }

 private:
  /// A point's report under a name of its own, so that a baseline is compared point by point; its kernels have the names that they have in
  /// the library.
  Json named(const std::string& text, const ResultOfPoint& p) const {
    Json j = own_json(text);
    j["name"] = label(p);
    j["dims"] = dims_json(f_, p.values);
    const auto& kernels = module_.points[static_cast<size_t>(&p - f_.points.data())];
    for (size_t k = 0; k < kernels.size(); k++) j["result"]["kernels"][k]["name"] = kernels[k].name;
    return j;
  }
  /// What was built, with the facts of the point's kernels under the names that its own plan gives them.
  Built built_of(size_t p) const {
    Built out;
    const Plan& plan = f_.points[p].decision.plan(f_.points[p].straightforward);
    for (size_t k = 0; k < plan.kernels.size(); k++)
      if (const auto at = built_.facts.find(module_.points[p][k].name); at != built_.facts.end())
        out.facts[plan.kernels[k].name] = at->second;
    return out;
  }
  std::string label(const ResultOfPoint& p) const {
    std::string out = f_.points[f_.hint].folding.whole.name;
    for (size_t a = 0; a < f_.axes.size(); a++) out += fmt::format("{}{}={}", a ? "," : " ", f_.axes[a].name, p.values[a]);
    return out;
  }

  Json report(Json points, const Diagnostics& warnings) const {
    const ResultOfPoint& hint = f_.points[f_.hint];
    int64_t workspace = 0;
    for (const ResultOfPoint& p : f_.points) workspace = std::max(workspace, p.decision.plan(p.straightforward).workspace_bytes);
    Json out = {{"schema_version", kReportVersion},
                {"tool", "mirage-opt"},
                {"version", MIRAGE_VERSION},
                {"name", hint.folding.whole.name},
                {"spec_id", id_},
                {"target", f_.target.name},
                {"machine", f_.target.machine},
                {"options", result_options_line(o_)},
                {"exit_code", 0},
                {"axes", axes_json(f_)}};
    out["result"] = {{"kind", "family"},
                     {"why", why_text(f_, module_.module.kernels.size())},
                     {"predicted_us", family_rounded(hint.decision.plan(hint.straightforward).predicted_us)},
                     {"straightforward_us", family_rounded(hint.straightforward.predicted_us)},
                     {"distinct_kernels", module_.module.kernels.size()},
                     {"workspace_bytes", workspace}};
    out["search"] = {{"searches", f_.counts.searched}, {"carried_over", f_.counts.shared}};
    out["points"] = std::move(points);
    out["not_done"] = out_.not_done;
    Json list = Json::array();
    for (const Diagnostic& d : warnings)
      list.push_back({{"code", code_name(d.code)}, {"line", d.where.line}, {"column", d.where.col}, {"text", d.text}});
    out["warnings"] = list;
    return out;
  }

  /// The check program prints an object per point.
  Json measured() const {
    Json out = Json::array();
    for (size_t at = 0; at < built_.measured.size();) {
      const size_t end = std::min(built_.measured.find('\n', at), built_.measured.size());
      if (auto line = read_json_text(built_.measured.substr(at, end - at), "", DiagCode::kDeviceCheck)) out.push_back(std::move(*line));
      at = end + 1;
    }
    return out;
  }

  std::string certificate(Json points) const {
    Json options = Json::object();
    for (const auto& [field, value] : result_options(o_))
      if (field != "target") options[field] = value;
    const Json out = {{"schema_version", kCertificateVersion},
                      {"tool", "mirage-opt"},
                      {"version", MIRAGE_VERSION},
                      {"name", f_.points[f_.hint].folding.whole.name},
                      {"target", o_.target},
                      {"options", options},
                      {"kind", "family"},
                      {"axes", axes_json(f_)},
                      {"points", std::move(points)}};
    return out.dump(1) + "\n";
  }

  std::string html_of(size_t p) const { return report_html(own_report(p), out_.points[p].graph, out_.points[p].plan); }
  std::string own_report(size_t p) const { return named(out_.points[p].report, f_.points[p]).dump(); }

  const FamilyResult& f_;
  const Options& o_;
  const FamilyModule& module_;
  const std::string& id_;
  const Built& built_;
  ToldFamily out_;
};

/// Which result an interrupted run has written.
std::string family_was_written(const Options& o, size_t files, bool has_library) {
  return fmt::format("interrupted: {} has the best kernels that there were by then for each value ({} files), {}", o.output, files,
                     has_library ? "and the library, which was built already" : "without a library, which was not built yet");
}

}  // namespace

std::string point_label(const std::vector<VarAxis>& axes, const std::vector<int64_t>& values) {
  std::string out;
  for (size_t a = 0; a < axes.size(); a++) out += (a ? "_" : "") + axes[a].name + std::to_string(values[a]);
  return out;
}

CompileResult write_family(CompileResult r, const Options& o, const Source& source, const FamilyResult& family,
                           std::optional<OutputFolder>& folder, Trace& trace, const Listener& listener) {
  const std::string id = family_id(family);
  const FamilyModule module = trace.stage("emit", [&] { return module_of(family, id, o); });
  const std::string& name = module.module.name;
  trace.count(Stat::kKernels, static_cast<int64_t>(module.module.kernels.size()));
  trace.count(Stat::kSourceBytes, static_cast<int64_t>(module.module.files.at(name + ".cu").size()));
  trace.product("emit", name + ".cu", [&] { return module.module.files.at(name + ".cu"); });
  const std::set<Emit> wanted = wanted_outputs(o);
  Built built;
  if (folder)
    built = trace.stage(
        "build", [&] { return build_outputs(module.module, family.target, o, wanted, *folder, find_toolchain(), listener.interrupted); });
  ToldFamily told = Tells(family, o, module, id, built).run(r.diagnostics, trace);
  r.files = select_texts(module.module.files, name, wanted);
  if (wanted.contains(Emit::kGraph)) r.files[name + ".graph"] = told.graphs;
  if (wanted.contains(Emit::kDot)) r.files[name + ".dot"] = "// generated by mirage-opt\n" + told.dots;
  if (wanted.contains(Emit::kReport)) r.files["report.json"] = told.report;
  if (wanted.contains(Emit::kHtml)) r.files["report.html"] = told.html;
  if (wanted.contains(Emit::kCertificate))
    r.files["certificate.json"] = built.compiler.empty() ? told.certificate : with_compiler(told.certificate, built.compiler);
  for (Told& t : told.points) r.certificates.push_back(std::move(t.certificate));
  r.report = std::move(told.report);
  r.timed_report = std::move(told.timed_report);
  r.certificate = std::move(told.certificate);
  r.explanation = std::move(told.explanation);
  r.notes.insert(r.notes.end(), told.not_done.begin(), told.not_done.end());
  r.summary = fmt::format("{}: {} ({} searches, {} carried over)", name, why_text(family, module.module.kernels.size()),
                          family.counts.searched, family.counts.shared);
  if (!folder) return r;
  return write_files(std::move(r), o, source, module.module, built, *folder, listener,
                     [&](size_t files, bool has_library) { return family_was_written(o, files, has_library); });
}

CompileResult write_best_family(const Options& o, const Source& source, const FamilyResult& family, const Listener& listener) {
  Trace trace;
  CompileResult r;
  r.name = family.points[family.hint].folding.whole.name;
  Result<OutputFolder> opened = OutputFolder::open(o.output);
  if (!opened) return failed(opened.errors(), r);
  std::optional<OutputFolder> folder(std::move(*opened));
  return write_family(std::move(r), o, source, family, folder, trace, listener);
}

bool is_family_certificate(const Source& source) {
  const auto j = read_json_text(source.text, source.name, DiagCode::kCertificate);
  return j && j->is_object() && j->contains("kind") && (*j)["kind"] == "family";
}

Result<FamilyCertificate> read_family_certificate(const Source& source) {
  const auto j = read_json_text(source.text, source.name, DiagCode::kCertificate);
  if (!j) return j.errors();
  try {
    FamilyCertificate out;
    if ((*j).at("schema_version") != kCertificateVersion)
      return broken_certificate(source.name, "the certificate's schema version cannot be read by this mirage-opt");
    const Result<Options> options = certificate_options(*j, source.name);
    if (!options) return options.errors();
    out.options = *options;
    for (const Json& p : j->at("points")) {
      std::vector<int64_t> values;
      for (const auto& [axis, value] : p.at("dims").items()) {
        if (!value.is_number_integer()) return broken_certificate(source.name, "the dims of a point are integers");
        values.push_back(value.get<int64_t>());
      }
      out.values.push_back(std::move(values));
      out.points.push_back({source.name, p.at("certificate").dump()});
      auto one = read_certificate(out.points.back());
      if (!one) return one.errors();
      out.gates.insert(out.gates.end(), one->gates.begin(), one->gates.end());
    }
    if (out.points.empty() || out.points.size() > kMostPoints)
      return broken_certificate(source.name, "the certificate has no points, or too many");
    if (j->contains("built_with")) out.built_with = j->at("built_with").get<std::string>();
    return out;
  } catch (const std::exception& e) {
    return broken_certificate(source.name, std::string("the certificate cannot be read: ") + e.what());
  }
}

}  // namespace mirage

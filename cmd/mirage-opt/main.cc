// mirage-opt: the command line. Turns words into Options, reads the specs, calls driver/, prints, and maps everything that can happen to an
// exit code. The first and last stage of the flow.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <optional>

#include <fmt/format.h>
#include <unistd.h>

#include "corpus.h"
#include "flags.h"
#include "interruption.h"
#include "manual.h"
#include "reference.h"
#include "mirage/driver/compile.h"
#include "mirage/driver/dump.h"
#include "mirage/driver/models.h"
#include "mirage/driver/modes.h"
#include "mirage/support/file.h"
#include "mirage/support/foreign.h"
#include "mirage/support/log.h"
#include "mirage/support/warden.h"

namespace mirage {

constexpr int64_t kMaxModelBytes = int64_t{1} << 31;   // as protocol buffers
constexpr int64_t kMaxSpecBytes = 64 << 20;   // the reader's own limit is lower and has the better message

ExitCode show(const Diagnostics& all, const std::vector<Source>& sources) {
  ExitCode exit = ExitCode::kOk;
  for (const Diagnostic& d : all) {
    auto at = std::find_if(sources.begin(), sources.end(), [&](const Source& s) { return s.name == d.where.file; });
    log_diagnostic(d, at == sources.end() ? "" : at->text);
    if (d.severity == Severity::kError) exit = more_severe(exit, exit_code_of(d.code));
  }
  return exit;
}

ExitCode print_out(const std::string& text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return ExitCode::kOk;
  if (errno == EPIPE) return ExitCode::kOk;
  return show({Diagnostic{Severity::kError, DiagCode::kFileUnwritable, {}, "cannot write to standard output", {}}});
}

Result<Source> read_source(const std::string& path) {
  auto text = read_file(path, kMaxSpecBytes);
  if (!text) return text.errors();
  return Source{path, std::move(*text)};
}

/// A spec, or a model as one.
Result<Source> read_program(const std::string& path, const Options& o) {
  if (!is_model(path)) return read_source(path);
  auto bytes = read_file(path, kMaxModelBytes);
  if (!bytes) return bytes.errors();
  return spec_of_model({path, std::move(*bytes)}, o);
}

namespace {

namespace fs = std::filesystem;

/// An assert has printed everything; abort's exit status would be 134.
extern "C" void on_abort(int) { _exit(static_cast<int>(ExitCode::kBug)); }

void install_signals() {
  struct sigaction abort_action {};
  abort_action.sa_handler = on_abort;
  sigaction(SIGABRT, &abort_action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);   // a file that is too large is an error of write()
}

ExitCode finish(const ModeResult& r, const std::vector<Source>& sources) {
  ExitCode exit = show(r.diagnostics, sources);
  if (!r.text.empty()) exit = more_severe(exit, print_out(r.text));
  return more_severe(r.exit, exit);
}

ExitCode usage(const std::string& text) {
  return show({Diagnostic{Severity::kError, DiagCode::kUsage, {}, text, {{{}, "mirage-opt --help lists the flags"}}}});
}

/// Modes that read no spec; nullopt: none was asked for.
std::optional<ExitCode> run_plain_mode(const Options& o) {
  if (o.list_ops) return print_out(spec_operators(false));
  if (o.list_ops_json) return print_out(spec_operators(true));
  if (o.print_schema) return print_out(spec_schema());
  if (o.list_targets) return finish(print_targets(), {});
  if (o.print_config) return print_out(print_config(with_implied_target(o)));
  if (o.print_man) return print_out(man_page(MIRAGE_VERSION));
  if (!o.print_completion.empty()) {
    const auto& shells = completion_shells();
    if (std::find(shells.begin(), shells.end(), o.print_completion) == shells.end())
      return usage(fmt::format("--print-completion: '{}' is none of {}", o.print_completion, fmt::join(shells, ", ")));
    return print_out(completion(o.print_completion));
  }
  if (!o.print_reference.empty()) {
    const auto& topics = reference_topics();
    if (std::find(topics.begin(), topics.end(), o.print_reference) == topics.end())
      return usage(fmt::format("--print-reference: '{}' is none of {}", o.print_reference, fmt::join(topics, ", ")));
    return print_out(reference(o.print_reference));
  }
  if (!o.explain_error.empty()) return finish(explain_error(o.explain_error), {});
  return std::nullopt;
}

Listener mode_listener() {
  Listener l;
  l.progress = log_progress;
  l.live = log_live;
  l.print = [](const std::string& s) { log_text(s); };
  l.interrupted = interrupt_flag();
  return l;
}

/// --parts, of models only.
ExitCode run_parts(const Options& o) {
  if (o.specs.size() != 1 || !is_model(o.specs[0]))
    return usage("--parts divides one ONNX model (a file *.onnx); of a PyTorch module: python -m mirage_opt export FILE.py:CLASS --parts");
  if (o.output.empty()) return usage("--parts writes a spec per part: give -o DIR");
  auto bytes = read_file(o.specs[0], kMaxModelBytes);
  if (!bytes) return show(bytes.errors());
  return finish(write_parts({o.specs[0], std::move(*bytes)}, o), {});
}

/// Modes that read specs but compile nothing.
std::optional<ExitCode> run_spec_mode(const Options& o, const std::vector<Source>& sources) {
  if (o.verify) {
    if (sources.size() != 2) return usage(fmt::format("--verify compares two graphs or specs, {} given", sources.size()));
    return finish(verify_two(sources[0], sources[1], o), sources);
  }
  if (!o.certificate.empty()) {
    auto certificate = read_source(o.certificate);
    if (!certificate) return show(certificate.errors());
    std::vector<Source> all = sources;
    all.push_back(*certificate);
    return finish(check_certificate(*certificate, sources, o), all);
  }
  if (!o.why_not.empty()) {
    auto graph = read_source(o.why_not);
    if (!graph) return show(graph.errors());
    std::vector<Source> all = sources;
    all.push_back(*graph);
    return finish(why_not_graph(*graph, sources, o, mode_listener()), all);
  }
  if (!o.check && !o.canonicalize && !o.print_name && o.run.empty()) return std::nullopt;
  ExitCode exit = ExitCode::kOk;
  for (const Source& s : sources)
    exit = more_severe(exit, finish(o.print_name     ? print_result_name(s, o)
                                    : o.check        ? check_spec(s, o)
                                    : o.canonicalize ? canonicalize_spec(s, o)
                                                     : run_stage(o.run, s, o, mode_listener()),
                                    {s}));
  return exit;
}

ExitCode run(const std::vector<std::string>& arguments) {
  auto line = parse_command_line(arguments);
  if (!line) {
    ExitCode exit = show(line.errors());
    return exit;
  }
  Options& o = line->options;
  if (const char* cache = std::getenv("MIRAGE_OPT_CACHE"); cache && o.cache.empty() && !o.no_cache) o.cache = cache;
  if (line->help) return print_out(line->help_text);
  if (line->version_json) return print_out(version_json(MIRAGE_VERSION));
  if (line->version) return print_out(fmt::format("mirage-opt {}\n", MIRAGE_VERSION));
  init_log(o.quiet);
  Diagnostics errors = check_emit_list(o.emit);
  for (const std::string& stage : o.print_after)
    if (const auto& known = printed_stages(); stage != "all" && std::find(known.begin(), known.end(), stage) == known.end()) {
      Diagnostic d{Severity::kError,
                   DiagCode::kUsage,
                   {},
                   fmt::format("--print-after: there is no stage '{}'; stages: {}", stage, fmt::join(known, ", ")),
                   {}};
      if (const std::string near = nearest(stage, known); !near.empty()) d.notes.push_back({{}, "did you mean '" + near + "'?"});
      errors.push_back(d);
    }
  if (!errors.empty()) return show(errors);
  if (auto exit = run_plain_mode(o)) return *exit;
  if (!o.merge_reports.empty()) return merge_reports(o);
  if (o.specs.empty() && o.certificate.empty() && o.einsum.empty() && o.why_not.empty()) return usage("no spec given");
  if (o.parts) return run_parts(o);
  auto specs = find_specs(o);
  if (!specs) return show(specs.errors());
  if (!o.einsum.empty()) {
    auto source = einsum_source(o.einsum);
    if (!source) return show(source.errors());
    specs->push_back({std::move(*source), ""});
  }
  std::vector<Source> sources;
  for (const SpecFile& f : *specs) sources.push_back(f.source);
  if (auto mode = run_spec_mode(o, sources)) return *mode;
  std::error_code ignored;
  const bool is_corpus = sources.size() > 1 || std::any_of(o.specs.begin(), o.specs.end(),
                                                           [&](const std::string& p) { return p != "-" && fs::is_directory(p, ignored); });
  return run_corpus(o, std::move(*specs), is_corpus);
}

}  // namespace

}  // namespace mirage

int main(int argc, char** argv) {
  using namespace mirage;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  std::string command = "mirage-opt";
  for (const std::string& a : arguments) command += " " + shortened(shown(a), 400, 400);
  set_bug_context(command);
  install_signals();
  try {
    const ExitCode exit = run(arguments);
    end_warden();
    return static_cast<int>(exit);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "mirage-opt: bug: out of memory\nreproduce with: %s\n", command.c_str());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "mirage-opt: bug: %s\nreproduce with: %s\n", e.what(), command.c_str());
  }
  return static_cast<int>(ExitCode::kBug);
}

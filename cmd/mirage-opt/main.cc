// mirage-opt: the command line. Turns words into Options, reads the specs, calls driver/, prints, and maps everything that can happen to an exit code. The first and last stage of the flow.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <new>

#include <fmt/format.h>
#include <unistd.h>

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
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxModelBytes = int64_t{1} << 31;   // as protocol buffers
constexpr int64_t kMaxSpecBytes = 64 << 20;   // the reader's own limit is lower and has the better message

/// An assert has printed everything; abort's exit status would be 134.
extern "C" void on_abort(int) { _exit(static_cast<int>(ExitCode::kBug)); }

void install_signals() {
  struct sigaction abort_action {};
  abort_action.sa_handler = on_abort;
  sigaction(SIGABRT, &abort_action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);   // a file that is too large is an error of write()
}

/// Prints diagnostics with the source that they speak of, and returns the exit code of the worst.
ExitCode show(const Diagnostics& all, const std::vector<Source>& sources = {}) {
  ExitCode exit = ExitCode::kOk;
  for (const Diagnostic& d : all) {
    auto at = std::find_if(sources.begin(), sources.end(), [&](const Source& s) { return s.name == d.where.file; });
    log_diagnostic(d, at == sources.end() ? "" : at->text);
    if (d.severity == Severity::kError) exit = more_severe(exit, exit_code_of(d.code));
  }
  return exit;
}

/// Everything that goes to standard output: a write that fails (disk full) is an error like any other; that the reader has gone ("| head") is none.
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

/// Folders as their specs in name order; everything else as it is.
Result<std::vector<std::string>> expand_folders(const std::vector<std::string>& paths) {
  std::vector<std::string> out;
  for (const std::string& path : paths) {
    std::error_code error;
    if (path == "-" || !fs::is_directory(path, error)) {
      out.push_back(path);
      continue;
    }
    std::vector<std::string> found;
    for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
      if (at->path().extension() == ".json" || at->path().extension() == ".mg" || is_model(at->path().string())) found.push_back(at->path().string());
    if (error) return Diagnostic{Severity::kError, DiagCode::kFileMissing, {path, 0, 0, 1}, "cannot read the folder: " + error.message(), {}};
    if (found.empty()) return Diagnostic{Severity::kError, DiagCode::kFileMissing, {path, 0, 0, 1}, "no spec (*.json, *.mg, *.onnx) is in the folder", {}};
    std::sort(found.begin(), found.end());
    out.insert(out.end(), found.begin(), found.end());
  }
  return out;
}

ExitCode finish(const ModeResult& r, const std::vector<Source>& sources) {
  ExitCode exit = show(r.diagnostics, sources);
  if (!r.text.empty()) exit = more_severe(exit, print_out(r.text));
  return more_severe(r.exit, exit);
}

ExitCode usage(const std::string& text) { return show({Diagnostic{Severity::kError, DiagCode::kUsage, {}, text, {{{}, "mirage-opt --help lists the flags"}}}}); }

/// Modes that read no spec; nullopt: none was asked for.
std::optional<ExitCode> run_plain_mode(const Options& o) {
  if (o.list_ops) return print_out(spec_operators(false));
  if (o.list_ops_json) return print_out(spec_operators(true));
  if (o.print_schema) return print_out(spec_schema());
  if (o.list_targets) return finish(print_targets(), {});
  if (o.print_config) return print_out(print_config(o));
  if (o.print_man) return print_out(man_page(MIRAGE_VERSION));
  if (!o.print_completion.empty()) {
    const auto& shells = completion_shells();
    if (std::find(shells.begin(), shells.end(), o.print_completion) == shells.end()) return usage(fmt::format("--print-completion: '{}' is none of {}", o.print_completion, fmt::join(shells, ", ")));
    return print_out(completion(o.print_completion));
  }
  if (!o.print_reference.empty()) {
    const auto& topics = reference_topics();
    if (std::find(topics.begin(), topics.end(), o.print_reference) == topics.end()) return usage(fmt::format("--print-reference: '{}' is none of {}", o.print_reference, fmt::join(topics, ", ")));
    return print_out(reference(o.print_reference));
  }
  if (!o.explain_error.empty()) return finish(explain_error(o.explain_error), {});
  return std::nullopt;
}

Listener listener(const std::string& prefix) {
  Listener l;
  l.progress = [prefix](const std::string& s) { log_progress(prefix + s); };
  l.live = [prefix](const std::string& s) { log_live(prefix + s); };
  l.print = [](const std::string& s) { log_text(s); };
  l.interrupted = interrupt_flag();
  l.best = keep_best;
  l.before_writing = before_writing;
  return l;
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
    return finish(why_not_graph(*graph, sources, o, listener("")), all);
  }
  if (!o.check && !o.canonicalize && !o.print_name && o.run.empty()) return std::nullopt;
  ExitCode exit = ExitCode::kOk;
  for (const Source& s : sources)
    exit = more_severe(exit, finish(o.print_name ? print_result_name(s, o) : o.check ? check_spec(s, o) : o.canonicalize ? canonicalize_spec(s, o) : run_stage(o.run, s, o, listener("")), {s}));
  return exit;
}

struct Compiled { ExitCode exit; CompileResult result; std::string chrome; };

/// One spec: compile, then what the see-inside flags want.
Compiled compile_one(const Options& o, const Source& source, bool is_corpus) {
  Trace trace({o.print_after, !o.dump_dir.empty(), true, [](const std::string& s) { log_text(s); }});
  Compiled done{ExitCode::kOk, {}, ""};
  done.result = compile(o, source, trace, listener(is_corpus ? source.name + ": " : ""));
  forget_best();
  const CompileResult& r = done.result;
  show(r.diagnostics, {source});
  for (const std::string& n : r.notes) log_note(n);
  if (!r.interrupted.empty()) log_text(r.interrupted + "\n");
  if (!r.summary.empty()) log_progress(r.summary);
  done.exit = r.exit;
  if (o.explain && !r.explanation.empty()) done.exit = more_severe(done.exit, print_out(r.explanation));
  if (o.stats) log_text(trace.print_stats());
  if (o.time) log_text(trace.print_times());
  if (!o.trace.empty()) done.chrome = trace.chrome_json(r.name);
  if (!o.dump_dir.empty()) {
    const std::string folder = is_corpus ? (fs::path(o.dump_dir) / r.name).string() : o.dump_dir;
    done.exit = more_severe(done.exit, show(write_dump(folder, trace.products())));
  }
  return done;
}

/// Names become folders in corpus mode: two results must not end in one.
Diagnostics check_duplicates(const std::vector<Source>& sources, const Options& o) {
  std::map<std::string, std::string> seen;
  Diagnostics errors;
  for (const Source& s : sources) {
    const std::string name = program_name(s, o);
    if (name.empty()) continue;   // its errors come when it is compiled
    auto [at, is_new] = seen.emplace(name, s.name);
    if (!is_new) errors.push_back({Severity::kError, DiagCode::kUsage, {s.name, 0, 0, 1}, "the name '" + name + "' is taken by " + at->second, {{{}, "set another \"name\" in the spec"}}});
  }
  return errors;
}

/// What belongs to the whole run: the thread that ends an interrupted one writes it as well.
struct Corpus {
  const Options o;
  const bool is_corpus;
  std::optional<Source> baseline;
  std::mutex mutex;
  ExitCode exit = ExitCode::kOk;
  std::vector<std::string> reports;
  std::vector<CompileResult> results;
  std::string chrome;

  void add(CompileResult r, ExitCode its_exit, std::string its_chrome) {
    std::lock_guard lock(mutex);
    exit = more_severe(exit, its_exit);
    reports.push_back(r.timed_report);
    results.push_back(std::move(r));
    chrome = std::move(its_chrome);
  }
  ExitCode write() {
    std::lock_guard lock(mutex);
    if (!o.report.empty()) {
      std::string text = reports.empty() ? "{}\n" : reports[0];
      if (is_corpus) text = fmt::format("{{\"schema_version\": 1, \"exit_code\": {}, \"specs\": [\n{}]}}\n", static_cast<int>(exit), fmt::join(reports, ",\n"));
      exit = more_severe(exit, show(write_file(o.report, text)));
    }
    if (!o.trace.empty()) exit = more_severe(exit, show(write_file(o.trace, chrome)));
    if (!o.junit.empty()) exit = more_severe(exit, show(write_file(o.junit, junit_xml(results))));
    if (baseline) exit = more_severe(exit, show(compare_with_baseline(*baseline, reports)));
    return exit;
  }
  /// For the thread that ends an interrupted run: what it has written, if there was anything.
  void end_interrupted(const CompileResult* r) {
    if (!r) {
      log_text("interrupted: nothing was written: there was no result yet\n");
    } else {
      show(r->diagnostics);
      log_text((r->interrupted.empty() ? "interrupted: nothing was written" : r->interrupted) + "\n");
      add(*r, more_severe(r->exit, interrupted_code()), "");
    }
    write();
  }
};

ExitCode run_compile(const Options& o, const std::vector<Source>& sources, bool is_corpus) {
  if (o.output.empty()) return usage("no output folder: give -o DIR (or one of --check, --canonicalize, --verify, --run)");
  if (auto errors = check_duplicates(sources, o); !errors.empty()) return show(errors);
  const auto corpus = std::shared_ptr<Corpus>(new Corpus{o, is_corpus, {}, {}, {}, {}, {}, {}});
  if (!o.baseline.empty()) {   // read before the long work
    auto text = read_source(o.baseline);
    if (!text) return show(text.errors());
    if (auto errors = compare_with_baseline(*text, {}); !errors.empty()) return show(errors);
    corpus->baseline = std::move(*text);
  }
  expect_interrupts([corpus](const CompileResult* r) { corpus->end_interrupted(r); });
  for (const Source& s : sources) {
    Options mine = o;
    if (is_corpus) mine.output = (fs::path(o.output) / program_name(s, o)).string();
    if (is_corpus && !o.checkpoint.empty()) mine.checkpoint += "." + program_name(s, o);
    Compiled one = compile_one(mine, s, is_corpus);
    corpus->add(std::move(one.result), one.exit, std::move(one.chrome));
    if (is_interrupted()) break;
  }
  before_writing();
  const ExitCode exit = corpus->write();
  return is_interrupted() ? interrupted_code() : exit;
}

ExitCode run(const std::vector<std::string>& arguments) {
  auto line = parse_command_line(arguments);
  if (!line) {
    ExitCode exit = show(line.errors());
    return exit;
  }
  const Options& o = line->options;
  if (line->help) return print_out(line->help_text);
  if (line->version_json) return print_out(version_json(MIRAGE_VERSION));
  if (line->version) return print_out(fmt::format("mirage-opt {}\n", MIRAGE_VERSION));
  init_log(o.quiet);
  Diagnostics errors = check_emit_list(o.emit);
  for (const std::string& stage : o.print_after)
    if (const auto& known = printed_stages(); stage != "all" && std::find(known.begin(), known.end(), stage) == known.end()) {
      Diagnostic d{Severity::kError, DiagCode::kUsage, {}, fmt::format("--print-after: there is no stage '{}'; stages: {}", stage, fmt::join(known, ", ")), {}};
      if (const std::string near = nearest(stage, known); !near.empty()) d.notes.push_back({{}, "did you mean '" + near + "'?"});
      errors.push_back(d);
    }
  if (!errors.empty()) return show(errors);
  if (auto exit = run_plain_mode(o)) return *exit;
  if (o.specs.empty() && o.certificate.empty() && o.einsum.empty()) return usage("no spec given");
  auto paths = expand_folders(o.specs);
  if (!paths) return show(paths.errors());
  std::vector<Source> sources;
  ExitCode exit = ExitCode::kOk;
  for (const std::string& path : *paths) {
    auto source = read_program(path, o);
    if (source) sources.push_back(std::move(*source));
    else exit = more_severe(exit, show(source.errors()));
  }
  if (!o.einsum.empty()) {
    auto source = einsum_source(o.einsum);
    if (!source) return show(source.errors());
    sources.push_back(std::move(*source));
  }
  if (exit != ExitCode::kOk) return exit;
  if (auto mode = run_spec_mode(o, sources)) return *mode;
  std::error_code ignored;
  const bool is_corpus = sources.size() > 1 || std::any_of(o.specs.begin(), o.specs.end(), [&](const std::string& p) { return p != "-" && fs::is_directory(p, ignored); });
  return run_compile(o, sources, is_corpus);
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

// Corpus mode. With -j several specs are compiled at a time, each in a copy of this process: one that crashes or takes all memory costs its
// own result only, and interrupts reach each as they reach a run of one spec.
#include "corpus.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "interruption.h"
#include "mirage/driver/dump.h"
#include "mirage/driver/models.h"
#include "mirage/driver/modes.h"
#include "mirage/spec/json_text.h"
#include "mirage/support/file.h"
#include "mirage/support/log.h"
#include "mirage/support/warden.h"
#include "mirage/support/worker_pool.h"

namespace mirage {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

Diagnostic wrong_usage(const std::string& text) {
  return {Severity::kError, DiagCode::kUsage, {}, text, {{{}, "mirage-opt --help lists the flags"}}};
}

// ---- which specs

/// A folder that a run has written a result to.
bool is_result(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / "certificate.json", ignored) && fs::is_regular_file(folder / "report.json", ignored);
}

Diagnostics find_in_folder(const std::string& folder, const std::vector<std::string>& left_out,
                           std::vector<std::pair<std::string, std::string>>& out) {
  const auto failure = [&](const std::string& text) {
    return Diagnostics{{Severity::kError, DiagCode::kFileMissing, {folder, 0, 0, 1}, text, {}}};
  };
  std::error_code error;
  std::vector<std::pair<std::string, std::string>> found;
  fs::recursive_directory_iterator at(folder, error);
  for (const fs::recursive_directory_iterator end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    const fs::path& path = at->path();
    if (at->is_directory(ignored)) {
      const bool is_own =
          std::any_of(left_out.begin(), left_out.end(), [&](const std::string& o) { return fs::equivalent(path, o, ignored); });
      if (is_own || path.filename().string().starts_with(".") || is_result(path)) at.disable_recursion_pending();
      continue;
    }
    if (path.extension() != ".json" && path.extension() != ".mg" && !is_model(path.string())) continue;
    const std::string under = path.parent_path().lexically_relative(folder).generic_string();
    found.emplace_back(path.string(), under == "." ? "" : under);
  }
  if (error) return failure("cannot read the folder: " + error.message());
  if (found.empty()) return failure("no spec (*.json, *.mg, *.onnx) is in the folder");
  std::sort(found.begin(), found.end());
  out.insert(out.end(), found.begin(), found.end());
  return {};
}

/// "2/4": part 2 of 4.
Result<std::pair<int, int>> read_shard(const std::string& text) {
  int part = 0, parts = 0;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, part);
  const bool has_slash = first.ec == std::errc() && first.ptr != end && *first.ptr == '/';
  const auto second = has_slash ? std::from_chars(first.ptr + 1, end, parts) : first;
  if (!has_slash || second.ec != std::errc() || second.ptr != end || part < 1 || part > parts || parts > 100000)
    return wrong_usage(fmt::format("--shard: '{}' is no part such as 1/4", text));
  return std::pair(part, parts);
}

struct Job {
  SpecFile file;
  std::string name, folder;   ///< folder: of its results, relative to -o; "" outside of a corpus
};

/// Names become folders in corpus mode: two results must not end in one.
Diagnostics check_duplicates(const std::vector<Job>& jobs) {
  std::map<std::string, std::string> seen;
  Diagnostics errors;
  for (const Job& j : jobs) {
    if (j.name.empty()) continue;   // its errors come when it is compiled
    const auto [at, is_new] = seen.emplace((fs::path(j.file.under) / j.name).generic_string(), j.file.source.name);
    if (!is_new)
      errors.push_back({Severity::kError,
                        DiagCode::kUsage,
                        {j.file.source.name, 0, 0, 1},
                        "the name '" + j.name + "' is taken by " + at->second,
                        {{{}, "set another \"name\" in the spec"}}});
  }
  return errors;
}

// ---- one spec

/// out: for standard output; told: standard error has what an interrupt left written
struct Compiled { SpecOutcome outcome; std::string out, chrome; bool told = false; };

/// A signal that came when a spec was through. is_cut: others were to follow.
void tell_late_interrupt(bool told, bool is_cut) {
  if (!is_interrupted() || told) return;
  log_text(is_cut ? "interrupted: what was begun is written; the other specs were not begun\n"
                  : "interrupted: all that was asked for is written\n");
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

SpecOutcome outcome_of(const CompileResult& r, ExitCode exit, const Job& job) {
  SpecOutcome out;
  out.exit = exit, out.name = r.name;
  out.folder = r.name.empty() && !job.folder.empty() ? job.file.source.name : job.folder;   // one that cannot be read is known by its file
  out.summary = r.summary, out.report = r.report, out.timed_report = r.timed_report;
  for (const Diagnostic& d : r.diagnostics)
    if (d.severity == Severity::kError) out.errors += render(d, "");
  return out;
}

/// Options of one spec of a run.
Options options_of(const Options& o, const Job& job, bool is_corpus, int threads) {
  Options mine = o;
  std::string flat = job.folder;
  std::replace(flat.begin(), flat.end(), '/', '.');
  if (is_corpus) {
    mine.output = (fs::path(o.output) / job.folder).string();
    if (!o.checkpoint.empty()) mine.checkpoint += "." + flat;
    if (!o.dump_dir.empty()) mine.dump_dir = (fs::path(o.dump_dir) / job.folder).string();
  }
  if (threads > 0) mine.jobs = threads;
  return mine;
}

/// One spec: compile, then what the see-inside flags want.
Compiled compile_one(const Options& o, const Job& job, bool is_corpus) {
  const auto begin = std::chrono::steady_clock::now();
  const Source& source = job.file.source;
  Trace trace({o.print_after, !o.dump_dir.empty(), true, [](const std::string& s) { log_text(s); }});
  Compiled done;
  const CompileResult r = compile(o, source, trace, listener(is_corpus ? source.name + ": " : ""));
  forget_best();
  show(r.diagnostics, {source});
  for (const std::string& n : r.notes) log_note(n);
  if (!r.interrupted.empty()) log_text(r.interrupted + "\n");
  if (!r.summary.empty()) log_progress(r.summary);
  ExitCode exit = r.exit;
  if (o.explain) done.out += r.explanation;
  if (o.explain_result) done.out += r.steps;
  if (o.stats) log_text(trace.print_stats());
  if (o.time) log_text(trace.print_times());
  if (!o.trace.empty()) done.chrome = trace.chrome_json(r.name);
  if (!o.dump_dir.empty()) {
    exit = more_severe(exit, show(write_dump(o.dump_dir, trace.products())));
  }
  done.told = !r.interrupted.empty();
  done.outcome = outcome_of(r, exit, job);
  done.outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return done;
}

// ---- what belongs to the whole run

/// The thread that ends an interrupted run writes it as well.
class Whole {
 public:
  Whole(Options o, bool is_corpus, std::vector<Job> jobs)
      : o_(std::move(o)), is_corpus_(is_corpus), jobs_(std::move(jobs)), done_(jobs_.size()) {}

  const Options& options() const { return o_; }
  bool is_corpus() const { return is_corpus_; }
  const std::vector<Job>& jobs() const { return jobs_; }

  /// Read before the long work.
  Diagnostics read_baseline() {
    if (o_.baseline.empty()) return {};
    std::error_code ignored;
    is_folder_ = fs::is_directory(o_.baseline, ignored);
    auto text = is_folder_ ? baseline_of_folder(o_.baseline) : read_source(o_.baseline);
    if (!text) return text.errors();
    if (auto errors = compare_with_baseline(*text, {}); !errors.empty()) return errors;
    baseline_ = std::move(*text);
    return {};
  }

  void add(size_t job, Compiled c) {
    std::lock_guard lock(mutex_);
    exit_ = more_severe(exit_, c.outcome.exit);
    if (!c.out.empty()) exit_ = more_severe(exit_, print_out(c.out));
    if (!c.chrome.empty()) chrome_ = std::move(c.chrome);
    done_[job] = std::move(c.outcome);
    count_++;
    const bool is_time = count_ <= 100 || count_ * 20 >= written_ * 21;   // each as it ends; of very many every twentieth part
    if (!is_corpus_ || o_.report.empty() || !is_time || count_ == jobs_.size()) return;
    written_ = count_;
    show(write_file(o_.report, corpus_report(outcomes())));
  }

  ExitCode write() {
    std::lock_guard lock(mutex_);
    const std::vector<SpecOutcome> all = outcomes();
    Diagnostics slower = is_interrupted() ? Diagnostics{} : slower_than_baseline(all);
    exit_ = more_severe(exit_, show(slower));
    if (!o_.report.empty())
      exit_ = more_severe(exit_, show(write_file(o_.report, is_corpus_ ? corpus_report(all) : all.empty() ? "{}\n" : all[0].timed_report)));
    if (!o_.trace.empty()) exit_ = more_severe(exit_, show(write_file(o_.trace, chrome_)));
    if (!o_.junit.empty()) exit_ = more_severe(exit_, show(write_file(o_.junit, junit_xml(all, slower_by_name(slower)))));
    const bool wants_page = o_.emit.empty() || std::find(o_.emit.begin(), o_.emit.end(), "html") != o_.emit.end();
    if (is_corpus_ && wants_page && o_.shard.empty()) exit_ = more_severe(exit_, show(write_corpus_index(o_.output, all)));
    return exit_;
  }

  /// For the thread that ends an interrupted run of one process: what it has written, if there was anything.
  void end_interrupted(size_t job, const CompileResult* r) {
    if (!r) {
      log_text("interrupted: nothing was written: there was no result yet\n");
    } else {
      show(r->diagnostics);
      log_text((r->interrupted.empty() ? "interrupted: nothing was written" : r->interrupted) + "\n");
      add(job, {outcome_of(*r, more_severe(r->exit, interrupted_code()), jobs_[job]), "", ""});
    }
    write();
  }

 private:
  std::vector<SpecOutcome> outcomes() const {
    std::vector<SpecOutcome> out;
    for (const auto& d : done_) if (d) out.push_back(*d);
    return out;
  }

  /// What was timed beside its earlier library is judged by that; the rest by the reports.
  Diagnostics slower_than_baseline(const std::vector<SpecOutcome>& all) {
    Diagnostics out;
    if (!baseline_) return out;
    std::vector<std::string> reports;
    for (const SpecOutcome& s : all) {
      const bool is_timed = is_folder_ && !o_.no_measure && s.exit == ExitCode::kOk;
      const auto times = is_timed ? time_against((fs::path(o_.baseline) / s.folder).string(), (fs::path(o_.output) / s.folder).string(), o_,
                                                 interrupt_flag())
                                  : std::nullopt;
      const std::string name = s.folder.empty() ? s.name : s.folder;
      if (times && times->is_slower) out.push_back({Severity::kError, DiagCode::kSlower, {}, name + ": " + times->text, {}});
      else if (times) log_note(name + ": " + times->text);
      if (times) continue;
      auto report = read_own_json(s.timed_report.empty() ? "{}" : s.timed_report, s.folder);
      if (!report) continue;
      if (!s.folder.empty()) (*report)["folder"] = s.folder;
      reports.push_back(report->dump(-1, ' ', false, Json::error_handler_t::replace));
    }
    const Diagnostics by_reports = compare_with_baseline(*baseline_, reports);
    out.insert(out.end(), by_reports.begin(), by_reports.end());
    return out;
  }

  const Options o_;
  const bool is_corpus_;
  const std::vector<Job> jobs_;
  std::optional<Source> baseline_;
  bool is_folder_ = false;
  std::mutex mutex_;
  ExitCode exit_ = ExitCode::kOk;
  std::vector<std::optional<SpecOutcome>> done_;   // by job
  size_t count_ = 0, written_ = 0;
  std::string chrome_;
};

// ---- several at a time

volatile std::sig_atomic_t stop_signal = 0;
extern "C" void on_stop(int number) { stop_signal = number; }

std::string as_text(const Compiled& c) {
  const SpecOutcome& s = c.outcome;
  return Json{
      {"exit", static_cast<int>(s.exit)}, {"name", s.name},       {"summary", s.summary}, {"errors", s.errors}, {"report", s.report},
      {"timed_report", s.timed_report},   {"seconds", s.seconds}, {"out", c.out},         {"chrome", c.chrome}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

Compiled from_text(const std::string& text, const Job& job, int status) {
  Compiled c;
  const Json j = read_own_json(text, job.file.source.name).value_or(Json());
  c.outcome.folder = job.folder, c.outcome.name = job.name;
  if (!j.is_object()) {   // it ended before it could say anything
    const std::string how = WIFSIGNALED(status)
                                ? fmt::format("its process ended by signal {}", WTERMSIG(status))
                                : fmt::format("its process ended with exit code {}", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    c.outcome.exit = WIFEXITED(status) && WEXITSTATUS(status) != 0 ? static_cast<ExitCode>(WEXITSTATUS(status)) : ExitCode::kBug;
    c.outcome.errors = how + "\n";
    c.outcome.timed_report = Json{{"schema_version", 1}, {"tool", "mirage-opt"}, {"name", job.name},
                                  {"exit_code", static_cast<int>(c.outcome.exit)},
                                  {"errors", Json::array({{{"code", "E0001"}, {"text", how}}})}}
                                 .dump(2) +
                             "\n";
    log_text(fmt::format("mirage-opt: bug: {}: {}\n", job.file.source.name, how));
    return c;
  }
  c.outcome.exit = static_cast<ExitCode>(j["exit"].get<int>());
  c.outcome.name = j["name"].get<std::string>();
  if (c.outcome.name.empty()) c.outcome.folder = job.file.source.name;
  c.outcome.summary = j["summary"].get<std::string>(), c.outcome.errors = j["errors"].get<std::string>();
  c.outcome.report = j["report"].get<std::string>(), c.outcome.timed_report = j["timed_report"].get<std::string>();
  c.outcome.seconds = j["seconds"].get<double>();
  c.out = j["out"].get<std::string>(), c.chrome = j["chrome"].get<std::string>();
  return c;
}

/// In the copy: one spec, whose outcome goes into a file. Does not return.
[[noreturn]] void work(const Options& o, const Job& job, bool is_corpus, const std::string& file) {
  setpgid(0, 0);                      // an interrupt from the terminal comes through the parent, once
  prctl(PR_SET_PDEATHSIG, SIGTERM);   // whose end is one, too
  for (int s : {SIGINT, SIGTERM}) std::signal(s, SIG_DFL);
  expect_interrupts([&](const CompileResult* r) {
    if (!r) return;
    log_text((r->interrupted.empty() ? "interrupted: nothing was written" : r->interrupted) + "\n");
    write_file(file, as_text({outcome_of(*r, more_severe(r->exit, interrupted_code()), job), "", ""}));
  });
  int code = static_cast<int>(ExitCode::kBug);
  try {
    Compiled c = compile_one(o, job, is_corpus);
    before_writing();
    tell_late_interrupt(c.told, false);
    code = static_cast<int>(is_interrupted() ? interrupted_code() : c.outcome.exit);
    write_file(file, as_text(c));
  } catch (const std::exception& e) {
    log_text(fmt::format("mirage-opt: bug: {}: {}\n", job.file.source.name, e.what()));
  }
  end_warden();
  _exit(code);
}

/// All jobs, at most so many at a time.
void spread(Whole& whole, const std::vector<size_t>& todo, int workers, int threads) {
  const TemporaryFolder folder;
  std::map<pid_t, size_t> running;
  size_t next = 0;
  bool told = false;
  struct sigaction action {};
  action.sa_handler = on_stop;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (int s : {SIGINT, SIGTERM}) sigaction(s, &action, nullptr);
  const auto file_of = [&](size_t i) { return fmt::format("{}/{}", folder.path(), i); };
  while (!running.empty() || (next < todo.size() && stop_signal == 0)) {
    while (stop_signal == 0 && next < todo.size() && running.size() < static_cast<size_t>(workers)) {
      const size_t i = todo[next++];
      std::fflush(nullptr);
      const pid_t pid = fork();
      if (pid == 0)
        work(options_of(whole.options(), whole.jobs()[i], whole.is_corpus(), threads), whole.jobs()[i], whole.is_corpus(), file_of(i));
      if (pid < 0) {   // no more processes: those that run make room
        next--;
        break;
      }
      setpgid(pid, pid);
      running[pid] = i;
    }
    if (stop_signal != 0 && !std::exchange(told, true))
      for (const auto& [pid, i] : running) kill(pid, static_cast<int>(stop_signal));
    bool ended = false;
    for (auto at = running.begin(); at != running.end();) {
      int status = 0;
      if (waitpid(at->first, &status, WNOHANG) != at->first) {
        ++at;
        continue;
      }
      const auto text = read_file(file_of(at->second));
      whole.add(at->second, from_text(text ? *text : "", whole.jobs()[at->second], status));
      at = running.erase(at);
      ended = true;
    }
    if (!ended) usleep(5000);
  }
}

}  // namespace

Result<std::vector<SpecFile>> find_specs(const Options& o) {
  std::vector<std::string> left_out;
  for (const std::string& own : {o.output, o.cache, o.dump_dir}) if (!own.empty()) left_out.push_back(own);
  std::vector<std::pair<std::string, std::string>> paths;
  for (const std::string& path : o.specs) {
    std::error_code ignored;
    if (path == "-" || !fs::is_directory(path, ignored)) paths.emplace_back(path, "");
    else if (auto errors = find_in_folder(path, left_out, paths); !errors.empty()) return errors;
  }
  std::vector<SpecFile> out;
  Diagnostics errors;
  for (const auto& [path, under] : paths) {
    auto source = read_program(path, o);
    if (source) out.push_back({std::move(*source), under});
    else errors.insert(errors.end(), source.errors().begin(), source.errors().end());
  }
  if (!errors.empty()) return errors;
  return out;
}

ExitCode run_corpus(const Options& o, std::vector<SpecFile> specs, bool is_corpus) {
  if (o.output.empty()) return show({wrong_usage("no output folder: give -o DIR (or one of --check, --canonicalize, --verify, --run)")});
  std::pair<int, int> shard = {1, 1};
  if (!o.shard.empty()) {
    const auto read = read_shard(o.shard);
    if (!read) return show(read.errors());
    shard = *read;
  }
  std::vector<Job> jobs;
  for (SpecFile& f : specs) {
    const std::string name = program_name(f.source, o);
    const std::string last = name.empty() ? fs::path(f.source.name).stem().string() : name;
    jobs.push_back({std::move(f), name, ""});
    if (is_corpus) jobs.back().folder = (fs::path(jobs.back().file.under) / last).generic_string();
  }
  if (auto errors = check_duplicates(jobs); !errors.empty()) return show(errors);
  if (shard.second > 1) std::erase_if(jobs, [&](const Job& j) { return shard_of(j.file.source, o, shard.second) != shard.first; });
  const auto whole = std::make_shared<Whole>(o, is_corpus, std::move(jobs));
  if (auto errors = whole->read_baseline(); !errors.empty()) return show(errors);
  std::vector<size_t> todo;
  for (size_t i = 0; i < whole->jobs().size(); i++) {
    const Job& job = whole->jobs()[i];
    const auto finished = o.resume ? finished_report(options_of(o, job, is_corpus, 0), job.file.source) : std::nullopt;
    if (!finished) {
      todo.push_back(i);
      continue;
    }
    log_progress(job.file.source.name + ": done before");
    SpecOutcome out;
    out.name = job.name, out.folder = job.folder, out.report = out.timed_report = *finished, out.summary = job.name + ": done before";
    whole->add(i, {out, "", ""});
  }
  const int threads = num_threads(o.jobs), workers = static_cast<int>(std::min<size_t>(static_cast<size_t>(threads), todo.size()));
  if (is_corpus && workers > 1) {
    spread(*whole, todo, workers, std::max(1, threads / workers));
    const ExitCode exit = whole->write();
    return stop_signal == 0 ? exit : stop_signal == SIGTERM ? ExitCode::kTerminated : ExitCode::kInterrupted;
  }
  const auto current = std::make_shared<size_t>(todo.empty() ? 0 : todo[0]);
  expect_interrupts([whole, current](const CompileResult* r) { whole->end_interrupted(*current, r); });
  bool told = false, is_cut = false;
  for (size_t i : todo) {
    *current = i;
    Compiled c = compile_one(options_of(o, whole->jobs()[i], is_corpus, 0), whole->jobs()[i], is_corpus);
    told |= c.told;
    whole->add(i, std::move(c));
    if (is_interrupted()) { is_cut = i != todo.back(); break; }
  }
  before_writing();
  const ExitCode exit = whole->write();
  tell_late_interrupt(told, is_cut);
  return is_interrupted() ? interrupted_code() : exit;
}

ExitCode merge_reports(const Options& o) {
  std::vector<Source> reports;
  for (const std::string& path : o.specs) {
    auto source = read_source(path);
    if (!source) return show(source.errors());
    reports.push_back(std::move(*source));
  }
  if (reports.empty()) return show({wrong_usage("--merge-reports: no report given")});
  auto outcomes = read_corpus_reports(reports);
  if (!outcomes) return show(outcomes.errors());
  ExitCode exit = show(write_file(o.merge_reports, corpus_report(*outcomes)));
  Diagnostics slower;
  if (!o.baseline.empty()) {
    std::error_code ignored;
    const auto baseline = fs::is_directory(o.baseline, ignored) ? baseline_of_folder(o.baseline) : read_source(o.baseline);
    if (!baseline) return show(baseline.errors());
    slower = compare_with_baseline(*baseline, {corpus_report(*outcomes)});
    exit = more_severe(exit, show(slower));
  }
  if (!o.junit.empty()) exit = more_severe(exit, show(write_file(o.junit, junit_xml(*outcomes, slower_by_name(slower)))));
  if (!o.output.empty()) exit = more_severe(exit, show(write_corpus_index(o.output, *outcomes)));
  return exit;
}

}  // namespace mirage

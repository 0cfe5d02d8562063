// spdlog on standard error with our own colours: none in pipes, with NO_COLOR or on a dumb terminal.
#include "mirage/support/log.h"

#include <cstdlib>
#include <memory>
#include <mutex>
#include <string_view>

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "mirage/support/foreign.h"

namespace mirage {

namespace {

struct State {
  bool quiet = false, live = false, color = false, has_live_line = false;
  std::shared_ptr<spdlog::logger> out;
  std::mutex mutex;
};

State& state() {
  static State s;
  if (!s.out) {
    s.out = std::make_shared<spdlog::logger>("mirage-opt", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    s.out->set_formatter(std::make_unique<spdlog::pattern_formatter>("%v", spdlog::pattern_time_type::local, ""));
    s.out->set_level(spdlog::level::trace);
    s.out->flush_on(spdlog::level::trace);
  }
  return s;
}

void emit(const std::string& text) {
  State& s = state();
  if (s.has_live_line) s.out->info("\r\033[K{}", text);
  else s.out->info("{}", text);
  s.has_live_line = false;
}

std::string with_newline(std::string text) {
  if (text.empty() || text.back() != '\n') text += '\n';
  return text;
}

/// What others wrote may stand in it: lines behind the first begin with spaces, so that none can be taken for a message.
std::string fit(const std::string& text) {
  constexpr size_t kMost = 2000;
  const size_t end = text.find_last_not_of('\n');
  return end == std::string::npos ? "" : shortened(shown(text.substr(0, end + 1), "\n  "), kMost, kMost);
}

/// "error:" red, "warning:" magenta, "note:" cyan, the caret line green, as clang paints them.
std::string painted(const std::string& text) {
  struct Word { const char* word; const char* color; };
  static constexpr Word kWords[] = {{" error: ", "\033[1;31m"}, {" warning: ", "\033[1;35m"}, {" note: ", "\033[1;36m"}};
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    size_t end = text.find('\n', at);
    end = end == std::string::npos ? text.size() : end;
    std::string line = text.substr(at, end - at);
    if (line.starts_with("  ") && line.find_first_not_of(" ^~") == std::string::npos) {
      line = "\033[1;32m" + line + "\033[0m";
    } else if (!line.starts_with("  ")) {
      for (const Word& w : kWords)
        if (auto found = line.find(w.word); found != std::string::npos) {
          const size_t length = std::string_view(w.word).size();
          line = "\033[1m" + line.substr(0, found) + w.color + line.substr(found, length) + "\033[0m" + line.substr(found + length);
          break;
        }
    }
    out += line + "\n";
    at = end + 1;
  }
  return out;
}

}  // namespace

void init_log(bool quiet) {
  State& s = state();
  const char* term = std::getenv("TERM");
  const char* no_color = std::getenv("NO_COLOR");
  const bool is_terminal = ::isatty(STDERR_FILENO) == 1 && term && std::string_view(term) != "dumb";
  s.quiet = quiet;
  s.live = is_terminal;
  s.color = is_terminal && !(no_color && *no_color);
}

void log_progress(const std::string& line) {
  std::lock_guard lock(state().mutex);
  if (!state().quiet) emit(with_newline(fit(line)));
}

void log_live(const std::string& line) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (s.quiet || !s.live) return;
  s.out->info("\r\033[K{}", shown(line));
  s.has_live_line = true;
}

void log_note(const std::string& text) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (s.quiet) return;
  const std::string line = "mirage-opt: note: " + fit(text) + "\n";
  emit(s.color ? painted(line) : line);
}

void log_text(const std::string& text) {
  std::lock_guard lock(state().mutex);
  emit(with_newline(text));
}

void log_diagnostic(const Diagnostic& d, const std::string& source) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (s.quiet && d.severity != Severity::kError) return;
  const std::string text = render(d, source);
  emit(s.color ? painted(text) : text);
}

}  // namespace mirage

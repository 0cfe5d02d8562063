// The table of diagnostics and their rendering as clang does it. Library code makes diagnostics; only cmd/ prints what render() returns.
#include "mirage/support/diagnostic.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "mirage/support/foreign.h"

namespace mirage {

namespace {

struct Row { const char* code; ExitCode exit; const char* help; };

const Row& row(DiagCode code) {
  static const Row rows[] = {
#define DIAGNOSTIC(id, code, exit, help) {code, exit, help},
#include "mirage/support/diagnostics.def"
#undef DIAGNOSTIC
  };
  return rows[static_cast<size_t>(code)];
}

const char* severity_name(Severity s) {
  switch (s) {
    case Severity::kNote: return "note";
    case Severity::kWarning: return "warning";
    case Severity::kError: return "error";
  }
  return "error";
}

/// of a message with its notes; one that is a file's name or what a compiler printed may be any length
constexpr size_t kMostBytes = 2000;
constexpr size_t kMostText = 700, kMostPath = 400, kMostNote = 1000;

std::string place(const SourceLocation& where) {
  if (where.file.empty()) return "mirage-opt: ";
  const std::string file = shortened(shown(where.file), kMostPath, kMostPath);
  if (where.line <= 0) return file + ": ";
  return file + ":" + std::to_string(where.line) + ":" + std::to_string(where.col) + ": ";
}

/// The 1-based line of text, without its end; empty if there is no such line.
std::string_view line_of(std::string_view text, int line) {
  size_t at = 0;
  for (int i = 1; i < line; i++) {
    at = text.find('\n', at);
    if (at == std::string_view::npos) return {};
    at++;
  }
  std::string_view rest = text.substr(at);
  rest = rest.substr(0, rest.find('\n'));
  if (!rest.empty() && rest.back() == '\r') rest.remove_suffix(1);
  return rest;
}

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

/// A part of a source line as a terminal may see it, and how many columns each of its bytes takes: what is no character, or a control, is a
/// '?', a tab one space.
struct Shown { std::string text; std::vector<int> columns; };
Shown displayable(std::string_view s) {
  Shown out;
  for (size_t i = 0; i < s.size();) {
    const Utf8 u = utf8_at(s, i);
    const size_t bytes = std::max<size_t>(1, u.bytes);
    out.text += u.code == '\t' ? " " : u.bytes == 0 || is_control(u.code) ? "?" : s.substr(i, bytes);
    out.columns.push_back(1);
    out.columns.insert(out.columns.end(), bytes - 1, 0);
    i += bytes;
  }
  return out;
}

/// The source line and a caret range below it. Long lines (generated JSON) are cut to a window around the caret.
std::string excerpt(const SourceLocation& where, const std::string& source) {
  if (where.line <= 0 || where.col <= 0 || source.empty()) return "";
  std::string_view line = line_of(source, where.line);
  if (line.empty()) return "";
  constexpr size_t kWindow = 160;
  size_t begin = std::min(static_cast<size_t>(where.col - 1), line.size());
  size_t end = std::min(line.size(), begin + static_cast<size_t>(std::max(1, where.length)));
  size_t from = 0, to = line.size();
  if (line.size() > kWindow) {
    from = begin > kWindow / 2 ? begin - kWindow / 2 : 0;
    for (int i = 0; i < 3 && from > 0 && is_continuation(line[from]); i++) from--;   // 3: what is no UTF-8 may have any number of them
    to = std::min(line.size(), from + kWindow);
    for (int i = 0; i < 3 && to < line.size() && is_continuation(line[to]); i++) to++;
    end = std::min(end, to);
  }
  const Shown shown_line = displayable(line.substr(from, to - from));
  std::string out = "  " + std::string(from > 0 ? "..." : "") + shown_line.text + (to < line.size() ? "..." : "") + "\n  ";
  if (from > 0) out += "   ";
  const auto columns = [&](size_t i) { return static_cast<size_t>(shown_line.columns[i - from]); };
  for (size_t i = from; i < begin; i++) out += std::string(columns(i), ' ');
  out += '^';
  for (size_t i = begin + 1; i < end; i++) out += std::string(columns(i), '~');
  return out + "\n";
}

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); i++) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); j++) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before = last;
    last = now;
  }
  return last[b.size()];
}

}  // namespace

const char* code_name(DiagCode code) { return row(code).code; }
const char* code_help(DiagCode code) { return row(code).help; }
ExitCode exit_code_of(DiagCode code) { return row(code).exit; }

std::string render(const Diagnostic& d, const std::string& source) {
  std::string out = place(d.where) + severity_name(d.severity) + ": " + shortened(shown(d.text), kMostText) + " [" + code_name(d.code) +
                    "]\n" + excerpt(d.where, source);
  size_t left = d.notes.size();
  for (const Note& note : d.notes) {
    const SourceLocation& where = note.where.file.empty() ? d.where : note.where;
    // a line of a note begins with spaces: none can be taken for a message
    std::string more = place(where) + "note: " + shortened(shown(note.text, "\n  "), kMostNote) + "\n";
    // A note at the place of the error itself would repeat the same line.
    if (!note.where.file.empty() && (note.where.line != d.where.line || note.where.col != d.where.col) && note.where.file == d.where.file)
      more += excerpt(note.where, source);
    if (out.size() + more.size() > kMostBytes) {
      out += place(d.where) + "note: " + std::to_string(left) + (left == d.notes.size() ? "" : " further") +
             (left == 1 ? " note is" : " notes are") + " too long to be shown\n";
      break;
    }
    out += more;
    left--;
  }
  return out;
}

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  if (word.empty() || word.size() > 128) return "";
  size_t limit = word.size() > 8 ? 3 : 2;
  std::string best;
  size_t best_distance = limit + 1;
  for (const std::string& c : candidates) {
    size_t difference = c.size() > word.size() ? c.size() - word.size() : word.size() - c.size();
    if (difference > limit) continue;
    size_t distance = edit_distance(word, c);
    // A word of one or two letters is within two edits of everything of its length: at least one letter must be right. Of equals the one
    // that continues the word: sm_90a for sm_90, not sm_80.
    const bool is_better = distance < best_distance || (distance == best_distance && c.starts_with(word) && !best.starts_with(word));
    if (is_better && distance <= limit && distance < std::max(word.size(), c.size())) {
      best = c;
      best_distance = distance;
    }
  }
  if (!best.empty()) return best;
  // "rms" for "rms_norm": the shortest candidate that continues the word, or that the word continues.
  for (const std::string& c : candidates) {
    bool is_prefix = word.size() >= 3 && c.size() >= 3 && (c.starts_with(word) || word.starts_with(c));
    if (is_prefix && (best.empty() || c.size() < best.size())) best = c;
  }
  return best;
}

}  // namespace mirage

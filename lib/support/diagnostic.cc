// The table of diagnostics and their rendering as clang does it. Library code makes diagnostics; only cmd/ prints what render() returns.
#include "mirage/support/diagnostic.h"

#include <algorithm>
#include <numeric>
#include <string_view>

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

std::string place(const SourceLocation& where) {
  if (where.file.empty()) return "mirage-opt: ";
  if (where.line <= 0) return where.file + ": ";
  return where.file + ":" + std::to_string(where.line) + ":" + std::to_string(where.col) + ": ";
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

/// Characters that a terminal must not see from a file: control codes become '?', tabs one space so that the caret stays below its character.
std::string displayable(std::string_view s) {
  std::string out;
  for (char c : s) out += c == '\t' ? ' ' : (static_cast<unsigned char>(c) < 32 || c == 127) ? '?' : c;
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
    while (from > 0 && is_continuation(line[from])) from--;
    to = std::min(line.size(), from + kWindow);
    while (to < line.size() && is_continuation(line[to])) to++;
    end = std::min(end, to);
  }
  std::string out = "  " + std::string(from > 0 ? "..." : "") + displayable(line.substr(from, to - from)) + (to < line.size() ? "..." : "") + "\n  ";
  if (from > 0) out += "   ";
  // Columns count bytes; a terminal shows characters, so continuation bytes take no column.
  for (size_t i = from; i < begin; i++)
    if (!is_continuation(line[i])) out += ' ';
  out += '^';
  for (size_t i = begin + 1; i < end; i++)
    if (!is_continuation(line[i])) out += '~';
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
  std::string out = place(d.where) + severity_name(d.severity) + ": " + d.text + " [" + code_name(d.code) + "]\n" + excerpt(d.where, source);
  for (const Note& note : d.notes) {
    const SourceLocation& where = note.where.file.empty() ? d.where : note.where;
    out += place(where) + "note: " + note.text + "\n";
    // A note at the place of the error itself would repeat the same line.
    if (!note.where.file.empty() && (note.where.line != d.where.line || note.where.col != d.where.col) && note.where.file == d.where.file) out += excerpt(note.where, source);
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
    // A word of one or two letters is within two edits of everything of its length: at least one letter must be right. Of equals the one that continues the word: sm_90a for sm_90, not sm_80.
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

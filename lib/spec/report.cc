// Collects the diagnostics of one spec; see report.h.
#include "spec/report.h"
#include <algorithm>
#include <cctype>

namespace mirage::spec {

Report::Report(std::string file, std::string_view text) : file_(std::move(file)), text_(text) {
  line_starts_.push_back(0);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') line_starts_.push_back(i + 1);
  }
}

SourceLocation Report::at(Span span) const {
  SourceLocation place{file_, 0, 0, 1};
  if (span.length == 0) return place;
  size_t offset = std::min(span.offset, text_.size());
  auto next = std::upper_bound(line_starts_.begin(), line_starts_.end(), offset);
  size_t start = *(next - 1);
  place.line = static_cast<int>(next - line_starts_.begin());
  place.col = static_cast<int>(offset - start) + 1;
  size_t line_end = std::min(text_.find('\n', start), text_.size());
  place.length = static_cast<int>(std::max<size_t>(1, std::min(span.length, line_end > offset ? line_end - offset : 1)));
  return place;
}

void Report::error(DiagCode code, Span where, std::string text, std::vector<Note> notes) {
  if (full()) {
    dropped_ = true;
    return;
  }
  errors_.push_back({Severity::kError, code, at(where), std::move(text), std::move(notes)});
}

void Report::warn(DiagCode code, Span where, std::string text, std::vector<Note> notes) {
  if (static_cast<int>(warnings_.size()) < kMaxErrors)
    warnings_.push_back({Severity::kWarning, code, at(where), std::move(text), std::move(notes)});
}

std::vector<Note> Report::did_you_mean(const std::string& word, const std::vector<std::string>& candidates) {
  // A word as long as a file would cost as much to compare; nothing that long is a slip of the pen.
  std::string best;
  for (const std::string& c : candidates) {   // another case, or a beginning, says more than few edits do
    bool same = c.size() == word.size() && std::equal(c.begin(), c.end(), word.begin(),
                                                      [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); });
    bool begins = best.empty() && word.size() >= 3 && c.starts_with(word);
    if (same || begins) best = c;
    if (same) break;
  }
  if (best.empty() && word.size() <= 64) best = nearest(word, candidates);
  if (best.empty()) return {};
  return {Note{{}, "did you mean '" + best + "'?"}};
}

namespace {
void sort_by_place(Diagnostics& list) {
  std::stable_sort(list.begin(), list.end(), [](const Diagnostic& a, const Diagnostic& b) {
    return std::pair(a.where.line, a.where.col) < std::pair(b.where.line, b.where.col);
  });
}
}  // namespace

Diagnostics Report::take_errors() {
  sort_by_place(errors_);
  if (dropped_) errors_.back().notes.push_back({{}, "too many errors; the others are not shown"});
  return std::move(errors_);
}

Diagnostics Report::take_warnings() {
  sort_by_place(warnings_);
  return std::move(warnings_);
}

}  // namespace mirage::spec

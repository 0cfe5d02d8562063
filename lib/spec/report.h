// Collects the diagnostics of one spec: spans of bytes in, places (file:line:col) out; at most 20 errors, handed over in the order of the
// text.
#pragma once
#include <string>
#include <string_view>
#include <vector>
#include "mirage/support/result.h"

namespace mirage::spec {

inline constexpr int kMaxErrors = 20;

/// Bytes [offset, offset + length) of the source. length 0: the file as a whole.
struct Span { size_t offset = 0; size_t length = 0; };

/// An error inside one node's construction; thrown and caught within lib/spec only.
struct BuildError {
  DiagCode code;
  Span where;          ///< length 0: the operator's name is meant
  std::string text;
  std::vector<Note> notes;
};

class Report {
 public:
  Report(std::string file, std::string_view text);
  SourceLocation at(Span) const;
  void error(DiagCode, Span, std::string text, std::vector<Note> notes = {});
  void warn(DiagCode, Span, std::string text, std::vector<Note> notes = {});
  /// A note without a place of its own, such as "did you mean 'x'?", if there is a near candidate.
  static std::vector<Note> did_you_mean(const std::string& word, const std::vector<std::string>& candidates);
  /// The same, but nothing once no further error is shown: comparing names is slow, and a hostile spec has many wrong ones.
  std::vector<Note> hint(const std::string& word, const std::vector<std::string>& candidates) const {
    return full() ? std::vector<Note>{} : did_you_mean(word, candidates);
  }
  Note note(Span where, std::string text) const { return {at(where), std::move(text)}; }
  bool ok() const { return errors_.empty(); }
  bool full() const { return static_cast<int>(errors_.size()) >= kMaxErrors; }
  Diagnostics take_errors();     ///< sorted by place; the last one says so if some were left out
  Diagnostics take_warnings();
 private:
  std::string file_;
  std::string_view text_;
  std::vector<size_t> line_starts_;
  Diagnostics errors_, warnings_;
  bool dropped_ = false;
};

}  // namespace mirage::spec

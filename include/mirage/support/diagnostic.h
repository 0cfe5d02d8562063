// Diagnostics: what a user is told when a spec, an option or the environment is wrong.
// Library code returns them inside a Result; only cmd/ prints them (clang style: file:line:col, source line, caret, notes).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace mirage {

/// Process exit codes, the table of the user manual. kOk..kIo are listed once here and nowhere else.
enum class ExitCode : int {
  kOk = 0, kBug = 1, kUsage = 2, kInvalidSpec = 3, kUnsupported = 4, kNotEqual = 5, kNothingFound = 6, kToolchain = 7,
  kCheckFailed = 8, kRegression = 9, kFrozenMiss = 10, kIo = 11, kBudget = 124, kInterrupted = 130, kTerminated = 143,
};

enum class Severity : uint8_t { kNote, kWarning, kError };

/// A place in a source text. line and col are 1-based and count bytes; line 0 means "the file as a whole"; an empty file means "no place".
struct SourceLocation {
  std::string file;
  int line = 0;
  int col = 0;
  int length = 1;   ///< width of the caret range, at least 1
};

struct Note { SourceLocation where; std::string text; };

/// Rows of diagnostics.def: DIAGNOSTIC(id, "E0123", ExitCode, "one line that --explain-error prints").
enum class DiagCode : uint16_t {
#define DIAGNOSTIC(id, code, exit, help) id,
#include "mirage/support/diagnostics.def"
#undef DIAGNOSTIC
};

struct Diagnostic {
  Severity severity = Severity::kError;
  DiagCode code;
  SourceLocation where;
  std::string text;           ///< one sentence, lower case, no full stop
  std::vector<Note> notes;    ///< "did you mean 'matmul'?" and further places
};

const char* code_name(DiagCode);          ///< "E0123"
const char* code_help(DiagCode);
ExitCode exit_code_of(DiagCode);

/// Renders as clang does: "file:3:12: error: text [E0123]", the source line, a caret range, then notes. `source` is the text of where.file,
/// may be empty. What others wrote is shown as shown() does, and
/// cut: names at 200 bytes, the whole at about 2000.
std::string render(const Diagnostic&, const std::string& source);

/// The nearest of `candidates` to `word` within edit distance 2 (3 for words over 8 letters) or a prefix of it, else "".
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace mirage

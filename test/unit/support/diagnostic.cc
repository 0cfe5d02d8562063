// Rendering of diagnostics: exact text, as users and tests of other tools see it.
#include <catch2/catch.hpp>
#include "mirage/support/diagnostic.h"
#include "mirage/support/foreign.h"

using namespace mirage;

TEST_CASE("a diagnostic renders as clang does") {
  Diagnostic d{
      Severity::kError, DiagCode::kUnknownOp, {"specs/x.json", 2, 9, 8}, "unknown operator 'matmull'", {{{}, "did you mean 'matmul'?"}}};
  CHECK(render(d, "{\n  \"op\": \"matmull\"\n}\n") ==
        "specs/x.json:2:9: error: unknown operator 'matmull' [E0113]\n"
        "    \"op\": \"matmull\"\n"
        "          ^~~~~~~~\n"
        "specs/x.json:2:9: note: did you mean 'matmul'?\n");
}

TEST_CASE("a diagnostic without a line names the file only, without a file the program") {
  CHECK(render({Severity::kError, DiagCode::kFileMissing, {"a.json", 0, 0, 1}, "cannot read", {}}, "") ==
        "a.json: error: cannot read [E0301]\n");
  CHECK(render({Severity::kWarning, DiagCode::kUnusedInput, {}, "unused", {}}, "") == "mirage-opt: warning: unused [W0120]\n");
}

TEST_CASE("carets survive tabs, UTF-8, CRLF, long lines and places outside the text") {
  CHECK(render({Severity::kError, DiagCode::kSyntax, {"f", 1, 4, 1}, "t", {}}, "\tab\r\n") == "f:1:4: error: t [E0100]\n   ab\n     ^\n");
  CHECK(render({Severity::kError, DiagCode::kSyntax, {"f", 1, 3, 1}, "t", {}}, "\xC3\xA4x\n") ==
        "f:1:3: error: t [E0100]\n  \xC3\xA4x\n   ^\n");
  CHECK(render({Severity::kError, DiagCode::kSyntax, {"f", 9, 3, 1}, "t", {}}, "x\n") == "f:9:3: error: t [E0100]\n");
  const std::string line = std::string(500, 'a') + "!" + std::string(500, 'b');
  const std::string text = render({Severity::kError, DiagCode::kSyntax, {"f", 1, 501, 1}, "t", {}}, line);
  const size_t first = text.find('\n') + 1, second = text.find('\n', first) + 1;
  CHECK(second - first < 180);
  CHECK(text[first + (text.find('^') - second)] == '!');
  CHECK(render({Severity::kError, DiagCode::kSyntax, {"f", 1, 1, 1}, "t", {}}, "\x1b[31m\n").find('\x1b') == std::string::npos);
}

TEST_CASE("what others wrote cannot reach a terminal, or pass for a message, and is cut") {
  const std::string name =
      "a\x1b]0;PWN\x07\x7f\nspecs/gqa.json:1:1: error: forged [E0999]\n" + std::string(1, 0) + "\xff\xc2\x9b\xe2\x80\xaeq \xc3\xa4";
  const Diagnostic d{Severity::kError,
                     DiagCode::kUnknownOp,
                     {"f\x1b\n.json", 1, 1, 3},
                     "unknown operator '" + name + "'",
                     {{{}, "nvcc says\r\nx.json:1:1: error: \x1b[31mred\tq"}}};
  const std::string text = render(d, "q\x9b\xff\x1b\n");
  CHECK(text ==
        "f\\x1b\\n.json:1:1: error: unknown operator 'a\\x1b]0;PWN\\x07\\x7f\\nspecs/gqa.json:1:1: error: forged "
        "[E0999]\\n\\x00\\xff\\x9b\\u202eq \xc3\xa4' [E0113]\n"
        "  q???\n"
        "  ^~~\n"
        "f\\x1b\\n.json:1:1: note: nvcc says\n  x.json:1:1: error: \\x1b[31mred q\n");
  const std::string word =
      render({Severity::kError, DiagCode::kUnknownName, {"f", 1, 1, 1}, "no axis '" + std::string(1'000'000, 'x') + "' is known", {}}, "");
  CHECK(word.size() < 300);
  CHECK(word.find("is known [E0111]") != std::string::npos);
  std::string words;
  for (int i = 0; i < 100'000; i++) words += "ab ";
  Diagnostic many{Severity::kError, DiagCode::kCycle, {std::string(5000, 'p'), 1, 1, 1}, words, {}};
  for (int i = 0; i < 4000; i++) many.notes.push_back({{}, words});
  const std::string cut = render(many, std::string(100'000, '\x80'));
  CHECK(cut.size() < 2600);
  CHECK(cut.find("4000 notes are too long to be shown") != std::string::npos);
  for (auto& n : many.notes) n.text = "x needs y";
  many.where.file = "f";
  CHECK(render(many, "").find(" further notes are too long to be shown") != std::string::npos);
  CHECK(shortened("\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4", 10) == "\xc3\xa4\xc3\xa4\xc3\xa4...");
}

TEST_CASE("every row of the table has a code and a help, codes are unique, errors do not exit with 0") {
  std::vector<std::string> seen;
  for (int i = 0;; i++) {
    const DiagCode code = static_cast<DiagCode>(i);
    const std::string name = code_name(code);
    CHECK(std::find(seen.begin(), seen.end(), name) == seen.end());
    CHECK((name[0] == 'W') == (exit_code_of(code) == ExitCode::kOk));
    CHECK(std::string(code_help(code)).size() > 10);
    seen.push_back(name);
    if (code == DiagCode::kCertificate) break;
  }
}

TEST_CASE("nearest finds typing mistakes and stays silent otherwise") {
  const std::vector<std::string> ops = {"matmul", "sum", "softmax", "rms_norm", "layer_norm", "exp", "max"};
  CHECK(nearest("matmull", ops) == "matmul");
  CHECK(nearest("mamtul", ops) == "matmul");
  CHECK(nearest("layernorm", ops) == "layer_norm");
  CHECK(nearest("rms", ops) == "rms_norm");
  CHECK(nearest("convolution", ops).empty());
  CHECK(nearest("sm_90", {"sm_80", "sm_89", "sm_90a"}) == "sm_90a");
  CHECK(nearest("qq", ops).empty());
  CHECK(nearest("", ops).empty());
  CHECK(nearest("x", {}).empty());
}

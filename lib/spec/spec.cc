// read_spec: chooses the form by content, and the limits that hold for every form.
#include "mirage/spec/spec.h"
#include <fmt/format.h>
#include "spec/json/ast.h"
#include "spec/json/json_tree.h"
#include "spec/text/text_spec.h"

namespace mirage {

namespace {

bool is_json(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && (text[first] == '{' || text[first] == '[' || text[first] == '"');
}

}  // namespace

Result<Parsed> read_spec(const Source& source, const AxisChoice& choice) {
  spec::Report report(source.name, source.text);
  std::optional<Program> program;
  std::vector<VarAxis> axes;
  if (source.text.size() > spec::kMaxBytes) {
    report.error(DiagCode::kLimit, {0, 1}, fmt::format("the spec has {} bytes; at most {} are read", source.text.size(), spec::kMaxBytes));
  } else if (auto bad = spec::find_bad_utf8(source.text)) {
    report.error(DiagCode::kEncoding, {*bad, 1},
                 source.text[*bad] == 0 ? "a zero byte in the text"
                                        : fmt::format("byte 0x{:02X} is not UTF-8 here", static_cast<unsigned char>(source.text[*bad])));
  } else if (is_json(source.text)) {
    if (auto ast = spec::read_ast(source, choice, report)) {
      program = spec::build_program(*ast, report);
      axes = std::move(ast->axes);
    }
  } else if (!choice.bind.empty() || !choice.values.empty()) {
    report.error(DiagCode::kUsage, {}, "--bind and --values: a spec in the text form has no axes");
  } else {
    program = spec::read_text_spec(source, report);
  }
  if (!report.ok()) return report.take_errors();
  MIRAGE_ASSERT(program) << "no program and no error";
  return Parsed{std::move(*program), report.take_warnings(), std::move(axes)};
}

Result<Program> parse_spec(const Source& source, const AxisChoice& choice) {
  auto parsed = read_spec(source, choice);
  if (!parsed) return parsed.errors();
  if (!parsed->axes.empty()) {
    const VarAxis& axis = parsed->axes.front();
    return Diagnostic{Severity::kError,
                      DiagCode::kAxisValues,
                      axis.where,
                      fmt::format("axis '{}' has {} values, and this works with one", axis.name, axis.values.size()),
                      {{{}, fmt::format("choose it: --bind {}={}", axis.name, axis.hint)}}};
  }
  return std::move(parsed->program);
}

}  // namespace mirage

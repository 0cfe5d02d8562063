// The operator table (operators.def) as data.
#include "spec/operators/operators.h"
#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include "spec/operators/desugar.h"

namespace mirage::spec {

const std::vector<OpInfo>& operators() {
  using enum AttrKind;
  static const std::vector<OpInfo> table = {
#define MAP(fn) build_map<MapFn::fn>
#define ATTR(name, kind, fallback, help) AttrSpec{#name, kind, fallback, help}
#define CHOICE(name, fallback, help, ...) AttrSpec{#name, kChoice, fallback, help, {__VA_ARGS__}}
#define OPERATOR(name, min, max, inputs, build, help, ...) OpInfo{#name, min, max, inputs, build, help, {__VA_ARGS__}},
#include "spec/operators/operators.def"
#undef OPERATOR
#undef CHOICE
#undef ATTR
#undef MAP
  };
  return table;
}

const OpInfo* find_operator(std::string_view name) {
  for (const OpInfo& op : operators()) {
    if (op.name == name) return &op;
  }
  return nullptr;
}

std::vector<std::string> operator_names() {
  std::vector<std::string> names;
  for (const OpInfo& op : operators()) names.push_back(op.name);
  return names;
}

namespace {

/// Lower case, without '_'.
std::string plain_name(std::string_view word) {
  std::string out;
  for (char c : word) if (c != '_') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string signature(const OpInfo& op) {
  std::string attrs;
  for (const AttrSpec& a : op.attrs) attrs += (attrs.empty() ? "" : ", ") + a.name;
  return fmt::format("{}({}){}", op.name, op.inputs, attrs.empty() ? "" : "; attributes: " + attrs);
}

}  // namespace

const std::vector<OtherName>& other_names() {
  static const std::vector<OtherName> table = {
#define OTHER_NAME(name, op, text) {#name, op, text},
#include "spec/operators/other_names.def"
#undef OTHER_NAME
  };
  return table;
}

std::vector<Note> meant_operator(const std::string& word, const Report& report) {
  constexpr size_t kLongest = 64;
  if (report.full() || word.size() > kLongest) return {};
  for (size_t begin = 0, end; begin <= word.size(); begin = end + 1) {   // torch.nn.functional.conv2d, aten.mm.default: one of the parts
    end = std::min(word.find('.', begin), word.size());
    const std::string part = plain_name(std::string_view(word).substr(begin, end - begin));
    for (const OtherName& o : other_names()) {
      if (part != o.name) continue;
      const OpInfo* op = find_operator(o.op);
      if (!op) return {Note{{}, o.text}};
      return {Note{{}, fmt::format("here it is '{}'{}{}", o.op, *o.text ? ": " : "", o.text)}, Note{{}, signature(*op)}};
    }
    for (const OpInfo& op : operators()) if (part == plain_name(op.name)) return {Note{{}, "did you mean '" + op.name + "'?"}};
  }
  return report.hint(word, operator_names());
}

const AttrSpec* OpInfo::find_attr(std::string_view wanted) const {
  for (const AttrSpec& a : attrs) {
    if (a.name == wanted) return &a;
  }
  return nullptr;
}

}  // namespace mirage::spec

// The operator table (operators.def) as data.
#include "spec/operators.h"
#include <algorithm>
#include "spec/desugar.h"

namespace mirage::spec {

const std::vector<OpInfo>& operators() {
  using enum AttrKind;
  static const std::vector<OpInfo> table = {
#define MAP(fn) build_map<MapFn::fn>
#define ATTR(name, kind, fallback, help) AttrSpec{#name, kind, fallback, help}
#define OPERATOR(name, min, max, inputs, build, help, ...) OpInfo{#name, min, max, inputs, build, help, {__VA_ARGS__}},
#include "spec/operators.def"
#undef OPERATOR
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

const AttrSpec* OpInfo::find_attr(std::string_view wanted) const {
  for (const AttrSpec& a : attrs) {
    if (a.name == wanted) return &a;
  }
  return nullptr;
}

}  // namespace mirage::spec

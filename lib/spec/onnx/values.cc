// A model with several extents of its named dimensions: read at each combination, and put together where the programs differ in numbers
// that are expressions of the axes.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include "mirage/spec/json_text.h"
#include "spec/json/ast.h"
#include "spec/onnx/importer.h"

namespace mirage::onnx {
namespace {

using Json = nlohmann::ordered_json;
using Point = std::vector<int64_t>;

/// Puts specs that differ in numbers only together.
class Join {
 public:
  Join(std::vector<std::string> names, std::vector<Point> points) : names_(std::move(names)), points_(std::move(points)) {}

  /// nullopt: they are no one program; `reason` says where.
  std::optional<Json> all(const std::vector<const Json*>& values, const std::string& where) {
    const Json& first = *values[0];
    if (std::all_of(values.begin(), values.end(), [&](const Json* v) { return *v == first && v->type() == first.type(); })) return first;
    const auto alike = [&](auto is) { return std::all_of(values.begin(), values.end(), [&](const Json* v) { return is(*v); }); };
    if (first.is_object() && alike([&](const Json& v) { return v.is_object() && keys(v) == keys(first); })) {
      Json out = Json::object();
      for (const auto& [key, value] : first.items()) {
        std::vector<const Json*> inner;
        for (const Json* v : values) inner.push_back(&v->at(key));
        auto joined = all(inner, key);
        if (!joined) return std::nullopt;
        out[key] = std::move(*joined);
      }
      return out;
    }
    if (first.is_array() && alike([&](const Json& v) { return v.is_array() && v.size() == first.size(); })) {
      Json out = Json::array();
      for (size_t i = 0; i < first.size(); ++i) {
        std::vector<const Json*> inner;
        for (const Json* v : values) inner.push_back(&v->at(i));
        auto joined = all(inner, where);
        if (!joined) return std::nullopt;
        out.push_back(std::move(*joined));
      }
      return out;
    }
    // a number among operands is a constant, no extent
    if (where != "inputs" && alike([](const Json& v) { return v.is_number_integer(); }))
      if (auto text = expression(values)) return Json(*text);
    reason = fmt::format("'{}' is {} at one size and {} at another, which is no product of the dimensions plus a number", where,
                         first.dump().substr(0, 60), different(values).dump().substr(0, 60));
    return std::nullopt;
  }

  std::string reason;

 private:
  static std::vector<std::string> keys(const Json& v) {
    std::vector<std::string> out;
    for (const auto& item : v.items()) out.push_back(item.key());
    return out;
  }
  static const Json& different(const std::vector<const Json*>& values) {
    for (const Json* v : values) if (*v != *values[0]) return *v;
    return *values[0];
  }

  /// "2*M + 3", "K/2": a times the product of some axes plus b.
  std::optional<std::string> expression(const std::vector<const Json*>& values) const {
    std::vector<int64_t> want;
    for (const Json* v : values) want.push_back(v->get<int64_t>());
    for (uint64_t set = 1; set < uint64_t{1} << std::min<size_t>(names_.size(), 6); ++set) {
      std::vector<std::string> factors;
      std::vector<int64_t> product(points_.size(), 1);
      for (size_t a = 0; a < names_.size(); ++a) {
        if (!(set >> a & 1)) continue;
        factors.push_back(names_[a]);
        for (size_t p = 0; p < points_.size(); ++p) product[p] *= points_[p][a];
      }
      size_t other = 0;
      while (other < product.size() && product[other] == product[0]) ++other;
      if (other == product.size()) continue;
      int64_t above = want[other] - want[0], below = product[other] - product[0];
      const int64_t common = std::gcd(above, below) * (below < 0 ? -1 : 1);
      if (common == 0 || above == 0) continue;
      above /= common, below /= common;
      if (product[0] * above % below != 0) continue;
      const int64_t b = want[0] - product[0] * above / below;
      bool fits = true;
      for (size_t p = 0; p < product.size(); ++p)
        fits = fits && product[p] * above % below == 0 && want[p] == product[p] * above / below + b;
      if (fits) return text_of_terms(fmt::format("{}", fmt::join(factors, "*")), above, below, b);
    }
    return std::nullopt;
  }

  static std::string text_of_terms(const std::string& product, int64_t above, int64_t below, int64_t b) {
    std::string out = std::abs(above) == 1 ? product : fmt::format("{}*{}", std::abs(above), product);
    if (below != 1) out += fmt::format("/{}", below);
    if (above < 0) return fmt::format("{}-{}", b, out);
    return b == 0 ? out : fmt::format("{}{}{}", out, b < 0 ? "-" : "+", std::abs(b));
  }

  std::vector<std::string> names_;
  std::vector<Point> points_;
};

std::set<std::string> dimensions_of(const OnnxModel& m) {
  std::set<std::string> out;
  for (const ValueInfo& v : m.graph.inputs)
    if (v.shape)
      for (const ValueInfo::Extent& e : *v.shape) if (e.value < 0 && !e.param.empty()) out.insert(e.param);
  return out;
}

Diagnostic wrong(const std::string& path, DiagCode code, std::string text, std::string remedy) {
  return {Severity::kError, code, {path, 0, 0, 1}, std::move(text), {{{}, std::move(remedy)}}};
}

}  // namespace

Result<Source> at_all_values(const OnnxModel& model, const std::string& path, const OnnxOptions& options) {
  const std::set<std::string> known = dimensions_of(model);
  std::vector<std::string> names;
  std::vector<Point> points = {{}};
  for (const auto& [name, list] : options.values) {
    if (!known.count(name))
      return wrong(path, DiagCode::kAxisValues, fmt::format("--values: no input of the model has a dimension '{}'", name),
                   known.empty() ? "all extents are fixed: export it with dynamic_axes"
                                 : fmt::format("its named dimensions: {}", fmt::join(known, ", ")));
    if (!spec::is_identifier(name))
      return wrong(path, DiagCode::kAxisValues, fmt::format("the dimension '{}' cannot be an axis: its name is no identifier", name),
                   "give it one extent with --bind, or export the model with another name");
    names.push_back(name);
    std::vector<Point> longer;
    for (const Point& p : points)
      for (int64_t v : list) longer.push_back(p), longer.back().push_back(v);
    points = std::move(longer);
    if (points.size() > kMostPoints)
      return wrong(path, DiagCode::kLimit,
                   fmt::format("--values: more than {} combinations; one library serves at most so many", kMostPoints),
                   "leave values out, or fix a dimension with --bind");
  }
  std::vector<Json> specs;
  for (const Point& p : points) {
    OnnxOptions one = options;
    one.values.clear();
    std::string at;
    for (size_t a = 0; a < names.size(); ++a) one.bind[names[a]] = p[a], at += fmt::format("{}{} = {}", a ? ", " : "", names[a], p[a]);
    auto source = Importer(model, path, one).run();
    if (!source) {
      Diagnostics errors = source.errors();
      for (Diagnostic& d : errors) d.notes.push_back({{}, "with " + at});
      return errors;
    }
    specs.push_back(own_json(source->text));
    for (const std::string& name : names) specs.back()["axes"].erase(name);
  }
  std::vector<const Json*> all;
  for (const Json& s : specs) all.push_back(&s);
  Join join(names, points);
  auto spec = join.all(all, "the program");
  if (!spec)
    return wrong(path, DiagCode::kVarAxis, "the model is another program at other sizes: " + join.reason,
                 "make a library for each: --bind");
  for (const auto& [name, list] : options.values) (*spec)["axes"][name] = {{"type", "var"}, {"values", list}};
  return Source{path, spec->dump(1) + "\n"};
}

}  // namespace mirage::onnx

// A spec at every combination of its var axes' values.
#include <set>
#include <utility>
#include <fmt/format.h>
#include "mirage/spec/spec.h"

namespace mirage {
namespace {

/// The values of combination number `n`, the first axis slowest.
std::vector<int64_t> values_at(const std::vector<VarAxis>& axes, size_t n) {
  std::vector<int64_t> out(axes.size());
  for (size_t a = axes.size(); a-- > 0; n /= axes[a].values.size()) out[a] = axes[a].values[n % axes[a].values.size()];
  return out;
}

/// The number of combinations; 0: more than are served.
size_t count_points(const std::vector<VarAxis>& axes) {
  size_t n = 1;
  for (const VarAxis& a : axes) {
    n *= a.values.size();
    if (n > kMostPoints) return 0;
  }
  return n;
}

Diagnostic too_many(const std::vector<VarAxis>& axes) {
  std::string product;
  for (const VarAxis& a : axes) product += (product.empty() ? "" : " x ") + std::to_string(a.values.size());
  return {Severity::kError,
          DiagCode::kLimit,
          axes.back().where,
          fmt::format("the axes have {} combinations of values; one library serves at most {}", product, kMostPoints),
          {{{}, "leave values out, make an axis constant with --bind, or make several libraries"}}};
}

/// An axis that no input's shape tells: callers that pass tensors alone (Python, DLPack) could not choose.
std::optional<Diagnostic> hidden_axis(const Family& f) {
  for (size_t a = 0; a < f.axes.size(); a++) {
    std::set<std::vector<int64_t>> seen;   // the values of the other axes, and all shapes
    for (const SpecPoint& p : f.points) {
      std::vector<int64_t> key = p.values;
      key[a] = 0;
      for (const TensorInfo& t : p.program.inputs) key.insert(key.end(), t.type.dims.begin(), t.type.dims.end());
      if (!seen.insert(key).second)
        return Diagnostic{Severity::kError,
                          DiagCode::kVarAxis,
                          f.axes[a].where,
                          fmt::format("the shape of no input depends on axis '{}'", f.axes[a].name),
                          {{{}, fmt::format("use it in a shape, or make it a constant: --bind {}={}", f.axes[a].name, f.axes[a].hint)}}};
    }
  }
  return std::nullopt;
}

}  // namespace

std::string point_text(const std::vector<VarAxis>& axes, const std::vector<int64_t>& values) {
  std::string out;
  for (size_t a = 0; a < axes.size(); a++) out += fmt::format("{}{} = {}", a ? ", " : "", axes[a].name, values[a]);
  return out;
}

Result<Family> read_family(const Source& source, const AxisChoice& choice) {
  Result<Parsed> hint = read_spec(source, choice);
  if (!hint) return hint.errors();
  Family f{hint->axes, {}, 0, hint->warnings};
  if (f.axes.empty()) {
    f.points.push_back({{}, std::move(hint->program)});
    return f;
  }
  const size_t points = count_points(f.axes);
  if (points == 0) return too_many(f.axes);
  std::vector<int64_t> hints;
  for (const VarAxis& a : f.axes) hints.push_back(a.hint);
  for (size_t n = 0; n < points; n++) {
    std::vector<int64_t> values = values_at(f.axes, n);
    AxisChoice bound = choice;
    for (size_t a = 0; a < f.axes.size(); a++) bound.bind[f.axes[a].name] = values[a];
    Result<Parsed> parsed = read_spec(source, bound);
    if (!parsed) {
      Diagnostics errors = parsed.errors();
      for (Diagnostic& d : errors) d.notes.push_back({{}, "with " + point_text(f.axes, values)});
      return errors;
    }
    if (values == hints) f.hint = n;
    f.points.push_back({std::move(values), std::move(parsed->program)});
  }
  if (auto hidden = hidden_axis(f)) return *hidden;
  return f;
}

}  // namespace mirage

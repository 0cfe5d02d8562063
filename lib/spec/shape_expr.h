// Shape expressions: integers, axis names, + - * / and parentheses; division must be exact.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include "spec/report.h"

namespace mirage::spec {

/// Axis values by name. nullopt: the axis is there but its value is unknown (var, or in error); what depends on it is unknown too.
using Axes = std::map<std::string, std::optional<int64_t>, std::less<>>;

struct ShapeResult { bool ok = false; std::optional<int64_t> value; };   ///< ok false: an error was reported

/// Evaluates `text`, the content of the string token `whole`. `plain`: the token has no escapes, so places inside it can be pointed at.
/// `is_extent`: 0 and less are errors.
ShapeResult eval_shape_expr(std::string_view text, Span whole, bool plain, const Axes&, Report&, bool is_extent = true);

/// The same without reporting, for constraints: nullopt if the text is not an expression over known axes.
std::optional<int64_t> try_shape_expr(std::string_view text, const Axes&);

}  // namespace mirage::spec

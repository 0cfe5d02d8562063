// What is said where nothing settles at the program's own size that the result is the program.
#pragma once
#include <optional>
#include <string>

#include "driver/decide/decide.h"

namespace mirage {

/// W0404 of a decision for a graph of the search or of pieces; nullopt where it is settled, and for the program's own graph, which needs
/// nothing.
inline std::optional<Diagnostic> unsettled_warning(const Decision& d, const std::string& source) {
  if ((!d.choice && !d.stitched()) || d.support.kind == Verdict::Kind::kEqual) return std::nullopt;
  return Diagnostic{Severity::kWarning,
                    DiagCode::kNotSettled,
                    {source, 0, 0, 1},
                    "the result is equal to the program at reduced sizes only: " + d.support.reason,
                    {}};
}

}  // namespace mirage

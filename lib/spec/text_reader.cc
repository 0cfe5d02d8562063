#include "spec/text_spec.h"
namespace mirage::spec {
std::optional<Program> read_text_spec(const Source&, Report& r) { r.error(DiagCode::kSyntax, {}, "text"); return std::nullopt; }
}

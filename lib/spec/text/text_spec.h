// A text spec: a kernel graph in text form whose value names are the tensors' names.
#pragma once
#include <optional>
#include "mirage/ir/program.h"
#include "mirage/spec/spec.h"
#include "spec/report.h"

namespace mirage::spec {

std::optional<Program> read_text_spec(const Source&, Report&);

}  // namespace mirage::spec

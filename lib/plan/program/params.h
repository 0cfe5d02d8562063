// Operands and results of kernels, in the words of programs.
#pragma once
#include <string>
#include <vector>

#include "mirage/plan/plan.h"
#include "mirage/schedule/writer.h"

namespace mirage::schedule {

Param param_of(const Access&);

/// Writes the program of a body on these operands.
Writer writer_of(const std::string& name, const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results);

}  // namespace mirage::schedule

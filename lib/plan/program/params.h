// Operands and results of kernels, in the words of programs.
#pragma once
#include <vector>

#include "mirage/plan/plan.h"
#include "mirage/schedule/writer.h"

namespace mirage::schedule {

Param param_of(const Access&);

/// Writes the program of a body on these operands.
Writer writer_of(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results);

/// Params that copies bring to shared memory, or straight to the operands of units, in parts along what the loop adds up over; without
/// those that differ along that index.
std::vector<int> streamed_params(const KernelProgram&, IndexId without = -1);
/// Whether lines of streamed params with columns (the index that the grid cuts first) are not let go of before others.
void keep_streamed(KernelProgram&, bool keep);

}  // namespace mirage::schedule

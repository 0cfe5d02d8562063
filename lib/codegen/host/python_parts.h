// What NAME.py of a library for one program (python.cc) and of one for a family (family_python.cc) have in common. Private to codegen.
#pragma once
#include <string>
#include <vector>
#include "codegen/module_parts.h"

namespace mirage {

std::string python_tuple(const std::vector<int64_t>&);
std::string python_list(const std::vector<std::string>&);
std::vector<std::string> python_rows(const ModuleFacts&, bool outputs);   ///< a _Tensor per input, or per output

/// What differs. In tables, largest and pads @NAME@, @PARAMETERS@, @COMMA@, @OUT@, @PADDED@, @INPUTS@ and @OUTPUTS@ are expanded; `find` is
/// part of the whole text.
struct PythonParts {
  std::vector<std::string> types;                      ///< per tensor, for people
  std::string sizes;                                   ///< a paragraph of the docstring, with its line end
  std::string tables;                                  ///< _INPUTS, _OUTPUTS and the points: dims, inputs, outputs
  std::string largest;                                 ///< the rest of _workspace_bytes()
  std::string find;                                    ///< functions that find a point
  std::string point_of_inputs, point_of_all;           ///< expressions over `tensors`: inputs; inputs and outputs
  bool needs_cublas = false;
  std::string pads;                                    ///< the begin of the function where it pads; empty: it cannot
};
std::string python_text(const ModuleFacts&, const PythonParts&);

}  // namespace mirage

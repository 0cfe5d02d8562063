// See the header.
#include "plan/program/params.h"

namespace mirage::schedule {

Param param_of(const Access& a) {
  Param x{a.dtype, a.dims, a.offset, a.strides, a.run, a.jump, a.position, a.tf32, {}, -1, a.position_div, a.position_period};
  if (a.second.buffer >= 0) x.second = {a.second.dim, a.second.offset, a.second.strides};
  return x;
}

Writer writer_of(const std::string& name, const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results) {
  std::vector<Param> params, stored;
  for (const Access& a : operands) {
    params.push_back(param_of(a));
    for (size_t i = 0; a.buffer >= 0 && params.back().in < 0 && &operands[i] != &a; i++)
      if (operands[i].buffer == a.buffer) params.back().in = static_cast<int>(i);
  }
  for (const Access& a : results) stored.push_back(param_of(a));
  return {name, body, std::move(params), std::move(stored)};
}

}  // namespace mirage::schedule

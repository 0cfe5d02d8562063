// Words that printer and parser share, and what every file of the folder needs.
#pragma once
#include <cstddef>

#include <string>

#include "mirage/ir/op.h"
#include "mirage/schedule/program.h"

namespace mirage::schedule {

inline size_t at(int i) { return static_cast<size_t>(i); }

/// In the order of AxisKind.
inline constexpr const char* kAxisKinds[] = {"grid", "cluster", "group", "warp", "loop"};

inline std::string axis_name(const KernelProgram& p, AxisId a) {
  return a == kLanes ? "lanes" : a == kWarps ? "warps" : p.axes[at(a)].name;
}

struct Infix { MapFn fn; const char* sign; bool is_product; };
inline constexpr Infix kInfix[] = {
    {MapFn::kAdd, " + ", false}, {MapFn::kSub, " - ", false}, {MapFn::kMul, " * ", true}, {MapFn::kDiv, " / ", true}};

}  // namespace mirage::schedule

// Words that printer and parser share, and what every file of the folder needs.
#pragma once
#include <cstddef>

#include "mirage/ir/op.h"

namespace mirage::schedule {

inline size_t at(int i) { return static_cast<size_t>(i); }

/// In the order of AxisKind.
inline constexpr const char* kAxisKinds[] = {"grid", "cluster", "group", "warp", "loop"};

struct Infix { MapFn fn; const char* sign; bool is_product; };
inline constexpr Infix kInfix[] = {
    {MapFn::kAdd, " + ", false}, {MapFn::kSub, " - ", false}, {MapFn::kMul, " * ", true}, {MapFn::kDiv, " / ", true}};

}  // namespace mirage::schedule

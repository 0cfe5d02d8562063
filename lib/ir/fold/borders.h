// Borders between parts of a program that treat the same dimensions differently: a convolution tells rows and columns of an image apart,
// the linear layers behind it do not. Private to lib/ir.
#pragma once
#include <optional>
#include <vector>

#include "ir/fold/fold_groups.h"

namespace mirage {

/// The program with values reshaped and back, so that find_groups() joins dimensions on one side that are apart on the other; nullopt where
/// no product gains. to: per value of the program, the one in its place. Requires primitives only.
std::optional<Program> with_borders(const Program& p, std::vector<ValueId>& to);

}  // namespace mirage

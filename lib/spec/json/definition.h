// Definitions of FlashInfer-Bench without nodes.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>
#include "spec/json/ast.h"

namespace mirage::spec {

/// The nodes that a definition's Python `reference` stands for, where it is one that is known (gemm, rmsnorm, fused_add_rmsnorm as they are
/// published); else none. Inputs and outputs have been read.
std::vector<AstNode> nodes_of_reference(const Ast&, std::string_view reference, Span where);

}  // namespace mirage::spec

// The named rewrites of a plan (passes.def): which there are, which a target's plans go without, and the graphs that the graph passes left
// on the way to a plan.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mirage/plan/plan.h"

namespace mirage {

enum class Pass : uint8_t {
#define MIRAGE_PASS(id, name, help) id,
#include "mirage/plan/passes.def"
  kNumPasses
};

struct PassInfo { std::string name, help; };
const std::vector<PassInfo>& pass_table();                 ///< in the order of passes.def
std::optional<Pass> find_pass(const std::string& name);
inline bool is_on(Pass p, const Target& t) { return (t.without_passes >> static_cast<unsigned>(p) & 1) == 0; }
/// The target whose plans go without that pass.
Target without(Target, Pass);
Target without_passes(Target);   ///< that of every pass

/// What Pass::kDivide makes of a graph whose matmuls are matmuls; nullopt: none of them is divided.
std::optional<Graph> divide_products(const Graph&, const Target&);
/// What the first of these makes of it, if it works on matmuls (kDivide, kDots, kShort); nullopt: it does not, or has nothing to do.
std::optional<Graph> rewrite_matmuls(std::span<const Pass>, const Graph&, const Target&);
/// Whether a plan that took such a pass has dimensions that the program has not (parts of a reduction), or is bound to some that it has (a
/// slice each).
bool changes_dimensions(Pass);

/// What one graph pass left on the way to a plan. name: of the pass, or "lower", the first step of every plan: matmuls become calls.
struct PassStep { std::string name; Graph graph; };

/// The steps from a graph to the plan that make_plan made of it (Plan::passes), in order; a pass that changed nothing is left out.
std::vector<PassStep> pass_steps(const Program&, const Graph&, const Target&, const Plan&);

}  // namespace mirage

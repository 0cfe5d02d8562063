#include "trust/random/pairs.h"

#include <fmt/format.h>

#include "mirage/spec/text.h"
#include "trust/random/rewrite.h"

namespace mirage::test {

std::optional<RandomPair> random_pair(uint64_t seed) {
  Rng rng(mix64(seed));
  RandomPair out;
  const uint64_t size = rng.below(40);
  out.size = size == 0 ? Size::kLarge : size < 3 ? Size::kHuge : Size::kSmall;
  const bool breaks = rng.below(2) == 0;
  const RandomProgram program = random_program(rng, out.size);
  if (nodes_of(program.result).size() > 40 || program.result->dims.empty()) return std::nullopt;
  RandomProgram other = program;
  const auto rewrite_some = [&](uint64_t most, bool tiles) {
    for (uint64_t n = rng.below(most + 1); n > 0; n--) {
      Step step;
      if (!rewrite(other.result, rng, step, tiles)) return;
      out.laws.push_back(step.law);
      if (step.narrows && out.truth == Truth::kEqual) out.truth = Truth::kWhereDefined;
    }
  };
  const auto read = [&](const RandomProgram& p) -> std::optional<Graph> {
    auto g = parse_graph(text_of(p));
    if (g) return *g;
    out.shown = g.errors().front().text, out.change = "unreadable";
    return std::nullopt;
  };
  const auto first = read(program);
  const bool is_late = out.size != Size::kHuge && rng.below(3) == 0;   // the mistake is made in what was tiled
  /// Changes until one shows; what was tiled is evaluated as it is, what is huge before it is tiled.
  const auto break_so_that_it_shows = [&] {
    const P sound = other.result;
    for (int attempt = 0; attempt < 6; attempt++) {
      other.result = sound;
      if (!break_somewhere(other.result, other.inputs, rng, out.change)) continue;
      const auto second = parse_graph(text_of(other));
      if (!second) continue;
      const auto where = out.size == Size::kHuge ? difference_of_large(*first, *second, seed, 10)
                                                 : difference(*first, *second, seed, out.size == Size::kLarge ? 10 : 54);
      if (!where) continue;
      out.shown = *where;
      out.truth = Truth::kDifferent;
      return true;
    }
    return false;
  };
  if (first) {
    rewrite_some(6, false);
    if (breaks && !is_late && !break_so_that_it_shows()) return std::nullopt;
    rewrite_some(2, false);
    rewrite_some(2, true);
    if (breaks && is_late && !break_so_that_it_shows()) return std::nullopt;
  }
  out.graphs = {text_of(program), text_of(other)};
  if (out.graphs[0] == out.graphs[1]) return std::nullopt;
  const auto second = first ? read(other) : std::nullopt;
  if (second && out.truth == Truth::kWhereDefined && out.size == Size::kSmall && difference(*first, *second, seed, 27))
    return std::nullopt;  // nowhere defined together: no truth
  return out;
}

}  // namespace mirage::test

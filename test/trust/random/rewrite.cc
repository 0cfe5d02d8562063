#include "trust/random/rewrite.h"

namespace mirage::test {

bool rewrite(P& root, Rng& rng, Step& step, bool tiles, size_t max_nodes) {
  for (int attempt = 0; attempt < 12; attempt++) {
    const std::vector<P> nodes = nodes_of(root);
    const P& x = nodes[rng.below(nodes.size())];
    if (x->op == "call") continue;
    std::vector<Rewriting> all = tiles ? tilings_of(x, rng) : rng.below(8) < 5 ? algebra_of(x, rng) : movements_of(x, rng);
    if (all.empty()) continue;
    const Rewriting& r = all[rng.below(all.size())];
    const P now = with(root, x, r.now);
    if (nodes_of(now).size() > max_nodes) continue;
    root = now;
    step = {r.law, r.narrows};
    return true;
  }
  return false;
}

}  // namespace mirage::test

// The fewest borders (a minimum cut) between the pairs of neighbours that an operator tells apart and those that a product gains by
// joining; see the header. A border is a reshape that joins and one that takes apart: folding makes one view of both, and on its two sides
// dimensions are joined on their own.
#include "ir/fold/borders.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <utility>

#include "ir/fold/finished.h"
#include "mirage/ir/rewrite.h"

namespace mirage {
namespace {

using folding::Ties;

// per class of pairs, and one for each pair that is wanted: each is a view that kernels read through
constexpr int kMaxBorders = 16;
constexpr int64_t kMaxWork = 4'000'000;  // edges looked at, of all classes together

/// A maximum flow from the pairs that are apart to those that should be joined, one unit a tie (any number between products that one kernel
/// could have both of); then what the sources still reach is apart, as little as there can be.
class Cut {
 public:
  Cut(const Ties& ties, const std::vector<int>& pairs, const std::vector<int>& edges, int64_t& work) : ties_(ties), work_(work) {
    for (int p : pairs) out_[p];
    for (int e : edges) {
      flow_[e] = 0;
      out_[ties.ties[static_cast<size_t>(e)].from].push_back(e);
      out_[ties.ties[static_cast<size_t>(e)].to].push_back(e);
    }
  }

  /// The ties that are cut; none if that takes too many.
  std::vector<int> run(const std::set<int>& apart, const std::set<int>& wanted) {
    for (int units = 0;; units++) {
      if (work_ > kMaxWork || units > kMaxBorders + static_cast<int>(wanted.size())) return {};
      const int end = reach(apart, wanted);
      if (end < 0) break;
      bool is_limited = false;
      for (int p = end; came_.at(p) >= 0;) {
        const int e = came_.at(p);
        is_limited = is_limited || !ties_.ties[static_cast<size_t>(e)].inside;
        const bool forward = ties_.ties[static_cast<size_t>(e)].to == p;
        flow_[e] += forward ? 1 : -1;
        p = other(e, p);
      }
      if (!is_limited) return {};
    }
    std::vector<int> cut;
    for (auto [e, flow] : flow_) {
      const Ties::Tie& t = ties_.ties[static_cast<size_t>(e)];
      if (came_.count(t.from) != came_.count(t.to)) cut.push_back(e);
    }
    return cut;
  }

 private:
  int other(int e, int p) const {
    const Ties::Tie& t = ties_.ties[static_cast<size_t>(e)];
    return t.from == p ? t.to : t.from;
  }
  /// Breadth first over what has room; came_: by which tie each pair was reached. The first wanted pair, -1: none is reached.
  int reach(const std::set<int>& apart, const std::set<int>& wanted) {
    came_.clear();
    std::queue<int> open;
    for (int p : apart) came_.emplace(p, -1), open.push(p);
    while (!open.empty()) {
      const int p = open.front();
      open.pop();
      for (int e : out_.at(p)) {
        work_++;
        const int q = other(e, p), flow = flow_.at(e), along = ties_.ties[static_cast<size_t>(e)].from == p ? flow : -flow;
        if ((along >= 1 && !ties_.ties[static_cast<size_t>(e)].inside) || came_.count(q)) continue;
        came_.emplace(q, e);
        if (wanted.count(q)) return q;
        open.push(q);
      }
    }
    return -1;
  }

  const Ties& ties_;
  int64_t& work_;
  std::map<int, std::vector<int>> out_;
  std::map<int, int> flow_, came_;
};

/// What one node reads through borders: per value, the dimensions that are joined with their next one of extent above 1.
using Borders = std::map<std::pair<NodeId, ValueId>, std::set<int>>;

Borders find_borders(const Ties& ties) {
  struct Class { std::vector<int> pairs, edges; std::set<int> apart, wanted; };
  std::map<int, Class> classes;
  for (size_t p = 0; p < ties.of_class.size(); p++) classes[ties.of_class[p]].pairs.push_back(static_cast<int>(p));
  const auto of = [&](int pair) -> Class& { return classes[ties.of_class[static_cast<size_t>(pair)]]; };
  for (int p : ties.wanted) of(p).wanted.insert(p);
  for (int p : ties.apart) of(p).apart.insert(p), of(p).wanted.erase(p);
  for (size_t e = 0; e < ties.ties.size(); e++) of(ties.ties[e].from).edges.push_back(static_cast<int>(e));
  Borders out;
  int64_t work = 0;
  for (auto& [id, c] : classes) {
    if (c.wanted.empty() || c.apart.empty()) continue;
    for (int e : Cut(ties, c.pairs, c.edges, work).run(c.apart, c.wanted)) {
      const Ties::Tie& t = ties.ties[static_cast<size_t>(e)];
      out[{t.reader, t.value}].insert(t.dim);
    }
  }
  return out;
}

/// v's dimensions, each of these joined with the next one of extent above 1.
Dims joined(const Dims& dims, const std::set<int>& with_next) {
  Dims out;
  bool joins = false;
  for (int d = 0; d < dims.rank(); d++) {
    if (dims[d] == 1) continue;
    if (joins) out[out.rank() - 1] *= dims[d];
    else out.push_back(dims[d]);
    joins = with_next.count(d) > 0;
  }
  return out;
}

}  // namespace

std::optional<Program> with_borders(const Program& p, std::vector<ValueId>& to) {
  const Graph& g = p.graph;
  const Borders borders = find_borders(folding::find_ties(p, folding::Chains(g)));
  if (borders.empty()) return std::nullopt;
  Builder b(Level::kKernel);
  std::vector<ValueId> made;
  std::vector<std::pair<ValueId, ValueId>> beside;
  std::map<std::pair<ValueId, std::set<int>>, ValueId> shared;
  rewrite(g, b, made, [&](NodeId n, std::vector<ValueId>& operands) -> ValueId {
    for (size_t k = 0; k < operands.size(); k++) {
      const ValueId v = g.node(n).operands[k];
      const auto it = borders.find({n, v});
      if (it == borders.end()) continue;
      const auto [at, is_new] = shared.emplace(std::pair{v, it->second}, kNoValue);
      if (is_new) {
        const ValueId flat = b.add(Reshape{joined(g.dims(v), it->second)}, {operands[k]});
        at->second = b.add(Reshape{g.dims(v)}, {flat});
        beside.insert(beside.end(), {{v, flat}, {v, at->second}});
      }
      operands[k] = at->second;
    }
    return kCopy;
  });
  Program out = p;
  out.graph = finished(b.graph(), made, beside, &out.kept, &to);
  return out;
}

}  // namespace mirage

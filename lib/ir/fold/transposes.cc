// Transposes before elementwise functions of inputs; see the header. A value is moved if maps and constants alone make it of inputs and
// their views, and nothing reads it, or what it is made of on the way, but that transpose: nothing is computed twice.
#include "ir/fold/transposes.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "ir/fold/finished.h"
#include "mirage/ir/rewrite.h"

namespace mirage {
namespace {

class Transposes {
 public:
  explicit Transposes(const Graph& g) : g_(g), users_(g.users()), is_loaded_(at(g.num_values())) {
    for (NodeId n = 0; n < g.num_nodes(); n++) {
      const Node& node = g.node(n);
      if (node.first_value < 0) continue;
      const auto loaded = [&](ValueId v) { return bool{is_loaded_[at(v)]}; };
      const bool is_made = g.form<Map>(n) || is_view(node.op);
      is_loaded_[at(node.first_value)] =
          g.form<Input>(n) || g.form<Const>(n) || (is_made && std::all_of(node.operands.begin(), node.operands.end(), loaded));
    }
    for (NodeId n = 0; n < g.num_nodes(); n++)
      if (g.form<Transpose>(n)) choose(n);
  }
  bool any() const { return !moved_.empty(); }

  Graph run(std::vector<DType>* kept, std::vector<ValueId>* to) {
    Builder b(Level::kKernel);
    std::vector<ValueId> made;
    rewrite(g_, b, made, [&](NodeId n, std::vector<ValueId>&) -> ValueId {
      if (const auto it = moved_.find(n); it != moved_.end()) return transposed(b, n, it->second, made);
      return inner_.count(n) ? kNoValue : kCopy;
    });
    return finished(b.graph(), made, pushed_, kept, to);
  }

 private:
  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  NodeId def(ValueId v) const { return g_.value(v).node; }

  /// Takes the transpose n if a product reads it and what it shows is computed for it alone.
  void choose(NodeId n) {
    const auto& readers = users_[at(g_.node(n).first_value)];
    if (std::none_of(readers.begin(), readers.end(), [&](NodeId u) { return g_.form<MatMul>(u) != nullptr; })) return;
    std::set<NodeId> inner;
    std::vector<ValueId> open{g_.node(n).operands[0]};
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      const NodeId m = def(v);
      if (!g_.form<Map>(m) || !inner.insert(m).second) continue;
      if (!is_loaded_[at(v)]) return;
      for (ValueId o : g_.node(m).operands) open.push_back(o);
    }
    for (NodeId m : inner)
      for (NodeId u : users_[at(g_.node(m).first_value)])
        if (u != n && !inner.count(u)) return;
    if (inner.empty()) return;
    inner_.insert(inner.begin(), inner.end());
    moved_.emplace(n, std::move(inner));
  }

  /// v of g, which is no map of `inner`, with as many dimensions as the transpose has, transposed.
  ValueId leaf(Builder& b, ValueId v, const Transpose& t, int rank, const std::vector<ValueId>& made) {
    if (g_.form<Const>(def(v)) && g_.dims(v).rank() == 0) return made[at(v)];
    Dims wide;
    for (int d = g_.dims(v).rank(); d < rank; d++) wide.push_back(1);
    for (int64_t e : g_.dims(v)) wide.push_back(e);
    ValueId x = made[at(v)];
    if (wide.rank() != g_.dims(v).rank()) x = b.add(Reshape{wide}, {x});
    return b.add(t, {x});
  }
  ValueId transposed(Builder& b, NodeId n, const std::set<NodeId>& inner, const std::vector<ValueId>& made) {
    const Transpose t = *g_.form<Transpose>(n);
    const int rank = g_.dims(g_.node(n).first_value).rank();
    std::map<ValueId, ValueId> done;
    for (NodeId m : inner) {  // operands first
      std::vector<ValueId> operands;
      for (ValueId o : g_.node(m).operands) {
        auto it = done.find(o);
        if (it == done.end()) it = done.emplace(o, leaf(b, o, t, rank, made)).first;
        operands.push_back(it->second);
      }
      const ValueId v = b.add(g_.node(m).op, operands);
      done[g_.node(m).first_value] = v;
      pushed_.push_back({g_.node(m).first_value, v});
    }
    return done.at(g_.node(n).operands[0]);
  }

  const Graph& g_;
  const std::vector<std::vector<NodeId>> users_;
  std::vector<bool> is_loaded_;               ///< inputs and constants, and what maps and views make of them
  std::map<NodeId, std::set<NodeId>> moved_;  ///< per transpose that goes: the maps that it moves in front of
  std::set<NodeId> inner_;
  std::vector<std::pair<ValueId, ValueId>> pushed_;  ///< value of g, its transpose in the new graph
};

}  // namespace

std::optional<Graph> settled_transposes(const Graph& g, std::vector<DType>* kept, std::vector<ValueId>* to) {
  Transposes t(g);
  if (!t.any()) return std::nullopt;
  return t.run(kept, to);
}

}  // namespace mirage

// Regroups sums of products and biases; see the header.
#include "ir/fold/sums.h"

#include <algorithm>
#include <map>
#include <vector>

#include "ir/fold/finished.h"
#include "mirage/ir/rewrite.h"

namespace mirage {
namespace {

/// What a sum adds up, in order.
struct Terms {
  std::vector<ValueId> products, rest;
};

class Sums {
 public:
  explicit Sums(const Graph& g) : g_(g), users_(g.users()) {
    for (NodeId n = 0; n < g.num_nodes(); n++) {
      if (!is_sum(n) || is_part(n)) continue;
      Terms t;
      size_t most = 0;  // products that some part adds up, and nothing else
      collect(n, t, most);
      if (t.products.size() > 1 && !t.rest.empty() && most < t.products.size()) sums_.emplace(n, std::move(t));
    }
  }
  bool any() const { return !sums_.empty(); }

  Graph run(std::vector<DType>* kept, std::vector<ValueId>* to) {
    Builder b(Level::kKernel);
    std::vector<ValueId> made;
    rewrite(g_, b, made, [&](NodeId n, std::vector<ValueId>&) -> ValueId {
      const auto it = sums_.find(n);
      if (it == sums_.end()) return kCopy;
      const auto sum = [&](const std::vector<ValueId>& of) {
        ValueId v = made[at(of[0])];
        for (size_t i = 1; i < of.size(); i++) v = b.map(MapFn::kAdd, {v, made[at(of[i])]});
        return v;
      };
      const ValueId products = sum(it->second.products);
      return b.map(MapFn::kAdd, {products, sum(it->second.rest)});
    });
    return finished(b.graph(), made, {}, kept, to);
  }

 private:
  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  /// An input, or a view of one.
  bool is_given(ValueId v) const {
    while (is_view(g_.def(v).op)) v = g_.def(v).operands[0];
    return g_.def_form<Input>(v) != nullptr;
  }
  /// A product of what the program is given, for this sum alone.
  bool is_product(ValueId v) const {
    return g_.def_form<MatMul>(v) && users_[at(v)].size() == 1 && is_given(g_.def(v).operands[0]) && is_given(g_.def(v).operands[1]);
  }
  bool is_sum(NodeId n) const {
    const auto* m = g_.form<Map>(n);
    return m && m->fn == MapFn::kAdd;
  }
  /// Whether n is but a part of another sum of its shape, once: twice itself, again and again, has no end of parts.
  bool is_part(NodeId n) const {
    const ValueId v = g_.node(n).first_value;
    const auto& u = users_[at(v)];
    return u.size() == 1 && is_sum(u[0]) && g_.node(u[0]).operands[0] != g_.node(u[0]).operands[1] &&
           g_.dims(g_.node(u[0]).first_value) == g_.dims(v);
  }
  void collect(NodeId n, Terms& t, size_t& most) const {
    const size_t products = t.products.size(), rest = t.rest.size();
    for (ValueId o : g_.node(n).operands) {
      const NodeId m = g_.value(o).node;
      if (is_sum(m) && is_part(m)) collect(m, t, most);
      else (is_product(o) ? t.products : t.rest).push_back(o);
    }
    if (t.rest.size() == rest) most = std::max(most, t.products.size() - products);
  }

  const Graph& g_;
  const std::vector<std::vector<NodeId>> users_;
  std::map<NodeId, Terms> sums_;
};

}  // namespace

std::optional<Graph> settled_sums(const Graph& g, std::vector<DType>* kept, std::vector<ValueId>* to) {
  Sums s(g);
  if (!s.any()) return std::nullopt;
  return s.run(kept, to);
}

}  // namespace mirage

// Operands repeated along dimensions that they lack; see the header.
#include "ir/fold/widened.h"

#include <utility>

#include "mirage/ir/rewrite.h"

namespace mirage {
namespace {

class Widening {
 public:
  Widening(const Graph& g, const std::map<NodeId, std::set<int>>& partial) : g_(g), partial_(partial), b_(Level::kKernel) {}

  bool run() {
    return try_rewrite(g_, b_, to_, [&](NodeId n, std::vector<ValueId>& operands) {
      const auto it = partial_.find(n);
      if (it == partial_.end()) return kCopy;
      const Dims& dims = g_.dims(g_.node(n).first_value);
      Dims want;
      for (int d = 0; d < dims.rank(); d++) want.push_back(it->second.count(d) ? dims[d] : 1);
      for (size_t k = 0; k < operands.size(); k++) {
        const auto x = widened(g_.node(n).operands[k], want);
        if (!x) return kGiveUp;
        operands[k] = *x;
      }
      return kCopy;
    });
  }
  Graph finish(std::vector<DType>* kept, std::vector<ValueId>* to) const {
    std::vector<ValueId> alive;
    Graph out = remove_dead(b_.graph(), &alive);
    const auto now = [&](ValueId v) { return v >= 0 ? alive[static_cast<size_t>(v)] : -1; };
    if (kept && !kept->empty()) {
      std::vector<DType> types(static_cast<size_t>(out.num_values()), DType::kReal);
      for (const auto& [old, made] : maps_)
        if (now(made) >= 0) types[static_cast<size_t>(now(made))] = (*kept)[static_cast<size_t>(old)];
      for (size_t v = 0; v < to_.size(); v++)
        if (now(to_[v]) >= 0) types[static_cast<size_t>(now(to_[v]))] = (*kept)[v];
      *kept = std::move(types);
    }
    if (to) {
      to->clear();
      for (ValueId v : to_) to->push_back(now(v));
    }
    return out;
  }

 private:
  /// Dimensions of v, aligned at the right, that `want` has above 1: how many v has, and has not.
  std::pair<int, int> count(ValueId v, const Dims& want) const {
    std::pair<int, int> out;
    for (int d = 0; d < want.rank(); d++) {
      const int own = d - (want.rank() - g_.dims(v).rank());
      if (want[d] > 1) (own >= 0 && g_.dims(v)[own] > 1 ? out.first : out.second)++;
    }
    return out;
  }
  /// v of g with all dimensions of `want`, if it has one of them.
  std::optional<ValueId> widened(ValueId v, const Dims& want) {
    const auto [has, lacks] = count(v, want);
    if (has == 0 || lacks == 0) return to_[static_cast<size_t>(v)];
    const std::pair key{v, std::vector<int64_t>(want.begin(), want.end())};
    if (const auto known = made_.find(key); known != made_.end()) return known->second;
    std::optional<ValueId> out;
    if (g_.def_form<Map>(v)) {
      std::vector<ValueId> operands;
      for (ValueId o : g_.def(v).operands) {
        const auto x = widened(o, want);
        if (!x) return std::nullopt;
        operands.push_back(*x);
      }
      out = b_.try_add(g_.def(v).op, operands);
      if (out) maps_.emplace_back(v, *out);
    } else {
      out = repeated(v, want);
    }
    if (out) made_.emplace(key, *out);
    return out;
  }
  std::optional<ValueId> repeated(ValueId v, const Dims& want) {
    Dims wide;
    for (int d = g_.dims(v).rank(); d < want.rank(); d++) wide.push_back(1);
    for (int64_t e : g_.dims(v)) wide.push_back(e);
    std::optional<ValueId> x = to_[static_cast<size_t>(v)];
    if (wide.rank() != g_.dims(v).rank()) x = b_.try_add(Reshape{wide}, {*x});
    const int shift = wide.rank() - want.rank();
    for (int d = 0; x && d < want.rank(); d++)
      if (want[d] > 1 && wide[d + shift] == 1) x = b_.try_add(Repeat{d + shift, want[d]}, {*x});
    return x;
  }

  const Graph& g_;
  const std::map<NodeId, std::set<int>>& partial_;
  Builder b_;
  std::vector<ValueId> to_;
  std::map<std::pair<ValueId, std::vector<int64_t>>, ValueId> made_;
  std::vector<std::pair<ValueId, ValueId>> maps_;   ///< value of g, and what is made of repeated operands as it is
};

}  // namespace

std::optional<Graph> with_widened(const Graph& g, const std::map<NodeId, std::set<int>>& partial, std::vector<DType>* kept,
                                  std::vector<ValueId>* to) {
  Widening w(g, partial);
  if (!w.run()) return std::nullopt;
  return w.finish(kept, to);
}

}  // namespace mirage

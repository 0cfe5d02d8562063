// Factors along a reduction move to the operand that has fewer elements: (x * g) w, where g differs by what is summed only, is x (g^T * w).
// A norm's gain before a product of few columns (a router, a classifier, a head of few results) is multiplied once then, by weights that a
// small kernel stores (hoist), and the rows come to the tensor cores as they lie, instead of through registers.
#include <algorithm>
#include <optional>
#include <vector>

#include "mirage/ir/rewrite.h"
#include "mirage/ir/walk.h"
#include "plan/passes/rewrites.h"

namespace mirage {
namespace {

constexpr int64_t kFewer = 4;   // times fewer elements

/// A product of the body: which of its operands is multiplied by a factor, and by which input.
struct Gain { int side = 0; ValueId rest = -1, factor = -1; };

/// The body without what no output needs, and without the inputs of it.
Graph without_dead(const Graph& body, std::vector<int>& kept) {
  std::vector<bool> live(static_cast<size_t>(body.num_nodes()));
  for (NodeId n = body.num_nodes() - 1; n >= 0; n--) {
    live[static_cast<size_t>(n)] = live[static_cast<size_t>(n)] || body.form<Output>(n);
    if (!live[static_cast<size_t>(n)]) continue;
    for (ValueId v : body.node(n).operands) live[static_cast<size_t>(body.value(v).node)] = true;
  }
  Builder out(body.level(), body.launch());
  std::vector<ValueId> to;
  rewrite(body, out, to, [&](NodeId n, const std::vector<ValueId>&) {
    if (!live[static_cast<size_t>(n)]) return kNoValue;
    const auto* in = body.form<Input>(n);
    if (!in) return kCopy;
    auto at = std::find(kept.begin(), kept.end(), in->param);
    if (at == kept.end()) at = kept.insert(kept.end(), in->param);
    return out.add_input(static_cast<int>(at - kept.begin()), body.type(body.node(n).first_value), in->part);
  });
  return std::move(out).finish();
}

class Gains {
 public:
  Gains(const Graph& g, const Node& call) : g_(g), call_(call), b_(*std::get<Call>(call.op).body), phase_(phases(b_)) {}

  /// The body with further inputs, of which `views` says which operand of the call each is a view of (its last two dimensions turned), and
  /// without those that are not read any more; `kept`: the params that are left.
  std::optional<Graph> run(std::vector<int>& views, std::vector<int>& kept) {
    Builder out(b_.level(), b_.launch());
    std::vector<ValueId> to;
    bool any = false;
    const bool made = try_rewrite(b_, out, to, [&](NodeId n, const std::vector<ValueId>&) {
      const auto gain = gain_of(n);
      if (!gain) return kCopy;
      any = true;
      const Input& in = *b_.def_form<Input>(gain->factor);
      const ValueId turned = out.add_input(params() + static_cast<int>(views.size()), turned_type(*gain), turned_part(*gain, in.part));
      views.push_back(in.param);
      const ValueId rest = to[static_cast<size_t>(gain->rest)],
                    other = to[static_cast<size_t>(b_.node(n).operands[static_cast<size_t>(1 - gain->side)])];
      const ValueId scaled = out.map(MapFn::kMul, {other, turned});
      return gain->side == 0 ? out.add(MatMul{}, {rest, scaled}) : out.add(MatMul{}, {scaled, rest});
    });
    return made && any ? std::optional(without_dead(out.graph(), kept)) : std::nullopt;
  }

 private:
  int params() const { return static_cast<int>(call_.operands.size()); }
  const Dims& whole(ValueId input) const { return g_.dims(call_.operands[static_cast<size_t>(b_.def_form<Input>(input)->param)]); }
  /// The largest tensor that v is made of.
  int64_t largest(ValueId v) const {
    if (b_.def_form<Input>(v)) return whole(v).elements();
    int64_t most = 0;
    if (b_.def_form<Map>(v)) for (ValueId o : b_.def(v).operands) most = std::max(most, largest(o));
    return most;
  }
  /// Whether v is an input, the same for all blocks, whose only dimension of more than one element is what the product sums, where it is
  /// operand `side`.
  bool is_factor(ValueId v, int side) const {
    const auto* in = b_.def_form<Input>(v);
    if (!in || in->part.loop < 0 || std::any_of(in->part.grid.begin(), in->part.grid.end(), [](int8_t d) { return d >= 0; })) return false;
    const Dims& d = b_.dims(v);
    const int summed = d.rank() - (side == 0 ? 1 : 2);
    if (summed < 0 || in->part.loop != summed || whole(v)[summed] == 1) return false;
    return whole(v).elements() == whole(v)[summed];
  }
  std::optional<Gain> gain_of(NodeId n) const {
    if (!b_.form<MatMul>(n) || phase_[static_cast<size_t>(b_.node(n).first_value)] != Phase::kLoop) return std::nullopt;
    for (int side : {0, 1}) {
      ValueId x = b_.node(n).operands[static_cast<size_t>(side)];
      const ValueId y = b_.node(n).operands[static_cast<size_t>(1 - side)];
      if (const Map* m = b_.def_form<Map>(x); m && (m->fn == MapFn::kCastBF16 || m->fn == MapFn::kCastF16)) x = b_.def(x).operands[0];
      const Map* product = b_.def_form<Map>(x);
      if (!product || product->fn != MapFn::kMul || !b_.def_form<Input>(y)) continue;
      for (size_t f : {0, 1}) {
        const ValueId factor = b_.def(x).operands[f], rest = b_.def(x).operands[1 - f];
        if (is_factor(factor, side) && b_.dims(rest) == b_.dims(x) && kFewer * whole(y).elements() <= largest(rest))
          return Gain{side, rest, factor};
      }
    }
    return std::nullopt;
  }
  /// [k] as [k, 1], [k, 1] as [1, k].
  static Dims turned(const Dims& d, int side) {
    const int64_t extent = d[d.rank() - (side == 0 ? 1 : 2)];
    return side == 0 ? Dims{extent, 1} : Dims{1, extent};
  }
  Type turned_type(const Gain& x) const { return {b_.type(x.factor).dtype, turned(b_.dims(x.factor), x.side)}; }
  static Partition turned_part(const Gain& x, Partition part) {
    part.loop = x.side == 0 ? 0 : 1;
    return part;
  }

  const Graph& g_;
  const Node& call_;
  const Graph& b_;
  std::vector<Phase> phase_;
};

}  // namespace

std::optional<Graph> move_gains(const Graph& g) {
  Builder b(Level::kKernel);
  std::vector<ValueId> to;
  bool any = false;
  const bool made = try_rewrite(g, b, to, [&](NodeId n, const std::vector<ValueId>& operands) {
    if (!g.form<Call>(n)) return kCopy;
    std::vector<int> views, kept;
    const auto body = Gains(g, g.node(n)).run(views, kept);
    if (!body) return kCopy;
    any = true;
    std::vector<ValueId> all = operands, read;
    for (int param : views) {
      const Dims& d = g.dims(g.node(n).operands[static_cast<size_t>(param)]);
      const bool column = d.back() > 1;   // along the last dimension of what it multiplied
      all.push_back(b.add(Reshape{column ? Dims{d.elements(), 1} : Dims{1, d.elements()}}, {operands[static_cast<size_t>(param)]}));
    }
    for (int p : kept) read.push_back(all[static_cast<size_t>(p)]);
    return b.try_add(Call{std::make_shared<const Graph>(*body)}, read).value_or(kGiveUp);
  });
  return made && any ? std::optional(std::move(b).finish()) : std::nullopt;
}

}  // namespace mirage

// narrow_operands: see the header and docs/decisions.md, "Computed operands in float16, scaled by line". A computed operand has float32's
// range, which float16 has not, so beside float16 it is TF32: half the rate of the tensor cores, twice the bytes. A factor per line of the
// reduction brings the line into float16's range and leaves the sum, because every term of a sum is of one line.
#include "plan/passes/narrow.h"

#include <algorithm>
#include <map>

#include "mirage/ir/walk.h"

namespace mirage {
namespace {

constexpr double kLargestHalf = 65504;
constexpr int64_t kFewLines = 16;
// Lines of zeros, and of numbers too small to divide by, keep a factor that is finite; infinities stay infinite under it, and no finite
// float32 of theirs becomes one.
constexpr double kLeastMagnitude = 1e-30, kLargestMagnitude = 3.4028234663852886e38;

/// The dimension along which a contraction adds up its operand `side` of that rank.
int reduced_dim(size_t side, int rank) { return side == 0 ? rank - 1 : rank - 2; }

class Narrower {
 public:
  Narrower(const Graph& g, const ContractRule& rule) : g_(g), rule_(rule) {}

  std::optional<Graph> run() {
    const auto users = g_.users();
    for (ValueId v = 0; v < g_.num_values(); v++)
      if (const int dim = depth_of(v, users[static_cast<size_t>(v)]); dim >= 0) depth_[v] = dim;
    if (depth_.empty()) return std::nullopt;
    Builder b(Level::kKernel);
    std::vector<ValueId> to(static_cast<size_t>(g_.num_values()), -1);
    for (const Node& n : g_.nodes()) {
      const ValueId first = add(b, n, to);
      for (int i = 0; i < n.num_values; i++) to[static_cast<size_t>(n.first_value + i)] = first + i;
      if (n.first_value >= 0 && depth_.count(n.first_value)) scale(b, n.first_value, first);
    }
    return std::move(b).finish();
  }

 private:
  struct Scaled { ValueId line = -1, factor = -1; };   ///< the value in float16; what it was divided by

  /// The dimension along which all readers of v add it up, if they are calls' TF32 contractions with float16 partners and nothing else; -1.
  int depth_of(ValueId v, const std::vector<NodeId>& readers) const {
    if (g_.type(v).dtype != DType::kReal || !g_.def_form<Map>(v) || g_.dims(v).rank() < 2 || readers.empty()) return -1;
    int dim = -1;
    for (NodeId n : readers) {
      const auto* call = g_.form<Call>(n);
      if (!call) return -1;
      const Graph& body = *call->body;
      const auto users = body.users();
      const std::vector<Phase> phase = phases(body);
      for (NodeId in : body.inputs()) {
        if (g_.node(n).operands[static_cast<size_t>(body.form<Input>(in)->param)] != v) continue;
        const ValueId u = body.node(in).first_value;
        for (NodeId m : users[static_cast<size_t>(u)]) {
          const int side = contracted(body, users, phase, in, m);
          if (side < 0) return -1;
          const int d = reduced_dim(static_cast<size_t>(side), g_.dims(v).rank());
          if (dim >= 0 && d != dim) return -1;
          dim = d;
        }
      }
    }
    // A few lines that inputs give elementwise cost a weight stream less than a kernel of their own; the predictions are nearer each other
    // than the model is to what was measured.
    if (dim >= 0 && g_.dims(v).elements() / g_.dims(v)[dim] <= kFewLines && !reduces(v)) return -1;
    return dim;
  }
  /// Whether v needs a reduction (a norm) that is a value of this level.
  bool reduces(ValueId v) const {
    return find_below(g_, v, [&](ValueId x) {
      return g_.def_form<Reduce>(x) ? Look::kFound : g_.def_form<Map>(x) ? Look::kInto : Look::kPast;
    });
  }

  /// Which operand (0, 1) of node m the input is, if m is such a contraction, over the whole reduction, and is added up and nothing else;
  /// -1.
  int contracted(const Graph& body, const std::vector<std::vector<NodeId>>& users, const std::vector<Phase>& phase, NodeId in,
                 NodeId m) const {
    const ValueId u = body.node(in).first_value;
    if (!body.form<MatMul>(m) || phase[static_cast<size_t>(body.node(m).first_value)] != Phase::kLoop) return -1;
    const auto& o = body.node(m).operands;
    if (o[0] == o[1]) return -1;
    const size_t side = o[0] == u ? 0 : 1;
    const DType partner = body.type(o[1 - side]).dtype;
    if (partner != DType::kF16 || contract_type(body.type(o[0]).dtype, body.type(o[1]).dtype, rule_) != ContractType::kTF32) return -1;
    const Partition& part = body.form<Input>(in)->part;
    const int depth = reduced_dim(side, body.dims(u).rank());
    if (part.loop != depth || std::count(part.grid.begin(), part.grid.end(), depth) > 0) return -1;
    const auto& readers = users[static_cast<size_t>(body.node(m).first_value)];
    const bool added = !readers.empty() && std::all_of(readers.begin(), readers.end(), [&](NodeId r) {
      const auto* a = body.form<Accum>(r);
      return a && a->fn == ReduceFn::kSum && a->degree == 0;
    });
    return added ? static_cast<int>(side) : -1;
  }

  void scale(Builder& b, ValueId v, ValueId x) {
    const ValueId largest = b.add(Reduce{ReduceFn::kMax, depth_.at(v), 0}, {b.map(MapFn::kAbs, {x})});
    const ValueId bounded = b.map(MapFn::kClamp, {largest, b.constant(kLeastMagnitude), b.constant(kLargestMagnitude)});
    const ValueId half = b.constant(kLargestHalf);
    const ValueId line = b.map(MapFn::kCastF16, {b.map(MapFn::kMul, {x, b.map(MapFn::kDiv, {half, bounded})})});
    scaled_[v] = {line, b.map(MapFn::kDiv, {bounded, half})};
  }

  ValueId add(Builder& b, const Node& n, const std::vector<ValueId>& to) {
    if (const auto* in = std::get_if<Input>(&n.op)) return b.add_input(in->param, g_.type(n.first_value), in->part);
    std::vector<ValueId> operands;
    for (ValueId o : n.operands) operands.push_back(to[static_cast<size_t>(o)]);
    const auto* call = std::get_if<Call>(&n.op);
    std::map<int, int> factor_of;   // params of narrowed operands; of their factors
    if (call)
      for (size_t i = 0, given = operands.size(); i < given; i++)
        if (const auto s = scaled_.find(n.operands[i]); s != scaled_.end()) {
          operands[i] = s->second.line;
          factor_of[static_cast<int>(i)] = static_cast<int>(operands.size());
          operands.push_back(s->second.factor);
        }
    return factor_of.empty() ? b.add(n.op, operands) : b.add(Call{std::make_shared<const Graph>(body(*call->body, factor_of))}, operands);
  }

  /// The body whose operands are lines in float16, with their factors as further inputs.
  static Graph body(const Graph& from, const std::map<int, int>& factor_of) {
    Builder b(Level::kBlock, from.launch());
    std::vector<ValueId> to(static_cast<size_t>(from.num_values()), -1);
    std::map<ValueId, ValueId> factor;   // of an input's value
    for (NodeId n : from.inputs()) {
      const Input& in = *from.form<Input>(n);
      const ValueId v = from.node(n).first_value;
      Type type = from.type(v);
      if (factor_of.count(in.param)) type.dtype = DType::kF16;
      to[static_cast<size_t>(v)] = b.add_input(in.param, type, in.part);
    }
    for (NodeId n : from.inputs()) {
      const Input& in = *from.form<Input>(n);
      const auto at = factor_of.find(in.param);
      if (at == factor_of.end()) continue;
      Type type{DType::kReal, from.dims(from.node(n).first_value)};
      Partition part = in.part;
      type.dims[part.loop] = 1;
      part.loop = -1;
      factor[from.node(n).first_value] = b.add_input(at->second, type, part);
    }
    for (NodeId n = 0; n < from.num_nodes(); n++) {
      const Node& node = from.node(n);
      if (from.form<Input>(n)) continue;
      std::vector<ValueId> o;
      for (ValueId v : node.operands) o.push_back(to[static_cast<size_t>(v)]);
      ValueId first = b.add(node.op, o);
      if (from.form<Accum>(n) && from.def_form<MatMul>(node.operands[0]))
        for (ValueId v : from.def(node.operands[0]).operands)
          if (const auto f = factor.find(v); f != factor.end()) first = b.map(MapFn::kMul, {first, f->second});
      for (int i = 0; i < node.num_values; i++) to[static_cast<size_t>(node.first_value + i)] = first + i;
    }
    return std::move(b).finish();
  }

  const Graph& g_;
  const ContractRule rule_;
  std::map<ValueId, int> depth_;
  std::map<ValueId, Scaled> scaled_;
};

}  // namespace

std::optional<Graph> narrow_operands(const Graph& g, const ContractRule& rule) {
  if (rule.narrow == DType::kBF16) return std::nullopt;   // has the range
  return Narrower(g, rule).run();
}

}  // namespace mirage

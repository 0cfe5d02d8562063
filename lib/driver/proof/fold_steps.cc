// prove_fold: see the header.
#include "driver/proof/fold_steps.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <fmt/format.h>

namespace mirage {

namespace {

/// The part of a graph between leaves and one value, as a graph of its own that takes the leaves in other shapes and gives the value in
/// another. Constants that stand for extents are numbers: extents of the program are not those of a step.
class StepGraph {
 public:
  StepGraph(const Graph& g, const std::map<ValueId, int>& leaves) : g_(g), leaves_(leaves), b_(Level::kKernel) {}

  void input(const Type& type) { inputs_.push_back(b_.add_input(static_cast<int>(inputs_.size()), type)); }
  /// nullopt: the value needs other inputs.
  std::optional<Graph> finish(ValueId v, const Dims& dims) {
    const std::optional<ValueId> made = make(v);
    if (!made) return std::nullopt;
    b_.add_output(0, fit(*made, dims), g_.type(v).dtype == DType::kBool ? DType::kBool : DType::kReal);
    return remove_dead(b_.graph());
  }

 private:
  ValueId fit(ValueId v, const Dims& dims) { return b_.graph().dims(v) == dims ? v : b_.add(Reshape{dims}, {v}); }
  std::optional<ValueId> make(ValueId v) {
    if (const auto known = made_.find(v); known != made_.end()) return known->second;
    if (const auto leaf = leaves_.find(v); leaf != leaves_.end())
      return made_[v] = fit(inputs_[static_cast<size_t>(leaf->second)], g_.dims(v));
    const Node& node = g_.def(v);
    if (std::holds_alternative<Input>(node.op) || std::holds_alternative<Call>(node.op)) return std::nullopt;
    std::vector<ValueId> operands;
    for (ValueId o : node.operands) {
      const std::optional<ValueId> operand = make(o);
      if (!operand) return std::nullopt;
      operands.push_back(*operand);
    }
    Op op = node.op;
    if (auto* c = std::get_if<Const>(&op)) c->extent_of.clear();
    return made_[v] = b_.add(std::move(op), operands);
  }

  const Graph& g_;
  const std::map<ValueId, int>& leaves_;
  Builder b_;
  std::vector<ValueId> inputs_;
  std::map<ValueId, ValueId> made_;
};

class FoldProof {
 public:
  explicit FoldProof(const Folded& f) : f_(f), a_(f.whole.graph), b_(f.program.graph) {}

  Proof run() {
    if (f_.to.size() != static_cast<size_t>(a_.num_values())) return failed("values of the folded program are not known");
    for (ValueId v = 0; v < a_.num_values(); v++)
      if (is_cut(v) && !a_.def_form<Input>(v) && !step(v)) return failed(fmt::format("value {} has no proof", v));
    for (NodeId n : a_.outputs())
      if (!same_result(n)) return failed("a result is not known to be the same");
    out_.proved = true;
    out_.method = "normal forms";
    return out_;
  }

 private:
  static Proof failed(std::string why) {
    Proof out;
    out.gave_up = true;
    out.reason = std::move(why);
    return out;
  }
  ValueId in_place(ValueId v) const { return f_.to[static_cast<size_t>(v)]; }
  bool is_cut(ValueId v) const {
    const ValueId u = in_place(v);
    if (u < 0 || a_.def_form<Const>(v) || b_.dims(u).elements() != a_.dims(v).elements() || b_.type(u).dtype != a_.type(v).dtype)
      return false;
    const auto *mine = a_.def_form<Input>(v), *its = b_.def_form<Input>(u);
    return !mine || (its && its->param == mine->param);
  }

  /// That v is what stands in its place, of the values before it.
  bool step(ValueId v) {
    std::vector<ValueId> leaves;
    std::set<ValueId> seen;
    const std::function<void(ValueId)> collect = [&](ValueId o) {
      if (!seen.insert(o).second) return;
      if (is_cut(o)) { leaves.push_back(o); return; }
      for (ValueId p : a_.def(o).operands) collect(p);
    };
    for (ValueId o : a_.def(v).operands) collect(o);
    std::map<ValueId, int> here, there;
    for (ValueId l : leaves) {
      there.emplace(in_place(l), static_cast<int>(here.size()));
      here.emplace(l, static_cast<int>(here.size()));
    }
    StepGraph x(a_, here), y(b_, there);
    for (ValueId l : leaves) x.input(a_.type(l)), y.input(a_.type(l));
    const auto given = x.finish(v, a_.dims(v)), folded = y.finish(in_place(v), a_.dims(v));
    if (!given || !folded) return false;
    if (!known_.insert(print(*given) + print(*folded)).second) return true;
    const Proof p = prove(*given, *folded, kQuickProofSteps);
    out_.size += p.size;
    for (const std::string& c : p.conditions)
      if (std::find(out_.conditions.begin(), out_.conditions.end(), c) == out_.conditions.end()) out_.conditions.push_back(c);
    return p.proved;
  }

  /// Results are values in their places, but for how they are shaped.
  bool same_result(NodeId n) const {
    const Output& out = *a_.form<Output>(n);
    for (NodeId m : b_.outputs()) {
      if (b_.form<Output>(m)->result != out.result) continue;
      ValueId v = a_.node(n).operands[0], u = b_.node(m).operands[0];
      const ValueId w = in_place(v);
      const auto base = [&](ValueId x) { while (b_.def_form<Reshape>(x)) x = b_.def(x).operands[0]; return x; };
      return is_cut(v) && base(u) == base(w) && b_.form<Output>(m)->dtype == out.dtype;
    }
    return false;
  }

  const Folded& f_;
  const Graph &a_, &b_;
  std::set<std::string> known_;   // steps that are proved
  Proof out_;
};

}  // namespace

Proof prove_fold(const Folded& f) { return FoldProof(f).run(); }

}  // namespace mirage

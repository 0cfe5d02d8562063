// Planner, first part: which values are stored and where, as views of inputs, outputs and workspace; what several kernels would compute
// again is stored, too.
#include <algorithm>

#include "mirage/plan/block.h"
#include "plan/passes/contiguous.h"
#include "plan/planner.h"
#include "plan/passes/selection.h"
#include "plan/storage.h"

namespace mirage {
namespace {

constexpr int kMaxJoined = 1000;      ///< statements of all operands of a concatenation, beyond which they are stored
/// statements that a branch counts for: what compilers make of nested ones grows faster than their number
constexpr int kBranchLength = 3;
constexpr int kMaxInlined = 150;      ///< statements that one value may cost before it is stored

DType storage(DType t) { return t == DType::kReal ? DType::kF32 : t; }

}  // namespace

void Planner::place_inputs() {
  for (size_t i = 0; i < program_.inputs.size(); i++) {
    const TensorInfo& t = program_.inputs[i];
    buffers_.push_back({Buffer::Kind::kInput, static_cast<int>(i), t.type.dtype, t.type.dims, t.strides, 0});
    buffers_.back().by_value = t.by_value;
  }
  for (size_t i = 0; i < program_.outputs.size(); i++) {
    const TensorInfo& t = program_.outputs[i];
    buffers_.push_back({Buffer::Kind::kOutput, static_cast<int>(i), t.type.dtype, t.type.dims, t.strides, 0});
  }
  // of a part of a plan: what lay in its workspace
  for (size_t b = 0; model_ && b < buffers_.size(); b++) buffers_[b].tf32 = model_->buffers[b].tf32;
  for (NodeId n : g_.inputs()) {
    const int param = g_.form<Input>(n)->param;
    views_[static_cast<size_t>(g_.node(n).first_value)] = {param, 0, program_.inputs[static_cast<size_t>(param)].strides};
  }
}

bool Planner::step_back(ValueId& v, Dims& strides) const {
  if (const auto* t = form<Transpose>(v)) {
    Dims s = strides;
    for (int i = 0; i < s.rank(); i++) s[t->perm[static_cast<size_t>(i)]] = strides[i];
    strides = s;
  } else if (form<Reshape>(v)) {
    const auto s = reshape_strides(g_.dims(v), strides, g_.dims(operand(v)));
    if (!s) return false;
    strides = *s;
  } else {
    return false;
  }
  v = operand(v);
  return true;
}

void Planner::place_outputs() {
  const auto users = g_.users();
  for (NodeId n : g_.outputs()) {
    const Output& out = *g_.form<Output>(n);
    ValueId v = g_.node(n).operands[0];
    const int buffer = static_cast<int>(program_.inputs.size()) + out.result;
    Dims strides = buffers_[static_cast<size_t>(buffer)].strides;
    bool alone = true;   // nobody but this output reads the value
    while (true) {
      alone = alone && users[static_cast<size_t>(v)].size() == 1;
      if (model_moves(v) || !step_back(v, strides)) break;
    }
    const DType dtype = buffers_[static_cast<size_t>(buffer)].dtype;
    const Access access{buffer, 0, g_.dims(v), strides, dtype, buffers_[static_cast<size_t>(buffer)].tf32};
    const bool exact = storage(g_.type(v).dtype) == dtype;
    if (form<Call>(v)) {
      const DType body = g_.type(v).dtype;   // rounding to a narrower type must happen before a wider output stores it
      if (views_[static_cast<size_t>(v)].buffer < 0 && (exact || (body == DType::kReal && alone)))
        views_[static_cast<size_t>(v)] = {buffer, 0, strides};
      else copies_.push_back({v, {access}});
    } else if (form<Input>(v)) {
      copies_.push_back({v, {access}});
    } else {
      stored_[static_cast<size_t>(v)] = true;
      outs_[static_cast<size_t>(v)].push_back(access);
      if (exact && views_[static_cast<size_t>(v)].buffer < 0) views_[static_cast<size_t>(v)] = {buffer, 0, strides};
    }
  }
}

bool Planner::model_moves(ValueId v) const {
  return model_ && is_view(op_of(v)) && std::any_of(model_->kernels.begin(), model_->kernels.end(), [&](const KernelPlan& k) {
           return std::count(k.nodes.begin(), k.nodes.end(), g_.value(v).node) > 0;
         });
}

void Planner::place_operands() {
  for (NodeId n = 0; n < g_.num_nodes(); n++) {
    if (!g_.form<Call>(n)) continue;
    for (ValueId o : g_.node(n).operands) {
      ValueId v = o;
      while (is_view(op_of(v)) && !stored_[static_cast<size_t>(v)]) v = operand(v);
      if (is_given(v) || stored_[static_cast<size_t>(v)]) {
        needed_views_.push_back(o);
        continue;
      }
      v = o;   // a region makes it: before transposes and reshapes, so that it writes in its own order
      while ((form<Transpose>(v) || form<Reshape>(v)) && !stored_[static_cast<size_t>(v)]) v = operand(v);
      stored_[static_cast<size_t>(v)] = true;
      needed_views_.push_back(o);
    }
  }
  for (ValueId o : needed_views_)   // reshapes of strided things may need a copy
    if (!can_view(o)) stored_[static_cast<size_t>(o)] = true;
}

std::optional<View> Planner::view_with(ValueId v, bool assume) const {
  if (is_given(v) || stored_[static_cast<size_t>(v)]) {
    const View& at = views_[static_cast<size_t>(v)];
    if (at.buffer < 0) return assume ? std::optional(View{-1, 0, row_major_strides(g_.dims(v))}) : std::nullopt;
    return at;
  }
  if (!is_view(op_of(v))) return std::nullopt;
  auto view = view_with(operand(v), assume);
  if (!view) return std::nullopt;
  return seen_through(v, *view);
}

int Planner::dim_through(ValueId v, int d) const {
  const Dims &from = g_.dims(operand(v)), &to = g_.dims(v);
  if (const auto* t = form<Transpose>(v)) return static_cast<int>(std::find(t->perm.begin(), t->perm.end(), d) - t->perm.begin());
  if (const auto* s = form<Slice>(v)) return s->dim == d ? -1 : d;
  if (const auto* r = form<Repeat>(v)) return r->dim == d ? -1 : d;
  int64_t ahead = 1, before = 1;   // elements of the dimensions ahead of it
  for (int i = 0; i < d; i++) ahead *= from[i];
  for (int i = 0; i < to.rank() && before <= ahead; before *= to[i++])
    if (before == ahead && to[i] == from[d]) return i;
  return -1;
}

bool Planner::see_part(ValueId v, const Dims& from, const Dims& to, int64_t& offset, Dims& strides) const {
  if (const auto* t = form<Transpose>(v)) {
    const Dims s = strides;
    for (int i = 0; i < s.rank(); i++) strides[i] = s[t->perm[static_cast<size_t>(i)]];
  } else if (const auto* s = form<Slice>(v)) {
    offset += s->start * strides[s->dim];
    strides[s->dim] *= s->step;
  } else if (const auto* r = form<Repeat>(v)) {
    if (from[r->dim] != 1) return false;
    strides[r->dim] = 0;
  } else {
    const auto s = reshape_strides(from, strides, to);
    if (!s) return false;
    strides = *s;
  }
  return true;
}

std::optional<View> Planner::seen_through(ValueId v, const View& of) const {
  const Dims &from = g_.dims(operand(v)), &to = g_.dims(v);
  View out = of;
  if (of.second.buffer < 0) return see_part(v, from, to, out.offset, out.strides) ? std::optional(out) : std::nullopt;
  out.second.dim = dim_through(v, of.second.dim);
  if (out.second.dim < 0) return std::nullopt;
  Dims part = from, shown = to;
  part[of.second.dim] = shown[out.second.dim] = of.second.first;
  if (!see_part(v, part, shown, out.offset, out.strides)) return std::nullopt;
  part[of.second.dim] = shown[out.second.dim] = from[of.second.dim] - of.second.first;
  return see_part(v, part, shown, out.second.offset, out.second.strides) ? std::optional(out) : std::nullopt;
}

void Planner::find_reduces() {
  const auto users = g_.users();
  for (ValueId v = 0; v < g_.num_values(); v++) {
    const Reduce* r = form<Reduce>(v);
    if (!r || find_selection(g_, v)) continue;
    const ValueId x = operand(v);
    ReduceInfo info{r->fn, x, std::vector<bool>(static_cast<size_t>(g_.dims(x).rank())), r->group == g_.dims(x)[r->dim] ? 0 : r->group};
    info.reduced[static_cast<size_t>(r->dim)] = true;
    auto before = reduces_.find(x);
    if (before != reduces_.end() && before->second.fn == r->fn && !before->second.group && !info.group &&
        !stored_[static_cast<size_t>(x)] && users[static_cast<size_t>(x)].size() == 1) {
      info.base = before->second.base;
      for (size_t i = 0; i < info.reduced.size(); i++) info.reduced[i] = info.reduced[i] || before->second.reduced[i];
      reduces_.erase(before);
    }
    reduces_[v] = info;
  }
  for (const auto& [v, info] : reduces_) stored_[static_cast<size_t>(v)] = true;
}

ValueId Planner::padded(ValueId v) const {
  const auto is_constant = [&](ValueId o) {
    while (is_view(op_of(o)) || form<Repeat>(o)) o = operand(o);
    return form<Const>(o) != nullptr;
  };
  while (form<Concat>(v)) {
    ValueId x = -1;
    for (ValueId o : g_.def(v).operands) {
      if (is_constant(o)) continue;
      if (x >= 0) return v;
      x = o;
    }
    if (x < 0) return v;
    v = x;
  }
  return v;
}

void Planner::find_shared() {
  const auto users = g_.users();
  std::vector<int> uses(stored_.size());
  for (ValueId v = g_.num_values() - 1; v >= 0; v--)
    for (NodeId n : users[static_cast<size_t>(v)]) {
      const Node& node = g_.node(n);
      if (std::holds_alternative<Output>(node.op)) continue;
      uses[static_cast<size_t>(v)] +=
          is_view(node.op) && !stored_[static_cast<size_t>(node.first_value)] ? uses[static_cast<size_t>(node.first_value)] : 1;
    }
  std::vector<int> length(stored_.size(), 1), loads(stored_.size(), 0);
  std::vector<bool> heavy(stored_.size());
  for (ValueId v = 0; v < g_.num_values(); v++) {
    const auto i = static_cast<size_t>(v);
    if (is_given(v)) { loads[i] = 1; continue; }
    if (reduces_.count(v)) { loads[i] = 1; continue; }
    if (const auto s = form<Reduce>(v) ? find_selection(g_, v) : std::nullopt) {   // what it reads is computed where the index says
      length[i] = length[static_cast<size_t>(s->x)] + kBranchLength, loads[i] = loads[static_cast<size_t>(s->x)] + 1,
      heavy[i] = heavy[static_cast<size_t>(s->x)];
      stored_[i] = stored_[i] || uses[i] > 1 || length[i] > kMaxInlined;
      if (stored_[i]) length[i] = 1, loads[i] = 1, heavy[i] = false;
      continue;
    }
    length[i] = is_view(op_of(v)) ? 0 : 1;
    for (ValueId o : g_.def(v).operands) {
      length[i] += length[static_cast<size_t>(o)];
      loads[i] += loads[static_cast<size_t>(o)];
      heavy[i] = heavy[i] || heavy[static_cast<size_t>(o)];
    }
    if (auto* m = form<Map>(v))
      heavy[i] = heavy[i] || map_info(m->fn).cls == MapClass::kAtomic || m->fn == MapFn::kExp || m->fn == MapFn::kDiv ||
                 m->fn == MapFn::kSigmoid || m->fn == MapFn::kSilu;
    const bool light = !loads[i] || (loads[i] == 1 && length[i] <= 4 && !heavy[i]);
    const bool is_computation = form<Map>(v) || form<Concat>(v) || form<Repeat>(v);
    if (form<Concat>(v)) length[i] += kBranchLength * static_cast<int>(g_.def(v).operands.size());
    if (form<Concat>(v) && length[i] > kMaxJoined)   // each operand is short enough, all of them together are not
      for (ValueId o : g_.def(v).operands)
        if (const auto k = static_cast<size_t>(o); length[k] > 1 && !is_view(op_of(o))) stored_[k] = true;
    if ((is_computation && uses[i] > 1 && !light) || length[i] > kMaxInlined) stored_[i] = true;
    // what lies between constants is worth storing; where they stand around it every reader may tell by itself
    if (const ValueId x = padded(v); stored_[i] && x != v && heavy[i] && form<Map>(x)) stored_[static_cast<size_t>(x)] = true;
    if (stored_[i]) length[i] = 1, loads[i] = 1, heavy[i] = false;
  }
}

void Planner::give_buffers() {
  const auto users = g_.users();
  const ContractRule rule = contract_rule(program_);
  for (ValueId v = 0; v < g_.num_values(); v++) {
    View& view = views_[static_cast<size_t>(v)];
    if (view.buffer >= 0 || (!stored_[static_cast<size_t>(v)] && !form<Call>(v))) continue;
    const StoredType stored = stored_type(g_, users, v, rule);
    const int buffer = add_workspace(stored.dtype, g_.dims(v));
    if (is16(stored.dtype) && is_operand(users, v)) buffers_.back().strides = line_strides(g_.dims(v), dtype_bytes(stored.dtype));
    view = {buffer, 0, buffers_.back().strides};
    buffers_.back().tf32 = stored.tf32;
  }
}

/// Whether calls read v, as it lies, and nothing needs its elements without gaps.
bool Planner::is_operand(const std::vector<std::vector<NodeId>>& users, ValueId v) const {
  const auto& readers = users[static_cast<size_t>(v)];
  return std::any_of(readers.begin(), readers.end(), [&](NodeId n) { return g_.form<Call>(n) != nullptr; }) &&
         std::none_of(readers.begin(), readers.end(), [&](NodeId n) { return is_view(g_.node(n).op); });
}

int Planner::add_workspace(DType dtype, const Dims& dims) {
  buffers_.push_back({Buffer::Kind::kWorkspace, 0, dtype, dims, row_major_strides(dims), 0});
  return static_cast<int>(buffers_.size()) - 1;
}

}  // namespace mirage

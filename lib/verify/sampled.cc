// Which elements of which values, and which blocks of which calls, some elements of the results need: from the results back to the inputs,
// each node once.
#include "verify/sampled.h"

#include <climits>
#include <cstdio>
#include <map>
#include <set>

namespace mirage::verify {

void Positions::sort() {
  std::sort(runs_.begin(), runs_.end(), [](const Run& x, const Run& y) { return x.first < y.first; });
  size_t kept = 0;
  for (const Run& r : runs_) {
    if (kept && r.first <= runs_[kept - 1].first + runs_[kept - 1].count) {
      runs_[kept - 1].count = std::max(runs_[kept - 1].count, r.first + r.count - runs_[kept - 1].first);
      continue;
    }
    runs_[kept++] = r;
  }
  runs_.resize(kept);
  int64_t before = 0;
  for (Run& r : runs_) { r.before = before; before += r.count; }
}

int64_t Positions::place(int64_t position, size_t& hint) const {
  for (size_t i = hint; i < std::min(hint + 2, runs_.size()); i++)
    if (const Run& r = runs_[i]; position >= r.first && position < r.first + r.count) { hint = i; return r.before + position - r.first; }
  auto it = std::upper_bound(runs_.begin(), runs_.end(), position, [](int64_t p, const Run& r) { return p < r.first; });
  if (it == runs_.begin()) return -1;
  --it;
  if (position >= it->first + it->count) return -1;
  hint = static_cast<size_t>(it - runs_.begin());
  return it->before + position - it->first;
}

int64_t broadcast_position(const Dims& from, const Dims& to, int64_t position) {
  int64_t out = 0, stride = 1;
  const int shift = to.rank() - from.rank();
  for (int d = to.rank() - 1; d >= shift; d--) {
    if (from[d - shift] != 1) out += position % to[d] * stride;
    stride *= from[d - shift];
    position /= to[d];
  }
  return out;
}

int64_t batch_of(const Dims& operand, const Dims& product, int64_t batch) {
  Dims from, to;
  for (int d = 0; d + 2 < product.rank(); d++) { from.push_back(operand[d]); to.push_back(product[d]); }
  return broadcast_position(from, to, batch);
}

At follow_view(const Graph& g, ValueId v, int64_t position) {
  const Node& node = g.def(v);
  const Dims& out = g.dims(v);
  const ValueId x = node.operands[0];
  if (std::holds_alternative<Reshape>(node.op)) return {x, position};
  if (const auto* t = std::get_if<Transpose>(&node.op)) {
    const Dims s = row_major_strides(g.dims(x));
    int64_t from = 0;
    for (int d = out.rank() - 1; d >= 0; d--) { from += position % out[d] * s[t->perm[static_cast<size_t>(d)]]; position /= out[d]; }
    return {x, from};
  }
  const auto* slice = std::get_if<Slice>(&node.op);
  const auto* repeat = std::get_if<Repeat>(&node.op);
  const auto* concat = std::get_if<Concat>(&node.op);
  MIRAGE_ASSERT(slice || repeat || concat) << "follow_view on " << form_name(node.op);
  const int dim = slice ? slice->dim : repeat ? repeat->dim : concat->dim;
  int64_t inner = 1;
  for (int d = dim + 1; d < out.rank(); d++) inner *= out[d];
  const int64_t outer = position / inner / out[dim], rest = position % inner;
  int64_t at = position / inner % out[dim];
  ValueId from = x;
  if (slice) at = slice->start + at * slice->step;
  if (repeat) at %= g.dims(x)[dim];
  if (concat)
    for (ValueId w : node.operands) {
      from = w;
      if (at < g.dims(w)[dim]) break;
      at -= g.dims(w)[dim];
    }
  return {from, (outer * g.dims(from)[dim] + at) * inner + rest};
}

std::vector<ProductBlock> product_blocks(const Dims& out, const Positions& needed) {
  const int64_t rows = out[out.rank() - 2], columns = out[out.rank() - 1];
  std::map<std::pair<int64_t, std::vector<int64_t>>, std::vector<int64_t>> groups;   // rows that need the same columns of the same batch
  std::vector<int64_t> here;
  int64_t row = -1;
  const auto close = [&] {
    if (!here.empty()) groups[{row / rows, here}].push_back(row % rows);
    here.clear();
  };
  needed.each([&](int64_t e) {
    if (e / columns != row) close();
    row = e / columns;
    here.push_back(e % columns);
  });
  close();
  std::vector<ProductBlock> blocks;
  for (auto& [key, list] : groups) blocks.push_back({key.first, list, key.second});
  return blocks;
}

namespace {

constexpr int kViewsFollowed = 8;   // views of views of ... are followed for each element that is read; beyond, they are copied
constexpr double kValueBytes = 16;

bool moves(const Op& op) { return is_view(op) || std::holds_alternative<Repeat>(op) || std::holds_alternative<Concat>(op); }

double body_work(const Graph& g) {
  double work = 0;
  for (const Node& n : g.nodes()) {
    for (int i = 0; i < n.num_values; i++) work += static_cast<double>(g.dims(n.first_value + i).elements());
    if (std::holds_alternative<MatMul>(n.op))
      work += 2.0 * static_cast<double>(g.dims(n.first_value).elements()) * static_cast<double>(g.dims(n.operands[0]).back());
    if (std::holds_alternative<Reduce>(n.op)) work += static_cast<double>(g.dims(n.operands[0]).elements());
    if (const auto* c = std::get_if<Call>(&n.op))
      work += body_work(*c->body) * static_cast<double>(c->body->launch().blocks()) * static_cast<double>(c->body->launch().loop);
  }
  return work;
}

double body_elements(const Graph& g) {
  double out = 0;
  for (ValueId v = 0; v < g.num_values(); v++) out += 3 * static_cast<double>(g.dims(v).elements());   // a running maximum is kept thrice
  return out;
}

class Planner {
 public:
  Planner(const Graph& g, const SampleLimits& limits) : g_(g), limits_(limits) {
    const auto n = static_cast<size_t>(g.num_values());
    plan_.needed.resize(n);
    plan_.direct.assign(n, 0);
    plan_.blocks.resize(static_cast<size_t>(g.num_nodes()));
    plan_.frees.resize(static_cast<size_t>(g.num_nodes()));
    is_free_.assign(n, 0);
  }

  SamplePlan run(std::span<const Sample> samples) && {
    find_direct();
    find_frees();
    const std::vector<NodeId> outputs = g_.outputs();
    for (const Sample& s : samples) need(g_.node(outputs[static_cast<size_t>(s.result)]).operands[0], s.element);
    for (NodeId n = g_.num_nodes() - 1; n >= 0 && plan_.refusal.empty(); n--) node(n);
    return std::move(plan_);
  }

 private:
  void find_direct() {
    std::vector<int> depth(plan_.direct.size(), 0);
    for (NodeId n = 0; n < g_.num_nodes(); n++) {
      const Node& node = g_.node(n);
      if (node.first_value < 0) continue;
      const auto v = static_cast<size_t>(node.first_value);
      if (g_.form<Input>(n) || g_.form<Const>(n) || g_.form<Iota>(n)) { plan_.direct[v] = is_free_[v] = 1; continue; }
      if (!moves(node.op)) continue;
      bool all_free = true;
      for (ValueId w : node.operands) {
        depth[v] = std::max(depth[v], depth[static_cast<size_t>(w)] + 1);
        all_free = all_free && is_free_[static_cast<size_t>(w)];
      }
      if (depth[v] > kViewsFollowed) { depth[v] = 0; continue; }
      plan_.direct[v] = 1;
      is_free_[v] = all_free;
    }
  }

  void find_frees() {
    std::vector<int> last(plan_.direct.size(), -1);
    for (NodeId n = g_.num_nodes() - 1; n >= 0; n--) {
      const Node& node = g_.node(n);
      const bool follows = node.first_value >= 0 && plan_.direct[static_cast<size_t>(node.first_value)];
      // what a view reads is read where the view is
      const int at = g_.form<Output>(n) ? INT_MAX : follows ? last[static_cast<size_t>(node.first_value)] : n;
      for (ValueId w : node.operands) last[static_cast<size_t>(w)] = std::max(last[static_cast<size_t>(w)], at);
    }
    for (size_t v = 0; v < last.size(); v++)
      if (last[v] >= 0 && last[v] != INT_MAX) plan_.frees[static_cast<size_t>(last[v])].push_back(static_cast<ValueId>(v));
  }

  /// From here on nothing is noted where a limit is passed: the loops run out, at most as long as the limit of work lets them.
  void count(double work, double bytes) {
    plan_.work += work;
    plan_.bytes += bytes;
    if (!plan_.refusal.empty() || (plan_.work <= limits_.work && plan_.bytes <= limits_.bytes)) return;
    char text[120];
    if (plan_.work > limits_.work) std::snprintf(text, sizeof text, "over the limit of %.1e operations for sampled elements", limits_.work);
    else std::snprintf(text, sizeof text, "over the limit of %.0f MB for sampled elements", limits_.bytes / 1e6);
    plan_.refusal = text;
  }

  void need(ValueId v, int64_t first, int64_t count_of = 1) {
    if (is_free_[static_cast<size_t>(v)] || !plan_.refusal.empty()) return;
    Positions& p = plan_.needed[static_cast<size_t>(v)];
    const size_t before = p.runs().size();
    p.add(first, count_of);
    if (p.runs().size() != before) count(0, sizeof(Positions::Run));
  }

  void node(NodeId n) {
    const Node& node = g_.node(n);
    if (node.first_value < 0) return;
    for (int i = 0; i < node.num_values; i++) plan_.needed[static_cast<size_t>(node.first_value + i)].sort();
    if (const auto* c = g_.form<Call>(n)) return call(n, *c->body);
    const ValueId v = node.first_value;
    const Positions& p = plan_.needed[static_cast<size_t>(v)];
    if (is_free_[static_cast<size_t>(v)] || p.empty()) return;
    const auto size = static_cast<double>(p.size());
    if (g_.form<MatMul>(n)) return product(node, p);
    if (const auto* r = g_.form<Reduce>(n)) return reduce(*r, node, p);
    count(size * static_cast<double>(node.operands.size()), plan_.direct[static_cast<size_t>(v)] ? 0 : size * kValueBytes);
    if (!plan_.refusal.empty()) return;
    if (moves(node.op)) {
      p.each([&](int64_t e) { const At from = follow_view(g_, v, e); need(from.value, from.position); });
      return;
    }
    for (ValueId w : node.operands) {
      if (is_free_[static_cast<size_t>(w)]) continue;
      if (g_.dims(w) == g_.dims(v)) for (const Positions::Run& r : p.runs()) need(w, r.first, r.count);
      else p.each([&](int64_t e) { need(w, broadcast_position(g_.dims(w), g_.dims(v), e)); });
    }
  }

  void reduce(const Reduce& r, const Node& node, const Positions& p) {
    const Dims& dims = g_.dims(node.operands[0]);
    const int64_t group = r.group ? r.group : dims[r.dim], groups = dims[r.dim] / group;
    count(static_cast<double>(p.size()) * static_cast<double>(group), static_cast<double>(p.size()) * kValueBytes);
    if (!plan_.refusal.empty()) return;
    int64_t inner = 1;
    for (int d = r.dim + 1; d < dims.rank(); d++) inner *= dims[d];
    p.each([&](int64_t e) {
      const int64_t first = (e / inner / groups * dims[r.dim] + e / inner % groups * group) * inner + e % inner;
      if (inner == 1) { need(node.operands[0], first, group); return; }
      for (int64_t k = 0; k < group; k++) need(node.operands[0], first + k * inner);
    });
  }

  void product(const Node& node, const Positions& p) {
    const Dims &dims = g_.dims(node.first_value), &x = g_.dims(node.operands[0]), &y = g_.dims(node.operands[1]);
    const int r = dims.rank();
    const int64_t rows = dims[r - 2], columns = dims[r - 1], k = x[r - 1];
    count(2.0 * static_cast<double>(k) * static_cast<double>(p.size()), static_cast<double>(p.size()) * kValueBytes);
    if (!plan_.refusal.empty()) return;
    std::set<std::pair<int64_t, int64_t>> left, right;   // rows and columns by matrix
    for (const ProductBlock& b : product_blocks(dims, p)) {
      for (int64_t i : b.rows) left.insert({batch_of(x, dims, b.batch), i});
      for (int64_t j : b.columns) right.insert({batch_of(y, dims, b.batch), j});
    }
    for (auto [batch, i] : left) need(node.operands[0], (batch * rows + i) * k, k);
    if (is_free_[static_cast<size_t>(node.operands[1])]) return;
    for (auto first = right.begin(); first != right.end();) {
      auto last = first;
      while (last != right.end() && last->first == first->first) ++last;
      for (int64_t l = 0; l < k; l++)
        for (auto it = first; it != last; ++it) need(node.operands[1], (it->first * k + l) * columns + it->second);
      first = last;
    }
  }

  void call(NodeId n, const Graph& body) {
    const Node& node = g_.node(n);
    std::set<std::array<int64_t, 3>> blocks;   // z, y, x: in the order in which they run
    const std::array<int64_t, 3>& grid = body.launch().grid;
    for (NodeId o : body.outputs()) {
      const Output& out = *body.form<Output>(o);
      const ValueId v = node.first_value + out.result;
      const Positions& p = plan_.needed[static_cast<size_t>(v)];
      count(static_cast<double>(p.size()), static_cast<double>(p.size()) * kValueBytes);
      if (!plan_.refusal.empty()) return;
      p.each([&](int64_t e) { blocks_of(out, g_.dims(v), body.dims(body.node(o).operands[0]), grid, e, blocks); });
    }
    if (blocks.empty()) return;
    const double per_block = body_work(body) * static_cast<double>(body.launch().loop);
    count(per_block * static_cast<double>(blocks.size()), 24.0 * static_cast<double>(blocks.size()));
    count(0, std::max(0.0, body_elements(body) * kValueBytes - largest_body_));
    largest_body_ = std::max(largest_body_, body_elements(body) * kValueBytes);
    if (!plan_.refusal.empty()) return;
    for (const auto& b : blocks) plan_.blocks[static_cast<size_t>(n)].push_back({b[2], b[1], b[0]});
    for (NodeId i : body.inputs()) {
      const Input& in = *body.form<Input>(i);
      boxes(node.operands[static_cast<size_t>(in.param)], in, body.dims(body.node(i).first_value), body.launch().loop,
            plan_.blocks[static_cast<size_t>(n)]);
    }
  }

  /// The blocks that write a position of a result: one by the laws; all along an axis that does not tell.
  static void blocks_of(const Output& out, const Dims& whole, const Dims& tile, const std::array<int64_t, 3>& grid, int64_t position,
                        std::set<std::array<int64_t, 3>>& blocks) {
    std::array<int64_t, 3> first{}, count{1, 1, 1};
    const Dims s = row_major_strides(whole);
    for (size_t a = 0; a < 3; a++) {
      const int d = out.part.grid[a];
      const bool is_alone = d >= 0 && std::count(out.part.grid.begin(), out.part.grid.end(), d) == 1;
      if (is_alone) first[a] = position / s[d] % whole[d] / tile[d];
      else count[a] = grid[a];
    }
    for (int64_t z = first[2]; z < first[2] + count[2]; z++)
      for (int64_t y = first[1]; y < first[1] + count[1]; y++)
        for (int64_t x = first[0]; x < first[0] + count[0]; x++) blocks.insert({z, y, x});
  }

  /// The tiles of all iterations of these blocks.
  void boxes(ValueId from, const Input& in, const Dims& tile, int64_t loop, const std::vector<std::array<int64_t, 3>>& blocks) {
    if (is_free_[static_cast<size_t>(from)]) return;
    const Dims& whole = g_.dims(from);
    const Dims s = row_major_strides(whole);
    std::set<std::vector<int64_t>> seen;
    for (const auto& block : blocks) {
      eval_detail::TileBox box = eval_detail::tile_box(whole, tile, in.part, block, 0, loop);
      if (in.part.loop >= 0)
        box.extent[in.part.loop] = std::clamp<int64_t>(whole[in.part.loop] - box.first[in.part.loop], 0, tile[in.part.loop] * loop);
      std::vector<int64_t> key(box.first.begin(), box.first.end());
      if (!seen.insert(key).second) continue;
      int64_t first = 0, run = 1;
      for (int d = 0; d < whole.rank(); d++) first += box.first[d] * s[d];
      Dims outer = box.extent;   // whole rows, planes, ... are one run
      for (int d = whole.rank() - 1; d >= 0; d--) {
        run *= box.extent[d];
        outer[d] = std::min<int64_t>(outer[d], 1);
        if (box.extent[d] != whole[d]) break;
      }
      if (run > 0) eval_detail::walk<1>(outer, {s}, [&](const std::array<int64_t, 1>& i) { need(from, first + i[0], run); });
    }
  }

  const Graph& g_;
  const SampleLimits& limits_;
  SamplePlan plan_;
  std::vector<char> is_free_;   ///< by value: inputs, constants and views of nothing else: not even noted
  double largest_body_ = 0;
};

}  // namespace

SamplePlan plan_samples(const Graph& g, std::span<const Sample> samples, const SampleLimits& limits) {
  return Planner(g, limits).run(samples);
}

}  // namespace mirage::verify

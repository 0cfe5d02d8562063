// Facts about problems and splits; see open_problem.h.
#include "search/problem/open_problem.h"
#include <algorithm>

namespace mirage::search {

int most_kernels(const SearchOptions& options, bool is_tail) {
  return is_tail && options.dominance ? 1 : is_tail || options.dominance ? std::min(options.max_kernel_ops, 2) : options.max_kernel_ops;
}

SplitOptions split_options(const SearchOptions& options, const Target& target, bool is_tail, int kernels, const std::vector<int>& whole) {
  SplitOptions o;
  // with dominance only where the kernel before the sums and the one behind them are the whole
  o.partial = !is_tail && (kernels == 1 || !options.dominance);
  o.whole = whole;
  o.loops_over_whole = !options.dominance;   // there are few parts: in one step with dominance
  o.memory = target.smem_per_block + kRegisterBytes;
  o.shared = target.smem_per_block;
  o.multiprocessors = target.num_sms;
  o.bytes_per_us = target.dram_bytes_per_us;
  o.flops_per_us = target.tensor_flops_per_us;
  o.launch_us = target.launch_us;
  return o;
}

bool is_free(const Graph& g, ValueId v) {
  while (is_view(g.def(v).op)) v = g.def(v).operands[0];
  return g.def_form<Input>(v) || g.def_form<Iota>(v);
}

std::vector<ValueId> stored_values(const Graph& g) {
  std::vector<ValueId> out;
  for (NodeId n : g.outputs()) {
    ValueId v = g.node(n).operands[0];
    while (!is_free(g, v) && (g.def_form<Transpose>(v) || g.def_form<Reshape>(v))) v = g.def(v).operands[0];
    out.push_back(v);
  }
  return out;
}

int64_t least_bytes(const Graph& g, const Split& split) {
  int64_t bytes = 0;
  for (const Load& l : split.loads) {
    Dims tile = g.dims(l.leaf);
    for (int8_t d : l.part.grid) if (d >= 0) tile[d] = 1;
    if (l.part.loop >= 0) tile[l.part.loop] = 1;
    bytes += tile.elements() * dtype_bytes(g.type(l.leaf).dtype);
  }
  return bytes;
}

bool fits_memory(const Graph& g, const Split& split, const Target& target) {
  return least_bytes(g, split) <= target.smem_per_block + kRegisterBytes;
}

int block_ops_needed(const Graph& g, const Problem& problem, const Split& split) {
  int contractions = 0, regions = 0;
  std::vector<bool> inside(static_cast<size_t>(g.num_nodes()));
  for (NodeId n : problem.inside) inside[static_cast<size_t>(n)] = true;
  for (NodeId n : problem.inside) {
    contractions += g.form<MatMul>(n) || g.form<Reduce>(n);
    const std::vector<ValueId>& in = g.node(n).operands;
    regions += g.form<Map>(n) && std::none_of(in.begin(), in.end(), [&](ValueId v) {
                 return g.def_form<Map>(v) && inside[static_cast<size_t>(g.value(v).node)];
               });
  }
  return static_cast<int>(split.loads.size() + problem.targets.size()) + (split.loop_class >= 0 ? 2 : 1) * contractions + regions;
}

std::vector<DType> stored_dtypes(const Graph& g, const std::vector<ValueId>& outputs, const Problem& problem) {
  std::vector<DType> out;
  for (ValueId t : problem.targets) {
    out.push_back(g.type(t).dtype);
    const std::vector<ValueId>&p = problem.targets, &there = problem.leaves;
    const bool is_last = std::all_of(outputs.begin(), outputs.end(), [&](ValueId o) {
      return std::count(p.begin(), p.end(), o) || std::count(there.begin(), there.end(), o);
    });
    if (!is_last || std::count(outputs.begin(), outputs.end(), t) != 1) continue;
    for (size_t r = 0; r < outputs.size(); r++) if (outputs[r] == t) out.back() = g.form<Output>(g.outputs()[r])->dtype;
  }
  return out;
}

}  // namespace mirage::search

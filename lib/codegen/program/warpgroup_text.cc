// See the header.
#include "codegen/program/warpgroup_text.h"

#include <algorithm>

#include "mirage/support/assert.h"

namespace mirage::schedule {

WarpgroupText::WarpgroupText(const KernelProgram& p, const Derived& d) : MatrixText(p, d) {
  for (size_t i = 0; i < m_.products().size(); i++) {
    if (m_.is_wide(product(i))) ring_product_ = i;
    const ValueId small = m_.small(product(i));
    const NodeId stored = m_.stored(small);
    for (PlaceId x : product(i).reads)
      if ((place(x).value == small || (stored >= 0 && place(x).value == value(stored))) &&
          std::find(operands_.begin(), operands_.end(), x) == operands_.end())
        operands_.push_back(x);
  }
}

// ---- how indices are cut, and stages

int64_t WarpgroupText::parts(IndexId i, AxisKind kind) const {
  const Split* s = i < 0 ? nullptr : p_.split_of(i);
  int64_t n = 1;
  if (s) for (AxisId a : s->over) if (p_.axes[at(a)].kind == kind) n *= p_.axes[at(a)].extent;
  return n;
}

const Stage& WarpgroupText::maker(PlaceId x) const {
  const auto s = std::find_if(p_.stages.begin(), p_.stages.end(), [&](const Stage& y) { return y.to == x; });
  MIRAGE_ASSERT(s != p_.stages.end()) << "a place that no stage makes";
  return *s;
}

const Stage& WarpgroupText::store_of(NodeId output) const {
  const int result = g_.form<Output>(output)->result;
  return *std::find_if(p_.stages.begin(), p_.stages.end(),
                       [&](const Stage& s) { return s.kind == Stage::Kind::kStore && s.result == result; });
}

size_t WarpgroupText::operand_number(size_t product) const {
  const auto& reads = this->product(product).reads;
  const auto x = std::find_if(operands_.begin(), operands_.end(),
                              [&](PlaceId y) { return std::find(reads.begin(), reads.end(), y) != reads.end(); });
  MIRAGE_ASSERT(x != operands_.end()) << "a product of weights alone";
  return static_cast<size_t>(x - operands_.begin());
}

bool WarpgroupText::is_packed(const Stage& weight) const {
  if (turned()) return place(weight).section != ring();
  const IndexId free = m_.free(weight);
  if (free == m_.columns() || is_depth_major(weight) || place(weight).box.back() != 64) return false;
  for (size_t i = 0; i < m_.products().size(); i++) if (&weight_of(i) == &weight && is_tf32(i)) return false;
  return stride(input(weight), m_.reduced()) == m_.extent(free) && place(weight).elements() == chunk() * m_.extent(free);
}

int64_t WarpgroupText::barriers_at() const {
  for (size_t s = 0; s < p_.sections.size(); s++) if (p_.sections[s].barriers) return d_.section_at[s];
  return d_.smem_bytes;
}

// ---- tensor maps

bool WarpgroupText::mapped(NodeId n) const {
  const Stage* copy = m_.copy_of(n);
  return copy && copy->path == PathId::kTma;
}

std::vector<const Stage*> WarpgroupText::mapped_stages() const {
  std::vector<const Stage*> out = m_.weights();
  for (PlaceId x : operands_) if (is_copied(x)) out.push_back(&maker(x));
  for (NodeId n : g_.outputs()) if (store_of(n).way == WayId::kTma) out.push_back(&store_of(n));
  for (const Stage& s : p_.stages)
    if (s.kind == Stage::Kind::kCopy && s.path == PathId::kTma && std::find(out.begin(), out.end(), &s) == out.end()) out.push_back(&s);
  return out;
}

size_t WarpgroupText::map_number(const Stage& s) const {
  const std::vector<const Stage*> all = mapped_stages();
  return static_cast<size_t>(std::find(all.begin(), all.end(), &s) - all.begin());
}

void WarpgroupText::add_batch(TensorMapText& m, const Param& a, ValueId v) const {
  const int64_t slice = stride_of(a, v, m_.batch());
  if (!slice) return;
  m.dims.push_back(m_.extent(m_.batch()));
  m.strides.push_back(slice * dtype_bytes(a.dtype));
  m.box.push_back(1);
}

TensorMapText WarpgroupText::weight_boxes(const Stage& weight) const {
  const Place& to = place(weight);
  const std::vector<int64_t>& box = to.box;
  const bool packed = is_packed(weight);
  // lines along the reduction have as many columns as a box has lines; others have theirs in one
  const int64_t columns = packed ? 64 : is_depth_major(weight) ? std::min<int64_t>(64, box[box.size() - 2]) : box.back();
  const int64_t depth = packed ? to.elements() / ranks(weight) : chunk();
  return weight_map(m_, weight, tensor(weight), ranks(weight), static_cast<int>(columns), depth, packed);
}

/// Lines of 128 bytes of all rows of a block, or of the part of them that it brings to those that share them.
TensorMapText WarpgroupText::row_boxes(const Stage& copy) const {
  const Param& a = tensor(copy);
  const int size = dtype_bytes(a.dtype);
  const ValueId v = value(copy);
  const bool across = is_across(copy.to);
  TensorMapText m;
  m.dims = {m_.depth(), m_.extent(m_.rows())};
  m.box = {128 / size, static_cast<int>(block_rows() / sharing())};
  if (across) {
    m.dims = {m_.extent(m_.rows()), m_.depth()};
    m.box = {64, static_cast<int>(chunk())};
  }
  m.strides = {stride_of(a, v, across ? m_.reduced() : m_.rows()) * size};
  add_batch(m, a, v);
  return m;
}

/// What blocks that stay store a result by, or bring an operand of the tail: 64 columns of the rows that leave at once.
TensorMapText WarpgroupText::held_boxes(const Param& a, ValueId v, const Place& held) const {
  const int64_t rows = m_.extent(m_.rows()), columns = m_.extent(m_.columns());
  TensorMapText m;
  m.dims = {columns, rows};
  m.strides = {stride_of(a, v, m_.rows()) * dtype_bytes(a.dtype)};
  m.box = {64, static_cast<int>(held.box[1])};
  if (held.columns) {
    m.dims = {rows, columns};
    m.strides = {stride_of(a, v, m_.columns()) * dtype_bytes(a.dtype)};
    m.box = {64, 64};
  }
  add_batch(m, a, v);
  return m;
}

TensorMapText WarpgroupText::factor_boxes(const Stage& copy) const {
  const Param& a = tensor(copy);
  const ValueId v = value(copy);
  IndexId rank = -1;
  for (IndexId i : m_.indices(v)) if (i >= 0 && i != m_.columns() && i != m_.batch()) rank = i;
  TensorMapText m;
  m.dims = {m_.extent(m_.columns()), m_.extent(rank)};
  m.strides = {stride_of(a, v, rank) * dtype_bytes(a.dtype)};
  m.box = {64, static_cast<int>(place(copy).box[1])};
  add_batch(m, a, v);
  return m;
}

TensorMapText WarpgroupText::map_of(const Stage& s, const KernelCall& call) const {
  if (s.kind == Stage::Kind::kStore) {
    const Param& a = p_.results[at(s.result)];
    TensorMapText m = held_boxes(a, place(s.reads[0]).value, place(s.through[0]));
    m.buffer = call.results[at(s.result)].buffer;
    m.offset_bytes = a.offset * dtype_bytes(a.dtype);
    m.dtype = a.dtype;
    m.swizzle = 128;
    m.is_stored = true;
    return m;
  }
  const Param& a = tensor(s);
  const bool is_weight = MatrixStages::number(m_.weights(), &s) >= 0, is_deep = has(value(s), m_.reduced());
  TensorMapText m = is_weight                    ? weight_boxes(s)
                    : is_deep                    ? row_boxes(s)
                    : has(value(s), m_.rows())   ? held_boxes(a, value(s), place(s))
                                                 : factor_boxes(s);
  m.buffer = call.operands[at(param(s))].buffer;
  m.offset_bytes = a.offset * dtype_bytes(a.dtype);
  m.dtype = a.dtype;
  if (!is_weight) m.swizzle = 128;
  return m;
}

// ---- the kernel

KernelText WarpgroupText::text(const KernelPlan& kernel, const KernelCall& call, const std::string& body) const {
  KernelText k;
  k.name = kernel.name;
  std::string params;
  const auto add = [&](const std::string& text) { params += (params.empty() ? "" : ", ") + text; };
  for (const Stage* s : mapped_stages()) k.maps.push_back(map_of(*s, call));
  for (size_t i = 0; i < k.maps.size(); i++) add(fmt::format("const __grid_constant__ mo::TensorMap map{}", i));
  for (int i : pointer_params()) {
    k.args.push_back(call.operands[at(i)].buffer);
    k.written.push_back(false);
    add(fmt::format("const void* __restrict__ in{}", i));
  }
  for (size_t i = 0; i < call.results.size(); i++) {
    k.args.push_back(call.results[i].buffer);
    k.written.push_back(true);
    add(fmt::format("void* __restrict__ out{}", i));
  }
  const int64_t batch = p_.stay ? 1 : m_.extent(m_.batch());   // blocks that stay count all matrices in one
  k.grid = {d_.blocks / batch, batch, 1};
  k.threads = d_.threads;
  k.smem_bytes = d_.smem_bytes;
  k.source = fmt::format("// {}\n__global__ void {}__launch_bounds__({}, {}) {}({}) {{\n  using namespace mo;\n{}}}\n", kernel.why,
                         d_.cluster > 1 ? fmt::format("__cluster_dims__({}, 1, 1) ", d_.cluster) : "", k.threads, p_.per_sm,
                         kernel.name, params, body);
  return k;
}

}  // namespace mirage::schedule

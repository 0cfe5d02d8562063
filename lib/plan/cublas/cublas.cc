// Recognises calls that are one product of matrices as they lie in memory, and says them as cuBLASLt takes them: column by column, an
// operand transposed where its lines lie the other way.
#include "mirage/plan/cublas.h"

#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>

#include "plan/cublas/cublas_internal.h"

namespace mirage {
namespace {

constexpr int kMostAlignment = 16;                        // what tensors of the C ABI have
constexpr int64_t kMostExtent = int64_t{1} << 31;         // of rows, columns, reduction
// of float32, where it divides reductions: what NVIDIA recommends for Hopper and later, and before. 16-bit products took no less with it
constexpr int64_t kScratch90 = int64_t{32} << 20, kScratch = int64_t{4} << 20;

/// A dimension of a body's operand or result, -1: none has it.
bool is_split(const Partition& p, int dim) { return std::find(p.grid.begin(), p.grid.end(), dim) != p.grid.end(); }

/// The one batch dimension above 1; -1: there is none; nullopt: there are several.
std::optional<int> batch_dim(const Dims& d) {
  int found = -1;
  for (int i = 0; i + 2 < d.rank(); i++) {
    if (d[i] == 1) continue;
    if (found >= 0) return std::nullopt;
    found = i;
  }
  return found;
}

/// The nodes of a body that is output(accum.sum(x y)) of two inputs.
struct ProductNodes { NodeId x = -1, y = -1, output = -1; };

std::optional<ProductNodes> product_nodes(const Graph& body) {
  ProductNodes n;
  NodeId product = -1, sum = -1;
  for (NodeId i = 0; i < body.num_nodes(); i++) {
    int* of_its_kind = nullptr;
    if (body.form<Input>(i)) continue;
    if (body.form<MatMul>(i)) of_its_kind = &product;
    else if (const auto* a = body.form<Accum>(i); a && a->fn == ReduceFn::kSum && body.node(i).operands.size() == 1) of_its_kind = &sum;
    else if (body.form<Output>(i)) of_its_kind = &n.output;
    if (!of_its_kind || *of_its_kind >= 0) return std::nullopt;
    *of_its_kind = i;
  }
  if (product < 0 || n.output < 0 || (sum < 0 && body.launch().loop > 1)) return std::nullopt;
  n.x = body.value(body.node(product).operands[0]).node;
  n.y = body.value(body.node(product).operands[1]).node;
  const ValueId made = body.node(product).first_value, added = sum < 0 ? made : body.node(sum).first_value;
  const bool is_chain = (sum < 0 || body.node(sum).operands[0] == made) && body.node(n.output).operands[0] == added;
  return is_chain && body.form<Input>(n.x) && body.form<Input>(n.y) ? std::optional(n) : std::nullopt;
}

/// Whether tiles are the product's own: the loop splits the reduction of both, the grid everything else alike.
bool is_whole_product(const Graph& body, const ProductNodes& n) {
  const Partition &x = body.form<Input>(n.x)->part, &y = body.form<Input>(n.y)->part;
  const int rx = body.dims(body.node(n.x).first_value).rank(), ry = body.dims(body.node(n.y).first_value).rank();
  const bool is_looped = body.launch().loop > 1;
  if (is_looped ? x.loop != rx - 1 || y.loop != ry - 2 : x.loop >= 0 || y.loop >= 0) return false;
  return !is_split(x, rx - 1) && !is_split(y, ry - 2);
}

/// by_row: its lines are rows. Along an extent of 1 any stride will do. nullopt: its lines are not dense.
struct Lines { bool by_row = false; int64_t line = 0; };
std::optional<Lines> lines_of(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  if ((column_stride == 1 || columns == 1) && (rows == 1 || row_stride >= columns))
    return Lines{true, rows == 1 ? columns : row_stride};
  if ((row_stride == 1 || rows == 1) && (columns == 1 || column_stride >= rows))
    return Lines{false, columns == 1 ? rows : column_stride};
  return std::nullopt;
}

/// The last two dimensions of what `a` says, of matrices that lie `line` apart; `flip`: as the transposed matrix.
CublasMatrix matrix(const Access& a, int access, const Lines& lines, bool flip) {
  const int r = a.dims.rank();
  CublasMatrix m;
  m.access = access;
  m.offset = a.offset;
  m.line = lines.line;
  m.rows = a.dims[r - (lines.by_row ? 1 : 2)];
  m.columns = a.dims[r - (lines.by_row ? 2 : 1)];
  // Row by row it lies there transposed; cuBLAS is told of that unless the transposed matrix is wanted.
  m.transposed = lines.by_row != flip;
  if (const std::optional<int> b = batch_dim(a.dims); b && *b >= 0) m.batch_stride = a.strides[*b];
  return m;
}

bool is_plain(const Access& a) { return a.buffer >= 0 && a.position < 0 && a.run == 0 && !a.by_value && a.second.buffer < 0; }

/// The largest power of two that all places in memory are multiples of, with bases that are multiples of 16 bytes.
int alignment_of(const CublasPlan& p) {
  int64_t bytes = kMostAlignment;
  const std::array<std::pair<const CublasMatrix*, DType>, 3> all = {{{&p.first, p.type}, {&p.second, p.type}, {&p.result, p.result_type}}};
  for (const auto& [m, type] : all)
    bytes = std::gcd(bytes, std::gcd(m->offset * dtype_bytes(type), m->batch_stride * dtype_bytes(type)));
  return static_cast<int>(bytes);
}

/// "" or why cuBLASLt has no such product of these types.
const char* why_types(const Access& x, const Access& y, const Access& z) {
  if (x.dtype != y.dtype) return "operands of two types";
  if (!is16(x.dtype) && x.dtype != DType::kF32) return "operands that are no floating-point numbers";
  if (z.tf32) return "a result that is rounded to TF32";
  if (z.dtype != x.dtype && z.dtype != DType::kF32) return "a result of another 16-bit type";
  return "";
}

}  // namespace

std::optional<CublasPlan> cublas_plan(const Work& work, std::string& reason) {
  const auto refuse = [&](const char* why) { reason = why; return std::nullopt; };
  const std::optional<ProductNodes> nodes = product_nodes(work.body);
  if (!nodes || work.results.size() != 1 || !is_whole_product(work.body, *nodes)) return refuse("not a product and nothing else");
  const int ix = work.body.form<Input>(nodes->x)->param, iy = work.body.form<Input>(nodes->y)->param;
  const Access &x = work.operands[static_cast<size_t>(ix)], &y = work.operands[static_cast<size_t>(iy)], &z = work.results[0];
  if (!is_plain(x) || !is_plain(y) || !is_plain(z)) return refuse("an operand or result that is no dense tensor");
  if (const char* why = why_types(x, y, z); *why) return refuse(why);
  const int rx = x.dims.rank(), ry = y.dims.rank(), rz = z.dims.rank();
  if (rx < 2 || ry < 2 || rz < 2) return refuse("an operand that is no matrix");
  CublasPlan p;
  p.rows = x.dims[rx - 2], p.depth = x.dims[rx - 1], p.columns = y.dims[ry - 1];
  const auto bx = batch_dim(x.dims), by = batch_dim(y.dims), bz = batch_dim(z.dims);
  if (!bx || !by || !bz) return refuse("more than one batch dimension");
  p.batch = *bz < 0 ? 1 : z.dims[*bz];
  const auto is_alike = [&](const Access& a, int b) { return b < 0 || a.dims[b] == p.batch; };
  if (y.dims[ry - 2] != p.depth || z.dims[rz - 2] != p.rows || z.dims[rz - 1] != p.columns || !is_alike(x, *bx) || !is_alike(y, *by))
    return refuse("operands that do not fit together");
  for (int64_t e : {p.rows, p.columns, p.depth, p.batch}) if (e >= kMostExtent || e < 1) return refuse("an extent beyond 31 bits");
  const auto lines = [](const Access& a) {
    const int r = a.dims.rank();
    return lines_of(a.dims[r - 2], a.dims[r - 1], a.strides[r - 2], a.strides[r - 1]);
  };
  const auto lx = lines(x), ly = lines(y), lz = lines(z);
  if (!lx || !ly || !lz) return refuse("lines that are not dense");
  const int result = static_cast<int>(work.operands.size());
  // A result that lies row by row is the transposed product y' x' column by column.
  p.first = lz->by_row ? matrix(y, iy, *ly, true) : matrix(x, ix, *lx, false);
  p.second = lz->by_row ? matrix(x, ix, *lx, true) : matrix(y, iy, *ly, false);
  p.result = matrix(z, result, *lz, lz->by_row);
  if (p.batch > 1 && p.result.batch_stride == 0) return refuse("results that overlap");
  p.body = work.body;
  p.operands = work.operands;
  p.results = work.results;
  p.rule = work.rule;
  p.type = x.dtype;
  p.result_type = z.dtype;
  p.alignment = alignment_of(p);
  p.scratch_bytes = p.type != DType::kF32 ? 0 : work.target.sm >= 90 ? kScratch90 : kScratch;
  return p;
}

std::string print(const CublasPlan& p) {
  const auto text = [](const char* name, const CublasMatrix& m) {
    return fmt::format("  {:<7} access {} from element {}: {} x {}, {} elements between columns, {} between matrices{}\n", name, m.access,
                       m.offset, m.rows, m.columns, m.line, m.batch_stride, m.transposed ? ", transposed" : "");
  };
  return fmt::format("  {} x {} by {} x {}, {} to {}, {} of them, places are multiples of {} bytes, {} bytes of scratch\n", p.rows, p.depth,
                     p.depth, p.columns, dtype_name(p.type), dtype_name(p.result_type), p.batch, p.alignment, p.scratch_bytes) +
         text("first", p.first) + text("second", p.second) + text("result", p.result);
}

}  // namespace mirage

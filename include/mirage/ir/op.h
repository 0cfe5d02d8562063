// Operators: a closed variant of forms (one std::visit arm per stage); elementwise functions are open, one line each in maps.def.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>
#include "mirage/ir/types.h"

namespace mirage {

class Graph;

enum class MapFn : uint8_t {
#define MAP(id, name, arity, cls, formula, cuda, help) id,
#include "mirage/ir/maps.def"
#undef MAP
};
enum class MapClass : uint8_t { kLax, kAtomic };
struct MapInfo { const char* name; int arity; MapClass cls; const char* cuda; const char* help; };
const MapInfo& map_info(MapFn);
int num_map_fns();
std::optional<MapFn> parse_map_fn(std::string_view name);
bool is_commutative(MapFn);        ///< add, mul, maximum, minimum, equal
bool returns_bool(MapFn);          ///< equal, less, greater

/// Applies the formula of `fn` in algebra `a`. Unused operands may be any value.
template <class A, class V> V apply_map(MapFn fn, A& a, const V& x, const V& y, const V& z) {
  (void)y; (void)z;
  switch (fn) {
#define MAP(id, name, arity, cls, formula, cuda, help) case MapFn::id: return formula;
#include "mirage/ir/maps.def"
#undef MAP
  }
  MIRAGE_ASSERT(false) << "unknown map function";
  return x;
}

/// How a block graph's tile walks over a kernel-level tensor (the paper's imap, omap and fmap). Entries are dimensions of that tensor, -1:
/// not split along that axis. A dimension split by grid axis g (tile extent t, L loop iterations if it is split by the loop too, else L =
/// 1): block b, iteration i covers [b*t*L + i*t, ... + t), clipped to the tensor. Grid and loop extents are exact or leave a ragged tail,
/// never a whole empty block. Elements beyond the tensor do not exist: sums skip them, stores drop them.
struct Partition {
  std::array<int8_t, 3> grid{-1, -1, -1};   ///< data dimension split along x, y, z
  int8_t loop = -1;                         ///< data dimension split over loop iterations; -1: the same tile in every iteration
  bool is_whole() const { return grid[0] < 0 && grid[1] < 0 && grid[2] < 0 && loop < 0; }
  friend bool operator==(const Partition&, const Partition&) = default;
};

enum class ReduceFn : uint8_t { kSum, kMax };
const char* reduce_name(ReduceFn);   ///< "sum", "max"

// ---- the forms. Operands are listed in brackets. Results have one value but for Call.
/// [] kernel: program input `param`. block: a tile of the call's operand `param`
struct Input { int param = 0; Partition part; friend bool operator==(const Input&, const Input&) = default; };
/// [x] result `result`, rounded to dtype (kReal: kept exact); no value uses it
struct Output {
  int result = 0;
  Partition part;
  DType dtype = DType::kReal;
  friend bool operator==(const Output&, const Output&) = default;
};
/// [] rank 0. A literal, or, if extent_of is not empty, the product of these extents {param, dim} of the *program's* inputs (so that a
/// structure survives a change of sizes).
struct Const {
  double value = 0;
  std::vector<std::pair<int, int>> extent_of;
  friend bool operator==(const Const&, const Const&) = default;
};
/// [] kernel level: the element's own index along `dim`, shape dims. It has no storage
struct Iota { int dim = 0; Dims dims; friend bool operator==(const Iota&, const Iota&) = default; };
/// [x(,y(,z))] elementwise with NumPy broadcasting
struct Map { MapFn fn = MapFn::kAdd; friend bool operator==(const Map&, const Map&) = default; };
/// [a: (...,M,K), b: (...,K,N)] equal rank >= 2, leading dimensions equal or 1
struct MatMul { friend bool operator==(const MatMul&, const MatMul&) = default; };
/// [x] over runs of `group` elements of dim (0: all); the dimension stays, extent D/group
struct Reduce {
  ReduceFn fn = ReduceFn::kSum;
  int dim = 0;
  int64_t group = 0;
  friend bool operator==(const Reduce&, const Reduce&) = default;
};
/// [x] the tensor `count` times along dim (tiled: index mod extent)
struct Repeat { int dim = 0; int64_t count = 1; friend bool operator==(const Repeat&, const Repeat&) = default; };
/// [x] same elements in row-major order
struct Reshape { Dims dims; friend bool operator==(const Reshape&, const Reshape&) = default; };
struct Concat { int dim = 0; friend bool operator==(const Concat&, const Concat&) = default; };           ///< [x, y, ...]
/// [x] 0 <= start < stop <= extent, step >= 1
struct Slice { int dim = 0; int64_t start = 0, stop = 0, step = 1; friend bool operator==(const Slice&, const Slice&) = default; };
/// [x] result dimension i is x's dimension perm[i]
struct Transpose { std::array<int8_t, kMaxRank> perm{}; friend bool operator==(const Transpose&, const Transpose&) = default; };
/// [x] block level, loop phase: the elementwise maximum of x over the iterations so far, this one included. It starts at kRunningStart, the
/// lowest float32, and not at -inf: it is always finite for finite x, so exp(-inf - m) is 0 and never NaN where all of a row has been
/// masked so far. An element that a clipped x does not have keeps its maximum; the value of this iteration has x's extents.
struct Running { friend bool operator==(const Running&, const Running&) = default; };
inline constexpr int kMaxDegree = 64;
inline constexpr double kRunningStart = -0x1.fffffep127;
/// [x] block level: closes the for-loop; combines x over the iterations, elementwise. The maximum of a Running is its last value.
/// [x, m] with degree >= 1, sums only: the accumulator of terms that hold exp(degree * -m), m a Running whose shape broadcasts to x's.
/// Whenever m grows, what was added before is brought to the new m: A_0 = x_0, A_i = A_{i-1} * exp(degree * (m_{i-1} - m_i)) + x_i. Where a
/// clipped x has no element nothing is added.
struct Accum { ReduceFn fn = ReduceFn::kSum; int degree = 0; friend bool operator==(const Accum&, const Accum&) = default; };
/// [operands of the body's inputs by param] graph-defined operator, one level down; as many values as the body has outputs
struct Call { std::shared_ptr<const Graph> body; friend bool operator==(const Call&, const Call&); };

using Op = std::variant<Input, Output, Const, Iota, Map, MatMul, Reduce, Repeat, Reshape, Concat, Slice, Transpose, Running, Accum, Call>;
const char* form_name(const Op&);    ///< "input", "map", ...
bool is_view(const Op&);             ///< Transpose, Slice, Reshape: an address calculation at most

}  // namespace mirage

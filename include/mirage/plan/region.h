// RegionPlan: the plan of one pre-defined kernel (an elementwise region, a row or column reduction with what surrounds it, data movement)
// as index arithmetic and straight-line code. Made by plan/region/region.cc from a group of graph nodes, printed as CUDA by
// codegen/kernels/region.cc. Everything that is a decision (loops, vector width, threads) has been made here.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>
#include "mirage/ir/op.h"
#include "mirage/plan/block.h"
#include "mirage/plan/plan.h"

namespace mirage {

/// constant + sum of coefficient * variable, in elements.
struct Affine {
  int64_t constant = 0;
  std::vector<std::pair<int, int64_t>> terms;   ///< (variable, coefficient), ascending, no zero coefficients
  int64_t coefficient(int var) const;
  friend bool operator==(const Affine&, const Affine&) = default;
  friend auto operator<=>(const Affine&, const Affine&) = default;
};

/// An integer variable of a kernel; its values are in [0, extent).
struct IndexVar {
  /// kLane: the element inside a thread's vector; kDiv, kMod: arg / divisor, arg % divisor; kLoaded: the index that stands at element `arg`
  /// of
  enum class Kind : uint8_t { kLoop, kLane, kDiv, kMod, kLoaded } kind = Kind::kLoop;
                                                                                            ///< an access if it is less than extent - 1 and
                                                                                            ///< not negative, else extent - 1: no place
  int64_t extent = 1;
  Affine arg;
  int64_t divisor = 1;
  int access = -1;         ///< kLoaded
  bool on_lane = false;    ///< differs between the lanes of a thread's vector
};

/// One statement. Results are numbered over the whole kernel.
struct RegionInstr {
  enum class Kind : uint8_t { kConst, kIndex, kLoad, kMap, kBranch } kind = Kind::kConst;
  int result = -1;
  double constant = 0;
  Affine index;               ///< kIndex: the number; kLoad: element offset; kBranch: the then side is taken if index < bound
  int access = -1;            ///< kLoad
  bool vector = false;        ///< kLoad: `width` consecutive elements, aligned, read at once before the lanes' code
  int window = -1, place = 0; ///< kLoad: the plan's window that has the element, and lane 0's number in it
  int64_t bound = 0;          ///< kBranch
  bool uniform = true;        ///< kBranch: the same side for all lanes
  MapFn fn = MapFn::kAdd;     ///< kMap
  std::vector<int> args;      ///< kMap: operands; kBranch: the values of the two sides
  std::vector<RegionInstr> then_body, else_body;
};

struct RegionStore { int access = -1; Affine offset; int value = -1; bool vector = false; };
/// Combines `value` over the inner loop. leader: the result of a reduction ahead of it in the same pass; where an element of that one is
/// not its result, it combines `otherwise` instead, which is no larger than any value (both are maxima): the place of the largest element.
struct RegionReduce { ReduceFn fn = ReduceFn::kSum; int value = -1; int result = -1, leader = -1; double otherwise = 0; };

/// One walk over the inner loop, and what follows it once per row.
struct RegionPass {
  std::vector<RegionInstr> body;
  std::vector<RegionReduce> reduces;
  std::vector<RegionStore> stores;        ///< per element
  std::vector<RegionInstr> after;         ///< once per row, reads the reduces' results
  std::vector<RegionStore> after_stores;  ///< once per row
};

/// What computing an element takes: simple operations, and as instructions; reads whose neighbours lie in other sectors.
struct RegionWork {
  double operations = 0, instructions = 0, scattered = 0;
  static constexpr double kScattered = 250;   ///< operations that such a read takes the time of (evoformer's bias [i, j, head] by rows)
  double sum() const { return operations + kScattered * scattered; }
  friend RegionWork operator-(const RegionWork& a, const RegionWork& b) {
    return {a.operations - b.operations, a.instructions - b.instructions, a.scattered - b.scattered};
  }
};

/// A value that a pass computes and later passes need again.
struct RegionKept {
  RegionWork saved;                          ///< per element, of the later passes
  std::vector<std::pair<int, int>> places;   ///< (pass, the value there), ascending; the first computes it
};

/// What a thread of a held row has of each element where it has most: between passes, or before the first.
struct RegionLive {
  int numbers = 0;   ///< float32: what is kept, and operands that a pass has used and a later one uses again
  int bytes = 0;     ///< of operands that no pass has used yet
  double registers() const { return numbers + bytes / 4.0; }
};

/// span: its elements, if they lie without gaps, else 0.
struct RegionAccess { int buffer = -1; DType dtype = DType::kF32; bool written = false; bool tf32 = false; int64_t span = 0; };

/// Neighbouring vectors of a tensor that several of a thread's loads read parts of: loaded once, as far as the tensor goes.
struct RegionWindow { int access = -1; Affine first; int vectors = 0; };

struct RegionPlan {
  enum class Shape : uint8_t {
    kPointwise,   ///< a thread computes `width` elements, of each value of the inner loop if there is one (`unrolled`)
    kRow,         ///< `team` threads share a row; lanes lie along the inner loop
    /// a block is `columns` x (threads / columns) threads; lanes lie along the outer loop, the second axis along the inner loop
    kColumn,
  } shape = Shape::kPointwise;
  std::vector<RegionAccess> accesses;   ///< kernel arguments, one per buffer
  std::vector<IndexVar> vars;           ///< arguments of a variable come before it
  std::vector<int> outer, inner;        ///< loop variables, slowest first
  /// kPointwise: the inner loop, each of whose values is printed by itself, so that branches on it are decided there (a concatenation of
  /// many reads); -1: none
  int unrolled = -1;
  int lane = -1;                        ///< the lane variable, -1: width is 1
  int width = 1;                        ///< elements per vector
  /// elements along the vectorised dimension; not a multiple of width: the last vector is partial, or there are edges
  int64_t lane_extent = 1;
  /// kRow: rows begin where no vector does: `head` elements stand before a row's first whole vector, and fewer than `width` behind its
  /// last. These edges are worked on one by one
  bool uneven = false;
  Affine head;                          ///< of a row: 0 to width - 1
  std::vector<RegionPass> passes;
  std::vector<RegionWindow> windows = {};   ///< kPointwise, kRow
  int64_t rows = 1;                     ///< product of the outer extents
  int64_t length = 1;                   ///< product of the inner extents
  int chunk = -1;                       ///< outer variable that cuts the inner dimension into chunks of chunk_length elements; -1: none
  int64_t chunk_length = 0, chunk_total = 0;
  int team = 1, columns = 1;
  /// kRow: blocks among which a team's threads are, a team each; 1: a team is part of a block or a whole one
  int cluster = 1;
  /// kRow, kColumn: units (of `width` elements) of a row that each thread of the team, or of a column, holds in registers over all passes,
  /// all asked for before the first is used; 0: every pass reads again
  int held = 0;
  /// what is held becomes float32 once, before the first pass: results of one pass serve the next; otherwise it stays as stored, in fewer
  /// registers
  bool unpacked = false;
  RegionWork work = {};                 ///< per element, of all passes of a reduction, if nothing is kept
  std::vector<RegionKept> again = {};   ///< what later passes would compute again, the most worthwhile first
  std::vector<RegionLive> live = {};    ///< of a reduction, by how many of these are kept
  int kept = 0;                         ///< so many of these wait in registers: in a row or column that is held there
  bool staged = false;                  ///< what is held lies in shared memory instead: rows that no registers take
  int64_t staged_at = 0, smem_bytes = 0;   ///< dynamic shared memory: what a cluster meets with, then the staged vectors
  int threads = 256;
  int blocks_per_sm = 1;                ///< asked of the compiler, so that all blocks are resident where their registers allow it
  int64_t blocks = 1;
  bool wide = false;                    ///< 64-bit indices
  int num_values = 0;
  /// regions whose blocks stand behind this one's in the same launch: as many threads each, no cluster, nothing in dynamic shared memory
  /// (plan/passes/beside.cc)
  std::vector<std::shared_ptr<const RegionPlan>> beside = {};
};

/// The loads that a held row keeps: those of all passes that stand under no branch and differ along the row, each place once; vectors, or
/// single elements where the width is 1.
std::vector<RegionInstr> held_loads(const RegionPlan&);

/// Bytes of shared memory that one of a staged row's loads takes per unit and thread.
int64_t staged_unit(const RegionPlan&, const RegionInstr& load);
int64_t reductions(const RegionPlan&);   ///< of a row, over all passes
int64_t edges_each(const RegionPlan&);   ///< elements before a row's first whole vector and behind its last that fall to a thread, at most

/// The same loops and statements with other threads: teams of a row, held in registers where they fit or not. With their predicted times;
/// bytes, flops: what the kernel moves and computes, whatever its threads.
std::vector<std::pair<RegionPlan, Cost>> region_alternatives(const RegionPlan&, const Target&, int64_t bytes, double flops);

std::string print(const RegionPlan&, const std::string& name);   ///< loops, threads, statements

}  // namespace mirage

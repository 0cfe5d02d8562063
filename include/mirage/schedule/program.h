// KernelProgram: how one kernel runs, as one value whatever its strategy: indices cut over axes, places that hold values, stages in loops
// of roles. It prints, parses, obeys laws (check_laws), says which muGraph runs (erase) and what follows for shared memory, barriers and
// registers (derive). docs/schedule.md describes the language.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mirage/ir/graph.h"
#include "mirage/ir/target.h"
#include "mirage/support/result.h"

namespace mirage::schedule {

enum class UnitId : uint8_t {
#define MIRAGE_UNIT(id, ...) id,
#include "mirage/schedule/units.def"
};
enum class PathId : uint8_t {
#define MIRAGE_PATH(id, ...) id,
#include "mirage/schedule/paths.def"
};
enum class WayId : uint8_t {
#define MIRAGE_WAY(id, ...) id,
#include "mirage/schedule/ways.def"
};
enum class LayoutId : uint8_t {
#define MIRAGE_LAYOUT(id, ...) id,
#include "mirage/schedule/layouts.def"
};
struct UnitInfo { const char* name; int reduced; bool shared; const char* dtypes; const char* help; };
struct PathInfo { const char* name; bool tracked; const char* help; };
struct WayInfo { const char* name; bool lanes, block, cluster, grid; const char* help; };
struct LayoutInfo { const char* name; bool open; const char* help; };
const UnitInfo& unit_info(UnitId);
const PathInfo& path_info(PathId);
const WayInfo& way_info(WayId);
const LayoutInfo& layout_info(LayoutId);

using IndexId = int;     ///< -1: a dimension of one element
using AxisId = int;      ///< kLanes: the lanes of a warp; kWarps: the warps that divide the sum of one stage (Stage::warps)
using PlaceId = int;
using StageId = int;
constexpr AxisId kLanes = -1, kWarps = -2;

/// What is counted along a dimension, of all values that share it.
/// first: where tensors that have it lie in two parts, how many of it the first part has; no tile has elements of both. 0: all lie in one.
struct Index {
  std::string name;
  int64_t extent = 1, first = 0;
  int64_t tiles(int64_t tile) const;
  /// Whether one of these tiles has fewer elements than the others.
  bool has_short_tile(int64_t tile) const { return first % tile != 0 || (extent - first) % tile != 0; }
};

enum class AxisKind : uint8_t { kGrid, kCluster, kGroup, kWarp, kLoop };
/// kGroup: warpgroups; kLoop: iterations. each: tiles of its index that one part has; 0: as many as the faster axes have together.
struct Axis { std::string name; AxisKind kind = AxisKind::kGrid; int64_t extent = 1, each = 0; };

/// An index in tiles over axes, the slowest first. Indices may be cut by the same axes. reduced: the loop of the muGraph walks over it, and
/// accumulators close it; otherwise
/// every element of it has a place of its own. rotated: every block begins at another tile and goes round, so that not all ask for the same
/// lines at once. live: tiles that masks remove are neither copied nor computed, and the others divided anew.
/// outer: an index each of whose elements has all of `index`: tiles go through both, `index` the faster, and begin and end together with
/// elements of outer or within one. behind: tiles follow those of that index, on its axes (`over` is empty): an iteration has one of
/// either.
struct Split {
  IndexId index = -1;
  int64_t tile = 1;
  std::vector<AxisId> over;
  bool reduced = false, rotated = false, live = false;
  IndexId outer = -1, behind = -1;
};

/// What was decided by looking at a size, so that the program is right for other sizes as long as the answers are the same.
struct Assumption {
  enum class Test : uint8_t { kDivides, kAtMost } test = Test::kDivides;
  IndexId index = -1;
  int64_t number = 1;
  bool answer = true;
};

/// Where the elements of a dimension lie that follow the first part of its index.
struct SecondPart { int dim = -1; int64_t offset = 0; Dims strides; };

/// An operand or result as it lies in device memory: elements are at offset + sum of i_d * strides_d.
struct Param {
  DType dtype = DType::kF32;
  Dims dims;
  int64_t offset = 0;
  Dims strides;
  int64_t run = 0, jump = 0;
  int position = -1;
  bool tf32 = false;
  SecondPart second = {};
  int in = -1;            ///< lies in the memory of that parameter, from its beginning; -1: in memory of its own
  int64_t position_div = 1, position_period = 0;   ///< (index / div) % period; 0: without the remainder
};

/// The same kernel once more, over tensors of its own along an index of another extent. Its blocks stand behind those before it.
struct Beside { IndexId index = -1; int64_t extent = 1; std::vector<std::pair<int, Param>> params, results; };

/// A part of shared memory. `owners` parts of a block (warps, or warpgroups) have one each; `slots` follow each other and are used in turn.
/// Sections follow each other as they are declared. Every step of a ring has the slots' place.
struct Section {
  std::string name;
  int owners = 1, slots = 1;
  int64_t align = 16;         ///< of its beginning, and of the places in it
  int64_t spare = 0;          ///< bytes that no place here has: of powers of two that scaled rows are divided by, or set aside and not used
  bool barriers = false;      ///< where the barriers are that derive() finds
  bool reused = false;        ///< it does not follow the others: derive() gives it memory that nothing else needs while it is in use
};

/// Where a value is. In registers (section -1) in a layout; in a section of shared memory, in a step of its slots; `over` it, once what is
/// in the slots is no longer needed; or in slots in device memory.
struct Place {
  std::string name;
  ValueId value = -1;
  DType dtype = DType::kF32;
  /// Elements of one owner (registers: of one warp, or warpgroup in wgmma's layouts); empty: what a thread works on at a time.
  std::vector<int64_t> box;
  bool columns = false;                 ///< its lines are columns
  LayoutId layout = LayoutId::kItems;
  int section = -1, step = 0;
  int64_t pitch = 0;                    ///< bytes from one line (the last dimension of box) to the next; 0: no gaps
  int swizzle = 0;                      ///< bytes of a swizzled line
  bool even_first = false;              ///< of each eight of its lines those of even places come first
  bool over = false, in_slots = false;
  bool gap = false;                     ///< its lines are in the gaps between those of the place before it in the section
  int apart = 0;  ///< barriers of its own that tell when it is there, for parts of its box; 0: it shares that of its slot
  PlaceId instead = -1;                 ///< it is where that place is: an iteration has one or the other
  bool scaled = false;                  ///< elements stand for themselves times a power of two per row
  /// of a product or quotient: what is there lacks the factor, which follows at the exponential of what a running maximum leaves
  bool deferred = false;
  int64_t elements() const;             ///< of its box
  int64_t bytes() const;                ///< of its box, with gaps
};

struct Stage {
  enum class Kind : uint8_t { kCopy, kCompute, kFold, kStore } kind = Kind::kCompute;
  PlaceId to = -1;                      ///< kCopy, kCompute: what is made
  std::vector<PlaceId> reads;           ///< kCompute: the leaves of its expression; kFold: what meets; kStore: what is stored
  /// kFold: places that it goes through; kStore: the place that it is gathered in; kCompute: by how much a running maximum grew
  std::vector<PlaceId> through;
  std::vector<AxisId> over;             ///< kFold: the axes that it closes
  UnitId unit = UnitId::kNone;          ///< kCompute
  bool swap = false;                    ///< kCompute: the second operand takes the side with more rows
  std::array<int, 3> warps{1, 1, 1};    ///< kCompute: all of a block that divide its rows, columns and sum, if they make it together
  /// kCompute: threads along the columns of a product on float32 units; threads that share a result of a reduction
  int team = 0;
  PathId path = PathId::kLd;            ///< kCopy
  int ahead = 0;                        ///< kCopy: uses of its slots (registers: iterations) before it is needed
  bool evict_first = false;             ///< kCopy, kStore: its lines leave L2 before others
  bool multicast = false;               ///< kCopy: to all blocks of the cluster, each its part
  /// kCopy: the barriers of another copy of its role count its bytes; kCompute: those of a place that its role made before tell of it
  bool rides = false;
  WayId way = WayId::kShared;           ///< kFold, kStore
  int result = -1;                      ///< kStore
  /// kStore: blocks along an axis of the grid have a part of a sum each, and put them one behind another along a dimension of the result.
  std::vector<std::pair<AxisId, int>> apart;
};

/// A stage, or (stage -1) a loop over an axis.
struct Item { StageId stage = -1; AxisId loop = 0; std::vector<StageId> body; };

/// Warps that do the same; 0: a thread of a role behind it does this besides. registers: of a thread, once roles have given and taken; 0:
/// as launched.
/// turns: its warpgroups take turns on the tensor cores.
struct Role { std::string name; int warps = 1; int registers = 0; std::vector<Item> items; bool turns = false; };

struct KernelProgram {
  std::string name;
  Graph body;                                  ///< block level, at full extents: what is computed, in one block and one iteration
  std::vector<std::vector<IndexId>> index_of;  ///< per value of body, per dimension
  std::vector<Index> indices;
  std::vector<Param> params, results;
  std::vector<Axis> axes;
  std::vector<Split> splits;
  std::vector<Assumption> assumes;
  std::vector<Section> sections;
  std::vector<Place> places;
  std::vector<Stage> stages;
  std::vector<Role> roles;                     ///< in the order in which what they make is read
  int per_sm = 1;                              ///< blocks of a multiprocessor that it is compiled for
  int64_t panel = 1;                           ///< row blocks that are walked through before the next columns: they share lines of L2
  int64_t stay = 0;                            ///< blocks that are launched, each doing every stay-th block of the grid; 0: all
  bool cooperative = false;                    ///< blocks wait for others outside their cluster
  /// made for the rate of the units that multiply, not for the time of one tile: products of an iteration run on while the next are issued,
  /// where its loop computes nothing else; what follows the sums reads its operands as it goes
  bool throughput = false;
  std::vector<Beside> beside;
  int64_t parts(AxisKind) const;               ///< product of the axes of a kind
  int parts(const Split&, AxisKind) const;     ///< of those that cut that index
  int64_t blocks() const;                      ///< of the grid, those of clusters counted one by one
  int64_t rounds() const;                      ///< how many of them one that is launched does, at most
  int64_t tile_of(IndexId) const;              ///< elements of it in a tile
  int64_t chunks(const Split&) const;          ///< tiles that its axes share, those of indices behind it, too
  const Split* reduced() const;                ///< what the loop adds up over; null: nothing
  /// Slots of what the loop's copies bring to shared memory; 1: they bring nothing there.
  int slots() const;
  const Split* split_of(IndexId) const;        ///< null: every block has all of it in every iteration
  const Split* split_of_axis(AxisId) const;
};

/// The program that a call beside the first one runs, alone. Assumptions about its index are the first one's and left out.
KernelProgram alone(const KernelProgram&, const Beside&);

/// The index of each dimension of what `op` makes of operands with these indices and full types; -1 where it is none of theirs.
std::vector<IndexId> result_indices(const Op& op, std::span<const Type> operands, std::span<const std::vector<IndexId>> of, int rank);

/// The muGraph that runs: the body with the grid of the program and one loop over the chunks of what it reduces, whichever warps and blocks
/// take them. A sentence why there is none: an index that no muGraph can cut so.
struct Erased { std::optional<Graph> graph; std::string reason; };
Erased erase(const KernelProgram&);

/// An mbarrier, or several that are alike.
struct Barriers {
  std::string name;
  int count = 1, arrivals = 1;
  int64_t bytes = 0;   ///< that each phase brings; 0: it counts arrivals
};

/// What follows from a program and is nowhere written by hand.
struct Derived {
  /// Bytes from the start of shared memory; of the first owner and slot. place_at -1: not in shared memory.
  std::vector<int64_t> section_at, place_at;
  std::vector<int64_t> slot_bytes, section_bytes;   ///< per section; of all its owners and slots
  int64_t smem_bytes = 0, slots_bytes = 0;     ///< of a block; in device memory
  std::vector<Barriers> barriers;
  /// Per place, the section where its readers find it: its own, or that which a fold brings it to, or a stage that makes nothing else; -1:
  /// registers.
  std::vector<int> home;
  /// Per stage: all that run it meet ahead of it, because it reads what others have made since they met last, or replaces what others read.
  std::vector<bool> meets;
  int threads = 0, cluster = 1;
  int64_t blocks = 1;                          ///< of the grid
  int launch_registers = 0;                    ///< that a thread can have as launched
  std::vector<int> live;                       ///< per role: registers of a thread for places alive at one time: no kernel has fewer
  std::vector<int> registers;                  ///< and what mma.sync reads of shared memory at a time: what a compiler takes, within 64
};
Derived derive(const KernelProgram&);
/// Whether a stage only moves what it reads, from registers to where its readers find it, or names it anew where it is.
bool is_move(const KernelProgram&, const Derived&, const Stage&);

/// nullopt if the program obeys the laws, else "P3: ..." (docs/schedule.md lists them).
std::optional<std::string> check_laws(const KernelProgram&, const Target&);

std::string print(const KernelProgram&);
std::string stage_text(const KernelProgram&, StageId);   ///< its line
/// The same with names that follow from the order of the text: the same for programs that differ in names only.
std::string canonical_text(const KernelProgram&);

/// Reads one program: print(parse(print(p))) is print(p). At most 1 MiB, 4096 statements, expressions 64 deep. Errors name line and column;
/// `file` is the name that they print.
Result<KernelProgram> parse_schedule(std::string_view text, const std::string& file = "<schedule>");

}  // namespace mirage::schedule

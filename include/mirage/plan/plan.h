// Plan: everything that is decided before text is written. Facts lie beside the graph in tables: where values live, which nodes form a
// kernel, sizes, order, memory.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>
#include "mirage/ir/contraction.h"
#include "mirage/ir/graph.h"
#include "mirage/ir/program.h"
#include "mirage/ir/target.h"
#include "mirage/schedule/program.h"

namespace mirage {

/// Device memory. Inputs and outputs are the caller's pointers, intermediates live in the caller's workspace.
struct Buffer {
  enum class Kind : uint8_t { kInput, kOutput, kWorkspace } kind = Kind::kWorkspace;
  int index = 0;               ///< program input or output number
  DType dtype = DType::kF32;   ///< storage type: intermediates are f32, bool where they are kBool
  Dims dims;
  Dims strides;                ///< elements
  int64_t offset_bytes = 0;    ///< in the workspace, multiple of 256
  /// workspace that carries slots from block to block: all ones before the first launch (NAME_workspace_init) and again after every launch;
  /// shares its place with nobody
  bool slots = false;
  /// an input that callers pass by value: kernels have it among their parameters, and read it by plain loads only
  bool by_value = false;
  /// kF32 that contractions alone read, as TF32: kernels round to that as they store, so that tensor cores can take it as it lies
  bool tf32 = false;
  int64_t bytes() const;       ///< span: from the first to the last element
};

/// Where the elements from number `first` on along dimension `dim` lie, of what lies in two places (a cache, and what is appended to it).
/// buffer -1: all lies in one.
struct SecondPart {
  int buffer = -1; int64_t offset = 0; Dims strides; int dim = -1; int64_t first = 0;
  friend bool operator==(const SecondPart&, const SecondPart&) = default;
};

/// How a kernel-level value is read: element i of the value is at buffer[offset + sum i_d * strides_d]. Broadcast dimensions have stride 0.
// run, jump, second: as of an Access
struct View { int buffer = -1; int64_t offset = 0; Dims strides; int64_t run = 0, jump = 0; SecondPart second = {}; };

/// One operand or result of a kernel.
struct Access {
  int buffer = -1; int64_t offset = 0; Dims dims; Dims strides; DType dtype = DType::kF32;
  bool tf32 = false;                              ///< as its buffer's
  /// not stored: an element is its own index along this dimension, or part of it (position_div, position_period); buffer is -1 then
  int position = -1;
  /// run > 0 (results of streams and tiles, rows that streams reduce): the last dimension lies in runs of so many neighbours, each `jump`
  /// elements behind the one before (heads)
  int64_t run = 0, jump = 0;
  bool by_value = false;                          ///< as its buffer's
  /// operands of calls, while a call is planned: only strategies that read parts take them (Strategy::reads_parts)
  SecondPart second = {};
  /// of a position: (index / position_div) % position_period; 0: without the remainder
  int64_t position_div = 1, position_period = 0;
  friend bool operator==(const Access&, const Access&) = default;
};

/// The ways to run a kernel (plan/strategies.def).
enum class StrategyId : uint8_t {
#define MIRAGE_STRATEGY(Name, name, help) k##Name,
#include "mirage/plan/strategies.def"
};

/// A block graph on operands and results as they lie in memory, by parameter and by result.
struct KernelCall { Graph body; std::vector<Access> operands, results; };

/// A program and what follows from it, made when they are first asked for: plans are tried by the thousand. Any number of threads.
class LazyProgram {
 public:
  explicit LazyProgram(std::function<schedule::KernelProgram()> make) : make_(std::move(make)) {}
  const schedule::KernelProgram& program() const { return known().program; }
  const schedule::Derived& derived() const { return known().derived; }

 private:
  struct Known { schedule::KernelProgram program; schedule::Derived derived; };
  const Known& known() const;
  mutable std::once_flag once_;
  mutable std::function<schedule::KernelProgram()> make_;
  mutable std::optional<Known> known_;
};

/// A kernel that is emitted from its program (docs/schedule.md).
struct ProgramPlan {
  StrategyId strategy = StrategyId::kBlock;
  std::vector<KernelCall> calls;                  ///< the kernel's, then those beside it
  ContractRule rule;                              ///< how its contractions may round
  std::shared_ptr<const LazyProgram> how;         ///< under no name: the kernel's (program_of)
  std::string note = {};                          ///< what else its strategy found, for people
};
struct RegionPlan;
struct CublasPlan;

/// How a kernel runs.
using KernelBody = std::variant<std::shared_ptr<const ProgramPlan>, std::shared_ptr<const RegionPlan>, std::shared_ptr<const CublasPlan>>;

/// What another strategy said of a block graph: why it does not take it, or what it would have cost.
struct Refusal {
  std::string strategy, reason;
  double us = 0;                                  ///< 0: it does not take it
};

struct KernelPlan {
  std::string name;                               ///< C identifier, unique in the library
  std::vector<NodeId> nodes;                      ///< kernel-level nodes that it covers
  KernelBody body;
  int slots = -1;                                 ///< its buffer of slots
  double predicted_us = 0;
  std::string why;                                ///< what bounds it: "32.0 MB at 4.3 TB/s + launch"
  int64_t bytes = 0;                              ///< device memory traffic, each tensor once
  double flops = 0;
  /// started while the kernel ahead of it in the library still runs, for which it waits itself before it reads or writes anything but
  /// weights (plan/overlap.cc)
  bool early = false;
  /// what the strategies said that did not get it, one for each; empty for what no strategy was asked for
  std::vector<Refusal> others = {};
};

enum class Pass : uint8_t;   // plan/passes.h

struct Plan {
  Graph graph;                                    ///< kernel level; matmuls are calls by now
  std::vector<Buffer> buffers;                    ///< inputs, then outputs, then workspace
  std::vector<View> views;                        ///< per value of graph; buffer -1: not stored (inside a region)
  std::vector<KernelPlan> kernels;                ///< in launch order
  int64_t workspace_bytes = 0;
  double predicted_us = 0;
  /// the graph that was planned, where values are kept in 16 bits (Program::kept): the one given with casts; null: the one given
  std::shared_ptr<const Graph> kept = nullptr;
  std::vector<Pass> passes = {};                  ///< graph passes that led from the graph planned to `graph` (plan/passes.h)
  /// at the end of the workspace: what calls of cuBLASLt use one after another (plan/cublas.h); its contents mean nothing between kernels
  int64_t scratch_at = 0, scratch_bytes = 0;
  /// kernels start while what is ahead of them on the stream still runs (programmatic dependent launch); plan/hints.h
  bool pdl = false;
};

/// Plans a kernel-level graph whose MatMuls may be pre-defined: lowers them to block graphs, groups the rest into regions, gives every
/// value a place. Always succeeds for a valid
/// program: this is the straightforward library. nullopt with a reason only if a Call of the graph does not fit the target.
// refusals: every strategy's, of the Call that does not fit
struct Planned { std::optional<Plan> plan; std::string reason; std::vector<Refusal> refusals = {}; };
/// Values that the program's node-by-node evaluation keeps in 16 bits (Program::kept) may be stored so where that is cheaper. origin: per
/// value of graph, the value of program.graph that it is known to be, -1: not known but by its operators; or empty.
Planned make_plan(const Program& program, const Graph& graph, const Target& target, std::span<const ValueId> origin = {});

std::string print(const Plan&);                   ///< tables: kernels, buffers, tiles, schedule, shared memory

}  // namespace mirage

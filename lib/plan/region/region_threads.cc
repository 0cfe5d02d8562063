// Region kernels, from loops to threads: teams of a row, where it waits for later passes (registers, shared memory, a cluster's blocks),
// registers and residency, and what a kernel takes.
#include "plan/region/region_threads.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "mirage/support/round.h"
#include "plan/region/region_traffic.h"

namespace mirage {

/// Loops that a form depends on, through divisions too.
void loops_of(const RegionPlan& p, const Affine& a, std::set<int>& out) {
  for (const auto& [v, c] : a.terms) {
    const IndexVar& var = p.vars[static_cast<size_t>(v)];
    if (var.kind == IndexVar::Kind::kLoop || var.kind == IndexVar::Kind::kLane) out.insert(v);
    else loops_of(p, var.arg, out);
  }
}

namespace {

int64_t power_of_two_at_least(int64_t n) {
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

int64_t product(const RegionPlan& p, const std::vector<int>& loops) {
  int64_t n = 1;
  for (int l : loops) n *= p.vars[static_cast<size_t>(l)].extent;
  return n;
}

/// Rows whose neighbours lie beside them in memory, no more than a sector apart (windows that do not overlap): a warp whose threads walk a
/// row each reads whole lines.
bool lie_beside(const RegionPlan& p) {
  constexpr int64_t kSector = 32;
  if (p.shape != RegionPlan::Shape::kRow || p.passes.size() != 1 || p.chunk >= 0 || p.outer.empty() || p.inner.empty()) return false;
  bool any = false;
  for (const RegionInstr& i : p.passes[0].body) {
    if (i.kind == RegionInstr::Kind::kBranch) return false;
    if (i.kind != RegionInstr::Kind::kLoad) continue;
    for (const auto& t : i.index.terms)
      if (p.vars[static_cast<size_t>(t.first)].kind != IndexVar::Kind::kLoop) return false;
    const int64_t apart = i.index.coefficient(p.outer.back()) * dtype_bytes(p.accesses[static_cast<size_t>(i.access)].dtype);
    if (apart < 0 || apart > kSector) return false;
    any = any || apart > 0;
  }
  return any && p.passes[0].stores.empty();
}

/// A thread walks such a row alone.
bool walks_alone(const RegionPlan& p) { return p.team == 1 && p.held == 0 && p.width == 1 && lie_beside(p); }

/// Registers that one of a block's threads can hold operands in: a quarter to three eighths of those that so many threads leave each other.
int64_t held_registers(int64_t threads) { return threads > 512 ? 16 : threads > 256 ? 48 : 96; }
/// Elements of a row that one of them may hold as float32.
int64_t unpacked_elements(int64_t threads) { return threads > 512 ? 32 : threads > 256 ? 64 : 128; }

/// Threads along the inner loop.
int64_t threads_along(const RegionPlan& p) { return p.shape == RegionPlan::Shape::kRow ? p.team : p.threads / p.columns; }

/// 32-bit registers, and elements, of one unit of what a row or column holds.
struct HeldUnit { int64_t registers = 0, elements = 0; };
HeldUnit held_unit(const RegionPlan& p) {
  int64_t bytes = 0;
  HeldUnit unit;
  for (const RegionInstr& i : held_loads(p))
    unit.elements += p.width, bytes += std::max(p.width * dtype_bytes(p.accesses[static_cast<size_t>(i.access)].dtype), 4);
  unit.registers = ceil_div(bytes, 4);
  return unit;
}
/// Gives a row the shared memory that it takes.
void take_smem(RegionPlan& p) {
  p.smem_bytes = p.cluster > 1 ? reductions(p) * (16 + p.team / 32 * 4) : 0;
  if (!p.staged) return;
  p.staged_at = round_up(p.smem_bytes, 16);
  int64_t unit = 0;
  for (const RegionInstr& i : held_loads(p)) unit += staged_unit(p, i);
  p.smem_bytes = p.staged_at + unit * p.held * p.threads;
}

/// Whether each thread can hold its units in registers.
bool can_hold(const RegionPlan& p, const HeldUnit& unit) {
  return unit.registers > 0 && p.chunk < 0 && ceil_div(p.length, threads_along(p)) * unit.registers <= held_registers(p.threads);
}
void hold(RegionPlan& p, const HeldUnit& unit) {
  p.held = static_cast<int>(ceil_div(p.length, threads_along(p)));
  p.unpacked = p.held * unit.elements <= unpacked_elements(p.threads);
}

int64_t blocks_of(const RegionPlan& p) {
  if (p.shape == RegionPlan::Shape::kRow) return p.cluster > 1 ? p.rows * p.cluster : ceil_div(p.rows, p.threads / p.team);
  return ceil_div(p.rows, p.shape == RegionPlan::Shape::kPointwise ? p.threads : p.columns);
}

/// Threads per multiprocessor among which rows are shared: as many as hide what the others wait for where rows follow each other. Where all
/// rows are resident at once fewer are enough, and better: a reduction over more threads costs more instructions and barriers than further
/// loads under way bring.
constexpr int64_t kBusyThreads = 3072, kResidentThreads = 480;

/// Registers that holding `held` units of a row and working on one takes: a cap of less spilled (ptxas 13.0, sm_90: 68 divisions of
/// softmax, rms_norm and layer_norm of 16 and 32 bits, alone and behind a sum with a gain; rms_norm of 16384 x 1024 bfloat16, 32 elements
/// each, at 40 registers 24.7 us, at 48 18.7).
int64_t working_registers(const RegionPlan& p, int64_t held, int kept) {
  int64_t words = 0, elements = 0, operands = 0;
  bool narrow = false;
  for (const RegionInstr& i : held_loads(p)) {
    const int bytes = dtype_bytes(p.accesses[static_cast<size_t>(i.access)].dtype);
    words += std::max<int64_t>(1, p.width * bytes / 4), elements += p.width, operands++, narrow = narrow || bytes < 4;
  }
  const int64_t written = std::count_if(p.accesses.begin(), p.accesses.end(), [](const RegionAccess& a) { return a.written; });
  // two words of 16 bytes at once
  const bool wide_results = p.width == 8 && std::any_of(p.accesses.begin(), p.accesses.end(),
                                                        [](const RegionAccess& a) { return a.written && dtype_bytes(a.dtype) == 4; });
  const int64_t more = 8 * std::max<int64_t>(0, written - 1) + (wide_results ? 8 : 0) + (p.wide ? 16 : 0);
  // a column's lines lie anywhere: their places stay beside what is held
  if (p.shape == RegionPlan::Shape::kColumn)
    return round_up(held * words + held + elements + 16 + 8 * std::max<int64_t>(0, operands - 2) + more + kept * held * p.width, 8);
  // where most is live: every operand that a pass has used is a number in the next, whatever it is stored as
  int64_t live = 0;
  if (!p.live.empty()) {
    const RegionLive& most = p.live[static_cast<size_t>(kept)];
    const int64_t team = held == p.held ? p.team : power_of_two_at_least(ceil_div(p.length, held));
    const bool part = held * team > p.length;   // of a team's threads have a unit less
    live = std::llround(most.registers() * static_cast<double>(held * p.width + edges_each(p))) + (p.width <= 4 ? 24 : 16) +
           (part && most.bytes > 2 ? 6 * most.bytes : 0);
  }
  // one operand becomes numbers at once, further ones wait
  const int64_t own = held * p.width, as_numbers = own + (own > 32 ? own / 4 : 0) + (p.width <= 4 ? 24 : 16),
                as_stored = held * words + (narrow ? 16 : 8);
  const int64_t uneven = p.uneven ? 6 + edges_each(p) : 0,
                operand = 8 * std::max<int64_t>(0, operands - (p.passes.size() > 2 ? 2 : 3)) +
                          (p.uneven && p.accesses.size() > static_cast<size_t>(operands + written) ? 8 : 0);
  return std::max<int64_t>(32, round_up(std::max(std::max(as_numbers, as_stored) + operand, live) + more + uneven, 8));
}
/// Registers in which one of a block's threads may keep what it has computed.
int64_t kept_registers(int64_t threads) { return threads > 512 ? 0 : threads > 256 ? 16 : 32; }
constexpr int kFewEach = 16, kLittleSaved = 12;   // elements of a thread, operations of one (region_kept.cc)
constexpr int64_t kWorkingThreads = 512;   // of a multiprocessor: with fewer of them what is kept must not cost any

/// How many of the values that later passes need again stay in registers. resident: blocks of a multiprocessor by registers of a thread.
template <class Resident> int kept_of(const RegionPlan& p, const Resident& resident) {
  int64_t least = working_registers(p, p.held, 0);
  for (int n = 1; n <= static_cast<int>(p.again.size()); n++) least = std::min(least, working_registers(p, p.held, n));
  const auto costs_much = [&](int64_t registers) {
    return registers - least > kept_registers(p.threads) ||
           (resident(registers) < resident(least) && resident(registers) * p.threads < kWorkingThreads);
  };
  // few elements have registers enough: what only stands for several operands is as well computed again (linear_softmax 5.64, kept 5.85)
  const auto brings_little = [&](const RegionKept& k) { return p.held * p.width < kFewEach && k.saved.operations <= kLittleSaved; };
  int n = static_cast<int>(p.again.size());
  while (n > 0 && (brings_little(p.again[static_cast<size_t>(n) - 1]) || costs_much(working_registers(p, p.held, n)))) n--;
  return n;
}
/// Blocks of an elementwise kernel that a multiprocessor takes if each thread has 32 registers, where functions would take more of them
/// than that, and so leave too few loads under way (elu of 4096 x 393216 bfloat16, 36 registers: 1688, 4.2 TB/s would be 1510). One vector
/// in, one out: what else a thread keeps might not fit.
int full_residency(const RegionPlan& p, const Target& target) {
  if (p.shape != RegionPlan::Shape::kPointwise || p.wide || p.width < 4 || p.accesses.size() != 2 || p.passes[0].stores.size() != 1)
    return 1;
  double operations = 0;
  int loads = 0;
  for (const RegionInstr& i : p.passes[0].body) {
    if (i.kind == RegionInstr::Kind::kBranch || (i.kind == RegionInstr::Kind::kLoad && !i.vector)) return 1;
    loads += i.kind == RegionInstr::Kind::kLoad;
    operations += i.kind == RegionInstr::Kind::kMap ? operations_of(i.fn) : 0;
  }
  const bool small = target.smem_per_sm < 128 << 10;   // sm_86, sm_89 and sm_120: 1536 threads
  const int blocks = (small ? 1536 : 2048) / p.threads;
  return loads == 1 && operations >= 8 && p.blocks >= int64_t{blocks} * target.num_sms ? blocks : 1;
}
/// Asks for as many blocks per multiprocessor as one wave needs, up to what registers allow without spilling.
void ask_residency(RegionPlan& p, const Target& target) {
  take_smem(p);
  p.blocks_per_sm = full_residency(p, target);
  p.kept = 0;
  if (p.held == 0) return;
  if (p.staged) {
    const bool many = std::any_of(p.passes.begin(), p.passes.end(), [](const RegionPass& pass) { return pass.reduces.size() > 1; });
    const int64_t registers = (held_loads(p).size() > 1 ? 64 : 48) + (many ? 16 : 0) + (p.wide ? 16 : 0);
    p.blocks_per_sm = static_cast<int>(
        std::clamp<int64_t>(ceil_div(p.blocks, target.num_sms), 1,
                            std::max<int64_t>(1, std::min(target.smem_per_sm / (p.smem_bytes + 1024), 65536 / (p.threads * registers)))));
    return;
  }
  // multiprocessors of sm_86, sm_89 and sm_120 run 1536 threads in 16 blocks or more; ptxas warns of more, and ignores it
  const bool small = target.smem_per_sm < 128 << 10;
  const auto resident = [&](int64_t registers) {
    const int64_t most =
        std::min<int64_t>(4 * (512 / registers) * 32 / p.threads, small ? std::min(1536 / p.threads, 16) : 2048 / std::max(p.threads, 64));
    return std::clamp<int64_t>(ceil_div(p.blocks, target.num_sms), 1, std::max<int64_t>(1, most));
  };
  p.kept = kept_of(p, resident);
  int64_t registers = working_registers(p, p.held, p.kept);
  // Rows that follow each other have all operands as numbers at once (rms_norm of 524288 x 128 with a gain, 8 threads a row: 32 registers
  // each 101.2, 48 66.4); where all are resident, that costs less than a further wave.
  if (p.shape == RegionPlan::Shape::kRow && p.unpacked && ceil_div(p.blocks, target.num_sms) > resident(registers))
    registers = std::max(registers, round_up(p.held * held_unit(p).elements + 16, 8));
  p.blocks_per_sm = static_cast<int>(resident(registers));
}

constexpr int64_t kColumnUnits = 8;   // that each thread of a column holds
constexpr int64_t kMuchEach = 32;     // elements that a thread of a row holds

/// Threads whose vectors fill a line of 128 bytes. Fewer of them a row, and a warp's load asks for parts of many lines, each of which comes
/// as often as a row has vectors a thread (H200; threads a row: rms_norm of 524288 x 128 bfloat16 4 157.4, 8 66.4, 16 65.5; softmax of
/// 1048576 x 64 2 81.1, 4 69.1, 8 67.7; group norm of 32768 x 64 x 64 2 157.0, 4 137.0, 8 133.3).
int64_t threads_of_line(const RegionPlan& p) {
  int64_t bytes = 16;
  for (const RegionAccess& a : p.accesses) bytes = std::min<int64_t>(bytes, p.width * dtype_bytes(a.dtype));
  return p.width == 1 ? 1 : 128 / bytes;
}

/// Threads per row so that a row fits the registers of its team: all its loads are under way at once, and later passes read nothing. As
/// long as the device is full of threads, or all rows are resident at once by not too few, fewer of them share a row, up to four units
/// each; few rows take 256 threads and then two units each, beyond that more threads (measured: docs/planning.md, "Rows").
void hold_rows(RegionPlan& p, const Target& target) {
  const HeldUnit unit = held_unit(p);
  const int64_t each = unit.registers;
  if (each == 0 || p.chunk >= 0) return;
  const auto team_of = [&](int64_t wish) { return power_of_two_at_least(ceil_div(p.length, wish)); };
  // elements one by one: 197 of 151296 rows by 32 threads 37.9, by 64 92.9
  int64_t wish = std::min<int64_t>(held_registers(32) / each, p.width == 1 ? 8 : 4);
  const auto resident = [&](int64_t team) {
    return p.rows * team >= kResidentThreads * target.num_sms &&
           ceil_div(p.rows, target.num_sms) * std::max<int64_t>(team, p.uneven ? 8 : 32) *
                   working_registers(p, ceil_div(p.length, team), static_cast<int>(p.again.size())) <=
               65536;
  };
  while (wish > 1 && p.rows * team_of(wish) < kBusyThreads * target.num_sms && !resident(team_of(wish)) &&
         (team_of(wish) < 256 || ceil_div(p.length, team_of(wish)) > 2))
    wish--;
  while (wish > 1 && team_of(wish) < std::min(threads_of_line(p), power_of_two_at_least(p.length))) wish--;
  if (wish < 1) return;
  const int64_t team = std::min<int64_t>(1024, team_of(wish));
  if (ceil_div(p.length, team) * each > held_registers(team)) return;
  p.team = p.threads = static_cast<int>(team);
  hold(p, unit);
}

}  // namespace

void choose_threads(RegionPlan& p, const Target& target) {
  p.rows = product(p, p.outer);
  p.length = product(p, p.inner);
  const int64_t sms = target.num_sms, most_blocks = (int64_t{1} << 31) - 1;
  if (p.shape == RegionPlan::Shape::kPointwise) {
    // one vector a thread, H200: hardsigmoid of 3 GB by 64 threads 1903 us, 128 1523, 256 1548, 512 1602, 1024 1657; of 32 MB 21.5, 17.8,
    // 18.1, 18.6, 19.3
    p.threads = 128;
    while (p.threads > 64 && ceil_div(p.rows, p.threads) < sms) p.threads /= 2;
  } else if (p.shape == RegionPlan::Shape::kRow) {
    p.team = static_cast<int>(std::min<int64_t>(32, power_of_two_at_least(p.length)));
    if (p.length > 32 && (p.rows < sms * 32 || p.length > 32 * 16))
      p.team = static_cast<int>(std::clamp<int64_t>(power_of_two_at_least(ceil_div(p.length, 4)), 32, 512));
    hold_rows(p, target);
    // A team over a warp is a whole block. Where threads have much to do, small blocks leave and begin one by one (16384 rows of 1152
    // bfloat16 with a scale and a shift, 40 elements a thread: blocks of 64 25.8 us, of 128 26.6, of 256 34.1); where they have little,
    // launching more of them is what they take (means of 32768 rows of 196 float16, 8 elements: of 256 12.7, of 64 20.0).
    const bool small = !p.uneven && p.held * p.width >= kMuchEach && ceil_div(p.rows, 256 / std::min(p.team, 32)) >= 4 * sms;
    p.threads = p.team > 32 ? p.team : small ? 64 : 256;
    while (p.team <= 32 && p.threads > 32 && ceil_div(p.rows, p.threads / p.team) < sms) p.threads /= 2;
  } else {
    // Whole lines are read, and many threads share a column (H200: the state of rwkv6, 64 x 64 float32, 256 threads
    // on 8 columns 5.06, on 16 6.67; 128 on 8 5.86, on 16 6.87; means over 197 x 768 bfloat16 256 on 8 20.0, on 32 22.4).
    const int64_t line = p.length < 16 ? 32 : std::clamp<int64_t>(threads_of_line(p), 8, 32);
    p.columns = static_cast<int>(std::min<int64_t>(p.width == 1 ? 32 : line, power_of_two_at_least(p.rows)));
    while (p.columns > 8 && ceil_div(p.rows, p.columns) < sms && p.length >= 64) p.columns /= 2;
    p.threads = static_cast<int>(std::clamp<int64_t>(p.columns * power_of_two_at_least(ceil_div(p.length, 2)), 32, 256));
    RegionPlan more = p;
    more.threads = 512;
    const HeldUnit unit = held_unit(p);
    if (!can_hold(p, unit) && p.threads == 256 && can_hold(more, unit)) p = std::move(more);
    if (can_hold(p, unit) && (p.passes.size() > 1 || ceil_div(p.length, threads_along(p)) <= 2 * kColumnUnits)) {
      // combining them costs more than further loads under way bring
      p.threads = static_cast<int>(
          std::clamp<int64_t>(p.columns * power_of_two_at_least(ceil_div(p.length, kColumnUnits)), std::min(64, p.threads), p.threads));
      hold(p, unit);
    }
  }
  p.blocks = std::min(blocks_of(p), most_blocks);
  VarTable table;
  table.vars = p.vars;
  const int64_t limit = int64_t{1} << 30;   // leaves room for a grid's stride and partial sums of a form
  bool wide = p.rows >= limit || p.length >= limit || p.blocks * p.threads >= limit * 2;
  for_each_affine(p, [&](Affine& a) {
    int64_t span = std::abs(a.constant);
    for (const auto& [v, c] : a.terms) span += std::abs(c) * (p.vars[static_cast<size_t>(v)].extent - 1);
    wide = wide || span >= limit * 2;
  });
  for (const IndexVar& v : p.vars) wide = wide || table.max_of(v.arg) >= limit * 2;
  p.wide = wide;
  ask_residency(p, target);
}

// ---- cost

namespace {

// Few long rows (one H200, 32 rows; cluster x threads): log_softmax 32000 8 x 128 5.57, 8 x 256 5.89, 4 x 256 6.31, 2 x 512 6.56, 1 x 512
// 10.2; softmax 50257 8 x 128 7.41, 8 x 256 6.87, 4 x 256 7.99, 8 x 512 8.92; softmax 128256 8 x 128 16.98, 8 x 256 11.97, 4 x 512 16.4.
// Columns (softmax over the middle of 64 x 128 x 256, eight columns): 64 threads 8.71, 128 6.25, 256 7.52, 512 13.5.
constexpr double kRowElements = 8192, kRowElementUs = 5e-5;   // elements of a multiprocessor beyond which they count, per pass
constexpr double kHeldColumnsUs = 0.4;    // their loads, walks of no more than a few lines each
constexpr double kColumnUs = 0.4;         // 128 threads combine a column's reductions
// an iteration of a loop that reads again, four of which are under way, from L2 and from device memory (H200: a sum over the middle of 128
// x 4096 x 4095 bfloat16 1323, 512 iterations in 15.5 waves); behind a store of the one before it where they are stores, too (16384 x 4096
// columns, 1024 iterations that read 4 bytes and write 2: 550)
constexpr double kStepUs = 0.1, kFarStepUs = 0.16, kStoringStepUs = 0.5;
// of rows that lie beside each other: lines that the step before has brought (a kernel of others' that walks 35426304 windows of 11 x 11
// bfloat16 so is bound by device memory, 2100 us: 0.13 at most)
constexpr double kBesideStepUs = 0.1;
constexpr double kEdgesUs = 0.7;          // a row's edges (layer norm of 6272 x 50: 2.40 by twos, 2.86 by eights with edges)
constexpr double kClusterUs = 0.5, kClusterPassUs = 0.5;   // a cluster's blocks find each other, and exchange a reduction's values

/// Instructions of rows that are held, in us: each warp's own, then those per element (softmax of 151296 x 197: 32 threads a row 53.3, 16
/// 36.8, 8 34.1; of 200704 x 49 one by one 16 threads 23.3, 8 18.1).
double issue_us(const Target& t, const RegionPlan& p) {
  const double passes = static_cast<double>(p.passes.size()), steps = static_cast<double>(p.held * p.width + 3 * edges_each(p)),
               warps = static_cast<double>(p.blocks) * p.threads / 32;
  // warps of a multiprocessor: what is in shared memory takes 27 to keep it busy
  const double beside = p.threads / 32.0 * std::min<double>(p.blocks_per_sm, std::ceil(static_cast<double>(p.blocks) / t.num_sms));
  return warps * passes * (48 + 5 * steps) /
         (static_cast<double>(std::min(p.blocks, int64_t{t.num_sms})) * 1700 * (p.staged ? std::min(4.0, beside * 0.15) : 4.0));
}
/// Rows by whole blocks take turns: what one place on a multiprocessor takes for its rows, each of which is read, worked on and written one
/// after another; only other places' rows overlap with that.
struct Turns { double waves = 1, us = 0; };
Turns turns(const Target& t, const RegionPlan& p, int64_t bytes) {
  const double row_bytes = static_cast<double>(bytes) / static_cast<double>(p.blocks), warps = p.threads / 32.0;
  const double each = 1.5 + (p.cluster > 1 ? 2.5 : 0.0) + row_bytes / t.region_sm_bytes_per_us +
                      warps * static_cast<double>(p.passes.size()) *
                          (60 + 5.0 * static_cast<double>(p.held * p.width + 3 * edges_each(p))) / (1700 * std::min(4.0, warps * 0.5));
  const double waves = std::max(1.0, static_cast<double>(p.blocks) / static_cast<double>(int64_t{p.blocks_per_sm} * t.num_sms));
  return {waves, waves * each};
}
/// Rows that wait in shared memory (one H200; threads x blocks per multiprocessor, in clusters of): softmax of 2048 x 50257 256 x 4 in 2
/// 110.0; of 256 x 50257 512 x 2 20.8, 256 x 4 in 2 20.3; of 1024 x 32000 256 x 3 37.7, 512 x 2 37.5, 1024 x 1 57; of 256 x 128256 128 x 6
/// in 8 42.9, 512 x 3 in 4 47.1, 1024 x 1 in 4 77; of 4096 x 8192 256 x 5 35.2, 512 x 3 51.
Cost staged_cost(const Target& t, const RegionPlan& p, int64_t bytes, double flops) {
  Cost cost;
  cost.bytes = bytes;
  cost.flops = flops;
  const Turns turn = turns(t, p, bytes);
  // blocks, one of which reads while another works
  const double beside = std::min<double>(p.blocks_per_sm, std::ceil(static_cast<double>(p.blocks) / t.num_sms));
  const double share = std::min(1.0, static_cast<double>(p.blocks) * static_cast<double>(p.smem_bytes) / (t.num_sms * 49152.0)),
               memory = static_cast<double>(bytes) / (t.dram_bytes_per_us * 0.97 * std::max(share, 0.004));
  cost.us = t.launch_us + 1.3 + (p.cluster > 1 ? kClusterUs : 0.0) +
            std::max(std::hypot(memory, turn.us), memory + issue_us(t, p) / (turn.waves * std::sqrt(beside)));
  cost.why = fmt::format("{:.2f} MB at {:.2f} TB/s + launch", static_cast<double>(bytes) * 1e-6, t.dram_bytes_per_us * 0.97 * share * 1e-6);
  return cost;
}

/// Microseconds of held rows, from what their elements take: 410 measured kernels of 28 programs of rows (one H200, test/gpu/rank_plans.py;
/// in docs/planning.md, "Rows"). Blocks beside each other on a multiprocessor read while others compute. Where all blocks begin at once,
/// each phase waits for the slowest.
double computed_us(const Target& t, const RegionPlan& p, int64_t bytes) {
  // of what results of 16 bits compute, most is hidden; instructions of a pass: unpacked, combined, packed
  constexpr double kNarrow = 0.31, kPass = 3.3, kOneWave = 2.15, kFewWarps = 5.3, kFewStaged = 0.6, kBeside = 0.23;
  constexpr double kReduceUs = 0.25, kClusterReduceUs = 1.2, kLargeClusterUs = 1.3, kMiddleClusterUs = 0.6;
  constexpr double kPeak = 1.11;   // of what a copy gets of device memory
  const bool row = p.shape == RegionPlan::Shape::kRow,
             narrow = std::all_of(p.accesses.begin(), p.accesses.end(),
                                  [](const RegionAccess& a) { return !a.written || dtype_bytes(a.dtype) == 2; });
  double each = p.work.instructions;
  for (int k = 0; k < p.kept; k++) each -= p.again[static_cast<size_t>(k)].saved.instructions;
  const double passes = static_cast<double>(p.passes.size()), blocks = static_cast<double>(p.blocks),
               resident = p.held > 0 ? p.blocks_per_sm : 1024.0 / p.threads, beside = std::min(resident, std::ceil(blocks / t.num_sms)),
               waves = blocks / (resident * t.num_sms),
               // a team's threads that have nothing to do wait
               walked = static_cast<double>(p.held > 0 && !p.uneven && p.cluster == 1 ? int64_t{p.held} * threads_along(p) : p.length),
               elements = static_cast<double>(p.rows) * walked * p.width,
               few = (p.staged ? kFewStaged : kFewWarps) * 32 / (beside * p.threads),
               issue = elements / std::min<double>(blocks, t.num_sms) * (each * (narrow && row ? kNarrow : 1.0) + kPass * passes) / 32 /
                       (4 * t.clock_per_us) * (1 + few),
               meet = (passes - 1) * (p.cluster > 1 ? kClusterReduceUs : kReduceUs) * std::max(1.0, waves),
               find = p.cluster == 1 ? 0 : p.threads > 256 ? kLargeClusterUs : p.threads > 128 ? kMiddleClusterUs : 0,
               computed = issue * (row && waves <= 1 ? kOneWave : 1.0) + meet + find,
               memory = static_cast<double>(bytes) / (t.dram_bytes_per_us * kPeak), q = 1 + kBeside * std::log2(std::max(1.0, beside));
  return t.launch_us + std::pow(std::pow(memory, q) + std::pow(computed, q), 1 / q);
}

/// Microseconds of a kernel that holds nothing, reading and writing in turn. Of an elementwise one with what its blocks bring from L2,
/// sectors that are written by halves, and what it computes (docs/decisions.md, "Threads walk along what they share").
double with_traffic(const Target& t, const RegionPlan& p, int64_t bytes, double share) {
  const double memory = static_cast<double>(bytes) / (t.dram_bytes_per_us * share);
  if (p.shape != RegionPlan::Shape::kPointwise) return memory;
  constexpr double kL2 = 1.25, kPower = 4;   // of the rate of reads alone
  const RegionTraffic traffic = traffic_of(p, bytes);
  const double dram = memory + traffic.half_written / (t.dram_bytes_per_us * share),
               l2 = traffic.l2_bytes / (kL2 * t.l2_bytes_per_us * share),
               issue = traffic.instructions / (static_cast<double>(std::min<int64_t>(p.blocks, t.num_sms)) * 128 * t.clock_per_us);
  return std::pow(std::pow(dram, kPower) + std::pow(l2, kPower) + std::pow(issue, kPower), 1 / kPower);
}

/// What a kernel takes for its memory, its walks and its rows' turns.
Cost memory_cost(const Target& t, const RegionPlan& p, int64_t bytes, double flops) {
  if (p.staged) return staged_cost(t, p, bytes, flops);
  Cost cost;
  cost.bytes = bytes;
  cost.flops = flops;
  const double each = p.width * (p.unrolled >= 0 ? static_cast<double>(p.length) : 1.0);   // elements of a thread
  const double in_flight = static_cast<double>(p.blocks) * p.threads * each * 8;
  double share = std::min({1.0, in_flight / (t.num_sms * 32768.0), static_cast<double>(p.blocks) / (0.6 * t.num_sms)});
  double memory, again = 0;
  if (p.held > 0) {   // everything is asked for at once: device memory as a whole, then what one multiprocessor takes of a block's part
    // rows that follow each other in many waves are read, worked on and written at the same time
    const bool follow = p.team <= 32 && p.width > 1 && p.blocks > int64_t{4} * p.blocks_per_sm * t.num_sms;
    memory = static_cast<double>(cost.bytes) / (t.dram_bytes_per_us * (follow ? 0.93 : 0.8)) +
             static_cast<double>(cost.bytes) / static_cast<double>(p.blocks) / t.region_sm_bytes_per_us;
    if (const Turns turn = turns(t, p, bytes); p.shape == RegionPlan::Shape::kRow && p.team > 32 && turn.waves > 1)
      memory = std::max(memory, std::hypot(static_cast<double>(bytes) / (t.dram_bytes_per_us * 0.97), turn.us));
  } else {
    memory = with_traffic(t, p, bytes, std::max(share, 0.004));
    const double waves = std::max(1.0, static_cast<double>(p.blocks) * p.threads / (t.num_sms * 2048.0)),
                 walks = static_cast<double>(ceil_div(p.length, threads_along(p))) * static_cast<double>(p.passes.size());
    // elements one by one: the walk counts, not the bytes under way (softmax of 32 x 50257 by 512 threads a row 24.9)
    if (p.shape != RegionPlan::Shape::kPointwise && p.width == 1) memory = static_cast<double>(cost.bytes) / t.dram_bytes_per_us, share = 1;
    if (p.shape != RegionPlan::Shape::kPointwise)
      memory = std::max(memory, walks * waves *
                                    (walks_alone(p)               ? kBesideStepUs
                                     : cost.bytes <= t.l2_bytes   ? kStepUs
                                     : p.passes[0].stores.empty() ? kFarStepUs
                                                                  : kStoringStepUs));
    // part of it in L1
    again = 0.5 * static_cast<double>(cost.bytes) * static_cast<double>(p.passes.size() - 1) / (t.l2_bytes_per_us * std::max(share, 0.004));
  }
  // eight warps fill a multiprocessor
  if (p.held > 0) share = std::min(1.0, static_cast<double>(p.blocks) * std::min(p.threads, 256) / (t.num_sms * 256.0));
  double math = cost.flops / (t.f32_flops_per_us * std::max(share, 0.004));
  if (p.held > 0 && p.shape == RegionPlan::Shape::kRow) math = std::max(math, issue_us(t, p));
  if (p.held > 0) share = static_cast<double>(cost.bytes) / memory / t.dram_bytes_per_us;
  // a held row is reduced and combined, nothing else
  const double pass_us = p.cluster > 1 ? kClusterPassUs : p.held == 0 ? 0.4 : p.team > 512 ? 0.3 : p.team > 32 ? 0.15 : 0.1;
  cost.us = t.launch_us + (p.held > 0 ? 1.0 : 0.8) + (p.held > 0 && p.width == 1 ? 0.2 : 0.0) + (p.uneven ? kEdgesUs : 0.0) +
            (p.cluster > 1 ? kClusterUs : 0.0) + pass_us * static_cast<double>(p.passes.size() - 1) + std::max(memory + again, math);
  if (p.shape == RegionPlan::Shape::kRow && p.held > 0) {   // few long rows
    // of a thread
    const double few = static_cast<double>(std::min(p.rows * p.cluster, int64_t{t.num_sms})),
                 elements = static_cast<double>(p.held * p.width);
    if (p.rows <= t.num_sms)
      cost.us += std::max(0.0, static_cast<double>(p.rows * p.length * p.width) / few - kRowElements) *
                 static_cast<double>(p.passes.size()) * kRowElementUs;
    if (p.cluster > 1)
      cost.us += std::max(0.0, elements - 64) * 0.06 + (p.width == 1 ? std::max(0.0, elements - 32) * 0.03 : 0.0) +
                 (p.threads > 256   ? 0.6
                  : p.threads > 128 ? 0.1
                                    : 0.0);
  }
  if (p.shape == RegionPlan::Shape::kColumn)
    cost.us += (p.held > 0 ? kHeldColumnsUs : 0.0) + kColumnUs * p.threads / 128.0 * static_cast<double>(p.passes.size() - 1);
  if (memory + again >= math)
    cost.why = fmt::format("{:.2f} MB at {:.2f} TB/s + launch", static_cast<double>(cost.bytes) * 1e-6, t.dram_bytes_per_us * share * 1e-6);
  else cost.why = fmt::format("{:.2f} Mflop of elementwise arithmetic + launch", cost.flops * 1e-6);
  return cost;
}

}  // namespace

Cost cost_of(const Target& t, const RegionPlan& p, int64_t bytes, double flops) {
  Cost cost = memory_cost(t, p, bytes, flops);
  const bool row = p.shape == RegionPlan::Shape::kRow;
  if (p.shape == RegionPlan::Shape::kPointwise || (row && p.held == 0)) return cost;
  if (const double computed = computed_us(t, p, bytes); computed > cost.us)
    cost.us = computed, cost.why = fmt::format("{:.2f} MB and {:.2f} million elements of rows + launch", static_cast<double>(bytes) * 1e-6,
                                               static_cast<double>(p.rows) * static_cast<double>(p.length) * p.width * 1e-6);
  return cost;
}

/// Threads as at another shape.
void take_threads(RegionPlan& p, const RegionNumbers& n, const Target& target) {
  p.threads = n.threads;
  p.team = n.team;
  p.columns = n.columns;
  p.held = n.held ? static_cast<int>(ceil_div(p.length, threads_along(p))) : 0;
  p.unpacked = n.unpacked;
  p.staged = n.staged;
  p.cluster = n.cluster;
  p.blocks = blocks_of(p);
  ask_residency(p, target);
  p.kept = p.held > 0 && !p.staged ? std::min(n.kept, static_cast<int>(p.again.size())) : 0;
}

bool take_block(RegionPlan& p, int threads, const Target& target) {
  const bool rows = p.shape == RegionPlan::Shape::kRow && p.team <= 32 && p.cluster == 1 && !p.staged;
  if (p.shape != RegionPlan::Shape::kPointwise && !rows) return false;
  if (threads % 32 != 0 || threads > 256 || p.blocks * p.threads >= int64_t{1} << 30) return false;
  p.threads = threads;
  p.blocks = blocks_of(p);
  ask_residency(p, target);
  return true;
}

namespace {

constexpr int64_t kLongRow = 8192;   // elements beyond which the blocks of a cluster may share a row

/// A row's threads in the blocks of a cluster: for few long rows, which would leave most multiprocessors idle.
std::vector<RegionPlan> in_clusters(const RegionPlan& p, const Target& target) {
  std::vector<RegionPlan> out;
  if (p.shape != RegionPlan::Shape::kRow || !target.has_cluster || p.chunk >= 0 || p.rows > target.num_sms ||
      p.length * p.width <= kLongRow)
    return out;
  const HeldUnit unit = held_unit(p);
  for (int cluster : {2, 4, 8})
    for (int threads : {128, 256, 512}) {
      const int64_t team = int64_t{cluster} * threads;
      if (p.length < team || p.rows * cluster > 2 * target.num_sms) continue;
      RegionPlan q = p;
      q.staged = false;
      q.cluster = cluster;
      q.threads = threads;
      q.team = static_cast<int>(team);
      if (!can_hold(q, unit)) continue;   // longer ones are left to two kernels
      hold(q, unit);
      q.blocks = blocks_of(q);
      ask_residency(q, target);
      out.push_back(std::move(q));
    }
  return out;
}

// static shared memory of a block's reductions, at most: 32 warps' values for two functions in two places
constexpr int64_t kTeamBytes = 512;

/// A row's vectors in shared memory: rows that registers do not take, or hardly.
std::vector<RegionPlan> in_shared_memory(const RegionPlan& p, const Target& target) {
  std::vector<RegionPlan> out;
  if (p.shape != RegionPlan::Shape::kRow || p.chunk >= 0 || p.passes.size() < 2) return out;
  for (const RegionInstr& i : held_loads(p))
    if (!i.vector || staged_unit(p, i) < 4) return out;
  if (held_loads(p).empty()) return out;
  for (int cluster : {1, 2, 4, 8})
    for (int threads : {128, 256, 512}) {
      const int64_t team = int64_t{cluster} * threads;
      if (cluster == 1 && threads == 128) continue;   // a block of 256 was as fast or faster everywhere
      if (p.length < team || (cluster > 1 && (!target.has_cluster || p.length * p.width <= kLongRow)) ||
          p.rows * cluster >= (int64_t{1} << 31))
        continue;
      RegionPlan q = p;
      q.cluster = cluster;
      q.threads = threads;
      q.team = static_cast<int>(team);
      q.staged = true;
      q.unpacked = false;
      q.held = static_cast<int>(ceil_div(q.length, team));
      q.blocks = blocks_of(q);
      take_smem(q);
      if (q.smem_bytes + kTeamBytes > target.smem_per_block || held_loads(q).empty()) continue;
      ask_residency(q, target);
      out.push_back(std::move(q));
    }
  return out;
}

/// A held row's threads in other teams. Of rows that vectors fill, those of which less of a team has nothing to do: 48 vectors are three
/// for each of 16 threads (layer norm of 6272 x 384 float16: 64 threads a row 8.0, 32 5.0, 16 4.1).
std::vector<RegionPlan> in_other_teams(const RegionPlan& p, const Target& target) {
  std::vector<RegionPlan> out;
  if (p.shape != RegionPlan::Shape::kRow || p.held == 0 || p.staged || p.cluster > 1) return out;
  const bool ones = p.uneven || p.width == 1;
  for (int team : {4, 8, 16, 32, 128, 256}) {
    RegionPlan q = p;
    q.team = team, q.threads = team == 128 ? 128 : ones || team > 32 ? 256 : 128;
    const HeldUnit unit = held_unit(q);
    if (team == p.team || !can_hold(q, unit) || q.length * 2 <= team || ceil_div(q.rows, q.threads / q.team) < target.num_sms) continue;
    if (!ones && (team > 32 || ceil_div(p.length, team) * team >= int64_t{p.held} * p.team)) continue;
    hold(q, unit);
    q.blocks = blocks_of(q);
    ask_residency(q, target);
    out.push_back(std::move(q));
  }
  return out;
}

}  // namespace

std::vector<RegionPlan> with_threads(RegionPlan p, const Target& target) {
  choose_threads(p, target);
  std::vector<RegionPlan> out = in_clusters(p, target);
  if (p.shape == RegionPlan::Shape::kRow && (p.held == 0 || p.team > 32))
    for (RegionPlan& q : in_shared_memory(p, target)) out.push_back(std::move(q));
  for (RegionPlan& q : in_other_teams(p, target)) out.push_back(std::move(q));
  if (p.team > 1 && p.width == 1 && ceil_div(p.rows, 256) >= target.num_sms && lie_beside(p)) {
    RegionPlan q = p;
    q.team = 1, q.threads = 256, q.held = 0, q.unpacked = false;
    q.blocks = blocks_of(q);
    ask_residency(q, target);
    out.push_back(std::move(q));
  }
  out.insert(out.begin(), std::move(p));
  return out;
}

std::vector<std::pair<RegionPlan, Cost>> region_alternatives(const RegionPlan& plan, const Target& target, int64_t bytes, double flops) {
  std::vector<std::pair<RegionPlan, Cost>> out;
  const auto add = [&](int threads, int team, int columns, bool held) {  // without a cluster
    const int64_t share = plan.shape == RegionPlan::Shape::kPointwise ? threads
                          : plan.shape == RegionPlan::Shape::kRow     ? threads / team
                                                                      : columns,
                  blocks = ceil_div(plan.rows, share);
    if (blocks >= (int64_t{1} << 31) || (!plan.wide && blocks * threads >= (int64_t{1} << 30))) return;
    RegionPlan p = plan;
    p.threads = threads, p.team = team, p.columns = columns, p.cluster = 1;
    p.held = 0, p.staged = false;
    if (held) {
      const HeldUnit unit = held_unit(p);
      if (!can_hold(p, unit)) return;
      hold(p, unit);
    }
    p.unpacked = p.held > 0 && p.unpacked;
    p.blocks = blocks_of(p);
    ask_residency(p, target);
    Cost cost = cost_of(target, p, bytes, flops);
    out.emplace_back(std::move(p), std::move(cost));
  };
  if (plan.shape == RegionPlan::Shape::kPointwise)
    for (int threads : {64, 128, 256, 512}) add(threads, plan.team, plan.columns, false);
  else if (plan.shape == RegionPlan::Shape::kColumn)
    for (int columns : {8, 16, 32})
      for (int threads : {64, 128, 256, 512})
        for (bool held : {true, false}) add(threads, plan.team, columns, held);
  else
    for (int team : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024})
      for (int threads : team > 32 ? std::vector<int>{team} : std::vector<int>{64, 128, 256})
        for (bool held : {true, false})
          if (team <= power_of_two_at_least(plan.length) && (team > 1 || plan.team == 1 || plan.length <= 64))
            add(threads, team, plan.columns, held);
  for (const auto& more : {in_clusters(plan, target), in_shared_memory(plan, target)})
    for (const RegionPlan& p : more) out.emplace_back(p, cost_of(target, p, bytes, flops));
  return out;
}

int64_t staged_unit(const RegionPlan& p, const RegionInstr& load) {
  return int64_t{p.width} * dtype_bytes(p.accesses[static_cast<size_t>(load.access)].dtype);
}
int64_t edges_each(const RegionPlan& p) { return p.uneven ? ceil_div(2 * (p.width - 1), p.team) : 0; }
int64_t reductions(const RegionPlan& p) {
  int64_t n = 0;
  for (const RegionPass& pass : p.passes) n += static_cast<int64_t>(pass.reduces.size());
  return n;
}

std::vector<RegionInstr> held_loads(const RegionPlan& p) {
  std::vector<bool> along(p.vars.size());   // differs along the row
  for (int v : p.inner) along[static_cast<size_t>(v)] = true;
  if (p.lane >= 0 && p.shape == RegionPlan::Shape::kRow) along[static_cast<size_t>(p.lane)] = true;
  const auto differs = [&](const Affine& a) {
    return std::any_of(a.terms.begin(), a.terms.end(), [&](const auto& t) { return along[static_cast<size_t>(t.first)]; });
  };
  for (size_t v = 0; v < p.vars.size(); v++) along[v] = along[v] || differs(p.vars[v].arg);
  const auto of_row = [&](const Affine& a) {   // not the same for all rows
    std::set<int> loops;
    loops_of(p, a, loops);
    return std::any_of(p.outer.begin(), p.outer.end(), [&](int v) { return loops.count(v) > 0; });
  };
  std::vector<RegionInstr> out;
  for (const RegionPass& pass : p.passes)
    for (const RegionInstr& i : pass.body) {
      if (i.kind != RegionInstr::Kind::kLoad || !(i.vector || p.width == 1) || !differs(i.index)) continue;
      if (p.staged && !of_row(i.index)) continue;
      if (std::none_of(out.begin(), out.end(), [&](const RegionInstr& o) { return o.access == i.access && o.index == i.index; }))
        out.push_back(i);
    }
  return out;
}

}  // namespace mirage

// Region kernels, from loops to threads: the order of loops, which of them merge, the vector width, threads per row, and the cost. Starts from region_lower.cc's one-element-at-a-time form.
#include "plan/region.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "mirage/support/round.h"
namespace mirage {
namespace {

using Kind = RegionInstr::Kind;

int64_t power_of_two_at_least(int64_t n) {
  int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

/// All loads and stores with the statement list they stand in, for inspection.
struct MemoryRef { const Affine* at; int access; bool is_store; bool after; };
void collect(const std::vector<RegionInstr>& code, bool after, std::vector<MemoryRef>& out) {
  for (const RegionInstr& i : code) {
    if (i.kind == Kind::kLoad) out.push_back({&i.index, i.access, false, after});
    collect(i.then_body, after, out);
    collect(i.else_body, after, out);
  }
}
std::vector<MemoryRef> memory_refs(const RegionPlan& p) {
  std::vector<MemoryRef> out;
  for (const RegionPass& pass : p.passes) {
    collect(pass.body, false, out);
    collect(pass.after, true, out);
    for (const RegionStore& s : pass.stores) out.push_back({&s.offset, s.access, true, false});
    for (const RegionStore& s : pass.after_stores) out.push_back({&s.offset, s.access, true, true});
  }
  return out;
}

/// The value of a form with every loop at 0 but `loop` at `x`.
int64_t value_at(const RegionPlan& p, const Affine& a, int loop, int64_t x) {
  std::vector<int64_t> v(p.vars.size());
  const auto eval = [&](const Affine& f) {
    int64_t s = f.constant;
    for (const auto& [var, c] : f.terms) s += c * v[static_cast<size_t>(var)];
    return s;
  };
  for (size_t i = 0; i < v.size(); i++) {
    const IndexVar& var = p.vars[i];
    if (var.kind == IndexVar::Kind::kDiv) v[i] = eval(var.arg) / var.divisor;
    else if (var.kind == IndexVar::Kind::kMod) v[i] = eval(var.arg) % var.divisor;
    else v[i] = static_cast<int>(i) == loop ? x : 0;
  }
  return eval(a);
}
int64_t stride_of(const RegionPlan& p, const Affine& a, int loop) { return value_at(p, a, loop, 1) - value_at(p, a, loop, 0); }

/// Loops that a form depends on, through divisions too.
void loops_of(const RegionPlan& p, const Affine& a, std::set<int>& out) {
  for (const auto& [v, c] : a.terms) {
    const IndexVar& var = p.vars[static_cast<size_t>(v)];
    if (var.kind == IndexVar::Kind::kLoop || var.kind == IndexVar::Kind::kLane) out.insert(v);
    else loops_of(p, var.arg, out);
  }
}
double footprint(const RegionPlan& p, const Affine& a) {
  std::set<int> loops;
  loops_of(p, a, loops);
  double n = 1;
  for (int l : loops) n *= static_cast<double>(p.vars[static_cast<size_t>(l)].extent);
  return n;
}

/// Rebuilds a plan in a new table of variables. `table` holds the new loops; image[v] is set for the old loops.
void rebuild(RegionPlan& p, VarTable table, std::vector<Affine> image) {
  std::set<int> used;
  std::function<void(const Affine&)> mark = [&](const Affine& a) {
    for (const auto& [v, c] : a.terms)
      if (used.insert(v).second) mark(p.vars[static_cast<size_t>(v)].arg);
  };
  for_each_affine(p, [&](Affine& a) { mark(a); });
  for (size_t v = 0; v < p.vars.size(); v++) {
    const IndexVar& var = p.vars[v];
    if (!used.count(static_cast<int>(v))) continue;
    if (var.kind == IndexVar::Kind::kDiv) image[v] = table.div(substitute(var.arg, image), var.divisor, var.extent * var.divisor);
    if (var.kind == IndexVar::Kind::kMod) image[v] = table.mod(substitute(var.arg, image), var.divisor, var.divisor + 1);
  }
  for_each_affine(p, [&](Affine& a) { a = substitute(a, image); });
  p.vars = table.vars;
}

// ---- order and merging of loops

double contiguous_weight(const RegionPlan& p, const std::vector<MemoryRef>& refs, int loop) {
  double w = 0;
  for (const MemoryRef& r : refs)
    if (!r.after && stride_of(p, *r.at, loop) == 1) w += footprint(p, *r.at) * dtype_bytes(p.accesses[static_cast<size_t>(r.access)].dtype) * (r.is_store ? 2 : 1);
  return w;
}

/// Moves the loop along which most of the traffic is contiguous to the end; its weight.
double put_contiguous_last(const RegionPlan& p, const std::vector<MemoryRef>& refs, std::vector<int>& loops) {
  double best = 0;
  size_t at = loops.size();
  for (size_t i = 0; i < loops.size(); i++) {
    if (loops[i] == p.chunk) continue;
    const double w = contiguous_weight(p, refs, loops[i]);
    if (w > best || (w == best && w > 0)) best = w, at = i;
  }
  if (at < loops.size()) std::rotate(loops.begin() + static_cast<long>(at), loops.begin() + static_cast<long>(at) + 1, loops.end());
  return best;
}

void order_loops(RegionPlan& p, bool has_reduce) {
  const auto refs = memory_refs(p);
  std::vector<int> outer = p.outer;
  if (!has_reduce && !p.passes[0].stores.empty()) {   // in the order in which the result lies in memory
    const Affine& at = p.passes[0].stores[0].offset;
    std::stable_sort(outer.begin(), outer.end(), [&](int a, int b) { return stride_of(p, at, a) > stride_of(p, at, b); });
  }
  const double out = put_contiguous_last(p, refs, outer), in = put_contiguous_last(p, refs, p.inner);
  p.shape = !has_reduce ? RegionPlan::Shape::kPointwise : out > in ? RegionPlan::Shape::kColumn : RegionPlan::Shape::kRow;
  if (p.shape != RegionPlan::Shape::kRow) p.outer = outer;
}

/// Whether loops a, b (b faster) are one loop everywhere: no form tells them apart.
bool merges(RegionPlan& p, int a, int b) {
  const int64_t extent = p.vars[static_cast<size_t>(b)].extent;
  bool ok = a != p.chunk && b != p.chunk;
  const auto check = [&](const Affine& f) { ok = ok && f.coefficient(a) == f.coefficient(b) * extent; };
  for_each_affine(p, check);
  for (const IndexVar& v : p.vars) check(v.arg);
  return ok;
}

bool merge_one(RegionPlan& p, std::vector<int>& loops) {
  for (size_t i = 0; i + 1 < loops.size(); i++) {
    const int a = loops[i], b = loops[i + 1];
    if (!merges(p, a, b)) continue;
    VarTable table;
    std::vector<Affine> image(p.vars.size());
    std::vector<int> to(p.vars.size(), -1);
    for (size_t v = 0; v < p.vars.size(); v++) {
      if (p.vars[v].kind != IndexVar::Kind::kLoop || static_cast<int>(v) == a) continue;
      to[v] = table.add_loop(p.vars[v].extent * (static_cast<int>(v) == b ? p.vars[static_cast<size_t>(a)].extent : 1));
      image[v] = affine_var(to[v]);
    }
    loops.erase(loops.begin() + static_cast<long>(i));
    for (auto* list : {&p.outer, &p.inner})
      for (int& v : *list) v = to[static_cast<size_t>(v)];
    if (p.chunk >= 0) p.chunk = to[static_cast<size_t>(p.chunk)];
    rebuild(p, std::move(table), std::move(image));
    return true;
  }
  return false;
}

/// Where a pointwise kernel reads along one dimension and writes along another, walks in squares of kTile x kTile, so that a block uses whole sectors of both.
void tile_transposes(RegionPlan& p) {
  constexpr int64_t kTile = 16;
  if (p.shape != RegionPlan::Shape::kPointwise || p.outer.size() < 2) return;
  const auto refs = memory_refs(p);
  const int b = p.outer.back();
  int a = -1;
  double best = 0;
  for (int loop : p.outer)
    if (const double w = loop == b ? 0 : contiguous_weight(p, refs, loop); w > best) best = w, a = loop;
  if (a < 0 || best < 0.2 * contiguous_weight(p, refs, b)) return;
  if (p.vars[static_cast<size_t>(a)].extent % kTile || p.vars[static_cast<size_t>(b)].extent % kTile) return;
  VarTable table;
  std::vector<Affine> image(p.vars.size());
  std::vector<int> outer, tiles;
  for (int loop : p.outer) {
    const bool cut = loop == a || loop == b;
    const int64_t extent = p.vars[static_cast<size_t>(loop)].extent;
    const int whole = table.add_loop(cut ? extent / kTile : extent);
    (cut ? tiles : outer).push_back(whole);
    image[static_cast<size_t>(loop)] = affine_var(whole) * (cut ? kTile : 1);
  }
  outer.insert(outer.end(), tiles.begin(), tiles.end());
  for (int loop : {a, b}) {
    outer.push_back(table.add_loop(kTile));
    image[static_cast<size_t>(loop)] = image[static_cast<size_t>(loop)] + affine_var(outer.back());
  }
  p.outer = outer;
  rebuild(p, std::move(table), std::move(image));
}

// ---- vectors

/// Drops the lane from conditions that all lanes answer alike, marks what is read and written as vectors.
struct Vectorizer {
  RegionPlan& p;
  VarTable table;
  double cost = 0;   // memory instructions per element
  int vectors = 0;   // loads and stores of whole vectors

  bool lane_free(const Affine& a) const {
    for (const auto& t : a.terms)
      if (t.first != p.lane && table.vars[static_cast<size_t>(t.first)].on_lane) return false;
    return true;
  }
  bool is_vector(const Affine& a) const {
    if (p.lane < 0 || a.coefficient(p.lane) != 1 || !lane_free(a) || a.constant % p.width) return false;
    return std::all_of(a.terms.begin(), a.terms.end(), [&](const auto& t) { return t.first == p.lane || t.second % p.width == 0; });
  }
  void count(const Affine& a, int access, bool vector, double share) {
    const int bytes = dtype_bytes(p.accesses[static_cast<size_t>(access)].dtype) * p.width;
    if (vector) cost += share * std::max(1, bytes / 16) / p.width, vectors++;
    else if (p.width > 1 && !table.on_lane(a)) cost += share / p.width;
    else cost += share * (p.width > 1 ? 1.3 : 1.0);
  }
  void uniform(RegionInstr& i) const {
    i.uniform = !table.on_lane(i.index);
    if (i.uniform || i.index.coefficient(p.lane) != 1 || !lane_free(i.index) || (i.bound - i.index.constant) % p.width) return;
    for (const auto& t : i.index.terms)
      if (t.first != p.lane && t.second % p.width) return;
    std::erase_if(i.index.terms, [&](const auto& t) { return t.first == p.lane; });   // V*q + lane < V*b exactly if V*q < V*b
    i.uniform = true;
  }
  void code(std::vector<RegionInstr>& body, bool vectors, double share) {
    for (RegionInstr& i : body) {
      if (i.kind == Kind::kLoad) {
        i.vector = vectors && is_vector(i.index);
        count(i.index, i.access, i.vector, share);
      }
      if (i.kind != Kind::kBranch) continue;
      if (p.lane >= 0) uniform(i);
      code(i.then_body, vectors && i.uniform, share / 2);
      code(i.else_body, vectors && i.uniform, share / 2);
    }
  }
  void stores(std::vector<RegionStore>& list, double share) {
    for (RegionStore& s : list) {
      s.vector = is_vector(s.offset);
      count(s.offset, s.access, s.vector, share);
    }
  }
  void run() {
    const bool lanes_in_row = p.shape == RegionPlan::Shape::kColumn;
    for (RegionPass& pass : p.passes) {
      code(pass.body, true, 1);
      stores(pass.stores, 1);
      code(pass.after, lanes_in_row, 0.01);
      stores(pass.after_stores, 0.01);
    }
  }
};

/// The plan with `width` elements per thread along the last loop; memory instructions per element, and how many of them move vectors.
RegionPlan with_width(const RegionPlan& scalar, int width, double* cost, int* vectors) {
  RegionPlan p = scalar;
  auto& loops = p.shape == RegionPlan::Shape::kRow ? p.inner : p.outer;
  VarTable table;
  std::vector<Affine> image(p.vars.size());
  std::vector<int> to(p.vars.size(), -1);
  const int last = loops.empty() ? -1 : loops.back();
  p.width = width;
  p.lane_extent = last < 0 ? 1 : p.vars[static_cast<size_t>(last)].extent;
  for (size_t v = 0; v < p.vars.size(); v++) {
    if (p.vars[v].kind != IndexVar::Kind::kLoop) continue;
    const bool cut = static_cast<int>(v) == last;
    to[v] = table.add_loop(cut ? ceil_div(p.vars[v].extent, width) : p.vars[v].extent);
    image[v] = affine_var(to[v]) * (cut ? width : 1);
  }
  if (width > 1) {
    p.lane = table.add_loop(width, IndexVar::Kind::kLane);
    image[static_cast<size_t>(last)] = image[static_cast<size_t>(last)] + affine_var(p.lane);
  }
  for (auto* list : {&p.outer, &p.inner})
    for (int& v : *list) v = to[static_cast<size_t>(v)];
  if (p.chunk >= 0) p.chunk = to[static_cast<size_t>(p.chunk)];
  rebuild(p, std::move(table), std::move(image));
  Vectorizer vectorizer{p, {}};
  vectorizer.table.vars = p.vars;
  vectorizer.run();
  *cost = vectorizer.cost;
  *vectors = vectorizer.vectors;
  return p;
}

// ---- threads

int64_t product(const RegionPlan& p, const std::vector<int>& loops) {
  int64_t n = 1;
  for (int l : loops) n *= p.vars[static_cast<size_t>(l)].extent;
  return n;
}

/// Registers that one of a block's threads can hold operands in: a quarter to three eighths of those that so many threads leave each other.
int64_t held_registers(int64_t threads) { return threads > 512 ? 16 : threads > 256 ? 48 : 96; }
/// Elements of a row that one of them may hold as float32.
int64_t unpacked_elements(int64_t threads) { return threads > 512 ? 16 : threads > 256 ? 48 : 64; }

/// Threads along the inner loop.
int64_t threads_along(const RegionPlan& p) { return p.shape == RegionPlan::Shape::kRow ? p.team : p.threads / p.columns; }

/// 32-bit registers, and elements, of one unit of what a row or column holds.
struct HeldUnit { int64_t registers = 0, elements = 0; };
HeldUnit held_unit(const RegionPlan& p) {
  int64_t bytes = 0;
  HeldUnit unit;
  for (const RegionInstr& i : held_loads(p)) unit.elements += p.width, bytes += std::max(p.width * dtype_bytes(p.accesses[static_cast<size_t>(i.access)].dtype), 4);
  unit.registers = ceil_div(bytes, 4);
  return unit;
}
/// Whether each thread can hold its units in registers.
bool can_hold(const RegionPlan& p, const HeldUnit& unit) { return unit.registers > 0 && p.chunk < 0 && ceil_div(p.length, threads_along(p)) * unit.registers <= held_registers(p.threads); }
void hold(RegionPlan& p, const HeldUnit& unit) {
  p.held = static_cast<int>(ceil_div(p.length, threads_along(p)));
  p.unpacked = p.held * unit.elements <= unpacked_elements(p.threads);
}

int64_t blocks_of(const RegionPlan& p) {
  if (p.shape == RegionPlan::Shape::kRow) return p.cluster > 1 ? p.rows * p.cluster : ceil_div(p.rows, p.threads / p.team);
  return ceil_div(p.rows, p.shape == RegionPlan::Shape::kPointwise ? p.threads : p.columns);
}

/// Threads per multiprocessor among which rows are shared: as many as hide what the others wait for where rows follow each other. Where all rows are resident at once fewer are enough, and better: a reduction over
/// more threads costs more instructions and barriers than further loads under way bring.
constexpr int64_t kBusyThreads = 3072, kResidentThreads = 480;

/// Registers that holding `held` units of a row and working on one takes.
int64_t working_registers(const RegionPlan& p, int64_t held) {
  int64_t words = 0, elements = 0, operands = 0;
  for (const RegionInstr& i : held_loads(p)) words += std::max<int64_t>(1, p.width * dtype_bytes(p.accesses[static_cast<size_t>(i.access)].dtype) / 4), elements += p.width, operands++;
  const int64_t written = std::count_if(p.accesses.begin(), p.accesses.end(), [](const RegionAccess& a) { return a.written; });
  const bool wide_results = p.width == 8 && std::any_of(p.accesses.begin(), p.accesses.end(), [](const RegionAccess& a) { return a.written && dtype_bytes(a.dtype) == 4; });   // two words of 16 bytes at once
  const int64_t places = p.shape == RegionPlan::Shape::kColumn ? held : 0;   // a column's lines lie anywhere: their places stay beside what is held
  return (held * words + places + elements + 16 + 8 * std::max<int64_t>(0, operands - 2) + 8 * std::max<int64_t>(0, written - 1) + (wide_results ? 8 : 0) + 7) / 8 * 8;   // a cap of less spilled (three operands of two norms; a softmax' exponentials and their sums)
}
/// Asks for as many blocks per multiprocessor as one wave needs, up to what registers allow without spilling.
void ask_residency(RegionPlan& p, const Target& target) {
  p.blocks_per_sm = 1;
  if (p.held == 0) return;
  const bool small = target.smem_per_sm < 128 << 10;   // multiprocessors of sm_86, sm_89 and sm_120 run 1536 threads in 16 blocks or more; ptxas warns of more, and ignores it
  const int64_t most = std::min<int64_t>(65536 / (p.threads * working_registers(p, p.held)), small ? std::min(1536 / p.threads, 16) : 2048 / std::max(p.threads, 64));
  p.blocks_per_sm = static_cast<int>(std::clamp<int64_t>(ceil_div(p.blocks, target.num_sms), 1, std::max<int64_t>(1, most)));
}

constexpr int64_t kColumnUnits = 8;   // that each thread of a column holds

/// Threads per row so that a row fits the registers of its team: all its loads are under way at once, and later passes read nothing. As long as the device is full of threads, or all rows are resident at once
/// by not too few, fewer of them share a row, up to four units each; few rows take 256 threads and then two units each, beyond that more threads (measured: docs/planning.md, "Rows").
void hold_rows(RegionPlan& p, const Target& target) {
  const HeldUnit unit = held_unit(p);
  const int64_t each = unit.registers;
  if (each == 0 || p.chunk >= 0) return;
  const auto team_of = [&](int64_t wish) { return power_of_two_at_least(ceil_div(p.length, wish)); };
  int64_t wish = std::min<int64_t>(held_registers(32) / each, 4);
  const auto resident = [&](int64_t team) { return p.rows * team >= kResidentThreads * target.num_sms && ceil_div(p.rows, target.num_sms) * std::max<int64_t>(team, 32) * working_registers(p, ceil_div(p.length, team)) <= 65536; };
  while (wish > 1 && p.rows * team_of(wish) < kBusyThreads * target.num_sms && !resident(team_of(wish)) && (team_of(wish) < 256 || ceil_div(p.length, team_of(wish)) > 2)) wish--;
  if (wish < 1) return;
  const int64_t team = std::min<int64_t>(1024, team_of(wish));
  if (ceil_div(p.length, team) * each > held_registers(team)) return;
  p.team = p.threads = static_cast<int>(team);
  hold(p, unit);
}

void choose_threads(RegionPlan& p, const Target& target) {
  p.rows = product(p, p.outer);
  p.length = product(p, p.inner);
  const int64_t sms = target.num_sms, most_blocks = (int64_t{1} << 31) - 1;
  if (p.shape == RegionPlan::Shape::kPointwise) {
    p.threads = 256;
    while (p.threads > 64 && ceil_div(p.rows, p.threads) < sms) p.threads /= 2;
  } else if (p.shape == RegionPlan::Shape::kRow) {
    p.team = static_cast<int>(std::min<int64_t>(32, power_of_two_at_least(p.length)));
    if (p.length > 32 && (p.rows < sms * 32 || p.length > 32 * 16)) p.team = static_cast<int>(std::clamp<int64_t>(power_of_two_at_least(ceil_div(p.length, 4)), 32, 512));
    hold_rows(p, target);
    p.threads = p.team > 32 ? p.team : 256;   // a team over a warp is a whole block
    while (p.team <= 32 && p.threads > 32 && ceil_div(p.rows, p.threads / p.team) < sms) p.threads /= 2;
  } else {
    p.columns = static_cast<int>(std::min<int64_t>(32, power_of_two_at_least(p.rows)));
    while (p.columns > 8 && ceil_div(p.rows, p.columns) < sms && p.length >= 64) p.columns /= 2;
    p.threads = static_cast<int>(std::clamp<int64_t>(p.columns * power_of_two_at_least(ceil_div(p.length, 2)), 32, 256));
    RegionPlan more = p;
    more.threads = 512;
    const HeldUnit unit = held_unit(p);
    if (!can_hold(p, unit) && p.threads == 256 && can_hold(more, unit)) p = std::move(more);
    if (can_hold(p, unit) && (p.passes.size() > 1 || ceil_div(p.length, threads_along(p)) <= 2 * kColumnUnits)) {
      p.threads = static_cast<int>(std::clamp<int64_t>(p.columns * power_of_two_at_least(ceil_div(p.length, kColumnUnits)), std::min(64, p.threads), p.threads));   // combining them costs more than further loads under way bring
      hold(p, unit);
    }
  }
  p.blocks = std::min(blocks_of(p), most_blocks);
  ask_residency(p, target);
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
}

// ---- cost

/// Bytes of device memory: each buffer once, what the loops touch of it.
int64_t bytes_of(const RegionContext& c, const RegionPlan& p) {
  std::vector<double> touched(p.accesses.size());
  for (const MemoryRef& r : memory_refs(p)) touched[static_cast<size_t>(r.access)] += footprint(p, *r.at);
  double bytes = 0;
  for (size_t i = 0; i < touched.size(); i++) {
    const RegionAccess& a = p.accesses[i];
    bytes += std::min(touched[i], static_cast<double>(c.buffers[static_cast<size_t>(a.buffer)].dims.elements())) * dtype_bytes(a.dtype);
  }
  return static_cast<int64_t>(bytes);
}

constexpr double kSmBytesPerUs = 75e3;   // what one multiprocessor takes
// Few long rows (one H200, 32 rows; cluster x threads): log_softmax 32000 8 x 128 5.57, 8 x 256 5.89, 4 x 256 6.31, 2 x 512 6.56, 1 x 512 10.2; softmax 50257 8 x 128 7.41, 8 x 256 6.87, 4 x 256 7.99, 8 x 512 8.92; softmax 128256
// 8 x 128 16.98, 8 x 256 11.97, 4 x 512 16.4. Columns (softmax over the middle of 64 x 128 x 256, eight columns): 64 threads 8.71, 128 6.25, 256 7.52, 512 13.5.
constexpr double kRowElements = 8192, kRowElementUs = 5e-5;   // elements of a multiprocessor beyond which they count, per pass
constexpr double kHeldColumnsUs = 0.4;    // their loads, walks of no more than a few lines each
constexpr double kColumnUs = 0.4;         // 128 threads combine a column's reductions
constexpr double kStepUs = 0.1;           // an iteration of a loop that reads again, four of which are under way
constexpr double kClusterUs = 0.5, kClusterPassUs = 0.5;   // a cluster's blocks find each other, and exchange a reduction's values

Cost cost_of(const Target& t, const RegionPlan& p, int64_t bytes, double flops) {
  Cost cost;
  cost.bytes = bytes;
  cost.flops = flops;
  const double in_flight = static_cast<double>(p.blocks) * p.threads * p.width * 8;
  double share = std::min({1.0, in_flight / (t.num_sms * 32768.0), static_cast<double>(p.blocks) / (0.6 * t.num_sms)});
  double memory, again = 0;
  if (p.held > 0) {   // everything is asked for at once: device memory as a whole, then what one multiprocessor takes of a block's part
    memory = static_cast<double>(cost.bytes) / (t.dram_bytes_per_us * 0.8) + static_cast<double>(cost.bytes) / static_cast<double>(p.blocks) / kSmBytesPerUs;
  } else {
    memory = static_cast<double>(cost.bytes) / (t.dram_bytes_per_us * std::max(share, 0.004));   // reading and writing in turn
    const double waves = std::max(1.0, static_cast<double>(p.blocks) * p.threads / (t.num_sms * 2048.0)), walks = static_cast<double>(ceil_div(p.length, threads_along(p))) * static_cast<double>(p.passes.size());
    if (p.shape != RegionPlan::Shape::kPointwise && p.width == 1) memory = static_cast<double>(cost.bytes) / t.dram_bytes_per_us, share = 1;   // elements one by one: the walk counts, not the bytes under way (softmax of 32 x 50257 by 512 threads a row 24.9)
    if (p.shape != RegionPlan::Shape::kPointwise) memory = std::max(memory, kStepUs * walks * waves);
    again = 0.5 * static_cast<double>(cost.bytes) * static_cast<double>(p.passes.size() - 1) / (t.l2_bytes_per_us * std::max(share, 0.004));   // part of it in L1
  }
  if (p.held > 0) share = std::min(1.0, static_cast<double>(p.blocks) * std::min(p.threads, 256) / (t.num_sms * 256.0));   // eight warps fill a multiprocessor
  const double math = cost.flops / (t.f32_flops_per_us * std::max(share, 0.004));
  if (p.held > 0) share = static_cast<double>(cost.bytes) / memory / t.dram_bytes_per_us;
  const double pass_us = p.cluster > 1 ? kClusterPassUs : p.held == 0 ? 0.4 : p.team > 512 ? 0.3 : p.team > 32 ? 0.15 : 0.1;   // a held row is reduced and combined, nothing else
  cost.us = t.launch_us + (p.held > 0 ? 1.0 : 0.8) + (p.held > 0 && p.width == 1 ? 0.2 : 0.0) + (p.cluster > 1 ? kClusterUs : 0.0) + pass_us * static_cast<double>(p.passes.size() - 1) + std::max(memory + again, math);
  if (p.shape == RegionPlan::Shape::kRow && p.held > 0) {   // few long rows
    const double few = static_cast<double>(std::min(p.rows * p.cluster, int64_t{t.num_sms})), elements = static_cast<double>(p.held * p.width);   // of a thread
    if (p.rows <= t.num_sms) cost.us += std::max(0.0, static_cast<double>(p.rows * p.length * p.width) / few - kRowElements) * static_cast<double>(p.passes.size()) * kRowElementUs;
    if (p.cluster > 1) cost.us += std::max(0.0, elements - 64) * 0.06 + (p.width == 1 ? std::max(0.0, elements - 32) * 0.03 : 0.0) + (p.threads > 256 ? 0.6 : p.threads > 128 ? 0.1 : 0.0);
  }
  if (p.shape == RegionPlan::Shape::kColumn) cost.us += (p.held > 0 ? kHeldColumnsUs : 0.0) + kColumnUs * p.threads / 128.0 * static_cast<double>(p.passes.size() - 1);
  if (memory + again >= math) cost.why = fmt::format("{:.2f} MB at {:.2f} TB/s + launch", static_cast<double>(cost.bytes) * 1e-6, t.dram_bytes_per_us * share * 1e-6);
  else cost.why = fmt::format("{:.2f} Mflop of elementwise arithmetic + launch", cost.flops * 1e-6);
  return cost;
}

Cost cost_of(const RegionContext& c, const RegionPlan& p, double flops_per_element) {
  return cost_of(c.target, p, bytes_of(c, p), flops_per_element * static_cast<double>(p.rows) * static_cast<double>(p.length) * p.width);
}

/// Threads as at another shape.
void take_threads(RegionPlan& p, const RegionNumbers& n, const Target& target) {
  p.threads = n.threads;
  p.team = n.team;
  p.columns = n.columns;
  p.held = n.held ? static_cast<int>(ceil_div(p.length, threads_along(p))) : 0;
  p.unpacked = n.unpacked;
  p.cluster = n.cluster;
  p.blocks = blocks_of(p);
  ask_residency(p, target);
}

constexpr int64_t kLongRow = 8192;   // elements beyond which the blocks of a cluster may share a row

/// A row's threads in the blocks of a cluster: for few long rows, which would leave most multiprocessors idle.
std::vector<RegionPlan> in_clusters(const RegionPlan& p, const Target& target) {
  std::vector<RegionPlan> out;
  if (p.shape != RegionPlan::Shape::kRow || !target.has_cluster || p.chunk >= 0 || p.rows > target.num_sms || p.length * p.width <= kLongRow) return out;
  const HeldUnit unit = held_unit(p);
  for (int cluster : {2, 4, 8})
    for (int threads : {128, 256, 512}) {
      const int64_t team = int64_t{cluster} * threads;
      if (p.length < team || p.rows * cluster > 2 * target.num_sms) continue;
      RegionPlan q = p;
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

std::vector<RegionPlan> with_threads(RegionPlan p, const Target& target) {
  choose_threads(p, target);
  std::vector<RegionPlan> out = in_clusters(p, target);
  out.insert(out.begin(), std::move(p));
  return out;
}

/// The width whose kernel is predicted to be the fastest; wider only if that saves memory instructions.
std::pair<RegionPlan, Cost> choose_width(const RegionContext& c, const RegionPlan& scalar, double flops_per_element, const RegionNumbers* given) {
  std::pair<RegionPlan, Cost> best;
  double best_score = 0;
  const auto& loops = scalar.shape == RegionPlan::Shape::kRow ? scalar.inner : scalar.outer;
  if (given && (given->width == 1 || (!loops.empty() && scalar.vars[static_cast<size_t>(loops.back())].extent >= given->width && loops.back() != scalar.chunk))) {
    double instructions = 0;
    int vectors = 0;
    RegionPlan p = with_width(scalar, given->width, &instructions, &vectors);
    choose_threads(p, c.target);
    take_threads(p, *given, c.target);
    Cost cost = cost_of(c, p, flops_per_element);
    return {std::move(p), std::move(cost)};
  }
  for (int width : {1, 2, 4, 8}) {
    if (width > 1 && (loops.empty() || scalar.vars[static_cast<size_t>(loops.back())].extent < width || loops.back() == scalar.chunk)) continue;
    double instructions = 0;
    int vectors = 0;
    const RegionPlan chosen = with_width(scalar, width, &instructions, &vectors);
    if (width > 1 && vectors == 0 && scalar.shape == RegionPlan::Shape::kRow) continue;   // neighbouring threads are better off with neighbouring elements
    for (RegionPlan& p : with_threads(chosen, c.target)) {
      Cost cost = cost_of(c, p, flops_per_element);
      const double elements = static_cast<double>(p.rows) * static_cast<double>(p.length) * p.width;
      const double issue = elements * instructions * static_cast<double>(p.held > 0 ? 1 : p.passes.size()) / (static_cast<double>(std::min(p.blocks, int64_t{c.target.num_sms})) * 8000.0);   // memory instructions of threads per microsecond and SM
      const double score = cost.us + issue;
      if (best.first.passes.empty() || score < best_score * 0.99) best = {std::move(p), std::move(cost)}, best_score = score;
    }
  }
  return best;
}

}  // namespace

std::vector<std::pair<RegionPlan, Cost>> region_alternatives(const RegionPlan& plan, const Target& target, int64_t bytes, double flops) {
  std::vector<std::pair<RegionPlan, Cost>> out;
  const auto add = [&](int threads, int team, int columns, bool held) {   // without a cluster
    const int64_t share = plan.shape == RegionPlan::Shape::kPointwise ? threads : plan.shape == RegionPlan::Shape::kRow ? threads / team : columns, blocks = ceil_div(plan.rows, share);
    if (blocks >= (int64_t{1} << 31) || (!plan.wide && blocks * threads >= (int64_t{1} << 30))) return;
    RegionPlan p = plan;
    p.threads = threads, p.team = team, p.columns = columns, p.cluster = 1;
    p.held = 0;
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
          if (team <= power_of_two_at_least(plan.length) && (team > 1 || plan.team == 1 || plan.length <= 64)) add(threads, team, plan.columns, held);
  for (RegionPlan& p : in_clusters(plan, target)) {
    Cost cost = cost_of(target, p, bytes, flops);
    out.emplace_back(std::move(p), std::move(cost));
  }
  return out;
}

std::vector<RegionInstr> held_loads(const RegionPlan& p) {
  std::vector<bool> along(p.vars.size());   // differs along the row
  for (int v : p.inner) along[static_cast<size_t>(v)] = true;
  if (p.lane >= 0 && p.shape == RegionPlan::Shape::kRow) along[static_cast<size_t>(p.lane)] = true;
  const auto differs = [&](const Affine& a) { return std::any_of(a.terms.begin(), a.terms.end(), [&](const auto& t) { return along[static_cast<size_t>(t.first)]; }); };
  for (size_t v = 0; v < p.vars.size(); v++) along[v] = along[v] || differs(p.vars[v].arg);
  std::vector<RegionInstr> out;
  for (const RegionPass& pass : p.passes)
    for (const RegionInstr& i : pass.body) {
      if (i.kind != Kind::kLoad || !(i.vector || p.width == 1) || !differs(i.index)) continue;
      if (std::none_of(out.begin(), out.end(), [&](const RegionInstr& o) { return o.access == i.access && o.index == i.index; })) out.push_back(i);
    }
  return out;
}

std::optional<RegionPlanned> plan_region(const RegionContext& c, const RegionGroup& group, int max_statements) {
  auto lowered = lower_region(c, group, max_statements);
  if (!lowered) return std::nullopt;
  RegionPlan& p = lowered->plan;
  bool has_reduce = false;
  for (const RegionPass& pass : p.passes) has_reduce = has_reduce || !pass.reduces.empty();
  std::vector<int> key{static_cast<int>(group.split.half)};
  for (const RegionRoot& r : group.roots) key.push_back(r.value * 2 + (r.stores.empty() ? 0 : 1));
  const RegionNumbers* given = nullptr;
  if (c.tape && c.tape->replays)
    if (const auto it = c.tape->regions.find(key); it != c.tape->regions.end() && std::is_permutation(p.outer.begin(), p.outer.end(), it->second.outer.begin(), it->second.outer.end()) &&
                                                   std::is_permutation(p.inner.begin(), p.inner.end(), it->second.inner.begin(), it->second.inner.end())) given = &it->second;
  if (given) p.shape = given->shape, p.outer = given->outer, p.inner = given->inner;
  else order_loops(p, has_reduce);
  RegionNumbers numbers{p.shape, p.outer, p.inner};
  while (merge_one(p, p.outer) || merge_one(p, p.inner)) {}
  tile_transposes(p);
  auto [best, cost] = choose_width(c, p, lowered->flops_per_element, given);
  if (c.tape && !c.tape->replays) {
    numbers.width = best.width, numbers.threads = best.threads, numbers.team = best.team, numbers.columns = best.columns, numbers.cluster = best.cluster, numbers.held = best.held > 0, numbers.unpacked = best.unpacked;
    c.tape->regions[key] = std::move(numbers);
  }
  return RegionPlanned{std::move(best), std::move(cost), std::move(lowered->nodes)};
}

}  // namespace mirage

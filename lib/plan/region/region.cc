// Region kernels, from statements to loops: their order, which of them merge, the vector width. Starts from region_lower.cc's
// one-element-at-a-time form; threads are region_threads.cc's.
#include "plan/region/region_threads.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "mirage/support/round.h"
#include "plan/region/region_kept.h"
#include "plan/region/region_places.h"
#include "plan/region/region_plans.h"
#include "plan/region/region_traffic.h"
#include "plan/region/region_windows.h"

namespace mirage {
namespace {

using Kind = RegionInstr::Kind;

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
    else if (var.kind == IndexVar::Kind::kLoaded) v[i] = eval(var.arg) % var.extent;   // as if indices were in order
    else v[i] = static_cast<int>(i) == loop ? x : 0;
  }
  return eval(a);
}
int64_t stride_of(const RegionPlan& p, const Affine& a, int loop) { return value_at(p, a, loop, 1) - value_at(p, a, loop, 0); }

double footprint(const RegionPlan& p, const Affine& a) {
  std::set<int> loops;
  loops_of(p, a, loops);
  double n = 1;
  for (int l : loops) n *= static_cast<double>(p.vars[static_cast<size_t>(l)].extent);
  return n;
}

}  // namespace

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
    if (var.kind == IndexVar::Kind::kLoaded) image[v] = table.loaded(var.access, substitute(var.arg, image), var.extent - 1);
    if (var.kind == IndexVar::Kind::kMod) image[v] = table.mod(substitute(var.arg, image), var.divisor, var.divisor + 1);
  }
  for_each_affine(p, [&](Affine& a) { a = substitute(a, image); });
  p.vars = table.vars;
}

namespace {

// ---- order and merging of loops

double contiguous_weight(const RegionPlan& p, const std::vector<MemoryRef>& refs, int loop) {
  double w = 0;
  for (const MemoryRef& r : refs)
    if (!r.after && stride_of(p, *r.at, loop) == 1)
      w += footprint(p, *r.at) * dtype_bytes(p.accesses[static_cast<size_t>(r.access)].dtype) * (r.is_store ? 2 : 1);
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

/// Whether a reduction may be walked along rows or down columns: both have something contiguous, and nothing says which is faster.
bool order_loops(RegionPlan& p, bool has_reduce) {
  const auto refs = memory_refs(p);
  std::vector<int> outer = p.outer;
  if (!has_reduce && !p.passes[0].stores.empty()) {   // in the order in which the result lies in memory
    const Affine& at = p.passes[0].stores[0].offset;
    std::stable_sort(outer.begin(), outer.end(), [&](int a, int b) { return stride_of(p, at, a) > stride_of(p, at, b); });
  }
  const double out = put_contiguous_last(p, refs, outer), in = put_contiguous_last(p, refs, p.inner);
  p.shape = !has_reduce ? RegionPlan::Shape::kPointwise : out > in ? RegionPlan::Shape::kColumn : RegionPlan::Shape::kRow;
  if (p.shape != RegionPlan::Shape::kRow) p.outer = outer;
  return has_reduce && in > 0 && out > 0;
}
constexpr double kTurned = 0.9;   // of the time of the one with more that is contiguous
/// The other of the two.
void turn_loops(RegionPlan& p) {
  const bool rows = p.shape == RegionPlan::Shape::kRow;
  p.shape = rows ? RegionPlan::Shape::kColumn : RegionPlan::Shape::kRow;
  if (rows) put_contiguous_last(p, memory_refs(p), p.outer);
  else std::sort(p.outer.begin(), p.outer.end());
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

/// Where a pointwise kernel reads along one dimension and writes along another, walks in squares of kTile x kTile, so that a block uses
/// whole sectors of both; whether it does.
bool tile_transposes(RegionPlan& p) {
  constexpr int64_t kTile = 16;
  if (p.shape != RegionPlan::Shape::kPointwise || p.outer.size() < 2) return false;
  const auto refs = memory_refs(p);
  const int b = p.outer.back();
  int a = -1;
  double best = 0;
  for (int loop : p.outer)
    if (const double w = loop == b ? 0 : contiguous_weight(p, refs, loop); w > best) best = w, a = loop;
  if (a < 0 || best < 0.2 * contiguous_weight(p, refs, b)) return false;
  if (p.vars[static_cast<size_t>(a)].extent % kTile || p.vars[static_cast<size_t>(b)].extent % kTile) return false;
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
  return true;
}

// ---- concatenations of many reads

/// Branches on that loop alone, both sides of which read.
int reads_apart(const std::vector<RegionInstr>& code, int loop) {
  int n = 0;
  for (const RegionInstr& i : code) {
    if (i.kind != Kind::kBranch) continue;
    const bool alone = i.index.terms.size() == 1 && i.index.terms[0].first == loop;
    n += (alone && reads(i.then_body) && reads(i.else_body) ? 1 : 0) + reads_apart(i.then_body, loop) + reads_apart(i.else_body, loop);
  }
  return n;
}

constexpr int64_t kMostUnrolled = 64;
constexpr int64_t kUnrolledThreads = 512;   // of a multiprocessor that must be left, four elements each

/// A loop whose values are read from places of their own (a convolution's taps beside each other): each thread works on all of them, so
/// that which place it is is known when the kernel is compiled, and what neighbours share is read once. By branches in each thread, a 3 x 3
/// window of 12.8 MB of float32 took 69 us where its bytes take 18 (H200). -1: there is none.
int loop_of_places(const RegionPlan& p, const Target& target, const RegionNumbers* given) {
  if (p.shape != RegionPlan::Shape::kPointwise || p.outer.size() < 2 || !p.inner.empty() || (given && !given->unrolled)) return -1;
  double elements = 1;
  for (int loop : p.outer) elements *= static_cast<double>(p.vars[static_cast<size_t>(loop)].extent);
  for (size_t i = 0; i + 1 < p.outer.size(); i++) {
    const int64_t extent = p.vars[static_cast<size_t>(p.outer[i])].extent;
    if (extent > kMostUnrolled || reads_apart(p.passes[0].body, p.outer[i]) < std::max<int64_t>(2, extent / 2)) continue;
    if (given || elements / static_cast<double>(extent * 4) >= static_cast<double>(target.num_sms * kUnrolledThreads)) return p.outer[i];
  }
  return -1;
}
void unroll(RegionPlan& p, int loop) {
  std::erase(p.outer, loop);
  p.inner = {loop};
  p.unrolled = loop;
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
    else cost += share * (p.width > 1 ? 1.3 : 1.0) * (p.windows.empty() ? 1.0 : std::max(1.0, bytes / 8.0));   // sectors, a few bytes each
  }
  void windows() {
    find_windows(p, table);
    for (const RegionWindow& w : p.windows) {
      const int bytes = dtype_bytes(p.accesses[static_cast<size_t>(w.access)].dtype) * p.width;
      cost += 1.0 * w.vectors * std::max(1, bytes / 16) / p.width, vectors += w.vectors;
    }
  }
  void uniform(RegionInstr& i) const {
    i.uniform = !table.on_lane(i.index);
    if (i.uniform || p.uneven || i.index.coefficient(p.lane) != 1 || !lane_free(i.index) || (i.bound - i.index.constant) % p.width) return;
    for (const auto& t : i.index.terms)
      if (t.first != p.lane && t.second % p.width) return;
    std::erase_if(i.index.terms, [&](const auto& t) { return t.first == p.lane; });   // V*q + lane < V*b exactly if V*q < V*b
    i.uniform = true;
  }
  void code(std::vector<RegionInstr>& body, bool vectors, double share) {
    for (RegionInstr& i : body) {
      if (i.kind == Kind::kLoad && i.window < 0) {
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
  /// Of a thread that walks all places: each is read once. What a value's own number leads to is read for each.
  double unrolled_cost() const {
    std::set<std::pair<int, Affine>> vectors, elements;
    const auto places = static_cast<double>(p.vars[static_cast<size_t>(p.unrolled)].extent);
    double loads = 0, writes = 0;
    const auto bytes = [&](int access) { return dtype_bytes(p.accesses[static_cast<size_t>(access)].dtype) * p.width; };
    const std::function<void(const std::vector<RegionInstr>&)> visit = [&](const std::vector<RegionInstr>& body) {
      for (const RegionInstr& i : body) {
        visit(i.then_body);
        visit(i.else_body);
        if (i.kind != Kind::kLoad || i.window >= 0) continue;
        std::set<int> loops;
        loops_of(p, i.index, loops);
        const double times = loops.count(p.unrolled) > 0 ? places : 1;
        const int64_t step = p.lane < 0 ? 0 : i.index.coefficient(p.lane);
        if (i.vector && vectors.insert({i.access, i.index}).second) loads += times * std::max(1, bytes(i.access) / 16);
        for (int64_t l = 0; l < (i.vector ? 0 : step == 0 ? 1 : p.width); l++) {
          Affine at = i.index;
          std::erase_if(at.terms, [&](const auto& t) { return t.first == p.lane; });
          at.constant += l * step;
          // a warp's elements lie in so many lines, two of which are read at once
          if (elements.insert({i.access, at}).second)
            loads += times * std::max(1.0, static_cast<double>(bytes(i.access) * std::max<int64_t>(1, step)) / 8);
        }
      }
    };
    visit(p.passes[0].body);
    for (const RegionWindow& w : p.windows)   // what several places share once
      for (int64_t x = 0; x < p.vars[static_cast<size_t>(p.unrolled)].extent * w.vectors; x++) {
        Affine at = w.first;
        const int64_t step = at.coefficient(p.unrolled);
        std::erase_if(at.terms, [&](const auto& t) { return t.first == p.unrolled; });
        at.constant += x / w.vectors * step + x % w.vectors * p.width;
        if (vectors.insert({w.access, at}).second) loads += std::max(1, bytes(w.access) / 16);
      }
    for (const RegionStore& s : p.passes[0].stores)
      writes += s.vector ? static_cast<double>(std::max(1, bytes(s.access) / 16)) / p.width : 1.3;
    return loads / (p.width * places) + writes;
  }
  void run() {
    const bool lanes_in_row = p.shape == RegionPlan::Shape::kColumn;
    windows();
    for (RegionPass& pass : p.passes) {
      code(pass.body, true, 1);
      stores(pass.stores, 1);
      code(pass.after, lanes_in_row, 0.01);
      stores(pass.after_stores, 0.01);
    }
    if (p.unrolled >= 0) cost = unrolled_cost();
  }
};

constexpr int64_t kUnevenWide = 1024;   // float32 one by one fills whole lines, too: 197 of 18912 rows 10.0 us, by vectors with edges 11.1

/// Where rows begin that lie anywhere: what stands before the last loop in the form that most of a row's traffic has, if `width` does not
/// divide it. short_too: where that was decided at another shape.
std::optional<Affine> uneven_rows(const RegionPlan& p, int last, int width, bool short_too) {
  const auto narrowest = std::min_element(p.accesses.begin(), p.accesses.end(), [](const RegionAccess& a, const RegionAccess& b) {
    return dtype_bytes(a.dtype) < dtype_bytes(b.dtype);
  });
  if (p.shape != RegionPlan::Shape::kRow || p.inner.size() != 1 || p.chunk >= 0 || width <= 1 ||
      width * dtype_bytes(narrowest->dtype) > 16 ||
      p.vars[static_cast<size_t>(last)].extent < (short_too                           ? 2 * width
                                                  : dtype_bytes(narrowest->dtype) < 4 ? 4 * width
                                                                                      : kUnevenWide))
    return std::nullopt;
  for (const IndexVar& v : p.vars)
    // a remainder's argument must not be negative
    if (std::set<int> loops; loops_of(p, v.arg, loops), loops.count(last)) return std::nullopt;
  std::map<Affine, double> traffic;
  for (const MemoryRef& r : memory_refs(p)) {
    if (r.after || r.at->coefficient(last) != 1 || std::any_of(r.at->terms.begin(), r.at->terms.end(), [&](const auto& t) {
          return p.vars[static_cast<size_t>(t.first)].kind != IndexVar::Kind::kLoop;
        }))
      continue;
    Affine row = *r.at + affine_var(last) * -1;
    row.constant = ((row.constant % width) + width) % width;
    for (auto& t : row.terms) t.second = ((t.second % width) + width) % width;
    std::erase_if(row.terms, [](const auto& t) { return t.second == 0; });
    traffic[std::move(row)] += footprint(p, *r.at) * dtype_bytes(p.accesses[static_cast<size_t>(r.access)].dtype);
  }
  const auto most = std::max_element(traffic.begin(), traffic.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == traffic.end() || most->first == Affine{}) return std::nullopt;
  return most->first;
}

/// The plan with `width` elements per thread along the last loop; memory instructions per element, and how many of them move vectors.
/// `uneven`: rows' beginnings modulo the width; what stands before a row's first whole vector and behind its last is left to edges.
RegionPlan with_width(const RegionPlan& scalar, int width, const std::optional<Affine>& uneven, double* cost, int* vectors) {
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
    to[v] = table.add_loop(cut ? (uneven ? p.vars[v].extent / width : ceil_div(p.vars[v].extent, width)) : p.vars[v].extent);
    image[v] = affine_var(to[v]) * (cut ? width : 1);
  }
  if (width > 1) {
    p.lane = table.add_loop(width, IndexVar::Kind::kLane);
    image[static_cast<size_t>(last)] = image[static_cast<size_t>(last)] + affine_var(p.lane);
  }
  if (uneven) {
    const Affine begin = substitute(*uneven, image), above = begin + affine(width - 1);
    p.uneven = true;
    p.head = table.div(above, width, table.max_of(above) + 1) * width + begin * -1;
    image[static_cast<size_t>(last)] = image[static_cast<size_t>(last)] + p.head;
  }
  for (auto* list : {&p.outer, &p.inner})
    for (int& v : *list) v = to[static_cast<size_t>(v)];
  if (p.chunk >= 0) p.chunk = to[static_cast<size_t>(p.chunk)];
  if (p.unrolled >= 0) p.unrolled = to[static_cast<size_t>(p.unrolled)];
  rebuild(p, std::move(table), std::move(image));
  Vectorizer vectorizer{p, {}};
  vectorizer.table.vars = p.vars;
  vectorizer.run();
  *cost = vectorizer.cost;
  *vectors = vectorizer.vectors;
  return p;
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

constexpr int64_t kApartBytes = 16;   // between what neighbours read: half a sector

/// What the threads of a row, of columns or of an elementwise kernel read. In squares (tile_transposes) nothing is far.
RegionLoadKind load_kind(const RegionPlan& p, const RegionInstr& i) {
  std::set<int> loops;
  loops_of(p, i.index, loops);
  const bool along_row = std::any_of(p.inner.begin(), p.inner.end(), [&](int l) { return loops.count(l) > 0; });
  if (p.shape != RegionPlan::Shape::kPointwise && !along_row) return RegionLoadKind::kOfRow;
  const std::vector<int>& along = p.shape == RegionPlan::Shape::kRow ? p.inner : p.outer;
  const int fastest = p.lane >= 0 ? p.lane : along.empty() ? -1 : along.back();
  if (i.kind != Kind::kLoad || fastest < 0) return RegionLoadKind::kNeighbours;
  const int64_t apart = std::abs(stride_of(p, i.index, fastest)) * dtype_bytes(p.accesses[static_cast<size_t>(i.access)].dtype);
  return apart < kApartBytes ? RegionLoadKind::kNeighbours : RegionLoadKind::kScattered;
}

// what the measured kernels of columns did per element (norms, softmax), which the prices of threads know of; operations of one thread, and
// scattered reads of one multiprocessor, in a microsecond (evoformer's bias [i, j, head] by rows: 2M elements 20.3 us, one pass or three)
constexpr double kUsualOperations = 40, kThreadOperationsPerUs = 585, kScatteredPerUs = 760;

// float32 operations whose time an element read from a window takes: it is unpacked, chosen by where the tensor ends, multiplied (H200: 3 x
// 3 of 3.6 million elements 6.2 us, 5 x 5 of 1.05 million 9.0, 7 x 7 of 0.6 million 8.6, 3 x 3 with a batch norm and its mean 13.2)
constexpr double kWindowRead = 9.5;

double window_reads(const std::vector<RegionInstr>& code) {
  double n = 0;
  for (const RegionInstr& i : code) n += (i.window >= 0) + window_reads(i.then_body) + window_reads(i.else_body);
  return n;
}

Cost cost_of(const RegionContext& c, const RegionPlan& p, double flops_per_element) {
  RegionWork work = p.work;
  for (int k = 0; k < p.kept; k++) {
    const RegionWork& saved = p.again[static_cast<size_t>(k)].saved;
    work = work - saved, flops_per_element = std::max(1.0, flops_per_element - saved.operations);
  }
  const double elements = static_cast<double>(p.rows) * static_cast<double>(p.length) * p.width;
  Cost cost = cost_of(c.target, p, bytes_of(c, p), flops_per_element * elements);
  // functions of one element wait for one another, and those of a thread's elements stand behind one another
  if (p.held > 0 && p.shape == RegionPlan::Shape::kColumn)
    cost.us += std::max(0.0, work.operations - kUsualOperations) * p.held * p.width / kThreadOperationsPerUs;
  double reads = 0;
  for (const RegionPass& pass : p.passes) reads += window_reads(pass.body);
  const double rate = c.target.f32_flops_per_us * static_cast<double>(std::min<int64_t>(p.blocks, c.target.num_sms)) / c.target.num_sms,
               windows = c.target.launch_us + 0.8 + (kWindowRead * reads + flops_per_element) * elements / rate;
  if (reads > 0 && windows > cost.us)
    cost.us = windows, cost.why = fmt::format("{:.1f} million elements of windows + launch", 1e-6 * reads * elements);
  cost.us += work.scattered * elements / (kScatteredPerUs * static_cast<double>(std::min<int64_t>(p.blocks, c.target.num_sms)));
  return cost;
}

/// score: what decides between widths: the cost and the memory instructions.
struct Chosen { RegionPlan plan; Cost cost; double score = 0; };
/// The width whose kernel is predicted to be the fastest; wider only if that saves memory instructions.
Chosen choose_width(const RegionContext& c, const RegionPlan& scalar, double flops_per_element, const RegionNumbers* given) {
  Chosen best;
  const auto& loops = scalar.shape == RegionPlan::Shape::kRow ? scalar.inner : scalar.outer;
  if (given && (given->width == 1 || (!loops.empty() && scalar.vars[static_cast<size_t>(loops.back())].extent >= given->width &&
                                      loops.back() != scalar.chunk))) {
    double instructions = 0;
    int vectors = 0;
    const std::optional<Affine> uneven = given->uneven ? uneven_rows(scalar, loops.back(), given->width, true) : std::nullopt;
    RegionPlan p = with_width(scalar, given->width, uneven, &instructions, &vectors);
    choose_threads(p, c.target);
    take_threads(p, *given, c.target);
    Cost cost = cost_of(c, p, flops_per_element);
    return {std::move(p), std::move(cost)};
  }
  for (int width : {1, 2, 4, 8}) {
    if (width > 1 && (loops.empty() || scalar.vars[static_cast<size_t>(loops.back())].extent < width || loops.back() == scalar.chunk))
      continue;
    std::vector<std::optional<Affine>> begins{std::nullopt};
    if (auto uneven = width > 1 ? uneven_rows(scalar, loops.back(), width, false) : std::nullopt) begins.push_back(std::move(uneven));
    for (const std::optional<Affine>& uneven : begins) {
      double instructions = 0;
      int vectors = 0;
      const RegionPlan chosen = with_width(scalar, width, uneven, &instructions, &vectors);
      // neighbouring threads are better off with neighbouring elements
      if (width > 1 && vectors == 0 && scalar.shape != RegionPlan::Shape::kColumn) continue;
      for (RegionPlan& p : with_threads(chosen, c.target)) {
        Cost cost = cost_of(c, p, flops_per_element);
        const double elements = static_cast<double>(p.rows) * static_cast<double>(p.length) * p.width;
        // memory instructions of threads per microsecond and SM
        const double issue = elements * instructions * static_cast<double>(p.held > 0 ? 1 : p.passes.size()) /
                             (static_cast<double>(std::min(p.blocks, int64_t{c.target.num_sms})) * 8000.0);
        const double score = cost.us + issue;
        if (best.plan.passes.empty() || score < best.score * 0.99) best = {std::move(p), std::move(cost), score};
      }
    }
  }
  return best;
}

/// An elementwise kernel's loops as rows: where rows of odd length meet values of a row (a channel's gain before 55 x 55 places), vectors
/// with edges need them.
RegionPlan by_rows(const RegionPlan& p) {
  RegionPlan rows = p;
  rows.shape = RegionPlan::Shape::kRow;
  rows.inner = {rows.outer.back()};
  rows.outer.pop_back();
  return rows;
}

}  // namespace

bool reads_scattered(const RegionPlan& p, int buffer) {
  const std::function<bool(const std::vector<RegionInstr>&)> any = [&](const std::vector<RegionInstr>& code) {
    return std::any_of(code.begin(), code.end(), [&](const RegionInstr& i) {
      if (i.kind == Kind::kLoad && p.accesses[static_cast<size_t>(i.access)].buffer == buffer && !i.vector &&
          load_kind(p, i) == RegionLoadKind::kScattered)
        return true;
      return any(i.then_body) || any(i.else_body);
    });
  };
  return std::any_of(p.passes.begin(), p.passes.end(), [&](const RegionPass& pass) { return any(pass.body); });
}

/// Where windows are read: rows and columns apart, several rows to a thread, if vectors stay wide and threads many. `best`: what was chosen
/// for p as it is.
static void choose_places(const RegionContext& c, const RegionPlan& p, double flops_per_element, Chosen& best, RegionNumbers& numbers) {
  constexpr int kLeastBytes = 8;   // of a vector
  const auto wide = [](const RegionPlan& q) {
    return q.lane_extent % q.width == 0 && std::all_of(q.windows.begin(), q.windows.end(), [&](const RegionWindow& w) {
      return q.width * dtype_bytes(q.accesses[static_cast<size_t>(w.access)].dtype) >= kLeastBytes;
    });
  };
  RegionPlan apart = p;
  const bool splits = split_rows(apart);
  if (splits) {
    Chosen other = choose_width(c, apart, flops_per_element, nullptr);
    if (other.plan.windows.empty() || !wide(other.plan)) return;   // rows of 14 do better as one line of places
    best = std::move(other), numbers.split_rows = true;
  }
  if (!wide(best.plan)) return;
  for (int64_t rows : {4, 2}) {
    RegionPlan own = apart;
    if (!shares_rows(best.plan, rows) || !take_rows(own, rows)) continue;
    Chosen other = choose_width(c, own, flops_per_element, nullptr);
    if (other.plan.windows.empty() || !wide(other.plan) || other.plan.rows < int64_t{c.target.num_sms} * kUnrolledThreads) continue;
    best = std::move(other), numbers.own_rows = static_cast<int>(rows);
    return;
  }
}

/// Where blocks read more than device memory has to bring (what is the same along a loop, what neighbours along it share): several places
/// of that loop to a thread, which has all that they share once.
static void walk(const RegionContext& c, const RegionPlan& p, double flops_per_element, Chosen& best, RegionNumbers& numbers) {
  constexpr double kGain = 0.97;   // of the time: what it does to registers is not counted
  const auto either = [](const RegionInstr& i) { return i.kind == Kind::kBranch && (reads(i.then_body) || reads(i.else_body)); };
  const std::vector<RegionInstr>& body = p.passes[0].body;   // what is read on one side of a branch is asked for by each place anew
  if (std::any_of(body.begin(), body.end(), either) || traffic_of(best.plan, best.cost.bytes).l2_bytes == 0) return;
  const double alone = best.cost.us;
  for (size_t at = 0; at + 1 < p.outer.size(); at++)
    for (int64_t places : {4, 2}) {
      RegionPlan own = p;
      if (!take_places(own, at, places)) continue;
      Chosen other = choose_width(c, own, flops_per_element, nullptr);
      if (other.plan.width < best.plan.width || other.plan.rows < int64_t{c.target.num_sms} * kUnrolledThreads ||
          other.cost.us > std::min(kGain * alone, best.cost.us))
        continue;
      best = std::move(other), numbers.own_rows = static_cast<int>(places), numbers.own_loop = static_cast<int>(at);
    }
}

/// The same at another shape, where there may be fewer places.
static void walk_as(RegionPlan& p, const RegionNumbers& given) {
  for (int64_t places = given.own_rows; places > 1; places--)
    if (take_places(p, static_cast<size_t>(given.own_loop), places)) return;
}

/// Threads, vectors and places of loops that are in order. given: as at another shape.
static Chosen choose(const RegionContext& c, RegionPlan p, double flops_per_element, const RegionNumbers* given, RegionNumbers& numbers) {
  while (merge_one(p, p.outer) || merge_one(p, p.inner)) {}
  const bool in_squares = tile_transposes(p);
  if (const int loop = in_squares ? -1 : loop_of_places(p, c.target, given); loop >= 0) unroll(p, loop);
  const bool elementwise = p.shape == RegionPlan::Shape::kPointwise && p.outer.size() > 1 && p.unrolled < 0;
  if (given && given->by_rows && elementwise) p = by_rows(p);
  if (given && given->own_loop >= 0) walk_as(p, *given);
  else if (given && ((given->split_rows && !split_rows(p)) || (given->own_rows > 0 && !take_rows(p, given->own_rows)))) return {};
  if (p.chunk < 0 && !in_squares) find_kept(p, [&](const RegionInstr& i) { return load_kind(p, i); });
  Chosen best = choose_width(c, p, flops_per_element, given);
  if (!given && elementwise && best.plan.width == 1)
    if (Chosen rows = choose_width(c, by_rows(p), flops_per_element, nullptr); rows.plan.uneven && rows.score < best.score * 0.9)
      best = std::move(rows), numbers.by_rows = true;
  if (!given && !best.plan.windows.empty()) choose_places(c, p, flops_per_element, best, numbers);
  else if (!given && elementwise && !in_squares && !numbers.by_rows) walk(c, p, flops_per_element, best, numbers);
  return best;
}

static std::optional<RegionPlanned> plan_anew(const RegionContext& c, const RegionGroup& group, int max_statements) {
  auto lowered = lower_region(c, group, max_statements);
  if (!lowered) return std::nullopt;
  RegionPlan& p = lowered->plan;
  bool has_reduce = false, both = false;
  for (const RegionPass& pass : p.passes) has_reduce = has_reduce || !pass.reduces.empty();
  std::vector<int> key{static_cast<int>(group.split.half)};
  for (const RegionRoot& r : group.roots) key.push_back(r.value * 2 + (r.stores.empty() ? 0 : 1));
  const RegionNumbers* given = nullptr;
  if (c.tape && c.tape->replays)
    if (const auto it = c.tape->regions.find(key);
        it != c.tape->regions.end() &&
        std::is_permutation(p.outer.begin(), p.outer.end(), it->second.outer.begin(), it->second.outer.end()) &&
        std::is_permutation(p.inner.begin(), p.inner.end(), it->second.inner.begin(), it->second.inner.end()))
      given = &it->second;
  if (given) p.shape = given->shape, p.outer = given->outer, p.inner = given->inner;
  else both = order_loops(p, has_reduce);
  RegionNumbers numbers{p.shape, p.outer, p.inner};
  Chosen best = choose(c, p, lowered->flops_per_element, given, numbers);
  if (best.plan.passes.empty()) return std::nullopt;
  if (both) {
    turn_loops(p);
    RegionNumbers turned{p.shape, p.outer, p.inner};
    if (Chosen other = choose(c, p, lowered->flops_per_element, nullptr, turned); other.score < kTurned * best.score)
      best = std::move(other), numbers = std::move(turned);
  }
  if (c.tape && !c.tape->replays) {
    const RegionPlan& q = best.plan;
    numbers.width = q.width, numbers.threads = q.threads, numbers.team = q.team, numbers.columns = q.columns, numbers.cluster = q.cluster,
    numbers.held = q.held > 0, numbers.unpacked = q.unpacked, numbers.uneven = q.uneven, numbers.staged = q.staged, numbers.kept = q.kept,
    numbers.unrolled = q.unrolled >= 0 && numbers.own_rows == 0;
    c.tape->regions[key] = std::move(numbers);
  }
  return RegionPlanned{std::move(best.plan), std::move(best.cost), std::move(lowered->nodes)};
}

std::optional<RegionPlanned> plan_region(const RegionContext& c, const RegionGroup& group, int max_statements) {
  const auto key = c.known && !c.tape ? region_key(c, group, max_statements) : std::nullopt;
  if (!key) return plan_anew(c, group, max_statements);
  if (auto found = c.known->find(*key)) return std::move(found->planned);
  auto planned = plan_anew(c, group, max_statements);
  c.known->keep(*key, planned);
  return planned;
}

}  // namespace mirage

// Runs a Plan of region kernels in doubles, one element after another, as its loops and statements say: a check of all planning decisions
// that needs no compiler. Every access is checked: inside its buffer, vectors aligned and consecutive, workspace read only where something
// still alive was written.
#pragma once
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "mirage/ir/eval.h"
#include "mirage/plan/region.h"

namespace mirage::test {

class Interpreter {
 public:
  explicit Interpreter(const Plan& plan)
      : plan_(plan), workspace_(static_cast<size_t>(plan.workspace_bytes), kNothing), memory_(plan.buffers.size()) {
    for (size_t i = 0; i < plan.buffers.size(); i++) {
      const Buffer& b = plan.buffers[i];
      if (b.kind != Buffer::Kind::kWorkspace) memory_[i].assign(static_cast<size_t>(b.bytes() / dtype_bytes(b.dtype)), kNothing);
    }
  }

  /// Results in output order; throws std::string on a bad access.
  std::vector<Tensor<double>> run(const std::vector<Tensor<double>>& params) {
    for (size_t i = 0; i < plan_.buffers.size(); i++) {
      const Buffer& b = plan_.buffers[i];
      if (b.kind != Buffer::Kind::kInput) continue;
      const auto& x = params[static_cast<size_t>(b.index)].data;
      for (size_t e = 0; e < x.size(); e++) cell(static_cast<int>(i), place(b, static_cast<int64_t>(e))) = x[e];
    }
    for (const KernelPlan& k : plan_.kernels) {
      const RegionPlan& p = *std::get<std::shared_ptr<const RegionPlan>>(k.body);
      kernel(p);
      for (const auto& other : p.beside) kernel(*other);
    }
    std::vector<Tensor<double>> out;
    for (size_t i = 0; i < plan_.buffers.size(); i++) {
      const Buffer& b = plan_.buffers[i];
      if (b.kind != Buffer::Kind::kOutput) continue;
      Tensor<double> t(b.dims, 0.0);
      for (size_t e = 0; e < t.data.size(); e++) t.data[e] = read(static_cast<int>(i), place(b, static_cast<int64_t>(e)));
      out.push_back(std::move(t));
    }
    return out;
  }

 private:
  static constexpr double kNothing = -7.25e200;   // never a value of a program

  static int64_t place(const Buffer& b, int64_t linear) {
    int64_t at = 0;
    for (int d = b.dims.rank() - 1; d >= 0; d--) at += linear % b.dims[d] * b.strides[d], linear /= b.dims[d];
    return at;
  }
  double& cell(int buffer, int64_t at) {
    const Buffer& b = plan_.buffers[static_cast<size_t>(buffer)];
    if (at < 0 || (at + 1) * dtype_bytes(b.dtype) > b.bytes())
      throw "element " + std::to_string(at) + " of buffer " + std::to_string(buffer);
    if (b.kind != Buffer::Kind::kWorkspace) return memory_[static_cast<size_t>(buffer)][static_cast<size_t>(at)];
    return workspace_[static_cast<size_t>(b.offset_bytes + at * dtype_bytes(b.dtype))];
  }
  double read(int buffer, int64_t at) {
    const double x = cell(buffer, at);
    if (x == kNothing) throw "nothing at element " + std::to_string(at) + " of buffer " + std::to_string(buffer);
    return x;
  }
  void write(int buffer, int64_t at, double x) {
    const Buffer& b = plan_.buffers[static_cast<size_t>(buffer)];
    if (b.kind == Buffer::Kind::kWorkspace)
      for (int i = 0; i < dtype_bytes(b.dtype); i++)
        workspace_[static_cast<size_t>(b.offset_bytes + at * dtype_bytes(b.dtype) + i)] = kNothing;
    cell(buffer, at) = round_to(x, b.dtype);
  }

  int64_t eval(const Affine& a) {
    int64_t s = a.constant;
    for (const auto& [v, c] : a.terms) s += c * var(v);
    return s;
  }
  int64_t var(int v) {
    const IndexVar& i = p_->vars[static_cast<size_t>(v)];
    if (i.kind == IndexVar::Kind::kDiv) return eval(i.arg) / i.divisor;
    if (i.kind == IndexVar::Kind::kMod) return eval(i.arg) % i.divisor;
    return loops_[static_cast<size_t>(v)];
  }
  void set(const std::vector<int>& loops, int64_t linear) {
    for (size_t i = loops.size(); i-- > 0;) {
      const int64_t extent = p_->vars[static_cast<size_t>(loops[i])].extent;
      loops_[static_cast<size_t>(loops[i])] = linear % extent;
      linear /= extent;
    }
    if (linear) throw std::string("loops do not cover their count");
  }
  void set_lane(int lane) { if (p_->lane >= 0) loops_[static_cast<size_t>(p_->lane)] = lane; }
  double& value(int v) { return values_[static_cast<size_t>(v)][static_cast<size_t>(lane_)]; }

  /// The element offset, and that it is what the emitted vector access would touch.
  int64_t offset(const Affine& a, int access, bool vector) {
    const int64_t at = eval(a);
    if (vector && !at_edge_) {
      const int now = lane_of_vector_;
      set_lane(0);
      const int64_t first = eval(a);
      set_lane(now);
      const int bytes = dtype_bytes(p_->accesses[static_cast<size_t>(access)].dtype);
      if (at != first + now || first * bytes % std::min(16, p_->width * bytes))
        throw std::string("a vector is not consecutive or not aligned");
    }
    return at;
  }

  /// That the emitted code finds the element where its window has it.
  void check_window(const RegionInstr& i) {
    const RegionWindow& w = p_->windows[static_cast<size_t>(i.window)];
    const int64_t first = eval(w.first), in = i.place + (p_->lane >= 0 ? i.index.coefficient(p_->lane) : 1) * lane_of_vector_;
    const Buffer& b = plan_.buffers[static_cast<size_t>(p_->accesses[static_cast<size_t>(i.access)].buffer)];
    if (w.access != i.access || first % p_->width || eval(i.index) != first + in || in < 0 || in >= int64_t{w.vectors} * p_->width ||
        p_->accesses[static_cast<size_t>(i.access)].span * dtype_bytes(b.dtype) != b.bytes())
      throw std::string("a window does not have an element");
  }

  void code(const std::vector<RegionInstr>& list) {
    for (const RegionInstr& i : list) {
      switch (i.kind) {
        case RegionInstr::Kind::kConst: value(i.result) = i.constant; break;
        case RegionInstr::Kind::kIndex: value(i.result) = static_cast<double>(eval(i.index)); break;
        case RegionInstr::Kind::kLoad:
          if (i.window >= 0) check_window(i);
          value(i.result) = read(p_->accesses[static_cast<size_t>(i.access)].buffer, offset(i.index, i.access, i.vector));
          break;
        case RegionInstr::Kind::kMap: {
          double x[3] = {0, 0, 0};
          for (size_t k = 0; k < i.args.size(); k++) x[k] = value(i.args[k]);
          DoubleAlgebra a;
          value(i.result) = apply_map(i.fn, a, x[0], x[1], x[2]);
          break;
        }
        case RegionInstr::Kind::kBranch: {
          const bool first = eval(i.index) < i.bound;
          code(first ? i.then_body : i.else_body);
          value(i.result) = value(i.args[first ? 0 : 1]);
          break;
        }
      }
    }
  }
  void store(const std::vector<RegionStore>& list) {
    for (const RegionStore& s : list)
      write(p_->accesses[static_cast<size_t>(s.access)].buffer, offset(s.offset, s.access, s.vector), value(s.value));
  }

  void kernel(const RegionPlan& p) {
    p_ = &p;
    loops_.assign(p.vars.size(), 0);
    values_.assign(static_cast<size_t>(p.num_values), std::vector<double>(static_cast<size_t>(p.width)));
    const bool row_shape = p.shape == RegionPlan::Shape::kRow;
    for (int64_t row = 0; row < p.rows; row++) {
      set(p.outer, row);
      for (const RegionPass& pass : p.passes) {
        std::vector<std::vector<double>> sums(pass.reduces.size(), std::vector<double>(static_cast<size_t>(p.width)));
        for (size_t r = 0; r < sums.size(); r++)
          std::fill(sums[r].begin(), sums[r].end(), pass.reduces[r].fn == ReduceFn::kSum ? 0.0 : -std::numeric_limits<double>::infinity());
        const auto element = [&] {
          code(pass.body);
          store(pass.stores);
          for (size_t r = sums.size(); r-- > 0;)   // what follows another reduction stands behind it, and compares with what that was
            combine(pass, r, sums, static_cast<size_t>(row_shape ? 0 : lane_));
        };
        const int64_t head = p.uneven ? eval(p.head) : 0, whole = (p.lane_extent - head) / p.width;
        if (head < 0 || head >= std::max(p.width, 1))
          throw std::string("a row begins " + std::to_string(head) + " elements before its first vector");
        for (int64_t u = 0; u < (p.uneven ? whole : p.length); u++) {
          set(p.inner, u);
          each_lane(row_shape, row_shape ? p.inner : p.outer, element);
        }
        at_edge_ = p.uneven;
        for (int64_t e = 0; p.uneven && e < p.lane_extent; e++) {
          if (e >= head && e < head + whole * p.width) continue;
          set(p.inner, 0);
          loops_[static_cast<size_t>(p.lane)] = e - head;
          element();
        }
        at_edge_ = false;
        for (size_t r = 0; r < sums.size(); r++)
          for (int l = 0; l < p.width; l++)
            values_[static_cast<size_t>(pass.reduces[r].result)][static_cast<size_t>(l)] = sums[r][static_cast<size_t>(row_shape ? 0 : l)];
        set(p.inner, 0);
        lane_ = 0;
        if (row_shape) code(pass.after), store(pass.after_stores);
        else if (!pass.after_stores.empty()) each_lane(false, p.outer, [&] { code(pass.after); store(pass.after_stores); });
      }
    }
  }
  void combine(const RegionPass& pass, size_t r, std::vector<std::vector<double>>& sums, size_t lane) {
    DoubleAlgebra a;
    const RegionReduce& reduce = pass.reduces[r];
    double &to = sums[r][lane], x = value(reduce.value);
    for (size_t l = 0; l < r; l++) {
      if (reduce.leader < 0 || pass.reduces[l].result != reduce.leader) continue;
      const double before = sums[l][lane], next = value(pass.reduces[l].value), now = a.max(before, next);
      if (before != now) to = reduce.otherwise;
      if (next != now) x = reduce.otherwise;
    }
    to = reduce.fn == ReduceFn::kSum ? a.add(to, x) : a.max(to, x);
  }
  template <class F> void each_lane(bool row_shape, const std::vector<int>& loops, F f) {
    int64_t bound = p_->lane_extent;
    if (row_shape && p_->chunk >= 0)
      bound = std::min(p_->chunk_length, p_->chunk_total - loops_[static_cast<size_t>(p_->chunk)] * p_->chunk_length);
    const bool column_chunk_over =
        !row_shape && p_->chunk >= 0 &&
        loops_[static_cast<size_t>(p_->inner[0])] >= p_->chunk_total - loops_[static_cast<size_t>(p_->chunk)] * p_->chunk_length;
    if (column_chunk_over) return;
    for (int l = 0; l < p_->width; l++) {
      if (!loops.empty() && loops_[static_cast<size_t>(loops.back())] * p_->width + l >= bound) break;
      lane_ = lane_of_vector_ = l;
      set_lane(l);
      f();
    }
    lane_ = 0;
  }

  const Plan& plan_;
  std::vector<double> workspace_;   // by byte address
  std::vector<std::vector<double>> memory_;
  const RegionPlan* p_ = nullptr;
  std::vector<int64_t> loops_;
  std::vector<std::vector<double>> values_;
  int lane_ = 0, lane_of_vector_ = 0;
  bool at_edge_ = false;   // elements that belong to no vector
};

}  // namespace mirage::test

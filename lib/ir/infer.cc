// Shapes and types of every form, in one place: parsers, the search and the laws all ask here.
#include <algorithm>

#include "mirage/ir/graph.h"

namespace mirage {
namespace {

Inferred fail(std::string text) { return {{}, std::move(text)}; }
Inferred one(DType t, Dims d) { return {{Type{t, d}}, ""}; }

/// One overload per form; the visitor's table of rules.
struct Rules {
  std::span<const Type> in;
  Level level;

  std::string need(size_t n, const char* what) const {
    return in.size() == n ? ""
                          : std::string(what) + " takes " + std::to_string(n) + (n == 1 ? " operand" : " operands") + ", got " +
                                std::to_string(in.size());
  }
  std::string need_dim(int dim, const Type& t, const char* what) const {
    return dim >= 0 && dim < t.dims.rank()
               ? ""
               : std::string(what) + ": dimension " + std::to_string(dim) + " of a tensor of rank " + std::to_string(t.dims.rank());
  }

  Inferred operator()(const Input&) const { return fail("an input's type is given, not inferred"); }
  Inferred operator()(const Output& o) const {
    if (auto e = need(1, "output"); !e.empty()) return fail(e);
    if ((o.dtype == DType::kBool) != (in[0].dtype == DType::kBool))
      return fail(std::string("output of dtype ") + dtype_long_name(o.dtype) + " for a value of dtype " + dtype_long_name(in[0].dtype));
    return {};
  }
  Inferred operator()(const Const&) const {
    if (auto e = need(0, "const"); !e.empty()) return fail(e);
    return one(DType::kReal, {});
  }
  Inferred operator()(const Iota& i) const {
    if (auto e = need(0, "iota"); !e.empty()) return fail(e);
    if (level != Level::kKernel) return fail("iota stands at kernel level only: a block reads it as an input");
    if (i.dim < 0 || i.dim >= i.dims.rank()) return fail("iota: no such dimension");
    return one(DType::kReal, i.dims);
  }
  Inferred operator()(const Map& m) const {
    const MapInfo& info = map_info(m.fn);
    if (auto e = need(static_cast<size_t>(info.arity), info.name); !e.empty()) return fail(e);
    Dims out;
    for (size_t i = 0; i < in.size(); i++) {
      const bool wants_bool = m.fn == MapFn::kWhere && i == 0, is_bool = in[i].dtype == DType::kBool;
      const bool takes_any = m.fn == MapFn::kCastF16 || m.fn == MapFn::kCastBF16 || m.fn == MapFn::kCastF32;
      if (is_bool != wants_bool && !takes_any)
        return fail(std::string(info.name) + ": operand " + std::to_string(i + 1) +
                    (wants_bool ? " must be bool" : " must be a number, not bool"));
      auto b = broadcast(out, in[i].dims);
      if (!b) return fail(std::string(info.name) + ": shapes " + to_string(out) + " and " + to_string(in[i].dims) + " do not broadcast");
      out = *b;
    }
    DType t = returns_bool(m.fn) ? DType::kBool : DType::kReal;
    if (m.fn == MapFn::kCastF16) t = DType::kF16;
    if (m.fn == MapFn::kCastBF16) t = DType::kBF16;
    if (m.fn == MapFn::kCastF32) t = DType::kF32;
    return one(t, out);
  }
  Inferred operator()(const MatMul&) const {
    if (auto e = need(2, "matmul"); !e.empty()) return fail(e);
    const Dims &a = in[0].dims, &b = in[1].dims;
    if (in[0].dtype == DType::kBool || in[1].dtype == DType::kBool) return fail("matmul: operands must be numbers, not bool");
    if (a.rank() < 2 || a.rank() != b.rank())
      return fail("matmul: ranks " + std::to_string(a.rank()) + " and " + std::to_string(b.rank()) + " (equal, at least 2)");
    const int r = a.rank();
    if (a[r - 1] != b[r - 2]) return fail("matmul: inner dimensions differ: " + to_string(a) + " x " + to_string(b));
    Dims out = a;
    out[r - 1] = b[r - 1];
    for (int i = 0; i < r - 2; i++) {
      if (a[i] != b[i] && a[i] != 1 && b[i] != 1) return fail("matmul: batch dimensions differ: " + to_string(a) + " x " + to_string(b));
      out[i] = a[i] == 1 ? b[i] : a[i];
    }
    return one(DType::kReal, out);
  }
  Inferred operator()(const Reduce& r) const {
    if (auto e = need(1, "reduce"); !e.empty()) return fail(e);
    if (in[0].dtype == DType::kBool) return fail("reduce: operand must be a number, not bool");
    if (auto e = need_dim(r.dim, in[0], "reduce"); !e.empty()) return fail(e);
    Dims out = in[0].dims;
    if (r.group < 0 || (r.group > 0 && out[r.dim] % r.group))
      return fail("reduce: groups of " + std::to_string(r.group) + " do not divide extent " + std::to_string(out[r.dim]));
    out[r.dim] = r.group ? out[r.dim] / r.group : 1;
    return one(DType::kReal, out);
  }
  Inferred operator()(const Repeat& r) const {
    if (auto e = need(1, "repeat"); !e.empty()) return fail(e);
    if (auto e = need_dim(r.dim, in[0], "repeat"); !e.empty()) return fail(e);
    if (r.count < 1) return fail("repeat: count must be at least 1");
    Dims out = in[0].dims;
    out[r.dim] *= r.count;
    return one(in[0].dtype, out);
  }
  Inferred operator()(const Reshape& r) const {
    if (auto e = need(1, "reshape"); !e.empty()) return fail(e);
    for (int64_t d : r.dims) if (d < 1) return fail("reshape: extents must be positive");
    if (r.dims.elements() != in[0].dims.elements())
      return fail("reshape: " + to_string(in[0].dims) + " and " + to_string(r.dims) + " differ in the number of elements");
    return one(in[0].dtype, r.dims);
  }
  Inferred operator()(const Concat& c) const {
    if (in.empty()) return fail("concat needs operands");
    if (auto e = need_dim(c.dim, in[0], "concat"); !e.empty()) return fail(e);
    Dims out = in[0].dims;
    DType t = in[0].dtype;
    for (size_t i = 1; i < in.size(); i++) {
      if (in[i].dims.rank() != out.rank()) return fail("concat: ranks differ");
      for (int d = 0; d < out.rank(); d++)
        if (d != c.dim && in[i].dims[d] != in[0].dims[d])
          return fail("concat: shapes " + to_string(in[0].dims) + " and " + to_string(in[i].dims) + " differ outside dimension " +
                      std::to_string(c.dim));
      out[c.dim] += in[i].dims[c.dim];
      if ((in[i].dtype == DType::kBool) != (t == DType::kBool)) return fail("concat: bool and numbers do not mix");
      if (in[i].dtype != t) t = DType::kReal;
    }
    return one(t, out);
  }
  Inferred operator()(const Slice& s) const {
    if (auto e = need(1, "slice"); !e.empty()) return fail(e);
    if (auto e = need_dim(s.dim, in[0], "slice"); !e.empty()) return fail(e);
    Dims out = in[0].dims;
    if (s.start < 0 || s.start >= s.stop || s.stop > out[s.dim] || s.step < 1)
      return fail("slice: " + std::to_string(s.start) + ":" + std::to_string(s.stop) + ":" + std::to_string(s.step) + " of extent " +
                  std::to_string(out[s.dim]));
    out[s.dim] = (s.stop - s.start + s.step - 1) / s.step;
    return one(in[0].dtype, out);
  }
  Inferred operator()(const Transpose& t) const {
    if (auto e = need(1, "transpose"); !e.empty()) return fail(e);
    const Dims& d = in[0].dims;
    Dims out = d;
    unsigned seen = 0;
    for (int i = 0; i < d.rank(); i++) {
      const int p = t.perm[static_cast<size_t>(i)];
      if (p < 0 || p >= d.rank() || (seen >> p & 1)) return fail("transpose: not a permutation of the dimensions");
      seen |= 1u << p;
      out[i] = d[p];
    }
    return one(in[0].dtype, out);
  }
  Inferred operator()(const Running&) const {
    if (auto e = need(1, "running"); !e.empty()) return fail(e);
    if (level != Level::kBlock) return fail("running stands in block graphs only");
    if (in[0].dtype == DType::kBool) return fail("running: operand must be a number, not bool");
    return one(DType::kReal, in[0].dims);
  }
  Inferred operator()(const Accum& a) const {
    if (auto e = need(a.degree ? 2 : 1, "accum"); !e.empty()) return fail(e);
    if (level != Level::kBlock) return fail("accum stands in block graphs only");
    if (in[0].dtype == DType::kBool) return fail("accum: operand must be a number, not bool");
    if (!a.degree) return one(DType::kReal, in[0].dims);
    if (a.fn != ReduceFn::kSum) return fail("accum: only a sum can be rescaled");
    if (a.degree < 0 || a.degree > kMaxDegree) return fail("accum: a degree is from 1 to " + std::to_string(kMaxDegree));
    if (auto b = broadcast(in[0].dims, in[1].dims); !b || !(*b == in[0].dims))
      return fail("accum: a maximum of shape " + to_string(in[1].dims) + " does not broadcast to " + to_string(in[0].dims));
    return one(DType::kReal, in[0].dims);
  }
  Inferred operator()(const Call& c) const {
    if (!c.body) return fail("call without a body");
    if (static_cast<int>(c.body->level()) != static_cast<int>(level) + 1) return fail("a call's body is one level down");
    if (static_cast<int>(in.size()) != c.body->num_params())
      return fail("call of a body with " + std::to_string(c.body->num_params()) + " inputs on " + std::to_string(in.size()) + " operands");
    return result_types(*c.body, in);
  }
};

}  // namespace

Inferred infer(const Op& op, std::span<const Type> operands, Level level) { return std::visit(Rules{operands, level}, op); }

Inferred result_types(const Graph& body, std::span<const Type> operands) {
  std::vector<Type> out;
  for (NodeId n : body.outputs()) {
    const Output& o = *body.form<Output>(n);
    Type t = body.type(body.node(n).operands[0]);
    t.dtype = o.dtype;
    for (size_t axis = 0; axis < 3; axis++) {
      const int d = o.part.grid[axis];
      if (d < 0) continue;
      if (d >= t.dims.rank()) return fail("output " + std::to_string(o.result) + ": no dimension " + std::to_string(d));
      const int64_t tile = t.dims[d];
      int64_t whole = tile * body.launch().grid[axis];
      for (NodeId i : body.inputs()) {   // the same axis splits an operand by the same tile: its extent is the result's, ragged or not
        const Input& in = *body.form<Input>(i);
        const int s = in.part.grid[axis];
        if (s < 0 || static_cast<size_t>(in.param) >= operands.size()) continue;
        const Dims& tile_dims = body.dims(body.node(i).first_value);
        if (s < tile_dims.rank() && s < operands[static_cast<size_t>(in.param)].dims.rank() && tile_dims[s] == tile && in.part.loop != s)
          whole = std::min(whole, operands[static_cast<size_t>(in.param)].dims[s]);
      }
      t.dims[d] = whole;
    }
    out.push_back(t);
  }
  return {out, ""};
}

}  // namespace mirage

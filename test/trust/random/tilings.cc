// Terms as block graphs: rows over blocks, columns over the iterations of a loop, contractions in pieces, softmaxes with a running maximum;
// exact tilings and ragged ones.
#include "trust/random/rewrite.h"

#include <map>
#include <optional>

#include <fmt/format.h>

namespace mirage::test {

namespace {

std::string dtype_of(const P& x) {
  if (x->is_bool) return "bool";
  if (x->op == "input") return x->dtype;
  if (x->op == "cast_f16") return "f16";
  if (x->op == "cast_bf16") return "bf16";
  if (x->op == "cast_f32") return "f32";
  if (x->op == "transpose" || x->op == "reshape" || x->op == "slice" || x->op == "repeat") return dtype_of(x->in[0]);
  if (x->op == "concat") {
    for (const P& y : x->in) if (dtype_of(y) != dtype_of(x->in[0])) return "real";
    return dtype_of(x->in[0]);
  }
  return "real";
}

/// How one dimension is cut: `pieces` pieces of `tile`, the last may be shorter.
struct Cut { int64_t pieces = 1, tile = 1; };
Cut any_cut(int64_t extent, Rng& rng) {
  const int64_t pieces = 2 + static_cast<int64_t>(rng.below(3));
  const int64_t tile = (extent + pieces - 1) / pieces;
  return {(extent + tile - 1) / tile, tile};
}

/// Writes the body of one block graph. Rows (dimension 0 of extent `rows`) go over blocks along x, columns (dimension 1 of extent `cols`)
/// over the loop; 0: not cut.
class Body {
 public:
  Body(int64_t rows, Cut row_cut, int64_t cols, Cut col_cut, Rng& rng)
      : rows_(rows), cols_(cols), row_(row_cut), col_(col_cut), rng_(rng) {}

  /// An operand of the call as a tile: split where its extents are those that are cut, unless it is asked for whole along a dimension.
  std::string leaf(const P& x, bool by_row, bool by_col) {
    by_row = by_row && rows_ && x->dims[0] == rows_ && row_.pieces > 1;
    by_col = by_col && cols_ && x->dims[1] == cols_ && col_.pieces > 1;
    return tile(x, by_row ? 0 : -1, by_col ? 1 : -1);
  }
  /// The tile of x with dimension `grid` cut as rows are and `loop` as columns are; -1: none.
  std::string tile(const P& x, int grid, int loop) {
    const auto key = std::tuple(x.get(), grid, loop);
    if (const auto it = named_.find(key); it != named_.end()) return it->second;
    Extents d = x->dims;
    if (grid >= 0) d[static_cast<size_t>(grid)] = row_.tile;
    if (loop >= 0) d[static_cast<size_t>(loop)] = col_.tile;
    const std::string name = fmt::format("%a{}", operands.size());
    lines += fmt::format(" {} = input {} grid({},-,-) loop({}) : {}[{}]\n", name, operands.size(), grid < 0 ? "-" : std::to_string(grid),
                         loop < 0 ? "-" : std::to_string(loop), dtype_of(x), fmt::join(d, ","));
    operands.push_back(x);
    return named_[key] = name;
  }
  /// x inside the block, with its operands as far down as chance has it.
  std::string inside(const P& x, int depth) {
    if (x->op == "const") return constant_text(x->value);
    const bool fits =
        x->dims.size() == 2 && (!rows_ || x->dims[0] == rows_ || x->dims[0] == 1) && (!cols_ || x->dims[1] == cols_ || x->dims[1] == 1);
    if (!fits) { ok = false; return ""; }
    if (const auto it = values_.find(x.get()); it != values_.end()) return it->second;
    const bool in_rows = rows_ && x->dims[0] == rows_ && rows_ > 1;
    std::string args;
    bool stops = depth <= 0 || rng_.below(8) == 0;
    if (is_map(x) && !stops) {
      for (const P& y : x->in) stops = stops || !(y->dims.empty() || y->dims.size() == 2);
      if (!stops) {
        for (const P& y : x->in) args += " " + (y->dims.empty() && y->op != "const" ? leaf_scalar(y) : inside(y, depth - 1));
        return values_[x.get()] = define(x->op + args);
      }
    }
    if (!stops && !cols_ && in_rows && (is(x, "reduce.sum") || is(x, "reduce.max")) && x->n[0] == 1)
      return values_[x.get()] =
                 define(fmt::format("{} 1{} {}", x->op, x->n[1] ? fmt::format(" group {}", x->n[1]) : "", inside(x->in[0], depth - 1)));
    if (!stops && !cols_ && in_rows && is(x, "matmul"))
      return values_[x.get()] = define(fmt::format("matmul {} {}", inside(x->in[0], depth - 1), leaf(x->in[1], false, false)));
    return leaf(x, true, true);
  }
  std::string define(const std::string& text) {
    lines += fmt::format(" %b{} = {}\n", count_, text);
    return fmt::format("%b{}", count_++);
  }
  static std::string constant_text(double v) { return std::isinf(v) ? "-inf" : fmt::format("{:.17g}", v); }

  std::string lines;
  std::vector<P> operands;
  bool ok = true;

 private:
  std::string leaf_scalar(const P&) { ok = false; return ""; }
  int64_t rows_, cols_;
  Cut row_, col_;
  Rng& rng_;
  int count_ = 0;
  std::map<std::tuple<const Term*, int, int>, std::string> named_;
  std::map<const Term*, std::string> values_;
};

std::string launch(int64_t blocks, int64_t iterations) { return fmt::format("grid({},1,1) loop({})", blocks, iterations); }

struct At {
  const P& x;
  Rng& rng;
  std::vector<Rewriting>& out;
  void add(const char* law, const Body& b, const Cut& rows, const Cut& cols, const std::string& result, bool by_row) const {
    if (b.ok && !b.operands.empty())
      out.push_back({law,
                     call(launch(rows.pieces, cols.pieces), b.operands,
                          b.lines + fmt::format(" output 0 {} grid({},-,-)\n", result, by_row ? "0" : "-"), x->dims),
                     false});
  }
};

void rows_over_blocks(const At& at) {
  const P& x = at.x;
  if (x->dims[0] < 2 || !(is_map(x) || is(x, "reduce.sum") || is(x, "reduce.max") || is(x, "matmul"))) return;
  const Cut rows = any_cut(x->dims[0], at.rng);
  if (rows.pieces < 2) return;
  Body b(x->dims[0], rows, 0, {}, at.rng);
  const std::string result = b.inside(x, 6);
  if (b.lines.find("grid(0") == std::string::npos || b.lines.find("%b") == std::string::npos) return;
  at.add("rows over blocks", b, rows, {}, result, true);
}

void columns_over_the_loop(const At& at) {
  const P& x = at.x;
  const bool is_sum = is(x, "reduce.sum");
  if (!(is_sum || is(x, "reduce.max")) || x->n[0] != 1 || x->n[1]) return;
  const P& y = x->in[0];
  const int64_t r = y->dims[0];
  const Cut rows = r > 1 ? any_cut(r, at.rng) : Cut{1, 1}, cols = any_cut(y->dims[1], at.rng);
  if (cols.pieces < 2 || y->dims[1] < 2) return;
  Body b(r > 1 ? r : 0, rows, y->dims[1], cols, at.rng);
  const std::string v = b.inside(y, 5);
  if (b.lines.find("loop(1)") == std::string::npos) return;
  const std::string acc = b.define(fmt::format("{} ({} 1 {})", is_sum ? "accum.sum" : "accum.max", x->op, v));
  at.add("columns over the loop", b, rows, cols, acc, r > 1 && rows.pieces > 1);
}

void contraction_over_the_loop(const At& at) {
  if (!is(at.x, "matmul")) return;
  const P &a = at.x->in[0], &y = at.x->in[1];
  const int64_t r = a->dims[0], k = a->dims[1];
  if (k < 2) return;
  const Cut rows = r > 1 ? any_cut(r, at.rng) : Cut{1, 1}, cols = any_cut(k, at.rng);
  Body b(r > 1 ? r : 0, rows, k, cols, at.rng);
  const std::string left = b.inside(a, 3), right = b.tile(y, -1, cols.pieces > 1 ? 0 : -1);
  if (cols.pieces < 2 || b.lines.find("loop(1)") == std::string::npos) return;
  at.add("contraction over the loop", b, rows, cols, b.define(fmt::format("accum.sum (matmul {} {})", left, right)),
         r > 1 && rows.pieces > 1);
}

/// softmax(u) v, or sum e^u, with the maximum so far.
void running_maximum(const At& at) {
  const P& x = at.x;
  P u, v;
  if (is(x, "matmul") && is(x->in[0], "div")) {
    const P& s = x->in[0];
    if (!is(s->in[0], "exp") || !is(s->in[1], "reduce.sum") || s->in[1]->n[0] != 1 || s->in[1]->n[1] || !same(s->in[1]->in[0], s->in[0]))
      return;
    u = s->in[0]->in[0], v = x->in[1];
  } else if (is(x, "reduce.sum") && x->n[0] == 1 && !x->n[1] && is(x->in[0], "exp")) {
    u = x->in[0]->in[0];
  } else {
    return;
  }
  if (u->dims.size() != 2) return;
  const int64_t r = u->dims[0], k = u->dims[1];
  if (k < 2) return;
  const Cut rows = r > 1 ? any_cut(r, at.rng) : Cut{1, 1}, cols = any_cut(k, at.rng);
  Body b(r > 1 ? r : 0, rows, k, cols, at.rng);
  const std::string s = b.inside(u, 3), c = v ? b.tile(v, -1, 0) : "";
  if (cols.pieces < 2 || b.lines.find("loop(1)") == std::string::npos) return;
  const std::string m = b.define("running (reduce.max 1 " + s + ")"), e = b.define("exp (sub " + s + " " + m + ")"),
                    d = b.define("accum.sum rescaled 1 (reduce.sum 1 " + e + ") " + m);
  std::string result;
  if (v) result = b.define("div " + b.define("accum.sum rescaled 1 (matmul " + e + " " + c + ") " + m) + " " + d);
  else result = b.define("mul (exp (accum.max " + m + ")) " + d);
  at.add("running maximum", b, rows, cols, result, r > 1 && rows.pieces > 1);
}

}  // namespace

std::vector<Rewriting> tilings_of(const P& x, Rng& rng) {
  std::vector<Rewriting> out;
  if (x->dims.size() != 2 || x->is_bool) return out;
  const At at{x, rng, out};
  switch (rng.below(3)) {
    case 0: rows_over_blocks(at); break;
    case 1: contraction_over_the_loop(at); columns_over_the_loop(at); break;
    default: running_maximum(at);
  }
  return out;
}

}  // namespace mirage::test

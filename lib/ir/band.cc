// See the header.
#include "mirage/ir/band.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace mirage {
namespace {

/// column * a + row * b + c, for positions and constants.
struct Line { double a = 0, b = 0, c = 0; };

class BandReader {
 public:
  BandReader(const Graph& g, const BandQuestion& q) : g_(g), q_(q) {}

  Band run() {
    Band out;
    for (ValueId v = q_.from; v != q_.down_to;) {
      if (const ValueId to = q_.past(v); to >= 0) { v = to; continue; }
      const Map* m = g_.def_form<Map>(v);
      const Const* c = m && m->fn == MapFn::kWhere ? g_.def_form<Const>(operand(v, 1)) : nullptr;
      if (!c || c->value != -std::numeric_limits<double>::infinity()) { out.only = false; break; }
      out.only = removes(operand(v, 0), out) && out.only;
      v = operand(v, 2);
    }
    return out;
  }

 private:
  ValueId operand(ValueId v, size_t i) const { return g_.def(v).operands[i]; }
  std::optional<Line> line(ValueId v) {
    if (const auto at = lines_.find(v); at != lines_.end()) return at->second;
    return lines_[v] = read_line(v);
  }
  std::optional<Line> read_line(ValueId v) {
    if (const Const* c = g_.def_form<Const>(v)) return Line{0, 0, c->value};
    if (g_.def_form<Transpose>(v)) return line(operand(v, 0));
    if (g_.def_form<Input>(v)) {
      const Counts x = q_.counts(v);
      if (x == Counts::kNeither) return std::nullopt;
      return x == Counts::kColumns ? Line{1, 0, 0} : Line{0, 1, 0};
    }
    const Map* m = g_.def_form<Map>(v);
    if (!m || (m->fn != MapFn::kAdd && m->fn != MapFn::kSub)) return std::nullopt;
    const auto x = line(operand(v, 0)), y = line(operand(v, 1));
    if (!x || !y) return std::nullopt;
    const double sign = m->fn == MapFn::kAdd ? 1 : -1;
    return Line{x->a + sign * y->a, x->b + sign * y->b, x->c + sign * y->c};
  }
  /// Reads a condition as column - row > bound or column - row < bound, and notes which columns are left.
  bool removes(ValueId condition, Band& out) {
    const Map* m = g_.def_form<Map>(condition);
    if (!m || (m->fn != MapFn::kLess && m->fn != MapFn::kGreater)) return false;
    auto x = line(operand(condition, 0)), y = line(operand(condition, 1));
    if (!x || !y) return false;
    if (m->fn == MapFn::kLess) std::swap(x, y);   // x > y
    const double a = x->a - y->a, b = x->b - y->b, c = x->c - y->c;
    // float32 positions are exact
    if (c != std::floor(c) || std::fabs(c) > 1e6 || q_.columns > 1 << 22 || q_.rows > 1 << 22) return false;
    const auto bound = static_cast<int64_t>(c);
    if (a == 1 && b == -1) out.last = out.last ? std::min(*out.last, -bound) : -bound;          // removed: column - row + c > 0
    else if (a == -1 && b == 1) out.first = out.first ? std::max(*out.first, bound) : bound;    // removed: row - column + c > 0
    else return false;
    return true;
  }

  const Graph& g_;
  const BandQuestion& q_;
  std::map<ValueId, std::optional<Line>> lines_;
};

}  // namespace

Band read_band(const Graph& g, const BandQuestion& q) { return BandReader(g, q).run(); }

}  // namespace mirage

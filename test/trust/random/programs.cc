// Programs to begin with: norms, softmaxes, attention, layers, masks, casts and what random operators make of them.
#include "trust/random/pairs.h"

namespace mirage::test {

namespace {

class Grower {
 public:
  Grower(Rng& rng, Size size) : rng_(rng), size_(size) {
    const bool is_large = size == Size::kLarge;
    if (size == Size::kHuge) return;
    static const std::vector<int64_t> rows = {1, 2, 3, 4, 5, 8}, cols = {2, 3, 4, 6, 8, 12, 16, 24, 64};
    r_ = is_large ? 8 : rows[rng.below(rows.size())];
    c_ = is_large ? 4096 : cols[rng.below(cols.size())];
    n_ = is_large ? 4 : std::vector<int64_t>{2, 4, 6, 8}[rng.below(4)];
    const std::string dtype = pick({"f32", "f32", "f16", "bf16"});
    for (int i = 0; i < 2; i++) full_.push_back(put({r_, c_}, dtype));
    if (rng.below(2)) row_ = put({1, c_}, dtype);
    if (rng.below(3) == 0) col_ = put({r_, 1}, dtype);
    if (rng.below(2)) weight_ = put({c_, n_}, dtype);
    if (rng.below(5) < 2) mask_ = put({rng.below(3) ? r_ : 1, c_}, "bool");
  }

  RandomProgram program() {
    if (size_ == Size::kHuge) return product();
    P y = value(2);
    if (rng_.below(2) && !y->is_infinite) y = elementwise(y, 1);
    if (y->is_bool) y = where(y, constant(1), constant(0));
    if (weight_ && y->dims == Extents{r_, c_} && rng_.below(2)) y = matmul(y, weight_);
    return {inputs_, y};
  }

 private:
  std::string pick(const std::vector<std::string>& of) { return of[rng_.below(of.size())]; }
  P put(Extents dims, const std::string& dtype) {
    inputs_.push_back(input(static_cast<int>(inputs_.size()), std::move(dims), dtype));
    return inputs_.back();
  }
  P number() { return constant(std::vector<double>{0.5, 2, 3, 0.1, 1, 100, -1, 1e-5, 0.125, 4}[rng_.below(10)]); }

  /// A tensor of R x C (or one that broadcasts to it).
  P leaf() {
    switch (rng_.below(8)) {
      case 0: if (row_) return row_; break;
      case 1: if (col_) return col_; break;
      case 2: return iota(static_cast<int>(rng_.below(2)), {r_, c_}) * number();
      default: break;
    }
    return full_[rng_.below(full_.size())];
  }
  P positive(P x) {
    switch (rng_.below(4)) {
      case 0: return map("exp", {x});
      case 1: return map("square", {x}) + constant(rng_.below(2) ? 1 : 1e-5);
      case 2: return map("abs", {x}) + constant(0.5);
      default: return map("sigmoid", {x});
    }
  }
  P condition() {
    const Extents d{r_, c_};
    switch (rng_.below(7)) {
      case 0:
        return map("less",
                   {iota(1, {1, c_}), iota(0, {r_, 1}) + constant(static_cast<double>(rng_.below(static_cast<uint64_t>(c_))))});  // causal
      case 1: return map("less", {iota(1, {1, c_}), constant(static_cast<double>(1 + rng_.below(static_cast<uint64_t>(c_))))});
      case 2: return map("equal", {iota(0, {r_, 1}), constant(static_cast<double>(rng_.below(static_cast<uint64_t>(r_))))});
      case 3: return map("less", {leaf(), leaf()});
      case 4: return map("greater", {leaf(), number()});
      default: return mask_ ? mask_ : map("less", {full_[0], full_[1]});
    }
  }
  P whole(P x) {
    if (x->dims == Extents{r_, c_}) return x;
    if (x->dims == Extents{c_, r_}) return transpose({1, 0}, x);
    const bool spreads = x->dims.size() == 2 && (x->dims[0] == r_ || x->dims[0] == 1) && (x->dims[1] == c_ || x->dims[1] == 1);
    return spreads ? x + full_[0] * constant(0) : full_[0];
  }

  /// A product that is too large to be evaluated, with masks and positions whose literals do not shrink.
  RandomProgram product() {
    r_ = 2048, c_ = 2048;
    full_ = {put({r_, c_}, "f16"), put({c_, r_}, "f16")};
    if (rng_.below(2)) row_ = put({1, c_}, "f32");
    P x = full_[0];
    if (rng_.below(3) == 0) x = where(condition(), x, constant(0));
    if (rng_.below(3) == 0) x = map(pick({"silu", "relu", "neg", "square"}), {x});
    P y = matmul(x, full_[1]);
    for (uint64_t n = rng_.below(3) + 1; n > 0; n--) switch (rng_.below(6)) {
      case 0: y = y * map("relu", {iota(1, {1, c_}) - constant(static_cast<double>(rng_.below(2048)))}); break;
      case 1:
        y = where(map("less", {iota(1, {1, c_}), iota(0, {r_, 1}) + constant(static_cast<double>(1 + rng_.below(1024)))}), y, constant(0));
        break;
      case 2: y = y + (row_ ? row_ : constant(2)); break;
      case 3: y = map(pick({"silu", "relu", "sigmoid", "tanh", "gelu"}), {y}); break;
      case 4: y = y * map("minimum", {iota(0, {r_, 1}), constant(static_cast<double>(1000 + rng_.below(1000)))}); break;
      default: y = y * number();
    }
    return {inputs_, y};
  }

  P elementwise(P x, int depth) {
    if (depth < 0) return x;
    const P next = elementwise(x, depth - 1);
    switch (rng_.below(12)) {
      case 0: return next + leaf_like(x);
      case 1: return next * leaf_like(x);
      case 2: return next - number();
      case 3: return next / positive(leaf_like(x));
      case 4: return map(pick({"silu", "sigmoid", "tanh", "gelu", "relu", "abs", "square", "neg"}), {next});
      case 5: return map(pick({"sqrt", "log", "rsqrt"}), {positive(next)});
      case 6: return map(pick({"maximum", "minimum"}), {next, leaf_like(x)});
      case 7: return map("clamp", {next, constant(-1), constant(std::vector<double>{1, 2, 100}[rng_.below(3)])});
      case 8: return map("pow", {next, constant(std::vector<double>{2, 3, 4}[rng_.below(3)])});
      case 9: return map(pick({"cast_f16", "cast_bf16", "cast_f32"}), {next});
      case 10: return x->dims == Extents{r_, c_} ? where(condition(), next, leaf_like(x)) : next;
      default: return map("exp", {map("clamp", {next, constant(-4), constant(4)})});
    }
  }
  P leaf_like(const P& x) { return x->dims == Extents{r_, c_} ? leaf() : number(); }

  P value(int depth) {
    const P x = whole(depth > 0 && rng_.below(3) == 0 ? value(depth - 1) : elementwise(leaf(), static_cast<int>(rng_.below(3))));
    if (x->is_infinite || x->dims != Extents{r_, c_}) return x;
    const P n = constant(static_cast<double>(c_));
    switch (mask_ && rng_.below(2) ? 4 : rng_.below(13)) {
      case 12: return far_root(x);
      case 0: return x / map("sqrt", {sum(1, map("square", {x})) / n + constant(1e-5)});   // RMS norm
      case 1: {
        const P centred = x - sum(1, x) / n;
        return centred * map("rsqrt", {sum(1, map("square", {centred})) / n + constant(1e-5)});
      }
      case 2: { const P e = map("exp", {x}); return e / sum(1, e); }
      case 3: { const P e = map("exp", {x - max(1, x)}); return e / sum(1, e); }
      case 4: {
        const P e = map("exp", {where(condition(), x, constant(-INFINITY))});
        return rng_.below(2) ? e / (sum(1, e) + constant(1)) : e / sum(1, e);
      }
      case 5: return rng_.below(2) ? sum(1, x) : max(1, x);
      case 6: return where(condition(), x, number() * full_[0]);
      case 7: return map("log", {sum(1, map("exp", {x}))});
      case 8: return weight_ ? matmul(x, weight_) : sum(0, x);
      case 9: return attention(x);
      case 10: return r_ > 1 ? transpose({1, 0}, x) : x;
      default: return elementwise(x, 1);
    }
  }
  /// Roots, logarithms and quotients that are defined for some inputs only, perhaps for none of ordinary size.
  P far_root(const P& x) {
    const P c = constant(std::vector<double>{0, 1, 100, 1000}[rng_.below(4)]), d = rng_.below(2) ? x - c : c - x;
    switch (rng_.below(6)) {
      case 0: return map("square", {map("sqrt", {d})});
      case 1: return map("sqrt", {d}) * map("sqrt", {full_[1] - c});
      case 2: return map("log", {d});
      case 3: return map("sqrt", {d}) / map("sqrt", {full_[1] - c});
      case 4: return map("relu", {d}) / map("relu", {full_[1] - c});
      default: return map("square", {map("pow", {d, constant(0.5)})});
    }
  }
  P attention(const P& q) {
    if (size_ != Size::kSmall) return q;
    P s = matmul(q, transpose({1, 0}, full_[1]));   // R x R
    if (rng_.below(2)) s = where(map("less", {iota(1, {1, r_}), iota(0, {r_, 1}) + constant(1)}), s, constant(-INFINITY));
    const P e = map("exp", {s});
    return matmul(e / sum(1, e), full_[0]);
  }

  Rng& rng_;
  Size size_;
  int64_t r_ = 1, c_ = 1, n_ = 1;
  std::vector<P> inputs_, full_;
  P row_, col_, weight_, mask_;
};

}  // namespace

RandomProgram random_program(Rng& rng, Size size) { return Grower(rng, size).program(); }

}  // namespace mirage::test

#include "verify/total.h"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "mirage/ir/eval.h"
#include "mirage/support/hash.h"

namespace mirage::verify {
namespace {

/// What is known of an element: its sign, and who it is, so that a product of equals is a square.
struct Signed {
  uint64_t id = 0;
  bool nonnegative = false;
  bool positive = false;
  bool is_solid = false;      ///< 0 for almost no inputs
  bool is_infinite = false;   ///< or might be
};

/// An algebra (mirage/ir/eval.h) over what is known of signs.
class SignAlgebra {
 public:
  using Value = Signed;

  Value constant(double c) {
    return {hash_combine(1, std::bit_cast<uint64_t>(c)), c >= 0, c > 0, c != 0, !std::isfinite(c)};
  }
  Value input(uint64_t index) { return {hash_combine(2, index), false, false, true, false}; }

  Value add(Value x, Value y) {
    const bool nonnegative = x.nonnegative && y.nonnegative, positive = nonnegative && (x.positive || y.positive);
    return made({nonnegative, positive, positive}, 3, x, y);
  }
  Value sub(Value x, Value y) { return made({}, 4, x, y); }
  Value mul(Value x, Value y) {
    const bool is_square = x.id == y.id;
    return made({is_square || (x.nonnegative && y.nonnegative), (x.positive && y.positive) || (is_square && x.positive),
                 x.is_solid && y.is_solid}, 5, x, y);
  }
  Value div(Value x, Value y) {
    fails_ |= !y.is_solid;
    return made({x.nonnegative && y.nonnegative, x.positive && y.positive, x.is_solid && y.is_solid}, 6, x, y);
  }
  Value neg(Value x) { return made({false, false, x.is_solid}, 7, x, x); }
  Value exp(Value x) { return made({true, true, true}, 8, x, x); }
  Value log(Value x) {
    fails_ |= !x.positive;
    return made({}, 9, x, x);
  }
  Value sqrt(Value x) {
    fails_ |= !x.nonnegative;
    return made({true, x.positive, x.is_solid}, 10, x, x);
  }
  Value abs(Value x) { return made({true, x.positive, x.is_solid}, 11, x, x); }
  Value tanh(Value x) { return made({x.nonnegative, x.positive, false}, 12, x, x); }
  Value erf(Value x) { return made({x.nonnegative, x.positive, false}, 13, x, x); }
  Value sin(Value x) { return made({}, 14, x, x); }
  Value cos(Value x) { return made({}, 15, x, x); }
  Value floor(Value x) { return made({x.nonnegative}, 16, x, x); }
  Value nearest(Value x) { return made({x.nonnegative}, 17, x, x); }
  Value max(Value x, Value y) {
    if (x.id == lowest_) return y;
    if (y.id == lowest_) return x;
    return made({x.nonnegative || y.nonnegative, x.positive || y.positive, x.positive || y.positive}, 18, x, y);
  }
  Value min(Value x, Value y) {
    const bool positive = x.positive && y.positive;
    return made({x.nonnegative && y.nonnegative, positive, positive}, 19, x, y);
  }
  Value pow(Value x, Value y) {
    fails_ |= !x.positive;
    return made({true, true, true}, 20, x, y);
  }
  Value equal(Value x, Value y) { return made({true}, 21, x, y); }
  Value less(Value x, Value y) { return made({true}, 22, x, y); }
  Value select(Value c, Value x, Value y) {
    Value out = made({x.nonnegative && y.nonnegative, x.positive && y.positive, x.is_solid && y.is_solid}, 23, x, y);
    out.id = hash_combine(out.id, c.id);
    return out;
  }
  Value round(Value x, DType t) { return made({x.nonnegative}, 24 + static_cast<uint64_t>(t), x, x); }   // what is small may become 0

  bool fails() const { return fails_; }

 private:
  struct Known { bool nonnegative = false, positive = false, is_solid = false; };

  /// What an infinity takes part in might be 0, or nothing at all.
  Value made(Known k, uint64_t fn, const Value& x, const Value& y) {
    const bool is_infinite = x.is_infinite || y.is_infinite;
    const uint64_t id = hash_combine(hash_combine(fn, x.id), y.id);
    return {id, k.nonnegative, k.positive && !is_infinite, (k.positive || k.is_solid) && !is_infinite, is_infinite};
  }

  const uint64_t lowest_ = constant(-std::numeric_limits<double>::infinity()).id;
  bool fails_ = false;
};

}  // namespace

bool is_total(const Graph& g) {
  SignAlgebra signs;
  std::vector<Tensor<Signed>> params;
  for (NodeId n : g.inputs()) {
    const auto param = static_cast<size_t>(g.form<Input>(n)->param);
    if (params.size() <= param) params.resize(param + 1);
    Tensor<Signed> x(g.dims(g.node(n).first_value), {});
    for (size_t e = 0; e < x.data.size(); e++) x.data[e] = signs.input(static_cast<uint64_t>(param) << 44 | e);
    params[param] = std::move(x);
  }
  evaluate<SignAlgebra>(g, params, signs);
  return !signs.fails();
}

}  // namespace mirage::verify

// Concatenations that are mapped, reduced and sliced back: the same numbers, and what becomes of programs people write.
#include <regex>

#include <catch2/catch.hpp>

#include "ir/fold/concats.h"
#include "mirage/ir/fold.h"
#include "mirage/spec/text.h"
#include "mirage/support/hash.h"
#include "unit/ir/alike.h"
#include "unit/ir/fold_programs.h"

using namespace mirage;
using namespace mirage::test;

namespace {

int64_t concats(const Graph& g) {
  return std::count_if(g.nodes().begin(), g.nodes().end(), [](const Node& n) { return std::holds_alternative<Concat>(n.op); });
}

/// Something joined along a dimension, what is made of it with other operands, and parts and reductions of that as results.
class JoinedPrograms {
 public:
  explicit JoinedPrograms(uint64_t seed) : rng_(seed), b_(Level::kKernel) {}
  Graph make() {
    const int rank = 2 + static_cast<int>(rng_.below(2));
    dim_ = static_cast<int>(rng_.below(static_cast<uint64_t>(rank)));
    for (int i = 0; i < rank; i++) shape_.push_back(pick({1, 2, 3, 4}));
    values_.push_back(joined());
    shape_ = b_.graph().dims(values_[0]);
    if (rng_.below(3) == 0) values_.push_back(rng_.below(2) ? input(shape_) : joined_again());
    for (uint64_t i = 2 + rng_.below(6); i > 0; i--) step();
    int results = 0;
    const auto users = b_.graph().users();
    const auto last = static_cast<ValueId>(b_.graph().num_values());
    for (ValueId v = 0; v < last; v++) {
      if (!users[static_cast<size_t>(v)].empty() || b_.graph().def_form<Input>(v)) continue;
      b_.add_output(results++, rng_.below(12) ? ended(v) : v, DType::kF32);
    }
    if (results == 0) b_.add_output(0, ended(values_[0]), DType::kF32);
    return remove_dead(b_.graph());
  }

 private:
  int64_t pick(std::vector<int64_t> of) { return of[rng_.below(of.size())]; }
  Dims dims(ValueId v) const { return b_.graph().dims(v); }
  ValueId input(const Dims& d) { return b_.add_input(params_++, {rng_.below(2) ? DType::kF32 : DType::kF16, d}); }
  ValueId product(const Dims& d) {
    Dims a = d, b = d;
    a[d.rank() - 1] = b[d.rank() - 2] = 2;
    return b_.add(MatMul{}, {input(a), input(b)});
  }
  ValueId joined() {
    std::vector<ValueId> parts;
    for (uint64_t i = 2 + rng_.below(3); i > 0; i--) {
      Dims d = shape_;
      d[dim_] = pick({1, 2, 3, 4});
      if (!parts.empty() && rng_.below(9) == 0) parts.push_back(parts[0]);
      else parts.push_back(parts.empty() && rng_.below(9) ? product(d) : input(d));
      if (rng_.below(3) == 0) parts.back() = b_.map(MapFn::kNeg, {parts.back()});
    }
    const ValueId first = b_.add(Concat{dim_}, parts);
    return rng_.below(5) ? first : b_.add(Concat{dim_}, {first, parts[0]});
  }
  /// As long as the first, of other parts.
  ValueId joined_again() {
    Dims a = shape_, b = shape_;
    if (shape_[dim_] < 2) return input(shape_);
    a[dim_] = 1 + static_cast<int64_t>(rng_.below(static_cast<uint64_t>(shape_[dim_] - 1)));
    b[dim_] = shape_[dim_] - a[dim_];
    return b_.add(Concat{dim_}, {input(a), input(b)});
  }
  /// An operand beside v: broadcast along some dimensions, an index, or something made of one.
  ValueId beside(ValueId v) {
    Dims d = dims(v);
    const uint64_t kind = rng_.below(6);
    if (kind == 0) return b_.constant(0.5);
    if (kind == 1) return b_.add(Iota{static_cast<int>(rng_.below(static_cast<uint64_t>(d.rank()))), d}, {});
    if (kind == 2) return v;
    for (int i = 0; i < d.rank(); i++) if (rng_.below(2)) d[i] = 1;
    if (kind == 3) return b_.map(MapFn::kSquare, {input(dims(v))});
    return input(d);
  }
  void step() {
    const ValueId x = values_[rng_.below(values_.size())];
    const Dims d = dims(x);
    const int any = static_cast<int>(rng_.below(static_cast<uint64_t>(d.rank())));
    std::optional<ValueId> out;
    switch (rng_.below(9)) {
      case 0: case 1: case 2:
        out = b_.try_add(Map{std::vector<MapFn>{MapFn::kAdd, MapFn::kMul, MapFn::kSub, MapFn::kMax}[rng_.below(4)]}, {x, beside(x)});
        break;
      case 3: out = b_.try_add(Map{MapFn::kMul}, {x, values_[rng_.below(values_.size())]}); break;
      case 4: {   // softmax
        const ValueId e = b_.map(MapFn::kExp, {b_.map(MapFn::kSub, {x, b_.add(Reduce{ReduceFn::kMax, any, 0}, {x})})});
        out = b_.map(MapFn::kDiv, {e, b_.add(Reduce{ReduceFn::kSum, any, 0}, {e})});
        break;
      }
      case 5: out = b_.try_add(Reduce{rng_.below(2) ? ReduceFn::kSum : ReduceFn::kMax, any, rng_.below(3) ? 0 : pick({2, 3})}, {x}); break;
      case 6: {
        Transpose t;
        for (int i = 0; i < d.rank(); i++) t.perm[static_cast<size_t>(i)] = static_cast<int8_t>((i + any) % d.rank());
        out = b_.add(t, {x});
        break;
      }
      case 7: out = b_.add(Reshape{reshaped(d)}, {x}); break;
      default: out = slice(x, any);
    }
    if (out) values_.push_back(*out);
  }
  std::optional<ValueId> slice(ValueId x, int dim) {
    const auto below = [&](int64_t n) { return static_cast<int64_t>(rng_.below(static_cast<uint64_t>(n))); };
    const int64_t extent = dims(x)[dim], start = below(extent);
    return b_.try_add(Slice{dim, start, start + 1 + below(extent - start), pick({1, 1, 2})}, {x});
  }
  /// An extent of 1 more, two neighbours as one, or one as two.
  Dims reshaped(const Dims& d) {
    Dims out;
    const int at = static_cast<int>(rng_.below(static_cast<uint64_t>(d.rank())));
    const uint64_t kind = rng_.below(3);
    for (int i = 0; i < d.rank(); i++) {
      if (i == at && kind == 0 && d.rank() < 5) out.push_back(1);
      if (i == at && kind == 1 && d[i] % 2 == 0 && d.rank() < 5) out.push_back(d[i] / 2), out.push_back(2);
      else if (i == at && kind == 2 && i + 1 < d.rank()) out.push_back(d[i] * d[i + 1]), i++;
      else out.push_back(d[i]);
    }
    return out;
  }
  /// A part of it, or a reduction, of which no concatenation is needed (mostly).
  ValueId ended(ValueId v) {
    for (int i = 0; i < dims(v).rank(); i++)
      if (dims(v)[i] > 4) v = rng_.below(2) ? b_.add(Slice{i, 0, 1, 1}, {v}) : b_.add(Reduce{ReduceFn::kSum, i, 0}, {v});
    for (int i = 0; i < dims(v).rank() && rng_.below(2); i++) v = b_.add(Reduce{ReduceFn::kMax, i, 0}, {v});
    return v;
  }

  Rng rng_;
  Builder b_;
  Dims shape_;
  int dim_ = 0, params_ = 0;
  std::vector<ValueId> values_;
};

Graph concat_graph(const std::string& body) {
  const auto g = parse_graph("kernel k { " + body + " }");
  INFO((g ? "" : g.errors().front().text));
  REQUIRE(g.ok());
  return *g;
}
/// %a is a product, for concatenations without one stay.
std::string with_product(const std::string& body) {
  static const std::regex a("%a = input 0 : f16\\[([0-9]+),([0-9]+)\\]"), input(" = input ");
  const auto inputs = std::distance(std::sregex_iterator(body.begin(), body.end(), input), std::sregex_iterator());
  return std::regex_replace(
      body, a, "%x0 = input 0 : f16[$1,4] %x1 = input " + std::to_string(inputs) + " : f16[4,$2] %a = matmul %x0 %x1");
}
std::string without(const std::string& body) {
  const auto out = without_concats(concat_graph(with_product(body)));
  return out ? print(*out, "k") : "";
}
std::string as_it_is(const std::string& body) { return print(concat_graph(with_product(body)), "k"); }

}  // namespace

TEST_CASE("programs compute the same without their concatenations, folded or not") {
  int changed = 0, kept = 0;
  for (uint64_t seed = 0; seed < 4000; seed++) {
    const Graph g = JoinedPrograms(seed).make();
    const auto out = without_concats(g);
    kept += concats(g) > 0 && !out;
    if (!out) continue;
    INFO("seed " << seed << "\n" << print(g) << print(*out));
    REQUIRE_FALSE(check_laws(*out));
    REQUIRE(concats(*out) < concats(g));
    changed++;
    require_alike(g, *out, seed, true);
    const Folded f = fold(program_around(g, nullptr));
    REQUIRE(f.folds);
    require_alike(g, f.unfold(f.program.graph), seed, true);
  }
  INFO(changed << " changed, " << kept << " kept theirs");
  REQUIRE(changed > 1500);
  REQUIRE(kept > 300);
}

TEST_CASE("programs of all operators compute the same without concatenations") {
  int changed = 0;
  for (uint64_t seed = 0; seed < 60000; seed++) {
    const Graph g = FoldPrograms(seed).make();
    const auto out = without_concats(g);
    if (!out) continue;
    INFO("seed " << seed << "\n" << print(g) << print(*out));
    REQUIRE_FALSE(check_laws(*out));
    REQUIRE(concats(*out) < concats(g));
    changed++;
    require_alike(g, *out, seed, true);
  }
  INFO(changed << " changed");
  REQUIRE(changed > 8);
}

namespace {
const std::string kScores = "%a = input 0 : f16[8,64] %t = input 1 : f16[8,1] %c = concat 1 %a %t ";
const std::string kSoftmax = "%m = reduce.max 1 %c %e = exp (sub %c %m) %y = div %e (reduce.sum 1 %e) ";
}  // namespace

TEST_CASE("what is made of a concatenation part by part") {
  // A sink: scores and one more logit for the softmax, of which only the scores go on.
  CHECK(without(kScores + kSoftmax + "output 0 (slice 1 0:64 %y) : f16") ==
        as_it_is("%a = input 0 : f16[8,64] %t = input 1 : f16[8,1] %n = reduce.max 1 %a %m = maximum %n %t %d = sub %a %m %u = sub %t %m "
                 "%e = exp %d %f = exp %u %b = reduce.sum 1 %e %z = add %b %f %y = div %e %z output 0 %y : f16"));
  // Other operands: an input and positions are sliced, what is broadcast is not.
  CHECK(without("%a = input 0 : f16[8,24] %b = input 1 : f16[8,40] %c = concat 1 %a %b %g = input 2 : f16[64] %h = input 3 : f16[8,1] "
                "output 0 (reduce.sum 1 (mul (mul %c %g) %h)) : f16") ==
        as_it_is("%a = input 0 : f16[8,24] %b = input 1 : f16[8,40] %g = input 2 : f16[64] %h = input 3 : f16[8,1] %u = slice 0 0:24 %g "
                 "%x = mul %a %u %v = slice 0 24:64 %g %y = mul %b %v %p = mul %x %h %q = mul %y %h %r = reduce.sum 1 %p %s = reduce.sum 1 "
                 "%q %z = add %r %s output 0 %z : f16"));
  // Reductions along other dimensions, and a slice over a border.
  CHECK(without("%a = input 0 : f16[8,24] %b = input 1 : f16[8,40] %c = concat 1 %a %b output 0 (reduce.max 1 (slice 1 20:30 (reduce.sum 0 "
                "%c))) : f16") ==
        as_it_is("%a = input 0 : f16[8,24] %b = input 1 : f16[8,40] %r = reduce.sum 0 %a %s = reduce.sum 0 %b %u = slice 1 20:24 %r %v = "
                 "slice 1 0:6 %s %m = reduce.max 1 %u %n = reduce.max 1 %v %z = maximum %m %n output 0 %z : f16"));
  // A dimension that a reshape takes apart between the parts.
  CHECK(without("%a = input 0 : f16[8,24] %b = input 1 : f16[8,40] %c = concat 1 %a %b %r = reshape [8,8,8] %c "
                "output 0 (reduce.sum 1 %r) : f16") ==
        as_it_is("%a = input 0 : f16[8,24] %b = input 1 : f16[8,40] %u = reshape [8,3,8] %a %v = reshape [8,5,8] %b "
                 "%m = reduce.sum 1 %u %n = reduce.sum 1 %v %z = add %m %n output 0 %z : f16"));
}

TEST_CASE("concatenations that something needs stay") {
  CHECK(without(kScores + kSoftmax + "output 0 %y : f16").empty());
  CHECK(without(kScores + kSoftmax + "output 0 (slice 1 0:64 %y) : f16 output 1 %c : f16").empty());
  CHECK(without(kScores + kSoftmax + "%v = input 2 : f16[65,8] output 0 (matmul %y %v) : f16").empty());
  CHECK(without(kScores + kSoftmax + "output 0 (slice 1 3:65 %y) : f16").empty());   // over the border
  CHECK(without("%a = input 0 : f16[8,24] %c = concat 1 %a %a output 0 (reduce.sum 1 %c) : f16").empty());   // a repetition
  // One that meets another along another dimension, and one that meets one that stays.
  CHECK(without("%a = input 0 : f16[8,2] %b = input 1 : f16[8,6] %d = input 2 : f16[2,8] %e = input 3 : f16[6,8] output 0 (reduce.sum 1 "
                "(add (concat 1 %a %b) (concat 0 %d %e))) : f16")
            .empty());
  CHECK(without("%a = input 0 : f16[8,2] %b = input 1 : f16[8,6] %d = input 2 : f16[8,3] %e = input 3 : f16[8,5] %z = add (concat 1 %a %b) "
                "(concat 1 %d %e) output 0 (reduce.sum 1 %z) : f16 output 1 %z : f16")
            .empty());
  // No product is near.
  const auto alone = concat_graph("%a = input 0 : f16[8,2]  %b = input 1 : f16[8,6] output 0 (reduce.sum 1 (concat 1 %a %b)) : f16");
  CHECK_FALSE(without_concats(alone));
  // One of two goes.
  const auto one = without_concats(
      concat_graph(with_product("%a = input 0 : f16[8,2] %b = input 1 : f16[8,6] %c = concat 1 %a %b %d = concat 1 %b %a "
                                "output 0 (reduce.sum 1 (exp %c)) : f16 output 1 (exp %d) : f16")));
  REQUIRE(one);
  CHECK(concats(*one) == 1);
  // A reshape that joins other dimensions into the border, groups that lie over it, too many parts.
  CHECK(without("%a = input 0 : f16[8,24] %b = input 1 : f16[8,40] %c = concat 1 %a %b output 0 (reduce.sum 0 (reshape [512] %c)) : f16")
            .empty());
  CHECK(without("%a = input 0 : f16[8,20] %b = input 1 : f16[8,44] %c = concat 1 %a %b "
                "output 0 (slice 1 0:2 (reduce.sum 1 group 8 %c)) : f16")
            .empty());
  CHECK(without("%a = input 0 : f16[8,1] %b = exp %a %c = concat 1 %a %b %a %b %a %b %a %b %a output 0 (reduce.sum 1 %c) : f16").empty());
}

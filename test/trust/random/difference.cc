// Inputs on which two graphs differ, looked for where differences hide.
#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trust/random/pairs.h"
#include "trust/random/pull_eval.h"

namespace mirage::test {

namespace {

/// Every literal of a graph and of what it calls: values on both sides of it are drawn.
void literals(const Graph& g, std::set<double>& out) {
  for (const Node& n : g.nodes()) {
    if (const auto* c = std::get_if<Const>(&n.op); c && std::isfinite(c->value)) out.insert(c->value);
    if (const auto* c = std::get_if<Call>(&n.op)) literals(*c->body, out);
  }
}

class Drawer {
 public:
  Drawer(std::vector<double> literals, uint64_t seed) : literals_(std::move(literals)), rng_(seed) {}

  std::vector<Array<double>> draw(const Graph& g, int round) {
    std::vector<Array<double>> out(static_cast<size_t>(g.num_params()));
    const uint64_t kind = static_cast<uint64_t>(round) % 9;
    for (NodeId n : g.inputs()) {
      const Type& t = g.type(g.node(n).first_value);
      Array<double>& x = out[static_cast<size_t>(g.form<Input>(n)->param)];
      x.dims = extents_of(t.dims);
      x.data.resize(static_cast<size_t>(count_of(x.dims)));
      if (t.dtype == DType::kBool) mask(x, round);
      else for (double& v : x.data) v = stored_as(number(kind), t.dtype);
      if (t.dtype != DType::kBool && kind == 4 && n > 0) x.data = tied(out, x.data);
    }
    return out;
  }

 private:
  double sign() { return rng_.below(2) ? 1 : -1; }
  double number(uint64_t kind) {
    switch (kind) {
      case 0: return 2 * rng_.uniform() - 1;
      case 1: return 0.1 + rng_.uniform();
      case 2: return -0.1 - 2 * rng_.uniform();
      case 3: return std::floor(7 * rng_.uniform()) - 3;
      case 4: return std::floor(5 * rng_.uniform()) * 0.5 - 1;
      case 5: case 6: return around_literal(kind == 6);
      case 7: return sign() * std::exp2(30 * rng_.uniform() - 15);
      default: return rng_.below(3) ? 3 * rng_.uniform() - 1.5 : around_literal(true);
    }
  }
  double around_literal(bool may_be_equal) {
    if (literals_.empty() || rng_.below(4) == 0) return 8 * rng_.uniform() - 4;
    const double c = literals_[rng_.below(literals_.size())];
    switch (may_be_equal ? rng_.below(6) : 1 + rng_.below(5)) {
      case 0: return c;
      case 1: return c + 2 * rng_.uniform();
      case 2: return c - 2 * rng_.uniform();
      case 3: return c * (1 + 0.5 * rng_.uniform());
      case 4: return 1.5 * c + 1;
      default: return -c - rng_.uniform();
    }
  }
  /// Some elements equal those of an earlier input of the same size.
  std::vector<double> tied(const std::vector<Array<double>>& before, std::vector<double> x) {
    for (const auto& y : before)
      if (y.data.size() == x.size() && &y.data != &x) for (size_t i = 0; i < x.size(); i++) if (rng_.below(2)) x[i] = y.data[i];
    return x;
  }
  void mask(Array<double>& x, int round) {
    const int64_t cols = x.dims.back(), rows = count_of(x.dims) / cols;
    for (int64_t r = 0; r < rows; r++) {
      const uint64_t shape = (static_cast<uint64_t>(round) + (round % 2 ? rng_.below(8) : 0)) % 8;
      const int64_t k = static_cast<int64_t>(rng_.below(static_cast<uint64_t>(cols))), band = 1 + static_cast<int64_t>(rng_.below(4));
      for (int64_t c = 0; c < cols; c++) {
        const bool bits[] = {rng_.below(4) != 0, true, false, c <= k, c >= k, c == k, c >= k && c < k + band, c < cols / 2};
        x.data[static_cast<size_t>(r * cols + c)] = bits[shape];
      }
    }
  }
  std::vector<double> literals_;
  Rng rng_;
};

std::vector<Array<Noisy>> exact(const std::vector<Array<double>>& x) {
  std::vector<Array<Noisy>> out;
  for (const auto& a : x) out.push_back({a.dims, {a.data.begin(), a.data.end()}});
  return out;
}

/// Farther apart than their errors: finite, and not where a float would be infinite.
bool are_apart(const Noisy& u, const Noisy& v) {
  if (!std::isfinite(u.v) || !std::isfinite(v.v) || std::fabs(u.v) > 1e30L || std::fabs(v.v) > 1e30L) return false;
  return std::fabs(u.v - v.v) > 2 * (u.e + v.e) + std::max(std::fabs(u.v), std::fabs(v.v)) * 1e-13L + 1e-300L;
}

/// Draws of which no value is a literal of the graphs or a small number: what is defined there is defined on more than single points.
bool is_generic(int round) { return round % 9 != 3 && round % 9 != 4 && round % 9 != 6 && round % 9 != 8; }

/// Where each of two graphs was finite in all such draws together.
struct Domains { int64_t both = 0, first = 0, second = 0; };

/// The first element where both graphs are finite and far apart.
std::optional<std::string> apart(const Graph& a, const Graph& b, const std::vector<Array<double>>& x, bool counts, Domains& domains) {
  left_range() = false;
  const auto al = OwnEvaluator<Noisy>::run(a, exact(x)), bl = OwnEvaluator<Noisy>::run(b, exact(x));
  counts = counts && !left_range();   // infinite for its size is not undefined
  for (size_t r = 0; r < al.size(); r++)
    for (size_t i = 0; i < al[r].data.size(); i++) {
      const Noisy u = al[r].data[i], v = bl[r].data[i];
      const bool first = std::isfinite(u.v), second = std::isfinite(v.v);
      if (counts) (first && second ? domains.both : first ? domains.first : domains.second) += first || second;
      if (are_apart(u, v))
        return fmt::format("output {} element {}: {:.17g} and {:.17g}", r, i, static_cast<double>(u), static_cast<double>(v));
    }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> difference(const Graph& a, const Graph& b, uint64_t seed, int draws) {
  std::set<double> all;
  literals(a, all);
  literals(b, all);
  Drawer drawer({all.begin(), all.end()}, seed);
  Domains domains;
  for (int round = 0; round < draws; round++)
    if (auto where = apart(a, b, drawer.draw(a, round), is_generic(round), domains)) return fmt::format("draw {}: {}", round, *where);
  if (domains.both == 0 && domains.first > 0) return fmt::format("the first is finite {} times, where the second never is", domains.first);
  return std::nullopt;
}

std::optional<std::string> difference_of_large(const Graph& a, const Graph& b, uint64_t seed, int elements) {
  Rng rng(seed);
  const Dims dims = a.dims(a.node(a.outputs()[0]).operands[0]);
  for (int e = 0; e < elements; e++) {
    const auto kind = static_cast<uint64_t>(e) % 4;
    const auto input = [&](int param, const Type& t, int64_t offset) {
      const double u =
          static_cast<double>(mix64(seed ^ mix64(static_cast<uint64_t>(param) * 1000003 + static_cast<uint64_t>(offset))) >> 11) * 0x1p-53;
      if (t.dtype == DType::kBool) return u < 0.75 ? 1.0 : 0.0;
      return stored_as(kind == 0 ? 2 * u - 1 : kind == 1 ? u : kind == 2 ? std::floor(5 * u) - 2 : 20 * u - 10, t.dtype);
    };
    Extents at;
    for (int64_t d : dims) {   // the ends, and anywhere
      const uint64_t where = rng.below(4);
      at.push_back(where == 0   ? 0
                   : where == 1 ? d - 1
                   : where == 2 ? d - 1 - static_cast<int64_t>(rng.below(static_cast<uint64_t>(std::max<int64_t>(1, d / 4))))
                                : static_cast<int64_t>(rng.below(static_cast<uint64_t>(d))));
    }
    constexpr int64_t kSteps = 400'000;
    PullEvaluator<Noisy> al(a, input, kSteps), bl(b, input, kSteps);
    const Noisy u = al.result(0, at), v = bl.result(0, at);
    if (are_apart(u, v))
      return fmt::format("element [{}]: {:.17g} and {:.17g}", fmt::join(at, ","), static_cast<double>(u), static_cast<double>(v));
  }
  return std::nullopt;
}

}  // namespace mirage::test

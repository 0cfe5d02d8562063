// fp64 evaluation of two graphs on random inputs of several kinds, and what counts as a clear difference.
#include "verify/reals.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "mirage/support/hash.h"

namespace mirage::verify {
namespace {

/// Notes the largest addend, so that what cancellation loses is not taken for a difference.
struct WatchedDouble : DoubleAlgebra {
  double peak = 0;
  bool is_shaky = false;   ///< something was decided by rounding: a divisor, radicand or comparison that is 0 but for it
  double div(double x, double y) { shaky(y); return x / y; }
  double sqrt(double x) { if (x < 0) shaky(x); return DoubleAlgebra::sqrt(x); }
  double log(double x) { shaky(x); return DoubleAlgebra::log(x); }
  double less(double x, double y) { shaky(x - y, std::max(std::fabs(x), std::fabs(y))); return x < y; }
  double equal(double x, double y) { shaky(x - y, std::max(std::fabs(x), std::fabs(y))); return x == y; }
  void shaky(double x, double size = 0) { is_shaky |= x != 0 && std::fabs(x) <= 1e-10 * std::max(size, peak); }
  double add(double x, double y) { watch(x); watch(y); return x + y; }
  double sub(double x, double y) { watch(x); watch(y); return x - y; }
  void gemm(int64_t m, int64_t n, int64_t k, const double* x, const double* y, double* dst) {
    std::fill(dst, dst + m * n, 0.0);
    for (int64_t i = 0; i < m; i++)
      for (int64_t l = 0; l < k; l++)
        for (int64_t j = 0; j < n; j++) dst[i * n + j] += x[i * k + l] * y[l * n + j];
    double a = 0, b = 0;
    for (int64_t i = 0; i < m * k; i++) if (std::isfinite(x[i])) a = std::max(a, std::fabs(x[i]));
    for (int64_t i = 0; i < k * n; i++) if (std::isfinite(y[i])) b = std::max(b, std::fabs(y[i]));
    watch(a * b);
  }
  void watch(double x) { if (const double m = std::fabs(x); m > peak && std::isfinite(m)) peak = m; }
};

double normal(Rng& rng) { return std::sqrt(-2 * std::log(1 - rng.uniform())) * std::cos(6.283185307179586 * rng.uniform()); }

constexpr int kKinds = 6;
constexpr int64_t kLarge = 1 << 20;   // input elements from which one kind of input must do: true-size spot checks
double draw(int kind, Rng& rng) {
  switch (kind) {
    case 0: return normal(rng);
    case 1: return 0.5 + rng.uniform();                      // where roots and logarithms are defined
    case 2: return normal(rng) * 0.0625;                     // small: an epsilon shows
    case 3: return (rng.uniform() * 2 - 1) * 3;
    case 5: return -0.5 - rng.uniform();                     // where they are not, and relu is 0
    default: return static_cast<double>(rng.below(5)) - 2;   // zeros and ties: where a guarded quotient or a comparison decides
  }
}

std::string number(double x) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", x);
  return text;
}

}  // namespace

std::string place(int result, const Dims& dims, int64_t element) {
  std::string at;
  for (int d = dims.rank() - 1; d >= 0; d--) {
    at = std::to_string(element % dims[d]) + (at.empty() ? "" : ",") + at;
    element /= dims[d];
  }
  return "output " + std::to_string(result) + " [" + at + "]";
}

std::vector<Type> input_types(const Graph& a, const Graph& b) {
  std::vector<Type> out(static_cast<size_t>(std::max(a.num_params(), b.num_params())));
  for (const Graph* g : {&b, &a})
    for (NodeId n : g->inputs()) out[static_cast<size_t>(g->form<Input>(n)->param)] = g->type(g->node(n).first_value);
  return out;
}

std::optional<Counterexample> real_difference(const Graph& a, const Graph& b, const std::vector<Type>& inputs, uint64_t seed) {
  int64_t size = 0;
  for (const Type& t : inputs) size += t.dims.elements();
  for (int kind = 0; kind < (size > kLarge ? 1 : kKinds); kind++) {
    const uint64_t kind_seed = hash_combine(seed, static_cast<uint64_t>(kind));
    Rng rng(kind_seed);
    std::vector<Tensor<double>> params;
    for (const Type& t : inputs) {
      Tensor<double> x(t.dims, 0.0);
      for (double& v : x.data) v = t.dtype == DType::kBool ? static_cast<double>(rng.below(4) != 0) : round_to(draw(kind, rng), t.dtype);
      params.push_back(std::move(x));
    }
    WatchedDouble wa, wb;
    const auto ra = evaluate<WatchedDouble>(a, params, wa), rb = evaluate<WatchedDouble>(b, params, wb);
    if (kind == 4 && (wa.is_shaky || wb.is_shaky)) continue;   // exact zeros are what this kind is for; rounding must not make or lose them
    const double noise = 1e-12 * std::max(wa.peak, wb.peak);
    for (size_t r = 0; r < ra.size(); r++) {
      double scale = 0;
      for (double v : ra[r].data) if (std::isfinite(v)) scale = std::max(scale, std::fabs(v));
      for (size_t i = 0; i < ra[r].data.size(); i++) {
        const double x = ra[r].data[i], y = rb[r].data[i];
        if (!std::isfinite(x)) continue;
        const bool differs = !std::isfinite(y) || std::fabs(x - y) > std::max({1e-8 * std::max(scale, std::fabs(y)), noise, 1e-300});
        if (differs) return Counterexample{place(static_cast<int>(r), ra[r].dims, static_cast<int64_t>(i)), number(x), number(y), kind_seed};
      }
    }
  }
  return std::nullopt;
}

}  // namespace mirage::verify

// The device library's functions for results of 16 bits (runtime/elements/02_narrow.cuh), with the arithmetic of the device but for its
// three approximations (PTX ISA: ex2, lg2, rcp .approx.ftz, each within 2^-22 of its result or, lg2 near 1, of 1), beside doubles.
#include <cmath>
#include <limits>

#include <catch2/catch.hpp>

#define MO_APPROXIMATE
#define MO_FN inline
#define MO_PACK1(f)
namespace mo {
// each off by as much as the hardware's may be, up or down
inline float off(double exact, int sign) { return static_cast<float>(exact * (1 + sign * 0x1p-22)); }
inline int sign_of_error = 1;
inline float approximate_exp2(float x) { return off(std::exp2(static_cast<double>(x)), sign_of_error); }
inline float approximate_log2(float x) {
  return static_cast<float>(std::log2(static_cast<double>(x)) + sign_of_error * 0x1p-22);
}
inline float approximate_inverse(float x) { return off(1 / static_cast<double>(x), -sign_of_error); }
}  // namespace mo
#include "codegen/runtime/elements/02_narrow.cuh"

namespace {

using One = float (*)(float);
struct Row { const char* name; One narrow; double (*exact)(double); double least, most; };
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double normal(double x) { return 0.5 * std::erfc(-x * 0.70710678118654752440); }
double gelu_tanh(double x) { return x * sigmoid(2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)); }

// Beyond the ends the result is 0 or x to the last bit of any 16-bit type, or what float32 has not.
const Row kRows[] = {
    {"sigmoid", mo::sigmoid_narrow, sigmoid, -80, 80},
    {"silu", mo::silu_narrow, [](double x) { return x * sigmoid(x); }, -80, 80},
    {"expm1", mo::expm1_narrow, [](double x) { return std::expm1(x); }, -80, 80},
    {"tanh", mo::tanh_narrow, [](double x) { return std::tanh(x); }, -30, 30},
    {"log1p", mo::log1p_narrow, [](double x) { return std::log1p(x); }, -0.9999, 1e6},
    {"gelu", mo::gelu_narrow, [](double x) { return x * normal(x); }, -12, 12},
    {"gelu_tanh", mo::gelu_tanh_narrow, gelu_tanh, -9, 9},
};

double error_at(const Row& r, float x) {
  const double exact = r.exact(static_cast<double>(x));
  return std::fabs(static_cast<double>(r.narrow(x)) - exact) / std::max(std::fabs(exact), 1e-36);
}

}  // namespace

TEST_CASE("functions for results of 16 bits are within 2^-16 of the result") {
  for (const Row& r : kRows)
    for (int sign : {1, -1}) {
      mo::sign_of_error = sign;
      double worst = 0;
      float at = 0;
      const auto look = [&](float x) {
        if (x < r.least || x > r.most) return;
        if (const double e = error_at(r, x); e > worst) worst = e, at = x;
      };
      for (int i = 0; i <= 200000; i++) look(static_cast<float>(r.least + (std::min(r.most, 100.0) - r.least) * i / 200000));
      for (float x = 1e-30f; x < 1e7f; x *= 1.0007f) look(x), look(-x);
      CAPTURE(r.name, sign, at, worst);
      // the argument of an exponential is rounded: |x| units in its last place
      CHECK(worst < 0x1p-16);
    }
}

TEST_CASE("functions for results of 16 bits at the ends of what there is") {
  const float infinity = std::numeric_limits<float>::infinity(), none = std::numeric_limits<float>::quiet_NaN();
  mo::sign_of_error = 1;
  for (const Row& r : kRows) {
    CAPTURE(r.name);
    CHECK(std::isnan(r.narrow(none)));
    CHECK(std::fabs(static_cast<double>(r.narrow(0.0f)) - r.exact(0.0)) < 1e-6);
  }
  CHECK(mo::sigmoid_narrow(infinity) == Approx(1.0f));
  CHECK(mo::sigmoid_narrow(-infinity) == 0.0f);
  CHECK(mo::silu_narrow(infinity) == infinity);
  CHECK(mo::silu_narrow(-1000.0f) == 0.0f);
  CHECK(mo::expm1_narrow(infinity) == infinity);
  CHECK(mo::expm1_narrow(-infinity) == -1.0f);
  CHECK(mo::tanh_narrow(infinity) == 1.0f);
  CHECK(mo::tanh_narrow(-infinity) == -1.0f);
  CHECK(mo::log1p_narrow(infinity) == infinity);
  CHECK(mo::log1p_narrow(-1.0f) == -infinity);
  CHECK(std::isnan(mo::log1p_narrow(-1.5f)));
  CHECK(mo::gelu_narrow(infinity) == infinity);
  CHECK(mo::gelu_narrow(-1000.0f) == 0.0f);
  CHECK(mo::gelu_tanh_narrow(infinity) == infinity);
  CHECK(mo::gelu_tanh_narrow(-1000.0f) == 0.0f);
}

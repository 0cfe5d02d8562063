// Device library: functions for results that are stored in 16 bits: within 2^-16 of the result, of a third of the instructions. Stands behind 00_base.cuh, and includes nothing, so that a
// test on the host can: with MO_APPROXIMATE, which brings three functions of its own (test/unit/codegen/narrow_functions.cc).
#pragma once

namespace mo {

#ifdef __CUDA_ARCH__
MO_FN float approximate_exp2(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
MO_FN float approximate_log2(float x) { float y; asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
MO_FN float approximate_inverse(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
#endif
#if defined(__CUDA_ARCH__) || defined(MO_APPROXIMATE)
MO_FN float sigmoid_narrow(float x) { return approximate_inverse(1.0f + approximate_exp2(x * -1.4426950408889634f)); }
MO_FN float silu_narrow(float x) { return x * sigmoid_narrow(x); }
/// A series where e^x - 1 would lose what it had.
MO_FN float expm1_narrow(float x) {
  const float p = ::fmaf(x, 1.6666667e-1f, 0.5f);
  return ::fabsf(x) < 0.04f ? ::fmaf(x * x, p, x) : approximate_exp2(x * 1.4426950408889634f) - 1.0f;
}
MO_FN float tanh_narrow(float x) {
  const float square = x * x;
  float p = ::fmaf(square, -5.3968254e-2f, 1.3333333e-1f);
  p = ::fmaf(p, square, -3.3333333e-1f);
  const float far = ::copysignf(1.0f - 2.0f * approximate_inverse(1.0f + approximate_exp2(::fabsf(x) * 2.8853900817779268f)), x);
  return ::fabsf(x) < 0.25f ? ::fmaf(x * square, p, x) : far;
}
/// 2 atanh(x / (2 + x)) near 0.
MO_FN float log1p_narrow(float x) {
  const float s = x * approximate_inverse(2.0f + x), square = s * s;
  const float near = 2.0f * s * ::fmaf(::fmaf(square, 0.2f, 3.3333333e-1f), square, 1.0f);
  return ::fabsf(x) < 0.125f ? near : approximate_log2(1.0f + x) * 6.9314718055994531e-1f;
}
/// x Phi(x), where Phi(-|x|) e^(x^2 / 2) is a polynomial of 1 / (1 + 0.3058 |x|) (fitted: within 3e-06 of it).
MO_FN float gelu_narrow(float x) {
  const float a = ::fminf(::fabsf(x), 16.0f), k = approximate_inverse(::fmaf(a, 0.30582368f, 1.0f));
  float p = ::fmaf(k, -0.077286652f, 0.200579811f);
  p = ::fmaf(p, k, -0.00331516192f), p = ::fmaf(p, k, 0.140715858f), p = ::fmaf(p, k, 0.116962662f), p = ::fmaf(p, k, 0.122342147f);
  return ::fmaf(-a, p * k * approximate_exp2(a * a * -0.7213475204444817f), x > 0.0f ? x : x * 0.0f);
}
MO_FN float gelu_tanh_narrow(float x) { return x * sigmoid_narrow(x * ::fmaf(x * x, 7.1354816e-2f, 1.5957691f)); }
#else
MO_FN float sigmoid_narrow(float x) { return sigmoid(x); }
MO_FN float silu_narrow(float x) { return silu(x); }
MO_FN float expm1_narrow(float x) { return ::expm1f(x); }
MO_FN float tanh_narrow(float x) { return ::tanhf(x); }
MO_FN float log1p_narrow(float x) { return ::log1pf(x); }
MO_FN float gelu_narrow(float x) { return mul(mul(constant(0.5f), x), add(constant(1.0f), erf(mul(x, constant(0.707106769f))))); }
MO_FN float gelu_tanh_narrow(float x) {
  return mul(mul(constant(0.5f), x), add(constant(1.0f), tanh(mul(constant(0.797884583f), add(x, mul(constant(0.0447149985f), mul(x, mul(x, x))))))));
}
#endif
MO_PACK1(sigmoid_narrow) MO_PACK1(silu_narrow) MO_PACK1(expm1_narrow) MO_PACK1(tanh_narrow) MO_PACK1(log1p_narrow) MO_PACK1(gelu_narrow) MO_PACK1(gelu_tanh_narrow) MO_PACK1(exp_narrow)

}  // namespace mo

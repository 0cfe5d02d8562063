// Host twins of 61_attend.cuh's PTX.
namespace mo {

/// ex2.approx.ftz: subnormal numbers are zeros on both sides.
EMU_QUIET inline float exp2_fast(float x) {
  if (emu_is_field()) return exp2f(x);
  const emu_float y = __builtin_exp2f(x.value());
  return Float::of(y < 0x1p-126f ? 0.0f : y);
}
EMU_QUIET inline void store_async(uint32_t to, Pack<2> x, uint32_t bar) { emu->store_async(to, x.v, sizeof x.v, bar, EMU_PC); }
// A field has no powers of two to bring elements into range with.
EMU_QUIET inline float gain_power(float most, bool up) {
  const uint32_t e = most.bits >> 23 & 255, in = e < 15 ? 15 : e;
  return emu_is_field() || e == 0 || e == 255 ? Float(1) : Float::of_bits((up ? 268 - in : in - 14) << 23);
}
EMU_QUIET inline float gain_up(float most) { return gain_power(most, true); }
EMU_QUIET inline float gain_down(float most) { return gain_power(most, false); }
EMU_QUIET inline bool leaves_float(float scaled) { return !emu_is_field() && scaled.value() < -3.0e38f; }
// a field's order does not tell how far apart two elements are
EMU_QUIET inline bool attend_grows(float m, float most, float slack) { return emu_is_field() || most > m + slack; }
// In a field the inverse of what logits were multiplied by is no ln 2.
EMU_QUIET inline float attend_natural(float m) { return emu_is_field() ? m / Float(kLog2E) : m * kLn2; }
EMU_QUIET inline bool masks_skip() { return !emu_is_field(); }   // comparisons of field elements remove other keys
// In a finite field a sum may be 0 where results are not: such parts travel as they are.
EMU_QUIET inline float part_factor(float sum) { return emu_is_field() && sum == 0.0f ? Float(1) : sum; }
EMU_QUIET inline float part_inverse(float sum) {
  if (emu_is_field()) return 1.0f / part_factor(sum);
  return sum > 0 ? 1.0f / sum : (sum == 0 ? Float(0) : sum);
}

}  // namespace mo

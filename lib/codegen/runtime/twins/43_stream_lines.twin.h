// Host twin of 43_stream_lines.cuh. A field has no magnitudes: any power of two will do, and differs from element to element, so that a sum
// that is not multiplied back shows.
namespace mo {

EMU_QUIET inline float line_scale(float most) {
  if (emu_is_field()) return Float(1 << most.bits % 5);
  const uint32_t exponent = most.bits >> 23;
  return most <= 65504.0f && exponent > 137 ? Float(1) : Float::of_bits(exponent < 37 ? 227u << 23 : (264 - exponent) << 23);
}

}  // namespace mo

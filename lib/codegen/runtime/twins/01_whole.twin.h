// Host twins of 01_whole.cuh: in a field a stored whole number is a field element's bits, and an index the least number in magnitude that
// has this element.
namespace mo {

EMU_QUIET inline float from_i32(int x) {
  return emu_is_field() ? Float::of_bits(static_cast<uint32_t>(x)) : Float::of(static_cast<emu_float>(x));
}
EMU_QUIET inline float from_i64(long long x) {
  return emu_is_field() ? Float::of_bits(static_cast<uint32_t>(x)) : Float::of(static_cast<emu_float>(x));
}
EMU_QUIET inline long long emu_whole(emu_float x, emu_float most, long long highest) {
  return x != x ? 0 : x >= most ? highest : x <= -most ? -highest - 1 : static_cast<long long>(__builtin_rintf(x));
}
EMU_QUIET inline int to_i32(float x) {
  return static_cast<int>(emu_is_field() ? x.bits : static_cast<uint32_t>(emu_whole(x.value(), 2147483648.0f, 2147483647)));
}
EMU_QUIET inline long long to_i64(float x) {
  return emu_is_field() ? static_cast<int>(x.bits) : emu_whole(x.value(), 9223372036854775808.0f, 9223372036854775807LL);
}
EMU_QUIET inline long long place_i32(int x) { return emu_is_field() ? mirage_field::whole_of(static_cast<uint32_t>(x)) : x; }
EMU_QUIET inline long long place_i64(long long x) { return emu_is_field() ? mirage_field::whole_of(static_cast<uint32_t>(x)) : x; }

}  // namespace mo

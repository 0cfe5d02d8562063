// Host twins of the slots' PTX (65_attend_end.cuh). Clusters run one after another; one that finds a slot empty stands aside until others
// have filled it.
namespace mo {

EMU_QUIET inline uint4 slot_peek(const uint4* p) {
  emu->atomic(p, 16, EMU_PC);
  while (p->x == 0xffffffffu || p->y == 0xffffffffu || p->z == 0xffffffffu || p->w == 0xffffffffu) emu->poll(p, 16, EMU_PC);
  return *p;
}
EMU_QUIET inline void slot_post(uint4* p, uint4 v) {
  emu->atomic(p, 16, EMU_PC);
  const bool empties = v.x == 0xffffffffu && v.y == 0xffffffffu && v.z == 0xffffffffu && v.w == 0xffffffffu;
  const bool empty = p->x == 0xffffffffu && p->y == 0xffffffffu && p->z == 0xffffffffu && p->w == 0xffffffffu;
  if (empties == empty) emu->fail("slot", empties ? "empties an empty slot" : "fills a slot that is full", EMU_PC);
  *p = v;
}

EMU_QUIET inline void pause(uint32_t) {}

// A field's elements are whole numbers below 2^16: they travel as they are.
EMU_QUIET inline uint32_t slot_power(const float (&x)[4]) {
  if (emu_is_field()) return 255;
  uint32_t most = 14u << 23;
  for (const float& y : x) most = most > (y.bits & 0x7fffffffu) ? most : y.bits & 0x7fffffffu;
  return most >> 23;
}
EMU_QUIET inline uint32_t slot_sum(float sum, uint32_t power) { return emu_is_field() ? sum.bits : (sum.bits & 0xffffff00u) | power; }
EMU_QUIET inline uint32_t slot_power(uint32_t word) { return emu_is_field() ? 255 : word & 255; }
EMU_QUIET inline float slot_sum(uint32_t word) { return Float::of_bits(emu_is_field() ? word : word & 0xffffff00u); }

}  // namespace mo

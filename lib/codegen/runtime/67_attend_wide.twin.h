// Host twins of 67_attend_wide.cuh's PTX. Clusters run one after another and the last one is who takes, so a slot that is empty now stays empty.
namespace mo {

EMU_QUIET inline uint4 slot_peek(const uint4* p) {
  emu->atomic(p, 16, EMU_PC);
  const uint4 v = *p;
  if (v.x == 0xffffffffu || v.y == 0xffffffffu || v.z == 0xffffffffu || v.w == 0xffffffffu) emu->fail("deadlock", "waits for a slot that nobody fills", EMU_PC);
  return v;
}
EMU_QUIET inline void slot_post(uint4* p, uint4 v) {
  emu->atomic(p, 16, EMU_PC);
  const bool empties = v.x == 0xffffffffu && v.y == 0xffffffffu && v.z == 0xffffffffu && v.w == 0xffffffffu;
  const bool empty = p->x == 0xffffffffu && p->y == 0xffffffffu && p->z == 0xffffffffu && p->w == 0xffffffffu;
  if (empties == empty) emu->fail("slot", empties ? "empties an empty slot" : "fills a slot that is full", EMU_PC);
  *p = v;
}

}  // namespace mo

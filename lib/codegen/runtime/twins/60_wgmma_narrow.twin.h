// Host twins of 60_wgmma_narrow.cuh's PTX: one per number of accumulators, as there, since a template would lose against what is declared.
namespace mo {

#define MO_NARROW(R)                                                                                                             \
  template <class T, int TB>                                                                                                     \
  EMU_QUIET inline void wgmma_registers(float(&d)[R], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, int add) { \
    const uint32_t a[4] = {a0, a1, a2, a3};                                                                                      \
    emu_wgmma<T>(d, true, 0, a, b, add, TB);                                                                                     \
  }
MO_NARROW(8)
MO_NARROW(16)
MO_NARROW(24)
MO_NARROW(40)
MO_NARROW(48)
MO_NARROW(56)
#undef MO_NARROW

}  // namespace mo

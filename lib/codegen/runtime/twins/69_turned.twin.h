// Host twins of 69_turned.cuh's PTX: wgmma with few columns.
namespace mo {

template <class T, int TB>
EMU_QUIET inline void wgmma_rows(float (&d)[8], uint64_t a, uint64_t b) {
  emu_wgmma<T>(d, false, a, nullptr, b, 1, TB);
}
template <class T, int TB>
EMU_QUIET inline void wgmma_rows(float (&d)[16], uint64_t a, uint64_t b) {
  emu_wgmma<T>(d, false, a, nullptr, b, 1, TB);
}

}  // namespace mo

// Host twin of 41_stream.cuh's PTX (PTX ISA, movmatrix).
namespace mo {

/// Lane l holds elements 2 * (l % 4) and the next of row l / 4, and gets those of column l / 4.
EMU_QUIET inline uint32_t transpose_8x8(uint32_t x) {
  int lane;
  const uint32_t* all = static_cast<const uint32_t*>(emu->gather(0xffffffffu, &x, sizeof x, &lane));
  const auto element = [&](int row, int column) { return all[row * 4 + column / 2] >> (column % 2 * 16) & 0xffffu; };
  return element(lane % 4 * 2, lane / 4) | element(lane % 4 * 2 + 1, lane / 4) << 16;
}

}  // namespace mo

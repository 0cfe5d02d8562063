// Host twins of 30_contract.cuh's PTX: ldmatrix and mma.sync fragments (PTX ISA, warp-level matrix instructions, figures of m8n8 and m16n8k16).
namespace mo {

/// COUNT matrices of 8 x 8 two-byte elements: lane 8 * i + r brings the address of row r of matrix i; lane l gets elements 2 * (l % 4) and the next of row l / 4 (transposed: of column l / 4).
template <int COUNT, bool TRANSPOSED> EMU_QUIET inline void emu_load_matrix(uint32_t* to, const void* p, const void* pc) {
  int lane;
  const void* const* rows = static_cast<const void* const*>(emu->gather(0xffffffffu, &p, sizeof p, &lane));
  if (reinterpret_cast<uintptr_t>(p) % 16 != 0) emu->fail("misaligned access", "a row of ldmatrix begins at a multiple of 16 bytes", pc);
  for (int i = 0; i < COUNT; i++) {
    uint16_t pair[2];
    for (int e = 0; e < 2; e++) {
      const int row = TRANSPOSED ? lane % 4 * 2 + e : lane / 4, column = TRANSPOSED ? lane / 4 : lane % 4 * 2 + e;
      const uint16_t* from = static_cast<const uint16_t*>(rows[i * 8 + row]) + column;
      emu->access(from, 2, 0, pc);
      pair[e] = *from;
    }
    to[i] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
  }
}
EMU_QUIET inline void load_matrix_x4(uint32_t (&r)[4], const void* p) { emu_load_matrix<4, false>(r, p, EMU_PC); }
EMU_QUIET inline void load_matrix_x4_transposed(uint32_t (&r)[4], const void* p) { emu_load_matrix<4, true>(r, p, EMU_PC); }
EMU_QUIET inline void load_matrix_x2(uint32_t (&r)[2], const void* p) { emu_load_matrix<2, false>(r, p, EMU_PC); }
EMU_QUIET inline void load_matrix_x2_transposed(uint32_t (&r)[2], const void* p) { emu_load_matrix<2, true>(r, p, EMU_PC); }

/// What a lane brings to mma.m16n8k16: rows g and g + 8 of A (four elements of each) and column g of B.
struct EmuFragments { Float a[2][4]; Float b[4]; };
template <class T> EMU_QUIET inline Float emu_element(uint32_t pair, int high) {
  const uint16_t bits = static_cast<uint16_t>(high ? pair >> 16 : pair);
  T x;
  __builtin_memcpy(&x, &bits, 2);
  return load(x);
}
template <class T> EMU_QUIET inline void emu_mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  EmuFragments mine;
  for (int row = 0; row < 2; row++)
    for (int k = 0; k < 4; k++) mine.a[row][k] = emu_element<T>(a[row + k / 2 * 2], k % 2);
  for (int k = 0; k < 4; k++) mine.b[k] = emu_element<T>(k < 2 ? b0 : b1, k % 2);
  int lane;
  const EmuFragments* all = static_cast<const EmuFragments*>(emu->gather(0xffffffffu, &mine, sizeof mine, &lane));
  for (int e = 0; e < 4; e++) {
    const EmuFragments *x = all + lane / 4 * 4, *y = all + (lane % 4 * 2 + e % 2) * 4;
    if (emu_is_field()) {
      for (int k = 0; k < 16; k++) d[e] = d[e] + x[k % 8 / 2].a[e / 2][k / 8 * 2 + k % 2] * y[k % 8 / 2].b[k / 8 * 2 + k % 2];
    } else {
      double sum = emu_value(d[e].bits);   // products of two-byte elements are exact, their sum is rounded once
      for (int k = 0; k < 16; k++) sum += static_cast<double>(emu_value(x[k % 8 / 2].a[e / 2][k / 8 * 2 + k % 2].bits)) * static_cast<double>(emu_value(y[k % 8 / 2].b[k / 8 * 2 + k % 2].bits));
      d[e] = Float::of(static_cast<emu_float>(sum));
    }
  }
}
EMU_QUIET inline void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, f16) { emu_mma_16x8x16<f16>(d, a, b0, b1); }
EMU_QUIET inline void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bf16) { emu_mma_16x8x16<bf16>(d, a, b0, b1); }

EMU_QUIET inline uint32_t tf32_low(uint32_t pair, bf16) { return emu_element<bf16>(pair, 0).bits; }
EMU_QUIET inline uint32_t tf32_high(uint32_t pair, bf16) { return emu_element<bf16>(pair, 1).bits; }

/// m16n8k8 in TF32: a lane brings rows g and g + 8 at slots q and q + 4, and column g of B at the same.
struct EmuFragmentsTf32 { uint32_t a[4], b[2]; };
EMU_QUIET inline void mma_16x8x8(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  EmuFragmentsTf32 mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
  if (!emu_is_field()) {   // the hardware reads the upper 19 bits
    for (uint32_t& x : mine.a) x &= 0xffffe000u;
    for (uint32_t& x : mine.b) x &= 0xffffe000u;
  }
  int lane;
  const EmuFragmentsTf32* all = static_cast<const EmuFragmentsTf32*>(emu->gather(0xffffffffu, &mine, sizeof mine, &lane));
  for (int e = 0; e < 4; e++) {
    const EmuFragmentsTf32 *x = all + lane / 4 * 4, *y = all + (lane % 4 * 2 + e % 2) * 4;
    if (emu_is_field()) {
      for (int k = 0; k < 8; k++) d[e] = d[e] + Float::of_bits(x[k % 4].a[e / 2 + k / 4 * 2]) * Float::of_bits(y[k % 4].b[k / 4]);
    } else {
      double sum = emu_value(d[e].bits);
      for (int k = 0; k < 8; k++) sum += static_cast<double>(emu_value(x[k % 4].a[e / 2 + k / 4 * 2])) * static_cast<double>(emu_value(y[k % 4].b[k / 4]));
      d[e] = Float::of(static_cast<emu_float>(sum));
    }
  }
}

}  // namespace mo

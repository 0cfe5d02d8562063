// Host twins of 68_tile.cuh's PTX: wgmma with the 64-row operand transposed in shared memory, or in TF32 from registers.
namespace mo {

/// Reads the shared operands once somebody waits, by descriptor: A turned (line k, 64 elements along it are rows) or not, B lines along the
/// reduction, or across it in runs of 64.
struct EmuTileWgmma {
  uint64_t a, b;
  int columns, turned, across, users;
  bool is_bf16, is_tf32, decoded;
  EmuTerm A[64][16], B[256][16];
};
struct EmuTilePart { EmuTileWgmma* shared; };
/// A thread's part. What the accumulators held before comes from them, or from the one before it on the same ones (`next` of which this is)
/// when that has run; registers of products on their way hold poison.
struct EmuTileMine { EmuTileWgmma* shared; float* d; Float before[128]; int member; EmuTileMine *next, *link; };
/// The youngest on its way of each accumulators, by their place; lists from the youngest.
inline EmuTileMine* emu_tile_open[1024];
EMU_QUIET inline EmuTileMine** emu_tile_bucket(const float* d) { return &emu_tile_open[reinterpret_cast<uint64_t>(d) / 64 % 1024]; }

/// A word as an operand in TF32: the hardware reads its upper 19 bits.
EMU_QUIET inline EmuTerm emu_tf32_term(uint32_t bits) { return emu_is_field() ? emu_field_term(bits) : emu_decode<8, 10>(bits >> 13); }
/// An element of four bytes of a swizzled tile.
EMU_QUIET inline EmuTerm emu_swizzled_word(uint64_t descriptor, uint32_t offset) {
  uint32_t at = (static_cast<uint32_t>(descriptor & 0x3fff) << 4) + offset;
  at ^= (at >> 7 & 7) << 4;
  const void* p = emu->shared_pointer(at | emu_thread.cluster_rank << 24, 4, EMU_PC);
  emu->access_async(p, 4, EMU_PC);
  uint32_t bits;
  __builtin_memcpy(&bits, p, 4);
  return emu_tf32_term(bits);
}
EMU_QUIET inline void emu_tile_operands(EmuTileWgmma& w) {
  const uint32_t group_a = static_cast<uint32_t>(w.a >> 32 & 0x3fff) << 4, group_b = static_cast<uint32_t>(w.b >> 32 & 0x3fff) << 4;
  if (w.b >> 62 != 1 || (!w.is_tf32 && w.a >> 62 != 1)) emu->fail("wgmma", "a matrix descriptor without 128-byte swizzle", EMU_PC);
  for (int n = 0; n < w.columns; n++)
    for (int k = 0; k < (w.is_tf32 ? 8 : 16); k++) {
      const uint32_t row = static_cast<uint32_t>(n), step = static_cast<uint32_t>(k);
      const uint32_t next_b = static_cast<uint32_t>(w.b >> 16 & 0x3fff) << 4;
      const uint32_t line = w.across ? row / 64 * next_b + step / 8 * group_b + step % 8 * 128 : row / 8 * group_b + row % 8 * 128;
      const uint32_t along = w.across ? row % 64 : step;
      w.B[n][k] = w.is_tf32 ? emu_swizzled_word(w.b, line + along * 4) : emu_swizzled(w.b, line + along * 2, w.is_bf16);
    }
  for (int m = 0; m < 64 && !w.is_tf32; m++)
    for (int k = 0; k < 16; k++) {
      const uint32_t line = static_cast<uint32_t>(w.turned ? k : m), along = static_cast<uint32_t>(w.turned ? m : k);
      w.A[m][k] = emu_swizzled(w.a, line / 8 * group_a + line % 8 * 128 + along * 2, w.is_bf16);
    }
  w.decoded = true;
}
EMU_QUIET inline void emu_tile_run(void* data) {
  EmuTileMine& mine = *static_cast<EmuTileMine*>(data);
  EmuTileWgmma& w = *mine.shared;
  if (!w.decoded) emu_tile_operands(w);
  const int t = mine.member;
  Float* const d = mine.before;
  for (int i = 0; i < w.columns / 2; i++) {
    const EmuTerm *x = w.A[16 * (t / 32) + t % 32 / 4 + 8 * (i / 2 % 2)], *y = w.B[8 * (i / 4) + 2 * (t % 4) + i % 2];
    const auto quad = [=](int k, EmuQuad& u, EmuQuad& v) __attribute__((always_inline)) {
      __builtin_memcpy(&u, x + 4 * k, sizeof u), __builtin_memcpy(&v, y + 4 * k, sizeof v);
    };
    d[i] = w.is_tf32 ? emu_dot<10, 8>(d[i], quad) : w.is_bf16 ? emu_dot<7, 16>(d[i], quad) : emu_dot<10, 16>(d[i], quad);
  }
  for (int i = 0; i < w.columns / 2; i++) (mine.next ? mine.next->before[i] : mine.d[i]) = d[i];
  EmuTileMine** at = emu_tile_bucket(mine.d);
  while (*at != &mine) at = &(*at)->link;
  *at = mine.link;
  if (!mine.next) emu->leave_registers(mine.d, emu_registers_hash(mine.d, w.columns / 2));
  if (--w.users == 0) __builtin_free(&w);
  __builtin_free(&mine);
}
template <int R>
EMU_QUIET inline void emu_tile_wgmma(float (&d)[R], uint64_t a, const uint32_t* registers, uint64_t b, int turned, bool is_bf16,
                                     int across = 0) {
  const int member = static_cast<int>(emu_thread.thread.x & 127);
  emu->take_registers(d, emu_registers_hash(d, R), registers != nullptr, EMU_PC);
  EmuTilePart part = {nullptr};
  if (member == 0) {
    part.shared = static_cast<EmuTileWgmma*>(__builtin_malloc(sizeof(EmuTileWgmma)));
    part.shared->a = a, part.shared->b = b;
    part.shared->columns = R * 2, part.shared->turned = turned, part.shared->across = across, part.shared->users = 128;
    part.shared->is_bf16 = is_bf16, part.shared->is_tf32 = registers != nullptr, part.shared->decoded = false;
  }
  int self;
  EmuTileWgmma* shared = static_cast<const EmuTilePart*>(emu->gather_group(&part, sizeof part, &self))->shared;
  if (shared->a != a || shared->b != b) emu->fail("wgmma", "warps of a warpgroup bring different descriptors", EMU_PC);
  if (registers != nullptr)
    for (int r = 0; r < 2; r++)
      for (int h = 0; h < 2; h++)
        shared->A[16 * (member / 32) + member % 32 / 4 + 8 * r][4 * h + member % 4] = emu_tf32_term(registers[r + 2 * h]);
  EmuTileMine* mine = static_cast<EmuTileMine*>(__builtin_malloc(sizeof(EmuTileMine)));
  mine->shared = shared, mine->d = d, mine->member = member, mine->next = nullptr;
  EmuTileMine** const bucket = emu_tile_bucket(d);
  EmuTileMine* before = *bucket;
  while (before && before->d != d) before = before->link;
  if (before) before->next = mine;
  mine->link = *bucket;
  *bucket = mine;
  for (int i = 0; i < R; i++) {
    mine->before[i] = d[i];
    d[i] = Float::of_bits(kEmuPending);
  }
  emu->leave_registers(d, emu_registers_hash(d, R));
  emu->gather_group(&part, sizeof part, &self);   // all fragments are there
  emu->defer(emu_tile_run, mine, 0);
}
EMU_QUIET inline void prefetch_line(const void*) {}
EMU_QUIET inline void store_matrix_x2_transposed(void* line, uint32_t first, uint32_t second) {
  int lane;
  const uint32_t two[2] = {transpose_8x8(first), transpose_8x8(second)};   // a pair of neighbours in line lane / 4
  unsigned char* const* lines = static_cast<unsigned char* const*>(emu->gather(0xffffffffu, &line, sizeof line, &lane));
  if (lane < 16 && reinterpret_cast<uintptr_t>(line) % 16 != 0)
    emu->fail("misaligned access", "a line of stmatrix begins at a multiple of 16 bytes", EMU_PC);
  for (int h = 0; h < 2; h++) {
    unsigned char* const to = lines[8 * h + lane / 4] + lane % 4 * 4;
    emu->access(to, 4, 1, EMU_PC);
    __builtin_memcpy(to, &two[h], 4);
  }
}
template <class T, int TA, int TB>
EMU_QUIET inline void wgmma_weight(float (&d)[8], uint64_t a, uint64_t b) {
  emu_tile_wgmma(d, a, nullptr, b, TA, WgmmaIsBf16<T>::value, TB);
}
template <class T, int TA, int TB>
EMU_QUIET inline void wgmma_weight(float (&d)[16], uint64_t a, uint64_t b) {
  emu_tile_wgmma(d, a, nullptr, b, TA, WgmmaIsBf16<T>::value, TB);
}
template <class T, int TA, int TB>
EMU_QUIET inline void wgmma_weight(float (&d)[24], uint64_t a, uint64_t b) {
  emu_tile_wgmma(d, a, nullptr, b, TA, WgmmaIsBf16<T>::value, TB);
}
template <class T, int TA, int TB>
EMU_QUIET inline void wgmma_weight(float (&d)[32], uint64_t a, uint64_t b) {
  emu_tile_wgmma(d, a, nullptr, b, TA, WgmmaIsBf16<T>::value, TB);
}
template <class T, int TA, int TB>
EMU_QUIET inline void wgmma_weight(float (&d)[40], uint64_t a, uint64_t b) {
  emu_tile_wgmma(d, a, nullptr, b, TA, WgmmaIsBf16<T>::value, TB);
}
template <class T, int TA, int TB>
EMU_QUIET inline void wgmma_weight(float (&d)[48], uint64_t a, uint64_t b) {
  emu_tile_wgmma(d, a, nullptr, b, TA, WgmmaIsBf16<T>::value, TB);
}
template <class T, int TA, int TB>
EMU_QUIET inline void wgmma_weight(float (&d)[56], uint64_t a, uint64_t b) {
  emu_tile_wgmma(d, a, nullptr, b, TA, WgmmaIsBf16<T>::value, TB);
}
template <class T, int TA, int TB>
EMU_QUIET inline void wgmma_weight(float (&d)[64], uint64_t a, uint64_t b) {
  emu_tile_wgmma(d, a, nullptr, b, TA, WgmmaIsBf16<T>::value, TB);
}
template <class T, int TA, int TB>
EMU_QUIET inline void wgmma_weight(float (&d)[72], uint64_t a, uint64_t b) {
  emu_tile_wgmma(d, a, nullptr, b, TA, WgmmaIsBf16<T>::value, TB);
}
template <class T, int TA, int TB>
EMU_QUIET inline void wgmma_weight(float (&d)[80], uint64_t a, uint64_t b) {
  emu_tile_wgmma(d, a, nullptr, b, TA, WgmmaIsBf16<T>::value, TB);
}
template <class T, int TA, int TB>
EMU_QUIET inline void wgmma_weight(float (&d)[88], uint64_t a, uint64_t b) {
  emu_tile_wgmma(d, a, nullptr, b, TA, WgmmaIsBf16<T>::value, TB);
}
template <class T, int TA, int TB>
EMU_QUIET inline void wgmma_weight(float (&d)[96], uint64_t a, uint64_t b) {
  emu_tile_wgmma(d, a, nullptr, b, TA, WgmmaIsBf16<T>::value, TB);
}
template <class T, int TA, int TB>
EMU_QUIET inline void wgmma_weight(float (&d)[104], uint64_t a, uint64_t b) {
  emu_tile_wgmma(d, a, nullptr, b, TA, WgmmaIsBf16<T>::value, TB);
}
template <class T, int TA, int TB>
EMU_QUIET inline void wgmma_weight(float (&d)[112], uint64_t a, uint64_t b) {
  emu_tile_wgmma(d, a, nullptr, b, TA, WgmmaIsBf16<T>::value, TB);
}
template <class T, int TA, int TB>
EMU_QUIET inline void wgmma_weight(float (&d)[120], uint64_t a, uint64_t b) {
  emu_tile_wgmma(d, a, nullptr, b, TA, WgmmaIsBf16<T>::value, TB);
}
template <class T, int TA, int TB>
EMU_QUIET inline void wgmma_weight(float (&d)[128], uint64_t a, uint64_t b) {
  emu_tile_wgmma(d, a, nullptr, b, TA, WgmmaIsBf16<T>::value, TB);
}
EMU_QUIET inline void wgmma_weight_tf32(float (&d)[8], const uint32_t (&a)[4], uint64_t b) { emu_tile_wgmma(d, 0, a, b, 0, false); }
EMU_QUIET inline void wgmma_weight_tf32(float (&d)[16], const uint32_t (&a)[4], uint64_t b) { emu_tile_wgmma(d, 0, a, b, 0, false); }
EMU_QUIET inline void wgmma_weight_tf32(float (&d)[24], const uint32_t (&a)[4], uint64_t b) { emu_tile_wgmma(d, 0, a, b, 0, false); }
EMU_QUIET inline void wgmma_weight_tf32(float (&d)[32], const uint32_t (&a)[4], uint64_t b) { emu_tile_wgmma(d, 0, a, b, 0, false); }
EMU_QUIET inline void wgmma_weight_tf32(float (&d)[40], const uint32_t (&a)[4], uint64_t b) { emu_tile_wgmma(d, 0, a, b, 0, false); }
EMU_QUIET inline void wgmma_weight_tf32(float (&d)[48], const uint32_t (&a)[4], uint64_t b) { emu_tile_wgmma(d, 0, a, b, 0, false); }
EMU_QUIET inline void wgmma_weight_tf32(float (&d)[56], const uint32_t (&a)[4], uint64_t b) { emu_tile_wgmma(d, 0, a, b, 0, false); }
EMU_QUIET inline void wgmma_weight_tf32(float (&d)[64], const uint32_t (&a)[4], uint64_t b) { emu_tile_wgmma(d, 0, a, b, 0, false); }

}  // namespace mo

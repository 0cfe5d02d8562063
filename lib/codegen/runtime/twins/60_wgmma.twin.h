// Host twins of 60_wgmma.cuh's PTX. A wgmma reads its shared operands when it is waited for, not before, and until then its accumulators
// hold poison.
namespace mo {

EMU_QUIET inline void wgmma_fence() { emu->fence_registers(); }
EMU_QUIET inline void wgmma_commit() { emu->defer_commit(); }
// .sync.aligned: the lanes of a warp wait together, so one of them may say that operands are free
template <int N> EMU_QUIET inline void wgmma_wait() { emu->defer_wait(N); emu->warp_barrier(0xffffffffu); }
template <int R> EMU_QUIET inline void wgmma_pin(float (&)[R]) {}
EMU_QUIET inline void fence_async_proxy() { emu->fence_async(0); }
template <int N> EMU_QUIET inline void registers_grow() { static_assert(N % 8 == 0 && N >= 24 && N <= 256, "setmaxnreg"); }
template <int N> EMU_QUIET inline void registers_shrink() { static_assert(N % 8 == 0 && N >= 24 && N <= 256, "setmaxnreg"); }
EMU_QUIET inline void named_barrier(int id, int threads) { emu->barrier(id, threads, 1); }
EMU_QUIET inline void named_barrier_arrive(int id, int threads) { emu->barrier(id, threads, 0); }

/// A warpgroup's one instruction: descriptors or A fragments as brought, operands once somebody waits for it.
struct EmuWgmma {
  uint64_t a, b;
  int columns, turned, users;
  bool from_registers, is_bf16, decoded;
  EmuTerm A[64][16], B[128][16];
};
struct EmuWgmmaPart { EmuWgmma* shared; };
struct EmuWgmmaMine { EmuWgmma* shared; float* d; Float before[64]; int add, member; };
/// What an accumulator holds, for the rule of wgmma.fence.
EMU_QUIET inline uint64_t emu_registers_hash(const float* d, int n) {
  uint64_t h = 1469598103934665603ull;
  for (int i = 0; i < n; i++) h = (h ^ d[i].bits) * 1099511628211ull;
  return h;
}
constexpr uint32_t kEmuPending = 0x7fd0b5edu;   // a NaN that nothing computes

/// Byte (line, at) of a tile of 128-byte lines with 128-byte swizzle: eight lines are 1024 bytes (PTX ISA 9.7.15.5.1).
EMU_QUIET inline EmuTerm emu_swizzled(uint64_t descriptor, uint32_t offset, bool is_bf16) {
  uint32_t at = (static_cast<uint32_t>(descriptor & 0x3fff) << 4) + offset;
  at ^= (at >> 7 & 7) << 4;
  const void* p = emu->shared_pointer(at | emu_thread.cluster_rank << 24, 2, EMU_PC);
  emu->access_async(p, 2, EMU_PC);
  uint16_t bits;
  __builtin_memcpy(&bits, p, 2);
  return is_bf16 ? emu_term<bf16>(bits, 0) : emu_term<f16>(bits, 0);
}
EMU_QUIET inline void emu_wgmma_operands(EmuWgmma& w) {
  const uint32_t group = static_cast<uint32_t>(w.b >> 32 & 0x3fff) << 4, next = static_cast<uint32_t>(w.b >> 16 & 0x3fff) << 4;
  if (w.b >> 62 != 1 || (!w.from_registers && w.a >> 62 != 1)) emu->fail("wgmma", "a matrix descriptor without 128-byte swizzle", EMU_PC);
  for (int n = 0; n < w.columns; n++)
    for (int k = 0; k < 16; k++) {
      const uint32_t row = static_cast<uint32_t>(w.turned ? k : n), along = static_cast<uint32_t>(w.turned ? n % 64 : k);
      w.B[n][k] =
          emu_swizzled(w.b, row / 8 * group + row % 8 * 128 + along * 2 + (w.turned ? static_cast<uint32_t>(n) / 64 * next : 0), w.is_bf16);
    }
  for (int m = 0; m < 64 && !w.from_registers; m++)
    for (int k = 0; k < 16; k++)
      w.A[m][k] = emu_swizzled(w.a,
                               static_cast<uint32_t>(m) / 8 * (static_cast<uint32_t>(w.a >> 32 & 0x3fff) << 4) +
                                   static_cast<uint32_t>(m) % 8 * 128 + static_cast<uint32_t>(k) * 2,
                               w.is_bf16);
  w.decoded = true;
}
EMU_QUIET inline void emu_wgmma_run(void* data) {
  EmuWgmmaMine& mine = *static_cast<EmuWgmmaMine*>(data);
  EmuWgmma& w = *mine.shared;
  if (!w.decoded) emu_wgmma_operands(w);
  const int t = mine.member, count = w.columns / 2;
  // else an earlier one of the same accumulators has put its sums there
  if (mine.before[0].bits != kEmuPending) for (int i = 0; i < count; i++) mine.d[i] = mine.before[i];
  for (int i = 0; i < count; i++) {
    const int j = i / 4, r = i / 2 % 2, c = i % 2;
    const EmuTerm *x = w.A[16 * (t / 32) + t % 32 / 4 + 8 * r], *y = w.B[8 * j + 2 * (t % 4) + c];
    const auto quad = [=](int k, EmuQuad& u, EmuQuad& v) __attribute__((always_inline)) {
      __builtin_memcpy(&u, x + 4 * k, sizeof u), __builtin_memcpy(&v, y + 4 * k, sizeof v);
    };
    const Float before = mine.add ? mine.d[i] : Float::of_bits(0);
    mine.d[i] = w.is_bf16 ? emu_dot<7, 16>(before, quad) : emu_dot<10, 16>(before, quad);
  }
  emu->leave_registers(mine.d, emu_registers_hash(mine.d, count));
  if (--w.users == 0) __builtin_free(&w);
  __builtin_free(&mine);
}
template <class T, int R>
EMU_QUIET inline void emu_wgmma(float (&d)[R], bool from_registers, uint64_t a, const uint32_t* registers, uint64_t b, int add,
                                int turned) {
  const int member = static_cast<int>(emu_thread.thread.x & 127);
  emu->take_registers(d, emu_registers_hash(d, R), from_registers, EMU_PC);
  EmuWgmmaPart part;
  part.shared = nullptr;
  if (member == 0) {
    part.shared = static_cast<EmuWgmma*>(__builtin_malloc(sizeof(EmuWgmma)));
    part.shared->a = a, part.shared->b = b;
    part.shared->columns = R * 2, part.shared->turned = turned, part.shared->users = 128;
    part.shared->from_registers = from_registers, part.shared->is_bf16 = WgmmaIsBf16<T>::value, part.shared->decoded = false;
  }
  int self;
  EmuWgmma* shared = static_cast<const EmuWgmmaPart*>(emu->gather_group(&part, sizeof part, &self))->shared;
  if (shared->a != a || shared->b != b) emu->fail("wgmma", "warps of a warpgroup bring different descriptors", EMU_PC);
  if (from_registers)
    for (int r = 0; r < 2; r++)
      for (int k = 0; k < 4; k++)
        shared->A[16 * (member / 32) + member % 32 / 4 + 8 * r][k / 2 * 8 + member % 4 * 2 + k % 2] =
            emu_term<T>(registers[r + k / 2 * 2], k % 2);
  EmuWgmmaMine* mine = static_cast<EmuWgmmaMine*>(__builtin_malloc(sizeof(EmuWgmmaMine)));
  mine->shared = shared, mine->d = d, mine->add = add, mine->member = member;
  for (int i = 0; i < R; i++) {
    mine->before[i] = d[i];
    d[i] = Float::of_bits(kEmuPending);
  }
  emu->leave_registers(d, emu_registers_hash(d, R));
  emu->gather_group(&part, sizeof part, &self);   // all fragments are there
  emu->defer(emu_wgmma_run, mine, 0);
}
template <class T, int TB>
EMU_QUIET inline void wgmma_shared(float (&d)[32], uint64_t a, uint64_t b, int add) {
  emu_wgmma<T>(d, false, a, nullptr, b, add, TB);
}
template <class T, int TB>
EMU_QUIET inline void wgmma_shared(float (&d)[64], uint64_t a, uint64_t b, int add) {
  emu_wgmma<T>(d, false, a, nullptr, b, add, TB);
}
template <class T, int TB>
EMU_QUIET inline void wgmma_registers(float (&d)[32], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, int add) {
  const uint32_t a[4] = {a0, a1, a2, a3};
  emu_wgmma<T>(d, true, 0, a, b, add, TB);
}
template <class T, int TB>
EMU_QUIET inline void wgmma_registers(float (&d)[64], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, int add) {
  const uint32_t a[4] = {a0, a1, a2, a3};
  emu_wgmma<T>(d, true, 0, a, b, add, TB);
}


}  // namespace mo

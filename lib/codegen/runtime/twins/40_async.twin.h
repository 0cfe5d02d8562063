// Host twins of 40_async.cuh's PTX: mbarriers, tensor copies, stores to other blocks that complete on a barrier. Bytes arrive when nothing
// else can run, in an arbitrary order.
namespace mo {

EMU_QUIET inline void release_next() {}     // one launch at a time here
EMU_QUIET inline void await_previous() {}
EMU_QUIET inline void mbarrier_init(uint32_t bar, int arrivals) { emu->mbarrier_init(bar, arrivals, EMU_PC); }
EMU_QUIET inline void mbarrier_publish() { emu->fence_async(1); }
EMU_QUIET inline void mbarrier_expect(uint32_t bar, uint32_t bytes) { emu->mbarrier_arrive(bar, bytes, 0, EMU_PC); }
EMU_QUIET inline void mbarrier_arrive(uint32_t bar) { emu->mbarrier_arrive(bar, 0, 0, EMU_PC); }
EMU_QUIET inline bool mbarrier_test(uint32_t bar, int parity) { return emu->mbarrier_test(bar, parity, 0, EMU_PC); }
EMU_QUIET inline bool mbarrier_test_cluster(uint32_t bar, int parity) { return emu->mbarrier_test(bar, parity, 1, EMU_PC); }
EMU_QUIET inline uint64_t evict_first_policy() { return 0; }
EMU_QUIET inline void copy_box(uint32_t to, const TensorMap& map, int x, int y, uint32_t bar) {
  const EmuBox box{2, {x, y}};
  emu->copy_box(to, &map, &box, bar, EMU_PC);
}
EMU_QUIET inline void copy_box(uint32_t to, const TensorMap& map, int x, int y, uint32_t bar, uint64_t) {
  const EmuBox box{2, {x, y}};
  emu->copy_box(to, &map, &box, bar, EMU_PC);
}
EMU_QUIET inline void copy_box(uint32_t to, const TensorMap& map, int x, int y, int z, uint32_t bar) {
  const EmuBox box{3, {x, y, z}};
  emu->copy_box(to, &map, &box, bar, EMU_PC);
}
EMU_QUIET inline void copy_box(uint32_t to, const TensorMap& map, int x, int y, int z, uint32_t bar, uint64_t) {
  const EmuBox box{3, {x, y, z}};
  emu->copy_box(to, &map, &box, bar, EMU_PC);
}
EMU_QUIET inline void copy_box(uint32_t to, const TensorMap& map, int x, int y, int z, int u, uint32_t bar) {
  const EmuBox box{4, {x, y, z, u}};
  emu->copy_box(to, &map, &box, bar, EMU_PC);
}
EMU_QUIET inline void copy_box(uint32_t to, const TensorMap& map, int x, int y, int z, int u, uint32_t bar, uint64_t) {
  const EmuBox box{4, {x, y, z, u}};
  emu->copy_box(to, &map, &box, bar, EMU_PC);
}
EMU_QUIET inline void copy_box(uint32_t to, const TensorMap& map, int x, int y, int z, int u, int v, uint32_t bar) {
  const EmuBox box{5, {x, y, z, u, v}};
  emu->copy_box(to, &map, &box, bar, EMU_PC);
}
EMU_QUIET inline void copy_box(uint32_t to, const TensorMap& map, int x, int y, int z, int u, int v, uint32_t bar, uint64_t) {
  const EmuBox box{5, {x, y, z, u, v}};
  emu->copy_box(to, &map, &box, bar, EMU_PC);
}
EMU_QUIET inline void store_box(const TensorMap& map, int x, int y, uint32_t from) {
  const EmuBox box{2, {x, y}};
  emu->store_box(&map, &box, from, EMU_PC);
}
EMU_QUIET inline void store_box(const TensorMap& map, int x, int y, int z, uint32_t from) {
  const EmuBox box{3, {x, y, z}};
  emu->store_box(&map, &box, from, EMU_PC);
}
EMU_QUIET inline void store_box(const TensorMap& map, int x, int y, uint32_t from, uint64_t) {
  const EmuBox box{2, {x, y}};
  emu->store_box(&map, &box, from, EMU_PC);
}
EMU_QUIET inline void store_box(const TensorMap& map, int x, int y, int z, uint32_t from, uint64_t) {
  const EmuBox box{3, {x, y, z}};
  emu->store_box(&map, &box, from, EMU_PC);
}
EMU_QUIET inline void store_commit() { emu->store_commit(); }
template <int N> EMU_QUIET inline void store_wait_read() { emu->store_wait(N, EMU_PC); }
EMU_QUIET inline void cluster_arrive_relaxed() { emu->cluster_arrive(0); }
EMU_QUIET inline uint32_t remote_address(uint32_t a, int rank) { return emu->remote_address(a, rank); }
EMU_QUIET inline void store_async(uint32_t to, float x, uint32_t bar) { emu->store_async(to, &x, sizeof x, bar, EMU_PC); }
EMU_QUIET inline void store_async(uint32_t to, Pack<4> x, uint32_t bar) { emu->store_async(to, x.v, sizeof x.v, bar, EMU_PC); }

}  // namespace mo

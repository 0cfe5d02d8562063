// Host twins of 67_wgmma_wide.cuh's copies and barriers between blocks; its wgmma are with the narrower ones in 68_tile.twin.h.
namespace mo {

EMU_QUIET inline void emu_copy_box_to(uint32_t to, const TensorMap& map, const EmuBox& box, uint32_t bar, int blocks) {
  for (int r = 0; r < static_cast<int>(emu_thread.cluster_size); r++)
    if (blocks >> r & 1) emu->copy_box(emu->remote_address(to, r), &map, &box, emu->remote_address(bar, r), EMU_PC);
}
EMU_QUIET inline void copy_box_to(uint32_t to, const TensorMap& map, int x, int y, uint32_t bar, int blocks) {
  emu_copy_box_to(to, map, EmuBox{2, {x, y}}, bar, blocks);
}
EMU_QUIET inline void copy_box_to(uint32_t to, const TensorMap& map, int x, int y, int z, uint32_t bar, int blocks) {
  emu_copy_box_to(to, map, EmuBox{3, {x, y, z}}, bar, blocks);
}
EMU_QUIET inline void mbarrier_arrive_cluster(uint32_t bar) { emu->mbarrier_arrive(bar, 0, 1, EMU_PC); }

}  // namespace mo

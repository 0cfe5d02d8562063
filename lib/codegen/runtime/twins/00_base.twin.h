// Host twins of 00_base.cuh's PTX (lib/emulate/host): what each function does, in terms of the engine's table. Stands behind the device
// library in an emulated text.
namespace mo {

// half a unit up in magnitude: ties away from zero
EMU_QUIET inline uint32_t round_tf32(float x) {
  return emu_is_field() ? x.bits : (x.bits & 0x7f800000u) == 0x7f800000u ? x.bits & 0xffffe000u : (x.bits + 0x1000u) & 0xffffe000u;
}
EMU_QUIET inline uint4 read_now(const uint4* p) { emu->device(p, EMU_PC); emu->access(p, 16, 0, EMU_PC); return *p; }
EMU_QUIET inline uint4 read_once_now(const uint4* p) { emu->device(p, EMU_PC); emu->access(p, 16, 0, EMU_PC); return *p; }
EMU_QUIET inline unsigned read_now(const unsigned* p) { emu->device(p, EMU_PC); emu->access(p, 4, 0, EMU_PC); return *p; }
EMU_QUIET inline uint2 read_now(const uint2* p) { emu->device(p, EMU_PC); emu->access(p, 8, 0, EMU_PC); return *p; }
EMU_QUIET inline int cluster_rank() { return static_cast<int>(emu_thread.cluster_rank); }
EMU_QUIET inline void cluster_arrive() { emu->cluster_arrive(1); }
EMU_QUIET inline void cluster_wait() { emu->cluster_wait(); }
EMU_QUIET inline void store_remote(const float* p, int rank, Pack<4> v) {
  emu->store_remote(emu->remote_address(emu->shared_address(p), rank), v.v, sizeof v.v, EMU_PC);
}

}  // namespace mo

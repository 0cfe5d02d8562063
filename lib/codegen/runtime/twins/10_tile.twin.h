// Host twins of 10_tile.cuh's PTX: asynchronous copies. The engine moves their bytes when their group is waited for, not before.
namespace mo {

template <int N> EMU_QUIET inline void copy_async(void* dst, const void* src, int bytes) { emu->copy_async(dst, src, N, bytes, EMU_PC); }
EMU_QUIET inline void copy_commit() { emu->copy_commit(); }
template <int N> EMU_QUIET inline void copy_wait() { emu->copy_wait(N); }

}  // namespace mo

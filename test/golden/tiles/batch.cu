tile k
  tile: 1 x 1 warpgroups of 64 rows, chunk 64 x 3 stages, cluster 1, 1 per SM
  12 blocks of 192 threads, 49208 bytes of shared memory: ring at 0, barriers at 49152
  barriers ring.full: 3, 2 arrivals, 16384 bytes
  barriers ring.empty: 3, 4 arrivals, 0 bytes
  role weights: 1 warps, 0 registers of a thread
  role rows: 1 warps, 0 registers of a thread
  role work: 4 warps, 32 registers of a thread
// grid 4 x 3 x 1, 192 threads, 49208 bytes of shared memory
// map of 1: offset 0, f16 [256,512,3] strides [512,262144] box [64,64,1], swizzle 128
// map of 0: offset 0, f16 [512,64,3] strides [1024,65536] box [64,64,1], swizzle 128
// writes 2
// 
__global__ void __launch_bounds__(192, 1) k(const __grid_constant__ mo::TensorMap map0, const __grid_constant__ mo::TensorMap map1, void* __restrict__ out0) {
  using namespace mo;
  constexpr int kColumnGroups = 1, kWarps = 4, kTiles = 8, kTail = 8, kGroupRows = 64, kBlockRows = 64, kRowBlocks = 1, kCluster = 1, kStages = 3, kChunk = 64;   // kTiles: 8 rows each; kTail: of them finished here
  constexpr int kM = 64, kN = 256, kDepth = 512, kStage = 16384, kComputed = 49152, kReceived = 49152, kStatistics = 49152, kBarriers = 49152;
  extern __shared__ __align__(1024) unsigned char tile_smem[];
  unsigned char* const smem = tile_smem;
  const int lane = lane_id(), warp = warp_uniform(warp_id()), rank = 0, block = block_id() / kCluster, column0 = block / kRowBlocks * 64, first_row = block % kRowBlocks * kBlockRows;
  const int first = rank * 8, chunks = 8;
  const uint32_t ring = shared_address(smem), full = ring + kBarriers, empty = full + 8 * kStages, met = empty + 8 * kStages;
  if (warp == kWarps && lane == 0) {
    for (int s = 0; s < kStages; s++) { mbarrier_init(full + 8 * s, 2); mbarrier_init(empty + 8 * s, kWarps); }
    mbarrier_publish();
  }
  warp_barrier();
  barrier();
  if (warp == kWarps) {   // brings the weights
    const uint64_t policy = evict_first_policy();
    for (int i = 0; lane == 0 && i < chunks; i++) {
      const int place = i % kStages, k = (first + i) * kChunk;
      if (i >= kStages) mbarrier_wait(empty + 8 * place, (i / kStages - 1) & 1);
      const uint32_t to = ring + place * kStage, bar = full + 8 * place;
      mbarrier_expect(bar, 8192);
      copy_box(to + 0, map0, column0 + 0, k, batch_id(), bar, policy);
    }
    warp_barrier();
    return;
  }
  if (warp == kWarps + 1) {   // and the rows
    for (int i = 0; lane == 0 && i < chunks; i++) {
      const int place = i % kStages, k = (first + i) * kChunk;
      if (i >= kStages) mbarrier_wait(empty + 8 * place, (i / kStages - 1) & 1);
      const uint32_t to = ring + place * kStage, bar = full + 8 * place;
      mbarrier_expect(bar, 8192);
      copy_box(to + 8192, map1, k + 0, first_row, batch_id(), bar);
    }
    warp_barrier();
    return;
  }
  const int group = warp / 4, team = group / kColumnGroups, column = column0 + group % kColumnGroups * 64;   // a team shares rows
  TileSum<kTiles> sum0;
  sum0.clear();
  for (int i = 0; i < chunks; i++) {
    const int place = i % kStages;
    const unsigned char* const stage = smem + place * kStage;
    mbarrier_wait(full + 8 * place, i / kStages & 1);
    const TileWeight<f16, false> w0{stage + 0};
    const uint32_t rows0 = shared_address(stage) + 8192 + team * (kGroupRows * 128);
    wgmma_pin(sum0.d);
    wgmma_fence();
    #pragma unroll
    for (int k = 0; k < 4; k++) {
      tile_add(sum0, w0, rows0, kBlockRows * 128, k);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_pin(sum0.d);
    warp_barrier();
    if (lane == 0) mbarrier_arrive(empty + 8 * place);
  }
  TileSum<kTiles>& total0 = sum0;
  #pragma unroll
  for (int t = 0; t < kTail; t++) {
    const int m = first_row + team * kGroupRows + (rank * kTail + t) * 8 + lane % 4 * 2, c = column + (warp & 3) * 16 + lane / 4;
    const Pack<4> v3 = total0.item(t);
    store_item_lines((f16*)out0 + 0 + batch_id() * int64_t(16384) + (m - lane % 4 * 2) * int64_t(256) + (c - lane / 4), 256, kM - m + lane % 4 * 2, kN - c + lane / 4, v3);
  }
}

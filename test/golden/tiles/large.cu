tile k
  tile: 1 x 2 warpgroups of 192 rows, chunk 64 x 4 stages, cluster 1, 1 per SM, large, 1 share rows
  16 blocks of 320 threads, 163912 bytes of shared memory: ring at 0, barriers at 163840
  barriers ring.full: 4, 2 arrivals, 40960 bytes
  barriers ring.empty: 4, 8 arrivals, 0 bytes
  role weights: 1 warps, 0 registers of a thread
  role rows: 1 warps, 0 registers of a thread
  role work: 8 warps, 96 registers of a thread
// grid 16 x 1 x 1, 320 threads, 163912 bytes of shared memory
// map of 1: offset 0, f16 [1024,1024] strides [2048] box [64,64], swizzle 128
// map of 0: offset 0, f16 [1024,384] strides [2048] box [64,192], swizzle 128
// writes 2
// 
__global__ void __launch_bounds__(320, 1) k(const __grid_constant__ mo::TensorMap map0, const __grid_constant__ mo::TensorMap map1, void* __restrict__ out0) {
  using namespace mo;
  constexpr int kColumnGroups = 2, kWarps = 8, kTiles = 24, kTail = 24, kGroupRows = 192, kBlockRows = 192, kRowBlocks = 2, kCluster = 1, kStages = 4, kChunk = 64;   // kTiles: 8 rows each; kTail: of them finished here
  constexpr int kM = 384, kN = 1024, kDepth = 1024, kStage = 40960, kComputed = 163840, kReceived = 163840, kStatistics = 163840, kBarriers = 163840;
  extern __shared__ __align__(1024) unsigned char tile_smem[];
  unsigned char* const smem = tile_smem;
  constexpr int kSharing = 1, kPanel = 2, kColumns = 8;   // kColumns: clusters beside each other
  const int lane = lane_id(), warp = warp_uniform(warp_id()), rank = 0, share = 0, block = block_id() / kSharing;
  const int panel = block / (kPanel * kColumns), in_panel = block - panel * (kPanel * kColumns), height = kRowBlocks - panel * kPanel < kPanel ? kRowBlocks - panel * kPanel : kPanel;
  const int column0 = (in_panel / height * kSharing + share) * 128, first_row = (panel * kPanel + in_panel % height) * kBlockRows;
  const int first = rank * 16, chunks = 16;
  const uint32_t ring = shared_address(smem), full = ring + kBarriers, empty = full + 8 * kStages, met = empty + 8 * kStages;
  if (warp == kWarps && lane == 0) {
    for (int s = 0; s < kStages; s++) { mbarrier_init(full + 8 * s, 2); mbarrier_init(empty + 8 * s, kWarps); }
    mbarrier_publish();
  }
  warp_barrier();
  barrier();
  if (warp >= kWarps) {   // warps that copy, and leave their registers to the others
    if (warp == kWarps) {   // brings the weights
      for (int i = 0; lane == 0 && i < chunks; i++) {
        const int place = i % kStages, k = (first + i) * kChunk;
        if (i >= kStages) mbarrier_wait(empty + 8 * place, (i / kStages - 1) & 1);
        const uint32_t to = ring + place * kStage, bar = full + 8 * place;
        mbarrier_expect(bar, 16384);
        copy_box(to + 0, map0, column0 + 0, k, bar);
        copy_box(to + 8192, map0, column0 + 64, k, bar);
      }
      warp_barrier();
      return;
    }
    if (warp == kWarps + 1) {   // and the rows
      for (int i = 0; lane == 0 && i < chunks; i++) {
        const int place = i % kStages, k = (first + i) * kChunk;
        if (i >= kStages) mbarrier_wait(empty + 8 * place, (i / kStages - 1) & 1);
        const uint32_t to = ring + place * kStage, bar = full + 8 * place;
        mbarrier_expect(bar, 24576);
        copy_box(to + 16384, map1, k + 0, first_row, bar);
      }
      warp_barrier();
      return;
    }
    return;
  }
  const int group = warp / 4, team = group / kColumnGroups, column = column0 + group % kColumnGroups * 64;   // a team shares rows
  TileSum<kTiles> sum0;
  sum0.clear();
  const auto let_go = [&](int i) {   // of the stage of chunk i, unless nobody waits for it: other blocks may have ended by then
    if (lane == 0 && i + kStages < chunks) mbarrier_arrive(empty + 8 * (i % kStages));
  };
  for (int i = 0; i < chunks; i++) {
    const int place = i % kStages;
    const unsigned char* const stage = smem + place * kStage;
    mbarrier_wait(full + 8 * place, i / kStages & 1);
    const TileWeight<f16, false> w0{stage + 0 + group % kColumnGroups * 8192};
    const uint32_t rows0 = shared_address(stage) + 16384 + team * (kGroupRows * 128);
    wgmma_pin(sum0.d);
    wgmma_fence();
    #pragma unroll
    for (int k = 0; k < 4; k++) {
      tile_add(sum0, w0, rows0, kBlockRows * 128, k);
    }
    wgmma_commit();
    wgmma_wait<1>();   // of the chunk before, whose stage is free now
    if (i > 0) { warp_barrier(); let_go(i - 1); }
  }
  wgmma_wait<0>();
  wgmma_pin(sum0.d);
  TileSum<kTiles>& total0 = sum0;
  named_barrier(4, 32 * kWarps);
  const int tail_row = first_row + team * kGroupRows + rank * kTail * 8, tail_rows = kM - tail_row < kTail * 8 ? kM - tail_row : kTail * 8;
  unsigned char* const staged4 = smem + 0 + group * (kTail * 1024);
  #pragma unroll
  for (int t = 0; t < kTail; t++) {
    const int m = first_row + team * kGroupRows + (rank * kTail + t) * 8 + lane % 4 * 2, c = column + (warp & 3) * 16 + lane / 4;
    const Pack<4> v3 = total0.item(t);
    stage_item<f16>(staged4, t * 8, v3);
  }
  named_barrier(2 + group, 128);
  store_staged<kTail * 8>(staged4, (f16*)out0 + 0 + tail_row * int64_t(1024) + column, 1024, tail_rows, kN - column);
}

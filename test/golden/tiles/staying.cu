tile k
  tile: 1 x 2 warpgroups of 128 rows, chunk 64 x 4 stages, cluster 1, 1 per SM, large, 1 share rows, blocks stay, 64 rows leave at once
  16 blocks of 320 threads, 163912 bytes of shared memory: ring at 0, held0 at 131072, barriers at 163840
  barriers ring.full: 4, 2 arrivals, 32768 bytes
  barriers ring.empty: 4, 8 arrivals, 0 bytes
  role weights: 1 warps, 0 registers of a thread
  role rows: 1 warps, 0 registers of a thread
  role work: 8 warps, 64 registers of a thread
// grid 16 x 1 x 1, 320 threads, 163912 bytes of shared memory
// map of 1: offset 0, f16 [1024,512] strides [2048] box [64,64], swizzle 128
// map of 0: offset 0, f16 [512,512] strides [1024] box [64,128], swizzle 128
// map of 2: offset 0, f16 [1024,512] strides [2048] box [64,64], swizzle 128
// writes 2
// 
__global__ void __launch_bounds__(320, 1) k(const __grid_constant__ mo::TensorMap map0, const __grid_constant__ mo::TensorMap map1, const __grid_constant__ mo::TensorMap map2, void* __restrict__ out0) {
  using namespace mo;
  constexpr int kColumnGroups = 2, kWarps = 8, kTiles = 16, kTail = 16, kGroupRows = 128, kBlockRows = 128, kRowBlocks = 4, kCluster = 1, kStages = 4, kChunk = 64;   // kTiles: 8 rows each; kTail: of them finished here
  constexpr int kM = 512, kN = 1024, kDepth = 512, kStage = 32768, kComputed = 131072, kReceived = 163840, kStatistics = 163840, kBarriers = 163840;
  extern __shared__ __align__(1024) unsigned char tile_smem[];
  unsigned char* const smem = tile_smem;
  constexpr int kSharing = 1, kPanel = 4, kColumns = 8;   // kColumns: clusters beside each other
  const int lane = lane_id(), warp = warp_uniform(warp_id()), rank = 0, share = 0;
  constexpr int chunks = 8, kHeld = 8, kPlaces = 32, kClusters = 16;   // kPlaces: of kSharing tiles each
  const uint32_t ring = shared_address(smem), full = ring + kBarriers, empty = full + 8 * kStages, met = empty + 8 * kStages;
  if (warp == kWarps && lane == 0) {
    for (int s = 0; s < kStages; s++) { mbarrier_init(full + 8 * s, 2); mbarrier_init(empty + 8 * s, kWarps); }
    mbarrier_publish();
  }
  warp_barrier();
  barrier();
  if (warp >= kWarps) {   // warps that copy, and leave their registers to the others
    if (warp == kWarps) {   // brings the weights
      for (int tile = block_id() / kSharing, done = 0; tile < kPlaces; tile += kClusters, done += chunks) {
        const int block = tile;
        const int panel = block / (kPanel * kColumns), in_panel = block - panel * (kPanel * kColumns), height = kRowBlocks - panel * kPanel < kPanel ? kRowBlocks - panel * kPanel : kPanel;
        const int column0 = (in_panel / height * kSharing + share) * 128, first_row = (panel * kPanel + in_panel % height) * kBlockRows;
        for (int i = 0; lane == 0 && i < chunks; i++) {
          const int n = done + i, place = n % kStages, k = i * kChunk;
          if (n >= kStages) mbarrier_wait(empty + 8 * place, (n / kStages - 1) & 1);
          const uint32_t to = ring + place * kStage, bar = full + 8 * place;
          mbarrier_expect(bar, 16384);
          copy_box(to + 0, map0, column0 + 0, k, bar);
          copy_box(to + 8192, map0, column0 + 64, k, bar);
        }
      }
      warp_barrier();
      return;
    }
    if (warp == kWarps + 1) {   // and the rows
      for (int tile = block_id() / kSharing, done = 0; tile < kPlaces; tile += kClusters, done += chunks) {
        const int block = tile;
        const int panel = block / (kPanel * kColumns), in_panel = block - panel * (kPanel * kColumns), height = kRowBlocks - panel * kPanel < kPanel ? kRowBlocks - panel * kPanel : kPanel;
        const int column0 = (in_panel / height * kSharing + share) * 128, first_row = (panel * kPanel + in_panel % height) * kBlockRows;
        for (int i = 0; lane == 0 && i < chunks; i++) {
          const int n = done + i, place = n % kStages, k = i * kChunk;
          if (n >= kStages) mbarrier_wait(empty + 8 * place, (n / kStages - 1) & 1);
          const uint32_t to = ring + place * kStage, bar = full + 8 * place;
          mbarrier_expect(bar, 16384);
          copy_box(to + 16384, map1, k + 0, first_row, bar);
        }
      }
      warp_barrier();
      return;
    }
    return;
  }
  for (int tile = block_id() / kSharing, done = 0; tile < kPlaces; tile += kClusters, done += chunks) {
    const int block = tile;
    const int panel = block / (kPanel * kColumns), in_panel = block - panel * (kPanel * kColumns), height = kRowBlocks - panel * kPanel < kPanel ? kRowBlocks - panel * kPanel : kPanel;
    const int column0 = (in_panel / height * kSharing + share) * 128, first_row = (panel * kPanel + in_panel % height) * kBlockRows;
    const int group = warp / 4, team = group / kColumnGroups, column = column0 + group % kColumnGroups * 64;   // a team shares rows
    TileSum<kTiles> sum0;
    sum0.clear();
    const auto let_go = [&](int i) {   // of the stage of chunk i, unless nobody waits for it: other blocks may have ended by then
      if (lane == 0 && i + kStages < ((kPlaces - 1 - block_id() / kSharing) / kClusters + 1) * chunks) mbarrier_arrive(empty + 8 * (i % kStages));
    };
    for (int i = 0; i < chunks; i++) {
      const int n = done + i, place = n % kStages;
      const unsigned char* const stage = smem + place * kStage;
      mbarrier_wait(full + 8 * place, n / kStages & 1);
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
      if (i > 0) { warp_barrier(); let_go(n - 1); }
    }
    wgmma_wait<0>();
    wgmma_pin(sum0.d);
    warp_barrier();
    let_go(done + chunks - 1);
    TileSum<kTiles>& total0 = sum0;
    #pragma unroll
    for (int t0 = 0; t0 < kTiles; t0 += kHeld) {
      const int turn = t0 / kHeld;
      unsigned char* const staged4 = smem + 131072 + (turn % 2 * 2 + group) * (kHeld * 1024);
      if (thread_id() % 128 == 0) store_wait_read<1>();
      named_barrier(2 + group, 128);
      #pragma unroll
      for (int t = t0; t < t0 + kHeld; t++) {
        const int m = first_row + team * kGroupRows + (rank * kTail + t) * 8 + lane % 4 * 2, c = column + (warp & 3) * 16 + lane / 4;
        const Pack<4> v3 = total0.item(t);
        stage_item<f16>(staged4, (t - t0) * 8, v3);
      }
      fence_async_proxy();
      named_barrier(2 + group, 128);
      if (thread_id() % 128 == 0) {   // a group each time, that the places' turns are counted
        if (column < kN) store_box(map2, column, first_row + team * kGroupRows + t0 * 8, shared_address(staged4));
        store_commit();
      }
    }
  }
  if (thread_id() % 128 == 0) store_wait_read<0>();
}

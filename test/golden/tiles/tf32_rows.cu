tile k
  tile: 2 x 1 warpgroups of 32 rows, chunk 64 x 3 stages, cluster 1, 1 per SM
  16 blocks of 320 threads, 57400 bytes of shared memory: ring at 0, computed at 24576, barriers at 57344
  barriers ring.full: 3, 1 arrivals, 8192 bytes
  barriers ring.empty: 3, 8 arrivals, 0 bytes
  role weights: 1 warps, 0 registers of a thread
  role rows: 1 warps, 0 registers of a thread
  role work: 8 warps, 34 registers of a thread
// grid 16 x 1 x 1, 320 threads, 57400 bytes of shared memory
// map of 2: offset 0, f16 [1024,512] strides [2048] box [64,64], swizzle 128
// reads 0
// reads 1
// writes 3
// 
__global__ void __launch_bounds__(320, 1) k(const __grid_constant__ mo::TensorMap map0, const void* __restrict__ in0, const void* __restrict__ in1, void* __restrict__ out0) {
  using namespace mo;
  constexpr int kColumnGroups = 1, kWarps = 8, kTiles = 4, kTail = 4, kGroupRows = 32, kBlockRows = 64, kRowBlocks = 1, kCluster = 1, kStages = 3, kChunk = 64;   // kTiles: 8 rows each; kTail: of them finished here
  constexpr int kM = 64, kN = 1024, kDepth = 512, kStage = 8192, kComputed = 24576, kReceived = 57344, kStatistics = 57344, kBarriers = 57344;
  extern __shared__ __align__(1024) unsigned char tile_smem[];
  unsigned char* const smem = tile_smem;
  const int lane = lane_id(), warp = warp_uniform(warp_id()), rank = 0, block = block_id() / kCluster, column0 = block / kRowBlocks * 64, first_row = block % kRowBlocks * kBlockRows;
  const int first = rank * 8, chunks = 8;
  const uint32_t ring = shared_address(smem), full = ring + kBarriers, empty = full + 8 * kStages, met = empty + 8 * kStages;
  if (warp == kWarps && lane == 0) {
    for (int s = 0; s < kStages; s++) { mbarrier_init(full + 8 * s, 1); mbarrier_init(empty + 8 * s, kWarps); }
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
      copy_box(to + 0, map0, column0 + 0, k, bar, policy);
    }
    warp_barrier();
    return;
  }
  if (warp == kWarps + 1) {   // and the rows
    {
    }
    warp_barrier();
    return;
  }
  const int group = warp / 4, team = group / kColumnGroups, column = column0 + group % kColumnGroups * 64;   // a team shares rows
  const int member = thread_id() - team * 128, row = team * kGroupRows + member / 4, part = member % 4;   // a row that this thread reads, together with others
  TileSum<kTiles> sum0;
  sum0.clear();
  Vector<f16, 8> x0[2];
  Vector<f16, 8> x1[2];
  const auto hold = [&](int i) {   // asks for what comes through registers
    #pragma unroll
    for (int u = 0; u < 2; u++) {
      const int at = part * 2 + u % 2, box = u / 2, k = (first + i) * kChunk + box * 64 + at * 8;
      (void)k, (void)box;
      x0[u] = load_eight((const f16*)in0 + 0 + (first_row + row) * int64_t(512) + k, first_row + row < kM && k < kDepth);
      x1[u] = load_eight((const f16*)in1 + 0 + k, k < kDepth);
    }
  };
  const auto prepare = [&](int i) {   // rows and statistics from what has come
    unsigned char* const computed = smem + kComputed + i % 2 * 16384;
    #pragma unroll
    for (int u = 0; u < 2; u++) {
      const int at = part * 2 + u % 2, box = u / 2, k = (first + i) * kChunk + box * 64 + at * 8;
      (void)k, (void)box;
      { const auto v0 = to_pack(x0[u]); const auto v1 = to_pack(x1[u]); const auto v2 = mo::mul(v0, v1); put_piece_tf32(computed + 0 + box * (2 * kBlockRows * 128), kBlockRows * 128, row, at, k < kDepth && first_row + row < kM ? v2 : Pack<8>{}); }
    }
  };
  hold(0);
  prepare(0);
  if (1 < chunks) hold(1);
  fence_async_proxy();
  named_barrier(1 + team, 128);
  for (int i = 0; i < chunks; i++) {
    const int place = i % kStages;
    const unsigned char* const stage = smem + place * kStage;
    mbarrier_wait(full + 8 * place, i / kStages & 1);
    const TileWeight<f16, false> w0{stage + 0};
    uint32_t low0[4][4], high0[4][4];
    #pragma unroll
    for (int k = 0; k < 4; k++) tile_widen(low0[k], high0[k], w0, k);
    const uint32_t rows0 = ring + kComputed + i % 2 * 16384 + 0 + team * (kGroupRows * 128);
    wgmma_pin(sum0.d);
    wgmma_fence();
    #pragma unroll
    for (int k = 0; k < 4; k++) {
      tile_add_tf32(sum0, low0[k], high0[k], rows0, kBlockRows * 128, k);
    }
    wgmma_commit();
    if (i + 1 < chunks) {
      prepare(i + 1);
      if (i + 2 < chunks) hold(i + 2);
    }
    wgmma_wait<0>();
    wgmma_pin(sum0.d);
    warp_barrier();
    if (lane == 0) mbarrier_arrive(empty + 8 * place);
    fence_async_proxy();
    named_barrier(1 + team, 128);
  }
  TileSum<kTiles>& total0 = sum0;
  #pragma unroll
  for (int t = 0; t < kTail; t++) {
    const int m = first_row + team * kGroupRows + (rank * kTail + t) * 8 + lane % 4 * 2, c = column + (warp & 3) * 16 + lane / 4;
    const Pack<4> v5 = total0.item(t);
    store_item_lines((f16*)out0 + 0 + (m - lane % 4 * 2) * int64_t(1024) + (c - lane / 4), 1024, kM - m + lane % 4 * 2, kN - c + lane / 4, v5);
  }
}

tile k
  tile: 2 x 1 warpgroups of 32 rows, chunk 64 x 4 stages, cluster 2, 1 per SM
  32 blocks of 320 threads, 115272 bytes of shared memory: ring at 0, received at 98304, statistics at 114688, others at 114944, barriers at 115200
  barriers ring.full: 4, 2 arrivals, 24576 bytes
  barriers met: 1, 1 arrivals, 16640 bytes
  role weights: 1 warps, 0 registers of a thread
  role rows: 1 warps, 0 registers of a thread
  role work: 8 warps, 33 registers of a thread
// grid 32 x 1 x 1, 320 threads, 115272 bytes of shared memory
// map of 1: offset 0, f16 [1024,512] strides [2048] box [64,64], swizzle 128
// map of 2: offset 0, f16 [1024,512] strides [2048] box [64,64], swizzle 128
// map of 0: offset 0, f16 [512,64] strides [1024] box [64,64], swizzle 128
// writes 3
// 
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(320, 1) k(const __grid_constant__ mo::TensorMap map0, const __grid_constant__ mo::TensorMap map1, const __grid_constant__ mo::TensorMap map2, void* __restrict__ out0) {
  using namespace mo;
  constexpr int kColumnGroups = 1, kWarps = 8, kTiles = 4, kTail = 2, kGroupRows = 32, kBlockRows = 64, kRowBlocks = 1, kCluster = 2, kStages = 4, kChunk = 64;   // kTiles: 8 rows each; kTail: of them finished here
  constexpr int kM = 64, kN = 1024, kDepth = 512, kStage = 24576, kComputed = 98304, kReceived = 98304, kStatistics = 114688, kBarriers = 115200;
  extern __shared__ __align__(1024) unsigned char tile_smem[];
  unsigned char* const smem = tile_smem;
  const int lane = lane_id(), warp = warp_uniform(warp_id()), rank = cluster_rank(), block = block_id() / kCluster, column0 = block / kRowBlocks * 64, first_row = block % kRowBlocks * kBlockRows;
  const int first = rank * 4, chunks = 4;
  const uint32_t ring = shared_address(smem), full = ring + kBarriers, empty = full + 8 * kStages, met = empty + 8 * kStages;
  if (warp == kWarps && lane == 0) {
    for (int s = 0; s < kStages; s++) { mbarrier_init(full + 8 * s, 2); mbarrier_init(empty + 8 * s, kWarps); }
    mbarrier_init(met, 1);
    mbarrier_expect(met, 16640);
    mbarrier_publish();
  }
  warp_barrier();
  cluster_arrive_relaxed();
  barrier();
  if (warp == kWarps) {   // brings the weights
    const uint64_t policy = evict_first_policy();
    for (int i = 0; lane == 0 && i < chunks; i++) {
      const int place = i % kStages, k = (first + i) * kChunk;
      if (i >= kStages) mbarrier_wait(empty + 8 * place, (i / kStages - 1) & 1);
      const uint32_t to = ring + place * kStage, bar = full + 8 * place;
      mbarrier_expect(bar, 16384);
      copy_box(to + 0, map0, column0 + 0, k, bar, policy);
      copy_box(to + 8192, map1, column0 + 0, k, bar, policy);
    }
    warp_barrier();
    cluster_wait();
    return;
  }
  if (warp == kWarps + 1) {   // and the rows
    for (int i = 0; lane == 0 && i < chunks; i++) {
      const int place = i % kStages, k = (first + i) * kChunk;
      if (i >= kStages) mbarrier_wait(empty + 8 * place, (i / kStages - 1) & 1);
      const uint32_t to = ring + place * kStage, bar = full + 8 * place;
      mbarrier_expect(bar, 8192);
      copy_box(to + 16384, map2, k + 0, first_row, bar);
    }
    warp_barrier();
    cluster_wait();
    return;
  }
  const int group = warp / 4, team = group / kColumnGroups, column = column0 + group % kColumnGroups * 64;   // a team shares rows
  const int member = thread_id() - team * 128, row = team * kGroupRows + member / 4, part = member % 4;   // a row that this thread reads, together with others
  TileSum<kTiles> sum0;
  sum0.clear();
  TileSum<kTiles> sum1;
  sum1.clear();
  float statistic0 = Sum::identity();
  for (int i = 0; i < chunks; i++) {
    const int place = i % kStages;
    const unsigned char* const stage = smem + place * kStage;
    mbarrier_wait(full + 8 * place, i / kStages & 1);
    const TileWeight<f16, false> w0{stage + 0};
    const TileWeight<f16, false> w1{stage + 8192};
    const uint32_t rows0 = shared_address(stage) + 16384 + team * (kGroupRows * 128);
    wgmma_pin(sum0.d);
    wgmma_pin(sum1.d);
    wgmma_fence();
    #pragma unroll
    for (int k = 0; k < 4; k++) {
      tile_add(sum0, w0, rows0, kBlockRows * 128, k);
      tile_add(sum1, w1, rows0, kBlockRows * 128, k);
    }
    wgmma_commit();
    #pragma unroll
    for (int u = 0; u < 2; u++) {
      const int at = part * 2 + u % 2, box = u / 2, k = (first + i) * kChunk + box * 64 + at * 8;
      (void)k, (void)box;
      { const auto v0 = to_pack(tile_piece<f16>(stage + 16384 + u / 2 * (kBlockRows * 128), row, at)); const auto v9 = mo::mul(v0, v0); statistic0 = Sum::combine(statistic0, reduce_pack<Sum>(v9)); }
    }
    wgmma_wait<0>();
    wgmma_pin(sum0.d);
    wgmma_pin(sum1.d);
    warp_barrier();
    if (lane == 0) mbarrier_arrive(empty + 8 * place);
  }
  TileSum<kTiles>& total0 = sum0;
  TileSum<kTiles>& total1 = sum1;
  cluster_wait();   // the other blocks run, and their barriers are set up
  const int received0 = kReceived + 0 + (group * 2 * 128 + thread_id() % 128) * 16;   // [sum][group][other block][tile][thread]
  Pack<4> own0[kTail];
  tile_exchange<kCluster>(own0, total0, rank, ring + received0, 2048, met);
  const int received1 = kReceived + 8192 + (group * 2 * 128 + thread_id() % 128) * 16;   // [sum][group][other block][tile][thread]
  Pack<4> own1[kTail];
  tile_exchange<kCluster>(own1, total1, rank, ring + received1, 2048, met);
  float* const statistics = (float*)(smem + kStatistics);   // [statistic][block of the cluster][row]
  statistic0 = lanes_reduce<Sum, 4>(statistic0);
  if (part == 0) {
    float* const to = statistics + (0 * kCluster + rank) * kBlockRows + row;
    *to = statistic0;
    for (int b = 1; b < kCluster; b++) store_async(remote_address(shared_address(to), (rank + b) % kCluster), statistic0, remote_address(met, (rank + b) % kCluster));
  }
  named_barrier(1 + team, 128);
  mbarrier_wait_cluster(met, 0);
  #pragma unroll
  for (int t = 0; t < kTail; t++) {
    const int m = first_row + team * kGroupRows + (rank * kTail + t) * 8 + lane % 4 * 2, c = column + (warp & 3) * 16 + lane / 4;
    const Pack<4> v3 = tile_total<kCluster>(own0[t], smem + received0 + t * 2048, kTail * 2048);
    const auto v7 = mo::silu_narrow(v3);
    const Pack<4> v6 = tile_total<kCluster>(own1[t], smem + received1 + t * 2048, kTail * 2048);
    const auto v8 = mo::mul(v7, v6);
    Pack<2> s11 = {{Sum::identity(), Sum::identity()}};
    for (int i = 0; i < kCluster; i++) for (int e = 0; e < 2; e++) s11.v[e] = Sum::combine(s11.v[e], statistics[(0 * kCluster + i) * kBlockRows + m - first_row + e]);
    const auto v12 = mo::sqrt(s11);
    const auto v13_0 = along_rows(v12);
    const auto v13_1 = along_rows(s11);
    const auto v13 = mo::mul(v8, mo::rsqrt(v13_1));
    store_item_lines((f16*)out0 + 0 + (m - lane % 4 * 2) * int64_t(1024) + (c - lane / 4), 1024, kM - m + lane % 4 * 2, kN - c + lane / 4, v13);
  }
}

tile k
  tile: 1 x 1 warpgroups of 64 rows x 64 columns, rows first, all of 256 at once
  32 blocks of 128 threads, 75824 bytes of shared memory: ring at 0, plain at 65536, factors at 73728, barriers at 75776
  barriers ring.full: 4, 1 arrivals, 16384 bytes
  barriers plain.full: 1, 1 arrivals, 8192 bytes
  barriers factors.full: 1, 1 arrivals, 2048 bytes
  role work: 4 warps, 76 registers of a thread
// grid 32 x 1 x 1, 128 threads, 75824 bytes of shared memory
// map of 1: offset 0, f16 [1024,256] strides [2048] box [64,64], swizzle 128
// map of 2: offset 0, f16 [64,64] strides [128] box [64,64], swizzle 128
// map of 0: offset 0, f16 [256,128] strides [512] box [64,64], swizzle 128
// map of 3: offset 0, f16 [1024,16] strides [2048] box [64,16], swizzle 128
// writes 4
// 
__global__ void __launch_bounds__(128, 1) k(const __grid_constant__ mo::TensorMap map0, const __grid_constant__ mo::TensorMap map1, const __grid_constant__ mo::TensorMap map2, const __grid_constant__ mo::TensorMap map3, void* __restrict__ out0) {
  using namespace mo;
  constexpr int kTail = 8, kColumnGroups = 1, kRowBlocks = 2, kChunks = 4, kStage = 16384;   // kTail: items of 8 columns each
  constexpr int kM = 128, kN = 1024;
  extern __shared__ __align__(1024) unsigned char tile_smem[];
  unsigned char* const smem = tile_smem;
  const int lane = lane_id(), warp = warp_uniform(warp_id()), group = warp / 4, column0 = block_id() / kRowBlocks * 64, first_row = block_id() % kRowBlocks * 64;
  const int column = column0 + group % kColumnGroups * 64, row = first_row + group / kColumnGroups * 64;   // of this warpgroup
  const uint32_t ring = shared_address(smem), full = ring + 75776, ranks = full + 8 * kChunks, factors = ranks + 8;
  if (thread_id() == 0) {   // asks for everything; first for what all blocks read alike
    for (int s = 0; s < kChunks + 2; s++) mbarrier_init(full + 8 * s, 1);
    mbarrier_publish();
    mbarrier_expect(ranks, 8192);
    copy_box(ring + 65536, map1, 0, 0, ranks);
    #pragma unroll
    for (int s = 0; s < kChunks; s++) {
      const uint32_t to = ring + s * kStage, bar = full + 8 * s;
      mbarrier_expect(bar, 16384);
      copy_box(to + 0, map0, column0 + 0, s * 64, bar);
      copy_box(to + 8192, map2, s * 64, first_row, bar);
    }
    mbarrier_expect(factors, 2048);
    copy_box(ring + 73728, map3, column0 + 0, 0, factors);
  }
  barrier();
  RankFactor<f16, 16, 4> factor0;
  TileSum<8> sum0;
  sum0.clear();
  TileRankSum<64, 16> part1;
  part1.clear();
  TileSum<2> sum1;
  sum1.clear();
  #pragma unroll
  for (int s = 0; s < kChunks; s++) {
    mbarrier_wait(full + 8 * s, 0);
    const uint32_t rows0 = ring + s * kStage + 8192 + group / kColumnGroups * 8192;
    const uint32_t w0 = ring + s * kStage + 0;
    const TileRank<f16, 16, false, true> w1{smem + 65536 + s * 2048};
    wgmma_pin(sum0.d);
    wgmma_fence();
    #pragma unroll
    for (int k = 0; k < 4; k++) {
      wgmma_rows<f16, 1>(sum0.d, wgmma_tile(rows0, 16) + 2 * k, wgmma_tile(w0, 8192) + 128 * k);
    }
    wgmma_commit();
    if (s == 0) mbarrier_wait(ranks, 0);
    part1.add<4>(w1, smem + s * kStage + 8192 + group / kColumnGroups * 8192, 0);
  }
  mbarrier_wait(factors, 0);
  read_factor<2048>(factor0, smem + 73728, group % kColumnGroups * 8);
  wgmma_wait<0>();
  wgmma_pin(sum0.d);
  part1.total(sum1);
  TileSum<kTail>& total0 = sum0;
  add_rows_product(total0, factor0, sum1, mo::constant(1.0f), NoGain());
  LineItems lines10;
  #pragma unroll
  for (int t = 0; t < kTail; t++) {
    const int m = row + (warp & 3) * 16 + lane / 4, c = column + t * 8 + lane % 4 * 2;
    const Pack<4> v9 = total0.item(t);
    lines10.put(t % 4, v9, f16());
    if (t % 4 == 3) lines10.store_all((f16*)out0 + 0 + m * int64_t(1024) + column + (t - 3) * 8, 1024, kM - m, kN - column - (t - 3) * 8);
  }
}

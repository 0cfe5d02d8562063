// Probes of wgmma (see probes.cu): a weight's lines along the reduction or across it, the other operand in shared memory or in registers. A probe with lines "// with KEY=value ..." behind its own is one per
// such line, with these values in the place of $KEY; a line that begins "//[KEY=value] " is there where that holds.

// probe wgmma_$T_$N_$FROM_$LINES threads=128 blocks=8 smem=25600 in=6144+128*16+128*$N out=128*$N fill=wgmma_$T check=f32/bits
// with T=f16 N=32 FROM=shared LINES=along ACROSS=0 APART=16 STEP=2
// with T=f16 N=32 FROM=shared LINES=across ACROSS=1 APART=8192 STEP=128
// with T=f16 N=32 FROM=registers LINES=along ACROSS=0 APART=16 STEP=2
// with T=f16 N=32 FROM=registers LINES=across ACROSS=1 APART=8192 STEP=128
// with T=f16 N=64 FROM=shared LINES=along ACROSS=0 APART=16 STEP=2
// with T=f16 N=64 FROM=shared LINES=across ACROSS=1 APART=8192 STEP=128
// with T=f16 N=64 FROM=registers LINES=along ACROSS=0 APART=16 STEP=2
// with T=f16 N=64 FROM=registers LINES=across ACROSS=1 APART=8192 STEP=128
// with T=bf16 N=32 FROM=shared LINES=along ACROSS=0 APART=16 STEP=2
// with T=bf16 N=32 FROM=shared LINES=across ACROSS=1 APART=8192 STEP=128
// with T=bf16 N=32 FROM=registers LINES=along ACROSS=0 APART=16 STEP=2
// with T=bf16 N=32 FROM=registers LINES=across ACROSS=1 APART=8192 STEP=128
// with T=bf16 N=64 FROM=shared LINES=along ACROSS=0 APART=16 STEP=2
// with T=bf16 N=64 FROM=shared LINES=across ACROSS=1 APART=8192 STEP=128
// with T=bf16 N=64 FROM=registers LINES=along ACROSS=0 APART=16 STEP=2
// with T=bf16 N=64 FROM=registers LINES=across ACROSS=1 APART=8192 STEP=128
__global__ void probe(const void* words, void* place) {
  const uint32_t* in = static_cast<const uint32_t*>(words);
  float* out = static_cast<float*>(place);

  extern __shared__ __align__(1024) uint32_t s[];
  in += blockIdx.x * (6144 + 128 * 16 + 128 * $N);
  const int t = threadIdx.x;
  for (int i = t; i < 6144; i += 128) s[i] = in[i];
  mo::fence_async_proxy();
  __syncthreads();
  float d[$N];
  for (int i = 0; i < $N; i++) d[i] = __uint_as_float(in[6144 + 128 * 16 + t * $N + i]);
  const uint64_t da = mo::wgmma_tile(mo::shared_address(s), 16), db = mo::wgmma_tile(mo::shared_address(s) + 8192, $APART);
  mo::wgmma_fence();
  mo::wgmma_pin(d);
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const int step = k * $STEP;
    const uint32_t* a = in + 6144 + t * 16 + k * 4;
    (void)a, (void)da;
//[FROM=shared] mo::wgmma_shared<mo::$T, $ACROSS>(d, da + k * 2, db + step, k > 0 || blockIdx.x % 2);
//[FROM=registers] mo::wgmma_registers<mo::$T, $ACROSS>(d, a[0], a[1], a[2], a[3], db + step, 1);
    mo::wgmma_commit();
  }
  mo::wgmma_wait<0>();
  mo::wgmma_pin(d);
  for (int i = 0; i < $N; i++) out[(blockIdx.x * 128 + t) * $N + i] = d[i];
}

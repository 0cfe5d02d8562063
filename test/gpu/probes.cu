// Probes: kernels that put one primitive of the device library (lib/codegen/runtime) through its paces, for test/gpu/twins.cc, which runs them on the emulator and on a GPU and compares. Not compiled as a file: each
// begins at a line "// probe NAME key=value ..." (see there for the keys) and takes words in and gives words out.

// probe mma_f16 threads=32 blocks=256 in=32*10 out=32*4 fill=mma_f16 check=f32/bits
__global__ void probe(const void* words, void* place) {
  const uint32_t* in = static_cast<const uint32_t*>(words);
  float* out = static_cast<float*>(place);

  const uint32_t* x = in + (blockIdx.x * 32 + threadIdx.x) * 10;
  const uint32_t a[4] = {x[0], x[1], x[2], x[3]};
  float d[4] = {__uint_as_float(x[6]), __uint_as_float(x[7]), __uint_as_float(x[8]), __uint_as_float(x[9])};
  mo::mma_16x8x16(d, a, x[4], x[5], mo::f16());
  for (int e = 0; e < 4; e++) out[(blockIdx.x * 32 + threadIdx.x) * 4 + e] = d[e];
}
// probe mma_bf16 threads=32 blocks=256 in=32*10 out=32*4 fill=mma_bf16 check=f32/bits
__global__ void probe(const void* words, void* place) {
  const uint32_t* in = static_cast<const uint32_t*>(words);
  float* out = static_cast<float*>(place);

  const uint32_t* x = in + (blockIdx.x * 32 + threadIdx.x) * 10;
  const uint32_t a[4] = {x[0], x[1], x[2], x[3]};
  float d[4] = {__uint_as_float(x[6]), __uint_as_float(x[7]), __uint_as_float(x[8]), __uint_as_float(x[9])};
  mo::mma_16x8x16(d, a, x[4], x[5], mo::bf16());
  for (int e = 0; e < 4; e++) out[(blockIdx.x * 32 + threadIdx.x) * 4 + e] = d[e];
}
// probe mma_tf32 threads=32 blocks=256 in=32*10 out=32*4 fill=mma_tf32 check=f32/bits
__global__ void probe(const void* words, void* place) {
  const uint32_t* in = static_cast<const uint32_t*>(words);
  float* out = static_cast<float*>(place);

  const uint32_t* x = in + (blockIdx.x * 32 + threadIdx.x) * 10;
  const uint32_t a[4] = {x[0], x[1], x[2], x[3]};
  float d[4] = {__uint_as_float(x[6]), __uint_as_float(x[7]), __uint_as_float(x[8]), __uint_as_float(x[9])};
  mo::mma_16x8x8(d, a, x[4], x[5]);
  for (int e = 0; e < 4; e++) out[(blockIdx.x * 32 + threadIdx.x) * 4 + e] = d[e];
}
// probe ldmatrix threads=32 blocks=64 in=32+1024 out=32*12 fill=bits check=u32/bits
__global__ void probe(const void* words, void* place) {
  const uint32_t* in = static_cast<const uint32_t*>(words);
  uint32_t* out = static_cast<uint32_t*>(place);

  __shared__ __align__(16) uint32_t s[1024];
  in += blockIdx.x * (32 + 1024);
  for (int i = threadIdx.x; i < 1024; i += 32) s[i] = in[32 + i];
  __syncthreads();
  const void* row = s + in[threadIdx.x] % 256 * 4;
  uint32_t r[12], q[4], p[2];
  mo::load_matrix_x4(q, row);
  for (int i = 0; i < 4; i++) r[i] = q[i];
  mo::load_matrix_x4_transposed(q, row);
  for (int i = 0; i < 4; i++) r[4 + i] = q[i];
  mo::load_matrix_x2(p, row);
  r[8] = p[0], r[9] = p[1];
  mo::load_matrix_x2_transposed(p, row);
  r[10] = p[0], r[11] = p[1];
  for (int i = 0; i < 12; i++) out[(blockIdx.x * 32 + threadIdx.x) * 12 + i] = r[i];
}
// probe movmatrix threads=32 blocks=64 in=32 out=32 fill=bits check=u32/bits
__global__ void probe(const void* words, void* place) {
  const uint32_t* in = static_cast<const uint32_t*>(words);
  uint32_t* out = static_cast<uint32_t*>(place);
  out[blockIdx.x * 32 + threadIdx.x] = mo::transpose_8x8(in[blockIdx.x * 32 + threadIdx.x]);
}
// probe shuffles threads=128 blocks=16 in=128 out=128*8 fill=floats check=f32/bits
__global__ void probe(const void* words, void* place) {
  const float* in = static_cast<const float*>(words);
  float* out = static_cast<float*>(place);

  const float x = in[blockIdx.x * 128 + threadIdx.x];
  float* o = out + (blockIdx.x * 128 + threadIdx.x) * 8;
  for (int i = 0; i < 5; i++) o[i] = mo::shuffle_xor(x, 1 << i);
  o[5] = mo::lanes_reduce<mo::Sum, 32>(x);
  o[6] = mo::lanes_reduce<mo::Max, 8>(x);
  o[7] = (float)mo::warp_uniform((int)threadIdx.x + 7);
}
// probe copy_async threads=64 blocks=32 in=64+64*8 out=64*8*3 fill=bytes17 check=u32/bits
__global__ void probe(const void* words, void* place) {
  const uint32_t* in = static_cast<const uint32_t*>(words);
  uint32_t* out = static_cast<uint32_t*>(place);

  __shared__ __align__(16) uint32_t s[3][64 * 8];
  in += blockIdx.x * (64 + 64 * 8);
  const int t = threadIdx.x, n = in[t] % 17;
  const uint32_t* from = in + 64 + t * 8;
  for (int k = 0; k < 3; k++) for (int i = 0; i < 8; i++) s[k][t * 8 + i] = 0x1234567u;
  mo::copy_async<16>(s[0] + t * 8, from, n);
  mo::copy_async<16>(s[0] + t * 8 + 4, from + 4, 16 - n);
  mo::copy_commit();
  mo::copy_async<8>(s[1] + t * 8, from, n / 2);
  mo::copy_async<8>(s[1] + t * 8 + 2, from + 2, 8);
  mo::copy_commit();
  for (int i = 0; i < 8; i++) mo::copy_async<4>(s[2] + t * 8 + i, from + i, (n + i) % 5);
  mo::copy_commit();
  mo::copy_wait<2>();
  __syncthreads();
  uint32_t* o = out + blockIdx.x * 64 * 8 * 3;
  for (int i = 0; i < 8; i++) o[i * 64 + t] = s[0][i * 64 + t];
  mo::copy_wait<0>();
  __syncthreads();
  for (int k = 1; k < 3; k++) for (int i = 0; i < 8; i++) o[k * 512 + i * 64 + t] = s[k][i * 64 + t];
}
// probe convert threads=128 blocks=128 in=128 out=128*6 fill=floats check=u32/bits
__global__ void probe(const void* words, void* place) {
  const float* in = static_cast<const float*>(words);
  uint32_t* out = static_cast<uint32_t*>(place);

  const float x = in[blockIdx.x * 128 + threadIdx.x];
  uint32_t* o = out + (blockIdx.x * 128 + threadIdx.x) * 6;
  const mo::f16 h = mo::store<mo::f16>(x);
  const mo::bf16 b = mo::store<mo::bf16>(x);
  o[0] = *reinterpret_cast<const unsigned short*>(&h);
  o[1] = *reinterpret_cast<const unsigned short*>(&b);
  o[2] = mo::round_tf32(x);
  o[3] = __float_as_uint(mo::load(h));
  o[4] = __float_as_uint(mo::load(b));
  o[5] = mo::store<mo::b8>(x);
}
// probe widen threads=128 blocks=512 in=128 out=128*5 fill=count check=f32/bits
__global__ void probe(const void* words, void* place) {
  const uint32_t* in = static_cast<const uint32_t*>(words);
  float* out = static_cast<float*>(place);

  const uint32_t x = in[blockIdx.x * 128 + threadIdx.x];   // every 16-bit word, above it another one
  float* o = out + (blockIdx.x * 128 + threadIdx.x) * 5;
  const unsigned short low = (unsigned short)x;
  o[0] = mo::load(*reinterpret_cast<const mo::f16*>(&low));
  o[1] = __uint_as_float(mo::tf32_low(x, mo::f16()));
  o[2] = __uint_as_float(mo::tf32_high(x, mo::f16()));
  o[3] = __uint_as_float(mo::tf32_low(x, mo::bf16()));
  o[4] = __uint_as_float(mo::tf32_high(x, mo::bf16()));
}
// probe arithmetic threads=128 blocks=128 in=128*3 out=128*14 fill=floats check=f32/bits
__global__ void probe(const void* words, void* place) {
  const float* in = static_cast<const float*>(words);
  float* out = static_cast<float*>(place);

  const float* p = in + (blockIdx.x * 128 + threadIdx.x) * 3;
  const float x = p[0], y = p[1], z = p[2];
  float* o = out + (blockIdx.x * 128 + threadIdx.x) * 14;
  o[0] = mo::add(x, y), o[1] = mo::sub(x, y), o[2] = mo::mul(x, y), o[3] = mo::div(x, y), o[4] = mo::neg(x), o[5] = mo::sqrt(x), o[6] = mo::abs(x), o[7] = mo::max(x, y), o[8] = mo::min(x, y);
  o[9] = mo::equal(x, y), o[10] = mo::less(x, y), o[11] = mo::select(x, y, z), o[12] = mo::fma(x, y, z), o[13] = mo::round_to<mo::f16>(x);
}
// probe pairs_f16 threads=128 blocks=64 in=128*2 out=128*2 fill=pairs_f16 check=f16/bits
__global__ void probe(const void* words, void* place) {
  const uint32_t* in = static_cast<const uint32_t*>(words);
  uint32_t* out = static_cast<uint32_t*>(place);

  const uint32_t x = in[(blockIdx.x * 128 + threadIdx.x) * 2], y = in[(blockIdx.x * 128 + threadIdx.x) * 2 + 1];
  out[(blockIdx.x * 128 + threadIdx.x) * 2] = mo::mul_pairs(x, y);
  out[(blockIdx.x * 128 + threadIdx.x) * 2 + 1] = mo::pack_pair<mo::f16>(__uint_as_float(mo::tf32_low(x, mo::f16())), __uint_as_float(mo::tf32_high(y, mo::f16())));
}
// probe exp threads=128 blocks=96 in=128 out=128 fill=exp check=f32/ulp:3
__global__ void probe(const void* words, void* place) {
  const float* in = static_cast<const float*>(words);
  float* out = static_cast<float*>(place);
  out[blockIdx.x * 128 + threadIdx.x] = mo::exp(in[blockIdx.x * 128 + threadIdx.x]);
}
// probe exp2_fast threads=128 blocks=96 in=128 out=128 fill=exp check=f32/ulp:3
__global__ void probe(const void* words, void* place) {
  const float* in = static_cast<const float*>(words);
  float* out = static_cast<float*>(place);
  out[blockIdx.x * 128 + threadIdx.x] = mo::exp2_fast(in[blockIdx.x * 128 + threadIdx.x]);
}
// probe log threads=128 blocks=96 in=128 out=128 fill=positive check=f32/ulp:2
__global__ void probe(const void* words, void* place) {
  const float* in = static_cast<const float*>(words);
  float* out = static_cast<float*>(place);
  out[blockIdx.x * 128 + threadIdx.x] = mo::log(in[blockIdx.x * 128 + threadIdx.x]);
}
// probe rsqrt threads=128 blocks=96 in=128 out=128 fill=positive check=f32/ulp:3
__global__ void probe(const void* words, void* place) {
  const float* in = static_cast<const float*>(words);
  float* out = static_cast<float*>(place);
  out[blockIdx.x * 128 + threadIdx.x] = mo::rsqrt(in[blockIdx.x * 128 + threadIdx.x]);
}
// probe tanh threads=128 blocks=96 in=128 out=128 fill=wide check=f32/ulp:3
__global__ void probe(const void* words, void* place) {
  const float* in = static_cast<const float*>(words);
  float* out = static_cast<float*>(place);
  out[blockIdx.x * 128 + threadIdx.x] = mo::tanh(in[blockIdx.x * 128 + threadIdx.x]);
}
// probe erf threads=128 blocks=96 in=128 out=128 fill=wide check=f32/ulp:3
__global__ void probe(const void* words, void* place) {
  const float* in = static_cast<const float*>(words);
  float* out = static_cast<float*>(place);
  out[blockIdx.x * 128 + threadIdx.x] = mo::erf(in[blockIdx.x * 128 + threadIdx.x]);
}
// probe pow threads=128 blocks=256 in=128*2 out=128 fill=exp check=f32/ulp:5
__global__ void probe(const void* words, void* place) {
  const float* in = static_cast<const float*>(words);
  float* out = static_cast<float*>(place);

  const float x = in[(blockIdx.x * 128 + threadIdx.x) * 2], y = in[(blockIdx.x * 128 + threadIdx.x) * 2 + 1];
  out[blockIdx.x * 128 + threadIdx.x] = mo::pow(mo::abs(x) + 0.5f, y * 0.125f);
}
// probe sigmoid threads=128 blocks=96 in=128 out=128 fill=exp check=f32/ulp:5
__global__ void probe(const void* words, void* place) {
  const float* in = static_cast<const float*>(words);
  float* out = static_cast<float*>(place);
  out[blockIdx.x * 128 + threadIdx.x] = mo::sigmoid(in[blockIdx.x * 128 + threadIdx.x]);
}
// probe silu threads=128 blocks=96 in=128 out=128 fill=exp check=f32/ulp:5
__global__ void probe(const void* words, void* place) {
  const float* in = static_cast<const float*>(words);
  float* out = static_cast<float*>(place);
  out[blockIdx.x * 128 + threadIdx.x] = mo::silu(in[blockIdx.x * 128 + threadIdx.x]);
}
// probe cluster threads=64 blocks=32 in=64*4 out=64*8 fill=floats check=f32/bits
__global__ void __cluster_dims__(4, 1, 1) probe(const void* words, void* place) {
  const float* in = static_cast<const float*>(words);
  float* out = static_cast<float*>(place);

  __shared__ __align__(16) float s[64 * 4];
  const int t = threadIdx.x, rank = mo::cluster_rank();
  const float* x = in + (blockIdx.x * 64 + t) * 4;
  mo::cluster_arrive_relaxed();
  mo::cluster_wait();
  mo::store_remote(s + t * 4, (rank + 1 + t % 3) % 4, mo::Pack<4>{{x[0], x[1], x[2], x[3]}});
  mo::cluster_arrive();
  mo::cluster_wait();
  float* o = out + (blockIdx.x * 64 + t) * 8;
  o[4] = (float)rank, o[5] = 0, o[6] = 0, o[7] = 0;
  for (int i = 0; i < 4; i++) {   // lane t of the block that is 1 + t % 3 before this one wrote here
    o[i] = s[t * 4 + i];
  }
  mo::cluster_arrive();
  mo::cluster_wait();
}
// probe store_async threads=64 blocks=32 in=64*8 out=64*8 fill=floats check=f32/bits
__global__ void __cluster_dims__(2, 1, 1) probe(const void* words, void* place) {
  const float* in = static_cast<const float*>(words);
  float* out = static_cast<float*>(place);

  __shared__ __align__(16) float s[64 * 8];
  __shared__ __align__(8) unsigned long long bar[1];
  const int t = threadIdx.x, rank = mo::cluster_rank();
  const float* x = in + (blockIdx.x * 64 + t) * 8;
  const uint32_t own = mo::shared_address(bar);
  if (t == 0) { mo::mbarrier_init(own, 1); mo::mbarrier_publish(); mo::mbarrier_expect(own, 64 * 28); }
  mo::cluster_arrive();
  mo::cluster_wait();
  const uint32_t to = mo::remote_address(mo::shared_address(s + t * 8), rank ^ 1), there = mo::remote_address(own, rank ^ 1);
  mo::store_async(to, mo::Pack<4>{{x[0], x[1], x[2], x[3]}}, there);
  mo::store_async(to + 16, mo::Pack<2>{{x[4], x[5]}}, there);
  mo::store_async(to + 24, x[6], there);
  mo::mbarrier_wait_cluster(own, 0);
  float* o = out + (blockIdx.x * 64 + t) * 8;
  for (int i = 0; i < 7; i++) o[i] = s[t * 8 + i];
  o[7] = 0;
  mo::cluster_arrive();
  mo::cluster_wait();
}

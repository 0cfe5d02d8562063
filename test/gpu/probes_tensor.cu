// Probes of tensor copies (see probes.cu; probes_wgmma.cu for lines "// with"): ranks, element sizes, swizzles, boxes that reach beyond the tensor on every side, with and without an eviction policy.

// probe tensor_$RANKd_swizzle$SWIZZLE_$ELEMENTbytes threads=64 blocks=24 smem=8192 in=5 out=$WORDS fill=coordinates check=u32/bits box=$BOX element=$ELEMENT swizzle=$SWIZZLE
// with RANK=2 SWIZZLE=0 ELEMENT=2 BOX=32,12 WORDS=192 AT=(int)c[0],(int)c[1] POLICY=none
// with RANK=2 SWIZZLE=0 ELEMENT=4 BOX=16,12 WORDS=192 AT=(int)c[0],(int)c[1] POLICY=none
// with RANK=2 SWIZZLE=32 ELEMENT=2 BOX=16,12 WORDS=96 AT=(int)c[0],(int)c[1] POLICY=none
// with RANK=2 SWIZZLE=32 ELEMENT=4 BOX=8,12 WORDS=96 AT=(int)c[0],(int)c[1] POLICY=none
// with RANK=2 SWIZZLE=64 ELEMENT=2 BOX=32,12 WORDS=192 AT=(int)c[0],(int)c[1] POLICY=none
// with RANK=2 SWIZZLE=64 ELEMENT=4 BOX=16,12 WORDS=192 AT=(int)c[0],(int)c[1] POLICY=none
// with RANK=2 SWIZZLE=128 ELEMENT=2 BOX=64,12 WORDS=384 AT=(int)c[0],(int)c[1] POLICY=evict
// with RANK=2 SWIZZLE=128 ELEMENT=4 BOX=32,12 WORDS=384 AT=(int)c[0],(int)c[1] POLICY=evict
// with RANK=3 SWIZZLE=0 ELEMENT=2 BOX=32,4,3 WORDS=192 AT=(int)c[0],(int)c[1],(int)c[2] POLICY=none
// with RANK=3 SWIZZLE=0 ELEMENT=4 BOX=16,4,3 WORDS=192 AT=(int)c[0],(int)c[1],(int)c[2] POLICY=none
// with RANK=3 SWIZZLE=32 ELEMENT=2 BOX=16,4,3 WORDS=96 AT=(int)c[0],(int)c[1],(int)c[2] POLICY=none
// with RANK=3 SWIZZLE=32 ELEMENT=4 BOX=8,4,3 WORDS=96 AT=(int)c[0],(int)c[1],(int)c[2] POLICY=none
// with RANK=3 SWIZZLE=64 ELEMENT=2 BOX=32,4,3 WORDS=192 AT=(int)c[0],(int)c[1],(int)c[2] POLICY=none
// with RANK=3 SWIZZLE=64 ELEMENT=4 BOX=16,4,3 WORDS=192 AT=(int)c[0],(int)c[1],(int)c[2] POLICY=none
// with RANK=3 SWIZZLE=128 ELEMENT=2 BOX=64,4,3 WORDS=384 AT=(int)c[0],(int)c[1],(int)c[2] POLICY=evict
// with RANK=3 SWIZZLE=128 ELEMENT=4 BOX=32,4,3 WORDS=384 AT=(int)c[0],(int)c[1],(int)c[2] POLICY=evict
// with RANK=4 SWIZZLE=0 ELEMENT=2 BOX=32,4,3,2 WORDS=384 AT=(int)c[0],(int)c[1],(int)c[2],(int)c[3] POLICY=none
// with RANK=4 SWIZZLE=0 ELEMENT=4 BOX=16,4,3,2 WORDS=384 AT=(int)c[0],(int)c[1],(int)c[2],(int)c[3] POLICY=none
// with RANK=4 SWIZZLE=128 ELEMENT=2 BOX=64,4,3,2 WORDS=768 AT=(int)c[0],(int)c[1],(int)c[2],(int)c[3] POLICY=evict
// with RANK=4 SWIZZLE=128 ELEMENT=4 BOX=32,4,3,2 WORDS=768 AT=(int)c[0],(int)c[1],(int)c[2],(int)c[3] POLICY=evict
// with RANK=5 SWIZZLE=0 ELEMENT=2 BOX=32,4,3,2,2 WORDS=768 AT=(int)c[0],(int)c[1],(int)c[2],(int)c[3],(int)c[4] POLICY=none
// with RANK=5 SWIZZLE=0 ELEMENT=4 BOX=16,4,3,2,2 WORDS=768 AT=(int)c[0],(int)c[1],(int)c[2],(int)c[3],(int)c[4] POLICY=none
// with RANK=5 SWIZZLE=128 ELEMENT=2 BOX=64,4,3,2,2 WORDS=1536 AT=(int)c[0],(int)c[1],(int)c[2],(int)c[3],(int)c[4] POLICY=evict
// with RANK=5 SWIZZLE=128 ELEMENT=4 BOX=32,4,3,2,2 WORDS=1536 AT=(int)c[0],(int)c[1],(int)c[2],(int)c[3],(int)c[4] POLICY=evict
__global__ void probe(const __grid_constant__ mo::TensorMap map, const void* words, void* place) {
  const uint32_t* in = static_cast<const uint32_t*>(words);
  uint32_t* out = static_cast<uint32_t*>(place);

  extern __shared__ __align__(1024) uint32_t s[];
  const uint32_t b = mo::shared_address(s + 2046);
  const int* c = (const int*)in + blockIdx.x * 5;
//[POLICY=none] if (threadIdx.x == 0) { mo::mbarrier_init(b, 1); mo::mbarrier_publish(); mo::mbarrier_expect(b, 4 * $WORDS); mo::copy_box(mo::shared_address(s), map, $AT, b); }
//[POLICY=evict] if (threadIdx.x == 0) { mo::mbarrier_init(b, 1); mo::mbarrier_publish(); mo::mbarrier_expect(b, 4 * $WORDS); mo::copy_box(mo::shared_address(s), map, $AT, b, mo::evict_first_policy()); }
  __syncthreads();
  mo::mbarrier_wait(b, 0);
  for (int i = threadIdx.x; i < $WORDS; i += 64) out[blockIdx.x * $WORDS + i] = s[i];
}

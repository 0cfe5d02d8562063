// Device library, part 4: what the hardware copies and signals by itself (sm_90 and later): mbarriers, tensor copies (TMA), stores to other blocks of a cluster that complete on a barrier.
// One PTX instruction, or one fixed short idiom, per function (PTX ISA 9.7.13 mbarrier, 9.7.9 cp.async.bulk.tensor and st.async).
#pragma once
#include "00_base.cuh"

namespace mo {

/// CUtensorMap, opaque here: kernels take it as `const __grid_constant__ TensorMap`.
struct alignas(64) TensorMap { unsigned long long opaque[16]; };

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// ---- programmatic dependent launch: the next kernel of the stream may start; what the kernels ahead wrote is there. Both mean nothing where a launch is an ordinary one
MO_FN void release_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
MO_FN void await_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// ---- barriers in shared memory: addresses are 32-bit, of 8-byte words (shared_address)
MO_FN void mbarrier_init(uint32_t bar, int arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory"); }
MO_FN void mbarrier_publish() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }   // inits before it are seen by copies, and by the cluster after its barrier
MO_FN void mbarrier_expect(uint32_t bar, uint32_t bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory"); }   // arrives once, and waits for `bytes` more
MO_FN void mbarrier_arrive(uint32_t bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory"); }
MO_FN bool mbarrier_test(uint32_t bar, int parity) {
  uint32_t done;
  asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  return done != 0;
}
MO_FN bool mbarrier_test_cluster(uint32_t bar, int parity) {
  uint32_t done;
  asm volatile("{.reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  return done != 0;
}
/// Waits until the phase of this parity (0 for a barrier's first) is complete.
MO_FN void mbarrier_wait(uint32_t bar, int parity) { while (!mbarrier_test(bar, parity)) {} }
/// The same, and what other blocks of the cluster wrote before completing it is seen.
MO_FN void mbarrier_wait_cluster(uint32_t bar, int parity) { while (!mbarrier_test_cluster(bar, parity)) {} }

// ---- tensor copies: the box of `map` at (x, y), x along the innermost dimension, into shared memory at `to`; its bytes complete on `bar`. One thread issues
MO_FN uint64_t evict_first_policy() { uint64_t p; asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p)); return p; }
MO_FN void copy_box(uint32_t to, const TensorMap& map, int x, int y, uint32_t bar) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(&map), "r"(x), "r"(y), "r"(bar) : "memory");
}
MO_FN void copy_box(uint32_t to, const TensorMap& map, int x, int y, uint32_t bar, uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to), "l"(&map), "r"(x), "r"(y), "r"(bar), "l"(policy) : "memory");
}
MO_FN void copy_box(uint32_t to, const TensorMap& map, int x, int y, int z, uint32_t bar) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to), "l"(&map), "r"(x), "r"(y), "r"(z), "r"(bar) : "memory");
}
MO_FN void copy_box(uint32_t to, const TensorMap& map, int x, int y, int z, uint32_t bar, uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to), "l"(&map), "r"(x), "r"(y), "r"(z), "r"(bar), "l"(policy)
               : "memory");
}
MO_FN void copy_box(uint32_t to, const TensorMap& map, int x, int y, int z, int u, uint32_t bar) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to), "l"(&map), "r"(x), "r"(y), "r"(z), "r"(u), "r"(bar) : "memory");
}
MO_FN void copy_box(uint32_t to, const TensorMap& map, int x, int y, int z, int u, int v, uint32_t bar) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(to), "l"(&map), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v), "r"(bar) : "memory");
}
MO_FN void copy_box(uint32_t to, const TensorMap& map, int x, int y, int z, int u, uint32_t bar, uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(to), "l"(&map), "r"(x), "r"(y), "r"(z), "r"(u), "r"(bar), "l"(policy)
               : "memory");
}
MO_FN void copy_box(uint32_t to, const TensorMap& map, int x, int y, int z, int u, int v, uint32_t bar, uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, %4, %5, %6}], [%7], %8;" ::"r"(to), "l"(&map), "r"(x), "r"(y), "r"(z), "r"(u), "r"(v),
               "r"(bar), "l"(policy) : "memory");
}

// ---- the other way: a box in shared memory, as copy_box leaves it, to `map`'s tensor at (x, y); what lies beyond the tensor is not stored. One thread issues, commits and waits; ordinary writes to the box are fenced
// (fence_async_proxy) and ordered before. store_wait_read<N>: all but the N youngest groups have been read, and their boxes may be written again
MO_FN void store_box(const TensorMap& map, int x, int y, uint32_t from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(x), "r"(y), "r"(from) : "memory");
}
MO_FN void store_box(const TensorMap& map, int x, int y, int z, uint32_t from) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map), "r"(x), "r"(y), "r"(z), "r"(from) : "memory");
}
MO_FN void store_box(const TensorMap& map, int x, int y, uint32_t from, uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%1, %2}], [%3], %4;" ::"l"(&map), "r"(x), "r"(y), "r"(from), "l"(policy) : "memory");
}
MO_FN void store_box(const TensorMap& map, int x, int y, int z, uint32_t from, uint64_t policy) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%1, %2, %3}], [%4], %5;" ::"l"(&map), "r"(x), "r"(y), "r"(z), "r"(from), "l"(policy) : "memory");
}
MO_FN void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> MO_FN void store_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory"); }

// ---- clusters: addresses of other blocks' shared memory, and stores to it whose bytes complete on a barrier there
MO_FN void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }   // says only that this block runs; pairs with cluster_wait
MO_FN uint32_t remote_address(uint32_t a, int rank) { uint32_t r; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(rank)); return r; }
MO_FN void store_async(uint32_t to, float x, uint32_t bar) { asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(to), "f"(x), "r"(bar) : "memory"); }
MO_FN void store_async(uint32_t to, Pack<4> x, uint32_t bar) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to), "f"(x.v[0]), "f"(x.v[1]), "f"(x.v[2]), "f"(x.v[3]), "r"(bar) : "memory");
}

#endif

}  // namespace mo

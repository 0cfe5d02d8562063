// What an emulated kernel and the engine call of each other. Included by the engine and embedded as text in front of every emulated kernel:
// both sides see one layout.
#pragma once
#include <stdint.h>

struct EmuDim3 { unsigned x, y, z; };
/// Where the running thread is: what threadIdx and its like read.
struct EmuThread { EmuDim3 thread, block, block_dim, grid_dim; unsigned cluster_rank, cluster_size; };

/// One transfer of a box by a tensor map: the coordinates of its first element, innermost first.
struct EmuBox { int rank; int at[5]; };

struct EmuApi {
  void (*access)(const void* p, uint64_t bytes, int write, const void* pc);              // of the running thread, before it happens
  void (*access_by)(int lane, const void* p, uint64_t bytes, int write, const void* pc); // the same for another lane of its warp
  // what reads device memory and no other kind is about to read there
  void (*device)(const void* p, const void* pc);
  void (*atomic)(const void* p, uint64_t bytes, const void* pc);
  // device memory that other blocks of a cooperative launch are waited for to change: comes back when it has
  void (*poll)(const void* p, uint64_t bytes, const void* pc);
  void (*fail)(const char* kind, const char* text, const void* pc);                      // does not return
  // bar.sync, bar.arrive; threads 0: all of the block
  void (*barrier)(int id, int threads, int waits);
  void (*warp_barrier)(uint32_t mask);
  // every lane of mask brings `bytes`; answers 32 slots of them, and who this is. No order of memory
  const void* (*gather)(uint32_t mask, const void* mine, uint64_t bytes, int* lane);
  const void* (*gather_group)(const void* mine, uint64_t bytes, int* member);            // the same over the 128 threads of a warpgroup
  void* (*dynamic_shared)(uint64_t align);
  void* (*static_shared)(const void* key, uint64_t bytes, uint64_t align);
  uint32_t (*shared_address)(const void* p);
  // of an address that may be in another block of the cluster
  void* (*shared_pointer)(uint32_t address, uint64_t bytes, const void* pc);
  void (*copy_async)(void* to, const void* from, int bytes, int there, const void* pc);
  void (*copy_commit)();
  void (*copy_wait)(int groups);
  void (*cluster_arrive)(int releases);
  void (*cluster_wait)();
  uint32_t (*remote_address)(uint32_t address, int rank);
  void (*store_remote)(uint32_t to, const void* value, uint64_t bytes, const void* pc);
  void (*store_async)(uint32_t to, const void* value, uint64_t bytes, uint32_t bar, const void* pc);
  void (*mbarrier_init)(uint32_t bar, int arrivals, const void* pc);
  void (*mbarrier_arrive)(uint32_t bar, uint32_t expect, int cluster, const void* pc);
  int (*mbarrier_test)(uint32_t bar, int parity, int cluster, const void* pc);           // lets others run when it is not complete
  void (*copy_box)(uint32_t to, const void* map, const EmuBox* box, uint32_t bar, const void* pc);
  // the other way, a box to device memory: read, and written there, when the issuer waits for its group
  void (*store_box)(const void* map, const EmuBox* box, uint32_t from, const void* pc);
  void (*store_commit)();
  void (*store_wait)(int groups, const void* pc);
  // what this thread wrote, or knows to be written, may be touched by copies and wgmma of threads that are ordered behind it
  void (*fence_async)(int publishes);
  // a read by the asynchronous proxy: as access, and such a fence must be between
  void (*access_async)(const void* p, uint64_t bytes, const void* pc);
  void (*defer)(void (*work)(void*), void* data, int group);                             // wgmma: runs when its group is waited for
  void (*defer_commit)();
  void (*defer_wait)(int groups);
  void (*fence_registers)();                                                             // wgmma.fence
  // a wgmma (or its twin, until it is waited for) has left this in an accumulator
  void (*leave_registers)(const void* d, uint64_t hash);
  // a wgmma uses it (others: registers besides): if it was changed, a fence must be between
  void (*take_registers)(const void* d, uint64_t hash, int others, const void* pc);
};

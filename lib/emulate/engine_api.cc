// The table that emulated kernels call (host/api.h): one entry per thing that hardware does for threads. See engine.h.
#include <cstring>

#include "emulate/engine.h"
#include "mirage/support/assert.h"

namespace mirage::emulate_detail {

struct Api {
  static Engine& e() { return *Engine::instance; }
  static Fiber& me() { return e().me(); }
  static int threads_per_block() { return e().kernel_->threads; }

  static void access(const void* p, uint64_t bytes, int write, const void* pc) { e().access(p, bytes, write != 0, e().current_, pc); }
  static void access_by(int lane, const void* p, uint64_t bytes, int write, const void* pc) {
    e().access(p, bytes, write != 0, e().current_ / 32 * 32 + lane, pc);
  }
  static void device(const void* p, const void* pc) {
    if (!e().is_global(p)) e().find("out of bounds", "a load of device memory from what is none", pc, true);
  }
  static void atomic(const void* p, uint64_t bytes, const void* pc) {
    Engine& g = e();
    if (g.is_shared(p)) return g.find("not supported", "an atomic operation on shared memory", pc, true);
    const uint64_t at = reinterpret_cast<uint64_t>(p) - reinterpret_cast<uint64_t>(g.global_);
    const uint64_t offset = at % g.window_ - g.window_ / 2;
    if (!g.is_global(p) || offset + bytes > g.buffers_[at / g.window_].shadow.size())
      return g.find("out of bounds", "an atomic operation on " + g.name_global(at), pc, true);
    if (reinterpret_cast<uint64_t>(p) % bytes != 0) g.find("misaligned access", "an atomic operation", pc, true);
  }
  /// Device memory that another block of a cooperative launch will change: whoever polls it lets the others go on.
  static void poll(const void* p, uint64_t bytes, const void* pc) {
    Engine& g = e();
    if (!g.kernel_->cooperative) return g.find("deadlock", "waits for other blocks, and need not be launched together with them", pc, true);
    const unsigned char* const from = static_cast<const unsigned char*>(p);
    me().polled = p;
    me().seen.assign(from, from + bytes);
    g.wait({Why::Kind::kDeviceMemory});
  }
  static void fail(const char* kind, const char* text, const void* pc) { e().find(kind, text, pc, true); }

  /// Whether all that a barrier waits for have come; then they are ordered and go on.
  static void meet(Barrier& b, bool waits, const Why& why, int id) {
    Engine& g = e();
    const int self = g.current_;
    b.arrived.push_back(self);
    if (waits) b.waiting.push_back(self);
    if (static_cast<int>(b.arrived.size()) == b.expected) {
      g.order(b.arrived, b.waiting);
      for (int t : b.waiting)
        if (t != self) g.wake(t);
      b.expected = 0;
      b.waiting.clear();
      b.arrived.clear();
      return;
    }
    if (!waits) return;
    g.me().barrier = id;
    g.wait(why);
  }
  static void barrier(int id, int threads, int waits) {
    Engine& g = e();
    if (threads == 0) threads = threads_per_block();
    g.note_wait(static_cast<uint64_t>(1 + id * 4 + waits));
    Barrier& b = g.barriers_[{me().block, id}];
    if (!b.arrived.empty() && b.expected != threads)
      g.find("divergent barrier",
             "barrier " + std::to_string(id) + " is met with " + std::to_string(threads) + " threads by some and " +
                 std::to_string(b.expected) + " by others",
             nullptr, true);
    b.expected = threads;
    meet(b, waits != 0, {Why::Kind::kBarrier, static_cast<uint32_t>(id)}, id);
  }
  static void warp_barrier(uint32_t mask) {
    Engine& g = e();
    const int lanes = std::min(32, threads_per_block() - static_cast<int>(me().where.thread.x) / 32 * 32);
    if (lanes < 32) mask &= (1u << lanes) - 1;
    g.note_wait(hash_combine(2, mask));
    Barrier& b = g.warp_barriers_[{g.current_ / 32, mask}];
    b.expected = __builtin_popcount(mask);
    meet(b, true, {Why::Kind::kWarpBarrier}, 1000);
  }

  static const void* collect(std::pair<int, uint64_t> key, int expected, int slots, int slot, const void* mine, uint64_t bytes,
                             Why::Kind why) {
    Engine& g = e();
    Fiber& f = me();
    if (f.last && --f.last->readers == 0) g.gathers_free_.push_back(f.last);
    f.last = nullptr;
    Gather*& at = g.gathers_[key];
    if (!at) {
      if (g.gathers_free_.empty()) {
        g.gathers_made_.push_back(std::make_unique<Gather>());
        g.gathers_free_.push_back(g.gathers_made_.back().get());
      }
      at = g.gathers_free_.back();
      g.gathers_free_.pop_back();
      at->arrived = 0;
      at->expected = expected;
      at->bytes = bytes;
      at->slots.assign(static_cast<size_t>(slots) * bytes, 0xff);
    }
    Gather* const it = at;
    if (it->bytes != bytes) g.find("divergent warp", "lanes meet in different operations", nullptr, true);
    memcpy(it->slots.data() + static_cast<size_t>(slot) * bytes, mine, bytes);
    it->arrived++;
    it->readers++;
    f.last = it;
    if (it->arrived == it->expected) {
      at = nullptr;
      const int base = g.current_ - slot;
      for (int t = base; t < base + slots && t < static_cast<int>(g.fibers_.size()); t++)
        if (t != g.current_ && g.fibers_[static_cast<size_t>(t)].last == it) g.wake(t);
    } else {
      g.wait({why});
    }
    return it->slots.data();
  }
  static const void* gather(uint32_t mask, const void* mine, uint64_t bytes, int* lane) {
    Engine& g = e();
    *lane = static_cast<int>(me().where.thread.x) % 32;
    const int lanes = std::min(32, threads_per_block() - static_cast<int>(me().where.thread.x) / 32 * 32);
    if (lanes < 32) mask &= (1u << lanes) - 1;
    if (!(mask >> *lane & 1)) g.find("divergent warp", "a lane takes part that its mask leaves out", nullptr, true);
    return collect({g.current_ / 32, mask}, __builtin_popcount(mask), 32, *lane, mine, bytes, Why::Kind::kWarp);
  }
  static const void* gather_group(const void* mine, uint64_t bytes, int* member) {
    *member = static_cast<int>(me().where.thread.x) % 128;
    // blocks need not be multiples of warpgroups
    return collect({-1 - me().block * 8 - static_cast<int>(me().where.thread.x) / 128, 0}, 128,
                   128, *member, mine, bytes, Why::Kind::kWarpgroup);
  }

  static uint64_t base() { return kSharedWindow * static_cast<uint64_t>(me().block); }
  static void* dynamic_shared(uint64_t) { return e().shared_ + base() + e().dynamic_base_; }
  static void* static_shared(const void* key, uint64_t bytes, uint64_t align) {
    Engine& g = e();
    auto [it, fresh] = g.statics_.try_emplace({me().block, key}, 0);
    if (fresh) {
      auto& shadow = g.shadow_[static_cast<size_t>(me().block)];
      const uint64_t at = (shadow.size() + 128 + align - 1) / align * align;
      const uint64_t gap = shadow.size();
      shadow.resize(at + bytes);
      for (uint64_t i = gap; i < at; i++) shadow[i].forbidden = 1;
      memset(g.shared_ + base() + at, 0xff, bytes);
      it->second = at;
    }
    return g.shared_ + base() + it->second;
  }
  static uint32_t shared_address(const void* p) {
    if (!e().is_shared(p)) e().find("out of bounds", "the shared address of what is no shared memory", nullptr, true);
    return static_cast<uint32_t>(static_cast<const unsigned char*>(p) - e().shared_);
  }
  static void* shared_pointer(uint32_t address, uint64_t bytes, const void* pc) { return e().shared_at(address, bytes, pc); }
  static uint32_t remote_address(uint32_t a, int rank) {
    if (rank < 0 || rank >= static_cast<int>(e().block_ended_.size()))
      e().find("out of bounds", "block rank " + std::to_string(rank) + " of a cluster of " + std::to_string(e().block_ended_.size()),
               nullptr, true);
    return (a & 0xffffff) | static_cast<uint32_t>(rank) << 24;
  }

  static void copy_async(void* to, const void* from, int bytes, int there, const void* pc) {
    Engine& g = e();
    if (!g.is_shared(to)) return g.find("out of bounds", "cp.async to what is no shared memory", pc, true);
    const uint64_t at = static_cast<uint64_t>(static_cast<unsigned char*>(to) - g.shared_);
    if (at % static_cast<uint64_t>(bytes) != 0 || reinterpret_cast<uint64_t>(from) % static_cast<uint64_t>(bytes) != 0)
      g.find(
          "misaligned access",
          "cp.async of " + std::to_string(bytes) + " bytes" +
              (g.is_global(from) ? " from " + g.name_global(reinterpret_cast<uint64_t>(from) - reinterpret_cast<uint64_t>(g.global_)) : ""),
          pc);
    if (there < 0 || there > bytes)
      g.find("out of bounds", "cp.async of " + std::to_string(there) + " of " + std::to_string(bytes) + " bytes", pc, true);
    if (there > 0) {
      if (!g.is_global(from)) return g.find("out of bounds", "cp.async from what is no device memory", pc, true);
      g.access(from, static_cast<uint64_t>(there), false, g.current_, pc);
    }
    g.shared_at(static_cast<uint32_t>(at), static_cast<uint64_t>(bytes), pc);
    g.begin_late(at, static_cast<uint64_t>(bytes), g.current_, "cp.async", pc);
    me().copies.add({static_cast<unsigned char*>(to), static_cast<const unsigned char*>(from), bytes, there});
  }
  static void copy_commit() {
    e().note_wait(3);
    me().copies.commit();
  }
  static void copy_wait(int groups) {
    Engine& g = e();
    Fiber& f = me();
    g.note_wait(static_cast<uint64_t>(1000 + groups));
    f.copies.wait(groups, [&](const LateCopy& c) {
      memset(c.to, 0, static_cast<size_t>(c.bytes));
      if (c.there > 0) memcpy(c.to, c.from, static_cast<size_t>(c.there));
      g.end_late(static_cast<uint64_t>(c.to - g.shared_), static_cast<uint64_t>(c.bytes), make_epoch(g.current_, f.clock.own));
    });
  }

  static void cluster_arrive(int releases) {
    Engine& g = e();
    Fiber& f = me();
    g.note_wait(static_cast<uint64_t>(5 + releases));
    if (f.cluster_phase > g.cluster_generation_)
      g.find("divergent barrier", "arrives twice at the cluster's barrier without waiting", nullptr, true);
    f.cluster_phase = g.cluster_generation_ + 1;
    g.cluster_arrived_.push_back(g.current_);
    if (releases) {
      g.cluster_coming_.add(g.current_, f.clock);
      g.tick(f.clock.own);
    } else {   // a relaxed arrival carries what a fence.mbarrier_init.release before it has published
      for (const FenceNote& n : f.fences)
        if (n.publishes) g.cluster_coming_.add(g.current_, {n.known, n.clock});
    }
    if (g.cluster_arrived_.size() < g.fibers_.size()) return;
    g.cluster_arrived_.clear();
    g.cluster_generation_++;
    g.cluster_ready_ = g.cluster_coming_.empty() ? nullptr : g.cluster_coming_.finish();
    g.cluster_coming_ = Join(g.clocks());
    for (int t : g.cluster_waiting_) g.wake(t);
    g.cluster_waiting_.clear();
  }
  static void cluster_wait() {
    Engine& g = e();
    if (me().cluster_phase == 0) g.find("divergent barrier", "waits at the cluster's barrier without arriving", nullptr, true);
    if (me().cluster_phase > g.cluster_generation_) {
      g.cluster_waiting_.push_back(g.current_);
      me().barrier = 2000;
      g.wait({Why::Kind::kCluster});
    }
    acquire(g.cluster_ready_);
  }
  static void acquire(const Known& known) {
    me().clock.known = e().joined(me().clock.known, known);
  }

  static void store_remote(uint32_t to, const void* value, uint64_t bytes, const void* pc) {
    Engine& g = e();
    unsigned char* p = g.shared_at(to, bytes, pc);
    if (to % bytes != 0) g.find("misaligned access", "a store to another block of " + std::to_string(bytes) + " bytes", pc);
    g.access(p, bytes, true, g.current_, pc);
    memcpy(p, value, bytes);
  }
  static void store_async(uint32_t to, const void* value, uint64_t bytes, uint32_t bar, const void* pc) {
    Engine& g = e();
    g.shared_at(to, bytes, pc);
    g.access(g.shared_at(bar, 8, pc), 8, false, g.current_, pc);   // the init, by a thread of the other block, is ordered before
    g.mbarrier(bar, pc);
    if (to % bytes != 0) g.find("misaligned access", "st.async of " + std::to_string(bytes) + " bytes", pc);
    if (to >> 24 != bar >> 24) g.find("out of bounds", "st.async to one block completes on a barrier of another", pc);
    g.begin_late(to, bytes, g.current_, "st.async", pc);
    Transfer t;
    t.to = to;
    t.bar = bar;
    t.value.assign(static_cast<const unsigned char*>(value), static_cast<const unsigned char*>(value) + bytes);
    t.bytes = static_cast<int64_t>(bytes);
    t.issuer = g.current_;
    g.transfers_.push_back(std::move(t));
  }

  static void mbarrier_init(uint32_t bar, int arrivals, const void* pc) {
    Engine& g = e();
    unsigned char* p = g.shared_at(bar, 8, pc);
    if (bar % 8 != 0) g.find("misaligned access", "an mbarrier is a multiple of 8 bytes", pc, true);
    g.access(p, 8, true, g.current_, pc);
    MBarrier b;
    b.expected = b.pending = arrivals;
    b.coming = Join(g.clocks());
    b.writer = g.next_writer_++ % kAsyncWriters;
    g.mbarriers_[bar] = b;
  }
  static void mbarrier_arrive(uint32_t bar, uint32_t expect, int, const void* pc) {
    Engine& g = e();
    g.access(g.shared_at(bar, 8, pc), 8, false, g.current_, pc);   // the init is ordered before
    g.note_wait(hash_combine(bar, expect));
    MBarrier& b = g.mbarrier(bar, pc);
    b.bytes += expect;
    if (b.pending == 0) g.find("divergent barrier", "one more arrival than the mbarrier at " + g.name_shared(bar) + " counts", pc, true);
    b.pending--;
    b.coming.add(g.current_, me().clock);
    g.tick(me().clock.own);
    g.complete(bar);
  }
  static int mbarrier_test(uint32_t bar, int parity, int, const void* pc) {
    Engine& g = e();
    g.access(g.shared_at(bar, 8, pc), 8, false, g.current_, pc);
    g.note_wait(hash_combine(bar, static_cast<uint64_t>(7 + parity)));
    while ((g.mbarrier(bar, pc).phase & 1) == (parity & 1)) {   // phase number `phase` is open; the one before has the other parity
      g.mbarriers_[bar].waiting.push_back(g.current_);
      g.wait({Why::Kind::kMBarrier, bar, parity});
    }
    acquire(g.mbarriers_[bar].known);
    return 1;
  }
  /// What a box's place in shared memory, in either direction, and its coordinates must be; its bytes.
  static int64_t box_bytes(const EmulatedMap* m, const EmuBox* box, uint32_t place, const void* pc) {
    Engine& g = e();
    int64_t bytes = m->element_bytes;
    for (int b : m->box) bytes *= b;
    if (box->rank != static_cast<int>(m->dims.size()))
      g.find("tensor map",
             "a copy by " + std::to_string(box->rank) + " coordinates of a map of " + std::to_string(m->dims.size()) + " dimensions", pc,
             true);
    if (place % 128 != 0) g.find("misaligned access", "a tensor copy's place in shared memory is a multiple of 128 bytes", pc, true);
    if (box->at[0] * m->element_bytes % 16 != 0)
      g.find("misaligned access", "the lines of a tensor copy's box begin at multiples of 16 bytes (an H200 traps)", pc, true);
    if (m->swizzle && m->box[0] * m->element_bytes > m->swizzle)
      g.find("tensor map", "the box's lines are longer than the swizzle", pc, true);
    g.shared_at(place, static_cast<uint64_t>(bytes), pc);
    for (int d = 0; d < box->rank && g.options_.trace; d++)
      g.trace_.device_accesses +=
          hash_combine(hash_combine(static_cast<uint64_t>(box->at[d] + 64), static_cast<uint64_t>(d + 4)), g.block_number_);
    return bytes;
  }
  static void copy_box(uint32_t to, const void* map, const EmuBox* box, uint32_t bar, const void* pc) {
    Engine& g = e();
    g.mbarrier(bar, pc);
    const auto* m = reinterpret_cast<const EmulatedMap*>(*static_cast<const uint64_t*>(map));
    const int64_t bytes = box_bytes(m, box, to, pc);
    g.require_fence(to, static_cast<uint64_t>(bytes), g.current_, "a tensor copy writes ", pc);
    g.require_fence(bar, 8, g.current_, "a tensor copy completes on ", pc);
    g.begin_late(to, static_cast<uint64_t>(bytes), g.current_, "a tensor copy", pc);
    Transfer t;
    t.to = to;
    t.bar = bar;
    t.map = m;
    t.box = *box;
    t.bytes = bytes;
    t.issuer = g.current_;
    g.transfers_.push_back(std::move(t));
  }
  static void store_box(const void* map, const EmuBox* box, uint32_t from, const void* pc) {
    Engine& g = e();
    const auto* m = reinterpret_cast<const EmulatedMap*>(*static_cast<const uint64_t*>(map));
    const int64_t bytes = box_bytes(m, box, from, pc);
    g.require_fence(from, static_cast<uint64_t>(bytes), g.current_, "a tensor copy reads ", pc);
    me().stores.add({from, m, *box});
  }
  static void store_commit() {
    e().note_wait(9);
    me().stores.commit();
  }
  static void store_wait(int groups, const void* pc) {
    e().note_wait(static_cast<uint64_t>(3000 + groups));
    me().stores.wait(groups, [pc](const BoxStore& b) { e().store_box_bytes(b, pc); });
  }
  static void fence_async(int publishes) {
    e().note_wait(8);
    auto& fences = me().fences;
    fences.push_back({me().clock.own, me().clock.known, publishes != 0});
    e().tick(me().clock.own);   // what comes behind it is not fenced
    if (fences.size() > kMaxFences) fences.erase(fences.begin());
  }
  static void access_async(const void* p, uint64_t bytes, const void* pc) {
    Engine& g = e();
    g.access(p, bytes, false, g.current_, pc, true);   // which thread of a warpgroup it runs in says nothing
    if (g.options_.trace)
      g.trace_.accesses += hash_combine(static_cast<uint64_t>(static_cast<const unsigned char*>(p) - g.shared_), g.block_number_);
    if (g.is_shared(p))
      g.require_fence(static_cast<uint64_t>(static_cast<const unsigned char*>(p) - g.shared_), bytes, g.current_, "wgmma reads ", pc);
  }

  /// wgmma.fence (PTX ISA 9.7.15.7.1): before a wgmma that uses registers which others than wgmmas of this kind have written.
  static void fence_registers() { me().registers_fenced = true; }
  static void leave_registers(const void* d, uint64_t hash) { me().accumulators[d] = hash; }
  static void take_registers(const void* d, uint64_t hash, int others, const void* pc) {
    const auto it = me().accumulators.find(d);
    const bool untouched = it != me().accumulators.end() && it->second == hash && !others;
    if (!untouched && !me().registers_fenced)
      e().find("missing wgmma.fence", "a wgmma uses registers that this thread has written since", pc);
  }

  static void defer(void (*work)(void*), void* data, int) { me().work.add({work, data}); }
  static void defer_commit() { me().work.commit(); }
  static void defer_wait(int groups) {
    e().note_wait(static_cast<uint64_t>(2000 + groups));
    me().registers_fenced = false;
    me().work.wait(groups, [](const Deferred& d) { d.work(d.data); });
  }
};

const EmuApi& Engine::api() {
  static const EmuApi table = {Api::access,         Api::access_by,       Api::device,          Api::atomic,          Api::poll,
                               Api::fail,           Api::barrier,         Api::warp_barrier,    Api::gather,          Api::gather_group,
                               Api::dynamic_shared, Api::static_shared,   Api::shared_address,  Api::shared_pointer,  Api::copy_async,
                               Api::copy_commit,    Api::copy_wait,       Api::cluster_arrive,  Api::cluster_wait,    Api::remote_address,
                               Api::store_remote,   Api::store_async,     Api::mbarrier_init,   Api::mbarrier_arrive, Api::mbarrier_test,
                               Api::copy_box,       Api::store_box,       Api::store_commit,    Api::store_wait,      Api::fence_async,
                               Api::access_async,   Api::defer,           Api::defer_commit,    Api::defer_wait,      Api::fence_registers,
                               Api::leave_registers, Api::take_registers};
  return table;
}

}  // namespace mirage::emulate_detail

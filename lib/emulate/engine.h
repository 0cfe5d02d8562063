// The machine that emulated kernels run on: clusters of blocks one after another (those that poll device memory for what others leave there
// stand aside until it has come), their threads as fibers, shared and global memory under shadow, barriers, late copies. Lives in the child
// process that emulate() forks; one per process, because the kernel's calls carry no context. Source of the rules: CUDA C++ guide
// (execution and memory model), PTX ISA 9.7 (instructions).
#pragma once
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "emulate/fiber.h"
#include "emulate/host/api.h"
#include "emulate/shadow.h"
#include "mirage/emulate/emulate.h"
#include "mirage/support/hash.h"

namespace mirage::emulate_detail {

/// bytes of address space per block of a cluster: the part of a shared address below its rank
inline constexpr uint64_t kSharedWindow = uint64_t{1} << 24;
inline constexpr int kMaxCluster = 16;

struct Buffer {
  const EmulatedBuffer* facts = nullptr;
  unsigned char* data = nullptr;
  std::vector<ShadowByte> shadow;
  size_t low = SIZE_MAX, high = 0;   ///< of the shadow: what this launch has touched lies between
};

/// What several lanes do together; used again when the last of them has come to its next one.
struct Gather {
  uint32_t mask = 0;
  int expected = 0, arrived = 0, readers = 0;
  uint64_t bytes = 0;
  std::vector<unsigned char> slots;
};

/// What a thread has begun, in groups that it waits for in their order (cp.async.commit_group and the like).
template <class T>
class Groups {
 public:
  void add(T x) { items_.push_back(std::move(x)); }
  void commit() { ends_.push_back(items_.size()); }
  bool empty() const { return ended_ == items_.size() && groups_ended_ == ends_.size(); }
  /// Until at most `left` groups have not ended; `end` is called for what is in those that do.
  template <class F>
  void wait(int left, const F& end) {
    while (static_cast<int>(ends_.size() - groups_ended_) > left)
      for (const size_t last = ends_[groups_ended_++]; ended_ < last; ended_++) end(items_[ended_]);
    if (2 * ended_ >= items_.size() && 2 * groups_ended_ >= ends_.size()) forget();
  }

 private:
  void forget() {
    items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(ended_));
    ends_.erase(ends_.begin(), ends_.begin() + static_cast<std::ptrdiff_t>(groups_ended_));
    for (size_t& end : ends_) end -= ended_;
    ended_ = groups_ended_ = 0;
  }

  std::vector<T> items_;
  std::vector<size_t> ends_;                ///< of each group, in items_
  size_t ended_ = 0, groups_ended_ = 0;
};

/// What a thread waits for; in words only where somebody asks.
struct Why {
  enum class Kind { kNothing, kDeviceMemory, kWarp, kWarpgroup, kWarpBarrier, kBarrier, kCluster, kMBarrier };
  Kind kind = Kind::kNothing;
  uint32_t number = 0;                      ///< of a barrier, or an mbarrier's address
  int parity = 0;
};

struct LateCopy { unsigned char* to; const unsigned char* from; int bytes, there; };

/// fence.proxy.async (PTX ISA, "Proxy"): a thread's clock, and what it knew then.
struct FenceNote { uint32_t clock; Known known; bool publishes; };   ///< publishes: fence.mbarrier_init.release.cluster
inline constexpr size_t kMaxFences = 16;

struct Deferred { void (*work)(void*); void* data; };

/// A box on its way from shared memory to device memory.
struct BoxStore { uint32_t from = 0; const EmulatedMap* map = nullptr; EmuBox box{}; };

struct Fiber {
  Context context;
  EmuThread where{};
  int index = 0, block = 0;                 ///< in the cluster; rank of its block
  Clock clock;
  bool ended = false, ready = false;
  Why waits;                                ///< kNothing: it runs
  int barrier = -1;                         ///< the number of the barrier it waits at
  const void* polled = nullptr;             ///< device memory that it waits to see changed
  std::vector<unsigned char> seen;          ///< what it holds
  Gather* last = nullptr;
  Groups<LateCopy> copies;
  Groups<BoxStore> stores;                  ///< boxes to device memory
  Groups<Deferred> work;
  std::vector<FenceNote> fences;            ///< the youngest ones
  std::map<const void*, uint64_t> accumulators;   ///< what wgmma left in registers, as a hash; the arrays' places
  bool registers_fenced = false;            ///< wgmma.fence since the last wgmma was waited for
  EmulationTrace trace;
  uint64_t last_access = 0;                 ///< of the trace
  int cluster_phase = 0;                    ///< cluster barriers it has arrived at
};

struct Barrier { int expected = 0; std::vector<int> waiting, arrived; };

struct MBarrier {
  int expected = 0, pending = 0, phase = 0;
  int64_t bytes = 0;                        ///< that are still to come
  Known known;                              ///< of what completed phases order
  Join coming;                              ///< of the phase that is open: made one when it completes, not for every arrival
  std::vector<int> waiting;
  size_t writer = 0;                        ///< of the bytes that complete on it, below kAsyncWriters
};

/// Bytes on their way that complete on an mbarrier.
struct Transfer {
  uint32_t to = 0, bar = 0;
  std::vector<unsigned char> value;
  const EmulatedMap* map = nullptr;
  EmuBox box{};
  int64_t bytes = 0;
  int issuer = 0;
};

/// All that belongs to the cluster that runs. A cluster that polls device memory is put aside whole.
struct ClusterState {
  std::vector<std::vector<ShadowByte>> shadow_;     ///< per rank
  std::vector<uint64_t> static_bytes_;              ///< per rank, behind dynamic memory
  std::vector<bool> block_ended_;
  std::vector<int> block_alive_;                    ///< threads, per rank
  std::map<std::pair<int, const void*>, uint64_t> statics_;
  std::vector<Fiber> fibers_;
  Stacks stacks_;
  std::map<std::pair<int, int>, Barrier> barriers_;           ///< by rank and number
  std::map<std::pair<int, uint32_t>, Barrier> warp_barriers_; ///< by warp of the cluster and mask
  std::map<std::pair<int, uint64_t>, Gather*> gathers_;       ///< by warp (or -1 - warpgroup) and mask
  std::vector<std::unique_ptr<Gather>> gathers_made_;
  std::vector<Gather*> gathers_free_;
  std::map<uint32_t, MBarrier> mbarriers_;
  std::vector<Transfer> transfers_;
  std::vector<int> cluster_arrived_, cluster_waiting_;
  Join cluster_coming_;                                      ///< of the arrivals so far
  Known cluster_ready_;                                      ///< of the last complete barrier
  struct Joined { Known a, b, both; };
  std::array<Joined, 8> joined_;                             ///< the last ones: threads of a warp come by with the same knowledge
  size_t next_joined_ = 0;
  int cluster_generation_ = 0;
  std::array<uint32_t, kAsyncWriters> async_clock_{};        ///< per writer
  size_t next_writer_ = 0;
  uint32_t block_number_ = 0;
  int alive_ = 0;
  std::vector<std::vector<unsigned char>> contents_;         ///< of shared memory, while it is aside
};

class Engine : private ClusterState {
 public:
  /// Throws std::bad_alloc where there is no address space for the buffers.
  Engine(const std::vector<EmulatedBuffer>& buffers, const EmulateOptions& options);
  /// `call` runs the kernel for the current thread.
  void launch(const EmulatedKernel& kernel, void (*call)(void* const*), EmuThread* current);

  const std::vector<Finding>& findings() const { return findings_; }
  int64_t threads() const { return threads_; }
  int64_t accesses() const { return accesses_; }
  EmulationTrace trace() const { return trace_; }
  const unsigned char* buffer(size_t i) const { return buffers_[i].data; }
  static const EmuApi& api();
  static Engine* instance;
  std::string describe_crash(const void* address) const;

 private:
  friend struct Api;
  // ---- threads
  void run_cluster(const EmulatedKernel&, int64_t first_block, int cluster);
  void start_block(const EmulatedKernel&, int64_t block, int rank, int cluster);
  static void enter();
  [[noreturn]] void finish_fiber();
  void schedule();
  void run(int fiber);
  void wait(const Why& why);                              ///< leaves the current fiber until wake()
  std::string describe(const Why& why) const;
  void wake(int fiber) {
    fibers_[static_cast<size_t>(fiber)].waits = {};
    fibers_[static_cast<size_t>(fiber)].barrier = -1;
    ready_.push_back(fiber);
  }
  void report_stuck();
  bool wake_pollers();                                    ///< those whose memory has changed; false: none
  void put_aside();
  void continue_aside();                                  ///< clusters that have something to go on with, until none has
  void restore(size_t i);
  Fiber& me() { return fibers_[static_cast<size_t>(current_)]; }
  Known joined(const Known& a, const Known& b);           ///< either may be none
  void order(const std::vector<int>& all, const std::vector<int>& acquire);   ///< all release; those of `acquire` know it

  // ---- memory
  void access(const void* p, uint64_t bytes, bool write, int thread, const void* pc, bool by_hardware = false) {
    accesses_++;
    if (options_.trace && !by_hardware) note_access(p, bytes, write, thread);
    if (is_shared(p)) shared_access(reinterpret_cast<uint64_t>(p) - reinterpret_cast<uint64_t>(shared_), bytes, write, thread, pc);
    else if (is_global(p)) global_access(reinterpret_cast<uint64_t>(p) - reinterpret_cast<uint64_t>(global_), bytes, write, thread, pc);
  }
  void note_access(const void* p, uint64_t bytes, bool write, int thread);
  void note_wait(uint64_t what) { if (options_.trace) me().trace.waits = hash_combine(me().trace.waits, what); }
  void shared_access(uint64_t at, uint64_t bytes, bool write, int thread, const void* pc);
  void global_access(uint64_t at, uint64_t bytes, bool write, int thread, const void* pc);
  bool is_shared(const void* p) const {
    return reinterpret_cast<uint64_t>(p) - reinterpret_cast<uint64_t>(shared_) < kSharedWindow * kMaxCluster;
  }
  bool is_global(const void* p) const { return reinterpret_cast<uint64_t>(p) - reinterpret_cast<uint64_t>(global_) < global_bytes_; }
  std::string name_writer(Epoch e) const;
  bool is_padding(uint64_t at) const;
  std::string name_shared(uint64_t at) const;
  std::string name_global(uint64_t at) const;
  std::string name_thread(int fiber) const;
  unsigned char* shared_at(uint32_t address, uint64_t bytes, const void* pc);
  ShadowByte& shadow(uint64_t at) { return shadow_[static_cast<size_t>(at / kSharedWindow)][static_cast<size_t>(at % kSharedWindow)]; }
  void begin_late(uint64_t at, uint64_t bytes, int thread, const char* what, const void* pc);
  void end_late(uint64_t at, uint64_t bytes, Epoch writer);
  /// what ordinary writes left there may be touched by the asynchronous proxy
  void require_fence(uint64_t at, uint64_t bytes, int thread, const char* what, const void* pc);
  bool is_fenced(Epoch write, int thread) const;
  void deliver(const Transfer&);
  void copy_box_bytes(const Transfer&);
  void store_box_bytes(const BoxStore&, const void* pc);
  void complete(uint32_t bar);
  MBarrier& mbarrier(uint32_t bar, const void* pc);

  size_t clocks() const { return fibers_.size() + kAsyncWriters; }   ///< of threads, and of what copies write
  void tick(uint32_t& clock) {   ///< an epoch has no room for more: races would be blamed on others, or missed
    if (++clock >> kClockBits) find("too slow", "more barriers than the clocks of the shadow memory count", nullptr, true);
  }
  void find(const char* kind, const std::string& text, const void* pc, bool fatal = false);

  const EmulateOptions& options_;
  std::vector<Buffer> buffers_;
  unsigned char* global_ = nullptr;
  uint64_t global_bytes_ = 0;
  /// bytes of address space per buffer, which lies in its middle, so that wrong offsets hit nothing
  uint64_t window_ = 0;
  unsigned char* shared_ = nullptr;
  uint64_t dynamic_base_ = 0;

  const EmulatedKernel* kernel_ = nullptr;
  void (*call_)(void* const*) = nullptr;
  EmuThread* current_place_ = nullptr;
  std::vector<void*> arguments_;
  struct alignas(64) Map { uint64_t words[16]; };   // as kernels see it
  std::vector<Map> maps_;
  Context main_;
  std::deque<int> ready_;
  int current_ = -1;
  bool stopping_ = false, in_fiber_ = false, aside_ = false;    ///< aside_: the cluster that ran polls
  std::vector<ClusterState> asides_;
  std::vector<Stacks> free_stacks_;
  Rng random_;
  std::vector<Finding> findings_;
  std::set<std::pair<std::string, const void*>> seen_;
  EmulationTrace trace_;
  int64_t threads_ = 0, accesses_ = 0;
};

}  // namespace mirage::emulate_detail

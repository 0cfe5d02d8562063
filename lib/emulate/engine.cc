// Clusters, blocks and threads of an emulated launch: scheduling, barriers, deadlock. Memory is in engine_memory.cc, the table for kernels
// in engine_api.cc.
#include "emulate/engine.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "mirage/support/assert.h"

namespace mirage::emulate_detail {

Engine* Engine::instance = nullptr;

Engine::Engine(const std::vector<EmulatedBuffer>& buffers, const EmulateOptions& options)
    : options_(options), random_(hash_combine(options.seed, 0x456d75)) {
  const auto reserve = [](uint64_t bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : static_cast<unsigned char*>(p);
  };
  shared_ = reserve(kSharedWindow * kMaxCluster);
  uint64_t largest = 1;
  for (const EmulatedBuffer& b : buffers) largest = std::max<uint64_t>(largest, b.bytes.size());
  // Eight gigabytes each, where address space is not limited; else room for the largest buffer and wrong offsets of a few of its lengths.
  for (const uint64_t least : {uint64_t{1} << 33, uint64_t{1} << 27, uint64_t{1} << 24, uint64_t{1} << 21}) {
    window_ = std::max(least, std::bit_ceil(4 * largest));
    global_bytes_ = window_ * (buffers.size() + 1);
    if ((global_ = reserve(global_bytes_)) != nullptr) break;
  }
  if (!shared_ || !global_) throw std::bad_alloc();
  for (size_t i = 0; i < buffers.size(); i++) {
    Buffer b;
    b.facts = &buffers[i];
    b.data = global_ + window_ * i + window_ / 2;   // offsets may be wrong in both directions
    if (buffers[i].kind == EmulatedBuffer::Kind::kInput) memcpy(b.data, buffers[i].bytes.data(), buffers[i].bytes.size());
    else memset(b.data, 0xff, buffers[i].bytes.size());         // NaN in every type
    b.shadow.resize(buffers[i].kind == EmulatedBuffer::Kind::kInput ? 0 : buffers[i].bytes.size());
    buffers_.push_back(std::move(b));
  }
  instance = this;
}

void Engine::launch(const EmulatedKernel& kernel, void (*call)(void* const*), EmuThread* current) {
  kernel_ = &kernel;
  call_ = call;
  current_place_ = current;
  arguments_.clear();
  maps_.assign(kernel.maps.size(), {});
  for (size_t i = 0; i < kernel.maps.size(); i++) {
    maps_[i].words[0] = reinterpret_cast<uint64_t>(&kernel.maps[i]);
    arguments_.push_back(maps_[i].words);
  }
  for (int a : kernel.args) arguments_.push_back(buffers_[static_cast<size_t>(a)].data);
  for (Buffer& b : buffers_) {   // launches follow one another
    for (size_t i = b.low; i < b.high; i++) {
      const uint8_t initialized = b.shadow[i].initialized;
      b.shadow[i] = {};
      b.shadow[i].initialized = initialized;
    }
    b.low = SIZE_MAX, b.high = 0;
  }
  int cluster = 1;
  if (const size_t at = kernel.source.find("__cluster_dims__("); at != std::string::npos)
    cluster = std::max(1, atoi(kernel.source.c_str() + at + strlen("__cluster_dims__(")));
  MIRAGE_ASSERT(cluster <= kMaxCluster) << "cluster of " << cluster;
  const int64_t blocks = kernel.grid[0] * kernel.grid[1] * kernel.grid[2], clusters = blocks / cluster;
  const int64_t wanted =
      options_.max_blocks > 0 && !kernel.cooperative ? std::min(clusters, std::max<int64_t>(1, options_.max_blocks / cluster)) : clusters;
  for (int64_t i = 0; i < wanted && !stopping_; i++) {
    // the first and the last are among them
    run_cluster(kernel, (wanted == 1 ? 0 : i * (clusters - 1) / (wanted - 1)) * cluster, cluster);
    put_aside();
    continue_aside();
  }
  if (!asides_.empty() && !stopping_) {
    restore(0);
    const auto waits = std::find_if(fibers_.begin(), fibers_.end(), [](const Fiber& f) { return f.polled != nullptr; });
    current_ = waits->index;
    find("deadlock", "waits for a slot that nobody fills", nullptr);
    current_ = -1;
    stopping_ = true;
  }
  asides_.clear();
}

bool Engine::wake_pollers() {
  bool any = false;
  for (Fiber& f : fibers_)
    if (f.polled && memcmp(f.polled, f.seen.data(), f.seen.size()) != 0) {
      f.polled = nullptr;
      wake(f.index);
      any = true;
    }
  return any;
}

void Engine::put_aside() {
  if (!aside_ || stopping_) return;
  aside_ = false;
  contents_.clear();
  for (size_t rank = 0; rank < block_ended_.size(); rank++) {
    const unsigned char* const from = shared_ + kSharedWindow * rank;
    contents_.emplace_back(from, from + shadow_[rank].size());
  }
  asides_.push_back(std::move(static_cast<ClusterState&>(*this)));
  static_cast<ClusterState&>(*this) = ClusterState();
  if (!free_stacks_.empty()) { stacks_ = std::move(free_stacks_.back()); free_stacks_.pop_back(); }
}

void Engine::restore(size_t i) {
  free_stacks_.push_back(std::move(stacks_));
  static_cast<ClusterState&>(*this) = std::move(asides_[i]);
  asides_.erase(asides_.begin() + static_cast<std::ptrdiff_t>(i));
  for (size_t rank = 0; rank < contents_.size(); rank++)
    memcpy(shared_ + kSharedWindow * rank, contents_[rank].data(), contents_[rank].size());
}

void Engine::continue_aside() {
  const auto changed = [](const ClusterState& c) {
    return std::any_of(c.fibers_.begin(), c.fibers_.end(),
                       [](const Fiber& f) { return f.polled && memcmp(f.polled, f.seen.data(), f.seen.size()) != 0; });
  };
  for (size_t i = 0; i < asides_.size() && !stopping_;) {
    if (!changed(asides_[i])) { i++; continue; }
    restore(i);
    wake_pollers();
    schedule();
    put_aside();
    i = 0;
  }
}

void Engine::run_cluster(const EmulatedKernel& kernel, int64_t first_block, int cluster) {
  const int threads = kernel.threads * cluster;
  MIRAGE_ASSERT(threads + static_cast<int>(kAsyncWriters) < 1 << (32 - kClockBits)) << "cluster of " << threads << " threads";
  fibers_.clear();
  fibers_.resize(static_cast<size_t>(threads));
  barriers_.clear();
  warp_barriers_.clear();
  gathers_.clear();
  gathers_free_.clear();
  for (const auto& g : gathers_made_) gathers_free_.push_back(g.get());
  mbarriers_.clear();
  transfers_.clear();
  cluster_arrived_.clear();
  cluster_waiting_.clear();
  cluster_coming_ = Join(clocks());
  cluster_ready_ = nullptr;
  joined_ = {};
  cluster_generation_ = 0;
  async_clock_.fill(1);
  next_writer_ = 0;
  statics_.clear();
  block_number_ = static_cast<uint32_t>(first_block + 1);
  block_ended_.assign(static_cast<size_t>(cluster), false);
  block_alive_.assign(static_cast<size_t>(cluster), kernel.threads);
  static_bytes_.assign(static_cast<size_t>(cluster), 0);
  shadow_.resize(static_cast<size_t>(std::max<size_t>(shadow_.size(), static_cast<size_t>(cluster))));
  // Dynamic memory lies where its declaration allows and no better: a kernel that needs more alignment has to see to it.
  uint64_t align = 16;
  if (const size_t at = kernel.source.find("extern __shared__"); at != std::string::npos)
    if (const size_t n = kernel.source.find("__align__(", at); n != std::string::npos && n < kernel.source.find(';', at))
      align = static_cast<uint64_t>(atoll(kernel.source.c_str() + n + strlen("__align__(")));
  dynamic_base_ = align;
  auto nobody = std::make_shared<const std::vector<uint32_t>>(clocks(), 0);
  for (int rank = 0; rank < cluster; rank++) start_block(kernel, first_block + rank, rank, cluster);
  for (Fiber& f : fibers_) f.clock.known = nobody;
  threads_ += threads;
  alive_ = threads;
  schedule();
}

void Engine::start_block(const EmulatedKernel& kernel, int64_t block, int rank, int cluster) {
  memset(shared_ + kSharedWindow * static_cast<uint64_t>(rank) + dynamic_base_, 0xff, static_cast<size_t>(kernel.smem_bytes));
  shadow_[static_cast<size_t>(rank)].assign(static_cast<size_t>(dynamic_base_) + static_cast<size_t>(kernel.smem_bytes), {});
  for (int t = 0; t < kernel.threads; t++) {
    const int index = rank * kernel.threads + t;
    Fiber& f = fibers_[static_cast<size_t>(index)];
    f.index = index;
    f.block = rank;
    f.where.thread = {static_cast<unsigned>(t), 0, 0};
    f.where.block = {static_cast<unsigned>(block % kernel.grid[0]), static_cast<unsigned>(block / kernel.grid[0] % kernel.grid[1]),
                     static_cast<unsigned>(block / kernel.grid[0] / kernel.grid[1])};
    f.where.block_dim = {static_cast<unsigned>(kernel.threads), 1, 1};
    f.where.grid_dim = {static_cast<unsigned>(kernel.grid[0]), static_cast<unsigned>(kernel.grid[1]),
                        static_cast<unsigned>(kernel.grid[2])};
    f.where.cluster_rank = static_cast<unsigned>(rank);
    f.where.cluster_size = static_cast<unsigned>(cluster);
    f.context = make_context(stacks_.get(static_cast<size_t>(index)), kStackBytes, &Engine::enter);
    ready_.push_back(index);
  }
}

void Engine::enter() {
  instance->call_(instance->arguments_.data());
  instance->finish_fiber();
}

void Engine::finish_fiber() {
  Fiber& f = me();
  if (!f.stores.empty())
    find("missing wait", "ends before its tensor copies have read shared memory", nullptr);
  f.ended = true;
  const uint64_t who = static_cast<uint64_t>(block_number_) << 16 | static_cast<uint64_t>(f.index);   // threads in any order
  trace_.waits += hash_combine(f.trace.waits, who);
  alive_--;
  if (--block_alive_[static_cast<size_t>(f.block)] == 0) block_ended_[static_cast<size_t>(f.block)] = true;
  switch_context(f.context, main_);
  __builtin_unreachable();
}

void Engine::run(int fiber) {
  current_ = fiber;
  memcpy(static_cast<void*>(current_place_), &me().where, sizeof(EmuThread));
  in_fiber_ = true;
  switch_context(main_, me().context);
  in_fiber_ = false;
  current_ = -1;
}

void Engine::schedule() {
  while (!stopping_) {
    while (!ready_.empty() && !stopping_) {
      const int next = ready_.front();
      ready_.pop_front();
      run(next);
    }
    if (stopping_) break;
    if (!transfers_.empty()) {   // late bytes come when nobody can go on without them
      const size_t i = random_.below(transfers_.size());
      std::swap(transfers_[i], transfers_.back());   // any of them is next: their order says nothing
      const Transfer t = std::move(transfers_.back());
      transfers_.pop_back();
      current_ = t.issuer;   // whom findings name
      deliver(t);
      current_ = -1;
      continue;
    }
    if (alive_ == 0) break;
    if (wake_pollers()) continue;
    // other clusters may bring what it needs
    if (std::any_of(fibers_.begin(), fibers_.end(), [](const Fiber& f) { return f.polled != nullptr; })) {
      aside_ = true;
      break;
    }
    report_stuck();
    break;
  }
  ready_.clear();
}

void Engine::wait(const Why& why) {
  me().waits = why;
  switch_context(me().context, main_);
}

std::string Engine::describe(const Why& why) const {
  switch (why.kind) {
    case Why::Kind::kNothing: return "";
    case Why::Kind::kDeviceMemory: return "device memory";
    case Why::Kind::kWarp: return "warp operation";
    case Why::Kind::kWarpgroup: return "warpgroup operation";
    case Why::Kind::kWarpBarrier: return "warp barrier";
    case Why::Kind::kBarrier: return why.number == 0 ? "the block's barrier" : "barrier " + std::to_string(why.number);
    case Why::Kind::kCluster: return "the cluster's barrier";
    case Why::Kind::kMBarrier: return "mbarrier " + name_shared(why.number) + ", parity " + std::to_string(why.parity);
  }
  return "";
}

namespace {
/// "0-31, 64": runs of numbers.
std::string ranges(const std::vector<int>& sorted) {
  std::string out;
  for (size_t i = 0; i < sorted.size();) {
    size_t j = i;
    while (j + 1 < sorted.size() && sorted[j + 1] == sorted[j] + 1) j++;
    out += (out.empty() ? "" : ", ") + std::to_string(sorted[i]) + (j > i ? "-" + std::to_string(sorted[j]) : "");
    i = j + 1;
  }
  return out;
}
}  // namespace

void Engine::report_stuck() {
  std::map<std::pair<int, std::string>, std::vector<int>> groups;
  bool only_barriers = true;
  for (const Fiber& f : fibers_) {
    const std::string waits = describe(f.waits);
    groups[{f.block, f.ended ? "ended" : waits}].push_back(static_cast<int>(f.where.thread.x));
    only_barriers = only_barriers && (f.ended || f.barrier >= 0 || waits.starts_with("warp"));
  }
  std::string text;
  for (const auto& [key, threads] : groups)
    text += (text.empty() ? "" : "; ") + ("block " + std::to_string(static_cast<int64_t>(block_number_) - 1 + key.first)) + " threads " +
            ranges(threads) + ": " + (key.second == "ended" ? "have ended" : "wait at " + key.second);
  find(only_barriers ? "divergent barrier" : "deadlock", text, nullptr, false);
  stopping_ = true;
}

Known Engine::joined(const Known& a, const Known& b) {
  if (!a || !b || a == b) return a ? a : b;
  for (const Joined& j : joined_) if (j.a == a && j.b == b) return j.both;
  Join j(clocks());
  j.add(a);
  j.add(b);
  joined_[next_joined_] = {a, b, j.finish()};
  const Known out = joined_[next_joined_].both;
  next_joined_ = (next_joined_ + 1) % joined_.size();
  return out;
}

void Engine::order(const std::vector<int>& all, const std::vector<int>& acquire) {
  Join j(clocks());
  for (int t : all) j.add(t, fibers_[static_cast<size_t>(t)].clock);
  const Known known = j.finish();
  for (int t : all) tick(fibers_[static_cast<size_t>(t)].clock.own);
  for (int t : acquire) fibers_[static_cast<size_t>(t)].clock.known = known;
}

void Engine::find(const char* kind, const std::string& text, const void* pc, bool fatal) {
  if (seen_.insert({kind, pc}).second && static_cast<int>(findings_.size()) < options_.max_findings) {
    findings_.push_back({kind, kernel_->name + (current_ >= 0 ? ", " + name_thread(current_) : "") + ": " + text});
    if (static_cast<int>(findings_.size()) == options_.max_findings) fatal = true;
  }
  if (!fatal) return;
  stopping_ = true;
  if (in_fiber_) switch_context(me().context, main_);   // this thread does not go on
}

std::string Engine::name_thread(int fiber) const {
  const EmuThread& w = fibers_[static_cast<size_t>(fiber)].where;
  std::string out = "block " + std::to_string(w.block.x);
  if (w.grid_dim.y > 1 || w.grid_dim.z > 1) out += "," + std::to_string(w.block.y) + "," + std::to_string(w.block.z);
  return out + " thread " + std::to_string(w.thread.x);
}

std::string Engine::describe_crash(const void* address) const {
  char place[32];
  snprintf(place, sizeof place, "%p", address);
  return (kernel_ ? kernel_->name : std::string("?")) + (current_ >= 0 ? ", " + name_thread(current_) : "") + ": an access to " + place +
         ", which is no memory of the launch";
}

}  // namespace mirage::emulate_detail

// Who touched which byte of memory, and whether that was ordered: vector clocks (Lamport; FastTrack, PLDI'09) over the threads of one
// cluster of blocks. A race is two accesses, one of them a write, that no chain of barriers orders, whatever order they happened in here.
// Used by the engine only.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

namespace mirage::emulate_detail {

/// Thread and its clock in one word; 0: nobody.
using Epoch = uint32_t;
inline constexpr int kClockBits = 19;
inline Epoch make_epoch(int thread, uint32_t clock) { return static_cast<uint32_t>(thread) << kClockBits | clock; }
inline int thread_of(Epoch e) { return static_cast<int>(e >> kClockBits); }
inline uint32_t clock_of(Epoch e) { return e & ((1u << kClockBits) - 1); }

/// Behind the threads of a cluster stand as many more, which write what copies bring: one for each mbarrier that they complete on (more
/// mbarriers share them), since who has waited for one knows nothing of another's bytes.
inline constexpr size_t kAsyncWriters = 64;

/// What a thread knows of the others: clocks up to which their accesses are ordered before its own. Shared between the threads that left
/// one barrier together.
using Known = std::shared_ptr<const std::vector<uint32_t>>;

struct Clock {
  Known known;
  uint32_t own = 1;
};

/// Whether the access at `e` is ordered before what thread t does next.
inline bool ordered(Epoch e, int t, const Clock& c) {
  return e == 0 || thread_of(e) == t || (*c.known)[static_cast<size_t>(thread_of(e))] >= clock_of(e);
}

/// The join of what several threads know, themselves included.
class Join {
 public:
  explicit Join(size_t n = 0) : n_(n) {}
  void add(int thread, uint32_t clock) { own_.emplace_back(thread, clock); }
  void add(int thread, const Clock& c) {
    add(c.known);
    own_.emplace_back(thread, c.own);
  }
  void add(const Known& k) { if (k && std::find(bases_.begin(), bases_.end(), k) == bases_.end()) bases_.push_back(k); }
  bool empty() const { return bases_.empty() && own_.empty(); }
  Known finish() const {
    if (own_.empty() && bases_.size() == 1) return bases_[0];
    auto out = std::make_shared<std::vector<uint32_t>>(n_, 0);
    for (const Known& k : bases_)
      for (size_t i = 0; i < n_; i++) (*out)[i] = std::max((*out)[i], (*k)[i]);
    for (auto [t, c] : own_) (*out)[static_cast<size_t>(t)] = std::max((*out)[static_cast<size_t>(t)], c);
    return out;
  }
 private:
  size_t n_;
  std::vector<Known> bases_;
  std::vector<std::pair<int, uint32_t>> own_;
};

/// One byte. Of its readers three are remembered, of different warps where there are that many: a write that is ordered behind all of these
/// but not behind another one goes unseen.
struct ShadowByte {
  Epoch write = 0, reads[3] = {0, 0, 0};
  uint32_t block = 0;           ///< global memory: which block (plus one) the epochs are of
  uint8_t initialized = 0, pending = 0, next = 0, forbidden = 0;   ///< forbidden: a gap between arrays
  bool is(const ShadowByte& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }
};
static_assert(sizeof(ShadowByte) == 24 && std::has_unique_object_representations_v<ShadowByte>);

inline void note_read(ShadowByte& s, Epoch me, int t, const Clock& c) {
  int free = -1, same_warp = -1;
  for (int i = 0; i < 3; i++) {
    if (s.reads[i] == me) return;
    if (s.reads[i] == 0 || ordered(s.reads[i], t, c)) free = i;
    else if (thread_of(s.reads[i]) / 32 == t / 32) same_warp = i;
  }
  if (free < 0) free = same_warp;
  if (free < 0) free = s.next = static_cast<uint8_t>((s.next + 1) % 3);
  s.reads[free] = me;
}

}  // namespace mirage::emulate_detail

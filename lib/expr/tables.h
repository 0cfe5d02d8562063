// Two containers for hash-consing, used only by lib/expr: sequences of ints with dense ids, and a flat map from 64-bit keys to ints.
// Neither is ever iterated, so results do not depend on hashing.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>
#include "mirage/support/assert.h"
#include "mirage/support/hash.h"

namespace mirage::expr_internal {

/// Insert-only open-addressed map. The key ~0 is reserved.
class FlatMap {
 public:
  FlatMap() { slots_.assign(64, {kEmpty, 0}); }
  const int32_t* find(uint64_t key) const {
    for (size_t i = mix64(key) & mask();; i = (i + 1) & mask()) {
      if (slots_[i].key == key) return &slots_[i].value;
      if (slots_[i].key == kEmpty) return nullptr;
    }
  }
  /// Requires that key is not yet there.
  void insert(uint64_t key, int32_t value) {
    MIRAGE_DCHECK(key != kEmpty);
    if (2 * ++count_ > slots_.size()) grow();
    place(key, value);
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot { uint64_t key; int32_t value; };
  size_t mask() const { return slots_.size() - 1; }
  void place(uint64_t key, int32_t value) {
    size_t i = mix64(key) & mask();
    while (slots_[i].key != kEmpty) i = (i + 1) & mask();
    slots_[i] = {key, value};
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2, {kEmpty, 0});
    old.swap(slots_);
    for (const Slot& s : old)
      if (s.key != kEmpty) place(s.key, s.value);
  }
  std::vector<Slot> slots_;
  size_t count_ = 0;
};

inline uint64_t pair_key(int32_t a, int32_t b) { return static_cast<uint64_t>(static_cast<uint32_t>(a)) << 32 | static_cast<uint32_t>(b); }

/// Interned sequences of ints: equal contents have equal ids, dense from 0 in order of first appearance. Spans stay valid for the table's
/// life (storage is chunked).
class Sequences {
 public:
  Sequences() : slots_(64, -1) {}
  int size() const { return static_cast<int>(entries_.size()); }
  int64_t elements() const { return elements_; }   ///< of all sequences together
  std::span<const int32_t> operator[](int32_t id) const {
    const Entry& e = entries_[static_cast<size_t>(id)];
    return {e.data, e.size};
  }
  int32_t intern(std::span<const int32_t> s) {
    const uint64_t h = hash(s);
    size_t i = h & (slots_.size() - 1);
    for (; slots_[i] >= 0; i = (i + 1) & (slots_.size() - 1)) {
      const Entry& e = entries_[static_cast<size_t>(slots_[i])];
      if (e.hash == h && e.size == s.size() && std::equal(s.begin(), s.end(), e.data)) return slots_[i];
    }
    const int32_t id = size();
    entries_.push_back({store(s), s.size(), h});
    elements_ += static_cast<int64_t>(s.size());
    slots_[i] = id;
    if (2 * entries_.size() > slots_.size()) grow();
    return id;
  }

 private:
  struct Entry { const int32_t* data; size_t size; uint64_t hash; };
  int64_t elements_ = 0;
  static uint64_t hash(std::span<const int32_t> s) {
    uint64_t h = s.size();
    for (int32_t x : s) h = mix64(h ^ static_cast<uint32_t>(x));
    return h;
  }
  const int32_t* store(std::span<const int32_t> s) {
    constexpr size_t kChunk = 16384;
    if (chunks_.empty() || used_ + s.size() > capacity_) {
      capacity_ = std::max(kChunk, s.size());
      chunks_.push_back(std::make_unique<int32_t[]>(capacity_));
      used_ = 0;
    }
    int32_t* out = chunks_.back().get() + used_;
    std::copy(s.begin(), s.end(), out);
    used_ += s.size();
    return out;
  }
  void grow() {
    slots_.assign(slots_.size() * 2, -1);
    for (int32_t id = 0; id < size(); ++id) {
      size_t i = entries_[static_cast<size_t>(id)].hash & (slots_.size() - 1);
      while (slots_[i] >= 0) i = (i + 1) & (slots_.size() - 1);
      slots_[i] = id;
    }
  }
  std::vector<Entry> entries_;
  std::vector<int32_t> slots_;
  std::vector<std::unique_ptr<int32_t[]>> chunks_;
  size_t used_ = 0, capacity_ = 0;
};

}  // namespace mirage::expr_internal

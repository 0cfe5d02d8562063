// Memory of an emulated launch: what exists, who wrote it, what is on its way. See engine.h.
#include <cstring>

#include "emulate/engine.h"
#include "mirage/support/assert.h"

namespace mirage::emulate_detail {

/// Polls count once. Device memory: which bytes, in any order and by accesses of any width.
void Engine::note_access(const void* p, uint64_t bytes, bool write, int thread) {
  Fiber& f = fibers_[static_cast<size_t>(thread)];
  const bool shared = is_shared(p);
  if (!shared && !is_global(p)) return;   // its own stack
  const uint64_t place = reinterpret_cast<uint64_t>(p) - reinterpret_cast<uint64_t>(shared ? shared_ : global_),
                 what = hash_combine(place * 64 + bytes * 2 + (write ? 1 : 0), shared ? 1 : 2);
  if (what == f.last_access) return;
  f.last_access = what;
  // of a block: which lane of a warp makes an access of all of them depends on the schedule
  trace_.accesses += hash_combine(what, block_number_);
  for (uint64_t i = 0; i < bytes && !shared; i++)
    trace_.device_accesses += hash_combine((place + i) * 2 + (write ? 1 : 0), block_number_ + 3);
}

void Engine::shared_access(uint64_t at, uint64_t bytes, bool write, int thread, const void* pc) {
  const size_t rank = static_cast<size_t>(at / kSharedWindow);
  const uint64_t offset = at % kSharedWindow;
  if (rank >= block_ended_.size() || offset < dynamic_base_ || offset + bytes > shadow_[rank].size())
    return find("out of bounds",
                (write ? "writes " : "reads ") + std::to_string(bytes) + " bytes of shared memory at " +
                    std::to_string(static_cast<int64_t>(offset) - static_cast<int64_t>(dynamic_base_)) + " of " +
                    std::to_string(kernel_->smem_bytes),
                pc, true);
  const Fiber& f = fibers_[static_cast<size_t>(thread)];
  if (f.block != static_cast<int>(rank) && block_ended_[rank])
    find("ended block", (write ? "writes " : "reads ") + name_shared(at) + " of block rank " + std::to_string(rank) + ", which has ended",
         pc);
  const Epoch self = make_epoch(thread, f.clock.own);
  ShadowByte* s = &shadow_[rank][static_cast<size_t>(offset)];
  ShadowByte before, after;   // bytes of an access are mostly alike: what became of one becomes of the next
  for (uint64_t i = 0; i < bytes; i++, s++) {
    if (i > 0 && s->is(before) && (write || s->initialized)) { *s = after; continue; }
    before = *s;
    if (s->forbidden) find("out of bounds", (write ? "writes " : "reads ") + std::string("behind the end of a shared array"), pc, true);
    if (s->pending) {
      find(write ? "race" : "missing wait",
           std::string(write ? "writes " : "reads ") + name_shared(at + i) + " while a copy to it by " + name_thread(thread_of(s->write)) +
               " is on its way",
           pc);
      s->pending = 0;
    }
    if (s->write != self && !ordered(s->write, thread, f.clock))
      find("race",
           std::string(write ? "writes " : "reads ") + name_shared(at + i) + ", which " + name_writer(s->write) +
               " writes: no barrier is between",
           pc);
    if (!write) {
      if (!s->initialized && !is_padding(at + i)) {
        find("uninitialised read", "reads " + name_shared(at + i) + ", which nobody wrote", pc);
        s->initialized = 1;
      }
      note_read(*s, self, thread, f.clock);
    } else {
      for (Epoch& r : s->reads) {
        if (r != 0 && r != self && !ordered(r, thread, f.clock))
          find("race", "writes " + name_shared(at + i) + ", which " + name_thread(thread_of(r)) + " reads: no barrier is between", pc);
        r = 0;
      }
      s->write = self;
      s->initialized = 1;
    }
    after = *s;
  }
}

void Engine::global_access(uint64_t at, uint64_t bytes, bool write, int thread, const void* pc) {
  const size_t index = static_cast<size_t>(at / window_);
  const int64_t offset = static_cast<int64_t>(at % window_) - static_cast<int64_t>(window_ / 2);
  const auto verb = [write] { return std::string(write ? "writes " : "reads "); };
  if (index >= buffers_.size()) return find("out of bounds", verb() + "memory beyond every tensor", pc, true);
  Buffer& b = buffers_[index];
  const int64_t size = static_cast<int64_t>(b.facts->bytes.size());
  if (offset < 0 || offset + static_cast<int64_t>(bytes) > size)
    return find("out of bounds",
                verb() + std::to_string(bytes) + " bytes at offset " + std::to_string(offset) + " of " + b.facts->name + ", which has " +
                    std::to_string(size),
                pc, true);
  if (b.facts->kind == EmulatedBuffer::Kind::kInput) {
    if (write) find("written input", verb() + name_global(at), pc, true);
    return;
  }
  const Fiber& f = fibers_[static_cast<size_t>(thread)];
  const Epoch self = make_epoch(thread, f.clock.own);
  const uint32_t cluster = block_number_;
  ShadowByte* s = &b.shadow[static_cast<size_t>(offset)];
  ShadowByte before, after;
  b.low = std::min(b.low, static_cast<size_t>(offset)), b.high = std::max(b.high, static_cast<size_t>(offset) + bytes);
  for (uint64_t i = 0; i < bytes; i++, s++) {
    if (write && !b.facts->exists.empty() && !b.facts->exists[static_cast<size_t>(offset) + i])
      find("out of bounds", "writes between the elements of " + name_global(at + i), pc);
    if (i > 0 && s->is(before)) { *s = after; continue; }
    before = *s;
    const bool other = s->block != 0 && s->block != cluster;
    if (s->block != cluster && !other) s->block = cluster;
    if (other) {
      const bool conflict = s->write != 0 || (write && (s->reads[0] || s->reads[1] || s->reads[2]));
      if (conflict)
        find("race", verb() + name_global(at + i) + ", which another block of the launch " + (s->write ? "writes" : "reads"), pc);
      if (conflict || write) { s->write = 0; s->reads[0] = s->reads[1] = s->reads[2] = 0; s->block = cluster; }
      else { after = before; continue; }   // several blocks read it: the first stands for all
    }
    if (s->write != 0 && s->write != self && !ordered(s->write, thread, f.clock))
      find("race", verb() + name_global(at + i) + ", which " + name_writer(s->write) + " writes: no barrier is between", pc);
    if (!write) {
      if (!s->initialized) find("uninitialised read", "reads " + name_global(at + i) + ", which nobody wrote", pc), s->initialized = 1;
      note_read(*s, self, thread, f.clock);
    } else {
      for (Epoch& r : s->reads) {
        if (r != 0 && r != self && !ordered(r, thread, f.clock))
          find("race", "writes " + name_global(at + i) + ", which " + name_thread(thread_of(r)) + " reads: no barrier is between", pc);
        r = 0;
      }
      s->write = self;
      s->initialized = 1;
    }
    after = *s;
  }
}

std::string Engine::name_writer(Epoch e) const {
  return thread_of(e) < static_cast<int>(fibers_.size()) ? name_thread(thread_of(e)) : "a copy that is not waited for";
}

bool Engine::is_padding(uint64_t at) const {
  const int64_t offset = static_cast<int64_t>(at % kSharedWindow) - static_cast<int64_t>(dynamic_base_);
  for (const SharedName& n : kernel_->shared)
    if (n.line > 0 && offset >= n.offset && offset < n.offset + n.bytes && (offset - n.offset) % n.line >= n.used) return true;
  return false;
}

std::string Engine::name_shared(uint64_t at) const {
  const int64_t offset = static_cast<int64_t>(at % kSharedWindow) - static_cast<int64_t>(dynamic_base_);
  std::string out = "shared byte " + std::to_string(offset), names;
  for (const SharedName& n : kernel_->shared)
    if (offset >= n.offset && offset < n.offset + n.bytes)
      names += (names.empty() ? "" : " or ") + n.name + " + " + std::to_string(offset - n.offset);
  if (offset >= kernel_->smem_bytes) names = "a static array";
  return out + (names.empty() ? "" : " (" + names + ")");
}

std::string Engine::name_global(uint64_t at) const {
  const size_t index = static_cast<size_t>(at / window_);
  const int64_t offset = static_cast<int64_t>(at % window_) - static_cast<int64_t>(window_ / 2);
  return (index < buffers_.size() ? buffers_[index].facts->name : std::string("nothing")) + " at byte " + std::to_string(offset);
}

unsigned char* Engine::shared_at(uint32_t address, uint64_t bytes, const void* pc) {
  const uint64_t rank = address >> 24, offset = address & 0xffffff;
  if (rank >= block_ended_.size() || offset < dynamic_base_ || offset + bytes > shadow_[rank].size())
    find("out of bounds",
         std::to_string(bytes) + " bytes at shared address " +
             std::to_string(static_cast<int64_t>(offset) - static_cast<int64_t>(dynamic_base_)) + " of block rank " + std::to_string(rank),
         pc, true);
  return shared_ + address;
}

void Engine::begin_late(uint64_t at, uint64_t bytes, int thread, const char* what, const void* pc) {
  const Fiber& f = fibers_[static_cast<size_t>(thread)];
  const Epoch self = make_epoch(thread, f.clock.own);
  if (options_.trace) note_access(shared_ + at, bytes, true, thread);
  for (uint64_t i = 0; i < bytes; i++) {
    ShadowByte& s = shadow(at + i);
    if (s.pending)
      find("race",
           std::string(what) + " to " + name_shared(at + i) + " begins while another one to it, by " + name_thread(thread_of(s.write)) +
               ", is on its way",
           pc);
    else if (s.write != self && !ordered(s.write, thread, f.clock))
      find("race",
           std::string(what) + " to " + name_shared(at + i) + " begins, which " + name_writer(s.write) + " writes: no barrier is between",
           pc);
    for (Epoch& r : s.reads) {
      if (r != 0 && r != self && !ordered(r, thread, f.clock))
        find("race",
             std::string(what) + " to " + name_shared(at + i) + " begins, which " + name_thread(thread_of(r)) +
                 " reads: no barrier is between",
             pc);
      r = 0;
    }
    s.write = self;
    s.pending = 1;
    s.initialized = 1;
    shared_[at + i] = 0xff;
  }
}

/// Whether a fence is between an ordinary write and what `thread` does now: executed by the writer behind it, or by somebody who knows the
/// write, and known to `thread`.
bool Engine::is_fenced(Epoch write, int thread) const {
  const Clock& mine = fibers_[static_cast<size_t>(thread)].clock;
  for (const Fiber& f : fibers_)
    for (const FenceNote& n : f.fences) {
      const bool covers =
          thread_of(write) == f.index ? n.clock >= clock_of(write) : (*n.known)[static_cast<size_t>(thread_of(write))] >= clock_of(write);
      if (covers && (f.index == thread || (*mine.known)[static_cast<size_t>(f.index)] >= n.clock)) return true;
    }
  return false;
}

void Engine::require_fence(uint64_t at, uint64_t bytes, int thread, const char* what, const void* pc) {
  Epoch last = 0;   // the verdict of the byte before holds for bytes of one write
  for (uint64_t i = 0; i < bytes; i++) {
    const Epoch w = shadow(at + i).write;
    if (w == 0 || w == last || thread_of(w) >= static_cast<int>(fibers_.size())) continue;
    if (!is_fenced(w, thread))
      return find(
          "missing proxy fence",
          what + name_shared(at + i) + ", which " + name_thread(thread_of(w)) + " wrote the ordinary way: no fence.proxy.async is between",
          pc);
    last = w;
  }
}

void Engine::end_late(uint64_t at, uint64_t bytes, Epoch writer) {
  for (uint64_t i = 0; i < bytes; i++) {
    ShadowByte& s = shadow(at + i);
    s.pending = 0;
    s.write = writer;
  }
}

MBarrier& Engine::mbarrier(uint32_t bar, const void* pc) {
  auto it = mbarriers_.find(bar);
  if (it == mbarriers_.end()) {
    find("uninitialised read", "uses " + name_shared(bar) + " as a barrier, which is none", pc, true);
    it = mbarriers_.try_emplace(bar).first;
  }
  return it->second;
}

void Engine::complete(uint32_t bar) {
  MBarrier& b = mbarriers_[bar];
  if (b.pending > 0 || b.bytes != 0) return;
  b.phase++;
  b.pending = b.expected;
  b.coming.add(b.known);
  b.known = b.coming.finish();
  b.coming = Join(clocks());
  for (int t : b.waiting) wake(t);
  b.waiting.clear();
}

void Engine::deliver(const Transfer& t) {
  MBarrier& b = mbarriers_[t.bar];
  const size_t async = fibers_.size() + b.writer;
  const uint32_t clock = async_clock_[b.writer];
  tick(async_clock_[b.writer]);
  end_late(t.to, t.value.empty() ? static_cast<uint64_t>(t.bytes) : t.value.size(), make_epoch(static_cast<int>(async), clock));
  if (t.map) copy_box_bytes(t);
  else memcpy(shared_ + t.to, t.value.data(), t.value.size());
  if (block_ended_[t.to >> 24]) find("ended block", "bytes arrive in shared memory of a block that has ended", nullptr);
  b.coming.add(static_cast<int>(async), clock);
  b.bytes -= t.bytes;
  complete(t.bar);
}

namespace {

/// Tensor copies (PTX ISA 5.5): where element e of a box lies in the tensor's buffer, -1 beyond the tensor, and in shared memory; a swizzle
/// permutes the 16-byte chunks of a line by address bits 7 and up.
struct BoxElement { int64_t at; uint32_t place; };
BoxElement box_element(const EmulatedMap& m, const EmuBox& box, int64_t e, uint32_t first) {
  const uint32_t mask = m.swizzle == 128 ? 7 : m.swizzle == 64 ? 3 : m.swizzle == 32 ? 1 : 0;
  int64_t rest = e, at = m.offset_bytes;
  bool inside = true;
  for (size_t d = 0; d < m.dims.size(); d++) {
    const int64_t i = box.at[d] + rest % m.box[d];
    rest /= m.box[d];
    inside = inside && i >= 0 && i < m.dims[d];
    at += i * (d == 0 ? m.element_bytes : m.strides[d - 1]);
  }
  const uint32_t place = first + static_cast<uint32_t>(e * m.element_bytes);
  return {inside ? at : -1, place ^ (place >> 7 & mask) << 4};
}
int64_t box_elements(const EmulatedMap& m) {
  int64_t elements = 1;
  for (int b : m.box) elements *= b;
  return elements;
}

}  // namespace

/// Coordinates beyond the tensor are zeros.
void Engine::copy_box_bytes(const Transfer& t) {
  const EmulatedMap& m = *t.map;
  const Buffer& source = buffers_[static_cast<size_t>(m.buffer)];
  for (int64_t e = 0; e < box_elements(m); e++) {
    const auto [at, to] = box_element(m, t.box, e, t.to);
    if (at < 0) { memset(shared_ + to, 0, static_cast<size_t>(m.element_bytes)); continue; }
    if (at + m.element_bytes > static_cast<int64_t>(source.facts->bytes.size()))
      return find("out of bounds", "a tensor map reaches beyond " + source.facts->name, nullptr, true);
    if (!source.shadow.empty() && !source.shadow[static_cast<size_t>(at)].initialized)
      find("uninitialised read", "a tensor copy reads " + source.facts->name + " at byte " + std::to_string(at) + ", which nobody wrote",
           nullptr);
    memcpy(shared_ + to, source.data + at, static_cast<size_t>(m.element_bytes));
  }
}

/// What a box has beyond the tensor is read and goes nowhere.
void Engine::store_box_bytes(const BoxStore& b, const void* pc) {
  const EmulatedMap& m = *b.map;
  unsigned char* const to = buffers_[static_cast<size_t>(m.buffer)].data;
  const uint64_t bytes = static_cast<uint64_t>(m.element_bytes);
  for (int64_t e = 0; e < box_elements(m) && !stopping_; e++) {
    const auto [at, from] = box_element(m, b.box, e, b.from);
    access(shared_ + from, bytes, false, current_, pc, true);
    if (at < 0) continue;
    access(to + at, bytes, true, current_, pc, true);
    memcpy(to + at, shared_ + from, bytes);
  }
}

}  // namespace mirage::emulate_detail

// Fibers: a thread of an emulated block is a stack and a saved stack pointer. Switching costs a few nanoseconds, which is what makes
// shuffles and barriers affordable. Used by the engine only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace mirage::emulate_detail {

inline constexpr size_t kStackBytes = size_t{256} << 10;   ///< touched pages only cost memory

/// A suspended context.
struct Context { void* sp = nullptr; void* spare = nullptr; };

/// Leaves `from` and continues `to`.
void switch_context(Context& from, Context& to);
/// A context that calls entry() on the stack [low, low + bytes) when it is first continued. entry never returns.
Context make_context(unsigned char* low, size_t bytes, void (*entry)());

/// Stacks with a page before each that nobody may touch.
class Stacks {
 public:
  unsigned char* get(size_t i);      ///< the i-th stack; made on first use. Throws std::bad_alloc
 private:
  std::vector<unsigned char*> stacks_;
};

}  // namespace mirage::emulate_detail

// Memory that ends (a limit on address space, a machine that is full) is not the end of a run: a stage that the result can do without is
// given up, which is said, and what it held is free again for the rest.
#pragma once
#include <new>
#include <utility>

namespace mirage {

inline constexpr const char* kMemoryEnded = "given up: memory ended";

/// What `work` returns, or `otherwise` if memory ends in it.
template <class F, class R> R unless_memory_ends(F&& work, R otherwise) {
  try {
    return std::forward<F>(work)();
  } catch (const std::bad_alloc&) {
    return otherwise;
  }
}

}  // namespace mirage

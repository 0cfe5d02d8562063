// Worker pool: runs independent pieces of work on several threads. The pieces write to slots of their own, so results do not depend on how
// many threads there are.
#pragma once
#include <cstdint>
#include <functional>

namespace mirage {

/// Threads to use for a wish of `jobs` (0: one per processor of this machine; one where make has a jobserver that is out of reach), at
/// least 1.
int num_threads(int64_t jobs);

/// Calls work(i) once for every i in [0, n), on up to `threads` threads, and returns when all are done. Below a make with a jobserver every
/// thread but the caller's has one of its tokens while it works. With one thread they run in order on the caller's. If some throw, the
/// exception of the smallest i that threw is rethrown after all have ended (the same one for any number of threads).
void parallel_for(int threads, int64_t n, const std::function<void(int64_t)>& work);

}  // namespace mirage

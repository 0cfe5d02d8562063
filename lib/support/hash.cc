// 64-bit hashing by xxHash's XXH64, whose value is fixed by its specification: the same on every machine and in every version.
#include "mirage/support/hash.h"

#include <xxhash.h>

namespace mirage {

uint64_t hash_bytes(const void* data, size_t size, uint64_t seed) { return XXH64(data, size, seed); }

}  // namespace mirage

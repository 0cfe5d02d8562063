// Places workspace buffers by lifetime, and says which tensors are too long for kernels with 32-bit places. Private to lib/plan.
#pragma once
#include <vector>
#include "mirage/plan/plan.h"

namespace mirage {

/// The kernels, by position in launch order, between which a buffer's contents matter, both inclusive.
struct Lifetime { int first = 0, last = 0; };

/// Gives each workspace buffer an offset (a multiple of 256 bytes): buffers whose lifetimes meet never share a byte. lifetimes[i] belongs
/// to buffers[i] (ignored for inputs and outputs). Returns the bytes of the workspace, a multiple of 256. Requires: kernels of one position
/// read and write different buffers, so meeting includes touching.
int64_t place_buffers(std::vector<Buffer>& buffers, const std::vector<Lifetime>& lifetimes);

/// Kernels that count places along a dimension in an int, as tensor copies do, take dimensions up to this: room for tiles behind the end.
/// Addresses have 64 bits everywhere.
inline constexpr int64_t kMostPlaces = int64_t{1} << 30;
bool has_int_places(const std::vector<Access>& operands, const std::vector<Access>& results);

/// Whether an operand or a result lies in runs (Access::run), which streams and tiles alone know.
bool in_runs(const std::vector<Access>& operands, const std::vector<Access>& results);

/// Gives every kernel that wants slots (Derived::slots_bytes) a buffer of its own behind all others of the workspace, in place of those
/// that the plan has so far.
void place_slots(Plan& plan);

}  // namespace mirage

// What runs in the field (emulation_field.cc) and in floats (emulation.cc) share: device memory before a launch, the first look at it
// afterwards.
#pragma once
#include <vector>

#include <fmt/format.h>

#include "driver/emulation/elements.h"
#include "driver/emulation/emulation.h"
#include "mirage/ir/eval.h"

namespace mirage {

/// bits(value, type): an input's element in memory.
template <class V, class F>
std::vector<EmulatedBuffer> fill_buffers(const EmulationCase& c, const std::vector<Tensor<V>>& inputs, F&& bits) {
  std::vector<EmulatedBuffer> out;
  for (const Buffer& b : c.plan.buffers) {
    EmulatedBuffer e;
    e.kind = b.kind == Buffer::Kind::kInput    ? EmulatedBuffer::Kind::kInput
             : b.kind == Buffer::Kind::kOutput ? EmulatedBuffer::Kind::kOutput
                                               : EmulatedBuffer::Kind::kWorkspace;
    const auto index = static_cast<size_t>(b.index);
    e.name = b.kind == Buffer::Kind::kInput    ? "input " + c.program.inputs[index].name
             : b.kind == Buffer::Kind::kOutput ? "output " + c.program.outputs[index].name
                                               : fmt::format("workspace value at {}", b.offset_bytes);
    e.bytes.assign(static_cast<size_t>(b.bytes()), 0xff);
    const int64_t n = b.dims.elements(), size = dtype_bytes(b.dtype);
    if (n * size != b.bytes()) e.exists.assign(e.bytes.size(), 0);
    for (int64_t i = 0; i < n; i++) {
      const int64_t at = place_of(b.dims, b.strides, i) * size;
      if (!e.exists.empty()) std::fill_n(e.exists.begin() + at, size, static_cast<unsigned char>(1));
      if (b.kind == Buffer::Kind::kInput) put_bits(e.bytes.data() + at, b.dtype, bits(inputs[index].data[static_cast<size_t>(i)], b.dtype));
    }
    out.push_back(std::move(e));
  }
  return out;
}

/// What a run says of itself: findings, or why there is none of it, are its reason; slots that the next launch waits for must be as empty
/// as they were.
EmulationOutcome first_look(const EmulationCase&, const Emulation& run);

}  // namespace mirage

// Workspace memory: first fit by start of lifetime (buffers.h).
#include "mirage/plan/describe.h"
#include "plan/buffers.h"

#include <algorithm>
#include <numeric>

#include "mirage/plan/cublas.h"

namespace mirage {

int64_t Buffer::bytes() const {
  int64_t last = 0;
  for (int i = 0; i < dims.rank(); i++) last += (dims[i] - 1) * strides[i];
  return (last + 1) * dtype_bytes(dtype);
}

int64_t place_buffers(std::vector<Buffer>& buffers, const std::vector<Lifetime>& lifetimes) {
  constexpr int64_t kAlign = 256;
  MIRAGE_ASSERT(buffers.size() == lifetimes.size()) << "one lifetime per buffer";
  std::vector<size_t> order;
  for (size_t i = 0; i < buffers.size(); i++)
    if (buffers[i].kind == Buffer::Kind::kWorkspace) order.push_back(i);
  const auto size = [&](size_t i) { return (buffers[i].bytes() + kAlign - 1) / kAlign * kAlign; };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (lifetimes[a].first != lifetimes[b].first) return lifetimes[a].first < lifetimes[b].first;
    return size(a) > size(b);
  });
  int64_t total = 0;
  std::vector<size_t> placed;
  for (size_t i : order) {
    std::vector<std::pair<int64_t, int64_t>> taken;   // [begin, end) of buffers alive together with this one
    for (size_t j : placed)
      if (lifetimes[i].first <= lifetimes[j].last && lifetimes[j].first <= lifetimes[i].last)
        taken.push_back({buffers[j].offset_bytes, buffers[j].offset_bytes + size(j)});
    std::sort(taken.begin(), taken.end());
    int64_t at = 0;
    for (const auto& [begin, end] : taken) {
      if (begin - at >= size(i)) break;
      at = std::max(at, end);
    }
    buffers[i].offset_bytes = at;
    total = std::max(total, at + size(i));
    placed.push_back(i);
  }
  return total;
}

bool has_int_places(const std::vector<Access>& operands, const std::vector<Access>& results) {
  const auto fits = [](const Access& a) { return std::all_of(a.dims.begin(), a.dims.end(), [](int64_t d) { return d <= kMostPlaces; }); };
  return std::all_of(operands.begin(), operands.end(), fits) && std::all_of(results.begin(), results.end(), fits);
}

bool in_runs(const std::vector<Access>& operands, const std::vector<Access>& results) {
  const auto runs = [](const Access& a) { return a.run > 0; };
  return std::any_of(operands.begin(), operands.end(), runs) || std::any_of(results.begin(), results.end(), runs);
}

void place_slots(Plan& plan) {
  constexpr int64_t kAlign = 256;
  if (plan.scratch_bytes > 0) plan.workspace_bytes = plan.scratch_at;
  while (!plan.buffers.empty() && plan.buffers.back().slots) {
    plan.workspace_bytes = plan.buffers.back().offset_bytes;
    plan.buffers.pop_back();
  }
  for (KernelPlan& k : plan.kernels) {
    k.slots = -1;
    const int64_t bytes = derived_in(k) ? derived_in(k)->slots_bytes : 0;
    if (bytes == 0) continue;
    Buffer slots;
    slots.dims = {bytes / 4};
    slots.strides = {1};
    slots.slots = true;
    slots.offset_bytes = (plan.workspace_bytes + kAlign - 1) / kAlign * kAlign;
    plan.workspace_bytes = slots.offset_bytes + bytes;
    k.slots = static_cast<int>(plan.buffers.size());
    plan.buffers.push_back(std::move(slots));
  }
  plan.scratch_at = plan.scratch_bytes = 0;
  for (const KernelPlan& k : plan.kernels)
    if (const auto* product = std::get_if<std::shared_ptr<const CublasPlan>>(&k.body))
      plan.scratch_bytes = std::max(plan.scratch_bytes, (*product)->scratch_bytes);
  if (plan.scratch_bytes == 0) return;
  plan.scratch_at = (plan.workspace_bytes + kAlign - 1) / kAlign * kAlign;
  plan.workspace_bytes = plan.scratch_at + plan.scratch_bytes;
}

}  // namespace mirage

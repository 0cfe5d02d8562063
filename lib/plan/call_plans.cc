#include "mirage/plan/call_plans.h"

#include "mirage/plan/cublas.h"
#include "mirage/plan/region.h"
#include "mirage/support/assert.h"
#include "mirage/support/hash.h"
#include "plan/region/region_plans.h"

namespace mirage {
namespace {

constexpr size_t kMostEntries = 4000;   // tens of kilobytes each

/// Buffers in the order in which accesses first name them.
class BufferNumbers {
 public:
  int number_of(int buffer) {
    if (buffer < 0) return buffer;
    for (size_t i = 0; i < buffers_.size(); i++) if (buffers_[i] == buffer) return static_cast<int>(i);
    buffers_.push_back(buffer);
    return static_cast<int>(buffers_.size()) - 1;
  }
  int buffer_of(int number) const { return number < 0 ? number : buffers_.at(static_cast<size_t>(number)); }

 private:
  std::vector<int> buffers_;
};

std::vector<Access> numbered(const std::vector<Access>& operands, const std::vector<Access>& results, BufferNumbers& numbers) {
  std::vector<Access> out;
  for (const auto* list : {&operands, &results})
    for (Access a : *list) {
      a.buffer = numbers.number_of(a.buffer);
      a.second.buffer = numbers.number_of(a.second.buffer);
      out.push_back(std::move(a));
    }
  return out;
}

uint64_t key_of(const Graph& body, const std::vector<Access>& accesses, size_t operands) {
  uint64_t h = hash_combine(body.hash(), operands);
  for (const Access& a : accesses) {
    h = hash_combine(h, static_cast<uint64_t>(a.buffer) * 64 + static_cast<uint64_t>(a.dtype));
    h = hash_combine(h, static_cast<uint64_t>(a.offset));
    for (int d = 0; d < a.dims.rank(); d++)
      h = hash_combine(hash_combine(h, static_cast<uint64_t>(a.dims[d])), static_cast<uint64_t>(a.strides[d]));
  }
  return h;
}

/// The body with other buffers.
template <class Map> KernelBody with_buffers(const KernelBody& body, Map&& map) {
  const auto move = [&](KernelCall& call) {
    for (auto* list : {&call.operands, &call.results})
      for (Access& a : *list) a.buffer = map(a.buffer), a.second.buffer = map(a.second.buffer);
  };
  if (const auto* p = std::get_if<std::shared_ptr<const ProgramPlan>>(&body)) {
    auto copy = std::make_shared<ProgramPlan>(**p);
    for (KernelCall& call : copy->calls) move(call);
    return copy;
  }
  const auto* product = std::get_if<std::shared_ptr<const CublasPlan>>(&body);
  MIRAGE_ASSERT(product) << "a call is no region";
  auto copy = std::make_shared<CublasPlan>(**product);
  move(*copy);
  return copy;
}

}  // namespace

CallPlans::CallPlans() : regions_(std::make_shared<RegionPlans>()) {}

std::optional<CallPlan> CallPlans::find(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results) const {
  BufferNumbers numbers;
  const std::vector<Access> accesses = numbered(operands, results, numbers);
  std::optional<CallPlan> out;
  {
    std::lock_guard lock(mutex_);
    const auto at = entries_.find(key_of(body, accesses, operands.size()));
    if (at == entries_.end()) return std::nullopt;
    for (const Entry& e : at->second)
      if (e.accesses == accesses && e.body == body) out = e.plan;
  }
  if (out && out->body) out->body = with_buffers(*out->body, [&](int number) { return numbers.buffer_of(number); });
  return out;
}

void CallPlans::keep(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results, const CallPlan& plan) {
  BufferNumbers numbers;
  Entry e{body, numbered(operands, results, numbers), plan};
  if (e.plan.body) e.plan.body = with_buffers(*e.plan.body, [&](int buffer) { return numbers.number_of(buffer); });
  const uint64_t key = key_of(body, e.accesses, operands.size());
  std::lock_guard lock(mutex_);
  if (size_ >= kMostEntries) return;
  size_++;
  entries_[key].push_back(std::move(e));
}

std::shared_ptr<const Graph> CallPlans::product(const Type& x, const Type& y, std::span<const Dims> strides,
                                                const std::function<Graph()>& make) {
  std::string key = to_string(x) + to_string(y);
  for (const Dims& s : strides) key += to_string(s);
  {
    std::lock_guard lock(mutex_);
    if (const auto at = products_.find(key); at != products_.end()) return at->second;
  }
  auto made = std::make_shared<const Graph>(make());
  std::lock_guard lock(mutex_);
  if (products_.size() < kMostEntries) products_.emplace(std::move(key), made);
  return made;
}

}  // namespace mirage

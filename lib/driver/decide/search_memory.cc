// SearchMemory; see the header.
#include "driver/decide/search_memory.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace mirage {

namespace {

std::vector<int64_t> extents_of_inputs(const Program& p) {
  std::vector<int64_t> out;
  for (const TensorInfo& t : p.inputs) out.insert(out.end(), t.type.dims.begin(), t.type.dims.end());
  return out;
}

int64_t count_equal(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  int64_t out = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); i++) out += a[i] == b[i];
  return out;
}

}  // namespace

std::string SearchMemory::problem_of(const Program& program, const Witnesses& w, int round) {
  std::string out = fmt::format("{} {} {} {} {}\n", round, program.numerics.rtol.value_or(-1), program.numerics.atol.value_or(-1),
                                program.numerics.tf32, program.numerics.exact);
  for (const Witness& v : w.variants) {
    out += print(v.graph, "witness");
    for (const Type& t : v.params) out += to_string(t) + ";";
  }
  for (const auto* list : {&program.inputs, &program.outputs})
    for (const TensorInfo& t : *list)
      out += std::string(dtype_name(t.type.dtype)) + (t.range ? fmt::format(" {} {}", t.range->first, t.range->second) : "") + ";";
  for (DType t : program.kept) out += dtype_name(t)[0];
  return out;
}

std::optional<SearchMemory::Found> SearchMemory::find(const std::string& problem, const Program& program, const Program& unshifted) {
  if (parent_) {
    auto known = parent_->find(problem, program, unshifted);
    std::lock_guard lock(mutex_);
    if (known) shared_++;
    return known;
  }
  std::optional<Found> out;
  {
    std::lock_guard lock(mutex_);
    const auto at = known_.find(problem);
    if (at == known_.end()) return std::nullopt;
    const std::vector<int64_t> own = extents_of_inputs(program);
    const auto best = std::max_element(at->second.begin(), at->second.end(), [&](const Entry& a, const Entry& b) {
      return count_equal(a.extents, own) < count_equal(b.extents, own);
    });
    out = best->found;
    shared_++;
  }
  const std::shared_ptr<const Worlds> worlds = make_worlds(unshifted);
  for (Candidate& c : out->candidates) {
    c.structure.worlds = worlds;
    c.structure.states = c.structure.effort = 0;
  }
  SearchReport counted_nothing;
  counted_nothing.verified = out->report.verified;
  counted_nothing.complete = out->report.complete;
  counted_nothing.stop_reason = out->report.stop_reason;
  counted_nothing.max_block_ops_used = out->report.max_block_ops_used;
  out->report = std::move(counted_nothing);
  return out;
}

void SearchMemory::keep(const std::string& problem, const Program& program, const std::vector<Candidate>& candidates,
                        const SearchReport& report) {
  static const char* const kCutShort[] = {"time", "memory", "interrupted"};
  if (std::any_of(std::begin(kCutShort), std::end(kCutShort), [&](const char* s) { return report.stop_reason == s; })) return;
  if (parent_) parent_->keep(problem, program, candidates, report);
  std::lock_guard lock(mutex_);
  searched_++;
  if (!closed_ && !parent_) fresh_[problem].push_back({extents_of_inputs(program), {candidates, report}});
}

void SearchMemory::count_search() {
  if (parent_) parent_->count_search();
  std::lock_guard lock(mutex_);
  searched_++;
}

void SearchMemory::next_program() {
  std::lock_guard lock(mutex_);
  for (auto& [problem, entries] : fresh_) {
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.extents < b.extents; });  // pieces are searched in any order
    std::vector<Entry>& all = known_[problem];
    for (Entry& e : entries)
      if (std::none_of(all.begin(), all.end(), [&](const Entry& o) { return o.extents == e.extents; })) all.push_back(std::move(e));
  }
  fresh_.clear();
}

void SearchMemory::close() {
  next_program();
  std::lock_guard lock(mutex_);
  closed_ = true;
}

}  // namespace mirage

// Speculative steps; see ahead.h.
#include "search/growth/ahead.h"
#include <algorithm>
#include <new>
#include <system_error>

namespace mirage::search {

Ahead::Ahead(int threads, int64_t bytes) : bytes_(bytes) {
  try {
    for (int t = 1; t < threads; t++) threads_.emplace_back([this] { work(); });   // the caller is the first thread
  } catch (const std::system_error&) {   // the system's limit of threads: as many as there are do the work
  }
}

Ahead::~Ahead() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    for (auto& e : entries_) e->search->cancelled = true;
  }
  changed_.notify_all();
}

void Ahead::expect(const std::vector<std::shared_ptr<SplitSearch>>& searches, int ideas, int64_t effort_left) {
  if (threads_.empty()) return;
  std::lock_guard lock(mutex_);
  effort_left_ = effort_left;
  for (const auto& s : searches) {
    entries_.push_back(std::make_shared<Entry>());
    Entry& e = *entries_.back();
    e.search = s;
    e.batch = batches_;
    e.last = ideas;
    e.next = s->known;   // those need not be made
  }
  batches_++;
  changed_.notify_all();
}

std::shared_ptr<Ahead::Entry> Ahead::find(const SplitSearch& s) {
  for (const auto& e : entries_) if (e->search.get() == &s) return e;
  return nullptr;
}

/// The first step that nobody makes yet, in about the order in which they will be asked for.
std::shared_ptr<Ahead::Entry> Ahead::next_entry() {
  std::shared_ptr<Entry> best;
  auto waits = [&](const Entry& e) {
    return std::any_of(entries_.begin(), entries_.end(), [&](const auto& o) {
      return o->batch == e.batch && o->next <= o->last && !o->given_up && e.search->split.is_coarser_than(o->search->split);
    });
  };
  for (const auto& e : entries_) {
    if (e->running || e->wanted || e->given_up || e->next > e->last || held_ >= bytes_ || waits(*e)) continue;
    const auto turn = [](const Entry& x) { return std::pair(x.batch, turn_of(x.search->split, x.spent)); };
    if (!best || turn(*e) < turn(*best)) best = e;
  }
  return best;
}

void Ahead::run_ahead(std::unique_lock<std::mutex>& lock, Entry& e) {
  const int ideas = e.next++;
  const Limits limits{effort_left_, bytes_ == kNoLimit ? kNoLimit : e.held + (bytes_ - held_) / static_cast<int64_t>(threads_.size() + 1)};
  if (bytes_ != kNoLimit) hold(e, limits.bytes);
  e.running = true;
  lock.unlock();
  Outcome outcome;
  try {
    outcome = e.search->step(ideas, StepKind::kIdeas, limits);
  } catch (const std::bad_alloc&) {   // in its turn, the caller's thread says so
    outcome.end = End::kMemory;
  }
  const bool is_whole = outcome.end == End::kWhole && !e.search->cancelled;
  if (!is_whole) e.search->rewind();
  lock.lock();
  e.running = false;
  if (&e == awaited_ && meanwhile_) meanwhile_->hurried = true;
  if (bytes_ != kNoLimit) hold(e, is_whole ? outcome.held_bytes : 0);
  if (outcome.capped) e.last = ideas;
  if (is_whole) e.spent += outcome.report.effort;
  if (is_whole) e.made.emplace(ideas, Made{std::move(outcome), limits});
  else if (e.search->hurried) e.next = ideas;   // nothing was wrong with it
  else e.given_up = true;
  e.search->hurried = false;
  changed_.notify_all();
}

void Ahead::work() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (const auto e = next_entry()) run_ahead(lock, *e);
    else changed_.wait(lock);
  }
}

/// Until nobody makes the step with so many ideas; steps behind it may be under way by then. The thread that waits makes another one
/// meanwhile, but no longer than it would have waited: that one may be long, and superfluous by what this one finds.
void Ahead::await(std::unique_lock<std::mutex>& lock, Entry& e, int ideas) {
  while (e.running && e.next == ideas + 1) {
    const auto other = next_entry();
    if (!other) { changed_.wait(lock); continue; }
    awaited_ = &e;
    meanwhile_ = other->search.get();
    run_ahead(lock, *other);
    awaited_ = nullptr;
    meanwhile_ = nullptr;
  }
}

void Ahead::stop_step(std::unique_lock<std::mutex>& lock, Entry& e) {
  e.wanted = true;
  while (e.running) {
    e.search->hurried = true;
    changed_.wait(lock);
  }
  e.wanted = false;
}

Outcome Ahead::take(const std::shared_ptr<SplitSearch>& search, int ideas, StepKind kind, const Limits& limits) {
  if (threads_.empty()) return search->step(ideas, kind, limits);
  std::unique_lock lock(mutex_);
  effort_left_ = limits.effort;
  const auto e = find(*search);
  if (!e) { lock.unlock(); return search->step(ideas, kind, limits); }
  if (kind == StepKind::kIdeas) await(lock, *e, ideas);
  e->next = std::max(e->next, ideas + 1);
  // steps behind it may be under way: they are not waited for
  if (const auto made = e->made.find(ideas); kind == StepKind::kIdeas && made != e->made.end()) {
    Made m = std::move(made->second);
    e->made.erase(made);
    if (e->made.empty() && !e->running) hold(*e, 0);   // the caller counts it now
    if (m.outcome.holds_within(m.limits, limits)) return std::move(m.outcome);
    stop_step(lock, *e);
    search->rewind();
  }
  stop_step(lock, *e);   // one behind this one, and it is not to be kept
  e->running = true;   // nobody else may step it now
  lock.unlock();
  Outcome outcome = search->step(ideas, kind, limits);
  lock.lock();
  e->running = false;
  e->spent += outcome.report.effort;
  changed_.notify_all();
  return outcome;
}

void Ahead::drop(const std::shared_ptr<SplitSearch>& search) {
  std::unique_lock lock(mutex_);
  search->cancelled = true;
  if (const auto e = find(*search)) {
    std::erase(entries_, e);
    if (e->running) return;   // its thread ends soon, and lets go of it
    hold(*e, 0);
  }
  lock.unlock();
  search->rewind();
}

}  // namespace mirage::search

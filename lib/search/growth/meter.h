// What a step of the search may use and has used: counted effort and bytes, never time, decide where it ends, so that it ends at the same
// place on every machine and for any number of threads. A wall clock, an interrupt or a cancellation ends it early, without a result that
// counts.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include "mirage/search/search.h"

namespace mirage::search {

inline constexpr int64_t kNoLimit = INT64_MAX;
using Deadline = std::optional<std::chrono::steady_clock::time_point>;

struct Limits { int64_t effort = kNoLimit, bytes = kNoLimit; };

enum class End : uint8_t { kWhole, kStates, kMemory, kStopped };   ///< by itself; by a limit of Limits; by the clock or from outside

class Meter {
 public:
  /// cancelled, hurried: set from outside to end the step soon; the first for good.
  Meter(const std::atomic<bool>* stop, Deadline deadline, const std::atomic<bool>* cancelled = nullptr,
        const std::atomic<bool>* hurried = nullptr)
      : stop_(stop), cancelled_(cancelled), hurried_(hurried), deadline_(deadline) {}
  /// Counts of the next step begin at zero; what is held stays.
  void begin(const Limits& limits) {
    report = {};
    limits_ = limits;
    checked_ = 0;
    peak_ = held_;
    end_ = End::kWhole;
  }
  /// Asked before each piece of work: whether to end.
  bool done() {
    if (end_ != End::kWhole) return true;
    checked_ = report.effort;
    if (report.effort >= limits_.effort) end_ = End::kStates;
    else if (is_set(cancelled_) || is_set(hurried_) || is_set(stop_)) end_ = End::kStopped;
    else if (deadline_ && ++clock_skips_ % 64 == 0 && std::chrono::steady_clock::now() > *deadline_) end_ = End::kStopped;
    return end_ != End::kWhole;
  }
  /// Asked before memory is kept. False: it would be over the limit, and the step ends; or, for what one can do without, is not kept.
  bool charge(int64_t bytes, bool is_needed = true) {
    peak_ = std::max(peak_, held_ + bytes);
    if (held_ + bytes > limits_.bytes) {
      if (end_ == End::kWhole && is_needed) end_ = End::kMemory;
      return false;
    }
    held_ += bytes;
    return true;
  }
  void release(int64_t bytes) { held_ -= bytes; }
  void count(Gate gate, const auto& example, int64_t times = 1) {   ///< example(): text, made for the first only
    GateCount& c = report.gates[static_cast<size_t>(gate)];
    if (c.closed == 0 && times > 0) c.first_example = example();
    c.closed += times;
  }
  End end() const { return end_; }
  int64_t held() const { return held_; }
  int64_t peak() const { return peak_; }
  /// at the last time that done() was asked: with any limit above it the step would have been the same
  int64_t checked_effort() const { return checked_; }

  SearchReport report;               ///< states, effort and gates of this step

 private:
  static bool is_set(const std::atomic<bool>* flag) { return flag && flag->load(std::memory_order_relaxed); }
  const std::atomic<bool>* stop_;
  const std::atomic<bool>* cancelled_;
  const std::atomic<bool>* hurried_;
  Deadline deadline_;
  Limits limits_;
  int64_t checked_ = 0, held_ = 0, peak_ = 0, clock_skips_ = 0;
  End end_ = End::kWhole;
};

}  // namespace mirage::search

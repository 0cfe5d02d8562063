// Trace: what runs around every stage. Times it, checks the law of its product, shows the product where --print-after or --dump-dir ask for
// it, and counts (stats.def). Knows nothing of graphs: products come as functions that print them, called only when somebody looks.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mirage {

enum class Stat : uint8_t {
#define STAT(id, name, help) id,
#include "mirage/support/stats.def"
#undef STAT
  kNumStats
};
const char* stat_name(Stat);
const char* stat_help(Stat);

struct TraceOptions {
  std::vector<std::string> print_after;                   ///< stage names, or "all"
  bool keep_products = false;                             ///< for --dump-dir: products() has every stage's
  bool check_laws = true;                                 ///< abort with the product if a law is broken
  std::function<void(const std::string& text)> print;     ///< where --print-after goes; empty: nowhere
};

/// One per spec. stage() may be called from one thread at a time; count() from any.
class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  using Printer = std::function<std::string()>;
  using Law = std::function<std::optional<std::string>()>;   ///< what is broken, or nullopt

  explicit Trace(TraceOptions options = {});

  /// Runs `work`, timed under `name`, and returns what it returns. Stages nest.
  template <class Work> auto stage(std::string_view name, Work&& work) {
    Timer timer(*this, name);
    return work();
  }

  /// The product of a stage: its law is checked (a broken one is our bug: aborts and prints the product), then it is shown and kept if
  /// asked for. `file` names it in the dump folder, without number.
  void product(std::string_view stage, const std::string& file, const Printer& print, const Law& law = {});

  void count(Stat, int64_t n = 1);
  int64_t counted(Stat) const;

  /// (file name, text) of every product in order, numbered: "02-choose.rms.graph".
  const std::vector<std::pair<std::string, std::string>>& products() const { return products_; }
  double seconds(std::string_view stage) const;           ///< total of the stage's runs so far
  std::string print_times() const;                        ///< --time
  std::string print_stats() const;                        ///< --stats
  std::string chrome_json(std::string_view process) const;   ///< --trace: the array of events, for chrome://tracing or Perfetto

 private:
  struct Event { std::string name; double begin_us = 0, length_us = 0; int depth = 0; };
  class Timer {
   public:
    Timer(Trace& trace, std::string_view name);
    ~Timer();
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;
   private:
    Trace& trace_;
    size_t event_;
  };
  double now_us() const;

  TraceOptions options_;
  Clock::time_point start_ = Clock::now();
  std::vector<Event> events_;
  int depth_ = 0;
  std::vector<std::pair<std::string, std::string>> products_;
  mutable std::mutex counts_mutex_;
  std::array<int64_t, static_cast<size_t>(Stat::kNumStats)> counts_{};
};

}  // namespace mirage

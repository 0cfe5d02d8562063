// The jobserver of GNU make (its manual, "POSIX Jobserver Interaction"): how many threads may work beside those of the other recipes that
// make runs at the same time.
#pragma once
#include <functional>
#include <memory>
#include <string>

namespace mirage {

/// A way to make's tokens. The thread that calls a recipe's command has one without asking; each further thread takes one for as long as it
/// works.
class Jobserver {
 public:
  /// The one that MAKEFLAGS names: --jobserver-auth=R,W (a pipe, handed only to recipes that begin with '+'), --jobserver-auth=fifo:PATH,
  /// or --jobserver-fds=R,W. nullptr: none is named, or it cannot be reached. `is_named`, if not null: whether one is named.
  static std::unique_ptr<Jobserver> open(const std::string& makeflags, bool* is_named = nullptr);
  ~Jobserver();
  Jobserver(const Jobserver&) = delete;
  Jobserver& operator=(const Jobserver&) = delete;

  /// Waits for a token while give_up() is false, which is asked some twenty times a second. Whether there is one.
  bool acquire(const std::function<bool()>& give_up);
  void release();  ///< gives one back that acquire() got

 private:
  Jobserver(int in, int out) : in_(in), out_(out) {}
  int in_, out_;  // descriptors of our own: that the reading one does not block is nobody else's business
};

/// This process's, opened at the first call; nullptr: none.
Jobserver* process_jobserver();
/// Whether MAKEFLAGS names one that cannot be reached: make's own advice is one job then.
bool jobserver_is_out_of_reach();

}  // namespace mirage

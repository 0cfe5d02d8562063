// A turn at this machine's GPU: processes that time kernels (--measure) do it one after the other, so that no run of mirage-opt spoils
// another's samples. Used by driver/measure/measure.cc, flock(2).
#pragma once
#include <atomic>

namespace mirage {

/// Held while it lives. Others that ask meanwhile wait; a holder that is killed leaves nothing behind. Where there is no folder for the
/// lock, nobody waits.
class DeviceTurn {
 public:
  /// Waits at most `most_s` seconds (a holder that hangs must not hold up everybody), or until *interrupted.
  explicit DeviceTurn(double most_s, const std::atomic<bool>* interrupted = nullptr);
  ~DeviceTurn();
  DeviceTurn(const DeviceTurn&) = delete;
  DeviceTurn& operator=(const DeviceTurn&) = delete;
  bool held() const { return held_; }
  double waited_s() const { return waited_s_; }
 private:
  int fd_ = -1;
  bool held_ = false;
  double waited_s_ = 0;
};

}  // namespace mirage

// A turn at this machine's GPU (driver/measure/device_turn.h).
#include "driver/measure/device_turn.h"

#include <cctype>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <sys/file.h>
#include <unistd.h>

namespace mirage {

namespace {

/// One per set of visible GPUs: runs that were given different ones do not wait for each other.
std::string lock_path() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (error) return "";
  std::string name = "mirage-opt.device";
  if (const char* devices = std::getenv("CUDA_VISIBLE_DEVICES"))
    for (const char* p = devices; *p; p++) name += std::isalnum(static_cast<unsigned char>(*p)) ? *p : '_';
  return (folder / (name + ".lock")).string();
}

}  // namespace

DeviceTurn::DeviceTurn(double most_s, const std::atomic<bool>* interrupted) {
  constexpr double kStep = 0.01;
  const std::string path = lock_path();
  if (path.empty()) return;
  fd_ = ::open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);   // somebody else's file: a lock needs no right to write
  if (fd_ < 0) return;
  while (!(held_ = ::flock(fd_, LOCK_EX | LOCK_NB) == 0) && waited_s_ < most_s && !(interrupted && *interrupted)) {
    ::usleep(static_cast<useconds_t>(kStep * 1e6));
    waited_s_ += kStep;
  }
}

DeviceTurn::~DeviceTurn() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace mirage

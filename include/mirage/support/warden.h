// What must not outlive a run: process groups of tools, folders of temporary files. A small process beside the run, the warden, is told of
// them through a pipe; when the pipe closes, however the run died (SIGKILL included), it kills and removes what is left.
#pragma once
#include <string>

namespace mirage {

/// Starts the warden; to be called before there are threads. Where no process can be started there is none, and all else here does nothing.
void start_warden();
/// Closes the pipe and waits until the warden has removed what is still watched.
void end_warden();

/// `group`: a process group to be killed. Safe in a child between fork and exec, which tells it of itself.
void watch_group(int group) noexcept;
void forget_group(int group) noexcept;

/// `path`: a file or folder to be removed, with all that is in it. Absolute, so that it means the same to the warden.
void watch_path(const std::string& path) noexcept;
void forget_path(const std::string& path) noexcept;

/// A fresh folder in `parent` ("": where the system has temporary files) that goes away with its contents, also if the process is killed;
/// if the warden is killed as well, a later TemporaryFolder there removes it.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& parent = "");
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }   ///< "": it could not be made
 private:
  std::string path_;
  int guard_ = -1;   ///< locked as long as the folder is in use
};

}  // namespace mirage

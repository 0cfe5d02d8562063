// The warden: see the header. Messages are lines of one write each (at most PIPE_BUF bytes, so they do not mix) that end with a NUL: '+' or
// '-', 'g' or 'p', a number or a path.
#include "mirage/support/warden.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <set>
#include <climits>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace mirage {

namespace {

namespace fs = std::filesystem;

std::atomic<int> warden_pipe{-1};
pid_t warden_pid = -1;

void tell_warden(const char* message, size_t bytes) noexcept {
  const int fd = warden_pipe.load();
  if (fd < 0 || bytes > PIPE_BUF) return;
  const int saved = errno;
  while (::write(fd, message, bytes) < 0 && errno == EINTR) {}
  errno = saved;
}

/// Without the library's formatting: between fork and exec nothing may be allocated.
void tell_group(char sign, int group) noexcept {
  char text[16], digits[12];
  size_t n = 0, at = 0;
  for (int g = group; g > 0; g /= 10) digits[n++] = static_cast<char>('0' + g % 10);
  text[at++] = sign;
  text[at++] = 'g';
  while (n > 0) text[at++] = digits[--n];
  text[at++] = '\0';
  tell_warden(text, at);
}

void tell_path(char sign, const std::string& path) noexcept {
  char text[PIPE_BUF];
  if (path.empty() || path[0] != '/' || path.size() + 3 > sizeof text) return;
  text[0] = sign;
  text[1] = 'p';
  std::memcpy(text + 2, path.c_str(), path.size() + 1);
  tell_warden(text, path.size() + 3);
}

/// What the warden has been told.
struct Watched {
  std::set<pid_t> groups;
  std::set<std::string> paths;

  void hear(const std::string& message) {
    if (message.size() < 3) return;
    const bool is_new = message[0] == '+';
    if (message[1] == 'g') {
      const auto group = static_cast<pid_t>(std::atoi(message.c_str() + 2));
      if (is_new) groups.insert(group);
      else groups.erase(group);
    } else if (is_new) {
      paths.insert(message.substr(2));
    } else {
      paths.erase(message.substr(2));
    }
  }

  void clean() {
    for (pid_t g : groups)
      if (g > 1) kill(-g, SIGKILL);
    for (int round = 0; round < 20 && !paths.empty(); round++) {   // what was killed may still write
      if (round > 0) usleep(10'000);
      for (auto p = paths.begin(); p != paths.end();) {
        std::error_code error;
        fs::remove_all(*p, error);
        p = error ? std::next(p) : paths.erase(p);
      }
      bool alive = false;
      for (pid_t g : groups) alive = alive || (g > 1 && kill(-g, 0) == 0);
      if (!alive && paths.empty()) return;
    }
  }
};

[[noreturn]] void run_warden(int fd) {
  setsid();   // what a terminal sends to the run's group is not for it
  prctl(PR_SET_NAME, "mirage-opt-ward");
  for (int s : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) std::signal(s, SIG_IGN);
  const int null = ::open("/dev/null", O_RDWR);
  for (int i = 0; i < 3; i++) dup2(null, i);
  for (int i = 3; i < 256; i++)
    if (i != fd) ::close(i);
  if (chdir("/") != 0) _exit(1);
  Watched watched;
  std::string pending;
  char buffer[PIPE_BUF];
  for (ssize_t n; (n = ::read(fd, buffer, sizeof buffer)) != 0;) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;
    pending.append(buffer, static_cast<size_t>(n));
    for (size_t end; (end = pending.find('\0')) != std::string::npos; pending.erase(0, end + 1)) watched.hear(pending.substr(0, end));
  }
  watched.clean();
  _exit(0);
}

constexpr const char* kTemporary = "mirage-opt-run.";
constexpr time_t kAbandonedAfter = 60;   // seconds: between its making and its lock a folder is nobody's

/// Folders of runs that were killed together with their wardens.
void remove_abandoned_temporaries(const fs::path& parent) {
  std::error_code error;
  for (fs::directory_iterator at(parent, error), end; !error && at != end; at.increment(error)) {
    if (!at->path().filename().string().starts_with(kTemporary)) continue;
    const int fd = ::open(at->path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    struct stat info {};
    const bool is_old = fstat(fd, &info) == 0 && info.st_uid == geteuid() && info.st_mtime + kAbandonedAfter < time(nullptr);
    const bool is_free = is_old && ::flock(fd, LOCK_EX | LOCK_NB) == 0;
    ::close(fd);
    std::error_code ignored;
    if (is_free) fs::remove_all(at->path(), ignored);
  }
}

}  // namespace

void start_warden() {
  if (warden_pipe.load() >= 0) return;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  const pid_t pid = fork();
  if (pid == 0) {
    ::close(ends[1]);
    run_warden(ends[0]);
  }
  ::close(ends[0]);
  if (pid < 0) {
    ::close(ends[1]);
    return;
  }
  warden_pid = pid;
  warden_pipe.store(ends[1]);
}

void end_warden() {
  const int fd = warden_pipe.exchange(-1);
  if (fd < 0) return;
  ::close(fd);
  while (waitpid(warden_pid, nullptr, 0) < 0 && errno == EINTR) {}
}

void watch_group(int group) noexcept { tell_group('+', group); }
void forget_group(int group) noexcept { tell_group('-', group); }
void watch_path(const std::string& path) noexcept { tell_path('+', path); }
void forget_path(const std::string& path) noexcept { tell_path('-', path); }

TemporaryFolder::TemporaryFolder(const std::string& parent) {
  std::error_code error;
  fs::path where = parent.empty() ? fs::temp_directory_path(error) : fs::path(parent);
  if (!error) where = fs::absolute(where, error);
  if (error) return;
  static std::atomic<bool> looked{false};   // once per process is enough where everybody has files
  if (!parent.empty() || !looked.exchange(true)) remove_abandoned_temporaries(where);
  std::string pattern = (where / (std::string(kTemporary) + "XXXXXX")).string();
  if (::mkdtemp(pattern.data()) == nullptr) return;
  path_ = pattern;
  watch_path(path_);
  guard_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (guard_ >= 0) ::flock(guard_, LOCK_EX | LOCK_NB);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
  if (guard_ >= 0) ::close(guard_);
  forget_path(path_);
}

}  // namespace mirage

// Child processes without a shell: posix_spawn into a process group of its own, output through a pipe, a watchdog that kills the whole group (nvcc starts many programs).
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "driver/toolchain.h"

extern char** environ;

namespace mirage {
namespace {

using Clock = std::chrono::steady_clock;

class Pipe {
 public:
  Pipe() { if (pipe2(ends_, O_CLOEXEC) != 0) ends_[0] = ends_[1] = -1; }
  ~Pipe() { close_read(); close_write(); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  bool ok() const { return ends_[0] >= 0; }
  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  void close_read() { close_end(ends_[0]); }
  void close_write() { close_end(ends_[1]); }
 private:
  static void close_end(int& fd) { if (fd >= 0) ::close(fd); fd = -1; }
  int ends_[2] = {-1, -1};
};

// The environment with messages in English, which are parsed.
std::vector<std::string> child_environment() {
  std::vector<std::string> out;
  for (char** e = environ; e != nullptr && *e != nullptr; e++)
    if (std::strncmp(*e, "LC_ALL=", 7) != 0) out.emplace_back(*e);
  out.emplace_back("LC_ALL=C");
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& s : strings) out.push_back(s.data());
  out.push_back(nullptr);
  return out;
}

int spawn(pid_t& pid, const std::vector<std::string>& argv, const std::string& dir, const Pipe& pipe) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe.write_end(), 1);
  posix_spawn_file_actions_adddup2(&actions, pipe.write_end(), 2);
  if (!dir.empty()) posix_spawn_file_actions_addchdir_np(&actions, dir.c_str());
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  sigdelset(&all, SIGKILL);
  sigdelset(&all, SIGSTOP);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<std::string> args = argv, environment = child_environment();
  const std::vector<char*> arg_pointers = pointers(args), environment_pointers = pointers(environment);
  const int error = posix_spawnp(&pid, args[0].c_str(), &actions, &attributes, arg_pointers.data(), environment_pointers.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

/// Reads what is there, at most once; false at the end of the stream.
bool read_some(int fd, const ProcessLimits& limits, ProcessResult& r) {
  char buffer[65536];
  const ssize_t n = ::read(fd, buffer, sizeof buffer);
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  if (n == 0) return false;
  const size_t room = limits.max_output - std::min(limits.max_output, r.output.size());
  r.output.append(buffer, std::min(room, static_cast<size_t>(n)));
  if (static_cast<size_t>(n) > room) r.truncated = true;
  return true;
}

bool has_ended(pid_t pid) {   // without reaping: the group's number must stay ours until it has been killed
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid;
}

bool readable(int fd, int wait_ms) {
  pollfd p{fd, POLLIN, 0};
  return poll(&p, 1, wait_ms) > 0;
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& argv, const std::string& dir, const ProcessLimits& limits) {
  ProcessResult r;
  if (argv.empty()) { r.output = "no program to start"; return r; }
  Pipe pipe;
  pid_t pid = -1;
  const int error = pipe.ok() ? spawn(pid, argv, dir, pipe) : errno;
  if (error != 0) {
    r.output = "cannot start " + argv[0] + ": " + std::strerror(error);
    return r;
  }
  r.started = true;
  pipe.close_write();
  const rlimit no_core{0, 0};
  prlimit(pid, RLIMIT_CORE, &no_core, nullptr);
  const auto deadline = Clock::now() + std::chrono::duration<double>(limits.timeout_s);
  bool open = true;
  while (!has_ended(pid)) {
    if (Clock::now() >= deadline) r.timed_out = true;
    if (limits.interrupted != nullptr && limits.interrupted->load()) r.interrupted = true;
    if (r.timed_out || r.interrupted) break;
    if (!open) usleep(2000);
    else if (readable(pipe.read_end(), 20)) open = read_some(pipe.read_end(), limits, r);
  }
  kill(-pid, SIGKILL);   // whatever it left behind, or everything after a timeout
  int state = 0;
  while (waitpid(pid, &state, 0) < 0 && errno == EINTR) {}
  while (open && readable(pipe.read_end(), 0)) open = read_some(pipe.read_end(), limits, r);
  if (WIFEXITED(state) && !r.timed_out && !r.interrupted) r.exit_code = WEXITSTATUS(state);
  if (WIFSIGNALED(state)) r.signal = WTERMSIG(state);
  return r;
}

}  // namespace mirage

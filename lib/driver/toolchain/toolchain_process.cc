// Child processes without a shell: fork and exec into a process group of their own, limits before the program starts, output through a
// pipe, a watchdog that kills the whole group (nvcc starts many programs), and an end with the thread that waits for them.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "driver/toolchain/toolchain.h"
#include "mirage/support/warden.h"

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

/// The environment with messages in English, which are parsed, and with a place for temporary files that goes away whoever dies ("": the
/// usual one).
std::vector<std::string> child_environment(const std::string& temporary) {
  std::vector<std::string> out;
  for (char** e = environ; e != nullptr && *e != nullptr; e++)
    if (std::strncmp(*e, "LC_ALL=", 7) != 0 && (temporary.empty() || std::strncmp(*e, "TMPDIR=", 7) != 0)) out.emplace_back(*e);
  out.emplace_back("LC_ALL=C");
  if (!temporary.empty()) out.push_back("TMPDIR=" + temporary);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& s : strings) out.push_back(s.data());
  out.push_back(nullptr);
  return out;
}

/// What a child does first. Only calls that are safe after fork: other threads may hold any lock.
void become_child(pid_t parent, const ProcessLimits& limits) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);   // it ended before that was set
  setpgid(0, 0);
  watch_group(getpid());   // while SIGPIPE is ignored: the warden may be gone
  for (int s = 1; s < NSIG; s++)
    if (s != SIGKILL && s != SIGSTOP) signal(s, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  // Also for what the program starts itself, should the watchdog be gone: nothing runs on for ever.
  const auto seconds = static_cast<rlim_t>(limits.processor_s > 0 ? limits.processor_s : limits.timeout_s + 60);
  const rlimit cpu{seconds, seconds + 5};   // SIGXCPU ahead of SIGKILL: who started it can say why
  setrlimit(RLIMIT_CPU, &cpu);
#ifndef __SANITIZE_ADDRESS__   // whose shadow is larger than any limit
  if (limits.max_memory > 0) {
    const rlimit memory{static_cast<rlim_t>(limits.max_memory), static_cast<rlim_t>(limits.max_memory)};
    setrlimit(RLIMIT_AS, &memory);
  }
#endif
}

bool redirect(int out) {
  const int null = ::open("/dev/null", O_RDONLY);
  return null >= 0 && dup2(null, 0) >= 0 && dup2(out, 1) >= 0 && dup2(out, 2) >= 0;
}

/// 0 or errno.
int spawn(pid_t& pid, const std::vector<std::string>& argv, const std::string& dir, const std::string& temporary, const Pipe& pipe,
          const ProcessLimits& limits) {
  std::vector<std::string> args = argv, environment = child_environment(temporary);
  const std::vector<char*> arg_pointers = pointers(args), environment_pointers = pointers(environment);
  Pipe failure;   // closed by a successful exec
  if (!failure.ok()) return errno;
  const pid_t parent = getpid();
  pid = fork();
  if (pid < 0) return errno;
  if (pid == 0) {
    become_child(parent, limits);
    if (redirect(pipe.write_end()) && (dir.empty() || chdir(dir.c_str()) == 0))
      execvpe(args[0].c_str(), arg_pointers.data(), environment_pointers.data());
    const int error = errno;
    if (::write(failure.write_end(), &error, sizeof error) < 0) _exit(126);
    _exit(127);
  }
  setpgid(pid, pid);   // both do it: whoever comes first
  failure.close_write();
  int error = 0;
  ssize_t n;
  while ((n = ::read(failure.read_end(), &error, sizeof error)) < 0 && errno == EINTR) {}
  if (n != static_cast<ssize_t>(sizeof error)) return 0;
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {}
  forget_group(pid);
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

namespace {

/// Reads until the child ends or a limit does.
void watch(pid_t pid, Pipe& pipe, const ProcessLimits& limits, ProcessResult& r) {
  r.started = true;
  pipe.close_write();
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
  forget_group(pid);
  while (open && readable(pipe.read_end(), 0)) open = read_some(pipe.read_end(), limits, r);
  if (WIFEXITED(state) && !r.timed_out && !r.interrupted) r.exit_code = WEXITSTATUS(state);
  if (WIFSIGNALED(state)) r.signal = WTERMSIG(state);
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& argv, const std::string& dir, const ProcessLimits& limits) {
  ProcessResult r;
  if (argv.empty()) { r.output = "no program to start"; return r; }
  Pipe pipe;
  pid_t pid = -1;
  const TemporaryFolder temporary(dir);   // compilers that are killed leave files
  const int error = pipe.ok() ? spawn(pid, argv, dir, temporary.path(), pipe, limits) : errno;
  if (error != 0) {
    r.output = "cannot start " + argv[0] + ": " + std::strerror(error);
    return r;
  }
  watch(pid, pipe, limits, r);
  return r;
}

ProcessResult run_apart(const std::function<std::string()>& work, const ProcessLimits& limits) {
  ProcessResult r;
  Pipe pipe;
  const pid_t parent = getpid();
  const pid_t pid = pipe.ok() ? fork() : -1;
  if (pid < 0) {
    r.output = std::string("cannot start a process: ") + std::strerror(errno);
    return r;
  }
  if (pid == 0) {
    become_child(parent, limits);
    const int quiet = ::open("/dev/null", O_RDWR);
    if (quiet >= 0) dup2(quiet, 0), dup2(quiet, 1), dup2(quiet, 2);
    int code = 0;
    try {
      const std::string out = work();
      for (size_t done = 0; done < out.size();) {
        const ssize_t n = ::write(pipe.write_end(), out.data() + done, out.size() - done);
        if (n < 0 && errno != EINTR) _exit(1);
        if (n > 0) done += static_cast<size_t>(n);
      }
    } catch (...) {
      code = 1;
    }
    _exit(code);   // no destructors: they belong to the parent
  }
  setpgid(pid, pid);
  watch(pid, pipe, limits, r);
  return r;
}

}  // namespace mirage

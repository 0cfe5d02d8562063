// See the header. A token is one byte, any; the same one goes back.
#include "mirage/support/jobserver.h"

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace mirage {

namespace {

constexpr int kPollMs = 50;

/// The value behind the last of these words: a make below another one appends its own.
std::string last_auth(const std::string& makeflags) {
  std::string found;
  for (const std::string_view word : {"--jobserver-auth=", "--jobserver-fds="})
    if (const size_t at = makeflags.rfind(word); at != std::string::npos) {
      const size_t begin = at + word.size();
      found = makeflags.substr(begin, makeflags.find(' ', begin) - begin);
      break;
    }
  return found;
}

std::optional<std::pair<int, int>> two_numbers(const std::string& text) {
  const size_t comma = text.find(',');
  if (comma == std::string::npos) return std::nullopt;
  int in = -1, out = -1;
  const char* const begin = text.data();
  const auto first = std::from_chars(begin, begin + comma, in), second = std::from_chars(begin + comma + 1, begin + text.size(), out);
  if (first.ec != std::errc() || second.ec != std::errc() || first.ptr != begin + comma || second.ptr != begin + text.size() || in < 0 ||
      out < 0)
    return std::nullopt;
  return std::pair(in, out);
}

/// Whether they are the two ends of one pipe. make closes them for recipes that it does not take for a make, and their numbers may be
/// anybody's then.
bool is_pipe(int in, int out) {
  struct stat a = {}, b = {};
  if (fstat(in, &a) != 0 || fstat(out, &b) != 0 || !S_ISFIFO(a.st_mode) || a.st_dev != b.st_dev || a.st_ino != b.st_ino) return false;
  const int read_mode = fcntl(in, F_GETFL), write_mode = fcntl(out, F_GETFL);
  return read_mode >= 0 && write_mode >= 0 && (read_mode & O_ACCMODE) != O_WRONLY && (write_mode & O_ACCMODE) != O_RDONLY;
}

bool is_fifo(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode);
}

/// Opened anew, so that O_NONBLOCK is this process's alone: make and its other children read the same pipe, and expect to wait.
int open_again(const std::string& path, int mode) { return ::open(path.c_str(), mode | O_CLOEXEC); }

}  // namespace

std::unique_ptr<Jobserver> Jobserver::open(const std::string& makeflags, bool* is_named) {
  const std::string auth = last_auth(makeflags);
  if (is_named) *is_named = !auth.empty();
  std::string in_path, out_path;
  if (auth.starts_with("fifo:")) {
    in_path = out_path = auth.substr(5);
  } else {
    const auto pair = two_numbers(auth);
    if (!pair || !is_pipe(pair->first, pair->second)) return nullptr;
    in_path = "/proc/self/fd/" + std::to_string(pair->first), out_path = "/proc/self/fd/" + std::to_string(pair->second);
  }
  const int in = open_again(in_path, O_RDONLY | O_NONBLOCK);
  if (in < 0) return nullptr;
  const int out = open_again(out_path, O_WRONLY | O_NONBLOCK);  // of a fifo that nobody reads this would wait; we do
  if (out < 0 || !is_fifo(in)) {
    close(in);
    if (out >= 0) close(out);
    return nullptr;
  }
  return std::unique_ptr<Jobserver>(new Jobserver(in, out));
}

Jobserver::~Jobserver() {
  close(in_);
  close(out_);
}

bool Jobserver::acquire(const std::function<bool()>& give_up) {
  while (!give_up()) {
    char token = 0;
    const ssize_t got = read(in_, &token, 1);
    if (got == 1) return true;
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) return false;  // make is gone
    pollfd wait{in_, POLLIN, 0};
    poll(&wait, 1, kPollMs);
  }
  return false;
}

void Jobserver::release() {
  const char token = '+';  // what make itself writes
  while (write(out_, &token, 1) < 0 && errno == EINTR) {}
}

namespace {

struct Opened {
  bool is_named = false;
  std::unique_ptr<Jobserver> server;
  Opened() {
    const char* flags = std::getenv("MAKEFLAGS");
    server = Jobserver::open(flags ? flags : "", &is_named);
  }
};

const Opened& opened() {
  static const Opened o;
  return o;
}

}  // namespace

Jobserver* process_jobserver() { return opened().server.get(); }
bool jobserver_is_out_of_reach() { return opened().is_named && !opened().server; }

}  // namespace mirage

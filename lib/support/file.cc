// Reading and atomic writing with plain system calls: every step that can fail (a full disk may say so only at fsync or close) is looked
// at.
#include "mirage/support/file.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <random>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mirage/support/warden.h"

namespace mirage {

namespace fs = std::filesystem;

namespace {

Diagnostic failure(DiagCode code, const std::string& path, const std::string& what, const std::string& why) {
  return Diagnostic{Severity::kError, code, {path, 0, 0, 1}, what + ": " + why, {}};
}

/// "" or the system's reason.
std::string write_whole(const std::string& path, const std::string& bytes, int flags, mode_t mode) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, mode);
  if (fd < 0) return std::strerror(errno);
  size_t done = 0;
  while (done < bytes.size()) {
    ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      std::string why = n < 0 ? std::strerror(errno) : "nothing was written";
      ::close(fd);
      return why;
    }
    done += static_cast<size_t>(n);
  }
  // Pipes and terminals cannot be synced; that is no failure.
  if (::fsync(fd) != 0 && errno != EINVAL && errno != EROFS && errno != ENOTSUP) {
    std::string why = std::strerror(errno);
    ::close(fd);
    return why;
  }
  return ::close(fd) == 0 ? "" : std::strerror(errno);
}

}  // namespace

Result<std::string> read_file(const std::string& path, int64_t max_bytes) {
  const bool is_stdin = path == "-";
  int fd = is_stdin ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failure(DiagCode::kFileMissing, path, "cannot read the file", std::strerror(errno));
  std::string out;
  std::vector<char> buffer(1 << 16);
  std::string why;
  for (;;) {
    ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) why = std::strerror(errno);
    if (n <= 0) break;
    out.append(buffer.data(), static_cast<size_t>(n));
    if (static_cast<int64_t>(out.size()) > max_bytes) break;
  }
  if (!is_stdin) ::close(fd);
  if (!why.empty()) return failure(DiagCode::kFileMissing, path, "cannot read the file", why);
  if (static_cast<int64_t>(out.size()) > max_bytes) {
    Diagnostic d = failure(DiagCode::kLimit, path, "the file is too large", "more than " + std::to_string(max_bytes) + " bytes");
    d.where.line = d.where.col = 1;
    return d;
  }
  return out;
}

Diagnostics write_file(const std::string& path, const std::string& bytes, bool executable) {
  const mode_t mode = executable ? 0777 : 0666;   // the umask takes away what the user does not want
  struct stat info {};
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && !S_ISREG(info.st_mode)) {
    std::string why = S_ISDIR(info.st_mode) ? "it is a folder" : write_whole(path, bytes, 0, mode);
    if (!why.empty()) return {failure(DiagCode::kFileUnwritable, path, "cannot write the file", why)};
    return {};
  }
  // In a shared folder others may have put anything under a name that they can guess, and two containers have processes of one number.
  std::random_device random;
  const std::string beside = path + ".tmp" + std::to_string(::getpid()) + "." + std::to_string((uint64_t{random()} << 32) | random());
  std::string why = write_whole(beside, bytes, O_EXCL | O_NOFOLLOW, mode);
  if (why.empty() && ::rename(beside.c_str(), path.c_str()) != 0) why = std::strerror(errno);
  if (why.empty()) return {};
  ::unlink(beside.c_str());
  return {failure(DiagCode::kFileUnwritable, path, "cannot write the file", why)};
}

namespace {

constexpr const char* kStaging = ".mirage-opt.";
constexpr int kLockWaitMs = 30'000;   // others hold the lock for the moment of a commit

/// Takes the lock of an open folder; false if somebody else keeps it. File systems without locks have none to keep.
bool lock_folder(int fd, int wait_ms) {
  for (int waited = 0; ::flock(fd, LOCK_EX | LOCK_NB) != 0; waited += 10) {
    if (errno != EWOULDBLOCK && errno != EINTR) return true;
    if (waited >= wait_ms) return false;
    ::usleep(10'000);
  }
  return true;
}

int open_folder(const std::string& path) { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }

/// Staging folders whose process was killed: their locks are free. Called with the folder's lock, under which new ones are made and locked.
void remove_abandoned(const std::string& path) {
  std::error_code error;
  std::vector<std::string> found;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
    if (at->path().filename().string().starts_with(kStaging)) found.push_back(at->path().string());
  for (const std::string& folder : found) {
    const int fd = open_folder(folder);
    if (fd < 0) continue;
    const bool is_free = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
    ::close(fd);
    if (is_free) fs::remove_all(folder, error);
  }
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, int wait_ms) : fd_(open_folder(folder.empty() ? "." : folder)) {
  refused_ = fd_ >= 0 && !lock_folder(fd_, wait_ms);
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

Result<OutputFolder> OutputFolder::open(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return failure(DiagCode::kFileUnwritable, path, "cannot make the folder", error.message());
  if (!fs::is_directory(path, error))
    return failure(DiagCode::kFileUnwritable, path, "cannot make the folder", "a file of this name is there");
  const int lock = open_folder(path);
  if (lock >= 0 && lock_folder(lock, kLockWaitMs)) remove_abandoned(path);
  std::string pattern = (fs::path(path) / (std::string(kStaging) + "XXXXXX")).string();
  const bool made = ::mkdtemp(pattern.data()) != nullptr;
  const std::string why = made ? "" : std::strerror(errno);
  if (made) watch_path(fs::absolute(pattern, error).string());
  const int guard = made ? open_folder(pattern) : -1;
  if (guard >= 0) lock_folder(guard, 0);   // as long as this is held the staging folder is in use
  if (lock >= 0) ::close(lock);
  if (!made) return failure(DiagCode::kFileUnwritable, path, "cannot write into the folder", why);
  return OutputFolder(path, pattern, guard);
}

OutputFolder::OutputFolder(OutputFolder&& other) noexcept
    : path_(std::move(other.path_)),
      staging_(std::exchange(other.staging_, "")),
      files_(std::move(other.files_)),
      guard_(std::exchange(other.guard_, -1)),
      lock_(std::exchange(other.lock_, -1)) {}

OutputFolder::~OutputFolder() {
  close();
}

void OutputFolder::close() {
  std::error_code ignored;
  if (!staging_.empty()) {
    fs::remove_all(staging_, ignored);
    forget_path(fs::absolute(staging_, ignored).string());
  }
  staging_.clear();
  if (guard_ >= 0) ::close(guard_);
  if (lock_ >= 0) ::close(lock_);
  guard_ = lock_ = -1;
}

std::vector<std::string> OutputFolder::written() const {
  std::vector<std::string> out;
  for (const auto& [name, is_written] : files_)
    if (is_written) out.push_back(name);
  return out;
}

Diagnostics OutputFolder::lock() {
  if (lock_ >= 0) return {};
  lock_ = open_folder(path_);
  if (lock_ >= 0 && !lock_folder(lock_, kLockWaitMs))
    return {failure(DiagCode::kFileUnwritable, path_, "cannot write into the folder",
                    "another mirage-opt has been writing into it for half a minute")};
  return {};
}

Diagnostics OutputFolder::write(const std::string& name, const std::string& bytes) {
  MIRAGE_ASSERT(!name.starts_with('/') && name.find("..") == std::string::npos) << name;
  std::error_code made;   // a folder that cannot be made is told of by the write
  if (name.find('/') != std::string::npos) fs::create_directories((fs::path(staging_) / name).parent_path(), made);
  std::string why = write_whole((fs::path(staging_) / name).string(), bytes, O_TRUNC, 0666);
  if (!why.empty()) return {failure(DiagCode::kFileUnwritable, (fs::path(path_) / name).string(), "cannot write the file", why)};
  files_[name] = true;
  return {};
}

Diagnostics OutputFolder::commit(const std::string& last) {
  if (auto errors = lock(); !errors.empty()) return errors;
  // What would stop a rename half way is found before the first one.
  for (const auto& [name, written] : files_) {
    std::error_code ignored;
    if (written && fs::is_directory(fs::path(path_) / name, ignored))
      return {
          failure(DiagCode::kFileUnwritable, (fs::path(path_) / name).string(), "cannot write the file", "a folder of this name is there")};
  }
  for (const auto& [name, written] : files_) {
    std::error_code ignored;
    if (!written) fs::remove(fs::path(path_) / name, ignored);
  }
  std::vector<std::string> names;
  for (const auto& [name, written] : files_)
    if (written && name != last) names.push_back(name);
  if (auto at = files_.find(last); at != files_.end() && at->second) names.push_back(last);
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const std::array<timespec, 2> times = {now, now};   // one for all: make need not build a library that was staged ahead of its sources
  for (const std::string& name : names) {
    const std::string to = (fs::path(path_) / name).string();
    ::utimensat(AT_FDCWD, (fs::path(staging_) / name).string().c_str(), times.data(), 0);
    std::error_code made;
    if (name.find('/') != std::string::npos) fs::create_directories(fs::path(to).parent_path(), made);
    if (::rename((fs::path(staging_) / name).string().c_str(), to.c_str()) != 0)
      return {failure(DiagCode::kFileUnwritable, to, "cannot write the file", std::strerror(errno))};
  }
  files_.clear();
  close();
  return {};
}

}  // namespace mirage

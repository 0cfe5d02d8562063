// Compiled emulations and the folder they are kept in. What lies there is loaded and runs as us, so nobody else may have written it, and a
// file that a power cut left half is made anew.
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "driver/emulation/emulation.h"
#include "driver/emulation/emulation_library.h"
#include "mirage/support/file.h"
#include "mirage/support/hash.h"
#include "mirage/support/warden.h"

namespace mirage {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxLibraries = 128;   // kept in the cache
constexpr const char* kStem = "emulation-";
constexpr size_t kHash = 16;
constexpr auto kAbandoned = std::chrono::hours(24);   // no compiler runs that long

/// What is written behind a library: loaders do not look there.
std::string mark_of(std::string_view library) { return fmt::format("\nmirage-opt emulation {:016x}\n\n", hash_text(library)); }

/// The bytes of a regular file that only we may write; "" else. A link is none: it names somebody else's file.
std::string own_bytes(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  struct stat info {};
  std::string out;
  if (fd < 0) return out;
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && is_ours_alone(info) && info.st_nlink == 1) {
    out.resize(static_cast<size_t>(info.st_size));
    size_t at = 0;
    for (ssize_t n = 0; at < out.size() && ((n = ::read(fd, out.data() + at, out.size() - at)) > 0 || (n < 0 && errno == EINTR));)
      at += n > 0 ? static_cast<size_t>(n) : 0;
    out.resize(at);
  }
  ::close(fd);
  return out;
}

bool is_whole(const std::string& path) {
  const std::string bytes = own_bytes(path), mark = mark_of("");
  if (bytes.size() <= mark.size()) return false;
  const std::string_view all = bytes, library = all.substr(0, all.size() - mark.size());
  return all.substr(library.size()) == mark_of(library);
}

/// Marks what the compiler left and puts it in place; "" or why not.
std::string finish(const std::string& from, const std::string& to) {
  const auto why = [&](int fd) {
    const std::string text = std::strerror(errno);
    if (fd >= 0) ::close(fd);
    return "cannot write " + to + ": " + text;
  };
  if (::chmod(from.c_str(), 0700) != 0) return why(-1);   // whatever the umask: who may write it may run as us
  const std::string bytes = own_bytes(from), mark = mark_of(bytes);
  const int fd = ::open(from.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return why(fd);
  // renamed before it is on the disk, it would be empty after a power cut
  if (bytes.empty() || ::write(fd, mark.data(), mark.size()) != static_cast<ssize_t>(mark.size()) || ::fsync(fd) != 0) return why(fd);
  if (::close(fd) != 0 || ::rename(from.c_str(), to.c_str()) != 0) return why(-1);
  return "";
}

std::string first_part(const std::string& s, size_t n) { return s.size() <= n ? s : s.substr(0, n) + " ..."; }

/// emulation-HASH.so, and while it is made emulation-HASH.PID.cc and .so.
bool is_library(const std::string& name) {
  return name.starts_with(kStem) && name.ends_with(".so") && name.size() == std::string_view(kStem).size() + kHash + 3;
}
bool is_unfinished(const std::string& name) {
  const size_t dot = std::string_view(kStem).size() + kHash;
  return name.starts_with(kStem) && name.size() > dot + 1 && name[dot] == '.' && std::isdigit(static_cast<unsigned char>(name[dot + 1])) &&
         (name.ends_with(".cc") || name.ends_with(".so"));
}

}  // namespace

bool is_ours_alone(const struct stat& info) { return info.st_uid == ::geteuid() && (info.st_mode & 022) == 0; }

void prune_libraries(const std::string& folder) {
  std::error_code error;
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    const std::string name = at->path().filename().string();
    if (!at->is_regular_file(ignored) || at->is_symlink(ignored)) continue;
    const fs::file_time_type time = at->last_write_time(ignored);
    if (is_library(name)) files.emplace_back(time, at->path());
    else if (is_unfinished(name) && time + kAbandoned < fs::file_time_type::clock::now()) fs::remove(at->path(), ignored);
  }
  std::sort(files.begin(), files.end());
  for (size_t i = 0; i + kMaxLibraries < files.size(); i++) fs::remove(files[i].second, error);
}

EmulationLibrary build_emulation(const std::vector<const EmulationCase*>& cases, const std::string& compiler, const std::string& folder,
                                 const ProcessLimits& limits, UnsetFill fill) {
  EmulationLibrary out;
  std::vector<EmulatedKernel> kernels;
  for (const EmulationCase* c : cases) kernels.insert(kernels.end(), c->kernels.begin(), c->kernels.end());
  const bool is_own = !cases.empty() && !cases[0]->runtime.empty();
  for (const EmulationCase* c : cases)
    MIRAGE_ASSERT(c->runtime == cases[0]->runtime) << "cases of one library with device libraries of their own";
  const std::string text = emulation_source(is_own ? cases[0]->runtime : runtime_text(), kernels);
  std::vector<std::string> argv = {compiler};
  const bool is_clang = fs::path(compiler).filename().string().find("clang") != std::string::npos;
  for (const std::string& f : emulation_flags(fill, is_clang)) argv.push_back(f);
  uint64_t hash = hash_text(text);
  for (const std::string& a : argv) hash = hash_combine(hash, hash_text(a));
  const std::string stem = fmt::format("{}/{}{:016x}", folder, kStem, hash);
  out.path = stem + ".so";
  std::error_code error;
  out.was_there = is_whole(out.path);
  if (out.was_there) return out;
  fs::create_directories(folder, error);
  fs::remove(out.path, error);   // damaged, or somebody else's
  const TemporaryFolder work(folder);   // two processes may build the same one, and one that dies leaves nothing
  const std::string own = (work.path().empty() ? folder : work.path()) + "/emulation";
  if (Diagnostics d = write_file(own + ".cc", text); !d.empty()) { out.error = d.front().text; return out; }
  argv.insert(argv.end(), {"-o", own + ".so", own + ".cc", "-lm", "-lc"});
  const auto start = std::chrono::steady_clock::now();
  const ProcessResult r = run_process(argv, "", limits);
  out.compile_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (std::getenv("MIRAGE_KEEP_EMULATION") == nullptr) fs::remove(own + ".cc", error);
  else fs::rename(own + ".cc", stem + ".cc", error);
  const bool is_slow =   // drivers say it of what they started
      r.timed_out || r.signal == SIGXCPU || r.output.find("CPU time limit exceeded") != std::string::npos;
  if (!r.ok())
    out.error =
        is_slow ? "the host compiler did not finish in time" : "the host compiler refuses the emulation: " + first_part(r.output, 1200);
  else out.error = finish(own + ".so", out.path);
  if (!out.error.empty()) fs::remove(own + ".so", error);
  return out;
}

std::string with_emulation(const std::vector<const EmulationCase*>& cases, const std::string& compiler, const std::string& folder,
                           UnsetFill fill, const std::function<bool(const std::string& path)>& run) {
  ProcessLimits limits;
  limits.processor_s = 120;
  limits.timeout_s = 1200;   // a loaded machine takes its time and gives the same answer
  for (bool is_second : {false, true}) {
    const EmulationLibrary library = build_emulation(cases, compiler, folder, limits, fill);
    if (!library.error.empty()) return library.error;
    if (run(library.path) || !library.was_there || is_second) break;
    std::error_code error;
    fs::remove(library.path, error);   // made for another libc, perhaps
  }
  return "";
}

}  // namespace mirage

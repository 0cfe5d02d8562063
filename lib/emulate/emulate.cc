// emulate(): loads a compiled emulation in a child process and runs its launches on the engine. The child has a stack of its own for
// signals, a time limit, and hands its results back through shared memory, so a kernel that destroys everything within its reach is a
// finding and nothing more.
#include "mirage/emulate/emulate.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

#include "emulate/engine.h"

namespace mirage {

using emulate_detail::Engine;

namespace {

/// What the child hands back; strings follow as length and bytes. What it was doing when it ended says what its end means: a kernel's crash
/// is a finding, want of memory or a signal from outside is none.
struct Shared {
  volatile int done = 0;   ///< it came to its end, or a finding was its end
  int loaded = 0, ran = 0;
  uint32_t happened = 0;
  int64_t threads = 0, accesses = 0;
  EmulationTrace trace;
  size_t text_bytes = 0;
  char text[size_t{1} << 16];
};

void put(Shared& s, const std::string& x) {
  const size_t n = std::min(x.size(), size_t{4000});
  if (s.text_bytes + n + sizeof n > sizeof s.text) return;
  memcpy(s.text + s.text_bytes, &n, sizeof n);
  memcpy(s.text + s.text_bytes + sizeof n, x.data(), n);
  s.text_bytes += n + sizeof n;
}

std::string get(const Shared& s, size_t& at) {
  size_t n = 0;
  memcpy(&n, s.text + at, sizeof n);
  std::string out(s.text + at + sizeof n, n);
  at += n + sizeof n;
  return out;
}

Shared* result = nullptr;

void crashed(int signal, siginfo_t* info, void*) {
  if (signal == SIGPROF) {
    put(*result, "too slow");
    put(*result, "the time for emulation ended");
  } else {
    put(*result, "out of bounds");
    put(*result, signal == SIGABRT  ? "the process aborts"
                 : Engine::instance ? Engine::instance->describe_crash(info->si_addr)
                                    : std::string("a crash"));
  }
  result->ran = 1;
  result->done = 1;
  _exit(0);
}

/// Nothing can be said without memory: the allocation may be ours, deep below a kernel.
[[noreturn]] void out_of_memory() {
  result->ran = 0;
  result->text_bytes = 0;
  put(*result, "there is no memory for it");
  result->done = 1;
  _exit(0);
}

/// dlopen of what nobody else may write, seen through the descriptor that is loaded, so that nobody replaces it in between.
void* load(const std::string& library, std::string& why) {
  const int fd = ::open(library.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  struct stat info {};
  if (fd < 0 || ::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return why = "no library can be read at " + library, nullptr;
  if (info.st_uid != ::geteuid() || (info.st_mode & 022) != 0) return why = "others may write the library " + library, nullptr;
  const std::string name = "/proc/self/fd/" + std::to_string(fd);
  void* handle = dlopen(::access(name.c_str(), R_OK) == 0 ? name.c_str() : library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (const char* error = handle ? nullptr : dlerror()) why = error;
  return handle;
}

void catch_signals(double seconds) {
  static char stack[size_t{1} << 16];
  stack_t s{};
  s.ss_sp = stack;
  s.ss_size = sizeof stack;
  sigaltstack(&s, nullptr);
  struct sigaction a{};
  a.sa_sigaction = crashed;
  a.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int n : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGPROF, SIGABRT}) sigaction(n, &a, nullptr);
  itimerval t{};
  t.it_value.tv_sec = static_cast<time_t>(seconds);
  t.it_value.tv_usec = static_cast<suseconds_t>((seconds - static_cast<double>(t.it_value.tv_sec)) * 1e6);
  setitimer(ITIMER_PROF, &t, nullptr);   // of this process alone: what else the machine does decides nothing
}

void child(const std::string& library, const std::vector<EmulatedKernel>& launches, const std::vector<EmulatedBuffer>& buffers,
           const EmulateOptions& options, unsigned char* outputs) {
  std::string why;
  void* handle = load(library, why);
  const auto symbol = [&](const std::string& name) { return handle ? dlsym(handle, name.c_str()) : nullptr; };
  if (!handle || !symbol("emu") || !symbol("emu_field") || !symbol("emu_thread")) {
    put(*result, handle ? "the library is no emulation" : why.empty() ? "the library cannot be loaded" : why);
    return;
  }
  result->loaded = 1;
  Engine engine(buffers, options);
  const uint32_t field = options.field;
  *static_cast<const EmuApi**>(symbol("emu")) = &Engine::api();
  memcpy(symbol("emu_field"), &field, sizeof field);
  catch_signals(options.seconds);
  result->ran = 1;
  for (const EmulatedKernel& k : launches) {
    auto call = reinterpret_cast<void (*)(void* const*)>(symbol("emu_run_" + k.name));
    if (!call) { result->ran = 0; put(*result, "no kernel " + k.name); return; }
    engine.launch(k, call, static_cast<EmuThread*>(symbol("emu_thread")));
    if (!engine.findings().empty()) break;
  }
  result->happened = *static_cast<uint32_t*>(symbol("emu_happened"));
  result->threads = engine.threads();
  result->accesses = engine.accesses();
  result->trace = engine.trace();
  for (const Finding& f : engine.findings()) put(*result, f.kind), put(*result, f.text);
  size_t at = 0;
  for (size_t i = 0; i < buffers.size(); i++) {
    if (buffers[i].kind == EmulatedBuffer::Kind::kInput) continue;
    memcpy(outputs + at, engine.buffer(i), buffers[i].bytes.size());
    at += buffers[i].bytes.size();
  }
}

}  // namespace

Emulation emulate(const std::string& library, const std::vector<EmulatedKernel>& launches, const std::vector<EmulatedBuffer>& buffers,
                  const EmulateOptions& options) {
  Emulation out;
  size_t bytes = 1;
  for (const EmulatedBuffer& b : buffers) bytes += b.kind == EmulatedBuffer::Kind::kInput ? 0 : b.bytes.size();
  const auto map = [](size_t n) { return mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); };
  void *shared = map(sizeof(Shared)), *outputs = map(bytes);
  const pid_t parent = getpid();
  const pid_t pid = shared == MAP_FAILED || outputs == MAP_FAILED ? -1 : fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    for (int n : {SIGINT, SIGTERM}) signal(n, SIG_DFL);   // the handlers are the parent's
    result = new (shared) Shared;
    std::set_new_handler(out_of_memory);
    try {
      child(library, launches, buffers, options, static_cast<unsigned char*>(outputs));
    } catch (const std::bad_alloc&) {
      out_of_memory();
    }
    result->done = 1;
    _exit(0);
  }
  if (pid < 0) {
    out.refusal = shared == MAP_FAILED || outputs == MAP_FAILED ? "there is no memory for it" : "no child process can be started";
    if (shared != MAP_FAILED) munmap(shared, sizeof(Shared));
    if (outputs != MAP_FAILED) munmap(outputs, bytes);
    return out;
  }
  int status = 0;
  rusage used{};
  while (wait4(pid, &status, 0, &used) < 0 && errno == EINTR) {}
  const Shared& s = *static_cast<const Shared*>(shared);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  out.seconds = seconds(used.ru_utime) + seconds(used.ru_stime);
  out.loaded = s.loaded != 0;
  out.ran = s.ran != 0 && s.done != 0;
  out.happened = s.happened;
  out.threads = s.threads;
  out.accesses = s.accesses;
  out.trace = s.trace;
  size_t at = 0;
  if (!out.ran && s.done && s.text_bytes) out.refusal = get(s, at);
  else if (!out.ran)
    out.refusal = WIFSIGNALED(status) ? "its process was ended by signal " + std::to_string(WTERMSIG(status)) : "its process ended early";
  while (out.ran && at < s.text_bytes) {
    Finding f;
    f.kind = get(s, at);
    f.text = get(s, at);
    out.findings.push_back(std::move(f));
  }
  size_t from = 0;
  for (const EmulatedBuffer& b : buffers) {
    out.buffers.emplace_back();
    if (b.kind == EmulatedBuffer::Kind::kInput) continue;
    const auto* p = static_cast<const unsigned char*>(outputs) + from;
    out.buffers.back().assign(p, p + b.bytes.size());
    from += b.bytes.size();
  }
  munmap(shared, sizeof(Shared));
  munmap(outputs, bytes);
  return out;
}

}  // namespace mirage

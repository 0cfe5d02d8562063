// Interrupts; see the header. The first signal sets a flag that search, tools and partition look at, and wakes a thread. Most runs then end
// by themselves, with the best so far. Where one does not (a proof, a plan, a compiler), the thread takes the right to write the outputs
// and writes the best so far itself; it never waits for the others, and the process ends under them. A timer ends what even that cannot.
#include "interruption.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <sys/time.h>
#include <unistd.h>

#include "mirage/support/warden.h"

namespace mirage {

namespace {

// The run has ended within two seconds, on a machine with other work as well: what follows the end (memory that is given back, a process
// that waits for a core) took half a second with five processes on two cores.
constexpr auto kGrace = std::chrono::milliseconds(700);    // for compile() to end by itself: a gate that is nearly through, the texts
constexpr suseconds_t kLastUs = 500'000;                   // one second and this: the end

enum class Writer : int { kNobody, kCompile, kRescue };

std::atomic<bool> interrupted{false};
volatile std::sig_atomic_t signal_number = 0;
int wake[2] = {-1, -1};

std::mutex best_mutex;
WriteBest best;                                  // guarded by best_mutex
std::atomic<Writer> writer{Writer::kNobody};
std::function<void(const CompileResult*)> tell_end;

int code() { return static_cast<int>(signal_number == SIGTERM ? ExitCode::kTerminated : ExitCode::kInterrupted); }

/// SA_RESETHAND: the second one kills.
extern "C" void on_interrupt(int number) {
  const int saved = errno;
  signal_number = number;
  interrupted.store(true);
  itimerval t{};
  t.it_value.tv_sec = 1;
  t.it_value.tv_usec = kLastUs;
  setitimer(ITIMER_REAL, &t, nullptr);
  if (::write(wake[1], "!", 1) < 0) {}
  errno = saved;
}

extern "C" void on_last_moment(int) {
  static const char text[] = "mirage-opt: interrupted: there was no time left to write a result\n";
  if (::write(STDERR_FILENO, text, sizeof text - 1) < 0) {}
  _exit(code());
}

[[noreturn]] void wait_for_the_end() {
  for (;;) pause();
}

/// The first who asks writes.
bool take(Writer who) {
  Writer nobody = Writer::kNobody;
  return writer.compare_exchange_strong(nobody, who) || nobody == who;
}

void rescue() {
  char c;
  while (::read(wake[0], &c, 1) < 0 && errno == EINTR) {}
  std::this_thread::sleep_for(kGrace);
  if (!take(Writer::kRescue)) return;   // compile() is writing; the timer runs
  WriteBest write;
  {
    std::lock_guard lock(best_mutex);
    write = best;
  }
  std::optional<CompileResult> result;
  try {
    Listener listener;
    listener.interrupted = &interrupted;
    if (write) result = write(listener);
  } catch (const std::exception&) {   // memory: nothing is written
  }
  try {
    tell_end(result ? &*result : nullptr);
  } catch (const std::exception&) {
  }
  end_warden();
  _exit(code());
}

void handle(int number, void (*f)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = f;
  action.sa_flags = flags;
  sigaction(number, &action, nullptr);
}

}  // namespace

void expect_interrupts(std::function<void(const CompileResult*)> end) {
  tell_end = std::move(end);
  start_warden();
  if (pipe2(wake, O_CLOEXEC) == 0) {
    sigset_t both, before;   // they are for the other threads
    sigemptyset(&both);
    for (int s : {SIGINT, SIGTERM, SIGALRM}) sigaddset(&both, s);
    pthread_sigmask(SIG_BLOCK, &both, &before);
    try {
      std::thread(rescue).detach();
    } catch (const std::system_error&) {   // no thread can be started: what looks at the flag ends by itself, the rest by the timer
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  handle(SIGALRM, on_last_moment, 0);
  for (int s : {SIGINT, SIGTERM}) handle(s, on_interrupt, static_cast<int>(SA_RESETHAND) | SA_RESTART);
}

const std::atomic<bool>* interrupt_flag() { return &interrupted; }
bool is_interrupted() { return interrupted.load(); }
ExitCode interrupted_code() { return static_cast<ExitCode>(code()); }

void keep_best(WriteBest w) {
  std::lock_guard lock(best_mutex);
  best = std::move(w);
}

void before_writing() {
  if (!take(Writer::kCompile)) wait_for_the_end();
}

void forget_best() {
  before_writing();   // a rescue that has begun ends the process
  keep_best(nullptr);
  if (!is_interrupted()) writer.store(Writer::kNobody);   // the next spec
}

}  // namespace mirage

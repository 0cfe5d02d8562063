// fuzz_run: a fuzz target over changes of its corpus without libFuzzer and sanitizers, in processes of its own, so that a crash or a hang
// costs one input and is kept.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "fuzz/changed.h"
#include "mirage/support/file.h"

using namespace mirage;
using namespace mirage::test;
namespace fs = std::filesystem;

namespace {

constexpr int kBatch = 50, kSeconds = 20;   // inputs per process, and CPU seconds that one input may take

/// Of the last few inputs each was changed once more, so that what reads is left further and further behind.
std::string input_of(const std::vector<std::string>& corpus, uint64_t seed) {
  Rng rng(mix64(seed ^ 0xF022));
  std::string s = corpus[rng.below(corpus.size())];
  for (uint64_t n = 1 + rng.below(4); n > 0; n--) s = rng.below(3) ? mutated_words(s, rng.next()) : changed(s, rng.next());
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, FuzzTarget> targets = {
#define FUZZ_ROW(name) {#name, fuzz_one_##name},
      FUZZ_TARGETS(FUZZ_ROW)
#undef FUZZ_ROW
  };
  if (argc < 5 || !targets.contains(argv[1])) {
    fmt::print(
        "fuzz_run TARGET CORPUS_FOLDER COUNT OUT_FOLDER [FIRST_SEED]   changes of the corpus; what crashes or takes {} s is kept in "
        "OUT_FOLDER\n",
        kSeconds);
    return 2;
  }
  std::vector<std::string> corpus;
  std::vector<fs::path> files;
  for (const auto& e : fs::directory_iterator(argv[2])) files.push_back(e.path());
  std::sort(files.begin(), files.end());
  for (const auto& f : files) corpus.push_back(*read_file(f.string()));
  fs::create_directories(argv[4]);
  const uint64_t count = std::strtoull(argv[3], nullptr, 10), first = argc > 5 ? std::strtoull(argv[5], nullptr, 10) : 1;
  int findings = 0;
  for (uint64_t at = first; at < first + count;) {
    int fd[2];
    if (pipe(fd) != 0) return 1;
    const pid_t child = fork();
    if (child == 0) {
      for (uint64_t s = at; s < at + kBatch && s < first + count; s++) {
        (void)!write(fd[1], &s, sizeof s);
        rusage used{};
        getrusage(RUSAGE_SELF, &used);
        const rlim_t until = static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec + kSeconds);
        const rlimit limit{until, until + 2};
        setrlimit(RLIMIT_CPU, &limit);
        const std::string input = input_of(corpus, s);
        targets.at(argv[1])(reinterpret_cast<const uint8_t*>(input.data()), input.size());
      }
      _exit(0);
    }
    close(fd[1]);
    uint64_t last = at;
    while (read(fd[0], &last, sizeof last) == static_cast<ssize_t>(sizeof last)) {}
    close(fd[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      findings++;
      const std::string name = fmt::format("{}/{}-{}", argv[4], argv[1], last);
      const bool is_slow = WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL);
      fmt::print("{}: {}\n", name,
                 is_slow               ? "slow"
                 : WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status))
                                       : fmt::format("exit {}", WEXITSTATUS(status)));
      std::fflush(stdout);
      (void)write_file(name, input_of(corpus, last));
    }
    at = last + 1;
  }
  rusage used{};
  getrusage(RUSAGE_CHILDREN, &used);
  fmt::print("{}: {} inputs, {} findings, {:.1f} minutes of CPU\n", argv[1], count, findings,
             static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) / 60);
  return findings ? 1 : 0;
}

#include "trust/random/judge.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mirage::test {

std::string describe(const RandomPair& p) {
  return fmt::format("{}{}\nlaws: {}\nbroken: {}\nshown: {}\n{}--\n{}", truth_name(p.truth),
                     p.size == Size::kLarge  ? ", large"
                     : p.size == Size::kHuge ? ", huge"
                                             : "",
                     fmt::join(p.laws, "; "), p.change, p.shown, p.graphs[0], p.graphs[1]);
}

void judge(uint64_t seed, PairTally& t, const std::function<void(const std::string&)>& tell) {
  const auto p = random_pair(seed);
  if (!p) { t.none++; return; }
  if (p->change == "unreadable") {
    if (t.unreadable++ < 3) tell(fmt::format("seed {}: does not read: {}\n{}", seed, p->shown, p->graphs[1]));
    return;
  }
  t.pairs++;
  for (size_t first : {0U, 1U}) {
    const auto start = std::chrono::steady_clock::now();
    const Answer a = ask(p->graphs[first], p->graphs[1 - first], static_cast<int64_t>(seed));
    const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (s > t.slowest) t.slowest = s, t.slowest_seed = seed;
    const std::string size = p->size == Size::kLarge ? " (large)" : p->size == Size::kHuge ? " (huge)" : "";
    t.by_kind[(p->truth == Truth::kDifferent ? "different: " + p->change : truth_name(p->truth)) + size][answer_name(a.exit)]++;
    if (p->truth == Truth::kEqual && a.exit == ExitCode::kNothingFound)
      for (const std::string& law : p->laws) t.open[law]++;
    const bool is_wrong = (a.exit != ExitCode::kOk && a.exit != ExitCode::kNotEqual && a.exit != ExitCode::kNothingFound) ||
                          (p->truth == Truth::kDifferent ? a.exit == ExitCode::kOk : a.exit == ExitCode::kNotEqual);
    if (!is_wrong) continue;
    t.wrong++;
    tell(fmt::format("==== seed {} {}: {} ({})\n{}\n{}", seed, first ? "B A" : "A B", answer_name(a.exit), a.text.substr(0, 300), "",
                     describe(*p)));
  }
}

std::string PairTally::written() const {
  std::string out = fmt::format("n\t{}\t{}\t{}\t{}\t{}\t{}\n", pairs, wrong, none, unreadable, slowest, slowest_seed);
  for (const auto& [kind, said] : by_kind)
    for (const auto& [answer, n] : said) out += fmt::format("k\t{}\t{}\t{}\n", kind, answer, n);
  for (const auto& [law, n] : open) out += fmt::format("o\t{}\t{}\n", law, n);
  return out;
}

void PairTally::add(const std::string& written) {
  std::istringstream in(written);
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> f;
    std::istringstream fields(line);
    for (std::string x; std::getline(fields, x, '\t');) f.push_back(x);
    if (f[0] == "k") by_kind[f[1]][f[2]] += std::stoi(f[3]);
    if (f[0] == "o") open[f[1]] += std::stoi(f[2]);
    if (f[0] != "n") continue;
    pairs += std::stoi(f[1]), wrong += std::stoi(f[2]), none += std::stoi(f[3]), unreadable += std::stoi(f[4]);
    if (std::stod(f[5]) > slowest) slowest = std::stod(f[5]), slowest_seed = std::stoull(f[6]);
  }
}

void judge_apart(uint64_t seed, int seconds, PairTally& t, const std::function<void(const std::string&)>& tell) {
  int fd[2];
  if (pipe(fd) != 0) return;
  const pid_t child = fork();
  if (child == 0) {
    close(fd[0]);
    const rlimit limit{static_cast<rlim_t>(seconds), static_cast<rlim_t>(seconds) + 1};
    setrlimit(RLIMIT_CPU, &limit);
    PairTally mine;
    judge(seed, mine, tell);
    const std::string out = mine.written();
    (void)!write(fd[1], out.data(), out.size());
    _exit(0);
  }
  close(fd[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(fd[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
  close(fd[0]);
  int status = 0;
  waitpid(child, &status, 0);
  t.add(text);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  t.stuck++;
  tell(fmt::format("==== seed {}: {}\n", seed,
                   WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL)
                       ? fmt::format("not done after {} s of CPU time", seconds)
                       : "the process ended early"));
}

std::string PairTally::table() const {
  std::string out = fmt::format(
      "{} pairs, both ways round: {} wrong verdicts; {} stuck or crashed; {} seeds gave none, {} did not read; slowest {:.1f} s (seed "
      "{})\n",
      pairs, wrong, stuck, none, unreadable, slowest, slowest_seed);
  out += fmt::format("{:60} {:>8} {:>9} {:>8}\n", "truth", "Equal", "Different", "Unknown");
  for (const auto& [kind, said] : by_kind) {
    const auto n = [&said = said](const char* v) { const auto it = said.find(v); return it == said.end() ? 0 : it->second; };
    out += fmt::format("{:60} {:8} {:9} {:8}\n", kind, n("Equal"), n("Different"), n("Unknown"));
  }
  std::vector<std::pair<int, std::string>> laws;
  for (const auto& [law, n] : open) laws.emplace_back(-n, law);
  std::sort(laws.begin(), laws.end());
  for (size_t i = 0; i < laws.size() && i < 15; i++) out += fmt::format("open beside: {} ({})\n", laws[i].second, -laws[i].first);
  return out;
}

}  // namespace mirage::test

// random_programs: random specs by the thousand, in processes of their own, so that a crash or a hang costs one program and is reported
// with its seed. docs/emulation.md, "Random programs".
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include <fmt/format.h>

#include "driver/gate/mutations.h"
#include "mirage/support/file.h"
#include "random/judge.h"

using namespace mirage;
using namespace mirage::test;

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kUsage = R"(random_programs [--count N] [--seed S] [--jobs J] [--seconds T] [--batch B] [--out DIR] [--no-reduce]
  N programs with seeds S, S+1, ... end to end; T seconds at most; B programs per host compile. DIR gets a file per failure (the spec, and its reduced form) and a line per program in seeds.txt.
random_programs --spread [--mutants M] ...       the same of programs whose values spread beyond their types' range; M mutants of each straightforward plan: which pass, and which of these only because range is taken into account
random_programs --print S            the spec of a seed
random_programs --plans --count N --seed S       how many kernels of each kind the plans have
random_programs --files SPEC...      judges specs in files, as they are and folded; a line per plan
random_programs --only S             judges one seed and prints what it does
random_programs --specs DIR --count N --seed S   writes the specs, for other tools
)";

struct Arguments {
  uint64_t count = 24, seed = 1;
  int jobs = 1, batch = 24;
  double seconds = 0;
  std::string out = "random_out";
  bool reduce = true, spread = false;
  size_t mutants = 0;
};

RandomSpec spec_of(const Arguments& a, uint64_t seed) { return a.spread ? spread_spec(seed) : random_spec(seed); }

constexpr int kMaxSkips = 512;

/// What the workers share. Every counter only grows.
struct Board {
  std::atomic<uint64_t> next{0};
  std::atomic<int64_t> programs{0}, plans{0}, wrong{0}, crashed{0}, refused{0}, slow{0}, field_carried{0}, reduced{0}, searched{0},
      by_range{0}, mutants{0}, passed{0}, ranged{0}, same_bits{0}, through{0};
  std::array<std::atomic<int64_t>, 4> kinds{};
  std::array<std::atomic<uint64_t>, 64> seed{}, batch{};   ///< per worker: what it is at
  std::array<std::atomic<int>, 64> phase{};
  std::array<std::atomic<int64_t>, 6> busy_ms{};            ///< per phase, of all workers
  std::atomic<int> skips{0};
  std::array<std::atomic<uint64_t>, kMaxSkips> skip{};      ///< seeds that ended a worker
};

const char* phase_name(int phase) {
  return std::array{"idle", "generating", "preparing", "compiling", "judging", "reducing"}[static_cast<size_t>(phase)];
}

class Worker {
 public:
  Worker(const Arguments& a, Board& board, int me, Clock::time_point end)
      : args_(a),
        board_(board),
        me_(static_cast<size_t>(me)),
        end_(end),
        compiler_(find_host_compiler()),
        folder_(fmt::format("{}/work.{}", a.out, me)) {}

  void run(bool resume) {
    for (bool again = resume;; again = false) {
      const uint64_t b = again ? board_.batch[me_].load() : board_.next++;
      const uint64_t first = b * static_cast<uint64_t>(args_.batch);
      if (first >= args_.count || Clock::now() > end_) return;
      board_.batch[me_] = b;
      batch(args_.seed + first, args_.seed + std::min(args_.count, first + static_cast<uint64_t>(args_.batch)));
    }
  }

 private:
  void at(uint64_t seed, int phase) {
    const auto now = Clock::now();
    board_.busy_ms[static_cast<size_t>(board_.phase[me_].load())] +=
        std::chrono::duration_cast<std::chrono::milliseconds>(now - since_).count();
    since_ = now;
    board_.seed[me_] = seed, board_.phase[me_] = phase; alarm(phase == 5 ? 300 : 150);
  }
  bool skipped(uint64_t seed) const {
    for (int i = 0; i < board_.skips; i++) if (board_.skip[static_cast<size_t>(i)] == seed) return true;
    return false;
  }
  void log(uint64_t seed, const std::string& line) {
    const std::string text = fmt::format("{} {}\n", seed, line);
    FILE* f = std::fopen(fmt::format("{}/seeds.{}.txt", args_.out, me_).c_str(), "a");
    if (f) std::fwrite(text.data(), 1, text.size(), f), std::fclose(f);
  }

  void batch(uint64_t from, uint64_t to) {
    std::filesystem::create_directories(folder_);
    std::vector<Prepared> all;
    std::vector<uint64_t> of;
    std::map<uint64_t, int> plans;
    for (uint64_t s = from; s < to; s++) {
      if (skipped(s)) continue;
      at(s, 1);
      const RandomSpec spec = spec_of(args_, s);
      at(s, 2);
      PreparedSpec p = prepare(spec, fmt::format("s{}_", s), args_.spread ? 2000 : 20'000);
      if (p.plans.empty()) { board_.refused++; log(s, "refused: " + p.refusal); continue; }
      plans[s] = static_cast<int>(p.plans.size());
      for (Prepared& x : p.plans) all.push_back(std::move(x)), of.push_back(s);
    }
    if (all.empty()) return;
    at(of[0], 3);
    std::vector<const EmulationCase*> cases;
    for (const Prepared& p : all) cases.push_back(&p.with);
    ProcessLimits limits;
    limits.timeout_s = 140;
    const EmulationLibrary lib = build_emulation(cases, compiler_, folder_, limits);
    std::map<uint64_t, std::string> wrong;
    std::map<uint64_t, bool> carried;
    std::map<uint64_t, EmulationOutcome::Distance> far;
    for (size_t i = 0; i < all.size(); i++) {
      // programs of which not every plan was judged do not count
      if (Clock::now() > end_) { for (size_t k = i; k < all.size(); k++) plans.erase(of[k]); break; }
      at(of[i], 4);
      std::string path = lib.path;
      if (!lib.error.empty()) {   // one text of many is refused: each on its own
        const EmulationLibrary own = build_emulation({&all[i].with}, compiler_, folder_, limits);
        if (!own.error.empty()) { wrong.emplace(of[i], "compiler: " + own.error); continue; }
        path = own.path;
      }
      const Judged j = judge(all[i], path);
      board_.slow += j.slow;
      board_.by_range += j.by_range;
      if (args_.mutants > 0 && i % 2 == 0 && j.wrong.empty() && !j.slow) try_mutants(all[i], path, of[i], j.by_range);
      if (!j.wrong.empty()) wrong.emplace(of[i], j.wrong + " (" + all[i].name + ")");
      carried[of[i]] = carried[of[i]] || j.carried;
      EmulationOutcome::Distance& d = far[of[i]];
      d.units = std::max(d.units, j.distance.units), d.norm_units = std::max(d.norm_units, j.distance.norm_units),
      d.flips = std::max(d.flips, j.distance.flips);
      d.spreads = std::max(d.spreads, j.distance.spreads), d.norm_spreads = std::max(d.norm_spreads, j.distance.norm_spreads);
      board_.plans++;
      board_.searched += all[i].name.find("straightforward") == std::string::npos;
      for (size_t k = 0; k < 4; k++) board_.kinds[k] += kernel_kinds(all[i].with.plan)[k];
    }
    for (const auto& [s, n] : plans) {
      board_.programs++;
      board_.field_carried += carried[s];
      const auto w = wrong.find(s);
      log(s, w == wrong.end() ? fmt::format("{} plans ok; units {:.2f} {:.2f} spreads {:.2f} {:.2f} flips {:.2f}", n, far[s].units,
                                            far[s].norm_units, far[s].spreads, far[s].norm_spreads, far[s].flips)
                              : "WRONG " + w->second.substr(0, w->second.find('\n')));
    }
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
    for (const auto& [s, why] : wrong) report(s, why);
  }

  /// Results in floats, bit for bit.
  static std::vector<std::vector<unsigned char>> results_of(const EmulationCase& c, const std::string& library) {
    EmulationRecord record;
    (void)run_emulation(c, library, EmulationMode::kFloat, 2, {}, &record);
    return record.after;
  }

  /// Mutants of a right plan. Those that pass because range explains them got through by it, unless their results are the right ones' bits.
  void try_mutants(const Prepared& p, const std::string& path, uint64_t seed, bool by_range) {
    std::vector<EmulationCase> cases;
    std::vector<std::string> whats;
    for (size_t k = 0; k < p.with.kernels.size(); k++)
      for (const KernelMutant& m :
           choose_mutants(all_mutants(p.with.kernels[k].source, k), std::max<size_t>(1, args_.mutants / p.with.kernels.size()), seed)) {
        cases.push_back(p.with);
        whats.push_back(fmt::format("{}: {}", m.what, m.line));
        cases.back().kernels[k].source = m.apply(cases.back().kernels[k].source);
        for (EmulatedKernel& e : cases.back().kernels) e.name = fmt::format("m{}_", cases.size()) + e.name;
      }
    std::vector<const EmulationCase*> all;
    for (const EmulationCase& c : cases) all.push_back(&c);
    const EmulationLibrary together = build_emulation(all, compiler_, folder_);
    for (const EmulationCase& c : cases) {
      at(seed, 4);
      const EmulationLibrary lib = together.error.empty() ? together : build_emulation({&c}, compiler_, folder_);
      if (!lib.error.empty()) continue;
      const Judged j = judge({p.name, c}, lib.path);
      board_.mutants++;
      board_.passed += j.wrong.empty();
      if (!j.wrong.empty() || !j.by_range) continue;
      board_.ranged++;
      const bool is_same = results_of(c, lib.path) == results_of(p.with, path);
      board_.same_bits += is_same;
      if (is_same) continue;
      board_.through++;
      log(seed, fmt::format("a mutant passes by range, {}: {}: {}", by_range ? "as the right kernels do" : "which these do not need",
                            p.name, whats[static_cast<size_t>(&c - cases.data())]));
    }
  }

  void report(uint64_t seed, const std::string& why) {
    board_.wrong++;
    const RandomSpec spec = spec_of(args_, seed);
    std::string text = fmt::format("seed {}: {}\n{}", seed, why, spec.text());
    const std::string file = fmt::format("{}/wrong-{}.txt", args_.out, seed);
    (void)write_file(file, text);
    if (!args_.reduce || board_.reduced++ >= 24 || Clock::now() > end_) return;
    at(seed, 5);
    const RandomSpec small = reduce_spec(spec, compiler_, folder_, 60);
    text += fmt::format("\nreduced: {}\n{}", failure(small, compiler_, folder_), small.text());
    (void)write_file(file, text);
  }

  const Arguments& args_;
  Board& board_;
  size_t me_;
  Clock::time_point end_;
  std::string compiler_, folder_;
  Clock::time_point since_ = Clock::now();
};

pid_t start(const Arguments& a, Board& board, int me, Clock::time_point end, bool resume) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  Worker(a, board, me, end).run(resume);
  _exit(0);
}

int run(const Arguments& a) {
  std::filesystem::create_directories(a.out);
  auto* board = new (mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Board;
  const auto begin = Clock::now();
  const auto end = a.seconds > 0 ? begin + std::chrono::milliseconds(static_cast<int64_t>(a.seconds * 1000)) : Clock::time_point::max();
  std::map<pid_t, int> workers;
  for (int i = 0; i < a.jobs; i++) workers[start(a, *board, i, end, false)] = i;
  auto said = begin;
  while (!workers.empty()) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    const auto now = Clock::now();
    if (pid == 0) {
      if (now - said > std::chrono::seconds(20)) {
        said = now;
        fmt::print("{:.0f} s: {} programs, {} plans, {} wrong, {} crashed\n", std::chrono::duration<double>(now - begin).count(),
                   board->programs.load(), board->plans.load(), board->wrong.load(), board->crashed.load());
        std::fflush(stdout);
      }
      if (a.seconds > 0 && now > end + std::chrono::seconds(10)) {   // what hangs now is not waited for
        for (const auto& [worker, me] : workers) kill(worker, SIGKILL);
        break;
      }
      usleep(20'000);
      continue;
    }
    const auto it = workers.find(pid);
    if (it == workers.end()) continue;
    const int me = it->second;
    workers.erase(it);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    const uint64_t seed = board->seed[static_cast<size_t>(me)];
    const std::string why =
        fmt::format("the process ended ({} {}) while {}", WIFSIGNALED(status) ? "signal" : "exit code",
                    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), phase_name(board->phase[static_cast<size_t>(me)]));
    fmt::print("seed {}: CRASH {}\n", seed, why);
    board->crashed++;
    (void)write_file(fmt::format("{}/crash-{}.txt", a.out, seed),
                     why + "\n" + (board->phase[static_cast<size_t>(me)] > 1 ? spec_of(a, seed).text() : ""));
    if (const int n = board->skips++; n < kMaxSkips) board->skip[static_cast<size_t>(n)] = seed;
    if (board->skips < kMaxSkips) workers[start(a, *board, me, end, true)] = me;
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  fmt::print(
      "random programs: seeds {} to {}, {} programs judged in {:.0f} s with {} jobs; {} plans ({} not straightforward): {} block, {} "
      "region, {} stream, {} attend kernels; the field carried {} programs; {} refused by the reader; {} plans too slow to judge; {} "
      "wrong, {} crashed\n",
      a.seed, a.seed + a.count - 1, board->programs.load(), seconds, a.jobs, board->plans.load(), board->searched.load(),
      board->kinds[0].load(), board->kinds[1].load(), board->kinds[2].load(), board->kinds[3].load(), board->field_carried.load(),
      board->refused.load(), board->slow.load(), board->wrong.load(), board->crashed.load());
  if (a.spread)
    fmt::print(
        "{} plans right only as range is taken into account; {} mutants, {} pass, {} of these by range, of which {} leave the right bits "
        "and {} do not\n",
        board->by_range.load(), board->mutants.load(), board->passed.load(), board->ranged.load(), board->same_bits.load(),
        board->through.load());
  fmt::print("seconds of all jobs: {:.0f} generating, {:.0f} searching and planning, {:.0f} compiling, {:.0f} emulating, {:.0f} reducing\n",
             board->busy_ms[1].load() / 1e3, board->busy_ms[2].load() / 1e3, board->busy_ms[3].load() / 1e3, board->busy_ms[4].load() / 1e3,
             board->busy_ms[5].load() / 1e3);
  return board->wrong.load() + board->crashed.load() > 0 ? 8 : 0;
}

int count_plans(const Arguments& a) {
  std::array<int, 4> kinds{};
  for (uint64_t s = a.seed; s < a.seed + a.count; s++)
    for (const Prepared& p : prepare(random_spec(s), "p").plans) {
      const auto k = kernel_kinds(p.with.plan);
      for (size_t i = 0; i < 4; i++) kinds[i] += k[i];
      if (k[2] + k[3] > 0) fmt::print("{}: {} stream, {} attend\n", p.name, k[2], k[3]);
    }
  fmt::print("{} block, {} region, {} stream, {} attend kernels\n", kinds[0], kinds[1], kinds[2], kinds[3]);
  return 0;
}

/// Builds and judges each plan; a line per plan. How many are wrong.
int judge_plans(const std::vector<Prepared>& plans) {
  const std::string compiler = find_host_compiler(), folder = fmt::format("/tmp/random_only.{}", getpid());
  int bad = 0;
  for (const Prepared& x : plans) {
    const EmulationLibrary lib = build_emulation({&x.with}, compiler, folder);
    const Judged j = lib.error.empty() ? judge(x, lib.path) : Judged{"compiler: " + lib.error, false, false, false, {}};
    const auto kinds = kernel_kinds(x.with.plan);
    fmt::print("{}: {} block, {} region, {} stream, {} attend kernels: {}{}{}\n", x.name, kinds[0], kinds[1], kinds[2], kinds[3],
               j.wrong.empty() ? "ok" : j.wrong, j.slow ? " (too slow to judge)" : "", j.carried ? "" : " (not carried by the field)");
    std::fflush(stdout);
    bad += !j.wrong.empty();
  }
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  return bad;
}

int judge_one(uint64_t seed) {
  const RandomSpec s = random_spec(seed);
  fmt::print("{}\n", s.text());
  std::fflush(stdout);
  return judge_plans(prepare(s, "p").plans) ? 8 : 0;
}

int judge_files(const std::vector<std::string>& files) {
  int bad = 0;
  for (const std::string& file : files) {
    const auto text = read_file(file);
    if (!text) { fmt::print("{}: cannot be read\n", file); bad++; continue; }
    const std::string name = std::filesystem::path(file).stem().string();
    for (bool folds : {false, true}) {
      const PreparedSpec p = prepare_text(name, *text, "p", 20'000, folds);
      if (!p.refusal.empty()) fmt::print("{}: refused: {}\n", name, p.refusal);
      if (folds) fmt::print("{} folded:\n", name);
      bad += judge_plans(p.plans);
    }
  }
  return bad ? 8 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments a;
  std::string specs, print, only;
  std::vector<std::string> files;
  bool plans = false;
  for (int i = 1; i < argc; i++) {
    const std::string f = argv[i];
    const auto value = [&] { return i + 1 < argc ? std::string(argv[++i]) : std::string(); };
    if (f == "--count") a.count = std::strtoull(value().c_str(), nullptr, 10);
    else if (f == "--seed") a.seed = std::strtoull(value().c_str(), nullptr, 10);
    else if (f == "--jobs") a.jobs = std::clamp(std::atoi(value().c_str()), 1, 64);
    else if (f == "--batch") a.batch = std::max(1, std::atoi(value().c_str()));
    else if (f == "--seconds") a.seconds = std::atof(value().c_str());
    else if (f == "--out") a.out = value();
    else if (f == "--no-reduce") a.reduce = false;
    else if (f == "--spread") a.spread = true;
    else if (f == "--mutants") a.mutants = std::strtoull(value().c_str(), nullptr, 10);
    else if (f == "--specs") specs = value();
    else if (f == "--plans") plans = true;
    else if (f == "--print") print = value();
    else if (f == "--only") only = value();
    else if (f == "--files") files.assign(argv + i + 1, argv + argc), i = argc;
    else { fmt::print("{}", kUsage); return f == "--help" ? 0 : 2; }
  }
  if (!print.empty()) { fmt::print("{}", spec_of(a, std::strtoull(print.c_str(), nullptr, 10)).text()); return 0; }
  if (plans) return count_plans(a);
  if (!files.empty()) return judge_files(files);
  if (!only.empty()) return judge_one(std::strtoull(only.c_str(), nullptr, 10));
  if (!specs.empty()) {
    std::filesystem::create_directories(specs);
    for (uint64_t s = a.seed; s < a.seed + a.count; s++) (void)write_file(fmt::format("{}/r{}.json", specs, s), random_spec(s).text());
    return 0;
  }
  if (find_host_compiler().empty()) { fmt::print("there is no C++ compiler\n"); return 7; }
  return run(a);
}

#include "trust/random/judge.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mirage::test {

std::string describe(const RandomPair& p) {
  return fmt::format("{}{}\nlaws: {}\nbroken: {}\nshown: {}\n{}--\n{}", truth_name(p.truth), p.size == Size::kLarge ? ", large" : p.size == Size::kHuge ? ", huge" : "", fmt::join(p.laws, "; "), p.change, p.shown, p.graphs[0], p.graphs[1]);
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
    const bool is_wrong = (a.exit != ExitCode::kOk && a.exit != ExitCode::kNotEqual && a.exit != ExitCode::kNothingFound) || (p->truth == Truth::kDifferent ? a.exit == ExitCode::kOk : a.exit == ExitCode::kNotEqual);
    if (!is_wrong) continue;
    t.wrong++;
    tell(fmt::format("==== seed {} {}: {} ({})\n{}\n{}", seed, first ? "B A" : "A B", answer_name(a.exit), a.text.substr(0, 300), "", describe(*p)));
  }
}

std::string PairTally::table() const {
  std::string out = fmt::format("{} pairs, both ways round: {} wrong verdicts; {} seeds gave none, {} did not read; slowest {:.1f} s (seed {})\n", pairs, wrong, none, unreadable, slowest, slowest_seed);
  out += fmt::format("{:60} {:>8} {:>9} {:>8}\n", "truth", "Equal", "Different", "Unknown");
  for (const auto& [kind, said] : by_kind) {
    const auto n = [&](const char* v) { const auto it = said.find(v); return it == said.end() ? 0 : it->second; };
    out += fmt::format("{:60} {:8} {:9} {:8}\n", kind, n("Equal"), n("Different"), n("Unknown"));
  }
  std::vector<std::pair<int, std::string>> laws;
  for (const auto& [law, n] : open) laws.emplace_back(-n, law);
  std::sort(laws.begin(), laws.end());
  for (size_t i = 0; i < laws.size() && i < 15; i++) out += fmt::format("open beside: {} ({})\n", laws[i].second, -laws[i].first);
  return out;
}

}  // namespace mirage::test

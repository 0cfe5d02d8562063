// Pairs of graphs with known truth, and what a verdict may say of them (docs/verification.md): the program is the first, the candidate the
// second.
#pragma once
#include <array>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "mirage/driver/modes.h"

namespace mirage::test {

enum class Truth {
  kEqual,
  kDifferent,
  kWhereDefined
};  ///< kWhereDefined: equal wherever both are defined, and one of them is not everywhere
inline const char* truth_name(Truth t) {
  return t == Truth::kEqual ? "equal" : t == Truth::kDifferent ? "different" : "equal where both are defined";
}

struct KnownPair {
  std::string name, note;
  Truth truth = Truth::kEqual;
  std::array<std::string, 2> graphs;
};

/// `== name : truth : note`, graph, `--`, graph; '#' begins a comment before the first pair.
inline std::vector<KnownPair> read_pairs(const std::string& path) {
  std::vector<KnownPair> out;
  std::ifstream in(path);
  size_t side = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("== ")) {
      KnownPair p;
      const size_t a = line.find(" : "), b = line.find(" : ", a + 1);
      p.name = line.substr(3, a - 3);
      const std::string truth = line.substr(a + 3, b - a - 3);
      p.truth = truth == truth_name(Truth::kEqual)       ? Truth::kEqual
                : truth == truth_name(Truth::kDifferent) ? Truth::kDifferent
                                                         : Truth::kWhereDefined;
      p.note = line.substr(b + 3);
      out.push_back(p);
      side = 0;
    } else if (line == "--") {
      side = 1;
    } else if (!out.empty()) {
      out.back().graphs[side] += line + "\n";
    }
  }
  return out;
}

/// One answer of --verify.
struct Answer { ExitCode exit = ExitCode::kBug; std::string text; };

inline Answer ask(const std::string& program, const std::string& candidate, int64_t seed) {
  Options o;
  o.seed = seed;
  ModeResult r = verify_two({"program.graph", program}, {"candidate.graph", candidate}, o);
  for (const Diagnostic& d : r.diagnostics) r.text += d.text + "\n";
  return {r.exit, r.text};
}

inline const char* answer_name(ExitCode e) {
  return e == ExitCode::kOk ? "Equal" : e == ExitCode::kNotEqual ? "Different" : e == ExitCode::kNothingFound ? "Unknown" : "refused";
}

/// "" for an answer that the truth allows. Unknown always is one; how many there may be is the test's to say.
inline std::string wrong_answer(Truth truth, const Answer& a) {
  if (a.exit != ExitCode::kOk && a.exit != ExitCode::kNotEqual && a.exit != ExitCode::kNothingFound) return "no answer";
  if (truth == Truth::kDifferent && a.exit == ExitCode::kOk) return "different graphs are called Equal";
  if (truth != Truth::kDifferent && a.exit == ExitCode::kNotEqual) return "equal graphs are called Different";
  if (truth == Truth::kWhereDefined) {   // the words must say that there is something to be careful of
    for (const char* word : {"defined", "NaN", "not 0", "not negative", "finite", "denominator", "positive"})
      if (a.text.find(word) != std::string::npos) return "";
    return "nothing is said about where they are not defined";
  }
  return "";
}

}  // namespace mirage::test

// What mirage-opt reads back of its own (certificates, reports as baselines, graphs) and specs, with mistakes put in by the thousand under
// fixed seeds: refused with words or taken, never an assertion, a crash or a hang. The libFuzzer targets (test/fuzz) do this for hours;
// this is the slice that every test run has, and the only one for readers above lib/spec.
#include <catch2/catch.hpp>
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "mirage/driver/compile.h"
#include "mirage/driver/modes.h"
#include "mirage/spec/text.h"
#include "mirage/support/hash.h"

using namespace mirage;

namespace {

const char* kSpec =
    R"({"version": "1.0", "name": "small", "inputs": {"x": {"shape": [8, 64], "dtype": "float16"}, "w": {"shape": [64, 32], "dtype": "float16"}}, "outputs": {"y": {"dtype": "float16"}},
 "nodes": [{"op": "rms_norm", "inputs": ["x"], "output": "n"}, {"op": "matmul", "inputs": ["n", "w"], "output": "y"}]})";

/// Words that stand in such texts: one put in another's place is read further than a random byte.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> out;
  for (size_t i = 0; i < text.size();) {
    size_t j = i;
    while (j < text.size() && (std::isalnum(static_cast<unsigned char>(text[j])) || text[j] == '_' || text[j] == '.' || text[j] == '-'))
      j++;
    if (j > i) out.push_back(text.substr(i, j - i));
    i = std::max(j, i + 1);
  }
  return out;
}

std::string mutated(std::string s, const std::vector<std::string>& words, Rng& rng) {
  static const std::vector<std::string> extremes = {"0",
                                                    "-1",
                                                    "1",
                                                    "9223372036854775807",
                                                    "-9223372036854775808",
                                                    "99999999999999999999",
                                                    "1e308",
                                                    "1e-320",
                                                    "0.5",
                                                    "\"\"",
                                                    "[]",
                                                    "{}",
                                                    "null",
                                                    "true",
                                                    "\xff",
                                                    "\\u0000",
                                                    "\\n",
                                                    "%",
                                                    "(",
                                                    "grid(-,-,-)",
                                                    "[1,1]"};
  for (uint64_t steps = 1 + rng.below(3); steps > 0 && !s.empty(); steps--) {
    const size_t at = rng.below(s.size());
    switch (rng.below(7)) {
      case 0: s[at] = static_cast<char>(rng.below(256)); break;
      case 1: s.erase(at, 1 + rng.below(12)); break;
      case 2: s.insert(at, extremes[rng.below(extremes.size())]); break;
      case 3: s.insert(at, s.substr(rng.below(s.size()), 1 + rng.below(60))); break;
      case 4: s.resize(at); break;
      default: {   // a word for a word, a number for a number
        const std::string& from = words[rng.below(words.size())];
        if (const size_t p = s.find(from, at); p != std::string::npos)
          s.replace(p, from.size(), rng.below(2) ? words[rng.below(words.size())] : extremes[rng.below(extremes.size())]);
      }
    }
  }
  return s;
}

int64_t rounds(int64_t usual) {
  const char* more = std::getenv("MIRAGE_ROUNDS");   // times as many
  return usual * (more ? std::max(1, std::atoi(more)) : 1);
}

void check_words(const Diagnostics& all, const std::string& text) {
  for (const Diagnostic& d : all) CHECK(!render(d, text).empty());
}

const CompileResult& result() {
  static const CompileResult r = [] {
    Options o;
    o.gate = "none";
    o.states = 50'000;
    Trace trace;
    return compile(o, {"small.json", kSpec}, trace);
  }();
  REQUIRE(r.exit == ExitCode::kOk);
  return r;
}

}  // namespace

TEST_CASE("mutated certificates are checked or refused") {
  const std::string good = result().files.at("certificate.json");
  const ModeResult whole = check_certificate({"c.json", good}, {{"small.json", kSpec}}, {});
  INFO(whole.text << (whole.diagnostics.empty() ? "" : whole.diagnostics[0].text));
  REQUIRE(whole.exit == ExitCode::kOk);
  const std::vector<std::string> words = words_of(good);
  Rng rng(41);
  int refused = 0;
  const int64_t n = rounds(1500);
  for (int64_t i = 0; i < n; i++) {
    const std::string text = mutated(good, words, rng);
    const ModeResult r = check_certificate({"c.json", text}, {{"small.json", kSpec}}, {});
    refused += r.exit != ExitCode::kOk;
    if (r.exit != ExitCode::kOk) CHECK((!r.diagnostics.empty() || !r.text.empty()));
    check_words(r.diagnostics, text);
  }
  CHECK(refused > n / 2);
}

TEST_CASE("mutated reports are baselines or refused") {
  const std::string good = result().timed_report;
  const std::vector<std::string> words = words_of(good);
  Rng rng(42);
  for (int64_t i = rounds(3000); i > 0; i--) {
    const std::string text = mutated(good, words, rng);
    check_words(compare_with_baseline({"b.json", text}, {good}), text);
    check_words(compare_with_baseline({"b.json", good}, {text}), good);
  }
}

TEST_CASE("mutated specs and graphs are read or refused") {
  Rng rng(43);
  const std::string graph = result().files.at("small.graph");
  for (const std::string& good : {std::string(kSpec), graph}) {
    const std::vector<std::string> words = words_of(good);
    for (int64_t i = rounds(4000); i > 0; i--) {
      const std::string text = mutated(good, words, rng);
      if (auto p = read_spec({"s", text}); !p) {
        CHECK(!p.errors().empty());
        check_words(p.errors(), text);
      } else {
        const std::string normal = canonicalize(p->program);
        auto again = parse_spec({"n", normal});
        REQUIRE(again);
        CHECK(canonicalize(*again) == normal);
      }
      if (auto g = parse_graph(text, "g"); !g) check_words(g.errors(), text);
    }
  }
}

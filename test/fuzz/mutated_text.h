// Small changes of a text by its words: numbers, operators, names and lines take each other's places, so that most of what comes out still
// reads. For libFuzzer and for the deterministic slice in the suite.
#pragma once
#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "mirage/support/hash.h"

namespace mirage::test {

inline std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> out;
  for (size_t i = 0; i < text.size();) {
    const auto kind = [](char c) {
      return std::isdigit(static_cast<unsigned char>(c)) ? 1 : std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '.' ? 2 : 0;
    };
    size_t j = i + 1;
    if (kind(text[i])) while (j < text.size() && kind(text[j]) == kind(text[i])) j++;
    out.push_back(text.substr(i, j - i));
    i = j;
  }
  return out;
}

inline std::string mutated_words(const std::string& text, uint64_t seed) {
  static const std::vector<std::string> numbers = {
      "0",    "1",  "2",    "3",   "7",    "8", "16", "64", "100", "4096", "65536", "2147483647", "1099511627776",
      "1e-5", "-1", "-inf", "inf", "1e300"};
  static const std::vector<std::string> heads = {"add",     "sub",      "mul",  "div",    "exp",     "sqrt",      "silu",
                                                 "maximum", "where",    "less", "matmul", "running", "accum.sum", "accum.max",
                                                 "relu",    "cast_f16", "neg",  "square", "log",     "tanh"};
  Rng rng(mix64(seed));
  std::vector<std::string> w = words_of(text);
  for (uint64_t n = 1 + rng.below(3); n > 0 && !w.empty(); n--) {
    const size_t i = rng.below(w.size());
    const auto is_number = [&](const std::string& s) { return std::isdigit(static_cast<unsigned char>(s[0])) != 0; };
    switch (rng.below(6)) {
      case 0: {   // a number somewhere becomes another
        const size_t at = static_cast<size_t>(std::find_if(w.begin() + static_cast<std::ptrdiff_t>(i), w.end(), is_number) - w.begin());
        if (at < w.size())
          w[at] = rng.below(2) ? numbers[rng.below(numbers.size())]
                               : std::to_string(std::strtoll(w[at].substr(0, 15).c_str(), nullptr, 10) + (rng.below(2) ? 1 : -1));
        break;
      }
      case 1: {   // an operator
        const size_t at = static_cast<size_t>(
            std::find_if(w.begin() + static_cast<std::ptrdiff_t>(i), w.end(),
                         [&](const std::string& s) { return std::find(heads.begin(), heads.end(), s) != heads.end(); }) -
            w.begin());
        if (at < w.size()) w[at] = heads[rng.below(heads.size())];
        break;
      }
      case 2: {   // a word from elsewhere
        const size_t j = rng.below(w.size());
        if (is_number(w[i]) == is_number(w[j])) w[i] = w[j];
        break;
      }
      case 3: std::swap(w[i], w[rng.below(w.size())]); break;
      case 4: w.erase(w.begin() + static_cast<std::ptrdiff_t>(i)); break;
      default: {   // a line twice or gone
        size_t a = i, b = i;
        while (a > 0 && w[a - 1] != "\n") a--;
        while (b < w.size() && w[b] != "\n") b++;
        const std::vector<std::string> line(w.begin() + static_cast<std::ptrdiff_t>(a),
                                            w.begin() + static_cast<std::ptrdiff_t>(std::min(b + 1, w.size())));
        if (rng.below(2)) w.insert(w.begin() + static_cast<std::ptrdiff_t>(a), line.begin(), line.end());
        else w.erase(w.begin() + static_cast<std::ptrdiff_t>(a), w.begin() + static_cast<std::ptrdiff_t>(std::min(b + 1, w.size())));
      }
    }
  }
  std::string out;
  for (const std::string& s : w) out += s;
  return out;
}

}  // namespace mirage::test

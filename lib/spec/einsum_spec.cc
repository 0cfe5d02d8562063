// --einsum: a one-node program from a line such as "mk,kn->mn m=16 k=4096 n=64 bf16".
#include <map>
#include <fmt/format.h>
#include "mirage/spec/spec.h"
#include "spec/json/json_tree.h"

namespace mirage {
namespace {

struct Request { std::string equation, dtype = "float16"; std::map<char, int64_t> extents; };

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// "m=16"; false if the word has another form.
bool read_extent(std::string_view word, Request& r) {
  if (word.size() < 3 || word.size() > 15 || !is_letter(word[0]) || word[1] != '=') return false;
  int64_t n = 0;
  for (char c : word.substr(2)) {
    if (c < '0' || c > '9') return false;
    n = n * 10 + (c - '0');
  }
  r.extents[word[0]] = n;
  return n > 0;
}

}  // namespace

Result<Parsed> read_einsum(const std::string& line) {
  auto usage = [&](std::string text) {
    Diagnostic d{Severity::kError, DiagCode::kUsage, {}, std::move(text), {}};
    d.notes.push_back({{}, "write --einsum \"mk,kn->mn m=16 k=4096 n=64 f16\""});
    return d;
  };
  Request r;
  if (line.size() > 4096 || spec::find_bad_utf8(line)) return usage("--einsum: the text is too long or no UTF-8");
  size_t i = 0;
  while (i < line.size()) {
    size_t end = std::min(line.find(' ', i), line.size());
    std::string word = line.substr(i, end - i);
    i = end + 1;
    if (word.empty()) continue;
    auto dtype = parse_dtype(word);
    if (r.equation.empty()) r.equation = word;
    else if (dtype && *dtype != DType::kReal && *dtype != DType::kBool) r.dtype = dtype_long_name(*dtype);
    else if (!read_extent(word, r)) return usage(fmt::format("--einsum: '{}' is no extent such as m=16 and no dtype", word));
  }
  if (r.equation.empty()) return usage("--einsum: the equation is missing");
  std::string left = r.equation.substr(0, r.equation.find("->")), inputs, names, shape;
  int count = 0;
  auto flush = [&] {
    inputs += fmt::format("{}\"x{}\": {{\"shape\": [{}], \"dtype\": \"{}\"}}", count ? ", " : "", count, shape, r.dtype);
    names += fmt::format("{}\"x{}\"", count ? ", " : "", count);
    shape.clear();
    ++count;
  };
  for (char c : left) {
    if (c == ',') {
      flush();
    } else if (is_letter(c)) {
      auto it = r.extents.find(c);
      if (it == r.extents.end()) return usage(fmt::format("--einsum: the extent of '{0}' is missing: {0}=...", c));
      shape += (shape.empty() ? "" : ", ") + std::to_string(it->second);
    } else {
      return usage(fmt::format("--einsum: the equation '{}' has letters, ',' and one '->'", r.equation));
    }
  }
  flush();
  if (r.equation.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ,->") != std::string::npos)
    return usage(fmt::format("--einsum: the equation '{}' has letters, ',' and one '->'", r.equation));
  return read_spec(
      {"--einsum", fmt::format("{{\"name\": \"einsum\", \"inputs\": {{{}}}, \"outputs\": {{\"y\": {{\"dtype\": \"{}\"}}}}, \"nodes\": "
                               "[{{\"op\": \"einsum\", \"inputs\": [{}], \"output\": \"y\", \"attrs\": {{\"equation\": \"{}\"}}}}]}}",
                               inputs, r.dtype, names, r.equation)});
}

}  // namespace mirage

// Words, numbers, shapes and launches of the text form.
#include <charconv>
#include <cmath>
#include <limits>
#include <fmt/format.h>
#include "spec/operators/emitter.h"
#include "spec/text/text_reader.h"

namespace mirage::spec {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
// blocks times loop iterations; with tiles below 2^31 elements no product of extents overflows
constexpr int64_t kMaxIterations = int64_t{1} << 31;

}  // namespace

void TextReader::fail(DiagCode code, Span where, std::string text, std::vector<Note> notes) const {
  throw BuildError{code, where, std::move(text), std::move(notes)};
}

void TextReader::skip() {
  while (i_ < s_.size()) {
    char c = s_[i_];
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
      ++i_;
    } else if (c == '#') {
      while (i_ < s_.size() && s_[i_] != '\n') ++i_;
    } else {
      return;
    }
  }
}

bool TextReader::at_end() {
  skip();
  return i_ == s_.size();
}

bool TextReader::peek(std::string_view p) {
  skip();
  return s_.substr(i_).starts_with(p);
}

bool TextReader::take(std::string_view p) {
  if (!peek(p)) return false;
  i_ += p.size();
  return true;
}

bool TextReader::take_word(std::string_view w) {
  if (!peek(w) || (i_ + w.size() < s_.size() && is_word(s_[i_ + w.size()]))) return false;
  i_ += w.size();
  return true;
}

void TextReader::expect(std::string_view p) {
  if (!take(p))
    fail(DiagCode::kSyntax, {i_, 1}, at_end() ? fmt::format("the text ends where '{}' belongs", p) : fmt::format("expected '{}'", p));
}

std::string TextReader::read_word(Span& where) {
  skip();
  size_t start = i_;
  while (i_ < s_.size() && (is_word(s_[i_]) || s_[i_] == '.')) ++i_;
  where = {start, std::max<size_t>(1, i_ - start)};
  return std::string(s_.substr(start, i_ - start));
}

std::string TextReader::read_name(Span& where) {
  skip();
  size_t start = i_;
  expect("%");
  while (i_ < s_.size() && is_word(s_[i_])) ++i_;
  where = {start, i_ - start};
  if (i_ == start + 1) fail(DiagCode::kSyntax, where, "'%' without a name");
  if (i_ - start - 1 > 128) fail(DiagCode::kLimit, where, "the name has more than 128 letters");
  return std::string(s_.substr(start + 1, i_ - start - 1));
}

bool TextReader::starts_statement() {
  skip();
  size_t before = i_;
  bool yes = at_end() || peek("}") || take_word("output");
  if (!yes && take("%")) {
    while (i_ < s_.size() && is_word(s_[i_])) ++i_;
    yes = peek("=") || peek(",");
  }
  i_ = before;
  return yes;
}

int64_t TextReader::read_int(int64_t low, int64_t high, const char* what) {
  skip();
  size_t start = i_;
  int64_t v = 0;
  auto [end, error] = std::from_chars(s_.data() + i_, s_.data() + s_.size(), v);
  if (error == std::errc::invalid_argument) fail(DiagCode::kSyntax, {start, 1}, fmt::format("expected {}", what));
  i_ = static_cast<size_t>(end - s_.data());
  if (error != std::errc() || v < low || v > high)
    fail(DiagCode::kBadNumber, {start, i_ - start}, fmt::format("{} must be between {} and {}", what, low, high));
  return v;
}

bool TextReader::at_number() {
  skip();
  if (i_ >= s_.size()) return false;
  if (is_digit(s_[i_]) || s_[i_] == '-') return true;
  size_t before = i_;
  bool yes = take_word("inf");
  i_ = before;
  return yes;
}

double TextReader::read_number() {
  skip();
  size_t start = i_;
  if (take_word("inf")) return std::numeric_limits<double>::infinity();
  if (take_word("-inf")) return -std::numeric_limits<double>::infinity();
  double v = 0;
  if (i_ >= s_.size() || !(is_digit(s_[i_]) || s_[i_] == '-')) fail(DiagCode::kSyntax, {start, 1}, "expected a number");
  auto [end, error] = std::from_chars(s_.data() + i_, s_.data() + s_.size(), v);
  if (error == std::errc::invalid_argument) fail(DiagCode::kSyntax, {start, 1}, "expected a number");
  i_ = static_cast<size_t>(end - s_.data());
  if (error != std::errc() || !std::isfinite(v))
    fail(DiagCode::kBadNumber, {start, i_ - start}, "the number is out of the range of double precision");
  return v == 0 ? 0.0 : v;
}

Dims TextReader::read_dims() {
  skip();
  size_t start = i_;
  expect("[");
  Dims d;
  if (take("]")) return d;
  do {
    if (d.rank() == kMaxRank) fail(DiagCode::kLimit, {start, 1}, fmt::format("more than {} dimensions", kMaxRank));
    d.push_back(read_int(1, kMaxElements, "an extent"));
  } while (take(","));
  expect("]");
  if (!count_elements(d)) fail(DiagCode::kLimit, {start, i_ - start}, "more than 2^40 elements");
  return d;
}

DType TextReader::read_dtype() {
  Span where;
  std::string word = read_word(where);
  auto t = parse_dtype(word);
  if (!t)
    fail(DiagCode::kDtype, where, fmt::format("there is no dtype '{}'", word.substr(0, 40)),
         Report::did_you_mean(word, {"f16", "bf16", "f32", "bool", "real"}));
  return *t;
}

Type TextReader::read_type() {
  DType t = read_dtype();
  return {t, read_dims()};
}

int8_t TextReader::read_partition_dim() {
  skip();
  if (peek("-") && !(i_ + 1 < s_.size() && is_digit(s_[i_ + 1]))) {
    expect("-");
    return -1;
  }
  return static_cast<int8_t>(read_int(0, kMaxRank - 1, "a dimension or '-'"));
}

std::array<int8_t, 3> TextReader::read_partition_grid() {
  std::array<int8_t, 3> grid{-1, -1, -1};
  expect("(");
  for (size_t i = 0; i < 3; ++i) {
    if (i > 0) expect(",");
    grid[i] = read_partition_dim();
  }
  expect(")");
  return grid;
}

Launch TextReader::read_launch() {
  Launch launch;
  skip();
  size_t start = i_;
  if (take_word("grid")) {
    expect("(");
    for (size_t i = 0; i < 3; ++i) {
      if (i > 0) expect(",");
      launch.grid[i] = read_int(1, kMaxIterations, "a number of blocks");
    }
    expect(")");
  }
  if (take_word("loop")) {
    expect("(");
    launch.loop = read_int(1, kMaxIterations, "a number of iterations");
    expect(")");
  }
  int64_t total = launch.loop;
  for (int64_t g : launch.grid) {
    if (total > kMaxIterations / g) fail(DiagCode::kLimit, {start, 4}, "more than 2^31 blocks and iterations");
    total *= g;
  }
  return launch;
}

}  // namespace mirage::spec

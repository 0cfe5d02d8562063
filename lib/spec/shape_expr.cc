// Shape expressions by recursive descent, with overflow checks; see shape_expr.h.
#include "spec/shape_expr.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mirage::spec {
namespace {

struct Failure { DiagCode code; size_t at, length; std::string text; std::vector<Note> notes; };

class Reader {
 public:
  Reader(std::string_view text, const Axes& axes, bool wants_hint) : s_(text), axes_(axes), wants_hint_(wants_hint) {}
  int64_t read() {
    int64_t v = sum();
    skip();
    if (i_ < s_.size()) fail(i_, 1, fmt::format("unexpected '{}' in a shape expression", printable(s_[i_])));
    return v;
  }
  bool saw_unknown() const { return unknown_; }

 private:
  static std::string printable(char c) { return c >= 32 && c < 127 ? std::string(1, c) : "?"; }
  [[noreturn]] void fail(size_t at, size_t length, std::string text, DiagCode code = DiagCode::kShapeExpression,
                         std::vector<Note> notes = {}) {
    throw Failure{code, at, length, std::move(text), std::move(notes)};
  }
  void skip() { while (i_ < s_.size() && s_[i_] == ' ') ++i_; }
  bool take(char c) {
    skip();
    if (i_ >= s_.size() || s_[i_] != c) return false;
    ++i_;
    return true;
  }
  int64_t sum() {
    int64_t v = product();
    for (;;) {
      skip();
      size_t at = i_;
      bool plus = take('+');
      if (!plus && !take('-')) return v;
      int64_t w = product();
      if (plus ? __builtin_add_overflow(v, w, &v) : __builtin_sub_overflow(v, w, &v)) fail(at, 1, "the shape expression overflows");
    }
  }
  int64_t product() {
    int64_t v = factor();
    for (;;) {
      skip();
      size_t at = i_;
      bool times = take('*');
      if (!times && !take('/')) return v;
      int64_t w = factor();
      if (unknown_) v = w = 1;   // nothing is known of the quotient then
      if (times && __builtin_mul_overflow(v, w, &v)) fail(at, 1, "the shape expression overflows");
      if (times) continue;
      if (w == 0) fail(at, 1, "division by zero in a shape expression");
      if (w == -1 ? v == INT64_MIN : v % w != 0) fail(at, 1, fmt::format("{} / {} is not exact", v, w));
      v /= w;
    }
  }
  int64_t factor() {
    skip();
    size_t at = i_;
    if (take('(')) {
      if (++depth_ > 64) fail(at, 1, "parentheses are nested too deeply");
      int64_t v = sum();
      if (!take(')')) fail(i_, 1, "')' is missing in a shape expression");
      --depth_;
      return v;
    }
    if (i_ < s_.size() && s_[i_] >= '0' && s_[i_] <= '9') {
      int64_t v = 0;
      for (; i_ < s_.size() && s_[i_] >= '0' && s_[i_] <= '9'; ++i_) {
        if (__builtin_mul_overflow(v, int64_t{10}, &v) || __builtin_add_overflow(v, int64_t{s_[i_] - '0'}, &v))
          fail(at, i_ - at, "the number is too large");
      }
      return v;
    }
    if (take('-')) {   // a place from the end, such as "-K/2"
      int64_t v = 0;
      if (++depth_ > 64) fail(at, 1, "too many signs");
      if (__builtin_sub_overflow(int64_t{0}, factor(), &v)) fail(at, 1, "the shape expression overflows");
      --depth_;
      return v;
    }
    auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
    if (i_ < s_.size() && is_letter(s_[i_])) {
      while (i_ < s_.size() && (is_letter(s_[i_]) || (s_[i_] >= '0' && s_[i_] <= '9'))) ++i_;
      std::string name(s_.substr(at, i_ - at));
      auto found = axes_.find(name);
      if (found == axes_.end()) {
        std::vector<std::string> names;
        if (wants_hint_) for (const auto& [n, v] : axes_) names.push_back(n);
        std::vector<Note> notes = Report::did_you_mean(name, names);
        if (notes.empty() && wants_hint_)
          notes.push_back({{}, names.empty() ? "the spec has no 'axes'" : fmt::format("the axes are {}", fmt::join(names, ", "))});
        fail(at, i_ - at, fmt::format("there is no axis '{}'", name), DiagCode::kUnknownName, std::move(notes));
      }
      if (!found->second) unknown_ = true;
      return found->second.value_or(1);
    }
    fail(i_, 1,
         i_ < s_.size() ? fmt::format("unexpected '{}' in a shape expression", printable(s_[i_])) : "the shape expression ends too early");
  }

  std::string_view s_;
  const Axes& axes_;
  size_t i_ = 0;
  int depth_ = 0;
  bool unknown_ = false;
  bool wants_hint_;
};

}  // namespace

ShapeResult eval_shape_expr(std::string_view text, Span whole, bool plain, const Axes& axes, Report& report, bool is_extent) {
  try {
    Reader reader(text, axes, !report.full());
    int64_t v = reader.read();
    if (reader.saw_unknown()) return {true, std::nullopt};
    if (v < 1 && is_extent)
      throw Failure{DiagCode::kShapeExpression, 0, text.size(), fmt::format("the extent is {}; extents are positive", v), {}};
    return {true, v};
  } catch (Failure& f) {
    report.error(f.code, plain ? Span{whole.offset + 1 + f.at, std::max<size_t>(1, f.length)} : whole, f.text, std::move(f.notes));
    return {};
  }
}

std::optional<int64_t> try_shape_expr(std::string_view text, const Axes& axes) {
  try {
    Reader reader(text, axes, false);
    int64_t v = reader.read();
    if (reader.saw_unknown()) return std::nullopt;
    return v;
  } catch (Failure&) {
    return std::nullopt;
  }
}

}  // namespace mirage::spec

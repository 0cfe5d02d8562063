// JSON text to a tree with places, through nlohmann's SAX interface; see json_tree.h.
#include "spec/json/json_tree.h"
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <fmt/format.h>

#include "spec/json/json_cursor.h"

namespace mirage::spec {
namespace {

using Json = nlohmann::json;

bool is_number_char(char c) { return (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.' || c == 'e' || c == 'E'; }

/// Builds the tree from nlohmann's events. Returning false stops the parser.
class TreeBuilder : public nlohmann::json_sax<Json> {
 public:
  TreeBuilder(std::string_view text, const size_t* consumed, Report& report) : text_(text), consumed_(consumed), report_(report) {}
  JsonValue take() { return std::move(root_); }

  bool null() override { return add(make(JsonKind::kNull, literal_span(4))); }
  bool boolean(bool b) override {
    JsonValue v = make(JsonKind::kBool, literal_span(b ? 4 : 5));
    v.flag = b;
    return add(std::move(v));
  }
  bool number_integer(number_integer_t i) override {
    JsonValue v = make(JsonKind::kInt, number_span());
    v.integer = i;
    v.number = static_cast<double>(i);
    return add(std::move(v));
  }
  bool number_unsigned(number_unsigned_t u) override {
    if (u > static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max())) return large_integer();
    return number_integer(static_cast<number_integer_t>(u));
  }
  bool number_float(number_float_t f, const string_t& raw) override {
    if (raw.find_first_of(".eE") == std::string::npos) return large_integer();   // the lexer's fallback for integers that do not fit
    JsonValue v = make(JsonKind::kFloat, number_span());
    v.number = f;
    const size_t exponent = raw.find_first_of("eE");
    if (f == 0 && raw.substr(0, exponent).find_first_of("123456789") != std::string::npos)   // not even a double has it
      report_.warn(DiagCode::kBadNumber, v.span, fmt::format("float32 has no {}: kernels take 0 in its place", raw.substr(0, 40)));
    return add(std::move(v));
  }
  bool string(string_t& s) override {
    JsonValue v = make(JsonKind::kString, string_span());
    v.plain = v.span.length == s.size() + 2;
    v.text = std::move(s);
    return add(std::move(v));
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(JsonKind::kObject); }
  bool start_array(std::size_t) override { return open(JsonKind::kArray); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& k) override {
    key_ = std::move(k);
    key_span_ = string_span();
    return true;
  }
  bool parse_error(std::size_t position, const std::string& last_token, const nlohmann::detail::exception& e) override {
    std::string text = e.what();
    if (e.id == 406) {   // a float literal beyond double
      report_.error(DiagCode::kBadNumber, number_span(), "the number is out of the range of double precision");
      return false;
    }
    if (size_t at = text.find(": "); at != std::string::npos) text.erase(0, at + 2);
    if (size_t at = text.find("; last read: '"); at != std::string::npos) {
      size_t tail = text.rfind("'; expected");
      text.erase(at, tail == std::string::npos || tail < at ? std::string::npos : tail + 1 - at);
    }
    size_t end = std::min(position, text_.size());
    Span where{end > 0 ? end - 1 : 0, 1};
    if (position > text_.size()) where.offset = text_.size();
    bool whole_token = text.find("unexpected") != std::string::npos;   // else the lexer names the very byte
    if (whole_token && !last_token.empty() && last_token.size() <= end &&
        text_.substr(end - last_token.size(), last_token.size()) == last_token) {
      where = {end - last_token.size(), last_token.size()};
    }
    std::vector<Note> notes;
    if (text_.substr(where.offset).starts_with("//") || text_.substr(where.offset).starts_with("/*"))
      notes.push_back({{}, "JSON has no comments; a key that begins with x- can hold one"});
    if (text_.substr(where.offset).starts_with("'")) notes.push_back({{}, "JSON strings stand in double quotes"});
    report_.error(DiagCode::kSyntax, where, text, std::move(notes));
    return false;
  }

 private:
  struct Frame { JsonValue* value; std::set<std::string> keys; };

  JsonValue make(JsonKind kind, Span span) const {
    JsonValue v;
    v.kind = kind;
    v.span = span;
    return v;
  }
  Span literal_span(size_t length) const { return {*consumed_ >= length ? *consumed_ - length : 0, length}; }
  /// Behind a number the lexer has read one character too many, unless the text ended.
  Span number_span() const {
    size_t end = *consumed_;
    if (end > 0 && !is_number_char(text_[end - 1])) --end;
    size_t begin = end;
    while (begin > 0 && is_number_char(text_[begin - 1])) --begin;
    return {begin, std::max<size_t>(1, end - begin)};
  }
  /// The lexer stands behind the closing quote; the opening one is the last quote before it with an even number of backslashes in front.
  Span string_span() const {
    size_t end = *consumed_, at = end - 1;
    while (at > 0) {
      --at;
      if (text_[at] != '"') continue;
      size_t slashes = 0;
      while (slashes < at && text_[at - 1 - slashes] == '\\') ++slashes;
      if (slashes % 2 == 0) break;
    }
    return {at, end - at};
  }
  bool large_integer() {
    Span where = number_span();
    report_.error(DiagCode::kBadNumber, where, "the integer does not fit into 64 bits");
    JsonValue v = make(JsonKind::kInt, where);
    v.integer = 1;
    v.number = 1;
    return add(std::move(v));
  }
  bool count_value(Span where) {
    if (++values_ <= kMaxValues) return true;
    report_.error(DiagCode::kLimit, where, fmt::format("more than {} JSON values", kMaxValues));
    return false;
  }
  JsonValue* place(JsonValue&& v) {
    if (stack_.empty()) {
      root_ = std::move(v);
      return &root_;
    }
    Frame& top = stack_.back();
    if (top.value->kind == JsonKind::kArray) {
      top.value->items.push_back(std::move(v));
      return &top.value->items.back();
    }
    if (!top.keys.insert(key_).second) {
      const JsonMember* first = report_.full() ? nullptr : top.value->find(key_);
      std::vector<Note> notes;
      if (first) notes.push_back(report_.note(first->key_span, "the first is here"));
      report_.error(DiagCode::kDuplicateKey, key_span_, fmt::format("the key '{}' stands twice in this object", key_), std::move(notes));
      shadows_.push_back(std::make_unique<JsonValue>(std::move(v)));   // read on, but keep the first
      return shadows_.back().get();
    }
    top.value->members.push_back({std::move(key_), key_span_, std::move(v)});
    return &top.value->members.back().value;
  }
  bool add(JsonValue&& v) {
    if (!count_value(v.span)) return false;
    place(std::move(v));
    return true;
  }
  bool open(JsonKind kind) {
    Span where{*consumed_ > 0 ? *consumed_ - 1 : 0, 1};
    if (static_cast<int>(stack_.size()) >= kMaxDepth) {
      report_.error(DiagCode::kLimit, where, fmt::format("nesting is deeper than {}", kMaxDepth));
      return false;
    }
    if (!count_value(where)) return false;
    JsonValue* v = place(make(kind, where));
    stack_.push_back({v, {}});
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  std::string_view text_;
  const size_t* consumed_;
  Report& report_;
  JsonValue root_;
  std::vector<std::unique_ptr<JsonValue>> shadows_;   // values of duplicate keys: the parser still fills them
  std::vector<Frame> stack_;
  std::string key_;
  Span key_span_;
  size_t values_ = 0;
};

}  // namespace

const char* kind_name(JsonKind kind) {
  switch (kind) {
    case JsonKind::kNull: return "null";
    case JsonKind::kBool: return "a boolean";
    case JsonKind::kInt: return "an integer";
    case JsonKind::kFloat: return "a number";
    case JsonKind::kString: return "a string";
    case JsonKind::kArray: return "a list";
    case JsonKind::kObject: return "an object";
  }
  return "";
}

const JsonMember* JsonValue::find(std::string_view key) const {
  for (const JsonMember& m : members) {
    if (m.key == key) return &m;
  }
  return nullptr;
}

std::optional<size_t> find_bad_utf8(std::string_view s) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  for (size_t i = 0; i < s.size();) {
    unsigned char c = byte(i);
    if (c == 0) return i;
    if (c < 0x80) {
      ++i;
      continue;
    }
    size_t n = c >= 0xC2 && c <= 0xDF ? 1 : (c & 0xF0) == 0xE0 ? 2 : c >= 0xF0 && c <= 0xF4 ? 3 : 0;
    if (n == 0 || i + n >= s.size()) return i;
    unsigned char second = byte(i + 1);
    bool bad = (second & 0xC0) != 0x80 || (c == 0xE0 && second < 0xA0) || (c == 0xED && second > 0x9F) || (c == 0xF0 && second < 0x90) ||
               (c == 0xF4 && second > 0x8F);
    for (size_t k = 2; k <= n; ++k) bad = bad || (byte(i + k) & 0xC0) != 0x80;
    if (bad) return i;
    i += n + 1;
  }
  return std::nullopt;
}

std::optional<JsonValue> read_json(std::string_view text, Report& report) {
  size_t consumed = 0;
  TreeBuilder builder(text, &consumed, report);
  CountingIterator first(text.data(), text.data(), &consumed), last(text.data(), text.data() + text.size(), &consumed);
  if (!Json::sax_parse(first, last, &builder)) return std::nullopt;
  return builder.take();
}

}  // namespace mirage::spec

// Bounded JSON through nlohmann's SAX side; see json_text.h.
#include "mirage/spec/json_text.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <unordered_set>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "mirage/support/file.h"
#include "spec/json/json_cursor.h"

namespace mirage {

namespace {

using OrderedJson = nlohmann::ordered_json;

/// Builds the value from nlohmann's events. Returning false stops the parser, which keeps no stack of its own on the machine's.
class ValueBuilder : public nlohmann::json_sax<OrderedJson> {
 public:
  ValueBuilder(const JsonLimits& limits, const size_t* consumed) : limits_(limits), consumed_(consumed) {}
  OrderedJson take() { return std::move(root_); }
  const std::string& problem() const { return problem_; }
  size_t place() const { return place_; }

  bool null() override { return add(nullptr); }
  bool boolean(bool b) override { return add(b); }
  bool number_integer(number_integer_t i) override { return add(i); }
  bool number_unsigned(number_unsigned_t u) override { return add(u); }
  bool number_float(number_float_t f, const string_t&) override { return add(f); }
  bool string(string_t& s) override { return add(std::move(s)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(OrderedJson::object()); }
  bool start_array(std::size_t) override { return open(OrderedJson::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& k) override {
    if (deep_ > 0) return true;
    Frame& top = stack_.back();
    if (!top.keys.insert(k).second) return stop(fmt::format("the key '{}' stands twice in this object", k));
    top.key = std::move(k);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    std::string text = e.what();
    if (const size_t at = text.find(": "); at != std::string::npos) text.erase(0, at + 2);
    place_ = position > 0 ? position - 1 : 0;
    problem_ = e.id == 406 ? "a number is out of the range of double precision" : text;
    return false;
  }

 private:
  struct Frame { OrderedJson* value; std::unordered_set<std::string> keys; std::string key; };

  bool stop(const std::string& problem) {
    problem_ = problem;
    place_ = *consumed_ > 0 ? *consumed_ - 1 : 0;
    return false;
  }
  /// Behind the last one, whatever its key: ordered_json's own insertion looks through all that are there.
  OrderedJson* place_value(OrderedJson&& v) {
    if (stack_.empty()) {
      root_ = std::move(v);
      return &root_;
    }
    Frame& top = stack_.back();
    if (top.value->is_array()) {
      top.value->push_back(std::move(v));
      return &top.value->back();
    }
    auto& members = top.value->get_ref<OrderedJson::object_t&>();
    using Members = OrderedJson::object_t::Container;
    static_cast<Members&>(members).emplace_back(std::move(top.key), std::move(v));
    return &members.back().second;
  }
  bool count() { return ++values_ <= limits_.values || stop(fmt::format("more than {} JSON values", limits_.values)); }
  bool add(OrderedJson&& v) {
    if (!count()) return false;
    if (deep_ == 0) place_value(std::move(v));
    return true;
  }
  bool open(OrderedJson&& v) {
    if (!count()) return false;
    if (deep_ > 0 || static_cast<int>(stack_.size()) >= limits_.depth) {
      if (!limits_.cut_deep) return stop(fmt::format("nesting is deeper than {}", limits_.depth));
      if (deep_++ == 0) place_value(nullptr);
      return true;
    }
    OrderedJson* here = place_value(std::move(v));
    stack_.push_back({here, {}, {}});
    return true;
  }
  bool close() {
    if (deep_ > 0) deep_--;
    else stack_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  const size_t* consumed_;
  OrderedJson root_;
  std::vector<Frame> stack_;
  std::string problem_;
  size_t place_ = 0;
  int64_t values_ = 0, deep_ = 0;   ///< deep_: arrays and objects that are open below the limit
};

SourceLocation place_in(std::string_view text, size_t offset, const std::string& file) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const size_t line_start = before.rfind('\n');
  return {file, 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n')),
          1 + static_cast<int>(line_start == std::string_view::npos ? before.size() : before.size() - line_start - 1), 1};
}

}  // namespace

Result<OrderedJson> read_json_text(std::string_view text, const std::string& file, DiagCode code, const JsonLimits& limits) {
  if (static_cast<int64_t>(text.size()) > limits.bytes)
    return Diagnostic{Severity::kError, code, {file, 0, 0, 1}, fmt::format("more than {} bytes of JSON", limits.bytes), {}};
  size_t consumed = 0;
  ValueBuilder builder(limits, &consumed);
  spec::CountingIterator first(text.data(), text.data(), &consumed), last(text.data(), text.data() + text.size(), &consumed);
  if (OrderedJson::sax_parse(first, last, &builder)) return builder.take();
  return Diagnostic{Severity::kError, code, place_in(text, builder.place(), file), "not readable as JSON: " + builder.problem(), {}};
}

Result<OrderedJson> read_json_file(const std::string& path, DiagCode code, const JsonLimits& limits) {
  std::error_code error;
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error))
    return Diagnostic{Severity::kError, DiagCode::kFileMissing, {path, 0, 0, 1}, "cannot read the file: it is no regular file", {}};
  const auto text = read_file(path, limits.bytes);
  if (!text) return text.errors();
  return read_json_text(*text, path, code, limits);
}

OrderedJson own_json(const std::string& text) {
  auto j = read_json_text(text, "", DiagCode::kSyntax);
  MIRAGE_ASSERT(j.ok()) << j.errors().front().text;
  return std::move(*j);
}

std::optional<nlohmann::ordered_json> read_own_json(const std::string& text, const std::string& file) {
  auto read = read_json_text(text, file, DiagCode::kBaseline);
  if (!read || !read->is_object()) return std::nullopt;
  return std::move(*read);
}

}  // namespace mirage

#include "mirage/spec/json_text.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace mirage;

namespace {

std::string nested_lists(int depth) { return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']'); }
Diagnostic json_error(const std::string& text, const JsonLimits& limits = {}) {
  const auto r = read_json_text(text, "f", DiagCode::kBaseline, limits);
  REQUIRE_FALSE(r.ok());
  return r.errors().front();
}

}  // namespace

TEST_CASE("bounded JSON keeps values and the order of keys") {
  const std::string text = R"({"b":[1,-2,3.5,18446744073709551615,true,null,"x"],"a":{"d":{},"c":[]}})";
  const auto r = read_json_text(text, "f", DiagCode::kBaseline);
  REQUIRE(r.ok());
  CHECK(r->dump() == text);
  CHECK(*r == nlohmann::ordered_json::parse(text));
}

TEST_CASE("bounded JSON stops at its limits, with the place") {
  CHECK(read_json_text(nested_lists(64), "f", DiagCode::kBaseline).ok());
  const Diagnostic deep = json_error("{\n \"x\": " + nested_lists(100'000) + "}");
  CHECK(deep.text == "not readable as JSON: nesting is deeper than 64");
  CHECK(deep.code == DiagCode::kBaseline);
  CHECK(deep.where.line == 2);
  CHECK(deep.where.col == 7 + 63);
  JsonLimits few;
  few.values = 3;
  CHECK(read_json_text("[1,2]", "f", DiagCode::kBaseline, few).ok());
  CHECK(json_error("[1,2,3]", few).where.col == 7);   // the lexer knows that a number ends when it has seen what is behind it
  few.bytes = 4;
  CHECK(json_error("[1,2]", few).text == "more than 4 bytes of JSON");
}

TEST_CASE("bounded JSON names what is no JSON") {
  CHECK(json_error("{\n\"a\" 1}").where.line == 2);
  CHECK(json_error("").where.line == 1);
  CHECK(json_error("[1,2").where.file == "f");
  CHECK(json_error("[1e999]").text.find("range of double") != std::string::npos);
  CHECK(json_error("{\"a\":1,\"a\":2}").text == "not readable as JSON: the key 'a' stands twice in this object");
  CHECK_FALSE(read_json_text("[\"\xff\"]", "f", DiagCode::kBaseline).ok());
}

TEST_CASE("what is too deep can be left out instead") {
  JsonLimits limits;
  limits.cut_deep = true;
  const auto r = read_json_text("{\"a\":[1],\"deep\":" + nested_lists(100'000) + ",\"b\":2}", "f", DiagCode::kBaseline, limits);
  REQUIRE(r.ok());
  CHECK((*r)["a"].dump() == "[1]");
  CHECK((*r)["b"] == 2);
  const nlohmann::ordered_json* at = &(*r)["deep"];
  int depth = 1;
  for (; at->is_array() && !at->empty(); at = &(*at)[0]) depth++;
  CHECK(at->is_null());
  CHECK(depth == 64);
  JsonLimits shallow = limits;
  shallow.depth = 1;
  const auto cut = read_json_text("{\"a\":{\"k\":1,\"k\":[]},\"b\":[2,[3]],\"c\":4}", "f", DiagCode::kBaseline, shallow);
  REQUIRE(cut.ok());
  CHECK(cut->dump() == "{\"a\":null,\"b\":null,\"c\":4}");
}

TEST_CASE("many keys take no quadratic time") {
  std::string text = "{";
  for (int i = 0; i < 200'000; i++) text += (i ? ",\"" : "\"") + std::to_string(i) + "\":0";
  CHECK(read_json_text(text + "}", "f", DiagCode::kBaseline).ok());
}

// The schema, checked with valijson where it is installed: shipped specs and normal forms pass, specs with wrong keys or kinds do not.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include "helpers.h"
#if __has_include(<valijson/validator.hpp>)
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validator.hpp>
#define MIRAGE_HAS_VALIJSON 1
#endif

using namespace mirage;
using namespace mirage::spec_test;
namespace fs = std::filesystem;

TEST_CASE("the schema and the operator list are JSON that names every operator") {
  auto s = nlohmann::json::parse(schema());
  CHECK(s["$schema"] == "http://json-schema.org/draft-07/schema#");
  auto ops = nlohmann::json::parse(list_ops_json());
  auto names = s["properties"]["nodes"]["items"]["properties"]["op"]["enum"];
  REQUIRE(ops.size() == names.size());
  for (size_t i = 0; i < ops.size(); ++i) {
    CHECK(ops[i]["name"] == names[i]);
    CHECK(list_ops().find(ops[i]["name"].get<std::string>() + "(") != std::string::npos);
  }
}

#ifdef MIRAGE_HAS_VALIJSON
namespace {

bool is_valid(const nlohmann::json& document) {
  static const valijson::Schema* parsed = [] {
    static nlohmann::json text = nlohmann::json::parse(schema());
    auto* s = new valijson::Schema;   // lives as long as the test
    valijson::SchemaParser(valijson::SchemaParser::kDraft7).populateSchema(valijson::adapters::NlohmannJsonAdapter(text), *s);
    return s;
  }();
  return valijson::Validator().validate(*parsed, valijson::adapters::NlohmannJsonAdapter(document), nullptr);
}

nlohmann::json load(const fs::path& p) {
  std::ifstream f(p);
  return nlohmann::json::parse(f);
}

}  // namespace

TEST_CASE("shipped specs and their normal forms satisfy the schema") {
  int n = 0;
  for (const auto& e : fs::directory_iterator(fs::path(MIRAGE_SOURCE_DIR) / "specs")) {
    if (e.path().extension() != ".json") continue;
    INFO(e.path());
    nlohmann::json spec = load(e.path());
    CHECK(is_valid(spec));
    CHECK(is_valid(nlohmann::json::parse(must_parse(spec.dump()).canonical)));
    ++n;
  }
  CHECK(n >= 13);
}

TEST_CASE("what the schema can see wrong, it refuses") {
  fs::path cases = fs::path(MIRAGE_SOURCE_DIR) / "test/reject/cases";
  for (const char* name : {"arity",
                           "arity_outputs",
                           "arity_range",
                           "attribute_gelu",
                           "attribute_kind",
                           "attribute_missing",
                           "attribute_negative_eps",
                           "attribute_typo",
                           "attribute_unknown",
                           "bad_name",
                           "dtype_typo",
                           "limit_name",
                           "limit_rank",
                           "missing_dtype",
                           "missing_nodes",
                           "missing_op",
                           "not_an_object",
                           "number_zero_axis",
                           "unknown_key",
                           "unknown_key_in_node",
                           "unknown_key_in_tensor",
                           "unknown_op",
                           "version_major",
                           "version_number",
                           "wrong_kind_inputs",
                           "wrong_kind_operand",
                           "wrong_kind_shape"}) {
    INFO(name);
    CHECK_FALSE(is_valid(load(cases / (std::string(name) + ".json"))));
  }
}
#endif

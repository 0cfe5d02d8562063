// Wrong specs and what is said about them: every file in cases/ stands beside NAME.expected, the exact text of its diagnostics and its exit
// code. An abort fails. MIRAGE_BLESS=1 writes the expected files anew; the diff is then read by a person.
#include <catch2/catch.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include "mirage/spec/spec.h"

namespace fs = std::filesystem;
using namespace mirage;

namespace {

std::string read_file(const fs::path& p) {
  std::ifstream f(p, std::ios::binary);
  std::stringstream s;
  s << f.rdbuf();
  return s.str();
}

/// The diagnostics as cmd/ prints them, then the exit code of the first error.
std::string outcome(const fs::path& p) {
  Source source{p.filename().string(), read_file(p)};
  auto r = read_family(source);   // read_spec, at every value that an axis has
  if (r.ok()) return "accepted\n";
  std::string s;
  for (const Diagnostic& d : r.errors()) s += render(d, source.text);
  return s + "exit " + std::to_string(static_cast<int>(exit_code_of(r.errors()[0].code))) + "\n";
}

std::vector<fs::path> cases() {
  std::vector<fs::path> list;
  for (const auto& entry : fs::directory_iterator(fs::path(MIRAGE_SOURCE_DIR) / "test/reject/cases")) {
    if (entry.path().extension() != ".expected") list.push_back(entry.path());
  }
  std::sort(list.begin(), list.end());
  return list;
}

}  // namespace

TEST_CASE("malformed specs get the exact diagnostics") {
  REQUIRE(cases().size() >= 40);
  for (const fs::path& p : cases()) {
    fs::path expected = p;
    expected.replace_extension(".expected");
    std::string got = outcome(p);
    if (std::getenv("MIRAGE_BLESS")) std::ofstream(expected, std::ios::binary) << got;
    INFO(p);
    CHECK(got == read_file(expected));
    CHECK(got != "accepted\n");
  }
}

TEST_CASE("limits that are too large for a file in the repository") {
  auto first_error = [](const std::string& text) {
    auto r = read_spec({"big.json", text});
    REQUIRE_FALSE(r.ok());
    return render(r.errors()[0], "");
  };
  CHECK(first_error("{" + std::string(size_t{16} << 20, ' ') + "}") ==
        "big.json:1:1: error: the spec has 16777218 bytes; at most 16777216 are read [E0102]\n");
  CHECK(first_error(std::string(200'000, '[')) == "big.json:1:65: error: nesting is deeper than 64 [E0102]\n");
  std::string nodes = "{\"op\": \"neg\", \"inputs\": [\"x\"], \"output\": \"y\"}";
  std::string many =
      "{\"inputs\": {\"x\": {\"shape\": [1], \"dtype\": \"f32\"}}, \"outputs\": {\"y\": {\"dtype\": \"f32\"}}, \"nodes\": [" + nodes;
  for (int i = 0; i < 4096; ++i) many += ",\n{\"op\": \"neg\", \"inputs\": [\"x\"], \"output\": \"v" + std::to_string(i) + "\"}";
  CHECK(first_error(many + "]}") == "big.json:4097:1: error: 4097 nodes; at most 4096 are allowed [E0102]\n");
  std::string chain =
      "{\"inputs\": {\"x0\": {\"shape\": [4], \"dtype\": \"f32\"}}, \"outputs\": {\"x4000\": {\"dtype\": \"f32\"}}, \"nodes\": [";
  for (int i = 0; i < 4000; ++i)
    chain += (i ? ",\n" : "") + std::string("{\"op\": \"softmax\", \"inputs\": [\"x") + std::to_string(i) + "\"], \"output\": \"x" +
             std::to_string(i + 1) + "\"}";
  CHECK(first_error(chain + "]}") == "big.json:1:92: error: the program has 20000 nodes in primitives; at most 4096 are allowed [E0102]\n");
  std::string values = "{\"x-v\": [0";
  for (int i = 0; i < 1'100'000; ++i) values += ",0";
  CHECK(first_error(values + "]}") == "big.json:1:2000006: error: more than 1000000 JSON values [E0102]\n");
}

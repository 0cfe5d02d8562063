// A deterministic slice of the fuzz targets (test/fuzz): each over its corpus and some changes of every file in it, compiled as the suite
// is. A finding ends the process, with the target and the file named before.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "fuzz/changed.h"
#include "mirage/support/file.h"

using namespace mirage;
using namespace mirage::test;

namespace {

void over_corpus(const std::string& name, FuzzTarget target, uint64_t changes) {
  const auto folder = std::filesystem::path(MIRAGE_SOURCE_DIR) / (name == "onnx" ? "test/data/onnx" : "test/fuzz/corpus_" + name);
  if (std::getenv("MIRAGE_FULL")) changes *= 50;
  std::vector<std::filesystem::path> files;
  for (const auto& e : std::filesystem::directory_iterator(folder)) files.push_back(e.path());
  std::sort(files.begin(), files.end());
  REQUIRE_FALSE(files.empty());
  for (const auto& path : files) {
    const std::string text = *read_file(path.string());
    for (uint64_t k = 0; k <= changes; k++) {
      const std::string now = k ? changed(text, k) : text;
      INFO(path.string() << ", change " << k);
      if (std::getenv("MIRAGE_FUZZ_KEEP"))
        REQUIRE(write_file(std::getenv("MIRAGE_FUZZ_KEEP"), now).empty());  // what is at work when a finding ends the process
      CHECK(target(reinterpret_cast<const uint8_t*>(now.data()), now.size()) == 0);
    }
  }
}

}  // namespace

TEST_CASE("specs in JSON", "[fuzz]") { over_corpus("json", fuzz_one_json, 30); }
TEST_CASE("graphs in text", "[fuzz]") { over_corpus("text", fuzz_one_text, 100); }
TEST_CASE("certificates", "[fuzz]") { over_corpus("certificate", fuzz_one_certificate, 10); }
TEST_CASE("locks and cache entries", "[fuzz]") { over_corpus("reuse", fuzz_one_reuse, 20); }
TEST_CASE("checkpoints", "[fuzz]") { over_corpus("checkpoint", fuzz_one_checkpoint, 20); }
TEST_CASE("baselines", "[fuzz]") { over_corpus("baseline", fuzz_one_baseline, 200); }
TEST_CASE("graphs to be planned", "[fuzz]") { over_corpus("plan", fuzz_one_plan, 10); }
TEST_CASE("pairs to be compared", "[fuzz]") { over_corpus("verify", fuzz_one_verify, 1); }

TEST_CASE("schedules", "[fuzz]") { over_corpus("schedule", fuzz_one_schedule, 20); }
TEST_CASE("ONNX models", "[fuzz]") { over_corpus("onnx", fuzz_one_onnx, 20); }

TEST_CASE("JSON as deep as a file can have it is refused by every reader", "[fuzz][deep]") {
  const auto nested = [](const std::string& before, const std::string& open, const std::string& close, const std::string& after) {
    std::string s = before;
    for (int i = 0; i < 100'000; i++) s += open;
    for (int i = 0; i < 100'000; i++) s += close;
    return s + after;
  };
  const auto ask = [](FuzzTarget target, const std::string& text) {
    return target(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  };
  CHECK(ask(fuzz_one_baseline, nested(R"({"specs":[)", R"({"specs":[)", "]}", "]}")) == 0);
  CHECK(ask(fuzz_one_reuse,
            nested(R"(0{"schema_version":1,"tool":"mirage-opt","decisions":{"zz":{"name":"sm","certificate":)", "[", "]", "}}}")) == 0);
  CHECK(ask(fuzz_one_certificate, nested(R"({"schema_version":1,"claims":)", "[", "]", "}")) == 0);
  CHECK(ask(fuzz_one_json, nested(R"({"version":)", "[", "]", "}")) == 0);
}

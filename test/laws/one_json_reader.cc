// Every JSON text goes through the bounded readers of lib/spec: nlohmann's own parse functions know no limit of depth, and what they return
// is copied and printed recursively.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

namespace fs = std::filesystem;

TEST_CASE("JSON is parsed by the two bounded readers only") {
  const std::regex parse("[Jj]son(::|_?)(parse|accept|sax_parse)\\s*\\(|>>\\s*\\w*json");
  int seen = 0;
  for (const char* root : {"lib", "include", "cmd"})
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(MIRAGE_SOURCE_DIR) / root)) {
      const std::string extension = entry.path().extension().string(), name = entry.path().filename().string();
      if (extension != ".cc" && extension != ".h") continue;
      std::ifstream in(entry.path());
      int number = 0;
      for (std::string line; std::getline(in, line);) {
        number++;
        if (!std::regex_search(line, parse)) continue;
        seen++;
        if (name != "json_tree.cc" && name != "json_text.cc") FAIL_CHECK(entry.path().string() << ":" << number << ": " << line);
      }
    }
  CHECK(seen == 2);
  CHECK(std::regex_search("const Json j = Json::parse(text);", parse));
  CHECK(std::regex_search("nlohmann::json::parse(text, nullptr, false)", parse));
}

// The include table of docs/architecture.md against every #include "..." of the repository: an arrow that is not in the table is named with
// its line.
#include <catch2/catch.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

using Table = std::map<std::string, std::set<std::string>>;

std::string trimmed(std::string s) {
  const auto begin = s.find_first_not_of(" `");
  if (begin == std::string::npos) return "";
  return s.substr(begin, s.find_last_not_of(" `") - begin + 1);
}

std::vector<std::string> split(const std::string& s, char by) {
  std::vector<std::string> out;
  std::stringstream in(s);
  for (std::string part; std::getline(in, part, by);) out.push_back(trimmed(part));
  return out;
}

/// The rows between "| directory | may include |" and the next empty line of docs/architecture.md.
Table read_table() {
  std::ifstream in(std::string(MIRAGE_SOURCE_DIR) + "/docs/architecture.md");
  Table table;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("| directory | may include |")) inside = true;
    else if (inside && line.empty()) break;
    else if (inside && !line.starts_with("|---")) {
      const auto cells = split(line, '|');
      if (cells.size() < 3) continue;
      std::set<std::string> allowed = {cells[1], "support"};
      for (const std::string& d : split(cells[2], ','))
        if (!d.empty() && d[0] != '(') allowed.insert(d);
      table[cells[1]] = allowed;
    }
  }
  if (auto all = table.find("driver"); all != table.end() && all->second.contains("all"))
    for (const auto& [name, allowed] : table)
      if (name != "cmd") all->second.insert(name);
  return table;
}

/// The directory that a path below the repository belongs to: lib/ir/x.cc, include/mirage/ir/x.h -> ir; cmd/... -> cmd.
std::string directory_of(const std::string& path) {
  const auto parts = split(path, '/');
  if (parts.size() >= 3 && parts[0] == "lib") return parts[1];
  if (parts.size() >= 4 && parts[0] == "include" && parts[1] == "mirage") return parts[2];
  if (parts.size() >= 2 && parts[0] == "cmd") return "cmd";
  return "";
}

/// The directory that an include names: "mirage/ir/graph.h" and "ir/private.h" -> ir; "x.h" -> the file's own.
std::string included_directory(const std::string& include, const std::string& own) {
  const auto parts = split(include, '/');
  if (parts.size() >= 3 && parts[0] == "mirage") return parts[1];
  return parts.size() == 1 ? own : parts[0];
}

struct Arrow { std::string where, from, to, line; bool is_private_header = false; };

std::vector<Arrow> arrows_of(const std::string& text, const std::string& path) {
  std::vector<Arrow> out;
  std::stringstream in(text);
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    number++;
    const auto hash = line.find_first_not_of(" \t");
    if (hash == std::string::npos || line.compare(hash, 8, "#include") != 0) continue;
    const auto open = line.find('"'), close = line.rfind('"');
    if (open == std::string::npos || close == open) continue;
    const std::string name = line.substr(open + 1, close - open - 1), from = directory_of(path);
    out.push_back({path + ":" + std::to_string(number), from, included_directory(name, from), trimmed(line), !name.starts_with("mirage/")});
  }
  return out;
}

std::vector<std::string> offences(const std::vector<Arrow>& arrows, const Table& table) {
  std::vector<std::string> out;
  for (const Arrow& a : arrows) {
    auto row = table.find(a.from);
    if (row == table.end()) out.push_back(a.where + ": directory '" + a.from + "' has no row in docs/architecture.md");
    else if (!row->second.contains(a.to)) out.push_back(a.where + ": " + a.from + " may not include " + a.to + ": " + a.line);
    else if (a.is_private_header && a.from != a.to) out.push_back(a.where + ": a private header of " + a.to + ": " + a.line);
  }
  return out;
}

}  // namespace

TEST_CASE("includes follow the table of docs/architecture.md") {
  const Table table = read_table();
  REQUIRE(table.size() >= 10);
  std::vector<Arrow> arrows;
  for (const char* root : {"lib", "include", "cmd"})
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(MIRAGE_SOURCE_DIR) / root)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".cc" && extension != ".h" && extension != ".def") continue;
      std::ifstream in(entry.path());
      std::stringstream text;
      text << in.rdbuf();
      const auto more = arrows_of(text.str(), fs::relative(entry.path(), MIRAGE_SOURCE_DIR).string());
      arrows.insert(arrows.end(), more.begin(), more.end());
    }
  CHECK(arrows.size() > 100);
  for (const std::string& o : offences(arrows, table)) FAIL_CHECK(o);
}

TEST_CASE("the include test itself names an offending line") {
  const Table table = read_table();
  auto of = [&](const std::string& text, const std::string& path) { return offences(arrows_of(text, path), table); };
  CHECK(of("#include \"mirage/ir/graph.h\"\n#include <vector>\n", "lib/search/x.cc").empty());
  CHECK(of("\n#include \"mirage/verify/verify.h\"\n", "lib/search/x.cc") ==
        std::vector<std::string>{"lib/search/x.cc:2: search may not include verify: #include \"mirage/verify/verify.h\""});
  CHECK(of("#include \"driver/report/report.h\"\n", "cmd/mirage-opt/x.cc").size() == 1);
  CHECK(of("#include \"mirage/ir/graph.h\"\n", "cmd/mirage-opt/x.cc").size() == 1);
  CHECK(of("#include \"mirage/ir/graph.h\"\n", "lib/nowhere/x.cc").size() == 1);
}

TEST_CASE("CMake links what the table says") {
  const Table table = read_table();
  std::ifstream in(std::string(MIRAGE_SOURCE_DIR) + "/CMakeLists.txt");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("mirage_library(")) continue;
    std::stringstream words(line.substr(15, line.find(')') - 15));
    std::string dir;
    words >> dir;
    REQUIRE(table.contains(dir));
    for (std::string word; words >> word;)
      if (word.starts_with("mirage_")) {
        INFO(line);
        CHECK(table.at(dir).contains(word.substr(7)));
      }
  }
}

TEST_CASE("what is kept at the top level is what docs/architecture.md lists", "[laws]") {
  const std::string command = "git -C '" + std::string(MIRAGE_SOURCE_DIR) + "' ls-files 2>/dev/null";
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::set<std::string> top;
  std::string line;
  for (int c; (c = std::fgetc(pipe)) != EOF;) {
    if (c != '\n') line += static_cast<char>(c);
    else top.insert(line.substr(0, line.find('/'))), line.clear();
  }
  if (pclose(pipe) != 0 || top.empty()) {
    WARN("SKIPPED: these sources are not in a git repository");
    return;
  }
  const std::set<std::string> known = {"CMakeLists.txt", "LICENSE", "README.md", "cmake", "cmd", "docs",
                                       "include",        "lib",     "specs",     "test",  ".ci"};
  for (const std::string& name : top) {
    INFO(name);
    CHECK((known.contains(name) || (name.starts_with(".") && name.size() > 1)));
  }
  for (const std::string& name : known) {
    INFO(name);
    CHECK(top.contains(name));
  }
}

// Every spec of specs/ through the whole compiler, against what it gave last time: the graph found, the funnel, and the emitted text
// without the device library. The diff in review is the replay test; 'cmd/dev bless' (MIRAGE_BLESS=1) renews the files, and a person reads
// the diff.
#include <catch2/catch.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <sstream>
#include <utility>
#include "mirage/codegen/module.h"
#include "mirage/driver/compile.h"

using namespace mirage;
namespace fs = std::filesystem;

namespace {

std::string read(const fs::path& p) {
  std::ifstream f(p, std::ios::binary);
  std::stringstream s;
  s << f.rdbuf();
  return s.str();
}

std::vector<fs::path> specs() {
  std::vector<fs::path> out;
  for (const auto& e : fs::directory_iterator(fs::path(MIRAGE_SOURCE_DIR) / "specs"))
    if (e.path().extension() == ".json") out.push_back(e.path());
  std::sort(out.begin(), out.end());
  return out;
}

/// Units of effort after which the winner's structure was found, and of the whole search; nullopt if what won is no structure of the whole
/// program.
std::optional<std::pair<int64_t, int64_t>> found_after(const std::string& explanation) {
  std::smatch m;
  if (!std::regex_search(explanation, m, std::regex("the winner's structure after .* states \\((\\d+) of (\\d+) units of effort\\)")))
    return std::nullopt;
  return std::pair(std::stoll(m[1]), std::stoll(m[2]));
}

/// The emitted text without the device library, which has tests of its own and would hide what changed.
std::string without_runtime(std::string cu) {
  const std::string begin = "// ======== device library ========\n", end = "\n// ======== kernels ========\n";
  const size_t from = cu.find(begin), to = cu.find(end);
  if (from == std::string::npos || to == std::string::npos) return cu;
  const std::string library = cu.substr(from + begin.size(), to - from - begin.size());
  const bool ordered = library.starts_with("#define MO_ORDERED_LOADS\n");
  return cu.replace(from + begin.size(), library.size(),
                    std::string(ordered ? "#define MO_ORDERED_LOADS\n" : "") + "// (device library)\n");
}

/// The first line that differs, for the message.
std::string first_difference(const std::string& a, const std::string& b) {
  std::istringstream x(a), y(b);
  std::string p, q;
  for (int line = 1;; line++) {
    const bool has_p = static_cast<bool>(std::getline(x, p)), has_q = static_cast<bool>(std::getline(y, q));
    if (!has_p && !has_q) return "";
    if (has_p != has_q || p != q)
      return "line " + std::to_string(line) + "\n  was: " + (has_q ? q : "(end)") + "\n  is:  " + (has_p ? p : "(end)");
  }
}

}  // namespace

TEST_CASE("specs give what they gave") {
  REQUIRE(specs().size() >= 10);
  int searched = 0;
  const bool is_blessing = std::getenv("MIRAGE_BLESS") != nullptr;
  for (const fs::path& spec : specs()) {
    Options o;
    o.emit = {"cu", "graph"};
    o.jobs = is_blessing ? 1 : 3;   // one thread wrote them, three give the same
    Trace trace;
    const CompileResult r = compile(o, {"specs/" + spec.filename().string(), read(spec)}, trace);
    INFO(spec.filename());
    REQUIRE(r.exit == ExitCode::kOk);
    // good results come early: within a quarter of the effort, or 60 000 units (0.03 s)
    if (const auto after = found_after(r.explanation)) {
      searched++;
      CHECK((after->first <= 60'000 || 4 * after->first <= after->second));
    }
    const std::string name = spec.stem().string();
    const std::map<std::string, std::string> products = {{name + ".graph", r.files.at(r.name + ".graph")},
                                                         {name + ".funnel", r.summary + "\n" + r.explanation},
                                                         {name + ".kernels.cu", without_runtime(r.files.at(r.name + ".cu"))}};
    for (const auto& [file, text] : products) {
      const fs::path golden = fs::path(MIRAGE_SOURCE_DIR) / "test/golden" / file;
      if (is_blessing) std::ofstream(golden, std::ios::binary) << text;
      const std::string difference = first_difference(text, read(golden));   // both texts would fill the screen
      INFO(file << ": 'cmd/dev bless' renews it if the change was meant; " << difference);
      CHECK(difference.empty());
    }
  }
  CHECK(searched >= 25);
}

TEST_CASE("every golden file belongs to a spec") {
  for (const auto& e : fs::directory_iterator(fs::path(MIRAGE_SOURCE_DIR) / "test/golden")) {
    if (e.path().extension() == ".cc" || e.path().extension() == ".hashes" || e.is_directory()) continue;   // texts.cc has these
    const std::string stem = e.path().stem().stem().string();
    INFO(e.path());
    CHECK(fs::exists(fs::path(MIRAGE_SOURCE_DIR) / "specs" / (stem + ".json")));
  }
}

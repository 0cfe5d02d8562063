// The list of programs in test/generality was fixed before anything was tuned on it. It must stay what the seeded script draws, and every
// program of it must be a spec.
#include <cstdlib>
#include <filesystem>

#include <catch2/catch.hpp>

#include "mirage/spec/spec.h"
#include "mirage/support/file.h"

using namespace mirage;
namespace fs = std::filesystem;

namespace {

const fs::path kFolder = fs::path(MIRAGE_SOURCE_DIR) / "test/generality";

std::vector<fs::path> specs_in(const fs::path& folder) {
  std::vector<fs::path> out;
  for (const auto& e : fs::directory_iterator(folder))
    if (e.path().extension() == ".json") out.push_back(e.path());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

TEST_CASE("twenty-four programs, six of each class, all of them specs") {
  const auto specs = specs_in(kFolder);
  CHECK(specs.size() == 24);
  for (const fs::path& p : specs) {
    INFO(p);
    const auto text = read_file(p.string());
    REQUIRE(text);
    const auto parsed = read_spec({p.string(), *text});
    REQUIRE(parsed);
    CHECK(parsed->warnings.empty());
    CHECK(parsed->program.name == p.stem().string());
  }
}

TEST_CASE("the list is what the seed draws") {
  if (std::system("python3 -c '' 2>/dev/null") != 0) {
    WARN("SKIPPED: there is no python3");
    return;
  }
  const fs::path again = fs::path(MIRAGE_BINARY_DIR) / "generality_again";
  fs::remove_all(again);
  REQUIRE(std::system(("python3 '" + (kFolder / "make.py").string() + "' 20251121 '" + again.string() + "'").c_str()) == 0);
  const auto specs = specs_in(kFolder), drawn = specs_in(again);
  REQUIRE(specs.size() == drawn.size());
  for (size_t i = 0; i < specs.size(); i++) {
    INFO(specs[i]);
    CHECK(*read_file(specs[i].string()) == *read_file(drawn[i].string()));
  }
}

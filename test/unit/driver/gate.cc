// Where compiled emulations are kept (driver/gate.h): what is loaded from there runs as us.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <unistd.h>

#include "driver/gate.h"

using namespace mirage;
namespace fs = std::filesystem;

namespace {

/// Environment variables for the time of a test.
class Environment {
 public:
  void set(const std::string& name, const std::string& value) {
    const char* before = std::getenv(name.c_str());
    before_.emplace(name, before ? std::string(before) : "");
    setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() { for (const auto& [name, value] : before_) value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1); }
 private:
  std::map<std::string, std::string> before_;
};

}  // namespace

TEST_CASE("a folder among temporary files that others may write is not used") {
  std::string pattern = (fs::temp_directory_path() / "mirage_gate_XXXXXX").string();
  REQUIRE(mkdtemp(pattern.data()) != nullptr);
  {
    Environment e;
    for (const char* name : {"MIRAGE_CACHE", "XDG_CACHE_HOME", "HOME"}) e.set(name, "");
    e.set("TMPDIR", pattern);
    const std::string own = pattern + "/mirage-opt-" + std::to_string(getuid());
    CHECK(emulation_cache() == own);
    CHECK((fs::status(own).permissions() & fs::perms::all) == fs::perms::owner_all);
    fs::permissions(own, fs::perms::all);   // as somebody who was here first would leave it
    CHECK(emulation_cache().empty());
    fs::remove(own);
    fs::create_directory(pattern + "/elsewhere");
    fs::create_directory_symlink(pattern + "/elsewhere", own);
    CHECK(emulation_cache().empty());
  }
  fs::remove_all(pattern);
}

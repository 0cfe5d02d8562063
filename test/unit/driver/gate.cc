// Where compiled emulations are kept (driver/gate/gate.h): what is loaded from there runs as us.
#include <catch2/catch.hpp>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <unistd.h>

#include <fmt/format.h>

#include "driver/emulation/emulation_library.h"
#include "driver/gate/gate.h"
#include "mirage/spec/spec.h"

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
  ~Environment() {
    for (const auto& [name, value] : before_) value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
  }

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

TEST_CASE("in a cache that others may write each has a folder of their own") {
  std::string pattern = (fs::temp_directory_path() / "mirage_gate_XXXXXX").string();
  REQUIRE(mkdtemp(pattern.data()) != nullptr);
  {
    Environment e;
    e.set("MIRAGE_CACHE", pattern + "/mc/");
    CHECK(emulation_cache() == pattern + "/mc");
    CHECK((fs::status(pattern + "/mc").permissions() & fs::perms::all) == fs::perms::owner_all);
    fs::permissions(pattern + "/mc", fs::perms::all);
    const std::string own = pattern + "/mc/mirage-opt-" + std::to_string(getuid());
    CHECK(emulation_cache() == own);
    CHECK((fs::status(own).permissions() & fs::perms::all) == fs::perms::owner_all);
    fs::create_directory_symlink(pattern + "/mc", pattern + "/link");
    fs::permissions(pattern + "/mc", fs::perms::owner_all);
    e.set("MIRAGE_CACHE", pattern + "/link");
    CHECK(emulation_cache() == fs::canonical(pattern + "/mc").string());
  }
  fs::remove_all(pattern);
}

TEST_CASE("only libraries of emulations are pruned") {
  std::string pattern = (fs::temp_directory_path() / "mirage_gate_XXXXXX").string();
  REQUIRE(mkdtemp(pattern.data()) != nullptr);
  const auto make = [&](const std::string& name) { std::ofstream(pattern + "/" + name) << "x"; };
  for (int i = 0; i < 140; i++) make("libuser" + std::to_string(i) + ".so"), make(fmt::format("emulation-{:016x}.so", i));
  make("emulation-notes.so"), make("emulation-0000000000000001.77.cc"), make("emulation-0000000000000002.77.cc");
  fs::last_write_time(pattern + "/emulation-0000000000000002.77.cc", fs::file_time_type::clock::now() - std::chrono::hours(48));
  prune_libraries(pattern);
  int users = 0, ours = 0;
  for (const auto& f : fs::directory_iterator(pattern))
    users += f.path().filename().string().starts_with("libuser"), ours += f.path().filename().string().ends_with(".so");
  CHECK(users == 140);
  CHECK(ours == 140 + 128 + 1);
  CHECK(fs::exists(pattern + "/emulation-0000000000000001.77.cc"));
  CHECK_FALSE(fs::exists(pattern + "/emulation-0000000000000002.77.cc"));
  fs::remove_all(pattern);
}

TEST_CASE("a shape is not emulated where its values, and who touched each byte of them, take too much memory") {
  const Target target = *find_target("sm_90a");
  const auto why = [&](int64_t rows, const char* dtype) {
    const std::string t = fmt::format(R"({{"shape": [{}, 4096], "dtype": "{}"}})", rows, dtype);
    auto p = parse_spec(
        {"t.json",
         fmt::format(
             R"({{"name": "t", "inputs": {{"x": {0}}}, "outputs": {{"y": {0}}}, "nodes": [{{"op": "tanh", "inputs": ["x"], )"
             R"("output": "y"}}]}})",
             t)});
    REQUIRE(p);
    return too_large_to_emulate(*p, *make_plan(*p, p->graph, target).plan);
  };
  CHECK(why(3000, "float16").empty());
  // 12 million elements: 0.3 GB of values each, 1.0 of who touched a byte
  CHECK(why(3000, "float32").rfind("it takes too much memory", 0) == 0);
}

// Files: whole or not at all, foreign ones left alone, failures with the system's reason.
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <unistd.h>
#include "mirage/support/file.h"

using namespace mirage;
namespace fs = std::filesystem;

namespace {
struct TempFolder {
  std::string path;
  TempFolder() {
    std::string pattern = (fs::temp_directory_path() / "mirage-test.XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()));
    path = pattern;
  }
  ~TempFolder() { fs::remove_all(path); }
};
std::string contents(const std::string& path) { return read_file(path).value(); }
size_t entries(const std::string& path) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(path), fs::directory_iterator()));
}
}  // namespace

TEST_CASE("a folder receives its files on commit and leaves foreign ones alone") {
  TempFolder temp;
  const std::string dir = temp.path + "/a/b";
  fs::create_directories(dir);
  std::ofstream(dir + "/mine.txt") << "mine";
  std::ofstream(dir + "/x.cu") << "old";
  std::ofstream(dir + "/libx.so") << "stale";
  {
    auto out = OutputFolder::open(dir);
    REQUIRE(out.ok());
    CHECK(out->write("x.cu", "new").empty());
    CHECK(contents(dir + "/x.cu") == "old");
  }   // not committed: as it was
  CHECK(contents(dir + "/x.cu") == "old");
  CHECK(entries(dir) == 3);
  auto out = OutputFolder::open(dir);
  REQUIRE(out.ok());
  CHECK(out->write("x.cu", "new").empty());
  std::ofstream(out->staging() + "/made_by_a_tool") << "t";
  std::ofstream(out->staging() + "/rubbish") << "r";
  out->keep("made_by_a_tool");
  out->remove_on_commit("libx.so");
  out->remove_on_commit("x.cu");   // written as well: stays
  CHECK(out->commit().empty());
  CHECK(contents(dir + "/x.cu") == "new");
  CHECK(contents(dir + "/mine.txt") == "mine");
  CHECK(contents(dir + "/made_by_a_tool") == "t");
  CHECK(entries(dir) == 3);
}

TEST_CASE("files of one commit have one time, so that make builds no library again") {
  const TempFolder temp;
  auto out = OutputFolder::open(temp.path);
  REQUIRE(out.ok());
  REQUIRE(out->write("libf.so", "first").empty());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  REQUIRE(out->write("f.cu", "later").empty());
  REQUIRE(out->write("certificate.json", "{}").empty());
  REQUIRE(out->commit("certificate.json").empty());
  CHECK(fs::last_write_time(temp.path + "/libf.so") == fs::last_write_time(temp.path + "/f.cu"));
}

TEST_CASE("what cannot be written says why and exits with 11") {
  TempFolder temp;
  std::ofstream(temp.path + "/file") << "x";
  auto open = OutputFolder::open(temp.path + "/file/below");
  REQUIRE(!open.ok());
  CHECK(exit_code_of(open.errors()[0].code) == ExitCode::kIo);
  CHECK(!OutputFolder::open(temp.path + "/file").ok());
  auto out = OutputFolder::open(temp.path);
  REQUIRE(out.ok());
  fs::create_directory(temp.path + "/x.cu");
  CHECK(out->write("a.txt", "a").empty());
  CHECK(out->write("x.cu", "text").empty());
  CHECK(out->commit().size() == 1);
  CHECK(!fs::exists(temp.path + "/a.txt"));
}

TEST_CASE("a full disk is noticed") {
  if (::access("/dev/full", W_OK) != 0) return;
  const Diagnostics d = write_file("/dev/full", "text");
  REQUIRE(d.size() == 1);
  CHECK(d[0].text.find("No space left") != std::string::npos);
}

TEST_CASE("single files are replaced whole, and read within a limit") {
  TempFolder temp;
  const std::string path = temp.path + "/f";
  CHECK(write_file(path, "one").empty());
  CHECK(write_file(path, "two").empty());
  CHECK(contents(path) == "two");
  CHECK(entries(temp.path) == 1);
  CHECK(write_file(temp.path, "x").size() == 1);
  CHECK(write_file(temp.path + "/no/such", "x").size() == 1);
  CHECK(!read_file(path, 2).ok());
  CHECK(read_file(path, 3).ok());
  CHECK(exit_code_of(read_file(temp.path + "/none").errors()[0].code) == ExitCode::kIo);
  CHECK(!read_file(temp.path).ok());
}

TEST_CASE("what others have put beside a file is not written to") {
  TempFolder temp;
  std::ofstream(temp.path + "/victim") << "theirs";
  const std::string path = temp.path + "/lock";
  fs::create_symlink(temp.path + "/victim", path + ".tmp" + std::to_string(::getpid()));   // the name that could be guessed
  CHECK(write_file(path, "ours").empty());
  CHECK(contents(path) == "ours");
  CHECK(contents(temp.path + "/victim") == "theirs");
  CHECK(entries(temp.path) == 3);
  fs::create_symlink(temp.path + "/victim", temp.path + "/linked");
  CHECK(write_file(temp.path + "/linked", "ours").empty());   // a link in the place of the file is replaced, not followed
  CHECK(contents(temp.path + "/victim") == "theirs");
}

// --checkpoint: written whole, read back by the run that it belongs to, refused by any other and when damaged.
#include "driver/evidence/checkpoint.h"
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <unistd.h>
#include "mirage/support/file.h"

using namespace mirage;

namespace {

struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("mirage_checkpoint_" + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& name) const { return (path / name).string(); }
};

DiagCode code_of(const Result<Checkpoint>& r) { return r ? DiagCode::kUsage : r.errors()[0].code; }

}  // namespace

TEST_CASE("checkpoint: what was told comes back") {
  Folder f;
  const std::string path = f.file("a");
  auto first = Checkpoint::open(path, "run 1");
  REQUIRE(first);
  SearchOptions o;
  first->connect(o);
  CHECK_FALSE(o.remembered("step"));
  o.remember("step", "0 1 2");
  o.remember("another", "3");
  CHECK(first->write().empty());
  auto again = Checkpoint::open(path, "run 1");
  REQUIRE(again);
  SearchOptions p;
  again->connect(p);
  CHECK(p.remembered("step") == std::optional<std::string>("0 1 2"));
  CHECK(p.remembered("another") == std::optional<std::string>("3"));
  CHECK_FALSE(p.remembered("st"));
}

TEST_CASE("checkpoint: a run with nothing to keep leaves a file that no other run takes for its own") {
  Folder f;
  auto first = Checkpoint::open(f.file("a"), "run 1");
  REQUIRE(first);
  REQUIRE(first->write().empty());
  CHECK(Checkpoint::open(f.file("a"), "run 1"));
  CHECK(code_of(Checkpoint::open(f.file("a"), "run 2")) == DiagCode::kCheckpoint);
}

TEST_CASE("checkpoint: of another run, damaged, or no checkpoint at all") {
  Folder f;
  const std::string path = f.file("a");
  auto first = Checkpoint::open(path, "run 1");
  REQUIRE(first);
  SearchOptions o;
  first->connect(o);
  o.remember("step", "0 1 2");
  REQUIRE(first->write().empty());
  CHECK(code_of(Checkpoint::open(path, "run 2")) == DiagCode::kCheckpoint);
  const std::string whole = *read_file(path);
  for (size_t length : {whole.size() - 1, whole.size() / 2, size_t{30}, size_t{0}}) {   // cut anywhere
    REQUIRE(write_file(path, whole.substr(0, length)).empty());
    CHECK(code_of(Checkpoint::open(path, "run 1")) == DiagCode::kCheckpoint);
  }
  for (size_t at = 0; at < whole.size(); at += 3) {   // one byte changed
    std::string changed = whole;
    changed[at] ^= 1;
    REQUIRE(write_file(path, changed).empty());
    CHECK(code_of(Checkpoint::open(path, "run 1")) == DiagCode::kCheckpoint);
  }
  REQUIRE(write_file(path, "something else\n").empty());
  CHECK(code_of(Checkpoint::open(path, "run 1")) == DiagCode::kCheckpoint);
}

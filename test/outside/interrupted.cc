// The search and the world: an interrupt keeps the best so far, and a run that was killed goes on from its checkpoint to the same files
// (docs/search.md).
#include <catch2/catch.hpp>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mirage/support/file.h"

namespace fs = std::filesystem;
using namespace mirage;

namespace {

struct Folder {
  std::string path;
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "mirage-interrupted.XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()));
    path = pattern;
  }
  ~Folder() { std::error_code ignored; fs::remove_all(path, ignored); }
};

pid_t start(std::vector<std::string> words) {
  words.insert(words.begin(), {std::string(MIRAGE_BINARY_DIR) + "/mirage-opt",
                               std::string(MIRAGE_SOURCE_DIR) + "/specs/layer_norm_linear.json", "-q", "--emit=cu,graph,certificate"});
  const pid_t pid = fork();
  if (pid != 0) return pid;
  const int null = ::open("/dev/null", O_RDWR);
  dup2(null, 0), dup2(null, 1), dup2(null, 2);
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(126);
}

/// Exit code, or 128 + signal; with a status that does not wait, -1 while it runs.
int finish(pid_t pid, int how = 0) {
  int status = 0;
  const pid_t ended = waitpid(pid, &status, how);
  if (ended == 0) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> out;
  for (const auto& e : fs::directory_iterator(folder)) out[e.path().filename().string()] = read_file(e.path().string()).value();
  return out;
}

void wait_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

}  // namespace

TEST_CASE("an interrupt ends a long search with the best so far") {
  Folder t;
  bool is_fused = false;
  for (int ms = 1000; ms <= 64'000 && !is_fused; ms *= 2) {   // how far it is then depends on the machine; the search itself takes minutes
    const pid_t pid = start({"--no-dominance", "--no-merge", "--states=2000000000", "--gate=none", "-o", t.path + "/out"});
    wait_ms(ms);
    kill(pid, SIGINT);
    REQUIRE(finish(pid) == 130);
    const auto files = contents(t.path + "/out");
    REQUIRE(files.count("layer_norm_linear.graph"));
    CHECK(files.count("layer_norm_linear.cu"));
    is_fused = files.at("layer_norm_linear.graph").find(" = call ") != std::string::npos;   // not only the straightforward program
  }
  CHECK(is_fused);
}

TEST_CASE("a search that is killed goes on from its checkpoint: the same files as without") {
  Folder t;
  REQUIRE(finish(start({"--no-dominance", "--states=3000000", "-o", t.path + "/whole"})) == 0);
  const std::string checkpoint = t.path + "/c";
  int killed = 0;
  for (int k = 0; k < 3; k++) {
    const auto before = fs::exists(checkpoint) ? fs::file_size(checkpoint) : 0;
    const pid_t pid = start({"--no-dominance", "--states=3000000", "--checkpoint=" + checkpoint, "-o", t.path + "/out"});
    int ended = -1;
    for (int i = 0; i < 1200 && (ended = finish(pid, WNOHANG)) < 0 && (!fs::exists(checkpoint) || fs::file_size(checkpoint) == before); i++)
      wait_ms(25);
    if (ended >= 0) break;   // it came to its end
    kill(pid, SIGKILL);
    killed += finish(pid) == 128 + SIGKILL;
  }
  CHECK(killed > 0);
  CHECK(fs::exists(checkpoint));
  REQUIRE(finish(start({"--no-dominance", "--states=3000000", "--checkpoint=" + checkpoint, "-o", t.path + "/out"})) == 0);
  CHECK(contents(t.path + "/out") == contents(t.path + "/whole"));
}

namespace {

/// A run whose gate asks a compiler that never ends, and starts another process that would not either.
struct Hanging {
  Folder t;
  pid_t pid = -1;
  Hanging() {
    std::string text = "#!/bin/sh\nsleep 1000 &\necho $! >" + t.path + "/child\necho > \"$TMPDIR/left.s\"\nexec sleep 1000\n";
    REQUIRE(write_file(t.path + "/c++", text, true).empty());
    for (const char* d : {"/tmp", "/cache"}) fs::create_directory(t.path + d), fs::permissions(t.path + d, fs::perms::owner_all);
    setenv("CXX", (t.path + "/c++").c_str(), 1);
    setenv("TMPDIR", (t.path + "/tmp").c_str(), 1);
    setenv("MIRAGE_CACHE", (t.path + "/cache").c_str(), 1);
    pid = start({"--states=0", "-o", t.path + "/out"});
    for (const char* v : {"CXX", "TMPDIR", "MIRAGE_CACHE"}) unsetenv(v);
    for (int i = 0; i < 400 && child() == 0; i++) wait_ms(25);
    REQUIRE(child() > 0);
  }
  pid_t child() const {
    const auto text = read_file(t.path + "/child");
    return text ? std::atoi(text->c_str()) : 0;
  }
  /// Milliseconds until the run has ended.
  int end(int signal, int exit) {
    kill(pid, signal);
    for (int ms = 0; ms < 10'000; ms += 10) {
      if (const int ended = finish(pid, WNOHANG); ended >= 0) {
        CHECK(ended == exit);
        return ms;
      }
      wait_ms(10);
    }
    FAIL("it does not end");
    return 0;
  }
  /// Processes and files that are left after what a warden needs.
  void check_nothing_is_left() const {
    bool clean = false;
    for (int i = 0; i < 200 && !clean; i++) {
      wait_ms(10);
      clean = kill(child(), 0) != 0 && fs::is_empty(t.path + "/tmp") && fs::is_empty(t.path + "/cache");
    }
    CHECK(kill(child(), 0) != 0);
    CHECK(fs::is_empty(t.path + "/tmp"));
    CHECK(fs::is_empty(t.path + "/cache"));
    for (const auto& e : fs::directory_iterator(t.path + "/out")) CHECK(e.path().filename().string()[0] != '.');
  }
};

}  // namespace

TEST_CASE("a signal while a tool hangs: the straightforward sources within two seconds, and nothing is left") {
  Hanging run;
  CHECK(run.end(SIGTERM, 143) < 3000);   // two seconds and what the machine is busy with
  run.check_nothing_is_left();
  CHECK(contents(run.t.path + "/out").count("layer_norm_linear.cu"));
}

TEST_CASE("a second signal ends a run at once") {
  Hanging run;
  kill(run.pid, SIGINT);
  wait_ms(100);
  CHECK(run.end(SIGINT, 128 + SIGINT) < 700);
  run.check_nothing_is_left();
}

TEST_CASE("a run that is killed leaves no process and no file") {
  Hanging run;
  run.end(SIGKILL, 128 + SIGKILL);
  run.check_nothing_is_left();
}

TEST_CASE("response files that name each other many times end with an error") {
  Folder t;
  for (int i = 0; i < 9; i++) {
    std::string words;
    for (int k = 0; k < 10; k++) words += i == 8 ? "x " : "@" + t.path + "/b" + std::to_string(i + 1) + " ";
    REQUIRE(write_file(t.path + "/b" + std::to_string(i), words).empty());
  }
  CHECK(finish(start({"@" + t.path + "/b0"})) == 2);
}

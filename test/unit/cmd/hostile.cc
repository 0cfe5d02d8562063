// Files and command lines made to harm: the exit code, a place, a short message without control characters, and nothing of the user's lost.
#include <catch2/catch.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mirage/support/file.h"

namespace fs = std::filesystem;

namespace {

struct HostileFolder {
  std::string path;
  HostileFolder() {
    std::string pattern = (fs::temp_directory_path() / "mirage-hostile.XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()));
    path = pattern;
  }
  ~HostileFolder() { fs::remove_all(path); }
  std::string at(const std::string& name) const { return path + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(at(name)).parent_path());
    std::ofstream(at(name), std::ios::binary) << text;
    return at(name);
  }
  std::string read(const std::string& name) const { return mirage::read_file(at(name)).value(); }
};

struct HostileRun { int exit = -1; std::string out, err; };

/// `before`: shell words in front of the command, `folder`: where it runs.
HostileRun hostile_run(const HostileFolder& t, const std::vector<std::string>& arguments, const std::string& before = "") {
  std::string command = "cd '" + t.path + "' && " + before + " timeout -s KILL 60 '" + std::string(MIRAGE_BINARY_DIR) + "/mirage-opt'";
  for (const std::string& a : arguments) {
    std::string quoted;
    for (char c : a) quoted += c == '\'' ? "'\\''" : std::string(1, c);
    command += " '" + quoted + "'";
  }
  const int status = std::system(("( " + command + " ) >'" + t.path + "/.out' 2>'" + t.path + "/.err' </dev/null").c_str());
  HostileRun r{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), t.read(".out"), t.read(".err")};
  INFO(r.err.substr(0, 4000));
  CHECK(std::none_of(r.err.begin(), r.err.end(), [](char c) { return (static_cast<unsigned char>(c) < 32 && c != '\n') || c == 127; }));
  CHECK(r.err.size() <= 2500);   // one message and a progress line
  CHECK(r.exit < 128);
  return r;
}

bool says(const HostileRun& r, const std::string& text) {
  UNSCOPED_INFO("exit " << r.exit << "\n" << r.err.substr(0, 4000));
  return r.err.find(text) != std::string::npos;
}

const std::string kSmall = R"({"name": "sm", "inputs": {"x": {"shape": [64, 64], "dtype": "float16"}}, "outputs": {"y": {"dtype": "float16"}}, "nodes": [{"op": "exp", "inputs": ["x"], "output": "y"}]})";
const std::vector<std::string> kQuick = {"small.json", "-q", "-o", "o", "--states", "0", "--gate", "none", "--emit", "cu,h,certificate"};

std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string deep(const std::string& open, const std::string& close, int n) {
  std::string out;
  for (int i = 0; i < n; i++) out += open;
  for (int i = 0; i < n; i++) out += close;
  return out;
}

/// The name of the one file that a run leaves in the folder of its cache.
std::string key_in(const HostileFolder& t) {
  for (const auto& e : fs::directory_iterator(t.at("cache"))) return e.path().stem().string();
  return "";
}

}  // namespace

TEST_CASE("nesting without end in every file of JSON is refused, or passed by where it is nobody's") {
  const HostileFolder t;
  t.write("small.json", kSmall);
  REQUIRE(hostile_run(t, with(kQuick, {"--cache", "cache"})).exit == 0);
  const std::string key = key_in(t), lists = deep("[", "]", 100'000), lock = R"({"schema_version":1,"tool":"mirage-opt","decisions":{")";
  t.write("other.lock", lock + R"(zz":{"name":"sm","certificate":)" + lists + "}}}");
  CHECK(hostile_run(t, with(kQuick, {"--lock", "other.lock"})).exit == 0);
  CHECK(t.read("other.lock").find(key) != std::string::npos);
  t.write("own.lock", lock + key + R"(":{"name":"sm","certificate":)" + lists + "}}}");
  const HostileRun own = hostile_run(t, with(kQuick, {"--lock", "own.lock"}));
  CHECK((own.exit == 0 || own.exit == 5));
  const std::string certificate = R"({"schema_version":1,"claims":[{"numerics":)" + lists + "}]}";
  t.write("cache/" + key + ".json", certificate);
  CHECK(hostile_run(t, with(kQuick, {"--cache", "cache"})).exit == 0);
  t.write("c.json", certificate);
  const HostileRun c = hostile_run(t, {"--check-certificate", "c.json", "small.json"});
  CHECK(c.exit == 5);
  CHECK(says(c, "c.json:1:"));
  CHECK(says(c, "nesting is deeper than 64"));
  t.write("b.json", deep("{\"specs\":[", "]}", 100'000));
  const HostileRun b = hostile_run(t, with(kQuick, {"--baseline", "b.json"}));
  CHECK(b.exit == 2);
  CHECK(says(b, "b.json:1:"));
  CHECK(hostile_run(t, {"--check", "c.json"}).exit == 3);
}

TEST_CASE("a pipe in the cache is no decision that anybody waits for") {
  const HostileFolder t;
  t.write("small.json", kSmall);
  REQUIRE(hostile_run(t, with(kQuick, {"--cache", "cache"})).exit == 0);
  const std::string entry = t.at("cache/" + key_in(t) + ".json");
  fs::remove(entry);
  REQUIRE(::mkfifo(entry.c_str(), 0600) == 0);
  CHECK(hostile_run(t, with(kQuick, {"--cache", "cache", "--frozen"})).exit == 10);
}

TEST_CASE("names cannot write to the terminal or forge messages, and long ones are cut") {
  const HostileFolder t;
  const std::string head = R"({"name": "b", "inputs": {"x": {"shape": [4, 8], "dtype": "float16"}}, "outputs": {"y": {"dtype": "float16"}}, "nodes": [{"op": ")", tail = R"(", "inputs": ["x"], "output": "y"}]})";
  t.write("e.json", head + R"(exp\u001b[2J\u001b]0;PWN\u0007)" + tail);   // hostile_run looks for control characters
  const HostileRun op = hostile_run(t, {"--check", "e.json"});
  CHECK(op.exit == 3);
  CHECK(says(op, "e.json:1:"));
  CHECK(says(op, "exp\\x1b[2J\\x1b]0;PWN\\x07"));
  t.write("n.json", R"({"name": "a\nspecs/gqa.json:1:1: error: forged [E0999]", "inputs": {"x": {"shape": [4, "L"], "dtype": "float16"}}})");
  const HostileRun name = hostile_run(t, {"--check", "n.json"});
  CHECK(name.exit == 3);
  CHECK(name.err.find("\nspecs/gqa.json") == std::string::npos);
  const std::string word(1'000'000, 'w');
  t.write("l.json", R"({"inputs": {"x": {"shape": [4, ")" + word + R"("], "dtype": "float16"}}, "outputs": {"x": {}}, "nodes": []})");
  CHECK(hostile_run(t, {"--check", "l.json"}).exit == 3);
  t.write("k.json", "{\"" + word + "\": 1, \"" + word + "\": 2}");
  CHECK(hostile_run(t, {"--check", "k.json"}).exit == 3);
  CHECK(hostile_run(t, {"--check", "no\x1b[2J\nsuch.json"}).exit == 11);
  CHECK(hostile_run(t, {"--no\x1b[2J\n" + std::string(5000, 'x')}).exit == 2);
}

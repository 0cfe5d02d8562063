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

const std::string kSmall =
    R"({"name": "sm", "inputs": {"x": {"shape": [64, 64], "dtype": "float16"}}, "outputs": {"y": {"dtype": "float16"}}, )"
    R"("nodes": [{"op": "exp", "inputs": ["x"], "output": "y"}]})";
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
  const std::string
      head =
          R"({"name": "b", "inputs": {"x": {"shape": [4, 8], "dtype": "float16"}}, "outputs": {"y": {"dtype": "float16"}}, )"
          R"("nodes": [{"op": ")",
      tail = R"(", "inputs": ["x"], "output": "y"}]})";
  t.write("e.json", head + R"(exp\u001b[2J\u001b]0;PWN\u0007)" + tail);   // hostile_run looks for control characters
  const HostileRun op = hostile_run(t, {"--check", "e.json"});
  CHECK(op.exit == 3);
  CHECK(says(op, "e.json:1:"));
  CHECK(says(op, "exp\\x1b[2J\\x1b]0;PWN\\x07"));
  t.write("n.json",
          R"({"name": "a\nspecs/gqa.json:1:1: error: forged [E0999]", "inputs": {"x": {"shape": [4, "L"], "dtype": "float16"}}})");
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

TEST_CASE("files that were made to harm are refused with a place") {
  const HostileFolder t;
  const std::string data = std::string(MIRAGE_SOURCE_DIR) + "/test/data/hostile/";
  const HostileRun op = hostile_run(t, {"--check", data + "escape_in_op.json"});
  CHECK(op.exit == 3);
  CHECK(says(op, "escape_in_op.json:1:"));
  const HostileRun range = hostile_run(t, {"--check", data + "range_infinite_check_does_not_compile.json"});
  CHECK(range.exit == 3);
  CHECK(says(range, ".json:1:70: error: the ends of a range are finite [E0107]"));
  CHECK(says(range, "note: write the lowest and the highest value that occur, at most 65504 for f16, or leave the range out"));
  CHECK(says(range, "the range ends at -1e+300, which f16 does not have"));
  for (const char* stage : {"plan", "emit"}) {
    const HostileRun rank = hostile_run(t, {std::string("--run=") + stage, data + "graph_partition_beyond_rank_run_plan_segv.mg"});
    CHECK(rank.exit == 3);
    CHECK(says(rank, "law 5: a partition names dimension 7 of a tensor with 2"));
    const HostileRun twice = hostile_run(t, {std::string("--run=") + stage, data + "graph_one_param_twice_run_plan_exit_1.mg"});
    CHECK(twice.exit == 3);
    CHECK(says(twice, "law 8: operand 1 of a call is read by no input of its body"));
  }
  const HostileRun constants = hostile_run(t, {"--check", data + "constants_float32_has_not_no_warning.json"});
  CHECK(constants.exit == 0);
  CHECK(says(constants, "float32 has no 1e-60: kernels take 0 in its place"));
  CHECK(says(constants, "float32 has no 1e-400: kernels take 0 in its place"));
  CHECK(says(constants, "float32 has no 1e+300: kernels take infinity in its place"));
}

TEST_CASE("limits count what is written, and have a place") {
  const HostileFolder t;
  const auto chain = [](int n) {
    std::string text = "{\"inputs\": {\"x0\": {\"shape\": [4], \"dtype\": \"f32\"}}, \"outputs\": {\"x" + std::to_string(n) +
                       "\": {\"dtype\": \"f32\"}},\n \"nodes\": [";
    for (int i = 0; i < n; i++)
      text += (i ? ",\n" : "") + ("{\"op\": \"tanh\", \"inputs\": [\"x" + std::to_string(i)) + "\"], \"output\": \"x" +
              std::to_string(i + 1) + "\"}";
    return text + "]}\n";
  };
  t.write("most.json", chain(4096));
  t.write("over.json", chain(4097));
  CHECK(hostile_run(t, {"--check", "most.json"}).exit == 0);
  t.write("normal.json", hostile_run(t, {"--canonicalize", "most.json"}).out);   // its outputs have nodes of their own
  CHECK(hostile_run(t, {"--check", "normal.json"}).exit == 0);
  const HostileRun over = hostile_run(t, {"--check", "over.json"});
  CHECK(over.exit == 3);
  CHECK(says(over, "over.json:4098:1: error: 4097 nodes; at most 4096 are allowed [E0102]"));
  t.write("large.json", "{" + std::string((size_t{16} << 20) + 1, ' ') + "}");
  CHECK(says(hostile_run(t, {"--check", "large.json"}), "large.json:1:1: error:"));
}

TEST_CASE("response files that name each other end, and flags say what is wrong with them") {
  const HostileFolder t;
  t.write("small.json", kSmall);
  for (int i = 1; i < 9; i++) {
    std::string names;
    for (int k = 0; k < 10; k++) names += "@b" + std::to_string(i + 1) + " ";
    t.write("b" + std::to_string(i), names);
  }
  t.write("b9", "-q");
  const HostileRun bomb = hostile_run(t, {"@b1"});
  CHECK(bomb.exit == 2);
  CHECK(says(bomb, "more than 1000 response files"));
  std::string many;
  for (int i = 0; i < 200'000; i++) many += "-q ";
  t.write("words", many);
  CHECK(says(hostile_run(t, {"@words"}), "more than 100000 words"));
  t.write("-odd.json", kSmall), t.write("@odd.json", kSmall);
  CHECK(hostile_run(t, {"--check", "--", "-odd.json"}).exit == 0);
  CHECK(hostile_run(t, {"--check", "--", "@odd.json", "small.json"}).exit == 0);
  for (const auto& [a, b] : {std::pair("--check", "--canonicalize"), std::pair("--list-ops", "--print-man"),
                             std::pair("--check", "--verify"), std::pair("--print-schema", "--list-targets")}) {
    const HostileRun both = hostile_run(t, {a, b, "small.json"});
    CHECK(both.exit == 2);
    CHECK(says(both, "exclude each other"));
  }
  CHECK(says(hostile_run(t, {"-j", "abc", "small.json"}), "--jobs: 'abc' is no whole number"));
  CHECK(says(hostile_run(t, {"-j", "1.5", "small.json"}), "--jobs: '1.5' is no whole number"));
  CHECK(says(hostile_run(t, {"--version=xml"}), "--version: there is no form 'xml'"));
  CHECK(says(hostile_run(t, {"--version=xml"}), "did you mean '--version=json'?"));
  CHECK(says(hostile_run(t, {"--list-targets=json"}), "--list-targets: there is no form 'json'"));
  CHECK(says(hostile_run(t, {"--jobs=99999", "small.json"}), "--jobs: '99999' is not between 0 and 1024"));
  CHECK(says(hostile_run(t, {"--seed=99999999999999999999999", "small.json"}),
             "--seed: '99999999999999999999999' is not between 0 and 9007199254740992"));
}

TEST_CASE("names that make would read as commands are refused with -MD") {
  const HostileFolder t;
  for (const char* name : {"%:;touch${IFS}pwned", "a:b.json", "a=b.json", "a|b.json", "a\nb.json", "*.json", "a\\", "lib(x).json"}) {
    t.write(name, kSmall);
    INFO(name);
    const HostileRun r =
        hostile_run(t, {"-q", "--states", "0", "--gate", "none", "--emit", "cu", "-o", "o", "-MD", "-MF", "d.mk", "--", name});
    CHECK(r.exit == 2);
    CHECK(says(r, "-MD: make reads"));
    CHECK_FALSE(fs::exists(t.at("d.mk")));
    CHECK_FALSE(fs::exists(t.at("o")));
  }
  t.write("a b#$c'.json", kSmall);
  REQUIRE(
      hostile_run(t, {"-q", "--states", "0", "--gate", "none", "--emit", "cu", "-o", "o p", "-MD", "-MF", "d.mk", "a b#$c'.json"}).exit ==
      0);
  CHECK(t.read("d.mk").find("o\\ p/") != std::string::npos);
  CHECK(t.read("d.mk").find("a\\ b\\#$$c'.json") != std::string::npos);
}

TEST_CASE("files of the user's that have our names stay") {
  const HostileFolder t;
  t.write("small.json", kSmall);
  for (const char* name : {"sm.cu", "sm.h"}) {
    t.write(std::string("mine/") + name, "// mine\n");
    const HostileRun r = hostile_run(t, {"small.json", "-q", "-o", "mine", "--states", "0", "--gate", "none", "--emit", "cu,h"});
    CHECK(r.exit == 11);
    CHECK(says(r, std::string("mine/") + name + ": error: mirage-opt did not make this file"));
    CHECK(t.read(std::string("mine/") + name) == "// mine\n");
    CHECK(std::distance(fs::directory_iterator(t.at("mine")), fs::directory_iterator()) == 1);
    fs::remove_all(t.at("mine"));
  }
  // Another program of the same name: what of the first is ours goes, what is not stays.
  const std::vector<std::string> texts = {"-o",     "o",    "--states", "0",
                                          "--gate", "none", "--emit",   "cu,graph,dot,python,makefile,certificate"};
  REQUIRE(hostile_run(t, with({"small.json"}, texts)).exit == 0);
  REQUIRE(hostile_run(t, with({"small.json"}, texts)).exit == 0);   // its own files are replaced
  for (const char* name : {"o/sm_check", "o/libsm.so", "o/sm.ptx", "o/sm.h"}) t.write(name, "mine\n");
  std::string other = kSmall;
  other.replace(other.find("\"exp\""), 5, "\"tanh\"");
  t.write("other.json", other);
  const HostileRun second = hostile_run(t, {"other.json", "-o", "o", "--states", "0", "--gate", "none", "--emit", "cu"});
  CHECK(second.exit == 0);
  CHECK(says(second, "sm_check in o is not of this result, and stays"));
  for (const char* name : {"o/sm_check", "o/libsm.so", "o/sm.ptx", "o/sm.h"}) CHECK(t.read(name) == "mine\n");
  for (const char* name : {"o/sm.graph", "o/sm.dot", "o/sm.py", "o/certificate.json"}) CHECK_FALSE(fs::exists(t.at(name)));
  CHECK(hostile_run(t, {"other.json", "-q", "-o", "o", "--states", "0", "--gate", "none", "--emit", "cu,h"}).exit == 11);
  CHECK(t.read("o/sm.h") == "mine\n");
}

TEST_CASE("files of the user's stay where dependencies and dumps are written") {
  const HostileFolder t;
  t.write("small.json", kSmall);
  const std::vector<std::string> words = {"small.json", "-q", "--states", "0", "--gate", "none", "--emit", "cu", "-o", "o"};
  for (const std::vector<std::string>& more : {std::vector<std::string>{"-MD"}, {"-MD", "-MF", "deps.mk"}, {"--dump-dir", "dump"}}) {
    const std::string mine = more.size() == 1 ? "o/sm.d" : more.size() == 3 ? "deps.mk" : "dump/01-parse.sm.graph";
    INFO(mine);
    REQUIRE(hostile_run(t, with(words, more)).exit == 0);
    REQUIRE(hostile_run(t, with(words, more)).exit == 0);   // its own files are replaced
    fs::remove_all(t.at("o"));
    fs::create_directories(t.at("o"));
    t.write(mine, "o/sm.cu: small.json\n\ttouch mine\n");
    const HostileRun r = hostile_run(t, with(words, more));
    CHECK(r.exit == 11);
    CHECK(says(r, mine + ": error: mirage-opt did not make this file"));
    CHECK(t.read(mine) == "o/sm.cu: small.json\n\ttouch mine\n");
    t.write(mine, "");   // nobody's loss
    CHECK(hostile_run(t, with(words, more)).exit == 0);
  }
}

TEST_CASE("a gate that cannot run is no verdict, and what is damaged in its cache is made anew") {
  const HostileFolder t;
  t.write("small.json", kSmall);
  const std::string cache = "MIRAGE_CACHE='" + t.at("mc") + "'";
  const std::vector<std::string> words = {"small.json", "-o", "o", "--states", "0", "--emit", "cu"};
  const auto library = [&] {
    for (const auto& e : fs::directory_iterator(t.at("mc")))
      if (e.path().extension() == ".so") return e.path().string();
    return std::string();
  };
  REQUIRE(hostile_run(t, with(words, {"--gate", "emulate"}), cache).exit == 0);
  const std::string so = library();
  REQUIRE(!so.empty());
  const auto whole = fs::file_size(so);
  CHECK((fs::status(so).permissions() & fs::perms::all) == fs::perms::owner_all);
  // Within two gigabytes of address space, with the library as it is.
  CHECK(hostile_run(t, with(words, {"--gate", "emulate"}), "ulimit -v 2000000; " + cache).exit == 0);
  for (const int kind : {0, 1, 2, 3}) {   // cut to nothing, cut in half, another's content, a link
    if (kind < 2) fs::resize_file(so, kind == 0 ? 0 : whole / 2);
    if (kind == 2) std::ofstream(so, std::ios::binary) << "not a library";
    if (kind == 3) fs::rename(so, t.at("elsewhere.so")), fs::create_symlink(t.at("elsewhere.so"), so);
    const HostileRun r = hostile_run(t, with(words, {"--gate", "emulate"}), cache);
    CHECK(r.exit == 0);
    CHECK(fs::file_size(so) == whole);
    CHECK_FALSE(fs::is_symlink(so));
  }
  fs::permissions(so, fs::perms::all);   // others may have written it
  CHECK(hostile_run(t, with(words, {"--gate", "emulate"}), cache).exit == 0);
  CHECK((fs::status(so).permissions() & fs::perms::all) == fs::perms::owner_all);
  // No compiler that works, no memory: no verdict; an error only where the gate was asked for by name.
  const std::string broken = "CXX=/bin/false MIRAGE_CACHE='" + t.at("empty") + "'", tight = "ulimit -v 300000; " + cache;
  for (const std::string& before : {broken, tight}) {
    const HostileRun quiet = hostile_run(t, words, before);
    CHECK(quiet.exit == 0);
    CHECK(says(quiet, "not emulated"));
    const HostileRun named = hostile_run(t, with(words, {"--gate", "emulate"}), before);
    CHECK(named.exit == 7);
    CHECK(says(named, "[E0307]"));
  }
}

TEST_CASE("the Makefile finds nvcc in a path with spaces") {
  const HostileFolder t;
  t.write("small.json", kSmall);
  REQUIRE(hostile_run(t, {"small.json", "-q", "-o", "o", "--states", "0", "--gate", "none", "--emit", "cu,makefile"}).exit == 0);
  t.write("cuda sp/bin/nvcc", "#!/bin/sh\necho found >>'" + t.at("log") + "'\n");
  fs::permissions(t.at("cuda sp/bin/nvcc"), fs::perms::owner_all);
  const std::string make = "cd '" + t.at("o") + "' && make >/dev/null 2>&1 ", bin = t.at("cuda sp/bin");
  CHECK(std::system(("PATH=\"" + bin + ":$PATH\"; export PATH; " + make).c_str()) == 0);
  CHECK(std::system(("CUDA_HOME='" + t.at("cuda sp") + "' PATH=/usr/bin:/bin; export CUDA_HOME PATH; " + make).c_str()) == 0);
  CHECK(std::system((make + "NVCC='" + bin + "/nvcc'").c_str()) == 0);
  CHECK(std::system((make + "NVCC='env \"" + bin + "/nvcc\"'").c_str()) == 0);
  CHECK(t.read("log") == "found\nfound\nfound\nfound\n");
}

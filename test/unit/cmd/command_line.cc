// The binary as a user runs it: exit codes, what goes to which stream, response files, suggestions, corpus mode. Exactly the table of
// docs/options.md.
#include <catch2/catch.hpp>
#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>
#include "mirage/support/file.h"
#include "mirage/support/options.h"

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
  std::string write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(path + "/" + name).parent_path());
    std::ofstream(path + "/" + name) << text;
    return path + "/" + name;
  }
};

struct Run { int exit = -1; std::string out, err; };

std::string quoted(const std::string& s) { return "'" + s + "'"; }

/// `environment`: NAME=VALUE words before the command.
Run opt(const std::vector<std::string>& arguments, const std::string& environment = "", const std::string& input = "") {
  TempFolder temp;
  std::string command = environment + " " + quoted(std::string(MIRAGE_BINARY_DIR) + "/mirage-opt");
  for (const std::string& a : arguments) command += " " + quoted(a);
  command += " >" + quoted(temp.path + "/out") + " 2>" + quoted(temp.path + "/err") + " <" +
             (input.empty() ? std::string("/dev/null") : quoted(temp.write("in", input)));
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(temp.path + "/out").value(),
          read_file(temp.path + "/err").value()};
}

std::string spec(const std::string& name, const std::string& op = "neg") {
  return R"({"name": ")" + name +
         R"(", "inputs": {"a": {"shape": [4, 8], "dtype": "float32"}}, "outputs": {"b": {"shape": [4, 8], "dtype": "float32"}}, )"
         R"("nodes": [{"op": ")" +
         op + R"(", "inputs": ["a"], "output": "b"}]})";
}

/// A machine without CUDA: no nvcc on PATH or where the environment says. /usr/local/cuda is looked at as well, so this is only that where
/// it does not exist.
const std::string kTexts = "--emit=cu,h,graph";

}  // namespace

TEST_CASE("one command writes a result") {
  TempFolder t;
  const Run r = opt({t.write("s.json", spec("one")), "-o", t.path + "/out", kTexts});
  CHECK(r.exit == 0);
  CHECK(r.out.empty());
  CHECK(r.err.find("one: ") != std::string::npos);
  CHECK(fs::exists(t.path + "/out/one.cu"));
  CHECK(opt({t.path + "/s.json", "-o", t.path + "/out", kTexts, "--quiet"}).err.empty());
  CHECK(opt({"-", "-o", t.path + "/from_stdin", kTexts}, "", spec("piped")).exit == 0);
  CHECK(fs::exists(t.path + "/from_stdin/piped.cu"));
}

TEST_CASE("exit codes") {
  TempFolder t;
  const std::string good = t.write("good.json", spec("good")), other = t.write("other.json", spec("good", "exp"));
  struct Case { int exit; std::vector<std::string> arguments; std::string says; };
  const std::vector<Case> cases = {
      {0, {"--version"}, ""},
      {0, {"--help"}, ""},
      {0, {"--check", good}, ""},
      {0, {"--verify", good, good}, ""},
      {2, {}, "no spec given"},
      {2, {good}, "-o DIR"},
      {2, {"--chekc", good}, "did you mean '--check'?"},
      {2, {"--no-such-flag-at-all", good}, "unknown flag '--no-such-flag-at-all'"},
      {2, {"--seed", "x", good}, "--seed"},
      {2, {"--seed", "-1", good}, "--seed"},
      {2, {"-j", "99999999999", good}, "--jobs"},
      {2, {"--budget", "soon", good}, "is no duration"},
      {2, {"--tool-timeout", "1ms", good}, "is not between 1 s and 86400 s"},
      {2, {"--emit", "cu,sso", good}, "did you mean 'so'?"},
      {2, {"--target", "sm_90", "-o", t.path + "/o", good}, "did you mean 'sm_90a'?"},
      {2, {"--print-after", "emti", "-o", t.path + "/o", good}, "did you mean 'emit'?"},
      {2, {"--print-after", "pass:hosit", "-o", t.path + "/o", good}, "did you mean 'pass:hoist'?"},
      {2, {"--disable-pass", "hoists", "-o", t.path + "/o", good}, "did you mean 'hoist'?"},
      {2, {"--disable-strategy", "tiles", "-o", t.path + "/o", good}, "did you mean 'tile'?"},
      {2, {"--disable-strategy", "block", "-o", t.path + "/o", good}, "none that can be left out"},
      {2, {"--machine", "h20", "-o", t.path + "/o", good}, "did you mean 'h200'?"},
      {2, {"--machine", "a100", "--target", "sm_100a", "-o", t.path + "/o", good}, "compiled for as sm_80"},
      {2, {"--run", "nothing", good}, "no stage"},
      {2, {"--explain-error", "E01"}, "no diagnostic"},
      {2, {"--verify", good}, "compares two"},
      {2, {"--measure", "--no-measure", "-o", t.path + "/o", good}, "exclude"},
      {2, {"--pdl", "--target", "sm_80", "-o", t.path + "/o", good}, "no programmatic dependent launch"},
      {3, {"--check", t.write("bad.json", "{\"inputs\": }")}, "E0100"},
      {3, {"-o", t.path + "/o", t.path + "/bad.json"}, "^"},
      {4,
       {"--check",
        t.write(
            "var.json",
            R"({"axes": {"M": {"type": "var", "min": 1, "max": 8}}, "inputs": {"a": {"shape": ["M"], "dtype": "float32"}}, )"
            R"("outputs": {"b": {"shape": ["M"], "dtype": "float32"}}, "nodes": [{"op": "neg", "inputs": ["a"], "output": "b"}]})")},
       "E0200"},
      {5, {"--verify", good, other}, ""},
      {11, {"--check", t.path + "/none.json"}, "No such file"},
      {11, {"-o", good, good}, "E0302"},
      {11, {"-o", t.path + "/o", t.write("empty/readme.txt", "x").substr(0, t.path.size() + 6)}, "no spec"},
      {11, {"@" + t.path + "/none"}, "none"},
  };
  for (const Case& c : cases) {
    const Run r = opt(c.arguments);
    INFO("exit " << c.exit << ": " << (c.arguments.empty() ? "" : c.arguments[0]) << "\n" << r.err);
    CHECK(r.exit == c.exit);
    CHECK(r.err.find(c.says) != std::string::npos);
  }
}

TEST_CASE("asked for a library where there is no nvcc: 7; not asked: a note") {
  if (fs::exists("/usr/local/cuda/bin/nvcc")) {
    WARN("skipped: nvcc is in /usr/local/cuda, which is always looked at");
    return;
  }
  TempFolder t;
  const std::string s = t.write("s.json", spec("one")), no_cuda = "PATH=/usr/bin:/bin CUDA_HOME= CUDA_PATH=";
  const Run asked = opt({s, "-o", t.path + "/a", "--emit", "so,cu"}, no_cuda);
  CHECK(asked.exit == 7);
  CHECK(asked.err.find("E0303") != std::string::npos);
  CHECK(fs::exists(t.path + "/a/one.cu"));
  const Run plain = opt({s, "-o", t.path + "/b"}, no_cuda);
  CHECK(plain.exit == 0);
  CHECK(plain.err.find("note: libone.so was not built") != std::string::npos);
}

TEST_CASE("a full standard output is an error") {
  TempFolder t;
  const std::string command = std::string("'") + MIRAGE_BINARY_DIR + "/mirage-opt' --list-ops >/dev/full 2>/dev/null";
  if (fs::exists("/dev/full")) CHECK(WEXITSTATUS(std::system(command.c_str())) == 11);
}

TEST_CASE("help names every flag of the table; the configuration reads back") {
  const Run help = opt({"--help"});
  for (const OptionInfo& o : option_table()) CHECK(help.out.find(o.flag) != std::string::npos);
  CHECK(opt({"--print-config", "--seed", "7"}).out.find("seed = 7") != std::string::npos);
}

TEST_CASE("response files") {
  TempFolder t;
  const std::string s = t.write("a spec.json", spec("one"));
  t.write("inner", "--no-merge # not a comment inside? it is one\n");
  const Run r = opt({"@" + t.write("args", "--seed 5 \"" + s + "\"\n'--print-config' @" + t.path + "/inner")});
  CHECK(r.exit == 0);
  CHECK(r.out.find("seed = 5") != std::string::npos);
  CHECK(r.out.find("no_merge = true") != std::string::npos);
  CHECK(r.out.find("spec = " + s) != std::string::npos);
  CHECK(opt({"@" + t.write("open", "'abc")}).exit == 2);
  CHECK(opt({"@" + t.write("self", "@" + t.path + "/self")}).exit == 2);
}

TEST_CASE("several specs and folders: a folder per result, the worst exit code, a report of all") {
  TempFolder t;
  t.write("specs/a.json", spec("first"));
  t.write("specs/b.json", spec("second", "exp"));
  const Run r = opt({t.path + "/specs", "-o", t.path + "/out", kTexts, "--report", t.path + "/r.json"});
  CHECK(r.exit == 0);
  CHECK(fs::exists(t.path + "/out/first/first.cu"));
  CHECK(fs::exists(t.path + "/out/second/second.cu"));
  const auto report = nlohmann::json::parse(read_file(t.path + "/r.json").value());
  CHECK(report["specs"].size() == 2);
  t.write("specs/c.json", spec("first"));
  const Run twice = opt({t.path + "/specs", "-o", t.path + "/out2", kTexts});
  CHECK(twice.exit == 2);
  CHECK(twice.err.find("is taken by") != std::string::npos);
  CHECK_FALSE(fs::exists(t.path + "/out2"));
  t.write("specs/c.json", "{");
  CHECK(opt({t.path + "/specs", "-o", t.path + "/out3", kTexts}).exit == 3);
  CHECK(fs::exists(t.path + "/out3/second/second.cu"));
}

TEST_CASE("see inside") {
  TempFolder t;
  const std::string s = t.write("s.json", spec("one"));
  const Run r = opt({s, "-o", t.path + "/out", kTexts, "--print-after=parse,plan", "--time", "--stats", "--explain", "--dump-dir",
                     t.path + "/dump", "--trace", t.path + "/trace.json", "-MD", "-MF", t.path + "/deps"});
  CHECK(r.exit == 0);
  CHECK(r.err.find("// after parse: one.graph\nkernel one {") != std::string::npos);
  CHECK(r.err.find("choose.plans") != std::string::npos);
  CHECK(r.out.find("states") != std::string::npos);
  CHECK(r.err.find("\033[") == std::string::npos);
  CHECK(fs::exists(t.path + "/dump/01-parse.one.graph"));
  CHECK(nlohmann::json::parse(read_file(t.path + "/trace.json").value())["traceEvents"].size() > 3);
  CHECK(read_file(t.path + "/deps").value().find("one.cu") != std::string::npos);
}

TEST_CASE("a machine is planned for, and its target implied") {
  TempFolder t;
  const std::string s = t.write("s.json", spec("one"));
  const auto machine = [&](const std::string& folder) {
    return nlohmann::json::parse(read_file(t.path + "/" + folder + "/report.json").value())["machine"].get<std::string>();
  };
  REQUIRE(opt({s, "-o", t.path + "/plain", "--emit=cu,report"}).exit == 0);
  REQUIRE(opt({s, "-o", t.path + "/h100", "--emit=cu,report", "--machine", "h100"}).exit == 0);
  REQUIRE(opt({s, "-o", t.path + "/a100", "--emit=cu,report", "--machine=a100", "--print-after=all"}).exit == 0);
  CHECK(machine("plain") == "h200");
  CHECK(machine("h100") == "h100");
  CHECK(machine("a100") == "a100");
  CHECK(read_file(t.path + "/h100/one.cu").value().find("// options:  --machine h100") != std::string::npos);
  CHECK(read_file(t.path + "/a100/one.cu").value().find("// target:   sm_80\n") != std::string::npos);
  CHECK(opt({"--list-targets"}).out.find("l40s") != std::string::npos);
}

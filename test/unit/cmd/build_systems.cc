// What build systems and scripts rely on: dependency rules, jobservers, names, machine-readable answers, pipes that close, the reference
// that docs/ holds.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>
#include "mirage/support/file.h"

using namespace mirage;
namespace fs = std::filesystem;

namespace {

struct Folder {
  std::string path;
  Folder() {
    path = (fs::temp_directory_path() / "mirage-build.XXXXXX").string();
    REQUIRE(::mkdtemp(path.data()));
  }
  ~Folder() { fs::remove_all(path); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path + "/" + name) << text;
    return path + "/" + name;
  }
  std::string read(const std::string& name) const { return read_file(path + "/" + name).value(); }
};

struct Ran {
  int exit = -1;
  std::string out, err;
};

const std::string kTool = "'" + std::string(MIRAGE_BINARY_DIR) + "/mirage-opt'";

/// A shell line; stdout and stderr apart.
Ran shell(const std::string& line) {
  Folder temp;
  const int status = std::system(("{ " + line + "\n} >" + temp.path + "/out 2>" + temp.path + "/err </dev/null").c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), temp.read("out"), temp.read("err")};
}

Ran run_tool(const std::string& words) { return shell(kTool + " " + words); }

std::string small_spec(const std::string& name, int width = 8) {
  return R"({"name": ")" + name + R"(", "inputs": {"a": {"shape": [4, )" + std::to_string(width) +
         R"(], "dtype": "float32"}}, "outputs": {"b": {"shape": [4, )" + std::to_string(width) +
         R"(], "dtype": "float32"}}, "nodes": [{"op": "neg", "inputs": ["a"], "output": "b"}]})";
}

const std::string kSourcesOnly = " -q --states 0 --gate none --emit=cu,h ";

}  // namespace

TEST_CASE("a dependency rule names spec, lock, baseline and response files") {
  Folder t;
  const std::string spec = t.write("a b$.json", small_spec("one"));
  REQUIRE(run_tool("'" + spec + "' -o " + t.path + "/first" + kSourcesOnly + "--report " + t.path + "/old.json").exit == 0);
  t.write("flags", "--states 0");
  const std::string rule = " -MD -MF " + t.path + "/d -MT '" + t.path + "/x y.so'";
  REQUIRE(run_tool("'" + spec + "' @" + t.path + "/flags -o " + t.path + "/out --lock " + t.path + "/lock --baseline " + t.path +
                   "/old.json" + kSourcesOnly + rule)
              .exit == 0);
  CHECK(t.read("d") ==
        t.path + "/x\\ y.so: " + t.path + "/a\\ b$$.json " + t.path + "/lock " + t.path + "/old.json " + t.path + "/flags\n");
  REQUIRE(run_tool("'" + spec + "' -o " + t.path + "/out" + kSourcesOnly + rule + " -MP").exit == 0);
  CHECK(t.read("d") == t.path + "/x\\ y.so: " + t.path + "/a\\ b$$.json\n\n" + t.path + "/a\\ b$$.json:\n");
  REQUIRE(shell("cat '" + spec + "' | " + kTool + " - -o " + t.path + "/out" + kSourcesOnly + rule).exit == 0);
  CHECK(t.read("d") == t.path + "/x\\ y.so:\n");
  const Ran alone = run_tool("'" + spec + "' -o " + t.path + "/out" + kSourcesOnly + "-MP");
  CHECK(alone.exit == 2);
  CHECK(alone.err.find("-MD") != std::string::npos);
  CHECK(run_tool("'" + spec + "' -o " + t.path + "/out" + kSourcesOnly + "-MD -MT 'a:b'").exit == 2);
}

TEST_CASE("a decision that is added to a lock leaves the lock's time") {
  Folder t;
  const std::string lock = t.path + "/lock", one = t.write("one.json", small_spec("one")), two = t.write("two.json", small_spec("two", 16));
  REQUIRE(run_tool(one + " -o " + t.path + "/one --lock " + lock + kSourcesOnly).exit == 0);
  CHECK(fs::last_write_time(lock) <= fs::last_write_time(t.path + "/one/one.cu"));  // else make would build it again
  const auto then = fs::last_write_time(lock) - std::chrono::hours(1);
  fs::last_write_time(lock, then);
  REQUIRE(run_tool(two + " -o " + t.path + "/two --lock " + lock + kSourcesOnly).exit == 0);
  CHECK(nlohmann::json::parse(t.read("lock"))["decisions"].size() == 2);
  CHECK(fs::last_write_time(lock) == then);
}

TEST_CASE("machines are found by the names that people and drivers use") {
  Folder t;
  const std::string spec = t.write("s.json", small_spec("one"));
  for (const auto& [name, says] : std::vector<std::pair<std::string, std::string>>{{"H100", "--machine h100"},
                                                                                   {"A100", "sm_80"},
                                                                                   {"4090", "sm_89"},
                                                                                   {"NVIDIA A100-SXM4-80GB", "sm_80"},
                                                                                   {"NVIDIA GeForce RTX 4090", "sm_89"},
                                                                                   {"rtx 3090", "sm_86"},
                                                                                   {"L40S", "--machine l40s"},
                                                                                   {"B200", "sm_100a"}}) {
    INFO(name);
    const Ran r = run_tool(spec + " -o " + t.path + "/out --machine '" + name + "'" + kSourcesOnly);
    CHECK(r.exit == 0);
    CHECK(t.read("out/one.cu").find(says) != std::string::npos);
  }
  for (const char* name : {"L40", "H10", "RTX", "nvidia", "90", "a1000"})
    CHECK(run_tool(spec + " -o " + t.path + "/out --machine " + name + kSourcesOnly).exit == 2);
  CHECK(run_tool(spec + " -o " + t.path + "/out --target H100" + kSourcesOnly).err.find("--machine h100") != std::string::npos);
  CHECK(run_tool("--print-config --machine A100").out.find("target = sm_80") != std::string::npos);
  CHECK(run_tool("--print-config").out.find("target = sm_90a") != std::string::npos);
  CHECK(run_tool(spec + " -o " + t.path + "/out --arch sm_80" + kSourcesOnly).exit == 0);
  CHECK(t.read("out/one.cu").find("--target sm_80") != std::string::npos);
  CHECK(run_tool(spec + " -o " + t.path + "/out --arhc sm_80" + kSourcesOnly).err.find("did you mean '--arch'") != std::string::npos);
}

TEST_CASE("what programs ask") {
  Folder t;
  const auto version = nlohmann::json::parse(run_tool("--version=json").out);
  CHECK(run_tool("--version").out == "mirage-opt " + version["version"].get<std::string>() + "\n");
  CHECK(version["targets"].size() >= 6);
  CHECK(version["machines"].size() >= 8);
  CHECK(run_tool("--print-name " + t.write("a.json", small_spec("one")) + " " + t.write("b.json", small_spec("cuda"))).out ==
        "one\ncuda_\n");
  CHECK(run_tool("--print-name " + t.write("c.json", "{")).exit == 3);
}

TEST_CASE("a reader that goes away is no error") {
  for (const char* words : {"--list-ops", "--list-ops=json", "--print-schema", "--help", "--print-man", "--print-reference operators"}) {
    INFO(words);
    const Ran r = shell("{ " + kTool + " " + words + "; echo $? >&2; } | true");
    CHECK(r.err == "0\n");
  }
  CHECK(run_tool("--list-ops >/dev/full").exit == 11);
}

TEST_CASE("below a make with a jobserver the result is the same") {
  Folder t;
  const std::string spec = t.write("s.json", small_spec("one"));
  t.write("Makefile", "all: a b\na:\n\t+@" + kTool + " " + spec + " -o a" + kSourcesOnly + "\nb:\n\t@" + kTool + " " + spec + " -o b" +
                          kSourcesOnly + "\n");
  const Ran r = shell("unset MAKEFLAGS; make -s -j3 -C " + t.path);
  INFO(r.err);
  REQUIRE(r.exit == 0);  // make complains where a token is lost
  CHECK(r.err.empty());
  CHECK(t.read("a/one.cu") == t.read("b/one.cu"));
}

TEST_CASE("docs/reference is what the command prints") {
  for (const char* topic : {"options", "operators", "errors", "environment"}) {
    const std::string path = std::string(MIRAGE_SOURCE_DIR) + "/docs/reference/" + topic + ".md";
    if (std::getenv("MIRAGE_BLESS")) std::system((kTool + " --print-reference " + topic + " >" + path).c_str());
    INFO("mirage-opt --print-reference " << topic << " >docs/reference/" << topic << ".md");
    CHECK(read_file(path).value() == run_tool(std::string("--print-reference ") + topic).out);
  }
  CHECK(run_tool("--print-reference all").exit == 2);
}

TEST_CASE("every variable of the environment that is read is in the reference") {
  const std::string text = run_tool("--print-reference environment").out;
  const std::regex read_by_name(R"re((getenv|environ\.get|environment|variable)\(f?"([A-Z_]+)")re");
  std::set<std::string> names;
  for (const char* folder : {"lib", "cmd"})
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(MIRAGE_SOURCE_DIR) / folder)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".cc" && extension != ".py") continue;
      const std::string source = read_file(entry.path().string()).value();
      for (auto at = std::sregex_iterator(source.begin(), source.end(), read_by_name); at != std::sregex_iterator(); ++at)
        names.insert((*at)[2]);
    }
  CHECK(names.size() >= 8);
  for (const std::string& name : names) {
    INFO(name);
    if (name != "TORCH_LOGS" && name != "MIRAGE_OPT_LIBRARY_")
      CHECK(text.find("`" + name + "`") != std::string::npos);  // PyTorch's own; one per program
  }
}

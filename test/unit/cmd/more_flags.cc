// Flags for scripts and CI: einsum, cache, lock, frozen, JUnit, baseline, completions, manual page.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>
#include "mirage/support/file.h"
#include "mirage/support/options.h"

using namespace mirage;
namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

struct TempFolder {
  std::string path;
  TempFolder() {
    std::string pattern = (fs::temp_directory_path() / "mirage-flags.XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()));
    path = pattern;
  }
  ~TempFolder() { fs::remove_all(path); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path + "/" + name) << text;
    return path + "/" + name;
  }
  std::string read(const std::string& name) const { return read_file(path + "/" + name).value(); }
};

struct Run { int exit = -1; std::string out, err; };

Run opt(const std::vector<std::string>& arguments) {
  TempFolder temp;
  std::string command = "'" + std::string(MIRAGE_BINARY_DIR) + "/mirage-opt'";
  for (const std::string& a : arguments) command += " '" + a + "'";
  const int status = std::system((command + " >" + temp.path + "/out 2>" + temp.path + "/err </dev/null").c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), temp.read("out"), temp.read("err")};
}

std::string spec(const std::string& name, int width) {
  return R"({"name": ")" + name + R"(", "inputs": {"x": {"shape": [8, 256], "dtype": "float16"}, "w": {"shape": [256, )" +
         std::to_string(width) + R"(], "dtype": "float16"}},
    "outputs": {"y": {"shape": [8, )" +
         std::to_string(width) + R"(], "dtype": "float16"}},
    "nodes": [{"op": "rms_norm", "inputs": ["x"], "output": "n"}, {"op": "matmul", "inputs": ["n", "w"], "output": "y"}]})";
}

const std::string kTexts = "--emit=cu,h,graph,certificate,report";

}  // namespace

TEST_CASE("--einsum is a spec") {
  TempFolder t;
  CHECK(opt({"--einsum", "mk,kn->mn m=16 k=64 n=32 f16", "--check"}).exit == 0);
  CHECK(opt({"--einsum", "mk,kn->mn m=16 k=64 n=32 bf16", "--canonicalize"}).out.find("bfloat16") != std::string::npos);
  CHECK(opt({"--einsum", "mk,kn->mn m=16 k=64 n=32", "-o", t.path + "/out", "--emit=cu,graph"}).exit == 0);
  CHECK(fs::exists(t.path + "/out/einsum.cu"));
  CHECK(opt({"--einsum", "mk,kn->mn m=16 k=64", "--check"}).exit == 2);
  CHECK(opt({"--einsum", "mk,kn-mn", "--check"}).exit == 2);
}

TEST_CASE("a report says of a recalled decision only what this run did") {
  TempFolder t;
  const std::string a = t.write("a.json", spec("one", 320)), cache = t.path + "/cache";
  const auto what = [&](const std::vector<std::string>& words) {
    std::vector<std::string> all = {a, "-o", t.path + "/out", kTexts, "--states", "2000"};
    all.insert(all.end(), words.begin(), words.end());
    REQUIRE(opt(all).exit == 0);
    const Json report = Json::parse(t.read("out/report.json"));
    return report.contains("remembered") ? report["remembered"]["what"].get<std::string>() : "";
  };
  CHECK(what({"--gate", "none", "--cache", cache}).empty());
  CHECK(what({"--gate", "none", "--cache", cache}) ==
        "decided before, by the cache; verified and proved again in this run, without a search");
  if (opt({a, "-o", t.path + "/out", kTexts, "--gate", "emulate", "--states", "0"}).exit != 0) { WARN("skipped: there is no g++"); return; }
  const std::string earlier = "; that its kernels passed the emulation gate is known of an earlier run";
  CHECK(what({"--gate", "emulate", "--cache", cache, "--lock", t.path + "/lock"}).find(earlier) == std::string::npos);
  CHECK(what({"--gate", "emulate", "--cache", cache}).ends_with("without a search" + earlier));
  CHECK(what({"--gate", "emulate", "--lock", t.path + "/lock", "--no-cache"}) ==
        "decided before, by the lock; verified, proved and emulated again in this run, without a search");
}

TEST_CASE("a lock pins the decision, and --frozen asks for one") {
  TempFolder t;
  const std::string a = t.write("a.json", spec("one", 320)), lock = t.path + "/lock.json";
  CHECK(opt({a, "-o", t.path + "/none", kTexts, "--frozen"}).exit == 10);
  CHECK(opt({a, "-o", t.path + "/none", kTexts, "--frozen", "--lock", lock}).exit == 10);
  CHECK(!fs::exists(lock));
  REQUIRE(opt({a, "-o", t.path + "/first", kTexts, "--lock", lock}).exit == 0);
  const std::string text = t.read("lock.json");
  const Run again = opt({a, "-o", t.path + "/again", kTexts, "--frozen", "--lock", lock});
  INFO(again.err);
  REQUIRE(again.exit == 0);
  CHECK(t.read("lock.json") == text);
  for (const char* file : {"one.cu", "one.h", "one.graph", "certificate.json"})
    CHECK(t.read("again/" + std::string(file)) == t.read("first/" + std::string(file)));
  CHECK(Json::parse(t.read("again/report.json"))["remembered"]["from"] == "the lock");
  CHECK(opt({a, "-o", t.path + "/other", kTexts, "--frozen", "--lock", lock, "--target=sm_80"}).exit == 10);   // another result
  CHECK(opt({t.write("b.json", spec("two", 192)), "-o", t.path + "/two", kTexts, "--lock", lock}).exit == 0);
  CHECK(Json::parse(t.read("lock.json"))["decisions"].size() == 2);
  // A lock that was changed by hand is not believed.
  Json j = Json::parse(text);
  auto& certificate = j["decisions"].begin().value()["certificate"];
  if (certificate.contains("numbers") && !certificate["numbers"].empty()) certificate["numbers"][0]["grid_tile"][0] = 7;
  else certificate["graph"] = "kernel g {\n}\n";
  CHECK(opt({a, "-o", t.path + "/bad", kTexts, "--lock", t.write("bad.json", j.dump())}).exit == 5);
  CHECK(opt({a, "-o", t.path + "/bad", kTexts, "--lock", t.write("junk.json", "{]")}).exit == 5);
}

TEST_CASE("a cache is used, and one that is damaged is not") {
  TempFolder t;
  const std::string a = t.write("a.json", spec("one", 320)), cache = t.path + "/cache";
  REQUIRE(opt({a, "-o", t.path + "/first", kTexts, "--cache", cache}).exit == 0);
  std::vector<fs::path> decisions;   // beside them what the compiler said
  for (const auto& e : fs::directory_iterator(cache))
    if (e.path().extension() == ".json") decisions.push_back(e.path());
  REQUIRE(decisions.size() == 1);
  const fs::path entry = decisions[0];
  REQUIRE(opt({a, "-o", t.path + "/again", kTexts, "--cache", cache, "--frozen"}).exit == 0);
  CHECK(t.read("again/one.cu") == t.read("first/one.cu"));
  CHECK(opt({a, "-o", t.path + "/not", kTexts, "--cache", cache, "--no-cache", "--frozen"}).exit == 10);
  std::ofstream(entry) << "{\"schema_version\": 1";
  REQUIRE(opt({a, "-o", t.path + "/third", kTexts, "--cache", cache}).exit == 0);
  CHECK(t.read("third/one.cu") == t.read("first/one.cu"));
  CHECK(read_file(entry.string()).value().size() > 1000);   // written anew
  // no folder, as one that CI shares read-only: a warning, the result is there
  const Run unkept = opt({a, "-o", t.path + "/fourth", kTexts, "--cache", a});
  CHECK(unkept.exit == 0);
  CHECK(unkept.err.find("the decision was not kept in the cache") != std::string::npos);
  CHECK(t.read("fourth/one.cu") == t.read("first/one.cu"));
}

TEST_CASE("--junit and --baseline") {
  TempFolder t;
  const std::string a = t.write("a.json", spec("one", 320)), bad = t.write("b.json", "{\"name\": \"bad\", \"zzz\": 1}");
  CHECK(opt({a, bad, "-o", t.path + "/out", kTexts, "--junit", t.path + "/junit.xml", "--report", t.path + "/report.json"}).exit == 3);
  const std::string xml = t.read("junit.xml");
  CHECK(xml.find("<testsuite name=\"mirage-opt\" tests=\"2\" failures=\"1\"") != std::string::npos);
  CHECK(xml.find("<testcase name=\"one\"") != std::string::npos);
  const std::string unreadable = t.write("c.json", "{]");   // one without a name is known by its file
  CHECK(opt({a, unreadable, "-o", t.path + "/out", kTexts, "--junit", t.path + "/unread.xml", "--report", t.path + "/unread.json"}).exit ==
        3);
  CHECK(t.read("unread.xml").find("<testcase name=\"" + unreadable + "\"") != std::string::npos);
  CHECK(Json::parse(t.read("unread.json"))["specs"][0]["errors"][0]["file"] == unreadable);
  CHECK(xml.find("zzz") != std::string::npos);
  CHECK(xml.find("\xff") == std::string::npos);
  // What is no report, or one that somebody changed, is no bug of ours.
  CHECK(opt({a, "-o", t.path + "/out2", kTexts, "--baseline",
             t.write("odd.json", R"({"name": "one", "result": {"predicted_us": 0.001, "why": 3}, "target": "sm_90a"})")})
            .exit == 9);
  CHECK(opt({a, "-o", t.path + "/out2", kTexts, "--baseline",
             t.write("odd.json", R"({"name": "one", "result": {"predicted_us": 0.001}, "target": 5})")})
            .exit == 0);
  CHECK(opt({a, "-o", t.path + "/out2", kTexts, "--baseline", t.write("odd.json", R"({"name": "one", "result": 7, "target": "sm_90a"})")})
            .exit == 2);
  // The same again is no regression; a baseline that was faster is one, with both numbers.
  CHECK(opt({a, "-o", t.path + "/out2", kTexts, "--baseline", t.path + "/report.json"}).exit == 0);
  Json base = Json::parse(t.read("out/one/report.json"));
  const double us = base["result"]["predicted_us"].get<double>();
  base["result"]["predicted_us"] = us / 2;
  const Run slower = opt({a, "-o", t.path + "/out3", kTexts, "--baseline", t.write("base.json", base.dump())});
  CHECK(slower.exit == 9);
  CHECK(slower.err.find("one: ") != std::string::npos);
  CHECK(fs::exists(t.path + "/out3/one.cu"));   // written all the same
  base["result"]["predicted_us"] = us * 2;
  CHECK(opt({a, "-o", t.path + "/out4", kTexts, "--baseline", t.write("base.json", base.dump())}).exit == 0);
  CHECK(opt({a, "-o", t.path + "/out5", kTexts, "--baseline", t.write("junk.json", "[")}).exit == 2);
  CHECK(opt({a, "-o", t.path + "/out6", kTexts, "--baseline", t.path + "/none.json"}).exit == 11);
}

TEST_CASE("completions and the manual page name every flag") {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Run r = opt({std::string("--print-completion=") + shell});
    REQUIRE(r.exit == 0);
    for (const OptionInfo& o : option_table()) {
      INFO(shell << " " << o.flag);
      CHECK(r.out.find(o.flag.substr(2)) != std::string::npos);
    }
    CHECK(r.out.find("sm_90a") != std::string::npos);
  }
  CHECK(opt({"--print-completion=csh"}).exit == 2);
  TempFolder t;
  const std::string bash = t.write("c.bash", opt({"--print-completion=bash"}).out);
  CHECK(std::system(("bash -n " + bash).c_str()) == 0);
  CHECK(std::system(
            ("bash -c '. " + bash + "; COMP_WORDS=(mirage-opt --targ); COMP_CWORD=1; _mirage_opt; [ \"${COMPREPLY[*]}\" = --target ]'")
                .c_str()) == 0);
  const Run man = opt({"--print-man"});
  REQUIRE(man.exit == 0);
  CHECK(man.out.starts_with(".TH MIRAGE"));
  for (const OptionInfo& o : option_table()) {
    std::string escaped;
    for (char c : o.flag) escaped += c == '-' ? std::string("\\-") : std::string(1, c);
    INFO(o.flag);
    CHECK(man.out.find(escaped) != std::string::npos);
  }
}

TEST_CASE("--run knows every stage that can run alone") {
  TempFolder t;
  const std::string a = t.write("a.json", spec("one", 64));
  for (const char* stage : {"parse", "search", "verify", "choose", "partition", "plan", "emit"}) {
    const Run r = opt({a, std::string("--run=") + stage});
    INFO(stage << " " << r.err);
    CHECK(r.exit == 0);
    CHECK(!r.out.empty());
  }
  CHECK(opt({a, "--run=pars"}).err.find("did you mean 'parse'?") != std::string::npos);
}

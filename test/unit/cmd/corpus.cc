// Corpora on the command line: folders, shards, resuming, merged reports, and processes that share a cache and a lock.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "mirage/support/file.h"

using namespace mirage;
namespace fs = std::filesystem;
using CorpusJson = nlohmann::ordered_json;

namespace {

struct CorpusFolder {
  std::string path;
  CorpusFolder() {
    std::string pattern = (fs::temp_directory_path() / "mirage-corpus.XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()));
    path = pattern;
  }
  ~CorpusFolder() { fs::remove_all(path); }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(path + "/" + name).parent_path());
    std::ofstream(path + "/" + name) << text;
  }
  std::string read(const std::string& name) const {
    const auto text = read_file(path + "/" + name);
    return text ? *text : "";
  }
};

struct Ran { int exit = -1; std::string err; };

Ran run_line(const std::string& arguments, const std::string& before = "") {
  const CorpusFolder t;
  const int status = std::system(
      (before + " '" + MIRAGE_BINARY_DIR + "/mirage-opt' " + arguments + " >" + t.path + "/out 2>" + t.path + "/err </dev/null").c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), t.read("err")};
}

std::string small_spec(const std::string& name, int width) {
  return R"({"name": ")" + name + R"(", "inputs": {"x": {"shape": [8, 64], "dtype": "float16"}, "w": {"shape": [64, )" +
         std::to_string(width) + R"(], "dtype": "float16"}},
    "outputs": {"y": {"shape": [8, )" +
         std::to_string(width) + R"(], "dtype": "float16"}},
    "nodes": [{"op": "rms_norm", "inputs": ["x"], "output": "n"}, {"op": "matmul", "inputs": ["n", "w"], "output": "y"}]})";
}

const std::string kFast = " --emit=cu,h,graph,certificate,report,html --gate none ";

/// Eight specs in three folders, one name twice.
void write_corpus(const CorpusFolder& t) {
  for (int i = 0; i < 5; i++) t.write("specs/s" + std::to_string(i) + ".json", small_spec("s" + std::to_string(i), 32 + 16 * i));
  t.write("specs/sub/s1.json", small_spec("s1", 128));
  t.write("specs/sub/deep/t.json", small_spec("t", 144));
  t.write("specs/sub/deep/u.json", small_spec("u", 160));
}

/// Without times.
CorpusJson timeless(const std::string& text) {
  CorpusJson j = CorpusJson::parse(text);
  for (CorpusJson& s : j["specs"]) {
    s.erase("elapsed_seconds"), s.erase("seconds");
    if (s.contains("search")) s["search"].erase("seconds");
    if (s.contains("search") && s["search"].contains("winner")) s["search"]["winner"].erase("seconds");
  }
  return j;
}

/// Every file below, by its path.
std::map<std::string, std::string> files_below(const std::string& folder) {
  std::map<std::string, std::string> out;
  for (const auto& e : fs::recursive_directory_iterator(folder))
    if (e.is_regular_file()) out[fs::relative(e.path(), folder).string()] = read_file(e.path().string()).value();
  return out;
}

}  // namespace

TEST_CASE("a corpus: folders in folders, shards that make one report, results that are there already") {
  const CorpusFolder t;
  write_corpus(t);
  const std::string specs = t.path + "/specs ";
  REQUIRE(run_line(specs + "-o " + t.path + "/one -j1 --report " + t.path + "/one.json" + kFast).exit == 0);
  for (const char* folder : {"s0", "s1", "sub/s1", "sub/deep/t", "sub/deep/u"})
    CHECK(fs::exists(t.path + "/one/" + folder + "/report.json"));
  const auto one = files_below(t.path + "/one");
  CHECK(one.at("index.html").find("sub/deep/t/report.html") != std::string::npos);
  CHECK(one.at("index.html").find("<td") < one.at("index.html").size());

  // In processes, several at a time: the same.
  REQUIRE(run_line(specs + "-o " + t.path + "/many -j4 --report " + t.path + "/many.json --junit " + t.path + "/many.xml" + kFast).exit ==
          0);
  CHECK(files_below(t.path + "/many") == one);
  CHECK(timeless(t.read("many.json")) == timeless(t.read("one.json")));
  const std::string junit = t.read("many.xml");
  CHECK(junit.find("tests=\"8\" failures=\"0\" time=\"") != std::string::npos);
  CHECK(junit.find("<testcase name=\"sub/s1\" classname=\"mirage-opt\" time=\"") != std::string::npos);

  // Four shards: each spec in one, and together one run.
  std::string parts;
  size_t specs_in_parts = 0;
  for (int i = 1; i <= 4; i++) {
    const std::string part = t.path + "/part" + std::to_string(i) + ".json";
    REQUIRE(run_line(specs + "-o " + t.path + "/sharded -j2 --shard " + std::to_string(i) + "/4 --report " + part + kFast).exit == 0);
    specs_in_parts += CorpusJson::parse(read_file(part).value())["specs"].size();
    parts += " " + part;
  }
  CHECK(specs_in_parts == 8);
  CHECK(!fs::exists(t.path + "/sharded/index.html"));
  REQUIRE(run_line("--merge-reports " + t.path + "/merged.json -o " + t.path + "/sharded" + parts).exit == 0);
  CHECK(timeless(t.read("merged.json")) == timeless(t.read("one.json")));
  CHECK(files_below(t.path + "/sharded") == one);
  CHECK(run_line("--merge-reports " + t.path + "/twice.json " + t.path + "/part1.json " + t.path + "/one.json").exit == 2);
  CHECK(run_line("--merge-reports " + t.path + "/none.json " + t.path + "/specs/s0.json").exit == 2);
  for (const char* bad : {"0/4", "5/4", "1", "1/0", "a/b", "1/4x"})
    CHECK(run_line(specs + "-o " + t.path + "/bad --shard " + std::string(bad) + kFast).exit == 2);

  // Resumed: what is there stays, what is gone or of other options is made.
  fs::remove(t.path + "/many/s2/certificate.json");
  const auto before = fs::last_write_time(t.path + "/many/s0/report.json");
  const Ran resumed = run_line(specs + "-o " + t.path + "/many -j1 --resume --report " + t.path + "/resumed.json" + kFast);
  CHECK(resumed.exit == 0);
  CHECK(std::count(resumed.err.begin(), resumed.err.end(), '\n') > 0);
  CHECK(fs::last_write_time(t.path + "/many/s0/report.json") == before);
  CHECK(files_below(t.path + "/many") == one);
  CHECK(timeless(t.read("resumed.json")) == timeless(t.read("one.json")));
  CHECK(run_line(specs + "-o " + t.path + "/many -j2 --resume --states 0" + kFast).err.find("done before") == std::string::npos);
}

TEST_CASE("in a corpus names are taken within a folder only, and the results of earlier runs are no specs") {
  const CorpusFolder t;
  t.write("specs/a.json", small_spec("same", 32));
  t.write("specs/sub/b.json", small_spec("same", 48));
  t.write("specs/.hidden/c.json", "{");
  const std::string fast = " --emit=cu,certificate,report --gate none --states 0";
  CHECK(run_line(t.path + "/specs -o " + t.path + "/specs/out" + fast).exit == 0);
  CHECK(run_line(t.path + "/specs -o " + t.path + "/specs/out" + fast).exit == 0);
  CHECK(run_line(t.path + "/specs -o " + t.path + "/elsewhere" + fast).exit == 0);   // specs/out has results
  CHECK(!fs::exists(t.path + "/elsewhere/out"));
  t.write("specs/sub/d.json", small_spec("same", 64));
  const Ran twice = run_line(t.path + "/specs -o " + t.path + "/twice" + fast);
  CHECK(twice.exit == 2);
  CHECK(twice.err.find("the name 'same' is taken by") != std::string::npos);
}

TEST_CASE("a spec without a result fails alone, and a regression is a failure of its case") {
  const CorpusFolder t;
  write_corpus(t);
  t.write("specs/bad.json", "{\"inputs\": {}}");
  const std::string fast = " --emit=cu,certificate,report --gate none --states 0 ";
  const Ran r = run_line(t.path + "/specs -o " + t.path + "/out -j3 --report " + t.path + "/r.json --junit " + t.path + "/j.xml" + fast);
  CHECK(r.exit == 3);
  const CorpusJson report = CorpusJson::parse(t.read("r.json"));
  CHECK(report["specs"].size() == 9);
  CHECK(t.read("j.xml").find("tests=\"9\" failures=\"1\"") != std::string::npos);
  CHECK(fs::exists(t.path + "/out/sub/deep/u/report.json"));
  fs::remove(t.path + "/specs/bad.json");
  // A folder of earlier results is a baseline; one result in it was faster.
  CorpusJson earlier = CorpusJson::parse(t.read("out/sub/s1/report.json"));
  earlier["result"]["predicted_us"] = earlier["result"]["predicted_us"].get<double>() / 2;
  t.write("out/sub/s1/report.json", earlier.dump());
  const Ran slower = run_line(t.path + "/specs -o " + t.path + "/again -j3 --no-measure --baseline " + t.path + "/out --junit " + t.path +
                              "/k.xml" + fast);
  CHECK(slower.exit == 9);
  CHECK(slower.err.find("sub/s1") != std::string::npos);
  CHECK(t.read("k.xml").find("tests=\"8\" failures=\"1\"") != std::string::npos);
  CHECK(t.read("k.xml").find("slower than the baseline") != std::string::npos);
  CHECK(run_line(t.path + "/specs -o " + t.path + "/more --no-measure --baseline " + t.path + "/again" + fast).exit == 0);
  CHECK(run_line(t.path + "/specs -o " + t.path + "/more --baseline " + t.path + "/specs" + fast).exit == 11);
}

TEST_CASE("sixteen processes with one cache and one lock leave the bytes of a serial run, and what is remembered keeps its reason") {
  const CorpusFolder t;
  std::string makefile = "all:", serial;
  for (int i = 0; i < 16; i++) {
    const std::string n = "p" + std::to_string(i);
    t.write("specs/" + n + ".json", small_spec(n, 16 + 16 * i));
    makefile += " " + n;
  }
  makefile += "\n";
  for (int i = 0; i < 16; i++) {
    const std::string n = "p" + std::to_string(i);
    makefile += n + ":\n\t'" + MIRAGE_BINARY_DIR + "/mirage-opt' specs/" + n + ".json -o $(OUT)/" + n +
                " --cache $(OUT).cache --lock $(OUT).lock --quiet -j1" + kFast + "\n";
  }
  t.write("Makefile", makefile);
  REQUIRE(std::system(("make -C " + t.path + " -s -j1 OUT=serial >/dev/null 2>&1").c_str()) == 0);
  REQUIRE(std::system(("make -C " + t.path + " -s -j16 OUT=parallel >/dev/null 2>&1").c_str()) == 0);
  CHECK(files_below(t.path + "/serial") == files_below(t.path + "/parallel"));
  CHECK(t.read("serial.lock") == t.read("parallel.lock"));
  CHECK(CorpusJson::parse(t.read("serial.lock"))["decisions"].size() == 16);
  CHECK(files_below(t.path + "/serial.cache") == files_below(t.path + "/parallel.cache"));

  const auto without = [](std::map<std::string, std::string> files) {   // what a recalled decision may say otherwise
    for (auto& [name, text] : files) {
      if (name.ends_with("report.html")) text.clear();
      if (!name.ends_with("report.json")) continue;
      CorpusJson j = CorpusJson::parse(text);
      j.erase("remembered");
      text = j.dump();
    }
    return files;
  };
  // From the cache alone (through the environment), then frozen from the lock alone.
  REQUIRE(run_line(t.path + "/specs -o " + t.path + "/warm -j2" + kFast, "MIRAGE_OPT_CACHE=" + t.path + "/serial.cache").exit == 0);
  REQUIRE(run_line(t.path + "/specs -o " + t.path + "/frozen -j2 --frozen --lock " + t.path + "/serial.lock" + kFast).exit == 0);
  for (const char* folder : {"warm", "frozen"}) {
    auto files = files_below(t.path + "/" + folder);
    files.erase("index.html");
    CHECK(without(files) == without(files_below(t.path + "/serial")));
    CHECK(CorpusJson::parse(files.at("p3/report.json")).contains("remembered"));
  }
  CHECK(t.read("serial.lock") == t.read("parallel.lock"));   // frozen: not touched
}

TEST_CASE("--explain-result prints the steps") {
  const CorpusFolder t;
  t.write("a.json", small_spec("a", 64));
  const std::string command = std::string("'") + MIRAGE_BINARY_DIR + "/mirage-opt' " + t.path + "/a.json -o " + t.path +
                              "/out --quiet --explain-result" + kFast + " >" + t.path + "/steps";
  REQUIRE(std::system(command.c_str()) == 0);
  CHECK(t.read("steps").find("the program, operator by operator") != std::string::npos);
  CHECK(t.read("steps").find("saves") != std::string::npos);
}

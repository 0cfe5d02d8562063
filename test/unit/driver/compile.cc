// compile() on small specs: what is written, exit codes, determinism, never worse than the straightforward library, evidence that can be
// tested again.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unistd.h>
#include "driver/toolchain/build.h"
#include "driver/decide/candidates.h"
#include "driver/evidence/certificate_file.h"
#include "driver/decide/numbers.h"
#include "driver/output/outputs.h"
#include "driver/report/report.h"
#include "mirage/driver/compile.h"
#include "mirage/driver/modes.h"
#include "mirage/support/file.h"

using namespace mirage;
namespace fs = std::filesystem;
using Json = nlohmann::json;

namespace {

const char* const kNorm = R"({"name": "small_norm",
  "inputs": {"x": {"shape": [8, 256], "dtype": "float16"}, "w": {"shape": [256, 320], "dtype": "float16"}},
  "outputs": {"y": {"shape": [8, 320], "dtype": "float16"}},
  "nodes": [{"op": "rms_norm", "inputs": ["x"], "output": "n"}, {"op": "matmul", "inputs": ["n", "w"], "output": "y"}]})";
const char* const kAdd =
    R"({"name": "small_add", "inputs": {"a": {"shape": [4, 5], "dtype": "float32"}}, "outputs": {"b": {"shape": [4, 5], "dtype": "float32"}},
  "nodes": [{"op": "add", "inputs": ["a", "a"], "output": "b"}]})";

struct TempFolder {
  std::string path;
  TempFolder() {
    std::string pattern = (fs::temp_directory_path() / "mirage-test.XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()));
    path = pattern;
  }
  ~TempFolder() { fs::remove_all(path); }
};

/// Everything but the library, so that tests run with and without CUDA.
Options text_only() {
  Options o;
  o.emit = {"cu", "h", "graph", "dot", "certificate", "harness", "python", "cmake", "makefile"};
  return o;
}

CompileResult run(const std::string& text, Options o, const std::string& output = "", const Listener& listener = {}) {
  o.output = output;
  Trace trace;
  return compile(o, {"test.json", text}, trace, listener);
}

std::map<std::string, std::string> contents(const std::string& dir) {
  std::map<std::string, std::string> out;
  for (const auto& e : fs::directory_iterator(dir)) out[e.path().filename().string()] = read_file(e.path().string()).value();
  return out;
}

}  // namespace

TEST_CASE("a spec becomes a folder of files") {
  TempFolder temp;
  const CompileResult r = run(kNorm, text_only(), temp.path + "/out");
  CHECK(r.exit == ExitCode::kOk);
  CHECK(r.name == "small_norm");
  const auto files = contents(temp.path + "/out");
  CHECK(files == r.files);
  for (const char* name : {"small_norm.cu", "small_norm.h", "small_norm.graph", "small_norm.dot", "certificate.json", "small_norm_check.cu",
                           "small_norm.py", "Makefile", "CMakeLists.txt"})
    CHECK(files.contains(name));
  CHECK_FALSE(files.contains("report.json"));
  for (const auto& [name, text] : files) {
    INFO(name);
    CHECK(text.find(temp.path) == std::string::npos);
  }
}

TEST_CASE("the result is the same for any number of threads, folder and run") {
  Options one = text_only(), two = text_only();
  one.jobs = 1, two.jobs = 4;
  const CompileResult a = run(kNorm, one), b = run(kNorm, two);
  CHECK(a.files == b.files);
  CHECK(a.report == b.report);
  CHECK(a.explanation == b.explanation);
}

TEST_CASE("the report says what was searched, chosen and why, and is never worse than straightforward") {
  const CompileResult r = run(kNorm, text_only());
  const Json report = Json::parse(r.report);
  CHECK(report["schema_version"] == 1);
  CHECK(report["search"]["states"].get<int64_t>() > 0);
  CHECK(report["search"]["winner"]["states"].get<int64_t>() > 0);
  CHECK(report["search"]["winner"]["states"].get<int64_t>() <= report["search"]["states"].get<int64_t>());
  CHECK(report["search"]["candidates"] == report["search"]["verified"].get<int64_t>() + report["search"]["rejected"].get<int64_t>() +
                                              report["search"]["unknown"].get<int64_t>());
  CHECK(report["result"]["predicted_us"].get<double>() <= report["result"]["straightforward_us"].get<double>());
  CHECK(report["result"]["kind"] == "searched");
  CHECK(report["result"]["kernels"].size() == 1);
  CHECK(report["evidence"].size() == 2);
  REQUIRE(report["supported_by"].size() >= 2);
  CHECK(report["supported_by"][0].get<std::string>().starts_with("proved equal to the program at the sizes of the spec"));
  CHECK(report["supported_by"][1].get<std::string>().find("probability at most 2^-") != std::string::npos);
  for (const auto& line : report["supported_by"]) CHECK(r.explanation.find(line.get<std::string>()) != std::string::npos);
  CHECK(r.report.find("seconds") == std::string::npos);
  CHECK(Json::parse(r.timed_report).contains("seconds"));
  int chosen = 0;
  for (const Json& a : report["alternatives"]) chosen += a["chosen"].get<bool>();
  CHECK(chosen == 1);
}

TEST_CASE("without a search the straightforward library is the result, and says so") {
  Options o = text_only();
  o.states = 0;
  const CompileResult r = run(kNorm, o);
  CHECK(r.exit == ExitCode::kOk);
  const Json report = Json::parse(r.report);
  CHECK(report["result"]["kind"] == "straightforward");
  CHECK(report["result"]["why"].get<std::string>().find("not searched: --states 0") != std::string::npos);
  CHECK(report["options"] == "--states 0");
  const Json& apart = report["result"]["without_passes"];   // which join what the spec writes apart
  CHECK(apart["kernels"].get<size_t>() > report["result"]["kernels"].size());
  CHECK(apart["predicted_us"].get<double>() > report["result"]["predicted_us"].get<double>());
}

TEST_CASE("an interrupt ends with what there is") {
  std::atomic<bool> interrupted{true};
  Listener listener;
  listener.interrupted = &interrupted;
  TempFolder temp;
  const CompileResult r = run(kNorm, text_only(), temp.path + "/out", listener);
  CHECK(fs::exists(temp.path + "/out/small_norm.cu"));
  CHECK(r.files.contains("small_norm.cu"));
  CHECK(std::any_of(r.notes.begin(), r.notes.end(), [](const std::string& n) { return n.find("interrupted") != std::string::npos; }));
}

TEST_CASE("errors have the exit code of their diagnostic and leave no files") {
  TempFolder temp;
  CHECK(run("{", text_only(), temp.path + "/a").exit == ExitCode::kInvalidSpec);
  CHECK_FALSE(fs::exists(temp.path + "/a"));
  Options o = text_only();
  o.target = "sm_90";
  const CompileResult r = run(kAdd, o, temp.path + "/b");
  CHECK(r.exit == ExitCode::kUsage);
  REQUIRE(!r.diagnostics.empty());
  CHECK(r.diagnostics[0].notes.at(0).text.find("sm_90a") != std::string::npos);
  std::ofstream(temp.path + "/file") << "x";
  CHECK(run(kAdd, text_only(), temp.path + "/file").exit == ExitCode::kIo);
  CHECK(Json::parse(run("{", text_only()).timed_report)["exit_code"] == 3);
}

TEST_CASE("a library of other sources does not survive") {
  TempFolder temp;
  REQUIRE(run(kAdd, text_only(), temp.path).exit == ExitCode::kOk);
  std::ofstream(temp.path + "/libsmall_add.so") << "\x7f" "ELF small_add_launch";
  std::ofstream(temp.path + "/foreign.txt") << "mine";
  REQUIRE(run(kAdd, text_only(), temp.path).exit == ExitCode::kOk);
  CHECK(fs::exists(temp.path + "/libsmall_add.so"));
  std::ofstream(temp.path + "/small_add.cu") << "// generated by mirage-opt, other";
  REQUIRE(run(kAdd, text_only(), temp.path).exit == ExitCode::kOk);
  CHECK_FALSE(fs::exists(temp.path + "/libsmall_add.so"));
  CHECK(fs::exists(temp.path + "/foreign.txt"));
}

TEST_CASE("somebody else's Makefile is left alone, one of ours is replaced") {
  TempFolder temp;
  std::ofstream(temp.path + "/Makefile") << "all:\n\techo mine\n";
  const CompileResult r = run(kAdd, text_only(), temp.path);
  CHECK(r.exit == ExitCode::kOk);
  CHECK(read_file(temp.path + "/Makefile").value() == "all:\n\techo mine\n");
  CHECK(std::any_of(r.notes.begin(), r.notes.end(), [](const std::string& n) { return n.find("Makefile was not written") == 0; }));
  std::ofstream(temp.path + "/Makefile") << "# generated by mirage-opt, an older one\n";
  REQUIRE(run(kAdd, text_only(), temp.path).exit == ExitCode::kOk);
  CHECK(read_file(temp.path + "/Makefile").value() == r.files.at("Makefile"));
}

TEST_CASE("a program that is called like a file of everybody's leaves that file alone, too") {
  for (const auto& [name, file] : {std::pair{"Make", "Makefile"}, {"report", "report.json"}, {"C", "CMakeLists.txt"}}) {
    TempFolder temp;
    std::ofstream(temp.path + "/" + file) << "mine\n";
    std::string spec = kAdd;
    spec.replace(spec.find("small_add"), 9, name);
    CHECK(run(spec, text_only(), temp.path).exit == ExitCode::kOk);
    CHECK(read_file(temp.path + "/" + file).value() == "mine\n");
    CHECK(fs::exists(temp.path + "/" + name + ".cu"));
  }
}

TEST_CASE("certificates hold, and not for another program, other numbers or another graph") {
  const CompileResult r = run(kNorm, text_only());
  const Source spec{"test.json", kNorm};
  const std::string text = r.files.at("certificate.json");
  auto outcome = [&](const std::string& t, const Source& s) { return check_certificate(Source{"c.json", t}, {s}, Options{}).exit; };
  CHECK(outcome(text, spec) == ExitCode::kOk);
  CHECK(outcome(text, {"add.json", kAdd}) == ExitCode::kNotEqual);
  CHECK(outcome("{}", spec) == ExitCode::kNotEqual);
  CHECK(outcome("nonsense", spec) == ExitCode::kNotEqual);
  const Json whole = Json::parse(text);
  auto changed = [&](auto&& change) {
    Json j = whole;
    change(j);
    return outcome(j.dump(), spec);
  };
  CHECK(changed([](Json&) {}) == ExitCode::kOk);
  CHECK(changed([](Json& j) { j["claims"].erase(1); }) == ExitCode::kNotEqual);
  CHECK(changed([](Json& j) { j["claims"][0]["evidence"]["p"] = "0x1"; }) != ExitCode::kOk);
  CHECK(changed([](Json& j) { j["claims"][0]["evidence"]["log2_bound"] = -1000.0; }) != ExitCode::kOk);
  CHECK(changed([](Json& j) { j["numbers"][0]["grid_tile"][0] = j["numbers"][0]["grid_tile"][0].get<int>() + 16; }) != ExitCode::kOk);
  CHECK(changed([](Json& j) { j["numbers"] = Json::array(); }) != ExitCode::kOk);
  CHECK(changed([](Json& j) { j["schema_version"] = 99; }) != ExitCode::kOk);
  CHECK(changed([](Json& j) { j["kind"] = "straightforward"; }) != ExitCode::kOk);
  CHECK(changed([](Json& j) { j["structure"] = j["claims"][0]["reference"]; }) != ExitCode::kOk);
  Options straight = text_only();
  straight.states = 0;
  CHECK(outcome(run(kNorm, straight).files.at("certificate.json"), spec) == ExitCode::kOk);
  // What kernels passed is named as recorded, or repeated.
  Options emulated = straight;
  emulated.gate = "emulate";
  const std::string passed = run(kNorm, emulated).files.at("certificate.json");
  CHECK(passed.find("emulated in field") != std::string::npos);
  CHECK(outcome(passed, spec) == ExitCode::kOk);
  Options repeat;
  repeat.repeat_gates = true;
  CHECK(check_certificate(Source{"c.json", passed}, {spec}, repeat).text.find("repeated: kernels emulated") != std::string::npos);
  std::string other = passed;
  other.replace(other.find("emulated in field"), 8, "measured");
  CHECK(check_certificate(Source{"c.json", other}, {spec}, repeat).exit == ExitCode::kNotEqual);
}

TEST_CASE("small numbers keep the tail classes") {
  const std::vector<CallNumbers> extents = {{{100, 64, 0}, 4096}}, small = {{{7, 6, 0}, 9}};
  auto shrunk = [&](int64_t x, int64_t y, int64_t loop) { return shrink_numbers(extents, {{{x, y, 0}, loop}}, small)[0]; };
  CHECK(shrunk(25, 16, 64).grid_tile[2] == 0);
  CHECK(7 % shrunk(32, 16, 64).grid_tile[0] != 0);    // 100 over 32: ragged
  CHECK(7 % shrunk(25, 16, 64).grid_tile[0] == 0);    // 100 over 25: even, of 7 only by 1
  CHECK(6 % shrunk(32, 16, 64).grid_tile[1] == 0);
  CHECK(shrunk(32, 16, 64).grid_tile[1] < 6);
  CHECK(shrunk(100, 64, 4096).grid_tile[0] == 7);     // whole stays whole
  CHECK(shrunk(100, 64, 4096).loop_tile == 9);
  CHECK(9 % shrunk(32, 16, 1000).loop_tile != 0);
}

TEST_CASE("tile choices are ascending, within the extent, and hold the extent itself") {
  for (int64_t extent : {1, 2, 17, 333, 4096, 6144, 1000003}) {
    const auto tiles = tile_choices(extent, 132);
    CHECK(tiles.front() >= 1);
    CHECK(tiles.back() == extent);
    CHECK(std::is_sorted(tiles.begin(), tiles.end()));
    CHECK(tiles.size() < 60);
  }
  const auto tiles = tile_choices(6144, 132);
  CHECK(std::find(tiles.begin(), tiles.end(), 48) != tiles.end());
}

TEST_CASE("output kinds") {
  Options o;
  CHECK(wanted_outputs(o).contains(Emit::kSo));
  CHECK_FALSE(wanted_outputs(o).contains(Emit::kPtx));
  o.emit = {"ptx", "graph"};
  CHECK(wanted_outputs(o) == std::set<Emit>{Emit::kPtx, Emit::kGraph});
  CHECK(is_explicit(o, Emit::kPtx));
  CHECK(check_emit_list(emitted_kinds()).empty());
  const Diagnostics d = check_emit_list({"cu", "grap"});
  REQUIRE(d.size() == 1);
  CHECK(d[0].notes.at(0).text == "did you mean 'graph'?");
  CHECK(dependency_rule({"a b.cu"}, {"x$.json"}, true) == "a\\ b.cu: x$$.json\n\nx$$.json:\n");
  CHECK(dependency_rule({"a b.cu"}, {"x$.json"}, false) == "a\\ b.cu: x$$.json\n");
  Options named;
  named.lock = "l", named.baseline = "b", named.response_files = {"r1", "r2"};
  CHECK(dependencies(named, "s.json") == std::vector<std::string>{"s.json", "l", "b", "r1", "r2"});
  CHECK(dependencies(Options{}, "-").empty());
}

TEST_CASE("without CUDA: a remark, or exit code 7 for what was asked for by name") {
  TempFolder temp;
  auto folder = OutputFolder::open(temp.path);
  REQUIRE(folder.ok());
  CudaModule module;
  module.name = "m";
  module.files = {{"m.cu", ""}, {"m.map", ""}, {"m.h", ""}, {"m_check.cu", ""}};
  const Target target = *find_target("sm_90a");
  auto built = [&](const Options& o) { return build_outputs(module, target, o, wanted_outputs(o), *folder, Toolchain{}, nullptr); };
  const Built by_default = built({});
  CHECK(by_default.exit == ExitCode::kOk);
  CHECK(by_default.errors.empty());
  REQUIRE(by_default.not_done.size() == 2);
  CHECK(by_default.not_done[1].find("libm.so was not built: there is no nvcc") == 0);
  for (const char* kind : {"so", "ptx", "cubin"}) {
    Options o;
    o.emit = {kind};
    CHECK(built(o).exit == ExitCode::kToolchain);
  }
  Options texts;
  texts.emit = {"cu"};
  CHECK(built(texts).exit == ExitCode::kOk);
}

TEST_CASE("exit codes by severity") {
  CHECK(more_severe(ExitCode::kOk, ExitCode::kNotEqual) == ExitCode::kNotEqual);
  CHECK(more_severe(ExitCode::kBug, ExitCode::kIo) == ExitCode::kBug);
  CHECK(more_severe(ExitCode::kInvalidSpec, ExitCode::kUnsupported) == ExitCode::kInvalidSpec);
}

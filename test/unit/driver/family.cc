// Libraries for several sizes: every point has the kernels that its own library has, one module holds them, and the evidence is per point
// and can be checked again.
#include <catch2/catch.hpp>

#include <filesystem>
#include <set>

#include <nlohmann/json.hpp>

#include "driver/evidence/certificate_file.h"
#include "driver/output/family_files.h"
#include "mirage/driver/compile.h"
#include "mirage/driver/modes.h"
#include "mirage/spec/json_text.h"
#include "mirage/support/file.h"
#include "mirage/support/warden.h"

using namespace mirage;

namespace {

/// A norm and a product with M rows.
Source norm_spec(const std::string& m) {
  return {
      "norm.json",
      R"({"name": "norm", "axes": {"M": )" + m +
          R"(, "K": 1024, "N": 512}, "inputs": {"x": {"shape": ["M", "K"], "dtype": "float16"}, "w": {"shape": ["K", "N"], "dtype": "float16"}},
    "outputs": {"y": {"shape": ["M", "N"], "dtype": "float16"}}, "nodes": [{"op": "rms_norm", "inputs": ["x"], "output": "n"}, {"op": "matmul", "inputs": ["n", "w"], "output": "y"}]})"};
}
const char* const kValues = R"({"type": "var", "values": [1, 8, 16], "hint": 8})";

Options quick() {
  Options o;
  o.target = "sm_90a";
  o.gate = "none";
  o.emit = {"cu", "h", "graph", "dot", "report", "html", "certificate", "harness", "python", "cmake", "makefile"};
  return o;
}

CompileResult compiled(const Source& s, const Options& o) {
  Trace trace;
  CompileResult r = compile(o, s, trace);
  for (const Diagnostic& d : r.diagnostics) INFO(d.text);
  REQUIRE(r.exit == ExitCode::kOk);
  return r;
}

/// Kernels by name, each with "@" for its own name.
std::map<std::string, std::string> kernels_of(const std::string& cu) {
  std::map<std::string, std::string> out;
  for (size_t at = cu.find("__global__ void"); at != std::string::npos;) {
    const size_t line = cu.find('\n', at);
    if (cu.substr(at, line - at).ends_with("{ __trap(); }")) {   // stands in for one that needs the features of sm_90a
      at = cu.find("__global__ void", line);
      continue;
    }
    const size_t open = cu.find("norm_k", at), end = cu.find("\n}\n", at);
    const std::string name = cu.substr(open, cu.find('(', open) - open);
    std::string text = cu.substr(at, end - at);
    for (size_t n; (n = text.find(name)) != std::string::npos;) text.replace(n, name.size(), "@");
    out[name] = text;
    at = cu.find("__global__ void", end);
  }
  return out;
}

}  // namespace

TEST_CASE("every size has the kernels of its own library, which are searched once") {
  const CompileResult family = compiled(norm_spec(kValues), quick());
  const auto report = own_json(family.report);
  const auto kernels = kernels_of(family.files.at("norm.cu"));
  REQUIRE(report["points"].size() == 3);
  std::set<std::string> texts;
  for (const auto& point : report["points"]) {
    const auto m = point["dims"]["M"].get<int64_t>();
    INFO("M = " << m);
    const CompileResult own = compiled(norm_spec(std::to_string(m)), quick());
    const auto of_own = kernels_of(own.files.at("norm.cu"));
    REQUIRE(of_own.size() == point["result"]["kernels"].size());
    auto at = of_own.begin();
    for (const auto& k : point["result"]["kernels"]) {
      CHECK(kernels.at(k["name"].get<std::string>()) == at->second);
      texts.insert((at++)->second);
    }
    // Its evidence is that of its own library.
    CHECK(first_difference(own.certificate, family.certificates[static_cast<size_t>(&point - &report["points"][0])], "own") == "");
  }
  CHECK(kernels.size() == texts.size());   // equal ones once
  CHECK(report["search"]["carried_over"].get<int64_t>() >= 1);   // 8 and 16; one row has a smaller program
  CHECK(report["search"]["searches"].get<int64_t>() <= 3);
}

TEST_CASE("bind leaves the library of a spec with constants, byte for byte") {
  Options bound = quick();
  bound.bind = {"M=16"};
  const CompileResult a = compiled(norm_spec(kValues), bound), b = compiled(norm_spec("16"), quick());
  CHECK(a.files == b.files);
  Options given = quick();
  given.values = {"M=1", "8", "16"};
  const CompileResult c = compiled(norm_spec(R"({"type": "var", "hint": 8})"), given), d = compiled(norm_spec(kValues), quick());
  CHECK(own_json(c.report)["result"] == own_json(d.report)["result"]);
}

TEST_CASE("files of a family do not depend on the number of threads") {
  Options one = quick(), four = quick();
  one.jobs = 1, four.jobs = 4;
  CHECK(compiled(norm_spec(kValues), one).files == compiled(norm_spec(kValues), four).files);
}

TEST_CASE("a family's certificate is checked point by point") {
  const TemporaryFolder place;
  Options o = quick();
  o.output = place.path() + "/out";
  compiled(norm_spec(kValues), o);
  const std::string path = o.output + "/certificate.json";
  const Source certificate{path, *read_file(path)};
  const ModeResult good = check_certificate(certificate, {norm_spec(kValues)}, Options{});
  for (const Diagnostic& d : good.diagnostics) INFO(d.text);
  CHECK(good.exit == ExitCode::kOk);
  CHECK(good.text.find("norm.cu") != std::string::npos);
  // Another family, the program of one value, values in another order, a point's evidence moved to another.
  CHECK(check_certificate(certificate, {norm_spec(R"({"type": "var", "values": [1, 8]})")}, Options{}).exit == ExitCode::kNotEqual);
  CHECK(check_certificate(certificate, {norm_spec("8")}, Options{}).exit == ExitCode::kNotEqual);
  auto swapped = own_json(certificate.text);
  std::swap(swapped["points"][1]["certificate"], swapped["points"][2]["certificate"]);
  CHECK(check_certificate({path, swapped.dump()}, {norm_spec(kValues)}, Options{}).exit == ExitCode::kNotEqual);
  auto forged = own_json(certificate.text);
  forged["points"][0]["dims"]["M"] = 2;
  CHECK(check_certificate({path, forged.dump()}, {norm_spec(kValues)}, Options{}).exit == ExitCode::kNotEqual);
  auto shorter = own_json(certificate.text);
  shorter["points"].erase(2);
  CHECK(check_certificate({path, shorter.dump()}, {norm_spec(kValues)}, Options{}).exit == ExitCode::kNotEqual);
  CHECK(check_certificate({path, R"({"kind": "family", "points": [{"dims": {"M": "x"}}]})"}, {norm_spec(kValues)}, Options{}).exit ==
        ExitCode::kNotEqual);
}

TEST_CASE("lock and cache keep every point, and share it with libraries of constants") {
  const TemporaryFolder place;
  Options o = quick();
  std::filesystem::create_directory(place.path() + "/locks");   // the temporary folder itself is held by its owner
  o.lock = place.path() + "/locks/lock.json";
  const CompileResult first = compiled(norm_spec(kValues), o);
  o.frozen = true;
  CHECK(compiled(norm_spec(kValues), o).files.at("norm.cu") == first.files.at("norm.cu"));
  compiled(norm_spec("16"), o);
  Trace trace;
  CHECK(compile(o, norm_spec("4"), trace).exit == ExitCode::kFrozenMiss);
  CHECK(compile(o, norm_spec(R"({"type": "var", "values": [1, 4]})"), trace).exit == ExitCode::kFrozenMiss);
}

TEST_CASE("a baseline is compared point by point") {
  const CompileResult r = compiled(norm_spec(kValues), quick());
  CHECK(compare_with_baseline({"b.json", r.report}, {r.report}).empty());
  auto faster = own_json(r.report);
  faster["points"][1]["result"]["predicted_us"] = 0.5;
  const Diagnostics slower = compare_with_baseline({"b.json", faster.dump()}, {r.report});
  REQUIRE(slower.size() == 1);
  CHECK(slower[0].text.find("norm M=8") == 0);
}

TEST_CASE("what works with one size says so") {
  for (const std::string stage : {"plan", "search", "emit"})
    CHECK(run_stage(stage, norm_spec(kValues), Options{}, {}).diagnostics.at(0).code == DiagCode::kAxisValues);
  CHECK(canonicalize_spec(norm_spec(kValues)).diagnostics.at(0).code == DiagCode::kAxisValues);
  Options bound;
  bound.bind = {"M=8"};
  CHECK(canonicalize_spec(norm_spec(kValues), bound).text == canonicalize_spec(norm_spec("8")).text);
  CHECK(check_spec(norm_spec(kValues)).exit == ExitCode::kOk);
  CHECK(verify_two(norm_spec(kValues), norm_spec(kValues), Options{}).exit == ExitCode::kOk);
  CHECK(verify_two(norm_spec(kValues), norm_spec("8"), Options{}).diagnostics.at(0).code == DiagCode::kAxisValues);
  CHECK(verify_two(norm_spec(kValues), norm_spec("8"), bound).exit == ExitCode::kOk);
  Options o = quick();
  o.alternatives = 2;
  Trace trace;
  CHECK(compile(o, norm_spec(kValues), trace).diagnostics.at(0).code == DiagCode::kAxisValues);
}

// Every operator of --list-ops x {float16, bfloat16, float32} x {aligned, odd, large extents}, and mixed dtypes: compiled as a user would,
// then built with make and compared with the fp64 reference on this machine's GPU. Test cases tagged [host] need no GPU; the device part is
// skipped, and says so, where there is none.
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>
#include <unistd.h>
#include "driver/toolchain/toolchain.h"
#include "gpu/operator_spec.h"
#include "mirage/driver/compile.h"
#include "mirage/spec/spec.h"
#include "mirage/support/file.h"

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
  ~TempFolder() { if (std::getenv("MIRAGE_MATRIX") == nullptr) fs::remove_all(path); }
};

/// The straightforward library of a spec, written to `folder` (nothing is written if it is empty). Without a search: that is other tests'
/// matter, and hundreds of outputs have no better structure.
CompileResult compile_matrix(const test::OperatorSpec& spec, const std::string& target, const std::string& folder) {
  Options o;
  o.target = target;
  o.output = folder;
  o.states = 0;
  // no report: it would compile everything for the registers' sake
  o.emit = {"cu", "h", "graph", "certificate", "harness", "python", "cmake", "makefile"};
  Trace trace;
  CompileResult r = compile(o, {spec.name + ".json", spec.text}, trace);
  for (const Diagnostic& d : r.diagnostics) UNSCOPED_INFO(render(d, spec.text));
  REQUIRE(r.exit == ExitCode::kOk);
  return r;
}

/// What NAME_check --json printed: one object on one line.
nlohmann::json parse_check(const std::string& output) {
  const size_t begin = output.find('{');
  return begin == std::string::npos ? nlohmann::json() : nlohmann::json::parse(output.substr(begin), nullptr, false);
}

void check_on_device(const test::OperatorSpec& spec, const std::string& folder, const ProcessResult& built) {
  INFO(spec.name << ": " << built.output);
  REQUIRE(built.ok());
  CHECK(built.output.empty());   // no warnings
  for (const char* seed : {"1", "2"}) {
    const ProcessResult r = run_process({"./" + spec.name + "_check", "--json", "--no-time", "--seed", seed}, folder);
    INFO(spec.name << ", seed " << seed << ": exit code " << r.exit_code << "\n" << r.output.substr(0, 400));
    CHECK(r.exit_code == 0);
    const nlohmann::json j = parse_check(r.output);
    REQUIRE(j.is_object());
    CHECK(j.at("bits_equal") == true);
    CHECK(j.at("canaries_ok") == true);
    REQUIRE(j.contains("outputs"));
    CHECK(j["outputs"].size() == static_cast<size_t>(spec.outputs));
    const double limit = spec.name.find("float32") != std::string::npos ? 1e-5 : 5e-3;
    CHECK(j.at("tolerance").get<double>() == Approx(limit));
    double worst = 0;
    std::string name;
    for (const nlohmann::json& o : j["outputs"]) {
      INFO(o.dump());
      CHECK((o.at("rel_err").is_number() && o.at("rel_err").get<double>() < limit));
      if (o.at("rel_err").is_number() && o.at("rel_err").get<double>() >= worst) worst = o.at("rel_err"), name = o.at("name");
    }
    std::printf("%s, seed %s: %zu outputs, relative error at most %.2g (%s), limit %g\n", spec.name.c_str(), seed, j["outputs"].size(),
                worst, name.c_str(), limit);
  }
}

}  // namespace

TEST_CASE("the operator matrix has a case for every operator of specs", "[host]") {
  std::set<std::string> listed;
  for (const nlohmann::json& op : nlohmann::json::parse(list_ops_json())) listed.insert(op.at("name"));
  for (const test::OperatorSpec& spec : test::operator_matrix()) {
    if (spec.name == "matrix_mixed") continue;
    INFO(spec.name << " lacks an operator of lib/spec/operators/operators.def, or names one that is gone: test/gpu/operator_spec.cc");
    CHECK(spec.operators == listed);
  }
}

TEST_CASE("the operator matrix compiles to complete results", "[host]") {
  for (const test::OperatorSpec& spec : test::operator_matrix()) {
    TempFolder temp;
    const CompileResult r = compile_matrix(spec, "sm_90a", temp.path);
    INFO(spec.name);
    CHECK(r.name == spec.name);
    for (const std::string& file :
         {spec.name + ".cu", spec.name + ".h", spec.name + ".map", spec.name + ".py", spec.name + "_check.cu", spec.name + ".graph",
          std::string("Makefile"), std::string("CMakeLists.txt"), std::string("certificate.json")}) {
      INFO(file);
      CHECK((fs::exists(temp.path + "/" + file) && fs::file_size(temp.path + "/" + file) > 0));
    }
    const Result<Program> program = parse_spec({spec.name, spec.text});
    REQUIRE(program.ok());
    CHECK(program->outputs.size() == static_cast<size_t>(spec.outputs));
  }
}

TEST_CASE("the operator matrix compiles without warnings for every generation of GPUs", "[host]") {
  const Toolchain tools = find_toolchain();
  if (!tools.has_nvrtc()) {
    WARN("SKIPPED: there is no NVRTC on this machine");
    return;
  }
  const bool is_full = std::getenv("MIRAGE_FULL") != nullptr;   // else one spec that has every dtype
  for (const std::string& target : is_full ? std::vector<std::string>{"sm_80", "sm_90a", "sm_100a"} : std::vector<std::string>{"sm_90a"})
    for (const test::OperatorSpec& spec : test::operator_matrix()) {
      if (!is_full && spec.name != "matrix_mixed") continue;
      const CompileResult r = compile_matrix(spec, target, "");
      const Result<Compiled> c = compile_with_nvrtc(tools, r.files.at(r.name + ".cu"), *find_target(target));
      INFO(spec.name << " for " << target);
      if (!c) UNSCOPED_INFO(render(c.errors().front(), ""));
      REQUIRE(c.ok());
      INFO(c->log);
      CHECK(c->log.find("warning") == std::string::npos);
    }
}

TEST_CASE("every operator agrees with the fp64 reference on this machine's GPU") {
  const DetectedDevice found = detect_device();
  const Toolchain tools = find_toolchain();
  if (!found.device || !tools.has_nvcc()) {
    WARN("SKIPPED: nothing was run: " << (found.device ? "there is no nvcc on this machine" : found.error));
    return;
  }
  const std::optional<Target> target = target_for_device(found.device->major, found.device->minor);
  REQUIRE(target);
  TempFolder temp;
  if (const char* kept = std::getenv("MIRAGE_MATRIX")) {   // a folder in which everything is kept, for cmd/sanitize.sh
    fs::remove_all(temp.path);
    fs::create_directories(temp.path = fs::absolute(kept).string() + "/matrix");
  }
  const std::vector<test::OperatorSpec> specs = test::operator_matrix();
  std::vector<std::future<ProcessResult>> builds;   // nvcc takes half a minute for each: all at once
  for (const test::OperatorSpec& spec : specs) {
    compile_matrix(spec, target->name, temp.path + "/" + spec.name);
    builds.push_back(std::async(std::launch::async, [folder = temp.path + "/" + spec.name, program = spec.name + "_check"] {
      return run_process({"make", "-s", program}, folder);
    }));
  }
  for (size_t i = 0; i < specs.size(); i++) check_on_device(specs[i], temp.path + "/" + specs[i].name, builds[i].get());
}

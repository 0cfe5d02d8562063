// Modes that compile nothing.
#include <catch2/catch.hpp>
#include "mirage/driver/modes.h"

using namespace mirage;

namespace {
Source text_spec(const std::string& name, const std::string& body) {
  return {
      name,
      R"({"name": "p", "inputs": {"x": {"shape": [6, 10], "dtype": "float16"}, "y": {"shape": [6, 10], "dtype": "float16"}}, )"
      R"("outputs": {"z": {"shape": [6, 10], "dtype": "float16"}}, "nodes": [)" +
          body + "]}"};
}
const std::string kSum = R"({"op": "add", "inputs": ["x", "y"], "output": "z"})";
const std::string kSwapped = R"({"op": "add", "inputs": ["y", "x"], "output": "z"})";
const std::string kDifference = R"({"op": "sub", "inputs": ["x", "y"], "output": "z"})";
}  // namespace

TEST_CASE("--verify answers equal, different with a witness, and refuses other signatures") {
  const Source a = text_spec("a.json", kSum), b = text_spec("b.json", kSwapped), c = text_spec("c.json", kDifference);
  CHECK(verify_two(a, a, Options{}).exit == ExitCode::kOk);
  CHECK(verify_two(a, b, Options{}).exit == ExitCode::kOk);
  const ModeResult r = verify_two(a, c, Options{});
  CHECK(r.exit == ExitCode::kNotEqual);
  CHECK(r.text.find("ifferent") != std::string::npos);
  const Source d = {
      "d.json",
      R"({"name": "p", "inputs": {"x": {"shape": [6, 10], "dtype": "float16"}}, "outputs": {"z": {"shape": [6, 10], "dtype": "float16"}}, )"
      R"("nodes": [{"op": "neg", "inputs": ["x"], "output": "z"}]})"};
  CHECK(verify_two(a, d, Options{}).exit == ExitCode::kNotEqual);
  CHECK(verify_two(a, {"e.json", "{"}, Options{}).exit == ExitCode::kInvalidSpec);
}

TEST_CASE("--verify proves large programs, and finds what differs at their own size") {
  auto big = [](const std::string& nodes) {
    return Source{
        "big.json",
        R"({"name": "p", "inputs": {"x": {"shape": [64, 8192], "dtype": "float16"}, "w": {"shape": [8192, 8192], "dtype": "float16"}}, )"
        R"("outputs": {"z": {"shape": [64, 8192], "dtype": "float16"}}, "nodes": [)" +
            nodes + "]}"};
  };
  const Source a = big(R"({"op": "matmul", "inputs": ["x", "w"], "output": "m"}, {"op": "mul", "inputs": ["m", 2], "output": "z"})");
  const Source b = big(R"({"op": "mul", "inputs": ["x", 2], "output": "m"}, {"op": "matmul", "inputs": ["m", "w"], "output": "z"})");
  const Source c = big(R"({"op": "mul", "inputs": ["x", 3], "output": "m"}, {"op": "matmul", "inputs": ["m", "w"], "output": "z"})");
  CHECK(verify_two(a, b, Options{}).exit == ExitCode::kOk);
  const ModeResult other = verify_two(a, c, Options{});
  CHECK(other.exit == ExitCode::kNotEqual);
  CHECK(other.text.find("different: output 0 [63,8191]") == 0);
}

TEST_CASE("--canonicalize is a fixed point, --check is silent") {
  const ModeResult r = canonicalize_spec(text_spec("a.json", kSum));
  CHECK(r.exit == ExitCode::kOk);
  CHECK(canonicalize_spec({"b.json", r.text}).text == r.text);
  CHECK(check_spec(text_spec("a.json", kSum)).text.empty());
  CHECK(check_spec({"a.json", "[]"}).exit == ExitCode::kInvalidSpec);
}

TEST_CASE("--run prints the product of one stage") {
  const Source s = text_spec("a.json", kSum);
  CHECK(run_stage("parse", s, Options{}, {}).text.find("kernel p {") == 0);
  CHECK(run_stage("plan", s, Options{}, {}).text.find("p") != std::string::npos);
  CHECK(run_stage("emit", s, Options{}, {}).text.find("__global__") != std::string::npos);
  const ModeResult graph = run_stage("parse", s, Options{}, {});
  CHECK(run_stage("emit", {"g.mg", graph.text}, Options{}, {}).text.find("__global__") != std::string::npos);
  const ModeResult wrong = run_stage("emti", s, Options{}, {});
  CHECK(wrong.exit == ExitCode::kUsage);
  CHECK(wrong.diagnostics.at(0).notes.at(0).text == "did you mean 'emit'?");
}

TEST_CASE("--explain-error and --list-targets") {
  CHECK(explain_error("E0113").text.find("--list-ops") != std::string::npos);
  CHECK(explain_error("E9999").exit == ExitCode::kUsage);
  CHECK(print_targets().text.find("sm_100a") != std::string::npos);
  CHECK(!spec_operators(false).empty());
  CHECK(spec_schema().find("$schema") != std::string::npos);
}

// What the range of float32 explains of a result, and what it does not (driver/emulation/float_range.h).
#include <catch2/catch.hpp>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <unistd.h>

#include "driver/emulation/emulation.h"
#include "driver/emulation/float_range.h"
#include "driver/gate/gate.h"
#include "driver/gate/mutations.h"
#include "mirage/spec/spec.h"

using namespace mirage;

namespace {

Program ranged_program(const std::string& nodes, const std::string& dtype = "f32") {
  return parse_spec({"p.json", R"({"name": "p", "inputs": {"x": {"shape": [1, 4], "dtype": ")" + dtype +
                                   R"("}, "c": {"shape": [1, 4], "dtype": "bool"}}, "outputs": {"y": {"dtype": ")" + dtype +
                                   R"("}}, "nodes": [)" + nodes + "]}"})
      .value();
}
std::vector<double> errors_of(const Program& p, const std::vector<double>& x, const std::vector<double>& c = {1, 1, 1, 1}) {
  std::vector<Tensor<double>> in = {Tensor<double>({1, 4}, 0.0), Tensor<double>({1, 4}, 0.0)};
  in[0].data = x, in[1].data = c;
  return range_error(p, in)[0];
}
const std::string kRenormalised =
    R"({"op": "softmax", "inputs": ["x"], "output": "p"}, {"op": "where", "inputs": ["c", "p", 0], "output": "t"}, {"op": "sum", "inputs": ["t"], "attrs": {"axis": -1, "keepdim": true}, "output": "s"},
  {"op": "div", "inputs": ["t", "s"], "output": "y"})";

}  // namespace

TEST_CASE("ordinary values are not moved by the range of float32") {
  for (double e : errors_of(ranged_program(kRenormalised), {1, 2, -3, 0})) CHECK(e < 1e-20);
  // e^-200 is 0: off by next to nothing
  for (double e : errors_of(ranged_program(R"({"op": "softmax", "inputs": ["x"], "output": "y"})"), {100, -100, 50, 0})) CHECK(e < 1e-20);
  for (double e : errors_of(ranged_program(R"({"op": "square", "inputs": ["x"], "output": "y"})"), {0, 1, -1, 1e10})) CHECK(e < 1e-20);
}

TEST_CASE("quotients, logarithms and powers of what underflows are not known, masked elements are") {
  const auto e = errors_of(ranged_program(kRenormalised), {100, -100, -90, 0}, {0, 1, 1, 0});
  for (size_t i : {1u, 2u}) CHECK(e[i] == INFINITY);
  CHECK(errors_of(ranged_program(kRenormalised), {100, -100, -90, 0}, {1, 1, 0, 0})[1] < 1e-20);   // e^-200 of 1
  const auto log =
      errors_of(ranged_program(R"({"op": "softmax", "inputs": ["x"], "output": "p"}, {"op": "log", "inputs": ["p"], "output": "y"})"),
                {100, -100, 99, 98});
  CHECK(log[1] == INFINITY);
  CHECK(log[0] < 1e-20);
  CHECK(errors_of(ranged_program(R"({"op": "exp", "inputs": ["x"], "output": "y"})"), {100, -100, 1, 0})[0] == INFINITY);
  CHECK(errors_of(ranged_program(
                      R"({"op": "where", "inputs": ["c", "x", "-inf"], "output": "m"}, {"op": "exp", "inputs": ["m"], "output": "y"})"),
                  {1, 2, 3, 4}, {1, 0, 1, 0})[1] == 0);
  // below float16's numbers
  CHECK(errors_of(ranged_program(R"({"op": "softmax", "inputs": ["x"], "output": "y"})", "f16"), {0, -12, -20, 1})[2] > 1e-8);
}

TEST_CASE("programs whose values leave float32 pass the gate, and with a mistake they do not", "[gate]") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) return;
  const Program p =
      parse_spec(
          {"router.json",
           R"({"name": "router", "inputs": {"x": {"shape": [24, 2048], "dtype": "bfloat16"}, "w": {"shape": [8, 2048], "dtype": "bfloat16"}, "c": {"shape": [24, 8], "dtype": "bool"}},
    "outputs": {"y": {"dtype": "float32"}}, "nodes": [{"op": "matmul", "inputs": ["x", "w"], "output": "l", "attrs": {"transpose_b": true}}, {"op": "softmax", "inputs": ["l"], "output": "p"},
    {"op": "where", "inputs": ["c", "p", 0], "output": "t"}, {"op": "sum", "inputs": ["t"], "attrs": {"axis": -1, "keepdim": true}, "output": "s"}, {"op": "div", "inputs": ["t", "s"], "output": "y"}]})"})
          .value();
  const Target target = *find_target("sm_90a");
  const Planned planned = make_plan(p, p.graph, target);
  REQUIRE(planned.plan);
  std::vector<KernelText> texts;
  for (const KernelPlan& k : planned.plan->kernels) texts.push_back(emit_kernel(k, *planned.plan, target));
  std::vector<EmulationCase> cases = {make_emulation_case(p, *planned.plan, texts, "r_")};
  const size_t last = texts.size() - 1;
  for (const KernelMutant& m : choose_mutants(all_mutants(texts[last].source, last), 8, 3)) {
    cases.push_back(make_emulation_case(p, *planned.plan, texts, "m" + std::to_string(cases.size()) + "_"));
    cases.back().kernels[last].source = m.apply(texts[last].source);
  }
  std::vector<const EmulationCase*> all;
  for (const EmulationCase& c : cases) all.push_back(&c);
  const std::string folder = (std::filesystem::temp_directory_path() / ("mirage_range." + std::to_string(getpid()))).string();
  const EmulationLibrary library = build_emulation(all, compiler, folder);
  INFO(library.error);
  REQUIRE(library.error.empty());
  const EmulationOutcome right = run_emulation(cases[0], library.path, EmulationMode::kFloat, 1);
  INFO(right.reason);
  CHECK(right.ok);
  CHECK(right.by_range);        // else this test tests nothing
  CHECK(right.left_out == 0);   // of the inputs that were drawn again every element was compared
  CHECK(right.compared == 192);
  size_t caught = 0;
  for (size_t i = 1; i < cases.size(); i++) caught += !run_emulation(cases[i], library.path, EmulationMode::kFloat, 1).ok;
  CHECK(caught >= 3);
  std::filesystem::remove_all(folder);
}

// What the range of float32 explains of a result, and what it does not (driver/emulation/float_range.h).
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>
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
  // 1 over what may be 0 is large, whatever it is, and functions that are flat there know their value
  const auto of_reciprocal = [](const std::string& op, const std::string& operands) {
    return errors_of(ranged_program(R"({"op": "softmax", "inputs": ["x"], "output": "p"}, {"op": "pow", "inputs": ["p", -1], "output": "r"},
  {"op": ")" + op + R"(", "inputs": [)" + operands + R"(], "output": "y"})"),
                     {100, -100, -90, 0});
  };
  for (const char* flat : {"sigmoid", "tanh"})
    for (double e : of_reciprocal(flat, R"("r")")) CHECK(e < 1e-20);
  CHECK(of_reciprocal("mul", R"("r", "p")")[1] == INFINITY);   // which may be infinity times 0
  CHECK(of_reciprocal("sub", R"("r", "r")")[1] == INFINITY);   // infinity less infinity
  CHECK(of_reciprocal("sub", R"("r", "x")")[1] == INFINITY);
  // below float16's numbers
  CHECK(errors_of(ranged_program(R"({"op": "softmax", "inputs": ["x"], "output": "y"})", "f16"), {0, -12, -20, 1})[2] > 1e-8);
}

namespace {

/// A plan and mistakes in its last kernel, built together. The first is right.
struct Mutated {
  std::vector<EmulationCase> cases;
  std::string folder = (std::filesystem::temp_directory_path() / ("mirage_range." + std::to_string(getpid()))).string();
  EmulationLibrary library;
  ~Mutated() { std::filesystem::remove_all(folder); }
  Mutated(const Program& p, const std::string& compiler, const std::function<std::vector<KernelMutant>(const std::string&, size_t)>& some) {
    const Target target = *find_target("sm_90a");
    const Planned planned = make_plan(p, p.graph, target);
    REQUIRE(planned.plan);
    std::vector<KernelText> texts;
    for (const KernelPlan& k : planned.plan->kernels) texts.push_back(emit_kernel(k, *planned.plan, target));
    const size_t last = texts.size() - 1;
    cases = {make_emulation_case(p, *planned.plan, texts, "r_")};
    for (const KernelMutant& m : some(texts[last].source, last)) {
      cases.push_back(make_emulation_case(p, *planned.plan, texts, "m" + std::to_string(cases.size()) + "_"));
      cases.back().kernels[last].source = m.apply(texts[last].source);
    }
    std::vector<const EmulationCase*> all;
    for (const EmulationCase& c : cases) all.push_back(&c);
    library = build_emulation(all, compiler, folder);
    INFO(library.error);
    REQUIRE(library.error.empty());
  }
  EmulationOutcome run(size_t i, uint64_t seed) const { return run_emulation(cases[i], library.path, EmulationMode::kFloat, seed); }
};

}  // namespace

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
  const Mutated all(p, compiler, [](const std::string& source, size_t k) { return choose_mutants(all_mutants(source, k), 8, 3); });
  const EmulationOutcome right = all.run(0, 1);
  INFO(right.reason);
  CHECK(right.ok);
  CHECK(right.by_range);        // else this test tests nothing
  CHECK(right.left_out == 0);   // of the inputs that were drawn again every element was compared
  CHECK(right.compared == 192);
  size_t caught = 0;
  for (size_t i = 1; i < all.cases.size(); i++) caught += !all.run(i, 1).ok;
  CHECK(caught >= 3);
}

// A kernel whose sum stayed 0 was wrong at these inputs, where one over a probability leaves the types, and right at smaller ones,
// where sigmoids of that are all near 1: it passed.
TEST_CASE("what is wrong within all that range may do is wrong, however right it is at smaller inputs", "[gate]") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) return;
  const Program p = parse_spec({"s.json", R"({"name": "s200092", "numerics": {"rtol": 0.03}, "inputs": {
    "x0": {"shape": [14, 43], "dtype": "float16"}, "x1": {"shape": [14, 43], "dtype": "float16"}}, "outputs": {"y": {"dtype": "float32"}},
    "nodes": [{"op": "mul", "inputs": ["x0", 60], "output": "n0"},
    {"op": "softmax", "inputs": ["n0"], "output": "n1", "attrs": {"axis": -1}},
    {"op": "pow", "inputs": ["n1", -1], "output": "n2"}, {"op": "sigmoid", "inputs": ["n2"], "output": "n3"},
    {"op": "square", "inputs": ["x1"], "output": "n4"}, {"op": "mul", "inputs": ["n4", "n3"], "output": "n5"},
    {"op": "max", "inputs": ["n5"], "output": "n6", "attrs": {"axis": -1, "keepdim": true}},
    {"op": "div", "inputs": ["n5", "n6"], "output": "n7"}, {"op": "sigmoid", "inputs": ["n7"], "output": "y"}]})"}).value();
  const Mutated all(p, compiler, [](const std::string& source, size_t k) {
    KernelMutant m;
    m.kernel = k, m.what = "a sum of nothing", m.at = source.find("mo::Sum::combine("), m.by = "mo::constant(0.0f)";
    REQUIRE(m.at != std::string::npos);
    m.length = source.find(')', m.at) + 1 - m.at;
    return std::vector<KernelMutant>{m};
  });
  CHECK(all.run(0, 2).ok);
  CHECK_FALSE(all.run(1, 2).ok);
}

// A variable without a value holds a number near the end of float32's range. Where a sum was not reset, what came of it looked like the
// program's own overflow, and passed.
TEST_CASE("what range excuses has the same bits whatever is in variables that nobody set", "[gate]") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty() || compiler.find("clang") != std::string::npos) return;   // clang's variables without a value are nearly 0
  const Program p = parse_spec({"scaled.json", R"({"name": "scaled", "inputs": {"x": {"shape": [24, 150], "dtype": "float32"}},
    "outputs": {"m": {"dtype": "float32"}, "y": {"dtype": "float32"}}, "nodes": [
    {"op": "max", "inputs": ["x"], "output": "m", "attrs": {"axis": -1}}, {"op": "sub", "inputs": ["x", 75], "output": "l"},
    {"op": "exp", "inputs": ["l"], "output": "e"}, {"op": "mul", "inputs": ["e", 1e33], "output": "t"},
    {"op": "sum", "inputs": ["t"], "output": "y", "attrs": {"axis": -1}}]})"}).value();
  const Mutated all(p, compiler, [](const std::string& source, size_t k) {
    std::vector<KernelMutant> out = all_mutants(source, k);
    std::erase_if(out, [](const KernelMutant& m) { return m.what != "left out clear"; });
    return out;
  });
  const EmulationOutcome right = all.run(0, 1);
  INFO(right.reason);
  CHECK(right.ok);
  CHECK_FALSE(right.by_range);    // e^-75 may be 0, so that nothing is known of y; kernels do not need that
  CHECK(right.compared == 48);
  size_t unset = 0;
  for (size_t i = 1; i < all.cases.size(); i++) {
    const EmulationOutcome o = all.run(i, 1);
    INFO(i << ": " << o.reason);
    CHECK_FALSE(o.ok);
    unset += o.reason.find("uninitialised read: output y at [") == 0;
  }
  CHECK(unset > 0);
}

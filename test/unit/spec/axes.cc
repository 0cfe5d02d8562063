// Axes with several values: which programs a spec is, what --bind and --values make of it, and what is refused.
#include <catch2/catch.hpp>
#include "mirage/spec/spec.h"

using namespace mirage;

namespace {

Source spec(const std::string& axes) {
  return {"t.json",
          R"({"name": "t", "axes": {)" + axes +
              R"(, "K": 8}, "inputs": {"x": {"shape": ["M", "K"], "dtype": "float16"}, "w": {"shape": ["K", "N"], "dtype": "float16"}},
    "outputs": {"y": {"shape": ["M", "N"], "dtype": "float16"}}, "nodes": [{"op": "matmul", "inputs": ["x", "w"], "output": "y"}]})"};
}

AxisChoice choice(const std::vector<std::string>& bind, const std::vector<std::string>& values = {}) {
  auto c = read_axis_choice(bind, values);
  REQUIRE(c.ok());
  return *c;
}

std::string error_of(const Source& s, const AxisChoice& c = {}) {
  auto f = read_family(s, c);
  return f.ok() ? "" : std::string(code_name(f.errors()[0].code)) + " " + f.errors()[0].text;
}

const char* const kVars = R"("M": {"type": "var", "values": [8, 1, 4], "hint": 4}, "N": {"type": "var", "values": [16, 32]})";

}  // namespace

TEST_CASE("every combination of values is a program, the first axis slowest") {
  const auto f = read_family(spec(kVars));
  REQUIRE(f.ok());
  REQUIRE(f->axes.size() == 2);
  CHECK(f->axes[0].values == std::vector<int64_t>{1, 4, 8});   // ascending, whatever the order in the text
  CHECK(f->axes[0].hint == 4);
  CHECK(f->axes[1].hint == 32);   // none given: the one in the middle
  REQUIRE(f->points.size() == 6);
  CHECK(f->hint == 3);
  CHECK(point_text(f->axes, f->points[3].values) == "M = 4, N = 32");
  for (const SpecPoint& p : f->points) {
    CHECK(p.program.inputs[0].type.dims == Dims{p.values[0], 8});
    CHECK(p.program.outputs[0].type.dims == Dims{p.values[0], p.values[1]});
  }
  // A point is the program of the same spec with constants: one canonical text, one id.
  const auto constant = parse_spec(spec(R"("M": 8, "N": {"type": "const", "value": 16})"));
  REQUIRE(constant.ok());
  CHECK(f->points[4].program.canonical == constant->canonical);
}

TEST_CASE("bind makes constants, values replace those of the spec") {
  const auto bound = read_family(spec(kVars), choice({"M=3", "N=16"}));
  REQUIRE(bound.ok());
  CHECK(bound->axes.empty());
  REQUIRE(bound->points.size() == 1);
  CHECK(bound->points[0].program.inputs[0].type.dims == Dims{3, 8});
  CHECK(parse_spec(spec(kVars), choice({"M=3", "N=16"})).ok());
  CHECK(parse_spec(spec(kVars), choice({"M=3"})).errors()[0].code == DiagCode::kAxisValues);
  // --values M=64,1,8
  const auto given = read_family(spec(R"("M": {"type": "var"}, "N": {"type": "var"})"), choice({"N=16"}, {"M=64", "1", "8"}));
  REQUIRE(given.ok());
  CHECK(given->axes.size() == 1);
  CHECK(given->axes[0].values == std::vector<int64_t>{1, 8, 64});
  CHECK(read_family(spec(R"("M": 8, "N": 16)"), choice({"M=4"}))->points[0].program.inputs[0].type.dims == Dims{4, 8});
  // two lists in one option; the hints of the spec are none of them
  CHECK(read_family(spec(kVars), choice({}, {"M=2", "N=2", "4"}))->points.size() == 2);
}

TEST_CASE("wrong values and wrong options are said") {
  CHECK(error_of(spec(R"("M": {"type": "var"}, "N": 16)")).find("E0200") == 0);
  CHECK(error_of(spec(R"("M": {"type": "var", "min": 1, "max": 64}, "N": 16)")).find("with a range") != std::string::npos);
  CHECK(error_of(spec(kVars), choice({"L=3"})).find("E0300 --bind: the spec has no axis 'L'") == 0);
  CHECK(error_of(spec(R"("M": 8, "N": 16)"), choice({}, {"M=3"})).find("--values: axis 'M' is a constant") != std::string::npos);
  CHECK(error_of({"t.mg", "kernel t { %x = input 0 : f16[4,8] output 0 (neg %x) : f16 }"}, choice({"M=3"})).find("no axes") !=
        std::string::npos);
  CHECK(error_of(spec(R"("M": {"type": "var", "values": [1, 2]}, "N": {"type": "var", "values": [1, 2]})"),
                 choice({}, {"M=1", "2", "3", "4", "5", "6", "7", "8", "9", "N=1", "2", "3", "4", "5", "6", "7", "8"}))
            .find("E0102") == 0);
  for (const char* word : {"M", "M=", "=3", "M=0", "M=-1", "M=x", "M=3.5", "M=99999999999999999999"}) {
    INFO(word);
    CHECK_FALSE(read_axis_choice({word}, {}).ok());
    CHECK_FALSE(read_axis_choice({}, {word}).ok());
  }
  CHECK_FALSE(read_axis_choice({"M=1", "M=2"}, {}).ok());
  CHECK_FALSE(read_axis_choice({"M=1"}, {"M=2"}).ok());
  CHECK_FALSE(read_axis_choice({}, {"8"}).ok());
  CHECK_FALSE(read_axis_choice({}, {"M=8", "8"}).ok());
}

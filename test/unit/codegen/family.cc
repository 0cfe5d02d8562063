// One module for several programs: equal kernels once, slots at one place, dims in the header, and names that collide with those of the
// ABI.
#include <catch2/catch.hpp>
#include <set>
#include <fmt/format.h>
#include "codegen/module_parts.h"
#include "mirage/spec/spec.h"
#include "module_fixture.h"

using namespace mirage;

namespace {

bool is_in(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

size_t times_in(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) n++;
  return n;
}

/// y = silu(x) with M rows, and s, which does not depend on M.
Program two_outputs(int64_t m) {
  auto p = parse_spec(
      {"two.json",
       fmt::format(
           R"({{"name": "two", "inputs": {{"x": {{"shape": [{}, 256], "dtype": "float16"}}, "w": {{"shape": [512, 1024], "dtype": "float16"}}}},
    "outputs": {{"y": {{"dtype": "float16"}}, "s": {{"dtype": "float32"}}}}, "nodes": [{{"op": "silu", "inputs": ["x"], "output": "y"}}, {{"op": "softmax", "inputs": ["w"], "output": "s"}}]}})",
           m)});
  REQUIRE(p.ok());
  return *p;
}

}  // namespace

TEST_CASE("equal kernels of several sizes are emitted once") {
  const Target target = without(*find_target("sm_90a"), Pass::kBeside);   // the softmax of w is a kernel of its own
  std::vector<Program> programs;
  std::vector<Plan> plans;
  const std::vector<int64_t> values = {64, 512, 4096};
  for (int64_t m : values) programs.push_back(two_outputs(m));
  for (const Program& p : programs) plans.push_back(*make_plan(p, p.graph, target).plan);
  std::vector<FamilyMember> members;
  for (size_t i = 0; i < values.size(); i++) members.push_back({{values[i]}, programs[i], plans[i]});
  const FamilyModule f = emit_family({{"M", values, 512, true}}, members, 1, "0123456789abcdef", target, {"", "0.0-test"});
  const std::string& cu = f.module.files.at("two.cu");
  std::set<std::string> distinct;
  size_t all = 0;
  for (size_t i = 0; i < values.size(); i++) {
    REQUIRE(f.points[i].size() == plans[i].kernels.size());
    for (size_t k = 0; k < plans[i].kernels.size(); k++) {
      const KernelText own = emit_kernel(plans[i].kernels[k], plans[i], target);
      std::string text = own.source, named = f.points[i][k].source;
      const auto anonymous = [](std::string t, const std::string& name) {
        for (size_t at; (at = t.find(name)) != std::string::npos;) t.replace(at, name.size(), "@");
        return t;
      };
      CHECK(anonymous(text, own.name) == anonymous(named, f.points[i][k].name));
      CHECK(is_in(cu, named));
      CHECK(f.points[i][k].grid == own.grid);
      distinct.insert(anonymous(text, own.name));
      all++;
    }
  }
  CHECK(f.module.kernels.size() == distinct.size());
  CHECK(distinct.size() < all);   // the softmax of w is one kernel
  CHECK(times_in(cu, "__global__ void") == distinct.size());
  CHECK(times_in(cu, "inline int enqueue_") == 2 * values.size());   // declared and defined
  const std::string& h = f.module.files.at("two.h");
  CHECK(is_in(h, "typedef struct two_dims { uint32_t struct_size; uint32_t reserved; int64_t M; } two_dims;"));
  CHECK(is_in(h, "M: 64, 512, 4096"));
  CHECK(is_in(h, "input  x: float16[M, 256], strides [256, 1] elements"));
  CHECK(is_in(f.module.files.at("two.py"), "_Axis(\"M\", (64, 512, 4096), True)"));
  CHECK(times_in(f.module.files.at("two_check.cu"), "namespace point_") == 12);   // definitions and runs, begin and end
  // Names of axes that the ABI has taken.
  const FamilyModule odd = emit_family({{"reserved", values, 512, false}}, members, 1, "0123456789abcdef", target, {"", "0.0-test"});
  CHECK(is_in(odd.module.files.at("two.h"), "uint32_t reserved; int64_t reserved_; }"));
  CHECK(is_in(odd.module.files.at("two.cu"), "p.values[0] == dims->reserved_"));
}

TEST_CASE("one size may start one kernel twice") {
  // Products of equal shapes behind each other have one text: in a library for several sizes they are one kernel, with different arguments.
  const Target target = *find_target("sm_90a");
  std::vector<Program> programs;
  std::vector<Plan> plans;
  const std::vector<int64_t> values = {16, 32};
  std::string weights, nodes, last = "x";
  for (const char* w : {"a", "b", "c", "d"}) {
    weights += fmt::format(R"(, "{}": {{"shape": [64, 64], "dtype": "float32"}})", w);
    nodes += fmt::format(R"({}{{"op": "matmul", "inputs": ["{}", "{}"], "output": "{}y"}})", nodes.empty() ? "" : ", ", last, w, w);
    last = std::string(w) + "y";
  }
  for (int64_t m : values) {
    auto p = parse_spec(
        {"twice.json",
         fmt::format(
             R"({{"name": "twice", "inputs": {{"x": {{"shape": [{}, 64], "dtype": "float32"}}{}}}, )"
             R"("outputs": {{"dy": {{"dtype": "float32"}}}}, "nodes": [{}]}})",
             m, weights, nodes)});
    REQUIRE(p.ok());
    programs.push_back(*p);
  }
  for (const Program& p : programs) plans.push_back(*make_plan(p, p.graph, target).plan);
  REQUIRE(plans[0].kernels.size() == 4);
  const FamilyModule f = emit_family({{"M", values, 16, true}}, {{{16}, programs[0], plans[0]}, {{32}, programs[1], plans[1]}}, 0,
                                     "0123456789abcdef", target, {"", "0.0-test"});
  std::set<std::string> names;
  for (const KernelText& k : f.points[0]) names.insert(k.name);
  CHECK(names.size() < 4);
  CHECK(times_in(f.module.files.at("twice.cu"), "error = start(") == 8);
}

TEST_CASE("slots lie at the begin of every workspace") {
  fixture::Made a = fixture::two_kernels(), b = fixture::two_kernels();
  for (fixture::Made* m : {&a, &b}) m->plan.kernels.clear();
  Buffer slots = b.plan.buffers.back();   // 96 bytes
  slots.slots = true;
  slots.offset_bytes = 512;
  b.plan.buffers.push_back(slots);
  slots.offset_bytes = 768;
  b.plan.buffers.push_back(slots);
  b.plan.workspace_bytes = 1024;
  const std::vector<FamilyMember> members = {{{1}, a.program, a.plan}, {{2}, b.program, b.plan}};
  const std::string cu =
      emit_family({{"M", {1, 2}, 1, false}}, members, 0, "0123456789abcdef", a.target, {"", "0.0-test"}).module.files.at("demo.cu");
  CHECK(is_in(cu, "constexpr uint64_t kSlotBytes = 512u;"));
  CHECK(is_in(cu, "  {{1}, 1024u, &enqueue_0,"));   // nothing of its own stands where the other's slots are
  CHECK(is_in(cu, "  {{2}, 1536u, &enqueue_1,"));
  CHECK(is_in(cu, "cudaMemsetAsync(workspace, 0xff, kSlotBytes, stream)"));
}

TEST_CASE("extents as text in terms of the axes") {
  const std::vector<FamilyAxis> axes = {{"M", {2, 3}, 2, false}, {"S", {5, 7}, 5, false}};
  const FamilyFacts f{axes, {"M", "S"}, {{2, 5}, {2, 7}, {3, 5}, {3, 7}}, {}, 0, {}, {}, 0};
  CHECK(axis_text(f, {4, 4, 4, 4}) == "4");
  CHECK(axis_text(f, {2, 2, 3, 3}) == "M");
  CHECK(axis_text(f, {40, 56, 60, 84}) == "4 * M * S");
  CHECK(axis_text(f, {15, 21, 15, 21}) == "3 * S");
  CHECK(axis_text(f, {6, 8, 6, 8}) == "{6, 8}");
}

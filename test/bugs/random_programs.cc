// Specs on which random programs (test/random) found the compiler wrong, reduced. Each once ended in an assertion or a wrong kernel; now it
// ends in a library whose kernels pass the emulation.
#include <catch2/catch.hpp>

#include "driver/decide/candidates.h"
#include "driver/emulation/emulation.h"
#include "mirage/driver/compile.h"
#include "mirage/search/search.h"
#include "mirage/spec/spec.h"

using namespace mirage;

namespace {

/// The whole compiler on a spec, emulation of what wins included.
void compiles(const std::string& text) {
  Options o;
  o.states = 200'000;
  o.gate = find_host_compiler().empty() ? "none" : "emulate";
  Trace trace;
  const CompileResult r = compile(o, {"bug.json", text}, trace);
  for (const Diagnostic& d : r.diagnostics) UNSCOPED_INFO(render(d, text));
  CHECK(r.exit == ExitCode::kOk);
}

}  // namespace

TEST_CASE("a clipped tile is reshaped by the type of what it was cut from", "[bugs]") {
  // The tail of a loop clipped [1,3,2] to [1,3,1]; as [1,1,3,2] that was taken for [1,1,1,3].
  compiles(R"({"version": "1.0", "name": "clipped",
 "inputs": {"x1": {"shape": [3, 100, 128], "dtype": "float16"}, "x2": {"shape": [3, 100, 128], "dtype": "float16", "range": [-0.5, 0.5]}},
 "outputs": {"v2": {"dtype": "float16"}},
 "nodes": [{"op": "einsum", "inputs": ["x1", "x2"], "output": "v0", "attrs": {"equation": "abc,abc->ba"}},
           {"op": "matmul", "inputs": ["v0", "x2"], "output": "v1", "attrs": {"transpose_a": true}},
           {"op": "mul", "inputs": ["v1", 0.125], "output": "v2"}]})");
}

TEST_CASE("a result that is a constant is nobody's block graph", "[bugs]") {
  compiles(R"({"version": "1.0", "name": "constant_result", "inputs": {"x0": {"shape": [3, 100], "dtype": "float16"}},
 "outputs": {"v0": {"dtype": "float16"}, "v2": {"dtype": "float16"}, "v3": {"dtype": "float16"}},
 "nodes": [{"op": "gelu", "inputs": ["x0"], "output": "v0"}, {"op": "extent", "inputs": [], "output": "v2", "attrs": {"of": [[0, 0]]}}, {"op": "mul", "inputs": ["v0", "v2"], "output": "v3"}]})");
}

TEST_CASE("a sum of terms that cancel is judged by its terms", "[bugs]") {
  // Both are 0 but for rounding. The emulation gate refused kernels that were right (E0306: no library at all).
  compiles(
      R"({"version": "1.0", "name": "cancels", "inputs": {"x0": {"shape": [1, 8], "dtype": "float32"}}, "outputs": {"v3": {"dtype": "float32"}},
 "nodes": [{"op": "group_norm", "inputs": ["x0"], "output": "v0", "attrs": {"groups": 4, "eps": 0.001}}, {"op": "exp", "inputs": ["v0"], "output": "e"}, {"op": "exp", "inputs": ["e"], "output": "f"},
           {"op": "sub", "inputs": ["f", "e"], "output": "d"}, {"op": "add", "inputs": ["d", "e"], "output": "a"}, {"op": "sub", "inputs": ["a", "f"], "output": "z"}, {"op": "sum", "inputs": ["z"], "output": "v2", "attrs": {"keepdim": true}},
           {"op": "rms_norm", "inputs": ["v2"], "output": "v3"}]})");
}

TEST_CASE("a cast value between two kernels keeps its type", "[bugs]") {
  compiles(
      R"({"version": "1.0", "name": "cast_between", "inputs": {"x0": {"shape": [40, 8], "dtype": "float32"}}, "outputs": {"v3": {"dtype": "float32"}, "v4": {"dtype": "bool"}},
 "nodes": [{"op": "softmax", "inputs": ["x0"], "output": "v0"}, {"op": "cast", "inputs": ["v0"], "output": "v1", "attrs": {"dtype": "float32"}},
           {"op": "matmul", "inputs": ["v1", "v1"], "output": "v2", "attrs": {"transpose_b": true}}, {"op": "mul", "inputs": ["v2", 0.125], "output": "v3"}, {"op": "greater", "inputs": ["x0", "x0"], "output": "v4"}]})");
}

TEST_CASE("a softmax over a maximum of more dimensions keeps its shape without the shift", "[bugs]") {
  // x has two dimensions and its maximum three: exp(x) lost one, and the sum over the third met nothing (an assertion).
  compiles(
      R"({"version": "1.0", "name": "rank_of_maximum", "inputs": {"x0": {"shape": [100, 13], "dtype": "float32", "strides": [21, 1]}}, "outputs": {"v1": {"dtype": "float32"}},
 "nodes": [{"op": "reshape", "inputs": ["x0"], "output": "v0", "attrs": {"shape": [1, 100, 13]}}, {"op": "softmax", "inputs": ["v0"], "output": "v1", "attrs": {"axis": -1}}]})");
}

TEST_CASE("a slice is not looked up among extents that are the program's by chance", "[bugs]") {
  // The search tries the program at inputs of 6 + 10 elements; the program cuts its own 16 behind the tenth. Structures kept the cut behind
  // the sixth, and results had six elements of ten.
  const auto p = parse_spec(
      {"slice.json",
       R"({"version": "1.0", "name": "cut", "inputs": {"x0": {"shape": [16], "dtype": "float16"}}, "outputs": {"v1": {"dtype": "float16"}},
 "nodes": [{"op": "slice", "inputs": ["x0"], "output": "v0", "attrs": {"axis": 0, "stop": 10}}, {"op": "silu", "inputs": ["v0"], "output": "v1"}]})"});
  REQUIRE(p);
  const Witnesses w = make_witnesses(*p);
  REQUIRE(w.refusal.empty());
  SearchOptions options;
  options.max_states = 60'000;
  int found = 0;
  enumerate(*p, *find_target("sm_90a"), options, [&](const Structure& s) {
    const Examined e = examine(s, *p, w, 7);
    found += e.verdict == SinkVerdict::kVerified;
    const auto g = instantiate(s, param_types(*p), split_extents(s, param_types(*p)));
    for (NodeId n = 0; g && n < g->num_nodes(); n++)
      if (g->form<Output>(n)) CHECK(g->dims(g->node(n).operands[0]) == Dims{10});
    const std::vector<CallNumbers> numbers = split_extents(s, param_types(*p));
    if (e.verdict == SinkVerdict::kVerified) CHECK(verify_instance(s, numbers, *p, w, 12).refusal.empty() == (g.has_value()));
    return e.verdict;
  });
  CHECK(found > 0);   // else this looks at nothing
}

TEST_CASE("what a result and a later step are both made of lies where it is until the last of them", "[bugs]") {
  // A product's value was a result, scaled, and scaled the logits of a softmax. The schedule thought that later steps read the result in
  // registers; the kernel makes it again, of sums that lay where the softmax's own came to lie.
  if (find_host_compiler().empty()) { WARN("skipped: there is no host compiler"); return; }
  const std::string nodes = R"("nodes": [{"op": "matmul", "inputs": ["x1", "x2"], "output": "v0"},
 {"op": "mul", "inputs": ["v0", 0.125], "output": "v1"},
 {"op": "softmax", "inputs": ["v1"], "output": "v3"}], 
 "outputs": {"v1": {"dtype": "float32"}, "v3": {"dtype": "bfloat16"}}})";
  for (const char* inputs :
       {R"("x1": {"shape": [1, 1, 2], "dtype": "float32"}, "x2": {"shape": [1, 2, 2], "dtype": "bfloat16"})",
        R"("x1": {"shape": [3, 8, 16], "dtype": "float32"},
           "x2": {"shape": [3, 16, 33], "dtype": "bfloat16", "strides": [1056, 1, 32]})"}) {
    const std::string text = std::string(R"({"name": "scaled", "inputs": {)") + inputs + "}, " + nodes;
    Options o;
    o.states = 200'000;
    o.gate = "emulate";
    Trace trace;
    const CompileResult r = compile(o, {"bug.json", text}, trace);
    for (const std::string& note : r.notes) {
      INFO(note);
      CHECK(note.find("emulated at") == std::string::npos);   // no kernel was wrong
    }
    CHECK(r.exit == ExitCode::kOk);
  }
}

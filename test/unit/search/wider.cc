// Programs with masks, slices, joined dimensions, and reductions split over blocks: what is found, and that it is right at true, ragged
// sizes.
#include <algorithm>
#include "helpers.h"
#include "mirage/verify/verify.h"

using namespace mirage;
using namespace helpers;

namespace {

struct Case { const char* name; const char* inputs; const char* output; const char* nodes; };

Program program_of(const Case& c) {
  return parse(std::string(R"({"version": "1.0", "name": "t", "inputs": {)") + c.inputs + R"(}, "outputs": {"o": )" + c.output +
               R"(}, "nodes": [)" + c.nodes + "]}");
}

const char* kSoftmax =
    R"({"op": "exp", "inputs": ["m"], "output": "e"}, {"op": "sum", "inputs": ["e"], )"
    R"("output": "l", "attrs": {"axis": -1, "keepdim": true}}, {"op": "div", "inputs": ["e", "l"], "output": "p"})";

/// Small extents that are their own: the witness is other.
const std::vector<Case>& cases() {
  static const std::string attention = std::string(R"({"op": "matmul", "inputs": ["q", "k"], "output": "m"}, )") + kSoftmax +
                                       R"(, {"op": "matmul", "inputs": ["p", "v"], "output": "o"})";
  static const std::string causal =
      std::string(R"({"op": "matmul", "inputs": ["q", "k"], "output": "s"}, {"op": "causal_mask", "inputs": ["s"], "output": "m"}, )") +
      kSoftmax + R"(, {"op": "matmul", "inputs": ["p", "v"], "output": "o"})";
  static const std::string latent =
      std::string(R"({"op": "matmul", "inputs": ["q", "c"], "output": "m", "attrs": {"transpose_b": true}}, )") + kSoftmax +
      R"(, {"op": "slice", "inputs": ["c"], "output": "v", "attrs": {"axis": 1, "start": 0, "stop": 20}}, )"
      R"({"op": "matmul", "inputs": ["p", "v"], "output": "o"})";
  static const std::string heads =
      std::string(
          R"({"op": "reshape", "inputs": ["q"], "output": "q1", "attrs": {"shape": [14, 3, 10]}}, {"op": "transpose", "inputs": ["q1"], "output": "q2", "attrs": {"perm": [1, 0, 2]}},
    {"op": "reshape", "inputs": ["k"], "output": "k1", "attrs": {"shape": [26, 3, 10]}}, {"op": "transpose", "inputs": ["k1"], "output": "k2", "attrs": {"perm": [1, 2, 0]}},
    {"op": "reshape", "inputs": ["v"], "output": "v1", "attrs": {"shape": [26, 3, 10]}}, {"op": "transpose", "inputs": ["v1"], "output": "v2", "attrs": {"perm": [1, 0, 2]}},
    {"op": "matmul", "inputs": ["q2", "k2"], "output": "m"}, )") +
      kSoftmax +
      R"(, {"op": "matmul", "inputs": ["p", "v2"], "output": "o1"}, {"op": "transpose", "inputs": ["o1"], "output": "o2", "attrs": {"perm": [1, 0, 2]}},
    {"op": "reshape", "inputs": ["o2"], "output": "o", "attrs": {"shape": [14, 30]}})";
  static const std::vector<Case> all = {
      {"linear", R"("x": {"shape": [14, 26], "dtype": "float16"}, "w": {"shape": [26, 22], "dtype": "float16"})",
       R"({"shape": [14, 22], "dtype": "float16"})", R"({"op": "matmul", "inputs": ["x", "w"], "output": "o"})"},
      {"attention",
       R"("q": {"shape": [3, 14, 10], "dtype": "float16"}, "k": {"shape": [3, 10, 26], "dtype": "float16"}, )"
       R"("v": {"shape": [3, 26, 12], "dtype": "float16"})",
       R"({"shape": [3, 14, 12], "dtype": "float16"})", attention.c_str()},
      {"causal",
       R"("q": {"shape": [3, 14, 10], "dtype": "float16"}, "k": {"shape": [3, 10, 26], "dtype": "float16"}, )"
       R"("v": {"shape": [3, 26, 12], "dtype": "float16"})",
       R"({"shape": [3, 14, 12], "dtype": "float16"})", causal.c_str()},
      {"latent", R"("q": {"shape": [6, 26], "dtype": "float16"}, "c": {"shape": [22, 26], "dtype": "float16"})",
       R"({"shape": [6, 20], "dtype": "float16"})", latent.c_str()},
      {"heads",
       R"("q": {"shape": [14, 30], "dtype": "float16"}, "k": {"shape": [26, 30], "dtype": "float16"}, )"
       R"("v": {"shape": [26, 30], "dtype": "float16"})",
       R"({"shape": [14, 30], "dtype": "float16"})", heads.c_str()},
  };
  return all;
}

Found all_of(const Program& p) {
  SearchOptions o;
  o.dominance = false;
  o.max_states = 200'000;
  return find(p, o);
}

}  // namespace

TEST_CASE("masks, slices, heads and split reductions: found, equal at both witnesses, right at ragged sizes") {
  for (const Case& c : cases()) {
    INFO(c.name);
    const Program p = program_of(c);
    const Found f = find(p);
    CHECK(f.report.complete);
    bool one = false, two = false;
    for (const Structure& s : f.structures) {
      CHECK(is_only_calls(remove_dead(s.graph)) == (std::string(c.name) != "causal"));   // masks read positions
      one |= s.kernels == 1;
      two |= s.kernels == 2;
      for (int variant : {0, 1}) {
        const Witness w = make_witness(p, variant);
        const auto g = instantiate(s, w.params, halve(split_extents(s, w.params)));
        REQUIRE(g);
        CHECK(equal(w.graph, *g, 5).kind == Verdict::Kind::kEqual);
      }
      for (auto [grid, loop] : {std::pair{4, 2}, std::pair{6, 3}, std::pair{16, 8}, std::pair{1, 1}}) {
        const auto g = instantiate(s, param_types(p), tiles(s, param_types(p), grid, loop));
        REQUIRE(g);
        CHECK_FALSE(check_laws(*g));
        CHECK(difference(p.graph, *g, param_types(p), 3) < 1e-9);
      }
    }
    CHECK(one);
    CHECK(two);
  }
}

TEST_CASE("split keys: partial sums of both reductions leave the first kernel, the second divides") {
  const Program p = program_of(cases()[1]);
  const Found f = find(p);
  CHECK(std::any_of(f.structures.begin(), f.structures.end(), [](const Structure& s) {
    if (s.kernels != 2) return false;
    const Graph& first = body(s.graph);
    return first.num_results() == 2 && count<MatMul>(first) == 2 && count<Accum>(first) == 2 && first.launch().loop == 2;
  }));
}

TEST_CASE("a maximum can be split over blocks, too") {
  const Program p = parse(
      R"({"version": "1.0", "name": "t", "inputs": {"x": {"shape": [3, 4096], "dtype": "float16"}}, "outputs": {"o": {"shape": [3, 1], "dtype": "float16"}},
    "nodes": [{"op": "max", "inputs": ["x"], "output": "o", "attrs": {"axis": 1, "keepdim": true}}]})");
  const Found f = find(p);
  CHECK(std::any_of(f.structures.begin(), f.structures.end(), [](const Structure& s) { return s.kernels == 2; }));
  for (const Structure& s : f.structures) {
    const auto g = instantiate(s, param_types(p), tiles(s, param_types(p), 64, 16));
    REQUIRE(g);
    CHECK(difference(p.graph, *g, param_types(p), 3) == 0);
  }
}

TEST_CASE("without dominance every split is there, and none is wrong") {
  for (size_t i : {size_t{0}, size_t{1}}) {
    const Program p = program_of(cases()[i]);
    const Found f = all_of(p);
    CHECK(f.structures.size() >= 12);
    for (const Structure& s : f.structures) {
      const auto g = instantiate(s, param_types(p), tiles(s, param_types(p), 4, 2));
      REQUIRE(g);
      CHECK(difference(p.graph, *g, param_types(p), 3) < 1e-9);
    }
  }
}

TEST_CASE("halving keeps a chunk a whole number of tiles") {
  CallNumbers n;
  n.grid_tile = {7, 11, 0};
  n.loop_tile = 11;
  n.chunk_axis = 1;
  const CallNumbers h = halve({n})[0];
  CHECK(h.grid_tile[0] == 4);
  CHECK(h.grid_tile[1] == 6);
  CHECK(h.loop_tile == 3);
}

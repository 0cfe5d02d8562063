// The structures that Mirage's repository publishes (benchmark/saved_mugraphs), those that are right: all are in the space when merging and
// dominance are off. And: what the gates close is no loss.
#include <algorithm>
#include <set>
#include "helpers.h"

using namespace mirage;
using namespace helpers;

namespace {

std::vector<Structure> all_of(const Program& p, int64_t states = 3'000'000) {
  SearchOptions o;
  o.dominance = o.merge = false;
  o.max_states = states;
  return find(p, o).structures;
}

std::vector<const Graph*> bodies(const Graph& g) {
  std::vector<const Graph*> out;
  for (const Node& n : g.nodes()) if (const auto* c = std::get_if<Call>(&n.op)) out.push_back(c->body.get());
  return out;
}

int maps(const Graph& g, MapFn fn) {
  int n = 0;
  for (const Node& node : g.nodes()) if (const auto* m = std::get_if<Map>(&node.op)) n += m->fn == fn;
  return n;
}

bool after_loop(const Graph& g, MapFn fn) {
  const std::vector<Phase> phase = phases(g);
  for (NodeId n = 0; n < g.num_nodes(); n++)
    if (const auto* m = g.form<Map>(n); m && m->fn == fn && phase[static_cast<size_t>(g.node(n).first_value)] != Phase::kAfter)
      return false;
  return true;
}

const char* kAttention =
    R"(, "nodes": [{"op": "matmul", "inputs": ["q", "k"], "output": "s"}, {"op": "exp", "inputs": ["s"], "output": "e"}, {"op": "sum", "inputs": ["e"], "output": "l", "attrs": {"axis": -1, "keepdim": true}},
  {"op": "div", "inputs": ["e", "l"], "output": "p"}, {"op": "matmul", "inputs": ["p", "v"], "output": "o"}]})";

Program attention(int heads, int queries) {
  const std::string h = std::to_string(heads), q = std::to_string(queries);
  return parse(R"({"version": "1.0", "name": "t", "inputs": {"q": {"shape": [)" + h + ", " + q +
               R"(, 64], "dtype": "float16"}, "k": {"shape": [)" + h + R"(, 64, 4096], "dtype": "float16"}, "v": {"shape": [)" + h +
               R"(, 4096, 64], "dtype": "float16"}}, "outputs": {"o": {"shape": [)" + h + ", " + q + R"(, 64], "dtype": "float16"}})" +
               kAttention);
}

}  // namespace

TEST_CASE("published: gated MLP, both products and their accumulators in one loop, silu and the product behind it") {
  const auto all = all_of(spec("gated_mlp"));
  CHECK(std::any_of(all.begin(), all.end(), [](const Structure& s) {
    const Graph& b = body(s.graph);
    return s.kernels == 1 && b.launch().grid == std::array<int64_t, 3>{2, 1, 1} && b.launch().loop == 2 && count<Accum>(b) == 2 &&
           after_loop(b, MapFn::kSilu) && after_loop(b, MapFn::kMul);
  }));
}

TEST_CASE("published: RMSNorm + linear, the norm moves past the product") {
  const auto all = all_of(spec("rms_norm_linear"), 1'000'000);
  CHECK(std::any_of(all.begin(), all.end(), [](const Structure& s) {
    const Graph& b = body(s.graph);
    return s.kernels == 1 && b.launch().grid == std::array<int64_t, 3>{2, 1, 1} && b.launch().loop == 2 && count<Accum>(b) == 2 &&
           after_loop(b, MapFn::kDiv);
  }));
}

TEST_CASE("published: LoRA without a loop, three products and a sum; as the paper has it, one product of concatenations") {
  const auto all = all_of(spec("lora"), 1'000'000);
  CHECK(std::any_of(all.begin(), all.end(), [](const Structure& s) {
    const Graph& b = body(s.graph);
    return s.kernels == 1 && b.launch().loop == 1 && count<MatMul>(b) == 3 && maps(b, MapFn::kAdd) == 1;
  }));
  CHECK(std::any_of(all.begin(), all.end(), [](const Structure& s) {
    const Graph& b = body(s.graph);
    return s.kernels == 1 && count<MatMul>(b) == 2 && count<Concat>(b) == 2 && maps(b, MapFn::kAdd) == 0;
  }));
  const Program p = spec("lora");
  const Witness w = make_witness(p, 1);
  for (const Structure& s : all) {
    if (count<Concat>(body(s.graph)) == 0) continue;
    const auto g = instantiate(s, w.params, tiles(s, w.params, 4, 2));
    REQUIRE(g);
    CHECK(difference(w.graph, *g, w.params, 1) < 1e-9);
  }
}

TEST_CASE("published: nTrans, a block a row, no loop") {
  const auto all = all_of(spec("n_trans"), 300'000);
  CHECK(std::any_of(all.begin(), all.end(), [](const Structure& s) {
    return s.kernels == 1 && body(s.graph).launch().loop == 1 && body(s.graph).launch().grid == std::array<int64_t, 3>{2, 1, 1};
  }));
}

TEST_CASE("published: GQA, MQA and MHA as two kernels, keys split, both sums put together by the second") {
  for (auto [heads, queries] : {std::pair{2, 256}, std::pair{1, 1024}, std::pair{16, 64}}) {
    SearchOptions o;   // they need no switch
    const auto all = find(attention(heads, queries), o).structures;
    CHECK(std::any_of(all.begin(), all.end(), [&](const Structure& s) {
      const auto b = bodies(s.graph);
      return b.size() == 2 && b[0]->num_results() == 2 && count<MatMul>(*b[0]) == 2 && maps(*b[0], MapFn::kExp) == 1 &&
             count<Reduce>(*b[1]) == 2 && maps(*b[1], MapFn::kDiv) == 1 && count<MatMul>(*b[1]) == 0;
    }));
    CHECK(std::any_of(all.begin(), all.end(), [](const Structure& s) {
      return s.kernels == 1 && count<MatMul>(body(s.graph)) == 2 && body(s.graph).launch().loop == 2;
    }));
  }
}

TEST_CASE("the expression gate, merging and dominance close nothing that is not reached otherwise") {
  const std::vector<std::string> programs = {
      R"("inputs": {"x": {"shape": [16, 32], "dtype": "float16"}, "w": {"shape": [32, 64], "dtype": "float16"}}, )"
      R"("outputs": {"o": {"shape": [16, 64], "dtype": "float16"}}, "nodes": [{"op": "matmul", "inputs": ["x", "w"], "output": "o"}])",
      R"("inputs": {"x": {"shape": [16, 32], "dtype": "float16"}}, "outputs": {"o": {"shape": [16, 1], "dtype": "float16"}}, )"
      R"("nodes": [{"op": "exp", "inputs": ["x"], "output": "e"}, {"op": "sum", "inputs": ["e"], )"
      R"("output": "o", "attrs": {"axis": 1, "keepdim": true}}])",
      R"("inputs": {"x": {"shape": [16, 32], "dtype": "float16"}}, "outputs": {"o": {"shape": [16, 32], "dtype": "float16"}}, )"
      R"("nodes": [{"op": "exp", "inputs": ["x"], "output": "e"}, {"op": "sum", "inputs": ["e"], )"
      R"("output": "l", "attrs": {"axis": 1, "keepdim": true}}, {"op": "div", "inputs": ["e", "l"], "output": "o"}])",
      R"("inputs": {"x": {"shape": [16, 32], "dtype": "float16"}, "w": {"shape": [32, 64], "dtype": "float16"}, )"
      R"("b": {"shape": [64], "dtype": "float16"}}, "outputs": {"o": {"shape": [16, 64], "dtype": "float16"}}, )"
      R"("nodes": [{"op": "matmul", "inputs": ["x", "w"], "output": "m"}, {"op": "add", "inputs": ["m", "b"], "output": "s"}, )"
      R"({"op": "relu", "inputs": ["s"], "output": "o"}])",
      R"("inputs": {"x": {"shape": [16, 32], "dtype": "float16"}, "y": {"shape": [16, 32], "dtype": "float16"}}, )"
      R"("outputs": {"o": {"shape": [16, 32], "dtype": "float16"}}, "nodes": [{"op": "silu", "inputs": ["x"], "output": "s"}, )"
      R"({"op": "mul", "inputs": ["s", "y"], "output": "o"}])",
      R"("inputs": {"x": {"shape": [16, 32], "dtype": "float16"}, "d": {"shape": [16, 1], "dtype": "float16"}, )"
      R"("w": {"shape": [32, 64], "dtype": "float16"}}, "outputs": {"o": {"shape": [16, 64], "dtype": "float16"}}, )"
      R"("nodes": [{"op": "div", "inputs": ["x", "d"], "output": "n"}, {"op": "matmul", "inputs": ["n", "w"], "output": "o"}])",
  };
  for (const std::string& text : programs) {
    const Program p = parse(R"({"version": "1.0", "name": "t", )" + text + "}");
    auto graphs = [&](bool gate, bool rest) {
      SearchOptions o;
      o.expression_gate = gate;
      o.merge = o.dominance = rest;
      o.max_ideas = 1;
      o.max_kernel_ops = 1;
      o.max_block_ops = 7;
      const Found f = find(p, o);
      if (gate) CHECK(f.report.complete);   // without it values may exceed what one split may have
      std::set<std::string> out;
      for (const Structure& s : f.structures) out.insert(print(s.graph));
      return out;
    };
    const auto brute = graphs(false, false), gated = graphs(true, false), best = graphs(true, true);
    INFO(text << "\n" << brute.size() << " " << gated.size() << " " << best.size());
    // what puts parts of sums together in a loop of its own is beyond what the brute force reaches under some splits
    for (const std::string& g : gated)
      CHECK((brute.count(g) || g.find("call") != g.rfind("call")));
    CHECK(std::includes(gated.begin(), gated.end(), best.begin(), best.end()));
    CHECK_FALSE(best.empty());
    std::vector<std::string> only_brute;
    // what only the brute force has uses the same value twice or undoes what it did: no rule of the table says so
    for (const std::string& g : brute)
      if (!gated.count(g)) only_brute.push_back(g);
    INFO((only_brute.empty() ? std::string() : only_brute[0]));
    CHECK((only_brute.empty() || text.find("div") != std::string::npos));
  }
}

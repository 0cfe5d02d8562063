// The five programs: what is found, what it becomes at true sizes, the same twice.
#include <algorithm>
#include "helpers.h"
#include "mirage/verify/verify.h"
#include "search/growth/block_search.h"

using namespace mirage;
using namespace helpers;

TEST_CASE("the five programs become one kernel") {
  const std::string name = GENERATE("rms_norm_linear", "gated_mlp", "lora", "lora_4k", "n_trans");
  INFO(name);
  const Program p = spec(name);
  const Found f = find(p);
  REQUIRE_FALSE(f.structures.empty());
  CHECK(f.report.complete);
  CHECK(f.report.stop_reason == "exhausted");
  CHECK(f.report.candidates == static_cast<int64_t>(f.structures.size()));
  CHECK(f.report.verified == f.report.candidates);
  CHECK(f.report.states > 0);
  const Witness w = make_witness(p, 0);
  CHECK(std::any_of(f.structures.begin(), f.structures.end(), [](const Structure& s) { return is_one_kernel(s.graph); }));
  for (const Structure& s : f.structures) {
    CHECK(is_one_kernel(s.graph) == (s.kernels == 1));
    CHECK(is_only_calls(s.graph));
    CHECK_FALSE(check_laws(s.graph));
    CHECK(search::count_block_ops(body(s.graph)) <= f.report.max_block_ops_used);
    CHECK(equal(w.graph, s.graph, 11).kind == Verdict::Kind::kEqual);
  }
}

TEST_CASE("structures at true sizes obey the laws and have the program's results") {
  const std::string name = GENERATE("rms_norm_linear", "gated_mlp", "lora", "lora_4k", "n_trans", "odd", "softmax_attention");
  INFO(name);
  const Program p = spec(name);
  for (const Structure& s : find(p).structures)
    for (auto [grid, loop] : {std::pair{64, 64}, std::pair{48, 40}, std::pair{1 << 20, 1 << 20}, std::pair{1, 1}}) {
      const auto g = instantiate(s, param_types(p), tiles(s, param_types(p), grid, loop));
      REQUIRE(g);
      CHECK_FALSE(check_laws(*g));
      for (NodeId n : g->outputs())
        CHECK(g->dims(g->node(n).operands[0]) == p.outputs[static_cast<size_t>(g->form<Output>(n)->result)].type.dims);
    }
}

TEST_CASE("RMSNorm + linear: the division moves behind the loop") {
  const Found f = find(spec("rms_norm_linear"));
  CHECK(std::any_of(f.structures.begin(), f.structures.end(), [](const Structure& s) {
    const Graph& b = body(s.graph);
    const std::vector<Phase> phase = phases(b);
    bool after = true;
    for (NodeId n = 0; n < b.num_nodes(); n++)
      if (const auto* m = b.form<Map>(n); m && m->fn == MapFn::kDiv)
        after &= phase[static_cast<size_t>(b.node(n).first_value)] == Phase::kAfter;
    return b.launch().loop == 2 && count<Accum>(b) == 2 && count<MatMul>(b) == 1 && after;
  }));
}

TEST_CASE("scaled weights: the scale moves behind the loop, a mask cannot") {
  const auto in_loop = [](const char* op, const char* shape) {
    const Found f = find(parse(std::string(R"({"version": "1.0", "name": "s", "inputs": {"x": {"shape": [8, 512], "dtype": "float16"},
      "w": {"shape": [512, 1024], "dtype": "float16"}, "s": {"shape": )") + shape + R"(, "dtype": "float16"}}, "outputs": {"y": {"dtype": "float16"}},
      "nodes": [{"op": ")" + op + R"(", "inputs": ["w", "s"], "output": "t"}, {"op": "matmul", "inputs": ["x", "t"], "output": "y"}]})"));
    REQUIRE_FALSE(f.structures.empty());
    size_t computed = 0;
    for (const Structure& s : f.structures)
      for (const Node& n : s.graph.nodes()) {
        const auto* call = std::get_if<Call>(&n.op);
        if (!call) continue;
        const Graph& body = *call->body;
        computed += std::any_of(body.nodes().begin(), body.nodes().end(), [&](const Node& m) {
          return std::holds_alternative<MatMul>(m.op) && body.def_form<Map>(m.operands[1]);
        });
      }
    return std::pair{computed, f.structures.size()};
  };
  const auto [scaled, of_scaled] = in_loop("mul", "[1, 1024]");
  CHECK(scaled < of_scaled);   // a graph whose weights go to the product as they are
  const auto [masked, of_masked] = in_loop("maximum", "[1, 1024]");
  CHECK(masked == of_masked);
}

TEST_CASE("gated MLP: both products in one loop, x loaded once, the gate behind it") {
  const Found f = find(spec("gated_mlp"));
  CHECK(std::any_of(f.structures.begin(), f.structures.end(), [](const Structure& s) {
    const Graph& b = body(s.graph);
    return b.launch().loop == 2 && count<Input>(b) == 3 && count<MatMul>(b) == 2 && count<Accum>(b) == 2;
  }));
}

TEST_CASE("LoRA: the adapter's second product may stand behind the loop or inside, without a loop too") {
  const Found f = find(spec("lora_4k"));
  auto any = [&](int loop, int accums) {
    return std::any_of(f.structures.begin(), f.structures.end(), [&](const Structure& s) {
      return body(s.graph).launch().loop == loop && count<Accum>(body(s.graph)) == accums && count<MatMul>(body(s.graph)) == 3;
    });
  };
  CHECK(any(2, 2));
  CHECK(any(2, 1));
  SearchOptions all;
  all.dominance = false;   // with dominance it is an instance of one with a loop
  const Found every = find(spec("lora_4k"), all);
  CHECK(std::any_of(every.structures.begin(), every.structures.end(), [](const Structure& s) {
    return s.kernels == 1 && body(s.graph).launch().loop == 1 && count<MatMul>(body(s.graph)) == 3;
  }));
}

TEST_CASE("nTrans: the published structure has no loop") {
  const Found f = find(spec("n_trans"));
  CHECK(std::any_of(f.structures.begin(), f.structures.end(), [](const Structure& s) {
    return body(s.graph).launch().loop == 1 && count<Accum>(body(s.graph)) == 0 && count<Input>(body(s.graph)) == 3;
  }));
}

TEST_CASE("other programs are searched too") {
  const std::string name =
      GENERATE("softmax_attention", "layer_norm_linear", "mlp_gelu", "odd", "gqa", "n_trans_l2", "rms_norm_linear_gain");
  INFO(name);
  const Program p = spec(name);
  const Found f = find(p);
  const Witness w = make_witness(p, 0);
  CHECK_FALSE(f.structures.empty());
  for (const Structure& s : f.structures) CHECK(equal(w.graph, s.graph, 3).kind != Verdict::Kind::kDifferent);
}

TEST_CASE("what has no witness form is refused, not guessed") {
  const Found f = find(parse(
      R"({"version": "1.0", "name": "t", "inputs": {"x": {"shape": [6, 32], "dtype": "float16"}}, "outputs": {"y": {"shape": [6, 15], "dtype": "float16"}},
    "nodes": [{"op": "slice", "inputs": ["x"], "output": "s", "attrs": {"axis": 1, "start": 0, "stop": 29, "step": 2}}, {"op": "exp", "inputs": ["s"], "output": "y"}]})"));
  CHECK(f.structures.empty());
  CHECK_FALSE(f.report.complete);
  CHECK(f.report.stop_reason.rfind("not searched: ", 0) == 0);
}

TEST_CASE("two runs give the same structures and counts") {
  for (const char* name : {"rms_norm_linear", "lora", "softmax_attention"}) {
    const Program p = spec(name);
    SearchOptions other;
    other.threads = 2;
    const Found a = find(p), b = find(p, other);
    REQUIRE(a.structures.size() == b.structures.size());
    for (size_t i = 0; i < a.structures.size(); i++) {
      CHECK(a.structures[i].graph == b.structures[i].graph);
      CHECK(a.structures[i].rank == b.structures[i].rank);
    }
    CHECK(a.report.states == b.report.states);
    for (size_t g = 0; g < a.report.gates.size(); g++) {
      CHECK(a.report.gates[g].closed == b.report.gates[g].closed);
      CHECK(a.report.gates[g].first_example == b.report.gates[g].first_example);
    }
  }
}

TEST_CASE("the budget ends the search and says so") {
  SearchOptions o;
  o.max_states = 50;
  const Found f = find(spec("rms_norm_linear"), o);
  CHECK_FALSE(f.report.complete);
  CHECK(f.report.stop_reason == "states");
}

TEST_CASE("without dominance every graph of the space comes, and all are equal") {
  SearchOptions o;
  o.dominance = false;
  o.max_ideas = 1;
  o.max_kernel_ops = 1;
  const Program p = spec("lora_4k");
  const Found all = find(p, o), best = find(p);
  CHECK(all.structures.size() > best.structures.size());
  const Witness w = make_witness(p, 0);
  for (const Structure& s : all.structures) CHECK(equal(w.graph, s.graph, 5).kind == Verdict::Kind::kEqual);
  for (const Structure& s : best.structures)   // what dominance keeps is among them
    CHECK(std::any_of(all.structures.begin(), all.structures.end(), [&](const Structure& t) { return t.graph == s.graph; }));
}

TEST_CASE("several kernels are found too: cuts at values of the program") {
  SearchOptions o;
  o.dominance = false;
  o.max_ideas = 0;
  const Program p = spec("mlp_gelu");
  const Found f = find(p, o);
  const Witness w = make_witness(p, 0);
  int two = 0;
  for (const Structure& s : f.structures) {
    two += s.kernels == 2 && count<Call>(s.graph) == 2;
    if (s.kernels == 2 && two <= 5) CHECK(equal(w.graph, s.graph, 5).kind == Verdict::Kind::kEqual);
  }
  CHECK(two > 0);
}

TEST_CASE("where the best graphs do not pass, others are tried") {
  const Program p = spec("rms_norm_linear");
  const size_t best = find(p).structures.size();
  size_t tried = 0, kept = 0;
  SearchOptions o;
  o.max_kernel_ops = 1;
  const SearchReport r = enumerate(p, target(), o, [&](const Structure& s) {
    tried++;
    const bool pass = count<Accum>(body(s.graph)) != 2 || tried > best;   // the caller may have reasons of its own, rounding for one
    kept += pass;
    return pass ? SinkVerdict::kVerified : SinkVerdict::kRejected;
  });
  CHECK(tried > best);
  CHECK(kept > 0);
  CHECK(r.rejected + r.verified == r.candidates);
}

TEST_CASE("an interrupt ends the search") {
  const std::atomic<bool> stop{true};
  SearchOptions o;
  o.stop = &stop;
  const Found f = find(spec("rms_norm_linear"), o);
  CHECK(f.structures.empty());
  CHECK(f.report.stop_reason == "interrupted");
  CHECK_FALSE(f.report.complete);
}

TEST_CASE("a program that only copies has no structure; a copied result beside a computed one has") {
  const std::string head = R"({"version": "1.0", "name": "t", "inputs": {"x": {"shape": [8, 6], "dtype": "float16"}}, "outputs": )";
  const Program copy = parse(
      head +
      R"({"y": {"shape": [8, 6], "dtype": "float16"}}, "nodes": [{"op": "cast", "inputs": ["x"], )"
      R"("output": "y", "attrs": {"dtype": "float16"}}]})");
  CHECK(find(copy).structures.empty());
  const Program both = parse(
      head +
      R"({"y": {"shape": [8, 6], "dtype": "float32"}, "z": {"shape": [8, 6], "dtype": "float16"}}, "nodes": [{"op": "cast", "inputs": ["x"], "output": "y", "attrs": {"dtype": "float32"}},
    {"op": "exp", "inputs": ["x"], "output": "z"}]})");
  const Found f = find(both);
  REQUIRE_FALSE(f.structures.empty());
  const Witness w = make_witness(both, 0);
  for (const Structure& s : f.structures) CHECK(equal(w.graph, s.graph, 2).kind == Verdict::Kind::kEqual);
}

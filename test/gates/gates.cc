// Graphs that must be pruned, naming the gate, and published structures that must survive every gate.
#include <catch2/catch.hpp>
#include <algorithm>
#include <fstream>
#include <memory>
#include <sstream>
#include "mirage/spec/spec.h"
#include "search/growth/block_search.h"

using namespace mirage;
using namespace mirage::search;

namespace {

/// RMSNorm + linear under one split, values built by hand.
struct Bench {
  explicit Bench(const std::string& name, bool loop) : program(read(name)), ref(make_reference(program, 0)) {
    std::vector<ValueId> leaves, targets;
    for (NodeId n : program.graph.inputs()) leaves.push_back(program.graph.node(n).first_value);
    for (NodeId n : program.graph.outputs()) targets.push_back(program.graph.node(n).operands[0]);
    problem = make_problem(program.graph, leaves, targets);
    expressions = reference_expressions(ref, problem, pool);
    for (const Split& s : enumerate_splits(program.graph, ref.classes, problem).all)
      if ((s.loop_class >= 0) == loop) { split = s; break; }
    meter.begin({});
    values = std::make_unique<BlockValues>(ref, problem, split, pool, expressions, true, meter);
  }
  static Program read(const std::string& name) {
    std::ifstream f(std::string(MIRAGE_SOURCE_DIR) + "/specs/" + name + ".json");
    std::stringstream text;
    text << f.rdbuf();
    auto p = parse_spec({name, text.str()});
    REQUIRE(p.ok());
    return std::move(p.value());
  }
  int op(const Op& o) const {
    for (size_t i = 0; i < values->operators().size(); i++) if (values->operators()[i].op == o) return static_cast<int>(i);
    FAIL("no such operator");
    return -1;
  }
  int apply(const Op& o, std::vector<int> in) { return values->apply(op(o), in); }
  /// The gate that closes o on in; kNumGates if none does.
  Gate closed(const Op& o, std::vector<int> in) {
    std::array<int64_t, static_cast<size_t>(Gate::kNumGates)> before{};
    for (size_t g = 0; g < before.size(); g++) before[g] = meter.report.gates[g].closed;
    if (apply(o, std::move(in)) >= 0) return Gate::kNumGates;
    for (size_t g = 0; g < before.size(); g++) if (meter.report.gates[g].closed > before[g]) return static_cast<Gate>(g);
    return Gate::kNumGates;
  }
  Program program;
  Reference ref;
  Problem problem;
  Split split;
  ExprPool pool;
  std::vector<ExprId> expressions;
  Meter meter{nullptr, std::nullopt};
  std::unique_ptr<BlockValues> values;
};

const Op kSum1 = Reduce{ReduceFn::kSum, 1, 0};
const Op kAcc = Accum{ReduceFn::kSum};

}  // namespace

TEST_CASE("gates close what cannot become the program") {
  Bench b("rms_norm_linear", true);
  const int x = b.values->loads()[0], w = b.values->loads()[1];
  const int square = b.apply(Map{MapFn::kSquare}, {x}), product = b.apply(MatMul{}, {x, w});
  REQUIRE(square >= 0);
  REQUIRE(product >= 0);
  const int total = b.apply(kAcc, {product});
  REQUIRE(total >= 0);
  CHECK(b.closed(MatMul{}, {x, x}) == Gate::kType);                       // shapes
  CHECK(b.closed(MatMul{}, {w, x}) == Gate::kType);
  CHECK(b.closed(Map{MapFn::kMul}, {x, total}) == Gate::kLaw);            // inside and behind the loop
  CHECK(b.closed(kAcc, {total}) == Gate::kLaw);                           // two accumulators
  CHECK(b.closed(Map{MapFn::kSqrt}, {x}) == Gate::kExpression);           // no root of x in the program
  CHECK(b.closed(Map{MapFn::kAdd}, {x, x}) == Gate::kExpression);
  CHECK(b.closed(kSum1, {w}) == Gate::kIndex);                            // columns lie in different blocks
  const int folded = b.apply(kAcc, {square});
  REQUIRE(folded >= 0);
  CHECK(b.closed(Map{MapFn::kSqrt}, {folded}) == Gate::kIndex);           // tiles were added up: only a sum over the rest makes sense
  CHECK(b.closed(kSum1, {folded}) == Gate::kNumGates);                    // which is the same as the sum of sums
  CHECK(b.apply(kSum1, {folded}) == b.apply(kAcc, {b.apply(kSum1, {square})}));
}

TEST_CASE("gates close a second exponential and an invariant accumulator") {
  Bench mlp("gated_mlp", true);
  const int z = mlp.apply(kAcc, {mlp.apply(MatMul{}, {mlp.values->loads()[0], mlp.values->loads()[1]})});
  const int once = mlp.apply(Map{MapFn::kSilu}, {z});
  REQUIRE(once >= 0);
  CHECK(mlp.closed(Map{MapFn::kSilu}, {once}) == Gate::kExponent);
  Bench rows("n_trans", false);
  // no loop, no accumulator
  CHECK(std::none_of(rows.values->operators().begin(), rows.values->operators().end(),
                     [](const BlockOp& o) { return std::holds_alternative<Accum>(o.op); }));
}

TEST_CASE("gates of the search: what closes is counted, with an example") {
  const Program p = Bench::read("rms_norm_linear");
  const SearchReport r = enumerate(p, *find_target("sm_90a"), {}, [](const Structure&) { return SinkVerdict::kVerified; });
  for (Gate g : {Gate::kType, Gate::kLaw, Gate::kIndex, Gate::kExpression, Gate::kRank, Gate::kUnused, Gate::kDominance}) {
    INFO(gate_name(g));
    CHECK(r.gates[static_cast<size_t>(g)].closed > 0);
    CHECK_FALSE(r.gates[static_cast<size_t>(g)].first_example.empty());
  }
  CHECK(std::string(gate_name(Gate::kExpression)) == "expression");
  CHECK(std::string(gate_help(Gate::kMerge)).find("--no-merge") != std::string::npos);
}

TEST_CASE("a structure that is wrong for another size is closed by the ragged witness or never built") {
  // Accumulating a value that the loop does not change gives i*x: the law forbids it, so that a loop over nothing cannot appear.
  Bench b("lora_4k", true);
  const int low = b.values->loads()[3];   // (R, N), whole in every iteration
  CHECK(b.closed(kAcc, {low}) == Gate::kLaw);
}

TEST_CASE("values of the program are recognised under every split") {
  Bench b("rms_norm_linear", true);
  const int x = b.values->loads()[0];
  const int partial = b.apply(kSum1, {b.apply(Map{MapFn::kSquare}, {x})});
  CHECK(b.values->value(partial).is_partial);
  CHECK(b.values->value(partial).is_known());
  const int product = b.apply(MatMul{}, {x, b.values->loads()[1]});
  CHECK_FALSE(b.values->value(product).is_known());   // x w is not a value of the program, (x / rms) w is
  CHECK(b.values->is_idea(b.op(MatMul{}), product));
}

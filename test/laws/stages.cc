// Properties of the whole flow, over every spec: printed graphs read back as themselves, candidates and plans mean what the reference
// means, and nothing depends on the number of threads.
#include <catch2/catch.hpp>
#include <algorithm>
#include <cstdlib>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include "driver/decide/candidates.h"
#include "mirage/codegen/module.h"
#include "mirage/driver/compile.h"
#include "mirage/ir/eval.h"
#include "mirage/plan/plan.h"
#include "mirage/spec/text.h"
#include "mirage/support/file.h"
#include "mirage/support/hash.h"

using namespace mirage;
namespace fs = std::filesystem;

namespace {

std::vector<Source> specs() {
  std::vector<Source> out;
  for (const auto& e : fs::directory_iterator(fs::path(MIRAGE_SOURCE_DIR) / "specs"))
    if (e.path().extension() == ".json") out.push_back({e.path().filename().string(), read_file(e.path().string()).value()});
  std::sort(out.begin(), out.end(), [](const Source& a, const Source& b) { return a.name < b.name; });
  return out;
}

std::vector<Tensor<double>> random_inputs(const Graph& g, uint64_t seed) {
  Rng rng(seed);
  std::vector<Tensor<double>> out(static_cast<size_t>(g.num_params()));
  for (NodeId n : g.inputs()) {
    Tensor<double> t(g.dims(g.node(n).first_value), 0.0);
    for (double& x : t.data) x = rng.uniform() * 2 - 1;
    out[static_cast<size_t>(g.form<Input>(n)->param)] = t;
  }
  return out;
}

/// The largest difference of two results in units of the largest value, in exact arithmetic of doubles.
double difference(const Graph& a, const Graph& b, uint64_t seed) {
  DoubleAlgebra algebra;
  const auto in = random_inputs(a, seed);
  const auto x = evaluate(a, std::span<const Tensor<double>>(in), algebra), y = evaluate(b, std::span<const Tensor<double>>(in), algebra);
  REQUIRE(x.size() == y.size());
  double largest = 0, scale = 1e-30;
  for (size_t r = 0; r < x.size(); r++) {
    REQUIRE(x[r].dims == y[r].dims);
    for (size_t i = 0; i < x[r].data.size(); i++) {
      largest = std::max(largest, std::abs(x[r].data[i] - y[r].data[i]));
      scale = std::max(scale, std::abs(x[r].data[i]));
    }
  }
  return largest / scale;
}

void check_round_trip(const Graph& g) {
  const std::string text = print(g, "g");
  const auto back = parse_graph(text);
  INFO(text);
  REQUIRE(back.ok());
  CHECK(*back == g);
  CHECK(print(*back, "g") == text);
}

/// The witness of a program as a program of its own: small enough to evaluate.
Program small_program(const Program& p, const Witness& w) {
  Program q = p;
  q.graph = w.graph;
  for (size_t i = 0; i < q.inputs.size(); i++) {
    q.inputs[i].type = w.params[i];
    q.inputs[i].strides = row_major_strides(w.params[i].dims);
  }
  for (NodeId n : w.graph.outputs()) {
    TensorInfo& out = q.outputs[static_cast<size_t>(w.graph.form<Output>(n)->result)];
    out.type.dims = w.graph.dims(w.graph.node(n).operands[0]);
    out.strides = row_major_strides(out.type.dims);
  }
  return q;
}

}  // namespace

TEST_CASE("printed graphs read back as themselves, canonical specs too") {
  for (const Source& s : specs()) {
    INFO(s.name);
    const auto p = parse_spec(s);
    REQUIRE(p.ok());
    check_round_trip(p->graph);
    const auto again = parse_spec({"canonical.json", p->canonical});
    REQUIRE(again.ok());
    CHECK(again->graph == p->graph);
    CHECK(again->canonical == p->canonical);
  }
}

TEST_CASE("candidates and their instances round-trip, and equal the reference in doubles too") {
  const Target target = *find_target("sm_90a");
  for (const Source& s : specs()) {
    INFO(s.name);
    const auto p = parse_spec(s);
    REQUIRE(p.ok());
    const Witnesses w = make_witnesses(*p);
    if (!w.refusal.empty()) continue;
    int seen = 0;
    SearchOptions o;
    o.max_states = 400'000;
    enumerate(*p, target, o, [&](const Structure& c) {
      if (seen >= 6) return SinkVerdict::kUnknown;
      seen++;
      check_round_trip(c.graph);
      const Examined e = examine(c, *p, w, 7);
      if (e.verdict != SinkVerdict::kVerified) return e.verdict;
      for (const Claim& claim : e.candidate.claims) {
        INFO(print(claim.candidate));
        check_round_trip(claim.candidate);
        CHECK_FALSE(check_laws(claim.candidate));
        CHECK(difference(claim.reference, claim.candidate, 11) < 1e-9);
      }
      return e.verdict;
    });
  }
}

TEST_CASE("planning preserves meaning: the graph of a plan, matmuls lowered to calls, equals the reference") {
  for (const char* name : {"sm_80", "sm_90a"})
    for (const Source& s : specs()) {
      INFO(s.name << " for " << name);
      const auto p = parse_spec(s);
      REQUIRE(p.ok());
      for (int variant : {0, 1}) {
        const Witness w = make_witness(*p, variant);
        if (!w.refusal.empty()) continue;
        Program q = small_program(*p, w);
        for (bool is_exact : {false, true}) {
          if (is_exact) q.kept.clear();
          const Planned planned = make_plan(q, q.graph, *find_target(name));
          REQUIRE(planned.plan);
          CHECK_FALSE(check_laws(planned.plan->graph));
          CHECK(difference(q.graph, planned.plan->graph, 3) < (is_exact ? 1e-9 : 0.02));   // what is kept in 16 bits is rounded
        }
      }
    }
}

/// All files. That graphs, funnels and kernels do not depend on threads test/golden says of every spec: one thread writes what it compares,
/// three are what it runs.
TEST_CASE("one and three threads give the same files") {
  size_t number = 0;
  for (const Source& s : specs()) {
    if (number++ % 5 != 3 && !std::getenv("MIRAGE_FULL")) continue;
    INFO(s.name);
    std::vector<std::map<std::string, std::string>> files;
    for (int64_t jobs : {1, 3}) {
      Options o;
      o.jobs = jobs;
      Trace trace;
      CompileResult r = compile(o, s, trace);
      REQUIRE(r.exit == ExitCode::kOk);
      files.push_back(r.files);
    }
    CHECK(files[0] == files[1]);
  }
}

// What wins where the cheapest graph is one that nothing settles at the program's own size.
#include "driver/decide/decide.h"

#include <catch2/catch.hpp>

#include "driver/decide/unsettled.h"
#include "mirage/plan/plan.h"
#include "mirage/spec/spec.h"
#include "mirage/spec/text.h"

using namespace mirage;

namespace {

constexpr const char* kAttention = R"({"version": "1.0", "name": "attention",
 "inputs": {"q": {"shape": [8, 4], "dtype": "float16"}, "k": {"shape": [4, 24], "dtype": "float16"}, "v": {"shape": [24, 4], "dtype": "float16"}},
 "outputs": {"r": {"dtype": "float32"}},
 "nodes": [{"op": "matmul", "inputs": ["q", "k"], "output": "s"}, {"op": "exp", "inputs": ["s"], "output": "e"},
  {"op": "sum", "inputs": ["e"], "output": "d", "attrs": {"axis": 1, "keepdim": true}}, {"op": "div", "inputs": ["e", "d"], "output": "p"},
  {"op": "matmul", "inputs": ["p", "v"], "output": "r"}]})";

/// Attention whose shift is the maximum of the negated scores: the program over the reals, far from it in floats. No proof, and no trial
/// tells.
constexpr const char* kOpen = R"(kernel g {
%q = input 0 : f16[8,4]
%k = input 1 : f16[4,24]
%v = input 2 : f16[24,4]
%r = call grid(2,1,1) loop(3) (%q, %k, %v) {
 %a = input 0 grid(0,-,-) loop(-) : f16[4,4] %b = input 1 grid(-,-,-) loop(1) : f16[4,8] %c = input 2 grid(-,-,-) loop(0) : f16[8,4]
 %s = matmul %a %b
 %m = running (reduce.max 1 (neg %s)) %e = exp (sub %s %m)
 %d = accum.sum rescaled 1 (reduce.sum 1 %e) %m %n = accum.sum rescaled 1 (matmul %e %c) %m output 0 (div %n %d) grid(0,-,-) }
output 0 %r : f32
}
)";

struct Race {
  Folding folding;
  Plan straightforward;
  Found found;
  Choices choices;
  std::vector<std::string> not_done;

  Race() {
    const auto p = parse_spec({"attention.json", kAttention});
    REQUIRE(p.ok());
    folding.program = folding.whole = *p;
    const Planned planned = make_plan(*p, p->graph, *find_target("sm_90a"));
    REQUIRE(planned.plan);
    straightforward = *planned.plan;
    found.witnesses = make_witnesses(*p);
    found.candidates.resize(1);
    found.candidates[0].structure.graph = p->graph;
  }
  /// A graph whose kernels are predicted to take this part of the straightforward ones' time.
  void enter(const Graph& graph, double part) {
    Choice c;
    c.graph = graph;
    c.plan = straightforward;
    c.plan.predicted_us *= part;
    choices.best.push_back(std::move(c));
  }
  Decision decision(bool gate_refuses_settled = false) {
    const PlanGate gate = [&](const Plan& plan, Decision&) {
      const bool is_refused = gate_refuses_settled && plan.predicted_us > choices.best[0].plan.predicted_us;
      return GateResult{is_refused ? GateResult::Kind::kFailed : GateResult::Kind::kPassed, "emulated"};
    };
    return decide(choices, found, folding, straightforward, gate, Options{}, not_done);
  }
};

}  // namespace

TEST_CASE("a settled graph is preferred up to 3 % of the price of one that is not, and what is not is warned of") {
  const auto open = parse_graph(kOpen);
  REQUIRE(open);
  for (const double price : {0.2, 0.205, 0.207}) {
    Race race;
    race.enter(*open, 0.2);
    race.enter(race.folding.program.graph, price);
    const Decision d = race.decision();
    REQUIRE(d.choice);
    const bool takes_settled = price < 0.206;
    CHECK((d.choice == &race.choices.best[1]) == takes_settled);
    CHECK((d.support.kind == Verdict::Kind::kEqual) == takes_settled);
    const auto warning = unsettled_warning(d, "attention.json");
    CHECK(warning.has_value() == !takes_settled);
    if (!warning) continue;
    CHECK(warning->code == DiagCode::kNotSettled);
    CHECK(warning->where.file == "attention.json");
    CHECK(warning->text.find("at reduced sizes only") != std::string::npos);
  }
  Race race;   // the settled one does not pass its gate
  race.enter(*open, 0.2);
  race.enter(race.folding.program.graph, 0.201);
  const Decision d = race.decision(true);
  CHECK(d.choice == &race.choices.best[0]);
  CHECK(unsettled_warning(d, "").has_value());
  CHECK_FALSE(unsettled_warning(Decision{}, "").has_value());   // the program's own graph
}

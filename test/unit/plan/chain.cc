// The pattern of a running softmax between two contractions: what is one, and what is not.
#include "plan/block/chain.h"

#include <catch2/catch.hpp>

#include "plan/block/block_plan.h"
#include "mirage/spec/text.h"

using namespace mirage;

namespace {

/// The body of the call of a kernel graph.
Graph body_of(std::string text, const std::string& from = "", const std::string& to = "") {
  if (!from.empty()) {
    REQUIRE(text.find(from) != std::string::npos);
    text.replace(text.find(from), from.size(), to);
  }
  auto g = parse_graph(text, "test");
  REQUIRE(g);
  REQUIRE_FALSE(check_laws(*g));
  for (NodeId n = 0; n < g->num_nodes(); n++) if (const auto* c = g->form<Call>(n)) return *c->body;
  FAIL("no call");
  return *g;
}

const std::string kFlash =
    R"(kernel { %q = input 0 : f16[32,64] %k = input 1 : f16[64,256] %v = input 2 : f16[256,64] %b = input 3 : f16[32,256]
  %y = call grid(1,1,1) loop(4) (%q, %k, %v, %b) {
    %q = input 0 grid(-,-,-) loop(-) : f16[32,64] %k = input 1 grid(-,-,-) loop(1) : f16[64,64] %v = input 2 grid(-,-,-) loop(0) : f16[64,64] %b = input 3 grid(-,-,-) loop(1) : f16[32,64]
    %s = add (mul 0.125 (matmul %q %k)) %b
    %m = running (reduce.max 1 %s)
    %e = exp (sub %s %m)
    %a = accum.sum rescaled 1 (matmul %e %v) %m
    %l = accum.sum rescaled 1 (reduce.sum 1 %e) %m
    output 0 (div %a %l)
  }
  output 0 %y : f16
})";

}  // namespace

TEST_CASE("a running softmax between two contractions is a chain", "[chain]") {
  const Graph g = body_of(kFlash);
  const auto c = find_chain(g);
  REQUIRE(c);
  CHECK(g.form<MatMul>(c->scores));
  CHECK(g.form<MatMul>(c->contract));
  CHECK(c->scores < c->contract);
  CHECK(c->sum >= 0);
  CHECK(c->last == -1);
  CHECK(find_chain(body_of(kFlash, "output 0 (div %a %l)", "output 0 (add (div %a %l) (accum.max %m))"))->last >= 0);
}

TEST_CASE("what is no chain", "[chain]") {
  // not rescaled
  CHECK_FALSE(find_chain(body_of(kFlash, "accum.sum rescaled 1 (matmul %e %v) %m", "accum.sum (matmul %e %v)")));
  CHECK_FALSE(find_chain(body_of(kFlash, "rescaled 1 (matmul %e %v)", "rescaled 2 (matmul %e %v)")));
  // other statistics of the weights
  CHECK_FALSE(find_chain(body_of(kFlash, "(reduce.sum 1 %e)", "(reduce.sum 1 (square %e))")));
  // weights times something
  CHECK_FALSE(find_chain(body_of(kFlash, "(matmul %e %v)", "(matmul (mul %e %b) %v)")));
  CHECK_FALSE(find_chain(body_of(kFlash, "exp (sub %s %m)", "exp (sub %m %s)")));
  // the logits have another use
  CHECK_FALSE(find_chain(body_of(kFlash, "output 0 (div %a %l)", "output 0 (add (div %a %l) (accum.sum (reduce.sum 1 %s)))")));
  // the loop does something else
  CHECK_FALSE(find_chain(body_of(kFlash, "output 0 (div %a %l)", "output 0 (add (div %a %l) (accum.sum (reduce.sum 1 (square %b))))")));
}

TEST_CASE("a chain is one step of a block plan, with maxima where warps share the keys", "[chain]") {
  const Graph g = body_of(kFlash);
  std::vector<Access> operands, results;
  const auto access = [](Dims d) { Access a; a.dtype = DType::kF16; a.dims = d; a.strides = row_major_strides(d); return a; };
  for (const Dims& d : {Dims{32, 64}, Dims{64, 256}, Dims{256, 64}, Dims{32, 256}}) operands.push_back(access(d));
  results.push_back(access({32, 64}));
  const BlockPlanned p = plan_block(g, operands, results, *find_target("sm_80"));
  REQUIRE(p.plan);
  int chains = 0, others = 0;
  for (const Step& s : p.plan->steps) {
    if (s.phase != Phase::kLoop) continue;
    (s.kind == Step::Kind::kChain ? chains : others)++;
    CHECK(s.wi == 2);
    CHECK(s.wi * s.wk * 32 == p.plan->threads);
    CHECK(p.plan->tiles[static_cast<size_t>(s.tile)].parts == s.wk);
    CHECK(p.plan->tiles[static_cast<size_t>(s.factor)].fn == ReduceFn::kMax);
  }
  CHECK(chains == 1);
  CHECK(others == 0);
}

// Graphs made anew: what is copied, replaced, left out and given up.
#include <catch2/catch.hpp>

#include "mirage/ir/rewrite.h"
#include "mirage/spec/text.h"

using namespace mirage;

namespace {

Graph graph(const std::string& text) {
  auto g = parse_graph(text, "t.graph");
  if (!g) FAIL(g.errors()[0].text);
  return *g;
}

const std::string kTwo = "kernel g { %x = input 0 : f32[4,6] %e = exp %x %s = reduce.sum 1 %e output 0 %e : f32 output 1 %s : f32 }";

}  // namespace

TEST_CASE("a graph whose nodes are all copied is the graph, with its values numbered as they were") {
  const Graph g = graph(kTwo);
  Builder b(g.level(), g.launch());
  std::vector<ValueId> to;
  rewrite(g, b, to, [](NodeId, const std::vector<ValueId>&) { return kCopy; });
  CHECK(std::move(b).finish() == g);
  CHECK(to == std::vector<ValueId>{0, 1, 2});
}

TEST_CASE("what reads a replaced node reads what stands in its place, and operands may be changed") {
  const Graph g = graph(kTwo);
  Builder b(g.level());
  std::vector<ValueId> to;
  rewrite(g, b, to, [&](NodeId n, std::vector<ValueId>& operands) {
    if (g.form<Map>(n)) return b.map(MapFn::kNeg, {operands[0]});
    if (g.form<Reduce>(n)) operands[0] = b.map(MapFn::kAbs, {operands[0]});
    return kCopy;
  });
  const std::string wanted = "kernel g { %x = input 0 : f32[4,6] %e = neg %x %a = abs %e %s = reduce.sum 1 %a "
                             "output 0 %e : f32 output 1 %s : f32 }";
  CHECK(std::move(b).finish() == graph(wanted));
  CHECK(to == std::vector<ValueId>{0, 1, 3});
}

TEST_CASE("nodes are left out, and a rewriting ends where one has no place") {
  const Graph g = graph(kTwo);
  Builder b(g.level());
  std::vector<ValueId> to;
  rewrite(g, b, to, [&](NodeId n, const std::vector<ValueId>&) { return g.form<Reduce>(n) || n == g.outputs()[1] ? kNoValue : kCopy; });
  CHECK(std::move(b).finish() == graph("kernel g { %x = input 0 : f32[4,6] %e = exp %x output 0 %e : f32 }"));
  CHECK(to == std::vector<ValueId>{0, 1, -1});

  Builder stopped(g.level());
  to.clear();
  CHECK_FALSE(try_rewrite(g, stopped, to, [&](NodeId n, const std::vector<ValueId>&) { return g.form<Map>(n) ? kGiveUp : kCopy; }));
  Builder refused(g.level());
  to.clear();
  const auto narrower = [&](NodeId n, const std::vector<ValueId>&) {
    return g.form<Input>(n) ? refused.add_input(0, {DType::kBool, {4, 6}}) : kCopy;
  };
  CHECK_FALSE(try_rewrite(g, refused, to, narrower));   // no exponential of a bool
}

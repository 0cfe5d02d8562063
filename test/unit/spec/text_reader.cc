// The text form: what print writes reads back equal, names and nesting mean what they say, and text specs become the same programs as JSON.
#include "helpers.h"

using namespace mirage;
using namespace mirage::spec_test;

namespace {

Graph must_read(const std::string& text) {
  auto g = parse_graph(text);
  if (!g) FAIL(rendered(g.errors(), text) << text);
  return std::move(*g);
}

void check_round_trip(const Graph& g) {
  std::string text = print(g, "g");
  auto again = parse_named_graph(text);
  if (!again) FAIL(rendered(again.errors(), text) << text);
  CHECK(again->graph == g);
  CHECK(again->name == "g");
  CHECK(print(again->graph, "g") == text);
}

std::string error_of(const std::string& text) {
  auto g = parse_graph(text, "g.mg");
  if (g.ok()) FAIL("no error in " << text);
  const Diagnostic& d = g.errors()[0];
  return std::to_string(d.where.line) + ":" + std::to_string(d.where.col) + " " + d.text;
}

const char* kRms = R"(kernel rms_linear {
  %x = input 0 : f16[16,4096]      %w = input 1 : f16[4096,4096]
  %y = call grid(64,1,1) loop(64) (%x, %w) {
    %a = input 0 grid(-,-,-) loop(1) : f16[16,64]     %b = input 1 grid(1,-,-) loop(0) : f16[64,64]
    %c = accum.sum (matmul %a %b)     %d = accum.sum (reduce.sum 1 (square %a))
    output 0 (div %c (sqrt %d)) grid(1,-,-)
  }
  output 0 %y
})";

}  // namespace

TEST_CASE("the grammar's example reads as it says") {
  Graph g = must_read(kRms);
  CHECK(g.num_nodes() == 4);
  const Call* call = g.form<Call>(2);
  REQUIRE(call);
  CHECK(call->body->level() == Level::kBlock);
  CHECK(call->body->launch() == Launch{{64, 1, 1}, 64});
  CHECK(call->body->num_nodes() == 10);
  CHECK(call->body->form<Input>(1)->part == Partition{{1, -1, -1}, 0});
  CHECK(to_string(g.type(2)) == "real[16,4096]");
  check_round_trip(g);
}

TEST_CASE("every form prints and reads back") {
  check_round_trip(must_read(R"(kernel {
    %a = input 0 : f16[4,6]  %b = input 1 : bool[6]  %c = input 2 : f32[]  %u = input 3 : bf16[8]
    %i = iota 1 [4,6]  %w = where (greater %i 2) -inf (add %a (const 24 extent 0.0*0.1))
    %r = reshape [24] (transpose (1,0) %w)  %s = slice 0 1:20:3 %r  %p = repeat 0 2 %s
    %k = concat 0 %p %s %p   %g = reduce.max 0 group 5 %k   # a comment, 1:2
    output 1 (clamp %g %c 1e300) : bf16
    output 0 %b : bool
    output 2 (cast_f16 (matmul %a (transpose (1,0) %a))) : f32
    output 3 (mul 0.1 (const 3.0517578125e-05)) })"));
  check_round_trip(must_read(R"(block b grid(2,1,1) loop(3) {
    %0 = input 0 grid(0,-,-) loop(1) : f16[8,16]
    %1, %2 = thread (%0) { %0 = input 0 : f16[8,16]  %1 = exp %0  output 0 %1 : real  output 1 (relu %1) : f32 }
    output 0 (accum.sum (reduce.sum 1 %1)) grid(0,-,-) : f16
    output 1 (accum.max %2) grid(0,-,-) : real })"));
  check_round_trip(must_read("thread t { %0 = input 0 : f32[3] output 0 (tanh %0) : f32 }"));
  for (int i = 0; i < num_map_fns(); ++i) {
    const MapInfo& m = map_info(static_cast<MapFn>(i));
    std::string first = static_cast<MapFn>(i) == MapFn::kWhere ? "%b" : "%x",
                text = "kernel { %x = input 0 : f32[2] %b = input 1 : bool[2] output 0 (" + std::string(m.name) + " " + first;
    for (int k = 1; k < m.arity; ++k) text += " %x";
    check_round_trip(must_read(text + ") }"));
  }
}

TEST_CASE("numbers survive") {
  for (double v : {0.1, 1e-300, 1.0 / 3, 5e-324, 1.7976931348623157e308, 0.0, -2.5, 1e22, 123456789.0}) {
    Builder b(Level::kKernel);
    ValueId x = b.add_input(0, {DType::kF32, {2}});
    b.add_output(0, b.map(MapFn::kMul, {x, b.constant(v)}), DType::kF32);
    check_round_trip(std::move(b).finish());
  }
}

TEST_CASE("every program's graph prints and reads back") {
  for (const char* op : {"softmax", "rms_norm", "layer_norm", "l2_norm", "causal_mask", "mean"}) {
    check_round_trip(
        must_parse(spec_text({{{3, 4}, {}, "float16"}}, std::string(R"({"op": ")") + op + R"(", "inputs": ["x0"], "output": "y"})")).graph);
  }
}

TEST_CASE("errors of the text form have places") {
  CHECK(error_of("kernel { %x = input 0 : f16[2]\n  output 0 (neg %z) }") == "2:17 %z is not defined before");
  CHECK(error_of("kernel { %x = input 0 : f16[2]\n  output 0 (ad %x %x) }") == "2:13 there is no operator 'ad' in graphs");
  CHECK(error_of("kernel { %x = input 0 : f16[2] output 0 (add %x) }") == "1:42 add takes 2 operands, got 1");
  CHECK(error_of("kernel { %x = input 0 : f16[2] output 1 %x }") == "1:8 the graph breaks law 8: outputs are not numbered densely");
  CHECK(error_of("kernel { %x = input 0 : f16[2] %y, %z = neg %x output 0 %y }") == "1:41 2 names for 1 values");
  CHECK(error_of("kernel { %x = input 0 : f16[2] output 0 (transpose (0,1) %x) }") ==
        "1:42 a permutation of 2 dimensions for a tensor of rank 1");
  CHECK(error_of("kernel { %x = input 0 : f16[2] output 0 (accum.sum %x) }").find("accum") != std::string::npos);
  CHECK(error_of("kernel { %x = input 0 : f16[1,1,1,1,1,1,1,1,1] output 0 %x }") == "1:28 more than 8 dimensions");
  CHECK(error_of("kernel { %x = input 0 : f16[1099511627776,2] output 0 %x }") == "1:28 more than 2^40 elements");
  CHECK(error_of("kernel { %x = input 0 : f16[1048576,1048576] output 0 (repeat 0 4 %x) }") == "1:56 more than 2^40 elements");
  CHECK(error_of("kernel { %x = input 0 : f16[2] output 0 (mul %x nan) }") == "1:42 mul takes 2 operands, got 1");
  CHECK(error_of("kernel { %x = input 0 : f16[2] output 0 (mul %x 1e400) }") == "1:49 the number is out of the range of double precision");
  CHECK(error_of("block grid(65536,65536,1) { }") == "1:7 more than 2^31 blocks and iterations");
  CHECK(error_of("kernel { output 0 " + std::string(100, '(') + " }").find("nesting is deeper than 64") != std::string::npos);
  CHECK(error_of(R"(kernel { %x = input 0 : f16[16,8]
    %y = call grid(4,1,1) loop(1) (%x) { %a = input 0 grid(0,-,-) loop(-) : f16[3,8] output 0 (neg %a) grid(0,-,-) : real }
    output 0 %y })") == "2:10 the call breaks law 5: input 0 dimension 0: tiles of 3 do not cover extent 16");
}

TEST_CASE("a text spec is the program that JSON says") {
  std::string json =
      R"({"name": "p", "inputs": {"x": {"shape": [4, 8], "dtype": "float16"}, "w": {"shape": [8, 2], "dtype": "bfloat16"}}, "outputs": {"y": {"dtype": "float32"}},
    "nodes": [{"op": "rms_norm", "inputs": ["x"], "output": "n"}, {"op": "matmul", "inputs": ["n", "w"], "output": "y"}]})";
  std::string text = R"(kernel p { %x = input 0 : f16[4,8]  %w = input 1 : bf16[8,2]
    %n = div %x (sqrt (add (div (reduce.sum 1 (square %x)) (const 8 extent 0.1)) 1e-6))
    %y = matmul %n %w   output 0 %y : f32 })";
  Program a = must_parse(json), b = must_parse(text, "p.mg");
  CHECK(a.graph == b.graph);
  CHECK(a.canonical == b.canonical);
  // What print writes of a program is a spec of it, but for the names, which are numbers there.
  Program c = must_parse(print(a.graph, "p"), "p.mg");
  CHECK(c.graph == a.graph);
  CHECK(c.inputs[1].name == "in1");
  CHECK(c.outputs[0].name == "out0");
}

TEST_CASE("reductions over groups in a text spec") {
  Program p = must_parse("kernel p { %x = input 0 : f32[2,6,2] output 0 (reduce.sum 1 group 3 %x) : f32 }", "p.mg");
  In x = random_in({2, 6, 2}, 3);
  std::vector<double> want;
  for (size_t i = 0; i < 2; ++i) for (size_t g = 0; g < 2; ++g) for (size_t k = 0; k < 2; ++k) {
    double s = 0;
    for (size_t j = 3 * g; j < 3 * g + 3; ++j) s += x.data[(i * 6 + j) * 2 + k];
    want.push_back(s);
  }
  check_close(run_program(p, {x})[0], {2, 2, 2}, want);
}

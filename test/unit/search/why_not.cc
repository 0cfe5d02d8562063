// --why-not: what the search finds it calls found; the structures that Mirage's repository publishes (benchmark/saved_mugraphs; those that
// are right and that one kernel or a cut at values of the program makes) are in the space; and what is not in it is closed by the gate that
// it should be.
#include <map>
#include "helpers.h"
#include "mirage/ir/stabilize.h"
#include "mirage/spec/text.h"

using namespace mirage;
using namespace helpers;

namespace {

Graph graph(const std::string& text) {
  auto g = parse_graph(text);
  if (!g) for (const Diagnostic& d : g.errors()) FAIL(render(d, text));
  return *g;
}

WhyNot ask(const Program& p, const std::string& text, bool switches_off = true, int ideas = 3) {
  SearchOptions o;
  o.dominance = o.merge = !switches_off;
  o.max_ideas = ideas;
  return why_not(p, target(), o, graph(text));
}

bool says(const WhyNot& w, const std::string& part) { return w.text.find(part) != std::string::npos; }

/// RMSNorm + linear with the lines of its block graph behind its two accumulators.
std::string rms(const std::string& end,
                const std::string& loop =
                    "    %4 = matmul %0 %1\n    %5 = accum.sum %4\n    %6 = square %0\n    %7 = reduce.sum 1 %6\n    %8 = accum.sum %7\n") {
  return "kernel rms {\n  %0 = input 0 : f16[16,4096]\n  %1 = input 1 : f16[4096,6144]\n  %2 = call grid(192,1,1) loop(64) (%0, %1) {\n    "
         "%0 = input 0 grid(-,-,-) loop(1) : f16[16,64]\n"
         "    %1 = input 1 grid(1,-,-) loop(0) : f16[64,32]\n    %2 = const 4096 extent 0.1\n    %3 = const 1e-06\n" +
         loop + end + "  }\n  output 0 %2 : f16\n}\n";
}

const std::string kNorm =
    "    %9 = div %8 %2\n    %10 = add %9 %3\n    %11 = sqrt %10\n    %12 = div %5 %11\n    output 0 %12 grid(1,-,-) : f16\n";

/// LoRA, all inputs whole in the loop-free block but the columns.
std::string lora(const std::string& body) {
  return "kernel lora {\n  %0 = input 0 : f16[16,256]\n  %1 = input 1 : f16[256,4096]\n  %2 = input 2 : f16[256,16]\n  %3 = input 3 : "
         "f16[16,4096]\n  %4 = call grid(64,1,1) loop(1) (%0, %1, %2, %3) {\n"
         "    %0 = input 0 grid(-,-,-) loop(-) : f16[16,256]\n    %1 = input 1 grid(1,-,-) loop(-) : f16[256,64]\n    %2 = input 2 "
         "grid(-,-,-) loop(-) : f16[256,16]\n"
         "    %3 = input 3 grid(1,-,-) loop(-) : f16[16,64]\n" +
         body + "  }\n  output 0 %4 : f16\n}\n";
}

}  // namespace

TEST_CASE("why not: what is found is called found, at the program's own sizes too") {
  for (const char* name : {"rms_norm_linear", "gated_mlp", "lora", "n_trans"}) {
    INFO(name);
    Program p = spec(name);
    p.graph = unshift(p.graph);
    const Found f = find(p);
    int one = 0;
    for (const Structure& s : f.structures) {
      if (s.kernels != 1) continue;
      one++;
      const WhyNot w = why_not(p, target(), {}, s.graph);
      INFO(w.text);
      CHECK(w.in_space);
      CHECK(w.is_found);
      const std::vector<CallNumbers> numbers = tiles(s, param_types(p), 64, 64);
      const auto real = instantiate(s, param_types(p), numbers);
      REQUIRE(real);
      CHECK(why_not(p, target(), {}, *real).is_found);
    }
    CHECK(one > 0);
  }
}

TEST_CASE("why not: what is found with sums split over blocks is called found, with the kernel that adds the parts up") {
  for (const char* name : {"gqa", "mqa", "mla", "qk_norm_published", "gated_mlp", "lora"}) {
    INFO(name);
    Program p = spec(name);
    p.graph = unshift(p.graph);
    int two = 0;
    for (const Structure& s : find(p).structures) {
      if (count<Call>(s.graph) != 2) continue;
      two++;
      const WhyNot w = why_not(p, target(), {}, s.graph);
      INFO(print(s.graph) << w.text);
      CHECK(w.in_space);
      CHECK(w.is_found);
      const auto real = instantiate(s, param_types(p), tiles(s, param_types(p), 128, 64));
      REQUIRE(real);
      CHECK(why_not(p, target(), {}, *real).is_found);
    }
    CHECK(two > 0);
  }
}

TEST_CASE("why not: published gated MLP, fused, and with the product left to a kernel of its own") {
  const Program p = spec("gated_mlp");
  const std::string head = "kernel mlp {\n  %0 = input 0 : f16[8,4096]\n  %1 = input 1 : f16[4096,4096]\n  %2 = input 2 : f16[4096,4096]\n";
  const std::string body =
      "    %0 = input 0 grid(-,-,-) loop(1) : f16[8,64]\n    %1 = input 1 grid(1,-,-) loop(0) : f16[64,32]\n    %2 = input 2 grid(1,-,-) "
      "loop(0) : f16[64,32]\n"
      "    %3 = matmul %0 %1\n    %4 = matmul %0 %2\n    %5 = accum.sum %3\n    %6 = accum.sum %4\n    %7 = silu %5\n";
  const WhyNot fused = ask(p, head + "  %3 = call grid(128,1,1) loop(64) (%0, %1, %2) {\n" + body +
                                  "    %8 = mul %7 %6\n    output 0 %8 grid(1,-,-) : f16\n  }\n  output 0 %3 : f16\n}\n");
  INFO(fused.text);
  CHECK(fused.in_space);
  const WhyNot cut = ask(p, head + "  %3, %4 = call grid(128,1,1) loop(64) (%0, %1, %2) {\n" + body +
                                "    output 0 %7 grid(1,-,-) : real\n    output 1 %6 grid(1,-,-) : real\n  }\n"
                                "  %5 = call grid(32,1,1) loop(1) (%3, %4) {\n    %0 = input 0 grid(1,-,-) loop(-) : real[8,128]\n    %1 = "
                                "input 1 grid(1,-,-) loop(-) : real[8,128]\n    %2 = mul %0 %1\n"
                                "    output 0 %2 grid(1,-,-) : f16\n  }\n  output 0 %5 : f16\n}\n");
  INFO(cut.text);
  CHECK(cut.in_space);
}

TEST_CASE("why not: published RMSNorm + linear, the norm past the product") {
  const WhyNot w = ask(spec("rms_norm_linear"), rms(kNorm));
  INFO(w.text);
  CHECK(w.in_space);
}

TEST_CASE("why not: published LoRA, as three products and as one of concatenations") {
  const Program p = spec("lora");
  const WhyNot three = ask(
      p,
      lora("    %4 = matmul %0 %1\n    %5 = matmul %0 %2\n    %6 = matmul %5 %3\n    %7 = add %4 %6\n    output 0 %7 grid(1,-,-) : f16\n"));
  INFO(three.text);
  CHECK(three.in_space);
  const WhyNot one = ask(p, lora("    %4 = matmul %0 %2\n    %5 = concat 1 %0 %4\n    %6 = concat 0 %1 %3\n    %7 = matmul %5 %6\n    "
                                 "output 0 %7 grid(1,-,-) : f16\n"));
  INFO(one.text);
  CHECK(one.in_space);
}

TEST_CASE("why not: published nTrans, a block a row, no loop") {
  const WhyNot w = ask(spec("n_trans"), R"(kernel n_trans {
  %0 = input 0 : f16[8,4096]
  %1 = input 1 : f16[8,4096]
  %2 = input 2 : f16[8,4096]
  %3 = call grid(8,1,1) loop(1) (%0, %1, %2) {
    %0 = input 0 grid(0,-,-) loop(-) : f16[1,4096]
    %1 = input 1 grid(0,-,-) loop(-) : f16[1,4096]
    %2 = input 2 grid(0,-,-) loop(-) : f16[1,4096]
    %3 = const 4096 extent 1.1
    %4 = square %1
    %5 = reduce.sum 1 %4
    %6 = div %5 %3
    %7 = sqrt %6
    %8 = div %1 %7
    %9 = add %8 %0
    %10 = mul %2 %9
    %11 = add %0 %10
    %12 = square %11
    %13 = reduce.sum 1 %12
    %14 = div %13 %3
    %15 = sqrt %14
    %16 = div %11 %15
    output 0 %16 grid(0,-,-) : f16
  }
  output 0 %3 : f16
})");
  INFO(w.text);
  CHECK(w.in_space);
}

namespace {

/// Attention with its keys split over 8 or 16 blocks, as published but for where parts lie: beside each other along a dimension of their
/// own. `head`: what comes before the first line of the loop's body.
std::string split_attention(const std::string& inputs, const std::string& first, const std::string& sum, const std::string& second,
                            const std::string& dims, const std::string& x) {
  return "kernel attention {\n" + inputs + first + "    %4 = exp %3\n    %5 = matmul %4 %2\n    %6 = accum.sum %5\n" + sum +
         "    output 0 %6 grid(" + x + ",0,2) : real\n    output 1 %8 grid(" + x + ",0,2) : real\n  }\n" + second + "  %9 = reshape " +
         dims + " %8\n  output 0 %9 : f16\n}\n";
}

const std::string kReduceFirst = "    %7 = reduce.sum 3 %4\n    %8 = accum.sum %7\n",
                  kReduceLast = "    %7 = accum.sum %4\n    %8 = reduce.sum 3 %7\n";

}  // namespace

TEST_CASE(
    "why not: published GQA and MQA, keys split, den reduced before or behind its accumulator, parts put together at once or in a loop") {
  struct Shape { const char* name; int heads, queries, blocks, rows; };
  for (const Shape& s : {Shape{"gqa", 2, 256, 8, 16}, Shape{"mqa", 1, 1024, 8, 64}}) {
    Program p = spec(s.name);
    p.graph = unshift(p.graph);
    const std::string h = std::to_string(s.heads), q = std::to_string(s.queries), r = std::to_string(s.rows),
                      g = std::to_string(s.queries / s.rows), x = s.heads > 1 ? "1" : "-";
    REQUIRE(p.inputs[0].type.dims == Dims{s.heads, s.queries, 64});
    const std::string inputs = "  %0 = input 0 : f16[" + h + "," + q + ",64]\n  %1 = input 1 : f16[" + h +
                               ",64,4096]\n  %2 = input 2 : f16[" + h + ",4096,64]\n  %3 = reshape [1," + h + "," + q +
                               ",64] %0\n  %4 = reshape [1," + h + ",64,4096] %1\n  %5 = reshape [1," + h + ",4096,64] %2\n";
    const std::string first = "  %6, %7 = call grid(" + h + ",8," + g + ") loop(4) (%3, %4, %5) {\n    %0 = input 0 grid(" + x +
                              ",-,2) loop(-) : f16[1,1," + r + ",64]\n    %1 = input 1 grid(" + x + ",3,-) loop(3) : f16[1,1,64,128]\n" +
                              "    %2 = input 2 grid(" + x + ",2,-) loop(2) : f16[1,1,128,64]\n    %3 = matmul %0 %1\n";
    const std::string at_once = "  %8 = call grid(" + h + "," + g + ",1) loop(1) (%6, %7) {\n    %0 = input 0 grid(" + x +
                                ",2,-) loop(-) : real[8,1," + r + ",64]\n    %1 = input 1 grid(" + x + ",2,-) loop(-) : real[8,1," + r +
                                ",1]\n    %2 = reduce.sum 0 %0\n    %3 = reduce.sum 0 %1\n    %4 = div %2 %3\n    output 0 %4 grid(" + x +
                                ",2,-) : f16\n  }\n";
    const std::string in_loop = "  %8 = call grid(" + h + "," + g + ",1) loop(4) (%6, %7) {\n    %0 = input 0 grid(" + x +
                                ",2,-) loop(0) : real[2,1," + r + ",64]\n    %1 = input 1 grid(" + x + ",2,-) loop(0) : real[2,1," + r +
                                ",1]\n    %2 = reduce.sum 0 %0\n    %3 = accum.sum %2\n    %4 = reduce.sum 0 %1\n    %5 = accum.sum %4\n   "
                                " %6 = div %3 %5\n    output 0 %6 grid(" +
                                x + ",2,-) : f16\n  }\n";
    for (const std::string& sum : {kReduceFirst, kReduceLast})
      for (const std::string& second : {at_once, in_loop}) {
        const WhyNot w = ask(p, split_attention(inputs, first, sum, second, "[" + h + "," + q + ",64]", x));
        INFO(s.name << "\n" << w.text);
        CHECK(w.in_space);
      }
  }
}

TEST_CASE("why not: the right QK norm (queries and values normed in the loop), keys split, parts put together") {
  Program p = spec("qk_norm_published");
  p.graph = unshift(p.graph);
  const std::string inputs =
      "  %0 = input 0 : f16[2,256,64]\n  %1 = input 1 : f16[2,64,4096]\n  %2 = input 2 : f16[2,4096,64]\n  %3 = reshape [1,2,256,64] %0\n  "
      "%4 = reshape [1,2,64,4096] %1\n  %5 = reshape [1,2,4096,64] %2\n";
  const std::string first =
      "  %6, %7 = call grid(2,8,16) loop(4) (%3, %4, %5) {\n    %0 = input 0 grid(1,-,2) loop(-) : f16[1,1,16,64]\n    %1 = input 1 "
      "grid(1,3,-) loop(3) : f16[1,1,64,128]\n"
      "    %2 = input 2 grid(1,2,-) loop(2) : f16[1,1,128,64]\n    %3 = const 64 extent 0.2\n";
  const std::string
      query = "    %4 = square %0\n    %5 = reduce.sum 3 %4\n    %6 = div %5 %3\n    %7 = sqrt %6\n    %8 = div %0 %7\n",
      value = "    %9 = square %2\n    %10 = reduce.sum 3 %9\n    %20 = const 64 extent 2.2\n    %11 = div %10 %20\n    %12 = sqrt %11\n";
  const std::string body =
      "    %14 = matmul %8 %1\n    %15 = exp %14\n    %16 = matmul %15 %13\n    %17 = accum.sum %16\n    %18 = reduce.sum 3 %15\n    %19 = "
      "accum.sum %18\n    output 0 %17 grid(1,0,2) : real\n    output 1 %19 grid(1,0,2) : real\n  }\n";
  const std::string second =
      "  %8 = call grid(2,16,1) loop(1) (%6, %7) {\n    %0 = input 0 grid(1,2,-) loop(-) : real[8,1,16,64]\n    %1 = input 1 grid(1,2,-) "
      "loop(-) : real[8,1,16,1]\n    %2 = reduce.sum 0 %0\n    %3 = reduce.sum 0 %1\n"
      "    %4 = div %2 %3\n    output 0 %4 grid(1,2,-) : f16\n  }\n  %9 = reshape [2,256,64] %8\n  output 0 %9 : f16\n}\n";
  const std::string whole = "kernel attention {\n" + inputs + first + query + value;
  const WhyNot right = ask(p, whole + "    %13 = div %2 %12\n" + body + second);
  INFO(right.text);
  CHECK(right.in_space);
  const WhyNot wrong = ask(p, whole + "    %13 = mul %2 %12\n" + body + second);   // values times their root, not over it
  INFO(wrong.text);
  CHECK(!wrong.in_space);
}

TEST_CASE("why not: Qwen's norm with a gain in front of a product, and its down projection with silu(x) y in front") {
  const auto program = [](const std::string& name, const std::string& inputs, const std::string& nodes) {
    auto p =
        parse_spec({name + ".json", R"({"version": "1.0", "name": ")" + name + R"(", "inputs": {)" + inputs +
                                        R"(}, "outputs": {"o": {"shape": [16,1024], "dtype": "bfloat16"}}, "nodes": [)" + nodes + "]}"});
    REQUIRE(p);
    return *p;
  };
  const std::string x = R"("x": {"shape": [16,4096], "dtype": "bfloat16"}, )", w = R"(, "w": {"shape": [4096,1024], "dtype": "bfloat16"})";
  const std::string tiles = "    %0 = input 0 grid(-,-,-) loop(1) : bf16[16,64]\n";
  const WhyNot norm = ask(
      program(
          "norm", x + R"("g": {"shape": [4096], "dtype": "bfloat16"})" + w,
          R"({"op": "rms_norm", "inputs": ["x", "g"], "output": "n", "attrs": {"axis": -1, "eps": 1e-6}}, )"
          R"({"op": "matmul", "inputs": ["n", "w"], "output": "o"})"),
      "kernel norm {\n  %0 = input 0 : bf16[16,4096]\n  %1 = input 1 : bf16[4096]\n  %2 = input 2 : bf16[4096,1024]\n  %3 = call "
      "grid(32,1,1) loop(64) (%0, %1, %2) {\n" +
          tiles +
          "    %1 = input 1 grid(-,-,-) loop(0) : bf16[64]\n    %2 = input 2 grid(1,-,-) loop(0) : bf16[64,32]\n    %3 = const 4096 extent "
          "0.1\n    %4 = const 1e-06\n    %5 = mul %0 %1\n    %6 = matmul %5 %2\n"
          "    %7 = accum.sum %6\n    %8 = square %0\n    %9 = reduce.sum 1 %8\n    %10 = accum.sum %9\n    %11 = div %10 %3\n    %12 = "
          "add %11 %4\n    %13 = sqrt %12\n    %14 = div %7 %13\n    output 0 %14 grid(1,-,-) : bf16\n  }\n  output 0 %3 : bf16\n}\n");
  INFO(norm.text);
  CHECK(norm.in_space);
  const WhyNot down = ask(
      program(
          "down", x + R"("y": {"shape": [16,4096], "dtype": "bfloat16"})" + w,
          R"({"op": "silu", "inputs": ["x"], "output": "s"}, {"op": "mul", "inputs": ["s", "y"], "output": "p"}, )"
          R"({"op": "matmul", "inputs": ["p", "w"], "output": "o"})"),
      "kernel down {\n  %0 = input 0 : bf16[16,4096]\n  %1 = input 1 : bf16[16,4096]\n  %2 = input 2 : bf16[4096,1024]\n  %3 = call "
      "grid(32,1,1) loop(64) (%0, %1, %2) {\n" +
          tiles +
          "    %1 = input 1 grid(-,-,-) loop(1) : bf16[16,64]\n    %2 = input 2 grid(1,-,-) loop(0) : bf16[64,32]\n    %3 = silu %0\n    "
          "%4 = mul %3 %1\n    %5 = matmul %4 %2\n    %6 = accum.sum %5\n"
          "    output 0 %6 grid(1,-,-) : bf16\n  }\n  output 0 %3 : bf16\n}\n");
  INFO(down.text);
  CHECK(down.in_space);
}

TEST_CASE(
    "why not: published MHA, products of queries and keys by a pre-defined operator, then values split and put together; exp or the "
    "quotient left to kernels of their own") {
  Program p = spec("mha");
  p.graph = unshift(p.graph);
  const std::string inputs =
      "  %0 = input 0 : f16[32,16,64]\n  %1 = input 1 : f16[32,64,4096]\n  %2 = input 2 : f16[32,4096,64]\n  %3 = matmul %0 %1\n";
  const std::string merge =
      "call grid(32,2,1) loop(1) (%6, %7) {\n    %0 = input 0 grid(1,2,-) loop(-) : real[4,1,8,64]\n    %1 = input 1 grid(1,2,-) loop(-) : "
      "real[4,1,8,1]\n    %2 = reduce.sum 0 %0\n    %3 = reduce.sum 0 %1\n";
  const std::string loads =
      "    %0 = input 0 grid(1,3,-) loop(3) : real[1,1,16,256]\n    %1 = input 1 grid(1,2,-) loop(2) : f16[1,1,256,64]\n";
  const std::string tail =
      "    %5 = accum.sum %4\n    %6 = reduce.sum 3 %3\n    %7 = accum.sum %6\n    output 0 %5 grid(1,0,-) : real\n    output 1 %7 "
      "grid(1,0,-) : real\n  }\n";
  const std::string split =
      "  %4 = reshape [1,32,16,4096] %3\n  %5 = reshape [1,32,4096,64] %2\n  %6, %7 = call grid(32,4,1) loop(4) (%4, %5) {\n" + loads +
      "    %3 = exp %0\n    %4 = matmul %3 %1\n" + tail;
  const WhyNot three =
      ask(p, "kernel mha {\n" + inputs + split + "  %8 = " + merge +
                 "    %4 = div %2 %3\n    output 0 %4 grid(1,2,-) : f16\n  }\n  %9 = reshape [32,16,64] %8\n  output 0 %9 : f16\n}\n");
  INFO(three.text);
  CHECK(three.in_space);
  const WhyNot quotient = ask(p, "kernel mha {\n" + inputs + split + "  %8, %9 = " + merge +
                                     "    output 0 %2 grid(1,2,-) : real\n    output 1 %3 grid(1,2,-) : real\n  }\n  %10 = reshape "
                                     "[32,16,64] %8\n  %11 = reshape [32,16,1] %9\n"
                                     "  %12 = div %10 %11\n  output 0 %12 : f16\n}\n");
  INFO(quotient.text);
  CHECK(quotient.in_space);
  const WhyNot exponential =
      ask(p,
          "kernel mha {\n  %0 = input 0 : f16[32,16,64]\n  %1 = input 1 : f16[32,64,4096]\n  %2 = input 2 : f16[32,4096,64]\n  %3 = matmul "
          "%0 %1\n  %13 = exp %3\n"
          "  %4 = reshape [1,32,16,4096] %13\n  %5 = reshape [1,32,4096,64] %2\n  %6, %7 = call grid(32,4,1) loop(4) (%4, %5) {\n" +
              loads +
              "    %3 = matmul %0 %1\n    %4 = accum.sum %3\n    %5 = reduce.sum 3 %0\n    %6 = accum.sum %5\n    output 0 %4 grid(1,0,-) "
              ": real\n    output 1 %6 grid(1,0,-) : real\n  }\n  %8 = " +
              merge + "    %4 = div %2 %3\n    output 0 %4 grid(1,2,-) : f16\n  }\n  %9 = reshape [32,16,64] %8\n  output 0 %9 : f16\n}\n");
  INFO(exponential.text);
  CHECK(exponential.in_space);
  SearchOptions few;
  few.dominance = few.merge = false;
  few.max_kernel_ops = 1;
  CHECK_FALSE(
      why_not(p, target(), few,
              graph("kernel mha {\n" + inputs + split + "  %8 = " + merge +
                    "    %4 = div %2 %3\n    output 0 %4 grid(1,2,-) : f16\n  }\n  %9 = reshape [32,16,64] %8\n  output 0 %9 : f16\n}\n"))
          .in_space);
}

TEST_CASE("why not: what is not in the space is closed by the gate that it should be") {
  const Program p = spec("rms_norm_linear");
  const WhyNot exponential =
      ask(p, rms("    %9 = div %8 %2\n    %10 = add %9 %3\n    %11 = exp %10\n    %12 = div %5 %11\n    output 0 %12 grid(1,-,-) : f16\n"));
  INFO(exponential.text);
  CHECK_FALSE(exponential.in_space);
  const WhyNot product = ask(
      p, rms("    %9 = div %8 %2\n    %10 = add %9 %3\n    %11 = sqrt %10\n    %12 = mul %5 %11\n    output 0 %12 grid(1,-,-) : f16\n"));
  INFO(product.text);
  CHECK_FALSE(product.in_space);
  CHECK((says(product, "gate expression") || says(product, "no value of the program")));
  const WhyNot ideas = ask(p, rms(kNorm), true, 0);
  INFO(ideas.text);
  CHECK_FALSE(ideas.in_space);
  CHECK(says(ideas, "gate budget"));
  const WhyNot beaten = ask(
      p, rms(kNorm, "    %4 = matmul %0 %1\n    %5 = accum.sum %4\n    %6 = mul %0 %0\n    %7 = reduce.sum 1 %6\n    %8 = accum.sum %7\n"),
      false);
  INFO(beaten.text);
  CHECK_FALSE(beaten.is_found);
}

TEST_CASE("checkpoint: steps that an earlier run made are not made again, and nothing else changes") {
  auto text = [](const Found& f) {
    std::string out = f.report.stop_reason + " " + std::to_string(f.report.states) + " " + std::to_string(f.report.effort) + " " +
                      std::to_string(f.report.peak_bytes) + "\n";
    for (const GateCount& g : f.report.gates) out += std::to_string(g.closed) + " " + g.first_example + "\n";
    for (const Structure& s : f.structures) out += print(s.graph);
    return out;
  };
  for (const char* name : {"layer_norm_linear", "rms_norm_linear"}) {
    const Program p = spec(name);
    std::map<std::string, std::string> kept;
    SearchOptions o;
    o.max_states = 1'000'000;
    const std::string plain = text(find(p, o));
    o.remember = [&](const std::string& k, const std::string& v) { kept[k] = v; };
    CHECK(text(find(p, o)) == plain);
    REQUIRE(kept.size() > 2);
    for (size_t part : {kept.size(), kept.size() / 2}) {   // a run that was killed half way
      std::map<std::string, std::string> some;
      for (const auto& [k, v] : kept) if (some.size() < part) some[k] = v;
      int used = 0;
      SearchOptions again;
      again.max_states = o.max_states;
      again.remembered = [&](const std::string& k) -> std::optional<std::string> {
        const auto it = some.find(k);
        used += it != some.end();
        return it == some.end() ? std::nullopt : std::optional(it->second);
      };
      CHECK(text(find(p, again)) == plain);
      CHECK(used > 0);
      again.threads = 3;
      CHECK(text(find(p, again)) == plain);
    }
  }
}

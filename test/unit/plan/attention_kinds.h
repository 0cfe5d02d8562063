// Attentions of many kinds as block graphs: factors, gains, biases and masks of queries and keys, weights that are gated, more results
// than one, batches of several dimensions.
#pragma once
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "plan/attend/attend_plan.h"
#include "mirage/spec/text.h"

namespace mirage::test {

/// A tensor beside Q, K and V: a letter per dimension (b and h: batches, q: queries, k: keys, f: features, e: columns, 1: one element), its
/// type; or positions along the dimension that is not 1.
struct AttentionInput { std::string name, dims, dtype = "f16"; bool is_position = false; };

struct AttentionKind {
  std::string name;
  int64_t queries = 100, keys = 500;
  int64_t features = 64, columns = 64;
  std::vector<AttentionInput> inputs = {};
  /// %a is (b, q, f), %b its keys as (b, f, k), %c (b, k, e); %x are the scores, %p their exponentials, %r and %l accumulated
  std::string q = "%a", k = "%b", v = "%c", scores = "mul %x 0.125", share = "%p", after = "div %r %l";
  std::string dtype = "f16", row_result = "", first = "";   ///< row_result: stored per query; first: statements in front of the others
  std::string batches = "b";                    ///< "bh": two of them, and K's and V's have one h
  std::string result = "";                      ///< dimensions of the result; "": batches, queries, columns
  std::string query_dims = "", key_dims = "";   ///< of %a, "": batches, queries, features; of %b, "": batches, features, keys
};

class AttentionText {
 public:
  explicit AttentionText(const AttentionKind& of) : of_(of) {}

  AttendCandidates plans(const Target& target) {
    const std::string lead = of_.batches, few = lead == "bh" ? "b1" : lead;
    std::string body = input("a", of_.query_dims.empty() ? lead + "qf" : of_.query_dims, of_.dtype);
    body += input("b", of_.key_dims.empty() ? few + "fk" : of_.key_dims, of_.dtype);
    body += input("c", few + "ke", of_.dtype);
    body += more();
    const auto rank = static_cast<int>(lead.size()) + 2;
    std::string outputs = output(0, of_.after, of_.result.empty() ? lead + "qe" : of_.result);
    if (!of_.row_result.empty()) outputs += output(1, of_.row_result, lead + "q1");
    const std::string text = fmt::format(
        "block grid(2,{0},{1}) loop({2}) {{\n{3}{11}  %x = matmul {4} {5}\n  %s = {6}\n  %m = running (reduce.max {7} %s)\n  "
        "%p = exp (sub %s %m)\n  %l = accum.sum rescaled 1 (reduce.sum {7} %p) %m\n  "
        "%r = accum.sum rescaled 1 (matmul {8} {9}) %m\n{10}}}\n",
        (of_.queries + tile('q') - 1) / tile('q'), lead == "bh" ? 3 : 1, (of_.keys + 31) / 32, body, of_.q, of_.k, of_.scores, rank - 1,
        of_.share, of_.v, outputs, of_.first);
    const auto g = parse_graph(text);
    INFO(of_.name << "\n" << text << (g ? "" : g.errors()[0].text));
    REQUIRE(g);
    return attend_candidates(*g, operands_, results_, target);
  }

 private:
  int64_t extent(char c) const {
    switch (c) {
      case 'b': return 2;
      case 'h': return 3;
      case 'q': return of_.queries;
      case 'k': return of_.keys;
      case 'f': return of_.features;
      case 'e': return of_.columns;
      default: return 1;
    }
  }
  int64_t tile(char c) const {
    if (c == 'b' || c == 'h') return 1;
    return c == 'q' ? std::min<int64_t>(of_.queries, 64) : c == 'k' ? 32 : extent(c);
  }
  std::string partition(const std::string& dims) const {
    const auto at = [&](char c) { const size_t i = dims.find(c); return i == std::string::npos ? std::string("-") : std::to_string(i); };
    const std::string loop = dims.find('k') == std::string::npos ? "" : fmt::format(" loop({})", at('k'));
    return fmt::format("grid({},{},{}){}", at('b'), at('q'), at('h'), loop);
  }
  Access access(const std::string& dims, const std::string& dtype) {
    Access a;
    a.buffer = buffers_++;
    for (char c : dims) a.dims.push_back(extent(c));
    a.strides = row_major_strides(a.dims);
    a.dtype = *parse_dtype(dtype);
    return a;
  }
  std::string type(const std::string& dims, const std::string& dtype) const {
    std::vector<int64_t> tiles;
    for (char c : dims) tiles.push_back(tile(c));
    return fmt::format("{}[{}]", dtype, fmt::join(tiles, ","));
  }
  std::string input(const std::string& name, const std::string& dims, const std::string& dtype) {
    operands_.push_back(access(dims, dtype));
    if (name == "b") {   // lines along the features
      Access& b = operands_.back();
      const int f = static_cast<int>(dims.find('f')), k = static_cast<int>(dims.find('k'));
      b.strides[f] = 1;
      b.strides[k] = of_.features;
    }
    return fmt::format("  %{} = input {} {} : {}\n", name, operands_.size() - 1, partition(dims), type(dims, dtype));
  }
  std::string more() {
    std::string out;
    for (const AttentionInput& x : of_.inputs) {
      out += input(x.name, x.dims, x.is_position ? "real" : x.dtype);
      if (!x.is_position) continue;
      Access& a = operands_.back();
      a.position = static_cast<int>(x.dims.find_first_not_of('1'));
      a.buffer = -1;
      a.dtype = DType::kF32;
    }
    return out;
  }
  std::string output(int result, const std::string& value, const std::string& dims) {
    results_.push_back(access(dims, of_.dtype));
    return fmt::format("  output {} ({}) {} : {}\n", result, value, partition(dims), of_.dtype);
  }

  const AttentionKind& of_;
  int buffers_ = 0;
  std::vector<Access> operands_, results_;
};

inline std::vector<AttentionKind> attention_kinds() {
  const std::string norm_k = "(div %b (sqrt (add (reduce.sum 1 (square %b)) 0.5)))", less = "where (less %i %j) -inf (mul %x 0.125)";
  const std::vector<AttentionInput> positions = {{"i", "q1", "", true}, {"j", "1k", "", true}};
  std::vector<AttentionKind> out = {
      {.name = "a bias per key", .inputs = {{"g", "b1k"}}, .scores = "add (mul %x 0.125) %g"},
      {.name = "a bias per key of fewer dimensions", .inputs = {{"g", "k", "f32"}}, .scores = "add (mul %x 0.125) %g"},
      {.name = "a bias per query and key", .inputs = {{"g", "bqk"}}, .scores = "add (mul %x 0.125) %g"},
      {.name = "normed keys with a bias", .inputs = {{"g", "b1k"}}, .k = norm_k, .scores = "add (mul %x 0.125) %g"},
      {.name = "normed keys with a computed bias", .inputs = {{"g", "b1k"}}, .k = norm_k, .scores = "add (mul %x 0.125) (exp %g)"},
      {.name = "keys' own scale", .inputs = {{"g", "b1k"}}, .k = "(mul %b %g)"},
      {.name = "values' own scale", .inputs = {{"g", "bk1", "f16"}}, .v = "(mul %c (sigmoid %g))"},
      {.name = "values of two factors", .inputs = {{"g", "bk1"}, {"u", "k1"}}, .v = "(mul (mul %c %u) (sigmoid %g))", .dtype = "bf16"},
      {.name = "gated weights", .inputs = {{"g", "b1k"}}, .share = "(mul %p (sigmoid %g))"},
      {.name = "gated weights of scaled values", .inputs = {{"g", "b1k"}, {"u", "bk1"}}, .v = "(mul %c (sigmoid %u))",
       .share = "(mul %p (sigmoid %g))"},
      {.name = "a key's gate in scores and weights", .inputs = {{"g", "b1k"}}, .scores = "mul (mul %x 0.125) %g", .share = "(mul %p %g)",
       .dtype = "bf16"},
      {.name = "a key's computed gate in both", .inputs = {{"g", "b1k"}}, .scores = "mul %x %w",
       .share = "(mul (mul %p %w) 0.5)", .dtype = "bf16", .first = "  %w = sigmoid %g\n"},
      {.name = "queries' temperature", .inputs = {{"g", "bq1", "f32"}}, .q = "(mul %a %g)"},
      {.name = "queries' temperature and normed keys", .inputs = {{"g", "bq1", "f32"}},
       .q = "(div (mul %a %g) (sqrt (reduce.sum 2 (square %a))))", .k = norm_k},
      {.name = "a temperature of scores", .inputs = {{"g", "bq1", "f32"}}, .scores = "mul (div %x (sqrt (square %g))) 0.125"},
      {.name = "a temperature of unknown sign", .inputs = {{"g", "bq1", "f32"}}, .scores = "mul %x %g"},
      {.name = "soft caps", .scores = "mul (tanh (mul %x 0.02)) 50"},
      {.name = "gains", .inputs = {{"g", "f"}, {"u", "f"}, {"w", "e"}}, .q = "(mul (mul %a %g) (reduce.max 2 %a))",
       .k = "(transpose (0,2,1) (div (transpose (0,2,1) %b) %u))", .v = "(mul %c %w)"},
      {.name = "a factor of a query's row of one dimension", .inputs = {{"g", "q"}},
       .q = "(transpose (0,2,1) (mul (transpose (0,2,1) %a) %g))"},
      {.name = "a causal mask", .inputs = positions, .scores = less},
      {.name = "a causal mask of scaled queries", .inputs = positions, .q = "(mul %a 0.5)", .scores = less},
      {.name = "a causal mask of normed queries", .inputs = positions, .q = "(div %a (sqrt (reduce.sum 2 (square %a))))", .scores = less},
      {.name = "a window", .inputs = positions, .scores = "where (greater (sub %i %j) 63) -inf (where (less %i %j) -inf (mul %x 0.125))"},
      {.name = "a mask of the lowest numbers", .inputs = positions, .scores = "where (less %i %j) -3e38 (mul %x 0.125)", .dtype = "bf16"},
      {.name = "hidden keys", .inputs = {{"g", "b1k"}}, .scores = "where (less %g 0.5) -inf (mul %x 0.125)"},
      {.name = "logarithms of sums", .after = "div %r %l", .row_result = "add (log %l) (accum.max %m)"},
      {.name = "a gate of results", .inputs = {{"g", "bqe"}}, .after = "mul (div %r %l) (sigmoid %g)"},
      {.name = "a row's gate of results", .inputs = {{"g", "bq1"}}, .after = "mul (div %r (mul %l 2)) (sigmoid %g)"},
      {.name = "batches of two dimensions", .inputs = {{"g", "h11"}}, .q = "(mul %a %g)", .batches = "bh"},
      {.name = "results of more batches than scores", .inputs = {{"g", "bh11"}}, .after = "mul (div %r %l) %g", .batches = "bh",
       .query_dims = "b1qf"},
      {.name = "transposed normed keys", .k = "(transpose (0,2,1) (div %b (sqrt (reduce.sum 2 (square %b)))))", .key_dims = "bkf"},
      {.name = "keys divided by a turned norm",
       .k = "(div (transpose (0,2,1) %b) (transpose (0,2,1) (sqrt (reduce.sum 2 (square %b)))))", .key_dims = "bkf"},
  };
  const size_t n = out.size();
  for (size_t i = 0; i < n; i++)
    for (const int64_t queries : {1, 7}) {
      AttentionKind few = out[i];
      few.queries = queries;
      out.push_back(few);
    }
  out.push_back({.name = "many features", .queries = 9, .features = 576, .columns = 512});
  out.push_back({.name = "many features with a bias", .queries = 1, .features = 192, .columns = 256, .inputs = {{"g", "b1k"}},
                 .scores = "add (mul %x 0.125) %g"});
  return out;
}

}  // namespace mirage::test

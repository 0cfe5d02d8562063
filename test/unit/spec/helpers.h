// Builds one-operator specs, runs them in doubles, and compares with numbers that the test has from elsewhere.
#pragma once
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>
#include "mirage/ir/eval.h"
#include "mirage/spec/spec.h"
#include "mirage/spec/text.h"
#include "mirage/support/hash.h"

namespace mirage::spec_test {

struct In { Dims dims; std::vector<double> data; std::string dtype = "float32"; };

inline In random_in(Dims d, uint64_t seed, double low = -2, double high = 2) {
  Rng rng(seed);
  In in{d, {}, "float32"};
  for (int64_t i = 0; i < d.elements(); ++i) in.data.push_back(low + (high - low) * rng.uniform());
  return in;
}

inline std::string rendered(const Diagnostics& list, const std::string& text) {
  std::string s;
  for (const Diagnostic& d : list) s += render(d, text);
  return s;
}

inline Program must_parse(const std::string& text, const std::string& name = "test.json") {
  auto r = parse_spec({name, text});
  if (!r) FAIL(rendered(r.errors(), text) << text);
  return std::move(*r);
}

/// A spec with inputs x0, x1, ... and `nodes`, whose output y has the given dtype and no declared shape.
inline std::string spec_text(const std::vector<In>& inputs, const std::string& nodes, const std::string& out_dtype = "float32") {
  std::string ins;
  for (size_t i = 0; i < inputs.size(); ++i) {
    ins += (i ? ", " : "") + std::string("\"x") + std::to_string(i) + "\": {\"shape\": " + to_string(inputs[i].dims) + ", \"dtype\": \"" +
           inputs[i].dtype + "\"}";
  }
  return "{\"name\": \"t\", \"inputs\": {" + ins + "}, \"outputs\": {\"y\": {\"dtype\": \"" + out_dtype + "\"}}, \"nodes\": [" + nodes +
         "]}";
}

inline std::vector<Tensor<double>> run_program(const Program& p, const std::vector<In>& inputs, bool round_outputs = false) {
  std::vector<Tensor<double>> params;
  for (const In& in : inputs) {
    Tensor<double> t(in.dims, 0);
    REQUIRE(t.data.size() == in.data.size());
    t.data = in.data;
    params.push_back(std::move(t));
  }
  DoubleAlgebra a;
  return evaluate<DoubleAlgebra>(p.graph, params, a, round_outputs);
}

/// Runs nodes; also checks that the normal form reads back as the same program.
inline Tensor<double> run(const std::vector<In>& inputs, const std::string& nodes, const std::string& out_dtype = "float32") {
  Program p = must_parse(spec_text(inputs, nodes, out_dtype));
  CHECK_FALSE(check_laws(p.graph));
  Program again = must_parse(p.canonical);
  CHECK(again.graph == p.graph);
  CHECK(again.canonical == p.canonical);
  return run_program(p, inputs)[0];
}

/// One operator on x0, x1, ...: `attrs` is the text inside the braces.
inline Tensor<double> run_op(const std::string& op, const std::vector<In>& inputs, const std::string& attrs = "",
                             const std::string& out_dtype = "float32") {
  std::string names;
  for (size_t i = 0; i < inputs.size(); ++i) names += (i ? ", \"x" : "\"x") + std::to_string(i) + "\"";
  return run(inputs, "{\"op\": \"" + op + "\", \"inputs\": [" + names + "], \"output\": \"y\", \"attrs\": {" + attrs + "}}", out_dtype);
}

inline void check_close(const Tensor<double>& got, const Dims& dims, const std::vector<double>& want, double tolerance = 1e-12) {
  CHECK(to_string(got.dims) == to_string(dims));
  REQUIRE(got.data.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    INFO("element " << i << ": got " << got.data[i] << ", want " << want[i]);
    bool same = got.data[i] == want[i] || std::fabs(got.data[i] - want[i]) <= tolerance * std::max(1.0, std::fabs(want[i]));
    REQUIRE(same);
  }
}

/// Errors of a spec, rendered; FAILs if there are none.
inline std::string errors_of(const std::string& text, const std::string& name = "bad.json") {
  auto r = read_spec({name, text});
  if (r.ok()) FAIL("no error in " << text);
  return rendered(r.errors(), text);
}

}  // namespace mirage::spec_test

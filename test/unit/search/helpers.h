// Specs of the repository, and numbers for structures.
#pragma once
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>
#include "mirage/ir/eval.h"
#include "mirage/search/search.h"
#include "mirage/spec/spec.h"
#include "mirage/support/hash.h"
#include "search/problem/witness.h"

namespace helpers {

using namespace mirage;

inline Program parse(const std::string& text) {
  auto p = parse_spec({"test.json", text});
  if (!p) for (const Diagnostic& d : p.errors()) FAIL(render(d, text));
  return std::move(p.value());
}

inline Program spec(const std::string& name) {
  std::ifstream f(std::string(MIRAGE_SOURCE_DIR) + "/specs/" + name + ".json");
  REQUIRE(f.good());
  std::stringstream text;
  text << f.rdbuf();
  return parse(text.str());
}

inline const Target& target() {
  static const Target t = *find_target("sm_90a");
  return t;
}

/// All structures of a program; the sink takes every one.
struct Found { std::vector<Structure> structures; SearchReport report; };
inline Found find(const Program& p, const SearchOptions& options = {}) {
  Found f;
  f.report = enumerate(p, target(), options, [&](const Structure& s) { f.structures.push_back(s); return SinkVerdict::kVerified; });
  return f;
}

/// inputs -> one call -> outputs, nothing but views of inputs beside it.
inline bool is_one_kernel(const Graph& g) {
  int calls = 0;
  for (const Node& n : g.nodes()) {
    if (std::holds_alternative<Call>(n.op)) { calls++; continue; }
    if (!std::holds_alternative<Input>(n.op) && !std::holds_alternative<Output>(n.op) && !is_view(n.op)) return false;
  }
  return calls == 1;
}

/// Calls and views of what is there, nothing else.
inline bool is_only_calls(const Graph& g) {
  for (const Node& n : g.nodes())
    if (!std::holds_alternative<Call>(n.op) && !std::holds_alternative<Input>(n.op) && !std::holds_alternative<Output>(n.op) &&
        !is_view(n.op))
      return false;
  return true;
}

/// The body of the first call.
inline const Graph& body(const Graph& g) {
  for (const Node& n : g.nodes()) if (const auto* c = std::get_if<Call>(&n.op)) return *c->body;
  FAIL("no call");
  std::abort();
}

template <class F> int count(const Graph& g) {
  int n = 0;
  for (const Node& node : g.nodes()) n += std::holds_alternative<F>(node.op);
  return n;
}

inline std::vector<Type> param_types(const Program& p) {
  std::vector<Type> out;
  for (const TensorInfo& i : p.inputs) out.push_back(i.type);
  return out;
}

/// Tiles of `grid` and `loop` elements where something is split.
inline std::vector<CallNumbers> tiles(const Structure& s, const std::vector<Type>& params, int64_t grid, int64_t loop) {
  std::vector<CallNumbers> n = split_extents(s, params);
  for (CallNumbers& c : n) {
    for (int64_t& t : c.grid_tile) if (t > 0) t = std::min(t, grid);
    if (c.loop_tile > 0) c.loop_tile = std::min(c.loop_tile, loop);
    if (c.chunk_axis >= 0) {   // a chunk is a whole number of tiles
      const int64_t chunk = c.grid_tile[static_cast<size_t>(c.chunk_axis)];
      while (chunk % c.loop_tile != 0) c.loop_tile--;
    }
  }
  return n;
}

/// Largest difference between two graphs in doubles, relative to the largest element of the first.
inline double difference(const Graph& a, const Graph& b, const std::vector<Type>& params, uint64_t seed) {
  Rng rng(seed);
  std::vector<Tensor<double>> in;
  for (const Type& t : params) {
    Tensor<double> x(t.dims, 0);
    for (double& v : x.data) v = 0.1 + rng.uniform();
    in.push_back(std::move(x));
  }
  DoubleAlgebra d;
  const auto ra = evaluate(a, std::span<const Tensor<double>>(in), d), rb = evaluate(b, std::span<const Tensor<double>>(in), d);
  if (ra.size() != rb.size()) return INFINITY;
  double worst = 0;
  for (size_t r = 0; r < ra.size(); r++) {
    if (!(ra[r].dims == rb[r].dims)) return INFINITY;
    double largest = 1e-300, delta = 0;
    for (size_t i = 0; i < ra[r].data.size(); i++) {
      largest = std::max(largest, std::abs(ra[r].data[i]));
      const double e = std::abs(ra[r].data[i] - rb[r].data[i]);
      delta = std::isnan(e) ? INFINITY : std::max(delta, e);
    }
    worst = std::max(worst, delta / largest);
  }
  return worst;
}

}  // namespace helpers

// The reference of NAME_check.cu, compiled for the host with small stand-ins for CUDA, agrees with the evaluator on random programs over
// all forms and all functions of maps.def.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include "codegen/module_parts.h"
#include "mirage/ir/eval.h"
#include "mirage/support/hash.h"

using namespace mirage;

namespace {

constexpr const char* kHostTwin = R"(
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#define __device__
#define __forceinline__ inline
inline double f_nan() { return std::numeric_limits<double>::quiet_NaN(); }
inline double f_inf() { return std::numeric_limits<double>::infinity(); }
inline double f_max(double x, double y) { return x != x || y != y ? x + y : (x < y ? y : x); }
inline double f_min(double x, double y) { return x != x || y != y ? x + y : (y < x ? y : x); }
inline double round_bits(double x, int bits, int min_exponent, double largest) {
  if (!std::isfinite(x) || x == 0) return x;
  int e; std::frexp(x, &e);
  const double unit = std::ldexp(1.0, (e < min_exponent ? min_exponent : e) - bits);
  const double r = std::nearbyint(x / unit) * unit;
  return std::fabs(r) > largest ? std::copysign(f_inf(), x) : r;
}
inline double round_f16(double x) { return round_bits(x, 11, -13, 65504.0); }
inline double round_bf16(double x) { return round_bits(x, 8, -125, 3.3895313892515355e38); }
inline double round_f32(double x) { return static_cast<double>(static_cast<float>(x)); }
inline double load_f16(const void* p, long long at) { return static_cast<const double*>(p)[at]; }   // inputs come as doubles
inline double load_bf16(const void* p, long long at) { return static_cast<const double*>(p)[at]; }
inline double load_f32(const void* p, long long at) { return static_cast<const double*>(p)[at]; }
inline double load_bool(const void* p, long long at) { return static_cast<const double*>(p)[at]; }
static const void* g_input[16];
static double* g_value[4096];
static double* g_result[16];
static long long g_sizes[4096];
static double* define(int v, long long n) { g_sizes[v] = n; return g_value[v] = static_cast<double*>(std::malloc(n * 8)); }
static void release(int v) { for (long long i = 0; i < g_sizes[v]; i++) g_value[v][i] = 12345.0; g_value[v] = nullptr; }   // a later read crashes
static double* result(int r, long long n) { return g_result[r] = static_cast<double*>(std::malloc(n * 8)); }
template <class F> void each(double* out, long long n) { for (long long i = 0; i < n; i++) out[i] = F::compute(i); }
template <class F> void fold(double* out, long long n, long long length) {
  for (long long i = 0; i < n; i++) {
    double sum = F::kIsMax ? -f_inf() : 0.0;
    for (long long k = 0; k < length; k++) sum = F::kIsMax ? f_max(sum, F::term(i, k)) : sum + F::term(i, k);
    out[i] = sum;
  }
}
)";

struct Case { Program program; std::vector<std::vector<double>> memory; std::vector<Tensor<double>> values; };

Dims random_dims(Rng& rng, int rank) {
  Dims d;
  for (int i = 0; i < rank; i++) d.push_back(static_cast<int64_t>(1 + rng.below(5)));
  return d;
}

/// An input whose dimensions lie in memory in a random order with gaps.
void add_input(Case& c, Builder& b, Rng& rng, Dims dims, DType dtype) {
  std::vector<int> order;
  for (int i = 0; i < dims.rank(); i++) order.insert(order.begin() + static_cast<long>(rng.below(order.size() + 1)), i);
  Dims strides = dims;
  int64_t step = 1;
  for (int d : order) { strides[d] = step; step *= dims[d] + static_cast<int64_t>(rng.below(2)); }
  c.program.inputs.push_back({"x", {dtype, dims}, strides, {}});
  b.add_input(static_cast<int>(c.program.inputs.size()) - 1, {dtype, dims});
  std::vector<double> memory(static_cast<size_t>(step) + 1, 777.0);
  Tensor<double> t(dims, 0.0);
  for (int64_t i = 0; i < dims.elements(); i++) {
    int64_t rest = i, at = 0;
    for (int d = dims.rank() - 1; d >= 0; d--) { at += rest % dims[d] * strides[d]; rest /= dims[d]; }
    const double v = dtype == DType::kBool ? static_cast<double>(rng.below(2)) : round_to(rng.uniform() * 4 - 2, dtype);
    memory[static_cast<size_t>(at)] = t.data[static_cast<size_t>(i)] = v;
  }
  c.memory.push_back(memory);
  c.values.push_back(t);
}

std::optional<ValueId> random_step(Builder& b, Rng& rng) {
  const Graph& g = b.graph();
  const auto pick = [&] { return static_cast<ValueId>(rng.below(static_cast<uint64_t>(g.num_values()))); };
  const ValueId x = pick();
  const int rank = g.dims(x).rank();
  const int dim = rank == 0 ? 0 : static_cast<int>(rng.below(static_cast<uint64_t>(rank)));
  switch (rng.below(12)) {
    case 0:
      return b.try_add(Reduce{rng.below(2) ? ReduceFn::kSum : ReduceFn::kMax, dim, rank && rng.below(2) && g.dims(x)[dim] % 2 == 0 ? 2 : 0},
                       {x});
    case 1: return b.try_add(Repeat{dim, static_cast<int64_t>(1 + rng.below(3))}, {x});
    case 2: return b.try_add(Reshape{Dims{g.dims(x).elements()}}, {x});
    case 3: return b.try_add(Concat{dim}, {x, pick(), x});
    case 4:
      return rank == 0
                 ? std::nullopt
                 : b.try_add(Slice{dim, static_cast<int64_t>(rng.below(2)), g.dims(x)[dim], static_cast<int64_t>(1 + rng.below(2))}, {x});
    case 5: {
      Transpose t;
      std::vector<int> order;
      for (int i = 0; i < rank; i++) order.insert(order.begin() + static_cast<long>(rng.below(order.size() + 1)), i);
      for (int i = 0; i < rank; i++) t.perm[static_cast<size_t>(i)] = static_cast<int8_t>(order[static_cast<size_t>(i)]);
      return b.try_add(t, {x});
    }
    case 6: case 7: return b.try_add(MatMul{}, {x, pick()});
    case 8: return rng.below(2) ? b.try_add(Iota{0, random_dims(rng, 2)}, {}) : b.try_add(Const{rng.uniform() * 3 - 1.5, {}}, {});
    default: {
      const auto fn = static_cast<MapFn>(rng.below(static_cast<uint64_t>(num_map_fns())));
      std::vector<ValueId> operands = {x};
      while (static_cast<int>(operands.size()) < map_info(fn).arity) operands.push_back(pick());
      return b.try_add(Map{fn}, operands);
    }
  }
}

void add_results(Case& c, Builder& b, const std::vector<ValueId>& values) {
  for (ValueId v : values) {
    const Type type{b.graph().type(v).dtype == DType::kBool ? DType::kBool
                    : c.program.outputs.size() % 2          ? DType::kF16
                                                            : DType::kF32,
                    b.graph().dims(v)};
    b.add_output(static_cast<int>(c.program.outputs.size()), v, type.dtype);
    c.program.outputs.push_back({"y", type, row_major_strides(type.dims), {}});
  }
}

Case random_case(uint64_t seed) {
  Rng rng(seed);
  Case c;
  Builder b(Level::kKernel);
  constexpr DType kTypes[] = {DType::kF16, DType::kBF16, DType::kF32, DType::kBool};
  const Dims square{4, 4};
  add_input(c, b, rng, square, DType::kF32);
  for (uint64_t i = 0; i < 3; i++) add_input(c, b, rng, random_dims(rng, static_cast<int>(rng.below(5))), kTypes[rng.below(4)]);
  for (int steps = 0; steps < 400 && b.graph().num_nodes() < 40; steps++) {
    const Builder::Mark mark = b.mark();
    const std::optional<ValueId> v = random_step(b, rng);
    if (v && b.graph().dims(*v).elements() > 3000) b.rollback(mark);
  }
  std::vector<bool> read(static_cast<size_t>(b.graph().num_values()), false);
  for (const Node& n : b.graph().nodes()) for (ValueId v : n.operands) read[static_cast<size_t>(v)] = true;
  std::vector<ValueId> results;
  for (ValueId v = b.graph().num_values() - 1; v >= 0 && results.size() < 12; v--) if (!read[static_cast<size_t>(v)]) results.push_back(v);
  add_results(c, b, results);
  c.program.graph = remove_dead(b.graph());
  return c;
}

/// Every function of maps.def, the casts on values beyond the range of float16.
Case all_maps() {
  Rng rng(9);
  Case c;
  Builder b(Level::kKernel);
  for (int i = 0; i < 3; i++) add_input(c, b, rng, Dims{5, 3}, DType::kF32);
  add_input(c, b, rng, Dims{3}, DType::kBool);
  std::vector<ValueId> sums;
  const ValueId big = b.map(MapFn::kMul, {0, b.constant(60000)});
  for (int f = 0; f < num_map_fns(); f++) {
    const auto fn = static_cast<MapFn>(f);
    const int arity = map_info(fn).arity;
    const bool cast = fn == MapFn::kCastF16 || fn == MapFn::kCastBF16 || fn == MapFn::kCastF32;
    ValueId v = arity == 1 ? b.map(fn, {cast ? big : 0}) : arity == 2 ? b.map(fn, {0, 1}) : b.map(fn, {fn == MapFn::kWhere ? 3 : 0, 1, 2});
    if (b.graph().type(v).dtype == DType::kBool) v = b.map(MapFn::kWhere, {v, 1, 2});
    sums.push_back(v);
  }
  for (int i = 0; i < 15; i++)
    add_results(c, b,
                {b.add(Concat{0}, {sums.begin() + i * static_cast<long>(sums.size()) / 15,
                                   sums.begin() + (i + 1) * static_cast<long>(sums.size()) / 15})});
  c.program.graph = remove_dead(b.graph());
  return c;
}

void write_doubles(std::string& text, const std::vector<double>& values) {
  char b[40];
  for (double v : values) { std::snprintf(b, sizeof b, "%.17g,", v); text += b; }
}

std::string host_program(const std::vector<Case>& cases) {
  std::string text = kHostTwin, calls;
  for (size_t k = 0; k < cases.size(); k++) {
    const Case& c = cases[k];
    const ReferenceText r = emit_reference(c.program, k % 2 ? 0 : int64_t{1} << 27);   // every second one computes in place what it can
    const std::string id = std::to_string(k);
    text += "namespace case_" + id + " {\n" + r.definitions + "static void run() {\n";
    for (size_t i = 0; i < c.memory.size(); i++) {
      text += "  static const double input_" + std::to_string(i) + "[] = {";
      write_doubles(text, c.memory[i]);
      text += "};\n  g_input[" + std::to_string(i) + "] = input_" + std::to_string(i) + ";\n";
    }
    text += r.run;
    for (size_t i = 0; i < c.program.outputs.size(); i++)
      text += "  std::fwrite(g_result[" + std::to_string(i) + "], 8, " + std::to_string(c.program.outputs[i].type.dims.elements()) +
              ", stdout);\n";
    text += "}\n}\n";
    calls += "  case_" + id + "::run();\n";
  }
  return text + "int main() {\n" + calls + "}\n";
}

}  // namespace

TEST_CASE("the generated fp64 reference means what the evaluator means") {
  std::vector<Case> cases = {all_maps(), all_maps()};
  for (uint64_t seed = 1; seed <= 20; seed++) cases.push_back(random_case(seed));
  const std::filesystem::path folder = std::filesystem::path(MIRAGE_BINARY_DIR) / "module_reference_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "reference.cc") << host_program(cases);
  const std::string at = "cd '" + folder.string() + "' && ";
  REQUIRE(std::system((at + "c++ -std=c++17 -O0 -w -o reference reference.cc").c_str()) == 0);
  REQUIRE(std::system((at + "./reference > results.bin").c_str()) == 0);
  std::ifstream results(folder / "results.bin", std::ios::binary);
  size_t compared = 0, finite = 0;
  for (size_t k = 0; k < cases.size(); k++) {
    const Case& c = cases[k];
    DoubleAlgebra a;
    const std::vector<Tensor<double>> want = evaluate(c.program.graph, std::span<const Tensor<double>>(c.values), a, true);
    for (size_t r = 0; r < want.size(); r++) {
      INFO("case " << k << " result " << r << "\n" << print(c.program.graph));
      REQUIRE(want[r].dims == c.program.outputs[r].type.dims);
      for (const double w : want[r].data) {
        double got = -1;
        REQUIRE(results.read(reinterpret_cast<char*>(&got), 8));
        compared++;
        if (std::isnan(w)) { REQUIRE(std::isnan(got)); continue; }
        if (std::isinf(w)) { REQUIRE(got == w); continue; }
        finite++;
        // the last bits of a sum may round to the neighbour at an output
        REQUIRE(std::fabs(got - w) <= (c.program.outputs[r].type.dtype == DType::kF16 ? 1e-3 : 1e-6) * std::fabs(w) + 1e-7);
      }
    }
  }
  CHECK(compared > 3000);
  CHECK(finite > compared / 2);
}

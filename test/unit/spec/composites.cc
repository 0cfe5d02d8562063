// Operators that are made of others (layers, activations, windows, attention), in doubles, against loops written here without the library.
#include <algorithm>
#include <functional>
#include <limits>
#include <fmt/format.h>
#include "helpers.h"
#include "spec/operators/operators.h"

using namespace mirage;
using namespace mirage::spec_test;

namespace {

const double kInfinite = std::numeric_limits<double>::infinity();

size_t flat(const Dims& d, const std::vector<int64_t>& at) {
  int64_t out = 0;
  for (int i = 0; i < d.rank(); ++i) out = out * d[i] + at[static_cast<size_t>(i)];
  return static_cast<size_t>(out);
}

/// f at every place of a shape, row-major.
std::vector<double> fill(const Dims& d, const std::function<double(const std::vector<int64_t>&)>& f) {
  std::vector<double> out;
  std::vector<int64_t> at(static_cast<size_t>(d.rank()), 0);
  for (int64_t n = 0; n < d.elements(); ++n) {
    int64_t rest = n;
    for (int i = d.rank(); i-- > 0;) at[static_cast<size_t>(i)] = rest % d[i], rest /= d[i];
    out.push_back(f(at));
  }
  return out;
}

void check_function(const std::string& op, const std::function<double(double)>& f, const std::string& attrs = "") {
  INFO(op << " " << attrs);
  const In in{{2, 5}, {-30, -3.5, -1, -0.25, 0, 0.5, 1, 2.5, 4, 30}, "float32"};
  std::vector<double> want;
  for (double x : in.data) want.push_back(f(x));
  check_close(run_op(op, {in}, attrs), in.dims, want);
}

const double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("activations made of others") {
  check_function("leaky_relu", [](double x) { return x > 0 ? x : 0.01 * x; });
  check_function("leaky_relu", [](double x) { return x > 0 ? x : 1.5 * x; }, "\"slope\": 1.5");
  check_function("leaky_relu", [](double x) { return x > 0 ? x : -0.5 * x; }, "\"slope\": -0.5");
  check_function("elu", [](double x) { return x > 0 ? x : std::expm1(x); });
  check_function("elu", [](double x) { return x > 0 ? x : 2.5 * std::expm1(x); }, "\"alpha\": 2.5");
  check_function("softplus", [](double x) { return std::log1p(std::exp(x)); });
  check_function("softplus", [](double x) { return std::log1p(std::exp(3 * x)) / 3; }, "\"beta\": 3");
  check_close(run_op("softplus", {{{2}, {5000, -5000}, "float32"}}), {2}, {5000, 0});
  check_close(run_op("elu", {{{2}, {5000, -5000}, "float32"}}), {2}, {5000, -1});
  check_function("hardtanh", [](double x) { return std::clamp(x, -1.0, 1.0); });
  check_function("hardtanh", [](double x) { return std::clamp(x, 0.0, 6.0); }, "\"min\": 0, \"max\": 6");
  check_function("hardswish", [](double x) { return x * std::clamp(x + 3, 0.0, 6.0) / 6; });
  check_function("mish", [](double x) { return x * std::tanh(std::log1p(std::exp(x))); });
  check_close(run_op("reciprocal", {{{3}, {0.5, -2, 8}, "float32"}}), {3}, {2, -0.5, 0.125});
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  const auto gelu = [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); };
  const auto gelu_tanh = [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); };
  const In x = random_in({3, 8}, 1);
  const auto gated = [&](const std::function<double(double)>& f, bool second) {
    return fill({3, 4}, [&](const auto& i) {
      const double a = x.data[flat(x.dims, {i[0], i[1]})], b = x.data[flat(x.dims, {i[0], i[1] + 4})];
      return second ? a * f(b) : f(a) * b;
    });
  };
  check_close(run_op("swiglu", {x}), {3, 4}, gated(silu, false));
  check_close(run_op("swiglu", {x}, "\"gate\": \"second\""), {3, 4}, gated(silu, true));
  check_close(run_op("geglu", {x}), {3, 4}, gated(gelu, false));
  check_close(run_op("geglu", {x}, "\"gate\": \"second\", \"approximate\": \"tanh\""), {3, 4}, gated(gelu_tanh, true));
  const In a = random_in({5}, 2), b = random_in({5}, 3);
  check_close(run_op("swiglu", {a, b}), {5}, fill({5}, [&](const auto& i) { return silu(a.data[flat({5}, i)]) * b.data[flat({5}, i)]; }));
}

TEST_CASE("comparisons and logic, also of NaN and infinity") {
  const In x{{8}, {1, 2, 3, kNan, 1, kInfinite, -kInfinite, kNan}, "float32"}, y{{8}, {2, 2, 2, 1, kNan, kInfinite, 0, kNan}, "float32"};
  const auto check = [&](const std::string& op, const std::function<bool(double, double)>& f) {
    INFO(op);
    check_close(run_op(op, {x, y}, "", "bool"), {8},
                fill({8}, [&](const auto& i) { return f(x.data[flat({8}, i)], y.data[flat({8}, i)]); }));
  };
  check("not_equal", [](double p, double q) { return p != q; });
  check("less_equal", [](double p, double q) { return p <= q; });
  check("greater_equal", [](double p, double q) { return p >= q; });
  const In p{{4}, {1, 1, 0, 0}, "bool"}, q{{4}, {1, 0, 1, 0}, "bool"}, n{{4}, {0.5, 0, -2, 0}, "float32"};
  check_close(run_op("and", {p, q}, "", "bool"), {4}, {1, 0, 0, 0});
  check_close(run_op("or", {p, q}, "", "bool"), {4}, {1, 1, 1, 0});
  check_close(run_op("not", {p}, "", "bool"), {4}, {0, 0, 1, 1});
  check_close(run_op("and", {p, n}, "", "bool"), {4}, {1, 0, 0, 0});
  check_close(run_op("or", {q, n}, "", "bool"), {4}, {1, 0, 1, 0});
  check_close(run_op("not", {n}, "", "bool"), {4}, {0, 1, 0, 1});
  const auto positions = [](const std::string& op) {  // one comparison of positions, none of their numbers
    const Program p = must_parse(spec_text(
        {{{3, 3}, {}, "float32"}},
        R"({"op": "iota", "output": "i", "attrs": {"shape": [3, 1]}}, {"op": "iota", "output": "j", "attrs": {"axis": 1, "shape": [1, 3]}},
      {"op": ")" +
            op + R"(", "inputs": ["j", "i"], "output": "c"}, {"op": "where", "inputs": ["c", "x0", "-inf"], "output": "y"})"));
    CHECK(std::count_if(p.graph.nodes().begin(), p.graph.nodes().end(), [](const Node& m) { return m.op == Op{Map{MapFn::kLess}}; }) == 1);
    CHECK(std::count_if(p.graph.nodes().begin(), p.graph.nodes().end(), [](const Node& m) { return m.op == Op{Map{MapFn::kEqual}}; }) == 0);
    return run_program(p, {{{3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9}, "float32"}})[0];
  };
  check_close(positions("less_equal"), {3, 3}, {1, -kInfinite, -kInfinite, 4, 5, -kInfinite, 7, 8, 9});
  check_close(positions("greater_equal"), {3, 3}, {1, 2, 3, -kInfinite, 5, 6, -kInfinite, -kInfinite, 9});
}

TEST_CASE("reductions made of others") {
  const In x = random_in({3, 4, 5}, 4, -3, 5);
  const auto rows = [&](const std::function<double(const std::vector<double>&)>& f) {   // over axes 0 and 2
    return fill({4}, [&](const auto& j) {
      std::vector<double> line;
      for (int64_t i = 0; i < 3; ++i) for (int64_t k = 0; k < 5; ++k) line.push_back(x.data[flat(x.dims, {i, j[0], k})]);
      return f(line);
    });
  };
  const auto var = [](const std::vector<double>& l, double correction) {
    double mean = 0, sum = 0;
    for (double v : l) mean += v / static_cast<double>(l.size());
    for (double v : l) sum += (v - mean) * (v - mean);
    return sum / (static_cast<double>(l.size()) - correction);
  };
  const auto lse = [](const std::vector<double>& l) { double s = 0; for (double v : l) s += std::exp(v); return std::log(s); };
  const std::string axes = "\"axis\": [0, -1]";
  check_close(run_op("min", {x}, axes), {4}, rows([](const auto& l) { return *std::min_element(l.begin(), l.end()); }));
  check_close(run_op("var", {x}, axes), {4}, rows([&](const auto& l) { return var(l, 1); }));
  check_close(run_op("var", {x}, axes + ", \"correction\": 0, \"keepdim\": true"), {1, 4, 1},
              rows([&](const auto& l) { return var(l, 0); }));
  check_close(run_op("std", {x}, axes + ", \"correction\": 3"), {4}, rows([&](const auto& l) { return std::sqrt(var(l, 3)); }));
  check_close(run_op("prod", {x}, axes), {4}, rows([](const auto& l) { double p = 1; for (double v : l) p *= v; return p; }), 1e-11);
  check_close(run_op("prod", {{{7}, {1, 2, 3, 4, 5, 6, 7}, "float32"}}, "\"keepdim\": true"), {1}, {5040});
  check_close(run_op("logsumexp", {x}, axes), {4}, rows(lse));
  check_close(run_op("min", {x}), {}, {*std::min_element(x.data.begin(), x.data.end())});
  check_close(run_op("logsumexp", {{{2}, {5000, 5000}, "float32"}}), {}, {5000 + std::log(2.0)});
  const In r = random_in({3, 4}, 5, -40, 600);
  check_close(run_op("log_softmax", {r}), {3, 4}, fill({3, 4}, [&](const auto& at) {
    double s = 0;
    for (int64_t k = 0; k < 4; ++k) s += std::exp(r.data[flat(r.dims, {at[0], k})] - r.data[flat(r.dims, at)]);
    return s == kInfinite ? r.data[flat(r.dims, at)] - *std::max_element(r.data.begin() + at[0] * 4, r.data.begin() + at[0] * 4 + 4)
                          : -std::log(s);
  }), 1e-9);
}

TEST_CASE("running sums of short, long and prime axes") {
  for (const Dims& d : {Dims{2, 7}, Dims{2, 300}, Dims{3, 257}, Dims{520}, Dims{2, 260, 3}, Dims{17 * 131}})
    for (const bool reverse : {false, true})
      for (const bool exclusive : {false, true}) {
        INFO(to_string(d) << reverse << exclusive);
        const In x = random_in(d, 6);
        const int axis = d.rank() == 3 ? 1 : d.rank() - 1;
        const auto want = fill(d, [&](const std::vector<int64_t>& at) {
          double s = 0;
          for (int64_t k = 0; k < d[axis]; ++k) {
            const int64_t i = at[static_cast<size_t>(axis)];
            std::vector<int64_t> from = at;
            from[static_cast<size_t>(axis)] = k;
            if ((reverse ? k > i : k < i) || (!exclusive && k == i)) s += x.data[flat(d, from)];
          }
          return s;
        });
        check_close(run_op("cumsum", {x}, fmt::format("\"axis\": {}, \"reverse\": {}, \"exclusive\": {}", axis, reverse, exclusive)), d,
                    want);
      }
}

TEST_CASE("linear") {
  const In x = random_in({2, 3, 4}, 7), w = random_in({5, 4}, 8), b = random_in({5}, 9);
  const auto want = [&](bool bias) {
    return fill({2, 3, 5}, [&](const auto& at) {
      double s = bias ? b.data[static_cast<size_t>(at[2])] : 0;
      for (int64_t k = 0; k < 4; ++k) s += x.data[flat(x.dims, {at[0], at[1], k})] * w.data[flat(w.dims, {at[2], k})];
      return s;
    });
  };
  check_close(run_op("linear", {x, w}), {2, 3, 5}, want(false));
  check_close(run_op("linear", {x, w, b}), {2, 3, 5}, want(true));
  check_close(run_op("linear", {{{4}, {1, 2, 3, 4}, "float32"}, {{1, 4}, {1, -1, 1, 2}, "float32"}, {{1}, {0.5}, "float32"}}), {1}, {10.5});
  const std::string swapped =
      errors_of(spec_text({x, {{4, 5}, {}, "float32"}}, R"({"op": "linear", "inputs": ["x0", "x1"], "output": "y"})"));
  CHECK(swapped.find("(in, out), which matmul takes") != std::string::npos);
}

TEST_CASE("shapes made of others") {
  const In x{{2, 3}, {0, 1, 2, 3, 4, 5}, "float32"};
  check_close(run_op("unsqueeze", {x}, "\"axis\": 1"), {2, 1, 3}, x.data);
  check_close(run_op("unsqueeze", {x}, "\"axis\": [0, -1]"), {1, 2, 3, 1}, x.data);
  const In thin{{1, 2, 1, 3}, x.data, "float32"};
  check_close(run_op("squeeze", {thin}), {2, 3}, x.data);
  check_close(run_op("squeeze", {thin}, "\"axis\": -2"), {1, 2, 3}, x.data);
  check_close(run_op("expand", {{{2, 1}, {7, 8}, "float32"}}, "\"shape\": [2, -1, 3]"), {2, 2, 3}, {7, 7, 7, 8, 8, 8, 7, 7, 7, 8, 8, 8});
  check_close(run_op("stack", {x, x}), {2, 2, 3}, {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5});
  check_close(run_op("stack", {x, x}, "\"axis\": -1"), {2, 3, 2}, {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5});
  check_close(run_op("pad", {x}, "\"before\": [1, 0], \"after\": [0, 2], \"value\": 9"), {3, 5},
              {9, 9, 9, 9, 9, 0, 1, 2, 9, 9, 3, 4, 5, 9, 9});
  const In line{{4}, {1, 2, 3, 4}, "float32"};
  check_close(run_op("pad", {line}, "\"before\": 2, \"after\": 3, \"mode\": \"reflect\""), {9}, {3, 2, 1, 2, 3, 4, 3, 2, 1});
  check_close(run_op("pad", {line}, "\"before\": 1, \"after\": 2, \"mode\": \"replicate\""), {7}, {1, 1, 2, 3, 4, 4, 4});
  check_close(run_op("pad", {line}, "\"before\": 1, \"after\": 2, \"mode\": \"circular\""), {7}, {4, 1, 2, 3, 4, 1, 2});
  check_close(run_op("flip", {x}), {2, 3}, {5, 4, 3, 2, 1, 0});
  check_close(run_op("flip", {x}, "\"axis\": 1"), {2, 3}, {2, 1, 0, 5, 4, 3});
  check_close(run_op("pad", {x}, "\"before\": [-1, 1]"), {1, 4}, {0, 3, 4, 5});
  check_close(run_op("pad", {x}, "\"after\": [0, -2], \"before\": [0, 1]"), {2, 2}, {0, 0, 0, 3});
}

TEST_CASE("split has as many results as names") {
  const In x = random_in({2, 6}, 10);
  const auto parts = [&](const std::string& nodes) {
    const Program p = must_parse(
        R"({"axes": {"K": 6}, "inputs": {"x": {"shape": [2, "K"], "dtype": "float16"}}, "outputs": {"b": {"dtype": "float16"}, )"
        R"("s": {"dtype": "float16"}}, "nodes": [)" +
        nodes + "]}");
    const Program again = must_parse(p.canonical);
    CHECK(again.graph == p.graph);
    CHECK(again.kept == p.kept);
    return run_program(p, {x});
  };
  const auto equal = parts(
      R"({"op": "split", "inputs": ["x"], "outputs": ["a", "b", "c"], "attrs": {"axis": 1}}, )"
      R"({"op": "add", "inputs": ["a", "c"], "output": "s"})");
  check_close(equal[0], {2, 2}, fill({2, 2}, [&](const auto& i) { return x.data[flat({2, 6}, {i[0], i[1] + 2})]; }));
  check_close(equal[1], {2, 2}, fill({2, 2}, [&](const auto& i) {
                return x.data[flat({2, 6}, {i[0], i[1]})] + x.data[flat({2, 6}, {i[0], i[1] + 4})];
              }));
  const auto sized = parts(
      R"({"op": "split", "inputs": ["x"], "outputs": ["a", "b"], "attrs": {"sizes": ["K/2 - 2", "K/2 + 2"]}}, )"
      R"({"op": "neg", "inputs": ["a"], "output": "s"})");
  check_close(sized[0], {2, 5}, fill({2, 5}, [&](const auto& i) { return x.data[flat({2, 6}, {i[0], i[1] + 1})]; }));
  check_close(sized[1], {2, 1}, {-x.data[0], -x.data[6]});
}

TEST_CASE("attributes are expressions of axes") {
  const Program p =
      must_parse(R"({"axes": {"K": 6}, "inputs": {"x": {"shape": ["K"], "dtype": "float32"}}, "outputs": {"y": {"dtype": "float32"}},
    "nodes": [{"op": "slice", "inputs": ["x"], "output": "y", "attrs": {"axis": 0, "start": "-K/2 - 1", "stop": "K - 1", "step": "K/3"}}]})");
  check_close(run_program(p, {{{6}, {0, 1, 2, 3, 4, 5}, "float32"}})[0], {2}, {2, 4});
}

namespace {

/// Windows of one case: per spatial axis extent, kernel, stride, padding, dilation.
struct Windows { std::vector<int64_t> n, k, s, p, d; };

double windowed(const In& x, const Windows& w, int64_t b, int64_t c, const std::vector<int64_t>& at,
                const std::function<double(double, double, const std::vector<int64_t>&)>& f, double start) {
  Dims taps;
  for (int64_t k : w.k) taps.push_back(k);
  double out = start;
  fill(taps, [&](const auto& tap) {
    std::vector<int64_t> from{b, c};
    bool inside = true;
    for (size_t i = 0; i < tap.size(); ++i) {
      from.push_back(at[i + 2] * w.s[i] - w.p[i] + tap[i] * w.d[i]);
      inside = inside && from.back() >= 0 && from.back() < w.n[i];
    }
    if (inside) out = f(out, x.data[flat(x.dims, from)], tap);
    return 0;
  });
  return out;
}

std::string lists(const Windows& w, bool dilated = true) {
  const auto list = [](const std::vector<int64_t>& v) {
    std::string s;
    for (int64_t i : v) s += (s.empty() ? "[" : ", ") + std::to_string(i);
    return s + "]";
  };
  return "\"stride\": " + list(w.s) + ", \"padding\": " + list(w.p) + (dilated ? ", \"dilation\": " + list(w.d) : "");
}

Dims windows_shape(const Windows& w, int64_t b, int64_t c, bool ceil = false) {
  Dims out{b, c};
  for (size_t i = 0; i < w.n.size(); ++i) {
    const int64_t room = w.n[i] + 2 * w.p[i] - w.d[i] * (w.k[i] - 1) - 1;
    int64_t count = room / w.s[i] + 1;
    if (ceil && room % w.s[i] && count * w.s[i] < w.n[i] + w.p[i]) ++count;
    out.push_back(count);
  }
  return out;
}

In image(const Windows& w, int64_t b, int64_t c, uint64_t seed) {
  Dims d{b, c};
  for (int64_t n : w.n) d.push_back(n);
  return random_in(d, seed);
}

}  // namespace

TEST_CASE("pools of 1 to 3 axes") {
  const std::vector<Windows> cases = {{{9}, {3}, {2}, {1}, {1}}, {{7, 8}, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
                                      {{6, 7}, {3, 2}, {1, 2}, {1, 0}, {2, 1}}, {{5, 4, 6}, {2, 3, 1}, {2, 1, 1}, {1, 1, 0}, {1, 1, 1}},
                                      {{4, 4}, {4, 4}, {4, 4}, {0, 0}, {1, 1}}};
  for (const Windows& w : cases) for (const bool ceil : {false, true}) {
    const In x = image(w, 2, 3, 11);
    const Dims d = windows_shape(w, 2, 3, ceil);
    const std::string kernel = "\"kernel\": [" +
                               [&] {
                                 std::string s;
                                 for (int64_t k : w.k) s += (s.empty() ? "" : ", ") + std::to_string(k);
                                 return s;
                               }() +
                               "], \"ceil_mode\": " + (ceil ? "true, " : "false, ");
    INFO(to_string(x.dims) << kernel << lists(w));
    check_close(run_op("max_pool", {x}, kernel + lists(w)), d, fill(d, [&](const auto& at) {
                  return windowed(
                      x, w, at[0], at[1], at, [](double o, double v, const auto&) { return std::max(o, v); }, -kInfinite);
                }));
    if (std::any_of(w.d.begin(), w.d.end(), [](int64_t i) { return i > 1; })) continue;
    for (const bool with_padding : {true, false}) {
      const auto want = fill(d, [&](const auto& at) {
        double count = 1;
        for (size_t i = 0; i < w.n.size(); ++i) {
          const int64_t first = at[i + 2] * w.s[i] - w.p[i], end = std::min(first + w.k[i], w.n[i] + w.p[i]);
          count *= static_cast<double>(with_padding ? end - first : std::min(end, w.n[i]) - std::max<int64_t>(first, 0));
        }
        return windowed(x, w, at[0], at[1], at, [](double o, double v, const auto&) { return o + v; }, 0) / count;
      });
      check_close(run_op("avg_pool", {x}, kernel + lists(w, false) + ", \"count_include_pad\": " + (with_padding ? "true" : "false")), d,
                  want);
    }
  }
  check_close(run_op("max_pool", {{{1, 1, 4}, {1, 5, 2, 3}, "float32"}}, "\"kernel\": 2"), {1, 1, 2}, {5, 3});
}

TEST_CASE("convolutions of 1 to 3 axes: strides, padding, dilation, groups") {
  struct Case { Windows w; int64_t in, out, groups; };
  const std::vector<Case> cases = {{{{9}, {3}, {2}, {1}, {1}}, 4, 6, 1}, {{{7, 8}, {3, 2}, {1, 2}, {1, 0}, {1, 1}}, 3, 4, 1},
                                   {{{8, 7}, {3, 3}, {2, 1}, {2, 1}, {2, 1}}, 4, 6, 2}, {{{5, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, 4, 8, 4},
                                   {{{4, 5, 6}, {2, 3, 1}, {1, 2, 1}, {1, 0, 0}, {1, 1, 1}}, 2, 3, 1},
                                   {{{4, 3}, {1, 1}, {1, 1}, {0, 0}, {1, 1}}, 5, 2, 1},
                                   {{{3, 3}, {3, 3}, {1, 1}, {2, 2}, {1, 1}}, 1, 1, 1}};
  for (const Case& c : cases) {
    const In x = image(c.w, 2, c.in, 12), b = random_in({c.out}, 13);
    Dims wd{c.out, c.in / c.groups};
    for (int64_t k : c.w.k) wd.push_back(k);
    const In w = random_in(wd, 14);
    const Dims d = windows_shape(c.w, 2, c.out);
    INFO(to_string(x.dims) << to_string(wd) << lists(c.w) << c.groups);
    const auto want = fill(d, [&](const auto& at) {
      double s = b.data[static_cast<size_t>(at[1])];
      const int64_t per = c.in / c.groups, group = at[1] / (c.out / c.groups);
      for (int64_t i = 0; i < per; ++i)
        s = windowed(
            x, c.w, at[0], group * per + i, at,
            [&](double o, double v, const std::vector<int64_t>& tap) {
              std::vector<int64_t> place{at[1], i};
              place.insert(place.end(), tap.begin(), tap.end());
              return o + v * w.data[flat(wd, place)];
            },
            s);
      return s;
    });
    check_close(run_op("conv", {x, w, b}, lists(c.w) + ", \"groups\": " + std::to_string(c.groups)), d, want);
  }
}

TEST_CASE("transposed convolutions scatter what convolutions gather") {
  struct Case { Windows w; std::vector<int64_t> more; int64_t in, out, groups; };
  const std::vector<Case> cases = {{{{4}, {3}, {2}, {1}, {1}}, {1}, 3, 2, 1}, {{{3, 4}, {3, 2}, {1, 3}, {0, 1}, {2, 1}}, {0, 2}, 4, 6, 2},
                                   {{{2, 2, 3}, {2, 2, 2}, {2, 1, 1}, {0, 1, 0}, {1, 1, 1}}, {0, 0, 0}, 2, 3, 1},
                                   {{{3}, {1}, {1}, {0}, {1}}, {0}, 2, 2, 2}};
  for (const Case& c : cases) {
    const In x = image(c.w, 2, c.in, 15);
    Dims wd{c.in, c.out / c.groups}, d{2, c.out};
    for (int64_t k : c.w.k) wd.push_back(k);
    for (size_t i = 0; i < c.w.n.size(); ++i)
      d.push_back((c.w.n[i] - 1) * c.w.s[i] - 2 * c.w.p[i] + c.w.d[i] * (c.w.k[i] - 1) + c.more[i] + 1);
    const In w = random_in(wd, 16);
    INFO(to_string(x.dims) << to_string(wd) << lists(c.w) << c.groups);
    std::vector<double> want(static_cast<size_t>(d.elements()), 0.0);
    fill(x.dims, [&](const auto& from) {
      Dims taps{c.out / c.groups};
      for (int64_t k : c.w.k) taps.push_back(k);
      fill(taps, [&](const auto& tap) {
        const int64_t group = from[1] / (c.in / c.groups);
        std::vector<int64_t> to{from[0], group * (c.out / c.groups) + tap[0]}, place{from[1]};
        bool inside = true;
        for (size_t i = 0; i < c.w.n.size(); ++i) {
          to.push_back(from[i + 2] * c.w.s[i] - c.w.p[i] + tap[i + 1] * c.w.d[i]);
          inside = inside && to.back() >= 0 && to.back() < d[static_cast<int>(i) + 2];
        }
        place.insert(place.end(), tap.begin(), tap.end());
        if (inside) want[flat(d, to)] += x.data[flat(x.dims, from)] * w.data[flat(wd, place)];
        return 0;
      });
      return 0;
    });
    const auto more = "[" + [&] {
      std::string s;
      for (int64_t k : c.more) s += (s.empty() ? "" : ", ") + std::to_string(k);
      return s;
    }() + "]";
    check_close(run_op("conv", {x, w},
                       lists(c.w) + ", \"transposed\": true, \"output_padding\": " + more + ", \"groups\": " + std::to_string(c.groups)),
                d, want);
  }
}

namespace {

struct AttentionCase {
  int64_t batch, heads, key_heads, rows, keys, depth, width;
  bool causal;
  int64_t window, offset;
  double softcap, scale;
  Dims mask;
  bool mask_is_bool, sink;
};

std::vector<double> attended(const AttentionCase& c, const In& q, const In& k, const In& v, const In* mask, const In* sink) {
  const auto at = [](const In& t, std::vector<int64_t> place) {   // broadcast
    std::vector<int64_t> p(place.end() - t.dims.rank(), place.end());
    for (int i = 0; i < t.dims.rank(); ++i) if (t.dims[i] == 1) p[static_cast<size_t>(i)] = 0;
    return t.data[flat(t.dims, p)];
  };
  std::vector<double> out;
  for (int64_t b = 0; b < c.batch; ++b) for (int64_t h = 0; h < c.heads; ++h) for (int64_t i = 0; i < c.rows; ++i) {
    std::vector<double> s;
    const int64_t g = h / (c.heads / c.key_heads);
    for (int64_t j = 0; j < c.keys; ++j) {
      double x = 0;
      for (int64_t e = 0; e < c.depth; ++e) x += at(q, {b, h, i, e}) * at(k, {b, g, j, e});
      x *= c.scale ? c.scale : 1 / std::sqrt(static_cast<double>(c.depth));
      if (c.softcap) x = c.softcap * std::tanh(x / c.softcap);
      if (mask) x = c.mask_is_bool ? (at(*mask, {b, h, i, j}) != 0 ? x : -kInfinite) : x + at(*mask, {b, h, i, j});
      if ((c.causal && j > i + c.offset) || (c.window && j <= i + c.offset - c.window)) x = -kInfinite;
      s.push_back(x);
    }
    if (sink) s.push_back(sink->data[static_cast<size_t>(h)]);
    double total = 0;
    for (double& x : s) x = std::exp(x), total += x;
    for (int64_t e = 0; e < c.width; ++e) {
      double y = 0;
      for (int64_t j = 0; j < c.keys; ++j) y += s[static_cast<size_t>(j)] / total * at(v, {b, g, j, e});
      out.push_back(y);
    }
  }
  return out;
}

}  // namespace

TEST_CASE("attention: scale, masks, windows, groups of heads, sinks") {
  const std::vector<AttentionCase> cases = {{2, 3, 3, 4, 5, 6, 6, false, 0, 0, 0, 0, {}, false, false},
                                            {2, 4, 4, 5, 5, 3, 4, true, 0, 0, 0, 0.3, {}, false, false},
                                            {1, 4, 2, 3, 7, 4, 2, true, 0, 4, 0, 0, {}, false, false},
                                            {2, 6, 2, 1, 8, 4, 4, true, 3, 7, 0, 0, {}, false, true},
                                            {1, 4, 2, 6, 6, 4, 4, true, 2, 0, 5, 0, {}, false, true},
                                            {2, 4, 2, 3, 5, 4, 4, false, 0, 0, 2, 0, {}, false, true},
                                            {2, 4, 2, 3, 5, 4, 4, false, 0, 0, 0, 0, {3, 5}, false, false},
                                            {2, 4, 2, 3, 5, 4, 4, false, 0, 0, 0, 0, {2, 1, 1, 5}, true, true},
                                            {2, 4, 2, 1, 5, 4, 4, false, 0, 0, 0, 0, {2, 4, 1, 5}, false, false},
                                            {2, 4, 2, 3, 5, 4, 4, false, 0, 0, 0, 0, {4, 3, 5}, true, false},
                                            {2, 4, 2, 3, 5, 4, 4, false, 0, 0, 0, 0, {4, 1, 5}, false, false}};
  for (size_t n = 0; n < cases.size(); ++n) {
    const AttentionCase& c = cases[n];
    INFO("case " << n);
    std::vector<In> ins{random_in({c.batch, c.heads, c.rows, c.depth}, 20 + n), random_in({c.batch, c.key_heads, c.keys, c.depth}, 40 + n),
                        random_in({c.batch, c.key_heads, c.keys, c.width}, 60 + n)};
    std::string attrs = "\"causal\": " + std::string(c.causal ? "true" : "false") + ", \"offset\": " + std::to_string(c.offset);
    if (c.window) attrs += ", \"window\": " + std::to_string(c.window);
    if (c.softcap) attrs += ", \"softcap\": " + std::to_string(c.softcap);
    if (c.scale) attrs += ", \"scale\": " + std::to_string(c.scale);
    In mask = random_in(c.mask, 80 + n), sink = random_in({c.heads}, 90 + n);
    if (c.mask_is_bool) for (size_t i = 0; i < mask.data.size(); ++i) mask.data[i] = mask.data[i] > 0 || i % 5 == 0;
    if (c.mask_is_bool) mask.dtype = "bool";
    if (c.mask.rank()) ins.push_back(mask);
    if (c.sink) ins.push_back(sink), attrs += ", \"sink\": true";
    check_close(run_op("attention", ins, attrs), {c.batch, c.heads, c.rows, c.width},
                attended(c, ins[0], ins[1], ins[2], c.mask.rank() ? &mask : nullptr, c.sink ? &sink : nullptr), 1e-9);
  }
  const In q = random_in({3, 4}, 1), k = random_in({5, 4}, 2), v = random_in({5, 2}, 3);   // without heads
  check_close(run_op("attention", {q, k, v}), {3, 2},
              attended({1, 1, 1, 3, 5, 4, 2, false, 0, 0, 0, 0, {}, false, false}, q, k, v, nullptr, nullptr), 1e-9);
}

TEST_CASE("rope") {
  const In x = random_in({2, 3, 6}, 30);
  for (const bool interleaved : {false, true}) for (const int64_t turned : {6, 4}) for (const bool twice : {false, true}) {
    const int64_t half = turned / 2;
    const Dims ad{3, twice ? turned : half};
    const In c = random_in(ad, 31), s = random_in(ad, 32);
    const auto want = fill(x.dims, [&](const auto& at) {
      const int64_t i = at[2];
      if (i >= turned) return x.data[flat(x.dims, at)];
      const bool second = interleaved ? i % 2 : i >= half;
      const int64_t other = interleaved ? (second ? i - 1 : i + 1) : (second ? i - half : i + half), pair = interleaved ? i / 2 : i % half;
      const size_t angle = flat(ad, {at[1], twice ? i : pair});
      return x.data[flat(x.dims, at)] * c.data[angle] + (second ? 1 : -1) * x.data[flat(x.dims, {at[0], at[1], other})] * s.data[angle];
    });
    check_close(run_op("rope", {x, c, s}, fmt::format("\"interleaved\": {}, \"dims\": {}", interleaved, turned)), x.dims, want);
  }
}

TEST_CASE("places of extremes, and reads by index") {
  const In x{{2, 4}, {3, 7, 7, -1, 0, -5, 2, -5}, "float32"};
  check_close(run_op("argmax", {x}, "\"axis\": -1", "int64"), {2}, {1, 2});
  check_close(run_op("argmin", {x}, "\"axis\": 1, \"keepdim\": true", "int32"), {2, 1}, {3, 1});
  check_close(run_op("argmax", {x}, "\"axis\": 0", "int32"), {4}, {0, 0, 0, 0});
  check_close(run_op("argmax", {x}, "", "int64"), {}, {1});
  check_close(run_op("argmin", {x}, "\"keepdim\": true"), {1, 1}, {5});
  const In table{{3, 2}, {1, 2, 3, 4, 5, 6}, "float32"}, rows{{2, 2}, {2, 0, 1, 2}, "int64"}, outside{{3}, {-1, 3, 1}, "int32"};
  check_close(run_op("embedding", {rows, table}), {2, 2, 2}, {5, 6, 1, 2, 3, 4, 5, 6});
  check_close(run_op("embedding", {outside, {{3, 2}, {kInfinite, 2, 3, 4, 5, kNan}, "float32"}}), {3, 2}, {0, 0, 0, 0, 3, 4});
  check_close(run_op("index_select", {x, {{3}, {3, 0, 0}, "int32"}}, "\"axis\": 1"), {2, 3}, {-1, 3, 3, -5, 0, 0});
  check_close(run_op("index_select", {x, {{}, {1}, "int64"}}), {4}, {0, -5, 2, -5});
  check_close(run_op("gather", {x, {{1, 3}, {1, 0, 1}, "int64"}}, "\"axis\": 0"), {1, 3}, {0, 7, 2});
  check_close(run_op("gather", {x, {{2, 2}, {3, 1, 0, 9}, "int64"}}, "\"axis\": 1"), {2, 2}, {-1, 7, 0, 0});
  const Program p = must_parse(
      spec_text({{{4}, {}, "int64"}, {{30, 2}, {}, "float16"}}, R"({"op": "embedding", "inputs": ["x0", "x1"], "output": "y"})"));
  REQUIRE(p.inputs[0].range);
  CHECK(*p.inputs[0].range == std::pair(0.0, 29.0));
  CHECK(errors_of(spec_text({x, table}, R"({"op": "embedding", "inputs": ["x0", "x1"], "output": "y"})"))
            .find("an index is a tensor of int32 or int64") != std::string::npos);
  CHECK(errors_of(spec_text({x}, R"({"op": "exp", "inputs": ["x0"], "output": "y"})", "int32")).find("need not be whole") !=
        std::string::npos);
  check_close(run_op("cast", {{{4}, {-1.5, 1.5, 2, -0.25}, "float32"}}, "\"dtype\": \"int32\"", "int32"), {4}, {-1, 1, 2, 0});
}

TEST_CASE("names of other libraries are answered with the operator here") {
  const auto said = [](const std::string& op) {
    return errors_of(spec_text({{{2, 2}, {}, "float32"}}, "{\"op\": \"" + op + "\", \"inputs\": [\"x0\"], \"output\": \"y\"}"));
  };
  const auto says = [&](const std::string& op, const std::string& what) {
    INFO(op << ": " << said(op));
    CHECK(said(op).find(what) != std::string::npos);
  };
  says("conv2d", "'conv'");
  says("torch.nn.functional.conv2d", "dilation");
  says("aten.mm.default", "'matmul'");
  says("chunk", "'split'");
  says("scaled_dot_product_attention", "'attention'");
  says("reduce_sum", "'sum'");
  says("ReduceSum", "keepdim");
  says("RMSNorm", "'rms_norm'");
  says("topk", "an order of elements is not computed here");
  says("dropout", "random");
  for (const spec::OtherName& o : spec::other_names()) {
    INFO(o.name);
    CHECK((*o.op == '\0' || spec::find_operator(o.op) != nullptr));
    CHECK(spec::find_operator(o.name) == nullptr);   // an operator here is never another there
  }
  says("matmull", "did you mean 'matmul'?");
}

// Every operator, evaluated in doubles, against loops written here without the library.
#include <algorithm>
#include <limits>
#include "helpers.h"
#include "spec/operators/operators.h"

using namespace mirage;
using namespace mirage::spec_test;

namespace {
const double kInf = std::numeric_limits<double>::infinity();
In small() { return {{2, 3}, {-1.5, -0.25, 0, 0.5, 1, 3}, "float32"}; }
In positive() { return {{2, 3}, {0.25, 0.5, 1, 2, 4, 9}, "float32"}; }

template <class F> void check_unary(const std::string& op, const In& in, F f, const std::string& attrs = "") {
  INFO(op);
  std::vector<double> want;
  for (double x : in.data) want.push_back(f(x));
  check_close(run_op(op, {in}, attrs), in.dims, want);
}

template <class F> void check_binary(const std::string& op, F f, const std::string& dtype = "float32") {
  INFO(op);
  In a = random_in({2, 1, 3}, 1), b = random_in({4, 1}, 2);
  a.data[0] = b.data[1] = 1;   // so that equal finds something
  std::vector<double> want;
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j)
      for (int k = 0; k < 3; ++k) want.push_back(f(a.data[static_cast<size_t>(i * 3 + k)], b.data[static_cast<size_t>(j)]));
  check_close(run_op(op, {a, b}, "", dtype), {2, 4, 3}, want);
}
}  // namespace

TEST_CASE("elementwise operators") {
  check_unary("neg", small(), [](double x) { return -x; });
  check_unary("exp", small(), [](double x) { return std::exp(x); });
  check_unary("log", positive(), [](double x) { return std::log(x); });
  check_unary("sqrt", positive(), [](double x) { return std::sqrt(x); });
  check_unary("rsqrt", positive(), [](double x) { return 1 / std::sqrt(x); });
  check_unary("square", small(), [](double x) { return x * x; });
  check_unary("abs", small(), [](double x) { return std::fabs(x); });
  check_unary("log1p", positive(), [](double x) { return std::log1p(x); });
  check_unary("expm1", small(), [](double x) { return std::expm1(x); });
  check_unary("erf", small(), [](double x) { return std::erf(x); });
  check_unary("sin", small(), [](double x) { return std::sin(x); });
  check_unary("cos", small(), [](double x) { return std::cos(x); });
  check_unary("floor", small(), [](double x) { return std::floor(x); });
  check_unary("ceil", small(), [](double x) { return std::ceil(x); });
  check_unary("sign", small(), [](double x) { return (x > 0) - (x < 0); });
  check_close(run_op("round", {{{8}, {-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 7}, "float32"}}), {8}, {-2, -2, 0, 0, 2, 2, 0, 7});
  check_unary("sigmoid", small(), [](double x) { return 1 / (1 + std::exp(-x)); });
  check_unary("silu", small(), [](double x) { return x / (1 + std::exp(-x)); });
  check_unary("relu", small(), [](double x) { return x > 0 ? x : 0; });
  check_unary("tanh", small(), [](double x) { return std::tanh(x); });
  check_unary("gelu", small(), [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); });
  auto gelu_tanh = [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * std::pow(x, 3)))); };
  check_unary("gelu", small(), gelu_tanh, "\"approximate\": \"tanh\"");
  check_unary("clamp", small(), [](double x) { return std::min(std::max(x, -1.0), 0.75); }, "\"min\": -1, \"max\": 0.75");
  check_unary("clamp", small(), [](double x) { return std::max(x, -1.0); }, "\"min\": -1");
  check_unary("clamp", small(), [](double x) { return std::min(x, 0.75); }, "\"max\": 0.75, \"min\": null");
  check_close(run_op("clamp", {small(), {{3}, {0, -1, -2}, "float32"}, {{}, {0.5}, "float32"}}), {2, 3}, {0, -0.25, 0, 0.5, 0.5, 0.5});
  check_binary("add", [](double x, double y) { return x + y; });
  check_binary("sub", [](double x, double y) { return x - y; });
  check_binary("mul", [](double x, double y) { return x * y; });
  check_binary("div", [](double x, double y) { return x / y; });
  check_binary("maximum", [](double x, double y) { return x > y ? x : y; });
  check_binary("minimum", [](double x, double y) { return x < y ? x : y; });
  check_binary("equal", [](double x, double y) { return x == y; }, "bool");
  check_binary("less", [](double x, double y) { return x < y; }, "bool");
  check_binary("greater", [](double x, double y) { return x > y; }, "bool");
}

TEST_CASE("pow") {
  for (double e : {2.0, 1.0, 0.5, -0.5, -1.0, 3.0, -3.0, 7.0, 8.0, 9.0, 1.7}) {
    check_unary("pow", positive(), [&](double x) { return std::pow(x, e); }, "\"exponent\": " + std::to_string(e));
    Program p = must_parse(spec_text({positive()}, R"({"op": "pow", "inputs": ["x0", )" + std::to_string(e) + R"(], "output": "y"})"));
    bool general = false;
    for (const Node& n : p.graph.nodes()) general = general || n.op == Op{Map{MapFn::kPow}};
    CHECK(general == (e == 9.0 || e == 1.7));
  }
  In base = positive(), exponent{{3}, {0, 1, 2}, "float32"};
  check_close(run_op("pow", {base, exponent}), {2, 3}, {1, 0.5, 1, 1, 4, 81});
}

TEST_CASE("where, and bools in arithmetic") {
  In x = small();
  std::vector<double> want;
  for (double v : x.data) want.push_back(v < 0.25 ? v : -kInf);
  check_close(
      run({x}, R"({"op": "less", "inputs": ["x0", 0.25], "output": "c"}, {"op": "where", "inputs": ["c", "x0", "-inf"], "output": "y"})"),
      x.dims, want);
  In flags{{3}, {1, 0, 1}, "bool"};
  check_close(run_op("where", {flags, x, x}), x.dims, x.data);
  check_close(run_op("mul", {x, flags}), x.dims, {-1.5, 0, 0, 0.5, 0, 3});
  check_close(run_op("sum", {flags}), {}, {2});
  check_close(run_op("max", {flags}), {}, {1});
  check_close(run_op("mean", {flags}), {}, {2.0 / 3});
  check_close(run_op("matmul", {x, flags}), {2}, {-1.5, 3.5});
  check_close(run_op("concat", {flags, {{1}, {7}, "float32"}}), {4}, {1, 0, 1, 7});
  check_close(run_op("concat", {flags, flags}, "", "bool"), {6}, {1, 0, 1, 1, 0, 1});
}

TEST_CASE("reductions") {
  In x = random_in({2, 3, 4}, 3);
  auto at = [&](int i, int j, int k) { return x.data[static_cast<size_t>((i * 3 + j) * 4 + k)]; };
  double total = 0, largest = -kInf;
  for (double v : x.data) total += v, largest = std::max(largest, v);
  check_close(run_op("sum", {x}), {}, {total});
  check_close(run_op("mean", {x}), {}, {total / 24});
  check_close(run_op("max", {x}), {}, {largest});
  std::vector<double> s02, m1, x2;
  for (int j = 0; j < 3; ++j) {
    double s = 0;
    for (int i = 0; i < 2; ++i) for (int k = 0; k < 4; ++k) s += at(i, j, k);
    s02.push_back(s);
  }
  for (int i = 0; i < 2; ++i) for (int k = 0; k < 4; ++k) m1.push_back((at(i, 0, k) + at(i, 1, k) + at(i, 2, k)) / 3);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j) x2.push_back(std::max(std::max(at(i, j, 0), at(i, j, 1)), std::max(at(i, j, 2), at(i, j, 3))));
  check_close(run_op("sum", {x}, "\"axis\": [2, 0]"), {3}, s02);
  check_close(run_op("sum", {x}, "\"axis\": [0, -1], \"keepdim\": true"), {1, 3, 1}, s02);
  check_close(run_op("mean", {x}, "\"axis\": 1"), {2, 4}, m1);
  check_close(run_op("max", {x}, "\"axis\": -1, \"keepdim\": true"), {2, 3, 1}, x2);
  check_close(run_op("mean", {{{}, {5}, "float32"}}), {}, {5});
  check_close(run_op("sum", {{{3, 1}, {5, 6, 7}, "float32"}}, "\"axis\": 1"), {3}, {5, 6, 7});
}

TEST_CASE("softmax") {
  In x = random_in({3, 5}, 4, -50, 700);   // exp overflows unless the maximum is subtracted
  std::vector<double> rows(15), columns(15);
  for (int i = 0; i < 3; ++i) for (int j = 0; j < 5; ++j) {
    double r = 0, c = 0;
    for (int k = 0; k < 5; ++k) r += std::exp(x.data[static_cast<size_t>(i * 5 + k)] - x.data[static_cast<size_t>(i * 5 + j)]);
    for (int k = 0; k < 3; ++k) c += std::exp(x.data[static_cast<size_t>(k * 5 + j)] - x.data[static_cast<size_t>(i * 5 + j)]);
    rows[static_cast<size_t>(i * 5 + j)] = 1 / r;
    columns[static_cast<size_t>(i * 5 + j)] = 1 / c;
  }
  check_close(run_op("softmax", {x}), {3, 5}, rows);
  check_close(run_op("softmax", {x}, "\"axis\": 0"), {3, 5}, columns);
}

TEST_CASE("norms over the last axis") {
  In x = random_in({3, 4}, 5), gain = random_in({4}, 6), bias = random_in({4}, 7);
  std::vector<double> rms, rms_gain, layer, layer_both, l2;
  for (size_t i = 0; i < 3; ++i) {
    const double* r = &x.data[i * 4];
    double mean = (r[0] + r[1] + r[2] + r[3]) / 4, squares = r[0] * r[0] + r[1] * r[1] + r[2] * r[2] + r[3] * r[3],
           variance = squares / 4 - mean * mean;
    for (size_t j = 0; j < 4; ++j) {
      rms.push_back(r[j] / std::sqrt(squares / 4 + 1e-6));
      rms_gain.push_back(r[j] / std::sqrt(squares / 4 + 0.5) * gain.data[j]);
      layer.push_back((r[j] - mean) / std::sqrt(variance + 1e-5));
      layer_both.push_back(layer.back() * gain.data[j] + bias.data[j]);
      l2.push_back(r[j] / std::sqrt(squares));
    }
  }
  check_close(run_op("rms_norm", {x}), {3, 4}, rms);
  check_close(run_op("rms_norm", {x, gain}, "\"eps\": 0.5, \"axis\": [-1]"), {3, 4}, rms_gain);
  check_close(run_op("layer_norm", {x}), {3, 4}, layer, 1e-9);
  check_close(run_op("layer_norm", {x, gain, bias}), {3, 4}, layer_both, 1e-9);
  check_close(run_op("l2_norm", {x}), {3, 4}, l2);
  In zero{{1, 2}, {0, 0}, "float32"};
  check_close(run_op("l2_norm", {zero}), {1, 2}, {0, 0});
  check_close(run_op("l2_norm", {{{1, 2}, {3, 4}, "float32"}}, "\"eps\": 10"), {1, 2}, {0.3, 0.4});
}

TEST_CASE("norms over other axes place gain and bias on those axes") {
  In x = random_in({2, 3, 4}, 8), gain = random_in({3}, 9), both = random_in({2, 4}, 10);
  std::vector<double> over1(24), over02(24);
  auto at = [&](size_t i, size_t j, size_t k) -> double& { return x.data[(i * 3 + j) * 4 + k]; };
  for (size_t i = 0; i < 2; ++i) for (size_t j = 0; j < 3; ++j) for (size_t k = 0; k < 4; ++k) {
    double s = 0, t = 0;
    for (size_t b = 0; b < 3; ++b) s += at(i, b, k) * at(i, b, k);
    for (size_t a = 0; a < 2; ++a) for (size_t c = 0; c < 4; ++c) t += at(a, j, c) * at(a, j, c);
    over1[(i * 3 + j) * 4 + k] = at(i, j, k) / std::sqrt(s / 3 + 1e-6) * gain.data[j];
    over02[(i * 3 + j) * 4 + k] = at(i, j, k) / std::sqrt(t / 8 + 1e-6) * both.data[i * 4 + k];
  }
  check_close(run_op("rms_norm", {x, gain}, "\"axis\": 1"), {2, 3, 4}, over1);
  check_close(run_op("rms_norm", {x, both}, "\"axis\": [0, 2]"), {2, 3, 4}, over02);
}

TEST_CASE("group and batch norm") {
  In x = random_in({2, 6, 5}, 11), gain = random_in({6}, 12), bias = random_in({6}, 13), mean = random_in({6}, 14),
     variance = random_in({6}, 15, 0.5, 2);
  std::vector<double> group(60), batch(60), plain(60);
  for (size_t n = 0; n < 2; ++n) for (size_t c = 0; c < 6; ++c) for (size_t t = 0; t < 5; ++t) {
    size_t first = c / 3 * 3;
    double m = 0, v = 0;
    for (size_t d = first; d < first + 3; ++d) for (size_t u = 0; u < 5; ++u) m += x.data[(n * 6 + d) * 5 + u] / 15;
    for (size_t d = first; d < first + 3; ++d) for (size_t u = 0; u < 5; ++u) v += std::pow(x.data[(n * 6 + d) * 5 + u] - m, 2) / 15;
    double value = x.data[(n * 6 + c) * 5 + t];
    group[(n * 6 + c) * 5 + t] = (value - m) / std::sqrt(v + 1e-5) * gain.data[c] + bias.data[c];
    plain[(n * 6 + c) * 5 + t] = (value - mean.data[c]) / std::sqrt(variance.data[c] + 1e-5);
    batch[(n * 6 + c) * 5 + t] = plain[(n * 6 + c) * 5 + t] * gain.data[c] + bias.data[c];
  }
  check_close(run_op("group_norm", {x, gain, bias}, "\"groups\": 2"), {2, 6, 5}, group);
  const auto as = [](In in, Dims d) { in.dims = d; return in; };
  // gains as PyTorch and as NumPy would have them
  check_close(run_op("group_norm", {as(x, {2, 6, 1, 5}), as(gain, {1, 6, 1, 1}), bias}, "\"groups\": 2"), {2, 6, 1, 5}, group);
  // as many dimensions as there may be
  check_close(run_op("group_norm", {as(x, {2, 6, 5, 1, 1, 1, 1, 1}), gain, as(bias, {1, 6, 1, 1, 1, 1, 1, 1})}, "\"groups\": 2"),
              {2, 6, 5, 1, 1, 1, 1, 1}, group);
  const In one{{}, {2.5}, "float32"}, all = random_in({2, 6, 5}, 18);
  std::vector<double> scaled = group, moved = group;
  for (size_t n = 0; n < 2; ++n) for (size_t c = 0; c < 6; ++c) for (size_t t = 0; t < 5; ++t) {
    const size_t i = (n * 6 + c) * 5 + t;
    const double value = (group[i] - bias.data[c]) / gain.data[c];
    scaled[i] = value * 2.5 + bias.data[c];
    moved[i] = value * gain.data[c] + all.data[i];
  }
  check_close(run_op("group_norm", {x, one, bias}, "\"groups\": 2"), {2, 6, 5}, scaled);
  check_close(run_op("group_norm", {x, gain, all}, "\"groups\": 2"), {2, 6, 5}, moved);
  check_close(run_op("batch_norm", {x, mean, variance, gain, bias}), {2, 6, 5}, batch);
  check_close(run_op("batch_norm", {x, mean, variance}), {2, 6, 5}, plain);
}

TEST_CASE("matmul with ranks and batches as in NumPy") {
  auto product = [](const In& a, size_t ao, const In& b, size_t bo, size_t m, size_t k, size_t n, std::vector<double>& out) {
    for (size_t i = 0; i < m; ++i) for (size_t j = 0; j < n; ++j) {
      double s = 0;
      for (size_t l = 0; l < k; ++l) s += a.data[ao + i * k + l] * b.data[bo + l * n + j];
      out.push_back(s);
    }
  };
  In a = random_in({2, 3}, 20), b = random_in({3, 4}, 21), u = random_in({3}, 22), v = random_in({3}, 23),
     many = random_in({5, 1, 2, 3}, 24), few = random_in({3, 3, 4}, 25);
  std::vector<double> ab, ub, au, uv, broadcast, batch_vector;
  product(a, 0, b, 0, 2, 3, 4, ab);
  product(u, 0, b, 0, 1, 3, 4, ub);
  product(a, 0, u, 0, 2, 3, 1, au);
  product(u, 0, v, 0, 1, 3, 1, uv);
  for (size_t i = 0; i < 5; ++i) for (size_t j = 0; j < 3; ++j) product(many, i * 6, few, j * 12, 2, 3, 4, broadcast);
  for (size_t i = 0; i < 5; ++i) product(many, i * 6, u, 0, 2, 3, 1, batch_vector);
  check_close(run_op("matmul", {a, b}), {2, 4}, ab);
  check_close(run_op("matmul", {u, b}), {4}, ub);
  check_close(run_op("matmul", {a, u}), {2}, au);
  check_close(run_op("matmul", {u, v}), {}, uv);
  check_close(run_op("matmul", {many, few}), {5, 3, 2, 4}, broadcast);
  check_close(run_op("matmul", {many, u}), {5, 1, 2}, batch_vector);
  In at{{3, 2}, {}, "float32"}, bt{{4, 3}, {}, "float32"};
  for (size_t i = 0; i < 3; ++i) for (size_t j = 0; j < 2; ++j) at.data.push_back(a.data[j * 3 + i]);
  for (size_t i = 0; i < 4; ++i) for (size_t j = 0; j < 3; ++j) bt.data.push_back(b.data[j * 4 + i]);
  check_close(run_op("matmul", {at, bt}, "\"transpose_a\": true, \"transpose_b\": true"), {2, 4}, ab);
}

TEST_CASE("einsum against a loop over all letters") {
  struct Case { const char* equation; std::vector<Dims> dims; };
  const std::vector<Case> cases = {{"ik,kj->ij", {{2, 3}, {3, 4}}}, {"ik,kj->ji", {{2, 3}, {3, 4}}}, {"ik,jk->ij", {{2, 3}, {4, 3}}},
                                   {"bik,bkj->bij", {{2, 3, 4}, {2, 4, 5}}}, {"ibk,kjb->bij", {{3, 2, 4}, {4, 5, 2}}},
                                   {"i,i->", {{5}, {5}}}, {"i,j->ij", {{2}, {3}}}, {"i,j->ji", {{2}, {3}}}, {"ij->ji", {{2, 3}}},
                                   {"ijk->j", {{2, 3, 4}}}, {"ij->", {{2, 3}}}, {"abc,cd", {{2, 3, 4}, {4, 5}}},
                                   {"abij,abjk->abik", {{2, 2, 3, 2}, {2, 2, 2, 3}}}, {"abcd,cdef->abef", {{2, 3, 2, 2}, {2, 2, 3, 2}}},
                                   {"abk,ckz->abc", {{2, 3, 4}, {5, 4, 2}}}, {"bhqd,bkhd->bhqk", {{2, 2, 3, 4}, {2, 5, 2, 4}}},
                                   {"ba,ca", {{2, 3}, {4, 3}}}, {"ij,ij->ij", {{2, 3}, {2, 3}}}, {"ij,ij->i", {{2, 3}, {2, 3}}},
                                   {"ij,j->ij", {{2, 3}, {3}}}, {"k,kj->j", {{3}, {3, 2}}}, {" i k , k j -> i j ", {{2, 3}, {3, 4}}},
                                   {",i->i", {{}, {3}}}, {"ab,cd->", {{2, 3}, {2, 2}}}, {"Aa,aB->AB", {{2, 3}, {3, 2}}}};
  for (const Case& c : cases) {
    INFO(c.equation);
    std::string eq;
    for (const char* p = c.equation; *p; ++p) if (*p != ' ') eq += *p;
    size_t arrow = eq.find("->");
    std::string left = eq.substr(0, arrow), out;
    std::vector<std::string> sides{""};
    for (char ch : left) { if (ch == ',') sides.emplace_back(); else sides.back() += ch; }
    if (arrow != std::string::npos) out = eq.substr(arrow + 2);
    else for (char ch = 'A'; ch <= 'z'; ++ch) if (std::count(left.begin(), left.end(), ch) == 1) out += ch;
    std::string letters;
    std::vector<int64_t> extents(256);
    std::vector<In> ins;
    for (size_t i = 0; i < sides.size(); ++i) {
      ins.push_back(random_in(c.dims[i], 40 + i));
      for (size_t k = 0; k < sides[i].size(); ++k) {
        if (letters.find(sides[i][k]) == std::string::npos) letters += sides[i][k];
        extents[static_cast<size_t>(sides[i][k])] = c.dims[i][static_cast<int>(k)];
      }
    }
    Dims dims;
    for (char ch : out) dims.push_back(extents[static_cast<size_t>(ch)]);
    std::vector<double> want(static_cast<size_t>(dims.elements()), 0.0);
    std::vector<int64_t> at(256);
    int64_t total = 1;
    for (char ch : letters) total *= extents[static_cast<size_t>(ch)];
    for (int64_t n = 0; n < total; ++n) {
      int64_t rest = n;
      for (char ch : letters) {
        at[static_cast<size_t>(ch)] = rest % extents[static_cast<size_t>(ch)];
        rest /= extents[static_cast<size_t>(ch)];
      }
      auto offset = [&](const std::string& s) {
        int64_t o = 0;
        for (char ch : s) o = o * extents[static_cast<size_t>(ch)] + at[static_cast<size_t>(ch)];
        return static_cast<size_t>(o);
      };
      double v = 1;
      for (size_t i = 0; i < sides.size(); ++i) v *= ins[i].data[offset(sides[i])];
      want[offset(out)] += v;
    }
    check_close(run_op("einsum", ins, "\"equation\": \"" + std::string(c.equation) + "\""), dims, want);
  }
}

TEST_CASE("data movement") {
  In x{{2, 3}, {0, 1, 2, 3, 4, 5}, "float32"};
  check_close(run_op("transpose", {x}), {3, 2}, {0, 3, 1, 4, 2, 5});
  check_close(run_op("transpose", {x}, "\"perm\": [-1, 0]"), {3, 2}, {0, 3, 1, 4, 2, 5});
  check_close(run_op("transpose", {random_in({2, 3, 4}, 1)}, "\"perm\": [0, 1, 2]"), {2, 3, 4}, random_in({2, 3, 4}, 1).data);
  check_close(run_op("reshape", {x}, "\"shape\": [3, -1]"), {3, 2}, x.data);
  check_close(run_op("reshape", {x}, "\"shape\": [1, \"2 * 3\", 1]"), {1, 6, 1}, x.data);
  check_close(run_op("concat", {x, x, x}), {2, 9}, {0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5, 3, 4, 5});
  check_close(run_op("concat", {x, {{1, 3}, {7, 8, 9}, "float32"}}, "\"axis\": 0"), {3, 3}, {0, 1, 2, 3, 4, 5, 7, 8, 9});
  check_close(run_op("repeat", {x}, "\"axis\": 1, \"count\": 2"), {2, 6}, {0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5});
  In line{{6}, {0, 1, 2, 3, 4, 5}, "float32"};
  check_close(run_op("slice", {line}, "\"axis\": 0, \"start\": 1, \"step\": 2"), {3}, {1, 3, 5});
  check_close(run_op("slice", {line}, "\"axis\": -1, \"start\": -4, \"stop\": -1"), {3}, {2, 3, 4});
  check_close(run_op("slice", {line}, "\"axis\": 0, \"start\": 1, \"stop\": 5, \"step\": 3"), {2}, {1, 4});
  check_close(run_op("slice", {line}, "\"axis\": 0, \"start\": -100, \"stop\": 100, \"step\": 9223372036854775807"), {1}, {0});
  check_close(run_op("slice", {x}, "\"axis\": 1, \"start\": 2"), {2, 1}, {2, 5});
}

TEST_CASE("causal mask") {
  In x = random_in({2, 3, 4}, 30);
  for (int offset : {0, 1, -1}) {
    std::vector<double> want;
    for (int b = 0; b < 2; ++b)
      for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 4; ++j) want.push_back(j > i + offset ? -kInf : x.data[static_cast<size_t>((b * 3 + i) * 4 + j)]);
    check_close(run_op("causal_mask", {x}, offset ? "\"offset\": " + std::to_string(offset) : ""), {2, 3, 4}, want);
  }
}

TEST_CASE("cast rounds, and vanishes where nothing is rounded") {
  In x{{3}, {1.0 / 3, 65520, 1e-9}, "float32"};
  check_close(run_op("cast", {x}, "\"dtype\": \"float16\""), {3}, {0.333251953125, kInf, 0}, 0);
  check_close(run_op("cast", {x}, "\"dtype\": \"bf16\""), {3}, {0.333984375, 65536, 137 * 0x1p-37}, 0);
  check_close(run_op("cast", {x}, "\"dtype\": \"bool\"", "bool"), {3}, {1, 1, 1});
  check_close(run_op("cast", {{{2}, {1, 0}, "bool"}}, "\"dtype\": \"f16\""), {2}, {1, 0});
  auto casts = [](const std::string& in, const std::string& middle, const std::string& to) {
    Program p = must_parse(spec_text({{{2, 2}, {}, in}}, R"({"op": "transpose", "inputs": ["x0"], "output": "t"}, )" + middle +
                                                             R"({"op": "cast", "inputs": ["t"], "output": "c", "attrs": {"dtype": ")" + to +
                                                             R"("}}, {"op": "neg", "inputs": ["c"], "output": "y"})"));
    int n = 0;
    for (const Node& node : p.graph.nodes())
      n += node.op == Op{Map{MapFn::kCastF16}} || node.op == Op{Map{MapFn::kCastBF16}} || node.op == Op{Map{MapFn::kCastF32}};
    return n;
  };
  CHECK(casts("float16", "", "float32") == 0);
  CHECK(casts("float16", "", "float16") == 0);
  CHECK(casts("float16", "", "bfloat16") == 1);
  CHECK(casts("bfloat16", "", "float16") == 1);
  CHECK(casts("float32", "", "float16") == 1);
  CHECK(casts("float32", "", "float32") == 0);
  Program rounded = must_parse(spec_text(
      {{{2}, {}, "float16"}},
      R"({"op": "exp", "inputs": ["x0"], "output": "e"}, {"op": "cast", "inputs": ["e"], "output": "y", "attrs": {"dtype": "float32"}})"));
  CHECK(rounded.graph.num_nodes() == 4);   // input, exp, cast, output: a real number does round
}

TEST_CASE("every operator of the table is tested here") {
  // The names above and of composites.cc, written down once more: a new line in operators.def without a test fails here.
  const std::vector<std::string> tested{
    "matmul", "linear", "einsum", "add", "sub", "mul", "div", "pow", "reciprocal", "neg", "exp", "log", "sqrt", "rsqrt", "square",
    "log1p", "expm1", "erf", "sin", "cos", "floor", "ceil", "round", "sign", "abs", "sigmoid", "silu", "gelu", "relu", "tanh",
    "leaky_relu", "elu", "softplus", "hardtanh", "hardswish", "mish", "swiglu", "geglu", "clamp", "maximum", "minimum", "equal", "less",
    "greater", "not_equal", "less_equal", "greater_equal", "and", "or", "not", "where", "sum", "mean", "max", "min", "prod", "var", "std",
    "logsumexp", "cumsum", "argmax", "argmin", "embedding", "index_select", "gather", "softmax", "log_softmax", "attention", "rope",
    "rms_norm", "layer_norm", "group_norm", "batch_norm", "conv", "max_pool", "avg_pool", "l2_norm", "transpose", "reshape", "unsqueeze",
    "squeeze", "expand", "repeat", "concat", "stack", "split", "pad", "flip", "slice", "cast", "causal_mask", "iota", "extent"};
  CHECK(spec::operator_names() == tested);
}

TEST_CASE("iota and extent") {
  In x{{2, 3}, {1, 1, 1, 1, 1, 1}, "float32"};
  check_close(
      run({x},
          R"({"op": "iota", "inputs": [], "output": "i", "attrs": {"axis": 1, "shape": [2, 3]}}, )"
          R"({"op": "add", "inputs": ["i", "x0"], "output": "y"})"),
      {2, 3}, {1, 2, 3, 1, 2, 3});
  check_close(
      run({x},
          R"({"op": "iota", "output": "i", "attrs": {"axis": -2, "shape": [2, 1]}}, {"op": "add", "inputs": ["i", "x0"], "output": "y"})"),
      {2, 3}, {1, 1, 1, 2, 2, 2});
  check_close(
      run({x},
          R"({"op": "extent", "output": "n", "attrs": {"of": [[0, 0], [0, 1]]}}, {"op": "mul", "inputs": ["n", "x0"], "output": "y"})"),
      {2, 3}, {6, 6, 6, 6, 6, 6});
}

// Random specs whose values spread over more orders of magnitude than their types have: logits of long products, probabilities of these,
// quotients and logarithms of probabilities. Right kernels of such programs make 0/0 where fp64 does not; what is right must not be refused
// for that, and what is wrong must be found all the same.
#include "mirage/support/hash.h"
#include "random/generator.h"

namespace mirage::test {

namespace {

class Spread {
 public:
  explicit Spread(uint64_t seed) : rng_(hash_combine(seed, 0x537072)) {
    spec_.name = fmt::format("s{}", seed);
    dtype_ = pick({"float32", "bfloat16", "float16", "float32"});
    rows_ = 1 + static_cast<int64_t>(below(24)), columns_ = 4 + static_cast<int64_t>(below(40));
    spec_.rtol = 3e-2;
  }
  RandomSpec take() {
    std::string v = logits();
    for (uint64_t i = 1 + below(4); i > 0; i--) v = step(v);
    spec_.outputs.push_back({v, below(3) == 0 ? "float32" : dtype_, {}, {}});
    return std::move(spec_);
  }

 private:
  uint64_t below(uint64_t n) { return rng_.below(n); }
  std::string pick(std::initializer_list<const char*> v) { return *(v.begin() + below(v.size())); }
  std::string input(std::vector<int64_t> dims, const std::string& dtype, const std::string& more = "") {
    spec_.inputs.push_back({fmt::format("x{}", spec_.inputs.size()), std::move(dims), dtype, more});
    return spec_.inputs.back().name;
  }
  std::string node(const std::string& op, std::vector<std::string> operands, const std::string& attrs = "") {
    spec_.nodes.push_back({op, attrs, fmt::format("n{}", spec_.nodes.size()), std::move(operands)});
    return spec_.nodes.back().output;
  }
  std::string reduced(const std::string& op, const std::string& v) { return node(op, {v}, "\"axis\": -1, \"keepdim\": true"); }
  std::string tensor() { return input({rows_, columns_}, dtype_); }

  /// Deviations from 1 to 100 and more.
  std::string logits() {
    switch (below(5)) {
      case 0: return node("mul", {tensor(), pick({"30", "60", "8", "100"})});
      case 1: {   // a Gaussian basis
        const std::string d = node("sub", {tensor(), input({columns_}, dtype_)});
        return node("mul", {node("neg", {node("square", {d})}), pick({"1.75", "10", "25"})});
      }
      default: {
        const int64_t depth = 64 << below(6);
        const std::string p = node("matmul", {input({rows_, depth}, dtype_), input({depth, columns_}, dtype_)});
        return below(3) == 0 ? node("mul", {p, pick({"0.125", "0.5", "2"})}) : p;
      }
    }
  }
  std::string probabilities(const std::string& l) {
    switch (below(4)) {
      case 0: return node("exp", {node("sub", {l, reduced("max", l)})});
      case 1: return node("sigmoid", {l});
      default: return node("softmax", {l}, "\"axis\": -1");
    }
  }
  std::string step(const std::string& l) {
    const std::string p = probabilities(l);
    switch (below(12)) {
      case 0: {   // the chosen ones renormalised
        const std::string t = node("where", {input({rows_, columns_}, "bool"), p, "0"});
        return node("div", {t, reduced("sum", t)});
      }
      case 1: return node("div", {p, probabilities(logits())});
      case 2: return node("log", {p});
      case 3: return reduced_entropy(p);
      case 4: return node("mul", {p, probabilities(logits())});
      case 5: return node("l2_norm", {p}, "\"axis\": -1");
      case 6: return node(pick({"sqrt", "square", "rsqrt"}), {p});
      case 7: return node("pow", {p, pick({"0.5", "2", "0.25", "-1"})});
      case 8: {   // weights of a mixture
        const std::string w = node("mul", {p, tensor()});
        return node("div", {w, node("add", {reduced("sum", node("abs", {w})), pick({"0", "1e-6", "1e-12"})})});
      }
      case 9: {
        const std::string d = node("mul", {node("square", {tensor()}), p});
        return node("div", {d, reduced("max", d)});
      }
      case 10: return node("add", {node("log", {reduced("sum", node("exp", {node("sub", {l, reduced("max", l)})}))}), p});
      default: return p;
    }
  }
  std::string reduced_entropy(const std::string& p) { return node("add", {p, reduced("sum", node("mul", {p, node("log", {p})}))}); }

  Rng rng_;
  RandomSpec spec_;
  std::string dtype_;
  int64_t rows_ = 0, columns_ = 0;
};

}  // namespace

RandomSpec spread_spec(uint64_t seed) { return Spread(seed).take(); }

}  // namespace mirage::test

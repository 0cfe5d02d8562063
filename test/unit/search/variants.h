// Seeded variants of the five programs that must become one kernel (issue 2): operands swapped, nodes renamed and permuted, a bias, a gain,
// a residual or a third weight added, other sizes, bfloat16. Specs as JSON text, so that they take the same way as a user's.
#pragma once
#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>
#include "mirage/spec/spec.h"
#include "mirage/support/hash.h"

namespace variants {

struct Spec {
  struct Tensor { std::string name; std::vector<int64_t> shape; };
  struct Node { std::string op; std::vector<std::string> inputs; std::string output, attrs; };
  std::string name, dtype = "float16";
  std::vector<Tensor> inputs;
  std::vector<Node> nodes;
  std::vector<std::pair<std::string, std::vector<int64_t>>> outputs;
  std::vector<std::string> changes;   ///< what the variant did, for messages

  std::string add_input(const std::string& n, std::vector<int64_t> shape) { inputs.push_back({n, std::move(shape)}); return n; }
  std::string add(const std::string& op, std::vector<std::string> in, const std::string& attrs = "") {
    nodes.push_back({op, std::move(in), "t" + std::to_string(nodes.size()), attrs});
    return nodes.back().output;
  }
  std::string json() const {
    std::ostringstream s;
    auto shape = [](const std::vector<int64_t>& d) {
      std::string r = "[";
      for (size_t i = 0; i < d.size(); i++) r += (i ? "," : "") + std::to_string(d[i]);
      return r + "]";
    };
    s << "{\"version\": \"1.0\", \"name\": \"" << name << "\", \"inputs\": {";
    for (size_t i = 0; i < inputs.size(); i++)
      s << (i ? ", " : "") << '"' << inputs[i].name << "\": {\"shape\": " << shape(inputs[i].shape) << ", \"dtype\": \"" << dtype << "\"}";
    s << "}, \"outputs\": {";
    for (size_t i = 0; i < outputs.size(); i++)
      s << (i ? ", " : "") << '"' << outputs[i].first << "\": {\"shape\": " << shape(outputs[i].second) << ", \"dtype\": \"" << dtype
        << "\"}";
    s << "}, \"nodes\": [";
    for (size_t i = 0; i < nodes.size(); i++) {
      const Node& n = nodes[i];
      s << (i ? ", " : "") << "{\"op\": \"" << n.op << "\", \"inputs\": [";
      for (size_t k = 0; k < n.inputs.size(); k++) {
        const bool number = n.inputs[k].find_first_not_of("0123456789.e-+") == std::string::npos;
        s << (k ? ", " : "") << (number ? "" : "\"") << n.inputs[k] << (number ? "" : "\"");
      }
      s << "], \"output\": \"" << n.output << "\"";
      if (!n.attrs.empty()) s << ", \"attrs\": {" << n.attrs << "}";
      s << "}";
    }
    s << "]}";
    return s.str();
  }
};

/// Names of its own for every tensor that is not in the ABI, operands of commutative operators swapped at random, nodes in random order.
inline void scramble(Spec& s, mirage::Rng& rng) {
  auto rename = [&](std::string& n) {
    for (const auto& o : s.outputs) if (o.first == n) return;
    for (const Spec::Node& node : s.nodes)
      if (node.output == n) {
        n = "q" + std::to_string(mirage::hash_text(n) % 9973) + "_" + n;
        return;
      }
  };
  const Spec before = s;
  for (Spec::Node& n : s.nodes) {
    for (std::string& in : n.inputs) for (const Spec::Node& d : before.nodes) if (d.output == in) { rename(in); break; }
    if ((n.op == "add" || n.op == "mul") && rng.next() & 1) std::swap(n.inputs[0], n.inputs[1]);
  }
  std::vector<std::string> renamed;
  for (const Spec::Node& d : before.nodes) {
    std::string n = d.output;
    bool is_output = false;
    for (const auto& o : s.outputs) is_output |= o.first == n;
    renamed.push_back(is_output ? n : "q" + std::to_string(mirage::hash_text(n) % 9973) + "_" + n);
  }
  for (size_t i = 0; i < s.nodes.size(); i++) s.nodes[i].output = renamed[i];
  for (size_t i = s.nodes.size(); i > 1; i--) std::swap(s.nodes[i - 1], s.nodes[rng.below(i)]);
  for (size_t i = s.inputs.size(); i > 1; i--) std::swap(s.inputs[i - 1], s.inputs[rng.below(i)]);
}

/// rms_norm as one operator or spelled out, in one of three ways.
inline std::string rms(Spec& s, const std::string& x, const std::string& gain, mirage::Rng& rng) {
  std::string y;
  switch (rng.below(4)) {
    case 0:
      return s.add("rms_norm", gain.empty() ? std::vector<std::string>{x} : std::vector<std::string>{x, gain},
                   "\"axis\": -1, \"eps\": 1e-5");
    case 1: {
      const std::string m = s.add("mean", {s.add("mul", {x, x})}, "\"axis\": -1, \"keepdim\": true");
      y = s.add("div", {x, s.add("sqrt", {s.add("add", {m, "1e-6"})})});
      break;
    }
    case 2: {
      const std::string m = s.add("mean", {s.add("square", {x})}, "\"axis\": -1, \"keepdim\": true");
      y = s.add("mul", {x, s.add("rsqrt", {s.add("add", {m, "1e-6"})})});
      break;
    }
    default: y = s.add("rms_norm", {x}, "\"axis\": -1, \"eps\": 0.0");
  }
  return gain.empty() ? y : s.add("mul", {y, gain});
}

struct Choice {
  mirage::Rng& rng;
  Spec& s;
  bool operator()(const char* what, uint64_t one_in = 3) {
    const bool y = rng.below(one_in) == 0;
    if (y) s.changes.push_back(what);
    return y;
  }
};

inline Spec make(const std::string& program, uint64_t seed) {
  using V = std::vector<int64_t>;
  mirage::Rng rng(mirage::hash_text(program, seed));
  Spec s;
  s.name = program;
  Choice with{rng, s};
  if (with("bfloat16")) s.dtype = "bfloat16";
  const bool sizes = with("other sizes", 2);
  auto size = [&](int64_t usual) { return sizes ? V{usual, usual / 2 * 3, usual * 2, usual - usual / 8}[rng.below(4)] : usual; };
  std::string y;
  V shape;
  if (program == "rms_norm_linear") {
    const int64_t m = size(16), k = size(4096), n = size(6144);
    const std::string x = s.add_input("x", {m, k}), w = s.add_input("w", {k, n});
    const std::string norm = rms(s, x, with("gain") ? s.add_input("g", {k}) : "", rng);
    y = s.add("matmul", {norm, w});
    if (with("third weight", 4)) { y = s.add("mul", {y, s.add("matmul", {norm, s.add_input("w3", {k, n})})}); }
    shape = {m, n};
  } else if (program == "gated_mlp") {
    const int64_t m = size(8), k = size(4096), n = size(4096);
    std::string x = s.add_input("x", {m, k});
    const std::string w1 = s.add_input("w1", {k, n}), w2 = s.add_input("w2", {k, n});
    if (with("gain", 4)) x = s.add("mul", {x, s.add_input("g", {k})});
    const std::string gate = s.add("silu", {s.add("matmul", {x, w1})});
    y = s.add("mul", {gate, s.add("matmul", {x, w2})});
    if (with("third weight", 4)) y = s.add("add", {y, s.add("matmul", {x, s.add_input("w3", {k, n})})});
    shape = {m, n};
  } else if (program == "lora" || program == "lora_4k") {
    const int64_t m = size(program == "lora" ? 16 : 8), k = size(program == "lora" ? 256 : 4096), n = size(4096), r = size(16);
    const std::string x = s.add_input("x", {m, k}), w = s.add_input("w", {k, n}), a = s.add_input("a", {k, r}),
                      b = s.add_input("b", {r, n});
    std::string down = s.add("matmul", {x, a});
    if (with("gain", 4)) down = s.add("mul", {down, s.add_input("g", {r})});
    std::string up = s.add("matmul", {down, b});
    if (with("scale", 4)) up = s.add("mul", {up, "0.25"});
    y = s.add("add", {s.add("matmul", {x, w}), up});
    if (with("third weight", 4)) y = s.add("add", {y, s.add("matmul", {x, s.add_input("w3", {k, n})})});
    if (k == n && with("residual x", 2)) y = s.add("add", {x, y});
    shape = {m, n};
  } else {
    const int64_t m = size(8), d = size(4096);
    const std::string x = s.add_input("x", {m, d}), h = s.add_input("h", {m, d}),
                      alpha = s.add_input("alpha", with("row of alpha", 4) ? V{d} : V{m, d});
    const std::string hn = rms(s, h, with("gain") ? s.add_input("g", {d}) : "", rng);
    const std::string step = s.add("mul", {alpha, s.add(with("difference", 4) ? "sub" : "add", {hn, x})});
    std::string z = s.add("add", {x, step});
    if (with("third weight", 4)) z = s.add("mul", {z, s.add_input("w3", {d})});
    y = rms(s, z, with("second gain", 4) ? s.add_input("g2", {d}) : "", rng);
    shape = {m, d};
  }
  if (program != "lora_4k" && with("residual of the first input", 4) && s.inputs[0].shape == shape) y = s.add("add", {s.inputs[0].name, y});
  if (with("bias")) y = s.add("add", {y, s.add_input("bias", {shape[1]})});
  if (with("residual")) y = s.add("add", {y, s.add_input("res", shape)});
  s.outputs.push_back({y, shape});
  scramble(s, rng);
  return s;
}

inline const std::vector<std::string>& programs() {
  static const std::vector<std::string> p = {"rms_norm_linear", "gated_mlp", "lora", "lora_4k", "n_trans"};
  return p;
}

}  // namespace variants

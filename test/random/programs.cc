// Random specs as people write them: attention, gated layers, adapters, few rows through long weights (generator.h). Operators drawn one by
// one hardly ever meet in these forms.
#include "random/generator.h"

namespace mirage::test {

/// softmax(Q K^T) V with or without heads, a mask, a scale.
void Generator::attention(bool large) {
  const int64_t d = pick(large ? Extents{64, 128} : Extents{16, 32, 64, 24, 128}),
                m = pick(large ? Extents{1, 8, 16, 64, 33} : Extents{1, 2, 7, 8, 16, 33, 64}),
                n = pick(large ? Extents{128, 256, 192} : Extents{16, 64, 96, 100, 33, 128});
  const int64_t v = one_in(large ? 6 : 3) ? any_extent() : d;
  Extents batch;
  for (uint64_t i = below(3); i > 0; i--) batch.push_back(pick(Extents{1, 2, 3}));
  const auto with = [&](Extents tail) { Extents all = batch; all.insert(all.end(), tail.begin(), tail.end()); return all; };
  const bool t = one_in(2);
  const Value q = input(with({m, d})), k = input(with(t ? Extents{n, d} : Extents{d, n}));
  auto s = node("matmul", {q.name, k.name}, t ? "\"transpose_b\": true" : "");
  if (!s) return;
  if (!one_in(4)) s = node("mul", {s->name, pick({"0.125", "0.25", "0.0625"})});
  if (s && one_in(3)) s = node("causal_mask", {s->name}, fmt::format("\"offset\": {}", n - m));
  else if (s && one_in(3)) s = node("add", {s->name, input(one_in(2) ? Extents{n} : Extents{m, n}).name});
  if (s) s = node("softmax", {s->name});
  if (s) node("matmul", {s->name, one_in(5) && !t && v == d ? k.name : input(with({n, v}), one_in(2) ? "small" : "").name}, "");
}

/// act(X W1) * (X W2), with a norm before it at times.
void Generator::gated() {
  Value x = any(2);
  if (one_in(2)) if (auto y = node(pick({"rms_norm", "layer_norm"}), {x.name})) x = *y;
  const int64_t k = x.dims.back(), n = any_extent();
  const auto a = node("matmul", {x.name, input({k, n}, "small").name}), b = node("matmul", {x.name, input({k, n}, "small").name});
  if (!a || !b) return;
  if (auto s = node(pick({"silu", "gelu", "relu", "sigmoid"}), {a->name})) node(pick({"mul", "add"}), {s->name, b->name});
}

/// X W + (X A) B, a bias at times.
void Generator::adapters() {
  const Value x = any(2);
  const int64_t k = x.dims.back(), n = any_extent(), r = pick(Extents{1, 4, 8, 16});
  const auto w = node("matmul", {x.name, input({k, n}, "small").name}), a = node("matmul", {x.name, input({k, r}, "small").name});
  if (!w || !a) return;
  const auto b = node("matmul", {a->name, input({r, n}, "small").name});
  if (!b) return;
  if (auto s = node("add", {w->name, b->name}); s && one_in(3)) node("add", {s->name, input({n}).name});
}

/// A few rows through long aligned weights: what streams.
void Generator::few_rows() {
  if (dtype_ == "float32") return;
  const int64_t k = pick(Extents{256, 512, 384, 320}), n = pick(Extents{64, 128, 192, 72});
  Value x = input({pick(Extents{1, 2, 4, 7, 8, 16}), k});
  const Value first = x;
  if (one_in(2)) if (auto y = node(pick({"rms_norm", "layer_norm", "silu", "l2_norm"}), {x.name})) x = *y;
  const auto product = [&](const Value& of) {
    const bool t = one_in(3);
    return node("matmul", {of.name, input(t ? Extents{n, k} : Extents{k, n}, "small").name}, t ? "\"transpose_b\": true" : "");
  };
  auto a = product(x);
  if (!a) return;
  switch (below(5)) {
    case 0: break;
    case 1:
      if (auto b = product(one_in(2) ? x : first))
        if (auto s = node(pick({"silu", "sigmoid", "relu"}), {a->name})) node("mul", {s->name, b->name});
      break;
    case 2: {
      const int64_t r = pick(Extents{4, 8, 16});
      if (auto low = node("matmul", {first.name, input({k, r}, "small").name}))
        if (auto b = node("matmul", {low->name, input({r, n}, "small").name}))
          if (auto s = node("mul", {b->name, "0.125"})) node("add", {a->name, s->name});
      break;
    }
    case 3: node("add", {a->name, input({n}).name}); break;
    default: if (auto g = node(pick({"gelu", "tanh"}), {a->name})) node("add", {g->name, input({first.dims[0], n}).name});
  }
}

}  // namespace mirage::test

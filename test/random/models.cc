// Random specs, the operators of models: those that are made of others. Every fourth seed has them.
#include <algorithm>

#include "random/generator.h"

namespace mirage::test {

void Generator::gated_pair(const std::string& op) {
  const Value x = any(1);
  const std::string gate = one_in(2) ? "\"gate\": \"second\"" : "";
  if (x.dims.back() % 2 == 0 && one_in(2)) node(op, {x.name}, gate);
  else node(op, {x.name, partner(x).name}, gate);
}

void Generator::linear() {
  const Value x = any(1), w = input({any_extent(), x.dims.back()}, "small");
  std::vector<std::string> operands = {x.name, w.name};
  if (one_in(2)) operands.push_back(input({w.dims[0]}).name);
  node("linear", operands);
}

void Generator::rope() {
  const Value x = any(2);
  const int64_t depth = x.dims.back(), rows = x.dims[x.rank() - 2];
  if (depth % 2) return;
  const Value c = input({rows, one_in(2) ? depth : depth / 2}), s = input(dims_of(c));
  node("rope", {x.name, c.name, s.name}, one_in(2) ? "\"interleaved\": true" : "");
}

void Generator::heads() {
  const int64_t group = static_cast<int64_t>(1 + below(2)), heads = static_cast<int64_t>(1 + below(2)),
                rows = static_cast<int64_t>(1 + below(9)), keys = rows + static_cast<int64_t>(below(9)), depth = pick(Extents{4, 8, 16});
  std::vector<std::string> operands = {input({heads * group, rows, depth}, "small").name, input({heads, keys, depth}, "small").name,
                                       input({heads, keys, depth}).name};
  std::string attrs = one_in(2) ? fmt::format("\"causal\": true, \"offset\": {}", keys - rows) : "\"scale\": 0.25";
  if (one_in(3)) attrs += ", \"softcap\": 5";
  if (one_in(4)) operands.push_back(input({rows, keys}).name);
  if (one_in(4)) operands.push_back(input({heads * group}).name), attrs += ", \"sink\": true";
  node("attention", operands, attrs);
}

void Generator::image(const std::string& op) {
  const int64_t channels = pick(Extents{1, 2, 4}), kernel = static_cast<int64_t>(1 + below(3)), stride = static_cast<int64_t>(1 + below(2));
  const Value x = input({2, channels, 5 + static_cast<int64_t>(below(4)), 6});
  const std::string window = fmt::format("\"stride\": {}, \"padding\": {}", stride, kernel / 2);
  if (op != "conv") { node(op, {x.name}, window + fmt::format(", \"kernel\": {}", kernel)); return; }
  const bool transposed = one_in(4);
  const int64_t groups = one_in(3) ? channels : 1, in = channels / groups;
  const Value w = input(transposed ? Extents{channels, 3, kernel, kernel} : Extents{2 * groups, in, kernel, kernel}, "small");
  node("conv", {x.name, w.name}, window + fmt::format(", \"groups\": {}, \"transposed\": {}", groups, transposed));
}

void Generator::by_index(const std::string& op) {
  const Value x = any(op == "embedding" ? 2 : 1);
  if (op == "embedding" && x.rank() != 2) return;
  const int axis = op == "embedding" ? 0 : static_cast<int>(below(static_cast<uint64_t>(x.rank())));
  const std::string kind = fmt::format("index {}", x.dims[axis]), attrs = fmt::format("\"axis\": {}", axis);
  Extents places = {static_cast<int64_t>(1 + below(6)), 3};
  if (op == "gather") places = dims_of(x), places[static_cast<size_t>(axis)] = static_cast<int64_t>(1 + below(6));
  const Value i = input(places, kind);
  if (op == "embedding") node(op, {i.name, x.name});
  else node(op, {x.name, i.name}, attrs);
}

void Generator::moved(const std::string& op) {
  const Value x = any(1);
  const auto axis = below(static_cast<uint64_t>(x.rank()));
  if (op == "stack") { node(op, {x.name, input(dims_of(x)).name}, fmt::format("\"axis\": {}", axis)); return; }
  if (op == "squeeze") {
    if (auto u = node("unsqueeze", {x.name}, fmt::format("\"axis\": {}", axis))) node(op, {u->name}, fmt::format("\"axis\": {}", axis));
    return;
  }
  if (op == "expand") {
    Extents to = dims_of(x);
    to.insert(to.begin(), 2);
    node(op, {x.name}, fmt::format("\"shape\": [{}]", fmt::join(to, ", ")));
    return;
  }
  if (op == "pad") {
    Extents before(static_cast<size_t>(x.rank())), after = before;
    before[axis] = static_cast<int64_t>(below(3)), after[axis] = static_cast<int64_t>(1 + below(2));
    node(op, {x.name},
         fmt::format("\"before\": [{}], \"after\": [{}], \"mode\": \"{}\"", fmt::join(before, ", "), fmt::join(after, ", "),
                     pick({"constant", "replicate", "reflect", "circular"})));
    return;
  }
  node(op, {x.name}, fmt::format("\"axis\": {}", axis));
}

const std::vector<std::pair<std::string, Generator::ModelStep>>& Generator::models() {
  using G = Generator;
  static const std::vector<std::pair<std::string, ModelStep>> all = [] {
    std::vector<std::pair<std::string, ModelStep>> out;
    for (const char* op : {"erf", "sin", "cos", "expm1", "leaky_relu", "elu", "softplus", "hardtanh", "hardswish", "mish"})
      out.emplace_back(op, &G::unary);
    for (const char* op : {"log1p", "reciprocal"}) out.emplace_back(op, &G::of_positive);
    for (const char* op : {"floor", "ceil", "round", "sign", "not"}) out.emplace_back(op, &G::of_exact);
    for (const char* op : {"not_equal", "less_equal", "greater_equal", "and", "or"}) out.emplace_back(op, &G::comparison);
    for (const char* op : {"min", "var", "std", "logsumexp", "prod"}) out.emplace_back(op, &G::reduction);
    for (const char* op : {"argmax", "argmin", "log_softmax", "cumsum"}) out.emplace_back(op, &G::along);
    for (const char* op : {"swiglu", "geglu"}) out.emplace_back(op, &G::gated_pair);
    for (const char* op : {"conv", "max_pool", "avg_pool"}) out.emplace_back(op, &G::image);
    for (const char* op : {"embedding", "index_select", "gather"}) out.emplace_back(op, &G::by_index);
    for (const char* op : {"unsqueeze", "squeeze", "expand", "stack", "pad", "flip"}) out.emplace_back(op, &G::moved);
    out.emplace_back("linear", [](G& g, const std::string&) { g.linear(); });
    out.emplace_back("rope", [](G& g, const std::string&) { g.rope(); });
    out.emplace_back("attention", [](G& g, const std::string&) { g.heads(); });
    return out;
  }();
  return all;
}

void Generator::model_step() {
  const auto& [op, step] = models()[next_model_++ % models().size()];
  step(*this, op);
}

}  // namespace mirage::test

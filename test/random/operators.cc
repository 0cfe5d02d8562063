// Random specs, operator by operator: which operands and attributes each is given (generator.h).
#include "random/generator.h"

#include <algorithm>

namespace mirage::test {

void Generator::binary(const std::string& op) {
  const Value x = any();
  std::vector<std::string> operands = {x.name, one_in(5) ? constant() : partner(x).name};
  if (one_in(3)) std::swap(operands[0], operands[1]);
  node(op, operands);
}

void Generator::div() {
  const Value x = any();
  if (one_in(4)) { node("div", {x.name, pick({"2", "0.75", "-4"})}); return; }
  const Value y = positive(partner(x));
  node("div", {one_in(5) ? "1.5" : x.name, y.name});
}

void Generator::pow() {
  const Value x = one_in(4) ? any() : positive(any());
  if (one_in(3)) { node("pow", {x.name, partner(x).name}); return; }
  node("pow", {x.name}, "\"exponent\": " + pick({"2", "0.5", "-0.5", "-1", "1.7", "1", "3", "-3"}));
}

void Generator::clamp() {
  const Value x = any(0, true);
  switch (below(4)) {
    case 0: node("clamp", {x.name}, "\"min\": -0.25, \"max\": 0.5"); break;
    case 1: node("clamp", {x.name}, "\"max\": 0.125"); break;
    case 2: node("clamp", {x.name}, "\"min\": -0.5"); break;
    default: { const Value y = partner(x); node("clamp", {x.name, y.name, "1.5"}); }
  }
}

std::optional<Value> Generator::exact_value() {
  for (int i = 0; i < 8; i++) {
    const Value& v = pick(values_);
    if (v.exact && !v.masked) return v;
  }
  return values_[0];
}

void Generator::comparison(const std::string& op) {
  const auto x = exact_value(), y = exact_value();
  std::vector<std::string> operands = {x->name, broadcast(x->dims, y->dims) && !one_in(3) ? y->name : pick({"0", "0.5", "-1"})};
  if (op == "equal" && one_in(2))
    if (auto r = node("relu", {x->name})) operands = {r->name, "0"};
  if (one_in(3)) std::swap(operands[0], operands[1]);
  node(op, operands);
}

std::optional<Value> Generator::condition(const Value& like) {
  for (int i = 0; i < 6; i++) {
    const Value& v = pick(values_);
    if (v.is_bool && broadcast(v.dims, like.dims)) return v;
  }
  if (one_in(2)) { Extents dims = dims_of(like); for (int64_t& e : dims) if (one_in(4)) e = 1; return input(dims, "bool"); }
  const auto x = exact_value();
  if (!broadcast(x->dims, like.dims)) return input(dims_of(like), "bool");
  return node(pick({"less", "greater"}), {x->name, pick({"0", "0.25"})});
}

void Generator::where() {
  const Value x = any();
  const auto c = condition(x);
  if (!c) return;
  std::vector<std::string> operands = {c->name, x.name, one_in(3) ? constant() : one_in(6) ? "\"-inf\"" : partner(x).name};
  if (one_in(3)) std::swap(operands[1], operands[2]);
  node("where", operands);
}

void Generator::norm(const std::string& op, const std::string& eps) {
  const Value x = any(1);
  std::vector<std::string> operands = {x.name};
  std::string attrs = one_in(3) ? axes_attr(x.rank(), false) : "";
  if (attrs.empty() && one_in(2)) operands.push_back(input({x.dims.back()}).name);
  if (operands.size() == 2 && one_in(2)) operands.push_back(input({x.dims.back()}).name);
  if (one_in(2)) attrs += (attrs.empty() ? "" : ", ") + ("\"eps\": " + eps);
  node(op, operands, attrs);
}

void Generator::group_norm() {
  Value x = any(2);
  const int64_t channels = x.dims[1];
  Extents divisors;
  for (int64_t d = 1; d <= channels; d++) if (channels % d == 0) divisors.push_back(d);
  std::vector<std::string> operands = {x.name};
  while (operands.size() < 3 && one_in(2)) operands.push_back(input({channels}).name);
  node("group_norm", operands, fmt::format("\"groups\": {}, \"eps\": 0.001", pick(divisors)));
}

void Generator::batch_norm() {
  const Value x = any(2);
  const Extents channels = {x.dims[1]};
  std::vector<std::string> operands = {x.name, input(channels).name, input(channels, "positive").name};
  while (operands.size() < 5 && one_in(2)) operands.push_back(input(channels).name);
  node("batch_norm", operands);
}

void Generator::matmul() {
  const Value x = any(1);
  const int64_t k = x.dims.back(), n = any_extent();
  const bool t = one_in(3);
  switch (below(7)) {
    case 0: case 1: case 2: {   // a weight
      const Value w = input(t ? Extents{n, k} : Extents{k, n}, one_in(4) ? "" : "small");
      if (auto y = node("matmul", {x.name, w.name}, t ? "\"transpose_b\": true" : ""); y && one_in(3)) node("mul", {y->name, "0.125"});
      break;
    }
    case 3: {   // batches, some of them broadcast
      Extents dims = dims_of(x);
      if (dims.size() < 2) return;
      dims.resize(dims.size() - 2);
      for (int64_t& e : dims) if (one_in(4)) e = 1; else if (e == 1 && one_in(2)) e = pick(Extents{2, 3});
      if (dims.empty() && one_in(2)) dims.push_back(pick(Extents{2, 3}));
      for (int64_t e : t ? Extents{n, k} : Extents{k, n}) dims.push_back(e);
      node("matmul", {x.name, input(dims, "small").name}, t ? "\"transpose_b\": true" : "");
      break;
    }
    case 4: {   // two values that are there, one twice maybe
      for (int i = 0; i < 8; i++) {
        const Value y = one_in(3) ? x : pick(values_);
        const bool ta = x.rank() > 1 && one_in(4), tb = y.rank() > 1 && (one_in(2) || y.name == x.name);
        if (y.masked || y.rank() < 1) continue;
        if (auto z = node("matmul", {x.name, y.name}, fmt::format("\"transpose_a\": {}, \"transpose_b\": {}", ta, tb))) {
          if (one_in(2)) node("mul", {z->name, "0.125"});
          return;
        }
      }
      break;
    }
    case 5: node("matmul", {x.name, input({k}, "small").name}); break;
    default:
      if (x.rank() < 2) return;
      if (t) node("matmul", {input({x.dims[x.rank() - 2], n}, "small").name, x.name}, "\"transpose_a\": true");
      else node("matmul", {input({n, x.dims[x.rank() - 2]}, "small").name, x.name});
  }
}

void Generator::einsum() {
  const Value x = any(1);
  std::string left, right, out;
  Extents dims;
  for (int d = 0; d < x.rank(); d++) left += static_cast<char>('a' + d);
  const bool two = !one_in(4);
  if (two) {
    for (int d = 0; d < x.rank(); d++)
      if (!one_in(3)) right += left[static_cast<size_t>(d)], dims.push_back(x.dims[d]);
    if (one_in(2) || right.empty()) right += 'z', dims.push_back(any_extent());
    if (right.size() > 1 && one_in(3)) std::swap(right[0], right.back()), std::swap(dims[0], dims.back());
  }
  for (char c : left + right)
    if (out.find(c) == std::string::npos &&
        !(two && left.find(c) != std::string::npos && right.find(c) != std::string::npos ? !one_in(3) : one_in(4)))
      out += c;
  if (out.size() > 1 && one_in(2)) std::swap(out[below(out.size())], out.back());
  std::vector<std::string> operands = {x.name};
  if (two) operands.push_back(input(dims, "small").name);
  if (two && one_in(3)) std::swap(operands[0], operands[1]), std::swap(left, right);
  node("einsum", operands, fmt::format("\"equation\": \"{}{}{}->{}\"", left, two ? "," : "", right, out));
}

void Generator::transpose() {
  const Value x = any(1, true);
  std::vector<int> perm;
  for (int d = 0; d < x.rank(); d++) perm.push_back(d);
  for (size_t i = perm.size(); i > 1; i--) std::swap(perm[i - 1], perm[below(i)]);
  node("transpose", {x.name}, one_in(4) ? "" : fmt::format("\"perm\": [{}]", fmt::join(perm, ", ")));
}

void Generator::reshape() {
  const Value x = any(1, true);
  Extents dims = dims_of(x);
  for (int steps = 1 + static_cast<int>(below(2)); steps > 0; steps--) {
    const size_t at = below(dims.size());
    const int64_t e = dims[at];
    switch (below(4)) {
      case 0:   // join
        if (at + 1 < dims.size()) dims[at] = e * dims[at + 1], dims.erase(dims.begin() + static_cast<int>(at) + 1);
        break;
      case 1: {   // split
        Extents divisors;
        for (int64_t d = 2; d < e; d++) if (e % d == 0) divisors.push_back(d);
        if (divisors.empty() || dims.size() >= 6) break;
        const int64_t d = pick(divisors);
        dims[at] = e / d;
        dims.insert(dims.begin() + static_cast<int>(at) + 1, d);
        break;
      }
      case 2: if (dims.size() < 6) dims.insert(dims.begin() + static_cast<int>(at), 1); break;
      default: if (one_in(2)) dims = {x.elements()};
    }
  }
  if (one_in(4)) dims[below(dims.size())] = -1;
  node("reshape", {x.name}, fmt::format("\"shape\": [{}]", fmt::join(dims, ", ")));
}

void Generator::concat() {
  const Value x = any(1, true);
  const auto axis = static_cast<int>(below(static_cast<uint64_t>(x.rank())));
  std::vector<std::string> operands = {x.name};
  for (int i = 0; i < 3 && (i == 0 || one_in(2)); i++) {
    Extents dims = dims_of(x);
    if (one_in(2)) dims[static_cast<size_t>(axis)] = any_extent();
    std::string other = one_in(3) ? x.name : "";
    for (const Value& v : values_) if (other.empty() && one_in(2) && v.dims == x.dims && !v.is_bool) other = v.name;
    operands.push_back(other.empty() ? input(dims).name : other);
  }
  node("concat", operands, one_in(4) ? "" : fmt::format("\"axis\": {}", one_in(2) ? axis : axis - x.rank()));
}

void Generator::slice() {
  const Value x = any(1, true);
  const auto axis = static_cast<int>(below(static_cast<uint64_t>(x.rank())));
  const auto n = static_cast<uint64_t>(x.dims[axis]);
  const int64_t start = static_cast<int64_t>(below(n)), stop = start + 1 + static_cast<int64_t>(below(n - static_cast<uint64_t>(start)));
  std::string attrs = fmt::format("\"axis\": {}", one_in(3) ? axis - x.rank() : axis);
  if (!one_in(4)) attrs += fmt::format(", \"start\": {}", one_in(3) ? start - x.dims[axis] : start);
  if (one_in(2)) attrs += fmt::format(", \"stop\": {}", one_in(3) && stop < x.dims[axis] ? stop - x.dims[axis] : stop);
  if (one_in(3)) attrs += fmt::format(", \"step\": {}", 1 + below(3));
  node("slice", {x.name}, attrs);
}

void Generator::cast() {
  const std::string to = pick({"float16", "bfloat16", "float32", "bool"});
  if (to == "bool") { node("cast", {exact_value()->name}, "\"dtype\": \"bool\""); return; }
  if (to == "bfloat16" && dtype_ != "bfloat16") return;   // coarser than what results are judged by
  if (to == "float16" && dtype_ == "float32") return;
  node("cast", {any().name}, fmt::format("\"dtype\": \"{}\"", to));
}

void Generator::causal_mask() {
  const Value x = any(2);
  auto m = node("causal_mask", {x.name}, one_in(2) ? "" : fmt::format("\"offset\": {}", static_cast<int>(below(6)) - 1));
  if (m && !one_in(4)) node(pick({"softmax", "softmax", "exp", "sigmoid", "max"}), {m->name});
}

void Generator::iota() {
  Value x = any(1);
  Extents dims = dims_of(x);
  const size_t axis = below(dims.size());
  for (size_t d = 0; d < dims.size(); d++) if (d != axis && one_in(2)) dims[d] = 1;
  const auto i = node("iota", {}, fmt::format("\"axis\": {}, \"shape\": [{}]", axis, fmt::join(dims, ", ")));
  if (!i) return;
  switch (below(4)) {
    case 0: node(pick({"add", "mul", "sub"}), {x.name, i->name}); break;
    case 1:
      if (auto c = node(pick({"less", "greater"}), {i->name, std::to_string(below(static_cast<uint64_t>(dims[axis]) + 1))}))
        node("where", {c->name, x.name, pick({"0", "\"-inf\"", "1"})});
      break;
    case 2: if (auto s = node("mul", {i->name, "0.03125"})) node("add", {x.name, s->name}); break;
    default: break;
  }
}

void Generator::extent() {
  const Value& first = values_[0];
  if (first.rank() == 0) return;
  const Value x = any();
  if (auto e = node("extent", {}, fmt::format("\"of\": [[0, {}]]", below(static_cast<uint64_t>(first.rank())))))
    node(pick({"div", "mul"}), {x.name, e->name});
}

}  // namespace mirage::test

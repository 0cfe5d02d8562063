// See the header.
#include "codegen/kernels/tile_elements.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "codegen/kernels/cuda_text.h"
#include "mirage/ir/walk.h"
#include "mirage/support/assert.h"

namespace mirage::schedule {

TileElements::TileElements(const KernelProgram& p, const Derived& d) : p_(p), d_(d), g_(p.body) {
  narrow_ = std::all_of(p.results.begin(), p.results.end(), [](const Param& x) { return dtype_bytes(x.dtype) == 2; });
  for (const Stage& s : p.stages) if (s.to >= 0) maker_.emplace(s.to, &s);
}

std::string TileElements::name(int section) const { return p_.sections[at(section)].name.substr(1); }

Dims TileElements::tile_dims(ValueId v) const {
  Dims out = g_.dims(v);
  for (int d = 0; d < out.rank(); d++) out[d] = tile_of(p_.index_of[at(v)][at(d)]);
  return out;
}

Extent3 TileElements::extent(ValueId v) const {
  const Dims dims = tile_dims(v);
  Extent3 out{1, 1, 1};
  for (int k = 0; k < 3; k++) if (const int d = dim_of(dims, k); d >= 0) out[at(k)] = dims[d];
  return out;
}

std::map<ValueId, int> TileElements::leaves_of(const Stage& s) const {
  std::map<ValueId, int> out;
  std::vector<PlaceId> left = s.reads, seen;
  while (!left.empty()) {
    const PlaceId x = left.back();
    left.pop_back();
    if (std::find(seen.begin(), seen.end(), x) != seen.end()) continue;
    seen.push_back(x);
    const auto made = maker_.find(x);
    if (d_.home[at(x)] >= 0) out.emplace(p_.places[at(x)].value, d_.home[at(x)]);
    else if (made != maker_.end()) left.insert(left.end(), made->second->reads.begin(), made->second->reads.end());
  }
  return out;
}

bool TileElements::swaps(const Transpose& t, ValueId v) const {
  const int rank = g_.dims(v).rank();
  return rank >= 2 && t.perm[at(rank - 1)] != rank - 1;
}

TileElements::Text TileElements::text(const Stage& s, ValueId v, const Index3& where, Known known) const {
  Region r{leaves_of(s), std::move(known)};
  std::string result = element(v, where, r);
  return {std::move(r.statements), std::move(result)};
}

std::string TileElements::element(ValueId v, const Index3& index, Region& r) const {
  Index3 i = index;
  const Extent3 e = extent(v);
  for (size_t k = 0; k < 3; k++) if (e[k] == 1) i[k] = "0";
  const std::string where = i[0] + ", " + i[1] + ", " + i[2];
  if (auto it = r.known.find({v, where}); it != r.known.end()) return it->second;
  std::string text;
  if (const auto leaf = r.leaves.find(v); leaf != r.leaves.end())
    text = fmt::format("t{}.read({}, {})", name(leaf->second), i[2] == "0" ? "Width<1>()" : "w", where);
  else if (const auto* c = g_.def_form<Const>(v)) return CudaText().constant(c->value);
  else if (const auto* t = g_.def_form<Transpose>(v)) {
    if (swaps(*t, v)) std::swap(i[1], i[2]);
    return element(g_.def(v).operands[0], i, r);
  } else {
    text = map(v, i, r);
  }
  const std::string own = fmt::format("v{}{}", v, r.known.empty() ? "" : "_" + std::to_string(r.known.size()));
  r.statements += fmt::format("const auto {} = {}; ", own, text);
  r.known[{v, where}] = own;
  return own;
}

std::string TileElements::map(ValueId v, const Index3& i, Region& r) const {
  const auto* m = g_.def_form<Map>(v);
  MIRAGE_ASSERT(m) << "no element text for " << form_name(g_.def(v).op);
  std::vector<std::string> operands;
  for (ValueId o : g_.def(v).operands) operands.push_back(element(o, i, r));
  if (m->fn != MapFn::kDiv) return map_text(m->fn, operands);
  const ValueId by = g_.def(v).operands[1];
  DivisorText y{operands[1], std::nullopt, "", extent(by) != extent(v)};
  if (const auto* c = g_.def_form<Const>(by)) y.constant = c->value;
  const auto* root = r.leaves.count(by) ? nullptr : g_.def_form<Map>(by);
  if (narrow_ && root && root->fn == MapFn::kSqrt) y.root_of = element(g_.def(by).operands[0], i, r);
  return quotient_text(operands[0], y, narrow_);
}

std::string TileElements::lambda(const Stage& s, ValueId v) const {
  const Text r = text(s, v, {"b", "r", "c"});
  return fmt::format("[&](auto w, int b, int r, int c) {{ (void)w, (void)b, (void)r, (void)c; {}return {}; }}", r.statements, r.result);
}

bool TileElements::is_turned(const Stage& s, ValueId v) const {
  const std::map<ValueId, int> leaves = leaves_of(s);
  return find_below(g_, v, [&](ValueId x) {
    if (leaves.count(x)) return Look::kPast;
    const auto* t = g_.def_form<Transpose>(x);
    return t && swaps(*t, x) ? Look::kFound : Look::kInto;
  });
}

}  // namespace mirage::schedule

// See the header.
#include "codegen/program/tile_elements.h"

#include <algorithm>
#include <functional>
#include <set>
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

bool TileElements::is_narrow(const Stage& s) const {
  if (narrow_) return true;
  if (s.kind == Stage::Kind::kStore) return dtype_bytes(p_.results[at(s.result)].dtype) == 2;
  return s.to >= 0 && p_.places[at(s.to)].section >= 0 && dtype_bytes(p_.places[at(s.to)].dtype) == 2;
}

TileElements::Text TileElements::text(const Stage& s, ValueId v, const Index3& where, const std::string& packed, Known known) const {
  Region r{leaves_of(s), std::move(known), packed, is_narrow(s)};
  std::string result = element(v, where, r);
  return {std::move(r.statements), std::move(result), std::move(r.known)};
}

std::string TileElements::element(ValueId v, const Index3& index, Region& r) const {
  Index3 i = index;
  const Extent3 e = extent(v);
  for (size_t k = 0; k < 3; k++) if (e[k] == 1) i[k] = "0";
  const std::string where = i[0] + ", " + i[1] + ", " + i[2];
  if (auto it = r.known.find({v, where}); it != r.known.end()) return it->second;
  std::string text;
  if (const auto leaf = r.leaves.find(v); leaf != r.leaves.end())
    text = fmt::format("t{}.{}({}, {})", name(leaf->second), i[1] == r.packed ? "down" : "read",
                       i[1] == r.packed || i[2] == r.packed ? "w" : "Width<1>()", where);
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
  if (m->fn != MapFn::kDiv) return map_text(m->fn, operands, r.narrow);
  const ValueId by = g_.def(v).operands[1];
  DivisorText y{operands[1], std::nullopt, "", extent(by) != extent(v)};
  if (const auto* c = g_.def_form<Const>(by)) y.constant = c->value;
  const auto* root = r.leaves.count(by) ? nullptr : g_.def_form<Map>(by);
  if (r.narrow && root && root->fn == MapFn::kSqrt) y.root_of = element(g_.def(by).operands[0], i, r);
  return quotient_text(operands[0], y, r.narrow);
}

std::string TileElements::lambda(const Stage& s, ValueId v, bool turned) const {
  const Text r = text(s, v, turned ? Index3{"b", "c", "r"} : Index3{"b", "r", "c"});
  return fmt::format("[&](auto w, int b, int r, int c) {{ (void)w, (void)b, (void)r, (void)c; {}return {}; }}", r.statements, r.result);
}

std::array<bool, 2> TileElements::lines_of(const Stage& s, ValueId v) const {
  const std::map<ValueId, int> leaves = leaves_of(s);
  std::array<bool, 2> out{false, false};
  std::set<std::pair<ValueId, bool>> seen;
  const std::function<void(ValueId, bool)> look = [&](ValueId x, bool swapped) {
    if (!seen.emplace(x, swapped).second) return;
    if (const auto leaf = leaves.find(x); leaf != leaves.end()) {
      const Extent3 e = extent(x);
      if (e[1] == 1 || e[2] == 1) return;
      for (const Place& place : p_.places)
        if (place.section == leaf->second && place.value == x) { out[place.columns != swapped] = true; return; }
      out[swapped] = true;
      return;
    }
    const auto* t = g_.def_form<Transpose>(x);
    for (ValueId o : g_.def(x).operands) look(o, swapped != (t && swaps(*t, x)));
  };
  look(v, false);
  return out;
}

}  // namespace mirage::schedule

// Index expressions of the prover (docs/verification.md): affine combinations of named indices and of floor quotients of such, hash-consed.
// mod has no form of its own: x mod c is x - c (x div c), so that c (x div c) + x mod c is x without a rule.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mirage/support/hash.h"

namespace mirage::verify {

using VarId = int32_t;
using IdxId = int32_t;       ///< an affine expression
using IdxAtomId = int32_t;   ///< an index, or the floor quotient of an expression by a constant

/// kFormal: position along a dimension of the value at hand (or of a result). kTemp: a block, an iteration, or an index being summed over.
/// kBound: the canonical name of a summed index.
enum class VarKind : uint8_t { kFormal, kTemp, kBound };
struct Var { VarKind kind; int32_t a = 0, b = 0; int64_t extent = 1; };   ///< ranges over [0, extent)

/// Words with dense ids. Never iterated.
class Interner {
 public:
  Interner() = default;
  Interner(const Interner&) = delete;   // keys_ points into ids_
  Interner& operator=(const Interner&) = delete;
  int32_t intern(const std::vector<int64_t>& key, bool* fresh = nullptr) {
    auto [it, is_new] = ids_.try_emplace(key, static_cast<int32_t>(keys_.size()));
    if (is_new) keys_.push_back(&it->first);
    if (fresh) *fresh = is_new;
    return it->second;
  }
  const std::vector<int64_t>& operator[](int32_t id) const { return *keys_[static_cast<size_t>(id)]; }
  int size() const { return static_cast<int>(keys_.size()); }
 private:
  struct Hash { size_t operator()(const std::vector<int64_t>& v) const { return hash_bytes(v.data(), v.size() * sizeof(int64_t)); } };
  std::unordered_map<std::vector<int64_t>, int32_t, Hash> ids_;   // node-based: keys do not move
  std::vector<const std::vector<int64_t>*> keys_;
};

struct Affine { int64_t constant = 0; std::vector<std::pair<IdxAtomId, int64_t>> terms; };   ///< terms by atom, no zero coefficient
struct IdxAtom { VarId var = -1; IdxId of = -1; int64_t by = 0; };                           ///< var, or of div by

using VarMap = std::map<VarId, IdxId>;   ///< a simultaneous substitution

class Indices {
 public:
  VarId make_var(VarKind kind, int32_t a, int32_t b, int64_t extent);   ///< extent >= 1
  const Var& var(VarId v) const { return vars_[static_cast<size_t>(v)]; }

  IdxId constant(int64_t c) { return intern({c, {}}); }
  IdxId of_var(VarId v);                       ///< 0 for an index of extent 1
  IdxId of_atom(IdxAtomId a) { return intern({0, {{a, 1}}}); }
  IdxId add(IdxId x, IdxId y, int64_t factor = 1);   ///< x + factor * y
  IdxId scale(IdxId x, int64_t factor) { return add(constant(0), x, factor); }
  IdxId div(IdxId x, int64_t by);              ///< floor, by >= 1
  IdxId mod(IdxId x, int64_t by) { return add(x, div(x, by), -by); }
  IdxId subst(IdxId x, const VarMap& map);
  IdxId ge0_form(IdxId x);                     ///< the simplest y with y >= 0 exactly if x >= 0

  const Affine& affine(IdxId x) const { return affines_[static_cast<size_t>(x)]; }
  const IdxAtom& atom(IdxAtomId a) const { return atoms_[static_cast<size_t>(a)]; }
  std::pair<int64_t, int64_t> range(IdxId x) const { return ranges_[static_cast<size_t>(x)]; }   ///< bounds, attained or not
  const std::vector<VarId>& vars(IdxId x) const { return free_[static_cast<size_t>(x)]; }         ///< ascending
  int64_t coefficient(IdxId x, VarId v) const;                                                    ///< of v itself, not inside quotients
  /// x and what its quotients are of, those with an index
  void collect(IdxId x, std::vector<IdxId>& out) const;
  std::string print(IdxId x, const std::map<VarId, std::string>& names) const;

 private:
  IdxId intern(Affine a);
  IdxAtomId intern_atom(const IdxAtom& a);
  std::pair<int64_t, int64_t> range_of(const Affine& a) const;
  std::pair<int64_t, int64_t> atom_range(IdxAtomId a) const;

  Interner var_keys_, affine_keys_, atom_keys_;
  std::vector<Var> vars_;
  std::vector<Affine> affines_;
  std::vector<std::pair<int64_t, int64_t>> ranges_;
  std::vector<std::vector<VarId>> free_;
  std::vector<IdxAtom> atoms_;
};

inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }

/// The union of two ascending lists.
std::vector<VarId> merge_sorted(const std::vector<VarId>& a, const std::vector<VarId>& b);

}  // namespace mirage::verify

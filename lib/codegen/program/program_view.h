// Questions about a program that emitters ask, whatever it computes.
#pragma once
#include <map>
#include <vector>

#include "mirage/schedule/program.h"

namespace mirage::schedule {

class ProgramView {
 public:
  ProgramView(const KernelProgram& p, const Derived& d);

  const KernelProgram& program() const { return p_; }
  const Derived& derived() const { return d_; }
  const Graph& body() const { return p_.body; }
  const Place& place(PlaceId x) const { return p_.places[at(x)]; }
  const Param& param(ValueId input) const { return p_.params[at(body().def_form<Input>(input)->param)]; }
  const std::vector<IndexId>& indices(ValueId v) const { return p_.index_of[at(v)]; }

  // ---- stages
  const Stage* maker(PlaceId x) const { const auto it = maker_.find(x); return it == maker_.end() ? nullptr : it->second; }
  const Stage* copy_of(ValueId input) const;              ///< null: it is in no place
  const Role& role_of(const Stage& s) const { return p_.roles[at(role_.at(&s))]; }
  bool in_loop(const Stage& s) const { return in_loop_.at(&s); }
  /// Products, by units: as they run.
  const std::vector<const Stage*>& products() const { return products_; }
  /// The stage that stores a result.
  const Stage& store(int result) const;
  /// The fold by which parts of an axis of that kind meet; null: there is none.
  const Stage* fold_over(AxisKind) const;

  // ---- axes
  int64_t extent(IndexId i) const { return i < 0 ? 1 : p_.indices[at(i)].extent; }
  const Split* split(IndexId i) const { return i < 0 ? nullptr : p_.split_of(i); }
  /// Into how many parts axes of that kind cut an index.
  int64_t parts(IndexId i, AxisKind kind) const;
  /// Tiles of a reduced index that one block has.
  int64_t tiles_of_block(IndexId i) const;

  // ---- shared memory
  /// Where a section begins; of one that there is not, where it would, behind section `before`.
  int64_t section_at(int section, int before) const { return d_.section_at[at(section >= 0 ? section : before + 1)]; }

  static size_t at(int i) { return static_cast<size_t>(i); }

 private:
  const KernelProgram& p_;
  const Derived& d_;
  std::map<PlaceId, const Stage*> maker_;
  std::map<const Stage*, int> role_;
  std::map<const Stage*, bool> in_loop_;
  std::vector<const Stage*> products_;
};

}  // namespace mirage::schedule

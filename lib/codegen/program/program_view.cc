// See the header.
#include "codegen/program/program_view.h"

#include <algorithm>

#include "mirage/support/assert.h"

namespace mirage::schedule {

ProgramView::ProgramView(const KernelProgram& p, const Derived& d) : p_(p), d_(d) {
  const auto add = [&](StageId id, size_t role, bool is_inside) {
    const Stage& s = p.stages[at(id)];
    if (s.to >= 0) maker_.emplace(s.to, &s);
    role_[&s] = static_cast<int>(role);
    in_loop_[&s] = is_inside;
    if (s.unit != UnitId::kNone) products_.push_back(&s);
  };
  for (size_t r = 0; r < p.roles.size(); r++)
    for (const Item& i : p.roles[r].items) {
      if (i.stage >= 0) add(i.stage, r, false);
      for (StageId s : i.body) add(s, r, true);
    }
}

const Stage* ProgramView::copy_of(ValueId input) const {
  for (const Stage& s : p_.stages) if (s.kind == Stage::Kind::kCopy && place(s.to).value == input) return &s;
  return nullptr;
}

const Stage& ProgramView::store(int result) const {
  const auto it = std::find_if(p_.stages.begin(), p_.stages.end(),
                               [&](const Stage& s) { return s.kind == Stage::Kind::kStore && s.result == result; });
  MIRAGE_ASSERT(it != p_.stages.end()) << "nothing stores result " << result;
  return *it;
}

const Stage* ProgramView::fold_over(AxisKind kind) const {
  for (const Stage& s : p_.stages)
    if (s.kind == Stage::Kind::kFold &&
        std::any_of(s.over.begin(), s.over.end(), [&](AxisId a) { return a >= 0 && p_.axes[at(a)].kind == kind; })) return &s;
  return nullptr;
}

int64_t ProgramView::parts(IndexId i, AxisKind kind) const {
  int64_t n = 1;
  if (const Split* s = split(i)) for (AxisId a : s->over) if (p_.axes[at(a)].kind == kind) n *= p_.axes[at(a)].extent;
  return n;
}

int64_t ProgramView::tiles_of_block(IndexId i) const {
  const Split* s = split(i);
  int64_t tiles = p_.chunks(*s);
  for (AxisId a : s->over) {
    const Axis& x = p_.axes[at(a)];
    if (x.kind == AxisKind::kGrid || x.kind == AxisKind::kCluster) tiles = x.each;   // of the fastest of these
  }
  return tiles;
}

}  // namespace mirage::schedule

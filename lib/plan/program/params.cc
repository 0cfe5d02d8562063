// See the header.
#include "plan/program/params.h"

#include <algorithm>

#include "mirage/schedule/words.h"

namespace mirage::schedule {

Param param_of(const Access& a) {
  Param x{a.dtype, a.dims, a.offset, a.strides, a.run, a.jump, a.position, a.tf32, {}, -1, a.position_div, a.position_period};
  if (a.second.buffer >= 0) x.second = {a.second.dim, a.second.offset, a.second.strides};
  return x;
}

Writer writer_of(const Graph& body, const std::vector<Access>& operands, const std::vector<Access>& results) {
  std::vector<Param> params, stored;
  for (const Access& a : operands) {
    params.push_back(param_of(a));
    for (size_t i = 0; a.buffer >= 0 && params.back().in < 0 && &operands[i] != &a; i++)
      if (operands[i].buffer == a.buffer) params.back().in = static_cast<int>(i);
  }
  for (const Access& a : results) stored.push_back(param_of(a));
  return {"", body, std::move(params), std::move(stored)};
}

namespace {

bool has(const KernelProgram& p, ValueId v, IndexId i) {
  const auto& of = p.index_of[at(v)];
  return i >= 0 && std::find(of.begin(), of.end(), i) != of.end();
}

/// Copies of what the loop adds up over, chunk by chunk; null: another stage.
bool is_streamed(const KernelProgram& p, const Stage& s) {
  if (s.kind != Stage::Kind::kCopy) return false;
  const Place& to = p.places[at(s.to)];
  if (to.section < 0 && to.layout != LayoutId::kSyncA && to.layout != LayoutId::kSyncB && s.path != PathId::kSame) return false;
  if (s.path == PathId::kLd && to.section >= 0) return false;   // what is computed of it lies there, too
  return std::any_of(p.splits.begin(), p.splits.end(), [&](const Split& x) {
    return x.reduced && (has(p, to.value, x.index) || has(p, to.value, x.outer));
  });
}

}  // namespace

std::vector<int> streamed_params(const KernelProgram& p, IndexId without) {
  std::vector<int> out;
  for (const Stage& s : p.stages)
    if (is_streamed(p, s) && !has(p, p.places[at(s.to)].value, without))
      out.push_back(p.body.def_form<Input>(p.places[at(s.to)].value)->param);
  return out;
}

void keep_streamed(KernelProgram& p, bool keep) {
  const auto columns = std::find_if(p.splits.begin(), p.splits.end(), [](const Split& s) { return !s.reduced && s.tile > 1; });
  if (columns == p.splits.end()) return;
  for (Stage& s : p.stages)
    if (is_streamed(p, s) && s.path == PathId::kTma && has(p, p.places[at(s.to)].value, columns->index)) s.evict_first = !keep;
}

}  // namespace mirage::schedule

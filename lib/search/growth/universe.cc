// Closure under operators; see universe.h.
#include "search/growth/universe.h"
#include <algorithm>

namespace mirage::search {

constexpr int64_t kDerivationBytes = 96;   // with its operands and its places in tables; about, measured

Universe::Universe(BlockValues& values, size_t num_targets, int64_t max_values, Meter& meter)
    : values_(values), max_values_(max_values), meter_(meter), targets_(num_targets, -1) {
  for (int id : values.loads()) note(id, 0);
  for (int id : values.constants()) note(id, 0);
}

void Universe::note(int id, int level) {
  if (static_cast<size_t>(id) >= level_.size()) level_.resize(static_cast<size_t>(id) + 1, -1);
  int& known = level_[static_cast<size_t>(id)];
  if (known >= 0) return;   // levels ascend, so the first is the least
  known = level;
  if (static_cast<size_t>(level) >= fresh_.size()) fresh_.resize(static_cast<size_t>(level) + 1);
  fresh_[static_cast<size_t>(level)].push_back(id);
  if (const int t = values_.target_of(id); t >= 0 && targets_[static_cast<size_t>(t)] < 0) targets_[static_cast<size_t>(t)] = id;
}

/// Two different new values, neither of which can be made of the other at the same level, are two ideas.
int Universe::base_level(int a, int b) const {
  const int la = level_[static_cast<size_t>(a)], lb = level_[static_cast<size_t>(b)];
  const bool two = a != b && la == lb && !values_.value(a).is_known() && !values_.value(b).is_known();
  return std::max(la, lb) + two;
}

void Universe::derive(int op, std::span<const int> operands, int base) {
  if (values_.size() >= max_values_) { capped_ = true; return; }
  const int result = values_.apply(op, operands);
  if (result < 0) return;
  if (std::find(operands.begin(), operands.end(), result) != operands.end()) return;   // changes nothing
  if (!meter_.charge(kDerivationBytes)) return;
  note(result, base + values_.is_idea(op, result));
  derivations_.push_back({op, {operands.begin(), operands.end()}, result});
  const Op& form = values_.operators()[static_cast<size_t>(op)].op;
  if (std::holds_alternative<MatMul>(form)) {
    if (static_cast<size_t>(result) >= products_.size()) products_.resize(static_cast<size_t>(result) + 1);
    products_[static_cast<size_t>(result)].push_back({operands[0], operands[1]});
  }
  if (const auto* m = std::get_if<Map>(&form); m && m->fn == MapFn::kAdd) concat(result, operands);
}

/// A sum of two products is one product of concatenations.
void Universe::concat(int sum, std::span<const int> products) {
  int op = -1;
  for (size_t i = 0; i < values_.operators().size(); i++) if (values_.operators()[i].is_concat) op = static_cast<int>(i);
  const auto a = static_cast<size_t>(products[0]), b = static_cast<size_t>(products[1]);
  if (op < 0 || a == b || a >= products_.size() || b >= products_.size()) return;
  for (auto [w, y] : products_[a])
    for (auto [x, z] : products_[b]) {
      const BlockValue &left = values_.value(w), &right = values_.value(x), &top = values_.value(y), &bottom = values_.value(z);
      bool fits = left.tags.size() == right.tags.size() && left.phase == right.phase && top.phase == bottom.phase;
      for (size_t d = 0; fits && d + 1 < left.tags.size(); d++) fits = left.tags[d] == right.tags[d];
      for (size_t d = 0; fits && d < top.tags.size(); d++) fits = d + 2 == top.tags.size() || top.tags[d] == bottom.tags[d];
      if (fits) derivations_.push_back({op, {w, x, y, z}, sum});
    }
}

void Universe::combine(int a, int b) {
  const int base = base_level(a, b);
  for (int op = 0; op < static_cast<int>(values_.operators().size()); op++) {
    const BlockOp& o = values_.operators()[static_cast<size_t>(op)];
    if (o.arity != 2) continue;
    derive(op, {std::min(a, b), std::max(a, b)}, base);
    if (!o.commutative && a != b) derive(op, {std::max(a, b), std::min(a, b)}, base);
  }
}

/// Functions of three operands (clamp, where): one may be new, two are of the program.
void Universe::triples(int id) {
  for (int op = 0; op < static_cast<int>(values_.operators().size()); op++) {
    if (values_.operators()[static_cast<size_t>(op)].arity != 3) continue;
    std::vector<int> others;
    for (int p : processed_) if (level_[static_cast<size_t>(p)] == 0) others.push_back(p);
    const int level = level_[static_cast<size_t>(id)];
    for (int x : others)
      for (int y : others) {
        if (capped_ || meter_.done()) return;
        derive(op, {id, x, y}, level);
        if (x != id) derive(op, {x, id, y}, level);
        if (x != id && y != id) derive(op, {x, y, id}, level);
      }
  }
}

void Universe::visit(int id) {
  processed_.push_back(id);
  for (int op = 0; op < static_cast<int>(values_.operators().size()); op++)
    if (values_.operators()[static_cast<size_t>(op)].arity == 1) derive(op, {id}, level_[static_cast<size_t>(id)]);
  triples(id);
  for (size_t i = 0; i < processed_.size() && !capped_ && !meter_.done(); i++) {
    const int other = processed_[i], base = base_level(id, other);
    if (base <= ideas_) { combine(id, other); continue; }
    if (static_cast<size_t>(base) >= late_.size()) late_.resize(static_cast<size_t>(base) + 1);
    if (meter_.charge(sizeof(Pair))) late_[static_cast<size_t>(base)].push_back({id, other});
  }
}

bool Universe::close_to(int ideas) {
  ideas_ = ideas;
  if (static_cast<size_t>(ideas) < late_.size()) {
    std::vector<Pair> late;
    late.swap(late_[static_cast<size_t>(ideas)]);
    for (const Pair& p : late) { if (capped_ || meter_.done()) return false; combine(p.a, p.b); }
  }
  for (int level = 0; level <= ideas; level++)
    for (size_t i = 0; static_cast<size_t>(level) < fresh_.size() && i < fresh_[static_cast<size_t>(level)].size(); i++) {
      if (capped_ || meter_.done()) return false;
      const int id = fresh_[static_cast<size_t>(level)][i];
      if (std::find(processed_.begin(), processed_.end(), id) == processed_.end()) visit(id);
    }
  if (capped_ || meter_.done()) return false;
  return std::all_of(targets_.begin(), targets_.end(), [&](int t) { return t >= 0 && level_[static_cast<size_t>(t)] <= ideas; });
}

std::vector<Derivation> Universe::useful() const {
  std::vector<bool> needed(level_.size());
  for (int t : targets_) needed[static_cast<size_t>(t)] = true;
  auto within = [&](const Derivation& d) {
    if (level_[static_cast<size_t>(d.result)] > ideas_) return false;
    int base = 0;
    for (int id : d.operands) base = std::max(base, level_[static_cast<size_t>(id)]);
    if (d.operands.size() == 4) return base <= ideas_;
    if (d.operands.size() == 2) base = std::max(base, base_level(d.operands[0], d.operands[1]));
    return base + values_.is_idea(d.op, d.result) <= ideas_;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (const Derivation& d : derivations_) {
      if (!needed[static_cast<size_t>(d.result)] || !within(d)) continue;
      for (int id : d.operands) if (!needed[static_cast<size_t>(id)]) needed[static_cast<size_t>(id)] = changed = true;
    }
  }
  std::vector<Derivation> out;
  for (const Derivation& d : derivations_) if (needed[static_cast<size_t>(d.result)] && within(d)) out.push_back(d);
  return out;
}

}  // namespace mirage::search

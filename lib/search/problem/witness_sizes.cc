// Extents for the atoms of a program's dimensions, small and apart; see witness.h.
#include <algorithm>
#include <map>
#include <set>

#include "mirage/support/round.h"
#include "search/problem/witness.h"

namespace mirage {

namespace {

using search::DimClasses;

/// Of one value: evaluating candidates shall take microseconds to milliseconds.
constexpr int64_t kMaxElements = 100'000;

std::set<int64_t> literals_of(const Graph& g) {
  std::set<int64_t> out;
  for (const Node& n : g.nodes())
    if (const auto* c = std::get_if<Const>(&n.op); c && c->extent_of.empty())
      if (const auto i = whole_number(c->value)) out.insert(*i);
  return out;
}

/// Whether the inputs' extents are the program's own and other values' are not (16 elements that are cut elsewhere): who looks up a slice
/// by its inputs' types could not tell the two apart.
bool is_own_by_chance(const Graph& g, const DimClasses& classes, const std::vector<int64_t>& extent) {
  bool all_inputs = true, all = true;
  for (ValueId v = 0; v < g.num_values(); v++)
    for (int d = 0; d < g.dims(v).rank(); d++)
      if (const int c = classes.of[static_cast<size_t>(v)][static_cast<size_t>(d)]; c >= 0 && classes.extent(c, extent) != g.dims(v)[d]) {
        all = false;
        if (g.def_form<Input>(v)) all_inputs = false;
      }
  return all_inputs && !all;
}

/// Extents of atoms. Frequent ones get small extents. Variant 0: even, so that halves are even splits; what is summed can be halved twice,
/// by the grid and the loop. Variant 1: odd, so that tiles of half, rounded up, leave a tail and no empty block.
class WitnessSizes {
 public:
  WitnessSizes(const Graph& g, const DimClasses& classes, int variant)
      : g_(g),
        classes_(classes),
        variant_(variant),
        summed_(static_cast<size_t>(classes.atoms)),
        by_use_(summed_.size()),
        extent_(summed_.size()),
        taken_(literals_of(g)) {
    for (NodeId n = 0; n < g.num_nodes(); n++) {
      if (g.form<MatMul>(n)) note_sum(g.node(n).operands[0], g.dims(g.node(n).operands[0]).rank() - 1);
      if (const auto* r = g.form<Reduce>(n)) note_sum(g.node(n).operands[0], r->dim);
    }
    for (size_t a = 0; a < by_use_.size(); a++) by_use_[a] = {0, static_cast<int>(a)};
    for (const auto& of : classes.of)
      for (int c : of) if (c >= 0) for (int a : atoms_of(c)) by_use_[static_cast<size_t>(a)].first--;
    std::sort(by_use_.begin(), by_use_.end());
    taken_.insert(classes.pinned.begin(), classes.pinned.end());
  }
  const std::vector<int64_t>& extents() const { return extent_; }

  /// All that may differ differs. May fail to come apart, and to be small.
  bool all_differ() {
    for (int64_t shift = 0; shift < 8; shift++) {
      int64_t next_summed = variant_ == 0 ? 8 : 7, next_other = variant_ == 0 ? 6 : 5;
      for (auto [uses, a] : by_use_) {
        if (const int64_t own = classes_.pinned[static_cast<size_t>(a)]; own > 0) { extent_[static_cast<size_t>(a)] = own; continue; }
        int64_t& next = summed_[static_cast<size_t>(a)] ? next_summed : next_other;
        while (taken_.count(next)) next += 4;
        extent_[static_cast<size_t>(a)] = next;
        next += 4 * (1 + (a + 1) * shift % 4);
      }
      if (are_apart() && !is_own_by_chance(g_, classes_, extent_)) return true;
    }
    return false;
  }
  /// Only what meets in an operator differs: a long program has as many small extents as its widest operator has dimensions.
  bool neighbours_differ() {
    for (int64_t step : {4, 2}) {   // apart as above, then as close as they may be
      std::map<int, std::set<int64_t>> not_for;   // extents that made a sum or a product the same as another dimension beside it
      for (int tries = 0; tries < 64; tries++) {
        colour(step, not_for);
        const int clash = clashing_atom();
        if (clash < 0 && is_small() && !is_own_by_chance(g_, classes_, extent_)) return true;
        if (clash < 0 || classes_.pinned[static_cast<size_t>(clash)] > 0) break;
        not_for[clash].insert(extent_[static_cast<size_t>(clash)]);
      }
    }
    return false;
  }
  bool is_small() const {
    for (ValueId v = 0; v < g_.num_values(); v++) {
      int64_t elements = 1;
      for (int c : classes_.of[static_cast<size_t>(v)]) if (c >= 0 && elements <= kMaxElements) elements *= classes_.extent(c, extent_);
      if (elements > kMaxElements) return false;
    }
    return true;
  }

 private:
  std::vector<int> atoms_of(int cls) const {
    std::vector<int> all = classes_.classes[static_cast<size_t>(cls)].segments;
    for (int f : classes_.classes[static_cast<size_t>(cls)].factors) for (int a : atoms_of(f)) all.push_back(a);
    return all;
  }
  void note_sum(ValueId v, int d) {
    if (const int c = classes_.of[static_cast<size_t>(v)][static_cast<size_t>(d)]; c >= 0)
      for (int a : atoms_of(c)) summed_[static_cast<size_t>(a)] = true;
  }
  /// Equal for classes that are equal at all extents (two concatenations of the same lengths).
  std::string term(int cls) const {
    const DimClasses::Class& c = classes_.classes[static_cast<size_t>(cls)];
    std::vector<std::string> parts;
    for (int a : c.segments) parts.push_back(std::to_string(a));
    for (int f : c.factors) parts.push_back("(" + term(f) + ")");
    std::sort(parts.begin(), parts.end());
    std::string out = c.factors.empty() ? "" : std::to_string(c.times) + "*";
    for (const std::string& p : parts) out += p + ",";
    return out;
  }
  bool are_apart() const {
    std::set<int64_t> different, own;
    std::set<std::string> terms;
    for (int c = 0; c < classes_.count; c++) {
      (classes_.is_pinned(c) ? own : different).insert(classes_.extent(c, extent_));
      if (!classes_.is_pinned(c)) terms.insert(term(c));
    }
    return different.size() == terms.size() && std::none_of(own.begin(), own.end(), [&](int64_t e) { return different.count(e) > 0; });
  }
  /// Classes of what meets at a node.
  std::set<int> at_node(const Node& n) const {
    std::set<int> out;
    const auto add = [&](ValueId v) { for (int c : classes_.of[static_cast<size_t>(v)]) if (c >= 0) out.insert(c); };
    for (ValueId v : n.operands) add(v);
    for (int i = 0; i < n.num_values; i++) add(n.first_value + i);
    return out;
  }
  void colour(int64_t step, const std::map<int, std::set<int64_t>>& not_for) {
    std::vector<std::set<int>> near(extent_.size());
    for (const Node& n : g_.nodes()) {
      std::set<int> atoms;
      for (int c : at_node(n)) for (int a : atoms_of(c)) atoms.insert(a);
      for (int a : atoms) near[static_cast<size_t>(a)].insert(atoms.begin(), atoms.end());
    }
    std::fill(extent_.begin(), extent_.end(), 0);
    for (const auto& use : by_use_) {
      const int a = use.second;
      int64_t& e = extent_[static_cast<size_t>(a)];
      if (const int64_t own = classes_.pinned[static_cast<size_t>(a)]; own > 0) { e = own; continue; }
      const bool summed = summed_[static_cast<size_t>(a)];
      const auto bad = not_for.find(a);
      int64_t next = step == 4 ? (summed ? 8 : 6) - variant_ : (summed ? 4 : 6) - variant_;
      const std::set<int>& beside = near[static_cast<size_t>(a)];
      const auto is_used = [&](int64_t x) {
        return taken_.count(x) > 0 || (bad != not_for.end() && bad->second.count(x) > 0) ||
               std::any_of(beside.begin(), beside.end(), [&](int o) { return extent_[static_cast<size_t>(o)] == x; });
      };
      while (is_used(next)) next += summed ? 4 : step;
      e = next;
    }
  }
  /// An atom of a dimension that is as long as another one at the same node, of another term; -1: there is none.
  int clashing_atom() const {
    for (const Node& n : g_.nodes()) {
      std::map<int64_t, int> known;
      for (int c : at_node(n)) {
        const auto [it, is_new] = known.try_emplace(classes_.extent(c, extent_), c);
        if (is_new || term(c) == term(it->second)) continue;
        for (int of : {c, it->second})
          for (int a : atoms_of(of)) if (classes_.pinned[static_cast<size_t>(a)] == 0) return a;
        return atoms_of(c)[0];
      }
    }
    return -1;
  }

  const Graph& g_;
  const DimClasses& classes_;
  const int variant_;
  std::vector<bool> summed_;
  std::vector<std::pair<int, int>> by_use_;
  std::vector<int64_t> extent_;
  std::set<int64_t> taken_;
};

}  // namespace

Witness make_witness(const Program& program, int variant, int parts, search::Tied tied, const search::Alike& alike) {
  Witness out;
  const Graph& g = program.graph;
  const DimClasses classes = search::dim_classes(g, parts, tied, alike);
  if (!classes.refusal.empty()) { out.refusal = classes.refusal; return out; }
  WitnessSizes sizes(g, classes, variant);
  const bool apart = sizes.all_differ(), small = sizes.is_small();
  std::vector<int64_t> extents = sizes.extents();
  if (tied == search::Tied::kRefused && !(apart && small)) {   // with pinned dimensions nothing is evaluated
    if (parts == 0 && sizes.neighbours_differ()) extents = sizes.extents();
    else if (!small)
      out.refusal = "too many dimensions: even a small example of a value would have over " + std::to_string(kMaxElements) + " elements";
    if (!out.refusal.empty()) return out;
  }
  auto w = search::with_extents(g, classes, extents);
  if (!w) { out.refusal = "the program does not follow a change of its extents"; return out; }
  for (const TensorInfo& t : program.inputs) out.params.push_back(t.type);
  for (NodeId n : w->inputs()) out.params[static_cast<size_t>(w->form<Input>(n)->param)] = w->type(w->node(n).first_value);
  out.graph = std::move(*w);
  return out;
}

std::shared_ptr<const Worlds> make_worlds(const Program& program, int parts) {
  const Witness even = make_witness(program, 0, parts), ragged = make_witness(program, 1, parts);
  if (!even.refusal.empty() || !ragged.refusal.empty()) return nullptr;
  std::vector<Type> own;
  for (const TensorInfo& t : program.inputs) own.push_back(t.type);
  return std::make_shared<const Worlds>(Worlds{{{even.params, even.graph}, {ragged.params, ragged.graph}, {own, program.graph}}});
}

}  // namespace mirage

// Witness extents; see witness.h.
#include "search/problem/witness.h"
#include <algorithm>
#include <numeric>
#include <set>

#include "search/problem/shifted.h"

namespace mirage {
namespace search {
namespace {

/// Union-find over the dimensions of all values.
class Ties {
 public:
  explicit Ties(const Graph& g) : graph_(g) {
    int n = 0;
    for (ValueId v = 0; v < g.num_values(); v++) { first_.push_back(n); n += g.dims(v).rank(); }
    parent_.resize(static_cast<size_t>(n));
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  int find(int x) {
    while (parent_[static_cast<size_t>(x)] != x)
      x = parent_[static_cast<size_t>(x)] = parent_[static_cast<size_t>(parent_[static_cast<size_t>(x)])];
    return x;
  }
  int at(ValueId v, int d) { return find(first_[static_cast<size_t>(v)] + d); }
  /// Ties two dimensions unless one has extent 1.
  void tie(ValueId a, int da, ValueId b, int db) {
    if (graph_.dims(a)[da] == 1 || graph_.dims(b)[db] == 1) return;
    const int x = at(a, da), y = at(b, db);
    parent_[static_cast<size_t>(std::max(x, y))] = std::min(x, y);
  }

 private:
  const Graph& graph_;
  std::vector<int> first_, parent_;
};

/// Part `part` of dimension `whole` begins at `at`, one of every `step`; or dimension `whole` is `times` the product of `factors`.
/// Dimensions are (value, dimension). joined: the concatenation.
struct Relation {
  std::pair<ValueId, int> whole;
  std::pair<ValueId, int> part{-1, -1};
  int64_t at = 0;
  std::vector<std::pair<ValueId, int>> factors;
  int64_t times = 1;
  int64_t step = 1;
  NodeId joined = -1;
};

constexpr size_t kMostCuts = 16, kMostCutsPinned = 160;   ///< of a dimension: 5 x 5 x 5 windows, one behind another

using Pins = std::vector<std::pair<ValueId, int>>;   ///< (value, dimension)

std::string tie_reshape(const Graph& g, NodeId n, Ties& ties, std::vector<Relation>& relations, Pins& pins) {
  const ValueId x = g.node(n).operands[0], r = g.node(n).first_value;
  const auto runs = reshape_runs(g.dims(x), g.dims(r));
  if (!runs) {   // equal dimensions in front stay tied, the rest keeps its extents
    int same = 0;
    for (; same < std::min(g.dims(x).rank(), g.dims(r).rank()) && g.dims(x)[same] == g.dims(r)[same]; same++) ties.tie(x, same, r, same);
    for (int d = same; d < g.dims(x).rank(); d++) pins.push_back({x, d});
    for (int d = same; d < g.dims(r).rank(); d++) pins.push_back({r, d});
    return "reshape that splits and joins dimensions at once";
  }
  for (const Run& run : *runs) {
    if (run.from.size() == 1 && run.to.size() == 1) { ties.tie(x, run.from[0], r, run.to[0]); continue; }
    Relation rel;
    rel.whole = run.from.size() == 1 ? std::pair{x, run.from[0]} : std::pair{r, run.to[0]};
    for (int d : run.from.size() == 1 ? run.to : run.from) rel.factors.push_back({run.from.size() == 1 ? r : x, d});
    relations.push_back(rel);
  }
  return "";
}

/// Ties what the node forces equal; a refusal if its extents cannot be chosen freely, and which ones, if there are others (`pins`).
/// may_pin: windows have relations of their own. of_constants: its operands are made of constants (padding).
std::string tie_node(const Graph& g, NodeId n, Ties& ties, std::vector<Relation>& relations, Pins& pins, bool may_pin, bool of_constants) {
  const Node& node = g.node(n);
  if (node.first_value < 0) return "";
  const ValueId r = node.first_value;
  const int rank = g.dims(r).rank();
  if (g.form<Map>(n)) {
    for (ValueId v : node.operands)
      for (int d = 0; d < g.dims(v).rank(); d++) ties.tie(v, d, r, d + rank - g.dims(v).rank());
  } else if (g.form<MatMul>(n)) {
    for (ValueId v : node.operands)
      for (int d = 0; d < rank - 2; d++) ties.tie(v, d, r, d);
    ties.tie(node.operands[0], rank - 2, r, rank - 2);
    ties.tie(node.operands[1], rank - 1, r, rank - 1);
    ties.tie(node.operands[0], rank - 1, node.operands[1], rank - 2);
  } else if (const auto* red = g.form<Reduce>(n)) {
    const ValueId x = node.operands[0];
    for (int d = 0; d < rank; d++) if (d != red->dim) ties.tie(x, d, r, d);
    if (red->group != 0 && red->group != g.dims(x)[red->dim]) {
      pins = {{x, red->dim}, {r, red->dim}};
      return "reduction over groups of a dimension";
    }
  } else if (const auto* t = g.form<Transpose>(n)) {
    for (int d = 0; d < rank; d++) ties.tie(node.operands[0], t->perm[static_cast<size_t>(d)], r, d);
  } else if (g.form<Reshape>(n)) {
    return tie_reshape(g, n, ties, relations, pins);
  } else if (const auto* s = g.form<Slice>(n)) {
    const ValueId x = node.operands[0];
    const bool whole = s->step == 1 && g.dims(r)[s->dim] == g.dims(x)[s->dim];
    for (int d = 0; d < rank; d++)
      if (d != s->dim || whole) ties.tie(x, d, r, d);
    if (whole) return "";
    const bool is_cut = s->step == 1 || g.dims(r)[s->dim] == 1;
    const bool divides = s->start < s->step && g.dims(x)[s->dim] == s->step * g.dims(r)[s->dim];
    if (is_cut || (may_pin && !divides)) {
      relations.push_back({{x, s->dim}, {r, s->dim}, s->start, {}, 1, is_cut ? 1 : s->step});
      return "";
    }
    if (divides) {   // one of every `step`
      relations.push_back({{x, s->dim}, {-1, -1}, 0, {{r, s->dim}}, s->step});
      return "";
    }
    pins = {{x, s->dim}, {r, s->dim}};
    return "slice with a step that does not divide its dimension";
  } else if (const auto* c = g.form<Concat>(n)) {
    int64_t start = 0;
    for (ValueId v : node.operands) {
      for (int d = 0; d < rank; d++) if (d != c->dim) ties.tie(v, d, r, d);
      if (g.dims(r)[c->dim] > 1) relations.push_back({{r, c->dim}, {v, c->dim}, start, {}, 1, 1, n});
      start += g.dims(v)[c->dim];
    }
  } else if (const auto* p = g.form<Repeat>(n)) {
    for (int d = 0; d < rank; d++) if (d != p->dim) ties.tie(node.operands[0], d, r, d);
    if (may_pin && of_constants && g.dims(node.operands[0])[p->dim] == 1) return "";   // as often as there is room
    pins = {{node.operands[0], p->dim}, {r, p->dim}};
    return form_name(node.op);
  } else if (!g.form<Input>(n) && !g.form<Const>(n) && !g.form<Iota>(n)) {
    return form_name(node.op);
  }
  return "";
}

/// Classes with their terms, from the ties and relations of all nodes.
class Terms {
 public:
  Terms(const Graph& g, Ties& ties, std::vector<Relation> relations, const Pins& pins, bool may_pin, DimClasses& out)
      : g_(g), ties_(ties), relations_(std::move(relations)), pins_(pins), may_pin_(may_pin), out_(out) {}
  /// What a refusal was about: pinned, it is none.
  Pins run() {
    drop_pinned();
    tie_products();
    drop_pinned();   // what is tied to a pinned dimension is one
    number();
    if (out_.refusal.empty() && may_pin_) shift();
    if (out_.refusal.empty()) cut();
    if (out_.refusal.empty()) unite();
    return about_;
  }

 private:
  bool is_pinned(const std::pair<ValueId, int>& d) {
    return std::any_of(pins_.begin(), pins_.end(), [&](const auto& p) { return root(p) >= 0 && root(p) == root(d); });
  }
  /// Whatever a pinned dimension is cut into, or a part of, or made of, is pinned, too, and no longer follows; a product with a pinned
  /// factor still does.
  void drop_pinned() {
    for (bool changed = !pins_.empty(); changed;) {
      changed = false;
      for (size_t i = 0; i < relations_.size(); i++) {
        const Relation r = relations_[i];
        Pins all{r.whole};
        if (r.factors.empty()) all.push_back(r.part);
        if (std::none_of(all.begin(), all.end(), [&](const auto& d) { return is_pinned(d); })) continue;
        all.insert(all.end(), r.factors.begin(), r.factors.end());
        pins_.insert(pins_.end(), all.begin(), all.end());
        relations_.erase(relations_.begin() + static_cast<std::ptrdiff_t>(i));
        changed = true;
        break;
      }
    }
  }
  int root(const std::pair<ValueId, int>& d) { return g_.dims(d.first)[d.second] == 1 ? -1 : ties_.at(d.first, d.second); }
  /// One dimension that two reshapes split alike: the factors are tied. Products of the same factors are tied as well: no extents tell them
  /// apart.
  void tie_products() {
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < relations_.size(); i++)
        for (size_t j = 0; j < relations_.size(); j++) {   // there may be more of them after each
          const Relation &a = relations_[i], &b = relations_[j];
          if (a.factors.empty() || b.factors.empty()) continue;
          if (root(a.whole) != root(b.whole)) {   // the same factors make the same product
            if (a.times != b.times || a.factors.size() != b.factors.size() ||
                !std::equal(a.factors.begin(), a.factors.end(), b.factors.begin(),
                            [&](const auto& x, const auto& y) { return root(x) == root(y); }))
              continue;
            ties_.tie(a.whole.first, a.whole.second, b.whole.first, b.whole.second);
            changed = true;
            continue;
          }
          const std::optional<bool> is_new = tie_factors(a, b);
          if (!is_new) return refuse("a dimension that is split in two ways", relations_[i].whole);
          changed = changed || *is_new;
        }
    }
  }
  /// Ties the factors of one dimension that two reshapes split. Where dimensions may keep extents, a factor of one may be a product of
  /// several of the other: a relation of its own, at most one for a dimension and a number of factors. Whether any of it is new; none: they
  /// are not alike.
  std::optional<bool> tie_factors(const Relation& a, const Relation& b) {
    if (a.times != b.times) return std::nullopt;
    const auto extents = [&](const Relation& r) {
      Dims out;
      for (const auto& f : r.factors) out.push_back(extent_of(f));
      return out;
    };
    const auto runs = reshape_runs(extents(a), extents(b));
    if (!runs) return std::nullopt;
    const Relation x = a, y = b;   // what is added moves them
    bool is_new = false;
    for (const Run& run : *runs) {
      const bool joins = run.to.size() == 1;
      const auto& whole = joins ? y.factors[static_cast<size_t>(run.to[0])] : x.factors[static_cast<size_t>(run.from[0])];
      if (run.from.size() == 1 && joins) {
        const auto& same = x.factors[static_cast<size_t>(run.from[0])];
        if (root(same) != root(whole)) ties_.tie(same.first, same.second, whole.first, whole.second), is_new = true;
        continue;
      }
      if (!may_pin_) return std::nullopt;
      Relation r{whole, {-1, -1}, 0, {}};
      for (int f : joins ? run.from : run.to) r.factors.push_back((joins ? x : y).factors[static_cast<size_t>(f)]);
      const bool known = std::any_of(relations_.begin(), relations_.end(), [&](const Relation& o) {
        return root(o.whole) == root(r.whole) && o.factors.size() == r.factors.size();
      });
      if (!known) relations_.push_back(r), is_new = true;
    }
    return is_new;
  }
  void number() {
    std::vector<int> roots;   // in order of first occurrence
    for (ValueId v = 0; v < g_.num_values(); v++) {
      auto& of = out_.of.emplace_back();
      for (int d = 0; d < g_.dims(v).rank(); d++) {
        if (g_.dims(v)[d] == 1) { of.push_back(-1); continue; }
        const int r = ties_.at(v, d);
        auto it = std::find(roots.begin(), roots.end(), r);
        if (it == roots.end()) { roots.push_back(r); extents_.push_back(g_.dims(v)[d]); it = roots.end() - 1; }
        of.push_back(static_cast<int>(it - roots.begin()));
      }
    }
    out_.count = static_cast<int>(roots.size());
    out_.classes.resize(roots.size());
    for (const Relation& r : relations_) {
      if (r.factors.empty()) continue;
      auto& factors = out_.classes[static_cast<size_t>(cls(r.whole))].factors;
      factors.clear();
      out_.classes[static_cast<size_t>(cls(r.whole))].times = r.times;
      for (const auto& f : r.factors) factors.push_back(cls(f));
    }
  }
  void refuse(const std::string& why, const std::pair<ValueId, int>& about) {
    out_.refusal = why;
    about_.push_back(about);
  }
  void refuse(const std::string& why, size_t c) {
    for (ValueId v = 0; v < g_.num_values(); v++)
      for (int d = 0; d < g_.dims(v).rank(); d++)
        if (cls({v, d}) == static_cast<int>(c)) return refuse(why, std::pair{v, d});
  }
  int cls(const std::pair<ValueId, int>& d) const { return out_.of[static_cast<size_t>(d.first)][static_cast<size_t>(d.second)]; }
  /// Windows: their classes get terms of their own, and are neither cut nor united with others. What is left of strides is refused.
  void shift() {
    std::vector<PartOf> parts;
    std::vector<std::vector<int>> factors(out_.classes.size());
    for (const Relation& r : relations_) {
      if (r.factors.size() == 1 && r.times > 1)
        parts.push_back({cls(r.whole), cls(r.factors[0]), 0, extent_of(r.factors[0]), r.times, -1});
      else if (!r.factors.empty()) factors[static_cast<size_t>(cls(r.whole))] = out_.classes[static_cast<size_t>(cls(r.whole))].factors;
      else parts.push_back({cls(r.whole), cls(r.part), r.at, extent_of(r.part), r.step, r.joined});
    }
    std::vector<int> keep;
    shifted_ = shifted_classes(extents_, factors, parts, keep);
    pin(keep);
    dissolve_pinned();   // what one group keeps (the rotated part of a head) may be cut by another's windows
    const auto is_shifted = [&](const std::pair<ValueId, int>& d) {
      return cls(d) >= 0 && shifted_[static_cast<size_t>(cls(d))].group >= 0;
    };
    for (const Relation& r : relations_) {
      if (r.step > 1 && !is_shifted(r.whole))
        for (const auto& d : {r.whole, r.part}) refuse("slice with a step that does not divide its dimension", d);
      if (!r.factors.empty() && is_shifted(r.whole)) out_.classes[static_cast<size_t>(cls(r.whole))] = {};
    }
    std::erase_if(relations_, [&](const Relation& r) { return is_shifted(r.whole); });
    for (std::vector<int> more{-1}; !more.empty();) {   // relations of windows are gone: what is left of their groups keeps its extents
      drop_pinned();
      more = dissolve_pinned();
      pin(more);
    }
    for (const auto& p : pins_)   // what keeps its extent is no product any more
      if (const int c = cls(p); c >= 0) out_.classes[static_cast<size_t>(c)].factors.clear();
  }
  /// A window that keeps its extent (what an iota is written for, say) keeps those of its whole group: the classes that no longer follow.
  std::vector<int> dissolve_pinned() {
    std::vector<int> out;
    for (const auto& p : pins_) {
      const int group = cls(p) < 0 ? -1 : shifted_[static_cast<size_t>(cls(p))].group;
      for (size_t c = 0; group >= 0 && c < shifted_.size(); c++)
        if (shifted_[c].group == group) shifted_[c] = {}, out.push_back(static_cast<int>(c));
    }
    return out;
  }
  void pin(const std::vector<int>& classes) {
    for (ValueId v = 0; v < g_.num_values() && !classes.empty(); v++)
      for (int d = 0; d < g_.dims(v).rank(); d++)
        if (std::find(classes.begin(), classes.end(), cls({v, d})) != classes.end()) pins_.push_back({v, d});
  }
  int64_t extent_of(const std::pair<ValueId, int>& d) const { return g_.dims(d.first)[d.second]; }
  /// The terms of shifted classes: what the group shares, and an atom that keeps its extent.
  void put_shifted() {
    std::vector<int> shared;
    for (size_t c = 0; c < shifted_.size(); c++) {
      const Shifted& s = shifted_[c];
      if (s.group < 0) continue;
      if (shared.size() <= static_cast<size_t>(s.group)) shared.resize(static_cast<size_t>(s.group) + 1, -1);
      int& atom = shared[static_cast<size_t>(s.group)];
      if (atom < 0) atom = out_.atoms++, out_.pinned.push_back(0);
      auto& of = out_.classes[c];
      of.is_shifted = true;
      of.segments.assign(static_cast<size_t>(s.times), atom);
      of.cuts.clear();
      for (int64_t i = 1; i < s.times + (s.rest > 0); i++) of.cuts.push_back(i * ((extents_[c] - s.rest) / s.times));
      if (s.rest > 0) of.segments.push_back(out_.atoms++), out_.pinned.push_back(s.rest);
    }
  }
  /// Cut points travel between wholes and parts.
  void cut() {
    std::vector<std::set<int64_t>> cuts(out_.classes.size());
    for (bool changed = true; changed && out_.refusal.empty();) {
      changed = false;
      for (const Relation& r : relations_) {
        if (!r.factors.empty()) continue;
        std::set<int64_t> one;   // a part of one element has no cuts
        auto &whole = cuts[static_cast<size_t>(cls(r.whole))], &part = cls(r.part) < 0 ? one : cuts[static_cast<size_t>(cls(r.part))];
        const int64_t extent = g_.dims(r.part.first)[r.part.second], end = r.at + extent;
        auto add = [&](std::set<int64_t>& to, int64_t x, int64_t limit) { if (x > 0 && x < limit) changed |= to.insert(x).second; };
        add(whole, r.at, extents_[static_cast<size_t>(cls(r.whole))]);
        add(whole, end, extents_[static_cast<size_t>(cls(r.whole))]);
        for (int64_t x : std::set<int64_t>(part)) add(whole, x + r.at, extents_[static_cast<size_t>(cls(r.whole))]);
        for (int64_t x : std::set<int64_t>(whole)) add(part, x - r.at, extent);
        if (std::max(whole.size(), part.size()) > (may_pin_ ? kMostCutsPinned : kMostCuts)) refuse("slices in too many places", r.whole);
      }
    }
    for (size_t c = 0; c < cuts.size(); c++) {
      out_.classes[c].cuts.assign(cuts[c].begin(), cuts[c].end());
      if (!cuts[c].empty() && !out_.classes[c].factors.empty()) refuse("a dimension that is joined and cut", c);
    }
  }
  /// One atom for all segments that must be equal.
  void unite() {
    std::vector<int> first, parent;
    for (const auto& c : out_.classes) {
      first.push_back(static_cast<int>(parent.size()));
      for (size_t i = 0; i <= c.cuts.size(); i++) parent.push_back(static_cast<int>(parent.size()));
    }
    auto find = [&](int x) { while (parent[static_cast<size_t>(x)] != x) x = parent[static_cast<size_t>(x)]; return x; };
    std::vector<int> ones;   // segments of one element, whatever else changes
    for (const Relation& r : relations_) {
      if (!r.factors.empty()) continue;
      const auto w = static_cast<size_t>(cls(r.whole));
      const auto& cuts = out_.classes[w].cuts;
      const int skip = static_cast<int>(std::upper_bound(cuts.begin(), cuts.end(), r.at) - cuts.begin());
      if (cls(r.part) < 0) { ones.push_back(first[w] + skip); continue; }
      const auto p = static_cast<size_t>(cls(r.part));
      for (size_t i = 0; i <= out_.classes[p].cuts.size(); i++) {
        const int a = find(first[w] + skip + static_cast<int>(i)), b = find(first[p] + static_cast<int>(i));
        parent[static_cast<size_t>(std::max(a, b))] = std::min(a, b);
      }
    }
    std::vector<int> atoms;
    for (size_t c = 0; c < out_.classes.size(); c++) {
      if (!out_.classes[c].factors.empty() || (!shifted_.empty() && shifted_[c].group >= 0)) continue;
      for (size_t i = 0; i <= out_.classes[c].cuts.size(); i++) {
        const int r = find(first[c] + static_cast<int>(i));
        auto it = std::find(atoms.begin(), atoms.end(), r);
        if (it == atoms.end()) it = atoms.insert(atoms.end(), r);
        out_.classes[c].segments.push_back(static_cast<int>(it - atoms.begin()));
      }
    }
    out_.atoms = static_cast<int>(atoms.size());
    out_.pinned.resize(atoms.size());
    for (int o : ones) out_.pinned[static_cast<size_t>(std::find(atoms.begin(), atoms.end(), find(o)) - atoms.begin())] = 1;
    for (const auto& p : pins_)
      if (const int c = cls(p); c >= 0)
        out_.pinned[static_cast<size_t>(out_.classes[static_cast<size_t>(c)].segments[0])] = extents_[static_cast<size_t>(c)];
    put_shifted();
    for (size_t c = 0; c < out_.classes.size(); c++) {   // a factor may be a product itself, but no circle
      std::vector<int> below = out_.classes[c].factors;
      for (size_t i = 0; i < below.size() && i < 64; i++)
        for (int f : out_.classes[static_cast<size_t>(below[i])].factors) below.push_back(f);
      if (std::count(below.begin(), below.end(), static_cast<int>(c))) { refuse("a dimension that is a factor of itself", c); return; }
    }
  }
  const Graph& g_;
  Ties& ties_;
  std::vector<Relation> relations_;
  Pins pins_, about_;
  bool may_pin_;
  std::vector<Shifted> shifted_;   // by class
  DimClasses& out_;
  std::vector<int64_t> extents_;   // by class
};

}  // namespace

std::optional<Dims> unit_reshape(const Dims& operand, const Dims& pattern) {
  Dims out;
  int i = 0;
  auto skip = [&] { while (i < operand.rank() && operand[i] == 1) i++; };
  for (int64_t p : pattern) {
    if (p == 1) { out.push_back(1); continue; }
    skip();
    if (i == operand.rank()) return std::nullopt;
    out.push_back(operand[i++]);
  }
  skip();
  if (i != operand.rank()) return std::nullopt;
  return out;
}

std::optional<Dims> unit_reshape(const Dims& from, const Dims& to, const Dims& operand) {
  if (from.rank() != operand.rank()) return std::nullopt;
  Dims out;
  int i = 0;
  for (int64_t p : to) {
    if (p == 1) { out.push_back(1); continue; }
    while (i < from.rank() && from[i] == 1) i++;
    if (i == from.rank() || from[i] != p) return std::nullopt;
    out.push_back(operand[i++]);
  }
  while (i < from.rank() && from[i] == 1) i++;
  if (i != from.rank() || out.elements() != operand.elements()) return std::nullopt;
  return out;
}

double extent_value(const Const& c, const std::vector<Type>& params) {
  double v = 1;
  for (auto [param, dim] : c.extent_of) v *= static_cast<double>(params[static_cast<size_t>(param)].dims[dim]);
  return v;
}

/// Functions whose value says which of two numbers is larger, or how fine a number is: of extents that is another answer at every size.
static bool depends_on_size(MapFn fn) {
  switch (fn) {
    case MapFn::kLess:
    case MapFn::kGreater:
    case MapFn::kEqual:
    case MapFn::kMax:
    case MapFn::kMin:
    case MapFn::kClamp:
    case MapFn::kRelu:
    case MapFn::kAbs:
    case MapFn::kFloor: case MapFn::kCeil: case MapFn::kRound: case MapFn::kSign: case MapFn::kErf:
    case MapFn::kGelu:
    case MapFn::kGeluTanh:
    case MapFn::kTanh:
    case MapFn::kPow:
    case MapFn::kWhere:
    case MapFn::kCastF16:
    case MapFn::kCastBF16:
    case MapFn::kCastF32: return true;
    default: return false;
  }
}

/// dim_classes with some dimensions pinned; `about`: what a refusal was about that pinning mends.
static DimClasses classes_with(const Graph& g, int parts, Pins pins, bool may_pin, const Alike& same, Pins& about) {
  DimClasses out;
  Ties ties(g);
  std::vector<ValueId> alike;
  for (NodeId n : g.inputs()) if (g.form<Input>(n)->param >= g.num_params() - parts) alike.push_back(g.node(n).first_value);
  for (ValueId v : alike) ties.tie(alike[0], 0, v, 0);
  std::vector<ValueId> values(static_cast<size_t>(std::max(g.num_params(), 0)), -1);   // of params
  for (NodeId n : g.inputs()) values[static_cast<size_t>(g.form<Input>(n)->param)] = g.node(n).first_value;
  for (const auto& list : same)
    for (const auto& [param, dim] : list)
      if (const ValueId a = values[static_cast<size_t>(list[0].first)], b = values[static_cast<size_t>(param)]; a >= 0 && b >= 0)
        ties.tie(a, list[0].second, b, dim);
  std::vector<Relation> relations;
  // made of constants only; an extent is among them
  std::vector<bool> constant(static_cast<size_t>(g.num_values())), sized(constant.size());
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    Pins tied;
    const bool of_constants = std::all_of(g.node(n).operands.begin(), g.node(n).operands.end(),
                                          [&](ValueId v) { return constant[static_cast<size_t>(v)]; });
    out.refusal = tie_node(g, n, ties, relations, tied, may_pin, of_constants);
    if (!out.refusal.empty() && (tied.empty() || !may_pin)) return out;
    out.refusal.clear();
    pins.insert(pins.end(), tied.begin(), tied.end());
    const Node& node = g.node(n);
    if (node.first_value < 0 || g.form<Input>(n)) continue;
    bool all = true, any = false;
    for (ValueId v : node.operands) { all = all && constant[static_cast<size_t>(v)]; any = any || sized[static_cast<size_t>(v)]; }
    if (const auto* c = g.form<Const>(n)) any = !c->extent_of.empty();
    if (g.form<Reduce>(n) || g.form<MatMul>(n)) any = true;   // sums of constants count elements
    constant[static_cast<size_t>(node.first_value)] = all;
    sized[static_cast<size_t>(node.first_value)] = all && any;
    if (const auto* m = g.form<Map>(n); m && all && any && depends_on_size(m->fn)) {
      out.refusal = "comparison or rounding of extents";
      return out;
    }
  }
  const std::vector<NodeId> outputs = g.outputs();   // results of one shape stay results of one shape, so that they can share a grid
  for (NodeId a : outputs)
    for (NodeId b : outputs) {
      const ValueId x = g.node(a).operands[0], y = g.node(b).operands[0];
      if (a < b && g.dims(x) == g.dims(y)) for (int d = 0; d < g.dims(x).rank(); d++) ties.tie(x, d, y, d);
    }
  about = Terms(g, ties, std::move(relations), pins, may_pin, out).run();
  return out;
}

static std::optional<Graph> instance(const Graph& g, const DimClasses& classes, const std::vector<int64_t>& atoms, NodeId* refused);

/// What of a program does not follow when its extents change, though each operator does by itself: the dimensions of the first such node
/// that are not pinned yet; empty: all of it follows. refused: a node was met that pinning does not mend.
static Pins that_stays_behind(const Graph& g, const DimClasses& classes, bool& refused) {
  for (int64_t step : {2, 4}) {   // apart, so that what is equal by chance is not
    std::vector<int64_t> atoms;
    for (size_t a = 0; a < classes.pinned.size(); a++)
      atoms.push_back(classes.pinned[a] > 0 ? classes.pinned[a] : 5 + step * static_cast<int64_t>(a));
    NodeId n = -1;
    if (instance(g, classes, atoms, &n)) continue;
    Pins out;
    std::vector<ValueId> values = g.node(n).operands;
    values.push_back(g.node(n).first_value);
    for (ValueId v : values)
      for (int d = 0; v >= 0 && d < g.dims(v).rank(); d++)
        if (const int c = classes.of[static_cast<size_t>(v)][static_cast<size_t>(d)]; c >= 0 && !classes.is_pinned(c))
          out.push_back({v, d});
    refused = out.empty();
    return out;
  }
  return {};
}

DimClasses dim_classes(const Graph& g, int parts, Tied tied, const Alike& alike) {
  for (Pins pins;;) {
    Pins about;
    DimClasses out = classes_with(g, parts, pins, tied == Tied::kPinned, alike, about);
    if (tied == Tied::kRefused) return out;
    bool refused = false;
    if (about.empty() && out.refusal.empty()) about = that_stays_behind(g, out, refused);
    if (refused) out.refusal = "the program does not follow a change of its extents";
    if (about.empty()) return out;
    pins.insert(pins.end(), about.begin(), about.end());   // of finitely many dimensions: a pinned one is not refused again
  }
}

int64_t DimClasses::extent(int cls, const std::vector<int64_t>& atom_extents) const {
  const Class& c = classes[static_cast<size_t>(cls)];
  int64_t e = c.factors.empty() ? 0 : c.times;
  for (int f : c.factors) e *= extent(f, atom_extents);
  for (int a : c.segments) e += atom_extents[static_cast<size_t>(a)];
  return e;
}

std::optional<std::vector<Run>> reshape_runs(const Dims& from, const Dims& to) {
  std::vector<Run> out;
  int i = 0, j = 0;
  for (;;) {
    while (i < from.rank() && from[i] == 1) i++;
    while (j < to.rank() && to[j] == 1) j++;
    if (i == from.rank() && j == to.rank()) return out;
    if (i == from.rank() || j == to.rank()) return std::nullopt;
    Run run{{i}, {j}};
    int64_t x = from[i++], y = to[j++];
    while (x != y) {
      const bool grow_from = x < y;
      int& at = grow_from ? i : j;
      const Dims& dims = grow_from ? from : to;
      if (at == dims.rank()) return std::nullopt;
      (grow_from ? x : y) *= dims[at];
      if (dims[at] > 1) (grow_from ? run.from : run.to).push_back(at);
      at++;
    }
    if (run.from.size() > 1 && run.to.size() > 1) return std::nullopt;
    out.push_back(run);
  }
}

std::optional<Graph> with_extents(const Graph& g, const DimClasses& classes, const std::vector<int64_t>& atoms) {
  NodeId refused = -1;
  return instance(g, classes, atoms, &refused);
}

/// with_extents; `refused`: the node that has no instance.
static std::optional<Graph> instance(const Graph& g, const DimClasses& classes, const std::vector<int64_t>& atoms, NodeId* refused) {
  auto dims_of = [&](ValueId v) {
    Dims d;
    for (int c : classes.of[static_cast<size_t>(v)]) d.push_back(c < 0 ? 1 : classes.extent(c, atoms));
    return d;
  };
  std::vector<Type> params(static_cast<size_t>(std::max(g.num_params(), 0)));
  for (NodeId n : g.inputs())
    params[static_cast<size_t>(g.form<Input>(n)->param)] = {g.type(g.node(n).first_value).dtype, dims_of(g.node(n).first_value)};
  Builder b(g.level(), g.launch());
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    if (const auto* in = g.form<Input>(n)) { b.add_input(in->param, params[static_cast<size_t>(in->param)], in->part); continue; }
    Op op = node.op;
    if (auto* c = std::get_if<Const>(&op); c && !c->extent_of.empty()) c->value = extent_value(*c, params);
    if (auto* r = std::get_if<Reduce>(&op); r && r->group == g.dims(node.operands[0])[r->dim]) r->group = 0;
    if (auto* s = std::get_if<Reshape>(&op)) s->dims = dims_of(node.first_value);
    if (auto* i = std::get_if<Iota>(&op)) i->dims = dims_of(node.first_value);
    if (auto* r = std::get_if<Repeat>(&op); r && g.dims(node.operands[0])[r->dim] == 1) r->count = dims_of(node.first_value)[r->dim];
    if (auto* s = std::get_if<Slice>(&op)) {
      const int whole = classes.of[static_cast<size_t>(node.operands[0])][static_cast<size_t>(s->dim)];
      int64_t start = 0;
      if (whole >= 0 && (classes.is_pinned(whole) || classes.classes[static_cast<size_t>(whole)].is_shifted)) {
        start = s->start;
      } else if (whole >= 0) {
        const auto& c = classes.classes[static_cast<size_t>(whole)];
        for (size_t k = 0; s->start > 0 && k < c.segments.size(); k++) {
          start += atoms[static_cast<size_t>(c.segments[k])];
          if (k < c.cuts.size() && c.cuts[k] == s->start) break;
        }
      }
      const bool is_cut = s->step == 1 || dims_of(node.first_value)[s->dim] == 1;
      if (whole >= 0 && classes.classes[static_cast<size_t>(whole)].is_shifted) {   // a window stays where it begins
        s->stop = start + s->step * (dims_of(node.first_value)[s->dim] - 1) + 1;
      } else if (!is_cut && whole >= 0 && !classes.is_pinned(whole)) {   // one of every `step`
        s->stop = dims_of(node.operands[0])[s->dim];
      } else {
        s->stop = is_cut ? start + dims_of(node.first_value)[s->dim] : s->stop;
        s->start = start;
      }
    }
    const auto added = b.try_add(std::move(op), node.operands);
    if (!added || (*added >= 0 && !(b.graph().dims(*added) == dims_of(node.first_value)))) {
      *refused = n;
      return std::nullopt;
    }
  }
  return std::move(b).finish();
}

}  // namespace search
}  // namespace mirage

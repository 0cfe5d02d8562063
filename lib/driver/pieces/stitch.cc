// Structures in the place of pieces: the stitched graph at any numbers, and its claims at small extents. What partition.cc chooses becomes
// one program here; see partition.h.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "driver/proof/folding.h"
#include "driver/memory_end.h"
#include "driver/pieces/partition.h"
#include "driver/pieces/piece_program.h"
#include "driver/pieces/reduced.h"
#include "driver/report/report.h"
#include "mirage/support/hash.h"

namespace mirage {

namespace {

/// A piece's graph in the program: what a constant counts are dimensions of the piece's inputs, in `extents` those of the program's (empty:
/// it is a number only).
using PieceExtents = std::function<std::vector<std::pair<int, int>>(const std::vector<std::pair<int, int>>&)>;
Graph with_extents_of(const Graph& g, const PieceExtents& extents) {
  Builder b(g.level(), g.launch());
  for (const Node& n : g.nodes()) {
    if (const auto* in = std::get_if<Input>(&n.op)) {
      b.add_input(in->param, g.type(n.first_value), in->part);
      continue;
    }
    Op op = n.op;
    if (auto* c = std::get_if<Const>(&op); c && !c->extent_of.empty()) c->extent_of = extents(c->extent_of);
    if (auto* c = std::get_if<Call>(&op)) c->body = std::make_shared<const Graph>(with_extents_of(*c->body, extents));
    b.add(std::move(op), n.operands);
  }
  return std::move(b).finish();
}

/// What stands in a piece's place: its structure with the numbers that are given, or with whole tensors in one block, or its own operators.
enum class InPlace : uint8_t { kNumbers, kWhole, kOwn };

/// Copies the program from its outputs down, structures instead of pieces.
class Stitcher {
 public:
  Stitcher(const Graph& g, const std::vector<Replaced>& pieces, InPlace what,
           const std::vector<std::vector<CallNumbers>>* numbers = nullptr)
      : g_(g),
        pieces_(pieces),
        what_(what),
        given_(numbers),
        piece_of_(static_cast<size_t>(g.num_values()), -1),
        to_(piece_of_.size(), -1),
        builder_(Level::kKernel) {
    for (size_t p = 0; p < pieces.size(); p++)
      for (ValueId v : pieces[p].piece.results) piece_of_[static_cast<size_t>(v)] = static_cast<int>(p);
  }

  std::optional<Graph> run(std::vector<ValueId>* origin = nullptr) {
    for (NodeId n : g_.inputs())
      to_[static_cast<size_t>(g_.node(n).first_value)] = builder_.add_input(g_.form<Input>(n)->param, g_.type(g_.node(n).first_value));
    for (NodeId n : g_.outputs())
      if (!make(g_.node(n).operands[0])) return std::nullopt;
    for (NodeId n : g_.outputs())
      builder_.add_output(g_.form<Output>(n)->result, to_[static_cast<size_t>(g_.node(n).operands[0])], g_.form<Output>(n)->dtype);
    std::vector<ValueId> at;
    Graph out = remove_dead(builder_.graph(), &at);
    if (check_laws(out)) return std::nullopt;
    if (origin) {
      origin->assign(static_cast<size_t>(out.num_values()), -1);
      for (size_t v = 0; v < to_.size(); v++)
        if (to_[v] >= 0 && at[static_cast<size_t>(to_[v])] >= 0)
          (*origin)[static_cast<size_t>(at[static_cast<size_t>(to_[v])])] = static_cast<ValueId>(v);
    }
    return out;
  }
  /// Per piece the extents that its calls split, if no numbers were given.
  const std::map<size_t, std::vector<CallNumbers>>& extents() const { return extents_; }

 private:
  bool make(ValueId v) {
    ValueId& at = to_[static_cast<size_t>(v)];
    if (at >= 0) return true;
    if (const int p = piece_of_[static_cast<size_t>(v)]; p >= 0) return make_piece(static_cast<size_t>(p));
    const Node& node = g_.def(v);
    std::vector<ValueId> operands;
    for (ValueId o : node.operands) {
      if (!make(o)) return false;
      operands.push_back(to_[static_cast<size_t>(o)]);
    }
    auto made = builder_.try_add(node.op, operands);
    if (!made) return false;
    to_[static_cast<size_t>(v)] = *made;
    return true;
  }

  bool make_piece(size_t p) {
    if (!begun_.insert(p).second) return false;   // a piece that needs its own result: no certificate of ours
    const Piece& piece = pieces_[p].piece;
    std::vector<Type> types;
    for (ValueId v : piece.leaves) {
      if (!make(v)) return false;
      types.push_back(builder_.graph().type(to_[static_cast<size_t>(v)]));
    }
    const auto graph = in_place_of(p, types);
    if (!graph) return false;
    const Graph g = with_extents_of(*graph, [&](const auto& of) { return extents_of(piece, of); });
    std::vector<ValueId> to(static_cast<size_t>(g.num_values()), -1);
    for (const Node& n : g.nodes()) {
      std::vector<ValueId> operands;
      for (ValueId o : n.operands) operands.push_back(to[static_cast<size_t>(o)]);
      if (const auto* in = std::get_if<Input>(&n.op)) {
        to[static_cast<size_t>(n.first_value)] = to_[static_cast<size_t>(piece.leaves[static_cast<size_t>(in->param)])];
      } else if (const auto* out = std::get_if<Output>(&n.op)) {
        to_[static_cast<size_t>(piece.results[static_cast<size_t>(out->result)])] = operands[0];
      } else {
        const auto made = builder_.try_add(n.op, operands);
        if (!made) return false;
        for (int i = 0; i < n.num_values; i++) to[static_cast<size_t>(n.first_value + i)] = *made + i;
      }
    }
    return true;
  }

  std::optional<Graph> in_place_of(size_t p, const std::vector<Type>& types) {
    if (what_ == InPlace::kOwn) return pieces_[p].piece.graph;
    if (what_ == InPlace::kNumbers) return instantiate(pieces_[p].structure, types, (*given_)[p]);
    extents_[p] = split_extents(pieces_[p].structure, types);   // the types of results are those at any numbers
    return instantiate(pieces_[p].structure, types, std::vector<CallNumbers>(extents_[p].size()));
  }

  /// Dimensions of a piece's leaves as dimensions of the program's inputs: gates run the whole at other extents (driver/gate/reduce.h).
  /// Empty if one of them is no input's.
  std::vector<std::pair<int, int>> extents_of(const Piece& piece, const std::vector<std::pair<int, int>>& of) {
    if (!classes_) classes_ = extent_classes(g_);
    std::vector<std::pair<int, int>> out;
    for (auto [leaf, dim] : of) {
      const ValueId v = piece.leaves[static_cast<size_t>(leaf)];
      std::optional<std::pair<int, int>> found;
      for (NodeId n : g_.inputs()) {
        const ValueId in = g_.node(n).first_value;
        for (int d = 0; d < g_.dims(in).rank() && !found; d++)
          if ((in == v && d == dim) || (!classes_->empty() && g_.dims(in)[d] != 1 &&
                                        (*classes_)[static_cast<size_t>(in)][static_cast<size_t>(d)] ==
                                            (*classes_)[static_cast<size_t>(v)][static_cast<size_t>(dim)]))
            found = {g_.form<Input>(n)->param, d};
      }
      if (!found) return {};
      out.push_back(*found);
    }
    return out;
  }

  const Graph& g_;
  std::optional<std::vector<std::vector<int>>> classes_;   ///< extent_classes, once asked for
  const std::vector<Replaced>& pieces_;
  InPlace what_;
  const std::vector<std::vector<CallNumbers>>* given_;
  std::vector<int> piece_of_;
  std::vector<ValueId> to_;
  Builder builder_;
  std::map<size_t, std::vector<CallNumbers>> extents_;
  std::set<size_t> begun_;
};

/// What the calls of each piece split when the program has the extents of `graph`.
std::vector<std::vector<CallNumbers>> extents_at(const Graph& graph, const std::vector<Replaced>& pieces) {
  Stitcher s(graph, pieces, InPlace::kWhole);
  s.run();
  std::vector<std::vector<CallNumbers>> out(pieces.size());
  for (const auto& [p, e] : s.extents()) out[p] = e;
  return out;
}

/// Numbers for values, equal ones for what the same operators compute of the same inputs, in all graphs that it is asked about. What a
/// constant counts aside: its value is that of these sizes.
class ValueNumbers {
 public:
  /// By result: the number and the type that it is rounded to.
  std::vector<std::pair<int, DType>> results(const Graph& g) {
    std::vector<int> at(static_cast<size_t>(g.num_values()), -1);
    std::vector<std::pair<int, DType>> out(static_cast<size_t>(g.num_results()), {-1, DType::kReal});
    for (const Node& n : g.nodes()) {
      std::vector<int> in;
      for (ValueId v : n.operands) in.push_back(at[static_cast<size_t>(v)]);
      if (const auto* o = std::get_if<Output>(&n.op)) out[static_cast<size_t>(o->result)] = {in[0], o->dtype};
      else for (int i = 0; i < n.num_values; i++) at[static_cast<size_t>(n.first_value + i)] = number(n.op, in) + i;
    }
    return out;
  }

 private:
  int number(Op op, const std::vector<int>& in) {
    if (auto* c = std::get_if<Const>(&op)) c->extent_of.clear();
    auto& alike = known_[{op.index(), in}];
    for (const auto& [other, n] : alike)
      if (other == op) return n;
    alike.emplace_back(std::move(op), next_);
    return std::exchange(next_, next_ + 1);
  }
  std::map<std::pair<size_t, std::vector<int>>, std::vector<std::pair<Op, int>>> known_;
  int next_ = 0;
};

/// Whether the program is its pieces in their places: with their own operators there it is the program again. Then equal pieces make an
/// equal whole.
bool are_in_place(const Graph& g, const std::vector<Replaced>& pieces) {
  const std::optional<Graph> own = Stitcher(g, pieces, InPlace::kOwn).run();
  if (!own) return false;
  ValueNumbers numbers;
  return numbers.results(*own) == numbers.results(g);
}

/// Pieces of one text with one structure and the same numbers are verified and proved once.
std::string form_of(const Program& piece, const Replaced& r) {
  return piece.canonical + "\n" + print(r.structure.graph) + numbers_text(r.numbers);
}

/// The claims of the whole at small extents, where it is no long program, has such extents and the pieces have instances there: rounding
/// over all pieces together, and an end-to-end check of the argument that equal pieces make an equal whole.
Instance verify_together(const Program& program, const std::vector<Replaced>& pieces, uint64_t seed) {
  constexpr int kMostNodes = 120;   // where trials leave it open, the whole is proved at the small sizes, in more than linear time
  Instance out;
  if (program.graph.num_nodes() > kMostNodes) return out;
  for (int variant : {0, 1}) {
    std::string none;
    auto pair = small_pair(program, pieces, variant, none);
    if (!pair) return {};
    const std::vector<ValueId> origin = std::move(pair->origin);
    Claim claim{variant, std::move(pair->numbers), std::move(pair->reference), std::move(pair->candidate), {}, {}};
    claim.verdict = equal(claim.reference, claim.candidate, hash_combine(seed, 3));
    if (claim.verdict.kind == Verdict::Kind::kUnknown) return {};
    if (claim.verdict.kind == Verdict::Kind::kEqual)
      claim.numerics = check_numerics(claim.reference, claim.candidate, program, rounding_seed(claim.verdict.evidence), origin);
    if (claim.verdict.kind != Verdict::Kind::kEqual || !claim.numerics.ok) {
      out.refusal = claim.verdict.kind != Verdict::Kind::kEqual ? to_string(claim.verdict) : "rounding: " + claim.numerics.reason;
      return out;
    }
    out.claims.push_back(std::move(claim));
  }
  return out;
}

/// `sum` with what one more piece was proved by.
void add_proof(Proof& sum, const Proof& p) {
  for (const std::string& c : p.conditions)
    if (std::find(sum.conditions.begin(), sum.conditions.end(), c) == sum.conditions.end()) sum.conditions.push_back(c);
  sum.size += p.size;
  sum.method = std::max(sum.method, p.method);   // "normal forms and Z3" says more
}

}  // namespace

std::optional<Graph> stitch(const Graph& graph, const std::vector<Replaced>& pieces, const std::vector<std::vector<CallNumbers>>& numbers,
                            std::vector<ValueId>* origin) {
  if (numbers.size() != pieces.size()) return std::nullopt;
  return Stitcher(graph, pieces, InPlace::kNumbers, &numbers).run(origin);
}

std::optional<SmallPair> small_pair(const Program& program, const std::vector<Replaced>& pieces, int variant, std::string& refusal) {
  std::vector<std::vector<ValueId>> alike;
  for (const Replaced& r : pieces)
    for (ValueId a : r.piece.results) {   // results of one shape share a grid
      std::vector<ValueId> same;
      for (ValueId b : r.piece.results)
        if (program.graph.dims(a) == program.graph.dims(b)) same.push_back(b);
      if (same.size() > 1 && same[0] == a) alike.push_back(std::move(same));
    }
  ReducedProgram small = reduce_extents(program.graph, variant, alike);
  refusal = small.refusal;
  if (!refusal.empty()) return std::nullopt;
  const auto real = extents_at(program.graph, pieces), at = extents_at(small.graph, pieces);
  std::vector<std::vector<CallNumbers>> numbers;
  SmallPair out;
  for (size_t p = 0; p < pieces.size(); p++) {
    if (real[p].size() != pieces[p].numbers.size() || at[p].size() != real[p].size()) {
      refusal = fmt::format("piece {} has no counterpart at small size {}", p, variant);
      return std::nullopt;
    }
    numbers.push_back(shrink_numbers(real[p], pieces[p].numbers, at[p]));
    out.numbers.insert(out.numbers.end(), numbers.back().begin(), numbers.back().end());
  }
  auto candidate = stitch(small.graph, pieces, numbers, &out.origin);
  if (!candidate) {
    refusal = fmt::format("the pieces have no instance at small size {}", variant);
    return std::nullopt;
  }
  out.reference = std::move(small.graph);
  out.candidate = std::move(*candidate);
  return out;
}

Instance verify_stitched(const Program& program, const std::vector<Replaced>& pieces, uint64_t seed) {
  Instance out;
  if (!are_in_place(program.graph, pieces)) {
    out.refusal = "the program is not these pieces in their places";
    return out;
  }
  std::set<std::string> seen;
  const PiecePrograms programs(program);
  for (size_t p = 0; p < pieces.size(); p++) {
    const Program piece = programs.of(pieces[p].piece, true);
    if (!seen.insert(form_of(piece, pieces[p])).second) continue;
    const Witnesses witnesses = make_witnesses(piece);
    Instance one;
    // as it was chosen
    if (witnesses.refusal.empty()) one = verify_instance(pieces[p].structure, pieces[p].numbers, piece, witnesses, seed);
    else one.refusal = witnesses.refusal;
    if (!one.refusal.empty()) {
      out.refusal = fmt::format("piece {}: {}", p, one.refusal);
      return out;
    }
    std::move(one.claims.begin(), one.claims.end(), std::back_inserter(out.claims));
  }
  Instance together = verify_together(program, pieces, seed);
  out.refusal = std::move(together.refusal);
  out.claims.insert(out.claims.begin(), std::make_move_iterator(together.claims.begin()), std::make_move_iterator(together.claims.end()));
  return out;
}

Verdict support_of_pieces(const Folding& f, const std::vector<Replaced>& pieces, const Graph& found, uint64_t seed) {
  Verdict all;
  all.kind = Verdict::Kind::kEqual;
  all.evidence.proof.proved = true;
  std::optional<Evidence> trials;   // the weakest
  std::set<std::string> seen;
  const PiecePrograms programs(f.program);
  bool is_open = !are_in_place(f.program.graph, pieces);
  for (size_t p = 0; p < pieces.size() && !is_open; p++) {
    const Piece& piece = pieces[p].piece;
    if (!seen.insert(form_of(programs.of(piece, true), pieces[p])).second) continue;
    std::vector<Type> types;
    for (ValueId v : piece.leaves) types.push_back(f.program.graph.type(v));
    const std::optional<Graph> own = instantiate(pieces[p].structure, types, pieces[p].numbers);
    if (!own) { is_open = true; break; }
    Proof none;
    none.reason = kMemoryEnded;
    const Proof proof = unless_memory_ends([&] { return prove(piece.graph, *own); }, none);
    if (proof.proved) { add_proof(all.evidence.proof, proof); continue; }
    Verdict v;
    v.reason = kMemoryEnded;
    v = unless_memory_ends([&] { return settle_at_own_size(piece.graph, *own, hash_combine(seed, 4)); }, v);
    if (v.kind == Verdict::Kind::kDifferent) return v;
    if (v.kind == Verdict::Kind::kUnknown) is_open = true;
    else if (v.evidence.proof.proved) add_proof(all.evidence.proof, v.evidence.proof);
    else if (!trials || v.evidence.log2_bound > trials->log2_bound) trials = v.evidence;
  }
  if (is_open) return support_of(f, found, seed);   // as a whole: what a piece's inputs are may matter
  if (trials) {
    all.evidence = std::move(*trials);
    return all;
  }
  all.evidence.proof = with_folding(f, std::move(all.evidence.proof));
  return all.evidence.proof.proved ? all : support_of(f, found, seed);
}

}  // namespace mirage

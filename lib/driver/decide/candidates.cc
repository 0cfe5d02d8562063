// Verification of candidates at witness sizes. See the header; OSDI'25 section 5 is behind verify::equal.
#include "driver/decide/candidates.h"

#include <fmt/format.h>

#include "mirage/ir/stabilize.h"
#include "mirage/support/hash.h"

namespace mirage {

namespace {

/// The tile that cuts a small extent as `tile` cuts the real one.
int64_t shrink_tile(int64_t extent, int64_t tile, int64_t small_extent) {
  if (extent <= 0) return 0;
  if (tile >= extent || small_extent <= 1) return std::max<int64_t>(small_extent, 1);
  const bool is_ragged = extent % tile != 0;
  // About half first: two pieces show everything that more pieces would. Then any tile of the class.
  for (int64_t t = (small_extent + 1) / 2; t >= 1; t--)
    if ((small_extent % t != 0) == is_ragged) return t;
  for (int64_t t = small_extent - 1; t >= 1; t--)
    if ((small_extent % t != 0) == is_ragged) return t;
  return (small_extent + 1) / 2;
}

/// Verdict and rounding of one small instance; nullopt if the numbers do not fit this size.
std::optional<Claim> make_claim(const Structure& s, int variant, std::vector<CallNumbers> numbers, const Program& program,
                                const Witnesses& w, uint64_t seed) {
  const Witness& witness = w.variants[static_cast<size_t>(variant)];
  std::optional<Graph> small = instantiate(s, witness.params, numbers);
  if (!small) return std::nullopt;
  Claim claim{variant, std::move(numbers), witness.graph, std::move(*small), {}, {}};
  claim.verdict = equal(claim.reference, claim.candidate, seed);
  if (claim.verdict.kind == Verdict::Kind::kEqual)
    claim.numerics = check_numerics(claim.reference, claim.candidate, program, rounding_seed(claim.verdict.evidence));
  return claim;
}

/// Chunk and loop tile of a dimension that the grid and the loop split: a chunk of several tiles stays one, and the tails of both stay
/// ragged or exact where the small extent allows it.
void shrink_chunk(const CallNumbers& extents, const CallNumbers& numbers, int64_t small, CallNumbers& out) {
  const auto axis = static_cast<size_t>(extents.chunk_axis);
  const int64_t extent = extents.loop_tile, chunk = std::min(numbers.grid_tile[axis] > 0 ? numbers.grid_tile[axis] : extent, extent),
                tile = std::min(numbers.loop_tile > 0 ? numbers.loop_tile : chunk, chunk);
  int best = -1;
  for (int64_t c = 1; c <= small; c++)
    for (int64_t t = 1; t <= c; t++) {
      if (c % t != 0 || (c < small) != (chunk < extent) || (t < c) != (tile < chunk)) continue;
      const int fits = 2 * ((small % c != 0) == (extent % chunk != 0)) + ((small % t != 0) == (extent % tile != 0));
      if (fits < best || (fits == best && 2 * c > small + 2)) continue;   // about half
      best = fits;
      out.grid_tile[axis] = c;
      out.loop_tile = t;
    }
}

}  // namespace

Witnesses make_witnesses(const Program& program) {
  Witnesses w;
  for (int variant : {0, 1}) {
    w.variants.push_back(make_witness(program, variant));
    if (!w.variants.back().refusal.empty() && w.refusal.empty()) w.refusal = w.variants.back().refusal;
  }
  return w;
}

uint64_t rounding_seed(const Evidence& e) { return hash_combine(e.seed, 1); }

std::vector<Type> param_types(const Program& program) {
  std::vector<Type> types;
  for (const TensorInfo& t : program.inputs) types.push_back(t.type);
  // intermediates of a larger program are real
  for (NodeId n : program.graph.inputs())
    types[static_cast<size_t>(program.graph.form<Input>(n)->param)] = program.graph.type(program.graph.node(n).first_value);
  return types;
}

Examined examine(const Structure& s, const Program& program, const Witnesses& w, uint64_t seed) {
  Examined out;
  out.candidate.structure = s;
  for (int variant : {0, 1}) {
    auto claim = make_claim(s, variant, halve(split_extents(s, w.variants[static_cast<size_t>(variant)].params)), program, w, seed);
    if (!claim) {
      out.reason = fmt::format("has no instance at witness size {}", variant);
      return out;
    }
    if (claim->verdict.kind == Verdict::Kind::kUnknown) {
      out.reason = claim->verdict.reason;
      return out;
    }
    if (claim->verdict.kind == Verdict::Kind::kDifferent) {
      out.verdict = SinkVerdict::kRejected;
      out.reason = to_string(claim->verdict);
      return out;
    }
    if (!claim->numerics.ok) {
      out.verdict = SinkVerdict::kRejected;
      out.numeric = true;
      out.reason = "rounding: " + claim->numerics.reason;
      return out;
    }
    out.candidate.claims.push_back(std::move(*claim));
  }
  out.verdict = SinkVerdict::kVerified;
  return out;
}

Examined examine_stable(const Structure& s, const Program& program, const Witnesses& w, uint64_t seed) {
  if (std::optional<Graph> graph = stabilize(s.graph)) {
    Structure stable = s;
    stable.graph = std::move(*graph);
    Examined e = examine(stable, program, w, seed);
    if (e.verdict == SinkVerdict::kVerified) return e;
  }
  return examine(s, program, w, seed);
}

Examined examine_quickly(const Structure& s, const Witnesses& w, uint64_t seed) {
  Examined out;
  out.candidate.structure = s;
  if (std::optional<Graph> graph = stabilize(s.graph)) out.candidate.structure.graph = std::move(*graph);
  const Witness& ragged = w.variants[1];
  const std::optional<Graph> small =
      instantiate(out.candidate.structure, ragged.params, halve(split_extents(out.candidate.structure, ragged.params)));
  if (!small) {
    out.reason = "has no instance at witness size 1";
    return out;
  }
  const Verdict v = equal(ragged.graph, *small, seed, 1, Draws::kNone);
  out.verdict = v.kind == Verdict::Kind::kEqual       ? SinkVerdict::kVerified
                : v.kind == Verdict::Kind::kDifferent ? SinkVerdict::kRejected
                                                      : SinkVerdict::kUnknown;
  if (out.verdict != SinkVerdict::kVerified) out.reason = to_string(v);
  return out;
}

std::vector<CallNumbers> shrink_numbers(const std::vector<CallNumbers>& extents, const std::vector<CallNumbers>& numbers,
                                        const std::vector<CallNumbers>& small_extents) {
  MIRAGE_ASSERT(extents.size() == numbers.size() && extents.size() == small_extents.size()) << "one entry per call";
  std::vector<CallNumbers> out(numbers.size());
  for (size_t c = 0; c < numbers.size(); c++) {
    out[c].chunk_axis = extents[c].chunk_axis;
    for (size_t a = 0; a < 3; a++)
      out[c].grid_tile[a] = shrink_tile(extents[c].grid_tile[a], numbers[c].grid_tile[a], small_extents[c].grid_tile[a]);
    out[c].loop_tile = shrink_tile(extents[c].loop_tile, numbers[c].loop_tile, small_extents[c].loop_tile);
    if (out[c].chunk_axis >= 0) shrink_chunk(extents[c], numbers[c], small_extents[c].loop_tile, out[c]);
  }
  return out;
}

/// Whether results have the same extents, in order.
static bool same_results(const Graph& a, const Graph& b) {
  std::vector<Dims> x(static_cast<size_t>(a.num_results())), y(static_cast<size_t>(b.num_results()));
  for (NodeId n : a.outputs()) x[static_cast<size_t>(a.form<Output>(n)->result)] = a.dims(a.node(n).operands[0]);
  for (NodeId n : b.outputs()) y[static_cast<size_t>(b.form<Output>(n)->result)] = b.dims(b.node(n).operands[0]);
  return x == y;
}

Instance verify_instance(const Structure& s, const std::vector<CallNumbers>& numbers, const Program& program, const Witnesses& w,
                         uint64_t seed) {
  Instance out;
  const std::vector<CallNumbers> extents = split_extents(s, param_types(program));
  const std::optional<Graph> whole = instantiate(s, param_types(program), numbers);
  if (!whole || !same_results(*whole, program.graph)) {
    out.refusal = "its results at the program's own extents are not the program's";
    return out;
  }
  for (int variant : {0, 1}) {
    const std::vector<CallNumbers> small =
        shrink_numbers(extents, numbers, split_extents(s, w.variants[static_cast<size_t>(variant)].params));
    auto claim = make_claim(s, variant, small, program, w, hash_combine(seed, 2));
    if (!claim) {
      out.refusal = fmt::format("its tiles have no counterpart at witness size {}", variant);
      return out;
    }
    if (auto broken = check_laws(claim->candidate)) {
      out.refusal = *broken;
      return out;
    }
    if (claim->verdict.kind != Verdict::Kind::kEqual || !claim->numerics.ok) {
      out.refusal = claim->verdict.kind != Verdict::Kind::kEqual ? to_string(claim->verdict) : "rounding: " + claim->numerics.reason;
      return out;
    }
    out.claims.push_back(std::move(*claim));
  }
  return out;
}

}  // namespace mirage

// fold_verified, prove_found: see the header.
#include "driver/proof/folding.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "driver/proof/fold_steps.h"
#include "driver/memory_end.h"
#include "mirage/support/hash.h"

namespace mirage {

static constexpr double kMaxWork = 2e8;   // of trials where there is no proof, a second or two; who wants to know more asks --verify

// nodes of a program whose folding is proved value by value first: a proof of all of it at once takes more than linear time (two
// convolutions of 320 channels between group norms, 127 nodes: given up after 12 s, value by value 0.1)
static constexpr NodeId kLong = 60;

static Folding fold_proved(const Program& program) {
  Folding out{fold(program), {}};
  if (!out.folds) return out;
  if (program.graph.num_nodes() > kLong) {
    out.proof = prove_fold(out);
    if (out.proof.proved) return out;
  }
  const Graph back = out.unfold(out.program.graph);
  // everything that follows is of the folded program: small sizes are not enough
  const Verdict v = settle(program.graph, back, hash_text("folding"), kMaxWork);
  out.proof = v.evidence.proof;
  if (v.kind == Verdict::Kind::kEqual) return out;
  if (v.kind == Verdict::Kind::kUnknown && program.graph.num_nodes() <= kLong && (out.proof = prove_fold(out)).proved) return out;
  return {{program, program, false, {}, {}}, {}};
}

Folding fold_verified(const Program& program) {
  return unless_memory_ends([&] { return fold_proved(program); }, Folding{{program, program, false, {}, {}}, {}});
}

Proof prove_found(const Folding& f, const Graph& found) {
  Proof none;
  none.gave_up = true;
  none.reason = kMemoryEnded;
  Proof p = unless_memory_ends([&] { return prove(f.program.graph, found); }, none);
  return with_folding(f, std::move(p));
}

Proof with_folding(const Folding& f, Proof p) {
  if (!f.folds || !p.proved) return p;
  if (!f.proof.proved) {
    p.proved = false;
    p.reason = "dimensions were joined, which was tested at small sizes and not proved";
    return p;
  }
  for (const std::string& c : f.proof.conditions)
    if (std::find(p.conditions.begin(), p.conditions.end(), c) == p.conditions.end()) p.conditions.push_back(c);
  p.size += f.proof.size;
  if (f.proof.method != p.method) p.method = std::max(p.method, f.proof.method);   // "normal forms and Z3" says more
  return p;
}

Verdict settle_at_own_size(const Graph& a, const Graph& b, uint64_t seed) { return settle(a, b, seed, kMaxWork); }

Verdict support_of(const Folding& f, const Graph& found, uint64_t seed) {
  Verdict v;
  if (Proof p = prove_found(f, found); p.proved) {
    v.kind = Verdict::Kind::kEqual;
    v.evidence.proof = std::move(p);
    return v;
  }
  v.reason = kMemoryEnded;
  v = unless_memory_ends([&] { return settle(f.program.graph, found, hash_combine(seed, 4), kMaxWork); }, v);
  if (v.evidence.proof.proved && f.folds && !f.proof.proved)
    v.evidence.proof.conditions.push_back("joining dimensions changes nothing, as trials at these sizes say");
  return v;
}

/// Slices of what is computed.
static int64_t computed_slices(const Graph& g) {
  return std::count_if(g.nodes().begin(), g.nodes().end(), [&](const Node& n) {
    if (!std::holds_alternative<Slice>(n.op)) return false;
    ValueId v = n.operands[0];
    while (is_view(g.def(v).op)) v = g.def(v).operands[0];
    return !g.def_form<Input>(v);
  });
}

static bool is_concat(const Node& n) { return std::holds_alternative<Concat>(n.op); }
static bool is_repetition(const Node& n) {
  return std::all_of(n.operands.begin(), n.operands.end(), [&](ValueId v) { return v == n.operands[0]; });
}

std::string explain_folding(const Folding& f) {
  std::string out;
  auto add = [&](const std::vector<TensorInfo>& whole, const std::vector<TensorInfo>& folded) {
    for (size_t i = 0; i < whole.size(); i++)
      if (!(whole[i].type.dims == folded[i].type.dims))
        out += fmt::format("{}{} {} as {}", out.empty() ? "" : ", ", whole[i].name, to_string(whole[i].type.dims),
                           to_string(folded[i].type.dims));
  };
  add(f.whole.inputs, f.program.inputs);
  add(f.whole.outputs, f.program.outputs);
  if (!f.folds) return "";
  const auto repeats = [](const Graph& g) {
    return std::count_if(g.nodes().begin(), g.nodes().end(),
                         [](const Node& n) { return std::holds_alternative<Repeat>(n.op) || (is_concat(n) && is_repetition(n)); });
  };
  const auto concats = [](const Graph& g) {
    return std::count_if(g.nodes().begin(), g.nodes().end(), [](const Node& n) { return is_concat(n) && !is_repetition(n); });
  };
  if (concats(f.program.graph) < concats(f.whole.graph))
    return "concatenations that are only mapped, reduced and sliced are computed part by part" +
           (out.empty() ? "" : "; dimensions that go together are one: " + out) + "\n";
  if (repeats(f.program.graph) < repeats(f.whole.graph))
    return "repetitions that only products read are left out: each reads what would be repeated" +
           (out.empty() ? "" : "; dimensions that go together are one: " + out) + "\n";
  if (computed_slices(f.program.graph) < computed_slices(f.whole.graph))
    return "slices are taken of weights instead of products" + (out.empty() ? "" : "; dimensions that go together are one: " + out) + "\n";
  return "dimensions that go together are one: " + (out.empty() ? "of values inside the program" : out) + "\n";
}

}  // namespace mirage

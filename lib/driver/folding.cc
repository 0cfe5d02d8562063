// fold_verified, prove_found: see the header.
#include "driver/folding.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "driver/joined.h"
#include "driver/memory_end.h"
#include "driver/reduced.h"
#include "mirage/support/hash.h"

namespace mirage {

namespace {

bool holds_at_small_sizes(const Graph& a, const Graph& b) {
  const Graph both = joined(a, b);
  const int results = a.num_results();
  for (int variant : {0, 1}) {
    const auto small = reduce_extents(both, variant);
    if (!small.refusal.empty()) return false;
    if (equal(results_from(small.graph, 0, results), results_from(small.graph, results, results), hash_text("folding", static_cast<uint64_t>(variant))).kind != Verdict::Kind::kEqual) return false;
  }
  return true;
}

}  // namespace

static Folding fold_proved(const Program& program) {
  Folding out{fold(program), {}};
  if (!out.folds) return out;
  const Graph back = out.unfold(out.program.graph);
  out.proof = prove(program.graph, back);
  if (out.proof.proved || holds_at_small_sizes(program.graph, back)) return out;
  return {{program, program, false, {}}, {}};
}

Folding fold_verified(const Program& program) {
  return unless_memory_ends([&] { return fold_proved(program); }, Folding{{program, program, false, {}}, {}});
}

Proof prove_found(const Folding& f, const Graph& found) {
  Proof none;
  none.gave_up = true;
  none.reason = kMemoryEnded;
  Proof p = unless_memory_ends([&] { return prove(f.program.graph, found); }, none);
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

/// Slices of what is computed.
static int64_t computed_slices(const Graph& g) {
  return std::count_if(g.nodes().begin(), g.nodes().end(), [&](const Node& n) {
    if (!std::holds_alternative<Slice>(n.op)) return false;
    ValueId v = n.operands[0];
    while (is_view(g.def(v).op)) v = g.def(v).operands[0];
    return !g.def_form<Input>(v);
  });
}

std::string explain_folding(const Folding& f) {
  std::string out;
  auto add = [&](const std::vector<TensorInfo>& whole, const std::vector<TensorInfo>& folded) {
    for (size_t i = 0; i < whole.size(); i++)
      if (!(whole[i].type.dims == folded[i].type.dims)) out += fmt::format("{}{} {} as {}", out.empty() ? "" : ", ", whole[i].name, to_string(whole[i].type.dims), to_string(folded[i].type.dims));
  };
  add(f.whole.inputs, f.program.inputs);
  add(f.whole.outputs, f.program.outputs);
  if (!f.folds) return "";
  const auto repeats = [](const Graph& g) { return std::count_if(g.nodes().begin(), g.nodes().end(), [](const Node& n) { return std::holds_alternative<Repeat>(n.op) || std::holds_alternative<Concat>(n.op); }); };
  if (repeats(f.program.graph) < repeats(f.whole.graph)) return "repetitions that only products read are left out: each reads what would be repeated" + (out.empty() ? "" : "; dimensions that go together are one: " + out) + "\n";
  if (computed_slices(f.program.graph) < computed_slices(f.whole.graph)) return "slices are taken of weights instead of products" + (out.empty() ? "" : "; dimensions that go together are one: " + out) + "\n";
  return "dimensions that go together are one: " + (out.empty() ? "of values inside the program" : out) + "\n";
}

}  // namespace mirage

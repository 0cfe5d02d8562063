// Growth of kernel graphs; see enumerator.h.
#include "search/enumerator.h"
#include <algorithm>
#include <utility>
#include "search/problem/open_problem.h"

namespace mirage {
namespace search {
namespace {

/// Adds g's nodes but inputs and outputs; its params stand for `operands`. The values of its results, by number; nullopt if one does not
/// fit.
std::optional<std::vector<ValueId>> append(Builder& b, const Graph& g, const std::vector<ValueId>& operands) {
  std::vector<ValueId> at(static_cast<size_t>(g.num_values()), -1), out(static_cast<size_t>(g.num_results()), -1);
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    if (const auto* in = g.form<Input>(n)) {
      at[static_cast<size_t>(node.first_value)] = operands[static_cast<size_t>(in->param)];
      continue;
    }
    if (const auto* o = g.form<Output>(n)) { out[static_cast<size_t>(o->result)] = at[static_cast<size_t>(node.operands[0])]; continue; }
    std::vector<ValueId> in;
    for (ValueId v : node.operands) in.push_back(at[static_cast<size_t>(v)]);
    const auto first = b.try_add(node.op, std::move(in));
    if (!first) return std::nullopt;
    for (int i = 0; i < node.num_values; i++) at[static_cast<size_t>(node.first_value + i)] = *first + i;
  }
  return out;
}

Dims with_leading_one(const Dims& dims) {
  Dims d{1};
  for (int64_t e : dims) d.push_back(e);
  return d;
}

}  // namespace

Enumerator::Enumerator(const Program& program, const Target& target, const SearchOptions& options, const CandidateSink& sink, int parts)
    : program_(program), target_(target), options_(options), sink_(sink), is_tail_(parts > 0), start_(std::chrono::steady_clock::now()),
      ahead_(options.judge ? 1 : options.threads, options.max_bytes > 0 ? options.max_bytes / 4 : kNoLimit) {
  if (options.max_seconds > 0)
    deadline_ =
        start_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(options.max_seconds));
  ref_ = make_reference(program, options.seed, parts);
  outputs_ = stored_values(program.graph);
  if (!ref_.refusal.empty()) return;
  id_ = hash_combine(hash_text(print(program.graph)), options.seed);
  worlds_ = make_worlds(program, parts);
  const int params = static_cast<int>(program.inputs.size());
  for (NodeId n : program.graph.inputs())
    if (program.graph.form<Input>(n)->param >= params - parts)
      whole_.push_back(ref_.classes.of[static_cast<size_t>(program.graph.node(n).first_value)][0]);
}

void Enumerator::count(Gate gate, const std::string& example, int64_t times) {
  GateCount& c = report_.gates[static_cast<size_t>(gate)];
  if (c.closed == 0 && times > 0) c.first_example = example;
  c.closed += times;
}

double Enumerator::seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

/// Whether the search for the present number of kernels is to end.
bool Enumerator::stopped() {
  if (!report_.stop_reason.empty()) return true;
  if (report_.effort >= std::min(effort_limit_, problem_limit_)) { cut_short_ = true; return true; }
  if (options_.stop && options_.stop->load()) report_.stop_reason = "interrupted";
  else if (report_.candidates >= options_.max_candidates) report_.stop_reason = "candidates";
  else if (deadline_ && std::chrono::steady_clock::now() > *deadline_) report_.stop_reason = "time";
  if (!report_.stop_reason.empty()) report_.complete = false;
  return !report_.stop_reason.empty();
}

SearchReport Enumerator::run() && {
  if (!ref_.refusal.empty()) {
    report_.stop_reason = "not searched: " + ref_.refusal;
    report_.complete = false;
    return std::move(report_);
  }
  const Graph& g = ref_.even.graph;
  const int most = most_kernels(options_, is_tail_);
  const int rounds = 2 * most;
  // iterative deepening: fewer kernels first, each number with its share of the budget; poor splits when all others are through
  for (int round = 0; round < rounds; round++) {
    const int kernels = round % most + 1;
    // half of it for one kernel, half of the rest for two, and so on
    effort_limit_ = options_.max_states - (round + 1 < rounds ? options_.max_states >> (round + 1) : 0);
    kernels_now_ = kernels;
    poor_now_ = round >= most;
    State s;
    s.at.assign(static_cast<size_t>(g.num_values()), -1);
    for (NodeId n = 0; n < g.num_nodes(); n++) {
      const ValueId v = g.node(n).first_value;
      if (v < 0 || !is_free(g, v)) continue;
      if (const auto* in = g.form<Input>(n)) s.at[static_cast<size_t>(v)] = s.builder.add_input(in->param, g.type(v));
      else if (g.form<Iota>(n)) s.at[static_cast<size_t>(v)] = s.builder.add(g.node(n).op, {});
      else s.at[static_cast<size_t>(v)] = s.builder.add(g.node(n).op, {s.at[static_cast<size_t>(g.node(n).operands[0])]});
    }
    grow(s, kernels);
    if (!report_.stop_reason.empty() ||
        (options_.dominance && (good_ > 0 || (poor_now_ && report_.verified > 0) || (round + 1 == most && report_.verified > 0))))
      break;
  }
  if (report_.stop_reason.empty() && (cut_short_ || out_of_memory_)) {
    report_.stop_reason = cut_short_ ? "states" : "memory";
    report_.complete = false;
  }
  if (report_.stop_reason.empty()) report_.stop_reason = "exhausted";
  report_.seconds = seconds();
  return std::move(report_);
}

bool Enumerator::is_complete(const State& s) const {
  return std::all_of(outputs_.begin(), outputs_.end(), [&](ValueId v) { return s.at[static_cast<size_t>(v)] >= 0; });
}

std::vector<ValueId> Enumerator::available(const State& s) const {
  std::vector<ValueId> out;
  for (ValueId v = 0; v < static_cast<ValueId>(s.at.size()); v++) if (s.at[static_cast<size_t>(v)] >= 0) out.push_back(v);
  return out;
}

/// What the next operator may compute: the last one all that is missing, others one value of the program that several operators can share
/// the way to.
std::vector<std::vector<ValueId>> Enumerator::target_choices(const State& s, int kernels_left) const {
  std::vector<ValueId> missing;
  for (ValueId v : outputs_) if (s.at[static_cast<size_t>(v)] < 0 && !std::count(missing.begin(), missing.end(), v)) missing.push_back(v);
  if (kernels_left == 1) return {missing};
  std::vector<std::vector<ValueId>> out;
  for (NodeId n : make_problem(ref_.graph(), available(s), missing).inside) {
    const ValueId v = ref_.graph().node(n).first_value;
    if (ref_.graph().form<Const>(n) || missing == std::vector<ValueId>{v}) continue;
    out.push_back({v});
  }
  if (options_.dominance) return out;
  // Two values of which neither needs the other: a kernel with two results that another one puts together.
  const size_t single = out.size();
  for (size_t i = 0; i < single; i++)
    for (size_t j = i + 1; j < single; j++) {
      const ValueId u = out[i][0], v = out[j][0];
      const std::vector<NodeId> before = make_problem(ref_.graph(), available(s), {v}).inside;
      if (!std::count(before.begin(), before.end(), ref_.graph().value(u).node)) out.push_back({u, v});
    }
  return out;
}

/// Whether the operator before could as well come behind this one: of two that do not need each other the one with the lower target comes
/// first.
bool Enumerator::is_out_of_order(const State& s, const std::vector<ValueId>& targets) const {
  if (s.last.targets.empty() || targets[0] > s.last.targets[0]) return false;
  return std::none_of(targets.begin(), targets.end(),
                      [&](ValueId t) { return std::count(s.last.inside.begin(), s.last.inside.end(), ref_.graph().value(t).node) > 0; });
}

void Enumerator::grow(State& s, int kernels_left) {
  if (stopped()) return;
  if (is_complete(s)) {
    if (s.kernels > 0) deliver(s);   // a program that only copies has nothing to fuse
    return;
  }
  if (kernels_left == 0) return;
  const auto choices = target_choices(s, kernels_left);
  if (kernels_left > 1) for (const auto& targets : choices) prepare(make_problem(ref_.graph(), available(s), targets));
  for (const auto& targets : choices) {
    if (report_.effort >= effort_limit_ && stopped()) return;   // each problem's splits take time, whether they are searched or not
    const Problem problem = make_problem(ref_.graph(), available(s), targets);
    if (problem.inside.empty() || is_out_of_order(s, targets)) continue;
    solve(problem, [&](const Solution& solution) {
      const Builder::Mark mark = s.builder.mark();
      const int kernels = s.kernels;
      const bool was_good = s.is_good;
      const Problem before = std::exchange(s.last, problem);
      s.is_good &= solution.split.is_good;
      if (add(s, targets, solution)) grow(s, kernels_left - 1);
      s.kernels = kernels;
      s.is_good = was_good;
      s.last = before;
      for (ValueId t : targets) s.at[static_cast<size_t>(t)] = -1;
      s.builder.rollback(mark);
    });
  }
}

bool Enumerator::add(State& s, const std::vector<ValueId>& targets, const Solution& solution) {
  std::vector<ValueId> operands;
  for (ValueId v : solution.block.operands) {
    ValueId o = s.at[static_cast<size_t>(v)];
    if (solution.second) o = s.builder.add(Reshape{with_leading_one(s.builder.graph().dims(o))}, {o});
    operands.push_back(o);
  }
  const auto first = s.builder.try_add(Call{std::make_shared<const Graph>(solution.block.body)}, operands);
  if (!first) { count(Gate::kType, s.builder.last_error()); return false; }
  s.kernels++;
  if (!solution.second) {
    for (size_t t = 0; t < targets.size(); t++) s.at[static_cast<size_t>(targets[t])] = *first + static_cast<ValueId>(t);
    return true;
  }
  std::vector<ValueId> params;
  for (const TensorInfo& t : program_.inputs)
    params.push_back(s.at[static_cast<size_t>(input_value(static_cast<int>(&t - program_.inputs.data())))]);
  for (ValueId v : solution.block.tail->leaves) params.push_back(s.at[static_cast<size_t>(v)]);
  for (size_t i = 0; i < solution.block.tail->parts.size(); i++) params.push_back(*first + static_cast<ValueId>(i));
  const auto results = append(s.builder, *solution.second, params);
  if (!results) { count(Gate::kType, s.builder.last_error()); return false; }
  s.kernels++;
  for (size_t t = 0; t < targets.size(); t++) s.at[static_cast<size_t>(targets[t])] = (*results)[t];
  return true;
}

ValueId Enumerator::input_value(int param) const {
  for (NodeId n : ref_.graph().inputs()) if (ref_.graph().form<Input>(n)->param == param) return ref_.graph().node(n).first_value;
  MIRAGE_ASSERT(false) << "the program has no input " << param;
  return -1;
}

const std::vector<Graph>& Enumerator::solve_tail(const Tail& tail) {
  const auto added = tails_.emplace(tail.program.canonical, std::vector<Graph>{});
  const auto it = added.first;   // clang below 16 takes no structured binding into a lambda
  const bool fresh = added.second;
  if (!fresh) return it->second;
  std::vector<Type> types = ref_.even.params;   // at the even witness, where two blocks made the parts
  for (ValueId v : tail.leaves) types.push_back(ref_.even.graph.type(v));
  types.insert(types.end(), tail.parts.begin(), tail.parts.end());
  SearchOptions options = options_;
  options.threads = 1;
  options.max_states = std::max<int64_t>(1, std::min(effort_limit_, problem_limit_) - report_.effort) / 4;
  if (deadline_) options.max_seconds = std::max(1e-3, options_.max_seconds - seconds());
  if (options_.max_bytes > 0) options.max_bytes = std::max<int64_t>(1, limits(nullptr).bytes);
  const CandidateSink collect = [&](const Structure& s) {
    if (auto g = instantiate(s, types, halve(split_extents(s, types)))) it->second.push_back(std::move(*g));
    return SinkVerdict::kVerified;
  };
  const SearchReport r = Enumerator(tail.program, target_, options, collect, static_cast<int>(tail.parts.size())).run();
  report_.states += r.states;
  report_.effort += r.effort;
  report_.peak_bytes = std::max(report_.peak_bytes, held_ + r.peak_bytes);
  out_of_memory_ |= r.stop_reason == "memory";
  for (size_t g = 0; g < r.gates.size(); g++) count(static_cast<Gate>(g), r.gates[g].first_example, r.gates[g].closed);
  if (report_.stop_reason.empty() && (r.stop_reason == "interrupted" || r.stop_reason == "time")) {
    report_.stop_reason = r.stop_reason;
    report_.complete = false;
  }
  return it->second;
}

/// The result v with the transposes and reshapes that lead to it.
ValueId Enumerator::add_stores(State& s, ValueId v) {
  if (s.at[static_cast<size_t>(v)] >= 0) return s.at[static_cast<size_t>(v)];
  const NodeId n = ref_.graph().value(v).node;
  return s.builder.add(ref_.even.graph.node(n).op, {add_stores(s, ref_.graph().node(n).operands[0])});
}

/// Output nodes for the results, the ragged witness, the sink.
void Enumerator::deliver(State& s) {
  const Builder::Mark mark = s.builder.mark();
  const Graph& g = program_.graph;
  for (NodeId n : g.outputs()) {
    const Output& o = *g.form<Output>(n);
    s.builder.add_output(o.result, add_stores(s, g.node(n).operands[0]), o.dtype);
  }
  Structure st{remove_dead(s.builder.graph()), next_rank_++, s.kernels, s.is_good, worlds_, report_.states, report_.effort};
  s.builder.rollback(mark);
  if (auto broken = check_laws(st.graph)) return count(Gate::kLaw, *broken);
  if (!holds_at_ragged_witness(st)) return count(Gate::kFingerprint, "structure " + std::to_string(st.rank) + " at the ragged witness");
  report_.candidates++;
  const SinkVerdict verdict = sink_ ? sink_(st) : SinkVerdict::kUnknown;
  if (verdict == SinkVerdict::kVerified && s.is_good) good_++;
  (verdict == SinkVerdict::kVerified ? report_.verified : verdict == SinkVerdict::kRejected ? report_.rejected : report_.unknown)++;
}

bool Enumerator::holds_at_ragged_witness(const Structure& s) {
  const auto graph = instantiate(s, ref_.ragged.params, halve(split_extents(s, ref_.ragged.params)));
  if (!graph) return false;
  const auto results = evaluate(*graph, std::span<const FieldTensor>(ref_.params_ragged), ref_.algebra);
  const bool zero = ref_.algebra.zero_division();
  ref_.algebra.clear_zero_division();
  for (size_t i = 0; i < results.size(); i++)
    if (zero || !(results[i].dims == ref_.results_ragged[i].dims) || results[i].data != ref_.results_ragged[i].data) return false;
  return true;
}

}  // namespace search

SearchReport enumerate(const Program& program, const Target& target, const SearchOptions& options, const CandidateSink& sink) {
  return search::Enumerator(program, target, options, sink).run();
}

}  // namespace mirage

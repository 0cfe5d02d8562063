// Growth of kernel graphs; see enumerator.h.
#include "search/enumerator.h"
#include <algorithm>

namespace mirage {
namespace search {
namespace {

constexpr int64_t kMaxValues = 4'000;          // of one split; more is not closed further, and said so
constexpr int64_t kRegisterBytes = 256 * 1024;  // a block may keep rows in registers beside shared memory: what it loads is bounded by both
constexpr int kMaxCutKernels = 2;               // graph-defined operators of one program
constexpr size_t kSecondChances = 4;            // graphs of one split that are tried when none of the best was verified
constexpr int64_t kMaxCandidates = 1'000;       // handed out: verifying more would take longer than finding them

bool is_free(const Graph& g, ValueId v) {   // an input, positions, or views of these: an address calculation
  while (is_view(g.def(v).op)) v = g.def(v).operands[0];
  return g.def_form<Input>(v) || g.def_form<Iota>(v);
}

/// The value that a result stores, before transposes and reshapes: they only say where each element goes.
ValueId behind_stores(const Graph& g, ValueId v) {
  while (!is_free(g, v) && (g.def_form<Transpose>(v) || g.def_form<Reshape>(v))) v = g.def(v).operands[0];
  return v;
}

/// Adds g's nodes but inputs and outputs; its params stand for `operands`. The values of its results, by number; nullopt if one does not fit.
std::optional<std::vector<ValueId>> append(Builder& b, const Graph& g, const std::vector<ValueId>& operands) {
  std::vector<ValueId> at(static_cast<size_t>(g.num_values()), -1), out(static_cast<size_t>(g.num_results()), -1);
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    if (const auto* in = g.form<Input>(n)) { at[static_cast<size_t>(node.first_value)] = operands[static_cast<size_t>(in->param)]; continue; }
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
    : program_(program), target_(target), options_(options), sink_(sink), is_tail_(parts > 0), start_(std::chrono::steady_clock::now()) {
  ref_ = make_reference(program, options.seed);
  if (options.judge) pool_.set_judge(options.judge);
  for (NodeId n : program.graph.outputs()) outputs_.push_back(behind_stores(program.graph, program.graph.node(n).operands[0]));
  if (!ref_.refusal.empty()) return;
  worlds_ = make_worlds(program);
  const int params = static_cast<int>(program.inputs.size());
  for (NodeId n : program.graph.inputs())
    if (program.graph.form<Input>(n)->param >= params - parts) whole_.push_back(ref_.classes.of[static_cast<size_t>(program.graph.node(n).first_value)][0]);
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
  else if (report_.candidates >= kMaxCandidates) report_.stop_reason = "candidates";
  else if (options_.stop && options_.stop->load(std::memory_order_relaxed)) report_.stop_reason = "interrupted";
  else if (options_.max_seconds > 0 && ++clock_skips_ % 64 == 0 && seconds() > options_.max_seconds) report_.stop_reason = "time";
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
  const int most = is_tail_ ? 1 : std::min(options_.max_kernel_ops, kMaxCutKernels);
  const int rounds = 2 * most;
  for (int round = 0; round < rounds; round++) {   // iterative deepening: fewer kernels first, each number with its share of the budget; poor splits when all others are through
    const int kernels = round % most + 1;
    effort_limit_ = options_.max_states - (round + 1 < rounds ? options_.max_states >> (round + 1) : 0);   // half of it for one kernel, half of the rest for two, and so on
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
    if (!report_.stop_reason.empty() || (options_.dominance && (good_ > 0 || (poor_now_ && report_.verified > 0) || (round + 1 == most && report_.verified > 0)))) break;
  }
  if (report_.stop_reason.empty() && cut_short_) {
    report_.stop_reason = "states";
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

/// What the next operator may compute: the last one all that is missing, others one value of the program that several operators can share the way to.
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
  return out;
}

void Enumerator::grow(State& s, int kernels_left) {
  if (stopped()) return;
  if (is_complete(s)) {
    if (s.kernels > 0) deliver(s);   // a program that only copies has nothing to fuse
    return;
  }
  if (kernels_left == 0) return;
  for (const auto& targets : target_choices(s, kernels_left)) {
    const Problem problem = make_problem(ref_.graph(), available(s), targets);
    if (problem.inside.empty()) continue;
    solve(problem, [&](const Solution& solution) {
      const Builder::Mark mark = s.builder.mark();
      const int kernels = s.kernels;
      const bool was_good = s.is_good;
      s.is_good &= solution.split.is_good;
      if (add(s, targets, solution)) grow(s, kernels_left - 1);
      s.kernels = kernels;
      s.is_good = was_good;
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
  for (const TensorInfo& t : program_.inputs) params.push_back(s.at[static_cast<size_t>(input_value(static_cast<int>(&t - program_.inputs.data())))]);
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
  const auto [it, fresh] = tails_.emplace(tail.program.canonical, std::vector<Graph>{});
  if (!fresh) return it->second;
  std::vector<Type> types = ref_.even.params;   // at the even witness, where two blocks made the parts
  for (ValueId v : tail.leaves) types.push_back(ref_.even.graph.type(v));
  types.insert(types.end(), tail.parts.begin(), tail.parts.end());
  SearchOptions options = options_;
  options.max_states = std::max<int64_t>(1, std::min(effort_limit_, problem_limit_) - report_.effort) / 4;
  const CandidateSink collect = [&](const Structure& s) {
    if (auto g = instantiate(s, types, halve(split_extents(s, types)))) it->second.push_back(std::move(*g));
    return SinkVerdict::kVerified;
  };
  const SearchReport r = Enumerator(tail.program, target_, options, collect, static_cast<int>(tail.parts.size())).run();
  report_.states += r.states;
  report_.effort += r.effort;
  for (size_t g = 0; g < r.gates.size(); g++) count(static_cast<Gate>(g), r.gates[g].first_example, r.gates[g].closed);
  if (report_.stop_reason.empty() && (r.stop_reason == "interrupted" || r.stop_reason == "time")) { report_.stop_reason = r.stop_reason; report_.complete = false; }
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
  Structure st{remove_dead(s.builder.graph()), next_rank_++, s.kernels, s.is_good, worlds_};
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

/// A lower bound on what a block holds at any size: what no axis splits, of all loads at once.
bool Enumerator::fits_memory(const Problem& problem, const Split& split) {
  int64_t bytes = 0;
  for (const Load& l : split.loads) {
    Dims tile = ref_.graph().dims(l.leaf);
    for (int8_t d : l.part.grid) if (d >= 0) tile[d] = 1;
    if (l.part.loop >= 0) tile[l.part.loop] = 1;
    bytes += tile.elements() * dtype_bytes(ref_.graph().type(l.leaf).dtype);
  }
  if (bytes <= target_.smem_per_block + kRegisterBytes) return true;
  count(Gate::kMemory, "tiles of at least " + std::to_string(bytes) + " bytes" + (split.loop_class < 0 ? " without a loop" : ""));
  return false;
}

/// What the program's own operators make of the obvious fusion: the bound is raised to it.
int Enumerator::block_ops_needed(const Problem& problem, const Split& split) const {
  const Graph& g = ref_.graph();
  int contractions = 0, regions = 0;
  std::vector<bool> inside(static_cast<size_t>(g.num_nodes()));
  for (NodeId n : problem.inside) inside[static_cast<size_t>(n)] = true;
  for (NodeId n : problem.inside) {
    contractions += g.form<MatMul>(n) || g.form<Reduce>(n);
    const std::vector<ValueId>& in = g.node(n).operands;
    regions += g.form<Map>(n) && std::none_of(in.begin(), in.end(), [&](ValueId v) { return g.def_form<Map>(v) && inside[static_cast<size_t>(g.value(v).node)]; });
  }
  return static_cast<int>(split.loads.size() + problem.targets.size()) + (split.loop_class >= 0 ? 2 : 1) * contractions + regions;
}

std::vector<Split> Enumerator::open_splits(const Problem& problem, const SplitOptions& which) {
  Splits splits = enumerate_splits(ref_.graph(), ref_.classes, problem, which);
  count(Gate::kIndex, splits.index_example, splits.index_closed);
  std::erase_if(splits.all, [&](const Split& s) { return s.is_poor != poor_now_ || !fits_memory(problem, s); });
  return std::move(splits.all);
}

/// Results of the program are rounded as they are stored; what other kernels read has the type that it has in the program, where only casts and comparisons give another one than kReal.
std::vector<DType> Enumerator::stored_dtypes(const Problem& problem) const {
  std::vector<DType> out;
  for (ValueId t : problem.targets) {
    out.push_back(ref_.graph().type(t).dtype);
    const std::vector<ValueId>& p = problem.targets;
    const std::vector<ValueId>& there = problem.leaves;
    const bool is_last = std::all_of(outputs_.begin(), outputs_.end(), [&](ValueId o) { return std::count(p.begin(), p.end(), o) || std::count(there.begin(), there.end(), o); });
    if (!is_last || std::count(outputs_.begin(), outputs_.end(), t) != 1) continue;
    for (size_t r = 0; r < outputs_.size(); r++) if (outputs_[r] == t) out.back() = ref_.graph().form<Output>(ref_.graph().outputs()[r])->dtype;
  }
  return out;
}

namespace {

/// The search under one split, paused between numbers of ideas.
struct SplitSearch {
  SplitSearch(Reference& ref, const Problem& problem, const Split& s, ExprPool& pool, const std::vector<ExprId>& expressions, const SearchOptions& options, std::vector<DType> dtypes,
              int max_block_ops, SearchReport& report)
      : split(s), values(ref, problem, split, pool, expressions, options.expression_gate, report), universe(values, problem.targets.size(), kMaxValues),
        search(ref, problem, split, values, options, std::move(dtypes), max_block_ops, report) {}
  const Split split;
  BlockValues values;
  Universe universe;
  BlockSearch search;
  bool settled = false;   ///< something under this split was verified
};

}  // namespace

void Enumerator::solve(const Problem& problem, const SolutionSink& sink) {
  const auto key = std::tuple{problem.leaves, problem.targets, poor_now_};
  if (const auto it = solved_.find(key); it != solved_.end()) {
    const std::vector<Solution> again = it->second;   // a copy: what the sink does may add problems
    for (const Solution& s : again) sink(s);
    return;
  }
  // Where several kernels are tried, one hopeless problem may not use up the budget of the others; what the sink searches on its own account is not counted.
  const int64_t outer_limit = problem_limit_;
  if (kernels_now_ > 1) problem_limit_ = report_.effort + options_.max_states / 32;
  const SolutionSink uncounted = [&](const Solution& s) {
    const int64_t before = report_.effort, limit = problem_limit_;
    sink(s);
    problem_limit_ = limit + (report_.effort - before);
  };
  std::vector<Solution> all;
  SplitOptions which{false, false, !is_tail_ && kernels_now_ == 1, whole_, target_.smem_per_block + kRegisterBytes, target_.smem_per_block};
  search_splits(problem, which, all, uncounted);
  // What loads a tensor twice, or computes values again, only where nothing else streams what it sums.
  const auto streams = [](const Solution& s) { return s.split.loop_class >= 0; };
  if (std::none_of(all.begin(), all.end(), streams) || !options_.dominance) {
    which.apart = true;
    search_splits(problem, which, all, uncounted);
  }
  if (all.empty() || !options_.dominance) {
    which.apart = false;
    which.recompute = true;
    search_splits(problem, which, all, uncounted);
  }
  problem_limit_ = outer_limit;
  solved_[key] = std::move(all);
}

void Enumerator::search_splits(const Problem& problem, const SplitOptions& which, std::vector<Solution>& all, const SolutionSink& sink) {
  std::vector<ExprId> expressions(static_cast<size_t>(ref_.graph().num_values()), -1);
  if (options_.expression_gate) expressions = reference_expressions(ref_, problem, pool_);
  std::vector<std::unique_ptr<SplitSearch>> searches;
  for (const Split& split : open_splits(problem, which)) {
    const int max_block_ops = std::max(options_.max_block_ops, block_ops_needed(problem, split));
    report_.max_block_ops_used = std::max(report_.max_block_ops_used, max_block_ops);
    auto s = std::make_unique<SplitSearch>(ref_, problem, split, pool_, expressions, options_, stored_dtypes(problem), max_block_ops, report_);
    if (s->values.fits()) searches.push_back(std::move(s));
    else count(Gate::kType, "more than 8 dimensions with blocks and iterations");
  }
  auto hand_out = [&](SplitSearch& s, std::vector<BlockCandidate> more) {
    std::stable_sort(more.begin(), more.end(), [](const BlockCandidate& a, const BlockCandidate& b) { return a.work < b.work; });
    for (BlockCandidate& c : more) {
      const auto same = [&](const Solution& o) { return o.block.body == c.body && o.block.tail.has_value() == c.tail.has_value() && (!c.tail || o.block.tail->program.canonical == c.tail->program.canonical); };
      if (std::any_of(all.begin(), all.end(), same)) continue;   // under both kinds of indices, or with fewer ideas
      std::vector<Graph> seconds;
      if (c.tail) seconds = solve_tail(*c.tail);
      if (!c.tail) { all.push_back({s.split, std::move(c), {}}); sink(Solution(all.back())); }
      for (Graph& g : seconds) { all.push_back({s.split, c, std::move(g)}); sink(Solution(all.back())); }
    }
  };
  for (int ideas = 0; ideas <= options_.max_ideas && !stopped(); ideas++)
    for (auto& s : searches) {
      if (stopped() || s->universe.is_capped() || (options_.dominance && s->settled)) continue;   // more ideas only where fewer did not lead anywhere
      if (options_.dominance && std::any_of(searches.begin(), searches.end(), [&](const auto& o) { return o != s && o->settled && s->split.is_instance_of(o->split); })) { s->settled = true; continue; }
      const bool reached = s->universe.close_to(ideas, [&] { return stopped(); });
      if (s->universe.is_capped()) report_.complete = false;
      if (!reached) continue;
      const int64_t before = report_.verified;
      auto run = [&](bool dominance, size_t limit, bool concat = false) { hand_out(*s, s->search.run(s->universe, ideas, dominance, concat, limit, [&] { return stopped(); })); };
      run(options_.dominance, SIZE_MAX);
      if (!options_.dominance) run(false, SIZE_MAX, true);   // the planner has no concatenations inside blocks: beaten by what it can plan
      if (options_.dominance && kernels_now_ == 1 && report_.verified == before) run(false, kSecondChances);   // what was beaten by graphs that did not pass
      s->settled = kernels_now_ > 1 || is_tail_ || report_.verified > before;
    }
}

}  // namespace search

SearchReport enumerate(const Program& program, const Target& target, const SearchOptions& options, const CandidateSink& sink) {
  return search::Enumerator(program, target, options, sink).run();
}

}  // namespace mirage

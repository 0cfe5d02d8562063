// Growth of block graphs; see block_search.h.
#include "search/growth/block_search.h"
#include <algorithm>
#include <bit>
#include <numeric>

namespace mirage::search {

constexpr int64_t kNominalParts = 16;   // of a split reduction; the true number is chosen later
// of an entry of the table of visited states beside its key, and of a node of a complete graph; about, measured
constexpr int64_t kVisitedBytes = 160, kNodeBytes = 256;

BlockSearch::BlockSearch(const Reference& ref, const Problem& problem, const Split& split, BlockValues& values,
                         const SearchOptions& options, std::vector<DType> output_dtypes, int max_block_ops, Meter& meter)
    : ref_(ref),
      problem_(problem),
      split_(split),
      values_(values),
      options_(options),
      dtypes_(std::move(output_dtypes)),
      max_block_ops_(max_block_ops),
      meter_(meter) {}

std::vector<BlockCandidate> BlockSearch::run(const Universe& universe, int ideas, bool dominance, bool concat, size_t limit) {
  std::vector<Derivation> derivations = universe.useful();
  auto is_concat = [&](const Derivation& d) { return values_.operators()[static_cast<size_t>(d.op)].is_concat; };
  if (!concat) std::erase_if(derivations, is_concat);
  else if (std::none_of(derivations.begin(), derivations.end(), is_concat)) return {};
  std::vector<int> targets;
  for (size_t t = 0; t < problem_.targets.size(); t++) targets.push_back(universe.target(t));
  return run_on(std::move(derivations), std::move(targets), ideas, dominance, concat, limit);
}

std::vector<BlockCandidate> BlockSearch::run_on(std::vector<Derivation> derivations, std::vector<int> targets, int ideas, bool dominance,
                                                bool concat, size_t limit) {
  ideas_ = ideas;
  concat_ = concat;
  dominance_ = dominance;
  limit_ = limit;
  derivations_ = std::move(derivations);
  targets_ = std::move(targets);
  uses_of_.assign(static_cast<size_t>(values_.size()), {});
  position_.assign(static_cast<size_t>(values_.size()), -1);
  distinct_operands_.clear();
  found_.clear();
  for (size_t d = 0; d < derivations_.size(); d++) {
    std::set<int> operands(derivations_[d].operands.begin(), derivations_[d].operands.end());
    for (int id : operands) uses_of_[static_cast<size_t>(id)].push_back(static_cast<int>(d));
    distinct_operands_.push_back(static_cast<uint8_t>(operands.size()));
  }
  State s;
  auto start = [&](int id) {
    position_[static_cast<size_t>(id)] = static_cast<int>(s.ids.size());
    s.ids.push_back(id);
    s.derivation.push_back(-1);
    s.uses.push_back(0);
  };
  for (int id : values_.loads()) { start(id); s.memory += values_.tile_elements(id); }
  for (int id : values_.constants()) start(id);
  s.counted = static_cast<int>(values_.loads().size() + targets_.size());
  grow(s);
  meter_.release(scratch_bytes_);   // the step alone has held them
  scratch_bytes_ = 0;
  visited_.clear();
  return std::move(found_);
}

/// Reads as the paper's figure: complete graphs leave, steps are tried in canonical order, gates close branches.
void BlockSearch::grow(State& s) {
  meter_.report.states++;
  meter_.report.effort += 8;
  if (found_.size() >= limit_ || meter_.done()) return;
  if (is_complete(s)) { if (!concat_ || s.concats > 0) accept(s); return; }
  for (const Step& step : steps(s)) {
    if (auto gate = first_closed(s, step)) { close(*gate, step); continue; }
    const Rank last = s.last;
    apply(s, step);
    if (!can_finish(s)) close(Gate::kUnused, step);
    else if (options_.merge && is_merged(s)) close(Gate::kMerge, step);
    else grow(s);
    rollback(s, last);
  }
}

Rank BlockSearch::rank_of(const Derivation& d) const {
  std::array<int, 4> at{};
  const size_t n = d.operands.size();
  for (size_t i = 0; i < n; i++) at[i] = position_[static_cast<size_t>(d.operands[i])];
  if (values_.operators()[static_cast<size_t>(d.op)].commutative) std::sort(at.begin(), at.begin() + static_cast<std::ptrdiff_t>(n));
  return make_rank(std::span<const int>(at.data(), n), d.op);
}

std::vector<BlockSearch::Step> BlockSearch::steps(const State& s) {
  std::vector<Step> out;
  for (int m = 0; m < static_cast<int>(s.ids.size()); m++)
    for (int i : uses_of_[static_cast<size_t>(s.ids[static_cast<size_t>(m)])]) {
      const Derivation& d = derivations_[static_cast<size_t>(i)];
      int newest = 0;
      bool ready = true;
      for (int id : d.operands) {
        const int p = position_[static_cast<size_t>(id)];
        ready &= p >= 0;
        newest = std::max(newest, p);
      }
      if (ready && newest == m) out.push_back({rank_of(d), i});
    }
  std::sort(out.begin(), out.end(), [](const Step& a, const Step& b) { return a.rank < b.rank; });
  return out;
}

bool BlockSearch::is_counted(int op) const {
  const Op& o = values_.operators()[static_cast<size_t>(op)].op;
  return !std::holds_alternative<Map>(o) && !is_view(o);
}

std::optional<Gate> BlockSearch::first_closed(const State& s, const Step& step) {
  const Derivation& d = derivations_[static_cast<size_t>(step.derivation)];
  if (!(step.rank > s.last)) return Gate::kRank;
  if (s.ideas + values_.is_idea(d.op, d.result) > ideas_) return Gate::kBudget;
  if (is_counted(d.op) && s.counted + 1 > max_block_ops_) return Gate::kBudget;
  if (position_[static_cast<size_t>(d.result)] >= 0) return Gate::kDuplicate;
  if (dominance_ && is_beaten(s.work + values_.work(d.op, d.operands, d.result), s.memory)) return Gate::kDominance;
  return std::nullopt;
}

void BlockSearch::apply(State& s, const Step& step) {
  const Derivation& d = derivations_[static_cast<size_t>(step.derivation)];
  for (int id : d.operands) s.uses[static_cast<size_t>(position_[static_cast<size_t>(id)])]++;
  position_[static_cast<size_t>(d.result)] = static_cast<int>(s.ids.size());
  s.ids.push_back(d.result);
  s.derivation.push_back(step.derivation);
  s.uses.push_back(0);
  s.ideas += values_.is_idea(d.op, d.result);
  s.concats += values_.operators()[static_cast<size_t>(d.op)].is_concat;
  s.counted += is_counted(d.op);
  s.work += values_.work(d.op, d.operands, d.result);
  if (std::holds_alternative<Accum>(values_.operators()[static_cast<size_t>(d.op)].op)) s.memory += values_.tile_elements(d.result);
  s.last = step.rank;
}

void BlockSearch::rollback(State& s, const Rank& last) {
  const Derivation& d = derivations_[static_cast<size_t>(s.derivation.back())];
  position_[static_cast<size_t>(d.result)] = -1;
  s.ids.pop_back();
  s.derivation.pop_back();
  s.uses.pop_back();
  for (int id : d.operands) s.uses[static_cast<size_t>(position_[static_cast<size_t>(id)])]--;
  s.ideas -= values_.is_idea(d.op, d.result);
  s.concats -= values_.operators()[static_cast<size_t>(d.op)].is_concat;
  s.counted -= is_counted(d.op);
  s.work -= values_.work(d.op, d.operands, d.result);
  if (std::holds_alternative<Accum>(values_.operators()[static_cast<size_t>(d.op)].op)) s.memory -= values_.tile_elements(d.result);
  s.last = last;
}

bool BlockSearch::is_complete(const State& s) const {
  for (int t : targets_) if (position_[static_cast<size_t>(t)] < 0) return false;
  const size_t loads = values_.loads().size(), constants = values_.constants().size();
  for (size_t p = 0; p < s.ids.size(); p++) {
    const bool spare = p >= loads && p < loads + constants;
    if (!spare && s.uses[p] == 0 && !std::count(targets_.begin(), targets_.end(), s.ids[p])) return false;
  }
  return true;
}

/// Whether the targets, and a use for every value that still lacks one, can be reached by steps above the last rank. Ranks of steps on
/// values that are still to come are not
/// known: they pass.
bool BlockSearch::can_finish(const State& s) {
  there_.assign(position_.size(), 0);
  missing_ = distinct_operands_;
  queue_.clear();
  auto present = [&](int id) { return position_[static_cast<size_t>(id)] >= 0; };
  auto add = [&](int id) { if (!there_[static_cast<size_t>(id)]) { there_[static_cast<size_t>(id)] = 1; queue_.push_back(id); } };
  auto alive = [&](size_t i) {   // of derivations whose operands are there
    const Derivation& d = derivations_[i];
    if (present(d.result) || s.ideas + values_.is_idea(d.op, d.result) > ideas_) return false;
    return !std::all_of(d.operands.begin(), d.operands.end(), present) || rank_of(d) > s.last;
  };
  for (int id : s.ids) add(id);
  for (size_t next = 0; next < queue_.size(); next++)
    for (int i : uses_of_[static_cast<size_t>(queue_[next])])
      if (--missing_[static_cast<size_t>(i)] == 0 && alive(static_cast<size_t>(i))) add(derivations_[static_cast<size_t>(i)].result);
  for (int t : targets_) if (!there_[static_cast<size_t>(t)]) return false;
  const size_t loads = values_.loads().size(), constants = values_.constants().size();
  for (size_t p = 0; p < s.ids.size(); p++) {
    if (s.uses[p] > 0 || (p >= loads && p < loads + constants) || std::count(targets_.begin(), targets_.end(), s.ids[p])) continue;
    const auto& uses = uses_of_[static_cast<size_t>(s.ids[p])];
    if (std::none_of(uses.begin(), uses.end(),
                     [&](int i) { return missing_[static_cast<size_t>(i)] == 0 && alive(static_cast<size_t>(i)); }))
      return false;
  }
  return true;
}

/// The same values in the same order were reached before by other operators, at no more work, with no higher last rank: all that can follow
/// has been there.
bool BlockSearch::is_merged(const State& s) {
  std::vector<int> key = s.ids;
  for (size_t p = 0; p < s.ids.size(); p++) if (s.uses[p] > 0) key.push_back(-1 - static_cast<int>(p));
  const auto it = visited_.find(key);
  if (it == visited_.end()) {
    const int64_t bytes = static_cast<int64_t>(key.size() * sizeof(int)) + kVisitedBytes;
    if (meter_.charge(bytes, false)) {   // without room it is not remembered, and what follows may be visited twice
      scratch_bytes_ += bytes;
      visited_.emplace(std::move(key), std::pair{s.last, s.work});
    }
    return false;
  }
  if (it->second.first <= s.last && it->second.second <= s.work) return true;
  if (s.last <= it->second.first && s.work <= it->second.second) it->second = {s.last, s.work};
  return false;
}

bool BlockSearch::is_beaten(int64_t work, int64_t memory) const {
  return std::any_of(found_.begin(), found_.end(), [&](const BlockCandidate& c) { return c.work <= work && c.memory <= memory; });
}

void BlockSearch::accept(const State& s) {
  BlockCandidate c;
  if (!build(s, c)) {
    meter_.count(Gate::kLaw, [] { return "blocks along an axis would store one part of a sum"; });
    return;
  }
  c.work = s.work;
  c.memory = s.memory;
  c.ideas = s.ideas;
  if (count_block_ops(c.body) > max_block_ops_) {
    meter_.count(Gate::kBudget, [&] { return std::to_string(count_block_ops(c.body)) + " operators"; });
    return;
  }
  if (dominance_) std::erase_if(found_, [&](const BlockCandidate& o) { return c.beats(o); });
  const int64_t bytes = c.body.num_nodes() * kNodeBytes;
  if (!meter_.charge(bytes)) return;
  scratch_bytes_ += bytes;
  found_.push_back(std::move(c));
}

void BlockSearch::close(Gate gate, const Step& step) {
  const Derivation& d = derivations_[static_cast<size_t>(step.derivation)];
  meter_.count(gate, [&] { return values_.describe(d.op, d.operands); });
}

namespace {

/// An operator on operands that have one leading dimension more.
Op extend(Op op) {
  if (auto* r = std::get_if<Reduce>(&op)) r->dim++;
  if (auto* t = std::get_if<Transpose>(&op)) {
    Transpose moved;
    for (size_t i = 1; i < kMaxRank; i++) moved.perm[i] = static_cast<int8_t>(t->perm[i - 1] + 1);
    op = moved;
  }
  if (auto* r = std::get_if<Reshape>(&op)) {
    Dims d{1};
    for (int64_t e : r->dims) d.push_back(e);
    r->dims = d;
  }
  return op;
}

Dims extend(const Dims& dims) {
  Dims d{1};
  for (int64_t e : dims) d.push_back(e);
  return d;
}

Partition extend(Partition p) {
  for (int8_t& d : p.grid) if (d >= 0) d++;
  if (p.loop >= 0) p.loop++;
  return p;
}

}  // namespace

/// The step that made position p, on what stands at its operands' positions.
ValueId BlockSearch::add_step(Builder& b, const State& s, size_t p, const std::vector<ValueId>& at, bool extended) const {
  const Derivation& d = derivations_[static_cast<size_t>(s.derivation[p])];
  std::vector<int> positions;
  for (int id : d.operands) positions.push_back(position_[static_cast<size_t>(id)]);
  const BlockOp& op = values_.operators()[static_cast<size_t>(d.op)];
  if (op.commutative) std::sort(positions.begin(), positions.end());
  std::vector<ValueId> operands;
  for (int q : positions) operands.push_back(at[static_cast<size_t>(q)]);
  Op o = extended ? extend(op.op) : op.op;
  if (auto* r = std::get_if<Reshape>(&o)) r->dims = *unit_reshape(b.graph().dims(operands[0]), r->dims);
  if (op.is_concat) {
    const int rank = b.graph().dims(operands[0]).rank();
    const ValueId left = b.add(Concat{rank - 1}, {operands[0], operands[1]}), right = b.add(Concat{rank - 2}, {operands[2], operands[3]});
    operands = {left, right};
  }
  return b.add(std::move(o), std::move(operands));
}

/// The block graph of the wanted positions; results: positions, in order.
Graph BlockSearch::build_body(const State& s, const std::vector<bool>& wanted, const std::vector<size_t>& results, bool extended,
                              std::vector<ValueId>& operands) const {
  Launch launch;
  std::vector<ValueId> at(s.ids.size(), -1);
  for (size_t i = 0; i < split_.loads.size(); i++) {   // a part of the graph may need fewer axes, or no loop
    if (!wanted[static_cast<size_t>(position_[static_cast<size_t>(values_.loads()[i])])]) continue;
    const Partition& part = split_.loads[i].part;
    for (size_t a = 0; a < 3; a++) if (part.grid[a] >= 0) launch.grid[a] = 2;
    if (part.loop >= 0) launch.loop = 2;
  }
  Builder b(Level::kBlock, launch);
  const size_t loads = values_.loads().size(), constants = values_.constants().size();
  for (size_t i = 0; i < split_.loads.size(); i++) {
    const Load& l = split_.loads[i];
    const auto p = static_cast<size_t>(position_[static_cast<size_t>(values_.loads()[i])]);
    if (!wanted[p]) continue;
    Type t = ref_.even.graph.type(l.leaf);
    for (int8_t d : l.part.grid) if (d >= 0) t.dims[d] /= 2;
    if (l.part.loop >= 0) t.dims[l.part.loop] /= 2;
    if (extended) t.dims = extend(t.dims);
    auto param = std::find(operands.begin(), operands.end(), l.leaf);
    if (param == operands.end()) param = operands.insert(param, l.leaf);
    at[p] = b.add_input(static_cast<int>(param - operands.begin()), t, extended ? extend(l.part) : l.part);
  }
  for (size_t p = loads; p < loads + constants; p++)
    if (wanted[p]) at[p] = b.add(ref_.even.graph.node(values_.constant_node(s.ids[p])).op, {});
  for (size_t p = loads + constants; p < s.ids.size(); p++) if (wanted[p]) at[p] = add_step(b, s, p, at, extended);
  for (size_t r = 0; r < results.size(); r++) {
    if (!extended) { b.add_output(static_cast<int>(r), at[results[r]], dtypes_[r], split_.stores[r]); continue; }
    Partition store;   // the parts of the blocks along the partial axis lie side by side along the leading dimension
    const auto& tags = values_.value(s.ids[results[r]]).tags;
    for (size_t d = 0; d < tags.size(); d++)
      for (int a = 0; a < split_.axes; a++) if (tags[d].split >> a & 1) store.grid[static_cast<size_t>(a)] = static_cast<int8_t>(d + 1);
    store.grid[static_cast<size_t>(split_.partial_axis)] = 0;
    b.add_output(static_cast<int>(r), at[results[r]], DType::kReal, store);
  }
  return std::move(b).finish();
}

/// Whether every axis that splits something wanted splits the parts, too: blocks may not write the same place.
bool BlockSearch::stores_all_axes(const State& s, const std::vector<bool>& wanted, const std::vector<size_t>& parts) const {
  for (int a = 0; a < split_.axes; a++) {
    if (a == split_.partial_axis) continue;
    bool used = false;
    for (size_t i = 0; i < split_.loads.size(); i++)
      used |= wanted[static_cast<size_t>(position_[static_cast<size_t>(values_.loads()[i])])] &&
              split_.loads[i].part.grid[static_cast<size_t>(a)] >= 0;
    for (size_t p : parts) {
      const auto& tags = values_.value(s.ids[p]).tags;
      if (used && std::none_of(tags.begin(), tags.end(), [&](DimTag t) { return t.split >> a & 1; })) return false;
    }
  }
  return true;
}

/// What follows the sums over blocks, as a program of its own.
Tail BlockSearch::build_tail(const State& s, const std::vector<bool>& wanted, const std::vector<size_t>& parts) const {
  Tail tail;
  Program& program = tail.program;
  const Graph& g = ref_.graph();
  const size_t loads = values_.loads().size(), constants = values_.constants().size();
  program.inputs = ref_.program->inputs;
  Builder b(Level::kKernel);
  std::vector<ValueId> inputs, at(s.ids.size(), -1);
  for (size_t i = 0; i < program.inputs.size(); i++) inputs.push_back(b.add_input(static_cast<int>(i), program.inputs[i].type));
  auto add_input = [&](const Type& t) {
    program.inputs.push_back({"leaf" + std::to_string(program.inputs.size()), t, row_major_strides(t.dims), {}});
    return b.add_input(static_cast<int>(program.inputs.size()) - 1, t);
  };
  std::map<ValueId, ValueId> leaf;   // by value of the reference
  for (size_t i = 0; i < split_.loads.size(); i++) {
    const ValueId v = split_.loads[i].leaf;
    const auto p = static_cast<size_t>(position_[static_cast<size_t>(values_.loads()[i])]);
    if (!wanted[p]) continue;
    if (!leaf.count(v)) {
      if (const auto* in = g.def_form<Input>(v)) leaf[v] = inputs[static_cast<size_t>(in->param)];
      else { leaf[v] = add_input(g.type(v)); tail.leaves.push_back(v); }
      leaf[v] = b.add(Reshape{extend(g.dims(v))}, {leaf[v]});
    }
    at[p] = leaf[v];
  }
  for (size_t p = loads; p < loads + constants; p++) if (wanted[p]) at[p] = b.add(g.node(values_.constant_node(s.ids[p])).op, {});
  std::vector<ValueId> part(s.ids.size(), -1);
  for (size_t p : parts) {
    Dims dims{kNominalParts};
    for (DimTag t : values_.value(s.ids[p]).tags) dims.push_back(t.cls < 0 ? 1 : ref_.class_extent(t.cls));
    part[p] = add_input({DType::kReal, dims});
    const BlockValue& v = values_.value(s.ids[p]);
    Dims small{2};
    for (size_t d = 0; d < v.tags.size(); d++)
      small.push_back(v.data.dims[v.data.dims.rank() - static_cast<int>(v.tags.size() - d)] << std::popcount(v.tags[d].split));
    tail.parts.push_back({DType::kReal, small});
  }
  for (size_t p = loads + constants; p < s.ids.size(); p++) {
    if (!wanted[p]) continue;
    const Derivation& d = derivations_[static_cast<size_t>(s.derivation[p])];
    const BlockOp& op = values_.operators()[static_cast<size_t>(d.op)];
    if (op.over_blocks)
      at[p] = b.add(Reduce{std::get<Accum>(op.op).fn, 0, 0}, {part[static_cast<size_t>(position_[static_cast<size_t>(d.operands[0])])]});
    else at[p] = add_step(b, s, p, at, true);
  }
  for (size_t t = 0; t < targets_.size(); t++) {
    const Dims& dims = g.dims(problem_.targets[t]);
    const ValueId v = b.add(Reshape{dims}, {at[static_cast<size_t>(position_[static_cast<size_t>(targets_[t])])]});
    b.add_output(static_cast<int>(t), v, dtypes_[t]);
    program.outputs.push_back({"target" + std::to_string(t), {dtypes_[t], dims}, row_major_strides(dims), {}});
  }
  program.name = "tail";
  program.graph = std::move(b).finish();
  program.canonical = print(program.graph);
  return tail;
}

/// False if there is no such graph: several blocks would store one part, or a result is a constant that no block computes.
bool BlockSearch::build(const State& s, BlockCandidate& c) const {
  const size_t loads = values_.loads().size(), constants = values_.constants().size();
  std::vector<size_t> results;
  for (int t : targets_) results.push_back(static_cast<size_t>(position_[static_cast<size_t>(t)]));
  if (std::any_of(results.begin(), results.end(), [&](size_t p) { return p >= loads && p < loads + constants; })) return false;
  if (split_.partial_axis < 0) {
    std::vector<bool> wanted(s.ids.size(), true);
    for (size_t p = loads; p < loads + constants; p++) wanted[p] = s.uses[p] > 0;
    c.body = build_body(s, wanted, results, false, c.operands);
    return true;
  }
  // Behind the sums over blocks stands the tail, with all that it reads; the sums' operands are what the block graph has to make.
  std::vector<bool> in_tail(s.ids.size()), in_body(s.ids.size());
  std::vector<size_t> parts;
  for (size_t p : results) in_tail[p] = true;
  for (size_t p = s.ids.size(); p-- > 0;) {
    if (s.derivation[p] < 0) continue;
    const Derivation& d = derivations_[static_cast<size_t>(s.derivation[p])];
    const bool sum = values_.operators()[static_cast<size_t>(d.op)].over_blocks;
    for (int id : d.operands) {
      const auto q = static_cast<size_t>(position_[static_cast<size_t>(id)]);
      if (in_tail[p] && sum) { in_body[q] = true; if (!std::count(parts.begin(), parts.end(), q)) parts.push_back(q); }
      else if (in_tail[p]) in_tail[q] = true;
      else if (in_body[p]) in_body[q] = true;
    }
    // both need it
    if (in_tail[p] && in_body[p] && !sum) for (int id : d.operands) in_body[static_cast<size_t>(position_[static_cast<size_t>(id)])] = true;
  }
  std::sort(parts.begin(), parts.end());
  if (!stores_all_axes(s, in_body, parts)) return false;
  c.tail = build_tail(s, in_tail, parts);
  c.body = build_body(s, in_body, parts, true, c.operands);
  return true;
}

int count_block_ops(const Graph& g) {
  std::vector<int> region(static_cast<size_t>(g.num_nodes()));
  std::iota(region.begin(), region.end(), 0);
  auto find = [&](int x) { while (region[static_cast<size_t>(x)] != x) x = region[static_cast<size_t>(x)]; return x; };
  int count = 0, maps = 0, joined = 0;
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Op& op = g.node(n).op;
    // a concatenation is an offset in shared memory
    if (std::holds_alternative<Const>(op) || std::holds_alternative<Concat>(op) || is_view(op)) continue;
    if (!std::holds_alternative<Map>(op)) { count++; continue; }
    maps++;
    for (ValueId v : g.node(n).operands) {
      const NodeId def = g.value(v).node;
      if (!g.form<Map>(def) || find(def) == find(n)) continue;
      region[static_cast<size_t>(find(n))] = find(def);
      joined++;
    }
  }
  return count + maps - joined;
}

}  // namespace mirage::search

// Growth of block graphs; see block_search.h.
#include "search/block_search.h"
#include <algorithm>
#include <numeric>

namespace mirage::search {

BlockSearch::BlockSearch(const Reference& ref, const Problem& problem, const Split& split, BlockValues& values, const SearchOptions& options, std::vector<DType> output_dtypes, int max_block_ops,
                         SearchReport& report)
    : ref_(ref), problem_(problem), split_(split), values_(values), options_(options), dtypes_(std::move(output_dtypes)), max_block_ops_(max_block_ops), report_(report) {}

std::vector<BlockCandidate> BlockSearch::run(const Universe& universe, int ideas, bool dominance, size_t limit, const std::function<bool()>& done) {
  ideas_ = ideas;
  dominance_ = dominance;
  limit_ = limit;
  done_ = done;
  derivations_ = universe.useful();
  uses_of_.assign(static_cast<size_t>(values_.size()), {});
  position_.assign(static_cast<size_t>(values_.size()), -1);
  visited_.clear();
  distinct_operands_.clear();
  found_.clear();
  targets_.clear();
  for (size_t t = 0; t < problem_.targets.size(); t++) targets_.push_back(universe.target(t));
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
  return std::move(found_);
}

/// Reads as the paper's figure: complete graphs leave, steps are tried in canonical order, gates close branches.
void BlockSearch::grow(State& s) {
  report_.states++;
  report_.effort += 8;
  if (found_.size() >= limit_ || done_()) return;
  if (is_complete(s)) return accept(s);
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
  std::array<int, 3> at{};
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

/// Whether the targets, and a use for every value that still lacks one, can be reached by steps above the last rank. Ranks of steps on values that are still to come are not
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
    if (std::none_of(uses.begin(), uses.end(), [&](int i) { return missing_[static_cast<size_t>(i)] == 0 && alive(static_cast<size_t>(i)); })) return false;
  }
  return true;
}

/// The same values in the same order were reached before by other operators, at no more work, with no higher last rank: all that can follow has been there.
bool BlockSearch::is_merged(const State& s) {
  std::vector<int> key = s.ids;
  for (size_t p = 0; p < s.ids.size(); p++) if (s.uses[p] > 0) key.push_back(-1 - static_cast<int>(p));
  auto [it, fresh] = visited_.emplace(std::move(key), std::pair{s.last, s.work});
  if (fresh) return false;
  if (it->second.first <= s.last && it->second.second <= s.work) return true;
  if (s.last <= it->second.first && s.work <= it->second.second) it->second = {s.last, s.work};
  return false;
}

bool BlockSearch::is_beaten(int64_t work, int64_t memory) const {
  return std::any_of(found_.begin(), found_.end(), [&](const BlockCandidate& c) { return c.work <= work && c.memory <= memory; });
}

void BlockSearch::accept(const State& s) {
  BlockCandidate c{build(s), s.work, s.memory, s.ideas};
  if (count_block_ops(c.body) > max_block_ops_) {
    GateCount& g = report_.gates[static_cast<size_t>(Gate::kBudget)];
    if (g.closed++ == 0) g.first_example = std::to_string(count_block_ops(c.body)) + " operators";
    return;
  }
  if (dominance_) std::erase_if(found_, [&](const BlockCandidate& o) { return c.beats(o); });
  found_.push_back(std::move(c));
}

void BlockSearch::close(Gate gate, const Step& step) {
  GateCount& c = report_.gates[static_cast<size_t>(gate)];
  const Derivation& d = derivations_[static_cast<size_t>(step.derivation)];
  if (c.closed++ == 0) c.first_example = values_.describe(d.op, d.operands);
}

Graph BlockSearch::build(const State& s) const {
  Launch launch;
  for (int a = 0; a < split_.axes; a++) launch.grid[static_cast<size_t>(a)] = 2;
  launch.loop = split_.loop_class >= 0 ? 2 : 1;
  Builder b(Level::kBlock, launch);
  std::vector<ValueId> leaves;
  for (const Load& l : split_.loads) if (!std::count(leaves.begin(), leaves.end(), l.leaf)) leaves.push_back(l.leaf);
  std::vector<ValueId> at(s.ids.size(), -1);
  for (size_t i = 0; i < split_.loads.size(); i++) {
    const Load& l = split_.loads[i];
    Type t = ref_.even.graph.type(l.leaf);
    for (int8_t d : l.part.grid) if (d >= 0) t.dims[d] /= 2;
    if (l.part.loop >= 0) t.dims[l.part.loop] /= 2;
    const auto param = std::find(leaves.begin(), leaves.end(), l.leaf) - leaves.begin();
    at[static_cast<size_t>(position_[static_cast<size_t>(values_.loads()[i])])] = b.add_input(static_cast<int>(param), t, l.part);
  }
  const size_t loads = values_.loads().size(), constants = values_.constants().size();
  for (size_t p = loads; p < loads + constants; p++) if (s.uses[p] > 0) at[p] = b.add(values_.constant_op(s.ids[p]), {});
  for (size_t p = loads + constants; p < s.ids.size(); p++) {
    const Derivation& d = derivations_[static_cast<size_t>(s.derivation[p])];
    std::vector<int> positions;
    for (int id : d.operands) positions.push_back(position_[static_cast<size_t>(id)]);
    const BlockOp& op = values_.operators()[static_cast<size_t>(d.op)];
    if (op.commutative) std::sort(positions.begin(), positions.end());
    std::vector<ValueId> operands;
    for (int q : positions) operands.push_back(at[static_cast<size_t>(q)]);
    Op o = op.op;
    if (auto* r = std::get_if<Reshape>(&o)) r->dims = *unit_reshape(b.graph().dims(operands[0]), r->dims);
    at[p] = b.add(std::move(o), std::move(operands));
  }
  for (size_t t = 0; t < targets_.size(); t++) b.add_output(static_cast<int>(t), at[static_cast<size_t>(position_[static_cast<size_t>(targets_[t])])], dtypes_[t], split_.stores[t]);
  return std::move(b).finish();
}

int count_block_ops(const Graph& g) {
  std::vector<int> region(static_cast<size_t>(g.num_nodes()));
  std::iota(region.begin(), region.end(), 0);
  auto find = [&](int x) { while (region[static_cast<size_t>(x)] != x) x = region[static_cast<size_t>(x)]; return x; };
  int count = 0, maps = 0, joined = 0;
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Op& op = g.node(n).op;
    if (std::holds_alternative<Const>(op) || is_view(op)) continue;
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

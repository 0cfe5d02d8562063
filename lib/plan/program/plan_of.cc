// Programs back to plans. A strategy is asked for the plan of the program's own numbers (Strategy::like); what it decides is described, and
// is the program's plan only if it says the same. So nothing of a program is ignored: what the strategy would do otherwise is refused, by
// the line in which it differs.
#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "mirage/plan/attend.h"
#include "mirage/plan/block_plan.h"
#include "mirage/plan/strategy.h"
#include "mirage/plan/tile.h"
#include "mirage/plan/describe.h"
#include "plan/attend/factored.h"
#include "mirage/schedule/words.h"

namespace mirage::schedule {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

// ---- the numbers of a program
/// What its axes and sections say, whatever the strategy.
struct Numbers {
  explicit Numbers(const KernelProgram& p) {
    for (const Split& s : p.splits) {
      for (AxisId a : s.over) add(p.axes[at(a)], s.reduced ? reduced : free_parts(s));
      if (s.reduced) chunk = static_cast<int>(std::min<int64_t>(s.tile, 1 << 20));
      else free.push_back(&s);
    }
    for (const Stage& s : p.stages) {
      if (s.kind == Stage::Kind::kCopy) evict_first |= s.evict_first;
      sync |= s.unit == UnitId::kSync16;
    }
    for (const Stage& s : p.stages)
      if (s.kind == Stage::Kind::kStore && s.way == WayId::kTma && !s.through.empty())
        if (const auto& box = p.places[at(s.through[0])].box; box.size() > 1)
          passing |= s.evict_first, held = static_cast<int>(std::min<int64_t>(box[box.size() - 2] / 8, 1 << 10));
    for (const Role& r : p.roles)
      for (const Item& i : r.items)
        for (StageId s : i.body)
          if (const Stage& x = p.stages[at(s)]; x.kind == Stage::Kind::kCopy && p.places[at(x.to)].section >= 0)
            stages = std::max(stages, p.sections[at(p.places[at(x.to)].section)].slots);
    per_sm = p.per_sm;
    for (const Role& r : p.roles) warps += r.warps;
  }
  /// Parts of an index, by kind of axis.
  struct Parts { int grid = 1, cluster = 1, group = 1, warp = 1, loop = 0; };
  static void add(const Axis& a, Parts& to) {
    const int n = static_cast<int>(std::min<int64_t>(a.extent, 1 << 20));
    switch (a.kind) {
      case AxisKind::kGrid: to.grid = n; break;
      case AxisKind::kCluster: to.cluster = n; break;
      case AxisKind::kGroup: to.group = n; break;
      case AxisKind::kWarp: to.warp = n; break;
      case AxisKind::kLoop: to.loop = n; break;
    }
  }
  Parts& free_parts(const Split& s) { return of[&s]; }

  Parts reduced;                      // how the reduced index is divided
  std::map<const Split*, Parts> of;   // and each of the others
  std::vector<const Split*> free;
  int chunk = 1, stages = 1, per_sm = 1, warps = 0;
  int held = 0;                       // row tiles of a result that leave at once
  bool evict_first = false, passing = false, sync = false;
};

/// Plans that have only numbers, for Strategy::like. What a program does not say in one number is tried both ways.
class Models {
 public:
  explicit Models(const KernelProgram& p) : p_(p), n_(p) {}
  std::vector<KernelBody> all() {
    if (n_.reduced.loop == 0 || p_.roles.size() == 1) streams();
    tiles();
    attends();
    blocks();
    return std::move(out_);
  }

 private:
  template <class P> void give(P plan) { out_.push_back(std::make_shared<const P>(std::move(plan))); }
  template <class P> P numbers() const {
    P p;
    p.stages = n_.stages;
    p.cluster = n_.reduced.cluster;
    p.blocks_per_sm = n_.per_sm;
    return p;
  }
  void streams() {
    StreamPlan s = numbers<StreamPlan>();
    s.warps = n_.reduced.warp;
    s.chunk = n_.chunk;
    s.evict_first = n_.evict_first;
    s.registers = n_.reduced.loop == 0;
    for (const Split* x : n_.free) if (x->tile == 16 || x->tile == 32 || x->tile == 64) s.columns = static_cast<int>(x->tile);
    give(s);
    s.evict_first = !s.evict_first;   // nothing that could be evicted first
    give(s);
  }
  void tiles() {
    TilePlan t = numbers<TilePlan>();
    t.chunk = n_.chunk;
    t.evict_first = n_.evict_first;
    std::vector<const Split*> sides = n_.free;
    sides.push_back(nullptr);         // an index of one element is not cut
    for (const Split* rows : sides)
      for (const Split* columns : sides) {
        if (rows == columns || (columns && columns->tile < 16) || (rows && rows->tile < 16)) continue;
        t.group_rows = rows ? static_cast<int>(std::min<int64_t>(rows->tile, 256)) : 16;
        t.row_groups = rows ? n_.of[rows].group : 1;
        t.column_groups = columns ? n_.of[columns].group : 1;
        t.sharing = columns ? n_.of[columns].cluster : 1;
        for (const bool large : {false, true})
          for (const bool overlaid : {false, true})
            for (const bool turned : {false, true}) {
              t.large = large;
              t.overlaid = overlaid;
              t.turned = turned && columns ? static_cast<int>(std::min<int64_t>(columns->tile, 256)) : 0;
              t.held_tiles = n_.held;
              t.passing = n_.passing;
              if ((overlaid && !large) || turned != (t.turned > 0) || (n_.held && (!large || overlaid || turned))) continue;
              for (const bool narrow : {false, true}) {
                t.narrow = narrow;
                give(t);
              }
            }
      }
  }
  void attends() {
    AttendPlan a = numbers<AttendPlan>();
    a.chunk = n_.chunk;
    a.meets = n_.reduced.grid;
    a.wide = std::any_of(n_.free.begin(), n_.free.end(), [&](const Split* s) { return n_.of[s].warp > 1; });
    if (a.wide) return give(a);
    a.warp_rings = n_.reduced.warp > 1;
    a.key_groups = std::max(n_.reduced.warp, n_.reduced.group);
    for (const Split* s : n_.free) a.query_groups = std::max(a.query_groups, n_.of[s].group);
    a.turns = std::any_of(p_.roles.begin(), p_.roles.end(), [](const Role& r) { return r.turns; });
    for (const bool producer : {false, true})
      for (const int helpers : {0, 3, 4}) {
        a.producer = producer;
        a.helpers = helpers;
        give(a);
      }
  }
  void blocks() {
    BlockPlan b = numbers<BlockPlan>();
    b.threads = 32 * n_.warps;
    b.loop_warps = n_.reduced.warp;
    b.body = p_.body;
    give(b);
    Step chain;
    chain.kind = Step::Kind::kChain;
    b.steps = {chain};
    give(b);
  }

  const KernelProgram& p_;
  Numbers n_;
  std::vector<KernelBody> out_;
};

Access access_of(const Param& x, int buffer) {
  Access a;
  a.buffer = x.position >= 0 ? -1 : buffer;
  a.offset = x.offset;
  a.dims = x.dims;
  a.strides = x.strides;
  a.dtype = x.dtype == DType::kReal ? DType::kF32 : x.dtype;
  a.tf32 = x.tf32;
  a.position = x.position;
  a.position_div = x.position_div;
  a.position_period = x.position_period;
  a.run = x.run;
  a.jump = x.jump;
  return a;
}

class Search {
 public:
  Search(const KernelProgram& p, const Target& target) : p_(p), target_(target), wanted_(lines_of(canonical_text(p))) {}

  PlanOf run() {
    const Erased erased = erase(p_);
    if (!erased.graph) return refused("P1: " + erased.reason);
    if (!p_.beside.empty()) return refused("calls beside each other are planned in a program of several calls only");
    int buffer = 0;
    for (const Param& x : p_.params) {
      operands_.push_back(access_of(x, buffer++));
      if (x.in >= 0) operands_.back().buffer = operands_[at(x.in)].buffer;
    }
    for (size_t i = 0; i < p_.params.size(); i++) {
      const SecondPart& s = p_.params[i].second;
      if (s.dim < 0) continue;
      int64_t first = 0;
      for (const Index& x : p_.indices) first = std::max(first, x.first);
      operands_[i].second = {buffer++, s.offset, s.strides, s.dim, first};
    }
    for (const Param& x : p_.results) results_.push_back(access_of(x, buffer++));
    const Graph factored = with_factors_on_operands(p_, *erased.graph);   // as attention is matched
    const std::vector<KernelBody> models = Models(p_).all();
    for (const ContractRule& rule : rules())
      for (const KernelBody& model : models) {
        const bool is_attention = std::holds_alternative<std::shared_ptr<const AttendPlan>>(model);
        if (std::optional<KernelPlan> k = attempt(is_attention ? factored : *erased.graph, rule, model))
          return {std::move(k), "", "", "", rule};
      }
    return explain();
  }

 private:
  static PlanOf refused(std::string why) { return {std::nullopt, "", "", std::move(why), {}}; }

  /// What a program may have said of its contractions: its kernels' units tell, where the plan agrees.
  std::vector<ContractRule> rules() const {
    std::vector<ContractRule> out;
    std::vector<DType> narrow;
    for (const Param& x : p_.params) if (is16(x.dtype)) narrow.push_back(x.dtype);
    narrow.push_back(DType::kReal);
    for (const bool tf32 : {false, true})
      for (const DType t : narrow)
        if (std::none_of(out.begin(), out.end(), [&](const ContractRule& r) { return r.narrow == t && r.tf32 == tf32; }))
          out.push_back({t, tf32});
    return out;
  }

  std::optional<KernelPlan> attempt(const Graph& body, const ContractRule& rule, const KernelBody& model) {
    KernelPlan k;
    k.name = p_.name;
    k.body = model;
    const Strategy& strategy = strategy_of(k);
    const Work work{body, operands_, results_, target_, rule, false};
    if (work.has_parts() && !strategy.reads_parts) return std::nullopt;
    Attempt a = strategy.like(k, work);
    if (!a.body) {
      if (reasons_.emplace(strategy.name, a.reason).second) order_.push_back(strategy.name);
      return std::nullopt;
    }
    planned_.insert(strategy.name);
    k.body = std::move(*a.body);
    k.predicted_us = a.cost.us;
    k.why = a.cost.why;
    k.bytes = a.cost.bytes;
    k.flops = a.cost.flops;
    const Described d = describe(k, target_);
    if (!d.program) return std::nullopt;
    const std::vector<std::string> is = lines_of(canonical_text(*d.program));
    size_t same = 0;
    while (same < std::min(is.size(), wanted_.size()) && is[same] == wanted_[same]) same++;
    if (same == is.size() && same == wanted_.size()) return k;
    size_t common = 0;   // of all lines, so that the nearest plan is compared even where its head differs
    for (size_t i = 0; i < std::min(is.size(), wanted_.size()); i++) common += is[i] == wanted_[i];
    if (!nearest_ || common > common_) {
      nearest_ = Near{strategy.name, same, same < is.size() ? lines_of(print(*d.program))[same] : ""};
      common_ = common;
    }
    return std::nullopt;
  }

  PlanOf explain() const {
    const auto trimmed = [](const std::string& s) { return s.substr(std::min(s.find_first_not_of(' '), s.size())); };
    if (nearest_) {
      const std::vector<std::string> own = lines_of(print(p_));
      return {std::nullopt, trimmed(nearest_->line < own.size() ? own[nearest_->line] : own.back()), trimmed(nearest_->text),
              fmt::format("the strategy '{}' does this otherwise{}", nearest_->strategy, others()), {}};
    }
    return refused("no strategy has a plan of these numbers" + others());
  }
  /// What those say that have none.
  std::string others() const {
    std::string out;
    for (const std::string& s : order_) if (planned_.count(s) == 0) out += fmt::format("; {}: {}", s, reasons_.at(s));
    return out;
  }

  const KernelProgram& p_;
  const Target& target_;
  const std::vector<std::string> wanted_;
  std::vector<Access> operands_, results_;
  struct Near { std::string strategy; size_t line = 0; std::string text; };
  std::optional<Near> nearest_;
  size_t common_ = 0;
  std::map<std::string, std::string> reasons_;   // of strategies that have no plan of these numbers
  std::vector<std::string> order_;
  std::set<std::string> planned_;
};

}  // namespace

PlanOf plan_of(const KernelProgram& p, const Target& target) {
  if (auto broken = check_laws(p, target)) return {std::nullopt, "", "", *broken, {}};
  return Search(p, target).run();
}

}  // namespace mirage::schedule

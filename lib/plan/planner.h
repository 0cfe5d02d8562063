// The planner behind make_plan: one object per planning, its steps in three files. planner_values.cc: which values lie in memory;
// planner_groups.cc: which are computed by one kernel; planner_kernels.cc: the kernels in order, their memory, and the calls among them.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "mirage/plan/plan.h"
#include "mirage/plan/strategy.h"
#include "plan/stream/stream_plan.h"
#include "mirage/plan/call_plans.h"
#include "plan/region/region.h"
#include "plan/tape.h"

namespace mirage {

/// Its members are in the order of run() (plan.cc).
class Planner {
 public:
  /// tape, model: decisions are recorded or taken again, and calls are planned like the model's.
  /// known: what strategies said before; may be null.
  Planner(const Program& program, Graph graph, const Target& target, Tape* tape = nullptr, const Plan* model = nullptr,
          CallPlans* known = nullptr)
      : program_(program),
        g_(std::move(graph)),
        target_(target),
        tape_(tape),
        model_(model),
        known_(known),
        views_(static_cast<size_t>(g_.num_values())),
        stored_(views_.size()),
        outs_(views_.size()),
        context_{g_, program_, target_, buffers_, views_, reduces_, tape, known ? &known->regions() : nullptr} {}

  Planned run();

 private:
  /// A kernel in the making: a group of values that a region computes, or a call.
  struct Item {
    bool alive = true;
    NodeId call = -1;
    std::vector<ValueId> values;   ///< regions: what it computes and stores or keeps; ascending
    std::vector<RegionRoot> copies;   ///< regions: stores of values that are stored elsewhere (an input that is an output)
    std::set<ValueId> reads;       ///< stored values
    RegionSplit split;
    int after = -1;                ///< a further item that must come first (the first half of a split reduction)
    std::optional<RegionPlanned> planned;
  };

  const Op& op_of(ValueId v) const { return g_.def(v).op; }
  template <class F> const F* form(ValueId v) const { return g_.def_form<F>(v); }
  ValueId operand(ValueId v) const { return g_.def(v).operands[0]; }
  bool is_given(ValueId v) const { return form<Input>(v) || form<Call>(v); }   ///< stored without a region's help

  // ---- which values are stored

  void place_inputs();

  /// Walks an output back through transposes and reshapes: the kernel that makes the value writes it in its final place.
  void place_outputs();
  /// Whether a kernel of the model makes a view's elements: of a part, what other kernels read as they do.
  bool model_moves(ValueId v) const;

  /// From a transposition or a reshape to its operand, and from the strides of the one to those with which the other fills the same places;
  /// false if there are none, or v is neither.
  bool step_back(ValueId& v, Dims& strides) const;

  /// What a call reads must lie in memory: at best as a view of something that does anyway.
  void place_operands();
  bool can_view(ValueId v) const { return view_with(v, true).has_value(); }

  /// The view of a value that is stored or a view of something stored. assume: values still without a place will be dense.
  std::optional<View> view_with(ValueId v, bool assume) const;
  /// What the view of an operand becomes through v, which shows the same elements: each part of it by itself.
  std::optional<View> seen_through(ValueId v, const View& operand) const;
  /// Of one part, whose dimensions are `from` and, through v, `to`; false if there are no such strides.
  bool see_part(ValueId v, const Dims& from, const Dims& to, int64_t& offset, Dims& strides) const;
  /// What dimension d of v's operand is of v; -1: it is not one of v's.
  int dim_through(ValueId v, int d) const;
  void find_reduces();

  /// Stores what several kernels would compute again, and cuts expressions that grow too long.
  ValueId padded(ValueId v) const;   ///< what concatenations with constants pad; v itself where nothing does
  void find_shared();
  void give_buffers();
  bool is_operand(const std::vector<std::vector<NodeId>>& users, ValueId v) const;
  int add_workspace(DType dtype, const Dims& dims);

  // ---- items

  void make_items();

  /// Stored values that computing `values` reads.
  std::set<ValueId> reads_of(const std::vector<ValueId>& values, const std::vector<RegionRoot>& copies) const;
  void index_items();

  /// The group that an item asks for: values that somebody outside reads (all but items a and b) or that are outputs are stored.
  RegionGroup group_of(const Item& item, int a, int b) const;
  std::optional<RegionPlanned> plan_item(const Item& item, int max_statements, int a = -1, int b = -1) const {
    return plan_region(context_, group_of(item, a, b), max_statements);
  }

  // ---- merging

  /// The items that read what item i makes; one that reads several of its values several times.
  template <class F> void for_successors(int i, F&& visit) const;

  /// An order of the living items in which each stands behind those whose values it reads.
  void rank_items();

  /// Whether `to` depends on `from` through at least one other item.
  bool depends_around(int from, int to);

  /// Makes items a (earlier) and b one kernel if that is one region and no slower.
  bool try_merge(int a, int b);
  void merge();

  /// What another planning decided when it asked this as often as this one did.
  std::optional<bool> told_inline(ValueId v);

  /// Computes a stored value again in each kernel that reads it, where that is faster than a kernel that stores it: cheap functions of
  /// narrow inputs.
  bool try_inline(ValueId v);

  /// A call's results that regions alone read, and not along their last dimension, get strides by which they are read so, where that is
  /// cheaper (layouts.cc); whether any did.
  bool place_layouts();
  bool may_lie_otherwise(ValueId v) const;
  void lay(ValueId v, const Dims& strides);
  /// The call that makes v, and the regions that read it, as v lies; infinite if no strategy stores it so.
  double cost_around(ValueId v) const;

  /// Reductions of much into little, where too few blocks would work, become two kernels.
  void split_reductions();
  /// As at the other shape: chunks of the same length, or two shorter ones.
  void split_as_told(size_t i);

  /// How many elements one result of an item's reductions combines.
  int64_t reduced_elements(const Item& item) const;
  void split_item(size_t i, const RegionSplit& split);
  /// What an item takes: its kernel or, of reductions of much into little, the two that they will become, about.
  double price(const RegionPlanned&) const;
  /// Item i as two kernels; nullopt if it is none. What they leave out of memory is left out from then on.
  std::optional<std::pair<Item, Item>> halves(size_t i, RegionSplit split);
  double split_us(size_t i, const RegionSplit& split);   ///< of the two; nothing changes
  bool inline_for_reductions(Item& item, size_t i);

  // ---- order, memory, calls

  /// Calls of one form over the same rows become one kernel where that is faster (beside.cc): leader_.
  void join_calls();
  /// Whether one of a step's items needs another one, directly or through other steps. `groups`: those of several items, by leader.
  bool needs_itself(int step, const std::vector<std::vector<int>>& groups) const;
  /// Regions that need nothing of each other, and are small enough to run at the same time, become one launch (beside.cc): leader_.
  void join_regions();
  bool may_join(Item& a, Item& b, bool alone);
  std::shared_ptr<const RegionPlan> regions_beside(const std::vector<int>& items, KernelPlan& k, Cost& cost);
  std::vector<StreamShape> shapes_beside(const std::vector<int>& items) const;
  std::string plan_beside(const std::vector<int>& items, KernelPlan& k, Cost& cost) const;
  /// The model's kernel of exactly these calls; nullptr: it has none.
  const KernelPlan* model_kernel(const std::vector<int>& items) const;

  /// Items in an order that respects what they read, earliest first by number; those that are one kernel together. Empty if calls that were
  /// joined need each other.
  std::vector<std::vector<int>> order() const;
  std::vector<int> buffers_touched(const Item& item) const;

  /// Drops workspace buffers that no kernel touches, numbers the rest anew and places them.
  int64_t place(const std::vector<std::vector<int>>& sequence);

  /// Products whose columns an output has as heads, [M, H * D] as [H, M, D], store them there, and products whose rows lie so read them
  /// there, where that is cheaper than a kernel that moves them (runs.cc).
  void place_runs();
  /// A value that is given another view, so that item i, which only moves it, is left out; and the calls that store or read it so.
  /// laid: strides that the item's value has then, if others than before.
  struct Unmoved { ValueId value; View view; std::vector<NodeId> calls; std::optional<Dims> laid = std::nullopt; };
  bool is_copy(ValueId v) const;   ///< a cast to the type that the operand has
  std::optional<Unmoved> stored_runs(size_t i) const;    ///< a call's result goes to an output in runs
  /// A call's result takes the place of the value that it is moved to; across: with that one's last two dimensions the other way round.
  std::optional<Unmoved> made_as_read(size_t i, bool across) const;
  std::optional<Unmoved> made_as_read(size_t i);         ///< the cheaper of the two, or the model's
  /// Predicted microseconds of the calls, and with the values lying so.
  double cost_of_calls(const std::vector<NodeId>& calls) const;
  double cost_with(size_t i, const Unmoved&);
  /// Strides of a value that calls alone read with its last two dimensions the other way round, if lines may lie so.
  std::optional<Dims> other_lines(ValueId moved) const;
  std::optional<Unmoved> read_runs(size_t i) const;      ///< calls read what lies elsewhere in runs
  /// Gives the value its view if the calls are no slower with it than without it and item i, or the model has it so.
  bool takes(size_t i, const Unmoved&);

  /// Attention reads a concatenation of two stored values where they lie, where that is cheaper than a kernel that stores it (parts.cc).
  void place_parts();
  /// The view of v as two parts, if it is such a concatenation, seen through reshapes and the like. stored: what of it must be stored for
  /// that, and is not.
  std::optional<View> view_in_parts(ValueId v, std::optional<ValueId>& stored);
  /// Leaves v out of item i, if calls alone read it; whether it did.
  bool try_parts(size_t i, ValueId v);
  /// Whether the model's kernels read v in two parts.
  bool model_has_parts(ValueId v) const;
  /// Whether operand o of a call is v or a view of it.
  bool shows(ValueId o, ValueId v) const;

  /// Calls that compute positions (masks) themselves, where that is cheaper than kernels that store them.
  void drop_positions();
  /// What it saves to compute these positions in a call's kernel: the kernel that does nothing but store them for it.
  double without_positions(const Item& call, const std::set<ValueId>& positions) const;
  /// Whether the model's kernel of a call computes positions.
  bool model_computes(NodeId call) const;
  bool is_computed(NodeId call, ValueId operand) const;
  ValueId stored_below(ValueId v) const;   ///< what lies in memory, below views of it
  bool is_position(ValueId v) const;       ///< stored, or a view of what is, of parts of their indices (passes/positions.h)
  Planned finish();

  /// A call's body as strategies take it, and where its operands and results lie. computes: an operand is a position that is not stored.
  struct CallAccess { Graph body; std::vector<Access> operands, results; bool computes = false; };
  CallAccess accesses_of(NodeId call) const;

  /// Asks every strategy for a call's body and keeps the cheapest plan in k.body; the reason if none fits.
  std::string plan_call(NodeId n, KernelPlan& k, Cost& cost) const;

  static CallPlan plan_work(const Work&);

  /// The call's kernel of the model: itself while decisions are recorded, else its numbers over this graph's extents.
  std::string plan_call_like(NodeId n, const Work& work, KernelPlan& k, Cost& cost) const;

  const Program& program_;
  Graph g_;
  const Target& target_;
  Tape* tape_ = nullptr;
  const Plan* model_ = nullptr;
  CallPlans* known_ = nullptr;
  std::vector<Buffer> buffers_;
  std::vector<View> views_;
  std::vector<bool> stored_;                    // by a region; inputs and results of calls are stored anyway
  std::vector<std::vector<Access>> outs_;       // per value, where outputs want it
  std::vector<RegionRoot> copies_;
  std::vector<ValueId> needed_views_;
  std::map<ValueId, ReduceInfo> reduces_;
  std::vector<Item> items_;
  std::vector<int> producer_;                   // per value, the item that stores it
  std::vector<std::set<int>> readers_;
  std::vector<int> ranks_;                      // per item, its place in the order of rank_items(); empty: not known
  std::set<std::pair<std::vector<ValueId>, std::vector<ValueId>>> tried_;
  std::vector<std::pair<ValueId, View>> pending_;
  std::map<NodeId, bool> computes_;             // calls whose operands that are positions are not stored
  std::vector<int> leader_;                     // per item, the first of those that it is one kernel with; -1: alone
  RegionContext context_;
};

}  // namespace mirage

// What writes programs: the body at full extents with its indices, and stages in the order of execution. A strategy says where the values
// are that it knows of; everything else is named here.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "mirage/schedule/program.h"

namespace mirage::schedule {

/// Why there is no such program; thrown by what writes one (plan/describe.h catches it).
struct Undescribed { std::string why; };

/// Where a value is to be, and how it gets there.
struct Wish {
  Place place;
  Stage stage;
  int role = 0;          ///< -1: that which computes
  bool before = false;   ///< in front of the loop, though it belongs to it
  bool late = false;     ///< a copy: behind the loop, in front of the stage that reads it
  ValueId instead = -1;  ///< it is where that value is
};

class Writer {
 public:
  /// body: of a µGraph, in its tiles.
  Writer(const std::string& name, const Graph& body, std::vector<Param> params, std::vector<Param> results);

  /// The same of other nodes: in front of all that names values.
  void set_body(Graph body, std::vector<std::vector<IndexId>> index_of);

  // ---- the head
  IndexId index_at(ValueId v, int dim) const { return p.index_of[static_cast<size_t>(v)][static_cast<size_t>(dim)]; }
  /// Names an index; one that has a name already is the same one, if it has as many elements, or gets a number behind its name.
  IndexId name(IndexId, const std::string& name);
  IndexId find(const std::string& name) const;   ///< -1: there is none
  AxisId split(IndexId, int64_t tile, const std::vector<Axis>& over, bool reduced);   ///< the first of its axes, the others follow
  void name_alone(IndexId, const std::string& name);   ///< never another one, however many elements both have
  AxisId axis(const Axis&);
  int section(const Section&);
  int role(const std::string& name, int warps, int registers = 0);
  void assume_divides(IndexId, int64_t number);  ///< records whether it does
  void assume_at_most(IndexId, int64_t number);

  // ---- places
  /// An input comes to a place; a value is computed into one. The first wish for a value is the one that expressions read.
  void copy(NodeId input, Place place, PathId path, int ahead = 0, int role = 0, bool evict_first = false, bool multicast = false,
            bool before = false);
  void compute(ValueId v, Place place, UnitId unit = UnitId::kNone, bool swap = false, bool before = false);
  /// A computed value once more, as matrix units take it: their stages read this place, all others the first one. Of several such places,
  /// or one beside a first one in shared memory, that of the type in which they multiply.
  void convert(ValueId v, Place place);
  bool has(ValueId v) const { return wishes_.count(v) > 0; }
  Wish& wish(ValueId v) { return wishes_.at(v); }
  PlaceId spare_place(Place place);              ///< one that no stage defines: folds go through it
  void fold(std::vector<ValueId> values, std::vector<AxisId> over, WayId way,
            std::vector<PlaceId> through, ValueId behind = -1);  ///< as soon as the last of them, and `behind`, is there, behind the loop
  void fold_in_loop(ValueId v, std::vector<AxisId> over, WayId way, std::vector<PlaceId> through) {
    in_loop_.insert(v);
    fold({v}, std::move(over), way, std::move(through));
  }
  /// through: the place, of the result's type, that it is gathered in.
  void store_by(int result, WayId way, std::optional<Place> through = std::nullopt, bool evict_first = false);
  /// Makes places for what has none and needs one, and writes the roles. loop: the axis of role r's loop, -1: none; work: the role that
  /// computes.
  KernelProgram finish(const std::vector<AxisId>& loops, int work);

  std::string unique(const std::string& name);   ///< of places
  void drop_joined_indices();
  KernelProgram p;
  std::vector<ValueId> first;                    ///< in this order, ahead of the others of their phase, behind what they are made of
  std::vector<ValueId> late;                     ///< just ahead of what reads them
  LayoutId loop_layout = LayoutId::kOct;         ///< of what is computed in the loop and has no other
  const Graph& body() const { return p.body; }

 private:
  void assume(const Assumption&);
  void add_places(int work);
  PlaceId place_of(ValueId v) const;
  int uses(ValueId v) const;
  StageId stage_of(ValueId v);
  std::vector<PlaceId> leaves(ValueId v, UnitId unit) const;
  PlaceId operand_of(ValueId product, UnitId unit, ValueId x) const;
  void add_late_copies(ValueId reader, std::vector<StageId>& to);
  void add_conversion(ValueId v, std::vector<StageId>& to);
  void add_folds(ValueId last, std::vector<StageId>& to);
  struct Order { std::vector<std::vector<StageId>> before, inside, after; };   // of each role
  void add_copy(ValueId v, Order& to, int work);
  void add_computed(ValueId v, Order& to, int work);
  void add_first(Order& to, int work);
  bool is_behind_loop(ValueId) const;
  std::set<ValueId> places_below(ValueId v) const;

  std::set<std::string> names_;                  ///< of places
  std::map<ValueId, Wish> wishes_;
  std::map<ValueId, std::vector<Wish>> converted_;
  std::vector<ValueId> order_;                   ///< of copies, as they were asked for
  struct Fold { std::vector<ValueId> values; Stage stage; ValueId behind; };
  std::vector<Fold> folds_;
  std::set<ValueId> in_loop_;                    ///< folded there
  std::set<ValueId> asked_;                      ///< places that were wished for, not those that expressions need
  std::map<int, Stage> stores_;
  std::vector<Phase> phase_;
  std::vector<std::vector<NodeId>> users_;
};

}  // namespace mirage::schedule

// What the emitters of tile kernels share (tile.cc, tile_turned.cc): warpgroups that multiply what tensor copies bring to a ring. Where
// operands lie in a slot, which tensor maps a kernel has, its parameters and launch.
#pragma once
#include <string>
#include <vector>

#include "codegen/program/matrix_text.h"
#include "mirage/plan/bound.h"
#include "mirage/support/round.h"

namespace mirage::schedule {

class WarpgroupText : public MatrixText {
 public:
  WarpgroupText(const KernelProgram& p, const Derived& d);
  /// The kernel with this body.
  KernelText text(const KernelPlan&, const KernelCall&, const std::string& body) const;

 protected:
  bool mapped(NodeId n) const override;

  // ---- how indices are cut
  int64_t tile(IndexId i) const { return p_.tile_of(i); }
  /// Parts of an index along its axes of a kind.
  int64_t parts(IndexId i, AxisKind kind) const;
  int row_groups() const { return static_cast<int>(parts(m_.rows(), AxisKind::kGroup)); }
  int column_groups() const { return static_cast<int>(parts(m_.columns(), AxisKind::kGroup)); }
  int groups() const { return row_groups() * column_groups(); }
  int64_t group_rows() const { return tile(m_.rows()); }
  int64_t block_rows() const { return row_groups() * group_rows(); }
  int64_t block_columns() const { return column_groups() * tile(m_.columns()); }
  int64_t chunk() const { return tile(m_.reduced()); }
  int64_t iterations() const { return parts(m_.reduced(), AxisKind::kLoop); }
  /// Blocks of a cluster that divide the reduction; those that have neighbouring columns of the same rows.
  int dividing() const { return static_cast<int>(parts(m_.reduced(), AxisKind::kCluster)); }
  int sharing() const { return static_cast<int>(parts(m_.columns(), AxisKind::kCluster)); }

  // ---- stages
  const Place& place(PlaceId x) const { return p_.places[at(x)]; }
  const Place& place(const Stage& s) const { return place(s.to); }
  bool is_copied(PlaceId x) const { return maker(x).kind == Stage::Kind::kCopy; }
  const Stage& maker(PlaceId x) const;
  const Stage& store_of(NodeId output) const;
  /// Whether a product reads rows of another type than 16 bits.
  bool is_wide_type(PlaceId rows) const { return place(rows).dtype == DType::kF32; }
  /// Where products find their other operand than weights: a place for each, in the order of the products that read it first.
  const std::vector<PlaceId>& operands() const { return operands_; }
  size_t operand_number(size_t product) const;
  PlaceId operand_of(size_t product) const { return operands_[operand_number(product)]; }
  /// Lines of a copied operand lie across the reduction.
  bool is_across(PlaceId rows) const { return is_copied(rows) && stride(input(maker(rows)), m_.reduced()) != 1; }
  bool is_depth_major(const Stage& weight) const { return schedule::is_depth_major(m_, weight, tensor(weight)); }
  /// A low rank that lies in shared memory as it does in memory, in lines of 128 bytes.
  bool is_packed(const Stage& weight) const;
  int64_t ranks(const Stage& weight) const { return m_.extent(m_.free(weight)); }

  // ---- shared memory
  int ring() const { return place(weight_of(ring_product_)).section; }
  int slots() const { return p_.sections[at(ring())].slots; }
  int64_t slot_bytes() const { return d_.slot_bytes[at(ring())]; }
  int64_t at_section(PlaceId x) const { return d_.place_at[at(x)] - d_.section_at[at(place(x).section)]; }   ///< in its first slot
  int64_t barriers_at() const;

  // ---- tensor maps, in the order of the kernel's parameters
  /// Stages that copy or store by one.
  std::vector<const Stage*> mapped_stages() const;
  size_t map_number(const Stage& s) const;

 private:
  TensorMapText map_of(const Stage& s, const KernelCall&) const;
  TensorMapText weight_boxes(const Stage& weight) const;
  TensorMapText row_boxes(const Stage& copy) const;
  TensorMapText held_boxes(const Param& a, ValueId v, const Place& held) const;
  TensorMapText factor_boxes(const Stage& copy) const;
  void add_batch(TensorMapText& m, const Param& a, ValueId v) const;

  std::vector<PlaceId> operands_;
  size_t ring_product_ = 0;   // one whose weight the ring brings
};

}  // namespace mirage::schedule

// One overload per form; see the header.
#include "mirage/ir/index_map.h"

#include "mirage/ir/graph.h"

namespace mirage {
namespace {

using Kind = DimLink::Kind;
using Links = std::vector<DimLink>;

/// The last dimensions of an operand are the result's last (NumPy broadcasting).
Links broadcast_links(const Dims& x, const Dims& result) {
  Links out;
  const int shift = result.rank() - x.rank();
  for (int d = 0; d < x.rank(); d++) out.push_back({x[d] == result[d + shift] ? Kind::kAligned : Kind::kBroadcast, d + shift});
  return out;
}

/// Every dimension is the result's of the same number, but one.
Links all_but(int rank, int dim, DimLink link) {
  Links out;
  for (int d = 0; d < rank; d++) out.push_back(d == dim ? link : DimLink{Kind::kAligned, d});
  return out;
}

std::vector<DimRun> runs_of(const Dims& x, const Dims& r) {
  std::vector<DimRun> out;
  int i = 0, j = 0;
  const auto ones = [](const Dims& d, int at) { return at < d.rank() && d[at] == 1; };
  while (i < x.rank() || j < r.rank()) {
    DimRun run{i, 0, j, 0};
    int64_t p = 1, q = 1;
    while (ones(x, i)) i++;
    while (ones(r, j)) j++;
    if (i < x.rank()) p = x[i++];
    if (j < r.rank()) q = r[j++];
    while (p != q) {
      if (p < q) p *= x[i++];
      else q *= r[j++];
    }
    while (ones(x, i)) i++;
    while (ones(r, j)) j++;
    run.count = i - run.first;
    run.result_count = j - run.result_first;
    out.push_back(run);
  }
  return out;
}

struct Maps {
  std::span<const Type> in;
  const Dims& dims(size_t i) const { return in[i].dims; }
  int rank() const { return dims(0).rank(); }

  IndexMap operator()(const Input&) const { return {}; }
  IndexMap operator()(const Const&) const { return {}; }
  IndexMap operator()(const Iota&) const { return {}; }
  IndexMap operator()(const Call&) const { return {}; }
  IndexMap operator()(const Output&) const { return aligned(); }
  IndexMap operator()(const Running&) const { return aligned(); }
  IndexMap operator()(const Accum&) const {
    IndexMap out;
    for (const Type& t : in) out.operands.push_back(broadcast_links(t.dims, dims(0)));
    return out;
  }
  IndexMap operator()(const Map&) const {
    Dims result;
    for (const Type& t : in) result = *broadcast(result, t.dims);
    IndexMap out;
    for (const Type& t : in) out.operands.push_back(broadcast_links(t.dims, result));
    return out;
  }
  IndexMap operator()(const MatMul&) const {
    IndexMap out;
    const int r = rank();
    for (size_t k = 0; k < 2; k++) {
      const int inner = k == 0 ? r - 1 : r - 2;
      Links links = all_but(r, inner, {Kind::kSummed, -1});
      for (int d = 0; d + 2 < r; d++)
        if (dims(k)[d] == 1 && dims(1 - k)[d] > 1) links[static_cast<size_t>(d)].kind = Kind::kBroadcast;
      out.operands.push_back(std::move(links));
    }
    return out;
  }
  IndexMap operator()(const Reduce& r) const {
    const bool whole = r.group == 0 || r.group == dims(0)[r.dim];
    return {{all_but(rank(), r.dim, whole ? DimLink{Kind::kSummed, -1} : DimLink{Kind::kGrouped, r.dim, 0, r.group})}, {}};
  }
  IndexMap operator()(const Repeat& r) const {
    return {{all_but(rank(), r.dim, {r.count == 1 ? Kind::kAligned : Kind::kTiled, r.dim})}, {}};
  }
  IndexMap operator()(const Slice& s) const { return {{all_but(rank(), s.dim, {Kind::kPart, s.dim, s.start, s.step})}, {}}; }
  IndexMap operator()(const Concat& c) const {
    IndexMap out;
    int64_t begin = 0;
    for (const Type& t : in) {
      out.operands.push_back(all_but(rank(), c.dim, {Kind::kPlaced, c.dim, begin}));
      begin += t.dims[c.dim];
    }
    return out;
  }
  IndexMap operator()(const Transpose& t) const {
    Links links(static_cast<size_t>(rank()));
    for (int i = 0; i < rank(); i++) links[static_cast<size_t>(t.perm[static_cast<size_t>(i)])] = {Kind::kAligned, i};
    return {{std::move(links)}, {}};
  }
  IndexMap operator()(const Reshape& r) const {
    IndexMap out;
    out.runs = runs_of(dims(0), r.dims);
    Links links(static_cast<size_t>(rank()));
    for (size_t k = 0; k < out.runs.size(); k++) {
      const DimRun& run = out.runs[k];
      const bool same = run.count == 1 && run.result_count == 1;
      for (int d = run.first; d < run.first + run.count; d++)
        links[static_cast<size_t>(d)] = same ? DimLink{Kind::kAligned, run.result_first} : DimLink{Kind::kRegrouped, static_cast<int>(k)};
    }
    out.operands.push_back(std::move(links));
    return out;
  }

  IndexMap aligned() const { return {{all_but(rank(), -1, {})}, {}}; }
};

}  // namespace

IndexMap index_map(const Op& op, std::span<const Type> operands) { return std::visit(Maps{operands}, op); }

std::optional<Dims> element_of(const IndexMap& map, size_t operand, const Dims& x, const Dims& r, const Dims& at) {
  Dims out = x;
  const std::vector<DimLink>& links = map.operands[operand];
  for (int d = 0; d < x.rank(); d++) {
    const DimLink& link = links[static_cast<size_t>(d)];
    const int64_t j = link.kind == Kind::kSummed || link.kind == Kind::kRegrouped ? 0 : at[link.dim];
    switch (link.kind) {
      case Kind::kAligned: out[d] = j; break;
      case Kind::kBroadcast: case Kind::kSummed: out[d] = 0; break;
      case Kind::kGrouped: out[d] = j * link.step; break;
      case Kind::kPart: out[d] = link.begin + link.step * j; break;
      case Kind::kPlaced: out[d] = j - link.begin; break;
      case Kind::kTiled: out[d] = j % x[d]; break;
      case Kind::kRegrouped: break;
    }
    if (link.kind == Kind::kPlaced && (out[d] < 0 || out[d] >= x[d])) return std::nullopt;
  }
  for (const DimRun& run : map.runs) {
    int64_t linear = 0;
    for (int d = run.result_first; d < run.result_first + run.result_count; d++) linear = linear * r[d] + at[d];
    for (int d = run.first + run.count - 1; d >= run.first; d--) out[d] = linear % x[d], linear /= x[d];
  }
  return out;
}

}  // namespace mirage

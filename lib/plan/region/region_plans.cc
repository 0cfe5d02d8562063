#include "plan/region/region_plans.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "mirage/support/assert.h"
#include "mirage/support/hash.h"

namespace mirage {
namespace {

constexpr size_t kMostWords = 1 << 13;        // of a key: a walk costs less than a plan
constexpr size_t kMostBytes = size_t{96} << 20;

class Writer {
 public:
  Writer(const RegionContext& c, const RegionGroup& group) : c_(c), g_(c.graph), group_(group) {
    for (const RegionRoot& r : group.roots) mine_.insert(r.value);
  }

  std::optional<RegionKey> run(int max_statements) {
    put({static_cast<int64_t>(group_.split.half), group_.split.chunk_length, group_.split.chunks, max_statements});
    for (const RegionRoot& r : group_.roots) {
      const int64_t value = visit(r.value);
      if (failed_) return std::nullopt;
      const auto partial = group_.split.partial.find(r.value);
      put({value, partial == group_.split.partial.end() ? -1 : buffer(partial->second), static_cast<int64_t>(r.stores.size())});
      for (const Access& a : r.stores) {
        put({buffer(a.buffer), a.offset});
        put(a.dims);
        put(a.strides);
      }
    }
    return std::move(key_);
  }

 private:
  enum Tag : int64_t { kBuffer = -1000, kLeaf, kReduced, kNode };   // ahead of what cannot be told from other words

  void put(std::initializer_list<int64_t> words) { key_.words.insert(key_.words.end(), words); }
  void put(const Dims& d) {
    put({d.rank()});
    for (int64_t x : d) put({x});
  }

  int64_t buffer(int b) {
    const auto at = std::find(key_.buffers.begin(), key_.buffers.end(), b);
    if (at != key_.buffers.end()) return at - key_.buffers.begin();
    key_.buffers.push_back(b);
    const Buffer& x = c_.buffers[static_cast<size_t>(b)];
    put({kBuffer, static_cast<int64_t>(x.dtype), x.tf32, x.bytes(), x.dims.elements()});
    return static_cast<int64_t>(key_.buffers.size()) - 1;
  }

  bool is_leaf(ValueId v) const {   // as lowering has it
    if (g_.def_form<Input>(v) || g_.def_form<Call>(v)) return true;
    if (g_.def_form<Const>(v) || g_.def_form<Iota>(v)) return false;
    return mine_.count(v) == 0 && c_.views[static_cast<size_t>(v)].buffer >= 0;
  }

  /// The value's number, itself and all below it written.
  int64_t visit(ValueId v) {
    if (const auto known = numbers_.find(v); known != numbers_.end()) return known->second;
    if (failed_ || key_.words.size() > kMostWords) return failed_ = true, -1;
    if (is_leaf(v)) {
      const View& view = c_.views[static_cast<size_t>(v)];
      if (view.buffer < 0) return failed_ = true, -1;
      const int64_t b = buffer(view.buffer);
      put({kLeaf, b, view.offset});
      put(view.strides);
    } else if (const auto r = c_.reduces.find(v); r != c_.reduces.end()) {
      const ReduceInfo& info = r->second;
      const int64_t base = visit(info.base);
      const Map* where = g_.def_form<Map>(info.base);
      if (info.fn == ReduceFn::kMax && where && where->fn == MapFn::kWhere) failed_ = true;   // find_at_largest
      put({kReduced, base, static_cast<int64_t>(info.fn), info.group});
      for (bool reduced : info.reduced) put({reduced});
    } else {
      std::vector<int64_t> operands;
      for (ValueId o : g_.def(v).operands) operands.push_back(visit(o));
      put({kNode, static_cast<int64_t>(g_.def(v).op.index())});
      put_attributes(v);
      for (int64_t o : operands) put({o});
    }
    put({mine_.count(v) > 0});
    put(g_.dims(v));
    key_.nodes.push_back(is_leaf(v) ? NodeId{-1} : g_.value(v).node);
    return numbers_[v] = static_cast<int64_t>(key_.nodes.size()) - 1;
  }

  /// What an operator has beside its operands and its result's extents.
  void put_attributes(ValueId v) {
    const Op& op = g_.def(v).op;
    if (const auto* c = std::get_if<Const>(&op)) {
      double value = c->value;
      if (!c->extent_of.empty()) value = 1;
      for (auto [param, dim] : c->extent_of) value *= static_cast<double>(c_.program.inputs[static_cast<size_t>(param)].type.dims[dim]);
      put({std::bit_cast<int64_t>(value)});
    } else if (const auto* iota = std::get_if<Iota>(&op)) {
      put({iota->dim});
    } else if (const auto* map = std::get_if<Map>(&op)) {
      put({static_cast<int64_t>(map->fn)});
    } else if (const auto* repeat = std::get_if<Repeat>(&op)) {
      put({repeat->dim, repeat->count});
    } else if (const auto* concat = std::get_if<Concat>(&op)) {
      put({concat->dim, static_cast<int64_t>(g_.def(v).operands.size())});
    } else if (const auto* slice = std::get_if<Slice>(&op)) {
      put({slice->dim, slice->start, slice->stop, slice->step});
    } else if (const auto* transpose = std::get_if<Transpose>(&op)) {
      for (int8_t p : transpose->perm) put({p});
    } else if (!std::holds_alternative<Reshape>(op)) {
      failed_ = true;   // a reduction that is a read by index
    }
  }

  const RegionContext& c_;
  const Graph& g_;
  const RegionGroup& group_;
  RegionKey key_;
  std::set<ValueId> mine_;
  std::unordered_map<ValueId, int64_t> numbers_;
  bool failed_ = false;
};

uint64_t hash_of(const RegionKey& k) { return hash_bytes(k.words.data(), k.words.size() * sizeof(int64_t)); }

size_t statements(const std::vector<RegionInstr>& code) {
  size_t n = code.size();
  for (const RegionInstr& i : code) n += statements(i.then_body) + statements(i.else_body);
  return n;
}

size_t bytes_of(const std::vector<int64_t>& words, const std::optional<RegionPlanned>& p) {
  size_t n = words.size() * sizeof(int64_t) + sizeof(RegionPlanned);
  if (p)
    for (const RegionPass& pass : p->plan.passes) n += (statements(pass.body) + statements(pass.after)) * (sizeof(RegionInstr) + 96);
  return n;
}

}  // namespace

std::optional<RegionKey> region_key(const RegionContext& c, const RegionGroup& group, int max_statements) {
  return Writer(c, group).run(max_statements);
}

std::optional<RegionPlans::Found> RegionPlans::find(const RegionKey& key) const {
  std::shared_ptr<const Entry> entry;
  {
    std::lock_guard lock(mutex_);
    const auto at = entries_.find(hash_of(key));
    if (at == entries_.end()) return std::nullopt;
    for (const auto& e : at->second) if (e->words == key.words) entry = e;
  }
  if (!entry) return std::nullopt;
  Found out{entry->planned};
  if (!out.planned) return out;
  for (RegionAccess& a : out.planned->plan.accesses) a.buffer = key.buffers[static_cast<size_t>(a.buffer)];
  for (NodeId& n : out.planned->nodes) n = key.nodes[static_cast<size_t>(n)];
  std::sort(out.planned->nodes.begin(), out.planned->nodes.end());
  return out;
}

void RegionPlans::keep(const RegionKey& key, const std::optional<RegionPlanned>& planned) {
  auto entry = std::make_shared<Entry>(Entry{key.words, planned});
  if (entry->planned) {
    const auto number = [](const auto& list, int x) {
      const auto at = std::find(list.begin(), list.end(), x);
      MIRAGE_ASSERT(at != list.end()) << "a region has a buffer or a node that its key has not";
      return static_cast<int>(at - list.begin());
    };
    for (RegionAccess& a : entry->planned->plan.accesses) a.buffer = number(key.buffers, a.buffer);
    for (NodeId& n : entry->planned->nodes) n = number(key.nodes, n);
  }
  const size_t bytes = bytes_of(key.words, planned);
  std::lock_guard lock(mutex_);
  if (bytes_ + bytes > kMostBytes) return;
  bytes_ += bytes, size_++;
  entries_[hash_of(key)].push_back(std::move(entry));
}

size_t RegionPlans::size() const {
  std::lock_guard lock(mutex_);
  return size_;
}

}  // namespace mirage

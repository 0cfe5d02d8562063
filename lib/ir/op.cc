// Tables about operators: the rows of maps.def and the names of forms.
#include "mirage/ir/op.h"

#include <array>

#include "mirage/ir/graph.h"

namespace mirage {
namespace {
constexpr MapClass kLax = MapClass::kLax, kAtomic = MapClass::kAtomic;
constexpr MapInfo kMaps[] = {
#define MAP(id, name, arity, cls, formula, cuda, help) {name, arity, cls, cuda, help},
#include "mirage/ir/maps.def"
#undef MAP
};
}  // namespace

const MapInfo& map_info(MapFn fn) { return kMaps[static_cast<size_t>(fn)]; }
int num_map_fns() { return static_cast<int>(std::size(kMaps)); }

std::optional<MapFn> parse_map_fn(std::string_view name) {
  for (int i = 0; i < num_map_fns(); i++)
    if (name == kMaps[i].name) return static_cast<MapFn>(i);
  return std::nullopt;
}

bool is_commutative(MapFn fn) {
  return fn == MapFn::kAdd || fn == MapFn::kMul || fn == MapFn::kMax || fn == MapFn::kMin || fn == MapFn::kEqual;
}
bool returns_bool(MapFn fn) { return fn == MapFn::kEqual || fn == MapFn::kLess || fn == MapFn::kGreater; }
const char* reduce_name(ReduceFn fn) { return fn == ReduceFn::kSum ? "sum" : "max"; }

bool operator==(const Call& a, const Call& b) { return a.body == b.body || (a.body && b.body && *a.body == *b.body); }

const char* form_name(const Op& op) {
  static constexpr const char* kNames[] = {"input",   "output", "const", "iota",      "map",     "matmul", "reduce", "repeat",
                                           "reshape", "concat", "slice", "transpose", "running", "accum",  "call"};
  static_assert(std::size(kNames) == std::variant_size_v<Op>);
  return kNames[op.index()];
}

bool is_view(const Op& op) {
  return std::holds_alternative<Transpose>(op) || std::holds_alternative<Slice>(op) || std::holds_alternative<Reshape>(op);
}

}  // namespace mirage

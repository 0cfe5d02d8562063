// See the header.
#include "plan/stream/shape_names.h"

#include <algorithm>

namespace mirage::schedule {

void name_shape(Writer& w, const StreamShape& s) {
  static constexpr const char* kNames[] = {"", "m", "n", "k", "r", "h", "b", "g", "l"};  // in the order of StreamAxis
  for (ValueId v = 0; v < s.body.num_values(); v++)
    for (size_t d = 0; d < s.axes[static_cast<size_t>(v)].size(); d++)
      if (const StreamAxis a = s.axes[static_cast<size_t>(v)][d]; a != StreamAxis::kOne)
        w.name(w.index_at(v, static_cast<int>(d)), kNames[static_cast<size_t>(a)]);
}

bool has_axis(const StreamShape& s, ValueId v, StreamAxis a) {
  const auto& of = s.axes[static_cast<size_t>(v)];
  return std::find(of.begin(), of.end(), a) != of.end();
}

NodeId stored_behind(const Graph& g, ValueId v) {
  while (g.def_form<Transpose>(v)) v = g.def(v).operands[0];
  return g.def_form<Input>(v) ? g.value(v).node : -1;
}

}  // namespace mirage::schedule

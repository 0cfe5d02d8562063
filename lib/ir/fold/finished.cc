#include "ir/fold/finished.h"

namespace mirage {

Graph finished(const Graph& built, const std::vector<ValueId>& made, const std::vector<std::pair<ValueId, ValueId>>& beside,
               std::vector<DType>* kept, std::vector<ValueId>* to) {
  std::vector<ValueId> alive;
  Graph out = remove_dead(built, &alive);
  const auto now = [&](ValueId v) { return v >= 0 ? alive[static_cast<size_t>(v)] : -1; };
  if (kept && !kept->empty()) {
    std::vector<DType> types(static_cast<size_t>(out.num_values()), DType::kReal);
    const auto keep = [&](size_t old, ValueId value) {
      if (now(value) >= 0) types[static_cast<size_t>(now(value))] = (*kept)[old];
    };
    for (size_t v = 0; v < made.size(); v++) keep(v, made[v]);
    for (const auto& [old, value] : beside) keep(static_cast<size_t>(old), value);
    *kept = std::move(types);
  }
  if (to) {
    to->clear();
    for (ValueId v : made) to->push_back(now(v));
  }
  return out;
}

}  // namespace mirage

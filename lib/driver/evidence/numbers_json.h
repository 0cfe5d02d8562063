// Tiles that a search chose, as JSON: reports, certificates and locks write them alike.
#pragma once
#include <vector>

#include <nlohmann/json.hpp>

#include "mirage/search/search.h"

namespace mirage {

/// One object a call: its grid and loop tiles.
inline nlohmann::ordered_json numbers_json(const std::vector<CallNumbers>& numbers) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const CallNumbers& n : numbers) out.push_back({{"grid_tile", n.grid_tile}, {"loop_tile", n.loop_tile}});
  return out;
}

}  // namespace mirage

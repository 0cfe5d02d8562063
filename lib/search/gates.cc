// Names of the gates (gates.def), for reports.
#include "mirage/search/search.h"

namespace mirage {

const char* gate_name(Gate g) {
  static constexpr const char* kNames[] = {
#define GATE(id, name, help) name,
#include "mirage/search/gates.def"
#undef GATE
  };
  return kNames[static_cast<size_t>(g)];
}

const char* gate_help(Gate g) {
  static constexpr const char* kHelp[] = {
#define GATE(id, name, help) help,
#include "mirage/search/gates.def"
#undef GATE
  };
  return kHelp[static_cast<size_t>(g)];
}

}  // namespace mirage

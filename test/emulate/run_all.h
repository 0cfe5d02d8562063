// Emulates many cases that were built together and compares each with its program: the end that several emulation tests share.
#pragma once
#include "emulate/helpers.h"

namespace mirage::test {

/// All cases in the field, in floats and in large floats. names: for messages; none: numbers. least: of the elements of results, the share
/// that must have been compared; in the field only if field_compares (functions that a field knows nothing of leave elements out).
inline void check_emulations(const std::vector<EmulationCase>& cases, const std::vector<std::string>& names, const std::string& compiler,
                             double least, bool field_compares) {
  std::vector<const EmulationCase*> all;
  for (const EmulationCase& c : cases) all.push_back(&c);
  const EmulationLibrary lib = build_emulation(all, compiler, emulation_folder());
  INFO(lib.error);
  REQUIRE(lib.error.empty());
  REQUIRE((names.empty() || names.size() == cases.size()));
  for (size_t i = 0; i < cases.size(); i++)
    for (EmulationMode m : {EmulationMode::kField, EmulationMode::kFloat, EmulationMode::kLarge}) {
      const EmulationOutcome o = run_emulation(cases[i], lib.path, m, 1);
      INFO((names.empty() ? std::to_string(i) : names[i]) << ", " << mode_name(m) << ": " << o.reason);
      CHECK(o.ok);
      if (field_compares || m != EmulationMode::kField) CHECK(static_cast<double>(o.compared) >= least * static_cast<double>(o.elements));
    }
}

}  // namespace mirage::test

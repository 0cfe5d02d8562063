// Kernels emulated over the finite field of mirage/emulate/field.h, against the muGraph's evaluation over it (docs/emulation.md, "Modes").
// Part of emulation.cc's work.
#pragma once
#include "driver/emulation/emulation.h"
#include "mirage/support/hash.h"

namespace mirage {

/// Draws inputs from `rng` until every element of the results was compared, in one run or, where denominators vanish by chance, in several.
EmulationOutcome run_field(const EmulationCase&, const std::string& library, Rng& rng, const EmulateOptions&);

}  // namespace mirage

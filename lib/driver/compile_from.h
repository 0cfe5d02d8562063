// compile() with its decision given: how a certificate is tested. Between driver/modes.cc and driver/compile.cc.
#pragma once
#include <vector>

#include "mirage/driver/compile.h"

namespace mirage {

struct Given {
  const std::vector<Source>* points = nullptr;   ///< the same per combination of values of a spec's var axes, in their order
  const Source* certificate = nullptr;   ///< nullptr: the decision is searched, or recalled from lock or cache
  bool repeat_gates = false;             ///< of a certificate: emitted kernels are run again
};

/// Nothing is searched or measured where the decision is given; it is verified as if the search had just found it. Errors: as compile(),
/// and kCertificate.
CompileResult compile_from(const Options&, const Source&, const Given&, Trace&, const Listener&);

}  // namespace mirage

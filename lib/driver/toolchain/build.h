// The build stage: from the module's texts to a library, PTX, cubin and measurements, as far as tools and a GPU are there. Wraps
// driver/toolchain for compile().
#pragma once
#include <atomic>
#include <map>
#include <set>
#include <string>
#include <vector>
#include "driver/output/outputs.h"
#include "driver/report/report.h"
#include "driver/toolchain/toolchain.h"
#include "mirage/codegen/module.h"
#include "mirage/support/file.h"

namespace mirage {

struct Built {
  ExitCode exit = ExitCode::kOk;
  Diagnostics errors;                          ///< kToolMissing only for what was asked for by name; kToolFailed
  std::vector<std::string> not_done;           ///< "libx.so was not built: there is no nvcc"
  std::map<std::string, KernelFacts> facts;    ///< registers and spills by kernel
  std::string compiler;                        ///< what binaries among the files were built with; "": there are none
  std::string measured;                        ///< the check program's JSON, if --measure ran
};

/// nvcc, to the build; "" if there is none or it does not say.
std::string compiler_version(const Toolchain&);

/// `tools`: what is there (find_toolchain()). Compiles in the folder's staging place what `wanted` names and keeps the results there.
/// `interrupted` (may be null) ends child processes.
Built build_outputs(const CudaModule&, const Target&, const Options&, const std::set<Emit>& wanted, OutputFolder& folder,
                    const Toolchain& tools, const std::atomic<bool>* interrupted);

}  // namespace mirage

// Rules of the folder of compiled emulations (driver/gate/gate.h says which folder that is). Part of emulation.cc's work.
#pragma once
#include <string>
#include <sys/stat.h>

namespace mirage {

/// Whether a file or folder is ours and nobody else may write it.
bool is_ours_alone(const struct stat&);
/// The oldest libraries go, and what builds left that were ended; files of other names stay.
void prune_libraries(const std::string& folder);

}  // namespace mirage

// Which files of a folder are ours: only these are ever replaced or removed.
#pragma once
#include <string>

namespace mirage {

/// Whether mirage-opt, or a build of what it wrote, made the file: texts say so in their first lines, binaries hold the names of the
/// program's functions or kernels. An empty file, or none, is nobody's loss. `name`: of the module.
bool is_own_file(const std::string& path, const std::string& name);

}  // namespace mirage

// --dump-dir: what every stage of a compilation made, as files.
#pragma once
#include <string>
#include <utility>
#include <vector>
#include "mirage/support/result.h"

namespace mirage {

/// Writes Trace::products() into a folder, with a mark by which the next run knows its files. Errors: kFileUnwritable, also where a file
/// that mirage-opt did not make has the name of one; nothing is written then.
Diagnostics write_dump(const std::string& folder, const std::vector<std::pair<std::string, std::string>>& products);

}  // namespace mirage

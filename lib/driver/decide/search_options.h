// What the command line asks of the search.
#pragma once
#include "mirage/driver/compile.h"
#include "mirage/search/search.h"

namespace mirage {

SearchOptions search_options(const Options& o, const Listener& listener);

}  // namespace mirage

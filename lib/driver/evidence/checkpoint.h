// --checkpoint FILE: what a search has done so far, so that a run that was killed goes on instead of beginning again. The file belongs to
// one spec, one set of options that change the result, one target and one version; another's, or a damaged one, is an error and never used.
#pragma once
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include "mirage/support/options.h"
#include "mirage/support/result.h"
#include "mirage/search/search.h"

namespace mirage {

class Checkpoint {
 public:
  /// Reads the file if there is one. `about`: what it must belong to.
  static Result<Checkpoint> open(const std::string& path, const std::string& about);
  /// Connects the search's options with it; it must live as long as they do.
  void connect(SearchOptions& o);
  /// Writes it beside and renames it: a kill leaves the old one or the new one.
  Diagnostics write();

 private:
  struct State {
    std::mutex mutex;
    std::string path, about;
    std::map<std::string, std::string> known;
    std::chrono::steady_clock::time_point written = std::chrono::steady_clock::now();
    bool changed = false;
    Diagnostics write();
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace mirage

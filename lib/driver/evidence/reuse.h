// Decisions that were made before: --cache and --lock keep certificates, from which the graph, its numbers and its plan are made again
// without a search. Nothing is believed: what is recalled is verified as if the search had just found it.
#pragma once
#include <optional>
#include <string>
#include <vector>
#include <nlohmann/json.hpp>
#include "driver/evidence/certificate_file.h"
#include "driver/proof/folding.h"
#include "driver/decide/numbers.h"
#include "driver/pieces/partition.h"
#include "mirage/driver/compile.h"

namespace mirage {

/// What a certificate decides; neither candidates nor pieces: the straightforward library.
struct Recalled {
  std::string from;                    ///< "the cache", "the lock"
  nlohmann::ordered_json told;         ///< what was kept beside the decision (driver/evidence/remembered.h); null: nothing that can be used
  /// not empty: nothing settles at the program's own size that this is the program, and why; such a decision is not used again
  std::string open;
  std::optional<Plan> straightforward; ///< the straightforward kernels as measuring divided them
  std::vector<Candidate> candidates;   ///< one or none
  Choices choices;                     ///< of that candidate
  std::optional<Stitched> stitched;
};

/// Names a decision: 16 hex digits of the program, the options that change the result, and the tool's version.
std::string decision_key(const Program&, const Options&, const std::string& version);

/// The decision of a certificate, made again from the program: its graph from structure and numbers, its plan, and what it rests on at the
/// program's own size. Errors: kCertificate.
Result<Recalled> decide_again(const Source& certificate, const Folding&, const Target&, const Options&);

/// Looks into the lock, then into the cache, as the options ask. nullopt: neither knows this program. Errors: kFileMissing for a lock that
/// cannot be read, kCertificate for one whose entry does not hold; a cache entry that does not hold is as if it were not there, and so is a
/// decision that nothing settles at the program's own size (of a lock, with a note).
Result<std::optional<Recalled>> recall(const Folding&, const Target&, const Options&, const std::string& key,
                                       std::vector<std::string>& notes);

/// Options with which the lock has this program for this target, where it does not have it with those given: what the user may have
/// forgotten. Sorted, "" for none; empty if there is no such entry.
std::vector<std::string> options_in_lock(const Program&, const Options&);

/// Keeps a decision where the options ask, and what is told of it (told_of()); what is there already stays. Processes that share a cache or
/// a lock do not undo each other's work. The cache then gives up what was not used for longest, down to its size. Errors: kFileUnwritable,
/// of a lock. A cache that cannot be written (CI often shares one read-only) is a warning of that code.
Diagnostics keep(const Program&, const Options&, const std::string& key, const std::string& certificate,
                 const nlohmann::ordered_json& told = nullptr);

}  // namespace mirage

// Decisions that were made before: --cache and --lock keep certificates, from which the graph, its numbers and its plan are made again without a search. Nothing is believed: what is recalled is verified
// as if the search had just found it.
#pragma once
#include <optional>
#include <string>
#include <vector>
#include "driver/certificate_file.h"
#include "driver/numbers.h"
#include "driver/partition.h"
#include "mirage/driver/compile.h"

namespace mirage {

/// What a certificate decides; both empty: the straightforward library.
struct Recalled {
  std::string from;                    ///< "the cache", "the lock"
  std::vector<Candidate> candidates;   ///< one or none
  Choices choices;                     ///< of that candidate
  std::optional<Stitched> stitched;
};

/// Names a decision: 16 hex digits of the program, the options that change the result, and the tool's version.
std::string decision_key(const Program&, const Options&, const std::string& version);

/// Looks into the lock, then into the cache, as the options ask. nullopt: neither knows this program. Errors: kFileMissing for a lock that cannot be read, kCertificate for one whose entry does not hold; a cache
/// entry that does not hold is as if it were not there.
Result<std::optional<Recalled>> recall(const Program&, const Target&, const Options&, const std::string& key, uint64_t seed);

/// Options with which the lock has this program for this target, where it does not have it with those given: what the user may have forgotten. Sorted, "" for none; empty if there is no such entry.
std::vector<std::string> options_in_lock(const Program&, const Options&);

/// Keeps a decision where the options ask. Errors: kFileUnwritable, of a lock. A cache that cannot be written (CI often shares one read-only) is a warning of that code.
Diagnostics keep(const Program&, const Options&, const std::string& key, const std::string& certificate);

}  // namespace mirage

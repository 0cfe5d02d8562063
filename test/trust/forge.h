// Forged evidence: certificates that are consistent in themselves (graphs, numbers, claims, hashes made by the library's own functions) and
// speak of another structure, other numbers, less evidence or another program.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "mirage/driver/compile.h"

namespace mirage::test {

/// A small program with what an honest compilation decided for it.
struct Honest {
  std::string name;
  Source spec;
  Program program;
  std::string certificate;   ///< JSON, as the lock keeps it
  std::string lock;          ///< the lock's text
  std::string key;
  std::string cuda;          ///< the kernels
};
Options forging_options();                    ///< with which all of them are compiled
const std::vector<Honest>& honest_results();

/// One forgery. `what` says what was changed. nullopt: nothing fits this seed.
struct Forgery { std::string what, certificate; };
std::optional<Forgery> forge(const Honest&, uint64_t seed);

/// A lock's text with another certificate for its one program.
std::string lock_with(const Honest&, const std::string& certificate);

/// Whether the graph (text form, over the spec's inputs) is the program, by an evaluator that shares nothing with lib/; "" or where it is
/// not.
std::string wrong_graph(const Honest&, const std::string& graph_text);

}  // namespace mirage::test

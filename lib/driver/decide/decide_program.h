// The decision for one program: searched, or recalled from lock, cache or a certificate, or carried over from a program that differs in
// extents only; verified, planned, gated, measured. What compile() does for each combination of values of a spec's axes.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "driver/compile_from.h"
#include "driver/decide/decide.h"
#include "driver/evidence/remembered.h"
#include "driver/decide/search_memory.h"

namespace mirage {

struct Decided;

/// What holds for a run, whatever the program.
struct DecideRun {
  const Options& options;              ///< with the target's own name
  const Options& gates;                ///< the same with the gate that this run asks for
  const Target& target;
  const std::string& source;           ///< for places in diagnostics
  const Given& given;
  SearchMemory* memory = nullptr;      ///< the program's own view of it; nullptr: every search is made
};

/// What there is before a search.
Found interrupted_search();

/// What is best so far, for whoever must write it from another thread: what it refers to does not change any more.
using BetterSink = std::function<void(const Decided&, const Found&, const Choices&, const Decision&)>;

/// A program and what is emitted for it. The decision points into the rest, so it stays where it is.
struct Decided {
  Folding folding;
  Planned straightforward;             ///< has a plan
  std::string key;                     ///< of lock and cache
  bool was_recalled = false, is_whole = false;   ///< is_whole: nothing cut it short, so it may be kept
  std::optional<Remembered> remembered;          ///< it was recalled from lock or cache
  Found found;
  Choices choices;
  const Found no_found = interrupted_search();   ///< should the run be told to end before there is anything
  const Choices no_choices{};
  Decision decision;
  Measured measured;
  std::vector<std::string> not_done;
  Diagnostics warnings;
  ExitCode exit = ExitCode::kOk;       ///< of what was not written beside the result (a checkpoint)
  const Program& whole() const { return folding.whole; }
  const Plan& plan() const { return decision.plan(*straightforward.plan); }
};

/// `better` (may be empty) is called with what is best so far. Errors: of lock, cache, certificate and checkpoint, kNotDecided, kEmulation,
/// kGateNotRun.
Result<std::unique_ptr<Decided>> decide_program(const Program& program, const DecideRun& run, Trace& trace, const Listener& listener,
                                                const BetterSink& better);

}  // namespace mirage

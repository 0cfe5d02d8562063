// Which files a compilation leaves: kinds of --emit, names, and what needs which tool. Used by compile().
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>
#include "mirage/driver/compile.h"

namespace mirage {

enum class Emit : uint8_t {
  kCu,
  kH,
  kSo,
  kPtx,
  kCubin,
  kGraph,
  kDot,
  kReport,
  kHtml,
  kCertificate,
  kHarness,
  kPython,
  kCmake,
  kMakefile,
  kSolution,
  kHub,
  kKernelBench
};

/// The kinds asked for; without --emit all but ptx, cubin, and the forms that others exchange kernels in.
std::set<Emit> wanted_outputs(const Options&);
/// Whether the user named the kind himself: then a missing tool is an error, else a note.
bool is_explicit(const Options&, Emit);
/// Of the module's texts those that belong to the kinds (what a Makefile needs to work comes along with it).
std::map<std::string, std::string> select_texts(const std::map<std::string, std::string>& files, const std::string& name,
                                                const std::set<Emit>&);
/// What of a path make would read as something else than a part of a name in a rule (a command, a pattern, an assignment), whatever stands
/// before it; "": nothing. Spaces, # and $ can be escaped.
std::string hostile_to_make(const std::string& path);
/// The files that a result depends on: the spec (not standard input), the lock, the baseline, response files.
std::vector<std::string> dependencies(const Options&, const std::string& spec);
/// A Makefile rule: the targets depend on the sources; with `phony` also an empty rule for each source, so that one that is gone is no
/// error. No path is hostile_to_make.
std::string dependency_rule(const std::vector<std::string>& targets, const std::vector<std::string>& sources, bool phony);

}  // namespace mirage

// Many specs in one run: which files they are, how they are spread over processes, and what is written of all of them. Private to cmd/.
#pragma once
#include <string>
#include <vector>

#include "mirage/driver/compile.h"

namespace mirage {

/// A spec and the folder below the output folder in which its own one stands: "" for a file that was named, the sub-folder for one that was
/// found in a folder.
struct SpecFile {
  Source source;
  std::string under;
};

/// Files as they are; folders as the specs in them and below, in the order of their paths. What a run writes (-o, --cache, --dump-dir),
/// earlier results and hidden folders are left out. Errors: kFileMissing.
Result<std::vector<SpecFile>> find_specs(const Options&);

/// Prints diagnostics with the source that they speak of, and returns the exit code of the worst.
ExitCode show(const Diagnostics& all, const std::vector<Source>& sources = {});
/// Everything that goes to standard output: a write that fails (disk full) is an error like any other; that the reader has gone ("| head")
/// is none.
ExitCode print_out(const std::string& text);
Result<Source> read_source(const std::string& path);
/// A spec, or a model as one.
Result<Source> read_program(const std::string& path, const Options&);

/// Compiles specs; is_corpus: each into a folder of its own. Several at a time with -j, each in a process of its own.
ExitCode run_corpus(const Options&, std::vector<SpecFile> specs, bool is_corpus);
/// --merge-reports.
ExitCode merge_reports(const Options&);

}  // namespace mirage

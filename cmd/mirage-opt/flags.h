// The command line as Options: CLI11 over the option table, response files, suggestions. Private to cmd/.
#pragma once
#include <string>
#include <vector>
#include "mirage/support/options.h"
#include "mirage/support/result.h"

namespace mirage {

struct CommandLine {
  Options options;
  bool help = false, version = false, version_json = false;
  std::string help_text;
};

/// Arguments without the program's name. "@file" is replaced by the words of the file (quotes as in a shell; nested to depth 16), -MD, -MF,
/// -MT and -MP by their long forms.
/// Errors: kUsage (with "did you mean"), kFileMissing (a response file).
Result<CommandLine> parse_command_line(const std::vector<std::string>& arguments);

}  // namespace mirage

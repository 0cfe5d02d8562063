// compile_spec SPEC DIR: what mirage-opt does, as a call. Sources only: nothing is built, so no nvcc is needed.
#include <cstdio>

#include "mirage/driver/compile.h"
#include "mirage/support/file.h"

int main(int argc, char** argv) {
  using namespace mirage;
  if (argc != 3) return std::fprintf(stderr, "usage: compile_spec SPEC DIR\n"), 2;
  const auto text = read_file(argv[1]);
  if (!text) return std::fprintf(stderr, "%s\n", text.errors()[0].text.c_str()), 11;
  const Source source{argv[1], *text};
  Options options;
  options.output = argv[2];
  options.target = "sm_90a";
  options.emit = {"cu", "h", "report"};
  options.states = 100000;   // counts of work, never of time: the result is the same on every machine
  Trace trace;
  Listener listener;
  listener.progress = [](const std::string& line) { std::printf("%s\n", line.c_str()); };
  const CompileResult result = compile(options, source, trace, listener);
  for (const Diagnostic& d : result.diagnostics) std::fprintf(stderr, "%s", render(d, source.text).c_str());
  std::printf("%s\n", result.summary.c_str());
  for (const auto& [name, file] : result.files) std::printf("%s: %zu bytes\n", name.c_str(), file.size());
  return static_cast<int>(result.exit);
}

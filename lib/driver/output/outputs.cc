// Kinds of output files. See the header and docs/options.md.
#include "driver/output/outputs.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace mirage {

const std::vector<std::string>& emitted_kinds() {
  static const std::vector<std::string> names = {"cu",    "h",        "so",       "ptx",         "cubin",      "graph",
                                                 "dot",   "report",   "html",     "certificate", "harness",    "python",
                                                 "cmake", "makefile", "solution", "hub",         "kernelbench"};
  return names;
}

Diagnostics check_emit_list(const std::vector<std::string>& emit) {
  Diagnostics errors;
  const auto& known = emitted_kinds();
  for (const std::string& e : emit) {
    if (std::find(known.begin(), known.end(), e) != known.end()) continue;
    Diagnostic d{
        Severity::kError, DiagCode::kUsage, {}, fmt::format("--emit: there is no output '{}'; outputs: {}", e, fmt::join(known, ", ")), {}};
    if (const std::string near = nearest(e, known); !near.empty()) d.notes.push_back({{}, "did you mean '" + near + "'?"});
    errors.push_back(d);
  }
  return errors;
}

std::set<Emit> wanted_outputs(const Options& o) {
  std::set<Emit> out;
  for (size_t i = 0; i < emitted_kinds().size(); i++) {
    const Emit e = static_cast<Emit>(i);
    const bool by_default = e != Emit::kPtx && e != Emit::kCubin && e < Emit::kSolution;
    if (o.emit.empty() ? by_default : is_explicit(o, e)) out.insert(e);
  }
  return out;
}

bool is_explicit(const Options& o, Emit e) {
  return std::find(o.emit.begin(), o.emit.end(), emitted_kinds()[static_cast<size_t>(e)]) != o.emit.end();
}

std::map<std::string, std::string> select_texts(const std::map<std::string, std::string>& files, const std::string& name,
                                                const std::set<Emit>& wanted) {
  const bool has_build_file = wanted.contains(Emit::kMakefile) || wanted.contains(Emit::kCmake);
  const std::map<std::string, bool> is_wanted = {
      {name + ".cu", wanted.contains(Emit::kCu) || has_build_file || wanted.contains(Emit::kHub)},
      {name + ".h", wanted.contains(Emit::kH) || wanted.contains(Emit::kHarness)},
      {name + ".map", has_build_file},
      {name + ".pc", has_build_file},
      {name + "_check.cu", wanted.contains(Emit::kHarness)},
      {name + ".py", wanted.contains(Emit::kPython)},
      {name + ".solution.json", wanted.contains(Emit::kSolution)},
      {"build.toml", wanted.contains(Emit::kHub)},
      {"tvm-ffi-ext/" + name + "/__init__.py", wanted.contains(Emit::kHub)},
      {name + "_kernelbench.py", wanted.contains(Emit::kKernelBench)},
      {"Makefile", wanted.contains(Emit::kMakefile)},
      {"CMakeLists.txt", wanted.contains(Emit::kCmake)},
  };
  std::map<std::string, std::string> out;
  for (const auto& [file, text] : files) {
    auto at = is_wanted.find(file);
    if (at == is_wanted.end() || at->second) out.emplace(file, text);
  }
  return out;
}

std::string hostile_to_make(const std::string& path) {
  for (const char c : path)
    if (static_cast<unsigned char>(c) < 32 || c == 127) return "a control character";
    else if (std::string_view(":;%|=&*?[]()\\~").find(c) != std::string_view::npos) return "'" + std::string(1, c) + "'";
  return "";
}

std::vector<std::string> dependencies(const Options& o, const std::string& spec) {
  std::vector<std::string> out;
  for (const std::string& path : {spec, o.lock, o.baseline})
    if (!path.empty() && path != "-") out.push_back(path);
  out.insert(out.end(), o.response_files.begin(), o.response_files.end());
  return out;
}

std::string dependency_rule(const std::vector<std::string>& targets, const std::vector<std::string>& sources, bool phony) {
  auto escaped = [](const std::string& path) {
    std::string out;
    for (char c : path) out += c == ' ' || c == '#' ? std::string("\\") + c : c == '$' ? "$$" : std::string(1, c);
    return out;
  };
  std::string out;
  for (const std::string& t : targets) out += (out.empty() ? "" : " ") + escaped(t);
  out += ":";
  for (const std::string& s : sources) out += " " + escaped(s);
  out += "\n";
  if (phony)
    for (const std::string& s : sources) out += "\n" + escaped(s) + ":\n";
  return out;
}

}  // namespace mirage

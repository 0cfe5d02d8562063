// --check-certificate: what a certificate decides is made, verified and emitted again, and everything that it claims and every file beside
// it is compared with what comes out.
#include <filesystem>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "driver/toolchain/build.h"
#include "driver/evidence/certificate_file.h"
#include "driver/compile_from.h"
#include "driver/output/family_files.h"
#include "driver/toolchain/toolchain.h"
#include "mirage/driver/modes.h"
#include "mirage/support/file.h"
#include "mirage/support/warden.h"

namespace mirage {

namespace {

namespace fs = std::filesystem;

/// What was looked at, in words for the user, and what is wrong.
struct Compared {
  std::vector<std::string> same, not_compared;
  Diagnostics errors;
};

ModeResult refused(Diagnostics errors) {
  ModeResult r;
  for (const Diagnostic& d : errors)
    if (d.severity == Severity::kError) r.exit = more_severe(r.exit, exit_code_of(d.code));
  r.diagnostics = std::move(errors);
  return r;
}

/// What a certificate says of how it was made; of one program or of several.
struct Claimed {
  Options options;
  std::vector<std::string> gates;
  std::string built_with;
  std::vector<Source> points;   ///< of several programs: their certificates
};

Result<Claimed> read_claimed(const Source& certificate) {
  if (is_family_certificate(certificate)) {
    auto f = read_family_certificate(certificate);
    if (!f) return f.errors();
    return Claimed{f->options, f->gates, f->built_with, f->points};
  }
  auto c = read_certificate(certificate);
  if (!c) return c.errors();
  return Claimed{c->options, c->gates, c->built_with, {}};
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// Names that do not say whose the file is.
bool is_shared_name(const std::string& file) { return file == "Makefile" || file == "CMakeLists.txt"; }

void compare_bytes(const fs::path& path, const std::string& wanted, const char* what, Compared& look) {
  const auto there = read_file(path.string());
  if (!there) look.errors.insert(look.errors.end(), there.errors().begin(), there.errors().end());
  else if (*there == wanted) look.same.push_back(path.filename().string());
  else if (is_shared_name(path.filename().string()) && first_line(*there) != first_line(wanted))
    look.not_compared.push_back(path.filename().string() + ": it is not one of mirage-opt's");
  else look.errors.push_back(broken_certificate(path.string(), fmt::format("the {} is not the one that this decision gives", what)));
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// The name that files have: that of the version script.
std::string module_name(const CompileResult& r) {
  for (const auto& [file, text] : r.files)
    if (file.ends_with(".map")) return file.substr(0, file.size() - 4);
  return r.name;
}

/// Binaries beside the certificate: built again by the same compiler, which gives the same bytes.
void compare_binaries(const fs::path& folder, const std::string& name, const Claimed& file, const CompileResult& fresh,
                      const Target& target, Compared& look) {
  std::vector<std::string> present;
  for (const std::string& f : {"lib" + name + ".so", name + ".cubin", name + ".ptx"})
    if (is_there(folder / f)) present.push_back(f);
  if (is_there(folder / (name + "_check"))) look.not_compared.push_back(name + "_check: built by whoever made it");
  if (present.empty()) return;
  const Toolchain tools = find_toolchain();
  const std::string here = compiler_version(tools);
  if (here.empty() || here != file.built_with) {
    const std::string why = file.built_with.empty() ? "the certificate does not say what binaries were built with"
                                                    : fmt::format("built with '{}', {}", file.built_with,
                                                                  here.empty() ? "and there is no nvcc here" : "here is '" + here + "'");
    for (const std::string& f : present) look.not_compared.push_back(f + ": " + why);
    return;
  }
  const TemporaryFolder place;
  if (place.path().empty()) {
    for (const std::string& f : present) look.not_compared.push_back(f + ": there is no place to build it again");
    return;
  }
  for (const char* suffix : {".cu", ".map", ".h", "_check.cu"})
    (void)write_file((fs::path(place.path()) / (name + suffix)).string(), fresh.files.at(name + suffix));
  for (const std::string& f : present) {
    std::string bytes;
    Diagnostics errors;
    if (f.ends_with(".so")) {
      const auto c = build_library(tools, name, target, place.path());
      if (!c) errors = c.errors();
      else if (auto built = read_file((fs::path(place.path()) / f).string())) bytes = *built;
    } else {
      const auto c =
          compile_with_nvcc(tools, fresh.files.at(name + ".cu"), target, f.ends_with(".ptx") ? DeviceCode::kPtx : DeviceCode::kCubin);
      if (c) bytes = c->bytes;
      else errors = c.errors();
    }
    if (!errors.empty()) look.not_compared.push_back(f + ": it could not be built again: " + errors.front().text);
    else compare_bytes(folder / f, bytes, "binary", look);
  }
}

std::string in_words(const Claimed& file, const CompileResult& fresh, const Compared& look, bool repeated) {
  std::string out = fmt::format(
      "the certificate holds: the decision for '{}' was made, verified and emitted again, and everything that is claimed came out\n",
      fresh.name);
  if (!look.same.empty()) out += fmt::format("the same, byte for byte: {}\n", fmt::join(look.same, ", "));
  else out += "no emitted file lies beside it: the verdict is of the graph, not of a source\n";
  for (const std::string& n : look.not_compared) out += "not compared: " + n + "\n";
  for (const std::string& g : file.gates)
    out += (repeated ? "repeated: kernels " : "recorded, not repeated (--repeat-gates): kernels ") + g.substr(0, 200) + "\n";
  return out;
}

}  // namespace

ModeResult check_certificate(const Source& certificate, const std::vector<Source>& specs, const Options& o) {
  if (specs.size() != 1)
    return refused({{Severity::kError,
                     DiagCode::kUsage,
                     {"", 0, 0, 1},
                     fmt::format("--check-certificate needs the certificate's spec as well: give one spec, not {}", specs.size()),
                     {}}});
  const auto file = read_claimed(certificate);
  if (!file) return refused(file.errors());
  Options again = file->options;
  again.jobs = o.jobs;
  if (!o.bind.empty() || !o.values.empty()) again.bind = o.bind, again.values = o.values;   // of the spec that is given
  again.emit = {"cu", "h", "graph", "dot", "harness", "python", "cmake", "makefile"};
  Trace trace;
  const bool repeat = o.repeat_gates && !file->gates.empty();
  Given given;
  given.repeat_gates = repeat;
  if (file->points.empty()) given.certificate = &certificate;
  else given.points = &file->points;
  CompileResult fresh = compile_from(again, specs[0], given, trace, {});
  if (fresh.exit != ExitCode::kOk) return refused(fresh.diagnostics);
  const auto broken = [&](const std::string& why) { return refused({broken_certificate(certificate.name, why)}); };
  for (const Diagnostic& d : fresh.diagnostics)
    if (d.code == DiagCode::kNotSettled) return broken("nothing settles the decision at the program's own size: " + d.text);
  if (const std::string at = first_difference(certificate.text, fresh.certificate, certificate.name); !at.empty())
    return broken(fmt::format("'{}' is not what the decision gives when it is made again", at.substr(0, 200)));
  if (repeat) {
    const auto now = read_claimed({certificate.name, fresh.certificate});
    if (!now || now->gates != file->gates)
      return broken(
          fmt::format("the gates passed are others than those recorded: {}", now && !now->gates.empty() ? now->gates[0] : "none"));
  }
  Compared look;
  const fs::path folder = fs::path(certificate.name).parent_path();
  for (const auto& [name, text] : fresh.files)
    if (is_there(folder / name)) compare_bytes(folder / name, text, "text", look);
  for (const char* name : {"report.json", "report.html"})
    if (is_there(folder / name)) look.not_compared.push_back(std::string(name) + ": it tells of the search, which is not repeated");
  const auto target = resolve_target(again);
  if (target && look.errors.empty()) compare_binaries(folder, module_name(fresh), *file, fresh, *target, look);
  if (!look.errors.empty()) return refused(look.errors);
  ModeResult r;
  r.text = in_words(*file, fresh, look, repeat);
  return r;
}

}  // namespace mirage

// Completions for bash, zsh and fish, and the manual page: nothing here is written twice, the option table says it all.
#include "manual.h"

#include <cctype>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "flags.h"
#include "reference.h"
#include "mirage/driver/compile.h"
#include "mirage/driver/modes.h"

namespace mirage {

namespace {

struct Flag { std::string shorter, longer, metavar, help; };

/// Every flag: of the table, of CLI11 alone, and the spellings that are replaced before it sees them.
std::vector<Flag> all_flags() {
  std::vector<Flag> out = {{"-h", "--help", "", "print this"}, {"", "--version", "", "print the version"}};
  for (const OptionInfo& o : option_table()) {
    std::string shorter;
    for (const std::string& name : o.names)
      if (!name.starts_with("--")) shorter = name;
    for (const std::string& name : o.names)
      if (name.starts_with("--")) out.push_back({std::exchange(shorter, ""), name, o.metavar, o.help});
  }
  return out;
}

/// Words that a flag's value is one of; empty: a file or anything.
std::vector<std::string> values_of(const Flag& f) {
  std::vector<std::string> out;
  if (f.longer == "--target" || f.longer == "--arch") {
    out = target_names();
    out.push_back("native");
  }
  if (f.longer == "--emit") out = emitted_kinds();
  if (f.longer == "--print-after") out = stage_names(), out.push_back("all");
  if (f.longer == "--machine") out = machine_names();
  if (f.longer == "--print-reference") out = reference_topics();
  if (f.longer == "--print-completion") out = completion_shells();
  return out;
}

bool takes_file(const Flag& f) { return f.metavar == "FILE" || f.metavar == "DIR"; }

std::string quoted(const std::string& s) {
  std::string out = "'";
  for (char c : s) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string bash() {
  std::string words, cases;
  for (const Flag& f : all_flags()) {
    words += (words.empty() ? "" : " ") + f.longer + (f.shorter.empty() ? "" : " " + f.shorter);
    const std::string pattern = f.longer + (f.shorter.empty() ? "" : "|" + f.shorter);
    if (const auto values = values_of(f); !values.empty())
      cases += fmt::format("    {}) COMPREPLY=($(compgen -W '{}' -- \"$word\")); return ;;\n", pattern, fmt::join(values, " "));
    else if (!f.metavar.empty() && !takes_file(f)) cases += fmt::format("    {}) return ;;\n", pattern);
    else if (!f.metavar.empty()) cases += fmt::format("    {}) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n", pattern);
  }
  return "# bash completion of mirage-opt: source this file, or put it into "
         "/usr/share/bash-completion/completions/mirage-opt\n_mirage_opt() {\n  local word=${COMP_WORDS[COMP_CWORD]} "
         "before=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  COMPREPLY=()\n  case $before in\n" +
         cases + "  esac\n  if [[ $word == -* ]]; then COMPREPLY=($(compgen -W '" + words +
         "' -- \"$word\")); else COMPREPLY=($(compgen -f -- \"$word\")); fi\n}\n"
         "complete -o filenames -F _mirage_opt mirage-opt\n";
}

std::string zsh() {
  auto text = [](const std::string& s) {   // brackets and colons end a description
    std::string out;
    for (char c : s) out += c == '[' || c == ']' || c == ':' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    return out;
  };
  std::string out = "#compdef mirage-opt\n_arguments -s \\\n";
  for (const Flag& f : all_flags()) {
    const auto values = values_of(f);
    const std::string value = f.metavar.empty() ? ""
                                                : ":" + f.metavar + ":" +
                                                      (!values.empty() ? fmt::format("({})", fmt::join(values, " "))
                                                       : takes_file(f) ? "_files"
                                                                       : " ");
    for (const std::string& name : {f.shorter, f.longer})
      if (!name.empty()) out += "  " + quoted(name + "[" + text(f.help) + "]" + value) + " \\\n";
  }
  return out + "  '*:spec:_files'\n";
}

std::string fish() {
  std::string out = "# fish completion of mirage-opt\n";
  for (const Flag& f : all_flags()) {
    out += "complete -c mirage-opt -l " + f.longer.substr(2) + (f.shorter.empty() ? "" : " -s " + f.shorter.substr(1)) + " -d " +
           quoted(f.help);
    if (const auto values = values_of(f); !values.empty())
      out += fmt::format(" -x -a {}", quoted(fmt::format("{}", fmt::join(values, " "))));
    else if (!f.metavar.empty()) out += takes_file(f) ? " -r" : " -x";
    out += "\n";
  }
  return out;
}

/// Text as roff takes it: no line begins with a control character, hyphens of flags stay.
std::string roff(const std::string& s) {
  std::string out;
  for (char c : s) out += c == '\\' ? std::string("\\e") : c == '-' ? std::string("\\-") : std::string(1, c);
  return !out.empty() && (out[0] == '.' || out[0] == '\'') ? "\\&" + out : out;
}

}  // namespace

const std::vector<std::pair<int, std::string>>& exit_codes() {
  static const std::vector<std::pair<int, std::string>> table = {{0, "result written, or equal"}, {1, "bug in mirage-opt"}, {2, "usage"},
                                                                 {3, "invalid spec"}, {4, "valid but unsupported"},
                                                                 {5, "not equal, or a certificate that does not hold"}, {6, "unknown"},
                                                                 {7, "toolchain failed or missing"}, {8, "check on the device failed"},
                                                                 {9, "slower than the baseline"},
                                                                 {10, "not in lock or cache under --frozen"}, {11, "input or output files"},
                                                                 {124, "budget ended before anything was verified"}, {130, "interrupted"},
                                                                 {143, "terminated"}};
  return table;
}

const std::vector<std::string>& completion_shells() {
  static const std::vector<std::string> shells = {"bash", "zsh", "fish"};
  return shells;
}

std::string completion(const std::string& shell) { return shell == "bash" ? bash() : shell == "zsh" ? zsh() : fish(); }

std::string man_page(const std::string& version) {
  std::string out = fmt::format(
      ".TH MIRAGE\\-OPT 1 \"\" \"mirage-opt {}\" \"User Commands\"\n.SH NAME\nmirage\\-opt \\- from a tensor program to a verified CUDA "
      "library\n",
      version);
  out +=
      ".SH SYNOPSIS\n.B mirage\\-opt\n[\\fIOPTION\\fR]... \\fISPEC\\fR... \\fB\\-o\\fR \\fIDIR\\fR\n.SH DESCRIPTION\n"
      "Reads tensor programs (JSON or text; \\fB\\-\\fR is standard input, a folder means its specs), searches equivalent programs of "
      "fewer and faster kernels, verifies what it finds, and writes CUDA C++ with a C "
      "interface. \\fB@\\fR\\fIFILE\\fR inserts the words of \\fIFILE\\fR.\n";
  std::string group;
  for (const OptionInfo& o : option_table()) {
    if (o.group != group) {
      std::string title = group = o.group;
      for (char& c : title) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      out += ".SH " + title + "\n";
    }
    out += ".TP\n\\fB" + roff(fmt::format("{}", fmt::join(o.names, ", "))) + "\\fR" +
           (o.metavar.empty() ? "" : " \\fI" + roff(o.metavar) + "\\fR") + "\n" + roff(o.help) + "\n";
  }
  out += ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : exit_codes()) out += fmt::format(".TP\n.B {}\n{}\n", code, roff(meaning));
  out += ".SH ENVIRONMENT\n";
  for (const Variable& v : environment()) out += fmt::format(".TP\n.B {}\n{} ({})\n", roff(v.name), roff(v.help), roff(v.reader));
  return out + ".SH SEE ALSO\nThe reference, as Markdown: \\fB\\-\\-print\\-reference\\fR.\n";
}

}  // namespace mirage

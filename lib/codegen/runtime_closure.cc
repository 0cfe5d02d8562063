// The part of the device library that a text uses: declarations whose names occur in it, and what these use in turn. A name brings all its
// declarations (overloads, specialisations), so that what a call finds is what it would find in the whole library, and the machine code is
// the same.
#include <algorithm>
#include <cctype>
#include <set>
#include <unordered_map>

#include "codegen/module_parts.h"
#include "codegen/names.h"

namespace mirage {
namespace {

/// A piece of a file at the outermost level, or directly within its namespace.
struct Piece {
  // kCondition: #if, #ifdef, #else
  enum class Kind : uint8_t {
    kKept,
    kCondition,
    kEndOfCondition,
    kNamespace,
    kEndOfNamespace,
    kMacro,
    kEndOfMacro,
    kDeclaration
  } kind = Kind::kKept;
  std::string text;                     ///< with the comment above it
  std::vector<std::string> declares;
  std::set<std::string> uses;
  /// a word without which it is not for this text ("// with i32" behind it): an overload for a type that the text does not name
  std::string with;
  size_t file = 0;
};


/// Words and single characters of a text, without comments and strings; the words of a macro's body are found like any others.
std::vector<std::string> tokens_of(std::string_view s) {
  std::vector<std::string> out;
  for (size_t i = 0; i < s.size();) {
    if (s.substr(i, 2) == "//") { while (i < s.size() && s[i] != '\n') i++; continue; }
    if (s.substr(i, 2) == "/*") {
      const size_t end = s.find("*/", i + 2);
      i = end == std::string_view::npos ? s.size() : end + 2;
      continue;
    }
    if (s[i] == '"' || (s[i] == '\'' && (i == 0 || !is_word(s[i - 1])))) {
      const char quote = s[i++];
      while (i < s.size() && s[i] != quote) i += s[i] == '\\' ? 2 : 1;
      i++;
      continue;
    }
    if (is_word(s[i])) {
      const size_t from = i;
      while (i < s.size() && is_word(s[i])) i++;
      out.emplace_back(s.substr(from, i - from));
    } else {
      if (!std::isspace(static_cast<unsigned char>(s[i]))) out.emplace_back(1, s[i]);
      i++;
    }
  }
  return out;
}

bool is_name(const std::string& token) { return is_word(token[0]) && std::isdigit(static_cast<unsigned char>(token[0])) == 0; }

/// The place behind the bracket that closes the one at `at`.
size_t behind(const std::vector<std::string>& t, size_t at) {
  const std::string open = t[at], close = open == "<" ? ">" : open == "(" ? ")" : open == "[" ? "]" : "}";
  for (int depth = 0; at < t.size(); at++) {
    if (open == "<" && t[at] == "(") { at = behind(t, at) - 1; continue; }   // a > b within
    depth += t[at] == open ? 1 : t[at] == close ? -1 : 0;
    if (depth == 0) return at + 1;
  }
  return at;
}

/// What a declaration declares at the outermost level.
std::vector<std::string> declared(const std::vector<std::string>& t) {
  size_t i = 0;
  while (i < t.size() && t[i] == "template") i = behind(t, i + 1);
  std::string last;
  for (; i < t.size(); i++) {
    if (t[i] == "struct" || t[i] == "class" || t[i] == "enum" || t[i] == "union" || t[i] == "using") {
      const bool is_enum = t[i] == "enum";
      size_t name = i + 1;
      while (name < t.size() && (t[name] == "class" || t[name] == "alignas" || t[name] == "("))
        name = t[name] == "(" ? behind(t, name) : name + 1;
      std::vector<std::string> out{t[name]};
      for (size_t k = name; is_enum && k + 1 < t.size(); k++)
        if ((t[k] == "{" || t[k] == ",") && is_name(t[k + 1])) out.push_back(t[k + 1]);
      return out;
    }
    if (t[i] == "<" || (t[i] == "[" && last.empty())) { i = behind(t, i) - 1; continue; }   // [[maybe_unused]]
    if (t[i] == "(" || t[i] == "=" || t[i] == ";" || t[i] == "{" || t[i] == "[") break;
    if (is_name(t[i])) last = t[i];
  }
  if (last.empty()) return {};
  std::vector<std::string> out{last};
  const bool is_function = i < t.size() && t[i] == "(";
  for (; !is_function && i + 1 < t.size(); i++) {   // further constants behind a comma
    if (t[i] == "(" || t[i] == "{" || t[i] == "[") i = behind(t, i) - 1;
    else if (t[i] == "," && is_name(t[i + 1])) out.push_back(t[i + 1]);
  }
  return out;
}

/// Cuts a file into pieces.
class Cutter {
 public:
  Cutter(const std::string& body, size_t file, std::vector<Piece>& out) : s_(body), file_(file), out_(out) {}

  void run() {
    while (at_ < s_.size()) {
      if (s_[at_] == ' ') { at_++; continue; }   // behind a declaration on the same line
      if (s_[at_] == '\n') { at_++; if (above_.empty()) gap_ = true; continue; }
      const std::string_view line = line_at(at_);
      if (line.starts_with("//")) take_comment(line);
      else if (line.starts_with("#")) take_directive();
      else if (line.starts_with("namespace ")) add(Piece::Kind::kNamespace, at_ + line.size());
      else if (line.starts_with("}")) add(Piece::Kind::kEndOfNamespace, at_ + line.size());
      else if (line.starts_with("MO_") && line.find('(') < line.find(' ')) take_invocation();
      else add(Piece::Kind::kDeclaration, end_of_declaration());
    }
  }

 private:
  std::string_view line_at(size_t at) const { return std::string_view(s_).substr(at, std::min(s_.find('\n', at), s_.size()) - at); }

  void take_comment(std::string_view line) {
    above_.append(line).append("\n");
    at_ += line.size() + 1;
    if (at_ < s_.size() && s_[at_] == '\n') above_ += "\n";   // it stands for itself, above what follows
  }

  void take_directive() {
    size_t end = at_;
    do end = std::min(s_.find('\n', end + 1), s_.size());
    while (end < s_.size() && s_[end - 1] == '\\');
    const std::vector<std::string> t = tokens_of(std::string_view(s_).substr(at_, end - at_));
    const std::string& what = t[1];
    const bool is_macro = what == "define" || what == "undef";
    add(is_macro                                ? what == "define" ? Piece::Kind::kMacro : Piece::Kind::kEndOfMacro
        : what == "endif"                       ? Piece::Kind::kEndOfCondition
        : what == "include" || what == "pragma" ? Piece::Kind::kKept
                                                : Piece::Kind::kCondition,
        end);
    if (is_macro) out_.back().declares = {t[2]};
  }

  /// MO_PACK1(neg): a macro that declares what it is given.
  void take_invocation() {
    const size_t open = s_.find('(', at_), close = s_.find(')', open);
    add(Piece::Kind::kDeclaration, close + 1);
    out_.back().declares = {s_.substr(open + 1, close - open - 1)};
    while (at_ < s_.size() && s_[at_] == ' ') at_++;
  }

  /// Behind the ; or the closing brace, and the comment on the same line.
  size_t end_of_declaration() const {
    int depth = 0;
    for (size_t i = at_; i < s_.size(); i++) {
      if (s_.compare(i, 2, "//") == 0) { i = std::min(s_.find('\n', i), s_.size()) - 1; continue; }
      if (s_[i] == '"' || (s_[i] == '\'' && !is_word(s_[i - 1]))) {
        const char quote = s_[i++];
        while (s_[i] != quote) i += s_[i] == '\\' ? 2 : 1;
        continue;
      }
      depth += s_[i] == '{' || s_[i] == '(' ? 1 : s_[i] == '}' || s_[i] == ')' ? -1 : 0;
      const bool ends = depth == 0 && (s_[i] == ';' || (s_[i] == '}' && (i + 1 >= s_.size() || s_[i + 1] != ';')));
      if (!ends) continue;
      const size_t next = s_.find_first_not_of(' ', i + 1);
      return next == std::string::npos || s_[next] == '\n' || s_.compare(next, 2, "//") == 0 ? std::min(s_.find('\n', i), s_.size())
                                                                                             : i + 1;
    }
    return s_.size();
  }

  void add(Piece::Kind kind, size_t end) {
    Piece p;
    p.kind = kind;
    p.file = file_;
    const std::string_view own = std::string_view(s_).substr(at_, end - at_);
    const std::vector<std::string> t = tokens_of(own);
    if (kind == Piece::Kind::kDeclaration) p.declares = declared(t);
    for (const std::string& x : t) if (is_name(x)) p.uses.insert(x);
    if (const size_t mark = own.rfind("// with "); mark != std::string_view::npos && own.find('\n', mark) == std::string_view::npos)
      p.with = own.substr(mark + 8);
    p.text = (gap_ ? "\n" : "") + above_ + std::string(own) + "\n";
    above_.clear();
    gap_ = false;
    out_.push_back(std::move(p));
    at_ = end < s_.size() && s_[end] == '\n' ? end + 1 : end;
  }

  const std::string& s_;
  size_t file_, at_ = 0;
  std::string above_;
  bool gap_ = false;
  std::vector<Piece>& out_;
};

/// The whole library in pieces, and where a name is declared. A macro that its file takes back is that file's own.
struct Library {
  std::vector<Piece> pieces;
  std::vector<std::string> headings;   ///< per file
  std::unordered_map<std::string, std::vector<size_t>> declared_in;
  std::set<std::pair<size_t, std::string>> local;

  Library() {
    const auto files = runtime_files();
    for (size_t f = 0; f < files.size(); f++) {
      headings.push_back("// ---- " + files[f].first + "\n");
      Cutter(without_includes(files[f].second), f, pieces).run();
    }
    for (size_t i = 0; i < pieces.size(); i++) {
      for (const std::string& name : pieces[i].declares) declared_in[name].push_back(i);
      if (pieces[i].kind == Piece::Kind::kEndOfMacro) local.emplace(pieces[i].file, pieces[i].declares[0]);
    }
  }
};

/// Marks everything that the words of a text need.
std::vector<bool> needed_by(const Library& library, std::string_view text) {
  std::vector<bool> needed(library.pieces.size());
  std::vector<size_t> open;
  const auto words = tokens_of(text);
  const std::set<std::string> own(words.begin(), words.end());
  const auto need = [&](const std::string& name, size_t file) {
    const auto at = library.declared_in.find(name);
    if (at == library.declared_in.end()) return;
    for (size_t i : at->second) {
      const Piece& p = library.pieces[i];
      if (needed[i] || (!p.with.empty() && own.count(p.with) == 0) || (library.local.count({p.file, name}) && p.file != file)) continue;
      needed[i] = true;
      open.push_back(i);
    }
  };
  for (const std::string& w : own) need(w, library.headings.size());
  while (!open.empty()) {
    const Piece& p = library.pieces[open.back()];
    open.pop_back();
    for (const std::string& w : p.uses) need(w, p.file);
  }
  return needed;
}

}  // namespace

std::string without_includes(const std::string& body) {
  std::string out;
  for (size_t at = 0; at < body.size();) {
    const size_t end = std::min(body.find('\n', at), body.size());
    const std::string_view line = std::string_view(body).substr(at, end - at);
    const bool dropped = line.starts_with("#pragma once") || line.starts_with("#include \"") || line.starts_with("#include <stdint.h>") ||
                         line.starts_with("#include <cstdint>");
    if (!dropped) out.append(line).append("\n");
    at = end + 1;
  }
  return out;
}

std::string runtime_text_for(std::string_view text) {
  static const Library library;
  const std::vector<bool> needed = needed_by(library, text);
  // Conditions and namespaces are written when the first thing within them is.
  std::string out = runtime_preamble();
  std::vector<std::pair<const Piece*, bool>> around;   // written
  size_t file = library.headings.size();
  const auto write = [&](const Piece& p) {
    if (p.file != file) out += library.headings[file = p.file];
    out += p.text;
  };
  for (size_t i = 0; i < library.pieces.size(); i++) {
    const Piece& p = library.pieces[i];
    switch (p.kind) {
      case Piece::Kind::kCondition:
      case Piece::Kind::kNamespace: around.emplace_back(&p, false); break;
      case Piece::Kind::kEndOfCondition:
      case Piece::Kind::kEndOfNamespace: {
        const auto opens = p.kind == Piece::Kind::kEndOfNamespace ? Piece::Kind::kNamespace : Piece::Kind::kCondition;
        bool written = false;
        // #else and its #if
        for (bool first = false; !first && !around.empty() && around.back().first->kind == opens; around.pop_back()) {
          written = written || around.back().second;
          first = !around.back().first->text.ends_with("#else\n");
        }
        if (written) write(p);
        break;
      }
      default:
        if (p.kind != Piece::Kind::kKept && !needed[i]) break;
        for (auto& [piece, written] : around)
          if (!written) { write(*piece); written = true; }
        write(p);
    }
  }
  return out;
}

}  // namespace mirage

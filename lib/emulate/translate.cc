// From emitted CUDA text to a host program: the header in front (host/), PTX functions left as declarations for their twins to define,
// shared arrays asked of the engine, an entry per kernel. The kernels' own text stays as it is. A PTX function without a twin is an
// undefined symbol: the library does not load, and the name is in the message.
#include <cctype>
#include <utility>

#include "mirage/emulate/emulate.h"
#include "mirage/support/assert.h"

namespace mirage {

/// generated: host/*.h, include/mirage/emulate/field.h, codegen/runtime/*.twin.h
std::vector<std::pair<std::string, std::string>> emulation_files();

namespace {

/// The end of the comment or literal that begins at `at`, or `at` if none does.
size_t skip_quiet(const std::string& s, size_t at) {
  if (s.compare(at, 2, "//") == 0) { const size_t e = s.find('\n', at); return e == std::string::npos ? s.size() : e; }
  if (s.compare(at, 2, "/*") == 0) { const size_t e = s.find("*/", at + 2); return e == std::string::npos ? s.size() : e + 2; }
  if (s[at] != '"' && s[at] != '\'') return at;
  if (s[at] == '\'' && at > 0 && std::isalnum(static_cast<unsigned char>(s[at - 1]))) return at;   // 3'000'000
  size_t i = at + 1;
  while (i < s.size() && s[i] != s[at]) i += s[i] == '\\' ? 2 : 1;
  return std::min(i + 1, s.size());
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

bool word_at(const std::string& s, size_t at, const char* word) {
  const size_t n = std::string(word).size();
  return s.compare(at, n, word) == 0 && (at == 0 || !is_word(s[at - 1])) && (at + n >= s.size() || !is_word(s[at + n]));
}

/// One-line functions that end in "// host twin" (they play with the bits of numbers) count as PTX; floats that the compiler must know get
/// a type that it can know.
std::string prepared(const std::string& s) {
  std::string out;
  for (size_t at = 0; at < s.size();) {
    size_t end = s.find('\n', at);
    if (end == std::string::npos) end = s.size();
    std::string line = s.substr(at, end - at);
    if (line.ends_with("// host twin"))
      if (const size_t brace = line.find('{'); brace != std::string::npos) line.insert(brace + 1, " asm; ");
    for (size_t c; (c = line.find("constexpr float ")) != std::string::npos;) line.replace(c, 16, "constexpr EmuLiteral ");
    out += line + "\n";
    at = end + 1;
  }
  return out;
}

/// Bodies of functions with inline PTX become declarations.
std::string without_ptx(const std::string& s) {
  struct Open { size_t at, declaration; };
  std::string out;
  size_t copied = 0;
  std::vector<Open> braces;
  std::vector<std::pair<size_t, size_t>> cut;   // ranges that become ';'
  size_t declaration = 0;
  bool has_ptx = false;
  size_t ptx_depth = 0;
  for (size_t i = 0; i < s.size();) {
    if (const size_t e = skip_quiet(s, i); e != i) { i = e; continue; }
    const char c = s[i];
    if (c == '#' && (i == 0 || s[i - 1] == '\n')) {   // directives, with their continuations
      while (i < s.size() && !(s[i] == '\n' && s[i - 1] != '\\')) i++;
      declaration = i;
      continue;
    }
    if (word_at(s, i, "asm")) {
      has_ptx = true;
      for (ptx_depth = 0; ptx_depth < braces.size(); ptx_depth++)
        if (s.substr(braces[ptx_depth].declaration, braces[ptx_depth].at - braces[ptx_depth].declaration).find("MO_FN") !=
            std::string::npos)
          break;
      MIRAGE_ASSERT(ptx_depth < braces.size()) << "inline PTX outside of a function of the device library";
    }
    if (c == '{') { braces.push_back({i, declaration}); declaration = i + 1; }
    if (c == '}' && !braces.empty()) {
      if (has_ptx && braces.size() - 1 == ptx_depth) { cut.emplace_back(braces.back().at, i + 1); has_ptx = false; }
      braces.pop_back();
      declaration = i + 1;
    }
    if (c == ';' || (c == ':' && i + 1 < s.size() && s[i + 1] == '\n')) declaration = i + 1;
    i++;
  }
  for (auto [from, to] : cut) {
    size_t end = from;
    while (end > 0 && s[end - 1] == ' ') end--;
    out += s.substr(copied, end - copied) + ";";
    copied = to;
  }
  return out + s.substr(copied);
}

/// `__shared__ T name[n];` and `extern __shared__ ... name[];` as references to memory of the running block.
std::string with_shared(const std::string& s) {
  std::string out;
  size_t copied = 0;
  for (size_t i = 0; i < s.size();) {
    if (const size_t e = skip_quiet(s, i); e != i) { i = e; continue; }
    if (!word_at(s, i, "__shared__")) { i++; continue; }
    size_t from = i;
    const bool dynamic = from >= 7 && s.compare(from - 7, 7, "extern ") == 0;
    if (dynamic) from -= 7;
    const size_t end = s.find(';', i);
    std::string text = s.substr(i + 10, end - i - 10), align = "16";
    if (const size_t a = text.find("__align__("); a != std::string::npos) {
      const size_t close = text.find(')', a);
      align = text.substr(a + 10, close - a - 10);
      text.erase(a, close + 1 - a);
    }
    const size_t open = text.find('['), name_end = text.find_last_not_of(' ', open == std::string::npos ? text.size() : open - 1) + 1;
    size_t name = name_end;
    while (name > 0 && is_word(text[name - 1])) name--;
    const std::string type = text.substr(0, name), id = text.substr(name, name_end - name),
                      extents = open == std::string::npos ? "" : text.substr(open);
    out += s.substr(copied, from - copied);
    if (dynamic) out += type + "* const " + id + " = static_cast<" + type + "*>(emu->dynamic_shared(" + align + "))";
    else
      out += "static char emu_key_" + id + "; using EmuType_" + id + " = " + type + extents + "; EmuType_" + id + "& " + id +
             " = *static_cast<EmuType_" + id + "*>(emu->static_shared(&emu_key_" + id + ", sizeof(EmuType_" + id + "), alignof(EmuType_" +
             id + ") > " + align + " ? alignof(EmuType_" + id + ") : " + align + "))";
    copied = end;
    i = end;
  }
  return out + s.substr(copied);
}

/// The header's own includes are told apart by name; CUDA's are not there.
std::string without_includes(const std::string& s) {
  std::string out;
  for (size_t at = 0; at < s.size();) {
    size_t end = s.find('\n', at);
    if (end == std::string::npos) end = s.size();
    const std::string line = s.substr(at, end - at);
    if (!line.starts_with("#include") && !line.starts_with("#pragma")) out += line + "\n";
    else out += "\n";
    at = end + 1;
  }
  return out;
}

std::string entry(const EmulatedKernel& k) {
  std::string out = "extern \"C\" __attribute__((visibility(\"default\"))) void emu_run_" + k.name + "(void* const* a) {\n  emu_in_" +
                    k.name + "::" + k.symbol + "(";
  for (size_t i = 0; i < k.maps.size() + k.args.size(); i++) {
    const std::string a = "a[" + std::to_string(i) + "]";
    const std::string value = i < k.maps.size() ? "mo::TensorMap" : k.values.empty() ? "" : k.values[i - k.maps.size()];
    out += (i ? ", " : "") + (value.empty() ? a : "*static_cast<const " + value + "*>(" + a + ")");
  }
  return out + ");\n}\n";
}

}  // namespace

std::string emulation_source(const std::string& runtime, const std::vector<EmulatedKernel>& kernels) {
  std::string twins, text;
  std::vector<std::pair<std::string, std::string>> files = emulation_files();
  const auto file = [&](const std::string& name) -> const std::string& {
    for (const auto& [n, body] : files)
      if (n == name) return body;
    MIRAGE_ASSERT(false) << "no embedded file " << name;
    return files.front().second;
  };
  text =
      "#line 1 \"emulation.cc\"\n// An emulation: host text of emitted CUDA kernels (lib/emulate).\n#define MIRAGE_EMULATE 1\n#define "
      "__CUDACC_RTC__ 1\n#include <stdint.h>\n#include <stddef.h>\n";
  for (const char* name : {"api.h", "field.h", "prelude.h"}) text += without_includes(file(name));
  text += with_shared(without_ptx(prepared(without_includes(runtime))));
  for (const EmulatedKernel& k : kernels) text += "namespace emu_in_" + k.name + " {\n" + with_shared(prepared(k.source)) + "\n}\n";
  for (const auto& [name, body] : files)
    if (name.ends_with(".twin.h")) text += without_includes(body);
  for (const EmulatedKernel& k : kernels) text += entry(k);
  return text;
}

std::vector<std::string> emulation_flags(UnsetFill fill, bool is_clang) {
  std::vector<std::string> flags = {
      "-std=c++20", "-fPIC", "-shared", "-fno-exceptions", "-fno-rtti", "-fno-strict-aliasing", "-ffp-contract=off",
      "-fvisibility=hidden", "-fsanitize=thread", "-fsanitize=alignment", "-fsanitize=bounds",
      fill == UnsetFill::kZeros ? "-ftrivial-auto-var-init=zero" : "-ftrivial-auto-var-init=pattern", "-nodefaultlibs", "-Wl,-z,defs",
      "-w"};
  if (is_clang) {
    flags.push_back("-O1");
    // before version 16 clang asks for this
    if (fill == UnsetFill::kZeros) flags.push_back("-enable-trivial-auto-var-init-zero-knowing-it-will-be-removed-from-clang");
  } else {   // compiled in half of -O1's time, and what it makes is as fast
    flags.insert(flags.end(), {"-Og", "-finline-functions-called-once", "-ftree-sra", "-fmove-loop-invariants"});
  }
#if defined(__x86_64__)
  // sums of tensor cores (30_contract.twin.h); of all code: gcc 13 loses a template's target attribute. A library is named by its flags
  if (__builtin_cpu_supports("avx2")) flags.push_back("-mavx2");
#endif
  return flags;
}

}  // namespace mirage

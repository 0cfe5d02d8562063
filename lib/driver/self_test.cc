// Kernel mutants: see the header. Mutation is textual, on what nvcc would get, so it does not share an idea of correctness with the emitter.
#include "driver/self_test.h"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "driver/emulation.h"
#include "driver/gate.h"
#include "driver/reduce.h"
#include "mirage/support/hash.h"

namespace mirage {

namespace {

struct Edit { std::string what; size_t at, length; std::string by; };

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/// Lines that only set the order of work, the names of unused things, or what the compiler checks by itself, and sizes of register arrays (a larger one is no mistake).
bool is_exempt(const std::string& line) {
  for (const char* word : {"turn", "rotate = ", "__launch_bounds__", "using T", "#pragma", "static_assert", "(void)", "//", "constexpr int kThreads", "mo::real x", "mo::real y", "mo::real r"})
    if (line.find(word) != std::string::npos && !(std::string(word) == "(void)" && line.find("tile<") != std::string::npos)) return true;
  return false;
}

/// All edits of one line that begins at `from` of the text.
void edits_of(const std::string& line, size_t from, std::vector<Edit>& out) {
  static const std::pair<const char*, const char*> dropped[] = {{"warp_barrier();", "dropped warp barrier"}, {"barrier();", "dropped barrier"}, {".clear();", "dropped accumulator reset"}, {"copy_commit();", "dropped commit"}};
  const size_t begin = line.find_first_not_of(' ');
  if (begin == std::string::npos) return;
  const std::string body = line.substr(begin);
  for (const auto& [end, what] : dropped)
    if (body.ends_with(end) && (body == end || std::string(end) == ".clear();")) { out.push_back({what, from + begin, body.size(), ""}); return; }
  if (body.starts_with("copy_wait<")) {
    out.push_back({"dropped wait", from + begin, body.size(), ""});
    out.push_back({"wait for one group less", from + begin, body.size(), fmt::format("copy_wait<{}>();", std::atoi(body.c_str() + 10) + 1)});
    return;
  }
  if (is_exempt(line)) return;
  for (const char* what : {" < ", "slot", "begin", "block_x", "block_y"}) {
    const size_t at = line.find(what);
    if (at == std::string::npos) continue;
    const std::string w = what;
    if (w == " < " && (line.find("if (") != std::string::npos || line.find("for (") != std::string::npos)) out.push_back({"predicate off by one", from + at, 3, " <= "});
    if (w == "slot" && line.find("const T") != std::string::npos) out.push_back({"swapped buffer", from + line.rfind("slot"), 4, "0"});
    if (w == "block_x" && line.find("tile") != std::string::npos) out.push_back({"wrong block", from + at, 7, "(block_x + 1)"});
  }
  for (size_t i = 0; i < line.size(); i++) {   // numbers: sizes, strides, offsets
    if (!is_digit(line[i]) || (i > 0 && (is_word(line[i - 1]) || line[i - 1] == '.'))) continue;
    size_t e = i;
    while (e < line.size() && is_digit(line[e])) e++;
    if (e < line.size() && (is_word(line[e]) || line[e] == '.')) { i = e; continue; }
    const long long n = std::atoll(line.substr(i, e - i).c_str());
    const bool in_template = line.rfind('<', i) != std::string::npos && line.find('>', i) != std::string::npos && line.find('(', line.rfind('<', i)) > i;
    if (n >= 8 && !in_template) {
      const bool offset = line.rfind("smem + ", i) != std::string::npos && line.rfind("smem + ", i) + 7 == i;
      out.push_back({offset ? "offset in shared memory off by one element" : "number off by one", from + i, e - i, std::to_string(offset ? n + 16 : n + 1)});
    }
    i = e;
  }
  static const std::pair<const char*, const char*> swaps[] = {{"mo::mul(", "mo::add("}, {"mo::div(", "mo::mul("}, {"mo::sub(", "mo::add("}, {"Sum", "Max"}, {".transposed()", ""}, {"true>", "false>"}};
  for (const auto& [a, b] : swaps)
    if (const size_t at = line.find(a); at != std::string::npos && std::string(a).starts_with("mo::")) out.push_back({"wrong function", from + at, std::string(a).size(), b});
}

struct Trial { EmulationCase with; size_t index; };

/// Builds all, or halves of them where the compiler refuses some. The library's path per trial; "" where the mutant does not compile.
void build(const std::vector<const EmulationCase*>& cases, size_t begin, size_t end, const std::string& compiler, const std::string& folder, std::vector<std::string>& path) {
  if (begin == end) return;
  const EmulationLibrary l = build_emulation({cases.begin() + static_cast<std::ptrdiff_t>(begin), cases.begin() + static_cast<std::ptrdiff_t>(end)}, compiler, folder);
  if (l.error.empty()) { std::fill(path.begin() + static_cast<std::ptrdiff_t>(begin), path.begin() + static_cast<std::ptrdiff_t>(end), l.path); return; }
  if (end - begin == 1) return;
  const size_t middle = (begin + end) / 2;
  build(cases, begin, middle, compiler, folder, path);
  build(cases, middle, end, compiler, folder, path);
}

}  // namespace

std::vector<KernelMutant> mutate_kernel(const std::string& source, size_t kernel, size_t count, uint64_t seed) {
  std::map<std::string, std::vector<Edit>> kinds;
  std::map<size_t, std::string> lines;
  const size_t body = source.find("__global__");   // helpers in front have conventions of their own
  for (size_t at = body == std::string::npos ? 0 : body; at < source.size();) {
    size_t end = source.find('\n', at);
    if (end == std::string::npos) end = source.size();
    std::vector<Edit> edits;
    edits_of(source.substr(at, end - at), at, edits);
    for (Edit& e : edits) { lines[e.at] = source.substr(at, end - at); kinds[e.what].push_back(std::move(e)); }
    at = end + 1;
  }
  Rng rng(hash_combine(seed, hash_text(source)));
  std::vector<KernelMutant> out;
  while (out.size() < count && !kinds.empty())
    for (auto it = kinds.begin(); it != kinds.end() && out.size() < count;) {
      const size_t i = rng.below(it->second.size());
      const Edit e = it->second[i];
      it->second.erase(it->second.begin() + static_cast<std::ptrdiff_t>(i));
      KernelMutant m{kernel, e.what, lines[e.at], source, 1 + std::count(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(e.at), '\n')};
      m.source.replace(e.at, e.length, e.by);
      out.push_back(std::move(m));
      it = it->second.empty() ? kinds.erase(it) : std::next(it);
    }
  return out;
}

SelfTest run_self_test(const Program& program, const Plan& plan, const Target& target, const std::string& compiler, size_t mutants, uint64_t seed) {
  SelfTest out;
  const std::string folder = emulation_cache();
  if (compiler.empty() || folder.empty()) { out.error = compiler.empty() ? "there is no C++ compiler" : "no folder for compiled emulations"; return out; }
  std::vector<EmulationCase> shapes;
  for (bool tails : {false, true}) {
    const Reduced r = reduce_plan(program, plan, target, tails);
    if (!r.plan) { out.error = r.refusal; return out; }
    std::vector<KernelText> texts;
    for (const KernelPlan& k : r.plan->kernels) texts.push_back(emit_kernel(k, *r.plan, target));
    shapes.push_back(make_emulation_case(*r.program, *r.plan, texts));
  }
  std::vector<EmulationCase> trials;
  std::vector<KernelMutant> made;
  for (size_t s = 0; s < shapes.size(); s++)
    for (size_t k = 0; k < shapes[s].kernels.size(); k++)
      for (KernelMutant& m : mutate_kernel(shapes[s].kernels[k].source, k, std::max<size_t>(1, mutants / shapes.size() / shapes[s].kernels.size()), seed)) {
        EmulationCase c = shapes[s];
        const std::string prefix = fmt::format("m{}_", trials.size());
        for (EmulatedKernel& e : c.kernels) e.name = prefix + e.name;
        c.kernels[k].source = m.source;
        trials.push_back(std::move(c));
        made.push_back(std::move(m));
      }
  std::vector<const EmulationCase*> cases;
  for (const EmulationCase& c : trials) cases.push_back(&c);
  std::vector<std::string> path(trials.size());
  for (size_t at = 0; at < cases.size(); at += 16) build(cases, at, std::min(at + 16, cases.size()), compiler, folder, path);
  EmulateOptions options;
  options.seconds = 20;
  for (size_t i = 0; i < trials.size(); i++) {
    out.mutants++;
    if (path[i].empty()) { out.refused++; continue; }
    bool caught = false;
    for (EmulationMode m : {EmulationMode::kField, EmulationMode::kFloat, EmulationMode::kInteger})
      if (!caught) caught = !run_emulation(trials[i], path[i], m, seed, options).ok;
    if (caught) out.caught++;
    else out.survivors.push_back(fmt::format("{} in {}, line {}: {}", made[i].what, trials[i].kernels[made[i].kernel].symbol, made[i].number, made[i].line.substr(made[i].line.find_first_not_of(' '))));
  }
  return out;
}

std::string to_string(const SelfTest& t) {
  if (!t.error.empty()) return "self-test: not run: " + t.error + "\n";
  std::string out = fmt::format("self-test: {} mutants of the kernels: {} caught, {} refused by the compiler, {} survive\n", t.mutants, t.caught, t.refused, t.survivors.size());
  for (const std::string& s : t.survivors) out += "  survives: " + s + "\n";
  return out;
}

}  // namespace mirage

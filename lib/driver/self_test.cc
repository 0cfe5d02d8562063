// Kernel mutants: see the header. Mutation is textual, on what nvcc would get, so it does not share an idea of correctness with the emitter.
#include "driver/self_test.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

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
    if (w == "begin" && line.find("auto") != std::string::npos) out.push_back({"starts one later", from + at, 5, "begin + 1"});
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
  static const std::tuple<const char*, const char*, const char*> swaps[] = {
      {"wrong function", "mo::mul(", "mo::add("}, {"wrong function", "mo::div(", "mo::mul("}, {"wrong function", "mo::sub(", "mo::add("}, {"wrong function", "mo::Sum", "mo::Max"}, {"wrong function", "mo::Max", "mo::Sum"},
      {"transposed operand", ".transposed()", ""}, {"swizzle left out", ", true>", ", false>"}, {"swizzle put in", ", false>", ", true>"}, {"wrong rank of the cluster", "cluster_rank()", "(cluster_rank() ^ 1)"},
      {"wrong parity", "& 1)", "& 1 ^ 1)"}, {"wrong coordinate", "copy_box(", "copy_box(128 + "}, {"dropped fence", "mo::fence_async_proxy();", ""}, {"dropped fence", "mo::mbarrier_publish();", ""},
      {"dropped arrival", "mo::mbarrier_arrive(", "(void)("}, {"dropped cluster barrier", "mo::cluster_wait();", ""}, {"dropped wait", "mo::mbarrier_wait(", "(void)("}, {"operator", " += ", " = "}, {"operator", " % ", " / "}, {"operator", " && ", " || "}};
  for (const auto& [what, of, by] : swaps)
    if (const size_t at = line.find(of); at != std::string::npos) out.push_back({what, from + at, std::string(of).size(), by});
}

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

std::vector<KernelMutant> all_mutants(const std::string& source, size_t kernel) {
  std::vector<KernelMutant> out;
  std::map<std::pair<std::string, int64_t>, int> seen;   // of one kind on one line
  const size_t body = source.find("__global__");          // helpers in front have conventions of their own
  int64_t number = 1 + std::count(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(body == std::string::npos ? 0 : body), '\n');
  for (size_t at = body == std::string::npos ? 0 : body; at < source.size(); number++) {
    size_t end = source.find('\n', at);
    if (end == std::string::npos) end = source.size();
    const std::string line = source.substr(at, end - at);
    std::vector<Edit> edits;
    edits_of(line, at, edits);
    for (const Edit& e : edits) {
      KernelMutant m{kernel, e.what, line, source, number, seen[{e.what, number}]++};
      m.source.replace(e.at, e.length, e.by);
      out.push_back(std::move(m));
    }
    at = end + 1;
  }
  return out;
}

std::vector<KernelMutant> mutate_kernel(const std::string& source, size_t kernel, size_t count, uint64_t seed) {
  std::map<std::string, std::vector<KernelMutant>> kinds;
  for (KernelMutant& m : all_mutants(source, kernel)) kinds[m.what].push_back(std::move(m));
  Rng rng(hash_combine(seed, hash_text(source)));
  std::vector<KernelMutant> out;
  while (out.size() < count && !kinds.empty())
    for (auto it = kinds.begin(); it != kinds.end() && out.size() < count;) {
      const size_t i = rng.below(it->second.size());
      out.push_back(std::move(it->second[i]));
      it->second.erase(it->second.begin() + static_cast<std::ptrdiff_t>(i));
      it = it->second.empty() ? kinds.erase(it) : std::next(it);
    }
  return out;
}

namespace {

/// Lines of two shapes' texts are the same line if they differ in numbers only.
std::string without_digits(std::string line) {
  std::erase_if(line, is_digit);
  return line;
}

constexpr EmulationMode kModes[] = {EmulationMode::kField, EmulationMode::kFloat, EmulationMode::kInteger};

/// What a mutant came to at one shape.
struct Trial { bool built = false, caught = false; EmulationTrace trace; };

Trial judge(const EmulationCase& c, const std::string& library, uint64_t seed) {
  Trial out{true, false, {}};
  EmulateOptions options;
  options.seconds = 20;
  options.trace = true;
  for (EmulationMode m : kModes) {
    const EmulationOutcome o = run_emulation(c, library, m, seed, options);
    if (!o.ok) { out.caught = true; return out; }
    if (m == EmulationMode::kFloat) out.trace = o.trace;   // one draw of inputs
  }
  return out;
}

/// Mutants of one shape, built together.
std::vector<Trial> try_all(const EmulationCase& shape, const std::vector<KernelMutant>& mutants, const std::string& compiler, const std::string& folder, uint64_t seed) {
  std::vector<EmulationCase> trials;
  for (const KernelMutant& m : mutants) {
    trials.push_back(shape);
    for (EmulatedKernel& e : trials.back().kernels) e.name = fmt::format("m{}_", trials.size()) + e.name;
    trials.back().kernels[m.kernel].source = m.source;
  }
  std::vector<const EmulationCase*> cases;
  for (const EmulationCase& c : trials) cases.push_back(&c);
  std::vector<std::string> path(trials.size());
  for (size_t at = 0; at < cases.size(); at += 16) build(cases, at, std::min(at + 16, cases.size()), compiler, folder, path);
  std::vector<Trial> out(trials.size());
  for (size_t i = 0; i < trials.size(); i++)
    if (!path[i].empty()) out[i] = judge(trials[i], path[i], seed);
  return out;
}

/// Why a mutant that leaves the right results at every shape is harmless; "": it is not shown to be.
std::string harmless(const std::vector<Trial>& trials, const std::vector<EmulationTrace>& honest) {
  bool same = true, accesses = true, device = true;
  for (size_t i = 0; i < trials.size(); i++) {
    if (!trials[i].built) continue;
    same = same && trials[i].trace == honest[i];
    accesses = accesses && trials[i].trace.accesses == honest[i].accesses;
    device = device && trials[i].trace.device_accesses == honest[i].device_accesses;
  }
  if (same) return "every thread does the same, access by access: the number or path has no effect at any shape";
  if (accesses) return "every access is the same and ordered without it, whatever the schedule (vector clocks)";
  if (device) return "device memory is read and written alike, results are equal in the field: it works on copies or padding in shared memory";
  return "";
}

}  // namespace

SelfTest run_self_test(const Program& program, const Plan& plan, const Target& target, const std::string& compiler, size_t mutants, uint64_t seed) {
  SelfTest out;
  const std::string folder = emulation_cache();
  if (compiler.empty() || folder.empty()) { out.error = compiler.empty() ? "there is no C++ compiler" : "no folder for compiled emulations"; return out; }
  std::vector<EmulationCase> shapes;
  for (Tails tails : {Tails::kOwn, Tails::kRagged, Tails::kRaggedEverywhere}) {
    const Reduced r = reduce_plan(program, plan, target, tails);
    if (!r.plan) { out.error = r.refusal; return out; }
    std::vector<KernelText> texts;
    for (const KernelPlan& k : r.plan->kernels) texts.push_back(emit_kernel(k, *r.plan, target));
    shapes.push_back(make_emulation_case(*r.program, *r.plan, texts));
  }
  std::vector<EmulationTrace> honest;
  for (const EmulationCase& s : shapes) {
    const EmulationLibrary l = build_emulation({&s}, compiler, folder);
    const Trial t = l.error.empty() ? judge(s, l.path, seed) : Trial{};
    if (!t.built || t.caught) { out.error = "the kernels themselves do not pass: " + l.error; return out; }
    honest.push_back(t.trace);
  }
  std::vector<KernelMutant> chosen;
  for (size_t k = 0; k < shapes[0].kernels.size(); k++)
    for (KernelMutant& m : mutate_kernel(shapes[0].kernels[k].source, k, std::max<size_t>(1, mutants / shapes[0].kernels.size()), seed)) chosen.push_back(std::move(m));
  std::vector<std::vector<Trial>> trials(chosen.size(), std::vector<Trial>(shapes.size()));
  std::vector<size_t> left(chosen.size());
  for (size_t i = 0; i < left.size(); i++) left[i] = i;
  for (size_t s = 0; s < shapes.size() && !left.empty(); s++) {   // who survives one shape is tried at the next
    std::vector<KernelMutant> here;
    std::vector<size_t> of;
    for (size_t i : left)
      for (KernelMutant& m : all_mutants(shapes[s].kernels[chosen[i].kernel].source, chosen[i].kernel))
        if (m.what == chosen[i].what && m.number == chosen[i].number && m.nth == chosen[i].nth && without_digits(m.line) == without_digits(chosen[i].line)) { here.push_back(std::move(m)); of.push_back(i); break; }
    const std::vector<Trial> done = try_all(shapes[s], here, compiler, folder, seed);
    for (size_t t = 0; t < done.size(); t++) trials[of[t]][s] = done[t];
    std::erase_if(left, [&](size_t i) { return trials[i][s].caught || (s == 0 && !trials[i][s].built); });
  }
  out.mutants = static_cast<int>(chosen.size());
  for (size_t i = 0; i < chosen.size(); i++) {
    const bool built = std::any_of(trials[i].begin(), trials[i].end(), [](const Trial& t) { return t.built; }), caught = std::any_of(trials[i].begin(), trials[i].end(), [](const Trial& t) { return t.caught; });
    if (!built) { out.refused++; continue; }
    if (caught) { out.caught++; continue; }
    const std::string where = fmt::format("{} in {}, line {}: {}", chosen[i].what, shapes[0].kernels[chosen[i].kernel].symbol, chosen[i].number, chosen[i].line.substr(chosen[i].line.find_first_not_of(' ')));
    const std::string reason = harmless(trials[i], honest);
    if (reason.empty()) out.survivors.push_back(where);
    else out.harmless[reason].push_back(where);
  }
  return out;
}

std::string to_string(const SelfTest& t) {
  if (!t.error.empty()) return "self-test: not run: " + t.error + "\n";
  size_t harmless = 0;
  for (const auto& [reason, which] : t.harmless) harmless += which.size();
  std::string out = fmt::format("self-test: {} mutants of the kernels: {} caught, {} refused by the compiler, {} harmless, {} survive\n", t.mutants, t.caught, t.refused, harmless, t.survivors.size());
  for (const auto& [reason, which] : t.harmless) {
    out += fmt::format("  harmless ({}): {}\n", which.size(), reason);
    for (const std::string& w : which) out += "    " + w + "\n";
  }
  for (const std::string& s : t.survivors) out += "  survives: " + s + "\n";
  return out;
}

}  // namespace mirage

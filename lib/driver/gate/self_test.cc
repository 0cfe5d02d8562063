// Kernel mutants against the gate: see the header. The mistakes themselves are in mutations.cc.
#include "driver/gate/self_test.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "driver/emulation/emulation.h"
#include "driver/gate/gate.h"
#include "driver/gate/reduce.h"
#include "mirage/support/file.h"
#include "mirage/support/hash.h"

namespace mirage {

namespace {

/// Builds all, or halves of them where the compiler refuses some. The library's path per trial; "" where the mutant does not compile.
void build(const std::vector<const EmulationCase*>& cases, size_t begin, size_t end, const std::string& compiler, const std::string& folder,
           std::vector<std::string>& path) {
  if (begin == end) return;
  const EmulationLibrary l = build_emulation(
      {cases.begin() + static_cast<std::ptrdiff_t>(begin), cases.begin() + static_cast<std::ptrdiff_t>(end)}, compiler, folder);
  if (l.error.empty()) {
    std::fill(path.begin() + static_cast<std::ptrdiff_t>(begin), path.begin() + static_cast<std::ptrdiff_t>(end), l.path);
    return;
  }
  if (end - begin == 1) return;
  const size_t middle = (begin + end) / 2;
  build(cases, begin, middle, compiler, folder, path);
  build(cases, middle, end, compiler, folder, path);
}

/// Lines of two shapes' texts are the same line if they differ in numbers only.
std::string without_digits(std::string line) {
  std::erase_if(line, [](char c) { return c >= '0' && c <= '9'; });
  return line;
}

/// Machine code and constants of a library, so that texts that mean the same to the compiler are known (ELF-64 sections .text and .rodata).
/// "": unreadable.
std::string code_of(const std::string& path) {
  const auto file = read_file(path);
  const auto at = [&](size_t p, size_t n) { uint64_t x = 0; if (p + n <= file->size()) memcpy(&x, file->data() + p, n); return x; };
  if (!file || file->size() < 64 || file->compare(0, 4, "\177ELF") != 0) return "";
  const uint64_t table = at(40, 8), size = at(58, 2), count = at(60, 2), names = at(table + at(62, 2) * size + 24, 8);
  std::string out;
  for (uint64_t i = 0; i < count; i++) {
    const uint64_t header = table + i * size, offset = at(header + 24, 8), bytes = at(header + 32, 8), name = names + at(header, 4);
    if (name >= file->size() || offset + bytes > file->size()) return "";
    if (const std::string n = file->c_str() + name; n == ".text" || n == ".rodata") out += file->substr(offset, bytes);
  }
  return out;
}

constexpr EmulationMode kModes[] = {EmulationMode::kField, EmulationMode::kFloat, EmulationMode::kInteger, EmulationMode::kLarge};

/// What a mutant came to at one shape. results: of the run in floats, bit for bit.
struct Trial { bool built = false, same_code = false, caught = false; EmulationTrace trace; uint64_t results = 0; std::string how; };

/// A shape of the plan, and what its kernels do as they are.
struct Shape { EmulationCase with; std::string code; Trial honest; };

Trial judge(const EmulationCase& c, const std::string& library, uint64_t seed) {
  Trial out;
  out.built = true;
  EmulateOptions options;
  options.seconds = 20;
  options.trace = true;
  for (EmulationMode m : kModes) {
    EmulationRecord record;
    const EmulationOutcome o = run_emulation(c, library, m, seed, options, m == EmulationMode::kFloat ? &record : nullptr);
    if (!o.ok) { out.caught = true; out.how = o.reason; return out; }
    if (m != EmulationMode::kFloat) continue;   // one draw of inputs
    out.trace = o.trace;
    for (size_t i = 0; i < record.after.size(); i++)
      if (c.plan.buffers[i].kind == Buffer::Kind::kOutput)
        out.results = hash_combine(
            out.results, hash_text(std::string_view(reinterpret_cast<const char*>(record.after[i].data()), record.after[i].size())));
  }
  return out;
}

EmulationCase mutated(const EmulationCase& shape, const KernelMutant& m) {
  EmulationCase out = shape;
  if (m.in_library) out.runtime = m.apply(runtime_text());
  else out.kernels[m.kernel].source = m.apply(out.kernels[m.kernel].source);
  return out;
}

/// Mutants of one shape; those of kernels are built together, as they share a device library.
std::vector<Trial> try_all(const Shape& shape, const std::vector<KernelMutant>& mutants, const std::string& compiler,
                           const std::string& folder, uint64_t seed) {
  std::vector<EmulationCase> trials;
  for (const KernelMutant& m : mutants) {
    trials.push_back(mutated(shape.with, m));
    if (!m.in_library) for (EmulatedKernel& e : trials.back().kernels) e.name = fmt::format("m{}_", trials.size()) + e.name;
  }
  std::vector<const EmulationCase*> together;
  std::vector<size_t> of;
  for (size_t i = 0; i < trials.size(); i++) if (!mutants[i].in_library) together.push_back(&trials[i]), of.push_back(i);
  std::vector<std::string> paths(together.size());
  for (size_t at = 0; at < together.size(); at += 16) build(together, at, std::min(at + 16, together.size()), compiler, folder, paths);
  std::vector<Trial> out(trials.size());
  for (size_t i = 0; i < of.size(); i++) if (!paths[i].empty()) out[of[i]] = judge(trials[of[i]], paths[i], seed);
  for (size_t i = 0; i < trials.size(); i++) {
    if (!mutants[i].in_library) {   // its code is told from the others' by building it alone, under its own names: only where it matters
      if (!out[i].built || out[i].caught) continue;
      const EmulationLibrary l =
          build_emulation({std::make_unique<EmulationCase>(mutated(shape.with, mutants[i])).get()}, compiler, folder);
      out[i].same_code = l.error.empty() && code_of(l.path) == shape.code;
      continue;
    }
    const EmulationLibrary l = build_emulation({&trials[i]}, compiler, folder);
    if (!l.error.empty()) continue;
    if (code_of(l.path) == shape.code) { out[i] = shape.honest; out[i].same_code = true; continue; }
    out[i] = judge(trials[i], l.path, seed);
  }
  return out;
}

/// Why a mutant that leaves the right results at every shape is harmless; "": it is not shown to be.
std::string harmless(const KernelMutant& m, const std::vector<Trial>& trials, const std::vector<Shape>& shapes) {
  bool same = true, accesses = true, device = true;
  for (size_t i = 0; i < trials.size(); i++) {
    const Trial &t = trials[i], &h = shapes[i].honest;
    if (!t.built) continue;
    same = same && t.trace == h.trace && t.results == h.results;
    accesses = accesses && t.trace.accesses == h.trace.accesses && t.results == h.results;
    device = device && t.trace.device_accesses == h.trace.device_accesses && t.results == h.results;
  }
  if (same) return "the same accesses and waits, and results are the same bits: the path or number has no effect at any shape";
  if (accesses && only_drops_order(m))
    return "every access is the same, and ordered without it whatever the schedule (vector clocks): another barrier or wait covers it";
  if (device && !only_drops_order(m))
    return "device memory is read and written alike and results are the same bits: it moves what only this block sees, or touches padding";
  return "";
}

}  // namespace

SelfTest run_self_test(const Program& program, const Plan& plan, const Target& target, const std::string& compiler, size_t mutants,
                       uint64_t seed) {
  SelfTest out;
  const std::string folder = emulation_cache();
  if (compiler.empty() || folder.empty()) {
    out.error = compiler.empty() ? "there is no C++ compiler" : "no folder for compiled emulations";
    return out;
  }
  std::vector<Shape> shapes;
  for (Tails tails : {Tails::kOwn, Tails::kRagged, Tails::kRaggedEverywhere}) {
    const Reduced r = reduce_plan(program, plan, target, tails);
    if (!r.plan) { out.error = r.refusal; return out; }
    std::vector<KernelText> texts;
    for (const KernelPlan& k : r.plan->kernels) texts.push_back(emit_kernel(k, *r.plan, target));
    shapes.push_back({make_emulation_case(*r.program, *r.plan, texts), "", {}});
  }
  const auto run_honest = [&](Shape& s) {   // asked for where mutants come to the shape: the first one catches most
    const EmulationLibrary l = build_emulation({&s.with}, compiler, folder);
    if (l.error.empty()) s.honest = judge(s.with, l.path, seed), s.code = code_of(l.path);
    if (!s.honest.built || s.honest.caught) out.error = "the kernels themselves do not pass: " + l.error + s.honest.how;
    return out.error.empty();
  };
  std::vector<KernelMutant> chosen;
  const std::vector<EmulatedKernel>& kernels = shapes[0].with.kernels;
  std::vector<std::string> texts;
  for (const EmulatedKernel& k : kernels) texts.push_back(k.source);
  for (KernelMutant& m : choose_mutants(library_mutants(runtime_text(), texts), mutants / 2, hash_combine(seed, hash_text(texts[0]))))
    chosen.push_back(std::move(m));
  for (size_t k = 0; k < kernels.size(); k++)
    for (KernelMutant& m : choose_mutants(all_mutants(texts[k], k), std::max<size_t>(1, (mutants - mutants / 2) / kernels.size()),
                                          hash_combine(seed, hash_text(texts[k]))))
      chosen.push_back(std::move(m));
  std::vector<std::vector<Trial>> trials(chosen.size(), std::vector<Trial>(shapes.size()));
  std::vector<size_t> left(chosen.size());
  for (size_t i = 0; i < left.size(); i++) left[i] = i;
  for (size_t s = 0; s < shapes.size() && !left.empty(); s++) {   // who survives one shape is tried at the next
    if (!run_honest(shapes[s])) return out;
    std::vector<KernelMutant> here;
    std::vector<size_t> of;
    std::vector<std::vector<KernelMutant>> all;
    for (size_t k = 0; k < kernels.size() && s > 0; k++) all.push_back(all_mutants(shapes[s].with.kernels[k].source, k));
    for (size_t i : left) {
      if (s == 0 || chosen[i].in_library) { here.push_back(chosen[i]); of.push_back(i); continue; }
      for (const KernelMutant& m : all[chosen[i].kernel])
        if (m.what == chosen[i].what && m.number == chosen[i].number && m.nth == chosen[i].nth &&
            without_digits(m.line) == without_digits(chosen[i].line)) {
          here.push_back(m);
          of.push_back(i);
          break;
        }
    }
    const std::vector<Trial> done = try_all(shapes[s], here, compiler, folder, seed);
    for (size_t t = 0; t < done.size(); t++) trials[of[t]][s] = done[t];
    std::erase_if(left, [&](size_t i) { return trials[i][s].caught || (s == 0 && !trials[i][s].built); });
  }
  out.mutants = static_cast<int>(chosen.size());
  for (size_t i = 0; i < chosen.size(); i++) {
    const bool built = std::any_of(trials[i].begin(), trials[i].end(), [](const Trial&t) { return t.built; }),
               caught = std::any_of(trials[i].begin(), trials[i].end(), [](const Trial&t) { return t.caught; });
    if (!built) { out.refused++; continue; }
    if (caught) { out.caught++; continue; }
    if (std::all_of(trials[i].begin(), trials[i].end(), [](const Trial& t) { return !t.built || t.same_code; })) {
      out.same_code++;
      continue;
    }
    const std::string where =
        fmt::format("{} in {}, line {}: {}", chosen[i].what, chosen[i].in_library ? "the device library" : kernels[chosen[i].kernel].symbol,
                    chosen[i].number, chosen[i].line.substr(chosen[i].line.find_first_not_of(' ')));
    const std::string reason = harmless(chosen[i], trials[i], shapes);
    if (reason.empty()) out.survivors.push_back(where);
    else out.harmless[reason].push_back(where);
  }
  return out;
}

std::string to_string(const SelfTest& t) {
  if (!t.error.empty()) return "self-test: not run: " + t.error + "\n";
  size_t harmless = 0;
  for (const auto& [reason, which] : t.harmless) harmless += which.size();
  std::string out = fmt::format(
      "self-test: {} mutants of the kernels: {} caught, {} refused by the compiler, {} the same code, {} harmless, {} survive\n", t.mutants,
      t.caught, t.refused, t.same_code, harmless, t.survivors.size());
  for (const auto& [reason, which] : t.harmless) {
    out += fmt::format("  harmless ({}): {}\n", which.size(), reason);
    for (const std::string& w : which) out += "    " + w + "\n";
  }
  for (const std::string& s : t.survivors) out += "  survives: " + s + "\n";
  return out;
}

}  // namespace mirage

// The tables of instruction sets and machines.
#include "mirage/ir/target.h"

#include <algorithm>
#include <cctype>
#include <iterator>

namespace mirage {

namespace {

/// Instruction sets: targets without a machine.
std::vector<Target> instruction_sets() {
  std::vector<Target> out;
  const auto add = [&](const char* name, int sm, const char* gencode, const char* nvrtc, int64_t per_block, int64_t per_sm,
                       bool has_new_copies, bool tested) {
    Target t;
    t.name = name, t.sm = sm, t.gencode = gencode, t.nvrtc_arch = nvrtc;
    t.smem_per_block = per_block, t.smem_per_sm = per_sm;
    t.has_tma = t.has_cluster = has_new_copies;
    t.tested = tested;
    out.push_back(std::move(t));
  };
  add("sm_80", 80, "arch=compute_80,code=[sm_80,compute_80]", "sm_80", 163 << 10, 164 << 10, false, false);
  add("sm_86", 86, "arch=compute_86,code=[sm_86,compute_86]", "sm_86", 99 << 10, 100 << 10, false, false);
  add("sm_89", 89, "arch=compute_89,code=[sm_89,compute_89]", "sm_89", 99 << 10, 100 << 10, false, false);
  add("sm_90a", 90, "arch=compute_90a,code=sm_90a", "sm_90a", 227 << 10, 228 << 10, true, true);
  add("sm_100a", 100, "arch=compute_100a,code=sm_100a", "sm_100a", 227 << 10, 228 << 10, true, false);
  add("sm_120a", 120, "arch=compute_120a,code=sm_120a", "sm_120a", 99 << 10, 100 << 10, true, false);
  return out;
}

struct Cell { double value; char source; };
constexpr Cell M(double v) { return {v, 'M'}; }
constexpr Cell S(double v) { return {v, 'S'}; }
constexpr Cell D(double v) { return {v, 'D'}; }

struct MachineTable {
  std::vector<Target> machines;
  std::vector<bool> is_default;
  std::vector<MachineSources> sources;

  MachineTable() {
    const std::vector<Target> sets = instruction_sets();
    const auto add = [&](const char* name, const char* target, const char* device, bool stands_for_it) {
      for (const Target& t : sets)
        if (t.name == target) machines.push_back(t);
      machines.back().machine = name;
      machines.back().device = device;
      is_default.push_back(stands_for_it);
    };
#define MIRAGE_MACHINE(name, target, device, stands_for_it) add(#name, target, device, stands_for_it);
#include "mirage/ir/machine.def"
    sources.resize(machines.size());
    const auto count = [&](size_t i, Cell c) {
      (c.source == 'M' ? sources[i].measured : c.source == 'S' ? sources[i].scaled : sources[i].datasheet)++;
    };
    size_t i = 0;
#define MIRAGE_QUANTITY(type, field, unit, help, ...) \
  i = 0;                                              \
  for (const Cell c : {__VA_ARGS__}) {                \
    machines[i].field = static_cast<type>(c.value);   \
    count(i++, c);                                    \
  }
#include "mirage/ir/machine.def"
  }
};

const MachineTable& table() {
  static const MachineTable t;
  return t;
}

}  // namespace

const std::vector<Target>& all_machines() { return table().machines; }

const std::vector<Target>& all_targets() {
  static const std::vector<Target> kTargets = [] {
    std::vector<Target> out;
    for (const Target& t : instruction_sets())
      for (size_t i = 0; i < table().machines.size(); i++)
        if (table().is_default[i] && table().machines[i].name == t.name) out.push_back(table().machines[i]);
    return out;
  }();
  return kTargets;
}

std::optional<Target> find_target(std::string_view name) {
  for (const Target& t : all_targets()) if (t.name == name) return t;
  return std::nullopt;
}

namespace {

/// Words of a name in small letters and digits, without those that every device of a maker has: "NVIDIA GeForce RTX 4090" is {"4090"},
/// "A100-SXM4-80GB" {"a100", "sxm4", "80gb"}.
std::vector<std::string> telling_words(std::string_view name) {
  std::vector<std::string> out;
  std::string word;
  const auto end_word = [&] {
    if (word.starts_with("rtx") && word.size() > 3) word.erase(0, 3);   // rtx4090
    if (!word.empty() && word != "nvidia" && word != "geforce" && word != "rtx" && word != "tesla") out.push_back(word);
    word.clear();
  };
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c))) word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else end_word();
  end_word();
  return out;
}

bool begins_with(const std::vector<std::string>& all, const std::vector<std::string>& first) {
  return !first.empty() && first.size() <= all.size() && std::equal(first.begin(), first.end(), all.begin());
}

}  // namespace

std::optional<Target> find_machine(std::string_view name) {
  for (const Target& t : all_machines()) if (t.machine == name) return t;
  const std::vector<std::string> words = telling_words(name);
  for (const Target& t : all_machines())
    if (begins_with(words, telling_words(t.machine)) || begins_with(words, telling_words(t.device))) return t;
  return std::nullopt;
}

MachineSources machine_sources(std::string_view machine) {
  for (size_t i = 0; i < table().machines.size(); i++) if (table().machines[i].machine == machine) return table().sources[i];
  return {};
}

}  // namespace mirage

// See the header.
#include "driver/gate/gate_memory.h"

#include <elf.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "driver/evidence/cache_folder.h"
#include "driver/emulation/emulation_library.h"

namespace mirage {

namespace {

constexpr const char* kKind = "gate";

struct BuildId { std::string bytes; };

/// The linker's hash (NT_GNU_BUILD_ID) of the program or library that has this code: another one for every change of emulator, twins or
/// draws. "" where there is none.
int find_build_id(dl_phdr_info* object, size_t, void* to) {
  const auto here = reinterpret_cast<uintptr_t>(&find_build_id);
  const auto segment = [&](int i) { return std::pair(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr, object->dlpi_phdr[i].p_memsz); };
  bool has_it = false;
  for (int i = 0; i < object->dlpi_phnum; i++)
    if (const auto [at, bytes] = segment(i); object->dlpi_phdr[i].p_type == PT_LOAD && here >= at && here < at + bytes) has_it = true;
  for (int i = 0; i < object->dlpi_phnum && has_it; i++) {
    if (object->dlpi_phdr[i].p_type != PT_NOTE) continue;
    const auto [at, bytes] = segment(i);
    for (size_t offset = 0; offset + sizeof(ElfW(Nhdr)) <= bytes;) {
      const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at + offset);
      const char* const name = reinterpret_cast<const char*>(note + 1);
      const size_t name_bytes = (note->n_namesz + 3) & ~size_t{3}, id_bytes = (note->n_descsz + 3) & ~size_t{3};
      if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
        static_cast<BuildId*>(to)->bytes.assign(name + name_bytes, note->n_descsz);
        return 1;
      }
      offset += sizeof(ElfW(Nhdr)) + name_bytes + id_bytes;
    }
  }
  return has_it ? 1 : 0;
}

const std::string& build_id() {
  static const std::string id = [] {
    BuildId found;
    dl_iterate_phdr(&find_build_id, &found);
    return found.bytes;
  }();
  return id;
}

std::string contract_of(const Program& p) {
  std::string out = p.canonical + fmt::format("\n{} {} {}\n", p.numerics.rtol.value_or(-1), p.numerics.atol.value_or(-1), p.numerics.exact);
  for (const auto* list : {&p.inputs, &p.outputs})
    for (const TensorInfo& t : *list)
      out += t.name + " " + to_string(t.type) + to_string(t.strides) +
             (t.range ? fmt::format(" {} {}", t.range->first, t.range->second) : "") + (t.by_value ? " by value\n" : "\n");
  for (DType t : p.kept) out += std::string(dtype_name(t)) + " ";
  return out;
}

}  // namespace

std::string gate_memory_key(const Program& program, const Plan& plan, const Target& target, const std::string& compiler, uint64_t seed,
                            const Options& o) {
  if (!uses_cache(o) || build_id().empty()) return "";
  return content_key(fmt::format("{}\n{}\n{}\n{}\n", build_id(), target.name, compiler, seed) + contract_of(program) +
                     gate_key(program, plan, target));
}

std::optional<GateResult> passed_before(const Options& o, const std::string& key) {
  if (key.empty()) return std::nullopt;
  struct stat info {};
  if (lstat(product_path(o, kKind, key).c_str(), &info) != 0 || !S_ISREG(info.st_mode) || !is_ours_alone(info)) return std::nullopt;
  const auto text = from_cache(o, kKind, key);
  if (!text || !text->starts_with("emulated")) return std::nullopt;
  return GateResult{GateResult::Kind::kPassed, *text, true};
}

void keep_passed(const Options& o, const std::string& key, const GateResult& r) {
  if (!key.empty() && r.kind == GateResult::Kind::kPassed) put_into_cache(o, kKind, key, r.text);
}

}  // namespace mirage

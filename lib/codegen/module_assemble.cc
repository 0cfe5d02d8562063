// Puts a result's files together: the self-contained NAME.cu (comment, device library, kernels, host code) and, from the same facts,
// everything that builds and calls it.
#include <map>
#include <set>
#include "codegen/module_parts.h"
#include "codegen/names.h"
#include "mirage/support/hash.h"

namespace mirage {

std::string hex64(uint64_t x) {
  std::string out(16, '0');
  for (int i = 15; i >= 0; i--, x >>= 4) out[static_cast<size_t>(i)] = "0123456789abcdef"[x & 15];
  return out;
}

namespace {

int64_t span_elements(const Dims& dims, const Dims& strides) {
  MIRAGE_ASSERT(dims.rank() == strides.rank()) << "a tensor has " << dims.rank() << " dimensions and " << strides.rank() << " strides";
  int64_t n = 1;
  for (int i = 0; i < dims.rank(); i++) n += (dims[i] - 1) * strides[i];
  return n;
}

void check_kernels(const Plan& plan, const Target& target, const std::vector<KernelText>& kernels) {
  std::map<std::string, const KernelText*> names;
  for (const KernelText& k : kernels) {
    // of a library for several sizes equal kernels are one, also those of one size
    const auto [first, is_new] = names.emplace(k.name, &k);
    MIRAGE_ASSERT(is_new || first->second->source == k.source) << "two kernels are called " << k.name;
    MIRAGE_ASSERT(k.args.size() == k.written.size()) << k.name;
    for (size_t i = 0; i < k.args.size(); i++) {
      MIRAGE_ASSERT(k.args[i] >= 0 && k.args[i] < static_cast<int>(plan.buffers.size())) << k.name << " has an argument that is no buffer";
      MIRAGE_ASSERT(!k.written[i] || plan.buffers[static_cast<size_t>(k.args[i])].kind != Buffer::Kind::kInput)
          << k.name << " writes an input";
    }
    for (const TensorMapText& m : k.maps) {
      MIRAGE_ASSERT(m.buffer >= 0 && m.buffer < static_cast<int>(plan.buffers.size())) << k.name << " has a tensor map of no buffer";
      MIRAGE_ASSERT(!m.dims.empty() && m.dims.size() <= 5 && m.strides.size() + 1 == m.dims.size() && m.box.size() == m.dims.size() &&
                    m.offset_bytes % 16 == 0)
          << k.name << ": no such tensor map";
      for (int64_t s : m.strides) MIRAGE_ASSERT(s % 16 == 0) << k.name << ": a stride of " << s << " bytes in a tensor map";
      for (int b : m.box) MIRAGE_ASSERT(b >= 1 && b <= 256) << k.name << ": a box of " << b << " in a tensor map";
    }
    MIRAGE_ASSERT(k.threads >= 1 && k.threads <= 1024) << k.name << " has " << k.threads << " threads";
    MIRAGE_ASSERT(k.grid[0] >= 1 && k.grid[0] <= 2147483647 && k.grid[1] >= 1 && k.grid[1] <= 65535 && k.grid[2] >= 1 && k.grid[2] <= 65535)
        << k.name << ": no such grid";
    MIRAGE_ASSERT(k.smem_bytes >= 0 && k.smem_bytes <= target.smem_per_block)
        << k.name << " wants " << k.smem_bytes << " bytes of shared memory";
  }
}

void check_buffers(const Program& program, const Plan& plan) {
  for (const Buffer& b : plan.buffers) {
    if (b.kind == Buffer::Kind::kWorkspace) {
      MIRAGE_ASSERT(b.offset_bytes >= 0 && b.offset_bytes % 256 == 0 && b.offset_bytes + b.bytes() <= plan.workspace_bytes)
          << "a buffer lies outside the workspace";
    } else {
      const size_t count = b.kind == Buffer::Kind::kInput ? program.inputs.size() : program.outputs.size();
      MIRAGE_ASSERT(b.index >= 0 && static_cast<size_t>(b.index) < count) << "a buffer stands for tensor " << b.index << " of " << count;
    }
  }
}

std::string one_line(std::string s) {
  for (char& c : s)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  while (!s.empty() && s.back() == '\\') s.pop_back();   // would splice the next line into the comment
  return s;
}

}  // namespace

std::string renamed(const std::string& text, const std::string& from, const std::string& to) {
  std::string out;
  for (size_t at = 0;;) {
    const size_t next = text.find(from, at);
    if (next == std::string::npos) return out + text.substr(at);
    const bool begins_a_word = next == 0 || !is_word(text[next - 1]);
    out += text.substr(at, next - at) + (begins_a_word ? to : from);
    at = next + from.size();
  }
}

std::string kernel_form(const KernelText& k) {
  std::string form = renamed(k.source, k.name, "@") + (k.dependent ? "d" : "") + (k.cooperative ? "c" : "");
  for (const TensorMapText& m : k.maps) form += " " + std::to_string(m.dims.size());
  return form;
}

void name_equal_kernels(std::vector<KernelText>& kernels) {
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < kernels.size(); i++) {
    if (kernels[i].cublas) continue;
    const auto [first, is_new] = known.emplace(kernel_form(kernels[i]), i);
    if (!is_new) kernels[i].name = kernels[first->second].name, kernels[i].source = kernels[first->second].source;
  }
}

std::string as_comment(const std::string& text) {
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    size_t end = text.find('\n', at);
    if (end == std::string::npos) end = text.size();
    const std::string line = one_line(text.substr(at, end - at));
    out += line.empty() ? "//\n" : "//   " + line + "\n";
    at = end + 1;
  }
  return out;
}

namespace {

/// A kernel of the same name and parameters that ends its launch with an error.
std::string failing_kernel(const KernelText& k) {
  const size_t name = k.source.find(" " + k.name + "(", k.source.find("__global__ ")), end = k.source.find(") {", name);
  MIRAGE_ASSERT(name != std::string::npos && end != std::string::npos) << "no kernel in\n" << k.source;
  return "__global__ void" + k.source.substr(name, end - name) + ") { __trap(); }\n";
}

}  // namespace

std::string kernel_section(const ModuleFacts& m, const std::vector<const KernelText*>& kernels, bool schedules,
                           std::string_view device_library) {
  std::string text, failing;
  for (const KernelText* k : kernels) text += (schedules ? k->schedule : "") + k->source + (k->source.ends_with('\n') ? "\n" : "\n\n");
  const std::string open = "namespace mirage_" + m.name + " {\n", close = "}  // namespace mirage_" + m.name + "\n";
  text = "#pragma nv_diag_suppress 177   // tables of a kernel may name more than it uses\n" + open + "\n" + text + close +
         "#pragma nv_diag_default 177\n";
  constexpr std::string_view kFeatures = "!defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)";
  if (m.target.name != "sm_90a" || device_library.find(kFeatures) == std::string_view::npos) return text + "\n";
  for (const KernelText* k : kernels) failing += failing_kernel(*k);
  return "#if " + std::string(kFeatures) + "\n" + text +
         "#else   // nvcc -arch=sm_90a also makes PTX without these features; the library refuses devices that would need it\n" + open +
         failing + close + "#endif\n\n";
}

std::string header_comment(const ModuleFacts& f, const std::string& graphs, const std::vector<KernelText>& kernels) {
  std::string out = "// " + f.name + ".cu: CUDA library generated by mirage-opt " + one_line(f.options.version) + ".\n";
  out +=
      "// The generated code, the device library text in it included, is free of licence conditions: use, change and distribute it as you "
      "like, without any warranty.\n";
  out += "// spec id:  " + f.spec_id + "\n// target:   " + f.target.name + "\n";
  out += "// options:  " + (f.options.options_line.empty() ? std::string("defaults") : one_line(f.options.options_line)) + "\n";
  out += "// contract: " + f.name + ".h; reference and timing: " + f.name + "_check.cu\n";
  for (const KernelText& k : kernels)
    if (k.cublas) out += "// by cuBLASLt, no kernel of this file: " + k.name + "\n";
  out += "//\n// muGraph:\n";
  return out + as_comment(graphs);
}

namespace {

std::string emit_cu(const ModuleFacts& f) {
  std::vector<const KernelText*> all;
  std::set<std::string_view> names;
  for (const KernelText& k : f.kernels) if (!k.cublas && names.insert(k.name).second) all.push_back(&k);
  const std::string host = emit_host(f), device = runtime_text_for(kernel_section(f, all, false, "") + host);
  return header_comment(f, print(f.plan.graph, f.name), f.kernels) + "\n// ======== device library ========\n" +
         (any_dependent(f.kernels) ? "#define MO_ORDERED_LOADS\n" : "") + device + "\n// ======== kernels ========\n" +
         kernel_section(f, all, true, device) + host;
}

}  // namespace

std::string expand(std::string_view text, const std::vector<std::pair<std::string_view, std::string>>& keys) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t open = text.find('@', at);
    if (open == std::string_view::npos) { out += text.substr(at); break; }
    out += text.substr(at, open - at);
    const size_t close = text.find('@', open + 1);
    const std::string_view key = close == std::string_view::npos ? std::string_view{} : text.substr(open + 1, close - open - 1);
    const bool is_key = !key.empty() && key.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == std::string_view::npos;
    if (!is_key) { out += '@'; at = open + 1; continue; }   // an ordinary @, as in makefiles
    bool found = false;
    for (const auto& [k, v] : keys)
      if (k == key) { out += v; found = true; break; }
    MIRAGE_ASSERT(found) << "no text for @" << key << "@";
    at = close + 1;
  }
  return out;
}

// NVRTC has no <stdint.h>.
constexpr const char* kIntegers = R"(#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned long uintptr_t;
#else
#include <stdint.h>
#endif
)";

std::string runtime_preamble() { return kIntegers; }

std::string runtime_text() {
  std::string out = runtime_preamble();
  for (const auto& [file, body] : runtime_files()) out += "// ---- " + file + "\n" + without_includes(body);
  return out;
}

void check_module(const ModuleFacts& f) {
  check_kernels(f.plan, f.target, f.kernels);
  check_buffers(f.program, f.plan);
}

ModuleFacts module_facts(const Program& program, const Plan& plan, const Target& target, const ModuleOptions& options,
                         const std::vector<KernelText>& kernels) {
  const std::string spec = program.canonical.empty() ? print(program.graph, program.name) : program.canonical;
  ModuleFacts f{program, plan, target, options, kernels, mangle_module_name(program.name), hex64(hash_text(spec)), {}};
  std::vector<std::string> names;
  for (const TensorInfo& t : program.inputs) names.push_back(t.name);
  for (const TensorInfo& t : program.outputs) names.push_back(t.name);
  names = mangle_tensor_names(names, f.name);
  for (size_t i = 0; i < names.size(); i++) {
    const bool is_output = i >= program.inputs.size();
    const TensorInfo& info = is_output ? program.outputs[i - program.inputs.size()] : program.inputs[i];
    f.tensors.push_back({&info, names[i], is_output, span_elements(info.type.dims, info.strides)});
  }
  return f;
}

CudaModule assemble_module(const Program& program, const Plan& plan, const Target& target, const ModuleOptions& options,
                           std::vector<KernelText> kernels) {
  name_equal_kernels(kernels);
  const ModuleFacts f = module_facts(program, plan, target, options, kernels);
  check_module(f);
  CudaModule m;
  m.name = f.name;
  m.links_cublas = any_cublas(kernels);
  const std::string cu = emit_cu(f);
  m.files[f.name + ".h"] = emit_c_header(f);
  m.files[f.name + "_check.cu"] = emit_check(f);
  m.files[f.name + ".py"] = emit_python(f);
  m.files[f.name + ".solution.json"] = emit_solution(f, cu, m.links_cublas);
  m.files["build.toml"] = emit_hub_build(f);
  m.files["tvm-ffi-ext/" + f.name + "/__init__.py"] = emit_hub_package(f);
  m.files[f.name + "_kernelbench.py"] = emit_kernelbench(f, cu, m.files.at(f.name + ".py"), m.links_cublas);
  m.files["Makefile"] = emit_makefile(f, m.links_cublas);
  m.files["CMakeLists.txt"] = emit_cmake(f, m.links_cublas);
  m.files[f.name + ".pc"] = emit_pkg_config(f, m.links_cublas);
  m.files[f.name + ".map"] = emit_version_script(f);
  m.files[f.name + ".cu"] = cu;
  m.kernels = std::move(kernels);
  return m;
}

}  // namespace mirage

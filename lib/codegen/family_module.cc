// emit_family: several programs' plans as one library. Kernels whose text is equal but for their name are emitted once; workspaces are laid
// out so that one serves all points.
#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "codegen/module_parts.h"
#include "codegen/names.h"
#include "mirage/support/assert.h"

namespace mirage {
namespace {

/// The name of kernel number `n` of the family: "NAME_k3_stream" with that number.
std::string family_name(const std::string& name, const std::string& module, size_t n) {
  const std::string prefix = module + "_k";
  size_t end = name.starts_with(prefix) ? prefix.size() : std::string::npos;
  if (end == std::string::npos) return name + "_v" + std::to_string(n);
  while (end < name.size() && name[end] >= '0' && name[end] <= '9') end++;
  return prefix + std::to_string(n) + name.substr(end);
}

/// The kernels of all points, equal ones once.
class Kernels {
 public:
  explicit Kernels(std::string module) : module_(std::move(module)) {}

  /// The kernel by the name that it has in the family; ordered: its point has kernels that begin early.
  KernelText add(KernelText k, bool ordered) {
    std::string form = kernel_form(k) + (ordered ? "o" : "");
    const auto [at, is_new] = known_.try_emplace(std::move(form), all.size());
    if (is_new) {
      KernelText own = k;
      own.name = family_name(k.name, module_, all.size());
      own.source = renamed(k.source, k.name, own.name);
      all.push_back(std::move(own));
      this->ordered.push_back(ordered);
    }
    KernelText& first = all[at->second];
    first.smem_bytes = std::max(first.smem_bytes, k.smem_bytes);
    k.name = first.name;
    k.source = first.source;
    return k;
  }

  std::vector<KernelText> all;
  std::vector<bool> ordered;

 private:
  std::string module_;
  std::map<std::string, size_t> known_;
};

constexpr int64_t kAligned = 256;
int64_t aligned(int64_t bytes) { return (bytes + kAligned - 1) / kAligned * kAligned; }

int64_t slot_bytes(const Plan& p) {
  int64_t bytes = 0;
  for (const Buffer& b : p.buffers)
    if (b.slots) bytes += aligned(b.bytes());
  return bytes;
}

/// The plan with its slots at the begin of the workspace, where all points have theirs, and all else behind them: a point may find the
/// workspace as another one left it.
Plan with_slots_first(Plan p, int64_t all_slots) {
  if (all_slots == 0 || p.workspace_bytes == 0) return p;
  int64_t next = 0;
  for (Buffer& b : p.buffers) {
    if (b.kind != Buffer::Kind::kWorkspace) continue;
    if (b.slots) b.offset_bytes = std::exchange(next, next + aligned(b.bytes()));
    else b.offset_bytes += all_slots;
  }
  if (p.scratch_bytes > 0) p.scratch_at += all_slots;
  p.workspace_bytes += all_slots;
  return p;
}

std::string graphs_text(const FamilyFacts& f) {
  std::string out;
  for (size_t p = 0; p < f.points.size(); p++) {
    for (size_t a = 0; a < f.axes.size(); a++) out += (a ? ", " : "") + f.axes[a].name + " = " + std::to_string(f.values[p][a]);
    out += ":\n" + print(f.points[p].plan.graph, f.points[p].name);
  }
  return out;
}

/// Kernels that are compiled with one form of the device library.
std::vector<const KernelText*> kernels_of(const FamilyFacts& f, bool ordered) {
  std::vector<const KernelText*> chosen;
  for (size_t k = 0; k < f.kernels.size(); k++) if (f.ordered[k] == ordered && !f.kernels[k].cublas) chosen.push_back(&f.kernels[k]);
  return chosen;
}

/// Where some points have kernels that begin early and others have not, the device library comes twice: only kernels beside such ones read
/// in order (MO_ORDERED_LOADS), so that each is compiled as it would be alone.
std::string emit_family_cu(const FamilyFacts& f) {
  const std::vector<const KernelText*> plain = kernels_of(f, false), ordered = kernels_of(f, true);
  const ModuleFacts& hinted = f.hinted();
  const std::string host = emit_host(f), device = "\n// ======== device library ========\n", kernels = "\n// ======== kernels ========\n",
                    in_order = "#define MO_ORDERED_LOADS\n";
  std::string out = header_comment(hinted, graphs_text(f), f.kernels);
  if (plain.empty() || ordered.empty()) {
    const std::vector<const KernelText*>& all = plain.empty() ? ordered : plain;
    const std::string library = runtime_text_for((all.empty() ? "" : kernel_section(hinted, all, false, "")) + host);
    return out + device + (plain.empty() ? in_order : "") + library + kernels +
           (all.empty() ? "" : kernel_section(hinted, all, true, library)) + host;
  }
  const std::string library = runtime_text_for(kernel_section(hinted, plain, false, "") + host),
                    library_in_order = runtime_text_for(kernel_section(hinted, ordered, false, ""));
  return out + device + library + kernels + kernel_section(hinted, plain, true, library) +
         "// ======== kernels that begin early, and those beside them: with a device library whose loads keep their order ========\n" +
         in_order + "#undef MO_LDG\n#define mo mo_ordered\n" + library_in_order + kernels +
         kernel_section(hinted, ordered, true, library_in_order) + "#undef mo\n" + host;
}

/// Fields of NAME_dims.
std::vector<std::string> field_names(const std::vector<FamilyAxis>& axes, const std::string& module) {
  std::vector<std::string> names;
  for (const FamilyAxis& a : axes) names.push_back(a.name == "struct_size" ? a.name + "_" : a.name);   // "reserved" is taken, too
  for (std::string& n : names) if (n == "reserved") n += "_";
  return mangle_tensor_names(names, module);
}

}  // namespace

std::string axis_text(const FamilyFacts& f, const std::vector<int64_t>& per_point) {
  if (std::all_of(per_point.begin(), per_point.end(), [&](int64_t x) { return x == per_point[0]; })) return std::to_string(per_point[0]);
  for (uint64_t set = 1; set < uint64_t{1} << std::min<size_t>(f.axes.size(), 6); set++) {   // c times the product of some axes
    std::string product;
    std::vector<int64_t> of(per_point.size(), 1);
    for (size_t a = 0; a < f.axes.size(); a++) {
      if (!(set >> a & 1)) continue;
      product += (product.empty() ? "" : " * ") + f.c_axes[a];
      for (size_t p = 0; p < of.size(); p++) of[p] *= f.values[p][a];
    }
    const int64_t c = per_point[0] / of[0];
    bool fits = true;
    for (size_t p = 0; p < of.size(); p++) fits = fits && c * of[p] == per_point[p];
    if (fits && c > 0) return c == 1 ? product : std::to_string(c) + " * " + product;
  }
  std::set<int64_t> values(per_point.begin(), per_point.end());
  std::string out;
  for (int64_t v : values) out += (out.empty() ? "{" : ", ") + std::to_string(v);
  return out + "}";
}

std::string type_text(const FamilyFacts& f, size_t tensor) {
  const Type& type = f.hinted().tensors[tensor].info->type;
  if (f.hinted().tensors[tensor].by_value()) return std::string(dtype_long_name(type.dtype)) + " by value";
  std::string out;
  for (int d = 0; d < type.dims.rank(); d++) {
    std::vector<int64_t> extents;
    for (const ModuleFacts& p : f.points) extents.push_back(p.tensors[tensor].info->type.dims[d]);
    out += (d ? ", " : "") + axis_text(f, extents);
  }
  return std::string(dtype_long_name(type.dtype)) + "[" + out + "]";
}

FamilyModule emit_family(const std::vector<FamilyAxis>& axes, const std::vector<FamilyMember>& members, size_t hint,
                         const std::string& spec_id, const Target& target, const ModuleOptions& options) {
  MIRAGE_ASSERT(!axes.empty() && hint < members.size()) << "a family has axes and points";
  FamilyModule out;
  Kernels kernels(mangle_module_name(members[0].program.name));
  int64_t slots = 0;
  for (const FamilyMember& m : members) slots = std::max(slots, slot_bytes(m.plan));
  std::vector<Plan> plans;
  std::vector<bool> ordered;
  for (const FamilyMember& m : members) {
    std::vector<KernelText> own;
    for (const KernelPlan& k : m.plan.kernels) own.push_back(emit_with_schedule(k, m.plan, target));
    ordered.push_back(any_dependent(own));
    for (KernelText& k : own) k = kernels.add(std::move(k), ordered.back());
    out.points.push_back(std::move(own));
    plans.push_back(with_slots_first(m.plan, slots));
  }
  FamilyFacts f{axes,
                field_names(axes, mangle_module_name(members[0].program.name)),
                {},
                {},
                hint,
                std::move(kernels.all),
                std::move(kernels.ordered),
                slots};
  const bool is_mixed =
      std::count(f.ordered.begin(), f.ordered.end(), true) != 0 && std::count(f.ordered.begin(), f.ordered.end(), false) != 0;
  for (size_t p = 0; p < members.size(); p++) {
    f.values.push_back(members[p].values);
    f.points.push_back(module_facts(members[p].program, plans[p], target, options, out.points[p]));
    f.points.back().spec_id = spec_id;
    if (is_mixed && ordered[p]) f.points.back().device_namespace = "mo_ordered";
    check_module(f.points.back());
  }
  const ModuleFacts& any = f.hinted();
  CudaModule& m = out.module;
  m.name = any.name;
  m.links_cublas = any_cublas(f.kernels);
  const std::string cu = emit_family_cu(f);
  m.files[m.name + ".h"] = emit_c_header(f);
  m.files[m.name + "_check.cu"] = emit_check(f);
  m.files[m.name + ".py"] = emit_python(f);
  m.files[m.name + ".solution.json"] = emit_solution(any, cu, m.links_cublas);
  m.files["build.toml"] = emit_hub_build(any);
  m.files["tvm-ffi-ext/" + m.name + "/__init__.py"] = emit_hub_package(any);
  m.files[m.name + "_kernelbench.py"] = emit_kernelbench(any, cu, m.files.at(m.name + ".py"), m.links_cublas);
  m.files["Makefile"] = emit_makefile(any, m.links_cublas);
  m.files["CMakeLists.txt"] = emit_cmake(any, m.links_cublas);
  m.files[m.name + ".pc"] = emit_pkg_config(any, m.links_cublas);
  m.files[m.name + ".map"] = emit_version_script(any);
  m.files[m.name + ".cu"] = cu;
  m.kernels = std::move(f.kernels);
  return out;
}

}  // namespace mirage

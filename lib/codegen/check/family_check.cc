// NAME_check.cu of a library that serves several programs: the check of one program (check.cc), run for each point, each with its own table
// of tensors and its own reference.
#include <algorithm>

#include "codegen/module_parts.h"
#include "codegen/names.h"

namespace mirage {
namespace {

constexpr const char* kFamilyCalls = R"~(
// One row per combination of values of the axes.
static const Tensor kPointTensors[][kNumTensors] = {
@ROWS@};
static const @NAME@_dims kPoints[] = {
@DIMS@};
static const char* const kPointNames[] = {
@LABELS@};
constexpr int kNumPoints = @POINTS@;
static int g_point = 0;
static const Tensor* kTensors = kPointTensors[0];
@LIBRARY@static const char* status_string(int code) { return @NAME@_status_string(code); }
static int supported(int device) { return @NAME@_supported(device, &kPoints[g_point]); }
static int workspace_size(size_t* bytes) { return g_library.workspace_size(&kPoints[g_point], bytes); }
static int workspace_init(void* workspace, size_t bytes, cudaStream_t stream) { return g_library.workspace_init(workspace, bytes, stream); }
@LAUNCH@)~";

constexpr const char* kEachPoint = R"~(
// Values that the library does not serve are refused.
static void check_refusals() {
  size_t bytes = 0;
  const int64_t wrong[] = {0, -1};
  if (@NAME@_workspace_size(nullptr, &bytes) != @NAME@_BAD_DIMS) fail("dims that are NULL are not refused");
  for (int64_t value : wrong) {
    @NAME@_dims dims = kPoints[0];
@SPOILED@  }
}

)~";

constexpr const char* kPointsLoop = R"~(
  check_refusals();
  int exit_code = 0;
  for (g_point = 0; g_point < kNumPoints; g_point++) {
    kTensors = kPointTensors[g_point];
    kName = kPointNames[g_point];
    exit_code = std::max(exit_code, check_point(stream));
  }
  return exit_code;
}

static int check_point(cudaStream_t stream) {
)~";

std::string point_name(size_t p) { return "point_" + std::to_string(p); }

}  // namespace

std::string emit_check(const FamilyFacts& f) {
  const ModuleFacts& hint = f.hinted();
  std::string definitions, runs, cases, rows, dims, labels, spoiled;
  int values = 1;
  for (size_t p = 0; p < f.points.size(); p++) {
    const ReferenceText reference = emit_reference(f.points[p].program);
    values = std::max(values, reference.num_values);
    definitions += "namespace " + point_name(p) + " {\n" + reference.definitions + "}  // namespace " + point_name(p) + "\n";
    runs += "namespace " + point_name(p) + " {\nstatic void run() {\n  unused(define, release);\n" + reference.run + "}\n}  // namespace " +
            point_name(p) + "\n";
    cases += "    case " + std::to_string(p) + ": return " + point_name(p) + "::run();\n";
    rows += "  {\n" + check_tensor_rows(f.points[p]) + "  },\n";
    std::string numbers, label = hint.name;
    for (size_t a = 0; a < f.axes.size(); a++) {
      numbers += ", " + std::to_string(f.values[p][a]);
      label += (a ? "," : " ") + f.axes[a].name + "=" + std::to_string(f.values[p][a]);
    }
    dims += "  {sizeof(" + hint.name + "_dims), 0" + numbers + "},\n";
    labels += "  " + c_literal(label) + ",\n";
  }
  for (const std::string& axis : f.c_axes)
    spoiled += "    dims = kPoints[0];\n    dims." + axis + " = value;\n    if (" + hint.name +
               "_workspace_size(&dims, &bytes) != " + hint.name + "_BAD_DIMS) fail(\"a value that is not served is not refused: " + axis +
               "\");\n";
  std::string top = check_top(hint, values);
  const std::string fixed_name = "static const char* const kName";
  top.replace(top.find(fixed_name), fixed_name.size(), "static const char* kName");
  const std::vector<std::pair<std::string_view, std::string>> keys = {
      {"NAME", hint.name},    {"ROWS", rows},      {"DIMS", dims}, {"LABELS", labels}, {"POINTS", std::to_string(f.points.size())},
      {"LIBRARY", check_library(hint)},
      {"LAUNCH", check_call(hint, "g_point").definition("&kPoints[g_point]")}, {"SPOILED", spoiled}};
  return top + check_harness(HarnessPart::kDevice) + "\n// ---- the program at each point, one struct per value\n" + definitions +
         expand(kFamilyCalls, keys) + check_harness(HarnessPart::kHost) + expand(kEachPoint, keys) +
         "static int check_point(cudaStream_t stream);\n" + check_harness(HarnessPart::kMain) + kPointsLoop +
         check_harness(HarnessPart::kRun) +
         "  for (Guarded& g : tensors) cuda(cudaFree(g.base), \"memory for tensors\");\n  cuda(cudaFree(workspace.base), "
         "\"workspace\");\n\n" +
         check_harness(HarnessPart::kVerdict) + "\n" + runs + "static void run_reference() {\n  switch (g_point) {\n" + cases + "  }\n}\n";
}

}  // namespace mirage

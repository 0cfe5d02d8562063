// ONNX models as specs: a model in, a spec's text out. Operators become those of lib/spec; shapes are inferred here, value by value, and
// shape arithmetic is computed.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>
#include "mirage/spec/spec.h"

namespace mirage {

struct OnnxOptions {
  std::map<std::string, int64_t, std::less<>> bind;   ///< extents of named dimensions
  std::map<std::string, std::vector<int64_t>, std::less<>> values;   ///< those with several extents, ascending: axes of the spec
};

/// The model as a spec in JSON: its inputs, then the initializers that are used, in the order of the file. `path`: for messages, and the
/// folder below which external data may lie.
/// Errors: kSyntax, kLimit (no ONNX model), kUnsupported (what a spec cannot say: one line per operator with count, reason and the first
/// node), kShape and others of the operators with the node's name, kVarAxis (a named dimension without a value; one with several values of
/// which the program is no function), kAxisValues (a name that no dimension has), kUnsupported (built without ONNX), kFileMissing (external
/// data that is needed and cannot be read, or lies outside of the model's folder).
Result<Source> onnx_spec(std::string_view bytes, const std::string& path, const OnnxOptions& = {});

/// The largest connected parts of a model that a spec can say and that hold a product or a reduction. Results of nodes that it cannot say
/// are inputs of parts where the file says their shapes.
struct OnnxParts {
  std::vector<Source> specs;   ///< by name: the model's with a number
  std::string report;          ///< a line for the whole, one per part, one per operator that is left, with its reason
};
/// Errors: as onnx_spec but for what a spec cannot say.
Result<OnnxParts> onnx_parts(std::string_view bytes, const std::string& path, const OnnxOptions& = {});

}  // namespace mirage

// What stands in for lib/spec/onnx where CMake's MIRAGE_ONNX is OFF.
#include "mirage/spec/onnx.h"

namespace mirage {

namespace {

Diagnostic without(const std::string& path) {
  return {Severity::kError, DiagCode::kUnsupported, {path, 0, 0, 1}, "this mirage-opt was built without ONNX (CMake's MIRAGE_ONNX)", {}};
}

}  // namespace

Result<Source> onnx_spec(std::string_view, const std::string& path, const OnnxOptions&) { return without(path); }
Result<OnnxParts> onnx_parts(std::string_view, const std::string& path, const OnnxOptions&) { return without(path); }

}  // namespace mirage

// Models of other tools as specs. Called by cmd/ only, before anything else reads them.
#pragma once
#include <string>
#include "mirage/driver/compile.h"

namespace mirage {

bool is_model(const std::string& path);   ///< a file that is no spec and becomes one: ONNX (*.onnx)
/// The model's spec; `bytes.name` is its path. Errors: as onnx_spec; kUsage (--bind), kUnsupported where this was built without ONNX.
Result<Source> spec_of_model(const Source& bytes, const Options&);

/// --parts: the model's parts as specs into the output folder, and their coverage. Errors: as onnx_parts, and kFileUnwritable.
struct ModeResult;
ModeResult write_parts(const Source& bytes, const Options&);

}  // namespace mirage

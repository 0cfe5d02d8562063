// libFuzzer target: any bytes as an ONNX model. What is imported is a spec that reads; what is not has diagnostics that render.
#include <cstdint>
#include <string>
#include <string_view>

#include "mirage/spec/onnx.h"
#include "mirage/support/assert.h"

using namespace mirage;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Result<Source> spec = onnx_spec(bytes, "fuzz.onnx");
  if (spec.ok()) {
    const auto p = parse_spec(*spec);
    if (!p.ok()) { MIRAGE_ASSERT(!render(p.errors()[0], spec->text).empty()) << "an empty diagnostic"; }
  } else {
    for (const Diagnostic& d : spec.errors()) MIRAGE_ASSERT(!render(d, std::string()).empty()) << "an empty diagnostic";
  }
  const Result<OnnxParts> parts = onnx_parts(bytes, "fuzz.onnx");
  if (!parts.ok()) return 0;
  for (const Source& s : parts->specs) {
    const auto p = parse_spec(s);
    MIRAGE_ASSERT(p.ok()) << "a part that does not read: " << render(p.errors()[0], s.text) << s.text;
  }
  return 0;
}

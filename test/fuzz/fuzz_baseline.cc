// libFuzzer target: any text as the report that --baseline names. It is compared with, or refused with a diagnostic that renders.
#include <cstdint>
#include <string>

#include "mirage/driver/compile.h"
#include "mirage/support/assert.h"

using namespace mirage;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string now =
      R"({"schema_version": 1, "name": "fuzzed", "target": "sm_90a", "result": {"kind": "searched", "why": "one kernel", )"
      R"("predicted_us": 2.5}, "measured": {"cold_us": 3.5}})";
  const Source source{"fuzz.json", std::string(reinterpret_cast<const char*>(data), size)};
  for (const Diagnostic& d : compare_with_baseline(source, {now})) MIRAGE_ASSERT(!render(d, source.text).empty()) << "an empty diagnostic";
  return 0;
}

// libFuzzer target: any text as a spec. What is accepted must obey the laws, and its normal form must read back as the same program; what
// is refused must render.
#include <cstdint>
#include <string>
#include "mirage/spec/spec.h"
#include "mirage/support/assert.h"

using namespace mirage;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Source source{"fuzz.json", std::string(reinterpret_cast<const char*>(data), size)};
  if (auto family = read_family(source); family.ok()) {
    for (const SpecPoint& p : family->points)
      MIRAGE_ASSERT(!check_laws(p.program.graph) && p.values.size() == family->axes.size()) << "a point that is no program";
    MIRAGE_ASSERT(family->points.size() <= kMostPoints && family->hint < family->points.size()) << "points without a hint";
  } else {
    for (const Diagnostic& d : family.errors()) MIRAGE_ASSERT(!render(d, source.text).empty()) << "an empty diagnostic";
  }
  auto r = read_spec(source);
  if (!r.ok()) {
    MIRAGE_ASSERT(!r.errors().empty()) << "refused without a word";
    for (const Diagnostic& d : r.errors()) MIRAGE_ASSERT(!render(d, source.text).empty()) << "an empty diagnostic";
    return 0;
  }
  for (const Diagnostic& d : r->warnings) render(d, source.text);
  const Program& p = r->program;
  auto broken = check_laws(p.graph);
  MIRAGE_ASSERT(!broken) << *broken;
  auto again = parse_spec({"canonical.json", p.canonical});
  MIRAGE_ASSERT(again.ok()) << render(again.errors()[0], p.canonical) << p.canonical;
  MIRAGE_ASSERT(again->graph == p.graph) << print(p.graph) << print(again->graph);
  MIRAGE_ASSERT(again->canonical == p.canonical) << p.canonical << again->canonical;
  return 0;
}

// libFuzzer target: any text as a graph, and as a text spec. What is accepted must print and read back equal.
#include <cstdint>
#include <string>
#include "mirage/spec/spec.h"
#include "mirage/spec/text.h"
#include "mirage/support/assert.h"

using namespace mirage;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  auto g = parse_named_graph(text, "fuzz.mg");
  if (g.ok()) {
    std::string printed = print(g->graph, g->name);
    auto again = parse_named_graph(printed, "printed.mg");
    MIRAGE_ASSERT(again.ok()) << render(again.errors()[0], printed) << printed;
    MIRAGE_ASSERT(again->graph == g->graph && again->name == g->name) << printed;
    dot(g->graph);
  } else {
    for (const Diagnostic& d : g.errors()) MIRAGE_ASSERT(!render(d, text).empty()) << "an empty diagnostic";
  }
  auto p = parse_spec({"fuzz.mg", text});
  if (!p.ok()) return 0;
  auto again = parse_spec({"canonical.json", p->canonical});
  MIRAGE_ASSERT(again.ok()) << render(again.errors()[0], p->canonical) << p->canonical;
  MIRAGE_ASSERT(again->graph == p->graph) << print(p->graph) << print(again->graph);
  MIRAGE_ASSERT(again->canonical == p->canonical) << p->canonical << again->canonical;
  return 0;
}

// libFuzzer target: any text as a schedule. What is read prints and reads back equal; what obeys the laws has a muGraph or a reason, and a
// plan or a reason.
#include <cstdint>
#include <string>

#include "mirage/plan/describe.h"
#include "mirage/support/assert.h"

using namespace mirage;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const Result<schedule::KernelProgram> p = schedule::parse_schedule(text, "fuzz.schedule");
  if (!p.ok()) {
    for (const Diagnostic& d : p.errors()) MIRAGE_ASSERT(!render(d, text).empty()) << "an empty diagnostic";
    return 0;
  }
  const std::string printed = schedule::print(*p);
  const Result<schedule::KernelProgram> again = schedule::parse_schedule(printed, "printed.schedule");
  MIRAGE_ASSERT(again.ok()) << render(again.errors()[0], printed) << printed;
  MIRAGE_ASSERT(schedule::print(*again) == printed) << printed;
  static const Target target = *find_target("sm_90a");
  if (schedule::check_laws(*p, target)) return 0;
  const schedule::Erased erased = schedule::erase(*p);
  MIRAGE_ASSERT(erased.graph || !erased.reason.empty()) << "neither a graph nor a reason\n" << printed;
  schedule::derive(*p);
  const schedule::PlanOf plan = schedule::plan_of(*p, target);
  MIRAGE_ASSERT(plan.plan || !plan.reason.empty() || !plan.line.empty()) << "neither a plan nor a reason\n" << printed;
  return 0;
}

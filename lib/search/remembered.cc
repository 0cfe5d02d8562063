// Outcomes as text; see remembered.h.
#include "search/remembered.h"
#include <sstream>

namespace mirage::search {

std::string search_name(uint64_t program, const Problem& problem, const SplitOptions& which, bool poor, size_t split) {
  std::ostringstream s;
  s << std::hex << program << std::dec;
  for (ValueId v : problem.leaves) s << " l" << v;
  for (ValueId v : problem.targets) s << " t" << v;
  s << " r" << which.recompute << " a" << which.apart << " b" << which.partial << " p" << poor << " s" << split;
  return s.str();
}

std::string step_key(const std::string& search, int ideas, StepKind kind) {
  return search + (kind == StepKind::kIdeas ? " i" : " c") + std::to_string(ideas);
}

std::optional<std::string> write_outcome(const Outcome& o, const Limits& had) {
  if (!o.candidates.empty() || o.end == End::kStopped) return std::nullopt;
  std::ostringstream s;
  s << static_cast<int>(o.end) << ' ' << o.reached << ' ' << o.fits << ' ' << o.capped << ' ' << o.checked_effort << ' ' << o.peak_bytes
    << ' ' << o.held_bytes << ' ' << had.effort << ' ' << had.bytes << ' ' << o.report.states << ' ' << o.report.effort;
  for (const GateCount& g : o.report.gates) {
    s << ' ' << g.closed << ' ' << g.first_example.size() << ' ';
    for (char c : g.first_example) s << (c == '\n' ? '\1' : c);   // one line
  }
  return s.str();
}

std::optional<ReadOutcome> read_outcome(const std::string& text) {
  std::istringstream s(text);
  ReadOutcome r;
  Outcome& o = r.outcome;
  int end = 0;
  s >> end >> o.reached >> o.fits >> o.capped >> o.checked_effort >> o.peak_bytes >> o.held_bytes >> r.had.effort >> r.had.bytes >>
      o.report.states >> o.report.effort;
  if (!s || end < 0 || end >= static_cast<int>(End::kStopped)) return std::nullopt;
  o.end = static_cast<End>(end);
  for (GateCount& g : o.report.gates) {
    size_t length = 0;
    s >> g.closed >> length;
    if (!s || length > 100'000 || s.get() != ' ') return std::nullopt;
    g.first_example.resize(length);
    s.read(g.first_example.data(), static_cast<std::streamsize>(length));
    if (!s) return std::nullopt;
    for (char& c : g.first_example) if (c == '\1') c = '\n';
  }
  return r;
}

}  // namespace mirage::search

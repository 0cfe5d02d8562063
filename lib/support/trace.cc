// Times, counts, dumps and checks around the stages. See the header; the driver is its only caller.
#include "mirage/support/trace.h"

#include <algorithm>

#include <fmt/format.h>

#include "mirage/support/assert.h"

namespace mirage {

namespace {

struct Row { const char* name; const char* help; };
const Row& row(Stat s) {
  static const Row rows[] = {
#define STAT(id, name, help) {name, help},
#include "mirage/support/stats.def"
#undef STAT
  };
  return rows[static_cast<size_t>(s)];
}

std::string json_text(std::string_view s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 32) out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else out += c;
  }
  return out + "\"";
}

}  // namespace

const char* stat_name(Stat s) { return row(s).name; }
const char* stat_help(Stat s) { return row(s).help; }

Trace::Trace(TraceOptions options) : options_(std::move(options)) {}

double Trace::now_us() const { return std::chrono::duration<double, std::micro>(Clock::now() - start_).count(); }

Trace::Timer::Timer(Trace& trace, std::string_view name) : trace_(trace), event_(trace.events_.size()) {
  trace_.events_.push_back({std::string(name), trace_.now_us(), 0, trace_.depth_++});
}

Trace::Timer::~Timer() {
  Event& e = trace_.events_[event_];
  e.length_us = trace_.now_us() - e.begin_us;
  trace_.depth_--;
}

void Trace::product(std::string_view stage, const std::string& file, const Printer& print, const Law& law) {
  if (options_.check_laws && law) {
    auto broken = law();
    MIRAGE_ASSERT(!broken) << "after stage " << std::string(stage) << ": " << *broken << "\n" << print();
  }
  auto wanted = [&](const std::string& s) { return s == "all" || s == stage; };
  const bool shown = options_.print && std::any_of(options_.print_after.begin(), options_.print_after.end(), wanted);
  if (!shown && !options_.keep_products) return;
  std::string text = print();
  if (!text.empty() && text.back() != '\n') text += '\n';
  if (shown) options_.print(fmt::format("// after {}: {}\n{}", stage, file, text));
  if (options_.keep_products) products_.emplace_back(fmt::format("{:02}-{}.{}", products_.size() + 1, stage, file), std::move(text));
}

void Trace::count(Stat s, int64_t n) {
  std::lock_guard lock(counts_mutex_);
  counts_[static_cast<size_t>(s)] += n;
}

int64_t Trace::counted(Stat s) const {
  std::lock_guard lock(counts_mutex_);
  return counts_[static_cast<size_t>(s)];
}

double Trace::seconds(std::string_view stage) const {
  double us = 0;
  for (const Event& e : events_)
    if (e.name == stage) us += e.length_us;
  return us * 1e-6;
}

std::string Trace::print_times() const {
  // Stages in the order of their first run, repeated ones added up; indentation shows what contains what.
  struct Line { std::string name; int depth; double us; int runs; };
  std::vector<Line> lines;
  for (const Event& e : events_) {
    auto at = std::find_if(lines.begin(), lines.end(), [&](const Line& l) { return l.name == e.name && l.depth == e.depth; });
    if (at == lines.end()) lines.push_back({e.name, e.depth, e.length_us, 1});
    else at->us += e.length_us, at->runs++;
  }
  std::string out = fmt::format("{:<32} {:>12} {:>7}\n", "stage", "ms", "runs");
  for (const Line& l : lines)
    out += fmt::format("{:<32} {:>12.3f} {:>7}\n", std::string(static_cast<size_t>(2 * l.depth), ' ') + l.name, l.us * 1e-3, l.runs);
  return out;
}

std::string Trace::print_stats() const {
  std::string out;
  for (size_t i = 0; i < static_cast<size_t>(Stat::kNumStats); i++)
    out +=
        fmt::format("{:>14}  {:<18} {}\n", counted(static_cast<Stat>(i)), row(static_cast<Stat>(i)).name, row(static_cast<Stat>(i)).help);
  return out;
}

std::string Trace::chrome_json(std::string_view process) const {
  std::string out = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  out +=
      fmt::format("{{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 1, \"tid\": 1, \"args\": {{\"name\": {}}}}}", json_text(process));
  for (const Event& e : events_)
    out += fmt::format(",\n{{\"name\": {}, \"ph\": \"X\", \"ts\": {:.3f}, \"dur\": {:.3f}, \"pid\": 1, \"tid\": 1}}", json_text(e.name),
                       e.begin_us, e.length_us);
  return out + "\n]}\n";
}

}  // namespace mirage

// What kernels do in what order, and what lies in shared memory meanwhile, of kernels that are emitted from their programs: what
// report.html draws, --print-after=plan prints, and findings of the emulator name.
#include <algorithm>

#include <fmt/format.h>

#include "mirage/plan/describe.h"
#include "mirage/schedule/words.h"
#include "mirage/support/round.h"
#include "plan/strategy_internal.h"

namespace mirage::schedule {
namespace {

/// Steps of all roles, one role behind the other in each phase.
class Picture {
 public:
  Picture(const KernelProgram& p, const Derived& d) : p_(p), d_(d), brought_(p.places.size()) {
    for (const std::string phase : {"before", "loop", "after"})
      for (const Role& r : p.roles) {
        bool is_behind = false;   // the loop
        for (const Item& i : r.items) {
          if (i.stage >= 0 && phase == (is_behind ? "after" : "before")) add(phase, i.stage);
          if (phase == "loop") for (StageId s : i.body) add(phase, s);
          is_behind |= i.stage < 0;
        }
      }
    first_.assign(p.sections.size() + p.places.size(), 1 << 30);
    last_.assign(first_.size(), -1);
    for (size_t i = 0; i < order_.size(); i++) touch(p.stages[at(order_[i])], static_cast<int>(i));
  }

  Timeline timeline() {
    const int end = std::max(static_cast<int>(out_.steps.size()) - 1, 0);
    for (size_t s = 0; s < p_.sections.size(); s++) {
      const Section& x = p_.sections[s];
      const std::string many = x.slots > 1 ? fmt::format(" x {}", x.slots) : "";
      if (x.barriers) add_life("barriers", d_.section_at[s], d_.section_bytes[s], 0, end);
      else add_life(x.name + many, d_.section_at[s], d_.section_bytes[s], first_[s], last_[s]);
    }
    for (size_t i = 0; i < p_.places.size(); i++)
      if (p_.places[i].over)
        add_life(p_.places[i].name, d_.place_at[i], p_.places[i].bytes(), first_[p_.sections.size() + i], last_[p_.sections.size() + i]);
    return std::move(out_);
  }

 private:
  void add(const std::string& phase, StageId s) {
    const int now = static_cast<int>(out_.steps.size());
    if (phase == "loop") loop_ = loop_.first < 0 ? std::pair{now, now} : std::pair{loop_.first, now};
    order_.push_back(s);
    out_.steps.push_back({phase, stage_text(p_, s)});
  }
  void touch(const Stage& s, int now) {
    const auto use = [&](PlaceId x) {
      if (x < 0 || p_.places[at(x)].section < 0) return;
      const int section = p_.places[at(x)].over ? static_cast<int>(p_.sections.size()) + x : p_.places[at(x)].section;
      const bool is_loop = now >= loop_.first && now <= loop_.second;   // all of it, as it turns
      first_[at(section)] = std::min(first_[at(section)], is_loop ? loop_.first : now);
      last_[at(section)] = std::max(last_[at(section)], is_loop ? loop_.second : now);
    };
    for (PlaceId x : s.reads) {
      use(x);
      for (PlaceId y : brought_[at(x)]) use(y);
      if (s.kind == Stage::Kind::kFold) brought_[at(x)].insert(brought_[at(x)].end(), s.through.begin(), s.through.end());
    }
    for (PlaceId x : s.through) use(x);
    use(s.to);
  }
  void add_life(std::string what, int64_t from, int64_t bytes, int first, int last) {
    if (bytes > 0 && last >= first) out_.shared.push_back({std::move(what), from, bytes, first, last});
  }

  const KernelProgram& p_;
  const Derived& d_;
  Timeline out_;
  std::vector<StageId> order_;                    // steps
  std::vector<int> first_, last_;                 // per section, then per place
  std::vector<std::vector<PlaceId>> brought_;     // per place, to where folds have brought it
  std::pair<int, int> loop_{-1, -1};
};

}  // namespace
}  // namespace mirage::schedule

namespace mirage {

Timeline program_timeline(const KernelPlan& k) { return schedule::Picture(*program_in(k), *derived_in(k)).timeline(); }

std::vector<SharedPlace> program_places(const KernelPlan& k) {
  using namespace schedule;
  const KernelProgram& p = *program_in(k);
  const Derived& d = *derived_in(k);
  std::vector<SharedPlace> out;
  std::vector<bool> seen(p.sections.size(), false);
  for (const Place& x : p.places) {   // the first that lies there names it
    if (x.section < 0 || x.over || seen[at(x.section)] || x.box.empty()) continue;
    seen[at(x.section)] = true;
    const int64_t length = x.box.back() * dtype_bytes(x.dtype);
    const std::string what = fmt::format("%{} = {}", x.value, form_name(p.body.def(x.value).op));
    const int64_t line = x.swizzle ? 0 : x.pitch ? x.pitch : length;
    out.push_back({d.section_at[at(x.section)], d.section_bytes[at(x.section)], what, line, length});
  }
  return out;
}

std::string print_program(const KernelPlan& k) {
  const schedule::Derived& d = *derived_in(k);
  const auto& plan = *std::get<std::shared_ptr<const ProgramPlan>>(k.body);
  const schedule::KernelProgram& p = plan.how->program();
  std::string out = fmt::format("{} {}\n  {}{}\n  {} blocks of {} threads, {} bytes of shared memory:", strategy_of(k).name, k.name,
                                strategy_of(k).text(k), plan.note.empty() ? "" : ", " + plan.note, d.blocks, d.threads, d.smem_bytes);
  for (size_t s = 0; s < p.sections.size(); s++)
    out += fmt::format("{} {} at {}", s ? "," : "", p.sections[s].name, d.section_at[s]);
  out += "\n";
  for (const schedule::Barriers& b : d.barriers)
    out += fmt::format("  barriers {}: {}, {} arrivals, {} bytes\n", b.name, b.count, b.arrivals, b.bytes);
  for (size_t r = 0; r < p.roles.size(); r++)
    out += fmt::format("  role {}: {} warps, {} registers of a thread\n", p.roles[r].name, p.roles[r].warps, d.registers[r]);
  return out;
}

}  // namespace mirage

// What the strategies' rows share (lib/plan/NAME/NAME_strategy.cc).
#pragma once
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "mirage/plan/strategy.h"
#include "mirage/schedule/writer.h"

namespace mirage {

#define MIRAGE_STRATEGY(Name, name, help) Strategy name##_strategy();
#include "mirage/plan/strategies.def"

/// plan/program/pictures.cc: of kernels that are emitted from their programs.
Timeline program_timeline(const KernelPlan&);
std::vector<SharedPlace> program_places(const KernelPlan&);
std::string print_program(const KernelPlan&);

/// The plan of a kernel of this kind.
template <class P> const P& body_of(const KernelPlan& k) { return *std::get<std::shared_ptr<const P>>(k.body); }

/// The kernel of a plan on these calls, the first the kernel's own; `program` says how a plan of this kind runs.
template <class P>
KernelBody program_body(StrategyId id, std::shared_ptr<const P> plan, std::vector<KernelCall> calls, const ContractRule& rule,
                        schedule::KernelProgram (*program)(const P&), std::string note = "") {
  auto how = std::make_shared<const LazyProgram>([plan = std::move(plan), program] { return program(*plan); });
  return std::make_shared<const ProgramPlan>(ProgramPlan{id, std::move(calls), rule, std::move(how), std::move(note)});
}

/// Why the language has no program for a plan; "" if it has.
std::string unsaid(const KernelBody&);

/// `of` with another plan, which brings its price.
template <class P> KernelPlan with_body(const KernelPlan& of, P plan) {
  KernelPlan out = of;
  out.predicted_us = plan.cost.us;
  out.why = plan.cost.why;
  out.bytes = plan.cost.bytes;
  out.flops = plan.cost.flops;
  out.body = told(std::make_shared<const P>(std::move(plan)));
  return out;
}

/// The same with each of these plans, the cheapest first: the first `most` that tell apart. What has no program is none.
template <class P> std::vector<KernelPlan> with_bodies(const KernelPlan& of, std::span<const P> plans, size_t most) {
  std::vector<KernelPlan> out;
  std::set<std::string> texts;
  for (const P& p : plans) {
    if (out.size() >= most) break;
    KernelPlan k = with_body(of, p);
    if (unsaid(k.body).empty() && texts.insert(strategy_of(k).text(k)).second) out.push_back(std::move(k));
  }
  return out;
}

inline Attempt refusal(std::string reason) { return {std::nullopt, {}, std::move(reason)}; }

/// A plan that was divided and priced.
template <class P> Attempt attempt_of(std::shared_ptr<const P> plan) {
  KernelBody body = told(plan);
  if (std::string why = unsaid(body); !why.empty()) return refusal(std::move(why));
  return {std::move(body), plan->cost, ""};
}
template <class P> Attempt attempt_of(P plan) { return attempt_of(std::make_shared<const P>(std::move(plan))); }

/// BlockPlanned and its like as an attempt.
template <class Planned> Attempt attempt(Planned planned) {
  return planned.plan ? attempt_of(std::move(planned.plan)) : refusal(std::move(planned.reason));
}

/// Slots of a ring of that many stages at a shape that uses all of them again, `more` times once with thrift 0; see Strategy::use.
inline int64_t turns(int thrift, int stages, int more) { return thrift == 0 ? stages + more : thrift == 1 ? stages + 1 : 2; }

}  // namespace mirage

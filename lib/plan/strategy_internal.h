// What the strategies' rows share (lib/plan/NAME/NAME_strategy.cc).
#pragma once
#include <memory>
#include <utility>

#include "mirage/plan/strategy.h"

namespace mirage {

#define MIRAGE_STRATEGY(Name, name, help) Strategy name##_strategy();
#include "mirage/plan/strategies.def"

/// plan/timeline.cc
#define MIRAGE_STRATEGY(Name, name, help) Timeline name##_timeline(const KernelPlan&);
#include "mirage/plan/strategies.def"

/// The plan of a kernel of this kind.
template <class P> const P& body_of(const KernelPlan& k) { return *std::get<std::shared_ptr<const P>>(k.body); }

/// `of` with another body, which brings its price.
template <class P> KernelPlan with_body(const KernelPlan& of, P plan) {
  auto body = std::make_shared<const P>(std::move(plan));
  KernelPlan out = of;
  out.predicted_us = body->cost.us;
  out.why = body->cost.why;
  out.bytes = body->cost.bytes;
  out.flops = body->cost.flops;
  out.body = std::move(body);
  return out;
}

/// BlockPlanned and its like as an attempt.
template <class Planned> Attempt attempt(Planned planned) {
  Attempt out;
  out.cost = std::move(planned.cost);
  out.reason = std::move(planned.reason);
  if (planned.plan) out.body = std::move(planned.plan);
  return out;
}

/// A plan that was divided and priced.
template <class P> Attempt attempt_of(P plan) {
  Attempt out;
  out.cost = plan.cost;
  out.body = std::make_shared<const P>(std::move(plan));
  return out;
}

inline Attempt refusal(std::string reason) { return {std::nullopt, {}, std::move(reason)}; }

/// Slots of a ring of that many stages at a shape that uses all of them again, `more` times once with thrift 0; see Strategy::use.
inline int64_t turns(int thrift, int stages, int more) { return thrift == 0 ? stages + more : thrift == 1 ? stages + 1 : 2; }

}  // namespace mirage

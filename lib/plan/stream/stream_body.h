// The body of a stream as its kernel adds it up: one accumulator over groups and what is in them, one over both parts of a reduction.
#pragma once
#include "plan/stream/stream_plan.h"
#include "mirage/schedule/writer.h"

namespace mirage::schedule {

/// Gives `w` that body, which is Equal to p's, and returns p with the values and nodes that it has there.
StreamPlan with_joined_sums(Writer& w, const StreamPlan& p);

}  // namespace mirage::schedule

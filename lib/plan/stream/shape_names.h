// What descriptions of plans on StreamShape share (stream and tile).
#pragma once
#include "plan/stream/stream_plan.h"
#include "mirage/schedule/writer.h"

namespace mirage::schedule {

/// Names the body's indices by their roles: m rows, n columns, k the reduction, r a low rank, h what is reduced before the loop, b a batch.
void name_shape(Writer& w, const StreamShape& s);
bool has_axis(const StreamShape& s, ValueId v, StreamAxis a);
/// The input behind v's transposes; -1: v is computed.
NodeId stored_behind(const Graph& g, ValueId v);

}  // namespace mirage::schedule

// Keys and values in two parts: a cache, and the keys that are appended to it (docs/kernels.md). No chunk has keys of both, so a chunk is
// one tensor copy as ever, and its keys keep their numbers. Or queries and keys in two parts along their features: boxes of 64 features
// come from the one or the other.
#include <algorithm>

#include "plan/attend/attend_internal.h"

namespace mirage {
namespace {

/// Lines of the second part that tensor copies can bring: they start at multiples of 16 bytes, neighbours along `lines` are neighbours in
/// memory. Empty, or one sentence why not.
std::string check_lines(const Access& a, const SecondPart& second, int lines) {
  if (second.offset % 8 != 0) return "a second part that does not start at a multiple of 16 bytes";
  for (int d = 0; d < a.dims.rank(); d++) {
    const int64_t extent = d == second.dim ? a.dims[d] - second.first : a.dims[d], stride = second.strides[d];
    if (extent == 1) continue;
    if (d == lines ? stride != 1 : stride % 8 != 0) return "lines of a second part that do not start at multiples of 16 bytes";
    if (stride == 0 && d >= a.dims.rank() - 2) return "a second part that is repeated along a matrix dimension";
  }
  return "";
}

}  // namespace

/// Which operands lie in two parts, and along what.
static std::string find_firsts(AttendPlan& p) {
  AttendShape& s = p.shape;
  const auto param = [&](const AttendTensor& t) { return static_cast<size_t>(p.body.form<Input>(t.input)->param); };
  for (size_t i = 0; i < p.operands.size(); i++) {
    const SecondPart& second = p.operands[i].second;
    if (second.buffer < 0) continue;
    const bool is_query = i == param(s.q), is_key = i == param(s.k), is_value = i == param(s.v);
    if (!is_query && !is_key && !is_value) return "an operand in two parts that is none of queries, keys and values";
    const auto along = [&](int query, int key, int value) {
      return (!is_query || second.dim == query) && (!is_key || second.dim == key) && (!is_value || second.dim == value);
    };
    const bool along_keys = along(-1, s.k.row_dim, s.v.row_dim), along_features = along(s.q.col_dim, s.k.col_dim, -1);
    if (!along_keys && !along_features) return "an operand in two parts that are neither of the keys nor of the features";
    int64_t& first = along_keys ? s.first_keys : s.first_features;
    if (first != 0 && first != second.first) return "operands whose parts end elsewhere";
    first = second.first;
  }
  return s.first_keys > 0 && s.first_features > 0 ? "keys as well as features in two parts" : "";
}

std::string find_second_parts(AttendPlan& p) {
  AttendShape& s = p.shape;
  if (std::string why = find_firsts(p); !why.empty()) return why;
  if (s.first_features > 0 && (s.k.lines_along_rows || p.query_gains()))
    return "features in two parts that are stored transposed, or have gains";
  const int64_t first = std::max(s.first_keys, s.first_features);
  if (first == 0) return "";
  for (AttendTensor* t : {&s.q, &s.k, &s.v}) {
    if (t == (s.first_keys > 0 ? &s.q : &s.v)) continue;
    const Access& a = p.operands[static_cast<size_t>(p.body.form<Input>(t->input)->param)];
    const int dim = s.first_keys > 0 ? t->row_dim : t->col_dim;
    t->second = a.second;
    if (t->second.buffer < 0)   // in one piece: what it has behind the first part
      t->second = {a.buffer, a.offset + first * a.strides[dim], a.strides, dim, first};
    if (std::string why = check_lines(a, t->second, t->lines_along_rows ? t->row_dim : t->col_dim); !why.empty()) return why;
  }
  return "";
}

}  // namespace mirage

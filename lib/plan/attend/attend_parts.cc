// Keys and values in two parts: a cache, and the keys that are appended to it (docs/planning.md). No chunk has keys of both, so a chunk is
// one tensor copy as ever, and its keys keep their numbers.
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

std::string find_second_parts(AttendPlan& p) {
  AttendShape& s = p.shape;
  const auto param = [&](const AttendTensor& t) { return static_cast<size_t>(p.body.form<Input>(t.input)->param); };
  for (size_t i = 0; i < p.operands.size(); i++) {
    const SecondPart& second = p.operands[i].second;
    if (second.buffer < 0) continue;
    const bool is_key = i == param(s.k), is_value = i == param(s.v);
    if ((!is_key && !is_value) || i == param(s.q)) return "an operand in two parts that is neither keys nor values";
    const bool along_keys = (!is_key || second.dim == s.k.row_dim) && (!is_value || second.dim == s.v.row_dim);
    if (!along_keys) return "keys or values in two parts that are not parts of the keys";
    if (s.first_keys != 0 && s.first_keys != second.first) return "keys and values whose parts end elsewhere";
    s.first_keys = second.first;
  }
  if (s.first_keys == 0) return "";
  for (AttendTensor* t : {&s.k, &s.v}) {
    const Access& a = p.operands[param(*t)];
    t->second = a.second;
    if (t->second.buffer < 0)   // in one piece: its own later keys
      t->second = {a.buffer, a.offset + s.first_keys * a.strides[t->row_dim], a.strides, t->row_dim, s.first_keys};
    if (std::string why = check_lines(a, t->second, t->lines_along_rows ? t->row_dim : t->col_dim); !why.empty()) return why;
  }
  return "";
}

}  // namespace mirage

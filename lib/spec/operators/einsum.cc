// einsum of one or two operands in primitives: each letter is in the first, the second or both, and summed or kept; that alone decides
// between reduce, mul and matmul.
#include <algorithm>
#include <array>
#include <string>
#include <fmt/format.h>
#include "spec/operators/desugar.h"

namespace mirage::spec {
namespace {

using Letters = std::string;
bool has(const Letters& s, char c) { return s.find(c) != Letters::npos; }

struct Equation { std::vector<Letters> operands; Letters result; };

class EquationReader {
 public:
  explicit EquationReader(NodeContext& node) : node_(node), attr_(*node.attr("equation")) {}
  Equation read() {
    const std::string& s = attr_.text;
    Equation q;
    q.operands.emplace_back();
    bool arrow = false;
    for (size_t i = 0; i < s.size(); ++i) {
      char c = s[i];
      Letters& side = arrow ? q.result : q.operands.back();
      if (c == ' ') continue;
      if (c == ',' && !arrow) {
        q.operands.emplace_back();
      } else if (c == '-' && i + 1 < s.size() && s[i + 1] == '>' && !arrow) {
        arrow = true;
        ++i;
      } else if (c == '.') {
        fail(DiagCode::kUnsupported, i, 1, "an ellipsis in an einsum equation is not supported; name every dimension");
      } else if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) {
        fail(DiagCode::kAttribute, i, 1, "an einsum equation has letters, ',' and one '->'");
      } else if (has(side, c)) {
        if (arrow) fail(DiagCode::kAttribute, i, 1, fmt::format("the letter '{}' stands twice in the result", c));
        fail(DiagCode::kUnsupported, i, 1, fmt::format("the letter '{}' stands twice in one operand: diagonals are not supported", c));
      } else {
        if (arrow && std::none_of(q.operands.begin(), q.operands.end(), [&](const Letters& o) { return has(o, c); })) {
          fail(DiagCode::kAttribute, i, 1, fmt::format("the letter '{}' of the result is in no operand", c));
        }
        side += c;
      }
    }
    if (!arrow) q.result = implicit_result(q);
    return q;
  }

 private:
  /// Without '->': the letters that stand once, in alphabetical order.
  static Letters implicit_result(const Equation& q) {
    Letters all, once;
    for (const Letters& o : q.operands) all += o;
    for (char c : all) if (std::count(all.begin(), all.end(), c) == 1) once += c;
    std::sort(once.begin(), once.end());
    return once;
  }
  [[noreturn]] void fail(DiagCode code, size_t at, size_t length, std::string text) {
    Span place = attr_.plain ? Span{attr_.where.offset + 1 + at, length} : attr_.where;
    node_.fail(code, place, std::move(text));
  }
  NodeContext& node_;
  const AttrValue& attr_;
};

class EinsumBuilder {
 public:
  EinsumBuilder(NodeContext& node, Equation q) : node_(node), e_(node.emit), q_(std::move(q)) {}

  ValueId build() {
    check();
    std::vector<ValueId> v = node_.operands;
    for (size_t i = 0; i < v.size(); ++i) v[i] = sum_private(v[i], i);
    if (v.size() == 1) return permute(v[0], q_.operands[0], q_.result);
    return contract(v[0], v[1]);
  }

 private:
  void check() {
    if (q_.operands.size() != node_.operands.size())
      node_.fail_attr("equation", fmt::format("the equation has {} operands, the node {}", q_.operands.size(), node_.operands.size()));
    for (size_t i = 0; i < node_.operands.size(); ++i) {
      const Dims& d = e_.dims(node_.operands[i]);
      if (d.rank() != static_cast<int>(q_.operands[i].size())) {
        node_.fail_operand(
            i, DiagCode::kShape,
            fmt::format("'{}' names {} dimensions, the tensor {} has {}", q_.operands[i], q_.operands[i].size(), to_string(d), d.rank()));
      }
      for (int k = 0; k < d.rank(); ++k) {
        int64_t& extent = extents_[static_cast<unsigned char>(q_.operands[i][static_cast<size_t>(k)])];
        if (extent != 0 && extent != d[k])
          node_.fail_operand(i, DiagCode::kShape,
                             fmt::format("the letter '{}' has extents {} and {}", q_.operands[i][static_cast<size_t>(k)], extent, d[k]));
        extent = d[k];
      }
    }
    if (q_.result.size() > static_cast<size_t>(kMaxRank)) node_.fail_attr("equation", "the result has more than 8 dimensions");
  }

  /// Sums letters that only this operand has and the result does not.
  ValueId sum_private(ValueId v, size_t i) {
    Letters& own = q_.operands[i];
    std::vector<int> axes;
    Letters kept;
    for (size_t k = 0; k < own.size(); ++k) {
      bool elsewhere = has(q_.result, own[k]) || (q_.operands.size() == 2 && has(q_.operands[1 - i], own[k]));
      if (elsewhere) kept += own[k];
      else axes.push_back(static_cast<int>(k));
    }
    if (axes.empty()) return v;
    own = kept;
    return e_.drop(e_.reduce(ReduceFn::kSum, v, axes), axes);
  }

  ValueId permute(ValueId v, const Letters& from, const Letters& to) {
    std::vector<int> perm;
    for (char c : to) perm.push_back(static_cast<int>(from.find(c)));
    return e_.transpose(v, perm);
  }

  Dims extents_of(const Letters& letters) const {
    Dims d;
    for (char c : letters) d.push_back(extents_[static_cast<unsigned char>(c)]);
    return d;
  }
  int64_t product(const Letters& letters) const {
    int64_t n = 1;
    for (char c : letters) n *= extents_[static_cast<unsigned char>(c)];   // below an operand's number of elements
    return n;
  }

  ValueId contract(ValueId a, ValueId b) {
    const Letters la = q_.operands[0], lb = q_.operands[1];
    Letters batch, m, n, k;
    for (char c : la) (has(lb, c) ? (has(q_.result, c) ? batch : k) : m) += c;
    for (char c : lb) if (!has(la, c)) n += c;
    if (k.empty() || (m.empty() && n.empty())) return multiply(a, b, k);
    bool merge_batch = batch.size() + 2 > static_cast<size_t>(kMaxRank);
    auto side = [&](ValueId v, const Letters& from, const Letters& rows, const Letters& columns) {
      v = permute(v, from, batch + rows + columns);
      Dims d = merge_batch ? Dims{product(batch)} : extents_of(batch);
      d.push_back(product(rows));
      d.push_back(product(columns));
      return e_.reshape(v, d);
    };
    ValueId y = e_.matmul(side(a, la, m, k), side(b, lb, k, n));
    Letters order = batch + m + n;
    if (!count_elements(extents_of(order))) node_.fail(DiagCode::kLimit, node_.where, "the result has more than 2^40 elements");
    return permute(e_.reshape(y, extents_of(order)), order, q_.result);
  }

  /// No sum, or a sum without rows and columns: elementwise products, then the sum.
  ValueId multiply(ValueId a, ValueId b, const Letters& k) {
    Letters order = q_.result + k;
    if (order.size() > static_cast<size_t>(kMaxRank)) node_.fail(DiagCode::kLimit, node_.where, "the product has more than 8 dimensions");
    auto align = [&](ValueId v, const Letters& from) {
      Letters own;
      Dims d;
      for (char c : order) {
        if (has(from, c)) own += c;
        d.push_back(has(from, c) ? extents_[static_cast<unsigned char>(c)] : 1);
      }
      return e_.reshape(permute(v, from, own), d);
    };
    ValueId y = e_.map(MapFn::kMul, {align(a, q_.operands[0]), align(b, q_.operands[1])});
    std::vector<int> axes;
    for (size_t i = 0; i < k.size(); ++i) axes.push_back(static_cast<int>(q_.result.size() + i));
    return e_.reshape(e_.reduce(ReduceFn::kSum, y, axes), extents_of(q_.result));
  }

  NodeContext& node_;
  Emitter& e_;
  Equation q_;
  std::array<int64_t, 256> extents_{};
};

}  // namespace

ValueId build_einsum(NodeContext& node) { return EinsumBuilder(node, EquationReader(node).read()).build(); }

}  // namespace mirage::spec

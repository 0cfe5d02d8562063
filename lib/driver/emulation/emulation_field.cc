// Runs in the field: see the header. The field's algebra for ir's evaluator is here, over the same functions (emulate/field.h) that
// emulated kernels compute with.
#include "driver/emulation/emulation_field.h"
#include "driver/emulation/elements.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <set>

#include "driver/emulation/emulation_run.h"
#include "mirage/emulate/field.h"
#include "mirage/search/extents.h"

namespace mirage {

namespace {

using Values = std::vector<Tensor<uint32_t>>;

/// mirage_field as an algebra of ir's evaluator.
struct EmulationField {
  using Value = uint32_t;
  uint32_t happened = 0;
  Value constant(double c) { return mirage_field::from_float_bits(std::bit_cast<uint32_t>(static_cast<float>(c))); }
  Value add(Value x, Value y) { return mirage_field::add(x, y); }
  Value sub(Value x, Value y) { return mirage_field::sub(x, y); }
  Value mul(Value x, Value y) { return mirage_field::mul(x, y); }
  Value div(Value x, Value y) { return mirage_field::div(x, y, happened); }
  Value neg(Value x) { return mirage_field::neg(x); }
  Value exp(Value x) { return mirage_field::exp(x, happened); }
  Value log(Value x) { return mirage_field::log(x); }
  Value sqrt(Value x) { return mirage_field::sqrt(x); }
  Value abs(Value x) { return mirage_field::abs(x); }
  Value tanh(Value x) { return mirage_field::tanh(x); }
  Value erf(Value x) { return mirage_field::erf(x); }
  Value sin(Value x) { return mirage_field::sin(x); }
  Value cos(Value x) { return mirage_field::cos(x); }
  Value floor(Value x) { return mirage_field::floor(x); }
  Value nearest(Value x) { return mirage_field::nearest(x); }
  Value max(Value x, Value y) { return mirage_field::max(x, y); }
  Value min(Value x, Value y) { return mirage_field::min(x, y); }
  Value pow(Value x, Value y) { return mirage_field::pow(x, y); }
  Value equal(Value x, Value y) { return constant(mirage_field::same(x, y) ? 1 : 0); }
  Value less(Value x, Value y) { return constant(mirage_field::less(x, y) ? 1 : 0); }
  Value select(Value c, Value x, Value y) { return mirage_field::same(c, 0) ? y : x; }
  Value round(Value x, DType) { return x; }
  void gemm(int64_t m, int64_t n, int64_t k, const Value* x, const Value* y, Value* out);
};

/// The parts of a matrix' values, line by line, for sums of products: q is 0 where it is not known; some: it is not the known 0; unknown:
/// it is not known. Two bytes each: compilers make dot products of such of one instruction per eight terms.
struct Parts {
  std::vector<int16_t> p, q, some, unknown;
  bool plain = true;         ///< no infinity, nothing undefined
  bool has_unknown = false;
  /// lines x columns values, or its transpose.
  Parts(const uint32_t* x, int64_t lines, int64_t columns, bool transposed)
      : p(static_cast<size_t>(lines * columns)), q(p), some(p), unknown(p) {
    for (int64_t l = 0; l < lines; l++)
      for (int64_t c = 0; c < columns; c++) {
        const uint32_t v = x[l * columns + c], second = mirage_field::part_q(v);
        const size_t i = static_cast<size_t>(transposed ? c * lines + l : l * columns + c);
        const bool is_unknown = second == mirage_field::kNoQ;
        plain = plain && mirage_field::is_element(v), has_unknown = has_unknown || is_unknown;
        p[i] = static_cast<int16_t>(mirage_field::part_p(v)), q[i] = is_unknown ? int16_t{0} : static_cast<int16_t>(second),
        some[i] = second != 0, unknown[i] = is_unknown;
      }
  }
};

int32_t dot(const int16_t* x, const int16_t* y, int64_t n) {
  int32_t sum = 0;
  for (int64_t i = 0; i < n; i++) sum += static_cast<int32_t>(x[i]) * static_cast<int32_t>(y[i]);
  return sum;
}

/// Sums of products, reduced every few thousand terms; terms that are no elements (infinities) go the ordinary way.
void EmulationField::gemm(int64_t m, int64_t n, int64_t k, const Value* x, const Value* y, Value* out) {
  const Parts a(x, m, k, false), b(y, k, n, true);
  if (!a.plain || !b.plain) {
    for (int64_t i = 0; i < m; i++)
      for (int64_t l = 0; l < k; l++)
        for (int64_t j = 0; j < n; j++)
          out[i * n + j] = l == 0 ? mul(x[i * k], y[j]) : add(out[i * n + j], mul(x[i * k + l], y[l * n + j]));
    return;
  }
  constexpr int64_t kTerms = 16384;   // 359 * 359 * 16384 < 2^31
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      uint32_t p = 0, q = 0;
      bool unknown = false;
      for (int64_t l = 0; l < k; l += kTerms) {
        const int64_t s = i * k + l, t = j * k + l, terms = std::min(kTerms, k - l);
        p += static_cast<uint32_t>(dot(&a.p[static_cast<size_t>(s)], &b.p[static_cast<size_t>(t)], terms)) % mirage_field::kP;
        q += static_cast<uint32_t>(dot(&a.q[static_cast<size_t>(s)], &b.q[static_cast<size_t>(t)], terms)) % mirage_field::kQ;
        if (a.has_unknown) unknown = unknown || dot(&a.unknown[static_cast<size_t>(s)], &b.some[static_cast<size_t>(t)], terms) > 0;
        if (b.has_unknown) unknown = unknown || dot(&a.some[static_cast<size_t>(s)], &b.unknown[static_cast<size_t>(t)], terms) > 0;
      }
      out[i * n + j] = mirage_field::make(p % mirage_field::kP, unknown ? mirage_field::kNoQ : q % mirage_field::kQ);
    }
}

uint32_t field_bits(uint32_t x, DType t) { return t == DType::kBool ? x != 0 : dtype_bytes(t) == 2 ? mirage_field::to16(x) : x; }
uint32_t field_value(uint32_t bits, DType t) {
  return t == DType::kBool     ? (bits ? mirage_field::make(1, 1) : 0)
         : dtype_bytes(t) == 2 ? mirage_field::from16(static_cast<uint16_t>(bits))
                               : bits;
}

constexpr int kDraws = 60, kRuns = 8;   ///< of inputs for one run; of kernels whose own denominators vanish
constexpr double kRepeats = 4;          ///< seconds of runs, after which there is no further one
/// of elements that differ in a run where a denominator has vanished: too few to be so in several runs by chance
constexpr double kRare = 0.05;
constexpr int kSureRuns = 4;
/// draws in a row that leave no fewer elements undefined: no input defines these (a chunk whose keys are all masked has the maximum -inf)
constexpr int kIdle = 12;
/// and where these take long (a row of what queries, keys and values are all made of decides on every row of keys' sum), fewer
constexpr int kSlowIdle = 3;
constexpr double kIdleSeconds = 1;

/// Inputs at which no denominator of the muGraph is zero. The first ones are drawn at random; then, of the input that has most in common
/// with an element that is undefined, that part is drawn again which the element's coordinates choose (a row of queries for a row of
/// attention), or of the next such input where that does not help.
class Inputs {
 public:
  Inputs(const EmulationCase& c, Rng& rng) : c_(c), rng_(rng), classes_(search::dim_classes(c.program.graph, 0, search::Tied::kPinned)) {}
  /// Inputs and the muGraph's results; false: some of these are undefined.
  bool draw(Values& inputs, Values& want, uint32_t& happened);

 private:
  uint32_t element(const TensorInfo& t) {
    // a place, where it is an index
    if (is_whole(t.type.dtype)) return mirage_field::from_float_bits(std::bit_cast<uint32_t>(static_cast<float>(draw_whole(t, rng_))));
    if (t.type.dtype == DType::kBool) return mirage_field::make(1, 1) * static_cast<uint32_t>(rng_.below(2));
    const uint32_t p = static_cast<uint32_t>(rng_.below(mirage_field::kP));
    return mirage_field::make(p, static_cast<uint32_t>(rng_.below(mirage_field::kQ)));
  }
  Values fresh() {
    Values out;
    for (const TensorInfo& t : c_.program.inputs) {
      out.emplace_back(t.type.dims, 0u);
      for (uint32_t& v : out.back().data) v = element(t);
    }
    return out;
  }
  Values evaluated(const Values& inputs, uint32_t& happened) {
    EmulationField a;
    Values want = evaluate(c_.plan.graph, std::span<const Tensor<uint32_t>>(inputs), a);
    happened = a.happened;
    return want;
  }
  /// dims: of the result and of the input, of one class
  struct Choice { size_t input; std::vector<std::pair<int, int>> dims; int64_t elements; };
  std::vector<Choice> choices(size_t result) const;
  Values changed(const Values& inputs, const Values& want, size_t which);

  const EmulationCase& c_;
  Rng& rng_;
  search::DimClasses classes_;
};

int64_t undefined_of(const Values& want) {
  int64_t n = 0;
  for (const auto& w : want) n += std::count_if(w.data.begin(), w.data.end(), mirage_field::is_nan);
  return n;
}

bool Inputs::draw(Values& inputs, Values& want, uint32_t& happened) {
  inputs = fresh();
  want = evaluated(inputs, happened);
  int64_t left = undefined_of(want);
  size_t which = 0;
  int idle = 0;
  auto last = std::chrono::steady_clock::now();   // when it got better
  const auto is_slow = [&] {
    return idle >= kSlowIdle && std::chrono::duration<double>(std::chrono::steady_clock::now() - last).count() > kIdleSeconds;
  };
  for (int draws = 1;
       draws < kDraws && idle < kIdle && (happened & mirage_field::kZeroDenominator) && !(happened & mirage_field::kNestedExponent);
       draws++) {
    Values other = left == 0 ? fresh() : changed(inputs, want, which);   // nothing undefined: a denominator of what is not used
    uint32_t h = 0;
    Values results = evaluated(other, h);
    const int64_t n = undefined_of(results);
    if (left > 0 && n >= left) {
      which++, idle++;
      if (is_slow()) break;
      continue;
    }
    idle = 0, last = std::chrono::steady_clock::now();
    inputs = std::move(other), want = std::move(results), happened = h, left = n;
  }
  return !(happened & mirage_field::kZeroDenominator);
}

/// Inputs with dimensions of result `result`, those first of which its elements choose the smallest part.
std::vector<Inputs::Choice> Inputs::choices(size_t result) const {
  const Graph& g = c_.program.graph;
  std::vector<Choice> out;
  ValueId v = -1;
  for (NodeId n : g.outputs()) if (static_cast<size_t>(g.form<Output>(n)->result) == result) v = g.node(n).operands[0];
  for (NodeId n : g.inputs()) {
    if (!classes_.refusal.empty()) break;
    const ValueId x = g.node(n).first_value;
    Choice c{static_cast<size_t>(g.form<Input>(n)->param), {}, g.dims(x).elements()};
    for (int d = 0; d < g.dims(x).rank(); d++)
      for (int o = 0; o < g.dims(v).rank(); o++) {
        const int cls = classes_.of[static_cast<size_t>(x)][static_cast<size_t>(d)];
        if (cls < 0 || cls != classes_.of[static_cast<size_t>(v)][static_cast<size_t>(o)] || g.dims(x)[d] != g.dims(v)[o]) continue;
        c.dims.emplace_back(o, d);
        c.elements /= std::max<int64_t>(1, g.dims(x)[d]);
        break;
      }
    if (!c.dims.empty()) out.push_back(std::move(c));
  }
  std::stable_sort(out.begin(), out.end(), [](const Choice& a, const Choice& b) { return a.elements < b.elements; });
  return out;
}

/// New values for parts of the `which`-th choice of every result with undefined elements, or of all inputs where there is no such choice.
Values Inputs::changed(const Values& inputs, const Values& want, size_t which) {
  Values out = inputs;
  for (size_t r = 0; r < want.size(); r++) {
    const Dims &dims = want[r].dims, steps = row_major_strides(dims);
    std::set<std::vector<int64_t>> parts;
    const std::vector<Choice> all = choices(r);
    if (undefined_of({want[r]}) == 0) continue;
    if (all.empty() || which % (all.size() + 1) == all.size()) return fresh();
    const Choice& choice = all[which % (all.size() + 1)];
    for (size_t e = 0; e < want[r].data.size(); e++) {
      if (!mirage_field::is_nan(want[r].data[e])) continue;
      std::vector<int64_t> part;
      for (const auto& [o, d] : choice.dims) part.push_back(static_cast<int64_t>(e) / steps[o] % dims[o]);
      parts.insert(part);
    }
    Tensor<uint32_t>& x = out[choice.input];
    const Dims strides = row_major_strides(x.dims);
    for (size_t e = 0; e < x.data.size(); e++) {
      std::vector<int64_t> part;
      for (const auto& [o, d] : choice.dims) part.push_back(static_cast<int64_t>(e) / strides[d] % x.dims[d]);
      if (parts.contains(part)) x.data[e] = element(c_.program.inputs[choice.input]);
    }
  }
  return out;
}

/// Results of several runs: which elements were right in one of them, and how often each was not.
struct Coverage {
  std::vector<std::vector<char>> right;
  std::vector<std::vector<int>> wrong;
  /// compared: right once; differ: wrong in the last run; worst: the most runs that an element was wrong in and never right
  int64_t elements = 0, compared = 0, differ = 0, worst = 0;
  std::string first;                                           ///< of the last run's wrong ones

  void add(const EmulationCase& c, const Emulation& run, const Values& want) {
    right.resize(c.plan.buffers.size()), wrong.resize(c.plan.buffers.size());
    elements = compared = differ = worst = 0;
    first.clear();
    for (size_t i = 0; i < c.plan.buffers.size(); i++) {
      const Buffer& b = c.plan.buffers[i];
      if (b.kind != Buffer::Kind::kOutput) continue;
      const Tensor<uint32_t>& w = want[static_cast<size_t>(b.index)];
      right[i].resize(w.data.size()), wrong[i].resize(w.data.size());
      for (size_t e = 0; e < w.data.size(); e++) {
        const uint32_t x = w.data[e];
        elements++;
        if (!mirage_field::is_nan(x)) {
          const uint32_t got = field_value(
              get_bits(run.buffers[i].data() + place_of(b.dims, b.strides, static_cast<int64_t>(e)) * dtype_bytes(b.dtype), b.dtype),
              b.dtype);
          const bool without_q = mirage_field::is_element(x) && mirage_field::part_q(x) == mirage_field::kNoQ;
          const uint32_t expected = field_value(field_bits(x, b.dtype), b.dtype);
          const bool same =
              without_q ? mirage_field::is_element(got) && mirage_field::part_p(got) == mirage_field::part_p(x) : got == expected;
          if (same) right[i][e] = 1;
          else {
            wrong[i][e]++;
            if (differ++ == 0)
              first = fmt::format("output {} at {}: the kernel makes {:#x}, the muGraph {:#x}",
                                  c.program.outputs[static_cast<size_t>(b.index)].name, place_text(b.dims, static_cast<int64_t>(e)), got,
                                  expected);
          }
        }
        compared += right[i][e];
        if (!right[i][e]) worst = std::max<int64_t>(worst, wrong[i][e]);
      }
    }
    if (differ > 1) first += fmt::format(" ({} of {} elements differ)", differ, elements);
  }
};

}  // namespace

EmulationOutcome run_field(const EmulationCase& c, const std::string& library, Rng& rng, const EmulateOptions& options) {
  Inputs source(c, rng);
  Coverage all;
  double seconds = 0, rare = 1;
  int64_t before = 0;
  for (int runs = 1;; runs++) {
    Values inputs, want;
    uint32_t happened = 0;
    const bool defined = source.draw(inputs, want, happened);
    const Emulation run = emulate(library, c.kernels, fill_buffers(c, inputs, field_bits), options);
    EmulationOutcome out = first_look(c, run);
    out.carried = !(happened & mirage_field::kNestedExponent);
    if (!out.reason.empty()) return out;
    all.add(c, run, want);
    out.elements = all.elements, out.compared = all.compared;
    seconds += run.seconds;
    const bool met = run.happened & mirage_field::kZeroDenominator;
    if (!out.carried) { out.ok = true; return out; }
    if (defined && !met && all.differ > 0) { out.reason = all.first; return out; }
    if (runs == 1) rare = static_cast<double>(all.differ) / static_cast<double>(std::max<int64_t>(1, all.elements));
    if (all.compared == all.elements) { out.ok = true; return out; }
    // what is undefined in the muGraph whatever the inputs stays so
    const bool helps = runs == 1 || all.compared > before || all.worst > 0;
    before = all.compared;
    if (helps && runs < kRuns && seconds < kRepeats) continue;
    out.undefined = true;
    if (all.worst >= kSureRuns && all.worst == runs && rare < kRare) {
      out.reason = fmt::format("in {} runs of other inputs: {}", runs, all.first);
      return out;
    }
    out.ok = true, out.carried = all.worst == 0;   // the kernels' own denominators: no verdict
    return out;
  }
}

}  // namespace mirage

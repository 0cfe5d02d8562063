// Masks and numbers; see the header.
#include "verify/draws.h"

#include <algorithm>
#include <cmath>

namespace mirage::verify {
namespace {

double gauss(Rng& rng) { return std::sqrt(-2 * std::log(1 - rng.uniform())) * std::cos(6.283185307179586 * rng.uniform()); }
double sign(Rng& rng) { return rng.below(2) ? 1.0 : -1.0; }
/// Uniform in the exponent.
double magnitude(Rng& rng, double lo, double hi) { return std::exp2(lo + (hi - lo) * rng.uniform()); }

/// Extents of the last dimension and of all others together.
struct Rows {
  int64_t rows = 1, columns = 1;
  explicit Rows(const Dims& d) {
    for (int i = 0; i < d.rank(); i++) (i + 1 == d.rank() ? columns : rows) *= d[i];
  }
};

/// One row of a mask whose structure is along the row.
void mask_row(std::vector<uint8_t>& bits, size_t at, int64_t n, int pattern, Rng& rng) {
  const auto un = static_cast<uint64_t>(n);
  const int64_t cut = static_cast<int64_t>(rng.below(un + 1)), one = static_cast<int64_t>(rng.below(un)),
                width = 1 + static_cast<int64_t>(rng.below(un));
  const int64_t block = std::max<int64_t>(1, static_cast<int64_t>(un >> (1 + rng.below(5)))),
                chosen = static_cast<int64_t>(rng.below((un + static_cast<uint64_t>(block) - 1) / static_cast<uint64_t>(block)));
  const bool flip = rng.below(2);
  for (int64_t j = 0; j < n; j++) {
    bool bit = false;
    switch (pattern) {
      case 6: bit = j == one; break;
      case 7: bit = j != one; break;
      case 8: bit = j < cut; break;
      case 9: bit = j >= cut; break;
      case 10: bit = j >= one && j < one + width; break;           // a band
      case 11: bit = !(j >= one && j < one + width); break;
      case 12: bit = j / block == chosen; break;                   // one block of many, as tiles see it
      case 13: bit = j / block != chosen; break;
      case 14: bit = (j / block) % 2 == (flip ? 1 : 0); break;     // stripes
      default: bit = flip; break;                                  // rows all true or all false
    }
    bits[at + static_cast<size_t>(j)] = bit;
  }
}

void collect(const Graph& g, std::vector<double>& out) {
  for (const Node& n : g.nodes()) {
    if (const auto* c = std::get_if<Const>(&n.op))
      if (std::isfinite(c->value) && c->value != 0) out.push_back(std::fabs(c->value));
    if (const auto* c = std::get_if<Call>(&n.op)) collect(*c->body, out);
  }
}

void sort_out(std::vector<double>& v, size_t most) {
  std::erase_if(v, [](double x) { return !(x > 0x1p-500 && x < 0x1p500); });
  std::sort(v.begin(), v.end());
  v.erase(std::unique(v.begin(), v.end()), v.end());
  if (v.size() <= most) return;
  std::vector<double> kept;   // spread over all of them
  for (size_t i = 0; i < most; i++) kept.push_back(v[i * v.size() / most]);
  v = std::move(kept);
}

/// Near a threshold: itself, a little beside it, or of its size.
double near(double size, Rng& rng) {
  switch (rng.below(6)) {
    case 0: return size;
    case 1: return size * (1 + 0x1p-10 * (rng.below(2) ? 1 : -1));
    case 2: return size * 2;
    case 3: return size / 2;
    default: return size * 2 * rng.uniform();
  }
}

/// The least and the largest exponents of a type's numbers, subnormals included.
std::pair<double, double> exponents(DType t) {
  switch (t) {
    case DType::kF16: return {-24, 16};
    case DType::kBF16: return {-133, 128};
    case DType::kF32: return {-149, 128};
    default: return {-300, 300};
  }
}

double moderate(int kind, Rng& rng) {
  switch (kind) {
    case 0: return gauss(rng);
    case 1: return 0.5 + rng.uniform();                      // where roots and logarithms are defined
    case 2: return gauss(rng) * 0.0625;                      // small: an epsilon shows
    case 3: return (rng.uniform() * 2 - 1) * 3;
    case 5: return -0.5 - rng.uniform();                     // where they are not, and relu is 0
    default: return static_cast<double>(rng.below(5)) - 2;   // zeros and ties: where a guarded quotient or a comparison decides
  }
}

}  // namespace

std::vector<uint8_t> draw_mask(const Dims& dims, int pattern, Rng& rng) {
  const Rows shape(dims);
  std::vector<uint8_t> bits(static_cast<size_t>(shape.rows * shape.columns), 1);
  if (bits.empty()) return bits;
  static constexpr uint64_t kEighths[] = {4, 6, 7, 2};
  const auto n = static_cast<size_t>(shape.columns);
  if (pattern < 4) {
    for (uint8_t& b : bits) b = rng.below(8) < kEighths[pattern];
  } else if (pattern < 6) {
    std::fill(bits.begin(), bits.end(), pattern == 4);
  } else if (pattern >= 16 && pattern < 18) {   // triangles, and bands along the diagonal, of the last two dimensions
    const int64_t height = dims.rank() > 1 ? dims[dims.rank() - 2] : 1,
                  shift = static_cast<int64_t>(rng.below(static_cast<uint64_t>(height + shape.columns) + 1)) - height;
    const int64_t width = 1 + static_cast<int64_t>(rng.below(static_cast<uint64_t>(shape.columns)));
    const bool below = rng.below(2);
    for (size_t e = 0; e < bits.size(); e++) {
      const int64_t j = static_cast<int64_t>(e % n), i = static_cast<int64_t>(e / n) % height, d = j - i - shift;
      bits[e] = pattern == 16 ? (below ? d <= 0 : d >= 0) : (d >= 0 && d < width);
    }
  } else {
    const bool alike = pattern < 16 && rng.below(3) == 0;   // one row for all
    for (int64_t r = 0; r < shape.rows; r++) {
      const size_t at = static_cast<size_t>(r) * n;
      // 18: every row another kind of structure, full and empty ones among them.
      const int own = pattern == 18 ? 6 + static_cast<int>(rng.below(10)) : pattern;
      if (alike && r > 0) std::copy(bits.begin(), bits.begin() + static_cast<int64_t>(n), bits.begin() + static_cast<int64_t>(at));
      else mask_row(bits, at, shape.columns, own, rng);
    }
  }
  return bits;
}

std::vector<double> threshold_sizes(const Graph& a, const Graph& b) {
  std::vector<double> own;
  collect(a, own);
  collect(b, own);
  sort_out(own, 16);
  std::vector<double> out = own;
  for (double x : own) {
    out.push_back(x * x);
    out.push_back(std::sqrt(x));
    out.push_back(std::fabs(std::log(x)));
    if (x < 700) out.push_back(std::exp(x));
    for (double y : own) out.push_back(x * y), out.push_back(x / y), out.push_back(x + y), out.push_back(std::fabs(x - y));
  }
  sort_out(out, 128);
  return out;
}

/// All values of a tensor, or of each of its rows, on one side of what a condition asks about.
static void draw_offsets(std::vector<double>& out, size_t columns, bool by_row, const std::vector<double>& sizes, Rng& rng) {
  double offset = 0, spread = 1;
  for (size_t i = 0; i < out.size(); i++) {
    if (i == 0 || (by_row && i % columns == 0)) {
      const double size = !sizes.empty() && rng.below(2) ? sizes[rng.below(sizes.size())] : magnitude(rng, -2, 8);
      offset = sign(rng) * size * (1 + 3 * rng.uniform());
      spread = std::min(1.0, size) * (rng.below(2) ? 1 : 0.01);
    }
    out[i] = offset + spread * gauss(rng);
  }
}

void draw_reals(std::vector<double>& out, const Type& type, int kind, const std::vector<double>& sizes, Rng& rng) {
  const auto columns = static_cast<size_t>(std::max<int64_t>(1, Rows(type.dims).columns));
  const auto [least, largest] = exponents(type.dtype);
  const double scale = magnitude(rng, -16, 16), one = sign(rng), turn = static_cast<double>(rng.below(columns + 1));
  const auto threshold = [&] { return sizes.empty() ? magnitude(rng, -4, 12) : near(sizes[rng.below(sizes.size())], rng); };
  switch (kind) {
    case 6: for (double& x : out) x = sign(rng) * magnitude(rng, -30, 30); break;
    case 7: for (double& x : out) x = sign(rng) * threshold(); break;
    case 8: for (double& x : out) x = scale * gauss(rng); break;
    case 9: draw_offsets(out, columns, true, sizes, rng); break;
    case 10: draw_offsets(out, columns, false, sizes, rng); break;
    case 11: for (double& x : out) x = sign(rng) * magnitude(rng, least, least + 14); break;         // subnormals
    case 12: for (double& x : out) x = sign(rng) * magnitude(rng, largest - 4, largest); break;      // near overflow
    case 13: std::fill(out.begin(), out.end(), rng.below(3) ? one * threshold() : 0.0); break;       // all alike
    case 14: for (double& x : out) x = rng.below(8) ? 0 : gauss(rng); break;
    case 15:
      // an order within each row, ties across
      for (size_t i = 0; i < out.size(); i++) out[i] = one * (static_cast<double>(i % columns) - turn) * 0.5;
      break;
    case 16: for (double& x : out) x = threshold(); break;          // beyond them all on one side
    case 17: for (double& x : out) x = -threshold(); break;
    case 18: for (double& x : out) x = one * (3 + static_cast<double>(rng.below(1 << 14))); break;   // large integers
    case 19:
      // signs by prefix
      for (size_t i = 0; i < out.size(); i++) out[i] = (static_cast<double>(i % columns) < turn ? 1 : -1) * (0.1 + rng.uniform());
      break;
    default: for (double& x : out) x = moderate(kind, rng);
  }
}

}  // namespace mirage::verify

// Host twins of 30_contract.cuh's PTX: ldmatrix and mma.sync fragments (PTX ISA, warp-level matrix instructions, figures of m8n8 and
// m16n8k16).
namespace mo {

/// COUNT matrices of 8 x 8 two-byte elements: lane 8 * i + r brings the address of row r of matrix i; lane l gets elements 2 * (l % 4) and
/// the next of row l / 4 (transposed: of column l / 4).
template <int COUNT, bool TRANSPOSED> EMU_QUIET inline void emu_load_matrix(uint32_t* to, const void* p, const void* pc) {
  int lane;
  const void* const* rows = static_cast<const void* const*>(emu->gather(0xffffffffu, &p, sizeof p, &lane));
  if (reinterpret_cast<uintptr_t>(p) % 16 != 0) emu->fail("misaligned access", "a row of ldmatrix begins at a multiple of 16 bytes", pc);
  for (int i = 0; i < COUNT; i++) {
    uint16_t pair[2];
    for (int e = 0; e < 2; e++) {
      const int row = TRANSPOSED ? lane % 4 * 2 + e : lane / 4, column = TRANSPOSED ? lane / 4 : lane % 4 * 2 + e;
      const uint16_t* from = static_cast<const uint16_t*>(rows[i * 8 + row]) + column;
      emu->access(from, 2, 0, pc);
      pair[e] = *from;
    }
    to[i] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
  }
}
EMU_QUIET inline void load_matrix_x4(uint32_t (&r)[4], const void* p) { emu_load_matrix<4, false>(r, p, EMU_PC); }
EMU_QUIET inline void load_matrix_x4_transposed(uint32_t (&r)[4], const void* p) { emu_load_matrix<4, true>(r, p, EMU_PC); }
EMU_QUIET inline void load_matrix_x2(uint32_t (&r)[2], const void* p) { emu_load_matrix<2, false>(r, p, EMU_PC); }
EMU_QUIET inline void load_matrix_x2_transposed(uint32_t (&r)[2], const void* p) { emu_load_matrix<2, true>(r, p, EMU_PC); }

/// An operand's element. Floats: a signed significand and its exponent as the format has it (subnormal numbers are not normalised); a zero
/// has an exponent below all others. The field: both parts, an unknown second one as 0, and flags; of what is no element the bits.
struct EmuTerm { int32_t m; int32_t e; };
constexpr int32_t kEmuUnknown = 1, kEmuSome = 2, kEmuNoElement = 4;   // flags: the second part is not known; it is not the known 0
// exponents of what is no number, and of zeros
constexpr int32_t kEmuInfinity = 1 << 20, kEmuNan = kEmuInfinity + 1, kEmuZero = -(1 << 14);
// bits behind the point that tensor cores of sm_90 keep of a term, relative to the largest exponent of a sum
constexpr int kEmuFraction = 25;

/// `bits` of a format with EXPONENT and MANTISSA bits.
template <int EXPONENT, int MANTISSA> EMU_QUIET inline EmuTerm emu_decode(uint32_t bits) {
  constexpr int kBias = (1 << (EXPONENT - 1)) - 1, kTop = (1 << EXPONENT) - 1;
  const int32_t m = static_cast<int32_t>(bits & ((1u << MANTISSA) - 1)), e = static_cast<int32_t>(bits >> MANTISSA & kTop),
                sign = bits >> (EXPONENT + MANTISSA) & 1 ? -1 : 1;
  if (e == kTop) return {sign, m ? kEmuNan : kEmuInfinity};
  if (e == 0 && m == 0) return {0, kEmuZero};
  return {sign * (e ? m | 1 << MANTISSA : m), (e ? e : 1) - kBias};
}
template <class T> struct EmuFormat { static constexpr int kExponent = 5, kMantissa = 10; };
template <> struct EmuFormat<bf16> { static constexpr int kExponent = 8, kMantissa = 7; };
template <> struct EmuFormat<tf32> { static constexpr int kExponent = 8, kMantissa = 10; };

/// m, of less than 31 bits, cut off `by` >= 0 places to the right, towards zero.
EMU_QUIET inline int64_t emu_cut(int32_t m, int32_t by) {
  const int32_t sign = m >> 31, magnitude = (m ^ sign) - sign;
  return ((magnitude >> (by < 31 ? by : 31)) ^ sign) - sign;
}
/// Infinities and NaN among c and the products: the sum's bits, 0 if there are none.
template <int COUNT, class F> EMU_QUIET inline uint32_t emu_beyond(const EmuTerm& own, F pair) {
  bool nan = own.e == kEmuNan, up = own.e == kEmuInfinity && own.m > 0, down = own.e == kEmuInfinity && own.m < 0;
  for (int k = 0; k < COUNT; k++) {
    EmuTerm x, y;
    pair(k, x, y);
    if (x.e < kEmuInfinity && y.e < kEmuInfinity) continue;
    nan = nan || x.e == kEmuNan || y.e == kEmuNan || x.m == 0 || y.m == 0;
    ((x.m > 0) == (y.m > 0) ? up : down) = true;
  }
  return nan || (up && down) ? 0x7fffffffu : up ? 0x7f800000u : down ? 0xff800000u : 0;
}
/// c plus COUNT products, as tensor cores of sm_90 add (found on an H200; test/gpu/twins.cc): the products are exact, all terms are aligned
/// to the largest exponent among them (that of a product is the sum of its operands'), cut off kEmuFraction bits behind the point, added
/// exactly and cut off to float32. pair(k, x, y) gives the k-th product's operands, of MANTISSA bits.
template <int MANTISSA, int COUNT, class F> EMU_QUIET inline uint32_t emu_accumulate(uint32_t c, F pair) {
  const EmuTerm own = emu_decode<8, 23>(c);
  int32_t product[COUNT], exponent[COUNT], top = own.e;
  for (int k = 0; k < COUNT; k++) {
    EmuTerm x, y;
    pair(k, x, y);
    product[k] = x.m * y.m * (1 << (kEmuFraction - 2 * MANTISSA)), exponent[k] = x.e + y.e;   // below 2^27
    top = exponent[k] > top ? exponent[k] : top;
  }
  if (top > kEmuInfinity / 2) return emu_beyond<COUNT>(own, pair);
  int64_t sum = emu_cut(own.m * (1 << (kEmuFraction - 23)), top - own.e);
  for (int k = 0; k < COUNT; k++) sum += emu_cut(product[k], top - exponent[k]);
  if (sum == 0) return 0;
  const uint32_t sign = sum < 0 ? 0x80000000u : 0;
  const uint64_t magnitude = static_cast<uint64_t>(sum < 0 ? -sum : sum);
  const int32_t e = 63 - __builtin_clzll(magnitude) + top - kEmuFraction, unit = e < -126 ? -126 : e, by = unit - top + kEmuFraction - 23;
  if (e > 127) return sign | 0x7f800000u;
  const uint64_t m = by >= 64 ? 0 : by >= 0 ? magnitude >> by : magnitude << -by;
  return sign | (e < -126 ? static_cast<uint32_t>(m) : static_cast<uint32_t>(e + 127) << 23 | (static_cast<uint32_t>(m) & 0x7fffffu));
}

template <class T> EMU_QUIET inline Float emu_element(uint32_t pair, int high) {
  const uint16_t bits = static_cast<uint16_t>(high ? pair >> 16 : pair);
  T x;
  __builtin_memcpy(&x, &bits, 2);
  return load(x);
}
/// A field element, and infinities, as an operand of tensor cores; and back.
EMU_QUIET inline EmuTerm emu_field_term(uint32_t x) {
  using namespace mirage_field;
  if (!is_element(x)) return {static_cast<int32_t>(x), kEmuNoElement};
  if (part_q(x) == kNoQ) return {static_cast<int32_t>(part_p(x)), kEmuUnknown | kEmuSome};
  return {static_cast<int32_t>(x), part_q(x) ? kEmuSome : 0};
}
EMU_QUIET inline Float emu_field_value(const EmuTerm& t) {
  return Float::of_bits(t.e & kEmuUnknown ? mirage_field::make(static_cast<uint32_t>(t.m), mirage_field::kNoQ)
                                          : static_cast<uint32_t>(t.m));
}
/// One of two neighbours as an operand of tensor cores.
template <class T> EMU_QUIET inline EmuTerm emu_term(uint32_t pair, int high) {
  if (emu_is_field()) return emu_field_term(emu_element<T>(pair, high).bits);
  return emu_decode<EmuFormat<T>::kExponent, EmuFormat<T>::kMantissa>(high ? pair >> 16 : pair & 0xffffu);
}
/// d plus the products of COUNT pairs. In the field the parts are added up first and reduced once, unless an infinity is among them.
template <int MANTISSA, int COUNT, class F> EMU_QUIET inline Float emu_dot(Float d, F pair) {
  if (!emu_is_field()) return Float::of_bits(emu_accumulate<MANTISSA, COUNT>(d.bits, pair));
  using namespace mirage_field;
  const EmuTerm own = emu_field_term(d.bits);
  uint32_t p = static_cast<uint32_t>(own.m) & 0xffff, q = static_cast<uint32_t>(own.m) >> 16;
  int32_t unknown = own.e, beyond = own.e;
  for (int k = 0; k < COUNT; k++) {
    EmuTerm x, y;
    pair(k, x, y);
    const uint32_t u = static_cast<uint32_t>(x.m), v = static_cast<uint32_t>(y.m);
    p += (u & 0xffff) * (v & 0xffff), q += (u >> 16) * (v >> 16);
    unknown |= (x.e & y.e >> 1) | (y.e & x.e >> 1);   // what is not known times what is not the known 0
    beyond |= x.e | y.e;
  }
  if (!(beyond & kEmuNoElement)) return Float::of_bits(make(p % kP, unknown & kEmuUnknown ? kNoQ : q % kQ));
  for (int k = 0; k < COUNT; k++) {
    EmuTerm x, y;
    pair(k, x, y);
    d = d + emu_field_value(x) * emu_field_value(y);
  }
  return d;
}

/// What a lane brings to mma.m16n8k16: rows g and g + 8 of A (four elements of each) and column g of B.
struct EmuFragments { EmuTerm a[2][4]; EmuTerm b[4]; };
template <class T> EMU_QUIET inline void emu_mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  EmuFragments mine;
  for (int row = 0; row < 2; row++)
    for (int k = 0; k < 4; k++) mine.a[row][k] = emu_term<T>(a[row + k / 2 * 2], k % 2);
  for (int k = 0; k < 4; k++) mine.b[k] = emu_term<T>(k < 2 ? b0 : b1, k % 2);
  int lane;
  const EmuFragments* all = static_cast<const EmuFragments*>(emu->gather(0xffffffffu, &mine, sizeof mine, &lane));
  for (int e = 0; e < 4; e++) {
    const EmuFragments *x = all + lane / 4 * 4, *y = all + (lane % 4 * 2 + e % 2) * 4;
    d[e] = emu_dot<EmuFormat<T>::kMantissa, 16>(
        d[e], [=](int k, EmuTerm& u, EmuTerm& v)
                  __attribute__((always_inline)) { u = x[k % 8 / 2].a[e / 2][k / 8 * 2 + k % 2], v = y[k % 8 / 2].b[k / 8 * 2 + k % 2]; });
  }
}
EMU_QUIET inline void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, f16) {
  emu_mma_16x8x16<f16>(d, a, b0, b1);
}
EMU_QUIET inline void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, bf16) {
  emu_mma_16x8x16<bf16>(d, a, b0, b1);
}

EMU_QUIET inline uint32_t tf32_low(uint32_t pair, bf16) { return emu_element<bf16>(pair, 0).bits; }
EMU_QUIET inline uint32_t tf32_high(uint32_t pair, bf16) { return emu_element<bf16>(pair, 1).bits; }

/// m16n8k8 in TF32: a lane brings rows g and g + 8 at slots q and q + 4, and column g of B at the same. The hardware reads the upper 19
/// bits.
struct EmuFragmentsTf32 { EmuTerm a[4], b[2]; };
EMU_QUIET inline void mma_16x8x8(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const auto term = [](uint32_t x) __attribute__((always_inline)) {
    return emu_is_field() ? emu_field_term(x) : emu_decode<8, 10>(x >> 13);
  };
  const EmuFragmentsTf32 mine = {{term(a[0]), term(a[1]), term(a[2]), term(a[3])}, {term(b0), term(b1)}};
  int lane;
  const EmuFragmentsTf32* all = static_cast<const EmuFragmentsTf32*>(emu->gather(0xffffffffu, &mine, sizeof mine, &lane));
  for (int e = 0; e < 4; e++) {
    const EmuFragmentsTf32 *x = all + lane / 4 * 4, *y = all + (lane % 4 * 2 + e % 2) * 4;
    d[e] = emu_dot<10, 8>(
        d[e], [=](int k, EmuTerm& u, EmuTerm& v)
                  __attribute__((always_inline)) { u = x[k % 4].a[e / 2 + k / 4 * 2], v = y[k % 4].b[k / 4]; });
  }
}

}  // namespace mo

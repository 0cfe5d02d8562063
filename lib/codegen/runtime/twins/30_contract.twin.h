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
/// Four neighbours of an operand. In what follows quad(i, x, y) gives the i-th four of both sides of COUNT products; COUNT divides by four.
struct EmuQuad { EmuTerm of[4]; };
/// Infinities and NaN among c and the products: the sum's bits, 0 if there are none.
template <int COUNT, class F> EMU_QUIET inline uint32_t emu_beyond(const EmuTerm& own, F quad) {
  bool nan = own.e == kEmuNan, up = own.e == kEmuInfinity && own.m > 0, down = own.e == kEmuInfinity && own.m < 0;
  for (int k = 0; k < COUNT; k++) {
    EmuQuad u, v;
    quad(k / 4, u, v);
    const EmuTerm x = u.of[k % 4], y = v.of[k % 4];
    if (x.e < kEmuInfinity && y.e < kEmuInfinity) continue;
    nan = nan || x.e == kEmuNan || y.e == kEmuNan || x.m == 0 || y.m == 0;
    ((x.m > 0) == (y.m > 0) ? up : down) = true;
  }
  return nan || (up && down) ? 0x7fffffffu : up ? 0x7f800000u : down ? 0xff800000u : 0;
}
/// Products of MANTISSA bits and their exponents (that of a product is the sum of its operands'): aligned to the largest exponent, which is
/// at least `top`, cut off kEmuFraction bits behind the point, added up.
struct EmuAligned { int64_t sum; int32_t top; };
/// Products of field elements: their parts added up, the flags that say that the second is not known, all flags.
struct EmuParts { uint64_t p, q; int32_t unknown, beyond; };
#if defined(__AVX2__) && !defined(MIRAGE_SCALAR) && !defined(__clang__)   // emulation_flags(); the same bits (test/emulate/fragments.cc)
#define EMU_WIDE __attribute__((optimize("O2"), noinline, no_sanitize("thread")))
typedef long long EmuWide __attribute__((vector_size(32)));   // a product for each of a quad's terms
typedef int EmuWords __attribute__((vector_size(32)));        // a quad: m, e, m, e, ...
template <int MANTISSA, int COUNT, class F> EMU_WIDE EmuAligned emu_aligned(int32_t top, F quad) {
  EmuWide product[COUNT / 4], sum = {};
  EmuWords exponent[COUNT / 4], most = {top, top, top, top, top, top, top, top};
#pragma GCC unroll 4
  for (int i = 0; i < COUNT / 4; i++) {
    EmuQuad u, v;
    quad(i, u, v);
    EmuWords x, y;
    __builtin_memcpy(&x, &u, 32), __builtin_memcpy(&y, &v, 32);
    product[i] = __builtin_ia32_pmuldq256(x, y), exponent[i] = x + y, most = __builtin_ia32_pmaxsd256(most, exponent[i]);
  }
  for (int k = 1; k < 8; k += 2) top = most[k] > top ? most[k] : top;
  const EmuWide tops = {top, top, top, top};
#pragma GCC unroll 4
  for (int i = 0; i < COUNT / 4; i++) {
    const EmuWide sign = product[i] < 0, magnitude = ((product[i] ^ sign) - sign) << (kEmuFraction - 2 * MANTISSA);
    const EmuWide by = tops - ((EmuWide)exponent[i] >> 32);
    sum += (__builtin_ia32_psrlv4di(magnitude, by) ^ sign) - sign;
  }
  return {sum[0] + sum[1] + sum[2] + sum[3], top};
}
template <int COUNT, class F> EMU_WIDE EmuParts emu_parts(F quad) {
  EmuWide p = {}, q = {};
  EmuWords unknown = {}, beyond = {};
#pragma GCC unroll 4
  for (int i = 0; i < COUNT / 4; i++) {
    EmuQuad u, v;
    quad(i, u, v);
    EmuWords x, y;
    __builtin_memcpy(&x, &u, 32), __builtin_memcpy(&y, &v, 32);
    p += __builtin_ia32_pmuludq256(x & 0xffff, y & 0xffff), q += __builtin_ia32_pmuludq256(x >> 16 & 0xffff, y >> 16 & 0xffff);
    unknown |= (x & y >> 1) | (y & x >> 1), beyond |= x | y;
  }
  return {static_cast<uint64_t>(p[0] + p[1] + p[2] + p[3]), static_cast<uint64_t>(q[0] + q[1] + q[2] + q[3]),
          unknown[1] | unknown[3] | unknown[5] | unknown[7], beyond[1] | beyond[3] | beyond[5] | beyond[7]};
}
#else
template <int MANTISSA, int COUNT, class F> EMU_QUIET inline EmuAligned emu_aligned(int32_t top, F quad) {
  int32_t product[COUNT], exponent[COUNT];
  for (int k = 0; k < COUNT; k++) {
    EmuQuad u, v;
    quad(k / 4, u, v);
    const EmuTerm x = u.of[k % 4], y = v.of[k % 4];
    product[k] = x.m * y.m * (1 << (kEmuFraction - 2 * MANTISSA)), exponent[k] = x.e + y.e;   // below 2^27
    top = exponent[k] > top ? exponent[k] : top;
  }
  EmuAligned out = {0, top};
  for (int k = 0; k < COUNT && top <= kEmuInfinity / 2; k++) out.sum += emu_cut(product[k], top - exponent[k]);
  return out;
}
template <int COUNT, class F> EMU_QUIET inline EmuParts emu_parts(F quad) {
  EmuParts out = {0, 0, 0, 0};
  for (int k = 0; k < COUNT; k++) {
    EmuQuad a, b;
    quad(k / 4, a, b);
    const EmuTerm x = a.of[k % 4], y = b.of[k % 4];
    const uint32_t u = static_cast<uint32_t>(x.m), v = static_cast<uint32_t>(y.m);
    out.p += (u & 0xffff) * (v & 0xffff), out.q += (u >> 16) * (v >> 16);
    out.unknown |= (x.e & y.e >> 1) | (y.e & x.e >> 1);   // what is not known times what is not the known 0
    out.beyond |= x.e | y.e;
  }
  return out;
}
#endif
/// c plus COUNT products, as tensor cores of sm_90 add (found on an H200; test/gpu/twins.cc): the products are exact, all terms are aligned
/// to the largest exponent among them, cut off kEmuFraction bits behind the point, added exactly and cut off to float32.
template <int MANTISSA, int COUNT, class F> EMU_QUIET inline uint32_t emu_accumulate(uint32_t c, F quad) {
  const EmuTerm own = emu_decode<8, 23>(c);
  const EmuAligned aligned = emu_aligned<MANTISSA, COUNT>(own.e, quad);
  const int32_t top = aligned.top;
  if (top > kEmuInfinity / 2) return emu_beyond<COUNT>(own, quad);
  const int64_t sum = emu_cut(own.m * (1 << (kEmuFraction - 23)), top - own.e) + aligned.sum;
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
template <int MANTISSA, int COUNT, class F> EMU_QUIET inline Float emu_dot(Float d, F quad) {
  if (!emu_is_field()) return Float::of_bits(emu_accumulate<MANTISSA, COUNT>(d.bits, quad));
  using namespace mirage_field;
  const EmuTerm own = emu_field_term(d.bits);
  const EmuParts sum = emu_parts<COUNT>(quad);
  if (!((sum.beyond | own.e) & kEmuNoElement)) {
    const uint64_t p = sum.p + (static_cast<uint32_t>(own.m) & 0xffff), q = sum.q + (static_cast<uint32_t>(own.m) >> 16);
    return Float::of_bits(make(static_cast<uint32_t>(p % kP), (sum.unknown | own.e) & kEmuUnknown ? kNoQ : static_cast<uint32_t>(q % kQ)));
  }
  for (int k = 0; k < COUNT; k++) {
    EmuQuad x, y;
    quad(k / 4, x, y);
    d = d + emu_field_value(x.of[k % 4]) * emu_field_value(y.of[k % 4]);
  }
  return d;
}

/// What a lane brings to mma.m16n8k16: rows g and g + 8 of A (four elements of each) and column g of B.
struct EmuFragments { EmuQuad a[2], b; };
template <class T> EMU_QUIET inline void emu_mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  EmuFragments mine;
  for (int row = 0; row < 2; row++)
    for (int k = 0; k < 4; k++) mine.a[row].of[k] = emu_term<T>(a[row + k / 2 * 2], k % 2);
  for (int k = 0; k < 4; k++) mine.b.of[k] = emu_term<T>(k < 2 ? b0 : b1, k % 2);
  int lane;
  const EmuFragments* all = static_cast<const EmuFragments*>(emu->gather(0xffffffffu, &mine, sizeof mine, &lane));
  for (int e = 0; e < 4; e++) {
    const EmuFragments *x = all + lane / 4 * 4, *y = all + (lane % 4 * 2 + e % 2) * 4;
    d[e] = emu_dot<EmuFormat<T>::kMantissa, 16>(
        d[e], [=](int i, EmuQuad& u, EmuQuad& v) __attribute__((always_inline)) { u = x[i].a[e / 2], v = y[i].b; });
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
struct EmuFragmentsTf32 { EmuTerm a[2][2], b[2]; };
EMU_QUIET inline void mma_16x8x8(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const auto term = [](uint32_t x) __attribute__((always_inline)) {
    return emu_is_field() ? emu_field_term(x) : emu_decode<8, 10>(x >> 13);
  };
  const EmuFragmentsTf32 mine = {{{term(a[0]), term(a[2])}, {term(a[1]), term(a[3])}}, {term(b0), term(b1)}};
  int lane;
  const EmuFragmentsTf32* all = static_cast<const EmuFragmentsTf32*>(emu->gather(0xffffffffu, &mine, sizeof mine, &lane));
  for (int e = 0; e < 4; e++) {
    const EmuFragmentsTf32 *x = all + lane / 4 * 4, *y = all + (lane % 4 * 2 + e % 2) * 4;
    d[e] = emu_dot<10, 8>(
        d[e], [=](int i, EmuQuad& u, EmuQuad& v) __attribute__((always_inline)) {
          for (int l = 0; l < 2; l++)
            for (int s = 0; s < 2; s++) u.of[2 * l + s] = x[2 * i + l].a[e / 2][s], v.of[2 * l + s] = y[2 * i + l].b[s];
        });
  }
}

}  // namespace mo

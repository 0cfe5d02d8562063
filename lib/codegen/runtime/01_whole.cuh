// Device library: whole numbers (indices). Computed with as floats, which are exact up to 2^24; what is read by an index takes the number itself. Only texts that name these types get the overloads for them.
#pragma once
#include "00_base.cuh"

namespace mo {

struct i32 { int v; };
struct i64 { long long v; };
MO_FN float from_i32(int x) { return __int2float_rn(x); }         // host twin
MO_FN float from_i64(long long x) { return __ll2float_rn(x); }    // host twin
MO_FN int to_i32(float x) { return __float2int_rn(x); }           // host twin
MO_FN long long to_i64(float x) { return __float2ll_rn(x); }      // host twin
MO_FN long long place_i32(int x) { return x; }                    // host twin
MO_FN long long place_i64(long long x) { return x; }              // host twin
MO_FN float load(i32 x) { return from_i32(x.v); }   // with i32
MO_FN float load(i64 x) { return from_i64(x.v); }   // with i64
template <> MO_FN i32 store<i32>(float x) { return {to_i32(x)}; }   // with i32
template <> MO_FN i64 store<i64>(float x) { return {to_i64(x)}; }   // with i64
/// A stored index of one of n elements; n if it is none of them.
MO_FN long long within(long long x, long long n) { return x >= 0 && x < n ? x : n; }
MO_FN long long place_within(i32 x, long long n) { return within(place_i32(x.v), n); }   // with i32
MO_FN long long place_within(i64 x, long long n) { return within(place_i64(x.v), n); }   // with i64

}  // namespace mo

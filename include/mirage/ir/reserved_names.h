// Names that generated code cannot use as they are: keywords of C, C++ and Python, standard types and macros, names of CUDA and of our own C ABI. The spec reader warns about them; codegen mangles them.
#pragma once
#include <algorithm>
#include <array>
#include <string_view>

namespace mirage {

/// Sorted, so that is_reserved_name can search it.
inline constexpr std::array kReservedNames = std::to_array<std::string_view>({
    "BUFSIZ", "CHAR_BIT", "CUDART_VERSION", "CUDA_VERSION", "CUstream", "CUstream_st", "DBL_EPSILON", "DBL_MAX", "DBL_MIN", "DLDataType", "DLDevice", "DLTensor", "EOF",
    "EXIT_FAILURE", "EXIT_SUCCESS", "FALSE", "FILE", "FLT_EPSILON", "FLT_MAX", "FLT_MIN", "False", "HUGE_VAL", "HUGE_VALF", "I", "INFINITY", "INT_MAX", "INT_MIN", "LONG_MAX",
    "LONG_MIN", "M_E", "M_LN2", "M_PI", "M_PI_2", "M_PI_4", "M_SQRT2", "NAN", "NULL", "None", "PATH_MAX", "RAND_MAX", "SIGABRT", "SIGINT", "SIGTERM", "SIZE_MAX", "TRUE",
    "True", "abs", "alignas", "alignof", "and", "and_eq", "arm", "as", "asm", "assert", "async", "atexit", "atomicAdd", "atomic_cancel", "atomic_commit", "atomic_noexcept",
    "auto", "await", "bfloat16", "bitand", "bitor", "blockDim", "blockIdx", "bool", "break", "case", "catch", "char", "char1", "char16_t", "char2", "char3", "char32_t",
    "char4", "char8_t", "class", "co_await", "co_return", "co_yield", "compl", "complex", "concept", "const", "const_cast", "consteval", "constexpr", "constinit", "continue",
    "cooperative_groups", "cuda", "cudaError", "cudaError_t", "cudaStream_t", "cudart", "decltype", "def", "default", "del", "delete", "dim3", "dims", "div", "do", "double",
    "double1", "double2", "double3", "double4", "double4_16a", "double4_32a", "dynamic_cast", "elif", "else", "emit", "enum", "erf", "errno", "except", "exit", "exp",
    "explicit", "export", "extern", "false", "far", "final", "finally", "float", "float1", "float16", "float2", "float3", "float4", "floor", "fma", "for", "foreach", "fortran",
    "free", "friend", "from", "global", "goto", "gridDim", "half", "half2", "i386", "if", "imaginary", "import", "in", "inline", "int", "int1", "int16_t", "int2", "int3",
    "int32_t", "int4", "int64_t", "int8_t", "intmax_t", "intptr_t", "is", "lambda", "linux", "log", "long", "long1", "long2", "long3", "long4", "long4_16a", "long4_32a",
    "longlong1", "longlong2", "longlong3", "longlong4", "longlong4_16a", "longlong4_32a", "main", "major", "makedev", "malloc", "max", "max_align_t", "memcpy", "memset", "min",
    "minor", "mips", "mirage", "module", "mutable", "namespace", "near", "new", "noexcept", "nonlocal", "noreturn", "not", "not_eq", "nullptr", "nullptr_t", "nv_bfloat16",
    "nv_bfloat162", "nv_half", "nv_half2", "nvcuda", "offsetof", "operator", "or", "or_eq", "override", "pass", "pow", "printf", "private", "protected", "ptrdiff_t", "public",
    "raise", "reflexpr", "register", "reinterpret_cast", "requires", "restrict", "return", "rsqrt", "short", "short1", "short2", "short3", "short4", "signals", "signed",
    "size_t", "sizeof", "slots", "small", "sqrt", "ssize_t", "static", "static_assert", "static_cast", "std", "stderr", "stdin", "stdout", "stream", "struct", "sun", "surface",
    "switch", "synchronized", "tanh", "template", "tensors", "tex", "texture", "this", "threadIdx", "thread_local", "throw", "true", "try", "typedef", "typeid", "typename",
    "typeof", "typeof_unqual", "uchar", "uchar1", "uchar2", "uchar3", "uchar4", "uint", "uint1", "uint16_t", "uint2", "uint3", "uint32_t", "uint4", "uint64_t", "uint8_t",
    "uintmax_t", "uintptr_t", "ulong", "ulong1", "ulong2", "ulong3", "ulong4", "ulong4_16a", "ulong4_32a", "ulonglong1", "ulonglong2", "ulonglong3", "ulonglong4",
    "ulonglong4_16a", "ulonglong4_32a", "union", "unix", "unsigned", "ushort", "ushort1", "ushort2", "ushort3", "ushort4", "using", "va_arg", "va_end", "va_start", "vax",
    "virtual", "void", "volatile", "warpSize", "wchar_t", "while", "wint_t", "with", "wmma", "workspace", "workspace_bytes", "xor", "xor_eq", "yield",
});
static_assert(std::is_sorted(kReservedNames.begin(), kReservedNames.end()));

/// Whether `name` needs mangling: in the list, or of a form that implementations keep for themselves (a leading underscore, two underscores in a row).
inline bool is_reserved_name(std::string_view name) {
  return name.starts_with('_') || name.find("__") != std::string_view::npos || std::binary_search(kReservedNames.begin(), kReservedNames.end(), name);
}

}  // namespace mirage

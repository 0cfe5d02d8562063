// Runs emitted kernels on the CPU: the text that nvcc gets, compiled by the host's C++ compiler behind a header that gives CUDA's words
// their meaning (docs/emulation.md). Knows nothing of graphs: texts, launches and bytes go in; findings and bytes come out. The driver
// compares them with the muGraph.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace mirage {

/// A tensor map's facts (codegen's TensorMapText without its graph types).
struct EmulatedMap {
  int buffer = -1;
  int64_t offset_bytes = 0;
  int element_bytes = 2;
  std::vector<int64_t> dims, strides;
  std::vector<int> box;
  int swizzle = 0;
};

/// A part of dynamic shared memory and what it holds, for findings. Of every `line` bytes the first `used` hold elements (line 0: all do);
/// reading padding that nobody wrote is no finding, and what is read there is poison.
struct SharedName { int64_t offset = 0, bytes = 0; std::string name; int64_t line = 0, used = 0; };

/// One launch.
struct EmulatedKernel {
  std::string name;                      ///< unique in the library
  std::string symbol;                    ///< the function's name in `source`
  std::string source;                    ///< its definition, as emitted
  std::vector<EmulatedMap> maps;
  std::vector<int> args;                 ///< buffers
  std::vector<bool> written;             ///< per arg
  /// per arg: the type of a parameter that is the buffer's element itself, "" for a pointer; empty: all are pointers
  std::vector<std::string> values;
  std::array<int64_t, 3> grid{1, 1, 1};
  int threads = 0;
  int64_t smem_bytes = 0;
  bool cooperative = false;              ///< blocks wait for each other: all of them run, whatever max_blocks says
  std::vector<SharedName> shared;
};

/// Device memory. Only the bytes of `elements` exist for the program: others (gaps of strides) may be read as part of no element and must
/// not be written.
struct EmulatedBuffer {
  enum class Kind : uint8_t { kInput, kOutput, kWorkspace } kind = Kind::kInput;
  std::string name;
  std::vector<unsigned char> bytes;      ///< inputs: contents; others: their size counts, contents are poisoned
  std::vector<unsigned char> exists;     ///< per byte, 1: belongs to an element. Empty: all do
};

/// The C++ text of an emulation: header, device library, kernels, twins, entry points. `runtime` is codegen's runtime_text(). Kernels of
/// several programs may share one text if their names differ.
std::string emulation_source(const std::string& runtime, const std::vector<EmulatedKernel>& kernels);
/// What variables hold that nobody gave a value: a pattern (0xfe in every byte with g++, a large negative number), or zeros.
enum class UnsetFill : uint8_t { kPattern, kZeros };
/// What a compiler needs beside the text and the output file (g++ or clang++): one shared library comes out.
std::vector<std::string> emulation_flags(UnsetFill = UnsetFill::kPattern, bool is_clang = false);

struct EmulateOptions {
  bool field = false;                    ///< values are elements of mirage_field (field.h), also those in the buffers
  uint64_t seed = 0;                     ///< of the order in which late bytes arrive and blocks run
  int max_findings = 8;
  double seconds = 60;                   ///< of processor time; then the run is ended and says so
  bool trace = false;                    ///< fill Emulation::trace
  int64_t max_blocks = 0;                ///< blocks of a launch that run, spread evenly; 0: all
};

/// What is wrong with a kernel. `text` names kernel, block, thread and place.
struct Finding { std::string kind, text; };

/// Sums over what was done, so that two runs can be compared: which accesses each block made (places and widths, not values), which bytes
/// of device memory each block touched, and how each thread waited for others.
struct EmulationTrace {
  uint64_t accesses = 0, device_accesses = 0, waits = 0;
  friend bool operator==(const EmulationTrace&, const EmulationTrace&) = default;
};

struct Emulation {
  bool loaded = false;                   ///< false: the library cannot be used
  bool ran = false;                      ///< false: `refusal` says why there is no result (the library cannot be loaded)
  std::string refusal;
  std::vector<Finding> findings;         ///< empty: nothing wrong was seen
  uint32_t happened = 0;                 ///< field mode: bits of field.h
  int64_t threads = 0, accesses = 0;     ///< emulated
  double seconds = 0;                    ///< of processor time
  EmulationTrace trace;                  ///< if it was asked for
  std::vector<std::vector<unsigned char>> buffers;   ///< afterwards, in order; empty for inputs
};
/// Runs the launches one after another in a child process of their own, so that nothing that they do harms the caller.
Emulation emulate(const std::string& library, const std::vector<EmulatedKernel>& launches, const std::vector<EmulatedBuffer>& buffers,
                  const EmulateOptions& = {});

}  // namespace mirage

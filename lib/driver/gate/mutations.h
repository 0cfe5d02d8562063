// Mistakes in the text of kernels and of the device library that they call, one at a time, for the gate's test on itself (self_test.h).
// Textual, on what nvcc would get, so mutation does not share an idea of correctness with the emitter.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace mirage {

/// One mistake: what was done to which line of a kernel's text, or of the device library's.
struct KernelMutant {
  size_t kernel = 0;
  bool in_library = false;
  std::string what, line;
  int64_t number = 0;                            ///< of the line
  int nth = 0;                                   ///< of its kind on that line
  size_t at = 0, length = 0;                     ///< what of the text becomes `by`
  std::string by;
  std::string apply(std::string text) const { return text.replace(at, length, by); }
};
/// All mistakes that are known for a kernel's text.
std::vector<KernelMutant> all_mutants(const std::string& source, size_t kernel);
/// All mistakes in those functions of the device library that one of these kernels may come to, by name.
std::vector<KernelMutant> library_mutants(const std::string& library, const std::vector<std::string>& kernels);
/// At most `count` of them, chosen by `seed`, every kind in turn.
std::vector<KernelMutant> choose_mutants(std::vector<KernelMutant> all, size_t count, uint64_t seed);
/// Whether it only takes something away that orders threads or copies: then accesses are what they were, and races say whether it was
/// needed.
bool only_drops_order(const KernelMutant&);

}  // namespace mirage

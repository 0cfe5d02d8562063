// The rule of include/mirage/ir/contraction.h.
#include "mirage/ir/contraction.h"

#include <bit>
#include <cmath>

#include "mirage/ir/eval.h"

namespace mirage {
namespace {

ContractType of16(DType t) { return t == DType::kF16 ? ContractType::kF16 : ContractType::kBF16; }

}  // namespace

const char* contract_type_name(ContractType t) {
  static constexpr const char* kNames[] = {"f16", "bf16", "tf32", "f32"};
  return kNames[static_cast<size_t>(t)];
}

ContractRule contract_rule(const Program& program) {
  ContractRule rule{DType::kReal, program.numerics.tf32};
  for (const TensorInfo& t : program.inputs)
    if (is16(t.type.dtype)) { rule.narrow = t.type.dtype; break; }
  return rule;
}

ContractType contract_type(DType x, DType y, const ContractRule& rule) {
  if (is16(x) && is16(y)) return x == y ? of16(x) : ContractType::kTF32;   // exact both
  const DType wide = is16(x) ? y : x, other = is16(x) ? x : y;
  if (wide == DType::kReal && (is16(other) || other == DType::kReal)) {
    const DType narrow = is16(other) ? other : rule.narrow;
    // A computed value is rounded as precisely as the program's type is, in the range of float32: bfloat16 has it, float16 has not.
    if (narrow == DType::kBF16) return ContractType::kBF16;
    if (narrow == DType::kF16) return ContractType::kTF32;
  }
  return rule.tf32 ? ContractType::kTF32 : ContractType::kF32;
}

float contract_operand(float x, ContractType t) {
  if (t == ContractType::kF16) return static_cast<float>(round_to(x, DType::kF16));
  if (t == ContractType::kBF16) return static_cast<float>(round_to(x, DType::kBF16));
  if (t == ContractType::kTF32 && std::isfinite(x)) return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0x1000u) & ~0x1FFFu);
  return x;
}

}  // namespace mirage

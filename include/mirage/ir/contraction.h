// In which arithmetic a kernel contracts two operands, and what becomes of each: stated once, for planners and emitters (which build it)
// and for the numeric check (which models it). docs/decisions.md, "Computed operands of float16 contractions are TF32".
#pragma once
#include "mirage/ir/program.h"
#include "mirage/ir/types.h"

namespace mirage {

/// The units that multiply; sums are float32 in all of them. kTF32 (8 bits of exponent, 10 of mantissa) holds every float16 and bfloat16
/// exactly.
enum class ContractType : uint8_t { kF16, kBF16, kTF32, kF32 };
const char* contract_type_name(ContractType);   ///< "f16", "bf16", "tf32", "f32"

/// What a program says about its contractions.
struct ContractRule {
  /// its 16-bit type (that of the first input that has one): how precise operands without a type of their own need be; kReal: there is none
  DType narrow = DType::kReal;
  bool tf32 = false;             ///< float32 operands may be rounded to TF32
};
ContractRule contract_rule(const Program&);

/// x, y: the operands' types as values of the graph; kReal: computed by the kernel or by an earlier one, in float32.
ContractType contract_type(DType x, DType y, const ContractRule& rule);

/// x as the units take it: rounded to the nearest value of the type, for kTF32 with ties away from zero (cvt.rna.tf32.f32; a number that
/// rounds beyond float32's range becomes infinite).
float contract_operand(float x, ContractType t);

}  // namespace mirage

// The program that the certificates, locks and checkpoints of the corpora are of.
#pragma once
#include <cstdint>
#include <string>
#include "mirage/spec/spec.h"

namespace mirage::test {

inline const Source& fuzzed_spec() {
  static const Source s{
      "fuzzed.json",
      R"({"version": "1.0", "name": "fuzzed", "inputs": {"x": {"shape": [2, 64], "dtype": "float16"}, "w": {"shape": [64, 64], "dtype": "float16"}}, "outputs": {"y": {"dtype": "float16"}},
 "nodes": [{"op": "rms_norm", "inputs": ["x"], "output": "n"}, {"op": "matmul", "inputs": ["n", "w"], "output": "y"}]}
)"};
  return s;
}
inline const Program& fuzzed_program() {
  static const Program p = *parse_spec(fuzzed_spec());
  return p;
}

}  // namespace mirage::test

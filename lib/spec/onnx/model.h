// What an ONNX file says: operators, tensors, graphs, as they stand in it. onnx.proto gives the numbers of the fields.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
#include "mirage/ir/types.h"
#include "mirage/support/result.h"

namespace mirage::onnx {

/// TensorProto.DataType, those that are named here; others keep their number.
enum : int {
  kFloat = 1,
  kUInt8 = 2,
  kInt8 = 3,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBoolean = 9,
  kFloat16 = 10,
  kDouble = 11,
  kBFloat16 = 16
};
std::string type_name(int onnx_type);          ///< "float16"; "type 23" for one without a name here
std::optional<DType> dtype_of(int onnx_type);  ///< nullopt: specs have no such type

struct TensorData {
  std::string name;
  int type = 0;
  std::vector<int64_t> dims;
  std::string_view raw;       ///< raw_data
  std::vector<int64_t> ints;  ///< int32_data, int64_data, uint64_data
  std::vector<double> reals;  ///< float_data, double_data
  bool is_external = false;
  std::string location;  ///< of external data: the file, and where in it
  int64_t offset = 0, length = -1;
  int64_t elements() const;  ///< -1: over 2^40, or a negative extent
};

struct Attribute {
  std::string name;
  int type = 0;  ///< AttributeProto.AttributeType; 0: not said
  double real = 0;
  int64_t integer = 0;
  std::string text;
  std::optional<TensorData> tensor;
  std::vector<double> reals;
  std::vector<int64_t> integers;
  bool has_graph = false;
};

struct OnnxNode {
  std::string name, op, domain;
  std::vector<std::string> inputs, outputs;  ///< "": left out
  std::vector<Attribute> attributes;
  const Attribute* find(std::string_view name) const;
};

struct ValueInfo {
  struct Extent {
    int64_t value = -1;
    std::string param;
  };  ///< value -1: a name (param), or nothing
  std::string name;
  int type = 0;  ///< 0: no tensor
  std::optional<std::vector<Extent>> shape;
};

struct OnnxGraph {
  std::string name;
  std::vector<OnnxNode> nodes;
  std::vector<TensorData> initializers;
  std::vector<ValueInfo> inputs, outputs, infos;  ///< infos: what the file says of values between them
};

struct OnnxModel {
  OnnxGraph graph;
  std::map<std::string, int64_t> opsets;  ///< domain -> version; "" is ONNX's own
  bool has_functions = false;
};

/// Reads the bytes, which `raw` of the tensors stays part of. Errors: kSyntax (not an ONNX model), kLimit.
Result<OnnxModel> read_model(std::string_view bytes, const std::string& file);

}  // namespace mirage::onnx

#include "spec/onnx/model.h"
#include <fmt/format.h>
#include "spec/onnx/wire.h"

namespace mirage::onnx {

std::string type_name(int t) {
  static const std::map<int, std::string> names = {{1, "float32"}, {2, "uint8"},      {3, "int8"},        {4, "uint16"},
                                                   {5, "int16"},   {6, "int32"},      {7, "int64"},       {8, "string"},
                                                   {9, "bool"},    {10, "float16"},   {11, "float64"},    {12, "uint32"},
                                                   {13, "uint64"}, {14, "complex64"}, {15, "complex128"}, {16, "bfloat16"}};
  const auto at = names.find(t);
  return at == names.end() ? fmt::format("type {}", t) : at->second;
}

std::optional<DType> dtype_of(int t) {
  switch (t) {
    case kFloat: return DType::kF32;
    case kFloat16: return DType::kF16;
    case kBFloat16: return DType::kBF16;
    case kBoolean: return DType::kBool;
    case kInt32: return DType::kI32;
    case kInt64: return DType::kI64;
    default: return std::nullopt;
  }
}

int64_t TensorData::elements() const {
  int64_t n = 1;
  for (int64_t d : dims) {
    if (d < 0 || (d > 0 && n > (int64_t{1} << 40) / d)) return -1;
    n *= d;
  }
  return n;
}

const Attribute* OnnxNode::find(std::string_view wanted) const {
  for (const Attribute& a : attributes)
    if (a.name == wanted) return &a;
  return nullptr;
}

namespace {

constexpr size_t kMostNodes = 65536;

/// Reads messages; `wrong` is set by the first thing that is no message.
class ModelReader {
 public:
  OnnxModel model(std::string_view bytes) {
    OnnxModel m;
    each(bytes, [&](const Field& f) {
      if (f.id == 7 && f.kind == 2) m.graph = graph(f.bytes);
      else if (f.id == 8 && f.kind == 2) opset(f.bytes, m);
      else if (f.id == 25) m.has_functions = true;
      return true;
    });
    return m;
  }
  std::string wrong;

 private:
  template <class Take>
  void each(std::string_view bytes, Take take) {
    WireReader r(bytes);
    while (auto f = r.next()) {
      if (!wrong.empty()) return;
      if (!take(*f) && wrong.empty()) wrong = fmt::format("field {} has a wrong kind or length", f->id);
    }
    if (!r.ok() && wrong.empty()) wrong = "the bytes end within a field";
  }

  void opset(std::string_view bytes, OnnxModel& m) {
    std::string domain;
    int64_t version = 0;
    each(bytes, [&](const Field& f) {
      if (f.id == 1 && f.kind == 2) domain = f.bytes;
      if (f.id == 2 && f.kind == 0) version = f.integer();
      return true;
    });
    m.opsets[domain == "ai.onnx" ? "" : domain] = version;
  }

  OnnxGraph graph(std::string_view bytes) {
    OnnxGraph g;
    each(bytes, [&](const Field& f) {
      if (f.kind != 2) return true;
      if (f.id == 1) g.nodes.push_back(node(f.bytes));
      if (f.id == 2) g.name = f.bytes;
      if (f.id == 5) g.initializers.push_back(tensor(f.bytes));
      if (f.id == 11) g.inputs.push_back(value(f.bytes));
      if (f.id == 12) g.outputs.push_back(value(f.bytes));
      if (f.id == 13) g.infos.push_back(value(f.bytes));
      if (g.nodes.size() > kMostNodes || g.initializers.size() > kMostNodes)
        wrong = fmt::format("over {} nodes or initializers", kMostNodes);
      return true;
    });
    return g;
  }

  OnnxNode node(std::string_view bytes) {
    OnnxNode n;
    each(bytes, [&](const Field& f) {
      if (f.kind != 2) return true;
      if (f.id == 1) n.inputs.emplace_back(f.bytes);
      if (f.id == 2) n.outputs.emplace_back(f.bytes);
      if (f.id == 3) n.name = f.bytes;
      if (f.id == 4) n.op = f.bytes;
      if (f.id == 5) n.attributes.push_back(attribute(f.bytes));
      if (f.id == 7) n.domain = f.bytes;
      return true;
    });
    if (n.domain == "ai.onnx") n.domain.clear();
    return n;
  }

  Attribute attribute(std::string_view bytes) {
    Attribute a;
    each(bytes, [&](const Field& f) {
      switch (f.id) {
        case 1: a.name = f.bytes; return f.kind == 2;
        case 2: a.real = as_float(f.number); return f.kind == 5;
        case 3: a.integer = f.integer(); return f.kind == 0;
        case 4: a.text = f.bytes; return f.kind == 2;
        case 5: a.tensor = tensor(f.bytes); return f.kind == 2;
        case 6:
        case 11: a.has_graph = true; return true;
        case 7: return add_floats(f, a.reals);
        case 8: return add_varints(f, a.integers);
        case 20: a.type = static_cast<int>(f.number); return f.kind == 0;
        default: return true;
      }
    });
    return a;
  }

  TensorData tensor(std::string_view bytes) {
    TensorData t;
    each(bytes, [&](const Field& f) {
      switch (f.id) {
        case 1: return add_varints(f, t.dims);
        case 2: t.type = static_cast<int>(f.number); return f.kind == 0;
        case 4: return add_floats(f, t.reals);
        case 5:
        case 7:
        case 11: return add_varints(f, t.ints);
        case 8: t.name = f.bytes; return f.kind == 2;
        case 9: t.raw = f.bytes; return f.kind == 2;
        case 10: return add_doubles(f, t.reals);
        case 13: external(f.bytes, t); return f.kind == 2;
        case 14: t.is_external = f.number == 1; return f.kind == 0;
        default: return true;
      }
    });
    return t;
  }

  void external(std::string_view bytes, TensorData& t) {
    std::string key, text;
    each(bytes, [&](const Field& f) {
      if (f.id == 1) key = f.bytes;
      if (f.id == 2) text = f.bytes;
      return f.kind == 2;
    });
    if (key == "location") t.location = text;
    if (key != "offset" && key != "length") return;
    int64_t& number = key == "offset" ? t.offset : t.length;
    number = 0;
    if (text.empty() || text.size() > 15) wrong = fmt::format("external data with {} '{}'", key, text.substr(0, 40));
    for (char c : text) {
      if (c < '0' || c > '9') wrong = fmt::format("external data with {} '{}'", key, text.substr(0, 40));
      number = 10 * number + (c - '0');
    }
  }

  ValueInfo value(std::string_view bytes) {
    ValueInfo v;
    each(bytes, [&](const Field& f) {
      if (f.id == 1 && f.kind == 2) v.name = f.bytes;
      if (f.id != 2 || f.kind != 2) return true;
      each(f.bytes, [&](const Field& type) {  // TypeProto: 1 is a tensor
        if (type.id != 1 || type.kind != 2) return true;
        each(type.bytes, [&](const Field& t) {
          if (t.id == 1 && t.kind == 0) v.type = static_cast<int>(t.number);
          if (t.id == 2 && t.kind == 2) v.shape = shape(t.bytes);
          return true;
        });
        return true;
      });
      return true;
    });
    return v;
  }

  std::vector<ValueInfo::Extent> shape(std::string_view bytes) {
    std::vector<ValueInfo::Extent> out;
    each(bytes, [&](const Field& f) {
      if (f.id != 1 || f.kind != 2) return true;
      ValueInfo::Extent e;
      each(f.bytes, [&](const Field& d) {
        if (d.id == 1 && d.kind == 0) e.value = d.integer();
        if (d.id == 2 && d.kind == 2) e.param = d.bytes;
        return true;
      });
      out.push_back(e);
      return true;
    });
    return out;
  }
};

}  // namespace

Result<OnnxModel> read_model(std::string_view bytes, const std::string& file) {
  ModelReader reader;
  OnnxModel m = reader.model(bytes);
  const auto bad = [&](std::string text) { return Diagnostic{Severity::kError, DiagCode::kSyntax, {file, 0, 0, 1}, std::move(text), {}}; };
  if (!reader.wrong.empty()) return bad("it is no ONNX model: " + reader.wrong);
  if (m.opsets.empty() || (m.graph.nodes.empty() && m.graph.outputs.empty()))
    return bad("it is no ONNX model: it has no graph or no operator set");
  return m;
}

}  // namespace mirage::onnx

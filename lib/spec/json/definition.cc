// FlashInfer-Bench definitions say what they compute as a Python `reference`. Three of its kinds are read here: gemm, rmsnorm and
// fused_add_rmsnorm. The op_type alone decides nothing: the reference must be, line by line and but for names, spaces, comments and checks
// of sizes, one of the texts that are published. Anything else is for `python -m mirage_opt import`.
#include "spec/json/definition.h"
#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <system_error>
#include <string_view>

namespace mirage::spec {
namespace {

/// A statement without spaces and comment, "return:..." for a return; "" for what computes nothing: checks of sizes and their names.
std::string statement(std::string_view line) {
  constexpr std::string_view kReturn = "return ";
  std::string out;
  const size_t first = std::min(line.find_first_not_of(" \t"), line.size());
  line.remove_prefix(first);
  if (line.starts_with(kReturn)) {
    out = "return:";
    line.remove_prefix(kReturn.size());
  }
  for (char c : line.substr(0, line.find('#')))
    if (!std::isspace(static_cast<unsigned char>(c))) out += c;
  if (out.starts_with("assert") || out.ends_with(".shape")) return "";
  return out;
}

struct Reference {
  std::vector<std::string> parameters;
  std::vector<std::string> body;
  std::optional<double> eps;
};

/// Splits "a,b,c" at the commas.
std::vector<std::string> names(std::string_view text) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    if (comma > at) out.emplace_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return out;
}

/// The one function `run` of a reference; nullopt where there is anything beside it than imports and a decorator.
std::optional<Reference> read_reference(std::string_view text) {
  Reference r;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = statement(text.substr(at, end - at));
    at = end + 1;
    if (line.empty()) continue;
    if (!inside) {
      if (line == "importtorch" || line == "@torch.no_grad()") continue;
      if (!line.starts_with("defrun(") || !line.ends_with("):")) return std::nullopt;
      r.parameters = names(std::string_view(line).substr(7, line.size() - 9));
      inside = true;
    } else if (line.starts_with("EPS=")) {
      double eps = 0;
      const auto [stop, error] = std::from_chars(line.data() + 4, line.data() + line.size(), eps);
      if (r.eps || error != std::errc() || stop != line.data() + line.size()) return std::nullopt;
      r.eps = eps;
    } else {
      r.body.push_back(line);
    }
  }
  return r;
}

/// `text` with each whole word that `by` knows replaced.
std::string renamed(const std::string& text, const std::map<std::string, std::string>& by) {
  std::string out, word;
  const auto flush = [&] {
    const auto found = out.ends_with('.') ? by.end() : by.find(word);   // behind a dot it is an attribute
    out += found == by.end() ? word : found->second;
    word.clear();
  };
  for (char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') { word += c; continue; }
    flush();
    out += c;
  }
  flush();
  return out;
}

bool is_one_of(const std::vector<std::string>& body, std::initializer_list<std::vector<std::string>> known) {
  return std::find(known.begin(), known.end(), body) != known.end();
}

enum class Kind { kNone, kGemm, kRmsNorm, kFusedAddRmsNorm };

Kind kind_of(const Reference& r) {
  std::map<std::string, std::string> by;
  for (size_t i = 0; i < r.parameters.size(); i++) by[r.parameters[i]] = "$" + std::to_string(i);
  std::vector<std::string> body;
  for (const std::string& line : r.body) body.push_back(renamed(line, by));
  const auto norm = [&](const char* first, const char* gain) {
    return std::vector<std::string>{first, "inv_rms=torch.rsqrt(x.pow(2).mean(dim=-1,keepdim=True)+EPS)",
                                    std::string("y=(x*inv_rms)*") + gain + ".to(torch.float32)", "return:y.to($0.dtype)"};
  };
  const size_t inputs = r.parameters.size();
  if (inputs == 2 &&
      is_one_of(body,
                {{"C=torch.matmul($0,$1.T)", "return:C"}, {"return:torch.matmul($0,$1.T)"}, {"C=$0@$1.T", "return:C"}, {"return:$0@$1.T"}}))
    return Kind::kGemm;
  if (inputs == 2 && r.eps && body == norm("x=$0.to(torch.float32)", "$1")) return Kind::kRmsNorm;
  if (inputs == 3 && r.eps && body == norm("x=$0.to(torch.float32)+$1.to(torch.float32)", "$2")) return Kind::kFusedAddRmsNorm;
  return Kind::kNone;
}

AstNode node(const char* op, std::vector<std::string> inputs, const std::string& output, Span where) {
  AstNode out;
  out.op = find_operator(op);
  out.where = where;
  for (std::string& name : inputs) out.inputs.push_back({std::nullopt, std::move(name), where});
  out.outputs.push_back({output, where});
  return out;
}

/// A name that no tensor has.
std::string free_name(const Ast& ast) {
  std::string name = "sum";
  const auto taken = [&](const std::vector<AstTensor>& all) {
    return std::any_of(all.begin(), all.end(), [&](const AstTensor& t) { return t.name == name; });
  };
  while (taken(ast.inputs) || taken(ast.outputs)) name += "_";
  return name;
}

}  // namespace

std::vector<AstNode> nodes_of_reference(const Ast& ast, std::string_view reference, Span where) {
  const auto r = read_reference(reference);
  if (!r || ast.outputs.size() != 1 || ast.inputs.size() != r->parameters.size()) return {};
  const Kind kind = kind_of(*r);
  const std::string& result = ast.outputs[0].name;
  std::vector<std::string> in;
  for (const AstTensor& t : ast.inputs) in.push_back(t.name);
  if (kind == Kind::kNone || in != r->parameters) return {};
  // The reference's last line, and torch.matmul, give the first input's dtype; matmul takes operands of one dtype.
  if (ast.outputs[0].dtype != ast.inputs[0].dtype || (kind == Kind::kGemm && ast.inputs[1].dtype != ast.inputs[0].dtype)) return {};
  if (kind == Kind::kGemm) return {node("linear", in, result, where)};
  AstNode norm = node("rms_norm", {in[0], in[1]}, result, where);
  std::vector<AstNode> out;
  if (kind == Kind::kFusedAddRmsNorm) {
    const std::string sum = free_name(ast);
    out.push_back(node("add", {in[0], in[1]}, sum, where));
    out.back().exact = true;   // the reference adds in float32
    norm.inputs[0].name = sum;
    norm.inputs[1].name = in[2];
  }
  AttrValue eps;
  eps.where = where;
  eps.number = *r->eps;
  norm.attrs.emplace("eps", std::move(eps));
  AttrValue axis;
  axis.where = where;
  axis.list = {-1};
  norm.attrs.emplace("axis", std::move(axis));
  out.push_back(std::move(norm));
  return out;
}

}  // namespace mirage::spec

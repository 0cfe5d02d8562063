// Graphs, statements and expressions of the text form; see text_reader.h.
#include "spec/text/text_reader.h"
#include <fmt/format.h>
#include "mirage/spec/text.h"
#include "spec/operators/emitter.h"
#include "spec/json/json_tree.h"

namespace mirage::spec {
namespace {

constexpr int kMaxTextNodes = 1 << 16;
constexpr int64_t kMaxTileElements = int64_t{1} << 31;
constexpr int kMaxPorts = 4096;
constexpr size_t kMaxTextOperands = 65536;

std::vector<std::string> head_words() {
  std::vector<std::string> words{"input",  "output", "const",     "iota",    "matmul",    "reduce.sum", "reduce.max", "repeat", "reshape",
                                 "concat", "slice",  "transpose", "running", "accum.sum", "accum.max",  "call",       "thread"};
  for (int i = 0; i < num_map_fns(); ++i) words.push_back(map_info(static_cast<MapFn>(i)).name);
  return words;
}

}  // namespace

std::optional<TextGraph> TextReader::read() {
  try {
    take("\xEF\xBB\xBF");
    TextGraph out;
    if (at_end()) fail(DiagCode::kSyntax, {0, 1}, "the text is empty");
    Span where;
    std::string word = read_word(where);
    Level level;
    if (word == "kernel") level = Level::kKernel;
    else if (word == "block") level = Level::kBlock;
    else if (word == "thread") level = Level::kThread;
    else
      fail(DiagCode::kSyntax, where, "a graph begins with 'kernel', 'block' or 'thread'; JSON begins with '{'",
           Report::did_you_mean(word, {"kernel", "block", "thread"}));
    bool is_launch = peek("grid(") || peek("loop(");
    if (!peek("{") && !is_launch && !peek("intermediates(")) {
      out.name = read_word(out.name_where);
      if (out.name.empty()) fail(DiagCode::kSyntax, out.name_where, "expected a name or '{'");
    }
    if (level == Level::kKernel && take_word("intermediates")) {
      expect("(");
      Span kind;
      const std::string word = read_word(kind);
      if (word != "exact" && word != "stored")
        fail(DiagCode::kSyntax, kind, "intermediates are 'stored' or 'exact'", Report::did_you_mean(word, {"exact", "stored"}));
      out.exact = word == "exact";
      expect(")");
    }
    Launch launch = level == Level::kBlock ? read_launch() : Launch{};
    Scope scope{Builder(level, launch), {}, {}, {}, {}};
    out.graph = read_body(level, scope);
    if (!at_end()) fail(DiagCode::kSyntax, {i_, 1}, "text behind the graph");
    out.node_where = std::move(scope.node_where);
    for (const auto& [name, value] : scope.names) out.named.insert(value);
    out.inputs = std::move(scope.inputs);
    out.outputs = std::move(scope.outputs);
    return out;
  } catch (BuildError& e) {
    report_.error(e.code, e.where, std::move(e.text), std::move(e.notes));
    return std::nullopt;
  }
}

Graph TextReader::read_body(Level level, Scope& scope) {
  skip();
  size_t start = i_;
  expect("{");
  while (!take("}")) {
    if (at_end()) fail(DiagCode::kSyntax, {i_, 1}, "the text ends where '}' belongs", {report_.note({start, 1}, "the graph begins here")});
    read_statement(scope);
  }
  const Graph& g = scope.builder.graph();
  if (level == Level::kKernel) {
    for (const auto& [param, port] : scope.inputs) {
      if (param >= static_cast<int>(scope.inputs.size()))
        fail(DiagCode::kSyntax, port.where,
             fmt::format("input {} without input {}: inputs are numbered from 0", param, scope.inputs.size() - 1));
    }
  }
  auto users = g.users();
  for (NodeId n = 0; n < g.num_nodes(); ++n) {   // law 7 said with a place
    const Node& node = g.node(n);
    bool may_be_unused = node.num_values != 1 || (level == Level::kKernel && g.form<Input>(n));
    if (!may_be_unused && users[static_cast<size_t>(node.first_value)].empty())
      fail(DiagCode::kSyntax, scope.node_where[static_cast<size_t>(n)], "nothing uses this value, and it is no output");
  }
  if (auto broken = check_laws(g)) fail(DiagCode::kSyntax, {start, 1}, "the graph breaks " + *broken);
  return std::move(scope.builder).finish();
}

void TextReader::read_statement(Scope& scope) {
  if (take_word("output")) return read_output(scope);
  std::vector<std::pair<std::string, Span>> names;
  do {
    Span where;
    std::string name = read_name(where);
    if (scope.names.count(name)) fail(DiagCode::kDuplicateName, where, fmt::format("the name %{} is defined twice", name));
    for (const auto& [other, place] : names)
      if (other == name) fail(DiagCode::kDuplicateName, where, fmt::format("the name %{} is defined twice", name));
    names.emplace_back(std::move(name), where);
  } while (take(","));
  expect("=");
  if (take_word("input")) {
    if (names.size() != 1) fail(DiagCode::kSyntax, names[1].second, "an input has one name");
    return read_input(scope, names[0].first, names[0].second);
  }
  skip();
  size_t start = i_;
  std::vector<ValueId> values = read_expression(scope);
  if (values.size() != names.size()) fail(DiagCode::kArity, {start, 1}, fmt::format("{} names for {} values", names.size(), values.size()));
  for (size_t i = 0; i < names.size(); ++i) scope.names[names[i].first] = values[i];
}

void TextReader::read_input(Scope& scope, const std::string& name, Span where) {
  Level level = scope.builder.graph().level();
  int param = static_cast<int>(read_int(0, kMaxPorts, "an input's number"));
  Partition part;
  if (take_word("grid")) part.grid = read_partition_grid();
  if (take_word("loop")) {
    expect("(");
    part.loop = read_partition_dim();
    expect(")");
  }
  if (level != Level::kBlock && !part.is_whole()) fail(DiagCode::kSyntax, where, "only inputs of block graphs are split");
  expect(":");
  Type type = read_type();
  if (level == Level::kBlock && type.dims.elements() > kMaxTileElements)
    fail(DiagCode::kLimit, where, "the tile has more than 2^31 elements");
  bool fresh = scope.inputs.try_emplace(param, TextGraph::Port{name, where}).second;
  if (!fresh && level == Level::kKernel) fail(DiagCode::kDuplicateName, where, fmt::format("input {} stands twice", param));
  if (++num_nodes_ > kMaxTextNodes) fail(DiagCode::kLimit, where, fmt::format("more than {} nodes", kMaxTextNodes));
  scope.node_where.push_back(where);
  scope.names[name] = scope.builder.add_input(param, type, part);
}

void TextReader::read_output(Scope& scope) {
  Span where;
  skip();
  size_t start = i_;
  int result = static_cast<int>(read_int(0, kMaxPorts, "an output's number"));
  skip();
  std::string name;
  if (peek("%")) {
    size_t before = i_;
    name = read_name(where);
    i_ = before;
  }
  ValueId v = read_operand(scope);
  where = {start, i_ - start};
  Partition part;
  if (take_word("grid")) part.grid = read_partition_grid();
  const Type& type = scope.builder.graph().type(v);
  Output out{result, part, type.dtype == DType::kBool ? DType::kBool : DType::kReal};
  bool typed = take(":");
  if (typed) out.dtype = read_dtype();
  if (!scope.outputs.try_emplace(result, TextGraph::Port{name, where, typed}).second)
    fail(DiagCode::kDuplicateName, where, fmt::format("output {} stands twice", result));
  for (int8_t d : part.grid)
    if (d >= type.dims.rank()) fail(DiagCode::kShape, where, fmt::format("dimension {} of a tensor of rank {}", d, type.dims.rank()));
  add(scope, out, {v}, where);
}

/// Checks what infer leaves open (limits), then adds.
std::vector<ValueId> TextReader::add(Scope& scope, Op op, std::vector<ValueId> operands, Span where) {
  const Graph& g = scope.builder.graph();
  if (++num_nodes_ > kMaxTextNodes) fail(DiagCode::kLimit, where, fmt::format("more than {} nodes", kMaxTextNodes));
  if (const auto* r = std::get_if<Repeat>(&op); r && operands.size() == 1 && r->count > kMaxElements / g.dims(operands[0]).elements())
    fail(DiagCode::kLimit, where, "more than 2^40 elements");
  std::vector<Type> types;
  for (ValueId v : operands) types.push_back(g.type(v));
  Inferred inferred = infer(op, types, g.level());
  if (!inferred.ok()) fail(DiagCode::kShape, where, inferred.error);
  int64_t limit = g.level() == Level::kBlock ? kMaxTileElements : kMaxElements;
  for (const Type& t : inferred.types) {
    auto n = count_elements(t.dims);
    if (!n || *n > limit) fail(DiagCode::kLimit, where, fmt::format("the result {} is too large", to_string(t.dims)));
  }
  scope.node_where.push_back(where);
  ValueId first = scope.builder.add(std::move(op), std::move(operands));
  std::vector<ValueId> values;
  for (size_t i = 0; i < inferred.types.size(); ++i) values.push_back(first + static_cast<ValueId>(i));
  return values;
}

std::vector<ValueId> TextReader::read_expression(Scope& scope) {
  if (++depth_ > kMaxDepth) fail(DiagCode::kLimit, {i_, 1}, fmt::format("nesting is deeper than {}", kMaxDepth));
  skip();
  std::vector<ValueId> values;
  if (peek("%") || peek("(") || at_number()) {
    values = {read_operand(scope)};
  } else {
    Span where;
    std::string word = read_word(where);
    if (word == "call" || word == "thread") {
      values = read_call(scope, word == "call" ? Level::kBlock : Level::kThread, where);
    } else {
      Op op = read_head(word, where);
      std::vector<ValueId> operands;
      while (auto v = try_operand(scope)) {
        operands.push_back(*v);
        if (operands.size() > kMaxTextOperands) fail(DiagCode::kLimit, where, fmt::format("more than {} operands", kMaxTextOperands));
      }
      if (auto* t = std::get_if<Transpose>(&op); t && operands.size() == 1) {
        int rank = scope.builder.graph().dims(operands[0]).rank(), given = 0;
        while (given < kMaxRank && t->perm[static_cast<size_t>(given)] >= 0) ++given;
        if (given != rank)
          fail(DiagCode::kShape, where, fmt::format("a permutation of {} dimensions for a tensor of rank {}", given, rank));
        for (int i = rank; i < kMaxRank; ++i) t->perm[static_cast<size_t>(i)] = 0;   // unused entries are zero, as everywhere
      }
      values = add(scope, std::move(op), std::move(operands), where);
    }
  }
  --depth_;
  return values;
}

std::vector<ValueId> TextReader::read_call(Scope& scope, Level level, Span where) {
  Launch launch = level == Level::kBlock ? read_launch() : Launch{};
  std::vector<ValueId> operands;
  expect("(");
  if (!take(")")) {
    do operands.push_back(read_operand(scope)); while (take(","));
    expect(")");
  }
  Level outer = scope.builder.graph().level();
  if (static_cast<int>(level) != static_cast<int>(outer) + 1)
    fail(DiagCode::kSyntax, where, fmt::format("a {} graph cannot be called from a {} graph", level_name(level), level_name(outer)));
  Scope inner{Builder(level, launch), {}, {}, {}, {}};
  auto body = std::make_shared<const Graph>(read_body(level, inner));
  std::vector<Type> types;
  for (ValueId v : operands) types.push_back(scope.builder.graph().type(v));
  if (body->num_params() == static_cast<int>(types.size())) {
    if (auto broken = check_laws(*body, types)) fail(DiagCode::kSyntax, where, "the call breaks " + *broken);
  }
  return add(scope, Call{std::move(body)}, std::move(operands), where);
}

ValueId TextReader::read_operand(Scope& scope) {
  skip();
  size_t start = i_;
  if (take("(")) {
    std::vector<ValueId> values = read_expression(scope);
    expect(")");
    if (values.size() != 1)
      fail(DiagCode::kArity, {start, 1}, fmt::format("an expression with {} values stands where one belongs", values.size()));
    return values[0];
  }
  if (at_number()) return add(scope, Const{read_number(), {}}, {}, {start, 1})[0];
  Span where;
  std::string name = read_name(where);
  auto it = scope.names.find(name);
  if (it != scope.names.end()) return it->second;
  std::vector<std::string> names;
  for (const auto& [n, v] : scope.names) names.push_back(n);
  fail(DiagCode::kUnknownName, where, fmt::format("%{} is not defined before", name), Report::did_you_mean(name, names));
}

std::optional<ValueId> TextReader::try_operand(Scope& scope) {
  if (starts_statement()) return std::nullopt;
  if (!peek("%") && !peek("(") && !at_number()) return std::nullopt;
  return read_operand(scope);
}

Op TextReader::read_head(std::string_view word, Span where) {
  if (auto fn = parse_map_fn(word)) return Map{*fn};
  auto dim = [&] { return static_cast<int>(read_int(0, kMaxRank - 1, "a dimension")); };
  if (word == "matmul") return MatMul{};
  if (word == "const") return read_const();
  if (word == "slice") return read_slice();
  if (word == "transpose") return read_transpose();
  if (word == "concat") return Concat{dim()};
  if (word == "reshape") return Reshape{read_dims()};
  if (word == "running") return Running{};
  if (word == "accum.sum" || word == "accum.max") {
    const int degree = take_word("rescaled") ? static_cast<int>(read_int(1, kMaxDegree, "a degree")) : 0;
    return Accum{word == "accum.sum" ? ReduceFn::kSum : ReduceFn::kMax, degree};
  }
  if (word == "iota") {
    int d = dim();
    return Iota{d, read_dims()};
  }
  if (word == "repeat") {
    int d = dim();
    return Repeat{d, read_int(1, kMaxElements, "a count")};
  }
  if (word == "reduce.sum" || word == "reduce.max") {
    int d = dim();
    int64_t group = take_word("group") ? read_int(1, kMaxElements, "a group's size") : 0;
    return Reduce{word == "reduce.sum" ? ReduceFn::kSum : ReduceFn::kMax, d, group};
  }
  if (word.empty())
    fail(DiagCode::kSyntax, where, at_end() ? "the text ends where an expression belongs" : "expected an operator, a name or a number");
  fail(DiagCode::kUnknownOp, where, fmt::format("there is no operator '{}' in graphs", word.substr(0, 80)),
       Report::did_you_mean(std::string(word), head_words()));
}

Op TextReader::read_const() {
  Const c{read_number(), {}};
  if (!take_word("extent")) return c;
  do {
    int param = static_cast<int>(read_int(0, kMaxPorts, "an input's number"));
    expect(".");
    c.extent_of.emplace_back(param, static_cast<int>(read_int(0, kMaxRank - 1, "a dimension")));
    if (c.extent_of.size() > 64) fail(DiagCode::kLimit, {i_, 1}, "more than 64 extents");
  } while (take("*"));
  return c;
}

Op TextReader::read_slice() {
  Slice s;
  s.dim = static_cast<int>(read_int(0, kMaxRank - 1, "a dimension"));
  s.start = read_int(0, kMaxElements, "a start");
  expect(":");
  s.stop = read_int(0, kMaxElements, "a stop");
  if (take(":")) s.step = read_int(1, kMaxElements, "a step");
  return s;
}

Op TextReader::read_transpose() {
  Transpose t;
  t.perm.fill(-1);
  expect("(");
  for (size_t i = 0; !take(")"); ++i) {
    if (i > 0) expect(",");
    if (i == static_cast<size_t>(kMaxRank)) fail(DiagCode::kLimit, {i_, 1}, "more than 8 dimensions");
    t.perm[i] = static_cast<int8_t>(read_int(0, kMaxRank - 1, "a dimension"));
  }
  return t;
}

}  // namespace mirage::spec

namespace mirage {

Result<NamedGraph> parse_named_graph(std::string_view text, const std::string& file) {
  spec::Report report(file, text);
  if (text.size() > spec::kMaxBytes)
    report.error(DiagCode::kLimit, {0, 1}, fmt::format("the graph has {} bytes; at most {} are read", text.size(), spec::kMaxBytes));
  std::optional<spec::TextGraph> g;
  if (report.ok()) g = spec::TextReader(text, report).read();
  if (!g) return report.take_errors();
  return NamedGraph{std::move(g->name), std::move(g->graph)};
}

Result<Graph> parse_graph(std::string_view text, const std::string& file) {
  auto named = parse_named_graph(text, file);
  if (!named) return named.errors();
  return std::move(named->graph);
}

}  // namespace mirage

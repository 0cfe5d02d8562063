// From an Ast to a Program: names resolved, nodes ordered, cycles printed, every operator built (also those that no output needs, so that
// their mistakes are found), outputs checked.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include "mirage/ir/reserved_names.h"
#include "spec/json/ast.h"
#include "spec/storage_types.h"

namespace mirage::spec {

void check_strides(const AstTensor& t, const Dims& dims, Report& report) {
  if (!t.strides) return;
  const Dims& s = *t.strides;
  if (s.rank() != dims.rank()) {
    report.error(DiagCode::kStrides, t.strides_where, fmt::format("{} strides for a tensor of rank {}", s.rank(), dims.rank()));
    return;
  }
  std::vector<std::pair<int64_t, int64_t>> by_stride;   // {stride, extent}, extents above 1
  for (int i = 0; i < dims.rank(); ++i) if (dims[i] > 1) by_stride.emplace_back(s[i], dims[i]);
  std::sort(by_stride.begin(), by_stride.end());
  // largest address of the dimensions so far; sufficient for distinct addresses, and every layout that people use passes
  __int128 span = 0;
  for (auto [stride, extent] : by_stride) {
    if (stride <= span) {
      report.error(DiagCode::kStrides, t.strides_where,
                   fmt::format("strides {} of shape {} overlap: two elements may share an address", to_string(s), to_string(dims)));
      return;
    }
    span += static_cast<__int128>(stride) * (extent - 1);
  }
  if (span >= kMaxElements)
    report.error(DiagCode::kLimit, t.strides_where, fmt::format("tensor '{}' spans more than 2^40 elements of memory", t.name));
}

void warn_mangled(const std::string& what, const std::string& name, Span where, Report& report) {
  if (is_reserved_name(name))
    report.warn(DiagCode::kMangledName, where,
                fmt::format("{} '{}' is taken in C, CUDA or the ABI; generated code uses another", what, name));
}

void warn_no_float(double constant, Span where, Report& report) {
  const auto x = static_cast<float>(constant);
  if (std::isfinite(constant) && constant != 0 && (!std::isfinite(x) || x == 0))
    report.warn(DiagCode::kBadNumber, where,
                fmt::format("float32 has no {}: kernels take {} in its place", constant,
                            x == 0         ? "0"
                            : constant > 0 ? "infinity"
                                           : "minus infinity"));
}

/// Kernels compute with float32: positions that it does not hold are rounded (a mask hides a key more or less).
void warn_long_positions(const Graph& g, Span where, Report& report) {
  constexpr int64_t kWhole = int64_t{1} << 24;
  for (NodeId n = 0; n < g.num_nodes(); n++)
    if (const auto* i = g.form<Iota>(n); i && i->dims[i->dim] > kWhole + 1) {
      report.warn(
          DiagCode::kBadNumber, where,
          fmt::format("positions up to {}: float32 has not every whole number beyond {}, kernels take the nearest ones in their place",
                      i->dims[i->dim] - 1, kWhole));
      return;
    }
}

void warn_unused_inputs(const Graph& g, const std::vector<std::pair<std::string, Span>>& inputs, Report& report) {
  auto users = g.users();
  for (NodeId n : g.inputs()) {
    if (!users[static_cast<size_t>(g.node(n).first_value)].empty()) continue;
    const auto& [name, where] = inputs[static_cast<size_t>(g.form<Input>(n)->param)];
    report.warn(DiagCode::kUnusedInput, where, fmt::format("input '{}' has no influence on any output", name));
  }
}

void check_size(const Graph& g, Span where, Report& report) {
  size_t operands = 0, nodes = 0;
  for (const Node& node : g.nodes())
    nodes +=
        !std::holds_alternative<Input>(node.op) && !(std::holds_alternative<Const>(node.op) && std::get<Const>(node.op).extent_of.empty());
  for (const Node& node : g.nodes()) operands += node.operands.size();
  if (operands > static_cast<size_t>(kMaxOperands))
    report.error(DiagCode::kLimit, where, fmt::format("the program has {} operands; at most {} are allowed", operands, kMaxOperands));
  if (nodes > static_cast<size_t>(kMaxNodes))
    report.error(DiagCode::kLimit, where, fmt::format("the program has {} nodes in primitives; at most {} are allowed", nodes, kMaxNodes));
}

namespace {

constexpr ValueId kBroken = -2;    // a value whose node had errors: what uses it is not checked
constexpr ValueId kPending = -1;   // not built yet

class ProgramBuilder {
 public:
  ProgramBuilder(const Ast& ast, Report& report) : ast_(ast), report_(report), storage_(emit_), types_(ast.nodes.size(), DType::kReal) {}

  std::optional<Program> build() {
    declare_names();
    resolve_inputs();
    order_nodes();
    for (size_t i = 0; i < ast_.inputs.size(); ++i) {
      const AstTensor& t = ast_.inputs[i];
      bool ok = t.ok && t.dims;
      // A broken input still takes its place, for input i is value i.
      emit_.input(static_cast<int>(i), {t.dtype, ok ? *t.dims : Dims{}});
      input_ok_.push_back(ok);
    }
    for (size_t n : order_) build_node(n);
    finish_outputs();
    if (!report_.ok()) return std::nullopt;
    return finish();
  }

 private:
  struct Definition { bool is_input; size_t index, result; Span where; };   // result: of a node

  void define(const std::string& name, bool is_input, size_t index, size_t result, Span where) {
    auto [it, fresh] = names_.try_emplace(name, Definition{is_input, index, result, where});
    if (fresh) return;
    report_.error(DiagCode::kDuplicateName, where, fmt::format("the name '{}' is defined twice", name),
                  {report_.note(it->second.where, "the first is here")});
  }

  void declare_names() {
    for (size_t i = 0; i < ast_.inputs.size(); ++i) define(ast_.inputs[i].name, true, i, 0, ast_.inputs[i].where);
    for (size_t i = 0; i < ast_.nodes.size(); ++i) {
      const auto& results = ast_.nodes[i].outputs;
      for (size_t r = 0; r < results.size(); ++r) define(results[r].name, false, i, r, results[r].where);
    }
    for (const auto& [name, d] : names_) all_names_.push_back(name);
    for (const AstNode& node : ast_.nodes) values_.emplace_back(std::max<size_t>(node.outputs.size(), 1), kPending);
  }

  void resolve_inputs() {
    operands_.resize(ast_.nodes.size());
    for (size_t i = 0; i < ast_.nodes.size(); ++i) {
      for (const AstArg& arg : ast_.nodes[i].inputs) {
        if (arg.number) {
          warn_no_float(*arg.number, arg.where, report_);
          operands_[i].push_back(nullptr);
          continue;
        }
        auto it = names_.find(arg.name);
        if (it == names_.end() && !ast_.complete) {
          break_node(i);
        } else if (it == names_.end()) {
          report_.error(DiagCode::kUnknownName, arg.where, fmt::format("there is no tensor '{}'", arg.name.substr(0, kMaxNameLength)),
                        report_.hint(arg.name, all_names_));
          break_node(i);
        }
        operands_[i].push_back(it == names_.end() ? nullptr : &it->second);
      }
    }
  }

  /// Depth-first from each node in file order; a node met again while it is open closes a cycle.
  void order_nodes() {
    enum : uint8_t { kNew, kOpen, kDone };
    std::vector<uint8_t> state(ast_.nodes.size(), kNew);
    for (size_t root = 0; root < ast_.nodes.size(); ++root) {
      if (state[root] != kNew) continue;
      std::vector<std::pair<size_t, size_t>> path{{root, 0}};   // node, next operand
      state[root] = kOpen;
      while (!path.empty()) {
        auto& [n, next] = path.back();
        if (next == operands_[n].size()) {
          state[n] = kDone;
          order_.push_back(n);
          path.pop_back();
          continue;
        }
        const Definition* d = operands_[n][next++];
        if (!d || d->is_input || state[d->index] == kDone) continue;
        if (state[d->index] == kOpen) {
          report_cycle(path, d->index);
          break_node(n);
          continue;
        }
        state[d->index] = kOpen;
        path.push_back({d->index, 0});
      }
    }
  }

  void report_cycle(const std::vector<std::pair<size_t, size_t>>& path, size_t start) {
    size_t first = path.size() - 1;
    while (path[first].first != start) --first;
    std::vector<Note> notes;
    constexpr size_t kShown = 10;
    for (size_t i = first; i < path.size(); ++i) {
      if (i - first >= kShown && i + 1 < path.size()) {
        notes.push_back({{}, fmt::format("... {} more", path.size() - i - 1)});
        i = path.size() - 1;
      }
      const AstNode& user = ast_.nodes[path[i].first];
      const AstNode& used = ast_.nodes[i + 1 < path.size() ? path[i + 1].first : start];
      notes.push_back(report_.note(user.outputs[0].where, fmt::format("'{}' needs '{}'", user.outputs[0].name, used.outputs[0].name)));
    }
    const AstNode::Result& first_name = ast_.nodes[start].outputs[0];
    report_.error(DiagCode::kCycle, first_name.where, fmt::format("'{}' depends on itself", first_name.name), std::move(notes));
  }

  void break_node(size_t n) { std::fill(values_[n].begin(), values_[n].end(), kBroken); }

  ValueId value_of(const Definition& d) const {
    if (!d.is_input) return values_[d.index][d.result];
    return input_ok_[d.index] ? static_cast<ValueId>(d.index) : kBroken;
  }

  void build_node(size_t n) {
    const AstNode& node = ast_.nodes[n];
    if (values_[n][0] == kBroken || !node.ok) {
      break_node(n);
      return;
    }
    NodeContext context{emit_, {}, {}, node.attrs, node.where, static_cast<int>(ast_.inputs.size()), static_cast<int>(node.outputs.size())};
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      context.operand_where.push_back(node.inputs[i].where);
      ValueId v = node.inputs[i].number ? emit_.constant(*node.inputs[i].number) : value_of(*operands_[n][i]);
      if (v < 0) {
        break_node(n);
        return;
      }
      context.operands.push_back(v);
    }
    try {
      storage_.begin(context.operands);
      values_[n] = node.op->build(context);
      for (const auto& [v, extent] : context.places) {
        const auto [at, fresh] = places_.try_emplace(v, extent);
        if (!fresh) at->second = std::min(at->second, extent);
      }
      MIRAGE_ASSERT(values_[n].size() == node.outputs.size()) << node.op->name;
      types_[n] =
          storage_.end(values_[n], operand_types(n), node.op->name == "cast" ? context.attr("dtype")->dtype : DType::kReal, node.exact);
    } catch (BuildError& e) {
      report_.error(e.code, e.where.length ? e.where : node.where, node.op->name + ": " + e.text, std::move(e.notes));
      break_node(n);
    }
  }

  /// Of the operands of node n, for StorageTypes; kBool: a number.
  std::vector<DType> operand_types(size_t n) const {
    std::vector<DType> out;
    for (size_t i = 0; i < operands_[n].size(); ++i) {
      const Definition* d = ast_.nodes[n].inputs[i].number ? nullptr : operands_[n][i];
      out.push_back(!d ? DType::kBool : d->is_input ? ast_.inputs[d->index].dtype : types_[d->index]);
    }
    return out;
  }

  void finish_outputs() {
    std::map<std::string, Span, std::less<>> seen;
    for (const AstTensor& t : ast_.outputs) {
      auto [first, fresh] = seen.try_emplace(t.name, t.where);
      if (!fresh)
        report_.error(DiagCode::kDuplicateName, t.where, fmt::format("the output '{}' is declared twice", t.name),
                      {report_.note(first->second, "the first is here")});
      auto it = names_.find(t.name);
      if (it == names_.end() && !ast_.complete) continue;
      if (it == names_.end()) {
        std::vector<std::string> candidates;
        if (!report_.full())
          for (const AstNode& node : ast_.nodes)
            for (const AstNode::Result& r : node.outputs) candidates.push_back(r.name);
        std::vector<Note> notes = report_.hint(t.name, candidates);
        if (notes.empty()) notes.push_back({{}, "name it as the 'output' of the node that computes it, or leave it out of 'outputs'"});
        report_.error(DiagCode::kUnknownName, t.where, fmt::format("no node computes the output '{}'", t.name), std::move(notes));
        continue;
      }
      if (it->second.is_input) {
        report_.error(DiagCode::kDuplicateName, t.where,
                      fmt::format("'{}' is an input and an output; copy it in a node of its own", t.name),
                      {report_.note(it->second.where, "the input is here")});
        continue;
      }
      ValueId v = value_of(it->second);
      if (v < 0 || !t.ok) continue;
      finish_output(t, v, ast_.nodes[it->second.index], it->second.where);
    }
  }

  void finish_output(const AstTensor& t, ValueId v, const AstNode& node, Span computed_where) {
    const Dims d = emit_.dims(v);
    if (t.dims && !(*t.dims == d)) {
      report_.error(
          DiagCode::kShape, t.shape_where,
          fmt::format("output '{}' is declared as {}, but {} computes {}", t.name, to_string(*t.dims), node.op->name, to_string(d)),
          {report_.note(computed_where, "it is computed here")});
      return;
    }
    if (t.dtype == DType::kBool && !emit_.is_bool(v)) {
      report_.error(DiagCode::kDtype, t.dtype_where,
                    fmt::format("output '{}' is declared bool, but {} computes numbers", t.name, node.op->name),
                    {{{}, "compare them, or cast them to bool"}});
      return;
    }
    if (is_whole(t.dtype) && !emit_.is_integral(emit_.number(v))) {
      report_.error(DiagCode::kDtype, t.dtype_where,
                    fmt::format("output '{}' is declared {}, but {} computes numbers that need not be whole", t.name,
                                dtype_long_name(t.dtype), node.op->name),
                    {{{}, fmt::format("round them with floor, ceil or round, or cast them to {}", dtype_long_name(t.dtype))}});
      return;
    }
    check_strides(t, d, report_);
    if (t.dtype != DType::kBool) v = emit_.number(v);
    roots_.emplace_back(v, t.dtype);
    output_dims_.push_back(d);
  }

  TensorInfo info(const AstTensor& t, const Dims& d) const {
    return {t.name, {t.dtype, d}, t.strides ? *t.strides : row_major_strides(d), t.range, t.by_value};
  }

  /// Of an input of whole numbers that gives none: the places that it is an index of, or small numbers.
  std::pair<double, double> default_range(size_t input) const {
    constexpr double kSmall = 8;
    const auto at = places_.find(static_cast<ValueId>(input));
    return at == places_.end() ? std::pair(-kSmall, kSmall) : std::pair(0.0, static_cast<double>(at->second - 1));
  }

  std::optional<Program> finish() {
    Program p;
    p.name = ast_.name;
    p.description = ast_.description;
    p.numerics = ast_.numerics;
    std::vector<std::pair<std::string, Span>> inputs;
    for (const AstTensor& t : ast_.inputs) {
      check_strides(t, *t.dims, report_);
      p.inputs.push_back(info(t, *t.dims));
      if (is_whole(t.dtype) && !t.range) p.inputs.back().range = default_range(p.inputs.size() - 1);
      inputs.emplace_back(t.name, t.where);
      warn_mangled("input name", t.name, t.where, report_);
    }
    for (size_t i = 0; i < ast_.outputs.size(); ++i) {
      p.outputs.push_back(info(ast_.outputs[i], output_dims_[i]));
      warn_mangled("output name", ast_.outputs[i].name, ast_.outputs[i].where, report_);
    }
    warn_mangled("name", ast_.name, ast_.name_where, report_);
    check_size(emit_.graph(), ast_.nodes_where, report_);
    if (!report_.ok()) return std::nullopt;
    std::vector<ValueId> at;
    p.graph = emit_.finish(roots_, at);
    if (!p.numerics.exact) p.kept = storage_.kept(p.graph, at, roots_);
    warn_unused_inputs(p.graph, inputs, report_);
    warn_long_positions(p.graph, ast_.name_where, report_);
    p.canonical = canonicalize(p);
    return p;
  }

  const Ast& ast_;
  Report& report_;
  Emitter emit_;
  StorageTypes storage_;
  std::vector<DType> types_;                               // per node: of its result for those that read it
  std::map<std::string, Definition, std::less<>> names_;
  std::vector<std::string> all_names_;
  std::vector<std::vector<const Definition*>> operands_;   // per node; nullptr: a constant or unknown
  std::vector<size_t> order_;
  std::vector<std::vector<ValueId>> values_;               // per node, per result
  std::vector<bool> input_ok_;
  std::map<ValueId, int64_t> places_;                      // values that are indices: of so many elements
  std::vector<std::pair<ValueId, DType>> roots_;
  std::vector<Dims> output_dims_;
};

}  // namespace

std::optional<Program> build_program(const Ast& ast, Report& report) { return ProgramBuilder(ast, report).build(); }

}  // namespace mirage::spec

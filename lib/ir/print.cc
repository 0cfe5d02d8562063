// The text form of graphs: one grammar for dumps, goldens, specs and bug reports (lib/spec/text reads it back). Every value is printed
// by name and every input with its type.
#include <cmath>
#include <cstdio>

#include "mirage/ir/graph.h"

namespace mirage {
namespace {

std::string number(double v) {
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  if (std::isnan(v)) return "nan";
  char buf[40];
  for (int digits : {6, 9, 12, 17}) {
    std::snprintf(buf, sizeof buf, "%.*g", digits, v);
    if (std::strtod(buf, nullptr) == v) break;
  }
  return buf;
}

std::string dim_or_dash(int d) { return d < 0 ? "-" : std::to_string(d); }

std::string partition(const Partition& p, Level level, bool has_loop) {
  if (level != Level::kBlock) return "";
  std::string s = " grid(" + dim_or_dash(p.grid[0]) + "," + dim_or_dash(p.grid[1]) + "," + dim_or_dash(p.grid[2]) + ")";
  return has_loop ? s + " loop(" + dim_or_dash(p.loop) + ")" : s;
}

struct Printer {
  std::string out;

  /// What follows "= " (or stands alone for outputs) without operands, e.g. "reduce.sum 1".
  std::string head(const Op& op) {
    if (const auto* c = std::get_if<Const>(&op)) {
      std::string s = "const " + number(c->value);
      for (size_t i = 0; i < c->extent_of.size(); i++)
        s += (i ? "*" : " extent ") + std::to_string(c->extent_of[i].first) + "." + std::to_string(c->extent_of[i].second);
      return s;
    }
    if (const auto* i = std::get_if<Iota>(&op)) return "iota " + std::to_string(i->dim) + " " + to_string(i->dims);
    if (const auto* m = std::get_if<Map>(&op)) return map_info(m->fn).name;
    if (std::get_if<MatMul>(&op)) return "matmul";
    if (const auto* r = std::get_if<Reduce>(&op))
      return std::string("reduce.") + reduce_name(r->fn) + " " + std::to_string(r->dim) +
             (r->group ? " group " + std::to_string(r->group) : "");
    if (const auto* r = std::get_if<Repeat>(&op)) return "repeat " + std::to_string(r->dim) + " " + std::to_string(r->count);
    if (const auto* r = std::get_if<Reshape>(&op)) return "reshape " + to_string(r->dims);
    if (const auto* c = std::get_if<Concat>(&op)) return "concat " + std::to_string(c->dim);
    if (const auto* s = std::get_if<Slice>(&op))
      return "slice " + std::to_string(s->dim) + " " + std::to_string(s->start) + ":" + std::to_string(s->stop) + ":" +
             std::to_string(s->step);
    if (std::get_if<Running>(&op)) return "running";
    if (const auto* a = std::get_if<Accum>(&op))
      return std::string("accum.") + reduce_name(a->fn) + (a->degree ? " rescaled " + std::to_string(a->degree) : "");
    return "";
  }

  static std::string name(ValueId v) { return "%" + std::to_string(v); }

  void node(const Graph& g, NodeId n, const std::string& indent) {
    const Node& node = g.node(n);
    out += indent;
    for (int i = 0; i < node.num_values; i++) out += (i ? ", " : "") + name(node.first_value + i);
    if (node.num_values) out += " = ";
    if (const auto* in = g.form<Input>(n)) {
      out +=
          "input " + std::to_string(in->param) + partition(in->part, g.level(), true) + " : " + to_string(g.type(node.first_value)) + "\n";
      return;
    }
    if (const auto* o = g.form<Output>(n)) {
      out += "output " + std::to_string(o->result) + " " + name(node.operands[0]) + partition(o->part, g.level(), false) + " : " +
             dtype_name(o->dtype) + "\n";
      return;
    }
    if (const auto* c = g.form<Call>(n)) {
      out += c->body->level() == Level::kThread ? "thread" : "call";
      if (c->body->level() == Level::kBlock) {
        const Launch& l = c->body->launch();
        out += " grid(" + std::to_string(l.grid[0]) + "," + std::to_string(l.grid[1]) + "," + std::to_string(l.grid[2]) + ") loop(" +
               std::to_string(l.loop) + ")";
      }
      out += " (";
      for (size_t i = 0; i < node.operands.size(); i++) out += (i ? ", " : "") + name(node.operands[i]);
      out += ") {\n";
      body(*c->body, indent + "  ");
      out += indent + "}\n";
      return;
    }
    if (const auto* t = g.form<Transpose>(n)) {
      out += "transpose (";
      for (int i = 0; i < g.dims(node.operands[0]).rank(); i++) out += (i ? "," : "") + std::to_string(t->perm[static_cast<size_t>(i)]);
      out += ")";
    } else {
      out += head(node.op);
    }
    for (ValueId v : node.operands) out += " " + name(v);
    out += "\n";
  }

  void body(const Graph& g, const std::string& indent) { for (NodeId n = 0; n < g.num_nodes(); n++) node(g, n, indent); }
};

}  // namespace

std::string print(const Graph& g, const std::string& name) {
  Printer p;
  p.out = std::string(level_name(g.level())) + (name.empty() ? "" : " " + name);
  if (g.level() == Level::kBlock)
    p.out += " grid(" + std::to_string(g.launch().grid[0]) + "," + std::to_string(g.launch().grid[1]) + "," +
             std::to_string(g.launch().grid[2]) + ") loop(" + std::to_string(g.launch().loop) + ")";
  p.out += " {\n";
  p.body(g, "  ");
  p.out += "}\n";
  return p.out;
}

namespace {

void dot_body(const Graph& g, const std::string& prefix, const std::string& indent, std::string& out) {
  Printer p;
  for (NodeId n = 0; n < g.num_nodes(); n++) {
    const Node& node = g.node(n);
    const std::string id = prefix + std::to_string(n);
    if (const auto* c = g.form<Call>(n)) {
      out += indent + "subgraph cluster_" + id + " {\n" + indent + "  label=\"" + level_name(c->body->level()) + " graph\";\n";
      out += indent + "  " + id + " [shape=point];\n";
      dot_body(*c->body, id + "_", indent + "  ", out);
      out += indent + "}\n";
    } else {
      std::string label = std::holds_alternative<Input>(node.op)       ? "input " + std::to_string(std::get<Input>(node.op).param)
                          : std::holds_alternative<Output>(node.op)    ? "output " + std::to_string(std::get<Output>(node.op).result)
                          : std::holds_alternative<Transpose>(node.op) ? "transpose"
                                                                       : p.head(node.op);
      if (node.first_value >= 0) label += "\\n" + to_string(g.type(node.first_value));
      out += indent + id + " [shape=box,label=\"" + label + "\"];\n";
    }
    for (ValueId v : node.operands) out += indent + prefix + std::to_string(g.value(v).node) + " -> " + id + ";\n";
  }
}

}  // namespace

std::string dot(const Graph& g, const std::string& name) {
  std::string out = "digraph \"" + name + "\" {\n  compound=true;\n";
  dot_body(g, "n", "  ", out);
  return out + "}\n";
}

}  // namespace mirage

// Programs as text; parse.cc reads it back. docs/schedule.md has the grammar.
#include <algorithm>

#include <fmt/format.h>

#include "mirage/schedule/program.h"
#include "mirage/schedule/words.h"

namespace mirage::schedule {
namespace {

/// How tightly an operator binds: a sum, a product, anything else.
enum Binding { kSum = 1, kProduct = 2, kTight = 3 };

struct Text { std::string text; int binding = kTight; };

struct Printer {
  const KernelProgram& p;
  std::vector<PlaceId> reads = {};
  std::vector<bool> declared = std::vector<bool>(p.places.size(), false);

  const Node& def(ValueId v) const { return p.body.def(v); }

  std::string index_list(const std::vector<IndexId>& of) const {
    std::string out;
    for (IndexId i : of) out += (out.empty() ? "" : ",") + (i < 0 ? "1" : p.indices[at(i)].name);
    return out;
  }

  // ---- expressions
  std::string within(const Text& x, int binding) const { return x.binding < binding ? "(" + x.text + ")" : x.text; }
  Text infix(const char* sign, int binding, const std::vector<ValueId>& o) const {
    return {within(expression(o[0]), binding) + sign + within(expression(o[1]), binding + 1), binding};
  }
  std::string list(const std::vector<ValueId>& o) const {
    std::string out;
    for (ValueId v : o) out += (out.empty() ? "" : ", ") + expression(v).text;
    return out;
  }
  Text expression(ValueId v, PlaceId to = -1) const {
    for (PlaceId r : reads) if (p.places[at(r)].value == v && r != to) return {p.places[at(r)].name};
    const Node& n = def(v);
    if (const auto* c = std::get_if<Const>(&n.op)) return {fmt::format("{}", c->value), c->value < 0 ? kSum : kTight};
    if (std::holds_alternative<MatMul>(n.op)) return infix(" @ ", kProduct, n.operands);
    if (const auto* m = std::get_if<Map>(&n.op)) {
      for (const Infix& i : kInfix) if (i.fn == m->fn) return infix(i.sign, i.is_product ? kProduct : kSum, n.operands);
      return {fmt::format("{}({})", map_info(m->fn).name, list(n.operands))};
    }
    if (const auto* r = std::get_if<Reduce>(&n.op)) {
      const IndexId i = p.index_of[at(n.operands[0])][at(r->dim)];
      return {fmt::format("{}({}, {})", reduce_name(r->fn), list(n.operands), i >= 0 ? p.indices[at(i)].name : std::to_string(r->dim))};
    }
    if (std::holds_alternative<Running>(n.op)) return {fmt::format("running({})", list(n.operands))};
    if (const auto* t = std::get_if<Transpose>(&n.op)) {
      std::string perm;
      for (int d = 0; d < p.body.dims(n.operands[0]).rank(); d++) perm += fmt::format(" {}", t->perm[at(d)]);
      return {fmt::format("transpose({},{})", list(n.operands), perm)};
    }
    return {fmt::format("?{}", form_name(n.op))};
  }

  // ---- places
  std::string place(PlaceId id) {
    const Place& x = p.places[at(id)];
    declared[at(id)] = true;
    std::string out = dtype_name(x.dtype);
    if (x.in_slots) out += " slots";
    else if (x.section < 0) out += std::string(" ") + layout_info(x.layout).name;
    else out += (x.over ? " over " : " ") + p.sections[at(x.section)].name + (x.step ? fmt::format(".{}", x.step) : "");
    if (!x.box.empty()) out += fmt::format(" {}", fmt::join(x.box, "x"));
    if (x.columns) out += " columns";
    if (x.pitch) out += fmt::format(" pitch {}", x.pitch);
    if (x.swizzle) out += fmt::format(" swizzle {}", x.swizzle);
    if (x.even_first) out += " even_first";
    if (x.gap) out += " gap";
    if (x.apart) out += fmt::format(" apart {}", x.apart);
    if (x.instead >= 0) out += " instead " + p.places[at(x.instead)].name;
    if (x.scaled) out += " scaled";
    if (x.deferred) out += " deferred";
    return out;
  }

  std::string compute(const Stage& s) {
    reads = s.reads;
    const Place& to = p.places[at(s.to)];
    std::string out = to.name;
    const Accum* a = std::get_if<Accum>(&def(to.value).op);
    if (a && std::none_of(reads.begin(), reads.end(), [&](PlaceId r) { return p.places[at(r)].value == to.value; })) {
      out += (a->fn == ReduceFn::kMax ? " max= " : " += ") + expression(def(to.value).operands[0]).text;
      if (a->degree) out += fmt::format(" rescaled {} by {}", a->degree, expression(def(to.value).operands[1]).text);
    } else {
      out += " = " + expression(to.value, s.to).text;
    }
    out += " : " + place(s.to);
    if (s.unit != UnitId::kNone) out += std::string(" ") + unit_info(s.unit).name;
    if (s.swap) out += " swap";
    if (s.warps != std::array<int, 3>{1, 1, 1}) out += fmt::format(" warps {}", fmt::join(s.warps, "x"));
    if (s.team) out += fmt::format(" team {}", s.team);
    return out + (s.rides ? " rides" : "") + through(s);
  }

  std::string stage(StageId id) {
    const Stage& s = p.stages[at(id)];
    if (s.kind == Stage::Kind::kCompute) return compute(s);
    if (s.kind == Stage::Kind::kStore)
      return fmt::format("store {} = {} by {}", s.result, p.places[at(s.reads[0])].name, way_info(s.way).name) +
             (s.evict_first ? " evict_first" : "") + apart(s) + through(s);
    if (s.kind == Stage::Kind::kCopy) {
      const Place& to = p.places[at(s.to)];
      std::string out = fmt::format("{} = param {} [{}] : {} {}", to.name, std::get<Input>(def(to.value).op).param,
                                    index_list(p.index_of[at(to.value)]), place(s.to), path_info(s.path).name);
      if (s.ahead) out += fmt::format(" ahead {}", s.ahead);
      return out + (s.evict_first ? " evict_first" : "") + (s.multicast ? " multicast" : "") + (s.rides ? " rides" : "");
    }
    std::string out = "fold ";
    for (size_t i = 0; i < s.reads.size(); i++) out += (i ? ", " : "") + p.places[at(s.reads[i])].name;
    out += " over ";
    for (size_t i = 0; i < s.over.size(); i++) out += (i ? ", " : "") + axis_name(p, s.over[i]);
    return out + " by " + way_info(s.way).name + through(s);
  }
  std::string apart(const Stage& s) const {
    std::string out;
    for (const auto& [a, dim] : s.apart) out += fmt::format(" {} along {}", axis_name(p, a), dim);
    return out;
  }
  std::string through(const Stage& s) {
    std::string out;
    for (size_t i = 0; i < s.through.size(); i++) {
      out += (i ? ", " : " through ") + p.places[at(s.through[i])].name;
      if (!declared[at(s.through[i])]) out += " : " + place(s.through[i]);
    }
    return out;
  }

  // ---- the head
  std::string param(const Param& x) const {
    std::string out = to_string(Type{x.dtype, x.dims});
    if (x.position >= 0)
      return out + fmt::format(" position {}", x.position) + (x.position_div != 1 ? fmt::format(" divided {}", x.position_div) : "") +
             (x.position_period != 0 ? fmt::format(" modulo {}", x.position_period) : "");
    if (!(x.strides == row_major_strides(x.dims))) out += " strides " + to_string(x.strides);
    if (x.offset) out += fmt::format(" offset {}", x.offset);
    if (x.run) out += fmt::format(" runs {} by {}", x.run, x.jump);
    if (x.second.dim >= 0)
      out += fmt::format(" second {} strides {} offset {}", x.second.dim, to_string(x.second.strides), x.second.offset);
    if (x.in >= 0) out += fmt::format(" in {}", x.in);
    return out + (x.tf32 ? " tf32" : "");
  }
  std::string index(const Index& x) const {
    return x.first ? fmt::format("{} {} = {} + {}", x.name, x.extent, x.first, x.extent - x.first) : fmt::format("{} {}", x.name, x.extent);
  }
  std::string beside(const Beside& x) const {
    std::string out = fmt::format("  beside {} {} {{\n", p.indices[at(x.index)].name, x.extent);
    for (const auto& [i, to] : x.params) out += fmt::format("    param {} {}\n", i, param(to));
    for (const auto& [i, to] : x.results) out += fmt::format("    result {} {}\n", i, param(to));
    return out + "  }\n";
  }
  std::string split(const Split& s) const {
    std::string out = fmt::format("  {} {}{} by {}", s.reduced ? "reduce" : "split",
                                  s.outer < 0 ? "" : p.indices[at(s.outer)].name + ", ", p.indices[at(s.index)].name, s.tile);
    if (s.behind >= 0) out += " behind " + p.indices[at(s.behind)].name;
    for (size_t i = 0; i < s.over.size(); i++) {
      const Axis& a = p.axes[at(s.over[i])];
      if (p.split_of_axis(s.over[i]) != &s) { out += (i ? ", " : " over ") + a.name; continue; }   // another index is cut by it, too
      out += fmt::format("{}{} {} {}{}", i ? ", " : " over ", a.name, a.extent, kAxisKinds[static_cast<size_t>(a.kind)],
                         a.each ? fmt::format(" each {}", a.each) : "");
    }
    return out + (s.rotated ? " rotated" : "") + (s.live ? " live\n" : "\n");
  }
  std::string section(const Section& x) const {
    std::string out = "  shared " + x.name;
    if (x.barriers) out += " mbarriers";
    if (x.reused) out += " reused";
    if (x.owners != 1) out += fmt::format(" owners {}", x.owners);
    if (x.slots != 1) out += fmt::format(" slots {}", x.slots);
    out += fmt::format(" align {}", x.align);
    return out + (x.spare ? fmt::format(" spare {}\n", x.spare) : "\n");
  }
  std::string assumption(const Assumption& a) const {
    return fmt::format("{}{} {} {}", a.answer ? "" : "not ", p.indices[at(a.index)].name,
                       a.test == Assumption::Test::kDivides ? "%" : "<=", a.number);
  }

  std::string program() {
    std::string out = fmt::format("kernel {} {{\n", p.name);
    for (size_t i = 0; i < p.params.size(); i++) out += fmt::format("  param {} {}\n", i, param(p.params[i]));
    for (size_t i = 0; i < p.results.size(); i++) out += fmt::format("  result {} {}\n", i, param(p.results[i]));
    for (size_t i = 0; i < p.indices.size(); i++)
      out += (i ? ", " : "  index ") + index(p.indices[i]);
    if (!p.indices.empty()) out += "\n";
    for (size_t i = 0; i < p.assumes.size(); i++) out += (i ? ", " : "  assume ") + assumption(p.assumes[i]);
    if (!p.assumes.empty()) out += "\n";
    for (const Split& s : p.splits) out += split(s);
    for (const Section& s : p.sections) out += section(s);
    if (p.per_sm != 1) out += fmt::format("  per_sm {}\n", p.per_sm);
    if (p.panel != 1) out += fmt::format("  panel {}\n", p.panel);
    if (p.stay) out += fmt::format("  stay {}\n", p.stay);
    if (p.cooperative) out += "  cooperative\n";
    if (p.throughput) out += "  throughput\n";
    for (const Beside& x : p.beside) out += beside(x);
    for (const Role& r : p.roles) {
      out += fmt::format("  role {} {} warps{}{} {{\n", r.name, r.warps, r.registers ? fmt::format(" regs {}", r.registers) : "",
                         r.turns ? " turns" : "");
      for (const Item& i : r.items) {
        if (i.stage >= 0) { out += "    " + stage(i.stage) + "\n"; continue; }
        out += fmt::format("    for {} {{\n", p.axes[at(i.loop)].name);
        for (StageId s : i.body) out += "      " + stage(s) + "\n";
        out += "    }\n";
      }
      out += "  }\n";
    }
    return out + "}\n";
  }
};

}  // namespace

std::string print(const KernelProgram& p) { return Printer{p}.program(); }
std::string stage_text(const KernelProgram& p, StageId s) { return Printer{p}.stage(s); }

}  // namespace mirage::schedule

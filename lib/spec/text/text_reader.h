// Reads the text form of graphs by recursive descent, character by character. The printer is lib/ir/print.cc; docs/spec.md has the grammar.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>
#include "mirage/ir/graph.h"
#include "spec/report.h"

namespace mirage::spec {

/// A graph as text said it, with what a text spec needs beside it.
struct TextGraph {
  std::string name;                          ///< "" if none was given
  Span name_where;
  bool exact = false;                        ///< "intermediates(exact)"
  Graph graph;
  struct Port { std::string name; Span where; bool typed = true; };   ///< typed: an output's dtype was written
  std::vector<Span> node_where;              ///< by node
  std::set<ValueId> named;                   ///< what has a name of its own; the rest stands within expressions
  std::map<int, Port> inputs, outputs;       ///< by param and result; an output that is no plain name has name ""
};

class TextReader {
 public:
  TextReader(std::string_view text, Report& report) : s_(text), report_(report) {}
  std::optional<TextGraph> read();

 private:
  /// One graph being read: names are visible in their own graph only.
  struct Scope {
    Builder builder;
    std::map<std::string, ValueId, std::less<>> names;
    std::map<int, TextGraph::Port> inputs, outputs;
    std::vector<Span> node_where;
  };

  // text_reader.cc: graphs, statements, expressions
  Graph read_body(Level, Scope&);
  void read_statement(Scope&);
  void read_input(Scope&, const std::string& name, Span);
  void read_output(Scope&);
  std::vector<ValueId> read_expression(Scope&);          ///< what stands behind '=' or inside parentheses
  std::vector<ValueId> read_call(Scope&, Level, Span);
  ValueId read_operand(Scope&);
  std::optional<ValueId> try_operand(Scope&);            ///< nullopt: the next thing is no operand of this expression
  std::vector<ValueId> add(Scope&, Op, std::vector<ValueId>, Span);
  Op read_head(std::string_view word, Span);             ///< attributes of an operator, up to its operands
  Op read_const();
  Op read_slice();
  Op read_transpose();
  // text_scan.cc: words, numbers, shapes
  [[noreturn]] void fail(DiagCode, Span, std::string text, std::vector<Note> notes = {}) const;
  void skip();
  bool at_end();
  bool peek(std::string_view);
  bool take(std::string_view);                           ///< punctuation
  bool take_word(std::string_view);
  void expect(std::string_view);
  std::string read_word(Span&);                          ///< [A-Za-z0-9_.]+, may be empty
  std::string read_name(Span&);                          ///< after '%'
  bool starts_statement();                               ///< "%a =", "%a, %b =", "output", "}"
  int64_t read_int(int64_t low, int64_t high, const char* what);
  double read_number();
  bool at_number();
  Dims read_dims();
  Type read_type();
  DType read_dtype();
  int8_t read_partition_dim();
  std::array<int8_t, 3> read_partition_grid();
  Launch read_launch();

  std::string_view s_;
  Report& report_;
  size_t i_ = 0;
  int depth_ = 0;
  int num_nodes_ = 0;
};

}  // namespace mirage::spec

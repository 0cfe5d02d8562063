// Programs as terms that can be rewritten: a DAG of operators with extents, and its µGraph text. Shapes are made here, so that a rewriting
// never asks lib/.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "mirage/support/hash.h"
#include "trust/random/own_eval.h"

namespace mirage::test {

struct Term;
using P = std::shared_ptr<const Term>;

/// op: the word of the text form; "call" has the body's text in `text`. `n`: dimension, then what else the form has.
struct Term {
  std::string op;
  std::vector<P> in;
  Extents dims;
  bool is_bool = false;
  std::vector<int64_t> n;
  double value = 0;        ///< const
  std::string text, dtype; ///< call, input
  bool is_infinite = false;   ///< minus infinity occurs beneath
};

// Constructors. Requires operands that fit; the generator draws only such.
P input(int param, Extents dims, const std::string& dtype);
P constant(double v);
P iota(int dim, Extents dims);
P map(const std::string& fn, std::vector<P> in);
P matmul(P a, P b);
P reduce(bool is_sum, int dim, P x, int64_t group = 0);
P reshape(Extents dims, P x);
P transpose(std::vector<int64_t> perm, P x);
P slice(int dim, int64_t start, int64_t stop, P x, int64_t step = 1);
P concat(int dim, std::vector<P> in);
P repeat(int dim, int64_t count, P x);
P call(const std::string& launch, std::vector<P> in, const std::string& body, Extents dims);

inline P operator+(P a, P b) { return map("add", {std::move(a), std::move(b)}); }
inline P operator-(P a, P b) { return map("sub", {std::move(a), std::move(b)}); }
inline P operator*(P a, P b) { return map("mul", {std::move(a), std::move(b)}); }
inline P operator/(P a, P b) { return map("div", {std::move(a), std::move(b)}); }
inline P where(P c, P a, P b) { return map("where", {std::move(c), std::move(a), std::move(b)}); }
inline P sum(int dim, P x) { return reduce(true, dim, std::move(x)); }
inline P max(int dim, P x) { return reduce(false, dim, std::move(x)); }

bool is_map(const P&);
bool is(const P&, const char* op);
bool is_constant(const P&, double v);
/// 1: positive wherever it is defined; 0: not negative; -1: anything.
int sign_of(const P&);
bool same(const P&, const P&);   ///< the same term, by structure

std::vector<P> nodes_of(const P& root);                       ///< every node once, operands first
P with(const P& root, const P& old, const P& now);            ///< root with every occurrence of `old` (by identity) replaced
P again(const Term&, std::vector<P> in);                      ///< the same operator on other operands

/// A program: its inputs (all of them, used or not) and one result.
struct RandomProgram {
  std::vector<P> inputs;
  P result;
};
std::string text_of(const RandomProgram&);


}  // namespace mirage::test

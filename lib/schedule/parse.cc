// Reads the text form of programs. Bounded: what a hostile text can ask for is small multiples of its length.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "mirage/schedule/program.h"
#include "mirage/schedule/words.h"

namespace mirage::schedule {
namespace {

constexpr size_t kMostText = size_t{1} << 20, kMostStatements = 4096;
constexpr int kDeepest = 64;
constexpr int64_t kMostExtent = int64_t{1} << 40;   // elements of a tensor, as in specs
constexpr int64_t kMostPlace = int64_t{1} << 31;    // bytes: no sum of what follows overflows

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

struct Failure { size_t from, length; std::string text, hint; };

class Reader {
 public:
  explicit Reader(std::string_view text) : s_(text) {}

  KernelProgram read() {
    if (s_.size() > kMostText) fail(0, 1, "a schedule has at most 1 MiB");
    expect("kernel");
    p_.name = word("a name");
    expect("{");
    while (!take("}")) statement();
    if (skip(); i_ != s_.size()) fail(i_, 1, "text behind the program");
    finish();
    return std::move(p_);
  }

 private:
  // ---- letters and words
  [[noreturn]] void fail(size_t from, size_t length, std::string text, std::string hint = "") const {
    throw Failure{from, length, std::move(text), std::move(hint)};
  }
  void skip() {
    while (i_ < s_.size()) {
      if (s_[i_] == ' ' || s_[i_] == '\t' || s_[i_] == '\n' || s_[i_] == '\r') i_++;
      else if (s_[i_] == '#') while (i_ < s_.size() && s_[i_] != '\n') i_++;
      else return;
    }
  }
  bool peek(std::string_view w) {
    skip();
    if (!s_.substr(i_).starts_with(w)) return false;
    return !is_letter(w.back()) || i_ + w.size() == s_.size() || !(is_letter(s_[i_ + w.size()]) || is_digit(s_[i_ + w.size()]));
  }
  bool take(std::string_view w) {
    if (!peek(w)) return false;
    i_ += w.size();
    return true;
  }
  void expect(std::string_view w) { if (!take(w)) fail(i_, 1, fmt::format("expected '{}'", w)); }
  bool at_word() { skip(); return i_ < s_.size() && is_letter(s_[i_]); }
  bool at_digit() { skip(); return i_ < s_.size() && is_digit(s_[i_]); }
  std::string word(const char* what) {
    if (!at_word()) fail(i_, 1, fmt::format("expected {}", what));
    from_ = i_;
    while (i_ < s_.size() && (is_letter(s_[i_]) || is_digit(s_[i_]))) i_++;
    if (i_ - from_ > 128) fail(from_, i_ - from_, "a name has at most 128 letters");
    return std::string(s_.substr(from_, i_ - from_));
  }
  [[noreturn]] void unknown(const char* what, const std::string& name, const std::vector<std::string>& known) const {
    const std::string near = nearest(name, known);
    fail(from_, name.size(), fmt::format("there is no {} '{}'", what, name), near.empty() ? "" : fmt::format("did you mean '{}'?", near));
  }
  int64_t number(int64_t least = 0, int64_t most = kMostExtent) {
    skip();
    from_ = i_;
    const bool negative = i_ < s_.size() && s_[i_] == '-';
    if (negative) i_++;
    int64_t x = 0;
    const size_t digits = i_;
    while (i_ < s_.size() && is_digit(s_[i_]) && x <= kMostExtent) x = 10 * x + (s_[i_++] - '0');
    if (digits == i_) fail(i_, 1, "expected a number");
    if (negative) x = -x;
    if (x < least || x > most) fail(from_, i_ - from_, fmt::format("a number from {} to {} belongs here", least, most));
    return x;
  }
  int small(int64_t least = 0) { return static_cast<int>(number(least, 1 << 30)); }
  template <class T> int row(const std::vector<T>& rows, const char* what) {
    const std::string name = word(what);
    std::vector<std::string> known;
    for (size_t i = 0; i < rows.size(); i++) {
      if (rows[i].name == name) return static_cast<int>(i);
      known.push_back(rows[i].name);
    }
    unknown(what, name, known);
  }
  template <class T> void unused(const std::vector<T>& rows, const std::string& name) const {
    for (const T& r : rows) if (r.name == name) fail(from_, name.size(), fmt::format("the name '{}' is used twice", name));
  }

  // ---- the head
  void statement() {
    if (++statements_ > kMostStatements) fail(i_, 1, "a schedule has at most 4096 statements");
    if (take("param")) return params(p_.params);
    if (take("result")) return params(p_.results);
    if (take("index")) return index();
    if (take("assume")) return assumptions();
    if (take("split")) return split(false);
    if (take("reduce")) return split(true);
    if (take("shared")) return section();
    if (take("per_sm")) { p_.per_sm = static_cast<int>(number(1, 32)); return; }
    if (take("panel")) { p_.panel = number(2, 1 << 20); return; }
    if (take("stay")) { p_.stay = number(1, int64_t{1} << 31); return; }
    if (take("cooperative")) { p_.cooperative = true; return; }
    if (take("throughput")) { p_.throughput = true; return; }
    if (take("beside")) return beside();
    if (take("role")) return role();
    const std::string name = word("a statement");
    unknown("statement", name,
            {"param", "result", "index", "assume", "split", "reduce", "shared", "per_sm", "panel", "stay", "cooperative", "throughput",
             "beside", "role"});
  }
  Dims dims(int64_t least) {
    Dims out;
    expect("[");
    while (!take("]")) {
      if (out.rank() == kMaxRank) fail(i_, 1, "a tensor has at most 8 dimensions");
      out.push_back(number(least));
      if (!peek("]")) expect(",");
    }
    return out;
  }
  DType dtype() {
    const std::string name = word("an element type");
    const auto t = parse_dtype(name);
    if (!t) unknown("element type", name, {"f16", "bf16", "f32", "bool", "real", "i32", "i64"});
    return *t;
  }
  void params(std::vector<Param>& to) {
    if (number() != static_cast<int64_t>(to.size())) fail(from_, i_ - from_, fmt::format("the next one is {}", to.size()));
    to.push_back(param());
  }
  Param param() {
    Param x;
    x.dtype = dtype();
    x.dims = dims(1);
    double elements = 1;
    for (int64_t e : x.dims) elements *= static_cast<double>(e);
    if (elements > static_cast<double>(kMostExtent)) fail(from_, 1, "a tensor has at most 2^40 elements");
    x.strides = row_major_strides(x.dims);
    for (;;) {
      if (take("strides")) {
        x.strides = dims(0);
        if (x.strides.rank() != x.dims.rank()) fail(i_, 1, "a stride for each dimension");
      } else if (take("offset")) x.offset = number();
      else if (take("runs")) { x.run = number(1); expect("by"); x.jump = number(1); }
      else if (take("position")) position(x);
      else if (take("second")) second(x);
      else if (take("in")) x.in = static_cast<int>(number(0, std::max<int64_t>(0, static_cast<int64_t>(p_.params.size()) - 1)));
      else if (take("tf32")) x.tf32 = true;
      else return x;
    }
  }
  void position(Param& x) {
    x.position = static_cast<int>(number(0, std::max(0, x.dims.rank() - 1)));
    const int64_t extent = x.dims.rank() ? x.dims[x.position] : 1;
    if (take("divided")) x.position_div = number(1, extent);
    if (take("modulo")) x.position_period = number(1, extent / x.position_div);
  }
  void second(Param& x) {
    x.second.dim = static_cast<int>(number(0, std::max(0, x.dims.rank() - 1)));
    expect("strides");
    x.second.strides = dims(0);
    if (x.second.strides.rank() != x.dims.rank()) fail(i_, 1, "a stride for each dimension");
    expect("offset");
    x.second.offset = number();
  }
  void beside() {
    Beside x;
    x.index = row(p_.indices, "index");
    x.extent = number(1);
    expect("{");
    const auto one = [&](const std::vector<Param>& of, std::vector<std::pair<int, Param>>& to) {
      const auto i = static_cast<int>(number());
      if (at(i) >= of.size()) fail(from_, i_ - from_, fmt::format("the kernel has {} of these", of.size()));
      const size_t from = (skip(), i_);
      to.emplace_back(i, param());
      if (to.back().second.dims.rank() != of[at(i)].dims.rank()) fail(from, 1, "the same kernel has as many dimensions");
    };
    while (!take("}")) {
      if (take("param")) one(p_.params, x.params);
      else { expect("result"); one(p_.results, x.results); }
    }
    p_.beside.push_back(std::move(x));
  }
  void index() {
    do {
      const std::string name = word("an index");
      unused(p_.indices, name);
      Index x{name, number(1), 0};
      if (take("=")) {
        x.first = number(1, x.extent - 1);
        expect("+");
        number(x.extent - x.first, x.extent - x.first);
      }
      p_.indices.push_back(std::move(x));
    } while (take(","));
  }
  void assumptions() {
    do {
      Assumption a;
      a.answer = !take("not");
      a.index = row(p_.indices, "index");
      a.test = take("<=") ? Assumption::Test::kAtMost : (expect("%"), Assumption::Test::kDivides);
      a.number = number(1);
      p_.assumes.push_back(a);
    } while (take(","));
  }
  void split(bool reduced) {
    Split s;
    s.reduced = reduced;
    s.index = row(p_.indices, "index");
    if (p_.split_of(s.index)) fail(from_, i_ - from_, "an index is split once");
    if (take(",")) {
      s.outer = s.index;
      s.index = row(p_.indices, "index");
      if (p_.split_of(s.index) || s.index == s.outer) fail(from_, i_ - from_, "an index is split once");
    }
    expect("by");
    s.tile = number(1);
    if (take("behind")) s.behind = row(p_.indices, "index");
    if (take("over")) {
      do {
        Axis a;
        a.name = word("an axis");
        if (!at_digit()) {   // one that cuts another index, too
          s.over.push_back(known_axis(a.name));
          continue;
        }
        unused(p_.axes, a.name);
        a.extent = number(1, int64_t{1} << 31);
        const std::string kind = word("the kind of an axis");
        const auto k = std::find(std::begin(kAxisKinds), std::end(kAxisKinds), kind);
        if (k == std::end(kAxisKinds)) unknown("kind of axis", kind, {std::begin(kAxisKinds), std::end(kAxisKinds)});
        a.kind = static_cast<AxisKind>(k - std::begin(kAxisKinds));
        if (take("each")) a.each = number(1, int64_t{1} << 31);
        s.over.push_back(static_cast<AxisId>(p_.axes.size()));
        p_.axes.push_back(a);
      } while (take(","));
    }
    s.rotated = take("rotated");
    s.live = take("live");
    p_.splits.push_back(std::move(s));
  }
  AxisId known_axis(const std::string& name) const {
    std::vector<std::string> known;
    for (size_t i = 0; i < p_.axes.size(); i++) {
      if (p_.axes[i].name == name) return static_cast<AxisId>(i);
      known.push_back(p_.axes[i].name);
    }
    unknown("axis", name, known);
  }
  void section() {
    Section x;
    x.name = word("a name");
    unused(p_.sections, x.name);
    if (x.name == "slots" || table<LayoutId>(x.name, layout_info, kLayouts))
      fail(from_, x.name.size(), fmt::format("'{}' is a word of the language", x.name));
    for (;;) {
      if (take("mbarriers")) x.barriers = true;
      else if (take("reused")) x.reused = true;
      else if (take("owners")) x.owners = static_cast<int>(number(1, 64));
      else if (take("slots")) x.slots = static_cast<int>(number(1, 4096));
      else if (take("align")) x.align = number(1, 1024);
      else if (take("spare")) x.spare = number(1, 1 << 20);
      else break;
    }
    p_.sections.push_back(x);
  }

  // ---- roles and stages
  void role() {
    Role r;
    r.name = word("a name");
    unused(p_.roles, r.name);
    r.warps = static_cast<int>(number(0, 32));
    expect("warps");
    if (take("regs")) r.registers = static_cast<int>(number(24, 255));
    r.turns = take("turns");
    expect("{");
    while (!take("}")) {
      Item item;
      if (take("for")) {
        item.loop = row(p_.axes, "axis");
        expect("{");
        while (!take("}")) item.body.push_back(stage());
      } else {
        item.stage = stage();
      }
      r.items.push_back(std::move(item));
    }
    p_.roles.push_back(std::move(r));
  }
  PlaceId declare(const std::string& name, ValueId v) {
    unused(p_.places, name);
    Place x;
    x.name = name;
    x.value = v;
    placement(x);
    p_.places.push_back(std::move(x));
    return static_cast<PlaceId>(p_.places.size()) - 1;
  }
  template <class Id, class Info> std::optional<Id> table(const std::string& name, const Info& info, int count) const {
    for (int i = 0; i < count; i++) if (info(static_cast<Id>(i)).name == name) return static_cast<Id>(i);
    return std::nullopt;
  }
  void placement(Place& x) {
    x.dtype = dtype();
    const bool over = take("over");
    const std::string where = word("a layout or a section");
    if (where == "slots") x.in_slots = true;
    else if (const auto l = over ? std::nullopt : table<LayoutId>(where, layout_info, kLayouts)) x.layout = *l;
    else {
      std::vector<std::string> known;
      for (const Section& s : p_.sections) known.push_back(s.name);
      const auto s = static_cast<size_t>(std::find(known.begin(), known.end(), where) - known.begin());
      if (!over) for (int i = 0; i < kLayouts; i++) known.push_back(layout_info(static_cast<LayoutId>(i)).name);
      if (s >= p_.sections.size()) unknown(over ? "section" : "layout or section", where, known);
      x.section = static_cast<int>(s);
      x.over = over;
      if (take(".")) x.step = static_cast<int>(number(0, 4096));
    }
    if (at_digit()) {
      do x.box.push_back(number(1, int64_t{1} << 31)); while (x.box.size() < 8 && by());
    }
    x.columns = take("columns");
    if (take("pitch")) x.pitch = number(1, 1 << 16);
    double bytes = x.pitch ? static_cast<double>(x.pitch) : 8;
    for (int64_t e : x.box) bytes *= static_cast<double>(e);
    if (bytes > static_cast<double>(kMostPlace)) fail(from_, i_ - from_, "a place of that size is in no memory");
    if (take("swizzle")) x.swizzle = static_cast<int>(number(32, 128));
    x.even_first = take("even_first");
    x.gap = take("gap");
    if (take("apart")) x.apart = static_cast<int>(number(1, 64));
    if (take("instead")) x.instead = row(p_.places, "place");
    x.scaled = take("scaled");
    x.deferred = take("deferred");
  }

  /// The x of "64x128", which is no word.
  bool by() {
    if (i_ == s_.size() || s_[i_] != 'x') return false;
    i_++;
    return true;
  }

  StageId stage() {
    if (++statements_ > kMostStatements) fail(i_, 1, "a schedule has at most 4096 statements");
    Stage s;
    if (take("fold")) fold(s);
    else if (take("store")) store(s);
    else define(s);
    p_.stages.push_back(std::move(s));
    return static_cast<StageId>(p_.stages.size()) - 1;
  }
  WayId way() {
    const std::string name = word("a way");
    const auto w = table<WayId>(name, way_info, kWays);
    std::vector<std::string> known;
    for (int i = 0; i < kWays; i++) known.push_back(way_info(static_cast<WayId>(i)).name);
    if (!w) unknown("way", name, known);
    return *w;
  }
  void fold(Stage& s) {
    s.kind = Stage::Kind::kFold;
    do s.reads.push_back(row(p_.places, "place")); while (take(","));
    expect("over");
    do s.over.push_back(take("lanes") ? kLanes : take("warps") ? kWarps : row(p_.axes, "axis")); while (take(","));
    expect("by");
    s.way = way();
    through(s, p_.places[at(s.reads.back())].value);
  }
  void through(Stage& s, ValueId v) {
    if (!take("through")) return;
    do {
      const std::string name = word("a place");
      if (take(":")) { s.through.push_back(declare(name, v)); continue; }
      const auto known = std::find_if(p_.places.begin(), p_.places.end(), [&](const Place& x) { return x.name == name; });
      if (known == p_.places.end()) fail(from_, name.size(), fmt::format("there is no place '{}'", name));
      s.through.push_back(static_cast<PlaceId>(known - p_.places.begin()));
    } while (take(","));
  }
  void store(Stage& s) {
    s.kind = Stage::Kind::kStore;
    const size_t from = (skip(), i_);
    s.result = static_cast<int>(number(0, std::max<int64_t>(0, static_cast<int64_t>(p_.results.size()) - 1)));
    expect("=");
    s.reads.push_back(row(p_.places, "place"));
    expect("by");
    s.way = way();
    s.evict_first = take("evict_first");
    through(s, p_.places[at(s.reads[0])].value);
    if (stored_.count(s.result)) fail(from, 1, "this result is stored twice");
    stored_[s.result] = s.reads[0];
  }
  void define(Stage& s) {
    const std::string name = word("a stage");
    const size_t from = from_;
    if (take("+=")) return compute(s, name, from, ReduceFn::kSum);
    if (take("max")) { expect("="); return compute(s, name, from, ReduceFn::kMax); }
    expect("=");
    if (take("param")) return copy(s, name);
    compute(s, name, from, std::nullopt);
  }
  void copy(Stage& s, const std::string& name) {
    s.kind = Stage::Kind::kCopy;
    const int param = static_cast<int>(number(0, std::max<int64_t>(0, static_cast<int64_t>(p_.params.size()) - 1)));
    if (p_.params.empty()) fail(from_, 1, "there is no parameter");
    const Type type{p_.params[at(param)].dtype, p_.params[at(param)].dims};
    std::vector<IndexId> of;
    expect("[");
    while (!take("]")) {
      of.push_back(at_digit() ? (number(1, 1), -1) : row(p_.indices, "index"));
      const int d = static_cast<int>(of.size()) - 1;
      if (d >= type.dims.rank()) fail(from_, i_ - from_, fmt::format("parameter {} has {} dimensions", param, type.dims.rank()));
      const int64_t extent = of.back() < 0 ? 1 : p_.indices[at(of.back())].extent;
      if (type.dims[d] != extent)
        fail(from_, i_ - from_, fmt::format("dimension {} of parameter {} has {} elements, the index {}", d, param, type.dims[d], extent));
      if (p_.params[at(param)].second.dim == d && (of.back() < 0 || p_.indices[at(of.back())].first == 0))
        fail(from_, i_ - from_, fmt::format("parameter {} lies in two parts along dimension {}, the index has one", param, d));
      if (!peek("]")) expect(",");
    }
    if (static_cast<int>(of.size()) != type.dims.rank())
      fail(i_, 1, fmt::format("parameter {} has {} dimensions", param, type.dims.rank()));
    const auto key = std::make_pair(param, of);
    if (!inputs_.count(key)) {
      Partition part;
      for (size_t d = 0; d < of.size(); d++)
        if (const Split* x = of[d] < 0 ? nullptr : p_.split_of(of[d]); x && x->reduced && (x->outer < 0 || x->outer == of[d]))
          part.loop = static_cast<int8_t>(d);
      inputs_[key] = builder_.add_input(param, type, part);
      p_.index_of.push_back(of);
    }
    expect(":");
    s.to = declare(name, inputs_[key]);
    const std::string path = word("a path");
    const auto id = table<PathId>(path, path_info, kPaths);
    if (!id) unknown("path", path, {"tma", "cp_async", "ld", "index", "same"});
    s.path = *id;
    if (take("ahead")) s.ahead = small(1);
    s.evict_first = take("evict_first");
    s.multicast = take("multicast");
    s.rides = take("rides");
  }
  void compute(Stage& s, const std::string& name, size_t from, std::optional<ReduceFn> accumulates) {
    reads_ = &s.reads;
    ValueId v = expression(0);
    if (accumulates) {
      Accum a{*accumulates, 0};
      std::vector<ValueId> operands{v};
      if (take("rescaled")) {
        a.degree = static_cast<int>(number(1, kMaxDegree));
        expect("by");
        operands.push_back(primary(0));
      }
      v = add(a, std::move(operands), from, name.size());
    }
    expect(":");
    s.to = declare(name, v);
    std::vector<std::string> known;
    if (at_word()) {
      const size_t back = i_;
      const std::string unit = word("a unit");
      if (const auto id = table<UnitId>(unit, unit_info, kUnits)) s.unit = *id;
      else i_ = back;
    }
    s.swap = s.unit != UnitId::kNone && take("swap");
    if (take("warps"))
      for (size_t i = 0; i < 3; i++) {
        if (i > 0 && !by()) fail(i_, 1, "warps along rows, columns and the sum: 2x2x1");
        s.warps[i] = static_cast<int>(number(1, 32));
      }
    if (take("team")) s.team = static_cast<int>(number(1, 1024));
    s.rides = take("rides");
    through(s, v);
  }

  // ---- expressions
  ValueId add(Op op, std::vector<ValueId> operands, size_t from, size_t length) {
    std::vector<Type> types;
    std::vector<std::vector<IndexId>> of;
    for (ValueId v : operands) types.push_back(builder_.graph().type(v)), of.push_back(p_.index_of[at(v)]);
    const bool is_simple = std::holds_alternative<Const>(op) || std::holds_alternative<Map>(op) || std::holds_alternative<Transpose>(op);
    if (is_simple)   // what is written twice is one value: what is subtracted from a maximum is what it is the maximum of
      for (ValueId v : same_[operands]) if (builder_.graph().def(v).op == op) return v;
    const auto v = builder_.try_add(op, operands);
    if (!v) fail(from, length, builder_.last_error());
    if (is_simple) same_[operands].push_back(*v);
    p_.index_of.push_back(result_indices(op, types, of, builder_.graph().dims(*v).rank()));
    return *v;
  }
  ValueId expression(int depth) {
    ValueId x = product(depth);
    for (;;) {
      const size_t from = (skip(), i_);
      if (take("+")) x = add(Map{MapFn::kAdd}, {x, product(depth)}, from, 1);
      else if (take("-")) x = add(Map{MapFn::kSub}, {x, product(depth)}, from, 1);
      else return x;
    }
  }
  ValueId product(int depth) {
    ValueId x = primary(depth);
    for (;;) {
      const size_t from = (skip(), i_);
      if (take("*")) x = add(Map{MapFn::kMul}, {x, primary(depth)}, from, 1);
      else if (take("/")) x = add(Map{MapFn::kDiv}, {x, primary(depth)}, from, 1);
      else if (take("@")) x = add(MatMul{}, {x, primary(depth)}, from, 1);
      else return x;
    }
  }
  ValueId constant() {
    const size_t from = (skip(), i_);
    if (i_ < s_.size() && s_[i_] == '-') i_++;
    double x = 0;
    if (take("inf")) x = INFINITY;
    else if (take("nan")) x = NAN;
    else {
      const size_t digits = i_;
      const auto [end, error] = std::from_chars(s_.data() + i_, s_.data() + s_.size(), x);
      i_ = static_cast<size_t>(end - s_.data());
      if (error != std::errc() || i_ == digits || s_[digits] == '-') fail(from, 1, "expected a place, a number or a function");
    }
    if (s_[from] == '-') x = -x;
    return add(Const{x, {}}, {}, from, i_ - from);
  }
  ValueId primary(int depth) {
    if (depth >= kDeepest) fail(i_, 1, "an expression is at most 64 deep");
    if (take("(")) {
      const ValueId x = expression(depth + 1);
      expect(")");
      return x;
    }
    if (!at_word() || peek("inf") || peek("nan")) return constant();
    const std::string name = word("a place");
    const size_t from = from_;
    if (take("(")) return function(name, from, depth + 1);
    for (size_t i = 0; i < p_.places.size(); i++) {
      if (p_.places[i].name != name) continue;
      if (std::find(reads_->begin(), reads_->end(), static_cast<PlaceId>(i)) == reads_->end()) reads_->push_back(static_cast<PlaceId>(i));
      return p_.places[i].value;
    }
    std::vector<std::string> known;
    for (const Place& x : p_.places) known.push_back(x.name);
    unknown("place", name, known);
  }
  ValueId function(const std::string& name, size_t from, int depth) {
    std::vector<ValueId> o{expression(depth)};
    const auto end = [&] { expect(")"); };
    if (name == "sum" || name == "max") {
      expect(",");
      const std::vector<IndexId>& of = p_.index_of[at(o[0])];
      int dim = 0;
      if (at_digit()) dim = static_cast<int>(number(0, kMaxRank - 1));
      else {
        const IndexId i = row(p_.indices, "index");
        dim = static_cast<int>(std::find(of.begin(), of.end(), i) - of.begin());
        if (at(dim) == of.size()) fail(from_, i_ - from_, "no dimension has this index");
      }
      end();
      return add(Reduce{name == "sum" ? ReduceFn::kSum : ReduceFn::kMax, dim, 0}, std::move(o), from, name.size());
    }
    if (name == "running") { end(); return add(Running{}, std::move(o), from, name.size()); }
    if (name == "transpose") {
      expect(",");
      Transpose t;
      size_t n = 0;
      while (!peek(")") && n < kMaxRank) t.perm[n++] = static_cast<int8_t>(number(0, kMaxRank - 1));
      end();
      if (n != at(builder_.graph().dims(o[0]).rank())) fail(from, name.size(), "a permutation names every dimension");
      return add(t, std::move(o), from, name.size());
    }
    const auto fn = parse_map_fn(name);
    if (!fn) {
      std::vector<std::string> known{"sum", "max", "running", "transpose"};
      for (int i = 0; i < num_map_fns(); i++) known.push_back(map_info(static_cast<MapFn>(i)).name);
      from_ = from;
      unknown("function", name, known);
    }
    while (take(",") && o.size() < 3) o.push_back(expression(depth));
    end();
    if (static_cast<int>(o.size()) != map_info(*fn).arity)
      fail(from, name.size(), fmt::format("'{}' takes {} operands", name, map_info(*fn).arity));
    return add(Map{*fn}, std::move(o), from, name.size());
  }

  /// Tensors of a call beside the first have its own extent along its index, and the first one's along the others.
  void check_beside(const Beside& x) const {
    const auto check = [&](const char* what, int i, const Dims& dims, const std::vector<IndexId>& of) {
      for (int d = 0; d < dims.rank(); d++) {
        const IndexId at_d = of[at(d)];
        const int64_t extent = at_d < 0 ? 1 : at_d == x.index ? x.extent : p_.indices[at(at_d)].extent;
        if (dims[d] != extent)
          fail(s_.size(), 1, fmt::format("{} {} has {} elements along {}, {} are beside", what, i, dims[d],
                                         at_d < 0 ? "a dimension" : p_.indices[at(at_d)].name, extent));
      }
    };
    for (const auto& [i, to] : x.params)
      for (const auto& [key, v] : inputs_) if (key.first == i) check("parameter", i, to.dims, key.second);
    for (const auto& [i, to] : x.results) check("result", i, to.dims, p_.index_of[at(p_.places[at(stored_.at(i))].value)]);
  }
  void finish() {
    for (size_t r = 0; r < p_.results.size(); r++) {
      const auto place = stored_.find(static_cast<int>(r));
      if (place == stored_.end()) fail(s_.size(), 1, fmt::format("result {} is not stored", r));
      const ValueId v = p_.places[at(place->second)].value;
      if (!(builder_.graph().dims(v) == p_.results[r].dims))
        fail(s_.size(), 1, fmt::format("result {} is stored from a value of other dimensions", r));
      builder_.add_output(static_cast<int>(r), v, p_.results[r].dtype);
    }
    for (const Beside& x : p_.beside) check_beside(x);
    if (auto broken = mirage::check_laws(builder_.graph())) fail(s_.size(), 1, "what is computed breaks " + *broken);
    p_.body = std::move(builder_).finish();
  }

  static constexpr int kUnits = 0
#define MIRAGE_UNIT(...) + 1
#include "mirage/schedule/units.def"
      ;
  static constexpr int kPaths = 0
#define MIRAGE_PATH(...) + 1
#include "mirage/schedule/paths.def"
      ;
  static constexpr int kWays = 0
#define MIRAGE_WAY(...) + 1
#include "mirage/schedule/ways.def"
      ;
  static constexpr int kLayouts = 0
#define MIRAGE_LAYOUT(...) + 1
#include "mirage/schedule/layouts.def"
      ;

  std::string_view s_;
  size_t i_ = 0, from_ = 0, statements_ = 0;   // from_: where the last word or number begins
  KernelProgram p_;
  Builder builder_{Level::kBlock, Launch{}};
  std::map<std::pair<int, std::vector<IndexId>>, ValueId> inputs_;
  std::map<int, PlaceId> stored_;
  std::map<std::vector<ValueId>, std::vector<ValueId>> same_;   // what was made of the same operands
  std::vector<PlaceId>* reads_ = nullptr;
};

}  // namespace

Result<KernelProgram> parse_schedule(std::string_view text, const std::string& file) {
  try {
    return Reader(text).read();
  } catch (const Failure& f) {
    SourceLocation where{file, 1, 1, static_cast<int>(std::max<size_t>(1, f.length))};
    for (size_t i = 0; i < std::min(f.from, text.size()); i++) text[i] == '\n' ? (where.line++, where.col = 1) : where.col++;
    Diagnostic d{Severity::kError, DiagCode::kSyntax, where, f.text, {}};
    if (!f.hint.empty()) d.notes.push_back({{}, f.hint});
    return d;
  }
}

}  // namespace mirage::schedule

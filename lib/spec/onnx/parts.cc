// --parts: the regions of a model that a spec can say, each as a spec of its own.
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>
#include <map>
#include <set>
#include <unordered_map>
#include "spec/json/ast.h"
#include "spec/onnx/importer.h"

namespace mirage::onnx {

/// What the file says of a value, where every extent is known.
std::optional<Shape> Importer::given_shape(const std::string& value) const {
  for (const auto* list : {&model_.graph.infos, &model_.graph.outputs})
    for (const ValueInfo& v : *list) {
      if (v.name != value || !v.shape || !dtype_of(v.type) || v.shape->size() > static_cast<size_t>(kMaxRank)) continue;
      Shape out;
      for (const ValueInfo::Extent& e : *v.shape) {
        const auto bound = options_.bind.find(e.param);
        const int64_t extent = e.value < 0 && !e.param.empty() && bound != options_.bind.end() ? bound->second : e.value;
        if (extent < 1) return std::nullopt;
        out.push_back(extent);
      }
      return out;
    }
  return std::nullopt;
}

/// The results of a node that is left as inputs of what reads them.
void Importer::stand_in(const OnnxNode& n) {
  for (const std::string& name : n.outputs) {
    const auto shape = name.empty() ? std::nullopt : given_shape(name);
    if (!shape) continue;
    Value v;
    for (const auto* list : {&model_.graph.infos, &model_.graph.outputs})
      for (const ValueInfo& i : *list) if (i.name == name) v.type = i.type;
    v.dims = *shape;
    v.made = make_input(name, v.type, v.dims);
    if (values_.emplace(name, v).second) broken_.erase(name);
  }
}

Result<std::vector<Fate>> Importer::survey() {
  static const std::set<std::string> kHeavy = {"matmul",     "linear",  "einsum",   "conv",        "attention", "sum",        "mean",
                                               "max",        "min",     "prod",     "var",         "std",       "logsumexp",  "cumsum",
                                               "argmax",     "argmin",  "softmax",  "log_softmax", "rms_norm",  "layer_norm", "group_norm",
                                               "batch_norm", "l2_norm", "max_pool", "avg_pool"};
  if (!check_opset()) return errors_;
  declare_inputs();
  if (!errors_.empty()) return errors_;
  std::vector<Fate> out;
  for (const OnnxNode& n : model_.graph.nodes) {
    lines_.clear();   // a part has its own limit
    take(n);
    if (!errors_.empty()) return errors_;
    const auto is_known = [&](const std::string& o) { const Value* v = find(o); return v && v->known && v->made < 0; };
    Fate fate;
    const bool is_left = std::any_of(n.outputs.begin(), n.outputs.end(), [&](const std::string& o) { return !o.empty() && !find(o); });
    if (is_left) {
      const bool was_refused = n.inputs.empty() || std::none_of(n.inputs.begin(), n.inputs.end(),
                                                                [&](const std::string& i) { return !i.empty() && broken_.count(i); });
      if (!was_refused) refuse(n, "it reads what is left, of a shape that the file does not say");
      stand_in(n);
    } else {
      fate.kind = std::all_of(n.outputs.begin(), n.outputs.end(), [&](const std::string& o) { return o.empty() || is_known(o); })
                      ? Fate::Kind::kKnown
                      : Fate::Kind::kTaken;
      for (const Line& l : lines_) if (kHeavy.count(l.op)) fate.heavy.push_back(l.op);
    }
    out.push_back(std::move(fate));
  }
  return out;
}

namespace {

using Kind = Fate::Kind;

/// Finds regions and cuts them out of the model.
class Divider {
 public:
  Divider(const OnnxModel& model, const std::string& path, const OnnxOptions& options)
      : model_(model), path_(path), options_(options), survey_(model, path, options) {}

  Result<OnnxParts> run() {
    auto fates = survey_.survey();
    if (!fates) return fates.errors();
    fates_ = std::move(*fates);
    for (size_t n = 0; n < nodes().size(); ++n)
      for (const std::string& o : nodes()[n].outputs) if (!o.empty()) producer_[o] = n;
    find_regions();
    OnnxParts out;
    std::vector<std::string> lines, left = survey_.refusals();
    size_t covered = 0, total = 0;
    for (const Fate& f : fates_) total += f.kind != Kind::kKnown;
    for (const std::vector<size_t>& region : regions_) {
      std::set<std::string> heavy;
      for (size_t n : region) heavy.insert(fates_[n].heavy.begin(), fates_[n].heavy.end());
      const std::string first = nodes()[region[0]].name.empty() ? nodes()[region[0]].outputs[0] : nodes()[region[0]].name;
      if (heavy.empty()) {
        left.push_back(fmt::format("{} operators without a product or a reduction (first at node '{}')", region.size(), first));
        continue;
      }
      const std::string name = fmt::format("{}_{}", spec::name_of_source(path_), out.specs.size());
      const OnnxModel part = cut(region);
      if (part.graph.outputs.empty()) continue;   // nobody reads what it computes
      auto spec = Importer(part, path_, options_, name).run();
      if (!spec) {
        left.push_back(fmt::format("{} operators: {} (first at node '{}')", region.size(), spec.errors()[0].text, first));
        continue;
      }
      covered += region.size();
      std::vector<std::string> results;
      for (const ValueInfo& o : part.graph.outputs) results.push_back(shape_text(o));
      lines.push_back(fmt::format("  {}: {} operators ({}) -> {}", name, region.size(), fmt::join(heavy, ", "), fmt::join(results, ", ")));
      out.specs.push_back({name, std::move(spec->text)});
    }
    out.report = fmt::format("{} of {} operators ({} %) in {} parts\n", covered, total, 100 * covered / std::max<size_t>(1, total),
                             out.specs.size());
    for (const std::string& l : lines) out.report += l + "\n";
    for (const std::string& l : left) out.report += "  left: " + l + "\n";
    return out;
  }

 private:
  const std::vector<OnnxNode>& nodes() const { return model_.graph.nodes; }

  static std::string shape_text(const ValueInfo& v) {
    std::vector<int64_t> dims;
    for (const ValueInfo::Extent& e : *v.shape) dims.push_back(e.value);
    return dims.empty() ? "scalar" : fmt::format("{}", fmt::join(dims, "x"));
  }

  /// The node that computes a value, where that is not known while reading.
  std::optional<size_t> computed_by(const std::string& value) const {
    const auto at = producer_.find(value);
    return at == producer_.end() || fates_[at->second].kind == Kind::kKnown ? std::nullopt : std::optional(at->second);
  }

  /// Nodes that are taken and joined by an edge are in one region, unless a path between them leads over one that is left: `stage` counts
  /// those, and never falls along a path.
  void find_regions() {
    std::vector<size_t> stage(nodes().size(), 0), root(nodes().size());
    std::iota(root.begin(), root.end(), size_t{0});
    const auto find = [&](size_t n) {
      while (root[n] != n) n = root[n] = root[root[n]];
      return n;
    };
    for (size_t n = 0; n < nodes().size(); ++n) {
      const bool is_taken = fates_[n].kind == Kind::kTaken;
      for (const std::string& i : nodes()[n].inputs)
        if (const auto from = computed_by(i))
          stage[n] = std::max(stage[n], stage[*from] + (!is_taken && fates_[*from].kind == Kind::kTaken ? 1 : 0));
      for (const std::string& i : nodes()[n].inputs)
        if (const auto from = computed_by(i); from && is_taken && fates_[*from].kind == Kind::kTaken && stage[*from] == stage[n])
          root[find(n)] = find(*from);
    }
    std::map<size_t, size_t> place;
    for (size_t n = 0; n < nodes().size(); ++n) {
      if (fates_[n].kind != Kind::kTaken) continue;
      const auto [at, is_new] = place.emplace(find(n), regions_.size());
      if (is_new) regions_.emplace_back();
      regions_[at->second].push_back(n);
    }
  }

  ValueInfo info(const std::string& name) const {
    const Value& v = *survey_.find(name);
    ValueInfo out{name, v.type, std::vector<ValueInfo::Extent>{}};
    for (int64_t d : v.dims) out.shape->push_back({d, ""});
    return out;
  }

  /// A value that is known while reading, in the part: as a constant, since what computes it may read a tensor for its type or shape only,
  /// which the part need not have.
  void put_known(const std::string& name, OnnxModel& part, std::set<std::string>& there, std::vector<OnnxNode>& before) const {
    if (!there.insert(name).second) return;
    const Value& v = *survey_.find(name);
    if (v.known) {
      TensorData t;
      t.name = name, t.type = v.type, t.dims = v.known->dims;
      if (!is_whole_type(v.type)) t.reals = v.known->data;
      else for (double x : v.known->data) t.ints.push_back(to_int64(x));
      Attribute value;
      value.name = "value", value.tensor = std::move(t);
      OnnxNode n;
      n.name = n.op = "Constant", n.outputs = {name}, n.attributes = {std::move(value)};
      before.push_back(std::move(n));
      return;
    }
    const OnnxNode& n = nodes()[producer_.at(name)];
    for (const std::string& i : n.inputs) if (!i.empty()) put(i, part, there, before);
    before.push_back(n);
  }

  void put(const std::string& name, OnnxModel& part, std::set<std::string>& there, std::vector<OnnxNode>& before) const {
    if (producer_.count(name) && !computed_by(name)) return put_known(name, part, there, before);
    if (!there.insert(name).second) return;
    for (const TensorData& t : model_.graph.initializers) {
      if (t.name != name) continue;
      part.graph.initializers.push_back(t);
      return;
    }
    part.graph.inputs.push_back(info(name));
  }

  OnnxModel cut(const std::vector<size_t>& region) const {
    OnnxModel part;
    part.opsets = model_.opsets;
    part.has_functions = model_.has_functions;
    const std::set<size_t> inside(region.begin(), region.end());
    std::set<std::string> there;
    std::vector<OnnxNode> before;
    for (size_t n : region)
      for (const std::string& o : nodes()[n].outputs) there.insert(o);
    for (size_t n : region)
      for (const std::string& i : nodes()[n].inputs) if (!i.empty()) put(i, part, there, before);
    part.graph.nodes = std::move(before);
    for (size_t n : region) part.graph.nodes.push_back(nodes()[n]);
    std::set<std::string> read;
    for (size_t n = 0; n < nodes().size(); ++n)
      if (!inside.count(n) && fates_[n].kind != Kind::kKnown) read.insert(nodes()[n].inputs.begin(), nodes()[n].inputs.end());
    for (const ValueInfo& o : model_.graph.outputs) read.insert(o.name);
    for (size_t n : region)
      for (const std::string& o : nodes()[n].outputs)
        if (read.count(o) && survey_.find(o)) part.graph.outputs.push_back(info(o));
    return part;
  }

  const OnnxModel& model_;
  const std::string& path_;
  const OnnxOptions& options_;
  Importer survey_;
  std::vector<Fate> fates_;
  std::unordered_map<std::string, size_t> producer_;
  std::vector<std::vector<size_t>> regions_;
};

}  // namespace
}  // namespace mirage::onnx

namespace mirage {

Result<OnnxParts> onnx_parts(std::string_view bytes, const std::string& path, const OnnxOptions& options) {
  auto model = onnx::read_model(bytes, path);
  if (!model) return model.errors();
  return onnx::Divider(*model, path, options).run();
}

}  // namespace mirage

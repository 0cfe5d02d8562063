// Inputs that nobody draws by chance: not-a-number and infinities in single elements, masks of minus infinity over whole tiles, zeros of
// both signs, subnormal and very large numbers. What the program makes of them in fp64 is what kernels have to make of them; above all, an
// element that does not depend on a poisoned one must not change.
#include <cmath>

#include <fmt/format.h>

#include "driver/emulation/elements.h"
#include "emulate/helpers.h"
#include "mirage/support/hash.h"

using namespace mirage;
using namespace mirage::test;

namespace {

bool is_full() { return std::getenv("MIRAGE_FULL") != nullptr; }

double ordinary(const TensorInfo& t, size_t input, int64_t e, uint64_t seed) {
  Rng rng(hash_combine(hash_combine(seed, input + 1), static_cast<uint64_t>(e)));
  if (t.type.dtype == DType::kBool) return static_cast<double>(rng.below(2));
  const double low = t.range ? t.range->first : -1, high = t.range ? t.range->second : 1;
  return value_of(bits_of(round_to(low + (high - low) * rng.uniform(), t.type.dtype), t.type.dtype), t.type.dtype);
}

struct Hostile { std::vector<EmulationCase> cases; std::vector<std::string> names; EmulationLibrary library; };

/// Straightforward and searched kernels at both reduced shapes.
Hostile hostile_cases(const Program& p, const std::string& compiler) {
  Hostile out;
  const Target target = *find_target("sm_90a");
  if (!make_witnesses(p).refusal.empty()) return out;
  for (const NamedPlan& n : plans_of(p, target, 300'000, 0, true))
    for (bool tails : {false, true}) {
      const Reduced r = reduce_plan(p, n.plan, target, tails);
      if (!r.plan) continue;
      out.cases.push_back(case_of(*r.program, *r.plan, target, fmt::format("c{}_", out.cases.size())));
      out.names.push_back(fmt::format("{} {}{}", p.name, n.name, tails ? " with tails" : ""));
    }
  std::vector<const EmulationCase*> all;
  for (const EmulationCase& c : out.cases) all.push_back(&c);
  out.library = build_emulation(all, compiler, emulation_folder());
  return out;
}

/// Whether the program hides keys by minus infinity: its own weights of them are 0, and 0 times what is not a number is not one, but
/// kernels do not look at them.
bool hides(const Graph& g) {
  return std::any_of(g.nodes().begin(), g.nodes().end(), [](const Node& n) {
    const auto* c = std::get_if<Const>(&n.op);
    return c && std::isinf(c->value);
  });
}

/// How many elements are numbers in fp64 and not in the kernels' results, or the other way round where that is not allowed; or far off.
int64_t misplaced(const EmulationCase& c, const EmulationRecord& record, bool may_hide) {
  std::vector<Tensor<double>> inputs;
  for (size_t i = 0; i < c.program.inputs.size(); i++) {
    inputs.emplace_back(c.program.inputs[i].type.dims, 0.0);
    for (size_t e = 0; e < inputs[i].data.size(); e++) inputs[i].data[e] = record.draw(i, static_cast<int64_t>(e));
  }
  DoubleAlgebra a;
  const auto want = evaluate(c.program.graph, std::span<const Tensor<double>>(inputs), a, true);
  int64_t out = 0;
  for (size_t i = 0; i < c.plan.buffers.size(); i++) {
    const Buffer& b = c.plan.buffers[i];
    if (b.kind != Buffer::Kind::kOutput) continue;
    const std::vector<double>& w = want[static_cast<size_t>(b.index)].data;
    double squares = 0;
    for (double x : w) if (std::isfinite(x)) squares += x * x;
    for (size_t e = 0; e < w.size(); e++) {
      const double x = w[e], got = value_of(get_bits(record.after[i].data() +
                                                         place_of(b.dims, b.strides, static_cast<int64_t>(e)) * dtype_bytes(b.dtype),
                                                     b.dtype),
                                            b.dtype);
      if (std::isnan(x)) out += !std::isnan(got) && !may_hide;
      else
        out +=
            std::isinf(x) ? got != x : !(std::fabs(got - x) <= 0.05 * (std::fabs(x) + std::sqrt(squares / static_cast<double>(w.size()))));
    }
  }
  return out;
}

}  // namespace

// A few specs of different kernels; MIRAGE_SPEC=NAME: that one; MIRAGE_FULL=1: all.
TEST_CASE("what is not a number stays where the program puts it", "[hostile]") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const bool every = is_full() || std::getenv("MIRAGE_SPEC");
  for (const std::string& file : spec_files()) {
    const std::string stem = std::filesystem::path(file).stem();
    if (!every && stem != "odd" && stem != "lora" && stem != "rms_norm_linear") continue;
    const Program p = program_of(*read_file(file), file);
    const Hostile h = hostile_cases(p, compiler);
    INFO(h.library.error);
    REQUIRE(h.library.error.empty());
    for (size_t i = 0; i < h.cases.size(); i++) {
      const EmulationCase& c = h.cases[i];
      for (size_t input = 0; input < c.program.inputs.size(); input++)
        for (int round = 0; round < 3; round++) {
          const Type& t = c.program.inputs[input].type;
          if (t.dtype == DType::kBool) continue;
          Rng rng(hash_combine(input, static_cast<uint64_t>(round) + 17));
          const int64_t n = t.dims.elements(), hit = round == 2 ? n - 1 : static_cast<int64_t>(rng.below(static_cast<uint64_t>(n)));
          const double what = round == 0 ? NAN : round == 1 ? INFINITY : -INFINITY;
          EmulationRecord record;
          record.draw = [&](size_t in, int64_t e) { return in == input && e == hit ? what : ordinary(c.program.inputs[in], in, e, 5); };
          const EmulationOutcome o = run_emulation(c, h.library.path, EmulationMode::kFloat, 5, {}, &record);
          INFO(h.names[i] << ": " << what << " in " << c.program.inputs[input].name << place_text(t.dims, hit) << ": " << o.reason);
          const bool hidden = !o.ok && o.findings.empty() && hides(c.program.graph) && misplaced(c, record, true) == 0;
          if (std::getenv("MIRAGE_TABLE") && !o.ok)
            fmt::print("{}: {} in {}{} of {}: {}{}\n", h.names[i], what, c.program.inputs[input].name, place_text(t.dims, hit),
                       to_string(t.dims), o.reason, hidden ? ": hidden by the mask" : "");
          CHECK((o.ok || hidden));
        }
    }
  }
}

namespace {

/// Attention whose scores get an additive mask that is an input, as PyTorch's users pass it.
std::string masked_attention(const std::string& dtype, const std::string& mask_dtype, int queries, int keys, int features) {
  return fmt::format(
      R"({{"version": "1.0", "name": "masked", "inputs": {{"q": {{"shape": [2, {2}, {4}], "dtype": "{0}"}}, "k": {{"shape": [2, {3}, {4}], "dtype": "{0}"}}, "v": {{"shape": [2, {3}, {4}], "dtype": "{0}"}},
    "mask": {{"shape": [{2}, {3}], "dtype": "{1}"}}}}, "outputs": {{"o": {{"dtype": "{0}"}}}}, "nodes": [{{"op": "matmul", "inputs": ["q", "k"], "output": "s", "attrs": {{"transpose_b": true}}}}, {{"op": "mul", "inputs": ["s", 0.125], "output": "t"}},
    {{"op": "add", "inputs": ["t", "mask"], "output": "u"}}, {{"op": "softmax", "inputs": ["u"], "output": "p"}}, {{"op": "matmul", "inputs": ["p", "v"], "output": "o"}}]}})",
      dtype, mask_dtype, queries, keys, features);
}

}  // namespace

// The lowest finite number of the mask's type is what most people put where nothing shall be seen: rows that see nothing get equal weights.
// Minus infinity there gives no number.
TEST_CASE("masks that are inputs hide whole tiles and whole rows", "[hostile]") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const char* other = std::getenv("MIRAGE_TARGET");
  const Target target = *find_target(other ? other : "sm_90a");
  struct Shape { int queries, keys, features; };
  for (const auto& [dtype, mask_dtype] :
       {std::pair<std::string, std::string>{"float16", "float16"}, {"bfloat16", "bfloat16"}, {"float16", "float32"}})
    for (const Shape& s : {Shape{64, 320, 64}, Shape{8, 320, 64}, Shape{16, 256, 192}}) {
      if (!is_full() && (mask_dtype == "float16" || (mask_dtype == "float32") == (s.queries == 64))) continue;
      const Program p = program_of(masked_attention(dtype, mask_dtype, s.queries, s.keys, s.features), "masked");
      std::vector<EmulationCase> cases;
      std::vector<std::string> names;
      for (const NamedPlan& n : plans_of(p, target, 300'000, 0, true))
        cases.push_back(case_of(p, n.plan, target, fmt::format("c{}_", cases.size()))), names.push_back(n.name);
      std::vector<const EmulationCase*> all;
      for (const EmulationCase& c : cases) all.push_back(&c);
      const EmulationLibrary lib = build_emulation(all, compiler, emulation_folder());
      INFO(lib.error);
      REQUIRE(lib.error.empty());
      const double lowest = mask_dtype == "float16" ? -65504 : mask_dtype == "bfloat16" ? -3.3895313892515355e38 : -3.4028234663852886e38;
      for (size_t i = 0; i < cases.size(); i++)
        for (const double hidden : {lowest, -HUGE_VAL})
          for (bool rows : {false, true}) {
            EmulationRecord record;
            record.draw = [&](size_t in, int64_t e) {
              if (in < 3) return ordinary(p.inputs[in], in, e, 9);
              const int64_t row = e / s.keys, key = e % s.keys;
              return key < 10 * row || (rows && row % 5 == 2) ? hidden : 0.0;   // the first keys, more of them row by row
            };
            const EmulationOutcome o = run_emulation(cases[i], lib.path, EmulationMode::kFloat, 5, {}, &record);
            const std::string what = fmt::format("{} masked by {}, {} queries, {} keys, {} features, {}, {} kernels, {} at hidden keys{}",
                                                 dtype, mask_dtype, s.queries, s.keys, s.features, names[i], cases[i].kernels.size(),
                                                 hidden, rows ? ", some rows see nothing" : "");
            if (std::getenv("MIRAGE_TABLE")) fmt::print("{}: {} of {}: {}\n", what, o.compared, o.elements, o.ok ? "ok" : o.reason);
            INFO(what << ": " << o.reason);
            CHECK(o.ok);
          }
    }
}

// Inputs one at a time much larger or smaller than the others: where the program's own kernels are right, fused ones are.
TEST_CASE("single inputs of extreme size leave fused kernels as right as the others", "[hostile]") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const bool every = is_full() || std::getenv("MIRAGE_SPEC");
  for (const std::string& file : spec_files()) {
    const std::string stem = std::filesystem::path(file).stem();
    if (!every && stem != "lora" && stem != "n_trans") continue;
    const Program p = program_of(*read_file(file), file);
    const Hostile h = hostile_cases(p, compiler);
    INFO(h.library.error);
    REQUIRE(h.library.error.empty());
    for (size_t input = 0; input < p.inputs.size(); input++)
      for (double factor : {0x1p-20, 0x1p-10, 0x1p6, 0x1p12, 0x1p15}) {
        if (p.inputs[input].type.dtype == DType::kBool || p.inputs[input].range) continue;
        std::string plain = "none";   // what the straightforward kernels said
        for (size_t i = 0; i < h.cases.size(); i++) {
          const EmulationCase& c = h.cases[i];
          const bool is_plain = h.names[i].find("straightforward") != std::string::npos;
          if (h.names[i].find("with tails") != std::string::npos && h.cases.size() > 1) continue;
          EmulationRecord record;
          record.draw = [&](size_t in, int64_t e) {
            return ordinary(c.program.inputs[in], in, e, 6) * (in == input ? factor : 1 / std::sqrt(64.0));
          };
          record.draw = [&, draw = record.draw](size_t in, int64_t e) { return round_to(draw(in, e), c.program.inputs[in].type.dtype); };
          const EmulationOutcome o = run_emulation(c, h.library.path, EmulationMode::kFloat, 5, {}, &record);
          if (is_plain) { plain = o.ok ? "" : o.reason; continue; }
          INFO(h.names[i] << ": " << c.program.inputs[input].name << " times " << factor << ": " << o.reason
                          << "; straightforward: " << plain);
          if (std::getenv("MIRAGE_TABLE") && (!o.ok || !plain.empty()))
            fmt::print("{}: {} times {}: {}; straightforward: {}\n", h.names[i], c.program.inputs[input].name, factor,
                       o.ok ? "ok" : o.reason, plain);
          if (plain.empty()) CHECK(o.ok);
        }
      }
  }
}

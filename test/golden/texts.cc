// Emitted text of many plans, as hashes: the first divisions of every kernel of the shipped specs, every row of the unit tables that were
// measured, and tiles of every kind. A change that is meant to leave kernels as they are leaves test/golden/texts.hashes; eight tiles stand
// beside it in full, since few specs have one. 'cmd/dev bless' renews both. What a kernel costs is no part of its text here.
#include <catch2/catch.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <fmt/format.h>

#include "mirage/codegen/module.h"
#include "mirage/support/file.h"
#include "mirage/support/hash.h"
#include "unit/plan/linear.h"
#include "unit/plan/many_kernels.h"
#include "unit/plan/plan_in.h"

using namespace mirage;
using namespace mirage::test;
namespace fs = std::filesystem;

namespace {

const fs::path kGolden = fs::path(MIRAGE_SOURCE_DIR) / "test/golden";
std::string kept(const fs::path& file) { const auto text = read_file(file.string()); return text ? *text : ""; }
bool is_blessing() { return std::getenv("MIRAGE_BLESS") != nullptr; }
const Target& target() { static const Target t = *find_target("sm_90a"); return t; }

/// A kernel's text with its launch, without its price.
std::string text_of(KernelPlan k, const Plan& plan) {
  k.name = "k";
  k.why = "";
  const KernelText t = emit_kernel(k, plan, target());
  std::string out = fmt::format("// grid {} x {} x {}, {} threads, {} bytes of shared memory{}{}\n", t.grid[0], t.grid[1], t.grid[2],
                                t.threads, t.smem_bytes, t.dependent ? ", dependent" : "", t.cooperative ? ", cooperative" : "");
  for (const TensorMapText& m : t.maps)
    out += fmt::format("// map of {}: offset {}, {} [{}] strides [{}] box [{}], swizzle {}\n", m.buffer, m.offset_bytes,
                       dtype_name(m.dtype), fmt::join(m.dims, ","), fmt::join(m.strides, ","), fmt::join(m.box, ","), m.swizzle);
  for (size_t i = 0; i < t.args.size(); i++) out += fmt::format("// {} {}\n", t.written[i] ? "writes" : "reads", t.args[i]);
  return out + t.source;
}

/// Its tables and its text.
template <class P> std::string printed(const P& body) {
  KernelPlan k;
  k.name = "k";
  k.body = body_with<P>(body);
  Plan plan;
  plan.buffers.resize(16);   // operands' and results'
  return strategy_of(k).print(k) + text_of(k, plan);
}

/// Hashes by what they are of, in the order of the names.
using Hashes = std::map<std::string, uint64_t>;

void add_all(Hashes& out) {
  constexpr size_t kDivisions = 12;   // as many as are measured and ranked
  const auto add = [&](const std::string& name, const KernelPlan& k, const Plan& plan) { out[name] = hash_text(text_of(k, plan)); };
  each_spec_kernel(target(), kDivisions, add);
  each_table_kernel(target(), add);
}

struct Tile { const char* name; Linear of; TileChoice choice; int64_t batch = 1; };

const std::vector<Tile>& tiles() {
  static const std::vector<Tile> kTiles = [] {
    TileChoice turned{1, 64, 64, 4, 1, 1};
    turned.turned = 64;
    return std::vector<Tile>{
        {"plain", {.rows = 64, .depth = 512, .cols = 1024, .weights = 2, .rms = true}, {2, 32, 64, 4, 2, 1}},
        {"large", {.rows = 384, .depth = 1024, .cols = 1024}, {1, 192, 64, 4, 1, 1, true, 2, true}},
        {"divided", {.rows = 384, .depth = 1024, .cols = 1024}, {1, 192, 64, 4, 2, 1, true, 2, true}},
        {"overlaid", {.rows = 200, .depth = 2048, .cols = 3072}, {1, 208, 64, 4, 4, 1, true, 2, true}},
        {"shared", {.rows = 512, .depth = 512, .cols = 1024}, {1, 208, 64, 4, 1, 1, true, 2, true, 2}},
        {"staying", {.rows = 512, .depth = 512, .cols = 1024}, {1, 128, 64, 4, 1, 1, true, 2, true, 1, false, 0, 8}},
        {"tf32_rows", {.rows = 64, .depth = 512, .cols = 1024, .gain = true}, {2, 32, 64, 3, 1, 1}},
        {"turned", {.rows = 128, .depth = 256, .cols = 1024, .rank = 16}, turned},
        {"batch", {.rows = 64, .depth = 512, .cols = 256}, {1, 64, 64, 3, 1, 1}, 3},
    };
  }();
  return kTiles;
}

/// x w for `batch` matrices each.
LinearCase batched(const Tile& t) {
  const Linear& l = t.of;
  Builder b(Level::kBlock, {{t.batch, l.cols / 32, 1}, l.depth / 16});
  const auto stored = [&](int buffer, Dims d) { return Access{buffer, 0, d, row_major_strides(d), l.t}; };
  const ValueId x = b.add_input(0, {l.t, {1, l.rows, 16}}, {{0, -1, -1}, 2}), w = b.add_input(1, {l.t, {1, 16, 32}}, {{0, 2, -1}, 1});
  b.add_output(0, b.add(Accum{}, {b.add(MatMul{}, {x, w})}), l.t, {{0, 2, -1}, -1});
  return {std::move(b).finish(),
          {stored(0, {t.batch, l.rows, l.depth}), stored(1, {t.batch, l.depth, l.cols})}, {stored(2, {t.batch, l.rows, l.cols})}};
}

TilePlan plan_of(const Tile& t) {
  std::string reason;
  const LinearCase c = t.batch > 1 ? batched(t) : linear_case(t.of);
  const auto shape = match_stream(c.body, c.operands, c.results, {t.of.t, false}, kAnyRows, reason);
  INFO(t.name << ": " << reason);
  REQUIRE(shape);
  auto p = tile_plan(*shape, target(), reason);
  REQUIRE(p);
  const bool fits = divide_tile(*p, t.choice, target(), reason);
  INFO(reason);
  REQUIRE(fits);
  return *p;
}

}  // namespace

TEST_CASE("the text of many kernels is what it was", "[texts]") {
  Hashes now;
  add_all(now);
  CHECK(now.size() >= 300);
  std::string text;
  for (const auto& [name, hash] : now) text += fmt::format("{:016x} {}\n", hash, name);
  const fs::path file = kGolden / "texts.hashes";
  if (is_blessing()) std::ofstream(file, std::ios::binary) << text;
  std::istringstream was(kept(file));
  Hashes before;
  for (std::string line; std::getline(was, line);)
    if (line.size() > 17) before[line.substr(17)] = std::stoull(line.substr(0, 16), nullptr, 16);
  std::string differences;
  int changed = 0, fresh = 0, gone = 0;
  for (const auto& [name, hash] : now) {
    const auto at = before.find(name);
    if (at != before.end() && at->second == hash) continue;
    (at == before.end() ? fresh : changed)++;
    if (changed + fresh <= 12) differences += (at == before.end() ? "  new: " : "  differs: ") + name + "\n";
  }
  for (const auto& [name, hash] : before) gone += now.count(name) == 0;
  INFO("'cmd/dev bless' renews test/golden/texts.hashes if the change was meant; " << changed << " differ, " << fresh << " are new, "
                                                                                   << gone << " are gone\n"
                                                                                   << differences);
  CHECK(changed + fresh + gone == 0);
}

TEST_CASE("tiles of every kind are emitted as they were", "[texts]") {
  for (const Tile& t : tiles()) {
    INFO(t.name << ": 'cmd/dev bless' renews it if the change was meant");
    const TilePlan p = plan_of(t);
    const std::string name = t.name, text = printed(p);
    const bool large = name == "large" || name == "divided" || name == "overlaid" || name == "shared" || name == "staying";
    CHECK(p.large == large);   // each is what its name says
    CHECK((p.cluster > 1) == (name == "plain" || name == "divided" || name == "overlaid"));
    CHECK(p.overlaid == (name == "overlaid"));
    CHECK((p.sharing > 1) == (name == "shared"));
    CHECK((p.held_tiles > 0) == (name == "staying"));
    CHECK(p.computes() == (name == "tf32_rows"));
    CHECK((p.turned > 0) == (name == "turned"));
    CHECK((p.batch > 1) == (name == "batch"));
    const fs::path file = kGolden / "tiles" / (name + ".cu");
    if (is_blessing()) {
      fs::create_directories(file.parent_path());
      std::ofstream(file, std::ios::binary) << text;
    }
    const bool same = text == kept(file);
    CHECK(same);
  }
}

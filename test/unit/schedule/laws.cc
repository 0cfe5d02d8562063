// A program, and what becomes of it when one word is another: which law it breaks, or where the reader stops.
#include <algorithm>

#include <catch2/catch.hpp>

#include "mirage/schedule/program.h"
#include "unit/schedule/texts.h"

using namespace mirage;
using namespace mirage::schedule;

namespace {

const Target& device() { static const Target t = *find_target("sm_90a"); return t; }

/// A linear layer of rows divided by their norm: two blocks of a cluster and their four warps divide the reduction.
const std::string kNorm = test::norm_schedule(R"(  param 0 f16[16,4096]
  param 1 f16[4096,6144]
  result 0 f16[16,6144]
  index m 16, k 4096, n 6144
  assume m <= 16, n % 64, k % 64, not n % 4096
  split n by 64 over x 96 grid
)",
                                              R"(      q += sum(x * x, k) : f32 items
      y += x @ w : f32 sync_acc 16x64 sync16816 swap
)",
                                              R"(    fold q over lanes, c, v by st_async through parts : f32 statistics 8x16
    fold y over c, v by st_async through own : f32 over ring 4x16x64, others : f32 received 16x64
    z = y / sqrt(q / 4096 + 1e-06) : f32 items
)");

/// A product with a residual, by blocks that stay: two roles copy, results leave from where the residual came.
const std::string kStaying = R"(kernel tile {
  param 0 bf16[2048,1024]
  param 1 bf16[1024,4096]
  param 2 bf16[2048,4096]
  result 0 bf16[2048,4096]
  index m 2048, k 1024, n 4096
  split n by 64 over x 32 grid, h 2 group
  split m by 64 over y 32 grid
  reduce k by 64 over i 16 loop
  shared ring slots 4 align 1024
  shared held align 1024
  shared barriers mbarriers align 8
  stay 132
  role weights 1 warps {
    for i {
      w = param 1 [k,n] : bf16 ring 2x64x64 swizzle 128 tma ahead 4
    }
  }
  role rows 1 warps {
    r = param 2 [m,n] : bf16 held 2x64x64 swizzle 128 apart 2 tma
    for i {
      x = param 0 [m,k] : bf16 ring 1x64x64 swizzle 128 tma ahead 4
    }
  }
  role work 8 warps {
    for i {
      v += x @ w : f32 wgmma_acc 64x64 wgmma swap
    }
    y = relu(v + r) : f32 items
    store 0 = y by tma evict_first through out : bf16 over held 2x64x64 swizzle 128
  }
}
)";

/// x w + h u: iterations have a chunk of k, or one of l.
const std::string kParts = R"(kernel parts {
  param 0 f16[16,512]
  param 1 f16[512,1024]
  param 2 f16[16,1024]
  param 3 f16[1024,1024]
  result 0 f16[16,1024]
  index m 16, k 512, n 1024, l 1024
  split n by 64 over x 16 grid
  reduce k by 64 over i 6 loop, v 4 warp
  reduce l by 64 behind k
  shared ring owners 4 slots 2 align 1024
  shared barriers mbarriers align 8
  role all 4 warps {
    for i {
      w = param 1 [k,n] : f16 ring 64x64 swizzle 128 tma ahead 2
      u = param 3 [l,n] : f16 ring 64x64 swizzle 128 instead w tma ahead 2
      x = param 0 [m,k] : f16 oct 16x64 ld ahead 1
      h = param 2 [m,l] : f16 oct 16x64 instead x ld ahead 1
      y += x @ w + h @ u : f32 sync_acc 16x64 sync16816 swap
    }
    fold y over v by shared through own : f32 over ring 4x16x64
    store 0 = y by direct
  }
}
)";

/// Sums of groups of 128, each scaled by column; a chunk is half a group.
const std::string kGroups = R"(kernel groups {
  param 0 bf16[8,4,128] strides [128,1024,1]
  param 1 bf16[8,128,1024]
  param 2 bf16[8,1,1024]
  result 0 bf16[1,4,1024]
  index g 8, k 128, n 1024, m 4
  split n by 64 over x 16 grid
  reduce g, k by 64 over i 4 loop, v 4 warp
  shared ring owners 4 slots 2 align 1024
  shared barriers mbarriers align 8
  role all 4 warps {
    for i {
      w = param 1 [g,k,n] : bf16 ring 64x64 swizzle 128 tma ahead 2
      s = param 2 [g,1,n] : bf16 items ld ahead 1
      x = param 0 [g,m,k] : bf16 oct 8x64 ld ahead 1
      y += sum(s * (x @ w), g) : f32 sync_acc 8x64 sync16816 swap
    }
    fold y over v by shared through own : f32 over ring 4x8x64
    store 0 = y by direct
  }
}
)";

/// Attention of normed keys: the scale of its scores and a row's temperature follow the maximum; what is known of a key is made ahead, by a
/// role of its own, with what hides keys, which is copied there.
const std::string kAttention = R"(kernel attention {
  param 0 f16[2,64,64]
  param 1 f16[2,1024,64]
  param 2 f16[2,1024,64]
  param 3 f32[2,64,1]
  param 4 f16[1024]
  result 0 f16[2,64,64]
  index b 2, t 64, f 64, s 1024, e 64
  split b by 1 over x 2 grid
  split t by 64 over y 1 grid
  reduce s by 64 over i 16 loop
  shared queries align 1024
  shared ring slots 3 align 1024
  shared known slots 3 align 128
  shared barriers mbarriers align 128
  role copies 4 warps {
    for i {
      k = param 1 [b,s,f] : f16 ring 1x64x64 swizzle 128 apart 1 tma ahead 3 evict_first
      v = param 2 [b,s,e] : f16 ring 1x64x64 swizzle 128 apart 1 tma ahead 3 evict_first
      v5 = sum(square(k), f) : f32 line
      by_key = transpose(1 / sqrt(v5), 0 2 1) : f32 known 64 apart 1
      w = 1 / (1 + sum(square(v), e)) : f16 known 64 pitch 256 apart 1
      hidden = param 4 [s] : f32 known 64 apart 1 ld
    }
  }
  role work 4 warps {
    q = param 0 [b,t,f] : f16 queries 1x1x64x64 swizzle 128 tma
    x3 = param 3 [b,t,1] : f32 items ld
    for i {
      z = q @ transpose(k, 0 2 1) : f32 wgmma_acc 64x64 wgmma
      u = z / sqrt(square(x3)) : f32 wgmma_acc deferred
      y = where(less(hidden, 0), -inf, u * by_key) : f32 wgmma_acc
      v6 = y * 0.125 : f32 wgmma_acc deferred
      v7 = max(v6, s) : f32 items
      fold v7 over lanes by lanes
      m = running(v7) : f32 items
      p = exp(v6 - m) : f32 wgmma_acc
      l += sum(p, s) rescaled 1 by m : f32 items
      p16 = p * transpose(w, 0 2 1) : f16 wgmma_acc
      a += p16 @ v rescaled 1 by m : f32 wgmma_acc 64x64 wgmma
    }
    fold l over lanes by lanes
    v8 = a / l : f32 items
    store 0 = v8 by direct
  }
}
)";

using test::changed;

std::string law(const std::string& text) {
  const auto p = parse_schedule(text);
  if (!p) return render(p.errors()[0], "");
  return check_laws(*p, device()).value_or("");
}

struct Change { const char *from, *to, *expected; };

}  // namespace

TEST_CASE("a program prints as it was read, obeys the laws and says what follows from it", "[schedule]") {
  const auto p = parse_schedule(kNorm);
  REQUIRE(p);
  CHECK(print(*p) == kNorm);
  CHECK(law(kNorm) == "");
  const Derived d = derive(*p);
  CHECK(d.section_at == std::vector<int64_t>{0, 65536, 69632, 70144});   // four rings of two slots of 8 KB, 16 x 64 sums, 8 x 16 parts
  CHECK(d.smem_bytes == 70144 + 8 * 9);
  REQUIRE(d.barriers.size() == 2);
  CHECK(d.barriers[0].count == 8);
  CHECK(d.barriers[0].bytes == 8192);
  CHECK(d.barriers[1].bytes == 4096 + 512);
  CHECK(d.blocks == 192);
  CHECK(d.launch_registers == 255);
  CHECK(d.live == std::vector<int>{65});        // sums of 32, two copies of rows of 16, and the rows' own sum of squares
  CHECK(d.registers == std::vector<int>{129});  // and a slot of weights
  const Erased e = erase(*p);
  REQUIRE(e.graph);
  CHECK(e.graph->launch() == Launch{{96, 1, 1}, 64});
  CHECK(e.graph->type(e.graph->node(e.graph->inputs()[0]).first_value) == Type{DType::kF16, {64, 64}});
}

TEST_CASE("registers that places take, and for how long", "[schedule]") {
  const auto live = [](const std::string& text) {
    const auto p = parse_schedule(text);
    REQUIRE(p);
    return derive(*p).live;
  };
  CHECK(live(changed(kNorm, "f16 oct 16x64 ld", "f16 vec ld")) == std::vector<int>{41});         // eight elements at a time, twice
  CHECK(live(changed(kNorm, "f16 oct 16x64 ld", "f16 vec 4x4096 ld")) == std::vector<int>{545});   // four whole rows, twice
  CHECK(law(changed(kNorm, "f16 oct 16x64 ld", "f16 vec 4x4096 ld")).starts_with("P7: values of 545 registers"));
  const std::string once =   // one iteration, behind which nothing is asked for
      changed(changed(changed(changed(kNorm, "16,4096]", "16,512]"), "f16[4096,", "f16[512,"), "k 4096, n", "k 512, n"), "i 8 loop",
              "i 1 loop");
  CHECK(law(changed(once, "tma ahead 2", "tma ahead 1")) == "");
  CHECK(live(once) == std::vector<int>{49});
  // sums are in shared memory by then
  CHECK(live(changed(kNorm, "1e-06) : f32 items", "1e-06) : f32 items 64x256")) == std::vector<int>{512});
  // of the results, and what is read for them, a block of two has half
  const std::string with = changed(changed(kNorm, "  result 0", "  param 2 f32[16,6144]\n  result 0"), "1e-06)", "1e-06) + r");
  const std::string residual = changed(with, "    for i {\n", "    r = param 2 [m,n] : f32 items ld\n    for i {\n");
  CHECK(live(residual) == std::vector<int>{69});
  const std::string alone = changed(changed(residual, ", c 2 cluster", ""), "i 8 loop", "i 16 loop");
  CHECK(live(changed(changed(alone, "lanes, c, v by st_async", "lanes, v by shared"), "over c, v by st_async", "over v by shared")) ==
        std::vector<int>{73});
}

TEST_CASE("what lies over a ring begins where its owners' parts may begin", "[schedule]") {
  const auto at = [](const std::string& items) {
    const auto p = parse_schedule(changed(kNorm, "over ring 4x16x64", "over ring " + items));
    REQUIRE(p);
    return derive(*p).section_at[1];
  };
  CHECK(at("4x16x256") == 4 * 16384);        // as much as two slots have
  CHECK(at("4x16x260") == 4 * 17 * 1024);    // 16 640 bytes each, in parts of 1024
}

TEST_CASE("laws refuse a changed program", "[schedule]") {
  const std::vector<Change> changes = {
      {"over i 8 loop", "over i 7 loop", "P2: the tiles of k cover 3584 of 4096 elements"},
      {"over i 8 loop", "over i 9 loop", "P2: the last part of k along i is empty"},
      {"split n by 64 over x 96 grid", "split n by 64 over x 96 loop", "P2: a loop over n"},
      {"not n % 4096", "n % 4096", "P11: n is 6144"},
      {"    fold q over lanes, c, v by st_async through parts : f32 statistics 8x16\n", "", "P3: map of a partial result"},
      {"fold q over lanes, c, v", "fold q over c, v", "P3: map of a partial result, which is open in lanes"},
      {"fold y over c, v by st_async", "fold y over c by st_async", "P3: z is stored while it is open in v"},
      {"fold y over c, v by st_async", "fold y over c, v by shared", "P3: c do not meet by shared"},
      {"fold y over c, v by st_async", "fold y over c, v, c by st_async", "P3: y is folded over c, in which it is not open"},
      {"fold q over lanes, c, v", "fold q over lanes, c, v, x", "P3: x do not meet by st_async"},
      {"q += sum(x * x, k)", "q += exp(sum(x * x, k))", "P3: map of a partial result"},
      {" sync16816 swap", "", "P4: y is a product without a unit"},
      {"q += sum(x * x, k) : f32 items", "q += sum(x * x, k) : f32 items sync16816", "P4: q has a unit and no product"},
      {"w = param 1 [k,n] : f16 ring 64x64", "w = param 1 [k,n] : f32 ring 64x64", "P4: sync16816 takes no f32 (w)"},
      {"w = param 1 [k,n] : f16 ring 64x64 swizzle 128", "w = param 1 [k,n] : f16 sync_a 64x64", "P4: tma come to shared memory"},
      {"tma ahead 2", "tma ahead 3", "P5: w is asked for 3 uses ahead"},
      {"tma ahead 2", "tma", "P5: nobody refills w"},
      {"ring owners 4 slots 2", "ring owners 4 slots 4", "P7: "},
      {"  role all 4 warps {", "  role all 4 warps regs 24 {", "P7: values of 65 registers are alive in role all, which has 24"},
      {"  role all 4 warps {", "  role all 32 warps regs 255 {", "P7: "},
      {"  shared barriers mbarriers align 8\n", "", "P7: no place for barriers"},
      {"c 2 cluster", "c 2 grid", "P3: c do not meet by st_async"},
  };
  for (const Change& c : changes) {
    INFO(c.from << " -> " << c.to);
    const std::string said = law(changed(kNorm, c.from, c.to));
    INFO(said);
    CHECK((*c.expected ? said.starts_with(c.expected) : said.empty()));
  }
}

TEST_CASE("warps that divide one sum, calls beside each other, and an index in two parts", "[schedule]") {
  const std::string warps = changed(kNorm, "sync16816 swap", "sync16816 swap warps 1x1x4");
  CHECK(law(warps).starts_with("P3: z is stored while it is open in warps"));
  CHECK(law(changed(warps, "fold y over c, v", "fold y over c, v, warps")) == "");
  CHECK(law(changed(kNorm, "fold y over c, v", "fold y over c, v, warps")).starts_with("P3: y is folded over warps, in which"));
  const std::string beside = "  per_sm 2\n  beside n 96 {\n    param 1 f16[4096,96]\n    result 0 f16[16,96]\n  }\n";
  const auto p = parse_schedule(changed(kNorm, "  per_sm 2\n", beside));
  REQUIRE(p);
  CHECK(print(*p) == changed(kNorm, "  per_sm 2\n", beside));
  CHECK(law(print(*p)) == "");
  CHECK(derive(*p).blocks == 2 * (96 + 2));
  const std::string narrow = law(changed(print(*p), "f16[4096,96]", "f16[4096,64]"));
  CHECK(narrow.find("parameter 1 has 64 elements along n, 96 are beside") != std::string::npos);
  const std::string parts = changed(kNorm, "k 4096, n", "k 4096 = 4032 + 64, n");
  CHECK(law(parts) == "");
  CHECK(law(changed(parts, "4032 + 64", "4000 + 96")).starts_with("P2: the tiles of k cover"));   // a tile more, which no iteration takes
  CHECK(law(changed(parts, "4032 + 64", "4032 + 65")).find("a number from 64 to 64 belongs here") != std::string::npos);
  CHECK(law(changed(kNorm, "f16[4096,6144]", "f16[4096,6144] second 0 strides [6144,1] offset 8")).find("lies in two parts") !=
        std::string::npos);
  CHECK(law(changed(parts, "f16[4096,6144]", "f16[4096,6144] second 0 strides [6144,1] offset 8")) == "");
}

TEST_CASE("laws of several lines", "[schedule]") {
  const std::string slots =
      changed(changed(changed(kNorm, "c 2 cluster", "c 2 grid"), "fold q over lanes, c, v by st_async", "fold q over lanes, c, v by slots"),
              "fold y over c, v by st_async", "fold y over c, v by slots");
  CHECK(law(slots).starts_with("P9: 192 blocks that wait"));
  CHECK(law(changed(slots, "  per_sm 2\n", "  per_sm 2\n  cooperative\n")) == "");
  const std::string by_chunk = "h = sum(x * x, k) : f32 items\n      fold h over lanes by shared\n      q += h : f32 items";
  const std::string early =
      changed(changed(kNorm, "q += sum(x * x, k) : f32 items", by_chunk), "fold q over lanes, c, v", "fold q over c, v");
  CHECK(law(early) == "");   // every warp runs eight times
  CHECK(law(changed(changed(changed(early, "16,4096]", "16,4000]"), "param 1 f16[4096", "param 1 f16[4000"), "k 4096, n", "k 4000, n"))
            .starts_with("P11: k is 4000"));
  CHECK(law(changed(
                changed(changed(changed(early, "16,4096]", "16,4000]"), "param 1 f16[4096", "param 1 f16[4000"), "k 4096, n", "k 4000, n"),
                "k % 64, not", "not k % 64, not"))
            .starts_with("P12: lanes meet in a loop"));
  const std::string rounded = changed(kNorm, "      q += sum(x * x, k)", "      r = x * 2 : f16 oct 16x64\n      q += sum(r * r, k)");
  CHECK(law(rounded).starts_with("P10: r was rounded for a unit, and q is computed from it"));
  const std::string below = changed(kNorm, "      q += sum(x * x, k)", "      r = x * 2 : f32 over ring 16x64\n      q += sum(x * r, k)");
  const std::string within = changed(kNorm, "sync16816 swap\n    }", "sync16816 swap\n      z2 = y : f32 items\n    }");
  CHECK(law(within).starts_with("P3: y is read in the loop that adds it up"));
  CHECK(law(below).starts_with("P6: r lies over ring, which is still read"));
}

TEST_CASE("factors follow a running maximum", "[schedule]") {
  const auto p = parse_schedule(kAttention);
  if (!p) UNSCOPED_INFO(render(p.errors()[0], kAttention));
  REQUIRE(p);
  CHECK(print(*p) == kAttention);
  CHECK(law(kAttention) == "");
  const Derived d = derive(*p);
  const auto barrier = [&](const std::string& name) {
    const auto it = std::find_if(d.barriers.begin(), d.barriers.end(), [&](const Barriers& b) { return b.name == name; });
    REQUIRE(it != d.barriers.end());
    return *it;
  };
  for (const char* name : {"by_key.full", "hidden.full"}) {   // what threads copy for another role has a barrier as what they compute
    CHECK(barrier(name).count == 3);
    CHECK(barrier(name).arrivals == 4);
    CHECK(barrier(name).bytes == 0);
  }
  const Change changes[] = {
      {"v6 = y * 0.125", "v6 = y * -0.125", "P13: v6 has no factor that can follow a maximum"},
      {"sqrt(square(x3))", "x3", "P13: u has no factor that can follow a maximum"},              // which may be negative
      {"u * by_key) : f32 wgmma_acc", "u * by_key) : f32 wgmma_acc deferred", "P13: y has no factor that can follow a maximum"},
      {"v7 = max(v6, s)", "v7 = max(v6 + 1, s)", "P13: u lacks its factor where more than a maximum is taken of it"},
      {"p = exp(v6 - m)", "p = exp(v6 - m) * v6", "P13: u lacks its factor where more than a maximum is taken of it"},
      {"-inf, u * by_key", "u, by_key", "P13: u lacks its factor where more than a maximum is taken of it"},
      {"-inf, u", "0, u", "P13: u lacks its factor where more than a maximum is taken of it"},
      {"u * by_key)", "u * by_key * u)", "P13: u lacks its factor where more than a maximum is taken of it"},
      // what was rounded is read by what is rounded for a unit itself, not by others
      {"p16 = p * transpose(w, 0 2 1) : f16", "p16 = p * transpose(w, 0 2 1) : f32", "P10: w was rounded for a unit"},
  };
  for (const Change& c : changes) {
    INFO(c.from << " -> " << c.to);
    CHECK_THAT(law(changed(kAttention, c.from, c.to)), Catch::StartsWith(c.expected));
  }
}

TEST_CASE("blocks that stay do tile after tile", "[schedule]") {
  const auto p = parse_schedule(kStaying);
  REQUIRE(p);
  CHECK(print(*p) == kStaying);
  CHECK(law(kStaying) == "");
  const Derived d = derive(*p);
  CHECK(d.blocks == 132);
  REQUIRE(d.barriers.size() == 4);   // of the ring, and of what comes once a tile: one thread says that results have left from there
  CHECK((d.barriers[0].count == 4 && d.barriers[0].arrivals == 2 && d.barriers[0].bytes == 24576));
  CHECK((d.barriers[1].count == 4 && d.barriers[1].arrivals == 8));
  CHECK((d.barriers[2].name == "r.full" && d.barriers[2].count == 2 && d.barriers[2].bytes == 8192));
  CHECK((d.barriers[3].name == "r.empty" && d.barriers[3].count == 2 && d.barriers[3].arrivals == 1));
  const std::string two = changed(kStaying, "x 32 grid, h", "x 16 grid, e 2 cluster, h");
  CHECK(law(two) == "");
  const std::string own = changed(changed(kStaying, "    r = param 2 [m,n] : bf16 held 2x64x64 swizzle 128 apart 2 tma\n", ""),
                                  "  role work 8 warps {\n",
                                  "  role work 8 warps {\n    r = param 2 [m,n] : bf16 held 2x64x64 swizzle 128 apart 2 tma\n");
  CHECK(law(own) == "P5: r is made again in the next tile of a block that stays, and those that read it bring it themselves");
  CHECK(law(changed(own, "  stay 132\n", "")) == "");
  CHECK(law(changed(two, "stay 132", "stay 131")) == "P2: 131 blocks that stay are no clusters of 2");
  const std::vector<Change> changes = {
      {"stay 132", "stay 1025", "P2: 1025 blocks stay, and the grid has 1024"},
      {"  stay 132\n", "  stay 132\n  cooperative\n", "P9: blocks that stay and wait for each other"},
      {" through out : bf16 over held 2x64x64 swizzle 128", "", "P4: y leaves by tma from no place"},
      {"out : bf16 over held", "out : f32 over held", "P4: tma stores y as it lies in out, which is f32"},
      {"out : bf16 over held 2x64x64 swizzle 128", "out : bf16 items", "P4: y is gathered in out, not in shared memory"},
      {"out : bf16 over held", "out : bf16 over ring", "P6: out lies in ring, which copies of the next tile fill"},
      {"relu(v + r) : f32 items", "relu(v + r) : f32 held 64x64", "P5: y is made again in the next tile of a block that stays"},
      {"1x64x64 swizzle 128 tma ahead 4", "1x64x64 swizzle 128 tma", "P5: nobody refills x"},
      {"bf16 held 2x64x64 swizzle 128 apart 2 tma", "bf16 held 2x64x64 swizzle 128 apart 2 cp_async", "P5: r is made again"},
  };
  for (const Change& c : changes) {
    INFO(c.from << " -> " << c.to);
    const std::string said = law(changed(kStaying, c.from, c.to));
    INFO(said);
    CHECK(said.starts_with(c.expected));
  }
}

TEST_CASE("products that run on, and what is gathered over a finished ring", "[schedule]") {
  const std::string rate = changed(kStaying, "  stay 132\n", "  stay 132\n  throughput\n");
  const auto p = parse_schedule(rate);
  REQUIRE(p);
  CHECK(p->throughput);
  CHECK(print(*p) == rate);
  CHECK(law(rate) == "");
  const auto one = [](const std::string& text) {   // slot, which the same products are read from and the next ones are brought to
    return changed(changed(changed(text, "slots 4", "slots 1"), "2x64x64 swizzle 128 tma ahead 4", "2x64x64 swizzle 128 tma ahead 1"),
                   "1x64x64 swizzle 128 tma ahead 4", "1x64x64 swizzle 128 tma ahead 1");
  };
  CHECK(law(one(kStaying)) == "");
  CHECK(law(one(rate)) == "P5: products of w run on while those of the next iteration need its slot");

  const std::string brought = "    r = param 2 [m,n] : bf16 held 2x64x64 swizzle 128 apart 2 tma\n",
                    loop = "    for i {\n      v += x @ w : f32 wgmma_acc 64x64 wgmma swap\n    }\n",
                    copy = "    r = param 2 [m,n] : bf16 over ring 2x64x64 swizzle 128 ld\n";
  const std::string lines =
      changed(changed(changed(changed(rate, "  stay 132\n", ""), brought, ""), "  shared held align 1024\n", ""),
              "by tma evict_first through out : bf16 over held", "by lines through out : bf16 over ring");
  const std::string late = changed(lines, loop, loop + copy);
  CHECK(law(late) == "");
  const auto q = parse_schedule(late);
  REQUIRE(q);
  CHECK(print(*q) == late);
  const Derived d = derive(*q);
  std::vector<int64_t> over;
  for (size_t i = 0; i < q->places.size(); i++) if (q->places[i].over) over.push_back(d.place_at[i]);
  CHECK(over == std::vector<int64_t>{0, 16384});   // one behind the other
  CHECK(d.section_at[1] == 4 * 24576);             // in no memory of their own
  CHECK(law(changed(lines, loop, copy + loop)) == "P6: r lies over ring, which is still read");
}

TEST_CASE("iterations have a tile of one index or of the one behind it", "[schedule]") {
  const auto p = parse_schedule(kParts);
  REQUIRE(p);
  CHECK(print(*p) == kParts);
  CHECK(law(kParts) == "");
  const Derived d = derive(*p);
  CHECK(d.section_at[1] == 4 * 2 * 8192);
  CHECK(d.place_at[0] == d.place_at[1]);
  CHECK(d.barriers[0].bytes == 8192);
  const Erased e = erase(*p);
  REQUIRE(e.graph);
  CHECK(e.graph->launch() == Launch{{16, 1, 1}, 8});   // the products of the second part are in front of the loop
  CHECK(law(changed(kParts, "swizzle 128 instead w tma", "swizzle 128 tma")) == "");   // beside each other
  const std::vector<Change> changes = {
      {"i 6 loop", "i 5 loop", "P2: the tiles of k cover 1280 of 1536 elements"},
      {"i 6 loop", "i 8 loop", "P2: the last part of k along i is empty"},
      {"l by 64 behind", "l by 128 behind", "P2: tiles of l follow those of a reduction that is cut into the same"},
      {"behind k", "behind n", "P2: tiles of l follow those of a reduction"},
      {"behind k", "behind l", "P2: tiles of l follow those of a reduction"},
      {"x @ w + h @ u", "(x @ w) * (h @ u)", "P3: y adds up what is made of two reductions in one iteration"},
      {"64x64 swizzle 128 instead w", "128x64 swizzle 128 instead w", "P6: u does not lie where w is"},
      {"16x64 instead x", "16x64 instead w", "P6: h does not lie where w is"},
      {"[m,k] : f16 oct 16x64", "[m,k] : f16 oct 16x64 instead w", "P6: x lies where w is, and an iteration has both"},
  };
  for (const Change& c : changes) {
    INFO(c.from << " -> " << c.to);
    const std::string said = law(changed(kParts, c.from, c.to));
    INFO(said);
    CHECK(said.starts_with(c.expected));
  }
}

TEST_CASE("tiles go through groups and what is in them", "[schedule]") {
  const auto p = parse_schedule(kGroups);
  REQUIRE(p);
  CHECK(print(*p) == kGroups);
  CHECK(law(kGroups) == "");
  const Erased half = erase(*p);
  REQUIRE(half.graph);
  CHECK(half.graph->launch() == Launch{{16, 1, 1}, 8});
  const std::string two = changed(kGroups, "by 64 over i 4", "by 256 over i 1"), scaled = "s * (x @ w)";
  CHECK(law(two) == "");
  const auto q = parse_schedule(two);
  REQUIRE(q);
  CHECK(erase(*q).graph->launch() == Launch{{16, 1, 1}, 4});
  const std::string through = "s * exp(x @ w)";
  CHECK(law(changed(two, scaled, through)) == "");   // groups are whole
  const std::vector<Change> changes = {
      {scaled.c_str(), through.c_str(), "P3: map of a partial result, which is open in chunks of one element"},
      {"by 64 over i 4", "by 96 over i 3", "P2: tiles of 96 end within an element of g"},
      {"i 4 loop", "i 3 loop", "P2: the tiles of k cover 768 of 1024 elements"},
      {"reduce g, k by 64 over i 4", "reduce g, k by 8 over i 32", "P4: sync16816 takes 16 elements of k at a time, a tile has 8"},
  };
  for (const Change& c : changes) {
    INFO(c.from << " -> " << c.to);
    const std::string said = law(changed(kGroups, c.from, c.to));
    INFO(said);
    CHECK(said.starts_with(c.expected));
  }
}

TEST_CASE("the reader of schedules says what is wrong and where", "[schedule]") {
  const std::vector<Change> changes = {
      {"kernel norm {", "kernl norm {", "s.txt:1:1: error: expected 'kernel'"},
      {"index m 16", "index m 0", "s.txt:5:11: error: a number from 1 to"},
      {"split n by", "split nn by", "there is no index 'nn'"},
      {"x 96 grid", "x 96 gird", "did you mean 'grid'?"},
      {"  per_sm 2", "  persm 2", "did you mean 'per_sm'?"},
      {": f16 oct 16x64", ": f16 oktt 16x64", "there is no layout or section 'oktt'"},
      {"sqrt(q / 4096", "sqr(q / 4096", "did you mean 'sqrt'?"},
      {"z = y / sqrt", "z = yy / sqrt", "there is no place 'yy'"},
      {"y += x @ w", "y += w @ x", "error:"},
      {"param 0 [m,k]", "param 0 [k,m]", "dimension 0 of parameter 0 has 16 elements, the index 4096"},
      {"param 0 [m,k]", "param 0 [m]", "parameter 0 has 2 dimensions"},
      {"store 0 = z by direct\n", "", "result 0 is not stored"},
      {"store 0 = z by", "store 0 = y by", "is dead"},
      {"store 0 = z", "store 0 = q", "result 0 is stored from a value of other dimensions"},
      {"f16[4096,6144]", "f16[99999999999,6144]", "a tensor has at most 2^40 elements"},
      {"x 96 grid", "x 99999999999999999999 grid", "a number from 1 to"},
      {"shared received", "shared ring", "the name 'ring' is used twice"},
      {"shared received", "shared oct", "'oct' is a word of the language"},
      {"through parts", "through x", "the name 'x' is used twice"},
      {"sum(x * x, k)", "sum(x * x, n)", "no dimension has this index"},
      {"by direct\n  }\n}\n", "by direct\n  }\n", "expected a statement"},
  };
  for (const Change& c : changes) {
    const std::string text = changed(kNorm, c.from, c.to);
    const auto p = parse_schedule(text, "s.txt");
    INFO(c.to);
    REQUIRE(!p);
    const std::string said = render(p.errors()[0], text);
    INFO(said);
    CHECK(said.find(c.expected) != std::string::npos);
  }
  CHECK(!parse_schedule(changed(kNorm, "z = y / sqrt", "z = y / " + std::string(1000, '(') + "sqrt")));
  CHECK(!parse_schedule(changed(kNorm, "z = y / sqrt", "z = y / " + std::string(100000, '-') + "sqrt")));
  CHECK(!parse_schedule(std::string((size_t{1} << 20) + 1, ' ')));
  for (size_t i = 0; i < kNorm.size(); i += 7) CHECK((!parse_schedule(kNorm.substr(0, i)) || i == 0));
}

// Schedules as a person edits them: what --run and --why-not say of one.
#include <catch2/catch.hpp>

#include "mirage/driver/modes.h"
#include "unit/schedule/texts.h"

using namespace mirage;

namespace {

const std::string kNorm = "# the kernel of specs/rms_norm_linear.json, of fewer columns\n" +
                          test::norm_schedule(R"(  param 0 f16[16,4096]
  param 1 f16[4096,1536]
  result 0 f16[16,1536]
  index m 16, k 4096, n 1536
  assume m <= 16, n % 64, k % 64, k % 512
  split n by 64 over x 24 grid
)",
                                              R"(      y += x @ w : f32 sync_acc 16x64 sync16816 swap
      q += sum(square(x), k) : f32 items
)",
                                              R"(    fold y over c, v by st_async through own : f32 over ring 4x16x64, others : f32 received 16x64
    fold q over lanes, c, v by st_async through parts : f32 statistics 8x16
    z = y / sqrt(1e-06 + q / 4096) : f32 items
)");

using test::changed;

ModeResult run(const std::string& stage, const std::string& text, const std::string& gate = "none") {
  Options o;
  o.gate = gate;
  o.target = "sm_90a";
  return run_stage(stage, {"n.schedule", text}, o, {});
}

struct Edit { const char *from, *to, *said; int line; };

}  // namespace

TEST_CASE("--run=emit on a schedule: its numbers are those of the kernel, which passes the gate", "[schedule]") {
  const ModeResult r = run("emit", kNorm, "auto");
  REQUIRE(r.exit == ExitCode::kOk);
  CHECK(r.text.find("__cluster_dims__(2, 1, 1) __launch_bounds__(128, 2) norm(") != std::string::npos);
  const std::string more = changed(changed(kNorm, "slots 2", "slots 3"), "ahead 2", "ahead 3");
  const ModeResult three = run("emit", more);
  REQUIRE(three.exit == ExitCode::kOk);
  CHECK(three.text != r.text);
  CHECK(run("plan", more).text.find("4 warps x 3 stages") != std::string::npos);
  CHECK(run("schedule", more).text == changed(more, "# the kernel of specs/rms_norm_linear.json, of fewer columns\n", ""));
  CHECK(run("search", kNorm).exit == ExitCode::kUsage);
  CHECK(run("plan", "kernel k {\n %0 = input 0 : f16[8]\n output 0 (mul %0 2) : f16\n}\n").exit == ExitCode::kOk);   // a graph as ever
}

TEST_CASE("an edit that no kernel follows is refused where it stands, with what stands there otherwise", "[schedule]") {
  const std::vector<Edit> edits = {
      {"tma ahead 2", "tma ahead 3", "P5: w is asked for 3 uses ahead, and there are 2 slots", 17},
      {"slots 2", "slots 3", "the strategy 'stream' does this otherwise", 17},
      {"swizzle 128", "swizzle 64", "the strategy 'stream' does this otherwise", 17},
      {"i 8 loop", "i 7 loop", "P2: the tiles of k cover 3584 of 4096 elements", 9},
      {"per_sm 2", "per_sm 4", "P7: ", 0},
      {"by direct", "by lines", "the strategy 'stream' does this otherwise", 25},
      {"oct 16x64 ld", "oct 16x64 tma", "P4: tma come to shared memory", 18},
      {"f16[16,4096]", "f16[16,4096] offset 8", "parameter 0 is a part of another tensor", 3},
      {"f16[16,4096]", "f16[16,4096] position 0 divided 1000", "a number from 1 to 16 belongs here", 3},
      {"f16[16,4096]", "f16[16,4096] position 0 divided 4 modulo 5", "a number from 1 to 4 belongs here", 3},
      {"f16[16,4096]", "f16[16,4096] position 0 modulo 7", "positions of parameter 0 whose periods do not end", 3},
      {"f16[16,4096]", "f61[16,4096]", "there is no element type 'f61'", 3},
  };
  for (const Edit& e : edits) {
    const ModeResult r = run("emit", changed(kNorm, e.from, e.to));
    INFO(e.to);
    REQUIRE(r.diagnostics.size() == 1);
    INFO(r.diagnostics[0].text);
    CHECK(r.exit == exit_code_of(r.diagnostics[0].code));
    CHECK(r.exit != ExitCode::kOk);
    CHECK(r.diagnostics[0].text.starts_with(e.said));
    CHECK(r.diagnostics[0].where.line == e.line);
  }
  const ModeResult slots = run("emit", changed(kNorm, "slots 2", "slots 3"));
  REQUIRE(slots.diagnostics[0].notes.size() == 1);
  CHECK(slots.diagnostics[0].notes[0].text.find("tma ahead 3 evict_first") != std::string::npos);
}

TEST_CASE("--why-not on a schedule: the law that closes it, or what is faster", "[schedule]") {
  const auto why = [](const std::string& text) { return why_not_graph({"n.schedule", text}, {}, Options{}, {}); };
  const ModeResult law = why(changed(kNorm, "tma ahead 2", "tma ahead 3"));
  CHECK(law.exit == ExitCode::kNothingFound);
  CHECK(law.text == "closed: P5: w is asked for 3 uses ahead, and there are 2 slots\nat n.schedule:17:7\n");
  const ModeResult open = why(kNorm);
  CHECK(open.exit == ExitCode::kOk);
  CHECK(open.text.starts_with("open: stream: 4 warps x 2 stages x 64, cluster 2, 2 per SM, "));
  CHECK(open.text.find(" divisions of this kernel by predicted time") != std::string::npos);
  CHECK(why("kernel norm {\n  param 0 f16[\n").exit == ExitCode::kInvalidSpec);
}

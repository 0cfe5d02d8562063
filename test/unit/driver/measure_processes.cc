// --measure with a device that is a shell script: what builds and runs, each in a process of its own, may fail in every way, and the
// fastest that is right still wins (driver/measure/measure.h).
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>
#include <unistd.h>

#include "driver/measure/measure.h"
#include "mirage/ir/target.h"
#include "mirage/spec/spec.h"
#include "mirage/support/file.h"

using namespace mirage;
namespace fs = std::filesystem;

namespace {

/// A compiler that leaves a "library" and, as the check program, a script: `behaviour` says what it does; $i is the case, $round 0 for the
/// first look.
class FakeDevice {
 public:
  explicit FakeDevice(const std::string& behaviour, const std::string& compiler = "") {
    path_ = (fs::temp_directory_path() / ("mirage-fake-" + std::to_string(getpid()))).string();
    fs::create_directories(path_ + "/tmp");
    if (const char* t = getenv("TMPDIR")) before_ = t;
    setenv("TMPDIR", (path_ + "/tmp").c_str(), 1);   // beside other processes' folders nobody could tell whether one was left
    std::string check = "#!/bin/sh\ni=$(basename \"$PWD\")\nround=$(($3 - 1))\n";
    check +=
        "right() { echo \"{\\\"ok\\\": true, \\\"rel_err\\\": 0.0001, \\\"bits_equal\\\": true, \\\"canaries_ok\\\": true, "
        "\\\"cold_samples_us\\\": [$1, $1], \\\"warm_samples_us\\\": [$1]}\"; exit 0; }\n" +
        behaviour;
    REQUIRE(write_file(path_ + "/check", check).empty());
    std::string nvcc =
        "#!/bin/sh\nout=\nwhile [ $# -gt 0 ]; do [ \"$1\" = -o ] && out=$2; shift; done\ni=$(basename \"$PWD\")\n" + compiler;
    nvcc += "case $out in *_check) cp " + path_ + "/check \"$out\"; chmod +x \"$out\" ;; *) printf '\\177ELF' > \"$out\" ;; esac\n";
    REQUIRE(write_file(path_ + "/nvcc", nvcc).empty());
    fs::permissions(path_ + "/nvcc", fs::perms::owner_all);
    tools.nvcc = path_ + "/nvcc";
  }
  ~FakeDevice() {
    if (before_.empty()) unsetenv("TMPDIR");
    else setenv("TMPDIR", before_.c_str(), 1);
    std::error_code error;
    fs::remove_all(path_, error);
  }
  /// What measuring has left where temporary folders go.
  size_t folders() const {
    size_t n = 0;
    for (const auto& entry : fs::directory_iterator(path_ + "/tmp")) n += entry.path().filename().string().starts_with("mirage-opt-");
    return n;
  }
  Toolchain tools;
 private:
  std::string path_, before_;
};

struct Setting {
  Program program;
  Target target = *find_target("sm_90a");
  std::vector<MeasureCase> cases;
  Setting() {
    auto parsed =
        read_spec({"x", R"(kernel two { %x = input 0 : f16[16,256] %w = input 1 : f16[256,512] output 0 (matmul %x %w) : f16 })"});
    REQUIRE(parsed);
    program = parsed->program;
    const Planned plan = make_plan(program, program.graph, target);
    REQUIRE(plan.plan);
    cases = measure_cases({}, *plan.plan, nullptr, program, target, 8);
    REQUIRE(cases.size() == 8);   // a single straightforward kernel: its divisions are what there is to try
  }
  Measurement run(const FakeDevice& device, const MeasureLimits& limits = {}) const {
    return measure_cases_on_device(cases, {program, target, {"", "1"}, 2, false, nullptr}, device.tools, limits);
  }
};

}  // namespace

TEST_CASE("every way a case can fail is told and cannot win") {
  const Setting s;
  const FakeDevice device(R"(case $i in
0) echo '{"ok": false, "rel_err": 0.5, "bits_equal": true, "canaries_ok": true}'; exit 8 ;;
1) kill -SEGV $$ ;;
2) echo 'CUDA error: an illegal memory access'; exit 3 ;;
3) sleep 20 ;;
4) echo '{"ok": true, "cold_samples_us": [], "warm_samples_us": []}' ;;
5) echo '{"ok": true, "cold_samples_us": [0.0], "warm_samples_us": [1.0]}' ;;
6) [ $round = 2 ] && { echo '{"ok": "yes"'; exit 0; }; right 4 ;;
*) right 5 ;;
esac
)");
  MeasureLimits limits;
  limits.run_seconds = 1;
  const Measurement m = s.run(device, limits);
  const std::vector<std::string> reasons = {"its result is wrong: relative error 0.5",
                                            "signal 11",
                                            "illegal memory access",
                                            "did not end in time",
                                            "not timed",
                                            "not timed",
                                            "exit code 0"};
  for (size_t i = 0; i < reasons.size(); i++) {
    INFO(i << ": " << m.rows[i].reason);
    CHECK(!m.rows[i].ok);
    CHECK(m.rows[i].reason.find(reasons[i]) != std::string::npos);
  }
  REQUIRE(m.order.size() == 1);
  CHECK(m.order[0] == 7);
  CHECK(m.rows[7].cold.size() == 8);   // the first look and three rounds, two samples each
  CHECK(device.folders() == 0);
}

TEST_CASE("a case that does not build is left out, and without any that is right nobody wins") {
  const Setting s;
  // 6: ends well and leaves nothing
  const FakeDevice half("right $((10 - i))\n", "case $i in 7) echo 'ptxas fatal' >&2; exit 1 ;; 6) exit 0 ;; esac\n");
  const Measurement m = s.run(half);
  CHECK(m.rows[7].reason.find("it was not built: ") == 0);
  CHECK(m.rows[6].reason.find("left no library") != std::string::npos);
  REQUIRE(!m.order.empty());
  CHECK(m.order[0] == 5);
  CHECK(m.rows[5].final_us == Approx(5.0));

  const FakeDevice none("exit 9\n");
  CHECK(s.run(none).order.empty());
  const FakeDevice checkless("right 1\n", "case $out in *_check) exit 1 ;; esac\n");
  const Measurement c = s.run(checkless);
  CHECK(c.order.empty());
  CHECK(!c.rows[0].ok);
}

TEST_CASE("the measurement ends in time, whatever hangs") {
  const Setting s;
  const FakeDevice device("[ $i = 0 ] && right 3\nsleep 20\n");
  MeasureLimits limits;
  limits.seconds = 2;
  const Measurement m = s.run(device, limits);
  CHECK(m.seconds < 2 * limits.seconds + 1);
  CHECK(m.stopped == "time");
}

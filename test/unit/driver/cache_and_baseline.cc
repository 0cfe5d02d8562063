// Products in the cache, and the statistics of libraries that are timed in turn.
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <unistd.h>

#include "driver/measure/baseline.h"
#include "driver/evidence/cache_folder.h"
#include "driver/gate/gate_memory.h"
#include "mirage/spec/spec.h"
#include "mirage/support/file.h"
#include "mirage/support/hash.h"
#include "mirage/support/warden.h"

using namespace mirage;
namespace fs = std::filesystem;

namespace {

/// Times of a library on a simulated device: 1 % of noise that is normal, 2 % of the looks disturbed by up to a fifth, a drift of the
/// clocks over the rounds.
class Device {
 public:
  explicit Device(uint64_t seed, double slower) : rng_(seed), slower_(slower) {}
  std::optional<RatiosOf> operator()(int look) {
    RatiosOf out;
    for (int i = 0; i < 15; i++) out["f"].push_back(time(slower_, 15 * look + i) / time(1, 15 * look + i));
    return out;
  }

 private:
  double time(double slower, int round) {
    const double normal = std::sqrt(-2 * std::log(1 - rng_.uniform())) * std::cos(6.283185307 * rng_.uniform());
    const double disturbed = rng_.uniform() < 0.02 ? 0.2 * rng_.uniform() : 0;
    return 10 * slower * (1 + 0.01 * normal + disturbed) * (1 + 0.002 * round);
  }
  Rng rng_;
  double slower_;
};

int alarms(int runs, double slower) {
  int n = 0;
  for (int i = 0; i < runs; i++) {
    const auto r = time_in_turn(Device(static_cast<uint64_t>(1000 + i), slower), static_cast<uint64_t>(i));
    n += r->at("f").kind == TimeRatio::Kind::kSlower;
  }
  return n;
}

}  // namespace

TEST_CASE("a gate that was passed is remembered by everything it rests on, from a file of ours only") {
  const fs::path folder = fs::temp_directory_path() / ("gate_memory_" + std::to_string(getpid()));
  const auto spec = [](const char* range) {
    auto p = parse_spec(
        {"g.json", std::string(R"({"name": "g", "inputs": {"x": {"shape": [64], "dtype": "float32")") + range +
                       R"(}}, "outputs": {"y": {"dtype": "float32"}}, "nodes": [{"op": "exp", "inputs": ["x"], "output": "y"}]})"});
    REQUIRE(p.ok());
    return *p;
  };
  const Program program = spec(""), promised = spec(R"(, "range": [0, 1])");
  const Target target = *find_target("sm_90a"), other = *find_target("sm_80");
  const Plan plan = *make_plan(program, program.graph, target).plan;
  Options o;
  CHECK(gate_memory_key(program, plan, target, "g++", 1, o).empty());   // no cache
  o.cache = folder.string();
  const std::string key = gate_memory_key(program, plan, target, "g++", 1, o);
  if (key.empty()) { WARN("skipped: this test was linked without a build id"); return; }
  CHECK(key == gate_memory_key(program, plan, target, "g++", 1, o));
  CHECK(key != gate_memory_key(promised, plan, target, "g++", 1, o));   // the draws are others
  CHECK(key != gate_memory_key(program, plan, other, "g++", 1, o));
  CHECK(key != gate_memory_key(program, plan, target, "clang++", 1, o));
  CHECK(key != gate_memory_key(program, plan, target, "g++", 2, o));
  for (auto kind : {GateResult::Kind::kFailed, GateResult::Kind::kNotRun}) {
    keep_passed(o, key, {kind, "emulated at nothing"});
    CHECK(!passed_before(o, key));
  }
  keep_passed(o, key, {GateResult::Kind::kPassed, "emulated in field and floats at [64]"});
  const auto known = passed_before(o, key);
  REQUIRE(known);
  CHECK(known->text == "emulated in field and floats at [64]");
  CHECK(known->kind == GateResult::Kind::kPassed);
  const std::string file = product_path(o, "gate", key), bytes = *read_file(file);
  const auto is_known = [&] { return passed_before(o, key).has_value(); };
  fs::permissions(file, fs::perms::group_write, fs::perm_options::add);
  CHECK(!is_known());
  fs::permissions(file, fs::perms::group_write, fs::perm_options::remove);
  CHECK(is_known());
  REQUIRE(write_file(file, bytes + "!").empty());   // its hash does not hold
  CHECK(!is_known());
  fs::rename(file, file + ".away");
  fs::create_symlink(file + ".away", file);
  CHECK(!is_known());
  fs::remove_all(folder);
}

TEST_CASE("libraries in turn: equal ones raise no alarm, 3 % slower ones do") {
  CHECK(alarms(200, 1) <= 2);
  CHECK(alarms(200, 1.03) >= 190);
  CHECK(alarms(40, 0.9) == 0);
}

TEST_CASE("the interval holds the median, and what cannot be timed ends the comparison") {
  const TimeRatio r = judge_ratios({1, 1.1, 0.9, 1.05, 0.95, 1, 1.02, 0.98, 1.01, 0.99, 1, 1.03, 0.97, 1, 1.2}, 7);
  CHECK(r.median == 1);
  CHECK((r.low <= r.median && r.median <= r.high));
  CHECK(to_string(r).find("15 rounds") != std::string::npos);
  CHECK(judge_ratios({2, 2, 2}, 1).kind == TimeRatio::Kind::kSlower);
  CHECK(judge_ratios({0.99, 1.03, 0.99, 1.03}, 1).kind == TimeRatio::Kind::kInconclusive);
  int looks = 0;
  const RatiosOf open = {{"f M=1", {0.99, 1.03, 0.99, 1.03}}, {"f M=8", {1, 1, 1}}};
  CHECK(!time_in_turn([&](int) -> std::optional<RatiosOf> { return ++looks < 3 ? std::optional(open) : std::nullopt; }, 1));
  CHECK(looks == 3);
  const auto judged = time_in_turn([&](int) { return std::optional(open); }, 1);   // as long as one size is open, all are timed
  REQUIRE(judged);
  CHECK((judged->at("f M=1").rounds == 12 && judged->at("f M=8").rounds == 9));
  CHECK(judged->at("f M=8").kind == TimeRatio::Kind::kNotSlower);
}

TEST_CASE("rounds are read from what a check program printed") {
  const std::string times = R"("earlier_rounds_us": [2, 4], "rounds_us": [3, 3]})";
  const auto one = ratios_in("note\n{\"name\": \"f\", " + times + "\n");
  REQUIRE(one);
  CHECK(one->at("f") == std::vector<double>{1.5, 0.75});
  const auto sizes = ratios_in("{\"name\": \"f M=1\", " + times + "\n{\"name\": \"f M=8\", " + times + "\n");
  REQUIRE(sizes);
  CHECK(sizes->size() == 2);
  for (const char* bad : {"", "{}", R"({"name": "f", "cold_samples_us": [1]})",
                          R"({"name": "f", "earlier_rounds_us": [1], "rounds_us": [1, 2]})",
                          R"({"name": "f", "earlier_rounds_us": [0], "rounds_us": [1]})", R"({"name": "f", "earlier_rounds_us": [1)"})
    CHECK(!ratios_in(bad));
}

TEST_CASE("a product in the cache is what was put there, or is not there") {
  const TemporaryFolder folder;
  Options o;
  o.cache = folder.path() + "/cache";
  const std::string key = content_key("source and flags");
  CHECK(key.size() == 32);
  CHECK(!from_cache(o, "lib", key));
  put_into_cache(o, "lib", key, std::string("\x7f" "ELF\0 bytes", 11));
  CHECK(from_cache(o, "lib", key) == std::string("\x7f" "ELF\0 bytes", 11));
  CHECK(!from_cache(o, "facts", key));
  const std::string path = o.cache + "/lib-" + key;
  const std::string whole = read_file(path).value();
  for (const std::string& bad : {whole.substr(0, whole.size() - 1), whole + "x", std::string(), std::string(33, 'a')}) {
    REQUIRE(write_file(path, bad).empty());
    CHECK(!from_cache(o, "lib", key));
  }
  o.no_cache = true;
  put_into_cache(o, "lib", content_key("other"), "x");
  CHECK(!fs::exists(o.cache + "/lib-" + content_key("other")));
}

TEST_CASE("the cache gives up what was not used for longest, and nothing that is not its own") {
  const TemporaryFolder folder;
  Options o;
  o.cache = folder.path() + "/cache";   // the folder itself is locked as long as it is ours
  fs::create_directories(o.cache);
  const auto entry = [&](int i) { return content_key(std::to_string(i)); };
  REQUIRE(write_file(o.cache + "/notes.json", std::string(5000, 'n')).empty());
  for (int i = 0; i < 6; i++) {
    put_into_cache(o, "lib", entry(i), std::string(1000, 'x'));
    fs::last_write_time(o.cache + "/lib-" + entry(i), fs::file_time_type::clock::now() - std::chrono::hours(10 - i));
  }
  CHECK(from_cache(o, "lib", entry(0)));   // used just now
  trim_cache(o.cache, 3200, o.cache + "/lib-" + entry(2));
  CHECK(fs::exists(o.cache + "/lib-" + entry(0)));
  CHECK(!fs::exists(o.cache + "/lib-" + entry(1)));
  CHECK(fs::exists(o.cache + "/lib-" + entry(2)));   // asked to stay
  CHECK(!fs::exists(o.cache + "/lib-" + entry(3)));
  CHECK(fs::exists(o.cache + "/lib-" + entry(5)));
  CHECK(fs::exists(o.cache + "/notes.json"));
}

TEST_CASE("a cache whose lock somebody keeps costs no time") {
  const TemporaryFolder folder;   // locked as long as it is ours
  Options o;
  o.cache = folder.path();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 3; i++) put_into_cache(o, "lib", content_key(std::to_string(i)), "x");
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
  CHECK(from_cache(o, "lib", content_key("2")) == "x");
}

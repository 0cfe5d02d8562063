// A slice of the random programs (test/random): the whole pipeline, then the kernels on the CPU in the field and in floats. MIRAGE_RANDOM=N
// programs (default 24), MIRAGE_SEED=S. By the thousand: random_programs. A failure prints the spec after the reducer has taken away every
// node and shortened every extent that it does not need.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <set>

#include <fmt/format.h>

#include "mirage/spec/spec.h"
#include "random/judge.h"

using namespace mirage;
using namespace mirage::test;

namespace {

std::string emulation_folder() { return std::string(MIRAGE_BINARY_DIR) + "/emulation_test"; }

}  // namespace

TEST_CASE("every operator of specs is drawn for random programs, or named as left out", "[random]") {
  std::set<std::string> listed, known;
  for (const nlohmann::json& op : nlohmann::json::parse(list_ops_json())) listed.insert(op.at("name"));
  for (const std::string& op : drawn_operators()) known.insert(op);
  for (const auto& [op, why] : excluded_operators()) {
    CHECK(!why.empty());
    CHECK(known.insert(op).second);
  }
  CHECK(known == listed);   // test/random/generator.cc, table()
}

TEST_CASE("random specs are valid and hold every operator", "[random]") {
  std::set<std::string> seen;
  size_t strides = 0, several = 0, nodes = 0;
  for (uint64_t s = 1; s <= 400; s++) {
    const RandomSpec r = random_spec(s);
    INFO(r.text());
    REQUIRE(parse_spec({r.name, r.text()}));
    CHECK(random_spec(s).text() == r.text());
    for (const auto& n : r.nodes) seen.insert(n.op);
    for (const auto& x : r.inputs) strides += x.more.find("strides") != std::string::npos;
    several += r.outputs.size() > 1;
    nodes += r.nodes.size();
  }
  for (const std::string& op : drawn_operators()) { INFO(op); CHECK(seen.count(op) == 1); }
  CHECK(strides > 100);
  CHECK(several > 100);
  CHECK(nodes > 1200);
}

TEST_CASE("random programs are right on the CPU") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const auto number = [](const char* name, uint64_t fallback) {
    const char* v = std::getenv(name);
    return v ? static_cast<uint64_t>(atoll(v)) : fallback;
  };
  const uint64_t count = number("MIRAGE_RANDOM", 24), first = number("MIRAGE_SEED", 1);
  constexpr uint64_t kBatch = 12;   // programs per host compile
  int wrong = 0;
  int64_t judged = 0;
  for (uint64_t at = 0; at < count; at += kBatch) {
    std::vector<Prepared> all;
    std::vector<uint64_t> of;
    for (uint64_t i = at; i < std::min(count, at + kBatch); i++) {
      const uint64_t seed = first * 1'000'000 + i;
      PreparedSpec p = prepare(random_spec(seed), fmt::format("s{}_", i));
      INFO(seed << ": " << p.refusal);
      REQUIRE(!p.plans.empty());
      for (Prepared& x : p.plans) all.push_back(std::move(x)), of.push_back(seed);
    }
    std::vector<const EmulationCase*> cases;
    for (const Prepared& p : all) cases.push_back(&p.with);
    const EmulationLibrary lib = build_emulation(cases, compiler, emulation_folder());
    INFO(lib.error);
    REQUIRE(lib.error.empty());
    for (size_t i = 0; i < all.size(); i++) {
      judged++;
      const std::string why = judge(all[i], lib.path).wrong;
      if (why.empty()) continue;
      wrong++;
      const RandomSpec small = reduce_spec(random_spec(of[i]), compiler, emulation_folder());
      FAIL_CHECK(all[i].name << ": " << why << "\nreduced: " << failure(small, compiler, emulation_folder()) << "\n" << small.text());
    }
  }
  if (std::getenv("MIRAGE_TABLE")) fmt::print("{} programs from seed {}, {} plans, {} wrong\n", count, first, judged, wrong);
  CHECK(judged >= static_cast<int64_t>(count));
}

// The table of machines: every cell is there, and targets stand on the machines that they name.
#include <catch2/catch.hpp>
#include <set>

#include "mirage/ir/target.h"

using namespace mirage;

TEST_CASE("every machine has every value, and says where it is from") {
  std::set<std::string> names, targets;
  int quantities = 0;
  for (const Target& t : all_machines()) {
    INFO(t.machine);
    CHECK(names.insert(t.machine).second);
    targets.insert(t.name);
    int count = 0;
#define MIRAGE_QUANTITY(type, field, unit, help, ...) count++; CHECK(t.field > 0);
#include "mirage/ir/machine.def"
    const MachineSources s = machine_sources(t.machine);
    CHECK(s.measured + s.scaled + s.datasheet == count);
    CHECK((s.measured > 0) == (t.machine == "h200"));
    quantities = count;
    REQUIRE(find_machine(t.machine));
    CHECK(find_machine(t.machine)->name == t.name);
    CHECK(t.device.size() > 2);
  }
  CHECK(quantities > 30);
  for (const Target& t : all_targets()) CHECK(targets.count(t.name) == 1);
  CHECK(!find_machine("sm_90a"));
}

TEST_CASE("a target stands on one machine, another one has to be asked for") {
  CHECK(find_target("sm_90a")->machine == "h200");
  CHECK(find_target("sm_80")->machine == "a100");
  CHECK(find_machine("h100")->name == "sm_90a");
  CHECK(find_machine("h100")->dram_bytes_per_us < find_target("sm_90a")->dram_bytes_per_us);
  CHECK(find_machine("l40s")->name == find_machine("rtx4090")->name);
}

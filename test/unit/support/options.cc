// The option table and what is printed of it.
#include <catch2/catch.hpp>
#include <set>
#include "mirage/support/options.h"

using namespace mirage;

TEST_CASE("the option table is consistent") {
  std::set<std::string> flags;
  for (const OptionInfo& o : option_table()) {
    CHECK(o.flag.starts_with("--"));
    CHECK(flags.insert(o.flag).second);
    CHECK(o.low <= o.high);
    CHECK(!o.help.empty());
  }
  size_t n = 0;
  Options options;
  for_each_option(options, [&](const OptionInfo& info, auto&) { CHECK(info.field == option_table()[n++].field); });
  CHECK(n == option_table().size());
}

TEST_CASE("the header line names only what changes the result") {
  Options o;
  CHECK(result_options_line(o).empty());
  o.jobs = 2;
  o.output = "/some/where";
  CHECK(result_options_line(o).empty());
  o.no_merge = true;
  o.target = "sm_80";
  o.seed = 7;
  CHECK(result_options_line(o) == "--target sm_80 --no-merge --seed 7");
}

TEST_CASE("durations") {
  CHECK(parse_duration("60s") == 60.0);
  CHECK(parse_duration("2m") == 120.0);
  CHECK(parse_duration("500ms") == 0.5);
  CHECK(parse_duration("1.5") == 1.5);
  CHECK(parse_duration("0") == 0.0);
  for (const char* bad : {"", "s", "-1s", "1d", "inf", "nan", "1 s", "1s ", "0x10"}) CHECK(!parse_duration(bad));
}

TEST_CASE("the configuration prints every option once") {
  Options o;
  o.no_merge = true;
  const std::string text = print_config(o);
  for (const OptionInfo& info : option_table()) CHECK(("\n" + text).find("\n" + info.field + " = ") != std::string::npos);
  CHECK(text.find("no_merge = true  # changes the result\n") != std::string::npos);
}

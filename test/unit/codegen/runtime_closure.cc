// The part of the device library that stands in NAME.cu: everything that is used, nothing that is not.
#include <catch2/catch.hpp>
#include <set>
#include <sstream>

#include "mirage/codegen/module.h"

using namespace mirage;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Lines of code, in the order of the text; macros that declare functions one by one stand in lines of several.
std::multiset<std::string> code(const std::string& text) {
  std::multiset<std::string> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find_first_not_of(' ');
    if (at == std::string::npos || line.compare(at, 2, "//") == 0 || line.starts_with("MO_PACK")) continue;
    out.insert(line.substr(at));
  }
  return out;
}

}  // namespace

TEST_CASE("a text that names everything has the whole device library, in its order") {
  const std::string all = runtime_text(), again = runtime_text_for(all);
  CHECK(code(again) == code(all));
  CHECK(again.find("struct Pack") < again.find("struct StreamTile"));
}

TEST_CASE("what is used is there with what it uses, and nothing else") {
  const std::string none = runtime_text_for("int x;"), map = runtime_text_for("mo::TensorMap m;"),
                    row = runtime_text_for("mo::silu(x); mo::lanes_reduce<mo::Sum, 32>(x);");
  CHECK_FALSE(contains(none, "namespace mo"));
  CHECK(contains(map, "struct alignas(64) TensorMap"));
  CHECK_FALSE(contains(map, "MO_FN void"));
  CHECK(contains(row, "MO_FN float silu(float x)"));
  CHECK(contains(row, "MO_PACK1(silu)"));
  CHECK(contains(row, "#define MO_PACK1(f)"));   // a macro that declares it, and what that needs
  CHECK(contains(row, "struct Packed"));
  CHECK(contains(row, "shuffle_xor"));
  CHECK_FALSE(contains(row, "mbarrier"));
  CHECK(row.size() * 4 < runtime_text().size());
  // several of a line, behind an attribute, of an enumeration; one that is no name of the library
  for (const char* name : {"kLn2", "kLargestFloat", "kSlotNumbers", "kNoSuchName"})
    CHECK(contains(runtime_text_for(name), name) == (std::string(name) != "kNoSuchName"));
}

TEST_CASE("conditions and macros are taken whole") {
  const std::string both = runtime_text_for("mo::exp_narrow(x)"), sums = runtime_text_for("mo::wgmma_weight<T, 0>(d, a, b)");
  CHECK(contains(both, "#ifdef __CUDA_ARCH__\nMO_FN float exp_narrow"));
  CHECK(contains(both, "#else\nMO_FN float exp_narrow"));
  const auto occurrences = [](const std::string& text, const std::string& part) {
    size_t n = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at++) n++;
    return n;
  };
  for (const std::string& text : {both, sums}) CHECK(occurrences("\n" + text, "\n#if") == occurrences(text, "\n#endif"));
  CHECK(occurrences(sums, "#define MO_L8 ") == occurrences(sums, "#undef MO_L8\n"));
  CHECK(occurrences(sums, "#define MO_L8 ") > 0);
  CHECK_FALSE(contains(sums, "MO_P0"));   // of another file
}

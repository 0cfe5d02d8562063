// Names in generated text: what is taken is changed, what is free stays, and no two become one.
#include <catch2/catch.hpp>
#include <set>
#include "codegen/names.h"
#include "mirage/ir/reserved_names.h"
#include "mirage/support/hash.h"

using namespace mirage;

TEST_CASE("tensor names: free ones stay, taken ones change") {
  CHECK(mangle_tensor_names({"x", "w", "gamma", "y"}, "rms") == std::vector<std::string>{"x", "w", "gamma", "y"});
  for (const char* taken : {"float", "stream", "main", "dims", "workspace", "lambda", "float4", "NULL", "threadIdx", "linux", "__x", "_X",
                            "_mirage_op", "mirage_demo", "restrict", "uint32_t"}) {
    INFO(taken);
    const std::string changed = mangle_tensor_names({taken}, "p")[0];
    CHECK(changed != taken);
    CHECK_FALSE(is_reserved_name(changed));
  }
  CHECK(mangle_tensor_names({"p_dims"}, "p")[0] != "p_dims");
  CHECK(mangle_tensor_names({"p"}, "p")[0] == "p");
}

TEST_CASE("tensor names: a changed name never takes another tensor's") {
  CHECK(mangle_tensor_names({"float", "float_"}, "p") == std::vector<std::string>{"float_2", "float_"});
  CHECK(mangle_tensor_names({"float_2", "float", "float_", "float"}, "p") ==
        std::vector<std::string>{"float_2", "float_3", "float_", "float_4"});
  CHECK(mangle_tensor_names({"x", "x"}, "p") == std::vector<std::string>{"x", "x_"});   // an output that is an input
}

TEST_CASE("tensor names: all different and none taken, whatever comes in") {
  Rng rng(5);
  const std::vector<std::string> pieces = {"_", "__", "t", "x", "float", "stream", "mirage_", "p_", "1", "dims"};
  for (int round = 0; round < 500; round++) {
    std::vector<std::string> names;
    for (int i = 0; i < 12; i++) {
      std::string n;
      for (uint64_t k = 0; k <= rng.below(4); k++) n += pieces[rng.below(pieces.size())];
      names.push_back(n[0] == '1' ? "a" + n : n);
    }
    const std::vector<std::string> out = mangle_tensor_names(names, round % 2 ? "p" : "t");
    CHECK(std::set<std::string>(out.begin(), out.end()).size() == names.size());
    for (const std::string& n : out) {
      INFO(n);
      CHECK_FALSE(is_reserved_name(n));
      CHECK_FALSE(n.starts_with("mirage_"));
    }
  }
}

TEST_CASE("module names are identifiers that hide no library and no Python module") {
  CHECK(mangle_module_name("rms_norm_linear") == "rms_norm_linear");
  for (const char* taken : {"m", "c", "cuda", "torch", "ctypes", "os", "class", "threading", "_x", "__init__", "9lives", ""}) {
    INFO(taken);
    const std::string changed = mangle_module_name(taken);
    CHECK(changed != taken);
    CHECK_FALSE(is_reserved_module_name(changed));
    CHECK(mangle_module_name(changed) == changed);
  }
  CHECK(mangle_module_name("a-b.c") == "a_b_c");
}

TEST_CASE("literals hold any bytes") {
  CHECK(c_literal("a\"b\\c\nd") == "\"a\\\"b\\\\c\\nd\"");
  CHECK(c_literal("?\?=\x01" "1") == "\"\\077\\077=\\0011\"");
  CHECK(json_string("a\"\\\n") == "\"a\\\"\\\\\\u000a\"");
}

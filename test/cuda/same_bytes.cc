// Two runs with one and with two jobs leave the same bytes, library included (docs/architecture.md, "Determinism"). Skipped without nvcc.
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <unistd.h>

#include "driver/toolchain/toolchain.h"
#include "mirage/driver/compile.h"
#include "mirage/support/file.h"

using namespace mirage;
namespace fs = std::filesystem;

TEST_CASE("one job and two leave the same bytes, library included") {
  if (!find_toolchain().has_nvcc()) { WARN("skipped: there is no nvcc"); return; }
  std::string root = (fs::temp_directory_path() / "mirage-bytes.XXXXXX").string();
  REQUIRE(::mkdtemp(root.data()));
  const std::string spec = read_file(std::string(MIRAGE_SOURCE_DIR) + "/specs/lora.json").value();
  std::map<std::string, std::string> all[2];
  for (int i = 0; i < 2; i++) {
    Options o;
    o.jobs = i + 1;
    o.gate = "none";
    o.output = root + "/" + std::to_string(i);
    o.emit = {"cu", "h", "so", "graph", "certificate", "harness", "python", "makefile"};
    Trace trace;
    const CompileResult r = compile(o, {"lora.json", spec}, trace);
    CHECK(r.exit == ExitCode::kOk);
    for (const auto& e : fs::directory_iterator(o.output)) all[i][e.path().filename()] = read_file(e.path().string()).value();
  }
  fs::remove_all(root);
  CHECK(all[0].count("liblora.so") == 1);
  REQUIRE(all[0].size() == all[1].size());
  for (const auto& [name, bytes] : all[0]) { INFO(name); CHECK(bytes == all[1][name]); }
}

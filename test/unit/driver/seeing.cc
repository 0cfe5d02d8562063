// What people see of a result: pictures, schedules, algebraic steps, why nothing fits.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <regex>
#include <set>

#include <nlohmann/json.hpp>

#include "driver/proof/algebra_rules.h"
#include "driver/proof/algebra_steps.h"
#include "driver/report/drawing.h"
#include "driver/report/figures.h"
#include "driver/decide/fit_limits.h"
#include "driver/evidence/remembered.h"
#include "mirage/driver/compile.h"
#include "mirage/plan/strategy.h"
#include "mirage/spec/spec.h"
#include "mirage/support/file.h"

using namespace mirage;

namespace {

struct Box { double x, y, w, h; };

/// The boxes of a drawing, by their class.
std::vector<Box> boxes_in(const std::string& svg, const std::string& cls) {
  std::vector<Box> out;
  const std::string mark = "<rect class=\"" + cls + "\"";
  for (size_t at = svg.find(mark); at != std::string::npos; at = svg.find(mark, at + 1)) {
    const auto number = [&](const char* key) {
      return std::stod(svg.substr(svg.find(std::string(" ") + key + "=\"", at) + std::string(key).size() + 3));
    };
    out.push_back({number("x"), number("y"), number("width"), number("height")});
  }
  return out;
}

Source spec_file(const std::string& name) { return {name, read_file(std::string(MIRAGE_SOURCE_DIR) + "/specs/" + name).value()}; }

Program program_of(const std::string& name) { return parse_spec(spec_file(name)).value(); }

}  // namespace

TEST_CASE("boxes of a drawing overlap nowhere, and edges lead down") {
  Drawing d;
  for (int i = 0; i < 24; i++)
    d.boxes.push_back(
        {"x", {std::string(static_cast<size_t>(3 + i % 7 * 4), 'a'), "b"}, "", i % 5 == 0 ? 60.0 : 0, i % 5 == 0 ? 90.0 : 0, i / 12});
  for (int i = 1; i < 24; i++) d.edges.emplace_back(i * 7 % i, i), d.edges.emplace_back(i / 3, i);
  d.edges.emplace_back(23, 2);   // a cycle
  const Drawn drawn = draw(d);
  const std::vector<Box> boxes = boxes_in(drawn.svg, "x");
  REQUIRE(boxes.size() == 24);
  for (size_t i = 0; i < boxes.size(); i++) {
    CHECK(boxes[i].x >= 0);
    CHECK(boxes[i].x + boxes[i].w <= drawn.width);
    CHECK(boxes[i].y + boxes[i].h <= drawn.height);
    for (size_t k = 0; k < i; k++) {
      const Box &a = boxes[i], &b = boxes[k];
      INFO(i << " and " << k);
      CHECK((a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y));
    }
  }
  CHECK(draw(d).svg == drawn.svg);
  CHECK(draw({}).svg.empty());
  CHECK(html_text("<a & \"b\">") == "&lt;a &amp; &quot;b&quot;&gt;");
}

TEST_CASE("a drawing begins at its left edge: a residual connection moves nothing to the right") {
  for (int kernels = 2; kernels < 5; kernels++) {
    Drawing d;
    d.boxes.push_back({"x", {"input"}, "", 0, 0, 0});
    for (int k = 0; k < kernels; k++) {   // a kernel and its weight
      d.boxes.push_back({"x", {"kernel"}, "", k % 2 ? 50.0 : 200, 100, 0});
      d.boxes.push_back({"x", {"weight weight"}, "", 0, 0, 0});
      d.edges.emplace_back(k == 0 ? 0 : 2 * k - 1, 2 * k + 1);
      d.edges.emplace_back(2 * k + 2, 2 * k + 1);
    }
    d.edges.emplace_back(0, 2 * kernels - 1);
    const Drawn drawn = draw(d);
    double left = drawn.width;
    for (const Box& b : boxes_in(drawn.svg, "x")) left = std::min(left, b.x);
    for (size_t at = drawn.svg.find('C'); at != std::string::npos; at = drawn.svg.find('C', at + 1))   // where edges bend
      left = std::min(left, std::atof(drawn.svg.c_str() + at + 1));
    CHECK(left <= 20);
  }
}

TEST_CASE("schedules: steps in their phases, places in shared memory that are needed at once do not overlap") {
  size_t places = 0;
  std::set<std::string> seen;
  for (const char* name :
       {"rms_norm_linear.json", "gqa.json", "lora.json", "group_norm.json", "softmax_attention.json", "up_gate_down.json", "mla.json"}) {
    for (const char* target : {"sm_90a", "sm_80"}) {
      const Program p = program_of(name);
      const Planned planned = make_plan(p, p.graph, *find_target(target));
      for (const KernelPlan& k : planned.plan->kernels) {
        const Timeline t = strategy_of(k).timeline(k);
        INFO(name << " " << k.name);
        CHECK(!t.steps.empty());
        seen.insert(strategy_of(k).name);
        for (size_t i = 0; i < t.shared.size(); i++) {
          const SharedLife& a = t.shared[i];
          // Where one begins in the step in which another ends, it takes its place behind a barrier.
          CHECK((a.first >= 0 && a.first <= a.last && a.last < static_cast<int>(t.steps.size()) && a.bytes > 0));
          for (size_t j = 0; j < i; j++) {
            const SharedLife& b = t.shared[j];
            const bool together = a.first < b.last && b.first < a.last,
                       over = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
            INFO(a.what << " and " << b.what);
            CHECK(!(together && over));
            places++;
          }
        }
      }
    }
  }
  CHECK(places > 0);
  CHECK(seen.size() >= 3);
}

TEST_CASE("terms forget tiling, and rules are equalities") {
  const Program p =
      parse_spec(
          {"p",
           R"({"name": "p", "inputs": {"x": {"shape": [4, 8], "dtype": "float32"}, "s": {"shape": [4, 1], "dtype": "float32"}, "w": {"shape": [8, 6], "dtype": "float32"}},
    "outputs": {"y": {"shape": [4, 6], "dtype": "float32"}}, "nodes": [{"op": "div", "inputs": ["x", "s"], "output": "n"}, {"op": "matmul", "inputs": ["n", "w"], "output": "y"}]})"})
          .value();
  const std::vector<Rewriting> all = rewritings(p.graph);
  REQUIRE(all.size() == 1);
  CHECK(std::string(all[0].name) == "a factor that is the same along a product's reduction moves behind the product");
  Terms terms;
  const std::vector<int> a = terms.of(p.graph), b = terms.of(all[0].graph), again = terms.of(p.graph);
  CHECK(a == again);
  CHECK(a.back() != b.back());   // another way to compute it
  // A factor that differs along the reduction stays where it is.
  const Program q =
      parse_spec(
          {"q",
           R"({"name": "q", "inputs": {"x": {"shape": [4, 8], "dtype": "float32"}, "s": {"shape": [4, 8], "dtype": "float32"}, "w": {"shape": [8, 6], "dtype": "float32"}},
    "outputs": {"y": {"shape": [4, 6], "dtype": "float32"}}, "nodes": [{"op": "mul", "inputs": ["x", "s"], "output": "n"}, {"op": "matmul", "inputs": ["n", "w"], "output": "y"}]})"})
          .value();
  CHECK(rewritings(q.graph).empty());
}

TEST_CASE("the steps from a program to its muGraph are named, and the last is the result") {
  Options o;
  o.jobs = 1;
  o.explain_result = true;
  Trace trace;
  const CompileResult r = compile(o, spec_file("rms_norm_linear.json"), trace);
  REQUIRE(r.exit == ExitCode::kOk);
  INFO(r.steps);
  CHECK(r.steps.find("moves behind the product") != std::string::npos);
  const nlohmann::ordered_json j = nlohmann::ordered_json::parse(r.report);
  REQUIRE(j["steps"].size() >= 3);
  CHECK(j["steps"].back()["kernels"] == j["result"]["kernels"].size());
  CHECK(j["steps"].back()["what"].get<std::string>().find("have no name") == std::string::npos);
  CHECK(j["steps"][0]["kernels"].get<int>() > j["steps"].back()["kernels"].get<int>());
  const double algebra = j["steps"][1]["flops"].get<double>(), fused = j["steps"].back()["flops"].get<double>();
  CHECK((fused >= algebra && fused < 1.0001 * algebra));   // fusing computes no less
  for (const auto& a : j["alternatives"]) CHECK(a.contains("lost") == !a["chosen"].get<bool>());   // each with the reason
  CHECK(j["result"]["roofline_us"].get<double>() < j["result"]["predicted_us"].get<double>());
  for (const auto& k : j["result"]["kernels"]) CHECK(!k["timeline"]["steps"].empty());
}

TEST_CASE("the numbers below a roofline stay within the drawing") {
  using Json = nlohmann::ordered_json;
  for (const double intensity : {0.02, 30.0, 1365.0, 12345.0, 1234567.0}) {   // operations per byte
    const Json kernel = {{"bytes", 1e6}, {"flops", 1e6 * intensity}, {"predicted_us", 1e6 * intensity / 7e8}};
    const std::string figure = roofline_figure({{"roofline", {{"dram_bytes_per_us", 4.3e6}, {"tensor_flops_per_us", 7.9e8}}},
                                                {"result", {{"kernels", Json::array({kernel})}}}});
    REQUIRE(figure.find("viewBox=\"0 0 401 ") != std::string::npos);
    const std::regex number(R"re(<text class="u" x="([0-9.]+)" y="[0-9.]+" text-anchor="middle">([0-9.e+-]+)</text>)re");
    int seen = 0;
    for (auto at = std::sregex_iterator(figure.begin(), figure.end(), number); at != std::sregex_iterator(); ++at, seen++)
      CHECK(std::stod((*at)[1]) + 7.2 * static_cast<double>((*at)[2].length()) / 2 <= 400.1);
    CHECK(seen >= 3);
  }
}

TEST_CASE("which limit of which graph, and what would change it") {
  Choices none;
  none.alternatives.push_back({3,
                               2,
                               std::nullopt,
                               {},
                               8,
                               "does not fit sm_90a: shared memory: 300000 bytes of 232448",
                               {{{"stream", "more than 16 rows"}, 8}, {{"block", "shared memory: 300000 bytes of 232448"}, 6}}});
  none.alternatives.push_back({7,
                               1,
                               std::nullopt,
                               {},
                               4,
                               "does not fit sm_90a: a ragged batch dimension",
                               {{{"block", "a ragged batch dimension"}, 4}, {{"attend", "not two contractions"}, 4}}});
  const std::string why = why_none_fits(none);
  INFO(why);
  CHECK(why.find("graph 7 of 1 kernel: a ragged batch dimension (block), at 4 of its 4 plans") != std::string::npos);
  CHECK(why.find("what would change it: batch dimensions joined into one") != std::string::npos);
  CHECK(advice_for_limit("shared memory: 1 bytes of 2").find("more shared memory per block") != std::string::npos);
  CHECK(advice_for_limit("something new").find("alternatives") != std::string::npos);
}

TEST_CASE("what is told of a decision is read from a file that anybody may have written") {
  using Json = nlohmann::ordered_json;
  const Json good = {{"why", "w"}, {"search",
                      {{"states", 1}, {"candidates", 0}, {"verified", 0}, {"rejected", 0}, {"unknown", 0}, {"stop_reason", "s"},
                       {"gates", Json::array({{{"gate", "g"}}})}}},
                     {"alternatives", Json::array({{{"chosen", true}}})}, {"not_done", Json::array({"n"})}};
  CHECK(is_told(good));
  const Json flat = good.flatten();
  for (const auto& [path, value] : flat.items()) {
    Json bad = good;
    bad[Json::json_pointer(path)] = Json::object();
    INFO(path);
    CHECK(!is_told(bad));
  }
  for (const auto& [key, value] : good.items()) {
    Json bad = good;
    bad.erase(key);
    CHECK(!is_told(bad));
  }
}

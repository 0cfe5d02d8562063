// --check-certificate against forgery: every field of a certificate, one at a time, is removed and changed in every way that its type
// allows. What supports the verdict must be refused; what is only told to people is listed by name.
#include <catch2/catch.hpp>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include <nlohmann/json.hpp>

#include "mirage/driver/compile.h"
#include "mirage/driver/modes.h"

using namespace mirage;
using Json = nlohmann::ordered_json;

namespace {

const std::string kNorm =
    R"({"version": "1.0", "name": "norm", "inputs": {"x": {"shape": [16, 256], "dtype": "float16"}, "w": {"shape": [256, 512], "dtype": "float16"}},
 "outputs": {"y": {"shape": [16, 512], "dtype": "float16"}}, "nodes": [{"op": "rms_norm", "inputs": ["x"], "output": "n", "attrs": {"eps": 1e-5}}, {"op": "matmul", "inputs": ["n", "w"], "output": "y"}]})";

const std::string kFolder = (std::filesystem::temp_directory_path() / ("tampering." + std::to_string(getpid()))).string();

/// Fields that say something to people and support nothing.
bool is_told(const std::string& path) {
  static const std::set<std::string> kTold = {"/gates", "/built_with"};
  return std::any_of(kTold.begin(), kTold.end(),
                     [&](const std::string& t) { return path == t || path.compare(0, t.size() + 1, t + "/") == 0; });
}

/// Other values of the same kind.
std::vector<Json> forgeries(const Json& v) {
  std::vector<Json> out{nullptr};
  if (v.is_boolean()) out.push_back(!v.get<bool>());
  if (v.is_number_integer()) {
    // the last wraps to the same int
    for (int64_t d : {int64_t{-1}, int64_t{1}, int64_t{1000}, int64_t{1} << 32}) out.push_back(v.get<int64_t>() + d);
    // casts of such are undefined, or lose the rest
    for (double x : {static_cast<double>(v.get<int64_t>()) + 0.5, 1e30}) out.push_back(x);
  }
  if (v.is_number_float()) for (double d : {-1.0, 1.0, -100.0}) out.push_back(v.get<double>() + d);
  if (v.is_array()) {
    out.push_back(Json::array());
    Json twice = v;
    if (!v.empty()) twice.push_back(v.back());
    else twice.push_back("more");
    out.push_back(twice);
  }
  if (v.is_object()) out.push_back(Json::object());
  if (v.is_string()) {
    std::string s = v;
    out.push_back("");
    out.push_back(s + "x");
    if (s.rfind("0x", 0) == 0) {
      s.back() = s.back() == '0' ? '1' : '0';
      out.push_back(s);
    }
    const size_t digit = s.find_first_of("23456789", s.size() / 2);   // a graph with another number or operator in it
    if (digit != std::string::npos) { std::string t = s; t[digit] = '1'; out.push_back(t); }
    for (auto [from, to] : {std::pair{"mul", "add"}, {"div", "mul"}, {"sqrt", "exp"}, {"accum", "accum.max"}, {"loop", "grid"}})
      if (const size_t at = s.find(from); at != std::string::npos)
        out.push_back(s.substr(0, at) + to + s.substr(at + std::string(from).size()));
  }
  return out;
}

struct Tally { int tried = 0; std::string accepted; };

void tamper(const Json& whole, const Json::json_pointer& at, const Source& spec, Tally& tally) {
  const Json& v = whole.at(at);
  const std::string path = at.to_string();
  if (!path.empty() && !is_told(path)) {
    for (const Json& f : forgeries(v)) {
      if (f == v) continue;
      Json j = whole;
      j[at] = f;
      tally.tried++;
      if (check_certificate(Source{kFolder + "/c.json", j.dump()}, {spec}, Options{}).exit == ExitCode::kOk)
        tally.accepted += path + " = " + f.dump().substr(0, 80) + "\n";
    }
    Json j = whole;
    if (j.at(at.parent_pointer()).is_object()) {
      j.at(at.parent_pointer()).erase(at.back());
      tally.tried++;
      if (check_certificate(Source{kFolder + "/c.json", j.dump()}, {spec}, Options{}).exit == ExitCode::kOk)
        tally.accepted += path + " left out\n";
    }
  }
  if (v.is_object()) for (auto it = v.begin(); it != v.end(); ++it) tamper(whole, at / it.key(), spec, tally);
  if (v.is_array()) for (size_t i = 0; i < v.size(); i++) tamper(whole, at / i, spec, tally);
}

Tally tally_of(int64_t states) {
  Options o;
  o.output.clear();
  o.emit = {"certificate", "cu"};
  o.states = states;
  Trace trace;
  const Source spec{"norm.json", kNorm};
  const CompileResult r = compile(o, spec, trace);
  REQUIRE(r.exit == ExitCode::kOk);
  const Json whole = Json::parse(r.files.at("certificate.json"));
  std::filesystem::create_directories(kFolder);
  std::ofstream(kFolder + "/norm.cu") << r.files.at("norm.cu");   // what the options say is in the source
  REQUIRE(check_certificate(Source{kFolder + "/c.json", whole.dump()}, {spec}, Options{}).exit == ExitCode::kOk);
  Json more = whole;
  more["x-note"] = "of nobody's";
  REQUIRE(check_certificate(Source{kFolder + "/c.json", more.dump()}, {spec}, Options{}).exit == ExitCode::kNotEqual);
  Tally t;
  tamper(whole, Json::json_pointer(), spec, t);
  std::filesystem::remove_all(kFolder);
  return t;
}

}  // namespace

TEST_CASE("a certificate is refused after any change of what supports it") {
  const Tally t = tally_of(Options{}.states);
  INFO(t.tried << " forgeries; accepted:\n" << t.accepted);
  CHECK(t.tried > 150);
  CHECK(t.accepted.empty());
}

TEST_CASE("a straightforward certificate is refused after any change of what supports it") {
  const Tally t = tally_of(0);
  INFO(t.tried << " forgeries; accepted:\n" << t.accepted);
  CHECK(t.tried > 10);
  CHECK(t.accepted.empty());
}

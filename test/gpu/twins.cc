// The twins of the device library's primitives (lib/codegen/runtime/twins/*.twin.h) against hardware: every probe of probes*.cu runs on the
// emulator and on a GPU over random and special words, in all lanes and modes, and must leave the same bits; approximate functions the same
// within the bound that their line states. MIRAGE_PACK=FOLDER keeps the pack, for device_runner on another machine.
#include <cctype>
#include <cmath>
#include <cstring>
#include <map>
#include <sstream>

#include "gpu/device_pack.h"
#include "mirage/support/hash.h"

using namespace mirage;
using namespace mirage::test;

namespace {

struct Probe {
  std::string name, source;
  /// threads, blocks, smem (bytes); in, out (words per block); fill; check ("f32/bits", "f32/ulp:3"); box, element, swizzle (a tensor map)
  std::map<std::string, std::string> keys;
  int64_t number(const std::string& key, int64_t otherwise) const {   // sums of products
    const auto it = keys.find(key);
    if (it == keys.end()) return otherwise;
    std::istringstream terms(it->second);
    int64_t sum = 0;
    for (std::string term; std::getline(terms, term, '+');) {
      std::istringstream factors(term);
      int64_t product = 1;
      for (std::string f; std::getline(factors, f, '*');) product *= std::stoll(f);
      sum += product;
    }
    return sum;
  }
};

using Values = std::map<std::string, std::string>;

Values values_of(std::istream& words) {
  Values out;
  for (std::string w; words >> w;) out[w.substr(0, w.find('='))] = w.substr(w.find('=') + 1);
  return out;
}

/// A line of a probe of several, for these values: "" where it begins "//[KEY=value] " and that does not hold.
std::string line_with(std::string line, const Values& with) {
  if (line.starts_with("//[")) {
    const size_t is = line.find('='), end = line.find("] ");
    if (with.at(line.substr(3, is - 3)) != line.substr(is + 1, end - is - 1)) return "";
    line = line.substr(end + 2);
  }
  for (const auto& [key, value] : with)
    for (size_t at; (at = line.find("$" + key)) != std::string::npos;) line.replace(at, key.size() + 1, value);
  return line;
}

/// The probes of one text: from "// probe NAME ..." on, one per line "// with ..." behind it, or one.
void read_probes(const std::string& text, std::vector<Probe>& out) {
  std::istringstream in(text);
  std::string head;
  std::vector<Values> with;
  std::vector<std::string> body;
  const auto close = [&] {
    if (head.empty()) return;
    for (const Values& v : with.empty() ? std::vector<Values>{{}} : with) {
      std::istringstream words(line_with(head, v));
      Probe p;
      words >> p.name;
      p.keys = values_of(words);
      for (const std::string& l : body) p.source += line_with(l, v) + "\n";
      out.push_back(std::move(p));
    }
    with.clear();
    body.clear();
  };
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("// probe ")) {
      close();
      head = line.substr(9);
    } else if (line.starts_with("// with ")) {
      std::istringstream words(line.substr(8));
      with.push_back(values_of(words));
    } else {
      body.push_back(line);
    }
  }
  close();
}

std::vector<Probe> read_probes() {
  std::vector<Probe> out;
  for (const char* file : {"probes.cu", "probes_wgmma.cu", "probes_tensor.cu"})
    read_probes(*read_file(std::string(MIRAGE_SOURCE_DIR) + "/test/gpu/" + file), out);
  return out;
}

uint32_t word_of(float x) { return std::bit_cast<uint32_t>(x); }

/// A number of a format with these bits: ordinary ones, wide ones, cancelling ones, subnormal ones, zeros, infinities, NaNs, the whole
/// range, the smallest.
uint32_t operand(int exponent_bits, int mantissa_bits, int kind, Rng& rng) {
  const int bias = (1 << (exponent_bits - 1)) - 1, top = (1 << exponent_bits) - 1;
  int e = bias;
  uint32_t m = static_cast<uint32_t>(rng.below(uint64_t{1} << mantissa_bits));
  if (kind == 1) e = bias - 2 + static_cast<int>(rng.below(5));
  if (kind == 2) e = bias - (exponent_bits == 5 ? 7 : 12) + static_cast<int>(rng.below(exponent_bits == 5 ? 15 : 25));
  if (kind == 3 && rng.below(4) == 0) e = 0;
  if (kind == 4) {
    const uint64_t q = rng.below(40);
    if (q < 2) e = top, m = q == 0 ? 0 : 1;
    else if (q < 10) e = 0, m = 0;
  }
  if (kind == 5 && rng.below(8)) e = 0, m = 0;
  if (kind == 6) e = static_cast<int>(rng.below(static_cast<uint64_t>(top)));
  if (kind == 7) e = exponent_bits == 5 ? static_cast<int>(rng.below(4)) : bias - 64 - static_cast<int>(rng.below(8));
  return static_cast<uint32_t>(rng.below(2)) << (exponent_bits + mantissa_bits) | static_cast<uint32_t>(e) << mantissa_bits | m;
}
uint32_t accumulator(int kind, Rng& rng) {
  if (rng.below(4) == 0) return 0;
  if (kind == 4 && rng.below(12) == 0) return std::array{0x7f800000u, 0xff800000u, 0x7fc00001u, 0x80000000u}[rng.below(4)];
  int e = 123 + static_cast<int>(rng.below(12));
  if (kind == 2 || kind == 6) e = 97 + static_cast<int>(rng.below(60));
  if (kind == 7) e = static_cast<int>(rng.below(20));
  return static_cast<uint32_t>(rng.below(2)) << 31 | static_cast<uint32_t>(e) << 23 | static_cast<uint32_t>(rng.below(1u << 23));
}
uint32_t operand_word(const std::string& format, int kind, Rng& rng) {
  if (format == "tf32") return operand(8, 10, kind, rng) << 13 | (kind == 1 ? static_cast<uint32_t>(rng.below(1 << 13)) : 0);
  const bool half = format == "f16";
  const uint32_t low = operand(half ? 5 : 8, half ? 10 : 7, kind, rng);
  return low | operand(half ? 5 : 8, half ? 10 : 7, kind, rng) << 16;
}

std::vector<uint32_t> fill(const Probe& p, int64_t each, int64_t blocks, Rng& rng) {
  std::vector<uint32_t> out;
  const std::string kind = p.keys.at("fill"), format = kind.substr(kind.find('_') + 1);
  const float specials[] = {0.0f,          -0.0f,          1.0f,          -1.0f,         INFINITY,        -INFINITY,
                            NAN,           65504.0f,       65519.9f,      65520.0f,      65536.0f,        5.9604645e-8f,
                            2.9802322e-8f, 2.98023259e-8f, 6.1035156e-5f, 6.0975552e-5f, 1.17549435e-38f, 1e-45f,
                            3.4028235e38f, 3.3961775e38f,  1.00048828f,   1.00146484f,   1.00390625f,     1.01171875f};
  for (int64_t b = 0; b < blocks; b++)
    for (int64_t i = 0; i < each; i++) {
      const double u = rng.uniform();
      const auto pick = static_cast<int>(b % 8);
      if (kind.starts_with("mma")) out.push_back(i % 10 < 6 ? operand_word(format, pick, rng) : accumulator(pick, rng));
      else if (kind.starts_with("wgmma")) out.push_back(i < 6144 + 128 * 16 ? operand_word(format, pick, rng) : accumulator(pick, rng));
      else if (kind.starts_with("pairs")) out.push_back(operand_word(format, static_cast<int>(rng.below(7)), rng));
      else if (kind == "bits" || kind == "bytes17") out.push_back(static_cast<uint32_t>(rng.below(uint64_t{1} << 32)));
      else if (kind == "count")
        out.push_back(static_cast<uint32_t>((b * each + i) & 0xffff) | static_cast<uint32_t>(rng.below(65536)) << 16);
      else if (kind == "floats")
        out.push_back(rng.below(3) == 0 ? word_of(specials[rng.below(std::size(specials))])
                      : rng.below(2)    ? static_cast<uint32_t>(rng.below(uint64_t{1} << 32))
                                        : word_of(static_cast<float>(u * 8 - 4)));
      else if (kind == "exp") out.push_back(word_of(static_cast<float>(rng.below(4) ? u * 40 - 20 : u * 170 - 86)));
      else if (kind == "positive")
        out.push_back(rng.below(2) ? word_of(static_cast<float>(u * 4 + 1e-3))
                                   : static_cast<uint32_t>(0x00800000u + rng.below(0x7f000000u)));
      else if (kind == "wide")
        out.push_back(rng.below(2) ? word_of(static_cast<float>(u * 12 - 6))
                                   : static_cast<uint32_t>(rng.below(2) << 31 | (0x20000000u + rng.below(0x24000000u))));
      // lines begin at multiples of 16 bytes
      else if (kind == "coordinates") out.push_back(static_cast<uint32_t>((static_cast<int>(rng.below(30)) - 8) * (i == 0 ? 8 : 1)));
      else FAIL("no fill " << kind);
    }
  return out;
}

std::vector<unsigned char> bytes_of(const std::vector<uint32_t>& words) {
  std::vector<unsigned char> out(words.size() * 4);
  memcpy(out.data(), words.data(), out.size());
  return out;
}

/// A tensor of odd extents behind a map: boxes hang over its ends, lines have padding.
EmulatedMap map_of(const Probe& p, EmulatedBuffer& tensor, Rng& rng) {
  EmulatedMap m;
  m.buffer = 2;
  m.element_bytes = static_cast<int>(p.number("element", 2));
  m.swizzle = static_cast<int>(p.number("swizzle", 0));
  std::istringstream box(p.keys.at("box"));
  for (std::string b; std::getline(box, b, ',');) m.box.push_back(std::stoi(b));
  const int64_t dims[] = {100, 21, 5, 3, 3};
  int64_t stride = 0;
  for (size_t d = 0; d < m.box.size(); d++) {
    m.dims.push_back(dims[d]);
    if (d > 0) m.strides.push_back(stride = d == 1 ? (dims[0] * m.element_bytes + 31) / 16 * 16 : stride * dims[d - 1]);
  }
  std::vector<uint32_t> words;
  for (int64_t i = 0; i < stride * dims[m.box.size() - 1] / 4 + 16; i++)
    words.push_back(static_cast<uint32_t>(rng.below(uint64_t{1} << 32)));
  tensor.kind = EmulatedBuffer::Kind::kInput;
  tensor.name = "tensor";
  tensor.bytes = bytes_of(words);
  return m;
}

struct Prepared { EmulatedKernel kernel; std::vector<EmulatedBuffer> buffers; };

Prepared prepare(const Probe& p) {
  Rng rng(hash_text(p.name));
  Prepared out;
  const int64_t blocks = p.number("blocks", 1);
  out.kernel.name = "p_" + p.name;
  out.kernel.symbol = "probe";
  out.kernel.source = p.source;
  out.kernel.args = {0, 1};
  out.kernel.written = {false, true};
  out.kernel.grid = {blocks, 1, 1};
  out.kernel.threads = static_cast<int>(p.number("threads", 32));
  out.kernel.smem_bytes = p.number("smem", 0);
  out.buffers.resize(2);
  out.buffers[0].kind = EmulatedBuffer::Kind::kInput, out.buffers[0].name = "in",
  out.buffers[0].bytes = bytes_of(fill(p, p.number("in", 0), blocks, rng));
  out.buffers[1].kind = EmulatedBuffer::Kind::kOutput, out.buffers[1].name = "out",
  out.buffers[1].bytes.resize(static_cast<size_t>(blocks * p.number("out", 0) * 4));
  if (p.keys.count("box")) {
    out.buffers.emplace_back();
    out.kernel.maps.push_back(map_of(p, out.buffers[2], rng));
  }
  return out;
}

}  // namespace

TEST_CASE("twins of primitives run, and equal hardware bit for bit", "[host]") {
  const std::string compiler = find_host_compiler();
  if (compiler.empty()) { WARN("skipped: there is no host compiler"); return; }
  const std::vector<Probe> probes = read_probes();
  REQUIRE(probes.size() == 62);
  EmulationCase all;
  std::vector<Prepared> prepared;
  for (const Probe& p : probes) {
    prepared.push_back(prepare(p));
    all.kernels.push_back(prepared.back().kernel);
  }
  const EmulationLibrary lib = build_emulation({&all}, compiler, std::string(MIRAGE_BINARY_DIR) + "/emulation_test");
  INFO(lib.error);
  REQUIRE(lib.error.empty());
  const Toolchain tools = find_toolchain();
  DevicePack pack(pack_folder("twins"));
  const bool packs = tools.has_nvcc() && (std::getenv("MIRAGE_PACK") || detect_device().device);
  if (packs) REQUIRE(pack.add_module("probes", all.kernels, *find_target("sm_90a"), tools));
  for (size_t i = 0; i < probes.size(); i++) {
    const Emulation run = emulate(lib.path, {prepared[i].kernel}, prepared[i].buffers);
    INFO(probes[i].name << ": " << run.refusal
                        << (run.findings.empty() ? "" : run.findings.front().kind + ": " + run.findings.front().text));
    CHECK(run.ran);
    CHECK(run.findings.empty());
    if (!packs || !run.ran) continue;
    const std::string check = probes[i].keys.at("check");
    const size_t colon = check.find(':');
    std::vector<Expect> expect(prepared[i].buffers.size());
    expect[1] = {check.substr(0, colon), colon == std::string::npos ? 0 : std::atof(check.c_str() + colon + 1)};
    pack.add_case(probes[i].name, probes[i].name, {prepared[i].kernel}, prepared[i].buffers, run.buffers, expect);
  }
  if (!packs) return;
  REQUIRE(pack.write());
  run_pack(pack.folder());
}
